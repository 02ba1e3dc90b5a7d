/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* From tunnel to tunnel: the GTP-U header goes along, with its optional octets and extension headers. */
#ifndef TP_RELAY_H
#define TP_RELAY_H

#include "conditions.h"
#include "gtpu.h"
#include "hand.h"
#include "lost.h"
#include "meter.h"
#include "packet.h"
#include "route.h"
#include "seek.h"
#include "shape.h"
#include "tunnel.h"

/* What tp_edit_container() is to do: bits 0..5 the QFI, bits 12..15 the PDU type of a new container. */
#define TP_EDIT_MARK (1U << 16)
#define TP_EDIT_REMOVE (1U << 17)

#define TP_EDIT_WORDS_MAX 32 /* words moved to close the gap of a container */

/* Where a PDU Session Container stands in a GTP-U header; len 0: nowhere. */
struct tp_container {
	__u32 off;
	__u32 len;
	__u32 named; /* offset of the octet that names it */
	__u8 next;   /* what it names itself */
};

/* The chain has been walked once, so that it is sound. */
static TP_INLINE struct tp_container tp_find_container(__u8 *data, __u8 *end, __u32 gtpu)
{
	struct tp_container none = {0}, c = {gtpu + TP_GTPU_LEN + TP_GTPU_OPTIONAL_LEN, 0, gtpu + 11, 0};
	const __u8 *h = tp_span(data, end, gtpu, TP_GTPU_LEN + TP_GTPU_OPTIONAL_LEN);
	__u32 i, size;
	__u8 type;

	if (!h || !(h[0] & TP_GTPU_E))
		return none;
	type = h[11];
	for (i = 0; i < TP_EXT_HDRS_MAX && type; i++) {
		h = tp_span(data, end, c.off, 4);
		if (!h)
			return none;
		size = h[0] * 4;
		h = tp_span(data, end, c.off + size - 1, 1);
		if (!size || !h)
			return none;
		if (type == TP_GTPU_EXT_PSC) {
			c.len = size;
			c.next = *h;
			return c;
		}
		type = *h;
		c.named = c.off + size - 1;
		c.off += size;
	}
	return none;
}

/* Close the gap of a container: what stands in front of it moves up. The new offset of the header; 0: no. */
static TP_INLINE __u32 tp_remove_container(__u8 *data, __u8 *end, __u32 gtpu, const struct tp_container *c)
{
	__u8 *h = tp_span(data, end, gtpu, TP_GTPU_LEN + TP_GTPU_OPTIONAL_LEN), *name = tp_span(data, end, c->named, 1);
	__u32 i, from = c->off, last = !c->next && c->named == gtpu + 11, moved = c->len;
	__u8 *word, *to;

	if (!h || !name)
		return 0;
	*name = c->next;
	if (last) {
		h[0] &= (__u8)~TP_GTPU_E;
		/* Without any flag there are no optional octets. */
		if (!(h[0] & TP_GTPU_OPTIONAL)) {
			moved += TP_GTPU_OPTIONAL_LEN;
			from -= TP_GTPU_OPTIONAL_LEN;
		}
	}
	tp_put16(h + 2, (__u16)(tp_get16(h + 2) - moved));
	for (i = 0; i < TP_EDIT_WORDS_MAX && from > gtpu; i++) {
		from -= 4;
		word = tp_span(data, end, from, 4);
		to = tp_span(data, end, from + moved, 4);
		if (!word || !to)
			return 0;
		tp_store32(to, tp_load32(word));
	}
	return from > gtpu ? 0 : gtpu + moved;
}

/* A container in front of all other extension headers. Room for it is what the outer headers had, which
 * are written anew. The new offset of the header; 0: no. */
static TP_INLINE __u32 tp_add_container(__u8 *data, __u8 *end, __u32 gtpu, __u32 edit)
{
	__u8 *h = tp_span(data, end, gtpu, TP_GTPU_LEN), *optional;
	__u32 teid, len, sequence = 0, grown = TP_GTPU_PSC_LEN - TP_GTPU_LEN;
	__u8 flags, next = 0;

	if (!h || gtpu < TP_TUNNEL_LEN)
		return 0;
	flags = h[0];
	len = tp_get16(h + 2);
	teid = tp_load32(h + 4);
	if (flags & TP_GTPU_OPTIONAL) {
		optional = tp_span(data, end, gtpu + TP_GTPU_LEN, TP_GTPU_OPTIONAL_LEN);
		if (!optional)
			return 0;
		sequence = tp_load32(optional) & 0xffffff; /* and N-PDU number */
		next = flags & TP_GTPU_E ? optional[3] : 0;
		grown -= TP_GTPU_OPTIONAL_LEN;
	}
	gtpu -= grown;
	h = tp_span(data, end, gtpu, TP_GTPU_PSC_LEN);
	if (!h || len + grown > 0xffff)
		return 0;
	tp_put32(h, (__u32)(flags | TP_GTPU_E) << 24 | TP_GTPU_GPDU << 16 | (len + grown));
	tp_store32(h + 4, teid);
	tp_store32(h + 8, sequence | (__u32)TP_GTPU_EXT_PSC << 24);
	tp_store32(h + 12, (__u32)next << 24 | (edit & 0x3f) << 16 | (edit & 0xf000) | 1);
	return gtpu;
}

/* Mark the packet's PDU Session Container with another QFI, give it one, or take it off. The offset of
 * the GTP-U header as it then is; 0: that cannot be done. */
TP_APART __u32 tp_edit_container(struct tp_env *env, __u32 gtpu, __u32 edit)
{
	__u8 *data = tp_data(env), *end = tp_end(env), *qfi;
	struct tp_container c = tp_find_container(data, end, gtpu);

	if (edit & TP_EDIT_REMOVE)
		return c.len ? tp_remove_container(data, end, gtpu, &c) : gtpu;
	if (!c.len)
		return tp_add_container(data, end, gtpu, edit);
	qfi = tp_span(data, end, c.off + 2, 1);
	if (!qfi)
		return 0;
	*qfi = (*qfi & 0xc0) | (edit & 0x3f);
	return gtpu;
}

/* Ethernet header of a next hop, its EtherType by family. Sizes are constants to the compiler. */
static TP_INLINE int tp_put_l2(__u8 *data, __u8 *end, const struct tp_nexthop *nh, __u16 ethertype)
{
	__u8 *eth;

	if (nh->l2_len == TP_ETH_LEN) {
		eth = tp_span(data, end, 0, TP_ETH_LEN);
		if (!eth)
			return 1;
		tp_store32(eth + 8, tp_load32(nh->l2 + 8));
		tp_put16(eth + 12, ethertype);
	} else {
		eth = tp_span(data, end, 0, TP_ETH_LEN + 4);
		if (!eth)
			return 1;
		tp_store64(eth + 8, tp_load64(nh->l2 + 8));
		tp_put16(eth + 16, ethertype);
	}
	tp_store64(eth, tp_load64(nh->l2));
	return 0;
}

/* Does the peer get UDP without GTP-U? */
static TP_INLINE int tp_is_udp_peer(struct tp_env *env, const struct tp_peer *peer)
{
	return tp_has(env, TP_FEAT_UDP) && (peer->flags & TP_PEER_UDP);
}

/* Outer headers in front of a GTP-U message, or of what goes in UDP alone, of len octets. sum: of the message, for a peer with IPv6.
 * Non-zero when there is no room. */
static TP_INLINE int tp_put_relay_headers(struct tp_env *env, const struct tp_peer *peer, const struct tp_nexthop *nh,
					  __u32 l2_len, __u32 len, __u64 sum, __u32 teid_be, __u32 mark)
{
	__u8 *data = tp_data(env), *end = tp_end(env), *h;
	__u32 over6 = tp_has(env, TP_FEAT_OUTER6) && (peer->flags & TP_PEER_V6);
	__u16 port_be = tp_is_udp_peer(env, peer) ? (__u16)teid_be : tp_swap16(TP_GTPU_PORT);

	if (l2_len && tp_put_l2(data, end, nh, over6 ? TP_ETH_IPV6 : TP_ETH_IPV4))
		return 1;
	if (over6) {
		h = tp_span(data, end, l2_len, TP_TUNNEL6_LEN);
		if (!h)
			return 1;
		tp_put_outer_ip6(h, peer->local6, peer->remote6, port_be, len, tp_swap32(teid_be));
		if (tp_is_udp_peer(env, peer))
			tp_store16(h + TP_IP6_LEN, port_be);
		if (sum != TP_NO_SUM)
			tp_put_udp6_checksum(h, 0, sum);
		if (tp_unlikely(mark))
			tp_mark_ip(h, mark);
		return 0;
	}
	h = tp_span(data, end, l2_len, TP_TUNNEL_LEN);
	if (!h)
		return 1;
	tp_put_outer_ip(h, peer->local_be, peer->remote_be, port_be, len);
	if (tp_is_udp_peer(env, peer))
		tp_store16(h + TP_IP4_LEN, port_be);
	if (tp_unlikely(mark))
		tp_mark_ip(h, mark);
	return 0;
}

/* A GTP-U message on into another tunnel: outer headers and TEID are new, everything else goes along. Also a user's packet
 * into UDP alone, where nothing but the outer headers is new.
 *
 * out    tp_entry.out: the tunnel
 * octets of the message
 * mark   of the outer IP header, as tp_mark_ip() has it; 0: none
 *
 * enum tp_outcome or enum tp_drop in bits 0..7, the frame's length in 16..31. With TP_OUT_SLOW it is an IP packet and
 * nothing else, and yet to be handed over for the interface in 32..63. With TP_DROP_MTU the frame is as it was, and the rest
 * is as tp_relay_too_long() wants it. */
TP_APART __u64 tp_relay(struct tp_env *env, __u64 out, __u64 octets, __u32 mark)
{
	const struct tp_peer *peer = tp_peer_at(env, tp_out_peer(out));
	const struct tp_nexthop *nh = peer ? tp_nexthop_at(env, TP_READ(peer->nexthop)) : NULL;
	__u32 gtpu = tp_octets_at(octets) & 0xffff, gtpu_end = gtpu + (tp_octets_len(octets) & 0xffff), bare = TP_BARE_LEN;
	__u32 len, l2_len, frame_len;
	__u8 *data = tp_data(env), *end = tp_end(env), *h;
	__u64 sum = TP_NO_SUM;
	int r;

	if (!nh)
		return TP_DROP_TABLE;
	frame_len = (__u32)(end - data);
	tp_keep(frame_len);
	if (tp_has(env, TP_FEAT_OUTER6) && (peer->flags & TP_PEER_V6))
		bare = TP_BARE6_LEN;
	len = gtpu_end - gtpu + bare;
	r = tp_check_nexthop(nh, len);
	if (tp_unlikely(r == TP_DROP_MTU))
		return (__u64)nh->ifindex << 32 | (__u32)nh->mtu << 16 | bare << 8 | TP_DROP_MTU;
	if (r)
		return (__u32)r;
	h = tp_span(data, end, gtpu, TP_GTPU_LEN);
	if (!h)
		return TP_DROP_GTPU_MALFORMED;
	if (!tp_is_udp_peer(env, peer))
		tp_store32(h + 4, (__u32)out);
	if (bare == TP_BARE6_LEN && !(peer->flags & TP_PEER_ZERO_SUM)) {
		sum = tp_sum_frame(env, gtpu, gtpu_end - gtpu);
		if (sum == TP_NO_SUM)
			return TP_DROP_HEADROOM; /* no link takes what is longer than TP_OFFSET_MAX; the TEID is new already */
	}
	l2_len = nh->state != TP_NH_RESOLVED ? 0 : nh->l2_len == TP_ETH_LEN ? TP_ETH_LEN : TP_ETH_LEN + 4;
	if (tp_resize(env, (int)gtpu - (int)(bare + l2_len), (int)gtpu_end - (int)frame_len))
		return TP_DROP_HEADROOM;
	if (tp_put_relay_headers(env, peer, nh, l2_len, len - bare, sum, (__u32)out, mark))
		return TP_DROP_HEADROOM;
	r = l2_len ? tp_redirect(env, nh->port) : TP_OUT_SLOW;
	return (__u64)nh->ifindex << 32 | (l2_len + len) << 16 | (__u32)r;
}

/* The outcome of tp_relay(). Handed over here and not there, because the stack of nested calls is short. */
static TP_INLINE int tp_relay_done(struct tp_packet *p, __u64 done)
{
	p->out_len = done >> 16 & 0xffff;
	if (tp_unlikely((done & 0xff) == TP_OUT_SLOW))
		return tp_send_slow(p->env, (__u32)(done >> 32), p->out_len);
	return tp_final((int)(done & 0xff));
}

/* tp_relay() said that it does not fit: MTU, and octets of the headers that come, as tp_task_what() has them, and the way out.
 * header: octets of the GTP-U header that goes along. */
static TP_INLINE int tp_relay_too_long(struct tp_packet *p, __u64 out, __u64 done, __u32 header, __u32 marking)
{
	__u64 what = (done & 0xffffff00) | tp_task_what(0, 0, 0, TP_HEAD_NI_OF(p->head),
							 TP_TASK_RELAYED | (p->head & TP_HEAD_DOWN ? TP_TASK_DOWN : 0));

	return tp_final(tp_tell_relayed_too_long(p->env, tp_pack_lost(p), what, out,
						 tp_task_way(header, marking, (__u32)(done >> 32))));
}

/* As tp_relay(), where the headers that go and those that come have the same length and both are IPv4: written over
 * each other, without a call and without a move. 0: that is not so. */
static TP_INLINE int tp_relay_in_place(struct tp_packet *p, __u64 out)
{
	const struct tp_peer *peer = tp_peer_at(p->env, tp_out_peer(out));
	const struct tp_nexthop *nh = peer ? tp_nexthop_at(p->env, TP_READ(peer->nexthop)) : NULL;
	__u32 l2_len, len;
	__u8 *h;

	if (!nh || (tp_has(p->env, TP_FEAT_OUTER6) && (peer->flags & TP_PEER_V6)))
		return 0;
	l2_len = nh->l2_len == TP_ETH_LEN ? TP_ETH_LEN : TP_ETH_LEN + 4;
	len = p->frame_len - l2_len;
	if (nh->state != TP_NH_RESOLVED || p->gtpu != l2_len + TP_BARE_LEN || p->gtpu_end != p->frame_len ||
	    len > nh->mtu)
		return 0;
	h = tp_at(p, l2_len, TP_TUNNEL_LEN);
	if (!h || tp_put_l2(p->data, p->end, nh, TP_ETH_IPV4))
		return 0;
	tp_put_outer_ip(h, peer->local_be, peer->remote_be, tp_swap16(TP_GTPU_PORT), len - TP_BARE_LEN);
	tp_store32(h + TP_BARE_LEN + 4, (__u32)out);
	p->out_len = p->frame_len;
	return tp_redirect(p->env, nh->port);
}

/* On in the tunnel that the entry names. */
static TP_INLINE int tp_relay_packet(struct tp_packet *p)
{
	__u32 edit = 0, gtpu = p->gtpu, marking;
	const struct tp_ext *ext;
	__u64 out, done;
	int r;

	if (!p->entry)
		return TP_DROP_TABLE;
	out = TP_READ(p->entry->out);
	ext = tp_ext(p);
	marking = tp_mark_of(ext);
	if (p->head & TP_HEAD_MARK) {
		if (p->qfi != TP_HEAD_QFI_OF(p->head))
			edit = TP_EDIT_MARK | TP_HEAD_QFI_OF(p->head) | (p->dir == TP_UPLINK) << 12;
	} else if (ext && (ext->removal & TP_REMOVE_CONTAINER) && p->qfi != TP_NO_QFI) {
		edit = TP_EDIT_REMOVE;
	}
	if (tp_likely(!edit && !marking)) {
		r = tp_relay_in_place(p, out);
		if (tp_likely(r))
			return r;
	}
	if (tp_unlikely(edit))
		gtpu = tp_edit_container(p->env, gtpu, edit);
	if (!gtpu)
		return TP_DROP_GTPU_EXTENSIONS;
	done = tp_relay(p->env, out, tp_octets(gtpu, p->gtpu_end - gtpu), marking);
	if (tp_unlikely((done & 0xff) == TP_DROP_MTU))
		return tp_relay_too_long(p, out, done, p->user - gtpu, marking);
	return tp_relay_done(p, done);
}

/* Out in UDP alone (TS 29.244, 8.2.56): what is in front of the user's packet goes. It is routed, not relayed. */
static TP_INLINE int tp_leave_udp(struct tp_packet *p)
{
	__u32 marking = p->tunnel.marking;
	__u64 out, done;

	if (!p->entry)
		return TP_DROP_TABLE;
	out = TP_READ(p->entry->out);
	done = tp_relay(p->env, out, tp_user_octets(p), marking);
	if (tp_unlikely((done & 0xff) == TP_DROP_MTU))
		return tp_final(tp_tell_too_long(p->env, tp_pack_lost(p),
						 (done & 0xffffff00) | tp_task_what(0, 0, 0, TP_HEAD_NI_OF(p->head), 0), out,
						 tp_task_way(0, marking, (__u32)(done >> 32))));
	return tp_relay_done(p, done);
}

/* The first of several PDRs whose packets go on in a tunnel. */
static TP_INLINE struct tp_entry *tp_first_relay(struct tp_env *env, __u32 place, __u64 *head)
{
	const struct tp_rules *rules;
	struct tp_entry *e;
	__u32 i, j;

	for (i = 0; i < TP_RULES_PLACES; i++) {
		rules = tp_rules_at(env, place);
		if (!rules)
			return NULL;
		for (j = 0; j < TP_RULES_PER_PLACE; j++) {
			e = tp_entry_at(env, rules->rule[j].entry);
			if (!e)
				return NULL;
			*head = TP_READ(e->head);
			if (TP_HEAD_ACTION(*head) == TP_ACT_TUNNEL)
				return e;
		}
		if (rules->rule[TP_RULES_PER_PLACE - 1].more & TP_RULE_LAST)
			return NULL;
		place = tp_rules_next(rules);
	}
	return NULL;
}

/* An End Marker follows the packets of its tunnel (TS 29.281, 7.3.2). It is no packet of the user, and
 * counts for none. As tp_relay(); octets: of the message. */
TP_APART __u64 tp_relay_end_marker(struct tp_env *env, __u32 teid, __u64 octets)
{
	__u64 head = 0;
	__u32 index;
	struct tp_entry *e = tp_seek_teid(env, teid, &index, &head);

	if (e && TP_HEAD_ACTION(head) == TP_ACT_LIST && tp_has(env, TP_FEAT_LIST))
		e = tp_first_relay(env, TP_HEAD_RULE_OF(head), &head);
	if (!e || TP_HEAD_ACTION(head) != TP_ACT_TUNNEL)
		return TP_DROP_GTPU_MESSAGE;
#if TP_SHAPES
	if (tp_leave_last(env, e, head))
		return TP_DROP_SHAPER_FULL;
#endif
	return tp_relay(env, TP_READ(e->out), octets, 0);
}

static TP_INLINE int tp_relay_marker(struct tp_run *run, struct tp_packet *p)
{
	int r = tp_relay_done(p, tp_relay_end_marker(p->env, p->teid, tp_octets(p->gtpu, p->gtpu_end - p->gtpu)));

#if TP_SHAPES
	if (tp_hands_later(p->env) && r == TP_OUT_REDIRECT && tp_leave_of(p->env, run->cpu)->at_ns)
		r = tp_final(tp_leave_later(p->env, TP_LATER_UNCOUNTED, 0));
#endif
	return r;
}

#endif
