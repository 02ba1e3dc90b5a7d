/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
#include <stdio.h>
#include <string.h>

#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include "tp_dpdk.h"

static struct rte_ring *ring(const char *name, const char *way, __u32 frames)
{
	char full[RTE_RING_NAMESIZE];

	snprintf(full, sizeof(full), "%.16s_%s", name, way);
	return rte_ring_create(full, frames, SOCKET_ID_ANY, RING_F_EXACT_SZ);
}

int tp_dpdk_ring_port(const char *name, __u32 frames, __u32 queues, struct tp_dpdk_ring_port *port)
{
	struct rte_ring *out[TP_DPDK_RING_QUEUES_MAX];
	char way[8];
	__u32 q;
	int id;

	if (!queues || queues > TP_DPDK_RING_QUEUES_MAX)
		return -1;
	port->queues = queues;
	port->out = ring(name, "out", frames);
	for (q = 0; q < queues; q++) {
		snprintf(way, sizeof(way), "in%u", q);
		port->in[q] = ring(name, way, frames);
		out[q] = port->out;
		if (!port->in[q] || !port->out)
			return -1;
	}
	id = rte_eth_from_rings(name, port->in, queues, out, queues, 0);
	port->id = (__u16)id;
	return id < 0 ? -1 : 0;
}

void tp_dpdk_ring_link(const struct tp_dpdk_ring_port *port, int up)
{
	if (up)
		rte_eth_dev_set_link_up(port->id);
	else
		rte_eth_dev_set_link_down(port->id);
}

static void drain(struct rte_ring *ring)
{
	struct rte_mbuf *m;

	while (!rte_ring_dequeue(ring, (void **)&m))
		rte_pktmbuf_free(m);
	rte_ring_free(ring);
}

void tp_dpdk_ring_close(struct tp_dpdk_ring_port *port)
{
	__u32 q;

	for (q = 0; q < port->queues; q++)
		drain(port->in[q]);
	drain(port->out);
}

int tp_dpdk_ring_put(struct tp_dpdk_ring_port *port, __u32 queue, struct rte_mempool *pool, const __u8 *frames, __u32 n,
		     __u32 len)
{
	struct rte_mbuf *all[TP_DPDK_RING_PUT_MAX];
	__u32 i, made = 0;
	void *to;

	for (i = 0; i < n && i < TP_DPDK_RING_PUT_MAX; i++) {
		all[i] = rte_pktmbuf_alloc(pool);
		if (!all[i])
			break;
		made++;
		to = rte_pktmbuf_append(all[i], (__u16)len);
		if (!to)
			break;
		memcpy(to, frames + (__u64)i * len, len);
	}
	if (i == n && rte_ring_enqueue_bulk(port->in[queue], (void *const *)all, n, NULL))
		return 0;
	rte_pktmbuf_free_bulk(all, made);
	return -1;
}

__u32 tp_dpdk_ring_take(struct tp_dpdk_ring_port *port, __u8 *to, __u32 room)
{
	struct rte_mbuf *m;
	__u32 len;

	if (rte_ring_dequeue(port->out, (void **)&m))
		return 0;
	len = rte_pktmbuf_data_len(m);
	memcpy(to, rte_pktmbuf_mtod(m, void *), len < room ? len : room);
	rte_pktmbuf_free(m);
	return len;
}

__u32 tp_dpdk_in_use(const struct rte_mempool *pool) { return rte_mempool_in_use_count(pool); }

static void *stamp_of(struct rte_mbuf *m) { return rte_pktmbuf_mtod_offset(m, __u8 *, m->data_len - sizeof(__u64)); }

static void write_frame(struct rte_mbuf *m, const struct tp_dpdk_pattern *pattern, const struct tp_dpdk_user *user)
{
	__u8 *to = (__u8 *)rte_pktmbuf_append(m, (__u16)pattern->len);

	memcpy(to, pattern->frame, pattern->len);
	memcpy(to + pattern->address_at, &user->address, sizeof(user->address));
	memcpy(to + pattern->checksum_at, &user->checksum, sizeof(user->checksum));
	if (pattern->teid_at)
		memcpy(to + pattern->teid_at, &user->teid, sizeof(user->teid));
}

/* Out of the CPU's own caches, as a NIC leaves it that writes into the one that CPUs share. CPUs that lack the instruction (CLDEMOTE)
 * take it for none: there, so many buffers in turn have to do it. */
static void demote(const struct rte_mbuf *m)
{
#ifdef __x86_64__
	const __u8 *line = rte_pktmbuf_mtod(m, const __u8 *), *end = line + m->data_len;

	for (; line < end; line += RTE_CACHE_LINE_SIZE)
		__asm__ volatile(".byte 0x0f, 0x1c, 0x07" : : "D"(line));
#endif
}

__u32 tp_dpdk_ring_load(struct tp_dpdk_ring_port *port, struct rte_mempool *pool, const struct tp_dpdk_pattern *pattern,
			const struct tp_dpdk_user *users, __u32 n, __u64 stamp)
{
	struct rte_mbuf *frames[TP_DPDK_BURST];
	__u32 i;

	if (n > TP_DPDK_BURST || rte_pktmbuf_alloc_bulk(pool, frames, n))
		return 0;
	for (i = 0; i < n; i++)
		write_frame(frames[i], pattern, &users[i]);
	if (stamp)
		memcpy(stamp_of(frames[0]), &stamp, sizeof(stamp));
	for (i = 0; i < n; i++)
		demote(frames[i]);
	if (!rte_ring_enqueue_bulk(port->in[0], (void **)frames, n, NULL)) {
		rte_pktmbuf_free_bulk(frames, n);
		return 0;
	}
	return n;
}

__u32 tp_dpdk_ring_unload(struct tp_dpdk_ring_port *port, __u64 *stamps, __u32 *n_stamps)
{
	struct rte_mbuf *frames[TP_DPDK_BURST];
	__u32 i, n = rte_ring_dequeue_burst(port->out, (void **)frames, TP_DPDK_BURST, NULL);
	__u64 stamp;

	for (i = 0; stamps && i < n; i++) {
		memcpy(&stamp, stamp_of(frames[i]), sizeof(stamp));
		if (stamp)
			stamps[(*n_stamps)++] = stamp;
	}
	if (n)
		rte_pktmbuf_free_bulk(frames, n);
	return n;
}

__u32 tp_dpdk_ring_pass_on(__u16 from, __u16 to)
{
	struct rte_mbuf *frames[TP_DPDK_BURST];
	__u16 i, n = rte_eth_rx_burst(from, 0, frames, TP_DPDK_BURST), sent;

	for (i = 0; i < n; i++)
		rte_prefetch0(rte_pktmbuf_mtod(frames[i], void *));
	for (i = 0; i < n; i++)
		(void)*rte_pktmbuf_mtod(frames[i], volatile const __u8 *);
	sent = n ? rte_eth_tx_burst(to, 0, frames, n) : 0;

	if (sent < n)
		rte_pktmbuf_free_bulk(frames + sent, n - sent);
	return n;
}
