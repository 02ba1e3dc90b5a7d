//! Destinations of the packets of a FAR.

use compiled::{Marking, PolicyId};
use serde::{Deserialize, Serialize};

use crate::base::tagged::{Later, Tagged, tagged};
use crate::rules::{Far, Forwarding, LeftTunnel, RemoteFTeid, TunnelNetworkId};

/// Destinations of the packets of a FAR. Few FARs duplicate, and the others need no room for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Targets(Target);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Target {
    #[default]
    Nowhere,
    One(Forwarding),
    Rare(Box<RareTarget>),
}

/// Destinations that few FARs have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RareTarget {
    forwarding: Option<Forwarding>,
    /// Outer Header Creation of UDP without GTP-U: the port is in place of the TEID.
    udp: Option<RemoteFTeid>,
    duplicates: Duplicates,
    /// Forwarding Policy.
    policy: Option<PolicyId>,
    /// Of a version after this one.
    later: Later,
}

tagged!(RareTarget {
    1: forwarding,
    2: udp,
    3: duplicates,
    4: policy,
});

impl Targets {
    /// Forwarding Parameters, and duplicates.
    pub fn new(forwarding: Option<Forwarding>, duplicates: Duplicates) -> Self {
        Self::of(RareTarget {
            forwarding,
            duplicates,
            ..RareTarget::default()
        })
    }

    fn of(more: RareTarget) -> Self {
        let usual = RareTarget {
            forwarding: more.forwarding,
            ..RareTarget::default()
        };
        Self(match more.forwarding {
            _ if more != usual => Target::Rare(Box::new(more)),
            Some(forwarding) => Target::One(forwarding),
            None => Target::Nowhere,
        })
    }

    fn all(&self) -> RareTarget {
        match &self.0 {
            Target::Nowhere => RareTarget::default(),
            Target::One(forwarding) => RareTarget {
                forwarding: Some(*forwarding),
                ..RareTarget::default()
            },
            Target::Rare(more) => (**more).clone(),
        }
    }

    /// In the form that [`Self::of`] makes: one that few FARs need is not for all.
    pub(crate) fn is_canonical(&self) -> bool {
        Self::of(self.all()) == *self
    }

    /// See [`Tagged::unknown`].
    pub(crate) fn unknown(&self) -> Option<u8> {
        self.rare().and_then(Tagged::unknown)
    }

    fn rare(&self) -> Option<&RareTarget> {
        match &self.0 {
            Target::Rare(more) => Some(more),
            Target::Nowhere | Target::One(_) => None,
        }
    }
}

/// DUPL and Duplicating Parameters of a FAR.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Duplicates {
    /// DUPL; without it, the parameters are kept only.
    pub on: bool,
    /// Their destinations, at most [`DUPLICATES_MAX`](compiled::DUPLICATES_MAX). They are shown to nobody:
    /// they may be somebody's to intercept (TS 33.127).
    pub to: Vec<Duplicating>,
}

/// Duplicating Parameters (TS 29.244, table 7.5.2.3-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Duplicating {
    /// Outer Header Creation; of UDP alone, the port is in place of the TEID.
    pub to: RemoteFTeid,
    /// UDP without GTP-U.
    pub udp: bool,
    /// Which of our addresses they come from.
    pub through: TunnelNetworkId,
    /// Transport Level Marking.
    pub marking: Option<Marking>,
}

impl Far {
    /// Destinations that each packet goes to besides.
    pub fn duplicates(&self) -> &[Duplicating] {
        let duplicates = self.targets.rare().map(|more| &more.duplicates);
        duplicates
            .filter(|duplicates| duplicates.on)
            .map_or(&[], |duplicates| &duplicates.to)
    }

    /// Whether it says what few FARs do.
    pub(crate) fn is_rare(&self) -> bool {
        self.targets.rare().is_some()
    }

    /// Destination in UDP without GTP-U; then [`Forwarding::tunnel`] is `None`. The port is in place of the TEID.
    pub fn udp(&self) -> Option<RemoteFTeid> {
        self.targets.rare()?.udp
    }

    pub(crate) fn set_udp(&mut self, udp: Option<RemoteFTeid>) {
        if udp != self.udp() {
            self.targets = Targets::of(RareTarget {
                udp,
                ..self.targets.all()
            });
        }
    }

    /// Forwarding Policy. It steers packets that leave by routes; those into a tunnel towards access keep to their tunnel.
    pub fn policy(&self) -> Option<PolicyId> {
        self.targets.rare()?.policy
    }

    pub(crate) fn set_policy(&mut self, policy: PolicyId) {
        self.targets = Targets::of(RareTarget {
            policy: Some(policy),
            ..self.targets.all()
        });
    }

    /// Forwarding Parameters.
    pub fn forwarding(&self) -> Option<Forwarding> {
        match &self.targets.0 {
            Target::Nowhere => None,
            Target::One(forwarding) => Some(*forwarding),
            Target::Rare(more) => more.forwarding,
        }
    }

    pub(crate) fn set_forwarding(&mut self, forwarding: Forwarding) {
        match &mut self.targets.0 {
            Target::Rare(more) => more.forwarding = Some(forwarding),
            target => *target = Target::One(forwarding),
        }
    }

    /// Also those that are kept only.
    pub(crate) fn kept_duplicates(&self) -> Duplicates {
        let duplicates = self.targets.rare().map(|more| more.duplicates.clone());
        duplicates.unwrap_or_default()
    }

    pub(crate) fn set_duplicates(&mut self, duplicates: Duplicates) {
        self.targets = Targets::of(RareTarget {
            duplicates,
            ..self.targets.all()
        });
    }

    /// The tunnel that it would leave if it led elsewhere.
    pub(crate) fn left_tunnel(&self) -> Option<LeftTunnel> {
        let tunnel = self.forwarding()?.tunnel?;
        let through = self.through;
        Some(LeftTunnel { tunnel, through })
    }
}
