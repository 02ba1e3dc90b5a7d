/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The pipeline over ordinary memory: for tests, fuzzers and the Rust host back end.
 *
 * One call is one frame. The tables have the layout of the BPF maps, so a writer of one can write the
 * other. Nothing is kept between calls but what the tables hold.
 */
#ifndef TP_HOST_H
#define TP_HOST_H

#include "tp_abi.h"
#include "tp_fib.h"
#include "tp_n4.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where the tables lie. n_*: number of elements; an index beyond is "no such element". Arrays are
 * aligned to 64 bytes (8 for ue_dir and ue_pages) and may be NULL, with no elements then; config and cpu may not. sides has as many elements as
 * entries, ue_dir one for each network instance, buckets config.bucket_mask + 1. */
#define TP_POINTER(element, table) struct tp_##element *table;
#define TP_LENGTH(element, table) __u32 n_##table;
struct tp_tables {
	struct tp_config *config;
	struct tp_cpu *cpu; /* one */
	TP_TABLES(TP_POINTER)
	TP_TABLES(TP_LENGTH)
	__u32 ports_up; /* bit n: devmap slot n takes frames */
	__u32 aside;   /* all counts of entries go to sides[]: packets run elsewhere over the same tables */
	__u32 own;     /* the packet was made here: see tp_is_own() */
	__u32 releases; /* it has waited: see tp_releases() */
	__u32 held_by; /* then: see tp_held_by() */
	__u32 worker;  /* number of whoever runs packets: what it hands over names it */
	__u32 by_worker; /* with TP_FEAT_SHAPE: workers keep frames above their rate, and this is none of them */
	__u32 reserved;
	__u64 transport;	 /* with transport_known: see tp_knows_transport() */
	__u64 transport_known;
	__u64 own_for[2]; /* then: an address of the UE that it is for, host order */
	/* The kernel's FIB, for next hops in state TP_NH_FIB: an enum BPF_FIB_LKUP_RET_* of linux/bpf.h, 0 for
	 * success. NULL: no route. */
	int (*fib)(void *fib_arg, struct tp_fib *q);
	void *fib_arg;
};

/* What a program is specialised to; read-only data of the BPF object, by the same names with tp_ in front. */
struct tp_port_config {
	__u32 port;	/* 0..TP_PORTS_MAX-1: statistics */
	__u32 roles;	/* TP_ROLE_* */
	__u32 features; /* TP_FEAT_* */
	__u32 ni;	/* N6: directory and bucket key of UE addresses that arrive here */
};

enum tp_verdict {
	TP_VERDICT_DROP = 0,	 /* result.reason */
	TP_VERDICT_PASS = 1,	 /* to the kernel, frame untouched */
	TP_VERDICT_TX = 2,	 /* answer: back out of the port it came from */
	TP_VERDICT_REDIRECT = 3, /* out of result.port */
	TP_VERDICT_SLOW = 4,	 /* result.event is for the slow path, to be held or to leave later; the frame itself is done with */
	TP_VERDICT_LATER = 5,	 /* of workers: as REDIRECT, when its time has come */
};

#define TP_HOST_WRAP_MAX 68 /* the longest headers of a tunnel */
#define TP_HOST_COPIES 16384
#define TP_HOST_ALARMS 2 /* a packet counts for two PDRs at most: from UE to UE */

/* event_len: bytes of event that are valid, header included; 0 unless the verdict is SLOW. */
struct tp_result {
	__u32 verdict; /* enum tp_verdict */
	__u32 reason;  /* DROP: enum tp_drop */
	__u32 port;    /* REDIRECT: devmap slot */
	__u32 event_len;
	__u32 traced; /* trace is for those who follow the packet */
	__u32 copies_len; /* bytes of copies that are valid */
	struct tp_trace trace;
	_Alignas(8) __u8 event[sizeof(struct tp_event) + TP_EVENT_DATA_MAX];
	/* Duplicates for user space, each a record of the ring, one behind the other; those beyond are lost. */
	_Alignas(8) __u8 copies[TP_HOST_COPIES];
	struct tp_alarm alarms[TP_HOST_ALARMS];
	__u64 n_alarms;
};

/* Run one frame through the pipeline.
 *
 * buf, cap     memory of the frame with head and tail room
 * offset, len  the frame in it; in and out
 * now_ns       the clock of this packet, monotonic
 * r            what became of it
 *
 * The verdict, as r->verdict.
 */
int tp_host_run(struct tp_tables *t, const struct tp_port_config *port, __u8 *buf, __u32 cap, __u32 *offset,
		__u32 *len, __u64 now_ns, struct tp_result *r);

/* What is sent of a user's packet, or of a fragment of it, that leaves through a tunnel.
 *
 * task  TP_TASK_CUT; its tunnel_len says whether there is a tunnel
 * len   octets at user
 * to    room for TP_HOST_WRAP_MAX octets more
 *
 * Octets at to; 0: there is no such tunnel. */
__u32 tp_host_wrap(struct tp_tables *t, const struct tp_task *task, const __u8 *user, __u32 len, __u8 *to);

/* The entry index that a TEID leads to; 0xffffffff: none. */
__u32 tp_host_entry_of(struct tp_tables *t, __u32 teid);

/* The IPv6 prefix that packets of a UE come from, by the TEID of its uplink.
 *
 * prefix  16 octets, network order
 * ni      network instance that its PDR leads to
 *
 * Length of the prefix; 0: no PDR of this TEID has one. */
__u32 tp_host_prefix(struct tp_tables *t, __u32 teid, __u8 *prefix, __u32 *ni);

/* The UE that a frame is of, by its own headers: what its packets of both directions have in common, so that they can be kept
 * together. An IPv4 address, in the upper half, or the upper half of an IPv6 address. What comes in a tunnel and goes towards
 * access is of the tunnel: its TEID, also of End Markers, which come last and name no UE. Nothing is counted.
 *
 * port  of its features TP_FEAT_RELAY alone matters: then a tunnel's packets may be downlink, as its rules say
 * dir   enum tp_dir that the pipeline would count it in, also where there is no UE
 *
 * 0: the frame has none: it is malformed, a fragment, GTP-U but no G-PDU, or no IP. */
__u64 tp_host_user(struct tp_tables *t, const struct tp_port_config *port, __u8 *frame, __u32 len, __u8 *dir);

/* Tables of PFCP in the data plane. n_aliases is a power of two, TP_N4_WAYS at least; there are TP_N4_TEMPLATES templates. */
struct tp_n4_tables {
	const struct tp_n4_config *config;
	struct tp_n4_line *lines;
	const struct tp_n4_template *templates;
	const struct tp_n4_alias *aliases;
	__u32 n_lines;
	__u32 n_aliases;
};

/* Serve a PFCP request (n4/serve.h). enum tp_n4_verdict. */
int tp_host_n4_serve(struct tp_tables *t, const struct tp_n4_tables *n4, const struct tp_n4_request *request,
		     struct tp_n4_done *done);

/* Name of a drop reason, for messages; "unknown" outside enum tp_drop. */
const char *tp_drop_name(__u32 reason);

#ifdef __cplusplus
}
#endif
#endif
