/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* So many in a time: what is made for packets that anybody can send has a rate. */
#ifndef TP_RATION_H
#define TP_RATION_H

#include "tp_platform.h"

#define TP_ANSWERS_AT_ONCE 32 /* after a pause, this many go out back to back */

/* Is there room for one more of these? spacing: mean nanoseconds between two. */
static TP_INLINE int tp_within_burst(__u64 *tat, __u64 now_ns, __u64 spacing, __u32 at_once)
{
	__u64 next = *tat > now_ns ? *tat : now_ns;

	if (next - now_ns > spacing * (at_once - 1))
		return 0;
	*tat = next + spacing;
	return 1;
}

/* May one more answer be sent? */
static TP_INLINE int tp_within_rate(__u64 *tat, __u64 now_ns, __u32 spacing)
{
	return tp_within_burst(tat, now_ns, spacing, TP_ANSWERS_AT_ONCE);
}

#endif
