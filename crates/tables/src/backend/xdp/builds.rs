//! Builds that may run on ports, as these are.

use std::path::Path;

use crate::abi::Features;
use crate::backend::Builds;
use crate::port::{Mode, PortConfig, Roles};

/// All that may be needed where packets above their rate wait.
const GENERAL: Features = Features::ALL.with(Features::SHAPE);

pub(super) fn for_ports(ports: &[PortConfig], shapes: bool) -> Builds {
    let mut always = always_for(ports);
    if shapes {
        always = always.with(Features::SHAPE);
    }
    // Only one build knows of users that are spread over CPUs, and one of packets that wait; and the general one of both.
    let choice: &[Features] = match (spreads(ports), shapes) {
        (true, true) => &[GENERAL],
        (true, false) => &[Features::BUILD_COMMON, Features::ALL],
        (false, true) => &[Features::BUILD_SHAPE, GENERAL],
        (false, false) => Builds::default().choice,
    };
    Builds { choice, always }
}

fn spreads(ports: &[PortConfig]) -> bool {
    ports.iter().any(|port| !port.spread.is_empty())
}

/// Atomic counters where packets of one direction can arrive on several CPUs at once. Meters are atomic anyway.
fn always_for(ports: &[PortConfig]) -> Features {
    let several = |role: fn(&Roles) -> bool| {
        let ports = ports.iter().filter(|port| role(&port.roles));
        ports.map(receive_queues).sum::<usize>() > 1
    };
    if several(|roles| roles.n3) || several(|roles| roles.n6) {
        Features::ATOMIC
    } else {
        Features::NONE
    }
}

/// Receive queues of an interface: each may be served by its own CPU. In generic mode receive packet
/// steering may spread a single queue.
fn receive_queues(port: &PortConfig) -> usize {
    if port.mode == Mode::Generic || !port.spread.is_empty() {
        return 2;
    }
    let folder = Path::new("/sys/class/net").join(&port.name).join("queues");
    let Ok(queues) = std::fs::read_dir(folder) else {
        return 2;
    };
    queues
        .flatten()
        .filter(|queue| queue.file_name().to_string_lossy().starts_with("rx-"))
        .count()
}
