//! Rules as an SMF asks for them, written by our own encoder.
#![allow(missing_docs, reason = "IEs are named as in TS 29.244")]

use std::net::{Ipv4Addr, Ipv6Addr};

use pfcp::ie::{
    ApplyAction, FTeid, Gate, GateStatus, Mbr, MeasurementMethod, OuterHeader, OuterHeaderCreation,
    ReportingTriggers, SdfFilter, UeIpAddress,
};
use pfcp::{IeType, MessageType, Writer};

pub use crate::packets::{GNB, N3};

pub const UE: Ipv4Addr = Ipv4Addr::new(10, 60, 0, 9);
pub const UE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x60, 7, 0, 0, 0, 1);

pub fn message(kind: MessageType, write: impl Fn(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, kind, Some(0), 1);
    write(&mut writer);
    assert!(writer.finish() > 0);
    out
}

/// Number a message, which has a SEID in its header.
pub fn number(datagram: &mut [u8], sequence: u32) {
    datagram[12..15].copy_from_slice(&sequence.to_be_bytes()[1..]);
}

/// Session Modification Request: the downlink FAR leads to the gNB of this number.
pub fn path_switch(gnb: u8) -> Vec<u8> {
    message(MessageType::SESSION_MODIFICATION_REQUEST, |w| {
        w.grouped(IeType::UPDATE_FAR, |w| {
            w.put(IeType::FAR_ID, 2u32);
            w.put(IeType::APPLY_ACTION, 2u8);
            w.grouped(IeType::UPDATE_FORWARDING_PARAMETERS, |w| {
                let end = [1, 0, 0, 0, 0x50, gnb, 10, 3, 1, gnb];
                w.ie(IeType::OUTER_HEADER_CREATION, &end);
            });
        });
    })
}

/// A PDR under construction; what is not set is left out.
#[derive(Clone, Debug, Default)]
pub struct PdrIe {
    pub id: u16,
    pub precedence: Option<u32>,
    pub source: u8,
    pub f_teid: Option<FTeid>,
    pub ni: Option<&'static str>,
    pub ue: Option<UeIpAddress>,
    pub qfi: Option<u8>,
    pub filters: Vec<SdfFilter<'static>>,
    pub removal: Option<u8>,
    pub far: Option<u32>,
    pub qers: Vec<u32>,
    pub urrs: Vec<u32>,
    pub extra: Vec<(IeType, Vec<u8>)>,
    pub extra_pdi: Vec<(IeType, Vec<u8>)>,
}

pub const CHOOSE: FTeid = FTeid::Choose {
    ipv4: true,
    ipv6: false,
    choose_id: None,
};

pub fn given(teid: u32) -> FTeid {
    FTeid::Given {
        teid,
        ipv4: Some(N3),
        ipv6: None,
    }
}

pub fn ue4(addr: Ipv4Addr) -> UeIpAddress {
    UeIpAddress {
        ipv4: Some(addr),
        ..UeIpAddress::default()
    }
}

pub fn ue6(addr: Ipv6Addr) -> UeIpAddress {
    UeIpAddress {
        ipv6: Some(addr),
        ..UeIpAddress::default()
    }
}

pub fn choose4() -> UeIpAddress {
    UeIpAddress {
        choose_ipv4: true,
        ..UeIpAddress::default()
    }
}

pub fn flow(text: &'static str) -> SdfFilter<'static> {
    SdfFilter {
        flow_description: Some(text),
        ..SdfFilter::default()
    }
}

impl PdrIe {
    /// PDR 1: uplink by a TEID of our choice, FAR 1.
    pub fn uplink() -> Self {
        Self {
            id: 1,
            precedence: Some(100),
            f_teid: Some(CHOOSE),
            ue: Some(ue4(UE)),
            removal: Some(0),
            far: Some(1),
            ..Self::default()
        }
    }

    /// PDR 2: downlink by the UE's address, FAR 2.
    pub fn downlink() -> Self {
        Self {
            id: 2,
            precedence: Some(100),
            source: 1,
            ni: Some("internet"),
            ue: Some(UeIpAddress {
                destination: true,
                ..ue4(UE)
            }),
            far: Some(2),
            ..Self::default()
        }
    }

    pub fn create(&self, w: &mut Writer<'_>) {
        w.grouped(IeType::CREATE_PDR, |w| self.write(w, true));
    }

    pub fn update(&self, w: &mut Writer<'_>, with_pdi: bool) {
        w.grouped(IeType::UPDATE_PDR, |w| self.write(w, with_pdi));
    }

    fn write(&self, w: &mut Writer<'_>, with_pdi: bool) {
        w.pdr_id(self.id);
        if let Some(precedence) = self.precedence {
            w.put(IeType::PRECEDENCE, precedence);
        }
        if with_pdi {
            w.grouped(IeType::PDI, |w| self.write_pdi(w));
        }
        if let Some(removal) = self.removal {
            w.put(IeType::OUTER_HEADER_REMOVAL, removal);
        }
        if let Some(far) = self.far {
            w.put(IeType::FAR_ID, far);
        }
        self.urrs.iter().for_each(|urr| w.put(IeType::URR_ID, *urr));
        self.qers.iter().for_each(|qer| w.put(IeType::QER_ID, *qer));
        self.extra.iter().for_each(|(ie, value)| w.ie(*ie, value));
    }

    fn write_pdi(&self, w: &mut Writer<'_>) {
        w.put(IeType::SOURCE_INTERFACE, self.source);
        if let Some(f_teid) = self.f_teid {
            w.f_teid(f_teid);
        }
        if let Some(ni) = self.ni {
            w.network_instance(ni);
        }
        if let Some(ue) = self.ue {
            w.ue_ip_address(ue);
        }
        if let Some(qfi) = self.qfi {
            w.put(IeType::QFI, qfi);
        }
        self.filters
            .iter()
            .for_each(|filter| w.put(IeType::SDF_FILTER, *filter));
        self.extra_pdi
            .iter()
            .for_each(|(ie, value)| w.ie(*ie, value));
    }
}

/// FAR towards N6.
pub fn far_to_core(w: &mut Writer<'_>, id: u32) {
    w.grouped(IeType::CREATE_FAR, |w| {
        w.put(IeType::FAR_ID, id);
        w.put(IeType::APPLY_ACTION, ApplyAction::FORW);
        w.grouped(IeType::FORWARDING_PARAMETERS, |w| {
            w.put(IeType::DESTINATION_INTERFACE, 1u8);
            w.network_instance("internet");
        });
    });
}

pub fn tunnel(teid: u32) -> OuterHeaderCreation {
    OuterHeaderCreation {
        description: OuterHeader::GTPU_UDP_IPV4,
        teid: Some(teid),
        ipv4: Some(GNB),
        ipv6: None,
        port: None,
        c_tag: None,
        s_tag: None,
    }
}

/// FAR towards N3.
pub fn far_to_access(w: &mut Writer<'_>, id: u32, teid: u32) {
    w.grouped(IeType::CREATE_FAR, |w| {
        w.put(IeType::FAR_ID, id);
        w.put(IeType::APPLY_ACTION, ApplyAction::FORW);
        w.grouped(IeType::FORWARDING_PARAMETERS, |w| {
            w.put(IeType::DESTINATION_INTERFACE, 0u8);
            w.put(IeType::OUTER_HEADER_CREATION, tunnel(teid));
        });
    });
}

/// FAR with another action and nothing else.
pub fn far_of(w: &mut Writer<'_>, id: u32, action: ApplyAction) {
    w.grouped(IeType::CREATE_FAR, |w| {
        w.put(IeType::FAR_ID, id);
        w.put(IeType::APPLY_ACTION, action);
    });
}

pub fn qer(w: &mut Writer<'_>, id: u32, mbr_kbps: Option<u64>) {
    w.grouped(IeType::CREATE_QER, |w| {
        w.put(IeType::QER_ID, id);
        w.put(
            IeType::GATE_STATUS,
            GateStatus {
                uplink: Gate::Open,
                downlink: Gate::Open,
            },
        );
        if let Some(kbps) = mbr_kbps {
            w.put(
                IeType::MBR,
                Mbr {
                    uplink_kbps: kbps,
                    downlink_kbps: kbps,
                },
            );
        }
    });
}

pub fn remove(w: &mut Writer<'_>, kind: IeType, id_ie: IeType, id: u32) {
    w.grouped(kind, |w| match id_ie {
        IeType::PDR_ID => w.pdr_id(id as u16),
        IeType::BAR_ID | IeType::TRAFFIC_ENDPOINT_ID => w.put(id_ie, id as u8),
        _ => w.put(id_ie, id),
    });
}

/// The ordinary session: 2 PDR, 2 FAR, 1 QER.
pub fn ordinary(w: &mut Writer<'_>) {
    ordinary_with(w, PdrIe::uplink(), PdrIe::downlink());
}

pub fn ordinary_with(w: &mut Writer<'_>, mut uplink: PdrIe, mut downlink: PdrIe) {
    uplink.qers = vec![1];
    downlink.qers = vec![1];
    uplink.create(w);
    downlink.create(w);
    far_to_core(w, 1);
    far_to_access(w, 2, 0x5000);
    qer(w, 1, Some(1000));
}

/// Bits of Measurement Information (8.2.68).
pub const MBQE: u8 = 1;
pub const MNOP: u8 = 1 << 4;

/// A URR under construction.
pub struct UrrIe {
    pub id: u32,
    pub method: MeasurementMethod,
    pub triggers: ReportingTriggers,
    pub more: Vec<(IeType, Vec<u8>)>,
}

impl UrrIe {
    /// One of volume.
    pub fn volume(id: u32, triggers: ReportingTriggers) -> Self {
        Self {
            id,
            method: MeasurementMethod::VOLUM,
            triggers,
            more: Vec::new(),
        }
    }

    /// One of time.
    pub fn time(id: u32, triggers: ReportingTriggers) -> Self {
        Self {
            method: MeasurementMethod::DURAT,
            ..Self::volume(id, triggers)
        }
    }

    pub fn with(mut self, ie_type: IeType, value: u32) -> Self {
        self.more.push((ie_type, value.to_be_bytes().into()));
        self
    }

    /// Total, uplink, downlink.
    pub fn limit(mut self, ie_type: IeType, of: [Option<u64>; 3]) -> Self {
        self.more.push((ie_type, octets(of)));
        self
    }

    /// Before QoS enforcement, packets too.
    pub fn before_qos(self) -> Self {
        self.raw(IeType::MEASUREMENT_INFORMATION, &[MBQE | MNOP])
    }

    /// After it, packets too.
    pub fn after_qos(self) -> Self {
        self.raw(IeType::MEASUREMENT_INFORMATION, &[MNOP])
    }

    pub fn raw(mut self, ie_type: IeType, value: &[u8]) -> Self {
        self.more.push((ie_type, value.into()));
        self
    }

    pub fn create(&self, w: &mut Writer<'_>) {
        w.grouped(IeType::CREATE_URR, |w| {
            w.put(IeType::URR_ID, self.id);
            w.put(IeType::MEASUREMENT_METHOD, self.method);
            w.put(IeType::REPORTING_TRIGGERS, self.triggers);
            self.more.iter().for_each(|(ie, value)| w.ie(*ie, value));
        });
    }
}

/// Value of an IE with total, uplink and downlink.
pub fn octets(of: [Option<u64>; 3]) -> Vec<u8> {
    let flags = (0..3).map(|bit| u8::from(of[bit].is_some()) << bit).sum();
    let values = of.iter().flatten().flat_map(|value| value.to_be_bytes());
    [flags].into_iter().chain(values).collect()
}
