//! Values as octets: one encoding (postcard) for all that outlives a request.

use postcard::Deserializer;
use postcard::ser_flavors::Flavor;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// Octets that are no such value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed")]
pub(crate) struct Malformed;

/// Appends to a vector that is used again and again.
struct Appending<'v>(&'v mut Vec<u8>);

impl Flavor for Appending<'_> {
    type Output = ();

    #[inline]
    fn try_push(&mut self, octet: u8) -> postcard::Result<()> {
        self.0.push(octet);
        Ok(())
    }

    #[inline]
    fn try_extend(&mut self, octets: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(octets);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Appends a value. Memory has room for it and each of our lists has a length, so nothing can go wrong.
pub(crate) fn put(value: &impl Serialize, into: &mut Vec<u8>) {
    let done = postcard::serialize_with_flavor(value, Appending(into));
    debug_assert_eq!(done, Ok(()));
}

/// The value at the front, which goes from there. A list takes no more memory than as many of its elements as there are
/// octets: that many it has at most, and the decoder reserves no more.
pub(crate) fn take<'o, T: Deserialize<'o>>(from: &mut &'o [u8]) -> Result<T, Malformed> {
    let (value, rest) = postcard::take_from_bytes(from).map_err(|_| Malformed)?;
    *from = rest;
    Ok(value)
}

/// Appends octets behind their number, as they come.
pub(crate) fn put_with_length(into: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    // Mostly their number is one octet.
    let at = into.len();
    into.push(0);
    let from = into.len();
    write(into);
    let octets = into.len() - from;
    match octets {
        0..0x80 => into[at] = octets as u8,
        _ => {
            let to = into.len();
            put(&octets, into);
            let number: SmallVec<[u8; 10]> = into[to..].into();
            into.copy_within(from..to, at + number.len());
            into[at..at + number.len()].copy_from_slice(&number);
            into.truncate(to - 1 + number.len());
        }
    }
}

/// Octets at the front that say how many they are.
pub(crate) fn take_octets<'o>(from: &mut &'o [u8]) -> Result<&'o [u8], Malformed> {
    let length = take(from)?;
    let (octets, rest) = from.split_at_checked(length).ok_or(Malformed)?;
    *from = rest;
    Ok(octets)
}

/// So many values at the front, in place of what is in `into`.
pub(crate) fn take_many<T: DeserializeOwned>(
    count: usize,
    into: &mut Vec<T>,
    from: &mut &[u8],
) -> Result<(), Malformed> {
    into.clear();
    // Each takes an octet at least; a number that is too large reserves no more than that.
    into.reserve_exact(count.min(from.len()));
    let mut decoder = Deserializer::from_bytes(from);
    for _ in 0..count {
        into.push(T::deserialize(&mut decoder).map_err(|_| Malformed)?);
    }
    *from = decoder.finalize().map_err(|_| Malformed)?;
    Ok(())
}
