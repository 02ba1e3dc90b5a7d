//! A cable between two network namespaces without a name: they end with the threads and descriptors that hold them,
//! whatever happens. Needs root.

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns, unshare};

use crate::Mac;

/// Longer than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Run in the network namespace of the calling thread.
pub fn sh(command: &str) -> String {
    let output = Command::new("sh").args(["-ec", command]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Move this thread into a network namespace of its own.
pub fn enter_fresh_namespace() {
    unshare(CloneFlags::CLONE_NEWNET).expect("these tests need root");
    sh("ip link set lo up");
}

/// The machine at the other end of the cable.
pub struct Host(File);

impl Host {
    /// Without any interface but its loopback.
    #[allow(clippy::new_without_default, reason = "it makes a namespace")]
    pub fn new() -> Self {
        let make = || {
            enter_fresh_namespace();
            File::open("/proc/thread-self/ns/net").unwrap()
        };
        Self(std::thread::spawn(make).join().unwrap())
    }

    /// Its network namespace, for `ip`.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Do this in a thread of its own there.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let work = || {
            setns(&self.0, CloneFlags::CLONE_NEWNET).unwrap();
            work()
        };
        std::thread::scope(|scope| scope.spawn(work).join().unwrap())
    }

    /// Run this there.
    pub fn sh(&self, command: &str) {
        self.run(|| sh(command));
    }
}

/// Of `net`.
pub const PEER_MAC: Mac = Mac([2, 0, 0, 0, 0, 0x20]);

/// `n6` here, `net` there, with addresses at both ends.
pub fn cable() -> Host {
    enter_fresh_namespace();
    let host = Host::new();
    sh(&format!(
        "ip link add n6 address 02:00:00:00:00:06 type veth peer name net address 02:00:00:00:00:20 netns {}",
        host.path()
    ));
    for (command, suffix) in [("net", 2), ("n6", 1)] {
        let set_up = format!(
            "sysctl -qw net.ipv6.conf.{command}.accept_dad=0
             ip addr add 10.6.0.{suffix}/24 dev {command}
             ip addr add 2001:db8:6::{suffix}/64 dev {command} nodad
             ip link set {command} up"
        );
        if command == "n6" {
            sh(&set_up);
        } else {
            host.sh(&set_up);
        }
    }
    host
}

/// Within a second a fresh link has its multicast route, without which nobody is solicited.
pub fn wait_for_ipv6(host: &Host) {
    let routes = |name| {
        sh(&format!(
            "ip -6 route show table all type multicast dev {name}"
        ))
    };
    wait_for("IPv6 here", || !routes("n6").is_empty());
    wait_for("IPv6 there", || host.run(|| !routes("net").is_empty()));
}

/// Index of an interface here.
pub fn ifindex(name: &str) -> u32 {
    sh(&format!(
        "cat /sys/class/net/{name}/ifindex 2>/dev/null || true"
    ));
    nix::net::if_::if_nametoindex(name).unwrap()
}

/// An address.
pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Look until it holds.
pub fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
