//! An establishment of 317 octets, decoded into typed rules; rs-pfcp and a bare walk over the IEs
//! beside it.
#![allow(missing_docs)] // of what criterion's macros define

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use pfcp::message::{SessionEstablishmentRequest, SessionModificationRequest};
use pfcp::{IeType, Ies};
use testkit::{samples, walk};

const GROUPED: [IeType; 5] = [
    IeType::CREATE_PDR,
    IeType::PDI,
    IeType::CREATE_FAR,
    IeType::FORWARDING_PARAMETERS,
    IeType::CREATE_QER,
];

/// The least that any decoder does: meets every IE once.
fn bare_walk(ies: Ies<'_>) -> usize {
    ies.iter().map_while(Result::ok).fold(0, |octets, ie| {
        let inner = if GROUPED.contains(&ie.ie_type) {
            bare_walk(ie.ies())
        } else {
            0
        };
        octets + ie.value.len() + inner
    })
}

fn benchmarks(c: &mut Criterion) {
    let establishment = samples::establishment();
    let modification = samples::valid()
        .into_iter()
        .find_map(|(name, datagram)| (name == "modification").then_some(datagram));
    c.bench_function("establishment 317 octets, typed rules", |b| {
        b.iter(|| {
            let message = pfcp::decode(black_box(&establishment))?;
            walk::establishment(&SessionEstablishmentRequest::decode(&message)?)
        });
    });
    c.bench_function("establishment 317 octets, bare walk", |b| {
        b.iter(|| pfcp::decode(black_box(&establishment)).map(|message| bare_walk(message.ies)));
    });
    c.bench_function("establishment 317 octets, rs-pfcp", |b| {
        b.iter(|| rs_pfcp::message::parse(black_box(&establishment)).is_ok());
    });
    c.bench_function("modification, typed rules", |b| {
        let modification = modification.as_deref().unwrap_or_default();
        b.iter(|| {
            let message = pfcp::decode(black_box(modification))?;
            walk::modification(&SessionModificationRequest::decode(&message)?)
        });
    });
    c.bench_function("establishment response, encode", |b| {
        let mut out = Vec::with_capacity(512);
        b.iter(|| {
            out.clear();
            let response = pfcp::MessageType::SESSION_ESTABLISHMENT_RESPONSE;
            let mut w = pfcp::Writer::new(&mut out, response, Some(black_box(1)), 2);
            w.node_id(pfcp::ie::NodeId::Ipv4([10, 0, 0, 1].into()));
            w.cause(pfcp::Cause::REQUEST_ACCEPTED);
            w.created_pdr(1, None, &[]);
            w.finish()
        });
    });
}

criterion_group!(decode, benchmarks);
criterion_main!(decode);
