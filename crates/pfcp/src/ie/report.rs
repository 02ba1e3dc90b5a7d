//! IEs that say what happened, and for how long.

use std::fmt;

use crate::{Error, FromIe, Ie, ToIe};

/// Failed Rule ID (8.2.80).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailedRuleId {
    /// PDR ID.
    Pdr(u16),
    /// FAR ID.
    Far(u32),
    /// QER ID.
    Qer(u32),
    /// URR ID.
    Urr(u32),
    /// BAR ID.
    Bar(u8),
    /// MAR ID.
    Mar(u16),
    /// SRR ID.
    Srr(u8),
}

impl fmt::Display for FailedRuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pdr(id) => write!(f, "PDR {id}"),
            Self::Far(id) => write!(f, "FAR {id}"),
            Self::Qer(id) => write!(f, "QER {id}"),
            Self::Urr(id) => write!(f, "URR {id}"),
            Self::Bar(id) => write!(f, "BAR {id}"),
            Self::Mar(id) => write!(f, "MAR {id}"),
            Self::Srr(id) => write!(f, "SRR {id}"),
        }
    }
}

impl FromIe<'_> for FailedRuleId {
    #[inline]
    fn from_ie(ie: &Ie<'_>) -> Result<Self, Error> {
        let mut reader = ie.reader();
        match reader.u8()? & 0x1f {
            0 => reader.u16().map(Self::Pdr),
            1 => reader.u32().map(Self::Far),
            2 => reader.u32().map(Self::Qer),
            3 => reader.u32().map(Self::Urr),
            4 => reader.u8().map(Self::Bar),
            5 => reader.u16().map(Self::Mar),
            6 => reader.u8().map(Self::Srr),
            other => Err(ie.wrong("Rule ID Type 0 to 6", other)),
        }
    }
}

impl ToIe for FailedRuleId {
    fn to_ie(&self, out: &mut Vec<u8>) {
        let mut put = |kind: u8, id: &dyn ToIe| {
            out.push(kind);
            id.to_ie(out);
        };
        match self {
            Self::Pdr(id) => put(0, id),
            Self::Far(id) => put(1, id),
            Self::Qer(id) => put(2, id),
            Self::Urr(id) => put(3, id),
            Self::Bar(id) => put(4, id),
            Self::Mar(id) => put(5, id),
            Self::Srr(id) => put(6, id),
        }
    }
}

/// Length of one step of a [`Timer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimerUnit {
    /// 2 seconds.
    TwoSeconds,
    /// 1 minute; also what values not known count as.
    Minute,
    /// 10 minutes.
    TenMinutes,
    /// 1 hour.
    Hour,
    /// 10 hours.
    TenHours,
    /// The timer never expires.
    Infinite,
}

/// A duration as in Graceful Release Period (8.2.78) and Timer (8.2.35).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timer {
    /// The step.
    pub unit: TimerUnit,
    /// How many steps, 0 to 31.
    pub value: u8,
}

impl Timer {
    /// The shortest duration that is not below so many seconds.
    pub fn at_least(seconds: u64) -> Self {
        let steps = [
            (TimerUnit::TwoSeconds, 2),
            (TimerUnit::Minute, 60),
            (TimerUnit::TenMinutes, 600),
            (TimerUnit::Hour, 3600),
            (TimerUnit::TenHours, 36_000),
        ];
        let fits = |(unit, step): (TimerUnit, u64)| {
            let value = u8::try_from(seconds.div_ceil(step)).ok()?;
            (value < 32).then_some(Self { unit, value })
        };
        let never = Self {
            unit: TimerUnit::Infinite,
            value: 0,
        };
        steps.into_iter().find_map(fits).unwrap_or(never)
    }

    /// Seconds; `None`: it never expires.
    pub fn seconds(self) -> Option<u32> {
        let step = match self.unit {
            TimerUnit::TwoSeconds => 2,
            TimerUnit::Minute => 60,
            TimerUnit::TenMinutes => 600,
            TimerUnit::Hour => 3600,
            TimerUnit::TenHours => 36_000,
            TimerUnit::Infinite => return None,
        };
        Some(step * u32::from(self.value))
    }
}

impl FromIe<'_> for Timer {
    #[inline]
    fn from_ie(ie: &Ie<'_>) -> Result<Self, Error> {
        let octet = ie.reader().u8()?;
        let unit = match octet >> 5 {
            0 => TimerUnit::TwoSeconds,
            2 => TimerUnit::TenMinutes,
            3 => TimerUnit::Hour,
            4 => TimerUnit::TenHours,
            7 => TimerUnit::Infinite,
            _ => TimerUnit::Minute,
        };
        Ok(Self {
            unit,
            value: octet & 0x1f,
        })
    }
}

impl ToIe for Timer {
    fn to_ie(&self, out: &mut Vec<u8>) {
        let unit = match self.unit {
            TimerUnit::TwoSeconds => 0,
            TimerUnit::Minute => 1,
            TimerUnit::TenMinutes => 2,
            TimerUnit::Hour => 3,
            TimerUnit::TenHours => 4,
            TimerUnit::Infinite => 7,
        };
        out.push(unit << 5 | self.value & 0x1f);
    }
}

/// Downlink Data Service Information (8.2.27): what a packet is like that waits for its UE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DownlinkDataServiceInformation {
    /// Paging Policy Indication: the DSCP of the packet.
    pub ppi: Option<u8>,
    /// QoS Flow Identifier.
    pub qfi: Option<u8>,
}

impl DownlinkDataServiceInformation {
    const PPI: u8 = 1;
    const QFI: u8 = 1 << 1;
}

impl FromIe<'_> for DownlinkDataServiceInformation {
    #[inline]
    fn from_ie(ie: &Ie<'_>) -> Result<Self, Error> {
        let mut reader = ie.reader();
        let flags = reader.u8()?;
        let mut field = |flag| {
            let is_there = flags & flag != 0;
            is_there.then(|| Ok(reader.u8()? & 0x3f)).transpose()
        };
        Ok(Self {
            ppi: field(Self::PPI)?,
            qfi: field(Self::QFI)?,
        })
    }
}

impl ToIe for DownlinkDataServiceInformation {
    fn to_ie(&self, out: &mut Vec<u8>) {
        let ppi = self.ppi.map_or(0, |_| Self::PPI);
        let qfi = self.qfi.map_or(0, |_| Self::QFI);
        out.push(ppi | qfi);
        out.extend([self.ppi, self.qfi].into_iter().flatten().map(|v| v & 0x3f));
    }
}

/// DL Buffering Suggested Packet Count (8.2.30), of one octet or two, and Suggested Buffering Packets Count
/// (8.2.100), of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketCount(pub u16);

impl FromIe<'_> for PacketCount {
    #[inline]
    fn from_ie(ie: &Ie<'_>) -> Result<Self, Error> {
        let mut reader = ie.reader();
        match ie.value {
            [_] => reader.u8().map(|count| Self(count.into())),
            _ => reader.u16().map(Self),
        }
    }
}

impl ToIe for PacketCount {
    fn to_ie(&self, out: &mut Vec<u8>) {
        match u8::try_from(self.0) {
            Ok(count) => out.push(count),
            Err(_) => self.0.to_ie(out),
        }
    }
}
