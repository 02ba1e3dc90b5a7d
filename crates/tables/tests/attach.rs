//! Attaching to interfaces, in a network namespace of the test's own. Needs root.
#![allow(clippy::unwrap_used, reason = "test helpers")]

mod common;

use std::process::Command;

use common::need_root;
use nix::sched::{CloneFlags, unshare};
use session::compiled::NiId;
use tables::{Layout, Mode, Options, PortConfig, Roles, SetupError, Tables};

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
