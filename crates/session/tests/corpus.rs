//! Replays what the fuzz targets `session_receive`, `session_record`, `node_record` and `answer_record` start from and have found.

mod receive;
mod record;

use std::fs;
use std::path::PathBuf;

use record::Outcome;

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

/// Files of records are named by the version that wrote them; the others are none.
#[test]
fn every_record_is_taken_in_or_refused_and_so_is_whatever_is_like_it() {
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/session_record");
    let (mut read, mut refused, mut others) = (0, 0, 0);
    for file in fs::read_dir(corpus).unwrap().map(Result::unwrap) {
        let octets = fs::read(file.path()).unwrap();
        let name = file.file_name().into_string().unwrap();
        let expected = if name.starts_with("broken") {
            Outcome::NoRecord
        } else {
            Outcome::Adopted
        };
        assert_eq!(record::run(&octets), expected, "{name}");
        if expected == Outcome::NoRecord {
            refused += 1;
        } else {
            read += 1;
        }
        for length in 0..octets.len() {
            let is_record = record::run(&octets[..length]) != Outcome::NoRecord;
            assert!(!is_record || name.starts_with("broken"), "{name}, {length}");
        }
        for at in 0..octets.len() {
            let mut other = octets.clone();
            for value in [0, 1, 0x7f, 0x80, 0xff, octets[at] ^ 1] {
                other[at] = value;
                others += u32::from(record::run(&other) == Outcome::Adopted);
            }
        }
    }
    assert!(
        read >= 14 && refused >= 14,
        "{read} read, {refused} refused"
    );
    assert!(others > 1000, "{others} like them taken in");
}

/// Likewise, records of nodes.
#[test]
fn every_record_of_a_node_is_one_or_none_and_so_is_whatever_is_like_it() {
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/node_record");
    let (mut read, mut files, mut others) = (0, 0, 0);
    for file in fs::read_dir(corpus).unwrap().map(Result::unwrap) {
        let octets = fs::read(file.path()).unwrap();
        let name = file.file_name().into_string().unwrap();
        let is_whole = !name.starts_with("broken");
        assert_eq!(record::run_node(&octets), is_whole, "{name}");
        assert_eq!(
            record::run_pfds(&octets),
            name.starts_with("broken-pfds-alone"),
            "{name}"
        );
        (read, files) = (read + u32::from(is_whole), files + 1);
        for at in 0..octets.len() {
            let is_record = record::run_node(&octets[..at]);
            assert!(!is_record || !is_whole, "{name}, {at}");
            let mut other = octets.clone();
            for value in [0, 1, 0x7f, 0x80, 0xff, octets[at] ^ 1] {
                other[at] = value;
                others += u32::from(record::run_node(&other));
            }
        }
    }
    assert!(read >= 5 && files >= read + 8, "{read} of {files}");
    assert!(others > 1000, "{others} like them read");
}

/// Likewise, answers.
#[test]
fn every_answer_is_one_or_none_and_so_is_whatever_is_like_it() {
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/answer_record");
    let (mut read, mut files, mut others) = (0, 0, 0);
    for file in fs::read_dir(corpus).unwrap().map(Result::unwrap) {
        let octets = fs::read(file.path()).unwrap();
        let name = file.file_name().into_string().unwrap();
        let is_whole = !name.starts_with("broken");
        assert_eq!(record::run_answer(&octets), is_whole, "{name}");
        (read, files) = (read + u32::from(is_whole), files + 1);
        for at in 0..octets.len() {
            assert!(!record::run_answer(&octets[..at]) || !is_whole);
            let mut other = octets.clone();
            for value in [0, 1, 0x7f, 0x80, 0xff, octets[at] ^ 1] {
                other[at] = value;
                others += u32::from(record::run_answer(&other));
            }
        }
    }
    assert!(read >= 4 && files >= read + 3, "{read} of {files}");
    assert!(others > 100, "{others} like them read");
}
