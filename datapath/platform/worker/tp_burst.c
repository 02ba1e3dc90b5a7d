/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* A burst through the stages of the pipeline, compiled for TP_BUILD. Each stage runs over the whole burst, and what the next
 * one reads is under way from memory meanwhile: worth a factor of three where a million users send in random order. */
#define TP_SHAPES 1
#include "tp_env.h"
#include "tp_worker.h"

struct tp_sink {
	struct tp_worker worker;
};

/* What runs here came in by a port just now. */
static TP_INLINE int tp_releases(struct tp_env *env) { return 0; }
static TP_INLINE __u32 tp_held_by(struct tp_env *env) { return 0; }
static TP_INLINE int tp_aside(struct tp_env *env) { return 0; }

static TP_INLINE void tp_raises(struct tp_env *env, __u32 index)
{
	__u32 *raised = env->sink->worker.raised;

	if (raised)
		__atomic_store_n(raised, index + 1, __ATOMIC_RELEASE);
}

static TP_INLINE void tp_handed(struct tp_env *env)
{
	__u32 *raised = env->sink->worker.raised;

	if (raised)
		__atomic_store_n(raised, 0, __ATOMIC_RELEASE);
}

static TP_INLINE int tp_is_own(struct tp_env *env, __u64 *hi, __u64 *lo) { return 0; }
static TP_INLINE int tp_knows_transport(struct tp_env *env, __u64 *transport) { return 0; }

/* Left to the kernel, which then sends. */
static TP_INLINE int tp_fib_ask(struct tp_env *env, struct tp_fib *q) { return BPF_FIB_LKUP_RET_NO_NEIGH; }

static TP_INLINE int tp_hand_over(struct tp_env *env, enum tp_ring ring, const struct tp_hand *hand)
{
	const struct tp_queues *queues = &env->sink->worker.queues;
	struct tp_queue *q = ring == TP_RING_COPIES ? queues->copies : ring == TP_RING_HELD ? queues->held : queues->events;
	__u32 size = tp_record_size(env, hand);
	__u8 *room = q && size ? tp_queue_reserve(q, size) : NULL;

	if (!room)
		return 1;
	tp_write_record(env, hand, room);
	if (ring == TP_RING_HELD) {
		/* From here on the reader counts it off. To wake it takes longer than all else. */
		tp_queue_complete(room, size);
		tp_handed(env);
		tp_queue_nudge(q);
		return 0;
	}
	tp_queue_commit(q, room, size);
	return 0;
}

static TP_INLINE int tp_put(struct tp_queue *q, const void *record, __u32 len)
{
	__u8 *room = q ? tp_queue_reserve(q, len) : NULL;

	if (!room)
		return 1;
	memcpy(room, record, len);
	tp_queue_commit(q, room, len);
	return 0;
}

static TP_INLINE int tp_tell_alarm(struct tp_env *env, const struct tp_alarm *alarm)
{
	return tp_put(env->sink->worker.queues.alarms, alarm, sizeof(*alarm));
}

static TP_INLINE struct tp_trace *tp_trace_of(struct tp_env *env) { return &env->sink->worker.trace; }

static TP_INLINE void tp_trace_copy(struct tp_env *env, struct tp_trace *t, __u32 frame_len)
{
	memcpy(t->data, tp_data(env), frame_len < TP_TRACE_SNAP ? frame_len : TP_TRACE_SNAP);
}

static TP_INLINE int tp_trace_emit(struct tp_env *env, struct tp_trace *t)
{
	t->time_ns = env->now_ns;
	return tp_put(env->sink->worker.queues.traced, t, sizeof(*t));
}

#include "pipeline.h"

static TP_INLINE __u64 tp_clock_exact(struct tp_env *env) { return env->now_ns; }
static TP_INLINE int tp_is_delayed(struct tp_env *env, int outcome) { return env->leave.at_ns && outcome == TP_OUT_REDIRECT; }
static TP_INLINE int tp_leaves_by_worker(struct tp_env *env) { return 1; }

/* One that leaves with those of its flow that have waited, which the caller has sent by now, does not wait. */
static TP_INLINE int tp_leave_at(struct tp_env *env, __u64 at_ns)
{
	struct tp_worker *w = &env->sink->worker;

	__u32 counted = env->leave.at_ns != 0;

	if (!w->wheel || at_ns <= w->left_ns)
		return TP_OK;
	if (!tp_may_wait(at_ns - w->left_ns, w->longest_wait_ns, w->room + counted, w->frames))
		return TP_DROP_SHAPER_FULL;
	w->room -= !counted;
	if (at_ns > env->leave.at_ns)
		env->leave.at_ns = at_ns;
	return TP_OK;
}

#define TP_LINE 64

/* Have the lines of a frame that are read and written on their way from the cache that a NIC leaves them in: the first one; what a
 * tunnel's header begins in, which comes in front of it, or the user's header, which lies behind one. */
static TP_INLINE void tp_frame_ahead(struct tp_env *env, __u32 roles)
{
	const __u8 *data = tp_data(env);

	tp_prefetch(data);
	if (roles & TP_ROLE_N3)
		tp_prefetch(data + TP_LINE);
	if (roles & TP_ROLE_N6)
		tp_prefetch(data - TP_LINE);
}

struct tp_burst {
	struct tp_run run;
	struct tp_env env[TP_BURST_MAX];
	struct tp_packet packet[TP_BURST_MAX];
	int outcome[TP_BURST_MAX];
	__u8 going[TP_BURST_MAX]; /* packets still on their journey, in order */
	__u32 n_going;
};

static TP_INLINE void burst_open(struct tp_burst *b, __u32 n)
{
	__u32 i;
	int r;

	for (i = 0; i < n; i++) {
		r = tp_open(&b->run, &b->packet[i]);
		if (tp_unlikely(r)) {
			b->outcome[i] = tp_send_unopened(&b->run, &b->packet[i], r);
			continue;
		}
		tp_seek_ahead(&b->packet[i]);
		b->going[b->n_going++] = (__u8)i;
	}
}

static TP_INLINE void burst_seek(struct tp_burst *b)
{
	__u32 j, n = b->n_going;
	struct tp_packet *p;
	int r;

	b->n_going = 0;
	for (j = 0; j < n; j++) {
		p = &b->packet[b->going[j]];
		r = tp_sought(&b->run, p);
		if (tp_unlikely(r)) {
			b->outcome[b->going[j]] = tp_send_unsought(&b->run, p, r);
			continue;
		}
		tp_take_ahead(p);
		b->going[b->n_going++] = b->going[j];
	}
}

/* Entries that have come by now may name more. */
static TP_INLINE void burst_ahead(const struct tp_burst *b)
{
	__u32 j, n_more = 0;
	const struct tp_ext *ext;

	for (j = 0; j < b->n_going; j++) {
		ext = tp_ext_ahead(&b->packet[b->going[j]]);
		n_more += ext != NULL;
		if (ext)
			tp_prefetch(ext);
	}
	for (j = 0; n_more && j < b->n_going; j++)
		tp_meters_ahead(&b->packet[b->going[j]]);
}

static TP_INLINE void burst_rest(struct tp_burst *b)
{
	__u32 j;

	for (j = 0; j < b->n_going; j++)
		b->outcome[b->going[j]] = tp_found(&b->run, &b->packet[b->going[j]]);
}

static TP_INLINE void run_staged(struct tp_burst *b, __u32 n)
{
	__u32 i;

	b->n_going = 0;
	for (i = 0; i < n; i++) {
		b->packet[i] = (struct tp_packet){0};
		tp_begin_packet(&b->packet[i], &b->env[i]);
	}
	burst_open(b, n);
	burst_seek(b);
	if (b->n_going && tp_has(b->packet[b->going[0]].env, TP_FEAT_EXT))
		burst_ahead(b);
	burst_rest(b);
	for (i = 0; i < n; i++)
		tp_count_frame(&b->run, &b->packet[i], b->outcome[i]);
}

/* The record of a packet that is followed is one for each worker. */
static TP_INLINE void run_singly(struct tp_burst *b, __u32 n)
{
	__u32 i;

	for (i = 0; i < n; i++)
		b->outcome[i] = tp_pipeline(&b->env[i]);
}

#define TP_NAME_OF(build) tp_burst_##build
#define TP_NAME(build) TP_NAME_OF(build)

void TP_NAME(TP_BUILD_NAME)(struct tp_worker *w, const struct tp_port_config *port, struct tp_frame *frames, __u32 n, __u64 now_ns);

void TP_NAME(TP_BUILD_NAME)(struct tp_worker *w, const struct tp_port_config *port, struct tp_frame *frames, __u32 n, __u64 now_ns)
{
	struct tp_burst b;
	__u32 i;

	for (i = 0; i < n; i++) {
		b.env[i] = (struct tp_env){&w->tables, port, (struct tp_sink *)w, frames[i].buf, frames[i].cap,
					   frames[i].offset, frames[i].len, now_ns, {0, 0}};
		tp_frame_ahead(&b.env[i], port->roles);
		tp_close_room(&b.env[i]);
	}
	b.run = (struct tp_run){w->tables.config, w->tables.cpu, now_ns};
	if (TP_BUILD & port->features & TP_FEAT_TRACE)
		run_singly(&b, n);
	else
		run_staged(&b, n);
	for (i = 0; i < n; i++) {
		tp_open_room(&b.env[i]);
		frames[i].offset = b.env[i].offset;
		frames[i].len = b.env[i].len;
		frames[i].verdict = tp_verdict_of(b.outcome[i]);
		frames[i].leaves_ns = b.env[i].leave.at_ns;
		if (tp_unlikely(frames[i].leaves_ns) && frames[i].verdict == TP_VERDICT_REDIRECT) {
			frames[i].verdict = TP_VERDICT_LATER;
			w->tables.cpu->ports[port->port & (TP_PORTS_MAX - 1)].later++;
		}
		frames[i].detail = frames[i].verdict == TP_VERDICT_DROP ? (__u32)b.outcome[i] : (__u32)b.env[i].leave.by;
	}
}
