//! The data network: a router beside the UPF on N6, and servers behind it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use anyhow::{Context, Result};

use crate::netns::{Netns, Process};
use crate::wait::{LOOK, NEVER, eventually};

/// The servers' IPv4 address.
pub const SERVER_V4: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 1);
/// The servers' IPv6 address.
pub const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x200, 0, 0, 0, 0, 1);
/// The port of the HTTP server.
pub const HTTP_PORT: u16 = 8080;
/// iperf3 servers take one client each; they listen from here on.
pub const IPERF_PORT: u16 = 5201;
/// More than any path to a UE takes in one packet.
const BLOCK: usize = 1 << 16;

/// The server's address of the family of `client`.
pub fn server_for(client: IpAddr) -> IpAddr {
    match client {
        IpAddr::V4(_) => SERVER_V4.into(),
        IpAddr::V6(_) => SERVER_V6.into(),
    }
}

/// The servers; they stop when dropped.
pub struct Servers {
    _iperf: Vec<Process>,
    stop: Arc<AtomicBool>,
    http: Option<JoinHandle<()>>,
}

impl Servers {
    /// Starts the HTTP server and `iperf` iperf3 servers in `netns`.
    pub fn start(netns: &Netns, iperf: u16) -> Result<Self> {
        let mut servers = Vec::new();
        for port in IPERF_PORT..IPERF_PORT + iperf {
            let mut command = Command::new("iperf3");
            command.args(["-s", "-p", &port.to_string()]);
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            servers.push(netns.spawn(&mut command).context("iperf3 server")?);
        }
        for port in IPERF_PORT..IPERF_PORT + iperf {
            eventually("an iperf3 server listens", || listens(netns, port))?;
        }
        let listener =
            netns.enter(|| Ok(TcpListener::bind((Ipv6Addr::UNSPECIFIED, HTTP_PORT))?))?;
        listener.set_nonblocking(true)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let http = std::thread::Builder::new()
            .name("http".to_owned())
            .spawn(move || accept(&listener, &stopped))?;
        Ok(Self {
            _iperf: servers,
            stop,
            http: Some(http),
        })
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(http) = self.http.take() {
            let _ = http.join();
        }
    }
}

/// Whether somebody in `netns` takes TCP connections at `port`.
fn listens(netns: &Netns, port: u16) -> Result<bool> {
    const LISTEN: &str = "0A";
    netns.enter(|| {
        let mut found = false;
        for table in ["tcp", "tcp6"] {
            let text = std::fs::read_to_string(format!("/proc/thread-self/net/{table}"))?;
            found |= text.lines().any(|line| {
                let mut fields = line.split_whitespace().skip(1);
                let local = fields.next().unwrap_or_default();
                local.ends_with(&format!(":{port:04X}")) && fields.nth(1) == Some(LISTEN)
            });
        }
        Ok(found)
    })
}

fn accept(listener: &TcpListener, stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => drop(std::thread::spawn(move || serve(stream))),
            Err(_) => std::thread::sleep(LOOK),
        }
    }
}

/// `GET /N` is answered with N octets.
fn serve(mut stream: TcpStream) -> Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(NEVER))?;
    stream.set_write_timeout(Some(NEVER))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut request = String::new();
    reader.read_line(&mut request)?;
    let mut header = String::from("-");
    while !header.trim().is_empty() {
        header.clear();
        reader.read_line(&mut header)?;
    }
    let path = request.split(' ').nth(1).and_then(|p| p.strip_prefix('/'));
    let Some(size) = path.and_then(|p| p.parse::<u64>().ok()) else {
        stream.write_all(
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        )?;
        return Ok(());
    };
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n"
    )?;
    let mut content = Content::default();
    let mut left = size;
    while left > 0 {
        let block = content.block();
        let part = left.min(block.len() as u64) as usize;
        stream.write_all(&block[..part])?;
        left -= part as u64;
    }
    Ok(())
}

/// The octets that the server sends: different in every block, the same every time.
struct Content {
    block: Vec<u8>,
    state: u64,
}

impl Default for Content {
    fn default() -> Self {
        Self {
            block: vec![0; BLOCK],
            state: 0x9e37_79b9_7f4a_7c15,
        }
    }
}

impl Content {
    fn block(&mut self) -> &[u8] {
        for word in self.block.chunks_exact_mut(8) {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            word.copy_from_slice(&self.state.to_le_bytes());
        }
        &self.block
    }
}

/// Reads a download to its end and compares every octet with what the server sends; its length.
pub fn verify(mut download: impl Read) -> Result<u64> {
    let mut content = Content::default();
    let mut buffer = vec![0; BLOCK];
    let mut total = 0;
    loop {
        let filled = fill(&mut download, &mut buffer)?;
        anyhow::ensure!(
            content.block()[..filled] == buffer[..filled],
            "octets differ near {total}"
        );
        total += filled as u64;
        if filled < buffer.len() {
            return Ok(total);
        }
    }
}

fn fill(from: &mut impl Read, buffer: &mut [u8]) -> Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Prefix;

    #[test]
    fn a_download_is_what_was_asked_for_and_a_wrong_octet_is_seen() -> Result<()> {
        let netns = Netns::create(&Prefix::unique(), "dn")?;
        let _servers = Servers::start(&netns, 0)?;
        let url = format!("http://127.0.0.1:{HTTP_PORT}/200000");
        let mut command = Command::new("curl");
        let output = netns.output(command.args(["-sS", &url]), NEVER)?;
        let mut got = output.stdout;
        assert_eq!(verify(&got[..])?, 200_000);
        got[150_000] ^= 1;
        assert!(verify(&got[..]).is_err());
        Ok(())
    }
}
