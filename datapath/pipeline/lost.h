/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Packets whose time is up, or that are too long for the way out: their senders hear of it, or they are cut (RFC 1812, 4.3
 * and 5.2.6; RFC 4443, 3.2 and 3.3). Both are user space's work. */
#ifndef TP_LOST_H
#define TP_LOST_H

#include "conditions.h"
#include "hand.h"
#include "packet.h"
#include "ration.h"
#include "route.h"
#include "tunnel.h"

#define TP_QUOTE_MAX 1232U /* octets of a packet that an ICMPv6 error of 1280 has room for (RFC 4443, 2.4c) */

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
	return tp_ask_user(env, user, TP_QUOTE_MAX, tp_task_what(TP_TASK_EXPIRED, 0, 0, ni, 0), 0, 0);
}

/* Longer than the way out allows: to be cut, or its sender is told.
 *
 * user   tp_pack_lost()
 * what, out, way  words of a struct tp_task */
TP_APART int tp_tell_too_long(struct tp_env *env, __u64 user, __u64 what, __u64 out, __u64 way)
{
	struct tp_packet p = {0};

	p.env = env;
	if (!tp_unpack_user(&p, user))
		return TP_DROP_MTU;
	if (p.family == 4 && !(tp_get16(p.ip + 6) & TP_IP4_DONT_FRAGMENT))
		return tp_ask_user(env, user, TP_EVENT_DATA_MAX, what | TP_TASK_CUT, out, way);
	if (tp_may_tell(env, user, 1))
		tp_ask_user(env, user, TP_QUOTE_MAX, what | TP_TASK_TOO_LONG, out, way);
	return TP_DROP_MTU;
}

/* The same of a packet that came in a tunnel and would go on in one (TP_TASK_RELAYED). To be cut, it goes with its GTP-U
 * header: the marks of way are its octets. */
TP_APART int tp_tell_relayed_too_long(struct tp_env *env, __u64 user, __u64 what, __u64 out, __u64 way)
{
	__u32 header = tp_task_way_marks(way);
	struct tp_packet p = {0};
	const __u8 *gtpu;

	p.env = env;
	if (!tp_unpack_user(&p, user))
		return TP_DROP_MTU;
	if (p.family == 4 && !(tp_get16(p.ip + 6) & TP_IP4_DONT_FRAGMENT))
		return tp_ask_user(env, user + header - ((__u64)header << TP_USER_OFF_SHIFT), TP_EVENT_DATA_MAX,
				   what | TP_TASK_CUT, out, way);
	gtpu = tp_at(&p, p.user - header, TP_GTPU_LEN);
	if (gtpu && tp_may_tell(env, user, 1))
		tp_ask_user(env, user, TP_QUOTE_MAX, what | TP_TASK_TOO_LONG,
			    (__u64)p.qfi << 32 | tp_get32(gtpu + 4), way);
	return TP_DROP_MTU;
}

/* A G-PDU with an extension header that we do not understand, and must: its sender hears which ones we do (TS 29.281, 7.2.3),
 * as often as of tunnels that are not there. Returns the octets for tp_ask(), or 0; asking from here would take too much stack. */
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
	return tp_octets(l3, *ip >> 4 == 6 ? TP_IP6_LEN : TP_IP4_LEN);
}

static TP_INLINE void tp_tell_extensions(const struct tp_packet *p)
{
	__u64 octets = tp_whom_to_tell_extensions(p->env, p->l3);

	if (octets)
		tp_ask(p->env, tp_task_what(TP_TASK_EXTENSION, 0, 0, 0, 0), 0, 0, octets);
}

/* Too long for the way out that judge has found. */
static TP_INLINE int tp_too_long(const struct tp_packet *p)
{
	const struct tp_tunnel *t = &p->tunnel;

	if (!p->entry || !p->nh)
		return TP_DROP_MTU;
	return tp_final(tp_tell_too_long(p->env, tp_pack_lost(p),
					 tp_task_what(0, t->len, p->nh->mtu, TP_HEAD_NI_OF(p->head), 0),
					 TP_READ(p->entry->out), tp_task_way(t->container, t->marking, p->nh->ifindex)));
}

/* An address in a pool that no session has, but a route of the port's network instance: the kernel's, which may have it. */
static TP_INLINE int tp_lose_unknown(const struct tp_packet *p)
{
	struct tp_addr dst = tp_destination(p);
	__u32 ni_family = tp_ni_of(p->env) | p->family << 16;

	return tp_route_in_pool(p->env, ni_family, dst.hi, dst.lo) == TP_NOT_FOUND ? TP_DROP_UNKNOWN_UE : TP_OUT_PASS;
}

#endif
