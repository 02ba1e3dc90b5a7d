/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What the fast path cannot finish: handed to user space, which runs this same pipeline. */
#ifndef TP_TASK_H
#define TP_TASK_H

#include "packet.h"

/* TP_OUT_SLOW, or TP_DROP_SLOW_PATH_FULL.
 *
 * what  enum tp_task_kind
 * span  offset of the octets in bits 32..63, their number in 0..31 */
TP_APART int tp_ask(struct tp_env *env, __u32 what, __u64 span)
{
	struct tp_outer outer = {{0}, sizeof(struct tp_task), TP_EVENT_PACKET};

	outer.bytes[0] = (__u8)what;
	return tp_punt(env, 0, &outer, (__u32)(span >> 32), (__u32)span);
}

/* The whole frame. */
static TP_INLINE int tp_ask_frame(struct tp_packet *p, __u32 what)
{
	return tp_ask(p->env, what, p->frame_len);
}

#endif
