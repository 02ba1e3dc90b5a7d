//! UP Function Features that we offer (TS 29.244, 8.2.25): the one place that lists them.
//!
//! Each feature names the tests that show it. A feature without such a test is not offered, and a
//! request that uses one that is not offered is refused. `docs/features.md` is this table.

use pfcp::ie::UpFunctionFeatures;

/// Something that fails when a feature does not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A folder of `tests/golden`.
    Golden(&'static str),
    /// A scenario of the lab.
    Scenario(&'static str),
    /// A test function: the file, from the root of the repository, and its name.
    Test(&'static str, &'static str),
}

/// A feature that is offered to every SMF.
#[derive(Clone, Copy, Debug)]
pub struct Feature {
    /// Its name in the specification.
    pub name: &'static str,
    /// Its bit.
    pub bit: UpFunctionFeatures,
    /// Service that an SMF may expect.
    pub about: &'static str,
    /// Tests that show it.
    pub proofs: &'static [Proof],
}

use Proof::{Golden, Scenario, Test};

/// All that is offered, in the order of their bits.
pub const FEATURES: &[Feature] = &[
    Feature {
        name: "DDND",
        bit: UpFunctionFeatures::DDND,
        about: "a Downlink Data Report waits for the notification delay of the BAR",
        proofs: &[Test(
            "crates/session/src/shard/paging_tests.rs",
            "the_report_waits_for_the_notification_delay",
        )],
    },
    Feature {
        name: "DLBD",
        bit: UpFunctionFeatures::DLBD,
        about: "the answer to a Downlink Data Report may extend the time that packets wait, and say how many may",
        proofs: &[Test(
            "crates/session/src/shard/paging_tests.rs",
            "the_answer_to_a_report_extends_buffering",
        )],
    },
    Feature {
        name: "TRST",
        bit: UpFunctionFeatures::TRST,
        about: "uplink packets go to the data network the way of the forwarding policy that their FAR names, or its fallback",
        proofs: &[
            Scenario("forwarding-policy"),
            Golden("policy"),
            Golden("policy-closed"),
            Test(
                "crates/session/src/shard/tests/policies.rs",
                "an_update_replaces_the_policy_and_one_that_says_nothing_keeps_it",
            ),
            Test(
                "crates/session/src/shard/tests/policies.rs",
                "an_unknown_identifier_is_refused_and_named",
            ),
            Test(
                "crates/nexthop/tests/model.rs",
                "packets_go_the_fallback_while_the_next_hop_does_not_answer_and_it_is_asked_for",
            ),
        ],
    },
    Feature {
        name: "FTUP",
        bit: UpFunctionFeatures::FTUP,
        // With it, no User Plane IP Resource Information is sent: that IE is for SMFs that choose
        // (5.5.2).
        about: "F-TEIDs are chosen by the UP function",
        proofs: &[
            Scenario("addresses-from-upf"),
            Test(
                "crates/session/src/shard/tests/meaning.rs",
                "equal_choose_ids_share_a_teid_for_the_life_of_the_session",
            ),
        ],
    },
    Feature {
        name: "PFDM",
        bit: UpFunctionFeatures::PFDM,
        about: "Packet Flow Descriptions are kept, replaced and removed by SMF (or SMF set) and \
                application, and shown to operators",
        proofs: &[
            Scenario("pfd-management"),
            Test(
                "crates/session/tests/node/pfds.rs",
                "pfds_are_provisioned_replaced_and_removed",
            ),
        ],
    },
    Feature {
        name: "EMPU",
        bit: UpFunctionFeatures::EMPU,
        about: "End Markers are sent into the tunnels that a path switch leaves (SNDEM)",
        proofs: &[
            Scenario("end-marker"),
            Test(
                "crates/session/src/shard/tests/relay.rs",
                "a_tunnel_hears_of_its_end_from_each_far_that_leaves_it",
            ),
        ],
    },
    Feature {
        name: "PDIU",
        bit: UpFunctionFeatures::PDIU,
        about: "Traffic Endpoints hold what several PDIs have in common; PDRs change with them",
        proofs: &[
            Scenario("traffic-endpoints"),
            Test(
                "crates/session/src/shard/tests/endpoints.rs",
                "an_update_changes_all_pdrs_of_the_endpoint",
            ),
            Test(
                "crates/session/src/shard/tests/endpoints.rs",
                "a_pdi_says_nothing_beside_its_endpoint",
            ),
        ],
    },
    Feature {
        name: "UDBC",
        bit: UpFunctionFeatures::UDBC,
        about: "a BAR says how many packets may wait",
        proofs: &[
            Scenario("buffer-limits"),
            Test(
                "crates/session/src/shard/paging_tests.rs",
                "a_bar_bounds_what_waits",
            ),
        ],
    },
    Feature {
        name: "QUOAC",
        bit: UpFunctionFeatures::QUOAC,
        about: "packets meet the FAR that a URR names when its quota is exhausted, until there is another",
        proofs: &[Test(
            "crates/session/src/usage/tests/volumes.rs",
            "a_quota_of_nothing_closes_at_once_and_its_far_says_what_happens_then",
        )],
    },
    Feature {
        name: "FRRT",
        bit: UpFunctionFeatures::FRRT,
        about: "networks behind a UE: packets to them go to its PDRs, packets from them are its own",
        proofs: &[
            Scenario("framed-routes"),
            Golden("framed-longest"),
            Golden("framed-up-spoofed"),
            Test(
                "crates/session/src/shard/tests/framed.rs",
                "the_prefix_of_another_session_is_refused_until_it_is_gone",
            ),
        ],
    },
    Feature {
        name: "EPFAR",
        bit: UpFunctionFeatures::EPFAR,
        about: "associations are released after a preparation, from either side",
        proofs: &[
            Scenario("association-release-graceful"),
            Test(
                "crates/session/tests/node/release.rs",
                "enhanced_release_from_our_side",
            ),
            Test(
                "crates/session/tests/node/release.rs",
                "enhanced_release_from_the_smf",
            ),
        ],
    },
    Feature {
        name: "DPDRA",
        bit: UpFunctionFeatures::DPDRA,
        about: "PDRs begin and cease to hold at the times that the SMF names",
        proofs: &[
            Scenario("deferred-activation"),
            Test(
                "crates/session/src/shard/deferred_tests.rs",
                "a_pdr_begins_to_hold_at_its_activation_time",
            ),
            Test(
                "crates/session/src/shard/deferred_tests.rs",
                "a_pdr_ceases_to_hold_at_its_deactivation_time",
            ),
        ],
    },
    Feature {
        name: "ADPDP",
        bit: UpFunctionFeatures::ADPDP,
        about: "predefined rules are activated and deactivated by name, on PDRs that say whose traffic it is",
        proofs: &[
            Scenario("predefined-rules"),
            Test(
                "crates/session/src/shard/tests/predefined.rs",
                "a_predefined_rule_adds_its_filters_far_and_qer",
            ),
            Test(
                "crates/session/src/shard/tests/predefined.rs",
                "update_pdr_activates_and_deactivates",
            ),
            Test(
                "crates/session/src/compile/tests.rs",
                "packets_meet_the_same_predefined_rules_in_the_tables",
            ),
        ],
    },
    Feature {
        name: "UEIP",
        bit: UpFunctionFeatures::UEIP,
        about: "UE addresses and prefixes are chosen by the UP function",
        proofs: &[
            Scenario("addresses-from-upf"),
            Test(
                "crates/session/src/shard/tests/cases.rs",
                "an_empty_pool_is_answered_with_cause_79",
            ),
        ],
    },
    Feature {
        name: "SSET",
        bit: UpFunctionFeatures::SSET,
        about: "a session may be controlled by one SMF of a set after the other, over one association",
        proofs: &[Test(
            "crates/session/tests/node/sets.rs",
            "an_alternative_address_of_the_association_takes_a_session_over",
        )],
    },
    Feature {
        name: "MNOP",
        bit: UpFunctionFeatures::MNOP,
        about: "URRs count packets beside octets",
        proofs: &[Test(
            "crates/session/src/usage/tests/volumes.rs",
            "packets_are_reported_where_they_are_asked_for",
        )],
    },
    Feature {
        name: "BUNDL",
        bit: UpFunctionFeatures::BUNDL,
        about: "several messages in one datagram are read; each is answered by itself",
        proofs: &[
            Scenario("bundling"),
            Test(
                "crates/session/tests/node/bundles.rs",
                "each_message_of_a_bundle_is_answered",
            ),
        ],
    },
    Feature {
        name: "MPAS",
        bit: UpFunctionFeatures::MPAS,
        about: "SMFs of one set, each with its association, control each other's sessions",
        proofs: &[Test(
            "crates/session/tests/node/sets.rs",
            "an_smf_of_the_same_set_takes_a_session_over",
        )],
    },
    Feature {
        name: "VTIME",
        bit: UpFunctionFeatures::VTIME,
        about: "quotas end with their validity time",
        proofs: &[Test(
            "crates/session/src/usage/tests/times.rs",
            "a_quota_is_valid_for_its_time",
        )],
    },
    Feature {
        name: "NORP",
        bit: UpFunctionFeatures::NORP,
        about: "a URR reports so many times",
        proofs: &[Test(
            "crates/session/src/usage/tests/volumes.rs",
            "after_so_many_reports_there_is_silence",
        )],
    },
    Feature {
        name: "IP6PL",
        bit: UpFunctionFeatures::IP6PL,
        about: "UE IPv6 prefixes of 1 to 128 bits, given by the SMF or, from 48 bits on, chosen by the UP function",
        proofs: &[
            Scenario("ue-prefixes"),
            Golden("ue-prefix-56"),
            Golden("ue-prefix-128"),
            Test(
                "crates/session/src/shard/tests/framed.rs",
                "a_prefix_of_the_length_asked_for_is_chosen_and_answered",
            ),
        ],
    },
    Feature {
        name: "RESPS",
        bit: UpFunctionFeatures::RESPS,
        about: "sessions of an FQ-CSID, a group or a CP address are handed over by Session Set Modification",
        proofs: &[
            Scenario("session-set-deletion"),
            Test("crates/session/tests/node/sets.rs", "a_set_is_handed_over"),
        ],
    },
];

/// Offered to every SMF: the bits of [`FEATURES`].
pub const CLAIMED: UpFunctionFeatures = {
    let (mut claimed, mut i) = (UpFunctionFeatures::empty(), 0);
    while i < FEATURES.len() {
        claimed = claimed.union(FEATURES[i].bit);
        i += 1;
    }
    claimed
};

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// The text of all files of a folder and those below it.
    fn all_text(folder: &Path) -> String {
        let entries = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        entries.fold(String::new(), |text, path| {
            let more = if path.is_dir() {
                all_text(&path)
            } else {
                fs::read_to_string(&path).unwrap_or_default()
            };
            text + &more
        })
    }

    fn exists(proof: &Proof, scenarios: &str) -> bool {
        match proof {
            Golden(case) => root().join("tests/golden").join(case).is_dir(),
            // The first argument of Scenario::new, on a line of its own or not.
            Scenario(name) => {
                let quoted = format!("\"{name}\"");
                scenarios
                    .split("Scenario::new(")
                    .skip(1)
                    .any(|rest| rest.trim_start().starts_with(&quoted))
            }
            Test(file, name) => fs::read_to_string(root().join(file))
                .is_ok_and(|text| text.contains(&format!("fn {name}("))),
        }
    }

    #[test]
    fn each_feature_has_tests_that_are_there() {
        let scenarios = all_text(&root().join("crates/lab/src"));
        let mut missing = String::new();
        for feature in FEATURES {
            assert!(
                !feature.proofs.is_empty(),
                "{} without a proof",
                feature.name
            );
            assert_eq!(feature.bit.bits().count_ones(), 1, "{}", feature.name);
            for proof in feature
                .proofs
                .iter()
                .filter(|proof| !exists(proof, &scenarios))
            {
                let _ = writeln!(missing, "{}: {proof:?}", feature.name);
            }
        }
        assert_eq!(missing, "");
    }

    /// Tests, by their kind, and files that `docs/spec` and the page of symptoms name in backticks are there.
    #[test]
    fn the_map_of_the_specifications_names_what_is_there() {
        let scenarios = all_text(&root().join("crates/lab/src"));
        let tests = all_text(&root().join("crates"));
        let mut missing = Vec::new();
        let mut named = 0;
        let pages = fs::read_dir(root().join("docs/spec")).unwrap();
        let pages = pages.map(|page| page.unwrap().path());
        for page in pages.chain([root().join("docs/symptoms.md")]) {
            let text = fs::read_to_string(page).unwrap();
            for name in text.split('`').skip(1).step_by(2) {
                let there = match name.split_once(' ') {
                    Some((_, "NAME")) => true,
                    Some(("case", case)) => root().join("tests/golden").join(case).is_dir(),
                    Some(("scenario", name)) => scenarios.contains(&format!("\"{name}\"")),
                    Some(("test", name)) => tests.contains(&format!("fn {name}(")),
                    _ if name.contains('/') => root().join(name).exists(),
                    _ => true,
                };
                named += 1;
                if !there {
                    missing.push(name.to_owned());
                }
            }
        }
        assert!(named > 100, "{named}");
        assert_eq!(missing, [""; 0]);
    }

    /// Rows of tables, without their heads.
    fn rows(page: &str) -> impl Iterator<Item = Vec<&str>> {
        page.lines().filter_map(|line| {
            let cells: Vec<&str> = line
                .strip_prefix('|')?
                .strip_suffix('|')?
                .split(" | ")
                .collect();
            let is_clause =
                cells[0].chars().any(|c| c.is_ascii_digit()) || cells[0].contains("Error");
            is_clause.then_some(cells)
        })
    }

    #[test]
    fn each_row_of_the_specifications_has_a_state_and_its_proof() {
        let states = ["done", "in part", "refused", "not done"];
        let mut wrong = Vec::new();
        for page in fs::read_dir(root().join("docs/spec")).unwrap() {
            let path = page.unwrap().path();
            if path.file_name().is_some_and(|name| name == "README.md") {
                continue;
            }
            let text = fs::read_to_string(path).unwrap();
            for row in rows(&text) {
                let state = row[row.len() - 1].trim();
                let has_state = states.iter().any(|known| state.starts_with(known));
                let names = row.concat();
                let shown = [
                    "`case ",
                    "`scenario ",
                    "`test ",
                    "`datapath/tests",
                    "features.rs`",
                ];
                let is_shown = shown.iter().any(|proof| names.contains(proof));
                if !has_state || state.starts_with("done") && !is_shown {
                    wrong.push(names);
                }
            }
        }
        assert_eq!(wrong, [""; 0]);
    }

    #[test]
    fn the_reports_that_are_sent_are_those_of_the_page() {
        let page = fs::read_to_string(root().join("docs/spec/ts-29.244.md")).unwrap();
        let row = page
            .lines()
            .find(|line| line.starts_with("| 6.3.5 |"))
            .unwrap();
        let code = all_text(&root().join("crates/session/src"));
        let sent = code
            .split("ReportType::")
            .skip(1)
            .map(|rest| rest.split(|c: char| !c.is_ascii_uppercase()).next());
        let sent = sent.flatten().filter(|name| name.len() == 4);
        let is_node_report = |name: &&str| ["UPFR", "UPRR", "PURR"].contains(name);
        let missing: Vec<&str> = sent
            .filter(|name| !is_node_report(name) && !row.contains(name))
            .collect();
        assert_eq!(missing, [""; 0]);
    }

    #[test]
    fn each_bit_is_there_once_in_order_and_under_its_name() {
        let bits: Vec<u64> = FEATURES.iter().map(|feature| feature.bit.bits()).collect();
        assert!(bits.is_sorted_by(|a, b| a < b), "{bits:x?}");
        for feature in FEATURES {
            let by_name = UpFunctionFeatures::from_name(&feature.name.replace('-', "_"));
            assert_eq!(by_name, Some(feature.bit), "{}", feature.name);
        }
    }

    /// With `UPDATE_DOCS` set, the page is written instead.
    #[test]
    fn the_page_is_the_table() {
        let mut page = String::from(
            "# UP Function Features\n\nOffered to every SMF (TS 29.244, 8.2.25), each with the tests \
             that show it. Generated from\n`crates/session/src/node/features.rs`: `UPDATE_DOCS=1 cargo test \
             -p session features`.\n\n| Feature | What an SMF may expect | Shown by |\n|---|---|---|\n",
        );
        for feature in FEATURES {
            let proofs: Vec<String> = feature
                .proofs
                .iter()
                .map(|proof| match proof {
                    Golden(case) => format!("golden case `{case}`"),
                    Scenario(name) => format!("scenario `{name}`"),
                    Test(_, name) => format!("test `{name}`"),
                })
                .collect();
            let _ = writeln!(
                page,
                "| {} | {} | {} |",
                feature.name,
                feature.about,
                proofs.join(", ")
            );
        }
        let path = root().join("docs/features.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(path, page).unwrap();
        } else {
            assert_eq!(fs::read_to_string(path).unwrap(), page);
        }
    }
}
