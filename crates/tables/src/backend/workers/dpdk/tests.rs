//! Threads of the pipeline core model, one step at a time.

use std::os::fd::AsFd as _;
use std::sync::{Mutex, PoisonError};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::*;
use crate::dpdk::{Pipeline, RingPort, Settings};
use crate::layout::{Layout, Memory};
use crate::port::PortConfig;
use crate::worker::{Shared, Within};

/// Octets of a frame.
const LEN: usize = 60;

/// The tests share DPDK's environment, and its buffers.
static ONE_BY_ONE: Mutex<()> = Mutex::new(());

fn settings() -> Settings {
    let eal = ["--no-huge", "-m", "64", "--no-pci", "--no-telemetry"];
    Settings {
        eal: eal.map(str::to_owned).into(),
        buffers: 1024,
        taps: false,
        pipeline: Some(Pipeline::default()),
        ..Settings::default()
    }
}

/// A wire, and the threads that it leads to.
fn opened(name: &str) -> (RingPort, [PortConfig; 1], Vec<Dpdk>) {
    let settings = settings();
    let wire = RingPort::new(&settings, name, 64).unwrap();
    let ports = [PortConfig {
        name: name.into(),
        device: RingPort::device(name),
        ..PortConfig::default()
    }];
    let (layout, shared) = shared();
    let site = Site {
        layout: &layout,
        ports: &ports,
        workers: 1,
        shared: &shared,
        files: None,
    };
    let (threads, _) = Dpdk::open(&Setup::new(&settings, Vec::new()), &site).unwrap();
    (wire, ports, threads)
}

/// For a receive core beside one worker.
fn counters(ports: &[PortConfig]) -> Worker {
    Worker::new(&shared().1, 1, ports).unwrap()
}

fn shared() -> (Layout, Shared) {
    let layout = Layout::for_sessions(16, 1, 1);
    let memory = Memory::anonymous(&layout, 2).unwrap();
    let shared = Shared::new(&layout, memory, 2, &Within).unwrap();
    (layout, shared)
}

#[test]
fn frames_in_flight_at_the_end_are_freed() {
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut wire, ports, mut threads) = opened("flight");
    let (mut counters, mut burst) = (counters(&ports), Burst::new(LEN));
    let receiver = threads.last_mut().unwrap();
    assert_eq!(receiver.thread_name(1), "receiver-0");
    assert!(wire.put_all(0, &[&[0xff; LEN][..]; 20]));
    assert_eq!(receiver.serve(&mut counters, &mut burst).unwrap(), 20);
    assert_eq!(wire.buffers_in_use(), 20, "no worker has served its ring");
    drop(threads);
    assert_eq!(wire.buffers_in_use(), 0);
}

#[test]
fn a_receive_core_wakes_a_worker_that_rests() {
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut wire, ports, mut threads) = opened("wakes");
    let (mut counters, mut burst) = (counters(&ports), Burst::new(LEN));
    let receiver = threads.last_mut().unwrap();
    let queues = Arc::clone(&receiver._from_kernel);
    let is_told = || {
        let mut told = [PollFd::new(queues[0].as_fd(), PollFlags::POLLIN)];
        poll(&mut told, PollTimeout::ZERO).unwrap() == 1
    };
    for _ in 0..3 {
        // Its reader finds nothing, and is about to sleep.
        assert_eq!(queues[0].read(1, &mut |_| ()), 0);
        assert!(!is_told());
        assert_eq!(receiver.serve(&mut counters, &mut burst).unwrap(), 0);
        assert!(!is_told(), "there was nothing");
        assert!(wire.put(&[0xff; LEN]));
        assert_eq!(receiver.serve(&mut counters, &mut burst).unwrap(), 1);
        assert!(is_told());
    }
}
