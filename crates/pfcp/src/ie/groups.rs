//! Grouped IEs: what a session is made of (TS 29.244, 7.5.2 to 7.5.8).

use super::{
    ApplyAction, DestinationInterface, DownlinkDataServiceInformation, FTeid, ForwardingPolicy,
    GateStatus, Gbr, Mbr, NetworkInstance, OuterHeaderCreation, OuterHeaderRemoval, PacketCount,
    PacketRate, PfcpSmReqFlags, Qfi, RemoteGtpUPeer, SdfFilter, SourceInterface, TgppInterfaceType,
    Timer, UeIpAddress, view,
};
use crate::{Error, FromIe, Ie};

/// Lets a [`view!`] be decoded from the IE that holds it.
macro_rules! grouped {
    (#[$inline:meta] $($name:ident,)*) => {$(
        impl<'a> FromIe<'a> for $name<'a> {
            #[$inline]
            fn from_ie(ie: &Ie<'a>) -> Result<Self, Error> {
                Self::from_ies(ie.ies())
            }
        }
    )*};
}
pub(super) use grouped;

grouped! {
    #[inline(never)]
    CreateBar, CreateFar, CreatePdr, CreateQer, CreatedPdr, DownlinkDataReport,
    DuplicatingParameters, UpdateDuplicatingParameters,
    ErrorIndicationReport, RemoveBar, RemoveFar, RemovePdr, RemoveQer,
    CreateTrafficEndpoint, CreatedTrafficEndpoint, RemoveTrafficEndpoint, UpdateTrafficEndpoint,
    UpdateBar, UpdateFar, UpdatePdr, UpdateQer, UserPlanePathFailureReport,
    UserPlanePathRecoveryReport,
}

// Members of the groups above: decoded where they will lie, not copied there.
grouped! {
    #[inline(always)]
    ForwardingParameters, Pdi, UpdateForwardingParameters,
}

view! {
    /// Create PDR (7.5.2.2).
    pub struct CreatePdr<'a> {
        required {
            /// PDR ID (8.2.36).
            pdr_id: u16 = PDR_ID,
            /// Precedence (8.2.11): the lowest value is tried first.
            precedence: u32 = PRECEDENCE,
            /// PDI (7.5.2.2-2).
            pdi: Pdi<'a> = PDI,
        }
        optional {
            /// Outer Header Removal (8.2.64).
            outer_header_removal: OuterHeaderRemoval = OUTER_HEADER_REMOVAL,
            /// FAR ID (8.2.74).
            far_id: u32 = FAR_ID,
            /// Activation Time (8.2.121): NTP seconds.
            activation_time: u32 = ACTIVATION_TIME,
            /// Deactivation Time (8.2.122): NTP seconds.
            deactivation_time: u32 = DEACTIVATION_TIME,
        }
        repeated {
            /// URR ID (8.2.54).
            urr_ids: u32 = URR_ID,
            /// QER ID (8.2.75).
            qer_ids: u32 = QER_ID,
        }
    }
}

view! {
    /// Packet Detection Information of a new or a changed PDR (7.5.2.2-2).
    pub struct Pdi<'a> {
        required {
            /// Source Interface (8.2.2).
            source_interface: SourceInterface = SOURCE_INTERFACE,
        }
        optional {
            /// Local F-TEID (8.2.3).
            f_teid: FTeid = F_TEID,
            /// Network Instance (8.2.4).
            network_instance: NetworkInstance<'a> = NETWORK_INSTANCE,
            /// Source 3GPP Interface Type (8.2.118).
            tgpp_interface_type: TgppInterfaceType = TGPP_INTERFACE_TYPE,
            /// Framed-Routing (8.2.110): the value of the RADIUS attribute (RFC 2865, 5.10).
            framed_routing: u32 = FRAMED_ROUTING,
            /// Application ID (8.2.6).
            application_id: &'a [u8] = APPLICATION_ID,
        }
        repeated {
            /// UE IP Address (8.2.62).
            ue_ip_addresses: UeIpAddress = UE_IP_ADDRESS,
            /// SDF Filter (8.2.5): any of them matches.
            sdf_filters: SdfFilter<'a> = SDF_FILTER,
            /// QFI (8.2.89): any of them matches.
            qfis: Qfi = QFI,
            /// Traffic Endpoint ID (8.2.92): where the endpoint and the addresses are; more than one with MTE only.
            traffic_endpoint_ids: u8 = TRAFFIC_ENDPOINT_ID,
            /// Framed-Route (8.2.109): the text of the RADIUS attribute (RFC 2865, 5.22).
            framed_routes: &'a [u8] = FRAMED_ROUTE,
            /// Framed-IPv6-Route (8.2.111): the text of the RADIUS attribute (RFC 3162, 2.5).
            framed_ipv6_routes: &'a [u8] = FRAMED_IPV6_ROUTE,
        }
    }
}

view! {
    /// Update PDR (7.5.4.2).
    pub struct UpdatePdr<'a> {
        required {
            /// PDR ID (8.2.36).
            pdr_id: u16 = PDR_ID,
        }
        optional {
            /// Outer Header Removal (8.2.64).
            outer_header_removal: OuterHeaderRemoval = OUTER_HEADER_REMOVAL,
            /// Precedence (8.2.11).
            precedence: u32 = PRECEDENCE,
            /// PDI (7.5.2.2-2): replaces the one before.
            pdi: Pdi<'a> = PDI,
            /// FAR ID (8.2.74).
            far_id: u32 = FAR_ID,
            /// Activation Time (8.2.121): NTP seconds.
            activation_time: u32 = ACTIVATION_TIME,
            /// Deactivation Time (8.2.122): NTP seconds.
            deactivation_time: u32 = DEACTIVATION_TIME,
        }
        repeated {
            /// URR ID (8.2.54).
            urr_ids: u32 = URR_ID,
            /// QER ID (8.2.75).
            qer_ids: u32 = QER_ID,
        }
    }
}

view! {
    /// Remove PDR (7.5.4.6).
    pub struct RemovePdr<'a> {
        required {
            /// PDR ID (8.2.36).
            pdr_id: u16 = PDR_ID,
        }
        optional {}
        repeated {}
    }
}

view! {
    /// Created PDR (7.5.3.2).
    pub struct CreatedPdr<'a> {
        required {
            /// PDR ID (8.2.36).
            pdr_id: u16 = PDR_ID,
        }
        optional {
            /// Local F-TEID (8.2.3) that the UP function chose.
            f_teid: FTeid = F_TEID,
        }
        repeated {
            /// UE IP Address (8.2.62) that the UP function chose.
            ue_ip_addresses: UeIpAddress = UE_IP_ADDRESS,
        }
    }
}

view! {
    /// Create FAR (7.5.2.3).
    pub struct CreateFar<'a> {
        required {
            /// FAR ID (8.2.74).
            far_id: u32 = FAR_ID,
            /// Apply Action (8.2.26).
            apply_action: ApplyAction = APPLY_ACTION,
        }
        optional {
            /// Forwarding Parameters (7.5.2.3-2).
            forwarding_parameters: ForwardingParameters<'a> = FORWARDING_PARAMETERS,
            /// BAR ID (8.2.57).
            bar_id: u8 = BAR_ID,
        }
        repeated {
            /// Duplicating Parameters (7.5.2.3-3), one for each destination.
            duplicating_parameters: DuplicatingParameters<'a> = DUPLICATING_PARAMETERS,
        }
    }
}

view! {
    /// Duplicating Parameters (7.5.2.3-3).
    pub struct DuplicatingParameters<'a> {
        required {
            /// Destination Interface (8.2.24).
            destination_interface: DestinationInterface = DESTINATION_INTERFACE,
        }
        optional {
            /// Outer Header Creation (8.2.56).
            outer_header_creation: OuterHeaderCreation = OUTER_HEADER_CREATION,
            /// Transport Level Marking (8.2.12): value and mask.
            transport_level_marking: u16 = TRANSPORT_LEVEL_MARKING,
        }
        repeated {}
    }
}

view! {
    /// Forwarding Parameters (7.5.2.3-2).
    pub struct ForwardingParameters<'a> {
        required {
            /// Destination Interface (8.2.24).
            destination_interface: DestinationInterface = DESTINATION_INTERFACE,
        }
        optional {
            /// Network Instance (8.2.4).
            network_instance: NetworkInstance<'a> = NETWORK_INSTANCE,
            /// Outer Header Creation (8.2.56).
            outer_header_creation: OuterHeaderCreation = OUTER_HEADER_CREATION,
            /// Transport Level Marking (8.2.12): value and mask.
            transport_level_marking: u16 = TRANSPORT_LEVEL_MARKING,
            /// Destination 3GPP Interface Type (8.2.118).
            tgpp_interface_type: TgppInterfaceType = TGPP_INTERFACE_TYPE,
            /// Linked Traffic Endpoint ID (8.2.92): of the traffic in the reverse direction.
            linked_traffic_endpoint_id: u8 = TRAFFIC_ENDPOINT_ID,
            /// Forwarding Policy (8.2.23).
            forwarding_policy: ForwardingPolicy<'a> = FORWARDING_POLICY,
        }
        repeated {}
    }
}

view! {
    /// Update FAR (7.5.4.3).
    pub struct UpdateFar<'a> {
        required {
            /// FAR ID (8.2.74).
            far_id: u32 = FAR_ID,
        }
        optional {
            /// Apply Action (8.2.26).
            apply_action: ApplyAction = APPLY_ACTION,
            /// Update Forwarding Parameters (7.5.4.3-2).
            update_forwarding_parameters: UpdateForwardingParameters<'a> =
                UPDATE_FORWARDING_PARAMETERS,
            /// BAR ID (8.2.57).
            bar_id: u8 = BAR_ID,
        }
        repeated {
            /// Update Duplicating Parameters (7.5.4.3-3).
            update_duplicating_parameters: UpdateDuplicatingParameters<'a> =
                UPDATE_DUPLICATING_PARAMETERS,
        }
    }
}

view! {
    /// Update Duplicating Parameters (7.5.4.3-3): what is absent stays as it was.
    pub struct UpdateDuplicatingParameters<'a> {
        required {}
        optional {
            /// Destination Interface (8.2.24).
            destination_interface: DestinationInterface = DESTINATION_INTERFACE,
            /// Outer Header Creation (8.2.56).
            outer_header_creation: OuterHeaderCreation = OUTER_HEADER_CREATION,
            /// Transport Level Marking (8.2.12): value and mask.
            transport_level_marking: u16 = TRANSPORT_LEVEL_MARKING,
        }
        repeated {}
    }
}

view! {
    /// Update Forwarding Parameters (7.5.4.3-2): what is absent stays as it was.
    pub struct UpdateForwardingParameters<'a> {
        required {}
        optional {
            /// Destination Interface (8.2.24).
            destination_interface: DestinationInterface = DESTINATION_INTERFACE,
            /// Network Instance (8.2.4).
            network_instance: NetworkInstance<'a> = NETWORK_INSTANCE,
            /// Outer Header Creation (8.2.56).
            outer_header_creation: OuterHeaderCreation = OUTER_HEADER_CREATION,
            /// Transport Level Marking (8.2.12): value and mask.
            transport_level_marking: u16 = TRANSPORT_LEVEL_MARKING,
            /// PFCPSMReq-Flags (8.2.31).
            pfcpsmreq_flags: PfcpSmReqFlags = PFCPSMREQ_FLAGS,
            /// Destination 3GPP Interface Type (8.2.118).
            tgpp_interface_type: TgppInterfaceType = TGPP_INTERFACE_TYPE,
            /// Linked Traffic Endpoint ID (8.2.92): of the traffic in the reverse direction.
            linked_traffic_endpoint_id: u8 = TRAFFIC_ENDPOINT_ID,
            /// Forwarding Policy (8.2.23).
            forwarding_policy: ForwardingPolicy<'a> = FORWARDING_POLICY,
        }
        repeated {}
    }
}

view! {
    /// Remove FAR (7.5.4.7).
    pub struct RemoveFar<'a> {
        required {
            /// FAR ID (8.2.74).
            far_id: u32 = FAR_ID,
        }
        optional {}
        repeated {}
    }
}

view! {
    /// Create QER (7.5.2.5).
    pub struct CreateQer<'a> {
        required {
            /// QER ID (8.2.75).
            qer_id: u32 = QER_ID,
            /// Gate Status (8.2.7).
            gate_status: GateStatus = GATE_STATUS,
        }
        optional {
            /// QER Correlation ID (8.2.10).
            qer_correlation_id: u32 = QER_CORRELATION_ID,
            /// Maximum Bitrate (8.2.8).
            mbr: Mbr = MBR,
            /// Guaranteed Bitrate (8.2.9).
            gbr: Gbr = GBR,
            /// QFI (8.2.89) for packets that a FAR encapsulates.
            qfi: Qfi = QFI,
            /// RQI (8.2.88): bit 0 activates Reflective QoS.
            rqi: u8 = RQI,
            /// Packet Rate (8.2.63).
            packet_rate: PacketRate = PACKET_RATE,
            /// Averaging Window (8.2.115), in milliseconds.
            averaging_window: u32 = AVERAGING_WINDOW,
            /// Paging Policy Indicator (8.2.116): bits 0 to 2.
            ppi: u8 = PAGING_POLICY_INDICATOR,
        }
        repeated {}
    }
}

view! {
    /// Update QER (7.5.4.5).
    pub struct UpdateQer<'a> {
        required {
            /// QER ID (8.2.75).
            qer_id: u32 = QER_ID,
        }
        optional {
            /// Gate Status (8.2.7).
            gate_status: GateStatus = GATE_STATUS,
            /// QER Correlation ID (8.2.10).
            qer_correlation_id: u32 = QER_CORRELATION_ID,
            /// Maximum Bitrate (8.2.8).
            mbr: Mbr = MBR,
            /// Guaranteed Bitrate (8.2.9).
            gbr: Gbr = GBR,
            /// QFI (8.2.89) for packets that a FAR encapsulates.
            qfi: Qfi = QFI,
            /// RQI (8.2.88): bit 0 activates Reflective QoS.
            rqi: u8 = RQI,
            /// Packet Rate (8.2.63).
            packet_rate: PacketRate = PACKET_RATE,
            /// Averaging Window (8.2.115), in milliseconds.
            averaging_window: u32 = AVERAGING_WINDOW,
            /// Paging Policy Indicator (8.2.116): bits 0 to 2.
            ppi: u8 = PAGING_POLICY_INDICATOR,
        }
        repeated {}
    }
}

view! {
    /// Remove QER (7.5.4.9).
    pub struct RemoveQer<'a> {
        required {
            /// QER ID (8.2.75).
            qer_id: u32 = QER_ID,
        }
        optional {}
        repeated {}
    }
}

view! {
    /// Create BAR (7.5.2.6).
    pub struct CreateBar<'a> {
        required {
            /// BAR ID (8.2.57).
            bar_id: u8 = BAR_ID,
        }
        optional {
            /// Downlink Data Notification Delay (8.2.28), in units of 50 ms.
            notification_delay: u8 = DOWNLINK_DATA_NOTIFICATION_DELAY,
            /// Suggested Buffering Packets Count (8.2.100).
            packets: PacketCount = SUGGESTED_BUFFERING_PACKETS_COUNT,
        }
        repeated {}
    }
}

view! {
    /// Update BAR of a modification (7.5.4.11) or of the response to a report (7.5.9.2).
    pub struct UpdateBar<'a> {
        required {
            /// BAR ID (8.2.57).
            bar_id: u8 = BAR_ID,
        }
        optional {
            /// Downlink Data Notification Delay (8.2.28), in units of 50 ms.
            notification_delay: u8 = DOWNLINK_DATA_NOTIFICATION_DELAY,
            /// Suggested Buffering Packets Count (8.2.100).
            packets: PacketCount = SUGGESTED_BUFFERING_PACKETS_COUNT,
            /// DL Buffering Duration (8.2.29), of the response to a report.
            duration: Timer = DL_BUFFERING_DURATION,
            /// DL Buffering Suggested Packet Count (8.2.30), likewise.
            packets_meanwhile: PacketCount = DL_BUFFERING_SUGGESTED_PACKET_COUNT,
        }
        repeated {}
    }
}

view! {
    /// Remove BAR (7.5.4.12).
    pub struct RemoveBar<'a> {
        required {
            /// BAR ID (8.2.57).
            bar_id: u8 = BAR_ID,
        }
        optional {}
        repeated {}
    }
}

view! {
    /// Create Traffic Endpoint (7.5.2.7).
    pub struct CreateTrafficEndpoint<'a> {
        required {
            /// Traffic Endpoint ID (8.2.92), unique in the session.
            traffic_endpoint_id: u8 = TRAFFIC_ENDPOINT_ID,
        }
        optional {
            /// Local F-TEID (8.2.3).
            f_teid: FTeid = F_TEID,
            /// Network Instance (8.2.4).
            network_instance: NetworkInstance<'a> = NETWORK_INSTANCE,
            /// Source 3GPP Interface Type (8.2.118).
            tgpp_interface_type: TgppInterfaceType = TGPP_INTERFACE_TYPE,
            /// Framed-Routing (8.2.110): the value of the RADIUS attribute (RFC 2865, 5.10).
            framed_routing: u32 = FRAMED_ROUTING,
        }
        repeated {
            /// UE IP Address (8.2.62).
            ue_ip_addresses: UeIpAddress = UE_IP_ADDRESS,
            /// QFI (8.2.89): any of them matches.
            qfis: Qfi = QFI,
            /// Framed-Route (8.2.109): the text of the RADIUS attribute (RFC 2865, 5.22).
            framed_routes: &'a [u8] = FRAMED_ROUTE,
            /// Framed-IPv6-Route (8.2.111): the text of the RADIUS attribute (RFC 3162, 2.5).
            framed_ipv6_routes: &'a [u8] = FRAMED_IPV6_ROUTE,
        }
    }
}

view! {
    /// Update Traffic Endpoint (7.5.4.13): what is absent stays as it was, and is in `ies` alone.
    pub struct UpdateTrafficEndpoint<'a> {
        required {
            /// Traffic Endpoint ID (8.2.92).
            traffic_endpoint_id: u8 = TRAFFIC_ENDPOINT_ID,
        }
        optional {}
        repeated {}
    }
}

view! {
    /// Remove Traffic Endpoint (7.5.4.14).
    pub struct RemoveTrafficEndpoint<'a> {
        required {
            /// Traffic Endpoint ID (8.2.92).
            traffic_endpoint_id: u8 = TRAFFIC_ENDPOINT_ID,
        }
        optional {}
        repeated {}
    }
}

view! {
    /// Created Traffic Endpoint (7.5.3.5).
    pub struct CreatedTrafficEndpoint<'a> {
        required {
            /// Traffic Endpoint ID (8.2.92).
            traffic_endpoint_id: u8 = TRAFFIC_ENDPOINT_ID,
        }
        optional {
            /// Local F-TEID (8.2.3) that the UP function chose.
            f_teid: FTeid = F_TEID,
        }
        repeated {
            /// UE IP Address (8.2.62) that the UP function chose.
            ue_ip_addresses: UeIpAddress = UE_IP_ADDRESS,
        }
    }
}

view! {
    /// Downlink Data Report (7.5.8.2).
    pub struct DownlinkDataReport<'a> {
        required {}
        optional {}
        repeated {
            /// PDR ID (8.2.36) of the PDRs that packets have met.
            pdr_ids: u16 = PDR_ID,
            /// Downlink Data Service Information (8.2.27), one for each PDR ID.
            services: DownlinkDataServiceInformation = DOWNLINK_DATA_SERVICE_INFORMATION,
        }
    }
}

view! {
    /// Error Indication Report (7.5.8.4).
    pub struct ErrorIndicationReport<'a> {
        required {}
        optional {}
        repeated {
            /// F-TEID (8.2.3) that the peer does not know.
            remote_f_teids: FTeid = F_TEID,
        }
    }
}

view! {
    /// User Plane Path Failure Report (7.4.5.1.2).
    pub struct UserPlanePathFailureReport<'a> {
        required {}
        optional {}
        repeated {
            /// Remote GTP-U Peer (8.2.70).
            peers: RemoteGtpUPeer<'a> = REMOTE_GTP_U_PEER,
        }
    }
}

view! {
    /// User Plane Path Recovery Report (7.4.5.1.3).
    pub struct UserPlanePathRecoveryReport<'a> {
        required {}
        optional {}
        repeated {
            /// Remote GTP-U Peer (8.2.70).
            peers: RemoteGtpUPeer<'a> = REMOTE_GTP_U_PEER,
        }
    }
}
