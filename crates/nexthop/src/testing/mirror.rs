//! The control loop, reduced to next hops.

use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use compiled::NiId;

use super::cable::{PATIENCE, ifindex, ip};
use super::recorder::Recorder;
use crate::netlink::Netlink;
use crate::{
    Config, KernelChange, L2, Mac, NetworkInstance, NextHop, NextHops, Port, Request, TABLE_MAIN,
};

/// The kernel here, the model of it, and tables that remember.
pub struct Mirror {
    /// The kernel here.
    pub netlink: Netlink,
    changes: Receiver<KernelChange>,
    /// The model of it.
    pub model: NextHops,
    /// Tables that follow the model.
    pub tables: Recorder,
}

impl Mirror {
    /// Of the cable.
    pub fn start() -> Self {
        Self::of(&["n6"], TABLE_MAIN)
    }

    /// Of these interfaces and this routing table.
    pub fn of(interfaces: &[&str], table: u32) -> Self {
        let port = |(slot, name): (usize, &&str)| Port {
            slot: slot as u32,
            name: (*name).to_owned(),
            ifindex: ifindex(name),
        };
        let ports: Vec<Port> = interfaces.iter().enumerate().map(port).collect();
        let ni = NetworkInstance {
            id: NiId(0),
            slot: 0,
            table,
        };
        let model = NextHops::new(Config {
            ports,
            network_instances: vec![ni],
            policies: Vec::new(),
            n3_table: table,
        });
        let (sender, changes) = mpsc::channel();
        let netlink = Netlink::start(move |change| {
            let _ = sender.send(change);
        })
        .unwrap();
        Self {
            netlink,
            changes,
            model,
            tables: Recorder::default(),
        }
    }

    /// Apply what has been heard.
    pub fn turn(&mut self) {
        let mut requests = Vec::new();
        self.model.reconcile(&mut self.tables, &mut requests);
        self.tables.assert_no_leak();
        requests
            .into_iter()
            .for_each(|request| self.netlink.request(request));
    }

    /// Turn the loop until the kernel has been told all that follows from what it has said.
    pub fn settle(&mut self) {
        // What is heard in the first round is asked for in the second, and done in the third.
        for _ in 0..3 {
            self.netlink.request(Request::DumpRoutes);
            loop {
                let change = self.changes.recv_timeout(PATIENCE).unwrap();
                let is_answer = matches!(change, KernelChange::Routes(_));
                self.model.apply(change);
                if is_answer {
                    break;
                }
            }
            self.turn();
        }
    }

    /// Turn the loop until packets to `to` go where they should; how long it took.
    pub fn until(&mut self, what: &str, to: &str, wanted: impl Fn(&NextHop) -> bool) -> Duration {
        let since = Instant::now();
        self.turn();
        loop {
            let hop = self.tables.resolve(0, ip(to));
            if wanted(&hop) {
                eprintln!("{what}: {:?}", since.elapsed());
                return since.elapsed();
            }
            let left = PATIENCE.saturating_sub(since.elapsed());
            match self.changes.recv_timeout(left) {
                Ok(change) => self.model.apply(change),
                Err(_) => panic!("{what}: {to} still goes to {hop:?}"),
            }
            while let Ok(change) = self.changes.try_recv() {
                self.model.apply(change);
            }
            self.turn();
        }
    }
}

/// By way of this neighbour at the other end of the cable.
pub fn leads_to(mac: Mac) -> impl Fn(&NextHop) -> bool {
    let from = Mac([2, 0, 0, 0, 0, 6]);
    move |hop| matches!(hop, NextHop::Resolved { l2, port: 0, .. } if *l2 == L2::new(mac, from, None))
}
