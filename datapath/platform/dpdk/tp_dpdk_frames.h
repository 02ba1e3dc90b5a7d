/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What receive cores and workers do alike with frames of DPDK. */
#ifndef TP_DPDK_FRAMES_H
#define TP_DPDK_FRAMES_H

#include <rte_mbuf.h>
#include <rte_prefetch.h>

#include "tp_dpdk.h"
#include "tp_drop.h"

/* Direction that a frame which only the port is known of counts for. */
static inline __u32 direction_of(const struct tp_worker *w, __u32 port) { return !(w->ports[port].roles & TP_ROLE_N3); }

static inline void count_drops(struct tp_worker *w, __u32 port, enum tp_drop reason, __u64 frames)
{
	w->tables.cpu->drops[port][direction_of(w, port)][reason] += frames;
}

/* A frame that came in and is lost before the pipeline, which would have counted it, meets it.
 *
 * dir  enum tp_dir */
static inline void count_unmet(struct tp_worker *w, __u32 port, __u32 dir, enum tp_drop reason, const struct rte_mbuf *m)
{
	struct tp_cpu *cpu = w->tables.cpu;

	cpu->ports[port].in[dir].packets++;
	cpu->ports[port].in[dir].bytes += m->pkt_len;
	cpu->drops[port][dir][reason]++;
}

/* Have each frame lie in one piece, as the pipeline takes it. How many there still are, in their order. */
static inline __u32 in_one_piece(struct tp_worker *w, __u32 port, struct rte_mbuf **in, __u32 n)
{
	__u32 i, left = 0;
	struct rte_mbuf *m;

	/* Drivers have just written them, other cores and rings have not. */
	for (i = 0; i < n; i++)
		rte_prefetch0(in[i]);
	for (i = 0; i < n; i++) {
		m = in[i];
		if (unlikely(m->nb_segs > 1) && rte_pktmbuf_linearize(m)) {
			count_unmet(w, port, direction_of(w, port), TP_DROP_FRAME_TOO_LONG, m);
			rte_pktmbuf_free(m);
			continue;
		}
		in[left++] = m;
	}
	return left;
}

#endif
