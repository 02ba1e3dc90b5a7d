//! The pipeline over ordinary memory, in the thread that changes tables: for tests, and for judging the others.

use std::io;
use std::sync::Arc;

use super::{Backend, Builds};
use crate::abi::{Features, UE_DIR_BITS, UE_PAGE_BITS};
use crate::alarm_queue::AlarmQueue;
use crate::error::SetupError;
use crate::grace::Barrier;
use crate::layout::{Layout, Memory};
use crate::memory::View;
use crate::pipeline::{Pipeline, Run};
use crate::port::PortConfig;
use crate::trace::TRACE_KEYS_MAX;

/// The pipeline, and the memory that it runs over.
#[derive(Debug)]
pub(crate) struct Host {
    memory: Memory,
    pipeline: Pipeline,
}

impl Backend for Host {
    fn builds(_: &[PortConfig]) -> Builds {
        Builds::default()
    }

    fn load(layout: &Layout, ports: &[PortConfig], features: Features) -> Result<Self, SetupError> {
        let memory = memory(layout)?;
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

fn memory(layout: &Layout) -> io::Result<Memory> {
    let lines = |n: u32| View::anonymous(n as usize);
    Ok(Memory {
        config: View::anonymous(1)?,
        cpus: View::anonymous(1)?,
        slow: View::anonymous(1)?,
        entries: lines(layout.all_entries())?,
        sides: View::anonymous(layout.all_entries() as usize)?,
        backs: View::anonymous(layout.all_entries() as usize)?,
        exts: lines(layout.exts)?,
        meters: lines(layout.meters)?,
        rules: View::anonymous(layout.rules as usize)?,
        buckets: lines(layout.buckets.next_power_of_two())?,
        nexthops: lines(layout.nexthops)?,
        peers: lines(layout.peers)?,
        routes: View::anonymous(layout.routes as usize)?,
        nis: lines(layout.nis)?,
        ue_dir: View::anonymous((layout.nis as usize) << UE_DIR_BITS)?,
        ue_pages: View::anonymous((layout.ue_pages as usize) << UE_PAGE_BITS)?,
        trace_keys: View::anonymous(TRACE_KEYS_MAX)?,
    })
}
