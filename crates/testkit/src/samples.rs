//! Messages: one of each kind that an SMF and a UPF exchange, and those that have brought down UPFs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use pfcp::ie::*;
use pfcp::{Cause, IeType, MessageType, Writer};

const SMF: Ipv4Addr = Ipv4Addr::new(10, 100, 0, 2);
const UPF: Ipv4Addr = Ipv4Addr::new(10, 100, 0, 1);
const N3: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 1);
const GNB: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 100);
const UE: Ipv4Addr = Ipv4Addr::new(10, 60, 0, 7);
const UE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x60, 7, 0, 0, 0, 0);

/// A message whose IEs `write` appends.
pub fn message(
    message_type: MessageType,
    seid: Option<u64>,
    write: impl FnOnce(&mut Writer<'_>),
) -> Vec<u8> {
    let mut out = Vec::new();
    let mut w = Writer::new(&mut out, message_type, seid, 0x010203);
    write(&mut w);
    assert_eq!(w.finish(), out.len());
    out
}

fn access_side(w: &mut Writer<'_>, teid: u32) {
    w.grouped(IeType::CREATE_PDR, |w| {
        w.pdr_id(1);
        w.put(IeType::PRECEDENCE, 255u32);
        w.grouped(IeType::PDI, |w| {
            w.put(IeType::SOURCE_INTERFACE, SourceInterface::Access);
            w.f_teid(FTeid::Given {
                teid,
                ipv4: Some(N3),
                ipv6: None,
            });
            w.network_instance("access");
            w.ue_ip_address(UeIpAddress {
                ipv4: Some(UE),
                ..UeIpAddress::default()
            });
        });
        let removal = OuterHeaderRemoval::GTPU_UDP_IPV4;
        w.put(IeType::OUTER_HEADER_REMOVAL, only(removal));
        w.put(IeType::FAR_ID, 1u32);
        w.put(IeType::QER_ID, 1u32);
    });
}

fn only(description: u8) -> OuterHeaderRemoval {
    OuterHeaderRemoval {
        description,
        extension_header_deletion: None,
    }
}

fn core_side(w: &mut Writer<'_>) {
    w.grouped(IeType::CREATE_PDR, |w| {
        w.pdr_id(2);
        w.put(IeType::PRECEDENCE, 255u32);
        w.grouped(IeType::PDI, |w| {
            w.put(IeType::SOURCE_INTERFACE, SourceInterface::Core);
            w.ie(IeType::NETWORK_INSTANCE, b"internet");
            let address = UeIpAddress {
                ipv4: Some(UE),
                destination: true,
                ..Default::default()
            };
            w.ue_ip_address(address);
        });
        w.put(IeType::FAR_ID, 2u32);
        w.put(IeType::QER_ID, 1u32);
    });
}

fn to_gnb(teid: u32) -> OuterHeaderCreation {
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

fn fars_and_qer(w: &mut Writer<'_>) {
    w.grouped(IeType::CREATE_FAR, |w| {
        w.put(IeType::FAR_ID, 1u32);
        w.put(IeType::APPLY_ACTION, ApplyAction::FORW);
        w.grouped(IeType::FORWARDING_PARAMETERS, |w| {
            w.put(IeType::DESTINATION_INTERFACE, DestinationInterface::Core);
            w.ie(IeType::NETWORK_INSTANCE, b"internet");
        });
    });
    w.grouped(IeType::CREATE_FAR, |w| {
        w.put(IeType::FAR_ID, 2u32);
        w.put(IeType::APPLY_ACTION, ApplyAction::FORW);
        w.grouped(IeType::FORWARDING_PARAMETERS, |w| {
            w.put(IeType::DESTINATION_INTERFACE, DestinationInterface::Access);
            w.network_instance("access");
            w.put(IeType::OUTER_HEADER_CREATION, to_gnb(0x0a0b0c0d));
        });
    });
    w.grouped(IeType::CREATE_QER, |w| {
        w.put(IeType::QER_ID, 1u32);
        let open = GateStatus {
            uplink: Gate::Open,
            downlink: Gate::Open,
        };
        w.put(IeType::GATE_STATUS, open);
        w.put(
            IeType::MBR,
            Mbr {
                uplink_kbps: 100_000,
                downlink_kbps: 400_000,
            },
        );
        w.put(IeType::QFI, Qfi(9));
    });
}

fn establishment_start(w: &mut Writer<'_>) {
    w.node_id(NodeId::Ipv4(SMF));
    w.f_seid(FSeid {
        seid: 0x1122334455667788,
        ipv4: Some(SMF),
        ipv6: None,
    });
}

/// 2 PDR, 2 FAR, 1 QER: 317 octets.
pub fn establishment() -> Vec<u8> {
    message(MessageType::SESSION_ESTABLISHMENT_REQUEST, Some(0), |w| {
        establishment_start(w);
        access_side(w, 0x100);
        core_side(w);
        fars_and_qer(w);
        w.put(IeType::PDN_TYPE, PdnType::Ipv4);
    })
}

fn establishment_with(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    message(MessageType::SESSION_ESTABLISHMENT_REQUEST, Some(0), |w| {
        establishment_start(w);
        write(w);
    })
}

fn pdr_with_pdi(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    establishment_with(|w| {
        w.grouped(IeType::CREATE_PDR, |w| {
            w.pdr_id(1);
            w.put(IeType::PRECEDENCE, 255u32);
            w.grouped(IeType::PDI, write);
        });
        fars_and_qer(w);
    })
}

fn far_with_outer_header(value: &[u8]) -> Vec<u8> {
    establishment_with(|w| {
        core_side(w);
        w.grouped(IeType::CREATE_FAR, |w| {
            w.put(IeType::FAR_ID, 2u32);
            w.put(IeType::APPLY_ACTION, ApplyAction::FORW);
            w.grouped(IeType::FORWARDING_PARAMETERS, |w| {
                w.put(IeType::DESTINATION_INTERFACE, DestinationInterface::Access);
                w.ie(IeType::OUTER_HEADER_CREATION, value);
            });
        });
    })
}

/// Choices, filters, tags, buffering, reports: what richer SMFs send.
fn rich_establishment() -> Vec<u8> {
    establishment_with(|w| {
        // A vendor's IE and one of no known type come first: order is the sender's.
        w.ie(IeType(0x8123), &[0, 7, 1, 2, 3]);
        w.ie(IeType(9999), b"?");
        w.grouped(IeType::CREATE_BAR, |w| {
            w.put(IeType::BAR_ID, 1u8);
            w.put(IeType::DOWNLINK_DATA_NOTIFICATION_DELAY, 2u8);
            w.put(IeType::SUGGESTED_BUFFERING_PACKETS_COUNT, 50u8);
        });
        w.grouped(IeType::CREATE_URR, |w| {
            w.put(IeType::URR_ID, 1u32);
            let both = MeasurementMethod::VOLUM | MeasurementMethod::DURAT;
            w.put(IeType::MEASUREMENT_METHOD, both);
            w.put(
                IeType::REPORTING_TRIGGERS,
                ReportingTriggers::PERIO | ReportingTriggers::VOLQU,
            );
            w.put(IeType::MEASUREMENT_PERIOD, 10u32);
        });
        w.grouped(IeType::CREATE_FAR, |w| {
            w.put(IeType::APPLY_ACTION, ApplyAction::BUFF | ApplyAction::NOCP);
            w.put(IeType::BAR_ID, 1u8);
            w.put(IeType::FAR_ID, 2u32);
        });
        w.grouped(IeType::CREATE_PDR, |w| {
            w.put(IeType::QER_ID, 1u32);
            w.put(IeType::QER_ID, 2u32);
            w.put(IeType::URR_ID, 1u32);
            w.grouped(IeType::PDI, |w| {
                let choose = FTeid::Choose {
                    ipv4: true,
                    ipv6: false,
                    choose_id: Some(5),
                };
                w.f_teid(choose);
                let address = UeIpAddress {
                    ipv6: Some(UE6),
                    choose_ipv4: true,
                    prefix_length: Some(64),
                    ..UeIpAddress::default()
                };
                w.ue_ip_address(address);
                for text in [
                    "permit out 17 from 192.0.2.0/24 53 to assigned",
                    "permit out ip from any to assigned",
                ] {
                    let filter = SdfFilter {
                        flow_description: Some(text),
                        ..Default::default()
                    };
                    w.put(IeType::SDF_FILTER, filter);
                }
                w.ie(IeType::NETWORK_INSTANCE, b"internet");
                w.put(IeType::SOURCE_INTERFACE, SourceInterface::Access);
                w.put(IeType::TGPP_INTERFACE_TYPE, TgppInterfaceType(11));
            });
            w.put(
                IeType::OUTER_HEADER_REMOVAL,
                only(OuterHeaderRemoval::GTPU_UDP_IP),
            );
            w.put(IeType::PRECEDENCE, 32u32);
            w.pdr_id(1);
            w.put(IeType::FAR_ID, 1u32);
        });
    })
}

/// A URR with all that a URR may have.
pub fn usage_establishment() -> Vec<u8> {
    let volume = Volume {
        total: Some(1 << 40),
        uplink: Some(3),
        downlink: None,
    };
    establishment_with(|w| {
        w.grouped(IeType::CREATE_URR, |w| {
            w.put(IeType::URR_ID, 1u32);
            w.put(IeType::MEASUREMENT_METHOD, MeasurementMethod::all());
            let triggers = ReportingTriggers::PERIO | ReportingTriggers::EVEQU;
            w.put(IeType::REPORTING_TRIGGERS, triggers);
            for ie_type in [
                IeType::VOLUME_THRESHOLD,
                IeType::VOLUME_QUOTA,
                IeType::SUBSEQUENT_VOLUME_THRESHOLD,
                IeType::SUBSEQUENT_VOLUME_QUOTA,
            ] {
                w.put(ie_type, volume);
            }
            for (ie_type, value) in [
                (IeType::MEASUREMENT_PERIOD, 10u32),
                (IeType::TIME_THRESHOLD, 11),
                (IeType::TIME_QUOTA, 12),
                (IeType::EVENT_THRESHOLD, 11),
                (IeType::EVENT_QUOTA, 12),
                (IeType::QUOTA_HOLDING_TIME, 5),
                (IeType::QUOTA_VALIDITY_TIME, 6),
                (IeType::MONITORING_TIME, 0xe9ff0000),
                (IeType::SUBSEQUENT_TIME_THRESHOLD, 11),
                (IeType::SUBSEQUENT_TIME_QUOTA, 12),
                (IeType::SUBSEQUENT_EVENT_THRESHOLD, 11),
                (IeType::SUBSEQUENT_EVENT_QUOTA, 12),
                (IeType::INACTIVITY_DETECTION_TIME, 4),
                (IeType::LINKED_URR_ID, 2),
                (IeType::LINKED_URR_ID, 3),
                (IeType::FAR_ID, 3),
                (IeType::ETHERNET_INACTIVITY_TIMER, 60),
                (IeType::USER_PLANE_INACTIVITY_TIMER, 61),
            ] {
                w.put(ie_type, value);
            }
            w.put(
                IeType::MEASUREMENT_INFORMATION,
                MeasurementInformation::MNOP | MeasurementInformation::ISTM,
            );
            w.put(
                IeType::DROPPED_DL_TRAFFIC_THRESHOLD,
                DroppedDlTraffic {
                    packets: Some(9),
                    octets: None,
                },
            );
            let mechanism = TimeQuotaMechanism {
                periods: TimePeriods::Discrete,
                interval_s: 20,
            };
            w.put(IeType::TIME_QUOTA_MECHANISM, mechanism);
            w.grouped(IeType::AGGREGATED_URRS, |w| {
                w.put(IeType::AGGREGATED_URR_ID, 9u32);
                let half = Multiplier {
                    digits: 5,
                    exponent: -1,
                };
                w.put(IeType::MULTIPLIER, half);
            });
            w.grouped(IeType::ADDITIONAL_MONITORING_TIME, |w| {
                w.put(IeType::MONITORING_TIME, 0xea000000u32);
                w.put(IeType::SUBSEQUENT_VOLUME_QUOTA, volume);
                w.put(IeType::SUBSEQUENT_TIME_QUOTA, 60u32);
            });
            w.put(IeType::NUMBER_OF_REPORTS, 3u16);
            w.ie(IeType::APPLICATION_ID, b"video");
            let filter = SdfFilter {
                filter_id: Some(4),
                ..SdfFilter::default()
            };
            w.put(IeType::SDF_FILTER, filter);
        });
        access_side(w, 0x100);
        core_side(w);
        fars_and_qer(w);
    })
}

fn usage_report(w: &mut Writer<'_>, group: IeType) {
    w.grouped(group, |w| {
        w.put(IeType::URR_ID, 1u32);
        w.put(IeType::UR_SEQN, 3u32);
        w.put(IeType::USAGE_REPORT_TRIGGER, UsageReportTrigger::VOLTH);
        w.put(IeType::START_TIME, 0xe9ff0000u32);
        w.put(IeType::END_TIME, 0xe9ff0010u32);
        let octets = Volume {
            total: Some(3000),
            uplink: Some(1000),
            downlink: Some(2000),
        };
        let measured = VolumeMeasurement {
            octets,
            packets: octets,
        };
        w.put(IeType::VOLUME_MEASUREMENT, measured);
        w.put(IeType::DURATION_MEASUREMENT, 16u32);
        w.put(IeType::TIME_OF_FIRST_PACKET, 0xe9ff0001u32);
        w.put(IeType::TIME_OF_LAST_PACKET, 0xe9ff000fu32);
        w.put(IeType::USAGE_INFORMATION, UsageInformation::AFT);
        w.put(IeType::QUERY_URR_REFERENCE, 1u32);
        w.put(IeType::EVENT_TIME_STAMP, 0xe9ff0002u32);
    });
}

fn usage_reports() -> Vec<(&'static str, Vec<u8>)> {
    let more = AdditionalUsageReports {
        follow: true,
        count: 2,
    };
    let report = |message_type, group| {
        message(message_type, Some(7), |w| {
            if message_type == MessageType::SESSION_REPORT_REQUEST {
                w.report_type(ReportType::USAR);
            } else {
                w.cause(Cause::REQUEST_ACCEPTED);
            }
            usage_report(w, group);
            w.put(IeType::ADDITIONAL_USAGE_REPORTS_INFORMATION, more);
        })
    };
    vec![
        ("usage-rules", usage_establishment()),
        (
            "usage-report",
            report(
                MessageType::SESSION_REPORT_REQUEST,
                IeType::USAGE_REPORT_IN_SESSION_REPORT_REQUEST,
            ),
        ),
        (
            "usage-modified",
            report(
                MessageType::SESSION_MODIFICATION_RESPONSE,
                IeType::USAGE_REPORT_IN_SESSION_MODIFICATION_RESPONSE,
            ),
        ),
        (
            "usage-deleted",
            report(
                MessageType::SESSION_DELETION_RESPONSE,
                IeType::USAGE_REPORT_IN_SESSION_DELETION_RESPONSE,
            ),
        ),
    ]
}

fn modification() -> Vec<u8> {
    message(MessageType::SESSION_MODIFICATION_REQUEST, Some(0x55), |w| {
        w.grouped(IeType::UPDATE_FAR, |w| {
            w.put(IeType::FAR_ID, 2u32);
            w.put(IeType::APPLY_ACTION, ApplyAction::FORW);
            w.grouped(IeType::UPDATE_FORWARDING_PARAMETERS, |w| {
                w.put(IeType::DESTINATION_INTERFACE, DestinationInterface::Access);
                w.put(IeType::OUTER_HEADER_CREATION, to_gnb(0x0a0b0c0e));
                w.put(IeType::PFCPSMREQ_FLAGS, PfcpSmReqFlags::SNDEM);
            });
        });
        w.grouped(IeType::REMOVE_PDR, |w| w.pdr_id(3));
        w.grouped(IeType::REMOVE_URR, |w| w.put(IeType::URR_ID, 1u32));
        w.grouped(IeType::UPDATE_QER, |w| {
            w.put(IeType::QER_ID, 1u32);
            w.put(
                IeType::MBR,
                Mbr {
                    uplink_kbps: 1,
                    downlink_kbps: (1 << 40) - 1,
                },
            );
        });
        w.grouped(IeType::UPDATE_PDR, |w| {
            w.pdr_id(2);
            w.put(IeType::FAR_ID, 4u32);
        });
        w.grouped(IeType::QUERY_URR, |w| w.put(IeType::URR_ID, 1u32));
    })
}

fn association_setup() -> Vec<u8> {
    message(MessageType::ASSOCIATION_SETUP_REQUEST, None, |w| {
        w.node_id_fqdn("smf1.example.org");
        w.recovery_time_stamp(RecoveryTimeStamp(0xe9af1234));
        w.cp_function_features(CpFunctionFeatures::LOAD | CpFunctionFeatures::OVRL);
    })
}

fn association_accepted() -> Vec<u8> {
    message(MessageType::ASSOCIATION_SETUP_RESPONSE, None, |w| {
        w.node_id(NodeId::from(IpAddr::from(UPF)));
        w.cause(Cause::REQUEST_ACCEPTED);
        w.recovery_time_stamp(RecoveryTimeStamp(0xe9af1235));
        w.up_function_features(UpFunctionFeatures::FTUP | UpFunctionFeatures::UEIP);
        let resource = UserPlaneIpResourceInformation {
            teid_range: Some((2, 0x40)),
            ipv4: Some(N3),
            network_instance: Some(NetworkInstance::new(b"\x06access")),
            source_interface: Some(SourceInterface::Access),
            ..Default::default()
        };
        w.put(IeType::USER_PLANE_IP_RESOURCE_INFORMATION, resource);
    })
}

fn responses() -> Vec<(&'static str, Vec<u8>)> {
    let chosen = FTeid::Given {
        teid: 0x101,
        ipv4: Some(N3),
        ipv6: None,
    };
    vec![
        (
            "session-established",
            message(MessageType::SESSION_ESTABLISHMENT_RESPONSE, Some(7), |w| {
                w.node_id(NodeId::Ipv4(UPF));
                w.cause(Cause::REQUEST_ACCEPTED);
                w.f_seid(FSeid {
                    seid: 9,
                    ipv4: Some(UPF),
                    ipv6: Some(UE6),
                });
                let address = UeIpAddress {
                    ipv4: Some(UE),
                    ..UeIpAddress::default()
                };
                w.created_pdr(1, Some(chosen), &[address]);
            }),
        ),
        (
            "session-refused",
            message(MessageType::SESSION_MODIFICATION_RESPONSE, Some(7), |w| {
                w.cause(Cause::RULE_CREATION_MODIFICATION_FAILURE);
                w.offending_ie(IeType::APPLICATION_ID);
                w.failed_rule_id(FailedRuleId::Pdr(3));
            }),
        ),
        (
            "session-report",
            message(MessageType::SESSION_REPORT_REQUEST, Some(7), |w| {
                w.report_type(ReportType::DLDR | ReportType::ERIR);
                let service = |ppi, qfi| DownlinkDataServiceInformation { ppi, qfi };
                w.downlink_data_report(&[
                    (2, service(Some(46), Some(9))),
                    (4, service(None, Some(1))),
                ]);
                w.error_indication_report(&[chosen]);
            }),
        ),
        (
            "session-report-response",
            message(MessageType::SESSION_REPORT_RESPONSE, Some(9), |w| {
                w.cause(Cause::REQUEST_ACCEPTED);
                w.put(IeType::PFCPSRRSP_FLAGS, PfcpSrRspFlags::DROBU);
                w.grouped(IeType::UPDATE_BAR_IN_SESSION_REPORT_RESPONSE, |w| {
                    w.put(IeType::BAR_ID, 1u8);
                    w.put(IeType::DL_BUFFERING_DURATION, 0x22u8);
                    w.put(IeType::DL_BUFFERING_SUGGESTED_PACKET_COUNT, 1000u16);
                });
            }),
        ),
        (
            "path-failure",
            message(MessageType::NODE_REPORT_REQUEST, None, |w| {
                w.node_id(NodeId::Ipv4(UPF));
                w.put(IeType::NODE_REPORT_TYPE, NodeReportType::UPFR);
                w.grouped(IeType::USER_PLANE_PATH_FAILURE_REPORT, |w| {
                    let peer = RemoteGtpUPeer {
                        ipv4: Some(GNB),
                        destination_interface: Some(DestinationInterface::Access),
                        network_instance: Some(NetworkInstance::new(b"access")),
                        ..RemoteGtpUPeer::default()
                    };
                    w.put(IeType::REMOTE_GTP_U_PEER, peer);
                });
            }),
        ),
    ]
}

/// Messages that must decode.
pub fn valid() -> Vec<(&'static str, Vec<u8>)> {
    let node = |message_type| message(message_type, None, |w| w.node_id(NodeId::Ipv4(SMF)));
    let heartbeat = message(MessageType::HEARTBEAT_REQUEST, None, |w| {
        w.recovery_time_stamp(RecoveryTimeStamp(0xe9af1234));
    });
    let mut bundle = heartbeat.clone();
    bundle[0] |= 4;
    bundle.extend_from_slice(&establishment());
    let mut samples = vec![
        ("heartbeat", heartbeat),
        ("association-setup", association_setup()),
        ("association-accepted", association_accepted()),
        (
            "association-release",
            node(MessageType::ASSOCIATION_RELEASE_REQUEST),
        ),
        (
            "session-set-deletion",
            node(MessageType::SESSION_SET_DELETION_REQUEST),
        ),
        (
            "session-set-modification",
            message(MessageType::SESSION_SET_MODIFICATION_REQUEST, None, |w| {
                w.node_id(NodeId::Ipv4(SMF));
                w.grouped(IeType::PFCP_SESSION_CHANGE_INFO, |w| {
                    w.ie(IeType::ALTERNATIVE_SMF_IP_ADDRESS, &[2, 10, 100, 0, 3]);
                });
            }),
        ),
        ("pfd-management", node(MessageType::PFD_MANAGEMENT_REQUEST)),
        (
            "version-not-supported",
            message(MessageType::VERSION_NOT_SUPPORTED_RESPONSE, None, |_| {}),
        ),
        ("establishment", establishment()),
        ("establishment-rich", rich_establishment()),
        ("modification", modification()),
        (
            "deletion",
            message(MessageType::SESSION_DELETION_REQUEST, Some(0x55), |_| {}),
        ),
        ("bundle", bundle),
        // Open5GS: both address families at once.
        (
            "outer-header-dual",
            far_with_outer_header(&[
                3, 0, 0, 0, 0, 1, 10, 3, 0, 100, 32, 1, 13, 184, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
            ]),
        ),
        (
            "longer-than-1500",
            establishment_with(|w| {
                (0..40).for_each(|index| access_side(w, 0x100 + index));
                fars_and_qer(w);
            }),
        ),
        (
            "traffic-endpoint",
            establishment_with(|w| {
                w.grouped(IeType::CREATE_TRAFFIC_ENDPOINT, |w| {
                    w.put(IeType::TRAFFIC_ENDPOINT_ID, 1u8);
                    w.network_instance("internet");
                    w.ie(IeType::FRAMED_ROUTE, b"198.51.100.0/24 0.0.0.0 1");
                });
                w.grouped(IeType::CREATE_PDR, |w| {
                    w.pdr_id(1);
                    w.put(IeType::PRECEDENCE, 255u32);
                    w.grouped(IeType::PDI, |w| {
                        w.put(IeType::SOURCE_INTERFACE, SourceInterface::Core);
                        w.put(IeType::TRAFFIC_ENDPOINT_ID, 1u8);
                    });
                });
                fars_and_qer(w);
            }),
        ),
        (
            "framed-routes",
            pdr_with_pdi(|w| {
                w.put(IeType::SOURCE_INTERFACE, SourceInterface::Core);
                w.ie(IeType::FRAMED_ROUTE, b"198.51.100.0/24 0.0.0.0 1");
                w.ie(IeType::FRAMED_ROUTE, b"192.168.7.0");
                w.put(IeType::FRAMED_ROUTING, 0u32);
                w.ie(IeType::FRAMED_IPV6_ROUTE, b"2001:db8:70::/44 :: 1");
            }),
        ),
        (
            "sdf-filter-empty",
            pdr_with_pdi(|w| {
                w.put(IeType::SOURCE_INTERFACE, SourceInterface::Core);
                w.ie(IeType::SDF_FILTER, &[0, 0]);
            }),
        ),
    ];
    samples.extend(responses());
    samples.extend(usage_reports());
    samples
}

/// Messages that must be refused, and what the refusal says: the cause and the offending IE.
pub fn broken() -> Vec<(&'static str, Vec<u8>, Cause, Option<IeType>)> {
    let outer = Some(IeType::OUTER_HEADER_CREATION);
    let missing = Cause::MANDATORY_IE_MISSING;
    let length = Cause::INVALID_LENGTH;
    let empty = |message_type| message(message_type, None, |_| {});
    let mut cut = establishment();
    cut.truncate(200);
    let mut short = establishment();
    short[3] -= 1;
    let mut version_2 = establishment();
    version_2[0] = 0x41;
    let in_pdi = |value: &'static [u8]| {
        pdr_with_pdi(move |w| {
            w.put(IeType::SOURCE_INTERFACE, SourceInterface::Access);
            w.ie(IeType::SDF_FILTER, value);
        })
    };
    let recovery = Some(IeType::RECOVERY_TIME_STAMP);
    vec![
        (
            "heartbeat-request-empty",
            empty(MessageType::HEARTBEAT_REQUEST),
            missing,
            recovery,
        ),
        (
            "heartbeat-response-empty",
            empty(MessageType::HEARTBEAT_RESPONSE),
            missing,
            recovery,
        ),
        (
            "outer-header-0-octets",
            far_with_outer_header(&[]),
            length,
            outer,
        ),
        (
            "outer-header-1-octet",
            far_with_outer_header(&[1]),
            length,
            outer,
        ),
        (
            "outer-header-6-octets",
            far_with_outer_header(&[1, 0, 0, 0, 0, 1]),
            length,
            outer,
        ),
        (
            "outer-header-no-flag",
            far_with_outer_header(&[0, 0]),
            Cause::MANDATORY_IE_INCORRECT,
            outer,
        ),
        (
            "pdi-empty",
            pdr_with_pdi(|_| {}),
            missing,
            Some(IeType::SOURCE_INTERFACE),
        ),
        (
            "sdf-filter-inner-length",
            in_pdi(&[1, 0, 0xff, 0xff, b'p']),
            length,
            Some(IeType::SDF_FILTER),
        ),
        (
            "sdf-filter-1-octet",
            in_pdi(&[1]),
            length,
            Some(IeType::SDF_FILTER),
        ),
        ("datagram-cut", cut, length, None),
        (
            "message-length-short",
            short,
            length,
            Some(IeType::PDN_TYPE),
        ),
        ("version-2", version_2, Cause::REQUEST_REJECTED, None),
        ("nothing", vec![], length, None),
        ("half-a-header", vec![0x21, 50, 0, 12, 0, 0], length, None),
        (
            "f-teid-choose-id-only",
            pdr_with_pdi(|w| {
                w.put(IeType::SOURCE_INTERFACE, SourceInterface::Access);
                w.ie(IeType::F_TEID, &[0x09, 5]);
            }),
            Cause::MANDATORY_IE_INCORRECT,
            Some(IeType::F_TEID),
        ),
        (
            "ie-past-its-group",
            establishment_with(|w| w.ie(IeType::CREATE_PDR, &[0, 56, 0, 200, 0, 1])),
            length,
            Some(IeType::PDR_ID),
        ),
        (
            "group-ends-in-ie-header",
            establishment_with(|w| w.ie(IeType::CREATE_PDR, &[0, 56, 0])),
            length,
            Some(IeType::CREATE_PDR),
        ),
        (
            "node-id-missing",
            message(MessageType::ASSOCIATION_SETUP_REQUEST, None, |w| {
                w.recovery_time_stamp(RecoveryTimeStamp(1));
            }),
            missing,
            Some(IeType::NODE_ID),
        ),
        (
            "volume-quota-cut",
            establishment_with(|w| {
                w.grouped(IeType::CREATE_URR, |w| {
                    w.put(IeType::URR_ID, 1u32);
                    w.put(IeType::MEASUREMENT_METHOD, MeasurementMethod::VOLUM);
                    w.put(IeType::REPORTING_TRIGGERS, ReportingTriggers::VOLQU);
                    w.ie(IeType::VOLUME_QUOTA, &[7, 0, 0, 0, 0, 0, 0, 0, 1]);
                });
            }),
            length,
            Some(IeType::VOLUME_QUOTA),
        ),
    ]
}
