//! Flow descriptions: IPFilterRules (RFC 6733, 4.3.1) as far as TS 29.212, 5.4.2 uses them.
//!
//! `permit out PROTO from REMOTE [PORTS] to UE [PORTS]`, always written as for the downlink; a PDR
//! of the uplink matches with source and destination swapped (TS 29.244, 8.2.5).

use std::fmt;
use std::net::IpAddr;

use compiled::{Direction, Flow};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// Longer descriptions than any SMF has reason to send.
const LENGTH_MAX: usize = 1024;

/// Ports or port ranges at one end.
const PORTS_MAX: usize = 16;

/// One Flow Description, parsed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowDescription {
    /// `None`: `ip`, any protocol.
    pub proto: Option<u8>,
    /// `from`: the end in the data network.
    pub remote: End,
    /// `to`: the UE's end.
    pub ue: End,
}

/// One end of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Its addresses.
    pub address: Address,
    /// Inclusive ranges, any of which matches. Empty: any port, or none.
    pub ports: SmallVec<[(u16, u16); 1]>,
}

/// Addresses of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Address {
    /// `any`.
    #[default]
    Any,
    /// `assigned`: the UE's own, whatever it is; the PDI's UE IP Address checks it.
    Assigned,
    /// An address with its mask; host bits are zero.
    Net(IpNet),
}

/// Why a description is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlowError {
    /// Beyond our bound.
    #[error("flow description is longer than {LENGTH_MAX} bytes")]
    TooLong,
    /// The text ends where something must follow.
    #[error("flow description ends where {0} is expected")]
    Ends(&'static str),
    /// Something else stands there.
    #[error("flow description has something else where {0} is expected")]
    Expected(&'static str),
    /// `deny`, `in`, `!`, `from assigned`: meaningful in RFC 6733, but not in TS 29.212, 5.4.2.
    #[error("flow description uses {0}, which TS 29.212 does not allow")]
    NotAllowed(&'static str),
    /// `frag`, `established`, ...: a filter without them would match more.
    #[error("flow description has options, which are not supported")]
    Options,
    /// The ends are of different families.
    #[error("flow description mixes IPv4 and IPv6")]
    Families,
    /// Beyond our bound.
    #[error("flow description has more than {PORTS_MAX} port ranges at one end")]
    TooManyPorts,
}

impl FlowDescription {
    /// From the text of an SDF Filter IE.
    pub fn parse(text: &[u8]) -> Result<Self, FlowError> {
        if text.len() > LENGTH_MAX {
            return Err(FlowError::TooLong);
        }
        // Some SMFs count a terminating zero into the length.
        let text = text.strip_suffix(b"\0").unwrap_or(text);
        let text = std::str::from_utf8(text).map_err(|_| FlowError::Expected("ASCII text"))?;
        let mut words = Words {
            rest: text.split_ascii_whitespace().peekable(),
        };
        words.action()?;
        words.direction()?;
        let proto = words.protocol()?;
        words.keyword("from")?;
        let remote = words.end()?;
        if remote.address == Address::Assigned {
            return Err(FlowError::NotAllowed("from assigned"));
        }
        words.keyword("to")?;
        let ue = words.end()?;
        if words.rest.next().is_some() {
            return Err(FlowError::Options);
        }
        if let (Address::Net(a), Address::Net(b)) = (remote.address, ue.address)
            && a.addr().is_ipv4() != b.addr().is_ipv4()
        {
            return Err(FlowError::Families);
        }
        Ok(Self { proto, remote, ue })
    }

    /// Whether an end is an address of this family.
    pub(crate) fn is_of(&self, ipv4: bool) -> bool {
        let of = |end: &End| end.address.net().map(|net| net.addr().is_ipv4());
        of(&self.remote) == Some(ipv4) || of(&self.ue) == Some(ipv4)
    }

    /// How many [`Flow`]s it takes: one per pair of port ranges.
    pub fn flow_count(&self) -> usize {
        self.remote.ports.len().max(1) * self.ue.ports.len().max(1)
    }

    /// As packets of `direction` show it.
    pub fn flows(&self, direction: Direction) -> impl Iterator<Item = Flow> + '_ {
        self.remote.port_choices().flat_map(move |remote_ports| {
            self.ue.port_choices().map(move |ue_ports| {
                let (remote, ue) = (self.remote.address.net(), self.ue.address.net());
                let (src, dst, src_ports, dst_ports) = match direction {
                    Direction::Downlink => (remote, ue, remote_ports, ue_ports),
                    Direction::Uplink => (ue, remote, ue_ports, remote_ports),
                };
                Flow {
                    proto: self.proto,
                    src,
                    dst,
                    src_ports,
                    dst_ports,
                    ..Flow::default()
                }
            })
        })
    }
}

impl End {
    fn port_choices(&self) -> impl Iterator<Item = Option<(u16, u16)>> + '_ {
        let any = self.ports.is_empty().then_some(None);
        any.into_iter().chain(self.ports.iter().copied().map(Some))
    }
}

impl Address {
    fn net(self) -> Option<IpNet> {
        match self {
            Self::Net(net) => Some(net),
            Self::Any | Self::Assigned => None,
        }
    }
}

struct Words<'a> {
    rest: std::iter::Peekable<std::str::SplitAsciiWhitespace<'a>>,
}

impl<'a> Words<'a> {
    fn next(&mut self, what: &'static str) -> Result<&'a str, FlowError> {
        self.rest.next().ok_or(FlowError::Ends(what))
    }

    fn keyword(&mut self, word: &'static str) -> Result<(), FlowError> {
        if self.next(word)? == word {
            Ok(())
        } else {
            Err(FlowError::Expected(word))
        }
    }

    fn action(&mut self) -> Result<(), FlowError> {
        match self.next("permit")? {
            "permit" => Ok(()),
            "deny" => Err(FlowError::NotAllowed("deny")),
            _ => Err(FlowError::Expected("permit")),
        }
    }

    fn direction(&mut self) -> Result<(), FlowError> {
        match self.next("out")? {
            "out" => Ok(()),
            "in" => Err(FlowError::NotAllowed("in")),
            _ => Err(FlowError::Expected("out")),
        }
    }

    /// A number, or `ip`. Names are not in RFC 6733, but in what some SMFs send.
    fn protocol(&mut self) -> Result<Option<u8>, FlowError> {
        const WHAT: &str = "a protocol";
        Ok(match self.next(WHAT)? {
            "ip" => None,
            "icmp" => Some(1),
            "tcp" => Some(6),
            "udp" => Some(17),
            "sctp" => Some(132),
            number => Some(number.parse().map_err(|_| FlowError::Expected(WHAT))?),
        })
    }

    fn end(&mut self) -> Result<End, FlowError> {
        let address = address(self.next("an address")?)?;
        let mut ports = SmallVec::new();
        if let Some(word) = self
            .rest
            .next_if(|w| w.starts_with(|c: char| c.is_ascii_digit()))
        {
            self.ports(word, &mut ports)?;
        }
        Ok(End { address, ports })
    }

    /// `80`, `80-90`, `80,90-95`, also with blanks after the commas.
    fn ports(
        &mut self,
        first: &str,
        ports: &mut SmallVec<[(u16, u16); 1]>,
    ) -> Result<(), FlowError> {
        let mut word = first;
        loop {
            let open = word.strip_suffix(',');
            for range in open.unwrap_or(word).split(',') {
                if ports.len() == PORTS_MAX {
                    return Err(FlowError::TooManyPorts);
                }
                ports.push(port_range(range)?);
            }
            if open.is_none() {
                return Ok(());
            }
            word = self.next("a port")?;
        }
    }
}

fn port_range(text: &str) -> Result<(u16, u16), FlowError> {
    let number = |t: &str| t.parse().map_err(|_| FlowError::Expected("a port"));
    let (low, high) = match text.split_once('-') {
        Some((low, high)) => (number(low)?, number(high)?),
        None => (number(text)?, number(text)?),
    };
    if low > high {
        return Err(FlowError::Expected("a rising port range"));
    }
    Ok((low, high))
}

fn address(text: &str) -> Result<Address, FlowError> {
    const WHAT: &str = "an address";
    match text {
        "any" => return Ok(Address::Any),
        "assigned" => return Ok(Address::Assigned),
        _ if text.starts_with('!') => return Err(FlowError::NotAllowed("negation")),
        _ => {}
    }
    let (addr, mask) = match text.split_once('/') {
        Some((addr, mask)) => (addr, Some(mask)),
        None => (text, None),
    };
    let addr: IpAddr = addr.parse().map_err(|_| FlowError::Expected(WHAT))?;
    let full = if addr.is_ipv4() { 32 } else { 128 };
    let bits = match mask {
        Some(mask) => mask.parse().map_err(|_| FlowError::Expected("a mask"))?,
        None => full,
    };
    let net = IpNet::new(addr, bits).map_err(|_| FlowError::Expected("a mask"))?;
    Ok(Address::Net(net.trunc()))
}

impl fmt::Display for FlowDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("permit out ")?;
        match self.proto {
            None => f.write_str("ip")?,
            Some(proto) => write!(f, "{proto}")?,
        }
        write!(f, " from {} to {}", self.remote, self.ue)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Address::Any => f.write_str("any")?,
            Address::Assigned => f.write_str("assigned")?,
            Address::Net(net) => write!(f, "{net}")?,
        }
        for (i, (low, high)) in self.ports.iter().enumerate() {
            f.write_str(if i == 0 { " " } else { "," })?;
            match low == high {
                true => write!(f, "{low}")?,
                false => write!(f, "{low}-{high}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<FlowDescription, FlowError> {
        FlowDescription::parse(text.as_bytes())
    }

    fn net(text: &str) -> Option<IpNet> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn reads_what_smfs_send() {
        for (text, canonical) in [
            (
                "permit out ip from any to assigned",
                "permit out ip from any to assigned",
            ),
            (
                "permit  out\t17 from 192.0.2.1 to assigned ",
                "permit out 17 from 192.0.2.1/32 to assigned",
            ),
            (
                "permit out tcp from 10.1.2.3/8 80-90 to any 1024-65535",
                "permit out 6 from 10.0.0.0/8 80-90 to any 1024-65535",
            ),
            (
                "permit out 6 from any 80,443 to assigned",
                "permit out 6 from any 80,443 to assigned",
            ),
            (
                "permit out 6 from any 80, 443 to assigned",
                "permit out 6 from any 80,443 to assigned",
            ),
            (
                "permit out 58 from ff02::2/128 to assigned",
                "permit out 58 from ff02::2/128 to assigned",
            ),
            (
                "permit out ip from 2001:db8::/32 to 2001:db8:60::1\0",
                "permit out ip from 2001:db8::/32 to 2001:db8:60::1/128",
            ),
            (
                "permit out udp from 0.0.0.0/0 to 10.60.0.1/32",
                "permit out 17 from 0.0.0.0/0 to 10.60.0.1/32",
            ),
        ] {
            let parsed = parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(parsed.to_string(), canonical);
        }
    }

    #[test]
    fn refuses_what_it_cannot_honour() {
        use FlowError::{Ends, Expected, Families, NotAllowed, Options, TooManyPorts};
        let many = format!("permit out 6 from any {} to any", vec!["1"; 17].join(","));
        for (text, error) in [
            ("", Ends("permit")),
            ("deny out ip from any to any", NotAllowed("deny")),
            ("permit in ip from any to any", NotAllowed("in")),
            (
                "permit out ip from !10.0.0.0/8 to any",
                NotAllowed("negation"),
            ),
            (
                "permit out ip from assigned to any",
                NotAllowed("from assigned"),
            ),
            ("permit out ip from any to any frag", Options),
            ("permit out 6 from any to any established", Options),
            ("permit out 256 from any to any", Expected("a protocol")),
            ("permit out ip from any", Ends("to")),
            ("permit out ip from 10.0.0.0/33 to any", Expected("a mask")),
            (
                "permit out ip from 10.0.0.0/255.0.0.0 to any",
                Expected("a mask"),
            ),
            ("permit out ip from 10.0.0 to any", Expected("an address")),
            ("permit out ip from 10.0.0.1 to 2001:db8::1", Families),
            (
                "permit out 6 from any 90-80 to any",
                Expected("a rising port range"),
            ),
            ("permit out 6 from any 65536 to any", Expected("a port")),
            ("permit out 6 from any 80,,90 to any", Expected("a port")),
            ("permit out 6 from any 80,", Ends("a port")),
            (many.as_str(), TooManyPorts),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
        assert_eq!(
            FlowDescription::parse(&[b' '; 1025]),
            Err(FlowError::TooLong)
        );
        assert_eq!(
            FlowDescription::parse(b"permit out \xff"),
            Err(Expected("ASCII text"))
        );
    }

    #[test]
    fn the_uplink_swaps_the_ends() {
        let d = parse("permit out 17 from 192.0.2.0/24 53 to 10.60.0.1 1000-2000").unwrap();
        let down = Flow {
            proto: Some(17),
            src: net("192.0.2.0/24"),
            dst: net("10.60.0.1/32"),
            src_ports: Some((53, 53)),
            dst_ports: Some((1000, 2000)),
            ..Flow::default()
        };
        let up = Flow {
            src: down.dst,
            dst: down.src,
            src_ports: down.dst_ports,
            dst_ports: down.src_ports,
            ..down
        };
        assert_eq!(d.flows(Direction::Downlink).collect::<Vec<_>>(), [down]);
        assert_eq!(d.flows(Direction::Uplink).collect::<Vec<_>>(), [up]);
    }

    #[test]
    fn port_lists_become_one_flow_per_pair() {
        let d = parse("permit out 6 from any 80,443 to any 1-2,5,7").unwrap();
        let pairs: Vec<_> = d
            .flows(Direction::Downlink)
            .map(|f| (f.src_ports.unwrap().0, f.dst_ports.unwrap().0))
            .collect();
        assert_eq!(
            pairs,
            [(80, 1), (80, 5), (80, 7), (443, 1), (443, 5), (443, 7)]
        );
        assert_eq!(d.flow_count(), 6);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = FlowDescription::parse(&text);
        }

        #[test]
        fn likely_text_is_parsed_or_refused_and_reads_back(
            words in prop::collection::vec(prop::sample::select(vec![
                "permit", "out", "in", "deny", "ip", "6", "17", "from", "to", "any", "assigned", "10.0.0.0/8",
                "2001:db8::/32", "80", "80-90", "1,2,3", "1,", "!", "/", "-", ",", "frag",
            ]), 0..12)
        ) {
            let text = format!("permit out {}", words.join(" "));
            if let Ok(parsed) = parse(&text) {
                prop_assert_eq!(parse(&parsed.to_string()), Ok(parsed));
            }
        }
    }
}
