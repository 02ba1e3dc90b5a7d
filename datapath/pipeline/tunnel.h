/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Headers that we write: outer IPv4 or IPv6 and UDP, GTP-U, PDU Session Container. */
#ifndef TP_TUNNEL_H
#define TP_TUNNEL_H

#include "csum.h"
#include "packet.h"

#define TP_IP4_DONT_FRAGMENT 0x4000
#define TP_OUTER_TTL 64
#define TP_BARE_LEN (TP_IP4_LEN + TP_UDP_LEN)
#define TP_BARE6_LEN (TP_IP6_LEN + TP_UDP_LEN)

/* IPv4 and UDP in front of payload octets. No identification, because it is never fragmented
 * (RFC 6864, 4.1); no UDP checksum, as TS 29.281, 4.4.2 allows and RFC 6935 argues. */
static TP_INLINE void tp_put_outer_ip(__u8 *h, __u32 local_be, __u32 remote_be, __u16 port_be, __u32 payload)
{
	__u16 total = tp_swap16((__u16)(TP_IP4_LEN + TP_UDP_LEN + payload));
	__u64 sum = (__u64)tp_swap16(0x4500) + total + tp_swap16(TP_IP4_DONT_FRAGMENT) +
		    tp_swap16(TP_OUTER_TTL << 8 | 17) + local_be + remote_be;

	tp_store32(h, (__u32)total << 16 | 0x45);
	tp_store32(h + 4, (__u32)tp_swap16(TP_IP4_DONT_FRAGMENT) << 16);
	tp_store32(h + 8, (__u32)tp_csum_fold(sum) << 16 | 17 << 8 | TP_OUTER_TTL);
	tp_store32(h + 12, local_be);
	tp_store32(h + 16, remote_be);
	tp_store32(h + 20, (__u32)port_be << 16 | tp_swap16(TP_GTPU_PORT));
	tp_store32(h + 24, tp_swap16((__u16)(TP_UDP_LEN + payload)));
}

/* Transport level marking (TS 29.244, 8.2.12): ToS or traffic class of an IP header, whose first four octets
 * and checksum are at h. mark: value in bits 0..7, mask in 8..15. */
static TP_INLINE void tp_mark_ip(__u8 *h, __u32 mark)
{
	__u32 mask = mark >> 8 & 0xff, word = tp_get16(h), sum;

	if (h[0] >> 4 == 6) {
		tp_put16(h, (__u16)((word & ~(mask << 4)) | (mark & mask) << 4));
		return;
	}
	tp_put16(h, (__u16)((word & ~mask) | (mark & mask)));
	/* RFC 1624. */
	sum = (0xffff ^ tp_get16(h + 10)) + (0xffff ^ word) + tp_get16(h);
	sum = (sum & 0xffff) + (sum >> 16);
	tp_put16(h + 10, (__u16)~((sum & 0xffff) + (sum >> 16)));
}

/* The IP header of the frame at offset off. 0, or non-zero when there is none. */
TP_APART int tp_mark(struct tp_env *env, __u32 off, __u32 mark)
{
	__u8 *h = tp_span(tp_data(env), tp_end(env), off, TP_IP4_LEN);

	if (!h)
		return 1;
	tp_mark_ip(h, mark);
	return 0;
}

/* IPv6 and UDP in front of payload octets. The checksum is still to come: tp_put_udp6_checksum().
 *
 * flow  any number of the flow's own: all UDP ports are alike, and routers that spread load over several
 *       ways look at the flow label (RFC 6438) */
static TP_INLINE void tp_put_outer_ip6(__u8 *h, const __u8 *local, const __u8 *remote, __u16 port_be, __u32 payload,
				       __u32 flow)
{
	__u16 udp_len = tp_swap16((__u16)(TP_UDP_LEN + payload));

	tp_put32(h, 6U << 28 | flow * 0x9e3779b1U >> 12);
	tp_store32(h + 4, (__u32)(TP_OUTER_TTL << 8 | 17) << 16 | udp_len);
	tp_store64(h + 8, tp_load64(local));
	tp_store64(h + 16, tp_load64(local + 8));
	tp_store64(h + 24, tp_load64(remote));
	tp_store64(h + 32, tp_load64(remote + 8));
	tp_store32(h + 40, (__u32)port_be << 16 | tp_swap16(TP_GTPU_PORT));
	tp_store32(h + 44, udp_len);
}

/* The checksum of UDP over IPv6 (RFC 8200, 8.1), over the headers from h on, which have words 32-bit words
 * behind the UDP header, and what follows, whose sum is rest. words: a constant. */
static TP_INLINE void tp_put_udp6_checksum(__u8 *h, __u32 words, __u64 rest)
{
	__u64 sum = rest + tp_swap16(17) + tp_load16(h + TP_IP6_LEN + 4);
	__u16 folded = tp_csum_fold(sum + tp_sum_words(h + 8, 32 / 4 + TP_UDP_LEN / 4 + words));

	tp_store16(h + TP_IP6_LEN + 6, folded ? folded : 0xffff);
}

/* GTP-U header and container in front of a user's packet. psc: octets of the container, 0, 8 or 12. */
static TP_INLINE void tp_put_gtpu(__u8 *g, const struct tp_tunnel *t, __u32 psc, __u32 user_len)
{
	/* Version 1, GTP, E when the container follows; G-PDU. */
	tp_store32(g, (__u32)tp_swap16((__u16)(psc + user_len)) << 16 | 0xff << 8 | (psc ? 0x34 : 0x30));
	tp_store32(g + 4, t->teid_be);
	if (psc) {
		tp_store32(g + 8, 0x85U << 24);
		/* Units of four octets, PDU type, QFI, and no further extension header; or the PPI in its place,
		 * and that in the last octet of the second unit. */
		tp_store32(g + 12, (__u32)t->container << 16 | t->pdu_type << 12 | ((psc >> 2) - 1));
		if (psc > 8)
			tp_store32(g + 16, 0);
	}
}

/* The whole tunnel header, t->len octets, in front of a user's packet. */
static TP_INLINE void tp_put_tunnel4(__u8 *h, const struct tp_tunnel *t, __u32 user_len)
{
	__u32 psc = t->len - TP_TUNNEL_LEN;

	tp_put_outer_ip(h, t->local_be, t->remote_be, tp_swap16(TP_GTPU_PORT), TP_GTPU_LEN + psc + user_len);
	tp_put_gtpu(h + TP_IP4_LEN + TP_UDP_LEN, t, psc, user_len);
}

static TP_INLINE void tp_put_tunnel6(__u8 *h, const struct tp_tunnel *t, __u32 user_len)
{
	__u32 psc = t->len - TP_TUNNEL6_LEN;

	tp_put_outer_ip6(h, t->peer6->local6, t->peer6->remote6, tp_swap16(TP_GTPU_PORT), TP_GTPU_LEN + psc + user_len,
			 tp_swap32(t->teid_be));
	tp_put_gtpu(h + TP_IP6_LEN + TP_UDP_LEN, t, psc, user_len);
	if (t->user_sum == TP_NO_SUM)
		return;
	if (psc > 8)
		tp_put_udp6_checksum(h, (TP_GTPU_LEN + 12) / 4, t->user_sum);
	else if (psc)
		tp_put_udp6_checksum(h, (TP_GTPU_LEN + 8) / 4, t->user_sum);
	else
		tp_put_udp6_checksum(h, TP_GTPU_LEN / 4, t->user_sum);
}

#endif
