//! IEs that are sets of flags. Octet 5 holds bits 0 to 7, octet 6 bits 8 to 15, and so on.

use bitflags::bitflags;

use crate::{Error, FromIe, Ie, ToIe};

/// Decodes up to `size_of` octets, at least `$least`; encodes at least `$sent`, and as many more as the set
/// bits need. Bits nobody has named are kept, so that they can be refused by name of their IE.
macro_rules! on_the_wire {
    ($($type:ident: $bits:ty, $least:literal, $sent:literal;)*) => {$(
        impl FromIe<'_> for $type {
            #[inline]
            fn from_ie(ie: &Ie<'_>) -> Result<Self, Error> {
                let _: [u8; $least] = ie.reader().chunk()?;
                let mut octets = [0; size_of::<$bits>()];
                octets.iter_mut().zip(ie.value).for_each(|(to, from)| *to = *from);
                Ok(Self::from_bits_retain(<$bits>::from_le_bytes(octets)))
            }
        }

        impl ToIe for $type {
            fn to_ie(&self, out: &mut Vec<u8>) {
                let octets = self.bits().to_le_bytes();
                let used = octets.iter().rposition(|octet| *octet != 0).map_or(0, |last| last + 1);
                out.extend(octets.iter().take(used.max($sent)));
            }
        }
    )*};
}

on_the_wire! {
    ApplyAction: u16, 1, 1;
    AssociationReleaseFlags: u8, 1, 1;
    CpFunctionFeatures: u32, 1, 1;
    MeasurementInformation: u8, 1, 1;
    MeasurementMethod: u8, 1, 1;
    NodeReportType: u8, 1, 1;
    PfcpAsReqFlags: u8, 1, 1;
    PfcpAsRspFlags: u8, 1, 1;
    PfcpAuReqFlags: u8, 1, 1;
    PfcpSeReqFlags: u8, 1, 1;
    PfcpSmReqFlags: u8, 1, 1;
    PfcpSrReqFlags: u8, 1, 1;
    PfcpSrRspFlags: u8, 1, 1;
    ReportType: u8, 1, 1;
    ReportingTriggers: u32, 1, 2;
    UpFunctionFeatures: u64, 1, 2;
    UsageInformation: u8, 1, 1;
    UsageReportTrigger: u32, 1, 3;
}

bitflags! {
    /// Apply Action (8.2.26).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct ApplyAction: u16 {
        /// Drop.
        const DROP = 1;
        /// Forward.
        const FORW = 1 << 1;
        /// Buffer.
        const BUFF = 1 << 2;
        /// Notify the CP function of the first buffered downlink packet.
        const NOCP = 1 << 3;
        /// Duplicate.
        const DUPL = 1 << 4;
        /// Accept IP multicast joins.
        const IPMA = 1 << 5;
        /// Deny IP multicast joins.
        const IPMD = 1 << 6;
        /// Duplicate for redundant transmission.
        const DFRT = 1 << 7;
        /// Eliminate duplicates of redundant transmission.
        const EDRT = 1 << 8;
        /// Report the first buffered downlink packet for delivery status.
        const BDPN = 1 << 9;
        /// Report the first discarded downlink packet for delivery status.
        const DDPN = 1 << 10;
    }

    /// PFCP Association Release Request (8.2.77).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct AssociationReleaseFlags: u8 {
        /// The UP function asks for the release of the association.
        const SARR = 1;
        /// All usage reports of the sessions concerned have been sent (5.18).
        const URSS = 1 << 1;
    }

    /// CP Function Features (8.2.58).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct CpFunctionFeatures: u32 {
        /// Load control.
        const LOAD = 1;
        /// Overload control.
        const OVRL = 1 << 1;
        /// Enhanced association release.
        const EPFAR = 1 << 2;
        /// SMF set.
        const SSET = 1 << 3;
        /// Bundled messages.
        const BUNDL = 1 << 4;
        /// Multiple associations with one SMF set.
        const MPAS = 1 << 5;
        /// Additional usage reports at deletion.
        const ARDR = 1 << 6;
        /// UE IP address usage reporting.
        const UIAUR = 1 << 7;
    }

    /// Measurement Information (8.2.68).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct MeasurementInformation: u8 {
        /// Before QoS is enforced.
        const MBQE = 1;
        /// Nothing is measured at present.
        const INAM = 1 << 1;
        /// Detected applications are reported without their flows.
        const RADI = 1 << 2;
        /// Time is measured at once, not from the first packet on.
        const ISTM = 1 << 3;
        /// Packets too are counted.
        const MNOP = 1 << 4;
        /// Charging pauses while downlink packets are dropped, and the CP function is told.
        const SSPOC = 1 << 5;
        /// Charging may pause.
        const ASPOC = 1 << 6;
        /// Measurement pauses and goes on as the UP function decides.
        const CIAM = 1 << 7;
    }

    /// Measurement Method (8.2.40).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct MeasurementMethod: u8 {
        /// Duration.
        const DURAT = 1;
        /// Volume.
        const VOLUM = 1 << 1;
        /// Events.
        const EVENT = 1 << 2;
    }

    /// Node Report Type (8.2.69).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct NodeReportType: u8 {
        /// A path to a GTP-U peer has failed.
        const UPFR = 1;
        /// A path to a GTP-U peer has recovered.
        const UPRR = 1 << 1;
        /// Clock drift.
        const CKDR = 1 << 2;
        /// QoS of a GTP-U path.
        const GPQR = 1 << 3;
        /// A GTP-U peer has restarted.
        const PURR = 1 << 4;
    }

    /// Outer Header Creation Description (8.2.56).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct OuterHeader: u16 {
        /// GTP-U/UDP/IPv4.
        const GTPU_UDP_IPV4 = 1;
        /// GTP-U/UDP/IPv6.
        const GTPU_UDP_IPV6 = 1 << 1;
        /// UDP/IPv4.
        const UDP_IPV4 = 1 << 2;
        /// UDP/IPv6.
        const UDP_IPV6 = 1 << 3;
        /// IPv4.
        const IPV4 = 1 << 4;
        /// IPv6.
        const IPV6 = 1 << 5;
        /// C-TAG.
        const C_TAG = 1 << 6;
        /// S-TAG.
        const S_TAG = 1 << 7;
        /// Over N19.
        const N19 = 1 << 8;
        /// Over N6.
        const N6 = 1 << 9;
    }

    /// PFCPASReq-Flags (8.2.174).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct PfcpAsReqFlags: u8 {
        /// UE IP address usage information is asked for.
        const UUPSI = 1;
    }

    /// PFCPASRsp-Flags (8.2.123).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct PfcpAsRspFlags: u8 {
        /// Sessions of the previous association were retained.
        const PSREI = 1;
        /// UE IP address usage information is supported.
        const UUPSI = 1 << 1;
    }

    /// PFCPAUReq-Flags (8.2.120).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct PfcpAuReqFlags: u8 {
        /// Release preparation starts: usage reports of all sessions precede the release (5.18).
        const PARPS = 1;
    }

    /// PFCPSEReq-Flags (8.2.128).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct PfcpSeReqFlags: u8 {
        /// The session is restored with its previous identifiers.
        const RESTI = 1;
    }

    /// PFCPSMReq-Flags (8.2.31).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct PfcpSmReqFlags: u8 {
        /// Drop what is buffered.
        const DROBU = 1;
        /// Send End Markers.
        const SNDEM = 1 << 1;
        /// Report all URRs at once.
        const QAURR = 1 << 2;
    }

    /// PFCPSRReq-Flags (8.2.119).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct PfcpSrReqFlags: u8 {
        /// The session is deleted by the UP function.
        const PSDBU = 1;
    }

    /// PFCPSRRsp-Flags (8.2.32).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct PfcpSrRspFlags: u8 {
        /// Drop what is buffered.
        const DROBU = 1;
    }

    /// Report Type (8.2.21).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct ReportType: u8 {
        /// Downlink data.
        const DLDR = 1;
        /// Usage.
        const USAR = 1 << 1;
        /// Error Indication.
        const ERIR = 1 << 2;
        /// User plane inactivity.
        const UPIR = 1 << 3;
        /// TSC management information.
        const TMIR = 1 << 4;
        /// Session.
        const SESR = 1 << 5;
        /// The UP function starts a change of its own.
        const UISR = 1 << 6;
    }

    /// Reporting Triggers (8.2.19).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct ReportingTriggers: u32 {
        /// Periodic.
        const PERIO = 1;
        /// Volume threshold.
        const VOLTH = 1 << 1;
        /// Time threshold.
        const TIMTH = 1 << 2;
        /// Quota holding time.
        const QUHTI = 1 << 3;
        /// Start of traffic.
        const START = 1 << 4;
        /// Stop of traffic.
        const STOPT = 1 << 5;
        /// Dropped downlink traffic threshold.
        const DROTH = 1 << 6;
        /// Linked usage.
        const LIUSA = 1 << 7;
        /// Volume quota.
        const VOLQU = 1 << 8;
        /// Time quota.
        const TIMQU = 1 << 9;
        /// Envelope closure.
        const ENVCL = 1 << 10;
        /// MAC addresses.
        const MACAR = 1 << 11;
        /// Event threshold.
        const EVETH = 1 << 12;
        /// Event quota.
        const EVEQU = 1 << 13;
        /// IP multicast join or leave.
        const IPMJL = 1 << 14;
        /// Quota validity time.
        const QUVTI = 1 << 15;
        /// Reporting of the end marker.
        const REEMR = 1 << 16;
        /// User plane inactivity timer.
        const UPINT = 1 << 17;
    }

    /// UP Function Features (8.2.25).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct UpFunctionFeatures: u64 {
        /// Downlink buffering in the CP function.
        const BUCP = 1;
        /// Downlink Data Notification Delay.
        const DDND = 1 << 1;
        /// DL Buffering Duration.
        const DLBD = 1 << 2;
        /// Traffic steering.
        const TRST = 1 << 3;
        /// F-TEIDs allocated by the UP function.
        const FTUP = 1 << 4;
        /// PFD management.
        const PFDM = 1 << 5;
        /// Header enrichment of uplink traffic.
        const HEEU = 1 << 6;
        /// Traffic redirection.
        const TREU = 1 << 7;
        /// End Markers sent by the UP function.
        const EMPU = 1 << 8;
        /// PDI optimised signalling: traffic endpoints.
        const PDIU = 1 << 9;
        /// UL/DL buffering control.
        const UDBC = 1 << 10;
        /// Quota action.
        const QUOAC = 1 << 11;
        /// Trace.
        const TRACE = 1 << 12;
        /// Framed routing.
        const FRRT = 1 << 13;
        /// PFD contents with several values per property.
        const PFDE = 1 << 14;
        /// Enhanced association release.
        const EPFAR = 1 << 15;
        /// Deferred PDR activation or deactivation.
        const DPDRA = 1 << 16;
        /// Activation and deactivation of predefined PDRs.
        const ADPDP = 1 << 17;
        /// UE IP addresses allocated by the UP function.
        const UEIP = 1 << 18;
        /// Sessions controlled in turn by the SMFs of a set.
        const SSET = 1 << 19;
        /// Measurement of numbers of packets.
        const MNOP = 1 << 20;
        /// Several traffic endpoints in one PDI.
        const MTE = 1 << 21;
        /// Bundled messages.
        const BUNDL = 1 << 22;
        /// 5G VN group communication.
        const GCOM = 1 << 23;
        /// Several associations to the SMFs of a set.
        const MPAS = 1 << 24;
        /// Redundant transmission at transport layer.
        const RTTL = 1 << 25;
        /// Quota validity time.
        const VTIME = 1 << 26;
        /// Number of reports in a URR.
        const NORP = 1 << 27;
        /// IPTV service.
        const IPTV = 1 << 28;
        /// UE IPv6 prefixes other than /64.
        const IP6PL = 1 << 29;
        /// Time sensitive communication.
        const TSCU = 1 << 30;
        /// MPTCP proxy.
        const MPTCP = 1 << 31;
        /// ATSSS lower-layer steering.
        const ATSSS_LL = 1 << 32;
        /// QoS monitoring per flow.
        const QFQM = 1 << 33;
        /// QoS monitoring per GTP-U path.
        const GPQM = 1 << 34;
        /// Mobile terminated early data transmission.
        const MT_EDT = 1 << 35;
        /// Cellular IoT optimisations.
        const CIOT = 1 << 36;
        /// Ethernet PDU session anchor relocation.
        const ETHAR = 1 << 37;
        /// Reporting of the delivery status of downlink data.
        const DDDS = 1 << 38;
        /// Reliable data service.
        const RDS = 1 << 39;
        /// Round trip time measurement without PMF.
        const RTTWP = 1 << 40;
        /// URR with an exempted application or flow.
        const QUASF = 1 << 41;
        /// Start and pause of charging.
        const NSPOC = 1 << 42;
        /// L2TP.
        const L2TP = 1 << 43;
        /// Uplink packet buffering.
        const UPBER = 1 << 44;
        /// Restoration of sessions by FQ-CSID, group or CP address (Session Set Modification).
        const RESPS = 1 << 45;
        /// IP address and port number replacement.
        const IPREP = 1 << 46;
        /// DNS traffic steering.
        const DNSTS = 1 << 47;
        /// Direct reporting of QoS monitoring.
        const DRQOS = 1 << 48;
        /// Multicast and broadcast, by N4.
        const MBSN4 = 1 << 49;
        /// Per slice usage of UE addresses.
        const PSUPRM = 1 << 50;
        /// Paging policy indicator for E-UTRAN.
        const EPPPI = 1 << 51;
    }
    /// Usage Information (8.2.59).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct UsageInformation: u8 {
        /// Usage before a Monitoring Time.
        const BEF = 1;
        /// Usage after a Monitoring Time.
        const AFT = 1 << 1;
        /// Usage after QoS was enforced.
        const UAE = 1 << 2;
        /// Usage before QoS was enforced.
        const UBE = 1 << 3;
    }

    /// Usage Report Trigger (8.2.41).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct UsageReportTrigger: u32 {
        /// Periodic.
        const PERIO = 1;
        /// Volume threshold.
        const VOLTH = 1 << 1;
        /// Time threshold.
        const TIMTH = 1 << 2;
        /// Quota holding time.
        const QUHTI = 1 << 3;
        /// Start of traffic.
        const START = 1 << 4;
        /// Stop of traffic.
        const STOPT = 1 << 5;
        /// Dropped downlink traffic threshold.
        const DROTH = 1 << 6;
        /// Asked for by the CP function.
        const IMMER = 1 << 7;
        /// Volume quota.
        const VOLQU = 1 << 8;
        /// Time quota.
        const TIMQU = 1 << 9;
        /// Linked usage.
        const LIUSA = 1 << 10;
        /// The URR, or the last PDR that named it, is gone.
        const TERMR = 1 << 11;
        /// Monitoring time.
        const MONIT = 1 << 12;
        /// Envelope closure.
        const ENVCL = 1 << 13;
        /// MAC addresses.
        const MACAR = 1 << 14;
        /// Event threshold.
        const EVETH = 1 << 15;
        /// Event quota.
        const EVEQU = 1 << 16;
        /// The session is deleted by the UP function.
        const TEBUR = 1 << 17;
        /// IP multicast join or leave.
        const IPMJL = 1 << 18;
        /// Quota validity time.
        const QUVTI = 1 << 19;
        /// End marker received.
        const EMRRE = 1 << 20;
        /// User plane inactivity timer.
        const UPINT = 1 << 21;
    }
}
