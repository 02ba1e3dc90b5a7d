//! Any octets as the record of a session: what is read is written as it was. Shared by the fuzz target and the test that
//! replays its corpus.

use session::Record;

/// Whether it is a record.
pub(crate) fn run(octets: &[u8]) -> bool {
    let Ok(record) = Record::read(octets) else {
        return false;
    };
    assert_eq!(record.write(), octets);
    assert!(record.seid() != 0);
    true
}
