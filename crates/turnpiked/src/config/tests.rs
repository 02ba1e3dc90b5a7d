use topology::Topology;

use super::*;

const EXAMPLE: &str = include_str!("../../../../deploy/turnpiked.example.toml");

const SMALL: &str = r#"
[node]
id = "upf1.example.org"
[n4]
listen = "127.0.0.1:8805"
[[interface]]
name = "n3"
role = "n3"
addresses = ["10.3.0.1"]
[[interface]]
name = "n6"
role = "n6"
[[network_instance]]
name = "internet"
interface = "n6"
"#;

fn machine() -> System {
    let interfaces = [
        ("n6.60".to_owned(), vec!["10.66.0.1".parse().unwrap()]),
        ("n3".to_owned(), vec!["10.3.0.1".parse().unwrap()]),
        ("n6".to_owned(), vec!["10.6.0.1".parse().unwrap()]),
        ("n4".to_owned(), vec!["10.100.0.1".parse().unwrap()]),
    ];
    System {
        interfaces: interfaces.into(),
        vlans: [("n6.60".to_owned(), "n6".to_owned())].into(),
        forwarding4: ["n6".to_owned()].into(),
        forwarding6: false,
        meddling: [].into(),
        topology: topology(&[(0, 0, 0), (1, 0, 1), (3, 0, 3)]),
        memory: memory(64 << 30),
    }
}

fn memory(octets: u64) -> Memory {
    let of = "/sys/fs/cgroup/upf/memory.max".to_owned();
    Memory { octets, of }
}

/// CPUs, each with its socket, which is a NUMA node, and its core. CPU 3 is not allowed.
fn topology(cpus: &[(u32, u32, u32)]) -> Topology {
    let cpu = |&(number, socket, core): &(u32, u32, u32)| {
        let same = cpus.iter().filter(|cpu| (cpu.1, cpu.2) == (socket, core));
        let cpu = topology::Cpu {
            node: Some(socket),
            socket: Some(socket),
            core: Some(core),
            siblings: same.map(|cpu| cpu.0).filter(|&cpu| cpu != number).collect(),
            allowed: number != 3,
        };
        (number, cpu)
    };
    Topology {
        cpus: cpus.iter().map(cpu).collect(),
        ..Topology::default()
    }
}

/// `SMALL` with one line replaced, or with lines added at the end.
fn with(from: &str, to: &str) -> String {
    assert!(SMALL.contains(from));
    SMALL.replacen(from, to, 1)
}

/// `SMALL` with a predefined rule that has these lines.
fn rule(lines: &str) -> String {
    format!("{SMALL}[[predefined_rule]]\nname = \"block\"\n{lines}\n")
}

fn problems(text: &str) -> Vec<String> {
    match parse(text) {
        Ok(config) => check(&config, &machine())
            .iter()
            .map(ToString::to_string)
            .collect(),
        Err(problem) => vec![problem.to_string()],
    }
}

#[test]
fn an_interface_for_n9_has_addresses_and_names_of_its_own() {
    let n9 = "[[interface]]\nname = \"n4\"\nrole = \"n9\"\naddresses = [\"10.100.0.1\"]\n\
              network_instances = [\"ipx\", \"IPX\"]\n";
    let text = format!("{SMALL}{n9}");
    let twice = "interface[2].network_instances[1] = \"IPX\": named twice";
    assert_eq!(problems(&text), [twice]);
    let text = text.replace(", \"IPX\"", "");
    assert_eq!(problems(&text), [""; 0]);
    let networks = crate::plan::session(&parse(&text).unwrap(), 0).tunnel_networks;
    let seen: Vec<_> = networks
        .iter()
        .map(|n| (n.core, n.network_instances.len()))
        .collect();
    assert_eq!(seen, [(false, 0), (true, 1)]);
    let without = text.replace("addresses = [\"10.100.0.1\"]", "");
    let missing = "interface[2].addresses: an interface with role n3 or n9 needs the address that GTP-U comes to";
    assert_eq!(problems(&without), [missing]);
    let on_n6 = with(
        "role = \"n6\"",
        "role = \"n6\"\nnetwork_instances = [\"x\"]",
    );
    let reason = "interface[1].network_instances[0] = \"x\": tunnels alone are told apart by it";
    assert!(
        problems(&on_n6)[0].starts_with(reason),
        "{:?}",
        problems(&on_n6)
    );
}

#[test]
fn addresses_may_be_on_vlan_devices_of_the_interface() {
    let both = "role = \"n3+n6\"\naddresses = [\"10.66.0.1\"]";
    let text = with("role = \"n6\"", both);
    assert_eq!(problems(&text), [""; 0]);
    let text = text.replace("name = \"n6\"", "name = \"n6.60\"");
    let text = text.replace("interface = \"n6\"", "interface = \"n6.60\"");
    let refused =
        "interface[1].name = \"n6.60\": a VLAN device knows no XDP; name n6, which sees its frames";
    assert_eq!(problems(&text), [refused]);
    let generic = format!("{text}[datapath]\nmode = \"generic\"\n");
    assert_eq!(problems(&generic), [""; 0]);
}

#[test]
fn what_cannot_shape_is_refused() {
    let shape = "[qos]\nmode = \"shape\"\n";
    assert_eq!(problems(&format!("{SMALL}{shape}")), [""; 0]);
    let refused = "qos.slots = 200000: kind xdp has at most 131072";
    let many = format!("{SMALL}{shape}granularity_us = 1\nslots = 200000\n");
    assert_eq!(problems(&many), [refused]);
    assert_eq!(
        problems(&format!("{SMALL}[qos]\nmode = \"police\"\n")),
        [""; 0]
    );
    let kernel = format!("{SMALL}[datapath]\nkind = \"kernel\"\n{shape}");
    assert_eq!(problems(&kernel), [""; 0]);
    let longer = "slots = 1025\ngranularity_us = 30000\n";
    let refused =
        "qos.slots = 1025: with qos.granularity_us = 30000 packets would wait 61 s, at most 60 s";
    assert_eq!(problems(&format!("{kernel}{longer}")), [refused]);
    let dpdk = format!("{SMALL}[datapath]\nkind = \"dpdk\"\nworkers = 2\n{shape}");
    let refused = "qos.frames = 16384: with datapath.workers = 2 this is more than half of datapath.dpdk.mbufs = 16384";
    assert!(problems(&dpdk).contains(&refused.to_owned()));
    let few = format!("{dpdk}frames = 4096\n");
    assert!(
        problems(&few)
            .iter()
            .all(|problem| !problem.contains("qos."))
    );
    let out_of_range = problems(&format!(
        "{SMALL}[qos]\ngranularity_us = 0\nslots = 15\nframes = 2000000\n"
    ));
    assert_eq!(out_of_range.len(), 3, "{out_of_range:?}");
}

#[test]
fn templates_where_packets_wait_for_their_rate_are_refused() {
    let with = |value: &str| {
        let listen = "listen = \"127.0.0.1:8805\"\n";
        SMALL.replace(listen, &format!("{listen}fast_path = \"{value}\"\n"))
    };
    let fast = with("user");
    assert_eq!(problems(&fast), [""; 0]);
    let shaped = problems(&format!("{fast}[qos]\nmode = \"shape\"\n"));
    let refused = "n4.fast_path = \"user\": not where packets above their rate wait (qos.mode, qos.flow.mode: \"shape\")";
    assert_eq!(shaped, [refused]);
    let flow = "[[qos.flow]]\nqfi = 9\nfive_qi = 1\ndscp = 46\n";
    let marked = problems(&format!("{fast}{flow}"));
    let refused = "n4.fast_path = \"user\": not with capacities, nor with qos.flow.dscp";
    assert_eq!(marked, [refused]);
    let unknown = parse(&with("kernel")).unwrap_err().to_string();
    let expected = "n4.fast_path = \"kernel\": expected one of `off`, `user`, `data`";
    assert_eq!(unknown, expected);
}

#[test]
fn a_program_for_n4_has_an_interface_that_it_can_meet_frames_on() {
    let with = |keys: &str| {
        let listen = "listen = \"127.0.0.1:8805\"\n";
        let own = "listen = \"10.100.0.1:8805\"\n";
        problems(&SMALL.replace(listen, &format!("{own}{keys}\n")))
    };
    let data = "fast_path = \"data\"\ninterface =";
    assert_eq!(with(&format!("{data} \"n4\"")), [""; 0]);
    let missing = "n4.interface: n4.fast_path = \"data\" needs the interface that N4 comes by";
    assert_eq!(with("fast_path = \"data\""), [missing]);
    let kept = |state: &str| {
        with(&format!(
            "{data} \"n4\"\n[state]\ndir = \"/run/turnpike\"{state}"
        ))
    };
    let refused = "n4.fast_path = \"data\": with state.dir it needs state.bpffs, where the next process finds what was served last";
    assert_eq!(kept(""), [refused]);
    assert_eq!(kept("\nbpffs = \"/sys/fs/bpf/turnpike\""), [""; 0]);
    for (keys, refused) in [
        (
            "interface = \"n4\"".to_owned(),
            "n4.interface = \"n4\": is for n4.fast_path = \"data\"",
        ),
        (
            format!("{data} \"n9\""),
            "n4.interface = \"n9\": no such interface; see: ip link",
        ),
        (
            format!("{data} \"n6.60\""),
            "n4.interface = \"n6.60\": a VLAN device knows no XDP: N4 needs an interface that has a driver",
        ),
        (
            format!("{data} \"n3\""),
            "n4.interface = \"n3\": does not have the address 10.100.0.1",
        ),
    ] {
        assert_eq!(with(&keys), [refused]);
    }
    // Together with users' packets.
    let shared = |interface: &str, more: &str| {
        let n4 = format!("10.3.0.1:8805\"\n{data} \"n3\"");
        let text = SMALL.replace("127.0.0.1:8805\"", &n4);
        problems(&(text.replace("role = \"n3\"", interface) + more))
    };
    let spread = "spread_cpus = [0, 1]";
    let (n3, both) = ("role = \"n3\"", "role = \"n3+n6\"");
    let other = "[[network_instance]]\nname = \"ims\"\ninterface = \"n3\"";
    assert_eq!(shared(n3, ""), [""; 0]);
    assert_eq!(shared(&format!("{n3}\n{spread}"), ""), [""; 0]);
    assert_eq!(shared(both, other), [""; 0]);
    let refused = "n4.interface = \"n3\": spreads packets by their address over spread_cpus, N4's among them: N4 needs an interface of its own";
    assert_eq!(shared(&format!("{both}\n{spread}"), other), [refused]);
    let refused = "n4.interface = \"n3\": carries users' packets, with datapath.mode = \"generic\": N4 needs a driver, or an interface of its own";
    assert_eq!(shared(n3, "[datapath]\nmode = \"generic\""), [refused]);
}

#[test]
fn capacities_and_flows_that_make_no_sense_are_named() {
    let group = |ues: &str| {
        format!("[[group]]\nname = \"{ues}\"\nues = [\"{ues}\"]\ncapacity_uplink_kbps = 1000\n")
    };
    let flow = "[[qos.flow]]\nqfi = 9\nfive_qi = 1\ndscp = 46\nmode = \"police\"\n";
    let right = format!(
        "{SMALL}{}{}{flow}",
        group("10.60.8.0/24"),
        group("10.60.9.0/24")
    );
    assert_eq!(problems(&right), [""; 0]);
    let overlapping = format!("{SMALL}{}{}", group("10.60.8.0/23"), group("10.60.9.0/24"));
    let refused = "group[1].ues = \"10.60.9.0/24\": overlaps 10.60.8.0/23 of group 10.60.8.0/23";
    assert_eq!(problems(&overlapping), [refused]);
    for (wrong, key) in [
        (
            format!("{SMALL}[[qos.flow]]\nqfi = 64\n"),
            "qos.flow[0].qfi",
        ),
        (
            format!("{SMALL}{flow}[[qos.flow]]\nqfi = 1\nfive_qi = 11\n"),
            "qos.flow[1].five_qi",
        ),
        (
            format!("{SMALL}[[qos.flow]]\nqfi = 1\nweight = 0\n"),
            "qos.flow[0].weight",
        ),
        (
            format!("{SMALL}[[qos.flow]]\nqfi = 1\ndscp = 64\n"),
            "qos.flow[0].dscp",
        ),
        (
            format!("{SMALL}[[group]]\nname = \"g\"\nues = [\"10.0.0.0/8\"]\n"),
            "group[0].name",
        ),
        (
            with("name = \"n6\"", "name = \"n6\"\ncapacity_kbps = 63"),
            "interface[1].capacity_kbps",
        ),
    ] {
        let named = problems(&wrong);
        assert!(
            named.len() == 1 && named[0].starts_with(key),
            "{key}: {named:?}"
        );
    }
    // A flow that waits asks for what a default that waits asks for.
    let many = format!("{SMALL}[qos]\nslots = 262144\n");
    assert_eq!(problems(&many), [""; 0]);
    let waits = format!("{many}[[qos.flow]]\nqfi = 1\nmode = \"shape\"\n");
    let named = problems(&waits);
    assert!(
        named.len() == 1 && named[0].starts_with("qos.slots"),
        "{named:?}"
    );
}

#[test]
fn forwarding_policies_that_lead_nowhere_are_named() {
    let policy =
        |lines: &str| format!("{SMALL}[[forwarding_policy]]\nidentifier = \"edge\"\n{lines}\n");
    for right in [
        "next_hops = [\"10.6.0.9\"]",
        "next_hops = [\"2001:db8:6::9\", \"10.6.0.9\"]\ninterface = \"n6\"",
        "next_hops = [\"fe80::9\"]\ninterface = \"n6\"\nfallback = \"drop\"",
        "interface = \"n6\"\ntowards_access = \"refuse\"",
        "table = 100",
    ] {
        assert_eq!(problems(&policy(right)), [""; 0], "{right}");
    }
    for (wrong, named) in [
        ("", "forwarding_policy[0].next_hops: one of"),
        (
            "table = 100\ninterface = \"n6\"",
            "forwarding_policy[0].table = 100: stands alone",
        ),
        (
            "table = 254",
            "forwarding_policy[0].table = 254: must be a table of its own",
        ),
        (
            "interface = \"n3\"",
            "forwarding_policy[0].interface = \"n3\": no [[interface]] with role n6",
        ),
        (
            "next_hops = [\"10.6.0.9\", \"10.6.0.8\"]",
            "forwarding_policy[0].next_hops[1] = \"10.6.0.8\": there is one of its family already",
        ),
        (
            "next_hops = [\"10.6.0.1\"]",
            "forwarding_policy[0].next_hops[0] = \"10.6.0.1\": an address of this machine",
        ),
        (
            "next_hops = [\"239.1.2.3\"]",
            "forwarding_policy[0].next_hops[0] = \"239.1.2.3\": no neighbour's address",
        ),
        (
            "next_hops = [\"fe80::9\"]",
            "forwarding_policy[0].next_hops[0] = \"fe80::9\": a link-local address",
        ),
        (
            "table = 100\n[[forwarding_policy]]\nidentifier = \"edge\"\ntable = 101",
            "forwarding_policy[1].identifier = \"edge\": named twice",
        ),
    ] {
        let problems = problems(&policy(wrong));
        assert_eq!(problems.len(), 1, "{wrong}: {problems:?}");
        assert!(problems[0].starts_with(named), "{}", problems[0]);
    }
    let many = |count: usize| -> String {
        let policy = |n| format!("[[forwarding_policy]]\nidentifier = \"{n}\"\ntable = 100\n");
        (0..count).map(policy).collect()
    };
    assert_eq!(problems(&format!("{SMALL}{}", many(255))), [""; 0]);
    let problems = problems(&format!("{SMALL}{}", many(256)));
    let reason = "forwarding_policy: 256 of them for each of 1 network instances";
    assert!(
        problems.len() == 1 && problems[0].starts_with(reason),
        "{problems:?}"
    );
}

#[test]
fn an_interface_may_be_there_for_a_policy_alone() {
    let interface = "[[interface]]\nname = \"n4\"\nrole = \"n6\"\n";
    let policy = "[[forwarding_policy]]\nidentifier = \"edge\"\ninterface = \"n4\"\n";
    assert_eq!(problems(&format!("{SMALL}{interface}{policy}")), [""; 0]);
    assert_eq!(problems(&format!("{SMALL}{interface}")).len(), 1);
}

#[test]
fn a_policy_is_understood_in_words() {
    let policy = "[[forwarding_policy]]\nidentifier = \"edge\"\nnext_hops = [\"10.6.0.9\"]\n";
    let lines = understood(&parse(&format!("{SMALL}{policy}")).unwrap(), 0);
    let line = "forwarding policy edge: to 10.6.0.9, while that leads nowhere as without it; FARs towards access keep to their tunnels";
    assert!(lines.iter().any(|own| own == line), "{lines:?}");
}

#[test]
fn sockets_of_the_kernel_need_its_forwarding_and_nothing_of_xdp() {
    let kernel = "[datapath]\nkind = \"kernel\"\n";
    assert_eq!(problems(&format!("{SMALL}{kernel}")), [""; 0]);
    let pools = |pool: &str| {
        let line = format!("interface = \"n6\"\npools = [\"{pool}\"]");
        with("interface = \"n6\"", &line) + kernel
    };
    assert_eq!(problems(&pools("10.60.0.0/16")), [""; 0]);
    // A VLAN device is as good as any, if packets are forwarded from it.
    let vlan = pools("10.60.0.0/16").replace("\"n6\"\n", "\"n6.60\"\n");
    let vlan = vlan.replace("role = \"n6.60\"", "role = \"n6\"");
    let refused = "interface[1].name = \"n6.60\": the kernel does not forward packets to UEs from there: \
                   sysctl -w net/ipv4/conf/n6.60/forwarding=1";
    assert_eq!(problems(&vlan), [refused]);
    let refused = "interface[1].name = \"n6\": the kernel does not forward packets to UEs from there: \
                   sysctl -w net/ipv6/conf/all/forwarding=1";
    assert_eq!(problems(&pools("2001:db8:60::/48")), [refused]);

    let spread = with("role = \"n3\"", "role = \"n3\"\nspread_cpus = [0]") + kernel;
    let refused = "interface[0].spread_cpus = [0]: is of kind xdp; see datapath.workers";
    assert_eq!(problems(&spread), [refused]);
    for (line, refused) in [
        (
            "workers = 65",
            "datapath.workers = 65: must lie between 1 and 64",
        ),
        (
            "dpdk = { mbufs = 2048 }",
            "datapath.dpdk = {\"eal\":[],\"mbufs\":2048,\"model\":\"run-to-completion\",\"rx_cpus\":[]}: is of kind dpdk, not of kernel",
        ),
    ] {
        assert_eq!(problems(&format!("{SMALL}{kernel}{line}")), [refused]);
    }
    let generic = format!("{SMALL}{kernel}mode = \"generic\"");
    assert_eq!(problems(&generic), [""; 0]);
    let no_machine = Topology::default();
    let doubt = "datapath.mode = \"generic\" says nothing to kind kernel: it is of kind xdp";
    assert_eq!(doubts(&parse(&generic).unwrap(), &no_machine), [doubt]);
    let xdp = "datapath.workers = 2: programs of kind xdp run on the CPUs that packets come in on; see spread_cpus";
    assert_eq!(problems(&format!("{SMALL}[datapath]\nworkers = 2")), [xdp]);
}

#[test]
fn the_example_is_right() {
    let config = parse(EXAMPLE).unwrap();
    assert_eq!(check(&config, &machine()), []);
}

/// Each key that has a default stands in the example, with its default; so the example's
/// sections, emptied, parse to the same.
#[test]
fn the_example_shows_each_default() {
    let config = parse(EXAMPLE).unwrap();
    assert_eq!(config.datapath, Datapath::default());
    assert_eq!(config.limits, Limits::default());
    assert_eq!(config.qos, Qos::default());
    assert_eq!(config.gtpu, Gtpu::default());
    assert_eq!(config.api, Api::default());
    assert_eq!(config.log, Log::default());
    assert_eq!(config.usage_log, UsageLog::default());
    assert_eq!(config.state, State::default());
    let small = parse(SMALL).unwrap();
    assert_eq!(
        N4 {
            listen: small.n4.listen,
            // The default is too kind to be shown: anybody.
            allow: Vec::new(),
            ..config.n4.clone()
        },
        small.n4
    );
    assert_eq!(
        config.network_instance[0].table,
        small.network_instance[0].table
    );
    assert_eq!(
        config.network_instance[0].router,
        small.network_instance[0].router
    );
    let shown: toml::Table = toml::from_str(EXAMPLE).unwrap();
    let all: toml::Table = toml::from_str(&toml::to_string(&config).unwrap()).unwrap();
    for (section, keys) in &all {
        let Some(keys) = keys.as_table() else {
            continue;
        };
        for (key, value) in keys {
            assert!(
                shown[section].get(key).is_some(),
                "{section}.{key} is not in the example"
            );
            if let Some(keys) = value.as_table() {
                assert!(
                    keys.keys()
                        .all(|key| EXAMPLE.contains(&format!("\n{key} = "))),
                    "{section}.{key}"
                );
                continue;
            }
            let documented = EXAMPLE.contains(&format!("\n{key} = "));
            assert!(documented, "{section}.{key}");
        }
    }
    for optional in [
        "token_file",
        "device",
        "framed_routes",
        "network_instance",
        "interface",
        "table",
        "mbr_uplink_kbps",
        "mbr_downlink_kbps",
        "qfi",
    ] {
        assert!(
            EXAMPLE.contains(&format!("\n# {optional} = ")),
            "{optional}"
        );
    }
    let way = "[[forwarding_policy]]\nidentifier = \"a\"\ntable = 100\n";
    let policy = parse(&format!("{SMALL}{way}")).unwrap();
    let policy = &policy.forwarding_policy[0];
    let policy: toml::Table = toml::from_str(&toml::to_string(policy).unwrap()).unwrap();
    for key in ["fallback", "towards_access"] {
        assert_eq!(shown["forwarding_policy"][0][key], policy[key], "{key}");
    }
    let rule = parse(&rule("")).unwrap().predefined_rule.remove(0);
    let rule: toml::Table = toml::from_str(&toml::to_string(&rule).unwrap()).unwrap();
    for (key, value) in rule
        .iter()
        .filter(|(key, _)| *key != "flows" && *key != "name")
    {
        assert_eq!(&shown["predefined_rule"][0][key], value, "{key}");
    }
}

/// "Default: X." in the comment above a key is the value that stands there.
#[test]
fn comments_state_the_defaults_that_hold() {
    let mut comment = String::new();
    for line in EXAMPLE.lines() {
        if let Some(text) = line.strip_prefix('#') {
            comment.push_str(text);
            continue;
        }
        if let Some((key, value)) = line.split_once(" = ") {
            let has = comment.rsplit_once("Default: ");
            // These are described in words, or show more than their default.
            let in_words = ["pools", "entries", "filters", "flows", "allow", "next_hops"];
            if let Some((_, rest)) = has.filter(|_| !in_words.contains(&key)) {
                let stated = rest.trim().trim_end_matches('.');
                let stated = stated.split_once(" (").map_or(stated, |(value, _)| value);
                assert_eq!(stated, value, "{key}");
            } else if !comment.is_empty() {
                assert!(
                    comment.contains("equired") || has.is_some(),
                    "{key}: {comment}"
                );
            }
        }
        comment.clear();
    }
}

/// The configurations that the pages for operators show.
#[test]
fn what_the_pages_show_is_a_configuration() {
    let pages = [
        include_str!("../../../../docs/howto/open5gs.md"),
        include_str!("../../../../docs/howto/free5gc.md"),
    ];
    for page in pages {
        let (_, from) = page.split_once("```toml\n").unwrap();
        let (text, _) = from.split_once("```").unwrap();
        assert_eq!(problems(text), [""; 0], "{text}");
    }
}

#[test]
fn an_smf_that_is_called_must_be_allowed_to_answer() {
    let listen = "listen = \"127.0.0.1:8805\"";
    let lines = format!("{listen}\nsmf = [\"127.0.0.2:8805\"]\nallow = [\"127.0.0.8/29\"]");
    let found = problems(&with(listen, &lines));
    assert!(
        found.len() == 1 && found[0].contains("n4.smf[0]") && found[0].contains("n4.allow"),
        "{found:?}"
    );
    assert_eq!(
        problems(&with(listen, &lines.replace(".8/", ".0/"))),
        [""; 0]
    );
}

#[test]
fn small_file_is_enough() {
    assert_eq!(problems(SMALL), [""; 0]);
}

#[test]
fn a_wrong_key_or_value_is_named() {
    let listen = "listen = \"127.0.0.1:8805\"";
    let cases = [
        (
            format!(
                "{SMALL}pools = [\"10.60.0.0/16\"]\n[[network_instance]]\nname = \"ims\"\n\
                 interface = \"n6\"\npools = [\"10.60.128.0/24\"]"
            ),
            "network_instance[1].pools[0] = \"10.60.128.0/24\": overlaps 10.60.0.0/16 of a network",
        ),
        (
            format!("{SMALL}[[interface]]\nname = \"n4\"\nrole = \"n6\""),
            "interface[2].name = \"n4\": has role n6, but no [[network_instance]] names it",
        ),
        (
            with("[n4]", "[n4]\nt1 = 5"),
            "n4.t1 = 5: unknown key, expected one of",
        ),
        (
            with("[n4]", "[n44]"),
            "n44 = { listen = \"127.0.0.1:8805\" }: unknown key, expected",
        ),
        (with(listen, ""), "n4.listen: is required"),
        (
            with("[node]\nid = \"upf1.example.org\"", ""),
            "node: is required",
        ),
        (
            with(listen, "listen = \"127.0.0.1\""),
            "n4.listen = \"127.0.0.1\": invalid socket",
        ),
        (
            with(listen, "listen = 8805"),
            "n4.listen = 8805: invalid type: integer `8805`",
        ),
        (
            with("[n4]", "[n4]\nt1_ms = -1"),
            "n4.t1_ms = -1: invalid value: integer `-1`",
        ),
        (
            with("[n4]", "[n4]\nt1_ms = 5"),
            "n4.t1_ms = 5: must lie between 10 and 60000",
        ),
        (
            with("upf1.example.org", "upf_1"),
            "node.id = \"upf_1\": neither an IP address nor",
        ),
        (
            with("upf1.example.org", "10.0.0.256"),
            "node.id = \"10.0.0.256\": neither an IP",
        ),
        (
            with("role = \"n6\"", "role = \"n4\""),
            "interface[1].role = \"n4\": expected one of",
        ),
        (
            format!("{SMALL}pools = [\"10.60.0.0/16\", \"10.61.0.0/99\"]"),
            "network_instance[0].pools[1] = \"10.61.0.0/99\": not a prefix such as 10.60.0.0/16",
        ),
        (
            format!("{SMALL}pools = [\"10.60.0.1/16\"]"),
            "network_instance[0].pools[0] = \"10.60.0.1/16\": has bits beyond its length; \
             10.60.0.0/16 is meant?",
        ),
        (
            format!("{SMALL}pools = [\"10.60.0.0/16\", \"10.60.9.0/24\"]"),
            "network_instance[0].pools[1] = \"10.60.9.0/24\": overlaps 10.60.0.0/16",
        ),
        (
            format!("{SMALL}pools = [\"2001:db8::/96\"]"),
            "network_instance[0].pools[0] = \"2001:db8::/96\": must be /64 or shorter",
        ),
        (
            format!("{SMALL}pools = [\"10.3.0.0/24\"]"),
            "network_instance[0].pools[0] = \"10.3.0.0/24\": contains 10.3.0.1, our own address",
        ),
        (
            format!("{SMALL}pools = [\"10.60.0.0/16\"]\nframed_routes = [\"10.0.0.0/8\"]"),
            "network_instance[0].framed_routes[0] = \"10.0.0.0/8\": overlaps 10.60.0.0/16, a pool of",
        ),
        (
            format!("{SMALL}framed_routes = [\"192.0.2.1/24\"]"),
            "network_instance[0].framed_routes[0] = \"192.0.2.1/24\": has bits beyond its length",
        ),
        (
            format!("{SMALL}[network_instance.router]\naddresses = [\"10.6.0.1\", \"10.6.0.2\"]"),
            "network_instance[0].router.addresses[1] = \"10.6.0.2\": one of each family at most",
        ),
        (
            format!("{SMALL}[network_instance.router]\naddresses = [\"::\"]"),
            "network_instance[0].router.addresses[0] = \"::\": must be an address that others",
        ),
        (
            format!("{SMALL}[network_instance.router]\nmtu = 1279"),
            "network_instance[0].router.mtu = 1279: must be 1280 to 65535",
        ),
        (
            with("name = \"n3\"", "name = \"eth9\""),
            "interface[0].name = \"eth9\": no such interface; see: ip link",
        ),
        (
            with("[\"10.3.0.1\"]", "[\"10.3.0.2\"]"),
            "interface[0].addresses[0] = \"10.3.0.2\": neither n3 nor a VLAN device on it has this",
        ),
        (
            with("role = \"n3\"", "role = \"n3\"\nspread_cpus = [0, 2]"),
            "interface[0].spread_cpus[1] = 2: no CPU with this number is online",
        ),
        (
            with("role = \"n3\"", "role = \"n3\"\nspread_cpus = [1, 1]"),
            "interface[0].spread_cpus[1] = 1: named twice",
        ),
        (
            with("addresses = [\"10.3.0.1\"]", ""),
            "interface[0].addresses: an interface with",
        ),
        (
            format!("{SMALL}[[network_instance]]\nname = \"ims\"\ninterface = \"n3\""),
            "network_instance[1].interface = \"n3\": this interface does not have role n6",
        ),
        (
            format!("{SMALL}[[network_instance]]\nname = \"ims\"\ninterface = \"n7\""),
            "network_instance[1].interface = \"n7\": no [[interface]] has this name",
        ),
        (
            with(listen, "listen = \"0.0.0.0:8805\""),
            "n4.listen = \"0.0.0.0:8805\": must be one address of this machine",
        ),
        (
            with(listen, "listen = \"10.9.9.9:8805\""),
            "n4.listen = \"10.9.9.9:8805\": no interface has this address",
        ),
        (
            with("[n4]", "[n4]\nsmf = [\"[::1]:8805\"]"),
            "n4.smf[0] = \"[::1]:8805\": not of the address family of n4.listen",
        ),
        (
            format!("{SMALL}[api]\nlisten = \"0.0.0.0:8806\""),
            "api.token_file: is required, because api.listen = 0.0.0.0:8806 is not loopback",
        ),
        (
            format!("{SMALL}[api]\ntoken_file = \"/nonexistent/token\""),
            "api.token_file = \"/nonexistent/token\": No such file or directory",
        ),
        (
            format!("{SMALL}[api]\nclient_connections = 0"),
            "api.client_connections = 0:",
        ),
        (
            format!("{SMALL}[api]\nclient_requests_per_s = 0"),
            "api.client_requests_per_s = 0:",
        ),
        (
            format!("{SMALL}[api]\nhosts = [\"upf.example:8806\"]"),
            "api.hosts[0] = \"upf.example:8806\": not a host name, such as upf1.example.org, without port",
        ),
        (
            format!("{SMALL}[api]\nhosts = [\"::1\"]"),
            "api.hosts[0] = \"::1\": addresses and localhost need not be listed",
        ),
        (
            format!("{SMALL}[api]\nhosts = [\"upf.example\", \"UPF.example\"]"),
            "api.hosts[1] = \"UPF.example\": named twice",
        ),
        (
            format!("{SMALL}[limits]\nsessions = 5000\nentries = 4000"),
            "limits.entries = 4000: fewer than limits.sessions = 5000",
        ),
        (
            format!("{SMALL}[limits]\nfilters = 10"),
            "limits.filters = 10",
        ),
        (
            rule("flows = [\"permit out ip from any to any\", \"deny out ip from any to any\"]"),
            "predefined_rule[0].flows[1] = \"deny out ip from any to any\": flow description uses deny",
        ),
        (
            rule("action = \"redirect\""),
            "predefined_rule[0].action = \"redirect\": expected `forward` or `drop`",
        ),
        (
            rule("network_instance = \"ims\""),
            "predefined_rule[0].network_instance = \"ims\": no [[network_instance]] has this name",
        ),
        (
            rule("network_instance = \"internet\"\ndirection = \"downlink\""),
            "predefined_rule[0].network_instance = \"internet\": has no effect with direction",
        ),
        (
            rule("network_instance = \"internet\"\naction = \"drop\""),
            "predefined_rule[0].network_instance = \"internet\": has no effect with action",
        ),
        (
            rule("mbr_downlink_kbps = 5"),
            "predefined_rule[0].mbr_uplink_kbps: is required beside mbr_downlink_kbps",
        ),
        (
            rule("mbr_downlink_kbps = 5\nmbr_uplink_kbps = 1099511627776"),
            "predefined_rule[0].mbr_uplink_kbps = 1099511627776: must lie between 0 and",
        ),
        (
            rule("qfi = 64"),
            "predefined_rule[0].qfi = 64: must lie between 0 and 63",
        ),
        (
            rule("flows = [\"permit out 6 from any 1,2,3,4,5,6,7,8,9 to any 1,2,3,4,5,6,7,8\"]"),
            "predefined_rule[0].flows: 72 pairs of port ranges, at most 64",
        ),
        (
            format!("{SMALL}[[predefined_rule]]\nname = \"\""),
            "predefined_rule[0].name = \"\": must have 1 to 255 octets",
        ),
        (
            rule("").repeat(17).replacen(SMALL, "", 17) + SMALL,
            "predefined_rule[16].name = \"block\": more than 16 rules have this name",
        ),
        (
            format!("{SMALL}[[predefined_rule]]\nflows = []"),
            "predefined_rule[0].name: is required",
        ),
        (
            format!("{SMALL}[log]\nformat = \"xml\""),
            "log.format = \"xml\": expected `text` or `json`",
        ),
        (
            format!("{SMALL}[datapath]\nmode = \"skb\""),
            "datapath.mode = \"skb\": expected `driver` or `generic`",
        ),
    ];
    for (text, expected) in cases {
        let got = problems(&text);
        assert_eq!(got.len(), 1, "{expected}: {got:?}");
        assert!(
            got[0].starts_with(expected),
            "\n     got {}\nexpected {expected}",
            got[0]
        );
    }
}

#[test]
fn a_control_group_with_too_little_memory_is_named_before_the_start() {
    let small = parse(SMALL).unwrap();
    let tables = crate::plan::layout(&small).octets();
    let said = |mib: u64| problem_of_memory(&small, &memory(mib << 20), tables);
    let named = said(100).unwrap().to_string();
    assert!(
        named.starts_with("limits.sessions = 80000: ")
            && named.contains("/sys/fs/cgroup/upf/memory.max allows 100 MiB"),
        "{named}"
    );
    assert_eq!(said(130), None);
    let doubt = doubt_of_memory(&small, &memory(130 << 20), tables).unwrap();
    assert!(doubt.contains("buffering.max_mib"), "{doubt}");
    assert_eq!(doubt_of_memory(&small, &memory(1 << 30), tables), None);
    // Tables of this kind take memory as they fill.
    let kernel = parse(&format!("{SMALL}[datapath]\nkind = \"kernel\"")).unwrap();
    let little = memory(64 << 20);
    assert_eq!(problem_of_memory(&kernel, &little, tables), None);
    assert!(doubt_of_memory(&kernel, &little, tables).is_some());
}

#[test]
fn entries_and_filters_follow_the_sessions() {
    let config = parse(&format!("{SMALL}[limits]\nsessions = 1000000")).unwrap();
    assert_eq!(config.limits.entries, Some(2_000_000));
    assert_eq!(config.limits.filters, Some(1_000_000));
    assert_eq!(parse(SMALL).unwrap().limits, Limits::default());
    assert_eq!(
        problems(&format!("{SMALL}[limits]\nsessions = 1000000")),
        [""; 0]
    );
}

#[test]
fn every_problem_is_named_at_once() {
    let text = SMALL
        .replace("10.3.0.1", "10.3.0.9")
        .replace("127.0.0.1:8805", "0.0.0.0:0");
    assert_eq!(problems(&text).len(), 3);
}

#[test]
fn broken_toml_names_the_line() {
    let got = problems("[node\nid = 1");
    assert!(got[0].contains("line 1"), "{got:?}");
}

/// `SMALL` over DPDK, with these lines of the section `datapath`, and devices for both interfaces.
fn over_dpdk(lines: &str) -> String {
    let text = SMALL
        .replacen(
            "name = \"n3\"\n",
            "name = \"n3\"\ndevice = \"net_null0\"\n",
            1,
        )
        .replacen(
            "name = \"n6\"\n",
            "name = \"n6\"\ndevice = \"net_null1,size=64\"\n",
            1,
        );
    format!("{text}[datapath]\nkind = \"dpdk\"\n{lines}\n")
}

#[test]
fn a_reserve_that_nobody_could_have_is_refused() {
    let with = |lines: &str| problems(&format!("{SMALL}[limits]\nsessions = 1000\n{lines}"));
    let named = |lines: &str| {
        let problems = with(lines);
        assert_eq!(problems.len(), 1, "{problems:?}");
        problems[0].split(' ').next().unwrap().to_owned()
    };
    assert_eq!(
        with("emergency_sessions = 0\nshares = 64"),
        Vec::<String>::new()
    );
    assert_eq!(
        named("emergency_sessions = 10"),
        "limits.emergency_sessions"
    );
    assert_eq!(named("shares = 65"), "limits.shares");
    let for_calls = SMALL.replacen(
        "[[network_instance]]\n",
        "[[network_instance]]\nemergency = true\n",
        1,
    );
    let with = |reserve: u32| {
        problems(&format!(
            "{for_calls}[limits]\nsessions = 1000\nemergency_sessions = {reserve}"
        ))
    };
    assert_eq!(with(500), Vec::<String>::new());
    assert_eq!(with(501).len(), 1);
}

/// Problems that a turnpiked with DPDK finds in the file.
fn problems_with_dpdk(text: &str) -> Vec<String> {
    let mut problems = problems(text);
    let reason = "datapath.kind = \"dpdk\": this turnpiked was built without it: make build DPDK=1";
    problems.retain(|problem| cfg!(feature = "dpdk") || problem != reason);
    problems
}

#[test]
fn without_dpdk_its_kind_is_refused() {
    let refused = usize::from(!cfg!(feature = "dpdk"));
    assert_eq!(problems(&over_dpdk("")).len(), refused);
    assert_eq!(problems_with_dpdk(&over_dpdk("")), [""; 0]);
}

#[test]
fn interfaces_of_dpdk_need_not_be_there_but_have_devices() {
    let text = over_dpdk("").replace("\"n6\"", "\"made\"");
    let text = text.replacen("role = \"made\"", "role = \"n6\"", 1);
    assert_eq!(problems_with_dpdk(&text), [""; 0]);
    let twice = over_dpdk("").replacen("net_null1,size=64", "net_null0,size=64", 1);
    assert_eq!(
        problems_with_dpdk(&twice),
        ["interface[1].device = \"net_null0,size=64\": named twice"]
    );
    let missing = over_dpdk("").replacen("device = \"net_null0\"\n", "", 1);
    let required = "interface[0].device: is required for kind dpdk, such as \"0000:01:00.0\"";
    assert_eq!(problems_with_dpdk(&missing), [required]);
    let other = over_dpdk("busy_poll = true").replacen("kind = \"dpdk\"\n", "", 1);
    assert_eq!(
        problems(&other),
        [
            "datapath.busy_poll = true: is of kind dpdk, not of xdp",
            "interface[0].device = \"net_null0\": is of kind dpdk, not of xdp",
            "interface[1].device = \"net_null1,size=64\": is of kind dpdk, not of xdp",
        ]
    );
}

#[test]
fn the_kernel_answers_what_comes_in_behind_dpdk() {
    let wire = "net_af_packet0,iface=eth3,qpairs=2";
    let text = over_dpdk("").replacen("net_null0", wire, 1);
    let mut system = machine();
    let lacking = [
        "net/ipv4/conf/eth3/forwarding=0",
        "net/ipv4/conf/eth3/rp_filter=1",
    ];
    for name in ["eth3", "eth4"] {
        let lacking = lacking.map(str::to_owned).into();
        system.meddling.insert(name.to_owned(), lacking);
    }
    let found = |system: &System| {
        let problems = check(&parse(&text).unwrap(), system).into_iter();
        let of_wire = problems.filter(|problem| problem.key == "interface[0].device");
        of_wire
            .map(|problem| problem.to_string())
            .collect::<Vec<_>>()
    };
    let refused = format!(
        "interface[0].device = \"{wire}\": the kernel meddles with what comes in there: sysctl -w {}",
        lacking.join(" ")
    );
    assert_eq!(found(&system), [refused]);
    system.meddling.remove("eth3");
    assert_eq!(found(&system), [""; 0]);
}

#[test]
fn threads_of_dpdk_are_ours() {
    let cpus = problems_with_dpdk(&over_dpdk("workers = 2\ncpus = [1]"));
    let reason = "datapath.cpus = [1]: must be one for each of datapath.workers = 2, or none";
    assert_eq!(cpus, [reason]);
    let cpus = problems_with_dpdk(&over_dpdk("workers = 2\ncpus = [1, 7]"));
    let reason = "datapath.cpus[1] = 7: no CPU with this number is online";
    assert_eq!(cpus, [reason]);
    for (eal, reason) in [
        ("\"--no-huge\", \"-m\", \"64\"", None),
        (
            "\"-l0\"",
            Some("datapath.dpdk.eal[0] = \"-l0\": threads are"),
        ),
        (
            "\"--lcores=1\"",
            Some("datapath.dpdk.eal[0] = \"--lcores=1\": threads are"),
        ),
        (
            "\"-m\", \"\"",
            Some("datapath.dpdk.eal[1] = \"\": an empty"),
        ),
        (
            "\"--no-huge\", \"-m\", \"64\", \"65\"",
            Some("datapath.dpdk.eal[3] = \"65\": belongs to no option"),
        ),
    ] {
        let section = format!("[datapath.dpdk]\neal = [{eal}]");
        let got = problems_with_dpdk(&over_dpdk(&section));
        assert_eq!(got.len(), usize::from(reason.is_some()), "{eal}: {got:?}");
        let expected = reason.unwrap_or_default();
        assert!(
            got.iter().all(|got| got.starts_with(expected)),
            "{eal}: {got:?}"
        );
    }
}

#[test]
fn a_core_plan_that_cannot_be_is_refused() {
    for (lines, expected) in [
        ("workers = 1\ncpus = [1]\ncontrol_cpus = [0]", vec![]),
        ("[datapath.dpdk]\nmodel = \"pipeline\"", vec![]),
        (
            "cpus = [0]\n[datapath.dpdk]\nmodel = \"pipeline\"\nrx_cpus = [1]",
            vec![],
        ),
        (
            "cpus = [3]",
            vec![
                "datapath.cpus[0] = 3: this process may not run there: its CPU affinity, or its cpuset",
            ],
        ),
        (
            "workers = 2\ncpus = [1, 1]",
            vec!["datapath.cpus[1] = 1: named twice"],
        ),
        (
            "cpus = [0]\n[datapath.dpdk]\nmodel = \"pipeline\"\nrx_cpus = [1, 0]",
            vec!["datapath.dpdk.rx_cpus[1] = 0: named twice: it is datapath.cpus[0] too"],
        ),
        (
            "cpus = [0]\ncontrol_cpus = [0, 2]",
            vec![
                "datapath.control_cpus[0] = 0: named twice: it is datapath.cpus[0] too",
                "datapath.control_cpus[1] = 2: no CPU with this number is online",
            ],
        ),
        (
            "control_cpus = [0]",
            vec![
                "datapath.control_cpus = [0]: workers and receive cores without CPUs of their own would share them: see \
                 datapath.cpus and datapath.dpdk.rx_cpus",
            ],
        ),
        (
            "[datapath.dpdk]\nrx_cpus = [1]",
            vec!["datapath.dpdk.rx_cpus = [1]: is of datapath.dpdk.model = \"pipeline\""],
        ),
        (
            "workers = 4\n[datapath.dpdk]\nmodel = \"pipeline\"\nring = 4096",
            vec![
                "datapath.dpdk.mbufs = 16384: 4 rings between receive cores and workers hold up to 16384 frames, and no buffer \
                 would be left to receive into: raise it above 16384, or lower datapath.dpdk.ring = 4096",
            ],
        ),
        (
            "workers = 64\n[datapath.dpdk]\nmodel = \"pipeline\"",
            vec![],
        ),
        (
            "[datapath.dpdk]\nring = 16",
            vec!["datapath.dpdk.ring = 16: must lie between 32 and 65536"],
        ),
    ] {
        assert_eq!(problems_with_dpdk(&over_dpdk(lines)), expected, "{lines}");
    }
    let many = "0,".repeat(17);
    let lines = format!("[datapath.dpdk]\nmodel = \"pipeline\"\nrx_cpus = [{many}]");
    let got = problems_with_dpdk(&over_dpdk(&lines));
    assert_eq!(got[0], "datapath.dpdk.rx_cpus: 17 CPUs given, at most 16");
    let elsewhere = format!("{SMALL}[datapath]\ncontrol_cpus = [0]");
    let reason = "datapath.control_cpus = [0]: is of kind dpdk, not of xdp";
    assert_eq!(problems(&elsewhere), [reason]);
}

/// The example of a DPDK-based UPF with a core for control and two for each of four ports, which has hyper-threads at odd numbers.
fn four_ports(model: &str) -> String {
    let mut text = SMALL.replace("[[interface]]", "[[interface]]\ndevice = \"net_null_N\"");
    for port in ["n3", "n6", "n3b", "n6b"] {
        if port.ends_with('b') {
            let (role, rest) = match port {
                "n3b" => ("n3", "addresses = [\"10.3.1.1\"]\n"),
                _ => ("n6", ""),
            };
            text += &format!(
                "[[interface]]\ndevice = \"net_null_N\"\nname = \"{port}\"\nrole = \"{role}\"\n{rest}"
            );
        }
        text = text.replacen("net_null_N", &format!("net_null_{port}"), 1);
    }
    for (port, cpus) in [
        ("n3", "0, 2"),
        ("n6", "4, 6"),
        ("n3b", "8, 10"),
        ("n6b", "12, 14"),
    ] {
        let name = format!("name = \"{port}\"\nrole");
        text = text.replacen(&name, &format!("rx_cpus = [{cpus}]\n{name}"), 1);
    }
    format!("{text}[datapath]\nkind = \"dpdk\"\ncontrol_cpus = [16]\n{model}")
}

#[test]
fn two_cores_for_each_of_four_ports_cannot_be_planned() {
    let all = "[0, 2, 4, 6, 8, 10, 12, 14]";
    let done = format!("workers = 8\ncpus = {all}\n");
    let piped = format!(
        "workers = 2\ncpus = [18, 20]\n[datapath.dpdk]\nmodel = \"pipeline\"\nmbufs = 131072\nrx_cpus = {all}\n"
    );
    let cpus: Vec<(u32, u32, u32)> = (0..=20).step_by(2).map(|cpu| (cpu, 0, cpu)).collect();
    for (model, thread) in [(done, "worker"), (piped, "receiver")] {
        let config = parse(&four_ports(&model)).unwrap();
        let mut machine = machine();
        machine.topology = topology(&cpus);
        let mut got = Vec::new();
        cores::check(&config, &machine.topology, &mut got);
        let got: Vec<String> = got.iter().map(ToString::to_string).collect();
        assert_eq!(got, [""; 0], "{model}");
        let polled = crate::plan::ports(&config);
        let polled: Vec<_> = polled.into_iter().map(|port| port.polled_by).collect();
        assert_eq!(polled, [[0, 1], [2, 3], [4, 5], [6, 7]]);
        let report = crate::plan::cores(&config, &machine.topology);
        let threads: Vec<String> = report
            .cpus
            .iter()
            .map(|cpu| cpu.threads.join(", "))
            .collect();
        assert_eq!(threads[0], format!("{thread}-0, frames of n3"));
        assert_eq!(threads[7], format!("{thread}-7, frames of n6b"));
        assert_eq!(threads[8], "control");
        assert_eq!(doubts(&config, &machine.topology), [""; 0]);
    }
}

#[test]
fn cores_of_ports_that_cannot_be_are_refused() {
    let of = |n3: &str, lines: &str| {
        let text = over_dpdk(lines).replacen("name = \"n3\"", &format!("{n3}\nname = \"n3\""), 1);
        problems_with_dpdk(&text)
    };
    let two = "workers = 2\ncpus = [0, 1]";
    let six = |n3: &str, n6: &str, lines: &str| {
        let text = over_dpdk(lines)
            .replacen(
                "name = \"n3\"",
                &format!("rx_cpus = {n3}\nname = \"n3\""),
                1,
            )
            .replacen(
                "name = \"n6\"",
                &format!("rx_cpus = {n6}\nname = \"n6\""),
                1,
            );
        problems_with_dpdk(&text)
    };
    assert_eq!(of("rx_cpus = [0]", two), [""; 0]);
    assert_eq!(six("[0]", "[1]", two), [""; 0]);
    assert_eq!(six("[0]", "[0, 1]", two), [""; 0]);
    assert_eq!(
        six("[0]", "[0]", two),
        ["datapath.cpus[1] = 1: would poll nothing: the rx_cpus of each interface name others"]
    );
    assert_eq!(
        of("rx_cpus = [7]", two),
        ["interface[0].rx_cpus[0] = 7: is none of datapath.cpus = [0, 1]"]
    );
    assert_eq!(
        of("rx_cpus = [1, 1]", two),
        ["interface[0].rx_cpus[1] = 1: named twice"]
    );
    assert_eq!(
        of("rx_cpus = [0]", "[datapath.dpdk]\nmodel = \"pipeline\""),
        ["interface[0].rx_cpus[0] = 0: is none of datapath.dpdk.rx_cpus = []"]
    );
    let elsewhere = SMALL.replacen("name = \"n3\"", "rx_cpus = [0]\nname = \"n3\"", 1);
    assert_eq!(
        problems(&elsewhere),
        ["interface[0].rx_cpus = [0]: is of kind dpdk, not of xdp"]
    );
}

#[test]
fn slow_on_the_other_numa_node_than_the_nic_and_nobody_says_so() {
    let mut topology = topology(&[(0, 0, 0), (1, 0, 1), (2, 1, 0), (4, 1, 1)]);
    let doubts_of = |topology: &Topology, lines: &str| {
        let text = over_dpdk(lines);
        let named = (text.replacen("device = \"net_null0\"", "device = \"0000:81:00.0\"", 1))
            .replacen(
                "device = \"net_null1,size=64\"",
                "device = \"net_af_packet0,iface=eth3\"",
                1,
            );
        let config = parse(&named).unwrap();
        (doubts(&config, topology), home(&config, topology))
    };
    // The kernel knows of none.
    assert_eq!(doubts_of(&topology, "cpus = [0]"), (vec![], None));
    topology.nics = [("0000:81:00.0".to_owned(), 1), ("eth3".to_owned(), 1)].into();
    assert_eq!(doubts_of(&topology, "cpus = [2]"), (vec![], Some(1)));
    let far = |name: &str, node: u32, cpus: &str| {
        format!(
            "the NIC of {name} is on NUMA node {node}, and CPUs {cpus} that serve it are on others: each packet crosses between \
             them; take CPUs of node {node}"
        )
    };
    let (got, home) = doubts_of(&topology, "cpus = [0]");
    assert_eq!(got, [far("n3", 1, "[0]"), far("n6", 1, "[0]")]);
    assert_eq!(home, Some(1));
    let piped = "cpus = [0]\n[datapath.dpdk]\nmodel = \"pipeline\"\nrx_cpus = [1]";
    let (got, _) = doubts_of(&topology, piped);
    assert_eq!(got[0], far("n3", 1, "[0, 1]"));
    // One NIC on each.
    topology.nics.insert("eth3".to_owned(), 0);
    let (got, home) = doubts_of(&topology, "cpus = [0]");
    let several = "NICs are on several NUMA nodes (0: n6; 1: n3): packets cross between them, and buffers, rings and tables lie \
                   on node 0";
    assert_eq!(got, [far("n3", 1, "[0]"), several.to_owned()]);
    assert_eq!(home, Some(0));
}

#[test]
fn a_core_plan_that_is_slow_is_doubted() {
    // Two sockets of two cores, the first of each with two hyper-threads.
    let cpus = [(0, 0, 0), (1, 0, 1), (2, 1, 0), (4, 0, 0), (6, 1, 0)];
    let doubts_of = |lines: &str| doubts(&parse(&over_dpdk(lines)).unwrap(), &topology(&cpus));
    let pipeline = "[datapath.dpdk]\nmodel = \"pipeline\"\nrx_cpus";
    assert_eq!(doubts_of(&format!("cpus = [0]\n{pipeline} = [1]")), [""; 0]);
    assert_eq!(doubts_of("workers = 2"), [""; 0]);
    let apart = doubts_of(&format!("cpus = [0]\n{pipeline} = [2]"));
    let expected =
        "workers and receive cores are apart (NUMA node 0: CPUs [0]; NUMA node 1: CPUs [2]): ";
    assert!(
        apart.len() == 1 && apart[0].starts_with(expected),
        "{apart:?}"
    );
    assert_eq!(
        doubts_of(&format!("cpus = [0]\n{pipeline} = [4]")),
        [
            "datapath.cpus[0] = 0 and datapath.dpdk.rx_cpus[0] = 4 are hyper-threads of one core: each has about half of it"
        ]
    );
    assert_eq!(
        doubts_of("cpus = [0]\ncontrol_cpus = [2, 4, 6]"),
        [
            "datapath.cpus[0] = 0 and datapath.control_cpus[1] = 4 are hyper-threads of one core: each has about half of it"
        ]
    );
    let unconfined = doubts_of("cpus = [0]\nbusy_poll = true");
    assert!(
        unconfined.len() == 1 && unconfined[0].starts_with("datapath.control_cpus is empty"),
        "{unconfined:?}"
    );
}

#[test]
fn cpus_of_a_plan_name_their_threads() {
    let pipeline = "[datapath.dpdk]\nmodel = \"pipeline\"";
    let of = |lines: &str| {
        let config = parse(&over_dpdk(lines)).unwrap();
        let cores = crate::plan::cores(&config, &topology(&[(0, 0, 0), (1, 0, 1)]));
        let threads = cores.cpus.into_iter().map(|cpu| cpu.threads.join(" "));
        (threads.collect::<Vec<_>>(), cores.anywhere.join(" "))
    };
    let (cpus, anywhere) = of(&format!("cpus = [1]\n{pipeline}\nrx_cpus = [0]"));
    assert_eq!(cpus, ["receiver-0", "worker-0"]);
    assert_eq!(anywhere, "control");
    let (cpus, anywhere) = of(&format!("workers = 2\n{pipeline}"));
    assert_eq!(cpus, ["", ""]);
    assert_eq!(anywhere, "worker-0 worker-1 receiver-0 control");
    let (cpus, anywhere) = of("cpus = [1]\ncontrol_cpus = [0]");
    assert_eq!(
        (cpus.join(","), anywhere),
        ("control,worker-0".into(), String::new())
    );
}

/// `SMALL`, registered with an NRF.
fn with_nrf(lines: &str, slice: &str) -> String {
    format!("{SMALL}[nrf]\n{lines}\n[[nrf.slice]]\n{slice}\n")
}

#[test]
fn the_example_of_an_nrf_is_right_when_it_is_no_comment() {
    let (_, commented) = EXAMPLE.split_once("\n# [nrf]\n").unwrap();
    let lines = commented.lines().filter_map(|line| {
        let line = line.strip_prefix("# ")?;
        let is_code = line.starts_with('[')
            || line.split_once(" = ").is_some_and(|(key, _)| {
                key.bytes()
                    .all(|b| b.is_ascii_lowercase() || b == b'_' || b == b'2')
            });
        is_code.then_some(line)
    });
    let of_file = |line: &&str| line.contains("_file = ");
    let lines: Vec<&str> = lines.filter(|line| !of_file(line)).collect();
    let text = format!("{SMALL}[nrf]\n{}\n", lines.join("\n"));
    let nrf = parse(&text).unwrap().nrf.unwrap();
    assert_eq!(nrf.servers.len(), 2);
    assert_eq!(nrf.slice[0].dnns, ["internet"]);
    let refused = "nrf.servers[1] = \"https://nrf2.example.org\": https wants nrf.ca_file, with the authorities of its certificate";
    assert_eq!(problems(&text), [refused]);
    // Each key stands there.
    let shown: toml::Table = toml::from_str(&toml::to_string(&nrf).unwrap()).unwrap();
    for key in shown.keys().filter(|key| *key != "slice") {
        assert!(commented.contains(&format!("\n# {key} = ")), "{key}");
    }
}

#[test]
fn what_no_nrf_can_be_told_is_refused() {
    let at = "servers = [\"http://10.0.0.5:7777\"]";
    assert_eq!(problems(&with_nrf(at, "sst = 1")), [""; 0]);
    for (lines, slice, reason) in [
        (
            "servers = []",
            "sst = 1",
            "nrf.servers = []: must be 1 to 16; without NRF leave [nrf] out",
        ),
        (
            "servers = [\"http://a:1\", \"http://a:1\"]",
            "sst = 1",
            "nrf.servers[1] = \"http://a:1\": named twice",
        ),
        (
            "servers = [\"10.0.0.5:7777\"]",
            "sst = 1",
            "nrf.servers[0] = \"10.0.0.5:7777\": not like http://10.0.0.5:7777 or https://nrf.example.org",
        ),
        (
            &format!("{at}\nfqdn = \"upf1\""),
            "sst = 1",
            "nrf.fqdn = \"upf1\": not a full domain name, such as upf1.example.org",
        ),
        (
            &format!("{at}\naddresses = [\"0.0.0.0\"]"),
            "sst = 1",
            "nrf.addresses[0] = \"0.0.0.0\": must be one address",
        ),
        (
            &format!("{at}\nplmns = [\"0010\"]"),
            "sst = 1",
            "nrf.plmns[0] = \"0010\": not 5 or 6 digits, MCC and MNC, such as \"00101\"",
        ),
        (
            &format!("{at}\nheartbeat_s = 0"),
            "sst = 1",
            "nrf.heartbeat_s = 0: must be 1 to 3600",
        ),
        (
            &format!("{at}\ninstance_id = \"2ed6657d-e927-568b-95e1-2665a8aea6a2\""),
            "sst = 1",
            "nrf.instance_id = \"2ed6657d-e927-568b-95e1-2665a8aea6a2\": not a UUID of version 4, as uuidgen makes it (TS 29.571, NfInstanceId)",
        ),
        (
            &format!("{at}\nkey_file = \"/nowhere\""),
            "sst = 1",
            "nrf.key_file = \"/nowhere\": wants nrf.certificate_file",
        ),
        (at, "sd = \"010203\"", "nrf.slice[0].sst: is required"),
        (
            at,
            "sst = 1\nsd = \"10203\"",
            "nrf.slice[0].sd = \"10203\": not six hexadecimal digits, such as \"010203\"",
        ),
        (
            at,
            "sst = 1\nsd = \"0a0203\"\n[[nrf.slice]]\nsst = 1\nsd = \"0A0203\"",
            "nrf.slice[1] = {\"sst\":1,\"sd\":\"0A0203\"}: named twice",
        ),
        (
            at,
            "sst = 1\ndnns = [\"in ternet\"]",
            "nrf.slice[0].dnns[0] = \"in ternet\": not a DNN, such as internet",
        ),
        (
            at,
            "sst = 1\ndnns = [\"internet\", \"Internet\"]",
            "nrf.slice[0].dnns[1] = \"Internet\": named twice",
        ),
    ] {
        assert_eq!(problems(&with_nrf(lines, slice)), [reason]);
    }
    let ca = format!("{at}\nca_file = \"/nowhere/ca.pem\"");
    let refused = problems(&with_nrf(&ca, "sst = 1"));
    assert!(
        refused[0].starts_with("nrf.ca_file = \"/nowhere/ca.pem\": "),
        "{refused:?}"
    );
    let unnamed = with_nrf(at, "sst = 1").replace("\"internet\"", "\"the internet\"");
    let refused = "nrf.slice[0].dnns: is required, as no network instance has the name of a DNN";
    assert_eq!(problems(&unnamed), [refused]);
}

/// Lines of a section of the example that is a comment, without the sign of one.
fn uncommented(section: &str) -> String {
    let (_, commented) = EXAMPLE.split_once(&format!("\n# [{section}]\n")).unwrap();
    let (commented, _) = commented.split_once("\n\n").unwrap();
    let lines = commented.lines().filter_map(|line| {
        let line = line.strip_prefix("# ")?;
        let is_key = |key: &str| key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        line.split_once(" = ")
            .is_some_and(|(key, _)| is_key(key))
            .then_some(line)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// `SMALL`, with consumers of events.
fn with_nupf(lines: &str) -> String {
    format!("{SMALL}[nupf]\n{lines}\n")
}

#[test]
fn the_example_of_consumers_is_right_when_it_is_no_comment() {
    let all = uncommented("nupf");
    let of_file = |line: &&str| line.contains("_file = ");
    let lines: Vec<&str> = all.lines().filter(|line| !of_file(line)).collect();
    let text = with_nupf(&lines.join("\n"));
    let shown = parse(&text).unwrap().nupf.unwrap();
    let refused =
        "nupf.api_root = \"https://upf1.example.org:7780\": https wants nupf.certificate_file";
    assert_eq!(problems(&text), [refused]);
    // Each key stands there, and those that have a default with it.
    let least = with_nupf("listen = \"10.100.0.1:7780\"\nallow = [\"10.0.0.0/8\"]");
    let least = parse(&least).unwrap().nupf.unwrap();
    assert_eq!(
        Nupf {
            api_root: None,
            ..shown
        },
        least
    );
    for key in toml::Table::try_from(&least).unwrap().keys() {
        assert!(all.contains(&format!("{key} = ")), "{key}");
    }
}

#[test]
fn consumers_that_cannot_be_served_are_refused() {
    let at = "listen = \"10.100.0.1:7780\"\n";
    let least = format!("{at}allow = [\"10.0.0.0/8\"]\n");
    assert_eq!(problems(&with_nupf(&least)), [""; 0]);
    for (lines, reason) in [
        (
            "listen = \"0.0.0.0:7780\"\nallow = [\"::/0\"]".to_owned(),
            "nupf.listen = \"0.0.0.0:7780\": is one address, or wants nupf.api_root: consumers are told where their subscriptions are",
        ),
        (
            format!("{at}allow = []"),
            "nupf.allow = []: must name the networks of consumers; without them leave [nupf] out",
        ),
        (at.to_owned(), "nupf.allow: is required"),
        (
            format!("{least}certificate_file = \"/nowhere\""),
            "nupf.certificate_file = \"/nowhere\": wants nupf.key_file",
        ),
        (
            format!("{least}key_file = \"/nowhere\""),
            "nupf.key_file = \"/nowhere\": wants nupf.certificate_file",
        ),
        (
            format!("{least}max_subscriptions = 0"),
            "nupf.max_subscriptions = 0: must be 1 to 10000",
        ),
        (
            format!("{least}max_ues = 10000001"),
            "nupf.max_ues = 10000001: must be 1 to 10000000",
        ),
        (
            format!("{least}min_period_s = 0"),
            "nupf.min_period_s = 0: must be 1 to 86400",
        ),
        (
            format!("{least}unanswered_s = 86401"),
            "nupf.unanswered_s = 86401: must be 1 to 86400",
        ),
    ] {
        assert_eq!(problems(&with_nupf(&lines)), [reason]);
    }
    let refused = problems(&with_nupf(&format!("{least}ca_file = \"/nowhere/ca.pem\"")));
    assert!(
        refused[0].starts_with("nupf.ca_file = \"/nowhere/ca.pem\": "),
        "{refused:?}"
    );
}

/// `SMALL`, with a collector.
fn with_telemetry(lines: &str) -> String {
    format!("{SMALL}[telemetry]\n{lines}\n")
}

#[test]
fn the_example_of_a_collector_is_right_when_it_is_no_comment() {
    let (_, commented) = EXAMPLE.split_once("\n# [telemetry]\n").unwrap();
    let (commented, _) = commented.split_once("\n\n").unwrap();
    let lines = commented.lines().filter_map(|line| {
        let line = line.strip_prefix("# ")?;
        let (key, _) = line.split_once(" = ")?;
        key.bytes()
            .all(|b| b.is_ascii_lowercase() || b == b'_')
            .then_some(line)
    });
    let lines: Vec<&str> = lines.collect();
    let telemetry = parse(&with_telemetry(&lines.join("\n"))).unwrap();
    let telemetry = telemetry.telemetry.unwrap();
    let shown: toml::Table = toml::from_str(&toml::to_string(&telemetry).unwrap()).unwrap();
    assert_eq!(shown.len(), 4, "each key stands there");
    let endpoint = "endpoint = \"http://127.0.0.1:4318\"";
    let of_one = parse(&with_telemetry(endpoint)).unwrap().telemetry.unwrap();
    assert_eq!(telemetry.ratio, of_one.ratio, "the default");
    assert_eq!(problems(&with_telemetry(endpoint)), [""; 0]);
}

#[test]
fn collectors_that_nobody_can_tell_are_refused() {
    let folder = std::env::temp_dir().join(format!("turnpiked-headers-{}", std::process::id()));
    let at = "endpoint = \"http://127.0.0.1:4318\"";
    for (lines, reason) in [
        (
            "endpoint = \"127.0.0.1:4318\"",
            "telemetry.endpoint = \"127.0.0.1:4318\": not like http://10.0.0.5:7777 or https://nrf.example.org",
        ),
        (
            "endpoint = \"https://otel.example.org\"",
            "telemetry.endpoint = \"https://otel.example.org\": https wants telemetry.ca_file, with the authorities of its certificate",
        ),
        (
            "endpoint = \"http://127.0.0.1:4318\"\nratio = 1.5",
            "telemetry.ratio = \"1.5\": must be 0.0 to 1.0",
        ),
        (
            "endpoint = \"http://127.0.0.1:4318\"\nratio = nan",
            "telemetry.ratio = \"NaN\": must be 0.0 to 1.0",
        ),
    ] {
        assert_eq!(problems(&with_telemetry(lines)), [reason]);
    }
    let of_file = |text: &str| {
        std::fs::write(&folder, text).unwrap();
        let problems = problems(&with_telemetry(&format!("{at}\nheaders_file = {folder:?}")));
        problems.into_iter().map(|problem| {
            let (_, reason) = problem.split_once("\": ").unwrap();
            reason.to_owned()
        })
    };
    assert_eq!(of_file("# none\n\nx-token: abc\n").count(), 0);
    let none = "line 2 is no header, such as: Authorization: Bearer TOKEN";
    for (text, reason) in [
        ("x: y\nsecret\n", none),
        ("x: y\n: secret\n", none),
        ("Host: a\n", "line 1: host is HTTP's own"),
        (&"x: y\n".repeat(33), "holds more than 32 headers"),
    ] {
        assert!(of_file(text).eq([reason]), "{text}");
    }
    std::fs::remove_file(folder).unwrap();
}
