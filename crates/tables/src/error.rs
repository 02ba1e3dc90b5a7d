//! Why the data path cannot start.

use std::io;
use std::path::PathBuf;

use crate::abi::PORTS_MAX;
use crate::port::Mode;

/// The data path cannot start.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// Nothing to forward between.
    #[error("no data interface is configured")]
    NoPorts,
    /// More interfaces than the tables count.
    #[error("{0} data interfaces are configured; {max} are possible", max = PORTS_MAX)]
    TooManyPorts(usize),
    /// No such interface.
    #[error("there is no interface named {name} in this network namespace")]
    NoInterface {
        /// Name of the interface.
        name: String,
    },
    /// The kernel would not attach the program.
    #[error("cannot attach to {name} in {mode:?} mode: {error}{}", advice(error, *mode))]
    Attach {
        /// The interface.
        name: String,
        /// As asked for.
        mode: Mode,
        /// As the kernel said it.
        error: io::Error,
    },
    /// An interface was made anew, and this data path cannot take it up: the port of this number.
    #[error(
        "this data path cannot take up the interface of port {0} again: remove one of its name that is no TAP interface of turnpiked's (dpdk), or restart turnpiked"
    )]
    NotAnew(usize),
    /// The program of N4 comes behind another one, which is not there.
    #[error("the interface {0} carries users' packets as well, and their program is not attached")]
    NotMet(String),
    /// The kernel would not take a map or a program.
    #[error("{what}: {error}")]
    Bpf {
        /// The step that failed.
        what: String,
        /// Error of libbpf.
        error: String,
    },
    /// The kernel would not take these programs when it was last asked.
    #[error("{0}")]
    Refused(String),
    /// DPDK would not start, or has no such device.
    #[error("DPDK: {0}")]
    Dpdk(String),
    /// Programs that are to outlive the process find no place.
    #[error("{folder:?}: {error}")]
    Pins {
        /// Folder of the pins.
        folder: PathBuf,
        /// As the kernel said it, or why it will not do.
        error: io::Error,
    },
    /// No memory for the tables, or no grace periods.
    #[error("tables: {0}")]
    Io(#[from] io::Error),
}

fn advice(error: &io::Error, mode: Mode) -> &'static str {
    match (error.raw_os_error(), mode) {
        (Some(libc::EBUSY | libc::EEXIST), _) => {
            ". Another XDP program is attached: see 'bpftool net', detach it with 'ip link set dev NAME xdp off'; one that a \
             turnpiked with state.bpffs has left goes with 'turnpiked detach FILE', its configuration"
        }
        (Some(libc::EOPNOTSUPP), Mode::Driver) => {
            ". Its driver knows no XDP; mode = \"generic\" works everywhere, slowly"
        }
        (Some(libc::EPERM), _) => ". CAP_BPF and CAP_NET_ADMIN are needed",
        _ => "",
    }
}
