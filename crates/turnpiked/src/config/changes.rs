//! Two configurations side by side: which keys differ, and what it takes to bring each change into force.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use ipnet::IpNet;
use serde_json::Value;

use super::forwarding_policy::ForwardingPolicy;
use super::predefined::PredefinedRule;
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
    compare(&Key::default(), Some(old), Some(new), &mut found);
    let judged = found.into_iter().map(|found| Change {
        takes: judge(&found, before, after),
        before: found.before.cloned(),
        after: found.after.cloned(),
        key: found.key,
    });
    judged.collect()
}

/// Why the program cannot start anew without losing packets; `None`: it can. `packets_go_on`: they do without this process; `workers_go_on`:
/// those in a process of their own can go on with the next configuration.
pub(crate) fn hindrance(
    config: &Config,
    (packets_go_on, workers_go_on): (bool, bool),
) -> Option<&'static str> {
    let state = &config.state;
    match config.datapath.kind {
        DatapathKind::Xdp if state.dir.is_some() && state.bpffs.is_some() => None,
        DatapathKind::Xdp => {
            Some("packets would stop meanwhile, without state.dir and state.bpffs")
        }
        DatapathKind::Dpdk if packets_go_on => (!workers_go_on).then_some(
            "workers of DPDK would start anew, too, and packets stop meanwhile: their settings, shaping or interfaces change",
        ),
        DatapathKind::Kernel | DatapathKind::Dpdk => {
            Some("packets would stop meanwhile, as they go through this process")
        }
    }
}

/// A key that differs.
struct Found<'v> {
    /// For people.
    key: String,
    /// The same without names, of which some have brackets: `network_instance[].pools`.
    pattern: String,
    /// Table of a list that it is in, or is: its place among its namesakes follows its name.
    of: Option<Named>,
    before: Option<&'v Value>,
    after: Option<&'v Value>,
}

/// A table of a list, by its name and how many of that name stand before it.
type Named = (String, usize);

/// A key on the way to it.
#[derive(Clone, Default)]
struct Key {
    shown: String,
    pattern: String,
    of: Option<Named>,
}

impl Key {
    fn member(&self, name: &str) -> Self {
        let below = |key: &str| match key {
            "" => name.to_owned(),
            key => format!("{key}.{name}"),
        };
        Self {
            shown: below(&self.shown),
            pattern: below(&self.pattern),
            of: self.of.clone(),
        }
    }

    fn item(&self, named: &Named) -> Self {
        let (name, before) = named;
        let number = match before {
            0 => String::new(),
            before => format!(" {}", before + 1),
        };
        Self {
            shown: format!("{}[{name}{number}]", self.shown),
            pattern: format!("{}[]", self.pattern),
            of: Some(named.clone()),
        }
    }

    fn found<'v>(&self, before: Option<&'v Value>, after: Option<&'v Value>) -> Found<'v> {
        Found {
            key: self.shown.clone(),
            pattern: self.pattern.clone(),
            of: self.of.clone(),
            before,
            after,
        }
    }
}

fn compare<'v>(
    key: &Key,
    before: Option<&'v Value>,
    after: Option<&'v Value>,
    found: &mut Vec<Found<'v>>,
) {
    match (before, after) {
        _ if before == after => {}
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for name in names {
                let (before, after) = (old.get(name), new.get(name));
                // A list that is left out is an empty one.
                let is_list = [before, after]
                    .iter()
                    .flatten()
                    .all(|value| value.is_array());
                let [before, after] = [before, after].map(|value| match value {
                    None if is_list => Some(&EMPTY),
                    value => value,
                });
                compare(&key.member(name), before, after, found);
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new)))
            if are_tables(old) && are_tables(new) =>
        {
            lists(key, (old, new), found);
        }
        _ => found.push(key.found(before, after)),
    }
}

fn lists<'v>(key: &Key, (old, new): (&'v [Value], &'v [Value]), found: &mut Vec<Found<'v>>) {
    let [names_old, names_new] = [old, new].map(names);
    let by_name = |names: &[Named], items: &'v [Value]| -> BTreeMap<Named, &'v Value> {
        names.iter().cloned().zip(items).collect()
    };
    let (by_old, by_new) = (by_name(&names_old, old), by_name(&names_new, new));
    let kept = |names: &[Named], others: &BTreeMap<Named, &Value>| -> Vec<Named> {
        let names = names.iter().filter(|name| others.contains_key(*name));
        names.cloned().collect()
    };
    if kept(&names_old, &by_new) != kept(&names_new, &by_old) {
        found.push(key.found(None, None));
    }
    let all: BTreeSet<&Named> = by_old.keys().chain(by_new.keys()).collect();
    for name in all {
        let (before, after) = (by_old.get(name).copied(), by_new.get(name).copied());
        compare(&key.item(name), before, after, found);
    }
}

static EMPTY: Value = Value::Array(Vec::new());

fn are_tables(items: &[Value]) -> bool {
    items.iter().all(Value::is_object)
}

/// Of tables in a list.
fn names(items: &[Value]) -> Vec<Named> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
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
        let of_slice = || {
            let (sst, sd) = (item.get("sst")?, item.get("sd").and_then(Value::as_str));
            Some(sd.map_or_else(|| sst.to_string(), |sd| format!("{sst}-{sd}")))
        };
        let name = name.map(str::to_owned);
        name.or_else(of_flow).or_else(of_slice).unwrap_or_default()
    };
    let numbered = items.iter().map(|item| {
        let name = name(item);
        let count = seen.entry(name.clone()).or_default();
        *count += 1;
        (name, *count - 1)
    });
    numbered.collect()
}

/// Each key of the file, unless all that it can say is the key above it.
fn judge(found: &Found<'_>, before: &Config, after: &Config) -> Takes {
    let (old, new) = (found.before, found.after);
    let was_there = old.is_some();
    // Of a list of tables itself: their order.
    match found.pattern.replace("[].", ".").as_str() {
        "node.id" => Takes::restart("SMFs know this UPF, and sessions are kept, by it"),
        "n4.listen" | "n4.listen_also" => {
            Takes::restart("SMFs know their associations and sessions by this address")
        }
        "datapath.kind" | "datapath.mode" => {
            Takes::restart("packets would stop while another data path takes their place")
        }
        "state.dir" => Takes::restart("sessions are kept there, and not looked for elsewhere"),
        // Of interface, network_instance: one that comes or goes.
        "interface[]" => Takes::take_over_if(
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
        "network_instance[]" => {
            Takes::take_over_if(!was_there, "sessions may name this network instance")
        }
        "network_instance.pools" => Takes::take_over_if(
            instance(found, before, after)
                .is_none_or(|(old, new)| covers(&pools(new), &pools(old))),
            "sessions may have addresses that would be in no pool",
        ),
        "network_instance.framed_routes" => Takes::take_over_if(
            instance(found, before, after).is_none_or(|(old, new)| allows_framed(old, new)),
            "sessions may have framed routes that would not be allowed",
        ),
        "predefined_rule[]" => Takes::take_over_if(
            keeps_predefined(before, after),
            "sessions may have this rule activated",
        ),
        "predefined_rule.direction" => Takes::take_over_if(
            keeps_predefined(before, after),
            "sessions may have this rule activated for the other direction",
        ),
        "predefined_rule.action" => Takes::take_over_if(
            new.and_then(Value::as_str) == Some(PredefinedRule::DROPS),
            "PDRs that have activated this rule may have no FAR",
        ),
        "predefined_rule.network_instance" => Takes::take_over_if(
            new.is_some(),
            "PDRs that have activated this rule may have no FAR",
        ),
        "state.bpffs" => Takes::restart("packets would meet no program in between"),
        "buffering.max_mib"
        | "buffering.max_packets"
        | "buffering.max_packets_per_session"
        | "buffering.max_age_s" => Takes::take_over_if(
            new.and_then(Value::as_u64) >= old.and_then(Value::as_u64),
            "packets that wait would be lost",
        ),
        "forwarding_policy[]" => {
            Takes::take_over_if(!was_there, "FARs of sessions may name this policy")
        }
        "forwarding_policy.towards_access" => Takes::take_over_if(
            new.and_then(Value::as_str) == Some(ForwardingPolicy::LENIENT),
            "FARs of sessions may name this policy towards access",
        ),
        // Sessions know nothing of NRFs, consumers of events and collectors.
        key if key == "nrf" || key.starts_with("nrf.") => Takes::Nothing,
        key if key == "nupf" || key.starts_with("nupf.") => Takes::Nothing,
        key if key == "telemetry" || key.starts_with("telemetry.") => Takes::Nothing,
        key if has(AT_ONCE, key) => Takes::Nothing,
        key if has(BY_TAKE_OVER, key) => Takes::TakeOver,
        limit if limit.starts_with("limits.") => judge_limit(limit, &before.limits, &after.limits),
        _ => Takes::restart(NOT_JUDGED),
    }
}

/// Keys that the running process goes on with, whatever they say.
const AT_ONCE: &str = "n4.allow n4.smf n4.heartbeat_s n4.t1_ms n4.n1 n4.retry_at_most_s n4.path_failure_retention_s
    n4.graceful_release_s n4.overload_at_percent n4.peer_port n4.busy_poll_us gtpu.error_indications_per_s api.token_file api.hosts
    log.level state.unmanaged_s state.on_stop";

/// Keys that take a start, and no session, whatever they say.
const BY_TAKE_OVER: &str = "n4.receive_buffer_mib n4.fast_path n4.interface
    datapath.workers datapath.cpus datapath.control_cpus datapath.busy_poll datapath.settle_s datapath.icmp_errors_per_s
    datapath.dpdk.eal datapath.dpdk.mbufs datapath.dpdk.model datapath.dpdk.rx_cpus datapath.dpdk.ring
    interface interface.name interface.spread_cpus interface.rx_cpus interface.device
    interface.capacity_kbps
    network_instance network_instance.name network_instance.table network_instance.ue_to_ue
    network_instance.emergency network_instance.capacity_uplink_kbps network_instance.capacity_downlink_kbps
    network_instance.router.addresses network_instance.router.advertise network_instance.router.lifetime_s
    network_instance.router.mtu network_instance.router.dns
    predefined_rule predefined_rule.name predefined_rule.precedence predefined_rule.flows predefined_rule.gate predefined_rule.mbr_uplink_kbps predefined_rule.mbr_downlink_kbps
    predefined_rule.qfi
    forwarding_policy forwarding_policy.identifier forwarding_policy.next_hops forwarding_policy.interface forwarding_policy.table
    forwarding_policy.fallback
    group group[] group.name group.network_instance group.ues group.capacity_uplink_kbps group.capacity_downlink_kbps
    qos.mode qos.granularity_us qos.slots qos.frames qos.burst_ms qos.burst_min_bytes qos.l4s_us qos.guaranteed_percent
    qos.flow qos.flow[] qos.flow.qfi qos.flow.network_instance qos.flow.five_qi qos.flow.weight qos.flow.dscp qos.flow.mode
    gtpu.restart_grace_s gtpu.echo_per_s gtpu.echo_interval_s gtpu.echo_t3_ms gtpu.echo_n3 gtpu.udp6_checksum
    buffering.ring_mib limits.shares limits.emergency_sessions
    api.listen api.max_connections api.client_connections api.client_requests_per_s log.format
    usage_log.path usage_log.max_mb usage_log.files state.disk";

fn has(keys: &str, key: &str) -> bool {
    keys.split_ascii_whitespace().any(|one| one == key)
}

/// Of a key that [`judge`] does not know.
const NOT_JUDGED: &str = "it is read at the start alone";

fn judge_limit(key: &str, before: &Limits, after: &Limits) -> Takes {
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
fn instance<'c>(
    found: &Found<'_>,
    before: &'c Config,
    after: &'c Config,
) -> Option<(&'c NetworkInstance, &'c NetworkInstance)> {
    let (name, _) = found.of.as_ref()?;
    let of = |config: &'c Config| config.network_instance.iter().find(|ni| ni.name == *name);
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

/// Room that a session with all rules active would take beyond what it takes, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Growth {
    pub(crate) filters: u64,
    pub(crate) meters: u64,
}

/// Of predefined rules that may be active.
pub(crate) fn growth(before: &Config, after: &Config) -> Growth {
    let by_name = |config: &'_ Config| -> BTreeMap<Named, (usize, bool)> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let rules = config.predefined_rule.iter().map(|rule| {
            let count = counts.entry(rule.name.clone()).or_default();
            *count += 1;
            (
                (rule.name.clone(), *count - 1),
                (rule.flow_count(), rule.has_rates()),
            )
        });
        rules.collect()
    };
    let (old, new) = (by_name(before), by_name(after));
    let mut growth = Growth::default();
    for (name, (flows, has_rates)) in new {
        let Some(&(flows_before, had_rates)) = old.get(&name) else {
            continue;
        };
        if flows > flows_before {
            // Each may be two, and stands in front of what had none.
            growth.filters += 2 * (flows - flows_before) as u64 + 2;
        }
        growth.meters += if has_rates && !had_rates { 2 } else { 0 };
    }
    growth
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
        let judged = |key: &str| {
            let found = Found {
                key: key.to_owned(),
                pattern: key.to_owned(),
                of: None,
                before: None,
                after: Some(&Value::Null),
            };
            judge(&found, &config, &config)
        };
        let keys = keys();
        assert!(keys.len() > 120, "{}", keys.len());
        let unjudged = keys
            .iter()
            .filter(|key| judged(key) == Takes::restart(NOT_JUDGED));
        assert_eq!(unjudged.collect::<Vec<_>>(), Vec::<&String>::new());
        assert_eq!(judged("n4.new_key"), Takes::restart(NOT_JUDGED));
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
    fn a_name_with_brackets_hides_nothing() {
        let mut before = example();
        before.network_instance[0].name = "a[b".into();
        before.interface[1].name = "n]6".into();
        let mut after = before.clone();
        after.network_instance[0].pools.clear();
        after.interface[1].role = super::super::Role::N9AndN6;
        let found = changes(&before, &after);
        let keys: Vec<&str> = found.iter().map(|of| of.key.as_str()).collect();
        assert_eq!(keys, ["interface[n]6].role", "network_instance[a[b].pools"]);
        assert!(
            found.iter().all(|of| matches!(of.takes, Takes::Restart(_))),
            "{found:?}"
        );
    }

    #[test]
    fn a_second_rule_of_a_name_is_none_of_a_name_with_a_number() {
        let mut before = example();
        let video = before.predefined_rule[0].clone();
        let mut numbered = video.clone();
        numbered.name = format!("{} 2", video.name);
        before.predefined_rule.extend([video, numbered]);
        for place in [
            before.predefined_rule.len() - 2,
            before.predefined_rule.len() - 1,
        ] {
            let mut after = before.clone();
            after.predefined_rule.remove(place);
            let found = changes(&before, &after);
            assert!(
                matches!(
                    &found[..],
                    [Change {
                        takes: Takes::Restart(_),
                        ..
                    }]
                ),
                "{found:?}"
            );
        }
    }

    #[test]
    fn packets_that_wait_and_pdrs_without_a_far_are_not_lost() {
        let restarts =
            |change: fn(&mut Config)| matches!(&takes(change)[..], [(_, Takes::Restart(_))]);
        assert!(restarts(|config| config.buffering.max_packets -= 1));
        assert!(!restarts(|config| config.buffering.max_packets += 1));
        assert!(restarts(|config| config.state.bpffs = None));
        let with = |text: &str| {
            let rule = format!("[[predefined_rule]]\nname = \"only\"\n{text}\n");
            parse(&format!("{EXAMPLE}\n{rule}")).unwrap()
        };
        let (drops, forwards) = (with("action = \"drop\""), with(""));
        let routed = with("direction = \"uplink\"\nnetwork_instance = \"internet\"");
        let plain = with("direction = \"uplink\"");
        for (before, after, expected) in [
            (&drops, &forwards, false),
            (&forwards, &drops, true),
            (&routed, &plain, false),
            (&plain, &routed, true),
        ] {
            let found = changes(before, after);
            let [Change { takes, .. }] = &found[..] else {
                panic!("{found:?}")
            };
            assert_eq!(*takes == Takes::TakeOver, expected, "{found:?}");
        }
    }

    #[test]
    fn rules_that_grow_say_by_how_much() {
        let with = |text: &str| {
            let rule = format!("[[predefined_rule]]\nname = \"only\"\n{text}\n");
            parse(&format!("{EXAMPLE}\n{rule}")).unwrap()
        };
        let one = with(r#"flows = ["permit out 17 from any 53 to assigned"]"#);
        let three = with(
            r#"flows = ["permit out 17 from any 53 to assigned", "permit out 6 from any 80,443 to assigned"]
            mbr_uplink_kbps = 1
            mbr_downlink_kbps = 1"#,
        );
        let grown = Growth {
            filters: 6,
            meters: 2,
        };
        assert_eq!(growth(&one, &three), grown);
        assert_eq!(growth(&three, &one), Growth::default());
        // Nobody has one active that comes.
        assert_eq!(growth(&example(), &three), Growth::default());
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
            // Tunnels without a name lead elsewhere then.
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
    fn registrations_change_while_it_runs() {
        let nrf = |lines: &str| {
            let nrf = format!("servers = [\"http://a:1\"]\n{lines}");
            Some(toml::from_str(&nrf).unwrap())
        };
        let one = || nrf("[[slice]]\nsst = 1\n");
        let came = takes(|config| config.nrf = one());
        assert_eq!(came, [("nrf".to_owned(), Takes::Nothing)]);
        let before = Config {
            nrf: one(),
            ..example()
        };
        let after = Config {
            nrf: nrf("priority = 1\n[[slice]]\nsst = 1\nsd = \"010203\"\n"),
            ..example()
        };
        let found = changes(&before, &after).into_iter();
        let found: Vec<_> = found.map(|of| (of.key, of.takes)).collect();
        let keys = ["nrf.priority", "nrf.slice[1]", "nrf.slice[1-010203]"];
        assert_eq!(found, keys.map(|key| (key.to_owned(), Takes::Nothing)));
    }

    #[test]
    fn consumers_of_events_change_while_it_runs() {
        let nupf = |more: &str| {
            let text = format!("listen = \"10.0.0.1:80\"\nallow = [\"::/0\"]\n{more}");
            toml::from_str(&text).unwrap()
        };
        let came = takes(|config| config.nupf = Some(nupf("")));
        assert_eq!(came, [("nupf".to_owned(), Takes::Nothing)]);
        let with = |more| Config {
            nupf: Some(nupf(more)),
            ..example()
        };
        let found = changes(&with(""), &with("max_ues = 7")).into_iter();
        let found: Vec<_> = found.map(|of| (of.key, of.takes)).collect();
        assert_eq!(found, [("nupf.max_ues".to_owned(), Takes::Nothing)]);
    }

    #[test]
    fn collectors_change_while_it_runs() {
        let telemetry = || toml::from_str("endpoint = \"http://a:1\"").unwrap();
        let came = takes(|config| config.telemetry = Some(telemetry()));
        assert_eq!(came, [("telemetry".to_owned(), Takes::Nothing)]);
    }

    #[test]
    fn starting_anew_wants_programs_that_outlive_the_process() {
        assert_eq!(hindrance(&example(), (true, true)), None);
        let mut config = example();
        config.state.bpffs = None;
        let why = hindrance(&config, (false, true)).unwrap();
        assert!(why.contains("state.bpffs"));
        config = example();
        config.datapath.kind = DatapathKind::Dpdk;
        let why = hindrance(&config, (false, true)).unwrap();
        assert!(why.contains("this process"));
        let why = hindrance(&config, (true, false)).unwrap();
        assert!(why.contains("workers"));
        assert_eq!(hindrance(&config, (true, true)), None);
    }
}
