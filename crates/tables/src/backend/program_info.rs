//! What is told of a program.

use std::time::Duration;

use crate::abi::Features;
use crate::port::Mode;

/// A loaded program, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramInfo {
    /// Its interface.
    pub interface: String,
    /// Of the interface.
    pub ifindex: u32,
    /// How it is attached; `None`: loaded only.
    pub mode: Option<Mode>,
    /// What it has.
    pub features: Features,
    /// Instructions of the program.
    pub instructions: u32,
    /// Instructions that the verifier looked at, all paths taken together.
    pub verified_instructions: u32,
    /// Time to verify and compile it.
    pub load_time: Duration,
}
