/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* One packet's journey, from the frame to its verdict. Start here.
 *
 *   tp_pipeline  a frame came in
 *   tp_uplink    out of its tunnel, to an entry by TEID
 *   tp_downlink  to an entry by UE address
 *   tp_forward   what the entry says: conditions, gate, TTL, meters, next hop, headers, out
 *   tp_to_ue     when the destination is another UE: what that one's entry says
 *   tp_account   each frame is counted once
 */
#ifndef TP_PIPELINE_H
#define TP_PIPELINE_H

#include "act.h"
#include "answer.h"
#include "buffer.h"
#include "copy.h"
#include "emit.h"
#include "gtpu.h"
#include "hairpin.h"
#include "lost.h"
#include "match.h"
#include "meter.h"
#include "packet.h"
#include "parse.h"
#include "relay.h"
#include "route.h"
#include "rules.h"
#include "solicit.h"
#include "task.h"
#include "trace.h"

/* A frame on a port towards the access side. TP_OUT_PASS: not GTP-U to us. matched: whose drop it is. */
static TP_INLINE int tp_uplink(struct tp_packet *p, __u32 ethertype, struct tp_entry **e, __u64 *head,
			       struct tp_entry *volatile *matched)
{
	__u8 type;
	int r = tp_has(p->env, TP_FEAT_OUTER6) && ethertype == TP_ETH_IPV6 ? tp_parse_outer6(p) : tp_parse_outer(p);

	if (tp_unlikely(r == TP_OUT_FRAGMENT))
		return tp_ask_frame(p, TP_TASK_OUTER_FRAGMENT);
	if (r)
		return r;
	r = tp_parse_gtpu(p, &type);
	if (tp_has(p->env, TP_FEAT_TRACE))
		tp_trace_headers(p);
	if (r)
		return r;
	if (tp_unlikely(type != TP_GTPU_GPDU))
		return tp_has(p->env, TP_FEAT_RELAY) && type == TP_GTPU_END_MARKER ? tp_relay_marker(p)
										     : tp_gtpu_message(p, type);
	*e = tp_match_teid(p->env, p->teid, head);
	if (tp_unlikely(!*e))
		return tp_unknown_teid(p);
	*matched = *e;
	return tp_parse_user(p, p->gtpu_end - p->user, TP_DROP_GTPU_INNER);
}

/* An address in a pool that no session has, but a route of the port's network instance: the kernel's, which may have it. */
static TP_INLINE int tp_lose_unknown(const struct tp_packet *p)
{
	struct tp_addr dst = tp_destination(p);
	__u32 ni_family = tp_ni_of(p->env) | p->family << 16;

	return tp_route_in_pool(p->env, ni_family, dst.hi, dst.lo) == TP_NOT_FOUND ? TP_DROP_UNKNOWN_UE : TP_OUT_PASS;
}

/* A frame on a port towards the data network. TP_OUT_PASS: not for a UE. */
static TP_INLINE int tp_downlink(struct tp_packet *p, __u32 ethertype, struct tp_entry **e, __u64 *head)
{
	int r;

	p->user = p->l3;
	if (tp_has(p->env, TP_FEAT_TRACE))
		tp_trace_headers(p);
	r = tp_parse_user(p, p->frame_len - p->l3, TP_DROP_IP_MALFORMED);
	if (!r && (p->family == 4) != (ethertype == TP_ETH_IPV4))
		r = TP_DROP_IP_MALFORMED;
	if (!r)
		r = tp_match_ue(p, e, head);
	return tp_unlikely(r == TP_DROP_UNKNOWN_UE) ? tp_lose_unknown(p) : r;
}

/* Out by the routes of a network instance. TP_OUT_UE: to another UE, by the entry of this index. */
static TP_INLINE int tp_route_user(struct tp_packet *p, const struct tp_entry *e, __u64 head,
				   const struct tp_nexthop **nh, __u32 *index)
{
	__u32 mark = tp_mark_of(tp_ext_of(p, e, head));
	struct tp_addr dst = tp_destination(p);
	const struct tp_nexthop *neighbour;
	int r = tp_check_destination(p, dst);

	if (!r)
		r = tp_find_route(p, TP_HEAD_NI_OF(head), dst, index);
	if (r)
		return r;
	*nh = tp_nexthop_at(p->env, *index);
	if (!*nh)
		return TP_DROP_TABLE;
	if ((*nh)->state == TP_NH_ONLINK) {
		neighbour = tp_find_neighbour(p, TP_HEAD_NI_OF(head), dst);
		*nh = neighbour ? neighbour : *nh;
	}
	if (tp_unlikely(mark) && tp_mark(p->env, p->user, mark))
		return TP_DROP_HEADROOM;
	return TP_OK;
}

/* What the PDU Session Container is to say, and thus how long the tunnel's header is. */
static TP_INLINE void tp_plan_container(struct tp_tunnel *t, __u64 head, const struct tp_ext *ext)
{
	t->len = TP_TUNNEL_LEN;
	if (!(head & TP_HEAD_MARK))
		return;
	t->len = TP_TUNNEL_PSC_LEN;
	t->marks = TP_HEAD_QFI_OF(head);
	if (!ext)
		return;
	if (ext->psc & TP_PSC_RQI)
		t->marks |= 0x40;
	if (ext->psc & TP_PSC_PPI) {
		t->marks |= 0x80 | (ext->psc & TP_PSC_PPI_MASK) << 8;
		t->len = TP_TUNNEL_MAX;
	}
}

/* Into the tunnel that the entry names. */
static TP_INLINE int tp_route_tunnel(struct tp_packet *p, const struct tp_entry *e, __u64 head, struct tp_tunnel *t,
				     const struct tp_nexthop **nh)
{
	__u64 out = TP_READ(e->out);
	const struct tp_peer *peer = tp_peer_at(p->env, (__u32)(out >> 32));

	if (!peer)
		return TP_DROP_TABLE;
	*nh = tp_nexthop_at(p->env, TP_READ(peer->nexthop));
	if (!*nh)
		return TP_DROP_TABLE;
	tp_plan_container(t, head, tp_ext_of(p, e, head));
	t->mark = tp_mark_of(tp_ext_of(p, e, head));
	if (tp_has(p->env, TP_FEAT_OUTER6) && tp_unlikely(peer->flags & TP_PEER_V6)) {
		t->peer6 = peer;
		t->len += TP_TUNNEL6_LEN - TP_TUNNEL_LEN;
	}
	t->local_be = peer->local_be;
	t->remote_be = peer->remote_be;
	t->teid_be = (__u32)out;
	t->pdu_type = p->dir == TP_UPLINK;
	return TP_OK;
}

/* A next hop that only the kernel's FIB knows: the question, and its answer as a next hop in hop. */
static TP_INLINE int tp_route_by_fib(struct tp_packet *p, const struct tp_tunnel *t, struct tp_nexthop *hop)
{
	struct tp_addr src = tp_source(p), dst = tp_destination(p);
	struct tp_fib q = {0};

	q.len = p->user_len + t->len;
	q.family = t->len ? 4 : p->family;
	if (tp_has(p->env, TP_FEAT_OUTER6) && t->peer6) {
		q.family = 6;
		__builtin_memcpy(q.src, t->peer6->local6, 16);
		__builtin_memcpy(q.dst, t->peer6->remote6, 16);
	} else if (t->len) {
		tp_store32(q.src, t->local_be);
		tp_store32(q.dst, t->remote_be);
	} else {
		tp_store64(q.src, tp_swap64(src.hi));
		tp_store64(q.src + 8, tp_swap64(src.lo));
		tp_store64(q.dst, tp_swap64(dst.hi));
		tp_store64(q.dst + 8, tp_swap64(dst.lo));
	}
	return tp_ask_fib(p->env, &q, hop);
}

/* A packet that has waited for a FAR goes by that FAR, whichever PDR would take it now. Whether its PDR is still there. */
static TP_INLINE int tp_is_taken(struct tp_packet *p, struct tp_entry **e, __u64 *head)
{
	struct tp_entry *taken;

	if (!tp_held_by(p->env))
		return 0;
	taken = tp_entry_at(p->env, tp_held_by(p->env) - 1);
	if (!taken || TP_HEAD_ACTION(TP_READ(taken->head)) == TP_ACT_NONE)
		return 0;
	*e = taken;
	*head = TP_READ(taken->head);
	return 1;
}

/* The PDR that takes the packet. Leaves e and head as that one's. */
static TP_INLINE int tp_select_pdr(struct tp_packet *p, struct tp_entry **e, __u64 *head)
{
	__u64 found;

	if (tp_is_taken(p, e, head))
		return TP_OK;
	if (tp_unlikely(TP_HEAD_ACTION(*head) == TP_ACT_LIST)) {
		found = TP_NO_RULE(TP_DROP_TABLE);
		if (tp_has(p->env, TP_FEAT_LIST))
			found = tp_match_rules(p->env, TP_HEAD_RULE_OF(*head), tp_pack_user(p));
		*e = found >> 32 ? NULL : tp_entry_at(p->env, (__u32)found);
		if (!*e)
			return found >> 32 ? tp_final((int)found) : TP_DROP_TABLE;
		*head = TP_READ((*e)->head); /* may have changed meanwhile: its conditions hold for what it now does */
	}
	if (!tp_is_tight(p->env) && tp_is_plain_relay(p, *e, *head))
		return TP_OK;
	return tp_check_conditions(p, *e, *head);
}

/* Count for an entry: taken by its PDR, and forwarded or not. */
static TP_INLINE void tp_count(struct tp_packet *p, struct tp_entry *e, int outcome)
{
	if (tp_unlikely(p->side) || tp_aside(p->env) || tp_unlikely(outcome < TP_DROP_MAX)) {
		tp_count_aside(p->env, p->side ? p->side - 1 : tp_index_of(p->env, e), p->user_len, (__u32)outcome);
		return;
	}
	tp_count_own(p->env, e, p->user_len);
}

/* To another UE, whose key leads to the entry of this index. The sender's PDR has done its part; from here on
 * the packet is the receiver's, and counted aside, because others of its packets come in on other CPUs. */
static TP_INLINE int tp_to_ue(struct tp_packet *p, struct tp_entry **e, __u64 *head, __u32 index,
			      struct tp_entry *volatile *matched)
{
	__u64 found;
	int r;

	tp_count(p, *e, TP_OUT_REDIRECT);
	*matched = NULL;
	p->dir = TP_DOWNLINK;
	p->side = index + 1;
	*e = tp_entry_at(p->env, index);
	if (!tp_entry_is(*e, 0, head))
		return TP_DROP_UNKNOWN_UE;
	if (TP_HEAD_ACTION(*head) == TP_ACT_LIST && tp_has(p->env, TP_FEAT_LIST)) {
		found = tp_match_rules(p->env, TP_HEAD_RULE_OF(*head), tp_pack_user(p) | TP_USER_WHOLE);
		*e = found >> 32 ? NULL : tp_entry_at(p->env, (__u32)found);
		if (!*e)
			return found >> 32 ? tp_final((int)found) : TP_DROP_TABLE;
		p->side = (__u32)found + 1;
	}
	*matched = *e;
	r = tp_enter_ue(p->env, tp_pack_user(p), p->side - 1);
	*head = TP_READ((*e)->head);
	if (r)
		return r;
	/* The FAR may have changed since: then it is as if the packet had come a moment later. */
	if (tp_goes_by_tunnel(p->env, *head) && !(*head & TP_HEAD_DRAIN))
		return TP_OK;
	return tp_final(tp_check_action(*head));
}

/* From an entry to the way out. Leaves in matched the PDR that took the packet. */
static TP_INLINE int tp_forward(struct tp_packet *p, struct tp_entry *e, __u64 head, struct tp_entry *volatile *matched)
{
	const struct tp_nexthop *nh = NULL;
	struct tp_tunnel t = {0};
	struct tp_nexthop hop;
	int r = tp_select_pdr(p, &e, &head);
	__u32 index = 0;

	*matched = e;
	if (tp_has(p->env, TP_FEAT_RELAY))
		p->dir |= head >> TP_HEAD_DOWN_SHIFT & 1;
	if (!r)
		r = tp_check_action(head);
	else if (tp_has(p->env, TP_FEAT_IPV6 | TP_FEAT_LIST))
		r = tp_untaken(p, matched, r);
	if (tp_unlikely(r == TP_DROP_FAR_BUFFER))
		r = tp_wait(p, e, &head);
	if (r) {
		tp_duplicate(p, e, head, r);
		return r;
	}
	/* From tunnel to tunnel a packet is relayed, not routed: its TTL is the ends' affair. */
	if (!tp_is_relayed(p, head))
		r = p->for_end & TP_GTPU_EXT_REQUIRED ? TP_DROP_GTPU_UNKNOWN_EXTENSION : tp_spend_hop(p, head);
	if (!r)
		r = tp_police(p, e, head);
	tp_duplicate(p, e, head, r);
	if (!r && tp_is_relayed(p, head))
		return tp_relay_packet(p, e, head);
	if (!r && TP_HEAD_ACTION(head) == TP_ACT_ROUTE) {
		r = tp_route_user(p, e, head, &nh, &index);
		if (tp_unlikely(r == TP_OUT_UE)) {
			r = tp_to_ue(p, &e, &head, index, matched);
			tp_duplicate(p, e, head, r);
			if (r == TP_DROP_FAR_BUFFER)
				return tp_wait_for_ue(p);
			if (r || !e)
				return tp_final(r);
		}
	}
	if (!r && !nh && tp_has(p->env, TP_FEAT_UDP) && TP_HEAD_ACTION(head) == TP_ACT_UDP)
		return tp_leave_udp(p, e, head);
	if (!r && !nh)
		r = tp_route_tunnel(p, e, head, &t, &nh);
	if (r)
		return r;
	if (tp_has(p->env, TP_FEAT_FIB) && nh->state == TP_NH_FIB) {
		r = tp_route_by_fib(p, &t, &hop);
		if (r)
			return r;
		nh = &hop;
	}
	return tp_emit(p, nh, &t, *matched);
}

/* What became of a frame that was not forwarded. */
static TP_INLINE void tp_account_rest(struct tp_packet *p, struct tp_port_stats *stats, __u32 port, __u32 dir, int outcome)
{
	if (outcome < TP_DROP_MAX) {
		p->cpu->drops[port][dir][outcome & (TP_DROP_MAX - 1)]++;
		if (tp_unlikely(outcome == TP_DROP_GTPU_UNKNOWN_EXTENSION))
			tp_tell_extensions(p);
	} else if (outcome == TP_OUT_PASS)
		stats->passed++;
	else if (outcome == TP_OUT_ANSWER)
		stats->answered++;
	else
		stats->slow++;
}

/* Count a frame: in, and what became of it. e is NULL when no PDR took it. */
static TP_INLINE void tp_account(struct tp_packet *p, struct tp_entry *e, int outcome)
{
	/* From UE to UE is uplink where it came in. */
	__u32 port = tp_port_of(p->env) & (TP_PORTS_MAX - 1), dir = p->side ? TP_UPLINK : p->dir & 1;
	struct tp_port_stats *stats = &p->cpu->ports[port];

	stats->in[dir].packets++;
	stats->in[dir].bytes += p->frame_len;
	if (tp_likely(outcome == TP_OUT_REDIRECT)) {
		stats->out[dir].packets++;
		stats->out[dir].bytes += p->out_len;
	} else {
		tp_account_rest(p, stats, port, dir, outcome);
		if (tp_has(p->env, TP_FEAT_BUFFER) && outcome == TP_OUT_HELD)
			e = NULL; /* it counts when it leaves */
	}
	if (e)
		tp_count(p, e, outcome);
}

/* Which side the frame came from, and all that follows. */
static TP_INLINE int tp_classify(struct tp_packet *p, struct tp_entry *volatile *matched)
{
	__u32 roles = tp_roles_of(p->env), ethertype;
	int r = tp_parse_ethernet(p, &ethertype);
	struct tp_entry *e = NULL;
	__u64 head = 0;

	if (r)
		return r;
	r = TP_OUT_PASS;
	if ((roles & TP_ROLE_N3) &&
	    (ethertype == TP_ETH_IPV4 || (ethertype == TP_ETH_IPV6 && tp_has(p->env, TP_FEAT_OUTER6))))
		r = tp_uplink(p, ethertype, &e, &head, matched);
	/* Once there was a GTP-U header it is no longer passed; the verifier should know. */
	if ((roles & TP_ROLE_N6) && r == TP_OUT_PASS && !p->gtpu) {
		p->dir = TP_DOWNLINK;
		if (ethertype == TP_ETH_IPV4 || (ethertype == TP_ETH_IPV6 && tp_has(p->env, TP_FEAT_IPV6)))
			r = tp_downlink(p, ethertype, &e, &head);
	}
	return r ? r : tp_forward(p, e, head, matched);
}

/* enum tp_outcome, or enum tp_drop. */
static TP_INLINE int tp_pipeline(struct tp_env *env)
{
	struct tp_packet p = {0};
	/* In memory, not carried through every step that cannot find one. */
	struct tp_entry *volatile matched = NULL;
	int outcome;

	p.env = env;
	p.config = tp_config_of(env);
	p.cpu = tp_cpu_of(env);
	if (!p.config || !p.cpu)
		return TP_OUT_PASS; /* tables that were never filled: leave the host reachable */
	p.data = tp_data(env);
	p.end = tp_end(env);
	p.frame_len = (__u32)(p.end - p.data);
	p.dir = tp_roles_of(env) & TP_ROLE_N3 ? TP_UPLINK : TP_DOWNLINK;
	if (tp_has(env, TP_FEAT_TRACE))
		tp_trace_begin(&p);
	outcome = tp_classify(&p, &matched);
	tp_account(&p, matched, outcome);
	if (tp_has(env, TP_FEAT_TRACE))
		tp_trace_end(&p, matched, outcome);
	return outcome;
}

#endif
