//! Sessions under requests as they come over the wire.

mod adopt;
mod applications;
mod cases;
mod changes;
mod duplicates;
mod endpoints;
mod families;
mod filters;
mod framed;
mod meaning;
mod networks;
mod policies;
mod predefined;
mod properties;
mod qers;
pub(crate) mod records;
mod refusals;
mod relay;
mod size;
mod udp;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use compiled::{Action, Compiled, Key, NoRoom, PdrId, PredefinedId, Resource, Tables};
use pfcp::ie::{
    ApplyAction, FSeid, FTeid, Gate, GateStatus, Mbr, NodeId, OuterHeader, OuterHeaderCreation,
    SdfFilter, UeIpAddress,
};
use pfcp::message::{SessionEstablishmentRequest, SessionModificationRequest};
use pfcp::{IeType, MessageType, Writer};
use testkit::requests::*;
use testkit::tables::FakeTables;

use crate::base::ids::PeerId;
use crate::base::refusal::Refusal;
use crate::base::slab::Place;
use crate::base::time::Time;
use crate::rules::config::{Config, Limits, NetworkInstance};
use crate::shard::record::{self, Record};
use crate::shard::resources::Created;
use crate::shard::sessions::Sessions;

pub(crate) fn config() -> Config {
    Config {
        n3: vec![N3.into()],
        network_instances: vec![
            NetworkInstance {
                name: "internet".into(),
                pools4: vec!["10.60.0.0/28".parse().unwrap()],
                pools6: vec!["2001:db8:60::/60".parse().unwrap()],
                ..NetworkInstance::default()
            },
            NetworkInstance {
                name: "ims".into(),
                ..NetworkInstance::default()
            },
        ],
        limits: Limits {
            sessions: 20,
            ..Limits::default()
        },
        ..Config::default()
    }
}

pub(crate) struct World {
    pub(crate) sessions: Sessions<FakeTables>,
    pub(crate) tables: FakeTables,
    pub(crate) now: Time,
    /// Each session that is established goes elsewhere at once, and returns: what a record lacks, some test misses.
    pub(crate) moves: bool,
}

pub(crate) type Answer = Result<(u64, Vec<Created>), Refusal>;

impl World {
    pub(crate) fn new() -> Self {
        Self::with(&config())
    }

    pub(crate) fn with(config: &Config) -> Self {
        let tables = FakeTables::default();
        let sessions = Sessions::new(config, 42, tables.direct_teids());
        Self {
            sessions,
            tables,
            now: Time(1),
            moves: true,
        }
    }

    pub(crate) fn establish(&mut self, write: impl Fn(&mut Writer<'_>)) -> Answer {
        self.establish_from(PeerId(1), write)
    }

    pub(crate) fn establish_from(
        &mut self,
        peer: PeerId,
        write: impl Fn(&mut Writer<'_>),
    ) -> Answer {
        let datagram = message(MessageType::SESSION_ESTABLISHMENT_REQUEST, |w| {
            w.node_id(NodeId::Ipv4(Ipv4Addr::new(10, 100, 0, 2)));
            w.f_seid(FSeid {
                seid: 77,
                ipv4: Some(Ipv4Addr::new(10, 100, 0, 2)),
                ipv6: None,
            });
            write(w);
        });
        let message = pfcp::decode(&datagram).unwrap();
        let request = SessionEstablishmentRequest::decode(&message)?;
        let done = self
            .sessions
            .establish(self.now, peer, &request, &mut self.tables)?;
        let created = self.sessions.created().to_vec();
        if self.moves {
            self.go_and_return(done, peer);
        }
        Ok((done, created))
    }

    /// A session is released, written, read and adopted.
    pub(crate) fn go_and_return(&mut self, seid: u64, peer: PeerId) {
        let record = self.release(seid);
        let adopted = self
            .sessions
            .adopt(self.now, peer, record, &mut self.tables);
        assert_eq!(adopted, Ok(seid));
    }

    pub(crate) fn release(&mut self, seid: u64) -> Record {
        let sessions = &mut self.sessions;
        let context = sessions.release(self.now, seid, &mut self.tables).unwrap();
        assert_eq!(sessions.context(seid), None);
        let octets = record::write(seid, &records::SMF, &context, &sessions.site);
        Record::read(&octets).unwrap()
    }

    pub(crate) fn modify(&mut self, seid: u64, write: impl Fn(&mut Writer<'_>)) -> Answer {
        let datagram = message(MessageType::SESSION_MODIFICATION_REQUEST, write);
        let message = pfcp::decode(&datagram).unwrap();
        let request = SessionModificationRequest::decode(&message)?;
        let place = self.place_of(seid)?;
        let done = self
            .sessions
            .modify(self.now, place, seid, &request, &mut self.tables)?;
        Ok((done, self.sessions.created().to_vec()))
    }

    pub(crate) fn delete(&mut self, seid: u64) -> Result<u64, Refusal> {
        let place = self.place_of(seid)?;
        let done = self
            .sessions
            .delete(self.now, place, seid, &mut self.tables)?;
        Ok(done.cp_seid)
    }

    fn place_of(&self, seid: u64) -> Result<Place, Refusal> {
        let place = self.sessions.owned(PeerId(1), seid);
        place.ok_or(pfcp::Cause::SESSION_CONTEXT_NOT_FOUND.into())
    }

    /// The tables of the only session.
    pub(crate) fn only(&self) -> &Compiled {
        assert_eq!(self.tables.live.len(), 1);
        self.tables.live.values().next().unwrap()
    }

    /// Everything that an observer can see.
    pub(crate) fn snapshot(&self) -> String {
        let seids: Vec<u64> = self.sessions.summaries(None).map(|s| s.seid).collect();
        let views: Vec<_> = seids
            .iter()
            .map(|&s| self.sessions.view(s, &self.tables))
            .collect();
        format!(
            "{:?} {views:?} {:?}",
            self.tables.live,
            self.sessions.fill()
        )
    }
}
