/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Workers over devices of DPDK: each has a receive and a transmit queue of every port to itself, runs what comes in to its
 * end, and sends it on.
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

struct rte_mempool;
struct rte_ring;

/* A device that has been opened. */
struct tp_dpdk_port {
	__u16 id;
	__u8 mac[6];
};

/* Start DPDK's environment, once in a process. The calling thread keeps its CPUs. Arguments as of main(). 0, or why it did
 * not start. */
int tp_dpdk_start(int argc, char **argv, char *why);

/* Frames' memory: so many buffers, each for a frame of `octets`. NULL: there is no room. */
struct rte_mempool *tp_dpdk_pool(__u32 buffers, __u32 octets);

/* Open a device, by its name and arguments as DPDK has them, with so many queues each way, for IP packets of so many octets.
 * 0, or why it cannot be opened. */
int tp_dpdk_open(const char *device, __u32 queues, __u32 mtu, struct rte_mempool *pool, struct tp_dpdk_port *port, char *why);

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
	__u32 reserved;
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

/* What one worker has. */
struct tp_dpdk_lane {
	struct tp_dpdk_shared *shared;
	struct tp_queue *from_kernel;
	__u16 queue;
};

/* The calling thread becomes a worker, on this CPU; below 0: on any. 0, or below. */
int tp_dpdk_join(int cpu);

void tp_dpdk_leave(void);

/* Serve every port once. How many frames there were. */
__u32 tp_dpdk_serve(struct tp_dpdk_lane *l, struct tp_worker *w);

/* Give back the buffers of frames that wait: the worker ends. */
void tp_dpdk_free_waiting(struct tp_worker *w);

/* Count what was lost elsewhere as this worker's. One worker alone does. */
void tp_dpdk_take_lost(struct tp_dpdk_lane *l, struct tp_worker *w);

/* A device with rings for wires: what is put into `in` comes in, what leaves is in `out`. Device "net_ring_" and the name. */
struct tp_dpdk_ring_port {
	struct rte_ring *in;
	struct rte_ring *out;
	__u16 id;
};

int tp_dpdk_ring_port(const char *name, __u32 frames, struct tp_dpdk_ring_port *port);

/* When no port is open on it any more. */
void tp_dpdk_ring_close(struct tp_dpdk_ring_port *port);

/* Give its link, or take it away. */
void tp_dpdk_ring_link(const struct tp_dpdk_ring_port *port, int up);

/* 0: it is in the ring. */
int tp_dpdk_ring_put(struct tp_dpdk_ring_port *port, struct rte_mempool *pool, const __u8 *frame, __u32 len);

/* Octets of the oldest frame that has left, of which at most `room` are written; 0: there is none. */
__u32 tp_dpdk_ring_take(struct tp_dpdk_ring_port *port, __u8 *to, __u32 room);

#ifdef __cplusplus
}
#endif
#endif
