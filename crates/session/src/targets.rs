//! Where the packets of a FAR go.

use crate::compiled::Marking;
use crate::rules::{Far, Forwarding, LeftTunnel, RemoteFTeid, TunnelNetworkId};

/// Where the packets of a FAR go. Few FARs duplicate, and the others need no room for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Targets(Target);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Target {
    #[default]
    Nowhere,
    One(Forwarding),
    More(Box<(Option<Forwarding>, Duplicates)>),
}

impl Targets {
    /// These.
    pub fn new(forwarding: Option<Forwarding>, duplicates: Duplicates) -> Self {
        Self(match forwarding {
            _ if duplicates != Duplicates::default() => {
                Target::More(Box::new((forwarding, duplicates)))
            }
            Some(forwarding) => Target::One(forwarding),
            None => Target::Nowhere,
        })
    }

    fn duplicates(&self) -> Option<&Duplicates> {
        match &self.0 {
            Target::More(more) => Some(&more.1),
            Target::Nowhere | Target::One(_) => None,
        }
    }
}

/// DUPL and Duplicating Parameters of a FAR.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Duplicates {
    /// DUPL; without it, the parameters are kept only.
    pub on: bool,
    /// Where they go, at most [`DUPLICATES_MAX`](crate::compiled::DUPLICATES_MAX). They are shown to nobody:
    /// they may be somebody's to intercept (TS 33.127).
    pub to: Vec<Duplicating>,
}

/// Duplicating Parameters (TS 29.244, table 7.5.2.3-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Where each packet goes besides.
    pub fn duplicates(&self) -> &[Duplicating] {
        let duplicates = self.targets.duplicates();
        duplicates
            .filter(|duplicates| duplicates.on)
            .map_or(&[], |duplicates| &duplicates.to)
    }

    /// Forwarding Parameters.
    pub fn forwarding(&self) -> Option<Forwarding> {
        match &self.targets.0 {
            Target::Nowhere => None,
            Target::One(forwarding) => Some(*forwarding),
            Target::More(more) => more.0,
        }
    }

    pub(crate) fn set_forwarding(&mut self, forwarding: Forwarding) {
        let duplicates = self.kept_duplicates();
        self.targets = Targets::new(Some(forwarding), duplicates);
    }

    /// Also those that are kept only.
    pub(crate) fn kept_duplicates(&self) -> Duplicates {
        self.targets.duplicates().cloned().unwrap_or_default()
    }

    pub(crate) fn set_duplicates(&mut self, duplicates: Duplicates) {
        self.targets = Targets::new(self.forwarding(), duplicates);
    }

    /// The tunnel that it would leave if it led elsewhere.
    pub(crate) fn left_tunnel(&self) -> Option<LeftTunnel> {
        let tunnel = self.forwarding()?.tunnel?;
        let through = self.through;
        Some(LeftTunnel { tunnel, through })
    }
}
