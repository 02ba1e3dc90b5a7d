//! Which session sends into which tunnel: found when the tunnel's end says that it has no such
//! tunnel (Error Indication, TS 23.527, 5.3).

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use smallvec::SmallVec;

use crate::base::gtpu::Tunnel;
use crate::base::mix::mix;
use crate::base::slab::Place;
use crate::base::time::Time;
use crate::rules::Far;
use foldhash::quality::FixedState;

/// A tunnel, folded; sessions found by it are asked whether it is theirs.
pub(crate) type TunnelKey = u32;

/// Tunnels of one session, most have one or two.
pub(crate) type TunnelKeys = SmallVec<[TunnelKey; 4]>;

pub(crate) fn key(teid: u32, peer: IpAddr) -> TunnelKey {
    let peer = match peer {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            mix(bits as u64) ^ (bits >> 64) as u64
        }
    };
    mix(mix(peer) ^ u64::from(teid)) as u32
}

/// The tunnels that these FARs send into, sorted, each once.
pub(crate) fn keys(fars: &[Far]) -> TunnelKeys {
    let tunnels = fars.iter().filter_map(|far| far.forwarding()?.tunnel);
    let mut keys: TunnelKeys = tunnels
        .flat_map(|tunnel| tunnel.addresses().map(move |peer| key(tunnel.teid(), peer)))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// The index. Two sessions rarely have one key: the second and further ones lie apart.
///
/// With many sessions each key lies somewhere else in memory, so that a path switch would wait for it, while
/// Error Indications are rare. So there is no index until one has come, and none any more when none has come for
/// [`KEPT`]. It is built a step at a time, because a million sessions are read for it; who asks meanwhile is
/// answered in the end.
#[derive(Debug)]
pub(crate) struct TunnelIndex {
    first: HashMap<TunnelKey, Place, FixedState>,
    more: BTreeSet<(TunnelKey, Place)>,
    reach: Reach,
    asked: Time,
    questions: BTreeSet<Tunnel>,
}

/// Of which sessions the tunnels are in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    None,
    /// Of those in places before this one.
    Before(Place),
    All,
}

/// The index stays for so long after it was asked.
const KEPT: Duration = Duration::from_secs(600);

/// Tunnels asked for that wait for the index. An end that does not know one says so with each packet: what is
/// not taken in now is asked for again.
const QUESTIONS_MAX: usize = 4096;

impl TunnelIndex {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            first: HashMap::with_hasher(FixedState::with_seed(seed)),
            more: BTreeSet::new(),
            reach: Reach::None,
            asked: Time(0),
            questions: BTreeSet::new(),
        }
    }

    /// Whether it must hear of changes to the session at this place.
    pub(crate) fn covers(&self, place: Place) -> bool {
        match self.reach {
            Reach::None => false,
            Reach::Before(next) => place < next,
            Reach::All => true,
        }
    }

    /// Whether there is something to do: sessions to take in, or to answer for.
    pub(crate) fn is_behind(&self) -> bool {
        matches!(self.reach, Reach::Before(_)) || !self.questions.is_empty()
    }

    /// Somebody wants to know of this tunnel.
    pub(crate) fn ask(&mut self, now: Time, tunnel: Tunnel) {
        self.asked = now;
        if self.reach == Reach::None {
            self.reach = Reach::Before(Place::FIRST);
        }
        if self.questions.len() < QUESTIONS_MAX {
            self.questions.insert(tunnel);
        }
    }

    /// First place whose session is not in the index yet; `None`: there is no index, or it is complete.
    pub(crate) fn next(&self) -> Option<Place> {
        match self.reach {
            Reach::Before(next) => Some(next),
            Reach::None | Reach::All => None,
        }
    }

    /// There will be so many.
    pub(crate) fn expect(&mut self, sessions: usize) {
        self.first.reserve(sessions);
    }

    /// The sessions in places before this one are in; `None`: all are.
    pub(crate) fn reached(&mut self, next: Option<Place>) {
        self.reach = next.map_or(Reach::All, Reach::Before);
    }

    /// The next that was asked for, once it can be answered.
    pub(crate) fn question(&mut self) -> Option<Tunnel> {
        if self.reach == Reach::All {
            self.questions.pop_first()
        } else {
            None
        }
    }

    /// Without it, if nobody has asked for long.
    pub(crate) fn tire(&mut self, now: Time) {
        if self.reach == Reach::All && now.since(self.asked) > KEPT {
            self.first = HashMap::with_hasher(self.first.hasher().clone());
            self.more = BTreeSet::new();
            self.reach = Reach::None;
        }
    }

    /// The session at `place`, which [`Self::covers`], has other tunnels than before.
    pub(crate) fn change(&mut self, place: Place, before: &[TunnelKey], after: &[TunnelKey]) {
        if before == after {
            return;
        }
        for key in before {
            self.remove(*key, place);
        }
        for key in after {
            self.insert(*key, place);
        }
    }

    fn insert(&mut self, key: TunnelKey, place: Place) {
        let first = *self.first.entry(key).or_insert(place);
        if first != place {
            self.more.insert((key, place));
        }
    }

    fn remove(&mut self, key: TunnelKey, place: Place) {
        if self.first.get(&key) != Some(&place) {
            self.more.remove(&(key, place));
            return;
        }
        let next = self.more.range((key, Place::FIRST)..).next().copied();
        match next.filter(|(of, _)| *of == key) {
            Some(next) => {
                self.more.remove(&next);
                self.first.insert(key, next.1);
            }
            None => {
                self.first.remove(&key);
            }
        }
    }

    /// Sessions that may have this tunnel, at most 16: TEIDs are unique at each peer.
    pub(crate) fn find(&self, key: TunnelKey) -> SmallVec<[Place; 2]> {
        let more = self.more.range((key, Place::FIRST)..);
        let more = more
            .take_while(|(of, _)| *of == key)
            .map(|(_, place)| *place);
        let first = self.first.get(&key).copied();
        first.into_iter().chain(more).take(16).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_is_found_until_it_is_taken_out() {
        let mut index = TunnelIndex::new(1);
        let places: Vec<Place> = (0..6).filter_map(Place::new).collect();
        // Two of three sessions share each key.
        for (i, place) in places.iter().enumerate() {
            index.change(*place, &[], &[i as u32 / 2, 77]);
        }
        assert_eq!(index.find(1).as_slice(), &places[2..4]);
        assert_eq!(index.find(77).len(), 6);
        index.change(places[0], &[0, 77], &[0, 99]);
        assert_eq!(index.find(77).len(), 5);
        assert_eq!(index.find(99).as_slice(), &places[..1]);
        for (i, place) in places.iter().enumerate() {
            index.change(*place, &[i as u32 / 2, 77, 99], &[]);
        }
        assert!(index.find(77).is_empty());
        assert!(index.first.is_empty() && index.more.is_empty());
    }

    #[test]
    fn there_is_no_index_until_it_is_asked_and_none_when_it_was_not_for_long() {
        let (first, second) = (Place::new(0).unwrap(), Place::new(1).unwrap());
        let tunnel = (7, IpAddr::from([192, 0, 2, 1]));
        let mut index = TunnelIndex::new(1);
        assert!(!index.covers(first) && index.next().is_none());
        index.ask(Time(0), tunnel);
        assert_eq!(index.next(), Some(Place::FIRST));
        index.change(first, &[], &[1]);
        index.reached(Some(second));
        assert!(index.covers(first) && !index.covers(second));
        assert_eq!(index.question(), None, "not all sessions are in");
        index.reached(None);
        assert!(index.covers(second) && index.is_behind());
        assert_eq!(index.question(), Some(tunnel));
        assert!(!index.is_behind());
        index.tire(Time(0).after(KEPT));
        assert_eq!(index.find(1).as_slice(), &[first]);
        index.tire(Time(0).after(KEPT + Duration::from_secs(1)));
        assert!(!index.covers(first) && index.find(1).is_empty());
    }

    #[test]
    fn questions_are_bounded() {
        let mut index = TunnelIndex::new(1);
        for teid in 0..2 * QUESTIONS_MAX as u32 {
            index.ask(Time(0), (teid, IpAddr::from([192, 0, 2, 1])));
        }
        index.reached(None);
        let asked = std::iter::from_fn(|| index.question());
        assert_eq!(asked.count(), QUESTIONS_MAX);
    }
}
