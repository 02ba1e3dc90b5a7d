//! IEs kept as they were sent.

use pfcp::{IeType, Ies};

use crate::base::refusal::Refusal;

/// IEs of a Traffic Endpoint that are kept.
const KEPT_IES_MAX: usize = 512;

/// IEs as they were sent. `create`: the IE that they are of.
pub(crate) fn said(ies: Ies<'_>, create: IeType) -> Result<Box<[u8]>, Refusal> {
    let bytes = ies.as_bytes();
    if bytes.len() > KEPT_IES_MAX {
        return Err(Refusal::no_room(create));
    }
    Ok(bytes.into())
}

/// IEs of the types that `new` has are replaced by those of `new`.
pub(crate) fn merge(kept: &[u8], new: Ies<'_>, create: IeType) -> Result<Box<[u8]>, Refusal> {
    let mut merged = Vec::with_capacity(kept.len() + new.as_bytes().len());
    let mut left = kept;
    while let [t0, t1, l0, l1, rest @ ..] = left {
        let (ie_type, length) = (
            u16::from_be_bytes([*t0, *t1]),
            u16::from_be_bytes([*l0, *l1]),
        );
        let length = usize::from(length).min(rest.len());
        if new.find(IeType(ie_type))?.is_none() {
            merged.extend_from_slice(&left[..4 + length]);
        }
        left = &rest[length..];
    }
    merged.extend_from_slice(new.as_bytes());
    if merged.len() > KEPT_IES_MAX {
        return Err(Refusal::no_room(create));
    }
    Ok(merged.into())
}
