//! PFCP octet by octet, without a codec.

/// An IE as it stands on the wire.
pub(crate) fn ie(kind: u16, value: &[u8]) -> Vec<u8> {
    [
        &kind.to_be_bytes(),
        &(value.len() as u16).to_be_bytes(),
        value,
    ]
    .concat()
}

pub(crate) fn group(kind: u16, ies: &[Vec<u8>]) -> Vec<u8> {
    ie(kind, &ies.concat())
}

pub(crate) fn message(kind: u8, seid: Option<u64>, ies: &[Vec<u8>]) -> Vec<u8> {
    let body = ies.concat();
    let flags = 0x20 | u8::from(seid.is_some());
    let seid: Vec<u8> = seid.map_or(Vec::new(), |seid| seid.to_be_bytes().into());
    let length = (seid.len() + 4 + body.len()) as u16;
    let front = [
        &[flags, kind][..],
        &length.to_be_bytes(),
        &seid,
        &[0, 0, kind, 0],
    ];
    [&front.concat()[..], &body].concat()
}

/// Values of the IEs of this kind.
pub(crate) fn find(kind: u16, mut ies: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while let Some((&[a, b, c, d], rest)) = ies.split_first_chunk() {
        let (value, behind) = rest.split_at(u16::from_be_bytes([c, d]).into());
        if u16::from_be_bytes([a, b]) == kind {
            found.push(value);
        }
        ies = behind;
    }
    found
}
