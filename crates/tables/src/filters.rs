//! Filters of one key as packets read them: a chain of `tp_rules`, and the `tp_rule_more` that some of them name.

use std::net::IpAddr;

use compiled::{Filter, Flow};
use smallvec::SmallVec;

use crate::abi::{
    Line, MORE_LABEL, MORE_QFIS, MORE_SPI, RULE_LAST, RULES_MAX, RULES_PER_PLACE, Rule, RuleMore,
    flow, from_words, words_of,
};

/// The rules of one key, wherever they lie: [`Rule::more`] is 0 or the number of a more, from 1 on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleList {
    rules: Vec<Rule>,
    mores: Vec<RuleMore>,
}

impl RuleList {
    pub(crate) fn clear(&mut self) {
        self.rules.clear();
        self.mores.clear();
    }

    /// One filter more, of the entry at `at`, whose packets come in a tunnel or not.
    pub(crate) fn push(&mut self, filter: &Filter, in_tunnel: bool, at: u32) {
        let (rule, more) = encode(filter, in_tunnel);
        let mut rule = Rule { entry: at, ..rule };
        if more != RuleMore::default() {
            self.mores.push(more);
            rule.more = self.mores.len() as u32;
        }
        self.rules.push(rule);
    }

    /// One that takes every packet.
    pub(crate) fn push_all(&mut self, at: u32) {
        self.rules.push(Rule { entry: at, ..any() });
    }

    /// Entries that the rules lead to.
    pub(crate) fn entries(&self) -> impl Iterator<Item = u32> + '_ {
        self.rules.iter().map(|rule| rule.entry)
    }

    fn rule_places(&self) -> usize {
        self.rules.len().div_ceil(RULES_PER_PLACE).max(1)
    }

    /// Places that the list takes.
    pub(crate) fn places(&self) -> usize {
        self.rule_places() + self.mores.len()
    }

    /// Fill places of `all` that no packet can reach yet: as many as [`Self::places`], in any order. Packets begin at the
    /// first.
    pub(crate) fn fill(&self, all: &[Line], places: &[u32]) {
        let never = Rule {
            value: flow::NEVER,
            mask: flow::NEVER,
            ..Rule::default()
        };
        let (of_rules, of_mores) = places.split_at(self.rule_places());
        for (number, (&place, rules)) in of_rules
            .iter()
            .zip(self.rules.chunks(RULES_PER_PLACE).chain([[].as_slice()]))
            .enumerate()
        {
            let mut full = [never; RULES_PER_PLACE];
            for (to, rule) in full.iter_mut().zip(rules) {
                *to = *rule;
                if rule.more > 0 {
                    to.more = of_mores[rule.more as usize - 1] + 1;
                }
            }
            match of_rules.get(number + 1) {
                Some(&next) => link(&mut full, next),
                None => full[RULES_PER_PLACE - 1].more |= RULE_LAST,
            }
            all[place as usize].fill(words_of(&full));
        }
        for (&place, more) in of_mores.iter().zip(&self.mores) {
            all[place as usize].fill(words_of(more));
        }
    }

    /// Read back the filters that begin at place number `first` of `all`.
    pub(crate) fn read(all: &[Line], first: u32) -> Self {
        let mut list = Self::default();
        walk(all, first, |_, rules| {
            for mut rule in rules {
                rule.value &= !NEXT;
                let more = (rule.more & !RULE_LAST).checked_sub(1);
                rule.more = 0;
                if let Some(more) = more.and_then(|more| all.get(more as usize)) {
                    list.mores.push(from_words(more.words()));
                    rule.more = list.mores.len() as u32;
                }
                if rule.mask & flow::NEVER == 0 {
                    list.rules.push(rule);
                }
            }
        });
        list
    }

    /// All places of the list that begins at place number `first` of `all`.
    pub(crate) fn places_at(all: &[Line], first: u32) -> Places {
        let mut places = Places::new();
        walk(all, first, |place, rules| {
            places.push(place);
            places.extend(
                rules
                    .iter()
                    .filter_map(|r| (r.more & !RULE_LAST).checked_sub(1)),
            );
        });
        places
    }
}

/// Places of one list.
pub(crate) type Places = SmallVec<[u32; 4]>;

/// Half of a place's number, in the value of a rule.
const HALF: u32 = (1 << flow::NEXT_BITS) - 1;
const NEXT: u64 = (HALF as u64) << flow::NEXT_SHIFT;

/// Have a place lead to another one.
fn link(place: &mut [Rule; RULES_PER_PLACE], next: u32) {
    place[0].value |= u64::from(next & HALF) << flow::NEXT_SHIFT;
    place[1].value |= u64::from(next >> flow::NEXT_BITS) << flow::NEXT_SHIFT;
}

/// `tp_rules_next`
fn next_of(place: &[Rule; RULES_PER_PLACE]) -> u32 {
    let half = |rule: &Rule| (rule.value >> flow::NEXT_SHIFT) as u32 & HALF;
    half(&place[0]) | half(&place[1]) << flow::NEXT_BITS
}

/// Go through a list as packets do.
fn walk(all: &[Line], first: u32, mut each: impl FnMut(u32, [Rule; RULES_PER_PLACE])) {
    let mut at = first;
    for _ in 0..RULES_MAX / RULES_PER_PLACE {
        let Some(line) = all.get(at as usize) else {
            return;
        };
        let rules: [Rule; RULES_PER_PLACE] = from_words(line.words());
        each(at, rules);
        if rules[RULES_PER_PLACE - 1].more & RULE_LAST != 0 {
            return;
        }
        at = next_of(&rules);
    }
}

/// Asks for nothing.
fn any() -> Rule {
    Rule {
        remote_span: u16::MAX,
        ue_span: u16::MAX,
        ..Rule::default()
    }
}

fn encode(filter: &Filter, in_tunnel: bool) -> (Rule, RuleMore) {
    let (mut rule, mut more) = (any(), RuleMore::default());
    if !filter.qfis.is_empty() {
        more.flags |= MORE_QFIS;
        more.qfis = filter.qfis.0;
    }
    if let Some(flow) = &filter.flow {
        encode_flow(flow, in_tunnel, &mut rule, &mut more);
    }
    (rule, more)
}

fn encode_flow(flow: &Flow, in_tunnel: bool, rule: &mut Rule, more: &mut RuleMore) {
    let (remote, ue, remote_ports, ue_ports) = if in_tunnel {
        (flow.dst, flow.src, flow.dst_ports, flow.src_ports)
    } else {
        (flow.src, flow.dst, flow.src_ports, flow.dst_ports)
    };
    let mut ask = |value: u64, mask: u64| {
        rule.value |= value & mask;
        rule.mask |= mask;
    };
    for net in [remote, ue].into_iter().flatten() {
        ask(if net.addr().is_ipv6() { flow::V6 } else { 0 }, flow::V6);
    }
    if let Some(net) = remote {
        let [first, _] = left_aligned(net.network());
        let mask = u32::MAX.checked_shl(32 - u32::from(net.prefix_len()).min(32));
        ask(first >> 32, mask.unwrap_or(0).into());
        if net.prefix_len() > 32 {
            (more.remote, more.remote_plen) = (left_aligned(net.network()), net.prefix_len());
        }
    }
    if let Some(net) = ue.filter(|net| net.prefix_len() > 0) {
        (more.ue, more.ue_plen) = (left_aligned(net.network()), net.prefix_len());
    }
    if let Some(proto) = flow.proto {
        ask(
            u64::from(proto) << flow::PROTO_SHIFT,
            0xff << flow::PROTO_SHIFT,
        );
    }
    if let Some((tos, mask)) = flow.tos {
        ask(
            u64::from(tos) << flow::TOS_SHIFT,
            u64::from(mask) << flow::TOS_SHIFT,
        );
    }
    if remote_ports.is_some() || ue_ports.is_some() {
        ask(flow::PORTS, flow::PORTS);
    }
    if let Some((low, high)) = remote_ports {
        (rule.remote_port, rule.remote_span) = (low, high - low);
    }
    if let Some((low, high)) = ue_ports {
        (rule.ue_port, rule.ue_span) = (low, high - low);
    }
    if let Some(label) = flow.label {
        ask(flow::V6, flow::V6);
        more.flags |= MORE_LABEL;
        more.label = label;
    }
    if let Some(spi) = flow.spi {
        more.flags |= MORE_SPI;
        more.spi = spi;
    }
}

/// An address as `struct tp_addr` has it.
pub(crate) fn left_aligned(addr: IpAddr) -> [u64; 2] {
    match addr {
        IpAddr::V4(addr) => [u64::from(u32::from(addr)) << 32, 0],
        IpAddr::V6(addr) => {
            let bits = u128::from(addr);
            [(bits >> 64) as u64, bits as u64]
        }
    }
}

#[cfg(test)]
mod tests {
    use compiled::QfiSet;
    use ipnet::IpNet;

    use super::*;
    use crate::memory::View;

    fn filter(remote: Option<&str>, ue: Option<&str>, qfis: u64) -> Filter {
        let net = |text: Option<&str>| text.map(|t| t.parse::<IpNet>().unwrap());
        Filter {
            entry: 0,
            qfis: QfiSet(qfis),
            flow: Some(Flow {
                src: net(ue),
                dst: net(remote),
                ..Flow::default()
            }),
        }
    }

    #[test]
    fn what_is_filled_in_is_read_back() {
        let all: View<Line> = View::anonymous(0x9000).unwrap();
        for count in [1, 3, 4, 5, 9, 64] {
            let mut list = RuleList::default();
            for n in 0..count {
                let filter = match n % 3 {
                    0 => filter(Some("192.0.2.0/24"), None, 0),
                    1 => filter(Some("2001:db8::/48"), Some("2001:db8:60::/64"), 0),
                    _ => filter(None, None, 6),
                };
                list.push(&filter, true, 100 + n);
            }
            let mores = (count - count.div_ceil(3)) as usize;
            assert_eq!(list.places(), (count as usize).div_ceil(2) + mores);
            // Anywhere, and beyond what one half of a link tells.
            let mut places: Vec<u32> = (0..list.places() as u32)
                .map(|n| 0x8fff - n * 0x123)
                .collect();
            list.fill(&all, &places);
            assert_eq!(RuleList::read(&all, places[0]), list, "{count}");
            let mut read = RuleList::places_at(&all, places[0]).to_vec();
            read.sort_unstable();
            places.sort_unstable();
            assert_eq!(read, places);
        }
    }

    #[test]
    fn an_ipv4_filter_needs_no_more_than_its_rule() {
        let mut list = RuleList::default();
        list.push(
            &filter(Some("192.0.2.128/25"), Some("0.0.0.0/0"), 0),
            true,
            1,
        );
        assert_eq!(list.places(), 1);
        assert_eq!(list.rules[0].value, 0xc000_0280);
        assert_eq!(list.rules[0].mask, 0xffff_ff80 | flow::V6);
    }

    #[test]
    fn the_ends_are_those_of_the_direction() {
        let filter = filter(Some("192.0.2.1/32"), Some("10.60.0.0/16"), 0);
        let (up, more_up) = encode(&filter, true);
        let (down, more_down) = encode(&filter, false);
        assert_eq!((up.value, more_up.ue[0] >> 32), (0xc000_0201, 0x0a3c_0000));
        assert_eq!(
            (down.value, more_down.ue[0] >> 32),
            (0x0a3c_0000, 0xc000_0201)
        );
    }
}
