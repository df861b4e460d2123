//! The targets of the attack, as data: printed by the outside run, an argument of the inside run.

use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

/// A variable of the environment that whoever starts the executor and the outside run sets, and that no command may have.
pub(crate) const CANARY: &str = "LAZARET_CANARY_SECRET";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Targets {
    /// A directory outside both zones.
    pub outside: PathBuf,
    /// A directory that the attacker may write to. Each run fills in its own.
    #[serde(skip)]
    pub own: PathBuf,
    /// Stands in the file outside, in the bystander's memory and in its environment.
    pub secret: String,
    /// Process number of the bystander.
    pub bystander: i32,
    /// Where the secret stands in the bystander's memory.
    pub address: u64,
    /// The bystander's ports on 127.0.0.1; 0 where it has none.
    pub tcp: u16,
    pub udp: u16,
}

/// Facts about the session whose cell was attacked.
#[derive(Debug, Deserialize)]
pub(crate) struct AttackedSession {
    pub tier: String,
    /// Names of the layers in force.
    pub layers: Vec<String>,
}

impl Targets {
    /// Whether what was read is the secret.
    pub(crate) fn expect_secret(&self, got: &[u8]) -> io::Result<()> {
        if got.starts_with(self.secret.as_bytes()) {
            Ok(())
        } else {
            Err(nothing_got())
        }
    }
}

/// The error of an attack that the kernel let pass and that found something else than it was after.
pub(crate) fn nothing_got() -> io::Error {
    io::Error::from_raw_os_error(libc::ENODATA)
}
