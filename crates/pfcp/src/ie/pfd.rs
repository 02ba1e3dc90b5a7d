//! Packet Flow Descriptions (TS 29.244, 7.4.3.1 and 8.2.39).

use crate::ies::Reader;
use crate::{Error, FromIe, Ie, ToIe};

/// PFD Contents (8.2.39): how traffic of an application looks. Each member as octets, for the
/// specification bounds neither their length nor their alphabet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PfdContents<'a> {
    /// Flow Description: an IPFilterRule (TS 29.212, 5.4.2).
    pub flow_description: Option<&'a [u8]>,
    /// URL.
    pub url: Option<&'a [u8]>,
    /// Domain Name.
    pub domain_name: Option<&'a [u8]>,
    /// Custom PFD Content.
    pub custom: Option<&'a [u8]>,
    /// Domain Name Protocol.
    pub domain_name_protocol: Option<&'a [u8]>,
    /// Additional Flow Descriptions, each after its length.
    pub additional_flow_descriptions: Option<&'a [u8]>,
    /// Additional URLs, each after its length.
    pub additional_urls: Option<&'a [u8]>,
    /// Additional Domain Names and Protocols, each after its length.
    pub additional_domain_names: Option<&'a [u8]>,
}

impl<'a> PfdContents<'a> {
    /// Every Flow Description, the additional ones too.
    pub fn flow_descriptions(&self) -> impl Iterator<Item = &'a [u8]> {
        let first = self.flow_description.into_iter();
        first.chain(entries(self.additional_flow_descriptions))
    }

    /// Every URL.
    pub fn urls(&self) -> impl Iterator<Item = &'a [u8]> {
        self.url.into_iter().chain(entries(self.additional_urls))
    }

    /// Every Domain Name, without what its protocol is.
    pub fn domain_names(&self) -> impl Iterator<Item = &'a [u8]> {
        let mut additional = entries(self.additional_domain_names);
        // Domain Name and Domain Name Protocol alternate.
        let names = std::iter::from_fn(move || {
            let name = additional.next();
            additional.next();
            name
        });
        self.domain_name.into_iter().chain(names)
    }
}

/// Octets, each entry after its length of two octets, until the end or what is no whole entry.
fn entries(field: Option<&[u8]>) -> impl Iterator<Item = &[u8]> {
    let mut left = field.unwrap_or_default();
    std::iter::from_fn(move || {
        let (length, rest) = left.split_first_chunk()?;
        let (entry, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
        left = rest;
        Some(entry)
    })
}

fn counted<'a>(reader: &mut Reader<'a>, present: bool) -> Result<Option<&'a [u8]>, Error> {
    if !present {
        return Ok(None);
    }
    let length = reader.u16()?;
    reader.take(length.into()).map(Some)
}

impl<'a> FromIe<'a> for PfdContents<'a> {
    fn from_ie(ie: &Ie<'a>) -> Result<Self, Error> {
        let mut reader = ie.reader();
        let flags = reader.u8()?;
        let _spare = reader.u8()?;
        let mut next = |bit: u8| counted(&mut reader, flags >> bit & 1 != 0);
        Ok(Self {
            flow_description: next(0)?,
            url: next(1)?,
            domain_name: next(2)?,
            custom: next(3)?,
            domain_name_protocol: next(4)?,
            additional_flow_descriptions: next(5)?,
            additional_urls: next(6)?,
            additional_domain_names: next(7)?,
        })
    }
}

impl ToIe for PfdContents<'_> {
    fn to_ie(&self, out: &mut Vec<u8>) {
        let members = [
            self.flow_description,
            self.url,
            self.domain_name,
            self.custom,
            self.domain_name_protocol,
            self.additional_flow_descriptions,
            self.additional_urls,
            self.additional_domain_names,
        ];
        let bit = |(bit, member): (u32, &Option<&[u8]>)| u8::from(member.is_some()) << bit;
        out.push((0..).zip(&members).map(bit).sum());
        out.push(0);
        for member in members.into_iter().flatten() {
            // An IE is no longer than its length field says, so what does not fit is not sent.
            out.extend_from_slice(&(member.len() as u16).to_be_bytes());
            out.extend_from_slice(member);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IeType;

    fn decode(value: &[u8]) -> Result<PfdContents<'_>, Error> {
        PfdContents::from_ie(&Ie {
            ie_type: IeType::PFD_CONTENTS,
            enterprise: None,
            value,
            offset: 0,
        })
    }

    #[test]
    fn members_follow_their_flags() {
        let octets = b"\x25\x00\x00\x02fd\x00\x03a.b\x00\x07\x00\x02f2\x00\x01x";
        let contents = decode(octets).unwrap();
        assert_eq!(
            contents.flow_descriptions().collect::<Vec<_>>(),
            [&b"fd"[..], b"f2", b"x"]
        );
        assert_eq!(contents.domain_names().collect::<Vec<_>>(), [b"a.b"]);
        assert_eq!(contents.urls().count(), 0);
        let mut out = Vec::new();
        contents.to_ie(&mut out);
        assert_eq!(out, octets);
    }

    #[test]
    fn names_and_their_protocols_alternate() {
        let octets = b"\x80\x00\x00\x0e\x00\x03a.b\x00\x00\x00\x03c.d\x00\x00";
        let contents = decode(octets).unwrap();
        assert_eq!(
            contents.domain_names().collect::<Vec<_>>(),
            [b"a.b", b"c.d"]
        );
    }

    #[test]
    fn what_is_cut_off_is_an_error() {
        assert!(decode(b"").is_err());
        assert!(decode(b"\x01").is_err());
        assert!(decode(b"\x01\x00\x00").is_err());
        assert!(decode(b"\x01\x00\x00\x03ab").is_err());
        assert_eq!(decode(b"\x00\x00").unwrap(), PfdContents::default());
    }
}
