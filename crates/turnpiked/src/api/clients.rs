//! Budgets of those who ask REST: an IPv4 address, or an IPv6 /64, is one client. Programs of this host have none: they are the
//! operator's tools, or a proxy in front of many.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Requests that a client may save up, in seconds of its rate.
const SAVED_S: f64 = 2.0;
/// Clients that are told apart; those beyond share one budget.
const CLIENTS: usize = 4096;

/// Limits of each client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) connections: u32,
    pub(crate) requests_per_s: u32,
}

/// All clients that have a connection, or had one a moment ago. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    budget: Budget,
    accounts: Arc<Mutex<HashMap<Option<IpAddr>, Account>>>,
}

#[derive(Clone, Copy, Debug)]
struct Account {
    connections: u32,
    /// Requests that it may send at once, as of `at`.
    saved: f64,
    at: Instant,
}

impl Account {
    fn new(budget: Budget, now: Instant) -> Self {
        Self {
            connections: 0,
            saved: SAVED_S * f64::from(budget.requests_per_s),
            at: now,
        }
    }

    fn save(&mut self, budget: Budget, now: Instant) {
        let rate = f64::from(budget.requests_per_s);
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.saved = (self.saved + since * rate).min(SAVED_S * rate);
        self.at = now;
    }

    /// Nothing needs to be remembered of it.
    fn is_as_new(&self, budget: Budget, now: Instant) -> bool {
        let mut now_is = *self;
        now_is.save(budget, now);
        now_is.connections == 0 && now_is.saved >= SAVED_S * f64::from(budget.requests_per_s)
    }
}

impl Clients {
    pub(crate) fn new(budget: Budget) -> Self {
        Self {
            budget,
            accounts: Arc::default(),
        }
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<Option<IpAddr>, Account>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection from this address; `None`: the client has as many as it may.
    pub(crate) fn admit(&self, from: IpAddr, now: Instant) -> Option<Client> {
        let from = from.to_canonical();
        if from.is_loopback() {
            return Some(Client { of: None });
        }
        let mut accounts = self.locked();
        let mut key = Some(network(from));
        if !accounts.contains_key(&key) && accounts.len() >= CLIENTS {
            accounts.retain(|_, account| !account.is_as_new(self.budget, now));
            if accounts.len() >= CLIENTS {
                key = None;
            }
        }
        let new = || Account::new(self.budget, now);
        let account = accounts.entry(key).or_insert_with(new);
        if account.connections >= self.budget.connections {
            return None;
        }
        account.connections += 1;
        let clients = self.clone();
        Some(Client {
            of: Some((clients, key)),
        })
    }
}

/// One connection of a client.
#[derive(Debug)]
pub(crate) struct Client {
    /// `None`: of this host.
    of: Option<(Clients, Option<IpAddr>)>,
}

impl Client {
    pub(crate) fn is_local(&self) -> bool {
        self.of.is_none()
    }

    /// A request comes; `Err`: it is too many, and there is room for one after this time.
    pub(crate) fn asks(&self, now: Instant) -> Result<(), Duration> {
        let Some((clients, key)) = &self.of else {
            return Ok(());
        };
        let mut accounts = clients.locked();
        let Some(account) = accounts.get_mut(key) else {
            return Ok(());
        };
        account.save(clients.budget, now);
        if account.saved >= 1.0 {
            account.saved -= 1.0;
            return Ok(());
        }
        let rate = f64::from(clients.budget.requests_per_s);
        Err(Duration::from_secs_f64((1.0 - account.saved) / rate))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some((clients, key)) = &self.of
            && let Some(account) = clients.locked().get_mut(key)
        {
            account.connections = account.connections.saturating_sub(1);
        }
    }
}

/// The sender as far as it cannot choose it.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Budget = Budget {
        connections: 2,
        requests_per_s: 10,
    };

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_client_that_takes_all_connections_keeps_no_other_out() {
        let (clients, now) = (Clients::new(BUDGET), Instant::now());
        for (one, same) in [
            ("10.0.0.1", "::ffff:10.0.0.1"),
            ("2001:db8::1", "2001:db8::2"),
        ] {
            let mut held = vec![clients.admit(address(one), now).unwrap()];
            held.push(clients.admit(address(same), now).unwrap());
            assert!(clients.admit(address(one), now).is_none(), "{one}");
            held.pop();
            assert!(clients.admit(address(one), now).is_some(), "{one}");
        }
        assert!(clients.admit(address("10.0.0.2"), now).is_some());
        let local: Vec<_> = (0..100)
            .map(|_| clients.admit(address("127.0.0.1"), now).unwrap())
            .collect();
        assert!(local.iter().all(Client::is_local));
    }

    #[test]
    fn a_client_that_asks_without_pause_is_told_when_to_ask_again() {
        let (clients, now) = (Clients::new(BUDGET), Instant::now());
        let client = clients.admit(address("10.0.0.1"), now).unwrap();
        let other = clients.admit(address("10.0.0.2"), now).unwrap();
        let local = clients.admit(address("::1"), now).unwrap();
        let asked = (0..100).filter(|_| client.asks(now).is_ok()).count();
        assert_eq!(asked, 20, "two seconds of its rate");
        let wait = client.asks(now).unwrap_err();
        assert_eq!(wait, Duration::from_millis(100));
        assert_eq!(client.asks(now + wait / 2), Err(wait / 2));
        assert_eq!(client.asks(now + wait), Ok(()));
        // Another connection does not help; others are not concerned.
        let second = clients.admit(address("10.0.0.1"), now).unwrap();
        assert!(second.asks(now + wait).is_err() && other.asks(now).is_ok());
        assert!((0..1000).all(|_| local.asks(now).is_ok()));
    }

    #[test]
    fn many_addresses_take_no_more_memory_than_few() {
        let (clients, now) = (Clients::new(BUDGET), Instant::now());
        let many = |now| {
            (0..2 * CLIENTS as u32).for_each(|number| {
                let from = std::net::Ipv4Addr::from(0x0a00_0000 + number);
                let client = clients.admit(from.into(), now);
                let _ = client.map(|client| client.asks(now));
            });
        };
        many(now);
        assert_eq!(
            clients.locked().len(),
            CLIENTS + 1,
            "and one for all others"
        );
        // Addresses that have been away are forgotten, and a new one has its whole budget.
        let later = now + Duration::from_secs(10);
        let client = clients.admit(address("192.0.2.1"), later).unwrap();
        assert!(clients.locked().len() <= 2);
        assert_eq!((0..100).filter(|_| client.asks(later).is_ok()).count(), 20);
    }
}
