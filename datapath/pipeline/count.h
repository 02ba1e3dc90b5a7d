/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Stage 6, count: each frame once, by port and direction, and for the PDR that took it.
 *
 * Telling user space that a PDR has forwarded so much, or QoS enforcement dropped so much of it (thresholds and quotas of
 * URRs: TS 29.244, 5.2.2).
 *
 * What is forwarded anyway is counted in the entry's line; here it is compared with the number beside it. Who reports what
 * to whom, and what several PDRs have forwarded together, is user space's affair: it reads the counts and sets the
 * next alarm. */
#ifndef TP_COUNT_H
#define TP_COUNT_H

#include "packet.h"

#define TP_ALARM_TRIES 4 /* lost races, after which an alarm comes later by what was counted aside, until it is set anew */

static TP_INLINE void tp_tell_of(struct tp_env *env, struct tp_cpu *cpu, __u32 index)
{
	struct tp_alarm record = {0};

	record.entry = index;
	if (tp_tell_alarm(env, &record))
		cpu->alarms_lost++;
	else
		cpu->alarms++;
}

/* The entry's own count has reached its alarm: tell it, once, and again a step further on, lest user space, which sets the
 * alarm anew, had no room for it. */
TP_APART int tp_ring_alarm(struct tp_env *env, __u32 index)
{
	struct tp_entry *e = tp_entry_at(env, index);
	struct tp_cpu *cpu = tp_cpu_of(env);
	__u64 alarm, bytes;

	if (!e || !cpu)
		return 0;
	alarm = TP_READ(e->alarm);
	bytes = TP_READ(e->bytes);
	if (bytes < alarm)
		return 0; /* another CPU was first, or it was set anew */
	if (__sync_val_compare_and_swap(&e->alarm, alarm, bytes + TP_ALARM_STEP) != alarm)
		return 0;
	tp_tell_of(env, cpu, index);
	return 0;
}

/* Bytes that are counted beside an entry bring its alarm nearer. They are counted already, so that whoever sets the alarm
 * and reads the counts thereafter has them once or twice, but has them. */
static TP_INLINE void tp_near_alarm(struct tp_env *env, __u32 index, __u32 bytes)
{
	struct tp_entry *e = tp_entry_at(env, index);
	__u64 seen, next;
	__u32 i;

	if (!e)
		return;
	for (i = 0; i < TP_ALARM_TRIES; i++) {
		seen = TP_READ(e->alarm);
		if (seen == TP_ALARM_NONE)
			return;
		next = seen > bytes ? seen - bytes : 0;
		if (__sync_val_compare_and_swap(&e->alarm, seen, next) == seen)
			break;
	}
	if (TP_READ(e->bytes) >= TP_READ(e->alarm))
		tp_ring_alarm(env, index);
}

/* Drops of QoS enforcement, which usage before it has in it (MBQE: TS 29.244, 8.2.68). */
static TP_INLINE int tp_is_qos_drop(__u32 reason)
{
	if (TP_SHAPES_HERE && (reason == TP_DROP_SHAPER_HORIZON || reason == TP_DROP_SHAPER_FULL))
		return 1;
	return reason == TP_DROP_RATE || reason == TP_DROP_CAPACITY || reason == TP_DROP_PACKET_RATE ||
	       reason == TP_DROP_GATE_CLOSED;
}

/* Count such a drop. They have an alarm of their own: on that of forwarded bytes a user who floods a closed gate would
 * ring forever when little is left of a quota of what passes. */
static TP_INLINE void tp_count_qos_drop(struct tp_env *env, struct tp_side *side, __u32 index, __u32 bytes)
{
	struct tp_cpu *cpu = tp_cpu_of(env);
	__u64 alarm, all;

	__sync_fetch_and_add(&side->qos_packets, 1);
	all = __sync_fetch_and_add(&side->qos_bytes, bytes) + bytes;
	alarm = TP_READ(side->qos_alarm);
	if (tp_likely(!alarm || all < alarm) || !cpu)
		return;
	/* Else another CPU was first, or it was set anew by somebody who reads the count thereafter. */
	if (__sync_val_compare_and_swap(&side->qos_alarm, alarm, all + TP_ALARM_STEP) == alarm)
		tp_tell_of(env, cpu, index);
}

/* Count for an entry what its own words have no room for, or do not belong to. */
TP_APART int tp_count_aside(struct tp_env *env, __u32 index, __u32 bytes, __u32 outcome)
{
	struct tp_side *side = tp_side_at(env, index);

	if (!side)
		return 0;
	if (outcome < TP_DROP_MAX) {
		__sync_fetch_and_add(&side->drops, 1);
		if (tp_is_qos_drop(outcome))
			tp_count_qos_drop(env, side, index, bytes);
		return 0;
	}
	__sync_fetch_and_add(&side->packets, 1);
	__sync_fetch_and_add(&side->bytes, bytes);
	tp_near_alarm(env, index, bytes);
	return 0;
}

/* Count a forwarded packet in its entry's own words. */
static TP_INLINE void tp_count_own(struct tp_env *env, struct tp_entry *e, __u32 index, __u32 len)
{
	__u64 bytes;

	if (tp_has(env, TP_FEAT_ATOMIC)) {
		__sync_fetch_and_add(&e->packets, 1);
		bytes = __sync_fetch_and_add(&e->bytes, len) + len;
	} else {
		e->packets++;
		bytes = e->bytes + len;
		e->bytes = bytes;
	}
	if (tp_unlikely(bytes >= TP_READ(e->alarm)))
		tp_ring_alarm(env, index);
}

/* Count for an entry: taken by its PDR, and forwarded or not. aside: its own words belong to another CPU. */
static TP_INLINE void tp_count_for(const struct tp_packet *p, struct tp_entry *e, __u32 index, __u32 aside, int outcome)
{
	if (tp_unlikely(aside) || tp_aside(p->env) || tp_unlikely(outcome < TP_DROP_MAX))
		tp_count_aside(p->env, index, p->user_len, (__u32)outcome);
	else
		tp_count_own(p->env, e, index, p->user_len);
}

/* What became of a frame that was not forwarded. */
static TP_INLINE void tp_count_rest(struct tp_cpu *cpu, struct tp_port_stats *stats, __u32 port, __u32 dir, int outcome)
{
	if (outcome < TP_DROP_MAX)
		cpu->drops[port][dir][outcome & (TP_DROP_MAX - 1)]++;
	else if (outcome == TP_OUT_PASS)
		stats->passed++;
	else if (outcome == TP_OUT_ANSWER)
		stats->answered++;
	else
		stats->slow++;
}

/* By port and direction. */
static TP_INLINE void tp_count_frame(struct tp_run *run, const struct tp_packet *p, int outcome)
{
	/* From UE to UE is uplink where it came in. */
	__u32 port = tp_port_of(p->env) & (TP_PORTS_MAX - 1), dir = p->also & TP_ALSO_SENDER ? TP_UPLINK : p->dir & 1;
	struct tp_port_stats *stats = &run->cpu->ports[port];

	stats->in[dir].packets++;
	stats->in[dir].bytes += p->frame_len;
	if (tp_likely(outcome == TP_OUT_REDIRECT) || (tp_hands_later(p->env) && outcome == TP_OUT_LATER)) {
		stats->out[dir].packets++;
		stats->out[dir].bytes += p->out_len;
		if (tp_hands_later(p->env))
			stats->later += outcome == TP_OUT_LATER;
	} else {
		tp_count_rest(run->cpu, stats, port, dir, outcome);
	}
}

/* For a PDR, a packet that is forwarded later. The result means nothing. */
TP_APART int tp_count_delayed(struct tp_env *env, __u32 index)
{
	struct tp_side *side = tp_side_at(env, index);

	if (side)
		__sync_fetch_and_add(&side->delayed, 1);
	return 0;
}

/* For the PDR that took it, and the one of its sender, if that is a UE. */
static TP_INLINE void tp_count_taken(const struct tp_packet *p, int outcome)
{
	struct tp_entry *sender;

#if TP_SHAPES
	if (tp_unlikely(tp_is_delayed(p->env, outcome))) {
		tp_count_delayed(p->env, p->index);
		if (p->also & TP_ALSO_SENDER)
			tp_count_delayed(p->env, p->sender);
	}
#endif

	/* The sender's PDR has done its part, whatever becomes of it at the receiver's. */
	if (tp_unlikely(p->also & TP_ALSO_SENDER)) {
		sender = tp_entry_at(p->env, p->sender);
		if (sender)
			tp_count_for(p, sender, p->sender, 0, TP_OUT_REDIRECT);
	}
	/* What waits counts when it leaves. Packets of a receiver come in on other CPUs, too. */
	if (p->entry && !(tp_has(p->env, TP_FEAT_BUFFER) && outcome == TP_OUT_HELD))
		tp_count_for(p, p->entry, p->index, p->also & TP_ALSO_SENDER, outcome);
}

#endif
