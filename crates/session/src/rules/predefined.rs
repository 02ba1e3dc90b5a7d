//! Predefined rules (TS 29.244, 5.19): what an operator has configured, and an SMF names to have it
//! applied to the traffic of a PDR.
//!
//! The PDR says whose traffic it is and where it stands among the others; the predefined rule adds its
//! filters, and what it has of a FAR and a QER. A PDR that activates several rules is one PDR for each of
//! them: packets that none of them asks for are not the PDR's.

use compiled::{Direction, NiId, PredefinedId, QerId};
use pfcp::{IeType, Ies};
use smallvec::SmallVec;

use crate::base::flow::FlowDescription;
use crate::base::refusal::Refusal;
use crate::rules::{FarId, Pdr, Qer};

/// Predefined rules that one PDR activates; more has no use.
const RULES_PER_PDR: usize = 16;

/// And those of one session together: each is an entry of the tables.
pub(crate) const RULES_PER_SESSION: usize = 64;

/// FAR and QER IDs from here on are those of predefined rules (TS 29.244, 8.2.74, 8.2.75).
const PREDEFINED_IDS: u32 = 1 << 31;

/// ID of the FAR of a predefined rule.
pub(crate) fn far_of(rule: PredefinedId) -> FarId {
    FarId(PREDEFINED_IDS | u32::from(rule.get()))
}

/// ID of the QER of a predefined rule.
fn qer_of(rule: PredefinedId) -> QerId {
    QerId(PREDEFINED_IDS | u32::from(rule.get()))
}

/// Rule that an operator has configured under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PredefinedRule {
    /// As SMFs call it; several rules may have one name, and are activated together.
    pub name: String,
    /// Among the rules that one PDR activates the lowest is tried first.
    pub precedence: u32,
    /// Which PDRs it is for, by where their packets come from; `None`: both.
    pub direction: Option<Direction>,
    /// Any of these must match, beside what the PDR asks for. Empty: all packets do.
    pub flows: Vec<FlowDescription>,
    /// Its FAR, if it has one.
    pub far: PredefinedFar,
    /// Its QER, beside those of the PDR. [`numbered`] gives it its ID.
    pub qer: Option<Qer>,
}

/// The FAR of a predefined rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PredefinedFar {
    /// None: that of the PDR holds.
    OfPdr,
    /// Packets are dropped.
    Drop,
    /// Uplink packets go by the routes of this network instance. Downlink, that of the PDR holds.
    Route(NiId),
}

impl PredefinedRule {
    /// Whether it is for this PDR.
    pub(crate) fn is_for(&self, pdr: &Pdr) -> bool {
        self.direction.is_none_or(|own| own == pdr.direction())
    }

    /// Network instance by whose routes packets of this PDR go, if the rule says so.
    pub(crate) fn route(&self, pdr: &Pdr) -> Option<NiId> {
        match self.far {
            PredefinedFar::Route(ni) if pdr.direction() == Direction::Uplink => Some(ni),
            _ => None,
        }
    }
}

/// The rules with their QERs named after their places.
pub fn numbered(mut rules: Vec<PredefinedRule>) -> Vec<PredefinedRule> {
    for (place, rule) in rules.iter_mut().enumerate() {
        if let (Some(id), Some(qer)) = (PredefinedId::at(place), &mut rule.qer) {
            qer.id = qer_of(id);
        }
    }
    rules
}

/// A PDR as packets meet it: itself, or one of the predefined rules that it activates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EffectivePdr<'a> {
    pub(crate) pdr: &'a Pdr,
    pub(crate) rule: Option<(PredefinedId, &'a PredefinedRule)>,
}

impl<'a> EffectivePdr<'a> {
    pub(crate) fn id(self) -> Option<PredefinedId> {
        self.rule.map(|(id, _)| id)
    }

    pub(crate) fn rule(self) -> Option<&'a PredefinedRule> {
        self.rule.map(|(_, rule)| rule)
    }

    /// The predefined QER.
    pub(crate) fn qer(self) -> Option<&'a Qer> {
        self.rule()?.qer.as_ref()
    }

    /// IDs of all its QERs.
    pub(crate) fn has_qer(self, id: QerId) -> bool {
        self.pdr.qers.contains(&id) || self.qer().is_some_and(|qer| qer.id == id)
    }
}

/// Forms of a PDR that packets meet, in the order in which they are tried.
pub(crate) fn effective<'a>(
    pdr: &'a Pdr,
    rules: &'a [PredefinedRule],
) -> impl Iterator<Item = EffectivePdr<'a>> {
    let active = pdr.predefined();
    let plain = active
        .is_empty()
        .then_some(EffectivePdr { pdr, rule: None });
    let activated = active.iter().filter_map(move |&id| {
        let rule = rules.get(id.place())?;
        rule.is_for(pdr).then_some(EffectivePdr {
            pdr,
            rule: Some((id, rule)),
        })
    });
    plain.into_iter().chain(activated)
}

/// Activate Predefined Rules and Deactivate Predefined Rules among the IEs of a PDR (8.2.72, 8.2.73).
/// Deactivations come first. A name that is not configured for the direction of the PDR, or is to be
/// deactivated and was not active, is refused.
pub(crate) fn change(pdr: &mut Pdr, ies: Ies<'_>, rules: &[PredefinedRule]) -> Result<(), Refusal> {
    const ACTIVATE: IeType = IeType::ACTIVATE_PREDEFINED_RULES;
    const DEACTIVATE: IeType = IeType::DEACTIVATE_PREDEFINED_RULES;
    let named = |ie_type| {
        let all = ies.iter().map_while(Result::ok);
        all.filter(move |ie| ie.ie_type == ie_type)
            .map(|ie| ie.value)
    };
    let mut active: SmallVec<[PredefinedId; 4]> = SmallVec::from_slice(pdr.predefined());
    for name in named(DEACTIVATE) {
        let before = active.len();
        active.retain(|id| rules[id.place()].name.as_bytes() != name);
        if active.len() == before {
            return Err(Refusal::rule(DEACTIVATE));
        }
    }
    for name in named(ACTIVATE) {
        let mut is_for_it = false;
        for (id, rule) in rules_of(rules, name) {
            is_for_it |= rule.is_for(pdr);
            if active.contains(&id) {
                continue;
            }
            if active.len() == RULES_PER_PDR {
                return Err(Refusal::no_room(ACTIVATE));
            }
            active.push(id);
        }
        if !is_for_it {
            return Err(Refusal::rule(ACTIVATE));
        }
    }
    active.sort_by_key(|id| (rules[id.place()].precedence, *id));
    pdr.set_predefined(&active);
    Ok(())
}

/// Active rules in the order in which they are tried by these, which may be others than they were. Those of one precedence keep theirs.
pub(crate) fn arrange(pdr: &mut Pdr, rules: &[PredefinedRule]) {
    let mut active: SmallVec<[PredefinedId; 4]> = SmallVec::from_slice(pdr.predefined());
    active.sort_by_key(|id| rules.get(id.place()).map(|rule| rule.precedence));
    if active.as_slice() != pdr.predefined() {
        pdr.set_predefined(&active);
    }
}

/// The rules of a name, as it stands in an IE.
fn rules_of<'a>(
    rules: &'a [PredefinedRule],
    name: &'a [u8],
) -> impl Iterator<Item = (PredefinedId, &'a PredefinedRule)> {
    let named = rules
        .iter()
        .enumerate()
        .filter(move |(_, rule)| rule.name.as_bytes() == name);
    named.filter_map(|(place, rule)| Some((PredefinedId::at(place)?, rule)))
}

/// A PDR whose source changes may find that its rules are for the other direction.
pub(crate) fn fits(pdr: &Pdr, rules: &[PredefinedRule]) -> Result<(), Refusal> {
    if effective(pdr, rules).next().is_none() {
        return Err(Refusal::rule(IeType::SOURCE_INTERFACE));
    }
    Ok(())
}

/// A QER of an SMF whose ID says that it is a predefined one (8.2.75).
pub(crate) fn is_predefined(qer: QerId) -> bool {
    qer.0 & PREDEFINED_IDS != 0
}
