//! Records of packets to be buffered, as the data path hands them over.

use tables::task::{Event, HELD_BARE, HELD_LEN};

/// `struct tp_held`, in front of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) entry: u32,
    user: u16,
    flags: u16,
    pub(crate) frame: &'a [u8],
}

impl<'a> Record<'a> {
    pub(crate) fn parse(data: &'a [u8]) -> Option<Self> {
        let (words, frame) = data.split_first_chunk::<HELD_LEN>()?;
        let [a, b, c, d, u0, u1, f0, f1] = *words;
        Some(Self {
            entry: u32::from_ne_bytes([a, b, c, d]),
            user: u16::from_ne_bytes([u0, u1]),
            flags: u16::from_ne_bytes([f0, f1]),
            frame,
        })
    }

    pub(crate) fn is_bare(&self) -> bool {
        self.flags & HELD_BARE != 0
    }

    /// ToS or Traffic Class of the user's packet.
    pub(crate) fn tos(&self) -> u8 {
        let at = if self.is_bare() { 0 } else { self.user.into() };
        match self.frame.get(at..at + 2) {
            Some([first, second]) if first >> 4 == 4 => *second,
            Some([first, second]) => first << 4 | second >> 4,
            _ => 0,
        }
    }
}

/// The entry of a record, so that what cannot be buffered is counted off.
pub(crate) fn entry_of(record: &[u8]) -> Option<u32> {
    let data = Event::parse(record)?.data;
    Record::parse(data).map(|record| record.entry)
}

/// An address of the UE that a packet behind an Ethernet header is for, as the pipeline has it.
pub(crate) fn own_of(frame: &[u8]) -> Option<[u64; 2]> {
    let ip = frame.get(14..)?;
    if ip.first()? >> 4 == 4 {
        let addr: [u8; 4] = ip.get(16..20)?.try_into().ok()?;
        return Some([u64::from(u32::from_be_bytes(addr)) << 32, 0]);
    }
    let addr: [u8; 16] = ip.get(24..40)?.try_into().ok()?;
    let addr = u128::from_be_bytes(addr);
    Some([(addr >> 64) as u64, addr as u64])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_only_whole() {
        let record = |data: &[u8]| Record::parse(data).map(|record| record.tos());
        assert_eq!(record(&[0; 7]), None);
        assert_eq!(record(&[0; 8]), Some(0), "no packet at all");
        let mut v6 = vec![1, 0, 0, 0, 2, 0, 0, 0, 0xff, 0xff];
        v6.extend([0x6b, 0x80]);
        assert_eq!(record(&v6), Some(0xb8));
        assert_eq!(own_of(&[0; 14]), None);
    }
}
