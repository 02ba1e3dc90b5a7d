/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* From one UE to another through this UPF alone: out of one tunnel, into the other. */
#ifndef TP_UE_TO_UE_H
#define TP_UE_TO_UE_H

#include "conditions.h"
#include "packet.h"
#include "seek.h"

#define TP_UE_NONE TP_NOT_FOUND /* what tp_find_ue() returns for an address that no UE of the instance has */
#define TP_UE_LOST(reason) (1ULL << 32 | (__u32)(reason))

/* The network instance of a UE's downlink PDRs. */
static TP_INLINE __u32 tp_ni_of_ue(struct tp_env *env, const struct tp_entry *e)
{
	__u64 head = TP_READ(e->head);
	const struct tp_rules *rules;

	if (TP_HEAD_ACTION(head) == TP_ACT_LIST) {
		rules = tp_rules_at(env, TP_HEAD_RULE_OF(head));
		e = rules ? tp_entry_at(env, rules->rule[0].entry) : NULL;
		head = e ? TP_READ(e->head) : 0;
	}
	return TP_HEAD_NI_OF(head);
}

/* The entry index that a destination leads to if a UE of network instance ni has it; TP_UE_NONE, or
 * TP_UE_LOST(). Instances that share a port share a directory, but what is between their UEs is the data
 * network's affair.
 *
 * ni_family  network instance, or whose routes the packet goes by, in bits 0..15, family in 16..
 * hi, lo     as struct tp_addr has the address */
TP_APART __u64 tp_find_ue(struct tp_env *env, __u32 ni_family, __u64 hi, __u64 lo)
{
	__u32 ni = ni_family & 0xffff, index;
	const struct tp_ni *instance = tp_ni_at(env, ni);
	struct tp_addr ue = {hi, lo};
	const struct tp_entry *e;
	int reason = TP_OK;

	if (!instance)
		return TP_UE_NONE;
	index = tp_ue_find(env, instance->home, ni_family >> 16, ue, &reason);
	if (index == TP_NOT_FOUND && reason)
		return TP_UE_LOST(reason);
	e = tp_entry_at(env, index);
	if (!e || (instance->flags & TP_NI_SHARED && tp_ni_of_ue(env, e) != instance->flags >> TP_NI_SELF_SHIFT))
		return TP_UE_NONE;
	return instance->flags & TP_NI_NO_UE_TO_UE ? TP_UE_LOST(TP_DROP_UE_TO_UE) : index;
}

#endif
