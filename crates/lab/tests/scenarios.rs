//! Every scenario against the real `turnpiked`, one after the other, each within its own limit.
//!
//! Needs root and a built `turnpiked`: `$TURNPIKED`, or beside the `lab` binary.

use std::io;
use std::process::{Command, Stdio};

fn lab(arguments: &[&str]) -> io::Result<(bool, String)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let output = command.output()?;
    Ok((
        output.status.success(),
        String::from_utf8_lossy(&output.stdout).into_owned(),
    ))
}

#[test]
fn all_scenarios_pass() -> io::Result<()> {
    let (success, report) = lab(&["scenario", "--all"])?;
    println!("{report}");
    assert!(success, "{report}");
    Ok(())
}

#[test]
fn a_scenario_that_does_not_exist_is_an_error() -> io::Result<()> {
    let (success, _) = lab(&["scenario", "no-such-scenario"])?;
    assert!(!success);
    Ok(())
}
