/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* SDF filters: which PDR of several takes the packet (TS 29.244, 5.2.1). */
#ifndef TP_RULES_H
#define TP_RULES_H

#include "act.h"
#include "match.h"
#include "packet.h"

#define TP_PROTO_TCP 6
#define TP_PROTO_UDP 17
#define TP_PROTO_SCTP 132

#define TP_IP6_HOP_BY_HOP 0
#define TP_IP6_ROUTING 43
#define TP_IP6_FRAGMENT 44
#define TP_IP6_AH 51
#define TP_IP6_DESTINATION 60
#define TP_IP6_HEADERS_MAX 8 /* extension headers walked; what lies behind has no ports */

/* What filters compare. */
struct tp_flow {
	struct tp_addr src, dst;
	__u32 family;
	__u64 transport; /* tp_transport() */
};

/* Protocol and ports in one word. */
#define TP_TRANSPORT_PORTS (1ULL << 32) /* there are ports */
#define TP_TRANSPORT_PROTO(t) ((__u32)((t) >> 40))
#define TP_TRANSPORT_SPORT(t) ((__u32)(t) >> 16)
#define TP_TRANSPORT_DPORT(t) ((__u32)(t) & 0xffff)

/* Walk IPv6 extension headers to the upper layer. Its offset, or 0 when there are no ports to find:
 * a later fragment, too many headers, or a packet that ends early. */
static TP_INLINE __u32 tp_ip6_upper(const struct tp_packet *p, __u32 *proto)
{
	__u32 i, off = p->user + TP_IP6_LEN;
	const __u8 *h;

	*proto = p->ip[6];
	for (i = 0; i < TP_IP6_HEADERS_MAX; i++) {
		if (*proto != TP_IP6_HOP_BY_HOP && *proto != TP_IP6_ROUTING && *proto != TP_IP6_FRAGMENT &&
		    *proto != TP_IP6_AH && *proto != TP_IP6_DESTINATION)
			return off;
		h = tp_at(p, off, 8);
		if (!h || off + 8 > p->user + p->user_len)
			return 0;
		if (*proto == TP_IP6_FRAGMENT && tp_get16(h + 2) & 0xfff8) {
			*proto = h[0];
			return 0;
		}
		off += *proto == TP_IP6_FRAGMENT ? 8 : *proto == TP_IP6_AH ? (h[1] + 2) * 4U : (h[1] + 1) * 8U;
		*proto = h[0];
	}
	return 0;
}

/* The packet's protocol and ports.
 *
 * user  tp_pack_user() of the packet */
TP_APART __u64 tp_transport(struct tp_env *env, __u64 user)
{
	struct tp_packet p = {0};
	const __u8 *ports;
	__u32 off, proto;

	p.env = env;
	if (!tp_unpack_user(&p, user))
		return 0;
	if (p.family == 4) {
		proto = p.ip[9];
		off = tp_get16(p.ip + 6) & 0x1fff ? 0 : p.user + (p.ip[0] & 15) * 4;
	} else {
		off = tp_ip6_upper(&p, &proto);
	}
	if (!off || off + 4 > p.user + p.user_len ||
	    (proto != TP_PROTO_TCP && proto != TP_PROTO_UDP && proto != TP_PROTO_SCTP))
		return (__u64)proto << 40;
	ports = tp_at(&p, off, 4);
	return ports ? (__u64)proto << 40 | TP_TRANSPORT_PORTS | tp_get32(ports) : 0;
}

static TP_INLINE int tp_rule_matches(const struct tp_rule *rule, const struct tp_flow *f)
{
	__u32 flags = rule->flags;

	if (flags & TP_RULE_ANY)
		return 1;
	if (!(flags & (f->family == 4 ? TP_RULE_V4 : TP_RULE_V6)))
		return 0;
	if ((flags & TP_RULE_PROTO) && rule->proto != TP_TRANSPORT_PROTO(f->transport))
		return 0;
	if ((flags & TP_RULE_PORTS) &&
	    (!(f->transport & TP_TRANSPORT_PORTS) || TP_TRANSPORT_SPORT(f->transport) < rule->sport_lo ||
	     TP_TRANSPORT_SPORT(f->transport) > rule->sport_hi || TP_TRANSPORT_DPORT(f->transport) < rule->dport_lo ||
	     TP_TRANSPORT_DPORT(f->transport) > rule->dport_hi))
		return 0;
	if ((flags & (TP_RULE_V4 | TP_RULE_V6)) == (TP_RULE_V4 | TP_RULE_V6))
		return 1;
	return tp_in_prefix(f->src, rule->src, rule->src_plen) && tp_in_prefix(f->dst, rule->dst, rule->dst_plen);
}

/* What tp_match_rules() returns for a packet that no PDR takes. */
#define TP_NO_RULE(reason) (1ULL << 32 | (reason))

/* What tp_try_rule() returns beside the entry index or the reason in bits 0..31. */
#define TP_TRY_MATCH (1ULL << 32)
#define TP_TRY_LAST (1ULL << 33)

/* Does a rule's filter match, and do its entry's own conditions hold? TP_TRY_MATCH and the entry
 * index, or the reason, which is TP_DROP_NONE when the filter did not match.
 *
 * user, transport  tp_pack_user() and tp_transport() of the packet */
TP_APART __u64 tp_try_rule(struct tp_env *env, __u32 index, __u64 user, __u64 transport)
{
	const struct tp_rule *rule = tp_rule_at(env, index);
	const struct tp_entry *e;
	struct tp_packet p = {0};
	struct tp_flow flow;
	__u64 last;

	p.env = env;
	if (!rule || !tp_unpack_user(&p, user))
		return TP_TRY_LAST | TP_DROP_TABLE;
	flow.src = tp_source(&p);
	flow.dst = tp_destination(&p);
	flow.family = p.family;
	flow.transport = transport;
	last = rule->flags & TP_RULE_LAST ? TP_TRY_LAST : 0;
	if (!tp_rule_matches(rule, &flow))
		return last;
	e = tp_entry_at(env, rule->entry);
	if (!e)
		return TP_TRY_LAST | TP_DROP_TABLE;
	last |= (__u32)tp_check_conditions(&p, e, TP_READ(e->head));
	return (__u32)last ? last : TP_TRY_MATCH | rule->entry;
}

/* What tp_match_rules() returns for a packet that no PDR takes. */
#define TP_NO_RULE(reason) (1ULL << 32 | (reason))

/* The entry index of the first rule that takes the packet, or TP_NO_RULE(). When filters matched but
 * conditions did not, the first such condition is the reason; else TP_DROP_NO_PDR. */
TP_APART __u64 tp_match_rules(struct tp_env *env, __u32 first, __u64 user)
{
	__u64 transport = tp_transport(env, user), tried;
	__u32 i, why = TP_DROP_NONE;

	for (i = 0; i < TP_RULES_MAX; i++) {
		tried = tp_try_rule(env, first + i, user, transport);
		if (tried & TP_TRY_MATCH)
			return (__u32)tried;
		if (!why)
			why = (__u32)tried;
		if (tried & TP_TRY_LAST)
			break;
	}
	return TP_NO_RULE(why ? why : TP_DROP_NO_PDR);
}

#endif
