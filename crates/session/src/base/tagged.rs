//! Fields by tag: one that is not there is as [`Default`] has it, and so one that comes to be later changes nothing that was
//! written before.
//!
//! Fields stand in rising order of their tags: tag, length, and the value as postcard has it. None is written that is as by
//! default, so that there is one way to write a value.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::base::octets::{Malformed, put, put_with_length, take, take_octets};

/// Fields of a later version of this program: kept as they were written, so that whoever reads them can say which they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Later(Box<[u8]>);

impl Later {
    /// Tag of the first one.
    pub(crate) fn tag(&self) -> Option<u8> {
        self.0.first().copied()
    }

    pub(crate) fn octets(&self) -> &[u8] {
        &self.0
    }
}

/// A type whose fields have tags ([`tagged!`]).
pub(crate) trait Tagged {
    /// Tag of a field that is not known to this version.
    fn unknown(&self) -> Option<u8>;
}

/// Fields that are read one by one.
#[derive(Debug)]
pub(crate) struct Fields<'o> {
    rest: &'o [u8],
    last: Option<u8>,
}

impl<'o> Fields<'o> {
    pub(crate) fn of(octets: &'o [u8]) -> Self {
        Self {
            rest: octets,
            last: None,
        }
    }

    /// Tag of the next one.
    pub(crate) fn tag(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Tag and value of the next one.
    pub(crate) fn next(&mut self) -> Result<Option<(u8, &'o [u8])>, Malformed> {
        let Some((tag, mut rest)) = self.rest.split_first() else {
            return Ok(None);
        };
        if self.last.is_some_and(|last| last >= *tag) {
            return Err(Malformed);
        }
        let value = take_octets(&mut rest)?;
        (self.rest, self.last) = (rest, Some(*tag));
        Ok(Some((*tag, value)))
    }

    /// Value of the next one, if there is one.
    pub(crate) fn value<T: DeserializeOwned>(&mut self) -> Result<T, Malformed> {
        let (_, octets) = self.next()?.ok_or(Malformed)?;
        value_of(octets)
    }

    /// All from here on, whatever they are: whole, and in order.
    pub(crate) fn later(mut self) -> Result<Later, Malformed> {
        let rest = self.rest;
        while self.next()?.is_some() {}
        Ok(Later(rest.into()))
    }
}

/// Appends a field.
pub(crate) fn put_field(tag: u8, value: &impl Serialize, into: &mut Vec<u8>) {
    into.push(tag);
    put_with_length(into, |into| put(value, into));
}

/// The value of a field, and nothing behind it.
pub(crate) fn value_of<'o, T: Deserialize<'o>>(mut octets: &'o [u8]) -> Result<T, Malformed> {
    let value = take(&mut octets)?;
    octets.is_empty().then_some(value).ok_or(Malformed)
}

/// Tags of the fields of a type, which has one more of the type [`Later`], named `later`. No tag is ever used again for
/// something else. Their values are there for good: another form of one is a field of its own.
macro_rules! tagged {
    ($name:ident { $($tag:literal: $field:ident,)* }) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let Self { $($field,)* later } = self;
                let (absent, mut octets) = (Self::default(), Vec::new());
                $(
                    if *$field != absent.$field {
                        $crate::base::tagged::put_field($tag, $field, &mut octets);
                    }
                )*
                octets.extend_from_slice(later.octets());
                to.serialize_bytes(&octets)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                fn read(octets: &[u8]) -> Result<$name, $crate::base::octets::Malformed> {
                    let mut fields = $crate::base::tagged::Fields::of(octets);
                    let mut value = $name::default();
                    while let Some(tag) = fields.tag() {
                        match tag {
                            $($tag => value.$field = fields.value()?,)*
                            _ => break,
                        }
                    }
                    value.later = fields.later()?;
                    Ok(value)
                }
                let octets = <&[u8]>::deserialize(from)?;
                read(octets).map_err(serde::de::Error::custom)
            }
        }

        impl $crate::base::tagged::Tagged for $name {
            fn unknown(&self) -> Option<u8> {
                self.later.tag()
            }
        }
    };
}

pub(crate) use tagged;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, Eq)]
    struct Now {
        first: u32,
        second: Option<u8>,
        later: Later,
    }

    tagged!(Now {
        1: first,
        3: second,
    });

    #[derive(Debug, Default, PartialEq, Eq)]
    struct Then {
        first: u32,
        second: Option<u8>,
        third: Box<[u8]>,
        later: Later,
    }

    tagged!(Then {
        1: first,
        3: second,
        7: third,
    });

    fn octets(value: &impl Serialize) -> Vec<u8> {
        let mut octets = Vec::new();
        put(value, &mut octets);
        octets
    }

    #[test]
    fn what_is_as_by_default_is_not_written() {
        assert_eq!(octets(&Now::default()), [0]);
        let first = 300;
        let value = Now {
            first,
            ..Now::default()
        };
        assert_eq!(octets(&value), [4, 1, 2, 0xac, 2]);
        let long = Then {
            third: vec![9; 200].into(),
            ..Then::default()
        };
        let written = octets(&long);
        assert_eq!(written[..7], [205, 1, 7, 202, 1, 200, 1]);
        assert_eq!(value_of::<Then>(&written), Ok(long));
    }

    #[test]
    fn a_later_version_reads_what_an_earlier_one_has_written_and_the_reverse_by_tag() {
        let now = Now {
            first: 1,
            second: Some(2),
            later: Later::default(),
        };
        let then = value_of::<Then>(&octets(&now)).unwrap();
        assert_eq!(
            (then.first, then.second, then.unknown()),
            (1, Some(2), None)
        );
        let then = Then {
            third: [5, 6].into(),
            ..then
        };
        let read = value_of::<Now>(&octets(&then)).unwrap();
        assert_eq!((read.first, read.second), (1, Some(2)));
        assert_eq!(read.unknown(), Some(7));
        assert_eq!(octets(&read), octets(&then), "it goes on as it came");
    }

    #[test]
    fn octets_out_of_order_or_cut_are_no_fields() {
        for wrong in [
            &[4, 3, 1, 0, 1][..],
            &[6, 1, 1, 5, 1, 1, 5],
            &[6, 3, 1, 0, 1, 1, 5],
            &[3, 1, 2, 5],
            &[4, 1, 2, 5, 0],
            &[1, 9],
            &[4, 9, 0, 8, 0],
        ] {
            assert_eq!(value_of::<Now>(wrong), Err(Malformed), "{wrong:?}");
        }
    }
}
