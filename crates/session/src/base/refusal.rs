//! Why a session request is refused, in the terms of its answer.

use std::fmt;

use pfcp::{Cause, IeType};

use crate::base::ids::RuleId;
use crate::base::shortage::Shortage;

/// A request is refused; it has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Cause (TS 29.244, 8.2.1).
    pub cause: Cause,
    /// Offending IE (8.2.22).
    pub offending_ie: Option<IeType>,
    /// Failed Rule ID (8.2.80).
    pub failed_rule: Option<RuleId>,
    /// The table or share without room; for the log.
    pub shortage: Option<Shortage>,
    /// Name in the request that the configuration lacks; for the log.
    pub unknown: Option<GivenName>,
}

/// A name as a peer gave it, as far as a line of the log has room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenName {
    octets: [u8; Self::ROOM],
    /// Of the whole name.
    len: u16,
}

impl GivenName {
    const ROOM: usize = 38;

    /// The first octets of a name, and how many there are.
    pub fn new(name: &[u8]) -> Self {
        let mut octets = [0; Self::ROOM];
        octets
            .iter_mut()
            .zip(name)
            .for_each(|(to, from)| *to = *from);
        let len = u16::try_from(name.len()).unwrap_or(u16::MAX);
        Self { octets, len }
    }
}

/// Octets that are not printable ASCII are escaped.
impl fmt::Display for GivenName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = usize::from(self.len);
        let shown = self.octets.get(..len).unwrap_or(&self.octets);
        write!(f, "{}", shown.escape_ascii())?;
        if shown.len() < len {
            write!(f, "... ({len} octets)")?;
        }
        Ok(())
    }
}

impl Refusal {
    /// Something in a rule that we cannot do, or that makes no sense (cause 73).
    pub(crate) const fn rule(ie: IeType) -> Self {
        Self::ie(Cause::RULE_CREATION_MODIFICATION_FAILURE, ie)
    }

    /// Beyond a limit (cause 75).
    pub(crate) const fn no_room(ie: IeType) -> Self {
        Self::ie(Cause::NO_RESOURCES_AVAILABLE, ie)
    }

    pub(crate) const fn ie(cause: Cause, ie: IeType) -> Self {
        Self {
            cause,
            offending_ie: Some(ie),
            failed_rule: None,
            shortage: None,
            unknown: None,
        }
    }

    /// Beyond what there is of something for all (cause 75).
    pub(crate) fn short_of(shortage: Shortage) -> Self {
        let offending_ie = match shortage.table {
            "rules" => Some(IeType::SDF_FILTER),
            "entries" => Some(IeType::CREATE_PDR),
            "meters" => Some(IeType::CREATE_QER),
            "capacities" => Some(IeType::GBR),
            "peers" => Some(IeType::OUTER_HEADER_CREATION),
            _ => None,
        };
        Self {
            cause: Cause::NO_RESOURCES_AVAILABLE,
            offending_ie,
            failed_rule: None,
            shortage: Some(shortage),
            unknown: None,
        }
    }

    /// The same, about a name that we do not know.
    #[must_use]
    pub(crate) fn of_unknown(mut self, name: &[u8]) -> Self {
        self.unknown = Some(GivenName::new(name));
        self
    }

    /// The same, once it is known which rule it is about; the innermost knows best.
    #[must_use]
    pub(crate) fn in_rule(mut self, rule: RuleId) -> Self {
        self.failed_rule.get_or_insert(rule);
        self
    }

    /// Whether it could be accepted once others have given back what they hold.
    pub(crate) fn is_for_want(&self) -> bool {
        matches!(
            self.cause,
            Cause::NO_RESOURCES_AVAILABLE | Cause::ALL_DYNAMIC_ADDRESSES_ARE_OCCUPIED
        ) || (self.cause == Cause::RULE_CREATION_MODIFICATION_FAILURE
            && matches!(
                self.offending_ie,
                Some(
                    IeType::F_TEID
                        | IeType::UE_IP_ADDRESS
                        | IeType::FRAMED_ROUTE
                        | IeType::FRAMED_IPV6_ROUTE
                )
            ))
    }
}

impl From<pfcp::Error> for Refusal {
    fn from(error: pfcp::Error) -> Self {
        Self {
            cause: error.cause(),
            offending_ie: error.offending_ie(),
            failed_rule: None,
            shortage: None,
            unknown: None,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cause)?;
        if let Some(rule) = self.failed_rule {
            write!(f, ", {rule}")?;
        }
        if let Some(ie) = self.offending_ie {
            write!(f, ", {ie}")?;
        }
        if let Some(shortage) = self.shortage {
            write!(f, ", {shortage}")?;
        }
        if let Some(unknown) = self.unknown {
            write!(f, ", \"{unknown}\" is not configured")?;
        }
        Ok(())
    }
}

impl From<Cause> for Refusal {
    fn from(cause: Cause) -> Self {
        Self {
            cause,
            offending_ie: None,
            failed_rule: None,
            shortage: None,
            unknown: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiled::NoRoom;

    #[test]
    fn a_full_table_of_filters_is_named_in_cause_and_log() {
        let refusal = Refusal::short_of(NoRoom::of("rules").into());
        assert_eq!(refusal.cause, Cause::NO_RESOURCES_AVAILABLE);
        assert_eq!(refusal.offending_ie, Some(IeType::SDF_FILTER));
        assert!(refusal.to_string().ends_with("rules: full"));
    }

    #[test]
    fn a_name_that_a_peer_gave_is_shown_whole_or_cut() {
        assert_eq!(GivenName::new(b"gold").to_string(), "gold");
        assert_eq!(GivenName::new(b"").to_string(), "");
        assert_eq!(GivenName::new(b"a\n\xff").to_string(), "a\\n\\xff");
        let long = GivenName::new(&[b'x'; 255]).to_string();
        assert_eq!(long, format!("{}... (255 octets)", "x".repeat(38)));
    }
}
