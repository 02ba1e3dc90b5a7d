//! Events as records of systemd's journal, with their fields, by its native protocol: systemd.journal-fields(7), and
//! "Native Journal Protocol" of systemd.

use std::cell::Cell;
use std::fmt::{Debug, Write};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::{COUNTS, Job, LONGEST};

/// Socket of journald.
const SOCKET: &str = "/run/systemd/journal/socket";
/// Time for it to take a record: its queue may be full, and nobody there to empty it.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause after it has taken none in that time.
const PAUSE: Duration = Duration::from_secs(10);
/// Before the names of our fields.
const PREFIX: &str = "TURNPIKE_";
/// Octets of a value, so that a record of many is no longer than a line.
const LONGEST_VALUE: usize = LONGEST / 4;

/// Whether standard error leads to the journal: systemd says which file that is (`JOURNAL_STREAM`, systemd.exec(5)), and it may have
/// been redirected since.
pub(super) fn is_standard_error() -> bool {
    let said = std::env::var("JOURNAL_STREAM");
    said.is_ok_and(|said| is_file(&said, io::stderr()))
}

/// said: device and inode, as `8:1234`.
fn is_file(said: &str, file: impl AsFd) -> bool {
    let is = nix::sys::stat::fstat(file);
    is.is_ok_and(|is| said == format!("{}:{}", is.st_dev, is.st_ino))
}

/// An event that waits for the thread of the log.
#[derive(Debug)]
pub(super) struct Record {
    level: Level,
    message: String,
    fields: Vec<(&'static str, String)>,
}

impl Record {
    fn new(event: &Event<'_>) -> Self {
        let mut record = Self {
            level: *event.metadata().level(),
            message: String::new(),
            fields: Vec::new(),
        };
        event.record(&mut record);
        record
    }

    /// As of syslog.
    fn priority(&self) -> u8 {
        match self.level {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            Level::DEBUG | Level::TRACE => 7,
        }
    }

    /// With its fields, as `journalctl` shows it without being asked for them.
    fn text(&self) -> String {
        let mut text = self.message.clone();
        for (name, value) in &self.fields {
            // Never fails.
            let _ = write!(text, " {name}={value}");
        }
        text
    }

    /// As a datagram.
    fn octets(&self) -> Vec<u8> {
        let mut octets = Vec::new();
        add(&mut octets, "PRIORITY", &self.priority().to_string());
        add(&mut octets, "SYSLOG_IDENTIFIER", "turnpiked");
        add(&mut octets, "MESSAGE", &self.text());
        for (name, value) in &self.fields {
            add(&mut octets, &field_name(name), value);
        }
        octets
    }

    /// For standard error, where systemd reads a priority before each line (sd-daemon(3)).
    pub(super) fn line(&self) -> Vec<u8> {
        let text = self.text().replace(['\n', '\r'], " ");
        format!("<{}>{text}\n", self.priority()).into_bytes()
    }
}

impl Visit for Record {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = format!("{value:?}");
        let mut places = (0..=LONGEST_VALUE.min(text.len())).rev();
        let end = places.find(|&at| text.is_char_boundary(at));
        text.truncate(end.unwrap_or_default());
        match field.name() {
            "message" => self.message = text,
            // Of events of libraries: where in their source.
            name if name.starts_with("log.") => {}
            name => self.fields.push((name, text)),
        }
    }
}

/// `TURNPIKE_SMF`: journald takes capital letters, digits and underscores, 64 at most.
fn field_name(name: &str) -> String {
    // A session is named as `turnpike session` takes it.
    let name = if name == "seid" { "session" } else { name };
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_uppercase()
        } else {
            '_'
        }
    };
    let name: String = name.chars().map(plain).collect();
    let name = format!("{PREFIX}{name}");
    name.chars().take(64).collect()
}

/// A value of several lines is preceded by its length.
fn add(octets: &mut Vec<u8>, name: &str, value: &str) {
    octets.extend(name.as_bytes());
    if value.contains('\n') {
        octets.push(b'\n');
        octets.extend((value.len() as u64).to_le_bytes());
    } else {
        octets.push(b'=');
    }
    octets.extend(value.as_bytes());
    octets.push(b'\n');
}

/// Hands events to the thread of the log; never waits, never fails.
#[derive(Debug)]
pub(super) struct Records {
    pub(super) queue: SyncSender<Job>,
}

impl<S: Subscriber> Layer<S> for Records {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let record = Job::Record(Record::new(event));
        if self.queue.try_send(record).is_err() {
            COUNTS.lose();
        }
    }
}

/// The socket of journald, which may be restarted meanwhile.
#[derive(Debug)]
pub(super) struct Journal {
    socket: UnixDatagram,
    path: PathBuf,
    /// It took nothing for [`PATIENCE`], and is left alone until then.
    stuck_until: Cell<Option<Instant>>,
}

impl Journal {
    pub(super) fn new() -> io::Result<Self> {
        Self::at(Path::new(SOCKET))
    }

    pub(super) fn at(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            socket,
            path: path.to_owned(),
            stuck_until: Cell::new(None),
        })
    }

    pub(super) fn send(&self, record: &Record) -> io::Result<()> {
        let now = Instant::now();
        if self.stuck_until.get().is_some_and(|until| now < until) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let octets = record.octets();
        let sent = loop {
            match self.socket.send_to(&octets, &self.path) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                sent => break sent.map(drop),
            }
        };
        let is_stuck = matches!(&sent, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        self.stuck_until
            .set(is_stuck.then(|| Instant::now() + PAUSE));
        sent
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::mpsc::sync_channel;

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// Records of these events.
    pub(in crate::logging) fn records(events: impl FnOnce()) -> Vec<Record> {
        let (queue, jobs) = sync_channel(100);
        let subscriber = tracing_subscriber::registry().with(Records { queue });
        tracing::subscriber::with_default(subscriber, events);
        let records = jobs.iter().map(|job| match job {
            Job::Record(record) => record,
            job => panic!("{job:?}"),
        });
        records.collect()
    }

    #[test]
    fn a_record_has_the_fields_of_its_event() {
        let records = records(|| {
            let nobody: Option<&str> = None;
            tracing::warn!(smf = %"smf.example", seid = %"00000000000000a1", cause = "No resources", nobody, n = 5, "request refused");
            tracing::info!(error = "two\nlines", "odd.name");
        });
        let octets: Vec<_> = records.iter().map(Record::octets).collect();
        let expected = "PRIORITY=4\nSYSLOG_IDENTIFIER=turnpiked\n\
            MESSAGE=request refused smf=smf.example seid=00000000000000a1 cause=No resources n=5\n\
            TURNPIKE_SMF=smf.example\nTURNPIKE_SESSION=00000000000000a1\nTURNPIKE_CAUSE=No resources\nTURNPIKE_N=5\n";
        assert_eq!(String::from_utf8_lossy(&octets[0]), expected);
        let odd = String::from_utf8_lossy(&octets[1]);
        let error = "TURNPIKE_ERROR\n\x09\0\0\0\0\0\0\0two\nlines\n";
        assert!(
            odd.starts_with("PRIORITY=6\n") && odd.ends_with(error),
            "{odd:?}"
        );
        assert_eq!(records[1].line(), b"<6>odd.name error=two lines\n");
        assert_eq!(field_name("log.a-b"), "TURNPIKE_LOG_A_B");
    }

    #[test]
    fn long_values_are_cut() {
        let long = "ä".repeat(LONGEST);
        let records = records(|| tracing::error!(error = %long, "{long}"));
        assert!(records[0].octets().len() < 2 * LONGEST);
        assert_eq!(records[0].fields[0].1.len(), LONGEST_VALUE);
    }

    #[test]
    fn standard_error_of_another_file_is_not_the_journal() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let is = nix::sys::stat::fstat(&null).unwrap();
        assert!(is_file(&format!("{}:{}", is.st_dev, is.st_ino), &null));
        for said in ["", "8:1", "x", &format!("{}:{}", is.st_dev, is.st_ino + 1)] {
            assert!(!is_file(said, &null), "{said}");
        }
    }

    #[test]
    fn a_journal_that_takes_nothing_is_left_alone() {
        let path = std::env::temp_dir().join(format!("turnpiked-stuck-{}", std::process::id()));
        let socket = UnixDatagram::bind(&path).unwrap();
        let journal = Journal::at(&path).unwrap();
        let record = records(|| tracing::info!("one")).remove(0);
        // The kernel keeps as many as net.unix.max_dgram_qlen.
        while journal.send(&record).is_ok() {}
        assert!(journal.stuck_until.get().is_some());
        let mut octets = [0; 100];
        socket.recv(&mut octets).unwrap();
        assert!(journal.send(&record).is_err(), "it was asked again at once");
        journal.stuck_until.set(None);
        assert!(journal.send(&record).is_ok());
        std::fs::remove_file(&path).unwrap();
    }
}
