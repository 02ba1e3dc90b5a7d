//! The programs in the kernel. Needs root; without it these tests fail and say so.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers")]

mod common;

use common::need_root;
use session::compiled::NiId;
use tables::{Features, Layout, Mode, Options, PortConfig, Roles, Tables};

fn port(name: &str, n3: bool, n6: bool) -> PortConfig {
    let roles = Roles { n3, n6 };
    PortConfig {
        name: name.into(),
        roles,
        ni: NiId(0),
        mode: Mode::Driver,
    }
}

fn small() -> Layout {
    Layout::for_sessions(1024, 2, 2)
}

/// Every combination of features is accepted by the verifier.
#[test]
fn every_combination_of_features_loads() {
    need_root();
    let mut worst = (0, 0);
    let mut largest = (0, 0);
    for bits in 0..=Features::ALL.bits() {
        let features = Features::from_bits(bits).unwrap();
        let options = Options {
            features: Some(features),
            ..Options::default()
        };
        let ports = [port("n3", true, true)];
        let tables = Tables::xdp(&small(), &ports, &options).unwrap_or_else(|error| {
            panic!(
                "features {:?}: {error}",
                features.names().collect::<Vec<_>>()
            )
        });
        let info = &tables.programs()[0];
        worst = worst.max((info.verified_instructions, bits));
        largest = largest.max((info.instructions, bits));
    }
    println!(
        "most verified instructions: {} with features {:#x}",
        worst.0, worst.1
    );
    println!(
        "longest program: {} instructions with features {:#x}",
        largest.0, largest.1
    );
    assert!(
        worst.0 < 900_000,
        "close to the verifier's limit of a million"
    );
}
