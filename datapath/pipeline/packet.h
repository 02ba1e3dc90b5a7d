/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The packet on its journey, and how its octets are reached. */
#ifndef TP_PACKET_H
#define TP_PACKET_H

#include "tp_platform.h"

/* Offsets beyond this are never looked at: the verifier wants a bound, and no frame is longer. */
#define TP_OFFSET_MAX 0x7fffU

#define TP_NO_QFI 0xffU

struct tp_packet {
	struct tp_env *env;
	struct tp_config *config;
	struct tp_cpu *cpu;
	__u8 *data;
	__u8 *end;
	__u32 frame_len; /* as it came in */
	__u32 out_len;	 /* as it goes out */
	__u32 dir;	 /* enum tp_dir */
	__u32 l3;	 /* offset of the frame's IP header */
	__u32 gtpu;	 /* offset of the GTP-U header */
	__u32 gtpu_end;	 /* offset behind the GTP-U message */
	__u32 teid;
	__u32 qfi;	/* of the PDU Session Container; TP_NO_QFI: there was none */
	__u32 for_end;	/* with TP_GTPU_EXT_REQUIRED: an extension header that the end of the tunnels must understand */
	__u32 user;	/* offset of the user's IP packet */
	__u32 user_len; /* its length by its own header */
	__u32 family;	/* 4 or 6 */
	__u32 side;	/* index plus one of the entry that is counted in sides[]; 0: the entry counts for itself */
	__u8 *ip;	/* the user's IP header: 20 octets are there, 40 when family is 6 */
};

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

/* The part of a packet that filters and conditions look at, in two words. */
static TP_INLINE __u64 tp_pack_user(const struct tp_packet *p)
{
	return (__u64)p->dir << 56 | (__u64)p->family << 48 | (__u64)p->qfi << 40 | (__u64)p->user << 20 | p->user_len;
}

static TP_INLINE int tp_unpack_user(struct tp_packet *p, __u64 packed)
{
	p->data = tp_data(p->env);
	p->end = tp_end(p->env);
	p->dir = packed >> 56 & 1;
	p->family = packed >> 48 & 0xff;
	p->qfi = packed >> 40 & 0xff;
	p->user = packed >> 20 & 0xfffff;
	p->user_len = packed & 0xfffff;
	p->ip = tp_at(p, p->user, TP_IP4_LEN);
	if (p->ip && p->family != 4)
		p->ip = tp_at(p, p->user, TP_IP6_LEN);
	return p->ip != NULL;
}

/* An outcome that ends the journey, made where the verifier cannot see that it is not TP_OK. */
static TP_INLINE int tp_final(int outcome)
{
	return outcome ? outcome : TP_DROP_TABLE;
}

#endif
