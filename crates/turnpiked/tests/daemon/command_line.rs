//! Answers of turnpiked that need no configuration.

use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnpiked"));
    command.args(args).output().unwrap()
}

#[test]
fn version_names_commit_and_data_paths() {
    let release = env!("CARGO_PKG_VERSION");
    let commit = cli::COMMIT.unwrap_or("unknown");
    let datapaths = match cfg!(feature = "dpdk") {
        true => "xdp, kernel, dpdk",
        false => "xdp, kernel",
    };
    for (option, expected) in [
        (
            "--version",
            format!("turnpiked {release} (commit {commit}, data paths {datapaths})\n"),
        ),
        ("-V", format!("turnpiked {release}\n")),
    ] {
        let output = run(&[option]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
        assert_eq!(output.status.code(), Some(0), "{option}");
    }
}
