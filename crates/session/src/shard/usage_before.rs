//! Usage up to a request, counted under the rules before it.

use compiled::Tables;
use pfcp::IeType;
use pfcp::ie::PfcpSmReqFlags;
use pfcp::message::SessionModificationRequest;
use smallvec::SmallVec;

use crate::base::refusal::Refusal;
use crate::rules::{RuleId, UrrId};
use crate::shard::context::Context;
use crate::shard::draft::Draft;
use crate::shard::session::Session;
use crate::usage::urr_rules::UrrRules;

/// The rules that a session had before a request, as far as URRs go by them.
#[derive(Debug)]
pub(crate) struct Before {
    pub(crate) rules: UrrRules,
    /// URRs that the request asks about.
    pub(crate) queries: Queries,
    /// PDRs and URRs stay as they are; URRs are only queried.
    pub(crate) rules_stay: bool,
}

#[derive(Debug)]
pub(crate) enum Queries {
    Some(SmallVec<[UrrId; 4]>),
    All,
}

impl Queries {
    fn of(request: &SessionModificationRequest<'_>) -> Result<Self, Refusal> {
        let flags = request.pfcpsmreq_flags;
        if flags.is_some_and(|flags| flags.contains(PfcpSmReqFlags::QAURR)) {
            return Ok(Self::All);
        }
        let ids = request.query_urrs.iter();
        let ids = ids
            .map(|ie| Ok(UrrId(ie?.urr_id)))
            .collect::<Result<_, Refusal>>()?;
        Ok(Self::Some(ids))
    }

    fn is_none(&self) -> bool {
        matches!(self, Self::Some(ids) if ids.is_empty())
    }
}

/// Counts usage up to a request, and writes into the draft which PDRs lack quota. `None`: URRs are not concerned.
pub(crate) fn usage_before<T: Tables>(
    session: &mut Session<T::Handle>,
    draft: &mut Draft,
    request: &SessionModificationRequest<'_>,
    tables: &T,
) -> Result<Option<Before>, Refusal> {
    let queries = Queries::of(request)?;
    let rules_stay = !draft.pdrs.changed && !draft.urrs.changed;
    if session.context.usage().is_none() && draft.urrs.rules.is_empty() && queries.is_none() {
        return Ok(None);
    }
    if let Some(usage) = session.context.usage() {
        let pdrs = draft.pdrs.rules.iter().map(|pdr| (pdr.id, &*pdr.urrs));
        usage.closed(pdrs, &draft.urrs.rules, &mut draft.closed);
    }
    if rules_stay && queries.is_none() {
        return Ok(None);
    }
    if let Queries::Some(ids) = &queries {
        let urrs = session.context.urrs();
        let known = |id: &UrrId| urrs.iter().any(|urr| urr.id == *id);
        if let Some(id) = ids.iter().find(|id| !known(id)) {
            return Err(Refusal::rule(IeType::URR_ID).in_rule(RuleId::Urr(*id)));
        }
    }
    if let Some((rules, handle, usage)) = session.measuring() {
        usage.count(rules, |pdr| tables.counters(handle, pdr));
    }
    Ok(Some(Before {
        rules: urr_rules_before(&session.context),
        queries,
        rules_stay,
    }))
}

/// URRs, and the PDRs that name them. Also of a session without URRs: counters of its PDRs go on under those that come.
fn urr_rules_before(context: &Context) -> UrrRules {
    match context.urr_rules() {
        Some(rules) if !rules.urrs.is_empty() => rules.clone(),
        _ => UrrRules::new(&[], &context.kept.pdrs()),
    }
}
