// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* Drives another XDP program through BPF_PROG_TEST_RUN as traffic of many users would.
 *
 * TEST_RUN repeats a program over one buffer, and does not undo what the program did to it. This
 * program stands in front: it restores the frame, writes the next user's TEID or address into it
 * and tail-calls the program under test. With an empty program behind it, it is the floor.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define HEADERS_MAX 78 /* Ethernet to inner IPv4 header, uplink; the whole of a 64-byte packet, downlink */

struct user {
	__u32 teid_be;
	__u32 address_be;
	__u32 csum; /* inner header checksum for this address, as on the wire */
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct user);
} users SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} target SEC(".maps");

/* Written by the loader before a run; offsets into the frame, 0: the frame has no such field. */
struct state {
	__u32 cursor;
	__u32 n_users;
	__u32 frame_len;
	__u32 teid_at;
	__u32 address_at; /* inner IPv4 address of the user */
	__u32 csum_at;	  /* inner IPv4 header checksum */
	/* The headers, cut as fields lie behind an Ethernet header: no field that a program reads spans
	 * two of our stores, which no packet from a NIC does either and may cost it some 5 ns. */
	__u32 first; /* bytes 0..1 */
	__u32 last;  /* bytes 74..77 */
	__u64 words[9];
	/* Else cut from the frame's start on, and a locked instruction behind: no packet begins while another one ends, as
	 * where a driver has much to do between them. What is dearer depends on the CPU. */
	__u64 apart; /* 0: no */
	__u64 packets;
	__u64 blocks[9];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct state);
} state SEC(".maps");

static __always_inline int put32(struct xdp_md *ctx, __u8 *frame, __u32 at, __u32 value)
{
	if (at == 0)
		return 0;
	__u8 *place = frame + (at & 127);
	if (place + 4 > (__u8 *)(long)ctx->data_end)
		return -1;
	*(__u32 *)place = value;
	return 0;
}

static __always_inline int put16(struct xdp_md *ctx, __u8 *frame, __u32 at, __u16 value)
{
	if (at == 0)
		return 0;
	__u8 *place = frame + (at & 127);
	if (place + 2 > (__u8 *)(long)ctx->data_end)
		return -1;
	*(__u16 *)place = value;
	return 0;
}

/* The next user's frame, for the program under test. */
static __always_inline int next(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct state *s = bpf_map_lookup_elem(&state, &zero);
	if (!s)
		return XDP_ABORTED;

	int shrunk = (int)s->frame_len - (int)(ctx->data_end - ctx->data);
	if (shrunk && bpf_xdp_adjust_head(ctx, -shrunk))
		return XDP_ABORTED;

	__u32 index = s->cursor;
	struct user *user = bpf_map_lookup_elem(&users, &index);
	if (!user)
		return XDP_ABORTED;
	s->cursor = index + 1 < s->n_users ? index + 1 : 0;

	__u8 *frame = (void *)(long)ctx->data;
	if (frame + HEADERS_MAX > (__u8 *)(long)ctx->data_end)
		return XDP_ABORTED;
	if (s->apart) {
		for (int i = 0; i < 9; i++)
			*(__u64 *)(frame + 8 * i) = s->blocks[i];
	} else {
		*(__u16 *)frame = s->first;
		for (int i = 0; i < 9; i++)
			*(__u64 *)(frame + 2 + 8 * i) = s->words[i];
	}
	*(__u32 *)(frame + 74) = s->last;

	if (put32(ctx, frame, s->teid_at, user->teid_be) ||
	    put32(ctx, frame, s->address_at, user->address_be) ||
	    put16(ctx, frame, s->csum_at, user->csum))
		return XDP_ABORTED;
	if (s->apart)
		__sync_fetch_and_add(&s->packets, 1);
	bpf_tail_call(ctx, &target, 0);
	return XDP_ABORTED;
}

SEC("xdp")
int harness(struct xdp_md *ctx) { return next(ctx); }

/* The do-nothing program. */
SEC("xdp")
int empty(struct xdp_md *ctx)
{
	return XDP_PASS;
}

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} sunk SEC(".maps");

/* Written by the loader before a run. */
struct feed {
	__u64 fed;    /* frames so far */
	__u64 last;   /* as many, and no more */
	__u64 sunk;   /* at the sink before the run */
	__u64 window; /* at most under way */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct feed);
} feed SEC(".maps");

#define CPUS_MAX 256
#define LOOK_EVERY 32 /* frames between looks at what has arrived; a power of two */

static __always_inline __u64 arrived(void)
{
	__u64 sum = 0, *n;
	__u32 zero = 0;

	for (__u32 cpu = 0; cpu < CPUS_MAX; cpu++) {
		n = bpf_map_lookup_percpu_elem(&sunk, &zero, cpu);
		if (!n)
			break;
		sum += *(volatile __u64 *)n;
	}
	return sum;
}

/* For frames that go on (BPF_F_TEST_XDP_LIVE_FRAMES): brings no more than the queues behind have room for, and drops
 * the others itself. */
SEC("xdp")
int feeder(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct feed *f = bpf_map_lookup_elem(&feed, &zero);

	if (!f || f->fed >= f->last)
		return XDP_DROP;
	if (f->fed % LOOK_EVERY == 0 && f->sunk + f->fed > arrived() + f->window)
		return XDP_DROP;
	f->fed++;
	return next(ctx);
}

#define ETH_LEN 14
#define ETH_IPV4_BE 0x0008
#define IP_PROTOCOL_UDP 17

/* At the far end of a way out: count the users' packets, which are UDP, and forget them. */
SEC("xdp")
int sink(struct xdp_md *ctx)
{
	__u8 *frame = (void *)(long)ctx->data;
	__u32 zero = 0;
	__u64 *n = bpf_map_lookup_elem(&sunk, &zero);

	if (!n || frame + ETH_LEN + 20 > (__u8 *)(long)ctx->data_end)
		return XDP_PASS;
	if (*(__u16 *)(frame + 12) != ETH_IPV4_BE || frame[ETH_LEN + 9] != IP_PROTOCOL_UDP)
		return XDP_PASS;
	++*n;
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "GPL";
