//! The process that workers are in. It knows no sessions and no configuration: turnpiked gives it tables, and it runs packets over them
//! until it is told to end, whether or not a turnpiked is there.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Answer, Fixed, Hello, Lead, Program, Request, WAKES, frames};
use crate::abi::Config;
use crate::backend::workers::crew::Crew;
use crate::backend::workers::dpdk::{Dpdk, FROM_KERNEL};
use crate::backend::workers::{Site, Traffic};
use crate::clock::monotonic_ns;
use crate::dpdk::{self, Setup, TapDescriptors};
use crate::error::SetupError;
use crate::layout::Memory;
use crate::memory::View;
use crate::queue::Queue;
use crate::table_files::Others;
use crate::worker::{Between, Shared};
use crate::worker_link::{Link, be_known};

/// Time in which whoever has started this process connects; later, time between two looks whether it is over.
const ALONE_MS: u16 = 10_000;
/// Time beyond that in which packets go on without turnpiked, in which devices are kept.
const BEYOND_NS: u64 = 60_000_000_000;

/// Workers that run packets.
struct Serving {
    fixed: Fixed,
    crew: Crew,
    /// Tables that they are about to go on over: they send already what turnpiked gives them there.
    next: Option<Shared>,
    /// Of the tables that packets meet.
    config: View<Config>,
    /// Queues of the workers, whose descriptors wake them.
    queues: Arc<[Queue]>,
    /// Of TAP interfaces.
    taps: TapDescriptors,
}

/// Workers of a turnpiked over DPDK, in this process, which has been started for that: until it is told to end. `listener`: the socket by which
/// they are spoken to.
pub fn run_workers(listener: &OwnedFd) -> Result<(), SetupError> {
    be_known(listener)?;
    let (mut hand, mut serving): (Option<Link>, Option<Serving>) = (None, None);
    let mut goes_on = false;
    loop {
        let [speaks, has_come] = wait(listener, hand.as_ref())?;
        if hand.is_none() && goes_on && serving.as_ref().is_none_or(Serving::is_over) {
            tracing::error!(
                "workers end: there was no turnpiked for so long that no packet of a user passes any more"
            );
            return Ok(());
        }
        if hand.is_none() && !goes_on && !has_come {
            return Ok(());
        }
        if speaks && let Some(link) = &hand {
            match link.recv::<Request>() {
                Ok(Some((Request::Lead(wanted), with))) => {
                    let answer = lead(&mut serving, *wanted, with);
                    let taps = taps_of(serving.as_ref());
                    let wakes = serving
                        .iter()
                        .flat_map(|of| of.queues.iter().map(AsFd::as_fd));
                    // By the first they are woken when there are frames for them; by the others TAP interfaces outlive them.
                    let with = wakes.chain(taps.iter().map(AsFd::as_fd));
                    let with: Vec<_> = with.map(|fd| fd.as_raw_fd()).collect();
                    // Else it has gone meanwhile, which is heard of next.
                    let _ = link.send(&answer, &with);
                    if serving.is_none() {
                        return Ok(());
                    }
                }
                Ok(Some((Request::Meet, _))) => {
                    let met = serving.as_mut().map_or(Ok(()), Serving::change_over);
                    let answer: Answer = met.map_err(|error| error.to_string());
                    let _ = link.send(&answer, &[]);
                }
                Ok(Some((Request::Taps, _))) => {
                    let taps = taps_of(serving.as_ref());
                    let with: Vec<_> = taps.iter().map(AsRawFd::as_raw_fd).collect();
                    let _ = link.send(&Answer::Ok(()), &with);
                }
                Ok(Some((Request::GoOn(wanted), _))) => goes_on = wanted,
                Ok(Some((Request::End, _))) => {
                    // Devices are free when the other end hears of it.
                    drop(serving);
                    tracing::info!("workers end as they were asked to");
                    return Ok(());
                }
                Ok(None) if goes_on => {
                    tracing::warn!("packets go on without turnpiked");
                    hand = None;
                }
                Ok(None) => return Ok(()),
                Err(error) => tracing::error!(%error, "workers do not understand what they hear"),
            }
        }
        // The one before has its say first: it may have gone, and not be heard to the end.
        if has_come && !speaks {
            match Link::accept(listener.as_fd()) {
                Ok(link) => {
                    let hello = Hello {
                        fixed: serving.as_ref().map(|of| &of.fixed),
                        pid: std::process::id().cast_signed(),
                    };
                    let taps = taps_of(serving.as_ref());
                    let with: Vec<_> = taps.iter().map(AsRawFd::as_raw_fd).collect();
                    match link.send(&hello, &with) {
                        Ok(()) => hand = Some(link),
                        Err(error) => tracing::warn!(%error, "somebody has come and gone"),
                    }
                }
                Err(error) => tracing::warn!(%error, "nobody else may speak to workers"),
            }
        }
    }
}

/// Until something is readable: whoever speaks, the socket. None, after a while: nobody is there.
fn wait(listener: &OwnedFd, hand: Option<&Link>) -> io::Result<[bool; 2]> {
    let of = |fd| PollFd::new(fd, PollFlags::POLLIN);
    // Nobody is asked about as the socket is, in vain.
    let mut fds = [
        of(listener.as_fd()),
        of(hand.map_or(listener.as_fd(), Link::as_fd)),
    ];
    let time = match hand {
        Some(_) => PollTimeout::NONE,
        None => PollTimeout::from(ALONE_MS),
    };
    while let Err(error) = poll(&mut fds, time) {
        if error != Errno::EINTR {
            return Err(error.into());
        }
    }
    let [has_come, speaks] = fds.map(|fd| fd.any().unwrap_or(false));
    Ok([speaks && hand.is_some(), has_come])
}

fn lead(serving: &mut Option<Serving>, wanted: Lead, mut wakes: Vec<OwnedFd>) -> Answer {
    let taps = wakes.split_off(wakes.len().min(WAKES));
    let done = match serving {
        None => Serving::start(wanted, wakes, taps).map(|started| *serving = Some(started)),
        Some(serving) => serving.lead(wanted, wakes),
    };
    done.map_err(|error| error.to_string())
}

/// Further descriptors of TAP interfaces: one that is made anew meanwhile has another one.
fn taps_of(serving: Option<&Serving>) -> Vec<OwnedFd> {
    let taps = serving.map(|of| of.taps.lock().unwrap_or_else(PoisonError::into_inner));
    let taps = taps.iter().flat_map(|taps| taps.iter());
    taps.filter_map(|fd| fd.try_clone().ok()).collect()
}

/// Tables of a request, and its queue of frames.
fn of_request(wanted: &Lead, wakes: Vec<OwnedFd>) -> io::Result<Shared> {
    if wakes.len() != WAKES {
        return Err(io::Error::other("descriptors are missing"));
    }
    let others = Others::new(&wanted.folder, wakes);
    // One more for turnpiked, which runs packets, too.
    let threads = wanted.threads + 1;
    let memory = Memory::new(&wanted.layout, threads, &others)?;
    Shared::new(&wanted.layout, memory, threads, &others)
}

/// With queues of frames that turnpiked has workers send, who are woken by those of these queues.
fn with_frames(shared: Shared, wanted: &Lead, wake: &[Queue]) -> io::Result<Shared> {
    let others = Others::new(&wanted.folder, Vec::new());
    let of = |(worker, wake): (usize, &Queue)| {
        let memory = others.words(&frames(worker), Queue::words(FROM_KERNEL))?;
        let wake = wake.as_fd().try_clone_to_owned()?;
        Ok(Queue::over(memory, FROM_KERNEL, wake)?.beside_another())
    };
    let all: io::Result<Vec<_>> = wake.iter().enumerate().map(of).collect();
    Ok(shared.with_frames(all?))
}

impl Serving {
    /// `taps`: descriptors of TAP interfaces that workers before these have left.
    fn start(wanted: Lead, wakes: Vec<OwnedFd>, taps: Vec<OwnedFd>) -> Result<Self, SetupError> {
        let shared = of_request(&wanted, wakes)?;
        let (layout, fixed) = (&wanted.layout, &wanted.fixed);
        if fixed.program != Program::own()? {
            return Err(SetupError::Dpdk("another program's tables".to_owned()));
        }
        dpdk::check_threads(&fixed.settings, fixed.workers)?;
        dpdk::start(&fixed.settings)?;
        let setup = Setup::new(&fixed.settings, taps);
        let site = Site {
            layout,
            ports: &fixed.ports,
            workers: fixed.workers.max(1) as usize,
            shared: &shared,
            files: None,
        };
        let config = shared.memory.config.clone();
        let (traffic, _) = Dpdk::open(&setup, &site)?;
        let queues = setup.queues.queues().unwrap_or_default();
        let shared = with_frames(shared, &wanted, &queues)?;
        let mut crew = Crew::default();
        for (number, traffic) in traffic.into_iter().enumerate() {
            crew.start(&shared, &fixed.ports, number, traffic)?;
        }
        Ok(Self {
            fixed: wanted.fixed,
            crew,
            next: None,
            config,
            queues,
            taps: setup.taps,
        })
    }

    fn lead(&mut self, wanted: Lead, wakes: Vec<OwnedFd>) -> Result<(), SetupError> {
        if wanted.fixed != self.fixed {
            return Err(SetupError::Dpdk("workers have other settings".to_owned()));
        }
        let shared = of_request(&wanted, wakes)?;
        let shared = with_frames(shared, &wanted, &self.queues)?;
        self.crew.send_for(&shared);
        self.next = Some(shared);
        Ok(())
    }

    /// Whether packets have gone on for as long as they may, and a while longer.
    fn is_over(&self) -> bool {
        let until = self.config[0].managed_until_ns.load(Ordering::Relaxed);
        until > 0 && monotonic_ns() > until.saturating_add(BEYOND_NS)
    }

    /// They meet these tables, and no others any more.
    fn change_over(&mut self) -> io::Result<()> {
        match self.next.take() {
            Some(shared) => {
                self.crew.go_on_with(&shared, &self.fixed.ports)?;
                self.config = shared.memory.config.clone();
                Ok(())
            }
            None => Ok(()),
        }
    }
}
