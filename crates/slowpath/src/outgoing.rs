//! Packets that leave by sockets.

/// An IP packet to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Out of this interface; 0: as the kernel's routes say.
    pub ifindex: u32,
    /// Its link header, where the next hop is known. Empty: the kernel finds the neighbour.
    pub link: Vec<u8>,
    /// The packet, from its IP header on.
    pub packet: Vec<u8>,
}

impl Outgoing {
    /// By a neighbour that the kernel finds. It gives an IPv4 packet without DF whose identification is 0 another one.
    pub fn by_kernel(ifindex: u32, packet: Vec<u8>) -> Self {
        Self {
            ifindex,
            link: Vec::new(),
            packet,
        }
    }

    /// The packet behind its link header.
    pub(crate) fn frame(&self) -> Vec<u8> {
        [&self.link[..], &self.packet].concat()
    }
}
