/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* A frame and tables in ordinary memory: what the builds that run in a process have in common of a platform. */
#ifndef TP_ENV_H
#define TP_ENV_H

#include <linux/bpf.h>
#include <string.h>

#include "tp_host.h"
#include "tp_platform.h"

/* Under ASan the room around a frame is as closed as what lies beyond it. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#endif
#endif
#ifndef ASAN_POISON_MEMORY_REGION
#define ASAN_POISON_MEMORY_REGION(from, len)
#define ASAN_UNPOISON_MEMORY_REGION(from, len)
#endif

struct tp_sink; /* where what is handed over goes: the build's own */

struct tp_env {
	struct tp_tables *tables;
	const struct tp_port_config *port;
	struct tp_sink *sink;
	__u8 *buf;
	__u32 cap;
	__u32 offset;
	__u32 len;
	__u64 now_ns;
	struct tp_leave leave;
};

static TP_INLINE __u32 tp_features_of(struct tp_env *env) { return env->port->features; }
static TP_INLINE __u32 tp_port_of(struct tp_env *env) { return env->port->port; }
static TP_INLINE __u32 tp_roles_of(struct tp_env *env) { return env->port->roles; }
static TP_INLINE __u32 tp_ni_of(struct tp_env *env) { return env->port->ni; }

static TP_INLINE __u8 *tp_data(struct tp_env *env) { return env->buf + env->offset; }
static TP_INLINE __u8 *tp_end(struct tp_env *env) { return env->buf + env->offset + env->len; }

static TP_INLINE void tp_close_room(struct tp_env *env)
{
	ASAN_POISON_MEMORY_REGION(env->buf, env->offset);
	ASAN_POISON_MEMORY_REGION(tp_end(env), env->cap - env->offset - env->len);
}

static TP_INLINE void tp_open_room(struct tp_env *env) { ASAN_UNPOISON_MEMORY_REGION(env->buf, env->cap); }

/* As the kernel has it: at least an Ethernet header must remain, and new octets at the end are zero. */
static TP_INLINE int tp_resize(struct tp_env *env, int head, int tail)
{
	long start = (long)env->offset + head, end = (long)env->offset + env->len + tail;

	if (start < 0 || end > (long)env->cap || end - start < 14)
		return 1;
	tp_open_room(env);
	if (tail > 0)
		memset(tp_end(env), 0, (size_t)tail);
	env->offset = (__u32)start;
	env->len = (__u32)(end - start);
	tp_close_room(env);
	return 0;
}

static TP_INLINE struct tp_config *tp_config_of(struct tp_env *env) { return env->tables->config; }
static TP_INLINE struct tp_cpu *tp_cpu_of(struct tp_env *env) { return env->tables->cpu; }

/* Threads that run aside have one struct tp_cpu together. */
static TP_INLINE struct tp_leave *tp_leave_of(struct tp_env *env, struct tp_cpu *cpu) { return &env->leave; }

/* A table that is not there has no elements (struct tp_tables). */
#define TP_ACCESSOR(element, table)                                                             \
	static TP_INLINE struct tp_##element *tp_##element##_at(struct tp_env *env, __u32 index) \
	{                                                                                       \
		const struct tp_tables *t = env->tables;                                        \
		struct tp_##element *at;                                                        \
                                                                                                \
		if (tp_unlikely(index >= t->n_##table))                                         \
			return NULL;                                                            \
		at = &t->table[index];                                                          \
		if (!at)                                                                        \
			__builtin_unreachable(); /* spares the caller's test for NULL */        \
		return at;                                                                      \
	}
TP_TABLES(TP_ACCESSOR)
#undef TP_ACCESSOR

static TP_INLINE __u64 tp_clock(struct tp_env *env, struct tp_cpu *cpu)
{
	cpu->clock_uses++;
	cpu->clock_ns = env->now_ns;
	return env->now_ns;
}

static TP_INLINE int tp_is_unmanaged(struct tp_env *env, const struct tp_config *config, struct tp_cpu *cpu)
{
	return tp_unlikely(config->managed_until_ns) && env->now_ns > config->managed_until_ns;
}

static TP_INLINE int tp_redirect(struct tp_env *env, __u32 port)
{
	if (port >= TP_PORTS_MAX || !(env->tables->ports_up >> port & 1))
		return TP_DROP_REDIRECT;
	env->leave.by = port;
	return TP_OUT_REDIRECT;
}

static TP_INLINE __u32 tp_verdict_of(int outcome)
{
	switch (outcome) {
	case TP_OUT_PASS:
		return TP_VERDICT_PASS;
	case TP_OUT_ANSWER:
		return TP_VERDICT_TX;
	case TP_OUT_REDIRECT:
		return TP_VERDICT_REDIRECT;
	case TP_OUT_SLOW:
	case TP_OUT_HELD:
	case TP_OUT_LATER:
		return TP_VERDICT_SLOW;
	default:
		return TP_VERDICT_DROP;
	}
}

/* A record of the event ring, and octets of the frame behind its words, at `to`, which has room for it. */
static TP_INLINE void tp_write_record(struct tp_env *env, const struct tp_hand *hand, __u8 *to)
{
	__u32 front = hand->n_words * 8, len = hand->octets.len;
	struct tp_event event = {hand->kind, hand->ifindex, front + len, (__u16)tp_port_of(env), (__u16)env->tables->worker};

	memcpy(to, &event, sizeof(event));
	if (front)
		memcpy(to + sizeof(event), hand->words, front);
	memcpy(to + sizeof(event) + front, tp_data(env) + hand->octets.off, len);
}

/* Octets of such a record; 0: there is none. */
static TP_INLINE __u32 tp_record_size(struct tp_env *env, const struct tp_hand *hand)
{
	__u32 off = hand->octets.off, len = hand->octets.len, data = hand->n_words * 8 + len;

	if (len == 0 || data > TP_EVENT_DATA_MAX || off + len > env->len)
		return 0;
	return (__u32)sizeof(struct tp_event) + data;
}

#endif
