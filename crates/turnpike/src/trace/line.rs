//! A packet in one line.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::Value;

/// `12:34:56.123456  uplink    n3  forwarded  PDR 1, FAR 1 (FORW), QER 1  98 B  10.60.0.1 > 10.6.0.9 ICMP`
pub(super) fn packet(value: &Value) -> String {
    let word = |field: &str| value[field].as_str().unwrap_or("-").to_owned();
    let outcome = match value["reason"].as_str() {
        Some(reason) => format!("{}: {reason}", word("outcome")),
        None => word("outcome"),
    };
    let meaning = value["meaning"]
        .as_str()
        .map(|meaning| format!("  ({meaning})"));
    format!(
        "{}  {:<8}  {:<6}  {:<22}  {}  {} B  {}{}",
        clock(&word("time")),
        word("direction"),
        word("interface"),
        outcome,
        rule(value),
        value["length"],
        user(value),
        meaning.unwrap_or_default(),
    )
}

/// What is told beside packets.
pub(super) fn about(value: &Value) -> String {
    let list = |field: &str| {
        let items = value[field].as_array().into_iter().flatten();
        let items: Vec<_> = items.filter_map(Value::as_str).collect();
        if items.is_empty() {
            "-".to_owned()
        } else {
            items.join(", ")
        }
    };
    match value["event"].as_str() {
        Some("following") => {
            let session = match value["session"].as_str() {
                Some(seid) => format!("session {seid}"),
                None => "no session yet".to_owned(),
            };
            let left_out = value["left_out"].as_u64().filter(|&n| n > 0);
            let left_out = left_out.map_or(String::new(), |n| format!("; no room for {n} more"));
            format!(
                "following {session}: TEID {}, UE {}{left_out}",
                list("teids"),
                list("ue")
            )
        }
        Some("lost") => format!("{} packets came too fast to be shown", value["packets"]),
        Some("ended") => format!("ended: {}", value["why"].as_str().unwrap_or("-")),
        _ => value.to_string(),
    }
}

/// `PDR 1, FAR 1 (FORW), QER 1, 2, QFI 9`; what is not known is left out.
pub(super) fn rule(value: &Value) -> String {
    let mut parts = Vec::new();
    match value["pdr"].as_u64() {
        Some(pdr) => parts.push(format!("PDR {pdr}")),
        None => parts.push("no PDR".to_owned()),
    }
    if let Some(name) = value["predefined"].as_str() {
        parts.push(format!("predefined rule {name}"));
    }
    if let (None, Some(_), Some(action)) = (
        value["far"].as_u64(),
        value["predefined"].as_str(),
        value["action"].as_str(),
    ) {
        parts.push(action.to_owned());
    }
    if let Some(far) = value["far"].as_u64() {
        parts.push(format!(
            "FAR {far} ({})",
            value["action"].as_str().unwrap_or("-")
        ));
    }
    let qers = value["qers"].as_array().into_iter().flatten();
    let qers: Vec<_> = qers.map(Value::to_string).collect();
    if !qers.is_empty() {
        parts.push(format!("QER {}", qers.join("+")));
    }
    if let Some(teid) = value["teid"].as_str() {
        parts.push(format!("TEID {teid}"));
    }
    if let Some(qfi) = value["qfi"].as_u64() {
        parts.push(format!("QFI {qfi}"));
    }
    parts.join(", ")
}

/// Time of day, UTC, of seconds since 1970.
fn clock(time: &str) -> String {
    let (seconds, fraction) = time.split_once('.').unwrap_or((time, ""));
    let Ok(seconds) = seconds.parse::<u64>() else {
        return time.to_owned();
    };
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    let micros = fraction.get(..6).unwrap_or("000000");
    format!("{hours:02}:{minutes:02}:{:02}.{micros}", seconds % 60)
}

/// The octets of a packet's frame.
pub(super) fn frame(value: &Value) -> Vec<u8> {
    let text = value["frame"].as_str().unwrap_or_default().as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let byte = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    text.chunks_exact(2).map_while(byte).collect()
}

/// `10.60.0.1:1000 > 10.6.0.9:53 UDP`
fn user(value: &Value) -> String {
    let offset = value["user_offset"].as_u64();
    let frame = frame(value);
    let packet = offset.and_then(|offset| frame.get(usize::try_from(offset).ok()?..));
    packet.and_then(flow).unwrap_or_else(|| "-".to_owned())
}

fn flow(packet: &[u8]) -> Option<String> {
    let (source, destination, protocol, payload) = match packet.first()? >> 4 {
        4 => {
            let header = packet.first_chunk::<20>()?;
            let at = |at: usize| {
                Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3])
            };
            let later = u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0;
            let payload = packet
                .get(usize::from(header[0] & 15) * 4..)
                .filter(|_| !later);
            (at(12).to_string(), at(16).to_string(), header[9], payload)
        }
        6 => {
            let header = packet.first_chunk::<40>()?;
            let at = |at: usize| {
                let octets: Option<&[u8; 16]> = header[at..].first_chunk();
                octets.map(|&octets| Ipv6Addr::from(octets).to_string())
            };
            (at(8)?, at(24)?, header[6], packet.get(40..))
        }
        _ => return None,
    };
    let name = match protocol {
        1 => "ICMP".to_owned(),
        6 => "TCP".to_owned(),
        17 => "UDP".to_owned(),
        58 => "ICMPv6".to_owned(),
        132 => "SCTP".to_owned(),
        other => format!("protocol {other}"),
    };
    let has_ports = matches!(protocol, 6 | 17 | 132);
    let ports = payload
        .and_then(|payload| payload.first_chunk::<4>())
        .filter(|_| has_ports);
    Some(match ports {
        Some(&[a, b, c, d]) => {
            let (from, to) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            format!("{source} port {from} > {destination} port {to} {name}")
        }
        None => format!("{source} > {destination} {name}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{answer, text};
    use serde_json::json;

    /// Two octets, then IPv4 and UDP.
    const FRAME: &str = "00004500001c00000000401100000a3c0001cb00710903e8003500080000";

    fn value() -> Value {
        json!({"event": "packet", "time": "86399.123456789", "interface": "n3",
            "direction": "uplink", "outcome": "dropped", "reason": "rate",
            "meaning": "above the MBR of a QER", "pdr": 1, "far": 2, "action": "FORW",
            "qers": [3, 4], "teid": "00000101", "qfi": 9, "length": 98, "user_offset": 2,
            "frame": FRAME})
    }

    #[test]
    fn one_line_says_it_all() {
        let line = packet(&value());
        for part in [
            "23:59:59.123456  uplink",
            "n3",
            "dropped: rate",
            "PDR 1, FAR 2 (FORW), QER 3+4, TEID 00000101, QFI 9",
            "98 B",
            "10.60.0.1 port 1000 > 203.0.113.9 port 53 UDP",
            "(above the MBR of a QER)",
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
    }

    #[test]
    fn an_answer_has_its_text() {
        let answer = answer("trace");
        let lines = answer.as_array().unwrap().iter();
        let lines = lines.map(|line| match line["event"].as_str() {
            Some("packet") => packet(line) + "\n",
            _ => about(line) + "\n",
        });
        assert_eq!(lines.collect::<String>(), text("trace"));
    }

    #[test]
    fn whatever_comes_is_shown() {
        for value in [
            json!({}),
            json!(null),
            json!({"frame": "4", "user_offset": 9}),
            json!({"frame": "zz40", "user_offset": 0}),
        ] {
            assert!(packet(&value).contains("no PDR"));
            about(&value);
        }
        for cut in 0..60 {
            flow(&vec![0x45; cut]);
            flow(&vec![0x60; cut]);
        }
    }

    #[test]
    fn what_is_followed_is_named() {
        let following = json!({"event": "following", "session": "a1", "teids": ["00000101"],
            "ue": ["10.60.0.1"], "left_out": 0});
        assert_eq!(
            about(&following),
            "following session a1: TEID 00000101, UE 10.60.0.1"
        );
        let nobody = json!({"event": "following", "teids": ["1"], "ue": [], "left_out": 2});
        assert_eq!(
            about(&nobody),
            "following no session yet: TEID 1, UE -; no room for 2 more"
        );
        assert_eq!(
            about(&json!({"event": "lost", "packets": 3})),
            "3 packets came too fast to be shown"
        );
    }
}
