//! Choices for the data path as a whole.

use std::net::IpAddr;
use std::time::Duration;

use crate::abi::Features;

/// Choices that stay while the data path runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Features of the programs, which stay whatever is needed. `None`: those of the narrowest build with all that is in use,
    /// atomic counters only where several CPUs may meet one session.
    pub features: Option<Features>,
    /// Time for which the need for features must have been the same before programs without the others
    /// take over.
    pub settle: Duration,
    /// Some of our GTP-U addresses are IPv6.
    pub outer6: bool,
    /// Tunnels over IPv6 carry a UDP checksum; without it, zero (RFC 6935).
    pub udp6_checksum: bool,
    /// Error Indications per second and CPU; 0: none.
    pub error_indications_per_s: u32,
    /// Echo Responses per second and CPU; 0: no limit.
    pub echo_per_s: u32,
    /// ICMP errors of each kind, time exceeded and too big, per second and CPU; 0: none.
    pub icmp_errors_per_s: u32,
    /// Packets of L4S (ECT(1)) are marked where their meters are so far ahead; `None`: none are.
    pub l4s: Option<Duration>,
    /// PFCP that a program serves, where packets meet programs; `None`: none.
    pub n4: Option<N4Port>,
}

/// Interface and addresses of N4.
#[derive(Clone, Debug, Default)]
pub struct N4Port {
    /// Its interface; `None`: no packet meets the program, which is for [`Tables::n4_runner`](crate::Tables::n4_runner).
    pub interface: Option<String>,
    /// Ours: one of each family at most.
    pub addresses: Vec<IpAddr>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            features: None,
            settle: Duration::from_secs(10),
            outer6: true,
            udp6_checksum: true,
            error_indications_per_s: 100,
            echo_per_s: 1000,
            icmp_errors_per_s: 1000,
            l4s: None,
            n4: None,
        }
    }
}
