/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What an operator who follows a user sees: each packet as it came in, and what became of it. Only in
 * programs with TP_FEAT_TRACE. */
#ifndef TP_TRACE_H
#define TP_TRACE_H

#include "packet.h"
#include "seek.h"

#define TP_TRACE_SPACING_NS 100000ULL /* per CPU; more would keep user space from everything else */
#define TP_TRACE_AT_ONCE 1000	      /* records after a pause; beyond both they are lost, and counted */

/* The user's address in the packet as it came in: uplink its source, downlink its destination. 0: no IP there. */
static TP_INLINE __u32 tp_trace_ue(const struct tp_trace *t, struct tp_addr *ue)
{
	__u32 user = t->user;
	const __u8 *ip;

	if (!user || user > TP_TRACE_SNAP - TP_IP6_LEN || user + TP_IP4_LEN > t->frame_len)
		return 0;
	ip = t->data + user;
	if (ip[0] >> 4 == 4) {
		ue->hi = (__u64)tp_get32(ip + (t->dir == TP_UPLINK ? 12 : 16)) << 32;
		return TP_TRACE_UE4;
	}
	if (ip[0] >> 4 != 6 || user + TP_IP6_LEN > t->frame_len)
		return 0;
	ip += t->dir == TP_UPLINK ? 8 : 24;
	ue->hi = tp_get64(ip);
	ue->lo = tp_get64(ip + 8);
	return TP_TRACE_UE6;
}

static TP_INLINE __u32 tp_trace_wanted(struct tp_env *env, const struct tp_trace *t)
{
	struct tp_addr ue = {0, 0}, a;
	__u32 i, kind, ue_kind = tp_trace_ue(t, &ue), traces = 0;
	const struct tp_trace_key *key;

	for (i = 0; i < TP_TRACE_KEYS_MAX; i++) {
		key = tp_trace_key_at(env, i);
		kind = key ? TP_READ(key->kind) : 0;
		if (!kind)
			break;
		a.hi = kind == TP_TRACE_TEID ? t->teid : ue.hi;
		a.lo = kind == TP_TRACE_TEID ? 0 : ue.lo;
		if (kind != (kind == TP_TRACE_TEID && t->teid ? TP_TRACE_TEID : ue_kind))
			continue;
		if (!((a.hi ^ key->hi) & key->mask_hi) && !((a.lo ^ key->lo) & key->mask_lo))
			traces |= key->traces;
	}
	return traces;
}

static TP_INLINE int tp_trace_within_rate(struct tp_cpu *cpu, __u64 now_ns)
{
	__u64 next = cpu->trace_tat > now_ns ? cpu->trace_tat : now_ns;

	if (next - now_ns > TP_TRACE_SPACING_NS * TP_TRACE_AT_ONCE)
		return 0;
	cpu->trace_tat = next + TP_TRACE_SPACING_NS;
	return 1;
}

/* Hand this CPU's record to user space, if somebody follows its packet. Returns nothing of interest. */
TP_APART int tp_trace_send(struct tp_env *env)
{
	struct tp_trace *t = tp_trace_of(env);
	struct tp_cpu *cpu = tp_cpu_of(env);

	if (!t || !cpu)
		return 0;
	t->traces = tp_trace_wanted(env, t);
	if (!t->traces)
		return 0;
	t->kind = TP_EVENT_TRACE;
	if (!tp_trace_within_rate(cpu, tp_clock(env, cpu)) || tp_trace_emit(env, t))
		cpu->trace_lost++;
	return 1;
}

/* Before the frame is changed. */
static TP_INLINE void tp_trace_begin(const struct tp_packet *p)
{
	struct tp_trace *t = tp_trace_of(p->env);

	if (!t)
		return;
	t->teid = 0;
	t->qfi = TP_NO_QFI;
	t->gtpu = 0;
	t->user = 0;
	t->frame_len = p->frame_len;
	t->port = (__u8)tp_port_of(p->env);
	tp_trace_copy(p->env, t, p->frame_len);
}

/* What the headers said: noted when it is known, rather than kept on the stack until the end. */
static TP_INLINE void tp_trace_headers(const struct tp_packet *p)
{
	struct tp_trace *t = tp_trace_of(p->env);

	if (!t)
		return;
	if (p->teid) {
		t->teid = p->teid;
		t->qfi = (__u8)p->qfi;
		t->gtpu = (__u16)p->gtpu;
	}
	t->user = (__u16)p->user;
}

/* When all is said. */
static TP_INLINE void tp_trace_end(const struct tp_packet *p, int outcome)
{
	struct tp_trace *t = tp_trace_of(p->env);
	__u64 ext;

	if (!t)
		return;
	ext = p->entry ? TP_READ(p->entry->ext) : 0;
	t->pdr = (__u16)(ext >> TP_EXT_PDR_SHIFT);
	t->predefined = (__u16)(ext >> TP_EXT_PREDEFINED_SHIFT);
	t->matched = p->entry != NULL && TP_HEAD_ACTION(TP_READ(p->entry->head)) != TP_ACT_LIST;
	t->dir = (__u8)p->dir;
	t->outcome = (__u8)outcome;
	tp_trace_send(p->env);
}

#endif
