//! The system that the daemon runs on: rights, time, randomness, its supervisor.

use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use report::HugePages;

use crate::config::DatapathKind;

/// Seconds from 1900, the era of NTP, to 1970.
const NTP_EPOCH_S: u64 = 2_208_988_800;

/// Capabilities that we need, as capabilities(7) numbers them, and why.
const CAPABILITIES: [(u32, &str); 4] = [
    (12, "CAP_NET_ADMIN (attach XDP, make interfaces and routes)"),
    (
        13,
        "CAP_NET_RAW (send packets whose neighbour is being resolved)",
    ),
    (38, "CAP_PERFMON (load the data path)"),
    (39, "CAP_BPF (load the data path)"),
];
/// Stands for the last two.
const CAP_SYS_ADMIN: u32 = 21;

/// The rights that this process lacks.
pub(crate) fn missing_capabilities(kind: DatapathKind) -> Vec<&'static str> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Without /proc, the failing call itself will tell.
    effective.map_or(Vec::new(), |effective| missing_from(effective, kind))
}

fn missing_from(effective: u64, kind: DatapathKind) -> Vec<&'static str> {
    let has = |bit: u32| effective & 1 << bit != 0;
    let is_needed = |bit: u32| bit < 38 || kind == DatapathKind::Xdp;
    CAPABILITIES
        .into_iter()
        .filter(|&(bit, _)| is_needed(bit))
        .filter(|&(bit, _)| !(has(bit) || bit >= 38 && has(CAP_SYS_ADMIN)))
        .map(|(_, name)| name)
        .collect()
}

/// Environment variable that glibc reads its settings from, before `main`.
const TUNABLES: &str = "GLIBC_TUNABLES";
/// Says to the program started anew that it has been. Settings alone would not: glibc takes them away from a program that
/// runs with more rights than whoever started it.
const RESTARTED: &str = "TURNPIKED_RESTARTED";

/// Have memory in huge pages, as far as the kernel has some: with a million sessions each request reads a dozen
/// pages, and a processor remembers where so many small ones are no longer.
///
/// Starts this program anew, once, in the same process, unless somebody has chosen settings already. Where that cannot
/// be done it goes on as it is.
pub(crate) fn use_huge_pages() {
    let is_set = |name: &str| std::env::var_os(name).is_some();
    if is_set(TUNABLES) || is_set(RESTARTED) {
        return;
    }
    let mut args = std::env::args_os();
    if let (Ok(program), Some(name)) = (std::env::current_exe(), args.next()) {
        // It returns only when it has failed.
        let _ = Command::new(program)
            .arg0(name)
            .args(args)
            .env(TUNABLES, "glibc.malloc.hugetlb=1")
            .env(RESTARTED, "1")
            .exec();
    }
}

/// Be called turnpiked, whatever the path was that the program was started by.
pub(crate) fn take_name() {
    // It is for people, and there is nothing to do about an error.
    let _ = nix::sys::prctl::set_name(c"turnpiked");
}

/// Whether malloc asks for huge pages, by our choice or somebody else's.
fn asks_for_huge_pages() -> bool {
    let set = std::env::var(TUNABLES).unwrap_or_default();
    set.split(':').any(|one| one == "glibc.malloc.hugetlb=1")
}

/// Memory of ours in huge pages. The kernel looks through our page tables for it: some milliseconds with gigabytes.
pub(crate) fn huge_pages() -> HugePages {
    let sums = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let octets = |name: &str| {
        let kib = sums.lines().find_map(|line| line.strip_prefix(name))?;
        Some(kib.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
    };
    HugePages {
        asked_for: asks_for_huge_pages(),
        bytes: octets("AnonHugePages:"),
        file_bytes: octets("ShmemPmdMapped:"),
    }
}

/// Online CPUs, and the seconds that each was not idle since the machine started; none where there is no `/proc`.
pub(crate) fn busy_cpus() -> Vec<(usize, f64)> {
    let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK);
    let per_s = ticks.ok().flatten().unwrap_or(100) as f64;
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let lines = stat.lines().filter_map(busy_ticks);
    lines
        .map(|(cpu, ticks)| (cpu, ticks as f64 / per_s))
        .collect()
}

/// Of a line of `/proc/stat` about one CPU: all but `idle` and `iowait`, and guests' time once.
fn busy_ticks(line: &str) -> Option<(usize, u64)> {
    let mut fields = line.split_ascii_whitespace();
    let cpu = fields.next()?.strip_prefix("cpu")?.parse().ok()?;
    let times: Vec<u64> = fields
        .take(8)
        .filter_map(|field| field.parse().ok())
        .collect();
    let idle: u64 = times.iter().skip(3).take(2).sum();
    Some((cpu, times.iter().sum::<u64>() - idle))
}

/// The wall clock, from the beginning of 1900.
pub(crate) fn ntp() -> Duration {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH);
    unix.unwrap_or_default() + Duration::from_secs(NTP_EPOCH_S)
}

/// Run the calling thread, and those that it starts, on these CPUs alone; none: where it runs now.
pub(crate) fn run_on(cpus: &[u32]) -> nix::Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu as usize)?;
    }
    sched_setaffinity(Pid::from_raw(0), &set)
}

/// A number that no peer can guess.
pub(crate) fn random() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Tell the supervisor (sd_notify(3)), if there is one. It is told once more at most; a supervisor
/// that does not listen is its own affair.
pub(crate) fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = notify_at(path.as_encoded_bytes(), state) {
        tracing::warn!(%error, "NOTIFY_SOCKET: the supervisor was not told {state}");
    }
}

/// `@` begins a name in the abstract namespace.
fn notify_at(path: &[u8], state: &str) -> std::io::Result<()> {
    let address = match path.split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(String::from_utf8_lossy(path).as_ref())?,
    };
    UnixDatagram::unbound()?
        .send_to_addr(state.as_bytes(), &address)
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lacking_rights_are_named() {
        let xdp = DatapathKind::Xdp;
        assert_eq!(missing_from(u64::MAX, xdp), [""; 0]);
        assert_eq!(missing_from(1 << 12 | 1 << 13 | 1 << 21, xdp), [""; 0]);
        let sockets = missing_from(1 << 12 | 1 << 13, DatapathKind::Kernel);
        assert_eq!(sockets, [""; 0]);
        let lacking = missing_from(1 << 12 | 1 << 38, xdp);
        assert_eq!(lacking.len(), 2);
        assert!(lacking[0].starts_with("CAP_NET_RAW") && lacking[1].starts_with("CAP_BPF"));
    }

    #[test]
    fn a_cpu_is_busy_when_it_is_not_idle() {
        // user nice system idle iowait irq softirq steal guest guest_nice
        let line = "cpu12 100 20 30 5000 600 7 8 9 50 1";
        assert_eq!(busy_ticks(line), Some((12, 100 + 20 + 30 + 7 + 8 + 9)));
        for other in ["cpu  1 2 3 4", "intr 1 2", "", "cpux 1 2 3 4"] {
            assert_eq!(busy_ticks(other), None, "{other}");
        }
        assert!(!busy_cpus().is_empty());
    }

    #[test]
    fn the_supervisor_is_told() {
        let name = format!("turnpiked-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let supervisor = UnixDatagram::bind_addr(&address).unwrap();
        notify_at(format!("@{name}").as_bytes(), "READY=1").unwrap();
        let mut buffer = [0; 32];
        let len = supervisor.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], b"READY=1");
    }

    #[test]
    fn random_numbers_differ() {
        assert_ne!(random().unwrap(), random().unwrap());
    }
}
