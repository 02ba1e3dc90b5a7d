//! Answers of a real turnpiked under traffic, completed by fields that it had no occasion for, each beside its text.

use serde_json::Value;

use crate::{cores, show, usage};

pub(crate) fn answer(name: &str) -> Value {
    serde_json::from_str(&read(name, "json")).unwrap()
}

pub(crate) fn text(name: &str) -> String {
    read(name, "txt")
}

fn read(name: &str, ending: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/samples");
    std::fs::read_to_string(format!("{folder}/{name}.{ending}")).unwrap()
}

#[test]
fn answers_have_their_text() {
    let shows: [(&str, fn(&Value) -> String); 14] = [
        ("status", show::status),
        ("sessions", show::sessions),
        ("session", show::session),
        ("usage", usage::show),
        ("peers", show::peers),
        ("smfs", show::smfs),
        ("pfds", show::pfds),
        ("buffers", show::buffers),
        ("capacities", show::capacities),
        ("policies", show::policies),
        ("drops", show::drops),
        ("datapath", show::datapath),
        ("datapath-workers", show::datapath),
        ("cores", cores::show),
    ];
    for (name, show) in shows {
        assert_eq!(show(&answer(name)), text(name), "{name}");
    }
}
