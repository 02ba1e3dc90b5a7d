//! Replays what the fuzz target `session_receive` starts from and has found.

mod receive;

use std::fs;
use std::path::PathBuf;

#[test]
fn every_file_is_handled() {
    let corpus =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/session_receive");
    let mut files = 0;
    for file in fs::read_dir(corpus).unwrap().map(Result::unwrap) {
        receive::receive(&fs::read(file.path()).unwrap());
        files += 1;
    }
    assert!(files >= 30, "{files} files");
}
