//! Names in place of users' identities, which are the same within one bundle and lead nowhere outside of it.

use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv6Addr};

use hmac::{Hmac, KeyInit, Mac};
use ipnet::IpNet;
use serde_json::Value;
use sha2::Sha256;

use super::addresses::{Addresses, Whose, embedded};
use super::member::Kind;
use super::secrets;

/// Octets of a name, of the 32 that HMAC-SHA-256 has: two of a million users have the same one in 2^25 bundles.
const NAME: usize = 8;
/// Octets of the longest IPv6 address as text.
const LONGEST_V6: usize = 45;
/// Shorter texts are no secrets, but words.
const SECRET_MIN: usize = 8;

/// Words before an identity.
const LABELS: [&str; 12] = [
    "imsi", "imeisv", "imei", "msisdn", "supi", "suci", "gpsi", "pei", "nai", "user_id", "user-id",
    "user id",
];
/// Last labels of names that look like a realm and are units of systemd.
const UNITS: [&str; 8] = [
    "service", "socket", "slice", "scope", "timer", "target", "mount", "device",
];

/// Replaces what it finds.
#[derive(Debug)]
pub(super) struct Redactor {
    /// Of this bundle alone; it is written nowhere. None: identities stay.
    key: Option<[u8; 32]>,
    addresses: Addresses,
    secrets: Vec<String>,
}

impl Redactor {
    /// `addresses`: sorted. `secrets`: texts that appear nowhere, whoever may know identities.
    pub(super) fn new(
        with_identities: bool,
        addresses: Addresses,
        secrets: Vec<String>,
    ) -> io::Result<Self> {
        let key = match with_identities {
            true => None,
            false => Some(random()?),
        };
        let secrets = secrets
            .into_iter()
            .filter(|secret| secret.len() >= SECRET_MIN)
            .collect();
        Ok(Self {
            key,
            addresses,
            secrets,
        })
    }

    pub(super) fn member(&self, kind: Kind, content: &[u8]) -> Vec<u8> {
        let json = (kind == Kind::Json)
            .then(|| serde_json::from_slice(content).ok())
            .flatten();
        if let Some(mut value) = json {
            self.value(&mut value);
            return format!("{value:#}\n").into_bytes();
        }
        let text = String::from_utf8_lossy(content);
        let text = match kind {
            Kind::Keys | Kind::Json => self.text(&secrets::cut_out(&text)),
            Kind::Text => self.text(&text),
            Kind::Log => self.free_text(&text),
        };
        text.into_bytes()
    }

    fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(members) => {
                let taken = std::mem::take(members);
                for (key, mut member) in taken {
                    // Changes of the configuration name theirs there.
                    if secrets::is_secret(&key)
                        && key != "key"
                        && !member.is_object()
                        && !member.is_null()
                        && !member.is_boolean()
                    {
                        member = secrets::CUT.into();
                    } else if self.key.is_some() && is_identity(&key) {
                        self.identities(&mut member);
                    } else {
                        self.value(&mut member);
                    }
                    members.insert(self.text(&key), member);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Of a member that holds nothing else.
    fn identities(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.identity(text),
            Value::Number(number) => *value = self.identity(&number.to_string()).into(),
            Value::Array(items) => items.iter_mut().for_each(|item| self.identities(item)),
            Value::Object(_) => self.value(value),
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn identity(&self, text: &str) -> String {
        let address = text.split('/').next().unwrap_or_default();
        match address.parse() {
            Ok(address) => self.user(canonical(address)),
            Err(_) => {
                let label = LABELS.iter().find_map(|label| {
                    let (label, rest) = text
                        .split_at_checked(label.len())
                        .filter(|(at, _)| at.eq_ignore_ascii_case(label))?;
                    rest.strip_prefix('-').map(|rest| (label, rest))
                });
                match label {
                    Some((label, rest)) => format!("{label}-{}", self.name("ue", rest)),
                    None => self.name("ue", text),
                }
            }
        }
    }

    fn user(&self, address: IpAddr) -> String {
        self.name("ue", &host(address))
    }

    fn name(&self, prefix: &str, identity: &str) -> String {
        let Some(key) = &self.key else {
            return identity.to_owned();
        };
        // It takes keys of any length.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
            return prefix.to_owned();
        };
        mac.update(identity.to_ascii_lowercase().as_bytes());
        let octets = mac.finalize().into_bytes();
        let digits: String = octets
            .iter()
            .take(NAME)
            .map(|octet| format!("{octet:02x}"))
            .collect();
        format!("{prefix}-{digits}")
    }

    /// Addresses, and what labels say to be identities.
    pub(super) fn text(&self, text: &str) -> String {
        self.scan(text, false)
    }

    /// Likewise, and numbers as long as those of subscribers and devices.
    fn free_text(&self, text: &str) -> String {
        self.scan(text, true)
    }

    fn scan(&self, text: &str, numbers: bool) -> String {
        let mut text = std::borrow::Cow::Borrowed(text);
        for secret in &self.secrets {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), secrets::CUT).into();
            }
        }
        if self.key.is_none() {
            return text.into_owned();
        }
        let mut out = String::with_capacity(text.len());
        let octets = text.as_bytes();
        let (mut at, mut copied) = (0, 0);
        while at < octets.len() {
            let found = self.labelled(&text, at);
            let found = found.or_else(|| self.realm(&text, at));
            let found = found.or_else(|| self.address(&text, at));
            let found = found.or_else(|| self.number(&text, at).filter(|_| numbers));
            match found {
                Some((from, end, name)) => {
                    out.push_str(&text[copied..from]);
                    match name {
                        Some(name) => out.push_str(&name),
                        None => out.push_str(&text[from..end]),
                    }
                    (at, copied) = (end, end);
                }
                None => at += 1,
            }
        }
        out.push_str(&text[copied..]);
        out
    }

    /// `imsi-001010000000001`, `"msisdn": "4915…"`, `NAI user@realm`.
    fn labelled(&self, text: &str, at: usize) -> Option<Found> {
        let octets = text.as_bytes();
        if !starts_word(octets, at) || !octets[at].is_ascii_alphabetic() {
            return None;
        }
        let label = LABELS.iter().find(|label| {
            let word = octets.get(at..at + label.len());
            word.is_some_and(|word| word.eq_ignore_ascii_case(label.as_bytes()))
        })?;
        let behind = at + label.len();
        let is_between = |octet: &&u8| b"-_=:;, \"'\\([{".contains(octet);
        let from = behind
            + octets[behind..]
                .iter()
                .take(6)
                .take_while(is_between)
                .count();
        let is_value = |octet: &&u8| {
            octet.is_ascii_alphanumeric() || b"@._+-%".contains(octet) || !octet.is_ascii()
        };
        let len = octets[from..].iter().take_while(is_value).count();
        let value = text[from..from + len].trim_end_matches(['.', '-']);
        let another = LABELS.iter().any(|label| {
            let word = value.as_bytes().get(..label.len());
            word.is_some_and(|word| word.eq_ignore_ascii_case(label.as_bytes()))
        });
        let is_set = octets[behind..from]
            .iter()
            .any(|octet| b"=:".contains(octet));
        let has_number =
            value.len() >= 4 && value.contains(|c: char| c.is_ascii_digit() || c == '@');
        let is_identity = has_number || is_set && !value.is_empty();
        // An address is found as one.
        let is_address = value.parse::<IpAddr>().is_ok();
        let found = from > behind && is_identity && !another && !is_address;
        found.then(|| (from, from + value.len(), Some(self.name("ue", value))))
    }

    /// A NAI: `user@realm`.
    fn realm(&self, text: &str, at: usize) -> Option<Found> {
        let octets = text.as_bytes();
        let is_user = |octet: u8| {
            octet.is_ascii_alphanumeric() || b"._+-%".contains(&octet) || !octet.is_ascii()
        };
        if !is_user(octets[at]) || at > 0 && is_user(octets[at - 1]) {
            return None;
        }
        let user = octets[at..]
            .iter()
            .take_while(|&&octet| is_user(octet))
            .count();
        let sign = at + user;
        if octets.get(sign) != Some(&b'@') {
            return None;
        }
        let is_name = |octet: &&u8| octet.is_ascii_alphanumeric() || b".-".contains(octet);
        let len = octets[sign + 1..].iter().take_while(is_name).count();
        let realm = text[sign + 1..sign + 1 + len].trim_end_matches(['.', '-']);
        let (_, last) = realm.rsplit_once('.')?;
        let is_realm = last.len() >= 2
            && last.bytes().all(|octet| octet.is_ascii_alphabetic())
            && !UNITS.contains(&last);
        let end = sign + 1 + realm.len();
        is_realm.then(|| (at, end, Some(self.name("ue", &text[at..end]))))
    }

    /// 15 or 16 digits: IMSI, IMEI, IMEISV.
    fn number(&self, text: &str, at: usize) -> Option<Found> {
        let octets = text.as_bytes();
        if !octets[at].is_ascii_digit() || at > 0 && octets[at - 1].is_ascii_digit() {
            return None;
        }
        let len = octets[at..]
            .iter()
            .take_while(|octet| octet.is_ascii_digit())
            .count();
        let found = len == 15 || len == 16;
        found.then(|| (at, at + len, Some(self.name("ue", &text[at..at + len]))))
    }

    fn address(&self, text: &str, at: usize) -> Option<Found> {
        let octets = text.as_bytes();
        if !octets[at].is_ascii_hexdigit() && octets[at] != b':' {
            return None;
        }
        self.v6(text, at).or_else(|| self.v4(text, at))
    }

    fn v4(&self, text: &str, at: usize) -> Option<Found> {
        let octets = text.as_bytes();
        if !octets[at].is_ascii_digit() || at > 0 && octets[at - 1].is_ascii_digit() {
            return None;
        }
        let mut end = at;
        let mut address = [0; 4];
        for (index, part) in address.iter_mut().enumerate() {
            if index > 0 {
                (octets.get(end) == Some(&b'.')).then_some(())?;
                end += 1;
            }
            let digits = octets[end..]
                .iter()
                .take_while(|octet| octet.is_ascii_digit())
                .count();
            // Zeros before are how some programs fill columns.
            *part = text[end..end + digits].parse().ok()?;
            end += digits;
        }
        self.judge(text, (at, end), IpAddr::from(address))
    }

    fn v6(&self, text: &str, at: usize) -> Option<Found> {
        let octets = text.as_bytes();
        let is_part = |octet: &&u8| octet.is_ascii_hexdigit() || b":.".contains(octet);
        let run = octets[at..]
            .iter()
            .take(LONGEST_V6)
            .take_while(is_part)
            .count();
        let run = &text[at..at + run];
        let ends = if run.contains("::") {
            2..=run.len()
        } else {
            // Without that there are eight groups, or six and an IPv4 address: behind their last colon it ends. Times and
            // addresses of Ethernet have fewer, and dumps of octets need not be read at each length.
            let (colon, rest) = if run.contains('.') { (5, 16) } else { (6, 5) };
            let (last, _) = run.match_indices(':').nth(colon)?;
            last + 2..=run.len().min(last + rest)
        };
        // The longest one that is an identity, as a port or more digits may follow.
        ends.rev().find_map(|len| {
            let address: Ipv6Addr = run[..len].parse().ok()?;
            self.judge(text, (at, at + len), IpAddr::V6(address))
        })
    }

    /// Fate of the address between these places; none: it stays.
    fn judge(&self, text: &str, (at, end): (usize, usize), address: IpAddr) -> Option<Found> {
        let octets = text.as_bytes();
        let of_ipv4 = match address {
            IpAddr::V6(address) => embedded(address).map(IpAddr::V4),
            IpAddr::V4(_) => None,
        };
        let users = of_ipv4.filter(|&address| self.addresses.whose(address) == Whose::User);
        let meant = users.unwrap_or(canonical(address));
        // A whole prefix is judged as one.
        let digits = octets[end..]
            .iter()
            .skip(1)
            .take_while(|octet| octet.is_ascii_digit())
            .count();
        if octets.get(end) == Some(&b'/') && (1..=3).contains(&digits) {
            let behind = end + 1 + digits;
            let net = text[end + 1..behind]
                .parse()
                .ok()
                .and_then(|len| IpNet::new(address, len).ok());
            let stands_alone = is_alone(octets, at, behind);
            if net.is_some_and(|net| users.is_none() && self.addresses.is_network(net))
                && stands_alone
            {
                return Some((at, behind, None));
            }
        }
        match self.addresses.whose(meant) {
            Whose::User => Some((at, end, Some(self.user(meant)))),
            Whose::Unknown if is_alone(octets, at, end) => {
                Some((at, end, Some(self.name("ip", &host(meant)))))
            }
            Whose::Network | Whose::Unknown => None,
        }
    }
}

/// From, to, and the name in its place; none: it stays, and nothing in it is looked at.
type Found = (usize, usize, Option<String>);

/// Whether the text between is not a part of a word or of a longer number.
fn is_alone(octets: &[u8], at: usize, end: usize) -> bool {
    let is_word = |octet: u8| octet.is_ascii_alphanumeric() || octet == b'_';
    let mut before = octets[..at].iter().rev();
    let last = before.next();
    // `linux-5.10.0.1`, `1.3.6.1.4.1`.
    let began =
        matches!(last, Some(b'.' | b'-')) && before.next().is_some_and(|&octet| is_word(octet));
    let mut behind = octets[end..].iter();
    let next = behind.next();
    let goes_on =
        matches!(next, Some(b'.' | b':')) && behind.next().is_some_and(|&octet| is_word(octet));
    // Behind an address of IPv4.
    let is_port = next == Some(&b':') && octets[at..end].contains(&b'.');
    let in_word = [last, next]
        .into_iter()
        .flatten()
        .any(|&octet| is_word(octet));
    !in_word && !began && (!goes_on || is_port)
}

fn starts_word(octets: &[u8], at: usize) -> bool {
    at == 0 || !octets[at - 1].is_ascii_alphanumeric()
}

fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// Text that stands for the host: IPv6 by its /64, which is one UE's.
fn host(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let high = u128::from(address) >> 64 << 64;
            Ipv6Addr::from(high).to_string()
        }
    }
}

/// Whether a member of this name holds identities and nothing else.
fn is_identity(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    key == "ue" || LABELS.contains(&key.as_str())
}

fn random() -> io::Result<[u8; 32]> {
    let mut key = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut key)?;
    Ok(key)
}
