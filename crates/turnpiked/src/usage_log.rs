//! The log of usage: a line of JSON for each Usage Report, so that what no SMF has heard of is not lost.
//!
//! A thread of its own writes, so that a slow disk holds up nobody. What it cannot take is counted and said so in
//! the other log, once until it can again. Each field has its line in docs/metrics.md.

mod files;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use serde::Serialize;
use session::UsageRecord;

use crate::config;
use crate::system;
use crate::text::{address_text, seid_text, unix_near};
use files::{Files, Tally};

/// Reports that may wait for the disk.
const QUEUE: usize = 1 << 16;
/// Reports after which what became of them is counted.
const BATCH: usize = 4096;

/// One line.
#[derive(Debug, Serialize)]
struct Line {
    seid: String,
    cp_seid: String,
    /// Node ID of the SMF.
    #[serde(skip_serializing_if = "Option::is_none")]
    smf: Option<String>,
    /// Addresses of the UE.
    ue: Vec<String>,
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
            smf: record.smf.as_ref().map(ToString::to_string),
            ue: record.ue.iter().map(address_text).collect(),
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

    fn text(&self) -> io::Result<Vec<u8>> {
        let mut text = serde_json::to_vec(self)?;
        text.push(b'\n');
        Ok(text)
    }
}

/// Work of the thread.
#[derive(Debug)]
enum Job {
    Write(UsageRecord),
    /// The file has been moved away.
    OpenAnew,
}

/// Counts of reports that were to be logged.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    written: AtomicU64,
    lost: AtomicU64,
    /// Too many wait for the disk, and it was said so.
    overflows: AtomicBool,
}

impl Counts {
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// The disk would not take them, or too many waited for it.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// One more than may wait. Whether it is the first one since nothing waited.
    fn overflow(&self) -> bool {
        self.lost.fetch_add(1, Ordering::Relaxed);
        !self.overflows.swap(true, Ordering::Relaxed)
    }

    /// The disk has taken, or not, what waited.
    fn settle(&self, tally: &Tally, drained: bool) {
        self.written.fetch_add(tally.written, Ordering::Relaxed);
        self.lost.fetch_add(tally.lost, Ordering::Relaxed);
        if drained {
            self.overflows.store(false, Ordering::Relaxed);
        }
    }
}

/// The end that is written to. Dropping it writes what waits, and ends the thread.
#[derive(Debug)]
pub(crate) struct UsageLog {
    queue: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
    counts: Arc<Counts>,
}

impl UsageLog {
    /// Open the log; lines that the file has already are kept, and appended to.
    pub(crate) fn open(config: &config::UsageLog, path: &Path) -> io::Result<Self> {
        let files = Files::open(path, u64::from(config.max_mb) << 20, config.files)?;
        let (queue, jobs) = sync_channel(QUEUE);
        let counts = Arc::<Counts>::default();
        let thread = std::thread::Builder::new()
            .name("usage-log".into())
            .spawn({
                let counts = Arc::clone(&counts);
                move || write_all(files, &jobs, &counts)
            })?;
        Ok(Self {
            queue: Some(queue),
            thread: Some(thread),
            counts,
        })
    }

    /// Never waits.
    pub(crate) fn write(&self, record: &UsageRecord) {
        let job = Job::Write(record.clone());
        let queued = (self.queue.as_ref()).is_some_and(|q| q.try_send(job).is_ok());
        if !queued && self.counts.overflow() {
            tracing::error!("more Usage Reports than the log of usage can take; {LOSSES}");
        }
    }

    /// Waits for its place.
    pub(crate) fn write_in_time(&self, record: &UsageRecord) {
        let job = Job::Write(record.clone());
        let queued = (self.queue.as_ref()).is_some_and(|q| q.send(job).is_ok());
        if !queued {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Go on in a file of the same name, behind what waits. Never waits; fails where more waits than may.
    pub(crate) fn open_anew(&self) -> bool {
        (self.queue.as_ref()).is_some_and(|q| q.try_send(Job::OpenAnew).is_ok())
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

/// Hint at the metric that counts lost reports.
const LOSSES: &str = "turnpike_usage_log_total{outcome=\"lost\"} counts what is missing";

fn write_all(mut files: Files, jobs: &Receiver<Job>, counts: &Counts) {
    let mut complaints = Complaints::default();
    while let Ok(first) = jobs.recv() {
        let ntp_s = system::ntp().as_secs();
        let mut taken = 0;
        for job in std::iter::once(first).chain(jobs.try_iter().take(BATCH)) {
            taken += 1;
            match job {
                Job::OpenAnew => files.open_anew(),
                Job::Write(record) => match Line::new(&record, ntp_s).text() {
                    Ok(text) => files.line(&text),
                    Err(_) => files.lose(),
                },
            }
        }
        files.flush();
        let tally = files.take_tally();
        counts.settle(&tally, taken <= BATCH);
        complaints.about(&files, &tally);
    }
}

/// Complaints of the log of events about the log of usage: each once, until it goes well again.
#[derive(Debug, Default)]
struct Complaints {
    fails: bool,
    cannot_roll: bool,
}

impl Complaints {
    fn about(&mut self, files: &Files, tally: &Tally) {
        let path = files.path().display();
        match &tally.error {
            Some(error) if !self.fails => {
                tracing::error!(%error, %path, "the log of usage cannot be written; {LOSSES}");
            }
            None if self.fails => tracing::info!(%path, "the log of usage is written again"),
            _ => {}
        }
        self.fails = tally.error.is_some();
        match &tally.not_rolled {
            Some(error) if !self.cannot_roll => {
                tracing::error!(%error, %path, "the log of usage has reached usage_log.max_mb and cannot be renamed: it grows");
            }
            _ => {}
        }
        self.cannot_roll = tally.not_rolled.is_some() || files.is_overdue();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(seqn: u32) -> UsageRecord {
        UsageRecord {
            seid: 1,
            cp_seid: 2,
            peer: None,
            smf: Some(session::node_id::NodeId::Fqdn("smf1.example.org".into())),
            ue: vec![
                "10.60.0.9/32".parse().unwrap(),
                "2001:db8:60::/64".parse().unwrap(),
            ],
            urr: session::rules::UrrId(3),
            seqn,
            trigger: pfcp::ie::UsageReportTrigger::VOLTH,
            start: 1,
            end: 2,
            used: session::Amount::default(),
            duration_s: Some(9),
            acknowledged: true,
        }
    }

    /// As docs/metrics.md says.
    #[test]
    fn each_field_of_a_line_is_documented() {
        let text = Line::new(&record(4), 0).text().unwrap();
        let line: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(line["smf"], "smf1.example.org");
        assert_eq!(
            line["ue"],
            serde_json::json!(["10.60.0.9", "2001:db8:60::/64"])
        );
        let page = include_str!("../../../docs/metrics.md");
        let section = page.split_once("## The log of usage").unwrap().1;
        for field in line.as_object().unwrap().keys() {
            assert!(
                section.contains(&format!("`{field}`")),
                "{field} is not there"
            );
        }
    }

    #[test]
    fn reports_that_are_too_many_are_lost_one_by_one_and_said_so_once() {
        let (queue, jobs) = sync_channel(2);
        let log = UsageLog {
            queue: Some(queue),
            thread: None,
            counts: Arc::default(),
        };
        for seqn in 0..5 {
            log.write(&record(seqn));
        }
        assert_eq!(log.counts().lost(), 3);
        assert!(!log.counts.overflow(), "it was said so");
        // The disk takes them after all.
        assert_eq!(jobs.try_iter().count(), 2);
        let tally = Tally {
            written: 2,
            ..Tally::default()
        };
        log.counts.settle(&tally, true);
        assert_eq!((log.counts().written(), log.counts().lost()), (2, 4));
        assert!(log.counts.overflow(), "another time");
    }

    #[test]
    fn what_the_disk_does_not_take_is_counted() {
        let config = config::UsageLog::default();
        let log = UsageLog::open(&config, Path::new("/dev/full")).unwrap();
        let counts = Arc::clone(&log.counts);
        for seqn in 0..5 {
            log.write(&record(seqn));
        }
        drop(log);
        assert_eq!((counts.written(), counts.lost()), (0, 5));
    }
}
