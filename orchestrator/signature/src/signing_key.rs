//! A private key, as the text of a file. No other program reads it, so it has no form but ours.

use crate::public_key::TrustedKey;
use crate::ssh_signature;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_compact::{KeyPair, Seed};
use std::fmt;
use thiserror::Error;

/// Random bytes that make a key.
pub const SEED_BYTES: usize = Seed::BYTES;
const BEGIN: &str = "lazaret-audit-key 1 ";

/// The key by which a user's audit is signed.
pub struct AuditKey(KeyPair);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("it is not a key of the audit as `lazaret audit export --sign` makes one")]
pub struct AuditKeyError;

impl AuditKey {
    /// The key of random bytes.
    ///
    /// # Errors
    /// They are not random: all are zero.
    pub fn of_seed(seed: [u8; SEED_BYTES]) -> Result<Self, AuditKeyError> {
        let pair = KeyPair::try_from_seed(Seed::new(seed));
        pair.map(Self).map_err(|_| AuditKeyError)
    }

    /// The key of a file.
    ///
    /// # Errors
    /// It is not what [`AuditKey::text`] returns.
    pub fn of_text(text: &str) -> Result<Self, AuditKeyError> {
        let seed = text
            .strip_prefix(BEGIN)
            .and_then(|it| it.strip_suffix('\n'));
        let seed = seed.and_then(|it| STANDARD.decode(it).ok());
        let seed = seed.and_then(|it| it.try_into().ok());
        Self::of_seed(seed.ok_or(AuditKeyError)?)
    }

    /// The text of its file.
    pub fn text(&self) -> String {
        let seed = STANDARD.encode(*self.0.sk.seed());
        format!("{BEGIN}{seed}\n")
    }

    pub fn public(&self) -> TrustedKey {
        TrustedKey::new(*self.0.pk)
    }

    /// A signature of `message`, as `ssh-keygen -Y sign -n NAMESPACE` writes it.
    pub fn sign(&self, namespace: &str, message: &[u8]) -> String {
        let signed = ssh_signature::signed(namespace, ssh_signature::SHA512, message);
        let signature = self.0.sk.sign(signed, None);
        ssh_signature::armored(&self.public(), namespace, &signature)
    }
}

impl fmt::Debug for AuditKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "AuditKey({})", self.public())
    }
}
