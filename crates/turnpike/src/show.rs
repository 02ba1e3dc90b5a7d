//! The answers of turnpiked as text. A field that an older or newer turnpiked does not send shows
//! as `-`.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::fields::{items, text};
use crate::table::{Table, grouped};
use crate::usage::urrs;

pub(crate) fn status(answer: &Value) -> String {
    let mut out = format!(
        "turnpiked {}, node {}, up {}\n",
        text(answer, "/version"),
        text(answer, "/node_id"),
        duration(
            answer
                .pointer("/uptime_s")
                .and_then(Value::as_u64)
                .unwrap_or(0)
        ),
    );
    out += &format!(
        "sessions {} of {}, SMFs {}, lost packets {}, memory {} KiB{}\n\n",
        text(answer, "/sessions/used"),
        text(answer, "/sessions/capacity"),
        text(answer, "/peers/used"),
        text(answer, "/drops"),
        grouped(
            answer
                .pointer("/memory_bytes")
                .and_then(Value::as_u64)
                .unwrap_or(0)
                / 1024
        ),
        huge_pages(answer),
    );
    out + &troubles(answer) + &ports(answer) + "\n" + &tables(answer)
}

/// Troubles that an operator has to see before all else.
fn troubles(answer: &Value) -> String {
    let mut out = String::new();
    for port in items(answer, "/ports") {
        if let Some(trouble) = port.pointer("/trouble").and_then(Value::as_str) {
            out += &format!("! interface {}: {trouble}\n", text(port, "/interface"));
        }
    }
    let lost = answer.pointer("/log/lost").and_then(Value::as_u64);
    if let Some(lost) = lost.filter(|&lost| lost > 0) {
        out +=
            &format!("! {lost} lines of the log were lost: standard error could not be written\n");
    }
    if out.is_empty() { out } else { out + "\n" }
}

/// What of the memory lies in huge pages, and nothing where they are not asked for.
fn huge_pages(answer: &Value) -> String {
    let asked = answer.pointer("/huge_pages/asked_for") == Some(&Value::Bool(true));
    let bytes = answer.pointer("/huge_pages/bytes").and_then(Value::as_u64);
    match bytes {
        Some(bytes) if asked => format!(", {} KiB of it in huge pages", grouped(bytes / 1024)),
        _ => String::new(),
    }
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

fn ports(answer: &Value) -> String {
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
    for port in items(answer, "/ports") {
        for (i, direction) in ["uplink", "downlink"].into_iter().enumerate() {
            let once = |field: &str| {
                if i == 0 {
                    text(port, field)
                } else {
                    String::new()
                }
            };
            table.row([
                once("/interface"),
                once("/role"),
                once("/mtu"),
                direction.to_owned(),
                text(port, &format!("/{direction}/in_packets")),
                text(port, &format!("/{direction}/in_bytes")),
                text(port, &format!("/{direction}/out_packets")),
                text(port, &format!("/{direction}/out_bytes")),
                once("/passed"),
                once("/answered"),
                once("/slow"),
            ]);
        }
    }
    table.text()
}

fn tables(answer: &Value) -> String {
    let mut table = Table::new(["TABLE", "USED", "CAPACITY", "REFUSED"]);
    for fill in items(answer, "/tables") {
        table.row([
            text(fill, "/table"),
            text(fill, "/used"),
            text(fill, "/capacity"),
            text(fill, "/refused"),
        ]);
    }
    table.text()
}

pub(crate) fn sessions(answer: &Value) -> String {
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
    for session in items(answer, "/sessions") {
        let drops = ["/uplink/drops", "/downlink/drops"]
            .iter()
            .filter_map(|field| session.pointer(field)?.as_u64())
            .sum();
        table.row([
            text(session, "/seid"),
            text(session, "/peer"),
            text(session, "/ue"),
            text(session, "/pdrs"),
            text(session, "/uplink/packets"),
            text(session, "/uplink/bytes"),
            text(session, "/downlink/packets"),
            text(session, "/downlink/bytes"),
            grouped(drops),
        ]);
    }
    let shown = items(answer, "/sessions").count() as u64;
    let mut out = table.text();
    if let Some(next) = answer.pointer("/next").and_then(Value::as_str) {
        let (shown, total) = (grouped(shown), text(answer, "/total"));
        out += &format!("{shown} of {total} sessions; for more: --after {next}, or --limit\n");
    }
    out
}

pub(crate) fn session(answer: &Value) -> String {
    let mut out = format!(
        "session {}, SMF {} (its SEID {})\nUE {}\n\n",
        text(answer, "/seid"),
        text(answer, "/peer"),
        text(answer, "/cp_seid"),
        text(answer, "/ue"),
    );
    out += &pdrs(answer);
    out += &predefined(answer);
    let mut fars = Table::new([
        "FAR",
        "ACTION",
        "TO",
        "NETWORK INSTANCE",
        "POLICY",
        "TUNNEL",
    ]);
    for far in items(answer, "/fars") {
        fars.row(
            [
                "/id",
                "/action",
                "/destination",
                "/network_instance",
                "/forwarding_policy",
                "/tunnel",
            ]
            .map(|field| text(far, field)),
        );
    }
    let mut qers = Table::new([
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
    for qer in items(answer, "/qers") {
        qers.row(
            [
                "/id",
                "/gate_uplink",
                "/gate_downlink",
                "/mbr_uplink_bps",
                "/mbr_downlink_bps",
                "/gbr_uplink_bps",
                "/gbr_downlink_bps",
                "/packets_uplink",
                "/packets_downlink",
                "/qfi",
                "/rqi",
                "/ppi",
            ]
            .map(|field| text(qer, field)),
        );
    }
    for table in [fars, qers, urrs(answer)]
        .iter()
        .filter(|table| !table.is_empty())
    {
        out.push('\n');
        out += &table.text();
    }
    if text(answer, "/bars") != "-" {
        out += &format!("\nBARs: {}\n", text(answer, "/bars"));
    }
    out
}

fn pdrs(answer: &Value) -> String {
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
    for pdr in items(answer, "/pdrs_detail") {
        let mut conditions = Vec::new();
        let fields = [("/f_teid", "F-TEID "), ("/ue", "UE "), ("/qfis", "QFI ")];
        for (field, name) in fields.into_iter().chain([("/network_instance", "")]) {
            let value = text(pdr, field);
            if value != "-" {
                conditions.push(format!("{name}{value}"));
            }
        }
        conditions.extend(items(pdr, "/sdf_filters").map(|filter| text(filter, "")));
        table.row([
            text(pdr, "/id"),
            text(pdr, "/precedence"),
            text(pdr, "/source_interface"),
            conditions.join("; "),
            text(pdr, "/far"),
            text(pdr, "/qers"),
            text(pdr, "/urrs"),
            text(pdr, "/traffic/packets"),
            text(pdr, "/traffic/bytes"),
            text(pdr, "/traffic/drops"),
        ]);
    }
    table.text()
}

/// Predefined rules by the PDRs that activate them.
fn predefined(answer: &Value) -> String {
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
    for pdr in items(answer, "/pdrs_detail") {
        for rule in items(pdr, "/predefined_rules") {
            let flows: Vec<String> = items(rule, "/flows").map(|flow| text(flow, "")).collect();
            let fields = [
                "/id",
                "/name",
                "/flows",
                "/action",
                "/network_instance",
                "/qer/gate_uplink",
                "/qer/gate_downlink",
                "/qer/mbr_uplink_bps",
                "/qer/mbr_downlink_bps",
                "/qer/qfi",
                "/traffic/packets",
                "/traffic/bytes",
                "/traffic/drops",
            ];
            let cells = fields.map(|field| match field {
                "/id" => text(pdr, field),
                "/flows" => flows.join("; "),
                _ => text(rule, field),
            });
            table.row(cells);
        }
    }
    if table.is_empty() {
        return String::new();
    }
    format!("\n{}", table.text())
}

pub(crate) fn drops(answer: &Value) -> String {
    let mut table = Table::new([
        "PACKETS",
        "INTERFACE",
        "DIRECTION",
        "REASON",
        "WHAT HAPPENED",
        "WHAT TO DO",
    ]);
    for drop in items(answer, "") {
        table.row(
            [
                "/packets",
                "/interface",
                "/direction",
                "/reason",
                "/meaning",
                "/advice",
            ]
            .map(|field| text(drop, field)),
        );
    }
    if table.is_empty() {
        "no packet was lost\n".to_owned()
    } else {
        table.text()
    }
}

pub(crate) fn datapath(answer: &Value) -> String {
    let mut out = format!(
        "{}, {}, started in {} ms\nbuild: {}, with {}\nreplaced {} times{}\n\n",
        text(answer, "/kind"),
        match answer.get("workers") {
            Some(workers) => format!("{workers} workers"),
            None => format!("{} mode", text(answer, "/mode")),
        },
        text(answer, "/start_ms"),
        text(answer, "/build"),
        text(answer, "/features"),
        text(answer, "/replacements"),
        last_replacement(answer),
    );
    if items(answer, "/programs").next().is_none() {
        out += &ports(answer);
        return out + "\n" + &tables(answer);
    }
    let mut programs = Table::new(["INTERFACE", "INSTRUCTIONS", "VERIFIED", "LOADED IN MS"]);
    for program in items(answer, "/programs") {
        let fields = [
            "/interface",
            "/instructions",
            "/verified_instructions",
            "/load_ms",
        ];
        programs.row(fields.map(|field| text(program, field)));
    }
    out += &programs.text();
    out += "\n";
    out += &ports(answer);
    out + "\n" + &tables(answer)
}

fn last_replacement(answer: &Value) -> String {
    let Some(at) = answer
        .pointer("/last_replacement/at")
        .and_then(Value::as_f64)
    else {
        return String::new();
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let ago = now.map_or(0.0, |now| (now.as_secs_f64() - at).max(0.0));
    let took = text(answer, "/last_replacement/took_us");
    format!(", last {ago:.0} s ago in {took} us")
}

pub(crate) fn peers(answer: &Value) -> String {
    let mut table = Table::new(["SMF", "ADDRESS", "STATE", "SESSIONS"]);
    for peer in items(answer, "") {
        table.row(["/node_id", "/address", "/state", "/sessions"].map(|field| text(peer, field)));
    }
    if table.is_empty() {
        "no SMF\n".to_owned()
    } else {
        table.text()
    }
}

pub(crate) fn smfs(answer: &Value) -> String {
    let mut table = Table::new([
        "SMF", "STATE", "SILENT S", "OF", "HOLDS", "SURE OF", "WHOLE",
    ]);
    for smf in items(answer, "") {
        let mut who = match smf.get("node_id") {
            Some(_) => ["/node_id", "/state", "/silent_s"].map(|field| text(smf, field)),
            None => ["emergency".to_owned(), String::new(), String::new()],
        };
        for part in items(smf, "/parts") {
            let of = match part.get("capacity") {
                Some(_) => format!("guaranteed bit/s, {}", text(part, "/capacity")),
                None => text(part, "/of"),
            };
            let [held, share, whole] = ["/held", "/share", "/whole"].map(|field| text(part, field));
            let [name, state, silent] = std::mem::take(&mut who);
            table.row([name, state, silent, of, held, share, whole]);
        }
    }
    if table.is_empty() {
        "no SMF\n".to_owned()
    } else {
        table.text()
    }
}

pub(crate) fn pfds(answer: &Value) -> String {
    let mut table = Table::new(["SMF", "APPLICATION", "PFD", "KIND", "TEXT"]);
    for application in items(answer, "") {
        let name = text(application, "/application_id");
        let smfs = items(application, "/smfs").filter_map(Value::as_str);
        let smfs = smfs.collect::<Vec<_>>().join(", ");
        for property in items(application, "/properties") {
            let [pfd, kind, words] = ["/pfd", "/kind", "/text"].map(|field| text(property, field));
            table.row([smfs.clone(), name.clone(), pfd, kind, words]);
        }
    }
    if table.is_empty() {
        "no PFDs\n".to_owned()
    } else {
        table.text()
    }
}

pub(crate) fn capacities(answer: &Value) -> String {
    let mut table = Table::new([
        "CAPACITY",
        "BIT/S",
        "GUARANTEED",
        "AT MOST",
        "LEAST SHARE",
        "BYTES",
        "DROPS",
    ]);
    for capacity in items(answer, "") {
        let fields = [
            "/name",
            "/bps",
            "/guaranteed_bps",
            "/guaranteed_bps_limit",
            "/share_bps",
            "/bytes",
            "/drops",
        ];
        table.row(fields.map(|field| text(capacity, field)));
    }
    if table.is_empty() {
        "no capacities are configured\n".to_owned()
    } else {
        table.text()
    }
}

pub(crate) fn policies(answer: &Value) -> String {
    let mut table = Table::new([
        "POLICY",
        "WAY",
        "FALLBACK",
        "TOWARDS ACCESS",
        "NETWORK INSTANCE",
        "IPV4",
        "IPV6",
    ]);
    for policy in items(answer, "") {
        for of in items(policy, "/network_instances") {
            table.row([
                text(policy, "/identifier"),
                text(policy, "/way"),
                text(policy, "/fallback"),
                text(policy, "/towards_access"),
                text(of, "/network_instance"),
                text(of, "/ipv4"),
                text(of, "/ipv6"),
            ]);
        }
    }
    if table.is_empty() {
        "no forwarding policies are configured\n".to_owned()
    } else {
        table.text()
    }
}

pub(crate) fn buffers(answer: &Value) -> String {
    let fill = |what: &str| {
        let [used, capacity] =
            ["used", "capacity"].map(|end| text(answer, &format!("/{what}/{end}")));
        format!("{used} of {capacity}")
    };
    let [packets, sessions, bytes] = ["packets", "sessions", "bytes"].map(fill);
    let [taken, released, lost] = ["/taken", "/released", "/lost"].map(|field| text(answer, field));
    let mut out = format!(
        "Waiting: {packets} packets, {sessions} sessions, {bytes} bytes\n\
         So far: {taken} packets, {released} sent, {lost} lost\n"
    );
    let mut table = Table::new(["SEID", "PDRS", "PACKETS", "BYTES", "AGE MS"]);
    for session in items(answer, "/waiting") {
        let fields = ["/seid", "/pdrs", "/packets", "/bytes", "/age_ms"];
        table.row(fields.map(|field| text(session, field)));
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
    use serde_json::json;

    #[test]
    fn a_policy_has_a_line_for_each_network_instance() {
        let of = |name: &str, ipv4: &str| json!({"network_instance": name, "ipv4": ipv4, "ipv6": "no route"});
        let answer = json!([{
            "identifier": "edge", "way": "10.6.0.9", "fallback": "drop", "towards_access": "tunnel",
            "network_instances": [of("internet", "in use"), of("ims", "unreachable")],
        }]);
        let text = policies(&answer);
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
            policies(&json!([])),
            "no forwarding policies are configured\n"
        );
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
        let shown = session(&answer);
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
        assert_eq!(drops(&json!([])), "no packet was lost\n");
        let drop = json!([{"packets": 3, "interface": "n3", "direction": "uplink",
            "reason": "rate", "meaning": "above the MBR", "advice": "compare"}]);
        assert!(
            drops(&drop)
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
        let text = buffers(&answer);
        assert!(text.starts_with("Waiting: 3 of 10 000 packets, 1 of 10 000 sessions, 640 of"));
        assert!(text.contains("So far: 5 packets, 1 sent, 1 lost"));
        assert!(text.contains("2, 4") && text.contains("1 500"), "{text}");
    }

    #[test]
    fn what_an_smf_holds_is_shown_beside_its_share() {
        let part = |of, held| json!({"of": of, "held": held, "share": 5000, "whole": 80_000});
        let guaranteed =
            json!({"of": "guaranteed_bps", "capacity": "n6", "held": 7, "share": 0, "whole": 9});
        let text = smfs(&json!([
            {"node_id": "smf1", "state": "up", "silent_s": 3,
             "parts": [part("sessions", 12), part("rules", 34), guaranteed]},
            {"parts": [part("sessions", 1)]},
        ]));
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
        let text = pfds(&json!([
            one(&["smf1"], "first"),
            one(&["smf2", "smf3"], "second")
        ]));
        let rows: Vec<&str> = text.lines().collect();
        assert!(
            rows[1].starts_with("smf1 ") && rows[1].contains("first"),
            "{text}"
        );
        assert!(rows[2].starts_with("smf2, smf3 "), "{text}");
    }

    #[test]
    fn an_empty_answer_does_no_harm() {
        for show in [
            status, sessions, session, drops, datapath, peers, smfs, pfds, buffers, config,
        ] {
            show(&Value::Null);
            show(&json!({}));
            show(&json!([]));
        }
    }

    #[test]
    fn more_sessions_are_announced() {
        let answer =
            json!({"total": 5, "next": "02", "sessions": [{"seid": "01"}, {"seid": "02"}]});
        assert!(sessions(&answer).contains("2 of 5 sessions; for more: --after 02"));
    }
}
