/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The way out: the routes of a network instance, its neighbours, the kernel's FIB. */
#ifndef TP_ROUTE_H
#define TP_ROUTE_H

#include <linux/bpf.h>

#include "packet.h"
#include "parse.h"
#include "seek.h"
#include "ue_to_ue.h"

/* Destinations that no router forwards (RFC 1812, 5.3.7; RFC 4291, 2.5): whatever the routes say, a
 * user's packet to them goes nowhere, least of all through the kernel to this host. */
static TP_INLINE int tp_check_destination(const struct tp_packet *p, struct tp_addr dst)
{
	__u32 first = (__u32)(dst.hi >> 56);

	if (p->family == 4)
		return first == 127 ? TP_DROP_TO_SELF : first == 0 || first >= 224 ? TP_DROP_NO_ROUTE : TP_OK;
	if (first == 0xff || dst.hi >> 54 == 0x3fa)
		return TP_DROP_NO_ROUTE;
	return dst.hi == 0 && dst.lo <= 1 ? TP_DROP_TO_SELF : TP_OK;
}

/* The longest prefix that covers dst, of the routes from place on; NULL: none does. */
static TP_INLINE const struct tp_route *tp_scan_routes(struct tp_env *env, __u32 place, struct tp_addr dst)
{
	const struct tp_route *route;
	__u32 i;

	for (i = 0; i < TP_ROUTES_MAX; i++) {
		route = tp_route_at(env, place + i);
		if (!route)
			return NULL;
		if (tp_in_prefix(dst, route->addr, route->plen))
			return route;
		if (route->flags & TP_ROUTE_LAST)
			return NULL;
	}
	return NULL;
}

/* The same of the routes behind a map. Most destinations have none but the default: their first octet says so (decision 0004). */
static TP_INLINE const struct tp_route *tp_covering_route(struct tp_env *env, const struct tp_route_map *map, __u32 first,
							   struct tp_addr dst)
{
	__u32 octet = (__u32)(dst.hi >> 56);

	return map->covered[octet >> 6 & 3] >> (octet & 63) & 1 ? tp_scan_routes(env, first + 1, dst) : NULL;
}

/* The next hop of an address in a pool that no session has: of a route that says more of it than the pool does, as to a
 * router on N6 with an address beside those of the UEs. TP_NOT_FOUND: there is none. Parameters as of tp_find_ue(). */
TP_APART __u32 tp_route_in_pool(struct tp_env *env, __u32 ni_family, __u64 hi, __u64 lo)
{
	const struct tp_ni *instance = tp_ni_at(env, ni_family & 0xffff);
	const struct tp_route_map *map;
	const struct tp_route *route;
	struct tp_addr dst = {hi, lo};
	__u32 first;

	if (!instance)
		return TP_NOT_FOUND;
	first = ni_family >> 16 == 4 ? TP_READ(instance->routes4) : TP_READ(instance->routes6);
	map = first ? (const struct tp_route_map *)tp_route_at(env, first) : NULL;
	route = map ? tp_covering_route(env, map, first, dst) : NULL;
	return route && route->flags & TP_ROUTE_IN_POOL ? TP_READ(route->nexthop) : TP_NOT_FOUND;
}

/* May a UE of this network instance have the address? Most destinations it can rule out without a search. */
static TP_INLINE int tp_may_be_ue(const struct tp_packet *p, const struct tp_ni *instance, struct tp_addr dst)
{
	if (p->family == 4)
		return TP_READ(instance->ue4) >> (dst.hi >> 56 & 63) & 1;
	return TP_READ(instance->ue6) >> tp_ue6_bit(dst.hi) & 1;
}

/* The next hop of the longest prefix that covers dst. TP_OUT_UE: a UE has it, whose entry's index is left
 * in nexthop. */
static TP_INLINE int tp_find_route(struct tp_packet *p, __u32 ni, struct tp_addr dst, __u32 *nexthop)
{
	const struct tp_ni *instance = tp_ni_at(p->env, ni);
	const struct tp_route_map *map;
	const struct tp_route *route;
	__u32 first;
	__u64 ue;

	if (!instance)
		return TP_DROP_TABLE;
	if (tp_unlikely(tp_may_be_ue(p, instance, dst))) {
		ue = tp_find_ue(p->env, ni | p->family << 16, dst.hi, dst.lo);
		*nexthop = (__u32)ue;
		if (ue == TP_UE_LOST(TP_DROP_UNKNOWN_UE)) {
			*nexthop = tp_route_in_pool(p->env, ni | p->family << 16, dst.hi, dst.lo);
			return *nexthop == TP_NOT_FOUND ? TP_DROP_UNKNOWN_UE : TP_OK;
		}
		if (ue >> 32)
			return tp_final((int)ue);
		if (*nexthop != TP_UE_NONE)
			return TP_OUT_UE;
	}
	first = p->family == 4 ? TP_READ(instance->routes4) : TP_READ(instance->routes6);
	if (!first)
		return TP_DROP_NO_ROUTE;
	map = (const struct tp_route_map *)tp_route_at(p->env, first);
	if (!map)
		return TP_DROP_TABLE;
	route = tp_covering_route(p->env, map, first, dst);
	if (!route && (map->flags & TP_ROUTE_NONE))
		return TP_DROP_NO_ROUTE;
	*nexthop = route ? TP_READ(route->nexthop) : TP_READ(map->nexthop);
	return TP_OK;
}

/* The next hop's index of the neighbour that has the address itself, on a link of this network instance; or TP_NOT_FOUND. */
static TP_INLINE __u32 tp_find_neighbour(struct tp_packet *p, __u32 ni, struct tp_addr dst)
{
	const struct tp_nexthop *nh;
	__u32 index;

	if (!tp_has(p->env, TP_FEAT_BUCKETS))
		return TP_NOT_FOUND;
	if (p->family == 4)
		return tp_bucket_find(p->env, TP_KIND_NEIGH4, ni, dst.hi >> 32);
	index = tp_bucket_find(p->env, TP_KIND_NEIGH6, ni, tp_fold6(dst.hi, dst.lo));
	nh = tp_nexthop_at(p->env, index);
	return nh && tp_in_prefix(dst, nh->addr, 128) ? index : TP_NOT_FOUND;
}

/* The FIB's answer as a next hop like one of the table's. Where it points at a device that is no port of ours, or has no
 * neighbour yet, the slow path sends. */
static TP_INLINE int tp_read_fib(const struct tp_config *config, const struct tp_fib *q, int r, struct tp_nexthop *hop)
{
	__u32 i;

	hop->state = TP_NH_UNRESOLVED;
	hop->ifindex = 0;
	hop->mtu = 0xffff; /* the FIB has looked */
	if (r == BPF_FIB_LKUP_RET_BLACKHOLE || r == BPF_FIB_LKUP_RET_UNREACHABLE || r == BPF_FIB_LKUP_RET_PROHIBIT)
		return TP_DROP_PROHIBITED;
	if (r == BPF_FIB_LKUP_RET_FRAG_NEEDED) {
		hop->state = TP_NH_RESOLVED;
		hop->port = TP_PORTS_MAX; /* nobody's: it does not fit */
		hop->mtu = (__u16)q->mtu;
		hop->l2_len = TP_ETH_LEN;
		return TP_OK;
	}
	if (r == BPF_FIB_LKUP_RET_NO_NEIGH || r == BPF_FIB_LKUP_RET_UNSUPP_LWT)
		return TP_OK;
	if (r != BPF_FIB_LKUP_RET_SUCCESS)
		return TP_DROP_NO_ROUTE;
	hop->ifindex = q->ifindex;
	hop->l2_len = TP_ETH_LEN;
	__builtin_memcpy(hop->l2, q->dmac, 6);
	__builtin_memcpy(hop->l2 + 6, q->smac, 6);
	for (i = 0; i < TP_PORTS_MAX; i++) {
		if (q->ifindex && TP_READ(config->port_ifindex[i]) == q->ifindex) {
			hop->port = i;
			hop->state = TP_NH_RESOLVED;
			break;
		}
	}
	return TP_OK;
}

/* A next hop that only the kernel's FIB knows: left in tp_cpu.hop, for this packet. The way is the peer's, or, with
 * TP_NOT_FOUND for one, that of the user's packet. len: octets that leave. */
TP_APART int tp_ask_fib(struct tp_env *env, __u64 user, __u32 peer, __u32 len)
{
	const struct tp_peer *to = tp_peer_at(env, peer);
	const struct tp_config *config = tp_config_of(env);
	struct tp_cpu *cpu = tp_cpu_of(env);
	struct tp_packet p = {0};
	struct tp_fib q = {0};
	struct tp_addr a;

	p.env = env;
	if (!config || !cpu)
		return TP_DROP_TABLE;
	q.len = len;
	q.family = 4;
	if (to && tp_has(env, TP_FEAT_OUTER6) && (to->flags & TP_PEER_V6)) {
		q.family = 6;
		__builtin_memcpy(q.src, to->local6, 16);
		__builtin_memcpy(q.dst, to->remote6, 16);
	} else if (to) {
		tp_store32(q.src, to->local_be);
		tp_store32(q.dst, to->remote_be);
	} else {
		if (!tp_unpack_user(&p, user))
			return TP_DROP_TABLE;
		q.family = p.family;
		a = tp_source(&p);
		tp_store64(q.src, tp_swap64(a.hi));
		tp_store64(q.src + 8, tp_swap64(a.lo));
		a = tp_destination(&p);
		tp_store64(q.dst, tp_swap64(a.hi));
		tp_store64(q.dst + 8, tp_swap64(a.lo));
	}
	return tp_read_fib(config, &q, tp_fib_ask(env, &q), &cpu->hop);
}

/* Is a next hop one to send through? len: octets of the IP packet as it will leave. The kernel, which sends what is not
 * resolved, would refuse what is too long and tell nobody. */
static TP_INLINE int tp_check_nexthop(const struct tp_nexthop *nh, __u32 len)
{
	switch (nh->state) {
	case TP_NH_RESOLVED:
	case TP_NH_UNRESOLVED:
	case TP_NH_ONLINK:
		return len > nh->mtu ? TP_DROP_MTU : TP_OK;
	case TP_NH_LOCAL:
		return TP_DROP_TO_SELF;
	case TP_NH_PROHIBIT:
		return TP_DROP_PROHIBITED;
	case TP_NH_NONE:
		return TP_DROP_NO_ROUTE;
	case TP_NH_FAILED:
		return TP_DROP_NEIGHBOUR_UNRESOLVED;
	case TP_NH_POLICY:
		return TP_DROP_FORWARDING_POLICY;
	default:
		return TP_DROP_TABLE;
	}
}

#endif
