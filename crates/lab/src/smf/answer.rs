//! Answers of the UPF.

use anyhow::{Context, Result, anyhow, ensure};
use rs_pfcp::ie::cause::{Cause, CauseValue};
use rs_pfcp::ie::{Ie, IeIterator, IeType};
use rs_pfcp::message::MsgType;
use rs_pfcp::message::header::Header;

/// An answer whose cause is not "accepted".
#[derive(Debug)]
pub struct Refused {
    /// The cause.
    pub cause: CauseValue,
    /// The IE that it names.
    pub offending_ie: Option<u16>,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "refused: {:?}", self.cause)?;
        self.offending_ie
            .map_or(Ok(()), |ie| write!(f, ", offending IE {ie}"))
    }
}

impl std::error::Error for Refused {}

/// A PFCP message of the UPF.
#[derive(Debug)]
pub struct Answer {
    header: Header,
    ies: Vec<Ie>,
}

impl Answer {
    /// Reads a datagram. What is accepted must also be whole in the eyes of `rs-pfcp`; a refusal need
    /// not, because `rs-pfcp` asks even there for IEs that an accepted request alone is given.
    pub fn read(datagram: &[u8]) -> Result<Self> {
        let header = Header::unmarshal(datagram)?;
        let start = usize::from(header.len());
        let end = usize::from(header.length) + 4;
        ensure!(
            end == datagram.len(),
            "length {end} in {} octets",
            datagram.len()
        );
        let body = datagram.get(start..).context("no room for the header")?;
        let ies = IeIterator::new(body).collect::<Result<_, _>>()?;
        let answer = Self { header, ies };
        if answer.accepted().is_ok() {
            rs_pfcp::message::parse(datagram).map_err(|e| anyhow!("{e}: {datagram:02x?}"))?;
        }
        Ok(answer)
    }

    /// Its type.
    pub fn message_type(&self) -> MsgType {
        self.header.message_type
    }

    /// The SEID that it is addressed to.
    pub fn seid(&self) -> Result<u64> {
        ensure!(self.header.has_seid, "answer without SEID");
        Ok(self.header.seid.0)
    }

    /// The IEs of one type.
    pub fn ies(&self, ie_type: IeType) -> impl Iterator<Item = &Ie> {
        self.ies.iter().filter(move |ie| ie.ie_type == ie_type)
    }

    /// The first IE of a type, which must be there.
    pub fn ie(&self, ie_type: IeType) -> Result<&Ie> {
        let missing = || format!("{:?} without {ie_type:?}", self.header.message_type);
        self.ies(ie_type).next().with_context(missing)
    }

    /// An error, a [`Refused`] where there is a Cause, unless the request was accepted.
    pub fn accepted(&self) -> Result<()> {
        let cause = self.ie(IeType::Cause)?.parse::<Cause>()?.value;
        if cause == CauseValue::RequestAccepted {
            return Ok(());
        }
        let offending_ie = self
            .ies(IeType::OffendingIe)
            .next()
            .and_then(|ie| ie.as_u16().ok());
        Err(Refused {
            cause,
            offending_ie,
        }
        .into())
    }

    /// The Recovery Time Stamp in it: seconds since 1900.
    pub fn recovery(&self) -> Result<u32> {
        Ok(self.ie(IeType::RecoveryTimeStamp)?.as_u32()?)
    }
}
