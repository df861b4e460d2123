//! Errors that occur when a layer cannot be applied.

use broker_protocol::Layer;
use std::io;
use thiserror::Error;

/// A layer could not be applied. The session does not open, or the cell does not start: fail closed.
#[derive(Debug, Error)]
#[error("the layer {} cannot be put up: {step}: {source}", .layer.name())]
pub struct LayerError {
    /// Which layer.
    pub layer: Layer,
    /// The operation that failed, with its object.
    pub step: String,
    /// The kernel's answer.
    pub source: io::Error,
    /// The privilege that this machine denies, if that is the cause.
    pub refused: Option<Privilege>,
}

/// A right that a user has in its own namespace, and that a machine may deny: by kernel settings, a
/// security module (AppArmor on Ubuntu allows `clone` and denies what follows), or the filter of a
/// container. If one is denied, a session uses no namespaces at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// To create a user namespace and the others with it.
    Namespaces,
    /// To map one's own user and group (`uid_map`).
    IdMap,
    /// To set the host name.
    HostName,
    /// To bring up the loopback interface.
    Loopback,
    /// To mount, and to move and unmount what was mounted.
    Mount,
    /// To close further user namespaces in `/proc/sys`.
    UserLimit,
    /// To empty the bounding set of capabilities.
    Bounding,
    /// To open what the session's own root shows: AppArmor may no longer have a path for it.
    OwnRoot,
}

impl Privilege {
    /// All of them.
    pub const ALL: [Privilege; 8] = [
        Privilege::Namespaces,
        Privilege::IdMap,
        Privilege::HostName,
        Privilege::Loopback,
        Privilege::Mount,
        Privilege::UserLimit,
        Privilege::Bounding,
        Privilege::OwnRoot,
    ];

    /// Whether this error of the step means that the machine denies the privilege, and not that something is wrong.
    pub fn is_refused_by(self, error: &io::Error) -> bool {
        let Some(errno) = error.raw_os_error() else {
            return false;
        };
        match self {
            // `ENOSPC`: `user.max_user_namespaces` is 0; `EINVAL`: the kernel was built without it.
            Privilege::Namespaces => {
                let limits = [libc::ENOSPC, libc::EUSERS, libc::ENOSYS, libc::EINVAL];
                is_denial(errno) || limits.contains(&errno)
            }
            // `EROFS`: a container's `/proc/sys` is read-only.
            Privilege::IdMap | Privilege::UserLimit => is_denial(errno) || errno == libc::EROFS,
            Privilege::HostName
            | Privilege::Loopback
            | Privilege::Mount
            | Privilege::Bounding
            | Privilege::OwnRoot => is_denial(errno),
        }
    }
}

fn is_denial(errno: i32) -> bool {
    errno == libc::EPERM || errno == libc::EACCES
}

/// Adds the layer and the step to a system error.
pub trait At<T> {
    /// Turns it into a [`LayerError`].
    fn at(self, layer: Layer, step: impl FnOnce() -> String) -> Result<T, LayerError>;

    /// The same, for a step that needs a privilege in the session's namespaces.
    fn at_privileged(
        self,
        layer: Layer,
        privilege: Privilege,
        step: impl FnOnce() -> String,
    ) -> Result<T, LayerError>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, layer: Layer, step: impl FnOnce() -> String) -> Result<T, LayerError> {
        self.map_err(|error| LayerError {
            layer,
            step: step(),
            source: error.into(),
            refused: None,
        })
    }

    fn at_privileged(
        self,
        layer: Layer,
        privilege: Privilege,
        step: impl FnOnce() -> String,
    ) -> Result<T, LayerError> {
        self.at(layer, step).map_err(|error| {
            let refused = privilege.is_refused_by(&error.source).then_some(privilege);
            LayerError { refused, ..error }
        })
    }
}
