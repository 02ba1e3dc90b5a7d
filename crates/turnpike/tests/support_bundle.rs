//! `turnpike support-bundle` without a turnpiked, and where there is no place for it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

/// Removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("turnpike-bundle-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const CONFIG: &str = r#"
[n4]
listen = "10.100.0.1:8805"
token = "s3cr3t-of-somebody"
[[network_instance]]
name = "internet"
pools = ["10.60.0.0/16", "2001:db8:60::/48"]
"#;

fn run(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnpike"));
    command
        .args(args)
        .current_dir(folder)
        .env("RUNTIME_DIRECTORY", folder);
    command
        .env_remove("TURNPIKE_API")
        .env_remove("TURNPIKE_TOKEN_FILE");
    command.output().unwrap()
}

/// Names and texts, in their order.
fn read(bundle: &Path) -> Vec<(String, String)> {
    let gzip = flate2::read::GzDecoder::new(fs::File::open(bundle).unwrap());
    let mut archive = tar::Archive::new(gzip);
    let entries = archive.entries().unwrap();
    let entries = entries.map(|entry| {
        let mut entry = entry.unwrap();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        let path = entry.path().unwrap();
        let below: PathBuf = path.components().skip(1).collect();
        (below.display().to_string(), text)
    });
    entries.collect()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_bundle_of_a_daemon_that_is_dead() {
    let folder = Folder::new("dead");
    let folder = folder.0.as_path();
    fs::write(folder.join("turnpiked.toml"), CONFIG).unwrap();
    fs::write(
        folder.join("log"),
        "session of 10.60.1.2 and 2001:db8:60:7::1 from 198.18.77.5\n",
    )
    .unwrap();
    let output = run(
        folder,
        &[
            "--api",
            "127.0.0.1:1",
            "support-bundle",
            "--output",
            "b.tar.gz",
            "--config",
            "turnpiked.toml",
            "--log",
            "log",
        ],
    );
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert!(
        said.ends_with("b.tar.gz\n") && said.contains("turnpiked.toml"),
        "{said}"
    );
    assert_eq!(names(folder), ["b.tar.gz", "log", "turnpiked.toml"]);
    let files = read(&folder.join("b.tar.gz"));
    assert_eq!(files[0].0, "CONTENTS.md");
    let of = |name: &str| {
        &files
            .iter()
            .find(|(of, _)| of == name)
            .unwrap_or_else(|| panic!("{name}: {said}"))
            .1
    };
    let contents = of("CONTENTS.md");
    assert!(
        contents.contains("rest/status.json") && contents.contains("did not answer /healthz"),
        "{contents}"
    );
    for (name, _) in &files[1..] {
        assert!(
            contents.contains(&format!("| {name} |")),
            "{name}: {contents}"
        );
    }
    assert!(of("machine/meminfo").contains("MemTotal"));
    assert!(of("turnpiked.toml").contains("token = (cut out)"));
    assert!(
        of("log/file.txt").starts_with("session of ue-"),
        "{}",
        of("log/file.txt")
    );
    for (name, text) in &files {
        for hidden in [
            "10.60.1.2",
            "2001:db8:60:7",
            "198.18.77.5",
            "s3cr3t-of-somebody",
        ] {
            assert!(!text.contains(hidden), "{hidden} in {name}");
        }
    }
}

#[test]
fn a_bundle_of_a_daemon_that_does_not_answer() {
    let folder = Folder::new("silent");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let api = listener.local_addr().unwrap().to_string();
    // Connections are taken, and nothing is said on them.
    thread::spawn(move || listener.incoming().collect::<Vec<_>>());
    let output = run(&folder.0, &["--api", &api, "--json", "support-bundle"]);
    assert!(output.status.success(), "{output:?}");
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let file = said["file"].as_str().unwrap();
    assert_eq!(names(&folder.0), [file]);
    let members = said["members"].as_array().unwrap();
    let health = members
        .iter()
        .find(|member| member["name"] == "rest/health.txt")
        .unwrap();
    assert!(
        health["missing"]
            .as_str()
            .unwrap()
            .contains("no turnpiked answers"),
        "{health}"
    );
}

/// In a mount namespace of its own, in which the folder is another file system.
fn run_in(folder: &Path, mount: &str) -> (Output, String) {
    let script = format!(
        "mount -t tmpfs -o {mount} tmpfs \"$1\" && cd \"$1\" && {{ echo old > b.tar.gz; \"$2\" --api 127.0.0.1:1 support-bundle --output b.tar.gz; code=$?; echo; ls -A; exit $code; }}"
    );
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", &script, "sh"])
        .arg(folder)
        .arg(env!("CARGO_BIN_EXE_turnpike"));
    let output = command.env("RUNTIME_DIRECTORY", folder).output().unwrap();
    let left = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output, left)
}

#[test]
fn half_a_bundle_on_a_full_disk() {
    let folder = Folder::new("full");
    let (output, left) = run_in(&folder.0, "size=8k");
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        words.contains("turnpike: no bundle: b.tar.gz: No space left on device"),
        "{words}"
    );
    assert_eq!(left, "b.tar.gz", "the former one, and nothing else");
}

#[test]
fn a_bundle_in_a_folder_that_takes_none() {
    let folder = Folder::new("read-only");
    let (output, left) = run_in(&folder.0, "ro");
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (output.status.code(), left.as_str()),
        (Some(1), ""),
        "{output:?}"
    );
    assert!(
        words.contains("no bundle: b.tar.gz: Read-only file system"),
        "{words}"
    );
}
