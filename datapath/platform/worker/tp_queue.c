/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
#include <string.h>
#include <unistd.h>

#include "tp_queue.h"

#define FRONT 8U		/* octets of the length in front of a record */
#define COMPLETE (1ULL << 32)	/* in that length: the record is all there */
#define SKIP (1ULL << 33)	/* ... and is no record: what was left at the end of the memory */

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
	return (__u8 *)front_at(q, at + skip) + FRONT;
}

void tp_queue_commit(struct tp_queue *q, __u8 *room, __u32 len)
{
	__atomic_store_n((__u64 *)(room - FRONT), COMPLETE | len, __ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&q->state->told, __ATOMIC_SEQ_CST))
		tp_queue_wake(q);
}

/* Octets are zeroes again before a writer may have them. */
static void give_back(struct tp_queue *q, __u64 span)
{
	memset(front_at(q, q->state->read), 0, span);
	__atomic_store_n(&q->state->read, q->state->read + span, __ATOMIC_RELEASE);
}

const __u8 *tp_queue_peek(struct tp_queue *q, __u32 *len)
{
	__u64 front = __atomic_load_n(front_at(q, q->state->read), __ATOMIC_ACQUIRE);

	if (front & SKIP) {
		give_back(q, FRONT + (__u32)front);
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
