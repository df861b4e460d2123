//! Why there is no key where one was expected. No message has a key in it.

use orchestrator_text::redact::RedactorError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why no key can be had. That there is none is no error.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The file that the user names cannot be used.
    #[error("cannot take the key from {}: {error}", path.display())]
    File {
        /// The path as the user has named it.
        path: PathBuf,
        /// The reason why it cannot be used.
        error: KeyFileError,
    },
    /// The file for the key of logins cannot be made.
    #[error("cannot make {}: {error}", path.display())]
    LoginKey {
        /// The path of the file of that key.
        path: PathBuf,
        /// The error of the file system.
        error: io::Error,
    },
    /// No header could hold it.
    #[error("the key is empty, too long, or no text of one line")]
    NotALine,
    /// A list of headers for a collector is none.
    #[error("headers are name=value, divided by commas, values percent-encoded")]
    NotHeaders,
    /// The gateway has a bound.
    #[error("all keys and secret headers together are longer than 1 MiB")]
    TooMany,
    /// The keyring may have one, and does not give it.
    #[error("no key from the desktop keyring: {0}")]
    Keyring(#[from] KeyringError),
    /// In the words of the process that has looked for it.
    #[error("{0}")]
    Held(String),
    /// In its words too, of the keyring.
    #[error("{0}")]
    HeldKeyring(String),
    /// It could not be taken out of what is shown, so it is not used.
    #[error(transparent)]
    Redactor(#[from] RedactorError),
}

/// Why a file with a key is not taken.
#[derive(Debug, Error)]
pub enum KeyFileError {
    /// It cannot be opened or read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A directory, a FIFO, a device.
    #[error("it is no regular file")]
    NotRegular,
    /// Who owns it could change it.
    #[error("it belongs to another user")]
    ForeignOwner,
    /// Its mode lets others read or change it.
    #[error("others can read it (mode {0:o}); chmod 600")]
    Mode(u32),
}

/// Why the desktop keyring gives no key although somebody answers there.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeyringError {
    /// To open it, it would have to ask the user, and may do so long after we have gone.
    #[error(
        "it is locked; unlock it and try again, or switch it off with `keyring = false` in agent.toml"
    )]
    Locked,
    /// Whoever it was that did not answer.
    #[error("no answer within {seconds} s; `keyring = false` in agent.toml switches it off")]
    Timeout {
        /// The limit for all that is asked for one key.
        seconds: u64,
    },
    /// An error by its name on the bus.
    #[error("it refuses: {0}")]
    Refused(String),
    /// Which of them is meant, nobody can say.
    #[error("{0} items have these attributes; keep one")]
    Ambiguous(usize),
    /// More than a key or an answer may have.
    #[error("{what} has more than {max} bytes")]
    TooLarge {
        /// Which part of the answer.
        what: &'static str,
        /// How much it may have.
        max: usize,
    },
    /// What was sent is not what the interface says.
    #[error("its answer cannot be read: {0}")]
    Malformed(&'static str),
    /// Only ours and root's are believed.
    #[error("the session bus belongs to user {0}")]
    ForeignBus(u32),
    /// It does not take us for this user.
    #[error("the session bus does not let us in")]
    Unauthenticated,
    /// The bus cannot be reached, or was lost.
    #[error("the session bus: {0}")]
    Io(io::ErrorKind),
}

impl KeyringError {
    /// What an error on the bus means.
    pub(crate) fn of_name(name: &str) -> Self {
        match name {
            "org.freedesktop.Secret.Error.IsLocked" => Self::Locked,
            _ => Self::Refused(name.to_owned()),
        }
    }
}
