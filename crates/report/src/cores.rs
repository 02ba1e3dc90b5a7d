//! CPUs and threads.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// CPUs of the machine, and which threads run there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct CoresReport {
    /// Of the data path: `xdp`, `kernel` or `dpdk`.
    pub kind: String,
    /// `run-to-completion` or `pipeline`; of `dpdk`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// CPUs that are online.
    pub cpus: Vec<CpuReport>,
    /// Threads that run wherever the kernel likes, of the CPUs that are allowed.
    pub anywhere: Vec<String>,
    /// Reasons why the plan is slower than it need be, in words.
    pub doubts: Vec<String>,
}

/// A CPU. What the kernel does not tell is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct CpuReport {
    /// Number of the kernel.
    pub cpu: u32,
    /// NUMA node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// Physical package.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<u32>,
    /// Physical core, by its number within the socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core: Option<u32>,
    /// Other CPUs of the same physical core.
    pub siblings: Vec<u32>,
    /// turnpiked may run there.
    pub allowed: bool,
    /// Threads that have this CPU: `worker-0`, `receiver-0`, `control`, which is all others; with `spread_cpus`, users of an
    /// interface.
    pub threads: Vec<String>,
}
