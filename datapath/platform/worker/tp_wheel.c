/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>

#include "tp_wheel.h"

/* Frames of a slot stand in chunks of one cache line: a list of single frames would miss the cache for each of them. All chunks of
 * a slot but the last are full. */
#define CHUNK 7U

struct chunk {
	__u64 frame[CHUNK];
	__u64 next; /* index */
};

_Static_assert(sizeof(struct chunk) == 64, "one line");

/* Index of the first chunk, 0: empty; index of the last one, and above 29 bits the frames in it: so that putting a frame
 * reads no chunk, and need not wait for it to come from memory. */
struct slot {
	__u32 first;
	__u32 end;
};

#define END_SHIFT 29
#define END_MASK ((1U << END_SHIFT) - 1)

_Static_assert(CHUNK < 1U << (32 - END_SHIFT), "frames of a chunk fit");
_Static_assert(TP_WHEEL_FRAMES_MAX / CHUNK + TP_WHEEL_SLOTS_MAX + 2 < END_MASK, "chunks fit");

/* Which slots have something: one bit for each, and above it one for each word that is not 0. */
#define LEVELS 3
#define WORD_BITS 6
#define WORD_MASK 63U

_Static_assert(TP_WHEEL_SLOTS_MAX == 1U << LEVELS * WORD_BITS, "one word at the top");

struct tp_wheel {
	__u64 granularity_ns;
	__u64 inverse; /* 2^64 / granularity_ns, rounded down: a division costs as much as all the rest */
	__u64 passed; /* number of the last slot, from time 0 on, of which all has been taken */
	__u32 slots;
	__u32 frames;
	__u32 waiting;
	__u32 free;  /* chunks */
	__u32 taken; /* frames of the first chunk of slot passed + 1 that are gone */
	__u64 now_ns; /* of the last visit */
	__u64 rest_ns; /* of what frames have waited: less than stats->waited has a unit for */
	struct tp_shaper_stats *stats;
	struct tp_shaper_stats own_stats; /* until somebody reads them elsewhere */
	struct slot *slot;
	struct chunk *chunk;
	__u64 *busy[LEVELS];
};

#define HUGE ((size_t)2 << 20)

static __u32 words_of(__u32 slots, __u32 level)
{
	__u32 bits = (level + 1) * WORD_BITS;

	return (slots + (1U << bits) - 1) >> bits;
}

static __u32 rounded(__u32 slots)
{
	return slots < 2 ? slots : 1U << (32 - __builtin_clz(slots - 1));
}

/* Index 0 is none; each slot wastes less than a chunk at its end, and the one under way at its beginning. */
static __u32 chunks_of(__u32 slots, __u32 frames)
{
	return 2 + frames / CHUNK + (slots < frames ? slots : frames);
}

/* Large pages where the kernel has some: frames of a large wheel lie anywhere in it. */
static struct chunk *chunks_in(__u32 slots, __u32 frames)
{
	size_t octets = (size_t)chunks_of(slots, frames) * sizeof(struct chunk);
	void *at;

	octets = (octets + HUGE - 1) / HUGE * HUGE;
	at = aligned_alloc(HUGE, octets);
	if (at)
		madvise(at, octets, MADV_HUGEPAGE);
	return at;
}

static void link_free(struct tp_wheel *w)
{
	__u32 i, n = chunks_of(w->slots, w->frames);

	for (i = 1; i < n; i++)
		w->chunk[i].next = i + 1 < n ? i + 1 : 0;
	w->free = n > 1;
}

struct tp_wheel *tp_wheel_new(__u64 granularity_ns, __u32 slots, __u32 frames)
{
	struct tp_wheel *w;
	__u32 level, missing;

	if (!granularity_ns || !slots || slots > TP_WHEEL_SLOTS_MAX || !frames || frames > TP_WHEEL_FRAMES_MAX)
		return NULL;
	w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	w->stats = &w->own_stats;
	w->granularity_ns = granularity_ns;
	w->inverse = granularity_ns > 1 ? (__u64)(((unsigned __int128)1 << 64) / granularity_ns) : ~0ULL;
	w->slots = rounded(slots);
	w->frames = frames;
	w->slot = calloc(w->slots, sizeof(*w->slot));
	w->chunk = chunks_in(w->slots, frames);
	missing = !w->slot || !w->chunk;
	for (level = 0; level < LEVELS; level++) {
		w->busy[level] = calloc(words_of(w->slots, level), sizeof(__u64));
		missing |= !w->busy[level];
	}
	if (missing) {
		tp_wheel_free(w);
		return NULL;
	}
	link_free(w);
	return w;
}

void tp_wheel_free(struct tp_wheel *w)
{
	__u32 level;

	if (!w)
		return;
	for (level = 0; level < LEVELS; level++)
		free(w->busy[level]);
	free(w->chunk);
	free(w->slot);
	free(w);
}

void tp_wheel_count_in(struct tp_wheel *w, struct tp_shaper_stats *stats) { w->stats = stats; }

__u64 tp_wheel_octets(__u32 slots, __u32 frames)
{
	__u64 octets = sizeof(struct tp_wheel);
	__u32 level;

	slots = rounded(slots);
	octets += (__u64)chunks_of(slots, frames) * sizeof(struct chunk) + (__u64)slots * sizeof(struct slot);
	for (level = 0; level < LEVELS; level++)
		octets += words_of(slots, level) * sizeof(__u64);
	return octets;
}

__u32 tp_wheel_room(const struct tp_wheel *w) { return w->frames - w->waiting; }

__u64 tp_wheel_left_ns(const struct tp_wheel *w) { return w->passed * w->granularity_ns; }

static void set_busy(struct tp_wheel *w, __u32 at)
{
	__u64 *word, before;
	__u32 level;

	for (level = 0; level < LEVELS; level++, at >>= WORD_BITS) {
		word = &w->busy[level][at >> WORD_BITS];
		before = *word;
		*word |= 1ULL << (at & WORD_MASK);
		if (before)
			return;
	}
}

static void set_empty(struct tp_wheel *w, __u32 at)
{
	__u64 *word;
	__u32 level;

	for (level = 0; level < LEVELS; level++, at >>= WORD_BITS) {
		word = &w->busy[level][at >> WORD_BITS];
		*word &= ~(1ULL << (at & WORD_MASK));
		if (*word)
			return;
	}
}

/* The first of the slots from `at` on that has something; w->slots: none. */
static __u32 busy_from(const struct tp_wheel *w, __u32 at)
{
	__u32 level;
	__u64 word;

	for (level = 0; level < LEVELS; level++, at = (at >> WORD_BITS) + 1) {
		if (at >> WORD_BITS >= words_of(w->slots, level))
			return w->slots;
		word = w->busy[level][at >> WORD_BITS] & ~0ULL << (at & WORD_MASK);
		if (!word)
			continue;
		at = (at & ~WORD_MASK) | (__u32)__builtin_ctzll(word);
		while (level--)
			at = at << WORD_BITS | (__u32)__builtin_ctzll(w->busy[level][at]);
		return at;
	}
	return w->slots;
}

/* Number of the first slot that has something; there is one. */
static __u64 next_busy(const struct tp_wheel *w)
{
	__u32 from = (w->passed + 1) & (w->slots - 1), at = busy_from(w, from);

	if (at == w->slots)
		at = busy_from(w, 0);
	return w->passed + 1 + ((at - from) & (w->slots - 1));
}

__u64 tp_wheel_next_ns(const struct tp_wheel *w)
{
	return w->waiting ? next_busy(w) * w->granularity_ns : TP_WHEEL_NEVER;
}

/* ns / granularity_ns */
static __u64 slots_in(const struct tp_wheel *w, __u64 ns)
{
	__u64 n = (__u64)((unsigned __int128)ns * w->inverse >> 64);

	return n + (ns - n * w->granularity_ns >= w->granularity_ns);
}

/* A chunk at the end of a slot. There is one free for each frame that is let in: see chunks_of(). */
static void add_chunk(struct tp_wheel *w, struct slot *slot)
{
	__u32 index = w->free;

	w->free = (__u32)w->chunk[index].next;
	if (slot->first)
		w->chunk[slot->end & END_MASK].next = index;
	else
		slot->first = index;
	slot->end = index;
}

enum tp_wheel_answer tp_wheel_put(struct tp_wheel *w, __u64 leaves_ns, __u64 frame)
{
	__u64 left = tp_wheel_left_ns(w), ahead = 0;
	struct slot *slot;
	__u32 at;

	if (leaves_ns > left)
		ahead = slots_in(w, leaves_ns - left - 1);
	if (ahead >= w->slots)
		return TP_WHEEL_BEYOND;
	if (w->waiting == w->frames)
		return TP_WHEEL_FULL;
	at = (w->passed + 1 + ahead) & (w->slots - 1);
	slot = &w->slot[at];
	if (!slot->first)
		set_busy(w, at);
	if (!slot->first || slot->end >> END_SHIFT == CHUNK)
		add_chunk(w, slot);
	w->chunk[slot->end & END_MASK].frame[slot->end >> END_SHIFT] = frame;
	slot->end += 1U << END_SHIFT;
	w->stats->waiting = ++w->waiting;
	w->stats->delayed++;
	return TP_WHEEL_WAITS;
}

/* Done with the first chunk of a slot. */
static void drop_chunk(struct tp_wheel *w, struct slot *slot)
{
	__u32 index = slot->first, last = slot->end & END_MASK;

	slot->first = index == last ? 0 : (__u32)w->chunk[index].next;
	w->chunk[index].next = w->free;
	w->free = index;
	w->taken = 0;
}

/* Frames of slot passed + 1, which passes if that was all. */
static __u32 take_slot(struct tp_wheel *w, __u64 *frames, __u32 n)
{
	__u32 at = (w->passed + 1) & (w->slots - 1), i = 0, there, from;
	struct slot *slot = &w->slot[at];
	const struct chunk *c;

	__builtin_prefetch(&w->chunk[w->slot[(at + 1) & (w->slots - 1)].first]);
	while (slot->first && i < n) {
		c = &w->chunk[slot->first];
		there = slot->first == (slot->end & END_MASK) ? slot->end >> END_SHIFT : CHUNK;
		for (from = w->taken; from < there && i < n; from++)
			frames[i++] = c->frame[from];
		w->taken = from;
		if (from == there)
			drop_chunk(w, slot);
	}
	w->waiting -= i;
	if (!slot->first) {
		set_empty(w, at);
		w->passed++;
	}
	return i;
}

/* What waits has done so since the last visit: one sum for all frames, so that none has to say when it came. */
static void pass_time(struct tp_wheel *w, __u64 now_ns)
{
	if (now_ns <= w->now_ns || now_ns == TP_WHEEL_NEVER)
		return;
	if (w->waiting && w->now_ns) {
		w->rest_ns += (now_ns - w->now_ns) * w->waiting;
		w->stats->waited += w->rest_ns >> TP_WAITED_SHIFT;
		w->rest_ns &= (1U << TP_WAITED_SHIFT) - 1;
	}
	w->now_ns = now_ns;
}

__u32 tp_wheel_take(struct tp_wheel *w, __u64 now_ns, __u64 *frames, __u32 n)
{
	__u64 over = slots_in(w, now_ns), next;
	__u32 i = 0;

	pass_time(w, now_ns);

	while (w->passed < over && i < n) {
		next = w->waiting ? next_busy(w) : TP_WHEEL_NEVER;
		if (next > over) {
			w->passed = over;
			break;
		}
		w->passed = next - 1;
		i += take_slot(w, frames + i, n - i);
	}
	w->stats->waiting = w->waiting;
	return i;
}
