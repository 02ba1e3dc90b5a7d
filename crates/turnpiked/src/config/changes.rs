//! Two configurations side by side: which keys differ, and what it takes to bring each change into force.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use ipnet::IpNet;
use serde_json::{Map, Value};

use super::forwarding_policy::ForwardingPolicy;
use super::{Config, DatapathKind, Limits, NetworkInstance};

/// A key that is not as it was.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    /// `n4.allow`, `network_instance[internet].pools`; lists of tables by name.
    pub(crate) key: String,
    /// `None`: it was not there.
    pub(crate) before: Option<Value>,
    /// `None`: it is there no more.
    pub(crate) after: Option<Value>,
    pub(crate) takes: Takes,
}

/// Effort that a change takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// The running process goes on with it.
    Nothing,
    /// The program starts anew in the same process, and takes over sessions and packets.
    TakeOver,
    /// A restart by the operator, for this reason.
    Restart(String),
}

impl Takes {
    fn restart(reason: &str) -> Self {
        Self::Restart(reason.to_owned())
    }

    /// A take-over where this holds.
    fn take_over_if(holds: bool, otherwise: &str) -> Self {
        match holds {
            true => Self::TakeOver,
            false => Self::restart(otherwise),
        }
    }
}

/// All changes, in the order of keys.
pub(crate) fn changes(before: &Config, after: &Config) -> Vec<Change> {
    let values = [before, after].map(|config| serde_json::to_value(config).unwrap_or_default());
    let mut found = Vec::new();
    let [old, new] = &values;
    compare("", Some(old), Some(new), &mut found);
    let judged = found.into_iter().map(|(key, old, new)| Change {
        takes: judge(&key, (old, new), before, after),
        before: old.cloned(),
        after: new.cloned(),
        key,
    });
    judged.collect()
}

/// Why the program cannot start anew without losing packets; `None`: it can.
pub(crate) fn hindrance(config: &Config) -> Option<&'static str> {
    let state = &config.state;
    match config.datapath.kind {
        DatapathKind::Xdp if state.dir.is_some() && state.bpffs.is_some() => None,
        DatapathKind::Xdp => {
            Some("packets would stop meanwhile, without state.dir and state.bpffs")
        }
        DatapathKind::Kernel | DatapathKind::Dpdk => {
            Some("packets would stop meanwhile, as they go through this process")
        }
    }
}

type Found<'v> = (String, Option<&'v Value>, Option<&'v Value>);

fn compare<'v>(
    key: &str,
    before: Option<&'v Value>,
    after: Option<&'v Value>,
    found: &mut Vec<Found<'v>>,
) {
    match (before, after) {
        _ if before == after => {}
        (Some(Value::Object(old)), Some(Value::Object(new))) => tables(key, old, new, found),
        (Some(Value::Array(old)), Some(Value::Array(new)))
            if are_tables(old) && are_tables(new) =>
        {
            let order = |items: &[Value], others: &BTreeMap<String, &Value>| -> Vec<String> {
                let names = names(items).into_iter();
                names.filter(|name| others.contains_key(name)).collect()
            };
            let [by_old, by_new] = [old, new].map(|items| {
                let named = names(items).into_iter().zip(items);
                named.collect::<BTreeMap<_, _>>()
            });
            if order(old, &by_new) != order(new, &by_old) {
                found.push((key.to_owned(), before, after));
            }
            let all: BTreeSet<&String> = by_old.keys().chain(by_new.keys()).collect();
            for name in all {
                let of = |by: &BTreeMap<String, &'v Value>| by.get(name).copied();
                compare(&format!("{key}[{name}]"), of(&by_old), of(&by_new), found);
            }
        }
        _ => found.push((key.to_owned(), before, after)),
    }
}

fn tables<'v>(
    key: &str,
    old: &'v Map<String, Value>,
    new: &'v Map<String, Value>,
    found: &mut Vec<Found<'v>>,
) {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for name in names {
        let below = match key {
            "" => name.clone(),
            key => format!("{key}.{name}"),
        };
        // A list that is left out is an empty one.
        let nothing = |value: Option<&'v Value>, other: Option<&Value>| match (value, other) {
            (None, Some(Value::Array(_))) => Some(&EMPTY),
            (value, _) => value,
        };
        let (before, after) = (old.get(name), new.get(name));
        compare(
            &below,
            nothing(before, after),
            nothing(after, before),
            found,
        );
    }
}

static EMPTY: Value = Value::Array(Vec::new());

fn are_tables(items: &[Value]) -> bool {
    items.iter().all(Value::is_object)
}

/// Of tables in a list; each further one of a name has its number behind it.
fn names(items: &[Value]) -> Vec<String> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let name = |item: &Value| {
        let named = ["name", "identifier"].into_iter();
        let name = named.filter_map(|key| item.get(key)?.as_str()).next();
        let of_flow = || {
            let mut name = format!("qfi {}", item.get("qfi")?);
            if let Some(instance) = item.get("network_instance").and_then(Value::as_str) {
                let _ = write!(name, " {instance}");
            }
            Some(name)
        };
        name.map(str::to_owned).or_else(of_flow).unwrap_or_default()
    };
    let numbered = items.iter().map(|item| {
        let name = name(item);
        let count = seen.entry(name.clone()).or_default();
        *count += 1;
        match count {
            1 => name,
            count => format!("{name} {count}"),
        }
    });
    numbered.collect()
}

/// A key without the names in it.
fn pattern(key: &str) -> String {
    let mut depth = 0;
    let outside = key.chars().filter(|&c| {
        depth += i32::from(c == '[');
        let is_outside = depth == 0;
        depth -= i32::from(c == ']');
        is_outside
    });
    outside.collect()
}

/// Each key of the file, unless all that it can say is the key above it.
fn judge(
    key: &str,
    (old, new): (Option<&Value>, Option<&Value>),
    before: &Config,
    after: &Config,
) -> Takes {
    let is_listed = key.ends_with(']');
    let was_there = old.is_some();
    match pattern(key).as_str() {
        "node.id" => Takes::restart("SMFs know this UPF, and sessions are kept, by it"),
        "n4.listen" | "n4.listen_also" => {
            Takes::restart("SMFs know their associations and sessions by this address")
        }
        "datapath.kind" | "datapath.mode" => {
            Takes::restart("packets would stop while another data path takes their place")
        }
        "state.dir" => Takes::restart("sessions are kept there, and not looked for elsewhere"),
        // Of interface, network_instance: one that comes or goes.
        "interface" if is_listed => Takes::take_over_if(
            !was_there,
            "sessions may have tunnels and ways by this interface",
        ),
        "interface.role" => Takes::restart("sessions may have tunnels and ways by this interface"),
        "interface.addresses" => Takes::take_over_if(
            contains_all(new, old),
            "sessions may have tunnels that end at an address which would go",
        ),
        "interface.network_instances" => Takes::take_over_if(
            contains_all(new, old) && is_empty(new) == is_empty(old),
            "sessions may have tunnels by a network instance which would go",
        ),
        "network_instance.interface" => {
            Takes::restart("users of both interfaces may have the same addresses")
        }
        "network_instance" if is_listed => {
            Takes::take_over_if(!was_there, "sessions may name this network instance")
        }
        "network_instance.pools" => Takes::take_over_if(
            by_name(key, before, after).is_none_or(|(old, new)| covers(&pools(new), &pools(old))),
            "sessions may have addresses that would be in no pool",
        ),
        "network_instance.framed_routes" => Takes::take_over_if(
            by_name(key, before, after).is_none_or(|(old, new)| allows_framed(old, new)),
            "sessions may have framed routes that would not be allowed",
        ),
        "predefined_rule" if is_listed => Takes::take_over_if(
            keeps_predefined(before, after),
            "sessions may have this rule activated",
        ),
        "predefined_rule.direction" => Takes::take_over_if(
            keeps_predefined(before, after),
            "sessions may have this rule activated for the other direction",
        ),
        "forwarding_policy" if is_listed => {
            Takes::take_over_if(!was_there, "FARs of sessions may name this policy")
        }
        "forwarding_policy.towards_access" => Takes::take_over_if(
            new.and_then(Value::as_str) == Some(ForwardingPolicy::LENIENT),
            "FARs of sessions may name this policy towards access",
        ),
        limit if limit.starts_with("limits.") => judge_limit(limit, &before.limits, &after.limits),

        key if has(AT_ONCE, key) => Takes::Nothing,
        key if has(BY_TAKE_OVER, key) => Takes::TakeOver,
        _ => Takes::restart(NOT_JUDGED),
    }
}

/// Keys that the running process goes on with, whatever they say.
const AT_ONCE: &str = "n4.allow n4.smf n4.heartbeat_s n4.t1_ms n4.n1 n4.retry_at_most_s n4.path_failure_retention_s
    n4.graceful_release_s n4.overload_at_percent n4.peer_port n4.busy_poll_us gtpu.error_indications_per_s api.token_file api.hosts
    log.level state.unmanaged_s state.on_stop";

/// Keys that take a start, and no session, whatever they say.
const BY_TAKE_OVER: &str = "n4.receive_buffer_mib
    datapath.workers datapath.cpus datapath.control_cpus datapath.busy_poll datapath.settle_s datapath.icmp_errors_per_s
    datapath.dpdk.eal datapath.dpdk.mbufs datapath.dpdk.model datapath.dpdk.rx_cpus datapath.dpdk.ring
    interface interface.name interface.spread_cpus interface.rx_cpus interface.device
    interface.capacity_kbps
    network_instance network_instance.name network_instance.table network_instance.ue_to_ue
    network_instance.emergency network_instance.capacity_uplink_kbps network_instance.capacity_downlink_kbps
    network_instance.router.addresses network_instance.router.advertise network_instance.router.lifetime_s
    network_instance.router.mtu network_instance.router.dns
    predefined_rule predefined_rule.name predefined_rule.precedence predefined_rule.flows predefined_rule.action
    predefined_rule.network_instance predefined_rule.gate predefined_rule.mbr_uplink_kbps predefined_rule.mbr_downlink_kbps
    predefined_rule.qfi
    forwarding_policy forwarding_policy.identifier forwarding_policy.next_hops forwarding_policy.interface forwarding_policy.table
    forwarding_policy.fallback
    group group.name group.network_instance group.ues group.capacity_uplink_kbps group.capacity_downlink_kbps
    qos.mode qos.granularity_us qos.slots qos.frames qos.burst_ms qos.burst_min_bytes qos.l4s_us qos.guaranteed_percent
    qos.flow qos.flow.qfi qos.flow.network_instance qos.flow.five_qi qos.flow.weight qos.flow.dscp qos.flow.mode
    gtpu.restart_grace_s gtpu.echo_per_s gtpu.echo_interval_s gtpu.echo_t3_ms gtpu.echo_n3 gtpu.udp6_checksum
    buffering.max_mib buffering.max_packets buffering.max_packets_per_session buffering.max_age_s buffering.ring_mib
    api.listen api.max_connections api.client_connections api.client_requests_per_s log.format
    usage_log.path usage_log.max_mb usage_log.files state.bpffs";

fn has(keys: &str, key: &str) -> bool {
    keys.split_ascii_whitespace().any(|one| one == key)
}

/// Of a key that [`judge`] does not know.
const NOT_JUDGED: &str = "it is read at the start alone";

fn judge_limit(key: &str, before: &Limits, after: &Limits) -> Takes {
    let fewer = match key {
        "limits.shares" => Some(after.shares < before.shares),
        "limits.emergency_sessions" => Some(
            after.emergency_sessions.is_some()
                && after.emergency_sessions < before.emergency_sessions,
        ),
        _ => None,
    };
    if let Some(fewer) = fewer {
        let reason = "sessions may have what would be kept for others";
        return Takes::take_over_if(fewer, reason);
    }
    let [old, new] = [before, after].map(|limits| match key {
        "limits.sessions" => limits.sessions,
        "limits.entries" => limits.entries(),
        "limits.filters" => limits.filters(),
        "limits.smfs" => limits.smfs,
        "limits.gnbs" => limits.gnbs,
        "limits.neighbours" => limits.neighbours,
        "limits.routes" => limits.routes,
        "limits.pdrs_per_session" => limits.pdrs_per_session,
        "limits.fars_per_session" => limits.fars_per_session,
        "limits.qers_per_session" => limits.qers_per_session,
        "limits.urrs_per_session" => limits.urrs_per_session,
        "limits.bars_per_session" => limits.bars_per_session,
        "limits.filters_per_session" => limits.filters_per_session,
        _ => u32::MAX,
    });
    match old {
        u32::MAX => Takes::restart(NOT_JUDGED),
        _ => Takes::take_over_if(new >= old, "more than that may be in use"),
    }
}

/// Whether a list has all that another one has.
fn contains_all(list: Option<&Value>, of: Option<&Value>) -> bool {
    let items = |value: Option<&'_ Value>| value.and_then(Value::as_array).cloned();
    let (list, of) = (
        items(list).unwrap_or_default(),
        items(of).unwrap_or_default(),
    );
    of.iter().all(|item| list.contains(item))
}

fn is_empty(list: Option<&Value>) -> bool {
    list.and_then(Value::as_array).is_none_or(Vec::is_empty)
}

/// The network instance of a key, as it was and as it is; `None`: it has come or gone.
fn by_name<'c>(
    key: &str,
    before: &'c Config,
    after: &'c Config,
) -> Option<(&'c NetworkInstance, &'c NetworkInstance)> {
    let (_, rest) = key.split_once('[')?;
    let (name, _) = rest.rsplit_once(']')?;
    let of = |config: &'c Config| config.network_instance.iter().find(|ni| ni.name == name);
    of(before).zip(of(after))
}

fn pools(of: &NetworkInstance) -> Vec<IpNet> {
    of.pools.iter().map(|pool| pool.0).collect()
}

/// Whether each of some networks lies within one of others.
fn covers(networks: &[IpNet], of: &[IpNet]) -> bool {
    of.iter()
        .all(|one| networks.iter().any(|network| network.contains(one)))
}

fn allows_framed(before: &NetworkInstance, after: &NetworkInstance) -> bool {
    let nets = |of: &NetworkInstance| -> Option<Vec<IpNet>> {
        let listed = of.framed_routes.as_ref()?;
        Some(listed.iter().map(|net| net.0).collect())
    };
    match (nets(before), nets(after)) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(old), Some(new)) => covers(&new, &old),
    }
}

/// Whether each rule that PDRs may have activated, by its name and its place among its namesakes, is there for as many directions as before.
fn keeps_predefined(before: &Config, after: &Config) -> bool {
    let ways = |config: &Config| -> BTreeSet<(String, usize, bool)> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let mut ways = BTreeSet::new();
        for rule in &config.predefined_rule {
            let nth = counts.entry(&rule.name).or_default();
            ways.extend(
                rule.uplinks()
                    .map(|uplink| (rule.name.clone(), *nth, uplink)),
            );
            *nth += 1;
        }
        ways
    };
    ways(before).is_subset(&ways(after))
}

/// Networks and addresses that would be new ones of the UPF, each with its key: what a framed route of a session must not have.
pub(crate) fn newcomers(before: &Config, after: &Config) -> Vec<(String, IpNet)> {
    let nets = |config: &Config| {
        let pools = config.network_instance.iter().flat_map(|ni| {
            let key = format!("network_instance[{}].pools", ni.name);
            pools(ni).into_iter().map(move |net| (key.clone(), net))
        });
        let routers = config.network_instance.iter().flat_map(|ni| {
            let key = format!("network_instance[{}].router.addresses", ni.name);
            let addresses = ni.router.addresses.iter();
            addresses.map(move |&ip| (key.clone(), IpNet::from(ip)))
        });
        let interfaces = config.interface.iter().flat_map(|of| {
            let key = format!("interface[{}].addresses", of.name);
            let addresses = of.addresses.iter();
            addresses.map(move |&ip| (key.clone(), IpNet::from(ip)))
        });
        pools.chain(routers).chain(interfaces).collect::<Vec<_>>()
    };
    let old: Vec<IpNet> = nets(before).into_iter().map(|(_, net)| net).collect();
    let mut new = nets(after);
    new.retain(|(_, net)| !covers(&old, &[*net]));
    new
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    const EXAMPLE: &str = include_str!("../../../../deploy/turnpiked.example.toml");

    fn example() -> Config {
        let mut config = parse(EXAMPLE).unwrap();
        config.state.dir = Some("/run/turnpike".into());
        config.state.bpffs = Some("/run/turnpike-bpf".into());
        config
    }

    fn after(change: impl FnOnce(&mut Config)) -> Vec<Change> {
        let before = example();
        let mut config = before.clone();
        change(&mut config);
        changes(&before, &config)
    }

    fn takes(change: impl FnOnce(&mut Config)) -> Vec<(String, Takes)> {
        let changes = after(change).into_iter();
        changes.map(|of| (of.key, of.takes)).collect()
    }

    /// Keys of the file as [`compare`] names them, those that are commented out included.
    fn keys() -> BTreeSet<String> {
        let mut table = String::new();
        let mut keys = BTreeSet::new();
        for line in EXAMPLE.lines() {
            let line = line.strip_prefix("# ").unwrap_or(line);
            let line = line.split(" #").next().unwrap_or(line).trim();
            let name = |text: &str| text.trim_matches(['[', ']']).to_owned();
            if line.starts_with('[') && line.ends_with(']') {
                table = name(line);
            } else if let Some((key, _)) = line.split_once(" = ")
                && key
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b"_0123456789".contains(&b))
            {
                keys.insert(format!("{table}.{key}"));
            }
        }
        keys
    }

    #[test]
    fn each_key_of_the_example_is_judged() {
        let config = example();
        let keys = keys();
        assert!(keys.len() > 120, "{}", keys.len());
        let unjudged = keys.iter().filter(|key| {
            let takes = judge(key, (None, Some(&Value::Null)), &config, &config);
            takes == Takes::restart(NOT_JUDGED)
        });
        assert_eq!(unjudged.collect::<Vec<_>>(), Vec::<&String>::new());
        let takes = judge("n4.new_key", (None, None), &config, &config);
        assert_eq!(takes, Takes::restart(NOT_JUDGED));
    }

    #[test]
    fn the_same_is_no_change() {
        assert_eq!(after(|_| {}), []);
    }

    #[test]
    fn a_change_says_what_was_and_what_is() {
        let changes = after(|config| config.n4.smf = vec!["10.100.0.9:8805".parse().unwrap()]);
        let [
            Change {
                key,
                before,
                after,
                takes,
            },
        ] = &changes[..]
        else {
            panic!("{changes:?}")
        };
        assert_eq!((key.as_str(), takes), ("n4.smf", &Takes::Nothing));
        let text = |value: &Option<Value>| value.as_ref().map(Value::to_string);
        assert_eq!(text(before).as_deref(), Some("[]"));
        assert_eq!(text(after).as_deref(), Some(r#"["10.100.0.9:8805"]"#));
    }

    #[test]
    fn limits_grow_and_do_not_shrink() {
        let key = || "limits.sessions".to_owned();
        let up = takes(|config| config.limits.sessions += 1);
        assert_eq!(up, [(key(), Takes::TakeOver)]);
        let down = takes(|config| config.limits.sessions -= 1);
        let reason = Takes::restart("more than that may be in use");
        assert_eq!(down, [(key(), reason)]);
    }

    #[test]
    fn pools_grow_and_do_not_shrink() {
        let pool = |text: &str| super::super::Prefix(text.parse().unwrap());
        let takes = |pools: &[&str]| {
            let pools = pools.iter().map(|text| pool(text)).collect();
            let found = takes(|config| config.network_instance[0].pools = pools);
            let [(key, takes)] = &found[..] else {
                panic!("{found:?}")
            };
            assert_eq!(key, "network_instance[internet].pools");
            takes == &Takes::TakeOver
        };
        assert!(takes(&["10.60.0.0/15", "2001:db8:60::/48"]));
        assert!(takes(&["10.60.0.0/16", "10.62.0.0/16", "2001:db8:60::/48"]));
        assert!(!takes(&["10.60.0.0/17", "2001:db8:60::/48"]));
        assert!(!takes(&["10.60.0.0/16"]));
    }

    #[test]
    fn a_network_instance_comes_and_does_not_go() {
        let add = |config: &mut Config| {
            let mut another = config.network_instance[0].clone();
            another.name = "ims[1].x".into();
            config.network_instance.push(another);
        };
        let key = || "network_instance[ims[1].x]".to_owned();
        assert_eq!(takes(add), [(key(), Takes::TakeOver)]);
        let mut before = example();
        add(&mut before);
        let gone = changes(&before, &example());
        let reason = Takes::restart("sessions may name this network instance");
        assert_eq!((&gone[0].key, &gone[0].takes), (&key(), &reason));
        assert_eq!(gone[0].after, None);
    }

    #[test]
    fn another_order_is_a_change() {
        let mut before = example();
        let mut another = before.network_instance[0].clone();
        another.name = "ims".into();
        before.network_instance.push(another);
        let mut after = before.clone();
        after.network_instance.reverse();
        let changes = changes(&before, &after);
        let found: Vec<_> = changes
            .iter()
            .map(|of| (of.key.as_str(), &of.takes))
            .collect();
        assert_eq!(found, [("network_instance", &Takes::TakeOver)]);
    }

    #[test]
    fn a_predefined_rule_changes_but_does_not_go_while_it_may_be_active() {
        let rule = |config: &Config, name: &str| {
            let mut rules = config.predefined_rule.iter();
            rules.position(|rule| rule.name == name).unwrap()
        };
        let gone = takes(|config| {
            let place = rule(config, "video");
            config.predefined_rule.remove(place);
        });
        assert!(matches!(&gone[..], [(key, Takes::Restart(_))] if key == "predefined_rule[video]"));
        // Its place among its namesakes is part of what it is.
        let mut before = example();
        let twice = before.predefined_rule[rule(&before, "video")].clone();
        before.predefined_rule.push(twice);
        let fewer = changes(&before, &example());
        assert!(
            matches!(&fewer[..], [Change { key, takes: Takes::Restart(_), .. }] if key == "predefined_rule[video 2]")
        );
        let more = changes(&example(), &before);
        assert!(
            matches!(
                &more[..],
                [Change {
                    takes: Takes::TakeOver,
                    ..
                }]
            ),
            "{more:?}"
        );
    }

    #[test]
    fn names_by_which_tunnels_find_an_interface_come_and_do_not_go() {
        let names =
            |names: &[&str]| -> Vec<String> { names.iter().map(|&name| name.into()).collect() };
        for (before, after, expected) in [
            (&["a"][..], &["a", "b"][..], true),
            (&["a", "b"], &["b"], false),
            (&["a"], &[], false),
            // Whatever has no name here leads elsewhere then.
            (&[], &["a"], false),
        ] {
            let mut old = example();
            old.interface[0].network_instances = names(before);
            let mut new = old.clone();
            new.interface[0].network_instances = names(after);
            let found = changes(&old, &new);
            let [Change { takes, .. }] = &found[..] else {
                panic!("{found:?}")
            };
            assert_eq!(*takes == Takes::TakeOver, expected, "{before:?} {after:?}");
        }
    }

    #[test]
    fn what_a_framed_route_must_not_have_is_named() {
        let mut after = example();
        let pool = "198.51.100.0/25".parse().unwrap();
        after.network_instance[0]
            .pools
            .push(super::super::Prefix(pool));
        after.network_instance[0].router.addresses = vec!["198.51.100.129".parse().unwrap()];
        after.interface[0]
            .addresses
            .push("10.3.0.9".parse().unwrap());
        let found = newcomers(&example(), &after);
        let found: Vec<_> = found
            .iter()
            .map(|(key, net)| format!("{key} {net}"))
            .collect();
        let expected = [
            "network_instance[internet].pools 198.51.100.0/25",
            "network_instance[internet].router.addresses 198.51.100.129/32",
            "interface[n3].addresses 10.3.0.9/32",
        ];
        assert_eq!(found, expected);
        assert_eq!(newcomers(&after, &after), []);
    }

    #[test]
    fn starting_anew_wants_programs_that_outlive_the_process() {
        assert_eq!(hindrance(&example()), None);
        let mut config = example();
        config.state.bpffs = None;
        assert!(hindrance(&config).unwrap().contains("state.bpffs"));
        config = example();
        config.datapath.kind = DatapathKind::Dpdk;
        assert!(hindrance(&config).is_some());
    }
}
