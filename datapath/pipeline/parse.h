/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* From the frame's first octet to an IP header. */
#ifndef TP_PARSE_H
#define TP_PARSE_H

#include "packet.h"

#define TP_ETH_LEN 14U
#define TP_ETH_IPV4 0x0800U
#define TP_ETH_IPV6 0x86ddU
#define TP_ETH_VLAN 0x8100U
#define TP_ETH_QINQ 0x88a8U
#define TP_IPPROTO_UDP 17U
#define TP_IP4_MORE_FRAGMENTS 0x2000U
#define TP_IP4_FRAGMENT_OFFSET 0x1fffU

/* Step over one VLAN tag, if there is one. */
static TP_INLINE int tp_parse_tag(struct tp_packet *p, __u32 *ethertype)
{
	const __u8 *tag;

	if (*ethertype != TP_ETH_VLAN && *ethertype != TP_ETH_QINQ)
		return TP_OK;
	tag = tp_at(p, p->l3, 4);
	if (!tag)
		return TP_DROP_TRUNCATED;
	*ethertype = tp_get16(tag + 2);
	p->l3 = tp_forget(p->data, tag) + 4;
	return TP_OK;
}

/* Ethernet with up to two tags. Leaves p->l3; ethertype is of what begins there. */
static TP_INLINE int tp_parse_ethernet(struct tp_packet *p, __u32 *ethertype)
{
	const __u8 *eth = tp_at(p, 0, TP_ETH_LEN);
	int r;

	if (!eth)
		return TP_DROP_TRUNCATED;
	*ethertype = tp_get16(eth + 12);
	p->l3 = TP_ETH_LEN;
	if (!tp_has(p->env, TP_FEAT_VLAN))
		return TP_OK;
	r = tp_parse_tag(p, ethertype);
	return r ? r : tp_parse_tag(p, ethertype);
}

static TP_INLINE int tp_is_n3_address(const struct tp_config *config, __u32 addr_be)
{
	__u32 i, ours;

	for (i = 0; i < TP_N3_ADDRS_MAX; i++) {
		ours = TP_READ(config->n3_be[i]);
		if (!ours)
			return 0;
		if (ours == addr_be)
			return 1;
	}
	return 0;
}

/* The outer IPv4 and UDP headers of a tunnelled packet. Leaves p->gtpu and, from the UDP length,
 * p->gtpu_end.
 *
 * TP_OUT_PASS when the packet is not for our port 2152; TP_OUT_FRAGMENT when it is a fragment of UDP to
 * us: only the first shows the port, so user space puts them together whichever it is. */
static TP_INLINE int tp_parse_outer(const struct tp_run *run, struct tp_packet *p)
{
	const __u8 *ip = tp_at(p, p->l3, TP_IP4_LEN), *udp;
	__u32 header_len, total, fragment, udp_len;

	if (!ip)
		return TP_DROP_TRUNCATED;
	header_len = (ip[0] & 15) * 4;
	if (ip[0] >> 4 != 4 || header_len < TP_IP4_LEN)
		return TP_DROP_IP_MALFORMED;
	if (ip[9] != TP_IPPROTO_UDP || !tp_is_n3_address(run->config, tp_load32(ip + 16)))
		return TP_OUT_PASS;
	total = tp_get16(ip + 2);
	if (total < header_len || total > p->frame_len - p->l3)
		return TP_DROP_IP_MALFORMED;
	fragment = tp_get16(ip + 6);
	if (tp_unlikely(fragment & (TP_IP4_MORE_FRAGMENTS | TP_IP4_FRAGMENT_OFFSET)))
		return TP_OUT_FRAGMENT;
	if (total < header_len + TP_UDP_LEN)
		return TP_DROP_UDP_MALFORMED;
	udp = tp_at(p, p->l3 + header_len, TP_UDP_LEN);
	if (!udp)
		return TP_DROP_UDP_MALFORMED;
	if (tp_get16(udp + 2) != TP_GTPU_PORT)
		return TP_OUT_PASS;
	udp_len = tp_get16(udp + 4);
	if (udp_len < TP_UDP_LEN || udp_len > total - header_len)
		return TP_DROP_UDP_MALFORMED;
	p->gtpu = p->l3 + header_len + TP_UDP_LEN;
	p->gtpu_end = p->l3 + header_len + udp_len;
	return TP_OK;
}

static TP_INLINE int tp_is_n3_address6(const struct tp_config *config, const __u8 *addr)
{
	__u64 first = tp_load64(addr), second = tp_load64(addr + 8), ours[2];
	__u32 i;

	for (i = 0; i < TP_N3_ADDRS_MAX; i++) {
		ours[0] = TP_READ(config->n3_6[i][0]);
		ours[1] = TP_READ(config->n3_6[i][1]);
		if (!(ours[0] | ours[1]))
			return 0;
		if (ours[0] == first && ours[1] == second)
			return 1;
	}
	return 0;
}

#define TP_IP6_HOP_BY_HOP 0
#define TP_IP6_ROUTING 43
#define TP_IP6_FRAGMENT 44
#define TP_IP6_AH 51
#define TP_IP6_DESTINATION 60
#define TP_IP6_HEADERS_MAX 8 /* extension headers walked; RFC 8200, 4.1 has seven */
#define TP_IP6_FRAGMENTED 0xfff9U /* offset, or more fragments: without either it is a whole packet (RFC 6946) */

/* What tp_find_outer_udp() returns beside an offset. */
#define TP_OUTER_IS(outcome) (1ULL << 32 | (outcome))

/* Behind the extension headers of an outer IPv6 packet: the offset of UDP from the IP header on; or
 * TP_OUTER_IS(), of what it is instead: TP_OUT_FRAGMENT of UDP, or of headers that UDP may follow. */
TP_APART __u64 tp_find_outer_udp(struct tp_env *env, __u32 l3)
{
	__u8 *data = tp_data(env), *end = tp_end(env), *h = tp_span(data, end, l3, TP_IP6_LEN);
	__u32 i, next, off = l3 + TP_IP6_LEN;

	if (!h)
		return TP_OUTER_IS(TP_DROP_TRUNCATED);
	next = h[6];
	for (i = 0; i < TP_IP6_HEADERS_MAX; i++) {
		if (next == TP_IPPROTO_UDP)
			return off - l3;
		if (next != TP_IP6_HOP_BY_HOP && next != TP_IP6_ROUTING && next != TP_IP6_FRAGMENT &&
		    next != TP_IP6_DESTINATION)
			return TP_OUTER_IS(TP_OUT_PASS);
		h = tp_span(data, end, off, 8);
		if (!h)
			return TP_OUTER_IS(TP_DROP_IP_MALFORMED);
		if (next == TP_IP6_ROUTING && h[3]) /* we are not its last stop */
			return TP_OUTER_IS(TP_OUT_PASS);
		off = tp_forget(data, h) + (next == TP_IP6_FRAGMENT ? 8U : (h[1] + 1) * 8U);
		if (next == TP_IP6_FRAGMENT && (tp_get16(h + 2) & TP_IP6_FRAGMENTED))
			return TP_OUTER_IS(h[0] == TP_IPPROTO_UDP || h[0] == TP_IP6_DESTINATION ? TP_OUT_FRAGMENT
											: TP_OUT_PASS);
		next = h[0];
	}
	return TP_OUTER_IS(next == TP_IPPROTO_UDP ? TP_DROP_IP_MALFORMED : TP_OUT_PASS);
}

/* As tp_parse_outer(), of IPv6. A UDP checksum of zero is as good as any (RFC 6935), and none is verified:
 * the user's packet has its own, and a corrupt address or TEID leads nowhere. */
static TP_INLINE int tp_parse_outer6(const struct tp_run *run, struct tp_packet *p)
{
	const __u8 *ip = tp_at(p, p->l3, TP_IP6_LEN), *udp;
	__u32 header_len = TP_IP6_LEN, total, udp_len;
	__u64 found = TP_IP6_LEN;

	if (!ip)
		return TP_DROP_TRUNCATED;
	if (ip[0] >> 4 != 6)
		return TP_DROP_IP_MALFORMED;
	if (!tp_is_n3_address6(run->config, ip + 24))
		return TP_OUT_PASS;
	total = TP_IP6_LEN + tp_get16(ip + 4);
	if (tp_unlikely(ip[6] != TP_IPPROTO_UDP)) {
		found = tp_find_outer_udp(p->env, p->l3);
		if (found == TP_OUTER_IS(TP_OUT_FRAGMENT) && total > p->frame_len - p->l3)
			return TP_DROP_IP_MALFORMED;
		if (found & TP_OUTER_IS(0))
			return tp_final((int)found);
		header_len = (__u32)found;
	}
	if (total < header_len || total > p->frame_len - p->l3)
		return TP_DROP_IP_MALFORMED;
	if (total < header_len + TP_UDP_LEN)
		return TP_DROP_UDP_MALFORMED;
	udp = tp_at(p, p->l3 + header_len, TP_UDP_LEN);
	if (!udp)
		return TP_DROP_UDP_MALFORMED;
	if (tp_get16(udp + 2) != TP_GTPU_PORT)
		return TP_OUT_PASS;
	udp_len = tp_get16(udp + 4);
	if (udp_len < TP_UDP_LEN || udp_len > total - header_len)
		return TP_DROP_UDP_MALFORMED;
	p->gtpu = p->l3 + header_len + TP_UDP_LEN;
	p->gtpu_end = p->l3 + header_len + udp_len;
	return TP_OK;
}

/* The user's IP packet at p->user, of which room octets are there. Leaves p->ip, p->user_len and
 * p->family.
 *
 * malformed  the reason when header and room do not fit, or it is no IP packet */
static TP_INLINE int tp_parse_user(struct tp_packet *p, __u32 room, int malformed)
{
	__u32 header_len;

	p->ip = tp_at(p, p->user, TP_IP4_LEN);
	if (!p->ip)
		return malformed;
	p->user = tp_forget(p->data, p->ip);
	p->ip = tp_at(p, p->user, TP_IP4_LEN);
	if (!p->ip)
		return malformed;
	if (tp_likely(p->ip[0] >> 4 == 4)) {
		header_len = (p->ip[0] & 15) * 4;
		p->user_len = tp_get16(p->ip + 2);
		if (header_len < TP_IP4_LEN || p->user_len < header_len)
			return malformed;
		p->family = 4;
	} else if (p->ip[0] >> 4 == 6) {
		if (!tp_has(p->env, TP_FEAT_IPV6))
			return TP_DROP_UE_SPOOFED; /* no session has an IPv6 address */
		p->ip = tp_at(p, p->user, TP_IP6_LEN);
		if (!p->ip)
			return malformed;
		p->user_len = TP_IP6_LEN + tp_get16(p->ip + 4);
		p->family = 6;
	} else {
		return malformed;
	}
	return p->user_len > room ? malformed : TP_OK;
}

#endif
