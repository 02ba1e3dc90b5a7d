//! Replays what the fuzz targets `arena` and `copy` start from and have found.

#![allow(clippy::unwrap_used)]

#[path = "script/copy.rs"]
mod copy;
#[path = "script/octets.rs"]
mod octets;
#[path = "script/pool.rs"]
mod pool;
#[path = "script/ring.rs"]
mod ring;
mod script;

use std::fs;
use std::path::PathBuf;

fn corpus(of: &str) -> impl Iterator<Item = (PathBuf, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let files = fs::read_dir(folder.join(of)).unwrap();
    files.map(|file| {
        let path = file.unwrap().path();
        let octets = fs::read(&path).unwrap();
        (path, octets)
    })
}

#[test]
fn every_script_is_run() {
    let mut files = 0;
    for (path, octets) in corpus("arena") {
        ring::run(&octets);
        pool::run(&octets);
        let steps = octets::steps(&octets);
        assert!(!steps.is_empty(), "{path:?}");
        script::run(&steps);
        files += 1;
    }
    assert!(files >= 8, "{files}");
}

#[test]
fn every_copy_is_read() {
    let mut files = 0;
    for (_, octets) in corpus("copy") {
        copy::run(&octets);
        files += 1;
    }
    assert!(files >= 4, "{files}");
}
