/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* A small world for tests: one gNB, one router, one dual-stack UE.
 *
 * entries  5 uplink (TEID 5), 6 relay (TEID 6, towards the gNB), 3 relay with QFI 9, 4 relay without container,
 *          8 downlink, 10.. targets of rules[1..]
 * peers    1 the gNB, 2 the gNB over IPv6
 * nexthops 1 the gNB, 2 the router, 3 this host, 4 not resolved, 5 on-link, 6 FIB, 7 prohibited
 * ports    0 N3, 1 N6
 * rules    15 the framed routes */
#ifndef TP_WORLD_H
#define TP_WORLD_H

#include <stdlib.h>
#include <string.h>

#include "tp_drop.h"
#include "tp_host.h"

#define W_ENTRIES 32
#define W_SMALL 16
#define W_TEID 5
#define W_RELAY 6
#define W_MARK 3
#define W_BARE 4
#define W_DOWN 8
#define W_IP4(a, b, c, d) ((__u32)(a) | (__u32)(b) << 8 | (__u32)(c) << 16 | (__u32)(d) << 24)

struct world {
	struct tp_config config;
	struct tp_cpu cpu;
	struct tp_entry entries[W_ENTRIES];
	struct tp_side sides[W_ENTRIES];
	struct tp_ext exts[W_SMALL];
	struct tp_meter meters[W_SMALL];
	struct tp_capacity capacities[W_SMALL];
	struct tp_rules rules[W_SMALL];
	struct tp_bucket buckets[W_SMALL];
	struct tp_nexthop nexthops[W_SMALL];
	struct tp_peer peers[W_SMALL];
	struct tp_route routes[W_SMALL];
	struct tp_ni nis[2];
	struct tp_ue_dir ue_dir[2];
	struct tp_ue_page ue_pages[2];
	struct tp_tables tables;
};

static __u64 w_head(__u32 key, __u64 action, __u64 flags, __u64 qfi)
{
	return key | action << TP_HEAD_ACTION_SHIFT | flags | qfi << TP_HEAD_QFI_SHIFT;
}

static void w_nexthop(struct tp_nexthop *nh, __u32 state, __u32 port, __u8 from, __u8 to)
{
	nh->state = state;
	nh->port = port;
	nh->ifindex = 100 + port;
	nh->mtu = 1500;
	nh->l2_len = 14;
	nh->l2[0] = nh->l2[6] = 2;
	nh->l2[5] = to;
	nh->l2[11] = from;
}

/* Put a key into the first free slot of its first bucket. */
static void w_bucket(struct world *w, __u32 kind, __u32 ni, __u64 key, __u32 value)
{
	struct tp_bucket *b = &w->buckets[tp_hash(key, kind << 16 | ni, w->config.salt) >> 40 & w->config.bucket_mask];
	int i;

	for (i = 0; b->slot[i].value; i++)
		;
	b->slot[i].key = key;
	b->slot[i].value = value | (__u64)ni << 32 | (__u64)kind << 48;
}

static struct tp_route_map *w_default4(struct world *w)
{
	return (struct tp_route_map *)&w->routes[2];
}

static void w_routes(struct world *w)
{
	/* routes[2..3]: map with the default route, and the host itself; routes[5]: the map of IPv6. */
	struct tp_route_map *map4 = w_default4(w), *map6 = (struct tp_route_map *)&w->routes[5];

	w->nis[0].routes4 = 2;
	w->nis[0].routes6 = 5;
	map4->covered[10 / 64] = 1ULL << 10;
	map4->nexthop = 2;
	memcpy(w->routes[3].addr, (__u8[]){10, 3, 0, 1}, 4);
	w->routes[3].plen = 32;
	w->routes[3].nexthop = 3;
	w->routes[3].flags = TP_ROUTE_LAST;
	map6->nexthop = 2;
	map6->flags = TP_ROUTE_LAST;
	w_nexthop(&w->nexthops[1], TP_NH_RESOLVED, 0, 1, 2);
	w_nexthop(&w->nexthops[2], TP_NH_RESOLVED, 1, 3, 4);
	w_nexthop(&w->nexthops[3], TP_NH_LOCAL, 0, 0, 0);
	w_nexthop(&w->nexthops[4], TP_NH_UNRESOLVED, 1, 3, 4);
	w_nexthop(&w->nexthops[5], TP_NH_ONLINK, 1, 3, 4);
	w_nexthop(&w->nexthops[6], TP_NH_FIB, 1, 3, 4);
	w_nexthop(&w->nexthops[7], TP_NH_PROHIBIT, 1, 3, 4);
}

/* Behind the UE: 198.51.100.0/24 and 2001:db8:70::/44. */
static void w_framed(struct world *w)
{
	struct tp_framed_routes *framed = (struct tp_framed_routes *)&w->rules[W_SMALL - 1];

	framed->route[0] = (struct tp_framed){.prefix = {0xc633640000000000, 0}, .plen = 24, .family = 4};
	framed->route[1] = (struct tp_framed){.prefix = {0x20010db800700000, 0}, .plen = 44, .family = 6};
	w->exts[1].framed = W_SMALL;
	w->exts[1].n_framed = 2;
	w->nis[0].lens4 = 1ULL << 24;
	w->nis[0].lens6[0] = 1ULL << 43;
	w_bucket(w, TP_KIND_PREFIX4 | 24 << TP_KIND_PLEN_SHIFT, 0, 0xc6336400, W_DOWN);
	w_bucket(w, TP_KIND_PREFIX6 | 44 << TP_KIND_PLEN_SHIFT, 0, 0x20010db800700000, W_DOWN);
}

static struct world *w_new(void)
{
	static const __u8 prefix[16] = {0x20, 0x01, 0x0d, 0xb8, 0, 0x60};
	static const __u8 n3_6[16] = {0x20, 0x01, 0x0d, 0xb8, 0, 3, [15] = 1};
	struct world *w = aligned_alloc(64, (sizeof(*w) + 63) / 64 * 64);
	__u32 i;

	memset(w, 0, sizeof(*w));
	for (i = 0; i < W_ENTRIES; i++)
		w->entries[i].alarm = TP_ALARM_NONE;
	w->config.n3_be[0] = W_IP4(10, 3, 0, 1);
	memcpy(w->config.n3_6[0], n3_6, 16);
	w->config.bucket_mask = W_SMALL - 1;
	w->config.salt = 0x1234567;
	w->config.error_indication_ns = 10000000;
	w->config.echo_ns = 1000000;
	w->entries[W_TEID].head = w_head(W_TEID, TP_ACT_ROUTE, TP_HEAD_UE | TP_HEAD_EXT, 0);
	w->entries[W_TEID].out = W_IP4(10, 60, 0, 1);
	w->entries[W_TEID].ext = 1;
	w->entries[W_RELAY].head = w_head(W_RELAY, TP_ACT_TUNNEL, 0, 0);
	w->entries[W_RELAY].out = W_IP4(0xa1, 0xb2, 0xc3, 0xd4) | 1ULL << 32;
	w->entries[W_MARK] = w->entries[W_BARE] = w->entries[W_RELAY];
	w->entries[W_MARK].head = w_head(W_MARK, TP_ACT_TUNNEL, TP_HEAD_MARK | TP_HEAD_DOWN, 9);
	w->entries[W_BARE].head = w_head(W_BARE, TP_ACT_TUNNEL, TP_HEAD_EXT, 0);
	w->entries[W_BARE].ext = 2;
	w->exts[2].removal = 1;
	w->entries[W_DOWN].head = w_head(0, TP_ACT_TUNNEL, TP_HEAD_MARK, 9);
	w->entries[W_DOWN].out = W_IP4(0xa1, 0xb2, 0xc3, 0xd4) | 1ULL << 32;
	memcpy(w->exts[1].ue6, prefix, 16);
	w->exts[1].ue6_plen = 64;
	w->peers[1] = (struct tp_peer){1, W_IP4(10, 3, 0, 2), W_IP4(10, 3, 0, 1), 0, {0}, {0}, {0}};
	w->peers[2] = (struct tp_peer){1, 0, 0, TP_PEER_V6, {0x20, 0x01, 0x0d, 0xb8, 0, 3, [15] = 2}, {0}, {0}};
	memcpy(w->peers[2].local6, n3_6, 16);
	/* A share of what there is enough of. */
	w->exts[1].share = 6 + 1;
	w->meters[6].slower = 1 << TP_SHARE_SHIFT;
	w->meters[6].capacities[0] = 1;
	w->capacities[1].rate = ~0ULL << TP_RATE_BURST_SHIFT;
	w_routes(w);
	w->ue_dir[0].page[0x0a3c0001 >> TP_UE_PAGE_BITS] = 1;
	memset(w->ue_pages[0].slot, 0xff, sizeof(w->ue_pages[0].slot));
	w->ue_pages[0].slot[1] = W_DOWN + 1;
	w_bucket(w, TP_KIND_UE6, 0, 0x20010db800600000, W_DOWN);
	w_framed(w);
	w->tables = (struct tp_tables){
		.config = &w->config, .cpu = &w->cpu, .entries = w->entries, .sides = w->sides, .exts = w->exts, .meters = w->meters, .capacities = w->capacities,
		.rules = w->rules, .buckets = w->buckets, .nexthops = w->nexthops, .peers = w->peers,
		.routes = w->routes, .nis = w->nis, .ue_dir = w->ue_dir, .ue_pages = w->ue_pages,
		.n_entries = W_ENTRIES, .n_exts = W_SMALL, .n_meters = W_SMALL, .n_capacities = W_SMALL, .n_rules = W_SMALL,
		.n_buckets = W_SMALL, .n_nexthops = W_SMALL, .n_peers = W_SMALL, .n_routes = W_SMALL, .n_nis = 2, .n_sides = W_ENTRIES, .n_ue_dir = 2,
		.n_ue_pages = 2, .ports_up = 3,
	};
	return w;
}

static const struct tp_port_config w_n3 = {0, TP_ROLE_N3, TP_FEAT_ALL, 0};
static const struct tp_port_config w_n6 = {1, TP_ROLE_N6, TP_FEAT_ALL, 0};

#endif
