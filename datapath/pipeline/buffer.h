/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* FARs with BUFF (TS 29.244, 5.2.4): packets wait in user space, as they came in. When the FAR forwards again, those
 * that come later wait behind them (TP_HEAD_DRAIN) until user space has sent the last one: sides[].held says so. It
 * sends them by running this same pipeline. */
#ifndef TP_BUFFER_H
#define TP_BUFFER_H

#include "conditions.h"
#include "packet.h"

#define TP_WAIT_DRAINS 1U /* it waits only behind others */

/* Does a packet wait for the entry of this index? Then it is counted there, before it is handed over. TP_OK: no, it may pass;
 * TP_OUT_WAIT: it does. */
TP_APART int tp_must_wait(struct tp_env *env, __u32 index, __u32 flags)
{
	const struct tp_config *config = tp_config_of(env);
	struct tp_side *side = tp_side_at(env, index);
	int drains = flags & TP_WAIT_DRAINS;

	if (!side || !config)
		return TP_DROP_TABLE;
	/* User space has those before it behind it. */
	if (tp_held_by(env) == index + 1)
		return drains ? TP_OK : TP_OUT_HELD;
	/* Where nobody keeps packets, none waits that this one could overtake. */
	if (!config->held_max)
		return drains ? TP_OK : TP_DROP_FAR_BUFFER;
	if (drains && !TP_READ(side->held))
		return TP_OK;
	/* A UE that is there again loses nothing to the bound for those that are not. */
	if (!drains && TP_READ(side->held) >= config->held_max)
		return TP_DROP_BUFFER_FULL;
	tp_raises(env, index);
	__sync_fetch_and_add(&side->held, 1);
	return TP_OUT_WAIT;
}

/* Hand over what waits for the entry of this index, and is counted there.
 *
 * octets  of the frame: all of it, or the user's packet with TP_HELD_BARE
 * user    offset of the user's packet in these
 * flags   TP_HELD_* */
TP_APART int tp_hold(struct tp_env *env, __u32 index, __u64 octets, __u32 user, __u32 flags)
{
	struct tp_side *side = tp_side_at(env, index);
	struct tp_held held = {index, (__u16)user, (__u16)flags};
	struct tp_hand hand = {TP_EVENT_HELD, 0, &held, sizeof(held) / 8, {tp_octets_at(octets), tp_octets_len(octets)}};
	int r = TP_OUT_HELD;

	if (tp_hand_over(env, TP_RING_HELD, &hand)) {
		if (side)
			__sync_fetch_and_add(&side->held, -1);
		r = TP_DROP_BUFFER_FULL;
	}
	tp_handed(env);
	return r;
}

#endif
