/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* PFCP in the data plane: a Session Modification Request that only updates FARs is carried out by comparing and filling.
 *
 *     compare ──► find ──► look ──► change
 *
 * compare: the request is one of the templates, but for its holes. find: the SEID names a place, and the line there is of this
 * session and free. look: every FAR of the request is as its template says, and nothing is in the way. change: words that packets
 * read. Whatever is not so leaves all as it was, and is the control plane's (enum tp_n4_verdict).
 *
 * A platform defines struct tp_n4_env and the functions below, and then includes this.
 */
#ifndef TP_N4_SERVE_H
#define TP_N4_SERVE_H

#include "tp_base.h"
#include "tp_n4.h"

static TP_INLINE const struct tp_n4_config *tp_n4_config_of(struct tp_n4_env *env);

/* The element, or NULL when there is no such index. */
static TP_INLINE struct tp_n4_line *tp_n4_line_at(struct tp_n4_env *env, __u32 index);
static TP_INLINE const struct tp_n4_template *tp_n4_template_at(struct tp_n4_env *env, __u32 index);
static TP_INLINE const struct tp_n4_alias *tp_n4_alias_at(struct tp_n4_env *env, __u32 index);
static TP_INLINE __u32 tp_n4_aliases(struct tp_n4_env *env); /* how many: a power of two, TP_N4_WAYS at least */
static TP_INLINE struct tp_entry *tp_n4_entry_at(struct tp_n4_env *env, __u32 index);
static TP_INLINE struct tp_side *tp_n4_side_at(struct tp_n4_env *env, __u32 index);
static TP_INLINE int tp_n4_buffers(struct tp_n4_env *env); /* do packets wait at all? */

/* The request that is to be served, and what has become of it. */
static TP_INLINE const struct tp_n4_request *tp_n4_request_of(struct tp_n4_env *env);
static TP_INLINE struct tp_n4_done *tp_n4_done_of(struct tp_n4_env *env);

/* Beside the control plane, which has to hear of what was served: room for it, and that it may be read there. NULL: there
 * is none. Elsewhere any pointer does. */
static TP_INLINE void *tp_n4_reserve(struct tp_n4_env *env);
static TP_INLINE void tp_n4_tell(struct tp_n4_env *env, void *room);

/* Everything stored before is seen by whoever sees this. Of 64 bits. */
#ifdef __bpf__
#define TP_N4_PUBLISH(x, value) ((void)__sync_lock_test_and_set(&(x), (value)))
#else
#define TP_N4_PUBLISH(x, value) __atomic_store_n(&(x), (value), __ATOMIC_RELEASE)
#endif

#define TP_PFCP_HEADER 16U /* with a SEID */
#define TP_PFCP_FLAGS 0x21 /* version 1, a SEID, and nothing else: no priority, no message behind it */
#define TP_PFCP_WITH_SEID 1
#define TP_PFCP_SESSION_MODIFICATION_REQUEST 52
#define TP_PFCP_SESSION_DELETION_REQUEST 54
#define TP_N4_SEQUENCE_MASK 0xffffffU
#define TP_N4_TRIES 16 /* of a word that others change, too */

/* An octet of a request, and some behind it: the verifier knows no more of a template's offsets. */
static TP_INLINE const __u8 *tp_n4_octet(const struct tp_n4_request *request, __u32 at)
{
	at &= TP_N4_OCTETS - 1;
	tp_keep(at);
	return request->octets + at;
}

/* A bijection that spreads each bit over all (the finaliser of SplitMix64). */
static TP_INLINE __u64 tp_n4_mix(__u64 x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

/* The place and generation that a SEID is of (docs/decisions/0023): as the control plane deciphers it. 0: another cluster
 * member's. */
static TP_INLINE int tp_n4_decipher(const struct tp_n4_config *config, __u64 seid, __u32 *place, __u32 *generation)
{
	const __u32 shift = 64 - TP_N4_HALF_BITS;
	__u64 a = seid >> TP_N4_HALF_BITS, b = seid & ((1U << TP_N4_HALF_BITS) - 1);

	if (seid >> (2 * TP_N4_HALF_BITS))
		return 0;
	b ^= (a * config->outer[1][0] + config->outer[1][1]) >> shift;
	a ^= tp_n4_mix(config->inner[1] ^ b) >> shift;
	b ^= tp_n4_mix(config->inner[0] ^ a) >> shift;
	a ^= (b * config->outer[0][0] + config->outer[0][1]) >> shift;
	*place = (__u32)b;
	*generation = (__u32)a;
	return 1;
}

/* Words of an address as the control plane hashes it: see TP_N4_WAYS. */
static TP_INLINE __u32 tp_n4_set_of(const struct tp_n4_config *config, __u64 first, __u64 second, __u32 through)
{
	return (__u32)(tp_n4_mix(tp_n4_mix(first ^ config->salt) ^ second ^ through) >> 32);
}

/* Is this octet for octet the template, but for its holes? */
static TP_INLINE int tp_n4_is(const struct tp_n4_template *t, const struct tp_n4_request *request)
{
	__u64 differs = 0;
	__u32 i;

	for (i = TP_PFCP_HEADER; i < TP_N4_OCTETS; i += 8) {
		if (i >= t->length)
			break;
		differs |= (tp_load64(request->octets + i) & tp_load64(t->mask + i)) ^ tp_load64(t->octets + i);
	}
	return !differs;
}

/* Number of the first template that the request is like, from this one on; both from 1 on. 0: there is none. */
TP_APART int tp_n4_template_from(struct tp_n4_env *env, __u32 next)
{
	const struct tp_n4_request *request = tp_n4_request_of(env);
	const struct tp_n4_template *t;
	__u32 i;

	for (i = 0; i < TP_N4_CANDIDATES && next && request; i++) {
		t = tp_n4_template_at(env, next - 1);
		if (!t || t->length != request->len)
			return 0;
		if (tp_n4_is(t, request))
			return (int)next;
		next = t->next;
	}
	return 0;
}

/* The place of an address, from 1 on; 0: it is not known. */
static TP_INLINE __u32 tp_n4_alias_of(struct tp_n4_env *env, const __u8 *address, __u32 length, __u32 through)
{
	__u64 first = length == 16 ? tp_load64(address) : tp_load32(address);
	__u64 second = length == 16 ? tp_load64(address + 8) : 0;
	__u32 set = tp_n4_set_of(tp_n4_config_of(env), first, second, through) & (tp_n4_aliases(env) - 1);
	const struct tp_n4_alias *alias;
	__u32 i;

	set &= ~(TP_N4_WAYS - 1);
	for (i = 0; i < TP_N4_WAYS; i++) {
		alias = tp_n4_alias_at(env, set + i);
		if (!alias)
			return 0;
		if (TP_READ(alias->length) == length && alias->through == through && tp_load64(alias->address) == first &&
		    tp_load64(alias->address + 8) == second)
			return set + i + 1;
	}
	return 0;
}

/* Outcome of one Update FAR, before anything changes. */
struct tp_n4_plan {
	__u32 slot; /* of the line */
	__u64 out;  /* of its entries, if they forward */
};

static TP_INLINE __u32 tp_n4_action_of(__u32 state) { return state == TP_N4_FORWARD ? TP_ACT_TUNNEL : TP_ACT_BUFFER; }

/* Can this be done? Fills change and plan. */
static TP_INLINE int tp_n4_look(struct tp_n4_env *env, const struct tp_n4_line *line, const struct tp_n4_update *update,
				const struct tp_n4_request *request, struct tp_n4_plan *plan, struct tp_n4_change *change)
{
	const struct tp_n4_alias *alias;
	const struct tp_entry *entry;
	const struct tp_side *side;
	__u32 i, slot, found, index, id = tp_get32(tp_n4_octet(request, update->id_at));

	slot = line->far[0] == id && line->state[0] != TP_N4_STAYS ? 0 : 1;
	if (line->far[slot] != id || line->state[slot] == TP_N4_STAYS || line->profile[slot] != update->profile ||
	    line->network[slot] != update->network)
		return TP_N4_SLOW_FAR;
	plan->slot = slot;
	change->far = id;
	change->old_state = line->state[slot];
	change->new_state = update->action == TP_N4_STAYS ? line->state[slot] : update->action;
	change->old_teid = line->teid[slot];
	change->new_teid = line->teid[slot];
	change->old_alias = line->alias[slot];
	change->new_alias = line->alias[slot];
	change->ends_tunnel = update->ends_tunnel;
	change->reserved = 0;
	if (update->teid_at) {
		change->new_teid = tp_get32(tp_n4_octet(request, update->teid_at));
		found = tp_n4_alias_of(env, tp_n4_octet(request, update->address_at), update->address_len,
				       TP_N4_THROUGH(update->profile));
		if (!found || !change->new_teid)
			return TP_N4_SLOW_TUNNEL;
		change->new_alias = (__u16)(found - 1);
	}
	alias = tp_n4_alias_at(env, change->new_alias);
	if (!alias || !TP_READ(alias->length))
		return TP_N4_SLOW_TUNNEL;
	plan->out = tp_swap32(change->new_teid) | (__u64)TP_READ(alias->peer) << 32;
	for (i = 0; i < TP_N4_ENTRIES; i++) {
		index = line->entry[slot][i];
		change->entry[i] = index;
		if (!index)
			continue;
		entry = tp_n4_entry_at(env, index);
		side = tp_n4_side_at(env, index);
		if (!entry || !side || TP_HEAD_ACTION(TP_READ(entry->head)) != tp_n4_action_of(change->old_state))
			return TP_N4_SLOW_SESSION;
		if (change->old_state != TP_N4_FORWARD && change->new_state != change->old_state && TP_READ(side->held))
			return TP_N4_SLOW_WAITING;
	}
	return TP_N4_SERVED;
}

/* Have packets meet it. Where they go before what they do: none goes into a tunnel that is not yet there. */
static TP_INLINE void tp_n4_change(struct tp_n4_env *env, const struct tp_n4_plan *plan, const struct tp_n4_change *change)
{
	struct tp_entry *entry;
	__u64 head;
	__u32 i;

	for (i = 0; i < TP_N4_ENTRIES; i++) {
		entry = change->entry[i] ? tp_n4_entry_at(env, change->entry[i]) : NULL;
		if (!entry)
			continue;
		if (change->new_state == TP_N4_FORWARD && TP_READ(entry->out) != plan->out)
			TP_N4_PUBLISH(entry->out, plan->out);
		if (tp_n4_action_of(change->old_state) == tp_n4_action_of(change->new_state))
			continue;
		head = TP_READ(entry->head) & ~(TP_HEAD_ACTION_MASK << TP_HEAD_ACTION_SHIFT | TP_HEAD_DRAIN);
		head |= (__u64)tp_n4_action_of(change->new_state) << TP_HEAD_ACTION_SHIFT;
		/* A packet that met BUFFER before is still handed over. User space says when none does any more. */
		if (change->new_state == TP_N4_FORWARD && tp_n4_buffers(env))
			head |= TP_HEAD_DRAIN;
		TP_N4_PUBLISH(entry->head, head);
	}
}

/* With the line of this place in hand: all of the request by this template, or nothing. enum tp_n4_verdict. */
TP_APART int tp_n4_carry_out(struct tp_n4_env *env, __u32 place, __u32 number)
{
	const struct tp_n4_request *request = tp_n4_request_of(env);
	const struct tp_n4_template *t = tp_n4_template_at(env, number);
	struct tp_n4_line *line = tp_n4_line_at(env, place);
	struct tp_n4_done *done = tp_n4_done_of(env);
	struct tp_n4_plan plan[TP_N4_FARS];
	__u32 i, slot, sequence, newer;
	void *room;
	int verdict;

	if (!request || !t || !line || !done)
		return TP_N4_SLOW_OTHER;
	sequence = tp_get32(request->octets + 12) >> 8;
	newer = (sequence - line->sequence) & TP_N4_SEQUENCE_MASK;
	if (!newer || newer > TP_N4_SEQUENCE_MASK / 2)
		return TP_N4_SLOW_SEQUENCE;
	if (t->cp_seid_at && tp_get64(tp_n4_octet(request, t->cp_seid_at)) != line->cp_seid)
		return TP_N4_SLOW_CP_SEID;
	for (i = 0; i < TP_N4_FARS && i < t->n_updates; i++) {
		verdict = tp_n4_look(env, line, &t->update[i], request, &plan[i], &done->change[i]);
		if (verdict)
			return verdict;
	}
	if (t->n_updates == 2 && plan[0].slot == plan[1].slot)
		return TP_N4_SLOW_FAR;
	room = tp_n4_reserve(env);
	if (!room)
		return TP_N4_SLOW_LOG;
	for (i = 0; i < TP_N4_FARS && i < t->n_updates; i++) {
		slot = plan[i].slot & (TP_N4_FARS - 1);
		tp_n4_change(env, &plan[i], &done->change[i]);
		line->teid[slot] = done->change[i].new_teid;
		line->alias[slot] = done->change[i].new_alias;
		line->state[slot] = done->change[i].new_state;
	}
	for (i = 0; i < TP_N4_FARS; i++) {
		done->far[i] = line->far[i];
		done->teid[i] = line->teid[i];
		done->alias[i] = line->alias[i];
		done->state[i] = line->state[i];
	}
	line->sequence = sequence;
	done->cp_seid = line->cp_seid;
	done->place = place;
	done->n_changes = t->n_updates;
	done->template = t->number;
	tp_n4_tell(env, room);
	return TP_N4_SERVED;
}

/* The session of a place, as its owner word names it. */
static TP_INLINE __u64 tp_n4_named(__u32 generation, __u32 association)
{
	return (__u64)generation << TP_N4_GENERATION_SHIFT | (__u64)association << TP_N4_ASSOCIATION_SHIFT;
}

/* Serve a request. enum tp_n4_verdict; where it is TP_N4_SERVED, done says what has become of the session. */
static TP_INLINE int tp_n4_serve(struct tp_n4_env *env)
{
	const struct tp_n4_request *request = tp_n4_request_of(env);
	const struct tp_n4_config *config = tp_n4_config_of(env);
	__u32 i, len, number, place, generation;
	const struct tp_n4_template *t;
	int verdict = TP_N4_SLOW_FAR;
	struct tp_n4_line *line;
	__u64 owner, busy, to;

	if (!request || !config)
		return TP_N4_SLOW_OTHER;
	len = request->len;
	tp_keep(len);
	if (len <= TP_PFCP_HEADER || len > TP_N4_OCTETS || request->octets[0] != TP_PFCP_FLAGS ||
	    request->octets[1] != TP_PFCP_SESSION_MODIFICATION_REQUEST || tp_get16(request->octets + 2) + 4 != len ||
	    request->octets[15])
		return TP_N4_SLOW_OTHER;
	number = (__u32)tp_n4_template_from(env, TP_READ(config->by_length[len]));
	if (!number)
		return TP_N4_SLOW_TEMPLATE;
	if (!tp_n4_decipher(config, tp_get64(request->octets + 4), &place, &generation))
		return TP_N4_SLOW_SESSION;
	line = tp_n4_line_at(env, place);
	owner = TP_N4_LENT | tp_n4_named(generation, request->association);
	if (!line || !__sync_bool_compare_and_swap(&line->owner, owner, owner ^ TP_N4_LENT ^ TP_N4_BUSY))
		return TP_N4_SLOW_SESSION;
	/* Another one may be for FARs like these. */
	for (i = 0; i < TP_N4_CANDIDATES && number && verdict == TP_N4_SLOW_FAR; i++) {
		verdict = tp_n4_carry_out(env, place, number - 1);
		t = verdict == TP_N4_SLOW_FAR ? tp_n4_template_at(env, number - 1) : NULL;
		number = t ? (__u32)tp_n4_template_from(env, t->next) : 0;
	}
	/* Or messages have gone by meanwhile. */
	for (i = 0; i < TP_N4_TRIES; i++) {
		busy = TP_READ(line->owner);
		to = busy == (owner ^ TP_N4_LENT ^ TP_N4_BUSY) ? owner : busy | TP_N4_READY;
		if (__sync_bool_compare_and_swap(&line->owner, busy, to))
			return verdict;
	}
	TP_N4_PUBLISH(line->owner, tp_n4_named(generation, request->association) | TP_N4_READY |
					   TP_N4_PASSED_MASK << TP_N4_PASSED_SHIFT);
	return verdict;
}

/* Does it change a session, which its header names? */
static TP_INLINE int tp_n4_is_about_session(const struct tp_n4_request *request)
{
	__u32 kind = request->octets[1];

	return (request->octets[0] & TP_PFCP_WITH_SEID) &&
	       (kind == TP_PFCP_SESSION_MODIFICATION_REQUEST || kind == TP_PFCP_SESSION_DELETION_REQUEST);
}

/* A message about a session, of its SMF, goes to the control plane: nothing overtakes it. */
static TP_INLINE void tp_n4_pass(struct tp_n4_env *env, __u64 seid, __u32 association)
{
	__u32 i, place, generation;
	struct tp_n4_line *line;
	__u64 owner, to, passed;

	if (!tp_n4_decipher(tp_n4_config_of(env), seid, &place, &generation))
		return;
	line = tp_n4_line_at(env, place);
	for (i = 0; i < TP_N4_TRIES && line; i++) {
		owner = TP_READ(line->owner);
		if ((owner ^ tp_n4_named(generation, association)) >> TP_N4_GENERATION_SHIFT)
			return;
		passed = (owner >> TP_N4_PASSED_SHIFT) + 1 & TP_N4_PASSED_MASK;
		to = (owner & ~(TP_N4_PASSED_MASK << TP_N4_PASSED_SHIFT)) | passed << TP_N4_PASSED_SHIFT;
		if ((owner & TP_N4_STATE_MASK) == TP_N4_LENT)
			to |= TP_N4_READY;
		if (__sync_bool_compare_and_swap(&line->owner, owner, to))
			return;
	}
}

#endif
