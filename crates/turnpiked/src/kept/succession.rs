//! How a process goes on where the one before it has ended.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use report::StateReport;
use session::{Core, Outbox, Time};
use slowpath::{BufferBounds, KeptPackets};
use tables::{GoingOn, LeftPackets, Numbers, Pins, TableFiles, Tables};

use super::counts::Counts;
use super::elsewhere::Elsewhere;
use super::files::{Files, Former, Header, create};
use super::former::count_before;
use super::keeper::Kept;
use super::own::{LOCK, beside, unfinished};
use super::packets::{FORMAT, Whose, number_of};
use crate::clock::Clock;
use crate::config::{Config, DatapathKind, State};

/// How often it is looked whether other threads have come to an end with something, and for how long.
const LOOK: Duration = Duration::from_millis(1);
const WAIT: Duration = Duration::from_secs(2);

/// Packets that processes of before have left.
pub(crate) trait Packets {
    /// Packets that waited for idle UEs go where the rules of now have them go, and are counted in these tables.
    fn judge(&self);

    /// Whether they have.
    fn have_been_judged(&self) -> bool;

    /// Whether there were some.
    fn have_been(&self) -> bool;

    /// Likewise those that programs of before have handed over and nobody has taken. Packets for idle UEs that come from now on come behind
    /// that.
    fn take_left(&self, tables: &Tables, left: Vec<LeftPackets>);

    /// Whether they have been taken.
    fn have_left_been_taken(&self) -> bool;
}

/// A start before this one has ended, or this one begins.
pub(crate) struct Beginning {
    files: Files,
    boot: String,
    former: Option<Former>,
    /// Starts after it that were about to take over, the first one first.
    unsettled: Vec<Former>,
    /// Recovery Time Stamp and seed.
    identity: (u32, u64),
    /// `None`: packets do not go on without a process, or the tables have it.
    pins: Option<Pins>,
    /// Likewise, if tables do without packets.
    tables: Option<TableFiles>,
    /// Folders in which those of processes before did, if they do not any more.
    elsewhere: Elsewhere,
    /// Packets meet the tables when sessions are in them.
    attaches_late: bool,
    /// A disk has a copy of the former file, and goes on with it.
    is_copied: bool,
    clock: Clock,
}

/// A core that sessions of before have been taken into, while packets may still meet former tables.
pub(crate) struct TakenOver {
    /// The former process, and starts after it, each with numbers for its own. None: there is nothing to add.
    before: Vec<Former>,
    numbers: Vec<Numbers>,
    /// The file that this one's changes go to. An error: there is none.
    kept: Result<Kept, (Files, anyhow::Error)>,
    elsewhere: Elsewhere,
    attaches_late: bool,
    is_copied: bool,
    clock: Clock,
    began: Instant,
}

impl Beginning {
    /// `None`: sessions end with the process. `new`: an identity that was not there before.
    pub(crate) fn open(
        config: &Config,
        new: impl FnOnce() -> Result<(u32, u64)>,
    ) -> Result<Option<Self>> {
        let Some(dir) = &config.state.dir else {
            return Ok(None);
        };
        let node_id = config.node.id.to_string();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let boot = boot.trim().to_owned();
        let disk = config.state.disk.as_deref();
        let files =
            Files::new(dir, &node_id, disk).with_context(|| format!("state.dir = {dir:?}"))?;
        let mut former = files.former_or_none(&boot, &node_id);
        if let (None, Some(disk)) = (&former, disk) {
            let age = Duration::from_secs(config.state.unmanaged_s.into());
            match files.restore(disk, (&boot, &node_id), age) {
                Ok(true) => former = files.former_or_none(&boot, &node_id),
                Ok(false) => {}
                Err(error) => tracing::error!(
                    "state.disk = {disk:?}: {error:#}: its sessions are lost, and SMFs will notice"
                ),
            }
        }
        let is_copied = files.is_copied(former.as_ref());
        let clock = former
            .as_ref()
            .map_or(0, |former| former.header.clock_ahead_ns);
        let clock = Clock::ahead_by(clock);
        let identity = match &former {
            Some(Former { header, .. }) => (header.recovery_time_stamp, header.seed),
            None => new()?,
        };
        let unsettled = former
            .as_ref()
            .map_or(Vec::new(), |former| files.starts_after(former));
        let counting: Vec<u64> = former
            .iter()
            .chain(&unsettled)
            .map(|of| of.header.tables)
            .collect();
        files.retain_unsettled(&counting);
        let latest = counting.iter().copied().max().unwrap_or(0);
        let pins = match &config.state.bpffs {
            Some(bpffs) => {
                let pins = Pins::open(bpffs, &node_id, latest).context("state.bpffs")?;
                pins.retain_maps(&counting);
                Some(pins)
            }
            None => None,
        };
        let places = former.iter().chain(&unsettled);
        let places = places.filter_map(|of| of.header.bpffs.clone());
        let elsewhere = Elsewhere::of(&node_id, places, config.state.bpffs.as_deref());
        // Other data paths cannot wait, as interfaces come with them.
        let is_xdp = config.datapath.kind == DatapathKind::Xdp;
        TableFiles::retain(&files.path, &counting);
        let tables = match config.datapath.kind {
            DatapathKind::Xdp => None,
            DatapathKind::Kernel | DatapathKind::Dpdk => files.tables(latest, config),
        };
        if !tables.as_ref().is_some_and(TableFiles::are_all) && files.end_workers()? {
            tracing::warn!("workers of the process before this one cannot go on: packets stop");
        }
        if !is_xdp {
            elsewhere.detach();
        }
        let attaches_late = pins.is_some() || is_xdp && !elsewhere.places.is_empty();
        Ok(Some(Self {
            files,
            boot,
            former,
            unsettled,
            identity,
            pins,
            tables,
            elsewhere,
            attaches_late,
            is_copied,
            clock,
        }))
    }

    /// Whether packets meet the tables when sessions are in them, and not before.
    pub(crate) fn attaches_late(&self) -> bool {
        self.attaches_late
    }

    /// Packets go on over tables of before, until sessions are in those of now.
    pub(crate) fn attach_late(&mut self) {
        self.attaches_late = true;
    }

    /// Pins of tables that packets meet without a process.
    pub(crate) fn take_pins(&mut self) -> Option<Pins> {
        self.pins.take()
    }

    /// Files of tables that outlive the process, though packets do not go on without one.
    pub(crate) fn take_table_files(&mut self) -> Option<TableFiles> {
        self.tables.take()
    }

    /// Whether there are sessions that go on.
    pub(crate) fn goes_on(&self) -> bool {
        self.former.is_some()
    }

    /// Recovery Time Stamp and seed: of the process before this one, if there is one that goes on.
    pub(crate) fn identity(&self) -> (u32, u64) {
        self.identity
    }

    /// The core's clock, which goes on likewise.
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// Packets that wait for idle UEs, for whoever keeps them from now on.
    pub(crate) fn packets(&self, config: &Config, bounds: BufferBounds) -> KeptPackets {
        let whose = Whose {
            format: FORMAT,
            boot: self.boot.clone(),
            seed: self.identity.1,
            ports: ports(config),
        };
        self.files.packets(&whose, bounds, self.goes_on())
    }

    /// The core, which nobody has spoken with yet, goes on as the former one; from now on its changes are kept. `attend`: is called
    /// again and again, as it takes a while.
    pub(crate) fn take_over(
        self,
        now: Time,
        config: &Config,
        core: &mut Core<Tables>,
        out: &mut Outbox,
        mut attend: impl FnMut(&Core<Tables>),
    ) -> Result<TakenOver> {
        let began = Instant::now();
        let Self {
            files,
            boot,
            former,
            unsettled,
            identity: (recovery_time_stamp, seed),
            pins: _,
            tables: _,
            elsewhere,
            attaches_late,
            is_copied,
            clock,
        } = self;
        let header = Header {
            boot,
            node_id: config.node.id.to_string(),
            recovery_time_stamp,
            seed,
            node: config.limits.sessions,
            bpffs: config.state.bpffs.clone(),
            ports: ports(config),
            instances: {
                let instances = config.network_instance.iter();
                instances.map(|of| of.name.clone()).collect()
            },
            tables: core.tables().generation().unwrap_or(0),
            in_files: core.tables().files().is_some(),
            clock_ahead_ns: clock.ahead_ns(),
            disk: config.state.disk.clone(),
        };
        let mut kept = match create(&unfinished(&files.path), &header) {
            Ok((arena, answers)) => Ok(Kept {
                files,
                arena,
                answers,
                disk: None,
                is_filled: false,
                node: header.node,
                pfds: header.pfds(),
                counts_at: header.counts(),
                counts: Counts::default(),
                node_at: Instant::now(),
                full_at: None,
                unkept: BTreeSet::new(),
                refused: 0,
                report: StateReport {
                    packets_go_on: core.tables().going_on() != GoingOn::Nowhere,
                    ..StateReport::default()
                },
            }),
            Err(error) => Err((files, error)),
        };
        if kept.is_ok() {
            core.note_changes();
        }
        let mut before = Vec::new();
        if let Some(former) = former {
            // Not once more, should that be why this process ends.
            core.resume(now, &former.node, out)
                .inspect_err(|_| match &kept {
                    Ok(kept) => kept.files.remove(),
                    Err((files, _)) => files.remove(),
                })?;
            core.tables_mut().honour_guarantees(true);
            former.offer_meters(core);
            let mut served = former.served();
            let entered = former.enter(now, &mut served, (core, out), |core| {
                attend(core);
                if let Ok(kept) = &mut kept {
                    kept.put_changes(core, false);
                }
            });
            core.tables_mut().honour_guarantees(false);
            let lost = entered? + former.damaged;
            unsettled
                .iter()
                .try_for_each(|start| start.follow_meters(core, &mut attend))?;
            former.enter_answers(now, core);
            served.enter(now, core, out, &mut attend);
            let (taken_over, took) = (core.session_count() as u64, began.elapsed());
            let (lost, took_ms) = (lost as u64, took.as_millis() as u64);
            if let Ok(kept) = &mut kept {
                let report = &mut kept.report;
                (report.taken_over, report.lost, report.took_ms) = (taken_over, lost, took_ms);
            }
            tracing::info!(
                sessions = taken_over,
                lost,
                after_ms = took_ms,
                "sessions of the process before this one go on"
            );
            before.push(former);
            before.extend(unsettled);
        }
        let numbers = before.iter().map(|former| numbers(config, &former.header));
        let numbers = numbers.collect();
        if let Ok(kept) = &mut kept {
            kept.put_changes(core, true);
            kept.is_filled = true;
        }
        Ok(TakenOver {
            before,
            numbers,
            kept,
            elsewhere,
            attaches_late,
            is_copied,
            clock,
            began,
        })
    }
}

impl TakenOver {
    /// Packets meet the core's tables from now on, and what others have counted is in its usage. `None`: there is no room to keep
    /// changes, which is no reason to leave users without a UPF. `packets`: has those that others have left.
    pub(crate) fn settle(
        self,
        now: Time,
        core: &mut Core<Tables>,
        out: &mut Outbox,
        packets: &impl Packets,
        mut attend: impl FnMut(&Core<Tables>),
    ) -> Result<Option<Kept>> {
        let Self {
            before,
            numbers,
            mut kept,
            elsewhere,
            attaches_late,
            is_copied,
            clock,
            began,
        } = self;
        let generation = core.tables().generation();
        if let (Ok(of), Some(generation)) = (&kept, generation) {
            let renamed = fs::rename(unfinished(&of.files.path), of.files.unsettled(generation));
            if let Err(error) = renamed {
                kept = match kept {
                    Ok(kept) => Err((kept.files, error.into())),
                    unkept => unkept,
                };
            }
        }
        let attached = attach(core, attaches_late, &elsewhere, packets, &mut attend);
        if let Err(error) = attached {
            // Else some packets have met these tables.
            let are_met = core.tables().is_attached(0) || packets.have_been();
            if let (Ok(of), Some(generation), false) = (&kept, generation, are_met) {
                let _ = fs::remove_file(of.files.unsettled(generation));
            }
            return Err(error);
        }
        let outlived = before.iter().any(|former| former.header.tables > 0);
        if outlived {
            core.tables().pass()?;
            core.tables().raise_meters();
        }
        core.tables_mut().leave_meters();
        let mut before: Vec<_> = before.into_iter().map(Former::with_tables).collect();
        let left = before.iter_mut().zip(&numbers);
        let left = left.filter_map(|((_, left), numbers)| {
            let left = left.as_mut().ok()?.as_mut()?;
            Some(left.take_packets(numbers))
        });
        packets.take_left(core.tables(), left.collect());
        let counts = count_before(&before, now, core, out, &mut attend)?;
        if outlived {
            tracing::info!(
                after_ms = began.elapsed().as_millis() as u64,
                "packets meet this process' tables"
            );
        }
        // Rings end with the files that name them.
        wait(core, &mut attend, || packets.have_left_been_taken());
        drop(before);
        let give_up = |core: &mut Core<Tables>, files: Files, error| {
            core.keep_nothing();
            core.tables().set_going_on(false);
            files.give_up(&error);
            if let Some(pins) = core.tables().pins() {
                pins.remove();
            }
            elsewhere.remove();
            Ok(None)
        };
        let mut kept = match kept {
            Ok(kept) => kept,
            Err((files, error)) => return give_up(core, files, error),
        };
        kept.counts = counts;
        if generation.is_some() {
            kept.put_counts();
        }
        kept.put_changes(core, true);
        let path = &kept.files.path;
        if generation.is_none() {
            // A start after this one that still finds unsettled files could not tell that they are in its usage.
            TableFiles::retain(path, &[]);
        }
        let unsettled = generation.map(|of| kept.files.unsettled(of));
        let from = unsettled.unwrap_or_else(|| unfinished(path));
        if let Err(error) = fs::rename(from, path) {
            return give_up(core, kept.files, error.into());
        }
        // Former files were in the way, as long as they were there. A start finds one of both at any time; sessions without room are in
        // none until they are put in again.
        kept.files.retain_unsettled(&[]);
        if kept.unkept.contains(&kept.node) {
            // Without it no session would be found.
            kept.put_changes(core, true);
        }
        if !kept.unkept.is_empty() {
            kept.try_again(core);
        }
        kept.say_unkept();
        kept.follow(is_copied, clock);
        if let Some(pins) = core.tables().pins() {
            pins.retain_maps(&[]);
        }
        core.tables().set_going_on(true);
        if let Some(generation) = generation {
            // It is memory that many sessions have, and N4 need not wait for its pages to be taken back.
            let front = kept.files.path.clone();
            let work = move || TableFiles::retain(&front, &[generation]);
            if let Err(error) = thread::Builder::new().name("tables".into()).spawn(work) {
                tracing::warn!(%error, "former tables stay until the next start");
            }
        }
        elsewhere.remove();
        Ok(Some(kept))
    }
}

/// Packets meet the core's tables, unless they do already, and those that waited have gone on.
fn attach(
    core: &mut Core<Tables>,
    attaches_late: bool,
    elsewhere: &Elsewhere,
    packets: &impl Packets,
    attend: &mut impl FnMut(&Core<Tables>),
) -> Result<()> {
    let mut judge = |core: &Core<Tables>| {
        packets.judge();
        wait(core, &mut *attend, || packets.have_been_judged());
        if packets.have_been() {
            core.tables().are_met();
        }
    };
    let is_led = !attaches_late || core.tables_mut().lead()?;
    if is_led {
        judge(core);
    }
    if attaches_late {
        // While packets are forwarded: with many sessions it takes a while.
        core.tables().raise_meters();
        elsewhere.detach();
        core.tables_mut().attach()?;
    }
    if !is_led {
        judge(core);
    }
    Ok(())
}

/// Until it is so, though not for ever: the way out of packets may take none.
fn wait(core: &Core<Tables>, mut attend: impl FnMut(&Core<Tables>), is_so: impl Fn() -> bool) {
    let until = Instant::now() + WAIT;
    while !is_so() && Instant::now() < until {
        thread::sleep(LOOK);
        attend(core);
    }
}

fn ports(config: &Config) -> Vec<String> {
    config.interface.iter().map(|of| of.name.clone()).collect()
}

/// Numbers of now for those of a process of before.
fn numbers(config: &Config, before: &Header) -> Numbers {
    let now = ports(config);
    let instances = || config.network_instance.iter();
    let instance = |name: &String| {
        let number = instances().position(|of| of.name == *name)?;
        u16::try_from(number).ok()
    };
    let home = |name: &String| {
        let instance = instances().find(|of| of.name == *name)?;
        number_of(&instance.interface, &now)
    };
    Numbers {
        ports: before
            .ports
            .iter()
            .map(|name| number_of(name, &now))
            .collect(),
        instances: before.instances.iter().map(instance).collect(),
        homes: before.instances.iter().map(home).collect(),
    }
}

/// A UPF that does not run is removed, with all that was to outlive it: its sessions, and the programs that packets still
/// meet. What there was of it.
pub(crate) fn detach(config: &Config) -> Result<Vec<String>> {
    let State {
        dir, bpffs, disk, ..
    } = &config.state;
    let node_id = config.node.id.to_string();
    let dir = dir.as_ref();
    let dir = dir.context("state.dir is not set: nothing outlives turnpiked")?;
    let mut removed = Vec::new();
    let files = Files::new(dir, &node_id, disk.as_deref())
        .with_context(|| format!("state.dir = {dir:?}"))?;
    let [pins, copy] = files.elsewhere().unwrap_or_default();
    for place in bpffs.iter().chain(&pins) {
        let pins = Pins::remove_of(place, &node_id);
        if pins.with_context(|| format!("{place:?}"))? {
            removed.push(format!("programs in {}", place.display()));
        }
    }
    if files.end_workers()? {
        removed.push("workers of DPDK".to_owned());
    }
    if files.path.exists() {
        removed.push(format!("sessions in {}", files.path.display()));
    }
    for place in disk.iter().chain(&copy) {
        let copy = super::disk::remove(place, &files.name);
        if copy.with_context(|| format!("{place:?}"))? {
            removed.push(format!("their copy in {}", place.display()));
        }
        let _ = fs::remove_file(place.join(format!("{}{LOCK}", files.name)));
    }
    files.remove();
    // Root may run this, and another user's start come next.
    let _ = fs::remove_file(beside(&files.path, LOCK));
    Ok(removed)
}
