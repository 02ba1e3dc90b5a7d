//! Attaching to interfaces, in a network namespace of the test's own. Needs root.
#![allow(clippy::unwrap_used, reason = "test helpers")]

use std::io::Read;
use std::process::{Child, Command, Stdio};

use compiled::NiId;
use nix::sched::{CloneFlags, unshare};
use tables::{Layout, Mode, Options, PortConfig, Roles, SetupError, Tables};
use testkit::machine::need_root;

fn ip(arguments: &str) -> String {
    let output = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn tables(name: &str, mode: Mode) -> Tables {
    let roles = Roles { n3: true, n6: true };
    let port = PortConfig {
        name: name.into(),
        roles,
        ni: NiId(0),
        mode,
        ..PortConfig::default()
    };
    Tables::xdp(
        &Layout::for_sessions(64, 1, 1),
        &[port],
        &Options::default(),
    )
    .unwrap()
}

#[test]
fn programs_attach_as_asked_or_not_at_all() {
    need_root();
    // The test's thread alone moves; the namespace goes with it.
    unshare(CloneFlags::CLONE_NEWNET).unwrap();
    ip("link add tp0 type veth peer name tp1");

    let mut first = tables("tp0", Mode::Driver);
    first.attach().unwrap();
    let program = &first.programs()[0];
    assert_eq!(program.mode, Some(Mode::Driver));
    assert!(
        ip("link show dev tp0").contains("prog/xdp id"),
        "driver mode"
    );

    let refused = tables("tp0", Mode::Driver).attach();
    assert!(
        matches!(&refused, Err(SetupError::Attach { .. })),
        "{refused:?}"
    );
    let text = refused.unwrap_err().to_string();
    assert!(
        text.contains("tp0") && text.contains("Another XDP program"),
        "{text}"
    );
    assert!(
        ip("link show dev tp0").contains("prog/xdp id"),
        "the first is left alone"
    );

    drop(first);
    assert!(!ip("link show dev tp0").contains("xdp"), "detached");

    let mut generic = tables("tp0", Mode::Generic);
    generic.attach().unwrap();
    assert!(
        ip("link show dev tp0").contains("xdpgeneric"),
        "by explicit choice"
    );
    drop(generic);

    // A device whose driver knows no XDP: refused, never silently generic.
    let refused = tables("lo", Mode::Driver).attach();
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("generic"), "{text}");
    assert!(!ip("link show dev lo").contains("xdp"));

    let missing = tables("nosuch", Mode::Driver).attach();
    assert!(
        matches!(missing, Err(SetupError::NoInterface { .. })),
        "{missing:?}"
    );
}

/// A namespace without a name, which goes with its holder.
struct Elsewhere(Child);

impl Elsewhere {
    fn new() -> Self {
        let mut command = Command::new("unshare");
        // It says when it is there.
        command.args(["--net", "sh", "-c", "echo; exec sleep 600"]);
        let mut holder = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut word = [0];
        holder.stdout.take().unwrap().read_exact(&mut word).unwrap();
        Self(holder)
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_interface_that_was_away_is_not_taken_for_attached() {
    need_root();
    unshare(CloneFlags::CLONE_NEWNET).unwrap();
    ip("link add tp0 type veth peer name tp1");
    let number = || nix::net::if_::if_nametoindex("tp0").unwrap();
    let mut tables = tables("tp0", Mode::Driver);
    assert!(!tables.is_attached(0), "not yet");
    tables.attach().unwrap();
    assert!(tables.is_attached(0));

    // Under its old number and with its program, but no frame is redirected there any more.
    let before = number();
    let elsewhere = Elsewhere::new();
    let (there, here) = (elsewhere.0.id(), nix::unistd::gettid());
    ip(&format!("link set tp0 netns {there}"));
    let mut back = Command::new("nsenter");
    back.args([
        "--net",
        "-t",
        &there.to_string(),
        "ip",
        "link",
        "set",
        "tp0",
    ]);
    let back = back.args(["netns", &here.to_string()]).status().unwrap();
    assert!(back.success());
    assert_eq!(number(), before, "the kernel keeps it where it can");
    assert!(!tables.is_attached(0));
    tables.attach_port(0, number()).unwrap();
    assert!(tables.is_attached(0) && ip("link show dev tp0").contains("prog/xdp id"));

    ip("link del tp0");
    assert!(!tables.is_attached(0));
    tables.detach_port(0);
    ip("link add tp0 type veth peer name tp1");
    assert!(!tables.is_attached(0));
    tables.attach_port(0, number()).unwrap();
    assert!(tables.is_attached(0));
    assert_eq!(tables.programs()[0].mode, Some(Mode::Driver));
}
