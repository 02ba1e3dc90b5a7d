//! IEs whose meaning we know and cannot honour, by the place where they stand.
//!
//! An IE that would change what packets meet is refused, never accepted and ignored. IEs without
//! such effect, vendors' IEs, and IEs of later releases that no feature of ours invites, are skipped
//! (TS 29.244, 7.6.9).

use pfcp::{IeType, Ies};

use crate::base::refusal::Refusal;

/// A set of IE types.
#[derive(Debug)]
pub(crate) struct Unsupported([u64; Self::WORDS]);

impl Unsupported {
    const WORDS: usize = 6;

    const fn new(types: &[IeType]) -> Self {
        Self([0; Self::WORDS]).and(types)
    }

    const fn and(mut self, types: &[IeType]) -> Self {
        let mut i = 0;
        while i < types.len() {
            self.0[types[i].0 as usize / 64] |= 1 << (types[i].0 % 64);
            i += 1;
        }
        self
    }

    /// The first of `ies` that is in the set.
    pub(crate) fn find(&self, ies: Ies<'_>) -> Option<IeType> {
        ies.iter()
            .map_while(Result::ok)
            .map(|ie| ie.ie_type)
            .find(|&t| self.has(t))
    }

    fn has(&self, ie_type: IeType) -> bool {
        let word = self
            .0
            .get(usize::from(ie_type.0) / 64)
            .copied()
            .unwrap_or(0);
        word >> (ie_type.0 % 64) & 1 == 1
    }
}

/// Refuses the first of `ies` that is in the set.
pub(crate) fn refuse(unsupported: &Unsupported, ies: Ies<'_>) -> Result<(), Refusal> {
    match unsupported.find(ies) {
        Some(ie) => Err(Refusal::rule(ie)),
        None => Ok(()),
    }
}

/// Of Session Establishment and Modification Requests.
pub(crate) static IN_SESSION: Unsupported = Unsupported::new(&[
    IeType::ETHERNET_CONTEXT_INFORMATION,
    IeType::CREATE_MAR,
    IeType::UPDATE_MAR,
    IeType::REMOVE_MAR,
    IeType::CREATE_SRR,
    IeType::UPDATE_SRR,
    IeType::REMOVE_SRR,
    IeType::CREATE_BRIDGE_INFO_FOR_TSC,
    IeType::TSC_MANAGEMENT_INFORMATION_IN_SESSION_MODIFICATION_REQUEST,
    IeType::PROVIDE_ATSSS_CONTROL_INFORMATION,
    IeType::ACCESS_AVAILABILITY_INFORMATION,
    IeType::PROVIDE_RDS_CONFIGURATION_INFORMATION,
    IeType::QUERY_PACKET_RATE_STATUS,
    IeType::L2TP_TUNNEL_INFORMATION,
    IeType::L2TP_SESSION_INFORMATION,
    IeType::MBS_SESSION_N4MB_CONTROL_INFORMATION,
    IeType::MBS_SESSION_N4_CONTROL_INFORMATION,
    IeType::DSCP_TO_PPI_CONTROL_INFORMATION,
    IeType::DIRECT_REPORTING_INFORMATION,
]);

/// Of Create PDR and Update PDR.
pub(crate) static IN_PDR: Unsupported = Unsupported::new(PDR_LACKS);

/// The same, and what we can do but few PDRs ask for, so that one look finds either.
pub(crate) static RARE_IN_PDR: Unsupported = Unsupported::new(PDR_LACKS).and(&[
    IeType::ACTIVATE_PREDEFINED_RULES,
    IeType::DEACTIVATE_PREDEFINED_RULES,
]);

const PDR_LACKS: &[IeType] = &[
    IeType::MAR_ID,
    IeType::PACKET_REPLICATION_AND_DETECTION_CARRY_ON_INFORMATION,
    IeType::IP_MULTICAST_ADDRESSING_INFO,
    IeType::UE_IP_ADDRESS_POOL_IDENTITY,
    IeType::MPTCP_APPLICABLE_INDICATION,
    IeType::TRANSPORT_DELAY_REPORTING,
];

/// Of a PDI.
pub(crate) static IN_PDI: Unsupported = Unsupported::new(&[
    IeType::ETHERNET_PDU_SESSION_INFORMATION,
    IeType::ETHERNET_PACKET_FILTER,
    IeType::REDUNDANT_TRANSMISSION_PARAMETERS,
    IeType::IP_MULTICAST_ADDRESSING_INFO,
    IeType::DNS_QUERY_RESPONSE_FILTER,
    IeType::MBS_SESSION_IDENTIFIER,
    IeType::AREA_SESSION_ID,
    IeType::LOCAL_INGRESS_TUNNEL,
]);

/// Of Create and Update Traffic Endpoint.
pub(crate) static IN_ENDPOINT: Unsupported = Unsupported::new(&[
    IeType::ETHERNET_PDU_SESSION_INFORMATION,
    IeType::REDUNDANT_TRANSMISSION_PARAMETERS,
    IeType::IP_MULTICAST_ADDRESSING_INFO,
    IeType::MBS_SESSION_IDENTIFIER,
    IeType::AREA_SESSION_ID,
    IeType::LOCAL_INGRESS_TUNNEL,
]);

/// Of Create FAR and Update FAR.
pub(crate) static IN_FAR: Unsupported = Unsupported::new(&[
    IeType::REDUNDANT_TRANSMISSION_FORWARDING_PARAMETERS,
    IeType::MBS_MULTICAST_PARAMETERS,
    IeType::ADD_MBS_UNICAST_PARAMETERS,
    IeType::REMOVE_MBS_UNICAST_PARAMETERS,
]);

/// Of Forwarding Parameters and Update Forwarding Parameters.
pub(crate) static IN_FORWARDING: Unsupported = Unsupported::new(&[
    IeType::REDIRECT_INFORMATION,
    IeType::HEADER_ENRICHMENT,
    IeType::PROXYING,
    IeType::DATA_NETWORK_ACCESS_IDENTIFIER,
    IeType::IP_ADDRESS_AND_PORT_NUMBER_REPLACEMENT,
]);

/// Of Duplicating Parameters and Update Duplicating Parameters.
pub(crate) static IN_DUPLICATING: Unsupported = Unsupported::new(&[IeType::FORWARDING_POLICY]);

/// Of Create QER and Update QER.
pub(crate) static IN_QER: Unsupported = Unsupported::new(&[
    // An MBR shared with other sessions.
    IeType::QER_CORRELATION_ID,
    IeType::PACKET_RATE_STATUS,
    // For a TDF and for GERAN access; not of N4 (table 7.5.2.5-1).
    IeType::DL_FLOW_LEVEL_MARKING,
    // Status reports of packet rates, and exception data.
    IeType::QER_CONTROL_INDICATIONS,
    // Sequence numbers for multicast.
    IeType::QER_INDICATIONS,
]);
