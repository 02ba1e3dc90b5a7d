//! Whatever comes: each octet that passed is reported once, to each URR that its PDR named then.

use std::collections::BTreeMap;

use pfcp::ie::ReportingTriggers as Asked;
use proptest::prelude::*;
use proptest::sample::select;
use testkit::requests::{flow, remove, tunnel};

use super::*;

#[derive(Clone, Debug)]
enum Step {
    /// Some are beyond an MBR.
    Packets(u16, u64, u64, bool),
    /// On the other side of QoS enforcement it measures from now on.
    Side(u32, bool),
    /// URRs that a PDR names from now on.
    Names(u16, Vec<u32>),
    CreatePdr(Vec<u32>),
    RemovePdr(u16),
    CreateUrr(u32, u64),
    RemoveUrr(u32),
    Grant(u32, u64),
    Threshold(u32, u64),
    Query(u32),
    Recreate(u32, u64),
    Path(u32),
    Wait(u64),
    /// The SMF answers so many of what it was sent.
    Answer(usize),
    /// The session goes elsewhere, and returns.
    Move,
}

fn step() -> impl Strategy<Value = Step> {
    let urrs = || prop::sample::subsequence(vec![1u32, 2, 3], 0..=3);
    let octets = || select(vec![1u64, 3000, 40_000, 1_000_000]);
    prop_oneof![
        8 => (1u16..4, 1u64..60, 1u64..1500, prop::bool::weighted(0.3))
            .prop_map(|(pdr, count, bytes, beyond)| Step::Packets(pdr, count, bytes, beyond)),
        1 => (1u32..4, any::<bool>()).prop_map(|(urr, before)| Step::Side(urr, before)),
        2 => (1u16..4, prop::sample::subsequence(vec![1u32, 2, 3], 1..=3)).prop_map(|(pdr, urrs)| Step::Names(pdr, urrs)),
        1 => urrs().prop_map(Step::CreatePdr),
        1 => (1u16..4).prop_map(Step::RemovePdr),
        1 => (1u32..4, octets()).prop_map(|(urr, octets)| Step::CreateUrr(urr, octets)),
        1 => (1u32..4).prop_map(Step::RemoveUrr),
        2 => (1u32..4, octets()).prop_map(|(urr, octets)| Step::Grant(urr, octets)),
        1 => (1u32..4, octets()).prop_map(|(urr, octets)| Step::Threshold(urr, octets)),
        1 => (1u32..4).prop_map(Step::Query),
        1 => (1u32..4, octets()).prop_map(|(urr, octets)| Step::Recreate(urr, octets)),
        1 => (1u32..9).prop_map(Step::Path),
        2 => (1u64..20).prop_map(Step::Wait),
        3 => (0usize..4).prop_map(Step::Answer),
        2 => Just(Step::Move),
    ]
}

/// It measures before QoS enforcement when it is created, all others after it.
const BEFORE_QOS: u32 = 2;

fn urr(id: u32, octets: u64) -> UrrIe {
    let urr = UrrIe::volume(id, Asked::VOLTH | Asked::VOLQU | Asked::PERIO)
        .limit(IeType::VOLUME_THRESHOLD, total(octets))
        .limit(IeType::VOLUME_QUOTA, total(octets.saturating_mul(4)))
        .with(IeType::MEASUREMENT_PERIOD, 7);
    if id == BEFORE_QOS {
        urr.before_qos()
    } else {
        urr
    }
}

/// The rules as the SMF knows them, and what passed.
#[derive(Default)]
struct Judge {
    /// URRs of each PDR.
    pdrs: BTreeMap<u16, Vec<u32>>,
    /// How often a URR of this id was created: UR-SEQN begins anew with each.
    urrs: BTreeMap<u32, u32>,
    lives: BTreeMap<u32, u32>,
    /// Whether a URR measures before QoS enforcement.
    before_qos: BTreeMap<u32, bool>,
    /// By URR and its life: octets up and down.
    passed: BTreeMap<(u32, u32), [u64; 2]>,
    /// By URR, life and UR-SEQN.
    said: BTreeMap<(u32, u32, u32), [u64; 2]>,
}

impl Judge {
    fn hear(&mut self, said: &Said, life: u32) -> Result<(), TestCaseError> {
        let volume = [said.up, said.down];
        let before = self.said.insert((said.urr, life, said.seqn), volume);
        prop_assert!(before.is_none_or(|before| before == volume), "{said:?}");
        Ok(())
    }

    fn create(&mut self, urr: u32) {
        let life = self.lives.entry(urr).or_insert(0);
        *life += 1;
        self.urrs.insert(urr, *life);
        self.before_qos.insert(urr, urr == BEFORE_QOS);
    }
}

struct Run {
    it: Measuring,
    judge: Judge,
    /// Requests that the SMF has not answered.
    waiting: Vec<Vec<u8>>,
    /// The lives of the URRs when each was sent first.
    first: BTreeMap<Vec<u8>, BTreeMap<u32, u32>>,
}

impl Run {
    fn new() -> Self {
        let it = Measuring::new(&[urr(1, 40_000), urr(2, 3000)]);
        let mut judge = Judge {
            pdrs: BTreeMap::from([(1, vec![1, 2]), (2, vec![1, 2])]),
            ..Judge::default()
        };
        judge.create(1);
        judge.create(2);
        Self {
            it,
            judge,
            waiting: Vec::new(),
            first: BTreeMap::new(),
        }
    }

    fn note(&mut self, sent: Sent) -> Result<(), TestCaseError> {
        for (_, datagram) in sent {
            let lives = self.first.entry(datagram.clone());
            let lives = lives.or_insert_with(|| self.judge.lives.clone()).clone();
            for said in said_in(&datagram) {
                self.judge.hear(&said, lives[&said.urr])?;
            }
            self.waiting.push(datagram);
        }
        Ok(())
    }

    fn packets(
        &mut self,
        pdr: u16,
        count: u64,
        bytes: u64,
        beyond_mbr: bool,
    ) -> Result<(), TestCaseError> {
        self.it.world.core.tables_mut().beyond_mbr = beyond_mbr;
        for _ in 0..count {
            let passed = |it: &Measuring| {
                let counted = it.world.core.tables().counted.iter();
                counted
                    .filter(|((_, of), _)| of.0 == pdr)
                    .fold([0, 0], |sum, (_, c)| {
                        [sum[0] + c.bytes, sum[1] + c.bytes + c.qos_bytes]
                    })
            };
            let before = passed(&self.it);
            packets(&mut self.it.world, self.it.seid, pdr, 1, bytes);
            let after = passed(&self.it);
            let more = [0, 1].map(|side| u64::saturating_sub(after[side], before[side]));
            let direction = usize::from(pdr == 2);
            for urr in self.judge.pdrs.get(&pdr).into_iter().flatten() {
                if let Some(life) = self.judge.urrs.get(urr) {
                    let more = more[usize::from(self.judge.before_qos[urr])];
                    self.judge.passed.entry((*urr, *life)).or_default()[direction] += more;
                }
            }
        }
        let sent = self.it.world.sent();
        self.note(sent)
    }

    /// A modification; `lives`: of the URRs that its answer speaks of.
    fn modify(
        &mut self,
        lives: &BTreeMap<u32, u32>,
        write: impl Fn(&mut Writer<'_>),
    ) -> Result<(), TestCaseError> {
        // The answer is sent first, reports that follow from the request after it.
        let kind = MessageType::SESSION_MODIFICATION_REQUEST;
        let mut bytes = Vec::new();
        let sequence = 1000 + self.it.world.core.stats().modified as u32;
        let mut writer = Writer::new(&mut bytes, kind, Some(self.it.seid), sequence);
        write(&mut writer);
        writer.finish();
        let mut sent = self.it.world.receive(smf(2), &bytes);
        let (_, answer) = sent.remove(0);
        for said in said_in_answer(&answer) {
            self.judge.hear(&said, lives[&said.urr])?;
        }
        self.note(sent)
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let lives = self.judge.urrs.clone();
        let has = |urr: &u32| lives.contains_key(urr);
        match step {
            Step::Packets(pdr, count, bytes, beyond) => self.packets(*pdr, *count, *bytes, *beyond),
            Step::Side(id, before) if has(id) => {
                self.modify(&lives, |w| {
                    w.grouped(IeType::UPDATE_URR, |w| {
                        w.put(IeType::URR_ID, *id);
                        let side = if *before { MBQE } else { 0 };
                        w.ie(IeType::MEASUREMENT_INFORMATION, &[side]);
                    });
                })?;
                self.judge.before_qos.insert(*id, *before);
                Ok(())
            }
            Step::Names(pdr, urrs) if self.judge.pdrs.contains_key(pdr) && urrs.iter().all(has) => {
                self.modify(&lives, |w| {
                    let named = PdrIe {
                        urrs: urrs.clone(),
                        ..PdrIe::default()
                    };
                    PdrIe { id: *pdr, ..named }.update(w, false);
                })?;
                self.judge.pdrs.insert(*pdr, urrs.clone());
                Ok(())
            }
            Step::CreatePdr(urrs)
                if !self.judge.pdrs.contains_key(&3)
                    && self.judge.pdrs.contains_key(&1)
                    && urrs.iter().all(has) =>
            {
                self.modify(&lives, |w| {
                    let pdr = PdrIe {
                        id: 3,
                        ue: None,
                        filters: vec![flow("permit out 17 from any to assigned")],
                        urrs: urrs.clone(),
                        ..PdrIe::uplink()
                    };
                    pdr.create(w);
                })?;
                self.judge.pdrs.insert(3, urrs.clone());
                Ok(())
            }
            Step::RemovePdr(3) if self.judge.pdrs.contains_key(&3) => {
                self.modify(&lives, |w| remove(w, IeType::REMOVE_PDR, IeType::PDR_ID, 3))?;
                self.judge.pdrs.remove(&3);
                Ok(())
            }
            Step::CreateUrr(id, octets) if !has(id) => {
                self.modify(&lives, |w| urr(*id, *octets).create(w))?;
                self.judge.create(*id);
                Ok(())
            }
            Step::RemoveUrr(id) if has(id) => {
                self.modify(&lives, |w| {
                    remove(w, IeType::REMOVE_URR, IeType::URR_ID, *id)
                })?;
                self.judge.urrs.remove(id);
                for urrs in self.judge.pdrs.values_mut() {
                    urrs.retain(|urr| urr != id);
                }
                Ok(())
            }
            Step::Recreate(id, octets) if has(id) => {
                self.modify(&lives, |w| {
                    remove(w, IeType::REMOVE_URR, IeType::URR_ID, *id);
                    urr(*id, *octets).create(w);
                })?;
                self.judge.create(*id);
                Ok(())
            }
            Step::Grant(id, octets) if has(id) => self.update(*id, IeType::VOLUME_QUOTA, *octets),
            Step::Threshold(id, octets) if has(id) => {
                self.update(*id, IeType::VOLUME_THRESHOLD, *octets)
            }
            Step::Query(id) if has(id) => self.modify(&lives, |w| {
                w.grouped(IeType::QUERY_URR, |w| w.put(IeType::URR_ID, *id));
            }),
            Step::Path(teid) => self.modify(&lives, |w| {
                w.grouped(IeType::UPDATE_FAR, |w| {
                    w.put(IeType::FAR_ID, 2u32);
                    w.grouped(IeType::UPDATE_FORWARDING_PARAMETERS, |w| {
                        let tunnel = tunnel(*teid);
                        w.put(IeType::OUTER_HEADER_CREATION, tunnel);
                    });
                });
            }),
            Step::Wait(s) => {
                let sent = self.it.world.pass(seconds(*s));
                // Reports that are sent again are the same ones.
                self.note(sent)
            }
            Step::Answer(count) => self.answer(*count),
            Step::Move => {
                let sent = self.it.world.move_session(self.it.seid);
                self.note(sent)
            }
            _ => Ok(()),
        }
    }

    fn update(&mut self, id: u32, ie: IeType, octets_: u64) -> Result<(), TestCaseError> {
        let lives = self.judge.urrs.clone();
        self.modify(&lives, |w| {
            w.grouped(IeType::UPDATE_URR, |w| {
                w.put(IeType::URR_ID, id);
                w.ie(ie, &octets(total(octets_)));
            });
        })
    }

    fn answer(&mut self, count: usize) -> Result<(), TestCaseError> {
        for _ in 0..count {
            let Some(datagram) = self.waiting.pop() else {
                break;
            };
            let sent = self
                .it
                .world
                .answer(smf(2), &datagram, Cause::REQUEST_ACCEPTED, None);
            self.note(sent)?;
        }
        Ok(())
    }

    /// The session goes: what was said is what passed.
    fn end(mut self) -> Result<(), TestCaseError> {
        let lives = self.judge.lives.clone();
        for said in self.it.delete() {
            self.judge.hear(&said, lives[&said.urr])?;
        }
        let mut sums: BTreeMap<(u32, u32), [u64; 2]> = BTreeMap::new();
        for ((urr, life, _), volume) in &self.judge.said {
            let sum = sums.entry((*urr, *life)).or_default();
            sum[0] += volume[0];
            sum[1] += volume[1];
        }
        for ((urr, life), volume) in &self.judge.passed {
            let said = sums.get(&(*urr, *life)).copied().unwrap_or_default();
            prop_assert_eq!(said, *volume, "URR {} the {}.", urr, life);
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn what_is_reported_is_what_passed(steps in prop::collection::vec(step(), 1..40)) {
        let mut run = Run::new();
        for step in &steps {
            run.step(step)?;
        }
        run.end()?;
    }
}
