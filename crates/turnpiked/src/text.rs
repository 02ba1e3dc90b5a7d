//! SEIDs, addresses and names as text, and times of NTP as those of Unix.

use std::fmt::Display;

use ipnet::IpNet;

/// NTP time of 1970.
const UNIX_EPOCH_NTP_S: u64 = 2_208_988_800;

/// Seconds since 1970 of NTP seconds of which only 32 bits are known, within 68 years of now.
pub(crate) fn unix_near(ntp_s: u32, now_ntp_s: u64) -> u64 {
    let ahead = ntp_s.wrapping_sub(now_ntp_s as u32).cast_signed();
    let whole = now_ntp_s.saturating_add_signed(ahead.into());
    whole.saturating_sub(UNIX_EPOCH_NTP_S)
}

/// An address of a UE: IPv4 alone, IPv6 as a prefix.
pub(crate) fn address_text(net: &IpNet) -> String {
    match net {
        IpNet::V4(net) => net.addr().to_string(),
        IpNet::V6(net) => net.to_string(),
    }
}

/// A SEID as it is written: 16 hexadecimal digits.
pub(crate) fn seid_text(seid: u64) -> String {
    format!("{seid:016x}")
}

/// The reverse, with or without `0x` and leading zeros.
pub(crate) fn parse_seid(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16)
        .ok()
        .filter(|_| !digits.starts_with('+'))
}

/// `Session Establishment Request` as `session_establishment_request`.
pub(crate) fn label(name: impl Display) -> String {
    name.to_string()
        .to_lowercase()
        .replace([' ', '-', '/'], "_")
}
