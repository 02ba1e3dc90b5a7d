//! Signalling among users' packets, as AccelUPF was evaluated (SOSR 2022): what messages of each kind take, and what is left for
//! packets when so many of them are PFCP's.

use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::socket::{setsockopt, sockopt};

use super::cost::{Direction, Order};
use super::frames::{self, Family, Frame, REMOTE};
use super::load::{Client, Outcome};
use super::requests::{self, Field, Shape, Template};
use super::sut::Sut;
use super::{
    ADDRESSES, Counting, Figures, Options, RING_WINDOW, SAMPLE, WARM_UP, all_accepted, establish,
    median, teid,
};
use crate::world::BY_PROGRAM;

/// Messages of PFCP among all, in percent, of the five traces there; and none, beside which they stand.
const SHARES: [f64; 6] = [0.0, 3.65, 12.53, 19.63, 28.86, 35.79];
/// Requests that are sent one behind the other, each a datagram of its own, before packets are.
const TURN: u32 = 96;
/// Packets and messages of one run, at least.
const ITEMS: u32 = 120_000;
/// Octets of users' packets.
const LENGTH: usize = 64;
/// Ethernet, IPv4 and UDP in front of a G-PDU.
const OUTER: usize = 14 + 20 + 8;
/// Messages of a kind that are measured by themselves, at most.
const KIND: usize = 20_000;
/// By then the control thread has heard of all that was served beside it.
const SETTLES: Duration = Duration::from_millis(60);

/// Signalling of a user who is silent, and is back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// The session is deleted, and established anew: three messages.
    Release,
    /// The tunnel is left, and there is another one: two messages.
    Idle,
}

impl Manner {
    const ALL: [(Self, &'static str); 2] = [(Self::Release, "release"), (Self::Idle, "idle")];
}

/// Both ends of users' packets. Nobody reads what arrives.
struct Ends {
    gnb: UdpSocket,
    server: UdpSocket,
    uplink: Frame,
    downlink: Vec<u8>,
}

impl Ends {
    fn of(sut: &Sut) -> Result<Self> {
        let deaf = |socket: UdpSocket| -> Result<UdpSocket> {
            setsockopt(&socket, sockopt::RcvBuf, &0)?;
            Ok(socket)
        };
        Ok(Self {
            gnb: deaf(sut.peer.udp((ADDRESSES.gnb, 2152))?)?,
            server: deaf(sut.peer.udp((REMOTE, 40001))?)?,
            uplink: frames::uplink(&ADDRESSES, Family::V4, LENGTH),
            downlink: vec![0; LENGTH - 28],
        })
    }

    /// A packet of this user, up or down by turns.
    fn send(&mut self, number: u32, user: u32) -> Result<()> {
        let ue = ADDRESSES.ue(user);
        if number.is_multiple_of(2) {
            let to = SocketAddr::from((ue, 40000));
            self.server.send_to(&self.downlink, to)?;
            return Ok(());
        }
        let sum = self.uplink.checksum_for(ue);
        let Frame {
            bytes,
            teid_at,
            address_at,
            checksum_at,
            ..
        } = &mut self.uplink;
        bytes[*teid_at..*teid_at + 4].copy_from_slice(&teid(user).to_be_bytes());
        bytes[*address_at..*address_at + 4].copy_from_slice(&ue.octets());
        bytes[*checksum_at..*checksum_at + 2].copy_from_slice(&sum);
        self.gnb.send_to(&bytes[OUTER..], (ADDRESSES.n3, 2152))?;
        Ok(())
    }
}

/// Messages that users are silent, and back, with.
struct Messages {
    establishment: Template,
    idle: Template,
    active: Template,
    deletion: Template,
}

impl Messages {
    /// Those of a user who is silent and back, in their order.
    fn of(&self, manner: Manner) -> Vec<&Template> {
        match manner {
            Manner::Release => vec![&self.deletion, &self.establishment, &self.active],
            Manner::Idle => vec![&self.idle, &self.active],
        }
    }
}

/// A UPF under a mix.
struct Mix {
    sut: Sut,
    client: Client,
    ends: Ends,
    messages: Rc<Messages>,
    /// SEIDs of all users: the first half sends and receives, the others are silent, and back.
    seids: Vec<u64>,
    order: Vec<u32>,
    /// Packets sent so far, and turns of users who signal.
    sent: u32,
    turns: u32,
}

/// All figures. Those of mixes are taken by turns, so that a noisy hour is everybody's.
pub(super) fn measure(figures: &mut Figures, options: &Options) -> Result<()> {
    let users = options.sessions;
    ensure!(users >= 4 * TURN, "--sessions: at least {}", 4 * TURN);
    let _counting = Counting::begin()?;
    let mut mixes = Vec::new();
    for (name, line) in [
        ("off", "fast_path = \"off\""),
        ("user", "fast_path = \"user\""),
        ("data", BY_PROGRAM),
    ] {
        let mut mix = Mix::start(users, line)?;
        mix.kinds(figures, name)?;
        mixes.push((name, mix));
    }
    for (manner, called) in Manner::ALL {
        for share in SHARES {
            let mut rates = vec![Vec::new(); mixes.len()];
            for _ in 0..options.runs {
                for ((_, mix), rates) in mixes.iter_mut().zip(&mut rates) {
                    rates.push(mix.run(share, manner)?);
                }
            }
            for ((name, _), mut rates) in mixes.iter().zip(rates) {
                let figure = format!("mix_{called}_{name}_{share}");
                figures.add(&figure, median(&mut rates), "Mpps/core", None);
            }
        }
    }
    Ok(())
}

impl Mix {
    fn start(users: u32, line: &'static str) -> Result<Self> {
        let sut = Sut::start_with(users + SAMPLE, 1, vec![("[n4]", line)])?;
        let mut client = Client::new(sut.smf_socket(ADDRESSES.smf)?, sut.n4())?;
        client.associate(|sequence| requests::association(&ADDRESSES, sequence))?;
        client.send_one_by_one();
        let (_, seids) = establish(&mut client, (0, users), Shape::Plain, RING_WINDOW)?;
        // Sessions that come and go want a wider build for a moment: of all this is measured with that one.
        establish(&mut client, (users, 1), Shape::Ipv6, 1)?;
        let messages = Messages {
            establishment: requests::establishment(&ADDRESSES, Shape::Plain)?,
            idle: requests::idle()?,
            active: requests::path_switch(&ADDRESSES)?,
            deletion: requests::deletion()?,
        };
        let mut mix = Self {
            ends: Ends::of(&sut)?,
            sut,
            client,
            messages: Rc::new(messages),
            seids,
            order: Order::Random.of(users / 2),
            sent: 0,
            turns: 0,
        };
        // Templates are learned, all sessions lent, and answers that are kept have their memory.
        for _ in 0..WARM_UP / TURN {
            mix.turn(Manner::Idle, 0)?;
        }
        mix.sut.settle()?;
        Ok(mix)
    }

    /// Users of the next turn, by their numbers.
    fn next_users(&mut self) -> Vec<u32> {
        let (half, turn) = (self.order.len(), self.turns as usize);
        self.turns += 1;
        let users = (0..TURN as usize).map(|i| (turn * TURN as usize + i) % half);
        users.map(|at| self.order[at] + half as u32).collect()
    }

    fn ask(&mut self, template: &Template, users: &[u32], window: u32) -> Result<Outcome> {
        let (seids, turns) = (&self.seids, self.turns);
        let mut given = vec![None; users.len()];
        let count = users.len() as u32;
        let value = |i: u32, field| {
            let user = users[i as usize];
            match field {
                Field::Seid => seids[user as usize],
                Field::CpSeid => u64::from(user + 1),
                Field::UplinkTeid => u64::from(teid(user)),
                // Of another tunnel each time.
                Field::GnbTeid => u64::from(turns.wrapping_mul(TURN) + i) | 0x8000_0000,
                Field::UeAddress => u64::from(u32::from(ADDRESSES.ue(user))),
                Field::Sequence => 0,
            }
        };
        let answered = |i: u32, answer: &super::load::Answer| given[i as usize] = answer.up_seid;
        let outcome = self.client.run(template, count, window, value, answered)?;
        all_accepted("a request of the mix", &outcome, count)?;
        for (user, seid) in users.iter().zip(given) {
            if let Some(seid) = seid {
                self.seids[*user as usize] = seid;
            }
        }
        Ok(outcome)
    }

    /// A turn of users is silent, and back; behind each kind of message come so many packets.
    fn turn(&mut self, manner: Manner, packets: u32) -> Result<()> {
        let users = self.next_users();
        let messages = Rc::clone(&self.messages);
        for template in messages.of(manner) {
            self.ask(template, &users, TURN)?;
            self.packets(packets)?;
        }
        Ok(())
    }

    /// Packets of users who are never silent.
    fn packets(&mut self, count: u32) -> Result<()> {
        for _ in 0..count {
            let user = self.order[self.sent as usize % self.order.len()];
            self.ends.send(self.sent, user)?;
            self.sent += 1;
        }
        Ok(())
    }

    /// CPU time of turnpiked, and of its programs.
    fn spent(&self) -> Result<Duration> {
        std::thread::sleep(SETTLES);
        Ok(self.sut.cpu()? + self.sut.program_time()?)
    }

    fn forwarded(&self) -> Result<u64> {
        let [up, down] = [Direction::Uplink, Direction::Downlink];
        Ok(self.sut.forwarded(up)? + self.sut.forwarded(down)?)
    }

    /// Packets and messages for each second of CPU, in millions, where so many percent are messages.
    fn run(&mut self, share: f64, manner: Manner) -> Result<f64> {
        let beside = f64::from(TURN) * (100.0 - share) / share;
        let (forwarded, before) = (self.forwarded()?, self.spent()?);
        let mut messages = 0;
        if share == 0.0 {
            self.packets(ITEMS)?;
        } else {
            let all = (f64::from(ITEMS) * share / 100.0) as u32;
            while messages < all {
                self.turn(manner, beside.round() as u32)?;
                messages += TURN * self.messages.of(manner).len() as u32;
            }
        }
        let spent = self.spent()?.checked_sub(before);
        let spent = spent.context("programs were replaced meanwhile")?;
        let packets = self.forwarded()? - forwarded;
        Ok((packets as f64 + f64::from(messages)) / spent.as_secs_f64() / 1e6)
    }

    /// Each kind of message by itself: time to the answer of one alone, and CPU of one among many.
    fn kinds(&mut self, figures: &mut Figures, name: &str) -> Result<()> {
        let half = self.order.len();
        let of = KIND.min(half);
        let users: Vec<u32> = (self.order[..of].iter().map(|user| user + half as u32)).collect();
        let messages = Rc::clone(&self.messages);
        let kinds = [
            ("deletion", &messages.deletion),
            ("establishment", &messages.establishment),
            ("path_switch", &messages.active),
            ("idle", &messages.idle),
            ("active", &messages.active),
        ];
        for window in [1, RING_WINDOW] {
            for (kind, template) in kinds {
                self.turns += users.len() as u32 / TURN + 1;
                let before = self.spent()?;
                let outcome = self.ask(template, &users, window)?;
                let each = self.spent()?.saturating_sub(before).as_secs_f64() * 1e6 / of as f64;
                if window > 1 {
                    figures.add(&format!("{kind}_cpu_{name}"), each, "us/request", None);
                    continue;
                }
                for (quantile, at) in [("p50", 0.5), ("p99", 0.99)] {
                    let us = outcome.latency.value_at_quantile(at) as f64 / 1e3;
                    figures.add(&format!("{kind}_{quantile}_{name}"), us, "us", None);
                }
            }
        }
        Ok(())
    }
}
