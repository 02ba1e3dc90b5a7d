//! Sets of sessions as requests name them (TS 29.244, 7.4.6 and 7.4.7).

use std::net::IpAddr;

use pfcp::ie::SessionChangeInfo;
use pfcp::message::{SessionSetDeletionRequest, SessionSetModificationRequest};
use pfcp::{Cause, IeType};

use crate::base::refusal::Refusal;
use crate::base::set_key::{SetKey, cp_keys};

/// Sets named in one message; more is not what the parts of one node are.
const SETS_MAX: usize = 256;

/// The sets that a Session Set Deletion Request names (7.4.6.1).
pub(crate) fn sets_of(request: &SessionSetDeletionRequest<'_>) -> Result<Vec<SetKey>, Unread> {
    let mut sets = Vec::new();
    for set in &request.fq_csids {
        sets.extend(SetKey::fq_csid(set.map_err(Unread::Undecodable)?));
        if sets.len() > SETS_MAX {
            return Err(Unread::Refused(Refusal::no_room(IeType::FQ_CSID)));
        }
    }
    if sets.is_empty() {
        let refusal = Refusal::ie(Cause::CONDITIONAL_IE_MISSING, IeType::FQ_CSID);
        return Err(Unread::Refused(refusal));
    }
    Ok(sets)
}

/// Why a request names no sets.
#[derive(Debug)]
pub(crate) enum Unread {
    Undecodable(pfcp::Error),
    Refused(Refusal),
}

/// The changes that a Session Set Modification Request asks for (7.4.7.1).
pub(crate) fn changes_of(
    request: &SessionSetModificationRequest<'_>,
) -> Result<Vec<Change>, Refusal> {
    let mut changes = Vec::new();
    for info in &request.changes {
        changes.push(Change::new(&info?)?);
    }
    if changes.is_empty() {
        let ie = IeType::PFCP_SESSION_CHANGE_INFO;
        return Err(Refusal::ie(Cause::MANDATORY_IE_MISSING, ie));
    }
    Ok(changes)
}

/// One PFCP Session Change Info, read.
pub(crate) struct Change {
    pub(crate) to: IpAddr,
    pub(crate) sets: Vec<SetKey>,
    /// Sessions of whole associations: those at these addresses.
    pub(crate) from: Vec<IpAddr>,
}

impl Change {
    fn new(info: &SessionChangeInfo<'_>) -> Result<Self, Refusal> {
        let alternative = IeType::ALTERNATIVE_SMF_IP_ADDRESS;
        let to = info.alternative.addresses().next();
        let to = to.ok_or(Refusal::ie(Cause::MANDATORY_IE_INCORRECT, alternative))?;
        let (mut sets, mut from) = (Vec::new(), Vec::new());
        for set in &info.fq_csids {
            sets.extend(SetKey::fq_csid(set?));
        }
        for group in &info.group_ids {
            sets.push(SetKey::group(group?));
        }
        for address in &info.cp_addresses {
            let address = address?;
            sets.extend(cp_keys(address));
            from.extend(address.addresses());
        }
        if sets.is_empty() {
            return Err(Refusal::ie(Cause::CONDITIONAL_IE_MISSING, IeType::FQ_CSID));
        }
        if sets.len() > SETS_MAX {
            return Err(Refusal::no_room(IeType::PFCP_SESSION_CHANGE_INFO));
        }
        Ok(Self { to, sets, from })
    }
}
