/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Stage 2, seek: from a key to the index of an entry; of a TEID to the entry itself, which says whether it is. */
#ifndef TP_SEEK_H
#define TP_SEEK_H

#include "packet.h"

#define TP_NOT_FOUND 0xffffffffU
#define TP_SEEK_RETRIES 3
#define TP_TEID_DIRECT 0xffffffU /* of a TEID, what may be the index itself */

#define TP_HEAD_KEY(head) ((__u32)(head))
#define TP_HEAD_QFI_OF(head) ((__u32)((head) >> TP_HEAD_QFI_SHIFT & TP_HEAD_QFI_MASK))
#define TP_HEAD_NI_OF(head) ((__u32)((head) >> TP_HEAD_NI_SHIFT & TP_HEAD_NI_MASK))
#define TP_HEAD_RULE_OF(head) ((__u32)((head) >> TP_HEAD_RULE_SHIFT))

static TP_INLINE __u32 tp_bucket_value(const struct tp_bucket *b, __u64 key, __u32 ni_kind)
{
	__u32 i, found = TP_NOT_FOUND;
	__u64 value;

	if (!b)
		return TP_NOT_FOUND;
	for (i = 0; i < TP_BUCKET_SLOTS; i++) {
		value = TP_READ(b->slot[i].value);
		if ((__u32)(value >> 32) == ni_kind && TP_READ(b->slot[i].key) == key)
			found = (__u32)value;
	}
	return found;
}

/* What the buckets hold for a key, or TP_NOT_FOUND. While control moves a slot it may be seen in
 * neither place; `moves` tells, and the search is repeated. */
TP_APART __u32 tp_bucket_find(struct tp_env *env, __u32 kind, __u32 ni, __u64 key)
{
	const struct tp_config *config = tp_config_of(env);
	__u32 ni_kind = kind << 16 | ni, moves, value, tries;
	__u64 hash;

	if (!config)
		return TP_NOT_FOUND;
	hash = tp_hash(key, ni_kind, config->salt);
	for (tries = 0; tries < TP_SEEK_RETRIES; tries++) {
		moves = TP_READ(config->moves);
		value = tp_bucket_value(tp_bucket_at(env, (__u32)(hash >> 40) & config->bucket_mask), key, ni_kind);
		if (value == TP_NOT_FOUND)
			value = tp_bucket_value(tp_bucket_at(env, (__u32)(hash >> 8) & config->bucket_mask), key,
						ni_kind);
		if (value != TP_NOT_FOUND || (TP_READ(config->moves) == moves && !(moves & 1)))
			return value;
	}
	return TP_NOT_FOUND;
}

/* Is this the live entry of a key? Leaves its head, read once. */
static TP_INLINE int tp_entry_is(const struct tp_entry *e, __u32 key, __u64 *head)
{
	if (!e)
		return 0;
	*head = TP_READ(e->head);
	return TP_HEAD_KEY(*head) == key && TP_HEAD_ACTION(*head) != TP_ACT_NONE;
}

/* The entry of a TEID, its index and its head. NULL: no session has it. Zero is none, whatever the tables say (TS 29.281, 5.1). */
static TP_INLINE struct tp_entry *tp_seek_teid(struct tp_env *env, __u32 teid, __u32 *index, __u64 *head)
{
	struct tp_entry *e;

	if (!teid)
		return NULL;
	*index = teid & TP_TEID_DIRECT;
	e = tp_entry_at(env, *index);
	if (tp_likely(tp_entry_is(e, teid, head)))
		return e;
	if (!tp_has(env, TP_FEAT_BUCKETS))
		return NULL;
	*index = tp_bucket_find(env, TP_KIND_TEID, 0, teid);
	e = tp_entry_at(env, *index);
	return tp_entry_is(e, teid, head) ? e : NULL;
}

/* The entry index of a UE address through its page. TP_NOT_FOUND: not in a pool; reason: in a pool,
 * but nobody's, or our own defect. */
static TP_INLINE __u32 tp_page_find(struct tp_env *env, __u32 ni, __u32 addr, int *reason)
{
	__u32 low = addr & ((1U << TP_UE_PAGE_BITS) - 1), place, n;
	const struct tp_config *config = tp_config_of(env);
	struct tp_ue_dir *dir = tp_ue_dir_at(env, ni);
	struct tp_ue_page *page;

	n = dir && config ? TP_READ(dir->page[addr >> TP_UE_PAGE_BITS]) : 0;
	if (!n)
		return TP_NOT_FOUND;
	place = (n - 1) << TP_UE_PAGE_BITS | low;
	page = tp_ue_page_at(env, n - 1);
	if (!page) {
		*reason = TP_DROP_TABLE;
		return TP_NOT_FOUND;
	}
	n = tp_expect(TP_READ(page->slot[low]), tp_expected_entry(config, place) + 1);
	if (n == TP_UE_NOBODY)
		*reason = TP_DROP_UNKNOWN_UE;
	return n == TP_UE_NOBODY ? TP_NOT_FOUND : n - 1;
}

/* The entry index of the longest IPv4 prefix that covers an address that no UE has itself, or TP_NOT_FOUND. */
TP_APART __u32 tp_prefix4_find(struct tp_env *env, __u32 ni, __u32 addr)
{
	const struct tp_ni *instance = tp_ni_at(env, ni);
	__u32 plen, index;
	__u64 lengths;

	if (!instance)
		return TP_NOT_FOUND;
	lengths = TP_READ(instance->lens4);
	for (plen = TP_PREFIX4_MAX; plen > 0; plen--) {
		if (!(lengths >> plen & 1))
			continue;
		index = tp_bucket_find(env, TP_KIND_PREFIX4 | plen << TP_KIND_PLEN_SHIFT, ni,
				       addr & (__u32)(tp_mask64(plen) >> 32));
		if (index != TP_NOT_FOUND)
			return index;
	}
	return TP_NOT_FOUND;
}

/* The entry index of the longest IPv6 prefix that covers an address, /64s among them, or TP_NOT_FOUND. */
TP_APART __u32 tp_prefix6_find(struct tp_env *env, __u32 ni, __u64 hi, __u64 lo)
{
	const struct tp_config *config = tp_config_of(env);
	const struct tp_ni *instance = tp_ni_at(env, ni);
	__u32 plen, index;
	__u64 key;

	if (!instance || !config)
		return TP_NOT_FOUND;
	/* Few networks have prefixes beyond a /64. */
	for (plen = TP_READ(instance->lens6[1]) ? TP_PREFIX6_MAX : 64; plen > 0; plen--) {
		if (plen != 64 && !(TP_READ(instance->lens6[plen > 64]) >> (plen - 1 & 63) & 1))
			continue;
		key = tp_prefix6_key(hi & tp_mask64(plen), plen > 64 ? lo & tp_mask64(plen - 64) : 0, plen,
				     config->salt);
		index = tp_bucket_find(env, plen == 64 ? TP_KIND_UE6 : TP_KIND_PREFIX6 | plen << TP_KIND_PLEN_SHIFT, ni,
				       key);
		if (index != TP_NOT_FOUND)
			return index;
	}
	return TP_NOT_FOUND;
}

/* Does an address lie in one of some prefixes? In bits 0..31 of place_n their first place in rules[], plus one; in
 * 32..63 how many they are. */
TP_APART __u32 tp_in_one_of(struct tp_env *env, __u64 place_n, __u32 family, __u64 hi, __u64 lo)
{
	__u32 i, place = (__u32)place_n, n = (__u32)(place_n >> 32);
	const struct tp_framed_routes *routes;
	const struct tp_framed *framed;
	struct tp_addr a = {hi, lo};

	for (i = 0; i < TP_FRAMED_MAX && i < n; i++) {
		routes = (const struct tp_framed_routes *)tp_rules_at(env, place - 1 + i / TP_FRAMED_PER_PLACE);
		if (!routes)
			return 0;
		framed = &routes->route[i % TP_FRAMED_PER_PLACE];
		if (framed->family == family && tp_within(a, framed->prefix, framed->plen))
			return 1;
	}
	return 0;
}

/* What becomes of packets to an IPv6 address that no UE has: TP_DROP_UNKNOWN_UE in a pool. */
TP_APART int tp_nobody6(struct tp_env *env, __u32 ni, __u64 hi, __u64 lo)
{
	const struct tp_ni *instance = tp_ni_at(env, ni);
	__u64 pools = instance ? TP_READ(instance->pools6) : 0;

	return pools && tp_in_one_of(env, pools, 6, hi, lo) ? TP_DROP_UNKNOWN_UE : TP_OK;
}

/* The entry index that an address leads to in the directory of ni, or TP_NOT_FOUND; then a reason if it is in a pool,
 * but nobody's, or our own defect. */
static TP_INLINE __u32 tp_ue_find(struct tp_env *env, __u32 ni, __u32 family, struct tp_addr ue, int *reason)
{
	__u32 index = TP_NOT_FOUND;

	if (family == 4)
		index = tp_page_find(env, ni, (__u32)(ue.hi >> 32), reason);
	if (index != TP_NOT_FOUND || (*reason && !tp_has(env, TP_FEAT_PREFIX)))
		return index;
	if (family == 4) {
		if (!*reason && tp_has(env, TP_FEAT_BUCKETS))
			index = tp_bucket_find(env, TP_KIND_UE4, ni, ue.hi >> 32);
		if (index == TP_NOT_FOUND && tp_has(env, TP_FEAT_PREFIX))
			index = tp_prefix4_find(env, ni, (__u32)(ue.hi >> 32));
		return index;
	}
	if (tp_has(env, TP_FEAT_PREFIX))
		index = tp_prefix6_find(env, ni, ue.hi, ue.lo);
	else if (tp_has(env, TP_FEAT_BUCKETS))
		index = tp_bucket_find(env, TP_KIND_UE6, ni, ue.hi);
	if (tp_unlikely(index == TP_NOT_FOUND))
		*reason = tp_said(tp_nobody6(env, ni, ue.hi, ue.lo));
	return index;
}

/* By the packet's destination. TP_OUT_PASS: no UE's address. */
static TP_INLINE int tp_seek_ue(struct tp_packet *p)
{
	struct tp_addr ue = tp_destination(p);
	int reason = TP_OK;

	tp_is_own(p->env, &ue.hi, &ue.lo);
	p->index = tp_ue_find(p->env, tp_ni_of(p->env), p->family, ue, &reason);
	if (tp_likely(p->index != TP_NOT_FOUND))
		return TP_OK;
	return reason ? reason : TP_OUT_PASS;
}

/* Have what tp_seek() reads first on its way from memory: where packets go through in bursts. */
static TP_INLINE void tp_seek_ahead(const struct tp_packet *p)
{
	const struct tp_ue_dir *dir;
	const struct tp_ue_page *page;
	__u32 addr, n;

	if (p->gtpu) {
		tp_prefetch(tp_entry_at(p->env, p->teid & TP_TEID_DIRECT));
	} else if (p->family == 4) {
		addr = (__u32)(tp_destination(p).hi >> 32);
		dir = tp_ue_dir_at(p->env, tp_ni_of(p->env));
		n = dir ? TP_READ(dir->page[addr >> TP_UE_PAGE_BITS]) : 0;
		page = n ? tp_ue_page_at(p->env, n - 1) : NULL;
		if (page)
			tp_prefetch(&page->slot[addr & ((1U << TP_UE_PAGE_BITS) - 1)]);
	}
}

static TP_INLINE int tp_seek(struct tp_packet *p)
{
	if (!p->gtpu)
		return tp_seek_ue(p);
	p->entry = tp_seek_teid(p->env, p->teid, &p->index, &p->head);
	return tp_likely(p->entry) ? TP_OK : TP_PLAN_UNKNOWN_TEID;
}

#endif
