use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use serde_json::json;

use super::addresses::embedded;
use super::*;

const POOL6: &str = "2001:db8:60::/48";
const TOKEN: &str = "0123456789abcdefTOKEN";

fn redactor_of(with_identities: bool) -> Redactor {
    let mut addresses = Addresses::default();
    addresses.add_config(&json!({
        "n4": {"listen": "10.100.0.1:8805", "smf": ["10.100.0.2"]},
        "network_instance": [{"pools": ["10.60.0.0/16", POOL6], "framed_routes": ["198.51.100.0/24"]}],
    }));
    addresses.add_user("172.20.0.9");
    addresses.add_user("2001:db8:99:1::/64");
    addresses.sort();
    Redactor::new(with_identities, addresses, vec![TOKEN.to_owned()]).unwrap()
}

fn redactor() -> Redactor {
    redactor_of(false)
}

fn is_user(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            (a, b) == (10, 60)
                || (a, b, c) == (198, 51, 100)
                || address == Ipv4Addr::new(172, 20, 0, 9)
        }
        IpAddr::V6(address) => {
            let of_ipv4 = embedded(address).is_some_and(|address| is_user(address.into()));
            let segments = address.segments();
            of_ipv4
                || segments[..3] == [0x2001, 0xdb8, 0x60]
                || segments[..4] == [0x2001, 0xdb8, 0x99, 1]
        }
    }
}

/// Users' addresses in a text: everything that can be read as one.
fn users(text: &str) -> Vec<String> {
    let octets = text.as_bytes();
    let is_part = |octet: u8| octet.is_ascii_hexdigit() || octet == b'.' || octet == b':';
    let mut found = Vec::new();
    for at in 0..octets.len() {
        let run = octets[at..]
            .iter()
            .take(46)
            .take_while(|&&octet| is_part(octet))
            .count();
        for end in at + 2..=at + run {
            let part = &text[at..end];
            let is_digit = |octet: Option<&u8>| octet.is_some_and(u8::is_ascii_digit);
            // 110.60.0.1 is not 10.60.0.1, nor is 10.60.0.12.
            let is_part_of_number = part.parse::<Ipv4Addr>().is_ok()
                && (at > 0 && is_digit(octets.get(at - 1)) || is_digit(octets.get(end)));
            if !is_part_of_number && part.parse().is_ok_and(is_user) {
                found.push(part.to_owned());
            }
        }
    }
    found
}

fn user4() -> impl Strategy<Value = Ipv4Addr> {
    prop_oneof![
        any::<[u8; 2]>().prop_map(|[c, d]| Ipv4Addr::new(10, 60, c, d)),
        any::<u8>().prop_map(|d| Ipv4Addr::new(198, 51, 100, d)),
        Just(Ipv4Addr::new(172, 20, 0, 9)),
    ]
}

fn user6() -> impl Strategy<Value = Ipv6Addr> {
    let of = |high: u128, bits: u32| {
        any::<[u128; 2]>()
            .prop_map(move |[low, mask]| Ipv6Addr::from(high | (low & mask) & (u128::MAX >> bits)))
    };
    prop_oneof![
        of(0x2001_0db8_0060_0000 << 64, 48),
        of(0x2001_0db8_0099_0001 << 64, 64)
    ]
}

/// As programs write it.
fn written() -> impl Strategy<Value = String> {
    let v4 = (user4(), 0..8).prop_map(|(address, form)| {
        let [a, b, c, d] = address.octets();
        match form {
            0 => format!("::ffff:{address}"),
            1 => format!(
                "::FFFF:{:X}:{:x}",
                u16::from_be_bytes([a, b]),
                u16::from_be_bytes([c, d])
            ),
            2 => format!("64:ff9b::{address}"),
            3 => format!("0:0:0:0:0:ffff:{address}"),
            4 => format!("{a:03}.{b:03}.{c:03}.{d:03}"),
            5 => format!("2002:{:02x}{:02x}:{:02x}{:02x}::1", a, b, c, d),
            _ => address.to_string(),
        }
    });
    let v6 = (user6(), 0..5).prop_map(|(address, form)| {
        let segments = address.segments();
        let whole = |segments: &[u16]| {
            let parts: Vec<String> = segments.iter().map(|part| format!("{part:04x}")).collect();
            parts.join(":")
        };
        match form {
            0 => whole(&segments),
            1 => whole(&segments).to_uppercase(),
            2 => address.to_string().to_uppercase(),
            3 => {
                let [.., a, b, c, d] = address.octets();
                format!("{}:{a}.{b}.{c}.{d}", whole(&segments[..6]))
            }
            _ => address.to_string(),
        }
    });
    prop_oneof![v4, v6]
}

fn surroundings() -> impl Strategy<Value = (String, String)> {
    let before = prop_oneof![
        Just(""),
        Just("["),
        Just("ue="),
        Just("from "),
        Just("\"ue\":\""),
        Just("1."),
        Just("x"),
        Just("é"),
        Just("00000101@"),
        Just("to:"),
        Just("udp-"),
        Just("/"),
    ];
    let behind = prop_oneof![
        Just(""),
        Just("]:8805"),
        Just(":80"),
        Just("."),
        Just(", "),
        Just("/32"),
        Just("/64"),
        Just("/128"),
        Just("%n6"),
        Just("\""),
        Just("ü"),
        Just(": lost"),
        Just(" > 10.100.0.2"),
    ];
    (before, behind).prop_map(|(before, behind)| (before.to_owned(), behind.to_owned()))
}

proptest! {
    #[test]
    fn no_identity_is_left(
        parts in prop::collection::vec((surroundings(), written()), 1..6),
        between in prop::collection::vec("[ -~]{0,12}", 6),
    ) {
        let mut text = String::new();
        for (((before, behind), address), between) in parts.iter().zip(&between) {
            text += &format!("{before}{address}{behind} {between}\n");
        }
        let redactor = redactor();
        let json = json!({"ue": [text], "list": {&text: [text, 5]}}).to_string();
        for (kind, content) in [(Kind::Text, &text), (Kind::Log, &text), (Kind::Keys, &text), (Kind::Json, &json)] {
            let left = String::from_utf8(redactor.member(kind, content.as_bytes())).unwrap();
            prop_assert!(users(&left).is_empty(), "{kind:?}: {:?} in {left}", users(&left));
        }
    }

    #[test]
    fn whatever_comes_is_taken(octets in prop::collection::vec(any::<u8>(), 0..200), text in "[imsueiat0-9a-f:.@/= é-]{0,80}") {
        let redactor = redactor();
        for kind in [Kind::Text, Kind::Log, Kind::Keys, Kind::Json] {
            redactor.member(kind, &octets);
            redactor.member(kind, text.as_bytes());
        }
    }
}

#[test]
fn a_user_has_one_name_in_all_notations_and_another_in_each_bundle() {
    let one = redactor();
    let name = one.text("10.60.0.1");
    assert!(name.starts_with("ue-") && name.len() == 19, "{name}");
    for other in ["::ffff:10.60.0.1", "::ffff:0a3c:1", "010.060.000.001"] {
        assert_eq!(one.text(other), name, "{other}");
    }
    let prefix = one.text("2001:db8:60:1::");
    for same in [
        "2001:DB8:60:1:0:0:0:9",
        "2001:0db8:0060:0001:aaaa:bbbb:cccc:dddd",
    ] {
        assert_eq!(one.text(same), prefix, "{same}");
    }
    assert_ne!(one.text("10.60.0.2"), name);
    assert_ne!(redactor().text("10.60.0.1"), name);
    let numbers = "{\"supi\": \"imsi-001010123456789\"}";
    let json = String::from_utf8(one.member(Kind::Json, numbers.as_bytes())).unwrap();
    let id = one.text("IMSI=001010123456789");
    let id = id.strip_prefix("IMSI=").unwrap();
    assert!(json.contains(&format!("\"imsi-{id}\"")), "{json} {id}");
}

#[test]
fn numbers_and_names_of_subscribers_are_hidden() {
    let redactor = redactor();
    let log = "msisdn: 4915112345678, imei=490154203237518 imsi-001010123456789 nai john@example.org \
        someone+x@realm.example.org of 001010123456780; user_id=jane supi=\"imsi-001010123456781\" IMEISV 4901542032375186";
    let left = String::from_utf8(redactor.member(Kind::Log, log.as_bytes())).unwrap();
    for identity in [
        "4915112345678",
        "490154203237518",
        "001010123456789",
        "john",
        "someone",
        "example",
        "001010123456780",
        "jane",
        "001010123456781",
        "4901542032375186",
    ] {
        assert!(!left.contains(identity), "{identity}: {left}");
    }
    let json = json!({"imsi": 1010123456789_u64, "msisdn": ["491511"], "user_id": "jane", "packets": 123456789012345_u64});
    let left = String::from_utf8(redactor.member(Kind::Json, json.to_string().as_bytes())).unwrap();
    for identity in ["1010123456789", "491511", "jane"] {
        assert!(!left.contains(identity), "{identity}: {left}");
    }
    assert!(left.contains("123456789012345"), "a count is none: {left}");
}

#[test]
fn the_network_stays_readable() {
    let redactor = redactor();
    for stays in [
        "SMF 10.100.0.2:8805 associated, UPF 10.100.0.1",
        "10.60.0.0/16 dev n6 scope link",
        "2001:db8:60::/48 via fe80::1 dev n6",
        "default via 10.100.0.2 mask 255.255.255.0",
        "link/ether aa:bb:cc:dd:ee:ff brd ff:ff:ff:ff:ff:ff",
        "2026-11-29T01:45:00.123456+00:00 turnpiked[1]: core::panicking a::b Linux 6.1.0-13, v1.2.3.4",
        "inet6 ::1/128 scope host",
        "0.0.0.0/0",
        "listen [::]:8806",
        "seid=00000000000000a1 TEID 10000001@10.100.0.2",
        "getty@tty1.service user@1000.service",
    ] {
        assert_eq!(redactor.text(stays), stays);
    }
    let unknown = redactor.text("from 203.0.113.9:53, [2001:db8:1::1]:53 and 172.20.0.8");
    assert_eq!(unknown.matches("ip-").count(), 3, "{unknown}");
    assert!(unknown.contains(":53"), "{unknown}");
}

#[test]
fn identities_stay_when_asked_for_and_secrets_never() {
    let redactor = redactor_of(true);
    let text = format!("10.60.0.1 imsi-001010123456789 {TOKEN}");
    assert_eq!(
        redactor.text(&text),
        "10.60.0.1 imsi-001010123456789 (cut out)"
    );
    let json = json!({"api": {"token": "short", "token_file": "/etc/token", "key": "n4.allow"}, "ue": ["10.60.0.1"]});
    let left = String::from_utf8(redactor.member(Kind::Json, json.to_string().as_bytes())).unwrap();
    assert!(
        !left.contains("short") && left.contains("/etc/token") && left.contains("n4.allow"),
        "{left}"
    );
    assert!(left.contains("10.60.0.1"), "{left}");
}

#[test]
fn times_are_those_of_the_calendar() {
    for (seconds, text) in [
        (0, "19700101-000000"),
        (951_782_399, "20000228-235959"),
        (951_782_400, "20000229-000000"),
        (1_798_761_599, "20261231-235959"),
        (1_798_761_600, "20270101-000000"),
    ] {
        assert_eq!(utc(seconds), text);
    }
}

#[test]
fn a_bundle_has_bounds() {
    let line = "x".repeat(99) + "\n";
    let mut members: Vec<Member> = (0..6)
        .map(|number| Member {
            name: format!("{number}"),
            about: "lines",
            source: String::new(),
            kind: if number == 0 { Kind::Log } else { Kind::Text },
            content: Ok(line.repeat(LIMIT / 100 + 1000).into_bytes()),
            note: None,
        })
        .collect();
    seal(&redactor_of(true), &mut members);
    let sizes = members
        .iter()
        .map(|member| member.content.as_ref().unwrap().len());
    assert!(sizes.clone().all(|size| size <= LIMIT && size % 100 == 0));
    assert!(sizes.sum::<usize>() <= TOTAL);
    assert!(
        members
            .iter()
            .all(|member| member.note.as_ref().unwrap().contains("cut: the "))
    );
}

/// A trace needs a user, and a user a trace.
#[test]
fn a_trace_has_a_user() {
    use clap::Parser;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        _options: Options,
    }
    let takes = |line: &str| CommandLine::try_parse_from(line.split(' ')).is_ok();
    assert!(takes("x --trace --ue 10.60.0.1") && takes("x"));
    assert!(
        !takes("x --trace")
            && !takes("x --ue 10.60.0.1")
            && !takes("x --trace --ue 10.60.0.1 --teid 1")
    );
}
