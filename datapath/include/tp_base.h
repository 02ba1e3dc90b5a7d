/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* C as the kernel's verifier and compilers of hosts have it alike: how words and octets are read and written. */
#ifndef TP_BASE_H
#define TP_BASE_H

#include "tp_abi.h"

#ifndef NULL
#define NULL ((void *)0)
#endif

#define TP_INLINE inline __attribute__((always_inline))

/* Verified apart, once instead of for every path that leads to it, so that one program holds them all. The price:
 * arguments are env and at most four numbers, the result is a number. Natively it is the compiler's choice. */
#ifdef __bpf__
#define TP_APART __attribute__((noinline, weak)) /* weak: clang leaves its arguments alone */
#else
#define TP_APART static inline
#endif

#define tp_likely(x) __builtin_expect(!!(x), 1)
#define tp_unlikely(x) __builtin_expect(!!(x), 0)

/* To be written soon. A BPF program meets one packet at a time, and has nothing to do meanwhile. */
#ifdef __bpf__
#define tp_prefetch(at) ((void)(at))
#else
#define tp_prefetch(at) __builtin_prefetch((at), 1)
#endif

/* One load or store of a word that the other side may be changing. */
#define TP_READ(x) (*(const volatile __typeof__(x) *)&(x))

/* The compiler must not derive this value anew: the verifier's proof hangs on the very register
 * that was compared. Costs no instruction. */
#define tp_keep(x) __asm__ volatile("" : "+r"(x))

/* value, by a branch on the one that is expected: a CPU goes on with that while value is on its way from memory. In a burst
 * it has come by then. Only where loads are seen in their order (x86): elsewhere what the expected one leads to could be read
 * before value is. */
#if defined(__bpf__) && defined(TP_LOADS_IN_ORDER)
static TP_INLINE __u32 tp_expect(__u32 value, __u32 expected)
{
	__u32 same = expected;

	tp_keep(same); /* else it is value to the compiler */
	return tp_likely(value == expected) ? same : value;
}
#else
#define tp_expect(value, expected) ((void)(expected), (value))
#endif

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the tables and the checksum steps are little endian"
#endif
#define tp_swap16(x) __builtin_bswap16(x)
#define tp_swap32(x) __builtin_bswap32(x)
#define tp_swap64(x) __builtin_bswap64(x)

/* Packet memory has no alignment. BPF loads it in one instruction all the same, but clang would
 * compile memcpy to single bytes; natively memcpy is the one instruction and a cast is undefined. */
#ifdef __bpf__
#define TP_UNALIGNED(bits)                                                                              \
	static TP_INLINE __u##bits tp_load##bits(const void *p) { return *(const __u##bits *)p; }       \
	static TP_INLINE void tp_store##bits(void *p, __u##bits v) { *(__u##bits *)p = v; }
#else
#define TP_UNALIGNED(bits)                                                                              \
	static TP_INLINE __u##bits tp_load##bits(const void *p)                                         \
	{                                                                                               \
		__u##bits v;                                                                            \
		__builtin_memcpy(&v, p, sizeof(v));                                                     \
		return v;                                                                               \
	}                                                                                               \
	static TP_INLINE void tp_store##bits(void *p, __u##bits v) { __builtin_memcpy(p, &v, sizeof(v)); }
#endif
TP_UNALIGNED(16)
TP_UNALIGNED(32)
TP_UNALIGNED(64)

/* Network order in memory, host order here. */
static TP_INLINE __u32 tp_get16(const void *p) { return tp_swap16(tp_load16(p)); }
static TP_INLINE __u32 tp_get32(const void *p) { return tp_swap32(tp_load32(p)); }
static TP_INLINE __u64 tp_get64(const void *p) { return tp_swap64(tp_load64(p)); }
static TP_INLINE void tp_put16(void *p, __u16 v) { tp_store16(p, tp_swap16(v)); }
static TP_INLINE void tp_put32(void *p, __u32 v) { tp_store32(p, tp_swap32(v)); }

#endif
