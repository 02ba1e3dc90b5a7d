/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Receive cores: from queues of devices to rings of workers. */
#include <stdio.h>

#include <rte_ethdev.h>
#include <rte_ring.h>

#include "tp_dpdk_frames.h"

/* An odd number without pattern: 2^64 divided by the golden ratio. */
#define TP_SPREAD_FACTOR 0x9e3779b97f4a7c15ULL

struct rte_ring *tp_dpdk_work_ring(__u32 frames, int node)
{
	static __u32 rings;
	char name[RTE_RING_NAMESIZE];

	snprintf(name, sizeof(name), "turnpike_work%u", __atomic_fetch_add(&rings, 1, __ATOMIC_RELAXED));
	return rte_ring_create(name, frames, node, RING_F_SP_ENQ | RING_F_SC_DEQ | RING_F_EXACT_SZ);
}

void tp_dpdk_work_ring_free(struct rte_ring *ring)
{
	struct rte_mbuf *m;

	while (!rte_ring_dequeue(ring, (void **)&m))
		rte_pktmbuf_free(m);
	rte_ring_free(ring);
}

/* Frames on their way to each worker. */
struct spread {
	struct rte_mbuf *frames[TP_DPDK_WORKERS_MAX][TP_DPDK_BURST];
	__u8 dirs[TP_DPDK_WORKERS_MAX][TP_DPDK_BURST]; /* enum tp_dir of each */
	__u16 n[TP_DPDK_WORKERS_MAX];
};

/* The worker of a UE, as tp_host_user() has it. What has no UE has one worker, too. */
static __u32 worker_of(__u64 ue, __u32 workers)
{
	__u64 hash = (ue ^ ue >> 32) * TP_SPREAD_FACTOR;

	return ue ? (__u32)((hash >> 32) * workers >> 32) : 0;
}

static void hand_on(struct tp_dpdk_receiver *r, struct tp_worker *w, __u32 port, __u32 worker, struct spread *s)
{
	struct rte_mbuf **frames = s->frames[worker];
	__u32 n = s->n[worker], sent, i;

	if (!n)
		return;
	sent = rte_ring_sp_enqueue_burst(r->to[worker], (void *const *)frames, n, NULL);
	tp_queue_nudge(r->wake[worker]);
	for (i = sent; i < n; i++)
		count_unmet(w, port, s->dirs[worker][i], TP_DROP_WORKER_FULL, frames[i]);
	if (sent < n)
		rte_pktmbuf_free_bulk(frames + sent, n - sent);
	s->n[worker] = 0;
}

static __u32 receive_from(struct tp_dpdk_receiver *r, struct tp_worker *w, __u32 port, __u16 queue, struct spread *s)
{
	struct tp_port_config config = w->ports[port];
	struct rte_mbuf *in[TP_DPDK_BURST];
	__u32 came, n, i, to;
	__u8 dir;

	came = rte_eth_rx_burst(r->shared->ports[port].id, queue, in, TP_DPDK_BURST);
	if (!came)
		return 0;
	for (i = 0; i < came; i++)
		rte_prefetch0(rte_pktmbuf_mtod(in[i], void *));
	n = in_one_piece(w, port, in, came);
	config.features = __atomic_load_n(w->features, __ATOMIC_RELAXED);
	for (i = 0; i < n; i++) {
		in[i]->port = (__u16)port; /* ours from here on, and not the device's */
		to = worker_of(tp_host_user(&w->tables, &config, rte_pktmbuf_mtod(in[i], __u8 *), in[i]->data_len,
					    &dir),
			       r->workers);
		s->dirs[to][s->n[to]] = dir;
		s->frames[to][s->n[to]++] = in[i];
	}
	for (to = 0; to < r->workers; to++)
		hand_on(r, w, port, to, s);
	return came;
}

__u32 tp_dpdk_receive(struct tp_dpdk_receiver *r, struct tp_worker *w)
{
	__u32 i, served = 0;
	struct spread s;

	memset(s.n, 0, sizeof(s.n));
	for (i = 0; i < r->polls.n; i++)
		served += receive_from(r, w, r->polls.of[i].port, r->polls.of[i].queue, &s);
	return served;
}
