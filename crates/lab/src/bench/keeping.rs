//! What it costs that sessions outlive their process, and their host: the same requests with no record, with records in `state.dir`, and
//! with a copy of these in `state.disk`.

use std::time::Duration;

use anyhow::Result;

use super::requests::Shape;
use super::sut::Sut;
use super::{Bench, Figures, Options, ROTATION, SAMPLE, WARM_UP, WINDOW, median};

/// No URR reports.
const NEVER: u64 = 1 << 50;

/// Of one place.
#[derive(Default)]
struct Costs {
    /// Microseconds for each request, of all threads and of the one that answers.
    establishment: Vec<[f64; 2]>,
    path_switch: Vec<[f64; 2]>,
    /// All octets that the process holds, for each session.
    memory: Vec<f64>,
}

/// Where sessions are kept, by name: nowhere, in `state.dir` in a tmpfs with small pages, with huge ones, and there and in `state.disk`, where
/// temporary files are.
const PLACES: [(&str, &[&str]); 4] = [
    ("nowhere", &[]),
    ("small-pages", &["dir = \"{folder}/small-pages\"", BPFFS]),
    ("huge-pages", &[HUGE_PAGES, BPFFS]),
    ("disk", &[HUGE_PAGES, BPFFS, "disk = \"{folder}/disk\""]),
];
const HUGE_PAGES: &str = "dir = \"{folder}/huge-pages\"";
const BPFFS: &str = "bpffs = \"{folder}/bpffs\"";

/// Of `options.sessions` sessions, `options.runs` times, by turns.
pub(super) fn measure(figures: &mut Figures, options: &Options) -> Result<()> {
    for (shape, name) in [
        (Shape::Plain, "plain"),
        (Shape::Measured(1, NEVER), "1-urr"),
    ] {
        let mut all = PLACES.map(|_| Costs::default());
        for _ in 0..options.runs {
            for ((_, state), costs) in PLACES.iter().zip(&mut all) {
                costs.measure(options.sessions, shape, state)?;
            }
        }
        for ((place, _), costs) in PLACES.iter().zip(&mut all) {
            for (what, values, unit) in [
                ("establishment", &mut costs.establishment, "us/request"),
                ("path-switch", &mut costs.path_switch, "us/request"),
            ] {
                for (thread, of) in [("", 0), ("-control", 1)] {
                    let mut each: Vec<f64> = values.iter().map(|value| value[of]).collect();
                    let figure = format!(
                        "kept-{place}-{name}-{what}{thread}-cpu-{}",
                        options.sessions
                    );
                    figures.add(&figure, median(&mut each), unit, None);
                }
            }
            let figure = format!("kept-{place}-{name}-memory-{}", options.sessions);
            figures.add(&figure, median(&mut costs.memory), "B/session", None);
        }
    }
    Ok(())
}

/// CPU of all threads, and of the one that answers.
fn spent(bench: &Bench) -> Result<[Duration; 2]> {
    Ok([bench.sut.cpu()?, bench.sut.control_time()?])
}

/// Microseconds of each of so many requests.
fn each(bench: &Bench, before: [Duration; 2], requests: u32) -> Result<[f64; 2]> {
    let now = spent(bench)?;
    let each = |at: usize| (now[at] - before[at]).as_secs_f64() * 1e6 / f64::from(requests);
    Ok([each(0), each(1)])
}

impl Costs {
    fn measure(&mut self, sessions: u32, shape: Shape, state: &[&'static str]) -> Result<()> {
        let lines = state.iter().map(|line| ("[state]", *line)).collect();
        let sut = Sut::start_with(sessions + SAMPLE, 1, lines)?;
        let mut bench = Bench::new(sut, sessions, 1)?;
        // Answers that are kept for repeated requests have taken all the memory they will.
        bench.seids = bench.establish(sessions, SAMPLE, shape)?.1;
        bench.path_switches(WARM_UP, WINDOW)?;
        let before = spent(&bench)?;
        bench.seids = bench.establish(0, sessions, shape)?.1;
        self.establishment.push(each(&bench, before, sessions)?);
        let memory = bench.sut.memory()? as f64;
        self.memory.push(memory / f64::from(sessions));
        let before = spent(&bench)?;
        bench.path_switches(ROTATION, WINDOW)?;
        self.path_switch.push(each(&bench, before, ROTATION)?);
        Ok(())
    }
}
