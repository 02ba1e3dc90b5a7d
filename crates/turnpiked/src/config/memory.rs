//! How much memory the limits ask for, and how much there is: of the machine, and of the control groups that this process
//! is in.

use std::path::{Path, PathBuf};

use super::{Config, DatapathKind, FastPath, Problem};

/// Octets of a process beside its tables and the ring of packets that wait: measured, programs included.
const BESIDE: u64 = 24 << 20;

/// Octets of a session beside its lines in the tables: measured with a million.
const OF_A_SESSION: u64 = 320;

/// The least that this process can have, and who says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) octets: u64,
    /// A file, as the operator finds it.
    pub(crate) of: String,
}

impl Default for Memory {
    /// No bound is known.
    fn default() -> Self {
        of_machine("")
    }
}

impl Memory {
    /// As this machine has it; without `/proc` no bound is known.
    pub(crate) fn read() -> Self {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let total = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let of_groups = bounds_of(&groups, Path::new("/sys/fs/cgroup"));
        of_groups.fold(of_machine(&total), |least, (octets, file)| {
            if octets >= least.octets {
                return least;
            }
            let of = file.display().to_string();
            Self { octets, of }
        })
    }
}

fn of_machine(meminfo: &str) -> Memory {
    Memory {
        octets: octets_of(meminfo, "MemTotal:").unwrap_or(u64::MAX),
        of: "MemTotal in /proc/meminfo".to_owned(),
    }
}

/// Of a line of `/proc/meminfo`.
fn octets_of(meminfo: &str, name: &str) -> Option<u64> {
    meminfo.lines().find_map(|line| {
        let kib = line.strip_prefix(name)?.trim().strip_suffix("kB")?;
        Some(kib.trim().parse::<u64>().ok()?.saturating_mul(1024))
    })
}

/// Bounds of the groups in `/proc/self/cgroup`, and of those that they are in. A container may see the root of its own groups
/// in place of the path.
fn bounds_of(groups: &str, root: &Path) -> impl Iterator<Item = (u64, PathBuf)> {
    let files = groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ => (root.join(controllers), "memory.limit_in_bytes"),
        };
        let is_of_memory = controllers.is_empty() || controllers.split(',').any(|c| c == "memory");
        let group = root.join(path.trim_start_matches('/'));
        let within = group.ancestors().filter(|dir| dir.starts_with(&root));
        let files: Vec<_> = within.map(|dir| dir.join(file)).collect();
        is_of_memory.then_some(files).into_iter().flatten()
    });
    // "max", and a number beyond all memory, are no bounds.
    let bounds = files.filter_map(|file| {
        let text = std::fs::read_to_string(&file).ok()?;
        Some((text.trim().parse().ok()?, file))
    });
    bounds.collect::<Vec<_>>().into_iter()
}

/// Octets that a program for N4 has for each session.
const LINE: u64 = 64;

/// ... and for requests that it has served.
const SERVED_RING: u64 = 16 << 20;

/// Octets at the start, and with everything in use. `tables`: octets of the tables.
fn wanted(config: &Config, tables: u64) -> (u64, u64) {
    let ring = u64::from(config.buffering.ring_mib) << 20;
    let program = match config.n4.fast_path {
        FastPath::Data => u64::from(config.limits.sessions) * LINE + SERVED_RING,
        _ => 0,
    };
    let tables = tables.saturating_add(ring + BESIDE + program);
    let sessions = u64::from(config.limits.sessions) * OF_A_SESSION;
    // A start that takes over copies what waits.
    let copies = if config.state.dir.is_some() { 2 } else { 1 };
    let waiting = (u64::from(config.buffering.max_mib) << 20) * copies;
    (tables, tables.saturating_add(sessions + waiting))
}

/// Too little to start. `tables`: octets of the tables.
pub(crate) fn problem(config: &Config, memory: &Memory, tables: u64) -> Option<Problem> {
    let (at_start, _) = wanted(config, tables);
    // The others take their memory as it is filled.
    if config.datapath.kind != DatapathKind::Xdp || at_start <= memory.octets {
        return None;
    }
    let reason = format!(
        "{} are needed to start, and {} allows {}: lower limits.sessions and limits.filters, or raise it",
        mib(at_start),
        memory.of,
        mib(memory.octets)
    );
    let sessions = config.limits.sessions;
    Some(Problem::new("limits.sessions", sessions, reason))
}

/// Too little to start beside tables that are in use. `tables`: octets of those, and of the new ones.
pub(crate) fn problem_of_second(
    config: &Config,
    memory: &Memory,
    (now, tables): (u64, u64),
) -> Option<Problem> {
    let (at_start, _) = wanted(config, tables);
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = octets_of(&meminfo, "MemAvailable:").unwrap_or(u64::MAX);
    let lacks = if at_start > free {
        format!(
            "of which {} are available (MemAvailable in /proc/meminfo)",
            mib(free)
        )
    } else if at_start.saturating_add(now) > memory.octets {
        format!(
            "beside {} that are in use, and {} allows {}",
            mib(now),
            memory.of,
            mib(memory.octets)
        )
    } else {
        return None;
    };
    let reason = format!(
        "{} are needed for a start that takes over, {lacks}",
        mib(at_start)
    );
    Some(Problem::new(
        "limits.sessions",
        config.limits.sessions,
        reason,
    ))
}

/// Enough to start, and too little with everything in use. `tables`: octets of the tables.
pub(crate) fn doubt(config: &Config, memory: &Memory, tables: u64) -> Option<String> {
    let (_, full) = wanted(config, tables);
    (full > memory.octets).then(|| {
        format!(
            "with everything in use {} are needed, and {} allows {}: the kernel would end this process. Lower limits.sessions, \
             limits.filters and buffering.max_mib, or raise it",
            mib(full),
            memory.of,
            mib(memory.octets)
        )
    })
}

fn mib(octets: u64) -> String {
    format!("{} MiB", octets >> 20)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Directories of control groups as a kernel shows them.
    struct Groups(PathBuf);

    impl Groups {
        fn with(name: &str, files: &[(&str, &str)]) -> Self {
            let name = format!("turnpiked-groups-{name}-{}", std::process::id());
            let root = std::env::temp_dir().join(name);
            for (file, text) in files {
                let file = root.join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
            Self(root)
        }

        fn least(&self, groups: &str) -> Option<(u64, PathBuf)> {
            let relative = |(octets, file): (u64, PathBuf)| {
                let file = file.strip_prefix(&self.0).unwrap().to_owned();
                (octets, file)
            };
            bounds_of(groups, &self.0).map(relative).min()
        }
    }

    impl Drop for Groups {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_least_of_all_groups_bounds() {
        let root = Groups::with(
            "nested",
            &[
                ("system.slice/upf.service/memory.max", "max\n"),
                ("system.slice/memory.max", "1000000\n"),
            ],
        );
        let found = root.least("0::/system.slice/upf.service\n");
        assert_eq!(found, Some((1_000_000, "system.slice/memory.max".into())));
    }

    #[test]
    fn groups_of_the_first_version_bound() {
        let root = Groups::with(
            "first",
            &[
                ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("memory/a/memory.limit_in_bytes", "4096\n"),
            ],
        );
        let groups = "8:pids:/b\n4:memory:/a/of/another/namespace\n0::/\n";
        let found = root.least(groups);
        assert_eq!(found, Some((4096, "memory/a/memory.limit_in_bytes".into())));
    }

    #[test]
    fn a_container_sees_its_own_root() {
        let root = Groups::with("container", &[("memory.max", "8192")]);
        let found = root.least("0::/../../docker/0123\n");
        assert_eq!(found, Some((8192, "memory.max".into())));
        assert_eq!(root.least(""), None);
    }

    #[test]
    fn a_machine_has_so_much() {
        assert_eq!(of_machine("MemTotal:       16 kB\n").octets, 16_384);
        assert_eq!(of_machine("").octets, u64::MAX);
    }
}
