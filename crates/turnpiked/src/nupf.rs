//! Events of UEs' traffic for consumers of Nupf_EventExposure (TS 29.564): what they have subscribed to, looks at sessions when one is
//! due, and notifications. It runs in the thread of REST; whatever a consumer does, N4 and packets do not hear of it.

mod kept;
mod requests;
mod serve;

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use compiled::Direction;
use hyper::StatusCode;
use report::NupfReport;
use sbi::ee::{Amount, Asked, Counts, Look, Now, Over, Report, Told, Watch, Whom};
use sbi::http::{Failure, tell};
use sbi::{ServerTls, Tls};
use session::SessionCounts;
use time::OffsetDateTime;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use crate::command::{Asker, NoAnswer};
use crate::config::{Config, Nupf, Slice};
use crate::line_limit::LineLimit;
use crate::running::Shared;
use crate::system;
use crate::whole_file;

/// Time for one notification, redirections included.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two writings of the file of subscriptions.
const KEEP: Duration = Duration::from_secs(1);
/// Name of notifications (TS 29.500, 5.2.3.2.3), by which proxies tell them from requests.
const CALLBACK: &str = "Nupf_EventExposure_Notify";
/// Looks at all sessions take their time from others who ask: this part of all, at most.
const SHARE: u32 = 20;
/// Certificates are read so often, while they are in use.
const RENEWED: Duration = Duration::from_secs(1);
/// Pause where the control thread has no time for looks.
const BUSY: Duration = Duration::from_secs(1);

/// Serve consumers by the configuration in effect, for as long as the process runs.
pub(crate) async fn expose(running: Shared, control: Asker) {
    let mut follower = running.follow();
    let mut held: Option<Held> = None;
    loop {
        let config = follower.config();
        held = Held::follow(held, &config, &running, &control).await;
        let goes_on = match &mut held {
            None => follower.leaves(&config).await,
            Some(held) => tokio::select! {
                is_another = follower.leaves(&config) => is_another,
                () = held.attend() => true,
            },
        };
        if !goes_on {
            return;
        }
    }
}

/// All that serves consumers; they hear nothing more when it is dropped.
struct Held {
    exposure: Arc<Exposure>,
    /// Takes connections.
    server: JoinHandle<()>,
    /// Reports under way, by subscription.
    reports: JoinSet<(Uuid, Arc<Report>, Told)>,
    keeper: Keeper,
}

/// Writes subscriptions to where the next start finds them.
#[derive(Debug, Default)]
struct Keeper {
    /// `None`: nowhere.
    path: Option<PathBuf>,
    /// Revision of what is there; `None`: not known.
    written: Option<u64>,
    /// When it was last tried, while there may be more to write.
    at: Option<Instant>,
    has_failed: bool,
}

impl Keeper {
    /// When it may write again.
    fn next(&self) -> Option<Instant> {
        self.at.map(|at| at + KEEP)
    }

    /// Write what is news, unless that was done a moment ago.
    fn keep(&mut self, exposure: &Exposure) {
        let now = Instant::now();
        let Some(path) = &self.path else { return };
        if self.next().is_some_and(|next| now < next) {
            return;
        }
        let revision = exposure.state().revision;
        if self.written == Some(revision) {
            self.at = None;
            return;
        }
        self.at = Some(now);
        let octets = kept::octets(&exposure.state());
        match whole_file::write(path, &octets, None) {
            Ok(()) => (self.written, self.has_failed) = (Some(revision), false),
            Err(error) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    tracing::warn!(file = %path.display(), %error, "nupf: subscriptions are not kept, and end with this process; it is tried again");
                }
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Subscriptions, and what answers to requests need.
#[derive(Debug)]
struct Exposure {
    running: Shared,
    control: Asker,
    state: Mutex<State>,
    /// A subscription has come or changed.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    settings: Nupf,
    /// Slices of the configuration, by which UEs are told apart.
    slices: Vec<Slice>,
    subscriptions: HashMap<Uuid, Subscription>,
    /// Another one with each change to them that is kept.
    revision: u64,
    /// No look at all sessions begins before.
    next_walk: Instant,
    certificates: Certificates,
    shown: NupfReport,
    lines: LineLimit,
}

#[derive(Debug)]
struct Subscription {
    watch: Watch,
    /// As its consumer wrote it, JSON.
    document: Box<str>,
    /// Consumers are told apart by their addresses.
    from: IpAddr,
    /// A report that is under way.
    telling: Option<AbortHandle>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.stop_telling();
    }
}

impl Subscription {
    /// The consumer hears no more of the report under way.
    fn stop_telling(&mut self) {
        if let Some(telling) = self.telling.take() {
            telling.abort();
        }
    }
}

/// Certificates as they were when they could last be read.
#[derive(Debug, Default)]
struct Certificates {
    at: Option<Instant>,
    /// Shown to consumers; `None`: they speak in clear.
    server: Option<ServerTls>,
    /// Shown where notifications go; `None`: nobody there is believed.
    client: Option<Tls>,
}

/// A look of a subscription.
type Begun = (Uuid, Look);

fn now() -> Now {
    Now {
        instant: Instant::now(),
        wall: OffsetDateTime::now_utc(),
    }
}

/// Counts of a session as watches see them.
struct Seen {
    counts: SessionCounts,
    pdrs: Vec<(u16, usize, Amount)>,
}

impl Seen {
    fn new(counts: SessionCounts) -> Self {
        let pdrs = counts.pdrs.iter().map(|(id, direction, counters)| {
            let way = match direction {
                Direction::Uplink => 0,
                Direction::Downlink => 1,
            };
            let (octets, packets) = (counters.bytes, counters.packets);
            (id.0, way, Amount { octets, packets })
        });
        let pdrs = pdrs.collect();
        Self { counts, pdrs }
    }

    fn counts(&self) -> Counts<'_> {
        Counts {
            seid: self.counts.seid,
            ue: &self.counts.ue,
            dnn: self.counts.network_instance.as_deref(),
            pdrs: &self.pdrs,
        }
    }
}

impl State {
    /// UEs of all subscriptions; of those for any UE alone.
    fn ues(&self) -> (usize, usize) {
        let counts = self.subscriptions.values().map(|of| {
            let count = of.watch.ue_count();
            let is_any = of.watch.asked().whom == Whom::Any;
            (count, if is_any { count } else { 0 })
        });
        counts.fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1))
    }

    /// Read certificates, unless that was done a moment ago: they are renewed.
    fn certificates(&mut self) -> &Certificates {
        let now = Instant::now();
        let is_due = |at: Instant| now.duration_since(at) >= RENEWED;
        if self.certificates.at.is_none_or(is_due) {
            self.certificates.at = Some(now);
            let read = self.settings.server_tls();
            let read = read.and_then(|server| Ok((server, self.settings.client_tls()?)));
            match read {
                Ok((server, client)) => {
                    (self.certificates.server, self.certificates.client) = (server, client);
                }
                Err(error) => {
                    if self.lines.may(now) {
                        tracing::warn!(%error, "nupf: certificates cannot be read; those of before are in use");
                    }
                }
            }
        }
        &self.certificates
    }

    /// Show some sessions to some subscriptions.
    fn see(&mut self, looks: &[Begun], sessions: &[Seen], at: Now) {
        let mut room = (self.settings.max_ues as usize).saturating_sub(self.ues().1);
        for (id, look) in looks {
            let Some(subscription) = self.subscriptions.get_mut(id) else {
                continue;
            };
            let watch = &mut subscription.watch;
            let names_one = watch.asked().whom != Whom::Any;
            for counts in sessions.iter().map(Seen::counts) {
                if is_of_slice(&self.slices, watch.asked(), counts.dnn) {
                    let before = watch.ue_count();
                    watch.see(*look, at, &counts, names_one || room > 0);
                    room = room.saturating_sub(watch.ue_count().saturating_sub(before));
                }
            }
        }
    }

    /// Why it ends is told, and it is no more.
    fn end(&mut self, id: Uuid, over: Over) {
        let Some(ended) = self.subscriptions.remove(&id) else {
            return;
        };
        self.revision += 1;
        let consumer = ended.watch.asked().consumer;
        let is_dropped = matches!(over, Over::Silent | Over::Unknown);
        self.shown.dropped += u64::from(is_dropped);
        if self.lines.may(Instant::now()) {
            match is_dropped {
                true => {
                    tracing::warn!(%consumer, address = %ended.from, subscription = %id, reason = %over, "nupf: a subscription is dropped")
                }
                false => {
                    tracing::info!(%consumer, address = %ended.from, subscription = %id, reason = %over, "nupf: a subscription ends")
                }
            }
        }
    }
}

/// Whether UEs of this DNN are of the slice that is asked for, if one is.
fn is_of_slice(slices: &[Slice], asked: &Asked, dnn: Option<&str>) -> bool {
    let Some(wanted) = &asked.slice else {
        return true;
    };
    let of_slice = slices.iter().find(|slice| {
        let same = |one: &String, other: &String| one.eq_ignore_ascii_case(other);
        slice.sst == wanted.sst
            && match (&slice.sd, &wanted.sd) {
                (None, None) => true,
                (Some(one), Some(other)) => same(one, other),
                _ => false,
            }
    });
    of_slice.is_some_and(|slice| {
        let is_it = |name: &String| dnn.is_some_and(|dnn| dnn.eq_ignore_ascii_case(name));
        slice.dnns.is_empty() || slice.dnns.iter().any(is_it)
    })
}

impl Exposure {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bring what `turnpike status` shows up to date.
    fn show(&self) {
        let shown = {
            let mut state = self.state();
            let all = state.subscriptions.values();
            let left_out = all.map(|of| of.watch.left_out()).sum();
            state.shown.subscriptions = state.subscriptions.len() as u64;
            state.shown.ues = state.ues().0 as u64;
            state.shown.left_out = left_out;
            Some(state.shown.clone())
        };
        self.running.change_if(|running| {
            let is_news = running.nupf != shown;
            if is_news {
                running.nupf.clone_from(&shown);
            }
            is_news
        });
    }

    /// Looks that begin now: at all sessions, and at those of UEs that are named.
    fn begin_looks(&self) -> (Vec<Begun>, Vec<(Begun, Vec<u64>)>) {
        let (mut walkers, mut named) = (Vec::new(), Vec::new());
        let (mut state, at) = (self.state(), now());
        let next_walk = state.next_walk;
        for (id, subscription) in &mut state.subscriptions {
            let watch = &mut subscription.watch;
            if !watch.wants_look(at) {
                continue;
            }
            match watch.asked().whom {
                Whom::Any if at.instant < next_walk => watch.put_off(next_walk),
                Whom::Any => walkers.push((*id, watch.begin_look())),
                Whom::Ue(_) => named.push(((*id, watch.begin_look()), watch.named())),
            }
        }
        (walkers, named)
    }

    /// Have all sessions seen for which it is time.
    async fn look(&self) -> Result<(), NoAnswer> {
        let (walkers, named) = self.begin_looks();
        for (look, seids) in named {
            for seid in seids {
                if let Some(counts) = self.control.counts_of(seid).await? {
                    self.state().see(&[look], &[Seen::new(counts)], now());
                }
            }
            self.looked(&[look], now());
        }
        if walkers.is_empty() {
            return Ok(());
        }
        let (walk, mut after) = (now(), None);
        loop {
            let piece = self.control.counts(after).await?;
            let sessions: Vec<Seen> = piece.of.into_iter().map(Seen::new).collect();
            self.state().see(&walkers, &sessions, now());
            after = piece.after;
            if after.is_none() {
                break;
            }
        }
        self.looked(&walkers, walk);
        let took = walk.instant.elapsed();
        self.state().next_walk = walk.instant + took * SHARE;
        Ok(())
    }

    fn looked(&self, looks: &[Begun], began: Now) {
        let mut state = self.state();
        for (id, look) in looks {
            if let Some(subscription) = state.subscriptions.get_mut(id) {
                subscription.watch.end_look(*look, began);
            }
        }
    }

    /// Look again when the control thread has time for it.
    fn put_off(&self) {
        let at = now();
        for subscription in self.state().subscriptions.values_mut() {
            if subscription.watch.wants_look(at) {
                subscription.watch.put_off(at.instant + BUSY);
            }
        }
    }

    /// Reports that are due.
    fn due(&self) -> Vec<(Uuid, Arc<Report>)> {
        let (mut state, at) = (self.state(), now());
        let (mut due, mut over) = (Vec::new(), Vec::new());
        for (id, subscription) in &mut state.subscriptions {
            match subscription.watch.report(at) {
                Ok(report) => due.extend(report.map(|report| (*id, report))),
                Err(why) => over.push((*id, why)),
            }
        }
        for (id, why) in over {
            state.end(id, why);
        }
        due
    }

    fn next(&self) -> Option<Instant> {
        let at = now();
        let state = self.state();
        let all = state.subscriptions.values();
        all.map(|of| of.watch.next(at)).min()
    }

    /// Have a consumer take a report.
    async fn send(&self, report: &Report) -> Told {
        let (within, tls) = {
            let mut state = self.state();
            (
                state.settings.allow.clone(),
                state.certificates().client.clone(),
            )
        };
        let notify = &report.asked().notify;
        let bodies = report.bodies();
        let (taken, result) =
            tell((notify, CALLBACK), tls.as_ref(), &within, bodies, PATIENCE).await;
        let (told, why) = match result {
            Ok(status) if status.is_success() => (Told::Taken, None),
            Ok(StatusCode::NOT_FOUND | StatusCode::GONE) => (Told::Unknown, None),
            Ok(status) => (Told::Not(taken), Some(format!("answers {status}"))),
            Err(failure @ Failure::Elsewhere(_)) => {
                (Told::Not(taken), Some(format!("{failure} (nupf.allow)")))
            }
            Err(failure) => (Told::Not(taken), Some(failure.to_string())),
        };
        self.told(report, taken, why.as_deref());
        told
    }

    fn told(&self, report: &Report, taken: usize, why: Option<&str>) {
        let mut state = self.state();
        state.shown.delivered += taken as u64;
        let Some(why) = why else { return };
        state.shown.failed += 1;
        let error = format!("{}: {why}", report.asked().notify);
        let is_news = state.shown.last_error.as_ref() != Some(&error);
        if is_news && state.lines.may(Instant::now()) {
            let consumer = report.asked().consumer;
            tracing::warn!(%consumer, %error, "nupf: a notification is not taken; it is told again");
        }
        state.shown.last_error = Some(error);
    }
}

impl Held {
    /// Go on with another configuration: subscriptions stay.
    async fn follow(
        held: Option<Self>,
        config: &Config,
        running: &Shared,
        control: &Asker,
    ) -> Option<Self> {
        let Some(settings) = &config.nupf else {
            if held.is_some() {
                running.change(|running| running.nupf = None);
            }
            // Also that of a process before this one: they have ended.
            if let Some(path) = kept::path(config) {
                let _ = std::fs::remove_file(path);
            }
            return None;
        };
        let slices = config.nrf.as_ref().map(|nrf| nrf.slice.clone());
        let slices = slices.unwrap_or_default();
        if let Some(mut held) = held {
            let moves = {
                let mut state = held.exposure.state();
                let moves = state.settings.listen != settings.listen;
                state.shown.api_root = settings.root();
                if state.slices != slices {
                    let all = state.subscriptions.values_mut();
                    all.for_each(|of| of.watch.widen());
                }
                (state.settings, state.slices) = (settings.clone(), slices);
                state.certificates.at = None;
                moves
            };
            if moves {
                held.server.abort();
                held.server = tokio::spawn(serve::serve(Arc::clone(&held.exposure)));
            }
            held.exposure.show();
            return Some(held);
        }
        let exposure = Arc::new(Exposure {
            running: running.clone(),
            control: control.clone(),
            state: Mutex::new(State {
                settings: settings.clone(),
                slices,
                subscriptions: HashMap::new(),
                revision: 0,
                next_walk: Instant::now(),
                certificates: Certificates::default(),
                shown: NupfReport {
                    api_root: settings.root(),
                    ..NupfReport::default()
                },
                lines: LineLimit::default(),
            }),
            changed: Notify::new(),
        });
        let path = kept::path(config);
        if let Some(path) = &path {
            kept::resume(&exposure, path).await;
        }
        exposure.show();
        Some(Self {
            server: tokio::spawn(serve::serve(Arc::clone(&exposure))),
            exposure,
            reports: JoinSet::new(),
            keeper: Keeper {
                path,
                ..Keeper::default()
            },
        })
    }

    /// Look, report, and hear what becomes of reports, until it is dropped.
    async fn attend(&mut self) {
        let exposure = Arc::clone(&self.exposure);
        loop {
            if exposure.look().await.is_err() {
                exposure.put_off();
            }
            for (id, report) in exposure.due() {
                let teller = Arc::clone(&exposure);
                let telling = self.reports.spawn(async move {
                    let told = teller.send(&report).await;
                    (id, report, told)
                });
                if let Some(of) = exposure.state().subscriptions.get_mut(&id) {
                    of.telling = Some(telling);
                }
            }
            exposure.show();
            self.keeper.keep(&exposure);
            let next = [exposure.next(), self.keeper.next()];
            let next = next.into_iter().flatten().min();
            tokio::select! {
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
                () = exposure.changed.notified() => {}
                Some(ended) = self.reports.join_next(), if !self.reports.is_empty() => {
                    // Else its subscription is no more.
                    if let Ok((id, report, told)) = ended {
                        self.heard(id, (&report, told));
                    }
                }
            }
        }
    }

    fn heard(&self, id: Uuid, told: (&Arc<Report>, Told)) {
        let mut state = self.exposure.state();
        let patience = Duration::from_secs(state.settings.unanswered_s.into());
        let Some(subscription) = state.subscriptions.get_mut(&id) else {
            return;
        };
        let over = subscription.watch.told(now(), told, patience);
        let is_counted = subscription.watch.asked().mode.reports.is_some();
        state.revision += u64::from(is_counted);
        if let Err(over) = over {
            state.end(id, over);
        }
    }
}

/// A name that nobody can guess: who knows it may change the subscription.
fn new_id() -> std::io::Result<Uuid> {
    let halves = [system::random()?, system::random()?];
    let octets = halves.map(u64::to_ne_bytes).concat();
    let octets: [u8; 16] = octets.try_into().unwrap_or_default();
    Ok(uuid::Builder::from_random_bytes(octets).into_uuid())
}
