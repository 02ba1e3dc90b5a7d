//! Requests to tables, and counts and events that come from them.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::ids::{PdrId, PredefinedId};
use crate::lent::{Lent, SeidKey, Served, ServedBeside, Slow, Source, TakenFor, Template};
use crate::room::{Holding, NoRoom, Resource};
use crate::session::Compiled;

/// Tables that make sessions visible to packets. Implemented by the `tables` crate, and by recorders
/// in the tests of `session`.
pub trait Tables {
    /// Places of the parts of one session. `Default` is a session that is not in the tables.
    type Handle: Default;

    /// Slots of TEIDs that there are, one less than this: a [`Key::Teid`](crate::Key::Teid)'s is from 1 on, and below.
    fn direct_teids(&self) -> u32;

    /// Whether the host has a route to a gNB's address, so that of an IPv4 and an IPv6 address the
    /// better can be taken. Tables that know no routes say that it has.
    fn reaches(&self, peer: IpAddr) -> bool {
        let _ = peer;
        true
    }

    /// Make packets meet `new` instead of what `handle` holds. All of it or, on an error, nothing.
    ///
    /// A packet under way meets the old form or the new one, never a mixture. Entries keep their
    /// counters and meter state across changes (by PDR ID and predefined rule, by QER ID and direction). Afterwards
    /// `handle` holds `new`.
    fn publish(&mut self, handle: &mut Self::Handle, new: &Compiled) -> Result<(), NoRoom>;

    /// How much there is of something, for all sessions together; `None`: it does not run short.
    fn room(&self, _: Resource) -> Option<u64> {
        None
    }

    /// A session's holdings of it, [`Resource::Sessions`] aside.
    fn holds(&self, _: &Self::Handle) -> Holding {
        Holding::default()
    }

    /// Take the session out. Its keys may be reused by another session at once.
    fn withdraw(&mut self, handle: &mut Self::Handle);

    /// No packet of the session goes into this tunnel any more: tell its end by an End Marker (TS 29.281,
    /// 7.3.2), behind the last packet that is still under way. Tables without packets need not.
    fn end_tunnel(&mut self, _tunnel: &EndedTunnel) {}

    /// Read the memory that a change of the session will need first, so that it is at hand then. The
    /// result means nothing: it keeps the reads from being left out.
    fn touch(&self, _handle: &Self::Handle) -> u64 {
        0
    }

    /// Buffered packets of a PDR (FAR with BUFF), or are yet to leave behind those that did.
    fn buffered(&self, _: &Self::Handle, _: PdrId) -> u64 {
        0
    }

    /// Bound the buffered packets of a PDR of this session, by our SEID.
    fn limit_buffered(&mut self, _seid: u64, _: PdrId, _: BufferLimits) {}

    /// Drop the buffered packets of this session (DROBU: TS 29.244, 5.2.4).
    fn discard_buffered(&mut self, _seid: u64) {}

    /// Tell anew of the buffered packets of this session: its SMF wants to hear of it, and did not before.
    fn tell_of_buffered(&mut self, _seid: u64) {}

    /// Both ends, remote first, of each GTP-U path that sessions send into. Tables without tunnels
    /// have none.
    fn gtpu_paths(&self, _each: &mut dyn FnMut(IpAddr, IpAddr)) {}

    /// Counters of one PDR; zero when the session is not in the tables or has no such PDR.
    fn counters(&self, handle: &Self::Handle, pdr: PdrId) -> Counters;

    /// Be told of the session ([`Compiled::seid`]) when a PDR has forwarded that many bytes, as [`Self::counters`]
    /// counts them; `None`: no more. Told once for each arming, seldom twice or too early, never not at all, and at
    /// once if it already has. Holds across changes of the session, until it is armed anew.
    fn arm(&mut self, _: &Self::Handle, _: PdrId, _alarm: Option<u64>) {}

    /// The same of the bytes that QoS enforcement has dropped ([`Counters::qos_bytes`]).
    fn arm_qos(&mut self, _: &Self::Handle, _: PdrId, _alarm: Option<u64>) {}

    /// Final counts of a PDR that the last [`Self::publish`] or [`Self::withdraw`] of a session that is
    /// [measured](Compiled::measured) has taken out, when no more packets could find it. What packets under way still add is
    /// counted as late. `None`: it was not there, or these tables do not know.
    fn parted(&self, _: PdrId) -> Option<Counters> {
        None
    }

    /// Counters of one of the predefined rules that a PDR activates; zero as above.
    fn counters_of(&self, _: &Self::Handle, _: PdrId, _: PredefinedId) -> Counters {
        Counters::default()
    }

    /// Whether somebody keeps what [`Self::counted_at`] says, from now on: then no entry whose counts have gone over to another
    /// one is used again before [`Self::counts_are_kept`] is called, and [`Self::next_recounted`] tells of such changes.
    fn keep_counts(&mut self, _: bool) {}

    /// Where packets of a session are counted, for whoever finds the tables when their process is gone.
    fn counted_at(&self, _: &Self::Handle, _into: &mut Vec<CountedAt>) {}

    /// Whether packets of a session may meet meters whose state [`Self::counted_at`] leads to, too.
    fn is_metered(&self, _: &Self::Handle) -> bool {
        false
    }

    /// Meters of a session go on where those are that it had in tables whose process is gone, if somebody has named such tables;
    /// they said this of it ([`Self::counted_at`]).
    fn follow_meters(&mut self, _: &Self::Handle, _: &[CountedAt]) {}

    /// A session whose packets are counted elsewhere since this was last asked, though it was not published, by its SEID.
    fn next_recounted(&mut self) -> Option<u64> {
        None
    }

    /// The present answers of [`Self::counted_at`] are known elsewhere.
    fn counts_are_kept(&mut self) {}

    /// From now on sessions may be lent, in so many places, which SEIDs name by this key. Whether these tables can have them.
    fn borrow_sessions(&mut self, _places: u32, _: SeidKey) -> bool {
        false
    }

    /// Requests about this session may be served, until it is [held](Self::hold) again. It is in these tables.
    fn lend(&mut self, _: &Self::Handle, _: &Lent) {}

    /// The session in this place is about to change in another way than by [`Self::serve`]: no request about it is served. It may
    /// not even be lent.
    fn hold(&mut self, _place: u32) {}

    /// Read what [`Self::serve`] will read first. The result means nothing.
    fn touch_place(&self, _place: u32) -> u64 {
        0
    }

    /// The session in this place is gone.
    fn return_place(&mut self, _place: u32) {}

    /// A request about the session in this place has come, which was not served: older ones may be repeated ones.
    fn heard(&mut self, _place: u32, _sequence: u32) {}

    /// Requests are served by this template under this number, below [`TEMPLATES`](crate::TEMPLATES), from now on; `None`: by no such
    /// one. `false`: there are too many of its length.
    fn teach(&mut self, _number: usize, _: Option<&Template>) -> bool {
        false
    }

    /// Carry a request out that has come within this association, all of it or nothing. `Ok`: packets meet it, and what is left to
    /// do is to tell its sender, and to know it.
    fn serve(&mut self, _octets: &[u8], _association: u32, _: &mut Served) -> Result<(), Slow> {
        Err(Slow::Other)
    }

    /// Whether requests about sessions that are lent are served and answered elsewhere, at any time, rather than by
    /// [`Self::serve`]. Then whoever changes a session takes it back first, or has everything [paused](Self::pause), and hears of what
    /// was served before ([`Self::next_served`]).
    fn serves_beside(&self) -> bool {
        false
    }

    /// The session in this place is of this generation and association: a request about it has been carried out, the first of which
    /// has established it. This one has that sequence number. `None`: it has come from elsewhere, and no request has come yet.
    fn know_place(&mut self, _place: u32, _generation: u32, _association: u32, _: Option<u32>) {}

    /// The session in this place may change. Unless it does ([`Self::hold`]), or is lent anew, it is lent again by
    /// [`Self::give_back`].
    fn take_back(&mut self, _place: u32, _: TakenFor) {}

    /// The session that was taken back last is as it was.
    fn give_back(&mut self) {}

    /// No session is changed elsewhere from now on.
    fn pause(&mut self) {}

    /// They may be again. All that was served has been heard of.
    fn go_on(&mut self) {}

    /// [`Self::next_served`] goes on to what there is now, as it does after [`Self::take_back`] and [`Self::pause`].
    fn look_at_served(&mut self) {}

    /// The next request that was served elsewhere, of those that there were at the last look: packets meet it, and its sender has the
    /// answer. `false`: there is none.
    fn next_served(&mut self, _: &mut ServedBeside) -> bool {
        false
    }

    /// SEID of the session that the request is about which comes behind so many others, 0 for the next one, if that is known already.
    fn served_ahead(&self, _: usize) -> Option<u64> {
        None
    }

    /// How far [`Self::next_served`] has gone, in the order in which who comes after this process finds them.
    fn served_until(&self) -> u64 {
        0
    }

    /// Requests that [`Self::next_served`] has told of are known where the next process looks, or nowhere for good: until then it finds
    /// them.
    fn served_is_kept(&mut self) {}

    /// Requests from these addresses may be served elsewhere, and are known to have passed if they are not.
    fn know_sources(&mut self, _: &[Source]) {}

    /// Requests that were not served elsewhere, by why.
    fn slow(&self, _: Slow) -> u64 {
        0
    }
}

/// Where packets of a PDR are counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedAt {
    /// There may be several of one PDR; their counts are added.
    pub pdr: PdrId,
    /// Entries of the tables.
    pub entries: SmallVec<[u32; 2]>,
    /// Counts of entries that were in their place before.
    pub before: Option<Box<Counters>>,
}

/// A tunnel that a path switch has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedTunnel {
    /// Remote TEID, host order.
    pub teid: u32,
    /// Remote address.
    pub peer: IpAddr,
    /// Our address, the source of the outer packet.
    pub local: IpAddr,
}

/// Counts of one PDR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Forwarded.
    pub packets: u64,
    /// Inner IP bytes forwarded.
    pub bytes: u64,
    /// Matched and dropped.
    pub drops: u64,
    /// Of these, by QoS enforcement: a gate, an MBR, a packet rate.
    pub qos_packets: u64,
    /// Inner IP bytes of those.
    pub qos_bytes: u64,
    /// Forwarded, but above a rate that shapes: they had to wait first.
    pub delayed: u64,
}

impl Counters {
    /// Both, e.g. of a PDR's entry and of the one that it took the place of.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self {
            packets: self.packets + more.packets,
            bytes: self.bytes + more.bytes,
            drops: self.drops + more.drops,
            qos_packets: self.qos_packets + more.qos_packets,
            qos_bytes: self.qos_bytes + more.qos_bytes,
            delayed: self.delayed + more.delayed,
        }
    }
}

/// A packet is buffered (FAR with BUFF), and none of its PDR was before it; or it should have been, and there was no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffered {
    /// Our SEID.
    pub seid: u64,
    /// The PDR that took it.
    pub pdr: PdrId,
    /// ToS or Traffic Class.
    pub tos: u8,
    /// There was room for it.
    pub waits: bool,
}

/// Bounds of the buffered packets of one PDR, beside those of the tables themselves. They hold as long as there are some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferLimits {
    /// At most so many packets; those that come later are dropped.
    pub packets: Option<u32>,
    /// For so long from now, and then no longer, whatever the tables' own bound of time.
    pub duration: Option<Duration>,
}
