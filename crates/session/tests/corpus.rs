//! Replays what the fuzz target `session_receive` starts from and has found.

mod receive;

use std::fs;
use std::path::PathBuf;

/// What the fuzz target `gtpu_message` starts from: packets with Error Indications and Echo Responses,
/// whole and broken. Cut anywhere, they are read or not, and nothing worse.
#[test]
fn every_gtpu_message_is_read_or_not() {
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/gtpu_message");
    let (mut files, mut read) = (0, 0);
    for file in fs::read_dir(corpus).unwrap().map(Result::unwrap) {
        let packet = fs::read(file.path()).unwrap();
        for length in 0..packet.len() {
            let _ = session::gtpu::read_packet(&packet[..length]);
        }
        read += u32::from(session::gtpu::read_packet(&packet).is_some());
        files += 1;
    }
    assert!(
        files >= 10 && read >= 6 && read < files,
        "{read} of {files}"
    );
}

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
