#!/usr/bin/python3
"""Golden cases: tables, packets in, packets out, verdicts and counters.

The expectations come from scapy and from the specifications, not from our own code. README.md
describes the files. Run without arguments to write every case; --check compares instead.
"""
import io
import os
import struct
import sys
from socket import AF_INET6, inet_pton

from scapy.all import ARP, ICMP, IP, TCP, UDP, Dot1AD, Dot1Q, Ether, IPv6, Raw, fragment, raw
from scapy.contrib.gtp import GTP_U_Header, GTPPDUSessionContainer
from scapy.layers.inet6 import (ICMPv6DestUnreach, ICMPv6EchoRequest, ICMPv6ND_NS, ICMPv6ND_RA, ICMPv6ND_RS, ICMPv6NDOptMTU,
                                ICMPv6NDOptPrefixInfo, ICMPv6NDOptRDNSS, ICMPv6NDOptSrcLLAddr, ICMPv6PacketTooBig,
                                ICMPv6TimeExceeded, IPv6ExtHdrDestOpt,
                                IPv6ExtHdrFragment, IPv6ExtHdrHopByHop, IPv6ExtHdrRouting, PadN, fragment6)
from scapy.layers.ipsec import AH, ESP
from scapy.layers.l2 import GRE
from scapy.layers.sctp import SCTP
from scapy.utils import PcapWriter

HERE = os.path.dirname(os.path.abspath(__file__))
GNB, GNB2, N3, N3B = "10.3.1.1", "10.3.1.2", "10.3.0.1", "10.3.0.2"
UE, UE2, UE6, HOST, HOST6 = "10.60.0.1", "10.60.0.2", "2001:db8:60::5", "192.0.2.1", "2001:db8:f::1"
GNB_6, GNB2_6, N3_6, N3B_6 = "2001:db8:3:1::1", "2001:db8:3:1::2", "2001:db8:3::1", "2001:db8:3::2"
TEID, RTEID, QFI = 0x01000002, 0x11223344, 9
# MAC addresses: what stands behind a port, and our own there.
THEIRS = ["02:00:00:00:01:00", "02:00:00:00:01:01"]
OURS = ["02:00:00:00:00:00", "02:00:00:00:00:01"]
UP, DOWN = 0, 1


def gtpu(teid, payload, message=255, flags=0x30, options=b"", length=None):
    body = options + payload
    return struct.pack("!BBHI", flags, message, len(body) if length is None else length, teid) + body


def psc(qfi, pdu_type=1, extra=b""):
    """Optional fields and a PDU Session Container (TS 38.415, 5.5.2), nothing behind it."""
    words = (4 + len(extra)) // 4
    return b"\0\0\0\x85" + bytes([words, pdu_type << 4, qfi]) + extra + b"\0"


def outer(payload, src=GNB, dst=N3, sport=2152, dport=2152, l2=None, **ip):
    return (l2 or Ether(src=THEIRS[0], dst=OURS[0])) / IP(src=src, dst=dst, **ip) / UDP(sport=sport, dport=dport, chksum=0) / Raw(payload)


def up(user, teid=TEID, qfi=QFI, **more):
    if qfi is None:
        return outer(gtpu(teid, raw(user)), **more)
    return outer(gtpu(teid, raw(user), flags=0x34, options=psc(qfi)), **more)


def user(src=UE, dst=HOST, ttl=64, payload=b"x" * 40, sport=1000, dport=80, proto=UDP, **more):
    return IP(src=src, dst=dst, ttl=ttl, **more) / proto(sport=sport, dport=dport) / Raw(payload)


def user6(src=UE6, dst=HOST6, hlim=64, payload=b"x" * 40, **more):
    return IPv6(src=src, dst=dst, hlim=hlim, **more) / UDP(sport=1000, dport=80) / Raw(payload)


def net(packet, port=DOWN):
    return Ether(src=THEIRS[port], dst=OURS[port]) / packet


def hop(packet, port=DOWN):
    """As the next router sees it: one hop less to live, from our address to its."""
    packet = packet.__class__(raw(packet))
    if packet.version == 4:
        packet.ttl -= 1
        del packet.chksum
    else:
        packet.hlim -= 1
    return Ether(src=OURS[port], dst=THEIRS[port]) / packet


def tunnelled(packet, teid=RTEID, qfi=QFI, src=N3, dst=GNB, **marks):
    """Towards the gNB: TTL 64, DF, no identification, no UDP checksum. marks: PPP, PPI and RQI of the
    PDU Session Container, which scapy then builds."""
    inner = raw(hop(packet).payload)
    if marks:
        gtp = GTP_U_Header(teid=teid, E=1) / GTPPDUSessionContainer(type=0, QFI=qfi, **marks) / Raw(inner)
        return (Ether(src=OURS[0], dst=THEIRS[0]) / IP(src=src, dst=dst, id=0, flags="DF", ttl=64)
                / UDP(sport=2152, dport=2152, chksum=0) / Raw(raw(gtp)))
    flags, options = (0x34, psc(qfi, 0)) if qfi is not None else (0x30, b"")
    return (Ether(src=OURS[0], dst=THEIRS[0]) / IP(src=src, dst=dst, id=0, flags="DF", ttl=64)
            / UDP(sport=2152, dport=2152, chksum=0) / Raw(gtpu(teid, inner, flags=flags, options=options)))


def answer(frame, payload, dport=2152):
    asked = frame.getlayer(IP)
    l2 = Ether(src=frame.dst, dst=frame.src)
    return (l2 / IP(src=asked.dst, dst=asked.src, id=0, flags="DF", ttl=64)
            / UDP(sport=2152, dport=dport, chksum=0) / Raw(payload))


def error_indication(frame, teid, dst=N3):
    ies = struct.pack("!BI", 16, teid) + struct.pack("!BH", 133, 4) + bytes(map(int, dst.split(".")))
    return answer(frame, gtpu(0, b"", 26, 0x32, b"\0\0\0\0" + ies))


def udp6(payload, src=N3_6, dst=GNB_6, sport=2152, dport=2152, **udp):
    return IPv6(src=src, dst=dst, hlim=64) / UDP(sport=sport, dport=dport, **udp) / Raw(payload)


def outer6(payload, src=GNB_6, dst=N3_6, sport=2152, dport=2152, l2=None, headers=(), udp=None, **ip):
    packet = (l2 or Ether(src=THEIRS[0], dst=OURS[0])) / IPv6(src=src, dst=dst, **ip)
    for header in headers:
        packet /= header
    return packet / UDP(sport=sport, dport=dport, **(udp or {})) / Raw(payload)


def up6(user, teid=TEID, qfi=QFI, **more):
    if qfi is None:
        return outer6(gtpu(teid, raw(user)), **more)
    return outer6(gtpu(teid, raw(user), flags=0x34, options=psc(qfi)), **more)


def tunnelled6(packet, teid=RTEID, qfi=QFI, src=N3_6, dst=GNB_6, **udp):
    """Towards the gNB: hop limit 64, a flow label of the tunnel's own, a UDP checksum by scapy."""
    inner = raw(hop(packet).payload)
    flags, options = (0x34, psc(qfi, 0)) if qfi is not None else (0x30, b"")
    ip = udp6(gtpu(teid, inner, flags=flags, options=options), src, dst, **udp)
    ip.fl = (teid * 2654435761 & 0xffffffff) >> 12
    return Ether(src=OURS[0], dst=THEIRS[0]) / ip


def answer6(frame, payload, dport=2152):
    asked = frame.getlayer(IPv6)
    return Ether(src=frame.dst, dst=frame.src) / udp6(payload, asked.dst, asked.src, dport=dport)


def error_indication6(frame, teid, dst=N3_6):
    ies = struct.pack("!BI", 16, teid) + struct.pack("!BH", 133, 16) + inet_pton(AF_INET6, dst)
    return answer6(frame, gtpu(0, b"", 26, 0x32, b"\0\0\0\0" + ies))


ROUTER, ROUTER6 = "10.6.0.1", "2001:db8:6::1"


def time_exceeded(packet):
    """To the sender (RFC 792, RFC 4443, 3.3), with as much of the packet as RFC 1812 and RFC 4443 allow."""
    packet = packet.__class__(raw(packet))
    if packet.version == 4:
        return IP(src=ROUTER, dst=packet.src, tos=0xc0, id=0, flags="DF", ttl=64) / ICMP(type=11) / Raw(raw(packet)[:548])
    return IPv6(src=ROUTER6, dst=packet.src, hlim=64) / ICMPv6TimeExceeded() / Raw(raw(packet)[:1232])


def too_long(packet, mtu):
    packet = packet.__class__(raw(packet))
    if packet.version == 4:
        return (IP(src=ROUTER, dst=packet.src, tos=0xc0, id=0, flags="DF", ttl=64)
                / ICMP(type=3, code=4, nexthopmtu=mtu) / Raw(raw(packet)[:548]))
    return IPv6(src=ROUTER6, dst=packet.src, hlim=64) / ICMPv6PacketTooBig(mtu=mtu) / Raw(raw(packet)[:1232])


def to_ue(packet, **tunnel):
    """What the slow path sends of a packet that the router of the data network sends to a UE."""
    return slow(tunnelled(packet, **tunnel).payload)


def in_fragments(packet, mtu):
    """RFC 791: all but the last as long as the MTU and units of eight octets allow."""
    packet = packet.__class__(raw(packet))
    return fragment(packet, (mtu - packet.ihl * 4) // 8 * 8)


def slow(packet):
    """What the slow path is told to send: an IP packet, here behind an empty Ethernet header."""
    return Ether(src="00:00:00:00:00:00", dst="00:00:00:00:00:00") / packet


def told_extensions(src=N3, dst=GNB):
    """A Supported Extension Headers Notification (TS 29.281, 7.2.3): PDU Session Container, PDCP PDU Number, its long form."""
    message = gtpu(0, b"\0\0\0\0" + bytes([141, 3, 0x85, 0xc0, 0x82]), message=31, flags=0x32)
    if ":" in src:
        return [slow(udp6(message, src, dst))]
    return [slow(IP(src=src, dst=dst, id=0, flags="DF", ttl=64) / UDP(sport=2152, dport=2152, chksum=0) / Raw(message))]


# What most cases have; a key that a case gives stands in place of the one here (README.md).
COMMON = """\
# what most cases have
n3 = ["10.3.0.1", "10.3.0.2"]

[[port]]
role = "n3"

[[port]]
role = "n6"

[[pool]]
prefix = "10.60.0.0/16"

[[nexthop]]
name = "n3"
port = 0
dst = "02:00:00:00:01:00"
src = "02:00:00:00:00:00"

[[nexthop]]
name = "n6"
port = 1
dst = "02:00:00:00:01:01"
src = "02:00:00:00:00:01"

[[nexthop]]
name = "unresolved"
state = "unresolved"
ifindex = 7

[[nexthop]]
name = "local"
state = "local"

[[nexthop]]
name = "prohibit"
state = "prohibit"

"""
ROUTES = """\
[[route]]
prefix = "203.0.113.0/26"
nexthop = "local"

[[route]]
prefix = "203.0.113.64/26"
nexthop = "prohibit"

[[route]]
prefix = "203.0.113.128/26"
nexthop = "unresolved"

[[route]]
prefix = "0.0.0.0/0"
nexthop = "n6"

[[route]]
prefix = "::/0"
nexthop = "n6"

"""
SITE6 = 'n3 = ["10.3.0.1", "10.3.0.2", "2001:db8:3::1", "2001:db8:3::2"]\n'
POOL6 = "".join('[[pool]]\nprefix = "%s"\n\n' % prefix for prefix in ("10.60.0.0/16", "2001:db8:61::/48", "2001:db8:60::/48"))


def nexthop(name, port, **more):
    return "[[nexthop]]\n" + lines(dict(name=name, port=port, dst=THEIRS[port], src=OURS[port], **more))


def route(prefix, nexthop="n6"):
    return "[[route]]\n" + lines(dict(prefix=prefix, nexthop=nexthop))


def entry(pdr, direction, **fields):
    return "[[session.entry]]\n" + lines(dict(pdr=pdr, direction=direction, **fields))


def key(**fields):
    return "[[session.key]]\n" + lines(fields)


def value(v):
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, str):
        return '"%s"' % v
    if isinstance(v, (list, tuple)):
        return "[" + ", ".join(value(x) for x in v) + "]"
    if isinstance(v, dict):
        return "{ " + ", ".join("%s = %s" % (k, value(x)) for k, x in v.items()) + " }"
    return str(v)


def lines(fields):
    return "".join("%s = %s\n" % (k, value(v)) for k, v in fields.items() if v is not None) + "\n"


def session(*parts, before=None, framed=None):
    return "[[session]]\n" + lines(dict(before=before, framed=framed)) + "".join(parts)


def uplink(pdr=1, **more):
    return entry(pdr, "uplink", **dict(dict(action="route", ue4=UE), **more))


def downlink(pdr=2, **more):
    return entry(pdr, "downlink", **dict(dict(action="tunnel", teid=RTEID, peer=GNB, local=N3, qfi=QFI), **more))


def plain(ul=None, dl=None, before=None, ue6=None, teid=TEID):
    keys = key(teid=teid, one=0) + key(ue4=UE, one=1)
    if ue6:
        keys += key(ue6="2001:db8:60::", one=1)
    return session(uplink(**dict(dict(ue6=ue6), **(ul or {}))), downlink(**(dl or {})), keys, before=before)


CASES = {}


def case(name, what, tables, packets, counters=(), site=""):
    """site: keys that stand in place of the common ones. packets: (port, frame, verdict, frame out, list of frames or None); verdict: forward, answer, slow, held, pass or a
    drop reason, or "slow, " and the drop reason under which user space counts it. counters: (pdr, packets, bytes, drops), and if
    it matters [packets, octets] of the drops that are QoS enforcement's."""
    assert name not in CASES, name
    CASES[name] = (what, site and site.rstrip("\n") + "\n\n", tables, packets, counters)


def up_case(name, what, packet, verdict="forward", out=None, tables=None, counters=None, site="", **more):
    frame = up(packet, **more)
    if verdict == "forward" and out is None:
        out = hop(packet)
    n = len(packet)
    if counters is None:
        counters = [(1, 1, n, 0)] if verdict in ("forward", "slow") else []
    case(name, what, tables or plain(), [(UP, frame, verdict, out)], counters, site)


def down_case(name, what, packet, verdict="forward", out=None, tables=None, counters=None, qfi=QFI):
    if verdict == "forward" and out is None:
        out = tunnelled(packet, qfi=qfi)
    if counters is None:
        counters = [(2, 1, len(packet), 0)] if verdict in ("forward", "slow") else []
    case(name, what, tables or plain(), [(DOWN, net(packet), verdict, out)], counters)


def frame_case(name, what, frame, verdict, out=None, tables=None, counters=(), port=UP):
    case(name, what, tables or plain(), [(port, frame, verdict, out)], counters)


def uplink_cases():
    u = user()
    good = [(1, 1, len(u), 0)]
    up_case("ul-psc", "G-PDU with a PDU Session Container", u)
    up_case("ul-no-psc", "G-PDU without any option", u, qfi=None)
    frame_case("ul-sequence-only", "S flag without E", outer(gtpu(TEID, raw(u), flags=0x32, options=b"\0\7\0\0")), "forward", hop(u), counters=good)
    frame_case("ul-npdu-flag", "N-PDU flag alone; the type octet means nothing", outer(gtpu(TEID, raw(u), flags=0x31, options=b"\0\0\5\x85")), "forward", hop(u), counters=good)
    frame_case("ul-all-flags", "E, S and PN together", outer(gtpu(TEID, raw(u), flags=0x37, options=b"\0\7\5" + psc(QFI)[3:])), "forward", hop(u), counters=good)
    frame_case("ul-psc-8-octets", "container of two units", outer(gtpu(TEID, raw(u), flags=0x34, options=psc(QFI, extra=b"\1\2\3\4"))), "forward", hop(u), counters=good)
    two = b"\0\0\0\x40\1\x08\x68\x85" + bytes([1, 0x10, QFI, 0])
    frame_case("ul-two-extensions", "UDP Port extension, then the container", outer(gtpu(TEID, raw(u), flags=0x34, options=two)), "forward", hop(u), counters=good)
    many = b"\0\0\0\x40" + b"\1\0\0\x40" * 15
    frame_case("ul-16-extensions", "as many extension headers as are walked", outer(gtpu(TEID, raw(u), flags=0x34, options=many + b"\1\0\0\0")), "forward", hop(u), counters=good)
    frame_case("ul-17-extensions", "one extension header too many", outer(gtpu(TEID, raw(u), flags=0x34, options=many + b"\1\0\0\x40\1\0\0\0")), "gtpu_extensions")
    frame_case("ul-unknown-extension-required", "must be understood and is not", outer(gtpu(TEID, raw(u), flags=0x34, options=b"\0\0\0\xc1\1\0\0\0")), "gtpu_unknown_extension", told_extensions())
    frame_case("ul-unknown-extension-optional", "need not be understood", outer(gtpu(TEID, raw(u), flags=0x34, options=b"\0\0\0\x03\1\0\0\0")), "forward", hop(u), counters=good)
    frame_case("ul-extension-length-zero", "an extension header of no length", outer(gtpu(TEID, raw(u), flags=0x34, options=b"\0\0\0\x85\0\0\0\0")), "gtpu_malformed")
    frame_case("ul-extension-beyond-end", "an extension header longer than the message", outer(gtpu(TEID, raw(u), flags=0x34, options=b"\0\0\0\x85\xff\0\0\0")), "gtpu_malformed")
    from scapy.layers.inet import IPOption
    up_case("ul-outer-options", "outer IPv4 header with options", u, options=[IPOption(b"\x94\x04\0\0")])
    vlan = Ether(src=THEIRS[0], dst=OURS[0]) / Dot1Q(vlan=7)
    up_case("ul-vlan", "tagged frame", u, l2=vlan)
    up_case("ul-qinq", "twice tagged frame", u, l2=Ether(src=THEIRS[0], dst=OURS[0], type=0x88a8) / Dot1AD(vlan=8, type=0x8100) / Dot1Q(vlan=7))
    tiny = user(payload=b"")
    frame_case("ul-padding", "octets behind the IP packet are not the user's", Raw(raw(up(tiny)) + b"\xee" * 20), "forward", hop(tiny), counters=[(1, 1, len(tiny), 0)])
    frame_case("ul-version-2", "GTP version 2", outer(gtpu(TEID, raw(u), flags=0x50)), "gtpu_version")
    frame_case("ul-gtp-prime", "GTP' (PT 0)", outer(gtpu(TEID, raw(u), flags=0x20)), "gtpu_version")
    frame_case("ul-gtpu-length-long", "GTP-U length beyond the datagram", outer(gtpu(TEID, raw(u), length=len(u) + 1)), "gtpu_malformed")
    frame_case("ul-gtpu-length-short", "GTP-U length cuts the user's packet", outer(gtpu(TEID, raw(u), length=len(u) - 1)), "gtpu_inner")
    frame_case("ul-truncated-outer-ip", "frame ends inside the outer IP header", Raw(raw(up(u))[:30]), "truncated")
    frame_case("ul-truncated-udp", "frame ends inside UDP", Raw(raw(up(u))[:38]), "ip_malformed")
    frame_case("ul-truncated-inner", "outer lengths promise more than the frame has", Raw(raw(up(u))[:-1]), "ip_malformed")
    frame_case("ul-outer-no-gtpu", "UDP datagram too short for GTP-U", outer(b"\x30\xff\0\0"), "gtpu_malformed")
    frame_case("ul-outer-bad-header-length", "IHL of 4", up(u, ihl=4), "ip_malformed")
    frame_case("ul-udp-length-long", "UDP length beyond its IP packet", Ether(raw(up(u))[:38] + b"\xff\xff" + raw(up(u))[40:]), "udp_malformed")
    frame_case("ul-inner-not-ip", "user packet of version 5", outer(gtpu(TEID, b"\x55" + b"\0" * 39)), "gtpu_inner")
    frame_case("ul-inner-length", "inner length beyond the tunnel's", outer(gtpu(TEID, raw(user(len=400)))), "gtpu_inner")
    echo = outer(gtpu(0, b"", 1, 0x32, b"\x12\x34\0\0"), sport=40000)
    frame_case("echo-request", "answered to the port that asked, with its sequence number", echo, "answer", answer(echo, gtpu(0, b"", 2, 0x32, b"\x12\x34\0\0\x0e\0"), dport=40000))
    private = outer(gtpu(0, b"\xff\0\3\0\x09\1", 1, 0x32, b"\x12\x34\0\0"), sport=40000)
    frame_case("echo-request-private-extension", "what it has beside is not answered", private, "answer", answer(private, gtpu(0, b"", 2, 0x32, b"\x12\x34\0\0\x0e\0"), dport=40000))
    bare = outer(gtpu(0, b"", 1, 0x30))
    frame_case("echo-request-no-sequence", "sequence number zero in the answer", bare, "answer", answer(bare, gtpu(0, b"", 2, 0x32, b"\0\0\0\0\x0e\0")))
    stranger = up(u, teid=0x01000099)
    frame_case("error-indication", "no session has the TEID", stranger, "answer", error_indication(stranger, 0x01000099))
    old = up(u, teid=0x02000002)
    frame_case("error-indication-generation", "the slot is in use, by another generation", old, "answer", error_indication(old, 0x02000002))
    frame_case("end-marker", "is for a gNB, not for us", outer(gtpu(TEID, b"", 254)), "gtpu_message")
    for name, message, what in [
        ("error-indication-received", gtpu(0, struct.pack("!BI", 16, 0x10000001) + struct.pack("!BH", 133, 4) + bytes([10, 3, 0, 11]), 26, 0x32, b"\0\0\0\0"), "a gNB has no such tunnel: for the control plane"),
        ("echo-response", gtpu(0, b"\x0e\0", 2, 0x32, b"\0\7\0\0"), "the answer to an Echo Request of ours: for the control plane"),
    ]:
        told = outer(message)
        frame_case(name, what, told, "slow", slow(told.payload))
    up_case("ul-second-address", "another of our N3 addresses", u, dst=N3B)
    frame_case("ul-not-our-address", "GTP-U to somebody else is the kernel's", up(u, dst="10.3.0.9"), "pass")
    frame_case("ul-other-udp", "another UDP port is the kernel's", up(u, dport=53), "pass")
    frame_case("ul-arp", "ARP is the kernel's", Ether(src=THEIRS[0], dst="ff:ff:ff:ff:ff:ff") / ARP(psrc=GNB, pdst=N3), "pass")
    frame_case("ul-ssh", "TCP to our address is the kernel's", Ether(src=THEIRS[0], dst=OURS[0]) / IP(src=GNB, dst=N3) / TCP(dport=22), "pass")
    up_case("ul-bucket-teid", "a TEID chosen by the SMF, found by search", u, teid=0xdeadbeef, tables=plain(teid=0xdeadbeef))


def wrong_interface_cases():
    """GTP-U to our N3 addresses that comes in from the data network: XDP and DPDK pass it to the kernel, where no socket of ours has
    that port; sockets of the kernel are told by which interface it came (crates/tables/src/ingress.rs)."""
    u, l2 = user(), Ether(src=THEIRS[DOWN], dst=OURS[DOWN])
    ask = gtpu(0, b"", 1, 0x32, b"\x12\x34\0\0")
    answered = gtpu(0, b"\x0e\0", 2, 0x32, b"\0\7\0\0")

    def indication(peer):
        return gtpu(0, struct.pack("!BI", 16, RTEID) + struct.pack("!BH", 133, len(peer)) + peer, 26, 0x32, b"\0\0\0\0")

    g_pdu = gtpu(TEID, raw(u), flags=0x34, options=psc(QFI))
    stranger = gtpu(0x01000099, raw(u), flags=0x34, options=psc(QFI))
    gnb4, gnb6 = bytes(map(int, GNB.split("."))), inet_pton(AF_INET6, GNB_6)
    for name, what, of in [
        ("g-pdu", "a G-PDU of a tunnel that is there", lambda gnb: g_pdu),
        ("unknown-teid", "a G-PDU of no tunnel: no Error Indication", lambda gnb: stranger),
        ("echo-request", "an Echo Request: no answer", lambda gnb: ask),
        ("echo-response", "an Echo Response: a dead path stays dead", lambda gnb: answered),
        ("error-indication", "an Error Indication: nobody hears of it", indication),
        ("end-marker", "an End Marker", lambda gnb: gtpu(TEID, b"", 254)),
    ]:
        what += ", from the data network"
        spoofed, plainly = (outer(of(gnb4), src=src, l2=l2.copy()) for src in (GNB, HOST))
        case("wrong-interface-" + name, what, plain(), [(DOWN, spoofed, "pass", None), (DOWN, plainly, "pass", None), (UP, up(u), "forward", hop(u))],
             [(1, 1, len(u), 0), (2, 0, 0, 0)])
        case("wrong-interface-outer6-" + name, what + ", over IPv6", plain(),
             [(DOWN, outer6(of(gnb6), l2=l2.copy()), "pass", None), (UP, up6(u), "forward", hop(u))], [(1, 1, len(u), 0), (2, 0, 0, 0)], site=SITE6 + POOL6)
    big = user(payload=bytes(i & 255 for i in range(1400)))
    parts = fragment(outer(gtpu(TEID, raw(big), flags=0x34, options=psc(QFI)), id=7), fragsize=600)
    astray = [l2.copy() / part.payload for part in parts]
    case("wrong-interface-fragments", "fragments of a G-PDU from the data network, alone and between those of a gNB", plain(),
         [(DOWN, part, "pass", None) for part in astray]
         + [(UP, parts[0], "slow", []), (DOWN, astray[1], "pass", None), (DOWN, astray[2], "pass", None), (UP, parts[1], "slow", []), (UP, parts[2], "slow", slow(hop(big).payload))],
         [(1, 1, len(big), 0)])
    both = COMMON[COMMON.index("[[port]]"):COMMON.index("[[pool]]")].replace('"n6"', '"both"')
    case("several-roles", "on an interface that has tunnels too they come from a gNB", plain(), [(DOWN, outer(g_pdu, l2=l2.copy()), "forward", hop(u))],
         [(1, 1, len(u), 0)], site=both)


def outer_fragment_cases():
    """Fragments between gNB and UPF: put together by user space, whatever the order."""
    u = user(payload=bytes(i & 255 for i in range(1400)))
    parts = fragment(up(u, id=7), fragsize=600)
    assert len(parts) == 3
    whole = slow(hop(u).payload)

    def frames(order, fates):
        return [(UP, parts[i], "slow", fate) for i, fate in zip(order, fates)]

    good = [(1, 1, len(u), 0)]
    case("ul-outer-fragments", "a tunnel packet in three fragments", plain(), frames((0, 1, 2), ([], [], whole)), good)
    case("ul-outer-fragments-reversed", "the last fragment first", plain(), frames((2, 1, 0), ([], [], whole)), good)
    case("ul-outer-fragments-doubled", "fragments that the network doubled", plain(), frames((0, 0, 2, 2, 1), ([], [], [], [], whole)), good)
    overlap = fragment(up(u, id=7), fragsize=608)[1]
    overlap[IP].frag -= 1
    case("ul-outer-fragments-overlap", "fragments that overlap cost the packet (RFC 5722)", plain(),
         [(UP, f, "slow", []) for f in (parts[0], overlap, parts[1], parts[2])], [(1, 0, 0, 0)])
    mixed = fragment(up(u, id=8), fragsize=600)
    case("ul-outer-fragments-interleaved", "two packets whose fragments come in turn", plain(),
         [(UP, f, "slow", fate) for f, fate in ((parts[0], []), (mixed[0], []), (mixed[1], []), (parts[1], []), (parts[2], whole), (mixed[2], whole))],
         [(1, 2, 2 * len(u), 0)])
    tagged = fragment(up(u, id=7, l2=Ether(src=THEIRS[0], dst=OURS[0]) / Dot1Q(vlan=7)), fragsize=600)
    case("ul-outer-fragments-vlan", "fragments in tagged frames", plain(), [(UP, f, "slow", fate) for f, fate in zip(tagged, ([], [], whole))], good)
    stranger = up(u, teid=0x01000099, id=7)
    told = error_indication(stranger, 0x01000099).payload
    case("ul-outer-fragments-unknown-teid", "an Error Indication answers fragments too", plain(),
         [(UP, f, "slow", fate) for f, fate in zip(fragment(stranger, fragsize=600), ([], [], slow(told)))])
    other = outer(b"y" * 1400, dport=53, id=9)
    case("ul-outer-fragments-other-udp", "other UDP to us goes on to the kernel, whole", plain(),
         [(UP, f, "slow", fate) for f, fate in zip(fragment(other, fragsize=600), ([], [], slow(other.payload)))])


def rule_cases():
    u = user()
    both = [(1, 0, 0, 1)]
    up_case("ul-spoofed", "foreign source address", user(src="10.60.0.66"), "ue_spoofed", counters=both)
    up_case("ul-v6", "IPv6 in the tunnel", user6(), tables=plain(ue6="2001:db8:60::/64"))
    up_case("ul-v6-spoofed", "foreign IPv6 source", user6(src="2001:db8:61::5"), "ue_spoofed", tables=plain(ue6="2001:db8:60::/64"), counters=both)
    up_case("ul-v6-without", "an IPv4 session sends IPv6", user6(), "ue_spoofed", counters=both)
    case("dual-stack", "both families of one session", plain(ue6="2001:db8:60::/64"),
         [(UP, up(u), "forward", hop(u)), (UP, up(user6()), "forward", hop(user6())),
          (DOWN, net(user(HOST, UE)), "forward", tunnelled(user(HOST, UE))),
          (DOWN, net(user6(HOST6, UE6)), "forward", tunnelled(user6(HOST6, UE6)))],
         [(1, 2, len(u) + len(user6()), 0), (2, 2, len(u) + len(user6()), 0)])
    for ttl in (0, 1):
        dead, dead6 = user(ttl=ttl), user6(hlim=ttl)
        up_case("ul-ttl-%d" % ttl, "no hop left: the UE hears of it", dead, "ttl", [to_ue(time_exceeded(dead))], counters=both + [(2, 1, len(time_exceeded(dead)), 0)])
        up_case("ul-hop-limit-%d" % ttl, "no hop left, IPv6", dead6, "ttl", [to_ue(time_exceeded(dead6))], tables=plain(ue6="2001:db8:60::/64"), counters=both + [(2, 1, len(time_exceeded(dead6)), 0)])
    up_case("ul-ttl-2", "one hop left", user(ttl=2))
    up_case("ul-checksum-carry", "a checksum that wraps when the TTL changes", user(id=0xb8a6, ttl=64))
    up_case("ul-qfi-match", "QFI as the PDI asks", u, tables=plain(ul=dict(qfi=QFI)))
    up_case("ul-qfi-mismatch", "another QFI than the PDI asks", u, "qfi_mismatch", qfi=5, tables=plain(ul=dict(qfi=QFI)), counters=both)
    up_case("ul-qfi-missing", "no container where the PDI asks for a QFI", u, "qfi_mismatch", qfi=None, tables=plain(ul=dict(qfi=QFI)), counters=both)
    for action, reason in (("drop", "far_drop"), ("buffer", "far_buffer"), ("gate", "gate_closed"), ("quota", "quota"),
                           ("tunnel-gone", "tunnel_gone"), ("no-tunnel", "no_tunnel")):
        by_qos = lambda packet: [1, len(packet)] if action == "gate" else [0, 0]
        up_case("ul-" + action, "uplink: " + action, u, reason, tables=plain(ul=dict(action=action)), counters=[(1, 0, 0, 1, by_qos(u))])
        dl = dict(action=action, teid=None, peer=None, local=None)
        down_case("dl-" + action, "downlink: " + action, user(HOST, UE), reason, tables=plain(dl=dl), counters=[(2, 0, 0, 1, by_qos(user(HOST, UE)))])
    n = len(u)
    # 1 kbit/s: a packet lasts longer than the test; the burst takes two more.
    expect = [(UP, up(u), "forward", hop(u))] * 3 + [(UP, up(u), "rate", None)] * 2
    case("ul-mbr", "burst, then drop", plain(ul=dict(mbr_bps=1000, burst_bytes=n + n + n // 2)), expect, [(1, 3, 3 * n, 2, [2, 2 * n])])
    case("ul-mbr-zero", "MBR 0 lets nothing pass", plain(ul=dict(mbr_bps=0, burst_bytes=10000)), [(UP, up(u), "rate", None)], [(1, 0, 0, 1, [1, n])])
    case("no-qer-no-police", "a PDR without QER is not policed by its neighbour's", plain(dl=dict(mbr_bps=0, burst_bytes=1)),
         [(UP, up(u), "forward", hop(u))] * 20, [(1, 20, 20 * n, 0)])
    shared = session("[[session.meter]]\n" + lines(dict(qer=1, direction="uplink", bps=1000, burst_bytes=n + n // 2)),
                     uplink(1, shared=[0]), uplink(2, ue4=UE2, shared=[0]),
                     key(teid=TEID, one=0), key(teid=TEID + 1, one=1))
    u2 = user(src=UE2)
    case("shared-qer", "two PDRs spend from one bucket", shared,
         [(UP, up(u), "forward", hop(u)), (UP, up(u2, teid=TEID + 1), "forward", hop(u2)),
          (UP, up(u), "rate", None), (UP, up(u2, teid=TEID + 1), "rate", None)],
         [(1, 1, n, 1, [1, n]), (2, 1, n, 1, [1, n])])


    two = session("".join("[[session.meter]]\n" + lines(dict(qer=q, direction="uplink", bps=1000, burst_bytes=b)) for q, b in ((1, 2 * n + n // 2), (2, 1))),
                  uplink(1, shared=[0, 1]), uplink(2, ue4=UE2, shared=[0]), key(teid=TEID, one=0), key(teid=TEID + 1, one=1))
    case("shared-qer-gives-back", "what one bucket refuses spends nothing of the other", two,
         [(UP, up(u), "forward", hop(u))] + [(UP, up(u), "rate", None)] * 3 + [(UP, up(u2, teid=TEID + 1), "forward", hop(u2))] * 2 + [(UP, up(u2, teid=TEID + 1), "rate", None)],
         [(1, 1, n, 3, [3, 3 * n]), (2, 2, 2 * n, 1, [1, n])])


def mark_cases():
    """What the PDU Session Container says beside the QFI (TS 38.415, 5.5.2.1)."""
    d = user(HOST, UE)
    n = len(d)
    for name, what, dl, marks in (
            ("rqi", "Reflective QoS", dict(rqi=True), dict(RQI=1)),
            ("ppi", "Paging Policy Indicator: a second unit", dict(ppi=5), dict(PPP=1, PPI=5)),
            ("ppi-0", "a Paging Policy Indicator of 0 is one", dict(ppi=0), dict(PPP=1, PPI=0)),
            ("rqi-ppi", "both", dict(rqi=True, ppi=7), dict(RQI=1, PPP=1, PPI=7)),
            ("rqi-qfi-0", "QFI 0 is one too", dict(rqi=True, qfi=0), dict(qfi=0, RQI=1)),
            ("rqi-qfi-63", "the largest QFI", dict(rqi=True, ppi=1, qfi=63), dict(qfi=63, RQI=1, PPP=1, PPI=1))):
        case("dl-" + name, what, plain(dl=dl), [(DOWN, net(d), "forward", tunnelled(d, **marks))], [(2, 1, n, 0)])
    case("dl-marks-need-qfi", "no QFI, no container", plain(dl=dict(qfi=None, rqi=True, ppi=3)),
         [(DOWN, net(d), "forward", tunnelled(d, qfi=None))], [(2, 1, n, 0)])
    v6 = user6(HOST6, UE6)
    case("dl-v6-ppi", "IPv6 in a tunnel with two units", plain(dl=dict(ppi=2), ue6="2001:db8:60::/64"),
         [(DOWN, net(v6), "forward", tunnelled(v6, PPP=1, PPI=2))], [(2, 1, len(v6), 0)])
    fits, larger = user(HOST, UE, payload=b"x" * (1500 - 48 - 28)), user(HOST, UE, payload=b"x" * (1500 - 48 - 28 + 1))
    case("dl-ppi-mtu", "the second unit counts", plain(dl=dict(ppi=2)),
         [(DOWN, net(fits), "forward", tunnelled(fits, PPP=1, PPI=2)), (DOWN, net(larger), "slow", [slow(tunnelled(f, PPP=1, PPI=2).payload) for f in in_fragments(larger, 1500 - 48)])],
         [(2, 2, len(fits) + len(larger), 0)])
    peer = plain(dl=dict(peer="10.3.9.9", rqi=True, ppi=6))
    waiting = tunnelled(d, dst="10.3.9.9", RQI=1, PPP=1, PPI=6).payload
    case("dl-ppi-unresolved", "the slow path sends the same", peer, [(DOWN, net(d), "slow", slow(waiting))], [(2, 1, n, 0)])


def vlan_cases():
    """VLAN 7 behind N3, VLAN 8 behind N6."""
    site = nexthop("n3", UP, vlan=7) + nexthop("n6", DOWN, vlan=8) + route("0.0.0.0/0") + route("::/0")
    u, u6, d, d6 = user(), user6(), user(HOST, UE), user6(HOST6, UE6)

    def tagged(frame, vlan=7):
        return Ether(src=frame.src, dst=frame.dst) / Dot1Q(vlan=vlan) / frame.payload

    case("vlan-out", "frames leave with a tag, both ways and both families", plain(ue6="2001:db8:60::/64"),
         [(UP, up(u), "forward", tagged(hop(u), 8)), (UP, up(u6), "forward", tagged(hop(u6), 8)),
          (DOWN, net(d), "forward", tagged(tunnelled(d))), (DOWN, net(d6), "forward", tagged(tunnelled(d6)))],
         [(1, 2, len(u) + len(u6), 0), (2, 2, len(d) + len(d6), 0)], site=site)
    message = gtpu(TEID, psc(QFI) + raw(u), flags=0x34)
    on = tagged(relayed(gtpu(RTEID, psc(QFI) + raw(u), flags=0x34)))
    case("relay-vlan-out", "from tunnel to tunnel with a tag, whether they came with one or not", relaying(),
         [(UP, outer(message), "forward", on), (UP, tagged(outer(message)), "forward", on)], [(1, 2, 2 * len(u), 0)], site=site)
    large = user(payload=b"x" * 1430)
    case("relay-vlan-cut", "too long, in a tagged frame", relaying(),
         [(UP, tagged(up(large)), "slow", [slow(relayed(gtpu(RTEID, psc(QFI) + raw(f), flags=0x34)).payload) for f in in_fragments(large, 1456)])], [(1, 1, len(large), 0)])
    case("relay-vlan-unresolved", "in a tagged frame, to a peer whose neighbour the kernel must find", relaying(peer="10.3.9.9"),
         [(UP, tagged(up(u)), "slow", slow(relayed(gtpu(RTEID, psc(QFI) + raw(u), flags=0x34), dst="10.3.9.9").payload))], [(1, 1, len(u), 0)])


def dead_neighbour_cases():
    """Next hops that do not answer."""
    u, u6, d, d6 = user(), user6(), user(HOST, UE), user6(HOST6, UE6)
    site = nexthop("n3", UP, state="failed") + nexthop("n6", DOWN, state="failed") + route("0.0.0.0/0") + route("::/0")
    case("dead-neighbours", "a gateway and a gNB that do not answer", plain(ue6="2001:db8:60::/64"),
         [(port, frame, "neighbour_unresolved", None) for port, frame in ((UP, up(u)), (UP, up(u6)), (DOWN, net(d)), (DOWN, net(d6)))],
         [(1, 0, 0, 2), (2, 0, 0, 2)], site=site)
    message = gtpu(TEID, psc(QFI) + raw(u), flags=0x34)
    case("relay-dead-neighbour", "from tunnel to tunnel", relaying(), [(UP, outer(message), "neighbour_unresolved", None)], [(1, 0, 0, 1)], site=site)


def packet_rate_cases():
    """So many packets in each time unit (TS 29.244, 8.2.63); the cases last less than one."""
    u, u2 = user(), user(src=UE2)
    n = len(u)

    def rate(packets, **more):
        return "[[session.meter]]\n" + lines(dict(qer=1, direction="uplink", packets=packets, seconds=60, **more))

    def limited(packets, **more):
        return session(rate(packets), uplink(packet_meter=0, **more), key(teid=TEID, one=0))

    ok, no = (UP, up(u), "forward", hop(u)), (UP, up(u), "packet_rate", None)
    case("packet-rate", "three in a time unit", limited(3), [ok] * 3 + [no] * 2, [(1, 3, 3 * n, 2, [2, 2 * n])])
    case("packet-rate-zero", "none in a time unit", limited(0), [no], [(1, 0, 0, 1, [1, n])])
    case("packet-rate-shared", "two PDRs of one QER count together",
         session(rate(3), uplink(1, packet_meter=0), uplink(2, ue4=UE2, packet_meter=0), key(teid=TEID, one=0), key(teid=TEID + 1, one=1)),
         [ok, (UP, up(u2, teid=TEID + 1), "forward", hop(u2)), ok, (UP, up(u2, teid=TEID + 1), "packet_rate", None), no],
         [(1, 2, 2 * n, 1), (2, 1, n, 1)])
    # 1 kbit/s, two packets deep: the third is above the MBR, and not counted as one of the three.
    slow_down = (UP, up(u), "rate", None)
    case("packet-rate-and-mbr", "what the MBR refuses is no packet of the time unit", limited(3, mbr_bps=1000, burst_bytes=n + n // 2),
         [ok, ok, slow_down, slow_down], [(1, 2, 2 * n, 2, [2, 2 * n])])
    many = ("[[session.meter]]\n" + lines(dict(qer=2, direction="uplink", bps=1000, burst_bytes=2 * n + n // 2)) + rate(1))
    both = session(many, uplink(1, shared=[0], packet_meter=1), uplink(2, ue4=UE2, shared=[0]), key(teid=TEID, one=0), key(teid=TEID + 1, one=1))
    other = (UP, up(u2, teid=TEID + 1), "forward", hop(u2))
    case("packet-rate-gives-back", "a packet beyond the packet rate spends nothing of the MBR", both,
         [ok, no, no, no, other, other, (UP, up(u2, teid=TEID + 1), "rate", None)], [(1, 1, n, 3, [3, 3 * n]), (2, 2, 2 * n, 1, [1, n])])


def filter_case(name, what, filters, packets, counters):
    """Three uplink PDRs; filters: of PDR 1 and 2; PDR 3 takes what is left, by dropping it."""
    rules = [dict(entry=e, **f) for e, f in filters]
    tables = session(uplink(1, ue4=None), uplink(2, ue4=None, action="gate"), key(teid=TEID, list=rules))
    case(name, what, tables, packets, counters)


def sdf_cases():
    def go(packet, verdict):
        return (UP, up(packet), verdict, hop(packet) if verdict == "forward" else None)

    u, t = user(), user(proto=TCP)
    n = len(u)
    filter_case("sdf-proto", "protocol decides", [(0, dict(proto=17)), (1, dict(proto=6))],
                [go(u, "forward"), go(t, "gate_closed"), go(IP(src=UE, dst=HOST) / ICMP(), "no_pdr")], [(1, 1, n, 0), (2, 0, 0, 1)])
    filter_case("sdf-ports", "port ranges, both ends inclusive", [(0, dict(dst_ports=[80, 90])), (1, dict(src_ports=[1000, 1000]))],
                [go(user(dport=p), v) for p, v in ((80, "forward"), (90, "forward"), (79, "gate_closed"), (91, "gate_closed"))] + [go(user(sport=1001, dport=91), "no_pdr")],
                [(1, 2, 2 * n, 0), (2, 0, 0, 2)])
    filter_case("sdf-mask", "destination prefix", [(0, dict(dst="192.0.2.0/25")), (1, dict(dst="192.0.2.0/24"))],
                [go(user(dst="192.0.2.127"), "forward"), go(user(dst="192.0.2.128"), "gate_closed"), go(user(dst="192.0.3.1"), "no_pdr")],
                [(1, 1, n, 0), (2, 0, 0, 1)])
    v6 = user6(dst="2001:db8:f::1")
    filter_case("sdf-v6", "IPv6 prefix; IPv4 does not match it", [(0, dict(dst="2001:db8:f::/64"))],
                [go(v6, "forward"), go(user6(dst="2001:db8:f:1::1"), "no_pdr"), go(u, "no_pdr")], [(1, 1, len(v6), 0)])
    filter_case("sdf-order", "the first match decides", [(1, dict(dst_ports=[80, 80])), (0, dict())],
                [go(u, "gate_closed"), go(user(dport=81), "forward")], [(1, 1, n, 0), (2, 0, 0, 1)])
    first = IP(src=UE, dst=HOST, proto=17, flags="MF", id=5) / Raw(raw(UDP(sport=1000, dport=80, len=80, chksum=1)) + b"x" * 40)
    later = IP(src=UE, dst=HOST, proto=17, frag=6, id=5) / Raw(struct.pack("!HH", 1000, 80) + b"x" * 36)
    ports = [(0, dict(dst_ports=[80, 80])), (1, dict(proto=17))]
    parts = [first, IP(src=UE, dst=HOST, proto=17, flags="MF", frag=6, id=5) / Raw(b"y" * 8), IP(src=UE, dst=HOST, proto=17, frag=7, id=5) / Raw(b"z" * 7)]
    size = sum(len(part) for part in parts)

    def part(packet, *out):
        return (UP, up(packet), "slow", [slow(hop(p).payload) for p in out])

    filter_case("sdf-fragments", "later fragments have no ports, and follow the first", ports, [part(p, p) for p in parts], [(1, 3, size, 0), (2, 0, 0, 0)])
    filter_case("sdf-fragments-reversed", "they wait for the first", ports, [part(parts[2]), part(parts[1]), part(first, first, parts[2], parts[1])], [(1, 3, size, 0), (2, 0, 0, 0)])
    filter_case("sdf-fragments-doubled", "what the network doubled is doubled", ports, [part(later), part(first, first, later), part(later, later)], [(1, 3, len(first) + 2 * len(later), 0)])
    filter_case("sdf-fragments-alone", "the first one never comes", ports, [part(later)], [(1, 0, 0, 0), (2, 0, 0, 0)])
    stranger = later.copy()
    stranger.id = 6
    filter_case("sdf-fragments-other", "each packet has a first fragment of its own", ports, [part(first, first), part(stranger)], [(1, 1, len(first), 0), (2, 0, 0, 0)])
    other = IP(src=UE, dst=HOST, proto=17, flags="MF", id=5) / Raw(raw(UDP(sport=1000, dport=81, len=80, chksum=1)) + b"x" * 40)
    filter_case("sdf-fragments-gate", "a closed gate stops all of them", ports, [part(other), part(later)],
                [(1, 0, 0, 0), (2, 0, 0, 2, [2, len(other) + len(later)])])
    filter_case("sdf-fragments-no-ports", "where no filter asks for ports they are as any packet", [(0, dict(proto=17))],
                [go(first, "forward"), go(later, "forward")], [(1, 2, len(first) + len(later), 0)])
    inbound = [IP(src=HOST, dst=UE, proto=17, flags="MF", id=7) / Raw(raw(UDP(sport=80, dport=1000, len=80, chksum=1)) + b"x" * 40),
               IP(src=HOST, dst=UE, proto=17, frag=6, id=7) / Raw(b"y" * 9)]
    case("sdf-fragments-down", "to a UE, into the tunnel of the PDR that takes the first", session(
        downlink(1), downlink(2, action="gate", teid=None, peer=None, local=None), key(ue4=UE, list=[dict(entry=0, src_ports=[80, 80]), dict(entry=1)])),
        [(DOWN, net(inbound[1]), "slow", []), (DOWN, net(inbound[0]), "slow", [slow(tunnelled(p).payload) for p in inbound])],
        [(1, 2, sum(len(p) for p in inbound), 0), (2, 0, 0, 0)])
    for_all = [IPv6(src=UE6, dst=HOST6, nh=44) / IPv6ExtHdrFragment(m=1, nh=17, id=9) / Raw(raw(UDP(sport=1000, dport=80, len=80, chksum=1)) + b"x" * 40),
               IPv6(src=UE6, dst=HOST6, nh=44) / IPv6ExtHdrFragment(offset=6, nh=17, id=9) / Raw(b"y" * 9)]
    filter_case("sdf-fragments-v6", "of IPv6, the later one first", ports, [part(for_all[1]), part(for_all[0], *for_all)], [(1, 2, sum(len(p) for p in for_all), 0), (2, 0, 0, 0)])
    frag6 = IPv6(src=UE6, dst=HOST6, nh=44) / IPv6ExtHdrFragment(offset=6, nh=17, id=9) / Raw(struct.pack("!HH", 1000, 80) + b"x" * 36)
    filter_case("sdf-fragments-v6-no-ports", "where no filter asks for ports they are as any packet", [(0, dict(proto=17))],
                [go(frag6, "forward")], [(1, 1, len(frag6), 0)])
    ef = user(tos=0xb8)
    filter_case("sdf-tos-ignored-bits", "a DSCP matches whatever the ECN bits are", [(0, dict(tos=[0xb8, 0xfc])), (1, dict(tos=[0xba, 0xff]))],
                [go(ef, "forward"), go(user(tos=0xbb), "forward"), go(user(tos=0xbc), "no_pdr")], [(1, 2, 2 * n, 0), (2, 0, 0, 0)])
    tc = user6(tc=0xb8)
    filter_case("sdf-traffic-class", "the Traffic Class of IPv6", [(0, dict(tos=[0xb8, 0xff]))],
                [go(tc, "forward"), go(user6(tc=0xb9), "no_pdr")], [(1, 1, len(tc), 0)])
    label = user6(fl=0xabcde)
    filter_case("sdf-flow-label", "the flow label of IPv6; IPv4 has none", [(0, dict(label=0xabcde)), (1, dict(label=0))],
                [go(label, "forward"), go(user6(fl=0xabcdf), "no_pdr"), go(user6(), "gate_closed"), go(u, "no_pdr")], [(1, 1, len(label), 0), (2, 0, 0, 1)])
    esp = IP(src=UE, dst=HOST) / ESP(spi=0xdeadbeef, seq=1, data=b"z" * 32)
    esp6 = IPv6(src=UE6, dst=HOST6) / ESP(spi=0xdeadbeef, seq=1, data=b"z" * 32)
    ah = IP(src=UE, dst=HOST) / AH(spi=0xdeadbeef, seq=1, icv=b"i" * 12, nh=17) / UDP(sport=1000, dport=80)
    ah6 = IPv6(src=UE6, dst=HOST6) / AH(spi=0xdeadbeef, seq=1, icv=b"i" * 12, nh=17) / UDP(sport=1000, dport=80)
    filter_case("sdf-spi", "the SPI of ESP and AH, in both families", [(0, dict(spi=0xdeadbeef)), (1, dict(proto=50))],
                [go(p, "forward") for p in (esp, esp6, ah, ah6)] +
                [go(IP(src=UE, dst=HOST) / ESP(spi=7, seq=1, data=b"z" * 32), "gate_closed"), go(u, "no_pdr")],
                [(1, 4, sum(map(len, (esp, esp6, ah, ah6))), 0), (2, 0, 0, 1)])
    spi_fragment = IP(src=UE, dst=HOST, proto=50, frag=6, id=5) / Raw(struct.pack("!II", 0xdeadbeef, 1) + b"z" * 32)
    filter_case("sdf-spi-fragment", "a later fragment has no SPI", [(0, dict(spi=0xdeadbeef))], [go(spi_fragment, "no_pdr")], [(1, 0, 0, 0)])
    several = [(0, dict(qfis=[1, 9])), (1, dict(qfis=[2, 63]))]
    filter_case("ul-several-qfis-in-one-pdi", "any of the QFIs of the PDI", several,
                [(UP, up(u, qfi=q), v, hop(u) if v == "forward" else None)
                 for q, v in ((1, "forward"), (9, "forward"), (2, "gate_closed"), (63, "gate_closed"), (3, "qfi_mismatch"), (None, "qfi_mismatch"))],
                [(1, 2, 2 * n, 0), (2, 0, 0, 2)])
    ping = IP(src=UE, dst=HOST) / ICMP()
    ping6 = IPv6(src=UE6, dst=HOST6) / ICMPv6EchoRequest()
    filter_case("sdf-icmp-never-matched", "a protocol without ports", [(0, dict(proto=1)), (1, dict(proto=58, dst="2001:db8:f::/48"))],
                [go(ping, "forward"), go(ping6, "gate_closed"), go(u, "no_pdr")], [(1, 1, len(ping), 0), (2, 0, 0, 1)])
    filter_case("sdf-icmp-no-ports", "a filter with ports is not for protocols without", [(0, dict(dst_ports=[0, 65535]))],
                [go(ping, "no_pdr"), go(u, "forward")], [(1, 1, n, 0)])
    own = "2001:db8:60::5/128"
    filter_case("sdf-v6-exact", "IPv6 hosts at both ends, to the last bit", [(0, dict(src=own, dst="2001:db8:f::1/128")), (1, dict(src=own, dst="2001:db8:f::/127"))],
                [go(user6(), "forward"), go(user6(dst="2001:db8:f::"), "gate_closed"), go(user6(dst="2001:db8:f::2"), "no_pdr"),
                 go(user6(src="2001:db8:60::4"), "no_pdr")], [(1, 1, len(v6), 0), (2, 0, 0, 1)])
    filter_case("sdf-v6-short-prefix", "an IPv6 prefix shorter than a word", [(0, dict(dst="2001:d00::/24"))],
                [go(v6, "forward"), go(user6(dst="2001:e00::1"), "no_pdr")], [(1, 1, len(v6), 0)])
    many = [(0, dict(proto=17, dst_ports=[10000 + i, 10000 + i])) for i in range(63)] + [(1, dict())]
    filter_case("sdf-64-filters", "as many filters as are tried: the last one decides", many,
                [go(u, "gate_closed"), go(user(dport=10062), "forward")], [(1, 1, n, 0), (2, 0, 0, 1)])
    options = [PadN(optdata=b"\0" * 4)]
    behind = IPv6(src=UE6, dst=HOST6) / IPv6ExtHdrHopByHop(options=options) / IPv6ExtHdrDestOpt(options=options) / UDP(sport=1000, dport=80) / Raw(b"x" * 40)
    filter_case("sdf-v6-extensions", "ports behind extension headers of IPv6", [(0, dict(proto=17, dst_ports=[80, 80])), (1, dict())],
                [go(behind, "forward")], [(1, 1, len(behind), 0), (2, 0, 0, 0)])
    marked_first = lambda *rules: session(uplink(1, qfi=QFI), uplink(2, action="gate"), key(teid=TEID, list=list(rules)))
    web = dict(entry=0, dst_ports=[80, 80])
    case("sdf-qfi-then-next", "the QFI of a PDI decides, too: without it the next PDR is tried", marked_first(web, dict(entry=1)),
         [go(u, "forward"), (UP, up(u, qfi=None), "gate_closed", None), (UP, up(u, qfi=5), "gate_closed", None)], [(1, 1, n, 0), (2, 0, 0, 2)])
    case("sdf-qfi-then-none", "it is told from a flow that no PDR has", marked_first(web),
         [go(u, "forward"), (UP, up(u, qfi=5), "qfi_mismatch", None), go(user(dport=81), "no_pdr")], [(1, 1, n, 0)])
    filter_case("sdf-none-matches", "filters fill a place to the last rule, and none matches", many[:4],
                [go(u, "no_pdr"), go(user(dport=10003), "forward")], [(1, 1, n, 0)])


def downlink_cases():
    d = user(HOST, UE)
    down_case("dl-v4", "into the tunnel with the QFI", d)
    down_case("dl-no-qfi", "no QER marks: no container", d, tables=plain(dl=dict(qfi=None)), qfi=None)
    down_case("dl-v6", "IPv6, by its /64", user6(HOST6, UE6), tables=plain(ue6="2001:db8:60::/64"))
    for name, packet in (("esp", IP(src=HOST, dst=UE) / ESP(spi=7, seq=1, data=b"z" * 32)),
                         ("gre", IP(src=HOST, dst=UE) / GRE() / IP() / ICMP()),
                         ("sctp", IP(src=HOST, dst=UE) / SCTP(sport=5, dport=6)),
                         ("icmp", IP(src=HOST, dst=UE) / ICMP()),
                         ("udp-2152", user(HOST, UE, sport=2152, dport=2152))):
        down_case("dl-" + name, name + " is a user's packet like any other", packet)
    case("dl-odd-length", "a packet of odd length, padded to 60 octets", plain(),
         [(DOWN, Raw(raw(net(IP(src=HOST, dst=UE) / Raw(b"abc"))) + b"\0" * 23), "forward", tunnelled(IP(src=HOST, dst=UE) / Raw(b"abc")))], [(2, 1, 23, 0)])
    flow = [dict(entry=0, proto=17, src="172.23.0.23/32", src_ports=[5201, 5201]), dict(entry=1)]
    up_flow = [dict(entry=2, proto=17, dst="172.23.0.23/32", dst_ports=[5201, 5201]), dict(entry=3)]
    added = session(downlink(4, qfi=7), downlink(2), uplink(3), uplink(1), key(ue4=UE, list=flow), key(teid=TEID, list=up_flow), before=2)
    app, back = user("172.23.0.23", UE, sport=5201), user(UE, "172.23.0.23", dport=5201)
    case("flow-added-later-does-not-arrive", "a flow that was added with an SDF filter alone, both ways", plain() + added,
         [(DOWN, net(app), "forward", tunnelled(app)), (UP, up(back), "forward", hop(back)),
          (DOWN, net(app), "forward", tunnelled(app, qfi=7)), (UP, up(back), "forward", hop(back)), (DOWN, net(d), "forward", tunnelled(d))],
         [(1, 1, len(back), 0), (2, 2, len(app) + len(d), 0), (3, 1, len(back), 0), (4, 1, len(app), 0)])
    frame_case("dl-arp", "ARP is the kernel's", Ether(src=THEIRS[1], dst="ff:ff:ff:ff:ff:ff") / ARP(psrc="10.6.0.2", pdst=ROUTER), "pass", port=DOWN)
    far = user(HOST, "10.61.0.1")
    down_case("dl-outside-pools", "a UE whose address is in no pool", far,
              tables=session(uplink(ue4="10.61.0.1"), downlink(), key(teid=TEID, one=0), key(ue4="10.61.0.1", one=1)))
    down_case("dl-unknown-ue", "in the pool, but nobody's", user(HOST, "10.60.7.7"), "unknown_ue")
    down_case("dl-not-ours", "no UE's address is the kernel's", user(HOST, "10.99.0.1"), "pass")
    down_case("dl-v6-unknown-ue", "in a pool of IPv6, but no session has it", user6(HOST6, "2001:db8:61:7::1"), "unknown_ue",
              tables=POOL6 + plain(ue6="2001:db8:60::/64"))
    down_case("dl-v6-not-ours", "nor is a foreign prefix", user6(HOST6, "2001:db8:99::1"), "pass")
    for ttl in (0, 1):
        dead = user(HOST, UE, ttl=ttl)
        down_case("dl-ttl-%d" % ttl, "no hop left: the sender hears of it", dead, "ttl", [slow(time_exceeded(dead))], counters=[(2, 0, 0, 1)])
    fits = user(HOST, UE, payload=b"x" * (1500 - 44 - 28))
    down_case("dl-mtu-fits", "as large as the way allows", fits)
    down_case("dl-v4-truncated", "IP length beyond the frame", user(HOST, UE, len=900), "ip_malformed")
    frame = Ether(src=THEIRS[1], dst=OURS[1]) / Dot1Q(vlan=5) / d
    frame_case("dl-vlan", "tagged frame from the data network", frame, "forward", tunnelled(d), counters=[(2, 1, len(d), 0)], port=DOWN)
    peer = plain(dl=dict(peer="10.3.9.9"))
    waiting = tunnelled(d, dst="10.3.9.9").payload
    down_case("dl-unresolved-peer", "a gNB whose neighbour the kernel must find", d, "slow", slow(waiting), tables=peer)
    a, b = tunnelled(d), tunnelled(d, teid=0x55667788, dst=GNB2)
    case("path-switch", "handover: TEID and gNB change together", plain() + plain(dl=dict(teid=0x55667788, peer=GNB2), before=1),
         [(DOWN, net(d), "forward", a), (DOWN, net(d), "forward", b)], [(2, 2, 2 * len(d), 0)])
    idle = dict(action="buffer", teid=None, peer=None, local=None)
    case("idle-and-back", "BUFF while the UE is idle, forwarding afterwards", plain() + plain(dl=idle, before=1) + plain(before=2),
         [(DOWN, net(d), "forward", a), (DOWN, net(d), "far_buffer", None), (DOWN, net(d), "forward", a)], [(2, 2, 2 * len(d), 1)])


HOLD = "hold = 8\n"


def buffering_cases():
    """FARs with BUFF (TS 29.244, 5.2.4) where somebody keeps packets: they leave as they came, before newer ones."""
    numbered = [user(HOST, UE, payload=bytes([i]) * 36) for i in range(5)]
    a, b, c, e, f = numbered
    n, t = len(a), tunnelled
    none = dict(teid=None, peer=None, local=None)
    idle, there = dict(action="buffer", **none), dict(teid=0x55667788, peer=GNB2)

    def held(name, what, tables, packets, counters, site=HOLD):
        case("held-" + name, what, tables, packets, counters, site=site)

    def waits(packet, left=()):
        return (DOWN, net(packet), "held", list(left))

    held("and-back", "packets wait while the UE is idle, and leave before newer ones when it is back", plain(dl=idle) + plain(before=2),
         [waits(a), waits(b), waits(c, map(t, (a, b, c))), (DOWN, net(e), "forward", t(e))], [(2, 4, 4 * n, 0)])
    held("and-back-elsewhere", "the UE is back at another gNB", plain(dl=idle) + plain(dl=there, before=1),
         [waits(a), waits(b, [t(p, teid=0x55667788, dst=GNB2) for p in (a, b)])], [(2, 2, 2 * n, 0)])
    held("idle-again", "two idle periods", plain(dl=idle) + plain(before=1) + plain(dl=idle, before=2) + plain(before=4),
         [waits(a), waits(b, [t(a), t(b)]), waits(c), waits(e), waits(f, [t(c), t(e), t(f)])], [(2, 5, 5 * n, 0)])
    held("too-many", "no more wait than may, and a UE that is back loses none", plain(dl=idle) + plain(before=3),
         [waits(a), waits(b), (DOWN, net(c), "buffer_full", None), waits(e, [t(a), t(b), t(e)])], [(2, 3, 3 * n, 1)], site="hold = 2\n")
    held("and-dropped", "the FAR drops in the end", plain(dl=idle) + plain(dl=dict(action="drop", **none), before=1),
         [waits(a), (DOWN, net(b), "far_drop", None)], [(2, 0, 0, 2)])
    held("mbr", "an MBR holds for what has waited", plain(dl=idle) + plain(dl=dict(mbr_bps=1000, burst_bytes=n + n // 2), before=2),
         [waits(a), waits(b), waits(c, map(t, (a, b))), (DOWN, net(e), "rate", None)], [(2, 2, 2 * n, 2, [2, 2 * n])])
    held("gate", "a gate closes while they wait", plain(dl=idle) + plain(dl=dict(action="gate", **none), before=1),
         [waits(a), (DOWN, net(b), "gate_closed", None)], [(2, 0, 0, 2, [2, 2 * n])])
    held("nobody-keeps-any", "nobody keeps packets: they drop, and nothing waits behind them", plain(dl=idle) + plain(dl=there, before=1) + plain(before=2),
         [(DOWN, net(a), "far_buffer", None), (DOWN, net(b), "forward", t(b, teid=0x55667788, dst=GNB2)), (DOWN, net(c), "forward", t(c))],
         [(2, 2, 2 * n, 1)], site="")
    six, a6 = "2001:db8:60::/64", user6(HOST6, UE6)
    held("v6", "of IPv6", plain(dl=idle, ue6=six) + plain(before=1, ue6=six), [waits(a6), waits(a6, [t(a6), t(a6)])], [(2, 2, 2 * len(a6), 0)])
    tagged = Ether(src=THEIRS[1], dst=OURS[1]) / Dot1Q(vlan=5) / a
    held("vlan", "in a tagged frame", plain(dl=idle) + plain(before=1), [(DOWN, tagged, "held", []), waits(b, [t(a), t(b)])], [(2, 2, 2 * n, 0)])
    long = user(HOST, UE, payload=bytes(i & 0xff for i in range(1400)))
    held("long", "longer than small records", plain(dl=idle) + plain(before=1), [waits(long), waits(a, [t(long), t(a)])], [(2, 2, len(long) + n, 0)])
    large, firm = user(HOST, UE, payload=b"x" * 1430), user(HOST, UE, payload=b"x" * 1430, flags="DF")
    held("cut", "too long for the tunnel: in fragments, in its turn", plain(dl=idle) + plain(before=1),
         [waits(large), waits(a, [to_ue(part) for part in in_fragments(large, 1456)] + [t(a)])], [(2, 2, len(large) + n, 0)])
    held("too-long", "too long for the tunnel, and not to be cut: the sender hears of it", plain(dl=idle) + plain(before=1),
         [waits(firm), waits(a, [slow(too_long(firm, 1456)), t(a)])], [(2, 1, n, 1)])
    u, v = user(), user(dport=81)
    held("uplink", "of a FAR towards the data network", plain(ul=dict(action="buffer")) + plain(before=1),
         [(UP, up(u), "held", []), (UP, up(v), "held", [hop(u), hop(v)])], [(1, 2, 2 * len(u), 0)])


def ue_to_ue_cases():
    """Two UEs of one network instance; the sender's PDR is 1, the receiver's 4."""
    other, other6, r2 = TEID + 1, "2001:db8:60:1::5", 0x55667788
    six, six2 = "2001:db8:60::/64", "2001:db8:60:1::/64"

    def two(dl2=None, keys=None, ul=None):
        return session(uplink(1, ue6=six, **(ul or {})), downlink(2), uplink(3, ue4=UE2, ue6=six2),
                       downlink(4, **dict(dict(teid=r2, peer=GNB2, qfi=5), **(dl2 or {}))),
                       key(teid=TEID, one=0), key(ue4=UE, one=1), key(ue6="2001:db8:60::", one=1),
                       key(teid=other, one=2), *(keys or [key(ue4=UE2, one=3)]), key(ue6="2001:db8:60:1::", one=3))

    there, back = user(dst=UE2), user(src=UE2, dst=UE)
    there6 = user6(dst=other6)
    case("ue-to-ue", "from tunnel to tunnel, both ways and both families", two(),
         [(UP, up(there), "forward", tunnelled(there, teid=r2, qfi=5, dst=GNB2)),
          (UP, up(back, teid=other), "forward", tunnelled(back)),
          (UP, up(there6), "forward", tunnelled(there6, teid=r2, qfi=5, dst=GNB2))],
         [(1, 2, len(there) + len(there6), 0), (4, 2, len(there) + len(there6), 0), (3, 1, len(back), 0), (2, 1, len(back), 0)])
    case("ue-to-ue-off", "UEs are kept apart", two(),
         [(UP, up(there), "ue_to_ue", None), (UP, up(there6), "ue_to_ue", None), (UP, up(user()), "forward", hop(user()))],
         [(1, 1, len(user()), 2), (4, 0, 0, 0)], site="ue_to_ue = false\n")
    case("ue-to-ue-gate", "the receiver's gate is closed", two(dict(action="gate", teid=None, peer=None, local=None)),
         [(UP, up(there), "gate_closed", None)], [(1, 1, len(there), 0, [0, 0]), (4, 0, 0, 1, [1, len(there)])])
    n = len(there)
    case("ue-to-ue-mbr", "the receiver's MBR holds for it", two(dict(mbr_bps=1000, burst_bytes=n + n // 2)),
         [(UP, up(there), "forward", tunnelled(there, teid=r2, qfi=5, dst=GNB2))] * 2 + [(UP, up(there), "rate", None)], [(1, 3, 3 * n, 0, [0, 0]), (4, 2, 2 * n, 1, [1, n])])
    case("ue-to-ue-udp", "the receiver is reached in UDP alone", two(PLAIN_UDP),
         [(UP, up(there), "forward", in_udp(there))], [(1, 1, n, 0), (4, 1, n, 0)])
    idle = dict(action="buffer", teid=None, peer=None, local=None)
    back_again = two().replace("[[session]]\n", "[[session]]\nbefore = 1\n", 1)
    case("held-ue-to-ue", "the receiver is idle: its packets wait, the sender's PDR is done with them", two(idle) + back_again,
         [(UP, up(there), "held", []), (UP, up(there), "held", [tunnelled(there, teid=r2, qfi=5, dst=GNB2)] * 2)], [(1, 2, 2 * n, 0), (4, 2, 2 * n, 0)], site=HOLD)
    first, second, third = (user(dst=UE2, payload=bytes([i]) * 36) for i in range(3))
    then = [two(*rules).replace("[[session]]\n", f"[[session]]\nbefore = {at}\n", 1) for at, rules in ((1, (idle,)), (2, ()))]
    case("held-ue-to-ue-twice", "it waits for the sender's FAR, then for the receiver's: of the frame the user's packet alone",
         two(idle, ul=dict(action="buffer")) + "".join(then),
         [(UP, up(first), "held", []), (UP, up(second), "held", []),
          (UP, up(third), "held", [tunnelled(p, teid=r2, qfi=5, dst=GNB2) for p in (first, second, third)])],
         [(1, 3, 3 * len(first), 0), (4, 3, 3 * len(first), 0)], site=HOLD)
    nobody = user(dst="10.60.7.7")
    case("ue-to-ue-nobody", "in the pool, but nobody's: no loop over N6", two(), [(UP, up(nobody), "unknown_ue", None)], [(1, 0, 0, 1)])
    case("ue-to-ue-nobody-v6", "nor with IPv6", POOL6 + two(), [(UP, up(user6(dst="2001:db8:60:7::1")), "unknown_ue", None), (UP, up(user6(dst="2001:db8:62::1")), "forward", hop(user6(dst="2001:db8:62::1")))],
         [(1, 1, len(user6()), 1)])
    case("ue-to-ue-filters", "the receiver's filters choose its PDR", two(keys=[key(ue4=UE2, list=[dict(entry=1, src_ports=[7, 7]), dict(entry=3, src_ports=[1000, 1000])])]),
         [(UP, up(there), "forward", tunnelled(there, teid=r2, qfi=5, dst=GNB2)), (UP, up(user(dst=UE2, sport=8)), "no_pdr", None)],
         [(1, 2, 2 * n, 0), (2, 0, 0, 0), (4, 1, n, 0)])
    dead = user(dst=UE2, ttl=1)
    case("ue-to-ue-ttl", "it is one hop", two(), [(UP, up(dead), "ttl", [to_ue(time_exceeded(dead))])], [(1, 0, 0, 1), (4, 0, 0, 0), (2, 1, len(time_exceeded(dead)), 0)])
    large = user(dst=UE2, payload=b"x" * 1430, flags="DF")
    case("ue-to-ue-too-long", "it does not fit the other's tunnel: the sender hears of it in its own", two(),
         [(UP, up(large), "mtu", [to_ue(too_long(large, 1456))])], [(1, 1, len(large), 0), (4, 0, 0, 1), (2, 1, len(too_long(large, 1456)), 0)])


def icmp_cases():
    """Packets that are too long: cut, or their sender hears of it."""
    six = "2001:db8:60::/64"
    large, firm = user(payload=b"x" * 1500), user(payload=b"x" * 1500, flags="DF")
    lost = [(1, 0, 0, 1)]

    def told(error):
        return lost + [(2, 1, len(error), 0)]

    up_case("ul-cut", "larger than the way out: in fragments", large, "slow", [slow(hop(f).payload) for f in in_fragments(large, 1500)])
    up_case("ul-too-long", "larger than the way out, and must not be cut", firm, "mtu", [to_ue(too_long(firm, 1500))], counters=told(too_long(firm, 1500)))
    far, far_firm = user(dst="203.0.113.129", payload=b"x" * 1500), user(dst="203.0.113.129", payload=b"x" * 1500, flags="DF")
    up_case("ul-cut-unresolved", "so it is where the kernel must find the neighbour", far, "slow", [slow(hop(f).payload) for f in in_fragments(far, 1500)])
    up_case("ul-too-long-unresolved", "and its sender hears of it", far_firm, "mtu", [to_ue(too_long(far_firm, 1500))], counters=told(too_long(far_firm, 1500)))
    up_case("ul-too-long-no-qfi", "the answer is marked as the UE's downlink is", firm, "mtu", [to_ue(too_long(firm, 1500), qfi=None)],
            tables=plain(dl=dict(qfi=None)), counters=told(too_long(firm, 1500)))
    up_case("ul-too-long-gate", "its downlink gate is closed: it hears nothing", firm, "mtu", [], tables=plain(dl=dict(action="gate", teid=None, peer=None, local=None)), counters=lost + [(2, 0, 0, 1)])
    six_long = user6(payload=b"x" * 1453)
    up_case("ul-v6-too-long", "IPv6 is never cut", six_long, "mtu", [to_ue(too_long(six_long, 1500))], tables=plain(ue6=six), counters=told(too_long(six_long, 1500)))
    from scapy.layers.inet import IPOption
    options = [IPOption(b"\x94\x04\0\0"), IPOption(b"\x07\x07\x04\0\0\0\0"), IPOption(b"\0")]
    optional = user(HOST, UE, payload=b"x" * 2000, options=options)
    parts = in_fragments(optional, 1456)
    for part in parts[1:]:
        part.options = [IPOption(b"\x94\x04\0\0")] + [IPOption(b"\x01")] * 7 + [IPOption(b"\0")]
    down_case("dl-cut-options", "options that are not to be copied stay with the first fragment", optional, "slow", [to_ue(f) for f in parts])

    large, firm = user(HOST, UE, payload=b"x" * 1430), user(HOST, UE, payload=b"x" * 1430, flags="DF")
    dead = [(2, 0, 0, 1)]
    down_case("dl-cut", "larger than the tunnel's way allows: in fragments", large, "slow", [to_ue(f) for f in in_fragments(large, 1456)])
    down_case("dl-cut-last", "the last fragment of a packet, cut again", user(HOST, UE, payload=b"x" * 1430, frag=300), "slow", [to_ue(f) for f in in_fragments(user(HOST, UE, payload=b"x" * 1430, frag=300), 1456)])
    marking = [0xb8, 0xfc]
    case("dl-cut-marked", "each fragment's tunnel header is marked", plain(dl=dict(marking=marking)),
         [(DOWN, net(large), "slow", [slow(marked(tunnelled(f), *marking).payload) for f in in_fragments(large, 1456)])], [(2, 1, len(large), 0)])
    down_case("dl-too-long", "larger than the tunnel's way allows, and must not be cut", firm, "mtu", [slow(too_long(firm, 1456))], counters=dead)
    six_long = user6(HOST6, UE6, payload=b"x" * 1430)
    down_case("dl-v6-too-long", "IPv6 is never cut", six_long, "mtu", [slow(too_long(six_long, 1456))], tables=plain(ue6=six), counters=dead)
    # RFC 1812, 4.3.2.7; RFC 4443, 2.4e.
    error = IP(src=HOST, dst=UE, ttl=1) / ICMP(type=3, code=1) / Raw(raw(user()))
    down_case("icmp-not-about-errors", "nothing is said about an ICMP error", error, "ttl", [], counters=dead)
    error6 = IPv6(src=HOST6, dst=UE6, hlim=1) / ICMPv6DestUnreach() / Raw(raw(user6()))
    down_case("icmp-not-about-errors-v6", "nor about an ICMPv6 error", error6, "ttl", [], tables=plain(ue6=six), counters=dead)
    down_case("icmp-not-about-later-fragments", "nor about a later fragment", user(HOST, UE, ttl=1, frag=100), "ttl", [], counters=dead)
    down_case("icmp-not-to-many", "nor to more than one host", user("224.0.0.5", UE, ttl=1), "ttl", [], counters=dead)
    up_case("icmp-not-about-multicast", "nor about a packet to more than one host", user(dst="224.0.0.251", ttl=1), "ttl", [], counters=lost)
    echo = IP(src=HOST, dst=UE, ttl=1) / ICMP(id=7, seq=1) / Raw(b"x" * 20)
    down_case("icmp-about-echo", "but about an echo", echo, "ttl", [slow(time_exceeded(echo))], counters=dead)


def policy_cases():
    """FAR 1 names a forwarding policy (TS 29.244, 8.2.23), whose way leads out of the other port; the UE of PDR 3 has none."""
    six, six2, r2, other = "2001:db8:60::/64", "2001:db8:60:1::/64", 0x55667788, TEID + 1
    two = session(uplink(1, ue6=six, action="steer"), downlink(2), uplink(3, ue4=UE2, ue6=six2), downlink(4, teid=r2, peer=GNB2, qfi=5),
                  key(teid=TEID, one=0), key(ue4=UE, one=1), key(ue6="2001:db8:60::", one=1),
                  key(teid=other, one=2), key(ue4=UE2, one=3), key(ue6="2001:db8:60:1::", one=3))

    def steering(*routes):
        hops = nexthop("n3", UP) + nexthop("n6", DOWN) + nexthop("edge", UP) + "".join(
            "[[nexthop]]\n" + lines(dict(name=state, state=state)) for state in ("local", "closed"))
        return hops + route("0.0.0.0/0") + route("::/0") + "".join(
            "[[policy_route]]\n" + lines(dict(prefix=prefix, nexthop=to)) for prefix, to in routes)

    u, u6, plain_u, there, to_self = user(), user6(), user(src=UE2), user(dst=UE2), user(dst="203.0.113.1")
    there6, nobody, n = user6(dst="2001:db8:60:1::5"), user(dst="10.60.9.9"), len(user())
    case("policy", "the way of a policy, but to UEs and to us; without one, the routes", two,
         [(UP, up(u), "forward", hop(u, UP)), (UP, up(u6), "forward", hop(u6, UP)), (UP, up(plain_u, teid=other), "forward", hop(plain_u)),
          (UP, up(there), "forward", tunnelled(there, teid=r2, qfi=5, dst=GNB2)), (UP, up(there6), "forward", tunnelled(there6, teid=r2, qfi=5, dst=GNB2)),
          (UP, up(nobody), "unknown_ue", None), (UP, up(to_self), "to_self", None), (DOWN, net(user(HOST, UE)), "forward", tunnelled(user(HOST, UE)))],
         [(1, 4, 2 * n + len(u6) + len(there6), 2), (3, 1, n, 0), (4, 2, n + len(there6), 0), (2, 1, n, 0)],
         site=steering(("203.0.113.0/26", "local"), ("0.0.0.0/0", "edge"), ("::/0", "edge")))
    closed = [(UP, up(p), "forwarding_policy", None) for p in (u, u6)]
    case("policy-closed", "no way, and no fallback: named, but to UEs and without a policy", two,
         closed + [(UP, up(plain_u, teid=other), "forward", hop(plain_u)), (UP, up(there), "forward", tunnelled(there, teid=r2, qfi=5, dst=GNB2))],
         [(1, 1, n, 2), (3, 1, n, 0), (4, 1, n, 0)], site=steering(("0.0.0.0/0", "closed"), ("::/0", "closed")))
    expired = user(ttl=1)
    case("policy-ttl", "a hop that runs out is told as without a policy", two, [(UP, up(expired), "ttl", [to_ue(time_exceeded(expired))])],
         [(1, 0, 0, 1), (2, 1, len(time_exceeded(expired)), 0)], site=steering(("0.0.0.0/0", "edge")))


def router_cases():
    """A UE asks for its router (RFC 4861); the UPF answers, unless the SMF's PDRs take the question."""
    six, link_local, router = "2001:db8:60::/64", "fe80::77", "fe80::1"
    says = "router = { lifetime_s = 65535 }\n"
    ask = IPv6(src=link_local, dst="ff02::2", hlim=255) / ICMPv6ND_RS()

    def advertised(*options, dst=link_local, src=router, prefix="2001:db8:60::", lifetime=65535):
        ra = IPv6(src=src, dst=dst, hlim=255) / ICMPv6ND_RA(chlim=64, M=0, O=0, prf=0, routerlifetime=lifetime)
        ra /= ICMPv6NDOptPrefixInfo(prefixlen=64, L=0, A=1, R=0, validlifetime=0xffffffff, preferredlifetime=0xffffffff, prefix=prefix)
        for option in options:
            ra /= option
        return ra

    def sent(ra, **more):
        """tunnelled() has a hop spent; the router's own packets have none."""
        inner = raw(ra)
        return slow(Ether(raw(tunnelled(ra, **more))[:-len(inner)] + inner).payload)

    def asked(name, what, packet, ra, tables=None, site=says, verdict="slow", counters=None, frame=None, **tunnel):
        out = [sent(ra, **tunnel)] if ra is not None else []
        if counters is None:
            counters = [(1, 0, 0, 0), (2, 1, len(ra), 0)] if ra is not None else [(1, 0, 0, 0), (2, 0, 0, 0)]
        case("router-" + name, what, tables or plain(ue6=six), [(UP, frame or up(packet), verdict, out)], counters, site=site)

    asked("solicitation", "a UE gets its prefix, in the tunnel and with the QFI of its downlink", ask, advertised())
    asked("solicitation-no-qfi", "without a QFI in the downlink there is none", ask, advertised(), tables=plain(ue6=six, dl=dict(qfi=None)), qfi=None)
    asked("solicitation-unspecified", "from a UE without an address: to all nodes", IPv6(src="::", dst="ff02::2", hlim=255) / ICMPv6ND_RS(), advertised(dst="ff02::1"))
    asked("solicitation-link-layer", "with the option that Ethernet hosts send", ask / ICMPv6NDOptSrcLLAddr(lladdr="02:00:00:00:00:77"), advertised())
    asked("solicitation-same-address", "the UE has the address that the router would have", IPv6(src=router, dst="ff02::2", hlim=255) / ICMPv6ND_RS(), advertised(dst=router, src="fe80::2"))
    asked("solicitation-options", "MTU and name servers, as configured", ask,
          advertised(ICMPv6NDOptMTU(mtu=1400), ICMPv6NDOptRDNSS(lifetime=1800, dns=["2001:db8::53", "2001:db8::54"]), lifetime=1800),
          site='router = { lifetime_s = 1800, mtu = 1400, dns = ["2001:db8::53", "2001:db8::54"] }\n')
    asked("solicitation-off", "switched off", ask, None, site="")
    asked("solicitation-hop-limit", "it has crossed a router", IPv6(src=link_local, dst="ff02::2", hlim=254) / ICMPv6ND_RS(), None)
    asked("solicitation-checksum", "a checksum that is wrong", IPv6(src=link_local, dst="ff02::2", hlim=255) / ICMPv6ND_RS(cksum=1), None)
    asked("solicitation-long-prefix", "no /64 to give", ask, None, tables=plain(ue6="2001:db8:60::/80"))
    listed = session(uplink(1, ue6=six), downlink(2), key(teid=TEID, list=[dict(entry=0, proto=17)]), key(ue4=UE, one=1), key(ue6="2001:db8:60::", one=1))
    asked("solicitation-filters", "no filter takes it", ask, advertised(), tables=listed)
    asked("solicitation-gate", "its downlink gate is closed", ask, None, tables=plain(ue6=six, dl=dict(action="gate", teid=None, peer=None, local=None)), counters=[(1, 0, 0, 0), (2, 0, 0, 1)])
    smf = session(entry(1, "uplink", **dict(RELAYED, relay=dict(src6=six))), downlink(2), key(teid=TEID, one=0), key(ue4=UE, one=1))
    case("router-solicitation-smf", "a PDR leads it to the SMF", smf, [(UP, up(ask), "forward", relayed(gtpu(RTEID, psc(QFI) + raw(ask), flags=0x34)))], [(1, 1, len(ask), 0)], site=says)
    neighbour = IPv6(src=link_local, dst="ff02::1:ff00:1", hlim=255) / ICMPv6ND_NS(tgt=router)
    asked("neighbour-solicitation", "UEs have no neighbours", neighbour, None, verdict="ue_spoofed", counters=[(1, 0, 0, 1), (2, 0, 0, 0)])
    over6 = up6(ask)
    to6 = dict(peer=GNB_6, local=N3_6)
    message = gtpu(RTEID, psc(QFI, 0) + raw(advertised()), flags=0x34)
    ip6 = udp6(message, N3_6, GNB_6)
    ip6.fl = (RTEID * 2654435761 & 0xffffffff) >> 12
    case("router-solicitation-outer6", "over a tunnel with IPv6, with its UDP checksum", plain(ue6=six, dl=to6), [(UP, over6, "slow", [slow(ip6)])], [(2, 1, len(advertised()), 0)], site=says + SITE6)


def framed_cases():
    """Networks behind a UE (TS 29.244, 5.16): the longest prefix decides, also against the addresses of UEs."""
    behind, behind6 = "198.51.100.7", "2001:db8:70::7"
    nets = ["198.51.100.0/24", "2001:db8:70::/44"]
    r2 = 0x55667788

    def framed(*keys, ul=None, dl=None, nets=nets, before=None):
        return session(uplink(**dict(dict(framed=True), **(ul or {}))), downlink(**(dl or {})),
                       entry(3, "downlink", action="tunnel", teid=r2, peer=GNB2, local=N3, qfi=QFI),
                       key(teid=TEID, one=0), key(ue4=UE, one=1), *keys, framed=nets, before=before)

    def other(packet):
        return tunnelled(packet, teid=r2, dst=GNB2)

    both = framed(*(key(prefix=net, one=1) for net in nets))
    d, d6, u, u6 = user(HOST, behind), user6(HOST6, behind6), user(behind), user6(behind6)
    case("framed-down", "to a host behind the UE", both,
         [(DOWN, net(d), "forward", tunnelled(d)), (DOWN, net(d6), "forward", tunnelled(d6)),
          (DOWN, net(user(HOST, UE)), "forward", tunnelled(user(HOST, UE)))], [(2, 3, len(d) + len(d6) + len(user()), 0)])
    case("framed-down-beside", "one address beyond is not ours", both,
         [(DOWN, net(p), "pass", None) for p in (user(HOST, "198.51.101.0"), user(HOST, "198.51.99.255"), user6(HOST6, "2001:db8:80::"), user6(HOST6, "2001:db8:6f::"))],
         [(2, 0, 0, 0)])
    case("framed-up", "from a host behind the UE", both,
         [(UP, up(u), "forward", hop(u)), (UP, up(u6), "forward", hop(u6)), (UP, up(user()), "forward", hop(user()))],
         [(1, 3, len(u) + len(u6) + len(user()), 0)])
    spoofed = [user("198.51.101.7"), user6("2001:db8:80::7"), user6(UE6), user("10.60.0.3")]
    case("framed-up-spoofed", "from elsewhere", both, [(UP, up(p), "ue_spoofed", None) for p in spoofed], [(1, 0, 0, 4)])
    many = ["198.51.%d.0/24" % n for n in range(9)]
    case("framed-up-many", "nine networks take three places", framed(nets=many),
         [(UP, up(user("198.51.%d.9" % n)), "forward", hop(user("198.51.%d.9" % n))) for n in (0, 3, 4, 8)]
         + [(UP, up(user("198.51.9.9")), "ue_spoofed", None)], [(1, 4, 4 * len(user()), 1)])
    nested = framed(key(prefix="10.0.0.0/8", one=2), key(prefix="10.60.7.0/24", one=1), key(prefix="10.60.7.128/25", one=2), key(prefix="10.60.7.200/31", one=1))
    at = lambda addr: user(HOST, addr)
    case("framed-longest", "of prefixes within each other, one in the pool, the longest", nested,
         [(DOWN, net(at("10.60.7.201")), "forward", tunnelled(at("10.60.7.201"))), (DOWN, net(at("10.60.7.202")), "forward", other(at("10.60.7.202"))),
          (DOWN, net(at("10.60.7.127")), "forward", tunnelled(at("10.60.7.127"))), (DOWN, net(at("10.60.8.1")), "forward", other(at("10.60.8.1"))),
          (DOWN, net(at("10.9.9.9")), "forward", other(at("10.9.9.9"))), (DOWN, net(at(UE)), "forward", tunnelled(at(UE))), (DOWN, net(at("11.0.0.1")), "pass", None)])
    case("framed-pool-nobody", "what is in the pool and behind no UE is still nobody's", framed(key(prefix="10.60.7.0/24", one=1)),
         [(DOWN, net(at("10.60.8.1")), "unknown_ue", None), (DOWN, net(at("10.60.7.1")), "forward", tunnelled(at("10.60.7.1")))])
    lengths = ["2001:db8::/33", "2001:db8:60::/48", "2001:db8:60::/64", "2001:db8:60:0:8000::/65", "2001:db8:60:0:8000::1:0/112", "2001:db8:60:0:8000::1:1/128"]
    nested6 = framed(*(key(prefix=net, one=1 + n % 2) for n, net in enumerate(lengths)))
    at6 = lambda addr: user6(HOST6, addr)
    ends = ["2001:db8:7fff::1", "2001:db8:60:1::1", "2001:db8:60::1", "2001:db8:60:0:8000::1", "2001:db8:60:0:8000::1:2", "2001:db8:60:0:8000::1:1"]
    case("framed-longest-v6", "shorter and longer than a UE's /64", nested6,
         [(DOWN, net(at6(end)), "forward", [tunnelled, other][n % 2](at6(end))) for n, end in enumerate(ends)] + [(DOWN, net(at6("2001:db8:8000::1")), "pass", None)])
    there = user(dst=behind)
    case("framed-ue-to-ue", "from a UE to a host behind another", session(
        uplink(1), downlink(2), uplink(3, ue4=UE2, framed=True), downlink(4, teid=r2, peer=GNB2, qfi=5), key(teid=TEID, one=0), key(ue4=UE, one=1),
        key(teid=TEID + 1, one=2), key(ue4=UE2, one=3), key(prefix=nets[0], one=3), framed=nets),
        [(UP, up(there), "forward", tunnelled(there, teid=r2, qfi=5, dst=GNB2)), (UP, up(user(behind, UE), teid=TEID + 1), "forward", tunnelled(user(behind, UE)))],
        [(1, 1, len(there), 0), (4, 1, len(there), 0), (3, 1, len(there), 0), (2, 1, len(there), 0)])
    case("framed-filters", "service data flows of a host behind the UE", framed(key(prefix=nets[0], list=[dict(entry=2, src_ports=[1000, 1000]), dict(entry=1, dst=nets[0])])),
         [(DOWN, net(d), "forward", other(d)), (DOWN, net(user(HOST, behind, sport=7)), "forward", tunnelled(user(HOST, behind, sport=7)))])
    relay = session(entry(1, "downlink", **dict(RELAYED, relay=dict(dst4=UE), framed=True)), key(teid=TEID, one=0), framed=nets)
    case("framed-relay", "in a tunnel from N9, asked for the destination", relay,
         [(UP, up(d), "forward", relayed(gtpu(RTEID, psc(QFI) + raw(d), flags=0x34))), (UP, up(user(HOST, "198.51.101.7")), "ue_spoofed", None)], [(1, 1, len(d), 1)])
    case("framed-taken-back", "routes of a session change", both + framed(before=1) + framed(key(prefix="198.51.100.0/25", one=1), nets=["198.51.100.0/25"], before=2),
         [(DOWN, net(d), "forward", tunnelled(d)), (DOWN, net(d), "pass", None), (DOWN, net(d), "forward", tunnelled(d)),
          (UP, up(user("198.51.100.200")), "ue_spoofed", None), (UP, up(u), "forward", hop(u))])


def prefix_cases():
    """UEs whose IPv6 prefix is no /64 (TS 29.244, 8.2.62: IPv6D, IP6PL)."""
    for length, prefix, inside, outside in [
            (48, "2001:db8:60::", ["2001:db8:60::1", "2001:db8:60:ffff::9"], ["2001:db8:61::1", "2001:db8:5f:ffff::1"]),
            (56, "2001:db8:60:100::", ["2001:db8:60:1ff::1", "2001:db8:60:100::"], ["2001:db8:60:200::", "2001:db8:60:ff::1"]),
            (65, "2001:db8:60:0:8000::", ["2001:db8:60:0:8000::1", "2001:db8:60:0:ffff::"], ["2001:db8:60:0:7fff::", "2001:db8:60:1:8000::"]),
            (128, "2001:db8:60::7", ["2001:db8:60::7"], ["2001:db8:60::6", "2001:db8:60::8", "2001:db8:60:1::7"])]:
        net_ = "%s/%d" % (prefix, length)
        tables = session(uplink(ue4=None, ue6=net_), downlink(), key(teid=TEID, one=0), key(prefix=net_, one=1))
        down, up_ = [user6(HOST6, a) for a in inside], [user6(a) for a in inside]
        case("ue-prefix-%d" % length, "a UE with a /%d" % length, POOL6 + tables,
             [(DOWN, net(p), "forward", tunnelled(p)) for p in down] + [(UP, up(p), "forward", hop(p)) for p in up_]
             + [(DOWN, net(user6(HOST6, a)), "unknown_ue" if a.startswith(("2001:db8:60:", "2001:db8:61:")) else "pass", None) for a in outside]
             + [(UP, up(user6(a)), "ue_spoofed", None) for a in outside],
             [(1, len(up_), sum(map(len, up_)), len(outside)), (2, len(down), sum(map(len, down)), 0)])


def duplicate_cases():
    """FARs with DUPL (TS 29.244, 5.2.3): what user space sends follows the packet itself."""
    sink, sink6 = "10.8.0.1", "2001:db8:8::1"
    to = lambda teid=0x31, **more: dict(dict(teid=teid, peer=sink, local=N3), **more)

    def copied(packet, teid=0x31, src=N3, dst=sink, tos=0, port=None):
        inner = raw(packet)
        udp = UDP(sport=port or 2152, dport=port or 2152, chksum=0) / Raw(inner if port else gtpu(teid, inner))
        return slow(IP(src=src, dst=dst, id=0, flags="DF", ttl=64, tos=tos) / udp)

    def copied6(packet, teid=0x31, tc=0):
        ip = udp6(gtpu(teid, raw(packet)), N3_6, sink6)
        ip.fl, ip.tc = (teid * 2654435761 & 0xffffffff) >> 12, tc
        return slow(ip)

    u, d = user(), user(HOST, UE)
    up1, down1 = plain(ul=dict(duplicates=[to()])), plain(dl=dict(duplicates=[to()]))
    case("duplicate-up", "as it is forwarded, one hop on", up1, [(UP, up(u), "forward", [hop(u), copied(hop(u).payload)])], [(1, 1, len(u), 0)])
    case("duplicate-down", "without the container of the tunnel", down1,
         [(DOWN, net(d), "forward", [tunnelled(d), copied(hop(d).payload)])], [(2, 1, len(d), 0)])
    case("duplicate-drop", "dropped here, as it came there", plain(ul=dict(action="drop", ue4=UE, duplicates=[to()])),
         [(UP, up(u), "far_drop", [copied(u)])], [(1, 0, 0, 1)])
    case("duplicate-buffer", "the same of a FAR that buffers", plain(dl=dict(action="buffer", teid=None, peer=None, local=None, duplicates=[to()])),
         [(DOWN, net(d), "far_buffer", [copied(d)])], [(2, 0, 0, 1)])
    waiting = plain(dl=dict(action="buffer", teid=None, peer=None, local=None, duplicates=[to()])) + plain(dl=dict(duplicates=[to()]), before=1)
    case("held-duplicate", "duplicates of packets that wait leave when these come, and once", waiting,
         [(DOWN, net(d), "held", [copied(d)]), (DOWN, net(d), "held", [copied(d), tunnelled(d), tunnelled(d)])], [(2, 2, 2 * len(d), 0)], site=HOLD)
    ef = [0xb8, 0xfc]
    four = [to(1), to(2, marking=ef), dict(port=4000, peer=sink, local=N3), dict(teid=4, peer=sink6, local=N3_6, marking=ef)]
    case("duplicate-four", "to four places: marked, in UDP alone, over IPv6", plain(ul=dict(duplicates=four)),
         [(UP, up(u), "forward", [hop(u), copied(hop(u).payload, 1), copied(hop(u).payload, 2, tos=0xb8), copied(hop(u).payload, port=4000), copied6(hop(u).payload, 4, 0xb8)])])
    odd = user(payload=b"y" * 41)
    over6 = plain(ul=dict(duplicates=[dict(teid=7, peer=sink6, local=N3_6)]))
    case("duplicate-v6-odd", "the checksum of an odd number of octets", over6, [(UP, up(odd), "forward", [hop(odd), copied6(hop(odd).payload, 7)])])
    long_packet = user(payload=bytes(i & 0xff for i in range(1400)))
    case("duplicate-long", "longer than small records", up1, [(UP, up(long_packet), "forward", [hop(long_packet), copied(hop(long_packet).payload)])])
    u6 = user6()
    case("duplicate-ipv6-user", "a user's IPv6", plain(ul=dict(duplicates=[to()]), ue6="2001:db8:60::/64"),
         [(UP, up(u6), "forward", [hop(u6), copied(hop(u6).payload)])])
    case("duplicate-not", "what a condition or a gate stops is no FAR's", plain(ul=dict(duplicates=[to()]), dl=dict(action="gate", duplicates=[to()], teid=None, peer=None, local=None)),
         [(UP, up(user("10.60.0.9")), "ue_spoofed", None), (DOWN, net(d), "gate_closed", None)], [(1, 0, 0, 1), (2, 0, 0, 1)])
    relay = session(entry(1, "uplink", **dict(RELAYED, relay={}, duplicates=[to()])), key(teid=TEID, one=0))
    onward = user(ttl=1)
    case("duplicate-relay", "from tunnel to tunnel, TTL and all", relay,
         [(UP, up(onward), "forward", [relayed(gtpu(RTEID, psc(QFI) + raw(onward), flags=0x34)), copied(onward)])], [(1, 1, len(onward), 0)])
    both = session(uplink(1, duplicates=[to(1)]), downlink(2), uplink(3, ue4=UE2), downlink(4, peer=GNB2, teid=0x55667788, qfi=5, duplicates=[to(2)]),
                   key(teid=TEID, one=0), key(ue4=UE, one=1), key(teid=TEID + 1, one=2), key(ue4=UE2, one=3))
    there = user(dst=UE2)
    case("duplicate-ue-to-ue", "for the sender and for the receiver", both,
         [(UP, up(there), "forward", [tunnelled(there, teid=0x55667788, qfi=5, dst=GNB2), copied(hop(there).payload, 1), copied(hop(there).payload, 2)])])
    case("duplicate-comes-and-goes", "DUPL of a live session", plain() + plain(ul=dict(duplicates=[to()]), before=1) + plain(ul=dict(duplicates=[to(9)]), before=2) + plain(before=3),
         [(UP, up(u), "forward", hop(u)), (UP, up(u), "forward", [hop(u), copied(hop(u).payload)]), (UP, up(u), "forward", [hop(u), copied(hop(u).payload, 9)]), (UP, up(u), "forward", hop(u))],
         [(1, 4, 4 * len(u), 0)])


def route_cases():
    both = [(1, 0, 0, 1)]
    up_case("route-local", "users must not reach us", user(dst="203.0.113.1"), "to_self", counters=both)
    up_case("route-prohibit", "a prohibited destination", user(dst="203.0.113.65"), "prohibited", counters=both)
    waiting = user(dst="203.0.113.129")
    up_case("route-unresolved", "the kernel must find the neighbour", waiting, "slow", slow(hop(waiting).payload))
    case("route-none", "no route at all", plain(), [(UP, up(user()), "no_route", None)], both, site="route = []\n")
    up_case("route-loopback", "127/8 never leaves", user(dst="127.0.0.1"), "to_self", counters=both)
    up_case("route-multicast", "multicast is not routed", user(dst="224.0.0.1"), "no_route", counters=both)

    up_case("route-down", "a route whose link has no carrier", user(), "no_route", counters=both,
            site=nexthop("n3", UP) + "[[nexthop]]\n" + lines(dict(name="down", state="none")) + route("0.0.0.0/0", "down"))
    there, beside = user(), user(dst="192.0.2.2")
    case("route-onlink", "the destination is the neighbour: one that is known, one that the kernel must find", plain(),
         [(UP, up(there), "forward", hop(there)), (UP, up(beside), "slow", slow(hop(beside).payload))], [(1, 2, 2 * len(there), 0)],
         site=nexthop("n3", UP) + nexthop("host", DOWN) + "[[nexthop]]\n" + lines(dict(name="link", state="onlink", port=DOWN, ifindex=7))
         + "[[neighbour]]\n" + lines(dict(addr=HOST, nexthop="host")) + route("192.0.2.0/24", "link"))
    gateway, taken, nobody = user(dst="10.60.0.254"), user(dst=UE2), user(dst="10.60.7.7")
    two = session(uplink(), downlink(), downlink(4, teid=0x55667788), key(teid=TEID, one=0), key(ue4=UE, one=1), key(ue4=UE2, one=2))
    case("gateway-in-pool", "a router on N6 with an address of the pool and a route of its own; sessions come first", two,
         [(UP, up(gateway), "forward", hop(gateway)), (UP, up(taken), "forward", tunnelled(taken, teid=0x55667788)), (UP, up(nobody), "unknown_ue", None),
          (DOWN, net(user(HOST, "10.60.0.254")), "pass", None), (DOWN, net(user(HOST, "10.60.7.7")), "unknown_ue", None)],
         [(1, 2, len(gateway) + len(taken), 1), (4, 1, len(taken), 0)],
         site=route("10.60.0.254/32") + route(UE2 + "/32", "prohibit") + route("10.60.0.0/16") + ROUTES)
    gateway, nobody = user6(dst="2001:db8:60:7::1"), user6(dst="2001:db8:60:8::1")
    case("gateway-in-pool-v6", "the same with IPv6", plain(ue6="2001:db8:60::/64"),
         [(UP, up(gateway), "forward", hop(gateway)), (UP, up(nobody), "unknown_ue", None),
          (DOWN, net(user6(HOST6, "2001:db8:60:7::1")), "pass", None), (DOWN, net(user6(HOST6, "2001:db8:60:8::1")), "unknown_ue", None)],
         [(1, 1, len(gateway), 1)], site=POOL6 + route("2001:db8:60:7::1/128") + route("2001:db8:60::/48") + ROUTES)


RELAYED = dict(action="tunnel", teid=RTEID, peer=GNB2, local=N3, qfi=None)


def relaying(direction="uplink", relay=None, **more):
    """A session of one PDR from tunnel to tunnel."""
    return session(entry(1, direction, **dict(RELAYED, relay=relay or {}, **more)), key(teid=TEID, one=0))


def relayed(message, dst=GNB2):
    """Out of our address with fresh outer headers; message is the GTP-U as it must be."""
    return (Ether(src=OURS[0], dst=THEIRS[0]) / IP(src=N3, dst=dst, id=0, flags="DF", ttl=64)
            / UDP(sport=2152, dport=2152, chksum=0) / Raw(message))


def relay_case(name, what, sent, left, tables=None, verdict="forward", counters=None, told=None, **more):
    """sent: GTP-U flags and what follows the TEID, for our TEID; left: the same towards the next."""
    n = len(user())
    frame = outer(gtpu(TEID, sent[1], flags=sent[0]), **more)
    out = told or left and relayed(gtpu(RTEID, left[1], flags=left[0]))
    good = [(1, 1, n, 0)] if verdict == "forward" else [(1, 0, 0, 1)]
    case(name, what, tables or relaying(), [(UP, frame, verdict, out)], good if counters is None else counters)


def in_udp(packet, port=4000, dst=GNB2, **ip):
    """In UDP alone, one hop less to live: both ports are that of the other end."""
    return (Ether(src=OURS[0], dst=THEIRS[0]) / IP(src=N3, dst=dst, id=0, flags="DF", ttl=64, **ip)
            / UDP(sport=port, dport=port, chksum=0) / Raw(raw(hop(packet).payload)))


def in_udp6(packet, port=4000):
    ip = udp6(raw(hop(packet).payload), dst=GNB2_6, sport=port, dport=port)
    ip.fl = (port << 16) * 2654435761 % 2**32 >> 12  # the port stands where a tunnel has the upper half of its TEID
    return Ether(src=OURS[0], dst=THEIRS[0]) / ip


PLAIN_UDP = dict(action="udp", port=4000, peer=GNB2, local=N3, teid=None, qfi=None)


def udp_cases():
    """Outer headers of UDP without GTP-U (TS 29.244, 8.2.56)."""
    u, d = user(), user(HOST, UE)
    n = len(u)
    up_udp = plain(ul=dict(PLAIN_UDP, ue4=None, relay=dict(src4=UE)))
    down_udp = plain(dl=PLAIN_UDP)
    up_case("udp-up", "GTP-U goes, UDP comes, and a hop is spent", u, out=in_udp(u), tables=up_udp)
    up_case("udp-up-no-psc", "without a container", u, out=in_udp(u), tables=up_udp, qfi=None)
    up_case("udp-up-spoofed", "what the PDI asks holds", user("10.60.0.66"), "ue_spoofed", tables=up_udp, counters=[(1, 0, 0, 1)])
    up_case("udp-up-ttl", "the last hop", user(ttl=1), "ttl", [slow(tunnelled(time_exceeded(user(ttl=1))).payload)], tables=up_udp,
            counters=[(1, 0, 0, 1), (2, 1, len(time_exceeded(user(ttl=1))), 0)])
    down_case("udp-down", "from N6", d, out=in_udp(d), tables=down_udp)
    down_case("udp-down-marked", "the outer header gets the DSCP", d, out=in_udp(d, tos=46 << 2), tables=plain(dl=dict(PLAIN_UDP, marking=[46 << 2, 0xfc])))
    six = dict(PLAIN_UDP, peer=GNB2_6, local=N3_6)
    site = SITE6
    odd = user(HOST, UE, payload=b"x" * 41)
    for name, packet in (("udp-v6", d), ("udp-v6-odd", odd)):
        case(name, "over IPv6, with a checksum also where tunnels have none", plain(dl=six), [(DOWN, net(packet), "forward", in_udp6(packet))],
             [(2, 1, len(packet), 0)], site="udp6_checksum = false\n" + site)
    large, firm = user(HOST, UE, payload=b"x" * 1500), user(HOST, UE, payload=b"x" * 1500, flags="DF")
    down_case("udp-cut", "in fragments, each in UDP", large, "slow", [slow(in_udp(f).payload) for f in in_fragments(large, 1472)], tables=down_udp)
    down_case("udp-too-long", "and its sender hears of it", firm, "mtu", [slow(too_long(firm, 1472))], tables=down_udp, counters=[(2, 0, 0, 1)])
    longest = user(HOST, UE, payload=b"x" * (1472 - 28))
    down_case("udp-fits", "as large as the way allows", longest, out=in_udp(longest), tables=down_udp)
    down_case("udp-unresolved", "a neighbour that the kernel must find", d, "slow", [slow(in_udp(d, dst="10.3.9.9").payload)], tables=plain(dl=dict(PLAIN_UDP, peer="10.3.9.9")))
    case("udp-end-marker", "is for ends of tunnels", up_udp, [(UP, outer(gtpu(TEID, b"", 254)), "gtpu_message", None)], [(1, 0, 0, 0)])
    case("udp-comes-and-goes", "from GTP-U to UDP and back", plain() + plain(dl=PLAIN_UDP, before=1) + plain(before=2),
         [(DOWN, net(d), "forward", tunnelled(d)), (DOWN, net(d), "forward", in_udp(d)), (DOWN, net(d), "forward", tunnelled(d))], [(2, 3, 3 * n, 0)])


TEID2 = 0x01000003


def relay_pair(up=None, down=None):
    """A session between two UPFs: TEID leads to the next UPF, TEID2 to the gNB."""
    return session(entry(1, "uplink", **dict(dict(RELAYED, relay={}), **(up or {}))),
                   entry(2, "downlink", **dict(dict(RELAYED, relay={}, teid=0x55667788, peer=GNB), **(down or {}))),
                   key(teid=TEID, one=0), key(teid=TEID2, one=1))


def relay_too_long_cases():
    """From tunnel to tunnel: cut, or the sender hears of it by the session's other direction. No hop is spent."""
    loose, firm = user(payload=b"x" * 1430), user(payload=b"x" * 1430, flags="DF")
    n = len(loose)

    def parts(packet, mtu):
        return [raw(f) for f in in_fragments(packet, mtu)]

    def cut(name, what, options, flags, room, tables=None, **more):
        case(name, what, tables or relaying(**more), [(UP, outer(gtpu(TEID, options + raw(loose), flags=flags)), "slow",
             [slow(relayed(gtpu(RTEID, (psc(5) if more.get("qfi") else options) + f, flags=0x34 if more.get("qfi") else flags)).payload) for f in parts(loose, room)])],
             [(1, 1, n, 0)])

    cut("relay-cut", "the GTP-U header goes along with each fragment", psc(QFI), 0x34, 1456)
    cut("relay-cut-sequence", "and all that is in it", b"\x12\x34\0\x40\1\x08\x68\0", 0x36, 1456)
    spare = lambda words: b"\0\0\0\x03" + bytes([words]) + b"x" * (words * 4 - 2) + b"\0"
    cut("relay-cut-64-octets", "a GTP-U header of 64 octets", spare(13), 0x34, 1500 - 28 - 64)
    case("relay-cut-long-header", "a longer one would make much out of little: lost", relaying(), [(UP, outer(gtpu(TEID, spare(14) + raw(loose), flags=0x34)), "slow, mtu", [])],
         [(1, 1, n, 0)])
    bigger = user(payload=b"x" * (1500 - 36 - 28))
    case("relay-mtu", "no room for the container that the QER asks for: in fragments, each with one", relaying(qfi=5),
         [(UP, outer(gtpu(TEID, raw(bigger))), "slow", [slow(relayed(gtpu(RTEID, psc(5) + f, flags=0x34)).payload) for f in parts(bigger, 1456)])], [(1, 1, len(bigger), 0)])
    ef = (46 << 2, 0xfc)
    marked = [relayed(gtpu(RTEID, psc(QFI) + f, flags=0x34)) for f in parts(loose, 1456)]
    for frame in marked:
        frame[IP].tos = 46 << 2
    case("relay-cut-marked", "with the DSCP", relaying(marking=ef), [(UP, up(loose), "slow", [slow(f.payload) for f in marked])], [(1, 1, n, 0)])
    into6 = dict(RELAYED, peer=GNB_6, local=N3_6)
    in6 = [udp6(gtpu(RTEID, psc(QFI) + f, flags=0x34)) for f in parts(loose, 1436)]
    for ip in in6:
        ip.fl = (RTEID * 2654435761 & 0xffffffff) >> 12
    case("relay-cut-outer6", "over IPv6", session(entry(1, "uplink", **dict(into6, relay={})), key(teid=TEID, one=0)),
         [(UP, up(loose), "slow", [slow(ip) for ip in in6])], [(1, 1, n, 0)], site=SITE6)

    def told(name, what, frame, error, answer, tables=None, lost=1):
        counters = [(lost, 0, 0, 1)] + ([(3 - lost, 1, len(error), 0)] if answer else [])
        case(name, what, tables or relay_pair(), [(UP, frame, "mtu", [slow(answer.payload)] if answer else [])], counters)

    error = too_long(firm, 1456)
    to_gnb = relayed(gtpu(0x55667788, psc(QFI, 0) + raw(error), flags=0x34), dst=GNB)
    told("relay-too-long", "the UE hears of it in its tunnel", up(firm), error, to_gnb)
    firmer = user(payload=b"x" * 1440, flags="DF")
    bare = too_long(firmer, 1464)
    told("relay-too-long-no-psc", "without a QFI, as it came", up(firmer, qfi=None), bare, relayed(gtpu(0x55667788, raw(bare)), dst=GNB))
    six = user6(payload=b"x" * 1430)
    error6 = too_long(six, 1456)
    told("relay-too-long-v6", "IPv6 is never cut", up(six), error6, relayed(gtpu(0x55667788, psc(QFI, 0) + raw(error6), flags=0x34), dst=GNB))
    told("relay-too-long-one-way", "there is no tunnel the other way", up(firm), error, None, tables=relaying())
    # Downlink the sender is in the data network, behind a UPF that lets nobody but the UE speak.
    down = user(HOST, UE, payload=b"x" * 1430, flags="DF")
    answer = IP(src=UE, dst=HOST, tos=0xc0, id=0, flags="DF", ttl=64) / ICMP(type=3, code=4, nexthopmtu=1456) / Raw(raw(down)[:548])
    strict = relay_pair(up=dict(relay=dict(src4=UE, qfi=QFI)))
    told("relay-too-long-down", "its sender hears of it through the next UPF, as if from the UE", outer(gtpu(TEID2, psc(QFI, 0) + raw(down), flags=0x34)), answer,
         relayed(gtpu(RTEID, psc(QFI) + raw(answer), flags=0x34)), tables=strict, lost=2)
    leaves = relay_pair(up=dict(action="route", teid=None, peer=None, local=None, relay=None, ue4=UE))
    told("relay-too-long-breakout", "what the UE sends leaves here, and so does this", outer(gtpu(TEID2, psc(QFI, 0) + raw(down), flags=0x34)), answer,
         hop(answer), tables=leaves, lost=2)
    down6 = IPv6(src=HOST6, dst=UE6) / UDP(sport=80, dport=1000) / Raw(b"x" * 1430)
    answer6 = IPv6(src=UE6, dst=HOST6, hlim=64) / ICMPv6PacketTooBig(mtu=1456) / Raw(raw(down6)[:1232])
    told("relay-too-long-down-v6", "also over IPv6", outer(gtpu(TEID2, psc(QFI, 0) + raw(down6), flags=0x34)), answer6,
         relayed(gtpu(RTEID, psc(QFI) + raw(answer6), flags=0x34)), lost=2)


def relay_cases():
    u = raw(user())
    n = len(u)
    port, rest = b"\1\x08\x68", b"\2\1\2\3\4\5\6"  # UDP Port (0x40) and a spare one (0x03), without the type that follows
    for name, what, flags, options in (
            ("plain", "no option", 0x30, b""),
            ("psc", "the PDU Session Container goes along", 0x34, psc(QFI)),
            ("psc-8-octets", "all of it", 0x34, psc(QFI, extra=b"\1\2\3\4")),
            ("sequence", "a sequence number goes along", 0x32, b"\x12\x34\0\0"),
            ("all-flags", "E, S and PN together", 0x37, b"\x12\x34\5" + psc(QFI)[3:]),
            ("several-extensions", "all extension headers go along", 0x34, b"\0\0\0\x40" + port + b"\x85" + b"\1\x10\x09\x03" + rest + b"\0")):
        relay_case("relay-" + name, what, (flags, options + u), (flags, options + u))
    relay_case("relay-ttl-1", "relayed is not routed: the TTL stays", (0x34, psc(QFI) + raw(user(ttl=1))), (0x34, psc(QFI) + raw(user(ttl=1))))
    relay_case("relay-vlan", "tagged frame", (0x34, psc(QFI) + u), (0x34, psc(QFI) + u), l2=Ether(src=THEIRS[0], dst=OURS[0]) / Dot1Q(vlan=7))
    from scapy.layers.inet import IPOption
    relay_case("relay-outer-options", "outer IPv4 header with options", (0x34, psc(QFI) + u), (0x34, psc(QFI) + u), options=[IPOption(b"\x94\x04\0\0")])
    for name, kind in (("pdcp", 0xc0), ("long-pdcp", 0x82)):
        options = b"\0\0\0" + bytes([kind]) + b"\1\x12\x34\x85" + b"\1\0\x09\0"
        relay_case("relay-" + name, "PDCP numbers are for the target gNB of a handover", (0x34, options + u), (0x34, options + u), tables=relaying("downlink"))
        frame_case("ul-" + name, "where the tunnel ends they say nothing", outer(gtpu(TEID, u, flags=0x34, options=options)), "forward", hop(user()), counters=[(1, 1, n, 0)])
    for_us = b"\0\0\0\x83\1\0\0\x85" + b"\1\0\x09\0"
    relay_case("relay-for-the-end", "where the tunnel goes on it need not be understood", (0x34, for_us + u), (0x34, for_us + u), tables=relaying("downlink"))
    frame_case("ul-for-the-end", "where the tunnel ends it must be understood and is not", outer(gtpu(TEID, u, flags=0x34, options=for_us)), "gtpu_unknown_extension", told_extensions(), counters=[(1, 0, 0, 1)])
    relay_case("relay-unknown-extension", "must be understood even in between", (0x34, b"\0\0\0\xc1\1\0\0\0" + u), None, verdict="gtpu_unknown_extension", counters=[(1, 0, 0, 0)], told=told_extensions())
    padded = Raw(raw(outer(gtpu(TEID, u))) + b"\xee" * 20)
    case("relay-padding", "octets behind the outer packet do not go along", relaying(), [(UP, padded, "forward", relayed(gtpu(RTEID, u)))], [(1, 1, n, 0)])
    down = relaying("downlink")
    relay_case("relay-down", "from N9 towards access", (0x34, psc(QFI, 0) + u), (0x34, psc(QFI, 0) + u), tables=down)
    # A QER marks.
    five = relaying(qfi=5)
    relay_case("relay-qfi-same", "the QFI is as the QER has it", (0x34, psc(5) + u), (0x34, psc(5) + u), tables=five)
    relay_case("relay-qfi-patched", "the QFI becomes that of the QER, all else stays", (0x34, b"\0\0\0\x85\1\x18\xc9\0" + u), (0x34, b"\0\0\0\x85\1\x18\xc5\0" + u), tables=five)
    several = b"\0\0\0\x40" + port + b"\x85" + b"\1\x10%c\x03" + rest + b"\0"
    relay_case("relay-qfi-patched-second", "in a container that comes second", (0x34, several % 9 + u), (0x34, several % 5 + u), tables=five)
    relay_case("relay-container-added", "the QER has a QFI, the packet none", (0x30, u), (0x34, psc(5) + u), tables=five)
    relay_case("relay-container-added-down", "towards access, of PDU type 0", (0x30, u), (0x34, psc(5, 0) + u), tables=relaying("downlink", qfi=5))
    relay_case("relay-container-added-sequence", "behind a sequence number that stays", (0x32, b"\x12\x34\7\0" + u), (0x36, b"\x12\x34\7\x85\1\x10\5\0" + u), tables=five)
    relay_case("relay-container-added-extensions", "in front of other extension headers", (0x34, b"\0\0\0\x40" + port + b"\0" + u), (0x34, b"\0\0\0\x85\1\x10\5\x40" + port + b"\0" + u), tables=five)
    # Outer Header Removal with GTP-U Extension Header Deletion.
    bare = relaying(relay=dict(remove_container=True))
    relay_case("relay-container-removed", "alone, it goes with the optional octets", (0x34, psc(QFI) + u), (0x30, u), tables=bare)
    relay_case("relay-container-removed-8-octets", "one of two units", (0x34, psc(QFI, extra=b"\1\2\3\4") + u), (0x30, u), tables=bare)
    relay_case("relay-container-removed-sequence", "the sequence number stays", (0x36, b"\x12\x34\7\x85\1\x10\5\0" + u), (0x32, b"\x12\x34\7\0" + u), tables=bare)
    relay_case("relay-container-removed-first", "other extension headers stay", (0x34, b"\0\0\0\x85\1\x10\5\x40" + port + b"\0" + u), (0x34, b"\0\0\0\x40" + port + b"\0" + u), tables=bare)
    relay_case("relay-container-removed-between", "also when they stand on both sides", (0x34, several % 9 + u), (0x34, b"\0\0\0\x40" + port + b"\x03" + rest + b"\0" + u), tables=bare)
    relay_case("relay-container-removed-none", "nothing to remove", (0x32, b"\x12\x34\0\0" + u), (0x32, b"\x12\x34\0\0" + u), tables=bare)
    # What the PDI asks.
    asks = relaying(relay=dict(src4=UE, qfi=QFI))
    relay_case("relay-conditions", "the UE's packet with the QFI asked for", (0x34, psc(QFI) + u), (0x34, psc(QFI) + u), tables=asks)
    relay_case("relay-spoofed", "foreign source address", (0x34, psc(QFI) + raw(user("10.60.0.66"))), None, tables=asks, verdict="ue_spoofed")
    relay_case("relay-qfi-mismatch", "another QFI than the PDI asks", (0x34, psc(5) + u), None, tables=asks, verdict="qfi_mismatch")
    towards = relaying("downlink", relay=dict(dst4=UE, dst6="2001:db8:60::/64"))
    relay_case("relay-down-conditions", "downlink the UE is the destination", (0x34, psc(QFI, 0) + raw(user(HOST, UE))), (0x34, psc(QFI, 0) + raw(user(HOST, UE))), tables=towards)
    relay_case("relay-down-foreign", "for another UE", (0x34, psc(QFI, 0) + raw(user(HOST, UE2))), None, tables=towards, verdict="ue_spoofed")
    case("relay-down-drop", "a FAR of DROP in a tunnel from N9, asked for the destination",
         session(entry(1, "downlink", action="drop", relay=dict(dst4=UE)), key(teid=TEID, one=0)),
         [(UP, up(user(HOST, UE)), "far_drop", None), (UP, up(user(HOST, UE2)), "ue_spoofed", None)], [(1, 0, 0, 2)])
    case("relay-mbr", "an MBR holds in a tunnel too", relaying(mbr_bps=1000, burst_bytes=n // 2),
         [(UP, up(user()), "forward", relayed(gtpu(RTEID, psc(QFI) + u, flags=0x34))), (UP, up(user()), "rate", None)], [(1, 1, n, 1, [1, n])])
    # Neighbour discovery: the SMF is the router.
    six = relaying(relay=dict(src6="2001:db8:60::/64"))
    for name, source in (("link-local", "fe80::1:2"), ("unspecified", "::")):
        solicitation = raw(IPv6(src=source, dst="ff02::2", hlim=255) / ICMPv6ND_RS())
        case("relay-solicitation-" + name, "a router solicitation has no address of the UE's prefix yet", six,
             [(UP, outer(gtpu(TEID, solicitation)), "forward", relayed(gtpu(RTEID, solicitation)))], [(1, 1, len(solicitation), 0)])
    ping = raw(IPv6(src="fe80::1:2", dst="ff02::2", hlim=255) / ICMPv6EchoRequest())
    case("relay-link-local-echo", "any other packet must have one", six, [(UP, outer(gtpu(TEID, ping)), "ue_spoofed", None)], [(1, 0, 0, 1)])
    advertisement = raw(IPv6(src="fe80::9", dst="ff02::1", hlim=255) / ICMPv6ND_RA())
    case("relay-advertisement", "and the answer comes back, with a container that gNBs ask for", relaying("downlink", relay=dict(dst6="2001:db8:60::/64"), qfi=1),
         [(UP, outer(gtpu(TEID, advertisement)), "forward", relayed(gtpu(RTEID, psc(1, 0) + advertisement, flags=0x34)))], [(1, 1, len(advertisement), 0)])
    # Several PDRs of one TEID: an uplink classifier, and what remains.
    classifier = session(entry(1, "uplink", action="route"), entry(2, "uplink", **dict(RELAYED, relay={})),
                         key(teid=TEID, list=[dict(entry=0, dst="192.0.2.0/25"), dict(entry=1)]))
    far = user(dst="198.51.100.7")
    case("relay-uplink-classifier", "some flows leave here, all others go on", classifier,
         [(UP, up(user()), "forward", hop(user())), (UP, up(far), "forward", relayed(gtpu(RTEID, psc(QFI) + raw(far), flags=0x34)))],
         [(1, 1, n, 0), (2, 1, len(far), 0)])
    marker = outer(gtpu(TEID, b"", 254))
    case("relay-end-marker", "goes on into the next tunnel, and is no packet of the user", relaying(), [(UP, marker, "forward", relayed(gtpu(RTEID, b"", 254)))], [(1, 0, 0, 0)])
    case("relay-end-marker-classifier", "there the first that goes on takes it", classifier, [(UP, marker, "forward", relayed(gtpu(RTEID, b"", 254)))], [(1, 0, 0, 0), (2, 0, 0, 0)])
    full = outer(gtpu(TEID, b"\x12\x34\0\x85\1\0\x09\0", 254, 0x36))
    case("relay-end-marker-container", "with its extension headers", relaying(), [(UP, full, "forward", relayed(gtpu(RTEID, b"\x12\x34\0\x85\1\0\x09\0", 254, 0x36)))], [(1, 0, 0, 0)])
    case("relay-unresolved-peer", "a peer whose neighbour the kernel must find", relaying(peer="10.3.9.9", qfi=5),
         [(UP, outer(gtpu(TEID, u)), "slow", slow(relayed(gtpu(RTEID, psc(5) + u, flags=0x34), dst="10.3.9.9").payload))], [(1, 1, n, 0)])
    large = user(payload=b"x" * (1500 - 44 - 28))
    case("relay-mtu-fits", "as large as the way allows", relaying(), [(UP, up(large), "forward", relayed(gtpu(RTEID, psc(QFI) + raw(large), flags=0x34)))], [(1, 1, len(large), 0)])
    larger = user(payload=b"x" * (1500 - 36 - 28))
    switched = session(entry(1, "downlink", **dict(RELAYED, relay={}, teid=0x55667788, peer=GNB)), key(teid=TEID, one=0), before=1)
    case("relay-path-switch", "handover at the branching point", relaying("downlink") + switched,
         [(UP, outer(gtpu(TEID, u)), "forward", relayed(gtpu(RTEID, u))), (UP, outer(gtpu(TEID, u)), "forward", relayed(gtpu(0x55667788, u), dst=GNB))], [(1, 2, 2 * n, 0)])


def marked(frame, tos, mask):
    """The IP header that leaves, marked; what scapy computes of the checksum is right."""
    out = frame.__class__(raw(frame))
    if out.haslayer(IP) and out.payload.name == "IP":
        out[IP].tos = out[IP].tos & ~mask & 0xff | tos & mask
        del out[IP].chksum
    else:
        out[IPv6].tc = out[IPv6].tc & ~mask & 0xff | tos & mask
    return out


def marking_cases():
    d, ef = user(HOST, UE), [0xb8, 0xfc]
    down_case("dl-marked", "the outer header gets the DSCP, the user's stays", d, out=marked(tunnelled(d), *ef), tables=plain(dl=dict(marking=ef)))
    for ident in (1, 0xb8a6, 0x46c8):
        v = user(tos=0x03, id=ident)
        up_case("ul-marked-%d" % ident, "on N6 the packet itself; ECN stays", v, out=marked(hop(v), *ef), tables=plain(ul=dict(marking=ef)))
    up_case("ul-v6-marked", "traffic class", user6(tc=0x41), out=marked(hop(user6(tc=0x41)), *ef), tables=plain(ul=dict(marking=ef), ue6="2001:db8:60::/64"))
    up_case("ul-mask", "only the bits of the mask", user(tos=0xff), out=marked(hop(user(tos=0xff)), 0x20, 0xe0), tables=plain(ul=dict(marking=[0x20, 0xe0])))
    plainly = gtpu(RTEID, psc(QFI) + raw(user()), flags=0x34)
    case("relay-marked", "the next tunnel's outer header", relaying(marking=ef), [(UP, up(user()), "forward", marked(relayed(plainly), *ef))], [(1, 1, len(user()), 0)])
    peer = plain(dl=dict(peer="10.3.9.9", marking=ef))
    down_case("dl-marked-unresolved", "also by way of the slow path", d, "slow", slow(marked(tunnelled(d, dst="10.3.9.9"), *ef).payload), tables=peer)
    waiting = user(dst="203.0.113.129")
    up_case("ul-marked-unresolved", "and on N6", waiting, "slow", slow(marked(hop(waiting), *ef).payload), tables=plain(ul=dict(marking=ef)))


def outer6_cases():
    u, d = user(), user(HOST, UE)
    n, taken = len(u), [(1, 1, len(u), 0)]
    to6 = dict(peer=GNB_6, local=N3_6)
    site = SITE6

    def frame_in(name, what, frame, verdict="forward", out=None, tables=None, counters=None, **more):
        if verdict == "forward":
            out, counters = out or hop(u), counters or taken
        case("outer6-" + name, what, tables or plain(), [(UP, frame, verdict, out)], counters or (), **dict(dict(site=site), **more))

    def packet_out(name, what, packet, verdict="forward", out=None, tables=None, counters=None, **more):
        if verdict == "forward" and out is None:
            out = tunnelled6(packet)
        if counters is None:
            counters = [(2, 1, len(packet), 0)]
        case("outer6-" + name, what, tables or plain(dl=to6), [(DOWN, net(packet), verdict, out)], counters, **dict(dict(site=site), **more))

    frame_in("ul-psc", "IPv6 between gNB and UPF", up6(u))
    frame_in("ul-no-psc", "without any option", up6(u, qfi=None))
    frame_in("ul-zero-checksum", "no UDP checksum (RFC 6935)", up6(u, udp=dict(chksum=0)))
    frame_in("ul-second-address", "another of our IPv6 addresses", up6(u, dst=N3B_6))
    frame_in("ul-only", "N3 has no IPv4 address", up6(u), site=SITE6.replace('"10.3.0.1", "10.3.0.2", ', ""))
    v6 = user6()
    frame_in("ul-v6", "IPv6 in IPv6", up6(v6), out=hop(v6), tables=plain(ue6="2001:db8:60::/64"), counters=[(1, 1, len(v6), 0)])
    frame_in("ul-vlan", "tagged frame", up6(u, l2=Ether(src=THEIRS[0], dst=OURS[0]) / Dot1Q(vlan=7)))
    frame_in("ul-padding", "octets behind the IP packet are not the user's", Raw(raw(up6(u)) + b"\xee" * 20))
    frame_in("ul-unknown-extension", "must be understood and is not", outer6(gtpu(TEID, raw(u), flags=0x34, options=b"\0\0\0\xc1\1\0\0\0")), "gtpu_unknown_extension", out=told_extensions(N3_6, GNB_6))
    frame_in("ul-bucket-teid", "a TEID chosen by the SMF", up6(u, teid=0xdeadbeef), tables=plain(teid=0xdeadbeef))
    options = [PadN(optdata=b"\0" * 4)]
    hbh, dst, long = IPv6ExtHdrHopByHop(options=options), IPv6ExtHdrDestOpt(options=options), IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\0" * 100)])
    frame_in("ul-hop-by-hop", "a hop-by-hop options header", up6(u, headers=[hbh]))
    frame_in("ul-destination-options", "a long destination options header", up6(u, headers=[long]))
    frame_in("ul-routing-done", "a routing header at its last stop", up6(u, headers=[IPv6ExtHdrRouting(type=0, segleft=0, addresses=[N3_6])]))
    frame_in("ul-routing-left", "a routing header that leads on is the kernel's", up6(u, headers=[IPv6ExtHdrRouting(type=0, segleft=1, addresses=[N3_6])]), "pass")
    frame_in("ul-7-headers", "as many extension headers as are walked", up6(u, headers=[hbh] + [dst] * 6))
    frame_in("ul-8-headers", "one extension header too many", up6(u, headers=[hbh] + [dst] * 7), "ip_malformed")
    frame_in("ul-header-beyond-end", "an extension header longer than the packet", Ether(raw(up6(u, headers=[dst]))[:55] + b"\xff" + raw(up6(u, headers=[dst]))[56:]), "ip_malformed")
    frame_in("ul-atomic-fragment", "a fragment header on a whole packet (RFC 6946)", up6(u, headers=[IPv6ExtHdrFragment(id=7)]))
    frame_in("ul-fragment-icmp", "fragments of something else are the kernel's", Ether(src=THEIRS[0], dst=OURS[0]) / IPv6(src=GNB_6, dst=N3_6) / IPv6ExtHdrFragment(id=7, offset=8, nh=58) / Raw(b"z" * 40), "pass")
    big = user(payload=bytes(i & 255 for i in range(1400)))
    whole_slow, big_taken = slow(hop(big).payload), [(1, 1, len(big), 0)]

    def pieces(packet, l2=None):
        l2 = l2 or Ether(src=THEIRS[0], dst=OURS[0])
        return [l2.copy() / piece for piece in fragment6(packet.getlayer(IPv6), 656)]

    def fragments_in(name, what, parts, order, fates, counters=()):
        case("outer6-fragments" + name, what, plain(), [(UP, parts[i], "slow", fate) for i, fate in zip(order, fates)], counters, site=site)

    three = pieces(up6(big, headers=[IPv6ExtHdrFragment(id=7)]))
    assert len(three) == 3
    fragments_in("", "a tunnel packet over IPv6 in three fragments", three, (0, 1, 2), ([], [], whole_slow), big_taken)
    fragments_in("-reversed", "the last fragment first", three, (2, 1, 0), ([], [], whole_slow), big_taken)
    fragments_in("-doubled", "fragments that the network doubled", three, (0, 0, 2, 2, 1), ([], [], [], [], whole_slow), big_taken)
    fragments_in("-headers", "behind a hop-by-hop header", pieces(up6(big, headers=[hbh, IPv6ExtHdrFragment(id=7)])), (1, 0, 2), ([], [], whole_slow), big_taken)
    lost = up6(big, teid=0x01000099, headers=[IPv6ExtHdrFragment(id=7)])
    fragments_in("-unknown-teid", "an Error Indication answers fragments too", pieces(lost), (0, 1, 2), ([], [], slow(error_indication6(lost, 0x01000099).payload)))
    other = outer6(b"y" * 1400, dport=53, headers=[IPv6ExtHdrFragment(id=9)])
    fragments_in("-other-udp", "other UDP to us goes on to the kernel, whole", pieces(other), (0, 1, 2), ([], [], slow(outer6(b"y" * 1400, dport=53).payload)))
    overlap = three[1].copy()
    overlap[IPv6ExtHdrFragment].offset -= 1
    fragments_in("-overlap", "fragments that overlap cost the packet (RFC 5722)", [three[0], overlap, three[1], three[2]], (0, 1, 2, 3), ([], [], [], []), [(1, 0, 0, 0)])
    whole = raw(up6(u))
    frame_in("ul-truncated-ip", "frame ends inside the outer IPv6 header", Raw(whole[:40]), "truncated")
    frame_in("ul-truncated", "outer lengths promise more than the frame has", Raw(whole[:-1]), "ip_malformed")
    frame_in("ul-no-udp", "payload too short for UDP", Ether(whole[:18] + b"\0\7" + whole[20:]), "udp_malformed")
    frame_in("ul-udp-length-long", "UDP length beyond its IP packet", Ether(whole[:58] + b"\xff\xff" + whole[60:]), "udp_malformed")
    frame_in("ul-udp-length-short", "UDP length below its own header", Ether(whole[:58] + b"\0\7" + whole[60:]), "udp_malformed")
    frame_in("ul-gtpu-length-long", "GTP-U length beyond the datagram", outer6(gtpu(TEID, raw(u), length=n + 1)), "gtpu_malformed")
    frame_in("ul-family-4-in-6", "EtherType of IPv6, header of IPv4", Ether(src=THEIRS[0], dst=OURS[0], type=0x86dd) / Raw(raw(up(u))[14:]), "ip_malformed")
    frame_in("ul-family-6-in-4", "EtherType of IPv4, header of IPv6", Ether(src=THEIRS[0], dst=OURS[0], type=0x0800) / Raw(whole[14:]), "ip_malformed")
    frame_in("ul-not-our-address", "GTP-U to somebody else is the kernel's", up6(u, dst="2001:db8:3::9"), "pass")
    frame_in("ul-no-address", "with IPv4 addresses only, IPv6 is the kernel's", up6(u), "pass", site="")
    frame_in("ul-other-udp", "another UDP port is the kernel's", up6(u, dport=53), "pass")
    frame_in("ul-tcp", "TCP to our address is the kernel's", Ether(src=THEIRS[0], dst=OURS[0]) / IPv6(src=GNB_6, dst=N3_6) / TCP(dport=22), "pass")
    frame_in("ul-ping", "ICMPv6 to our address is the kernel's", Ether(src=THEIRS[0], dst=OURS[0]) / IPv6(src=GNB_6, dst=N3_6) / ICMPv6EchoRequest(), "pass")
    frame_in("ul-discovery", "a neighbour solicitation is the kernel's", Ether(src=THEIRS[0], dst="33:33:ff:00:00:01") / IPv6(src=GNB_6, dst="ff02::1:ff00:1", hlim=255) / ICMPv6ND_NS(tgt=N3_6), "pass")
    frame_in("ul-spoofed", "foreign source address", up6(user(src="10.60.0.66")), "ue_spoofed", counters=[(1, 0, 0, 1)])
    echo = outer6(gtpu(0, b"", 1, 0x32, b"\x12\x34\0\0"), sport=40000)
    frame_in("echo-request", "answered over IPv6, with a checksum", echo, "answer", answer6(echo, gtpu(0, b"", 2, 0x32, b"\x12\x34\0\0\x0e\0"), dport=40000))
    far_echo = outer6(gtpu(0, b"", 1, 0x32, b"\x12\x34\0\0"), headers=[hbh, long])
    frame_in("echo-request-headers", "extension headers are not sent back", far_echo, "answer", answer6(far_echo, gtpu(0, b"", 2, 0x32, b"\x12\x34\0\0\x0e\0")))
    stranger = up6(u, teid=0x01000099)
    frame_in("error-indication", "no session has the TEID: our address has 16 octets", stranger, "answer", error_indication6(stranger, 0x01000099))
    second = up6(u, teid=0x01000099, dst=N3B_6)
    frame_in("error-indication-second", "it says which of our addresses it was", second, "answer", error_indication6(second, 0x01000099, N3B_6))

    def onward6(message, dst=GNB_6, **udp):
        ip = udp6(message, N3_6, dst, **udp)
        ip.fl = (RTEID * 2654435761 & 0xffffffff) >> 12
        return Ether(src=OURS[0], dst=THEIRS[0]) / ip

    packet_out("dl-psc", "into a tunnel over IPv6", d)
    paging = session(uplink(), downlink(**dict(to6, ppi=5, rqi=True)), key(teid=TEID, one=0), key(ue4=UE, one=1))
    paged = GTP_U_Header(teid=RTEID, E=1) / GTPPDUSessionContainer(type=0, QFI=QFI, PPP=1, PPI=5, RQI=1) / Raw(raw(hop(d).payload))
    packet_out("dl-paging", "a container of two units", d, out=onward6(raw(paged)), tables=paging)
    ef = [0xb8, 0xfc]
    packet_out("dl-marked", "the outer traffic class gets the DSCP", d, out=marked(tunnelled6(d), *ef), tables=plain(dl=dict(marking=ef, **to6)))
    packet_out("dl-marked-unresolved", "also by way of the slow path", d, "slow", slow(marked(tunnelled6(d, dst="2001:db8:3:9::9"), *ef).payload), tables=plain(dl=dict(marking=ef, peer="2001:db8:3:9::9", local=N3_6)))
    packet_out("dl-no-psc", "no QER marks: no container", d, out=tunnelled6(d, qfi=None), tables=plain(dl=dict(qfi=None, **to6)))
    v6d = user6(HOST6, UE6)
    packet_out("dl-v6", "IPv6 in IPv6", v6d, tables=plain(dl=to6, ue6="2001:db8:60::/64"))
    for size in range(5):
        odd = IP(src=HOST, dst=UE, proto=253) / Raw(bytes(range(0xf3, 0xf3 + size)))
        packet_out("dl-length-%d" % len(odd), "the checksum of a packet of %d octets" % len(odd), odd)
    long_user = user(HOST, UE, payload=bytes(i * 7 & 0xff for i in range(1001)))
    packet_out("dl-long", "the checksum of a long packet", long_user)
    # The octets for which the sum comes out as zero, which means none and is sent as its complement.
    probe = IP(src=HOST, dst=UE, proto=253) / Raw(b"\0\0")
    fill = UDP(raw(tunnelled6(probe))[54:62]).chksum
    unlucky = IP(src=HOST, dst=UE, proto=253) / Raw(struct.pack("!H", fill))
    assert UDP(raw(tunnelled6(unlucky))[54:62]).chksum == 0xffff
    packet_out("dl-checksum-zero", "a checksum of zero is sent as 0xffff (RFC 8200, 8.1)", unlucky)
    packet_out("dl-no-checksum", "with gtpu.udp6_checksum = false there is none", d, out=tunnelled6(d, chksum=0), site="udp6_checksum = false\n" + site)
    packet_out("dl-mtu-fits", "as large as the way allows", user(HOST, UE, payload=b"x" * (1500 - 64 - 28)))
    larger = user(HOST, UE, payload=b"x" * (1500 - 64 - 27), flags="DF")
    packet_out("dl-mtu", "an octet larger", larger, "mtu", [slow(too_long(larger, 1500 - 64))], counters=[(2, 0, 0, 1)])
    larger = user(HOST, UE, payload=b"x" * (1500 - 64 - 27))
    packet_out("dl-cut", "an octet larger, and it may be cut: each fragment has a UDP checksum", larger, "slow", [slow(tunnelled6(f).payload) for f in in_fragments(larger, 1500 - 64)])
    packet_out("dl-cut-no-checksum", "or none", larger, "slow", [slow(tunnelled6(f, chksum=0).payload) for f in in_fragments(larger, 1500 - 64)], site="udp6_checksum = false\n" + site)
    packet_out("dl-cut-marked", "the outer traffic class of each gets the DSCP", larger, "slow",
               [slow(marked(tunnelled6(f), *ef).payload) for f in in_fragments(larger, 1500 - 64)], tables=plain(dl=dict(marking=ef, **to6)))
    far = "2001:db8:3:9::9"
    packet_out("dl-unresolved-peer", "a gNB whose neighbour the kernel must find", d, "slow", slow(tunnelled6(d, dst=far).payload), tables=plain(dl=dict(peer=far, local=N3_6)))
    packet_out("dl-second-address", "from another of our addresses", d, out=tunnelled6(d, src=N3B_6), tables=plain(dl=dict(peer=GNB_6, local=N3B_6)))
    # From tunnel to tunnel, every family to every other.
    to4 = dict(peer=GNB2, local=N3)
    into6 = dict(RELAYED, peer=GNB_6, local=N3_6)

    def relay_in(name, what, frame, out, tunnel=into6, site=site, relay=None, **more):
        tables = session(entry(1, "uplink", **dict(tunnel, relay=relay or {}, **more)), key(teid=TEID, one=0))
        case("outer6-relay-" + name, what, tables, [(UP, frame, "forward", out)], taken, site=site)

    message = gtpu(RTEID, psc(QFI) + raw(u), flags=0x34)
    relay_in("4-6", "from IPv4 to IPv6", up(u), onward6(message))
    relay_in("6-6", "from IPv6 to IPv6", up6(u), onward6(message))
    relay_in("6-4", "from IPv6 to IPv4", up6(u), relayed(message), tunnel=dict(RELAYED, **to4))
    relay_in("no-checksum", "with gtpu.udp6_checksum = false there is none", up6(u), onward6(message, chksum=0), site="udp6_checksum = false\n" + site)
    relay_in("added", "the QER has a QFI, the packet none", up(u, qfi=None), onward6(gtpu(RTEID, psc(5) + raw(u), flags=0x34)), qfi=5)
    relay_in("headers", "extension headers of IPv6 do not go along", up6(u, headers=[hbh, long]), onward6(message))
    case("outer6-relay-unresolved", "the next UPF's neighbour must be found by the kernel", session(entry(1, "uplink", **dict(into6, peer=far, relay={})), key(teid=TEID, one=0)),
         [(UP, up(u), "slow", slow(onward6(message, dst=far).payload))], taken, site=site)
    case("outer6-path-switch", "handover from a gNB with IPv4 to one with IPv6 and back", plain() + plain(dl=dict(teid=0x55667788, **to6), before=1) + plain(before=2),
         [(DOWN, net(d), "forward", tunnelled(d)), (DOWN, net(d), "forward", tunnelled6(d, teid=0x55667788)), (DOWN, net(d), "forward", tunnelled(d)),
          (UP, up(u), "forward", hop(u)), (UP, up6(u), "forward", hop(u))], [(1, 2, 2 * n, 0), (2, 3, 3 * len(d), 0)], site=site)


def pcap(frames):
    out = io.BytesIO()
    out.close, writer = (lambda: None), None
    writer = PcapWriter(out, linktype=1, sync=True)
    writer.write_header(None)
    for i, frame in enumerate(frames):
        data = raw(frame)
        writer._write_packet(data, sec=i, usec=0, caplen=len(data), wirelen=len(data))
    return out.getvalue()


def files(name):
    what, site, tables, packets, counters = CASES[name]
    expect = ""
    for port, _, verdict, out in packets:
        frames = len(out) if isinstance(out, list) else None
        verdict, _, lost = verdict.partition(", ")
        expect += "[[packet]]\n" + lines(dict(port=port, verdict=verdict, lost=lost or None, frames=frames))
    for pdr, count, octets, drops, *qos in counters:
        expect += "[[counters]]\n" + lines(dict(pdr=pdr, packets=count, bytes=octets, drops=drops, qos=qos[0] if qos else None))
    return {
        "tables.toml": ("# %s\n%s%s" % (what, site, tables)).encode(),
        "in.pcap": pcap(p[1] for p in packets),
        "out.pcap": pcap(f for p in packets if p[3] is not None for f in (p[3] if isinstance(p[3], list) else [p[3]])),
        "expect.toml": expect.encode(),
    }


def main():
    check, wrong = "--check" in sys.argv, []
    for make in (uplink_cases, wrong_interface_cases, outer_fragment_cases, rule_cases, mark_cases, vlan_cases, dead_neighbour_cases, packet_rate_cases, sdf_cases, downlink_cases, buffering_cases, ue_to_ue_cases, policy_cases, icmp_cases, router_cases, framed_cases, duplicate_cases, prefix_cases, route_cases, relay_cases, relay_too_long_cases, udp_cases, marking_cases, outer6_cases):
        make()
    contents = {"common.toml": (COMMON + ROUTES).rstrip("\n").encode() + b"\n"}
    for name in sorted(CASES):
        contents.update((os.path.join(name, file), content) for file, content in files(name).items())
    for file, content in contents.items():
        path = os.path.join(HERE, file)
        if check:
            if not os.path.exists(path) or open(path, "rb").read() != content:
                wrong.append(path)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            open(path, "wb").write(content)
    known = [d for d in os.listdir(HERE) if os.path.isdir(os.path.join(HERE, d)) and d not in CASES and not d.startswith("__")]
    wrong += [os.path.join(HERE, d) + ": no such case here" for d in known]
    for path in wrong:
        print("differs:", path)
    print(len(CASES), "cases", "compared" if check else "written")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
