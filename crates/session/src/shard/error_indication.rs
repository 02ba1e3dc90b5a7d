//! Error Indications of gNBs and other UPFs: the SMF of the session is told (ERIR: TS 29.244, 5.10 and
//! 7.5.8.4; TS 23.527, 5.3.2), and decides what becomes of the tunnel, into which nothing is sent meanwhile if it goes on
//! to say so. Only its own end knows of a tunnel: what others say of it is counted, and comes here not at all.

use std::net::IpAddr;
use std::time::Duration;

use compiled::Tables;
use pfcp::ie::{FTeid, ReportType};

use crate::base::gtpu::Tunnel;
use crate::base::time::Time;
use crate::between::to_node::Outputs;
use crate::shard::Shard;

/// Sessions whose tunnels are looked at before other work may go first.
const SESSIONS_INDEXED: usize = 1024;

/// Tunnels that are told of before other work may go first.
const TUNNELS_TOLD: usize = 256;

impl<T: Tables> Shard<T> {
    /// Error Indication of the far end of a tunnel.
    pub(super) fn on_error_indication(&mut self, now: Time, out: &mut Outputs, tunnel: Tunnel) {
        self.sessions.tunnels.ask(now, tunnel);
        self.look_up_tunnels(now, out);
    }

    /// A step towards knowing whose tunnels Error Indications were about; who it was is told.
    pub(super) fn look_up_tunnels(&mut self, now: Time, out: &mut Outputs) {
        self.sessions.index_tunnels(SESSIONS_INDEXED);
        for _ in 0..TUNNELS_TOLD {
            let Some(tunnel) = self.sessions.tunnels.question() else {
                break;
            };
            self.tell_of_error(now, out, tunnel);
        }
    }

    /// The SMF has this long to do something about a tunnel, which pauses meanwhile.
    pub(crate) fn tunnel_pause(&self) -> Duration {
        self.config.t1 * self.config.n1.max(1)
    }

    fn tell_of_error(&mut self, now: Time, out: &mut Outputs, tunnel: Tunnel) {
        let ((teid, peer), pause) = (tunnel, self.tunnel_pause());
        for seid in self.sessions.with_tunnel(tunnel) {
            // A gNB indicates an error for each packet; the SMF hears of it once.
            if !(self.sessions).indicated(now, seid, tunnel, pause, &mut self.tables) {
                continue;
            }
            let (ipv4, ipv6) = match peer {
                IpAddr::V4(v4) => (Some(v4), None),
                IpAddr::V6(v6) => (None, Some(v6)),
            };
            let f_teid = FTeid::Given { teid, ipv4, ipv6 };
            self.report(out, seid, ReportType::ERIR, |writer| {
                writer.error_indication_report(&[f_teid]);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use pfcp::IeType;

    use crate::shard::reports_tests::world;
    use crate::testing::world::{World, smf};
    use compiled::{Action, PdrId};
    use testkit::requests::{GNB, qer, tunnel};
    use testkit::tables::FakeTables;

    /// Of the far end of the tunnel that these sessions send into, in IPv4 and UDP.
    fn indication() -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 52, 0, 0, 0, 0, 64, 17, 0, 0];
        packet.extend(GNB.octets());
        packet.extend(Ipv4Addr::new(10, 3, 0, 1).octets());
        packet.extend([0x08, 0x68, 0x08, 0x68, 0, 32, 0, 0]);
        packet.extend([0x32, 26, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0]);
        packet.extend([16, 0, 0, 0x50, 0, 133, 0, 4]);
        packet.extend(GNB.octets());
        packet
    }

    fn downlink(tables: &FakeTables) -> Action {
        let entries = tables.live.values().flat_map(|compiled| &compiled.entries);
        let mut entries = entries.filter(|entry| entry.pdr == PdrId(2));
        entries.next().unwrap().action
    }

    fn is_gone(world: &World) -> bool {
        downlink(world.core.tables()) == Action::TunnelGone
    }

    /// The SMF changes the FAR, into this tunnel.
    fn change(world: &mut World, seid: u64, teid: u32) {
        world.modify(smf(2), seid, |w| {
            w.grouped(IeType::UPDATE_FAR, |w| {
                w.put(IeType::FAR_ID, 2u32);
                w.grouped(IeType::UPDATE_FORWARDING_PARAMETERS, |w| {
                    w.put(IeType::OUTER_HEADER_CREATION, tunnel(teid));
                });
            });
        });
    }

    #[test]
    fn nothing_goes_into_a_tunnel_whose_end_does_not_know_it_until_the_smf_speaks() {
        let mut world = world(&[smf(2)]);
        let seid = world.establish_with(smf(2), 1, |_| {});
        let before = downlink(world.core.tables());
        assert!(matches!(before, Action::Tunnel { teid: 0x5000, .. }));
        assert_eq!(world.hear(&indication()).len(), 1, "a report");
        assert_eq!(downlink(world.core.tables()), before, "one may be forged");
        assert!(world.hear(&indication()).is_empty(), "it is known");
        assert!(is_gone(&world));
        // A word about something else changes nothing.
        world.modify(smf(2), seid, |w| qer(w, 7, Some(5)));
        assert!(is_gone(&world));
        change(&mut world, seid, 0x6000);
        let now = downlink(world.core.tables());
        assert!(matches!(now, Action::Tunnel { teid: 0x6000, .. }));
        // The same tunnel, meant anew.
        change(&mut world, seid, 0x5000);
        for _ in 0..2 {
            world.hear(&indication());
        }
        assert!(is_gone(&world));
        change(&mut world, seid, 0x5000);
        assert_eq!(downlink(world.core.tables()), before);
        world.delete(smf(2), seid);
        assert!(world.hear(&indication()).is_empty());
    }

    #[test]
    fn what_another_than_the_far_end_says_is_counted_and_nobody_hears_of_it() {
        let mut world = world(&[smf(2)]);
        world.establish_with(smf(2), 1, |_| {});
        let mut from_elsewhere = indication();
        from_elsewhere[15] ^= 1;
        for _ in 0..3 {
            assert!(world.hear(&from_elsewhere).is_empty());
        }
        assert!(!is_gone(&world));
        assert_eq!(world.core.stats().error_indications_foreign, 3);
        assert_eq!(world.hear(&indication()).len(), 1, "the far end itself");
    }

    #[test]
    fn a_tunnel_is_tried_again_when_the_smf_has_done_nothing() {
        let mut world = world(&[smf(2)]);
        world.establish_with(smf(2), 1, |_| {});
        assert_eq!(world.hear(&indication()).len(), 1);
        world.hear(&indication());
        let pause = world.core.tunnel_pause();
        world.pass(pause - Duration::from_millis(1));
        assert!(is_gone(&world));
        world.pass(Duration::from_millis(1));
        assert!(!is_gone(&world));
        assert_eq!(world.hear(&indication()).len(), 1, "another report");
        assert!(is_gone(&world));
    }
}
