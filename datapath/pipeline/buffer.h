/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* FARs with BUFF (TS 29.244, 5.2.4): packets wait in user space, as they came in. When the FAR forwards again, those
 * that come later wait behind them (TP_HEAD_DRAIN) until user space has sent the last one: sides[].held says so. It
 * sends them by running this same pipeline. */
#ifndef TP_BUFFER_H
#define TP_BUFFER_H

#include "act.h"
#include "packet.h"

#define TP_WAIT_DRAINS (1ULL << 32)
#define TP_WAIT_BARE (1ULL << 33)

/* Hold a packet for the entry of this index, or let it pass: TP_OK.
 *
 * span   offset in bits 32..63, and length, of what is handed over
 * about  offset of the user's packet therein in bits 0..15; TP_WAIT_* */
TP_APART int tp_hold(struct tp_env *env, __u32 index, __u64 span, __u64 about)
{
	const struct tp_config *config = tp_config_of(env);
	struct tp_side *side = tp_side_at(env, index);
	struct tp_held held;

	if (!side || !config)
		return TP_DROP_TABLE;
	/* User space has those before it behind it. */
	if (tp_held_by(env) == index + 1)
		return about & TP_WAIT_DRAINS ? TP_OK : TP_OUT_HELD;
	/* Where nobody keeps packets, none waits that this one could overtake. */
	if (!config->held_max)
		return about & TP_WAIT_DRAINS ? TP_OK : TP_DROP_FAR_BUFFER;
	if (about & TP_WAIT_DRAINS && !TP_READ(side->held))
		return TP_OK;
	/* A UE that is there again loses nothing to the bound for those that are not. */
	if (!(about & TP_WAIT_DRAINS) && TP_READ(side->held) >= config->held_max)
		return TP_DROP_BUFFER_FULL;
	__sync_fetch_and_add(&side->held, 1);
	held.entry = index;
	held.user = (__u16)about;
	held.flags = about & TP_WAIT_BARE ? TP_HELD_BARE : 0;
	if (tp_hand_held(env, &held, (__u32)(span >> 32), (__u32)span)) {
		__sync_fetch_and_add(&side->held, -1);
		return TP_DROP_BUFFER_FULL;
	}
	return TP_OUT_HELD;
}

/* A packet whose FAR says BUFF, or did a moment ago. TP_OK: it goes on by head, which says how. */
static TP_INLINE int tp_wait(struct tp_packet *p, const struct tp_entry *e, __u64 *head)
{
	__u64 about = p->user;
	int r;

	if (!tp_has(p->env, TP_FEAT_BUFFER) || !e)
		return TP_DROP_FAR_BUFFER;
	if (*head & TP_HEAD_DRAIN)
		about |= TP_WAIT_DRAINS;
	r = tp_hold(p->env, tp_index_of(p->env, e), p->frame_len, about);
	if (r)
		return tp_final(r);
	*head &= ~TP_HEAD_DRAIN;
	return TP_OK;
}

/* The same for what another UE has sent. Its own PDR is done with it, so that it is the user's packet that waits, and
 * waits also where nothing does that it could overtake. */
static TP_INLINE int tp_wait_for_ue(struct tp_packet *p)
{
	__u64 span = (__u64)p->user << 32 | p->user_len;

	if (!tp_has(p->env, TP_FEAT_BUFFER))
		return TP_DROP_FAR_BUFFER;
	return tp_final(tp_hold(p->env, p->side - 1, span, TP_WAIT_BARE));
}

#endif
