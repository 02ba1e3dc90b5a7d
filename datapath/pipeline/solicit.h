/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* A UE asks for its router (RFC 4861, 4.1): user space answers, unless a PDR has sent the packet to the SMF. */
#ifndef TP_SOLICIT_H
#define TP_SOLICIT_H

#include "conditions.h"
#include "hand.h"
#include "lost.h"
#include "packet.h"
#include "ration.h"

#define TP_SOLICITATION_NS 100000U /* mean spacing of those that user space gets, per CPU */

/* Is this a Router Solicitation? Then it is handed to user space. TP_OK: it is none.
 *
 * user  tp_pack_lost() of a packet that no PDR took
 * teid  its tunnel */
TP_APART int tp_ask_router(struct tp_env *env, __u64 user, __u32 teid)
{
	struct tp_cpu *cpu = tp_cpu_of(env);
	struct tp_packet p = {0};
	const __u8 *type;
	struct tp_addr dst;

	p.env = env;
	if (!cpu || !(user & TP_USER_FROM_UE) || !tp_unpack_user(&p, user) || p.family == 4)
		return TP_OK;
	dst = tp_destination(&p);
	type = tp_at(&p, p.user + TP_IP6_LEN, 1);
	if (!type || p.ip[6] != TP_IPPROTO_ICMP6 || *type != TP_ICMP6_ROUTER_SOLICITATION ||
	    dst.hi != 0xff02000000000000ULL || dst.lo != 2) /* all routers */
		return TP_OK;
	if (!tp_within_rate(&cpu->solicitation_tat, tp_clock(env, cpu), TP_SOLICITATION_NS))
		return TP_DROP_ROUTER_SOLICITATION;
	return tp_ask_user(env, user, TP_QUOTE_MAX, tp_task_what(TP_TASK_SOLICITATION, 0, 0, 0, 0), teid, 0);
}

/* A packet that no PDR took, for this reason; or what has become of it instead. */
static TP_INLINE int tp_solicited(struct tp_packet *p, int reason)
{
	int r;

	if (p->family != 6 ||
	    (reason != TP_DROP_UE_SPOOFED && reason != TP_DROP_NO_PDR && reason != TP_DROP_QFI_MISMATCH))
		return reason;
	r = tp_ask_router(p->env, tp_pack_lost(p), p->teid);
	if (!r)
		return reason;
	p->entry = NULL; /* it is no packet of the user's, and counts for none */
	return tp_final(r);
}

#endif
