use proptest::prelude::*;

use super::*;

const UDP: Transport = 17 << PROTO_SHIFT | PORTS | 1000 << 16 | 80;

fn key(teid: u32, id: u32) -> Key {
    Key {
        port: 0,
        teid,
        source: [10, 60, 0, 1].into(),
        destination: [192, 0, 2, 1].into(),
        id,
        proto: 17,
    }
}

fn frames(ready: &[Ready]) -> Vec<u8> {
    ready.iter().map(|ready| ready.frame[0]).collect()
}

#[test]
fn later_fragments_follow_the_first() {
    let (mut all, mut losses) = (Followers::new(Bounds::default()), Losses::new());
    assert!(all.add(key(1, 1), None, &[2], 0, &mut losses).is_empty());
    assert!(all.add(key(1, 1), None, &[3], 0, &mut losses).is_empty());
    assert!(all.add(key(1, 2), None, &[9], 0, &mut losses).is_empty());
    let ready = all.add(key(1, 1), Some(UDP), &[1], 0, &mut losses);
    assert_eq!(frames(&ready), [1, 2, 3]);
    assert!(ready.iter().all(|ready| ready.transport == UDP));
    let ready = all.add(key(1, 1), None, &[4], 1, &mut losses);
    assert_eq!(frames(&ready), [4]);
    assert!(losses.is_empty() && all.bytes() == 1);
    // The other one's first fragment never comes; the identification is then free again.
    let age = Bounds::default().age_ns;
    all.expire(age, &mut losses);
    assert_eq!(losses, [(0, Loss::Timeout, 1)]);
    assert!(all.is_empty() && all.bytes() == 0);
    assert!(all.add(key(1, 1), None, &[5], age, &mut losses).is_empty());
}

#[test]
fn a_flood_of_later_fragments_pushes_out_its_own() {
    let bounds = Bounds {
        packets: 8,
        packets_per_user: 4,
        bytes: 100,
        frames: 2,
        ..Bounds::default()
    };
    let (mut all, mut losses) = (Followers::new(bounds), Losses::new());
    all.add(key(2, 1), Some(UDP), &[0; 10], 0, &mut losses);
    for id in 0..1000 {
        all.add(key(1, id), None, &[0; 10], 0, &mut losses);
        assert!(all.bytes() <= 40);
    }
    assert_eq!(losses.len(), 1000 - 4);
    assert_eq!(all.add(key(2, 1), None, &[7], 0, &mut losses).len(), 1);
    losses.clear();
    for _ in 0..10 {
        all.add(key(1, 999), None, &[0; 10], 0, &mut losses);
    }
    assert_eq!(losses.len(), 9, "two frames of a packet wait");
    // Many users together.
    for teid in 10..1000 {
        all.add(key(teid, 1), None, &[0; 60], 0, &mut losses);
        assert!(all.bytes() <= 100 && all.packets.len() <= 8 && all.users.len() <= 8);
    }
}

#[test]
fn fragments_of_both_families_are_read() {
    let mut v4 = vec![
        0x45, 0, 0, 24, 0, 7, 0x20, 0, 64, 17, 0, 0, 10, 60, 0, 1, 192, 0, 2, 1,
    ];
    v4.extend([3, 232, 0, 80]);
    assert_eq!(read(0, 1, &v4), Some((key(1, 7), Some(UDP))));
    v4[7] = 3;
    assert_eq!(read(0, 1, &v4), Some((key(1, 7), None)));
    // Too short for ports: nobody can say them.
    (v4[3], v4[7]) = (23, 0);
    assert_eq!(read(0, 1, &v4), Some((key(1, 7), Some(17 << PROTO_SHIFT))));

    let mut v6 = vec![0x60, 0, 0, 0, 0, 28, 60, 64];
    v6.extend([0; 32]);
    v6.extend([44, 0, 1, 4, 0, 0, 0, 0]);
    v6.extend([60, 0, 0, 1, 0, 0, 0, 9]);
    v6.extend([17, 0, 1, 4, 0, 0, 0, 0]);
    v6.extend([3, 232, 0, 80]);
    let (first, said) = read(0, 0, &v6).unwrap_or((key(0, 0), None));
    assert_eq!((first.id, said), (9, Some(UDP)));
    v6[51] = 8;
    let (later, said) = read(0, 0, &v6).unwrap_or((key(0, 0), None));
    assert_eq!((later, said), (first, None));
    // No fragment at all.
    v6[40] = 59;
    assert_eq!(read(0, 0, &v6), None);
}

proptest! {
    #[test]
    fn any_octets_are_read_or_not(octets in proptest::collection::vec(any::<u8>(), 0..120), six in any::<bool>()) {
        let mut octets = octets;
        if let Some(first) = octets.first_mut() {
            *first = *first & 15 | if six { 0x60 } else { 0x40 };
        }
        let _ = read(0, 1, &octets);
    }
}
