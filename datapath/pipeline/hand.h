/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What the fast path cannot finish: handed to user space, which runs this same pipeline. */
#ifndef TP_HAND_H
#define TP_HAND_H

#include "packet.h"

/* The words of a struct tp_task, as functions of numbers take them. */
static TP_INLINE __u64 tp_task_what(__u32 what, __u32 tunnel_len, __u32 mtu, __u32 ni, __u32 flags)
{
	return what | tunnel_len << 8 | mtu << 16 | (__u64)(ni & 0xffff) << 32 | (__u64)flags << 48;
}

static TP_INLINE __u64 tp_task_way(__u32 marks, __u32 mark, __u32 ifindex)
{
	return (marks & 0xffff) | mark << 16 | (__u64)ifindex << 32;
}

static TP_INLINE __u32 tp_task_way_marks(__u64 way)
{
	return way & 0xffff;
}

/* Hand over octets of the frame, and what is to be done with them: TP_OUT_SLOW, or TP_DROP_SLOW_PATH_FULL.
 *
 * what, out, way  the words of a struct tp_task
 * octets          tp_octets() */
TP_APART int tp_ask(struct tp_env *env, __u64 what, __u64 out, __u64 way, __u64 octets)
{
	__u64 task[sizeof(struct tp_task) / 8] = {what, out, way};
	struct tp_hand hand = {TP_EVENT_PACKET,	     (__u32)(way >> 32), task, sizeof(struct tp_task) / 8,
			       {tp_octets_at(octets), tp_octets_len(octets)}};

	return tp_hand_over(env, TP_RING_EVENTS, &hand) ? TP_DROP_SLOW_PATH_FULL : TP_OUT_SLOW;
}

/* The whole frame, which came in the tunnel of this TEID. at: offset of the user's packet, if the task wants to know. */
static TP_INLINE int tp_ask_frame(const struct tp_packet *p, __u32 what, __u32 at)
{
	return tp_ask(p->env, tp_task_what(what, 0, at, 0, 0), p->teid, 0, tp_octets(0, p->frame_len));
}

static TP_INLINE __u64 tp_pack_lost(const struct tp_packet *p)
{
	return tp_pack_user(p) | (p->gtpu ? TP_USER_FROM_UE : 0);
}

/* The user's packet, or its first octets. user: tp_pack_lost(). */
static TP_INLINE int tp_ask_user(struct tp_env *env, __u64 user, __u32 at_most, __u64 what, __u64 out, __u64 way)
{
	__u32 len = user & TP_USER_OCTETS;

	return tp_ask(env, what | (user & TP_USER_FROM_UE ? tp_task_what(0, 0, 0, 0, TP_TASK_FROM_UE) : 0), out, way,
		      tp_octets(user >> TP_USER_OFF_SHIFT & TP_USER_OCTETS, len < at_most ? len : at_most));
}

/* A message for the control plane, from its IP header on: TP_OUT_SLOW, or TP_DROP_SLOW_PATH_FULL. */
TP_APART int tp_tell(struct tp_env *env, __u64 octets)
{
	struct tp_hand hand = {TP_EVENT_GTPU, 0, NULL, 0, {tp_octets_at(octets), tp_octets_len(octets)}};

	return tp_hand_over(env, TP_RING_EVENTS, &hand) ? TP_DROP_SLOW_PATH_FULL : TP_OUT_SLOW;
}

/* The frame is an IP packet and nothing else, for a neighbour that only the kernel can find. */
TP_APART int tp_send_slow(struct tp_env *env, __u32 ifindex, __u32 len)
{
	struct tp_hand hand = {TP_EVENT_SEND, ifindex, NULL, 0, {0, len}};

	return tp_hand_over(env, TP_RING_EVENTS, &hand) ? TP_DROP_SLOW_PATH_FULL : TP_OUT_SLOW;
}

#endif
