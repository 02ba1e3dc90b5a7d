/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Rate words, and the theoretical arrival times that they move on. */
#ifndef TP_METER_WORD_H
#define TP_METER_WORD_H

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

/* The later of two times, without a branch, both ways of which the verifier would follow. */
static TP_INLINE __u64 tp_later(__u64 a, __u64 b)
{
	__s64 more = (__s64)(b - a);

	return a + (__u64)(more & ~(more >> 63));
}

/* A packet met this theoretical arrival time. leaves: in ticks, the latest of all meters. */
static TP_INLINE void tp_leave_behind(__u64 rate, __u64 tat, __u64 *leaves)
{
	__u64 is_shaped = -(rate / TP_RATE_SHAPE & 1);

	if (TP_SHAPES_HERE)
		*leaves = tp_later(*leaves, tat & is_shaped);
}

/* Move on by cost. 1, and the time that was met; 0: that is more than burst ahead, and stays. */
static TP_INLINE int tp_tat_take(__u64 *tat, __u64 cost, __u64 burst, __u64 now, __u64 *met)
{
	__u64 seen, next;
	__u32 i;

	for (i = 0; i < TP_METER_TRIES; i++) {
		seen = TP_READ(*tat);
		next = seen > now ? seen : now;
		if (next - now > burst)
			return 0;
		if (__sync_val_compare_and_swap(tat, seen, next + cost) == seen) {
			*met = seen;
			return 1;
		}
	}
	*met = __sync_fetch_and_add(tat, cost);
	return 1;
}

/* As tp_tat_take(), however far ahead. */
static TP_INLINE void tp_tat_add(__u64 *tat, __u64 cost, __u64 now)
{
	__u64 met;

	tp_tat_take(tat, cost, ~0ULL, now, &met);
}

#endif
