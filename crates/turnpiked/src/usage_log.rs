//! The log of usage: a line of JSON for each Usage Report, so that what no SMF has heard of is not lost.
//!
//! A thread of its own writes, so that a slow disk holds up nobody. What it cannot take is counted and said so in
//! the other log, once until it can again.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use serde::Serialize;
use session::UsageRecord;

use crate::config;
use crate::report::{seid_text, unix_near};
use crate::system;

/// Reports that may wait for the disk.
const QUEUE: usize = 1 << 16;

/// One line.
#[derive(Debug, Serialize)]
struct Line {
    seid: String,
    cp_seid: String,
    urr: u32,
    /// UR-SEQN: with SEID and URR it names the report.
    seqn: u32,
    /// Usage Report Trigger (TS 29.244, 8.2.41).
    triggers: Vec<&'static str>,
    /// Seconds since 1970.
    start: u64,
    end: u64,
    uplink_bytes: u64,
    downlink_bytes: u64,
    uplink_packets: u64,
    downlink_packets: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_s: Option<u32>,
    /// Whether the SMF has it.
    acknowledged: bool,
}

impl Line {
    fn new(record: &UsageRecord, ntp_s: u64) -> Self {
        let [uplink_bytes, downlink_bytes] = record.used.bytes;
        let [uplink_packets, downlink_packets] = record.used.packets;
        Self {
            seid: seid_text(record.seid),
            cp_seid: seid_text(record.cp_seid),
            urr: record.urr.0,
            seqn: record.seqn,
            triggers: record.trigger.iter_names().map(|(name, _)| name).collect(),
            start: unix_near(record.start, ntp_s),
            end: unix_near(record.end, ntp_s),
            uplink_bytes,
            downlink_bytes,
            uplink_packets,
            downlink_packets,
            duration_s: record.duration_s,
            acknowledged: record.acknowledged,
        }
    }
}

/// What became of reports that were to be logged.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    written: AtomicU64,
    lost: AtomicU64,
}

impl Counts {
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// The disk would not take them, or too many waited for it.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// The end that is written to. Dropping it writes what waits, and ends the thread.
#[derive(Debug)]
pub(crate) struct UsageLog {
    queue: Option<SyncSender<UsageRecord>>,
    thread: Option<JoinHandle<()>>,
    counts: Arc<Counts>,
}

impl UsageLog {
    /// What is there already is kept, and appended to.
    pub(crate) fn open(config: &config::UsageLog, path: &Path) -> io::Result<Self> {
        let files = Files::open(path, u64::from(config.max_mb) << 20, config.files)?;
        let (queue, records) = sync_channel(QUEUE);
        let counts = Arc::<Counts>::default();
        let thread = std::thread::Builder::new()
            .name("usage-log".into())
            .spawn({
                let counts = Arc::clone(&counts);
                move || write_all(files, &records, &counts)
            })?;
        Ok(Self {
            queue: Some(queue),
            thread: Some(thread),
            counts,
        })
    }

    /// Never waits.
    pub(crate) fn write(&self, record: &UsageRecord) {
        let queued = (self.queue.as_ref()).is_some_and(|q| q.try_send(record.clone()).is_ok());
        if !queued {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits for its place.
    pub(crate) fn write_in_time(&self, record: &UsageRecord) {
        let queued = (self.queue.as_ref()).is_some_and(|q| q.send(record.clone()).is_ok());
        if !queued {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }
}

impl Drop for UsageLog {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn write_all(mut files: Files, records: &Receiver<UsageRecord>, counts: &Counts) {
    let mut fails = false;
    while let Ok(first) = records.recv() {
        let ntp_s = system::ntp().as_secs();
        let mut batch = 0;
        let mut written = Ok(());
        for record in std::iter::once(first).chain(records.try_iter()) {
            batch += 1;
            written = written.and_then(|()| files.line(&Line::new(&record, ntp_s)));
        }
        written = written.and_then(|()| files.flush());
        match written {
            Ok(()) => {
                counts.written.fetch_add(batch, Ordering::Relaxed);
                fails = false;
            }
            Err(error) => {
                counts.lost.fetch_add(batch, Ordering::Relaxed);
                if !fails {
                    tracing::error!(%error, path = %files.path.display(), "the log of usage cannot be written; usage_log_lost counts");
                }
                fails = true;
                files.reopen();
            }
        }
    }
}

/// The file that is written, and how many older ones are kept: `path.1` is the youngest of them.
#[derive(Debug)]
struct Files {
    path: PathBuf,
    max_bytes: u64,
    kept: u32,
    file: Option<BufWriter<File>>,
    bytes: u64,
}

impl Files {
    fn open(path: &Path, max_bytes: u64, files: u32) -> io::Result<Self> {
        let mut this = Self {
            path: path.to_owned(),
            max_bytes,
            kept: files.saturating_sub(1),
            file: None,
            bytes: 0,
        };
        this.file()?;
        Ok(this)
    }

    fn file(&mut self) -> io::Result<&mut BufWriter<File>> {
        if self.file.is_none() {
            let file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(&self.path)?;
            self.bytes = file.metadata()?.len();
            self.file = Some(BufWriter::new(file));
        }
        self.file
            .as_mut()
            .ok_or_else(|| io::ErrorKind::Other.into())
    }

    fn line(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.file()?;
        if self.bytes > 0 && self.bytes + text.len() as u64 > self.max_bytes {
            self.roll()?;
        }
        self.file()?.write_all(&text)?;
        self.bytes += text.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file()?.flush()
    }

    fn reopen(&mut self) {
        self.file = None;
    }

    fn older(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }

    /// The oldest goes, each other becomes one older.
    fn roll(&mut self) -> io::Result<()> {
        self.flush()?;
        self.file = None;
        for number in (1..self.kept).rev() {
            rename(&self.older(number), &self.older(number + 1))?;
        }
        if self.kept > 0 {
            rename(&self.path, &self.older(1))
        } else {
            std::fs::remove_file(&self.path)
        }
    }
}

/// One that is not there need not be renamed.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("turnpike-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn line(seqn: u32) -> Line {
        Line {
            seid: seid_text(1),
            cp_seid: seid_text(2),
            urr: 3,
            seqn,
            triggers: vec!["VOLTH"],
            start: 1,
            end: 2,
            uplink_bytes: 10,
            downlink_bytes: 20,
            uplink_packets: 1,
            downlink_packets: 2,
            duration_s: None,
            acknowledged: true,
        }
    }

    fn seqns(path: &Path) -> Vec<u64> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let lines = text.lines().map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["seqn"].as_u64().unwrap()
        });
        lines.collect()
    }

    #[test]
    fn files_roll_and_the_oldest_goes() {
        let folder = folder("roll");
        let path = folder.join("usage.jsonl");
        let length = serde_json::to_vec(&line(0)).unwrap().len() as u64 + 1;
        let mut files = Files::open(&path, 2 * length, 3).unwrap();
        for seqn in 0..7 {
            files.line(&line(seqn)).unwrap();
        }
        files.flush().unwrap();
        let all = [
            files.path.clone(),
            files.older(1),
            files.older(2),
            files.older(3),
        ];
        assert_eq!(
            all.map(|path| seqns(&path)),
            [vec![6], vec![4, 5], vec![2, 3], vec![]]
        );
        // What is there is kept when the process starts anew.
        let mut files = Files::open(&path, 2 * length, 3).unwrap();
        files.line(&line(7)).unwrap();
        files.flush().unwrap();
        assert_eq!(seqns(&path), [6, 7]);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_log_of_one_file_begins_anew() {
        let folder = folder("one");
        let path = folder.join("usage.jsonl");
        let mut files = Files::open(&path, 1, 1).unwrap();
        for seqn in 0..3 {
            files.line(&line(seqn)).unwrap();
        }
        files.flush().unwrap();
        assert_eq!(seqns(&path), [2]);
        assert!(!files.older(1).exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
