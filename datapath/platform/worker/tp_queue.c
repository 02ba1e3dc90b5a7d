/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
#include <string.h>
#include <unistd.h>

#include "tp_queue.h"

#define FRONT 8U		/* octets of the length in front of a record */
#define COMPLETE (1ULL << 32)	/* in that length: the record is all there */
#define SKIP (1ULL << 33)	/* ... and is no record: what was left at the end of the memory, or by a writer that has ended */
#define BEGUN (1ULL << 34)	/* the length alone is there */

static __u64 span_of(__u32 len) { return FRONT + (((__u64)len + 7) & ~7ULL); }

static __u64 *front_at(struct tp_queue *q, __u64 at) { return (__u64 *)(q->data + (at & (q->size - 1))); }

void tp_queue_wake(struct tp_queue *q)
{
	__u64 one = 1;

	if (q->fd >= 0 && !__atomic_exchange_n(&q->state->told, 1, __ATOMIC_SEQ_CST) && write(q->fd, &one, sizeof(one)) < 0)
		__atomic_store_n(&q->state->told, 0, __ATOMIC_SEQ_CST); /* not met: an eventfd takes a write whenever it is not full */
}

void tp_queue_nudge(struct tp_queue *q)
{
	/* What is elsewhere is there before the reader is taken for awake. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&q->state->told, __ATOMIC_SEQ_CST))
		tp_queue_wake(q);
}

__u8 *tp_queue_reserve(struct tp_queue *q, __u32 len)
{
	__u64 need = span_of(len), at, read, left, skip;

	do {
		at = __atomic_load_n(&q->state->written, __ATOMIC_RELAXED);
		read = __atomic_load_n(&q->state->read, __ATOMIC_ACQUIRE);
		left = q->size - (at & (q->size - 1));
		skip = left < need ? left : 0; /* a record lies in one piece */
		/* Others may have written, and the reader read, since `at`: then it is tried again. */
		if ((__s64)(at - read) >= 0 && at - read + skip + need > q->size)
			return NULL;
	} while (!__atomic_compare_exchange_n(&q->state->written, &at, at + skip + need, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	if (skip)
		__atomic_store_n(front_at(q, at), COMPLETE | SKIP | (skip - FRONT), __ATOMIC_RELEASE);
	/* Before the first octet of the record: tp_queue_mend() finds the end of one that was begun. */
	__atomic_store_n(front_at(q, at + skip), BEGUN | len, __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_RELEASE);
	return (__u8 *)front_at(q, at + skip) + FRONT;
}

void tp_queue_complete(__u8 *room, __u32 len)
{
	__atomic_store_n((__u64 *)(room - FRONT), COMPLETE | len, __ATOMIC_SEQ_CST);
}

void tp_queue_commit(struct tp_queue *q, __u8 *room, __u32 len)
{
	tp_queue_complete(room, len);
	if (!__atomic_load_n(&q->state->told, __ATOMIC_SEQ_CST))
		tp_queue_wake(q);
}

/* Octets are zeroes again before a writer may have them. */
static void give_back(struct tp_queue *q, __u64 span)
{
	struct tp_queue_state *state = q->state;

	state->until = state->read + span;
	__atomic_signal_fence(__ATOMIC_RELEASE);
	memset(front_at(q, state->read), 0, span);
	__atomic_store_n(&state->read, state->until, __ATOMIC_RELEASE);
}

const __u8 *tp_queue_peek(struct tp_queue *q, __u32 *len)
{
	__u64 front = __atomic_load_n(front_at(q, q->state->read), __ATOMIC_ACQUIRE);

	while (front & SKIP) {
		give_back(q, span_of((__u32)front));
		front = __atomic_load_n(front_at(q, q->state->read), __ATOMIC_ACQUIRE);
	}
	if (!(front & COMPLETE))
		return NULL;
	*len = (__u32)front;
	return (const __u8 *)front_at(q, q->state->read) + FRONT;
}

void tp_queue_release(struct tp_queue *q, __u32 len)
{
	give_back(q, span_of(len));
}

void tp_queue_rest(struct tp_queue *q)
{
	__u64 count;

	if (q->fd >= 0 && read(q->fd, &count, sizeof(count)) < 0)
		; /* a writer is about to write: it wakes the reader once in vain */
	__atomic_store_n(&q->state->told, 0, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* Octets from at to the end of the memory, which nothing lies across, or of what is written. */
static __u64 most_at(struct tp_queue *q, __u64 at)
{
	__u64 left = q->size - (at & (q->size - 1)), written = q->state->written - at;

	return left < written ? left : written;
}

/* Octets from at, where no writer has said how many: it had not begun, and left zeroes. */
static __u64 untouched(struct tp_queue *q, __u64 at, __u64 most)
{
	__u64 span = FRONT;

	while (span < most && !*front_at(q, at + span))
		span += FRONT;
	return span;
}

void tp_queue_mend(struct tp_queue *q)
{
	struct tp_queue_state *state = q->state;
	__u64 at, most, front, span;

	if (state->written - state->read > q->size)
		state->written = state->read; /* not met: nobody has written this */
	if (state->until - state->read <= most_at(q, state->read))
		give_back(q, state->until - state->read);
	for (at = state->read; at != state->written; at += span) {
		most = most_at(q, at);
		front = *front_at(q, at);
		span = front ? span_of((__u32)front) : untouched(q, at, most);
		if (span > most) {
			front = 0; /* not met, as above */
			span = most;
		}
		if (!(front & COMPLETE))
			__atomic_store_n(front_at(q, at), COMPLETE | SKIP | (span - FRONT), __ATOMIC_RELEASE);
	}
	__atomic_store_n(&state->told, 0, __ATOMIC_SEQ_CST);
}
