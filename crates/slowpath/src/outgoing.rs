//! Packets that leave through the kernel.

/// An IP packet to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Out of this interface; 0: as the kernel's routes say.
    pub ifindex: u32,
    /// The packet, from its IP header on.
    pub packet: Vec<u8>,
}
