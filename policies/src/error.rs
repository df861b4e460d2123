//! What can be wrong with policy files, with their place in the file where there is one.

use crate::host::HostPathError;
use crate::pattern::PatternError;
use crate::source::FileError;
use broker_protocol::ErrorKind;
use thiserror::Error;

/// Why there is no policy. None of these leaves a session with a weaker one: no session opens.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// A policy file exists and cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file is too large to be a policy.
    #[error("{file}: {bytes} bytes; a policy file has at most {most}", most = crate::source::FILE_MAX)]
    TooLarge {
        /// Name of the file.
        file: String,
        /// Its size.
        bytes: usize,
    },
    /// A file's text is not a policy: its syntax, a key that does not exist, a value that cannot be.
    #[error("{file}:{line}:{column}: {message}")]
    Text {
        /// Name of the file.
        file: String,
        /// Line of the fault, from 1.
        line: usize,
        /// Column of the fault in characters, from 1.
        column: usize,
        /// What is wrong there.
        message: String,
    },
    /// A profile's name is taken: a later file would change what an earlier one says.
    #[error(
        "{file}: profile `{profile}` is already defined by {earlier}; define one of another name that extends it"
    )]
    Taken {
        /// Name of the later file.
        file: String,
        /// The profile.
        profile: String,
        /// Name of the earlier file.
        earlier: String,
    },
    /// The administrator has reserved profiles.
    #[error(
        "{file}: profile `{profile}` is not allowed: {by} has `lock = true`, so only it may define profiles"
    )]
    Locked {
        /// Name of the user's file.
        file: String,
        /// The profile in it.
        profile: String,
        /// Name of the administrator's file.
        by: String,
    },
    /// `lock` stands in a file that has nothing to lock.
    #[error("{file}: `lock` belongs in the administrator's file")]
    LockMisplaced {
        /// Name of the file.
        file: String,
    },
    /// No file defines the profile that was asked for.
    #[error("there is no profile `{profile}`; there are: {known}")]
    NoProfile {
        /// The profile.
        profile: String,
        /// The profiles that are defined.
        known: String,
    },
    /// A profile extends one that is not defined in its own file or an earlier one.
    #[error("profile `{profile}` extends `{base}`, which neither its file nor an earlier one defines")]
    NoBase {
        /// The profile.
        profile: String,
        /// What it extends.
        base: String,
    },
    /// Profiles extend each other in a circle, or too deeply.
    #[error("profile `{profile}` extends itself, or more than {most} levels", most = crate::resolve::LEVELS_MAX)]
    Levels {
        /// A profile of the circle.
        profile: String,
    },
    /// A profile that extends nothing leaves out a limit that every session has.
    #[error("profile `{profile}` has no limit `{limit}`")]
    NoLimit {
        /// The profile.
        profile: String,
        /// Key of the limit.
        limit: &'static str,
    },
    /// A profile's default time is longer than its longest.
    #[error("profile `{profile}`: `timeout_s` is {timeout_s}, more than `timeout_max_s`, which is {max_s}")]
    Timeout {
        /// The profile.
        profile: String,
        /// Its default, in seconds.
        timeout_s: u32,
        /// Its maximum, in seconds.
        max_s: u32,
    },
    /// A host path cannot be used on this machine.
    #[error("profile `{profile}`: path `{path}`: {why}")]
    Path {
        /// The profile asked for.
        profile: String,
        /// The path as written.
        path: String,
        /// What is wrong with it.
        #[source]
        why: HostPathError,
    },
    /// A session asks for a scope that cannot be held.
    #[error("the scope's path `{glob}` for `{tool}`: {why}")]
    Scope {
        /// The tool.
        tool: String,
        /// The glob as written.
        glob: String,
        /// What is wrong with it.
        why: String,
    },
    /// A protected name is not a pattern. Policy files are checked before; only other code can cause this.
    #[error("protected name `{pattern}`: {why}")]
    Name {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        #[source]
        why: PatternError,
    },
}

impl PolicyError {
    /// Whether the question was wrong, what the session asks for, or the policy that was to answer it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            PolicyError::NoProfile { .. } | PolicyError::Scope { .. } => ErrorKind::InvalidInput,
            _ => ErrorKind::DeniedPolicy,
        }
    }
}
