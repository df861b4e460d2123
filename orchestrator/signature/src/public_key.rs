//! Public keys, as lines of `.pub` files.

use crate::packet::{self, PacketReader};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use ed25519_compact::PublicKey;
use sha2::{Digest, Sha256};
use std::fmt;
use thiserror::Error;

pub const KEYS_MAX: usize = 64;
/// Maximum bytes of a file of keys, with its comments.
pub const KEYS_FILE_MAX: usize = 64 << 10;
pub(crate) const ALGORITHM: &str = "ssh-ed25519";

/// A public key that somebody trusts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TrustedKey([u8; PublicKey::BYTES]);

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PublicKeyError {
    /// The line is no key that is supported.
    #[error("line {line}: not a key of the form `ssh-ed25519 AAAA…`")]
    Line { line: usize },
    #[error("it has no key")]
    None,
    #[error("it has more than {KEYS_MAX} keys")]
    TooMany,
}

/// The keys of a file, one a line, as `ssh-keygen` writes them; lines that begin with `#` are comments.
///
/// # Errors
/// [`PublicKeyError`]: a line that is not understood may be the only one that was meant.
pub fn trusted_keys(text: &str) -> Result<Vec<TrustedKey>, PublicKeyError> {
    let mut keys = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if keys.len() == KEYS_MAX {
            return Err(PublicKeyError::TooMany);
        }
        keys.push(TrustedKey::of_line(line).ok_or(PublicKeyError::Line { line: number })?);
    }
    if keys.is_empty() {
        return Err(PublicKeyError::None);
    }
    Ok(keys)
}

impl TrustedKey {
    pub(crate) fn new(bytes: [u8; PublicKey::BYTES]) -> Self {
        Self(bytes)
    }

    /// The key of a line; a comment may follow it.
    fn of_line(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (algorithm, blob) = (words.next()?, words.next()?);
        if algorithm != ALGORITHM {
            return None;
        }
        Self::of_blob(&STANDARD.decode(blob).ok()?)
    }

    pub(crate) fn of_blob(blob: &[u8]) -> Option<Self> {
        let mut reader = PacketReader(blob);
        if reader.string()? != ALGORITHM.as_bytes() {
            return None;
        }
        let key = reader.string()?.try_into().ok()?;
        reader.end(Self(key))
    }

    pub(crate) fn blob(&self) -> Vec<u8> {
        let mut blob = Vec::new();
        packet::put(&mut blob, ALGORITHM.as_bytes());
        packet::put(&mut blob, &self.0);
        blob
    }

    pub(crate) fn verifier(&self) -> PublicKey {
        PublicKey::new(self.0)
    }

    /// As a line of a `.pub` file, without a comment.
    pub fn line(&self) -> String {
        format!("{ALGORITHM} {}", STANDARD.encode(self.blob()))
    }
}

/// The fingerprint, as `ssh-keygen -l` prints it.
impl fmt::Display for TrustedKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = STANDARD_NO_PAD.encode(Sha256::digest(self.blob()));
        write!(formatter, "SHA256:{digest}")
    }
}

impl fmt::Debug for TrustedKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICltphTHjkIA4MkOdo+wwOd5gfw9Awh8n+sKOVqtlg5v";

    #[test]
    fn a_line_that_is_no_key_is_an_error() {
        assert_eq!(trusted_keys(KEY).unwrap()[0].line(), KEY);
        assert_eq!(trusted_keys("# none\n"), Err(PublicKeyError::None));
        for wrong in [
            KEY.replace("ssh-ed25519", "ssh-rsa"),
            KEY.replace("AAAA", "AAAB"),
            KEY[..KEY.len() - 4].to_owned(),
            "ssh-ed25519".to_owned(),
        ] {
            let file = format!("{KEY}\n{wrong}\n");
            assert_eq!(
                trusted_keys(&file),
                Err(PublicKeyError::Line { line: 2 }),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_file_has_a_limited_number_of_keys() {
        let file = |count| format!("{KEY}\n").repeat(count);
        assert_eq!(trusted_keys(&file(KEYS_MAX)).unwrap().len(), KEYS_MAX);
        assert_eq!(
            trusted_keys(&file(KEYS_MAX + 1)),
            Err(PublicKeyError::TooMany)
        );
    }

    #[test]
    fn fingerprints_are_those_of_ssh_keygen() {
        let key = trusted_keys(KEY).unwrap()[0];
        assert_eq!(
            key.to_string(),
            "SHA256:h0Gy8qKTTO61x+h/oUQxG/lFLxWqnX7J4iKmGUCRXro"
        );
    }
}
