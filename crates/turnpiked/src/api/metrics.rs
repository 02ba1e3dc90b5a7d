//! The metrics page. Label values are our own words and interface names; nothing that a peer
//! sends becomes one, so their number is bounded.

use std::fmt::Error;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;
use report::{
    CapacityReport, ConfigState, DiskState, NrfReport, NupfReport, PolicyUse, PortReport,
    ReloadReport, ShaperReport, WorkerReport,
};

use super::refusals;
use crate::logging;
use crate::running::{Running, Spans};
use crate::snapshot::Snapshot;

pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All of it as OpenMetrics text.
pub(crate) fn encode(
    snapshot: &Snapshot,
    running: &Running,
    started: SystemTime,
) -> Result<String, Error> {
    let mut registry = Registry::default();
    let process = Process::read(started);
    registry.register_collector(Box::new(Page {
        snapshot: snapshot.clone(),
        config: running.state.clone(),
        nrf: running.nrf.clone(),
        nupf: running.nupf.clone(),
        spans: running.spans,
        process,
    }));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Page {
    snapshot: Snapshot,
    config: ConfigState,
    nrf: Option<NrfReport>,
    nupf: Option<NupfReport>,
    spans: Option<Spans>,
    process: Process,
}

type Labels<'l, const N: usize> = [(&'l str, &'l str); N];

impl Collector for Page {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut out = Out(encoder);
        let build = [
            ("version", cli::RELEASE),
            ("commit", cli::COMMIT.unwrap_or("unknown")),
        ];
        let help = "Release and commit";
        out.0
            .encode_descriptor("turnpike_build", help, None, MetricType::Info)?
            .encode_info(&build)?;
        self.state(&mut out)?;
        self.n4(&mut out)?;
        self.rest(&mut out)?;
        self.usage(&mut out)?;
        self.buffers(&mut out)?;
        self.capacities(&mut out)?;
        self.policies(&mut out)?;
        self.workers(&mut out)?;
        self.traffic(&mut out)?;
        self.log(&mut out)?;
        self.disk(&mut out)?;
        self.config(&mut out)?;
        self.nrf(&mut out)?;
        self.nupf(&mut out)?;
        self.telemetry(&mut out)?;
        self.process(&mut out)
    }
}

impl Page {
    fn config(&self, out: &mut Out<'_>) -> Result<(), Error> {
        let help = "Reloads of the configuration, those included that were refused";
        out.counter("turnpike_config_reloads", help, self.config.reloads)?;
        let last = self.config.last.as_ref();
        let failed = last.is_some_and(ReloadReport::went_wrong);
        let help = "1 when the last reload was refused or failed";
        out.gauge("turnpike_config_reload_failed", help, u64::from(failed))
    }

    /// Nothing where there is none.
    fn nrf(&self, out: &mut Out<'_>) -> Result<(), Error> {
        let Some(nrf) = &self.nrf else { return Ok(()) };
        let is_registered = nrf.state == NrfReport::REGISTERED;
        let help = "1 while an NRF knows this UPF";
        out.gauge("turnpike_nrf_registered", help, u64::from(is_registered))?;
        let requests = [("granted", nrf.granted), ("refused", nrf.refused)];
        let requests = requests.map(|(outcome, count)| ([("outcome", outcome)], count));
        let help = "Requests to NRFs";
        out.counters("turnpike_nrf_requests", help, requests.into_iter())
    }

    /// Likewise.
    fn nupf(&self, out: &mut Out<'_>) -> Result<(), Error> {
        let Some(nupf) = &self.nupf else {
            return Ok(());
        };
        let help = "1 while consumers of events are served";
        let is_served = u64::from(nupf.trouble.is_none());
        out.gauge("turnpike_nupf_served", help, is_served)?;
        let help = "Subscriptions to events of UEs";
        out.gauge("turnpike_nupf_subscriptions", help, nupf.subscriptions)?;
        let ues = [("measured", nupf.ues), ("left_out", nupf.left_out)];
        let ues = ues.map(|(state, count)| ([("state", state)], count));
        let help = "UEs of these subscriptions";
        out.gauges("turnpike_nupf_ues", help, ues.into_iter())?;
        let notifications = [("delivered", nupf.delivered), ("failed", nupf.failed)];
        let notifications = notifications.map(|(outcome, count)| ([("outcome", outcome)], count));
        let help = "Notifications to consumers";
        out.counters(
            "turnpike_nupf_notifications",
            help,
            notifications.into_iter(),
        )?;
        let help = "Subscriptions that were dropped for their consumers";
        out.counter("turnpike_nupf_dropped_subscriptions", help, nupf.dropped)
    }

    /// Likewise.
    fn telemetry(&self, out: &mut Out<'_>) -> Result<(), Error> {
        let Some(spans) = self.spans else {
            return Ok(());
        };
        let spans = [
            ("exported", spans.exported),
            ("dropped", spans.dropped),
            ("failed", spans.failed),
        ];
        let spans = spans.map(|(outcome, count)| ([("outcome", outcome)], count));
        let help = "Spans of PFCP transactions";
        out.counters("turnpike_telemetry_spans", help, spans.into_iter())
    }

    fn state(&self, out: &mut Out<'_>) -> Result<(), Error> {
        let Snapshot {
            gtpu_paths,
            gtpu_paths_failed,
            load_percent,
            overload_reduction_percent,
            sessions,
            peers,
            tables,
            datapath,
            ..
        } = &self.snapshot;
        out.gauge("turnpike_sessions", "PFCP sessions", sessions.used)?;
        out.gauge(
            "turnpike_sessions_limit",
            "limits.sessions",
            sessions.capacity,
        )?;
        out.gauge(
            "turnpike_gtpu_paths",
            "GTP-U peers that are asked whether they are there",
            *gtpu_paths,
        )?;
        out.gauge(
            "turnpike_gtpu_paths_failed",
            "GTP-U peers that no longer answer",
            *gtpu_paths_failed,
        )?;
        out.gauge(
            "turnpike_load_percent",
            "Load that SMFs hear of",
            u64::from(*load_percent),
        )?;
        out.gauge(
            "turnpike_overload_reduction_percent",
            "By how much SMFs are asked to do less",
            u64::from(*overload_reduction_percent),
        )?;
        out.gauge("turnpike_peers", "SMFs with an association", peers.used)?;
        out.gauge("turnpike_peers_limit", "limits.smfs", peers.capacity)?;
        let used = tables
            .iter()
            .map(|t| ([("table", t.table.as_str())], t.used));
        out.gauges("turnpike_table_used", "Entries in use", used)?;
        let capacity = tables
            .iter()
            .map(|t| ([("table", t.table.as_str())], t.capacity));
        out.gauges("turnpike_table_capacity", "Entries there are", capacity)?;
        let refused = tables
            .iter()
            .map(|t| ([("table", t.table.as_str())], t.refused));
        let help = "Changes of sessions that the table had no room for, or only what is kept for other SMFs";
        out.counters("turnpike_table_refused", help, refused)?;
        let help = "Times that others took the place of workers whose process had ended, or hung";
        let replaced = datapath.workers_replaced.into_iter();
        let labels = [("datapath", datapath.kind.as_str())];
        out.counters(
            "turnpike_workers_replaced",
            help,
            replaced.map(|times| (labels, times)),
        )?;
        let features = datapath
            .features
            .iter()
            .map(|name| ([("feature", name.as_str())], 1));
        let help = "Features of the live programs";
        out.gauges("turnpike_datapath_feature", help, features)?;
        let help = "Programs that took over from others";
        let replacements = [(
            [("datapath", datapath.kind.as_str())],
            datapath.replacements,
        )];
        out.counters(
            "turnpike_datapath_replacements",
            help,
            replacements.into_iter(),
        )
    }

    fn n4(&self, out: &mut Out<'_>) -> Result<(), Error> {
        let n4 = &self.snapshot.n4;
        let help = "PFCP messages; cause is that of a response";
        let messages = n4.messages.iter().map(|m| {
            let cause = m.cause.as_deref().unwrap_or_default();
            let labels = [
                ("message", m.message.as_str()),
                ("direction", &m.direction),
                ("cause", cause),
            ];
            (labels, m.count)
        });
        out.counters("turnpike_pfcp_messages", help, messages)?;
        let help = "What else happened on N4: malformed messages, repeats, full limits";
        let events = n4
            .events
            .iter()
            .map(|of| ([("event", of.event.as_str())], of.count));
        out.counters("turnpike_pfcp_events", help, events)?;
        let Some(fast_path) = &n4.fast_path else {
            return Ok(());
        };
        let help = "Session Modification Requests by who served them: the data path (served), or the core, and why";
        let requests = fast_path.requests.iter();
        let requests = requests.map(|of| ([("outcome", of.outcome.as_str())], of.requests));
        out.counters("turnpike_pfcp_fast_path_requests", help, requests)?;
        let help = "Templates of requests that the data path serves";
        out.gauge(
            "turnpike_pfcp_templates",
            help,
            fast_path.templates.len() as u64,
        )
    }

    fn rest(&self, out: &mut Out<'_>) -> Result<(), Error> {
        let rest = &self.snapshot.rest;
        let help = "Turns of REST on the control thread, between looks at N4";
        out.counters(
            "turnpike_rest_turns",
            help,
            [([("of", "control")], rest.turns)].into_iter(),
        )?;
        let help = "CPU time of the control thread that REST took";
        let seconds = [([("of", "control")], rest.seconds)];
        out.seconds("turnpike_rest_seconds", help, seconds.into_iter())?;
        let help = "Longest turn of REST so far, in CPU time of the control thread";
        out.gauge("turnpike_rest_turn_longest_seconds", help, rest.longest_s)?;
        let help = "Connections and requests to REST that were refused";
        let refused = refusals::counts().map(|(reason, count)| ([("reason", reason)], count));
        out.counters("turnpike_rest_refused", help, refused)
    }

    fn usage(&self, out: &mut Out<'_>) -> Result<(), Error> {
        let usage = &self.snapshot.usage;
        let help = "Usage Reports by trigger, and whether the SMF has them";
        let reports = usage.reports.iter().map(|row| {
            let acknowledged = if row.acknowledged { "yes" } else { "no" };
            let labels = [
                ("trigger", row.trigger.as_str()),
                ("acknowledged", acknowledged),
            ];
            (labels, row.count)
        });
        out.counters("turnpike_usage_reports", help, reports)?;
        out.gauge(
            "turnpike_usage_waiting",
            "Sessions whose usage waits to be reported",
            usage.sessions_waiting,
        )?;
        let help = "Crossings of thresholds and quotas that packets told of";
        let alarms = [("told", usage.alarms), ("looked_for", usage.alarms_late)];
        let alarms = alarms.map(|(how, count)| ([("how", how)], count));
        out.counters("turnpike_usage_alarms", help, alarms.into_iter())?;
        let help = "Reports that were to go to the log of usage";
        let log = [("written", usage.log_written), ("lost", usage.log_lost)];
        let log = log.map(|(outcome, count)| ([("outcome", outcome)], count));
        out.counters("turnpike_usage_log", help, log.into_iter())?;
        let help = "Bytes of packets that were under way when their PDR went: in no report";
        out.counter("turnpike_usage_late_bytes", help, usage.late_bytes)
    }

    fn log(&self, out: &mut Out<'_>) -> Result<(), Error> {
        let log = logging::totals();
        let help = "Lines of the log on standard error";
        let lines = [
            ("written", log.written),
            ("lost", log.lost),
            ("suppressed", log.suppressed),
        ];
        let lines = lines.map(|(outcome, count)| ([("outcome", outcome)], count));
        out.counters("turnpike_log_lines", help, lines.into_iter())
    }

    fn disk(&self, out: &mut Out<'_>) -> Result<(), Error> {
        let state = self.snapshot.state.as_ref();
        let Some(disk) = state.and_then(|state| state.disk.as_ref()) else {
            return Ok(());
        };
        let help = "1: a copy of sessions in state.disk outlives the host";
        let is_current = disk.state == DiskState::Current;
        out.gauge("turnpike_disk_copy", help, u64::from(is_current))?;
        let help = "Bytes of that copy";
        out.gauge("turnpike_disk_copy_bytes", help, disk.bytes)?;
        let help = "Times that it was lost with its disk";
        out.counter("turnpike_disk_copy_failures", help, disk.failures)?;
        let help = "Age of the oldest change that is not in it";
        out.gauge("turnpike_disk_copy_behind_seconds", help, disk.behind_s)?;
        let help = "Longest time so far from a change to its commit";
        out.gauge(
            "turnpike_disk_copy_longest_commit_seconds",
            help,
            disk.longest_commit_s,
        )
    }

    fn capacities(&self, out: &mut Out<'_>) -> Result<(), Error> {
        let all = &self.snapshot.capacities;
        let by_name = |of: fn(&CapacityReport) -> u64| {
            let all = all.iter();
            all.map(move |capacity| ([("capacity", capacity.name.as_str())], of(capacity)))
        };
        let help = "Bits per second that an interface, a network instance or a group of users has";
        out.gauges("turnpike_capacity_bps", help, by_name(|of| of.bps))?;
        let help = "Bits per second of a capacity that are guaranteed to flows";
        let guaranteed = by_name(|of| of.guaranteed_bps);
        out.gauges("turnpike_capacity_guaranteed_bps", help, guaranteed)?;
        let help = "Bytes of users' IP packets that passed a capacity";
        out.counters("turnpike_capacity_bytes", help, by_name(|of| of.bytes))?;
        let help = "Packets that were dropped because a capacity was used up";
        out.counters("turnpike_capacity_drops", help, by_name(|of| of.drops))
    }

    fn policies(&self, out: &mut Out<'_>) -> Result<(), Error> {
        let of_policies = self.snapshot.policies.iter().flat_map(|policy| {
            let uses = policy.network_instances.iter();
            uses.flat_map(|of| {
                [("ipv4", &of.ipv4), ("ipv6", &of.ipv6)].map(|(family, state)| {
                    let labels = [
                        ("policy", policy.identifier.as_str()),
                        ("network_instance", of.network_instance.as_str()),
                        ("family", family),
                    ];
                    (labels, u64::from(state == PolicyUse::IN_USE))
                })
            })
        });
        let help = "Whether all routes of a forwarding policy lead to somebody who is there";
        out.gauges("turnpike_forwarding_policy_in_use", help, of_policies)
    }

    fn buffers(&self, out: &mut Out<'_>) -> Result<(), Error> {
        let buffers = &self.snapshot.buffers;
        let help = "Sessions for which packets wait";
        out.gauge("turnpike_buffered_sessions", help, buffers.sessions.used)?;
        let help = "Packets that wait for idle UEs";
        out.gauge("turnpike_buffered_packets", help, buffers.packets.used)?;
        let help = "Memory of packets that wait";
        out.gauge("turnpike_buffered_bytes", help, buffers.bytes.used)?;
        let help = "buffering.max_mib, in bytes";
        out.gauge(
            "turnpike_buffered_bytes_limit",
            help,
            buffers.bytes.capacity,
        )?;
        let fates = [
            ("taken", buffers.taken),
            ("released", buffers.released),
            ("lost", buffers.lost),
        ];
        let help = "Packets that came to wait, and what became of them";
        let fates = fates.into_iter().map(|(fate, n)| ([("fate", fate)], n));
        out.counters("turnpike_buffer_packets", help, fates)
    }

    fn workers(&self, out: &mut Out<'_>) -> Result<(), Error> {
        let workers = &self.snapshot.workers;
        let name = |worker: &'_ WorkerReport| worker.worker.clone();
        let names: Vec<String> = workers.iter().map(name).collect();
        let labels = |place: usize| [("worker", names[place].as_str())];
        let busy = workers.iter().map(|worker| worker.busy_s).enumerate();
        let help = "Seconds that a thread of the data path had packets";
        let busy = busy.map(|(place, seconds)| (labels(place), seconds));
        out.seconds("turnpike_worker_busy_seconds", help, busy)?;
        let shapers = workers.iter().map(|worker| worker.shaper).enumerate();
        let shapers: Vec<(usize, ShaperReport)> = shapers
            .filter_map(|(place, shaper)| Some((place, shaper?)))
            .collect();
        let of = |value: fn(&ShaperReport) -> u64| {
            let rows = shapers.iter();
            rows.map(move |(place, shaper)| (labels(*place), value(shaper)))
        };
        let help = "Packets above their rates that wait";
        out.gauges("turnpike_shaper_waiting_packets", help, of(|s| s.waiting))?;
        let help = "Packets above their rates that have come to wait";
        out.counters("turnpike_shaper_delayed_packets", help, of(|s| s.delayed))?;
        let waited = shapers.iter();
        let waited = waited.map(|(place, shaper)| (labels(*place), shaper.waited_s));
        let help = "Seconds that these have waited so far, together";
        out.seconds("turnpike_shaper_waited_seconds", help, waited)
    }

    fn traffic(&self, out: &mut Out<'_>) -> Result<(), Error> {
        let ports = &self.snapshot.ports;
        let by_direction = |of: fn(&PortReport) -> [u64; 2]| {
            ports.iter().flat_map(move |port| {
                ["uplink", "downlink"]
                    .into_iter()
                    .zip(of(port))
                    .map(move |(direction, count)| {
                        (
                            [
                                ("interface", port.interface.as_str()),
                                ("direction", direction),
                            ],
                            count,
                        )
                    })
            })
        };
        let by_port = |of: fn(&PortReport) -> u64| {
            ports
                .iter()
                .map(move |port| ([("interface", port.interface.as_str())], of(port)))
        };
        let help = "1 where packets of the interface meet the data path; 0: it is gone, or cannot be served";
        let attached = by_port(|port| u64::from(port.trouble.is_none()));
        out.gauges("turnpike_interface_attached", help, attached)?;
        let help = "Frames that came in, those left to the kernel included";
        let rows = by_direction(|p| [p.uplink.in_packets, p.downlink.in_packets]);
        out.counters("turnpike_in_packets", help, rows)?;
        let help = "Bytes of the frames that came in";
        let rows = by_direction(|p| [p.uplink.in_bytes, p.downlink.in_bytes]);
        out.counters("turnpike_in_bytes", help, rows)?;
        let help = "Frames forwarded, by the interface they came in on";
        let rows = by_direction(|p| [p.uplink.out_packets, p.downlink.out_packets]);
        out.counters("turnpike_out_packets", help, rows)?;
        let help = "Bytes of the frames forwarded";
        let rows = by_direction(|p| [p.uplink.out_bytes, p.downlink.out_bytes]);
        out.counters("turnpike_out_bytes", help, rows)?;
        let help = "Frames left to the kernel: not ours";
        out.counters("turnpike_passed_packets", help, by_port(|p| p.passed))?;
        let help = "Echo Responses and Error Indications sent";
        out.counters("turnpike_answered_packets", help, by_port(|p| p.answered))?;
        let help = "Packets forwarded by the kernel while their neighbour was resolved";
        out.counters("turnpike_slow_packets", help, by_port(|p| p.slow))?;
        let help = "Frames above their rate that waited to keep to it";
        out.counters("turnpike_shaped_packets", help, by_port(|p| p.later))?;
        let help = "Lost packets; GET /api/v1/drops says what each reason means and asks for";
        let drops = self.snapshot.drops.iter().map(|d| {
            let labels = [
                ("interface", d.interface.as_str()),
                ("direction", &d.direction),
                ("reason", &d.reason),
            ];
            (labels, d.packets)
        });
        out.counters("turnpike_drops", help, drops)
    }

    fn process(&self, out: &mut Out<'_>) -> Result<(), Error> {
        let process = &self.process;
        out.gauge(
            "process_resident_memory_bytes",
            "Resident memory",
            process.resident_bytes,
        )?;
        out.gauge("process_start_time_seconds", "Since 1970", process.start_s)?;
        out.0
            .encode_descriptor("process_cpu_seconds", "CPU time", None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, f64, u64>(&process.cpu_s, None)
    }
}

/// Writes whole families.
struct Out<'e>(DescriptorEncoder<'e>);

impl Out<'_> {
    fn counter(&mut self, name: &str, help: &str, count: u64) -> Result<(), Error> {
        self.0
            .encode_descriptor(name, help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, u64, u64>(&count, None)
    }

    fn counters<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl Iterator<Item = (Labels<'l, N>, u64)>,
    ) -> Result<(), Error> {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, count) in rows {
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// Counters of time.
    fn seconds<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl Iterator<Item = (Labels<'l, N>, f64)>,
    ) -> Result<(), Error> {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in rows {
            ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn gauges<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl Iterator<Item = (Labels<'l, N>, u64)>,
    ) -> Result<(), Error> {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in rows {
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl EncodeGaugeValue) -> Result<(), Error> {
        self.0
            .encode_descriptor(name, help, None, MetricType::Gauge)?
            .encode_gauge(&value)
    }
}

/// Use that this process makes of the machine, and its start in Unix time.
#[derive(Debug)]
struct Process {
    resident_bytes: u64,
    cpu_s: f64,
    start_s: f64,
}

impl Process {
    fn read(started: SystemTime) -> Self {
        Self {
            resident_bytes: resident_bytes(),
            cpu_s: cpu_s(),
            start_s: started
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_secs_f64(),
        }
    }
}

/// CPU time of the process, in seconds.
pub(crate) fn cpu_s() -> f64 {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF);
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    usage.map_or(0.0, |u| seconds(u.user_time()) + seconds(u.system_time()))
}

/// Resident memory, the second field of `/proc/self/statm`, in pages; 0 where there is no `/proc`.
pub(crate) fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|n| n.parse::<u64>().ok())
        .unwrap_or(0);
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE);
    pages
        * page
            .ok()
            .flatten()
            .and_then(|size| u64::try_from(size).ok())
            .unwrap_or(4096)
}
