//! A whole network around one UPF:
//!
//! ```text
//!   ue1..n ─TUN─ gnb1 ─┐                                 ┌─ smf (several addresses)
//!                      ├─ bridge (ran) ─ n3 │ upf │ n4 ──┘
//!   ue1..n ─TUN─ gnb2 ─┘                    │     │ n6 ──── router, servers (dn)
//! ```

mod links;

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::time::SystemTime;

use anyhow::{Context, Result};
use rs_pfcp::ie::node_id::NodeId;

use crate::cleanup;
use crate::dn::Servers;
use crate::gnb::{Downlink, Gnb};
use crate::netns::{End, Netns, Prefix, take_redirected};
use crate::ping::ping;
use crate::smf::{self, Gates, Requested, Session, SessionPlan, Smf, Style, TunnelEnd};
use crate::ue::{Addresses, Ue};
use crate::upf::{self, Counted, Settings, Upf};
use crate::wait::eventually;

/// UPF on N3.
pub const UPF_N3: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 1);
/// UPF on N3.
pub const UPF_N3_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 3, 0, 0, 0, 0, 1);
/// UPF on N9, where that is a network of its own.
pub const UPF_N9: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
/// UPF on N4.
pub const UPF_N4: Ipv4Addr = Ipv4Addr::new(10, 100, 0, 1);
/// UPF on N4.
pub const UPF_N4_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x100, 0, 0, 0, 0, 1);
/// UPF on N6.
pub const UPF_N6: Ipv4Addr = Ipv4Addr::new(10, 6, 0, 1);
/// UPF on N6.
pub const UPF_N6_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 6, 0, 0, 0, 0, 1);
/// The data network's router on N6.
pub const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 6, 0, 254);
/// The data network's router on N6.
pub const ROUTER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 6, 0, 0, 0, 0, 0xfe);
/// gNBs on N3.
pub const GNBS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 3, 0, 11), Ipv4Addr::new(10, 3, 0, 12)];
/// gNBs on N3.
pub const GNBS_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0x2001, 0xdb8, 3, 0, 0, 0, 0, 0x11),
    Ipv6Addr::new(0x2001, 0xdb8, 3, 0, 0, 0, 0, 0x12),
];
/// The gNBs' TEIDs start here, far apart, so that a packet at the wrong gNB is noticed.
const FIRST_TEIDS: [u32; 2] = [0x1000_0001, 0x2000_0001];
/// Configuration of N4 of a UPF whose program answers SMFs itself.
pub(crate) const BY_PROGRAM: &str = "fast_path = \"data\"\ninterface = \"n4\"";
/// The same where SMFs are in the radio network: N4 comes by the interface of N3.
pub(crate) const BY_SHARED_PROGRAM: &str = "fast_path = \"data\"\ninterface = \"n3\"";
/// Octets of IP that N3 and N6 carry.
pub(crate) const LINK_MTU: u32 = 1500;

/// N4 address of SMF number `index`.
pub fn smf_address(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 100, 0, 2 + index as u8)
}

/// IPv6 N4 address of SMF number `index`.
pub fn smf_address_v6(index: usize) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0x100, 0, 0, 0, 0, 2 + index as u16)
}

/// World that a scenario wants to start with.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// SMFs, at addresses one after the other.
    pub smfs: usize,
    /// The UPF sets up the associations.
    pub upf_calls: bool,
    /// iperf3 servers in the data network.
    pub iperf: u16,
    /// Seconds between the UPF's heartbeats.
    pub heartbeat_s: u32,
    /// Seconds that the UPF keeps the sessions of an SMF that does not answer.
    pub retention_s: u32,
    /// N4 over IPv6 beside IPv4.
    pub n4_v6: bool,
    /// A second data network, on an N6 interface and in a network instance of its own, with the
    /// same addresses.
    pub second_dn: bool,
    /// Further lines of the UPF's configuration, each with the section that it belongs to.
    pub lines: Vec<(&'static str, &'static str)>,
    /// Which addresses gNBs and UPF have on N3.
    pub over: OverN3,
    /// N9 is a network of its own.
    pub n9: bool,
    /// N3 and N6 are VLANs, whose addresses are on devices of their own.
    pub vlan: bool,
    /// gNBs may be on N6, too.
    pub several_roles: bool,
    /// SMF whose habits sessions follow, if a scenario does not say.
    pub style: Option<Style>,
}

/// Address families of the radio network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverN3 {
    /// IPv4 alone.
    V4,
    /// IPv6 alone.
    V6,
    /// Both, everywhere.
    Both,
}

impl OverN3 {
    /// Addresses of these families, out of one of each.
    pub fn addresses(self, v4: Ipv4Addr, v6: Ipv6Addr) -> Addresses {
        Addresses {
            v4: (self != Self::V6).then_some(v4),
            v6: (self != Self::V4).then_some(v6),
        }
    }
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            smfs: 1,
            upf_calls: false,
            iperf: 0,
            heartbeat_s: 10,
            retention_s: 3600,
            n4_v6: false,
            second_dn: false,
            lines: Vec::new(),
            over: OverN3::V4,
            n9: false,
            vlan: false,
            several_roles: false,
            style: None,
        }
    }
}

/// Which addresses a UE is to get from the SMF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4 alone.
    V4,
    /// IPv6 alone.
    V6,
    /// Both.
    Dual,
}

/// A UE with a session.
pub struct Attached {
    /// The UE.
    pub ue: Ue,
    /// Its session.
    pub session: Session,
    /// Index of its SMF.
    pub smf: usize,
    /// Index of the gNB that serves it.
    pub gnb: usize,
    /// Its tunnel at that gNB.
    pub teid: u32,
}

impl Attached {
    /// One of its addresses: IPv4 when it has both.
    pub fn address(&self) -> Result<IpAddr> {
        self.session
            .addresses
            .all()
            .first()
            .copied()
            .context("a UE without an address")
    }
}

/// The network. What comes first is taken down first.
pub struct World {
    /// The UPF; `None` while a scenario keeps it down.
    pub upf: Option<Upf>,
    /// The SMFs; `None` for one that a scenario keeps down.
    pub smfs: Vec<Option<Smf>>,
    /// The gNBs.
    pub gnbs: Vec<Gnb>,
    _servers: Servers,
    /// The UPF's namespace.
    pub upf_ns: Netns,
    /// The data network's namespace.
    pub dn_ns: Netns,
    /// Namespace of the second data network, if it is wanted.
    pub second_dn_ns: Option<Netns>,
    /// The namespace of the bridge between UPFs, if N9 is a network of its own.
    pub n9_ns: Option<Netns>,
    /// The namespace of the bridge between gNBs and UPF.
    pub ran_ns: Netns,
    /// The namespace of each gNB.
    pub gnb_ns: Vec<Netns>,
    /// The SMFs' namespace.
    pub smf_ns: Netns,
    /// Folder of configuration, log and captures.
    pub folder: PathBuf,
    prefix: Prefix,
    settings: Settings,
    style: Option<Style>,
    next_ue: u16,
}

impl World {
    /// Builds the network and starts everything in it; associations are up on return.
    pub fn build(wanted: &Wanted) -> Result<Self> {
        Self::build_as(Prefix::unique(), wanted)
    }

    /// The same, under names of the caller's choice.
    pub fn build_as(prefix: Prefix, wanted: &Wanted) -> Result<Self> {
        let folder = Path::new(cleanup::RUN_DIR).join(prefix.name("files"));
        fs::create_dir_all(&folder)?;
        cleanup::add_folder(&folder);
        let upf_ns = Netns::create(&prefix, "upf")?;
        upf::prepare(&upf_ns)?;
        let (ran_ns, gnb_ns) = links::radio_side(&prefix, &upf_ns, wanted)?;
        let smf_ns = links::control_side(&prefix, (&upf_ns, &ran_ns), wanted)?;
        let dn_ns = links::data_network(&prefix, &upf_ns, wanted)?;
        let second_dn_ns = wanted
            .second_dn
            .then(|| links::second_data_network(&prefix, &upf_ns))
            .transpose()?;
        let n9_ns = (wanted.n9)
            .then(|| links::between_upfs(&prefix, &upf_ns))
            .transpose()?;
        let far = [(Some(&ran_ns), "upf"), (Some(&dn_ns), "n6")];
        let others = [(second_dn_ns.as_ref(), "n6"), (n9_ns.as_ref(), "upf")];
        for (netns, name) in far.into_iter().chain(others) {
            netns.map_or(Ok(()), |netns| take_redirected(End { netns, name }))?;
        }
        let servers = Servers::start(&dn_ns, wanted.iperf)?;
        let gnbs = gnb_ns.iter().zip(0..).zip(FIRST_TEIDS);
        let gnbs = gnbs
            .map(|((netns, index), teid)| Gnb::start(netns, &gnb_addresses(wanted, index), teid))
            .collect::<Result<_>>()?;
        let settings = settings(wanted);
        let mut world = Self {
            upf: None,
            smfs: Vec::new(),
            gnbs,
            _servers: servers,
            upf_ns,
            dn_ns,
            second_dn_ns,
            n9_ns,
            ran_ns,
            gnb_ns,
            smf_ns,
            folder,
            prefix,
            settings,
            style: wanted.style,
            next_ue: 1,
        };
        world.start_nodes(wanted)?;
        Ok(world)
    }

    fn start_nodes(&mut self, wanted: &Wanted) -> Result<()> {
        let now = SystemTime::now();
        for index in 0..wanted.smfs {
            let smf = self.start_smf(index, now)?;
            self.smfs.push(Some(smf));
        }
        self.start_upf()?;
        for smf in self.smfs.iter().flatten() {
            if wanted.upf_calls {
                smf.wait_for_association()?;
            } else {
                smf.associate().context("association")?;
            }
        }
        Ok(())
    }

    /// Starts SMF number `index`, which says that it started at `recovery`.
    pub fn start_smf(&self, index: usize, recovery: SystemTime) -> Result<Smf> {
        let address = smf_address(index);
        let upf = (UPF_N4, smf::PORT).into();
        let node_id = NodeId::new_ipv4(address);
        Smf::start(&self.smf_ns, address.into(), node_id, recovery, upf)
    }

    /// Starts SMF number `index` at its IPv6 address, which is its Node ID.
    pub fn start_smf_v6(&self, index: usize, recovery: SystemTime) -> Result<Smf> {
        let address = smf_address_v6(index);
        let upf = (UPF_N4_V6, smf::PORT).into();
        let node_id = NodeId::new_ipv6(address);
        Smf::start(&self.smf_ns, address.into(), node_id, recovery, upf)
    }

    /// N4's interface goes away, and there is another one of its name.
    pub fn replug_n4(&self) -> Result<()> {
        self.upf_ns.ip("link del n4")?;
        links::plug_n4(&self.upf_ns, &self.smf_ns, (self.smfs.len(), true))
    }

    /// The interface that N3 and N4 share goes away, and there is another one of its name.
    pub fn replug_n3_with_n4(&self) -> Result<()> {
        self.upf_ns.ip("link del n3")?;
        links::plug_upf_into_radio(&self.upf_ns, &self.ran_ns)?;
        let far = End {
            netns: &self.ran_ns,
            name: "upf",
        };
        take_redirected(far)?;
        self.upf_ns.ip(&format!(
            "addr add {UPF_N3}/24 dev n3\naddr add {UPF_N4}/24 dev n3"
        ))
    }

    /// Starts the UPF, when it is down.
    pub fn start_upf(&mut self) -> Result<()> {
        self.upf = Some(Upf::start(&self.upf_ns, &self.settings, &self.folder)?);
        Ok(())
    }

    /// Starts the UPF, when it is down, and kills it when `now` says so, ready or not. It is told the folder of the UPF, and the time
    /// since the start.
    pub fn start_and_kill_upf(&self, now: impl Fn(&Path, Duration) -> bool) -> Result<()> {
        let now = |elapsed| now(&self.folder, elapsed);
        Upf::start_and_kill(&self.upf_ns, &self.settings, &self.folder, now)
    }

    /// The UPF.
    pub fn upf(&mut self) -> Result<&mut Upf> {
        self.upf.as_mut().context("the UPF is down")
    }

    /// SMF number `index`.
    pub fn smf(&self, index: usize) -> Result<&Smf> {
        self.smfs
            .get(index)
            .and_then(Option::as_ref)
            .context("this SMF is down")
    }

    /// Packets that the UPF dropped for `reason`.
    pub fn drops(&self, reason: &str) -> Result<u64> {
        self.upf
            .as_ref()
            .context("the UPF is down")?
            .drops(&self.upf_ns, reason)
    }

    /// How often something happened on N4, as the metrics name it.
    pub fn pfcp_events(&self, event: &str) -> Result<u64> {
        let upf = self.upf.as_ref().context("the UPF is down")?;
        let metrics = upf.get_text(&self.upf_ns, "/metrics")?;
        let line = format!("turnpike_pfcp_events_total{{event=\"{event}\"}} ");
        let count = metrics.lines().find_map(|l| l.strip_prefix(&line));
        count.map_or(Ok(0), |count| Ok(count.trim().parse()?))
    }

    /// Modifications by who has served them (`n4.fast_path`): `served`, or why the data path did not.
    pub fn fast_path(&self) -> Result<BTreeMap<String, u64>> {
        let upf = self.upf.as_ref().context("the UPF is down")?;
        let metrics = upf.get_text(&self.upf_ns, "/metrics")?;
        let name = "turnpike_pfcp_fast_path_requests_total{outcome=\"";
        let rows = metrics.lines().filter_map(|line| line.strip_prefix(name));
        let rows = rows.filter_map(|row| row.split_once("\"} "));
        rows.map(|(outcome, count)| Ok((outcome.to_owned(), count.trim().parse()?)))
            .collect()
    }

    /// Asks REST of the UPF.
    pub fn get(&self, path: &str) -> Result<serde_json::Value> {
        let upf = self.upf.as_ref().context("the UPF is down")?;
        upf.get(&self.upf_ns, path)
    }

    /// Frames above their rate that have waited, or do.
    pub fn shaped(&self) -> Result<u64> {
        let upf = self.upf.as_ref().context("the UPF is down")?;
        let metrics = upf.get_text(&self.upf_ns, "/metrics")?;
        let lines = metrics.lines();
        let counts = lines.filter(|line| line.starts_with("turnpike_shaped_packets_total{"));
        let counts = counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        Ok(counts.sum())
    }

    /// Counts of the UPF for a UE, up and down.
    pub fn counted(&self, attached: &Attached) -> Result<[Counted; 2]> {
        let upf = self.upf.as_ref().context("the UPF is down")?;
        upf.counted(&self.upf_ns, attached.address()?)
    }

    /// Sessions at the UPF.
    pub fn sessions(&self) -> Result<u64> {
        self.upf
            .as_ref()
            .context("the UPF is down")?
            .sessions(&self.upf_ns)
    }

    /// Changes an interface of the UPF; when this returns it knows.
    pub fn set_mtu(&self, interface: &str, mtu: u32) -> Result<()> {
        let upf = self.upf.as_ref().context("the UPF is down")?;
        upf.set_mtu(&self.upf_ns, interface, mtu)
    }

    /// An ordinary session for the next UE, with addresses of the SMF's own pool.
    pub fn plan(&mut self, family: Family, style: Style) -> SessionPlan {
        let number = self.next_ue;
        self.next_ue += 1;
        let [high, low] = number.to_be_bytes();
        let v4 = Ipv4Addr::new(10, 60, high, low);
        let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0x60, number, 0, 0, 0, 1);
        let addresses = Addresses {
            v4: (family != Family::V6).then_some(v4),
            v6: (family != Family::V4).then_some(v6),
        };
        SessionPlan {
            more: Vec::new(),
            endpoints: false,
            v6_len: None,
            pdi: Vec::new(),
            style,
            addresses: Requested::Given(addresses),
            network_instance: "internet".to_owned(),
            upf_n3: self.settings.n3,
            qfi: 9,
            uplink_ue: false,
            match_qfi: true,
            mbr_kbps: Some((2_000_000, 2_000_000)),
            gates: Gates::OPEN,
            flows: Vec::new(),
            urrs: Vec::new(),
            downlink: None,
            solicitations_to: None,
            policy: None,
        }
    }

    /// A new UE named `name` establishes a session and becomes active at a gNB.
    pub fn attach(
        &self,
        name: &str,
        plan: &SessionPlan,
        smf: usize,
        gnb: usize,
    ) -> Result<Attached> {
        let attached = self.register(name, plan, smf, gnb)?;
        self.activate(&attached)?;
        Ok(attached)
    }

    /// A new UE named `name` establishes a session, of whose tunnel the gNB has not told yet.
    pub fn register(
        &self,
        name: &str,
        plan: &SessionPlan,
        smf: usize,
        gnb: usize,
    ) -> Result<Attached> {
        let mut ue = Ue::create(&self.prefix, name)?;
        let session = self
            .smf(smf)?
            .establish(plan)
            .context("Session Establishment")?;
        ue.configure(session.addresses)?;
        let teid = self.gnbs[gnb].open(Arc::clone(&ue.modem) as Arc<dyn Downlink>);
        Ok(Attached {
            ue,
            session,
            smf,
            gnb,
            teid,
        })
    }

    /// Attaches a UE with an ordinary session at gNB 1.
    pub fn attach_plain(&mut self, name: &str, family: Family) -> Result<Attached> {
        let plan = self.plan(family, self.style.unwrap_or(Style::Open5gs));
        self.attach(name, &plan, 0, 0)
    }

    /// Styles to be tried: all, unless one was asked for.
    pub fn styles(&self) -> Vec<Style> {
        self.style
            .map_or_else(|| Style::ALL.to_vec(), |one| vec![one])
    }

    /// The gNB tells its tunnel, and the UE may send.
    pub fn activate(&self, attached: &Attached) -> Result<()> {
        let gnb = &self.gnbs[attached.gnb];
        let smf = self.smf(attached.smf)?;
        let end = TunnelEnd::with(gnb.addresses(), attached.teid);
        let (upf, teid) = smf
            .connect_to(&attached.session, &end)
            .context("Session Modification: downlink to the gNB")?;
        attached
            .ue
            .modem
            .set_uplink(Some(gnb.uplink(upf, teid, Some(attached.session.plan.qfi))));
        Ok(())
    }

    /// Hands a UE over as Xn does: the target is ready before the path switch, and the source goes
    /// on delivering what was under way, until the End Marker (TS 23.501, 5.8.2.9): a packet that is being forwarded
    /// when the SMF's request is answered leaves after the answer.
    pub fn handover(&self, attached: &mut Attached, to: usize) -> Result<()> {
        let (from, old_teid) = (attached.gnb, attached.teid);
        let ends = attached.session.ends_tunnel_on_switch();
        attached.teid = self.gnbs[to].open(Arc::clone(&attached.ue.modem) as Arc<dyn Downlink>);
        attached.gnb = to;
        self.activate(attached)?;
        if ends {
            eventually("the End Marker at the source", || {
                Ok(self.gnbs[from].has_ended(old_teid))
            })?;
        } else {
            self.drain(from)?;
        }
        self.gnbs[from].close(old_teid);
        Ok(())
    }

    /// All that gNB number `index` has sent over IPv4 so far has come to the UPF.
    pub fn drain_uplink(&self, index: usize) -> Result<()> {
        let gnb = &self.gnb_ns[index];
        ping(gnb, UPF_N3.into(), 1, 0)?.whole().map(drop)
    }

    /// All that the UPF has sent to gNB number `index` so far has been received.
    pub fn drain(&self, index: usize) -> Result<()> {
        let own = |to: IpAddr| match to {
            IpAddr::V4(_) => IpAddr::from(UPF_N3),
            IpAddr::V6(_) => UPF_N3_V6.into(),
        };
        let gnb = &self.gnbs[index];
        gnb.addresses()
            .try_for_each(|to| gnb.drain(&self.upf_ns, own(to), to))
    }

    /// Deletes the session of a UE; the UE itself stays.
    pub fn detach(&self, attached: &Attached) -> Result<()> {
        attached.ue.modem.set_uplink(None);
        self.gnbs[attached.gnb].close(attached.teid);
        self.smf(attached.smf)?
            .delete(&attached.session)
            .context("Session Deletion")
    }

    /// The prefix of all names in this world.
    pub fn prefix(&self) -> &Prefix {
        &self.prefix
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Its workers may be a process of their own, which goes on without it.
        self.upf = None;
        cleanup::kill_inside(self.upf_ns.name());
        cleanup::remove_folder(&self.folder);
        cleanup::forget_folder(&self.folder);
    }
}

/// Of gNB number `index`.
fn gnb_addresses(wanted: &Wanted, index: usize) -> Vec<IpAddr> {
    wanted.over.addresses(GNBS[index], GNBS_V6[index]).all()
}

fn settings(wanted: &Wanted) -> Settings {
    let port = |index| SocketAddr::from((smf_address(index), smf::PORT));
    Settings {
        n4: UPF_N4,
        n4_also: wanted.n4_v6.then_some(UPF_N4_V6.into()),
        n3: wanted.over.addresses(UPF_N3, UPF_N3_V6),
        n6: wanted.several_roles.then_some(UPF_N6),
        smfs: if wanted.upf_calls {
            (0..wanted.smfs).map(port).collect()
        } else {
            Vec::new()
        },
        // The UPF takes addresses from the front; the SMF's own are in the second of each family.
        pools: [
            "10.61.0.0/16",
            "10.60.0.0/16",
            "2001:db8:61::/48",
            "2001:db8:60::/48",
        ]
        .map(str::to_owned)
        .into(),
        heartbeat_s: wanted.heartbeat_s,
        retention_s: wanted.retention_s,
        lines: wanted.lines.clone(),
        sessions: 16384,
        sections: match (wanted.second_dn, wanted.n9) {
            (true, _) => SECOND_DN.to_owned(),
            (_, true) => n9_section(UPF_N9),
            _ => String::new(),
        },
    }
}

/// An interface for N9.
pub(crate) fn n9_section(address: Ipv4Addr) -> String {
    format!("[[interface]]\nname = \"n9\"\nrole = \"n9\"\naddresses = [\"{address}\"]")
}

/// The network instance of the second data network: its UE addresses are those of the first.
const SECOND_DN: &str = r#"[[interface]]
name = "n6b"
role = "n6"

[[network_instance]]
name = "corporate"
interface = "n6b"
table = 100
pools = ["10.60.0.0/16", "2001:db8:60::/48"]"#;
