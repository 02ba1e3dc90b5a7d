//! A UPF as its SMFs see it.

use std::net::SocketAddr;

/// Datagrams, each with its receiver.
pub type Sent = Vec<(SocketAddr, Vec<u8>)>;

/// The other end of N4. What stands for an SMF knows no more of it, and so cannot rely on it.
pub trait Upf {
    /// Hand over a datagram; what is sent thereupon.
    fn receive(&mut self, from: SocketAddr, datagram: &[u8]) -> Sent;
}
