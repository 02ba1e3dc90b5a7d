//! `turnpike trace`: packets of one user as turnpiked tells of them, for people, for programs and for
//! Wireshark.

mod capture;
mod line;

use std::io::Write;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use report::TraceQuery;
use report::client::Client;
use report::trace::Line;
use serde::Deserialize;
use serde_json::Value;

use crate::Error;
use capture::Capture;

/// A user to follow, and for how long.
#[derive(Args)]
#[command(group = clap::ArgGroup::new("anybody").required(true).args(["ue", "seid", "teid"]))]
pub(crate) struct Options {
    #[command(flatten)]
    whom: Whom,
    /// End after so many packets.
    #[arg(long)]
    count: Option<u64>,
    /// End after so many seconds.
    #[arg(long)]
    seconds: Option<u32>,
    /// Write the packets to this file, too: pcapng, the rule or the reason in each one's comment.
    #[arg(long, value_name = "FILE.pcapng")]
    write: Option<PathBuf>,
}

/// A user.
#[derive(Args)]
#[group(id = "whom", multiple = false)]
pub(crate) struct Whom {
    /// Address of the UE; an IPv6 one stands for its /64.
    #[arg(long)]
    ue: Option<IpAddr>,
    /// SEID of the UPF, hexadecimal, as `turnpike sessions` shows it.
    #[arg(long)]
    seid: Option<String>,
    /// TEID on N3, hexadecimal.
    #[arg(long)]
    teid: Option<String>,
}

impl Whom {
    pub(crate) fn query(&self) -> TraceQuery {
        TraceQuery {
            ue: self.ue,
            seid: self.seid.clone(),
            teid: self.teid.clone(),
            ..TraceQuery::default()
        }
    }
}

impl Options {
    fn query(&self) -> TraceQuery {
        TraceQuery {
            count: self.count,
            seconds: self.seconds,
            ..self.whom.query()
        }
    }
}

/// Until turnpiked ends it, or nobody reads our output.
pub(crate) fn run(client: &Client, options: &Options, json: bool) -> Result<(), Error> {
    let mut capture = options.write.clone().map(Capture::create).transpose()?;
    client.trace(&options.query(), |value| {
        // A line that a later release has is shown as it came.
        let line = Line::deserialize(&value).ok();
        if let (Some(capture), Some(Line::Packet(packet))) = (&mut capture, &line) {
            capture.write(packet)?;
        }
        Ok(if told(&value, line.as_ref(), json) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        })
    })
}

/// For people, in one line; as it came where a later release says it.
pub(crate) fn text(value: &Value) -> String {
    Line::deserialize(value).map_or(value.to_string(), |line| line::about(&line))
}

/// False when nobody reads it.
fn told(value: &Value, line: Option<&Line>, json: bool) -> bool {
    let mut out = std::io::stdout().lock();
    let text = match line {
        _ if json => value.to_string(),
        Some(Line::Packet(packet)) => line::packet(packet),
        // Beside packets, with which it does not mix.
        _ => {
            let text = line.map_or(value.to_string(), line::about);
            return writeln!(std::io::stderr(), "{text}").is_ok();
        }
    };
    writeln!(out, "{text}").and_then(|()| out.flush()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        options: Options,
    }

    fn query(line: &str) -> Option<TraceQuery> {
        let words = std::iter::once("trace").chain(line.split_whitespace());
        let line = CommandLine::try_parse_from(words).ok()?;
        Some(line.options.query())
    }

    #[test]
    fn the_question_says_whom_exactly_once() {
        let of = TraceQuery {
            ue: "2001:db8::1".parse().ok(),
            count: Some(3),
            ..TraceQuery::default()
        };
        assert_eq!(query("--ue 2001:db8::1 --count 3"), Some(of));
        let of = TraceQuery {
            teid: Some("101".into()),
            seconds: Some(5),
            ..TraceQuery::default()
        };
        assert_eq!(query("--teid 101 --seconds 5"), Some(of));
        assert_eq!(query("--count 3"), None);
        assert_eq!(query("--teid 1 --seid 2"), None);
    }
}
