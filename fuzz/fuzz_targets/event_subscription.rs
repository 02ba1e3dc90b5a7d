//! Any octets of a consumer of events: a subscription, a zero octet, and changes to it.
#![no_main]

use std::time::Duration;

use sbi::ee::{Asked, Bounds, changed};

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    let mut parts = octets.splitn(2, |&octet| octet == 0);
    let (subscription, operations) = (parts.next(), parts.next());
    let Ok(subscription) = serde_json::from_slice(subscription.unwrap_or_default()) else {
        return;
    };
    let bounds = Bounds {
        period: Duration::from_secs(10),
    };
    let changed = operations.map(|operations| changed(&subscription, operations));
    for subscription in [Some(subscription), changed.and_then(Result::ok)]
        .into_iter()
        .flatten()
    {
        match Asked::read(&subscription, bounds, time::OffsetDateTime::UNIX_EPOCH) {
            Ok(asked) => assert!(asked.mode.period >= bounds.period && !asked.events.is_empty()),
            Err(problem) => {
                assert!(problem.status().is_client_error() && problem.body().len() < 4096)
            }
        }
    }
});
