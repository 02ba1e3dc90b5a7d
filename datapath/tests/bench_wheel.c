/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What a frame costs that goes through the timing wheel, with so many under way: one is put for each that is taken, and leaves at a
 * random time within the horizon. The floor does all of that but the wheel. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tp_wheel.h"

#define GRANULARITY_NS 20000ULL
#define BURST 32U
#define FRAMES 8000000ULL /* of one measurement */
#define REPEATS 5

static __u64 seed = 0x9e3779b97f4a7c15ULL, sink;

static __u64 next_random(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

/* CPU time: what else runs on the machine is not the wheel's. */
static __u64 cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (__u64)now.tv_sec * 1000000000 + (__u64)now.tv_nsec;
}

/* Nanoseconds for each frame. w: NULL: the floor. */
static double measure(struct tp_wheel *w, __u64 *now_ns, __u64 step_ns, __u64 span_ns)
{
	__u64 frames[BURST], done = 0, begin = cpu_ns(), leaves;
	__u32 i, n;

	while (done < FRAMES) {
		*now_ns += step_ns;
		n = BURST;
		if (w)
			n = tp_wheel_take(w, *now_ns, frames, BURST);
		for (i = 0; i < n; i++) {
			leaves = *now_ns + (next_random() >> 32) * span_ns / (1ULL << 32);
			if (!w)
				sink += leaves;
			else if (tp_wheel_put(w, leaves, leaves))
				exit(1);
		}
		done += n;
		if (w && n == 0)
			*now_ns = tp_wheel_next_ns(w);
	}
	return (double)(cpu_ns() - begin) / (double)done;
}

static int smaller(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(struct tp_wheel *w, __u64 step_ns, __u64 span_ns)
{
	static __u64 now_ns = 1000000000;
	double all[REPEATS];
	__u64 frame;
	__u32 i;

	if (w) {
		tp_wheel_take(w, now_ns, &frame, 0);
		tp_wheel_take(w, now_ns, &frame, 1);
		while (tp_wheel_room(w))
			tp_wheel_put(w, now_ns + (next_random() >> 32) * span_ns / (1ULL << 32), 1);
	}
	for (i = 0; i < REPEATS; i++)
		all[i] = measure(w, &now_ns, step_ns, span_ns);
	qsort(all, REPEATS, sizeof(all[0]), smaller);
	return all[REPEATS / 2];
}

static int bench(const char *name, __u32 slots, __u32 frames)
{
	__u64 span_ns = GRANULARITY_NS * slots / 4 * 3, step_ns;
	struct tp_wheel *w = tp_wheel_new(GRANULARITY_NS, slots, frames);
	double floor;

	if (!w)
		return 1;
	/* A burst is due that often: the mean stay of a frame is half the horizon. */
	step_ns = BURST * (span_ns / 2) / frames;
	floor = median(NULL, step_ns, span_ns);
	printf("figure wheel_%s %.2f ns floor %.2f\n", name, median(w, step_ns, span_ns), floor);
	printf("figure wheel_%s_memory %.1f B floor 8\n", name, (double)tp_wheel_octets(slots, frames) / frames);
	tp_wheel_free(w);
	return 0;
}

int main(void) { return bench("64k", 8192, 1U << 16) || bench("1m", 1U << 16, 1U << 20); }
