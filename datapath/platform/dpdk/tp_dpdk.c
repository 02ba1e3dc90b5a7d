/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include "tp_dpdk_frames.h"

#define DESCRIPTORS 1024

static __u64 monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (__u64)now.tv_sec * 1000000000 + (__u64)now.tv_nsec;
}

int tp_dpdk_start(int argc, char **argv, char *why)
{
	cpu_set_t cpus;
	int r;

	if (sched_getaffinity(0, sizeof(cpus), &cpus))
		CPU_ZERO(&cpus);
	r = rte_eal_init(argc, argv);
	if (r < 0)
		snprintf(why, TP_DPDK_WHY, "%s; DPDK has written why to standard error", rte_strerror(rte_errno));
	if (CPU_COUNT(&cpus))
		sched_setaffinity(0, sizeof(cpus), &cpus);
	return r < 0 ? -1 : 0;
}

struct rte_mempool *tp_dpdk_pool(__u32 buffers, __u32 octets, int node)
{
	static __u32 pools;
	char name[RTE_MEMPOOL_NAMESIZE];

	snprintf(name, sizeof(name), "turnpike%u", pools++);
	return rte_pktmbuf_pool_create(name, buffers, 256, 0, (__u16)(RTE_PKTMBUF_HEADROOM + octets), node);
}

/* The port of a device that is there, or can be made or found. */
static int find(const char *device, __u16 *id)
{
	struct rte_dev_iterator all;
	char name[RTE_ETH_NAME_MAX_LEN];

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(device, ","), device);
	if (!rte_eth_dev_get_port_by_name(name, id))
		return 0;
	if (rte_dev_probe(device))
		return -1;
	RTE_ETH_FOREACH_MATCHING_DEV(*id, device, &all) {
		rte_eth_iterator_cleanup(&all);
		return 0;
	}
	return rte_eth_dev_get_port_by_name(name, id);
}

/* All its sockets take frames, whether anybody polls them or not. */
static int takes_by_all(const struct rte_eth_dev_info *info) { return !strcmp(info->driver_name, "net_af_packet"); }

static __u32 pollers(const struct tp_dpdk_queues *queues) { return (__u32)__builtin_popcountll(queues->pollers); }

static int has_queues(const char *device, const struct tp_dpdk_queues *queues, const struct rte_eth_dev_info *info, char *why)
{
	if (queues->receivers) {
		if (info->max_tx_queues >= queues->workers)
			return 1;
		snprintf(why, TP_DPDK_WHY,
			 "%.100s has %u transmit queues, and each of %u workers needs one: give it more "
			 "(net_af_packet: qpairs=%u), or lower datapath.workers",
			 device, info->max_tx_queues, queues->workers, queues->workers);
		return 0;
	}
	if (takes_by_all(info) && info->max_rx_queues > queues->workers) {
		snprintf(why, TP_DPDK_WHY,
			 "%.100s takes frames in by %u queues, and %u workers poll as many: give it qpairs=%u, or raise "
			 "datapath.workers",
			 device, info->max_rx_queues, queues->workers, queues->workers);
		return 0;
	}
	if (info->max_rx_queues >= pollers(queues) && info->max_tx_queues >= queues->workers)
		return 1;
	snprintf(why, TP_DPDK_WHY,
		 "%.100s has %u receive and %u transmit queues, and %u workers receive by one each, %u send by one each: give it "
		 "more (net_af_packet: qpairs=%u), or lower datapath.workers",
		 device, info->max_rx_queues, info->max_tx_queues, pollers(queues), queues->workers, queues->workers);
	return 0;
}

/* Receive queues to be polled. Each thread that polls has one of its own where there are as many. */
static __u16 receive_queues(const struct tp_dpdk_queues *queues, const struct rte_eth_dev_info *info)
{
	__u32 queues_max = info->max_rx_queues < TP_DPDK_QUEUES_MAX ? info->max_rx_queues : TP_DPDK_QUEUES_MAX;

	return (__u16)(takes_by_all(info) || pollers(queues) > queues_max ? queues_max : pollers(queues));
}

/* Queues go round the threads that poll. */
static void share_out(const struct tp_dpdk_queues *queues, struct tp_dpdk_port *port)
{
	__u8 threads[64];
	__u32 n = 0, i;

	for (i = 0; i < 64; i++)
		if (queues->pollers >> i & 1)
			threads[n++] = (__u8)i;
	for (i = 0; n && i < port->receive; i++)
		port->poller[i] = threads[(queues->first + i) % n];
}

void tp_dpdk_polled(const struct tp_dpdk_shared *shared, __u32 number, struct tp_dpdk_polls *polls)
{
	__u32 port, queue;

	polls->n = 0;
	for (port = 0; port < shared->n_ports; port++) {
		for (queue = 0; queue < shared->ports[port].receive; queue++) {
			if (shared->ports[port].poller[queue] != number)
				continue;
			polls->of[polls->n].port = (__u8)port;
			polls->of[polls->n++].queue = (__u8)queue;
		}
	}
}

/* What failed of a device, and why. */
static int told(const char *device, const char *what, int error, char *why)
{
	snprintf(why, TP_DPDK_WHY, "%.100s: %s: %s", device, what, rte_strerror(error < 0 ? -error : error));
	return -1;
}

static int set_up_queues(const struct tp_dpdk_port *port, __u16 transmit, const struct rte_eth_dev_info *info,
			 struct rte_mempool *pool)
{
	__u16 in = DESCRIPTORS, out = DESCRIPTORS, q;
	int socket = rte_eth_dev_socket_id(port->id), r;

	r = rte_eth_dev_adjust_nb_rx_tx_desc(port->id, &in, &out);
	for (q = 0; !r && q < port->receive; q++)
		r = rte_eth_rx_queue_setup(port->id, q, in, (unsigned int)socket, &info->default_rxconf, pool);
	for (q = 0; !r && q < transmit; q++)
		r = rte_eth_tx_queue_setup(port->id, q, out, (unsigned int)socket, &info->default_txconf);
	return r;
}

static int start(const char *device, const struct rte_eth_conf *conf, __u16 transmit, const struct rte_eth_dev_info *info,
		 struct rte_mempool *pool, const struct tp_dpdk_port *port, char *why)
{
	int r;

	r = rte_eth_dev_configure(port->id, port->receive, transmit, conf);
	if (r)
		return told(device, "configuration", r, why);
	r = set_up_queues(port, transmit, info, pool);
	if (r)
		return told(device, "queues", r, why);
	r = rte_eth_dev_start(port->id);
	return r ? told(device, "start", r, why) : 0;
}

/* Has each receive queue a descriptor to sleep on? */
static __u16 can_wake(const struct tp_dpdk_port *port)
{
	int log = rte_log_register("lib.ethdev"), level = log < 0 ? 0 : rte_log_get_level((__u32)log);
	__u16 queue = 0;

	/* That a device has none is no error here. */
	if (log >= 0)
		rte_log_set_level((__u32)log, RTE_LOG_CRIT);
	while (queue < port->receive && rte_eth_dev_rx_intr_ctl_q_get_fd(port->id, queue) >= 0)
		queue++;
	if (log >= 0)
		rte_log_set_level((__u32)log, (__u32)level);
	return queue == port->receive;
}

/* Octets of the longest IP packet that a device takes, as rte_eth_dev_configure() judges it. */
static __u32 longest_packet(const struct rte_eth_dev_info *info)
{
	__u32 beside = RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN, longest = info->max_mtu;

	if (info->max_mtu != UINT16_MAX && info->max_rx_pktlen > info->max_mtu)
		beside = info->max_rx_pktlen - info->max_mtu;
	if (info->max_rx_pktlen > beside && info->max_rx_pktlen - beside < longest)
		longest = info->max_rx_pktlen - beside;
	return longest;
}

int tp_dpdk_open(const char *device, const struct tp_dpdk_queues *queues, __u32 mtu, struct rte_mempool *pool,
		 struct tp_dpdk_port *port, char *why)
{
	struct rte_eth_conf conf = {0};
	struct rte_eth_dev_info info;
	struct rte_ether_addr mac;
	__u16 id, transmit = (__u16)queues->workers;
	int r;

	if (find(device, &id)) {
		snprintf(why, TP_DPDK_WHY, "%.100s: DPDK has no such device, or lacks its driver; it has written why to standard error",
			 device);
		return -1;
	}
	r = rte_eth_dev_info_get(id, &info);
	if (r)
		return told(device, "information", r, why);
	if (!has_queues(device, queues, &info, why))
		return -1;
	if (mtu > longest_packet(&info)) {
		snprintf(why, TP_DPDK_WHY,
			 "%.100s takes packets of %u octets at most, and the MTU of its TAP interface is %u: lower that "
			 "(ip link set NAME mtu %u)",
			 device, longest_packet(&info), mtu, longest_packet(&info));
		return -1;
	}
	port->id = id;
	port->receive = receive_queues(queues, &info);
	share_out(queues, port);
	conf.rxmode.mtu = mtu;
	if (port->receive > 1) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf =
			info.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_TCP);
		if (!conf.rx_adv_conf.rss_conf.rss_hf)
			conf.rxmode.mq_mode = RTE_ETH_MQ_RX_NONE;
	}
	conf.intr_conf.rxq = queues->may_sleep != 0;
	r = start(device, &conf, transmit, &info, pool, port, why);
	if (r && conf.intr_conf.rxq) {
		conf.intr_conf.rxq = 0;
		r = start(device, &conf, transmit, &info, pool, port, why);
	}
	if (r)
		return r;
	port->wakes = conf.intr_conf.rxq && can_wake(port);
	rte_eth_allmulticast_enable(id); /* neighbour discovery; devices that cannot say so see all */
	memset(&mac, 0, sizeof(mac));
	rte_eth_macaddr_get(id, &mac);
	memcpy(port->mac, mac.addr_bytes, sizeof(port->mac));
	return 0;
}

void tp_dpdk_close(const struct tp_dpdk_port *port)
{
	rte_eth_dev_stop(port->id);
	rte_eth_dev_close(port->id);
}

void tp_dpdk_look(const struct tp_dpdk_port *port, struct tp_dpdk_state *state)
{
	struct rte_eth_link link = {0};
	struct rte_eth_stats stats = {0};

	/* One that does not know is taken for up. */
	state->up = rte_eth_link_get_nowait(port->id, &link) || link.link_status == RTE_ETH_LINK_UP;
	if (rte_eth_stats_get(port->id, &stats))
		return;
	state->missed = stats.imissed;
	state->unsent = stats.oerrors;
	state->no_buffer = stats.rx_nombuf;
}

int tp_dpdk_join(int cpu)
{
	cpu_set_t cpus;

	if (cpu >= 0) {
		CPU_ZERO(&cpus);
		CPU_SET((unsigned int)cpu, &cpus);
		if (sched_setaffinity(0, sizeof(cpus), &cpus))
			return -1;
	}
	return rte_thread_register();
}

void tp_dpdk_leave(void) { rte_thread_unregister(); }

/* Frames on their way out of each port. */
struct out {
	struct rte_mbuf *frames[TP_PORTS_MAX][TP_DPDK_BURST];
	__u16 n[TP_PORTS_MAX];
};

static void put_out(struct out *out, __u32 port, struct rte_mbuf *m) { out->frames[port][out->n[port]++] = m; }

/* came_by: the port that loses what this one does not take. */
static void send_out(struct tp_dpdk_worker *d, struct tp_worker *w, __u32 came_by, __u32 port, struct out *out)
{
	struct rte_mbuf **frames = out->frames[port];
	__u32 n = out->n[port], sent;

	if (!n)
		return;
	sent = rte_eth_tx_burst(d->shared->ports[port].id, d->queue, frames, (__u16)n);
	if (sent < n) {
		count_drops(w, came_by, TP_DROP_PORT_FULL, n - sent);
		rte_pktmbuf_free_bulk(frames + sent, n - sent);
	}
	out->n[port] = 0;
}

static void pass(struct tp_dpdk_worker *d, struct tp_worker *w, __u32 port, const struct rte_mbuf *m)
{
	struct tp_dpdk_record record = {port, 0, 0};
	__u32 len = sizeof(record) + m->data_len;
	__u8 *room = tp_queue_reserve(d->shared->to_kernel, len);

	if (!room) {
		count_drops(w, port, TP_DROP_TAP_FULL, 1);
		return;
	}
	memcpy(room, &record, sizeof(record));
	memcpy(room + sizeof(record), rte_pktmbuf_mtod(m, void *), m->data_len);
	tp_queue_commit(d->shared->to_kernel, room, len);
}

/* A frame that leaves later waits as it is; meanwhile it knows the ports that it came by (port) and leaves by (to). */
static void keep(struct tp_worker *w, __u32 port, __u32 to, __u64 leaves_ns, struct rte_mbuf *m)
{
	enum tp_wheel_answer r;

	m->port = (__u16)port;
	m->hash.usr = to;
	r = tp_wheel_put(w->wheel, leaves_ns, (__u64)(uintptr_t)m);
	if (r) {
		count_drops(w, port, r == TP_WHEEL_FULL ? TP_DROP_SHAPER_FULL : TP_DROP_SHAPER_HORIZON, 1);
		rte_pktmbuf_free(m);
	}
}

/* Frames that are due leave by a port; what it does not take is lost by those that it came by. */
static void send_due(struct tp_dpdk_worker *d, struct tp_worker *w, __u32 port, struct out *out)
{
	struct rte_mbuf **frames = out->frames[port];
	__u32 n = out->n[port], i;

	out->n[port] = 0;
	for (i = n ? rte_eth_tx_burst(d->shared->ports[port].id, d->queue, frames, (__u16)n) : 0; i < n; i++) {
		count_drops(w, frames[i]->port, TP_DROP_PORT_FULL, 1);
		rte_pktmbuf_free(frames[i]);
	}
}

/* What is due leaves. How many frames there were. */
static __u32 depart(struct tp_dpdk_worker *d, struct tp_worker *w, __u64 now_ns, struct out *out)
{
	__u64 due[TP_DPDK_BURST];
	__u32 n, i, port, left = 0;
	struct rte_mbuf *m;

	if (!w->wheel)
		return 0;
	while ((n = tp_wheel_take(w->wheel, now_ns, due, TP_DPDK_BURST))) {
		for (i = 0; i < n; i++) {
			m = (struct rte_mbuf *)(uintptr_t)due[i];
			put_out(out, m->hash.usr, m);
		}
		for (port = 0; port < d->shared->n_ports; port++)
			send_due(d, w, port, out);
		left += n;
	}
	return left;
}

/* A frame of another thread's: it is sent as it is. One above its rate waits, unless all that was to leave by then has left. */
static void take(struct tp_worker *w, const struct tp_dpdk_record *record, struct rte_mbuf *m, struct out *out)
{
	if (w->wheel && record->leaves_ns > tp_wheel_left_ns(w->wheel))
		keep(w, record->came_by, record->port, record->leaves_ns, m);
	else
		put_out(out, record->port, m);
}

/* Records of one queue: all that are there now. */
static __u32 serve_queue(struct tp_dpdk_worker *d, struct tp_worker *w, struct tp_queue *q, struct out *out)
{
	__u64 there = __atomic_load_n(&q->state->written, __ATOMIC_ACQUIRE);
	struct tp_dpdk_record record;
	__u32 n = 0, len;
	struct rte_mbuf *m;
	const __u8 *at;
	void *to;

	while (q->state->read != there && (at = tp_queue_peek(q, &len))) {
		memcpy(&record, at, sizeof(record));
		m = rte_pktmbuf_alloc(d->shared->pool);
		to = m ? rte_pktmbuf_append(m, (__u16)(len - sizeof(record))) : NULL;
		if (to) {
			memcpy(to, at + sizeof(record), len - sizeof(record));
			take(w, &record, m, out);
		} else {
			count_drops(w, record.port, m ? TP_DROP_FRAME_TOO_LONG : TP_DROP_NO_BUFFER, 1);
			rte_pktmbuf_free(m);
		}
		tp_queue_release(q, len);
		if (out->n[record.port] == TP_DPDK_BURST)
			send_out(d, w, record.port, record.port, out);
		n++;
	}
	return n;
}

/* Frames that the kernel sends, and threads beside workers. */
static __u32 serve_kernel(struct tp_dpdk_worker *d, struct tp_worker *w, struct out *out)
{
	__u32 n = serve_queue(d, w, d->from_kernel, out), port;

	if (d->from_control)
		n += serve_queue(d, w, d->from_control, out);
	for (port = 0; n && port < d->shared->n_ports; port++)
		send_out(d, w, port, port, out);
	return n;
}

/* Run frames that came in on a port, and send them on. */
static void serve(struct tp_dpdk_worker *d, struct tp_worker *w, __u32 port, struct rte_mbuf **in, __u32 n, struct out *out)
{
	struct tp_frame frames[TP_DPDK_BURST];
	struct rte_mbuf *done[TP_DPDK_BURST];
	__u32 i, to, n_done = 0;
	__u64 now_ns = monotonic_ns();

	for (i = 0; i < n; i++) {
		frames[i].buf = in[i]->buf_addr;
		frames[i].cap = in[i]->buf_len;
		frames[i].offset = in[i]->data_off;
		frames[i].len = in[i]->data_len;
	}
	depart(d, w, now_ns, out);
	tp_worker_burst(w, port, frames, n, now_ns);
	/* Packets that have waited, and that these are not to overtake, are there by now. */
	serve_kernel(d, w, out);
	for (i = 0; i < n; i++) {
		in[i]->data_off = (__u16)frames[i].offset;
		in[i]->data_len = (__u16)frames[i].len;
		in[i]->pkt_len = frames[i].len;
		switch (frames[i].verdict) {
		case TP_VERDICT_TX:
			put_out(out, port, in[i]);
			break;
		case TP_VERDICT_REDIRECT:
			put_out(out, frames[i].detail, in[i]);
			break;
		case TP_VERDICT_LATER:
			keep(w, port, frames[i].detail, frames[i].leaves_ns, in[i]);
			break;
		case TP_VERDICT_PASS:
			pass(d, w, port, in[i]);
			/* fall through */
		default:
			done[n_done++] = in[i];
		}
	}
	for (to = 0; to < d->shared->n_ports; to++)
		send_out(d, w, port, to, out);
	if (n_done)
		rte_pktmbuf_free_bulk(done, n_done);
}

/* Run to completion: what a queue of this worker's own has. */
static __u32 serve_port(struct tp_dpdk_worker *d, struct tp_worker *w, __u32 port, __u16 queue, struct out *out)
{
	struct rte_mbuf *in[TP_DPDK_BURST];
	__u32 came = rte_eth_rx_burst(d->shared->ports[port].id, queue, in, TP_DPDK_BURST);

	if (came)
		serve(d, w, port, in, in_one_piece(w, port, in, came), out);
	return came;
}

/* Pipeline: what a receive core has for this worker. Frames of one port that follow one another run together. */
static __u32 serve_ring(struct tp_dpdk_worker *d, struct tp_worker *w, struct rte_ring *ring, struct out *out)
{
	struct rte_mbuf *in[TP_DPDK_BURST];
	__u32 came = rte_ring_sc_dequeue_burst(ring, (void **)in, TP_DPDK_BURST, NULL), first, end;

	for (first = 0; first < came; first = end) {
		end = first + 1;
		while (end < came && in[end]->port == in[first]->port)
			end++;
		serve(d, w, in[first]->port, in + first, end - first, out);
	}
	return came;
}

__u32 tp_dpdk_serve(struct tp_dpdk_worker *d, struct tp_worker *w)
{
	__u32 i, served = 0;
	struct out out;

	memset(out.n, 0, sizeof(out.n));
	w->tables.ports_up = __atomic_load_n(&d->shared->up, __ATOMIC_RELAXED);
	for (i = 0; i < d->receivers; i++)
		served += serve_ring(d, w, d->from[i], &out);
	for (i = 0; i < d->polls.n; i++)
		served += serve_port(d, w, d->polls.of[i].port, d->polls.of[i].queue, &out);
	if (w->wheel)
		served += depart(d, w, monotonic_ns(), &out);
	return served + serve_kernel(d, w, &out);
}

void tp_dpdk_free_waiting(struct tp_worker *w)
{
	__u64 frame;

	while (w->wheel && tp_wheel_take(w->wheel, TP_WHEEL_NEVER, &frame, 1))
		rte_pktmbuf_free((struct rte_mbuf *)(uintptr_t)frame);
}

void tp_dpdk_take_lost(struct tp_dpdk_worker *d, struct tp_worker *w)
{
	struct tp_dpdk_lost *lost;
	__u32 port;

#define TAKE(what, reason) count_drops(w, port, reason, __atomic_exchange_n(&lost->what, 0, __ATOMIC_RELAXED))
	for (port = 0; port < d->shared->n_ports; port++) {
		lost = &d->shared->lost[port];
		TAKE(missed, TP_DROP_PORT_MISSED);
		TAKE(unsent, TP_DROP_REDIRECT);
		TAKE(no_buffer, TP_DROP_NO_BUFFER);
		TAKE(tap_full, TP_DROP_TAP_FULL);
		TAKE(tap_refused, TP_DROP_TAP_REFUSED);
	}
}
