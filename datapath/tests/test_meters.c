/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Limits that two CPUs meet at once, and packet rates over their time units. */
#include <pthread.h>
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

#define ROOM 64U
#define INNER 39U /* octets of the user's packet in ul_plain */

/* A CPU: its own counters and clock state, the tables of all. */
struct cpu {
	struct tp_tables tables;
	struct tp_port_config port;
	struct tp_cpu state;
	__u8 buf[ROOM + sizeof(ul_plain) + ROOM];
};

static struct cpu *new_cpu(struct world *w)
{
	struct cpu *c = calloc(1, sizeof(*c));

	c->tables = w->tables;
	c->tables.cpu = &c->state;
	c->port = w_n3;
	return c;
}

static int passes(struct cpu *c, __u64 now)
{
	__u32 offset = ROOM, len = sizeof(ul_plain);
	struct tp_result result;

	memcpy(c->buf + ROOM, ul_plain, sizeof(ul_plain));
	return tp_host_run(&c->tables, &c->port, c->buf, sizeof(c->buf), &offset, &len, now, &result) ==
	       TP_VERDICT_REDIRECT;
}

/* Two threads share a clock that moves on with each packet, so that twice the rate is offered. */
struct race {
	struct world *w;
	double gap_ns;
	__u64 n, sent, passed;
	int alone; /* one CPU meets all packets of the direction: the other one is user space */
	int begun;
};

static void *run_race(void *arg)
{
	struct race *r = arg;
	struct cpu *c = new_cpu(r->w);
	__u64 passed = 0, i;

	if (r->alone && !__sync_fetch_and_add(&r->begun, 1))
		c->port.features &= ~TP_FEAT_ATOMIC;
	else
		c->tables.aside = r->alone;
	while ((i = __sync_fetch_and_add(&r->sent, 1)) < r->n)
		passed += passes(c, 1000000 + (__u64)((double)i * r->gap_ns));
	__sync_fetch_and_add(&r->passed, passed);
	free(c);
	return NULL;
}

static void race(struct race *r)
{
	pthread_t threads[2];
	int i;

	for (i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, run_race, r);
	for (i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

static __u64 rate_word(double bps, double burst_ns)
{
	double ticks = 8 * 64e9 / bps;
	__u64 shift = 0;

	while (ticks < 2147483648.0 && shift < 63) {
		ticks *= 2;
		shift++;
	}
	return (__u64)ticks | shift << TP_RATE_SHIFT_SHIFT | (__u64)(burst_ns / 4096) << TP_RATE_BURST_SHIFT;
}

static void test_rates_of_two_cpus(void)
{
	static const double rates[] = {64e3, 10e6, 400e6, 600e6, 1200e6, 4.3e9, 10e9};
	struct race r;
	struct world *w;
	__u32 i, shared;
	double share;

	for (i = 0; i < 2 * sizeof(rates) / sizeof(rates[0]); i++) {
		double bps = rates[i / 2], burst_ns = 1000 * INNER * 8 / bps * 1e9;

		shared = i & 1;
		w = w_new();
		w->entries[W_TEID].head = w_head(W_TEID, TP_ACT_ROUTE, shared ? TP_HEAD_EXT : TP_HEAD_METER, 0);
		w->entries[W_TEID].rate = rate_word(bps, burst_ns);
		w->exts[1].n_meters = 1;
		w->exts[1].meters[0] = 3;
		w->meters[3].rate = rate_word(bps, burst_ns);
		r = (struct race){.w = w, .gap_ns = INNER * 8 / (2 * bps) * 1e9, .n = 400000};
		race(&r);
		share = ((double)r.passed - 1000) * INNER * 8 / ((double)r.n * r.gap_ns / 1e9) / bps;
		if (share < 0.98 || share > 1.02)
			printf("  %.0f bit/s, %s: %.4f of it passed\n", bps, shared ? "shared" : "own", share);
		CHECK(share > 0.98 && share < 1.02);
		CHECK(w->entries[W_TEID].packets == r.passed && w->sides[W_TEID].drops == r.n - r.passed);
		free(w);
	}
}

/* A burst that lets all of them pass at one moment: what is charged at the end is exactly what passed. */
static void test_user_space_beside_the_only_cpu(void)
{
	__u64 rate = rate_word(10e9, 1e9), *tat[2], cost = INNER * (__u64)(__u32)rate;
	struct race r;
	struct world *w;
	__u32 shared;

	cost >>= rate >> TP_RATE_SHIFT_SHIFT & TP_RATE_SHIFT_MASK;
	for (shared = 0; shared < 2; shared++) {
		w = w_new();
		w->entries[W_TEID].head = w_head(W_TEID, TP_ACT_ROUTE, shared ? TP_HEAD_EXT : TP_HEAD_METER, 0);
		w->exts[1].n_meters = 1;
		w->exts[1].meters[0] = 3;
		w->entries[W_TEID].rate = w->meters[3].rate = rate;
		tat[0] = &w->entries[W_TEID].tat;
		tat[1] = &w->meters[3].tat;
		r = (struct race){.w = w, .n = 400000, .alone = 1};
		race(&r);
		CHECK(r.passed == r.n && w->entries[W_TEID].packets + w->sides[W_TEID].packets == r.n);
		CHECK(*tat[shared] == (1000000ULL << TP_TICKS_PER_NS_SHIFT) + r.n * cost);
		free(w);
	}
}

/* Both CPUs gather octets, and let no more pass together than there is. */
static void test_capacity_of_two_cpus(void)
{
	static const double rates[] = {64e3, 10e6, 1200e6, 10e9};
	__u64 octets, told;
	struct race r;
	struct world *w;
	double share;
	__u32 i;

	for (i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
		double bps = rates[i], burst_ns = 1000 * INNER * 8 / bps * 1e9;

		w = w_new();
		w->entries[W_TEID].head = w_head(W_TEID, TP_ACT_ROUTE, TP_HEAD_EXT, 0);
		w->exts[1].share = 3 + 1;
		w->meters[3].slower = 1 << TP_SHARE_SHIFT;
		w->meters[3].capacities[1] = 5; /* places without a capacity are passed over */
		w->capacities[5].rate = rate_word(bps, burst_ns);
		w->capacities[5].step = 10;
		r = (struct race){.w = w, .gap_ns = INNER * 8 / (2 * bps) * 1e9, .n = 400000};
		race(&r);
		share = ((double)r.passed - 1000) * INNER * 8 / ((double)r.n * r.gap_ns / 1e9) / bps;
		if (share < 0.98 || share > 1.02)
			printf("  capacity of %.0f bit/s: %.4f of it passed\n", bps, share);
		CHECK(share > 0.98 && share < 1.02);
		octets = r.passed * INNER;
		told = w->capacities[5].bytes;
		CHECK(told <= octets && octets - told < 2 << 10);
		CHECK(w->capacities[5].over == (r.n - r.passed) * INNER);
		CHECK(w->capacities[5].drops == r.n - r.passed && w->meters[3].drops == r.n - r.passed);
		free(w);
	}
}

#define UNIT_NS (60ULL << 30) /* about a minute, in whole units of 2^20 ns */

static struct world *limited(__u64 packets)
{
	struct world *w = w_new();

	w->entries[W_TEID].head = w_head(W_TEID, TP_ACT_ROUTE, TP_HEAD_EXT, 0);
	w->exts[1].packet_meter = 3 + 1;
	w->exts[1].share = 0; /* a thread that waits for its CPU is late, and a capacity would refuse its packet */
	w->meters[3].rate = packets | (UNIT_NS >> TP_PACKETS_TIME_SHIFT) << TP_PACKETS_SHIFT;
	return w;
}

static void test_packet_rate_over_time(void)
{
	struct world *w = limited(10);
	struct cpu *c = new_cpu(w);
	__u64 start = 1000 * UNIT_NS, now;
	int unit, passed;

	/* A packet each second: ten in each time unit, and the first of the next one opens it. */
	for (unit = 0; unit < 5; unit++) {
		passed = 0;
		for (now = 0; now < UNIT_NS; now += 1ULL << 30)
			passed += passes(c, start + unit * UNIT_NS + now);
		CHECK(passed == 10);
	}
	CHECK(w->meters[3].drops == 5 * 50);
	CHECK(c->state.drops[0][TP_UPLINK][TP_DROP_PACKET_RATE] == 5 * 50);
	/* Silence, then a burst: the time unit begins with its first packet. */
	now = start + 100 * UNIT_NS + UNIT_NS / 2;
	for (passed = 0, unit = 0; unit < 20; unit++)
		passed += passes(c, now);
	CHECK(passed == 10);
	CHECK(!passes(c, now + UNIT_NS - (1ULL << 20)));
	CHECK(passes(c, now + UNIT_NS));
	/* A clock that is a little behind on another CPU opens no new time unit. */
	for (passed = 0, unit = 0; unit < 20; unit++)
		passed += passes(c, now + UNIT_NS - 1000000);
	CHECK(passed == 9);
	/* A lower limit holds at once. */
	w->meters[3].rate = 2 | (w->meters[3].rate & ~TP_PACKETS_MASK);
	CHECK(!passes(c, now + UNIT_NS));
	free(c);
	free(w);
}

static void test_packet_rate_of_two_cpus(void)
{
	struct world *w = limited(1000);
	struct race r = {.w = w, .gap_ns = (double)UNIT_NS / 20000, .n = 200000};

	race(&r); /* ten time units, of 20000 packets each */
	/* The last one is cut short by its beginning late, and a lost race may let one more pass. */
	CHECK(r.passed >= 10000 && r.passed <= 11100);
	free(w);
}

int main(void)
{
	test_rates_of_two_cpus();
	test_user_space_beside_the_only_cpu();
	test_capacity_of_two_cpus();
	test_packet_rate_over_time();
	test_packet_rate_of_two_cpus();
	printf("meters: %d checks, %d failed\n", checks, failures);
	return failures != 0;
}
