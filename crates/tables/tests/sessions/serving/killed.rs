//! A process that ends while a program serves for it: who comes next knows all that SMFs have been told.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;

use nix::mount::{MsFlags, mount, umount};
use session::{Change, NodeRecord};

use super::*;

const NODE_ID: &str = "upf";

/// A bpffs of this thread's own.
struct Bpffs(PathBuf);

impl Bpffs {
    fn new() -> Self {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let none = None::<&str>;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(none, "/", none, private, none).unwrap();
        let id = format!("{}-{:?}", std::process::id(), thread::current().id());
        let folder = std::env::temp_dir().join(format!("turnpike-served-{id}"));
        std::fs::create_dir(&folder).unwrap();
        mount(Some("bpf"), &folder, Some("bpf"), MsFlags::empty(), none).unwrap();
        Self(folder)
    }

    /// A child that another test's thread is about to start has our descriptors, and so the lock, for a moment.
    fn pins(&self) -> Pins {
        for _ in 0..60_000 {
            if let Ok(pins) = Pins::open(&self.0, NODE_ID, 0) {
                return pins;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("the folder is somebody else's");
    }

    /// A node whose program outlives it, and the generation of its tables.
    fn node(&self) -> (Node, u64) {
        let pins = self.pins();
        pins.are_met();
        let generation = pins.generation();
        let mut node = Node::with(Way::Data, Some(pins), None);
        node.core.note_changes();
        (node, generation)
    }
}

impl Drop for Bpffs {
    fn drop(&mut self) {
        let _ = umount(&self.0);
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// File of a process.
#[derive(Default)]
struct Kept {
    sessions: BTreeMap<u32, Vec<u8>>,
    node: Vec<u8>,
    pfds: Vec<u8>,
    answers: Vec<Vec<u8>>,
}

impl Kept {
    /// All changes, unless the process ends after the first so many.
    fn keep(&mut self, core: &mut Core<Tables>, first: Option<usize>) {
        let mut number = 0;
        let keeping = AssertUnwindSafe(|| {
            core.changes(true, |change| {
                if first == Some(number) {
                    resume_unwind(Box::new(()));
                }
                number += 1;
                match change {
                    Change::Session(place, octets) => {
                        self.sessions.insert(place, octets.to_vec());
                    }
                    Change::Gone(place) => drop(self.sessions.remove(&place)),
                    Change::Node(octets) => self.node = octets.to_vec(),
                    Change::Pfds(octets) => self.pfds = octets.to_vec(),
                    Change::Answer(octets) => self.answers.push(octets.to_vec()),
                }
            });
        });
        let has_ended = catch_unwind(keeping).is_err();
        assert!(!has_ended || first.is_some());
    }
}

/// Both nodes, of which the second one is kept, and serves by a program that outlives it.
struct Mortal {
    world: World,
    kept: Kept,
    bpffs: Bpffs,
    generation: u64,
    /// Requests that successors have carried out.
    found: usize,
}

impl Mortal {
    fn new() -> Self {
        let bpffs = Bpffs::new();
        let (node, generation) = bpffs.node();
        let mut world = World::of(Way::Data, node);
        world.all_ends = Some(Default::default());
        let mut mortal = Self {
            world,
            kept: Kept::default(),
            bpffs,
            generation,
            found: 0,
        };
        mortal.keep();
        mortal
    }

    fn keep(&mut self) {
        self.kept.keep(&mut self.world.nodes[1].core, None);
    }

    /// All that was served has been heard of.
    fn settle(&mut self) {
        let node = &mut self.world.nodes[1];
        node.is_late = false;
        node.core.catch_up(node.now, &mut node.out);
    }

    /// Sessions are the same in both, and the same tunnels have ended: some of them twice.
    fn check(&mut self) {
        self.settle();
        self.world.check();
        self.world.take_ends();
        let all = self.world.all_ends.as_ref().unwrap();
        let ends = all.each_ref().map(|ends| {
            let ends = ends.iter().map(|end| (end.teid, end.peer));
            ends.collect::<BTreeSet<_>>()
        });
        assert_eq!(ends[0], ends[1]);
    }

    /// The modification, numbered.
    fn request(&mut self, at: usize, ies: &[Vec<u8>]) -> (usize, Vec<u8>) {
        (self.world.sessions[&at].smf, self.world.numbered(at, ies))
    }

    /// A request is answered: what the core has carried out is kept before that, and what the program has served when that is heard of,
    /// which may take a while.
    fn ask(&mut self, at: usize, ies: &[Vec<u8>], (is_late, keeps): (bool, bool)) {
        let (smf, datagram) = self.request(at, ies);
        self.world.nodes[1].is_late = is_late;
        self.world.said.push((smf, datagram.clone()));
        self.world.answer(smf, &datagram);
        let by_core = !self.world.nodes[1].out.is_empty();
        if by_core || keeps {
            self.keep();
        }
    }

    /// The file of answers is damaged, now and then: nothing of before comes again.
    fn lose_answers(&mut self, random: &mut Random) {
        if random.below(2) == 0 {
            self.kept.answers.clear();
            self.world.said.clear();
        }
    }

    /// The process ends here, and the next one goes on.
    fn succeed(&mut self) {
        let now = self.world.nodes[1].now;
        self.world.take_ends();
        // The lock goes with the former.
        self.world.nodes[1] = Node::new(Way::None);
        let (mut node, generation) = self.bpffs.node();
        node.now = now;
        let mut before = NodeRecord::read(&self.kept.node).unwrap();
        before.read_pfds(&self.kept.pfds).unwrap();
        let (core, out) = (&mut node.core, &mut node.out);
        core.resume(now, &before, out).unwrap();
        let mut until = BTreeMap::new();
        for octets in self.kept.sessions.values() {
            let record = before.session(octets).unwrap();
            until.insert(record.seid(), record.served());
            core.adopt(now, record, out).unwrap();
        }
        let answers = self.kept.answers.iter().map(Vec::as_slice);
        assert_eq!(core.resume_answers(now, &before, answers), 0);
        let left = Pins::left_requests(&self.bpffs.0, NODE_ID, self.generation);
        let mut left = left.unwrap().unwrap();
        for request in left.by_ref() {
            let until = until.get(&request.seid);
            if until.is_some_and(|until| request.position >= *until) {
                let (from, octets) = (request.from, &request.octets);
                assert!(core.carry_out_again(now, from, octets, out));
                self.found += 1;
            }
        }
        assert_eq!(left.strange(), 0);
        assert!(out.is_empty(), "SMFs have their answers");
        self.kept = Kept::default();
        self.kept.keep(core, None);
        core.tables().pins().unwrap().retain_maps(&[]);
        node.resolve();
        self.world.nodes[1] = node;
        self.generation = generation;
    }
}

/// One that is the core's.
fn bar(random: &mut Random) -> Vec<u8> {
    group(86, &[ie(88, &[1]), ie(46, &[random.below(3) as u8])])
}

/// A modification of a kind that SMFs ask for often.
fn modification(random: &mut Random) -> Vec<Vec<u8>> {
    let (gnb, teid) = (gnb(random), 1 + random.below(1 << 20) as u32);
    match random.below(12) {
        0..=4 => vec![path_switch(teid, gnb, true)],
        5..=7 => vec![idle(true)],
        8..=10 => vec![active(teid, gnb)],
        _ => vec![bar(random)],
    }
}

#[test]
fn what_a_program_has_answered_outlives_the_process() {
    let mut found = 0;
    for seed in 1..=4 {
        let mut random = Random(seed * 0x9e37_79b9);
        let mut mortal = Mortal::new();
        for at in 0..SESSIONS {
            mortal.settle();
            mortal.world.establish(at, &mut random);
            mortal.keep();
        }
        for life in 0..3 {
            for _ in 0..150 {
                let at = random.below(SESSIONS);
                match random.below(40) {
                    0 => {
                        // One of the last requests comes again.
                        mortal.settle();
                        let said = mortal.world.said.iter().rev();
                        let again = said.take(4).nth(random.below(4)).cloned();
                        if let Some((smf, datagram)) = again {
                            mortal.world.hear(smf, &datagram);
                        }
                        mortal.keep();
                    }
                    1 => mortal.check(),
                    2 if life == 0 => {
                        let Session { smf, seid, .. } = mortal.world.sessions[&at];
                        mortal.settle();
                        mortal.world.ask(smf, 54, Some(seid), &[]);
                        mortal.world.sessions.remove(&at);
                        mortal.keep();
                        mortal.world.establish(at, &mut random);
                        mortal.keep();
                    }
                    _ => {
                        let asked = modification(&mut random);
                        let is_late = random.below(4) > 0;
                        mortal.ask(at, &asked, (is_late, random.below(4) == 0));
                    }
                }
            }
            (0..SESSIONS).for_each(|at| {
                let asked = active(7, IpAddr::from([10, 3, 1, 1]));
                mortal.ask(at, &[asked], (false, false));
            });
            mortal.settle();
            mortal.keep();
            for number in 0..60 {
                let gnb = IpAddr::from([10, 3, 1, 1 + random.below(2) as u8]);
                let asked = path_switch(1000 * (life + 1) + number, gnb, true);
                mortal.ask(random.below(SESSIONS), &[asked], (true, false));
            }
            let first = Some(50 + random.below(20));
            match random.below(3) {
                // Some of it was served, and has not been heard of.
                0 => mortal.succeed(),
                // While that is kept.
                1 => {
                    mortal.settle();
                    mortal.kept.keep(&mut mortal.world.nodes[1].core, first);
                    mortal.lose_answers(&mut random);
                    mortal.succeed();
                }
                // While a request of the core's is kept: it comes again.
                _ => {
                    let gnb = IpAddr::from([10, 3, 1, 1]);
                    let asked = [bar(&mut random), path_switch(9, gnb, true)];
                    let (smf, datagram) = mortal.request(random.below(SESSIONS), &asked);
                    let [slow, fast] = &mut mortal.world.nodes;
                    let answer = slow.hear(SMFS[smf], &datagram);
                    assert_eq!(fast.hear(SMFS[smf], &datagram), answer);
                    mortal.kept.keep(&mut fast.core, first);
                    mortal.lose_answers(&mut random);
                    mortal.succeed();
                    let fast = &mut mortal.world.nodes[1];
                    assert_eq!(fast.hear(SMFS[smf], &datagram), answer);
                    mortal.keep();
                }
            }
            mortal.check();
        }
        mortal.settle();
        mortal.world.nodes[1].core.keep_nothing();
        mortal.world.end();
        mortal.check();
        assert!(mortal.world.ends > 20);
        found += mortal.found;
    }
    assert!(found > 200, "{found}");
}
