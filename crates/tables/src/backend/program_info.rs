//! Facts about a program, for people.

use std::time::Duration;

use crate::abi::Features;
use crate::port::Mode;

/// A loaded program, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramInfo {
    /// Name of its interface.
    pub interface: String,
    /// Number of its interface.
    pub ifindex: u32,
    /// Mode of attachment; `None`: loaded only.
    pub mode: Option<Mode>,
    /// Features of the program.
    pub features: Features,
    /// Instructions of the program.
    pub instructions: u32,
    /// Instructions that the verifier looked at, all paths taken together.
    pub verified_instructions: u32,
    /// Time to verify and compile it.
    pub load_time: Duration,
}
