//! A packet in one line.

use std::net::{Ipv4Addr, Ipv6Addr};

use report::trace::{Line, Packet};

use crate::cell::Cell;

/// `12:34:56.123456  uplink    n3  forwarded  PDR 1, FAR 1 (FORW), QER 1  98 B  10.60.0.1 > 10.6.0.9 ICMP`
pub(super) fn packet(packet: &Packet) -> String {
    let outcome = match &packet.reason {
        Some(reason) => format!("{}: {reason}", packet.outcome.cell()),
        None => packet.outcome.cell(),
    };
    let meaning = packet.meaning.as_ref();
    let meaning = meaning.map(|meaning| format!("  ({meaning})"));
    format!(
        "{}  {:<8}  {:<6}  {:<22}  {}  {} B  {}{}",
        clock(&packet.time),
        packet.direction.cell(),
        packet.interface.cell(),
        outcome,
        rule(packet),
        packet.length,
        user(packet),
        meaning.unwrap_or_default(),
    )
}

/// Lines beside packets.
pub(super) fn about(line: &Line) -> String {
    match line {
        Line::Following(following) => {
            let session = match &following.session {
                Some(seid) => format!("session {seid}"),
                None => "no session yet".to_owned(),
            };
            let left_out = Some(following.left_out).filter(|&n| n > 0);
            let left_out = left_out.map_or(String::new(), |n| format!("; no room for {n} more"));
            let (teids, ue) = (following.teids.cell(), following.ue.cell());
            format!("following {session}: TEID {teids}, UE {ue}{left_out}")
        }
        Line::Packet(one) => packet(one),
        Line::Lost { packets } => format!("{packets} packets came too fast to be shown"),
        Line::Ended { why } => format!("ended: {why}"),
    }
}

/// `PDR 1, FAR 1 (FORW), QER 1, 2, QFI 9`; what is not known is left out.
pub(super) fn rule(packet: &Packet) -> String {
    let mut parts = Vec::new();
    match packet.pdr {
        Some(pdr) => parts.push(format!("PDR {pdr}")),
        None => parts.push("no PDR".to_owned()),
    }
    if let Some(name) = &packet.predefined {
        parts.push(format!("predefined rule {name}"));
    }
    match (packet.far, &packet.predefined, &packet.action) {
        (Some(far), _, action) => parts.push(format!("FAR {far} ({})", action.cell())),
        (None, Some(_), Some(action)) => parts.push(action.clone()),
        _ => {}
    }
    if !packet.qers.is_empty() {
        let qers: Vec<String> = packet.qers.iter().map(u32::to_string).collect();
        parts.push(format!("QER {}", qers.join("+")));
    }
    if let Some(teid) = &packet.teid {
        parts.push(format!("TEID {teid}"));
    }
    if let Some(qfi) = packet.qfi {
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
pub(super) fn frame(packet: &Packet) -> Vec<u8> {
    let text = packet.frame.as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let byte = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    text.chunks_exact(2).map_while(byte).collect()
}

/// `10.60.0.1:1000 > 10.6.0.9:53 UDP`
fn user(packet: &Packet) -> String {
    let frame = frame(packet);
    let offset = packet.user_offset.map(usize::from);
    let packet = offset.and_then(|offset| frame.get(offset..));
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
    use report::trace::Following;

    /// Two octets, then IPv4 and UDP.
    const FRAME: &str = "00004500001c00000000401100000a3c0001cb00710903e8003500080000";

    #[test]
    fn one_line_says_it_all() {
        let dropped = Packet {
            time: "86399.123456789".into(),
            interface: "n3".into(),
            direction: "uplink".into(),
            outcome: "dropped".into(),
            reason: Some("rate".into()),
            meaning: Some("above the MBR of a QER".into()),
            pdr: Some(1),
            far: Some(2),
            action: Some("FORW".into()),
            qers: vec![3, 4],
            teid: Some("00000101".into()),
            qfi: Some(9),
            length: 98,
            user_offset: Some(2),
            frame: FRAME.into(),
            ..Packet::default()
        };
        let line = packet(&dropped);
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
        let lines: Vec<Line> = answer("trace");
        let lines = lines.iter().map(|line| about(line) + "\n");
        assert_eq!(lines.collect::<String>(), text("trace"));
    }

    #[test]
    fn whatever_comes_is_shown() {
        for (frame, user_offset) in [("", None), ("4", Some(9)), ("zz40", Some(0))] {
            let odd = Packet {
                frame: frame.into(),
                user_offset,
                ..Packet::default()
            };
            assert!(packet(&odd).contains("no PDR"));
        }
        for cut in 0..60 {
            flow(&vec![0x45; cut]);
            flow(&vec![0x60; cut]);
        }
    }

    #[test]
    fn a_user_without_a_session_is_followed() {
        let nobody = Line::Following(Following {
            teids: vec!["1".into()],
            left_out: 2,
            ..Following::default()
        });
        assert_eq!(
            about(&nobody),
            "following no session yet: TEID 1, UE -; no room for 2 more"
        );
    }
}
