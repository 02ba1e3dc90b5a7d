/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The Internet checksum (RFC 1071), in the order the words have in memory. */
#ifndef TP_CSUM_H
#define TP_CSUM_H

#include "packet.h"

static TP_INLINE __u16 tp_csum_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)~sum;
}

/* Time to live or hop limit of a packet that is routed (RFC 1812, 5.3.1), with the IPv4 checksum
 * updated as RFC 1624 has it: TTL is the upper octet of its word, so the sum loses 0x0100. */
static TP_INLINE int tp_decrement_ttl(struct tp_packet *p)
{
	__u8 *ttl = p->family == 4 ? p->ip + 8 : p->ip + 7;
	__u32 sum;

	if (*ttl <= 1)
		return TP_DROP_TTL;
	*ttl -= 1;
	if (p->family == 4) {
		sum = tp_load16(p->ip + 10) + tp_swap16(0x0100);
		tp_store16(p->ip + 10, (__u16)(sum + (sum >= 0xffff)));
	}
	return TP_OK;
}

#endif
