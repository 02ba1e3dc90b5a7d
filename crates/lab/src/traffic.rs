//! Ordinary programs as traffic: ping, iperf3 and curl, run in the namespace of a UE.

use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;

use crate::dn;
use crate::netns::{Netns, Process};

/// What ping says at its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pinged {
    /// Echo requests sent.
    pub sent: u32,
    /// Answers.
    pub received: u32,
    /// Mean round trip; `None` when nothing came back.
    pub mean_ms: Option<f64>,
}

impl Pinged {
    /// An error unless every request was answered.
    pub fn whole(self) -> Result<Self> {
        let Self { sent, received, .. } = self;
        ensure!(
            sent > 0 && sent == received,
            "{received} of {sent} pings were answered"
        );
        Ok(self)
    }
}

/// Sends `count` pings, one each `interval_ms`.
pub fn ping(netns: &Netns, to: IpAddr, count: u32, interval_ms: u32) -> Result<Pinged> {
    start_ping(netns, to, count, interval_ms)?.finish()
}

/// A ping that runs.
pub struct RunningPing {
    process: Process,
    limit: Duration,
}

/// Starts a ping in the background.
pub fn start_ping(netns: &Netns, to: IpAddr, count: u32, interval_ms: u32) -> Result<RunningPing> {
    let mut command = Command::new("ping");
    command.arg(if to.is_ipv4() { "-4" } else { "-6" });
    command.args(["-n", "-q", "-W", "2", "-c", &count.to_string()]);
    command.args([
        "-i",
        &format!("{:.3}", f64::from(interval_ms) / 1000.0),
        &to.to_string(),
    ]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let limit = Duration::from_millis(u64::from(count) * u64::from(interval_ms) + 10_000);
    Ok(RunningPing {
        process: netns.spawn(&mut command)?,
        limit,
    })
}

impl RunningPing {
    /// Waits for its end.
    pub fn finish(self) -> Result<Pinged> {
        let output = self.process.output(self.limit).context("ping")?;
        let (text, error) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        parse_ping(&text).with_context(|| format!("ping said: {text}{error}"))
    }
}

fn parse_ping(text: &str) -> Option<Pinged> {
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
    Some(Pinged {
        sent,
        received,
        mean_ms,
    })
}

/// Which way iperf3 sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the UE.
    Up,
    /// To the UE.
    Down,
}

/// An iperf3 run.
#[derive(Clone, Copy, Debug)]
pub struct Iperf {
    /// Address family and source of the UE.
    pub from: IpAddr,
    /// Which of the servers.
    pub port: u16,
    /// Direction.
    pub way: Way,
    /// UDP at this many bit/s; `None`: TCP.
    pub udp_bps: Option<u64>,
    /// Length of the run.
    pub seconds: u32,
}

/// What iperf3 measured at the receiver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Goodput.
    pub bps: f64,
    /// UDP: share of packets lost.
    pub loss: Option<f64>,
}

/// An iperf3 that runs.
pub struct RunningIperf {
    process: Process,
    plan: Iperf,
}

/// Starts an iperf3 client in the background.
pub fn start_iperf(netns: &Netns, plan: Iperf) -> Result<RunningIperf> {
    let mut command = Command::new("iperf3");
    command.args(["-J", "-c", &dn::server_for(plan.from).to_string()]);
    command.args(["-B", &plan.from.to_string(), "-p", &plan.port.to_string()]);
    command.args(["-t", &plan.seconds.to_string(), "--connect-timeout", "5000"]);
    if plan.way == Way::Down {
        command.arg("-R");
    }
    if let Some(bps) = plan.udp_bps {
        command.args(["-u", "-l", "1200", "-b", &bps.to_string()]);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Ok(RunningIperf {
        process: netns.spawn(&mut command)?,
        plan,
    })
}

/// Runs an iperf3 client.
pub fn iperf(netns: &Netns, plan: Iperf) -> Result<Measured> {
    start_iperf(netns, plan)?.finish()
}

impl RunningIperf {
    /// Waits for its end.
    pub fn finish(self) -> Result<Measured> {
        let limit = Duration::from_secs(u64::from(self.plan.seconds) + 20);
        let output = self.process.output(limit).context("iperf3")?;
        let report: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("iperf3 said: {}", String::from_utf8_lossy(&output.stderr)))?;
        if let Some(error) = report["error"].as_str() {
            return Err(anyhow!("iperf3: {error}"));
        }
        measured(&report, self.plan.udp_bps.is_some()).context("iperf3 report without an end")
    }
}

fn measured(report: &Value, udp: bool) -> Option<Measured> {
    let end = &report["end"];
    let received = &end["sum_received"];
    if !udp {
        return Some(Measured {
            bps: received["bits_per_second"].as_f64()?,
            loss: None,
        });
    }
    // Before 3.17 the receiver's rate of a UDP run is only found per stream or in "sum".
    let sum = if received["bits_per_second"].is_f64() {
        received
    } else {
        &end["sum"]
    };
    let loss = end["sum"]["lost_percent"].as_f64()? / 100.0;
    Some(Measured {
        bps: sum["bits_per_second"].as_f64()?,
        loss: Some(loss),
    })
}

/// A download by curl that runs; what it gets is compared octet by octet.
pub struct Download {
    process: Process,
    check: JoinHandle<Result<u64>>,
    size: u64,
}

/// Starts a download of `size` octets over the address family of `from`.
pub fn start_download(netns: &Netns, from: IpAddr, size: u64, rate: u64) -> Result<Download> {
    let host = match dn::server_for(from) {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    };
    let mut command = Command::new("curl");
    command.args([
        "-sS",
        "--fail",
        "--connect-timeout",
        "5",
        "--max-time",
        "60",
    ]);
    command.args(["--limit-rate", &rate.to_string()]);
    command.arg(format!("http://{host}:{}/{size}", dn::HTTP_PORT));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    let mut process = netns.spawn(&mut command)?;
    let stdout = process.child()?.stdout.take().context("curl's output")?;
    let check = std::thread::spawn(move || dn::verify(stdout));
    Ok(Download {
        process,
        check,
        size,
    })
}

impl Download {
    /// Whether it is still going on.
    pub fn running(&mut self) -> Result<bool> {
        Ok(self.process.ended()?.is_none())
    }

    /// Waits until all octets have come.
    pub fn finish(mut self) -> Result<u64> {
        let status = self.process.wait(Duration::from_secs(70)).context("curl")?;
        ensure!(status.success(), "curl: {status}");
        let got = self
            .check
            .join()
            .map_err(|_| anyhow!("the checking thread panicked"))??;
        ensure!(got == self.size, "{got} of {} octets came", self.size);
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_ping_is_read() {
        let text = "--- 10.0.0.1 ping statistics ---\n\
            5 packets transmitted, 4 received, 20% packet loss, time 804ms\n\
            rtt min/avg/max/mdev = 0.113/0.241/0.310/0.071 ms\n";
        let expected = Pinged {
            sent: 5,
            received: 4,
            mean_ms: Some(0.241),
        };
        assert_eq!(parse_ping(text), Some(expected));
        assert!(expected.whole().is_err());

        let nothing = "2 packets transmitted, 0 received, +2 errors, 100% packet loss, time 1ms\n";
        assert_eq!(
            parse_ping(nothing),
            Some(Pinged {
                sent: 2,
                received: 0,
                mean_ms: None
            })
        );
        assert_eq!(parse_ping("ping: connect: Network is unreachable"), None);
    }
}
