//! Replays what the fuzz target `arena` starts from and has found.

#[path = "script/octets.rs"]
mod octets;
#[path = "script/pool.rs"]
mod pool;
#[path = "script/ring.rs"]
mod ring;
mod script;

use std::fs;
use std::path::PathBuf;

#[test]
fn every_script_is_run() {
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/arena");
    let mut files = 0;
    for file in fs::read_dir(corpus).unwrap().map(Result::unwrap) {
        let octets = fs::read(file.path()).unwrap();
        ring::run(&octets);
        pool::run(&octets);
        let steps = octets::steps(&octets);
        assert!(!steps.is_empty(), "{:?}", file.file_name());
        script::run(&steps);
        files += 1;
    }
    assert!(files >= 8, "{files}");
}
