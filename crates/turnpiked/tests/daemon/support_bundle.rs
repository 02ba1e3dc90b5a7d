//! `turnpike support-bundle` beside a running turnpiked.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use lab::wait::eventually;

use crate::common::{LIMIT, Net};
use crate::{cli, plan};

fn bundle(net: &Net, more: &[&str]) -> std::path::PathBuf {
    let folder = net.folder.join("bundle");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    let file = folder.join("b.tar.gz");
    let mut command = Command::new(cli());
    command.arg("support-bundle").arg("--output").arg(&file);
    command.args(more).env("RUNTIME_DIRECTORY", &net.folder);
    let output = net.upf.output(&mut command, LIMIT).unwrap();
    assert!(output.status.success(), "{output:?}");
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(&file).arg("-C").arg(&folder);
    assert!(tar.status().unwrap().success());
    folder.join("b")
}

/// All files below, with their texts.
fn texts(folder: &Path) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.append(&mut texts(&path));
        } else {
            let name = path.display().to_string();
            all.push((name, fs::read_to_string(&path).unwrap()));
        }
    }
    all
}

#[test]
fn a_bundle_names_no_user() {
    let net = Net::new();
    let token = "0123456789abcdef-of-the-test";
    let token_file = net.write("token", token);
    let api = format!("[api]\ntoken_file = \"{}\"\n", token_file.display());
    let config = net.config(&api);
    let daemon = net.start_with(config);
    let smf = net.smf();
    smf.associate().unwrap();
    let session = smf.establish(&plan()).unwrap();
    let header = format!("Authorization: Bearer {token}\r\n");
    let (_, body) = daemon.get_with("/api/v1/sessions", &header);
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    let one = &body["sessions"][0];
    let ue = one["ue"][0].as_str().unwrap();
    let seid = one["seid"].as_str().unwrap();

    let folder = bundle(&net, &["--trace", "--ue", ue]);
    let files = texts(&folder);
    for (name, text) in &files {
        assert!(!text.contains(token), "the token is in {name}");
        let mut at = text.match_indices(ue).map(|(at, _)| at);
        let is_part = |at: usize| text[at + ue.len()..].starts_with(|c: char| c.is_ascii_digit());
        // The pool begins like that.
        let is_pool = |at: usize| text[at..].starts_with("10.60.0.0/16");
        assert!(
            at.all(|at| is_part(at) || is_pool(at)),
            "{ue} is in {name}: {text}"
        );
    }
    let of = |name: &str| {
        let contents = fs::read_to_string(folder.join("CONTENTS.md")).unwrap();
        let text = fs::read_to_string(folder.join(name));
        text.unwrap_or_else(|_| panic!("{name}: {contents}"))
    };
    let sessions: serde_json::Value = serde_json::from_str(&of("rest/sessions.json")).unwrap();
    assert_eq!(sessions["sessions"][0]["seid"], seid);
    let name = sessions["sessions"][0]["ue"][0].as_str().unwrap();
    assert!(name.starts_with("ue-"), "{name}");
    let trace = of("trace.txt");
    assert!(
        trace.contains(&format!("following session {seid}: ")) && trace.contains(name),
        "{trace}"
    );
    assert!(trace.contains("ended: seconds"), "{trace}");
    assert!(of("rest/peers.json").contains("10.100.0.2:8805"));
    assert!(of("rest/readiness.txt").starts_with("ready"));
    assert!(of("rest/metrics.txt").contains("turnpike_sessions 1"));
    assert!(of("rest/config-diff.json").contains("unchanged"));
    assert!(of("check-config.txt").contains("ok"));
    assert!(of("turnpiked.toml").contains(&format!("token_file = \"{}\"", token_file.display())));
    assert!(of("log/file.txt").contains("SMF associated"));
    assert!(of("network/address.txt").contains("10.3.0.1/24"));

    let shown = bundle(&net, &["--with-identities"]);
    let shown = fs::read_to_string(shown.join("rest/sessions.json")).unwrap();
    assert!(shown.contains(ue), "{shown}");
    smf.delete(&session).unwrap();
    assert_eq!(daemon.stop(), 0);
}

/// No question has the bundle wait for longer than its limit.
#[test]
fn a_bundle_of_a_daemon_that_has_stopped() {
    let net = Net::new();
    let mut daemon = net.start("");
    let smf = net.smf();
    smf.associate().unwrap();
    smf.establish(&plan()).unwrap();
    daemon
        .process
        .signal(nix::sys::signal::Signal::SIGSTOP)
        .unwrap();
    let pid = daemon.process.id().unwrap();
    eventually("it is stopped", || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        Ok(status.contains("T (stopped)"))
    })
    .unwrap();
    let folder = bundle(&net, &[]);
    let contents = fs::read_to_string(folder.join("CONTENTS.md")).unwrap();
    let missing = "turnpiked did not answer /healthz";
    assert!(contents.contains(missing), "{contents}");
    let log = fs::read_to_string(folder.join("log/file.txt")).unwrap();
    assert!(log.contains("SMF associated"), "{log}");
    daemon
        .process
        .signal(nix::sys::signal::Signal::SIGCONT)
        .unwrap();
    assert_eq!(daemon.stop(), 0);
}
