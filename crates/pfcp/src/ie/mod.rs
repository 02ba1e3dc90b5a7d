//! The values of IEs (TS 29.244, 8.2) and the grouped IEs (7.5).
//!
//! A value type decodes with [`FromIe`](crate::FromIe) and encodes with [`ToIe`](crate::ToIe). A
//! grouped IE is a view: it holds its decoded members, and in `ies` all that was sent.

pub(crate) use name::write_labels;

mod address;
mod flags;
mod groups;
mod name;
mod node;
mod node_groups;
mod pfd;
mod report;
mod rule;
mod scalar;
mod sdf;
mod sets;
mod usage;

pub use address::{
    FSeid, FTeid, OuterHeaderCreation, OuterHeaderRemoval, RemoteGtpUPeer, UeIpAddress,
};
pub use flags::{
    ApplyAction, AssociationReleaseFlags, CpFunctionFeatures, MeasurementInformation,
    MeasurementMethod, NodeReportType, OuterHeader, PfcpAsReqFlags, PfcpAsRspFlags, PfcpAuReqFlags,
    PfcpSeReqFlags, PfcpSmReqFlags, PfcpSrReqFlags, PfcpSrRspFlags, ReportType, ReportingTriggers,
    UpFunctionFeatures, UsageInformation, UsageReportTrigger,
};
pub use groups::{
    CreateBar, CreateFar, CreatePdr, CreateQer, CreateTrafficEndpoint, CreatedPdr,
    CreatedTrafficEndpoint, DownlinkDataReport, DuplicatingParameters, ErrorIndicationReport,
    ForwardingParameters, Pdi, RemoveBar, RemoveFar, RemovePdr, RemoveQer, RemoveTrafficEndpoint,
    UpdateBar, UpdateDuplicatingParameters, UpdateFar, UpdateForwardingParameters, UpdatePdr,
    UpdateQer, UpdateTrafficEndpoint, UserPlanePathFailureReport, UserPlanePathRecoveryReport,
};
pub use name::{DnsName, NetworkInstance};
pub use node::{NodeId, UserPlaneIpResourceInformation};
pub use node_groups::{ApplicationPfds, PeerUpRestartReport, PfdContext, SessionChangeInfo};
pub use pfd::PfdContents;
pub use report::{DownlinkDataServiceInformation, FailedRuleId, PacketCount, Timer, TimerUnit};
pub use rule::{
    DestinationInterface, ForwardingPolicy, Gate, GateStatus, Gbr, Mbr, PacketRate, PacketRateUnit,
    PacketsPerUnit, PdnType, Qfi, SourceInterface, TgppInterfaceType,
};
pub use scalar::RecoveryTimeStamp;
pub use sdf::SdfFilter;
pub use sets::{CpAddress, FqCsid};
pub use usage::{
    AdditionalMonitoringTime, AdditionalUsageReports, AggregatedUrr, CreateUrr, DroppedDlTraffic,
    Multiplier, QueryUrr, RemoveUrr, TimePeriods, TimeQuotaMechanism, UpdateUrr, UsageReport,
    Volume, VolumeMeasurement,
};

/// A struct over IEs, decoded in one pass whatever their order.
///
/// Of an IE that may not be repeated the first counts (7.6.10); IEs without a member are skipped
/// (7.6.9) and stay listed in `ies`.
macro_rules! view {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident<$a:lifetime> {
            required { $($(#[$rdoc:meta])* $r:ident: $rtype:ty = $rie:ident,)* }
            optional { $($(#[$odoc:meta])* $o:ident: $otype:ty = $oie:ident,)* }
            repeated { $($(#[$mdoc:meta])* $m:ident: $mtype:ty = $mie:ident,)* }
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name<$a> {
            $($(#[$rdoc])* pub $r: $rtype,)*
            $($(#[$odoc])* pub $o: Option<$otype>,)*
            $($(#[$mdoc])* pub $m: $crate::Repeated<$a, $mtype>,)*
            /// Everything that was sent, known or not.
            pub ies: $crate::Ies<$a>,
        }

        impl<$a> $name<$a> {
            /// The IE types that have a member here; others are only in `ies`.
            pub const KNOWN: &'static [$crate::IeType] = &[
                $($crate::IeType::$rie,)* $($crate::IeType::$oie,)* $($crate::IeType::$mie,)*
            ];

            /// IEs without a member here: unknown, not supported, or vendors'.
            pub fn others(&self) -> impl Iterator<Item = $crate::Ie<$a>> + use<$a> {
                let known = |ie: &$crate::Ie<'_>| !Self::KNOWN.contains(&ie.ie_type);
                self.ies.iter().filter_map(Result::ok).filter(known)
            }

            // Moving a view that was just written piece by piece costs more than decoding it.
            #[inline(always)]
            pub(crate) fn from_ies(ies: $crate::Ies<$a>) -> Result<Self, $crate::Error> {
                $(let mut $r: Option<$rtype> = None;)*
                $(let mut $o: Option<$otype> = None;)*
                $(let mut $m = $crate::Repeated::new($crate::IeType::$mie);)*
                for ie in &ies {
                    let ie = ie?;
                    match ie.ie_type {
                        $($crate::IeType::$rie if $r.is_none() => {
                            $r = Some($crate::FromIe::from_ie(&ie)?);
                        })*
                        $($crate::IeType::$oie if $o.is_none() => {
                            $o = Some($crate::FromIe::from_ie(&ie)?);
                        })*
                        $($crate::IeType::$mie => $m.note(&ies, &ie),)*
                        _ => {}
                    }
                }
                Ok(Self {
                    $($r: match $r {
                        Some(value) => value,
                        None => return Err(ies.mandatory_missing($crate::IeType::$rie)),
                    },)*
                    $($o,)*
                    $($m,)*
                    ies,
                })
            }
        }
    };
}
pub(crate) use view;
