/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The timing wheel against a plain list of what waits. The input says sizes, then what is done: put, take, and how far time goes on.
 * No frame is lost, early, late by more than a slot, given twice, or out of order within its flow; one is refused when the list says so.
 * What is counted of those that wait is what the list says. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tp_wheel.h"

#define FLOWS 8U
#define WAITING_MAX 512U
#define ONCE 16U /* frames taken in one call, at most */

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

/* What should wait, in the order that it came. */
struct model {
	uint64_t leaves[WAITING_MAX];
	uint64_t due[WAITING_MAX]; /* end of the slot that it is in */
	uint64_t frame[WAITING_MAX];
	uint64_t came[WAITING_MAX];
	uint32_t n;
	uint64_t granularity, slots, frames;
	uint64_t now;
	uint64_t visited;	   /* when something was last taken */
	uint64_t delayed, waited;  /* frames, and how long those that are gone waited */
	uint64_t left;		   /* all that was due by then is gone */
	uint64_t departure[FLOWS]; /* latest of each flow */
	uint64_t given[FLOWS];	   /* number of its last frame that left */
	uint64_t numbers;
};

static void fail(const char *why)
{
	fprintf(stderr, "wheel: %s\n", why);
	abort();
}

/* Time at which the slot ends that this time lies in; a time that ends one lies in it. */
static uint64_t slot_end(const struct model *m, uint64_t at)
{
	return at % m->granularity ? at - at % m->granularity + m->granularity : at;
}

static void put(struct model *m, struct tp_wheel *w, uint8_t flow, uint64_t after)
{
	uint64_t leaves = m->departure[flow], frame = ++m->numbers * FLOWS + flow;
	enum tp_wheel_answer r, should = TP_WHEEL_WAITS;

	leaves = (leaves > m->now ? leaves : m->now) + after;
	if (slot_end(m, leaves) > m->left + m->slots * m->granularity)
		should = TP_WHEEL_BEYOND;
	else if (m->n == m->frames)
		should = TP_WHEEL_FULL;
	r = tp_wheel_put(w, leaves, frame);
	if (r != should)
		fail("a frame was refused, or let in, and should not have been");
	if (r)
		return;
	m->departure[flow] = leaves;
	m->leaves[m->n] = leaves;
	m->came[m->n] = m->visited;
	m->delayed++;
	m->due[m->n] = leaves > m->left ? slot_end(m, leaves) : m->left + m->granularity;
	m->frame[m->n++] = frame;
}

/* A frame has left. */
static void gone(struct model *m, uint64_t frame)
{
	uint32_t i, flow = frame % FLOWS;

	for (i = 0; i < m->n && m->frame[i] != frame; i++)
		;
	if (i == m->n)
		fail("a frame left that did not wait");
	if (m->leaves[i] > m->now)
		fail("a frame left early");
	if (frame <= m->given[flow])
		fail("a frame has overtaken another one of its flow");
	m->given[flow] = frame;
	m->waited += m->now - m->came[i];
	memmove(&m->came[i], &m->came[i + 1], (m->n - i - 1) * sizeof(m->came[0]));
	memmove(&m->leaves[i], &m->leaves[i + 1], (m->n - i - 1) * sizeof(m->leaves[0]));
	memmove(&m->due[i], &m->due[i + 1], (m->n - i - 1) * sizeof(m->due[0]));
	memmove(&m->frame[i], &m->frame[i + 1], (m->n - i - 1) * sizeof(m->frame[0]));
	m->n--;
}

static void check_stats(const struct model *m, const struct tp_shaper_stats *stats)
{
	uint64_t waited = m->waited;
	uint32_t i;

	for (i = 0; i < m->n; i++)
		waited += m->visited - m->came[i];
	if (stats->waiting != m->n || stats->delayed != m->delayed)
		fail("frames that wait are counted wrongly");
	if (stats->waited != waited >> TP_WAITED_SHIFT)
		fail("the time that frames wait is counted wrongly");
}

/* n: frames at most. */
static void take(struct model *m, struct tp_wheel *w, uint32_t n)
{
	__u64 frames[ONCE];
	uint64_t next = TP_WHEEL_NEVER;
	uint32_t i, there;

	m->visited = m->now;
	there = tp_wheel_take(w, m->now, frames, n);
	if (there > n)
		fail("more frames than were asked for");
	for (i = 0; i < there; i++)
		gone(m, frames[i]);
	for (i = 0; i < m->n; i++) {
		if (m->due[i] < next)
			next = m->due[i];
	}
	if (there < n && next <= m->now)
		fail("a frame is late");
	if (tp_wheel_next_ns(w) != next)
		fail("the next frame is not due when it should be");
	if (there < n)
		m->left = m->now - m->now % m->granularity;
	else if (tp_wheel_left_ns(w) < m->left || tp_wheel_left_ns(w) > m->now)
		fail("time goes back, or ahead");
	else
		m->left = tp_wheel_left_ns(w);
	if (tp_wheel_left_ns(w) != m->left || (m->n && next <= m->left))
		fail("what has left is not what is said to have");
	if (tp_wheel_room(w) != m->frames - m->n)
		fail("room is lost, or won");
}

static void act(struct model *m, struct tp_wheel *w, uint8_t what, uint8_t number)
{
	uint64_t span = m->granularity * m->slots;

	switch (what & 7) {
	case 0: /* time goes on a little */
		m->now += m->granularity * number / 64;
		break;
	case 1: /* ... or far */
		m->now += span * number / 128;
		break;
	case 2:
	case 3:
		take(m, w, number % (ONCE + 1));
		break;
	default:
		put(m, w, what >> 3 & (FLOWS - 1), what >> 6 ? m->granularity * number / 64 : span * number / 230);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	static const uint64_t granularities[] = {1, 3, 64, 1000, 20000, 4096, 1000003, 17};
	struct tp_shaper_stats stats = {0};
	struct model m = {0};
	struct tp_wheel *w;
	__u64 frame;
	size_t i;

	if (size < 3)
		return 0;
	m.granularity = granularities[input[0] & 7];
	m.slots = 1ULL << (input[1] % 15);
	m.frames = 1 + input[2] * 2U;
	m.now = 1 + (uint64_t)(input[0] >> 3) * 1000003;
	w = tp_wheel_new(m.granularity, (uint32_t)m.slots, (uint32_t)m.frames);
	if (!w)
		fail("no memory");
	tp_wheel_count_in(w, &stats);
	tp_wheel_take(w, m.now, &frame, 1);
	m.visited = m.now;
	m.left = m.now - m.now % m.granularity;
	for (i = 3; i + 1 < size; i += 2) {
		act(&m, w, input[i], input[i + 1]);
		check_stats(&m, &stats);
	}
	m.now += 3 * m.slots * m.granularity;
	while (m.n) { /* ends: each time something is taken, or said to be late */
		take(&m, w, ONCE);
		check_stats(&m, &stats);
	}
	tp_wheel_free(w);
	return 0;
}
