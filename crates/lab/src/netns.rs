//! Network namespaces, veth pairs, and processes inside them.

use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{cleanup, sys};

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
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let path = Path::new("/run/netns").join(&self.name);
                let file = fs::File::open(&path).with_context(|| path.display().to_string())?;
                setns(file, CloneFlags::CLONE_NEWNET).context("setns")?;
                work()
            });
            inside
                .join()
                .map_err(|_| anyhow!("{}: a thread inside panicked", self.name))?
        })
    }

    /// Runs lines of `ip` commands (without the word `ip`) inside.
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
        Ok(())
    }

    /// Sets a kernel parameter, such as `net/ipv4/ip_forward`.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        self.enter(|| {
            fs::write(Path::new("/proc/sys").join(key), value)
                .with_context(|| format!("{key} = {value}"))
        })
    }

    /// Starts a process inside.
    pub fn spawn(&self, command: &mut Command) -> Result<Process> {
        self.enter(|| Process::spawn(command))
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
    /// Where it is.
    pub netns: &'a Netns,
    /// What it is called there.
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
        end.netns
            .run("ethtool", &offloads, Duration::from_secs(10))?;
        end.netns.ip(&format!("link set {} up", end.name))?;
    }
    Ok(())
}

/// Makes an end take the frames that an XDP program at the other end sends, until the descriptor is
/// closed. See [`sys::attach_xdp_pass`].
pub fn take_xdp_frames(end: End<'_>) -> Result<OwnedFd> {
    end.netns.enter(|| {
        let ifindex = nix::net::if_::if_nametoindex(end.name).context(end.name.to_owned())?;
        sys::attach_xdp_pass(ifindex)
    })
}

/// A child process, killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Option<Child>,
}

impl Process {
    /// Starts it in the calling thread's namespace.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        let child = command.spawn().with_context(|| format!("{command:?}"))?;
        cleanup::add_child(child.id());
        Ok(Self { child: Some(child) })
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
        cleanup::forget_child(pid);
        Ok(output.map_err(|_| anyhow!("did not end within {limit:?}"))??)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
            cleanup::forget_child(child.id());
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
    use super::*;

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
        let limit = Duration::from_secs(10);
        left.run("ping", &["-c1", "-W2", "10.0.0.2"], limit)?;
        right.run("ping", &["-c1", "-W2", "2001:db8::1"], limit)?;

        let path = Path::new("/run/netns").join(left.name());
        assert!(path.exists());
        drop(left);
        assert!(!path.exists());
        Ok(())
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
