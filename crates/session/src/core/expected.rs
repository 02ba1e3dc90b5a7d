//! Requests at hand.

use crate::base::ids::PeerId;
use crate::base::slab::Place;
use crate::exchange::answers::Fingerprint;

/// Sessions and answers that the requests at hand are about. Kept for its capacity.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    pub(super) keys: Vec<(Option<PeerId>, Fingerprint)>,
    pub(super) places: Vec<Place>,
}
