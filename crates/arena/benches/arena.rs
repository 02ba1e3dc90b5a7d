//! Records of 200 octets in an arena that has a thousand or a million of them. Floor: the same octets copied to a random place of such a memory.
//! Packets of 64 and 1500 octets that come to a pool and leave it, each behind 10 000 others. Floor: the same octets copied in and out.
//!
//! With `GLIBC_TUNABLES=glibc.malloc.hugetlb=1` in huge pages, as memory in a tmpfs with `huge=advise` is.

#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::atomic::AtomicU64;

use arena::pool::{self, Pool};
use arena::{Arena, octets_for};
use criterion::{Criterion, criterion_group, criterion_main};

const RECORD: [u8; 200] = [7; 200];

/// Places in an order without neighbours (the constants are those of a full-period generator), or in their own.
///
/// count: a power of two, at most 2^20
fn places(count: u32, is_random: bool) -> impl FnMut() -> u32 {
    let mut place = 0_u32;
    move || {
        place = if is_random {
            place.wrapping_mul(1_664_525).wrapping_add(1_013_904_223)
        } else {
            place.wrapping_add(1)
        };
        // The low bits of such a generator have short periods.
        (if is_random { place >> 12 } else { place }) % count
    }
}

fn arena(c: &mut Criterion, count: u32) {
    let words: Vec<AtomicU64> = (0..octets_for(count, RECORD.len()) / 8)
        .map(|_| AtomicU64::new(0))
        .collect();
    let mut arena = Arena::create(&words[..], count, b"").unwrap();
    for place in 0..count {
        arena.put(place, &RECORD).unwrap();
    }
    // Blocks lie in no order of places, as after many changes.
    let mut next = places(count, true);
    for _ in 0..2 * count {
        arena.put(next(), &RECORD).unwrap();
    }

    let mut heap = vec![0_u8; count as usize * 256];
    c.bench_function(&format!("floor, {count}"), |b| {
        let mut next = places(count, true);
        b.iter(|| {
            let at = next() as usize * 256;
            heap[at..at + RECORD.len()].copy_from_slice(black_box(&RECORD));
        });
    });
    drop(heap);
    for (order, is_random) in [("random", true), ("ascending", false)] {
        c.bench_function(&format!("put, {order}, {count}"), |b| {
            let mut next = places(count, is_random);
            b.iter(|| arena.put(next(), black_box(&RECORD)).unwrap());
        });
        c.bench_function(&format!("read and put, {order}, {count}"), |b| {
            let mut next = places(count, is_random);
            let mut record = Vec::new();
            b.iter(|| {
                let place = next();
                assert!(arena.read(place, &mut record));
                arena.put(place, black_box(&record)).unwrap();
            });
        });
        c.bench_function(&format!("read, {order}, {count}"), |b| {
            let mut next = places(count, is_random);
            let mut record = Vec::new();
            b.iter(|| assert!(arena.read(next(), black_box(&mut record))));
        });
    }
    drop(arena);
    c.bench_function(&format!("open, {count}"), |b| {
        b.iter(|| Arena::open(black_box(&words[..])).unwrap().0.fill());
    });
}

fn packets(c: &mut Criterion) {
    const WAITING: usize = 10_000;
    for octets in [64, 1500] {
        let (packet, mut out) = (vec![7; octets], vec![0; octets]);
        let taken = pool::taken(octets) * (WAITING + 1);
        let words: Vec<AtomicU64> = (0..pool::octets_for(taken) / 8)
            .map(|_| AtomicU64::new(0))
            .collect();
        let mut pool = Pool::create(&words[..], b"").unwrap();
        let mut waiting: VecDeque<_> = (0..WAITING).map(|_| pool.put(&packet).unwrap()).collect();
        c.bench_function(&format!("packet of {octets}"), |b| {
            b.iter(|| {
                waiting.push_back(pool.put(black_box(&packet)).unwrap());
                let first = waiting.pop_front().unwrap();
                pool.copy(first, black_box(&mut out));
                pool.give(first);
            });
        });
        let mut heap = vec![0_u8; (WAITING + 1) * octets];
        c.bench_function(&format!("floor, packet of {octets}"), |b| {
            let mut at = 0;
            b.iter(|| {
                heap[at * octets..][..octets].copy_from_slice(black_box(&packet));
                at = (at + 1) % (WAITING + 1);
                out.copy_from_slice(black_box(&heap[at * octets..][..octets]));
            });
        });
    }
}

fn thousand(c: &mut Criterion) {
    arena(c, 1 << 10);
}

fn million(c: &mut Criterion) {
    arena(c, 1 << 20);
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10);
    targets = packets, thousand, million
}
criterion_main!(benches);
