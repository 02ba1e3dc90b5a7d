//! Threads of the pipeline core model, one step at a time.

use super::*;
use crate::abi::Features;
use crate::dpdk::{Pipeline, RingPort, Settings};
use crate::layout::Layout;
use crate::worker::Shared;

/// Octets of a frame.
const LEN: usize = 60;

#[test]
fn frames_in_flight_at_the_end_are_freed() {
    let eal = ["--no-huge", "-m", "64", "--no-pci", "--no-telemetry"];
    let settings = Settings {
        eal: eal.map(str::to_owned).into(),
        buffers: 1024,
        taps: false,
        pipeline: Some(Pipeline::default()),
        ..Settings::default()
    };
    let mut wire = RingPort::new(&settings, "flight", 64).unwrap();
    let ports = [PortConfig {
        name: "flight".into(),
        device: RingPort::device("flight"),
        ..PortConfig::default()
    }];
    let shared = Shared::new(&Layout::for_sessions(16, 1, 1), 2, Features::NONE).unwrap();
    let mut counters = Worker::new(&shared, 1, &ports).unwrap();
    let mut burst = Burst::new(LEN);

    let (mut threads, _) = Dpdk::open(&ports, 1).unwrap();
    let receiver = threads.last_mut().unwrap();
    assert_eq!(receiver.thread_name(1), "receiver-0");
    assert!(wire.put_all(0, &[&[0xff; LEN][..]; 20]));
    assert_eq!(receiver.serve(&mut counters, &mut burst).unwrap(), 20);
    assert_eq!(wire.buffers_in_use(), 20, "no worker has served its ring");
    drop(threads);
    assert_eq!(wire.buffers_in_use(), 0);
}
