//! Network namespaces, veth pairs, and processes inside them.

use std::fs;
use std::io::{ErrorKind, Write};
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cleanup;
use crate::wait::{NEVER, eventually};

/// The common start of all names of one world: unique on the machine.
#[derive(Clone, Debug)]
pub struct Prefix(String);

impl Prefix {
    /// A prefix that no other world has, in this process or another.
    pub fn unique() -> Self {
        static WORLDS: AtomicU32 = AtomicU32::new(0);
        let world = WORLDS.fetch_add(1, Ordering::Relaxed);
        Self(format!("tp{}w{world}-", std::process::id()))
    }

    /// The name of `role` in this world.
    pub fn name(&self, role: &str) -> String {
        format!("{}{role}", self.0)
    }
}

/// A network namespace; it and all links in it go when this is dropped.
#[derive(Debug)]
pub struct Netns {
    name: String,
}

impl Netns {
    /// Creates the namespace of `role`, with loopback up and no IPv6 address of its own making, so
    /// that nothing but the test's traffic is on its links.
    pub fn create(prefix: &Prefix, role: &str) -> Result<Self> {
        let name = prefix.name(role);
        cleanup::add_namespace(&name);
        run(Command::new("ip").args(["netns", "add", &name]))?;
        let netns = Self { name };
        for (key, value) in [
            ("net/ipv6/conf/default/accept_dad", "0"),
            ("net/ipv6/conf/default/accept_ra", "0"),
            ("net/ipv6/conf/default/router_solicitations", "0"),
            ("net/ipv4/conf/all/rp_filter", "0"),
            ("net/ipv4/conf/default/rp_filter", "0"),
            // Ports that tshark takes for no protocol's: it would call users' data malformed.
            ("net/ipv4/ip_local_port_range", "50000 54327"),
        ] {
            netns.sysctl(key, value)?;
        }
        netns.ip("link set lo up")?;
        Ok(netns)
    }

    /// Its name, as `ip netns exec` takes it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `work` in a thread inside the namespace. Sockets and processes made there stay there.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        enter(&self.name, work)
    }

    /// Runs lines of `ip` commands (without the word `ip`) inside. IPv6 addresses that they add, to links that are up, are
    /// its own when this returns.
    pub fn ip(&self, script: &str) -> Result<()> {
        let mut command = Command::new("ip");
        command.args(["-n", &self.name, "-batch", "-"]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().context("ip")?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(script.as_bytes())?;
        }
        let output = child.wait_with_output()?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{}: ip {script}: {complaint}",
            self.name
        );
        for address in script.lines().filter_map(added) {
            self.enter(|| eventually("an address is local", || is_local(address)))?;
        }
        Ok(())
    }

    /// Sets a kernel parameter, such as `net/ipv4/ip_forward`.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        self.enter(|| {
            fs::write(Path::new("/proc/sys").join(key), value)
                .with_context(|| format!("{key} = {value}"))
        })
    }

    /// Datagrams that UDP sockets inside had no room for.
    pub fn socket_drops(&self) -> Result<u64> {
        self.enter(|| {
            let mut drops = 0;
            for table in ["udp", "udp6"] {
                let text = fs::read_to_string(format!("/proc/thread-self/net/{table}"))?;
                let last = |line: &str| line.split_whitespace().last()?.parse::<u64>().ok();
                drops += text.lines().filter_map(last).sum::<u64>();
            }
            Ok(drops)
        })
    }

    /// A UDP socket inside. Whatever is in the way is awaited: a socket that this process has closed is open for a while
    /// yet in each child that another thread was starting just then, until that one executes its program.
    pub fn udp(&self, address: impl Into<SocketAddr>) -> Result<UdpSocket> {
        let address = address.into();
        self.enter(|| {
            let mut socket = None;
            let what = format!("{}: bind to {address}", self.name);
            eventually(&what, || match UdpSocket::bind(address) {
                Err(e) if e.kind() == ErrorKind::AddrInUse => Ok(false),
                bound => {
                    socket = Some(bound.context(what.clone())?);
                    Ok(true)
                }
            })?;
            socket.context(what)
        })
    }

    /// Starts a process inside.
    pub fn spawn(&self, command: &mut Command) -> Result<Process> {
        self.enter(|| Process::spawn_in(&self.name, command))
    }

    /// Runs a process inside to its end, at most `limit`.
    pub fn output(&self, command: &mut Command, limit: Duration) -> Result<Output> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        self.spawn(command)?.output(limit)
    }

    /// Runs a process inside; its standard output, or an error when it fails.
    pub fn run(&self, program: &str, args: &[&str], limit: Duration) -> Result<String> {
        let output = self.output(Command::new(program).args(args), limit)?;
        if !output.status.success() {
            let (out, err) = (lossy(&output.stdout), lossy(&output.stderr));
            bail!(
                "{program} {}: {}: {out}{err}",
                args.join(" "),
                output.status
            );
        }
        Ok(lossy(&output.stdout))
    }
}

/// As [`Netns::enter`], by the namespace's name.
pub fn enter<T: Send>(name: &str, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            let path = Path::new("/run/netns").join(name);
            let file = fs::File::open(&path).with_context(|| path.display().to_string())?;
            setns(file, CloneFlags::CLONE_NEWNET).context("setns")?;
            work()
        });
        inside
            .join()
            .map_err(|_| anyhow!("{name}: a thread inside panicked"))?
    })
}

/// The address that a line adds.
fn added(line: &str) -> Option<Ipv6Addr> {
    let net = line.trim().strip_prefix("addr add ")?;
    net.split(['/', ' ']).next()?.parse().ok()
}

/// Whether packets to an address are for this namespace. The kernel makes that route in a thread of its own; until then
/// it answers that it knows no way there.
fn is_local(address: Ipv6Addr) -> Result<bool> {
    const RTF_LOCAL: u32 = 0x8000_0000;
    let of_address = format!("{:032x} 80 ", u128::from(address));
    let routes = fs::read_to_string("/proc/thread-self/net/ipv6_route")?;
    let is_local = |flags: &str| u32::from_str_radix(flags, 16).map(|flags| flags & RTF_LOCAL != 0);
    let mut flags = (routes.lines())
        .filter(|route| route.starts_with(&of_address))
        .filter_map(|route| route.split_whitespace().nth(8));
    Ok(flags.any(|flags| is_local(flags) == Ok(true)))
}

impl Drop for Netns {
    fn drop(&mut self) {
        let _ = Command::new("ip")
            .args(["netns", "del", &self.name])
            .output();
        cleanup::forget_namespace(&self.name);
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// One end of a cable: an interface name in a namespace.
#[derive(Clone, Copy)]
pub struct End<'a> {
    /// Namespace that it is in.
    pub netns: &'a Netns,
    /// Name of the interface there.
    pub name: &'a str,
}

/// Lays a veth pair between two namespaces and brings it up.
///
/// Transmit checksum offload is off on both ends: an XDP redirect loses the note that a checksum is
/// still to be filled in.
pub fn cable(a: End<'_>, b: End<'_>, mtu: u32) -> Result<()> {
    a.netns.ip(&format!(
        "link add {} mtu {mtu} type veth peer name {} mtu {mtu} netns {}",
        a.name,
        b.name,
        b.netns.name()
    ))?;
    for end in [a, b] {
        let offloads = ["-K", end.name, "tx", "off"];
        end.netns.run("ethtool", &offloads, NEVER)?;
        end.netns.ip(&format!("link set {} up", end.name))?;
    }
    Ok(())
}

/// Makes an end of a cable take the frames that an XDP program at the other end redirects: with GRO, as far ends of containers have it.
/// Both are up: of GRO that was on before, the kernel does not tell the other end (veth_set_xdp_features).
pub fn take_redirected(end: End<'_>) -> Result<()> {
    let offloads = ["-K", end.name, "gro", "on"];
    end.netns.run("ethtool", &offloads, NEVER).map(drop)
}

/// Packets that these ends of links have lost, either way, because a queue was full.
pub fn link_drops(ends: &[(&Netns, &str)]) -> Result<u64> {
    let mut lost = 0;
    for (netns, link) in ends {
        let report = netns.run("ip", &["-j", "-s", "link", "show", link], NEVER)?;
        let report: serde_json::Value = serde_json::from_str(&report)?;
        for way in ["rx", "tx"] {
            let dropped = report[0]["stats64"][way]["dropped"].as_u64();
            lost += dropped.context("ip link shows no counters")?;
        }
    }
    Ok(lost)
}

/// A child process, killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Option<Child>,
    /// The namespace that it belongs to.
    namespace: String,
}

impl Process {
    /// Starts it in the calling thread's namespace; it belongs to no world.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        Self::spawn_in("", command)
    }

    /// Starts it in the calling thread's namespace; it goes with the world of a namespace of this name.
    pub fn spawn_in(namespace: &str, command: &mut Command) -> Result<Self> {
        command.env(cleanup::OWNER, std::process::id().to_string());
        let child = command.spawn().with_context(|| format!("{command:?}"))?;
        cleanup::add_child(namespace, child.id());
        Ok(Self {
            child: Some(child),
            namespace: namespace.to_owned(),
        })
    }

    /// The standard library's handle; there until the process was waited for.
    pub fn child(&mut self) -> Result<&mut Child> {
        self.child
            .as_mut()
            .context("process was waited for already")
    }

    /// Its process id.
    pub fn id(&mut self) -> Result<u32> {
        Ok(self.child()?.id())
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child()?.try_wait()?)
    }

    /// Asks it to end.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.id()?.cast_signed());
        kill(pid, signal).with_context(|| format!("{signal} to {pid}"))
    }

    /// Waits until it ends, at most `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            ensure!(Instant::now() < deadline, "did not end within {limit:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for its end, at most `limit`, and takes what it wrote.
    pub fn output(mut self, limit: Duration) -> Result<Output> {
        let mut child = self
            .child
            .take()
            .context("process was waited for already")?;
        let pid = child.id();
        let stdin = child.stdin.take();
        drop(stdin);
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(child.wait_with_output()));
        let output = receiver.recv_timeout(limit);
        if output.is_err() {
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
        }
        cleanup::forget_child(&self.namespace, pid);
        Ok(output.map_err(|_| anyhow!("did not end within {limit:?}"))??)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
            cleanup::forget_child(&self.namespace, child.id());
        }
    }
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        lossy(&output.stderr)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn an_address_is_local_once_it_is_added_and_not_because_a_route_to_it_is_there() -> Result<()> {
        let netns = Netns::create(&Prefix::unique(), "a")?;
        let (own, other): (Ipv6Addr, Ipv6Addr) = ("2001:db8::1".parse()?, "2001:db8::2".parse()?);
        let local = |address| netns.enter(|| is_local(address));
        assert!(!local(own)?);
        netns.ip(&format!(
            "route add {other}/128 dev lo\naddr add {own}/128 dev lo nodad"
        ))?;
        assert!(local(own)? && !local(other)?);
        Ok(())
    }

    #[test]
    fn two_namespaces_on_a_cable_reach_each_other_and_leave_nothing() -> Result<()> {
        let prefix = Prefix::unique();
        let (left, right) = (Netns::create(&prefix, "l")?, Netns::create(&prefix, "r")?);
        cable(
            End {
                netns: &left,
                name: "c",
            },
            End {
                netns: &right,
                name: "c",
            },
            1500,
        )?;
        left.ip("addr add 10.0.0.1/24 dev c\naddr add 2001:db8::1/64 dev c")?;
        right.ip("addr add 10.0.0.2/24 dev c\naddr add 2001:db8::2/64 dev c")?;
        left.run("ping", &["-c1", "-W50", "10.0.0.2"], NEVER)?;
        right.run("ping", &["-c1", "-W50", "2001:db8::1"], NEVER)?;

        let path = Path::new("/run/netns").join(left.name());
        assert!(path.exists());
        drop(left);
        assert!(!path.exists());
        Ok(())
    }

    #[test]
    fn a_port_can_be_had_again_while_processes_start() -> Result<()> {
        let netns = Netns::create(&Prefix::unique(), "b")?;
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let start = || {
                while !over.load(Ordering::Relaxed) {
                    let _ = Command::new("true").status();
                }
            };
            for _ in 0..4 {
                scope.spawn(start);
            }
            let again = (0..500).try_for_each(|_| {
                drop(netns.udp((Ipv4Addr::LOCALHOST, 7000))?);
                Ok(())
            });
            over.store(true, Ordering::Relaxed);
            again
        })
    }

    #[test]
    fn a_process_that_does_not_end_is_reported_and_killed() -> Result<()> {
        let netns = Netns::create(&Prefix::unique(), "p")?;
        let error = netns
            .run("sleep", &["60"], Duration::from_millis(50))
            .unwrap_err();
        assert!(error.to_string().contains("did not end"), "{error}");
        Ok(())
    }
}
