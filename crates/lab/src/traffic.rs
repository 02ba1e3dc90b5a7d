//! Ordinary programs as traffic: iperf3 and curl, run in the namespace of a UE.

use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;

use crate::dn;
use crate::netns::{Netns, Process};
use crate::wait::NEVER;

/// Longer than the limit of any scenario: curl ends by itself when nothing comes.
const DOWNLOAD: Duration = Duration::from_secs(1200);

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
    /// Seconds before it that do not count.
    pub omitted: u32,
    /// Congestion control of TCP; `None`: the kernel's default.
    pub algorithm: Option<&'static str>,
}

/// Results of iperf3 at the receiver.
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
    command.args([
        "-t",
        &plan.seconds.to_string(),
        "--connect-timeout",
        "60000",
    ]);
    if plan.omitted > 0 {
        command.args(["-O", &plan.omitted.to_string()]);
    }
    if let Some(algorithm) = plan.algorithm {
        command.args(["-C", algorithm]);
    }
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
        let limit = NEVER + Duration::from_secs((self.plan.seconds + self.plan.omitted).into());
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
    command.args(["-sS", "--fail", "--connect-timeout", "60"]);
    // Ended where nothing comes at all, not where it comes slowly.
    command.args(["--speed-limit", "1", "--speed-time", "60"]);
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
        let status = self.process.wait(DOWNLOAD).context("curl")?;
        ensure!(status.success(), "curl: {status}");
        let got = self
            .check
            .join()
            .map_err(|_| anyhow!("the checking thread panicked"))??;
        ensure!(got == self.size, "{got} of {} octets came", self.size);
        Ok(got)
    }
}
