//! A UE: a namespace with a TUN device, so that ordinary programs send through the tunnels.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;

use anyhow::Result;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::gnb::{Downlink, Uplink};
use crate::gtpu::Container;
use crate::netns::{Netns, Prefix};
use crate::sys;

/// Leaves room for the tunnel headers on links of 1500 octets.
pub const MTU: u32 = 1400;

/// Packets and bytes, as the UE sees them.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Packets.
    pub packets: AtomicU64,
    /// Bytes of IP.
    pub bytes: AtomicU64,
}

impl Traffic {
    fn count(&self, bytes: usize) {
        self.packets.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }
}

/// The addresses of a UE; IPv6 is the first address of its /64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// IPv4.
    pub v4: Option<Ipv4Addr>,
    /// IPv6.
    pub v6: Option<Ipv6Addr>,
}

impl Addresses {
    /// IPv4 before IPv6.
    pub fn all(&self) -> Vec<IpAddr> {
        let v4 = self.v4.map(IpAddr::V4);
        v4.into_iter().chain(self.v6.map(IpAddr::V6)).collect()
    }
}

/// State that both directions share.
pub struct Modem {
    tun: File,
    uplink: RwLock<Option<Uplink>>,
    /// Sent by the UE.
    pub up: Traffic,
    /// Received by the UE.
    pub down: Traffic,
    stop: AtomicBool,
}

impl Downlink for Modem {
    fn deliver(&self, _gnb: IpAddr, _teid: u32, _container: Option<Container>, packet: &[u8]) {
        self.down.count(packet.len());
        let _ = (&self.tun).write(packet);
    }
}

impl Modem {
    /// Switches the way up, as in a handover; `None` while there is none.
    pub fn set_uplink(&self, uplink: Option<Uplink>) {
        *self.uplink.write().unwrap_or_else(PoisonError::into_inner) = uplink;
    }

    fn run(&self) {
        let mut packet = vec![0; 65536];
        let mut scratch = Vec::with_capacity(2048);
        while !self.stop.load(Relaxed) {
            match (&self.tun).read(&mut packet) {
                Ok(length) => self.send(&packet[..length], &mut scratch),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(),
                // The device is down or going; the flag tells which.
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(10)),
            }
        }
    }

    fn wait(&self) {
        let mut events = [PollFd::new(self.tun.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut events, PollTimeout::from(20u8));
    }

    /// Sends one packet of the UE; `scratch` is overwritten.
    pub fn send(&self, packet: &[u8], scratch: &mut Vec<u8>) {
        let uplink = self.uplink.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(uplink) = &*uplink
            && uplink.send(packet, scratch).is_ok()
        {
            self.up.count(packet.len());
        }
    }
}

/// A UE; its namespace and device go when it is dropped.
pub struct Ue {
    /// Namespace in which its programs run.
    pub netns: Netns,
    /// Its radio.
    pub modem: Arc<Modem>,
    name: String,
    addresses: Addresses,
    thread: Option<JoinHandle<()>>,
}

impl Ue {
    /// Creates the UE without an address: it has none before a session.
    pub fn create(prefix: &Prefix, name: &str) -> Result<Self> {
        let netns = Netns::create(prefix, name)?;
        let tun = netns.enter(|| sys::open_tun("tun0"))?;
        netns.sysctl("net/ipv6/conf/tun0/addr_gen_mode", "1")?;
        netns.ip(&format!("link set tun0 mtu {MTU} txqueuelen 5000 up"))?;
        let modem = Arc::new(Modem {
            tun,
            uplink: RwLock::default(),
            up: Traffic::default(),
            down: Traffic::default(),
            stop: AtomicBool::new(false),
        });
        let inside = Arc::clone(&modem);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || inside.run())?;
        let name = name.to_owned();
        Ok(Self {
            netns,
            modem,
            name,
            addresses: Addresses::default(),
            thread: Some(thread),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its addresses.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Gives it the addresses of its session and makes the tunnel its way out.
    pub fn configure(&mut self, addresses: Addresses) -> Result<()> {
        self.netns.ip("addr flush dev tun0")?;
        if let Some(v4) = addresses.v4 {
            self.netns.ip(&format!(
                "addr add {v4}/32 dev tun0\nroute replace default dev tun0"
            ))?;
        }
        if let Some(v6) = addresses.v6 {
            self.netns.ip(&format!(
                "addr add {v6}/64 dev tun0 nodad\nroute replace ::/0 dev tun0"
            ))?;
        }
        self.addresses = addresses;
        Ok(())
    }
}

impl Drop for Ue {
    fn drop(&mut self) {
        self.modem.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gnb::Gnb;
    use crate::ping::{ping, unanswered};

    /// Two UEs whose gNBs are each other's tunnel end, so that no UPF is needed.
    #[test]
    fn programs_of_one_ue_reach_the_other_through_the_tunnel() -> Result<()> {
        let prefix = Prefix::unique();
        let n3 = Netns::create(&prefix, "n3")?;
        n3.ip("addr add 10.3.0.1/32 dev lo\naddr add 10.3.0.2/32 dev lo")?;
        let at = [1, 2].map(|host| IpAddr::from(Ipv4Addr::new(10, 3, 0, host)));
        let gnbs = [
            Gnb::start(&n3, &at[..1], 0x100)?,
            Gnb::start(&n3, &at[1..], 0x200)?,
        ];
        let mut ues = [Ue::create(&prefix, "a")?, Ue::create(&prefix, "b")?];
        for (index, ue) in ues.iter_mut().enumerate() {
            let host = index as u8 + 1;
            let v6 = Ipv6Addr::new(0x2001, 0xdb8, u16::from(host), 0, 0, 0, 0, 1);
            let v4 = Ipv4Addr::new(10, 60, 0, host);
            ue.configure(Addresses {
                v4: Some(v4),
                v6: Some(v6),
            })?;
            gnbs[index].open(Arc::clone(&ue.modem) as Arc<dyn Downlink>);
            let (far, teid) = [(at[1], 0x200), (at[0], 0x100)][index];
            ue.modem
                .set_uplink(Some(gnbs[index].uplink(far, teid, Some(9))));
        }
        for address in ues[1].addresses().all() {
            ping(&ues[0].netns, address, 5, 20)?.whole()?;
        }
        assert!(ues[0].modem.up.packets.load(Relaxed) >= 10);
        assert!(ues[0].modem.down.packets.load(Relaxed) >= 10);

        ues[0].modem.set_uplink(None);
        unanswered(&ues[0].netns, ues[1].addresses().all()[0], 1)
    }
}
