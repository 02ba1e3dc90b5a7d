//! Transactions as spans: a collector that reads OTLP with no code of ours, and collectors that are none.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use lab::smf::{Refused, Smf, Urr, encode};
use lab::wait::eventually;
use nix::sys::signal::Signal;
use rs_pfcp::ie::IeType;
use rs_pfcp::ie::reporting_triggers::ReportingTriggers;
use rs_pfcp::message::MsgType;

use crate::common::{Daemon, LIMIT, Net};
use crate::{plan, wait_for_log};

const AT: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 4318);
const NOT_TAKEN: &str = "telemetry: spans are not taken";

/// A span as the collector has read it.
#[derive(Clone, Debug, Default)]
struct Span {
    name: String,
    kind: u64,
    ids: (Vec<u8>, Vec<u8>),
    from_ns: u64,
    until_ns: u64,
    is_error: bool,
    /// Attributes of its resource, too.
    attributes: BTreeMap<String, String>,
}

impl Span {
    fn of(&self, key: &str) -> &str {
        self.attributes.get(key).map_or("", String::as_str)
    }
}

/// A field of protobuf.
enum Field<'f> {
    Number(u64),
    Octets(&'f [u8]),
}

/// Fields of a message, by their numbers.
fn fields(mut left: &[u8]) -> Vec<(u64, Field<'_>)> {
    fn varint(left: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (octet, rest) = left.split_first().unwrap();
            *left = rest;
            value |= u64::from(octet & 0x7f) << shift;
            if octet & 0x80 == 0 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !left.is_empty() {
        let key = varint(&mut left);
        let taken = |left: &mut &[u8], length| {
            let (octets, rest) = left.split_at(length);
            *left = rest;
            let mut number = [0; 8];
            number[..length].copy_from_slice(octets);
            u64::from_le_bytes(number)
        };
        let field = match key & 7 {
            0 => Field::Number(varint(&mut left)),
            1 => Field::Number(taken(&mut left, 8)),
            2 => {
                let length = varint(&mut left) as usize;
                let (octets, rest) = left.split_at(length);
                left = rest;
                Field::Octets(octets)
            }
            5 => Field::Number(taken(&mut left, 4)),
            other => panic!("wire type {other}"),
        };
        found.push((key >> 3, field));
    }
    found
}

/// Messages in the fields of this number.
fn inside(message: &[u8], number: u64) -> Vec<&[u8]> {
    let of_number = fields(message).into_iter().filter(|(of, _)| *of == number);
    let octets = of_number.map(|(_, field)| match field {
        Field::Octets(octets) => octets,
        Field::Number(number) => panic!("{number} where a message is due"),
    });
    octets.collect()
}

fn text(octets: &[u8]) -> String {
    String::from_utf8(octets.to_vec()).unwrap()
}

/// Key and value of a `KeyValue`.
fn attribute(octets: &[u8]) -> (String, String) {
    let key = text(inside(octets, 1)[0]);
    let value = match fields(inside(octets, 2)[0]).as_slice() {
        [(1, Field::Octets(value))] => text(value),
        [(2, Field::Number(value))] => (*value == 1).to_string(),
        [(3, Field::Number(value))] => value.to_string(),
        _ => panic!("{key}"),
    };
    (key, value)
}

/// Spans of an `ExportTraceServiceRequest`.
fn read(request: &[u8]) -> Vec<Span> {
    let mut spans = Vec::new();
    for of_resource in inside(request, 1) {
        let resource = inside(inside(of_resource, 1)[0], 1);
        for octets in inside(inside(of_resource, 2)[0], 2) {
            let mut span = Span::default();
            span.attributes
                .extend(resource.iter().map(|of| attribute(of)));
            for (number, field) in fields(octets) {
                match (number, field) {
                    (1, Field::Octets(id)) => span.ids.0 = id.to_vec(),
                    (2, Field::Octets(id)) => span.ids.1 = id.to_vec(),
                    (5, Field::Octets(name)) => span.name = text(name),
                    (6, Field::Number(kind)) => span.kind = kind,
                    (7, Field::Number(time)) => span.from_ns = time,
                    (8, Field::Number(time)) => span.until_ns = time,
                    (9, Field::Octets(octets)) => span.attributes.extend([attribute(octets)]),
                    (15, Field::Octets(status)) => {
                        let code = fields(status).into_iter().find(|(number, _)| *number == 3);
                        span.is_error = matches!(code, Some((_, Field::Number(2))));
                    }
                    (16, Field::Number(1)) => {}
                    (number, _) => panic!("field {number} of a span"),
                }
            }
            spans.push(span);
        }
    }
    spans
}

/// Words of a collector, after each request.
#[derive(Clone, Copy)]
enum Says {
    Done,
    Nothing,
    This(&'static str),
}

#[derive(Default)]
struct Seen {
    spans: Vec<Span>,
    heads: Vec<String>,
}

/// A collector in the UPF's namespace; gone when dropped.
struct Collector<'n> {
    net: &'n Net,
    seen: Arc<Mutex<Seen>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl<'n> Collector<'n> {
    fn start(net: &'n Net, says: Says) -> Self {
        let listener = net.upf.enter(|| Ok(TcpListener::bind(AT)?)).unwrap();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let is_over = Arc::new(AtomicBool::new(false));
        let (of_thread, ends) = (Arc::clone(&seen), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            // Connections that hear nothing stay open.
            let mut silent = Vec::new();
            for stream in listener.incoming() {
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                silent.extend(serve(stream.unwrap(), says, &of_thread));
            }
        });
        Self {
            net,
            seen,
            is_over,
            thread: Some(thread),
        }
    }

    fn spans(&self) -> Vec<Span> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.spans.clone()
    }

    fn heads(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.heads.clone()
    }

    /// The first span of which this holds.
    fn await_span(&self, what: &str, is_it: impl Fn(&Span) -> bool) -> Span {
        let mut found = None;
        let looked = eventually(what, || {
            found = self.spans().into_iter().find(|span| is_it(span));
            Ok(found.is_some())
        });
        if looked.is_err() {
            panic!("no span of {what} among {:#?}", self.spans());
        }
        found.unwrap()
    }
}

impl Drop for Collector<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.net.upf.enter(|| Ok(TcpStream::connect(AT)?));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The connection, if nothing is said on it.
fn serve(mut stream: TcpStream, says: Says, seen: &Mutex<Seen>) -> Option<TcpStream> {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut octets = Vec::new();
    let (head, body) = loop {
        let end = octets.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = end {
            let head = text(&octets[..end + 2]).to_lowercase();
            let length = head.split_once("content-length: ").unwrap().1;
            let length: usize = length.split_once('\r').unwrap().0.parse().unwrap();
            if octets.len() == end + 4 + length {
                break (head, octets.split_off(end + 4));
            }
        }
        let mut more = [0; 4096];
        match stream.read(&mut more) {
            // A daemon that has ended.
            Ok(0) | Err(_) => return None,
            Ok(length) => octets.extend_from_slice(&more[..length]),
        }
    };
    {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.heads.push(head);
        seen.spans.extend(read(&body));
    }
    let words = match says {
        Says::Nothing => return Some(stream),
        Says::Done => "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        Says::This(words) => words,
    };
    let _ = stream.write_all(words.as_bytes());
    None
}

/// A configuration whose requests are given up soon.
fn config(net: &Net, telemetry: &str) -> PathBuf {
    let path = net.config(telemetry);
    let text = fs::read_to_string(&path).unwrap();
    let n4 = "listen = \"10.100.0.1:8805\"\nheartbeat_s = 1\nt1_ms = 200\nn1 = 2";
    let text = text.replace("listen = \"10.100.0.1:8805\"", n4);
    net.write("turnpiked.toml", &text)
}

fn start<'n>(net: &'n Net, telemetry: &str) -> Daemon<'n> {
    net.start_with(config(net, telemetry))
}

fn spans(daemon: &Daemon<'_>, outcome: &str) -> u64 {
    daemon.metric(&format!(
        "turnpike_telemetry_spans_total{{outcome=\"{outcome}\"}}"
    ))
}

/// An association, a session that reports its usage each second, and one that is refused.
fn traffic(smf: &Smf) -> (lab::smf::Session, u16, Option<u16>) {
    smf.associate().unwrap();
    let mut reporting = plan();
    let periodic = ReportingTriggers::new().with_periodic(true);
    let urr = Urr::of_volume(1, periodic).seconds(IeType::MeasurementPeriod, 1);
    reporting.urrs.push(urr);
    let session = smf.establish(&reporting).unwrap();
    let mut nowhere = plan();
    nowhere.network_instance = "nowhere".into();
    let refused = smf.establish(&nowhere).map(drop).unwrap_err();
    let refused = refused.downcast_ref::<Refused>().unwrap();
    (session, refused.cause as u16, refused.offending_ie)
}

#[test]
fn transactions_become_spans() {
    let net = Net::new();
    let collector = Collector::start(&net, Says::Done);
    let headers = net.write("headers", "# of the collector\nAuthorization: Bearer abc\n");
    let daemon = start(
        &net,
        &format!(
            "[telemetry]\nendpoint = \"http://127.0.0.1:4318\"\nheaders_file = {:?}\n",
            headers.display().to_string()
        ),
    );
    let smf = net.smf();
    let (session, cause, offending_ie) = traffic(&smf);

    let setup = collector.await_span("an association", |span| {
        span.name == "PFCP Association Setup"
    });
    for (key, value) in [
        ("service.name", "turnpike"),
        ("service.instance.id", "10.100.0.1"),
        ("service.version", cli::RELEASE),
        ("network.protocol.name", "pfcp"),
        ("network.transport", "udp"),
        ("network.peer.address", "10.100.0.2"),
        ("pfcp.message_type", "association_setup_request"),
        ("pfcp.node_id", "10.100.0.2"),
        ("pfcp.cause", "1"),
        ("pfcp.repeated", "false"),
        ("pfcp.up_seid", ""),
        ("error.type", ""),
    ] {
        assert_eq!(setup.of(key), value, "{key}");
    }
    assert_eq!((setup.kind, setup.is_error), (2, false));
    assert_eq!((setup.ids.0.len(), setup.ids.1.len()), (16, 8));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.unwrap().as_nanos() as u64;
    assert!(setup.from_ns <= setup.until_ns && setup.until_ns <= now);
    assert!(now - setup.from_ns < LIMIT.as_nanos() as u64);

    let is_establishment = |span: &Span| span.name == "PFCP Session Establishment";
    let established = collector.await_span("an establishment", |span| {
        is_establishment(span) && !span.is_error
    });
    let seid = |seid: u64| format!("{seid:016x}");
    assert_eq!(established.of("pfcp.up_seid"), seid(session.up_seid));
    assert_eq!(established.of("pfcp.cp_seid"), seid(session.cp_seid));
    assert_eq!(established.of("pfcp.node_id"), "10.100.0.2");

    let refused = collector.await_span("a refusal", |span| is_establishment(span) && span.is_error);
    assert_eq!(refused.of("pfcp.cause"), cause.to_string());
    let offending_ie = offending_ie.map(|ie| ie.to_string()).unwrap_or_default();
    assert_eq!(refused.of("pfcp.offending_ie"), offending_ie);
    assert_ne!(refused.of("error.type"), "");
    let has_rule = !refused.of("pfcp.failed_rule.id").is_empty();
    assert!(has_rule || !offending_ie.is_empty(), "{refused:?}");

    let report = collector.await_span("a report", |span| {
        span.name == "PFCP Session Report" && !span.is_error
    });
    assert_eq!((report.kind, report.of("pfcp.sendings")), (3, "1"));
    assert_eq!(report.of("pfcp.cp_seid"), seid(session.cp_seid));
    assert_eq!(report.of("pfcp.cause"), "1");

    // The same datagram twice: the answer to the second one was given before.
    let sequence = smf.sequence();
    let modification = MsgType::SessionModificationRequest;
    let datagram = encode(modification, Some(session.up_seid), sequence, &[]);
    for _ in 0..2 {
        smf.exchange_once(sequence, &datagram, LIMIT).unwrap();
    }
    for repeated in ["false", "true"] {
        let span = collector.await_span("a modification", |span| {
            span.of("pfcp.sequence_number") == sequence.to_string()
                && span.name == "PFCP Session Modification"
                && span.of("pfcp.repeated") == repeated
        });
        assert_eq!(span.of("pfcp.up_seid"), seid(session.up_seid));
        assert_eq!(span.of("pfcp.cp_seid"), seid(session.cp_seid));
        assert_eq!(span.of("pfcp.node_id"), "10.100.0.2");
    }

    smf.mute(true);
    let unanswered = collector.await_span("a heartbeat without an answer", |span| {
        span.name == "PFCP Heartbeat" && span.of("error.type") == "timeout"
    });
    assert_eq!(unanswered.of("pfcp.sendings"), "2");
    assert!(unanswered.is_error);
    // T1 runs from before the first sending was seen.
    let waited = Duration::from_nanos(unanswered.until_ns - unanswered.from_ns);
    assert!(waited >= Duration::from_millis(250), "{waited:?}");
    smf.mute(false);
    collector.await_span("an answer again", |span| {
        let is_later = span.from_ns > unanswered.until_ns && !span.is_error;
        is_later && span.name == "PFCP Heartbeat" && span.kind == 3
    });

    let document = include_str!("../../../../docs/metrics.md");
    assert!(document.contains("\n| `turnpike_telemetry_spans_total` | outcome |"));
    eventually("all are told of", || Ok(spans(&daemon, "exported") >= 8)).unwrap();
    assert_eq!(
        (spans(&daemon, "failed"), spans(&daemon, "dropped")),
        (0, 0)
    );
    assert_eq!(daemon.stop(), 0);
    collector.await_span("the end of the association", |span| {
        span.name == "PFCP Association Update" && span.kind == 3
    });
    let heads = collector.heads();
    assert!(heads[0].starts_with("post /v1/traces http/1.1\r\n"));
    for head in heads {
        assert!(head.contains("\r\nauthorization: bearer abc\r\n"), "{head}");
        assert!(head.contains("\r\ncontent-type: application/x-protobuf\r\n"));
    }
}

#[test]
fn nothing_is_told_of_no_share_until_a_reload_asks_for_all() {
    let net = Net::new();
    let collector = Collector::start(&net, Says::Done);
    let telemetry = "[telemetry]\nendpoint = \"http://127.0.0.1:4318\"\nratio = 0.0\n";
    let mut daemon = start(&net, telemetry);
    let smf = net.smf();
    traffic(&smf);
    config(&net, &telemetry.replace("0.0\n", "1.0\n"));
    daemon.process.signal(Signal::SIGHUP).unwrap();
    let reloads = || Ok(daemon.metric("turnpike_config_reloads_total") == 1);
    eventually("it is read", reloads).unwrap();
    smf.heartbeat().unwrap();
    collector.await_span("a heartbeat", |span| span.name == "PFCP Heartbeat");
    let before = collector.spans();
    let before = before.iter().find(|span| span.name.contains("Setup"));
    assert!(before.is_none(), "{before:?}");
    config(&net, "");
    daemon.process.signal(Signal::SIGHUP).unwrap();
    let is_off = || Ok(!daemon.metrics().contains("turnpike_telemetry_spans"));
    eventually("it is off", is_off).unwrap();
    assert_eq!(daemon.stop(), 0);
}

/// N4 answers, and the log says once what is wrong.
fn costs_spans_alone(says: Option<Says>, why: &str) {
    let net = Net::new();
    let collector = says.map(|says| Collector::start(&net, says));
    let telemetry = "[telemetry]\nendpoint = \"http://127.0.0.1:4318\"\n";
    let daemon = start(&net, telemetry);
    let smf = net.smf();
    let (session, ..) = traffic(&smf);
    wait_for_log(&daemon, NOT_TAKEN);
    smf.heartbeat().unwrap();
    let failed = spans(&daemon, "failed");
    assert_eq!(spans(&daemon, "exported"), 0);
    smf.delete(&session).unwrap();
    eventually("more is lost", || Ok(spans(&daemon, "failed") > failed)).unwrap();
    let log = daemon.log();
    let told: Vec<&str> = log
        .lines()
        .filter(|line| line.contains(NOT_TAKEN))
        .collect();
    assert_eq!(told.len(), 1, "{log}");
    assert!(told[0].contains(why), "{told:?}");
    assert_eq!(daemon.stop(), 0);
    drop(collector);
}

#[test]
fn a_collector_that_is_not_there() {
    costs_spans_alone(None, "refused");
}

#[test]
fn a_collector_that_says_nothing() {
    costs_spans_alone(Some(Says::Nothing), "no answer in time");
}

#[test]
fn a_collector_that_refuses() {
    let no = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
    costs_spans_alone(Some(Says::This(no)), "503");
}

#[test]
fn a_collector_that_is_a_web_page() {
    let page = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>";
    costs_spans_alone(Some(Says::This(page)), "something else");
}

#[test]
fn spans_that_a_collector_rejects_have_failed() {
    let net = Net::new();
    // `partial_success { rejected_spans: 127, error_message: "" }`
    let some = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n\x0a\x04\x08\x7f\x12\x00";
    let _collector = Collector::start(&net, Says::This(some));
    let daemon = start(&net, "[telemetry]\nendpoint = \"http://127.0.0.1:4318\"\n");
    net.smf().associate().unwrap();
    eventually("it is rejected", || Ok(spans(&daemon, "failed") >= 1)).unwrap();
    assert_eq!(spans(&daemon, "exported"), 0);
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn without_a_collector_nothing_is_told() {
    let net = Net::new();
    let daemon = start(&net, "");
    let address = SocketAddr::from(AT);
    let listener = net.upf.enter(|| Ok(TcpListener::bind(address)?)).unwrap();
    traffic(&net.smf());
    assert!(!daemon.metrics().contains("turnpike_telemetry"));
    assert_eq!(daemon.stop(), 0);
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "somebody is told");
}
