//! The small IEs of rules.

use std::time::Duration;

use crate::{Error, FromIe, Ie, ToIe};

/// An enumeration in the low bits of one octet; other values are reserved, hence errors (7.6.8).
macro_rules! octet_enum {
    (
        $(#[$attribute:meta])*
        $name:ident & $mask:literal, $expected:literal {
            $($(#[$doc:meta])* $variant:ident = $number:literal,)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            #[inline]
            pub(crate) fn from_octet(ie: &Ie<'_>, octet: u8) -> Result<Self, Error> {
                match octet & $mask {
                    $($number => Ok(Self::$variant),)*
                    other => Err(ie.wrong($expected, other)),
                }
            }

            pub(crate) fn to_octet(self) -> u8 {
                match self { $(Self::$variant => $number,)* }
            }
        }

        impl FromIe<'_> for $name {
            #[inline]
            fn from_ie(ie: &Ie<'_>) -> Result<Self, Error> {
                Self::from_octet(ie, ie.reader().u8()?)
            }
        }

        impl ToIe for $name {
            fn to_ie(&self, out: &mut Vec<u8>) {
                out.push(self.to_octet());
            }
        }
    };
}

octet_enum! {
    /// Source Interface (8.2.2).
    SourceInterface & 0x0f, "Source Interface 0 to 4" {
        /// Access: uplink.
        Access = 0,
        /// Core: downlink.
        Core = 1,
        /// SGi-LAN/N6-LAN.
        SgiLan = 2,
        /// CP-function.
        CpFunction = 3,
        /// 5G VN Internal.
        VnInternal = 4,
    }
}

octet_enum! {
    /// Destination Interface (8.2.24).
    DestinationInterface & 0x0f, "Destination Interface 0 to 5" {
        /// Access: downlink.
        Access = 0,
        /// Core: uplink.
        Core = 1,
        /// SGi-LAN/N6-LAN.
        SgiLan = 2,
        /// CP-function.
        CpFunction = 3,
        /// LI function.
        LiFunction = 4,
        /// 5G VN Internal.
        VnInternal = 5,
    }
}

octet_enum! {
    /// PDN Type (8.2.79).
    PdnType & 0x07, "PDN Type 1 to 5" {
        /// IPv4.
        Ipv4 = 1,
        /// IPv6.
        Ipv6 = 2,
        /// IPv4v6.
        Ipv4v6 = 3,
        /// Non-IP.
        NonIp = 4,
        /// Ethernet.
        Ethernet = 5,
    }
}

/// 3GPP Interface Type (8.2.118), its six bits: 11 is N3 3GPP access, 17 is N6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TgppInterfaceType(pub u8);

impl TgppInterfaceType {
    /// S1-U.
    pub const S1_U: Self = Self(0);
    /// N3 of 3GPP access.
    pub const N3: Self = Self(11);
    /// N3 of trusted non-3GPP access.
    pub const N3_TRUSTED: Self = Self(12);
    /// N3 of untrusted non-3GPP access.
    pub const N3_UNTRUSTED: Self = Self(13);
    /// N3 for data forwarding.
    pub const N3_FORWARDING: Self = Self(14);
    /// N9, also for non-roaming.
    pub const N9: Self = Self(15);
    /// N9 for roaming.
    pub const N9_ROAMING: Self = Self(21);
    /// N9 for data forwarding.
    pub const N9_FORWARDING: Self = Self(23);
}

impl FromIe<'_> for TgppInterfaceType {
    #[inline]
    fn from_ie(ie: &Ie<'_>) -> Result<Self, Error> {
        ie.reader().u8().map(|octet| Self(octet & 0x3f))
    }
}

impl ToIe for TgppInterfaceType {
    fn to_ie(&self, out: &mut Vec<u8>) {
        out.push(self.0 & 0x3f);
    }
}

/// Forwarding Policy (8.2.23): its identifier, at most 255 octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ForwardingPolicy<'a>(pub &'a [u8]);

impl<'a> FromIe<'a> for ForwardingPolicy<'a> {
    #[inline]
    fn from_ie(ie: &Ie<'a>) -> Result<Self, Error> {
        let mut reader = ie.reader();
        let length = reader.u8()?;
        reader.take(length.into()).map(Self)
    }
}

impl ToIe for ForwardingPolicy<'_> {
    fn to_ie(&self, out: &mut Vec<u8>) {
        let identifier = self.0.get(..usize::from(u8::MAX)).unwrap_or(self.0);
        out.push(identifier.len() as u8);
        out.extend_from_slice(identifier);
    }
}

/// QFI (8.2.89), 0 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Qfi(pub u8);

impl FromIe<'_> for Qfi {
    #[inline]
    fn from_ie(ie: &Ie<'_>) -> Result<Self, Error> {
        ie.reader().u8().map(|octet| Self(octet & 0x3f))
    }
}

impl ToIe for Qfi {
    fn to_ie(&self, out: &mut Vec<u8>) {
        out.push(self.0 & 0x3f);
    }
}

/// One direction of a [`GateStatus`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gate {
    /// Packets pass.
    Open,
    /// Packets are dropped.
    Closed,
}

impl Gate {
    /// Values 2 and 3 count as closed (8.2.7).
    fn from_bits(bits: u8) -> Self {
        if bits & 3 == 0 {
            Self::Open
        } else {
            Self::Closed
        }
    }
}

/// Gate Status (8.2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GateStatus {
    /// UL Gate.
    pub uplink: Gate,
    /// DL Gate.
    pub downlink: Gate,
}

impl FromIe<'_> for GateStatus {
    #[inline]
    fn from_ie(ie: &Ie<'_>) -> Result<Self, Error> {
        let octet = ie.reader().u8()?;
        Ok(Self {
            uplink: Gate::from_bits(octet >> 2),
            downlink: Gate::from_bits(octet),
        })
    }
}

impl ToIe for GateStatus {
    fn to_ie(&self, out: &mut Vec<u8>) {
        out.push((self.uplink as u8) << 2 | self.downlink as u8);
    }
}

macro_rules! bit_rates {
    ($($(#[$attribute:meta])* $name:ident,)*) => {$(
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name {
            /// 40 bits, in units of 1000 bit/s.
            pub uplink_kbps: u64,
            /// 40 bits, in units of 1000 bit/s.
            pub downlink_kbps: u64,
        }

        impl FromIe<'_> for $name {
            #[inline]
            fn from_ie(ie: &Ie<'_>) -> Result<Self, Error> {
                let mut reader = ie.reader();
                Ok(Self { uplink_kbps: reader.u40()?, downlink_kbps: reader.u40()? })
            }
        }

        impl ToIe for $name {
            fn to_ie(&self, out: &mut Vec<u8>) {
                for kbps in [self.uplink_kbps, self.downlink_kbps] {
                    let [_, _, _, octets @ ..] = kbps.to_be_bytes();
                    out.extend_from_slice(&octets);
                }
            }
        }
    )*};
}

bit_rates! {
    /// MBR (8.2.8).
    Mbr,
    /// GBR (8.2.9).
    Gbr,
}

/// Time unit of a Packet Rate (table 8.2.63-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketRateUnit {
    /// 0, and values that are not defined.
    Minute,
    /// 1.
    SixMinutes,
    /// 2.
    Hour,
    /// 3.
    Day,
    /// 4.
    Week,
}

impl PacketRateUnit {
    /// How long it is.
    pub const fn duration(self) -> Duration {
        const MINUTE: u64 = 60;
        Duration::from_secs(match self {
            Self::Minute => MINUTE,
            Self::SixMinutes => 6 * MINUTE,
            Self::Hour => 60 * MINUTE,
            Self::Day => 24 * 60 * MINUTE,
            Self::Week => 7 * 24 * 60 * MINUTE,
        })
    }

    const fn from_octet(octet: u8) -> Self {
        match octet & 7 {
            1 => Self::SixMinutes,
            2 => Self::Hour,
            3 => Self::Day,
            4 => Self::Week,
            _ => Self::Minute,
        }
    }
}

/// One direction of a [`PacketRate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketsPerUnit {
    /// At most so many packets ...
    pub packets: u16,
    /// ... in this time.
    pub unit: PacketRateUnit,
}

/// Packet Rate (8.2.63).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketRate {
    /// ULPR.
    pub uplink: Option<PacketsPerUnit>,
    /// DLPR.
    pub downlink: Option<PacketsPerUnit>,
    /// APRC: additional packet rates follow, which are not looked at.
    pub additional: bool,
}

impl FromIe<'_> for PacketRate {
    fn from_ie(ie: &Ie<'_>) -> Result<Self, Error> {
        let mut reader = ie.reader();
        let flags = reader.u8()?;
        let mut direction = |flag: u8| -> Result<_, Error> {
            if flags & flag == 0 {
                return Ok(None);
            }
            Ok(Some(PacketsPerUnit {
                unit: PacketRateUnit::from_octet(reader.u8()?),
                packets: reader.u16()?,
            }))
        };
        Ok(Self {
            uplink: direction(1)?,
            downlink: direction(2)?,
            additional: flags & 4 != 0,
        })
    }
}

impl ToIe for PacketRate {
    fn to_ie(&self, out: &mut Vec<u8>) {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        out.push(
            flag(self.uplink.is_some(), 1)
                | flag(self.downlink.is_some(), 2)
                | flag(self.additional, 4),
        );
        for direction in [self.uplink, self.downlink].into_iter().flatten() {
            out.push(direction.unit as u8);
            direction.packets.to_ie(out);
        }
    }
}
