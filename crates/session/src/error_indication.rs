//! Error Indications of gNBs and other UPFs: the SMF of the session is told (ERIR: TS 29.244, 5.10 and
//! 7.5.8.4; TS 23.527, 5.3.2), and decides what becomes of the tunnel.

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use pfcp::ie::{FTeid, ReportType};

use crate::compiled::Tables;
use crate::core::Core;
use crate::gtpu::{self, Message, Received};
use crate::outbox::Outbox;
use crate::time::Time;

/// Tunnels remembered as reported; beyond it the oldest are reported again when they are hit again.
const REMEMBERED: usize = 65_536;

/// Sessions whose tunnels are looked at before other work may go first.
const SESSIONS_INDEXED: usize = 1024;

/// Tunnels that were reported of late. A gNB indicates an error for each packet; the SMF hears of it
/// once in the time that it has to answer.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    tunnels: BTreeSet<(u64, u32, IpAddr)>,
    order: VecDeque<(Time, (u64, u32, IpAddr))>,
}

impl Reported {
    /// Whether this is news. It is none for `lifetime` then.
    fn is_new(&mut self, now: Time, lifetime: Duration, tunnel: (u64, u32, IpAddr)) -> bool {
        while let Some((at, oldest)) = self.order.front()
            && (now.since(*at) >= lifetime || self.order.len() >= REMEMBERED)
        {
            self.tunnels.remove(oldest);
            self.order.pop_front();
        }
        let new = self.tunnels.insert(tunnel);
        if new {
            self.order.push_back((now, tunnel));
        }
        new
    }
}

impl<T: Tables> Core<T> {
    /// A GTP-U message beside G-PDUs and Echo Requests, as the data path got it: an IP packet.
    pub fn receive_gtpu(&mut self, now: Time, packet: &[u8], out: &mut Outbox) {
        match gtpu::read_packet(packet) {
            Some(Received { from, message }) => self.on_gtpu(now, from, message, out),
            None => self.stats.gtpu_malformed += 1,
        }
    }

    fn on_gtpu(&mut self, now: Time, from: IpAddr, message: Message, out: &mut Outbox) {
        match message {
            Message::ErrorIndication { teid, peer } => {
                self.on_error_indication(now, teid, peer, out);
            }
            Message::EchoResponse { .. } => self.on_echo_response(now, from, message, out),
            Message::Other => self.stats.gtpu_other += 1,
        }
    }

    fn on_error_indication(&mut self, now: Time, teid: u32, peer: IpAddr, out: &mut Outbox) {
        self.stats.error_indications += 1;
        self.sessions.tunnels.ask(now, (teid, peer));
        self.look_up_tunnels(now, out);
    }

    /// A step towards knowing whose tunnels Error Indications were about; who it was is told.
    pub(crate) fn look_up_tunnels(&mut self, now: Time, out: &mut Outbox) {
        for (teid, peer) in self.sessions.index_tunnels(SESSIONS_INDEXED) {
            self.tell_of_error(now, teid, peer, out);
        }
    }

    fn tell_of_error(&mut self, now: Time, teid: u32, peer: IpAddr, out: &mut Outbox) {
        let lifetime = self.config.t1 * self.config.n1.max(1);
        for seid in self.sessions.with_tunnel((teid, peer)) {
            if !self.error_reports.is_new(now, lifetime, (seid, teid, peer)) {
                continue;
            }
            let (ipv4, ipv6) = match peer {
                IpAddr::V4(v4) => (Some(v4), None),
                IpAddr::V6(v6) => (None, Some(v6)),
            };
            let f_teid = FTeid::Given { teid, ipv4, ipv6 };
            let sent = self.report(now, seid, ReportType::ERIR, out, |writer| {
                writer.error_indication_report(&[f_teid]);
            });
            self.stats.error_reports += u64::from(sent);
        }
    }
}
