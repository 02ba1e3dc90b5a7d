//! A Packet Flow Description, property by property.

/// What a PFD describes the traffic by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PfdKind {
    /// Flow Description: an IPFilterRule (TS 29.212, 5.4.2).
    Flow,
    /// URL, or a pattern of such.
    Url,
    /// Domain name, or a pattern of such.
    Domain,
    /// What an operator has agreed upon with its vendor.
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// Number of its PFD within the application, from 0.
    pub pfd: u32,
    /// What it says.
    pub kind: PfdKind,
    /// In which words.
    pub text: Box<str>,
}
