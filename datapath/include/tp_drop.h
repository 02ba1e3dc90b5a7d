/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Drop reasons, numbered from 1 in the order of tp_drop.def. 0 is no drop. */
#ifndef TP_DROP_H
#define TP_DROP_H

enum tp_drop {
	TP_DROP_NONE = 0,
#define TP_DROP(symbol, name, meaning, remedy) TP_DROP_##symbol,
#include "tp_drop.def"
#undef TP_DROP
	TP_DROP_END
};

_Static_assert(TP_DROP_END <= 64, "reasons fit tp_cpu.drops");

#endif
