//! Datagrams of strangers, senders without association: they wait until peers are served, and share little of
//! the control thread.
//!
//! Anybody who reaches N4 may ask whether we are alive, or for an association, so strangers are answered; but
//! a datagram can hold 128 messages, and what one host can send is more than a thread can answer. A turn of
//! theirs comes after peers' datagrams, and is short. Addresses are served by turns, so that a new SMF gets
//! its association while others flood. What finds no room is dropped.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use session::{Time, messages_in};

/// Addresses that have datagrams here at a time. More are no SMFs that start, but forged.
const HOSTS: usize = 64;
/// Octets that may wait of one address: any datagram, or hundreds of usual ones.
const OCTETS: usize = 1 << 16;
/// Octets that a datagram takes beside its own.
const OVERHEAD: usize = 64;
/// A turn ends with the datagram that reaches this.
const MESSAGES_PER_TURN: u32 = 64;
/// A few percent of the thread: some microseconds each, with the answer. 64 SMFs that have all lost us at
/// once do not ask more.
const MESSAGES_PER_S: u32 = 10_000;
/// Part of that share that one message takes.
const SHARE: Duration = Duration::from_nanos(1_000_000_000 / MESSAGES_PER_S as u64);
/// Most that is saved up of the share while nobody asks: 1000 messages.
const SAVED: Duration = Duration::from_millis(100);

/// A datagram that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) from: SocketAddr,
    pub(crate) octets: Box<[u8]>,
    messages: u32,
}

/// Datagrams of one address that wait.
#[derive(Debug)]
struct Host {
    host: IpAddr,
    /// Messages served of it, as far as those of others that were there meanwhile: the least is next.
    served: u64,
    octets: usize,
    waiting: VecDeque<Waiting>,
}

/// All that waits: at most 4 MiB.
#[derive(Debug, Default)]
pub(crate) struct Strangers {
    hosts: Vec<Host>,
    /// `served` of an address that is new here: level with the one served last.
    level: u64,
    /// Until then their share is used up.
    used_until: Time,
}

impl Strangers {
    /// Keep a datagram for its turn. `Err`: there is no room; so many messages are dropped.
    pub(crate) fn put(&mut self, from: SocketAddr, octets: &[u8]) -> Result<(), u32> {
        let messages = messages_in(octets);
        let size = octets.len() + OVERHEAD;
        let key = host(from.ip());
        let place = self.hosts.iter().position(|host| host.host == key);
        let place = match place {
            Some(place) => place,
            None if self.hosts.len() == HOSTS => return Err(messages),
            None => {
                self.hosts.push(Host {
                    host: key,
                    served: self.level,
                    octets: 0,
                    waiting: VecDeque::new(),
                });
                self.hosts.len() - 1
            }
        };
        let host = &mut self.hosts[place];
        // The first always fits.
        if host.octets > 0 && host.octets + size > OCTETS {
            return Err(messages);
        }
        host.octets += size;
        host.waiting.push_back(Waiting {
            from,
            octets: octets.into(),
            messages,
        });
        Ok(())
    }

    /// Datagrams of one turn, within strangers' share; of each address in order of arrival.
    pub(crate) fn turn(&mut self, now: Time) -> impl Iterator<Item = Waiting> + '_ {
        let mut served = 0;
        std::iter::from_fn(move || {
            if served >= MESSAGES_PER_TURN || self.used_until > now {
                return None;
            }
            let next = self.next()?;
            served += next.messages;
            let saved = Time(now.0.saturating_sub(SAVED.as_nanos() as u64));
            self.used_until = self.used_until.max(saved).after(SHARE * next.messages);
            Some(next)
        })
    }

    fn next(&mut self) -> Option<Waiting> {
        let hosts = self.hosts.iter_mut().enumerate();
        let (place, host) = hosts.min_by_key(|(_, host)| host.served)?;
        let next = host.waiting.pop_front();
        self.level = host.served;
        if let Some(next) = &next {
            host.served += u64::from(next.messages);
            host.octets -= next.octets.len() + OVERHEAD;
        }
        if host.waiting.is_empty() {
            self.hosts.swap_remove(place);
        }
        next
    }

    /// When there is a turn to be had.
    pub(crate) fn next_turn(&self) -> Option<Time> {
        (!self.hosts.is_empty()).then_some(self.used_until)
    }
}

/// The sender as far as it cannot choose it: whoever has an IPv6 address has its /64.
fn host(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if !v6.is_unicast_link_local() => {
            Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Later than anything that was served.
    const LATE: Time = Time(1_000_000_000_000);

    fn address(number: u32) -> SocketAddr {
        let [_, a, b, c] = number.to_be_bytes();
        SocketAddr::from(([10, a, b, c], 8805))
    }

    /// Heartbeat Requests by hand, FO in all but the last (TS 29.244, 7.2.2.1).
    fn bundle(messages: usize) -> Vec<u8> {
        let mut octets = [0x24, 1, 0, 12, 0, 0, 1, 0, 0, 96, 0, 4, 0, 0, 0, 1].repeat(messages);
        let last = octets.len() - 16;
        octets[last] = 0x20;
        octets
    }

    /// One turn: from whom how many messages.
    fn turn(strangers: &mut Strangers, now: Time) -> Vec<(SocketAddr, u32)> {
        let served = strangers.turn(now);
        served.map(|next| (next.from, next.messages)).collect()
    }

    #[test]
    fn a_turn_is_short_however_many_messages_a_datagram_holds() {
        let mut strangers = Strangers::default();
        for messages in [1, 127, 128, 300] {
            strangers.put(address(1), &bundle(messages)).unwrap();
        }
        let of_one = |messages| (address(1), messages);
        assert_eq!(turn(&mut strangers, LATE), [of_one(1), of_one(127)]);
        assert_eq!(turn(&mut strangers, LATE), [of_one(128)]);
        assert_eq!(
            turn(&mut strangers, LATE),
            [of_one(128)],
            "more are not read"
        );
        assert_eq!(turn(&mut strangers, LATE), []);
        for _ in 0..100 {
            strangers.put(address(1), &bundle(1)).unwrap();
        }
        assert_eq!(turn(&mut strangers, LATE).len(), 64);
        assert_eq!(turn(&mut strangers, LATE).len(), 36);
    }

    #[test]
    fn their_share_is_bounded_however_many_turns_there_are() {
        let mut strangers = Strangers::default();
        let mut served_until = |now| {
            let mut served = 0;
            for _ in 0..100 {
                while strangers.put(address(1), &bundle(16)).is_ok() {}
                served += turn(&mut strangers, now)
                    .iter()
                    .map(|(_, n)| n)
                    .sum::<u32>();
            }
            (served, strangers.next_turn())
        };
        let (saved, next) = served_until(LATE);
        assert!((1000..1016).contains(&saved), "{saved}");
        let next = next.unwrap();
        assert!(next > LATE && next < LATE.after(SHARE * 16));
        let (more, _) = served_until(LATE.after(Duration::from_secs(60)));
        assert!((1000..1016).contains(&more), "{more}");
        let (more, _) = served_until(LATE.after(Duration::from_millis(60_050)));
        assert!((484..=516).contains(&more), "{more}");
    }

    #[test]
    fn a_flood_of_bundles_leaves_a_single_request_its_turn() {
        let mut strangers = Strangers::default();
        let mut now = LATE;
        while strangers.put(address(1), &bundle(127)).is_ok() {}
        turn(&mut strangers, now);
        // An SMF that has not been here comes before what waits, also with several requests.
        for _ in 0..100 {
            strangers.put(address(2), &bundle(1)).unwrap();
        }
        let mut served = [0, 0];
        while served[1] < 100 {
            now = now.after(SHARE * 200);
            let next = turn(&mut strangers, now);
            if served == [0, 0] {
                assert_eq!(next.first(), Some(&(address(2), 1)));
            }
            for (from, messages) in next {
                served[usize::from(from != address(1))] += messages;
            }
        }
        assert!(served[0] <= 127, "{served:?}");
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut strangers = Strangers::default();
        let largest = vec![0; 65_507];
        assert_eq!(strangers.put(address(0), &largest), Ok(()));
        assert_eq!(strangers.put(address(0), &[]), Err(1));
        // One after the other, a flood of many addresses.
        for number in 1..1000 {
            let kept = (0..).find(|_| strangers.put(address(number), &bundle(127)).is_err());
            assert_eq!(kept.unwrap(), if number < 64 { 31 } else { 0 }, "{number}");
        }
        assert_eq!(strangers.put(address(1000), &bundle(127)), Err(127));
        // Each turn makes room again, and in the end nothing is left.
        let mut now = LATE;
        let mut served = 0;
        while let Some(next) = strangers.next_turn() {
            now = now.max(next);
            served += turn(&mut strangers, now).len();
        }
        assert_eq!(served, 1 + 63 * 31);
        assert!(strangers.hosts.is_empty());
    }

    #[test]
    fn datagrams_without_octets_are_bounded_too() {
        let mut strangers = Strangers::default();
        let kept = (0..).find(|_| strangers.put(address(1), &[]).is_err());
        assert_eq!(kept, Some(OCTETS / OVERHEAD));
    }

    #[test]
    fn one_host_is_one_address_whatever_it_calls_itself() {
        let same = [
            ("10.0.0.1", "::ffff:10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("2001:db8::1", "2001:db8::ffff:0:0:1", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
            ("fe80::1", "fe80::2", false),
        ];
        for (one, other, is_same) in same {
            let [one, other] = [one, other].map(|text| host(text.parse().unwrap()));
            assert_eq!(one == other, is_same, "{one} {other}");
        }
    }
}
