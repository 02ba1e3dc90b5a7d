//! Threads of workers.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::Traffic;
use crate::clock::monotonic_ns;
#[cfg(feature = "dpdk")]
use crate::grace::Bystander;
use crate::port::PortConfig;
use crate::worker::{Burst, FRAME_MAX, Shared, Worker};

/// Time between two attempts of a worker that fails.
const PAUSE: Duration = Duration::from_millis(10);

/// Threads of workers. Dropping it stops them.
#[derive(Debug, Default)]
pub(super) struct Crew(Vec<(Arc<Seat>, JoinHandle<()>)>);

/// Place where a thread is asked to end, or to go on over other tables.
#[derive(Debug, Default)]
struct Seat {
    /// There is something in the other one.
    is_asked: AtomicBool,
    asked: Mutex<Option<Asked>>,
}

/// Told when it is done, with what the worker was before, if it is another one now.
#[cfg(feature = "dpdk")]
type Done = std::sync::mpsc::Sender<Option<Worker>>;

#[derive(Debug)]
enum Asked {
    /// Send what comes by the queues of frames of these.
    #[cfg(feature = "dpdk")]
    SendFor(Box<Shared>, Done),
    #[cfg(feature = "dpdk")]
    GoOnAs(Box<Worker>, Bystander, Done),
    End,
}

impl Seat {
    fn ask(&self, what: Asked) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
        self.is_asked.store(true, Ordering::Relaxed);
    }

    fn take(&self) -> Option<Asked> {
        if !self.is_asked.load(Ordering::Relaxed) {
            return None;
        }
        self.is_asked.store(false, Ordering::Relaxed);
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.take()
    }
}

impl Crew {
    /// A thread that is the worker of this number.
    pub(super) fn start<T: Traffic>(
        &mut self,
        shared: &Shared,
        ports: &[PortConfig],
        number: usize,
        mut traffic: T,
    ) -> io::Result<()> {
        let mut worker = Worker::new(shared, number, ports)?;
        #[cfg_attr(not(feature = "dpdk"), expect(unused_mut, reason = "they stay"))]
        let (mut bystander, mut shared) = (shared.bystander(number), shared.clone());
        let shapes = shared.shaping.is_some();
        let seat = Arc::new(Seat::default());
        let asked = Arc::clone(&seat);
        let name = traffic.thread_name(number);
        #[cfg_attr(
            not(feature = "dpdk"),
            expect(clippy::while_let_loop, reason = "more is asked of workers apart")
        )]
        let work = move || {
            if shapes {
                // SAFETY: no pointer is given. A sleep ends when a frame is due, not 50 microseconds later.
                unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000) };
            }
            let mut burst = Burst::new(FRAME_MAX);
            let mut load = worker.load();
            let mut fails = false;
            traffic.follow(shared.frames.get(number));
            loop {
                match asked.take() {
                    None => {}
                    Some(Asked::End) => break,
                    #[cfg(feature = "dpdk")]
                    Some(Asked::SendFor(next, done)) => {
                        let looking = bystander.look();
                        // Its former turnpiked may have ended in the midst of a frame.
                        if let Some(frames) = shared.frames.get(number) {
                            frames.mend();
                        }
                        // All that it has had this one send is out.
                        let _ = traffic.serve(&mut worker, &mut burst);
                        drop(looking);
                        traffic.follow(next.frames.get(number));
                        shared = *next;
                        let _ = done.send(None);
                    }
                    #[cfg(feature = "dpdk")]
                    Some(Asked::GoOnAs(next, own, done)) => {
                        load.rests(monotonic_ns());
                        let former = worker.go_on_as(*next);
                        (bystander, load) = (own, worker.load());
                        // Tables that are unmapped here would keep packets waiting.
                        let _ = done.send(Some(former));
                    }
                }
                let looking = bystander.look();
                let served = traffic.serve(&mut worker, &mut burst);
                drop(looking);
                let slept = match served {
                    Ok(0) => {
                        load.rests(monotonic_ns());
                        let slept = traffic.sleep(&worker);
                        load.rests(monotonic_ns());
                        slept
                    }
                    other => {
                        load.works(monotonic_ns);
                        other.map(drop)
                    }
                };
                // The other ways in may still serve, and this one may come back.
                if let Err(error) = &slept {
                    if !fails {
                        tracing::error!(%error, number, "a worker cannot receive all its packets");
                    }
                    std::thread::sleep(PAUSE);
                }
                fails = slept.is_err();
            }
            let packets = worker.waiting();
            if packets > 0 {
                tracing::warn!(
                    number,
                    packets,
                    "lost with a worker that ends: they waited for their rates"
                );
            }
            traffic.stop(&mut worker);
        };
        let thread = Builder::new().name(name).spawn(work)?;
        self.0.push((seat, thread));
        Ok(())
    }

    /// All of them send what comes by the queues of frames of these when this returns.
    #[cfg(feature = "dpdk")]
    pub(super) fn send_for(&self, shared: &Shared) {
        self.ask_all(|_, done| Asked::SendFor(Box::new(shared.clone()), done));
    }

    /// All of them go on over these tables, of as many threads and with the same ports, for which they send; none meets others when this
    /// returns.
    #[cfg(feature = "dpdk")]
    pub(super) fn go_on_with(&self, shared: &Shared, ports: &[PortConfig]) -> io::Result<()> {
        let numbers = 0..self.0.len();
        let workers = numbers.map(|number| Worker::new(shared, number, ports));
        let workers: io::Result<Vec<Worker>> = workers.collect();
        let mut workers = workers?.into_iter();
        self.ask_all(|number, done| match workers.next() {
            Some(worker) => Asked::GoOnAs(Box::new(worker), shared.bystander(number), done),
            None => Asked::End, // not met: there is one for each
        });
        Ok(())
    }

    /// Until all have done what they are asked for.
    #[cfg(feature = "dpdk")]
    fn ask_all(&self, mut what: impl FnMut(usize, Done) -> Asked) {
        let (done, all_done) = std::sync::mpsc::channel();
        for (number, (seat, _)) in self.0.iter().enumerate() {
            seat.ask(what(number, done.clone()));
        }
        drop(done);
        // Until no thread has a sender any more.
        all_done.iter().for_each(drop);
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.0.iter().for_each(|(seat, _)| seat.ask(Asked::End));
        for (_, thread) in self.0.drain(..) {
            // One that has panicked has said so.
            let _ = thread.join();
        }
    }
}
