/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* A timing wheel: frames that leave later, of all flows in one queue (Carousel, SIGCOMM 2017).
 *
 * Time is cut into slots of one granularity. A frame waits in the slot that its departure time lies in, and leaves when that slot has
 * ended: never early, and late by less than a slot. A visit that comes late releases what is due by then and nothing more. Frames
 * of one slot leave in the order that they came in, so that a flow whose departure times never decrease keeps its order.
 *
 * Putting and taking cost the same whatever waits. A wheel belongs to one thread; its memory is all allocated when it is made.
 */
#ifndef TP_WHEEL_H
#define TP_WHEEL_H

#include "tp_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TP_WHEEL_SLOTS_MAX (1U << 18)
#define TP_WHEEL_FRAMES_MAX (1U << 24)
#define TP_WHEEL_NEVER (~0ULL)

struct tp_wheel;

/* A wheel of so many slots, rounded up to a power of two, with room for so many frames. Time begins at 0, until
 * tp_wheel_take() has been told better. NULL: no memory, or a size of 0 or beyond its bound. */
struct tp_wheel *tp_wheel_new(__u64 granularity_ns, __u32 slots, __u32 frames);

/* Count in these words, which nobody else writes, from now on. They live as long as the wheel. */
void tp_wheel_count_in(struct tp_wheel *w, struct tp_shaper_stats *stats);

/* What still waits is the caller's affair: take it first. */
void tp_wheel_free(struct tp_wheel *w);

/* Frames that it has room for. */
__u32 tp_wheel_room(const struct tp_wheel *w);

/* What was to leave by then has been taken. */
__u64 tp_wheel_left_ns(const struct tp_wheel *w);

enum tp_wheel_answer {
	TP_WHEEL_WAITS = 0,
	TP_WHEEL_BEYOND = 1, /* later than the last slot */
	TP_WHEEL_FULL = 2,
};

/* Have a frame wait, from the time of the last tp_wheel_take() on. frame: what the caller knows it by. One that should have left
 * already leaves with the next slot. */
enum tp_wheel_answer tp_wheel_put(struct tp_wheel *w, __u64 leaves_ns, __u64 frame);

/* Take at most n frames whose slot has ended, in the order of slots. How many there were; fewer than n: no more are due.
 * now_ns: TP_WHEEL_NEVER: all there are, which have waited no longer than until the last call. */
__u32 tp_wheel_take(struct tp_wheel *w, __u64 now_ns, __u64 *frames, __u32 n);

/* When the next frame is due; TP_WHEEL_NEVER: none waits. */
__u64 tp_wheel_next_ns(const struct tp_wheel *w);

/* Octets of memory that so many frames take in the worst case, all slots in use. */
__u64 tp_wheel_octets(__u32 slots, __u32 frames);

#ifdef __cplusplus
}
#endif
#endif
