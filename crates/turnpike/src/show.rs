//! The answers of turnpiked as text.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use report::{
    ApplicationReport, BuffersBody, CapacityReport, DatapathBody, DiskReport, DiskState,
    DropReport, FarReport, Fill, NrfReport, NupfReport, PdrReport, PeerReport, PolicyReport,
    PortReport, QerReport, ReloadReport, SessionDetail, SessionPage, SmfReport, StateReport,
    Status, TableFill,
};
use serde_json::Value;

use crate::cell::{Cell, Plain, grouped};
use crate::table::Table;
use crate::usage::urrs;

pub(crate) fn status(status: &Status) -> String {
    let mut out = format!(
        "turnpiked {}{}, node {}, up {}\n",
        status.version.cell(),
        build(status),
        status.node_id.cell(),
        duration(status.uptime_s),
    );
    out += &format!(
        "sessions {} of {}, SMFs {}, lost packets {}, memory {} KiB{}\n\n",
        status.sessions.used.cell(),
        status.sessions.capacity.cell(),
        status.peers.used.cell(),
        status.drops.cell(),
        grouped(status.memory_bytes / 1024),
        huge_pages(status),
    );
    out += &status.state.as_ref().map_or(String::new(), state);
    out += &status.nrf.as_ref().map_or(String::new(), nrf);
    out += &status.nupf.as_ref().map_or(String::new(), nupf);
    out + &troubles(status) + &ports(&status.ports) + "\n" + &tables(&status.tables)
}

/// Commit and data paths of the build; nothing of a turnpiked that does not tell.
fn build(status: &Status) -> String {
    let commit = status.commit.as_ref();
    let commit = commit.map(|commit| format!("commit {}", commit.cell()));
    let names: Vec<String> = status.datapaths.iter().map(Cell::cell).collect();
    let datapaths = (!names.is_empty()).then(|| format!("data paths {}", names.join(", ")));
    let parts: Vec<String> = commit.into_iter().chain(datapaths).collect();
    match parts.as_slice() {
        [] => String::new(),
        parts => format!(" ({})", parts.join(", ")),
    }
}

/// Troubles that an operator has to see before all else.
fn troubles(status: &Status) -> String {
    let mut out = String::new();
    let last = status
        .config
        .as_ref()
        .and_then(|config| config.last.as_ref());
    if let Some(last) = last.filter(|last| last.went_wrong()) {
        let reasons: Vec<String> = last.reasons.iter().map(Cell::cell).collect();
        out += &format!(
            "! the configuration of before is in effect, as the last reload {}: {}\n",
            match last.outcome.as_str() {
                ReloadReport::FAILED => "failed",
                _ => "was refused",
            },
            reasons.join(", ")
        );
    }
    for port in &status.ports {
        if let Some(trouble) = &port.trouble {
            out += &format!("! interface {}: {trouble}\n", port.interface.cell());
        }
    }
    if status.log.lost > 0 {
        out += &format!(
            "! {} lines of the log were lost: standard error could not be written\n",
            status.log.lost
        );
    }
    if out.is_empty() { out } else { out + "\n" }
}

/// Whether sessions and packets outlive the process, and those that it has found.
fn state(state: &StateReport) -> String {
    let mut out = match state.packets_go_on {
        true => "sessions and packets go on when turnpiked ends",
        false => "sessions go on when turnpiked ends, and packets do not",
    }
    .to_owned();
    if state.taken_over + state.lost > 0 {
        out += &format!(
            "; {} taken over at the start, {} lost, in {} ms",
            state.taken_over.cell(),
            state.lost.cell(),
            state.took_ms.cell(),
        );
    }
    if let Some(disk) = &state.disk {
        out += "\n";
        out += &copy(disk);
    }
    out + "\n\n"
}

/// Whether sessions outlive the host.
fn copy(disk: &DiskReport) -> String {
    let path = disk.path.cell();
    let bytes = disk.bytes.cell();
    match disk.state {
        DiskState::Beginning => format!("their copy in {path} is being begun ({bytes} bytes)"),
        DiskState::Current => {
            let longest = disk.longest_commit_s * 1000.0;
            format!(
                "their copy in {path} outlives the host ({bytes} bytes, longest commit {longest:.1} ms)"
            )
        }
        DiskState::Failed => {
            let why = disk.error.as_ref().map(Cell::cell);
            let why = why.map_or(String::new(), |why| format!(": {why}"));
            format!("! {path} has no copy of them: they end with the host{why}")
        }
    }
}

/// The NRF that knows this UPF, or why none does.
fn nrf(nrf: &NrfReport) -> String {
    let last = nrf.last_error.as_ref().map(Cell::cell);
    let why = last.map_or(String::new(), |last| format!(": {last}"));
    match &nrf.server {
        Some(server) => format!("registered with NRF {}\n\n", server.cell()),
        None => format!("! no NRF knows this UPF{why}\n\n"),
    }
}

/// Consumers of events, and what is not well with them.
fn nupf(nupf: &NupfReport) -> String {
    if let Some(trouble) = &nupf.trouble {
        return format!(
            "! consumers of events are not served: {}\n\n",
            trouble.cell()
        );
    }
    let mut out = format!(
        "events at {}: {} subscriptions, {} notifications taken, {} not, {} subscriptions dropped\n",
        nupf.api_root.cell(),
        nupf.subscriptions.cell(),
        nupf.delivered.cell(),
        nupf.failed.cell(),
        nupf.dropped.cell(),
    );
    if nupf.left_out > 0 {
        out += &format!(
            "! {} UEs are left out of them: nupf.max_ues\n",
            nupf.left_out.cell()
        );
    }
    out + "\n"
}

/// Memory in huge pages: nothing where they are not asked for, and of files where there are none.
fn huge_pages(status: &Status) -> String {
    let pages = &status.huge_pages;
    let heap = pages.bytes.filter(|_| pages.asked_for);
    let heap = heap.map(|octets| format!(", {} KiB of it in huge pages", grouped(octets / 1024)));
    let files = pages.file_bytes.filter(|&octets| octets > 0);
    let files = files.map(|octets| {
        let octets = grouped(octets / 1024);
        format!(", {octets} KiB of the files of sessions in huge pages")
    });
    heap.unwrap_or_default() + &files.unwrap_or_default()
}

fn duration(seconds: u64) -> String {
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {seconds} s"),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

fn ports(ports: &[PortReport]) -> String {
    let mut table = Table::new([
        "INTERFACE",
        "ROLE",
        "MTU",
        "DIRECTION",
        "IN",
        "IN BYTES",
        "OUT",
        "OUT BYTES",
        "TO KERNEL",
        "ANSWERED",
        "SLOW",
    ]);
    for port in ports {
        let directions = [("uplink", port.uplink), ("downlink", port.downlink)];
        for (name, direction) in directions {
            let once = |cell: &dyn Cell| {
                let is_first = name == "uplink";
                Plain(if is_first { cell.cell() } else { String::new() })
            };
            table.row([
                &once(&port.interface),
                &once(&port.role),
                &once(&port.mtu),
                &Plain(name.to_owned()),
                &direction.in_packets,
                &direction.in_bytes,
                &direction.out_packets,
                &direction.out_bytes,
                &once(&port.passed),
                &once(&port.answered),
                &once(&port.slow),
            ]);
        }
    }
    table.text()
}

fn tables(tables: &[TableFill]) -> String {
    let mut table = Table::new(["TABLE", "USED", "CAPACITY", "REFUSED"]);
    for fill in tables {
        table.row([&fill.table, &fill.used, &fill.capacity, &fill.refused]);
    }
    table.text()
}

pub(crate) fn sessions(page: &SessionPage) -> String {
    let mut table = Table::new([
        "SEID",
        "SMF",
        "UE",
        "PDRS",
        "UP",
        "UP BYTES",
        "DOWN",
        "DOWN BYTES",
        "DROPS",
    ]);
    for session in &page.sessions {
        let (uplink, downlink) = (session.uplink, session.downlink);
        table.row([
            &session.seid,
            &session.peer,
            &session.ue,
            &session.pdrs,
            &uplink.packets,
            &uplink.bytes,
            &downlink.packets,
            &downlink.bytes,
            &uplink.drops.saturating_add(downlink.drops),
        ]);
    }
    let mut out = table.text();
    if let Some(next) = &page.next {
        let (shown, total) = (page.sessions.len().cell(), page.total.cell());
        out += &format!("{shown} of {total} sessions; for more: --after {next}, or --limit\n");
    }
    out
}

pub(crate) fn session(session: &SessionDetail) -> String {
    let summary = &session.summary;
    let mut out = format!(
        "session {}, SMF {} (its SEID {})\nUE {}\n\n",
        summary.seid.cell(),
        summary.peer.cell(),
        summary.cp_seid.cell(),
        summary.ue.cell(),
    );
    out += &pdrs(&session.pdrs_detail);
    out += &predefined(&session.pdrs_detail);
    let rules = [
        fars(&session.fars),
        qers(&session.qers),
        urrs(&session.urrs),
    ];
    for table in rules.iter().filter(|table| !table.is_empty()) {
        out.push('\n');
        out += &table.text();
    }
    if !session.bars.is_empty() {
        out += &format!("\nBARs: {}\n", session.bars.cell());
    }
    out
}

fn pdrs(pdrs: &[PdrReport]) -> String {
    let mut table = Table::new([
        "PDR",
        "PRECEDENCE",
        "FROM",
        "MATCH",
        "FAR",
        "QERS",
        "URRS",
        "PACKETS",
        "BYTES",
        "DROPS",
    ]);
    for pdr in pdrs {
        let fields: [(&dyn Cell, &str); 4] = [
            (&pdr.f_teid, "F-TEID "),
            (&pdr.ue, "UE "),
            (&pdr.qfis, "QFI "),
            (&pdr.network_instance, ""),
        ];
        let fields = fields.map(|(field, name)| (field.cell(), name)).into_iter();
        let present = fields.filter(|(value, _)| value != "-");
        let mut conditions: Vec<String> = present
            .map(|(value, name)| format!("{name}{value}"))
            .collect();
        conditions.extend(pdr.sdf_filters.iter().cloned());
        table.row([
            &pdr.id,
            &pdr.precedence,
            &pdr.source_interface,
            &Plain(conditions.join("; ")),
            &pdr.far,
            &pdr.qers,
            &pdr.urrs,
            &pdr.traffic.packets,
            &pdr.traffic.bytes,
            &pdr.traffic.drops,
        ]);
    }
    table.text()
}

/// Predefined rules by the PDRs that activate them.
fn predefined(pdrs: &[PdrReport]) -> String {
    let mut table = Table::new([
        "PDR",
        "PREDEFINED RULE",
        "MATCH",
        "ACTION",
        "NETWORK INSTANCE",
        "GATE UP",
        "GATE DOWN",
        "MBR UP bit/s",
        "MBR DOWN bit/s",
        "QFI",
        "PACKETS",
        "BYTES",
        "DROPS",
    ]);
    for pdr in pdrs {
        for rule in &pdr.predefined_rules {
            let qer = rule.qer.clone().unwrap_or_default();
            table.row([
                &pdr.id,
                &rule.name,
                &Plain(rule.flows.join("; ")),
                &rule.action,
                &rule.network_instance,
                &qer.gate_uplink,
                &qer.gate_downlink,
                &qer.mbr_uplink_bps,
                &qer.mbr_downlink_bps,
                &qer.qfi,
                &rule.traffic.packets,
                &rule.traffic.bytes,
                &rule.traffic.drops,
            ]);
        }
    }
    if table.is_empty() {
        return String::new();
    }
    format!("\n{}", table.text())
}

fn fars(fars: &[FarReport]) -> Table {
    let mut table = Table::new([
        "FAR",
        "ACTION",
        "TO",
        "NETWORK INSTANCE",
        "POLICY",
        "TUNNEL",
    ]);
    for far in fars {
        table.row([
            &far.id,
            &far.action,
            &far.destination,
            &far.network_instance,
            &far.forwarding_policy,
            &far.tunnel,
        ]);
    }
    table
}

fn qers(qers: &[QerReport]) -> Table {
    let mut table = Table::new([
        "QER",
        "GATE UP",
        "GATE DOWN",
        "MBR UP bit/s",
        "MBR DOWN bit/s",
        "GBR UP bit/s",
        "GBR DOWN bit/s",
        "PACKETS UP",
        "PACKETS DOWN",
        "QFI",
        "RQI",
        "PPI",
    ]);
    for qer in qers {
        table.row([
            &qer.id,
            &qer.gate_uplink,
            &qer.gate_downlink,
            &qer.mbr_uplink_bps,
            &qer.mbr_downlink_bps,
            &qer.gbr_uplink_bps,
            &qer.gbr_downlink_bps,
            &qer.packets_uplink,
            &qer.packets_downlink,
            &qer.qfi,
            &qer.rqi.then_some(true),
            &qer.ppi,
        ]);
    }
    table
}

pub(crate) fn drops(drops: &Vec<DropReport>) -> String {
    let mut table = Table::new([
        "PACKETS",
        "INTERFACE",
        "DIRECTION",
        "REASON",
        "WHAT HAPPENED",
        "WHAT TO DO",
    ]);
    for drop in drops {
        table.row([
            &drop.packets,
            &drop.interface,
            &drop.direction,
            &drop.reason,
            &drop.meaning,
            &drop.advice,
        ]);
    }
    text_or(&table, "no packet was lost\n")
}

fn text_or(table: &Table, none: &str) -> String {
    if table.is_empty() {
        none.to_owned()
    } else {
        table.text()
    }
}

pub(crate) fn datapath(body: &DatapathBody) -> String {
    let datapath = &body.datapath;
    let mut out = format!(
        "{}, {}, started in {} ms\nbuild: {}, with {}\nreplaced {} times{}\n\n",
        datapath.kind.cell(),
        match (datapath.workers, datapath.workers_replaced.unwrap_or(0)) {
            (Some(workers), 0) => format!("{workers} workers"),
            (Some(workers), replaced) => {
                format!("{workers} workers, replaced {replaced} times as they had ended or hung")
            }
            (None, _) => format!("{} mode", datapath.mode.cell()),
        },
        datapath.start_ms.cell(),
        datapath.build.cell(),
        datapath.features.cell(),
        datapath.replacements.cell(),
        last_replacement(body),
    );
    let mut programs = Table::new(["INTERFACE", "INSTRUCTIONS", "VERIFIED", "LOADED IN MS"]);
    for program in &datapath.programs {
        programs.row([
            &program.interface,
            &program.instructions,
            &program.verified_instructions,
            &program.load_ms,
        ]);
    }
    if !programs.is_empty() {
        out += &programs.text();
        out += "\n";
    }
    out + &ports(&body.ports) + "\n" + &tables(&body.tables)
}

fn last_replacement(body: &DatapathBody) -> String {
    let Some(last) = body.datapath.last_replacement else {
        return String::new();
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let ago = now.map_or(0.0, |now| (now.as_secs_f64() - last.at).max(0.0));
    format!(", last {ago:.0} s ago in {} us", last.took_us.cell())
}

pub(crate) fn peers(peers: &Vec<PeerReport>) -> String {
    let mut table = Table::new(["SMF", "ADDRESS", "STATE", "SESSIONS"]);
    for peer in peers {
        table.row([&peer.node_id, &peer.address, &peer.state, &peer.sessions]);
    }
    text_or(&table, "no SMF\n")
}

pub(crate) fn smfs(smfs: &Vec<SmfReport>) -> String {
    let mut table = Table::new([
        "SMF", "STATE", "SILENT S", "OF", "HOLDS", "SURE OF", "WHOLE",
    ]);
    for smf in smfs {
        let mut who = match &smf.node_id {
            Some(node_id) => [node_id.cell(), smf.state.cell(), smf.silent_s.cell()],
            None => ["emergency".to_owned(), String::new(), String::new()],
        };
        for part in &smf.parts {
            let of = match &part.capacity {
                Some(capacity) => format!("guaranteed bit/s, {capacity}"),
                None => part.of.cell(),
            };
            let [name, state, silent] = std::mem::take(&mut who).map(Plain);
            table.row([
                &name,
                &state,
                &silent,
                &of,
                &part.held,
                &part.share,
                &part.whole,
            ]);
        }
    }
    text_or(&table, "no SMF\n")
}

pub(crate) fn pfds(applications: &Vec<ApplicationReport>) -> String {
    let mut table = Table::new(["SMF", "APPLICATION", "PFD", "KIND", "TEXT"]);
    for application in applications {
        let smfs = Plain(application.smfs.join(", "));
        for property in &application.properties {
            table.row([
                &smfs,
                &application.application_id,
                &property.pfd,
                &property.kind,
                &property.text,
            ]);
        }
    }
    text_or(&table, "no PFDs\n")
}

pub(crate) fn capacities(capacities: &Vec<CapacityReport>) -> String {
    let mut table = Table::new([
        "CAPACITY",
        "BIT/S",
        "GUARANTEED",
        "AT MOST",
        "LEAST SHARE",
        "BYTES",
        "DROPS",
    ]);
    for capacity in capacities {
        table.row([
            &capacity.name,
            &capacity.bps,
            &capacity.guaranteed_bps,
            &capacity.guaranteed_bps_limit,
            &capacity.share_bps,
            &capacity.bytes,
            &capacity.drops,
        ]);
    }
    text_or(&table, "no capacities are configured\n")
}

pub(crate) fn policies(policies: &Vec<PolicyReport>) -> String {
    let mut table = Table::new([
        "POLICY",
        "WAY",
        "FALLBACK",
        "TOWARDS ACCESS",
        "NETWORK INSTANCE",
        "IPV4",
        "IPV6",
    ]);
    for policy in policies {
        for of in &policy.network_instances {
            table.row([
                &policy.identifier,
                &policy.way,
                &policy.fallback,
                &policy.towards_access,
                &of.network_instance,
                &of.ipv4,
                &of.ipv6,
            ]);
        }
    }
    text_or(&table, "no forwarding policies are configured\n")
}

pub(crate) fn buffers(body: &BuffersBody) -> String {
    let totals = &body.totals;
    let fill = |fill: Fill| format!("{} of {}", fill.used.cell(), fill.capacity.cell());
    let mut out = format!(
        "Waiting: {} packets, {} sessions, {} bytes\n\
         So far: {} packets, {} sent, {} lost\n",
        fill(totals.packets),
        fill(totals.sessions),
        fill(totals.bytes),
        totals.taken.cell(),
        totals.released.cell(),
        totals.lost.cell(),
    );
    let mut table = Table::new(["SEID", "PDRS", "PACKETS", "BYTES", "AGE MS"]);
    for session in &body.waiting {
        table.row([
            &session.seid,
            &session.pdrs,
            &session.packets,
            &session.bytes,
            &session.age_ms,
        ]);
    }
    if !table.is_empty() {
        out += "\n";
        out += &table.text();
    }
    out
}

/// One line per key, as the configuration checker names them.
pub(crate) fn config(answer: &Value) -> String {
    let mut out = String::new();
    lines("", answer, &mut out);
    out
}

fn lines(path: &str, value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            // In the order of the alphabet, whatever serde_json keeps.
            for (key, member) in members.iter().collect::<BTreeMap<_, _>>() {
                let dot = if path.is_empty() { "" } else { "." };
                lines(&format!("{path}{dot}{key}"), member, out);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (i, item) in items.iter().enumerate() {
                lines(&format!("{path}[{i}]"), item, out);
            }
        }
        _ => *out += &format!("{path} = {value}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    fn report<T: for<'de> Deserialize<'de>>(answer: Value) -> T {
        T::deserialize(&answer).unwrap()
    }

    #[test]
    fn a_policy_has_a_line_for_each_network_instance() {
        let of = |name: &str, ipv4: &str| json!({"network_instance": name, "ipv4": ipv4, "ipv6": "no route"});
        let answer = json!([{
            "identifier": "edge", "way": "10.6.0.9", "fallback": "drop", "towards_access": "tunnel",
            "network_instances": [of("internet", "in use"), of("ims", "unreachable")],
        }]);
        let text = policies(&report(answer));
        assert_eq!(text.lines().count(), 3, "{text}");
        for word in [
            "edge",
            "10.6.0.9",
            "drop",
            "tunnel",
            "internet",
            "in use",
            "unreachable",
            "no route",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert_eq!(
            policies(&Vec::new()),
            "no forwarding policies are configured\n"
        );
    }

    #[test]
    fn status_says_what_outlives_turnpiked() {
        let of = |state: Value| status(&report(json!({ "state": state })));
        let text = of(json!({"packets_go_on": true, "taken_over": 7, "lost": 1, "took_ms": 140}));
        let line = "sessions and packets go on when turnpiked ends; 7 taken over at the start, 1 lost, in 140 ms\n";
        assert!(text.contains(line), "{text}");
        let text = of(json!({}));
        assert!(
            text.contains("sessions go on when turnpiked ends, and packets do not\n"),
            "{text}"
        );
        assert!(!of(Value::Null).contains("go on"));
    }

    #[test]
    fn a_session_shows_its_rules() {
        let answer = json!({
            "seid": "00000000000000a1", "cp_seid": "01",
            "peer": "smf1", "ue": ["10.60.0.1"],
            "pdrs_detail": [{
                "id": 1, "precedence": 255, "source_interface": "access",
                "f_teid": "00000101@10.3.0.1", "ue": ["10.60.0.1"], "far": 1, "qers": [1, 2],
                "urrs": [], "sdf_filters": ["permit out ip from any to assigned"],
                "traffic": {"packets": 12345, "bytes": 1_000_000, "drops": 0},
                "predefined_rules": [{"name": "no-mail", "action": "DROP",
                    "flows": ["permit out 6 from any 25 to any"],
                    "traffic": {"packets": 0, "bytes": 0, "drops": 4321}}],
            }],
            "fars": [{"id": 1, "action": "FORW", "destination": "core"}],
            "qers": [{"id": 1, "gate_uplink": "open", "gate_downlink": "open",
                "mbr_uplink_bps": 1_000_000, "packets_uplink": "10 in 360 s", "qfi": 9, "ppi": 5}],
            "urrs": [{"id": 7, "triggers": ["VOLTH"], "exhausted": true}], "bars": [],
        });
        let shown = session(&report(answer));
        for expected in [
            "session 00000000000000a1, SMF smf1 (its SEID 01)",
            "F-TEID 00000101@10.3.0.1; UE 10.60.0.1; permit out ip from any to assigned",
            "12 345",
            "FORW",
            "exhausted",
            "1 000 000",
            "10 in 360 s",
            "no-mail",
            "permit out 6 from any 25 to any",
            "4 321",
        ] {
            assert!(shown.contains(expected), "{expected}\n{shown}");
        }
        assert!(!shown.contains("BARs"));
    }

    #[test]
    fn config_lines_are_named_as_the_checker_names_them() {
        let answer = json!({"n4": {"smf": ["a"]}, "interface": [{"name": "n3"}, {"name": "n6"}]});
        let shown = config(&answer);
        assert_eq!(
            shown,
            "interface[0].name = \"n3\"\ninterface[1].name = \"n6\"\nn4.smf = [\"a\"]\n"
        );
    }

    #[test]
    fn nothing_lost_is_said_so() {
        assert_eq!(drops(&Vec::new()), "no packet was lost\n");
        let drop = json!([{"packets": 3, "interface": "n3", "direction": "uplink",
            "reason": "rate", "meaning": "above the MBR", "advice": "compare"}]);
        assert!(
            drops(&report(drop))
                .ends_with("      3  n3         uplink     rate    above the MBR  compare\n")
        );
    }

    #[test]
    fn what_waits_is_shown_by_session() {
        let fill = |used| json!({"used": used, "capacity": 10_000});
        let answer = json!({
            "packets": fill(3), "sessions": fill(1), "bytes": fill(640),
            "taken": 5, "released": 1, "lost": 1,
            "waiting": [{"seid": "0a", "pdrs": [2, 4], "packets": 3, "bytes": 300, "age_ms": 1500}],
        });
        let text = buffers(&report(answer));
        assert!(text.starts_with("Waiting: 3 of 10 000 packets, 1 of 10 000 sessions, 640 of"));
        assert!(text.contains("So far: 5 packets, 1 sent, 1 lost"));
        assert!(text.contains("2, 4") && text.contains("1 500"), "{text}");
    }

    #[test]
    fn what_an_smf_holds_is_shown_beside_its_share() {
        let part = |of, held| json!({"of": of, "held": held, "share": 5000, "whole": 80_000});
        let guaranteed =
            json!({"of": "guaranteed_bps", "capacity": "n6", "held": 7, "share": 0, "whole": 9});
        let text = smfs(&report(json!([
            {"node_id": "smf1", "state": "up", "silent_s": 3,
             "parts": [part("sessions", 12), part("rules", 34), guaranteed]},
            {"parts": [part("sessions", 1)]},
        ])));
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), 5, "{text}");
        assert!(
            rows[1].starts_with("smf1") && rows[1].contains("sessions"),
            "{text}"
        );
        assert!(
            rows[2].contains("rules") && !rows[2].contains("smf1"),
            "{text}"
        );
        assert!(rows[3].contains("guaranteed bit/s, n6"), "{text}");
        assert!(rows[4].starts_with("emergency"), "{text}");
    }

    #[test]
    fn applications_say_whose_they_are() {
        let one = |smfs: &[&str], words| {
            let properties = [json!({"pfd": 0, "kind": "flow", "text": words})];
            json!({"application_id": "web", "smfs": smfs, "properties": properties})
        };
        let text = pfds(&report(json!([
            one(&["smf1"], "first"),
            one(&["smf2", "smf3"], "second")
        ])));
        let rows: Vec<&str> = text.lines().collect();
        assert!(
            rows[1].starts_with("smf1 ") && rows[1].contains("first"),
            "{text}"
        );
        assert!(rows[2].starts_with("smf2, smf3 "), "{text}");
    }

    #[test]
    fn more_sessions_are_announced() {
        let answer =
            json!({"total": 5, "next": "02", "sessions": [{"seid": "01"}, {"seid": "02"}]});
        assert!(sessions(&report(answer)).contains("2 of 5 sessions; for more: --after 02"));
    }
}
