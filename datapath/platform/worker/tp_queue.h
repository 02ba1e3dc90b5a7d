/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Records from workers to one other thread: what a ring of the kernel (BPF_MAP_TYPE_RINGBUF) is to XDP programs.
 *
 * Any number of writers, none of which waits; one reader, who sleeps on a descriptor (an eventfd). A record takes its
 * octets, rounded up to 8, and 8 in front. Memory behind the reader is zero: a length there says that the
 * record is begun, or complete.
 */
#ifndef TP_QUEUE_H
#define TP_QUEUE_H

#include <linux/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How far a queue is: memory that all have who use it, zero at first. */
struct tp_queue_state {
	_Alignas(64) __u64 written; /* octets promised to writers, ever */
	_Alignas(64) __u64 read;    /* octets given back by the reader, ever */
	__u32 told;		    /* the descriptor is readable, or about to be */
	__u64 until;		    /* `read`, when the reader has zeroed what it is about to give back */
};

/* A queue, as one process has it. */
struct tp_queue {
	struct tp_queue_state *state;
	__u8 *data; /* zero at first; aligned to 8 */
	__u64 size; /* a power of two */
	int fd;	    /* an eventfd; below 0: nobody is woken */
};

/* Room for a record of len octets, which tp_queue_commit() completes. NULL: there is none. Any thread. */
__u8 *tp_queue_reserve(struct tp_queue *q, __u32 len);

/* room  what tp_queue_reserve() gave for len. */
void tp_queue_commit(struct tp_queue *q, __u8 *room, __u32 len);

/* The first half of tp_queue_commit(): the record is complete, and the reader not woken yet, which tp_queue_nudge() does. */
void tp_queue_complete(__u8 *room, __u32 len);

/* The oldest complete record and its octets, or NULL. The reader. */
const __u8 *tp_queue_peek(struct tp_queue *q, __u32 *len);

/* Done with the record that tp_queue_peek() gave. The reader. */
void tp_queue_release(struct tp_queue *q, __u32 len);

/* The reader has found nothing, and looks once more before it sleeps: writes from here on make the descriptor readable again. */
void tp_queue_rest(struct tp_queue *q);

/* There is something for the reader elsewhere, where it looks as well: have the descriptor readable if it sleeps, or is about to. */
void tp_queue_nudge(struct tp_queue *q);

/* Writers, or the reader, have ended in another process, perhaps in the midst of a record: readers pass over one that nobody completes
 * any more. Whoever is the reader from now on, while nobody writes. */
void tp_queue_mend(struct tp_queue *q);

/* The reader stops although there may be more: have the descriptor readable. */
void tp_queue_wake(struct tp_queue *q);

#ifdef __cplusplus
}
#endif
#endif
