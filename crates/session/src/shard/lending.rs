//! Sessions lent to the data path, and what comes of a request that it has served ([`compiled::Tables::serve`]).
//!
//! A session is lent when a request about it was carried out and nothing is in the way of the next one being no more than a change
//! of FARs. Whoever changes it otherwise takes it back first (`hold` of [`Sessions`]). What the data path has changed comes into its rules at once,
//! before anything else happens.

use std::hint::black_box;
use std::num::NonZeroU32;

use compiled::{
    Action, Direction, EndedTunnel, Entry, LENT_FARS, LENT_PDRS, Lent, LentAction, LentFar,
    LentTarget, Marks, PdrId, Served, ServedBeside, Slow, Source, Tables, TakenFor,
};
use pfcp::Header;
use smallvec::SmallVec;

use crate::base::ids::PeerId;
use crate::base::slab::Place;
use crate::base::time::Time;
use crate::between::to_node::{Answer, Ies, Outputs, ToNode};
use crate::between::to_shard::Concerns;
use crate::exchange::incoming::Incoming;
use crate::rules::template::{Lendable, Reading};
use crate::rules::{Apply, Far, FarId, RemoteFTeid};
use crate::shard::index::tunnels;
use crate::shard::kept::Kept;
use crate::shard::sessions::Sessions;
use crate::shard::templates::Templates;
use crate::usage::measured::Usage;

/// An entry that is the same but for its action, whether its packets are forwarded or wait.
fn differs_by_action_alone(entry: &Entry) -> bool {
    entry.predefined.is_none()
        && entry.direction == Direction::Downlink
        && matches!(entry.action, Action::Tunnel { .. } | Action::Buffer)
        && entry.ue.is_none()
        && entry.marking.is_none()
        && entry.marks == Marks::default()
        && entry.share.is_none()
        && entry.duplicates.is_empty()
}

/// Requests served beside us whose sessions are read at once, before the first of them is looked at.
const AHEAD: usize = 16;

/// No place of a session.
const NOWHERE: u32 = u32::MAX;

/// The newest request about a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastRequest {
    pub(super) sequence: u32,
    /// It may have given the session another SEID of the SMF's.
    pub(super) has_cp_seid: bool,
}

/// Sessions lent, and what the data path serves them by.
#[derive(Debug, Default)]
pub(super) struct Lending {
    /// The data path serves requests.
    pub(super) serves: bool,
    pub(super) templates: Templates,
    /// ... beside us, at any time.
    pub(super) beside: bool,
    /// Addresses whose requests it knows.
    sources: Vec<Source>,
    /// It cannot know the message under way: that is one of several of its datagram, or has come in parts.
    pub(super) is_unmarked: bool,
    /// The message under way has passed the data path of a process before this one.
    pub(super) replays: bool,
    fars_at: FarsAt,
    /// Kept for its capacity.
    served: Served,
    /// Likewise.
    next: ServedBeside,
    /// Likewise.
    ahead: Vec<Place>,
}

impl Lending {
    pub(super) fn new(serves: bool, beside: bool) -> Self {
        Self {
            serves,
            beside,
            ..Self::default()
        }
    }

    /// A request has been carried out, and the draft is the session as it is now: it is lent, if it can be.
    pub(super) fn lend<T: Tables>(
        &mut self,
        sessions: &mut Sessions<T>,
        seid: u64,
        of: &LastRequest,
        tables: &mut T,
    ) {
        let &LastRequest {
            sequence,
            has_cp_seid,
        } = of;
        let Some(place) = sessions.slab.find(seid).filter(|_| self.serves) else {
            return;
        };
        if self.beside
            && let Some((session, (_, generation))) =
                sessions.slab.get(place).zip(sessions.slab.named(seid))
        {
            tables.know_place(place.index(), generation, session.peer.0, Some(sequence));
        }
        if !sessions.draft.packets_may_notice() {
            // Packets meet what they met before.
            return match has_cp_seid {
                true => tables.hold(place.index()),
                false => tables.heard(place.index(), sequence),
            };
        }
        let slab = &sessions.slab;
        let Some((session, (_, generation))) = slab.get(place).zip(slab.named(seid)) else {
            return;
        };
        let context = &session.context;
        let in_the_way = context.rare().is_some_and(|rare| {
            rare.waiting.is_some() || !rare.indicated.is_empty() || rare.deferral.is_some()
        });
        // Packets do not meet the draft then.
        if in_the_way || context.usage().is_some_and(Usage::is_closing) {
            return;
        }
        let Some(fars) = lendable_fars(sessions, tables) else {
            return;
        };
        let lent = Lent {
            place: place.index(),
            generation,
            association: session.peer.0,
            cp_seid: session.context.cp_seid,
            sequence,
            fars,
        };
        let lent_fars = &lent.fars;
        let is_lent = |id: FarId| lent_fars.iter().any(|far| far.id == id.0);
        let fars_at = sessions.draft.fars_at(&session.context.kept);
        let fars_at = fars_at.filter(|(id, _)| is_lent(*id));
        self.fars_at.set(place, fars_at);
        tables.lend(&session.handle, &lent);
    }

    /// A session has come from elsewhere: requests about it are known to pass from now on.
    pub(super) fn know<T: Tables>(&self, sessions: &Sessions<T>, seid: u64, tables: &mut T) {
        if self.beside
            && let Some((place, generation)) = sessions.slab.named(seid)
            && let Some(session) = sessions
                .slab
                .find(seid)
                .and_then(|at| sessions.slab.get(at))
        {
            tables.know_place(place, generation, session.peer.0, None);
        }
    }

    /// The request that this was read of has been carried out for an SMF; FARs were so before, and are so now.
    pub(super) fn learn(
        &mut self,
        by: PeerId,
        reading: Reading,
        (before, after): (&[Far], &[Far]),
        tables: &mut impl Tables,
    ) {
        let find = |fars: &[Far], id: FarId| fars.iter().find(|far| far.id == id).cloned();
        let mut template = reading.template;
        for (update, read) in template.updates.iter_mut().zip(&reading.updates) {
            let far = find(before, read.far).zip(find(after, read.far));
            let Some(profile) = far.and_then(|(before, after)| read.profile(&before, &after))
            else {
                return;
            };
            update.profile = profile;
        }
        self.templates.accepted(by, template, tables);
    }

    /// Let the data path serve a request about the session in this place, and bring its rules to what packets meet.
    pub(super) fn serve<T: Tables>(
        &mut self,
        now: Time,
        (sessions, tables): (&mut Sessions<T>, &mut T),
        (peer, place): (PeerId, Place),
        octets: &[u8],
    ) -> Result<(), Slow> {
        let mut served = std::mem::take(&mut self.served);
        let outcome = tables.serve(octets, peer.0, &mut served);
        if outcome.is_ok() {
            self.take_in(now, (sessions, tables), place, &served);
        }
        self.served = served;
        outcome
    }

    /// Before these sessions change: nobody else changes them, and all that was served before is known.
    pub(super) fn take_back<T: Tables>(
        &mut self,
        now: Time,
        (sessions, tables): (&mut Sessions<T>, &mut T),
        out: &mut Outputs,
        which: Concerns,
    ) {
        if !self.beside {
            return;
        }
        match which {
            Concerns::Nobody => return,
            Concerns::Any => tables.pause(),
            Concerns::One(seid) => {
                let place = sessions.slab.place_of(seid);
                let place = place.map_or(NOWHERE, Place::index);
                tables.take_back(place, TakenFor::Event);
            }
            Concerns::Requested(seid, from) => {
                let place = sessions.slab.find(seid);
                let session = place.and_then(|place| sessions.slab.get(place));
                let owner = session.map(|session| session.peer.0);
                let is_of =
                    |source: &Source| source.address == from && Some(source.association) == owner;
                let is_marked = !self.is_unmarked && self.sources.iter().any(is_of);
                let taken_for = match is_marked {
                    _ if self.replays => TakenFor::Event,
                    true => TakenFor::Request,
                    false => TakenFor::Unmarked,
                };
                tables.take_back(place.map_or(NOWHERE, Place::index), taken_for);
            }
        }
        self.catch_up(now, (sessions, tables), out);
    }

    /// Requests from these addresses are served elsewhere.
    pub(super) fn know_sources(&mut self, sources: Vec<Source>, tables: &mut impl Tables) {
        tables.know_sources(&sources);
        self.sources = sources;
    }

    /// They have changed, or have not.
    pub(super) fn give_back(&self, tables: &mut impl Tables, which: Concerns) {
        match which {
            _ if !self.beside => {}
            Concerns::Nobody => {}
            Concerns::Any => tables.go_on(),
            Concerns::One(_) | Concerns::Requested(..) => tables.give_back(),
        }
    }

    /// Sessions are brought to all that was served beside us before this.
    pub(super) fn look<T: Tables>(
        &mut self,
        now: Time,
        (sessions, tables): (&mut Sessions<T>, &mut T),
        out: &mut Outputs,
    ) {
        if self.beside {
            tables.look_at_served();
            self.catch_up(now, (sessions, tables), out);
        }
    }

    /// ... as far as was looked.
    fn catch_up<T: Tables>(
        &mut self,
        now: Time,
        (sessions, tables): (&mut Sessions<T>, &mut T),
        out: &mut Outputs,
    ) {
        let mut next = std::mem::take(&mut self.next);
        for number in 0.. {
            if number % AHEAD == 0 {
                self.read_ahead(sessions, tables);
            }
            if !tables.next_served(&mut next) {
                break;
            }
            let Some((incoming, place)) = request_of(&next, sessions) else {
                continue;
            };
            self.take_in(now, (sessions, tables), place, &next.what);
            let answer = answer_to(sessions, &incoming, PeerId(next.association), place);
            sessions.answered(answer.seid, incoming.fingerprint);
            out.say(ToNode::Served(answer));
        }
        self.next = next;
        // Else they stay where they are until what they have changed is kept.
        if !sessions.slab.notes_changes() {
            tables.served_is_kept();
        }
    }

    /// Read what the next of those will read of sessions: their waits for memory overlap. Each loop is over what the one before has
    /// made reachable.
    fn read_ahead<T: Tables>(&mut self, sessions: &Sessions<T>, tables: &T) {
        let seids = (0..AHEAD).map_while(|others| tables.served_ahead(others));
        let places = seids.filter_map(|seid| sessions.place_of(seid));
        self.ahead.clear();
        self.ahead.extend(places);
        let mut read = 0;
        for &place in &self.ahead {
            read ^= sessions.touch(place) ^ self.fars_at.touch(place);
        }
        for &place in &self.ahead {
            read ^= sessions.touch_rules(place);
        }
        black_box(read);
    }

    /// Changes by the data path come into the session's rules.
    fn take_in<T: Tables>(
        &mut self,
        now: Time,
        (sessions, tables): (&mut Sessions<T>, &mut T),
        place: Place,
        served: &Served,
    ) {
        self.templates.has_served(served.template);
        let indexed = sessions.tunnels.covers(place);
        let Some(session) = sessions.slab.get_mut(place) else {
            return;
        };
        let context = &mut session.context;
        let before = indexed.then(|| tunnels::keys(&context.rules().fars));
        for change in &served.changes {
            let id = FarId(change.id);
            if !self
                .fars_at
                .change(place, &mut context.kept, id, &change.after)
            {
                let mut rules = context.rules();
                let fars = rules.fars.iter_mut().filter(|far| far.id == id);
                fars.for_each(|far| far.follow(&change.after));
                context.keep(&rules);
            }
        }
        if let Some(before) = before {
            let after = tunnels::keys(&context.rules().fars);
            sessions.tunnels.change(place, &before, &after);
        }
        sessions.tunnels.tire(now);
        for ended in ended_tunnels(served) {
            tables.end_tunnel(&ended);
        }
    }
}

/// A request that was served beside us, and the session that it was about.
fn request_of<T: Tables>(
    served: &ServedBeside,
    sessions: &Sessions<T>,
) -> Option<(Incoming, Place)> {
    let (header, _) = Header::decode(&served.octets).ok()?;
    let place = sessions.owned(PeerId(served.association), header.seid?)?;
    Some((Incoming::new(served.from, &header, &served.octets), place))
}

/// The answer to a request of this peer that the data path has served.
pub(super) fn answer_to<T: Tables>(
    sessions: &mut Sessions<T>,
    incoming: &Incoming,
    peer: PeerId,
    place: Place,
) -> Answer {
    Answer {
        to: *incoming,
        seid: incoming.seid.unwrap_or_default(),
        cp_seid: sessions.cp_seid(place),
        owner: peer,
        by_owner: true,
        sessions: sessions.counted_of(peer),
        front: Ies::default(),
        back: Ies::default(),
        usage_reports: 0,
    }
}

/// All FARs of the draft that lead into a tunnel. `None`: there are none, too many, or some that the data path does not know, or
/// packets of some go by others.
fn lendable_fars<T: Tables>(
    sessions: &Sessions<T>,
    tables: &T,
) -> Option<SmallVec<[LentFar; LENT_FARS]>> {
    let mut fars: SmallVec<[LentFar; LENT_FARS]> = SmallVec::new();
    for far in &sessions.draft.fars.rules {
        let waits = matches!(far.apply, Apply::Buffer { .. });
        let Some(to) = far.forwarding() else {
            // Its packets wait for a tunnel, and until then other PDRs may take them.
            if waits {
                return None;
            }
            continue;
        };
        if to.tunnel.is_some() || to.is_unusable || waits {
            let far = lendable_far(sessions, far, Lendable::of(far)?, tables)?;
            (fars.len() < LENT_FARS).then(|| fars.push(far))?;
        }
    }
    (!fars.is_empty()).then_some(fars)
}

fn lendable_far<T: Tables>(
    sessions: &Sessions<T>,
    far: &Far,
    lendable: Lendable,
    tables: &T,
) -> Option<LentFar> {
    let pdrs = sessions.draft.pdrs.rules.iter();
    let own = pdrs.filter(|pdr| pdr.far == Some(far.id));
    let mut pdrs: SmallVec<[PdrId; LENT_PDRS]> = SmallVec::new();
    for pdr in own {
        let mut entries = sessions.compiled.entries.iter().filter(|e| e.pdr == pdr.id);
        let entry = entries.next().filter(|e| differs_by_action_alone(e))?;
        let forwards = matches!(entry.action, Action::Tunnel { .. });
        let is_as_said = forwards == (lendable.action == LentAction::Forward);
        let is_alone = entries.next().is_none() && pdrs.len() < LENT_PDRS;
        (is_as_said && is_alone).then(|| pdrs.push(pdr.id))?;
    }
    let Lendable {
        profile,
        action,
        teid,
        ..
    } = lendable;
    let reaches = |peer| tables.reaches(peer);
    let tunnel = far.forwarding()?.tunnel?;
    let (peer, local) = sessions.site.path_to(tunnel, far.through, &reaches)?;
    (!pdrs.is_empty()).then_some(LentFar {
        id: far.id.0,
        profile,
        pdrs,
        target: LentTarget {
            action,
            teid,
            peer,
            local,
        },
    })
}

/// Tunnels that a request has left with SNDEM, once for each FAR, and that no FAR leads to any more.
fn ended_tunnels(served: &Served) -> impl Iterator<Item = EndedTunnel> + '_ {
    let tunnel = |target: &LentTarget| (target.teid, target.peer);
    let left = served.changes.iter().filter(|change| change.ends_tunnel);
    let left = left.map(|change| change.before);
    left.filter(move |left| {
        let now = served.changes.iter().map(|change| &change.after);
        let mut now = now.chain(&served.others);
        now.all(|target| tunnel(target) != tunnel(left))
    })
    .map(|left| EndedTunnel {
        teid: left.teid,
        peer: left.peer,
        local: left.local,
    })
}

/// Offsets of FARs of lent sessions in their octets, so that what the data path changes is changed there, and nothing else is read.
#[derive(Debug, Default)]
pub(super) struct FarsAt {
    /// By place.
    all: Vec<[(FarId, u16); LENT_FARS]>,
    scratch: Vec<u8>,
}

impl FarsAt {
    const NONE: (FarId, u16) = (FarId(0), 0);

    fn set(&mut self, place: Place, fars: impl Iterator<Item = (FarId, usize)>) {
        let index = place.index() as usize;
        if self.all.len() <= index {
            self.all.resize(index + 1, [Self::NONE; LENT_FARS]);
        }
        let mut offsets = [Self::NONE; LENT_FARS];
        for (to, (id, at)) in offsets.iter_mut().zip(fars) {
            *to = u16::try_from(at).map_or(Self::NONE, |at| (id, at));
        }
        self.all[index] = offsets;
    }

    /// Read those of this place. The result means nothing.
    fn touch(&self, place: Place) -> u64 {
        let offsets = self.all.get(place.index() as usize);
        offsets.map_or(0, |[first, ..]| first.1.into())
    }

    /// Whether it could be done.
    fn change(&mut self, place: Place, kept: &mut Kept, id: FarId, to: &LentTarget) -> bool {
        let Some(offsets) = self.all.get_mut(place.index() as usize) else {
            return false;
        };
        let Some((_, at)) = offsets.iter().copied().find(|of| of.0 == id && of.1 > 0) else {
            return false;
        };
        let of = (id, usize::from(at));
        let Some(moved) = kept.change_far(of, &mut self.scratch, |far| far.follow(to)) else {
            return false;
        };
        for (_, behind) in offsets.iter_mut().filter(|(_, other)| *other > at) {
            *behind = behind.saturating_add_signed(moved as i16);
        }
        true
    }
}

impl Far {
    /// Go on as the data path does.
    pub(crate) fn follow(&mut self, to: &LentTarget) {
        self.apply = match to.action {
            LentAction::Forward => Apply::Forward,
            LentAction::Buffer => Apply::Buffer { notify: false },
            LentAction::Notify => Apply::Buffer { notify: true },
        };
        let Some((mut forwarding, teid)) = self.forwarding().zip(NonZeroU32::new(to.teid)) else {
            return;
        };
        let (v4, v6) = match to.peer {
            std::net::IpAddr::V4(v4) => (Some(v4), None),
            std::net::IpAddr::V6(v6) => (None, Some(v6)),
        };
        forwarding.tunnel = Some(RemoteFTeid::new(teid, v4, v6));
        self.set_forwarding(forwarding);
    }
}
