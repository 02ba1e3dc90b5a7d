//! Replays what the fuzz targets start from and have found: `fuzz/corpus/pfcp_*`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::PathBuf;

use testkit::{samples, walk};

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

/// The name and the octets of each seed.
fn seeds() -> Vec<(String, Vec<u8>)> {
    let valid = samples::valid()
        .into_iter()
        .map(|(name, octets)| (format!("valid-{name}"), octets));
    let broken = samples::broken().into_iter();
    valid
        .chain(broken.map(|(name, octets, ..)| (format!("broken-{name}"), octets)))
        .collect()
}

#[test]
fn every_file_is_handled() {
    let mut files = 0;
    for folder in fs::read_dir(corpus()).unwrap().map(Result::unwrap) {
        if !folder.file_name().to_string_lossy().starts_with("pfcp_") {
            continue;
        }
        for file in fs::read_dir(folder.path()).unwrap().map(Result::unwrap) {
            let octets = fs::read(file.path()).unwrap();
            let _ = walk::datagram(&octets);
            walk::reencode(&octets);
            files += 1;
        }
    }
    assert!(files >= seeds().len(), "{files} files");
}

#[test]
fn the_seeds_are_what_the_samples_are() {
    for (name, octets) in seeds() {
        let path = corpus().join("pfcp_decode").join(&name);
        let kept = fs::read(&path).unwrap_or_default();
        assert_eq!(kept, octets, "{name}: run the ignored test write_seeds");
    }
}

#[test]
#[ignore = "writes the seeds"]
fn write_seeds() {
    for target in ["pfcp_decode", "pfcp_reencode"] {
        let folder = corpus().join(target);
        fs::create_dir_all(&folder).unwrap();
        for (name, octets) in seeds() {
            fs::write(folder.join(name), octets).unwrap();
        }
    }
}
