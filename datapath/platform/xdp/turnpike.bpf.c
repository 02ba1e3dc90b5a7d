/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The pipeline as an XDP program. Loaded once for each port, with its own read-only data and the same
 * maps. The loader sets max_entries: cpus to the possible CPUs, everything else to the capacities. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* The verifier knows the context by its type. */
#define tp_env xdp_md
#define TP_SHAPES ((TP_BUILD & TP_FEAT_SHAPE) != 0)
#define TP_SHAPES_HERE (TP_SHAPES && (tp_features & TP_FEAT_SHAPE))
#include "tp_platform.h"

#define TP_CLOCK_EVERY 16 /* packets between exact clock readings; a power of two */
#define TP_AF_INET 2
#define TP_AF_INET6 10

const volatile __u32 tp_built = TP_BUILD; /* for whoever loads it */
const volatile __u32 tp_features = TP_BUILD;
const volatile __u32 tp_port = 0;
const volatile __u32 tp_roles = 0;
const volatile __u32 tp_ni = 0;
const volatile __u32 tp_with_n4 = 0; /* N4 comes by this interface, too */

/* With TP_FEAT_SPREAD: one gNB is one flow to a NIC, whose RSS would leave all its users to one CPU. */
#define TP_LANES_MAX 16
#define TP_SPREAD_FRONT 1 /* on the NIC's CPU: hand each user's packets to the CPU of a lane */
#define TP_SPREAD_LANE 2  /* on such a CPU, run by the kernel for frames of the lanes map */
const volatile __u32 tp_spread = 0;
const volatile __u32 tp_lanes = 0; /* 1..TP_LANES_MAX */
const volatile __u32 tp_lane_cpu[TP_LANES_MAX] = {0};

#define TP_ARRAY(name, element)                      \
	struct {                                     \
		__uint(type, BPF_MAP_TYPE_ARRAY);    \
		__uint(map_flags, BPF_F_MMAPABLE);   \
		__uint(max_entries, 1);              \
		__type(key, __u32);                  \
		__type(value, struct element);       \
	} name SEC(".maps")

TP_ARRAY(config, tp_config);
TP_ARRAY(cpus, tp_cpu);
/* Of user space, as one CPU more: no program touches it. */
TP_ARRAY(slow, tp_cpu);
#define TP_MAP(element, table) TP_ARRAY(table, tp_##element);
TP_TABLES(TP_MAP)

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tp_trace);
} trace_now SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1024 * 1024);
} traced SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, TP_PORTS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 * 1024 * 1024);
} copies SEC(".maps");

/* Of its own, so that no packet that user space is to finish keeps it from hearing of a quota. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 2 * 1024 * 1024);
} alarms SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 * 1024 * 1024);
} held SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 * 1024 * 1024);
} later SEC(".maps");

/* By CPU. Each port has its own, because the program in it is the port's: tp_lane, whichever programs are live. */
struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bpf_cpumap_val);
} lanes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 * 1024 * 1024);
} events SEC(".maps");

static TP_INLINE __u32 tp_features_of(struct tp_env *env) { return tp_features; }
static TP_INLINE __u32 tp_port_of(struct tp_env *env) { return tp_port; }
static TP_INLINE __u32 tp_roles_of(struct tp_env *env) { return tp_roles; }
static TP_INLINE __u32 tp_ni_of(struct tp_env *env) { return tp_ni; }

static TP_INLINE __u8 *tp_data(struct tp_env *env) { return (__u8 *)(long)env->data; }
static TP_INLINE __u8 *tp_end(struct tp_env *env) { return (__u8 *)(long)env->data_end; }

static TP_INLINE int tp_resize(struct tp_env *env, int head, int tail)
{
	if (tail && bpf_xdp_adjust_tail(env, tail))
		return 1;
	return head && bpf_xdp_adjust_head(env, head);
}

#define TP_ACCESSOR(element, table)                                                             \
	static TP_INLINE struct tp_##element *tp_##element##_at(struct tp_env *env, __u32 index) \
	{                                                                                       \
		return bpf_map_lookup_elem(&table, &index);                                     \
	}
TP_TABLES(TP_ACCESSOR)

static TP_INLINE int tp_releases(struct tp_env *env) { return 0; }

static TP_INLINE __u32 tp_held_by(struct tp_env *env) { return 0; }

/* The kernel lets no program end in the midst of its run. */
static TP_INLINE void tp_raises(struct tp_env *env, __u32 index) { }
static TP_INLINE void tp_handed(struct tp_env *env) { }

static TP_INLINE int tp_aside(struct tp_env *env) { return 0; }

static TP_INLINE int tp_is_own(struct tp_env *env, __u64 *hi, __u64 *lo) { return 0; }

static TP_INLINE int tp_knows_transport(struct tp_env *env, __u64 *transport) { return 0; }

static TP_INLINE struct tp_config *tp_config_of(struct tp_env *env)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&config, &zero);
}

static TP_INLINE struct tp_cpu *tp_cpu_of(struct tp_env *env)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&cpus, &cpu);
}

/* An exact reading costs as much as half of the pipeline, so it serves several packets of one tick. The
 * tick is a load, where the coarse clock would be a call. */
static TP_INLINE __u64 tp_clock(struct tp_env *env, struct tp_cpu *cpu)
{
	__u64 tick = bpf_jiffies64();

	if (cpu->clock_uses++ % TP_CLOCK_EVERY == 0 || cpu->clock_tick != tick) {
		cpu->clock_ns = bpf_ktime_get_ns();
		cpu->clock_tick = tick;
	}
	return cpu->clock_ns;
}

/* Once in a tick, for the others cost a call. */
static TP_INLINE int tp_is_unmanaged(struct tp_env *env, const struct tp_config *config, struct tp_cpu *cpu)
{
	__u64 tick;

	if (tp_likely(!config->managed_until_ns))
		return 0;
	tick = bpf_jiffies64();
	if (tp_likely(cpu->managed_tick == tick))
		return 0;
	if (bpf_ktime_get_ns() > config->managed_until_ns)
		return 1;
	cpu->managed_tick = tick;
	return 0;
}

static TP_INLINE int tp_fib_ask(struct tp_env *env, struct tp_fib *q)
{
	struct bpf_fib_lookup f = {0};
	int r;

	f.family = q->family == 4 ? TP_AF_INET : TP_AF_INET6;
	f.tot_len = (__u16)q->len;
	f.ifindex = env->ingress_ifindex;
	if (q->family == 4) {
		f.ipv4_src = tp_load32(q->src);
		f.ipv4_dst = tp_load32(q->dst);
	} else {
		__builtin_memcpy(f.ipv6_src, q->src, 16);
		__builtin_memcpy(f.ipv6_dst, q->dst, 16);
	}
	r = bpf_fib_lookup(env, &f, sizeof(f), 0);
	q->ifindex = f.ifindex;
	q->mtu = f.mtu_result;
	__builtin_memcpy(q->dmac, f.dmac, 6);
	__builtin_memcpy(q->smac, f.smac, 6);
	return r < 0 ? BPF_FIB_LKUP_RET_NOT_FWDED : r;
}

static TP_INLINE struct tp_leave *tp_leave_of(struct tp_env *env, struct tp_cpu *cpu) { return &cpu->leave; }

static TP_INLINE int tp_redirect(struct tp_env *env, __u32 port)
{
	struct tp_cpu *cpu;

	if (tp_hands_later(env)) {
		cpu = tp_cpu_of(env);
		if (cpu)
			cpu->leave.by = port;
	}
	return bpf_redirect_map(&ports, port, 0) == XDP_REDIRECT ? TP_OUT_REDIRECT : TP_DROP_REDIRECT;
}

/* A record with room for so many octets: a constant, because a ring reserves only constants. */
static TP_INLINE int tp_hand_within(struct tp_env *env, void *ring, __u32 room, const struct tp_hand *hand)
{
	__u32 i, len = hand->octets.len, front = hand->n_words * 8;
	struct tp_event *event = bpf_ringbuf_reserve(ring, sizeof(*event) + front + room, 0);

	if (!event)
		return 1;
	event->kind = hand->kind;
	event->ifindex = hand->ifindex;
	event->len = front + len;
	event->port = tp_port;
	event->worker = 0;
	for (i = 0; i < hand->n_words; i++)
		*(__u64 *)(event->data + 8 * i) = ((const __u64 *)hand->words)[i];
	tp_keep(len);
	if (len == 0 || len > room || bpf_xdp_load_bytes(env, hand->octets.off, event->data + front, len)) {
		bpf_ringbuf_discard(event, 0);
		return 1;
	}
	bpf_ringbuf_submit(event, 0);
	return 0;
}

/* Classes of size, so that a short packet takes little of the ring. */
static TP_INLINE int tp_hand_into(struct tp_env *env, void *ring, const struct tp_hand *hand)
{
	if (hand->octets.len <= 128)
		return tp_hand_within(env, ring, 128, hand);
	if (hand->octets.len <= 512)
		return tp_hand_within(env, ring, 512, hand);
	if (hand->octets.len <= 1600)
		return tp_hand_within(env, ring, 1600, hand);
	return tp_hand_within(env, ring, TP_EVENT_DATA_MAX - hand->n_words * 8, hand);
}

static TP_INLINE int tp_hand_over(struct tp_env *env, enum tp_ring ring, const struct tp_hand *hand)
{
	switch (ring) {
	case TP_RING_COPIES:
		return tp_hand_into(env, &copies, hand);
	case TP_RING_HELD:
		return tp_hand_into(env, &held, hand);
#if TP_SHAPES
	case TP_RING_LATER:
		return tp_hand_into(env, &later, hand);
#endif
	default:
		return tp_hand_into(env, &events, hand);
	}
}

static TP_INLINE int tp_tell_alarm(struct tp_env *env, const struct tp_alarm *alarm)
{
	return bpf_ringbuf_output(&alarms, (void *)alarm, sizeof(*alarm), 0) != 0;
}

static TP_INLINE struct tp_trace *tp_trace_of(struct tp_env *env)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&trace_now, &zero);
}

static TP_INLINE void tp_trace_copy(struct tp_env *env, struct tp_trace *t, __u32 frame_len)
{
	__u32 len = frame_len < TP_TRACE_SNAP ? frame_len : TP_TRACE_SNAP;

	tp_keep(len);
	if (len > 0 && len <= TP_TRACE_SNAP)
		bpf_xdp_load_bytes(env, 0, t->data, len);
}

static TP_INLINE int tp_trace_emit(struct tp_env *env, struct tp_trace *t)
{
	t->time_ns = bpf_ktime_get_ns();
	return bpf_ringbuf_output(&traced, t, sizeof(*t), 0) != 0;
}

#include "pipeline.h"

#if TP_SHAPES
static TP_INLINE __u64 tp_clock_exact(struct tp_env *env) { return bpf_ktime_get_ns(); }
static TP_INLINE int tp_leaves_by_worker(struct tp_env *env) { return 0; }
static TP_INLINE int tp_is_delayed(struct tp_env *env, int outcome) { return TP_SHAPES_HERE && outcome == TP_OUT_LATER; }
static TP_INLINE int tp_leave_at(struct tp_env *env, __u64 at_ns)
{
	struct tp_cpu *cpu = tp_cpu_of(env);

	/* Below its rate: no call, of which there would be one for each packet. */
	if (tp_likely(cpu && at_ns <= cpu->clock_ns)) {
		if (at_ns > cpu->leave.at_ns)
			cpu->leave.at_ns = at_ns;
		return TP_OK;
	}
	return tp_wait_until(env, at_ns) ? TP_DROP_SHAPER_FULL : TP_OK; /* the verifier knows no result of a function */
}
#endif

/* What all packets of a user in one direction have in common. 0: not a user's packet, so that it stays on this
 * CPU, where it may be answered in place. */
TP_APART int tp_user_key(struct xdp_md *ctx)
{
	struct tp_run run = {tp_config_of(ctx), NULL, 0};
	struct tp_packet p = {0};
	__u32 ethertype, key = 0;
	const __u8 *h;

	p.env = ctx;
	p.data = tp_data(ctx);
	p.end = tp_end(ctx);
	p.frame_len = (__u32)(p.end - p.data);
	if (!run.config || tp_parse_ethernet(&p, &ethertype))
		return 0;
	if ((tp_roles & TP_ROLE_N3) && ethertype == TP_ETH_IPV4 && !tp_parse_outer(&run, &p)) {
		h = tp_at(&p, p.gtpu, TP_GTPU_LEN);
		return h && h[1] == TP_GTPU_GPDU ? (int)tp_get32(h + 4) : 0;
	}
	if (!(tp_roles & TP_ROLE_N6))
		return 0;
	if (ethertype == TP_ETH_IPV4) {
		h = tp_at(&p, p.l3, TP_IP4_LEN);
		key = h ? tp_get32(h + 16) : 0;
	} else if (ethertype == TP_ETH_IPV6) {
		h = tp_at(&p, p.l3, TP_IP6_LEN);
		key = h ? tp_get32(h + 24) ^ tp_get32(h + 28) : 0;
	}
	return (int)key;
}

/* XDP_REDIRECT: the packet goes on elsewhere. */
static TP_INLINE int tp_to_lane(struct xdp_md *ctx)
{
	__u32 key = (__u32)tp_user_key(ctx);
	__u64 lane = ((__u64)(key * 0x9e3779b1U) * tp_lanes) >> 32;

	if (!key || lane >= TP_LANES_MAX)
		return XDP_PASS;
	return bpf_redirect_map(&lanes, tp_lane_cpu[lane], XDP_PASS);
}

#if TP_BUILD & TP_FEAT_SPREAD
/* What the lanes of a port run. It changes here and not in the lanes, whose frames in waiting a new entry there, with a
 * thread of its own, would overtake. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} lane_work SEC(".maps");

SEC("xdp/cpumap")
int tp_lane(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &lane_work, 0);
	return XDP_DROP; /* not met: there is work before there are lanes */
}
#endif

/* The program of N4 (n4.bpf.c), where it shares an interface with users' packets, of which none comes here. Empty until it is
 * attached, and for good when the process that has it is gone. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} n4_next SEC(".maps");

SEC("xdp")
int turnpike(struct xdp_md *ctx)
{
	int outcome;

	if (tp_has(ctx, TP_FEAT_SPREAD) && tp_spread == TP_SPREAD_FRONT && tp_to_lane(ctx) == XDP_REDIRECT)
		return XDP_REDIRECT;
	outcome = tp_pipeline(ctx);
	switch (outcome) {
	case TP_OUT_PASS:
		if (tp_with_n4)
			bpf_tail_call(ctx, &n4_next, 0);
		return XDP_PASS;
	case TP_OUT_ANSWER:
		/* Not by XDP_TX: the far end of a veth takes such frames into its queue and does not look there, unless it has a
		 * program itself; once they have filled it, the kernel's own packets find no room either. And a lane has none. */
		return bpf_redirect_map(&ports, tp_port, XDP_DROP);
	case TP_OUT_REDIRECT:
		return XDP_REDIRECT;
	default: /* dropped, or in the hands of user space */
		return XDP_DROP;
	}
}

/* Helpers want a GPL-compatible licence; this is one of the two that the file is under. */
char _license[] SEC("license") = "GPL";
