//! Every scenario against the real `turnpiked`, one after the other, each within its own limit.
//!
//! Needs root and a built `turnpiked`: `$TURNPIKED`, or beside the `lab` binary.

use std::process::{Command, Stdio};

fn lab(arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    // cargo runs tests in the crate's folder; binaries are looked for from the workspace.
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let output = command.output().expect("lab starts");
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

#[test]
fn all_scenarios_pass() {
    let (success, report) = lab(&["scenario", "--all"]);
    println!("{report}");
    assert!(success, "{report}");
}

#[test]
fn a_scenario_that_does_not_exist_is_named() {
    let (success, _) = lab(&["scenario", "no-such-scenario"]);
    assert!(!success);
}
