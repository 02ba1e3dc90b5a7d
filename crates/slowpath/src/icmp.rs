//! ICMP errors about users' packets (RFC 792, RFC 1812, 4.3; RFC 4443), as a router writes them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::inet;

const IP4_LEN: usize = 20;
const IP6_LEN: usize = 40;
const ICMP_LEN: usize = 8;
/// Longest error over IPv4 (RFC 1812, 4.3.2.3).
const ERROR4_MAX: usize = 576;
/// The least MTU of IPv6: no error is longer (RFC 4443, 2.4c), and none asks for shorter packets.
const MTU6_MIN: u16 = 1280;
/// The least MTU of IPv4 (RFC 791, 3.2).
const MTU4_MIN: u16 = 68;
const TTL: u8 = 64;
/// Precedence of internetwork control (RFC 1812, 4.3.2.5).
const TOS: u8 = 0xc0;

const PROTO_ICMP: u8 = 1;
const PROTO_ICMP6: u8 = 58;
const PROTO_FRAGMENT: u8 = 44;
/// Hop-by-hop options, routing and destination options.
const HEADERS6: [u8; 3] = [0, 43, 60];
/// `TP_IP6_HEADERS_MAX`
const HEADERS6_MAX: usize = 8;

/// Why a packet goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// TTL or hop limit ran out.
    Expired,
    /// No more than so many octets of IP get through.
    TooLong {
        /// Next-hop MTU (RFC 1191, RFC 8201).
        mtu: u16,
        /// Its TTL was decremented here.
        hop_spent: bool,
    },
}

/// The error, from `source` to the sender of a packet whose first octets, header included, are `about`.
/// `None`: none may be sent about it (RFC 1812, 4.3.2.7; RFC 4443, 2.4e), or it would not help.
pub fn error(about: &[u8], cause: Cause, source: IpAddr) -> Option<Vec<u8>> {
    match (about.first()? >> 4, source) {
        (4, IpAddr::V4(source)) => error4(about, cause, source),
        (6, IpAddr::V6(source)) => error6(about, cause, source),
        _ => None,
    }
}

/// Destination of a packet.
pub(crate) fn destination(ip: &[u8]) -> Option<IpAddr> {
    match ip.first()? >> 4 {
        4 => address4(ip, 16).map(IpAddr::V4),
        6 => address6(ip, 24).map(IpAddr::V6),
        _ => None,
    }
}

fn address4(ip: &[u8], at: usize) -> Option<Ipv4Addr> {
    Some(<[u8; 4]>::try_from(ip.get(at..at + 4)?).ok()?.into())
}

fn address6(ip: &[u8], at: usize) -> Option<Ipv6Addr> {
    Some(<[u8; 16]>::try_from(ip.get(at..at + 16)?).ok()?.into())
}

/// Is this one host, of all the world?
fn is_host4(addr: Ipv4Addr) -> bool {
    let first = addr.octets()[0];
    first != 0 && first != 127 && first < 224
}

fn is_host6(addr: Ipv6Addr) -> bool {
    !addr.is_unspecified()
        && !addr.is_loopback()
        && !addr.is_multicast()
        && !addr.is_unicast_link_local()
}

/// Echoes, time stamps and what else asks or answers; the rest are errors, or unknown.
fn is_error4(icmp_type: u8) -> bool {
    !matches!(icmp_type, 0 | 8 | 9 | 10 | 13..=18)
}

fn error4(about: &[u8], cause: Cause, source: Ipv4Addr) -> Option<Vec<u8>> {
    let header = about.get(..IP4_LEN)?;
    let header_len = usize::from(header[0] & 15) * 4;
    let (sender, destination) = (address4(about, 12)?, address4(about, 16)?);
    let later = u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0;
    if later || !is_host4(sender) || !is_host4(destination) || header_len < IP4_LEN {
        return None;
    }
    if header[9] == PROTO_ICMP && is_error4(*about.get(header_len)?) {
        return None;
    }
    let (kind, code, mtu) = match cause {
        Cause::Expired => (11, 0, 0),
        Cause::TooLong { mtu, .. } if mtu >= MTU4_MIN => (3, 4, mtu),
        Cause::TooLong { .. } => return None,
    };
    let mut quote = about[..about.len().min(ERROR4_MAX - IP4_LEN - ICMP_LEN)].to_vec();
    if let Cause::TooLong {
        hop_spent: true, ..
    } = cause
    {
        // As it came: the hop that this router spent is not the sender's affair.
        quote[8] = quote[8].saturating_add(1);
        inet::set_header_checksum(quote.get_mut(..header_len)?);
    }
    let total = u16::try_from(IP4_LEN + ICMP_LEN + quote.len()).ok()?;
    let mut packet = vec![0x45, TOS];
    packet.extend(total.to_be_bytes());
    // DF, so that it needs no identification (RFC 6864, 4.1).
    packet.extend([0, 0, 0x40, 0, TTL, PROTO_ICMP, 0, 0]);
    packet.extend(source.octets());
    packet.extend(sender.octets());
    inet::set_header_checksum(&mut packet);
    packet.extend([kind, code, 0, 0, 0, 0]);
    packet.extend(mtu.to_be_bytes());
    packet.extend(quote);
    let sum = inet::checksum(&packet[IP4_LEN..]);
    packet[IP4_LEN + 2..IP4_LEN + 4].copy_from_slice(&sum.to_be_bytes());
    Some(packet)
}

/// Whether the upper layer of a packet is something that errors are sent about.
fn may_answer6(about: &[u8]) -> Option<bool> {
    let (mut at, mut next) = (IP6_LEN, about[6]);
    for _ in 0..HEADERS6_MAX {
        match next {
            PROTO_ICMP6 => {
                let icmp_type = *about.get(at)?;
                // Errors, and Redirect.
                return Some(icmp_type >= 128 && icmp_type != 137);
            }
            PROTO_FRAGMENT => {
                let header = about.get(at..at + 8)?;
                if u16::from_be_bytes([header[2], header[3]]) & 0xfff8 != 0 {
                    return Some(false);
                }
                (at, next) = (at + 8, header[0]);
            }
            _ if HEADERS6.contains(&next) => {
                let header = about.get(at..at + 2)?;
                (at, next) = (at + (usize::from(header[1]) + 1) * 8, header[0]);
            }
            _ => return Some(true),
        }
    }
    Some(false)
}

fn error6(about: &[u8], cause: Cause, source: Ipv6Addr) -> Option<Vec<u8>> {
    let header = about.get(..IP6_LEN)?;
    let (sender, destination) = (address6(about, 8)?, address6(about, 24)?);
    if !is_host6(sender) || !is_host6(destination) || !may_answer6(about)? {
        return None;
    }
    let length = IP6_LEN + usize::from(u16::from_be_bytes([header[4], header[5]]));
    let (kind, mtu) = match cause {
        Cause::Expired => (3, 0),
        // A link of less must cut and reassemble by itself (RFC 8200, 5).
        Cause::TooLong { .. } if length <= MTU6_MIN.into() => return None,
        Cause::TooLong { mtu, .. } => (2, mtu.max(MTU6_MIN)),
    };
    let room = usize::from(MTU6_MIN) - IP6_LEN - ICMP_LEN;
    let mut quote = about[..about.len().min(room)].to_vec();
    if let Cause::TooLong {
        hop_spent: true, ..
    } = cause
    {
        quote[7] = quote[7].saturating_add(1);
    }
    let mut message = vec![kind, 0, 0, 0, 0, 0];
    message.extend(mtu.to_be_bytes());
    message.extend(quote);
    packet6(source, sender, TTL, message)
}

/// An ICMPv6 message, whose checksum is still zero, in its packet.
pub(crate) fn packet6(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    hop_limit: u8,
    mut message: Vec<u8>,
) -> Option<Vec<u8>> {
    let length = u16::try_from(message.len()).ok()?;
    let addresses = [source.octets(), destination.octets()].concat();
    let [high, low] = length.to_be_bytes();
    let pseudo = [0, 0, high, low, 0, 0, 0, PROTO_ICMP6];
    let sum = inet::checksum(&[&addresses[..], &pseudo, &message].concat());
    message.get_mut(2..4)?.copy_from_slice(&sum.to_be_bytes());
    let mut packet = vec![0x60, 0, 0, 0, high, low, PROTO_ICMP6, hop_limit];
    packet.extend(addresses);
    packet.extend(message);
    Some(packet)
}

#[cfg(test)]
#[path = "icmp_tests.rs"]
mod tests;
