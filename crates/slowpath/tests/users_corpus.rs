//! Replays what the fuzz targets `users_packet`, `users_fragments`, `slow_path_record` and `held_packets` start from and have
//! found, and mutations of it.

#![allow(clippy::expect_used, clippy::unwrap_used)]

mod held;
mod records;
mod users;

use std::fs;
use std::path::PathBuf;

fn replay(target: &str, at_least: usize, run: fn(&[u8])) {
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut random = 0x5eed_u64;
    let mut next = || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize
    };
    let mut files = 0;
    for file in fs::read_dir(corpus.join(target)).unwrap() {
        let original = fs::read(file.unwrap().path()).unwrap();
        run(&original);
        for length in 0..original.len().min(200) {
            run(&original[..length]);
        }
        for _ in 0..2000 {
            let mut input = original.clone();
            for _ in 0..=next() % 4 {
                // Headers are more worth it than what they carry.
                let at = next() % input.len().min(128);
                input[at] = next() as u8;
            }
            run(&input);
        }
        files += 1;
    }
    assert!(files >= at_least, "{files} files");
}

#[test]
fn every_packet_of_a_user_is_answered_cut_or_left() {
    replay("users_packet", 10, users::packet);
}

#[test]
fn every_fragment_of_a_user_goes_on_or_is_lost_once() {
    replay("users_fragments", 4, users::fragments);
}

#[test]
fn every_record_of_the_slow_path_is_finished_or_refused() {
    replay("slow_path_record", 10, records::run);
}

#[test]
fn every_packet_that_waits_leaves_or_is_lost_once() {
    replay("held_packets", 15, held::run);
}
