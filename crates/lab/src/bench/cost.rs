//! Cost per packet of a live XDP program over its live tables, by `BPF_PROG_TEST_RUN`.
//!
//! The harness (`bpf/harness.bpf.c`) restores the frame and writes the next user's TEID or address
//! before each run; behind an empty program it is the floor.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder, Program, ProgramInput};

use super::frames::{self, Family, Frame};
use super::requests::Addresses;

static HARNESS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/harness.bpf.o"));

/// Headers that the harness rewrites for each packet.
const HEADERS: usize = 78;
/// Octets of a user's packet.
pub(super) const PACKET: usize = 64;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;

/// Which way the packets travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// GTP-U from the gNB.
    Uplink,
    /// Plain IP from the data network.
    Downlink,
}

/// In which users send, one packet each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// A permutation of them, always the same: what comes next is in no cache and no prefetcher guesses it.
    Random,
    /// TEIDs and addresses one after the other: to a prefetcher, one user.
    Ascending,
}

impl Order {
    /// Numbers 0 to `count`.
    pub(super) fn of(self, count: u32) -> Vec<u32> {
        let mut all: Vec<u32> = (0..count).collect();
        if self == Self::Random {
            // Fisher-Yates, by the SplitMix64 generator.
            let mut state = 0u64;
            for last in (1..all.len()).rev() {
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut bits = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
                all.swap(last, ((bits ^ bits >> 31) % (last as u64 + 1)) as usize);
            }
        }
        all
    }
}

/// How the harness writes a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restore {
    /// By stores that no field spans. The next packet may begin while the last one ends.
    Fields,
    /// By stores of eight octets from the frame's start on, and packets one after the other.
    Blocks,
}

/// One measurement, nanoseconds per packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// Median over the runs, floor subtracted: of the dearer way to restore frames.
    pub(super) above_floor: f64,
    /// The empty program behind the same harness.
    pub(super) floor: f64,
}

/// The loaded harness.
pub(super) struct Harness {
    pub(super) object: Object,
    empty: OwnedFd,
}

impl Harness {
    /// Load it with room for `users`.
    pub(super) fn load(users: u32) -> Result<Self> {
        let mut open = ObjectBuilder::default().open_memory(HARNESS)?;
        for mut map in open.maps_mut() {
            if map.name() == "users" {
                map.set_max_entries(users)?;
            }
        }
        let object = open.load().context("loading the harness")?;
        let empty = object
            .progs()
            .find(|p| p.name() == "empty")
            .context("no empty program")?
            .as_fd()
            .try_clone_to_owned()?;
        Ok(Self { object, empty })
    }

    pub(super) fn map(&self, name: &str) -> Result<MapHandle> {
        let map = self.object.maps().find(|m| m.name() == name);
        Ok(MapHandle::try_from(
            &map.with_context(|| format!("no map {name}"))?,
        )?)
    }

    /// Set the users who send, one after the other: user `i` has TEID `first_teid + i` and the `i`-th address.
    pub(super) fn set_users(
        &self,
        addresses: &Addresses,
        users: &[u32],
        frame: &Frame,
    ) -> Result<()> {
        const CHUNK: usize = 4096;
        let map = self.map("users")?;
        let mut places = 0u32..;
        for chunk in users.chunks(CHUNK) {
            let mut keys = Vec::with_capacity(chunk.len() * 4);
            let mut values = Vec::with_capacity(chunk.len() * 16);
            for (&user, place) in chunk.iter().zip(&mut places) {
                let ue: Ipv4Addr = addresses.ue(user);
                keys.extend_from_slice(&place.to_ne_bytes());
                values.extend_from_slice(&(super::teid(user)).to_be_bytes());
                values.extend_from_slice(&ue.octets());
                values.extend_from_slice(&frame.checksum_for(ue));
                values.extend_from_slice(&[0; 6]);
            }
            let count = chunk.len() as u32;
            map.update_batch(&keys, &values, count, MapFlags::ANY, MapFlags::ANY)?;
        }
        Ok(())
    }

    /// Set the frame that the harness restores, and the program that it runs then.
    pub(super) fn arm(
        &self,
        target: &OwnedFd,
        frame: &Frame,
        users: u32,
        restore: Restore,
    ) -> Result<()> {
        let fd = (target.as_raw_fd() as u32).to_ne_bytes();
        self.map("target")?
            .update(&0u32.to_ne_bytes(), &fd, MapFlags::ANY)?;
        let mut state = Vec::new();
        for word in [
            0,
            users,
            frame.bytes.len() as u32,
            frame.teid_at as u32,
            frame.address_at as u32,
            frame.checksum_at as u32,
        ] {
            state.extend_from_slice(&word.to_ne_bytes());
        }
        // As `struct state` cuts them.
        state.extend_from_slice(&frame.bytes[..2]);
        state.extend_from_slice(&[0; 2]);
        state.extend_from_slice(&frame.bytes[74..HEADERS]);
        state.extend_from_slice(&frame.bytes[2..74]);
        state.extend_from_slice(&u64::from(restore == Restore::Blocks).to_ne_bytes());
        state.extend_from_slice(&[0; 8]);
        state.extend_from_slice(&frame.bytes[..72]);
        self.map("state")?
            .update(&0u32.to_ne_bytes(), &state, MapFlags::ANY)?;
        Ok(())
    }

    fn run(&mut self, frame: &Frame, repeat: u32, expect: u32) -> Result<f64> {
        let program = self.object.progs_mut().find(|p| p.name() == "harness");
        let program = program.context("no harness program")?;
        let mut out = vec![0; 2048];
        let output = program.test_run(ProgramInput {
            data_in: Some(&frame.bytes),
            data_out: Some(&mut out),
            repeat,
            ..Default::default()
        })?;
        ensure!(
            output.return_value == expect,
            "the program under test returned {} instead of {expect}",
            output.return_value
        );
        Ok(output.duration.as_nanos() as f64)
    }

    /// So many uplink packets through the program with this id, from the first `users` users in random order. What each
    /// took, in nanoseconds, with the harness.
    pub(super) fn send(
        &mut self,
        program_id: u32,
        addresses: &Addresses,
        users: u32,
        packets: u32,
    ) -> Result<f64> {
        let frame = frames::uplink(addresses, Family::V4, PACKET);
        self.set_users(addresses, &Order::Random.of(users), &frame)?;
        let live = Program::fd_from_id(program_id)?;
        self.arm(&live, &frame, users, Restore::Fields)?;
        self.run(&frame, packets, XDP_REDIRECT)
    }

    /// Measure the program with this id, over these users one after the other; [`Self::PASSES`] times `runs`, each of as many packets
    /// as [`Self::packets`] says.
    pub(super) fn measure(
        &mut self,
        program_id: u32,
        direction: Direction,
        family: Family,
        addresses: &Addresses,
        users: &[u32],
        runs: usize,
    ) -> Result<Cost> {
        let frame = match direction {
            Direction::Uplink => frames::uplink(addresses, family, PACKET),
            Direction::Downlink => frames::downlink(addresses, family, PACKET),
        };
        self.set_users(addresses, users, &frame)?;
        let users = users.len() as u32;
        let live = Program::fd_from_id(program_id)?;
        let empty = self.empty.try_clone()?;
        let repeat = Self::packets(users);
        let mut dearest: Option<Cost> = None;
        for restore in Self::RESTORES {
            let (mut with, mut without) = (Vec::new(), Vec::new());
            for _ in 0..runs {
                self.arm(&empty, &frame, users, restore)?;
                without.push(self.run(&frame, repeat, XDP_PASS)?);
                self.arm(&live, &frame, users, restore)?;
                with.push(self.run(&frame, repeat, XDP_REDIRECT)?);
            }
            let floor = super::median(&mut without);
            let above_floor = super::median(&mut with) - floor;
            if dearest.is_none_or(|cost| cost.above_floor < above_floor) {
                dearest = Some(Cost { above_floor, floor });
            }
        }
        dearest.context("no measurement")
    }

    /// Ways in which [`Self::measure`] restores frames.
    const RESTORES: [Restore; 2] = [Restore::Fields, Restore::Blocks];
    /// How many these are.
    pub(super) const PASSES: u64 = Self::RESTORES.len() as u64;

    /// Packets of a run: each user is met at least once, so that every run walks the whole table.
    pub(super) fn packets(users: u32) -> u32 {
        users.max(1_000_000)
    }
}
