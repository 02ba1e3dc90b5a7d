//! From compiled rules to the words that packets read.

use std::net::Ipv4Addr;
use std::time::Duration;

use smallvec::SmallVec;

use compiled::{Above, Action, Direction, Entry, Marks, NiId, PacketRate, Rate, Relay, UeEnd};

use crate::abi::{
    ASKS_QFI, ASKS_UE, ASKS_UE_DST, Ext, METERS_MAX, REMOVE_CONTAINER, entry, packets, psc, rate,
};

/// A rate word: cost of a byte in ticks of 1/64 ns as a 32-bit mantissa and a shift.
///
/// Below 120 bit/s the mantissa cannot grow further and the rate stays there; MBR counts in
/// kbit/s. The burst is rounded up and ends at 68 s.
pub(crate) fn rate_word(limit: Rate) -> u64 {
    if limit.bps == 0 {
        return rate::BLOCK;
    }
    let bps = u128::from(limit.bps);
    let ticks = 8 * rate::TICKS_PER_SECOND;
    let scaled = |shift: u32| ((ticks << shift) + bps / 2) / bps;
    // With a greater shift, the mantissa has more than 32 bits.
    let mut shift = (ticks.leading_zeros() + 32)
        .saturating_sub(bps.leading_zeros())
        .min(63);
    let mut mantissa = scaled(shift);
    while mantissa > u128::from(u32::MAX) && shift > 0 {
        shift -= 1;
        mantissa = scaled(shift);
    }
    let mantissa = mantissa.min(u128::from(u32::MAX)) as u64;
    let shape = match limit.above {
        Above::Police => 0,
        Above::Shape => rate::SHAPE,
    };
    let burst_ns = u128::from(limit.burst_bytes) * 8_000_000_000 / bps;
    let burst = burst_ns
        .div_ceil(rate::BURST_UNIT_NS)
        .clamp(1, rate::BURST_MAX) as u64;
    mantissa | shape | u64::from(shift) << rate::SHIFT_SHIFT | burst << rate::BURST_SHIFT
}

/// A rate word that has packets wait, at most so long, in place of dropping what is above it. Of no rate (0): one that
/// costs nothing, and keeps packets in their order.
pub(crate) fn shaped(word: u64, longest_wait: Duration) -> u64 {
    if word & rate::BLOCK != 0 {
        return word;
    }
    let longest = (longest_wait.as_nanos() / rate::BURST_UNIT_NS).clamp(1, rate::BURST_MAX) as u64;
    word & (rate::SHAPE - 1) | rate::SHAPE | longest << rate::BURST_SHIFT
}

/// A rate word as a data path has it on which packets wait at most so long, or never.
pub(crate) fn rate_here(word: u64, longest_wait: Option<Duration>) -> u64 {
    match longest_wait {
        Some(longest) if word & rate::SHAPE != 0 => shaped(word, longest),
        _ => word & !rate::SHAPE,
    }
}

/// A packet limit: whole time units and at most a million packets, which no Packet Rate exceeds.
pub(crate) fn packets_word(limit: PacketRate) -> u64 {
    let unit = (limit.per.as_nanos() / u128::from(packets::TIME_UNIT_NS)).max(1) as u64;
    u64::from(limit.packets).min(packets::MAX) | unit << packets::SHIFT
}

/// The control words of an entry, before it is known where they go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Words {
    /// Without the key.
    pub(crate) head: u64,
    pub(crate) out: u64,
    pub(crate) rate: u64,
    /// The extension line, when `head` has the bit.
    pub(crate) ext: Option<Ext>,
}

/// Lines of the meters that an entry names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meters {
    /// MBRs, at most four.
    pub(crate) rates: SmallVec<[u32; METERS_MAX]>,
    /// Its packet rate.
    pub(crate) packets: Option<u32>,
    /// Its share of capacities.
    pub(crate) share: Option<u32>,
}

/// Encode one entry. `ue_ni`: where the UE's addresses are valid. `instances`: how many network instances there are.
/// `peer`: the peer line of a tunnel. `n_framed`: framed routes of the session.
pub(crate) fn words(
    rule: &Entry,
    (ue_ni, instances): (NiId, u16),
    peer: u32,
    meters: &Meters,
    n_framed: usize,
) -> Words {
    let ue_ni = match (rule.direction, rule.action) {
        // The sender of a packet that is too long for the way out hears of that as from the UE's data network.
        (_, Action::Udp { .. }) | (Direction::Downlink, _) => ue_ni.0,
        (Direction::Uplink, _) => 0,
    };
    let (action, ni, mut out) = match rule.action {
        Action::Route { ni } => (entry::ACT_ROUTE, ni.0, 0),
        Action::Steer { ni, policy } => (entry::ACT_ROUTE, policy.routes_for(ni, instances).0, 0),
        Action::Tunnel { teid, .. } => (
            entry::ACT_TUNNEL,
            ue_ni,
            u64::from(teid.to_be()) | u64::from(peer) << 32,
        ),
        Action::Udp { port, .. } => (
            entry::ACT_UDP,
            ue_ni,
            u64::from(port.to_be()) | u64::from(peer) << 32,
        ),
        Action::Drop => (entry::ACT_DROP, ue_ni, 0),
        Action::TunnelGone => (entry::ACT_TUNNEL_GONE, ue_ni, 0),
        Action::NoTunnel => (entry::ACT_NO_TUNNEL, ue_ni, 0),
        Action::Buffer => (entry::ACT_BUFFER, ue_ni, 0),
        Action::GateClosed => (entry::ACT_GATE, ue_ni, 0),
        Action::QuotaExhausted => (entry::ACT_QUOTA, ue_ni, 0),
    };
    let mut head = action << entry::ACTION_SHIFT | u64::from(ni) << entry::NI_SHIFT;
    let mut ext = Ext::default();
    if let Some(ue) = rule.ue.filter(|_| !entry::has_peer(head)) {
        head |= entry::UE_BIT;
        out = ue.v4.map_or(0, |v4| u64::from(be(v4)));
        if let Some(v6) = ue.v6 {
            ext.ue6 = v6.trunc().addr().octets();
            ext.ue6_plen = v6.prefix_len();
        }
    }
    if let Some(relay) = &rule.relay {
        head |= relay_bits(rule.direction);
        relay_conditions(relay, &mut ext);
    }
    if let Some(qfi) = rule.qfi {
        let marks = entry::has_peer(head) || rule.direction == Direction::Downlink;
        head |= if marks {
            entry::MARK_BIT
        } else {
            entry::QFI_BIT
        };
        head |= u64::from(qfi.get()) << entry::QFI_SHIFT;
    }
    let asks_ue = head & entry::UE_BIT != 0 || ext.asks & ASKS_UE != 0;
    if rule.framed && asks_ue {
        ext.n_framed = n_framed as u16;
    }
    let mut rate = 0;
    let may_pass = entry::forwards(head) || action == entry::ACT_BUFFER;
    if let Some(limit) = rule.meter.filter(|_| may_pass) {
        head |= entry::METER_BIT;
        rate = rate_word(limit);
    }
    for (to, &meter) in ext.meters.iter_mut().zip(&meters.rates) {
        *to = meter;
        ext.n_meters += 1;
    }
    debug_assert!(meters.rates.len() <= METERS_MAX);
    if let Some(marking) = rule.marking.filter(|_| entry::forwards(head)) {
        (ext.tos, ext.tos_mask) = (marking.tos & marking.mask, marking.mask);
    }
    ext.packet_meter = meters.packets.map_or(0, |line| line + 1);
    ext.share = meters.share.map_or(0, |line| line + 1);
    if !matches!(action, entry::ACT_GATE | entry::ACT_QUOTA) {
        ext.n_copies = rule.duplicates.len() as u16;
        if ext.n_copies > 0 {
            head |= entry::COPY_BIT;
        }
    }
    if action == entry::ACT_TUNNEL && rule.qfi.is_some() {
        ext.psc = container(rule.marks);
    }
    let ext = (ext != Ext::default()).then_some(ext);
    if ext.is_some() {
        head |= entry::EXT_BIT;
    }
    Words {
        head,
        out,
        rate,
        ext,
    }
}

/// Found by TEID, so that the table the entry lies in does not say which way its packets go.
fn relay_bits(direction: Direction) -> u64 {
    match direction {
        Direction::Uplink => 0,
        Direction::Downlink => entry::DOWN_BIT,
    }
}

fn relay_conditions(relay: &Relay, ext: &mut Ext) {
    if let Some((ue, end)) = relay.ue {
        ext.asks |= ASKS_UE;
        if end == UeEnd::Destination {
            ext.asks |= ASKS_UE_DST;
        }
        ext.ue4_be = ue.v4.map_or(0, be);
        if let Some(v6) = ue.v6 {
            ext.ue6 = v6.trunc().addr().octets();
            ext.ue6_plen = v6.prefix_len();
        }
    }
    if let Some(qfi) = relay.qfi {
        ext.asks |= ASKS_QFI;
        ext.qfi = qfi.get();
    }
    if relay.remove_container {
        ext.removal = REMOVE_CONTAINER;
    }
}

/// Fields of the PDU Session Container beside the QFI.
fn container(marks: Marks) -> u8 {
    let rqi = if marks.rqi { psc::RQI } else { 0 };
    marks
        .ppi
        .map_or(rqi, |ppi| rqi | psc::PPI | ppi << psc::PPI_SHIFT)
}

/// An address as C's `_be` words hold it.
pub(crate) fn be(addr: Ipv4Addr) -> u32 {
    u32::from_ne_bytes(addr.octets())
}

/// Which of the words out, rate and ext packets read under a head.
pub(crate) fn meaningful(head: u64) -> [bool; 3] {
    [
        entry::has_peer(head) || head & entry::UE_BIT != 0,
        head & entry::METER_BIT != 0,
        head & entry::EXT_BIT != 0,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Cost of `bytes` in ticks, as the pipeline computes it.
    fn cost(word: u64, bytes: u64) -> u64 {
        (bytes * (word & 0xffff_ffff)) >> ((word >> rate::SHIFT_SHIFT) & 63)
    }

    #[test]
    fn rates_at_the_ends() {
        let word = rate_word(Rate {
            bps: 0,
            burst_bytes: 1,
            above: Above::Police,
        });
        assert_eq!(word, rate::BLOCK);
        let gigabit = rate_word(Rate {
            bps: 1_000_000_000,
            burst_bytes: 125_000,
            above: Above::Police,
        });
        assert_eq!(cost(gigabit, 1000), 8000 * 64);
        assert_eq!(gigabit >> rate::BURST_SHIFT, 1_000_000u64.div_ceil(4096));
        let slowest = rate_word(Rate {
            bps: 1000,
            burst_bytes: u64::MAX / 2,
            above: Above::Police,
        });
        assert_eq!(slowest >> rate::BURST_SHIFT, (1 << 24) - 1);
    }

    proptest! {
        #[test]
        fn a_rate_is_exact_to_one_in_a_million(kbps in 1u64..(1 << 40)) {
            let bps = kbps * 1000;
            let word = rate_word(Rate { bps, burst_bytes: 1500, above: Above::Police });
            let mantissa = (word & 0xffff_ffff) as f64;
            let shift = (word >> rate::SHIFT_SHIFT & 63) as i32;
            let ticks = mantissa * 2f64.powi(-shift);
            let exact = 8.0 * 64e9 / bps as f64;
            prop_assert!(((ticks - exact) / exact).abs() < 1e-6, "{bps}: {ticks} {exact}");
            prop_assert!(mantissa >= (1u64 << 31) as f64, "normalised");
            prop_assert!(word & rate::BLOCK == 0);
        }
    }
}
