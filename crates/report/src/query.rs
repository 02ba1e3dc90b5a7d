//! Queries, and their bounds.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Sessions of one page, at most.
pub const PAGE_MAX: usize = 1000;
/// Users of one [`TopReport`](crate::TopReport), at most.
pub const USERS_MAX: usize = 100;
/// Bounds of [`TopQuery::interval_ms`].
pub const INTERVAL_MS: RangeInclusive<u64> = 100..=2000;
/// A trace ends after so many seconds at the latest.
pub const SECONDS_MAX: u32 = 86_400;

/// Which page of sessions.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct PageQuery {
    /// `next` of the page before.
    pub after: Option<String>,
    /// Sessions of the page, 1 to 1000.
    #[param(default = 100, minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
}

/// Which page of which sessions.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct SessionsQuery {
    /// `next` of the page before.
    pub after: Option<String>,
    /// Sessions of the page, 1 to 1000.
    #[param(default = 100, minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
    /// Only those of the UE with this address, or with an IPv6 prefix that it lies in.
    pub ue: Option<String>,
    /// Only those with this TEID of ours, hexadecimal. One of `ue`, `teid` and `network_instance` at most.
    pub teid: Option<String>,
    /// Only those with a PDR of this network instance, which is the DNN as a rule.
    pub network_instance: Option<String>,
}

/// Which users, and over which time.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct TopQuery {
    /// Users, 1 to 100.
    #[param(default = 20, minimum = 1, maximum = 100)]
    pub limit: Option<usize>,
    /// Order of the users.
    #[param(inline)]
    pub by: Option<By>,
    /// Milliseconds between the two readings, 100 to 2000: as long, and some, the answer takes.
    #[param(default = 1000, minimum = 100, maximum = 2000)]
    pub interval_ms: Option<u64>,
}

/// Which samples.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct HistoryQuery {
    /// Number of the last sample that is known; without it, all.
    pub after: Option<u64>,
}

/// Order of the busiest users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// Bits forwarded, both ways together.
    #[default]
    Rate,
    /// Packets that had to wait for their rate.
    Delayed,
    /// Packets dropped by QoS enforcement.
    Dropped,
}

impl By {
    /// As in queries and answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Delayed => "delayed",
            Self::Dropped => "dropped",
        }
    }
}

/// Whom to follow, and for how long. Exactly one of `ue`, `seid` and `teid`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct TraceQuery {
    /// Address of the UE; an IPv6 one stands for its /64.
    #[param(value_type = Option<String>)]
    pub ue: Option<IpAddr>,
    /// Our SEID, hexadecimal.
    pub seid: Option<String>,
    /// TEID on N3, hexadecimal.
    pub teid: Option<String>,
    /// End after so many packets.
    #[param(minimum = 1)]
    pub count: Option<u64>,
    /// End after so many seconds, 1 to 86400.
    #[param(default = 86400, minimum = 1, maximum = 86400)]
    pub seconds: Option<u32>,
}
