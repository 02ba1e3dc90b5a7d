//! Encoding.

use crate::header::{FLAG_PRIORITY, FLAG_SEID, SESSION_HEADER, UNCOUNTED, VERSION};
use crate::ie::{
    CpFunctionFeatures, DownlinkDataServiceInformation, FSeid, FTeid, FailedRuleId, NodeId,
    RecoveryTimeStamp, ReportType, UeIpAddress, UpFunctionFeatures,
};
use crate::{Cause, IeType, MessageType};

/// A value that can be sent in an IE; what it writes, [`FromIe`](crate::FromIe) reads.
pub trait ToIe {
    /// Appends the value, without type and length.
    fn to_ie(&self, out: &mut Vec<u8>);
}

/// Appends one message to a buffer (7.2), whose capacity is all the memory that it uses.
///
/// ```
/// use pfcp::{Cause, MessageType, Writer};
///
/// let mut out = Vec::new();
/// let mut w = Writer::new(&mut out, MessageType::SESSION_DELETION_RESPONSE, Some(7), 1);
/// w.cause(Cause::REQUEST_ACCEPTED);
/// assert_eq!(w.finish(), 21);
/// ```
#[derive(Debug)]
pub struct Writer<'b> {
    out: &'b mut Vec<u8>,
    start: usize,
    too_long: bool,
}

impl<'b> Writer<'b> {
    /// Begins a message: without SEID that of a node, with one that of a session (7.2.2.2, 7.2.2.3).
    pub fn new(
        out: &'b mut Vec<u8>,
        message_type: MessageType,
        seid: Option<u64>,
        sequence: u32,
    ) -> Self {
        let start = out.len();
        let flags = if seid.is_some() { FLAG_SEID } else { 0 };
        out.extend_from_slice(&[VERSION << 5 | flags, message_type.0, 0, 0]);
        if let Some(seid) = seid {
            out.extend_from_slice(&seid.to_be_bytes());
        }
        let [_, s0, s1, s2] = sequence.to_be_bytes();
        out.extend_from_slice(&[s0, s1, s2, 0]);
        Self {
            out,
            start,
            too_long: false,
        }
    }

    /// Appends IEs alone, which go into a message with [`Writer::ies`].
    pub fn ies_alone(out: &'b mut Vec<u8>, write: impl FnOnce(&mut Self)) {
        let (start, too_long) = (out.len(), false);
        write(&mut Self {
            out,
            start,
            too_long,
        });
    }

    /// Message Priority, 0 (highest) to 15, of a message with a SEID (7.2.2.3): a response repeats its request's.
    pub fn priority(&mut self, priority: u8) {
        let header = self.out.get_mut(self.start..);
        if let Some([flags, .., last]) = header.and_then(|h| h.first_chunk_mut::<SESSION_HEADER>())
            && *flags & FLAG_SEID != 0
        {
            *flags |= FLAG_PRIORITY;
            *last = priority << 4;
        }
    }

    /// Writes the Message Length and says how many octets the message has. A message that does not
    /// fit the length fields of PFCP is taken back, and has 0.
    pub fn finish(self) -> usize {
        let octets = self.out.len() - self.start;
        let length = u16::try_from(octets - UNCOUNTED)
            .ok()
            .filter(|_| !self.too_long);
        let field = self.out.get_mut(self.start + 2..self.start + 4);
        let (Some(length), Some(field)) = (length, field) else {
            self.out.truncate(self.start);
            return 0;
        };
        field.copy_from_slice(&length.to_be_bytes());
        octets
    }

    /// An IE whose value `write` appends (8.1.1).
    fn framed(&mut self, ie_type: IeType, write: impl FnOnce(&mut Self)) {
        self.out.extend_from_slice(&ie_type.0.to_be_bytes());
        let at = self.out.len();
        self.out.extend_from_slice(&[0, 0]);
        write(self);
        match u16::try_from(self.out.len() - at - 2) {
            Ok(length) => {
                if let Some(field) = self.out.get_mut(at..at + 2) {
                    field.copy_from_slice(&length.to_be_bytes());
                }
            }
            Err(_) => self.too_long = true,
        }
    }

    /// Any IE, its value given as octets.
    pub fn ie(&mut self, ie_type: IeType, value: &[u8]) {
        self.framed(ie_type, |w| w.out.extend_from_slice(value));
    }

    /// IEs that are written already.
    pub fn ies(&mut self, ies: &[u8]) {
        self.out.extend_from_slice(ies);
    }

    /// Octets so far, header included.
    #[allow(clippy::len_without_is_empty)] // There is always a header.
    pub fn len(&self) -> usize {
        self.out.len() - self.start
    }

    /// Any IE whose value has a type.
    pub fn put(&mut self, ie_type: IeType, value: impl ToIe) {
        self.framed(ie_type, |w| value.to_ie(w.out));
    }

    /// A grouped IE, whose members `write` appends.
    pub fn grouped(&mut self, ie_type: IeType, write: impl FnOnce(&mut Self)) {
        self.framed(ie_type, write);
    }

    /// Cause (8.2.1).
    pub fn cause(&mut self, cause: Cause) {
        self.put(IeType::CAUSE, cause);
    }

    /// Offending IE (8.2.22).
    pub fn offending_ie(&mut self, ie_type: IeType) {
        self.put(IeType::OFFENDING_IE, ie_type);
    }

    /// Failed Rule ID (8.2.80).
    pub fn failed_rule_id(&mut self, rule: FailedRuleId) {
        self.put(IeType::FAILED_RULE_ID, rule);
    }

    /// Node ID (8.2.38).
    pub fn node_id(&mut self, node_id: NodeId<'_>) {
        self.put(IeType::NODE_ID, node_id);
    }

    /// Node ID (8.2.38) from a name with dots.
    pub fn node_id_fqdn(&mut self, name: &str) {
        self.framed(IeType::NODE_ID, |w| {
            w.out.push(2);
            crate::ie::write_labels(name, w.out);
        });
    }

    /// Recovery Time Stamp (8.2.65).
    pub fn recovery_time_stamp(&mut self, time: RecoveryTimeStamp) {
        self.put(IeType::RECOVERY_TIME_STAMP, time);
    }

    /// UP Function Features (8.2.25).
    pub fn up_function_features(&mut self, features: UpFunctionFeatures) {
        self.put(IeType::UP_FUNCTION_FEATURES, features);
    }

    /// CP Function Features (8.2.58).
    pub fn cp_function_features(&mut self, features: CpFunctionFeatures) {
        self.put(IeType::CP_FUNCTION_FEATURES, features);
    }

    /// F-SEID (8.2.37).
    pub fn f_seid(&mut self, f_seid: FSeid) {
        self.put(IeType::F_SEID, f_seid);
    }

    /// F-TEID (8.2.3).
    pub fn f_teid(&mut self, f_teid: FTeid) {
        self.put(IeType::F_TEID, f_teid);
    }

    /// UE IP Address (8.2.62).
    pub fn ue_ip_address(&mut self, address: UeIpAddress) {
        self.put(IeType::UE_IP_ADDRESS, address);
    }

    /// PDR ID (8.2.36).
    pub fn pdr_id(&mut self, pdr_id: u16) {
        self.put(IeType::PDR_ID, pdr_id);
    }

    /// Report Type (8.2.21).
    pub fn report_type(&mut self, report_type: ReportType) {
        self.put(IeType::REPORT_TYPE, report_type);
    }

    /// Network Instance (8.2.4) in labels, from a name with dots.
    pub fn network_instance(&mut self, name: &str) {
        self.framed(IeType::NETWORK_INSTANCE, |w| {
            crate::ie::write_labels(name, w.out)
        });
    }

    /// Created PDR (7.5.3.2).
    pub fn created_pdr(&mut self, pdr_id: u16, f_teid: Option<FTeid>, addresses: &[UeIpAddress]) {
        self.grouped(IeType::CREATED_PDR, |w| {
            w.pdr_id(pdr_id);
            if let Some(f_teid) = f_teid {
                w.f_teid(f_teid);
            }
            for address in addresses {
                w.ue_ip_address(*address);
            }
        });
    }

    /// Created Traffic Endpoint (7.5.3.5).
    pub fn created_traffic_endpoint(
        &mut self,
        id: u8,
        f_teid: Option<FTeid>,
        addresses: &[UeIpAddress],
    ) {
        self.grouped(IeType::CREATED_TRAFFIC_ENDPOINT, |w| {
            w.put(IeType::TRAFFIC_ENDPOINT_ID, id);
            if let Some(f_teid) = f_teid {
                w.f_teid(f_teid);
            }
            for address in addresses {
                w.ue_ip_address(*address);
            }
        });
    }

    /// Downlink Data Report (7.5.8.2): PDRs, and what the packet was like that each has met.
    pub fn downlink_data_report(&mut self, met: &[(u16, DownlinkDataServiceInformation)]) {
        self.grouped(IeType::DOWNLINK_DATA_REPORT, |w| {
            for (pdr_id, _) in met {
                w.pdr_id(*pdr_id);
            }
            for (_, service) in met {
                w.put(IeType::DOWNLINK_DATA_SERVICE_INFORMATION, *service);
            }
        });
    }

    /// Error Indication Report (7.5.8.4).
    pub fn error_indication_report(&mut self, remote: &[FTeid]) {
        self.grouped(IeType::ERROR_INDICATION_REPORT, |w| {
            remote.iter().for_each(|f_teid| w.f_teid(*f_teid));
        });
    }
}
