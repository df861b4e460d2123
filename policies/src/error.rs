//! Errors in policy files, with the line and column where there is one.

use crate::host::HostPathError;
use crate::open_fault::OpenFault;
use crate::source::{FILE_MAX, FileError};
use broker_protocol::{ErrorKind, Failed};
use policies_guard::NameError;
use policies_targets::network::NetworkError;
use thiserror::Error;

/// A table that a policy defines under a name, and that profiles name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Definition {
    #[error("credential `{0}`")]
    Credential(String),
    #[error("`[ssh.{0}]`")]
    Ssh(String),
}

/// Why a credential, or a key of the user's ssh agent, is not defined or not named by a profile.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DefinitionMisuse {
    #[error("it is already defined by {earlier}")]
    Taken { earlier: String },
    #[error("`allowed_credentials` of {by} leaves it out")]
    Forbidden { by: String },
    #[error("profile `{profile}` names it, and neither its file nor an earlier one defines {what}")]
    Undefined { profile: String, what: String },
}

/// Keys of a file that contradict a profile that hides nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HideFault {
    #[error("{file} protects {names} from being read")]
    Protected { file: String, names: String },
    #[error("{file} says in `secrets` what is hidden")]
    Secrets { file: String },
    #[error("{file} grants {path} with exceptions")]
    Except { file: String, path: String },
    #[error("{file} has `lock = true` and does not define the profile")]
    Locked { file: String },
}

/// Why there is no policy. No session opens then: one without a file's part would be a weaker one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PolicyError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{file}: {bytes} bytes; a policy file has at most {FILE_MAX}")]
    TooLarge { file: String, bytes: usize },
    /// Bad syntax, an unknown key, or a value that the key does not take. Line and column count from 1, in characters.
    #[error("{file}:{line}:{column}: {message}")]
    Text {
        file: String,
        line: usize,
        column: usize,
        message: String,
    },
    #[error(
        "{file}: profile `{profile}` is already defined by {earlier}; define a profile of another name that extends it"
    )]
    Taken {
        file: String,
        profile: String,
        earlier: String,
    },
    #[error(
        "{file}: profile `{profile}` is not allowed: {by} has `lock = true`, so only it may define profiles"
    )]
    Locked {
        file: String,
        profile: String,
        by: String,
    },
    #[error("{file}: `lock` belongs in the administrator's file")]
    LockMisplaced { file: String },
    #[error("there is no profile `{profile}`; there are: {known}")]
    NoProfile { profile: String, known: String },
    #[error(
        "{file}: the chosen profile `{profile}` is defined neither in this file nor in an earlier one"
    )]
    NoChoice { file: String, profile: String },
    #[error(
        "{file}:{line}:{column}: profile `{profile}` extends `{base}`, which is defined neither in its file nor in an earlier one"
    )]
    NoBase {
        file: String,
        line: usize,
        column: usize,
        profile: String,
        base: String,
    },
    #[error(
        "{file}:{line}:{column}: profile `{profile}` extends itself, or more than {max} levels"
    )]
    Levels {
        file: String,
        line: usize,
        column: usize,
        profile: String,
        max: usize,
    },
    #[error("profile `{profile}` has no limit `{limit}`")]
    NoLimit {
        profile: String,
        limit: &'static str,
    },
    #[error(
        "profile `{profile}`: `timeout_s` is {timeout_s}, more than `timeout_max_s`, which is {max_s}"
    )]
    Timeout {
        profile: String,
        timeout_s: String,
        max_s: u32,
    },
    #[error("profile `{profile}`: path `{path}`: {why}")]
    Path {
        profile: String,
        path: String,
        #[source]
        why: HostPathError,
    },
    #[error("profile `{profile}`: `open` cannot have `{name}`: {why}")]
    Open {
        profile: String,
        name: String,
        #[source]
        why: OpenFault,
    },
    #[error("profile `{profile}` hides nothing (`hide = false`), and {why}; use another profile")]
    Hide {
        profile: String,
        #[source]
        why: HideFault,
    },
    #[error("the scope's path `{glob}` for `{tool}`: {why}")]
    Scope {
        tool: String,
        glob: String,
        why: String,
    },
    #[error("profile `{profile}` names more than {max} entries of `[ssh]`; name fewer")]
    SshKeys { profile: String, max: usize },
    #[error("{file}:{line}:{column}: {definition}: {why}")]
    Definition {
        file: String,
        line: usize,
        column: usize,
        definition: Definition,
        #[source]
        why: DefinitionMisuse,
    },
    #[error(
        "{file}:{line}:{column}: {earlier} sets `proxy` in `[gateway]` already, and only one file may; remove it here"
    )]
    Proxy {
        file: String,
        line: usize,
        column: usize,
        earlier: String,
    },
    #[error("credential `{credential}`: path `{path}`: {why}")]
    CredentialPath {
        credential: String,
        path: String,
        #[source]
        why: HostPathError,
    },
    #[error("{file}: `{key}` in `[gateway]`: path `{path}`: {why}")]
    GatewayPath {
        file: String,
        key: &'static str,
        path: String,
        #[source]
        why: HostPathError,
    },
    #[error("profile `{profile}` has more than {max} credentials")]
    Credentials { profile: String, max: usize },
    #[error("the network of cells: {0}")]
    Network(#[from] NetworkError),
    #[error("the policy cannot be written down for its digest: {0}")]
    Digest(String),
    /// Policy files are checked before; only other code can cause this.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl PolicyError {
    /// Whether the client asked for something invalid, or the policy itself is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            PolicyError::NoProfile { .. }
            | PolicyError::Scope { .. }
            | PolicyError::Network(
                NetworkError::Host { .. }
                | NetworkError::Preset { .. }
                | NetworkError::Loopback { .. },
            ) => ErrorKind::InvalidInput,
            PolicyError::File(_)
            | PolicyError::TooLarge { .. }
            | PolicyError::Text { .. }
            | PolicyError::Taken { .. }
            | PolicyError::Locked { .. }
            | PolicyError::LockMisplaced { .. }
            | PolicyError::NoChoice { .. }
            | PolicyError::NoBase { .. }
            | PolicyError::Levels { .. }
            | PolicyError::NoLimit { .. }
            | PolicyError::Timeout { .. }
            | PolicyError::Path { .. }
            | PolicyError::Open { .. }
            | PolicyError::Hide { .. }
            | PolicyError::SshKeys { .. }
            | PolicyError::Definition { .. }
            | PolicyError::Credentials { .. }
            | PolicyError::Proxy { .. }
            | PolicyError::CredentialPath { .. }
            | PolicyError::GatewayPath { .. }
            | PolicyError::Digest(_)
            | PolicyError::Network(
                NetworkError::Bounded { .. }
                | NetworkError::NotPublic { .. }
                | NetworkError::TooMany
                | NetworkError::Port(_)
                | NetworkError::Rules(_),
            )
            | PolicyError::Name(_) => ErrorKind::DeniedPolicy,
        }
    }
}

impl From<PolicyError> for Failed {
    fn from(error: PolicyError) -> Self {
        Self {
            kind: error.kind(),
            message: error.to_string(),
        }
    }
}
