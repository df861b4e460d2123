//! Files of secrets that commands can read, in place of being hidden.

use crate::protected_objects::ObjectId;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

/// A file of secrets that commands can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadableSecret {
    /// Absolute, without links.
    pub path: PathBuf,
    /// The file that lay there when the session opened.
    pub id: ObjectId,
    /// Its birth time, if the file system reports it.
    pub born: Option<SystemTime>,
    pub seen: SecretView,
    /// Whether no file of policy keeps it from being revealed.
    pub may_be_revealed: bool,
}

/// The view that commands have of a file of secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretView {
    Masked(Arc<[u8]>),
    Real,
}
