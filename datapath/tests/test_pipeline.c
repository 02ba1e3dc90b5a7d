/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Frames in, frames and counters out, on the host build. */
#include <stdio.h>

#include "packets.h"
#include "world.h"

#define CHECK(condition)                                                                        \
	do {                                                                                    \
		checks++;                                                                       \
		if (!(condition)) {                                                             \
			failures++;                                                             \
			printf("%s:%d: %s: %s\n", __FILE__, __LINE__, __func__, #condition);    \
		}                                                                               \
	} while (0)

static int checks, failures;

static struct {
	struct tp_result result;
	__u8 *buf;
	__u32 offset, len;
} run;

#define HEAD_ROOM 64U
#define TAIL_ROOM 32U

/* Run one frame in memory that is just as large as it may be, so that ASan sees one octet beyond. */
static __u32 go(struct world *w, const struct tp_port_config *port, const __u8 *frame, __u32 len, __u64 now)
{
	free(run.buf);
	run.buf = malloc(HEAD_ROOM + len + TAIL_ROOM);
	run.offset = HEAD_ROOM;
	run.len = len;
	memcpy(run.buf + HEAD_ROOM, frame, len);
	return (__u32)tp_host_run(&w->tables, port, run.buf, HEAD_ROOM + len + TAIL_ROOM, &run.offset, &run.len, now,
				  &run.result);
}

#define GO(w, port, frame) go(w, port, frame, sizeof(frame), 1000)
#define SAME(frame) (run.len == sizeof(frame) && !memcmp(run.buf + run.offset, frame, sizeof(frame)))
#define DROPS(w, port, frame, why)                                                                  \
	do {                                                                                        \
		CHECK(GO(w, port, frame) == TP_VERDICT_DROP);                                       \
		if (run.result.reason != TP_DROP_##why)                                             \
			printf("  %s: dropped as %s\n", #frame, tp_drop_name(run.result.reason));   \
		CHECK(run.result.reason == TP_DROP_##why);                                          \
	} while (0)

static __u64 sum_in(const struct tp_port_stats *s) { return s->in[0].packets + s->in[1].packets; }

static __u64 sum_fate(const struct tp_cpu *cpu, __u32 port)
{
	const struct tp_port_stats *s = &cpu->ports[port];
	__u64 sum = s->out[0].packets + s->out[1].packets + s->passed + s->answered + s->slow;
	__u32 i;

	for (i = 0; i < TP_DROP_MAX; i++)
		sum += cpu->drops[port][0][i] + cpu->drops[port][1][i];
	return sum;
}

static void done(struct world *w)
{
	__u32 port;

	for (port = 0; port < TP_PORTS_MAX; port++)
		CHECK(sum_in(&w->cpu.ports[port]) == sum_fate(&w->cpu, port));
	free(w);
}

static void test_uplink_forms(void)
{
	struct world *w = w_new();

	CHECK(GO(w, &w_n3, ul_plain) == TP_VERDICT_REDIRECT && run.result.port == 1 && SAME(ul_plain_out));
	CHECK(GO(w, &w_n3, ul_psc) == TP_VERDICT_REDIRECT && SAME(ul_plain_out));
	CHECK(GO(w, &w_n3, ul_sequence) == TP_VERDICT_REDIRECT && SAME(ul_plain_out));
	CHECK(GO(w, &w_n3, ul_two_extensions) == TP_VERDICT_REDIRECT && SAME(ul_plain_out));
	CHECK(GO(w, &w_n3, ul_options) == TP_VERDICT_REDIRECT && SAME(ul_plain_out));
	CHECK(GO(w, &w_n3, ul_vlan) == TP_VERDICT_REDIRECT && SAME(ul_plain_out));
	CHECK(GO(w, &w_n3, ul_qinq) == TP_VERDICT_REDIRECT && SAME(ul_plain_out));
	CHECK(GO(w, &w_n3, ul_padded) == TP_VERDICT_REDIRECT && SAME(ul_padded_out));
	CHECK(GO(w, &w_n3, ul_v6) == TP_VERDICT_REDIRECT && SAME(ul_v6_out));
	CHECK(w->entries[W_TEID].packets == 9);
	CHECK(w->entries[W_TEID].bytes == 7 * 39 + 21 + 51);
	CHECK(w->cpu.ports[0].out[TP_UPLINK].bytes == 7 * sizeof(ul_plain_out) + sizeof(ul_padded_out) + sizeof(ul_v6_out));
	CHECK(GO(w, &w_n3, relay) == TP_VERDICT_REDIRECT && run.result.port == 0 && SAME(relay_out));
	done(w);
}

/* The same frame with a tag of VLAN 7. */
static void tag(__u8 *to, const __u8 *frame, __u32 len)
{
	memcpy(to, frame, 12);
	memcpy(to + 12, (__u8[]){0x81, 0, 0, 7}, 4);
	memcpy(to + 16, frame + 12, len - 12);
}

/* Headers of one length are written over each other; of several, the frame's start moves. */
static void test_relay_tags(void)
{
	__u8 tagged[sizeof(relay) + 4], tagged_out[sizeof(relay_out) + 4];
	struct world *w = w_new();

	tag(tagged, relay, sizeof(relay));
	tag(tagged_out, relay_out, sizeof(relay_out));
	CHECK(GO(w, &w_n3, tagged) == TP_VERDICT_REDIRECT && SAME(relay_out));
	w->nexthops[1].l2_len = 18;
	memcpy(w->nexthops[1].l2 + 12, (__u8[]){0x81, 0, 0, 7}, 4);
	CHECK(GO(w, &w_n3, relay) == TP_VERDICT_REDIRECT && SAME(tagged_out));
	CHECK(GO(w, &w_n3, tagged) == TP_VERDICT_REDIRECT && SAME(tagged_out));
	CHECK(w->entries[W_RELAY].packets == 3);
	w->nexthops[1].mtu = 74;
	CHECK(GO(w, &w_n3, tagged) == TP_VERDICT_SLOW); /* to be cut */
	w->nexthops[1].state = TP_NH_UNRESOLVED;
	CHECK(GO(w, &w_n3, tagged) == TP_VERDICT_SLOW);
	done(w);
}

static void test_uplink_drops(void)
{
	const struct tp_event *event = (const struct tp_event *)run.result.event;
	const struct tp_task *task = (const struct tp_task *)event->data;
	struct world *w = w_new();

	DROPS(w, &w_n3, ul_unknown_required, GTPU_UNKNOWN_EXTENSION);
	CHECK(event->kind == TP_EVENT_PACKET && task->what == TP_TASK_EXTENSION && event->len == sizeof(*task) + 20);
	w->config.error_indication_ns = 0;
	DROPS(w, &w_n3, ul_unknown_required, GTPU_UNKNOWN_EXTENSION);
	CHECK(run.result.event_len == 0);
	DROPS(w, &w_n3, ul_extension_zero, GTPU_MALFORMED);
	DROPS(w, &w_n3, ul_extensions_17, GTPU_EXTENSIONS);
	DROPS(w, &w_n3, ul_ttl, TTL);
	DROPS(w, &w_n3, ul_spoofed, UE_SPOOFED);
	DROPS(w, &w_n3, ul_v6_spoofed, UE_SPOOFED);
	CHECK(w->sides[W_TEID].drops == 5); /* the unknown extension, which a relay would have passed on, included */
	DROPS(w, &w_n3, end_marker, GTPU_MESSAGE);
	DROPS(w, &w_n3, version_2, GTPU_VERSION);
	DROPS(w, &w_n3, gtp_too_long, GTPU_MALFORMED);
	DROPS(w, &w_n3, ul_inner_long, GTPU_INNER);
	CHECK(GO(w, &w_n3, ul_other_port) == TP_VERDICT_PASS && SAME(ul_other_port));
	CHECK(GO(w, &w_n3, arp) == TP_VERDICT_PASS && SAME(arp));
	CHECK(w->cpu.ports[0].passed == 2);
	CHECK(w->cpu.drops[0][TP_UPLINK][TP_DROP_TTL] == 1);
	done(w);
}

/* Fragments of UDP to us go to user space as they are, whichever port they are for. */
static void test_outer_fragments(void)
{
	struct world *w = w_new();
	const struct tp_event *event = (const struct tp_event *)run.result.event;
	const struct tp_task *task = (const struct tp_task *)event->data;

	CHECK(GO(w, &w_n3, ul_first_fragment) == TP_VERDICT_SLOW && task->what == TP_TASK_OUTER_FRAGMENT);
	CHECK(event->kind == TP_EVENT_PACKET && event->len == sizeof(*task) + sizeof(ul_first_fragment));
	CHECK(!memcmp(task + 1, ul_first_fragment, sizeof(ul_first_fragment)));
	CHECK(GO(w, &w_n3, ul_later_fragment) == TP_VERDICT_SLOW && task->what == TP_TASK_OUTER_FRAGMENT);
	CHECK(w->cpu.ports[0].slow == 2 && w->cpu.ports[0].in[TP_UPLINK].packets == 2);
	done(w);
}

/* Beside other packets of the same entry, a run counts aside. */
static void test_aside(void)
{
	struct world *w = w_new();

	w->tables.aside = 1;
	CHECK(GO(w, &w_n3, ul_plain) == TP_VERDICT_REDIRECT);
	DROPS(w, &w_n3, ul_ttl, TTL);
	CHECK(w->sides[W_TEID].packets == 1 && w->sides[W_TEID].bytes == 39 && w->sides[W_TEID].drops == 1);
	CHECK(w->entries[W_TEID].packets == 0 && w->entries[W_TEID].bytes == 0);
	done(w);
}

static int told(const struct world *w, __u64 bytes)
{
	return run.result.n_alarms == 1 && run.result.alarms[0].entry == W_TEID && w->entries[W_TEID].bytes == bytes;
}

/* User space hears of a crossing once, and again a step further on, whatever the packets were counted in. */
static void test_alarm(void)
{
	struct world *w = w_new();
	struct tp_entry *e = &w->entries[W_TEID];
	int i, times = 0;

	e->alarm = 2 * 39;
	CHECK(GO(w, &w_n3, ul_plain) == TP_VERDICT_REDIRECT && run.result.n_alarms == 0);
	CHECK(GO(w, &w_n3, ul_plain) == TP_VERDICT_REDIRECT && told(w, 2 * 39));
	CHECK(e->alarm == 2 * 39 + TP_ALARM_STEP);
	for (i = 0; i < TP_ALARM_STEP / 39; i++)
		times += GO(w, &w_n3, ul_plain) == TP_VERDICT_REDIRECT && run.result.n_alarms;
	CHECK(times == 0);
	CHECK(GO(w, &w_n3, ul_plain) == TP_VERDICT_REDIRECT && told(w, (3 + TP_ALARM_STEP / 39) * 39));
	/* Aside: the sum of both counts. */
	e->alarm = e->bytes + 3 * 39;
	w->tables.aside = 1;
	CHECK(GO(w, &w_n3, ul_plain) == TP_VERDICT_REDIRECT && run.result.n_alarms == 0);
	w->tables.aside = 0;
	CHECK(GO(w, &w_n3, ul_plain) == TP_VERDICT_REDIRECT && run.result.n_alarms == 0);
	w->tables.aside = 1;
	CHECK(GO(w, &w_n3, ul_plain) == TP_VERDICT_REDIRECT && told(w, e->bytes));
	/* Drops bring no alarm nearer, and what nobody waits for stays so. */
	e->alarm = e->bytes + 39;
	DROPS(w, &w_n3, ul_ttl, TTL);
	CHECK(e->alarm == e->bytes + 39 && run.result.n_alarms == 0);
	e->alarm = TP_ALARM_NONE;
	CHECK(GO(w, &w_n3, ul_plain) == TP_VERDICT_REDIRECT && e->alarm == TP_ALARM_NONE);
	CHECK(w->cpu.alarms == 3 && w->cpu.alarms_lost == 0);
	done(w);
}

static const struct tp_port_config w_n3_traced = {0, TP_ROLE_N3, TP_FEAT_ALL | TP_FEAT_TRACE, 0};
static const struct tp_port_config w_n6_traced = {1, TP_ROLE_N6, TP_FEAT_ALL | TP_FEAT_TRACE, 0};

/* Was the frame reported to just these traces, as it came in? */
static int reported(const __u8 *frame, __u32 len, __u32 traces)
{
	const struct tp_trace *t = &run.result.trace;

	return run.result.traced && t->kind == TP_EVENT_TRACE && t->traces == traces && t->frame_len == len &&
	       !memcmp(t->data, frame, len < TP_TRACE_SNAP ? len : TP_TRACE_SNAP);
}

#define REPORTED(frame, traces) reported(frame, sizeof(frame), traces)

/* Who is followed is reported with the PDR or the reason, whatever became of the packet; others are not. */
static void test_trace(void)
{
	static struct tp_trace_key keys[TP_TRACE_KEYS_MAX];
	struct world *w = w_new();
	const struct tp_trace *t = &run.result.trace;

	w->tables.trace_keys = keys;
	w->tables.n_trace_keys = TP_TRACE_KEYS_MAX;
	w->entries[W_TEID].ext |= 7ULL << TP_EXT_PDR_SHIFT;
	CHECK(GO(w, &w_n3_traced, ul_plain) == TP_VERDICT_REDIRECT && !run.result.traced);
	keys[0] = (struct tp_trace_key){W_TEID, 0, 0xffffffff, 0, TP_TRACE_TEID, 1, {0}};
	keys[1] = (struct tp_trace_key){0x0a3c0001ULL << 32, 0, ~0ULL << 32, 0, TP_TRACE_UE4, 2, {0}};
	keys[2] = (struct tp_trace_key){0x20010db800600000, 0, ~0ULL, 0, TP_TRACE_UE6, 4, {0}};
	CHECK(GO(w, &w_n3_traced, ul_plain) == TP_VERDICT_REDIRECT && REPORTED(ul_plain, 3));
	CHECK(t->matched && t->pdr == 7 && t->outcome == TP_OUT_REDIRECT && t->teid == W_TEID && t->qfi == 0xff);
	CHECK(t->time_ns == 1000 && t->dir == TP_UPLINK && t->port == 0 && t->gtpu == 42 && t->user == 50);
	DROPS(w, &w_n3_traced, ul_ttl, TTL);
	CHECK(REPORTED(ul_ttl, 3) && t->outcome == TP_DROP_TTL && t->matched);
	DROPS(w, &w_n3_traced, ul_spoofed, UE_SPOOFED);
	CHECK(REPORTED(ul_spoofed, 1) && t->outcome == TP_DROP_UE_SPOOFED);
	CHECK(GO(w, &w_n6_traced, dl_v4) == TP_VERDICT_REDIRECT && REPORTED(dl_v4, 2));
	CHECK(t->dir == TP_DOWNLINK && t->port == 1 && t->teid == 0 && t->gtpu == 0 && t->user == 14);
	CHECK(GO(w, &w_n6_traced, dl_v6) == TP_VERDICT_REDIRECT && REPORTED(dl_v6, 4));
	w->entries[W_TEID].head = 0;
	CHECK(GO(w, &w_n3_traced, ul_plain) == TP_VERDICT_TX && REPORTED(ul_plain, 3));
	CHECK(!t->matched && t->outcome == TP_OUT_ANSWER);
	CHECK(GO(w, &w_n3, ul_plain) == TP_VERDICT_TX && !run.result.traced);
	done(w);
}

/* A flood is reported up to a rate; what is left out is counted. */
static void test_trace_rate(void)
{
	static struct tp_trace_key key;
	struct world *w = w_new();
	__u32 i, traced = 0;

	key = (struct tp_trace_key){W_TEID, 0, 0xffffffff, 0, TP_TRACE_TEID, 1, {0}};
	w->tables.trace_keys = &key;
	w->tables.n_trace_keys = 1;
	for (i = 0; i < 3000; i++) {
		GO(w, &w_n3_traced, ul_plain);
		traced += run.result.traced;
	}
	CHECK(traced > 900 && traced < 1100 && w->cpu.trace_lost == 3000 - traced);
	go(w, &w_n3_traced, ul_plain, sizeof(ul_plain), 1000000000);
	CHECK(run.result.traced);
	done(w);
}

/* Cut anywhere, a frame is dropped for a reason or passed; never read beyond, never forwarded. */
static void test_cut_short(void)
{
	struct world *w = w_new();
	__u32 n;

	for (n = 0; n < sizeof(ul_two_extensions); n++)
		CHECK(go(w, &w_n3, ul_two_extensions, n, 0) == TP_VERDICT_DROP || n == 13);
	for (n = 0; n < sizeof(dl_v4); n++)
		CHECK(go(w, &w_n6, dl_v4, n, 0) == TP_VERDICT_DROP);
	done(w);
}

static void test_downlink(void)
{
	const struct tp_event *event = (const struct tp_event *)run.result.event;
	const struct tp_task *task = (const struct tp_task *)event->data;
	struct world *w = w_new();

	CHECK(GO(w, &w_n6, dl_v4) == TP_VERDICT_REDIRECT && run.result.port == 0 && SAME(dl_v4_psc_out));
	CHECK(GO(w, &w_n6, dl_v4_padded) == TP_VERDICT_REDIRECT && SAME(dl_v4_psc_out));
	CHECK(GO(w, &w_n6, dl_v6) == TP_VERDICT_REDIRECT && SAME(dl_v6_psc_out));
	w->entries[W_DOWN].head = w_head(0, TP_ACT_TUNNEL, 0, 0);
	CHECK(GO(w, &w_n6, dl_v4) == TP_VERDICT_REDIRECT && SAME(dl_v4_plain_out));
	CHECK(w->entries[W_DOWN].packets == 4 && w->entries[W_DOWN].bytes == 3 * 40 + 51);
	DROPS(w, &w_n6, dl_nobody, UNKNOWN_UE);
	DROPS(w, &w_n6, dl_bad_length, IP_MALFORMED);
	CHECK(GO(w, &w_n6, dl_foreign) == TP_VERDICT_PASS && SAME(dl_foreign));
	CHECK(GO(w, &w_n6, arp) == TP_VERDICT_PASS);
	w->nexthops[1].mtu = 79;
	w->entries[W_DOWN].head = w_head(0, TP_ACT_TUNNEL, TP_HEAD_MARK, 9);
	CHECK(GO(w, &w_n6, dl_v4) == TP_VERDICT_SLOW && event->kind == TP_EVENT_PACKET && event->ifindex == 100);
	CHECK(task->what == TP_TASK_CUT && task->mtu == 79 && task->tunnel_len == 44 && task->flags == 0);
	CHECK(event->len == sizeof(*task) + 40);
	DROPS(w, &w_n6, dl_v6, MTU);
	CHECK(run.result.event_len == 0);
	w->config.icmp_ns = 1000000;
	DROPS(w, &w_n6, dl_v6, MTU);
	CHECK(run.result.event_len && task->what == TP_TASK_TOO_LONG && task->mtu == 79 && task->tunnel_len == 44);
	w->nexthops[1].mtu = 84;
	CHECK(GO(w, &w_n6, dl_v4) == TP_VERDICT_REDIRECT);
	w->tables.ports_up = 2;
	DROPS(w, &w_n6, dl_v4, REDIRECT);
	done(w);
}

/* Too long, from address host of network: is its sender told? */
static int told_of_mtu(struct world *w, __u8 network, __u8 host)
{
	__u8 frame[sizeof(dl_v6)];

	memcpy(frame, dl_v6, sizeof(frame));
	frame[14 + 8 + 6] = network;
	frame[14 + 8 + 15] = host;
	DROPS(w, &w_n6, frame, MTU);
	return run.result.event_len != 0;
}

static void test_senders_are_told_within_a_rate_each(void)
{
	struct world *w = w_new();
	int i, told = 0;

	w->config.icmp_ns = 1000000;
	w->nexthops[1].mtu = 79;
	for (i = 0; i < 40; i++)
		told += told_of_mtu(w, 1, (__u8)i);
	CHECK(told == 8); /* one host, whatever address of its network it takes */
	for (i = 0; i < 100; i++)
		told += told_of_mtu(w, (__u8)(2 + i), 1);
	CHECK(told == 32); /* as many as all together */
	done(w);
}

static void test_actions(void)
{
	static const struct {
		__u64 action;
		__u32 reason;
	} cases[] = {{TP_ACT_DROP, TP_DROP_FAR_DROP}, {TP_ACT_BUFFER, TP_DROP_FAR_BUFFER},
		     {TP_ACT_GATE, TP_DROP_GATE_CLOSED}, {TP_ACT_NONE, TP_DROP_UNKNOWN_UE}};
	struct world *w = w_new();
	__u32 i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		w->entries[W_DOWN].head = w_head(0, cases[i].action, 0, 0);
		CHECK(GO(w, &w_n6, dl_v4) == TP_VERDICT_DROP && run.result.reason == cases[i].reason);
	}
	w->entries[W_TEID].head = w_head(W_TEID, TP_ACT_ROUTE, TP_HEAD_QFI, 9);
	CHECK(GO(w, &w_n3, ul_psc) == TP_VERDICT_REDIRECT);
	DROPS(w, &w_n3, ul_plain, QFI_MISMATCH);
	w->entries[W_TEID].head = w_head(W_TEID, TP_ACT_ROUTE, TP_HEAD_QFI, 8);
	DROPS(w, &w_n3, ul_psc, QFI_MISMATCH);
	done(w);
}

static void test_answers(void)
{
	struct world *w = w_new();
	int i;

	CHECK(GO(w, &w_n3, echo_request) == TP_VERDICT_TX && SAME(echo_response));
	CHECK(GO(w, &w_n3, echo_request_private) == TP_VERDICT_TX && SAME(echo_response));
	CHECK(GO(w, &w_n3, ul_unknown_teid) == TP_VERDICT_TX && SAME(ul_error_indication));
	CHECK(w->cpu.ports[0].answered == 3);
	for (i = 1; i < 32; i++)
		CHECK(GO(w, &w_n3, ul_unknown_teid) == TP_VERDICT_TX);
	DROPS(w, &w_n3, ul_unknown_teid, ERROR_INDICATION_RATE);
	CHECK(go(w, &w_n3, ul_unknown_teid, sizeof(ul_unknown_teid), 10001001) == TP_VERDICT_TX);
	w->config.error_indication_ns = 0;
	DROPS(w, &w_n3, ul_unknown_teid, UNKNOWN_TEID);
	done(w);
}

static void test_next_hops(void)
{
	struct world *w = w_new();
	const struct tp_event *event = (const struct tp_event *)run.result.event;

	w_default4(w)->nexthop = 4;
	CHECK(GO(w, &w_n3, ul_plain) == TP_VERDICT_SLOW && event->kind == TP_EVENT_SEND && event->ifindex == 101);
	CHECK(event->len == sizeof(ul_plain_out) - 14 && !memcmp(event->data, ul_plain_out + 14, event->len));
	CHECK(w->cpu.ports[0].slow == 1 && w->entries[W_TEID].packets == 1);
	w->peers[1].nexthop = 4;
	CHECK(GO(w, &w_n6, dl_v4) == TP_VERDICT_SLOW);
	CHECK(event->len == sizeof(dl_v4_psc_out) - 14 && !memcmp(event->data, dl_v4_psc_out + 14, event->len));
	w_default4(w)->nexthop = 5;
	CHECK(GO(w, &w_n3, ul_plain) == TP_VERDICT_SLOW);
	w_bucket(w, TP_KIND_NEIGH4, 0, 0xcb007109, 2);
	CHECK(GO(w, &w_n3, ul_plain) == TP_VERDICT_REDIRECT && SAME(ul_plain_out));
	w_default4(w)->nexthop = 7;
	DROPS(w, &w_n3, ul_plain, PROHIBITED);
	w_default4(w)->nexthop = 3;
	DROPS(w, &w_n3, ul_plain, TO_SELF);
	w_default4(w)->nexthop = 0;
	DROPS(w, &w_n3, ul_plain, NO_ROUTE);
	w_default4(w)->nexthop = 99;
	DROPS(w, &w_n3, ul_plain, TABLE);
	w->nis[0].routes4 = 0;
	DROPS(w, &w_n3, ul_plain, NO_ROUTE);
	done(w);
}

static void test_outer6(void)
{
	const struct tp_event *event = (const struct tp_event *)run.result.event;
	const struct tp_task *task = (const struct tp_task *)event->data;
	struct world *w = w_new();
	__u32 n;

	CHECK(GO(w, &w_n3, ul6_headers) == TP_VERDICT_REDIRECT && run.result.port == 1 && SAME(ul_plain_out));
	CHECK(GO(w, &w_n3, ul6_later_fragment) == TP_VERDICT_SLOW && event->kind == TP_EVENT_PACKET);
	CHECK(GO(w, &w_n3, echo6_request) == TP_VERDICT_TX && SAME(echo6_response));
	CHECK(GO(w, &w_n3, ul6_unknown_teid) == TP_VERDICT_TX && SAME(ul6_error_indication));
	/* Cut anywhere, a frame is dropped for a reason or passed; never read beyond, never forwarded. */
	for (n = 0; n < sizeof(ul6_headers); n++)
		CHECK(go(w, &w_n3, ul6_headers, n, 0) == TP_VERDICT_DROP);
	w->entries[W_DOWN].out += 1ULL << 32;
	CHECK(GO(w, &w_n6, dl_v4) == TP_VERDICT_REDIRECT && run.result.port == 0 && SAME(dl_v4_psc_out6));
	w->peers[2].nexthop = 4;
	CHECK(GO(w, &w_n6, dl_v4) == TP_VERDICT_SLOW);
	CHECK(event->len == sizeof(dl_v4_psc_out6) - 14 && !memcmp(event->data, dl_v4_psc_out6 + 14, event->len));
	w->peers[2].nexthop = 1;
	w->entries[W_DOWN].head = w_head(0, TP_ACT_TUNNEL, 0, 0);
	CHECK(GO(w, &w_n6, dl_v4) == TP_VERDICT_REDIRECT && SAME(dl_v4_plain_out6));
	w->nexthops[1].mtu = 95;
	CHECK(GO(w, &w_n6, dl_v4) == TP_VERDICT_SLOW && task->what == TP_TASK_CUT && task->tunnel_len == 56);
	w->nexthops[1].mtu = 96;
	CHECK(GO(w, &w_n6, dl_v4) == TP_VERDICT_REDIRECT);
	done(w);
}

/* Asked about a tunnel over IPv6, and nothing else. */
static int fake_fib6(void *arg, struct tp_fib *q)
{
	const struct world *w = arg;

	memcpy(q->dmac, (__u8[]){2, 0, 0, 0, 0, 2}, 6);
	memcpy(q->smac, (__u8[]){2, 0, 0, 0, 0, 1}, 6);
	q->ifindex = 100;
	return q->family == 6 && !memcmp(q->src, w->peers[2].local6, 16) && !memcmp(q->dst, w->peers[2].remote6, 16) &&
			       q->len == 40 + 64
		       ? 0
		       : 1;
}

static void test_fib_outer6(void)
{
	struct world *w = w_new();

	w->entries[W_DOWN].out += 1ULL << 32;
	w->peers[2].nexthop = 6;
	w->config.port_ifindex[0] = 100;
	w->tables.fib = fake_fib6;
	w->tables.fib_arg = w;
	CHECK(GO(w, &w_n6, dl_v4) == TP_VERDICT_REDIRECT && run.result.port == 0 && SAME(dl_v4_psc_out6));
	done(w);
}

static int fib_answer;

static int fake_fib(void *arg, struct tp_fib *q)
{
	(void)arg;
	memcpy(q->dmac, (__u8[]){2, 0, 0, 0, 0, 4}, 6);
	memcpy(q->smac, (__u8[]){2, 0, 0, 0, 0, 3}, 6);
	q->ifindex = 101;
	return q->family == 4 && q->dst[0] == 203 && q->src[0] == 10 && q->len == 39 ? fib_answer : 1;
}

static void test_fib(void)
{
	struct world *w = w_new();

	w_default4(w)->nexthop = 6;
	w->tables.fib = fake_fib;
	CHECK(GO(w, &w_n3, ul_plain) == TP_VERDICT_SLOW); /* egress is no port of ours */
	w->config.port_ifindex[1] = 101;
	CHECK(GO(w, &w_n3, ul_plain) == TP_VERDICT_REDIRECT && run.result.port == 1 && SAME(ul_plain_out));
	fib_answer = 7; /* NO_NEIGH */
	CHECK(GO(w, &w_n3, ul_plain) == TP_VERDICT_SLOW);
	fib_answer = 3; /* PROHIBIT */
	DROPS(w, &w_n3, ul_plain, PROHIBITED);
	fib_answer = 4; /* NOT_FWDED */
	DROPS(w, &w_n3, ul_plain, NO_ROUTE);
	done(w);
}

static void test_buckets(void)
{
	struct world *w = w_new();

	w->entries[12] = w->entries[W_TEID];
	w->entries[12].head = w_head(0x01000005, TP_ACT_ROUTE, 0, 0);
	w_bucket(w, TP_KIND_TEID, 0, 0x01000005, 12);
	CHECK(GO(w, &w_n3, ul_unknown_teid) == TP_VERDICT_REDIRECT && SAME(ul_plain_out));
	w->ue_dir[0].page[0x0a3c0001 >> TP_UE_PAGE_BITS] = 0;
	CHECK(GO(w, &w_n6, dl_v4) == TP_VERDICT_PASS);
	w_bucket(w, TP_KIND_UE4, 0, 0x0a3c0001, W_DOWN);
	CHECK(GO(w, &w_n6, dl_v4) == TP_VERDICT_REDIRECT && SAME(dl_v4_psc_out));
	done(w);
}

/* rules[1]: UDP from 10.60.0.0/16, ports 1000-1200 to 50-60 -> entry 10; then anything -> entry 11. */
static struct tp_rule *fill_rules(struct world *w)
{
	struct tp_rule *r = w->rules[1].rule;
	int i;

	w->entries[W_TEID].head = w_head(W_TEID, TP_ACT_LIST, 0, 0) | 1ULL << TP_HEAD_RULE_SHIFT;
	w->entries[10].head = w_head(0, TP_ACT_ROUTE, 0, 0);
	w->entries[11].head = w_head(0, TP_ACT_ROUTE, 0, 0);
	r->value = 17ULL << TP_FLOW_PROTO_SHIFT | TP_FLOW_PORTS;
	r->mask = 255ULL << TP_FLOW_PROTO_SHIFT | TP_FLOW_PORTS | TP_FLOW_V6;
	r->entry = 10;
	r->ue_port = 1000;
	r->ue_span = 200;
	r->remote_port = 50;
	r->remote_span = 10;
	r->more = 1 + 2 * 2 + 1; /* the second of rules[2] */
	((struct tp_rule_mores *)&w->rules[2])->more[1].ue[0] = 0x0a3c000000000000ULL;
	((struct tp_rule_mores *)&w->rules[2])->more[1].ue_plen = 16;
	for (i = 1; i < TP_RULES_PER_PLACE; i++) {
		r[i].value = r[i].mask = i == 1 ? 0 : TP_FLOW_NEVER;
		r[i].remote_span = r[i].ue_span = 0xffff;
		r[i].entry = 11;
	}
	r[3].more = TP_RULE_LAST;
	return r;
}

static void test_rules(void)
{
	struct world *w = w_new();
	struct tp_rule *r = fill_rules(w);
	struct tp_rule_more *more = &((struct tp_rule_mores *)&w->rules[2])->more[1];
	const struct tp_event *event = (const struct tp_event *)run.result.event;
	const struct tp_task *task = (const struct tp_task *)event->data;

	CHECK(GO(w, &w_n3, ul_plain) == TP_VERDICT_REDIRECT && w->entries[10].packets == 1);
	r->remote_span = 2;
	CHECK(GO(w, &w_n3, ul_plain) == TP_VERDICT_REDIRECT && w->entries[11].packets == 1);
	r->remote_span = 10;
	CHECK(GO(w, &w_n3, ul_user_fragment) == TP_VERDICT_SLOW && w->entries[11].packets == 1);
	CHECK(task->what == TP_TASK_INNER_FRAGMENT && task->out == W_TEID && task->mtu == 50);
	CHECK(event->len == sizeof(*task) + sizeof(ul_user_fragment));
	w->tables.transport_known = 1;
	w->tables.transport = 17ULL << TP_FLOW_PROTO_SHIFT;
	CHECK(GO(w, &w_n3, ul_user_fragment) == TP_VERDICT_REDIRECT && w->entries[11].packets == 2);
	w->tables.transport_known = 0;
	CHECK(GO(w, &w_n3, ul_v6) == TP_VERDICT_REDIRECT && w->entries[11].packets == 3);
	r->mask &= ~TP_FLOW_V6;
	more->ue_plen = 0;
	CHECK(GO(w, &w_n3, ul_v6) == TP_VERDICT_REDIRECT && w->entries[10].packets == 2);
	CHECK(GO(w, &w_n3, ul_v6_extensions) == TP_VERDICT_REDIRECT && w->entries[10].packets == 3);
	w->entries[10].head = w_head(0, TP_ACT_ROUTE, TP_HEAD_QFI, 9);
	CHECK(GO(w, &w_n3, ul_plain) == TP_VERDICT_REDIRECT && w->entries[11].packets == 4);
	CHECK(GO(w, &w_n3, ul_psc) == TP_VERDICT_REDIRECT && w->entries[10].packets == 4);
	r[1].mask = r[1].value = TP_FLOW_NEVER;
	DROPS(w, &w_n3, ul_plain, QFI_MISMATCH);
	r->value ^= 1ULL << TP_FLOW_PROTO_SHIFT;
	DROPS(w, &w_n3, ul_plain, NO_PDR);
	r->value ^= 1ULL << TP_FLOW_PROTO_SHIFT;
	r->entry = 99;
	DROPS(w, &w_n3, ul_plain, TABLE);
	r->entry = 10;
	r->more = 1 + 2 * W_SMALL;
	DROPS(w, &w_n3, ul_plain, TABLE);
	done(w);
}

/* As the SMF asked for them: several QFIs, a flow label, an SPI. */
static void test_rule_mores(void)
{
	struct world *w = w_new();
	struct tp_rule *r = fill_rules(w);
	struct tp_rule_more *more = &((struct tp_rule_mores *)&w->rules[2])->more[1];

	r[1].mask = r[1].value = TP_FLOW_NEVER;
	r->mask = r->value = 0;
	r->remote_span = r->ue_span = 0xffff;
	more->ue_plen = 0;
	more->flags = TP_MORE_QFIS;
	more->qfis = 1 << 8;
	DROPS(w, &w_n3, ul_psc, QFI_MISMATCH);
	DROPS(w, &w_n3, ul_plain, QFI_MISMATCH);
	more->qfis |= 1 << 9;
	CHECK(GO(w, &w_n3, ul_psc) == TP_VERDICT_REDIRECT && w->entries[10].packets == 1);
	more->flags = TP_MORE_SPI;
	DROPS(w, &w_n3, ul_plain, NO_PDR);
	more->flags = TP_MORE_LABEL;
	DROPS(w, &w_n3, ul_plain, NO_PDR);
	CHECK(GO(w, &w_n3, ul_v6) == TP_VERDICT_REDIRECT && w->entries[10].packets == 2);
	more->label = 1;
	DROPS(w, &w_n3, ul_v6, NO_PDR);
	done(w);
}

/* The rate word of a bit rate, as control makes it: ticks per octet is 512e9 / bps. */
static __u64 rate_word(double bps, double burst_ns)
{
	double mantissa = 8e9 * 64 / bps;
	__u64 shift = 0;

	while (mantissa < 2147483648.0 && shift < 63) {
		mantissa *= 2;
		shift++;
	}
	return (__u64)mantissa | shift << TP_RATE_SHIFT_SHIFT | (__u64)(burst_ns / 4096) << TP_RATE_BURST_SHIFT;
}

/* Offer twice the rate, eight packets at once, and count once the burst is used up. */
static double passed_share(struct world *w, double bps)
{
	double gap = 8 * 8 * 39.0 / (2 * bps) * 1e9, now = 1e6, since = now;
	__u64 passed = 0;
	__u32 n;

	for (n = 0; n < 200000; n++) {
		if (n == 100000) {
			passed = 0;
			since = now;
		}
		passed += go(w, &w_n3, ul_plain, sizeof(ul_plain), (__u64)now) == TP_VERDICT_REDIRECT;
		if (n % 8 == 7)
			now += gap;
	}
	return (double)passed * 39 * 8 / ((now - since) / 1e9) / bps;
}

static void test_meter_rates(void)
{
	static const double rates[] = {64e3, 10e6, 400e6, 600e6, 1200e6, 4.3e9, 10e9};
	struct world *w;
	double share;
	__u32 i;

	for (i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
		w = w_new();
		w->entries[W_TEID].head = w_head(W_TEID, TP_ACT_ROUTE, TP_HEAD_METER, 0);
		w->entries[W_TEID].rate = rate_word(rates[i], 2 * 8 * 8 * 39 / rates[i] * 1e9 + 4096);
		share = passed_share(w, rates[i]);
		if (share < 0.999 || share > 1.001)
			printf("  %.0f bit/s: %.5f of it passed\n", rates[i], share);
		CHECK(share > 0.999 && share < 1.001);
		CHECK(w->cpu.drops[0][TP_UPLINK][TP_DROP_RATE] == w->sides[W_TEID].drops);
		done(w);
	}
}

static void test_meters_shared(void)
{
	struct world *w = w_new();
	int i, passed = 0;

	w->entries[W_TEID].head = w_head(W_TEID, TP_ACT_ROUTE, TP_HEAD_METER | TP_HEAD_EXT, 0);
	w->entries[W_TEID].rate = rate_word(1e9, 1e9);
	w->exts[1].n_meters = 2;
	w->exts[1].meters[0] = 3;
	w->exts[1].meters[1] = 4;
	w->meters[3].rate = rate_word(1e6, 1e9);
	w->meters[4].rate = rate_word(1e6, 39 * 8 * 10 * 1e3 + 4096); /* ten packets' time, and one */
	for (i = 0; i < 100; i++)
		passed += GO(w, &w_n3, ul_plain) == TP_VERDICT_REDIRECT;
	CHECK(passed == 11);
	CHECK(w->meters[4].drops == 89 && w->meters[3].drops == 0);
	/* Refused packets were charged to nobody. */
	CHECK(w->meters[3].tat - 64000 <= 11ULL * 39 * 8 * 1000 * 64 && w->meters[3].tat == w->meters[4].tat);
	w->meters[4].rate = TP_RATE_BLOCK;
	CHECK(go(w, &w_n3, ul_plain, sizeof(ul_plain), 100000000000) == TP_VERDICT_DROP);
	w->meters[4].rate = 0;
	CHECK(go(w, &w_n3, ul_plain, sizeof(ul_plain), 100000000000) == TP_VERDICT_REDIRECT);
	done(w);
}

int main(void)
{
	test_uplink_forms();
	test_relay_tags();
	test_uplink_drops();
	test_outer_fragments();
	test_aside();
	test_alarm();
	test_trace();
	test_trace_rate();
	test_cut_short();
	test_downlink();
	test_senders_are_told_within_a_rate_each();
	test_actions();
	test_answers();
	test_next_hops();
	test_fib();
	test_outer6();
	test_fib_outer6();
	test_buckets();
	test_rules();
	test_rule_mores();
	test_meter_rates();
	test_meters_shared();
	free(run.buf);
	printf("pipeline: %d checks, %d failed\n", checks, failures);
	return failures != 0;
}
