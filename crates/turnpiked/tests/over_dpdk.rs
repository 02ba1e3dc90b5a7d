//! Real traffic over DPDK, on `net_af_packet`: scenarios of the lab that show what differs there. Needs root.
#![cfg(feature = "dpdk")]

use lab::upf::{self, Datapath};
use lab::{cleanup, scenario};

const SCENARIOS: [&str; 7] = [
    "adapt-under-load",
    // What waits goes past the TAP interface, and is not overtaken.
    "buffer-order",
    "end-marker",
    "icmp-errors",
    // Routes, links and neighbours are those of TAP interfaces.
    "route-change",
    "trace",
    "unresolved-neighbour",
];

#[test]
fn scenarios_pass_over_dpdk() -> anyhow::Result<()> {
    Datapath::Dpdk.choose();
    upf::choose_binary(env!("CARGO_BIN_EXE_turnpiked"));
    cleanup::claim()?;
    let names = SCENARIOS.map(str::to_owned);
    let failed = scenario::run(&names, false, 4, None);
    cleanup::sweep();
    cleanup::disclaim();
    assert_eq!(failed?, 0, "failed; see above");
    Ok(())
}
