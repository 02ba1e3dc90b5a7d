//! The core and the tables as reports: copies of what they show, in words.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use compiled::{Counters, Direction, LentAction, PacketRate, Resource, TEMPLATES, TemplateUpdate};
use report::{
    ApplicationReport, BufferTotals, CapacityReport, DatapathReport, EventReport, FarReport,
    FastPathReport, Fill, GtpuPeerReport, MessageReport, N4Body, OutcomeReport, PartReport,
    PdrReport, PeerReport, PfdReport, PortReport, PredefinedReport, ProgramReport, QerReport,
    ReplacementReport, SessionDetail, SessionPage, SessionSummary, SessionUsage, ShaperReport,
    SmfReport, TableFill, TemplateReport, TrafficReport, UrrReport, UsagePage, VolumeReport,
    VolumeUsed, WorkerReport,
};
use session::paths::Ends;
use session::peer::{PeerId, PeerState};
use session::pfds::Property;
use session::stats::{Stats, Way};
use session::{
    Core, FarView, PdrView, PredefinedView, QerView, SessionCounts, SessionView, TemplateView,
    Time, UrrView,
};
use tables::{Counting, PortTotals, ProgramInfo, Tables, WorkerTotals};

use crate::command::{Piece, Sought};
use crate::config::{Config, DatapathKind, QosMode};
use crate::control::questions::{Quantum, Questions};
use crate::control::{HostNetwork, Usage};
use crate::port_reports::{drops, port};
use crate::snapshot::Snapshot;
use crate::text::{address_text, label, seid_text};

/// Sessions of one piece of an answer, whatever its time.
const PIECE: usize = 1024;

/// Facts that do not change while the process runs.
pub(crate) struct About {
    pub(crate) config: Arc<Config>,
    pub(crate) recovery_time_stamp: u32,
    /// Time to start the data path.
    pub(crate) start_time: Duration,
}

pub(crate) fn snapshot(
    core: &Core<Tables>,
    about: &About,
    (network, usage, questions): (&HostNetwork, &Usage, &Questions),
    (unsent, stopping): (u64, bool),
) -> Snapshot {
    let limits = &about.config.limits;
    let totals: Vec<(&str, PortTotals)> = about
        .config
        .interface
        .iter()
        .map(|interface| interface.name.as_str())
        .zip(core.tables().totals())
        .collect();
    let (load, reduction) = core.load();
    let (paths, paths_failed) = core.path_count();
    let [sent, lost] = core.tables().counting().duplicates();
    let others = [
        ("not_sent", unsent),
        ("duplicates", sent),
        ("duplicates_lost", lost),
    ];
    let n4 = N4Body {
        messages: messages(core.stats()),
        events: events(core.stats(), others.into_iter().chain(slow_path(network))),
        fast_path: core.serves().then(|| fast_path(core, &about.config)),
    };
    Snapshot {
        recovery_time_stamp: about.recovery_time_stamp,
        gtpu_paths: paths as u64,
        gtpu_paths_failed: paths_failed as u64,
        load_percent: load,
        overload_reduction_percent: reduction,
        stopping,
        sessions: Fill {
            used: core.session_count() as u64,
            capacity: limits.sessions.into(),
        },
        peers: Fill {
            used: core.peers().count() as u64,
            capacity: limits.smfs.into(),
        },
        tables: tables(core, &about.config),
        n4,
        rest: questions.totals(),
        usage: usage.totals(core),
        buffers: buffers(network, about),
        datapath: datapath(core.tables(), about),
        workers: workers(&core.tables().counting(), &about.config),
        ports: about
            .config
            .interface
            .iter()
            .zip(&totals)
            .enumerate()
            .zip(network.troubles())
            .map(
                |((place, (interface, (name, totals))), trouble)| PortReport {
                    in_packets_by_cpu: core.tables().counting().by_cpu(place),
                    mtu: network.mtu(name),
                    trouble,
                    role: interface.role.name().to_owned(),
                    ..port(name, totals)
                },
            )
            .collect(),
        capacities: (core.tables().capacities().into_iter().map(capacity)).collect(),
        policies: network.policies(&about.config),
        state: None,
        drops: totals
            .iter()
            .flat_map(|(name, totals)| drops(name, totals))
            .collect(),
    }
}

fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn datapath(tables: &Tables, about: &About) -> DatapathReport {
    let datapath = &about.config.datapath;
    let (replacements, last) = tables.replacements();
    DatapathReport {
        kind: datapath.kind.name().to_owned(),
        mode: (datapath.kind == DatapathKind::Xdp).then(|| datapath.mode.name().to_owned()),
        workers: (datapath.kind != DatapathKind::Xdp).then_some(datapath.workers),
        workers_replaced: (datapath.kind == DatapathKind::Dpdk).then(|| tables.workers_replaced()),
        build: tables.features().build().to_owned(),
        features: tables.features().names().map(str::to_owned).collect(),
        settling: tables.is_settling(),
        programs: tables.programs().into_iter().map(program).collect(),
        replacements,
        last_replacement: last.map(|last| ReplacementReport {
            at: last
                .at
                .duration_since(UNIX_EPOCH)
                .map_or(0.0, |at| at.as_secs_f64()),
            took_us: (last.took.as_secs_f64() * 1e9).round() / 1e3,
        }),
        start_ms: millis(about.start_time),
    }
}

fn worker(worker: String, totals: &WorkerTotals, shapes: bool) -> WorkerReport {
    WorkerReport {
        worker,
        in_packets: totals.packets,
        busy_s: totals.busy.as_secs_f64(),
        shaper: shapes.then_some(ShaperReport {
            waiting: totals.waiting,
            delayed: totals.delayed,
            waited_s: totals.waited.as_secs_f64(),
        }),
    }
}

/// Workers, then receive cores; on `xdp`, the thread that keeps packets for programs.
fn workers(counting: &Counting, config: &Config) -> Vec<WorkerReport> {
    let shapes = config.qos.mode == QosMode::Shape;
    if config.datapath.kind == DatapathKind::Xdp {
        let shaper = shapes.then(|| worker("shaper".to_owned(), &counting.shaper_now(), true));
        return shaper.into_iter().collect();
    }
    let workers = (0..config.datapath.workers).map(|number| (format!("worker-{number}"), shapes));
    let receivers = (0..config.receivers()).map(|number| (format!("receiver-{number}"), false));
    let all = workers.chain(receivers).enumerate();
    let report = |(number, (name, shapes)): (usize, (String, bool))| {
        let totals = counting.worker_now(number)?;
        Some(worker(name, &totals, shapes))
    };
    all.filter_map(report).collect()
}

fn program(info: ProgramInfo) -> ProgramReport {
    ProgramReport {
        interface: info.interface,
        instructions: info.instructions,
        verified_instructions: info.verified_instructions,
        load_ms: millis(info.load_time),
    }
}

/// Tables that packets meet, then what sessions are given from.
fn tables(core: &Core<Tables>, config: &Config) -> Vec<TableFill> {
    let row = |table: String, used: u64, capacity: u64| TableFill {
        table,
        used,
        capacity,
        refused: 0,
    };
    let mut rows: Vec<TableFill> = core
        .tables()
        .fill()
        .into_iter()
        // The row of what waits for its grace period has no bound of its own.
        .filter(|fill| fill.capacity < u64::MAX)
        .map(|fill| TableFill {
            refused: fill.refused,
            ..row(fill.table.to_owned(), fill.used, fill.capacity)
        })
        .collect();
    let fill = core.fill();
    rows.push(row(
        "teids".to_owned(),
        fill.teids as u64,
        fill.teids_capacity as u64,
    ));
    let (applications, _) = core.pfd_fill();
    let most = core.config().limits.pfd_applications;
    rows.push(row(
        "pfd_applications".to_owned(),
        applications as u64,
        most as u64,
    ));
    for (ni, pools) in config.network_instance.iter().zip(&fill.pools) {
        let name = &ni.name;
        for (family, pool) in [4, 6].into_iter().zip(pools) {
            if pool.capacity > 0 {
                let row_name = format!("pool{family} {name}");
                rows.push(row(row_name, pool.used as u64, pool.capacity));
            }
            let row_name = format!("outside{family} {name}");
            let at_most = pool.outside_at_most as u64;
            rows.push(row(row_name, pool.outside as u64, at_most));
        }
    }
    rows
}

fn messages(stats: &Stats) -> Vec<MessageReport> {
    let way = |way| match way {
        Way::Received => "received",
        Way::Sent => "sent",
    };
    let causes: Vec<_> = stats.causes().collect();
    let mut messages = Vec::new();
    for (to, message, count) in stats.messages() {
        let mut without_cause = count;
        for (.., cause, count) in causes.iter().filter(|row| (row.0, row.1) == (to, message)) {
            without_cause = without_cause.saturating_sub(*count);
            messages.push(MessageReport {
                message: label(message),
                direction: way(to).into(),
                cause: Some(label(cause)),
                count: *count,
            });
        }
        if without_cause > 0 {
            messages.push(MessageReport {
                message: label(message),
                direction: way(to).into(),
                cause: None,
                count: without_cause,
            });
        }
    }
    messages
}

/// Counts of events of N4, and `others`.
fn events(stats: &Stats, others: impl Iterator<Item = (&'static str, u64)>) -> Vec<EventReport> {
    let named = [
        ("other_version", stats.other_versions),
        ("decode_error", stats.decode_errors),
        ("duplicate", stats.duplicates),
        ("retransmission", stats.retransmissions),
        ("timeout", stats.timeouts),
        ("association", stats.associations),
        ("peer_silent", stats.silences),
        ("peer_restart", stats.restarts),
        ("error_indication", stats.error_indications),
        ("error_indication_foreign", stats.error_indications_foreign),
        ("error_indication_reported", stats.error_reports),
        ("downlink_data_reported", stats.downlink_data_reports),
        ("echo_request", stats.echo_requests),
        ("echo_response", stats.echo_responses),
        ("path_failed", stats.path_failures),
        ("path_recovered", stats.path_recoveries),
        ("gtpu_peer_restart", stats.gtpu_restarts),
        ("gtpu_malformed", stats.gtpu_malformed),
        ("gtpu_other", stats.gtpu_other),
        ("session_shed", stats.shed),
        ("session_pfds_without_room", stats.pfds_without_room),
        ("session_displaced", stats.displaced),
        ("usage_report", stats.usage_reports),
        ("session_established", stats.established),
        ("session_modified", stats.modified),
        ("session_deleted", stats.deleted),
        ("session_swept", stats.swept),
    ];
    let ignored = stats.ignored_messages();
    let ignored = ignored.map(|(why, count)| (why.name(), count));
    let all = named.into_iter().chain(ignored).chain(others);
    let event = |(event, count): (&str, _)| EventReport {
        event: event.to_owned(),
        count,
    };
    let mut events: Vec<_> = all.map(event).collect();
    events.sort_by(|a, b| a.event.cmp(&b.event));
    events
}

/// Requests that the data path has served, and those that it has left to the core.
fn fast_path(core: &Core<Tables>, config: &Config) -> FastPathReport {
    let outcome = |outcome: &str, requests, meaning: &str| OutcomeReport {
        outcome: outcome.to_owned(),
        requests,
        meaning: meaning.to_owned(),
    };
    let served = outcome("served", core.stats().served, "answered by the data path");
    let slow = core.slow();
    let slow = slow.map(|(why, count)| outcome(why.name(), count, why.meaning()));
    let is_away = core.serves_beside() && !core.tables().n4_is_attached();
    FastPathReport {
        kind: config.n4.fast_path.name().to_owned(),
        interface: config.n4.interface.clone(),
        trouble: is_away.then(|| "its program is not attached, and the log says why".to_owned()),
        requests: std::iter::once(served).chain(slow).collect(),
        templates: core.templates().map(template).collect(),
        templates_limit: TEMPLATES as u64,
    }
}

fn template(of: TemplateView<'_>) -> TemplateReport {
    let update = |update: &TemplateUpdate| {
        let action = update.action.map(|action| match action {
            LentAction::Forward => "forward",
            LentAction::Buffer => "buffer",
            LentAction::Notify => "notify",
        });
        let tunnel = update.tunnel.map(|_| "tunnel");
        let ends = update.ends_tunnel.then_some("end marker");
        let all: Vec<_> = [action, tunnel, ends].into_iter().flatten().collect();
        all.join(", ")
    };
    TemplateReport {
        smf: of.smf.to_string(),
        octets: of.template.octets.len() as u64,
        updates: of.template.updates.iter().map(update).collect(),
        served: of.served,
    }
}

/// Packets for idle UEs.
fn buffers(network: &HostNetwork, about: &About) -> BufferTotals {
    let (totals, limits) = (network.buffers(), &about.config.buffering);
    let fill = |used, capacity| Fill { used, capacity };
    BufferTotals {
        sessions: fill(totals.sessions, about.config.limits.sessions.into()),
        packets: fill(totals.packets, limits.max_packets.into()),
        bytes: fill(totals.bytes, u64::from(limits.max_mib) << 20),
        taken: totals.taken,
        released: totals.released,
        lost: totals.lost,
    }
}

/// Counters of packets that user space made or sent: ICMP errors, fragments, advertisements, End Markers, packets by the kernel.
fn slow_path(network: &HostNetwork) -> impl Iterator<Item = (&'static str, u64)> {
    let counters = network.slow_path();
    let failed: u64 = counters.failed().map(|(_, count)| count).sum();
    let finished = network.finished();
    [
        ("icmp_time_exceeded_sent", finished.expired()),
        ("icmp_too_big_sent", finished.too_long()),
        ("icmp_not_sent", finished.untold()),
        ("fragments_sent", finished.fragments()),
        ("router_advertisements_sent", finished.advertisements()),
        ("extension_headers_told", finished.extensions()),
        ("slow_path_sent", counters.sent()),
        ("slow_path_failed", failed),
        ("end_markers_sent", network.end_markers().sent()),
        ("end_markers_failed", network.end_markers().failed()),
    ]
    .into_iter()
}

fn capacity(of: tables::CapacityReport) -> CapacityReport {
    CapacityReport {
        name: of.name,
        bps: of.bps,
        guaranteed_bps: of.guaranteed_bps,
        guaranteed_bps_limit: of.guaranteed_at_most,
        share_bps: of.share_bps,
        bytes: of.bytes,
        drops: of.drops,
    }
}

pub(crate) fn peers(
    core: &Core<Tables>,
    after: Option<PeerId>,
    quantum: Quantum,
) -> Piece<Vec<PeerReport>, PeerId> {
    let mut of = Vec::new();
    let peers = core.peers_after(after);
    let (looked, after) = quantum.look(peers, usize::MAX, |(id, peer)| {
        of.push(PeerReport {
            node_id: peer.node_id.to_string(),
            address: peer.address.to_string(),
            state: state(peer.state).to_owned(),
            recovery_time_stamp: peer.recovery,
            sessions: peer.sessions as u64,
        });
        id
    });
    Piece { of, looked, after }
}

pub(crate) fn gtpu_peers(
    core: &Core<Tables>,
    after: Option<Ends>,
    quantum: Quantum,
) -> Piece<Vec<GtpuPeerReport>, Ends> {
    let mut of = Vec::new();
    let (looked, after) = quantum.look(core.paths_after(after), usize::MAX, |path| {
        let state = match path.answers {
            Some(true) => "up",
            Some(false) => "silent",
            None => "unknown",
        };
        of.push(GtpuPeerReport {
            address: path.ends.0.to_string(),
            local: path.ends.1.to_string(),
            state: state.to_owned(),
            recovery_time_stamp: path.recovery,
        });
        path.ends
    });
    Piece { of, looked, after }
}

pub(crate) fn smfs(
    core: &Core<Tables>,
    now: Time,
    after: Option<PeerId>,
    quantum: Quantum,
) -> Piece<Vec<SmfReport>, PeerId> {
    let capacities = core.tables().capacities();
    let part = |part: &session::Part| PartReport {
        of: match part.of {
            Resource::Guaranteed(_) => "guaranteed_bps",
            counted => counted.name(),
        }
        .to_owned(),
        capacity: match part.of {
            Resource::Guaranteed(id) => {
                let at = usize::from(id.0).checked_sub(1);
                at.and_then(|at| Some(capacities.get(at)?.name.clone()))
            }
            _ => None,
        },
        held: part.held,
        share: part.share,
        whole: part.whole,
    };
    let most = core.config().limits.pfd_applications as u64;
    let one = |smf: &session::SmfView<'_>| {
        let mut parts: Vec<PartReport> = smf.parts.iter().map(part).collect();
        if smf.peer.is_some() {
            parts.push(PartReport {
                of: "pfd_applications".to_owned(),
                capacity: None,
                held: smf.applications.0 as u64,
                share: smf.applications.1 as u64,
                whole: most,
            });
        }
        SmfReport {
            node_id: smf.peer.map(|peer| peer.node_id.to_string()),
            state: smf.peer.map(|peer| state(peer.state).to_owned()),
            silent_s: smf.silent_for.map(|time| time.as_secs()),
            parts,
        }
    };
    let mut of = Vec::new();
    let smfs = core.smfs_after(now, after);
    let (looked, after) = quantum.look(smfs, usize::MAX, |(id, smf)| {
        of.push(one(&smf));
        id
    });
    Piece { of, looked, after }
}

const fn state(state: PeerState) -> &'static str {
    match state {
        PeerState::Up => "up",
        PeerState::Down(_) => "silent",
    }
}

pub(crate) fn pfds(
    core: &Core<Tables>,
    after: Option<&str>,
    quantum: Quantum,
) -> Piece<Vec<ApplicationReport>, String> {
    let one = |property: &Property| PfdReport {
        pfd: property.pfd,
        kind: property.kind.name().to_owned(),
        text: property.text.to_string(),
    };
    let mut of = Vec::new();
    let pfds = core.pfds_after(after);
    let (looked, after) = quantum.look(pfds, usize::MAX, |(name, applications)| {
        of.extend(applications.iter().map(|application| ApplicationReport {
            application_id: name.to_owned(),
            smfs: application.smfs.iter().map(ToString::to_string).collect(),
            properties: application.properties.iter().map(one).collect(),
        }));
        name
    });
    let after = after.map(str::to_owned);
    Piece { of, looked, after }
}

pub(crate) fn sessions(
    core: &Core<Tables>,
    after: Option<u64>,
    limit: usize,
    quantum: Quantum,
) -> Piece<SessionPage, u64> {
    let mut sessions = Vec::new();
    let seids = core.sessions(after).map(|session| session.seid);
    let (looked, after) = quantum.look(seids, limit, |seid| {
        sessions.extend(core.session(seid).map(|view| summary(core, &view)));
        seid
    });
    let of = session_page(core, sessions);
    Piece { of, looked, after }
}

fn session_page(core: &Core<Tables>, sessions: Vec<SessionSummary>) -> SessionPage {
    SessionPage {
        total: core.session_count() as u64,
        sessions,
        next: None,
    }
}

/// Sessions that have a mark, of the next that are looked at.
pub(crate) fn find(
    core: &Core<Tables>,
    sought: &Sought,
    after: Option<u64>,
    quantum: Quantum,
) -> Piece<SessionPage, u64> {
    let mut found = Vec::new();
    let sessions = core.sessions(after);
    let (looked, after) = quantum.look(sessions, usize::MAX, |session| {
        let may_be = match sought {
            Sought::Ue(ue) => session.ue.iter().any(|net| net.contains(ue)),
            Sought::Teid(teid) => session.teids.contains(teid),
            // Of the rules.
            Sought::NetworkInstance(_) => true,
        };
        let view = may_be.then(|| core.session(session.seid)).flatten();
        let view = view.filter(|view| match sought {
            Sought::NetworkInstance(name) => {
                let of = |pdr: &PdrView| pdr.network_instance.as_ref() == Some(name);
                view.pdrs.iter().any(of)
            }
            _ => true,
        });
        found.extend(view.map(|view| summary(core, &view)));
        session.seid
    });
    let of = session_page(core, found);
    Piece { of, looked, after }
}

/// Of so many sessions, those that have URRs.
pub(crate) fn usage(
    core: &Core<Tables>,
    now: Time,
    (after, limit): (Option<u64>, usize),
    quantum: Quantum,
) -> Piece<UsagePage, u64> {
    let mut sessions = Vec::new();
    let seids = core.sessions(after).map(|session| session.seid);
    let (looked, after) = quantum.look(seids, limit, |seid| {
        let view = core.session(seid).filter(|view| !view.urrs.is_empty());
        sessions.extend(view.map(|view| SessionUsage {
            seid: seid_text(seid),
            ue: addresses(&view),
            urrs: view.urrs.iter().map(|view| urr(view, now)).collect(),
        }));
        seid
    });
    let of = UsagePage {
        total: core.session_count() as u64,
        sessions,
        next: None,
    };
    Piece { of, looked, after }
}

/// Of all sessions, as they are.
pub(crate) fn counts(
    core: &Core<Tables>,
    after: Option<u64>,
    quantum: Quantum,
) -> Piece<Vec<SessionCounts>, u64> {
    let mut of = Vec::new();
    let (looked, after) = quantum.look(core.seids(after), PIECE, |seid| {
        of.extend(core.counts(seid));
        seid
    });
    Piece { of, looked, after }
}

pub(crate) fn session(core: &Core<Tables>, now: Time, seid: u64) -> Option<SessionDetail> {
    let view = core.session(seid)?;
    Some(SessionDetail {
        summary: summary(core, &view),
        pdrs_detail: view.pdrs.iter().map(pdr).collect(),
        fars: view.fars.iter().map(far).collect(),
        qers: view.qers.iter().map(qer).collect(),
        urrs: view.urrs.iter().map(|view| urr(view, now)).collect(),
        bars: view.bars.iter().map(|&id| id.into()).collect(),
        user_plane_inactivity_s: view.inactivity_s,
    })
}

fn summary(core: &Core<Tables>, view: &SessionView) -> SessionSummary {
    let mut uplink = TrafficReport::default();
    let mut downlink = TrafficReport::default();
    for pdr in &view.pdrs {
        match pdr.direction {
            Direction::Uplink => uplink.add(traffic(pdr.counters)),
            Direction::Downlink => downlink.add(traffic(pdr.counters)),
        }
    }
    SessionSummary {
        seid: seid_text(view.summary.seid),
        cp_seid: seid_text(view.summary.cp_seid),
        peer: core
            .peer(view.summary.peer)
            .map_or(String::new(), |peer| peer.node_id.to_string()),
        ue: addresses(view),
        pdrs: view.pdrs.len(),
        uplink,
        downlink,
    }
}

fn addresses(view: &SessionView) -> Vec<String> {
    view.summary.ue.iter().map(address_text).collect()
}

fn urr(urr: &UrrView, now: Time) -> UrrReport {
    let volume = |[total, uplink, downlink]: [Option<u64>; 3]| VolumeReport {
        total,
        uplink,
        downlink,
    };
    let [uplink, downlink] = urr.used.bytes;
    let used = [uplink.saturating_add(downlink), uplink, downlink];
    let left = std::array::from_fn(|i| urr.quota[i].map(|quota| quota.saturating_sub(used[i])));
    let [uplink_packets, downlink_packets] = urr.used.packets;
    let name = |(name, _): (&str, _)| name.to_owned();
    UrrReport {
        id: urr.id,
        method: urr
            .method
            .iter_names()
            .map(|flag| flag.0.to_owned())
            .collect(),
        triggers: urr.triggers.iter_names().map(name).collect(),
        period_s: urr.period_s,
        reports: urr.seqn,
        for_s: now.since(urr.since).as_secs(),
        uplink: VolumeUsed {
            bytes: uplink,
            packets: uplink_packets,
        },
        downlink: VolumeUsed {
            bytes: downlink,
            packets: downlink_packets,
        },
        seconds: urr.seconds(now),
        threshold: volume(urr.threshold),
        quota: volume(urr.quota),
        quota_left: volume(left),
        time_quota_s: urr.time_quota.map(|quota| quota.as_secs()),
        exhausted: urr.exhausted,
        pending: urr.pending,
    }
}

fn traffic(counters: Counters) -> TrafficReport {
    let Counters {
        packets,
        bytes,
        drops,
        qos_packets,
        delayed,
        ..
    } = counters;
    TrafficReport {
        packets,
        bytes,
        drops,
        qos_drops: qos_packets,
        delayed,
    }
}

/// `10000001@10.3.0.2`, and with both families `10000001@10.3.0.2,2001:db8:3::2`
fn tunnel((teid, addresses): &(u32, Vec<IpAddr>)) -> String {
    let addresses: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    format!("{teid:08x}@{}", addresses.join(","))
}

fn plain_udp((port, addresses): &(u32, Vec<IpAddr>)) -> String {
    let addresses: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    format!("udp:{port}@{}", addresses.join(","))
}

fn pdr(pdr: &PdrView) -> PdrReport {
    let v4 = pdr.ue4.map(|address| address.to_string());
    let v6 = pdr.ue6.map(|prefix| prefix.to_string());
    let framed = pdr.framed.iter().map(ToString::to_string);
    PdrReport {
        id: pdr.id.0.into(),
        precedence: pdr.precedence,
        direction: match pdr.direction {
            Direction::Uplink => "uplink",
            Direction::Downlink => "downlink",
        }
        .to_owned(),
        source_interface: pdr.source.to_owned(),
        network_instance: pdr.network_instance.clone(),
        f_teid: pdr.f_teid.as_ref().map(tunnel),
        ue: v4.into_iter().chain(v6).chain(framed).collect(),
        qfis: pdr.qfis.clone(),
        sdf_filters: pdr.filters.clone(),
        far: pdr.far,
        qers: pdr.qers.clone(),
        urrs: pdr.urrs.clone(),
        predefined_rules: pdr.predefined.iter().map(predefined).collect(),
        dormant: pdr.dormant,
        traffic: traffic(pdr.counters),
    }
}

fn far(far: &FarView) -> FarReport {
    FarReport {
        id: far.id,
        action: far.action.to_owned(),
        destination: far.destination.map(str::to_owned),
        network_instance: far.network_instance.clone(),
        forwarding_policy: far.policy.clone(),
        tunnel: (far.tunnel.as_ref().map(tunnel)).or_else(|| far.udp.as_ref().map(plain_udp)),
    }
}

fn predefined(rule: &PredefinedView) -> PredefinedReport {
    PredefinedReport {
        name: rule.name.clone(),
        flows: rule.flows.clone(),
        action: rule.action.map(str::to_owned),
        network_instance: rule.network_instance.clone(),
        qer: rule.qer.as_ref().map(qer),
        traffic: traffic(rule.counters),
    }
}

fn qer(qer: &QerView) -> QerReport {
    let gate = |open| if open { "open" } else { "closed" }.to_owned();
    let bps = |kbps: u64| kbps.saturating_mul(1000);
    let packets = |rate: PacketRate| format!("{} in {} s", rate.packets, rate.per.as_secs());
    let [packets_uplink, packets_downlink] = qer.packet_rates.map(|rate| rate.map(packets));
    QerReport {
        id: qer.id,
        gate_uplink: gate(qer.uplink_open),
        gate_downlink: gate(qer.downlink_open),
        mbr_uplink_bps: qer.mbr_kbps.map(|(uplink, _)| bps(uplink)),
        mbr_downlink_bps: qer.mbr_kbps.map(|(_, downlink)| bps(downlink)),
        gbr_uplink_bps: qer.gbr_kbps.map(|(uplink, _)| bps(uplink)),
        averaging_ms: qer.averaging_ms,
        gbr_downlink_bps: qer.gbr_kbps.map(|(_, downlink)| bps(downlink)),
        packets_uplink,
        packets_downlink,
        qfi: qer.qfi,
        rqi: qer.rqi,
        ppi: qer.ppi,
    }
}
