//! Pseudo-random numbers that are the same in every run, so that a failure can be reproduced.

/// A stream of numbers (xorshift64). The seed must not be 0.
#[derive(Clone, Debug)]
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
