//! `turnpike trace`: packets of one user as turnpiked tells of them, for people, for programs and for
//! Wireshark.

mod capture;
mod line;

use std::io::Write;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use serde_json::Value;

use crate::client::{Client, Error};
use capture::Capture;

/// Whom to follow, and for how long.
#[derive(Args)]
#[command(group = clap::ArgGroup::new("whom").required(true).args(["ue", "seid", "teid"]))]
pub(crate) struct Wish {
    /// Address of the UE; an IPv6 one stands for its /64.
    #[arg(long)]
    ue: Option<IpAddr>,
    /// SEID of the UPF, hexadecimal, as `turnpike sessions` shows it.
    #[arg(long)]
    seid: Option<String>,
    /// TEID on N3, hexadecimal.
    #[arg(long)]
    teid: Option<String>,
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

impl Wish {
    fn path(&self) -> String {
        let texts = [
            ("ue", self.ue.map(|ue| ue.to_string())),
            ("seid", self.seid.clone()),
            ("teid", self.teid.clone()),
            ("count", self.count.map(|count| count.to_string())),
            ("seconds", self.seconds.map(|seconds| seconds.to_string())),
        ];
        let given = texts
            .into_iter()
            .filter_map(|(key, text)| Some((key, text?)));
        // An address, a number, or nothing that a query could not carry.
        let safe = |text: String| {
            text.replace(
                |c: char| !c.is_ascii_alphanumeric() && !".:".contains(c),
                "_",
            )
        };
        let query: Vec<_> = given
            .map(|(key, text)| format!("{key}={}", safe(text)))
            .collect();
        format!("trace?{}", query.join("&"))
    }
}

/// Until turnpiked ends it, or whoever reads our output leaves.
pub(crate) fn run(client: &Client, wish: &Wish, json: bool) -> Result<(), Error> {
    let mut capture = wish.write.clone().map(Capture::create).transpose()?;
    client.lines(&wish.path(), |value| {
        if let (Some(capture), Some("packet")) = (&mut capture, value["event"].as_str()) {
            capture.write(value)?;
        }
        Ok(if told(value, json) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        })
    })
}

/// False when nobody reads it.
fn told(value: &Value, json: bool) -> bool {
    let mut out = std::io::stdout().lock();
    let line = match value["event"].as_str() {
        _ if json => value.to_string(),
        Some("packet") => line::packet(value),
        // What is not a packet does not mix with them.
        _ => return writeln!(std::io::stderr(), "{}", line::about(value)).is_ok(),
    };
    writeln!(out, "{line}").and_then(|()| out.flush()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        wish: Wish,
    }

    fn path(line: &str) -> Option<String> {
        let words = std::iter::once("trace").chain(line.split_whitespace());
        Line::try_parse_from(words)
            .ok()
            .map(|line| line.wish.path())
    }

    #[test]
    fn the_question_says_whom_exactly_once() {
        assert_eq!(
            path("--ue 10.60.0.1").as_deref(),
            Some("trace?ue=10.60.0.1")
        );
        assert_eq!(
            path("--ue 2001:db8::1 --count 3").as_deref(),
            Some("trace?ue=2001:db8::1&count=3")
        );
        assert_eq!(
            path("--teid 1&x=2 --seconds 5").as_deref(),
            Some("trace?teid=1_x_2&seconds=5")
        );
        assert_eq!(path("--count 3"), None);
        assert_eq!(path("--teid 1 --seid 2"), None);
    }
}
