/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Stage 1, open: from a frame to its key, a TEID or a network instance and a UE's address. The frame is read only. */
#ifndef TP_OPEN_H
#define TP_OPEN_H

#include "gtpu.h"
#include "packet.h"
#include "parse.h"
#include "trace.h"

/* On a port towards the access side: up to the GTP-U header. TP_OUT_PASS: not GTP-U to us. */
static TP_INLINE int tp_open_tunnel(struct tp_run *run, struct tp_packet *p, __u32 ethertype)
{
	int r = tp_has(p->env, TP_FEAT_OUTER6) && ethertype == TP_ETH_IPV6 ? tp_parse_outer6(run, p) : tp_parse_outer(run, p);

	if (tp_unlikely(r == TP_OUT_FRAGMENT))
		return TP_PLAN_REASSEMBLE;
	if (r)
		return r;
	r = tp_parse_gtpu(p);
	if (tp_has(p->env, TP_FEAT_TRACE))
		tp_trace_headers(p);
	if (r || tp_likely(p->type == TP_GTPU_GPDU))
		return r;
	return tp_has(p->env, TP_FEAT_RELAY) && p->type == TP_GTPU_END_MARKER ? TP_PLAN_MARKER : TP_PLAN_MESSAGE;
}

/* On a port towards the data network: the user's IP header. TP_OUT_PASS: not IP. */
static TP_INLINE int tp_open_plain(struct tp_packet *p, __u32 ethertype)
{
	int r;

	p->dir = TP_DOWNLINK;
	if (ethertype != TP_ETH_IPV4 && (ethertype != TP_ETH_IPV6 || !tp_has(p->env, TP_FEAT_IPV6)))
		return TP_OUT_PASS;
	p->user = p->l3;
	if (tp_has(p->env, TP_FEAT_TRACE))
		tp_trace_headers(p);
	r = tp_parse_user(p, p->frame_len - p->l3, TP_DROP_IP_MALFORMED);
	return !r && (p->family == 4) != (ethertype == TP_ETH_IPV4) ? TP_DROP_IP_MALFORMED : r;
}

static TP_INLINE int tp_open(struct tp_run *run, struct tp_packet *p)
{
	__u32 roles = tp_roles_of(p->env), ethertype;
	int r = tp_parse_ethernet(p, &ethertype);

	if (r)
		return r;
	if (TP_SPLIT) /* so that what follows is followed once, and not for each number of tags */
		p->l3 = tp_forget(p->data, p->data + p->l3);
	r = TP_OUT_PASS;
	if ((roles & TP_ROLE_N3) &&
	    (ethertype == TP_ETH_IPV4 || (ethertype == TP_ETH_IPV6 && tp_has(p->env, TP_FEAT_OUTER6))))
		r = tp_open_tunnel(run, p, ethertype);
	/* Once there was a GTP-U header it is no longer passed; the verifier should know. */
	if ((roles & TP_ROLE_N6) && r == TP_OUT_PASS && !p->gtpu)
		r = tp_open_plain(p, ethertype);
	return r;
}

#endif
