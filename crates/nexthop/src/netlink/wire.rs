//! rtnetlink messages, as far as next hops need them (`linux/rtnetlink.h`, `linux/neighbour.h`).
//!
//! Unknown messages and attributes are skipped, and one that is too short costs only itself: a newer
//! kernel must not blind us. Integers are in host order unless named `_be`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::{Lead, NeighbourKey};
use crate::{
    Address, HowAdded, KernelChange, Link, Mac, Neighbour, Route, RouteHop, RouteKind, Vlan,
};

/// `struct nlmsghdr`.
pub(super) const HEADER_LEN: usize = 16;

const NTF_USE: u8 = 1;
const NTF_EXT_MANAGED: u32 = 1;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NDA_FLAGS_EXT: u16 = 15;
const NUD_VALID: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;
const NUD_FAILED: u16 = 0x20;
const NUD_NOARP: u16 = 0x40;
const NUD_PERMANENT: u16 = 0x80;
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;

/// One netlink message.
pub(super) struct Message<'a> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
    /// Port of the socket whose request brought the message about; 0: the kernel itself.
    pub(super) port: u32,
    body: &'a [u8],
}

/// Entry of the kernel's neighbour table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    state: u16,
    flags: u8,
    mac: Option<Mac>,
    /// The kernel keeps it resolved.
    pub(super) is_managed: bool,
}

impl Entry {
    /// Set by the operator (`NUD_PERMANENT`, `NUD_NOARP`): the kernel never probes it.
    pub(super) fn is_static(&self) -> bool {
        self.state & (NUD_PERMANENT | NUD_NOARP) != 0
    }

    /// The kernel has asked for it in vain.
    pub(super) fn is_failed(&self) -> bool {
        self.state & NUD_FAILED != 0
    }

    /// The kernel sends to it, stale included.
    pub(super) fn is_valid(&self) -> bool {
        self.state & NUD_VALID != 0
    }
}

impl<'a> Message<'a> {
    /// Error number of `NLMSG_ERROR`, and of a `NLMSG_DONE` that ends a failed dump; 0 acknowledges.
    pub(super) fn errno(&self) -> i32 {
        array(self.body, 0).map_or(0, |bytes| -i32::from_ne_bytes(bytes))
    }

    /// Change of the kernel's state that the message tells, if any.
    pub(super) fn change(&self) -> Option<KernelChange> {
        match self.kind {
            libc::RTM_NEWLINK => link(self.body).map(KernelChange::Link),
            libc::RTM_DELLINK => link(self.body).map(|link| KernelChange::LinkGone(link.ifindex)),
            libc::RTM_NEWADDR => address(self.body).map(KernelChange::Address),
            libc::RTM_DELADDR => address(self.body).map(KernelChange::AddressGone),
            libc::RTM_NEWROUTE => {
                let replacing = i32::from(self.flags) & libc::NLM_F_REPLACE != 0;
                let how = if replacing {
                    HowAdded::Replacing
                } else {
                    HowAdded::Beside
                };
                route(self.body).map(|route| KernelChange::Route(route, how))
            }
            libc::RTM_DELROUTE => route(self.body).map(KernelChange::RouteGone),
            libc::RTM_NEWNEIGH => neighbour(self.body).map(KernelChange::Neighbour),
            libc::RTM_DELNEIGH => neighbour(self.body).map(|n| KernelChange::NeighbourGone {
                ifindex: n.ifindex,
                addr: n.addr,
            }),
            RTM_NEWNEXTHOP | RTM_DELNEXTHOP => Some(KernelChange::RoutesUncertain),
            _ => None,
        }
    }

    /// Neighbour that the message is about, and its entry; `None` for one that is gone.
    pub(super) fn neighbour(&self) -> Option<(NeighbourKey, Option<Entry>)> {
        let (key, entry) = match self.kind {
            libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH => entry(self.body)?,
            _ => return None,
        };
        Some((key, (self.kind == libc::RTM_NEWNEIGH).then_some(entry)))
    }
}

/// The messages of one datagram.
pub(super) struct Messages<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let len = u32_at(self.0, 0)? as usize;
        let body = self.0.get(HEADER_LEN..len)?;
        let message = Message {
            kind: u16_at(self.0, 4)?,
            flags: u16_at(self.0, 6)?,
            sequence: u32_at(self.0, 8)?,
            port: u32_at(self.0, 12)?,
            body,
        };
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    }
}

/// Attributes (`struct rtattr`): type without flags, value.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let len = usize::from(u16_at(self.0, 0)?);
        let kind = u16_at(self.0, 2)? & 0x3fff;
        let value = self.0.get(4..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_ne_bytes)
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => array(bytes, 0).map(|b: [u8; 4]| Ipv4Addr::from(b).into()),
        16 => array(bytes, 0).map(|b: [u8; 16]| Ipv6Addr::from(b).into()),
        _ => None,
    }
}

/// `struct ifinfomsg` and its attributes.
fn link(body: &[u8]) -> Option<Link> {
    // Bridges announce their ports again under AF_BRIDGE.
    if *body.first()? != libc::AF_UNSPEC as u8 {
        return None;
    }
    let flags = u32_at(body, 8)?;
    let mut link = Link {
        ifindex: u32_at(body, 4)?,
        name: String::new(),
        mac: None,
        mtu: 0,
        up: flags & libc::IFF_UP as u32 != 0,
        carrier: flags & libc::IFF_LOWER_UP as u32 != 0,
        vlan: None,
    };
    let (mut parent, mut info, mut is_elsewhere) = (None, None, false);
    for (kind, value) in Attributes(body.get(16..)?) {
        match kind {
            libc::IFLA_IFNAME => {
                let name = value.strip_suffix(&[0]).unwrap_or(value);
                link.name = String::from_utf8_lossy(name).into_owned();
            }
            libc::IFLA_ADDRESS => link.mac = array(value, 0).filter(|_| value.len() == 6).map(Mac),
            libc::IFLA_MTU => link.mtu = u32_at(value, 0)?,
            libc::IFLA_LINK => parent = u32_at(value, 0),
            libc::IFLA_LINK_NETNSID => is_elsewhere = true,
            libc::IFLA_LINKINFO => info = Some(value),
            _ => {}
        }
    }
    // In another network namespace the number is another device's.
    link.vlan = vlan(parent.filter(|_| !is_elsewhere), info);
    Some(link)
}

fn vlan(parent: Option<u32>, info: Option<&[u8]>) -> Option<Vlan> {
    const IFLA_VLAN_ID: u16 = 1;
    const IFLA_VLAN_PROTOCOL: u16 = 5;
    let of = |kind| {
        Attributes(info.unwrap_or_default())
            .find(|(k, _)| *k == kind)
            .map(|(_, v)| v)
    };
    if !of(libc::IFLA_INFO_KIND)?.starts_with(b"vlan\0") {
        return None;
    }
    let mut vlan = Vlan {
        parent: parent?,
        id: 0,
        tpid: 0x8100,
    };
    for (kind, value) in Attributes(of(libc::IFLA_INFO_DATA)?) {
        match kind {
            IFLA_VLAN_ID => vlan.id = u16_at(value, 0)?,
            IFLA_VLAN_PROTOCOL => vlan.tpid = u16::from_be_bytes(array(value, 0)?),
            _ => {}
        }
    }
    Some(vlan)
}

/// `struct ifaddrmsg` and its attributes.
fn address(body: &[u8]) -> Option<Address> {
    let plen = *body.get(1)?;
    let (mut addr, mut local) = (None, None);
    for (kind, value) in Attributes(body.get(8..)?) {
        match kind {
            libc::IFA_ADDRESS => addr = ip(value),
            libc::IFA_LOCAL => local = ip(value),
            _ => {}
        }
    }
    // On a point-to-point link IFA_ADDRESS is the other end.
    let net = IpNet::new(local.or(addr)?, plen).ok()?;
    Some(Address {
        ifindex: u32_at(body, 4)?,
        net,
    })
}

/// `struct rtmsg` and its attributes.
fn route(body: &[u8]) -> Option<Route> {
    let header: [u8; 8] = array(body, 0)?;
    let [
        family,
        dst_len,
        src_len,
        tos,
        table,
        _protocol,
        _scope,
        kind,
    ] = header;
    let cloned = u32_at(body, 8)? & libc::RTM_F_CLONED != 0;
    // Source-specific routes, routes for one TOS, and cached exceptions are not mirrored.
    if cloned || tos != 0 || src_len != 0 {
        return None;
    }
    let unspecified: IpAddr = match i32::from(family) {
        libc::AF_INET => Ipv4Addr::UNSPECIFIED.into(),
        libc::AF_INET6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    let mut route = Route {
        table: u32::from(table),
        prefix: IpNet::new(unspecified, dst_len).ok()?,
        kind: route_kind(kind)?,
        metric: 0,
        mtu: None,
        hops: Vec::new(),
    };
    let (mut ifindex, mut gateway) = (None, None);
    for (kind, value) in Attributes(body.get(12..)?) {
        match kind {
            libc::RTA_DST => route.prefix = IpNet::new(ip(value)?, dst_len).ok()?.trunc(),
            libc::RTA_OIF => ifindex = u32_at(value, 0),
            libc::RTA_GATEWAY => gateway = ip(value),
            libc::RTA_VIA => gateway = via(value),
            libc::RTA_PRIORITY => route.metric = u32_at(value, 0)?,
            libc::RTA_TABLE => route.table = u32_at(value, 0)?,
            libc::RTA_METRICS => route.mtu = route_mtu(value),
            libc::RTA_MULTIPATH => route.hops = multipath(value),
            _ => {}
        }
    }
    if let (Some(ifindex), true) = (ifindex, route.hops.is_empty()) {
        route.hops.push(RouteHop { ifindex, gateway });
    }
    Some(route)
}

fn route_kind(kind: u8) -> Option<RouteKind> {
    Some(match kind {
        libc::RTN_UNICAST => RouteKind::Unicast,
        libc::RTN_LOCAL | libc::RTN_ANYCAST => RouteKind::Local,
        libc::RTN_BROADCAST | libc::RTN_MULTICAST => RouteKind::Broadcast,
        libc::RTN_BLACKHOLE | libc::RTN_UNREACHABLE | libc::RTN_PROHIBIT => RouteKind::Prohibit,
        libc::RTN_THROW => RouteKind::Throw,
        _ => return None,
    })
}

/// `struct rtvia`: family and address.
fn via(value: &[u8]) -> Option<IpAddr> {
    ip(value.get(2..)?)
}

fn route_mtu(metrics: &[u8]) -> Option<u32> {
    const RTAX_MTU: u16 = 2;
    let mtu = Attributes(metrics).find(|(kind, _)| *kind == RTAX_MTU);
    mtu.and_then(|(_, value)| u32_at(value, 0))
        .filter(|mtu| *mtu > 0)
}

/// A list of `struct rtnexthop`, each with attributes.
fn multipath(mut rest: &[u8]) -> Vec<RouteHop> {
    let mut hops = Vec::new();
    while let (Some(len), Some(ifindex)) = (u16_at(rest, 0), u32_at(rest, 4)) {
        let Some(attributes) = rest.get(8..usize::from(len)) else {
            break;
        };
        let gateway = Attributes(attributes).find_map(|(kind, value)| match kind {
            libc::RTA_GATEWAY => ip(value),
            libc::RTA_VIA => via(value),
            _ => None,
        });
        hops.push(RouteHop { ifindex, gateway });
        rest = rest
            .get(usize::from(len).next_multiple_of(4)..)
            .unwrap_or_default();
    }
    hops
}

/// `struct ndmsg` and its attributes.
fn entry(body: &[u8]) -> Option<(NeighbourKey, Entry)> {
    const NTF_PROXY: u8 = 8;
    let (family, flags) = (i32::from(*body.first()?), *body.get(10)?);
    if !matches!(family, libc::AF_INET | libc::AF_INET6) || flags & NTF_PROXY != 0 {
        return None;
    }
    let mut entry = Entry {
        state: u16_at(body, 8)?,
        flags,
        mac: None,
        is_managed: false,
    };
    let mut addr = None;
    for (kind, value) in Attributes(body.get(12..)?) {
        match kind {
            NDA_DST => addr = ip(value),
            NDA_LLADDR if value.len() == 6 => entry.mac = array(value, 0).map(Mac),
            NDA_FLAGS_EXT => {
                entry.is_managed = u32_at(value, 0).is_some_and(|f| f & NTF_EXT_MANAGED != 0);
            }
            _ => {}
        }
    }
    Some(((u32_at(body, 4)?, addr?), entry))
}

fn neighbour(body: &[u8]) -> Option<Neighbour> {
    let ((ifindex, addr), entry) = entry(body)?;
    Some(Neighbour {
        ifindex,
        addr,
        mac: entry.mac.filter(|_| entry.is_valid()),
        is_static: entry.is_static(),
        is_failed: entry.is_failed(),
    })
}

fn begin(kind: u16, flags: i32, sequence: u32) -> Vec<u8> {
    let mut message = vec![0; HEADER_LEN];
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message[6..8].copy_from_slice(&((flags | libc::NLM_F_REQUEST) as u16).to_ne_bytes());
    message[8..12].copy_from_slice(&sequence.to_ne_bytes());
    message
}

fn attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend(((value.len() + 4) as u16).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
    message.resize(message.len().next_multiple_of(4), 0);
}

fn finish(mut message: Vec<u8>) -> Vec<u8> {
    let len = message.len() as u32;
    message[..4].copy_from_slice(&len.to_ne_bytes());
    message
}

/// Ask for everything of a kind (`RTM_GETLINK` …), of all families.
pub(super) fn dump(kind: u16, sequence: u32) -> Vec<u8> {
    let mut message = begin(kind, libc::NLM_F_DUMP, sequence);
    let body = match kind {
        libc::RTM_GETLINK => 16,
        libc::RTM_GETADDR => 8,
        _ => 12,
    };
    message.resize(HEADER_LEN + body, 0);
    finish(message)
}

fn neighbour_message(message: &mut Vec<u8>, (ifindex, addr): NeighbourKey, state: u16, flags: u8) {
    let family = if addr.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    message.extend([family as u8, 0, 0, 0]);
    message.extend(ifindex.to_ne_bytes());
    message.extend(state.to_ne_bytes());
    message.extend([flags, 0]);
    match addr {
        IpAddr::V4(addr) => attribute(message, NDA_DST, &addr.octets()),
        IpAddr::V6(addr) => attribute(message, NDA_DST, &addr.octets()),
    }
}

/// Have a neighbour resolved now, and kept so. `exists`: of one that is there, or one that is not; the kernel refuses the
/// other (`ENOENT`, `EEXIST`).
pub(super) fn keep_neighbour(key: NeighbourKey, exists: bool, sequence: u32) -> Vec<u8> {
    let which = if exists {
        libc::NLM_F_REPLACE
    } else {
        libc::NLM_F_CREATE | libc::NLM_F_EXCL
    };
    let mut message = begin(libc::RTM_NEWNEIGH, libc::NLM_F_ACK | which, sequence);
    neighbour_message(&mut message, key, 0, NTF_USE);
    attribute(&mut message, NDA_FLAGS_EXT, &NTF_EXT_MANAGED.to_ne_bytes());
    finish(message)
}

/// Have a neighbour kept no longer.
pub(super) fn release_neighbour(key: NeighbourKey, sequence: u32) -> Vec<u8> {
    let flags = libc::NLM_F_ACK | libc::NLM_F_REPLACE;
    let mut message = begin(libc::RTM_NEWNEIGH, flags, sequence);
    neighbour_message(&mut message, key, 0, NTF_USE);
    finish(message)
}

/// Give a neighbour that is there an entry as it was, not managed.
pub(super) fn put_back_neighbour(key: NeighbourKey, entry: &Entry, sequence: u32) -> Vec<u8> {
    let flags = libc::NLM_F_ACK | libc::NLM_F_REPLACE;
    let mut message = begin(libc::RTM_NEWNEIGH, flags, sequence);
    neighbour_message(&mut message, key, entry.state, entry.flags & !NTF_USE);
    if let Some(Mac(mac)) = entry.mac {
        attribute(&mut message, NDA_LLADDR, &mac);
    }
    finish(message)
}

/// Lead all packets of a family out of an interface, in one of the kernel's tables.
pub(super) fn default_route(ifindex: u32, table: u32, is_v4: bool, sequence: u32) -> Vec<u8> {
    let flags = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
    let mut message = begin(libc::RTM_NEWROUTE, flags, sequence);
    let family = if is_v4 { libc::AF_INET } else { libc::AF_INET6 };
    message.extend([family as u8, 0, 0, 0, libc::RT_TABLE_UNSPEC]);
    message.extend([libc::RTPROT_STATIC, libc::RT_SCOPE_LINK, libc::RTN_UNICAST]);
    message.extend([0; 4]);
    attribute(&mut message, libc::RTA_OIF, &ifindex.to_ne_bytes());
    attribute(&mut message, libc::RTA_TABLE, &table.to_ne_bytes());
    finish(message)
}

/// Have (`RTM_NEWRULE`), or no longer (`RTM_DELRULE`), packets that come in on an interface led by a table.
pub(super) fn rule(kind: u16, lead: &Lead<'_>, is_v4: bool, sequence: u32) -> Vec<u8> {
    const FR_ACT_TO_TBL: u8 = 1;
    const FRA_IIFNAME: u16 = 3;
    const FRA_PRIORITY: u16 = 6;
    const FRA_TABLE: u16 = 15;
    let once = if kind == libc::RTM_NEWRULE {
        libc::NLM_F_CREATE | libc::NLM_F_EXCL
    } else {
        0
    };
    let mut message = begin(kind, libc::NLM_F_ACK | once, sequence);
    let family = if is_v4 { libc::AF_INET } else { libc::AF_INET6 };
    message.extend([
        family as u8,
        0,
        0,
        0,
        libc::RT_TABLE_UNSPEC,
        0,
        0,
        FR_ACT_TO_TBL,
    ]);
    message.extend([0; 4]);
    let name: Vec<u8> = lead.from.bytes().chain([0]).collect();
    attribute(&mut message, FRA_IIFNAME, &name);
    attribute(&mut message, FRA_PRIORITY, &lead.priority.to_ne_bytes());
    attribute(&mut message, FRA_TABLE, &lead.table.to_ne_bytes());
    finish(message)
}

/// Ask for one neighbour.
pub(super) fn get_neighbour(key: NeighbourKey, sequence: u32) -> Vec<u8> {
    let mut message = begin(libc::RTM_GETNEIGH, 0, sequence);
    neighbour_message(&mut message, key, 0, 0);
    finish(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, header: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut message = begin(kind, 0, 7);
        message.extend(header);
        attributes
            .iter()
            .for_each(|(kind, value)| attribute(&mut message, *kind, value));
        finish(message)
    }

    fn only_change(bytes: &[u8]) -> Option<KernelChange> {
        let mut messages = Messages(bytes);
        let change = messages.next().unwrap().change();
        assert!(messages.next().is_none());
        change
    }

    fn nested(attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        attributes
            .iter()
            .for_each(|(kind, value)| attribute(&mut bytes, *kind, value));
        bytes
    }

    /// `struct ifinfomsg` of device 60, up and with carrier.
    fn ifinfo() -> Vec<u8> {
        let flags = (libc::IFF_UP | libc::IFF_LOWER_UP) as u32;
        let words = [0u32, 60, flags, 0];
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn a_vlan_device_names_parent_tag_and_protocol() {
        let data = nested(&[(1, &60u16.to_ne_bytes()), (5, &0x88a8u16.to_be_bytes())]);
        let info = nested(&[
            (libc::IFLA_INFO_KIND, b"vlan\0"),
            (libc::IFLA_INFO_DATA, &data),
        ]);
        let bytes = message(
            libc::RTM_NEWLINK,
            &ifinfo(),
            &[
                (libc::IFLA_IFNAME, b"n6.60\0"),
                (libc::IFLA_ADDRESS, &[2, 0, 0, 0, 0, 6]),
                (libc::IFLA_MTU, &1496u32.to_ne_bytes()),
                (libc::IFLA_LINK, &6u32.to_ne_bytes()),
                (0x7fff, b"from the future"),
                // The nested flag is set by newer kernels.
                (libc::IFLA_LINKINFO | 0x8000, &info),
            ],
        );
        let expected = Link {
            ifindex: 60,
            name: "n6.60".into(),
            mac: Some(Mac([2, 0, 0, 0, 0, 6])),
            mtu: 1496,
            up: true,
            carrier: true,
            vlan: Some(Vlan {
                parent: 6,
                id: 60,
                tpid: 0x88a8,
            }),
        };
        assert_eq!(only_change(&bytes), Some(KernelChange::Link(expected)));
    }

    /// One that was moved into the UPF's network namespace, as containers have it.
    #[test]
    fn a_vlan_device_whose_parent_is_in_another_namespace_stands_alone() {
        let data = nested(&[(1, &60u16.to_ne_bytes())]);
        let info = nested(&[
            (libc::IFLA_INFO_KIND, b"vlan\0"),
            (libc::IFLA_INFO_DATA, &data),
        ]);
        let bytes = message(
            libc::RTM_NEWLINK,
            &ifinfo(),
            &[
                (libc::IFLA_LINK, &6u32.to_ne_bytes()),
                (libc::IFLA_LINKINFO, &info),
                (libc::IFLA_LINK_NETNSID, &0u32.to_ne_bytes()),
            ],
        );
        let Some(KernelChange::Link(link)) = only_change(&bytes) else {
            panic!()
        };
        assert_eq!(link.vlan, None);
    }

    #[test]
    fn a_veth_has_a_link_but_is_no_vlan() {
        let info = nested(&[(libc::IFLA_INFO_KIND, b"veth\0")]);
        let bytes = message(
            libc::RTM_NEWLINK,
            &ifinfo(),
            &[
                (libc::IFLA_LINK, &6u32.to_ne_bytes()),
                (libc::IFLA_LINKINFO, &info),
            ],
        );
        let Some(KernelChange::Link(link)) = only_change(&bytes) else {
            panic!()
        };
        assert_eq!(link.vlan, None);
    }

    #[test]
    fn an_ipv4_route_may_go_by_an_ipv6_gateway() {
        let header = [
            libc::AF_INET as u8,
            24,
            0,
            0,
            254,
            4,
            0,
            libc::RTN_UNICAST,
            0,
            0,
            0,
            0,
        ];
        let gateway: Ipv6Addr = "fe80::1".parse().unwrap();
        let mut via = (libc::AF_INET6 as u16).to_ne_bytes().to_vec();
        via.extend(gateway.octets());
        let mtu = nested(&[(2, &1400u32.to_ne_bytes())]);
        let bytes = message(
            libc::RTM_NEWROUTE,
            &header,
            &[
                (libc::RTA_TABLE, &1000u32.to_ne_bytes()),
                (libc::RTA_DST, &[192, 0, 2, 0]),
                (libc::RTA_METRICS, &mtu),
                (libc::RTA_VIA, &via),
                (libc::RTA_OIF, &6u32.to_ne_bytes()),
            ],
        );
        let route = Route {
            table: 1000,
            prefix: "192.0.2.0/24".parse().unwrap(),
            kind: RouteKind::Unicast,
            metric: 0,
            mtu: Some(1400),
            hops: vec![RouteHop {
                ifindex: 6,
                gateway: Some(gateway.into()),
            }],
        };
        assert_eq!(
            only_change(&bytes),
            Some(KernelChange::Route(route, HowAdded::Beside))
        );
    }

    #[test]
    fn an_entry_is_put_back_as_it_was_told() {
        const NTF_ROUTER: u8 = 0x80;
        for (addr, state) in [("10.6.0.2", NUD_PERMANENT), ("2001:db8::2", NUD_NOARP)] {
            let key = (6, addr.parse().unwrap());
            let entry = Entry {
                state,
                flags: NTF_ROUTER,
                mac: Some(Mac([2, 0, 0, 0, 0, 6])),
                is_managed: false,
            };
            let bytes = put_back_neighbour(key, &entry, 1);
            let message = Messages(&bytes).next().unwrap();
            assert_eq!(message.neighbour(), Some((key, Some(entry))));
            let Some(KernelChange::Neighbour(neighbour)) = message.change() else {
                panic!()
            };
            assert!(neighbour.is_static);
            let bytes = keep_neighbour(key, true, 1);
            let (_, asked) = Messages(&bytes).next().unwrap().neighbour().unwrap();
            assert!(asked.is_some_and(|entry| entry.is_managed && !entry.is_static()));
        }
    }

    #[test]
    fn bridges_and_proxies_are_no_neighbours() {
        let header = |family, flags| [family, 0, 0, 0, 6, 0, 0, 0, 2, 0, flags, 0];
        let attributes: [(u16, &[u8]); 2] = [(NDA_DST, &[10, 6, 0, 2]), (NDA_LLADDR, &[2; 6])];
        let heard = |header: [u8; 12]| {
            only_change(&message(libc::RTM_NEWNEIGH, &header, &attributes)).is_some()
        };
        assert!(heard(header(libc::AF_INET as u8, 0)));
        assert!(!heard(header(libc::AF_INET as u8, 8)));
        assert!(!heard(header(libc::AF_BRIDGE as u8, 0)));
    }

    proptest::proptest! {
        /// Nothing that arrives is worse than not understood.
        #[test]
        fn any_bytes_are_survived(
            kind in 16u16..106,
            family in proptest::sample::select(vec![0u8, 2, 10]),
            mut body in proptest::collection::vec(proptest::num::u8::ANY, 0..300),
            cut in 0usize..300,
        ) {
            if let Some(first) = body.first_mut() {
                *first = family;
            }
            let mut bytes = message(kind, &body, &[(1, &[1, 2, 3, 4]), (9, &[8, 0, 0, 0, 0, 0, 0, 0])]);
            bytes.truncate(cut.max(1));
            for message in Messages(&bytes) {
                let _ = (message.change(), message.errno(), message.neighbour());
            }
            for message in Messages(&body) {
                let _ = message.change();
            }
        }
    }
}
