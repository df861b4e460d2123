#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod packet;
mod public_key;
mod signing_key;
mod ssh_signature;

pub use public_key::{KEYS_FILE_MAX, KEYS_MAX, PublicKeyError, TrustedKey, trusted_keys};
pub use signing_key::{AuditKey, AuditKeyError, SEED_BYTES};
pub use ssh_signature::{SIGNATURE_MAX, SignatureError, verify};

/// The namespace of signatures of policy bundles.
pub const POLICY: &str = "lazaret-policy";
/// The namespace of signatures of the audit's heads.
pub const AUDIT: &str = "lazaret-audit";
