//! Nothing to do.

use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::common::{Daemon, Net};

const WHILE: Duration = Duration::from_secs(2);

/// A thread that goes round in circles is given a third of that at least, beside four others on two CPUs.
fn rests(daemon: &mut Daemon<'_>, when: &str) {
    let before = daemon.cpu_times();
    sleep(WHILE);
    for (thread, ran) in daemon.cpu_times() {
        let ran = ran.saturating_sub(before.get(&thread).copied().unwrap_or_default());
        let most = WHILE / 10;
        // Programs are verified for some seconds after the start.
        let rests = ran < most || thread == "load";
        assert!(rests, "{when}: {thread} ran {ran:?} of {WHILE:?}");
    }
}

#[test]
fn a_daemon_that_nobody_asks_for_anything_rests() {
    let net = Net::new();
    let mut daemon = net.start("");
    rests(&mut daemon, "nothing beside");
    daemon.process.signal(Signal::SIGHUP).unwrap();
    rests(&mut daemon, "after a reload");
    assert_eq!(daemon.stop(), 0);
    net.forward();
    let kernel = "[datapath]\nkind = \"kernel\"\n";
    let mut daemon = net.start(kernel);
    rests(&mut daemon, "by the kernel");
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn it_rests_while_servers_do_not_answer() {
    let net = Net::new();
    let nrf = "[nrf]\nservers = [\"http://10.100.0.2:1\"]\n[[nrf.slice]]\nsst = 1\n";
    let telemetry = "[telemetry]\nendpoint = \"http://10.100.0.2:2\"\n";
    let mut daemon = net.start(&format!("{nrf}{telemetry}"));
    let smf = net.smf();
    smf.associate().unwrap();
    rests(&mut daemon, "beside servers that do not answer");
    smf.release().unwrap();
    assert_eq!(daemon.stop(), 0);
}
