//! Parts of the machine that tests need for themselves.

use nix::fcntl::{Flock, FlockArg};

/// Loading programs needs it; a test that did not run must not look as if it had passed.
pub fn need_root() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let uid = status
        .lines()
        .find(|line| line.starts_with("Uid:"))
        .unwrap();
    assert_eq!(
        uid.split_whitespace().nth(2),
        Some("0"),
        "loading XDP programs needs root"
    );
}

/// Pages of 2 MiB, reserved until this is dropped. Others may reserve some meanwhile.
pub struct HugePages(u64);

const RESERVED: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

impl HugePages {
    fn change(by: i64) -> u64 {
        let file = std::fs::File::open(RESERVED).unwrap();
        let _lock = Flock::lock(file, FlockArg::LockExclusive).unwrap();
        let number = || -> i64 {
            std::fs::read_to_string(RESERVED)
                .unwrap()
                .trim()
                .parse()
                .unwrap()
        };
        let before = number();
        std::fs::write(RESERVED, (before + by).max(0).to_string()).unwrap();
        number().abs_diff(before)
    }

    /// So many more than there are.
    pub fn reserve(pages: i64) -> Self {
        let reserved = Self(Self::change(pages));
        assert_eq!(reserved.0, pages as u64, "pages that the kernel has");
        reserved
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        Self::change(-(self.0 as i64));
    }
}

/// Have the kernel say nothing of itself on interfaces of this thread's namespace.
pub fn quiet_kernel() {
    for which in ["all", "default"] {
        let file = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
        std::fs::write(file, "1").unwrap();
    }
}
