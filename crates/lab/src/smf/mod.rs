//! An SMF over `rs-pfcp`: associations, heartbeats and sessions towards one UPF.

mod activity;
mod answer;
mod duplicate;
mod plan;
mod predefined;
mod relay;
mod style;
mod tunnel;
mod usage;
mod usual_urrs;

pub use answer::{Answer, Refused};
pub use duplicate::{duplicate_to, far_into_udp, set_apply_action};
pub use plan::{
    Flow, Gates, Requested, SessionPlan, forward_downlink, steer_uplink, update_endpoints,
};
pub use relay::{
    RuleSession, TunnelPdr, far_to_network, far_to_tunnel, switch_to_n9, switch_with_end_marker,
};
pub use style::Style;
pub use tunnel::TunnelEnd;
pub use usage::{Reports, Urr, Used, is_for, query_urr, quota, update_urr, used};

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::sys::socket::{setsockopt, sockopt};
use rs_pfcp::ie::cause::{Cause, CauseValue};
use rs_pfcp::ie::created_pdr::CreatedPdr;
use rs_pfcp::ie::created_traffic_endpoint::CreatedTrafficEndpoint;
use rs_pfcp::ie::fseid::Fseid;
use rs_pfcp::ie::node_id::NodeId;
use rs_pfcp::ie::recovery_time_stamp::RecoveryTimeStamp;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;
use rs_pfcp::message::header::Header;

use crate::netns::Netns;
use crate::ue::Addresses;
use crate::wait::{NEVER, eventually};

/// The UDP port of PFCP.
pub const PORT: u16 = 8805;
/// Retransmission: how long for one answer, and how often until there is never one.
const T1: Duration = Duration::from_millis(800);
const N1: u32 = 75;

/// News from a peer that the SMF did not ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request that the UPF sent; it has been answered.
    Request(MsgType),
    /// The UPF's Recovery Time Stamp differs from the one known before.
    UpfRestarted,
}

/// A session that the UPF accepted.
#[derive(Clone, Debug)]
pub struct Session {
    /// Our SEID.
    pub cp_seid: u64,
    /// The UPF's SEID.
    pub up_seid: u64,
    /// Tunnel that the gNB sends uplink packets into: to the IPv4 address, where there is a choice.
    pub uplink: (IpAddr, u32),
    /// All that the UPF says of it.
    pub uplink_end: TunnelEnd,
    /// The addresses of the UE.
    pub addresses: Addresses,
    /// Plan that was asked for.
    pub plan: SessionPlan,
    ways: Arc<Mutex<activity::Ways>>,
}

/// An establishment that is ready to be sent.
pub struct Establishment {
    /// The SEID in its F-SEID.
    pub cp_seid: u64,
    /// The uplink TEID, where the SMF chooses it.
    teid: u32,
    /// Its IEs.
    pub ies: Vec<Ie>,
}

impl Establishment {
    /// Reads the answer to it.
    pub fn conclude(&self, plan: &SessionPlan, answer: &Answer) -> Result<Session> {
        answer.accepted()?;
        let (cp_seid, answered) = (self.cp_seid, answer.seid()?);
        ensure!(
            answered == cp_seid,
            "answer for SEID {answered:#x} instead of {cp_seid:#x}"
        );
        let up_seid = answer.ie(IeType::Fseid)?.parse::<Fseid>()?.seid.0;
        let created: Vec<CreatedPdr> = answer
            .ies(IeType::CreatedPdr)
            .map(|ie| ie.parse().context("Created PDR"))
            .collect::<Result<_>>()?;
        let endpoints: Vec<CreatedTrafficEndpoint> = answer
            .ies(IeType::CreatedTrafficEndpoint)
            .map(|ie| {
                CreatedTrafficEndpoint::unmarshal(&ie.payload).context("Created Traffic Endpoint")
            })
            .collect::<Result<_>>()?;
        ensure!(
            plan.endpoints || endpoints.is_empty(),
            "endpoints that nobody asked for"
        );
        let created: Vec<CreatedPdr> = if plan.endpoints {
            ensure!(created.is_empty(), "told for PDRs, not for endpoints");
            endpoints.iter().map(plan::as_pdr).collect()
        } else {
            created
        };
        let (uplink_end, addresses) = plan.outcome(self.teid, &created)?;
        let ways = activity::Ways {
            uplink: uplink_end,
            downlink: plan.downlink.into(),
        };
        Ok(Session {
            cp_seid,
            up_seid,
            uplink: uplink_end.preferred()?,
            uplink_end,
            addresses,
            plan: plan.clone(),
            ways: Arc::new(Mutex::new(ways)),
        })
    }
}

/// A running SMF; it stops without a word when dropped, as a crashed one does.
pub struct Smf {
    shared: Arc<Shared>,
    events: Mutex<Receiver<Event>>,
    next_seid: AtomicU64,
    next_teid: AtomicU32,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    address: IpAddr,
    node_id: NodeId,
    recovery: SystemTime,
    upf: SocketAddr,
    requests: Mutex<Vec<Vec<u8>>>,
    socket: UdpSocket,
    waiting: Mutex<HashMap<u32, SyncSender<Vec<u8>>>>,
    upf_recovery: Mutex<Option<u32>>,
    associated: AtomicBool,
    next_sequence: AtomicU32,
    /// Requests of the UPF are noted, but not answered.
    mute: AtomicBool,
    /// How often a request is sent.
    attempts: AtomicU32,
    stop: AtomicBool,
}

impl Smf {
    /// Starts an SMF at `address` of `netns`. `recovery` is the time it claims to have started.
    pub fn start(
        netns: &Netns,
        address: IpAddr,
        node_id: NodeId,
        recovery: SystemTime,
        upf: SocketAddr,
    ) -> Result<Self> {
        let socket = netns.udp((address, PORT))?;
        setsockopt(&socket, sockopt::RcvBufForce, &(8 << 20)).context("receive buffer")?;
        socket.set_read_timeout(Some(Duration::from_millis(20)))?;
        let shared = Arc::new(Shared {
            address,
            node_id,
            recovery,
            upf,
            requests: Mutex::default(),
            socket,
            waiting: Mutex::default(),
            upf_recovery: Mutex::default(),
            associated: AtomicBool::new(false),
            next_sequence: AtomicU32::new(1),
            mute: AtomicBool::new(false),
            attempts: AtomicU32::new(N1),
            stop: AtomicBool::new(false),
        });
        // The lower half tells the addresses of one lab apart.
        let number = match address {
            IpAddr::V4(v4) => u32::from(v4),
            IpAddr::V6(v6) => u128::from(v6) as u32 | 1 << 31,
        };
        let (sender, events) = channel();
        let inside = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(format!("smf {address}"))
            .spawn(move || inside.receive(&sender))?;
        Ok(Self {
            next_seid: AtomicU64::new(u64::from(number) << 32 | 1),
            next_teid: AtomicU32::new(0x5000_0000 | (number & 0xff) << 16 | 1),
            shared,
            events: Mutex::new(events),
            thread: Some(thread),
        })
    }

    /// Sets up the association from our side; the UPF's Recovery Time Stamp.
    pub fn associate(&self) -> Result<u32> {
        self.associate_with(0, &[])
    }

    /// The same, with CP Function Features and what else there is to say.
    pub fn associate_with(&self, features: u8, more: &[Ie]) -> Result<u32> {
        let mut ies = vec![
            self.shared.node_id.to_ie(),
            RecoveryTimeStamp::new(self.shared.recovery).to_ie(),
            Ie::new(IeType::CpFunctionFeatures, vec![features]),
        ];
        ies.extend_from_slice(more);
        let answer = self.request(MsgType::AssociationSetupRequest, None, &ies)?;
        answer.accepted()?;
        self.shared.associated.store(true, Relaxed);
        answer.recovery()
    }

    /// Waits until an association is there, whichever side set it up.
    pub fn wait_for_association(&self) -> Result<()> {
        eventually("the UPF sets up an association", || {
            Ok(self.shared.associated.load(Relaxed))
        })
    }

    /// Releases the association.
    pub fn release(&self) -> Result<()> {
        let ies = [self.shared.node_id.to_ie()];
        let answer = self.request(MsgType::AssociationReleaseRequest, None, &ies)?;
        self.shared.associated.store(false, Relaxed);
        answer.accepted()
    }

    /// Asks whether the UPF lives; its Recovery Time Stamp.
    pub fn heartbeat(&self) -> Result<u32> {
        let ies = [RecoveryTimeStamp::new(self.shared.recovery).to_ie()];
        let answer = self.request(MsgType::HeartbeatRequest, None, &ies)?;
        answer.recovery()
    }

    /// Establishes a session.
    pub fn establish(&self, plan: &SessionPlan) -> Result<Session> {
        let prepared = self.establishment(plan)?;
        let kind = MsgType::SessionEstablishmentRequest;
        let priority = plan.habits().priority[0];
        let answer = self.request_at(kind, Some(0), &prepared.ies, priority)?;
        prepared.conclude(plan, &answer)
    }

    /// Node ID and F-SEID of an establishment.
    fn own_ies(&self, cp_seid: u64) -> Vec<Ie> {
        vec![self.shared.node_id.to_ie(), self.f_seid(cp_seid)]
    }

    fn f_seid(&self, cp_seid: u64) -> Ie {
        let (v4, v6) = match self.shared.address {
            IpAddr::V4(v4) => (Some(v4), None),
            IpAddr::V6(v6) => (None, Some(v6)),
        };
        Ie::new(IeType::Fseid, Fseid::new(cp_seid, v4, v6).marshal())
    }

    /// Prepares an establishment without sending it.
    pub fn establishment(&self, plan: &SessionPlan) -> Result<Establishment> {
        let cp_seid = self.next_seid.fetch_add(1, Relaxed);
        let teid = self.next_teid.fetch_add(1, Relaxed);
        let mut ies = self.own_ies(cp_seid);
        ies.extend(plan.rules(teid));
        ies.extend_from_slice(&plan.more);
        Ok(Establishment { cp_seid, teid, ies })
    }

    /// Modifies a session.
    pub fn modify(&self, session: &Session, ies: &[Ie]) -> Result<()> {
        self.modified(session, ies).map(drop)
    }

    fn modified(&self, session: &Session, ies: &[Ie]) -> Result<Answer> {
        let seid = Some(session.up_seid);
        let [f_seid, _] = session.plan.habits().f_seid;
        let f_seid = f_seid.then(|| self.f_seid(session.cp_seid));
        let ies: Vec<Ie> = f_seid.into_iter().chain(ies.iter().cloned()).collect();
        let answer = self.request(MsgType::SessionModificationRequest, seid, &ies)?;
        // Without a session there is no SEID to answer with: the cause comes first.
        answer.accepted()?;
        let answered = answer.seid()?;
        ensure!(answered == session.cp_seid, "answer for SEID {answered:#x}");
        Ok(answer)
    }

    /// Points the downlink at a gNB's tunnel: the UE became active, or was handed over.
    pub fn connect(&self, session: &Session, gnb: impl Into<IpAddr>, teid: u32) -> Result<()> {
        self.connect_to(session, &TunnelEnd::at(gnb, teid))
            .map(drop)
    }

    /// The same, for a gNB that may have an address of each family; where its uplink goes.
    pub fn connect_to(&self, session: &Session, gnb: &TunnelEnd) -> Result<(IpAddr, u32)> {
        for ies in session.reach(*gnb) {
            session.note_uplink(&self.modified(session, &ies)?)?;
        }
        session.uplink_now()
    }

    /// The UE became idle: most buffer its downlink, and want to be told.
    pub fn idle(&self, session: &Session) -> Result<()> {
        self.modify(session, &session.rest())
    }

    /// Opens or closes the gates of the session.
    pub fn gate(&self, session: &Session, gates: Gates) -> Result<()> {
        self.modify(session, &plan::update_qer_gates(session, gates))
    }

    /// Changes the QER of the session otherwise.
    pub fn update_qer(&self, session: &Session, what: Vec<Ie>) -> Result<()> {
        self.modify(session, &plan::update_qer(session, what))
    }

    /// Changes the downlink PDR of the session.
    pub fn update_downlink_pdr(&self, session: &Session, what: Vec<Ie>) -> Result<()> {
        self.modify(session, &[plan::update_downlink_pdr(what)])
    }

    /// Changes the MBR of the session, up and down.
    pub fn limit(&self, session: &Session, up_kbps: u64, down_kbps: u64) -> Result<()> {
        self.modify(session, &plan::update_qer_mbr(session, up_kbps, down_kbps))
    }

    /// Adds a flow, of a number that no other flow of the session has.
    pub fn add_flow(&self, session: &Session, number: u16, flow: &Flow) -> Result<()> {
        self.modify(session, &plan::add_flow(session, number, flow))
    }

    /// As [`Self::add_flow`], with PDIs that name neither tunnel nor address.
    pub fn add_bare_flow(&self, session: &Session, number: u16, flow: &Flow) -> Result<()> {
        self.modify(session, &plan::add_bare_flow(number, flow))
    }

    /// Adds a flow that is told by an Application ID; it goes as another one does.
    pub fn add_application(
        &self,
        session: &Session,
        number: u16,
        name: &str,
        gates: Gates,
    ) -> Result<()> {
        self.modify(session, &plan::add_application(number, name, 10, gates))
    }

    /// Removes a flow.
    pub fn remove_flow(&self, session: &Session, number: u16) -> Result<()> {
        self.modify(session, &plan::remove_flow(number))
    }

    /// Deletes a session.
    pub fn delete(&self, session: &Session) -> Result<()> {
        let (seid, habits) = (Some(session.up_seid), session.plan.habits());
        let f_seid = habits.f_seid[1].then(|| self.f_seid(session.cp_seid));
        let ies: Vec<Ie> = f_seid.into_iter().collect();
        let kind = MsgType::SessionDeletionRequest;
        let answer = self.request_at(kind, seid, &ies, habits.priority[1])?;
        answer.accepted()
    }

    /// Sends a request, repeats it until it is answered, and checks that the answer is of the type
    /// that belongs to it.
    pub fn request(&self, message_type: MsgType, seid: Option<u64>, ies: &[Ie]) -> Result<Answer> {
        self.request_at(message_type, seid, ies, None)
    }

    /// The same, with a Message Priority.
    fn request_at(
        &self,
        message_type: MsgType,
        seid: Option<u64>,
        ies: &[Ie],
        priority: Option<u8>,
    ) -> Result<Answer> {
        let sequence = self.sequence();
        let mut datagram = encode(message_type, seid, sequence, ies);
        if let Some(priority) = priority {
            // MP, and the upper half of the octet behind the sequence number (TS 29.244, 7.2.2.3).
            datagram[0] |= 1 << 1;
            datagram[15] = priority << 4;
        }
        let answer = self.shared.exchange(sequence, &datagram)?;
        let answer =
            Answer::read(&answer).with_context(|| format!("answer to {message_type:?}"))?;
        let expected = MsgType::from(message_type as u8 + 1);
        let found = answer.message_type();
        ensure!(
            found == expected,
            "{message_type:?} was answered by {found:?}"
        );
        Ok(answer)
    }

    /// A sequence number not used before.
    pub fn sequence(&self) -> u32 {
        self.shared.next_sequence.fetch_add(1, Relaxed) & 0x00ff_ffff
    }

    /// Sends `datagram` once and waits at most `limit` for the answer to `sequence`.
    pub fn exchange_once(
        &self,
        sequence: u32,
        datagram: &[u8],
        limit: Duration,
    ) -> Result<Vec<u8>> {
        let receiver = self.shared.expect(sequence);
        self.shared.socket.send_to(datagram, self.shared.upf)?;
        let answer = receiver.recv_timeout(limit);
        self.shared.waiting().remove(&sequence);
        answer.map_err(|_| anyhow!("no answer within {limit:?}"))
    }

    /// Sends one datagram with several requests and waits for each answer.
    pub fn exchange_all(&self, sequences: &[u32], datagram: &[u8]) -> Result<Vec<Vec<u8>>> {
        let receivers: Vec<_> = (sequences.iter())
            .map(|sequence| self.shared.expect(*sequence))
            .collect();
        self.shared.socket.send_to(datagram, self.shared.upf)?;
        let answer = |receiver: Receiver<Vec<u8>>| {
            let answer = receiver.recv_timeout(NEVER);
            answer.map_err(|_| anyhow!("no answer within {NEVER:?}"))
        };
        receivers.into_iter().map(answer).collect()
    }

    /// Sends anything to the UPF's N4 address.
    pub fn send_raw(&self, datagram: &[u8]) -> Result<()> {
        self.shared.socket.send_to(datagram, self.shared.upf)?;
        Ok(())
    }

    /// The requests of the UPF of one type so far, oldest first; heartbeats are not kept.
    pub fn requests(&self, message_type: MsgType) -> Result<Vec<Answer>> {
        let requests = (self.shared.requests)
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let of_type = requests
            .iter()
            .filter(|datagram| datagram.get(1) == Some(&(message_type as u8)));
        of_type.map(|datagram| Answer::read(datagram)).collect()
    }

    /// From now on a request is sent so many times before it counts as unanswered.
    pub fn attempts(&self, attempts: u32) {
        self.shared.attempts.store(attempts, Relaxed);
    }

    /// From now on the UPF's requests are answered, or not.
    pub fn mute(&self, mute: bool) {
        self.shared.mute.store(mute, Relaxed);
    }

    /// Its Recovery Time Stamp.
    pub fn recovery_ie(&self) -> Ie {
        RecoveryTimeStamp::new(self.shared.recovery).to_ie()
    }

    /// Its node id.
    pub fn node_id(&self) -> &NodeId {
        &self.shared.node_id
    }

    /// The next event, waiting at most `limit`: for one that is not to come.
    pub fn event(&self, limit: Duration) -> Option<Event> {
        self.events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv_timeout(limit)
            .ok()
    }

    /// The next event, whenever it comes.
    pub fn next_event(&self) -> Option<Event> {
        self.event(NEVER)
    }

    /// Waits for `event`, passing over others.
    pub fn wait_for(&self, event: &Event) -> Result<()> {
        let deadline = std::time::Instant::now() + NEVER;
        loop {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            match self.event(left) {
                Some(seen) if seen == *event => return Ok(()),
                Some(_) => {}
                None => bail!("the SMF did not see {event:?} within {NEVER:?}"),
            }
        }
    }
}

impl Drop for Smf {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, HashMap<u32, SyncSender<Vec<u8>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expect(&self, sequence: u32) -> Receiver<Vec<u8>> {
        let (sender, receiver) = sync_channel(1);
        self.waiting().insert(sequence, sender);
        receiver
    }

    fn exchange(&self, sequence: u32, datagram: &[u8]) -> Result<Vec<u8>> {
        let receiver = self.expect(sequence);
        let attempts = self.attempts.load(Relaxed);
        for _ in 0..attempts {
            self.socket.send_to(datagram, self.upf)?;
            if let Ok(answer) = receiver.recv_timeout(T1) {
                return Ok(answer);
            }
        }
        self.waiting().remove(&sequence);
        bail!(
            "the UPF did not answer a request of type {} in {attempts} attempts",
            datagram[1]
        )
    }

    fn receive(&self, events: &Sender<Event>) {
        let mut buffer = vec![0; 65536];
        while !self.stop.load(Relaxed) {
            let Ok((length, from)) = self.socket.recv_from(&mut buffer) else {
                continue;
            };
            let Ok(header) = Header::unmarshal(&buffer[..length]) else {
                continue;
            };
            if is_answer(header.message_type_code()) {
                self.note_recovery(&buffer[..length], events);
                if let Some(waiting) = self.waiting().remove(&header.sequence_number.0) {
                    let _ = waiting.try_send(buffer[..length].to_vec());
                }
            } else {
                self.answer(&header, &buffer[..length], from, events);
            }
        }
    }

    fn answer(&self, header: &Header, datagram: &[u8], to: SocketAddr, events: &Sender<Event>) {
        self.note_recovery(datagram, events);
        let recovery = || RecoveryTimeStamp::new(self.recovery).to_ie();
        let cause = || cause_ie(CauseValue::RequestAccepted);
        let node_id = || self.node_id.to_ie();
        let ies = match header.message_type {
            MsgType::HeartbeatRequest => vec![recovery()],
            MsgType::AssociationSetupRequest => {
                self.associated.store(true, Relaxed);
                vec![
                    node_id(),
                    cause(),
                    recovery(),
                    Ie::new(IeType::CpFunctionFeatures, vec![0]),
                ]
            }
            MsgType::AssociationUpdateRequest | MsgType::NodeReportRequest => {
                vec![node_id(), cause()]
            }
            MsgType::AssociationReleaseRequest => {
                self.associated.store(false, Relaxed);
                vec![node_id(), cause()]
            }
            MsgType::SessionReportRequest => vec![cause()],
            _ => return,
        };
        let answer = MsgType::from(header.message_type as u8 + 1);
        // A report names our SEID; the UPF's is not in it, and 0 is what the header then holds.
        let seid = header.has_seid.then_some(0);
        if !self.mute.load(Relaxed) {
            let answer = encode(answer, seid, header.sequence_number.0, &ies);
            let _ = self.socket.send_to(&answer, to);
        }
        if header.message_type != MsgType::HeartbeatRequest {
            (self.requests.lock())
                .unwrap_or_else(PoisonError::into_inner)
                .push(datagram.to_vec());
            let _ = events.send(Event::Request(header.message_type));
        }
    }

    fn note_recovery(&self, datagram: &[u8], events: &Sender<Event>) {
        let Ok(stamp) = Answer::read(datagram).and_then(|message| message.recovery()) else {
            return;
        };
        let mut known = self
            .upf_recovery
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if known.is_some_and(|before| before != stamp) {
            let _ = events.send(Event::UpfRestarted);
        }
        *known = Some(stamp);
    }
}

/// Which message types are answers (TS 29.244, 7.3).
fn is_answer(message_type: u8) -> bool {
    matches!(
        message_type,
        2 | 4 | 6 | 8 | 10 | 11 | 13 | 15 | 17 | 51 | 53 | 55 | 57
    )
}

/// A PFCP message out of its IEs.
pub fn encode(message_type: MsgType, seid: Option<u64>, sequence: u32, ies: &[Ie]) -> Vec<u8> {
    let mut header = Header::new(message_type, seid.is_some(), seid.unwrap_or(0), sequence);
    let body = rs_pfcp::ie::marshal_ies(ies);
    // The length counts what follows the first four octets.
    header.length = header.len() - 4 + body.len() as u16;
    let mut datagram = header.marshal();
    datagram.extend(body);
    datagram
}

fn cause_ie(cause: CauseValue) -> Ie {
    Ie::new(IeType::Cause, Cause::new(cause).marshal().to_vec())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::netns::Prefix;

    /// Two SMFs, each the other's peer: whatever one asks, the other's answer is what a UPF gives.
    #[test]
    fn association_heartbeat_and_restart_between_two_nodes() -> Result<()> {
        let netns = Netns::create(&Prefix::unique(), "n4")?;
        netns.ip("addr add 10.100.0.1/32 dev lo\naddr add 10.100.0.2/32 dev lo")?;
        let (a, b) = (Ipv4Addr::new(10, 100, 0, 1), Ipv4Addr::new(10, 100, 0, 2));
        let start = |at: Ipv4Addr, to: Ipv4Addr, recovery| {
            Smf::start(
                &netns,
                at.into(),
                NodeId::new_ipv4(at),
                recovery,
                (to, PORT).into(),
            )
        };
        let early = SystemTime::now();
        let (near, far) = (start(a, b, early)?, start(b, a, early)?);
        let stamp = near.associate()?;
        assert_eq!(near.heartbeat()?, stamp);
        assert_eq!(
            far.next_event(),
            Some(Event::Request(MsgType::AssociationSetupRequest))
        );

        drop(far);
        let _far = start(b, a, early + Duration::from_secs(1))?;
        assert_eq!(near.heartbeat()?, stamp + 1);
        assert_eq!(near.next_event(), Some(Event::UpfRestarted));
        near.release()
    }

    #[test]
    fn a_peer_that_is_gone_is_reported_after_the_retransmissions() -> Result<()> {
        let netns = Netns::create(&Prefix::unique(), "n4")?;
        let at = Ipv4Addr::LOCALHOST;
        let smf = Smf::start(
            &netns,
            at.into(),
            NodeId::new_ipv4(at),
            SystemTime::now(),
            (at, 9).into(),
        )?;
        // Nobody listens at the discard port: the socket reports that by an error or not at all.
        smf.attempts(3);
        assert!(smf.heartbeat().is_err());
        Ok(())
    }
}
