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

/* Words of 32 bits from at on, added up. words: a constant. */
static TP_INLINE __u64 tp_sum_words(const __u8 *at, __u32 words)
{
	__u64 sum = 0;
	__u32 i;

	for (i = 0; i < words; i++)
		sum += tp_load32(at + 4 * i);
	return sum;
}

#define TP_SUM_BLOCK 64U
#define TP_SUM_BLOCKS ((TP_OFFSET_MAX + 1) / TP_SUM_BLOCK)
#define TP_NO_SUM (~0ULL)

/* The len octets of the frame from off on, added up as one part of a checksum; the next part must begin
 * an even number of octets behind the first. TP_NO_SUM: they are not all there. */
TP_APART __u64 tp_sum_frame(struct tp_env *env, __u32 off, __u32 len)
{
	__u8 *data = tp_data(env), *end = tp_end(env), *at;
	__u64 sum = 0;
	__u32 i;

	for (i = 0; i < TP_SUM_BLOCKS && len >= TP_SUM_BLOCK; i++) {
		at = tp_span(data, end, off, TP_SUM_BLOCK);
		if (!at)
			return TP_NO_SUM;
		sum += tp_sum_words(at, TP_SUM_BLOCK / 4);
		off = tp_forget(data, at) + TP_SUM_BLOCK;
		len -= TP_SUM_BLOCK;
	}
	for (i = 0; i < TP_SUM_BLOCK / 4 && len >= 4; i++) {
		at = tp_span(data, end, off, 4);
		if (!at)
			return TP_NO_SUM;
		sum += tp_load32(at);
		off = tp_forget(data, at) + 4;
		len -= 4;
	}
	for (i = 0; i < 3 && len; i++) {
		at = tp_span(data, end, off, 1);
		if (!at)
			return TP_NO_SUM;
		sum += (__u64)*at << 8 * (i & 1);
		off = tp_forget(data, at) + 1;
		len--;
	}
	return len ? TP_NO_SUM : sum;
}

#endif
