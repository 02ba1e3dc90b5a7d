//! The messages (TS 29.244, 7.4 and 7.5), each a view over its IEs.

use crate::error::{Error, ErrorKind};
use crate::ie::{
    AdditionalUsageReports, ApplicationPfds, AssociationReleaseFlags, CpAddress,
    CpFunctionFeatures, CreateBar, CreateFar, CreatePdr, CreateQer, CreateTrafficEndpoint,
    CreateUrr, CreatedPdr, CreatedTrafficEndpoint, DownlinkDataReport, ErrorIndicationReport,
    FSeid, FailedRuleId, FqCsid, NetworkInstance, NodeId, NodeReportType, PdnType,
    PeerUpRestartReport, PfcpAsReqFlags, PfcpAsRspFlags, PfcpAuReqFlags, PfcpSeReqFlags,
    PfcpSmReqFlags, PfcpSrReqFlags, PfcpSrRspFlags, QueryUrr, RecoveryTimeStamp, RemoveBar,
    RemoveFar, RemovePdr, RemoveQer, RemoveTrafficEndpoint, RemoveUrr, ReportType,
    SessionChangeInfo, Timer, UpFunctionFeatures, UpdateBar, UpdateFar, UpdatePdr, UpdateQer,
    UpdateTrafficEndpoint, UpdateUrr, UsageReport, UserPlaneIpResourceInformation,
    UserPlanePathFailureReport, UserPlanePathRecoveryReport, view,
};
use crate::{Cause, IeType, Ies, Message, MessageType};

macro_rules! messages {
    ($($name:ident = $message_type:ident,)*) => {$(
        impl<'a> $name<'a> {
            /// The type of message that this decodes.
            pub const TYPE: MessageType = MessageType::$message_type;

            /// Decodes the IEs of `message`, which must be of [`Self::TYPE`].
            pub fn decode(message: &Message<'a>) -> Result<Self, Error> {
                let found = message.header.message_type;
                if found != Self::TYPE {
                    let kind = ErrorKind::MessageType { expected: Self::TYPE, found };
                    return Err(Error::header(1, kind));
                }
                Self::from_ies(message.ies)
            }
        }
    )*};
}

messages! {
    HeartbeatRequest = HEARTBEAT_REQUEST,
    HeartbeatResponse = HEARTBEAT_RESPONSE,
    PfdManagementRequest = PFD_MANAGEMENT_REQUEST,
    PfdManagementResponse = PFD_MANAGEMENT_RESPONSE,
    AssociationSetupRequest = ASSOCIATION_SETUP_REQUEST,
    AssociationSetupResponse = ASSOCIATION_SETUP_RESPONSE,
    AssociationUpdateRequest = ASSOCIATION_UPDATE_REQUEST,
    AssociationUpdateResponse = ASSOCIATION_UPDATE_RESPONSE,
    AssociationReleaseRequest = ASSOCIATION_RELEASE_REQUEST,
    AssociationReleaseResponse = ASSOCIATION_RELEASE_RESPONSE,
    VersionNotSupportedResponse = VERSION_NOT_SUPPORTED_RESPONSE,
    NodeReportRequest = NODE_REPORT_REQUEST,
    NodeReportResponse = NODE_REPORT_RESPONSE,
    SessionSetDeletionRequest = SESSION_SET_DELETION_REQUEST,
    SessionSetDeletionResponse = SESSION_SET_DELETION_RESPONSE,
    SessionSetModificationRequest = SESSION_SET_MODIFICATION_REQUEST,
    SessionSetModificationResponse = SESSION_SET_MODIFICATION_RESPONSE,
    SessionEstablishmentRequest = SESSION_ESTABLISHMENT_REQUEST,
    SessionEstablishmentResponse = SESSION_ESTABLISHMENT_RESPONSE,
    SessionModificationRequest = SESSION_MODIFICATION_REQUEST,
    SessionModificationResponse = SESSION_MODIFICATION_RESPONSE,
    SessionDeletionRequest = SESSION_DELETION_REQUEST,
    SessionDeletionResponse = SESSION_DELETION_RESPONSE,
    SessionReportRequest = SESSION_REPORT_REQUEST,
    SessionReportResponse = SESSION_REPORT_RESPONSE,
}

view! {
    /// Heartbeat Request (7.4.2.1).
    pub struct HeartbeatRequest<'a> {
        required {
            /// Recovery Time Stamp (8.2.65).
            recovery_time_stamp: RecoveryTimeStamp = RECOVERY_TIME_STAMP,
        }
        optional {
            /// Source IP Address (8.2.142), kept as sent.
            source_ip_address: &'a [u8] = SOURCE_IP_ADDRESS,
        }
        repeated {}
    }
}

view! {
    /// Heartbeat Response (7.4.2.2).
    pub struct HeartbeatResponse<'a> {
        required {
            /// Recovery Time Stamp (8.2.65).
            recovery_time_stamp: RecoveryTimeStamp = RECOVERY_TIME_STAMP,
        }
        optional {}
        repeated {}
    }
}

view! {
    /// PFD Management Request (7.4.3.1).
    pub struct PfdManagementRequest<'a> {
        required {}
        optional {
            /// Node ID (8.2.38).
            node_id: NodeId<'a> = NODE_ID,
        }
        repeated {
            /// Application ID's PFDs (7.4.3.1).
            application_ids_pfds: ApplicationPfds<'a> = APPLICATION_IDS_PFDS,
        }
    }
}

view! {
    /// PFD Management Response (7.4.3.2).
    pub struct PfdManagementResponse<'a> {
        required {
            /// Cause (8.2.1).
            cause: Cause = CAUSE,
        }
        optional {
            /// Offending IE (8.2.22).
            offending_ie: IeType = OFFENDING_IE,
            /// Node ID (8.2.38).
            node_id: NodeId<'a> = NODE_ID,
        }
        repeated {}
    }
}

view! {
    /// Association Setup Request (7.4.4.1), from either side.
    pub struct AssociationSetupRequest<'a> {
        required {
            /// Node ID (8.2.38).
            node_id: NodeId<'a> = NODE_ID,
            /// Recovery Time Stamp (8.2.65).
            recovery_time_stamp: RecoveryTimeStamp = RECOVERY_TIME_STAMP,
        }
        optional {
            /// UP Function Features (8.2.25).
            up_function_features: UpFunctionFeatures = UP_FUNCTION_FEATURES,
            /// CP Function Features (8.2.58).
            cp_function_features: CpFunctionFeatures = CP_FUNCTION_FEATURES,
            /// PFCPASReq-Flags.
            pfcpasreq_flags: PfcpAsReqFlags = PFCPASREQ_FLAGS,
            /// PFCP Session Retention Information (7.4.4.1), kept as sent.
            session_retention_information: Ies<'a> = PFCP_SESSION_RETENTION_INFORMATION,
            /// SMF Set ID (8.2.125), kept as sent.
            smf_set_id: &'a [u8] = SMF_SET_ID,
        }
        repeated {
            /// Alternative SMF IP Address (8.2.124).
            alternatives: CpAddress = ALTERNATIVE_SMF_IP_ADDRESS,
            /// User Plane IP Resource Information (8.2.82).
            user_plane_ip_resources: UserPlaneIpResourceInformation<'a> =
                USER_PLANE_IP_RESOURCE_INFORMATION,
        }
    }
}

view! {
    /// Association Setup Response (7.4.4.2), from either side.
    pub struct AssociationSetupResponse<'a> {
        required {
            /// Node ID (8.2.38).
            node_id: NodeId<'a> = NODE_ID,
            /// Cause (8.2.1).
            cause: Cause = CAUSE,
            /// Recovery Time Stamp (8.2.65).
            recovery_time_stamp: RecoveryTimeStamp = RECOVERY_TIME_STAMP,
        }
        optional {
            /// UP Function Features (8.2.25).
            up_function_features: UpFunctionFeatures = UP_FUNCTION_FEATURES,
            /// CP Function Features (8.2.58).
            cp_function_features: CpFunctionFeatures = CP_FUNCTION_FEATURES,
            /// PFCPASRsp-Flags.
            pfcpasrsp_flags: PfcpAsRspFlags = PFCPASRSP_FLAGS,
        }
        repeated {
            /// User Plane IP Resource Information (8.2.82).
            user_plane_ip_resources: UserPlaneIpResourceInformation<'a> =
                USER_PLANE_IP_RESOURCE_INFORMATION,
        }
    }
}

view! {
    /// Association Update Request (7.4.4.3), from either side.
    pub struct AssociationUpdateRequest<'a> {
        required {
            /// Node ID (8.2.38).
            node_id: NodeId<'a> = NODE_ID,
        }
        optional {
            /// UP Function Features (8.2.25).
            up_function_features: UpFunctionFeatures = UP_FUNCTION_FEATURES,
            /// CP Function Features (8.2.58).
            cp_function_features: CpFunctionFeatures = CP_FUNCTION_FEATURES,
            /// PFCP Association Release Request (8.2.77).
            association_release: AssociationReleaseFlags = PFCP_ASSOCIATION_RELEASE_REQUEST,
            /// Graceful Release Period (8.2.78).
            graceful_release_period: Timer = GRACEFUL_RELEASE_PERIOD,
            /// PFCPAUReq-Flags (8.2.120).
            pfcpaureq_flags: PfcpAuReqFlags = PFCPAUREQ_FLAGS,
            /// SMF Set ID (8.2.125), kept as sent.
            smf_set_id: &'a [u8] = SMF_SET_ID,
        }
        repeated {
            /// Alternative SMF IP Address (8.2.124).
            alternatives: CpAddress = ALTERNATIVE_SMF_IP_ADDRESS,
            /// User Plane IP Resource Information (8.2.82).
            user_plane_ip_resources: UserPlaneIpResourceInformation<'a> =
                USER_PLANE_IP_RESOURCE_INFORMATION,
        }
    }
}

view! {
    /// Association Update Response (7.4.4.4), from either side.
    pub struct AssociationUpdateResponse<'a> {
        required {
            /// Node ID (8.2.38).
            node_id: NodeId<'a> = NODE_ID,
            /// Cause (8.2.1).
            cause: Cause = CAUSE,
        }
        optional {
            /// UP Function Features (8.2.25).
            up_function_features: UpFunctionFeatures = UP_FUNCTION_FEATURES,
            /// CP Function Features (8.2.58).
            cp_function_features: CpFunctionFeatures = CP_FUNCTION_FEATURES,
        }
        repeated {}
    }
}

view! {
    /// Association Release Request (7.4.4.5).
    pub struct AssociationReleaseRequest<'a> {
        required {
            /// Node ID (8.2.38).
            node_id: NodeId<'a> = NODE_ID,
        }
        optional {}
        repeated {}
    }
}

view! {
    /// Association Release Response (7.4.4.6).
    pub struct AssociationReleaseResponse<'a> {
        required {
            /// Node ID (8.2.38).
            node_id: NodeId<'a> = NODE_ID,
            /// Cause (8.2.1).
            cause: Cause = CAUSE,
        }
        optional {}
        repeated {}
    }
}

view! {
    /// Version Not Supported Response (7.4.4.7): nothing but its header.
    pub struct VersionNotSupportedResponse<'a> {
        required {}
        optional {}
        repeated {}
    }
}

view! {
    /// Node Report Request (7.4.5.1).
    pub struct NodeReportRequest<'a> {
        required {
            /// Node ID (8.2.38).
            node_id: NodeId<'a> = NODE_ID,
            /// Node Report Type (8.2.69).
            node_report_type: NodeReportType = NODE_REPORT_TYPE,
        }
        optional {
            /// User Plane Path Failure Report (7.4.5.1.2).
            path_failure: UserPlanePathFailureReport<'a> = USER_PLANE_PATH_FAILURE_REPORT,
            /// User Plane Path Recovery Report (7.4.5.1.3).
            path_recovery: UserPlanePathRecoveryReport<'a> = USER_PLANE_PATH_RECOVERY_REPORT,
            /// Peer UP Restart Report (7.4.5.1.7).
            peer_restart: PeerUpRestartReport<'a> = PEER_UP_RESTART_REPORT,
        }
        repeated {}
    }
}

view! {
    /// Node Report Response (7.4.5.2).
    pub struct NodeReportResponse<'a> {
        required {
            /// Node ID (8.2.38).
            node_id: NodeId<'a> = NODE_ID,
            /// Cause (8.2.1).
            cause: Cause = CAUSE,
        }
        optional {
            /// Offending IE (8.2.22).
            offending_ie: IeType = OFFENDING_IE,
        }
        repeated {}
    }
}

view! {
    /// Session Set Deletion Request (7.4.6.1).
    pub struct SessionSetDeletionRequest<'a> {
        required {
            /// Node ID (8.2.38).
            node_id: NodeId<'a> = NODE_ID,
        }
        optional {}
        repeated {
            /// FQ-CSID (8.2.45), of any kind of node.
            fq_csids: FqCsid<'a> = FQ_CSID,
        }
    }
}

view! {
    /// Session Set Deletion Response (7.4.6.2).
    pub struct SessionSetDeletionResponse<'a> {
        required {
            /// Node ID (8.2.38).
            node_id: NodeId<'a> = NODE_ID,
            /// Cause (8.2.1).
            cause: Cause = CAUSE,
        }
        optional {
            /// Offending IE (8.2.22).
            offending_ie: IeType = OFFENDING_IE,
        }
        repeated {}
    }
}

view! {
    /// Session Set Modification Request (7.4.7.1).
    pub struct SessionSetModificationRequest<'a> {
        required {
            /// Node ID (8.2.38).
            node_id: NodeId<'a> = NODE_ID,
        }
        optional {}
        repeated {
            /// PFCP Session Change Info (7.4.7.1).
            changes: SessionChangeInfo<'a> = PFCP_SESSION_CHANGE_INFO,
        }
    }
}

view! {
    /// Session Set Modification Response (7.4.7.2).
    pub struct SessionSetModificationResponse<'a> {
        required {
            /// Node ID (8.2.38).
            node_id: NodeId<'a> = NODE_ID,
            /// Cause (8.2.1).
            cause: Cause = CAUSE,
        }
        optional {
            /// Offending IE (8.2.22).
            offending_ie: IeType = OFFENDING_IE,
        }
        repeated {}
    }
}

view! {
    /// Session Establishment Request (7.5.2.1).
    pub struct SessionEstablishmentRequest<'a> {
        required {
            /// Node ID (8.2.38).
            node_id: NodeId<'a> = NODE_ID,
            /// CP F-SEID (8.2.37).
            cp_f_seid: FSeid = F_SEID,
        }
        optional {
            /// PDN Type (8.2.79).
            pdn_type: PdnType = PDN_TYPE,
            /// User Plane Inactivity Timer (8.2.83), in seconds.
            user_plane_inactivity_timer: u32 = USER_PLANE_INACTIVITY_TIMER,
            /// User ID (8.2.101), kept as sent.
            user_id: &'a [u8] = USER_ID,
            /// APN/DNN (8.2.117).
            apn_dnn: NetworkInstance<'a> = APN_DNN,
            /// S-NSSAI, kept as sent.
            s_nssai: &'a [u8] = S_NSSAI,
            /// PFCPSEReq-Flags.
            pfcpsereq_flags: PfcpSeReqFlags = PFCPSEREQ_FLAGS,
            /// Group Id (8.2.198), kept as sent.
            group_id: &'a [u8] = GROUP_ID,
        }
        repeated {
            /// FQ-CSID (8.2.45), of any kind of node.
            fq_csids: FqCsid<'a> = FQ_CSID,
            /// Create PDR (7.5.2.2).
            create_pdrs: CreatePdr<'a> = CREATE_PDR,
            /// Create FAR (7.5.2.3).
            create_fars: CreateFar<'a> = CREATE_FAR,
            /// Create URR (7.5.2.4).
            create_urrs: CreateUrr<'a> = CREATE_URR,
            /// Create QER (7.5.2.5).
            create_qers: CreateQer<'a> = CREATE_QER,
            /// Create BAR (7.5.2.6).
            create_bars: CreateBar<'a> = CREATE_BAR,
            /// Create Traffic Endpoint (7.5.2.7).
            create_traffic_endpoints: CreateTrafficEndpoint<'a> = CREATE_TRAFFIC_ENDPOINT,
        }
    }
}

view! {
    /// Session Establishment Response (7.5.3.1).
    pub struct SessionEstablishmentResponse<'a> {
        required {
            /// Node ID (8.2.38).
            node_id: NodeId<'a> = NODE_ID,
            /// Cause (8.2.1).
            cause: Cause = CAUSE,
        }
        optional {
            /// Offending IE (8.2.22).
            offending_ie: IeType = OFFENDING_IE,
            /// UP F-SEID (8.2.37), when the request was accepted.
            up_f_seid: FSeid = F_SEID,
            /// Load Control Information (7.5.3.3), kept as sent.
            load_control_information: Ies<'a> = LOAD_CONTROL_INFORMATION,
            /// Overload Control Information (7.5.3.4), kept as sent.
            overload_control_information: Ies<'a> = OVERLOAD_CONTROL_INFORMATION,
            /// Failed Rule ID (8.2.80).
            failed_rule_id: FailedRuleId = FAILED_RULE_ID,
        }
        repeated {
            /// Created PDR (7.5.3.2).
            created_pdrs: CreatedPdr<'a> = CREATED_PDR,
            /// Created Traffic Endpoint (7.5.3.5).
            created_traffic_endpoints: CreatedTrafficEndpoint<'a> = CREATED_TRAFFIC_ENDPOINT,
        }
    }
}

view! {
    /// Session Modification Request (7.5.4.1).
    pub struct SessionModificationRequest<'a> {
        required {}
        optional {
            /// CP F-SEID (8.2.37), when it changes.
            cp_f_seid: FSeid = F_SEID,
            /// PFCPSMReq-Flags (8.2.31).
            pfcpsmreq_flags: PfcpSmReqFlags = PFCPSMREQ_FLAGS,
            /// Query URR Reference (8.2.90).
            query_urr_reference: u32 = QUERY_URR_REFERENCE,
            /// User Plane Inactivity Timer (8.2.83), in seconds.
            user_plane_inactivity_timer: u32 = USER_PLANE_INACTIVITY_TIMER,
            /// Node ID (8.2.38) of the SMF that takes over.
            node_id: NodeId<'a> = NODE_ID,
        }
        repeated {
            /// Remove PDR (7.5.4.6).
            remove_pdrs: RemovePdr<'a> = REMOVE_PDR,
            /// Remove FAR (7.5.4.7).
            remove_fars: RemoveFar<'a> = REMOVE_FAR,
            /// Remove URR (7.5.4.8).
            remove_urrs: RemoveUrr<'a> = REMOVE_URR,
            /// Remove QER (7.5.4.9).
            remove_qers: RemoveQer<'a> = REMOVE_QER,
            /// Remove BAR (7.5.4.12).
            remove_bars: RemoveBar<'a> = REMOVE_BAR,
            /// Update Traffic Endpoint (7.5.4.13).
            update_traffic_endpoints: UpdateTrafficEndpoint<'a> = UPDATE_TRAFFIC_ENDPOINT,
            /// Remove Traffic Endpoint (7.5.4.14).
            remove_traffic_endpoints: RemoveTrafficEndpoint<'a> = REMOVE_TRAFFIC_ENDPOINT,
            /// Create PDR (7.5.2.2).
            create_pdrs: CreatePdr<'a> = CREATE_PDR,
            /// Create FAR (7.5.2.3).
            create_fars: CreateFar<'a> = CREATE_FAR,
            /// Create URR (7.5.2.4).
            create_urrs: CreateUrr<'a> = CREATE_URR,
            /// Create QER (7.5.2.5).
            create_qers: CreateQer<'a> = CREATE_QER,
            /// Create BAR (7.5.2.6).
            create_bars: CreateBar<'a> = CREATE_BAR,
            /// Create Traffic Endpoint (7.5.2.7).
            create_traffic_endpoints: CreateTrafficEndpoint<'a> = CREATE_TRAFFIC_ENDPOINT,
            /// Update PDR (7.5.4.2).
            update_pdrs: UpdatePdr<'a> = UPDATE_PDR,
            /// Update FAR (7.5.4.3).
            update_fars: UpdateFar<'a> = UPDATE_FAR,
            /// Update URR (7.5.4.4).
            update_urrs: UpdateUrr<'a> = UPDATE_URR,
            /// Update QER (7.5.4.5).
            update_qers: UpdateQer<'a> = UPDATE_QER,
            /// Update BAR (7.5.4.11).
            update_bars: UpdateBar<'a> = UPDATE_BAR,
            /// Query URR (7.5.4.10).
            query_urrs: QueryUrr<'a> = QUERY_URR,
        }
    }
}

view! {
    /// Session Modification Response (7.5.5.1).
    pub struct SessionModificationResponse<'a> {
        required {
            /// Cause (8.2.1).
            cause: Cause = CAUSE,
        }
        optional {
            /// Offending IE (8.2.22).
            offending_ie: IeType = OFFENDING_IE,
            /// Load Control Information (7.5.3.3), kept as sent.
            load_control_information: Ies<'a> = LOAD_CONTROL_INFORMATION,
            /// Overload Control Information (7.5.3.4), kept as sent.
            overload_control_information: Ies<'a> = OVERLOAD_CONTROL_INFORMATION,
            /// Failed Rule ID (8.2.80).
            failed_rule_id: FailedRuleId = FAILED_RULE_ID,
            /// Additional Usage Reports Information (8.2.91).
            additional_usage_reports: AdditionalUsageReports =
                ADDITIONAL_USAGE_REPORTS_INFORMATION,
        }
        repeated {
            /// Created PDR (7.5.3.2).
            created_pdrs: CreatedPdr<'a> = CREATED_PDR,
            /// Created Traffic Endpoint (7.5.3.5).
            created_traffic_endpoints: CreatedTrafficEndpoint<'a> = CREATED_TRAFFIC_ENDPOINT,
            /// Usage Report (7.5.5.2).
            usage_reports: UsageReport<'a> = USAGE_REPORT_IN_SESSION_MODIFICATION_RESPONSE,
        }
    }
}

view! {
    /// Session Deletion Request (7.5.6).
    pub struct SessionDeletionRequest<'a> {
        required {}
        optional {}
        repeated {}
    }
}

view! {
    /// Session Deletion Response (7.5.7.1).
    pub struct SessionDeletionResponse<'a> {
        required {
            /// Cause (8.2.1).
            cause: Cause = CAUSE,
        }
        optional {
            /// Offending IE (8.2.22).
            offending_ie: IeType = OFFENDING_IE,
            /// Load Control Information (7.5.3.3), kept as sent.
            load_control_information: Ies<'a> = LOAD_CONTROL_INFORMATION,
            /// Overload Control Information (7.5.3.4), kept as sent.
            overload_control_information: Ies<'a> = OVERLOAD_CONTROL_INFORMATION,
            /// Additional Usage Reports Information (8.2.91).
            additional_usage_reports: AdditionalUsageReports =
                ADDITIONAL_USAGE_REPORTS_INFORMATION,
        }
        repeated {
            /// Usage Report (7.5.7.2).
            usage_reports: UsageReport<'a> = USAGE_REPORT_IN_SESSION_DELETION_RESPONSE,
        }
    }
}

view! {
    /// Session Report Request (7.5.8.1).
    pub struct SessionReportRequest<'a> {
        required {
            /// Report Type (8.2.21).
            report_type: ReportType = REPORT_TYPE,
        }
        optional {
            /// Downlink Data Report (7.5.8.2).
            downlink_data_report: DownlinkDataReport<'a> = DOWNLINK_DATA_REPORT,
            /// Error Indication Report (7.5.8.4).
            error_indication_report: ErrorIndicationReport<'a> = ERROR_INDICATION_REPORT,
            /// Load Control Information (7.5.3.3), kept as sent.
            load_control_information: Ies<'a> = LOAD_CONTROL_INFORMATION,
            /// Overload Control Information (7.5.3.4), kept as sent.
            overload_control_information: Ies<'a> = OVERLOAD_CONTROL_INFORMATION,
            /// PFCPSRReq-Flags (8.2.119).
            pfcpsrreq_flags: PfcpSrReqFlags = PFCPSRREQ_FLAGS,
            /// Additional Usage Reports Information (8.2.91).
            additional_usage_reports: AdditionalUsageReports =
                ADDITIONAL_USAGE_REPORTS_INFORMATION,
        }
        repeated {
            /// Usage Report (7.5.8.3).
            usage_reports: UsageReport<'a> = USAGE_REPORT_IN_SESSION_REPORT_REQUEST,
        }
    }
}

view! {
    /// Session Report Response (7.5.9.1).
    pub struct SessionReportResponse<'a> {
        required {
            /// Cause (8.2.1).
            cause: Cause = CAUSE,
        }
        optional {
            /// Offending IE (8.2.22).
            offending_ie: IeType = OFFENDING_IE,
            /// PFCPSRRsp-Flags (8.2.32).
            pfcpsrrsp_flags: PfcpSrRspFlags = PFCPSRRSP_FLAGS,
            /// CP F-SEID (8.2.37), when it changes.
            cp_f_seid: FSeid = F_SEID,
        }
        repeated {
            /// Update BAR (7.5.9.2).
            update_bars: UpdateBar<'a> = UPDATE_BAR_IN_SESSION_REPORT_RESPONSE,
        }
    }
}
