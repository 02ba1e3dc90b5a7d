/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What the PDI asks beside the key (TS 29.244, 5.2.1). */
#ifndef TP_CONDITIONS_H
#define TP_CONDITIONS_H

#include "packet.h"
#include "seek.h"

#define TP_IPPROTO_ICMP6 58
#define TP_ICMP6_ROUTER_SOLICITATION 133
#define TP_ICMP6_NEIGHBOUR_ADVERTISEMENT 136

/* The extension line of an entry; NULL: it has none. */
static TP_INLINE const struct tp_ext *tp_ext_of(struct tp_env *env, const struct tp_entry *e, __u64 head)
{
	if (!tp_has(env, TP_FEAT_EXT) || !(head & TP_HEAD_EXT))
		return NULL;
	return tp_ext_at(env, (__u32)TP_READ(e->ext));
}

/* The extension line of the packet's entry. It is looked up where it is needed: to carry it along, or the lack of it, makes two
 * of each step that the verifier follows. */
static TP_INLINE const struct tp_ext *tp_ext(const struct tp_packet *p)
{
	return tp_ext_of(p->env, p->entry, p->head);
}

/* The peer of tp_entry.out. */
static TP_INLINE __u32 tp_out_peer(__u64 out)
{
	return (__u32)(out >> 32);
}

/* Transport level marking of the entry's FAR, as tp_mark_ip() has it; 0: none. */
static TP_INLINE __u32 tp_mark_of(const struct tp_ext *ext)
{
	return ext ? (__u32)ext->tos_mask << 8 | ext->tos : 0;
}

/* Is it one of a network behind the UE? ext may be NULL. */
static TP_INLINE int tp_is_behind_ue(const struct tp_packet *p, const struct tp_ext *ext, struct tp_addr a)
{
	return ext && ext->framed &&
	       tp_in_one_of(p->env, ext->framed | (__u64)ext->n_framed << 32, p->family, a.hi, a.lo);
}

/* Does the packet come from the UE's own address, or from a network behind it? */
static TP_INLINE int tp_from_ue(struct tp_packet *p, const struct tp_entry *e, __u64 head)
{
	const struct tp_ext *ext;
	__u32 ue4_be;

	if (p->family == 4) {
		ue4_be = (__u32)TP_READ(e->out);
		if (ue4_be && ue4_be == tp_load32(p->ip + 12))
			return 1;
		if (!tp_has(p->env, TP_FEAT_PREFIX))
			return 0;
	}
	ext = tp_ext_of(p->env, e, head);
	if (p->family != 4 && ext && ext->ue6_plen && tp_in_prefix(tp_source(p), ext->ue6, ext->ue6_plen))
		return 1;
	return tp_has(p->env, TP_FEAT_PREFIX) && tp_is_behind_ue(p, ext, tp_source(p));
}

/* Neighbour discovery between the UE and whoever is its router: a packet that begins or ends at a
 * link-local address, or has none yet (RFC 4861, 4). */
static TP_INLINE int tp_is_discovery(struct tp_packet *p, struct tp_addr end)
{
	const __u8 *type;

	if (p->family != 6 || p->ip[6] != TP_IPPROTO_ICMP6)
		return 0;
	type = tp_at(p, p->user + TP_IP6_LEN, 1);
	if (!type || *type < TP_ICMP6_ROUTER_SOLICITATION || *type > TP_ICMP6_NEIGHBOUR_ADVERTISEMENT)
		return 0;
	return end.hi >> 54 == 0x3fa || end.hi >> 48 == 0xff02 || !(end.hi | end.lo);
}

/* Conditions on a packet that goes from tunnel to tunnel. They stand in the extension line, because the
 * entry's own words say where to.
 *
 * index: of that line; user: tp_pack_user() of the packet. */
TP_APART __u32 tp_check_relayed(struct tp_env *env, __u32 index, __u64 user)
{
	const struct tp_ext *ext = tp_ext_at(env, index);
	struct tp_packet p = {0};
	struct tp_addr ue;
	int own;

	p.env = env;
	if (!ext || !tp_unpack_user(&p, user))
		return TP_DROP_TABLE;
	if ((ext->asks & TP_ASKS_QFI) && p.qfi != ext->qfi)
		return TP_DROP_QFI_MISMATCH;
	if (!(ext->asks & TP_ASKS_UE))
		return TP_OK;
	ue = ext->asks & TP_ASKS_UE_DST ? tp_destination(&p) : tp_source(&p);
	if (p.family == 4)
		own = ext->ue4_be && tp_swap32(ext->ue4_be) == ue.hi >> 32;
	else
		own = ext->ue6_plen && (tp_in_prefix(ue, ext->ue6, ext->ue6_plen) || tp_is_discovery(&p, ue));
	if (!own && tp_has(env, TP_FEAT_PREFIX))
		own = tp_is_behind_ue(&p, ext, ue);
	return own ? TP_OK : TP_DROP_UE_SPOOFED;
}

/* Do its packets leave in a tunnel, or in UDP alone? */
static TP_INLINE int tp_goes_by_tunnel(struct tp_env *env, __u64 head)
{
	return TP_HEAD_ACTION(head) == TP_ACT_TUNNEL || (tp_has(env, TP_FEAT_UDP) && TP_HEAD_ACTION(head) == TP_ACT_UDP);
}

/* Does the packet go from tunnel to tunnel, and is all that its PDI asks the IPv4 address that it has? So most do, and
 * need no tp_check_relayed(). */
static TP_INLINE int tp_is_plain_relay(struct tp_packet *p, const struct tp_entry *e, __u64 head)
{
	const struct tp_ext *ext;
	__u32 ue4_be;

	if (!tp_has(p->env, TP_FEAT_RELAY) || TP_HEAD_ACTION(head) != TP_ACT_TUNNEL || p->dir != TP_UPLINK ||
	    p->family != 4)
		return 0;
	ext = tp_ext_of(p->env, e, head);
	ue4_be = ext ? ext->ue4_be : 0;
	return ue4_be && (ext->asks & ~TP_ASKS_UE_DST) == TP_ASKS_UE &&
	       ue4_be == tp_load32(p->ip + (ext->asks & TP_ASKS_UE_DST ? 16 : 12));
}

/* Conditions of the PDI that stand in the entry itself. Downlink packets have no QFI, and their UE
 * address was the key. */
static TP_INLINE int tp_check_conditions(struct tp_packet *p, const struct tp_entry *e, __u64 head)
{
	if (p->dir != TP_UPLINK)
		return TP_OK;
	if (tp_is_plain_relay(p, e, head))
		return TP_OK;
	if (tp_has(p->env, TP_FEAT_RELAY) && (tp_goes_by_tunnel(p->env, head) || (head & TP_HEAD_DOWN)))
		return head & TP_HEAD_EXT ? tp_said((int)tp_check_relayed(p->env, (__u32)TP_READ(e->ext), tp_pack_user(p))) : TP_OK;
	if ((head & TP_HEAD_QFI) && p->qfi != TP_HEAD_QFI_OF(head))
		return TP_DROP_QFI_MISMATCH;
	if ((head & TP_HEAD_UE) && !tp_from_ue(p, e, head))
		return TP_DROP_UE_SPOOFED;
	return TP_OK;
}

#endif
