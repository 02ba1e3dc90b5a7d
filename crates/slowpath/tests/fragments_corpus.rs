//! Replays what the fuzz target `fragments` starts from and has found, and mutations of it.

mod fragments;

use std::fs;
use std::path::PathBuf;

#[test]
fn every_file_is_handled() {
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/fragments");
    let mut random = 0x5eed_u64;
    let mut next = || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize
    };
    let mut files = 0;
    for file in fs::read_dir(corpus).unwrap().map(Result::unwrap) {
        let original = fs::read(file.path()).unwrap();
        fragments::run(&original);
        for _ in 0..2000 {
            let mut input = original.clone();
            for _ in 0..=next() % 4 {
                let at = next() % input.len();
                input[at] = next() as u8;
            }
            fragments::run(&input);
        }
        files += 1;
    }
    assert!(files >= 6, "{files} files");
}
