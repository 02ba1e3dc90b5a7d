//! Scripts as octets, for the fuzz target.

use crate::script::Step;

/// Steps by their octets: as many as there are whole ones.
pub(crate) fn steps(mut input: &[u8]) -> Vec<Step> {
    let mut steps = Vec::new();
    while let Some((step, rest)) = step(input) {
        steps.push(step);
        input = rest;
    }
    steps
}

fn step(input: &[u8]) -> Option<(Step, &[u8])> {
    let (&kind, input) = input.split_first()?;
    Some(match kind % 8 {
        0 => (Step::Reopen, input),
        1 => {
            let (&place, input) = input.split_first()?;
            (Step::Remove { place }, input)
        }
        2 => {
            let (&[a, b, c, bit], input) = input.split_first_chunk()?;
            let word = u32::from_le_bytes([a, b, c, 0]);
            let bits = if bit & 64 == 0 {
                1 << (bit % 64)
            } else {
                u64::MAX >> (bit % 64)
            };
            (Step::Damage { word, bits }, input)
        }
        _ => {
            let (&[place, low, high, seed], input) = input.split_first_chunk()?;
            let octets = u16::from_le_bytes([low, high]);
            (
                Step::Put {
                    place,
                    octets,
                    seed,
                },
                input,
            )
        }
    })
}
