//! The configuration while turnpiked runs: how it changes, and what it takes.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// The configuration in effect, and the last attempt to change it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ConfigState {
    /// File that it was read from.
    pub file: String,
    /// Reloads so far, also across starts in the same process; those that were refused count.
    pub reloads: u64,
    /// The last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<ReloadReport>,
}

/// A reload, or one that is thought of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ReloadReport {
    /// Number of the reload; 0: it is only thought of.
    pub number: u64,
    /// Seconds since 1970.
    pub at: u64,
    /// [`Self::UNCHANGED`], [`Self::IN_FORCE`], [`Self::TAKING_OVER`], [`Self::REFUSED`] or [`Self::FAILED`].
    pub outcome: String,
    /// Keys that differ.
    pub changes: Vec<ConfigChange>,
    /// Reasons of a refusal, or of a failure.
    pub reasons: Vec<String>,
    /// Consequences that may not be meant.
    pub warnings: Vec<String>,
}

impl ReloadReport {
    /// The file says what is in effect.
    pub const UNCHANGED: &str = "unchanged";
    /// All changes are in force.
    pub const IN_FORCE: &str = "in force";
    /// The program starts anew in the same process, and takes over sessions and packets.
    pub const TAKING_OVER: &str = "taking over";
    /// Nothing has changed.
    pub const REFUSED: &str = "refused";
    /// The program could not start with it, and has gone on with the former one.
    pub const FAILED: &str = "failed";

    /// Whether the configuration of before is still in effect, though another one was to be.
    pub fn went_wrong(&self) -> bool {
        [Self::REFUSED, Self::FAILED].contains(&self.outcome.as_str())
    }
}

/// A key that differs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ConfigChange {
    /// `n4.allow`, `network_instance[internet].pools`.
    pub key: String,
    /// Value in effect; absent: there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// Value in the file; absent: there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
    /// [`Self::NOTHING`], [`Self::TAKE_OVER`] or [`Self::RESTART`].
    pub takes: String,
    /// Why it takes a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl ConfigChange {
    /// The running process goes on with it.
    pub const NOTHING: &str = "nothing";
    /// The program starts anew in the same process, and takes over sessions and packets.
    pub const TAKE_OVER: &str = "take-over";
    /// A restart by the operator.
    pub const RESTART: &str = "restart";
}

/// Level of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogBody {
    /// As `log.level`.
    pub level: String,
}

/// How programs of the same host find REST, and show that they may change something: a file that turnpiked's user alone can read.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// `http://address:port`.
    pub api: String,
    /// `api.token_file`'s, or one of this process where there is none.
    pub token: String,
    /// Number of the process.
    #[serde(default)]
    pub process: u32,
}

impl Access {
    /// Name of the file in the runtime directory of turnpiked.
    pub const NAME: &str = "api.json";
    /// Path of the file: of the service, or in `RUNTIME_DIRECTORY`, which systemd sets for programs of a unit.
    pub fn file() -> PathBuf {
        let folder = std::env::var_os("RUNTIME_DIRECTORY");
        let folder = folder.map_or_else(|| PathBuf::from("/run/turnpike"), PathBuf::from);
        folder.join(Self::NAME)
    }
}
