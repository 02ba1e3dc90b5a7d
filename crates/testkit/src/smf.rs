//! An SMF, whose octets `rs-pfcp` writes and reads, so that our own codec cannot agree with its own mistakes.
#![allow(missing_docs, reason = "named as in TS 29.244")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, UNIX_EPOCH};

use rs_pfcp::ie::apply_action::ApplyAction;
use rs_pfcp::ie::cause::{Cause, CauseValue};
use rs_pfcp::ie::create_far::CreateFar;
use rs_pfcp::ie::create_pdr::CreatePdr;
use rs_pfcp::ie::create_qer::CreateQer;
use rs_pfcp::ie::destination_interface::{DestinationInterface, Interface};
use rs_pfcp::ie::f_teid::Fteid;
use rs_pfcp::ie::far_id::FarId;
use rs_pfcp::ie::forwarding_parameters::ForwardingParameters;
use rs_pfcp::ie::fseid::Fseid;
use rs_pfcp::ie::gate_status::{GateStatus, GateStatusValue};
use rs_pfcp::ie::mbr::Mbr;
use rs_pfcp::ie::network_instance::NetworkInstance;
use rs_pfcp::ie::node_id::NodeId;
use rs_pfcp::ie::outer_header_creation::OuterHeaderCreation;
use rs_pfcp::ie::outer_header_removal::OuterHeaderRemoval;
use rs_pfcp::ie::pdi::Pdi;
use rs_pfcp::ie::pdr_id::PdrId;
use rs_pfcp::ie::precedence::Precedence;
use rs_pfcp::ie::qer_id::QerId;
use rs_pfcp::ie::recovery_time_stamp::RecoveryTimeStamp;
use rs_pfcp::ie::source_interface::{SourceInterface, SourceInterfaceValue};
use rs_pfcp::ie::ue_ip_address::UeIpAddress;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;
use rs_pfcp::message::header::Header;

use crate::upf::{Sent, Upf};

/// An SMF without a socket.
pub struct Smf {
    pub address: SocketAddr,
    pub node_id: NodeId,
    pub recovery: u32,
    pub sequence: u32,
    pub next_seid: u64,
}

/// An answer, its header and IEs read by `rs-pfcp`. Its message types are not used: they insist on
/// an F-SEID in a refused establishment, which has none (TS 29.244, table 7.5.3.1-1).
pub struct Answer {
    pub raw: Vec<u8>,
    pub header: Header,
    pub ies: Vec<Ie>,
}

impl From<Vec<u8>> for Answer {
    fn from(raw: Vec<u8>) -> Self {
        let header = Header::unmarshal(&raw).unwrap_or_else(|e| panic!("{e}: {raw:02x?}"));
        let mut left = &raw[usize::from(header.len())..];
        let mut ies = Vec::new();
        while !left.is_empty() {
            let ie = Ie::unmarshal(left).unwrap_or_else(|e| panic!("{e}: {raw:02x?}"));
            left = &left[usize::from(ie.len())..];
            ies.push(ie);
        }
        Self { raw, header, ies }
    }
}

impl Answer {
    pub fn cause(&self) -> CauseValue {
        let ie = self.ie(IeType::Cause).expect("an answer has a cause");
        ie.parse::<Cause>().unwrap().value
    }

    pub fn offending_ie(&self) -> Option<u16> {
        self.ie(IeType::OffendingIe).map(|ie| ie.as_u16().unwrap())
    }

    pub fn seid(&self) -> u64 {
        self.header.seid.0
    }

    pub fn up_seid(&self) -> u64 {
        let ie = self.ie(IeType::Fseid).expect("UP F-SEID");
        ie.parse::<Fseid>().unwrap().seid.0
    }

    pub fn has(&self, ie_type: IeType) -> bool {
        self.ie(ie_type).is_some()
    }

    pub fn ie(&self, ie_type: IeType) -> Option<&Ie> {
        self.ies.iter().find(|ie| ie.ie_type == ie_type)
    }
}

pub fn encode(message_type: MsgType, seid: Option<u64>, sequence: u32, ies: &[Ie]) -> Vec<u8> {
    let mut header = Header::new(message_type, seid.is_some(), seid.unwrap_or(0), sequence);
    let body = rs_pfcp::ie::marshal_ies(ies);
    header.length = header.len() - 4 + body.len() as u16;
    let mut datagram = header.marshal();
    datagram.extend(body);
    datagram
}

/// NTP seconds as `rs-pfcp` wants them.
pub fn recovery_ie(ntp_seconds: u32) -> Ie {
    const NTP_TO_UNIX: u64 = 2_208_988_800;
    let unix = Duration::from_secs(u64::from(ntp_seconds) - NTP_TO_UNIX);
    let stamp = RecoveryTimeStamp::new(UNIX_EPOCH + unix);
    stamp.to_ie()
}

impl Smf {
    pub fn new(address: &str) -> Self {
        let address: SocketAddr = address.parse().unwrap();
        let node_id = match address.ip() {
            IpAddr::V4(v4) => NodeId::new_ipv4(v4),
            IpAddr::V6(v6) => NodeId::new_ipv6(v6),
        };
        Self {
            address,
            node_id,
            recovery: 3_800_000_000,
            sequence: 0,
            next_seid: 0x100,
        }
    }

    pub fn datagram(&mut self, message_type: MsgType, seid: Option<u64>, ies: &[Ie]) -> Vec<u8> {
        self.sequence += 1;
        encode(message_type, seid, self.sequence, ies)
    }

    /// Send a datagram; the one answer, which must come back to where it was sent from.
    pub fn exchange(&self, upf: &mut impl Upf, datagram: &[u8]) -> Answer {
        let mut sent = upf.receive(self.address, datagram);
        assert_eq!(sent.len(), 1, "one answer to {datagram:02x?}: {sent:02x?}");
        let (to, raw) = sent.pop().unwrap();
        assert_eq!(to, self.address);
        assert_eq!(raw[1], datagram[1] + 1, "type of the answer");
        Answer::from(raw)
    }

    pub fn ask(
        &mut self,
        upf: &mut impl Upf,
        message_type: MsgType,
        seid: Option<u64>,
        ies: &[Ie],
    ) -> Answer {
        let datagram = self.datagram(message_type, seid, ies);
        let answer = self.exchange(upf, &datagram);
        assert_eq!(answer.header.sequence_number.0, self.sequence);
        answer
    }

    pub fn setup_ies(&self) -> Vec<Ie> {
        vec![self.node_id.to_ie(), recovery_ie(self.recovery)]
    }

    pub fn associate(&mut self, upf: &mut impl Upf) {
        let ies = self.setup_ies();
        let answer = self.ask(upf, MsgType::AssociationSetupRequest, None, &ies);
        assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    }

    pub fn release(&mut self, upf: &mut impl Upf) -> Answer {
        let ies = [self.node_id.to_ie()];
        self.ask(upf, MsgType::AssociationReleaseRequest, None, &ies)
    }

    pub fn heartbeat(&mut self, upf: &mut impl Upf) -> Sent {
        let recovery = self.recovery;
        let datagram = self.datagram(MsgType::HeartbeatRequest, None, &[recovery_ie(recovery)]);
        upf.receive(self.address, &datagram)
    }

    /// A session with 2 PDRs, 2 FARs and 1 QER; TEID and UE address are ours to choose.
    pub fn establishment(&mut self) -> Vec<u8> {
        self.establishment_in("internet")
    }

    /// The same in this network instance.
    pub fn establishment_in(&mut self, network: &str) -> Vec<u8> {
        self.next_seid += 1;
        let v4 = match self.address.ip() {
            IpAddr::V4(v4) => Some(v4),
            IpAddr::V6(_) => None,
        };
        let v6 = match self.address.ip() {
            IpAddr::V6(v6) => Some(v6),
            IpAddr::V4(_) => None,
        };
        let f_seid = Ie::new(IeType::Fseid, Fseid::new(self.next_seid, v4, v6).marshal());
        let mut ies = vec![self.node_id.to_ie(), f_seid];
        ies.extend(rules(network));
        self.datagram(MsgType::SessionEstablishmentRequest, Some(0), &ies)
    }

    /// Establish one; its SEID at the UPF.
    pub fn establish(&mut self, upf: &mut impl Upf) -> u64 {
        let datagram = self.establishment();
        let answer = self.exchange(upf, &datagram);
        let offending = answer.offending_ie();
        assert_eq!(answer.cause(), CauseValue::RequestAccepted, "{offending:?}");
        assert_eq!(answer.seid(), self.next_seid);
        answer.up_seid()
    }

    pub fn delete(&mut self, upf: &mut impl Upf, seid: u64) -> Answer {
        self.ask(upf, MsgType::SessionDeletionRequest, Some(seid), &[])
    }

    pub fn modify(&mut self, upf: &mut impl Upf, seid: u64) -> Answer {
        self.ask(upf, MsgType::SessionModificationRequest, Some(seid), &[])
    }

    /// Answer what the core asked, if it was for us.
    pub fn respond(&self, upf: &mut impl Upf, request: &[u8]) {
        let response = match request[1] {
            1 => encode(
                MsgType::HeartbeatResponse,
                None,
                sequence(request),
                &[recovery_ie(self.recovery)],
            ),
            5 => {
                let mut ies = self.setup_ies();
                ies.push(accepted());
                encode(
                    MsgType::AssociationSetupResponse,
                    None,
                    sequence(request),
                    &ies,
                )
            }
            7 => {
                let ies = [self.node_id.to_ie(), accepted()];
                encode(
                    MsgType::AssociationUpdateResponse,
                    None,
                    sequence(request),
                    &ies,
                )
            }
            other => panic!("unexpected request {other}"),
        };
        let sent = upf.receive(self.address, &response);
        assert!(sent.is_empty(), "no answer to an answer");
    }
}

pub fn accepted() -> Ie {
    Ie::new(
        IeType::Cause,
        Cause::new(CauseValue::RequestAccepted).marshal().to_vec(),
    )
}

/// Sequence number of a node message.
pub fn sequence(datagram: &[u8]) -> u32 {
    u32::from_be_bytes([0, datagram[4], datagram[5], datagram[6]])
}

fn rules(network: &str) -> Vec<Ie> {
    let mut f_teid = Fteid::new_with_choose(true, false, true, true, 0, None, None, 0);
    f_teid.choose_id = 5;
    let mut uplink = Pdi::new(SourceInterface::new(SourceInterfaceValue::Access));
    uplink.f_teid = Some(f_teid);
    uplink.network_instance = Some(NetworkInstance::new(network));
    let mut downlink = Pdi::new(SourceInterface::new(SourceInterfaceValue::Core));
    downlink.network_instance = Some(NetworkInstance::new(network));
    let mut address = UeIpAddress::choose(true, false);
    address.source_destination = true;
    downlink.ue_ip_addresses = vec![address];
    let mut uplink = CreatePdr::new(PdrId::new(1), Precedence::new(255), uplink);
    uplink.outer_header_removal = Some(OuterHeaderRemoval::new(0));
    let mut downlink = CreatePdr::new(PdrId::new(2), Precedence::new(255), downlink);
    for (pdr, far) in [(&mut uplink, 1), (&mut downlink, 2)] {
        pdr.far_id = Some(FarId::new(far));
        pdr.qer_ids = vec![QerId::new(1)];
    }
    let core = ForwardingParameters::new(DestinationInterface::new(Interface::Core))
        .with_network_instance(NetworkInstance::new(network));
    let gnb = OuterHeaderCreation::gtpu_ipv4(0x0a0b_0c0d, Ipv4Addr::new(10, 3, 0, 2));
    let access = ForwardingParameters::new(DestinationInterface::new(Interface::Access))
        .with_outer_header_creation(gnb);
    let mut qer = CreateQer::new(QerId::new(1));
    qer.gate_status = Some(GateStatus::new(
        GateStatusValue::Open,
        GateStatusValue::Open,
    ));
    qer.mbr = Some(Mbr {
        uplink: 100_000,
        downlink: 200_000,
    });
    vec![
        uplink.to_ie(),
        downlink.to_ie(),
        CreateFar::new(FarId::new(1), ApplyAction::FORW)
            .with_forwarding_parameters(core)
            .to_ie(),
        CreateFar::new(FarId::new(2), ApplyAction::FORW)
            .with_forwarding_parameters(access)
            .to_ie(),
        qer.to_ie(),
    ]
}
