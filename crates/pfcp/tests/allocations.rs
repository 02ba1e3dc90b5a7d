//! Decoding allocates nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use pfcp::message::{SessionEstablishmentRequest, SessionModificationRequest};
use testkit::{samples, walk};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on to `System` unchanged; counting touches a thread-local that needs
// neither allocation nor destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises about `layout` are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `System` with this `layout`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations_of<R>(run: impl FnOnce() -> R) -> (usize, R) {
    let before = ALLOCATIONS.get();
    let result = run();
    (ALLOCATIONS.get() - before, result)
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations_of(|| Box::new(1)).0, 1);
}

#[test]
fn an_establishment_is_decoded_without_allocation() {
    let datagram = samples::establishment();
    assert_eq!(datagram.len(), 317);
    let (allocations, sum) = allocations_of(|| {
        let message = pfcp::decode(&datagram)?;
        walk::establishment(&SessionEstablishmentRequest::decode(&message)?)
    });
    assert_ne!(sum.unwrap(), 0);
    assert_eq!(allocations, 0);
}

#[test]
fn everything_else_is_decoded_without_allocation() {
    let valid = samples::valid().into_iter().map(|(_, datagram)| datagram);
    let broken = samples::broken()
        .into_iter()
        .map(|(_, datagram, _, _)| datagram);
    for datagram in valid.chain(broken) {
        let (allocations, _) = allocations_of(|| {
            let message = pfcp::decode(&datagram)?;
            let _ = SessionModificationRequest::decode(&message);
            walk::datagram(&datagram)
        });
        assert_eq!(allocations, 0);
    }
}

#[test]
fn a_buffer_that_has_grown_is_enough_to_encode() {
    let mut out = Vec::with_capacity(512);
    let (allocations, _) = allocations_of(|| {
        let response = pfcp::MessageType::SESSION_ESTABLISHMENT_RESPONSE;
        let mut w = pfcp::Writer::new(&mut out, response, Some(1), 2);
        w.cause(pfcp::Cause::REQUEST_ACCEPTED);
        w.created_pdr(1, None, &[]);
        w.finish()
    });
    assert_eq!(allocations, 0);
}
