//! Lines of the log that others can cause, kept to an amount that fills no disk.
//!
//! Each sender on N4 may cause some lines of each kind in a window of a minute, so that an SMF whose requests are refused without end
//! hides nothing else that becomes of it. What it causes beyond them is counted by kind, and told in
//! one line when the window is over; as long as a kind goes on, it gets one line in each further window, as a sample. Strangers,
//! whose association is younger than [`SETTLED`] or who have none, share an amount of all kinds in addition, so that many addresses get no
//! more than few, and take none of the lines of SMFs that have been here for long.
//!
//! A restart of the same SMF is one line in a window, however few there are: some restart with each heartbeat.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use session::Time;
use session::node_id::NodeId;

/// Time after which lines are counted anew.
const WINDOW: Duration = Duration::from_secs(60);
/// Lines of one source and kind in a window.
const LINES: u32 = 10;
/// Lines of all strangers and kinds together.
const LINES_OF_STRANGERS: u32 = 30;
/// Lines about GTP-U peers, and about the node as a whole.
const LINES_OF_NODE: u32 = 100;
/// The kind that stands for all of them.
const ALL: &str = "";
/// Lines of a source and kind that had more than their share in the window before.
const SAMPLE: u32 = 1;
/// Age of an association whose SMF is no stranger.
const SETTLED: Duration = Duration::from_secs(60);
/// SMFs at one address that are told apart: no more have an association.
const PER_ADDRESS: usize = 8;
/// Addresses of strangers that are told apart.
const STRANGERS: usize = 1024;

/// Cause of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Source {
    /// A sender on N4.
    Sender(IpAddr),
    /// The data network, whoever its hosts say that they are.
    DataNetwork,
    /// A GTP-U peer.
    Gtpu,
    /// No one address.
    Node,
}

/// Lines that were not written, by kind.
pub(super) type Counts = BTreeMap<&'static str, u64>;

/// Account of what was not written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Summary {
    /// `None`: strangers.
    pub(super) of: Option<Source>,
    /// An address of theirs.
    pub(super) last: Option<IpAddr>,
    pub(super) counts: Counts,
}

#[derive(Debug)]
struct Account {
    lines: u32,
    /// By kind; absent: all of `lines`.
    left: BTreeMap<&'static str, u32>,
    /// Kinds of which more was wanted than there were lines.
    over: BTreeSet<&'static str>,
    suppressed: Counts,
    /// SMFs of which a line that comes once in a window has been written.
    said: Vec<NodeId>,
    last: Option<IpAddr>,
}

impl Account {
    fn new(lines: u32) -> Self {
        Self {
            lines,
            left: BTreeMap::new(),
            over: BTreeSet::new(),
            suppressed: Counts::new(),
            said: Vec::new(),
            last: None,
        }
    }

    fn spend(&mut self, kind: &'static str) -> bool {
        let left = self.left.entry(kind).or_insert(self.lines);
        let has = *left > 0;
        *left = left.saturating_sub(1);
        if !has {
            self.over.insert(kind);
        }
        has
    }

    /// Whether it is the first of this SMF in the window.
    fn is_first(&mut self, smf: &NodeId) -> bool {
        let is_first = !self.said.contains(smf);
        if is_first && self.said.len() < PER_ADDRESS {
            self.said.push(smf.clone());
        }
        is_first
    }

    fn suppress(&mut self, kind: &'static str) {
        *self.suppressed.entry(kind).or_default() += 1;
    }

    /// The window is over. What was suppressed in it; `None`: nothing, so that the source begins anew.
    fn roll(&mut self) -> Option<Counts> {
        if self.suppressed.is_empty() {
            return None;
        }
        let over = std::mem::take(&mut self.over);
        self.left = over.into_iter().map(|kind| (kind, SAMPLE)).collect();
        self.said.clear();
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// Associations of an address, and since when it has had one.
#[derive(Clone, Copy, Debug)]
struct Associated {
    since: Time,
    count: u32,
}

#[derive(Debug)]
pub(super) struct Budget {
    /// Never strangers: the configuration names them.
    configured: Vec<IpAddr>,
    /// Of each SMF with an association.
    addresses: HashMap<NodeId, IpAddr>,
    associated: HashMap<IpAddr, Associated>,
    accounts: HashMap<Source, Account>,
    strangers: Account,
    /// End of the window; `None`: nobody has caused a line in it.
    ends: Option<Time>,
}

impl Budget {
    pub(super) fn configure(&mut self, configured: Vec<IpAddr>) {
        self.configured = configured;
    }

    pub(super) fn new(configured: Vec<IpAddr>) -> Self {
        Self {
            configured,
            addresses: HashMap::new(),
            associated: HashMap::new(),
            accounts: HashMap::new(),
            strangers: Account::new(LINES_OF_STRANGERS),
            ends: None,
        }
    }

    /// An SMF has an association, or has it from another address now.
    pub(super) fn associated(&mut self, now: Time, smf: &NodeId, address: IpAddr) {
        if self.addresses.get(smf) == Some(&address) {
            return;
        }
        self.released(smf);
        self.addresses.insert(smf.clone(), address);
        let new = Associated {
            since: now,
            count: 0,
        };
        self.associated.entry(address).or_insert(new).count += 1;
    }

    pub(super) fn released(&mut self, smf: &NodeId) {
        let address = self.addresses.remove(smf);
        if let Some(of) = address.and_then(|address| self.associated.get_mut(&address)) {
            of.count -= 1;
        }
        self.associated.retain(|_, of| of.count > 0);
    }

    /// The SMF with an association from there, if there is one alone.
    pub(super) fn smf_at(&self, address: IpAddr) -> Option<&NodeId> {
        let mut there = self.addresses.iter().filter(|(_, of)| **of == address);
        let (smf, _) = there.next()?;
        there.next().is_none().then_some(smf)
    }

    fn is_stranger(&self, now: Time, address: IpAddr) -> bool {
        let is_settled = |of: &Associated| now.since(of.since) >= SETTLED;
        !self.associated.get(&address).is_some_and(is_settled)
            && !self.configured.contains(&address)
    }

    /// Whether a line of this kind is written; otherwise it is counted. `once`: the SMF of which it is written once in a
    /// window.
    pub(super) fn may_write(
        &mut self,
        now: Time,
        source: Source,
        kind: &'static str,
        once: Option<&NodeId>,
    ) -> bool {
        self.ends.get_or_insert(now.after(WINDOW));
        let stranger = match source {
            Source::Sender(address) if self.is_stranger(now, address) => Some(address),
            _ => None,
        };
        let lines = match source {
            Source::Sender(_) | Source::DataNetwork => LINES,
            Source::Gtpu | Source::Node => LINES_OF_NODE,
        };
        let has_room = stranger.is_none() || self.accounts.len() < STRANGERS;
        let may = if has_room || self.accounts.contains_key(&source) {
            let new = || Account::new(lines);
            let account = self.accounts.entry(source).or_insert_with(new);
            let may = once.is_none_or(|smf| account.is_first(smf))
                && account.spend(kind)
                && (stranger.is_none() || self.strangers.spend(ALL));
            if !may {
                account.suppress(kind);
            }
            may
        } else {
            false
        };
        if !may && stranger.is_some() {
            self.strangers.suppress(kind);
            self.strangers.last = stranger;
        }
        may
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.ends
    }

    /// Accounts to be told now that the window is over, if it is.
    pub(super) fn advance(&mut self, now: Time) -> Vec<Summary> {
        if self.ends.is_none_or(|ends| now < ends) {
            return Vec::new();
        }
        self.end_window(now)
    }

    /// Likewise, whether it is over or not.
    pub(super) fn end_window(&mut self, now: Time) -> Vec<Summary> {
        let mut summaries = Vec::new();
        let mut accounts = std::mem::take(&mut self.accounts);
        accounts.retain(|&source, account| {
            let Some(counts) = account.roll() else {
                return false;
            };
            // Strangers are told of together.
            let stranger =
                matches!(source, Source::Sender(address) if self.is_stranger(now, address));
            if !stranger {
                summaries.push(Summary {
                    of: Some(source),
                    last: None,
                    counts,
                });
            }
            true
        });
        self.accounts = accounts;
        let last = self.strangers.last.take();
        match self.strangers.roll() {
            Some(counts) => summaries.push(Summary {
                of: None,
                last,
                counts,
            }),
            None => self.strangers = Account::new(LINES_OF_STRANGERS),
        }
        self.ends = (!summaries.is_empty()).then(|| now.after(WINDOW));
        summaries
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const SMF: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 100, 0, 2));

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    fn stranger(number: u32) -> IpAddr {
        Ipv4Addr::from(0xc000_0200 + number).into()
    }

    fn node(name: &str) -> NodeId {
        NodeId::Fqdn(name.into())
    }

    fn lines(budget: &mut Budget, now: Time, of: IpAddr, n: u32) -> u32 {
        let written = (0..n).map(|_| budget.may_write(now, Source::Sender(of), "refused", None));
        written.map(u32::from).sum()
    }

    fn told(summaries: &[Summary]) -> u64 {
        summaries.iter().flat_map(|one| one.counts.values()).sum()
    }

    #[test]
    fn a_stranger_has_some_lines_then_one_in_each_window_and_a_count() {
        let mut budget = Budget::new(Vec::new());
        assert_eq!(lines(&mut budget, at(0), stranger(1), 1_000_000), LINES);
        assert_eq!(budget.next_deadline(), Some(at(60)));
        assert!(budget.advance(at(59)).is_empty());
        let summaries = budget.advance(at(60));
        assert_eq!((summaries.len(), summaries[0].last), (1, Some(stranger(1))));
        assert_eq!(told(&summaries), 1_000_000 - u64::from(LINES));
        for minute in 1..5 {
            assert_eq!(
                lines(&mut budget, at(60 * minute), stranger(1), 1000),
                SAMPLE
            );
            assert_eq!(told(&budget.advance(at(60 * minute + 60))), 999);
        }
        // It has stopped for a window.
        assert!(budget.advance(at(360)).is_empty());
        assert_eq!(budget.next_deadline(), None);
        assert_eq!(lines(&mut budget, at(400), stranger(1), 1000), LINES);
    }

    #[test]
    fn an_smf_that_restarts_with_each_heartbeat_gets_a_line_in_each_window_and_a_count() {
        let mut budget = Budget::new(vec![SMF]);
        let (one, other) = (node("one"), node("other"));
        let restarts = |budget: &mut Budget, second, of: &NodeId| {
            budget.may_write(at(second), Source::Sender(SMF), "restarted", Some(of))
        };
        let written = (0..6).map(|n| restarts(&mut budget, 10 * n, &one));
        assert_eq!(written.map(u32::from).sum::<u32>(), 1);
        let beside = restarts(&mut budget, 59, &other);
        assert!(beside, "another one at the same address");
        assert_eq!(told(&budget.advance(at(60))), 5);
        // Other kinds from there have lines of their own.
        assert!(restarts(&mut budget, 61, &one));
        assert_eq!(lines(&mut budget, at(62), SMF, 100), LINES);
        assert!(!restarts(&mut budget, 63, &one));
        assert_eq!(told(&budget.advance(at(120))), u64::from(101 - LINES));
    }

    #[test]
    fn many_addresses_get_no_more_than_few_and_no_more_memory() {
        let mut budget = Budget::new(Vec::new());
        let all: u32 = (0..100_000)
            .map(|number| lines(&mut budget, at(1), stranger(number), 2))
            .sum();
        assert_eq!(all, LINES_OF_STRANGERS);
        assert_eq!(budget.accounts.len(), STRANGERS);
        let summaries = budget.advance(at(100));
        assert_eq!(summaries.len(), 1, "one line about all of them");
        assert_eq!(told(&summaries), 200_000 - u64::from(LINES_OF_STRANGERS));
    }

    #[test]
    fn strangers_take_no_line_of_an_smf_that_is_there_or_configured() {
        let configured = stranger(7);
        let mut budget = Budget::new(vec![configured]);
        budget.associated(at(0), &node("settled"), SMF);
        for number in 100..200 {
            lines(&mut budget, at(60), stranger(number), 100);
        }
        assert_eq!(lines(&mut budget, at(61), SMF, 5), 5);
        assert_eq!(lines(&mut budget, at(61), configured, 5), 5);
        // One that associates and releases is none that is there.
        budget.associated(at(61), &node("smf"), stranger(300));
        assert_eq!(lines(&mut budget, at(62), stranger(300), 5), 0);
        // Nor is one that moves from address to address, and it takes no memory.
        for number in 301..400 {
            budget.associated(at(1000), &node("smf"), stranger(number));
            budget.associated(at(1000), &node("smf"), stranger(number));
        }
        assert_eq!(budget.associated.len(), 2);
        budget.released(&node("smf"));
        budget.released(&node("smf"));
        assert_eq!((budget.associated.len(), budget.addresses.len()), (1, 1));
    }

    #[test]
    fn an_smf_that_fails_all_the_time_is_told_of_by_itself() {
        let mut budget = Budget::new(Vec::new());
        budget.associated(at(0), &node("settled"), SMF);
        assert_eq!(lines(&mut budget, at(100), SMF, 50), LINES);
        let summaries = budget.advance(at(200));
        assert_eq!(summaries.len(), 1);
        assert_eq!(summaries[0].of, Some(Source::Sender(SMF)));
        assert_eq!(told(&summaries), 50 - u64::from(LINES));
    }

    #[test]
    fn refusals_without_end_hide_that_the_smf_is_silent() {
        let mut budget = Budget::new(vec![SMF]);
        for minute in 0..3 {
            let expected = if minute == 0 { LINES } else { SAMPLE };
            assert_eq!(lines(&mut budget, at(60 * minute), SMF, 1000), expected);
            let silent = |budget: &mut Budget| {
                budget.may_write(at(60 * minute), Source::Sender(SMF), "silent", None)
            };
            assert!(silent(&mut budget));
            let summaries = budget.advance(at(60 * minute + 60));
            assert_eq!(told(&summaries), 1000 - u64::from(expected));
        }
    }

    #[test]
    fn an_smf_is_known_by_its_address_where_it_is_alone_there() {
        let mut budget = Budget::new(Vec::new());
        assert_eq!(budget.smf_at(SMF), None);
        budget.associated(at(0), &node("one"), SMF);
        assert_eq!(budget.smf_at(SMF), Some(&node("one")));
        budget.associated(at(0), &node("other"), SMF);
        assert_eq!(budget.smf_at(SMF), None);
    }
}
