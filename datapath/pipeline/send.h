/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Stage 5, send: what judge has planned is done to the frame, and it goes out, or to user space. */
#ifndef TP_SEND_H
#define TP_SEND_H

#include "answer.h"
#include "buffer.h"
#include "copy.h"
#include "hand.h"
#include "judge.h"
#include "lost.h"
#include "packet.h"
#include "parse.h"
#include "relay.h"
#include "solicit.h"
#include "tunnel.h"

/* Time to live or hop limit of a packet that is routed (RFC 1812, 5.3.1), with the IPv4 checksum
 * updated as RFC 1624 has it: TTL is the upper octet of its word, so the sum loses 0x0100. */
static TP_INLINE void tp_spend_hop(struct tp_packet *p)
{
	__u32 sum;

	if (p->family != 4) {
		p->ip[7] -= 1;
		return;
	}
	p->ip[8] -= 1;
	sum = tp_load16(p->ip + 10) + tp_swap16(0x0100);
	tp_store16(p->ip + 10, (__u16)(sum + (sum >= 0xffff)));
}

/* Plain IP has its own header marked; a tunnel's is yet to be written. */
static TP_INLINE int tp_mark_plain(const struct tp_packet *p)
{
	return tp_has(p->env, TP_FEAT_EXT) && tp_unlikely(p->tunnel.marking) && !p->tunnel.len &&
	       tp_mark(p->env, p->user, p->tunnel.marking);
}

static TP_INLINE __u16 tp_ethertype_of(const struct tp_packet *p)
{
	const struct tp_tunnel *t = &p->tunnel;

	if (tp_has(p->env, TP_FEAT_OUTER6) && t->peer6)
		return TP_ETH_IPV6;
	return t->len || p->family == 4 ? TP_ETH_IPV4 : TP_ETH_IPV6;
}

/* l2_len: 0 if the kernel is to write the Ethernet header. Non-zero when there is no room. */
static TP_INLINE int tp_put_headers(const struct tp_packet *p, __u32 l2_len)
{
	__u8 *data = tp_data(p->env), *end = tp_end(p->env), *h;
	const struct tp_tunnel *t = &p->tunnel;

	if (l2_len && tp_put_l2(data, end, p->nh, tp_ethertype_of(p)))
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
static TP_INLINE int tp_sum_user(struct tp_packet *p)
{
	struct tp_tunnel *t = &p->tunnel;

	t->user_sum = TP_NO_SUM;
	if (t->peer6->flags & TP_PEER_ZERO_SUM)
		return TP_OK;
	t->user_sum = tp_sum_frame(p->env, p->user, p->user_len);
	return t->user_sum == TP_NO_SUM ? TP_DROP_MTU : TP_OK; /* no link takes what is longer than TP_OFFSET_MAX */
}

/* What lies in front of the user's packet and what pads it go; the next hop's headers and the
 * tunnel's come. One move of the frame's start. */
static TP_INLINE int tp_send_on(struct tp_packet *p)
{
	struct tp_tunnel *t = &p->tunnel;
	__u32 l2_len, port;
	int r = TP_OK;

	if (!p->nh)
		return TP_DROP_TABLE;
	l2_len = p->nh->l2_len == TP_ETH_LEN ? TP_ETH_LEN : TP_ETH_LEN + 4;
	port = p->nh->port;
	if (tp_has(p->env, TP_FEAT_OUTER6) && t->peer6)
		r = tp_sum_user(p);
	if (r)
		return r;
	if (tp_unlikely(p->nh->state != TP_NH_RESOLVED))
		l2_len = 0;
	if (tp_mark_plain(p))
		return TP_DROP_HEADROOM;
	r = tp_resize(p->env, (int)p->user - (int)(t->len + l2_len),
		      (int)(p->user + p->user_len) - (int)p->frame_len);
	if (tp_unlikely(r) || tp_put_headers(p, l2_len))
		return TP_DROP_HEADROOM;
	if (tp_has(p->env, TP_FEAT_EXT) && tp_unlikely(t->marking) && t->len && tp_mark(p->env, l2_len, t->marking))
		return TP_DROP_HEADROOM;
	p->out_len = l2_len + t->len + p->user_len;
	if (tp_unlikely(!l2_len))
		return tp_send_slow(p->env, p->nh->ifindex, p->out_len);
	return tp_redirect(p->env, port);
}

/* As tp_send_on(), verified apart.
 *
 * out     tp_entry.out, of a tunnel
 * tunnel  words of a struct tp_tunnel: len, container, marking and PDU type in bits 0..7, 8..23, 24..39 and 40
 * way     index of the next hop, and the packet's family above it
 * octets  of the user's packet
 *
 * The outcome, and above 16 bits the length of the frame. */
TP_APART __u64 tp_send_apart(struct tp_env *env, __u64 out, __u64 tunnel, __u64 way, __u64 octets)
{
	const struct tp_peer *peer;
	struct tp_packet p = {0};
	struct tp_cpu *cpu;
	int r;

	p.env = env;
	p.data = tp_data(env);
	p.end = tp_end(env);
	p.frame_len = (__u32)(p.end - p.data);
	tp_keep(p.frame_len);
	p.user = tp_octets_at(octets);
	p.user_len = tp_octets_len(octets);
	p.family = (__u32)(way >> 32);
	p.nh = tp_nexthop_at(env, (__u32)way);
	if (tp_unlikely((__u32)way == TP_WAY_FIB)) {
		cpu = tp_cpu_of(env);
		p.nh = cpu ? &cpu->hop : NULL;
	}
	p.tunnel.len = tunnel & 0xff;
	p.tunnel.container = (__u16)(tunnel >> 8);
	p.tunnel.marking = (__u16)(tunnel >> 24);
	p.tunnel.pdu_type = tunnel >> 40 & 1;
	if (p.tunnel.len) {
		peer = tp_peer_at(env, tp_out_peer(out));
		if (!peer)
			return TP_DROP_TABLE;
		tp_name_tunnel(&p, peer, out);
	}
	r = tp_send_on(&p);
	return (__u64)p.out_len << 16 | (__u32)r;
}

static TP_INLINE int tp_send_packed(struct tp_packet *p)
{
	const struct tp_tunnel *t = &p->tunnel;
	__u64 done;

	done = tp_send_apart(p->env, t->len ? TP_READ(p->entry->out) : 0,
			     t->len | (__u64)t->container << 8 | (__u64)t->marking << 24 | (__u64)t->pdu_type << 40,
			     p->way | (__u64)p->family << 32, tp_user_octets(p));
	p->out_len = (__u32)(done >> 16);
	return tp_final((int)(done & 0xff));
}

/* What open has not let on. */
static TP_INLINE int tp_send_unopened(struct tp_run *run, struct tp_packet *p, int plan)
{
	switch (plan) {
	case TP_PLAN_REASSEMBLE:
		return tp_ask_frame(p, TP_TASK_OUTER_FRAGMENT, 0);
	case TP_PLAN_MESSAGE:
		return tp_gtpu_message(run, p);
	case TP_PLAN_MARKER:
		return tp_has(p->env, TP_FEAT_RELAY) ? tp_relay_marker(run, p) : TP_DROP_TABLE;
	case TP_DROP_GTPU_UNKNOWN_EXTENSION:
		tp_tell_extensions(p);
		return plan;
	default:
		return plan;
	}
}

/* What has no session. */
static TP_INLINE int tp_send_unsought(struct tp_run *run, struct tp_packet *p, int plan)
{
	if (plan == TP_PLAN_UNKNOWN_TEID)
		return tp_unknown_teid(run, p);
	return plan == TP_DROP_UNKNOWN_UE ? tp_lose_unknown(p) : plan;
}

/* What no PDR takes. */
static TP_INLINE int tp_send_untaken(struct tp_packet *p, int plan)
{
	if (plan == TP_PLAN_INNER_FRAGMENT)
		return tp_final(tp_ask_frame(p, TP_TASK_INNER_FRAGMENT, p->user));
	if (plan == TP_DROP_UNKNOWN_UE)
		return tp_lose_unknown(p);
	return tp_has(p->env, TP_FEAT_IPV6 | TP_FEAT_LIST) && p->gtpu ? tp_solicited(p, plan) : plan;
}

/* What judge has let pass loses a hop, and is duplicated as it then is, whatever becomes of it thereafter. What the FAR
 * itself drops or holds is duplicated too. */
static TP_INLINE void tp_send_also(struct tp_packet *p)
{
	if (tp_likely(p->also & TP_ALSO_HOP))
		tp_spend_hop(p);
	if (tp_has(p->env, TP_FEAT_COPY) && tp_unlikely(p->also & (TP_ALSO_COPIES | TP_ALSO_COPIES_TO)))
		tp_duplicate(p->env, p->also, p->sender, p->index, tp_user_octets(p));
}

/* What judge has decided: a plan, or a drop reason. */
static TP_INLINE int tp_send_decided(struct tp_packet *p, int plan)
{
	if (tp_has(p->env, TP_FEAT_RELAY) && plan == TP_PLAN_RELAY) {
		tp_send_also(p);
		return tp_relay_packet(p);
	}
	if (p->also)
		tp_send_also(p);
	switch (plan) {
	case TP_PLAN_UDP:
		return tp_has(p->env, TP_FEAT_UDP) ? tp_leave_udp(p) : TP_DROP_TABLE;
	case TP_PLAN_HOLD:
		return tp_final(tp_hold(p->env, p->index, tp_octets(0, p->frame_len), p->user, 0));
	case TP_PLAN_HOLD_FOR_UE:
		return tp_final(tp_hold(p->env, p->index, tp_user_octets(p), 0, TP_HELD_BARE));
	case TP_DROP_TTL:
		tp_tell_expired(p->env, tp_pack_lost(p), TP_HEAD_NI_OF(p->head));
		return plan;
	case TP_DROP_GTPU_UNKNOWN_EXTENSION:
		tp_tell_extensions(p);
		return plan;
	default:
		return plan;
	}
}

/* What has a way out, and fits it (TP_OK), or does not. */
static TP_INLINE int tp_send(struct tp_packet *p, int fits)
{
	tp_send_also(p);
	if (tp_likely(fits == TP_OK))
		return TP_SPLIT ? tp_send_packed(p) : tp_send_on(p);
	if (fits != TP_PLAN_TOO_LONG)
		return fits;
	return tp_mark_plain(p) ? TP_DROP_HEADROOM : tp_too_long(p);
}

#endif
