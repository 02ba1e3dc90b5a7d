/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Workers over devices of DPDK, in two models. Run to completion: each has a receive and a transmit queue of every port to
 * itself, runs what comes in to its end, and sends it on. Pipeline: receive cores poll the receive queues and spread frames over
 * the workers by UE, by a ring from each of them to each worker; workers run what their rings have, and send it on by transmit
 * queues of their own.
 *
 * The kernel has a face at each port, a TAP interface that another thread reads and writes: what is passed to the kernel
 * goes there by a queue of records, and what the kernel sends comes by another one. So a worker makes no system call for
 * them, but to wake that thread.
 */
#ifndef TP_DPDK_H
#define TP_DPDK_H

#include "tp_worker.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TP_DPDK_BURST 32
#define TP_DPDK_WHY 256 /* octets of a reason, in words */
#define TP_DPDK_WORKERS_MAX 64
#define TP_DPDK_RECEIVERS_MAX 16
#define TP_DPDK_QUEUES_MAX 64 /* receive queues of a port */

struct rte_mempool;
struct rte_ring;

/* A device that has been opened. */
struct tp_dpdk_port {
	__u16 id;
	__u16 receive; /* receive queues */
	__u16 wakes;   /* a thread can sleep until one of these has something */
	__u8 poller[TP_DPDK_QUEUES_MAX]; /* of each: number of the one thread that polls it */
	__u8 mac[6];
};

/* Threads that want queues of a port. */
struct tp_dpdk_queues {
	__u64 pollers;	 /* bit n: thread n polls receive queues of it, of receive cores, or of workers without such */
	__u32 first;	 /* which of these polls queue 0, so that ports with a single queue have different ones */
	__u32 workers;	 /* each sends by a transmit queue of its own */
	__u32 receivers; /* 0: run to completion */
	__u32 may_sleep; /* when there is no traffic */
};

/* Start DPDK's environment, once in a process. The calling thread keeps its CPUs. Arguments as of main(). 0, or why it did
 * not start. */
int tp_dpdk_start(int argc, char **argv, char *why);

/* Frames' memory: so many buffers, each for a frame of `octets`, on a NUMA node; below 0: on any. NULL: there is no room. */
struct rte_mempool *tp_dpdk_pool(__u32 buffers, __u32 octets, int node);

/* Open a device, by its name and arguments as DPDK has them, with queues for these threads, for IP packets of so many octets.
 * 0, or why it cannot be opened. */
int tp_dpdk_open(const char *device, const struct tp_dpdk_queues *queues, __u32 mtu, struct rte_mempool *pool,
		 struct tp_dpdk_port *port, char *why);

void tp_dpdk_close(const struct tp_dpdk_port *port);

/* What a device tells of itself. */
struct tp_dpdk_state {
	__u32 up;	/* its link is */
	__u64 missed;	/* frames that came in and found no room in its queues */
	__u64 unsent;	/* frames that it took and did not send */
	__u64 no_buffer; /* frames that came in and found no buffer */
};

void tp_dpdk_look(const struct tp_dpdk_port *port, struct tp_dpdk_state *state);

/* In front of a frame, in both queues. */
struct tp_dpdk_record {
	__u32 port;
	__u32 came_by;	 /* port, of a frame above its rate */
	__u64 leaves_ns; /* likewise; 0: at once */
};

/* Frames lost elsewhere than in a worker, of one port: told by others, counted by the worker that takes them. */
struct tp_dpdk_lost {
	__u64 missed;
	__u64 unsent;
	__u64 no_buffer;
	__u64 tap_full;
	__u64 tap_refused;
};

/* What all workers share. */
struct tp_dpdk_shared {
	struct tp_dpdk_port ports[TP_PORTS_MAX];
	struct tp_dpdk_lost lost[TP_PORTS_MAX];
	__u32 n_ports;
	__u32 up; /* bit n: the link of port n is up */
	struct rte_mempool *pool;
	struct tp_queue *to_kernel;
};

/* One receive queue. */
struct tp_dpdk_polled_queue {
	__u8 port;
	__u8 queue;
};

/* Receive queues that one thread polls, of all ports. */
struct tp_dpdk_polls {
	struct tp_dpdk_polled_queue of[TP_PORTS_MAX * TP_DPDK_QUEUES_MAX];
	__u32 n;
};

/* Receive queues of the thread of this number, among threads that poll. All ports are open. */
void tp_dpdk_polled(const struct tp_dpdk_shared *shared, __u32 number, struct tp_dpdk_polls *polls);

/* What one worker has. */
struct tp_dpdk_worker {
	struct tp_dpdk_shared *shared;
	struct tp_queue *from_kernel;
	struct tp_queue *from_control; /* of another process, whose writers wake by from_kernel's descriptor; NULL: there is none */
	struct tp_dpdk_polls polls; /* run to completion */
	__u16 queue;		    /* of every port, to send by */
	__u32 receivers; /* 0: run to completion */
	struct rte_ring *from[TP_DPDK_RECEIVERS_MAX];
};

/* A receive core. */
struct tp_dpdk_receiver {
	struct tp_dpdk_shared *shared;
	struct tp_dpdk_polls polls;
	__u32 number;
	__u32 workers;
	struct rte_ring *to[TP_DPDK_WORKERS_MAX];
	struct tp_queue *wake[TP_DPDK_WORKERS_MAX]; /* of each worker: from_kernel, by which it is woken */
};

/* From one receive core to one worker: room for so many frames, on a NUMA node; below 0: on any. NULL: there is no memory for it. */
struct rte_ring *tp_dpdk_work_ring(__u32 frames, int node);

/* When neither uses it any more. Frames that are in it are freed. */
void tp_dpdk_work_ring_free(struct rte_ring *ring);

/* The calling thread becomes a worker or a receive core, on this CPU; below 0: on any. 0, or below. */
int tp_dpdk_join(int cpu);

void tp_dpdk_leave(void);

/* A thread that sleeps until one of the receive queues that it polls has something. */
struct tp_dpdk_sleeper {
	const struct tp_dpdk_shared *shared;
	struct tp_dpdk_polls polls;   /* none: receive cores wake it */
	struct tp_queue *from_kernel; /* ... or this one; NULL: it has none */
	struct tp_queue *from_control; /* ... or this one, which has no descriptor of its own; NULL: it has none */
	int epoll;
};

/* The thread has joined, and all ports wake. 0, or below: it cannot be woken. */
int tp_dpdk_sleeper_start(struct tp_dpdk_sleeper *s);

void tp_dpdk_sleeper_stop(struct tp_dpdk_sleeper *s);

/* From here on, what comes wakes the thread: what has come before is served once more before it sleeps. */
void tp_dpdk_arm(const struct tp_dpdk_sleeper *s);

/* At most so long. Whether a device has ended it. */
int tp_dpdk_sleep(const struct tp_dpdk_sleeper *s, __u32 ms);

void tp_dpdk_disarm(const struct tp_dpdk_sleeper *s);

/* Serve every port, or every ring, once. How many frames there were. */
__u32 tp_dpdk_serve(struct tp_dpdk_worker *d, struct tp_worker *w);

/* Look once at every queue of this receive core. How many frames there were. w: its counters, and the tables. */
__u32 tp_dpdk_receive(struct tp_dpdk_receiver *r, struct tp_worker *w);

/* Give back the buffers of frames that wait: the worker ends. */
void tp_dpdk_free_waiting(struct tp_worker *w);

/* Count what was lost elsewhere as this worker's. One worker alone does. */
void tp_dpdk_take_lost(struct tp_dpdk_worker *d, struct tp_worker *w);

#define TP_DPDK_RING_QUEUES_MAX 8
#define TP_DPDK_RING_PUT_MAX 128

/* A device with rings for wires: what is put into `in` comes in by that receive queue, what leaves by any transmit queue is in
 * `out`. Device "net_ring_" and the name. */
struct tp_dpdk_ring_port {
	struct rte_ring *in[TP_DPDK_RING_QUEUES_MAX];
	struct rte_ring *out;
	__u32 queues;
	__u16 id;
};

/* With so many queues each way. 0, or below. */
int tp_dpdk_ring_port(const char *name, __u32 frames, __u32 queues, struct tp_dpdk_ring_port *port);

/* When no port is open on it any more. */
void tp_dpdk_ring_close(struct tp_dpdk_ring_port *port);

/* Give its link, or take it away. */
void tp_dpdk_ring_link(const struct tp_dpdk_ring_port *port, int up);

/* n frames of len octets each, at most TP_DPDK_RING_PUT_MAX, one behind the other, come in at once by a queue. 0: they are in its ring; else none is. */
int tp_dpdk_ring_put(struct tp_dpdk_ring_port *port, __u32 queue, struct rte_mempool *pool, const __u8 *frames, __u32 n,
		     __u32 len);

/* Octets of the oldest frame that has left, of which at most `room` are written; 0: there is none. */
__u32 tp_dpdk_ring_take(struct tp_dpdk_ring_port *port, __u8 *to, __u32 room);

/* Buffers that are neither in the pool nor at hand in a thread. */
__u32 tp_dpdk_in_use(const struct rte_mempool *pool);

/* A user's words in a frame, in network byte order. */
struct tp_dpdk_user {
	__u32 teid;
	__u32 address;
	__u16 checksum; /* of the header with the address */
	__u16 reserved;
};

/* A frame of any user. */
struct tp_dpdk_pattern {
	const __u8 *frame;
	__u32 len;
	__u32 teid_at; /* 0: it has none */
	__u32 address_at;
	__u32 checksum_at;
};

/* Frames of these users come in, each in a buffer of its own, out of the caches of this CPU alone. How many there was room for: all,
 * or none. For benchmarks.
 *
 * stamp  the last octets of the first one; 0: none */
__u32 tp_dpdk_ring_load(struct tp_dpdk_ring_port *port, struct rte_mempool *pool, const struct tp_dpdk_pattern *pattern,
			const struct tp_dpdk_user *users, __u32 n, __u64 stamp);

/* Give back the buffers of frames that have left, a burst at most. How many there were.
 *
 * stamps  room for those of a burst, and how many there were; NULL: nobody asks */
__u32 tp_dpdk_ring_unload(struct tp_dpdk_ring_port *port, __u64 *stamps, __u32 *n_stamps);

/* Frames that come in by one port leave by the other as they are, a burst at most, and one line of each is read: what a worker does
 * that knows no rules. How many frames there were. The ports are open, and no worker serves them meanwhile. */
__u32 tp_dpdk_ring_pass_on(__u16 from, __u16 to);

#ifdef __cplusplus
}
#endif
#endif
