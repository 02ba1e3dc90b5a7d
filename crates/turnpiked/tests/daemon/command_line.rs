//! Answers of turnpiked that need no configuration.

use std::path::Path;
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

/// They are written by a build, without a configuration, and nothing else is done.
#[test]
fn documents_are_written_below_a_folder() {
    let folder = std::env::temp_dir().join(format!("turnpiked-documents-{}", std::process::id()));
    lab::cleanup::add_folder(&folder);
    let output = run(&["documents", folder.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stdout.is_empty() && output.stderr.is_empty());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let entry = entry.unwrap().path();
        files.extend(std::fs::read_dir(entry).unwrap());
    }
    let files = files.into_iter().map(|file| file.unwrap().path());
    let below = |file: &Path| file.strip_prefix(&folder).unwrap().to_owned();
    let mut names: Vec<_> = files.map(|file| below(&file)).collect();
    names.sort();
    let expected = [
        "bash/turnpiked",
        "fish/turnpiked.fish",
        "man/turnpiked-check-config.8",
        "man/turnpiked-detach.8",
        "man/turnpiked.8",
        "man/turnpiked.toml.5",
        "zsh/_turnpiked",
    ];
    assert_eq!(names, expected.map(|name| Path::new(name).to_owned()));
    let script = std::fs::read_to_string(folder.join("bash/turnpiked")).unwrap();
    assert!(script.contains("check-config"), "{script}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn documents_that_cannot_be_written_are_named() {
    let output = run(&["documents", "/dev/null/manual"]);
    assert_eq!(output.status.code(), Some(1));
    let words = String::from_utf8_lossy(&output.stderr);
    let expected = "turnpiked: /dev/null/manual/man: Not a directory";
    assert!(words.starts_with(expected), "{words}");
}
