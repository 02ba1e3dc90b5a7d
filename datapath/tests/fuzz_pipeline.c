/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Arbitrary frames against fixed tables. The first octet says which side and which features; the rest
 * is the frame. Memory ends where the frame's room ends. */
#include <stdint.h>
#include <stdlib.h>

#include "world.h"

#define ROOM 64U

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

static struct world *fuzz_world(void)
{
	struct world *w = w_new();

	w->entries[W_TEID].head |= TP_HEAD_METER;
	w->entries[W_TEID].rate = 1000 | 1ULL << TP_RATE_BURST_SHIFT;
	w->entries[7].head = w_head(7, TP_ACT_LIST, 0, 0) | 1ULL << TP_HEAD_RULE_SHIFT;
	w->entries[10].head = w_head(0, TP_ACT_ROUTE, TP_HEAD_QFI, 9);
	w->entries[11].head = w_head(0, TP_ACT_TUNNEL, 0, 0);
	w->entries[11].out = 2ULL << 32;
	w->rules[1].rule[0] = (struct tp_rule){TP_FLOW_PORTS, TP_FLOW_PORTS, 0, 40000, 0, 40000, 10, 0};
	w->rules[1].rule[0].value |= 3ULL << TP_FLOW_NEXT_SHIFT;
	w->rules[1].rule[1] = (struct tp_rule){0, 0, 0, 0xffff, 0, 0xffff, 10, 1 + 2};
	w->rules[3].rule[0] = (struct tp_rule){TP_FLOW_NEVER, TP_FLOW_NEVER, 0, 0, 0, 0, 0, 0};
	w->rules[3].rule[1] = (struct tp_rule){0, 0, 0, 0xffff, 0, 0xffff, 11, TP_RULE_LAST};
	((struct tp_rule_more *)&w->rules[2])->flags = TP_MORE_SPI;
	return w;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	static struct world *w;
	static struct tp_result result;
	static uint64_t now;
	struct tp_port_config port = {0, TP_ROLE_N3, TP_FEAT_ALL, 0};
	uint32_t offset = ROOM, len, cap;
	uint8_t *buf;

	if (size < 1 || size > 4096)
		return 0;
	if (!w)
		w = fuzz_world();
	len = (uint32_t)size - 1;
	port.roles = input[0] & 3;
	port.features = input[0] & 4 ? TP_FEAT_ALL : (uint32_t)~input[0] & TP_FEAT_ALL;
	cap = ROOM + len + 32;
	buf = malloc(cap);
	memcpy(buf + ROOM, input + 1, len);
	tp_host_run(&w->tables, &port, buf, cap, &offset, &len, now += 1000000, &result);
	if (offset + len > cap || (result.verdict == TP_VERDICT_DROP && !tp_drop_name(result.reason)[0]))
		abort();
	free(buf);
	return 0;
}
