//! The pipeline over ordinary memory, in the thread that changes tables: for tests, and for judging the others.

use std::io;
use std::sync::Arc;

use super::{Backend, Builds};
use crate::abi::Features;
use crate::alarm_queue::AlarmQueue;
use crate::error::SetupError;
use crate::grace::Barrier;
use crate::layout::{Layout, Memory};
use crate::pipeline::{Pipeline, Run};
use crate::port::PortConfig;

/// The pipeline, and the memory that it runs over.
#[derive(Debug)]
pub(crate) struct Host {
    memory: Memory,
    pipeline: Pipeline,
}

impl Backend for Host {
    type Setup = ();

    fn builds(_: &Layout, _: &[PortConfig]) -> Builds {
        Builds::default()
    }

    fn load(
        layout: &Layout,
        ports: &[PortConfig],
        features: Features,
        (): Self::Setup,
    ) -> Result<Self, SetupError> {
        let memory = Memory::anonymous(layout, 1)?;
        let mut pipeline = Pipeline::new(memory.clone());
        ports
            .iter()
            .for_each(|port| pipeline.add_port(port, features));
        Ok(Self { memory, pipeline })
    }

    fn memory(&self) -> &Memory {
        &self.memory
    }

    fn attach(&mut self) -> Result<(), SetupError> {
        Ok(())
    }

    fn replace(&mut self, features: Features) -> io::Result<()> {
        self.pipeline.specialise(features);
        Ok(())
    }

    fn barrier(&self) -> io::Result<Barrier> {
        Ok(Barrier::same_thread())
    }

    fn tell_alarms_to(&mut self, told: &Arc<AlarmQueue>) {
        self.pipeline.tell_alarms_to(Arc::clone(told));
    }

    fn run(&self, port: usize, frame: &[u8], now_ns: u64) -> Option<Run> {
        Some(self.pipeline.run(port, frame, now_ns))
    }
}
