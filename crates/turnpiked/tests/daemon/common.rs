//! A real turnpiked in a network namespace of its own, an SMF in another.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use lab::netns::{End, Netns, Prefix, Process, cable};
use lab::smf::Smf;
use nix::sys::signal::Signal;
use rs_pfcp::ie::node_id::NodeId;

pub(crate) const UPF_N4: Ipv4Addr = Ipv4Addr::new(10, 100, 0, 1);
pub(crate) const SMF_N4: Ipv4Addr = Ipv4Addr::new(10, 100, 0, 2);
pub(crate) const UPF_N3: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 1);
/// Nothing takes so long on any machine.
pub(crate) const LIMIT: Duration = lab::wait::NEVER;

/// Two namespaces with N3, N4 and N6 between them; gone when dropped.
pub(crate) struct Net {
    pub(crate) upf: Netns,
    pub(crate) peer: Netns,
    pub(crate) folder: PathBuf,
}

impl Net {
    pub(crate) fn new() -> Self {
        assert!(
            nix::unistd::geteuid().is_root(),
            "these tests make network namespaces: run as root"
        );
        let prefix = Prefix::unique();
        let upf = Netns::create(&prefix, "upf").unwrap();
        let peer = Netns::create(&prefix, "peer").unwrap();
        for name in ["n3", "n4", "n6"] {
            cable(End { netns: &upf, name }, End { netns: &peer, name }, 1500).unwrap();
        }
        upf.ip("addr add 10.3.0.1/24 dev n3\naddr add 10.100.0.1/24 dev n4\naddr add 10.6.0.1/24 dev n6")
            .unwrap();
        peer.ip("addr add 10.3.0.2/24 dev n3\naddr add 10.100.0.2/24 dev n4\naddr add 10.6.0.2/24 dev n6")
            .unwrap();
        let folder = std::env::temp_dir().join(prefix.name("turnpiked"));
        fs::create_dir_all(&folder).unwrap();
        lab::cleanup::add_folder(&folder);
        Self { upf, peer, folder }
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// A configuration with `more` at its end.
    pub(crate) fn config(&self, more: &str) -> PathBuf {
        let text = format!(
            r#"
[node]
id = "10.100.0.1"
[n4]
listen = "10.100.0.1:8805"
[[interface]]
name = "n3"
role = "n3"
addresses = ["10.3.0.1"]
[[interface]]
name = "n6"
role = "n6"
[[network_instance]]
name = "internet"
interface = "n6"
pools = ["10.60.0.0/16", "2001:db8:60::/48"]
{more}"#
        );
        self.write("turnpiked.toml", &text)
    }

    /// The kernel forwards packets of the data network, as the kind `kernel` wants.
    pub(crate) fn forward(&self) {
        for forwarding in [
            "net/ipv4/conf/n6/forwarding",
            "net/ipv6/conf/all/forwarding",
        ] {
            self.upf.sysctl(forwarding, "1").unwrap();
        }
    }

    /// Run turnpiked to its end in the UPF's namespace; exit code, and what it wrote.
    pub(crate) fn run(&self, args: &[&str]) -> (i32, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_turnpiked"));
        let output = self.upf.output(command.args(args), LIMIT).unwrap();
        let words = [output.stdout, output.stderr].concat();
        let words = String::from_utf8_lossy(&words).into_owned();
        (output.status.code().unwrap_or(-1), words)
    }

    /// Start turnpiked and wait until it says that it is ready.
    pub(crate) fn start(&self, more: &str) -> Daemon<'_> {
        self.start_with(self.config(more))
    }

    pub(crate) fn start_with(&self, config: PathBuf) -> Daemon<'_> {
        let log = fs::File::create(self.folder.join("log")).unwrap();
        self.start_logging_to(config, log.into())
    }

    /// Likewise, with `stderr`.
    pub(crate) fn start_logging_to(&self, config: PathBuf, stderr: Stdio) -> Daemon<'_> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_turnpiked"));
        self.start_command(command.stdin(Stdio::null()), config, stderr)
    }

    /// Likewise, with the command line that runs turnpiked.
    pub(crate) fn start_as(&self, command: &mut Command, config: PathBuf) -> Daemon<'_> {
        let log = fs::File::create(self.folder.join("log")).unwrap();
        self.start_command(command, config, log.into())
    }

    fn start_command(&self, command: &mut Command, config: PathBuf, stderr: Stdio) -> Daemon<'_> {
        let log = self.folder.join("log");
        let ready = self.folder.join("notify");
        let _ = fs::remove_file(&ready);
        let supervisor = UnixDatagram::bind(&ready).unwrap();
        supervisor.set_read_timeout(Some(LIMIT)).unwrap();
        // Of a daemon that is another user's, too.
        fs::set_permissions(&ready, fs::Permissions::from_mode(0o777)).unwrap();
        command
            .arg("--config")
            .arg(config)
            .env("NOTIFY_SOCKET", &ready)
            .env("RUNTIME_DIRECTORY", &self.folder);
        command.stderr(stderr);
        let process = self.upf.spawn(command).unwrap();
        let mut daemon = Daemon {
            net: self,
            process,
            log,
        };
        let mut buffer = [0; 64];
        match again(|| supervisor.recv(&mut buffer)) {
            Ok(len) => assert_eq!(&buffer[..len], b"READY=1"),
            Err(error) => panic!("not ready: {error}\n{}", daemon.log()),
        }
        assert!(
            daemon.process.ended().unwrap().is_none(),
            "{}",
            daemon.log()
        );
        daemon
    }

    pub(crate) fn smf(&self) -> Smf {
        let upf = SocketAddr::from((UPF_N4, 8805));
        Smf::start(
            &self.peer,
            SMF_N4.into(),
            NodeId::new_ipv4(SMF_N4),
            SystemTime::now(),
            upf,
        )
        .unwrap()
    }

    /// A socket of the SMF's host, connected to N4.
    pub(crate) fn n4_socket(&self, port: u16) -> UdpSocket {
        let bind = || {
            let socket = UdpSocket::bind((SMF_N4, port))?;
            socket.connect((UPF_N4, 8805))?;
            Ok(socket)
        };
        let socket = self.peer.enter(bind).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket
    }

    /// True while some XDP program is on the interface.
    pub(crate) fn has_xdp(&self, interface: &str) -> bool {
        let link = self
            .upf
            .run("ip", &["-d", "link", "show", "dev", interface], LIMIT)
            .unwrap();
        link.contains("xdp")
    }
}

/// Whatever `work` does, not ended early by a signal to a thread of the test.
pub(crate) fn again<T>(mut work: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match work() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
        lab::cleanup::forget_folder(&self.folder);
    }
}

/// A running turnpiked; killed when dropped.
pub(crate) struct Daemon<'n> {
    net: &'n Net,
    pub(crate) process: Process,
    log: PathBuf,
}

impl Daemon<'_> {
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.log.clone()
    }

    /// Status line and body.
    pub(crate) fn get_with(&self, path: &str, header: &str) -> (String, String) {
        let answer = self.net.upf.enter(|| {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, 8806))?;
            stream.set_read_timeout(Some(LIMIT))?;
            write!(
                stream,
                "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n"
            )?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        });
        let answer = answer.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (
            head.lines().next().unwrap_or_default().to_owned(),
            body.to_owned(),
        )
    }

    pub(crate) fn get(&self, path: &str) -> serde_json::Value {
        let (status, body) = self.get_with(&format!("/api/v1/{path}"), "");
        assert!(status.ends_with("200 OK"), "{path}: {status} {body}");
        serde_json::from_str(&body).unwrap()
    }

    pub(crate) fn metrics(&self) -> String {
        self.get_with("/metrics", "").1
    }

    /// One value of the metrics; 0 when it is not there.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let metrics = self.metrics();
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().unwrap())
    }

    /// What is resident of it, with pages of the program itself.
    pub(crate) fn rss_kib(&mut self) -> u64 {
        self.status_kib("VmRSS:")
    }

    /// What it has taken for itself: a program built for debugging is larger than that by far.
    pub(crate) fn own_memory_kib(&mut self) -> u64 {
        self.status_kib("RssAnon:") + self.status_kib("RssShmem:")
    }

    fn status_kib(&mut self, name: &str) -> u64 {
        let pid = self.process.id().unwrap();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// CPU time of each of its threads, by name.
    pub(crate) fn cpu_times(&mut self) -> BTreeMap<String, Duration> {
        let pid = self.process.id().unwrap();
        let mut times = BTreeMap::<_, Duration>::new();
        for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
            let task = task.unwrap().path();
            let read = |what| fs::read_to_string(task.join(what)).unwrap_or_default();
            let ran = read("schedstat");
            let ran = ran.split(' ').next().and_then(|ns| ns.parse().ok());
            let ran = Duration::from_nanos(ran.unwrap_or_default());
            *times.entry(read("comm").trim().to_owned()).or_default() += ran;
        }
        times
    }

    /// End it by SIGTERM; its exit code.
    pub(crate) fn stop(mut self) -> i32 {
        self.process.signal(Signal::SIGTERM).unwrap();
        let status = self.process.wait(LIMIT).unwrap();
        status.code().unwrap_or(-1)
    }
}
