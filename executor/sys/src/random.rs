//! The one source of random bytes.

use std::io;

/// Bytes that nobody can guess.
///
/// # Errors
/// The kernel's; an interrupted call is repeated.
pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        let rest = &mut bytes[filled..];
        // SAFETY: the kernel writes at most the length of `rest`.
        match unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) } {
            length if length > 0 => filled += length as usize,
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn random_values_differ() {
        let all: std::collections::BTreeSet<[u8; 16]> =
            (0..64).map(|_| super::bytes().unwrap()).collect();
        assert_eq!(all.len(), 64);
        assert_eq!(super::bytes::<0>().unwrap(), []);
    }
}
