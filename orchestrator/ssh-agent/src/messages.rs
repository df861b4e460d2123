//! Numbers and names of the agent's protocol (PROTOCOL.agent, draft-miller-ssh-agent).

pub(crate) const FAILURE: u8 = 5;
pub(crate) const SUCCESS: u8 = 6;
pub(crate) const IDENTITIES_WANTED: u8 = 11;
pub(crate) const IDENTITIES: u8 = 12;
pub(crate) const SIGN: u8 = 13;
pub(crate) const SIGNATURE: u8 = 14;
pub(crate) const EXTENSION: u8 = 27;
pub(crate) const BIND: &[u8] = b"session-bind@openssh.com";
/// The flags by which a program chooses the digest of a signature by RSA. Without one it is SHA-1.
pub(crate) const RSA_SHA256: u32 = 2;
pub(crate) const RSA_SHA512: u32 = 4;
