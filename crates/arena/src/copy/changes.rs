//! Changes on their way to the disk.

/// Octets in front of a record: its place, and its length.
const HEAD: usize = 8;
/// In place of a length: the place has no record.
const GONE: u32 = u32::MAX;

/// Changes in their order, as octets in one piece: they are made by one thread, and written by another.
#[derive(Debug, Default)]
pub struct Changes {
    octets: Vec<u8>,
}

impl Changes {
    /// The place has this record, at most [`crate::RECORD_MAX`] octets.
    pub fn put(&mut self, place: u32, record: &[u8]) {
        self.head(place, record.len() as u32);
        self.octets.extend_from_slice(record);
    }

    /// The place has none.
    pub fn remove(&mut self, place: u32) {
        self.head(place, GONE);
    }

    fn head(&mut self, place: u32, length: u32) {
        self.octets.extend_from_slice(&place.to_le_bytes());
        self.octets.extend_from_slice(&length.to_le_bytes());
    }

    /// Octets that they take.
    pub fn octets(&self) -> usize {
        self.octets.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.octets.is_empty()
    }

    /// Forget them all, and keep the memory.
    pub fn clear(&mut self) {
        self.octets.clear();
    }

    /// Each place, with its record; `None`: it has none.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Option<&[u8]>)> {
        let mut rest = self.octets.as_slice();
        std::iter::from_fn(move || {
            let (head, behind) = rest.split_first_chunk::<HEAD>()?;
            let [a, b, c, d, length @ ..] = *head;
            let place = u32::from_le_bytes([a, b, c, d]);
            let length = u32::from_le_bytes(length);
            if length == GONE {
                rest = behind;
                return Some((place, None));
            }
            let (record, behind) = behind.split_at_checked(length as usize)?;
            rest = behind;
            Some((place, Some(record)))
        })
    }
}
