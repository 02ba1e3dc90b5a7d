//! Whom operators follow: from a UE, session or TEID to the keys that packets are compared with, for as
//! long as a client listens.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use report::trace::{Following, Line};
use session::{Core, PdrView, PredefinedView, SessionSummary, SessionView};
use tables::trace::{TRACE_KEYS_MAX, TraceKey, TraceThread};
use tables::{Tables, monotonic_ns};
use tokio::sync::mpsc;

use crate::follow::{
    LINES_MAX, Listener, Listeners, Refers, Refused, Rules, Subscription, TRACES_MAX, Whom,
};
use crate::text::seid_text;

/// How often sessions are looked at for what is followed.
const TEND: Duration = Duration::from_millis(50);
/// Sessions that are looked through at a time for one with a TEID or an address.
const SEARCH: usize = 4096;

/// All running traces.
#[derive(Default)]
pub(crate) struct Traces {
    traces: [Option<Trace>; TRACES_MAX],
    listeners: Listeners,
    /// Reads the ring while there are traces.
    thread: Option<TraceThread>,
    keys: Vec<(TraceKey, u32)>,
    /// Programs report packets with them.
    is_followed: bool,
    tended: Option<Instant>,
}

struct Trace {
    whom: Whom,
    lines: mpsc::Sender<Line>,
    /// The session that it is about, once found.
    seid: Option<u64>,
    /// SEID after which the search for it goes on.
    searched: Option<u64>,
    /// Last told.
    following: Option<Following>,
    rules: Option<Arc<Rules>>,
    /// Records that programs had lost before it began, and losses told since.
    lost_before: u64,
    lost_told: u64,
}

impl Traces {
    /// When [`Self::tend`] wants to be called again.
    pub(crate) fn wait(&self) -> Option<Duration> {
        self.tended
            .map(|tended| TEND.saturating_sub(tended.elapsed()))
    }

    /// Begin to follow somebody. `interfaces`: names of the ports.
    pub(crate) fn begin(
        &mut self,
        core: &mut Core<Tables>,
        whom: Whom,
        interfaces: &[String],
    ) -> Result<Subscription, Refused> {
        if let Whom::Session(seid) = whom
            && core.session(seid).is_none()
        {
            return Err(Refused::NoSession(seid));
        }
        let free = self.traces.iter().position(Option::is_none);
        let place = free.ok_or(Refused::TooMany)?;
        self.listen(core, interfaces)?;
        let (sender, lines) = mpsc::channel(LINES_MAX);
        let listener = Listener {
            lines: sender.clone(),
            since_ns: monotonic_ns(),
            rules: None,
            lost: 0,
        };
        self.listeners.with(|all| all[place] = Some(listener));
        self.traces[place] = Some(Trace {
            whom,
            lines: sender,
            seid: None,
            searched: None,
            following: None,
            rules: None,
            lost_before: core.tables().counting().traces_lost(),
            lost_told: 0,
        });
        if let Err(refused) = self.look(core) {
            self.end(place);
            // Follow the others again; the programs that they need are there.
            let _ = self.look(core);
            return Err(refused);
        }
        Ok(Subscription { lines })
    }

    fn listen(&mut self, core: &Core<Tables>, interfaces: &[String]) -> Result<(), Refused> {
        if self.thread.is_some() {
            return Ok(());
        }
        let failed = |error: &dyn std::fmt::Display| Refused::Datapath(error.to_string());
        let ring = core.tables().traced().map_err(|error| failed(&error))?;
        let ring = ring.ok_or_else(|| failed(&"it has no ring"))?;
        let (listeners, interfaces) = (self.listeners.clone(), interfaces.to_vec());
        let thread = TraceThread::start(ring, move |record| listeners.report(&record, &interfaces));
        self.thread = Some(thread.map_err(|error| failed(&error))?);
        Ok(())
    }

    fn end(&mut self, place: usize) {
        self.traces[place] = None;
        self.listeners.with(|all| all[place] = None);
    }

    fn end_all(&mut self, why: &'static str) {
        for place in 0..TRACES_MAX {
            if let Some(trace) = &self.traces[place] {
                let _ = trace.lines.try_send(Line::Ended {
                    why: Cow::Borrowed(why),
                });
            }
            self.end(place);
        }
    }

    /// Forget clients that left, and follow what sessions have become. Costs nothing while nobody is
    /// followed.
    pub(crate) fn tend(&mut self, core: &mut Core<Tables>) {
        if self.tended.is_none_or(|tended| tended.elapsed() < TEND) {
            return;
        }
        for place in 0..TRACES_MAX {
            let left = self.traces[place]
                .as_ref()
                .is_some_and(|trace| trace.lines.is_closed());
            if left {
                self.end(place);
            }
        }
        if let Err(error) = self.look(core) {
            tracing::error!(%error, "trace");
            self.end_all("data_path");
            // Nobody is followed: no programs are needed.
            let _ = self.look(core);
        }
        self.tell_losses(core);
    }

    fn look(&mut self, core: &mut Core<Tables>) -> Result<(), Refused> {
        let mut keys: Vec<(TraceKey, u32)> = Vec::new();
        let mut all_wanted = Vec::new();
        let all = self.traces.iter_mut().enumerate();
        for (place, trace) in all.filter_map(|(place, trace)| Some((place, trace.as_mut()?))) {
            let rules = trace.rules.clone();
            let wanted = trace.look(core);
            let mut left_out = 0;
            for &key in &wanted {
                match keys.iter().position(|(known, _)| *known == key) {
                    Some(at) => keys[at].1 |= 1 << place,
                    None if keys.len() < TRACE_KEYS_MAX => keys.push((key, 1 << place)),
                    None => left_out += 1,
                }
            }
            if trace.rules != rules {
                let rules = trace.rules.clone();
                self.listeners.with(|all| {
                    if let Some(listener) = &mut all[place] {
                        listener.rules = rules;
                    }
                });
            }
            all_wanted.push((place, wanted, left_out));
        }
        if keys != self.keys || !self.is_followed {
            let followed = core.tables_mut().follow(&keys);
            self.is_followed = followed.map_err(|error| Refused::Datapath(error.to_string()))?;
            self.keys = keys;
        }
        for (place, wanted, left_out) in all_wanted {
            if let Some(trace) = self.traces[place].as_mut().filter(|_| self.is_followed) {
                trace.tell(&wanted, left_out);
            }
        }
        let any = self.traces.iter().any(Option::is_some);
        if !any {
            self.thread = None;
        }
        self.tended = any.then(Instant::now);
        Ok(())
    }

    fn tell_losses(&mut self, core: &Core<Tables>) {
        let by_programs = core.tables().counting().traces_lost();
        for (place, trace) in self.traces.iter_mut().enumerate() {
            let Some(trace) = trace else { continue };
            let by_us = self
                .listeners
                .with(|all| all[place].as_ref().map_or(0, |listener| listener.lost));
            let packets = by_programs.saturating_sub(trace.lost_before) + by_us;
            let news = packets != trace.lost_told;
            if news && trace.lines.try_send(Line::Lost { packets }).is_ok() {
                trace.lost_told = packets;
            }
        }
    }
}

impl Trace {
    /// Keys that its packets are known by now.
    fn look(&mut self, core: &Core<Tables>) -> Vec<TraceKey> {
        let mut view = self.seid.and_then(|seid| core.session(seid));
        if !view
            .as_ref()
            .is_some_and(|view| self.is_about(&view.summary))
        {
            self.seid = self.find(core);
            view = self.seid.and_then(|seid| core.session(seid));
        }
        let mut keys: Vec<TraceKey> = match self.whom {
            Whom::Ue(ue) => vec![TraceKey::Ue(asked(ue))],
            Whom::Teid(teid) => vec![TraceKey::Teid(teid)],
            Whom::Session(_) => Vec::new(),
        };
        if let Some(view) = &view {
            keys.extend(view.summary.teids.iter().copied().map(TraceKey::Teid));
            keys.extend(view.summary.ue.iter().copied().map(TraceKey::Ue));
            let behind = view.pdrs.iter().flat_map(|pdr| &pdr.framed);
            keys.extend(behind.copied().map(TraceKey::Ue));
        }
        keys.sort_unstable();
        keys.dedup();
        let rules = view.as_ref().map(rules);
        if rules.as_ref() != self.rules.as_deref() {
            self.rules = rules.map(Arc::new);
        }
        keys
    }

    fn is_about(&self, session: &SessionSummary) -> bool {
        match self.whom {
            Whom::Session(seid) => session.seid == seid,
            Whom::Teid(teid) => session.teids.contains(&teid),
            Whom::Ue(ue) => session
                .ue
                .iter()
                .any(|of| of.contains(&asked(ue)) || asked(ue).contains(of)),
        }
    }

    /// Its session, or a part of the search for it.
    fn find(&mut self, core: &Core<Tables>) -> Option<u64> {
        if let Whom::Session(seid) = self.whom {
            return core.session(seid).map(|_| seid);
        }
        let mut last = None;
        for session in core.sessions(self.searched).take(SEARCH) {
            if self.is_about(&session) {
                self.searched = None;
                return Some(session.seid);
            }
            last = Some(session.seid);
        }
        // After the last session the search begins anew: there may be others by then.
        self.searched = last;
        None
    }

    fn tell(&mut self, keys: &[TraceKey], left_out: usize) {
        let mut now = Following {
            session: self.seid.map(seid_text),
            teids: Vec::new(),
            ue: Vec::new(),
            left_out,
        };
        for key in keys {
            match key {
                TraceKey::Teid(teid) => now.teids.push(format!("{teid:08x}")),
                TraceKey::Ue(IpNet::V4(net)) if net.prefix_len() == 32 => {
                    now.ue.push(net.addr().to_string());
                }
                TraceKey::Ue(net) => now.ue.push(net.to_string()),
            }
        }
        if self.following.as_ref() != Some(&now)
            && self.lines.try_send(Line::Following(now.clone())).is_ok()
        {
            self.following = Some(now);
        }
    }
}

/// Prefix that an operator means by the address of a UE: of IPv6, its /64.
fn asked(ue: IpAddr) -> IpNet {
    let len = if ue.is_ipv4() { 32 } else { 64 };
    IpNet::new(ue, len).map_or(IpNet::from(ue), |net| net.trunc())
}

fn rules(view: &SessionView) -> Rules {
    let action = |far: Option<u32>| {
        let known = view.fars.iter().find(|known| Some(known.id) == far);
        known.map_or(String::new(), |far| far.action.to_owned())
    };
    let own = |pdr: &PdrView| Refers {
        far: pdr.far,
        action: action(pdr.far),
        qers: pdr.qers.clone(),
        predefined: None,
    };
    // With a FAR of its own, that of the PDR says nothing.
    let activated = |pdr: &PdrView, rule: &PredefinedView| Refers {
        far: pdr.far.filter(|_| rule.action.is_none()),
        action: rule.action.map_or_else(|| action(pdr.far), str::to_owned),
        qers: pdr.qers.clone(),
        predefined: Some(rule.name.clone()),
    };
    let mut pdrs = BTreeMap::new();
    for pdr in &view.pdrs {
        pdrs.insert((pdr.id.0, None), own(pdr));
        for rule in &pdr.predefined {
            pdrs.insert((pdr.id.0, Some(rule.id)), activated(pdr, rule));
        }
    }
    Rules {
        seid: seid_text(view.summary.seid),
        pdrs,
    }
}
