/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Packets whose time is up, or that are too long for the way out: their senders hear of it, or they are cut (RFC 1812, 4.3
 * and 5.2.6; RFC 4443, 3.2 and 3.3). Both are user space's work. */
#ifndef TP_LOST_H
#define TP_LOST_H

#include "act.h"
#include "answer.h"
#include "packet.h"
#include "task.h"
#include "tunnel.h"

#define TP_QUOTE_MAX 1232U /* octets of a packet that an ICMPv6 error of 1280 has room for (RFC 4443, 2.4c) */

#define TP_USER_FROM_UE (1ULL << 57) /* beside tp_pack_user(): it came in a tunnel */

static TP_INLINE __u64 tp_pack_lost(const struct tp_packet *p)
{
	return tp_pack_user(p) | (p->gtpu ? TP_USER_FROM_UE : 0);
}

/* The user's packet, or its first octets, for user space, with a struct tp_task of three words. */
static TP_INLINE int tp_ask_user(struct tp_env *env, __u64 user, __u32 at_most, __u64 task, __u64 out, __u64 marks)
{
	struct tp_outer outer = {{0}, sizeof(struct tp_task), TP_EVENT_PACKET};
	__u32 len = user & 0xfffff;

	tp_store64(outer.bytes, task | (user & TP_USER_FROM_UE ? (__u64)TP_TASK_FROM_UE << 48 : 0));
	tp_store64(outer.bytes + 8, out);
	tp_store64(outer.bytes + 16, marks);
	return tp_punt(env, (__u32)(marks >> 32), &outer, (__u32)(user >> 20 & 0xfffff), len < at_most ? len : at_most);
}

#define TP_SENDERS_SHARE 8 /* one sender is told so many times more seldom than all together */
#define TP_SENDER_AT_ONCE 8

/* May this sender be told? Packets that are too long have words of their own, so that somebody who plays with TTLs takes the
 * path MTU from nobody; and senders have, so that one takes not all of either.
 *
 * user   tp_pack_lost() */
TP_APART int tp_may_tell(struct tp_env *env, __u64 user, __u32 too_long)
{
	const struct tp_config *config = tp_config_of(env);
	struct tp_cpu *cpu = tp_cpu_of(env);
	struct tp_packet p = {0};
	__u64 spacing, now_ns;
	__u32 sender;

	p.env = env;
	if (!config || !cpu || !tp_unpack_user(&p, user))
		return 0;
	spacing = TP_READ(config->icmp_ns);
	if (!spacing)
		return 0;
	/* An IPv6 UE has a /64 to choose addresses from. */
	sender = (__u32)tp_hash(tp_source(&p).hi, 0, config->salt) & (TP_SENDERS - 1);
	now_ns = tp_clock(env, cpu);
	return tp_within_burst(too_long ? &cpu->too_long_tats[sender] : &cpu->expired_tats[sender], now_ns,
			       spacing * TP_SENDERS_SHARE, TP_SENDER_AT_ONCE) &&
	       tp_within_rate(too_long ? &cpu->too_long_tat : &cpu->expired_tat, now_ns, (__u32)spacing);
}

/* user: tp_pack_lost(). Returns nothing of interest: the packet is lost anyhow. */
TP_APART int tp_tell_expired(struct tp_env *env, __u64 user, __u32 ni)
{
	if (!tp_may_tell(env, user, 0))
		return 0;
	return tp_ask_user(env, user, TP_QUOTE_MAX, TP_TASK_EXPIRED | (__u64)(ni & 0xffff) << 32, 0, 0);
}

/* A router's part in TTL or hop limit. */
static TP_INLINE int tp_spend_hop(struct tp_packet *p, __u64 head)
{
	int r = tp_decrement_ttl(p);

	if (tp_unlikely(r))
		tp_tell_expired(p->env, tp_pack_lost(p), TP_HEAD_NI_OF(head));
	return r;
}

/* Longer than the way out allows: to be cut, or its sender is told.
 *
 * user   tp_pack_lost()
 * task, out, marks  words of a struct tp_task */
TP_APART int tp_tell_too_long(struct tp_env *env, __u64 user, __u64 task, __u64 out, __u64 marks)
{
	struct tp_packet p = {0};

	p.env = env;
	if (!tp_unpack_user(&p, user))
		return TP_DROP_MTU;
	if (p.family == 4 && !(tp_get16(p.ip + 6) & TP_IP4_DONT_FRAGMENT))
		return tp_ask_user(env, user, TP_EVENT_DATA_MAX, task | TP_TASK_CUT, out, marks);
	if (tp_may_tell(env, user, 1))
		tp_ask_user(env, user, TP_QUOTE_MAX, task | TP_TASK_TOO_LONG, out, marks);
	return TP_DROP_MTU;
}

/* The same of a packet that came in a tunnel and would go on in one (TP_TASK_RELAYED). To be cut, it goes with its GTP-U
 * header; marks: octets of that header in bits 0..15. */
TP_APART int tp_tell_relayed_too_long(struct tp_env *env, __u64 user, __u64 task, __u64 out, __u64 marks)
{
	__u32 header = marks & 0xffff;
	struct tp_packet p = {0};
	const __u8 *gtpu;

	p.env = env;
	if (!tp_unpack_user(&p, user))
		return TP_DROP_MTU;
	if (p.family == 4 && !(tp_get16(p.ip + 6) & TP_IP4_DONT_FRAGMENT))
		return tp_ask_user(env, user + header - ((__u64)header << 20), TP_EVENT_DATA_MAX, task | TP_TASK_CUT, out,
				   marks);
	gtpu = tp_at(&p, p.user - header, TP_GTPU_LEN);
	if (gtpu && tp_may_tell(env, user, 1))
		tp_ask_user(env, user, TP_QUOTE_MAX, task | TP_TASK_TOO_LONG,
			    (__u64)p.qfi << 32 | tp_get32(gtpu + 4), marks);
	return TP_DROP_MTU;
}

/* A G-PDU with an extension header that we do not understand, and must: its sender hears which ones we do (TS 29.281, 7.2.3),
 * as often as of tunnels that are not there. Returns the span of tp_ask(), or 0; asking from here would take too much stack. */
TP_APART __u64 tp_whom_to_tell_extensions(struct tp_env *env, __u32 l3)
{
	const struct tp_config *config = tp_config_of(env);
	struct tp_cpu *cpu = tp_cpu_of(env);
	const __u8 *ip = tp_span(tp_data(env), tp_end(env), l3, 1);
	__u32 spacing;

	if (!config || !cpu || !ip)
		return 0;
	spacing = TP_READ(config->error_indication_ns);
	if (!spacing || !tp_within_rate(&cpu->extension_tat, tp_clock(env, cpu), spacing))
		return 0;
	return (__u64)l3 << 32 | (*ip >> 4 == 6 ? TP_IP6_LEN : TP_IP4_LEN);
}

static TP_INLINE void tp_tell_extensions(struct tp_packet *p)
{
	__u64 span = tp_whom_to_tell_extensions(p->env, p->l3);

	if (span)
		tp_ask(p->env, TP_TASK_EXTENSION, span, 0);
}

static TP_INLINE int tp_too_long(struct tp_packet *p, const struct tp_nexthop *nh, const struct tp_tunnel *t,
				 const struct tp_entry *e)
{
	__u64 task = (__u64)nh->mtu << 16 | t->len << 8, marks = (__u64)nh->ifindex << 32 | (__u32)t->mark << 16 | t->marks;

	if (!e)
		return TP_DROP_MTU;
	return tp_final(tp_tell_too_long(p->env, tp_pack_lost(p), task | (__u64)TP_HEAD_NI_OF(TP_READ(e->head)) << 32,
					 TP_READ(e->out), marks));
}

#endif
