//! Waiting for events. No limit in the lab says how fast a machine is: each only says "never".

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// Nothing that is awaited takes so long on any machine: it does not come.
pub const NEVER: Duration = Duration::from_secs(60);
/// Between two looks at what tells nobody when it changes.
pub const LOOK: Duration = Duration::from_millis(10);

/// Waits until `holds`, which is asked again and again.
pub fn eventually(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + NEVER;
    while !holds()? {
        ensure!(Instant::now() < deadline, "{what}: not within {NEVER:?}");
        std::thread::sleep(LOOK);
    }
    Ok(())
}
