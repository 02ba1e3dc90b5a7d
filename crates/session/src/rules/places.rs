//! Places in the configuration that rules name, and what is there: a place means something in one process alone, a name
//! in each.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use compiled::{NiId, PolicyId, PredefinedId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::rules::{Far, LocalFTeid, Pdr, TunnelNetworkId, UeIp};

/// A place in a list of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum ConfigPlace {
    NetworkInstance(NiId),
    /// Of [`Config::n3`](crate::Config::n3).
    N3Address(u8),
    TunnelNetwork(TunnelNetworkId),
    PredefinedRule(PredefinedId),
    ForwardingPolicy(PolicyId),
}

/// Names of what is configured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ConfigName {
    NetworkInstance(Box<str>),
    N3Address(IpAddr),
    /// A network that tunnels go through: its side and the network instances that mean it.
    TunnelNetwork {
        core: bool,
        network_instances: Vec<Box<str>>,
    },
    /// The rule of this name that is the so many-th, from 0 on.
    PredefinedRule(Box<str>, u16),
    ForwardingPolicy(Box<str>),
}

impl fmt::Display for ConfigName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NetworkInstance(name) => write!(f, "network instance {name:?}"),
            Self::N3Address(address) => write!(f, "N3 address {address}"),
            Self::TunnelNetwork {
                core,
                network_instances,
            } => {
                let side = if *core { "core" } else { "access" };
                let of = network_instances.join(", ");
                write!(f, "tunnel network of {side}, network instances \"{of}\"")
            }
            Self::PredefinedRule(name, nth) => write!(f, "predefined rule {name:?}, number {nth}"),
            Self::ForwardingPolicy(name) => write!(f, "forwarding policy {name:?}"),
        }
    }
}

/// A value of rules that is such a place.
pub(crate) trait InConfig: Copy {
    fn place(self) -> Option<ConfigPlace>;
    /// `None`: a place of another list.
    fn at(place: ConfigPlace) -> Option<Self>;
}

macro_rules! in_config {
    ($($value:ty, $kind:ident;)*) => {
        $(
            impl InConfig for $value {
                fn place(self) -> Option<ConfigPlace> {
                    Some(ConfigPlace::$kind(self))
                }
                fn at(place: ConfigPlace) -> Option<Self> {
                    match place {
                        ConfigPlace::$kind(value) => Some(value),
                        _ => None,
                    }
                }
            }
        )*
    };
}

in_config! {
    NiId, NetworkInstance;
    u8, N3Address;
    PredefinedId, PredefinedRule;
    PolicyId, ForwardingPolicy;
}

impl InConfig for TunnelNetworkId {
    /// Beyond the last one: all of our addresses, wherever that is.
    fn place(self) -> Option<ConfigPlace> {
        (self.0 != u8::MAX).then_some(ConfigPlace::TunnelNetwork(self))
    }

    fn at(place: ConfigPlace) -> Option<Self> {
        match place {
            ConfigPlace::TunnelNetwork(value) => Some(value),
            _ => None,
        }
    }
}

/// Another place for each place that rules name; the first that has none is the error.
pub(crate) struct Relocation<'f>(pub(crate) &'f mut dyn FnMut(ConfigPlace) -> Option<ConfigPlace>);

impl Relocation<'_> {
    fn one<P: InConfig>(&mut self, value: &mut P) -> Result<(), ConfigPlace> {
        let Some(before) = value.place() else {
            return Ok(());
        };
        *value = (self.0)(before).and_then(P::at).ok_or(before)?;
        Ok(())
    }

    fn each<'p, P: InConfig + 'p>(
        &mut self,
        values: impl IntoIterator<Item = &'p mut P>,
    ) -> Result<(), ConfigPlace> {
        values.into_iter().try_for_each(|value| self.one(value))
    }

    pub(crate) fn pdr(&mut self, pdr: &mut Pdr) -> Result<(), ConfigPlace> {
        let pdi = &mut pdr.pdi;
        self.each(&mut pdi.ni)?;
        self.f_teid(&mut pdi.f_teid)?;
        self.ue(&mut pdi.ue)?;
        match &mut pdi.more {
            Some(more) => self.each(&mut more.predefined),
            None => Ok(()),
        }
    }

    pub(crate) fn far(&mut self, far: &mut Far) -> Result<(), ConfigPlace> {
        self.one(&mut far.through)?;
        if let Some(mut forwarding) = far.forwarding() {
            self.each(&mut forwarding.ni)?;
            far.set_forwarding(forwarding);
        }
        let mut duplicates = far.kept_duplicates();
        if !duplicates.to.is_empty() {
            let through = duplicates.to.iter_mut().map(|to| &mut to.through);
            self.each(through)?;
            far.set_duplicates(duplicates);
        }
        if let Some(mut policy) = far.policy() {
            self.one(&mut policy)?;
            far.set_policy(policy);
        }
        Ok(())
    }

    pub(crate) fn f_teid(&mut self, f_teid: &mut Option<LocalFTeid>) -> Result<(), ConfigPlace> {
        let ends = f_teid.iter_mut().map(|f_teid| &mut f_teid.ends);
        let places = ends.flat_map(|ends| [&mut ends.v4, &mut ends.v6]);
        self.each(places.flatten())
    }

    pub(crate) fn ue(&mut self, ue: &mut Option<UeIp>) -> Result<(), ConfigPlace> {
        self.each(ue.iter_mut().map(|ue| &mut ue.ni))
    }
}

/// Contents, by name, of places of a configuration: of those that the rules of a session name, or of all, which records of many
/// sessions share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names(Arc<BTreeMap<ConfigPlace, ConfigName>>);

impl Serialize for Names {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(from).map(Arc::new).map(Self)
    }
}

impl Names {
    /// Of these places. One that nothing is in has no name.
    pub(crate) fn of(
        places: impl IntoIterator<Item = ConfigPlace>,
        name_of: impl Fn(ConfigPlace) -> Option<ConfigName>,
    ) -> Self {
        let named = places.into_iter();
        let named = named.filter_map(|place| Some((place, name_of(place)?)));
        Self(Arc::new(named.collect()))
    }

    pub(crate) fn places(&self) -> impl Iterator<Item = ConfigPlace> + '_ {
        self.0.keys().copied()
    }

    /// Each name is one of what its place is a place of.
    pub(crate) fn are_possible(&self) -> bool {
        self.0.iter().all(|named| {
            use {ConfigName as Name, ConfigPlace as Place};
            matches!(
                named,
                (Place::NetworkInstance(_), Name::NetworkInstance(_))
                    | (Place::N3Address(_), Name::N3Address(_))
                    | (Place::TunnelNetwork(_), Name::TunnelNetwork { .. })
                    | (Place::PredefinedRule(_), Name::PredefinedRule(..))
                    | (Place::ForwardingPolicy(_), Name::ForwardingPolicy(_))
            )
        })
    }

    /// Name of the content of this place.
    pub(crate) fn get(&self, place: ConfigPlace) -> Option<&ConfigName> {
        self.0.get(&place)
    }
}
