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
	__u32 proto;
	__u32 has_ports;
	__u32 sport, dport;
};

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

static TP_INLINE void tp_read_flow(const struct tp_packet *p, struct tp_flow *f)
{
	const __u8 *ports = NULL;
	__u32 off;

	f->src = tp_source(p);
	f->dst = tp_destination(p);
	f->family = p->family;
	if (p->family == 4) {
		f->proto = p->ip[9];
		off = tp_get16(p->ip + 6) & 0x1fff ? 0 : p->user + (p->ip[0] & 15) * 4;
	} else {
		off = tp_ip6_upper(p, &f->proto);
	}
	if (off && (f->proto == TP_PROTO_TCP || f->proto == TP_PROTO_UDP || f->proto == TP_PROTO_SCTP) &&
	    off + 4 <= p->user + p->user_len)
		ports = tp_at(p, off, 4);
	f->has_ports = ports != NULL;
	f->sport = ports ? tp_get16(ports) : 0;
	f->dport = ports ? tp_get16(ports + 2) : 0;
}

static TP_INLINE int tp_rule_matches(const struct tp_rule *rule, const struct tp_flow *f)
{
	__u32 flags = rule->flags;

	if (flags & TP_RULE_ANY)
		return 1;
	if (!(flags & (f->family == 4 ? TP_RULE_V4 : TP_RULE_V6)))
		return 0;
	if ((flags & TP_RULE_PROTO) && rule->proto != f->proto)
		return 0;
	if ((flags & TP_RULE_PORTS) &&
	    (!f->has_ports || f->sport < rule->sport_lo || f->sport > rule->sport_hi ||
	     f->dport < rule->dport_lo || f->dport > rule->dport_hi))
		return 0;
	if ((flags & (TP_RULE_V4 | TP_RULE_V6)) == (TP_RULE_V4 | TP_RULE_V6))
		return 1;
	return tp_in_prefix(f->src, rule->src, rule->src_plen) && tp_in_prefix(f->dst, rule->dst, rule->dst_plen);
}

/* What tp_match_rules() returns for a packet that no PDR takes. */
#define TP_NO_RULE(reason) (1ULL << 32 | (reason))

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

/* The entry index of the first rule whose filter and whose entry's own conditions hold, or
 * TP_NO_RULE(). When filters matched but conditions did not, the first such condition is the reason;
 * else TP_DROP_NO_PDR.
 *
 * user  tp_pack_user() of the packet */
TP_APART __u64 tp_match_rules(struct tp_env *env, __u32 first, __u64 user)
{
	int why = TP_DROP_NO_PDR, r;
	struct tp_packet p = {0};
	struct tp_entry *e;
	struct tp_rule *rule;
	struct tp_flow flow;
	__u32 i;

	p.env = env;
	if (!tp_unpack_user(&p, user))
		return TP_NO_RULE(TP_DROP_TABLE);
	tp_read_flow(&p, &flow);
	for (i = 0; i < TP_RULES_MAX; i++) {
		rule = tp_rule_at(env, first + i);
		if (!rule)
			return TP_NO_RULE(TP_DROP_TABLE);
		if (tp_rule_matches(rule, &flow)) {
			e = tp_entry_at(env, rule->entry);
			if (!e)
				return TP_NO_RULE(TP_DROP_TABLE);
			r = tp_check_conditions(&p, e, TP_READ(e->head));
			if (r == TP_OK)
				return rule->entry;
			why = why == TP_DROP_NO_PDR ? r : why;
		}
		if (rule->flags & TP_RULE_LAST)
			break;
	}
	return TP_NO_RULE(why);
}

#endif
