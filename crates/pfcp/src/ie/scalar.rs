//! IEs that are one number, or octets nobody looks into.

use crate::{Cause, Error, FromIe, Ie, IeType, Ies, ToIe};

macro_rules! number {
    ($($type:ty: $read:ident,)*) => {$(
        impl FromIe<'_> for $type {
            #[inline]
            fn from_ie(ie: &Ie<'_>) -> Result<Self, Error> {
                ie.reader().$read()
            }
        }

        impl ToIe for $type {
            fn to_ie(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }
        }
    )*};
}

number! { u8: u8, u16: u16, u32: u32, u64: u64, }

impl<'a> FromIe<'a> for &'a [u8] {
    #[inline]
    fn from_ie(ie: &Ie<'a>) -> Result<Self, Error> {
        Ok(ie.value)
    }
}

impl ToIe for &[u8] {
    fn to_ie(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

/// A grouped IE that is kept as sent.
impl<'a> FromIe<'a> for Ies<'a> {
    #[inline]
    fn from_ie(ie: &Ie<'a>) -> Result<Self, Error> {
        Ok(ie.ies())
    }
}

impl FromIe<'_> for Cause {
    #[inline]
    fn from_ie(ie: &Ie<'_>) -> Result<Self, Error> {
        ie.reader().u8().map(Self)
    }
}

impl ToIe for Cause {
    fn to_ie(&self, out: &mut Vec<u8>) {
        out.push(self.0);
    }
}

/// Offending IE (8.2.22).
impl FromIe<'_> for IeType {
    #[inline]
    fn from_ie(ie: &Ie<'_>) -> Result<Self, Error> {
        ie.reader().u16().map(Self)
    }
}

impl ToIe for IeType {
    fn to_ie(&self, out: &mut Vec<u8>) {
        self.0.to_ie(out);
    }
}

/// Recovery Time Stamp (8.2.65): seconds since 1900, when the sender started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecoveryTimeStamp(pub u32);

impl FromIe<'_> for RecoveryTimeStamp {
    #[inline]
    fn from_ie(ie: &Ie<'_>) -> Result<Self, Error> {
        ie.reader().u32().map(Self)
    }
}

impl ToIe for RecoveryTimeStamp {
    fn to_ie(&self, out: &mut Vec<u8>) {
        self.0.to_ie(out);
    }
}
