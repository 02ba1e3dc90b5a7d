//! The demonstration and every scenario against the real `turnpiked`, one after the other, each
//! within its own limit.
//!
//! Needs root and a built `turnpiked`: `$TURNPIKED`, or beside the `lab` binary.

use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

/// These tests measure rates: they run one at a time.
static TURN: Mutex<()> = Mutex::new(());

fn lab(arguments: &[&str], environment: &[(&str, &str)]) -> io::Result<(u32, Output)> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.args(arguments).envs(environment.iter().copied());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn()?;
    let id = child.id();
    Ok((id, child.wait_with_output()?))
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}

/// Nothing with the name of that process may be left.
fn left_nothing(id: u32) -> io::Result<()> {
    let prefix = format!("tp{id}w");
    for folder in ["/run/netns", "/run/turnpike-lab"] {
        for entry in Path::new(folder).read_dir()? {
            let name = entry?.file_name();
            let name = name.to_string_lossy();
            assert!(!name.starts_with(&prefix), "{folder}/{name} is left");
        }
    }
    Ok(())
}

#[test]
fn all_scenarios_pass() -> io::Result<()> {
    let (id, output) = lab(&["scenario", "--all"], &[])?;
    println!("{}", text(&output));
    assert!(output.status.success(), "{}", text(&output));
    left_nothing(id)
}

#[test]
fn the_demonstration_succeeds_and_leaves_nothing() -> io::Result<()> {
    let (id, output) = lab(&["demo"], &[])?;
    println!("{}", text(&output));
    assert!(output.status.success(), "{}", text(&output));
    left_nothing(id)
}

#[test]
fn a_step_that_fails_is_named_and_leaves_nothing() -> io::Result<()> {
    let (id, output) = lab(&["demo"], &[("TURNPIKED", "/bin/false")])?;
    assert!(!output.status.success());
    assert!(
        text(&output).contains("step failed: network"),
        "{}",
        text(&output)
    );
    left_nothing(id)
}

#[test]
fn a_scenario_that_does_not_exist_is_an_error() -> io::Result<()> {
    let (_, output) = lab(&["scenario", "no-such-scenario"], &[])?;
    assert!(!output.status.success());
    assert!(
        text(&output).contains("no-such-scenario"),
        "{}",
        text(&output)
    );
    Ok(())
}
