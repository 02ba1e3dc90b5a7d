/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Queues to user space: several writers and a reader that sleeps. Every record arrives whole and once, those of one writer in
 * order; one that finds no room is refused; the reader is never left asleep beside a record, or beside work elsewhere that it is
 * nudged for. When writers or a reader have ended in the midst of something, all that is complete still arrives. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tp_queue.h"

#define WRITERS 4
#define RECORDS 100000U /* of each writer */
#define SIZE 4096	/* small, so that it is often full, and goes around often */
#define LONGEST 700
#define NEVER_MS 20000
#define NUDGES 20000U

static struct tp_queue_state state;
static struct tp_queue queue;

static void fail(const char *why)
{
	fprintf(stderr, "queue: %s\n", why);
	exit(1);
}

static __u32 length_of(__u32 writer, __u32 number) { return 8 + (number * 2654435761U + writer) % (LONGEST - 8); }

/* A record: writer, number, and octets that follow from both. */
static void fill(__u8 *room, __u32 writer, __u32 number, __u32 len)
{
	memcpy(room, &writer, 4);
	memcpy(room + 4, &number, 4);
	memset(room + 8, (int)(writer * 31 + number), len - 8);
}

static void *write_all(void *argument)
{
	__u32 writer = (__u32)(size_t)argument, number = 0, len;
	__u8 *room;

	while (number < RECORDS) {
		len = length_of(writer, number);
		room = tp_queue_reserve(&queue, len);
		if (!room) {
			sched_yield();
			continue;
		}
		fill(room, writer, number++, len);
		tp_queue_commit(&queue, room, len);
	}
	return NULL;
}

static void check(const __u8 *record, __u32 len, __u32 *expected)
{
	__u8 should[LONGEST];
	__u32 writer, number;

	memcpy(&writer, record, 4);
	memcpy(&number, record + 4, 4);
	if (writer >= WRITERS || number != expected[writer])
		fail("a record is missing, doubled or early");
	if (len != length_of(writer, number))
		fail("a record has another length");
	fill(should, writer, number, len);
	if (memcmp(record, should, len))
		fail("a record is not whole");
	expected[writer]++;
}

/* Some at a time, as readers do that have other work; then asleep until there is more. */
static __u32 read_some(__u32 *expected, __u32 at_most)
{
	const __u8 *record;
	__u32 len, n;

	for (n = 0; n < at_most; n++) {
		record = tp_queue_peek(&queue, &len);
		if (!record) {
			tp_queue_rest(&queue);
			record = tp_queue_peek(&queue, &len);
		}
		if (!record)
			return n;
		check(record, len, expected);
		tp_queue_release(&queue, len);
	}
	tp_queue_wake(&queue);
	return n;
}

static void read_all(void)
{
	struct pollfd wake = {queue.fd, POLLIN, 0};
	__u32 expected[WRITERS] = {0}, got = 0;

	while (got < WRITERS * RECORDS) {
		got += read_some(expected, 1 + got % 7);
		if (poll(&wake, 1, got < WRITERS * RECORDS ? NEVER_MS : 0) == 0 && got < WRITERS * RECORDS)
			fail("the reader sleeps beside a record");
	}
}

static void refused_when_full(void)
{
	__u32 len, n = 0;
	__u8 *room;

	while ((room = tp_queue_reserve(&queue, 120))) {
		memset(room, 1, 120);
		tp_queue_commit(&queue, room, 120);
		n++;
	}
	if (n < SIZE / 128 - 1 || n > SIZE / 128)
		fail("it holds another number of records than there is room for");
	while (tp_queue_peek(&queue, &len)) {
		tp_queue_release(&queue, len);
		n--;
	}
	if (n || tp_queue_reserve(&queue, SIZE))
		fail("there are others in it, or one has room that has none");
}

static __u32 elsewhere, seen;

/* The next piece of work comes when the reader has seen the last one, and may be about to sleep. */
static void *nudge_all(void *argument)
{
	__u32 number;

	for (number = 1; number <= NUDGES; number++) {
		__atomic_store_n(&elsewhere, number, __ATOMIC_RELEASE);
		tp_queue_nudge(&queue);
		while (__atomic_load_n(&seen, __ATOMIC_ACQUIRE) < number)
			sched_yield();
	}
	return argument;
}

static void work_elsewhere(void)
{
	struct pollfd wake = {queue.fd, POLLIN, 0};
	pthread_t writer;
	__u32 found = 0;

	if (pthread_create(&writer, NULL, nudge_all, NULL))
		fail("no thread");
	while (found < NUDGES) {
		tp_queue_rest(&queue);
		found = __atomic_load_n(&elsewhere, __ATOMIC_ACQUIRE);
		if (found == seen && poll(&wake, 1, NEVER_MS) == 0)
			fail("the reader sleeps beside work elsewhere");
		__atomic_store_n(&seen, found, __ATOMIC_RELEASE);
	}
	pthread_join(writer, NULL);
}

/* The next record, whose first octet is this. */
static void expect(__u8 octet)
{
	const __u8 *record;
	__u32 len;

	record = tp_queue_peek(&queue, &len);
	if (!record || *record != octet)
		fail("another record comes than the next complete one");
	tp_queue_release(&queue, len);
}

static void put(__u8 octet, __u32 len)
{
	__u8 *room = tp_queue_reserve(&queue, len);

	if (!room)
		fail("there is no room");
	memset(room, octet, len);
	tp_queue_commit(&queue, room, len);
}

/* One writer ends before its record is complete, after so many octets; one before it has said how long it is; others go on behind them, at
 * any place of the memory. Then a reader ends while it clears a record. */
static void passes_over_what_nobody_completes(void)
{
	__u32 round, len, octets;
	__u8 *room, *front;

	for (round = 0; round < 600; round++) {
		octets = 1 + round % LONGEST;
		put(1, 8 + round % 50);
		room = tp_queue_reserve(&queue, octets);
		memset(room, 0xff, round % octets);
		put(2, 100);
		room = tp_queue_reserve(&queue, octets);
		front = room - 8;
		memset(front, 0, 8);
		put(3, 20);
		expect(1);
		if (tp_queue_peek(&queue, &len))
			fail("a record comes that nobody has completed");
		tp_queue_mend(&queue);
		put(4, 30);
		expect(2);
		expect(3);
		if (!tp_queue_peek(&queue, &len))
			fail("a record is missing");
		state.until = state.read + 40;
		memset(queue.data + (state.read & (SIZE - 1)), 0, round % 40);
		tp_queue_mend(&queue);
		put(5, 10);
		expect(5);
		if (tp_queue_peek(&queue, &len) || state.read != state.written)
			fail("something is left");
	}
	for (len = 0; len < SIZE; len++)
		if (queue.data[len])
			fail("memory behind the reader is not zero");
}

/* Whatever lies between reader and writers, it comes to an end, within the memory. */
static void mends_anything(void)
{
	__u64 *words = (__u64 *)queue.data, at;
	__u32 round, i, len;

	srand(1);
	for (round = 0; round < 2000; round++) {
		state.read = (__u64)rand() * 8;
		state.written = state.read + (__u64)(rand() % (SIZE / 8)) * 8;
		state.until = state.read + (__u64)(rand() % (SIZE / 8)) * 8;
		for (at = state.read; at != state.written; at += 8)
			words[at / 8 % (SIZE / 8)] =
			    rand() % 3 ? 0 : (__u64)(rand() % 8) << 32 | (__u32)(rand() % (round % 2 ? 64 : 1 << 20));
		tp_queue_mend(&queue);
		for (i = 0; i < SIZE && tp_queue_peek(&queue, &len); i++)
			tp_queue_release(&queue, len);
		if (state.read != state.written)
			fail("it has no end");
	}
	memset(queue.data, 0, SIZE);
	memset(&state, 0, sizeof(state));
}

int main(void)
{
	pthread_t threads[WRITERS];
	size_t i;

	queue.fd = eventfd(0, EFD_NONBLOCK);
	queue.size = SIZE;
	queue.state = &state;
	queue.data = aligned_alloc(64, SIZE);
	if (queue.fd < 0 || !queue.data)
		fail("no memory");
	memset(queue.data, 0, SIZE);
	refused_when_full();
	mends_anything();
	passes_over_what_nobody_completes();
	for (i = 0; i < WRITERS; i++)
		if (pthread_create(&threads[i], NULL, write_all, (void *)i))
			fail("no thread");
	read_all();
	for (i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
	work_elsewhere();
	free(queue.data);
	close(queue.fd);
	printf("queue: %u records of %d writers\n", WRITERS * RECORDS, WRITERS);
	return 0;
}
