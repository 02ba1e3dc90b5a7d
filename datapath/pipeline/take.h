/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Stage 3, take: from an index to the PDR that takes the packet, its filters and conditions met. */
#ifndef TP_TAKE_H
#define TP_TAKE_H

#include "conditions.h"
#include "packet.h"
#include "parse.h"
#include "rules.h"
#include "seek.h"

/* A packet that has waited for a FAR goes by that FAR, whichever PDR would take it now. Whether its PDR is still there. */
static TP_INLINE int tp_take_held(struct tp_packet *p)
{
	__u32 by = tp_held_by(p->env);
	struct tp_entry *e;

	if (!by)
		return 0;
	e = tp_entry_at(p->env, by - 1);
	if (!e || TP_HEAD_ACTION(TP_READ(e->head)) == TP_ACT_NONE)
		return 0;
	p->entry = e;
	p->index = by - 1;
	p->head = TP_READ(e->head);
	return 1;
}

/* Of several PDRs behind one key, the first whose filter and conditions fit. whole: TP_USER_WHOLE, or 0. */
static TP_INLINE int tp_take_listed(struct tp_packet *p, __u64 whole)
{
	__u64 found = TP_NO_RULE(TP_DROP_TABLE);

	if (tp_has(p->env, TP_FEAT_LIST))
		found = tp_match_rules(p->env, TP_HEAD_RULE_OF(p->head), tp_pack_user(p) | whole);
	p->entry = found >> 32 ? NULL : tp_entry_at(p->env, (__u32)found);
	if (!p->entry)
		return found >> 32 ? tp_final((int)found) : TP_DROP_TABLE;
	p->index = (__u32)found;
	p->head = TP_READ(p->entry->head); /* may have changed meanwhile: its conditions hold for what it now does */
	return TP_OK;
}

/* The PDR that takes the packet. */
static TP_INLINE int tp_take_pdr(struct tp_packet *p)
{
	int r = TP_OK;

	if (tp_take_held(p))
		return TP_OK;
	if (tp_unlikely(TP_HEAD_ACTION(p->head) == TP_ACT_LIST))
		r = tp_take_listed(p, 0);
	if (r == TP_OUT_FRAGMENT)
		return TP_PLAN_INNER_FRAGMENT;
	return r ? r : tp_check_conditions(p, p->entry, p->head);
}

/* Have what tp_take() reads first on its way from memory. */
static TP_INLINE void tp_take_ahead(const struct tp_packet *p)
{
	tp_prefetch(tp_entry_at(p->env, p->index));
}

static TP_INLINE int tp_take(struct tp_packet *p)
{
	int r;

	if (p->gtpu) {
		r = tp_parse_user(p, p->gtpu_end - p->user, TP_DROP_GTPU_INNER);
		if (r)
			return r;
	} else {
		p->entry = tp_entry_at(p->env, p->index);
		if (!p->entry)
			return TP_DROP_TABLE;
		if (!tp_entry_is(p->entry, 0, &p->head)) { /* withdrawn between the index and here */
			p->entry = NULL;
			return TP_DROP_UNKNOWN_UE;
		}
	}
	r = tp_take_pdr(p);
	if (tp_has(p->env, TP_FEAT_RELAY))
		p->dir |= p->head >> TP_HEAD_DOWN_SHIFT & 1;
	return r;
}

#endif
