use std::thread;

use axum::body::Body;
use axum::http::Request;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use report::trace::Line;
use report::{
    ConfigState, DatapathReport, DirectionReport, Fill, PortReport, SessionSummary, SessionUsage,
    ShaperReport, TableFill, TriggerCount, UrrReport, UsageTotals, VolumeReport,
};
use std::os::fd::AsFd;

use super::*;
use crate::command::{self, Asked, Piece, Question, Sought};
use crate::follow::{Refused, Subscription, Whom};
use crate::reload::Text;
use crate::text::{seid_text, unix_near};

const CONFIG: &str = include_str!("../../../../deploy/turnpiked.example.toml");

fn snapshot() -> Snapshot {
    Snapshot {
        recovery_time_stamp: 7,
        sessions: Fill {
            used: 3,
            capacity: 100_000,
        },
        tables: vec![TableFill {
            table: "entries".into(),
            used: 6,
            capacity: 262_144,
            refused: 3,
        }],
        n4: report::N4Body {
            messages: vec![report::MessageReport {
                message: "session_establishment_response".into(),
                direction: "sent".into(),
                cause: Some("request_accepted".into()),
                count: 3,
            }],
            events: vec![report::EventReport {
                event: "malformed".into(),
                count: 2,
            }],
            fast_path: None,
        },
        ports: vec![PortReport {
            interface: "n3".into(),
            role: "n3".into(),
            uplink: DirectionReport {
                in_packets: 10,
                in_bytes: 900,
                out_packets: 9,
                out_bytes: 8,
            },
            ..PortReport::default()
        }],
        drops: vec![DropReport {
            interface: "n3".into(),
            direction: "uplink".into(),
            reason: "rate".into(),
            packets: 1,
            meaning: "above the MBR of a QER".into(),
            advice: "compare".into(),
        }],
        datapath: DatapathReport {
            kind: "kernel".into(),
            ..DatapathReport::default()
        },
        workers: vec![WorkerReport {
            worker: "worker-0".into(),
            in_packets: 10,
            busy_s: 1.5,
            shaper: Some(ShaperReport {
                waiting: 11,
                delayed: 12,
                waited_s: 0.25,
            }),
        }],
        usage: UsageTotals {
            sessions_waiting: 4,
            alarms: 5,
            late_bytes: 6,
            reports: vec![TriggerCount {
                trigger: "volth".into(),
                acknowledged: true,
                count: 7,
            }],
            ..UsageTotals::default()
        },
        ..Snapshot::default()
    }
}

fn summary(seid: u64) -> SessionSummary {
    SessionSummary {
        seid: seid_text(seid),
        cp_seid: seid_text(1),
        peer: "smf".into(),
        ue: vec!["10.60.0.1".into()],
        pdrs: 2,
        uplink: Default::default(),
        downlink: Default::default(),
    }
}

/// TEID 101 has sent three packets when the client comes, 102 one; then the data path ends.
fn followed(whom: Whom) -> Result<Subscription, Refused> {
    let packets = match whom {
        Whom::Teid(0x101) => 3,
        Whom::Teid(0x102) => 1,
        Whom::Teid(_) | Whom::Ue(_) => return Err(Refused::TooMany),
        Whom::Session(seid) => return Err(Refused::NoSession(seid)),
    };
    let (sender, lines) = tokio::sync::mpsc::channel(8);
    for _ in 0..packets {
        sender.try_send(Line::Packet(Default::default())).unwrap();
    }
    sender.try_send(Line::Lost { packets: 2 }).unwrap();
    Ok(Subscription { lines })
}

/// Session 2 alone measures.
fn usage(after: Option<u64>) -> Piece<UsagePage, u64> {
    let seid = after.map_or(1, |seid| seid + 1);
    let urr = UrrReport {
        id: 7,
        quota_left: VolumeReport {
            total: Some(5),
            ..VolumeReport::default()
        },
        ..UrrReport::default()
    };
    let measuring = (seid == 2).then(|| SessionUsage {
        seid: seid_text(2),
        ue: vec!["10.60.0.2".into()],
        urrs: vec![urr],
    });
    Piece {
        of: UsagePage {
            total: 3,
            sessions: measuring.into_iter().collect(),
            next: None,
        },
        looked: 1,
        after: (seid < 3).then_some(seid),
    }
}

/// Stands in for the control thread, with sessions 1, 2 and 3.
fn answer(asked: &Asked) {
    let config = crate::config::parse(CONFIG).unwrap();
    let (layout, options) = (plan::layout(&config), plan::options(&config));
    let tables = tables::Tables::host(&layout, &plan::ports(&config), &options).unwrap();
    loop {
        let mut fds = [PollFd::new(asked.wake().as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::NONE).unwrap();
        asked.settle();
        while let Some(question) = asked.question() {
            match question {
                Question::Buffers(reply) => {
                    let (sender, receiver) = std::sync::mpsc::channel();
                    let _ = sender.send(vec![slowpath::BufferedSession {
                        seid: 0xabc,
                        pdrs: vec![2],
                        packets: 3,
                        bytes: 300,
                        age: Duration::from_millis(1500),
                    }]);
                    let _ = reply.send(Some(receiver));
                }
                Question::Snapshot(reply) => drop(reply.send(snapshot())),
                Question::Smfs { reply, .. } => drop(reply.send(Piece {
                    of: Vec::new(),
                    looked: 0,
                    after: None,
                })),
                Question::Peers { reply, .. } => drop(reply.send(Piece {
                    of: Vec::new(),
                    looked: 0,
                    after: None,
                })),
                // One application in each piece, two of them.
                Question::Pfds { after, reply } => {
                    let name = after.map_or("a", |_| "b").to_owned();
                    let _ = reply.send(Piece {
                        of: vec![ApplicationReport {
                            application_id: name.clone(),
                            smfs: Vec::new(),
                            properties: Vec::new(),
                        }],
                        looked: 1,
                        after: (name == "a").then_some(name),
                    });
                }
                // One session in each piece.
                Question::Sessions { after, reply, .. } => {
                    let seid = after.map_or(1, |seid| seid + 1);
                    let _ = reply.send(Piece {
                        of: SessionPage {
                            total: 3,
                            sessions: vec![summary(seid)],
                            next: None,
                        },
                        looked: 1,
                        after: (seid < 3).then_some(seid),
                    });
                }
                Question::EntryCounts { reply } => {
                    let _ = reply.send(tables.entry_counts());
                }
                // One session at a time is looked at.
                Question::GtpuPeers { reply, .. } => drop(reply.send(Piece {
                    of: Vec::new(),
                    looked: 0,
                    after: None,
                })),
                Question::Find {
                    sought,
                    after,
                    reply,
                } => {
                    let seid = after.map_or(1, |seid| seid + 1);
                    let is_it = match sought {
                        Sought::Ue(ue) => summary(seid).ue == [ue.to_string()],
                        Sought::Teid(teid) => u64::from(teid) == seid,
                        Sought::NetworkInstance(name) => name == "internet" && seid > 1,
                    };
                    let _ = reply.send(Piece {
                        of: SessionPage {
                            total: 3,
                            sessions: is_it.then(|| summary(seid)).into_iter().collect(),
                            next: None,
                        },
                        looked: 1,
                        after: (seid < 3).then_some(seid),
                    });
                }
                Question::Session { seid, reply } => {
                    let detail = (seid == 3).then(|| SessionDetail {
                        summary: summary(3),
                        pdrs_detail: Vec::new(),
                        fars: Vec::new(),
                        qers: Vec::new(),
                        urrs: Vec::new(),
                        bars: Vec::new(),
                        user_plane_inactivity_s: None,
                    });
                    let _ = reply.send(detail);
                }
                Question::Counts { reply, .. } => drop(reply.send(Piece {
                    of: Vec::new(),
                    looked: 0,
                    after: None,
                })),
                Question::CountsOf { reply, .. } => drop(reply.send(None)),
                Question::CountsOfUe { reply, .. } => drop(reply.send(Vec::new())),
                // One session in each piece.
                Question::Usage { after, reply, .. } => drop(reply.send(usage(after))),
                Question::Trace { whom, reply } => drop(reply.send(followed(whom))),
            }
        }
        if matches!(asked.next(), Some(command::Command::ShutDown)) {
            return;
        }
    }
}

/// A CPU that the kernel tells little of.
fn topology() -> Topology {
    let cpu = topology::Cpu {
        socket: Some(1),
        siblings: [5].into(),
        ..topology::Cpu::default()
    };
    Topology {
        cpus: [(4, cpu)].into(),
        ..Topology::default()
    }
}

fn api(token: Option<&str>) -> (Api, thread::JoinHandle<()>) {
    let (asker, asked) = command::channel().unwrap();
    let thread = thread::spawn(move || answer(&asked));
    (api_of(asker, token), thread)
}

/// For whoever is to change something where reading takes no token.
const TO_CHANGE: &str = "0123456789abcdef0123456789abcdef";

fn api_of(asker: Asker, token: Option<&str>) -> Api {
    let token: Option<Arc<str>> = token.map(Arc::from);
    let running = Shared::new(Running {
        packets_go_on: false,
        config: Arc::new(crate::config::parse(CONFIG).unwrap()),
        token_to_change: Some(token.clone().unwrap_or_else(|| TO_CHANGE.into())),
        token,
        state: ConfigState::default(),
        nrf: None,
        nupf: None,
        spans: None,
    });
    let text = Text {
        text: CONFIG.into(),
        read_at: SystemTime::now(),
    };
    let of_file = ("/nowhere/turnpiked.toml".into(), text);
    let topology = Arc::new(topology());
    let reloader = Reloader::new(of_file, topology.clone(), running.clone(), asker.clone());
    let of_process = (topology, SystemTime::now());
    Api::new(asker, running, Arc::new(reloader), of_process)
}

async fn get_with(api: &Api, path: &str, token: Option<&str>) -> (StatusCode, String) {
    let mut request = Request::get(path).header("host", "localhost");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let mut router = api.clone().router();
    let request = request.body(Body::empty()).unwrap();
    let response = tower_service::Service::call(&mut router, request)
        .await
        .unwrap();
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), 1 << 20)
        .await
        .unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn json(api: &Api, path: &str) -> serde_json::Value {
    let (status, body) = get_with(api, path, None).await;
    assert_eq!(status, StatusCode::OK, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

#[tokio::test]
async fn each_resource_answers() {
    let (api, _thread) = api(None);
    let status = json(&api, "/api/v1/status").await;
    assert_eq!(status["sessions"]["used"], 3);
    assert_eq!(status["node_id"], "10.100.0.1");
    assert_eq!(status["drops"], 1);
    assert_eq!(json(&api, "/api/v1/drops").await[0]["reason"], "rate");
    let waiting = &json(&api, "/api/v1/buffers").await["waiting"][0];
    assert_eq!(waiting["seid"], "0000000000000abc");
    assert_eq!(
        (&waiting["packets"], &waiting["age_ms"]),
        (&3.into(), &1500.into())
    );
    assert_eq!(
        json(&api, "/api/v1/datapath").await["ports"][0]["interface"],
        "n3"
    );
    let core = serde_json::json!({
        "cpu": 4, "socket": 1, "siblings": [5], "allowed": false, "threads": [],
    });
    let cores = serde_json::json!({
        "kind": "xdp", "cpus": [core], "anywhere": ["control"], "doubts": [],
    });
    assert_eq!(json(&api, "/api/v1/cores").await, cores);
    let worker = serde_json::json!({
        "worker": "worker-0", "in_packets": 10, "busy_s": 1.5,
        "shaper": {"waiting": 11, "delayed": 12, "waited_s": 0.25},
    });
    assert_eq!(
        json(&api, "/api/v1/workers").await,
        serde_json::json!([worker])
    );
    assert_eq!(json(&api, "/api/v1/config").await["qos"]["burst_ms"], 100);
    assert_eq!(json(&api, "/api/v1/peers").await, serde_json::json!([]));
    assert_eq!(json(&api, "/api/v1/smfs").await, serde_json::json!([]));
    assert_eq!(
        json(&api, "/api/v1/gtpu_peers").await,
        serde_json::json!([])
    );
    assert_eq!(
        json(&api, "/api/v1/sessions/0000000000000003").await["pdrs"],
        2
    );
    assert_eq!(json(&api, "/api/v1/sessions/0x3").await["pdrs"], 2);
}

/// The control thread answers with one item at a time.
#[tokio::test]
async fn what_takes_longer_than_a_turn_comes_whole() {
    let (api, _thread) = api(None);
    let seids = |page: &serde_json::Value| -> Vec<String> {
        let sessions = page["sessions"].as_array().unwrap().iter();
        sessions
            .map(|session| session["seid"].as_str().unwrap().to_owned())
            .collect()
    };
    let page = json(&api, "/api/v1/sessions?limit=1000").await;
    assert_eq!(seids(&page), [1, 2, 3].map(seid_text));
    assert!(page.get("next").is_none());
    // Sessions without URRs count for the page, as ever.
    let page = json(&api, "/api/v1/usage?limit=2").await;
    assert_eq!(
        (seids(&page), &page["next"]),
        (vec![seid_text(2)], &seid_text(2).into())
    );
    let applications = json(&api, "/api/v1/pfds").await;
    let names = [0, 1].map(|place| applications[place]["application_id"].clone());
    assert_eq!(names, ["a", "b"]);
}

#[tokio::test]
async fn sessions_come_in_pages() {
    let (api, _thread) = api(None);
    let first = json(&api, "/api/v1/sessions?limit=2").await;
    assert_eq!(first["sessions"].as_array().unwrap().len(), 2);
    let next = first["next"].as_str().unwrap();
    let second = json(&api, &format!("/api/v1/sessions?limit=2&after={next}")).await;
    assert_eq!(second["sessions"][0]["seid"], seid_text(3));
    assert!(second.get("next").is_none());
}

/// All three have the same address.
#[tokio::test]
async fn sessions_are_found_by_what_they_have() {
    let (api, _thread) = api(None);
    let seids = async |query: &str| {
        let page = json(&api, &format!("/api/v1/sessions?{query}")).await;
        let seids = page["sessions"].as_array().unwrap().iter();
        let seids: Vec<String> = seids.map(|s| s["seid"].as_str().unwrap().into()).collect();
        (seids, page.get("next").cloned())
    };
    let all = [1, 2, 3].map(seid_text).to_vec();
    assert_eq!(seids("ue=10.60.0.1").await, (all.clone(), None));
    let next = Some(seid_text(2).into());
    assert_eq!(
        seids("ue=10.60.0.1&limit=2").await,
        (all[..2].to_vec(), next)
    );
    let rest = seids(&format!("ue=10.60.0.1&limit=2&after={}", all[1])).await;
    assert_eq!(rest, (all[2..].to_vec(), None));
    assert_eq!(seids("ue=10.60.0.2").await, (Vec::new(), None));
    assert_eq!(seids("teid=0x2").await, (all[1..2].to_vec(), None));
    let internet = seids("network_instance=internet").await;
    assert_eq!(internet, (all[1..].to_vec(), None));
    let other = seids("network_instance=%3Cimg%20src%3Dx%3E").await;
    assert_eq!(other, (Vec::new(), None));
}

#[tokio::test]
async fn usage_comes_in_pages_of_sessions() {
    let (api, _thread) = api(None);
    let first = json(&api, "/api/v1/usage?limit=1").await;
    assert_eq!(
        first["sessions"],
        serde_json::json!([]),
        "session 1 has none"
    );
    let next = first["next"].as_str().unwrap();
    let rest = json(&api, &format!("/api/v1/usage?after={next}")).await;
    assert_eq!(rest["sessions"][0]["seid"], seid_text(2));
    assert_eq!(rest["sessions"][0]["urrs"][0]["quota_left"]["total"], 5);
    assert!(rest.get("next").is_none());
}

/// Nobody does anything; those who wait while others have their answer made get one that was begun after they had asked.
#[tokio::test]
async fn the_busiest_are_looked_for_once_for_those_who_wait() {
    let (api, _thread) = api(None);
    let path = "/api/v1/top?interval_ms=100&by=delayed";
    let asking = (0..20).map(|_| {
        let api = api.clone();
        tokio::spawn(async move { json(&api, path).await })
    });
    let mut intervals = Vec::new();
    for answer in asking.collect::<Vec<_>>() {
        let top = answer.await.unwrap();
        assert_eq!((&top["by"], &top["total"]), (&"delayed".into(), &3.into()));
        assert_eq!(
            (&top["users"], &top["active"]),
            (&serde_json::json!([]), &0.into())
        );
        intervals.push(top["interval_s"].as_f64().unwrap());
    }
    assert!(intervals.iter().all(|&interval_s| interval_s >= 0.1));
    // How long each took tells them apart.
    intervals.dedup();
    assert!(intervals.len() <= 2, "{intervals:?}");
}

#[test]
fn times_of_ntp_are_those_next_to_now() {
    const DAY: u64 = 86_400;
    let now_unix = 1_790_000_000;
    let now = now_unix + 2_208_988_800;
    for at in [now_unix, now_unix - 400 * DAY, now_unix + DAY] {
        assert_eq!(unix_near((at + 2_208_988_800) as u32, now), at);
    }
    // In 2036 the 32 bits begin anew.
    let later = (1u64 << 32) + 10;
    assert_eq!(unix_near(u32::MAX, later), (1 << 32) - 1 - 2_208_988_800);
}

#[tokio::test]
async fn wrong_questions_are_refused() {
    let (api, _thread) = api(None);
    for (path, expected) in [
        ("/api/v1/sessions?limit=0", StatusCode::BAD_REQUEST),
        ("/api/v1/sessions?limit=1001", StatusCode::BAD_REQUEST),
        ("/api/v1/sessions?limit=x", StatusCode::BAD_REQUEST),
        ("/api/v1/sessions?ue=10.60.0", StatusCode::BAD_REQUEST),
        ("/api/v1/sessions?teid=0", StatusCode::BAD_REQUEST),
        (
            "/api/v1/sessions?teid=1&ue=10.60.0.1",
            StatusCode::BAD_REQUEST,
        ),
        ("/api/v1/top?limit=101", StatusCode::BAD_REQUEST),
        ("/api/v1/top?interval_ms=99", StatusCode::BAD_REQUEST),
        ("/api/v1/top?interval_ms=2001", StatusCode::BAD_REQUEST),
        ("/api/v1/top?by=name", StatusCode::BAD_REQUEST),
        ("/api/v1/history?after=-1", StatusCode::BAD_REQUEST),
        ("/api/v1/usage?ue=10.60.0.1", StatusCode::BAD_REQUEST),
        ("/api/v1/sessions?lim=1", StatusCode::BAD_REQUEST),
        ("/api/v1/sessions?after=zz", StatusCode::BAD_REQUEST),
        ("/api/v1/sessions/xyz", StatusCode::BAD_REQUEST),
        ("/api/v1/sessions/+3", StatusCode::BAD_REQUEST),
        (
            "/api/v1/sessions/11111111111111111",
            StatusCode::BAD_REQUEST,
        ),
        ("/api/v1/sessions/99", StatusCode::NOT_FOUND),
        ("/api/v1/nothing", StatusCode::NOT_FOUND),
    ] {
        let (status, body) = get_with(&api, path, None).await;
        assert_eq!(status, expected, "{path}: {body}");
        assert!(body.starts_with("{\"error\":"), "{path}: {body}");
    }
}

#[tokio::test]
async fn without_the_token_there_is_no_answer() {
    let (api, _thread) = api(Some("correct-horse-battery"));
    for path in [
        "/api/v1/status",
        "/metrics",
        "/api/v1/openapi.json",
        "/nothing",
    ] {
        for token in [
            None,
            Some(""),
            Some("correct-horse-batterz"),
            Some("correct-horse"),
        ] {
            let (status, body) = get_with(&api, path, token).await;
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{path}");
            assert!(!body.contains("correct"), "{body}");
        }
    }
    let (status, _) = get_with(&api, "/api/v1/status", Some("correct-horse-battery")).await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn metrics_are_openmetrics() {
    let (api, _thread) = api(None);
    let (_, text) = get_with(&api, "/metrics", None).await;
    for line in [
        "turnpike_sessions 3",
        "turnpike_table_used{table=\"entries\"} 6",
        "turnpike_table_capacity{table=\"entries\"} 262144",
        "turnpike_table_refused_total{table=\"entries\"} 3",
        "turnpike_pfcp_messages_total{message=\"session_establishment_response\",\
         direction=\"sent\",cause=\"request_accepted\"} 3",
        "turnpike_pfcp_events_total{event=\"malformed\"} 2",
        "turnpike_in_packets_total{interface=\"n3\",direction=\"uplink\"} 10",
        "turnpike_worker_busy_seconds_total{worker=\"worker-0\"} 1.5",
        "turnpike_shaper_waiting_packets{worker=\"worker-0\"} 11",
        "turnpike_shaper_delayed_packets_total{worker=\"worker-0\"} 12",
        "turnpike_shaper_waited_seconds_total{worker=\"worker-0\"} 0.25",
        "turnpike_usage_reports_total{trigger=\"volth\",acknowledged=\"yes\"} 7",
        "turnpike_usage_waiting 4",
        "turnpike_usage_alarms_total{how=\"told\"} 5",
        "turnpike_usage_late_bytes_total 6",
        "turnpike_drops_total{interface=\"n3\",direction=\"uplink\",reason=\"rate\"} 1",
        "# EOF",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    let build = text.lines().find(|l| l.starts_with("turnpike_build_info{"));
    let build = build.unwrap();
    assert!(
        build.contains("version=\"") && build.contains("commit=\""),
        "{build}"
    );
    assert!(text.contains("process_resident_memory_bytes "));
    assert!(text.contains("process_cpu_seconds_total "));
}

/// A path of the description with what it cannot do without.
fn asked_for(path: &str) -> String {
    let needs = match path.rsplit('/').next() {
        Some("trace") => "?teid=101",
        Some("top") => "?interval_ms=100",
        _ => "",
    };
    path.replace("{seid}", "3") + needs
}

/// Lines until what was asked for is there, or there are no more.
#[tokio::test]
async fn a_trace_is_lines_of_json_that_end() {
    let (api, _thread) = api(None);
    let lines_of = async |query: &str| -> Vec<String> {
        let (status, body) = get_with(&api, &format!("/api/v1/trace?{query}"), None).await;
        assert_eq!(status, StatusCode::OK, "{query}: {body}");
        let lines = body.lines().map(|line| serde_json::from_str(line).unwrap());
        let name = |line: serde_json::Value| match line["why"].as_str() {
            Some(why) => why.to_owned(),
            None => line["event"].as_str().unwrap().to_owned(),
        };
        lines.map(name).collect()
    };
    assert_eq!(
        lines_of("teid=101&count=2").await,
        ["packet", "packet", "count"]
    );
    assert_eq!(lines_of("teid=0x102").await, ["packet", "lost", "shutdown"]);
    for (query, expected) in [
        ("", StatusCode::BAD_REQUEST),
        ("teid=101&seid=3", StatusCode::BAD_REQUEST),
        ("teid=0", StatusCode::BAD_REQUEST),
        ("teid=+1", StatusCode::BAD_REQUEST),
        ("ue=10.60.0", StatusCode::BAD_REQUEST),
        ("teid=101&seconds=0", StatusCode::BAD_REQUEST),
        ("teid=101&count=0", StatusCode::BAD_REQUEST),
        ("seid=9", StatusCode::NOT_FOUND),
        ("ue=10.60.0.1", StatusCode::SERVICE_UNAVAILABLE),
    ] {
        let (status, body) = get_with(&api, &format!("/api/v1/trace?{query}"), None).await;
        assert_eq!(status, expected, "{query}: {body}");
    }
}

/// Each route is described, and each description has a route.
#[tokio::test]
async fn the_description_names_each_route() {
    let (api, _thread) = api(None);
    let document = json(&api, "/api/v1/openapi.json").await;
    let paths = document["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 25);
    let (read, changing): (Vec<_>, Vec<_>) =
        paths.iter().partition(|(_, of)| of.get("get").is_some());
    let mut changing: Vec<_> = changing.iter().map(|(path, _)| path.as_str()).collect();
    changing.sort_unstable();
    assert_eq!(changing, [DIFF.1, LEVEL.1, RELOAD.1]);
    for (path, _) in read {
        let (status, _) = get_with(&api, &asked_for(path), None).await;
        assert_eq!(status, StatusCode::OK, "{path}");
    }
    for schema in [
        "Status",
        "SessionPage",
        "SessionDetail",
        "PeerReport",
        "DropReport",
        "UsagePage",
    ] {
        assert!(
            document["components"]["schemas"].get(schema).is_some(),
            "{schema}"
        );
    }
}

#[tokio::test]
async fn no_control_thread_no_wait() {
    let (asker, asked) = command::channel().unwrap();
    drop(asked);
    let api = api_of(asker, None);
    let (status, _) = get_with(&api, "/api/v1/status", None).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn rest_is_asked_by_names_of_ours_alone() {
    let (api, _thread) = api(None);
    for (path, host, expected) in [
        ("/api/v1/peers", "127.0.0.1:8806", StatusCode::OK),
        (
            "/api/v1/peers",
            "evil.example",
            StatusCode::MISDIRECTED_REQUEST,
        ),
        (
            "/metrics",
            "evil.example:8806",
            StatusCode::MISDIRECTED_REQUEST,
        ),
        ("/healthz", "evil.example", StatusCode::MISDIRECTED_REQUEST),
        ("/nowhere", "evil.example", StatusCode::MISDIRECTED_REQUEST),
        ("/healthz", "[::1]:8806", StatusCode::OK),
    ] {
        let request = Request::get(path).header("host", host);
        let request = request.body(Body::empty()).unwrap();
        let mut router = api.clone().router();
        let response = tower_service::Service::call(&mut router, request);
        assert_eq!(response.await.unwrap().status(), expected, "{path} {host}");
    }
    let (_, page) = get_with(&api, "/metrics", None).await;
    let refused = "turnpike_rest_refused_total{reason=\"host\"} ";
    let count = page.lines().find_map(|line| line.strip_prefix(refused));
    assert!(count.unwrap().parse::<u64>().unwrap() >= 4, "{count:?}");
}

/// Status and body of an answer to a request with these headers.
async fn change(
    api: &Api,
    of: (&str, &str),
    headers: &[(&str, &str)],
    body: &str,
) -> (StatusCode, String) {
    let (method, path) = of;
    let mut request = Request::builder().method(method).uri(path);
    request = request.header("host", "127.0.0.1:8806");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let mut router = api.clone().router();
    let response = tower_service::Service::call(&mut router, request);
    let response = response.await.unwrap();
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), 1 << 20).await;
    (status, String::from_utf8(body.unwrap().to_vec()).unwrap())
}

const RELOAD: (&str, &str) = ("POST", "/api/v1/reload");
const DIFF: (&str, &str) = ("POST", "/api/v1/config/diff");
const LEVEL: (&str, &str) = ("PUT", "/api/v1/log");

#[tokio::test]
async fn a_change_takes_a_token_on_loopback_too_and_no_foreign_page() {
    let (api, _thread) = api(None);
    let token = format!("Bearer {TO_CHANGE}");
    let own = ("authorization", token.as_str());
    let json = ("content-type", "application/json");
    for of in [RELOAD, DIFF, LEVEL] {
        for headers in [
            vec![],
            vec![("authorization", "Bearer 0123456789abcdef")],
            vec![json],
        ] {
            let (status, body) = change(&api, of, &headers, "").await;
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{of:?} {headers:?}");
            assert!(!body.contains(TO_CHANGE));
        }
        for origin in [
            "http://evil.example",
            "null",
            "http://127.0.0.1:8807",
            "http://127.0.0.1",
        ] {
            let (status, _) = change(&api, of, &[own, ("origin", origin)], "").await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{of:?} {origin}");
        }
        let rebound = [own, ("host", "evil.example")];
        assert_ne!(change(&api, of, &rebound, "").await.0, StatusCode::OK);
    }
    let page = ("origin", "http://127.0.0.1:8806");
    let (status, body) = change(&api, LEVEL, &[own, page, json], r#"{"level":"info"}"#).await;
    assert_eq!(
        (status, body.as_str()),
        (StatusCode::OK, r#"{"level":"info"}"#)
    );
    // Reading changes nothing.
    assert_eq!(
        get_with(&api, DIFF.1, None).await.0,
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(
        get_with(&api, "/api/v1/config", None).await.0,
        StatusCode::OK
    );
}

#[tokio::test]
async fn a_level_that_there_is_not_is_refused_and_one_that_there_is_shows() {
    let (api, _thread) = api(Some("correct-horse-battery"));
    let headers = [
        ("authorization", "Bearer correct-horse-battery"),
        ("content-type", "application/json"),
    ];
    for body in [r#"{"level":"loud"}"#, r#"{"level":""}"#] {
        let (status, body) = change(&api, LEVEL, &headers, body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        assert!(body.contains("error, warn, info, debug or trace"), "{body}");
    }
    for body in ["", "[]", "{\"level\":7}"] {
        let (status, _) = change(&api, LEVEL, &headers, body).await;
        assert!(status.is_client_error(), "{body} {status}");
    }
    let (status, _) = change(&api, LEVEL, &headers, r#"{"level":"debug"}"#).await;
    assert_eq!(status, StatusCode::OK);
    let (_, body) = get_with(&api, "/api/v1/config", Some("correct-horse-battery")).await;
    let config: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(config["log"]["level"], "debug");
}

#[tokio::test]
async fn a_configuration_that_is_thought_of_is_compared_and_judged() {
    let (api, _thread) = api(None);
    let token = format!("Bearer {TO_CHANGE}");
    let headers = [("authorization", token.as_str())];
    let diff = async |text: &str| {
        let (status, body) = change(&api, DIFF, &headers, text).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        serde_json::from_str::<report::ReloadReport>(&body).unwrap()
    };
    for text in ["", "no = ", "[n4]\nlisten = 7"] {
        let report = diff(text).await;
        assert_eq!(report.outcome, "refused", "{text}");
        assert_eq!(report.reasons.len(), 1, "{text}");
    }
    // This machine lacks its interfaces, so that it is refused for that, too.
    let text = CONFIG.replace("id = \"10.100.0.1\"", "id = \"upf2.example.org\"");
    assert_ne!(text, CONFIG);
    let report = diff(&text).await;
    let [change_of] = &report.changes[..] else {
        panic!("{report:?}")
    };
    assert_eq!(
        (change_of.key.as_str(), change_of.takes.as_str()),
        ("node.id", "restart")
    );
    assert!(
        report
            .reasons
            .iter()
            .any(|reason| reason.starts_with("node.id: ")),
        "{report:?}"
    );
    let long = "#".repeat(2 << 20);
    let (status, _) = change(&api, DIFF, &headers, &long).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_reload_without_its_file_is_refused_and_told_of() {
    let (api, _thread) = api(None);
    let token = format!("Bearer {TO_CHANGE}");
    let headers = [("authorization", token.as_str())];
    for number in 1..3 {
        let (status, body) = change(&api, RELOAD, &headers, "").await;
        assert_eq!(status, StatusCode::CONFLICT);
        assert!(body.contains("/nowhere/turnpiked.toml: "), "{body}");
        let status = json(&api, "/api/v1/status").await;
        assert_eq!(status["config"]["reloads"], number);
        assert_eq!(status["config"]["last"]["outcome"], "refused");
    }
}

/// A browser sends no token when it opens the page; what the page then asks for needs it.
#[tokio::test]
async fn the_page_is_served_without_the_token_and_nothing_else_is() {
    let (api, _thread) = api(Some("correct-horse-battery"));
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/page/style.css", "text/css; charset=utf-8"),
        ("/page/app.js", "text/javascript; charset=utf-8"),
    ] {
        let request = Request::get(path).header("host", "upf.example:1");
        let headers = headers_of(&api, request, StatusCode::MISDIRECTED_REQUEST).await;
        assert!(!headers.contains_key("content-security-policy"), "{path}");
        let request = Request::get(path).header("host", "127.0.0.1:8806");
        let headers = headers_of(&api, request, StatusCode::OK).await;
        for (name, value) in [
            ("content-type", kind),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cache-control", "no-cache"),
        ] {
            assert_eq!(headers[name], value, "{path}: {name}");
        }
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; "), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        let request = Request::post(path).header("host", "127.0.0.1:8806");
        headers_of(&api, request, StatusCode::METHOD_NOT_ALLOWED).await;
    }
    for path in ["/page/", "/page/none.js", "/index.html", "/api/v1/history"] {
        let request = Request::get(path).header("host", "127.0.0.1:8806");
        let headers = headers_of(&api, request, StatusCode::UNAUTHORIZED).await;
        assert_eq!(headers["cache-control"], "no-store", "{path}");
        assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
    }
}

async fn headers_of(
    api: &Api,
    request: axum::http::request::Builder,
    expected: StatusCode,
) -> HeaderMap {
    let request = request.body(Body::empty()).unwrap();
    let what = format!("{} {}", request.method(), request.uri());
    let mut router = api.clone().router();
    let response = tower_service::Service::call(&mut router, request).await;
    let response = response.unwrap();
    assert_eq!(response.status(), expected, "{what}");
    response.headers().clone()
}

/// Nothing that is asked for by GET changes anything but a trace, which a page of another origin must not begin.
#[tokio::test]
async fn a_page_of_the_web_begins_no_trace() {
    let (api, _thread) = api(None);
    let asked = |name: &str, value: &str| {
        let request = Request::get("/api/v1/trace?teid=102&count=1");
        request.header("host", "localhost").header(name, value)
    };
    for (name, value, expected) in [
        ("sec-fetch-site", "same-origin", StatusCode::OK),
        ("sec-fetch-site", "cross-site", StatusCode::FORBIDDEN),
        ("origin", "https://evil.example", StatusCode::FORBIDDEN),
        ("origin", "http://localhost", StatusCode::OK),
    ] {
        headers_of(&api, asked(name, value), expected).await;
    }
    let (_, page) = get_with(&api, "/metrics", None).await;
    let refused = "turnpike_rest_refused_total{reason=\"origin\"} ";
    let count = page.lines().find_map(|line| line.strip_prefix(refused));
    assert!(count.unwrap().parse::<u64>().unwrap() >= 2, "{count:?}");
}
