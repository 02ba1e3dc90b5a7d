/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The pipeline in a thread that has a share of all packets to itself: a burst of frames at a time, rewritten in place.
 *
 * Several workers share tables, each with a struct tp_cpu of its own; what user space is to do comes out of queues that all
 * share. Where frames come from and go to is the caller's affair: sockets, or DPDK.
 */
#ifndef TP_WORKER_H
#define TP_WORKER_H

#include "tp_host.h"
#include "tp_queue.h"
#include "tp_wheel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TP_BURST_MAX 64

/* A frame in memory with room in front and behind, and what became of it. */
struct tp_frame {
	__u8 *buf;
	__u32 cap;
	__u32 offset; /* where the frame begins; in and out */
	__u32 len;    /* in and out */
	__u32 verdict; /* out: enum tp_verdict. SLOW, DROP: done with */
	__u32 detail;  /* out. REDIRECT, LATER: devmap slot; DROP: enum tp_drop */
	__u64 leaves_ns; /* out. LATER: when */
};

/* Where records for user space go; NULL: nowhere, as if there were no room. */
struct tp_queues {
	struct tp_queue *events;
	struct tp_queue *copies;
	struct tp_queue *held;
	struct tp_queue *alarms; /* struct tp_alarm */
	struct tp_queue *traced; /* struct tp_trace */
};

struct tp_worker {
	struct tp_tables tables; /* cpu: this worker's own */
	struct tp_queues queues;
	struct tp_port_config ports[TP_PORTS_MAX];
	const __u32 *features; /* TP_FEAT_* of all ports, in place of theirs; control changes it under traffic */
	struct tp_trace trace; /* of the packet under way */
	__u32 *raised; /* entry that counts a packet which has not been handed over yet, + 1; 0: none. Who finds it when the worker has
			* ended counts it off. NULL: nobody does */
	/* Where frames wait that leave LATER: the caller puts them there after the burst, and has taken and sent those that
	 * were due before it. NULL: none waits, and rates that shape let pass what they would have wait. */
	struct tp_wheel *wheel;
	__u64 left_ns; /* all that was due in the wheel by then has left */
	__u32 room;    /* frames of this burst that may still be told to wait */
	__u32 frames;  /* that have room in the wheel when it is empty */
	__u64 longest_wait_ns;
};

/* Run n frames, at most TP_BURST_MAX, that came in on a port. now_ns: monotonic, of all of them. */
void tp_worker_burst(struct tp_worker *w, __u32 port, struct tp_frame *frames, __u32 n, __u64 now_ns);

#ifdef __cplusplus
}
#endif
#endif
