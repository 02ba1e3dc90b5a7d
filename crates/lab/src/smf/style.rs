//! The habits of SMFs: what each one's messages say where another's say something else.
//!
//! As the public sources of Open5GS 2.7, free5GC 4, OAI CN5G, SD-Core and pfcpsim have them in 2026, each as it is
//! configured when nobody has changed anything. Rule IDs are the lab's own, but for QER ID 0: a UPF may not care.
//! An SMF that knows IPv4 alone says of IPv6, where N3 or a UE has it, what it would say of IPv4.

use clap::ValueEnum;
use rs_pfcp::ie::IeType;
use rs_pfcp::ie::destination_interface::Interface;
use rs_pfcp::ie::three_gpp_interface_type::ThreeGppInterfaceType::{self, N3, N6, S1U};

/// SMF whose habits a session follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Style {
    /// F-TEID by CHOOSE with CHOOSE ID, names as labels, interface types, one QER, a BAR; downlink is buffered at first.
    Open5gs,
    /// Own TEIDs, two QERs and two URRs on each PDR; downlink is forwarded without a tunnel at first.
    Free5gc,
    /// F-TEID by CHOOSE; no QER; no downlink rules until there is a tunnel, none of either way while the UE is idle.
    Oai,
    /// F-TEID by CHOOSE of no address family; uplink to SGi-LAN, downlink dropped at first; Message Priority.
    SdCore,
    /// Own TEIDs, QER ID 0, URRs that no PDR names; downlink dropped into TEID 0 at 0.0.0.0 at first.
    Pfcpsim,
}

/// Chooser of an uplink tunnel's TEID.
#[derive(Clone, Copy)]
pub(super) enum FTeidBy {
    /// The SMF's.
    Smf,
    /// The UPF's (CHOOSE).
    Upf {
        families: Families,
        choose_id: Option<u8>,
    },
}

/// Which address families CHOOSE asks for.
#[derive(Clone, Copy)]
pub(super) enum Families {
    /// Families that the UPF has.
    Known,
    /// IPv4 and IPv6, whatever the UPF has.
    Both,
    /// Neither flag is set, which TS 29.244, 8.2.3 does not allow.
    Unsaid,
}

/// How Network Instances are written.
#[derive(Clone, Copy)]
pub(super) enum Name {
    /// Not at all.
    Absent,
    /// As text.
    Plain,
    /// As DNNs are in messages: labels with their lengths (TS 23.003, 9.1).
    Labels,
}

/// A QER that each session has; all carry a QFI.
pub(super) struct Qer {
    pub(super) id: u32,
    /// The session's MBR.
    pub(super) mbr: bool,
    /// Its QFI, else 0.
    pub(super) qfi: bool,
}

/// Downlink while there is no tunnel yet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Early {
    /// BUFF and NOCP, with the BAR.
    Buffer,
    /// FORW to Access without Outer Header Creation.
    ForwardNowhere,
    /// Neither PDR nor FAR.
    NoRules,
    /// DROP without parameters.
    Drop,
    /// DROP, with Outer Header Creation of TEID 0 at 0.0.0.0.
    DropAtZero,
}

/// How a UE becomes idle.
#[derive(Clone, Copy)]
pub(super) enum Idle {
    /// BUFF and NOCP, with the BAR.
    Buffer,
    /// BUFF and NOCP, with parameters that still name the gNB's tunnel.
    KeepTunnel,
    /// BUFF and NOCP, with parameters without a tunnel.
    NoTunnel,
    /// BUFF and NOCP, with TEID 0 at the gNB.
    TeidZero,
    /// All rules are removed.
    RemoveRules,
}

/// Fields about End Markers in an Update FAR.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EndMarker {
    /// Nothing.
    Never,
    /// PFCPSMReq-Flags with SNDEM, when the UE leaves a tunnel.
    OnSwitch,
    /// PFCPSMReq-Flags always, with SNDEM when the UE leaves a tunnel.
    FlagsAlways,
}

/// PDN Type of an establishment.
#[derive(Clone, Copy)]
pub(super) enum PdnType {
    Absent,
    /// IPv4, whatever the session is.
    Ipv4,
    OfSession,
}

/// URRs of each session.
#[derive(Clone, Copy)]
pub(super) enum Urrs {
    None,
    /// 100 MiB, on downlink PDRs.
    Threshold,
    /// Before and after QoS enforcement, each with packets, periodic, and a threshold; on all PDRs.
    Periodic,
    /// A periodic one and one with threshold and quota, on no PDR.
    Unnamed,
}

/// Habits that show in an SMF's messages. Of two values the first is for uplink.
pub(super) struct Habits {
    pub(super) f_teid: FTeidBy,
    pub(super) name: Name,
    /// 3GPP Interface Type of sources and of destinations.
    pub(super) source_types: Option<[ThreeGppInterfaceType; 2]>,
    pub(super) destination_types: Option<[ThreeGppInterfaceType; 2]>,
    /// Destination Interface of uplink.
    pub(super) core: Interface,
    /// Uplink PDIs have the UE's address, and its QFI.
    pub(super) uplink_ue: bool,
    pub(super) uplink_qfi: bool,
    /// Downlink PDIs say that it is a destination.
    pub(super) destination_flag: bool,
    /// The default PDRs' filter.
    pub(super) filter: Option<&'static str>,
    pub(super) precedence: u32,
    /// Outer Header Removal takes off any GTP-U (6); else that of IPv4 (0).
    pub(super) removes_any: bool,
    /// PDR ID, precedence, removal, FAR ID, and the PDI behind them.
    pub(super) pdi_last: bool,
    pub(super) qers: &'static [Qer],
    /// IDs of QERs on PDRs.
    pub(super) qer_ids: [&'static [u32]; 2],
    pub(super) qer_order: [IeType; 4],
    pub(super) urrs: Urrs,
    pub(super) early: Early,
    /// The first tunnel comes with an Update PDR that repeats the whole PDR; so does another one.
    pub(super) update_pdr: [bool; 2],
    pub(super) end_marker: EndMarker,
    pub(super) idle: Idle,
    pub(super) pdn_type: PdnType,
    /// User ID, APN/DNN and S-NSSAI in an establishment.
    pub(super) subscriber: bool,
    /// CP F-SEID in each modification, and in the deletion.
    pub(super) f_seid: [bool; 2],
    /// FARs of uplink and of downlink name the session's forwarding policy.
    pub(super) policy: [bool; 2],
    /// Message Priority of establishment and deletion.
    pub(super) priority: [Option<u8>; 2],
}

/// Orders of members of a QER.
const MBR_FIRST: [IeType; 4] = [IeType::QerId, IeType::GateStatus, IeType::Mbr, IeType::Qfi];
const QFI_FIRST: [IeType; 4] = [IeType::QerId, IeType::GateStatus, IeType::Qfi, IeType::Mbr];
const GATE_LATE: [IeType; 4] = [IeType::QerId, IeType::Qfi, IeType::GateStatus, IeType::Mbr];

/// The QER of a session that has one for all.
const ONE_QER: &[Qer] = &[Qer {
    id: 1,
    mbr: true,
    qfi: true,
}];

/// Habits of most; styles below name the differences.
const COMMON: Habits = Habits {
    f_teid: FTeidBy::Smf,
    name: Name::Plain,
    source_types: None,
    destination_types: None,
    core: Interface::Core,
    uplink_ue: true,
    uplink_qfi: false,
    destination_flag: true,
    filter: None,
    precedence: 255,
    removes_any: false,
    pdi_last: false,
    qers: ONE_QER,
    qer_ids: [&[1], &[1]],
    qer_order: MBR_FIRST,
    urrs: Urrs::None,
    early: Early::Drop,
    update_pdr: [false, false],
    end_marker: EndMarker::Never,
    idle: Idle::Buffer,
    pdn_type: PdnType::Ipv4,
    subscriber: false,
    f_seid: [false, false],
    policy: [false, false],
    priority: [None, None],
};

const OPEN5GS: Habits = Habits {
    f_teid: FTeidBy::Upf {
        families: Families::Both,
        choose_id: Some(5),
    },
    name: Name::Labels,
    source_types: Some([N3, N6]),
    destination_types: Some([N6, N3]),
    uplink_ue: false,
    uplink_qfi: true,
    precedence: 65535,
    removes_any: true,
    urrs: Urrs::Threshold,
    early: Early::Buffer,
    end_marker: EndMarker::OnSwitch,
    pdn_type: PdnType::OfSession,
    subscriber: true,
    ..COMMON
};

const FREE5GC: Habits = Habits {
    qers: &[
        Qer {
            id: 1,
            mbr: true,
            qfi: true,
        },
        Qer {
            id: 2,
            mbr: false,
            qfi: true,
        },
    ],
    qer_ids: [&[2, 1], &[2, 1]],
    urrs: Urrs::Periodic,
    early: Early::ForwardNowhere,
    update_pdr: [true, false],
    end_marker: EndMarker::FlagsAlways,
    idle: Idle::KeepTunnel,
    f_seid: [true, false],
    policy: [true, false],
    ..COMMON
};

const OAI: Habits = Habits {
    f_teid: FTeidBy::Upf {
        families: Families::Known,
        choose_id: Some(42),
    },
    // Known to it where the UPF has told the NRF, which Turnpike does not.
    name: Name::Absent,
    // S1-U is 0, which it sends where it has nothing to say.
    source_types: Some([N3, S1U]),
    uplink_qfi: true,
    qers: &[],
    qer_ids: [&[], &[]],
    early: Early::NoRules,
    update_pdr: [false, true],
    idle: Idle::RemoveRules,
    pdn_type: PdnType::Absent,
    policy: [true, true],
    ..COMMON
};

const SD_CORE: Habits = Habits {
    f_teid: FTeidBy::Upf {
        families: Families::Unsaid,
        choose_id: None,
    },
    core: Interface::SgiLanN6Lan,
    destination_flag: false,
    qer_order: QFI_FIRST,
    update_pdr: [true, false],
    end_marker: EndMarker::OnSwitch,
    idle: Idle::NoTunnel,
    f_seid: [true, true],
    priority: [Some(0), Some(12)],
    ..COMMON
};

const PFCPSIM: Habits = Habits {
    name: Name::Absent,
    uplink_ue: false,
    destination_flag: false,
    filter: Some("permit out ip from any to assigned"),
    precedence: 100,
    pdi_last: true,
    qers: &[
        Qer {
            id: 0,
            mbr: true,
            qfi: false,
        },
        Qer {
            id: 1,
            mbr: true,
            qfi: true,
        },
        Qer {
            id: 2,
            mbr: true,
            qfi: true,
        },
    ],
    qer_ids: [&[0, 1], &[0, 2]],
    qer_order: GATE_LATE,
    urrs: Urrs::Unnamed,
    early: Early::DropAtZero,
    idle: Idle::TeidZero,
    f_seid: [false, true],
    ..COMMON
};

impl Style {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Open5gs,
        Self::Free5gc,
        Self::Oai,
        Self::SdCore,
        Self::Pfcpsim,
    ];

    pub(super) const fn habits(self) -> &'static Habits {
        match self {
            Self::Open5gs => &OPEN5GS,
            Self::Free5gc => &FREE5GC,
            Self::Oai => &OAI,
            Self::SdCore => &SD_CORE,
            Self::Pfcpsim => &PFCPSIM,
        }
    }
}
