//! The rights that `deploy/turnpiked.service` gives.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use crate::common::Net;
use crate::plan;

const UNIT: &str = include_str!("../../../../deploy/turnpiked.service");

/// Values of a key.
fn values(key: &str) -> Vec<String> {
    let line = UNIT
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let words = line.unwrap_or_else(|| panic!("no {key}")).split(' ');
    words.map(str::to_owned).collect()
}

/// Runs turnpiked as another user, with the rights that the unit gives it.
pub(crate) fn unprivileged(net: &Net) -> Command {
    let [nobody, group] = ["65534"; 2];
    // The program may lie where others may not look.
    let program = net.folder.join("program");
    std::fs::copy(env!("CARGO_BIN_EXE_turnpiked"), &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();

    let given = values("AmbientCapabilities");
    assert_eq!(given, values("CapabilityBoundingSet"));
    let given = given
        .iter()
        .map(|name| name.trim_start_matches("CAP_").to_lowercase());
    let given = given.fold("-all".to_owned(), |all, one| format!("{all},+{one}"));
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid",
        nobody,
        "--regid",
        group,
        "--clear-groups",
        "--no-new-privs",
    ]);
    for set in ["--inh-caps", "--ambient-caps", "--bounding-set"] {
        command.arg(set).arg(&given);
    }
    command.arg(program);
    command
}

#[test]
fn it_asks_for_root_or_for_more_than_the_unit_gives() {
    let net = Net::new();
    std::os::unix::fs::chown(&net.folder, Some(65534), Some(65534)).unwrap();
    let log = net.folder.join("usage.jsonl");
    let config = net.config(&format!("[usage_log]\npath = {log:?}\n"));
    let mut daemon = net.start_as(&mut unprivileged(&net), config);
    let smf = net.smf();
    smf.associate().unwrap();
    smf.establish(&plan()).unwrap();
    assert!(net.has_xdp("n3") && net.has_xdp("n6"));
    let pid = daemon.process.id().unwrap();
    let process = std::fs::metadata(format!("/proc/{pid}")).unwrap();
    assert_eq!(process.uid(), 65534);
    assert_eq!(daemon.stop(), 0);
}

/// No count of failures, and no kind of end, is its last.
#[test]
fn the_unit_leaves_it_down() {
    assert_eq!(values("Restart"), ["always"]);
    assert_eq!(values("StartLimitIntervalSec"), ["0"]);
    assert_eq!(values("RestartPreventExitStatus"), ["2"]);
}
