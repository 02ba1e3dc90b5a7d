//! Data interfaces, as they are configured.

use std::net::IpAddr;

use compiled::NiId;
use serde::{Deserialize, Serialize};

use crate::abi::host::tp_port_config;
use crate::abi::{Features, raw};

/// Roles of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roles {
    /// GTP-U.
    pub n3: bool,
    /// Plain IP.
    pub n6: bool,
}

/// CPUs that one interface's users can be spread over.
pub const LANES_MAX: usize = 16;

/// Mode of attaching a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// In the driver.
    #[default]
    Driver,
    /// In the kernel's generic path: slow, for interfaces whose driver knows no XDP.
    Generic,
}

/// A data interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortConfig {
    /// Its name in this network namespace.
    pub name: String,
    /// Its roles.
    pub roles: Roles,
    /// The lowest network instance on it, whose directory UE addresses of all on it are in.
    pub ni: NiId,
    /// Mode of attaching. The host pipeline ignores it.
    pub mode: Mode,
    /// CPUs that users' packets are spread over, at most [`LANES_MAX`]; none: each packet stays on the
    /// CPU where it comes in. The host pipeline ignores it.
    pub spread: Vec<u32>,
    /// Our GTP-U addresses on it, for a data path that has sockets there.
    pub addresses: Vec<IpAddr>,
    /// As DPDK names it, with its arguments, for a data path over DPDK.
    pub device: String,
    /// Numbers of the threads that poll its receive queues, for a data path over DPDK: of receive cores in the pipeline, of workers
    /// in run to completion. None: all of them do.
    pub polled_by: Vec<u32>,
    /// N4 comes by it, too: requests meet the program that serves them behind that of users' packets. Of XDP alone, without users that
    /// are spread by their addresses.
    pub has_n4: bool,
    /// The kernel forwards the packets that come in towards UEs, and has spent their hop.
    pub is_forwarded: bool,
}

impl PortConfig {
    /// As the pipeline in this process takes it, by its number.
    pub(crate) fn as_port(&self, port: u32, features: Features) -> tp_port_config {
        let role = |is: bool, role: u32| if is { role } else { 0 };
        tp_port_config {
            port,
            roles: role(self.roles.n3, raw::TP_ROLE_N3)
                | role(self.roles.n6, raw::TP_ROLE_N6)
                | role(self.is_forwarded, raw::TP_ROLE_FORWARDED),
            features: features.bits(),
            ni: self.ni.0.into(),
        }
    }
}
