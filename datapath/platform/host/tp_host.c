/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The pipeline over ordinary memory. */
#define TP_SHAPES 1
#include "tp_env.h"

struct tp_sink {
	struct tp_result result;
};

static TP_INLINE int tp_releases(struct tp_env *env) { return env->tables->releases != 0; }

static TP_INLINE __u32 tp_held_by(struct tp_env *env) { return env->tables->held_by; }

/* Tables end with this process, but for those of workers. */
static TP_INLINE void tp_raises(struct tp_env *env, __u32 index) { }
static TP_INLINE void tp_handed(struct tp_env *env) { }

static TP_INLINE int tp_aside(struct tp_env *env) { return env->tables->aside != 0; }


static TP_INLINE int tp_is_own(struct tp_env *env, __u64 *hi, __u64 *lo)
{
	if (!env->tables->own)
		return 0;
	*hi = env->tables->own_for[0];
	*lo = env->tables->own_for[1];
	return 1;
}

static TP_INLINE int tp_knows_transport(struct tp_env *env, __u64 *transport)
{
	if (!env->tables->transport_known)
		return 0;
	*transport = env->tables->transport;
	return 1;
}

static TP_INLINE int tp_fib_ask(struct tp_env *env, struct tp_fib *q)
{
	return env->tables->fib ? env->tables->fib(env->tables->fib_arg, q) : BPF_FIB_LKUP_RET_NOT_FWDED;
}

static TP_INLINE int tp_hand_over(struct tp_env *env, enum tp_ring ring, const struct tp_hand *hand)
{
	struct tp_result *r = &env->sink->result;
	__u32 size = tp_record_size(env, hand);

	if (!size || (ring == TP_RING_COPIES && r->copies_len + size > sizeof(r->copies)))
		return 1;
	if (ring == TP_RING_COPIES) {
		tp_write_record(env, hand, r->copies + r->copies_len);
		r->copies_len += size;
	} else {
		tp_write_record(env, hand, r->event);
		r->event_len = size;
	}
	return 0;
}

static TP_INLINE int tp_tell_alarm(struct tp_env *env, const struct tp_alarm *alarm)
{
	struct tp_result *r = &env->sink->result;

	if (r->n_alarms >= TP_HOST_ALARMS)
		return 1;
	r->alarms[r->n_alarms++] = *alarm;
	return 0;
}

static TP_INLINE struct tp_trace *tp_trace_of(struct tp_env *env) { return &env->sink->result.trace; }

static TP_INLINE void tp_trace_copy(struct tp_env *env, struct tp_trace *t, __u32 frame_len)
{
	memcpy(t->data, tp_data(env), frame_len < TP_TRACE_SNAP ? frame_len : TP_TRACE_SNAP);
}

static TP_INLINE int tp_trace_emit(struct tp_env *env, struct tp_trace *t)
{
	t->time_ns = env->now_ns;
	env->sink->result.traced = 1;
	return 0;
}

#include "pipeline.h"

static TP_INLINE __u64 tp_clock_exact(struct tp_env *env) { return env->now_ns; }
static TP_INLINE int tp_leaves_by_worker(struct tp_env *env) { return env->tables->by_worker != 0; }

/* A worker sends at once what is due by now. */
static TP_INLINE int tp_is_delayed(struct tp_env *env, int outcome)
{
	return outcome == TP_OUT_LATER && !(tp_leaves_by_worker(env) && env->leave.at_ns <= env->now_ns);
}

/* Where nobody keeps frames they leave at once, within the burst of their rate. */
static TP_INLINE int tp_leave_at(struct tp_env *env, __u64 at_ns)
{
	return tp_hands_later(env) ? tp_wait_until(env, at_ns) : TP_OK;
}

_Static_assert(TP_HOST_WRAP_MAX == TP_TUNNEL6_MAX, "what tp_host_wrap() may need");

int tp_host_run(struct tp_tables *t, const struct tp_port_config *port, __u8 *buf, __u32 cap, __u32 *offset,
		__u32 *len, __u64 now_ns, struct tp_result *r)
{
	struct tp_env env = {t, port, (struct tp_sink *)r, buf, cap, *offset, *len, now_ns, {0, 0}};
	int outcome;

	r->reason = TP_DROP_NONE;
	r->event_len = 0;
	r->traced = 0;
	r->copies_len = 0;
	r->n_alarms = 0;
	tp_close_room(&env);
	outcome = tp_pipeline(&env);
	tp_open_room(&env);
	r->verdict = tp_verdict_of(outcome);
	if (r->verdict == TP_VERDICT_DROP)
		r->reason = (__u32)outcome;
	r->port = (__u32)env.leave.by;
	*offset = env.offset;
	*len = env.len;
	return (int)r->verdict;
}

/* The prefix of an uplink entry, in the words of its extension line. */
static __u32 tp_prefix_of(struct tp_env *env, const struct tp_entry *e, __u8 *prefix, __u32 *ni)
{
	__u64 head = e ? TP_READ(e->head) : 0;
	const struct tp_ext *ext = e ? tp_ext_of(env, e, head) : NULL;

	if (!ext || !ext->ue6_plen || TP_HEAD_ACTION(head) != TP_ACT_ROUTE)
		return 0;
	memcpy(prefix, ext->ue6, 16);
	*ni = TP_HEAD_NI_OF(head);
	return ext->ue6_plen;
}

/* For what is asked beside the packets of a port. */
static const struct tp_port_config any_port = {0, 0, TP_FEAT_ALL, 0};

__u32 tp_host_prefix(struct tp_tables *t, __u32 teid, __u8 *prefix, __u32 *ni)
{
	struct tp_env env = {.tables = t, .port = &any_port};
	const struct tp_rules *rules;
	__u32 i, j, place, plen, index;
	__u64 head = 0;
	struct tp_entry *e = tp_seek_teid(&env, teid, &index, &head);

	if (!e || TP_HEAD_ACTION(head) != TP_ACT_LIST)
		return tp_prefix_of(&env, e, prefix, ni);
	place = TP_HEAD_RULE_OF(head);
	for (i = 0; i < TP_RULES_PLACES; i++) {
		rules = tp_rules_at(&env, place);
		for (j = 0; rules && j < TP_RULES_PER_PLACE; j++) {
			plen = tp_prefix_of(&env, tp_entry_at(&env, rules->rule[j].entry), prefix, ni);
			if (plen)
				return plen;
		}
		if (!rules || rules->rule[TP_RULES_PER_PLACE - 1].more & TP_RULE_LAST)
			return 0;
		place = tp_rules_next(rules);
	}
	return 0;
}

/* Outer headers alone, in front of len octets that stand behind the room for them. */
static __u32 wrap_bare(struct tp_env *env, const struct tp_task *task, const struct tp_peer *peer, __u32 len)
{
	__u32 bare = peer->flags & TP_PEER_V6 ? TP_BARE6_LEN : TP_BARE_LEN;
	__u64 sum = TP_NO_SUM;

	if (task->tunnel_len != bare || !(peer->flags & TP_PEER_UDP) == !(task->flags & TP_TASK_RELAYED))
		return 0; /* the peer's index was taken by another one meanwhile */
	if (task->flags & TP_TASK_RELAYED)
		tp_store32(tp_data(env) + bare + 4, (__u32)task->out);
	if ((peer->flags & (TP_PEER_V6 | TP_PEER_ZERO_SUM)) == TP_PEER_V6)
		sum = tp_sum_frame(env, bare, len);
	return tp_put_relay_headers(env, peer, NULL, 0, len, sum, (__u32)task->out, task->mark) ? 0 : bare + len;
}

__u32 tp_host_wrap(struct tp_tables *t, const struct tp_task *task, const __u8 *user, __u32 len, __u8 *to)
{
	struct tp_env env = {t, &any_port, NULL, to, task->tunnel_len + len, 0, task->tunnel_len + len, 0, {0, 0}};
	const struct tp_peer *peer = tp_peer_at(&env, tp_out_peer(task->out));
	struct tp_tunnel out = {0};

	if (task->tunnel_len > TP_TUNNEL6_MAX || (task->tunnel_len && !peer))
		return 0;
	memcpy(to + task->tunnel_len, user, len);
	if (!task->tunnel_len)
		return len;
	if ((task->flags & TP_TASK_RELAYED) || (peer->flags & TP_PEER_UDP))
		return len < TP_GTPU_LEN ? 0 : wrap_bare(&env, task, peer, len);
	out.len = task->tunnel_len;
	out.teid_be = (__u32)task->out;
	out.container = task->marks;
	if (peer->flags & TP_PEER_V6) {
		if (out.len < TP_TUNNEL6_LEN)
			return 0; /* the peer's index was taken by another one meanwhile */
		out.peer6 = peer;
		out.user_sum = TP_NO_SUM;
		if (!(peer->flags & TP_PEER_ZERO_SUM))
			out.user_sum = tp_sum_frame(&env, out.len, len);
		tp_put_tunnel6(to, &out, len);
	} else {
		if (out.len < TP_TUNNEL_LEN || out.len > TP_TUNNEL_MAX)
			return 0;
		out.local_be = peer->local_be;
		out.remote_be = peer->remote_be;
		tp_put_tunnel4(to, &out, len);
	}
	if (task->mark)
		tp_mark_ip(to, task->mark);
	return out.len + len;
}

/* The entry index that a TEID leads to; TP_NOT_FOUND: none. */
__u32 tp_host_entry_of(struct tp_tables *t, __u32 teid)
{
	struct tp_env env = {.tables = t, .port = &any_port};
	__u32 index;
	__u64 head;

	return tp_seek_teid(&env, teid, &index, &head) ? index : TP_NOT_FOUND;
}

/* Whether what comes in by a TEID is downlink, which only rules of relayed sessions say: of a list, its first one. */
static int is_downlink(struct tp_env *env, __u32 teid)
{
	const struct tp_rules *rules;
	struct tp_entry *e;
	__u32 index;
	__u64 head = 0;

	e = tp_seek_teid(env, teid, &index, &head);
	if (e && TP_HEAD_ACTION(head) == TP_ACT_LIST) {
		rules = tp_rules_at(env, TP_HEAD_RULE_OF(head));
		e = rules ? tp_entry_at(env, TP_READ(rules->rule[0].entry)) : NULL;
	}
	return e && (TP_READ(e->head) & TP_HEAD_DOWN);
}

__u64 tp_host_user(struct tp_tables *t, const struct tp_port_config *port, __u8 *frame, __u32 len, __u8 *dir)
{
	struct tp_port_config all = {port->port, port->roles, TP_FEAT_ALL, port->ni};
	struct tp_env env = {.tables = t, .port = &all, .buf = frame, .cap = len, .len = len};
	struct tp_run run = {.config = t->config};
	struct tp_packet p = {0};
	struct tp_addr ue;
	int opened;

	tp_begin_packet(&p, &env);
	opened = tp_open(&run, &p);
	*dir = (__u8)p.dir;
	if ((port->features & TP_FEAT_RELAY) && p.gtpu && (!opened || opened == TP_PLAN_MARKER) && is_downlink(&env, p.teid)) {
		*dir = TP_DOWNLINK;
		return p.teid;
	}
	if (opened || (p.gtpu && tp_parse_user(&p, p.gtpu_end - p.user, TP_DROP_GTPU_MALFORMED)))
		return 0;
	ue = p.gtpu ? tp_source(&p) : tp_destination(&p);
	return ue.hi;
}

struct tp_n4_env {
	struct tp_env env;
	const struct tp_n4_tables *n4;
	const struct tp_n4_request *request;
	struct tp_n4_done *done;
};

static TP_INLINE const struct tp_n4_config *tp_n4_config_of(struct tp_n4_env *env) { return env->n4->config; }

static TP_INLINE struct tp_n4_line *tp_n4_line_at(struct tp_n4_env *env, __u32 index)
{
	return index < env->n4->n_lines ? &env->n4->lines[index] : NULL;
}

static TP_INLINE const struct tp_n4_template *tp_n4_template_at(struct tp_n4_env *env, __u32 index)
{
	return index < TP_N4_TEMPLATES ? &env->n4->templates[index] : NULL;
}

static TP_INLINE const struct tp_n4_alias *tp_n4_alias_at(struct tp_n4_env *env, __u32 index)
{
	return index < env->n4->n_aliases ? &env->n4->aliases[index] : NULL;
}

static TP_INLINE __u32 tp_n4_aliases(struct tp_n4_env *env) { return env->n4->n_aliases; }

static TP_INLINE struct tp_entry *tp_n4_entry_at(struct tp_n4_env *env, __u32 index) { return tp_entry_at(&env->env, index); }

static TP_INLINE struct tp_side *tp_n4_side_at(struct tp_n4_env *env, __u32 index) { return tp_side_at(&env->env, index); }

static TP_INLINE int tp_n4_buffers(struct tp_n4_env *env) { return TP_READ(tp_config_of(&env->env)->held_max) > 0; }

static TP_INLINE const struct tp_n4_request *tp_n4_request_of(struct tp_n4_env *env) { return env->request; }

static TP_INLINE struct tp_n4_done *tp_n4_done_of(struct tp_n4_env *env) { return env->done; }

static TP_INLINE void *tp_n4_reserve(struct tp_n4_env *env) { return env; }

static TP_INLINE void tp_n4_tell(struct tp_n4_env *env, void *room) {}

#include "serve.h"

int tp_host_n4_serve(struct tp_tables *t, const struct tp_n4_tables *n4, const struct tp_n4_request *request,
		     struct tp_n4_done *done)
{
	struct tp_n4_env env = {{.tables = t, .port = &any_port}, n4, request, done};

	return tp_n4_serve(&env);
}

const char *tp_drop_name(__u32 reason)
{
	static const char *const names[] = {
		"none",
#define TP_DROP(symbol, name, meaning, remedy) #name,
#include "tp_drop.def"
#undef TP_DROP
	};

	return reason < sizeof(names) / sizeof(names[0]) ? names[reason] : "unknown";
}
