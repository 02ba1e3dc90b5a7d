//! Flags as the numbers that they are, for those whose crate knows no encoding but the wire's.

use bitflags::Flags;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) fn serialize<F, S>(flags: &F, to: S) -> Result<S::Ok, S::Error>
where
    F: Flags<Bits: Serialize>,
    S: Serializer,
{
    flags.bits().serialize(to)
}

/// Bits without a name stay.
pub(crate) fn deserialize<'de, F, D>(from: D) -> Result<F, D::Error>
where
    F: Flags<Bits: Deserialize<'de>>,
    D: Deserializer<'de>,
{
    F::Bits::deserialize(from).map(F::from_bits_retain)
}
