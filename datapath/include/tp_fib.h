/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* A question to the kernel's FIB. */
#ifndef TP_FIB_H
#define TP_FIB_H

#include <linux/types.h>

struct tp_fib {
	_Alignas(8) __u8 src[16]; /* IPv4 in the first four bytes */
	_Alignas(8) __u8 dst[16];
	__u32 family;  /* 4 or 6 */
	__u32 len;     /* of the IP packet */
	__u32 ifindex; /* out: egress */
	__u32 mtu;     /* out, when the answer is that the packet is too long: how long it may be */
	__u8 dmac[6];  /* out */
	__u8 smac[6];  /* out */
};

#endif
