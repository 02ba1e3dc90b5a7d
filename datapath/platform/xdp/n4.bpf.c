/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* PFCP as an XDP program, on the interface that N4 comes by: what n4/serve.h serves is answered where it came in. Everything else
 * goes on to the kernel, as if there were no program. On an interface that carries users' packets as well it is called by their program
 * (turnpike.bpf.c), with what that leaves to the kernel.
 *
 * The loader sets max_entries: lines to the places of sessions, aliases to a power of two, n4_cpus to the possible CPUs; entries,
 * sides and config are the pipeline's.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "tp_base.h"
#include "tp_n4.h"

#define TP_ARRAY(name, element)                      \
	struct {                                     \
		__uint(type, BPF_MAP_TYPE_ARRAY);    \
		__uint(map_flags, BPF_F_MMAPABLE);   \
		__uint(max_entries, 1);              \
		__type(key, __u32);                  \
		__type(value, struct element);       \
	} name SEC(".maps")

TP_ARRAY(config, tp_config);
TP_ARRAY(entries, tp_entry);
TP_ARRAY(sides, tp_side);
TP_ARRAY(n4_config, tp_n4_config);
TP_ARRAY(n4_here, tp_n4_here);
TP_ARRAY(n4_cpus, tp_n4_cpu);
TP_ARRAY(n4_lines, tp_n4_line);
TP_ARRAY(n4_templates, tp_n4_template);
TP_ARRAY(n4_aliases, tp_n4_alias);

/* Associations by the addresses that SMFs speak from. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct tp_n4_address);
	__type(value, __u32);
} n4_sources SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 * 1024 * 1024);
} n4_served SEC(".maps");

#define TP_UDP_LEN 8U

/* The datagram under way: its UDP header in front of the request, so that one checksum is over both. */
struct tp_n4_work {
	__u8 udp[TP_UDP_LEN];
	struct tp_n4_request request;
	struct tp_n4_done done;
	struct tp_n4_address from;
	__u32 port;	/* that it came from */
	__u32 ip_len;	/* of its IP header */
	__u32 udp_len;
	__u8 addresses[32]; /* of that: two of 4 octets, or of 16 */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tp_n4_work);
} n4_work SEC(".maps");

const volatile __u32 tp_aliases = TP_N4_WAYS; /* a power of two */

#define TP_IP4_LEN 20U
#define TP_IP6_LEN 40U
#define TP_IPPROTO_UDP 17
#define TP_PFCP_PORT 8805
#define TP_ETH_LEN 14U
#define TP_N4_ETH_IPV4 0x0800
#define TP_N4_ETH_IPV6 0x86dd
#define TP_TTL 64
#define TP_ANSWER_LEN 21U /* Session Modification Response with a Cause */
#define TP_PFCP_SESSION_MODIFICATION_RESPONSE 53
#define TP_PFCP_CAUSE 19
#define TP_PFCP_ACCEPTED 1

/* All but the frame is in the maps. */
#define tp_n4_env xdp_md

static TP_INLINE struct tp_n4_work *tp_n4_work_of(struct tp_n4_env *env)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&n4_work, &zero);
}

static TP_INLINE const struct tp_n4_request *tp_n4_request_of(struct tp_n4_env *env)
{
	struct tp_n4_work *work = tp_n4_work_of(env);

	return work ? &work->request : NULL;
}

static TP_INLINE struct tp_n4_done *tp_n4_done_of(struct tp_n4_env *env)
{
	struct tp_n4_work *work = tp_n4_work_of(env);

	return work ? &work->done : NULL;
}

static TP_INLINE const struct tp_n4_config *tp_n4_config_of(struct tp_n4_env *env)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&n4_config, &zero);
}

static TP_INLINE struct tp_n4_line *tp_n4_line_at(struct tp_n4_env *env, __u32 index)
{
	return bpf_map_lookup_elem(&n4_lines, &index);
}

static TP_INLINE const struct tp_n4_template *tp_n4_template_at(struct tp_n4_env *env, __u32 index)
{
	return bpf_map_lookup_elem(&n4_templates, &index);
}

static TP_INLINE const struct tp_n4_alias *tp_n4_alias_at(struct tp_n4_env *env, __u32 index)
{
	return bpf_map_lookup_elem(&n4_aliases, &index);
}

static TP_INLINE __u32 tp_n4_aliases(struct tp_n4_env *env) { return tp_aliases; }

static TP_INLINE struct tp_entry *tp_n4_entry_at(struct tp_n4_env *env, __u32 index)
{
	return bpf_map_lookup_elem(&entries, &index);
}

static TP_INLINE struct tp_side *tp_n4_side_at(struct tp_n4_env *env, __u32 index) { return bpf_map_lookup_elem(&sides, &index); }

static TP_INLINE int tp_n4_buffers(struct tp_n4_env *env)
{
	__u32 zero = 0;
	const struct tp_config *c = bpf_map_lookup_elem(&config, &zero);

	return c && TP_READ(c->held_max) > 0;
}

static TP_INLINE void *tp_n4_reserve(struct tp_n4_env *env)
{
	return bpf_ringbuf_reserve(&n4_served, sizeof(struct tp_n4_record), 0);
}

static TP_INLINE void tp_n4_tell(struct tp_n4_env *env, void *room)
{
	const struct tp_n4_work *work = tp_n4_work_of(env);
	__u32 i, len, number = bpf_get_smp_processor_id();
	struct tp_n4_record *record = room;
	struct tp_n4_cpu *cpu;

	if (!work) {
		bpf_ringbuf_discard(room, BPF_RB_NO_WAKEUP);
		return;
	}
	len = work->request.len;
	record->done = work->done;
	record->from = work->from;
	record->port = work->port;
	record->request.len = len;
	record->request.association = work->request.association;
	for (i = 0; i < TP_N4_OCTETS && i < len; i += 8)
		*(__u64 *)(record->request.octets + i) = *(const __u64 *)(work->request.octets + i);
	/* Nobody is woken: the control plane looks every few milliseconds. */
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	cpu = bpf_map_lookup_elem(&n4_cpus, &number);
	if (cpu)
		cpu->told++;
}

#include "serve.h"

/* A sum of 16-bit words, folded. */
static TP_INLINE __u16 tp_n4_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)((sum & 0xffff) + (sum >> 16));
}

/* Of a buffer whose length is a multiple of 4, as 16-bit words in memory order. */
#define TP_N4_SUM(at, len) ((__u32)bpf_csum_diff(NULL, 0, (void *)(at), (len), 0))

/* Of what UDP's checksum is over beside the datagram. */
static TP_INLINE __u64 tp_n4_pseudo(const __u8 *addresses, __u32 length, __u32 udp_len)
{
	__u64 sum = length == 16 ? TP_N4_SUM(addresses, 32) : TP_N4_SUM(addresses, 8);

	return sum + tp_swap16((__u16)udp_len) + tp_swap16((__u16)TP_IPPROTO_UDP);
}

/* Kind of a frame, as its headers up to that of UDP say. */
enum tp_n4_kind {
	TP_N4_NONE,	/* not N4's */
	TP_N4_DATAGRAM, /* whole, of one of our addresses */
	TP_N4_STRANGE,	/* N4's, and only the kernel's */
};

/* Headers up to that of UDP. */
static TP_INLINE int tp_n4_datagram(struct xdp_md *ctx, struct tp_n4_work *work)
{
	__u8 *data = (__u8 *)(long)ctx->data, *end = (__u8 *)(long)ctx->data_end, *ip = data + TP_ETH_LEN, *udp;
	struct tp_n4_here *here;
	__u32 i, len, zero = 0;

	here = bpf_map_lookup_elem(&n4_here, &zero);
	if (!here || data + TP_ETH_LEN + TP_IP4_LEN + TP_UDP_LEN > end)
		return TP_N4_NONE;
	if (tp_get16(data + 12) == TP_N4_ETH_IPV4) {
		if (ip[0] >> 4 != 4 || ip[9] != TP_IPPROTO_UDP || !here->has_local[0] ||
		    tp_load32(ip + 16) != tp_load32(here->local[0]))
			return TP_N4_NONE;
		len = tp_get16(ip + 2);
		work->from.length = 4;
		work->ip_len = TP_IP4_LEN;
		__builtin_memcpy(work->addresses, ip + 12, 8);
		__builtin_memcpy(work->from.octets, ip + 12, 4);
		__builtin_memset(work->from.octets + 4, 0, 12);
		/* Options, or a fragment. */
		if (ip[0] != 0x45 || (tp_load16(ip + 6) & tp_swap16(0x3fff)) ||
		    tp_n4_fold(TP_N4_SUM(ip, TP_IP4_LEN)) != 0xffff || len < TP_IP4_LEN + TP_UDP_LEN)
			return TP_N4_STRANGE;
		udp = ip + TP_IP4_LEN;
		work->udp_len = len - TP_IP4_LEN;
	} else if (tp_get16(data + 12) == TP_N4_ETH_IPV6) {
		if (data + TP_ETH_LEN + TP_IP6_LEN + TP_UDP_LEN > end)
			return TP_N4_NONE;
		if (ip[0] >> 4 != 6 || ip[6] != TP_IPPROTO_UDP || !here->has_local[1])
			return TP_N4_NONE;
		for (i = 0; i < 16; i += 8)
			if (tp_load64(ip + 24 + i) != tp_load64(here->local[1] + i))
				return TP_N4_NONE;
		work->from.length = 16;
		work->ip_len = TP_IP6_LEN;
		__builtin_memcpy(work->addresses, ip + 8, 32);
		__builtin_memcpy(work->from.octets, ip + 8, 16);
		udp = ip + TP_IP6_LEN;
		work->udp_len = tp_get16(ip + 4);
	} else {
		return TP_N4_NONE;
	}
	if (tp_get16(udp + 2) != TP_PFCP_PORT)
		return TP_N4_NONE;
	work->port = tp_get16(udp);
	if (work->udp_len != tp_get16(udp + 4) || work->udp_len < TP_UDP_LEN + TP_PFCP_HEADER || !work->port ||
	    data + TP_ETH_LEN + work->ip_len + work->udp_len > end)
		return TP_N4_STRANGE;
	return TP_N4_DATAGRAM;
}

/* The answer, in the frame of its request. Nothing but the frame changes. 0, or the frame is only good for dropping. */
static TP_INLINE int tp_n4_answer(struct xdp_md *ctx, const struct tp_n4_work *work)
{
	__u32 is_v6 = work->from.length == 16, ip_len = is_v6 ? TP_IP6_LEN : TP_IP4_LEN;
	__u32 len = TP_ETH_LEN + ip_len + TP_UDP_LEN + TP_ANSWER_LEN;
	__u64 room[5] = {0}; /* the SEID lies at a multiple of 8, as the verifier wants it */
	__u8 *data, *end, *ip, *udp = (__u8 *)room + 4, mac[6];
	__u64 sum, frame_len;
	__u16 check;

	tp_put16(udp, TP_PFCP_PORT);
	tp_put16(udp + 2, (__u16)work->port);
	tp_put16(udp + 4, TP_UDP_LEN + TP_ANSWER_LEN);
	udp[8] = TP_PFCP_FLAGS;
	udp[9] = TP_PFCP_SESSION_MODIFICATION_RESPONSE;
	tp_put16(udp + 10, TP_ANSWER_LEN - 4);
	*(__u64 *)(udp + 12) = tp_swap64(work->done.cp_seid);
	*(__u32 *)(udp + 20) = tp_load32(work->request.octets + 12);
	tp_put16(udp + 24, TP_PFCP_CAUSE);
	tp_put16(udp + 26, 1);
	udp[28] = TP_PFCP_ACCEPTED;
	sum = tp_n4_pseudo(work->addresses, work->from.length, TP_UDP_LEN + TP_ANSWER_LEN);
	check = ~tp_n4_fold(sum + TP_N4_SUM(udp, sizeof(room) - 8));
	*(__u16 *)(udp + 6) = check ? check : 0xffff;

	data = (__u8 *)(long)ctx->data;
	end = (__u8 *)(long)ctx->data_end;
	frame_len = (__u64)(end - data);
	tp_keep(frame_len); /* pointers have 64 bits */
	if (bpf_xdp_adjust_tail(ctx, (int)(len - frame_len)))
		return 1;
	data = (__u8 *)(long)ctx->data;
	end = (__u8 *)(long)ctx->data_end;
	if (data + TP_ETH_LEN + TP_IP4_LEN + TP_UDP_LEN + TP_ANSWER_LEN > end)
		return 1;
	__builtin_memcpy(mac, data, 6);
	__builtin_memcpy(data, data + 6, 6);
	__builtin_memcpy(data + 6, mac, 6);
	ip = data + TP_ETH_LEN;
	if (is_v6) {
		if (data + TP_ETH_LEN + TP_IP6_LEN + TP_UDP_LEN + TP_ANSWER_LEN > end)
			return 1;
		tp_put32(ip, 0x60000000);
		tp_put16(ip + 4, TP_UDP_LEN + TP_ANSWER_LEN);
		ip[7] = TP_TTL;
		__builtin_memcpy(ip + 8, work->addresses + 16, 16);
		__builtin_memcpy(ip + 24, work->addresses, 16);
		__builtin_memcpy(ip + TP_IP6_LEN, udp, TP_UDP_LEN + TP_ANSWER_LEN);
		return 0;
	}
	ip[1] = 0;
	tp_put16(ip + 2, TP_IP4_LEN + TP_UDP_LEN + TP_ANSWER_LEN);
	tp_put32(ip + 4, 0x4000); /* no fragment of it, and no name for one */
	ip[8] = TP_TTL;
	tp_store16(ip + 10, 0);
	__builtin_memcpy(ip + 12, work->addresses + 4, 4);
	__builtin_memcpy(ip + 16, work->addresses, 4);
	tp_store16(ip + 10, ~tp_n4_fold(TP_N4_SUM(ip, TP_IP4_LEN)));
	__builtin_memcpy(ip + TP_IP4_LEN, udp, TP_UDP_LEN + TP_ANSWER_LEN);
	return 0;
}

/* The datagram into work. enum tp_n4_verdict: TP_N4_SERVED, or why not. Its header is there in any case, of UDP and of PFCP. */
static TP_INLINE int tp_n4_take(struct xdp_md *ctx, struct tp_n4_work *work)
{
	__u32 at, rounded, udp_len = work->udp_len, off = TP_ETH_LEN + work->ip_len;
	__u64 sum;

	if (bpf_xdp_load_bytes(ctx, off, work->udp, TP_UDP_LEN + TP_PFCP_HEADER))
		return TP_N4_SLOW_FRAME; /* not met: it is so long */
	tp_keep(udp_len);
	if (udp_len <= TP_UDP_LEN + TP_PFCP_HEADER || udp_len > TP_UDP_LEN + TP_N4_OCTETS)
		return TP_N4_SLOW_OTHER;
	at = (udp_len - 1) & ~7U;
	tp_keep(at);
	if (at > TP_UDP_LEN + TP_N4_OCTETS)
		return TP_N4_SLOW_OTHER;
	*(__u64 *)(work->udp + at) = 0;
	if (bpf_xdp_load_bytes(ctx, off, work->udp, udp_len))
		return TP_N4_SLOW_FRAME; /* likewise */
	work->request.len = udp_len - TP_UDP_LEN;
	if (!tp_load16(work->udp + 6))
		return TP_N4_SLOW_CHECKSUM;
	rounded = (udp_len + 3) & ~3U;
	tp_keep(rounded);
	if (rounded > TP_UDP_LEN + TP_N4_OCTETS)
		return TP_N4_SLOW_OTHER;
	sum = tp_n4_pseudo(work->addresses, work->from.length, udp_len) + TP_N4_SUM(work->udp, rounded);
	return tp_n4_fold(sum) == 0xffff ? TP_N4_SERVED : TP_N4_SLOW_CHECKSUM;
}

/* The request of this CPU's work, if it may be served so far. enum tp_n4_verdict. Otherwise nothing overtakes it. */
TP_APART int tp_n4_served(struct xdp_md *ctx, int verdict)
{
	__u32 zero = 0, number = bpf_get_smp_processor_id(), association = 0, *known;
	struct tp_n4_here *here = bpf_map_lookup_elem(&n4_here, &zero);
	struct tp_n4_cpu *cpu = bpf_map_lookup_elem(&n4_cpus, &number);
	struct tp_n4_work *work = tp_n4_work_of(ctx);
	__u64 before;

	if (!here || !cpu || !work)
		return TP_N4_SLOW_SOURCE;
	/* First this, then the look: the control plane says that it is at work, and then looks here. Who wants to know what was there
	 * before has all stores and loads kept in order. */
	before = __sync_fetch_and_add(&cpu->inside, 1);
	tp_keep(before);
	known = bpf_map_lookup_elem(&n4_sources, &work->from);
	if (known)
		association = *known & ~TP_N4_MARKS_ONLY;
	work->request.association = association;
	if (verdict == TP_N4_SERVED) {
		if (!known || *known & TP_N4_MARKS_ONLY)
			verdict = TP_N4_SLOW_SOURCE;
		else if (TP_READ(here->paused))
			verdict = TP_N4_SLOW_PAUSED;
		else
			verdict = tp_n4_serve(ctx);
	}
	if (known && verdict != TP_N4_SERVED && tp_n4_is_about_session(&work->request))
		tp_n4_pass(ctx, tp_get64(work->request.octets + 4), association);
	before = __sync_fetch_and_add(&cpu->inside, 1);
	tp_keep(before);
	return verdict;
}

SEC("xdp")
int tp_n4(struct xdp_md *ctx)
{
	__u32 number = bpf_get_smp_processor_id();
	struct tp_n4_work *work = tp_n4_work_of(ctx);
	struct tp_n4_cpu *cpu = bpf_map_lookup_elem(&n4_cpus, &number);
	__u32 verdict = TP_N4_SLOW_FRAME;
	int kind;

	if (!work || !cpu)
		return XDP_PASS;
	kind = tp_n4_datagram(ctx, work);
	if (kind == TP_N4_NONE)
		return XDP_PASS;
	if (kind == TP_N4_DATAGRAM) {
		verdict = (__u32)tp_n4_served(ctx, tp_n4_take(ctx, work));
		if (verdict < TP_N4_VERDICTS && work->request.octets[1] == TP_PFCP_SESSION_MODIFICATION_REQUEST)
			cpu->verdicts[verdict]++;
	} else {
		cpu->verdicts[TP_N4_SLOW_FRAME]++; /* whatever it is */
	}
	if (verdict != TP_N4_SERVED)
		return XDP_PASS;
	/* A frame that cannot be answered is lost, as any answer may be: its request comes again. */
	if (tp_n4_answer(ctx, work))
		return XDP_DROP;
	/* Not by XDP_TX, for the same reason as in turnpike.bpf.c. */
	return bpf_redirect(ctx->ingress_ifindex, 0);
}

char _license[] SEC("license") = "GPL";
