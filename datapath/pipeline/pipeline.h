/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* One packet's journey, from the frame to its outcome, in six stages. Start here.
 *
 *   open   frame -> key: TEID, or network instance and UE address    open.h: parse.h, gtpu.h
 *   seek   key -> index of an entry                                  seek.h
 *   take   index -> the PDR that takes it                            take.h: conditions.h, rules.h
 *   judge  PDR -> what is to be done                                 judge.h: buffer.h, meter.h, route.h, ue_to_ue.h
 *   send   ... and done to the frame: out, or to user space          send.h: tunnel.h, relay.h, answer.h, lost.h, hand.h
 *   count  outcome -> counters                                       count.h
 *
 * open, seek, take and judge say TP_OK, or why the packet leaves the journey: a drop reason, an outcome, or a plan. Each has its
 * function in send.h for those, because what is known of a packet at a later stage is then no burden for those that come
 * no farther (a merge of all ways out costs 60 ns a packet on BPF).
 */
#ifndef TP_PIPELINE_H
#define TP_PIPELINE_H

#include "count.h"
#include "judge.h"
#include "open.h"
#include "packet.h"
#include "seek.h"
#include "send.h"
#include "shape.h"
#include "take.h"
#include "trace.h"

/* A frame has come in. */
static TP_INLINE void tp_begin_packet(struct tp_packet *p, struct tp_env *env)
{
	p->env = env;
	p->data = tp_data(env);
	p->end = tp_end(env);
	p->frame_len = (__u32)(p->end - p->data);
	p->dir = tp_roles_of(env) & TP_ROLE_N3 ? TP_UPLINK : TP_DOWNLINK;
}

/* 0, or non-zero when there are no tables. */
static TP_INLINE int tp_begin(struct tp_run *run, struct tp_packet *p, struct tp_env *env)
{
	run->config = tp_config_of(env);
	run->cpu = tp_cpu_of(env);
	if (!run->config || !run->cpu)
		return 1;
	tp_begin_packet(p, env);
	if (tp_hands_later(env))
		tp_leave_of(env, run->cpu)->at_ns = 0;
	if (tp_has(env, TP_FEAT_TRACE))
		tp_trace_begin(p);
	return 0;
}

/* A PDR takes it. */
static TP_INLINE int tp_taken(struct tp_run *run, struct tp_packet *p)
{
	int r = tp_judge(run, p);

	return r ? tp_send_decided(p, r) : tp_send(p, tp_judge_way(run, p));
}

/* Its key leads to an entry. */
static TP_INLINE int tp_found(struct tp_run *run, struct tp_packet *p)
{
	int r = tp_take(p);

	r = tp_depart(run, p, r ? tp_send_untaken(p, r) : tp_taken(run, p));
	tp_count_taken(p, r);
	return r;
}

/* It has a key. TP_OK: it has an entry, too. */
static TP_INLINE int tp_sought(struct tp_run *run, struct tp_packet *p)
{
	int r = tp_seek(p);

	/* It is a user's, then. */
	if (!r && tp_unlikely(tp_is_unmanaged(p->env, run->config, run->cpu)))
		r = TP_DROP_UNMANAGED;
	return r;
}

static TP_INLINE int tp_opened(struct tp_run *run, struct tp_packet *p)
{
	int r = tp_sought(run, p);

	return r ? tp_send_unsought(run, p, r) : tp_found(run, p);
}

/* enum tp_outcome, or enum tp_drop. */
static TP_INLINE int tp_pipeline(struct tp_env *env)
{
	struct tp_packet p = {0};
	struct tp_run run = {0};
	int r;

	if (tp_begin(&run, &p, env))
		return TP_OUT_PASS; /* tables that were never filled: leave the host reachable */
	r = tp_open(&run, &p);
	r = r ? tp_send_unopened(&run, &p, r) : tp_opened(&run, &p);
	tp_count_frame(&run, &p, r);
	if (tp_has(env, TP_FEAT_TRACE))
		tp_trace_end(&p, r);
	return r;
}

#endif
