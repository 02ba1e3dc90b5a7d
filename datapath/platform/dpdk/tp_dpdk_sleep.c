/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Threads that sleep until one of their queues has something, where devices can wake them. */
#include <sys/epoll.h>
#include <unistd.h>

#include <rte_ethdev.h>
#include <rte_interrupts.h>

#include "tp_dpdk.h"

enum step { STEP_ADD, STEP_REMOVE, STEP_ARM, STEP_DISARM };

static int do_step(const struct tp_dpdk_sleeper *s, __u16 port, __u16 queue, enum step step)
{
	switch (step) {
	case STEP_ADD:
		return rte_eth_dev_rx_intr_ctl_q(port, queue, s->epoll, RTE_INTR_EVENT_ADD, NULL);
	case STEP_REMOVE:
		return rte_eth_dev_rx_intr_ctl_q(port, queue, s->epoll, RTE_INTR_EVENT_DEL, NULL);
	case STEP_ARM:
		/* Devices whose descriptors are readable as long as there are frames have nothing to enable. */
		return rte_eth_dev_rx_intr_enable(port, queue);
	default:
		return rte_eth_dev_rx_intr_disable(port, queue);
	}
}

/* For each queue of this thread. How many steps failed. */
static __u32 each_queue(const struct tp_dpdk_sleeper *s, enum step step)
{
	__u32 i, failed = 0;

	for (i = 0; i < s->polls.n; i++)
		failed += do_step(s, s->shared->ports[s->polls.of[i].port].id, s->polls.of[i].queue, step) != 0;
	return failed;
}

int tp_dpdk_sleeper_start(struct tp_dpdk_sleeper *s)
{
	struct epoll_event readable = {.events = EPOLLIN};

	s->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (s->epoll < 0)
		return -1;
	if (!each_queue(s, STEP_ADD) &&
	    (!s->from_kernel || !epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->from_kernel->fd, &readable)))
		return 0;
	tp_dpdk_sleeper_stop(s);
	return -1;
}

void tp_dpdk_sleeper_stop(struct tp_dpdk_sleeper *s)
{
	each_queue(s, STEP_REMOVE);
	close(s->epoll);
	s->epoll = -1;
}

void tp_dpdk_arm(const struct tp_dpdk_sleeper *s)
{
	each_queue(s, STEP_ARM);
	if (s->from_kernel)
		tp_queue_rest(s->from_kernel);
	/* After the descriptor was read: whoever is told from here on makes it readable again. */
	if (s->from_control)
		tp_queue_rest(s->from_control);
}

int tp_dpdk_sleep(const struct tp_dpdk_sleeper *s, __u32 ms)
{
	struct rte_epoll_event events[TP_PORTS_MAX];

	return rte_epoll_wait(s->epoll, events, TP_PORTS_MAX, (int)ms) > 0;
}

void tp_dpdk_disarm(const struct tp_dpdk_sleeper *s) { each_queue(s, STEP_DISARM); }
