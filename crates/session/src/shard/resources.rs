//! TEIDs and UE addresses that sessions hold beside their rules, each of one session only.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;

use compiled::{Direction, NiId, PdrId};
use ipnet::{IpNet, Ipv6Net};
use pfcp::{Cause, IeType};

use crate::alloc::addresses::{AddressGrant, Choice, NiPools, PoolFill};
use crate::alloc::teid::{Grant, LocalTeid, Teids};
use crate::base::refusal::Refusal;
use crate::base::time::Time;
use crate::compile::compiler::is_found_by_others;
use crate::rules::config::Config;
use crate::rules::intake::{self, ChooseId, WantedFTeid, Wants};
use crate::rules::site::Site;
use crate::rules::{Far, LocalFTeid, Pdr, RuleId};
use crate::shard::draft::Draft;
use crate::shard::holders::Holders;

/// Created PDR (TS 29.244, table 7.5.3.2-1) or Created Traffic Endpoint (table 7.5.3.5-1): what we chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Created {
    /// PDR or Traffic Endpoint that it is for.
    pub(crate) of: CreatedFor,
    /// The F-TEID that we chose.
    pub(crate) f_teid: Option<ChosenFTeid>,
    /// The UE IPv4 address that we chose.
    pub(crate) ue4: Option<Ipv4Addr>,
    /// The UE IPv6 prefix that we chose.
    pub(crate) ue6: Option<Ipv6Net>,
}

/// PDR or Traffic Endpoint that we chose for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CreatedFor {
    Pdr(PdrId),
    Endpoint(u8),
}

impl Created {
    fn nothing(of: CreatedFor) -> Self {
        Self {
            of,
            f_teid: None,
            ue4: None,
            ue6: None,
        }
    }
}

/// An F-TEID that we chose, with the addresses that were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChosenFTeid {
    pub(crate) teid: u32,
    pub(crate) v4: Option<Ipv4Addr>,
    pub(crate) v6: Option<Ipv6Addr>,
}

/// TEIDs and UE addresses of all sessions, and those that the request at hand takes.
#[derive(Debug)]
pub(crate) struct Resources {
    teids: Teids,
    /// By [`NiId`].
    pools: Vec<NiPools>,
    /// By [`NiId`]: what SMFs may name as networks behind UEs. None: any.
    framed_routes: Vec<Option<Vec<IpNet>>>,
    /// By [`NiId`]: the first of those whose UEs are found beside its own.
    homes: Vec<NiId>,
    /// Taken by the request at hand so far, latest last.
    taken: Vec<Taken>,
    /// TEIDs chosen for CHOOSE IDs of the request at hand.
    chosen_by_id: Vec<(ChooseId, LocalTeid)>,
    /// Chosen for the request at hand.
    created: Vec<Created>,
}

#[derive(Debug)]
enum Taken {
    Teid(LocalTeid, Grant),
    Ue(Net, AddressGrant),
}

/// An address, or a network behind the UE, that a session holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Net {
    ni: NiId,
    net: IpNet,
    of: Of,
}

/// Use of an address that a session holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    /// The UE, as the SMF says.
    Given,
    /// The UE, by our choice.
    Chosen,
    /// A network behind the UE.
    Framed,
}

impl Net {
    fn is_framed(&self) -> bool {
        self.of == Of::Framed
    }

    fn is_same(&self, other: &Self) -> bool {
        let place = |held: &Self| (held.ni, held.net, held.is_framed());
        place(self) == place(other)
    }
}

/// Use of TEIDs and pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceFill {
    /// TEIDs in use.
    pub teids: usize,
    /// TEIDs that may index the entry table.
    pub teids_capacity: usize,
    /// For each network instance, in order: IPv4 and IPv6.
    pub pools: Vec<[PoolFill; 2]>,
}

impl Resources {
    pub(crate) fn new(config: &Config, seed: u64, direct_teids: u32) -> Self {
        let outside = usize::try_from(config.limits.sessions)
            .unwrap_or(usize::MAX)
            .saturating_mul(2);
        let pools = |ni: &crate::rules::config::NetworkInstance| {
            NiPools::new(&ni.pools4, &ni.pools6, outside, seed)
        };
        let mut pools: Vec<NiPools> = config.network_instances.iter().map(pools).collect();
        if pools.is_empty() {
            // The default network instance exists even if it has neither name nor pool.
            pools.push(NiPools::new(&[], &[], outside, seed));
        }
        let nis = || (0..).map(NiId).zip(&config.network_instances);
        Self {
            teids: Teids::new(direct_teids, seed),
            pools,
            framed_routes: nis().map(|(_, ni)| ni.framed_routes.clone()).collect(),
            homes: nis().map(|(id, ni)| ni.home.unwrap_or(id)).collect(),
            taken: Vec::new(),
            chosen_by_id: Vec::new(),
            created: Vec::new(),
        }
    }

    /// See [`Teids::go_on`].
    pub(crate) fn go_on(&mut self, succession: u32) {
        self.teids.go_on(succession);
    }

    /// Chosen for the last request that was accepted.
    pub(crate) fn created(&self) -> &[Created] {
        &self.created
    }

    /// Takes what the new PDIs of `draft` need and `before` does not hold, and writes it into them.
    /// Whatever comes of it, [`Self::keep`] or [`Self::undo`] must follow.
    pub(crate) fn take(
        &mut self,
        now: Time,
        draft: &mut Draft,
        before: Holders<'_>,
        site: &Site,
    ) -> Result<(), Refusal> {
        self.taken.clear();
        self.chosen_by_id.clear();
        self.created.clear();
        if draft.is_adopted {
            return self.claim(now, draft, site);
        }
        for i in 0..draft.new_pdis.len() {
            let (at, wants) = draft.new_pdis[i];
            self.locate_ue(draft, at);
            let pdr = &mut draft.pdrs.rules[at];
            let of_pdr = CreatedFor::Pdr(pdr.id);
            let of = pdr.pdi.endpoint().map_or(of_pdr, CreatedFor::Endpoint);
            let mut created = Created::nothing(of);
            self.take_for(now, pdr, wants, before, site, &mut created)
                .map_err(|refusal| refusal.in_rule(RuleId::Pdr(pdr.id)))?;
            self.note(created);
        }
        for i in 0..draft.new_endpoints.len() {
            self.take_endpoint(now, draft, draft.new_endpoints[i], before, site)?;
        }
        self.take_for_others(&draft.pdrs.rules, before)
    }

    /// Takes what a session of `draft` held elsewhere, as it held it; but the slot of a TEID may be another one.
    fn claim(&mut self, now: Time, draft: &mut Draft, site: &Site) -> Result<(), Refusal> {
        let of_pdrs = draft.pdrs.rules.iter_mut().map(|pdr| &mut pdr.pdi.f_teid);
        let of_endpoints = draft.endpoints.iter_mut().map(|known| &mut known.f_teid);
        for f_teid in of_pdrs.chain(of_endpoints).flatten() {
            f_teid.teid = self.claim_teid(now, f_teid.teid.teid)?;
        }
        for net in held(draft.holders()) {
            match net.of {
                Of::Framed => self.take_framed(net.ni, net.net, Holders::NONE, site)?,
                Of::Given => drop(self.take_net(net.ni, net.net, true, Holders::NONE)?),
                Of::Chosen => self.claim_chosen(net)?,
            }
        }
        Ok(())
    }

    fn claim_teid(&mut self, now: Time, wanted: NonZeroU32) -> Result<LocalTeid, Refusal> {
        if let Some(own) = self.taken_teid(wanted) {
            return Ok(own);
        }
        let claimed = self.teids.claim(now, wanted);
        let (teid, grant) = claimed.ok_or(Refusal::rule(IeType::F_TEID))?;
        self.taken.push(Taken::Teid(teid, grant));
        Ok(teid)
    }

    fn claim_chosen(&mut self, wanted: Net) -> Result<(), Refusal> {
        if self.own(Holders::NONE, &wanted).is_none() {
            let pools = self.pools.get_mut(usize::from(wanted.ni.0));
            let grant = pools.and_then(|pools| pools.claim_chosen(wanted.net));
            let grant = grant.ok_or(Refusal::rule(IeType::UE_IP_ADDRESS))?;
            self.taken.push(Taken::Ue(wanted, grant));
        }
        Ok(())
    }

    /// TEID and addresses of one PDR.
    fn take_for(
        &mut self,
        now: Time,
        pdr: &mut Pdr,
        wants: Wants,
        before: Holders<'_>,
        site: &Site,
        created: &mut Created,
    ) -> Result<(), Refusal> {
        self.take_teid(now, pdr, wants, before, site, created)?;
        let is_key = pdr.is_found_by_ue();
        self.take_ue(now, pdr, is_key, wants, before, created)?;
        // Of an uplink PDR, too: what it names may be the source of all packets of the session.
        let ni = pdr.pdi.ni_of_ue();
        (pdr.pdi.framed().iter()).try_for_each(|net| self.take_framed(ni, *net, before, site))
    }

    /// A Traffic Endpoint has the tunnel and addresses of its PDRs; one that no PDR names has those that we choose for it, and
    /// the TEID that the SMF gives.
    fn take_endpoint(
        &mut self,
        now: Time,
        draft: &mut Draft,
        id: u8,
        before: Holders<'_>,
        site: &Site,
    ) -> Result<(), Refusal> {
        let names_it = |pdr: &&Pdr| pdr.pdi.endpoint() == Some(id);
        let user = draft.pdrs.rules.iter().find(names_it).cloned();
        let Some(endpoint) = draft.endpoints.iter_mut().find(|known| known.id == id) else {
            return Ok(());
        };
        let mut created = Created::nothing(CreatedFor::Endpoint(id));
        let user = match user {
            Some(user) => user,
            None => {
                let (pdi, wants) = intake::lone_endpoint(endpoint, site)?;
                let mut lone = Pdr::lone(pdi);
                self.take_teid(now, &mut lone, wants, before, site, &mut created)?;
                self.take_ue(now, &mut lone, false, wants, before, &mut created)?;
                lone
            }
        };
        endpoint.f_teid = user.pdi.f_teid;
        endpoint.ue = user.pdi.ue.filter(|ue| ue.chosen4 || ue.chosen6);
        self.note(created);
        Ok(())
    }

    /// Notes choices for the answer; those of several PDRs of an endpoint are told once.
    fn note(&mut self, created: Created) {
        if created == Created::nothing(created.of) {
            return;
        }
        match self.created.iter_mut().find(|known| known.of == created.of) {
            Some(known) => {
                known.f_teid = known.f_teid.or(created.f_teid);
                known.ue4 = known.ue4.or(created.ue4);
                known.ue6 = known.ue6.or(created.ue6);
            }
            None => self.created.push(created),
        }
    }

    /// A PDR that is found by the addresses of others makes keys of them all.
    fn take_for_others(&mut self, pdrs: &[Pdr], before: Holders<'_>) -> Result<(), Refusal> {
        if !pdrs.iter().any(is_found_by_others) {
            return Ok(());
        }
        for pdr in pdrs {
            for net in pdr.pdi.own_nets() {
                self.take_net(pdr.pdi.ni_of_ue(), net, true, before)
                    .map_err(|refusal| refusal.in_rule(RuleId::Pdr(pdr.id)))?;
            }
        }
        Ok(())
    }

    /// An address that we choose for an uplink PDR is of the network that its FAR leads to.
    fn locate_ue(&self, draft: &mut Draft, at: usize) {
        let pdr = &draft.pdrs.rules[at];
        if pdr.direction() == Direction::Downlink {
            return;
        }
        let far = pdr.far.and_then(|far| draft.for_packets().far(far));
        let forwarding = far.and_then(Far::forwarding);
        let ni = forwarding
            .and_then(|to| to.ni)
            .or(pdr.pdi.ni)
            .unwrap_or(NiId::DEFAULT);
        if let Some(ue) = &mut draft.pdrs.rules[at].pdi.ue {
            ue.ni = ni;
        }
    }

    fn take_teid(
        &mut self,
        now: Time,
        pdr: &mut Pdr,
        wants: Wants,
        before: Holders<'_>,
        site: &Site,
        created: &mut Created,
    ) -> Result<(), Refusal> {
        let known = |teid| before.teids().find(|held| held.teid == teid);
        if let Some(WantedFTeid { ends, choose_id }) = wants.f_teid {
            let teid = self.choose_teid(now, choose_id, before)?;
            let choose_id = choose_id.and_then(ChooseId::of_smf);
            pdr.pdi.f_teid = Some(LocalFTeid {
                teid,
                ends,
                choose_id,
            });
            let (v4, v6) = site.addresses(ends);
            let teid = teid.teid.get();
            created.f_teid = Some(ChosenFTeid { teid, v4, v6 });
        } else if let Some(given) = &mut pdr.pdi.f_teid {
            let wanted = given.teid.teid;
            given.teid = match known(wanted) {
                Some(own) => own,
                None => self.claim_teid(now, wanted)?,
            };
        }
        Ok(())
    }

    fn taken_teid(&self, wanted: NonZeroU32) -> Option<LocalTeid> {
        self.taken.iter().find_map(|taken| match taken {
            Taken::Teid(teid, _) if teid.teid == wanted => Some(*teid),
            _ => None,
        })
    }

    fn choose_teid(
        &mut self,
        now: Time,
        choose_id: Option<ChooseId>,
        before: Holders<'_>,
    ) -> Result<LocalTeid, Refusal> {
        let by_request = |id| self.chosen_by_id.iter().find(|(i, _)| *i == id);
        let known = choose_id.and_then(by_request).map(|(_, teid)| *teid);
        let earlier = || before.chosen_for(choose_id?.of_smf()?);
        if let Some(teid) = known.or_else(earlier) {
            return Ok(teid);
        }
        let (teid, grant) = self
            .teids
            .choose(now)
            .ok_or(Refusal::no_room(IeType::F_TEID))?;
        self.taken.push(Taken::Teid(teid, grant));
        self.chosen_by_id.extend(choose_id.map(|id| (id, teid)));
        Ok(teid)
    }

    /// `is_key`: packets find the session by its addresses, so that those which the SMF gives are taken, too.
    fn take_ue(
        &mut self,
        now: Time,
        pdr: &mut Pdr,
        is_key: bool,
        wants: Wants,
        before: Holders<'_>,
        created: &mut Created,
    ) -> Result<(), Refusal> {
        let (mut chosen4, mut chosen6) = (wants.ue4, wants.ue6.is_some());
        for net in pdr.pdi.own_nets() {
            let chosen = self.take_net(pdr.pdi.ni_of_ue(), net, is_key, before)?;
            match net {
                IpNet::V4(_) => chosen4 = chosen,
                IpNet::V6(_) => chosen6 = chosen,
            }
        }
        let Some(ue) = &mut pdr.pdi.ue else {
            return Ok(());
        };
        if wants.ue4
            && let IpNet::V4(net) = self.choose_net(now, ue.ni, Choice::V4, before)?
        {
            (ue.v4, created.ue4) = (Some(net.addr()), Some(net.addr()));
        }
        if let Some(len) = wants.ue6
            && let IpNet::V6(net) = self.choose_net(now, ue.ni, Choice::V6(len), before)?
        {
            (ue.v6, created.ue6) = (Some(net), Some(net));
        }
        (ue.chosen4, ue.chosen6) = (chosen4, chosen6);
        Ok(())
    }

    /// All PDRs of a session that leave the address to us get the same (TS 29.244, 5.21.3).
    fn choose_net(
        &mut self,
        now: Time,
        ni: NiId,
        choice: Choice,
        before: Holders<'_>,
    ) -> Result<IpNet, Refusal> {
        let occupied = Refusal::ie(
            Cause::ALL_DYNAMIC_ADDRESSES_ARE_OCCUPIED,
            IeType::UE_IP_ADDRESS,
        );
        let fits =
            |held: &Net| held.of == Of::Chosen && held.ni == ni && Choice::of(held.net) == choice;
        if let Some(ours) = held(before).chain(self.taken_nets()).find(fits) {
            return Ok(ours.net);
        }
        let pools = self.pools.get_mut(usize::from(ni.0)).ok_or(occupied)?;
        let (net, grant) = pools.choose(now, choice).ok_or(occupied)?;
        let of = Of::Chosen;
        self.taken.push(Taken::Ue(Net { ni, net, of }, grant));
        Ok(net)
    }

    /// One that the SMF gives. Whether it is one that we had chosen.
    fn take_net(
        &mut self,
        ni: NiId,
        net: IpNet,
        is_key: bool,
        before: Holders<'_>,
    ) -> Result<bool, Refusal> {
        let of = Of::Given;
        let wanted = Net { ni, net, of };
        if let Some(ours) = self.own(before, &wanted) {
            return Ok(ours.of == Of::Chosen);
        }
        if is_key {
            let taken = Refusal::rule(IeType::UE_IP_ADDRESS);
            // No framed route lies in a pool.
            let pooled = (self.pools.get(usize::from(ni.0))).is_some_and(|pools| pools.has(net));
            let is_behind_another = |at: NiId, pools: &NiPools| {
                let own = |net| {
                    self.own(
                        before,
                        &Net {
                            ni: at,
                            net,
                            of: Of::Framed,
                        },
                    )
                };
                pools.is_behind_another(net, |net| own(net).is_some())
            };
            if !pooled
                && self
                    .beside(ni)
                    .any(|(at, pools)| is_behind_another(at, pools))
            {
                return Err(taken);
            }
            let pools = self.pools.get_mut(usize::from(ni.0)).ok_or(taken)?;
            let grant = pools.claim(net).ok_or(taken)?;
            self.taken.push(Taken::Ue(wanted, grant));
        }
        Ok(false)
    }

    /// A network behind the UE: one that SMFs may name, and of which no address is anybody else's.
    fn take_framed(
        &mut self,
        ni: NiId,
        net: IpNet,
        before: Holders<'_>,
        site: &Site,
    ) -> Result<(), Refusal> {
        let of = Of::Framed;
        let wanted = Net { ni, net, of };
        if self.own(before, &wanted).is_some() {
            return Ok(());
        }
        let ie = match net {
            IpNet::V4(_) => IeType::FRAMED_ROUTE,
            IpNet::V6(_) => IeType::FRAMED_IPV6_ROUTE,
        };
        let listed = self.framed_routes.get(usize::from(ni.0));
        let may_be_named = listed
            .and_then(Option::as_ref)
            .is_none_or(|listed| listed.iter().any(|wide| wide.contains(&net)));
        let is_anothers = |at: NiId, pools: &NiPools| {
            let own = |net, of| self.own(before, &Net { ni: at, net, of }).is_some();
            pools.pool_overlaps(net)
                || pools.is_behind_another(net, |net| own(net, Of::Framed))
                || pools.another_has_some_of(net, |net| own(net, Of::Given))
        };
        let refused = !may_be_named
            || site.is_reached_by(net)
            || self.beside(ni).any(|(at, pools)| is_anothers(at, pools));
        if refused {
            return Err(Refusal::rule(ie));
        }
        let pools = self.pools.get_mut(usize::from(ni.0));
        let grant = pools.and_then(|pools| pools.claim_framed(net));
        let grant = grant.ok_or(Refusal::no_room(ie))?;
        self.taken.push(Taken::Ue(wanted, grant));
        Ok(())
    }

    /// Whether a session has a network behind its UE with addresses of this one.
    pub(crate) fn has_framed_in(&self, net: IpNet) -> bool {
        let mut all = self.pools.iter();
        all.any(|pools| pools.is_behind_another(net, |_| false))
    }

    /// The wanted network, if the session holds it already, or has taken it for this request.
    fn own(&self, before: Holders<'_>, wanted: &Net) -> Option<Net> {
        let mut all = held(before).chain(self.taken_nets());
        all.find(|held| held.is_same(wanted))
    }

    /// This network instance, and those whose UEs are found beside its own.
    fn beside(&self, ni: NiId) -> impl Iterator<Item = (NiId, &NiPools)> {
        let home_of = |ni: NiId| self.homes.get(usize::from(ni.0)).copied().unwrap_or(ni);
        let all = (0..).map(NiId).zip(&self.pools);
        all.filter(move |(other, _)| home_of(*other) == home_of(ni))
    }

    fn taken_nets(&self) -> impl Iterator<Item = Net> + '_ {
        self.taken.iter().filter_map(|taken| match taken {
            Taken::Ue(held, _) => Some(*held),
            Taken::Teid(..) => None,
        })
    }

    /// Nothing of [`Self::take`] has happened.
    pub(crate) fn undo(&mut self) {
        self.created.clear();
        while let Some(taken) = self.taken.pop() {
            match taken {
                Taken::Teid(_, grant) => self.teids.undo(grant),
                Taken::Ue(held, grant) => {
                    if let Some(pools) = self.pools.get_mut(usize::from(held.ni.0)) {
                        pools.undo(grant);
                    }
                }
            }
        }
    }

    fn settle(&mut self) {
        self.teids.settle();
        for taken in self.taken.drain(..) {
            if let Taken::Ue(held, _) = taken
                && let Some(pools) = self.pools.get_mut(usize::from(held.ni.0))
            {
                pools.settle();
            }
        }
    }

    /// The request is done: `after` holds what it needs; what only `before` held is free.
    pub(crate) fn keep(&mut self, now: Time, before: Holders<'_>, after: Holders<'_>) {
        self.settle();
        for (i, old) in before.teids().enumerate() {
            if !after
                .teids()
                .chain(before.teids().take(i))
                .any(|kept| kept == old)
            {
                self.teids.release(old, now);
            }
        }
        for (i, old) in held(before).enumerate() {
            let mut kept = held(after).chain(held(before).take(i));
            if kept.any(|other| other.is_same(&old)) {
                continue;
            }
            let pools = self.pools.get_mut(usize::from(old.ni.0));
            match pools {
                Some(pools) if old.is_framed() => pools.release_framed(old.net),
                Some(pools) => pools.release(old.net, now),
                None => {}
            }
        }
    }

    pub(crate) fn fill(&self) -> ResourceFill {
        ResourceFill {
            teids: self.teids.in_use(),
            teids_capacity: self.teids.capacity(),
            pools: self.pools.iter().map(NiPools::fill).collect(),
        }
    }
}

/// Networks that a session holds: the addresses by which packets find it, those that we chose, and the networks behind its UE.
/// The uplink may check against an address without holding it.
fn held(by: Holders<'_>) -> impl Iterator<Item = Net> + '_ {
    let pdrs = by.pdrs;
    let all_are_keys = pdrs.iter().any(is_found_by_others);
    let of_pdrs = pdrs.iter().flat_map(move |pdr| {
        let is_key = all_are_keys || pdr.is_found_by_ue();
        let ni = pdr.pdi.ni_of_ue();
        let own = pdr.pdi.ue.into_iter().flat_map(move |ue| {
            let of = move |net: IpNet| match net {
                IpNet::V4(_) if ue.chosen4 => Some(Of::Chosen),
                IpNet::V6(_) if ue.chosen6 => Some(Of::Chosen),
                _ => is_key.then_some(Of::Given),
            };
            let held = move |net| of(net).map(|of| Net { ni, net, of });
            ue.nets().filter_map(held)
        });
        let of = Of::Framed;
        let framed = pdr.pdi.framed().iter();
        own.chain(framed.map(move |&net| Net { ni, net, of }))
    });
    let chosen = by.endpoints.iter().filter_map(|known| known.ue);
    let of_endpoints = chosen.flat_map(|ue| {
        let is_ours = move |net: &IpNet| match net {
            IpNet::V4(_) => ue.chosen4,
            IpNet::V6(_) => ue.chosen6,
        };
        let held = move |net| Net {
            ni: ue.ni,
            net,
            of: Of::Chosen,
        };
        ue.nets().filter(is_ours).map(held)
    });
    of_pdrs.chain(of_endpoints)
}
