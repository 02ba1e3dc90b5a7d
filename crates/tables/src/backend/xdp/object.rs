//! The compiled program, in its builds, and the constants that it is specialised by.

use std::ffi::OsStr;

use libbpf_rs::btf::types::{DataSec, Var};
use libbpf_rs::{Btf, Object, ObjectBuilder, OpenMapMut, OpenObject, ProgramMut};

use crate::abi::Features;
use crate::error::SetupError;
use crate::port::{LANES_MAX, PortConfig, Roles};

pub(super) const PROGRAM: &str = "turnpike";

/// Aligned as the ELF structures in it want to be.
#[repr(C, align(8))]
pub(super) struct Aligned<T: ?Sized>(pub(super) T);

macro_rules! object {
    ($build:literal) => {
        &Aligned(*include_bytes!(concat!(
            env!("OUT_DIR"),
            "/turnpike-",
            $build,
            ".bpf.o"
        )))
    };
}

/// Objects of [`Features::BUILDS`], in their order.
static OBJECTS: [&Aligned<[u8]>; Features::BUILDS.len()] = [
    object!("PLAIN"),
    object!("COMMON"),
    object!("OUTER6"),
    object!("RELAY"),
    object!("SPREAD"),
    object!("SHAPE"),
    object!("GENERAL"),
];

/// The narrowest build that has these features.
pub(super) fn object_for(features: Features) -> Result<&'static [u8], SetupError> {
    let mut objects = Features::BUILDS.iter().zip(OBJECTS);
    let fit = objects.find(|((_, built), _)| built.contains(features));
    fit.map(|(_, object)| &object.0)
        .ok_or_else(|| SetupError::Bpf {
            what: PROGRAM.into(),
            error: "no object has these features".into(),
        })
}

pub(super) fn setup(what: impl Into<String>) -> impl FnOnce(libbpf_rs::Error) -> SetupError {
    let what = what.into();
    move |error| SetupError::Bpf {
        what,
        error: format!("{error:#}"),
    }
}

pub(super) fn open(object: &[u8]) -> Result<OpenObject, SetupError> {
    let mut builder = ObjectBuilder::default();
    builder
        .name(PROGRAM)
        .map_err(setup("open"))?
        .open_memory(object)
        .map_err(setup("open"))
}

/// Offsets of the constants that a program is specialised by.
pub(super) struct Constants(Vec<(String, usize)>);

impl Constants {
    pub(super) fn find(object: &[u8]) -> Result<Self, SetupError> {
        let missing = || SetupError::Bpf {
            what: "object".into(),
            error: "no .rodata".into(),
        };
        let btf = Btf::from_raw(PROGRAM, object)
            .map_err(setup("BTF"))?
            .ok_or_else(missing)?;
        let mut found = Vec::new();
        for section in btf.type_by_kind::<DataSec<'_>>() {
            if section.name() != Some(OsStr::new(".rodata")) {
                continue;
            }
            for variable in section.iter() {
                let var: Option<Var<'_>> = btf.type_by_id(variable.ty);
                if let Some(name) = var.and_then(|var| var.name().map(OsStr::to_owned)) {
                    found.push((
                        name.to_string_lossy().into_owned(),
                        variable.offset as usize,
                    ));
                }
            }
        }
        if found.is_empty() {
            Err(missing())
        } else {
            Ok(Self(found))
        }
    }

    /// Give these constants of an object their values.
    pub(super) fn specialise(
        &self,
        object: &mut OpenObject,
        values: &[(&str, u32)],
    ) -> Result<(), SetupError> {
        let mut rodata = rodata(object)?;
        let bytes = rodata.initial_value_mut().unwrap_or_default();
        let mut values = values.iter();
        values.try_for_each(|(name, value)| self.set(bytes, name, *value))
    }

    fn set(&self, bytes: &mut [u8], name: &str, value: u32) -> Result<(), SetupError> {
        self.set_element(bytes, name, 0, value)
    }

    fn set_element(
        &self,
        bytes: &mut [u8],
        name: &str,
        index: usize,
        value: u32,
    ) -> Result<(), SetupError> {
        let offset = self
            .0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, offset)| *offset + index * 4);
        let slot = offset.and_then(|offset| bytes.get_mut(offset..offset + 4));
        let missing = || SetupError::Bpf {
            what: name.into(),
            error: "not in .rodata".into(),
        };
        slot.ok_or_else(missing)?
            .copy_from_slice(&value.to_ne_bytes());
        Ok(())
    }
}

fn rodata(object: &mut OpenObject) -> Result<OpenMapMut<'_>, SetupError> {
    let mut maps = object.maps_mut();
    let rodata = maps.find(|map| map.name().to_string_lossy().ends_with(".rodata"));
    rodata.ok_or_else(|| SetupError::Bpf {
        what: "object".into(),
        error: "no .rodata".into(),
    })
}

pub(super) fn specialise(
    object: &mut OpenObject,
    constants: &Constants,
    port: u32,
    config: &PortConfig,
    features: Features,
    part: Part,
) -> Result<(), SetupError> {
    let Roles { n3, n6 } = config.roles;
    let mut rodata = rodata(object)?;
    let bytes = rodata.initial_value_mut().unwrap_or_default();
    constants.set(bytes, "tp_features", features.bits())?;
    constants.set(bytes, "tp_port", port)?;
    constants.set(bytes, "tp_roles", u32::from(n3) | u32::from(n6) << 1)?;
    constants.set(bytes, "tp_ni", config.ni.0.into())?;
    constants.set(bytes, "tp_with_n4", config.has_n4.into())?;
    constants.set(bytes, "tp_spread", part as u32)?;
    let lanes = config.spread.get(..LANES_MAX).unwrap_or(&config.spread);
    constants.set(bytes, "tp_lanes", lanes.len() as u32)?;
    for (lane, &cpu) in lanes.iter().enumerate() {
        constants.set_element(bytes, "tp_lane_cpu", lane, cpu)?;
    }
    Ok(())
}

/// Part of the work that a program does for a port whose users are spread over CPUs: `TP_SPREAD_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All work: nothing is spread.
    Whole = 0,
    /// The work on the CPU where packets come in.
    Front = 1,
    /// The work on the CPU of a lane.
    Lane = 2,
}

pub(super) fn program_named<'a>(
    object: &'a Object,
    name: &str,
) -> Result<ProgramMut<'a>, SetupError> {
    object
        .progs_mut()
        .find(|program| program.name() == OsStr::new(name))
        .ok_or_else(|| SetupError::Bpf {
            what: name.into(),
            error: "no such program".into(),
        })
}
