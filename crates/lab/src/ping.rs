//! The program `ping`, run in a namespace once for each echo request: so it waits for its one answer as long as it is told to.
//! Of several it gives up on the last after two round trips, which a busy machine may exceed.

use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use crate::netns::{self, Netns, Process};
use crate::wait::NEVER;

/// Seconds of silence after which nothing more is expected where nothing is to come.
const BLOCKED_S: &str = "0.3";

/// Fate of echo requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Pinged {
    /// Echo requests sent.
    pub sent: u32,
    /// Answers.
    pub received: u32,
    /// Mean round trip; `None` when nothing came back.
    pub mean_ms: Option<f64>,
    /// Output of the program when a request was not answered: an ICMP error, it may be.
    pub complaint: String,
}

impl Pinged {
    /// An error unless every request was answered.
    pub fn whole(self) -> Result<Self> {
        let Self {
            sent,
            received,
            complaint,
            ..
        } = &self;
        ensure!(
            *sent > 0 && sent == received,
            "{received} of {sent} pings were answered: {complaint}"
        );
        Ok(self)
    }
}

/// Sends `count` pings, one each `interval_ms` or when the one before is answered, and waits for each. The first that is
/// not answered is the last.
pub fn ping(netns: &Netns, to: IpAddr, count: u32, interval_ms: u32) -> Result<Pinged> {
    start_ping(netns, to, count, interval_ms)?.finish()
}

/// Sends `count` pings, none of which may be answered.
pub fn unanswered(netns: &Netns, to: IpAddr, count: u32) -> Result<()> {
    let count = count.to_string();
    let args = ["-i", "0.02", "-W", BLOCKED_S, "-c", &count];
    let Pinged { sent, received, .. } = said(netns.name(), to, &args)?;
    ensure!(received == 0, "{received} of {sent} pings were answered");
    Ok(())
}

/// A ping that runs.
pub struct RunningPing(JoinHandle<Result<Pinged>>);

/// Starts a ping in the background.
pub fn start_ping(netns: &Netns, to: IpAddr, count: u32, interval_ms: u32) -> Result<RunningPing> {
    let name = netns.name().to_owned();
    let interval = Duration::from_millis(interval_ms.into());
    let run = move || one_by_one(&name, to, count, interval);
    Ok(RunningPing(std::thread::Builder::new().spawn(run)?))
}

impl RunningPing {
    /// Waits for all answers.
    pub fn finish(self) -> Result<Pinged> {
        let pinged = self.0.join();
        pinged.map_err(|_| anyhow!("the pinging thread panicked"))?
    }
}

fn one_by_one(netns: &str, to: IpAddr, count: u32, interval: Duration) -> Result<Pinged> {
    let patience = NEVER.as_secs().to_string();
    let (mut sent, mut trips, mut complaint) = (0, Vec::new(), String::new());
    let began = Instant::now();
    while sent < count && trips.len() as u32 == sent {
        std::thread::sleep((interval * sent).saturating_sub(began.elapsed()));
        let one = said(netns, to, &["-c", "1", "-W", &patience])?;
        trips.extend(one.mean_ms);
        complaint = one.complaint;
        sent += 1;
    }
    let mean = trips.iter().sum::<f64>() / trips.len() as f64;
    Ok(Pinged {
        sent,
        received: trips.len() as u32,
        mean_ms: (!trips.is_empty()).then_some(mean),
        complaint,
    })
}

/// Statistics that the program prints at its end.
fn said(netns: &str, to: IpAddr, args: &[&str]) -> Result<Pinged> {
    let mut command = Command::new("ping");
    command.args(["-n", if to.is_ipv4() { "-4" } else { "-6" }]);
    command.args(args).arg(to.to_string());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let process = netns::enter(netns, || Process::spawn_in(netns, &mut command))?;
    let output = process.output(2 * NEVER).context("ping")?;
    let (text, error) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    parse(&text, &error).with_context(|| format!("ping said: {text}{error}"))
}

fn parse(text: &str, error: &str) -> Option<Pinged> {
    let summary = text
        .lines()
        .find(|line| line.contains("packets transmitted"))?;
    let number = |field: &str| field.split_whitespace().next()?.parse::<u32>().ok();
    let mut fields = summary.split(", ");
    let (sent, received) = (number(fields.next()?)?, number(fields.next()?)?);
    let times = text
        .lines()
        .find_map(|line| line.strip_prefix("rtt ")?.split(" = ").nth(1));
    let mean_ms = times.and_then(|times| times.split('/').nth(1)?.parse().ok());
    let complaint = match received == sent {
        true => String::new(),
        false => format!("{text}{error}"),
    };
    Some(Pinged {
        sent,
        received,
        mean_ms,
        complaint,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Prefix;

    #[test]
    fn loopback_answers_over_both_families_and_an_address_without_a_host_does_not() -> Result<()> {
        let netns = Netns::create(&Prefix::unique(), "p")?;
        for to in ["127.0.0.1", "::1"] {
            let pinged = ping(&netns, to.parse()?, 20, 1)?.whole()?;
            assert_eq!(pinged.sent, 20);
            assert!(pinged.mean_ms.is_some());
        }
        netns.ip(
            "link add v0 type veth peer name v1\nlink set v0 arp off up\n\
             addr add 10.9.8.1/24 dev v0\nroute add 10.9.9.0/24 dev v0",
        )?;
        unanswered(&netns, "10.9.9.9".parse()?, 20)?;
        assert!(unanswered(&netns, "127.0.0.1".parse()?, 1).is_err());
        Ok(())
    }

    #[test]
    fn the_summary_of_ping_is_read() {
        let text = "--- 10.0.0.1 ping statistics ---\n\
            5 packets transmitted, 4 received, 20% packet loss, time 804ms\n\
            rtt min/avg/max/mdev = 0.113/0.241/0.310/0.071 ms\n";
        let expected = Pinged {
            sent: 5,
            received: 4,
            mean_ms: Some(0.241),
            complaint: text.to_owned(),
        };
        assert_eq!(parse(text, ""), Some(expected.clone()));
        assert!(expected.whole().is_err());

        let nothing = "From 10.0.0.9 icmp_seq=1 Destination Host Unreachable\n\
            2 packets transmitted, 0 received, +2 errors, 100% packet loss, time 1ms\n";
        assert_eq!(
            parse(nothing, "ping: x"),
            Some(Pinged {
                sent: 2,
                received: 0,
                mean_ms: None,
                complaint: format!("{nothing}ping: x"),
            })
        );
        assert_eq!(parse("", "ping: connect: Network is unreachable"), None);
    }
}
