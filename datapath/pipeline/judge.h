/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Stage 4, judge: from an entry to what send is to do. It charges meters, but changes nothing in the frame, beside
 * the mark of congestion, and hands nothing over. */
#ifndef TP_JUDGE_H
#define TP_JUDGE_H

#include "buffer.h"
#include "conditions.h"
#include "gtpu.h"
#include "meter.h"
#include "packet.h"
#include "route.h"
#include "take.h"
#include "ue_to_ue.h"

/* TP_OK when the packet is to be forwarded. */
static TP_INLINE int tp_check_action(__u64 head)
{
	switch (TP_HEAD_ACTION(head)) {
	case TP_ACT_ROUTE:
	case TP_ACT_TUNNEL:
	case TP_ACT_UDP:
		return tp_unlikely(head & TP_HEAD_DRAIN) ? TP_DROP_FAR_BUFFER /* see tp_judge_waiting() */ : TP_OK;
	case TP_ACT_DROP:
		return TP_DROP_FAR_DROP;
	case TP_ACT_BUFFER:
		return TP_DROP_FAR_BUFFER;
	case TP_ACT_GATE:
		return TP_DROP_GATE_CLOSED;
	case TP_ACT_TUNNEL_GONE:
		return TP_DROP_TUNNEL_GONE;
	case TP_ACT_NO_TUNNEL:
		return TP_DROP_NO_TUNNEL;
	case TP_ACT_QUOTA:
		return TP_DROP_QUOTA;
	case TP_ACT_NONE: /* withdrawn while a list still named it */
		return TP_DROP_NO_PDR;
	default:
		return TP_DROP_TABLE;
	}
}

/* A packet that came in a tunnel and goes on in another one: its TTL is the ends' affair. */
static TP_INLINE int tp_is_relayed(const struct tp_packet *p)
{
	return tp_has(p->env, TP_FEAT_RELAY) && p->gtpu && TP_HEAD_ACTION(p->head) == TP_ACT_TUNNEL;
}

/* The FAR says BUFF, or did a moment ago. TP_OK: the packet goes on by p->head, which says how. */
static TP_INLINE int tp_judge_waiting(struct tp_packet *p)
{
	int r;

	if (!tp_has(p->env, TP_FEAT_BUFFER))
		return TP_DROP_FAR_BUFFER;
	r = tp_must_wait(p->env, p->index, p->head & TP_HEAD_DRAIN ? TP_WAIT_DRAINS : 0);
	if (r)
		return r == TP_OUT_WAIT ? TP_PLAN_HOLD : tp_final(r);
	p->head &= ~TP_HEAD_DRAIN;
	return TP_OK;
}

/* A router's part: a hop to spend, and no extension header that only the end of another tunnel understands. */
static TP_INLINE int tp_judge_hop(struct tp_packet *p)
{
	__u64 hi, lo;

	if (tp_is_relayed(p))
		return TP_OK;
	if (p->for_end & TP_GTPU_EXT_REQUIRED)
		return TP_DROP_GTPU_UNKNOWN_EXTENSION;
	if (tp_is_own(p->env, &hi, &lo) || (!p->gtpu && (tp_roles_of(p->env) & TP_ROLE_FORWARDED)))
		return TP_OK;
	if (*(p->family == 4 ? p->ip + 8 : p->ip + 7) <= 1)
		return TP_DROP_TTL;
	p->also |= TP_ALSO_HOP;
	return TP_OK;
}

/* Are there duplicates? r: what the FAR makes of the packet; one that a QER or a condition of the PDI stops is no FAR's. Of
 * a packet that has waited, they left when it came. */
static TP_INLINE int tp_judge_copies(const struct tp_packet *p, int r)
{
	if (!tp_has(p->env, TP_FEAT_COPY) || tp_likely(!(p->head & TP_HEAD_COPY)) || tp_releases(p->env))
		return 0;
	return r == TP_OK || r == TP_DROP_FAR_DROP || r == TP_DROP_FAR_BUFFER || r == TP_DROP_TUNNEL_GONE ||
	       r == TP_DROP_NO_TUNNEL || r == TP_OUT_HELD || r == TP_PLAN_HOLD;
}

/* What gate, FAR and MBRs of a downlink entry say to a packet from another UE: TP_OK when it goes into the
 * entry's tunnel.
 *
 * user  tp_pack_user() of the packet */
TP_APART int tp_enter_ue(struct tp_env *env, __u64 user, __u32 index)
{
	struct tp_run run = {tp_config_of(env), tp_cpu_of(env), 0};
	struct tp_packet p = {0};
	int r;

	p.env = env;
	p.entry = tp_entry_at(env, index);
	if (!p.entry || !run.cpu || !tp_unpack_user(&p, user))
		return TP_DROP_TABLE;
	p.head = TP_READ(p.entry->head);
	r = tp_check_action(p.head);
	if (!r && !tp_goes_by_tunnel(env, p.head))
		r = TP_DROP_NO_PDR; /* none that leads to the UE */
	return r ? r : tp_police_here(&run, &p);
}

/* To another UE, whose key leads to the entry of this index. The sender's PDR has done its part; from here on the packet
 * is the receiver's. */
static TP_INLINE int tp_judge_receiver(struct tp_packet *p, __u32 index)
{
	int r;

	p->also |= TP_ALSO_SENDER;
	p->sender = p->index;
	p->dir = TP_DOWNLINK;
	p->index = index;
	p->entry = tp_entry_at(p->env, index);
	if (!tp_entry_is(p->entry, 0, &p->head)) {
		p->entry = NULL;
		return TP_DROP_UNKNOWN_UE;
	}
	if (TP_HEAD_ACTION(p->head) == TP_ACT_LIST && tp_has(p->env, TP_FEAT_LIST)) {
		r = tp_take_listed(p, TP_USER_WHOLE);
		if (r)
			return r;
	}
	r = tp_said(tp_enter_ue(p->env, tp_pack_user(p), p->index));
	p->head = TP_READ(p->entry->head);
	/* The FAR may have changed since: then it is as if the packet had come a moment later. */
	if (!r && (!tp_goes_by_tunnel(p->env, p->head) || (p->head & TP_HEAD_DRAIN)))
		r = tp_final(tp_check_action(p->head));
	if (tp_judge_copies(p, r))
		p->also |= TP_ALSO_COPIES_TO;
	if (r != TP_DROP_FAR_BUFFER || !tp_has(p->env, TP_FEAT_BUFFER))
		return r;
	/* It waits also where nothing does that it could overtake. */
	r = tp_must_wait(p->env, p->index, 0);
	return r == TP_OUT_WAIT ? TP_PLAN_HOLD_FOR_UE : tp_final(r);
}

/* Out by the routes of a network instance. TP_OUT_UE: to another UE, by the entry of this index. */
static TP_INLINE int tp_judge_route(struct tp_packet *p, __u32 *index)
{
	__u32 ni = TP_HEAD_NI_OF(p->head), neighbour;
	struct tp_addr dst = tp_destination(p);
	int r = tp_check_destination(p, dst);

	if (!r)
		r = tp_find_route(p, ni, dst, index);
	if (r)
		return r;
	p->way = *index;
	p->nh = tp_nexthop_at(p->env, p->way);
	if (!p->nh)
		return TP_DROP_TABLE;
	if (p->nh->state == TP_NH_ONLINK) {
		neighbour = tp_find_neighbour(p, ni, dst);
		if (neighbour != TP_NOT_FOUND) {
			p->way = neighbour;
			p->nh = tp_nexthop_at(p->env, neighbour);
		}
	}
	return p->nh ? TP_OK : TP_DROP_TABLE;
}

/* What the PDU Session Container is to say, and thus how long the tunnel's header is. */
static TP_INLINE void tp_judge_container(struct tp_packet *p)
{
	const struct tp_ext *ext;
	struct tp_tunnel *t = &p->tunnel;

	t->len = TP_TUNNEL_LEN;
	if (!(p->head & TP_HEAD_MARK))
		return;
	t->len = TP_TUNNEL_PSC_LEN;
	t->container = TP_HEAD_QFI_OF(p->head);
	ext = tp_ext(p);
	if (!ext)
		return;
	if (ext->psc & TP_PSC_RQI)
		t->container |= 0x40;
	if (ext->psc & TP_PSC_PPI) {
		t->container |= 0x80 | (ext->psc & TP_PSC_PPI_MASK) << 8;
		t->len = TP_TUNNEL_MAX;
	}
}

/* The ends of the tunnel. out: tp_entry.out */
static TP_INLINE void tp_name_tunnel(struct tp_packet *p, const struct tp_peer *peer, __u64 out)
{
	if (tp_has(p->env, TP_FEAT_OUTER6) && tp_unlikely(peer->flags & TP_PEER_V6))
		p->tunnel.peer6 = peer;
	p->tunnel.local_be = peer->local_be;
	p->tunnel.remote_be = peer->remote_be;
	p->tunnel.teid_be = (__u32)out;
}

/* Into the tunnel that the entry names. */
static TP_INLINE int tp_judge_tunnel(struct tp_packet *p)
{
	__u64 out = TP_READ(p->entry->out);
	const struct tp_peer *peer = tp_peer_at(p->env, tp_out_peer(out));
	struct tp_tunnel *t = &p->tunnel;

	if (!peer)
		return TP_DROP_TABLE;
	p->way = TP_READ(peer->nexthop);
	p->nh = tp_nexthop_at(p->env, p->way);
	if (!p->nh)
		return TP_DROP_TABLE;
	tp_judge_container(p);
	if (tp_has(p->env, TP_FEAT_OUTER6)) /* no branch, of which the verifier would follow both */
		t->len += (peer->flags & TP_PEER_V6) * ((TP_TUNNEL6_LEN - TP_TUNNEL_LEN) / TP_PEER_V6);
	if (!TP_SPLIT)
		tp_name_tunnel(p, peer, out);
	t->pdu_type = p->dir == TP_UPLINK;
	return TP_OK;
}

static TP_INLINE int tp_judge(struct tp_run *run, struct tp_packet *p)
{
	int r = tp_check_action(p->head);
	__u32 index = 0;

	if (tp_unlikely(r == TP_DROP_FAR_BUFFER))
		r = tp_judge_waiting(p);
	if (!r)
		r = tp_judge_hop(p);
	if (!r)
		r = tp_police(run, p);
	if (tp_judge_copies(p, r))
		p->also |= TP_ALSO_COPIES;
	if (r)
		return r;
	if (tp_is_relayed(p))
		return TP_PLAN_RELAY;
	if (TP_HEAD_ACTION(p->head) == TP_ACT_ROUTE) {
		r = tp_judge_route(p, &index);
		if (tp_unlikely(r == TP_OUT_UE))
			r = tp_judge_receiver(p, index);
	}
	if (!r)
		p->tunnel.marking = (__u16)tp_mark_of(tp_ext(p));
	if (!r && tp_has(p->env, TP_FEAT_UDP) && TP_HEAD_ACTION(p->head) == TP_ACT_UDP)
		return TP_PLAN_UDP;
	if (!r && !p->nh)
		r = tp_judge_tunnel(p);
	return r;
}

/* The last of judge's steps, of what is not decided yet: does the packet fit its way out? */
static TP_INLINE int tp_judge_way(struct tp_run *run, struct tp_packet *p)
{
	__u32 len = p->user_len + p->tunnel.len;
	int r;

	if (tp_has(p->env, TP_FEAT_FIB) && p->nh->state == TP_NH_FIB) {
		r = tp_ask_fib(p->env, tp_pack_user(p), p->tunnel.len ? tp_out_peer(TP_READ(p->entry->out)) : TP_NOT_FOUND, len);
		if (r)
			return tp_final(r);
		p->way = TP_WAY_FIB;
		p->nh = &run->cpu->hop;
	}
	r = tp_check_nexthop(p->nh, len);
	return tp_unlikely(r == TP_DROP_MTU) ? TP_PLAN_TOO_LONG : r;
}

#endif
