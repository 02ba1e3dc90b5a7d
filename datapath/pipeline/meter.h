/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* MBR enforcement (TS 29.244, 5.4.3): a generic cell rate algorithm over inner IP octets.
 *
 * The theoretical arrival time is in ticks of 1/64 ns: an octet at 10 Gbit/s is 51 of them, so that a
 * truncated cost is wrong by less than 0.1 % from 20 octets on; at 100 Gbit/s from 200 on.
 *
 * A rate with TP_RATE_SHAPE has packets above it wait in place of being dropped, where the platform can (TP_SHAPES): the
 * theoretical arrival time is when the packet leaves. It never goes back while packets wait, so that those of a flow leave in order.
 *
 * Meters are always charged atomically, also where one CPU meets all packets of a direction: what comes from other UEs, and
 * what user space finishes, is charged to them from elsewhere. */
#ifndef TP_METER_H
#define TP_METER_H

#include "conditions.h"
#include "packet.h"

#define TP_METER_TRIES 4 /* lost races for one meter, after which the cost is added unseen */

static TP_INLINE __u64 tp_rate_cost(__u64 rate, __u32 bytes)
{
	return (__u64)bytes * (__u32)rate >> (rate >> TP_RATE_SHIFT_SHIFT & TP_RATE_SHIFT_MASK);
}

static TP_INLINE __u64 tp_rate_burst(__u64 rate)
{
	return (rate >> TP_RATE_BURST_SHIFT) * (TP_RATE_BURST_UNIT_NS << TP_TICKS_PER_NS_SHIFT);
}

/* A packet met this theoretical arrival time. leaves: in ticks, the latest of all meters. Without a branch, of which the verifier
 * would follow both ways from here on. */
static TP_INLINE void tp_leave_behind(__u64 rate, __u64 tat, __u64 *leaves)
{
	__u64 is_shaped = -(rate / TP_RATE_SHAPE & 1), is_later = (__u64)((__s64)(*leaves - tat) >> 63);

	if (TP_SHAPES_HERE)
		*leaves += (tat - *leaves) & is_later & is_shaped;
}

/* Spend bytes. 1: they conform; 0: they do not, and the state is as before. leaves: see tp_leave_behind() */
static TP_INLINE int tp_meter_take(__u64 rate, __u64 *tat, __u32 bytes, __u64 now_ns, __u64 *leaves)
{
	__u64 now = now_ns << TP_TICKS_PER_NS_SHIFT, burst = tp_rate_burst(rate), cost, seen, next;
	__u32 i;

	if (!(__u32)rate && !(TP_SHAPES_HERE && (rate & TP_RATE_SHAPE)))
		return !(rate & TP_RATE_BLOCK);
	if (rate & TP_RATE_BLOCK)
		return 0;
	cost = tp_rate_cost(rate, bytes);
	for (i = 0; i < TP_METER_TRIES; i++) {
		seen = TP_READ(*tat);
		next = seen > now ? seen : now;
		if (next - now > burst)
			return 0;
		if (__sync_val_compare_and_swap(tat, seen, next + cost) == seen) {
			tp_leave_behind(rate, seen, leaves);
			return 1;
		}
	}
	seen = __sync_fetch_and_add(tat, cost);
	tp_leave_behind(rate, seen, leaves);
	return 1;
}

/* Name of what a meter refuses. */
static TP_INLINE int tp_refusal_of(__u64 rate)
{
	return TP_SHAPES_HERE && (rate & TP_RATE_SHAPE) ? TP_DROP_SHAPER_HORIZON : TP_DROP_RATE;
}

/* Undo tp_meter_take(), because another meter refused the packet. */
static TP_INLINE void tp_meter_give_back(__u64 rate, __u64 *tat, __u32 bytes)
{
	if (!(__u32)rate)
		return;
	__sync_fetch_and_add(tat, -tp_rate_cost(rate, bytes));
}

/* Undo the first n shared meters. */
static TP_INLINE void tp_give_back_shared(struct tp_packet *p, const struct tp_ext *ext, __u32 n)
{
	struct tp_meter *m;
	__u32 i;

	for (i = 0; i < TP_METERS_MAX && i < n && i < ext->n_meters; i++) {
		m = tp_meter_at(p->env, ext->meters[i]);
		if (m)
			tp_meter_give_back(TP_READ(m->rate), &m->tat, p->user_len);
	}
}

/* Meters shared with other PDRs: all conform, or none is charged. */
static TP_INLINE int tp_shared_meters(struct tp_packet *p, const struct tp_ext *ext, __u64 now_ns, __u64 *leaves)
{
	struct tp_meter *m;
	__u32 i;

	for (i = 0; i < TP_METERS_MAX; i++) {
		if (i >= ext->n_meters)
			return TP_OK;
		m = tp_meter_at(p->env, ext->meters[i]);
		if (m && !tp_meter_take(TP_READ(m->rate), &m->tat, p->user_len, now_ns, leaves)) {
			__sync_fetch_and_add(&m->drops, 1);
			tp_give_back_shared(p, ext, i);
			return tp_refusal_of(TP_READ(m->rate));
		}
	}
	return TP_OK;
}

/* One packet of a packet rate. */
static TP_INLINE int tp_packet_take(__u64 limit, __u64 *state, __u64 now_ns)
{
	__u64 now = now_ns >> TP_PACKETS_TIME_SHIFT, seen, next;
	__u32 i;

	if (!(limit & TP_PACKETS_MASK))
		return 0;
	for (i = 0; i < TP_METER_TRIES; i++) {
		seen = TP_READ(*state);
		if (now >= (seen >> TP_PACKETS_SHIFT) + (limit >> TP_PACKETS_SHIFT))
			next = now << TP_PACKETS_SHIFT | 1;
		else if ((seen & TP_PACKETS_MASK) >= (limit & TP_PACKETS_MASK))
			return 0;
		else
			next = seen + 1;
		if (__sync_val_compare_and_swap(state, seen, next) == seen)
			return 1;
	}
	__sync_fetch_and_add(state, 1);
	return 1;
}

/* The limits that stand in the extension: MBRs shared with other PDRs, then the packet rate. */
static TP_INLINE int tp_police_ext(struct tp_packet *p, const struct tp_ext *ext, __u64 now_ns, __u64 *leaves)
{
	struct tp_meter *m;
	int r = tp_shared_meters(p, ext, now_ns, leaves);

	if (r || tp_likely(!ext->packet_meter))
		return r;
	m = tp_meter_at(p->env, ext->packet_meter - 1);
	if (!m || tp_packet_take(TP_READ(m->rate), &m->tat, now_ns))
		return TP_OK;
	__sync_fetch_and_add(&m->drops, 1);
	tp_give_back_shared(p, ext, TP_METERS_MAX);
	return TP_DROP_PACKET_RATE;
}

/* When it leaves, in ticks; 0: at once. TP_DROP_SHAPER_FULL: it cannot wait, and has paid for nothing but its own meter. */
static TP_INLINE int tp_shape(struct tp_packet *p, const struct tp_ext *ext, __u64 leaves)
{
	int r = TP_OK;

#if TP_SHAPES
	if (leaves)
		r = tp_leave_at(p->env, (leaves + (1 << TP_TICKS_PER_NS_SHIFT) - 1) >> TP_TICKS_PER_NS_SHIFT);
	if (tp_unlikely(r) && ext)
		tp_give_back_shared(p, ext, TP_METERS_MAX);
#endif
	return r;
}

#if TP_SHAPES
/* Undo what an entry's MBRs have taken for a packet of so many bytes, which is lost after all. */
TP_APART int tp_pay_back(struct tp_env *env, __u32 index, __u32 bytes)
{
	struct tp_entry *e = tp_entry_at(env, index);
	struct tp_packet p = {0};
	const struct tp_ext *ext;
	__u64 head;

	if (!e)
		return 0;
	head = TP_READ(e->head);
	if (head & TP_HEAD_METER)
		tp_meter_give_back(TP_READ(e->rate), &e->tat, bytes);
	p.env = env;
	p.user_len = bytes;
	ext = tp_ext_of(env, e, head);
	if (ext)
		tp_give_back_shared(&p, ext, TP_METERS_MAX);
	return 0;
}

/* What pays nothing leaves behind those packets of an entry that wait. As tp_leave_at(). */
static TP_INLINE int tp_leave_last(struct tp_env *env, const struct tp_entry *e, __u64 head)
{
	const struct tp_ext *ext = tp_ext_of(env, e, head);
	const struct tp_meter *m;
	__u64 leaves = 0;
	__u32 i;

	if (head & TP_HEAD_METER)
		tp_leave_behind(TP_READ(e->rate), TP_READ(e->tat), &leaves);
	for (i = 0; ext && i < ext->n_meters && i < TP_METERS_MAX; i++) {
		m = tp_meter_at(env, ext->meters[i]);
		if (m)
			tp_leave_behind(TP_READ(m->rate), TP_READ(m->tat), &leaves);
	}
	return leaves ? tp_leave_at(env, leaves >> TP_TICKS_PER_NS_SHIFT) : TP_OK;
}
#endif

/* Every limit that holds for the packet's entry: its own, then those of its extension. */
static TP_INLINE int tp_police(struct tp_run *run, struct tp_packet *p)
{
	const struct tp_ext *ext = tp_ext(p);
	__u32 own = tp_has(p->env, TP_FEAT_METER) && (p->head & TP_HEAD_METER);
	__u64 now_ns, rate = 0, leaves = 0;
	int r = TP_OK;

	if (!own && !(ext && (ext->n_meters || ext->packet_meter)))
		return TP_OK;
	now_ns = tp_now(run, p);
	if (own) {
		rate = TP_READ(p->entry->rate);
		if (!tp_meter_take(rate, &p->entry->tat, p->user_len, now_ns, &leaves))
			return tp_refusal_of(rate);
	}
	if (ext)
		r = tp_police_ext(p, ext, now_ns, &leaves);
	if (!r)
		r = tp_shape(p, ext, leaves);
	if (tp_unlikely(r) && own)
		tp_meter_give_back(rate, &p->entry->tat, p->user_len);
	return r;
}

#endif
