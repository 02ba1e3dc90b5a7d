/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Arbitrary PFCP requests against templates: what is not served has changed nothing, and what is has changed what it names alone.
 *
 * The input is a request, as its sender's datagram has it; its first octet says whose it is.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tp_host.h"

#define LINES 4
#define ENTRIES 16
#define ALIASES 64

static struct {
	struct tp_config config;
	struct tp_cpu cpu;
	struct tp_entry entries[ENTRIES];
	struct tp_side sides[ENTRIES];
	struct tp_n4_config n4;
	struct tp_n4_line lines[LINES];
	struct tp_n4_template templates[TP_N4_TEMPLATES];
	struct tp_n4_alias aliases[ALIASES];
} world __attribute__((aligned(64)));

/* An Update FAR into a tunnel: 46 octets, of which most are zero. */
static void template(__u32 number, __u16 length, __u8 action)
{
	struct tp_n4_template *t = &world.templates[number];

	t->length = length;
	t->number = (__u8)number;
	t->n_updates = 1;
	t->update[0] = (struct tp_n4_update){
		.id_at = 24, .teid_at = 38, .address_at = 42, .profile = 0x100, .address_len = 4, .action = action, .ends_tunnel = 1};
	memset(t->mask + 16, 0xff, length - 16);
	memset(t->mask + 24, 0, 4);
	memset(t->mask + 38, 0, 8);
	t->octets[17] = 10;
	t->next = world.n4.by_length[length];
	world.n4.by_length[length] = (__u16)(number + 1);
}

static void build(void)
{
	__u32 i;

	memset(&world, 0, sizeof(world));
	world.config.held_max = 4;
	template(0, 46, TP_N4_FORWARD);
	template(1, 46, TP_N4_NOTIFY);
	world.templates[1].octets[18] = 1;
	template(TP_N4_TEMPLATES - 1, TP_N4_OCTETS, TP_N4_STAYS);
	for (i = 0; i < ALIASES; i++) {
		world.aliases[i] = (struct tp_n4_alias){.peer = i, .length = 4, .through = 1};
		memcpy(world.aliases[i].address, (__u8[]){10, 3, 1, (__u8)(i % TP_N4_WAYS)}, 4);
	}
	for (i = 0; i < LINES; i++) {
		struct tp_n4_line *line = &world.lines[i];

		line->owner = TP_N4_LENT | 1ULL << TP_N4_ASSOCIATION_SHIFT;
		line->far[0] = 7;
		line->entry[0][0] = i + 1;
		line->entry[0][1] = i + 1 + LINES;
		line->profile[0] = 0x100;
		line->state[0] = i < 3 ? TP_N4_FORWARD : TP_N4_NOTIFY;
		line->alias[0] = (__u16)i;
		world.entries[i + 1].head = (__u64)(i < 3 ? TP_ACT_TUNNEL : TP_ACT_BUFFER) << TP_HEAD_ACTION_SHIFT;
		world.entries[i + 1 + LINES].head = world.entries[i + 1].head;
	}
}

int LLVMFuzzerTestOneInput(const __u8 *data, size_t len)
{
	static __u8 before[sizeof(world)];
	struct tp_tables t = {.config = &world.config, .cpu = &world.cpu, .entries = world.entries, .sides = world.sides,
			      .n_entries = ENTRIES, .n_sides = ENTRIES};
	struct tp_n4_tables n4 = {&world.n4, world.lines, world.templates, world.aliases, LINES, ALIASES};
	struct tp_n4_request *request = calloc(1, sizeof(*request));
	struct tp_n4_done done;
	__u32 i, place;
	int verdict;

	if (!request || len < 1 || len - 1 > TP_N4_OCTETS) {
		free(request);
		return 0;
	}
	build();
	request->association = data[0];
	request->len = (__u32)len - 1;
	memcpy(request->octets, data + 1, len - 1);
	memcpy(before, &world, sizeof(world));
	verdict = tp_host_n4_serve(&t, &n4, request, &done);
	assert(verdict >= 0 && verdict < TP_N4_VERDICTS);
	if (verdict != TP_N4_SERVED) {
		assert(!memcmp(before, &world, sizeof(world)));
	} else {
		/* Without a key a SEID ends with its place. */
		place = request->octets[11];
		assert(request->octets[0] == 0x21 && request->octets[1] == 52 && request->association == 1);
		assert(place < LINES && done.place == place && done.n_changes == 1 && done.change[0].far == 7);
		for (i = 0; i < LINES; i++)
			if (i != place)
				assert(!memcmp(before + ((__u8 *)&world.lines[i] - (__u8 *)&world), &world.lines[i], 64));
		for (i = 0; i < ENTRIES; i++)
			if (i != place + 1 && i != place + 1 + LINES)
				assert(!memcmp(before + ((__u8 *)&world.entries[i] - (__u8 *)&world), &world.entries[i], 64));
		/* The same request once more is for whoever keeps answers. */
		verdict = tp_host_n4_serve(&t, &n4, request, &done);
		assert(verdict == TP_N4_SLOW_SEQUENCE);
	}
	for (i = 0; i < LINES; i++)
		assert(world.lines[i].owner == (TP_N4_LENT | 1ULL << TP_N4_ASSOCIATION_SHIFT));
	free(request);
	return 0;
}
