//! What peers send that is wrong: an error with cause and offending IE, never worse.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use pfcp::ErrorKind;
use testkit::{samples, walk};

#[test]
fn broken_messages_name_cause_and_ie() {
    for (name, datagram, cause, ie) in samples::broken() {
        let error = walk::datagram(&datagram).expect_err(name);
        assert_eq!(
            (error.cause(), error.offending_ie()),
            (cause, ie),
            "{name}: {error}"
        );
    }
}

#[test]
fn valid_messages_decode() {
    for (name, datagram) in samples::valid() {
        let decoded = walk::datagram(&datagram);
        assert_eq!(decoded, Ok(if name == "bundle" { 2 } else { 1 }), "{name}");
    }
}

#[test]
fn the_offset_leads_to_the_ie() {
    for (name, datagram, _, ie) in samples::broken() {
        let error = walk::datagram(&datagram).expect_err(name);
        let missing = error.kind == ErrorKind::MandatoryMissing;
        let within = matches!(error.kind, ErrorKind::Truncated { expected: 4, .. });
        if let Some(ie) = ie.filter(|_| !missing && !within) {
            let at = datagram.get(error.offset..error.offset + 2).expect(name);
            assert_eq!(at, ie.0.to_be_bytes(), "{name}: {error}");
        }
    }
}

#[test]
fn every_prefix_of_a_message_is_an_error() {
    for (name, datagram) in samples::valid()
        .into_iter()
        .filter(|(name, _)| *name != "bundle")
    {
        for cut in 0..datagram.len() {
            assert!(
                walk::datagram(&datagram[..cut]).is_err(),
                "{name} cut at {cut}"
            );
        }
    }
}

/// The message says it is as short as it is: IEs end anywhere, and headers and values with them.
#[test]
fn every_shortened_message_is_handled() {
    for (_, datagram) in samples::valid() {
        for cut in 8..datagram.len() {
            let mut shorter = datagram[..cut].to_vec();
            shorter[2..4].copy_from_slice(&u16::try_from(cut - 4).unwrap().to_be_bytes());
            let _ = walk::datagram(&shorter);
        }
    }
}

#[test]
fn every_octet_can_be_wrong() {
    for (_, datagram) in samples::valid()
        .into_iter()
        .filter(|(_, datagram)| datagram.len() < 500)
    {
        for at in 0..datagram.len() {
            for value in [
                0,
                1,
                0x7f,
                0x80,
                0xff,
                datagram[at] ^ 1,
                datagram[at].wrapping_add(1),
            ] {
                let mut wrong = datagram.clone();
                wrong[at] = value;
                let _ = walk::datagram(&wrong);
            }
        }
    }
}

#[test]
fn what_follows_a_message_is_kept() {
    let mut datagram = samples::establishment();
    let length = datagram.len();
    datagram.extend_from_slice(b"more");
    let message = pfcp::decode(&datagram).unwrap();
    assert_eq!(message.rest, b"more");
    assert_eq!(message.ies.as_bytes().len(), length - 16);
}
