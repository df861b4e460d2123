//! SHA-1 (RFC 3174), which a format of Java has as its checksum. Nothing is secure by it.

const BLOCK: usize = 64;

pub(crate) struct Sha1 {
    state: [u32; 5],
    /// The bytes of the block that has begun.
    block: Vec<u8>,
    length: u64,
}

impl Default for Sha1 {
    fn default() -> Self {
        Self {
            state: [
                0x6745_2301,
                0xefcd_ab89,
                0x98ba_dcfe,
                0x1032_5476,
                0xc3d2_e1f0,
            ],
            block: Vec::with_capacity(BLOCK),
            length: 0,
        }
    }
}

impl Sha1 {
    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        self.length += bytes.len() as u64;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - self.block.len()));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == BLOCK {
                self.compress();
            }
        }
    }

    pub(crate) fn finish(mut self) -> [u8; 20] {
        let bits = self.length * 8;
        self.update(&[0x80]);
        while self.block.len() != BLOCK - 8 {
            self.update(&[0]);
        }
        self.update(&bits.to_be_bytes());
        let mut digest = [0; 20];
        for (to, word) in digest.chunks_exact_mut(4).zip(self.state) {
            to.copy_from_slice(&word.to_be_bytes());
        }
        digest
    }

    fn compress(&mut self) {
        let mut words = [0_u32; 80];
        for (word, bytes) in words.iter_mut().zip(self.block.chunks_exact(4)) {
            *word = bytes
                .iter()
                .fold(0, |word, byte| word << 8 | u32::from(*byte));
        }
        for t in 16..words.len() {
            let mixed = words[t - 3] ^ words[t - 8] ^ words[t - 14] ^ words[t - 16];
            words[t] = mixed.rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = self.state;
        for (t, word) in words.into_iter().enumerate() {
            let (mixed, constant) = match t / 20 {
                0 => (b & c | !b & d, 0x5a82_7999),
                1 => (b ^ c ^ d, 0x6ed9_eba1),
                2 => (b & c | b & d | c & d, 0x8f1b_bcdc),
                3.. => (b ^ c ^ d, 0xca62_c1d6),
            };
            let parts = [mixed, e, word, constant];
            let next = parts.into_iter().fold(a.rotate_left(5), u32::wrapping_add);
            (a, b, c, d, e) = (next, a, b.rotate_left(30), c, d);
        }
        for (word, more) in self.state.iter_mut().zip([a, b, c, d, e]) {
            *word = word.wrapping_add(more);
        }
        self.block.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of RFC 3174, section 7.3, and a message that ends where the length has no room any more.
    #[test]
    fn digests_are_those_of_the_rfc() {
        let long = "01234567".repeat(8);
        for (text, times, want) in [
            ("abc", 1, "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                1,
                "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
            ),
            ("a", 1_000_000, "34aa973cd4c4daa4f61eeb2bdbad27316534016f"),
            (&long, 10, "dea356a2cddd90c7a7ecedc5ebb563934f460452"),
            ("", 1, "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
        ] {
            let mut digest = Sha1::default();
            for _ in 0..times {
                digest.update(text.as_bytes());
            }
            let hex: String = digest
                .finish()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            assert_eq!(hex, want, "{text}");
        }
    }
}
