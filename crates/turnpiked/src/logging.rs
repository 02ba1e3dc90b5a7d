//! Structured logs on standard error, or in systemd's journal, written by a thread of its own.
//!
//! Whatever becomes of standard error (a full disk, a pipe that nobody reads or that nobody holds any more), no other thread
//! waits for it and none ends because of it. Lines that could not be written are counted, and the log says how many once it
//! takes lines again.

mod journal;

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use report::LogTotals;
use serde_json::{Map, Value};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

use crate::config::{Log, LogFormat, LogLevel};
use crate::lines::write_lines;
use journal::{Journal, Record, Records};

/// Lines that may wait for the thread; some 100 octets each, seldom more than 500.
const QUEUE: usize = 8192;
/// Octets of a line; what is longer is cut.
const LONGEST: usize = 8192;
/// Characters of each value of a line of JSON that is too long.
const LONGEST_VALUE: usize = 256;
/// Time that the end of the process waits for lines to be written.
const FAREWELL: Duration = Duration::from_secs(1);
/// Pause between two looks for room in the queue, at the end of the process.
const LOOK: Duration = Duration::from_millis(10);

static COUNTS: Counts = Counts {
    written: AtomicU64::new(0),
    lost: AtomicU64::new(0),
    suppressed: AtomicU64::new(0),
};

/// Outcomes of lines, since the start.
#[derive(Debug)]
pub(crate) struct Counts {
    written: AtomicU64,
    lost: AtomicU64,
    suppressed: AtomicU64,
}

impl Counts {
    /// Lines that standard error or the journal has taken.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Lines that it would not take, or that came faster than it takes them.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Lines not made, because their sender had caused too many.
    pub(crate) fn suppressed(&self) -> u64 {
        self.suppressed.load(Ordering::Relaxed)
    }

    pub(crate) fn suppress(&self) {
        self.suppressed.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self, went_well: bool) -> bool {
        let count = if went_well { &self.written } else { &self.lost };
        count.fetch_add(1, Ordering::Relaxed);
        went_well
    }

    fn lose(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) fn counts() -> &'static Counts {
    &COUNTS
}

pub(crate) fn totals() -> LogTotals {
    LogTotals {
        written: COUNTS.written(),
        lost: COUNTS.lost(),
        suppressed: COUNTS.suppressed(),
    }
}

/// Work of the thread.
#[derive(Debug)]
enum Job {
    Line(Vec<u8>),
    /// For the journal.
    Record(Record),
    /// Say that all lines before it have been dealt with.
    Farewell(SyncSender<()>),
}

/// Keeps the process until its lines are written, one second at most. Dropped last.
#[derive(Debug)]
#[must_use]
pub(crate) struct Logging {
    queue: SyncSender<Job>,
}

impl Drop for Logging {
    fn drop(&mut self) {
        let until = Instant::now() + FAREWELL;
        let (done, written) = sync_channel(1);
        let mut farewell = Job::Farewell(done);
        loop {
            match self.queue.try_send(farewell) {
                Ok(()) => break,
                Err(TrySendError::Full(back)) if Instant::now() < until => farewell = back,
                Err(_) => return,
            }
            std::thread::sleep(LOOK);
        }
        // Too late, or not at all: the lines are lost with the process.
        let _: Result<(), RecvTimeoutError> =
            written.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

/// From here on, every thread's events are written.
pub(crate) fn start(log: &Log) -> io::Result<Logging> {
    let (queue, jobs) = sync_channel(QUEUE);
    // JSON is for a collector that reads standard error.
    let to_journal = log.format == LogFormat::Text && journal::is_standard_error();
    let journal = to_journal.then(Journal::new).transpose()?;
    std::thread::Builder::new()
        .name("log".into())
        .spawn(move || write(&jobs, &mut io::stderr(), journal.as_ref(), &COUNTS))?;
    let lines = tracing_subscriber::fmt::layer()
        .with_target(false)
        // They would be printed to standard error, and that may be what has failed.
        .log_internal_errors(false)
        .with_writer(Lines {
            queue: queue.clone(),
            format: log.format,
        });
    let lines = match log.format {
        _ if to_journal => {
            let queue = queue.clone();
            Records { queue }.boxed()
        }
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
        LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
    };
    let (level, handle) = reload::Layer::new(filter(log.level));
    tracing_subscriber::registry()
        .with(level)
        .with(lines)
        .init();
    // There is one log in a process.
    let _ = LEVEL.set(handle);
    // Panics are events of the log, and do not go past it.
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let backtrace = std::backtrace::Backtrace::capture();
        let backtrace = (backtrace.status() == std::backtrace::BacktraceStatus::Captured)
            .then(|| tracing::field::display(&backtrace));
        tracing::error!(thread = thread.name(), backtrace, "{panic}");
    }));
    Ok(Logging { queue })
}

/// The least important line that is written, to be changed.
static LEVEL: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

/// Of every thread's events, from now on.
pub(crate) fn set_level(level: LogLevel) {
    if let Some(handle) = LEVEL.get() {
        // It fails when the log has ended.
        let _ = handle.reload(filter(level));
    }
}

/// The end of the queue that events are written to. Never waits, never fails.
#[derive(Debug)]
struct Lines {
    queue: SyncSender<Job>,
    format: LogFormat,
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = &'a Lines;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

impl Write for &Lines {
    /// One whole line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let len = line.len();
        let line = match self.format {
            _ if len <= LONGEST => line.to_vec(),
            LogFormat::Json => shortened(line),
            LogFormat::Text => {
                let mut cut = line[..LONGEST].to_vec();
                cut.push(b'\n');
                cut
            }
        };
        if self.queue.try_send(Job::Line(line)).is_err() {
            COUNTS.lose();
        }
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A line of JSON with shorter values, and with fewer where that is not enough: it is JSON still.
fn shortened(line: &[u8]) -> Vec<u8> {
    let mut fields: Map<String, Value> = serde_json::from_slice(line).unwrap_or_default();
    for value in fields.values_mut() {
        if let Value::String(text) = value {
            *text = text.chars().take(LONGEST_VALUE).collect();
        }
    }
    fields.insert("cut".to_owned(), true.into());
    let written = |fields: &Map<String, Value>| {
        let mut line = serde_json::to_vec(fields).unwrap_or_default();
        line.push(b'\n');
        line
    };
    let whole = written(&fields);
    if whole.len() <= LONGEST {
        return whole;
    }
    fields.retain(|name, _| ["timestamp", "level", "message", "cut"].contains(&name.as_str()));
    written(&fields)
}

/// Write lines until nobody is left to send one. Once they can be written again and none waits, say how many could not. A record that
/// the journal does not take becomes a line.
fn write(jobs: &Receiver<Job>, to: &mut impl Write, journal: Option<&Journal>, counts: &Counts) {
    // The last one was not written to its end.
    let mut torn = false;
    let mut told = 0;
    let mut next = jobs.recv().ok();
    while let Some(job) = next {
        let went_well = match job {
            Job::Line(line) => counts.count(write_line(to, &line, &mut torn)),
            Job::Record(record) => {
                let taken = journal.is_some_and(|journal| journal.send(&record).is_ok());
                counts.count(taken || write_line(to, &record.line(), &mut torn))
            }
            Job::Farewell(done) => {
                // Nobody waits any longer.
                let _ = done.try_send(());
                false
            }
        };
        next = jobs.try_recv().ok();
        if next.is_none() {
            let lost = counts.lost() - told;
            if went_well && lost > 0 {
                told += lost;
                tracing::warn!(lost, "lines of this log were lost: it could not be written");
            }
            next = jobs.recv().ok();
        }
    }
}

fn write_line(to: &mut impl Write, line: &[u8], torn: &mut bool) -> bool {
    if *torn {
        let (ended, _) = write_lines(to, b"\n");
        *torn = ended == 0;
    }
    if *torn {
        return false;
    }
    let (written, result) = write_lines(to, line);
    *torn = written > 0 && written < line.len();
    result.is_ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Takes octets while there is room.
    #[derive(Clone, Default)]
    struct Disk {
        text: Arc<Mutex<Vec<u8>>>,
        room: Arc<AtomicU64>,
    }

    impl Write for Disk {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            let room = self.room.load(Ordering::Relaxed) as usize;
            let taken = room.min(octets.len());
            if taken == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room.fetch_sub(taken as u64, Ordering::Relaxed);
            self.text.lock().unwrap().extend(&octets[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn no_counts() -> Counts {
        Counts {
            written: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            suppressed: AtomicU64::new(0),
        }
    }

    fn line(text: &str) -> Job {
        Job::Line(format!("{text}\n").into_bytes())
    }

    #[test]
    fn lines_that_a_full_disk_does_not_take_are_counted_and_the_next_begins_anew() {
        let (queue, jobs) = sync_channel(8);
        let (disk, counts) = (Disk::default(), no_counts());
        disk.room.store(8, Ordering::Relaxed);
        for text in ["first", "second", "third"] {
            queue.send(line(text)).unwrap();
        }
        drop(queue);
        write(&jobs, &mut disk.clone(), None, &counts);
        assert_eq!((counts.written(), counts.lost()), (1, 2));
        assert_eq!(*disk.text.lock().unwrap(), b"first\nse");
        // Somebody has made room.
        disk.room.store(100, Ordering::Relaxed);
        let mut torn = true;
        assert!(write_line(&mut disk.clone(), b"fourth\n", &mut torn));
        assert_eq!(*disk.text.lock().unwrap(), b"first\nse\nfourth\n");
    }

    #[test]
    fn nobody_waits_for_a_log_that_takes_nothing() {
        let (queue, _jobs) = sync_channel(2);
        let lines = Lines {
            queue,
            format: LogFormat::Text,
        };
        let lost = counts().lost();
        for _ in 0..5 {
            assert_eq!((&lines).write(b"a line\n").unwrap(), 7);
        }
        assert!(counts().lost() >= lost + 3);
    }

    #[test]
    fn long_lines_are_cut() {
        let (queue, jobs) = sync_channel(2);
        let long = vec![b'x'; 3 * LONGEST];
        let format = LogFormat::Text;
        let written = (&Lines { queue, format }).write(&long);
        assert_eq!(written.unwrap(), long.len());
        let Ok(Job::Line(line)) = jobs.recv() else {
            panic!("no line")
        };
        assert_eq!((line.len(), line.last()), (LONGEST + 1, Some(&b'\n')));
    }

    #[test]
    fn long_lines_of_json_are_json_still() {
        let long = "ä\n\"".repeat(LONGEST);
        let few = serde_json::json!({"level": "WARN", "message": long, "smf": "one", "n": 1});
        let mut many = few.clone();
        for number in 0..100 {
            many[format!("field{number}")] = long.clone().into();
        }
        for (event, has_smf) in [(few, true), (many, false)] {
            let (queue, jobs) = sync_channel(2);
            let format = LogFormat::Json;
            let line = event.to_string() + "\n";
            (&Lines { queue, format })
                .write_all(line.as_bytes())
                .unwrap();
            let Ok(Job::Line(line)) = jobs.recv() else {
                panic!("no line")
            };
            assert!(line.len() <= LONGEST && line.ends_with(b"\n"));
            let read: Value = serde_json::from_slice(&line).unwrap();
            assert_eq!(
                (&read["level"], &read["cut"]),
                (&"WARN".into(), &true.into())
            );
            assert_eq!(read.get("smf").is_some(), has_smf);
        }
    }

    #[test]
    fn a_record_that_no_journal_takes_is_a_line() {
        let (queue, jobs) = sync_channel(8);
        let records = journal::tests::records(|| tracing::error!(cause = 75, "refused"));
        for record in records {
            queue.send(Job::Record(record)).unwrap();
        }
        drop(queue);
        let (disk, counts) = (Disk::default(), no_counts());
        disk.room.store(100, Ordering::Relaxed);
        let nobody = Journal::at(Path::new("/nobody/listens/here")).unwrap();
        write(&jobs, &mut disk.clone(), Some(&nobody), &counts);
        assert_eq!(*disk.text.lock().unwrap(), b"<3>refused cause=75\n");
        assert_eq!((counts.written(), counts.lost()), (1, 0));
    }
}
