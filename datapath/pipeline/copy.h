/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* FARs with DUPL (TS 29.244, 5.2.3): each packet goes also where Duplicating Parameters say. A program cannot send one
 * frame twice, so that user space makes and sends the duplicates; the packet itself does not wait for them. */
#ifndef TP_COPY_H
#define TP_COPY_H

#include "packet.h"

/* For one PDR. */
static TP_INLINE void tp_duplicate_for(struct tp_env *env, struct tp_cpu *cpu, __u32 index, __u64 octets)
{
	const struct tp_entry *e = tp_entry_at(env, index);
	const struct tp_ext *ext = e ? tp_ext_at(env, (__u32)TP_READ(e->ext)) : NULL;
	struct tp_hand hand = {TP_EVENT_COPY, 0, NULL, sizeof(struct tp_copy) / 8,
			       {tp_octets_at(octets), tp_octets_len(octets)}};
	const struct tp_copies *place;
	__u32 i, first, n;

	if (!ext)
		return;
	first = ext->copy - 1;
	n = ext->n_copies;
	for (i = 0; i < TP_COPIES_MAX && i < n; i++) {
		place = (const struct tp_copies *)tp_rules_at(env, first + i / TP_COPIES_PER_PLACE);
		if (!place)
			return;
		hand.words = &place->copy[i % TP_COPIES_PER_PLACE];
		if (tp_hand_over(env, TP_RING_COPIES, &hand))
			cpu->copies_lost++;
		else
			cpu->copies++;
	}
}

/* also    TP_ALSO_*
 * octets  of the user's packet
 * others  as in struct tp_packet
 *
 * Returns nothing of interest. */
TP_APART int tp_duplicate(struct tp_env *env, __u32 also, __u32 sender, __u32 index, __u64 octets)
{
	struct tp_cpu *cpu = tp_cpu_of(env);
	__u32 i;

	if (!cpu)
		return 0;
	for (i = 0; i < 2; i++)
		if (also & (i ? TP_ALSO_COPIES_TO : TP_ALSO_COPIES))
			tp_duplicate_for(env, cpu, !i && also & TP_ALSO_SENDER ? sender : index, octets);
	return 0;
}

#endif
