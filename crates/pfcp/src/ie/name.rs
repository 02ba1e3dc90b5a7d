//! Names: network instances and FQDNs.

use std::fmt::{self, Write};

use crate::{Error, FromIe, Ie, ToIe};

const LONGEST_LABEL: usize = 63;

/// A name as a peer sent it: in labels, each after its length (TS 23.003, 9.1; RFC 1035, 3.1), or,
/// as some peers do, as plain text. Which of them it is shows in the octets.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DnsName<'a>(pub &'a [u8]);

impl<'a> DnsName<'a> {
    /// The labels; plain text is one label.
    fn labels(self) -> impl Iterator<Item = &'a [u8]> {
        let mut left = self.0;
        let plain = !self.is_labels();
        std::iter::from_fn(move || {
            if plain {
                return (!left.is_empty()).then(|| std::mem::take(&mut left));
            }
            let (label, rest) = split_label(left)?;
            left = rest;
            Some(label)
        })
    }

    /// Whether lengths and labels follow each other until the end; a last empty label may close them.
    fn is_labels(self) -> bool {
        let mut left = self.0;
        while let Some((_, rest)) = split_label(left) {
            left = rest;
        }
        matches!(left, [] | [0])
    }

    /// Whether this is the name, given with dots. ASCII case does not matter (RFC 1035, 2.3.3).
    pub fn matches(self, name: &str) -> bool {
        if self.0.eq_ignore_ascii_case(name.as_bytes()) {
            return true;
        }
        let mut wanted = name.trim_end_matches('.').split('.');
        let mut labels = self.labels();
        loop {
            match (labels.next(), wanted.next()) {
                (None, None) => return true,
                (Some(have), Some(want)) if have.eq_ignore_ascii_case(want.as_bytes()) => {}
                _ => return false,
            }
        }
    }
}

fn split_label(left: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = left.split_first()?;
    let length = usize::from(length);
    if length == 0 || length > LONGEST_LABEL {
        return None;
    }
    rest.split_at_checked(length)
}

/// With dots between labels; octets that are not printable ASCII are escaped.
impl fmt::Display for DnsName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, label) in self.labels().enumerate() {
            if index > 0 {
                f.write_char('.')?;
            }
            write!(f, "{}", label.escape_ascii())?;
        }
        Ok(())
    }
}

impl fmt::Debug for DnsName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// Network Instance (8.2.4), or an APN or DNN (8.2.117).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NetworkInstance<'a>(pub DnsName<'a>);

impl<'a> NetworkInstance<'a> {
    /// From the octets as they are sent.
    pub fn new(octets: &'a [u8]) -> Self {
        Self(DnsName(octets))
    }

    /// Whether this names the network instance `name`, in whichever form it was sent.
    pub fn matches(&self, name: &str) -> bool {
        self.0.matches(name)
    }

    /// The octets as sent.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0.0
    }
}

impl fmt::Display for NetworkInstance<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'a> FromIe<'a> for NetworkInstance<'a> {
    #[inline]
    fn from_ie(ie: &Ie<'a>) -> Result<Self, Error> {
        Ok(Self::new(ie.value))
    }
}

impl ToIe for NetworkInstance<'_> {
    fn to_ie(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }
}

/// Writes a name given with dots as labels (RFC 1035, 3.1), without the empty last one. A label is
/// cut at 63 octets, which no name that was checked when it was configured has.
pub(crate) fn write_labels(name: &str, out: &mut Vec<u8>) {
    for label in name.split('.').filter(|label| !label.is_empty()) {
        let label = label.as_bytes();
        let label = label.get(..LONGEST_LABEL).unwrap_or(label);
        out.push(label.len() as u8);
        out.extend_from_slice(label);
    }
}
