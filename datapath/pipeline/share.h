/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Shares of what an interface carries, or a network instance or a group of users may have (TS 23.501, 5.7.1.8, 5.7.3).
 *
 * Each flow is metered by the rate that its weight gives it of a capacity. That rate is user space's: it looks every few
 * milliseconds at what has passed, and lowers it while that is too much, raises it while there is room. So no queue of flows is
 * needed, and every data path has the same. A flow with a guaranteed rate (GFBR) is never metered by less.
 *
 * What passes before user space has looked again, the capacity as a whole limits: packets without a guarantee are dropped beyond
 * it, or wait. What all CPUs have let pass is gathered by each, and added up in steps, so that they do not fight over a line. */
#ifndef TP_SHARE_H
#define TP_SHARE_H

#include "meter_word.h"

/* What tp_take_share() says: TP_SHARE_REFUSED, or the latest time that it met, in ticks, and whether that is when the packet
 * leaves. */
#define TP_SHARE_REFUSED (~0ULL)
#define TP_SHARE_WAITS (1ULL << 63)

/* Cost of a packet for its flow, in ticks, how far the flow may be ahead, and the capacity that says so. */
struct tp_due {
	__u64 cost, burst;
	struct tp_capacity *of;
};

/* By the capacity that has the least for it. */
static TP_INLINE struct tp_due tp_share_due(struct tp_env *env, const struct tp_meter *m, __u32 bytes)
{
	__u64 word, cost, guaranteed = TP_READ(m->rate);
	struct tp_due due = {0, 0, NULL};
	struct tp_capacity *c;
	__u32 i;

	for (i = 0; i < TP_SHARE_CAPACITIES; i++) {
		c = m->capacities[i] ? tp_capacity_at(env, m->capacities[i]) : NULL;
		if (!c)
			continue;
		word = TP_READ(c->share);
		cost = tp_rate_cost(word, bytes) * m->slower >> TP_SHARE_SHIFT;
		if (cost > due.cost)
			due = (struct tp_due){cost, tp_rate_burst(word), c};
	}
	if ((__u32)guaranteed && due.cost) {
		cost = tp_rate_cost(guaranteed, bytes);
		if (cost < due.cost)
			due.cost = cost;
		/* Also when its share is more: what it is ahead by its guarantee is not held against it then. */
		due.burst = tp_later(due.burst, tp_rate_burst(guaranteed));
	}
	return due;
}

/* One that has no room for more. ahead: the latest time that was met. */
static TP_INLINE struct tp_capacity *tp_capacity_full(struct tp_env *env, const struct tp_meter *m, __u64 now, __u64 *ahead)
{
	struct tp_capacity *c;
	__u64 tat;
	__u32 i;

	for (i = 0; i < TP_SHARE_CAPACITIES; i++) {
		c = m->capacities[i] ? tp_capacity_at(env, m->capacities[i]) : NULL;
		tat = c ? TP_READ(c->tat) : 0;
		if (c && tat > now && tat - now > tp_rate_burst(TP_READ(c->rate)))
			return c;
		*ahead = tp_later(*ahead, tat);
	}
	return NULL;
}

static TP_INLINE void tp_capacity_charge(struct tp_capacity *c, __u64 *mine, __u32 bytes, __u64 now)
{
	__u64 before = *mine, after = before + bytes, octets;
	__u32 step = c->step & 31;

	*mine = after;
	octets = ((after >> step) - (before >> step)) << step;
	if (tp_likely(!octets))
		return;
	__sync_fetch_and_add(&c->bytes, octets);
	tp_tat_add(&c->tat, tp_rate_cost(TP_READ(c->rate), (__u32)octets), now);
}

static TP_INLINE void tp_share_charge(struct tp_env *env, const struct tp_meter *m, __u32 bytes, __u64 now)
{
	struct tp_cpu *cpu = tp_cpu_of(env);
	struct tp_capacity *c;
	__u32 i, place;

	for (i = 0; cpu && i < TP_SHARE_CAPACITIES; i++) {
		place = m->capacities[i];
		c = place ? tp_capacity_at(env, place) : NULL;
		if (c)
			tp_capacity_charge(c, &cpu->capacities[place & (TP_CAPACITIES_MAX - 1)], bytes, now);
	}
}

/* TP_SHARE_*
 *
 * line  of the share in meters[] */
TP_APART __u64 tp_take_share(struct tp_env *env, __u32 line, __u32 bytes, __u64 now_ns)
{
	struct tp_meter *m = tp_meter_at(env, line);
	__u64 now = now_ns << TP_TICKS_PER_NS_SHIFT, rate, ahead;
	struct tp_capacity *full;
	struct tp_due due;

	if (!m)
		return 0;
	rate = TP_READ(m->rate);
	due = tp_share_due(env, m, bytes);
	if (!due.cost) {
		ahead = TP_READ(m->tat);
	} else if (!tp_tat_take(&m->tat, due.cost, due.burst, now, &ahead)) {
		__sync_fetch_and_add(&m->drops, 1);
		if (due.of)
			__sync_fetch_and_add(&due.of->drops, 1);
		return TP_SHARE_REFUSED;
	}
	full = (__u32)rate ? NULL : tp_capacity_full(env, m, now, &ahead);
	if (tp_unlikely(full)) {
		__sync_fetch_and_add(&m->tat, -due.cost);
		__sync_fetch_and_add(&m->drops, 1);
		__sync_fetch_and_add(&full->drops, 1);
		__sync_fetch_and_add(&full->over, bytes);
		return TP_SHARE_REFUSED;
	}
	tp_share_charge(env, m, bytes, now);
	return (ahead & ~TP_SHARE_WAITS) | (rate & TP_RATE_SHAPE ? TP_SHARE_WAITS : 0);
}

#endif
