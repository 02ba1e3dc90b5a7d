use proptest::prelude::*;

use super::*;

const ROUTER4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 6, 0, 1));
const ROUTER6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 6, 0, 0, 0, 0, 1));

/// UDP from 192.0.2.1 to 10.60.0.1, without DF.
fn packet4(payload: usize) -> Vec<u8> {
    let total = (28 + payload) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(total.to_be_bytes());
    packet.extend([0, 7, 0, 0, 1, 17, 0, 0, 192, 0, 2, 1, 10, 60, 0, 1]);
    inet::set_header_checksum(&mut packet);
    packet.resize(total.into(), 0x55);
    packet
}

fn packet6_of(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next, 1]);
    packet.extend(Ipv6Addr::new(0x2001, 0xdb8, 0xf, 0, 0, 0, 0, 1).octets());
    packet.extend(Ipv6Addr::new(0x2001, 0xdb8, 0x60, 0, 0, 0, 0, 5).octets());
    packet.extend(payload);
    packet
}

const LONG: Cause = Cause::TooLong {
    mtu: 1456,
    hop_spent: true,
};

#[test]
fn errors_are_as_long_as_they_may_be() {
    assert_eq!(
        error(&packet4(2000), Cause::Expired, ROUTER4)
            .unwrap()
            .len(),
        576
    );
    assert_eq!(
        error(&packet4(10), Cause::Expired, ROUTER4).unwrap().len(),
        28 + 38
    );
    let long = error(&packet6_of(17, &[0; 2000]), LONG, ROUTER6).unwrap();
    assert_eq!(long.len(), 1280);
    assert_eq!(long[40..42], [2, 0]);
    assert_eq!(long[44..48], [0, 0, 5, 0xb0]);
}

#[test]
fn nothing_is_sent_about_errors_later_fragments_and_many_hosts() {
    let none = |packet: &[u8]| {
        for cause in [Cause::Expired, LONG] {
            assert_eq!(error(packet, cause, ROUTER4), None, "{packet:02x?}");
            assert_eq!(error(packet, cause, ROUTER6), None, "{packet:02x?}");
        }
    };
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut packet = packet4(100);
        change(&mut packet);
        packet
    };
    assert!(error(&changed(&|_| {}), Cause::Expired, ROUTER4).is_some());
    none(&changed(&|p| p[7] = 1));
    none(&changed(&|p| p[12..16].fill(0)));
    none(&changed(&|p| p[12] = 127));
    none(&changed(&|p| p[12] = 224));
    none(&changed(&|p| p[12..16].fill(255)));
    none(&changed(&|p| p[16] = 239));
    // ICMP: destination unreachable, but not an echo.
    none(&changed(&|p| (p[9], p[20]) = (1, 3)));
    none(&changed(&|p| (p[9], p[20]) = (1, 11)));
    let echo = changed(&|p| (p[9], p[20]) = (1, 8));
    assert!(error(&echo, Cause::Expired, ROUTER4).is_some());
    none(&packet4(0)[..19]);

    assert!(error(&packet6_of(17, &[0; 8]), Cause::Expired, ROUTER6).is_some());
    assert!(error(&packet6_of(58, &[128, 0]), Cause::Expired, ROUTER6).is_some());
    none(&packet6_of(58, &[1, 0]));
    none(&packet6_of(58, &[137, 0]));
    none(&packet6_of(58, &[]));
    // A hop-by-hop header and a first fragment in front of an error; a later fragment of UDP.
    let mut hidden = vec![44, 0, 1, 4, 0, 0, 0, 0];
    hidden.extend([58, 0, 0, 1, 0, 0, 0, 9, 3, 0]);
    none(&packet6_of(0, &hidden));
    none(&packet6_of(44, &[17, 0, 0, 8, 0, 0, 0, 9]));
    let mut from_all = packet6_of(17, &[0; 8]);
    from_all[8] = 0xff;
    none(&from_all);
    let mut linked = packet6_of(17, &[0; 8]);
    linked[8..10].copy_from_slice(&[0xfe, 0x80]);
    none(&linked);
}

#[test]
fn an_mtu_that_helps_nobody_is_not_told() {
    let tight = |mtu| Cause::TooLong {
        mtu,
        hop_spent: true,
    };
    assert_eq!(error(&packet4(1000), tight(67), ROUTER4), None);
    assert!(error(&packet4(1000), tight(68), ROUTER4).is_some());
    // Every IPv6 link carries 1280 octets.
    assert_eq!(
        error(&packet6_of(17, &[0; 1240]), tight(1256), ROUTER6),
        None
    );
    let told = error(&packet6_of(17, &[0; 1241]), tight(1256), ROUTER6).unwrap();
    assert_eq!(told[44..48], [0, 0, 5, 0]);
}

proptest! {
    #[test]
    fn whatever_comes_an_error_has_lengths_and_sums_that_are_right(
        mut about in proptest::collection::vec(any::<u8>(), 0..1300),
        six in any::<bool>(),
        mtu in any::<u16>(),
        expired in any::<bool>(),
    ) {
        if let Some(first) = about.first_mut() {
            *first = *first & 15 | if six { 0x60 } else { 0x40 };
        }
        let cause = if expired { Cause::Expired } else { Cause::TooLong { mtu, hop_spent: true } };
        let source = if six { ROUTER6 } else { ROUTER4 };
        if let Some(packet) = error(&about, cause, source) {
            if six {
                let length = u16::from_be_bytes([packet[4], packet[5]]);
                prop_assert_eq!(usize::from(length) + 40, packet.len());
                prop_assert!(packet.len() <= 1280);
                let mut summed = packet[8..40].to_vec();
                summed.extend([0, 0, packet[4], packet[5], 0, 0, 0, 58]);
                summed.extend(&packet[40..]);
                prop_assert_eq!(inet::checksum(&summed), 0);
            } else {
                prop_assert_eq!(usize::from(u16::from_be_bytes([packet[2], packet[3]])), packet.len());
                prop_assert!(packet.len() <= 576);
                prop_assert_eq!(inet::checksum(&packet[..20]), 0);
                prop_assert_eq!(inet::checksum(&packet[20..]), 0);
            }
        }
    }
}
