/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Messages that answer a frame in its own place: Echo Response, Error Indication (TS 29.281, 7.2.2, 7.3.1). */
#ifndef TP_ANSWER_H
#define TP_ANSWER_H

#include "gtpu.h"
#include "hand.h"
#include "packet.h"
#include "ration.h"
#include "tunnel.h"

/* Octets of each answer from the GTP-U header on. */
#define TP_ECHO_RESPONSE_LEN 14U
#define TP_ERROR_INDICATION_LEN 24U
#define TP_ERROR_INDICATION6_LEN 36U

/* The frame becomes len octets long, and its MAC addresses are swapped. 0, or non-zero when there is no room. */
static TP_INLINE int tp_turn_ethernet(struct tp_env *env, __u32 len)
{
	__u32 mac_low, old_len = (__u32)(tp_end(env) - tp_data(env));
	__u16 mac_high;
	__u8 *eth;

	if (tp_resize(env, 0, (int)len - (int)old_len))
		return 1;
	eth = tp_span(tp_data(env), tp_end(env), 0, 14);
	if (!eth)
		return 1;
	mac_low = tp_load32(eth);
	mac_high = tp_load16(eth + 4);
	tp_store32(eth, tp_load32(eth + 6));
	tp_store16(eth + 4, tp_load16(eth + 10));
	tp_store32(eth + 6, mac_low);
	tp_store16(eth + 10, mac_high);
	return 0;
}

/* Turn the frame round: addresses swapped, IPv4 and UDP to the asker's address and port_be, room for
 * gtpu_len octets of GTP-U. Tags and what came in front of IP stay.
 *
 * 0, or non-zero when there is no room. */
static TP_INLINE int tp_turn_round(struct tp_env *env, __u32 l3, __u16 port_be, __u32 gtpu_len)
{
	__u8 *ip = tp_span(tp_data(env), tp_end(env), l3, TP_IP4_LEN);
	__u32 asker_be, ours_be;

	if (!ip)
		return 1;
	asker_be = tp_load32(ip + 12);
	ours_be = tp_load32(ip + 16);
	if (tp_turn_ethernet(env, l3 + TP_IP4_LEN + TP_UDP_LEN + gtpu_len))
		return 1;
	ip = tp_span(tp_data(env), tp_end(env), l3, TP_IP4_LEN + TP_UDP_LEN);
	if (!ip)
		return 1;
	tp_put_outer_ip(ip, ours_be, asker_be, port_be, gtpu_len);
	return 0;
}

/* As tp_turn_round(), of IPv6; extension headers go. The UDP checksum waits for the GTP-U message. */
static TP_INLINE int tp_turn_round6(struct tp_env *env, __u32 l3, __u16 port_be, __u32 gtpu_len)
{
	__u8 *ip = tp_span(tp_data(env), tp_end(env), l3, TP_IP6_LEN);
	__u64 asker[2], ours[2];

	if (!ip)
		return 1;
	asker[0] = tp_load64(ip + 8);
	asker[1] = tp_load64(ip + 16);
	ours[0] = tp_load64(ip + 24);
	ours[1] = tp_load64(ip + 32);
	if (tp_turn_ethernet(env, l3 + TP_IP6_LEN + TP_UDP_LEN + gtpu_len))
		return 1;
	ip = tp_span(tp_data(env), tp_end(env), l3, TP_IP6_LEN + TP_UDP_LEN);
	if (!ip)
		return 1;
	tp_put_outer_ip6(ip, (const __u8 *)ours, (const __u8 *)asker, port_be, gtpu_len, 0);
	return 0;
}

static TP_INLINE void tp_put_echo_response(__u8 *h, __u16 sequence)
{
	tp_put32(h, (__u32)(TP_GTPU_VERSION_1 | TP_GTPU_S) << 24 | TP_GTPU_ECHO_RESPONSE << 16 |
			    (TP_ECHO_RESPONSE_LEN - TP_GTPU_LEN));
	tp_store32(h + 4, 0);
	tp_store32(h + 8, sequence);
	tp_put16(h + 12, TP_GTPU_IE_RECOVERY << 8);
}

/* Error Indication up to the octets of the peer address. len: of the whole message. */
static TP_INLINE void tp_put_error_indication(__u8 *h, __u32 teid, __u32 len)
{
	tp_put32(h, (__u32)(TP_GTPU_VERSION_1 | TP_GTPU_S) << 24 | TP_GTPU_ERROR_INDICATION << 16 |
			    (len - TP_GTPU_LEN));
	tp_store32(h + 4, 0);
	tp_store32(h + 8, 0);
	h[12] = TP_GTPU_IE_TEID_DATA_I;
	tp_put32(h + 13, teid);
	h[17] = TP_GTPU_IE_PEER_ADDRESS;
	tp_put16(h + 18, (__u16)(len - 20));
}

/* Echo Response to the port that asked, with the request's sequence number (4.4.2.2). Our restart
 * counter is always zero (8.2). 0, or non-zero when there is no room. */
TP_APART int tp_answer_echo(struct tp_env *env, __u32 l3, __u32 gtpu)
{
	__u8 *data = tp_data(env), *end = tp_end(env);
	__u8 *h = tp_span(data, end, gtpu, TP_GTPU_LEN + TP_GTPU_OPTIONAL_LEN);
	__u8 *udp = tp_span(data, end, gtpu - TP_UDP_LEN, TP_UDP_LEN);
	__u16 sequence = h && (h[0] & TP_GTPU_S) ? tp_load16(h + 8) : 0;
	__u16 port_be = udp ? tp_load16(udp) : 0;

	if (tp_turn_round(env, l3, port_be, TP_ECHO_RESPONSE_LEN))
		return 1;
	h = tp_span(tp_data(env), tp_end(env), l3 + TP_IP4_LEN + TP_UDP_LEN, TP_ECHO_RESPONSE_LEN);
	if (!h)
		return 1;
	tp_put_echo_response(h, sequence);
	return 0;
}

TP_APART int tp_answer_echo6(struct tp_env *env, __u32 l3, __u32 gtpu)
{
	__u8 *data = tp_data(env), *end = tp_end(env);
	__u8 *h = tp_span(data, end, gtpu, TP_GTPU_LEN + TP_GTPU_OPTIONAL_LEN);
	__u8 *udp = tp_span(data, end, gtpu - TP_UDP_LEN, TP_UDP_LEN);
	__u16 sequence = h && (h[0] & TP_GTPU_S) ? tp_load16(h + 8) : 0;
	__u16 port_be = udp ? tp_load16(udp) : 0;

	if (tp_turn_round6(env, l3, port_be, TP_ECHO_RESPONSE_LEN))
		return 1;
	h = tp_span(tp_data(env), tp_end(env), l3, TP_IP6_LEN + TP_UDP_LEN + TP_ECHO_RESPONSE_LEN);
	if (!h)
		return 1;
	tp_put_echo_response(h + TP_IP6_LEN + TP_UDP_LEN, sequence);
	tp_put_udp6_checksum(h, TP_ECHO_RESPONSE_LEN / 4,
			     tp_load16(h + TP_IP6_LEN + TP_UDP_LEN + TP_ECHO_RESPONSE_LEN - 2));
	return 0;
}

/* Error Indication: no session has this TEID at our address. To the GTP-U port, whatever the
 * sender's (4.4.2.3). 0, or non-zero when there is no room. */
TP_APART int tp_answer_unknown_teid(struct tp_env *env, __u32 l3, __u32 teid)
{
	__u8 *h;

	if (tp_turn_round(env, l3, tp_swap16(TP_GTPU_PORT), TP_ERROR_INDICATION_LEN))
		return 1;
	h = tp_span(tp_data(env), tp_end(env), l3, TP_IP4_LEN + TP_UDP_LEN + TP_ERROR_INDICATION_LEN);
	if (!h)
		return 1;
	h += TP_IP4_LEN + TP_UDP_LEN;
	tp_put_error_indication(h, teid, TP_ERROR_INDICATION_LEN);
	tp_store32(h + 20, tp_load32(h - TP_IP4_LEN - TP_UDP_LEN + 12));
	return 0;
}

TP_APART int tp_answer_unknown_teid6(struct tp_env *env, __u32 l3, __u32 teid)
{
	__u8 *h, *g;

	if (tp_turn_round6(env, l3, tp_swap16(TP_GTPU_PORT), TP_ERROR_INDICATION6_LEN))
		return 1;
	h = tp_span(tp_data(env), tp_end(env), l3, TP_IP6_LEN + TP_UDP_LEN + TP_ERROR_INDICATION6_LEN);
	if (!h)
		return 1;
	g = h + TP_IP6_LEN + TP_UDP_LEN;
	tp_put_error_indication(g, teid, TP_ERROR_INDICATION6_LEN);
	tp_store64(g + 20, tp_load64(h + 8));
	tp_store64(g + 28, tp_load64(h + 16));
	tp_put_udp6_checksum(h, TP_ERROR_INDICATION6_LEN / 4, 0);
	return 0;
}

/* Did the frame come over IPv6? */
static TP_INLINE int tp_is_outer6(struct tp_packet *p)
{
	const __u8 *ip = tp_has(p->env, TP_FEAT_OUTER6) ? tp_at(p, p->l3, 1) : NULL;

	return ip && *ip >> 4 == 6;
}

#define TP_GTPU_MESSAGE_NS 100000U /* mean spacing of messages for the control plane, per CPU */

/* What a peer says of tunnels and of itself (7.2.2, 7.2.3, 7.3.1): a gNB that restarts says it once per packet
 * of each of its sessions, so there is a rate. */
static TP_INLINE int tp_peer_message(struct tp_run *run, struct tp_packet *p)
{
	if (p->type != TP_GTPU_ERROR_INDICATION && p->type != TP_GTPU_ECHO_RESPONSE &&
	    p->type != TP_GTPU_EXTENSION_HEADERS)
		return TP_DROP_GTPU_MESSAGE;
	if (!tp_within_rate(&run->cpu->message_tat, tp_now(run, p), TP_GTPU_MESSAGE_NS))
		return TP_DROP_GTPU_MESSAGE_RATE;
	return tp_tell(p->env, tp_octets(p->l3, p->gtpu_end - p->l3));
}

/* A message that is not a G-PDU. */
static TP_INLINE int tp_gtpu_message(struct tp_run *run, struct tp_packet *p)
{
	int r;

	if (p->type != TP_GTPU_ECHO_REQUEST)
		return tp_peer_message(run, p);
	if (!tp_within_rate(&run->cpu->echo_tat, tp_now(run, p), TP_READ(run->config->echo_ns)))
		return TP_DROP_ECHO_RATE;
	r = tp_is_outer6(p) ? tp_answer_echo6(p->env, p->l3, p->gtpu) : tp_answer_echo(p->env, p->l3, p->gtpu);
	return r ? TP_DROP_HEADROOM : TP_OUT_ANSWER;
}

/* A G-PDU for a TEID that no session has (7.3.1). Being answered it is not counted as a drop. */
static TP_INLINE int tp_unknown_teid(struct tp_run *run, struct tp_packet *p)
{
	__u32 spacing = TP_READ(run->config->error_indication_ns);
	int r;

	if (!spacing)
		return TP_DROP_UNKNOWN_TEID;
	if (!tp_within_rate(&run->cpu->error_indication_tat, tp_now(run, p), spacing))
		return TP_DROP_ERROR_INDICATION_RATE;
	r = tp_is_outer6(p) ? tp_answer_unknown_teid6(p->env, p->l3, p->teid)
			    : tp_answer_unknown_teid(p->env, p->l3, p->teid);
	return r ? TP_DROP_HEADROOM : TP_OUT_ANSWER;
}

#endif
