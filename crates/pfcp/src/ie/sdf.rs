//! SDF Filter.

use crate::{Error, FromIe, Ie, ToIe};

/// SDF Filter (8.2.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SdfFilter<'a> {
    /// Flow Description: an IPFilterRule (RFC 6733, 4.3.1).
    pub flow_description: Option<&'a str>,
    /// ToS Traffic Class: value and mask.
    pub tos_traffic_class: Option<u16>,
    /// Security Parameter Index.
    pub security_parameter_index: Option<u32>,
    /// IPv6 Flow Label: 20 bits, in three octets.
    pub flow_label: Option<u32>,
    /// SDF Filter ID: names a filter of the other direction.
    pub filter_id: Option<u32>,
}

impl<'a> FromIe<'a> for SdfFilter<'a> {
    #[inline]
    fn from_ie(ie: &Ie<'a>) -> Result<Self, Error> {
        let mut reader = ie.reader();
        let [flags, _spare] = reader.chunk()?;
        let has = |bit: u8| flags & 1 << bit != 0;
        let flow_description = if has(0) {
            let length = reader.u16()?;
            let octets = reader.take(length.into())?;
            let text = std::str::from_utf8(octets);
            Some(text.map_err(|_| ie.wrong("a Flow Description in UTF-8", flags))?)
        } else {
            None
        };
        Ok(Self {
            flow_description,
            tos_traffic_class: has(1).then(|| reader.u16()).transpose()?,
            security_parameter_index: has(2).then(|| reader.u32()).transpose()?,
            flow_label: has(3).then(|| reader.u24()).transpose()?,
            filter_id: has(4).then(|| reader.u32()).transpose()?,
        })
    }
}

impl ToIe for SdfFilter<'_> {
    fn to_ie(&self, out: &mut Vec<u8>) {
        let flags = u8::from(self.flow_description.is_some())
            | u8::from(self.tos_traffic_class.is_some()) << 1
            | u8::from(self.security_parameter_index.is_some()) << 2
            | u8::from(self.flow_label.is_some()) << 3
            | u8::from(self.filter_id.is_some()) << 4;
        out.extend_from_slice(&[flags, 0]);
        if let Some(text) = self.flow_description {
            out.extend_from_slice(&(text.len() as u16).to_be_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        out.extend(
            self.tos_traffic_class
                .iter()
                .flat_map(|value| value.to_be_bytes()),
        );
        out.extend(
            self.security_parameter_index
                .iter()
                .flat_map(|value| value.to_be_bytes()),
        );
        out.extend(
            self.flow_label
                .iter()
                .flat_map(|value| value.to_be_bytes().into_iter().skip(1)),
        );
        out.extend(self.filter_id.iter().flat_map(|value| value.to_be_bytes()));
    }
}
