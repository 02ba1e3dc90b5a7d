//! What we claim to be able to do (TS 29.244, 8.2.25): the one place.

use pfcp::ie::UpFunctionFeatures;

/// Offered to every SMF. A feature is here when a test shows that it works; a request that uses
/// another is refused.
///
/// FTUP: F-TEIDs are chosen and given back by us. With it, no User Plane IP Resource Information
/// is sent: that IE is for SMFs that choose (TS 29.244, 5.5.2).
///
/// UEIP: UE addresses and prefixes are chosen by us when asked to (5.21.3).
pub const CLAIMED: UpFunctionFeatures = UpFunctionFeatures::FTUP.union(UpFunctionFeatures::UEIP);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_nothing_that_is_not_done() {
        let undone =
            UpFunctionFeatures::EMPU | UpFunctionFeatures::BUNDL | UpFunctionFeatures::PFDM;
        assert!(!CLAIMED.intersects(undone));
        assert!(CLAIMED.contains(UpFunctionFeatures::FTUP));
    }
}
