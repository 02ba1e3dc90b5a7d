//! A Packet Flow Description, property by property.

use serde::{Deserialize, Serialize};

use crate::base::flow::FlowDescription;

/// Kind of property by which a PFD describes traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PfdKind {
    /// Flow Description: an IPFilterRule (TS 29.212, 5.4.2).
    Flow,
    /// URL, or a pattern of such.
    Url,
    /// Domain name, or a pattern of such.
    Domain,
    /// Content that an operator has agreed upon with its vendor.
    Custom,
}

impl PfdKind {
    /// As operators see it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flow => "flow",
            Self::Url => "url",
            Self::Domain => "domain",
            Self::Custom => "custom",
        }
    }
}

/// One property of a PFD. Properties of one PFD all belong to the same traffic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Property {
    /// Number of its PFD within the application, from 0.
    pub pfd: u32,
    /// Its kind.
    pub kind: PfdKind,
    /// Its value, as sent.
    pub text: Box<str>,
}

/// The flows of an application's PFDs, if these are all that they are.
pub(crate) fn flows_of(properties: &[Property]) -> Option<Box<[FlowDescription]>> {
    let flow = |property: &Property| match property.kind {
        PfdKind::Flow => FlowDescription::parse(property.text.as_bytes()).ok(),
        PfdKind::Url | PfdKind::Domain | PfdKind::Custom => None,
    };
    properties.iter().map(flow).collect()
}
