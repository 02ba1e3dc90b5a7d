//! Lines to where there may be no room for them.

use std::io::{self, Write};

/// Write as much as can be written: how many octets, and why not all.
pub(crate) fn write_lines(to: &mut impl Write, lines: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while let Some(left) = lines.get(written..).filter(|left| !left.is_empty()) {
        match to.write(left) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(octets) => written += octets,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}
