//! Decodes everything in a datagram, as deep as the types go.

use std::fmt::{self, Write};

use pfcp::ie::*;
use pfcp::message::*;
use pfcp::{Cause, Error, FromIe, Ie, IeType, Ies, Message, MessageType, Repeated, ToIe};

/// Swallows what is written.
struct Nowhere;

impl Write for Nowhere {
    fn write_str(&mut self, _: &str) -> fmt::Result {
        Ok(())
    }
}

/// Decodes each message of a datagram with its view, and formats it, which decodes every member.
pub fn datagram(datagram: &[u8]) -> Result<usize, Error> {
    let mut messages = 0;
    let mut left = datagram;
    loop {
        let at = datagram.len() - left.len();
        let message = pfcp::decode(left).map_err(|error| error.shifted(at))?;
        let decoded = message_of_any_type(&message).map_err(|error| error.shifted(at));
        if let Err(error) = &decoded {
            assert!(error.offset <= datagram.len(), "{error}");
            let _ = write!(
                Nowhere,
                "{error} {:?} {}",
                error.offending_ie(),
                error.cause()
            );
        }
        decoded?;
        messages += 1;
        left = message.rest;
        if !message.header.follow_on || left.is_empty() {
            return Ok(messages);
        }
    }
}

fn message_of_any_type(message: &Message<'_>) -> Result<(), Error> {
    macro_rules! format_view {
        ($($view:ident)*) => {
            match message.header.message_type {
                $($view::TYPE => {
                    let view = $view::decode(message)?;
                    let others = view.others().count();
                    let _ = write!(Nowhere, "{view:?} {others}");
                })*
                _ => {}
            }
        };
    }
    let _ = write!(Nowhere, "{:?}", message.ies);
    format_view! {
        HeartbeatRequest HeartbeatResponse PfdManagementRequest PfdManagementResponse
        AssociationSetupRequest AssociationSetupResponse AssociationUpdateRequest
        AssociationUpdateResponse AssociationReleaseRequest AssociationReleaseResponse
        VersionNotSupportedResponse NodeReportRequest NodeReportResponse SessionSetDeletionRequest
        SessionSetDeletionResponse SessionSetModificationRequest SessionSetModificationResponse
        SessionEstablishmentRequest SessionEstablishmentResponse SessionModificationRequest
        SessionModificationResponse SessionDeletionRequest SessionDeletionResponse
        SessionReportRequest SessionReportResponse
    }
    match message.header.message_type {
        MessageType::SESSION_ESTABLISHMENT_REQUEST => {
            establishment(&SessionEstablishmentRequest::decode(message)?).map(drop)
        }
        MessageType::SESSION_MODIFICATION_REQUEST => {
            modification(&SessionModificationRequest::decode(message)?).map(drop)
        }
        _ => Ok(()),
    }
}

fn each<'a, T: FromIe<'a>>(
    values: &Repeated<'a, T>,
    mut use_value: impl FnMut(T) -> Result<u64, Error>,
) -> Result<u64, Error> {
    values.iter().try_fold(
        0,
        |sum: u64, value| Ok(sum.wrapping_add(use_value(value?)?)),
    )
}

/// Every rule of an establishment, decoded to its last member as a session layer would. The sum
/// depends on what was decoded, so that a compiler cannot leave any of it out.
pub fn establishment(request: &SessionEstablishmentRequest<'_>) -> Result<u64, Error> {
    Ok(request.cp_f_seid.seid
        ^ each(&request.create_pdrs, |pdr| create_pdr(&pdr))?
        ^ each(&request.create_fars, |far| Ok(create_far(&far)))?
        ^ each(&request.create_qers, |qer| Ok(create_qer(&qer)))?
        ^ each(&request.create_urrs, |urr| create_urr(&urr))?
        ^ each(&request.create_bars, |bar| Ok(bar.bar_id.into()))?)
}

fn create_urr(urr: &CreateUrr<'_>) -> Result<u64, Error> {
    let quota = urr.volume_quota.and_then(|volume| volume.total);
    Ok(u64::from(urr.urr_id)
        ^ quota.unwrap_or(0)
        ^ u64::from(urr.time_threshold.unwrap_or(0))
        ^ each(&urr.linked_urr_ids, |id| Ok(id.into()))?
        ^ each(&urr.aggregated_urrs, |other| Ok(other.urr_id.into()))?
        ^ each(&urr.additional_monitoring_times, |time| {
            Ok(time.monitoring_time.into())
        })?)
}

fn create_pdr(pdr: &CreatePdr<'_>) -> Result<u64, Error> {
    Ok(u64::from(pdr.pdr_id)
        ^ u64::from(pdr.precedence)
        ^ u64::from(pdr.far_id.unwrap_or(0))
        ^ u64::from(pdr.outer_header_removal.is_some())
        ^ pdi(&pdr.pdi)?
        ^ each(&pdr.qer_ids, |id| Ok(id.into()))?
        ^ each(&pdr.urr_ids, |id| Ok(id.into()))?)
}

fn pdi(pdi: &Pdi<'_>) -> Result<u64, Error> {
    let teid = match pdi.f_teid {
        Some(FTeid::Given { teid, .. }) => teid,
        _ => 0,
    };
    Ok(u64::from(teid)
        ^ pdi.source_interface as u64
        ^ pdi
            .network_instance
            .map_or(0, |name| name.as_bytes().len() as u64)
        ^ each(&pdi.ue_ip_addresses, |ue| {
            Ok(ue.ipv4.map_or(0, |ip| ip.to_bits()).into())
        })?
        ^ each(&pdi.sdf_filters, |filter| {
            Ok(filter.flow_description.map_or(0, |text| text.len() as u64))
        })?
        ^ each(&pdi.qfis, |qfi| Ok(qfi.0.into()))?
        ^ each(&pdi.traffic_endpoint_ids, |id| Ok(id.into()))?
        ^ each(&pdi.framed_routes, |text| Ok(text.len() as u64))?
        ^ each(&pdi.framed_ipv6_routes, |text| Ok(text.len() as u64))?
        ^ u64::from(pdi.framed_routing.unwrap_or(0)))
}

fn create_far(far: &CreateFar<'_>) -> u64 {
    let outer = far
        .forwarding_parameters
        .and_then(|to| to.outer_header_creation);
    u64::from(far.far_id)
        ^ u64::from(far.apply_action.bits())
        ^ u64::from(outer.and_then(|outer| outer.teid).unwrap_or(0))
        ^ u64::from(far.bar_id.unwrap_or(0))
}

fn create_qer(qer: &CreateQer<'_>) -> u64 {
    let mbr = qer.mbr.map_or(0, |mbr| mbr.uplink_kbps ^ mbr.downlink_kbps);
    u64::from(qer.qer_id) ^ qer.gate_status.uplink as u64 ^ mbr
}

/// As [`establishment`], of a modification.
pub fn modification(request: &SessionModificationRequest<'_>) -> Result<u64, Error> {
    Ok(each(&request.remove_pdrs, |rule| Ok(rule.pdr_id.into()))?
        ^ each(&request.remove_fars, |rule| Ok(rule.far_id.into()))?
        ^ each(&request.remove_qers, |rule| Ok(rule.qer_id.into()))?
        ^ each(&request.remove_urrs, |rule| Ok(rule.urr_id.into()))?
        ^ each(&request.remove_bars, |rule| Ok(rule.bar_id.into()))?
        ^ each(&request.create_pdrs, |pdr| create_pdr(&pdr))?
        ^ each(&request.create_fars, |far| Ok(create_far(&far)))?
        ^ each(&request.create_qers, |qer| Ok(create_qer(&qer)))?
        ^ each(&request.create_urrs, |urr| create_urr(&urr))?
        ^ each(&request.create_bars, |bar| Ok(bar.bar_id.into()))?
        ^ each(&request.update_pdrs, |pdr| update_pdr(&pdr))?
        ^ each(&request.update_fars, |far| Ok(update_far(&far)))?
        ^ each(&request.update_qers, |qer| Ok(update_qer(&qer)))?
        ^ each(&request.update_urrs, |urr| Ok(urr.urr_id.into()))?
        ^ each(&request.update_bars, |bar| Ok(bar.bar_id.into()))?
        ^ each(&request.query_urrs, |urr| Ok(urr.urr_id.into()))?)
}

fn update_pdr(pdr: &UpdatePdr<'_>) -> Result<u64, Error> {
    let pdi = pdr.pdi.as_ref().map_or(Ok(0), pdi)?;
    Ok(u64::from(pdr.pdr_id) ^ pdi ^ each(&pdr.qer_ids, |id| Ok(id.into()))?)
}

fn update_far(far: &UpdateFar<'_>) -> u64 {
    let outer = far
        .update_forwarding_parameters
        .and_then(|to| to.outer_header_creation);
    u64::from(far.far_id) ^ u64::from(outer.and_then(|outer| outer.teid).unwrap_or(0))
}

fn update_qer(qer: &UpdateQer<'_>) -> u64 {
    u64::from(qer.qer_id) ^ qer.mbr.map_or(0, |mbr| mbr.uplink_kbps)
}

/// What decodes and is encoded again decodes to the same value. Panics if it does not.
pub fn reencode(datagram: &[u8]) {
    let Ok(message) = pfcp::decode(datagram) else {
        return;
    };
    reencode_ies(message.ies, 0);
}

/// Deeper than any message nests, so that every grouped IE is met; octets that are no group end it.
const DEPTH: usize = 6;

fn reencode_ies(ies: Ies<'_>, depth: usize) {
    macro_rules! same_again {
        ($ie:ident, $($ie_type:ident $type:ty,)*) => {
            match $ie.ie_type {
                $(IeType::$ie_type => if let Ok(value) = <$type>::from_ie(&$ie) {
                    let mut octets = Vec::new();
                    value.to_ie(&mut octets);
                    let again = Ie { value: &octets, ..$ie };
                    assert_eq!(<$type>::from_ie(&again), Ok(value));
                },)*
                _ if depth < DEPTH => reencode_ies($ie.ies(), depth + 1),
                _ => {}
            }
        };
    }
    for ie in ies.iter().map_while(Result::ok) {
        same_again! {
            ie,
            APPLY_ACTION ApplyAction,
            CAUSE Cause,
            DESTINATION_INTERFACE DestinationInterface,
            DOWNLINK_DATA_SERVICE_INFORMATION DownlinkDataServiceInformation,
            DL_BUFFERING_SUGGESTED_PACKET_COUNT PacketCount,
            F_SEID FSeid,
            F_TEID FTeid,
            FAILED_RULE_ID FailedRuleId,
            FAR_ID u32,
            GATE_STATUS GateStatus,
            GRACEFUL_RELEASE_PERIOD Timer,
            MBR Mbr,
            NETWORK_INSTANCE NetworkInstance<'_>,
            NODE_ID NodeId<'_>,
            OFFENDING_IE IeType,
            OUTER_HEADER_CREATION OuterHeaderCreation,
            OUTER_HEADER_REMOVAL OuterHeaderRemoval,
            PDN_TYPE PdnType,
            PDR_ID u16,
            QFI Qfi,
            RECOVERY_TIME_STAMP RecoveryTimeStamp,
            REMOTE_GTP_U_PEER RemoteGtpUPeer<'_>,
            REPORT_TYPE ReportType,
            REPORTING_TRIGGERS ReportingTriggers,
            SDF_FILTER SdfFilter<'_>,
            SOURCE_INTERFACE SourceInterface,
            UE_IP_ADDRESS UeIpAddress,
            UP_FUNCTION_FEATURES UpFunctionFeatures,
            USER_PLANE_IP_RESOURCE_INFORMATION UserPlaneIpResourceInformation<'_>,
            DROPPED_DL_TRAFFIC_THRESHOLD DroppedDlTraffic,
            MEASUREMENT_INFORMATION MeasurementInformation,
            MULTIPLIER Multiplier,
            ADDITIONAL_USAGE_REPORTS_INFORMATION AdditionalUsageReports,
            SUBSEQUENT_VOLUME_QUOTA Volume,
            SUBSEQUENT_VOLUME_THRESHOLD Volume,
            TIME_QUOTA_MECHANISM TimeQuotaMechanism,
            USAGE_INFORMATION UsageInformation,
            USAGE_REPORT_TRIGGER UsageReportTrigger,
            VOLUME_MEASUREMENT VolumeMeasurement,
            VOLUME_QUOTA Volume,
            VOLUME_THRESHOLD Volume,
        }
    }
}
