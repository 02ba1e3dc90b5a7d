/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* MBR enforcement (TS 29.244, 5.4.3): a generic cell rate algorithm over inner IP octets.
 *
 * The theoretical arrival time is in ticks of 1/64 ns: an octet at 10 Gbit/s is 51 of them, so that a
 * truncated cost is wrong by less than 0.1 % from 20 octets on; at 100 Gbit/s from 200 on.
 *
 * A rate with TP_RATE_SHAPE has packets above it wait in place of being dropped, where the platform can (TP_SHAPES): the
 * theoretical arrival time is when the packet leaves. It never goes back while packets wait, so that those of a flow leave in order.
 *
 * Meters are always charged atomically, also where one CPU meets all packets of a direction: what comes from other UEs, and
 * what user space finishes, is charged to them from elsewhere. */
#ifndef TP_METER_H
#define TP_METER_H

#include "conditions.h"
#include "meter_word.h"
#include "packet.h"
#include "share.h"

/* What its meters say of a packet that conforms to all of them. In ticks. */
struct tp_verdicts {
	__u64 leaves; /* when it leaves; 0: at once */
	__u64 ahead;  /* the latest of the times that it met */
};

static TP_INLINE void tp_meet(struct tp_verdicts *said, __u64 rate, __u64 met)
{
	tp_leave_behind(rate, met, &said->leaves);
	said->ahead = tp_later(said->ahead, met);
}

/* Spend bytes. 1: they conform; 0: they do not, and the state is as before. */
static TP_INLINE int tp_meter_take(__u64 rate, __u64 *tat, __u32 bytes, __u64 now_ns, struct tp_verdicts *said)
{
	__u64 met;

	if (!(__u32)rate && !(TP_SHAPES_HERE && (rate & TP_RATE_SHAPE)))
		return !(rate & TP_RATE_BLOCK);
	if (rate & TP_RATE_BLOCK)
		return 0;
	if (!tp_tat_take(tat, tp_rate_cost(rate, bytes), tp_rate_burst(rate), now_ns << TP_TICKS_PER_NS_SHIFT, &met))
		return 0;
	tp_meet(said, rate, met);
	return 1;
}

/* Name of what a meter refuses. */
static TP_INLINE int tp_refusal_of(__u64 rate)
{
	return TP_SHAPES_HERE && (rate & TP_RATE_SHAPE) ? TP_DROP_SHAPER_HORIZON : TP_DROP_RATE;
}

/* Undo tp_meter_take(), because another meter refused the packet. */
static TP_INLINE void tp_meter_give_back(__u64 rate, __u64 *tat, __u32 bytes)
{
	if (!(__u32)rate)
		return;
	__sync_fetch_and_add(tat, -tp_rate_cost(rate, bytes));
}

/* Undo the first n shared meters. */
static TP_INLINE void tp_give_back_shared(struct tp_packet *p, const struct tp_ext *ext, __u32 n)
{
	struct tp_meter *m;
	__u32 i;

	for (i = 0; i < TP_METERS_MAX && i < n && i < ext->n_meters; i++) {
		m = tp_meter_at(p->env, ext->meters[i]);
		if (m)
			tp_meter_give_back(TP_READ(m->rate), &m->tat, p->user_len);
	}
}

/* Meters shared with other PDRs: all conform, or none is charged. */
static TP_INLINE int tp_shared_meters(struct tp_packet *p, const struct tp_ext *ext, __u64 now_ns, struct tp_verdicts *said)
{
	struct tp_meter *m;
	__u32 i;

	for (i = 0; i < TP_METERS_MAX; i++) {
		if (i >= ext->n_meters)
			return TP_OK;
		m = tp_meter_at(p->env, ext->meters[i]);
		if (m && !tp_meter_take(TP_READ(m->rate), &m->tat, p->user_len, now_ns, said)) {
			__sync_fetch_and_add(&m->drops, 1);
			tp_give_back_shared(p, ext, i);
			return tp_refusal_of(TP_READ(m->rate));
		}
	}
	return TP_OK;
}

/* One packet of a packet rate. */
static TP_INLINE int tp_packet_take(__u64 limit, __u64 *state, __u64 now_ns)
{
	__u64 now = now_ns >> TP_PACKETS_TIME_SHIFT, seen, next;
	__u32 i;

	if (!(limit & TP_PACKETS_MASK))
		return 0;
	for (i = 0; i < TP_METER_TRIES; i++) {
		seen = TP_READ(*state);
		if (now >= (seen >> TP_PACKETS_SHIFT) + (limit >> TP_PACKETS_SHIFT))
			next = now << TP_PACKETS_SHIFT | 1;
		else if ((seen & TP_PACKETS_MASK) >= (limit & TP_PACKETS_MASK))
			return 0;
		else
			next = seen + 1;
		if (__sync_val_compare_and_swap(state, seen, next) == seen)
			return 1;
	}
	__sync_fetch_and_add(state, 1);
	return 1;
}

static TP_INLINE int tp_packet_meter(struct tp_packet *p, const struct tp_ext *ext, __u64 now_ns)
{
	struct tp_meter *m = tp_meter_at(p->env, ext->packet_meter - 1);

	if (!m || tp_packet_take(TP_READ(m->rate), &m->tat, now_ns))
		return TP_OK;
	__sync_fetch_and_add(&m->drops, 1);
	return TP_DROP_PACKET_RATE;
}

/* What the flow has of the capacities on its way. */
static TP_INLINE int tp_share(struct tp_packet *p, const struct tp_ext *ext, __u64 now_ns, struct tp_verdicts *said)
{
	__u64 share = tp_take_share(p->env, ext->share - 1, p->user_len, now_ns);

	if (share == TP_SHARE_REFUSED)
		return TP_DROP_CAPACITY;
	tp_meet(said, share & TP_SHARE_WAITS ? TP_RATE_SHAPE : 0, share & ~TP_SHARE_WAITS);
	return TP_OK;
}

/* The limits that stand in the extension: MBRs shared with other PDRs, then the packet rate, and what there is for all. */
static TP_INLINE int tp_police_ext(struct tp_packet *p, const struct tp_ext *ext, __u64 now_ns, struct tp_verdicts *said)
{
	int r = tp_shared_meters(p, ext, now_ns, said);

	if (r)
		return r;
	if (tp_unlikely(ext->packet_meter))
		r = tp_packet_meter(p, ext, now_ns);
	if (!r && ext->share)
		r = tp_share(p, ext, now_ns, said);
	if (tp_unlikely(r))
		tp_give_back_shared(p, ext, TP_METERS_MAX);
	return r;
}

/* When it leaves, in ticks; 0: at once. TP_DROP_SHAPER_FULL: it cannot wait, and has paid for nothing but its own meter. */
static TP_INLINE int tp_shape(struct tp_packet *p, const struct tp_ext *ext, __u64 leaves)
{
	int r = TP_OK;

#if TP_SHAPES
	if (leaves)
		r = tp_leave_at(p->env, (leaves + (1 << TP_TICKS_PER_NS_SHIFT) - 1) >> TP_TICKS_PER_NS_SHIFT);
	if (tp_unlikely(r) && ext)
		tp_give_back_shared(p, ext, TP_METERS_MAX);
#endif
	return r;
}

#if TP_SHAPES
/* Undo what an entry's MBRs have taken for a packet of so many bytes, which is lost after all. */
TP_APART int tp_pay_back(struct tp_env *env, __u32 index, __u32 bytes)
{
	struct tp_entry *e = tp_entry_at(env, index);
	struct tp_packet p = {0};
	const struct tp_ext *ext;
	__u64 head;

	if (!e)
		return 0;
	head = TP_READ(e->head);
	if (head & TP_HEAD_METER)
		tp_meter_give_back(TP_READ(e->rate), &e->tat, bytes);
	p.env = env;
	p.user_len = bytes;
	ext = tp_ext_of(env, e, head);
	if (ext)
		tp_give_back_shared(&p, ext, TP_METERS_MAX);
	return 0;
}

/* What pays nothing leaves behind those packets of an entry that wait. As tp_leave_at(). */
static TP_INLINE int tp_leave_last(struct tp_env *env, const struct tp_entry *e, __u64 head)
{
	const struct tp_ext *ext = tp_ext_of(env, e, head);
	const struct tp_meter *m;
	__u64 leaves = 0;
	__u32 i;

	if (head & TP_HEAD_METER)
		tp_leave_behind(TP_READ(e->rate), TP_READ(e->tat), &leaves);
	for (i = 0; ext && i < ext->n_meters && i < TP_METERS_MAX; i++) {
		m = tp_meter_at(env, ext->meters[i]);
		if (m)
			tp_leave_behind(TP_READ(m->rate), TP_READ(m->tat), &leaves);
	}
	m = ext && ext->share ? tp_meter_at(env, ext->share - 1) : NULL;
	if (m)
		tp_leave_behind(TP_READ(m->rate), TP_READ(m->tat), &leaves);
	return leaves ? tp_leave_at(env, leaves >> TP_TICKS_PER_NS_SHIFT) : TP_OK;
}
#endif

/* Congestion Experienced, where the sender's packets say that they are of L4S: ECT(1) (RFC 9331). */
static TP_INLINE void tp_mark_congestion(struct tp_packet *p)
{
	__u32 sum;

	if (p->family != 4) {
		if ((p->ip[1] >> 4 & 3) == 1)
			p->ip[1] |= 0x20;
		return;
	}
	if ((p->ip[1] & 3) != 1)
		return;
	p->ip[1] |= 2;
	/* The word is 2 more, so that its checksum is 2 less (RFC 1624). */
	sum = tp_load16(p->ip + 10) + (0xffff - tp_swap16(0x0002));
	tp_store16(p->ip + 10, (__u16)(sum + (sum >= 0xffff)));
}

/* A sender that listens is to slow down (L4S, RFC 9330) where meters are ahead: they are a queue, be it that packets wait, or that
 * they would. The result means nothing.
 *
 * user   tp_pack_user() of the packet
 * ahead  in ticks */
TP_APART int tp_tell_congestion(struct tp_env *env, __u64 user, __u64 now_ns, __u64 ahead)
{
	const struct tp_config *config = tp_config_of(env);
	__u64 threshold = config ? TP_READ(config->l4s_ticks) : 0, now = now_ns << TP_TICKS_PER_NS_SHIFT;
	struct tp_packet p = {0};

	if (tp_likely(!threshold) || ahead <= now || ahead - now <= threshold)
		return 0;
	p.env = env;
	if (tp_unpack_user(&p, user))
		tp_mark_congestion(&p);
	return 0;
}

/* Every limit that holds for the packet's entry: its own, then those of its extension. */
static TP_INLINE int tp_police_here(struct tp_run *run, struct tp_packet *p)
{
	const struct tp_ext *ext = tp_ext(p);
	__u32 own = tp_has(p->env, TP_FEAT_METER) && (p->head & TP_HEAD_METER);
	struct tp_verdicts said = {0, 0};
	__u64 now_ns, rate = 0;
	int r = TP_OK;

	if (!own && !(ext && (ext->n_meters || ext->packet_meter || ext->share)))
		return TP_OK;
	now_ns = tp_now(run, p);
	if (own) {
		rate = TP_READ(p->entry->rate);
		if (!tp_meter_take(rate, &p->entry->tat, p->user_len, now_ns, &said))
			return tp_refusal_of(rate);
	}
	if (ext)
		r = tp_police_ext(p, ext, now_ns, &said);
	if (!r)
		r = tp_shape(p, ext, said.leaves);
	if (tp_unlikely(r) && own)
		tp_meter_give_back(rate, &p->entry->tat, p->user_len);
	if (!r && said.ahead > now_ns << TP_TICKS_PER_NS_SHIFT)
		tp_tell_congestion(p->env, tp_pack_user(p), now_ns, said.ahead);
	return r;
}

/* As tp_police_here(), verified apart.
 *
 * user  tp_pack_user() of the packet */
TP_APART int tp_police_apart(struct tp_env *env, __u64 user, __u32 index)
{
	struct tp_run run = {tp_config_of(env), tp_cpu_of(env), 0};
	struct tp_packet p = {0};

	p.env = env;
	p.index = index;
	p.entry = tp_entry_at(env, index);
	if (!p.entry || !run.config || !run.cpu || !tp_unpack_user(&p, user))
		return TP_DROP_TABLE;
	p.head = TP_READ(p.entry->head);
	return tp_police_here(&run, &p);
}

static TP_INLINE int tp_police(struct tp_run *run, struct tp_packet *p)
{
	return TP_SPLIT ? tp_said(tp_police_apart(p->env, tp_pack_user(p), p->index)) : tp_police_here(run, p);
}

/* The extension of the entry that a packet has been found to lead to, if that is no list. Nothing is decided by it. */
static TP_INLINE const struct tp_ext *tp_ext_ahead(const struct tp_packet *p)
{
	const struct tp_entry *e = tp_entry_at(p->env, p->index);
	__u64 head = e ? TP_READ(e->head) : 0;

	return TP_HEAD_ACTION(head) == TP_ACT_LIST ? NULL : tp_ext_of(p->env, e, head);
}

/* Have what the entry's meters are on its way from memory: its extension, then what that names. */
static TP_INLINE void tp_meters_ahead(const struct tp_packet *p)
{
	const struct tp_ext *ext = tp_ext_ahead(p);

	if (ext && ext->n_meters)
		tp_prefetch(tp_meter_at(p->env, ext->meters[0]));
	if (ext && ext->share)
		tp_prefetch(tp_meter_at(p->env, ext->share - 1));
}

#endif
