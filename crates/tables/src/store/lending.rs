//! Sessions that the engine of `datapath/n4/serve.h` may change: their lines, templates of requests, and what is left to do when it
//! has served one.
//!
//! The engine stores what packets read; users of peers, grace periods and what waits are put right behind it, before anything else
//! happens. It runs in the control thread, before the core is asked, or beside it, in a program of the kernel ([`Engine`]), which tells of
//! what it has served.

mod aliases;
mod beside;

use std::collections::{BTreeSet, HashMap};
use std::hint::spin_loop;
use std::io;
use std::sync::atomic::Ordering;

use compiled::{
    Lent, LentAction, LentChange, LentProfile, LentTarget, SeidKey, Served, ServedBeside, Slow,
    TEMPLATE_OCTETS, TEMPLATES, Template,
};

use crate::abi::host::{
    self, TP_N4_ASSOCIATION_SHIFT, TP_N4_BUFFER, TP_N4_BUSY, TP_N4_CANDIDATES, TP_N4_CONTROL,
    TP_N4_FORWARD, TP_N4_GENERATION_SHIFT, TP_N4_LENT, TP_N4_NOTIFY, TP_N4_PASSED_MASK,
    TP_N4_PASSED_SHIFT, TP_N4_STATE_MASK, TP_N4_STAYS, tp_host_n4_serve, tp_n4_alias, tp_n4_change,
    tp_n4_config, tp_n4_done, tp_n4_line, tp_n4_request, tp_n4_tables, tp_n4_template,
};
use crate::abi::{Line, from_words, words_of};
use crate::engine::Engine;
use crate::grace::Grace;
use crate::handle::Handle;
use crate::layout::Memory;
use crate::memory::View;
use crate::served_log::{request_of, sender_of};
use crate::store::node::NodeTables;
use crate::store::retired::Retired;
use crate::store::shard::ShardTables;
use aliases::Alias;
use beside::{BesideUs, UNKNOWN};

/// Addresses that tunnels of lent sessions may lead to.
pub(crate) const ALIASES: usize = 8192;

/// Requests of an SMF may come so many late, or be repeated so long.
const COMES_LATE: u32 = 1 << 20;

/// Sequence number of a line, which has 24 bits: no request has come.
const NO_SEQUENCE: u32 = u32::MAX;

/// Word of a line that has the sequence number.
const SEQUENCE: usize = std::mem::offset_of!(tp_n4_line, sequence) / 8;

/// Word of a line that says who may change the session.
const OWNER: usize = std::mem::offset_of!(tp_n4_line, owner) / 8;

const _: () = assert!(ALIASES.is_power_of_two() && ALIASES <= 1 << 16);
const _: () = assert!(TEMPLATES == host::TP_N4_TEMPLATES as usize);
const _: () = assert!(compiled::TEMPLATES_OF_LENGTH == TP_N4_CANDIDATES as usize);
const _: () = assert!(TEMPLATE_OCTETS == host::TP_N4_OCTETS as usize);
const _: () = assert!(compiled::LENT_FARS == host::TP_N4_FARS as usize);
const _: () = assert!(compiled::LENT_PDRS == host::TP_N4_ENTRIES as usize);
const _: () = assert!(Slow::ALL.len() + 1 == host::TP_N4_VERDICTS as usize);

/// Lines, templates and aliases.
pub(crate) struct Lending {
    config: Box<tp_n4_config>,
    lines: View<Line>,
    templates: Box<[tp_n4_template]>,
    aliases: Box<[tp_n4_alias]>,
    /// The same addresses as `aliases`, and how many need each.
    known: Vec<Option<Alias>>,
    request: Box<tp_n4_request>,
    /// `None`: the engine runs in this thread alone.
    beside: Option<Box<BesideUs>>,
}

impl std::fmt::Debug for Lending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lending")
            .field("places", &self.lines.len())
            .finish_non_exhaustive()
    }
}

/// Tables that a change of a lent session concerns.
pub(crate) struct Beside<'a> {
    pub(crate) mem: &'a Memory,
    pub(crate) node: &'a mut NodeTables,
    pub(crate) shard: &'a mut ShardTables,
    pub(crate) grace: &'a mut Grace<Retired>,
}

fn state_of(action: LentAction) -> u8 {
    let state = match action {
        LentAction::Forward => TP_N4_FORWARD,
        LentAction::Buffer => TP_N4_BUFFER,
        LentAction::Notify => TP_N4_NOTIFY,
    };
    state as u8
}

fn action_of(state: u8) -> LentAction {
    match u32::from(state) {
        TP_N4_FORWARD => LentAction::Forward,
        TP_N4_BUFFER => LentAction::Buffer,
        _ => LentAction::Notify,
    }
}

fn state(owner: u64) -> u32 {
    (owner & u64::from(TP_N4_STATE_MASK)) as u32
}

/// Messages about the session that have gone to the control plane.
fn passed(owner: u64) -> u64 {
    owner >> TP_N4_PASSED_SHIFT & u64::from(TP_N4_PASSED_MASK)
}

/// Session and association, as an owner word has them.
pub(crate) fn name_of(generation: u32, association: u32) -> u64 {
    u64::from(generation) << TP_N4_GENERATION_SHIFT
        | u64::from(association) << TP_N4_ASSOCIATION_SHIFT
}

/// Session and association of an owner word.
fn named(owner: u64) -> u64 {
    owner >> TP_N4_GENERATION_SHIFT << TP_N4_GENERATION_SHIFT
}

/// As `TP_N4_THROUGH()` takes it apart.
fn profile_of(profile: LentProfile) -> u16 {
    u16::from(profile.through) << 8 | u16::from(profile.bar)
}

impl Lending {
    /// For so many places, which SEIDs name by this key.
    pub(crate) fn new(
        places: u32,
        key: SeidKey,
        salt: u64,
        engine: Option<Engine>,
    ) -> io::Result<Self> {
        let config = tp_n4_config {
            outer: key.outer.map(|(by, and)| [by, and]),
            inner: key.inner,
            salt,
            ..tp_n4_config::default()
        };
        let lines = match &engine {
            Some(engine) => engine.lines.clone(),
            None => View::anonymous_huge(places.max(1) as usize)?,
        };
        if let Some(engine) = &engine {
            engine.set_config(&config);
        }
        let beside = |engine| {
            Box::new(BesideUs {
                engine,
                ready: HashMap::new(),
                heard: vec![0; places as usize],
                taken_back: Vec::new(),
                unused: BTreeSet::new(),
                is_fresh: false,
            })
        };
        Ok(Self {
            config: Box::new(config),
            lines,
            templates: vec![tp_n4_template::default(); TEMPLATES].into(),
            aliases: vec![tp_n4_alias::default(); ALIASES].into(),
            known: vec![None; ALIASES],
            request: Box::default(),
            beside: engine.map(beside),
        })
    }

    /// The engine that runs beside this thread.
    pub(crate) fn engine(&self) -> Option<&Engine> {
        self.beside.as_ref().map(|beside| &beside.engine)
    }

    fn engine_mut(&mut self) -> Option<&mut Engine> {
        self.beside.as_mut().map(|beside| &mut beside.engine)
    }

    /// See [`compiled::Tables::touch_place`].
    pub(crate) fn touch(&self, place: u32) -> u64 {
        self.lines
            .get(place as usize)
            .map_or(0, |line| line.load(OWNER))
    }

    fn line(&self, place: u32) -> Option<tp_n4_line> {
        let line = self.lines.get(place as usize)?;
        Some(from_words(line.words()))
    }

    /// See [`compiled::Tables::hold`].
    pub(crate) fn hold(&mut self, place: u32) {
        self.take(place);
        if let Some(beside) = &mut self.beside {
            beside.keep(place);
        }
    }

    /// The control plane has the session from now on. Whether it had not before.
    fn take(&self, place: u32) -> bool {
        let Some(line) = self.lines.get(place as usize) else {
            return false;
        };
        loop {
            let owner = line.load(OWNER);
            match state(owner) {
                TP_N4_CONTROL => return false,
                // For less than a microsecond.
                TP_N4_BUSY => spin_loop(),
                _ => {
                    let own = owner & !u64::from(TP_N4_STATE_MASK) | u64::from(TP_N4_CONTROL);
                    if line.exchange(OWNER, owner, own) {
                        return true;
                    }
                }
            }
        }
    }

    /// See [`compiled::Tables::heard`].
    pub(crate) fn heard(&self, place: u32, sequence: u32) {
        let Some((line, at)) = self.line(place).zip(self.lines.get(place as usize)) else {
            return;
        };
        let newer = sequence.wrapping_sub(line.sequence) & 0xff_ffff;
        if line.sequence == NO_SEQUENCE || newer != 0 && newer < 1 << 23 {
            let words: [u64; 8] = words_of(&tp_n4_line { sequence, ..line });
            // No other word: messages are counted in the owner's as they pass.
            at.0[SEQUENCE].store(words[SEQUENCE], Ordering::Relaxed);
        }
    }

    fn put(&self, place: u32, line: &tp_n4_line) {
        if let Some(at) = self.lines.get(place as usize) {
            at.fill(words_of(line));
        }
    }

    /// See [`compiled::Tables::return_place`].
    pub(crate) fn return_place(&mut self, place: u32, beside: &mut Beside<'_>) {
        if let Some(own) = &mut self.beside {
            own.keep(place);
            if let Some(heard) = own.heard.get_mut(place as usize) {
                *heard = 0;
            }
            self.take(place);
        }
        let Some(line) = self.line(place) else {
            return;
        };
        if line.state != [0; compiled::LENT_FARS] {
            self.put(place, &tp_n4_line::default());
            self.leave_all(&line, beside);
        }
    }

    /// See [`compiled::Tables::know_place`].
    pub(crate) fn know_place(
        &mut self,
        place: u32,
        name: u64,
        sequence: Option<u32>,
        beside: &mut Beside<'_>,
    ) {
        let Some(before) = self
            .line(place)
            .filter(|before| named(before.owner) != name)
        else {
            return;
        };
        if let Some(own) = &mut self.beside
            && let Some(heard) = own.heard.get_mut(place as usize)
            && *heard > 0
        {
            // Messages about it before this one were not counted as they passed.
            *heard = UNKNOWN;
        }
        self.take(place);
        self.put(
            place,
            &tp_n4_line {
                owner: name | u64::from(TP_N4_CONTROL),
                sequence: sequence.unwrap_or(NO_SEQUENCE),
                ..tp_n4_line::default()
            },
        );
        self.leave_all(&before, beside);
    }

    /// See [`compiled::Tables::lend`].
    pub(crate) fn lend(&mut self, handle: &Handle, lent: &Lent, beside: &mut Beside<'_>) {
        let mut line = tp_n4_line {
            owner: name_of(lent.generation, lent.association) | u64::from(TP_N4_LENT),
            cp_seid: lent.cp_seid,
            sequence: lent.sequence,
            ..tp_n4_line::default()
        };
        for (slot, far) in lent.fars.iter().enumerate() {
            let through = far.profile.through;
            let (remote, local) = (far.target.peer, far.target.local);
            let alias = self.join(remote, local, through, beside);
            let mut entries = far.pdrs.iter().map(|&pdr| {
                let mut own = handle.entries_of(pdr);
                let first = own.next().map(|held| held.index);
                first.filter(|_| own.next().is_none())
            });
            let found = (line.entry[slot].iter_mut()).all(|to| match entries.next() {
                Some(Some(index)) => {
                    *to = index;
                    true
                }
                Some(None) => false,
                None => true,
            });
            if let Some(alias) = alias {
                line.alias[slot] = alias;
                line.state[slot] = state_of(far.target.action);
            }
            if alias.is_none() || !found || entries.next().is_some() {
                line.owner &= !u64::from(TP_N4_STATE_MASK);
            }
            line.far[slot] = far.id;
            line.teid[slot] = far.target.teid;
            line.profile[slot] = profile_of(far.profile);
            line.network[slot] = far.profile.network;
        }
        if self.beside.is_some() {
            self.take(lent.place);
        }
        let before = self.line(lent.place).unwrap_or_default();
        let is_same = named(before.owner) == named(line.owner);
        if is_same && before.sequence != NO_SEQUENCE {
            // One that is repeated is not newer: a number does not go back, but where it has come round.
            let back = before.sequence.wrapping_sub(line.sequence) & 0xff_ffff;
            if back < COMES_LATE {
                line.sequence = before.sequence;
            } else if back < 1 << 23 && self.beside.is_some() {
                // Numbers of an SMF that counts more than once: of answers that are kept the program knows nothing.
                line.sequence = before.sequence;
                line.owner = named(line.owner);
            }
        }
        // After the new ones have joined: an address that stays is not looked for anew.
        self.leave_all(&before, beside);
        let Some(at) = self.lines.get(lent.place as usize) else {
            return;
        };
        let Some(own) = &mut self.beside else {
            return at.fill(words_of(&line));
        };
        let words: [u64; 8] = words_of(&line);
        let rest = at.0.iter().zip(words).enumerate();
        for (_, (to, word)) in rest.filter(|(word, _)| *word != OWNER) {
            to.store(word, Ordering::Relaxed);
        }
        if state(line.owner) == TP_N4_LENT {
            own.offer(lent.place, at);
        }
    }

    /// See [`compiled::Tables::teach`].
    pub(crate) fn teach(&mut self, number: usize, template: Option<&Template>) -> bool {
        let Some(place) = self.templates.get_mut(number) else {
            return false;
        };
        *place = tp_n4_template::default();
        let mut fits = true;
        if let Some(template) = template {
            let length = template.octets.len();
            let same = |other: &&tp_n4_template| usize::from(other.length) == length;
            fits = length <= TEMPLATE_OCTETS
                && self.templates.iter().filter(same).count() < TP_N4_CANDIDATES as usize;
            if fits {
                self.templates[number] = written(number, template);
            }
        }
        self.chain();
        self.show_templates();
        fits
    }

    /// Requests that are compared meanwhile would meet parts of two.
    fn show_templates(&mut self) {
        let Self {
            config,
            templates,
            beside,
            ..
        } = self;
        let Some(beside) = beside else {
            return;
        };
        let engine = &mut beside.engine;
        let was_running = engine.pause();
        engine.set_config(config);
        for (number, template) in templates.iter().enumerate() {
            engine.set_template(number, template);
        }
        if was_running {
            engine.go_on();
        }
    }

    /// Templates are found by their length.
    fn chain(&mut self) {
        self.config.by_length = [0; TEMPLATE_OCTETS + 1];
        for (number, template) in self.templates.iter_mut().enumerate() {
            if template.length > 0 {
                let first = &mut self.config.by_length[usize::from(template.length)];
                template.next = std::mem::replace(first, number as u16 + 1);
            }
        }
    }

    /// See [`compiled::Tables::serve`].
    pub(crate) fn serve(
        &mut self,
        octets: &[u8],
        association: u32,
        served: &mut Served,
        beside: &mut Beside<'_>,
    ) -> Result<(), Slow> {
        let Some(to) = self.request.octets.get_mut(..octets.len()) else {
            return Err(Slow::Other);
        };
        to.copy_from_slice(octets);
        self.request.len = octets.len() as u32;
        self.request.association = association;
        let mut done = tp_n4_done::default();
        let verdict = self.ask(&mut done, beside);
        if let Some(why) = (verdict as usize).checked_sub(1) {
            return Err(Slow::ALL.get(why).copied().unwrap_or(Slow::Other));
        }
        self.take_in(&done, served, beside);
        Ok(())
    }

    /// See [`compiled::Tables::look_at_served`].
    pub(crate) fn look_at_served(&mut self) {
        if let Some(engine) = self.engine_mut() {
            engine.look();
        }
    }

    /// See [`compiled::Tables::next_served`].
    pub(crate) fn next_served(
        &mut self,
        served: &mut ServedBeside,
        beside: &mut Beside<'_>,
    ) -> bool {
        let next = self.engine_mut().and_then(Engine::next_served);
        let Some(record) = next else {
            return false;
        };
        served.from = sender_of(&record);
        served.association = record.request.association;
        served.octets.clear();
        served.octets.extend_from_slice(request_of(&record));
        self.take_in(&record.done, &mut served.what, beside);
        true
    }

    /// See [`compiled::Tables::served_is_kept`].
    pub(crate) fn served_is_kept(&self) {
        if let Some(engine) = self.engine() {
            engine.let_go_of_served();
        }
    }

    /// Do the rest of what was served.
    fn take_in(&mut self, done: &tp_n4_done, served: &mut Served, beside: &mut Beside<'_>) {
        served.place = done.place;
        served.template = done.template.into();
        let changes = done.change.iter().take(done.n_changes.into());
        served.changes.clear();
        served
            .changes
            .extend(changes.clone().filter_map(|change| self.read(change)));
        // A FAR may go where another one of the request leaves: all join before any leaves.
        for change in changes.clone() {
            if let Some(Some(known)) = self.known.get_mut(usize::from(change.new_alias)) {
                known.users += 1;
            }
        }
        for change in changes.clone() {
            self.follow(change, beside);
        }
        for change in changes.clone() {
            self.leave(change.old_alias, beside);
        }
        served.others.clear();
        let is_other = |slot: &usize| changes.clone().all(|one| one.far != done.far[*slot]);
        let others = (0..compiled::LENT_FARS).filter(is_other);
        let others = others.filter(|&slot| u32::from(done.state[slot]) != TP_N4_STAYS);
        let others =
            others.filter_map(|at| self.target(done.state[at], done.teid[at], done.alias[at]));
        served.others.extend(others);
    }

    fn target(&self, state: u8, teid: u32, alias: u16) -> Option<LentTarget> {
        let known = self.known.get(usize::from(alias))?.as_ref()?;
        Some(LentTarget {
            action: action_of(state),
            teid,
            peer: known.remote,
            local: known.local,
        })
    }

    fn ask(&mut self, done: &mut tp_n4_done, beside: &Beside<'_>) -> u32 {
        let tables = tp_n4_tables {
            config: &raw const *self.config,
            lines: self.lines.as_ptr().cast(),
            templates: self.templates.as_ptr(),
            aliases: self.aliases.as_ptr(),
            n_lines: self.lines.len() as u32,
            n_aliases: self.aliases.len() as u32,
        };
        let mut all = beside.mem.as_tables(beside.mem.slow.as_ptr(), 0);
        // SAFETY: the tables are mapped as long as `beside.mem` with the lengths given and shared with Rust as atomics only; so are
        // lines. Of the rest, which is ours, nothing is written but `done`.
        let verdict =
            unsafe { tp_host_n4_serve(&mut all, &tables, &raw const *self.request, done) };
        verdict as u32
    }

    /// Change of a FAR.
    fn read(&self, change: &tp_n4_change) -> Option<LentChange> {
        let before = self.target(change.old_state, change.old_teid, change.old_alias)?;
        let after = self.target(change.new_state, change.new_teid, change.new_alias)?;
        Some(LentChange {
            id: change.far,
            before,
            after,
            ends_tunnel: change.ends_tunnel != 0,
        })
    }

    /// Peers, grace periods and waiting packets of its entries, which packets meet already.
    fn follow(&self, change: &tp_n4_change, beside: &mut Beside<'_>) {
        let forwards = |state| action_of(state) == LentAction::Forward;
        let [old, new] =
            [change.old_alias, change.new_alias].map(|at| self.aliases[usize::from(at)].peer);
        for &entry in change.entry.iter().filter(|&&entry| entry != 0) {
            let Beside {
                node, shard, grace, ..
            } = beside;
            match (forwards(change.old_state), forwards(change.new_state)) {
                (false, false) => {}
                (true, true) => {
                    node.peers.share(new);
                    node.release_peer(old, grace);
                }
                (true, false) => {
                    shard.retire_entry(entry, false, grace);
                    node.release_peer(old, grace);
                }
                (false, true) => {
                    node.peers.share(new);
                    let head = shard.entries.head(entry);
                    shard.behind_buffered(entry, head, grace);
                    shard.entries.release_buffered(entry);
                }
            }
        }
    }
}

fn written(number: usize, template: &Template) -> tp_n4_template {
    let mut to = tp_n4_template::default();
    let length = template.octets.len();
    to.length = length as u16;
    to.number = number as u8;
    to.cp_seid_at = template.cp_seid_at.unwrap_or(0);
    to.n_updates = template.updates.len() as u8;
    to.octets[..length].copy_from_slice(&template.octets);
    to.mask[..length].copy_from_slice(&template.mask);
    for (to, update) in to.update.iter_mut().zip(&template.updates) {
        let (teid_at, address_at, address_len) = update.tunnel.unwrap_or_default();
        *to = host::tp_n4_update {
            id_at: update.id_at,
            teid_at,
            address_at,
            profile: profile_of(update.profile),
            address_len,
            action: update.action.map_or(TP_N4_STAYS as u8, state_of),
            ends_tunnel: update.ends_tunnel.into(),
            network: update.profile.network,
        };
    }
    to
}
