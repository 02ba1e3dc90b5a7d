//! An answer as one record of octets, so that a request that comes again gets it from the next process, too.
//!
//! Two octets of version, then the fields as postcard has them. What an answer says was carried out is in records of its own, and may
//! not be there: [`holding`] says which answers of a session still hold.

use std::collections::BTreeMap;

use pfcp::Message;
use serde::{Deserialize, Serialize, Serializer};

use crate::base::octets::{put, take};
use crate::base::record_error::{RecordError, behind_version, hold};
use crate::base::time::Time;
use crate::exchange::answers::Fingerprint;

/// Of the layout, and of how a request becomes a [`Fingerprint`].
const VERSION: u16 = 1;

/// A record has at most so many octets: a datagram, and what it is an answer to.
const OCTETS_MAX: usize = (1 << 16) + 64;

/// An answer that was given, to be given again.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AnswerRecord<'o> {
    /// The association that the request came within, as the node's record calls it.
    pub(crate) association: u32,
    pub(crate) request: Fingerprint,
    pub(crate) at: Time,
    /// The session that it is about, by our SEID. 0: it is about none, or several.
    pub(crate) seid: u64,
    /// The session has ended with it.
    pub(crate) ends: bool,
    #[serde(borrow, serialize_with = "serialize_octets")]
    pub(crate) octets: &'o [u8],
}

/// At once, not octet by octet.
fn serialize_octets<S: Serializer>(octets: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_bytes(octets)
}

impl<'o> AnswerRecord<'o> {
    /// The record that these octets are.
    pub(crate) fn read(octets: &'o [u8]) -> Result<Self, RecordError> {
        let mut rest = behind_version(octets, VERSION, OCTETS_MAX)?;
        let record: Self = take(&mut rest)?;
        let mut again = Vec::with_capacity(octets.len());
        record.put(&mut again);
        // No number longer than it need be, and nothing behind it.
        if again != octets {
            return Err(RecordError::Malformed);
        }
        record.is_possible().map_err(RecordError::Impossible)?;
        Ok(record)
    }

    /// Appends its octets.
    pub(crate) fn put(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&VERSION.to_be_bytes());
        put(self, into);
    }

    fn is_possible(&self) -> Result<(), &'static str> {
        let is_answer = |message: Message<'_>| {
            message.header.message_type.is_response() == Some(true) && message.rest.is_empty()
        };
        let is_answer = pfcp::decode(self.octets).is_ok_and(is_answer);
        hold(is_answer, "an answer that is none")?;
        let is_known = self.seid != 0 || !self.ends;
        hold(is_known, "the end of a session that is none")
    }
}

/// Which of all answers hold, which are in the order in which they were given: an answer is kept before what it says was done, and the
/// process may have ended in between.
///
/// last: the request that was carried out last for a session, by our SEID; `None`: there is no such session
pub(crate) fn holding<'o>(
    mut all: Vec<AnswerRecord<'o>>,
    last: impl Fn(u64) -> Option<Fingerprint>,
) -> Vec<AnswerRecord<'o>> {
    // Behind the last that holds, none does of the session; in front of it, all do.
    let mut until: BTreeMap<u64, usize> = BTreeMap::new();
    for (number, answer) in all.iter().enumerate() {
        let holds = match last(answer.seid) {
            Some(request) => !answer.ends && answer.request == request,
            None => answer.ends || answer.seid == 0,
        };
        if holds {
            until.insert(answer.seid, number);
        }
    }
    let mut number = 0;
    all.retain(|answer| {
        number += 1;
        until
            .get(&answer.seid)
            .is_some_and(|until| number <= until + 1)
    });
    all
}

#[cfg(test)]
mod tests {
    use pfcp::{Cause, MessageType, Writer};

    use super::*;

    fn octets() -> Vec<u8> {
        let mut octets = Vec::new();
        let kind = MessageType::SESSION_MODIFICATION_RESPONSE;
        let mut writer = Writer::new(&mut octets, kind, Some(7), 9);
        writer.cause(Cause::REQUEST_ACCEPTED);
        writer.finish();
        octets
    }

    fn request(name: u8) -> Fingerprint {
        Fingerprint::new(([192, 0, 2, 1], 8805).into(), &[name])
    }

    fn answer(octets: &[u8], seid: u64, name: u8) -> AnswerRecord<'_> {
        AnswerRecord {
            association: 3,
            request: request(name),
            at: Time(5),
            seid,
            ends: name == b'd',
            octets,
        }
    }

    #[test]
    fn octets_are_an_answer_or_none() {
        let (octets, mut written) = (octets(), Vec::new());
        answer(&octets, 1 << 40, b'm').put(&mut written);
        let read = AnswerRecord::read(&written).unwrap();
        assert_eq!(read, answer(&octets, 1 << 40, b'm'));
        for length in 0..written.len() {
            assert!(AnswerRecord::read(&written[..length]).is_err(), "{length}");
        }
        for at in 0..written.len() {
            for value in 0..=u8::MAX {
                let mut other = written.clone();
                other[at] = value;
                if let Ok(read) = AnswerRecord::read(&other) {
                    let mut again = Vec::new();
                    read.put(&mut again);
                    assert_eq!(again, other);
                }
            }
        }
        written.push(0);
        assert_eq!(AnswerRecord::read(&written), Err(RecordError::Malformed));
        for nothing in [&b""[..], b"hello", &[0x20; 16]] {
            let mut written = Vec::new();
            answer(nothing, 2, b'm').put(&mut written);
            assert!(AnswerRecord::read(&written).is_err(), "{nothing:x?}");
        }
    }

    /// Names of requests for session 1 in their order, of which the one named last was kept with the session; those whose answers hold.
    fn holding_of(given: &[u8], last: Option<u8>) -> Vec<u8> {
        let octets = octets();
        let mut all: Vec<_> = given.iter().map(|name| answer(&octets, 1, *name)).collect();
        all.push(answer(&octets, 0, b'n'));
        let mut held = holding(all, |seid| last.filter(|_| seid == 1).map(request));
        assert_eq!(held.pop().unwrap().seid, 0, "about no session");
        let name = |answer: &AnswerRecord<'_>| {
            let is_of = |name: &&u8| request(**name) == answer.request;
            *given.iter().find(is_of).unwrap()
        };
        held.iter().map(name).collect()
    }

    #[test]
    fn an_answer_holds_as_far_as_its_session_does() {
        assert_eq!(holding_of(b"emn", Some(b'n')), b"emn");
        assert_eq!(holding_of(b"emn", Some(b'm')), b"em");
        // It was established once, and another request's answer has made way.
        assert_eq!(holding_of(b"mn", Some(b'e')), b"");
        assert_eq!(holding_of(b"emd", Some(b'm')), b"em");
        assert_eq!(holding_of(b"emd", None), b"emd");
        // It never came to be, or ended otherwise.
        assert_eq!(holding_of(b"em", None), b"");
    }
}
