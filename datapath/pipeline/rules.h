/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* SDF filters: which PDR of several takes the packet (TS 29.244, 5.2.1). */
#ifndef TP_RULES_H
#define TP_RULES_H

#include "conditions.h"
#include "packet.h"
#include "parse.h"
#include "seek.h"

#define TP_PROTO_TCP 6
#define TP_PROTO_UDP 17
#define TP_PROTO_ESP 50
#define TP_PROTO_AH 51
#define TP_PROTO_SCTP 132
#define TP_PROTO_NONE 256 /* no header has this number */

/* Walk IPv6 extension headers to the upper layer, or to the first that is the header `to`. Its offset, or 0
 * when there are no ports to find: a later fragment, more than TP_IP6_HEADERS_MAX headers, or a packet that ends early.
 * fragment: TP_FLOW_FRAGMENT is added when it is one. */
static TP_INLINE __u32 tp_ip6_walk(const struct tp_packet *p, __u32 to, __u32 *proto, __u64 *fragment)
{
	__u32 i, off = p->user + TP_IP6_LEN;
	const __u8 *h;

	*proto = p->ip[6];
	for (i = 0; i < TP_IP6_HEADERS_MAX; i++) {
		if (*proto == to || (*proto != TP_IP6_HOP_BY_HOP && *proto != TP_IP6_ROUTING &&
				     *proto != TP_IP6_FRAGMENT && *proto != TP_PROTO_AH && *proto != TP_IP6_DESTINATION))
			return off;
		h = tp_at(p, off, 8);
		if (!h || off + 8 > p->user + p->user_len)
			return 0;
		if (*proto == TP_IP6_FRAGMENT && tp_get16(h + 2) & TP_IP6_FRAGMENTED)
			*fragment = TP_FLOW_FRAGMENT;
		if (*proto == TP_IP6_FRAGMENT && tp_get16(h + 2) & 0xfff8) {
			*proto = h[0];
			return 0;
		}
		off += *proto == TP_IP6_FRAGMENT ? 8 : *proto == TP_PROTO_AH ? (h[1] + 2) * 4U : (h[1] + 1) * 8U;
		*proto = h[0];
	}
	return 0;
}

/* Offset of what follows an IPv4 header, or 0 in a later fragment. */
static TP_INLINE __u32 tp_ip4_upper(const struct tp_packet *p)
{
	return tp_get16(p->ip + 6) & 0x1fff ? 0 : p->user + (p->ip[0] & 15) * 4;
}

/* What lies at off: TP_FLOW_PORTS and the ports, source above destination, or nothing. */
static TP_INLINE __u64 tp_ports(const struct tp_packet *p, __u32 off, __u32 proto)
{
	const __u8 *ports;

	if (!off || off + 4 > p->user + p->user_len ||
	    (proto != TP_PROTO_TCP && proto != TP_PROTO_UDP && proto != TP_PROTO_SCTP))
		return 0;
	ports = tp_at(p, off, 4);
	return ports ? TP_FLOW_PORTS | tp_get32(ports) : 0;
}

/* Protocol and ports of an IPv6 packet: bits as those of a flow, and the ports in place of the address.
 *
 * user  tp_pack_user() of the packet */
TP_APART __u64 tp_ip6_transport(struct tp_env *env, __u64 user)
{
	struct tp_packet p = {0};
	__u64 fragment = 0;
	__u32 off, proto;

	p.env = env;
	if (!tp_unpack_user(&p, user) || p.family != 6)
		return 0;
	off = tp_ip6_walk(&p, TP_PROTO_NONE, &proto, &fragment);
	return (__u64)proto << TP_FLOW_PROTO_SHIFT | tp_ports(&p, off, proto) | fragment;
}

/* As tp_ip6_transport(). */
static TP_INLINE __u64 tp_transport(const struct tp_packet *p, __u64 user)
{
	if (p->family != 4)
		return tp_ip6_transport(p->env, user);
	return (__u64)p->ip[9] << TP_FLOW_PROTO_SHIFT | tp_ports(p, tp_ip4_upper(p), p->ip[9]) |
	       (tp_get16(p->ip + 6) & (TP_IP4_MORE_FRAGMENTS | TP_IP4_FRAGMENT_OFFSET) ? TP_FLOW_FRAGMENT : 0);
}

/* What filters compare. */
struct tp_flow {
	__u64 word; /* TP_FLOW_* */
	__u32 remote_port, ue_port;
};

static TP_INLINE struct tp_flow tp_flow_of(const struct tp_packet *p, __u64 user)
{
	__u64 transport = tp_transport(p, user);
	struct tp_addr remote = p->dir == TP_UPLINK ? tp_destination(p) : tp_source(p);
	__u32 first, second;
	__u32 tos = p->family == 4 ? p->ip[1] : tp_get16(p->ip) >> 4 & 0xff;
	struct tp_flow flow;

	tp_knows_transport(p->env, &transport);
	first = (__u32)transport >> 16;
	second = (__u32)transport & 0xffff;
	flow.word = (transport & ~0xffffffffULL) | remote.hi >> 32 | (__u64)tos << TP_FLOW_TOS_SHIFT |
		    (p->family == 4 ? 0 : TP_FLOW_V6);
	flow.remote_port = p->dir == TP_UPLINK ? second : first;
	flow.ue_port = p->dir == TP_UPLINK ? first : second;
	return flow;
}

static TP_INLINE int tp_rule_fits(const struct tp_rule *rule, const struct tp_flow *flow)
{
	return !((flow->word ^ rule->value) & rule->mask) &&
	       (flow->remote_port - rule->remote_port & 0xffff) <= rule->remote_span &&
	       (flow->ue_port - rule->ue_port & 0xffff) <= rule->ue_span;
}

/* Does ESP or AH carry this Security Parameter Index? */
static TP_INLINE int tp_has_spi(const struct tp_packet *p, __u32 spi)
{
	__u32 proto = p->ip[9], off;
	__u64 fragment;
	const __u8 *at;

	off = p->family == 4 ? tp_ip4_upper(p) : tp_ip6_walk(p, TP_PROTO_AH, &proto, &fragment);
	if (!off || (proto != TP_PROTO_ESP && proto != TP_PROTO_AH))
		return 0;
	off += proto == TP_PROTO_AH ? 4 : 0;
	at = tp_at(p, off, 4);
	return at && off + 4 <= p->user + p->user_len && tp_get32(at) == spi;
}

#define TP_MORE_MISSES TP_DROP_MAX /* beyond all reasons */

/* What a filter asks for beyond its rule: TP_OK, TP_MORE_MISSES, or the condition that does not hold.
 *
 * more  of the rule, not 0
 * user  tp_pack_user() of the packet */
TP_APART __u64 tp_check_more(struct tp_env *env, __u32 more, __u64 user)
{
	const struct tp_rule_more *m = (const struct tp_rule_more *)tp_rules_at(env, more - 1);
	struct tp_packet p = {0};

	p.env = env;
	if (!m || !tp_unpack_user(&p, user))
		return TP_DROP_TABLE;
	if (!tp_within(p.dir == TP_UPLINK ? tp_destination(&p) : tp_source(&p), m->remote, m->remote_plen) ||
	    !tp_within(p.dir == TP_UPLINK ? tp_source(&p) : tp_destination(&p), m->ue, m->ue_plen))
		return TP_MORE_MISSES;
	if ((m->flags & TP_MORE_LABEL) && (p.family == 4 || (tp_get32(p.ip) & 0xfffff) != m->label))
		return TP_MORE_MISSES;
	if ((m->flags & TP_MORE_SPI) && !tp_has_spi(&p, m->spi))
		return TP_MORE_MISSES;
	return (m->flags & TP_MORE_QFIS) && (p.qfi > 63 || !(m->qfis >> p.qfi & 1)) ? TP_DROP_QFI_MISMATCH : TP_OK;
}

#define TP_RULE_TAKES (1ULL << 32)

/* A rule fits: does it take the packet? TP_RULE_TAKES, or in bits 0..31 the condition that does not hold,
 * 0 when it is the filter that did not match after all.
 *
 * entry, more  of the rule */
TP_APART __u64 tp_rule_takes(struct tp_env *env, __u32 entry, __u32 more, __u64 user)
{
	const struct tp_entry *e = tp_entry_at(env, entry);
	struct tp_packet p = {0};
	__u64 r = TP_OK;

	p.env = env;
	if (!e || !tp_unpack_user(&p, user))
		return TP_DROP_TABLE;
	if (more & ~TP_RULE_LAST)
		r = tp_check_more(env, more & ~TP_RULE_LAST, user);
	if (r)
		return r == TP_MORE_MISSES ? 0 : r;
	r = (__u32)tp_check_conditions(&p, e, TP_READ(e->head));
	return r ? r : TP_RULE_TAKES;
}

/* What tp_match_rules() returns for a packet that no PDR takes. */
#define TP_NO_RULE(reason) (1ULL << 32 | (reason))

/* Does any of the rules from place on ask for ports? */
TP_APART int tp_rules_ask_ports(struct tp_env *env, __u32 place)
{
	const struct tp_rules *rules;
	__u32 i, j;

	for (i = 0; i < TP_RULES_PLACES; i++) {
		rules = tp_rules_at(env, place);
		if (!rules)
			return 0;
		for (j = 0; j < TP_RULES_PER_PLACE; j++)
			if (rules->rule[j].mask & TP_FLOW_PORTS)
				return 1;
		if (rules->rule[TP_RULES_PER_PLACE - 1].more & TP_RULE_LAST)
			return 0;
		place = tp_rules_next(rules);
	}
	return 0;
}

/* The entry index of the first rule that takes the packet, or TP_NO_RULE(). When filters matched but
 * conditions did not, the first such condition is the reason; else TP_DROP_NO_PDR. TP_OUT_FRAGMENT: only user
 * space knows its ports, and there are filters that ask for them.
 *
 * place  of its rules */
TP_APART __u64 tp_match_rules(struct tp_env *env, __u32 place, __u64 user)
{
	const struct tp_rules *rules;
	struct tp_packet p = {0};
	struct tp_flow flow;
	__u32 i, j, why = TP_DROP_NONE;
	__u64 r;

	p.env = env;
	if (!tp_unpack_user(&p, user))
		return TP_NO_RULE(TP_DROP_TABLE);
	flow = tp_flow_of(&p, user);
	if (tp_unlikely(flow.word & TP_FLOW_FRAGMENT) && !(user & TP_USER_WHOLE) && tp_rules_ask_ports(env, place))
		return TP_NO_RULE(TP_OUT_FRAGMENT);
	for (i = 0; i < TP_RULES_PLACES; i++) {
		rules = tp_rules_at(env, place);
		if (!rules)
			return TP_NO_RULE(TP_DROP_TABLE);
		for (j = 0; j < TP_RULES_PER_PLACE; j++) {
			if (tp_likely(!tp_rule_fits(&rules->rule[j], &flow)))
				continue;
			r = tp_rule_takes(env, rules->rule[j].entry, rules->rule[j].more, user);
			if (r == TP_RULE_TAKES)
				return rules->rule[j].entry;
			if (!why)
				why = (__u32)r;
		}
		if (rules->rule[TP_RULES_PER_PLACE - 1].more & TP_RULE_LAST)
			break;
		place = tp_rules_next(rules);
	}
	return TP_NO_RULE(why ? why : TP_DROP_NO_PDR);
}

#endif
