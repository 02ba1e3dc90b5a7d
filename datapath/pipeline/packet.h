/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The packet on its journey, what those of one burst share, and how octets are reached. */
#ifndef TP_PACKET_H
#define TP_PACKET_H

#include "tp_platform.h"

/* Offsets beyond this are never looked at: the verifier wants a bound, and no frame is longer. */
#define TP_OFFSET_MAX 0x7fffU

#define TP_NO_QFI 0xffU

/* The tunnel that a packet leaves through. */
struct tp_tunnel {
	const struct tp_peer *peer6; /* of an outer IPv6 header: its addresses; NULL: it is IPv4 */
	__u64 user_sum;		     /* of an outer IPv6 header: tp_sum_frame() of the user's packet, or TP_NO_SUM */
	__u32 len; /* 0: none; TP_TUNNEL_LEN or TP_TUNNEL6_LEN, 8 or 12 more with a PDU Session Container */
	__u32 local_be;
	__u32 remote_be;
	__u32 teid_be;
	__u16 container; /* octet with the QFI in bits 0..7, octet with the PPI in 8..15 */
	__u16 marking;	 /* of the outer IP header, or of plain IP, as tp_mark_ip() has it; 0: none */
	__u32 pdu_type; /* TS 38.415, 5.5.2: 0 downlink, 1 uplink */
};

/* What a burst shares; for a program of one packet, its surroundings. */
struct tp_run {
	struct tp_config *config;
	struct tp_cpu *cpu;
	__u64 now_ns; /* 0: nobody has asked yet, see tp_now() */
};

struct tp_packet {
	struct tp_env *env;
	__u8 *data;
	__u8 *end;

	/* open: what its headers say */
	__u32 frame_len; /* as it came in */
	__u32 dir;	 /* enum tp_dir */
	__u32 l3;	 /* offset of the frame's IP header */
	__u32 gtpu;	 /* offset of the GTP-U header; 0: not tunnelled */
	__u32 gtpu_end;	 /* offset behind the GTP-U message */
	__u32 type;	 /* of the GTP-U message */
	__u32 teid;
	__u32 qfi;	/* of the PDU Session Container; TP_NO_QFI: there was none */
	__u32 for_end;	/* with TP_GTPU_EXT_REQUIRED: an extension header that the end of the tunnels must understand */
	__u32 user;	/* offset of the user's IP packet */
	__u32 user_len; /* its length by its own header */
	__u32 family;	/* 4 or 6 */
	__u8 *ip;	/* the user's IP header: 20 octets are there, 40 when family is 6 */

	/* seek, take: which PDR takes it */
	struct tp_entry *entry; /* NULL: none, or none yet */
	__u32 index;		/* of entry */
	__u64 head;		/* of entry, read once */

	/* judge: what is to be done with it, beside the outcome */
	const struct tp_nexthop *nh; /* the way out */
	__u32 way;		     /* its index, or TP_WAY_FIB: it is tp_cpu.hop */
	struct tp_tunnel tunnel;     /* ... and what it leaves in */
	__u32 also;		     /* TP_ALSO_*, whatever becomes of it */
	__u32 sender; /* with TP_ALSO_SENDER: index of the PDR that it came by; entry is the one that it goes by */

	/* send */
	__u32 out_len; /* as it goes out */
};

#define TP_WAY_FIB 0xffffffffU

#define TP_ALSO_HOP 1	     /* its TTL is one less when it leaves */
#define TP_ALSO_COPIES 2     /* the FAR of the PDR that it came by duplicates it */
#define TP_ALSO_SENDER 4     /* it goes from UE to UE */
#define TP_ALSO_COPIES_TO 8  /* ... and the FAR of the other UE duplicates it */

/* What is still to be done with a packet that is not simply forwarded: what open, seek, take and judge may say beside TP_OK,
 * enum tp_drop and enum tp_outcome. send makes an outcome of it. */
#define TP_PLAN_FIRST (2 * TP_DROP_MAX)
enum tp_plan {
	TP_PLAN_REASSEMBLE = TP_PLAN_FIRST, /* open: a fragment of what may be GTP-U to us */
	TP_PLAN_MESSAGE,		      /* open: GTP-U, but no G-PDU */
	TP_PLAN_MARKER,			      /* open: an End Marker, which goes where its tunnel leads */
	TP_PLAN_UNKNOWN_TEID,		      /* seek */
	TP_PLAN_INNER_FRAGMENT,		      /* take: filters ask for ports that only user space knows */
	TP_PLAN_HOLD,			      /* judge: it waits */
	TP_PLAN_HOLD_FOR_UE,		      /* judge: ... for another UE */
	TP_PLAN_RELAY,			      /* judge: on in another tunnel, GTP-U header and all */
	TP_PLAN_UDP,			      /* judge: out in UDP alone */
	TP_PLAN_TOO_LONG,		      /* judge: to be cut, or its sender is told */
};

/* Monotonic nanoseconds, the same for the whole run. */
static TP_INLINE __u64 tp_now(struct tp_run *run, const struct tp_packet *p)
{
	if (!run->now_ns)
		run->now_ns = tp_clock(p->env, run->cpu);
	return run->now_ns;
}

/* n octets at offset off of the frame, or NULL. */
static TP_INLINE __u8 *tp_span(__u8 *data, __u8 *end, __u32 off, __u32 n)
{
	__u64 bounded = off;
	__u8 *at;

	tp_keep(bounded);
	if (bounded > TP_OFFSET_MAX)
		return NULL;
	at = data + bounded;
	tp_keep(at);
	if (!at)
		__builtin_unreachable(); /* spares the caller's test for NULL beside the one for the end */
	return at + n > end ? NULL : at;
}

/* An offset as good as `off` of which the verifier knows nothing, so that it follows what comes next
 * once and not for each way of getting here. at: what tp_span() gave for off. */
static TP_INLINE __u32 tp_forget(const __u8 *data, const __u8 *at)
{
	__u64 off = (__u64)(at - data);

	tp_keep(off); /* of pointers the verifier takes differences of 64 bits only */
	return (__u32)off;
}

static TP_INLINE __u8 *tp_at(const struct tp_packet *p, __u32 off, __u32 n)
{
	return tp_span(p->data, p->end, off, n);
}

/* The upper bits of a 64-bit word, 0..64 of them and more. */
static TP_INLINE __u64 tp_mask64(__u32 bits)
{
	return bits == 0 ? 0 : bits >= 64 ? ~0ULL : ~0ULL << (64 - bits);
}

/* An address, left-aligned in two words; IPv4 takes the upper half of hi. */
struct tp_addr {
	__u64 hi, lo;
};

static TP_INLINE int tp_in_prefix(struct tp_addr a, const __u8 *prefix, __u32 plen)
{
	if ((a.hi ^ tp_get64(prefix)) & tp_mask64(plen))
		return 0;
	return plen <= 64 || !((a.lo ^ tp_get64(prefix + 8)) & tp_mask64(plen - 64));
}

static TP_INLINE int tp_within(struct tp_addr a, const __u64 prefix[2], __u32 plen)
{
	return !((a.hi ^ prefix[0]) & tp_mask64(plen)) &&
	       (plen <= 64 || !((a.lo ^ prefix[1]) & tp_mask64(plen - 64)));
}

static TP_INLINE struct tp_addr tp_source(const struct tp_packet *p)
{
	struct tp_addr a = {0, 0};

	if (p->family == 4) {
		a.hi = (__u64)tp_get32(p->ip + 12) << 32;
	} else {
		a.hi = tp_get64(p->ip + 8);
		a.lo = tp_get64(p->ip + 16);
	}
	return a;
}

static TP_INLINE struct tp_addr tp_destination(const struct tp_packet *p)
{
	struct tp_addr a = {0, 0};

	if (p->family == 4) {
		a.hi = (__u64)tp_get32(p->ip + 16) << 32;
	} else {
		a.hi = tp_get64(p->ip + 24);
		a.lo = tp_get64(p->ip + 32);
	}
	return a;
}

/* What filters and conditions look at, in one word: number and offset of the octets of the user's packet in bits 0..19 and 20..39,
 * QFI in 40..47, family in 48..55, direction in 56; two more bits say TP_USER_*. */
#define TP_USER_FROM_UE (1ULL << 57) /* it came in a tunnel */
#define TP_USER_WHOLE (1ULL << 58)   /* do not ask user space for the ports of a fragment */
#define TP_USER_OFF_SHIFT 20
#define TP_USER_OCTETS 0xfffffU

static TP_INLINE __u64 tp_pack_user(const struct tp_packet *p)
{
	return (__u64)p->dir << 56 | (__u64)p->family << 48 | (__u64)p->qfi << 40 | (__u64)p->user << TP_USER_OFF_SHIFT | p->user_len;
}

static TP_INLINE int tp_unpack_user(struct tp_packet *p, __u64 packed)
{
	p->data = tp_data(p->env);
	p->end = tp_end(p->env);
	p->dir = packed >> 56 & 1;
	p->family = packed >> 48 & 0xff;
	p->qfi = packed >> 40 & 0xff;
	p->user = packed >> TP_USER_OFF_SHIFT & TP_USER_OCTETS;
	p->user_len = packed & TP_USER_OCTETS;
	p->ip = tp_at(p, p->user, TP_IP4_LEN);
	if (p->ip && p->family != 4)
		p->ip = tp_at(p, p->user, TP_IP6_LEN);
	return p->ip != NULL;
}

/* Octets of the frame in one word: offset in bits 32..63, number in 0..31. */
static TP_INLINE __u64 tp_octets(__u32 off, __u32 len)
{
	return (__u64)off << 32 | len;
}

static TP_INLINE __u32 tp_octets_at(__u64 octets)
{
	return (__u32)(octets >> 32);
}

static TP_INLINE __u32 tp_octets_len(__u64 octets)
{
	return (__u32)octets;
}

/* The user's packet. */
static TP_INLINE __u64 tp_user_octets(const struct tp_packet *p)
{
	return tp_octets(p->user, p->user_len);
}

/* What a function that is verified apart says of the packet: a number of which the verifier knows nothing, but that it is no
 * plan. */
static TP_INLINE int tp_said(int outcome)
{
	return outcome & (TP_PLAN_FIRST - 1);
}

/* The same where it is known not to be TP_OK. */
static TP_INLINE int tp_final(int outcome)
{
	outcome = tp_said(outcome);
	return outcome ? outcome : TP_DROP_TABLE;
}

#endif
