/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What the PDI asks beside the key, and what gate and FAR say. */
#ifndef TP_ACT_H
#define TP_ACT_H

#include "match.h"
#include "packet.h"

#define TP_HEAD_QFI_OF(head) ((__u32)((head) >> TP_HEAD_QFI_SHIFT & 0x3f))
#define TP_HEAD_NI_OF(head) ((__u32)((head) >> TP_HEAD_NI_SHIFT))

static TP_INLINE struct tp_ext *tp_ext_of(struct tp_packet *p, const struct tp_entry *e, __u64 head)
{
	if (!tp_has(p->env, TP_FEAT_EXT) || !(head & TP_HEAD_EXT))
		return NULL;
	return tp_ext_at(p->env, (__u32)TP_READ(e->ext));
}

/* Does the packet come from the UE's own address? */
static TP_INLINE int tp_from_ue(struct tp_packet *p, const struct tp_entry *e, __u64 head)
{
	const struct tp_ext *ext;
	__u32 ue4_be;

	if (p->family == 4) {
		ue4_be = (__u32)TP_READ(e->out);
		return ue4_be && ue4_be == tp_load32(p->ip + 12);
	}
	ext = tp_ext_of(p, e, head);
	return ext && ext->ue6_plen && tp_in_prefix(tp_source(p), ext->ue6, ext->ue6_plen);
}

/* Conditions of the PDI that stand in the entry itself. Downlink packets have no QFI, and their UE
 * address was the key. */
static TP_INLINE int tp_check_conditions(struct tp_packet *p, const struct tp_entry *e, __u64 head)
{
	if (p->dir != TP_UPLINK)
		return TP_OK;
	if ((head & TP_HEAD_QFI) && p->qfi != TP_HEAD_QFI_OF(head))
		return TP_DROP_QFI_MISMATCH;
	if ((head & TP_HEAD_UE) && TP_HEAD_ACTION(head) != TP_ACT_TUNNEL && !tp_from_ue(p, e, head))
		return TP_DROP_UE_SPOOFED;
	return TP_OK;
}

/* TP_OK when the packet is to be forwarded. */
static TP_INLINE int tp_check_action(__u64 head)
{
	switch (TP_HEAD_ACTION(head)) {
	case TP_ACT_ROUTE:
	case TP_ACT_TUNNEL:
		return TP_OK;
	case TP_ACT_DROP:
		return TP_DROP_FAR_DROP;
	case TP_ACT_BUFFER:
		return TP_DROP_FAR_BUFFER;
	case TP_ACT_GATE:
		return TP_DROP_GATE_CLOSED;
	case TP_ACT_NONE: /* withdrawn while a list still named it */
		return TP_DROP_NO_PDR;
	default:
		return TP_DROP_TABLE;
	}
}

#endif
