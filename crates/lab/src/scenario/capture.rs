//! Packets on the wire, judged by tshark.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;

use super::sessions::ping_all;
use super::{Scenario, both_ways, eventually};
use crate::dn;
use crate::netns::{Netns, Process, enter};
use crate::sys;
use crate::traffic::{Iperf, Way, start_download, start_iperf};
use crate::wait::NEVER;
use crate::world::{Attached, Family, UPF_N3, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "capture-clean",
            "nothing malformed, no wrong checksum",
            capture_clean,
        )
        .iperf(4)
        .long(),
    ]
}

/// A capture that runs.
pub(super) struct Capture {
    process: Process,
    file: PathBuf,
    /// Namespace and interface.
    at: [String; 2],
}

/// The payload of the frame that ends a capture, in an Ethernet frame of a type for local experiments.
const LAST: &[u8] = b"here ends what the lab has captured";
const EXPERIMENTAL: [u8; 2] = [0x88, 0xb5];

impl Capture {
    pub(super) fn start(world: &World, netns: &Netns, interface: &str, file: &str) -> Result<Self> {
        let file = world.folder.join(file);
        let mut command = Command::new("dumpcap");
        command
            .args(["-q", "-B", "64", "-i", interface, "-w"])
            .arg(&file);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = netns
            .spawn(&mut command)
            .context("dumpcap (package tshark)")?;
        let at = [netns.name(), interface].map(str::to_owned);
        let capture = Self { process, file, at };
        eventually("dumpcap starts", || {
            // The file header is written once the interface is open.
            Ok(capture.file.metadata().is_ok_and(|m| m.len() > 0))
        })?;
        Ok(capture)
    }

    pub(super) fn stop(mut self) -> Result<PathBuf> {
        // Captured frames are read in order, some time later: all before this one are in the file when it is.
        let to_nobody = [2, 0, 0, 0, 0xee, 1, 2, 0, 0, 0, 0xee, 2];
        let frame = [&to_nobody, &EXPERIMENTAL[..], LAST, &[0; 32]].concat();
        let [netns, interface] = &self.at;
        enter(netns, || {
            let ifindex = nix::net::if_::if_nametoindex(interface.as_str())?;
            Ok(sys::send_frame(ifindex, &frame)?)
        })?;
        eventually("the end of the capture", || ends(&self.file))?;
        self.process.signal(Signal::SIGINT)?;
        self.process.wait(NEVER).context("dumpcap")?;
        Ok(self.file)
    }
}

/// Whether the last frame has been written.
fn ends(file: &Path) -> Result<bool> {
    const TAIL: u64 = 1 << 18;
    let mut file = File::open(file)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    Ok(tail.windows(LAST.len()).any(|part| part == LAST))
}

/// How many frames of a capture match a display filter, with every checksum verified.
pub(super) fn count(file: &Path, filter: &str) -> Result<usize> {
    Ok(counts(file, &[filter])?[0])
}

/// The same for several filters, which contain no commas: the capture is read once.
pub(super) fn counts<F: AsRef<str>>(file: &Path, filters: &[F]) -> Result<Vec<usize>> {
    let mut statistics = "io,stat,0".to_owned();
    for filter in filters {
        ensure!(!filter.as_ref().contains(','), "{}", filter.as_ref());
        statistics += ",";
        statistics += filter.as_ref();
    }
    let told = tshark(file, &["-q", "-z", &statistics])?;
    let counts = frames_of(&told).with_context(|| told.clone())?;
    ensure!(counts.len() == filters.len(), "{told}");
    Ok(counts)
}

/// Of each pair of frames and bytes in the row of the only interval. A capture that lasted no time has no such row.
fn frames_of(told: &str) -> Option<Vec<usize>> {
    let row = told.lines().find_map(|line| line.split_once("<>"))?.1;
    let columns = row.split('|').map(str::trim).skip(1);
    // Narrow tables are filled up to the width of their heading.
    let columns = columns.filter(|column| !column.is_empty());
    columns
        .step_by(2)
        .map(|frames| frames.parse().ok())
        .collect()
}

/// Output of tshark for the frames that match a filter.
pub(super) fn matching(file: &Path, filter: &str, fields: &[&str]) -> Result<String> {
    tshark(file, &[&["-Y", filter], fields].concat())
}

fn tshark(file: &Path, options: &[&str]) -> Result<String> {
    let mut command = Command::new("tshark");
    for check in ["ip", "tcp", "udp"] {
        command.args(["-o", &format!("{check}.check_checksum:TRUE")]);
    }
    command.arg("-n").arg("-r").arg(file).args(options);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = Process::spawn(&mut command)?.output(NEVER)?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "tshark {options:?}: {error}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Field values are numbers from tshark 4.0 on and names from 4.2 on; 0 is "Bad" in both. Linux writes 0xffff for a checksum
/// of 0, in TCP as in UDP (CSUM_MANGLED_0), which tshark takes for an error in TCP: one segment in 65536.
const DEFECTS: &str = "_ws.malformed || ip.checksum.status == 0 \
    || (tcp.checksum.status == 0 && !(tcp.checksum == 0xffff)) \
    || udp.checksum.status == 0 || icmp.checksum.status == 0 || icmpv6.checksum.status == 0";

fn capture_clean(world: &mut World) -> Result<String> {
    let attached = world.attach_plain("ue1", Family::Dual)?;
    let n3 = Capture::start(world, &world.ran_ns, "upf", "n3.pcapng")?;
    let n6 = Capture::start(world, &world.dn_ns, "n6", "n6.pcapng")?;
    programs_talk(world, &attached)?;
    let (n3, n6) = (n3.stop()?, n6.stop()?);
    let totals = without_defects(&[("N3", &n3), ("N6", &n6)])?;
    session_containers(&n3, UPF_N3.into())?;
    hop_limits(&n6)?;
    Ok(totals)
}

/// Pings, flows, downloads and iperf3 in both directions, from each address of the UE. Wants an iperf3 server for
/// each address and direction.
pub(super) fn programs_talk(world: &World, attached: &Attached) -> Result<()> {
    ping_all(attached)?;
    both_ways(world, attached)?;
    // A server is not at once ready for its next client.
    let mut ports = dn::IPERF_PORT..;
    let mut running = Vec::new();
    for from in attached.session.addresses.all() {
        start_download(&attached.ue.netns, from, 2_000_000, 20_000_000)?.finish()?;
        for way in [Way::Up, Way::Down] {
            let udp_bps = Some(2_000_000);
            let port = ports.next().context("ports")?;
            let plan = Iperf {
                from,
                port,
                way,
                udp_bps,
                seconds: 1,
                omitted: 0,
                algorithm: None,
            };
            running.push(start_iperf(&attached.ue.netns, plan)?);
        }
    }
    running
        .into_iter()
        .try_for_each(|iperf| iperf.finish().map(drop))
}

/// Nothing malformed and no wrong checksum in captures of what [`programs_talk`] did: how many frames there were.
pub(super) fn without_defects(captures: &[(&str, &Path)]) -> Result<String> {
    let mut totals = Vec::new();
    for (name, file) in captures {
        let [total, defects] = counts(file, &["frame", DEFECTS])?[..] else {
            bail!("two counts");
        };
        ensure!(total > 1000, "{name}: only {total} frames were captured");
        if defects > 0 {
            let text = matching(file, DEFECTS, &[])?;
            let first: Vec<_> = text.lines().take(5).collect();
            bail!(
                "{name}: {defects} defects, the first of them:\n{}",
                first.join("\n")
            );
        }
        totals.push(format!("{total} frames on {name}"));
    }
    Ok(totals.join(", "))
}

/// Every G-PDU carries the container of its direction with the QFI of the session. upf: its address on N3.
pub(super) fn session_containers(n3: &Path, upf: IpAddr) -> Result<()> {
    let ip = if upf.is_ipv4() { "ip" } else { "ipv6" };
    let filters = [("dst", 1), ("src", 0)].map(|(end, pdu_type)| {
        let all = format!("gtp.message == 255 && {ip}.{end} == {upf}");
        let right = format!(
            "{all} && gtp.ext_hdr.pdu_ses_con.pdu_type == {pdu_type} \
             && gtp.ext_hdr.pdu_ses_con.qos_flow_id == 9"
        );
        [all, right]
    });
    let found = counts(n3, filters.as_flattened())?;
    for (way, found) in ["uplink", "downlink"].into_iter().zip(found.chunks(2)) {
        let (all, right) = (found[0], found[1]);
        ensure!(
            all > 100 && all == right,
            "{right} of {all} {way} G-PDUs have the container"
        );
    }
    Ok(())
}

/// The UPF is one hop: what a UE sent with 64 arrives with 63.
pub(super) fn hop_limits(n6: &Path) -> Result<()> {
    let fields = [
        ("ip.ttl", "ip.src == 10.60.0.0/16"),
        ("ipv6.hlim", "ipv6.src == 2001:db8:60::/48"),
    ];
    let filters = fields.map(|(field, source)| {
        let right = format!("{source} && {field} == 63");
        [source.to_owned(), right]
    });
    let found = counts(n6, filters.as_flattened())?;
    for ((field, _), found) in fields.iter().zip(found.chunks(2)) {
        let (all, right) = (found[0], found[1]);
        ensure!(
            all > 100 && all == right,
            "{right} of {all} packets have {field} 63"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One Ethernet frame with a UDP packet, whose checksums are as given.
    fn frame(ip_checksum: u16, udp_checksum: u16) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        frame.extend([0x45, 0, 0, 30, 0, 0, 0, 0, 64, 17]);
        frame.extend(ip_checksum.to_be_bytes());
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0x1f, 0x90, 0x1f, 0x91, 0, 10]);
        frame.extend(udp_checksum.to_be_bytes());
        frame.extend([0xab, 0xcd]);
        frame
    }

    fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
        let mut file = Vec::new();
        for word in [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 65535, 1] {
            file.extend(word.to_le_bytes());
        }
        for (second, frame) in (0..).zip(frames) {
            let length = frame.len() as u32;
            for word in [second, 0, length, length] {
                file.extend(word.to_le_bytes());
            }
            file.extend(frame);
        }
        file
    }

    /// The judge itself: right checksums pass, each kind of wrong one and a cut header do not.
    #[test]
    fn defects_are_found_and_only_they() -> Result<()> {
        let (ip, udp) = (0x66cd, 0x00e9);
        let mut frames = vec![frame(ip, udp), frame(ip ^ 1, udp), frame(ip, udp ^ 1)];
        let mut cut = frame(ip, udp);
        cut.truncate(36);
        frames.push(cut);
        let path = std::env::temp_dir().join(format!("lab-judge-{}.pcap", std::process::id()));
        std::fs::write(&path, pcap(&frames))?;
        let found = matching(&path, DEFECTS, &["-T", "fields", "-e", "frame.number"]);
        let counted = counts(&path, &["frame", DEFECTS, "udp.srcport == 1"]);
        std::fs::remove_file(&path)?;
        assert_eq!(counted?, [4, 3, 0]);
        assert_eq!(
            found?.split_whitespace().collect::<Vec<_>>(),
            ["2", "3", "4"]
        );
        Ok(())
    }
}
