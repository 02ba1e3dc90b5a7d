//! The programs of all ports, and their exchange for others while packets pass.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use compiled::NoRoom;

use crate::abi::Features;
use crate::adapt::{Adaptation, Replacement};
use crate::alarm_queue::AlarmQueue;
use crate::backend::{Backend, Builds, Supply};
use crate::error::SetupError;
use crate::grace::Barrier;
use crate::layout::Layout;
use crate::options::Options;
use crate::port::PortConfig;

/// A back end, and what its programs adapt to.
#[derive(Debug)]
pub(crate) struct Programs {
    backend: Box<dyn Backend>,
    builds: Builds,
    adaptation: Adaptation,
}

/// Programs that adapt to what is in use, unless the options fix them.
fn adaptation(options: &Options, builds: &Builds) -> Adaptation {
    if let Some(fixed) = options.features {
        return Adaptation::fixed(fixed);
    }
    let left_out = Features::ATOMIC.without(builds.always);
    let choice = builds.choice.iter().map(|build| build.without(left_out));
    let base = match options.outer6 {
        true => builds.always.with(Features::OUTER6),
        false => builds.always,
    };
    Adaptation::new(choice.collect(), base, options.settle)
}

impl Programs {
    /// Packets meet none of them yet.
    pub(crate) fn load<B: Backend + 'static>(
        layout: &Layout,
        ports: &[PortConfig],
        options: &Options,
        setup: B::Setup,
    ) -> Result<Self, SetupError> {
        let builds = B::builds(layout, ports);
        let adaptation = adaptation(options, &builds);
        Ok(Self {
            backend: Box::new(B::load(layout, ports, adaptation.live(), setup)?),
            builds,
            adaptation,
        })
    }

    /// Over empty tables, as if they had just been loaded for these options.
    pub(crate) fn start_anew(&mut self, options: &Options) -> Result<(), SetupError> {
        self.backend.memory().clear();
        self.adaptation = adaptation(options, &self.builds);
        self.backend.load_now(self.live())?;
        Ok(self.backend.replace(self.live())?)
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    pub(crate) fn backend_mut(&mut self) -> &mut dyn Backend {
        &mut *self.backend
    }

    pub(crate) fn tell_alarms_to(&mut self, told: &Arc<AlarmQueue>) {
        self.backend.tell_alarms_to(told);
    }

    /// Attach them; those that may be needed next are loaded from now on.
    pub(crate) fn attach(&mut self) -> Result<(), SetupError> {
        self.backend.attach()?;
        self.backend.prepare(&self.adaptation.ahead())
    }

    /// Features of the programs that packets meet.
    pub(crate) fn live(&self) -> Features {
        self.adaptation.live()
    }

    /// Features of the general programs.
    pub(crate) fn general(&self) -> Features {
        self.adaptation.general()
    }

    /// Number of times that programs have taken over from others, and the last time.
    pub(crate) fn replacements(&self) -> (u64, Option<Replacement>) {
        (self.adaptation.count, self.adaptation.last)
    }

    /// Whether others are to take over, once these needs have been the same for long enough.
    pub(crate) fn is_settling(&self, needs: Features) -> bool {
        self.adaptation.is_settling(needs)
    }

    /// Change to the narrowest build with what is in use, when that has settled. Never waits: it is
    /// loaded in a thread of its own.
    pub(crate) fn adapt(&mut self, needs: Features, now: Instant) {
        if let Err(error) = self.try_adapt(needs, now) {
            tracing::warn!(%error, "programs cannot be replaced");
            self.adaptation.give_up();
        }
    }

    fn try_adapt(&mut self, needs: Features, now: Instant) -> Result<(), SetupError> {
        if self.backend.take_loaded() {
            self.adaptation.hope();
        }
        self.backend.retry(now)?;
        match self.adaptation.due(needs, now) {
            Some(wanted) => self.change_to(wanted).map(drop),
            None => Ok(()),
        }
    }

    /// Have programs know of packets that somebody follows, or no longer. Whether they do from now on: else they are being
    /// loaded in the background, and this is to be asked again. Never waits.
    pub(crate) fn follow(&mut self, traced: bool) -> Result<bool, SetupError> {
        self.adaptation.follow(traced);
        let general = self.general();
        if general == self.live() || (!traced && !self.live().contains(Features::TRACE)) {
            return Ok(true);
        }
        self.backend.take_loaded();
        self.change_to(general)
    }

    /// Let these programs take over, now or, if they must be loaded first, when this is asked again after that. Whether they
    /// have. Never waits.
    fn change_to(&mut self, wanted: Features) -> Result<bool, SetupError> {
        if self.backend.supply(wanted) != Supply::AtHand {
            self.backend.refused(wanted).map_or(Ok(()), Err)?;
            self.backend.prepare(&[wanted])?;
            return Ok(false);
        }
        self.replace(wanted)?;
        Ok(true)
    }

    /// Let programs that are at hand take over.
    fn replace(&mut self, features: Features) -> io::Result<()> {
        let start = Instant::now();
        self.backend.replace(features)?;
        self.adaptation.replaced(features, start.elapsed());
        Ok(())
    }

    /// Programs with these features are live, and no packet is under way in others, when this returns.
    /// It takes microseconds, or a grace period (some 10 ms) when wider programs take over; up to a second more in the
    /// first second, while the verifier is still busy with them. What the kernel has refused costs no time again.
    pub(crate) fn serve(&mut self, needs: Features, barrier: &Barrier) -> Result<(), NoRoom> {
        if self.adaptation.serves(needs) {
            return Ok(());
        }
        let refused = |error: io::Error| {
            tracing::error!(%error, "programs are not replaced");
            NoRoom::of("programs")
        };
        let wider = loop {
            let supply = |build| self.backend.supply(build);
            let wider = self.adaptation.wider(needs, supply);
            let wider = wider.ok_or(NoRoom::of("programs"))?;
            // A build that cannot be loaded is passed over from now on.
            if self.backend.load_now(wider).is_ok() {
                break wider;
            }
        };
        self.replace(wider).map_err(refused)?;
        barrier.wait().map_err(refused)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use compiled::NiId;

    use super::*;
    use crate::backend::xdp::Xdp;
    use crate::port::Roles;

    /// Stands for programs that the kernel refuses: there are none.
    fn unheard_of(with: Features) -> Features {
        with.with(Features::bit(30))
    }

    /// Ports that nothing is attached to; these may be what is wider than the live programs. Needs root.
    fn programs(wider: Vec<Features>) -> Programs {
        let port = |name: &str, n3| PortConfig {
            name: name.into(),
            roles: Roles { n3, n6: !n3 },
            ni: NiId(0),
            ..PortConfig::default()
        };
        let (layout, options) = (Layout::for_sessions(16, 1, 1), Options::default());
        let ports = [port("n3", true), port("n6", false)];
        let mut programs = Programs::load::<Xdp>(&layout, &ports, &options, None).unwrap();
        let builds = [&[programs.live()], &wider[..]].concat();
        programs.adaptation = Adaptation::new(builds, Features::NONE, Duration::ZERO);
        programs
    }

    fn serve(programs: &mut Programs, needs: Features) -> Result<(), NoRoom> {
        let barrier = programs.backend.barrier().unwrap();
        programs.serve(needs, &barrier)
    }

    #[test]
    fn a_build_that_the_kernel_refuses_is_passed_over() {
        let mut programs = programs(vec![unheard_of(Features::ALL), Features::ALL]);
        serve(&mut programs, Features::COPY).unwrap();
        assert_eq!(programs.live(), Features::ALL);
    }

    #[test]
    fn what_the_kernel_has_refused_is_not_asked_for_again_while_somebody_waits() {
        let mut programs = programs(vec![unheard_of(Features::ALL)]);
        assert!(serve(&mut programs, Features::COPY).is_err());
        let first = programs.backend.refused_at();
        assert_eq!(first.len(), 1);
        assert!(serve(&mut programs, Features::COPY).is_err());
        assert!(serve(&mut programs, Features::RELAY).is_err());
        assert_eq!(programs.backend.refused_at(), first);

        // In the background it is, a while later.
        let early = first[0] + Duration::from_secs(59);
        programs.adapt(Features::NONE, early);
        assert!(!programs.backend.is_loading());
        let deadline = Instant::now() + Duration::from_secs(60);
        while programs.backend.refused_at() == first {
            assert!(Instant::now() < deadline, "it is not loaded again");
            programs.adapt(Features::NONE, early + Duration::from_secs(1));
        }
        assert_eq!(programs.backend.refused_at().len(), 1);
    }

    #[test]
    fn a_trace_waits_for_no_programs_and_says_when_they_are_refused() {
        let mut programs = programs(vec![Features::ALL]);
        assert!(!programs.follow(true).unwrap(), "it is being loaded");
        let deadline = Instant::now() + Duration::from_secs(60);
        while !programs.follow(true).unwrap() {
            assert!(Instant::now() < deadline, "it is never loaded");
        }
        assert!(programs.live().contains(Features::TRACE));

        let mut programs = self::programs(vec![unheard_of(Features::ALL)]);
        while programs.follow(true).is_ok() {
            assert!(Instant::now() < deadline, "it is never refused");
        }
        serve(&mut programs, Features::METER).unwrap();
    }
}
