//! Packets that two flows have in common.

use compiled::Flow;
use ipnet::IpNet;

/// Conditions of packets that are of both; `None`: no packet is.
pub(super) fn both(a: Flow, b: Flow) -> Option<Flow> {
    let both = Flow {
        proto: same(a.proto, b.proto)?,
        src: narrower(a.src, b.src)?,
        dst: narrower(a.dst, b.dst)?,
        src_ports: overlap(a.src_ports, b.src_ports)?,
        dst_ports: overlap(a.dst_ports, b.dst_ports)?,
        tos: bits_of_both(a.tos, b.tos)?,
        spi: same(a.spi, b.spi)?,
        label: same(a.label, b.label)?,
    };
    let family = |net: Option<IpNet>| net.map(|net| net.addr().is_ipv4());
    let ends = same(family(both.src), family(both.dst))?;
    // Only IPv6 has a flow label.
    (both.label.is_none() || ends != Some(true)).then_some(both)
}

/// Of two conditions, either of which may be absent: both, if they go together.
fn of_both<C: Copy>(
    a: Option<C>,
    b: Option<C>,
    join: impl Fn(C, C) -> Option<C>,
) -> Option<Option<C>> {
    match (a, b) {
        (Some(a), Some(b)) => join(a, b).map(Some),
        (one, other) => Some(one.or(other)),
    }
}

fn same<C: Copy + PartialEq>(a: Option<C>, b: Option<C>) -> Option<Option<C>> {
    of_both(a, b, |a, b| (a == b).then_some(a))
}

fn narrower(a: Option<IpNet>, b: Option<IpNet>) -> Option<Option<IpNet>> {
    of_both(a, b, |a, b| match (a.contains(&b), b.contains(&a)) {
        (true, _) => Some(b),
        (_, true) => Some(a),
        _ => None,
    })
}

fn overlap(a: Option<(u16, u16)>, b: Option<(u16, u16)>) -> Option<Option<(u16, u16)>> {
    of_both(a, b, |a, b| {
        let (low, high) = (a.0.max(b.0), a.1.min(b.1));
        (low <= high).then_some((low, high))
    })
}

fn bits_of_both(a: Option<(u8, u8)>, b: Option<(u8, u8)>) -> Option<Option<(u8, u8)>> {
    of_both(a, b, |(a, a_mask), (b, b_mask)| {
        let agree = (a ^ b) & a_mask & b_mask == 0;
        agree.then_some((a & a_mask | b & b_mask, a_mask | b_mask))
    })
}
