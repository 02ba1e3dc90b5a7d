/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* GTP-U header and extension headers (TS 29.281). */
#ifndef TP_GTPU_H
#define TP_GTPU_H

#include "packet.h"

#define TP_GTPU_VERSION_MASK 0xf0 /* version and protocol type */
#define TP_GTPU_VERSION_1 0x30
#define TP_GTPU_E 0x04
#define TP_GTPU_S 0x02
#define TP_GTPU_OPTIONAL 0x07 /* E, S or PN: four more octets follow the header */
#define TP_GTPU_OPTIONAL_LEN 4U

/* Table 6.1-1. */
#define TP_GTPU_ECHO_REQUEST 1
#define TP_GTPU_ECHO_RESPONSE 2
#define TP_GTPU_ERROR_INDICATION 26
#define TP_GTPU_END_MARKER 254
#define TP_GTPU_EXTENSION_HEADERS 31
#define TP_GTPU_GPDU 255

/* Table 8.1-1. */
#define TP_GTPU_IE_RECOVERY 14
#define TP_GTPU_IE_TEID_DATA_I 16
#define TP_GTPU_IE_PEER_ADDRESS 133

/* 5.2.1: the receiver must understand an extension header with this bit, or discard the packet. */
#define TP_GTPU_EXT_REQUIRED 0x80
/* ... and with this one too, also if it only passes the packet on. */
#define TP_GTPU_EXT_REQUIRED_BETWEEN 0x40
/* PDCP PDU Number (5.2.2.2) and Long PDCP PDU Number (5.2.2.2A): for a gNB. They say nothing to whoever else ends the
 * tunnel. */
#define TP_GTPU_EXT_PDCP 0xc0
#define TP_GTPU_EXT_LONG_PDCP 0x82
#define TP_GTPU_EXT_PSC 0x85
#define TP_GTPU_PSC_LEN 16U /* header, optional octets and a PDU Session Container of one unit */

/* Walk the extension headers from off on (5.2.1). Leaves p->qfi, and p->user behind the last one. */
static TP_INLINE int tp_walk_extensions(struct tp_packet *p, __u32 off, __u8 type)
{
	const __u8 *h, *named;
	__u32 i, size;

	for (i = 0; type; i++) {
		if (i == TP_EXT_HDRS_MAX)
			return TP_DROP_GTPU_EXTENSIONS;
		h = tp_at(p, off, 4);
		if (!h)
			return TP_DROP_GTPU_MALFORMED;
		size = h[0] * 4;
		if (size == 0 || off + size > p->gtpu_end)
			return TP_DROP_GTPU_MALFORMED;
		if (type == TP_GTPU_EXT_PSC)
			p->qfi = h[2] & 0x3f; /* the same place in every PDU type of TS 38.415, 5.5.2 */
		else if ((type & TP_GTPU_EXT_REQUIRED) && (type & TP_GTPU_EXT_REQUIRED_BETWEEN) &&
			 type != TP_GTPU_EXT_PDCP)
			return TP_DROP_GTPU_UNKNOWN_EXTENSION;
		else if (type != TP_GTPU_EXT_PDCP && type != TP_GTPU_EXT_LONG_PDCP && (named = tp_at(p, off - 1, 1)))
			p->for_end |= TP_READ(*named); /* type, of which the verifier knows too much */
		off += size;
		h = tp_at(p, off - 1, 1);
		if (!h)
			return TP_DROP_GTPU_MALFORMED;
		type = *h;
	}
	p->user = off;
	return TP_OK;
}

/* The one extension header that every 5G packet has, alone and of one unit: found without a walk.
 * 1, with p->qfi and p->user; 0: something else is there. */
static TP_INLINE int tp_only_psc(struct tp_packet *p)
{
	const __u8 *h;

	if (p->gtpu + TP_GTPU_PSC_LEN > p->gtpu_end)
		return 0;
	h = tp_at(p, p->gtpu, TP_GTPU_PSC_LEN);
	if (!h)
		return 0;
	if (!(h[0] & TP_GTPU_E) || h[11] != TP_GTPU_EXT_PSC || h[12] != 1 || h[15] != 0)
		return 0;
	p->qfi = h[14] & 0x3f;
	p->user = p->gtpu + TP_GTPU_PSC_LEN;
	return 1;
}

/* Header and extension headers. Leaves p->gtpu_end, p->type, p->teid, p->qfi and p->user. */
static TP_INLINE int tp_parse_gtpu(struct tp_packet *p)
{
	const __u8 *h;
	__u32 end;
	__u8 flags;

	if (p->gtpu + TP_GTPU_LEN > p->gtpu_end)
		return TP_DROP_GTPU_MALFORMED;
	h = tp_at(p, p->gtpu, TP_GTPU_LEN);
	if (!h)
		return TP_DROP_GTPU_MALFORMED;
	if ((h[0] & TP_GTPU_VERSION_MASK) != TP_GTPU_VERSION_1)
		return TP_DROP_GTPU_VERSION;
	end = p->gtpu + TP_GTPU_LEN + tp_get16(h + 2);
	if (end > p->gtpu_end)
		return TP_DROP_GTPU_MALFORMED;
	p->gtpu_end = end;
	p->type = h[1];
	p->teid = tp_get32(h + 4);
	p->qfi = TP_NO_QFI;
	p->user = p->gtpu + TP_GTPU_LEN;
	flags = h[0];
	if (!(flags & TP_GTPU_OPTIONAL) || tp_only_psc(p))
		return TP_OK;
	h = tp_at(p, p->user, TP_GTPU_OPTIONAL_LEN);
	if (!h)
		return TP_DROP_GTPU_MALFORMED;
	p->user += TP_GTPU_OPTIONAL_LEN;
	if (p->user > end)
		return TP_DROP_GTPU_MALFORMED;
	/* Without E the type octet is there but means nothing (5.1). */
	return flags & TP_GTPU_E ? tp_walk_extensions(p, p->user, h[3]) : TP_OK;
}

#endif
