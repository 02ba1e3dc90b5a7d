/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What the fast path cannot finish: handed to user space, which runs this same pipeline. */
#ifndef TP_TASK_H
#define TP_TASK_H

#include "packet.h"

/* TP_OUT_SLOW, or TP_DROP_SLOW_PATH_FULL.
 *
 * task  the first word of a struct tp_task
 * out   and its out
 * span  offset of the octets in bits 32..63, their number in 0..31 */
TP_APART int tp_ask(struct tp_env *env, __u32 task, __u64 span, __u32 out)
{
	struct tp_outer outer = {{0}, sizeof(struct tp_task), TP_EVENT_PACKET};

	tp_store32(outer.bytes, task);
	tp_store32(outer.bytes + 8, out);
	return tp_punt(env, 0, &outer, (__u32)(span >> 32), (__u32)span);
}

/* The whole frame. */
static TP_INLINE int tp_ask_frame(struct tp_packet *p, __u32 task)
{
	return tp_ask(p->env, task, p->frame_len, p->teid);
}

#endif
