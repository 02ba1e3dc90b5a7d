//! Packets as a pcapng file, each with its rule or its reason as a comment.

use std::borrow::Cow;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, PcapError};
use report::trace::Packet;

use super::line;
use crate::Error;
use crate::cell::Cell;

/// Octets of a frame that turnpiked sends.
const SNAP: u32 = 256;
/// `if_tsresol`: nanoseconds.
const NANOSECONDS: u8 = 9;

/// A file that is whole after each packet, so that it may be read, or its writer ended, at any time.
pub(super) struct Capture {
    file: PathBuf,
    writer: PcapNgWriter<File>,
    /// Described so far.
    interfaces: Vec<String>,
}

impl Capture {
    pub(super) fn create(file: PathBuf) -> Result<Self, Error> {
        let failed = |reason: String| Error::Write {
            file: file.clone(),
            reason,
        };
        let open = File::create(&file).map_err(|error| failed(error.to_string()))?;
        let writer = PcapNgWriter::new(open).map_err(|error| failed(error.to_string()))?;
        Ok(Self {
            file,
            writer,
            interfaces: Vec::new(),
        })
    }

    pub(super) fn write(&mut self, packet: &Packet) -> Result<(), Error> {
        self.try_write(packet).map_err(|error| Error::Write {
            file: self.file.clone(),
            reason: error.to_string(),
        })
    }

    fn try_write(&mut self, packet: &Packet) -> Result<(), PcapError> {
        let interface_id = self.interface(&packet.interface.cell())?;
        let frame = line::frame(packet);
        let block = EnhancedPacketBlock {
            interface_id,
            timestamp: time(&packet.time),
            original_len: packet.length.max(frame.len() as u32),
            data: Cow::Owned(frame),
            options: vec![EnhancedPacketOption::Comment(Cow::Owned(comment(packet)))],
        };
        self.writer.write_pcapng_block(block).map(drop)
    }

    fn interface(&mut self, name: &str) -> Result<u32, PcapError> {
        if let Some(known) = self.interfaces.iter().position(|known| known == name) {
            return Ok(known as u32);
        }
        let block = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: SNAP,
            options: vec![
                InterfaceDescriptionOption::IfName(Cow::Owned(name.to_owned())),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ],
        };
        self.writer.write_pcapng_block(block)?;
        self.interfaces.push(name.to_owned());
        Ok(self.interfaces.len() as u32 - 1)
    }
}

/// `uplink forwarded; PDR 1, FAR 1 (FORW), QER 1; session 00000000000000a1`
fn comment(packet: &Packet) -> String {
    let mut comment = format!("{} {}", packet.direction.cell(), packet.outcome.cell());
    if let Some(reason) = &packet.reason {
        comment += &format!(": {reason} ({})", packet.meaning.cell());
    }
    comment += &format!("; {}", line::rule(packet));
    if let Some(seid) = &packet.session {
        comment += &format!("; session {seid}");
    }
    comment
}

fn time(text: &str) -> Duration {
    let (seconds, nanoseconds) = text.split_once('.').unwrap_or((text, "0"));
    let number = |text: &str| text.parse().unwrap_or(0);
    Duration::from_secs(number(seconds)) + Duration::from_nanos(number(nanoseconds))
}
