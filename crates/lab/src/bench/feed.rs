//! Frames brought to a program as its interface would bring them (`BPF_F_TEST_XDP_LIVE_FRAMES`): they go where it sends
//! them, and are counted where they arrive.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, ProgramInput};

use super::cost::Harness;
use super::frames::Frame;

const BPF_F_TEST_XDP_LIVE_FRAMES: u32 = 1 << 1;
/// Of one system call, whose beginning takes some 16 ms.
const FRAMES: u32 = 1 << 18;

impl Harness {
    /// One of its programs.
    pub(super) fn program(&self, name: &str) -> Result<OwnedFd> {
        let program = self.object.progs().find(|p| p.name() == name);
        let program = program.with_context(|| format!("no program {name}"))?;
        Ok(program.as_fd().try_clone_to_owned()?)
    }

    /// Frames that the program `sink` has counted.
    pub(super) fn sunk(&self) -> Result<u64> {
        let zero = 0u32.to_ne_bytes();
        let counts = self.map("sunk")?.lookup_percpu(&zero, MapFlags::ANY)?;
        let count = |octets: Vec<u8>| octets.try_into().map_or(0, u64::from_ne_bytes);
        Ok(counts.unwrap_or_default().into_iter().map(count).sum())
    }

    /// From now on [`Self::feed`] brings so many frames in all, with so many under way at most.
    pub(super) fn prepare(&self, frames: u64, window: u64) -> Result<()> {
        // struct feed
        let words = [0, frames, self.sunk()?, window];
        let value: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let zero = 0u32.to_ne_bytes();
        Ok(self.map("feed")?.update(&zero, &value, MapFlags::ANY)?)
    }

    /// Some frames more: how many there have been since [`Self::prepare`]. Call [`Self::arm`] before, and this in the
    /// interface's network namespace.
    pub(super) fn feed(&mut self, frame: &Frame, ifindex: u32) -> Result<u64> {
        let program = self.object.progs_mut().find(|p| p.name() == "feeder");
        let program = program.context("no feeder")?;
        // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex
        let words = [0, frame.bytes.len() as u32, 0, ifindex, 0, 0];
        let mut context: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        program.test_run(ProgramInput {
            context_in: Some(&mut context),
            data_in: Some(&frame.bytes),
            repeat: FRAMES,
            flags: BPF_F_TEST_XDP_LIVE_FRAMES,
            ..Default::default()
        })?;
        let state = self
            .map("feed")?
            .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)?;
        let state = state.context("no state of the feeder")?;
        let fed = state.first_chunk().context("struct feed")?;
        Ok(u64::from_ne_bytes(*fed))
    }
}
