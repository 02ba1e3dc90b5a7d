//! The cost of REST's readers to an SMF: establishments one by one, beside clients that read whole pages without pause.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use hdrhistogram::Histogram;

use super::load::Client;
use super::requests;
use super::sut::Sut;
use super::{ADDRESSES, Figures, SAMPLE, WINDOW, delete, establish};
use crate::bench::requests::Shape;
use crate::wait::eventually;

/// Sessions that there are.
const SESSIONS: u32 = 20_000;
/// Clients of REST at a time: as many as have a place beside the one that asks for metrics, in the last.
const READERS: [usize; 3] = [0, 8, 62];
/// Establishments at a time, and how often.
const ESTABLISHED: u32 = 5_000;
const ROUNDS: usize = 10;
const NEVER: Duration = Duration::from_secs(60);

/// One figure for each number of readers, and what they got.
pub(super) fn measure(figures: &mut Figures) -> Result<()> {
    let sut = Sut::start(SESSIONS + SAMPLE)?;
    let mut client = Client::new(sut.smf_socket(ADDRESSES.smf)?, sut.n4())?;
    client.associate(|sequence| requests::association(&ADDRESSES, sequence))?;
    establish(&mut client, (0, SESSIONS), Shape::Plain, WINDOW)?;
    // Memory for the answers that are kept, and for the sessions that come.
    come_and_go(&mut client)?;
    for readers in READERS {
        let (over, pages) = (AtomicBool::new(false), AtomicU64::new(0));
        let step = std::thread::scope(|scope| {
            let all: Vec<_> = (0..readers)
                .map(|_| scope.spawn(|| read(&sut, &over, &pages)))
                .collect();
            // All of them read.
            let begun = eventually("pages are read", || {
                Ok(pages.load(Relaxed) >= 2 * readers as u64)
            });
            let step = begun.and_then(|()| Step::take(&sut, &mut client, &pages));
            over.store(true, Relaxed);
            for reader in all {
                reader.join().map_err(|_| anyhow!("a reader died"))??;
            }
            step
        })?;
        let mut add = |name: &str, value: f64, unit: &str| {
            figures.add(&format!("{name}_{readers}_readers"), value, unit, None);
        };
        for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
            let micros = step.latency.value_at_quantile(quantile) as f64 / 1e3;
            add(&format!("establish_{name}"), micros, "us");
        }
        let seconds = step.took.as_secs_f64();
        add("pages_read", step.pages as f64 / seconds, "1/s");
        let control = step.control.as_secs_f64();
        add("control_thread", 100.0 * control / seconds, "%");
    }
    if let Some(longest) = sut.longest_turn()? {
        figures.add("rest_longest_turn", longest * 1e6, "us", None);
    }
    Ok(())
}

/// Establishments and deletions beside readers.
struct Step {
    /// Of establishments, in nanoseconds.
    latency: Histogram<u64>,
    took: Duration,
    pages: u64,
    /// CPU time of the control thread.
    control: Duration,
}

impl Step {
    fn take(sut: &Sut, client: &mut Client, pages: &AtomicU64) -> Result<Self> {
        let (control, read, began) = (sut.control_time()?, pages.load(Relaxed), Instant::now());
        let mut latency = come_and_go(client)?.latency;
        for _ in 1..ROUNDS {
            latency.add(come_and_go(client)?.latency)?;
        }
        Ok(Self {
            latency,
            took: began.elapsed(),
            pages: pages.load(Relaxed) - read,
            control: sut.control_time()? - control,
        })
    }
}

fn come_and_go(client: &mut Client) -> Result<super::load::Outcome> {
    let (outcome, seids) = establish(client, (SESSIONS, ESTABLISHED), Shape::Plain, 1)?;
    delete(client, &seids)?;
    Ok(outcome)
}

/// Pages of 1000 sessions over one connection, one after the other.
fn read(sut: &Sut, over: &AtomicBool, pages: &AtomicU64) -> Result<()> {
    let stream = sut.upf.enter(|| {
        let stream = TcpStream::connect(("127.0.0.1", 8806))?;
        stream.set_read_timeout(Some(NEVER))?;
        Ok(stream)
    })?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut body = Vec::new();
    while !over.load(Relaxed) {
        let mut stream = &stream;
        stream.write_all(b"GET /api/v1/sessions?limit=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut length = None;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = Some(value.parse::<usize>()?);
            }
        }
        body.resize(length.context("an answer without a length")?, 0);
        reader.read_exact(&mut body)?;
        pages.fetch_add(1, Relaxed);
    }
    Ok(())
}
