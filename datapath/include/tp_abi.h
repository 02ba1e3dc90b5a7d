/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The tables: everything that both the packet pipeline and the control plane see.
 *
 * One writer for each word. "control" words are written by the control plane only, "data" words by
 * the pipeline only. Every control word that may change under traffic is one aligned 8-byte store,
 * so a packet meets the old value or the new one. What a word points at is written before it, and
 * reused only after a grace period.
 *
 * Rust reads this header when it is built; crates/tables/src/abi.rs says there what the numbers mean.
 * Suffix _be: network byte order, as on the wire. Everything else is host order.
 */
#ifndef TP_ABI_H
#define TP_ABI_H

#include <linux/types.h>

/* ---- Fixed bounds --------------------------------------------------------------------------- */

#define TP_PORTS_MAX 16	    /* data interfaces; also devmap slots */
#define TP_N3_ADDRS_MAX 8   /* local GTP-U addresses */
#define TP_RULES_MAX 64	    /* filters scanned for one key, then no match */
#define TP_ROUTES_MAX 32    /* routes scanned for one network instance, else the FIB is asked */
#define TP_EXT_HDRS_MAX 16  /* GTP-U extension headers walked, then a named drop */
#define TP_METERS_MAX 4	    /* MBR QERs on one PDR */
#define TP_FRAMED_MAX 64    /* framed routes of one session */
#define TP_CAPACITIES_MAX 128 /* places in capacities[], of which 0 is none */
#define TP_SHARE_CAPACITIES 4 /* capacities that one flow has a share of */
#define TP_BUCKET_SLOTS 4
#define TP_UE_PAGE_BITS 14  /* UE IPv4 addresses per page: 16384 */
#define TP_UE_DIR_BITS (32 - TP_UE_PAGE_BITS)

/* Direction of a packet: from the access side or towards it. */
enum tp_dir { TP_UPLINK = 0, TP_DOWNLINK = 1, TP_DIRS = 2 };

/* ---- tp_entry: one compiled PDR, one cache line --------------------------------------------- */

enum tp_action {
	TP_ACT_NONE = 0,	/* free or withdrawn */
	TP_ACT_ROUTE = 1,	/* forward as plain IP by the routes of head.ni (N6) */
	TP_ACT_TUNNEL = 2,	/* encapsulate towards out.peer with out.teid (N3, N9) */
	TP_ACT_UDP = 3,		/* UDP alone, no GTP-U, towards out.port and a peer with TP_PEER_UDP */
	TP_ACT_DROP = 4,	/* FAR DROP */
	TP_ACT_BUFFER = 5,	/* FAR BUFF: user space holds them (pipeline/buffer.h) */
	TP_ACT_GATE = 6,	/* a QER closed the gate */
	TP_ACT_LIST = 7,	/* several PDRs share this key: scan rules[] from head.rule */
	TP_ACT_TUNNEL_GONE = 8, /* FAR FORW, but the far end does not know the tunnel (Error Indication) */
	TP_ACT_NO_TUNNEL = 9,	/* FAR FORW to the access side, but without a tunnel yet */
	TP_ACT_QUOTA = 10,	/* the quota of a URR is used up */
};

/* Bits of tp_entry.head. Flags mean the same whatever the action is.
 *
 *  0..31  key     TEID for an entry reached by TEID, host order, re-checked; 0 when reached by UE address
 * 32..35  action  enum tp_action
 * 36      METER   rate and tat of this line hold the only meter
 * 37      EXT     ext.index is valid
 * 38      UE      the source must be out.ue4_be (0: no IPv4) or ext.ue6 (EXT clear: no IPv6). Packets that go from
 *                 tunnel to tunnel have their conditions in ext.asks instead
 * 39      DOWN    reached by TEID, but its packets travel towards access (N9, CP-function)
 * 40      QFI     the packet must come with head.qfi; from tunnel to tunnel see UE
 * 41      MARK    head.qfi goes into the PDU Session Container
 * 42      DRAIN   what forwards again after BUFFER: behind those that user space still holds
 * 43      COPY    its FAR duplicates: ext.copy
 * 44..47  free
 * 48..55  ni      network instance: ROUTE: whose routes; downlink: the one that the UE address is valid in
 * 56..61  qfi     0..63
 * 62..63  free
 *
 * TP_ACT_LIST has no flags: 40..63 are the first place of its rules.
 */
#define TP_HEAD_ACTION_SHIFT 32
#define TP_HEAD_ACTION_MASK 15ULL
#define TP_HEAD_ACTION(head) ((__u32)((head) >> TP_HEAD_ACTION_SHIFT & TP_HEAD_ACTION_MASK))
#define TP_HEAD_METER (1ULL << 36)
#define TP_HEAD_EXT (1ULL << 37)
#define TP_HEAD_UE (1ULL << 38)
#define TP_HEAD_DOWN_SHIFT 39
#define TP_HEAD_DOWN (1ULL << TP_HEAD_DOWN_SHIFT)
#define TP_HEAD_QFI (1ULL << 40)
#define TP_HEAD_MARK (1ULL << 41)
#define TP_HEAD_DRAIN (1ULL << 42)
#define TP_HEAD_COPY (1ULL << 43)
#define TP_HEAD_NI_SHIFT 48
#define TP_HEAD_NI_MASK 0xffULL
#define TP_HEAD_QFI_SHIFT 56
#define TP_HEAD_QFI_MASK 0x3fULL
#define TP_HEAD_RULE_SHIFT 40

struct tp_entry {
	__u64 head; /* control: see above; the word that makes the entry live */
	__u64 out;  /* control: TUNNEL: remote teid_be in bits 0..31, peer index in 32..63; UDP: port_be in 0..15, peer likewise;
		     * else ue4_be in 0..31 */
	__u64 rate; /* control: struct tp_rate bits, see below */
	__u64 ext;  /* control: index into exts[] in bits 0..31, PDR ID from TP_EXT_PDR_SHIFT on,
		      predefined rule of the PDR from TP_EXT_PREDEFINED_SHIFT on, 0: none (both for tracing) */
	__u64 tat;  /* data: theoretical arrival time of the GCRA, in ticks of 1/64 ns */
	__u64 bytes;   /* data: inner IP bytes forwarded */
	__u64 packets; /* data: packets forwarded */
	__u64 alarm;   /* control and data: user space wants to hear when bytes reaches this; TP_ALARM_NONE: it does not.
			* Control stores what it likes; data replaces what it has seen: see pipeline/count.h */
};

#define TP_ALARM_NONE (~0ULL)
#define TP_ALARM_STEP 65536 /* bytes after which an alarm that was not set anew comes again */

/* A record of the ring of alarms; as small as one can be, so that many sessions can reach a limit at once. */
struct tp_alarm {
	__u32 entry; /* index */
	__u32 reserved;
};

/* What an entry's line has no room for. Drops are counted here alone; bytes and packets of what another CPU, or user
 * space, handled than the one that the entry's own words belong to, so that what is shown is the sum. sides[] has one
 * for each entry, always added to atomically. */
struct tp_side {
	__u64 bytes; /* data, all: as in tp_entry */
	__u64 packets;
	__u64 drops; /* packets that matched here and were dropped */
	__u32 held; /* packets that user space holds or is being handed: added to by who hands one over, taken from by
		       user space when it has left or is lost; control holds one while an entry takes another's place */
	__u32 shaped; /* frames above their rate, likewise: see pipeline/shape.h */
	__u64 qos_packets; /* of drops, those by QoS enforcement: a gate, an MBR, a capacity, a packet rate */
	__u64 qos_bytes;   /* inner IP bytes of these */
	__u64 qos_alarm;   /* control and data: as tp_entry.alarm, of qos_bytes; TP_QOS_ALARM_NONE: user space does not want to hear */
	__u64 delayed;	   /* data: packets that were forwarded, but had to wait for their rate first */
};

#define TP_QOS_ALARM_NONE 0

#define TP_EXT_PDR_SHIFT 32
#define TP_EXT_PREDEFINED_SHIFT 48

/* A rate word. cost of a packet in ticks = (inner bytes * mantissa) >> shift; a packet conforms while
 * tat - now <= burst.
 *
 *  0..31  mantissa  normalised: bit 31 set unless the rate is 0
 * 32..37  shift     0..63
 * 38      BLOCK     MBR 0: nothing passes
 * 39      SHAPE     a packet that conforms leaves at tat, if that is to come: burst is the longest that it may wait. With a
 *                   mantissa of 0 it costs nothing, and leaves behind those before it
 * 40..63  burst     in units of 4096 ns (up to 68 s)
 */
#define TP_TICKS_PER_NS_SHIFT 6
#define TP_RATE_SHIFT_SHIFT 32
#define TP_RATE_SHIFT_MASK 63ULL
#define TP_RATE_BLOCK (1ULL << 38)
#define TP_RATE_SHAPE (1ULL << 39)
#define TP_RATE_BURST_SHIFT 40
#define TP_RATE_BURST_UNIT_NS 4096ULL

/* ---- tp_ext: what the common session does not need ------------------------------------------- */

struct tp_ext {
	__u8 ue6[16];  /* control: UE IPv6 prefix, network order, zero beyond ue6_plen */
	__u8 ue6_plen; /* control: 1..128; 0: the PDI has no IPv6 address */
	__u8 n_meters; /* control: 0..TP_METERS_MAX */
	__u8 asks;     /* control: TP_ASKS_*: what the PDI of a packet that goes from tunnel to tunnel asks */
	__u8 qfi;      /* control: of TP_ASKS_QFI */
	__u32 ue4_be;  /* control: of TP_ASKS_UE; 0: no IPv4 */
	__u32 meters[TP_METERS_MAX]; /* control: indices into meters[], all must conform */
	__u8 tos, tos_mask; /* control: transport level marking; mask 0: none */
	__u8 psc;	    /* control: what the PDU Session Container says beside the QFI: TP_PSC_* */
	__u8 removal;	    /* control: TP_REMOVE_CONTAINER */
	__u32 packet_meter; /* control: index into meters[] plus one, of a packet rate; 0: none */
	__u32 copy;	    /* control: first place of its FAR's duplicates in rules[], plus one; 0: none */
	__u32 framed;	    /* control: first place of its framed routes in rules[], plus one; 0: none */
	__u16 n_framed;	    /* control: how many, 0..TP_FRAMED_MAX */
	__u16 n_copies;	    /* control: how many duplicates, 0..TP_COPIES_MAX */
	__u32 share;	    /* control: index into meters[] plus one, of a share of capacities; 0: none */
};

/* Where a duplicate of each packet goes (FAR with DUPL, TS 29.244, 5.2.3). They stand one to a place of rules[], and
 * are immutable once published. User space sends them, so that they have no next hop here. */
#define TP_COPIES_MAX 4
#define TP_COPIES_PER_PLACE 1

struct tp_copy {
	__u8 remote[16]; /* IPv4 in the first four octets, all as on the wire */
	__u8 local[16];	 /* our address, of the same family */
	__u32 teid_be;	 /* of GTP-U */
	__u16 port_be;	 /* of plain UDP: remote and local port; 0: GTP-U */
	__u8 flags;	 /* TP_COPY_* */
	__u8 tos;	 /* transport level marking */
	__u8 tos_mask;	 /* 0: none */
	__u8 pad1;
	__u16 pad2;
	__u32 pad4;
	__u64 reserved[2];
};

struct tp_copies {
	struct tp_copy copy[TP_COPIES_PER_PLACE];
};

#define TP_COPY_V6 1 /* the outer header is IPv6 */

/* A network behind the UE (framed route, TS 29.244, 5.16): an address in it is as good as the UE's own. They
 * stand two to a place of rules[], and are immutable once published. */
#define TP_FRAMED_PER_PLACE 2

struct tp_framed {
	__u64 prefix[2]; /* as struct tp_addr has addresses: host order, left-aligned */
	__u8 plen;
	__u8 family; /* 4 or 6 */
	__u16 pad2;
	__u32 pad4;
	__u64 reserved;
};

struct tp_framed_routes {
	struct tp_framed route[TP_FRAMED_PER_PLACE];
};

#define TP_ASKS_UE 1	 /* the UE's address is ue4_be, or in ue6: the source */
#define TP_ASKS_UE_DST 2 /* with UE: the destination */
#define TP_ASKS_QFI 4

/* Of tp_ext.removal: take the PDU Session Container off on the way to the next tunnel. */
#define TP_REMOVE_CONTAINER 1

/* Of tp_ext.psc (TS 38.415, 5.5.2.1); downlink only, and not from tunnel to tunnel. */
#define TP_PSC_RQI 1	   /* Reflective QoS Indicator */
#define TP_PSC_PPI 2	   /* the Paging Policy Indicator in bits 5..7 */
#define TP_PSC_PPI_MASK 0xe0U

/* An MBR shared by several PDRs of one direction, or one of several on a PDR; or a packet rate; or a flow's share of
 * capacities. */
struct tp_meter {
	__u64 rate; /* control: as tp_entry.rate, 0: unlimited; of a packet rate: a packet limit, see below; of a share: what the
		       flow is guaranteed, a mantissa of 0: nothing */
	__u64 tat;  /* data; of a packet rate: the time unit that runs, see below */
	__u64 drops; /* data */
	__u32 slower; /* control, of a share: how often its rate goes into tp_capacity.share, times 1 << TP_SHARE_SHIFT */
	__u8 capacities[TP_SHARE_CAPACITIES]; /* control, of a share: places in capacities[]; 0: no more */
	__u64 guaranteed; /* control, of a share, for control alone: what rate says, in bit/s */
	__u64 name; /* control, for the control of the next process alone: which of its session's limits it is */
	__u64 reserved[2];
};

#define TP_SHARE_SHIFT 6

/* What an interface carries, or a network instance or a group of users may have, in one direction (pipeline/share.h). */
struct tp_capacity {
	__u64 share; /* control, again and again: rate of a flow with the greatest weight, as tp_entry.rate; a mantissa of 0: no
			flow wants more than its share */
	__u64 rate;  /* control: of all flows together; its burst is how far they may be ahead, be it that they wait so long */
	__u64 tat;   /* data: when all of them together conform again */
	__u64 bytes; /* data: inner IP octets that passed, less than 1 << step of each CPU */
	__u64 over;  /* data: inner IP octets that found their share, but no room in the whole */
	__u64 drops; /* data: packets beyond a share, or the whole */
	__u32 step;  /* control: a CPU tells of its octets when they fill this power of two */
	__u32 reserved4;
	__u64 reserved;
};

/* A packet rate (TS 29.244, 8.2.63): so many packets in each time unit, which begins with the first packet
 * after the one before has ended. Times count in 2^20 ns.
 *
 *  limit:  0..19 packets; 20..63 length of the time unit
 *  state:  0..19 packets that passed; 20..63 when the time unit began
 */
#define TP_PACKETS_MASK 0xfffffULL
#define TP_PACKETS_SHIFT 20
#define TP_PACKETS_TIME_SHIFT 20

/* ---- tp_rule: one filter of one PDR ----------------------------------------------------------- */

/* Filters of one key stand in rules[] two to a place, in order of rising precedence value; the first match wins. Each
 * place leads to the next (tp_rules_next()), wherever that is: so long as there are places, a list of any length fits.
 * Beside the filter, the entry's own UE and QFI conditions (head) must hold. What few filters ask for (struct
 * tp_rule_more) stands in places of its own. All of it is immutable once published. */
#define TP_RULES_PER_PLACE 2
#define TP_RULES_PLACES (TP_RULES_MAX / TP_RULES_PER_PLACE)

/* What filters compare in one step. Bits of tp_rule.value and mask:
 *
 *  0..31  remote  the far end's address, host order, of IPv6 its first 32 bits: the destination of what came in
 *                 a tunnel, else the source
 * 32..39  proto   upper layer protocol
 * 40..47  tos     ToS or Traffic Class
 * 48      V6      IPv6
 * 49      PORTS   TCP, UDP or SCTP, and no later fragment
 * 50      FRAGMENT  of no rule: the packet is a part of one
 * 51..62  of no packet: in value, a half of the number of the next place, the lower one in the first rule
 * 63      NEVER   of no packet: a place that is not full is filled with rules that ask for it
 */
#define TP_FLOW_PROTO_SHIFT 32
#define TP_FLOW_TOS_SHIFT 40
#define TP_FLOW_V6 (1ULL << 48)
#define TP_FLOW_PORTS (1ULL << 49)
#define TP_FLOW_FRAGMENT (1ULL << 50)
#define TP_FLOW_NEVER (1ULL << 63)
#define TP_FLOW_NEXT_SHIFT 51
#define TP_FLOW_NEXT_BITS 12
#define TP_RULES_ROOM (1U << 2 * TP_FLOW_NEXT_BITS) /* places that can be told apart, here and in head */

#define TP_RULE_LAST (1U << 31) /* in more, of the last rule of a place: there are no more places */

struct tp_rule {
	__u64 value; /* the bits of mask must be these */
	__u64 mask;
	__u16 remote_port, remote_span; /* lowest port, and how many follow it; a packet without ports has 0 */
	__u16 ue_port, ue_span;
	__u32 entry; /* index into entries[] */
	__u32 more;  /* 0: nothing; else bits 0..30: place of its struct tp_rule_more, plus one */
};

struct tp_rules {
	struct tp_rule rule[TP_RULES_PER_PLACE];
};

/* The place behind one without TP_RULE_LAST. */
static inline __attribute__((always_inline)) __u32 tp_rules_next(const struct tp_rules *rules)
{
	__u32 half = (1U << TP_FLOW_NEXT_BITS) - 1;

	return ((__u32)(rules->rule[0].value >> TP_FLOW_NEXT_SHIFT) & half) |
	       ((__u32)(rules->rule[1].value >> TP_FLOW_NEXT_SHIFT) & half) << TP_FLOW_NEXT_BITS;
}

#define TP_MORE_LABEL 1 /* compare label: IPv6 only */
#define TP_MORE_SPI 2	/* compare spi: ESP and AH, and no later fragment */
#define TP_MORE_QFIS 4	/* the packet must carry one of qfis */

/* What a filter asks for beyond its rule. Addresses as struct tp_addr has them: host order, left-aligned. */
struct tp_rule_more {
	__u64 remote[2];
	__u64 ue[2];
	__u8 remote_plen; /* 0: any */
	__u8 ue_plen;
	__u16 flags;
	__u32 label;
	__u32 spi;
	__u32 pad;
	__u64 qfis; /* bit n: QFI n */
	__u64 reserved;
};

/* ---- Indexes ---------------------------------------------------------------------------------- */

/* By TEID: entries[teid & 0xffffff] when it lies inside the table and its head.key is the TEID; else the buckets.
 * By UE IPv4: ue_dir[ni << TP_UE_DIR_BITS | addr >> TP_UE_PAGE_BITS] is a page number plus one, and
 *   ue_pages[(page << TP_UE_PAGE_BITS) + low bits] the entry index plus one; 0 anywhere: ask the buckets, and
 *   when they know nothing the frame is the kernel's. TP_UE_NOBODY: in a pool, but no session has it.
 *   An address that is no UE's own may lie in a prefix that is: tp_ni says of which lengths there are some, and
 *   the longest decides.
 *   ni is the one of the port (tp_ni of its program): network instances that share an N6 port share a directory,
 *   that of the lowest of them, and their bucket keys carry that number too.
 *   A directory or a page is one map value, because the stride of a BPF array is a multiple of eight bytes.
 * Buckets: two choices of one line each. */
#define TP_UE_NOBODY 0xffffffffU

struct tp_ue_dir {
	__u32 page[1 << TP_UE_DIR_BITS];
};

struct tp_ue_page {
	__u32 slot[1 << TP_UE_PAGE_BITS];
};

enum tp_kind {
	TP_KIND_TEID = 1,   /* key: TEID */
	TP_KIND_UE4 = 2,    /* key: address, host order */
	TP_KIND_UE6 = 3,    /* key: upper 64 bits of the address, host order (a /64) */
	TP_KIND_NEIGH4 = 4, /* key: address, host order; value: next hop */
	TP_KIND_NEIGH6 = 5, /* key: tp_fold6() of the address; value: next hop, whose addr is re-checked */
	TP_KIND_PREFIX4 = 6, /* key: address, host order, zeros beyond the prefix */
	TP_KIND_PREFIX6 = 7, /* key: tp_prefix6_key() of the address, zeros beyond the prefix */
};

/* Of a prefix, its length stands in the upper half of the kind. A /32 is a TP_KIND_UE4 and a /64 a TP_KIND_UE6. */
#define TP_KIND_PLEN_SHIFT 8
#define TP_PREFIX4_MAX 31
#define TP_PREFIX6_MAX 128

struct tp_slot {
	__u64 key;
	__u64 value; /* bits 0..31 value, 32..47 network instance, 48..63 enum tp_kind; 0: free. Written after key. */
};

struct tp_bucket {
	struct tp_slot slot[TP_BUCKET_SLOTS];
};

/* Key of TP_KIND_NEIGH6. hi, lo: halves of the address, host order. Distinct for addresses of one /64. */
static inline __attribute__((always_inline)) __u64 tp_fold6(__u64 hi, __u64 lo)
{
	return hi * 0x9e3779b97f4a7c15ULL ^ lo;
}

/* Bucket choice, ni_kind being bits 32..63 of tp_slot.value. mask = number of buckets - 1. The salt keeps a peer from aiming at one bucket. */
static inline __attribute__((always_inline)) __u64 tp_hash(__u64 key, __u32 ni_kind, __u64 salt)
{
	__u64 x = (key ^ salt) * 0x9e3779b97f4a7c15ULL;

	x ^= x >> 29;
	x += (__u64)ni_kind * 0xc2b2ae3d27d4eb4fULL;
	x *= 0xbf58476d1ce4e5b9ULL;
	x ^= x >> 32;
	x *= 0x94d049bb133111ebULL;
	return x; /* first bucket: x >> 40 & mask; second: x >> 8 & mask */
}

/* Key of TP_KIND_PREFIX6. Up to 64 bits are the key. Of longer prefixes no two of one /64 have the same; two others
 * have it, for a salt that nobody knows, once in 2^64. */
static inline __attribute__((always_inline)) __u64 tp_prefix6_key(__u64 hi, __u64 lo, __u32 plen, __u64 salt)
{
	return plen <= 64 ? hi : tp_hash(hi, TP_KIND_PREFIX6, salt) ^ lo;
}

/* ---- Next hops, peers, routes ----------------------------------------------------------------- */

enum tp_nh_state {
	TP_NH_NONE = 0,	      /* no route: dropped under its own reason */
	TP_NH_RESOLVED = 1,   /* l2 is right */
	TP_NH_UNRESOLVED = 2, /* known, not yet resolved: handed to the kernel through the slow path */
	TP_NH_ONLINK = 3,     /* of a route only: the destination itself is the neighbour: look it up by
				 TP_KIND_NEIGH4/6 and head.ni; unknown there: as UNRESOLVED */
	TP_NH_FIB = 4,	      /* ask the kernel's FIB */
	TP_NH_LOCAL = 5,      /* the destination is this host: users must not reach it */
	TP_NH_PROHIBIT = 6,   /* blackhole, unreachable, prohibit */
	TP_NH_FAILED = 7,     /* does not answer, and is asked for without a packet's help */
	TP_NH_POLICY = 8,     /* a forwarding policy leads nowhere at present, and has no fallback */
};

/* Immutable once published, apart from its index being swapped. */
struct tp_nexthop {
	__u32 state;   /* enum tp_nh_state */
	__u32 port;    /* devmap slot, 0..TP_PORTS_MAX-1 */
	__u32 ifindex; /* where the slow path sends */
	__u16 mtu;     /* largest IP packet */
	__u8 l2_len;   /* 14, or 18 with a VLAN tag */
	__u8 pad;
	__u8 l2[24];   /* destination and source MAC, tag, EtherType (rewritten per family) */
	__u8 addr[16]; /* neighbour address, for TP_KIND_NEIGH6's re-check */
	__u64 reserved;
};

/* A remote tunnel end: one gNB address seen from one of our addresses of its family. With TP_PEER_UDP a line of its own. */
struct tp_peer {
	__u32 nexthop;	 /* control: index into nexthops[]; swapped when the neighbour or route changes */
	__u32 remote_be; /* control: gNB address */
	__u32 local_be;	 /* control: our address */
	__u32 flags;	 /* control: TP_PEER_* */
	__u8 remote6[16]; /* control: with TP_PEER_V6, in place of remote_be */
	__u8 local6[16];  /* control: with TP_PEER_V6, in place of local_be */
	__u64 reserved[2];
};

#define TP_PEER_V6 1	   /* the outer header is IPv6 */
#define TP_PEER_UDP 2	   /* what goes there is UDP without GTP-U */
#define TP_PEER_ZERO_SUM 4 /* with V6: no UDP checksum (RFC 6935) */

#define TP_ROUTE_LAST 1
#define TP_ROUTE_NONE 2 /* in a map: there is no default route */
#define TP_ROUTE_IN_POOL 4 /* within a pool of the port, and longer: to addresses there that no session has */
struct tp_route {
	__u8 addr[16]; /* IPv4 in the first four bytes */
	__u8 plen;
	__u8 flags;
	__u16 pad;
	__u32 nexthop;
	__u64 reserved[5];
};

/* The default route, and which destinations need a scan: one bit for each value of an address's first
 * octet. */
struct tp_route_map {
	__u64 covered[4];
	__u32 nexthop; /* of the default route */
	__u8 flags;    /* LAST: there is no other route */
	__u8 pad[3];
	__u64 reserved[3];
};

/* Routes of a network instance, or of a forwarding policy for packets of one, one list for each family in routes[]: a struct
 * tp_route_map in the first place, then all routes but the default one, longest prefix first; the last one is flagged. Few
 * destinations lie near a route other than the default one, and all others are spared the scan. A list is immutable, apart from the next hops, and swapped by one store. 0: no route at all. */
struct tp_ni {
	__u32 routes4; /* control: place of the map, index into routes[]; 0 none */
	__u32 routes6;
	__u64 lens6[2]; /* control: bit n - 1 is set if a prefix of n bits is in the buckets; of its own directory */
	__u64 lens4;    /* control: bit n likewise */
	__u64 pools6;   /* control: IPv6 pools of its own directory, as tp_ext.framed and n_framed in bits 0..31 and 32..63 */
	__u64 ue4;   /* control: bit n is set if a UE may have an address whose first octet is n modulo 64 */
	__u64 ue6;   /* control: bit tp_ue6_bit() of the prefixes that UEs may have */
	__u32 home;  /* control: whose directory its UE addresses are in, see below */
	__u32 flags; /* control: TP_NI_* */
};

#define TP_NI_NO_UE_TO_UE 1 /* UEs do not reach each other within this UPF */
#define TP_NI_SHARED 2	    /* others have their UE addresses in the same directory */
/* Where tp_ni.flags has the network instance itself: another one where a line holds the routes of a forwarding policy for
 * packets of that network instance. */
#define TP_NI_SELF_SHIFT 16

/* Which bit of tp_ni.ue6 an address has: of its upper 32 bits, what an operator is given. */
static inline __attribute__((always_inline)) __u32 tp_ue6_bit(__u64 hi)
{
	return (__u32)(hi >> 32) * 0x9e3779b1U >> 26;
}

/* ---- Configuration and per-CPU state ----------------------------------------------------------- */

struct tp_config {
	__u32 n3_be[TP_N3_ADDRS_MAX]; /* local GTP-U addresses, IPv4; 0 ends the list */
	__u64 salt;		      /* of tp_hash */
	__u32 bucket_mask;
	__u32 n_entries;
	__u32 error_indication_ns;    /* mean spacing of Error Indications per CPU; 0: none are sent */
	__u32 echo_ns;		      /* mean spacing of Echo Responses per CPU; 0: no limit */
	__u32 moves;		      /* odd while control moves a slot between buckets: a miss is looked up again */
	__u32 n_nis;
	__u32 port_ifindex[TP_PORTS_MAX]; /* interface of each devmap slot, 0 none: where a FIB answer may go */
	__u32 icmp_ns;			  /* mean spacing of ICMP errors of one kind per CPU; 0: none are sent */
	__u32 held_max;			  /* packets of one entry that may be held; 0: none are */
	__u64 n3_6[TP_N3_ADDRS_MAX][2]; /* local GTP-U addresses, IPv6, as on the wire; zeros end the list */
	__u64 longest_wait_ns; /* control: of a frame above its rate that user space keeps */
	__u64 shaper_frames;   /* control: how many it keeps; 0: none, they leave at once */
	__u64 l4s_ticks; /* packets of L4S that meters are so far ahead of are marked; 0: none are */
	__u32 ue_first;	 /* control: expected entries of UE addresses, see tp_expected_entry() */
	__u32 ue_mask;
	__u64 managed_until_ns; /* control, again and again: users' packets drop later than this, monotonic; 0: they do not */
	__u64 reserved[2];
	__u64 shaped; /* data, all: how many it keeps or is being handed; in a line of its own, for all packets read the others */
};

/* Entry that a slot of ue_pages most often leads to. The slot decides: control takes this entry if it is free, and any other if
 * it is not. With more slots than entries some expect the same one.
 *
 * place  of the slot: page << TP_UE_PAGE_BITS | low bits of the address */
static inline __attribute__((always_inline)) __u32 tp_expected_entry(const struct tp_config *config, __u32 place)
{
	return config->ue_first + (place & config->ue_mask);
}

struct tp_traffic {
	__u64 packets;
	__u64 bytes; /* of the frame */
};

/* What a port did with frames, by direction. in = out + passed + answered + slow + dropped. */
struct tp_port_stats {
	struct tp_traffic in[TP_DIRS];	/* every frame; one that is passed counts as uplink on a port without N6 role */
	struct tp_traffic out[TP_DIRS]; /* frames forwarded, counted where they came in */
	__u64 passed;	/* frames left to the kernel */
	__u64 answered; /* Echo Responses and Error Indications sent in place of the frame */
	__u64 slow;	/* packets handed to the slow path */
	__u64 later;	/* of out: frames above their rate, which leave when their time has come */
};

#define TP_DROP_MAX 64

/* What a step says. 0: go on. 1..63: enum tp_drop. From 64: the packet's journey is over. */
enum tp_outcome {
	TP_OK = 0,
	TP_OUT_PASS = TP_DROP_MAX,
	TP_OUT_ANSWER,
	TP_OUT_REDIRECT,
	TP_OUT_SLOW,
	TP_OUT_FRAGMENT, /* never final: see tp_parse_outer() and tp_match_rules() */
	TP_OUT_UE,	 /* nor this: see tp_find_route() */
	TP_OUT_HELD,	 /* user space holds it: see tp_hold() */
	TP_OUT_WAIT,	 /* nor this: see tp_must_wait() */
	TP_OUT_LATER,	 /* as REDIRECT, but user space sends it when its time has come: see tp_leave_later() */
};

/* Packets above rates that shape, as a worker has them wait (platform/worker/tp_wheel.h). */
struct tp_shaper_stats {
	__u64 waiting; /* now */
	__u64 delayed; /* that have come to wait, ever */
	__u64 waited;  /* how long all of these have waited so far, together, in units of 2^TP_WAITED_SHIFT ns: of nanoseconds a word
			* would be full after some hours with a million packets that wait */
};

#define TP_WAITED_SHIFT 10

#define TP_SENDERS 64 /* told apart by a hash of their address, where each may have only so much */

/* How the packet under way leaves. */
struct tp_leave {
	__u64 at_ns; /* by its meters; 0: at once */
	__u64 by;    /* devmap slot */
};

/* One per CPU, written by that CPU only. */
struct tp_cpu {
	__u64 clock_ns;	  /* last exact reading */
	__u64 clock_uses; /* packets served from it */
	__u64 error_indication_tat;
	__u64 echo_tat;
	__u64 clock_tick; /* the kernel's tick at the last exact reading */
	__u64 managed_tick; /* tick at which somebody was still in charge: tp_is_unmanaged() */
	__u64 trace_tat;
	__u64 trace_lost; /* records that user space did not get */
	__u64 message_tat;
	__u64 expired_tat; /* of packets whose sender is told that their time was up */
	__u64 too_long_tat; /* ... that they were too long */
	__u64 solicitation_tat;
	__u64 copies;	   /* duplicates handed to user space */
	__u64 copies_lost; /* duplicates that it did not get */
	__u64 alarms;	   /* crossings that user space was told of */
	__u64 alarms_lost; /* crossings that it was not told of at once: it looks through all entries */
	__u64 extension_tat; /* of peers that are told which extension headers we understand */
	struct tp_leave leave; /* where packets wait in user space */
	struct tp_nexthop hop; /* the FIB's answer for the packet under way */
	__u64 capacities[TP_CAPACITIES_MAX]; /* inner IP octets that passed, told of or not */
	__u64 expired_tats[TP_SENDERS]; /* as expired_tat, by sender */
	__u64 too_long_tats[TP_SENDERS];
	struct tp_port_stats ports[TP_PORTS_MAX];
	__u64 drops[TP_PORTS_MAX][TP_DIRS][TP_DROP_MAX];
	struct tp_shaper_stats shaper; /* of workers */
	__u64 busy_ns;	     /* of workers: time with packets, without what has run since busy_since_ns */
	__u64 busy_since_ns; /* monotonic; 0: it has none */
};

/* Tables that are arrays, by the names of their elements and of the array. */
#define TP_TABLES(TABLE)           \
	TABLE(entry, entries)      \
	TABLE(side, sides)         \
	TABLE(ext, exts)           \
	TABLE(meter, meters)       \
	TABLE(capacity, capacities) \
	TABLE(rules, rules)        \
	TABLE(bucket, buckets)     \
	TABLE(nexthop, nexthops)   \
	TABLE(peer, peers)         \
	TABLE(route, routes)       \
	TABLE(ni, nis)             \
	TABLE(ue_dir, ue_dir)      \
	TABLE(ue_page, ue_pages)   \
	TABLE(trace_key, trace_keys)

/* ---- Slow path --------------------------------------------------------------------------------- */

enum tp_event_kind {
	TP_EVENT_SEND = 1,   /* send data (an IP packet) out of ifindex; the kernel resolves the neighbour */
	TP_EVENT_PACKET = 2, /* data is a struct tp_task and what it is about */
	TP_EVENT_GTPU = 3,   /* data is an IP packet: a GTP-U message that is not a G-PDU, for the control plane */
	TP_EVENT_COPY = 4,   /* data is a struct tp_copy and a user's packet, which goes there; in a ring of its own */
	TP_EVENT_TRACE = 5,  /* a struct tp_trace, in a ring of its own */
	TP_EVENT_HELD = 6,   /* data is a struct tp_held and what it is about, in a ring of its own */
	TP_EVENT_LATER = 7,  /* data is a struct tp_later and a frame, in a ring of its own */
};

/* What user space is to do with a packet (struct tp_task). */
enum tp_task_kind {
	TP_TASK_OUTER_FRAGMENT = 1, /* a frame: a fragment of UDP to an N3 address; reassemble, then begin again */
	TP_TASK_EXPIRED = 2,	    /* a user's packet, or its beginning, lost as ttl: tell its sender */
	TP_TASK_TOO_LONG = 3,	    /* the same, lost as mtu */
	TP_TASK_CUT = 4,	    /* a user's packet, IPv4: send it in fragments */
	TP_TASK_SOLICITATION = 5,   /* a UE's Router Solicitation */
	TP_TASK_INNER_FRAGMENT = 6, /* a frame: a fragment of a user's packet, whose ports filters ask for */
	TP_TASK_EXTENSION = 7,	    /* the outer IP header of a G-PDU that was lost as gtpu_unknown_extension: tell its sender */
};

#define TP_TASK_FROM_UE 1 /* it came in a tunnel */
#define TP_TASK_RELAYED 2 /* ... and goes on in one: TOO_LONG has the TEID that it came with, and its QFI, in out; CUT is about the
			     GTP-U message, whose header has as many octets as marks says */
#define TP_TASK_DOWN 4	  /* with RELAYED: towards access */

struct tp_task {
	__u8 what;	/* enum tp_task_kind */
	__u8 tunnel_len; /* TOO_LONG, CUT: octets of the headers of the tunnel it leaves through; 0: none */
	__u16 mtu;	 /* TOO_LONG, CUT: of the way out, tunnel headers included; INNER_FRAGMENT: offset of the user's packet */
	__u16 ni;	 /* of the PDR that took it */
	__u16 flags;	 /* TP_TASK_FROM_UE, _RELAYED, _DOWN */
	__u64 out;	 /* CUT, of a tunnel: tp_entry.out; SOLICITATION, INNER_FRAGMENT: TEID that it came with, 0: none;
			    TOO_LONG, RELAYED: TEID in bits 0..31, QFI in 32..39 */
	__u16 marks;	 /* CUT, of a tunnel: of struct tp_tunnel, as is mark; RELAYED: octets of the GTP-U header */
	__u16 mark;
	__u32 ifindex;	 /* TOO_LONG, CUT: way out */
};

/* A packet that waits (FAR with BUFF): the frame as it came in, so that it goes on later as if it came in then. */
struct tp_held {
	__u32 entry; /* index of the PDR's, whose held counts it */
	__u16 user;  /* offset of the user's packet in what follows */
	__u16 flags; /* TP_HELD_* */
};

#define TP_HELD_BARE 1 /* a user's packet, from its IP header on, that another UE of this UPF has sent */

/* A frame above its rate, as it is to leave. */
struct tp_later {
	__u64 leaves_ns;
	__u32 entry; /* index of the one whose shaped counts it; TP_LATER_UNCOUNTED */
	__u32 to;    /* devmap slot */
};

#define TP_LATER_UNCOUNTED 0xffffffffU

#define TP_EVENT_DATA_MAX 9728 /* a jumbo frame; longer packets drop as slow_path_full */

/* A record of the event ring is at least this header and len bytes; what follows is padding. */
struct tp_event {
	__u32 kind;
	__u32 ifindex; /* 0: by the kernel's routes */
	__u32 len;
	__u16 port;   /* where the frame came in */
	__u16 worker; /* that took it in, by its number; XDP: 0 */
	__u8 data[];
};

/* ---- Tracing ------------------------------------------------------------------------------------ */

#define TP_TRACE_KEYS_MAX 64
#define TP_TRACE_SNAP 256 /* octets of a frame in its record */

enum tp_trace_kind {
	TP_TRACE_TEID = 1, /* hi: TEID */
	TP_TRACE_UE4 = 2,  /* hi: address in the upper half, host order */
	TP_TRACE_UE6 = 3,  /* hi, lo: address, host order */
};

/* Whose packets are followed. The first key of kind 0 ends the list. Rewritten under traffic: a packet that
 * comes meanwhile may be reported wrongly, or not at all. */
struct tp_trace_key {
	__u64 hi, lo;		/* control */
	__u64 mask_hi, mask_lo; /* control: bits that are compared */
	__u32 kind;		/* control: enum tp_trace_kind */
	__u32 traces;		/* control: bit for each trace that asks for it */
	__u64 reserved[3];
};

/* A packet that somebody follows. */
struct tp_trace {
	__u32 kind;   /* TP_EVENT_TRACE */
	__u32 traces; /* bit for each trace that asks for it */
	__u64 time_ns; /* monotonic */
	__u32 teid;    /* 0: not tunnelled */
	__u32 frame_len;
	__u16 pdr; /* PDR ID, with matched */
	__u8 port;
	__u8 dir;     /* enum tp_dir */
	__u8 outcome; /* enum tp_drop, or enum tp_outcome */
	__u8 qfi;     /* 0xff: none */
	__u8 matched; /* a PDR took it */
	__u8 pad;
	__u16 gtpu; /* offset of the GTP-U header; 0: none */
	__u16 user; /* offset of the user's IP packet; 0: not found */
	__u16 predefined; /* predefined rule of the PDR, from 1 on; 0: none */
	__u16 reserved;
	__u8 data[TP_TRACE_SNAP]; /* the frame as it came in; frame_len octets of it mean something */
};

/* ---- Features: what the program is specialised to ---------------------------------------------- */

/* Code behind a clear bit is not there. Which sets there are: the builds below. */
#define TP_FEAT_METER (1 << 0)	/* MBR enforcement, inline meters */
#define TP_FEAT_EXT (1 << 1)	/* IPv6 UE check, shared meters, shares of capacities */
#define TP_FEAT_LIST (1 << 2)	/* several PDRs per key, SDF filters */
#define TP_FEAT_IPV6 (1 << 3)	/* inner IPv6; without it uplink IPv6 drops as ue_spoofed and downlink IPv6 passes */
#define TP_FEAT_VLAN (1 << 4)	/* tagged frames */
#define TP_FEAT_BUCKETS (1 << 5) /* SMF-chosen TEIDs outside the table, scattered addresses, on-link neighbours */
#define TP_FEAT_FIB (1 << 6)	/* next hops in state TP_NH_FIB */
#define TP_FEAT_ATOMIC (1 << 7) /* packets of a direction come in on several CPUs: atomic counters */
#define TP_FEAT_OUTER6 (1 << 8) /* IPv6 between gNB and UPF */
#define TP_FEAT_RELAY (1 << 9)	/* from tunnel to tunnel, with extension headers and end markers */
#define TP_FEAT_PREFIX (1 << 12) /* framed routes, and UE prefixes that are no /64 */
#define TP_FEAT_COPY (1 << 13) /* FARs with DUPL */
#define TP_FEAT_UDP (1 << 14) /* outer headers of UDP without GTP-U */
#define TP_FEAT_BUFFER (1 << 15) /* FARs with BUFF */
#define TP_FEAT_SHAPE (1 << 16) /* packets above their rate wait in user space; not in TP_FEAT_ALL */
#define TP_FEAT_ALL \
	(0xff | TP_FEAT_OUTER6 | TP_FEAT_RELAY | TP_FEAT_PREFIX | TP_FEAT_COPY | TP_FEAT_UDP | TP_FEAT_BUFFER)
#define TP_FEAT_SPREAD (1 << 11) /* users are spread over CPUs (tp_spread); not in TP_FEAT_ALL */
#define TP_FEAT_TRACE (1 << 10) /* somebody follows a user's packets; not in TP_FEAT_ALL */

/* Builds: what the XDP program is compiled for, narrowest first. The narrowest that has what live sessions and next
 * hops need is the one that runs; of its features three may be left out when it is loaded: TP_FEAT_ATOMIC where one CPU
 * meets all packets of a direction, TP_FEAT_TRACE while nobody follows packets, and of the general one TP_FEAT_SHAPE where
 * rates police. */
#define TP_BUILD_PLAIN (TP_FEAT_METER | TP_FEAT_VLAN | TP_FEAT_BUCKETS | TP_FEAT_ATOMIC | TP_FEAT_BUFFER)
#define TP_BUILD_COMMON (TP_BUILD_PLAIN | TP_FEAT_EXT | TP_FEAT_LIST | TP_FEAT_IPV6)
#define TP_BUILD_OUTER6 (TP_BUILD_COMMON | TP_FEAT_OUTER6)
#define TP_BUILD_RELAY (TP_BUILD_COMMON | TP_FEAT_RELAY)
#define TP_BUILD_SPREAD (TP_BUILD_COMMON | TP_FEAT_SPREAD)
#define TP_BUILD_SHAPE (TP_BUILD_COMMON | TP_FEAT_SHAPE)
#define TP_BUILD_GENERAL (TP_FEAT_ALL | TP_FEAT_TRACE | TP_FEAT_SPREAD | TP_FEAT_SHAPE)

#define TP_ROLE_N3 1
#define TP_ROLE_N6 2
#define TP_ROLE_FORWARDED 4 /* with N6: a router of this host brings the packets, and has spent their hop */

_Static_assert(sizeof(struct tp_entry) == 64, "one line");
_Static_assert(sizeof(struct tp_ext) == 64, "one line");
_Static_assert(sizeof(struct tp_meter) == 64, "one line");
_Static_assert(sizeof(struct tp_capacity) == 64, "one line");
_Static_assert(sizeof(struct tp_rule) == 32, "half a line");
_Static_assert(sizeof(struct tp_rules) == 64, "one line");
_Static_assert(sizeof(struct tp_rule_more) == sizeof(struct tp_rules), "one place in rules[]");
_Static_assert(sizeof(struct tp_framed_routes) == sizeof(struct tp_rules), "one place in rules[]");
_Static_assert(sizeof(struct tp_copy) == 64, "one line");
_Static_assert(sizeof(struct tp_copies) == sizeof(struct tp_rules), "one place in rules[]");
_Static_assert(sizeof(struct tp_bucket) == 64, "one line");
_Static_assert(sizeof(struct tp_nexthop) == 64, "one line");
_Static_assert(sizeof(struct tp_peer) == 64, "one line");
_Static_assert(sizeof(struct tp_route) == 64, "one line");
_Static_assert(sizeof(struct tp_route_map) == sizeof(struct tp_route), "one place in routes[]");
_Static_assert(sizeof(struct tp_ni) == 64, "one line");
_Static_assert(sizeof(struct tp_trace_key) == 64, "one line");
_Static_assert(sizeof(struct tp_trace) == 40 + TP_TRACE_SNAP, "tp_trace");
_Static_assert(sizeof(struct tp_side) == 64, "one line");
_Static_assert(sizeof(struct tp_task) == 24, "three words");
_Static_assert(sizeof(struct tp_held) == 8, "a word");
_Static_assert(sizeof(struct tp_later) == 16, "two words");
_Static_assert(__builtin_offsetof(struct tp_config, shaped) == 320, "a line of its own");

#endif
