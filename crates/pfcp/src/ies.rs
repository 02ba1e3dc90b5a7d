//! Walking IEs (TS 29.244, 8.1.1) without copying them.

use std::fmt;
use std::marker::PhantomData;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::IeType;
use crate::error::{Error, ErrorKind};

/// Octets of type and length (8.1.1).
const IE_HEADER: usize = 4;

/// One IE as it lies in the datagram (8.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ie<'a> {
    /// Its type.
    pub ie_type: IeType,
    /// Enterprise ID of a vendor IE; `None` also when its value is too short to hold one.
    pub enterprise: Option<u16>,
    /// Octets after the length, and after the Enterprise ID where there is one.
    pub value: &'a [u8],
    /// Beginning of the IE, in octets from the start of the datagram.
    pub offset: usize,
}

impl<'a> Ie<'a> {
    /// The IEs inside a grouped IE (5.4.2 of TS 29.244: 8.1.1).
    #[inline]
    pub fn ies(&self) -> Ies<'a> {
        Ies::new(self.value, self.offset + IE_HEADER, Some(self.ie_type))
    }

    #[inline]
    pub(crate) fn error(&self, kind: ErrorKind) -> Error {
        Error {
            ie: Some(self.ie_type),
            offset: self.offset,
            kind,
        }
    }

    pub(crate) fn wrong(&self, expected: &'static str, found: impl Into<u64>) -> Error {
        self.error(ErrorKind::Value {
            expected,
            found: found.into(),
        })
    }

    pub(crate) fn too_short(&self, missing: usize) -> Error {
        let found = self.value.len();
        self.error(ErrorKind::Length {
            expected: found + missing,
            found,
        })
    }

    #[inline]
    pub(crate) fn reader(&self) -> Reader<'a> {
        Reader {
            ie: *self,
            left: self.value,
        }
    }
}

/// IEs in the order in which they were sent: those of a message or of a grouped IE.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ies<'a> {
    bytes: &'a [u8],
    /// As narrow as a UDP datagram allows: views hold many of these.
    offset: u32,
    parent: Option<IeType>,
}

impl<'a> Ies<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8], offset: usize, parent: Option<IeType>) -> Self {
        Self {
            bytes,
            offset: offset as u32,
            parent,
        }
    }

    /// Every IE, known or not. After an error there is nothing more.
    #[inline]
    pub fn iter(&self) -> IesIter<'a> {
        IesIter {
            left: self.bytes,
            offset: self.offset(),
            parent: self.parent,
        }
    }

    /// The first IE of this type: of an IE that may not be repeated, only the first counts (7.6.10).
    pub fn find(&self, ie_type: IeType) -> Result<Option<Ie<'a>>, Error> {
        for ie in self {
            let ie = ie?;
            if ie.ie_type == ie_type {
                return Ok(Some(ie));
            }
        }
        Ok(None)
    }

    /// The octets as sent.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Beginning of the first IE, in octets from the start of the datagram.
    #[inline]
    pub fn offset(&self) -> usize {
        self.offset as usize
    }

    /// The grouped IE that holds these; `None` for those of a message.
    pub fn parent(&self) -> Option<IeType> {
        self.parent
    }

    /// Error for an IE that is missing here and must always be present (7.6.6).
    pub fn mandatory_missing(&self, ie_type: IeType) -> Error {
        Error {
            ie: Some(ie_type),
            offset: self.offset(),
            kind: ErrorKind::MandatoryMissing,
        }
    }
}

impl fmt::Debug for Ies<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.iter().map(|ie| ie.map(|ie| (ie.ie_type, ie.value))))
            .finish()
    }
}

impl<'a> IntoIterator for &Ies<'a> {
    type Item = Result<Ie<'a>, Error>;
    type IntoIter = IesIter<'a>;

    #[inline]
    fn into_iter(self) -> IesIter<'a> {
        self.iter()
    }
}

/// Iterator over [`Ies`].
#[derive(Clone, Debug)]
pub struct IesIter<'a> {
    left: &'a [u8],
    offset: usize,
    parent: Option<IeType>,
}

impl<'a> Iterator for IesIter<'a> {
    type Item = Result<Ie<'a>, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let &[t0, t1, l0, l1, ref rest @ ..] = self.left else {
            return self.tail();
        };
        let ie_type = IeType(u16::from_be_bytes([t0, t1]));
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        let Some((value, left)) = rest.split_at_checked(length) else {
            return Some(Err(self.truncated(Some(ie_type), IE_HEADER + length)));
        };
        let mut ie = Ie {
            ie_type,
            enterprise: None,
            value,
            offset: self.offset,
        };
        if ie_type.is_vendor()
            && let Some((id, value)) = value.split_first_chunk()
        {
            ie.enterprise = Some(u16::from_be_bytes(*id));
            ie.value = value;
        }
        self.offset += IE_HEADER + length;
        self.left = left;
        Some(Ok(ie))
    }
}

impl<'a> IesIter<'a> {
    /// Fewer octets than an IE header: the end, or an error if there are any.
    #[cold]
    fn tail(&mut self) -> Option<Result<Ie<'a>, Error>> {
        (!self.left.is_empty()).then(|| Err(self.truncated(self.parent, IE_HEADER)))
    }

    #[cold]
    fn truncated(&mut self, ie: Option<IeType>, expected: usize) -> Error {
        let found = std::mem::take(&mut self.left).len();
        Error {
            ie,
            offset: self.offset,
            kind: ErrorKind::Truncated { expected, found },
        }
    }
}

/// A value that an IE carries.
pub trait FromIe<'a>: Sized {
    /// Decodes the value; octets beyond those known are ignored, as later releases may add them (8.1.1).
    fn from_ie(ie: &Ie<'a>) -> Result<Self, Error>;
}

/// All IEs of one type among others, decoded one by one as they are asked for.
pub struct Repeated<'a, T> {
    /// Begins with the first of them.
    bytes: &'a [u8],
    offset: u32,
    ie_type: IeType,
    count: u16,
    values: PhantomData<fn() -> T>,
}

impl<'a, T: FromIe<'a>> Repeated<'a, T> {
    #[inline]
    pub(crate) fn new(ie_type: IeType) -> Self {
        Self {
            bytes: &[],
            offset: 0,
            ie_type,
            count: 0,
            values: PhantomData,
        }
    }

    /// One more of `ies` has been met; walks begin at the first.
    #[inline]
    pub(crate) fn note(&mut self, ies: &Ies<'a>, ie: &Ie<'a>) {
        if self.count == 0 {
            let skipped = ie.offset - ies.offset();
            self.bytes = ies.bytes.get(skipped..).unwrap_or_default();
            self.offset = ie.offset as u32;
        }
        self.count += 1;
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Each value, or what is wrong with it.
    #[inline]
    pub fn iter(&self) -> RepeatedIter<'a, T> {
        RepeatedIter {
            ies: Ies {
                bytes: self.bytes,
                offset: self.offset,
                parent: None,
            }
            .iter(),
            ie_type: self.ie_type,
            left: self.count,
            values: PhantomData,
        }
    }
}

impl<T> Clone for Repeated<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Repeated<'_, T> {}

impl<'a, T: FromIe<'a> + fmt::Debug> fmt::Debug for Repeated<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, T: FromIe<'a>> IntoIterator for &Repeated<'a, T> {
    type Item = Result<T, Error>;
    type IntoIter = RepeatedIter<'a, T>;

    #[inline]
    fn into_iter(self) -> RepeatedIter<'a, T> {
        self.iter()
    }
}

/// Iterator over [`Repeated`].
#[derive(Clone, Debug)]
pub struct RepeatedIter<'a, T> {
    ies: IesIter<'a>,
    ie_type: IeType,
    left: u16,
    values: PhantomData<fn() -> T>,
}

impl<'a, T: FromIe<'a>> Iterator for RepeatedIter<'a, T> {
    type Item = Result<T, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while self.left > 0 {
            let ie = match self.ies.next()? {
                Ok(ie) => ie,
                Err(error) => {
                    self.left = 0;
                    return Some(Err(error));
                }
            };
            if ie.ie_type == self.ie_type {
                self.left -= 1;
                return Some(T::from_ie(&ie));
            }
        }
        None
    }
}

/// Takes a value apart from its front; a shortage is an error that names the IE.
pub(crate) struct Reader<'a> {
    ie: Ie<'a>,
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        match self.left.split_first_chunk() {
            Some((chunk, left)) => {
                self.left = left;
                Ok(*chunk)
            }
            None => Err(self.short(N)),
        }
    }

    #[inline]
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        match self.left.split_at_checked(count) {
            Some((taken, left)) => {
                self.left = left;
                Ok(taken)
            }
            None => Err(self.short(count)),
        }
    }

    #[inline]
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.left)
    }

    #[cold]
    fn short(&self, wanted: usize) -> Error {
        let found = self.ie.value.len();
        let expected = found - self.left.len() + wanted;
        self.ie.error(ErrorKind::Length { expected, found })
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, Error> {
        self.chunk::<1>().map(|[octet]| octet)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, Error> {
        self.chunk().map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u24(&mut self) -> Result<u32, Error> {
        self.chunk()
            .map(|[a, b, c]| u32::from_be_bytes([0, a, b, c]))
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, Error> {
        self.chunk().map(u32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u40(&mut self) -> Result<u64, Error> {
        self.chunk()
            .map(|[a, b, c, d, e]| u64::from_be_bytes([0, 0, 0, a, b, c, d, e]))
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, Error> {
        self.chunk().map(u64::from_be_bytes)
    }

    #[inline]
    pub(crate) fn ipv4_if(&mut self, present: bool) -> Result<Option<Ipv4Addr>, Error> {
        present
            .then(|| self.chunk::<4>().map(Ipv4Addr::from))
            .transpose()
    }

    #[inline]
    pub(crate) fn ipv6_if(&mut self, present: bool) -> Result<Option<Ipv6Addr>, Error> {
        present
            .then(|| self.chunk::<16>().map(Ipv6Addr::from))
            .transpose()
    }
}
