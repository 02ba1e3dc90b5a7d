//! From a key on the wire to a table entry: UE pages, and two-choice buckets for everything else.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};

use compiled::NoRoom;
use ipnet::Ipv4Net;

use crate::abi::{
    BUCKET_SLOTS, Config, KIND_TEID, KIND_UE4, Line, UE_DIR_BITS, UE_NOBODY, UE_PAGE_BITS,
};

use crate::memory::View;

/// `TP_TEID_DIRECT`
const TEID_DIRECT: u32 = 0xff_ffff;

/// Key of a slot: the key word, and bits 32..63 of the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SlotKey {
    pub(crate) key: u64,
    /// Network instance, and the kind above it.
    pub(crate) ni_kind: u32,
}

impl SlotKey {
    pub(crate) fn new(kind: u64, ni: u16, key: u64) -> Self {
        Self {
            key,
            ni_kind: u32::from(ni) | (kind as u32) << 16,
        }
    }

    pub(crate) fn kind(self) -> u64 {
        u64::from(self.ni_kind >> 16)
    }

    pub(crate) fn ni(self) -> u16 {
        self.ni_kind as u16
    }

    /// Whether it is a TEID that packets take for this very index.
    pub(crate) fn leads_itself_to(self, index: u32) -> bool {
        self.kind() == KIND_TEID && self.key as u32 & TEID_DIRECT == index
    }
}

/// `tp_hash`.
pub(crate) fn hash(key: SlotKey, salt: u64) -> u64 {
    let mut x = (key.key ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 29;
    x = x.wrapping_add(u64::from(key.ni_kind).wrapping_mul(0xc2b2_ae3d_27d4_eb4f));
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^= x >> 32;
    x.wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// A place in the buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u32);

/// A slot taken for a key that is not yet visible.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserved {
    place: Place,
    key: SlotKey,
}

/// The buckets.
#[derive(Debug)]
pub(crate) struct Buckets {
    lines: View<Line>,
    config: View<Config>,
    salt: u64,
    mask: u32,
    /// Slots that hold a key, are reserved, or wait for their grace period.
    taken: Vec<u64>,
    used: u32,
}

impl Buckets {
    /// A key is moved at most this often to make room for another: with half of the slots free,
    /// a place without any move is all but certain.
    const MOVES_MAX: usize = 3;

    pub(crate) fn new(lines: View<Line>, config: View<Config>, salt: u64) -> Self {
        let mask = lines.len() as u32 - 1;
        let words = (lines.len() * BUCKET_SLOTS).div_ceil(64);
        Self {
            lines,
            config,
            salt,
            mask,
            taken: vec![0; words],
            used: 0,
        }
    }

    pub(crate) fn salt(&self) -> u64 {
        self.salt
    }

    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    pub(crate) fn capacity(&self) -> u32 {
        (self.mask + 1) * BUCKET_SLOTS as u32
    }

    fn choices(&self, key: SlotKey) -> [u32; 2] {
        let hash = hash(key, self.salt);
        [
            (hash >> 40) as u32 & self.mask,
            (hash >> 8) as u32 & self.mask,
        ]
    }

    fn places(&self, key: SlotKey) -> impl Iterator<Item = Place> + use<> {
        let [first, second] = self.choices(key);
        let slots = BUCKET_SLOTS as u32;
        [first, second]
            .into_iter()
            .flat_map(move |b| (0..slots).map(move |s| Place(b * slots + s)))
    }

    fn words(place: Place) -> (usize, usize) {
        let (bucket, slot) = (
            place.0 as usize / BUCKET_SLOTS,
            place.0 as usize % BUCKET_SLOTS,
        );
        (bucket, slot * 2)
    }

    fn read(&self, place: Place) -> (u64, u64) {
        let (bucket, word) = Self::words(place);
        (
            self.lines[bucket].load(word),
            self.lines[bucket].load(word + 1),
        )
    }

    fn write_value(&self, place: Place, value: u64) {
        let (bucket, word) = Self::words(place);
        self.lines[bucket].publish(word + 1, value);
    }

    fn write(&self, place: Place, key: SlotKey, value: u32) {
        let (bucket, word) = Self::words(place);
        self.lines[bucket].publish(word, key.key);
        self.write_value(place, u64::from(value) | u64::from(key.ni_kind) << 32);
    }

    fn is_taken(&self, place: Place) -> bool {
        self.taken[place.0 as usize / 64] >> (place.0 % 64) & 1 == 1
    }

    fn take(&mut self, place: Place) {
        self.taken[place.0 as usize / 64] |= 1 << (place.0 % 64);
        self.used += 1;
    }

    /// The slot's grace period is over, or it was never visible.
    pub(crate) fn free(&mut self, place: Place) {
        self.taken[place.0 as usize / 64] &= !(1 << (place.0 % 64));
        self.used -= 1;
    }

    fn find(&self, key: SlotKey) -> Option<Place> {
        self.places(key).find(|&place| {
            let (held, value) = self.read(place);
            held == key.key && value >> 32 == u64::from(key.ni_kind)
        })
    }

    /// Whether a key is visible.
    pub(crate) fn has(&self, key: SlotKey) -> bool {
        self.find(key).is_some()
    }

    fn get(&self, key: SlotKey) -> Option<u32> {
        self.find(key).map(|place| self.read(place).1 as u32)
    }

    /// Lead a visible key elsewhere: one store. `false`: it is not there.
    pub(crate) fn set(&self, key: SlotKey, value: u32) -> bool {
        let place = self.find(key);
        if let Some(place) = place {
            self.write_value(place, u64::from(value) | u64::from(key.ni_kind) << 32);
        }
        place.is_some()
    }

    /// Make a reserved key visible.
    pub(crate) fn commit(&self, reserved: Reserved, value: u32) {
        self.write(reserved.place, reserved.key, value);
    }

    /// Give back what was reserved.
    pub(crate) fn cancel(&mut self, reserved: Reserved) {
        self.free(reserved.place);
    }

    /// Take a key out. Its slot must be [`Self::free`]d after a grace period: a packet may have
    /// read its key and not yet its value.
    pub(crate) fn remove(&mut self, key: SlotKey) -> Option<Place> {
        let place = self.find(key)?;
        self.write_value(place, 0);
        Some(place)
    }

    fn free_place(&self, bucket: u32) -> (usize, Option<Place>) {
        let slots = BUCKET_SLOTS as u32;
        let mut free = (0..slots)
            .map(|slot| Place(bucket * slots + slot))
            .filter(|&place| !self.is_taken(place));
        let first = free.next();
        (usize::from(first.is_some()) + free.count(), first)
    }

    /// A free slot for a key, without moving any: in the emptier of its two buckets, so that both
    /// are full only when nearly all are.
    pub(crate) fn reserve(&mut self, key: SlotKey) -> Option<Reserved> {
        let [first, second] = self.choices(key).map(|bucket| self.free_place(bucket));
        let place = if second.0 > first.0 {
            second.1
        } else {
            first.1
        }?;
        self.take(place);
        Some(Reserved { place, key })
    }

    /// Move keys so that a slot for `key` comes free. Each move is a copy, visible to packets
    /// before the original goes; `grace` must wait until no packet looks at the original.
    pub(crate) fn make_room(&mut self, key: SlotKey, mut grace: impl FnMut()) -> Option<Reserved> {
        let path = self.path_to_free(key)?;
        for pair in path.windows(2).rev() {
            let (from, to) = (pair[0], pair[1]);
            self.move_key(from, to);
            grace();
            self.free(from);
        }
        self.reserve(key)
    }

    fn move_key(&mut self, from: Place, to: Place) {
        self.take(to);
        let moves = &self.config[0].moves;
        let (key, value) = self.read(from);
        let key = SlotKey {
            key,
            ni_kind: (value >> 32) as u32,
        };
        let count = moves.load(Ordering::Relaxed);
        moves.store(count.wrapping_add(1), Ordering::SeqCst);
        self.write(to, key, value as u32);
        std::sync::atomic::fence(Ordering::SeqCst);
        self.write_value(from, 0);
        moves.store(count.wrapping_add(2), Ordering::SeqCst);
    }

    /// Breadth first: places from one of `key`'s to a free one, each the other choice of the key
    /// in the place before.
    fn path_to_free(&self, key: SlotKey) -> Option<Vec<Place>> {
        let mut paths: Vec<Vec<Place>> = self.places(key).map(|place| vec![place]).collect();
        for _ in 0..Self::MOVES_MAX {
            let mut longer = Vec::new();
            for path in &paths {
                let Some(&last) = path.last() else { continue };
                let (held, value) = self.read(last);
                if value == 0 {
                    continue; // waits for its grace period, or reserved: cannot be moved
                }
                let held = SlotKey {
                    key: held,
                    ni_kind: (value >> 32) as u32,
                };
                for place in self.places(held).filter(|place| !path.contains(place)) {
                    let mut next = path.clone();
                    next.push(place);
                    if !self.is_taken(place) {
                        return Some(next);
                    }
                    longer.push(next);
                }
            }
            paths = longer;
        }
        None
    }
}

/// UE addresses that lie together, by page.
#[derive(Debug)]
pub(crate) struct UePages {
    dir: View<AtomicU32>,
    pages: View<AtomicU32>,
    next: u32,
    capacity: u32,
    pools: Vec<(u16, Ipv4Net)>,
}

impl UePages {
    pub(crate) fn new(dir: View<AtomicU32>, pages: View<AtomicU32>) -> Self {
        let capacity = (pages.len() >> UE_PAGE_BITS) as u32;
        Self {
            dir,
            pages,
            next: 0,
            capacity,
            pools: Vec::new(),
        }
    }

    pub(crate) fn used(&self) -> u32 {
        self.next
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    fn dir_slot(&self, ni: u16, addr: u32) -> Option<&AtomicU32> {
        self.dir
            .get((usize::from(ni) << UE_DIR_BITS) + (addr >> UE_PAGE_BITS) as usize)
    }

    /// Place of an address in the pages.
    fn place(&self, ni: u16, addr: u32) -> Option<u32> {
        let page = self
            .dir_slot(ni, addr)?
            .load(Ordering::Relaxed)
            .checked_sub(1)?;
        Some(page << UE_PAGE_BITS | addr & ((1 << UE_PAGE_BITS) - 1))
    }

    fn slot(&self, ni: u16, addr: u32) -> Option<&AtomicU32> {
        self.pages.get(self.place(ni, addr)? as usize)
    }

    /// Addresses of a pool get a page, and packets to those that no session has a drop reason.
    pub(crate) fn register(&mut self, ni: u16, pool: Ipv4Net) -> Result<(), NoRoom> {
        let (first, last) = (u32::from(pool.network()), u32::from(pool.broadcast()));
        let pages = (first >> UE_PAGE_BITS)..=(last >> UE_PAGE_BITS);
        let dir_of = |page: u32| self.dir_slot(ni, page << UE_PAGE_BITS);
        let missing = pages
            .clone()
            .filter(|&page| dir_of(page).is_none_or(|slot| slot.load(Ordering::Relaxed) == 0));
        if missing.count() as u64 + u64::from(self.next) > u64::from(self.capacity)
            || dir_of(*pages.end()).is_none()
        {
            return Err(NoRoom::of("ue_pages"));
        }
        for page in pages {
            let base = page << UE_PAGE_BITS;
            let Some(dir) = self.dir_slot(ni, base) else {
                continue;
            };
            let fresh = dir.load(Ordering::Relaxed) == 0;
            let number = if fresh {
                self.next + 1
            } else {
                dir.load(Ordering::Relaxed)
            };
            let from = first.max(base);
            let to = last.min(base | ((1 << UE_PAGE_BITS) - 1));
            let start = (number as usize - 1) << UE_PAGE_BITS;
            for addr in from..=to {
                let slot = &self.pages[start + (addr - base) as usize];
                let _ = slot.compare_exchange(0, UE_NOBODY, Ordering::Relaxed, Ordering::Relaxed);
            }
            if fresh {
                dir.store(number, Ordering::Release);
                self.next += 1;
            }
        }
        self.pools.push((ni, pool));
        Ok(())
    }

    /// The pools of a directory.
    pub(crate) fn pools(&self, ni: u16) -> impl Iterator<Item = Ipv4Net> + '_ {
        let of_ni = move |(of, pool): &(u16, Ipv4Net)| (*of == ni).then_some(*pool);
        self.pools.iter().filter_map(of_ni)
    }

    /// Whether the address has a place in a page.
    pub(crate) fn covers(&self, ni: u16, addr: Ipv4Addr) -> bool {
        self.slot(ni, addr.into()).is_some()
    }

    /// A page for an address that an SMF chose outside our pools. Its other addresses are nobody's
    /// business: packets to them pass.
    fn cover(&mut self, ni: u16, addr: Ipv4Addr) -> bool {
        if self.covers(ni, addr) {
            return true;
        }
        let number = self.next + 1;
        let dir = match self.dir_slot(ni, addr.into()) {
            Some(dir) if number <= self.capacity => dir,
            _ => return false,
        };
        dir.store(number, Ordering::Release);
        self.next = number;
        true
    }

    fn get(&self, ni: u16, addr: Ipv4Addr) -> Option<u32> {
        let held = self.slot(ni, addr.into())?.load(Ordering::Relaxed);
        (held != UE_NOBODY).then(|| held.checked_sub(1))?
    }

    /// Lead an address to an entry, or to nobody.
    pub(crate) fn set(&self, ni: u16, addr: Ipv4Addr, entry: Option<u32>) {
        let vacant = || {
            let pooled = |(of, pool): &(u16, Ipv4Net)| *of == ni && pool.contains(&addr);
            if self.pools.iter().any(pooled) {
                UE_NOBODY
            } else {
                0
            }
        };
        if let Some(slot) = self.slot(ni, addr.into()) {
            slot.store(
                entry.map_or_else(vacant, |entry| entry + 1),
                Ordering::Release,
            );
        }
    }
}

/// All ways from a key to an entry, but that of a TEID which is itself an index.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) buckets: Buckets,
    pub(crate) pages: UePages,
}

/// Place of a new key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Standing {
    /// In a UE page, which needs no reservation.
    Page,
    /// In the buckets.
    Slot(Reserved),
}

impl Index {
    /// Place of a key in the pages, which expects an entry (`tp_expected_entry`).
    pub(crate) fn page_place(&self, key: SlotKey) -> Option<u32> {
        let is_paged = key.kind() == KIND_UE4;
        is_paged.then(|| self.pages.place(key.ni(), key.key as u32))?
    }

    /// A place for a new key, or `None`.
    pub(crate) fn reserve(&mut self, key: SlotKey) -> Option<Standing> {
        let addr = Ipv4Addr::from(key.key as u32);
        if key.kind() == KIND_UE4 && self.pages.cover(key.ni(), addr) {
            Some(Standing::Page)
        } else {
            self.buckets.reserve(key).map(Standing::Slot)
        }
    }

    pub(crate) fn commit(&self, key: SlotKey, standing: Standing, entry: u32) {
        match standing {
            Standing::Page => {
                self.pages
                    .set(key.ni(), Ipv4Addr::from(key.key as u32), Some(entry));
            }
            Standing::Slot(reserved) => self.buckets.commit(reserved, entry),
        }
    }

    /// Entry that packets with this key meet first.
    pub(crate) fn get(&self, key: SlotKey) -> Option<u32> {
        let of_page = || self.pages.get(key.ni(), Ipv4Addr::from(key.key as u32));
        let paged = (key.kind() == KIND_UE4).then(of_page).flatten();
        paged.or_else(|| self.buckets.get(key))
    }

    /// Lead a visible key to another entry: one store.
    pub(crate) fn repoint(&self, key: SlotKey, entry: u32) {
        if self.buckets.used == 0 || !self.buckets.set(key, entry) {
            self.pages
                .set(key.ni(), Ipv4Addr::from(key.key as u32), Some(entry));
        }
    }

    /// Take a key out. A bucket slot comes back, to be freed after a grace period.
    pub(crate) fn remove(&mut self, key: SlotKey) -> Option<Place> {
        let place = self.buckets.remove(key);
        if place.is_none() {
            self.pages
                .set(key.ni(), Ipv4Addr::from(key.key as u32), None);
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::KIND_UE6;
    use std::collections::HashMap;

    fn buckets(count: usize) -> Buckets {
        Buckets::new(
            View::anonymous(count).unwrap(),
            View::anonymous(1).unwrap(),
            0x5eed,
        )
    }

    fn key(n: u64) -> SlotKey {
        SlotKey::new(KIND_UE4, 0, n)
    }

    #[test]
    fn three_quarters_full_and_nothing_is_lost() {
        let mut buckets = buckets(256);
        let mut model = HashMap::new();
        let mut graces = 0;
        for n in 0..768u64 {
            let reserved = buckets.reserve(key(n)).or_else(|| {
                let visible: Vec<u64> = model.keys().copied().collect();
                let reserved = buckets.make_room(key(n), || graces += 1);
                for n in visible {
                    assert_eq!(
                        buckets.get(key(n)),
                        model.get(&n).copied(),
                        "{n} after moves"
                    );
                }
                reserved
            });
            buckets.commit(
                reserved.unwrap_or_else(|| panic!("no room for {n}")),
                n as u32 + 7,
            );
            model.insert(n, n as u32 + 7);
        }
        for n in 0..768 {
            assert_eq!(buckets.get(key(n)), Some(n as u32 + 7));
        }
        assert_eq!(
            buckets.get(SlotKey::new(KIND_UE4, 1, 5)),
            None,
            "another network instance"
        );
        for n in 0..768 {
            let place = buckets.remove(key(n)).unwrap();
            buckets.free(place);
        }
        assert_eq!(buckets.used(), 0);
    }

    #[test]
    fn a_removed_slot_waits_for_its_grace_period() {
        let mut buckets = buckets(1);
        for n in 0..4 {
            let reserved = buckets.reserve(key(n)).unwrap();
            buckets.commit(reserved, n as u32);
        }
        let place = buckets.remove(key(2)).unwrap();
        assert_eq!(buckets.get(key(2)), None);
        assert!(
            buckets.reserve(key(9)).is_none(),
            "a packet may have read the key"
        );
        assert!(buckets.make_room(key(9), || ()).is_none());
        buckets.free(place);
        assert!(buckets.reserve(key(9)).is_some());
    }

    #[test]
    fn a_full_table_refuses() {
        let mut buckets = buckets(2);
        for n in 0..8 {
            if let Some(reserved) = buckets
                .reserve(key(n))
                .or_else(|| buckets.make_room(key(n), || ()))
            {
                buckets.commit(reserved, n as u32);
            }
        }
        let before: Vec<_> = (0..8).map(|n| buckets.get(key(n))).collect();
        assert!(
            (0..64).all(|n| buckets.used() < 8 || buckets.make_room(key(100 + n), || ()).is_none())
        );
        assert_eq!(
            before,
            (0..8).map(|n| buckets.get(key(n))).collect::<Vec<_>>()
        );
    }

    #[test]
    fn pools_get_pages() {
        let mut pages = UePages::new(
            View::anonymous(1 << UE_DIR_BITS).unwrap(),
            View::anonymous(3 << UE_PAGE_BITS).unwrap(),
        );
        let pool: Ipv4Net = "10.60.0.0/17".parse().unwrap();
        pages.register(0, pool).unwrap();
        assert_eq!(pages.used(), 2);
        assert!(pages.covers(0, Ipv4Addr::new(10, 60, 127, 255)));
        assert!(!pages.covers(0, Ipv4Addr::new(10, 60, 128, 0)));
        pages.register(0, "10.60.0.0/24".parse().unwrap()).unwrap();
        assert_eq!(pages.used(), 2, "the same page");
        pages.register(0, "10.61.0.0/30".parse().unwrap()).unwrap();
        assert!(
            pages.register(0, "10.62.0.0/16".parse().unwrap()).is_err(),
            "no pages left"
        );
        assert!(!pages.covers(0, Ipv4Addr::new(10, 62, 0, 1)));
        assert!(!pages.cover(0, Ipv4Addr::new(10, 62, 0, 1)));
    }

    #[test]
    fn addresses_outside_the_pools_get_pages_while_there_are_any() {
        let mut pages = UePages::new(
            View::anonymous(1 << UE_DIR_BITS).unwrap(),
            View::anonymous(2 << UE_PAGE_BITS).unwrap(),
        );
        pages.register(0, "10.60.0.0/24".parse().unwrap()).unwrap();
        let (pooled, chosen) = (Ipv4Addr::new(10, 60, 0, 7), Ipv4Addr::new(10, 60, 9, 9));
        assert!(pages.cover(0, pooled) && pages.cover(0, chosen));
        assert_eq!(pages.used(), 1, "the pool's page serves its neighbours");
        assert!(pages.cover(0, Ipv4Addr::new(10, 99, 0, 1)));
        assert!(!pages.cover(0, Ipv4Addr::new(10, 98, 0, 1)), "none left");
        let slot = |addr: Ipv4Addr| pages.slot(0, addr.into()).unwrap().load(Ordering::Relaxed);
        for addr in [pooled, chosen] {
            pages.set(0, addr, Some(5));
            assert_eq!(slot(addr), 6);
            pages.set(0, addr, None);
        }
        assert_eq!(slot(pooled), UE_NOBODY);
        assert_eq!(slot(chosen), 0);
    }

    /// Keys that an SMF or a UE may choose, to meet in few buckets if they can.
    fn aimed(pattern: usize, n: u64) -> SlotKey {
        match pattern {
            0 => SlotKey::new(KIND_TEID, 0, n + 1),
            1 => SlotKey::new(KIND_TEID, 0, n << 12 | 7),
            2 => SlotKey::new(KIND_TEID, 0, (n as u32).reverse_bits().into()),
            3 => key(n << 8 & 0xffff_ffff | n >> 24),
            4 => SlotKey::new(KIND_UE6, 0, 0x2001_0db8 << 32 | n),
            5 => SlotKey::new(KIND_UE6, 0, n.rotate_right(16)),
            _ => SlotKey::new(KIND_TEID, 0, session_mix(n) >> 32 << 1 | n & 1),
        }
    }

    /// Any bijection that spreads bits.
    fn session_mix(n: u64) -> u64 {
        hash(key(n), 0x1234_5678)
    }

    #[test]
    fn three_keys_for_each_session_fit_whatever_they_are() {
        for pattern in 0..7 {
            for (count, salt) in [(64, 1u64), (4096, 0), (1 << 15, 0xffff_ffff_0000_0001)] {
                let (lines, config) = (View::anonymous(count), View::anonymous(1));
                let mut buckets = Buckets::new(lines.unwrap(), config.unwrap(), salt);
                let mut graces = 0u32;
                let mut known = std::collections::HashSet::new();
                let wanted = (0..).map(|n| aimed(pattern, n));
                for key in wanted.filter(|key| known.insert(*key)).take(3 * count) {
                    let reserved = buckets
                        .reserve(key)
                        .or_else(|| buckets.make_room(key, || graces += 1));
                    let reserved = reserved
                        .unwrap_or_else(|| panic!("{pattern}: no room in {count} for {key:?}"));
                    buckets.commit(reserved, 1);
                }
                // Each waits for a grace period, and so does the SMF's answer.
                assert!(
                    graces <= count as u32 / 16,
                    "{pattern}: {graces} moves of {count}"
                );
            }
        }
    }

    #[test]
    fn half_full_needs_no_move() {
        let mut buckets = buckets(1 << 14);
        for n in 0..1 << 15 {
            let reserved = buckets.reserve(key(n)).unwrap();
            buckets.commit(reserved, 1);
        }
    }
}
