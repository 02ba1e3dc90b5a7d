/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The last step: new headers, and out. */
#ifndef TP_EMIT_H
#define TP_EMIT_H

#include "lost.h"
#include "packet.h"
#include "parse.h"
#include "route.h"
#include "tunnel.h"

/* To a neighbour that only the kernel can find: the same IP packet, by way of the slow path. */
TP_RARE int tp_emit_slow(struct tp_env *env, const struct tp_tunnel *t, __u32 ifindex, __u32 user, __u32 user_len)
{
	struct tp_outer outer = {{0}, t->len, TP_EVENT_SEND};

	if (t->len)
		tp_put_tunnel4(outer.bytes, t, user_len);
	if (t->len && t->mark)
		tp_mark_ip(outer.bytes, t->mark);
	return tp_punt(env, ifindex, &outer, user, user_len);
}

/* As tp_emit_slow(); the frame is that IP packet and nothing else. */
TP_RARE int tp_send_slow(struct tp_env *env, __u32 ifindex, __u32 len)
{
	return tp_punt(env, ifindex, NULL, 0, len);
}

/* Ethernet header of a next hop, its EtherType by family. Sizes are constants to the compiler. */
static TP_INLINE int tp_put_l2(__u8 *data, __u8 *end, const struct tp_nexthop *nh, __u16 ethertype)
{
	__u8 *eth;

	if (nh->l2_len == TP_ETH_LEN) {
		eth = tp_span(data, end, 0, TP_ETH_LEN);
		if (!eth)
			return 1;
		tp_store32(eth + 8, tp_load32(nh->l2 + 8));
		tp_put16(eth + 12, ethertype);
	} else {
		eth = tp_span(data, end, 0, TP_ETH_LEN + 4);
		if (!eth)
			return 1;
		tp_store64(eth + 8, tp_load64(nh->l2 + 8));
		tp_put16(eth + 16, ethertype);
	}
	tp_store64(eth, tp_load64(nh->l2));
	return 0;
}

static TP_INLINE __u16 tp_ethertype_of(struct tp_packet *p, const struct tp_tunnel *t)
{
	if (tp_has(p->env, TP_FEAT_OUTER6) && t->peer6)
		return TP_ETH_IPV6;
	return t->len || p->family == 4 ? TP_ETH_IPV4 : TP_ETH_IPV6;
}

static TP_INLINE int tp_put_headers(struct tp_packet *p, const struct tp_nexthop *nh, const struct tp_tunnel *t,
				    __u32 l2_len)
{
	__u8 *data = tp_data(p->env), *end = tp_end(p->env), *h;

	if (l2_len && tp_put_l2(data, end, nh, tp_ethertype_of(p, t)))
		return 1;
	if (!t->len)
		return 0;
	/* The container may be absent, the user's packet may not: there are as many octets either way. */
	if (tp_has(p->env, TP_FEAT_OUTER6) && t->peer6) {
		h = tp_span(data, end, l2_len, TP_TUNNEL6_MAX);
		if (!h)
			return 1;
		tp_put_tunnel6(h, t, p->user_len);
		return 0;
	}
	h = tp_span(data, end, l2_len, TP_TUNNEL_MAX);
	if (!h)
		return 1;
	tp_put_tunnel4(h, t, p->user_len);
	return 0;
}

/* What the UDP checksum of an outer IPv6 header wants to know of the user's packet, which is as it will leave. */
static TP_INLINE int tp_sum_user(struct tp_packet *p, struct tp_tunnel *t)
{
	t->user_sum = TP_NO_SUM;
	if (t->peer6->flags & TP_PEER_ZERO_SUM)
		return TP_OK;
	t->user_sum = tp_sum_frame(p->env, p->user, p->user_len);
	return t->user_sum == TP_NO_SUM ? TP_DROP_MTU : TP_OK; /* no link takes what is longer than TP_OFFSET_MAX */
}

/* What lies in front of the user's packet and what pads it go; the next hop's headers and the
 * tunnel's come. One move of the frame's start. matched: the PDR that took the packet. */
static TP_INLINE int tp_emit(struct tp_packet *p, const struct tp_nexthop *nh, struct tp_tunnel *t,
			     const struct tp_entry *matched)
{
	__u32 l2_len = nh->l2_len == TP_ETH_LEN ? TP_ETH_LEN : TP_ETH_LEN + 4, port = nh->port;
	int r = tp_check_nexthop(nh, p->user_len + t->len);

	if (tp_unlikely(r == TP_DROP_MTU))
		return tp_too_long(p, nh, t, matched);
	if (!r && tp_has(p->env, TP_FEAT_OUTER6) && t->peer6)
		r = tp_sum_user(p, t);
	if (r)
		return r;
	if (tp_unlikely(nh->state != TP_NH_RESOLVED)) {
		if (!tp_has(p->env, TP_FEAT_OUTER6) || !t->peer6)
			return tp_emit_slow(p->env, t, nh->ifindex, p->user, p->user_len);
		l2_len = 0; /* the longer header is built in the frame, for want of stack */
	}
	r = tp_resize(p->env, (int)p->user - (int)(t->len + l2_len),
		      (int)(p->user + p->user_len) - (int)p->frame_len);
	if (tp_unlikely(r) || tp_put_headers(p, nh, t, l2_len))
		return TP_DROP_HEADROOM;
	if (tp_has(p->env, TP_FEAT_EXT) && tp_unlikely(t->mark) && tp_mark(p->env, l2_len, t->mark))
		return TP_DROP_HEADROOM;
	p->out_len = l2_len + t->len + p->user_len;
	if (tp_has(p->env, TP_FEAT_OUTER6) && !l2_len)
		return tp_send_slow(p->env, nh->ifindex, p->out_len);
	return tp_redirect(p->env, port);
}

#endif
