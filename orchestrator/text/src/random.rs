//! Random bytes, for names and keys that nobody guesses.

use rustix::rand::{GetRandomFlags, getrandom};
use std::io;

/// So many random bytes.
///
/// # Errors
/// The kernel's.
pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

/// The same as text, in hex: two characters a byte.
///
/// # Errors
/// The kernel's.
pub fn hex<const N: usize>() -> io::Result<String> {
    let bytes = bytes::<N>()?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_the_same() {
        let (one, other) = (hex::<16>().unwrap(), hex::<16>().unwrap());
        assert_eq!((one.len(), other.len()), (32, 32));
        assert_ne!(one, other);
    }
}
