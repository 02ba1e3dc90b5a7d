/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Arbitrary frames, as receive cores look at them. The first octet says which side, and whether tunnels carry downlink; the rest
 * is the frame, and memory ends where it does. */
#include <stdint.h>
#include <stdlib.h>

#include "world.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

/* Whether some octets of the frame are this address, left-aligned; or TEID. */
static int is_in(const uint8_t *frame, size_t len, uint64_t ue)
{
	uint32_t n = (uint32_t)ue && ue >> 32 ? 8 : 4, i;
	uint8_t octets[8];
	size_t at;

	if (!(ue >> 32))
		ue <<= 32;
	for (i = 0; i < 8; i++)
		octets[i] = (uint8_t)(ue >> (56 - 8 * i));
	for (at = 0; at + n <= len; at++)
		if (!memcmp(frame + at, octets, n))
			return 1;
	return 0;
}

/* A packet from a tunnel that the pipeline takes for a UE's own is one of that UE: of 10.60.0.1, or of 2001:db8:60::/64. It counts
 * each frame as come in, in the direction that is told, where both know nothing of tunnels whose packets are downlink. */
static void compare(struct world *w, const uint8_t *frame, size_t size, uint64_t ue, uint8_t dir)
{
	struct tp_port_config n3 = w_n3;
	static struct tp_result result;
	static uint64_t now;
	uint32_t offset = 64, len = (uint32_t)size, cap = 64 + len + 32;
	uint64_t before = w->entries[W_TEID].packets, in = w->cpu.ports[n3.port].in[dir].packets;
	uint8_t *buf = malloc(cap);

	n3.features &= ~TP_FEAT_RELAY;
	memcpy(buf + offset, frame, len);
	tp_host_run(&w->tables, &n3, buf, cap, &offset, &len, now += 1000000, &result);
	free(buf);
	if (w->cpu.ports[n3.port].in[dir].packets != in + 1)
		abort();
	if (w->entries[W_TEID].packets != before && ue != 0x0a3c0001ULL << 32 && ue != 0x20010db800600000ULL &&
	    ue >> 40 != 0xc63364 && ue >> 20 != 0x20010db8007)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	static struct world *w;
	struct tp_port_config port = {0, 0, 0, 0};
	uint64_t ue;
	uint8_t *frame, dir;
	size_t len;

	if (size < 1 || size > 4096)
		return 0;
	if (!w)
		w = w_new();
	len = size - 1;
	port.roles = input[0] & 3;
	port.features = input[0] & 4 ? TP_FEAT_RELAY : 0;
	frame = malloc(len ? len : 1);
	memcpy(frame, input + 1, len);
	ue = tp_host_user(&w->tables, &port, frame, (uint32_t)len, &dir);
	if (memcmp(frame, input + 1, len) || (ue && !is_in(frame, len, ue)))
		abort();
	if (port.roles == TP_ROLE_N3 && !port.features)
		compare(w, frame, len, ue, dir);
	free(frame);
	return 0;
}
