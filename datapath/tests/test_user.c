/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The UE of a frame, as receive cores spread by it: the same in both directions, and none where there is none. */
#include <stdio.h>
#include <stdlib.h>

#include "packets.h"
#include "world.h"

#define CHECK(condition)                                                                        \
	do {                                                                                    \
		checks++;                                                                       \
		if (!(condition)) {                                                             \
			failures++;                                                             \
			printf("%s:%d: %s: %s\n", __FILE__, __LINE__, __func__, #condition);    \
		}                                                                               \
	} while (0)

static int checks, failures;

/* The UE in packets.h: 10.60.0.1 and 2001:db8:60::/64. */
#define UE4 (0x0a3c0001ULL << 32)
#define UE6 0x20010db800600000ULL

static const struct tp_port_config both = {0, TP_ROLE_N3 | TP_ROLE_N6, 0, 0};
static const struct tp_port_config n3 = {0, TP_ROLE_N3, 0, 0};
static const struct tp_port_config n6 = {0, TP_ROLE_N6, 0, 0};
static const struct tp_port_config relaying = {0, TP_ROLE_N3, TP_FEAT_RELAY, 0};

/* Direction of the frame that was looked at last. */
static __u8 dir;

/* In memory that ends where the frame does, so that ASan sees one octet beyond. */
static __u64 user_of(struct world *w, const struct tp_port_config *port, const __u8 *frame, __u32 len)
{
	__u8 *copy = malloc(len ? len : 1);
	__u64 ue;

	memcpy(copy, frame, len);
	ue = tp_host_user(&w->tables, port, copy, len, &dir);
	free(copy);
	return ue;
}

/* In the tunnel of ul_plain. */
static void end_marker(__u8 *frame)
{
	memcpy(frame, ul_plain, sizeof(ul_plain));
	frame[43] = 254;
}

#define USER(w, port, frame) user_of(w, port, frame, sizeof(frame))

static void test_both_directions(void)
{
	struct world *w = w_new();

	CHECK(USER(w, &n3, ul_plain) == UE4);
	CHECK(USER(w, &n3, ul_two_extensions) == UE4);
	CHECK(USER(w, &n6, dl_v4) == UE4);
	CHECK(USER(w, &n6, dl_v6) == UE6);
	CHECK(USER(w, &both, ul_plain) == UE4);
	CHECK(dir == TP_UPLINK);
	CHECK(USER(w, &both, dl_v4) == UE4);
	CHECK(dir == TP_DOWNLINK);
	free(w);
}

static void test_tags(void)
{
	static const __u8 tag[] = {0x81, 0x00, 0x00, 0x1e};
	struct world *w = w_new();
	__u8 tagged[sizeof(dl_v4) + sizeof(tag)];

	memcpy(tagged, dl_v4, 12);
	memcpy(tagged + 12, tag, sizeof(tag));
	memcpy(tagged + 16, dl_v4 + 12, sizeof(dl_v4) - 12);
	CHECK(USER(w, &n6, tagged) == UE4);
	free(w);
}

/* Between UPFs a tunnel's rules say that its packets are downlink: they stay together by their tunnel. */
static void test_downlink_in_tunnels(void)
{
	struct world *w = w_new();
	__u8 marker[sizeof(ul_plain)];

	end_marker(marker);
	w->entries[W_TEID].head |= TP_HEAD_DOWN;
	CHECK(USER(w, &n3, ul_plain) == UE4);
	CHECK(dir == TP_UPLINK);
	CHECK(USER(w, &relaying, ul_plain) == W_TEID);
	CHECK(dir == TP_DOWNLINK);
	/* An End Marker too, which has no UE. */
	CHECK(USER(w, &relaying, marker) == W_TEID);
	CHECK(USER(w, &n3, marker) == 0);
	/* A list says it by its rules. */
	w->entries[W_TEID].head = w_head(W_TEID, TP_ACT_LIST, 0, 0) | 1ULL << TP_HEAD_RULE_SHIFT;
	w->rules[1].rule[0].entry = 9;
	CHECK(USER(w, &relaying, ul_plain) == UE4);
	w->entries[9].head = w_head(0, TP_ACT_ROUTE, TP_HEAD_DOWN, 0);
	CHECK(USER(w, &relaying, ul_plain) == W_TEID);
	CHECK(USER(w, &relaying, marker) == W_TEID);
	w->rules[1].rule[0].entry = W_ENTRIES;
	CHECK(USER(w, &relaying, ul_plain) == UE4);
	w->entries[W_TEID].head = w_head(W_TEID, TP_ACT_LIST, 0, 0) | (__u64)W_SMALL << TP_HEAD_RULE_SHIFT;
	CHECK(USER(w, &relaying, ul_plain) == UE4);
	free(w);
}

static void test_without_a_ue(void)
{
	static const __u8 arp[60] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, [12] = 0x08, 0x06};
	struct world *w = w_new();
	__u8 frame[sizeof(ul_plain)];
	__u32 len;

	CHECK(USER(w, &n3, echo_request) == 0);
	CHECK(USER(w, &n3, arp) == 0);
	CHECK(dir == TP_UPLINK);
	CHECK(USER(w, &n6, arp) == 0);
	CHECK(dir == TP_DOWNLINK);
	CHECK(USER(w, &n3, dl_v4) == 0);
	end_marker(frame);
	CHECK(USER(w, &n3, frame) == 0);
	CHECK(USER(w, &relaying, frame) == 0);
	for (len = 0; len < sizeof(ul_plain); len++)
		CHECK(user_of(w, &n3, ul_plain, len) == 0);
	for (len = 0; len < 34; len++)
		CHECK(user_of(w, &n6, dl_v4, len) == 0);
	free(w);
}

int main(void)
{
	test_both_directions();
	test_tags();
	test_downlink_in_tunnels();
	test_without_a_ue();
	printf("user: %d checks, %d failed\n", checks, failures);
	return failures != 0;
}
