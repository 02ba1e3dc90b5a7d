//! What it costs that sessions outlive their process, and their host: the same requests with no record, with records in `state.dir`, and
//! with a copy of these in `state.disk`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use super::requests::Shape;
use super::sut::Sut;
use super::{Bench, Figures, Options, ROTATION, SAMPLE, WARM_UP, WINDOW, median};
use crate::cleanup;

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

/// Where sessions are kept.
#[derive(Clone, Copy)]
enum Place {
    Nowhere,
    /// `state.dir`, in a tmpfs.
    Memory,
    /// And `state.disk`, where temporary files are.
    Disk,
}

impl Place {
    const ALL: [(Self, &str); 3] = [
        (Self::Nowhere, "nowhere"),
        (Self::Memory, "memory"),
        (Self::Disk, "disk"),
    ];

    fn lines(self, memory: &'static str) -> Vec<(&'static str, &'static str)> {
        let lines = [
            memory,
            "bpffs = \"{folder}/bpffs\"",
            "disk = \"{folder}/disk\"",
        ];
        let count = match self {
            Self::Nowhere => 0,
            Self::Memory => 2,
            Self::Disk => 3,
        };
        lines.map(|line| ("[state]", line))[..count].to_vec()
    }
}

/// A folder in a tmpfs.
struct Memory(PathBuf);

impl Memory {
    fn path() -> PathBuf {
        let name = format!("turnpike-bench-{}", std::process::id());
        PathBuf::from("/dev/shm").join(name)
    }

    fn new() -> Result<Self> {
        let path = Self::path();
        std::fs::create_dir(&path)?;
        cleanup::add_folder(&path);
        Ok(Self(path))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        cleanup::remove_folder(&self.0);
        cleanup::forget_folder(&self.0);
    }
}

/// Of `options.sessions` sessions, `options.runs` times, by turns.
pub(super) fn measure(figures: &mut Figures, options: &Options) -> Result<()> {
    // One for the life of the program.
    let line: &'static str = format!("dir = \"{}\"", Memory::path().display()).leak();
    for (shape, name) in [
        (Shape::Plain, "plain"),
        (Shape::Measured(1, NEVER), "1-urr"),
    ] {
        let mut all = Place::ALL.map(|_| Costs::default());
        for _ in 0..options.runs {
            for ((place, _), costs) in Place::ALL.into_iter().zip(&mut all) {
                costs.measure(options.sessions, shape, place.lines(line))?;
            }
        }
        for ((_, place), costs) in Place::ALL.into_iter().zip(&mut all) {
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
    fn measure(
        &mut self,
        sessions: u32,
        shape: Shape,
        lines: Vec<(&'static str, &'static str)>,
    ) -> Result<()> {
        let _memory = Memory::new()?;
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
