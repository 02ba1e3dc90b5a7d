//! Back ends: places where packets meet the pipeline, and what each offers. A further one is a module below this one and a
//! constructor of [`crate::Tables`].

use std::ffi::CString;
use std::sync::Arc;
use std::time::Instant;
use std::{fmt, io};

use crate::abi::Features;
use crate::alarm_queue::AlarmQueue;
use crate::backend::xdp::n4::N4;
use crate::backend::xdp::pins::Pins;
use crate::engine::Engine;
use crate::error::SetupError;
use crate::frame_socket::Egress;
use crate::grace::Barrier;
use crate::handover::Handover;
use crate::layout::{Layout, Memory};
use crate::pipeline::{Run, RunTogether};
use crate::port::PortConfig;
use crate::ring::{Records, Ring};
use crate::stats::Counting;
use crate::table_files::TableFiles;

pub(crate) mod host;
mod program_info;
mod runner;
pub(crate) mod workers;
pub(crate) mod xdp;

pub use program_info::ProgramInfo;
pub use runner::Runner;

/// Builds of the program that may run on some ports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Builds {
    /// Narrowest first; the last one has all that may be needed.
    pub(crate) choice: &'static [Features],
    /// Features that programs have there whatever is in use.
    pub(crate) always: Features,
}

impl Default for Builds {
    fn default() -> Self {
        Self {
            choice: &[
                Features::BUILD_PLAIN,
                Features::BUILD_COMMON,
                Features::BUILD_OUTER6,
                Features::BUILD_RELAY,
                Features::ALL,
            ],
            always: Features::NONE,
        }
    }
}

/// How packets go on without this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoingOn {
    /// They do not.
    Nowhere,
    /// They will.
    Later,
    /// They have, without the one before it.
    Already,
}

/// Availability of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Supply {
    /// Loaded.
    AtHand,
    /// Not loaded yet.
    Loadable,
    /// Refused when they were last loaded.
    Refused,
}

/// A place where packets meet the pipeline, one program for each port over the same tables.
///
/// Methods with a body are for what only some have: programs that take time to load, rings out of the kernel, frames to be
/// run by hand.
pub(crate) trait Backend: fmt::Debug + Send {
    /// Settings of its own, beside the layout and the ports.
    type Setup
    where
        Self: Sized;

    /// The builds that may run on these ports.
    fn builds(layout: &Layout, ports: &[PortConfig]) -> Builds
    where
        Self: Sized;

    /// Programs with these features for each port, over empty tables. Packets meet none of them yet.
    fn load(
        layout: &Layout,
        ports: &[PortConfig],
        features: Features,
        setup: Self::Setup,
    ) -> Result<Self, SetupError>
    where
        Self: Sized;

    /// The tables that packets meet.
    fn memory(&self) -> &Memory;

    /// Have frames that are finished in this process leave by interfaces of ports, before packets meet programs. Whether they can.
    fn lead(&mut self) -> Result<bool, SetupError> {
        Ok(true)
    }

    /// Have packets of every port's interface meet its program, or of none if that fails. Programs never outlive this
    /// process, unless they are pinned; then interfaces change over one after the other from those of the process before.
    fn attach(&mut self) -> Result<(), SetupError>;

    /// Have packets of a port's interface, which was made anew under this number, meet its program.
    fn attach_port(&mut self, port: usize, _ifindex: u32) -> Result<(), SetupError> {
        Err(SetupError::NotAnew(port))
    }

    /// The interface of a port is gone.
    fn detach_port(&mut self, _port: usize) {}

    /// Whether packets of a port's interface still meet its program: of one that was made anew under its old number they do not.
    fn is_attached(&self, _port: usize) -> bool {
        true
    }

    /// Take in what has come and run it in this thread, where no other one does. How many frames there were.
    fn run_once(&mut self) -> io::Result<usize> {
        Ok(0)
    }

    /// Have packets meet the programs with these features, which are at hand: on every port, or on none if that fails.
    fn replace(&mut self, features: Features) -> io::Result<()>;

    /// Barrier for packets under way.
    fn barrier(&self) -> io::Result<Barrier>;

    /// Counters of packets.
    fn counting(&self) -> Counting {
        let memory = self.memory();
        Counting::new(memory.cpus.clone(), memory.slow.clone())
    }

    /// Have alarms of packets that run in this process told here; those of others come by [`Records::Alarms`].
    fn tell_alarms_to(&mut self, _: &Arc<AlarmQueue>) {}

    /// Availability of programs with these features.
    fn supply(&self, _: Features) -> Supply {
        Supply::AtHand
    }

    /// Error with which these programs were last refused, if they were.
    fn refused(&self, _: Features) -> Option<SetupError> {
        None
    }

    /// When programs were refused last.
    #[cfg(test)]
    fn refused_at(&self) -> Vec<Instant> {
        Vec::new()
    }

    /// Have these programs at hand when this returns, unless they have been refused.
    fn load_now(&mut self, _: Features) -> Result<(), SetupError> {
        Ok(())
    }

    /// Begin to load what of these is not at hand, in this order, in the background.
    fn prepare(&mut self, _: &[Features]) -> Result<(), SetupError> {
        Ok(())
    }

    /// Load again, in the background, what was refused a while ago.
    fn retry(&mut self, _: Instant) -> Result<(), SetupError> {
        Ok(())
    }

    /// Whether programs are being loaded.
    fn is_loading(&self) -> bool {
        false
    }

    /// Take in what has been loaded in the background: whether there was something. Never waits.
    fn take_loaded(&mut self) -> bool {
        false
    }

    /// Have frames that are redirected to a port leave by this interface.
    fn set_redirect(&self, _port: u32, _ifindex: u32) -> Result<(), SetupError> {
        Ok(())
    }

    /// A ring out of the programs. `None`: what would be in it comes back from [`Self::run`].
    fn ring(&self, _: Records) -> Result<Option<Ring>, SetupError> {
        Ok(None)
    }

    /// A program that serves PFCP over the same tables, for so many places of sessions and aliases of peers. `None`: there is none.
    fn n4(&self, _places: u32, _aliases: u32) -> Option<Result<(N4, Engine), SetupError>> {
        None
    }

    /// The way to whoever keeps frames above their rate.
    fn handover(&self) -> Handover {
        Handover::Nobody
    }

    /// The way out of interfaces for other threads of this process.
    fn egress(&self) -> Egress {
        Egress::default()
    }

    /// Folder of what outlives this process; `None`: nothing does.
    fn pins(&self) -> Option<&Pins> {
        None
    }

    /// Tables that outlive this process in files, though packets do not go on; `None`: they do not.
    fn files(&self) -> Option<&TableFiles> {
        None
    }

    /// An error: packets are run elsewhere than in this process, and some are not any more.
    fn check(&self) -> io::Result<()> {
        Ok(())
    }

    /// Workers elsewhere that do not run packets any more are replaced, over the same tables.
    fn replace_workers(&mut self) -> Result<(), SetupError> {
        Err(io::Error::from(io::ErrorKind::Unsupported).into())
    }

    /// How packets go on without this process.
    fn going_on(&self) -> GoingOn {
        match self.pins() {
            Some(_) => GoingOn::Later,
            None => GoingOn::Nowhere,
        }
    }

    /// From now on they do, or they end with it from now on, where that can be chosen.
    fn set_going_on(&self, _: bool) {}

    /// The programs that packets meet, in the order of ports, where there is something to tell of them.
    fn infos(&self) -> Vec<ProgramInfo> {
        Vec::new()
    }

    /// Run one frame through a port's program, in this thread.
    fn run(&self, _port: usize, _frame: &[u8], _now_ns: u64) -> Option<Run> {
        None
    }

    /// Run frames that come together through a port's pipeline, in this thread.
    fn run_together(&self, _port: usize, _frames: &[Vec<u8>], _now_ns: u64) -> Option<RunTogether> {
        None
    }

    /// Frames of those that were run in this thread whose time has come, and the ports that they leave by.
    fn release(&self, _now_ns: u64) -> Vec<(u32, Vec<u8>)> {
        Vec::new()
    }

    /// A port's program, to be run over frames by the kernel.
    fn runner(&self, _port: usize) -> Option<Result<Runner, SetupError>> {
        None
    }
}

/// The number of an interface in this network namespace.
pub(crate) fn ifindex_of(name: &str) -> Result<u32, SetupError> {
    let missing = || SetupError::NoInterface {
        name: name.to_owned(),
    };
    let c_name = CString::new(name).map_err(|_| missing())?;
    // SAFETY: the name is a terminated string.
    let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
    if index == 0 {
        Err(missing())
    } else {
        Ok(index)
    }
}
