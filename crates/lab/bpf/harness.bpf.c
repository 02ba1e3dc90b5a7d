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
	 * two of our stores, which no packet from a NIC does either and would cost it some 5 ns. */
	__u32 first; /* bytes 0..1 */
	__u32 last;  /* bytes 74..77 */
	__u64 words[9];
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

SEC("xdp")
int harness(struct xdp_md *ctx)
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
	*(__u16 *)frame = s->first;
	for (int i = 0; i < 9; i++)
		*(__u64 *)(frame + 2 + 8 * i) = s->words[i];
	*(__u32 *)(frame + 74) = s->last;

	if (put32(ctx, frame, s->teid_at, user->teid_be) ||
	    put32(ctx, frame, s->address_at, user->address_be) ||
	    put16(ctx, frame, s->csum_at, user->csum))
		return XDP_ABORTED;
	bpf_tail_call(ctx, &target, 0);
	return XDP_ABORTED;
}

/* The do-nothing program. */
SEC("xdp")
int empty(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
