/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What a platform provides to the pipeline.
 *
 * A platform is one source file: it includes this header, defines every function declared below and
 * struct tp_env, and then includes pipeline/pipeline.h.
 */
#ifndef TP_PLATFORM_H
#define TP_PLATFORM_H

#include "tp_abi.h"
#include "tp_base.h"
#include "tp_drop.h"
#include "tp_fib.h"

/* Is the program so large that the verifier follows it only in parts? What a part begins with costs some nanoseconds. */
#ifdef __bpf__
#define TP_SPLIT (TP_BUILD == TP_BUILD_GENERAL)
#else
#define TP_SPLIT 0
#endif

/* Octets of a tunnel header: IPv4 or IPv6, UDP, GTP-U, PDU Session Container. */
#define TP_IP4_LEN 20U
#define TP_IP6_LEN 40U
#define TP_UDP_LEN 8U
#define TP_GTPU_LEN 8U
#define TP_GTPU_PORT 2152U
#define TP_TUNNEL_LEN (TP_IP4_LEN + TP_UDP_LEN + TP_GTPU_LEN)
#define TP_TUNNEL_PSC_LEN (TP_TUNNEL_LEN + 8)
#define TP_TUNNEL_MAX (TP_TUNNEL_PSC_LEN + 4) /* with a Paging Policy Indicator */
#define TP_TUNNEL6_LEN (TP_IP6_LEN + TP_UDP_LEN + TP_GTPU_LEN)
#define TP_TUNNEL6_MAX (TP_TUNNEL_MAX + TP_IP6_LEN - TP_IP4_LEN)

/* The packet as the platform knows it; in BPF another name for the program's context. */
struct tp_env;

/* What this program is compiled for (tp_abi.h), and of that what is in use: a compiler, or the verifier, takes out the
 * rest. */
#ifndef TP_BUILD
#define TP_BUILD TP_BUILD_GENERAL
#endif
static TP_INLINE __u32 tp_features_of(struct tp_env *env);
static TP_INLINE __u32 tp_has(struct tp_env *env, __u32 feature) { return TP_BUILD & tp_features_of(env) & feature; }

/* Does user space keep frames above their rate? A program that is not built for it does not even ask. */
static TP_INLINE __u32 tp_hands_later(struct tp_env *env)
{
	return (TP_BUILD & TP_FEAT_SHAPE) && tp_has(env, TP_FEAT_SHAPE);
}

/* Then: how the packet under way leaves. */
static TP_INLINE struct tp_leave *tp_leave_of(struct tp_env *env, struct tp_cpu *cpu);

static TP_INLINE __u32 tp_port_of(struct tp_env *env); /* below TP_PORTS_MAX */
static TP_INLINE __u32 tp_roles_of(struct tp_env *env);
static TP_INLINE __u32 tp_ni_of(struct tp_env *env);

/* The frame. Both pointers are void after tp_resize(). */
static TP_INLINE __u8 *tp_data(struct tp_env *env);
static TP_INLINE __u8 *tp_end(struct tp_env *env);

/* Move the frame's start by head and its end by tail octets; positive is towards higher addresses.
 * 0, or non-zero when there is no room; then the frame is only good for dropping. */
static TP_INLINE int tp_resize(struct tp_env *env, int head, int tail);

/* Tables: the element, or NULL when there is no such index. */
static TP_INLINE struct tp_config *tp_config_of(struct tp_env *env);
static TP_INLINE struct tp_cpu *tp_cpu_of(struct tp_env *env);
#define TP_DECLARE(element, table) static TP_INLINE struct tp_##element *tp_##element##_at(struct tp_env *env, __u32 index);
TP_TABLES(TP_DECLARE)
#undef TP_DECLARE

/* Does this run count beside the entries, in sides[], because packets run elsewhere at the same time? */
static TP_INLINE int tp_aside(struct tp_env *env);

/* Has the packet waited, and user space tries to let it go? Its duplicates left when it came. */
static TP_INLINE int tp_releases(struct tp_env *env);

/* Then: the entry whose FAR lets it go, as index + 1. 0: its PDR is gone, and the packet is judged anew. */
static TP_INLINE __u32 tp_held_by(struct tp_env *env);

/* A packet is about to be counted as one that waits for the entry of this index, until tp_handed(): if this run ends in between,
 * nobody counts it off but whoever is told so by this. */
static TP_INLINE void tp_raises(struct tp_env *env, __u32 index);
static TP_INLINE void tp_handed(struct tp_env *env);

/* Monotonic nanoseconds. Never behind by more than 16 packets of this CPU or one tick. */
static TP_INLINE __u64 tp_clock(struct tp_env *env, struct tp_cpu *cpu);

/* Has nobody been in charge of the tables for too long? */
static TP_INLINE int tp_is_unmanaged(struct tp_env *env, const struct tp_config *config, struct tp_cpu *cpu);

/* Can packets leave later than they come? Else a rate with TP_RATE_SHAPE has them leave at once, within its burst. */
#ifndef TP_SHAPES
#define TP_SHAPES 0
#endif

/* ... and do they, as this program is specialised? */
#ifndef TP_SHAPES_HERE
#define TP_SHAPES_HERE TP_SHAPES
#endif

#if TP_SHAPES
/* The packet is to leave at this time, or at a later one if it has been told of that. One that has come lets it go at once.
 * TP_OK, or a drop reason: it cannot wait. */
static TP_INLINE int tp_leave_at(struct tp_env *env, __u64 at_ns);

/* Is it forwarded, and has to wait? */
static TP_INLINE int tp_is_delayed(struct tp_env *env, int outcome);

/* As tp_clock(), and not behind. */
static TP_INLINE __u64 tp_clock_exact(struct tp_env *env);

/* Do workers keep frames above their rate, and this is none? Then it cannot know what of a flow waits there. */
static TP_INLINE int tp_leaves_by_worker(struct tp_env *env);
#endif

/* Was the packet made here, for a UE? Then it spends no hop, and an address of that UE's, left in hi and lo, is its
 * key, whatever its destination. */
static TP_INLINE int tp_is_own(struct tp_env *env, __u64 *hi, __u64 *lo);

/* Is it known what this packet, a fragment, carries? Leaves it in transport, as tp_transport() has it. */
static TP_INLINE int tp_knows_transport(struct tp_env *env, __u64 *transport);

/* The kernel's FIB: enum BPF_FIB_LKUP_RET_*. */
static TP_INLINE int tp_fib_ask(struct tp_env *env, struct tp_fib *q);

/* Send the frame out of a devmap slot: TP_OUT_REDIRECT, or TP_DROP_REDIRECT. */
static TP_INLINE int tp_redirect(struct tp_env *env, __u32 port);

/* Rings to user space: each of its own, so that none takes room from packets that nobody else finishes. */
enum tp_ring {
	TP_RING_EVENTS, /* what the slow path finishes or sends */
	TP_RING_COPIES, /* duplicates */
	TP_RING_HELD,	/* packets that wait */
	TP_RING_LATER,	/* frames above their rate */
};

/* A record for user space: a struct tp_event, words of its kind, and octets of the frame. */
struct tp_hand {
	__u32 kind;	    /* enum tp_event_kind */
	__u32 ifindex;	    /* of the event */
	const void *words;  /* in front of the octets; aligned to 8 */
	__u32 n_words;	    /* of 8 octets: a constant */
	struct tp_octets { /* of the frame */
		__u32 off, len;
	} octets;
};

/* Hand it over; the frame is not changed. 0, or non-zero when there was no room. */
static TP_INLINE int tp_hand_over(struct tp_env *env, enum tp_ring ring, const struct tp_hand *hand);

/* An alarm to user space. 0, or non-zero when there was no room. */
static TP_INLINE int tp_tell_alarm(struct tp_env *env, const struct tp_alarm *alarm);

/* This CPU's record of the packet under way. */
static TP_INLINE struct tp_trace *tp_trace_of(struct tp_env *env);

/* The frame's first octets into the record. */
static TP_INLINE void tp_trace_copy(struct tp_env *env, struct tp_trace *t, __u32 frame_len);

/* The record, with the time, to user space. 0, or non-zero when there was no room. */
static TP_INLINE int tp_trace_emit(struct tp_env *env, struct tp_trace *t);

#endif
