/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* FARs with DUPL (TS 29.244, 5.2.3): each packet goes also where Duplicating Parameters say. A program cannot send one
 * frame twice, so that user space makes and sends the duplicates; the packet itself does not wait for them. */
#ifndef TP_COPY_H
#define TP_COPY_H

#include "act.h"

/* index  of an extension line that names duplicates
 * span   offset of the user's packet in bits 32..63, its length in 0..31 */
TP_APART int tp_duplicate_to(struct tp_env *env, __u32 index, __u64 span)
{
	const struct tp_ext *ext = tp_ext_at(env, index);
	struct tp_cpu *cpu = tp_cpu_of(env);
	const struct tp_copies *place;
	__u32 i, first, n;

	if (!ext || !cpu)
		return 0;
	first = ext->copy - 1;
	n = ext->n_copies;
	for (i = 0; i < TP_COPIES_MAX && i < n; i++) {
		place = (const struct tp_copies *)tp_rules_at(env, first + i / TP_COPIES_PER_PLACE);
		if (!place)
			return 0;
		if (tp_hand_copy(env, &place->copy[i % TP_COPIES_PER_PLACE], (__u32)(span >> 32), (__u32)span))
			cpu->copies_lost++;
		else
			cpu->copies++;
	}
	return 0;
}

/* outcome: what the FAR makes of the packet. One that a QER or a condition of the PDI stops is no FAR's. */
static TP_INLINE void tp_duplicate(struct tp_packet *p, const struct tp_entry *e, __u64 head, int outcome)
{
	const struct tp_ext *ext;

	/* Of a packet that has waited, they left when it came. */
	if (!tp_has(p->env, TP_FEAT_COPY) || !e || tp_releases(p->env))
		return;
	if (outcome != TP_OK && outcome != TP_DROP_FAR_DROP && outcome != TP_DROP_FAR_BUFFER &&
	    outcome != TP_DROP_TUNNEL_GONE && outcome != TP_DROP_NO_TUNNEL && outcome != TP_OUT_HELD)
		return;
	ext = tp_ext_of(p, e, head);
	if (ext && tp_unlikely(ext->copy))
		tp_duplicate_to(p->env, (__u32)TP_READ(e->ext), (__u64)p->user << 32 | p->user_len);
}

#endif
