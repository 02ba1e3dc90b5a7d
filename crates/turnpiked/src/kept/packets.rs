//! Packets that wait for idle UEs, in a file of their own beside that of sessions.

use std::fs;

use anyhow::{Context, Result, ensure};
use arena::pool::{self, Pool};
use serde::{Deserialize, Serialize};
use slowpath::{BufferBounds, FormerPackets, KeptPackets};
use tables::{KeptFile, Words};

use super::files::Files;
use super::own::{create_file, open_ours, unfinished};

/// Format of what is in front of packets, as this process writes it.
pub(super) const FORMAT: u32 = 1;

/// Front of the file: whose it is.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Whose {
    /// Format of what is in front of packets.
    pub(super) format: u32,
    /// Monotonic time goes on within one.
    pub(super) boot: String,
    /// Seed of the process whose sessions the packets are of.
    pub(super) seed: u64,
    /// Interfaces by the numbers that packets have.
    pub(super) ports: Vec<String>,
}

impl Files {
    /// A file for packets, and what is in that of the process before, if there was one, as `waits` says: the new one takes that
    /// one's place when it has all that is there. Without room for it packets end with the process.
    pub(super) fn packets(&self, whose: &Whose, bounds: BufferBounds, waits: bool) -> KeptPackets {
        let path = &self.packets;
        if bounds.bytes == 0 {
            let path = path.clone();
            let taken = move || {
                let _ = fs::remove_file(unfinished(&path));
                let _ = fs::remove_file(&path);
            };
            return KeptPackets {
                taken: Some(Box::new(taken)),
                waits,
                ..KeptPackets::default()
            };
        }
        let pool = self.new_pool(whose, bounds);
        let pool = pool.inspect_err(|error| {
            tracing::error!("{path:?}: {error:#}: packets for idle UEs end with this process");
        });
        let former = waits.then(|| self.former_packets(whose)).transpose();
        let former = former.unwrap_or_else(|error| {
            tracing::error!("{path:?}: {error:#}: packets for idle UEs are lost");
            None
        });
        let (path, is_kept) = (path.clone(), pool.is_ok());
        let taken = move || {
            if is_kept && let Err(error) = fs::rename(unfinished(&path), &path) {
                tracing::error!(%error, ?path, "packets for idle UEs end with this process");
            } else if is_kept {
                return;
            }
            // Packets that have been sent would be sent once more.
            let _ = fs::remove_file(&path);
        };
        KeptPackets {
            pool: pool.ok(),
            former: former.flatten(),
            taken: Some(Box::new(taken)),
            waits,
        }
    }

    fn new_pool(&self, whose: &Whose, bounds: BufferBounds) -> Result<Pool<Words>> {
        let file = create_file(&unfinished(&self.packets))?;
        file.set_len(pool::octets_for(bounds.bytes) as u64)?;
        let words = Words::all(KeptFile::map(file)?);
        Ok(Pool::create(words, &serde_json::to_vec(whose)?)?)
    }

    fn former_packets(&self, whose: &Whose) -> Result<Option<FormerPackets>> {
        let Some(file) = open_ours(&self.packets)? else {
            return Ok(None);
        };
        let (pool, packets, damaged) = Pool::open(Words::all(KeptFile::map(file)?))?;
        let before: Whose = serde_json::from_slice(&pool.header()).context("its header")?;
        let format = before.format;
        ensure!(format == whose.format, "they have format {format}");
        ensure!(
            (&before.boot, before.seed) == (&whose.boot, whose.seed),
            "they are of another process"
        );
        if damaged > 0 {
            tracing::error!(damaged, "packets for idle UEs are lost: they are damaged");
        }
        let ports = before.ports.iter();
        Ok(Some(FormerPackets {
            pool,
            packets,
            ports: ports.map(|name| number_of(name, &whose.ports)).collect(),
        }))
    }
}

/// Of an interface, among these.
pub(super) fn number_of(name: &str, ports: &[String]) -> Option<u16> {
    let number = ports.iter().position(|port| port == name)?;
    u16::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::files::tests::in_folder;
    use super::*;

    const BOUNDS: BufferBounds = BufferBounds {
        bytes: 1 << 20,
        packets: 100,
        packets_per_session: 10,
        age: Duration::from_secs(60),
    };

    fn whose(seed: u64, ports: &[&str]) -> Whose {
        Whose {
            format: FORMAT,
            boot: "this boot".to_owned(),
            seed,
            ports: ports.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    /// A process with two packets, of its first and its second interface, is killed.
    fn leave(files: &Files) {
        let kept = files.packets(&whose(5, &["n3", "n6"]), BOUNDS, false);
        let mut pool = kept.pool.unwrap();
        for port in 0..2 {
            pool.put(&[port; 100]).unwrap();
        }
        assert!(kept.former.is_none() && !kept.waits);
        kept.taken.unwrap()();
    }

    #[test]
    fn packets_are_found_by_the_next_process_with_its_interfaces() {
        in_folder(|_, files| {
            leave(&files);
            let kept = files.packets(&whose(5, &["n9", "n6"]), BOUNDS, true);
            let former = kept.former.unwrap();
            assert_eq!(former.packets.len(), 2);
            assert_eq!(former.ports, [None, Some(1)]);
            // Until they are in the new file, that of the one before has them.
            assert!(kept.pool.unwrap().used() == 0 && kept.waits);
            let again = files.packets(&whose(5, &["n3", "n6"]), BOUNDS, true);
            assert_eq!(again.former.unwrap().packets.len(), 2);
            again.taken.unwrap()();
            let after = files.packets(&whose(5, &["n3", "n6"]), BOUNDS, true);
            assert_eq!(after.former.unwrap().packets, []);
        });
    }

    #[test]
    fn those_of_others_are_not() {
        in_folder(|_, files| {
            leave(&files);
            let kept = files.packets(&whose(6, &["n3"]), BOUNDS, true);
            assert!(kept.former.is_none() && kept.pool.is_some());
            let bounds = BufferBounds { bytes: 0, ..BOUNDS };
            let none = files.packets(&whose(5, &["n3"]), bounds, true);
            assert!(none.pool.is_none() && none.former.is_none() && none.waits);
            none.taken.unwrap()();
            assert!(!files.packets.exists(), "nor later");
            fs::write(&files.packets, [7; 100_000]).unwrap();
            let kept = files.packets(&whose(5, &["n3"]), BOUNDS, true);
            assert!(kept.former.is_none() && kept.pool.is_some());
            // Nor are there any where no file can be.
            fs::remove_file(unfinished(&files.packets)).unwrap();
            fs::create_dir(unfinished(&files.packets)).unwrap();
            let kept = files.packets(&whose(5, &["n3"]), BOUNDS, true);
            assert!(kept.pool.is_none() && kept.waits);
            kept.taken.unwrap()();
            assert!(!files.packets.exists(), "nor twice");
        });
    }
}
