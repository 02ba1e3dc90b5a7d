/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What golden cases (tests/golden) cannot say of the pipeline on the host: clocks and rates, the kernel's FIB, alarms,
 * traces, counts aside, tables that are broken, frames cut anywhere. */
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
#define DROPS(w, port, frame, why)                                                                  \
	do {                                                                                        \
		CHECK(GO(w, port, frame) == TP_VERDICT_DROP);                                       \
		if (run.result.reason != TP_DROP_##why)                                             \
			printf("  %s: dropped as %s\n", #frame, tp_drop_name(run.result.reason));   \
		CHECK(run.result.reason == TP_DROP_##why);                                          \
	} while (0)

/* ul_plain with one octet changed. */
static const __u8 *plain_but(__u32 at, __u8 octet)
{
	static __u8 frame[sizeof(ul_plain)];

	memcpy(frame, ul_plain, sizeof(frame));
	frame[at] = octet;
	return frame;
}

/* Places in it. */
#define TEID_HIGH 46
#define USER_TTL 58
#define USER_SOURCE_LOW 65

static __u32 go_but(struct world *w, const struct tp_port_config *port, __u32 at, __u8 octet)
{
	return go(w, port, plain_but(at, octet), sizeof(ul_plain), 1000);
}

static int drops_but(struct world *w, const struct tp_port_config *port, __u32 at, __u8 octet, __u32 reason)
{
	return go_but(w, port, at, octet) == TP_VERDICT_DROP && run.result.reason == reason;
}

static void test_ports(void)
{
	struct world *w = w_new();

	CHECK(GO(w, &w_n3, ul_plain) == TP_VERDICT_REDIRECT && run.result.port == 1);
	CHECK(GO(w, &w_n6, dl_v4) == TP_VERDICT_REDIRECT && run.result.port == 0);
	w->tables.ports_up = 2;
	DROPS(w, &w_n6, dl_v4, REDIRECT);
	free(w);
}

/* Beside other packets of the same entry, a run counts aside. */
static void test_aside(void)
{
	struct world *w = w_new();

	w->tables.aside = 1;
	CHECK(GO(w, &w_n3, ul_plain) == TP_VERDICT_REDIRECT);
	CHECK(drops_but(w, &w_n3, USER_TTL, 1, TP_DROP_TTL));
	CHECK(w->sides[W_TEID].packets == 1 && w->sides[W_TEID].bytes == 39 && w->sides[W_TEID].drops == 1);
	CHECK(w->entries[W_TEID].packets == 0 && w->entries[W_TEID].bytes == 0);
	free(w);
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
	CHECK(drops_but(w, &w_n3, USER_TTL, 1, TP_DROP_TTL));
	CHECK(e->alarm == e->bytes + 39 && run.result.n_alarms == 0);
	e->alarm = TP_ALARM_NONE;
	CHECK(GO(w, &w_n3, ul_plain) == TP_VERDICT_REDIRECT && e->alarm == TP_ALARM_NONE);
	CHECK(w->cpu.alarms == 3 && w->cpu.alarms_lost == 0);
	free(w);
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
	CHECK(drops_but(w, &w_n3_traced, USER_TTL, 1, TP_DROP_TTL));
	CHECK(reported(plain_but(USER_TTL, 1), sizeof(ul_plain), 3) && t->outcome == TP_DROP_TTL && t->matched);
	CHECK(drops_but(w, &w_n3_traced, USER_SOURCE_LOW, 2, TP_DROP_UE_SPOOFED));
	CHECK(reported(plain_but(USER_SOURCE_LOW, 2), sizeof(ul_plain), 1) && t->outcome == TP_DROP_UE_SPOOFED);
	CHECK(GO(w, &w_n6_traced, dl_v4) == TP_VERDICT_REDIRECT && REPORTED(dl_v4, 2));
	CHECK(t->dir == TP_DOWNLINK && t->port == 1 && t->teid == 0 && t->gtpu == 0 && t->user == 14);
	CHECK(GO(w, &w_n6_traced, dl_v6) == TP_VERDICT_REDIRECT && REPORTED(dl_v6, 4));
	w->entries[W_TEID].head = 0;
	CHECK(GO(w, &w_n3_traced, ul_plain) == TP_VERDICT_TX && REPORTED(ul_plain, 3));
	CHECK(!t->matched && t->outcome == TP_OUT_ANSWER);
	CHECK(GO(w, &w_n3, ul_plain) == TP_VERDICT_TX && !run.result.traced);
	free(w);
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
	free(w);
}

/* Cut anywhere, a frame is dropped for a reason or passed; never read beyond, never forwarded. */
static void test_cut_short(void)
{
	struct world *w = w_new();
	__u32 n;

	for (n = 0; n < sizeof(ul_two_extensions); n++)
		CHECK(go(w, &w_n3, ul_two_extensions, n, 0) == TP_VERDICT_DROP || n == 13);
	for (n = 0; n < sizeof(ul6_headers); n++)
		CHECK(go(w, &w_n3, ul6_headers, n, 0) == TP_VERDICT_DROP);
	for (n = 0; n < sizeof(dl_v4); n++)
		CHECK(go(w, &w_n6, dl_v4, n, 0) == TP_VERDICT_DROP);
	free(w);
}

/* Answers and notices go out at a rate, and none where it is zero. */
static void test_rates_of_messages(void)
{
	const struct tp_event *event = (const struct tp_event *)run.result.event;
	const struct tp_task *task = (const struct tp_task *)event->data;
	struct world *w = w_new();
	int i;

	for (i = 0; i < 32; i++)
		CHECK(GO(w, &w_n3, echo_request) == TP_VERDICT_TX);
	DROPS(w, &w_n3, echo_request, ECHO_RATE);
	for (i = 0; i < 32; i++)
		CHECK(go_but(w, &w_n3, TEID_HIGH, 1) == TP_VERDICT_TX);
	CHECK(drops_but(w, &w_n3, TEID_HIGH, 1, TP_DROP_ERROR_INDICATION_RATE));
	CHECK(go(w, &w_n3, plain_but(TEID_HIGH, 1), sizeof(ul_plain), 10001001) == TP_VERDICT_TX);
	w->config.error_indication_ns = 0;
	CHECK(drops_but(w, &w_n3, TEID_HIGH, 1, TP_DROP_UNKNOWN_TEID));
	DROPS(w, &w_n3, ul_unknown_required, GTPU_UNKNOWN_EXTENSION);
	CHECK(run.result.event_len == 0);
	w->nexthops[1].mtu = 79;
	DROPS(w, &w_n6, dl_v6, MTU);
	CHECK(run.result.event_len == 0);
	w->config.icmp_ns = 1000000;
	DROPS(w, &w_n6, dl_v6, MTU);
	CHECK(run.result.event_len && task->what == TP_TASK_TOO_LONG && task->mtu == 79 && task->tunnel_len == 44);
	free(w);
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
	free(w);
}

/* Tables that no control plane writes, or that change just now. */
static void test_broken_tables(void)
{
	struct world *w = w_new();
	struct tp_rule *r = w->rules[1].rule;

	w->entries[W_DOWN].head = w_head(0, TP_ACT_NONE, 0, 0);
	DROPS(w, &w_n6, dl_v4, UNKNOWN_UE);
	w_default4(w)->nexthop = 99;
	DROPS(w, &w_n3, ul_plain, TABLE);
	w_default4(w)->nexthop = 2;
	w->entries[W_TEID].head = w_head(W_TEID, TP_ACT_LIST, 0, 0) | 1ULL << TP_HEAD_RULE_SHIFT;
	r->remote_span = r->ue_span = 0xffff;
	r->entry = 99;
	DROPS(w, &w_n3, ul_plain, TABLE);
	r->entry = 10;
	r->more = 1 + W_SMALL;
	DROPS(w, &w_n3, ul_plain, TABLE);
	free(w);
}

/* The frame's MAC addresses, of which the last octets differ. */
static int is_between(__u8 from, __u8 to)
{
	const __u8 *frame = run.buf + run.offset;

	return !memcmp(frame, (__u8[]){2, 0, 0, 0, 0, to}, 6) && !memcmp(frame + 6, (__u8[]){2, 0, 0, 0, 0, from}, 6);
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
	CHECK(GO(w, &w_n6, dl_v4) == TP_VERDICT_REDIRECT && run.result.port == 0 && is_between(1, 2));
	free(w);
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
	CHECK(GO(w, &w_n3, ul_plain) == TP_VERDICT_REDIRECT && run.result.port == 1 && is_between(3, 4));
	fib_answer = 7; /* NO_NEIGH */
	CHECK(GO(w, &w_n3, ul_plain) == TP_VERDICT_SLOW);
	fib_answer = 3; /* PROHIBIT */
	DROPS(w, &w_n3, ul_plain, PROHIBITED);
	fib_answer = 4; /* NOT_FWDED */
	DROPS(w, &w_n3, ul_plain, NO_ROUTE);
	free(w);
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
		free(w);
	}
}

/* A meter counts what it refuses, and none is charged for what another one refuses. */
static void test_meters_shared(void)
{
	struct world *w = w_new();
	int i;

	w->entries[W_TEID].head = w_head(W_TEID, TP_ACT_ROUTE, TP_HEAD_EXT, 0);
	w->exts[1].n_meters = 2;
	w->exts[1].meters[0] = 3;
	w->exts[1].meters[1] = 4;
	w->meters[3].rate = rate_word(1e6, 1e9);
	w->meters[4].rate = rate_word(1e6, 39 * 8 * 10 * 1e3 + 4096); /* ten packets' time, and one */
	for (i = 0; i < 100; i++)
		GO(w, &w_n3, ul_plain);
	CHECK(w->meters[4].drops == 89 && w->meters[3].drops == 0);
	CHECK(w->meters[3].tat - 64000 <= 11ULL * 39 * 8 * 1000 * 64 && w->meters[3].tat == w->meters[4].tat);
	w->meters[4].rate = 0;
	CHECK(GO(w, &w_n3, ul_plain) == TP_VERDICT_REDIRECT);
	free(w);
}

int main(void)
{
	test_ports();
	test_aside();
	test_alarm();
	test_trace();
	test_trace_rate();
	test_cut_short();
	test_rates_of_messages();
	test_senders_are_told_within_a_rate_each();
	test_broken_tables();
	test_fib_outer6();
	test_fib();
	test_meter_rates();
	test_meters_shared();
	free(run.buf);
	printf("pipeline: %d checks, %d failed\n", checks, failures);
	return failures != 0;
}
