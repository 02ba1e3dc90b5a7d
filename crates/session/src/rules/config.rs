//! Configuration by the operator. The daemon reads it from a file and has checked it.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use compiled::NiId;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

pub use crate::base::node_id::NodeIdConfig;
pub use crate::rules::predefined::{PredefinedFar, PredefinedRule};
pub use crate::rules::qos::{CapacityUse, DEFAULT_5QI, FlowClass, Of, QosConfig, weight_of};

/// Everything the core needs to know beforehand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Our Node ID to every SMF (TS 29.244, 8.2.38).
    pub node_id: NodeIdConfig,
    /// Our N4 addresses: the first IPv4 and the first IPv6 one go into the UP F-SEID.
    pub n4: Vec<IpAddr>,
    /// Prefixes of those who may speak PFCP with us; what others send is counted, and not answered. None: anybody.
    pub allow: Vec<IpNet>,
    /// Our N3 (and N9) addresses, IPv4 and IPv6; at most 256.
    pub n3: Vec<IpAddr>,
    /// Further addresses at which we are reached, that no UE has: see [`Core::set_own_addresses`].
    ///
    /// [`Core::set_own_addresses`]: crate::Core::set_own_addresses
    pub own: Vec<IpAddr>,
    /// Which of them tunnels end at, and packets come from, by side and network instance. The first of
    /// each family of `n3` where nothing here fits.
    pub tunnel_networks: Vec<TunnelNetwork>,
    /// In the order of `NiId`.
    pub network_instances: Vec<NetworkInstance>,
    /// Rules that SMFs may activate by name.
    pub predefined_rules: Vec<PredefinedRule>,
    /// Identifiers that FARs may name in a Forwarding Policy, in the order of `PolicyId`; at most 256.
    pub forwarding_policies: Vec<ForwardingPolicy>,
    /// Upper bounds; a request of an SMF beyond one is refused with cause 75 (no resources available).
    pub limits: Limits,
    /// Buckets of the meters.
    pub burst: Burst,
    /// Classes of QoS flows, and capacities that they share.
    pub qos: QosConfig,
    /// Time between our Heartbeat Requests to one peer; zero: we send none.
    pub heartbeat_interval: Duration,
    /// Time after which a request of ours is sent again (TS 29.244, 6.4).
    pub t1: Duration,
    /// How often a request of ours is sent altogether. At least 1.
    pub n1: u32,
    /// The longest time between two attempts to associate with a configured SMF. The first comes
    /// after `t1`, each further one after twice the time.
    pub retry_at_most: Duration,
    /// How long the sessions of a peer that no longer answers keep forwarding. A short outage of
    /// N4 or of the SMF must cost no subscriber; for ever would leak the sessions of an SMF that
    /// was taken away.
    pub path_failure_retention: Duration,
    /// Time that SMFs are told they have for releasing their associations when we shut down
    /// (Graceful Release Period, TS 29.244, 8.2.78), in steps of 2 s up to a minute. Packets are
    /// forwarded meanwhile. Zero: nothing is said.
    pub graceful_release: Duration,
    /// From so many percent of a busy control thread on, SMFs with overload control (TS 29.244,
    /// 6.2.4) are asked for fewer sessions, and a share of their establishments is refused with
    /// cause 74. Zero: never.
    pub overload_at_percent: u8,
    /// Time between Echo Requests to each GTP-U peer in use; zero: none are sent. TS 29.281, 7.2.1
    /// wants at least 60 s.
    pub echo_interval: Duration,
    /// Time after which an unanswered Echo Request is sent again (T3-RESPONSE).
    pub echo_t3: Duration,
    /// How often it is sent altogether (N3-REQUESTS).
    pub echo_n3: u32,
    /// Port for our requests. `None`: the port that the peer's Association Setup Request came
    /// from, which also reaches peers that do not listen on the registered port. `Some(8805)` is
    /// for peers that send from other ports than they listen on (TS 29.244, 4.2.2: requests go to
    /// 8805, whatever port they come from).
    pub peer_port: Option<u16>,
    /// Answers kept for retransmitted requests.
    pub answers: Answers,
    /// Sessions deleted in one step when a peer is gone, so that the others are served meanwhile.
    pub deletions_per_step: usize,
    /// Whether the data path serves requests that it has templates for, as far as it can.
    pub fast_path: bool,
    /// A number that peers cannot know, drawn afresh at each start: it makes SEIDs hard to guess and
    /// hash tables hard to aim at. The core has no randomness of its own.
    pub seed: u64,
}

impl Config {
    /// Whether who is at this address may speak PFCP with us. An IPv4 address may come in an IPv6 one.
    pub(crate) fn allows(&self, from: IpAddr) -> bool {
        let from = from.to_canonical();
        self.allow.is_empty() || self.allow.iter().any(|net| net.contains(&from))
    }
}

/// A data network as SMFs name it (TS 29.244, 8.2.4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkInstance {
    /// As the SMF sends it, without DNS label encoding.
    pub name: String,
    /// UE addresses that we allocate, or that the SMF chooses.
    pub pools4: Vec<Ipv4Net>,
    /// UE prefixes, each UE gets a /64.
    pub pools6: Vec<Ipv6Net>,
    /// Framed routes of sessions lie within these. None: they are any that overlap neither a pool, nor what another
    /// session has, nor an address of ours.
    pub framed_routes: Option<Vec<IpNet>>,
    /// The first network instance on its N6 interface: what comes in there finds the UEs of all of them. None: itself.
    pub home: Option<NiId>,
    /// Sessions that name it when they are established are emergency sessions (TS 23.501, 5.16.4): N4 does not say otherwise
    /// which are.
    pub emergency: bool,
}

/// A forwarding policy as SMFs name it (TS 29.244, 8.2.23). Where its packets go is the tables' affair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardingPolicy {
    /// Its identifier, compared octet by octet.
    pub identifier: String,
    /// FARs towards access may name it, too, whose packets keep to their tunnels.
    pub towards_access: bool,
}

/// A network that tunnels go through, by the addresses that we have in it. Where there is a choice it is
/// the first that bears the network instance's name, else the first without names of the side, else the
/// first of the side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TunnelNetwork {
    /// Of [`Config::n3`]. Those that we choose, and send from, are the first of each family.
    pub addresses: Vec<IpAddr>,
    /// Which side tunnels lead to: other UPFs (N9; Core, where no 3GPP Interface Type says otherwise), else
    /// access and the SMF.
    pub core: bool,
    /// Network instances of Access or Core that mean this network (TS 29.244, 8.2.4).
    pub network_instances: Vec<String>,
}

/// How much of everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// PFCP sessions.
    pub sessions: u32,
    /// PDRs of one session.
    pub pdrs_per_session: usize,
    /// FARs of one session.
    pub fars_per_session: usize,
    /// QERs of one session.
    pub qers_per_session: usize,
    /// URRs of one session.
    pub urrs_per_session: usize,
    /// BARs of one session.
    pub bars_per_session: usize,
    /// SDF filters of one session.
    pub filters_per_session: usize,
    /// QERs that one PDR names.
    pub qers_per_pdr: usize,
    /// PFCP associations.
    pub peers: usize,
    /// Half of what there is for all SMFs is divided into so many equal shares, one for each SMF that is there; 0: all is
    /// for whoever comes first.
    pub shares: u32,
    /// Such a part of [`Self::sessions`], and of all else that sessions share, is for those of emergency networks alone.
    pub emergency_sessions: u32,
    /// Applications with PFDs, those of all SMFs together.
    pub pfd_applications: usize,
    /// All PFDs together, in bytes.
    pub pfd_bytes: usize,
    /// Requests of ours that wait for an answer.
    pub outstanding: usize,
}

/// Depth of a meter's bucket: what the rate lets through in `ms`, and not less than `min_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Milliseconds at the maximum bit rate.
    pub ms: u32,
    /// A few full packets, so that slow rates pass any at all.
    pub min_bytes: u32,
}

/// Answers kept for all peers and strangers (TS 29.244, 6.4: a retransmitted request gets the same answer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answers {
    /// How many.
    pub count: usize,
    /// All answers together.
    pub bytes: usize,
    /// How long. Longer than a peer retransmits (N1 x T1: 9 s with Open5GS, 15 s where an
    /// operator is patient), short enough that a 24-bit sequence number has not come round.
    pub lifetime: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            node_id: NodeIdConfig::Ip(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            n4: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            allow: Vec::new(),
            n3: Vec::new(),
            own: Vec::new(),
            tunnel_networks: Vec::new(),
            network_instances: Vec::new(),
            predefined_rules: Vec::new(),
            forwarding_policies: Vec::new(),
            limits: Limits::default(),
            burst: Burst::default(),
            qos: QosConfig::default(),
            heartbeat_interval: Duration::from_secs(10),
            t1: Duration::from_secs(1),
            n1: 3,
            retry_at_most: Duration::from_secs(30),
            path_failure_retention: Duration::from_secs(3600),
            graceful_release: Duration::ZERO,
            echo_interval: Duration::ZERO,
            echo_t3: Duration::from_secs(3),
            echo_n3: 5,
            overload_at_percent: 90,
            peer_port: None,
            answers: Answers::default(),
            deletions_per_step: 512,
            fast_path: false,
            seed: 0,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 100_000,
            pdrs_per_session: 16,
            fars_per_session: 16,
            qers_per_session: 16,
            urrs_per_session: 16,
            bars_per_session: 4,
            filters_per_session: 64,
            qers_per_pdr: 16,
            peers: 64,
            shares: 8,
            emergency_sessions: 0,
            pfd_applications: 4096,
            pfd_bytes: 4 << 20,
            outstanding: 4096,
        }
    }
}

impl Default for Burst {
    fn default() -> Self {
        Self {
            ms: 100,
            min_bytes: 32_768,
        }
    }
}

impl Default for Answers {
    /// At 20 000 requests a second the last 6 seconds are remembered.
    fn default() -> Self {
        Self {
            count: 131_072,
            bytes: 16 << 20,
            lifetime: Duration::from_secs(30),
        }
    }
}
