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
	p->l3 += 4;
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
static TP_INLINE int tp_parse_outer(struct tp_packet *p)
{
	const __u8 *ip = tp_at(p, p->l3, TP_IP4_LEN), *udp;
	__u32 header_len, total, fragment, udp_len;

	if (!ip)
		return TP_DROP_TRUNCATED;
	header_len = (ip[0] & 15) * 4;
	if (ip[0] >> 4 != 4 || header_len < TP_IP4_LEN)
		return TP_DROP_IP_MALFORMED;
	if (ip[9] != TP_IPPROTO_UDP || !tp_is_n3_address(p->config, tp_load32(ip + 16)))
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
			return TP_DROP_NO_PDR; /* no session has IPv6 */
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
