//! GTP-U paths that fail, recover, or whose peer has restarted are reported to SMFs (Node Report, TS 29.244, 6.2.9).

use std::net::IpAddr;
use std::time::Duration;

use pfcp::ie::{NodeReportType, RemoteGtpUPeer};
use pfcp::message::NodeReportResponse;
use pfcp::{IeType, Message};

use crate::base::event::Event;
use crate::base::gtpu;
use crate::base::gtpu::Ends;
use crate::base::ids::PeerId;
use crate::base::time::Time;
use crate::between::to_shard::ToShard;
use crate::exchange::outbox::Outbox;
use crate::exchange::requests::Purpose;
use crate::exchange::stats::Way;
use crate::node::paths::{News, PathView, Step};
use crate::node::peer::PeerState;
use crate::node::{Node, Timer};

/// Peers of one Node Report; more are told in further ones.
const PEERS_PER_REPORT: usize = 256;

impl Node {
    /// Echo Requests that are due; what failed is reported.
    pub(crate) fn advance_paths(&mut self, now: Time, out: &mut Outbox) {
        let mut failed = Vec::new();
        while let Some(step) = self.paths.step(now) {
            match step {
                Step::Echo { ends, sequence } => {
                    self.n4.stats_mut().echo_requests += 1;
                    out.echo(ends, gtpu::echo_request(sequence));
                }
                Step::Failed(ends) => failed.push(ends),
                Step::Nothing => {}
            }
        }
        self.tell_paths(now, out, News::Failed, &failed);
    }

    pub(crate) fn next_echo(&self) -> Option<Time> {
        self.paths.next_deadline()
    }

    /// See which paths sessions use, and again after a while.
    pub(crate) fn refresh_paths(&mut self, now: Time) {
        if self.paths.is_off() {
            return;
        }
        self.tell(ToShard::Paths);
        let again = self.config.echo_interval.min(REFRESH_AT_MOST);
        self.set_timer(now, again, Timer::Paths);
    }

    /// The GTP-U paths in use are these.
    pub(super) fn on_paths(&mut self, now: Time, in_use: Vec<Ends>) {
        self.paths.refresh(now, &in_use.into_iter().collect());
    }

    /// An Echo Response.
    pub(crate) fn on_echo_response(
        &mut self,
        now: Time,
        out: &mut Outbox,
        from: IpAddr,
        (sequence, recovery): (u16, Option<u32>),
    ) {
        self.n4.stats_mut().echo_responses += 1;
        let news = self.paths.answered(now, from, sequence, recovery);
        for kind in [News::Recovered, News::Restarted] {
            let of_kind = news.iter().filter(|(_, news)| *news == kind);
            let ends: Vec<Ends> = of_kind.map(|(ends, _)| *ends).collect();
            self.tell_paths(now, out, kind, &ends);
        }
    }

    /// Node Report Request (7.4.5.1) to every SMF that has sessions and answers.
    fn tell_paths(&mut self, now: Time, out: &mut Outbox, news: News, ends: &[Ends]) {
        for &(remote, _) in ends {
            out.event(match news {
                News::Failed => Event::PathFailed { remote },
                News::Recovered => Event::PathRecovered { remote },
                News::Restarted => Event::GtpuPeerRestarted { remote },
            });
        }
        match news {
            News::Failed => self.n4.stats_mut().path_failures += ends.len() as u64,
            News::Recovered => self.n4.stats_mut().path_recoveries += ends.len() as u64,
            News::Restarted => self.n4.stats_mut().gtpu_restarts += ends.len() as u64,
        }
        for chunk in ends.chunks(PEERS_PER_REPORT) {
            for id in self.peers.ids() {
                let has_sessions = self.peers.get(id).is_some_and(|peer| peer.sessions > 0);
                if has_sessions && !self.closing {
                    self.send_node_report(now, out, id, news, chunk);
                }
            }
        }
    }

    fn send_node_report(
        &mut self,
        now: Time,
        out: &mut Outbox,
        id: PeerId,
        news: News,
        ends: &[Ends],
    ) {
        let Some(peer) = self.peers.get(id) else {
            return;
        };
        if peer.state != PeerState::Up {
            return;
        }
        let (to, node_id) = (peer.address, self.n4.node_id().clone());
        let (kind, group) = match news {
            News::Failed => (NodeReportType::UPFR, IeType::USER_PLANE_PATH_FAILURE_REPORT),
            News::Recovered => (
                NodeReportType::UPRR,
                IeType::USER_PLANE_PATH_RECOVERY_REPORT,
            ),
            News::Restarted => (NodeReportType::PURR, IeType::PEER_UP_RESTART_REPORT),
        };
        self.n4
            .request(now, out, (to, None), Purpose::NodeReport(id), |writer| {
                writer.node_id(node_id.to_wire());
                writer.put(IeType::NODE_REPORT_TYPE, kind);
                writer.grouped(group, |writer| {
                    for (remote, _) in ends {
                        writer.put(IeType::REMOTE_GTP_U_PEER, on_wire(*remote));
                    }
                });
            });
    }

    /// Node Report Response (7.4.5.2): nothing hangs on it.
    pub(super) fn on_node_report_answer(&mut self, message: &Message<'_>) {
        if let Ok(response) = NodeReportResponse::decode(message) {
            let answer = message.header.message_type;
            let stats = self.n4.stats_mut();
            stats.cause(Way::Received, answer, response.cause);
        }
    }

    /// GTP-U paths in use, after these ends.
    pub(crate) fn paths_after(&self, ends: Option<Ends>) -> impl Iterator<Item = PathView> {
        self.paths.after(ends)
    }

    /// GTP-U paths that are asked for, and how many of them have failed.
    pub(crate) fn path_count(&self) -> (usize, usize) {
        self.paths.fill()
    }
}

/// Paths that came or went are noticed within this time.
const REFRESH_AT_MOST: Duration = Duration::from_secs(10);

fn on_wire(remote: IpAddr) -> RemoteGtpUPeer<'static> {
    let (ipv4, ipv6) = match remote {
        IpAddr::V4(v4) => (Some(v4), None),
        IpAddr::V6(v6) => (None, Some(v6)),
    };
    RemoteGtpUPeer {
        ipv4,
        ipv6,
        destination_interface: None,
        network_instance: None,
    }
}
