/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Tables of PFCP in the data plane (n4/serve.h): Session Modification Requests that only update FARs, as SMFs send them
 * whenever a UE changes its gNB, goes idle or is back.
 *
 * Nobody parses PFCP here. The control plane has carried out a request several times, and makes a template of it: octets
 * that have to be as they were, and holes for what differs from UE to UE. A session that may be served so has a line.
 *
 * Written by the control thread; lines by the engine too, while it has them.
 */
#ifndef TP_N4_H
#define TP_N4_H

#include "tp_abi.h"

#define TP_N4_OCTETS 256U   /* a longer request is none of these */
#define TP_N4_SLACK 16U	    /* behind a request: an offset of a template may be its last octet's */
#define TP_N4_TEMPLATES 64U
#define TP_N4_CANDIDATES 8U /* templates of one length */
#define TP_N4_FARS 2U	    /* of a session that lead into a tunnel, and of a request */
#define TP_N4_ENTRIES 2U    /* PDRs of one FAR */
#define TP_N4_WAYS 8U	    /* places that an address may be in */

/* Apply Action of a FAR (TS 29.244, 8.2.26). */
#define TP_N4_STAYS 0	/* of a template: as before; of a line: there is no FAR here */
#define TP_N4_FORWARD 1 /* FORW */
#define TP_N4_BUFFER 2	/* BUFF */
#define TP_N4_NOTIFY 3	/* BUFF and NOCP */

/* owner: who may change the session, which one it is, and whose.
 *
 *  0..1   state
 *  2..5   messages about it that have gone to the control plane since it was lent last, which goes round
 *  6..31  generation, as its SEID has it
 * 32..63  association
 */
#define TP_N4_STATE_MASK 3ULL
#define TP_N4_CONTROL 0ULL /* the control plane alone */
#define TP_N4_LENT 1ULL	   /* nobody just now */
#define TP_N4_BUSY 2ULL	   /* the engine */
#define TP_N4_READY 3ULL   /* the control plane, which lends it when no message about it is under way */
#define TP_N4_PASSED_SHIFT 2
#define TP_N4_PASSED_MASK 15ULL
#define TP_N4_GENERATION_SHIFT 6
#define TP_N4_ASSOCIATION_SHIFT 32
#define TP_N4_HALF_BITS 26 /* of a place, and of a generation, in a SEID */

/* A session, in the place that its SEID names. */
struct tp_n4_line {
	__u64 owner;
	__u64 cp_seid;	/* the SMF's SEID */
	__u32 sequence; /* of the newest request about it */
	__u32 far[TP_N4_FARS];			  /* FAR ID */
	__u32 entry[TP_N4_FARS][TP_N4_ENTRIES]; /* what packets meet; 0: none */
	__u32 teid[TP_N4_FARS];			  /* of its tunnel, also while packets wait */
	__u16 alias[TP_N4_FARS];		  /* the far end of that */
	__u16 profile[TP_N4_FARS];		  /* all else that the FAR says: see TP_N4_THROUGH() */
	__u8 network[TP_N4_FARS];		  /* ... and its network instance */
	__u8 state[TP_N4_FARS];			  /* TP_N4_FORWARD, ... */
};

/* Of our addresses, those that packets into its tunnel come from. */
#define TP_N4_THROUGH(profile) ((profile) >> 8)

/* A place of an address that tunnels lead to. */
struct tp_n4_alias {
	__u8 address[16];
	__u32 peer;    /* index into peers[] */
	__u8 length;   /* octets of address: 4 or 16; 0: free */
	__u8 through;  /* as TP_N4_THROUGH() */
	__u16 reserved;
	__u64 reserved2;
};

/* An Update FAR of a request. Offsets are from the beginning of the message. */
struct tp_n4_update {
	__u16 id_at;
	__u16 teid_at;	  /* 0: its tunnel stays */
	__u16 address_at;
	__u16 profile;	  /* the FAR has this one, and keeps it */
	__u8 address_len;
	__u8 action;	  /* TP_N4_STAYS, TP_N4_FORWARD, ... */
	__u8 ends_tunnel; /* SNDEM: the tunnel that it leaves gets End Markers */
	__u8 network;	  /* as profile */
};

struct tp_n4_template {
	__u16 length;
	__u16 next;	  /* template of the same length, from 1 on; 0: none */
	__u16 cp_seid_at; /* 0: the request has no CP F-SEID */
	__u8 n_updates;
	__u8 number;
	struct tp_n4_update update[TP_N4_FARS];
	__u8 octets[TP_N4_OCTETS]; /* zero where mask is, and behind the message */
	__u8 mask[TP_N4_OCTETS];
};

struct tp_n4_config {
	__u64 outer[2][2]; /* key of SEIDs */
	__u64 inner[2];
	__u64 salt;			    /* of aliases */
	__u16 by_length[TP_N4_OCTETS + 1]; /* first template of a length, from 1 on */
	__u16 reserved[3];
};

/* Why a request is the control plane's: in words, and in this order, in crates/compiled/src/lent.rs. */
enum tp_n4_verdict {
	TP_N4_SERVED = 0,
	TP_N4_SLOW_OTHER,
	TP_N4_SLOW_TEMPLATE,
	TP_N4_SLOW_SESSION,
	TP_N4_SLOW_SEQUENCE,
	TP_N4_SLOW_CP_SEID,
	TP_N4_SLOW_FAR,
	TP_N4_SLOW_TUNNEL,
	TP_N4_SLOW_WAITING,
	TP_N4_SLOW_FRAME,
	TP_N4_SLOW_CHECKSUM,
	TP_N4_SLOW_SOURCE,
	TP_N4_SLOW_PAUSED,
	TP_N4_SLOW_LOG,
	TP_N4_VERDICTS,
};

/* A message. */
struct tp_n4_request {
	__u8 octets[TP_N4_OCTETS + TP_N4_SLACK]; /* zero behind the message, to the next multiple of 8 */
	__u32 len;
	__u32 association; /* the sender's */
};

/* Change of a FAR, for whoever does the rest. */
struct tp_n4_change {
	__u32 far;
	__u32 entry[TP_N4_ENTRIES];
	__u32 old_teid, new_teid;
	__u16 old_alias, new_alias;
	__u8 old_state, new_state;
	__u8 ends_tunnel;
	__u8 reserved;
};

struct tp_n4_done {
	__u64 cp_seid; /* what its answer is sent to */
	__u32 place;
	__u16 n_changes;
	__u16 template; /* its number */
	struct tp_n4_change change[TP_N4_FARS];
	/* Of all FARs, as they are now: see struct tp_n4_line. */
	__u32 far[TP_N4_FARS];
	__u32 teid[TP_N4_FARS];
	__u16 alias[TP_N4_FARS];
	__u8 state[TP_N4_FARS];
	__u16 reserved;
};

/* An address of a peer. */
struct tp_n4_address {
	__u8 octets[16]; /* of an IPv4 address, 4 */
	__u32 length;	 /* 4 or 16 */
};

/* A request that the engine has served and answered by itself, for the control plane; those of a session come in their order. */
struct tp_n4_record {
	struct tp_n4_done done;
	struct tp_n4_address from;
	__u32 port; /* of the sender, host order */
	struct tp_n4_request request; /* octets behind its length mean nothing */
};

#define TP_N4_MARKS_ONLY (1U << 31) /* of an association: its requests are the control plane's for now */

/* There: a CPU that serves. */
struct tp_n4_cpu {
	__u64 inside; /* odd while it is under way with a request */
	__u64 verdicts[TP_N4_VERDICTS];
	__u64 told; /* records that it has put into the ring */
};

/* There: of all requests. */
struct tp_n4_here {
	__u64 paused; /* the control plane is at work on any session */
	__u8 local[2][16]; /* our addresses of N4: IPv4, IPv6 */
	__u8 has_local[2];
	__u8 reserved[6];
};

_Static_assert(sizeof(struct tp_n4_line) == 64, "one line");
_Static_assert(sizeof(struct tp_n4_alias) == 32, "half a line");
_Static_assert(sizeof(struct tp_n4_template) % 8 == 0, "whole words");
_Static_assert(sizeof(struct tp_n4_config) % 8 == 0, "whole words");
_Static_assert(sizeof(struct tp_n4_cpu) % 64 == 0, "whole lines");
_Static_assert(sizeof(struct tp_n4_here) % 8 == 0 && sizeof(struct tp_n4_record) % 8 == 0, "whole words");
_Static_assert(TP_N4_OCTETS % 8 == 0, "compared by words");

#endif
