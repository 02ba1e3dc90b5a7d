/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Packets above their rate where a program cannot hold a frame: the finished frame goes to user space, and waits there until
 * its time (tp_leave_at()) has come.
 *
 * sides[].shaped counts those of an entry from before they are handed over until they have been sent. While there are some, all
 * packets of the entry go the same way, so that none overtakes another: user space keeps the order that they are handed
 * over in. A packet that finds the count at zero finds those before it sent.
 *
 * Packets that user space runs itself, beside programs or workers, go the same way: beside workers, which have the frames of a flow in a
 * wheel of their own, always. */
#ifndef TP_SHAPE_H
#define TP_SHAPE_H

#include "meter.h"
#include "packet.h"

/* May a frame wait so long, where there is room for so many more of all frames? While more than half is free, as long as any
 * may; then ever shorter, so that those that send far above their rates find no room while there still is some for others. */
static TP_INLINE int tp_may_wait(__u64 wait_ns, __u64 longest_ns, __u64 room, __u64 frames)
{
	return wait_ns * frames <= 2 * longest_ns * room;
}

#if TP_SHAPES
/* Is there room for one that waits until then? It leaves at the latest time that it is told of. TP_OK, or TP_DROP_SHAPER_FULL. */
TP_APART int tp_wait_until(struct tp_env *env, __u64 at_ns)
{
	struct tp_config *config = tp_config_of(env);
	struct tp_cpu *cpu = tp_cpu_of(env);
	struct tp_leave *leave;
	__u64 frames, waiting;

	if (!config || !cpu)
		return TP_DROP_SHAPER_FULL;
	leave = tp_leave_of(env, cpu);
	frames = TP_READ(config->shaper_frames);
	waiting = TP_READ(config->shaped);
	if (frames && at_ns > cpu->clock_ns &&
	    (waiting >= frames ||
	     !tp_may_wait(at_ns - cpu->clock_ns, config->longest_wait_ns, frames - waiting, frames)))
		return TP_DROP_SHAPER_FULL;
	if (at_ns > leave->at_ns)
		leave->at_ns = at_ns;
	return TP_OK;
}

/* A frame that is finished and may have to wait. If it is lost it has paid nothing.
 *
 * index  of the entry that it goes by; TP_LATER_UNCOUNTED: it waits in any case, and nothing comes behind it
 * bytes  that the entry's meters were charged for
 *
 * TP_OUT_REDIRECT: it leaves at once; TP_OUT_LATER, or TP_DROP_SHAPER_FULL. */
TP_APART int tp_leave_later(struct tp_env *env, __u32 index, __u32 bytes)
{
	struct tp_config *config = tp_config_of(env);
	struct tp_cpu *cpu = tp_cpu_of(env);
	struct tp_side *side = tp_side_at(env, index);
	struct tp_later later = {0, index, 0};
	struct tp_hand hand = {TP_EVENT_LATER, 0, &later, sizeof(later) / 8, {0, 0}};
	const struct tp_leave *leave;
	__u64 frames;

	if (!config || !cpu)
		return TP_DROP_TABLE;
	leave = tp_leave_of(env, cpu);
	later.leaves_ns = leave->at_ns;
	later.to = (__u32)leave->by;
	hand.octets.len = (__u32)(tp_end(env) - tp_data(env));
	tp_keep(hand.octets.len);
	if (tp_leaves_by_worker(env)) {
		if (!tp_hand_over(env, TP_RING_LATER, &hand))
			return TP_OUT_LATER;
		tp_pay_back(env, index, bytes);
		return TP_DROP_SHAPER_FULL;
	}
	/* Packets that share a reading of the clock would all wait for the first of them. */
	if (later.leaves_ns > cpu->clock_ns)
		cpu->clock_ns = tp_clock_exact(env);
	frames = TP_READ(config->shaper_frames);
	if (!frames || (side && later.leaves_ns <= cpu->clock_ns && !TP_READ(side->shaped)))
		return TP_OUT_REDIRECT;
	if (side)
		__sync_fetch_and_add(&side->shaped, 1);
	if (__sync_fetch_and_add(&config->shaped, 1) < frames && !tp_hand_over(env, TP_RING_LATER, &hand))
		return TP_OUT_LATER;
	__sync_fetch_and_add(&config->shaped, -1);
	if (side)
		__sync_fetch_and_add(&side->shaped, -1);
	tp_pay_back(env, index, bytes);
	return TP_DROP_SHAPER_FULL;
}
#endif

#if TP_SHAPES
/* Its time has come, and none of its entry waits. */
static TP_INLINE int tp_leaves_now(struct tp_run *run, const struct tp_packet *p, const struct tp_leave *leave)
{
	const struct tp_side *side;

	if (tp_leaves_by_worker(p->env) || leave->at_ns > run->cpu->clock_ns)
		return 0;
	side = tp_side_at(p->env, p->index);
	return side && !TP_READ(side->shaped);
}
#endif

/* An outcome, of a frame that may have to wait. */
static TP_INLINE int tp_depart(struct tp_run *run, const struct tp_packet *p, int r)
{
#if TP_SHAPES
	const struct tp_leave *leave;

	if (!tp_hands_later(p->env) || r != TP_OUT_REDIRECT)
		return r;
	leave = tp_leave_of(p->env, run->cpu);
	if (tp_likely(!leave->at_ns || tp_leaves_now(run, p, leave)))
		return r;
	r = tp_final(tp_leave_later(p->env, p->index, p->user_len));
#endif
	return r;
}

#endif
