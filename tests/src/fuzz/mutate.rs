//! Mutates valid input: makes a few changes at random positions, with meaningful tokens.

use super::seeds::{self, Seeds};
use crate::chance::Chance;
use broker_protocol::frame::PREFIX;

/// Maximum length of a generated input.
const MOST: usize = 64 * 1024;

/// An input for `target`: a seed with up to six changes.
pub fn case(target: &str, chance: &mut Chance) -> Vec<u8> {
    let seeds = seeds::of(target);
    let mut data = pick(&seeds.inputs, chance).clone();
    for _ in 0..chance.below(7) {
        change(&mut data, seeds, chance);
    }
    if target == "decoder" {
        finish_stream(&mut data, chance);
    }
    data
}

/// The body of a frame to the broker with a few changes; it may still be valid.
pub fn body(chance: &mut Chance) -> Vec<u8> {
    let seeds = seeds::of("decoder");
    let frames = seeds::frames_to_broker();
    let mut body = pick(&frames, chance).clone();
    for _ in 0..1 + chance.below(3) {
        change(&mut body, seeds, chance);
    }
    body
}

/// A random element of `all`, which is not empty.
pub fn pick<'a, T>(all: &'a [T], chance: &mut Chance) -> &'a T {
    &all[chance.below(all.len() as u64) as usize]
}

/// Sets the cut, and usually gives the first frame a matching length: otherwise few inputs would pass the length check.
fn finish_stream(data: &mut Vec<u8>, chance: &mut Chance) {
    data.resize(data.len().max(1), 0);
    data[0] = chance.below(256) as u8;
    if chance.below(4) > 0 && data.len() > 1 + PREFIX {
        let length = (data.len() - 1 - PREFIX) as u32;
        data[1..1 + PREFIX].copy_from_slice(&length.to_le_bytes());
    }
}

fn change(data: &mut Vec<u8>, seeds: &Seeds, chance: &mut Chance) {
    let (from, to) = range(data.len(), chance);
    match chance.below(10) {
        0 if from < to => data[from] ^= 1 << chance.below(8),
        1 if from < to => data[from] = chance.below(256) as u8,
        2 => data.truncate(from),
        3 => drop(data.drain(from..to)),
        4 => repeat(data, from, to, chance),
        5 => splice(data, from, &seeds.inputs, chance),
        6 => overwrite(data, from, pick::<Vec<u8>>(&seeds.tokens, chance)),
        7 => data[from..to].reverse(),
        _ => drop(data.splice(from..from, pick(&seeds.tokens, chance).iter().copied())),
    }
    data.truncate(MOST);
}

/// A range of 0 to 32 bytes; not empty unless it is at the end or there are none.
fn range(length: usize, chance: &mut Chance) -> (usize, usize) {
    let from = chance.below(length as u64 + 1) as usize;
    let to = (from + 1 + chance.below(32) as usize).min(length);
    (from, to.max(from))
}

/// Repeats a piece, sometimes very often: parsers break at depth and length.
fn repeat(data: &mut Vec<u8>, from: usize, to: usize, chance: &mut Chance) {
    let max = if chance.below(50) == 0 { 4096 } else { 8 };
    let piece = data[from..to].repeat(1 + chance.below(max) as usize);
    data.splice(from..from, piece);
}

/// Replaces the rest from here on by a part of another input.
fn splice(data: &mut Vec<u8>, from: usize, inputs: &[Vec<u8>], chance: &mut Chance) {
    let other = pick(inputs, chance);
    data.truncate(from);
    data.extend_from_slice(&other[chance.below(other.len() as u64 + 1) as usize..]);
}

fn overwrite(data: &mut [u8], from: usize, token: &[u8]) {
    data[from..]
        .iter_mut()
        .zip(token)
        .for_each(|(byte, new)| *byte = *new);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_chance_makes_the_same_cases() {
        let cases = |seed| {
            let mut chance = Chance(seed);
            (0..200)
                .map(|_| case("names", &mut chance))
                .collect::<Vec<_>>()
        };
        assert_eq!(cases(7), cases(7));
        assert_ne!(cases(7), cases(8));
    }
}
