//! Errors that occur when a layer cannot be applied, or a process of the session cannot be prepared.

use broker_protocol::Layer;
use std::fmt::{self, Display, Formatter};
use std::io;
use thiserror::Error;

/// The layer or step that an error belongs to when a session or a cell is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupPart {
    /// The layer that could not be applied.
    Layer(Layer),
    /// The processes of the session themselves: their names, sockets, signals and forks. No layer is at fault.
    Processes,
}

impl From<Layer> for SetupPart {
    fn from(layer: Layer) -> Self {
        SetupPart::Layer(layer)
    }
}

impl Display for SetupPart {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            SetupPart::Layer(layer) => write!(f, "the layer {} cannot be put up", layer.name()),
            SetupPart::Processes => write!(f, "the session's processes cannot be prepared"),
        }
    }
}

impl SetupPart {
    /// Stands for [`SetupPart::Processes`]; layers have smaller numbers.
    const PROCESSES: u8 = u8::MAX;

    /// The number of it in a message.
    pub(crate) fn number(self) -> u8 {
        match self {
            SetupPart::Layer(layer) => layer as u8,
            SetupPart::Processes => Self::PROCESSES,
        }
    }

    /// The part with this number.
    pub(crate) fn of_number(number: u8) -> Option<Self> {
        match number {
            Self::PROCESSES => Some(SetupPart::Processes),
            number => Layer::ALL
                .get(usize::from(number))
                .copied()
                .map(SetupPart::Layer),
        }
    }
}

/// A step of setting up a session or a cell failed. The session does not open, or the cell does not start: fail closed.
#[derive(Debug, Error)]
#[error("{part}: {step}: {source}")]
pub struct SetupError {
    /// The part that failed.
    pub part: SetupPart,
    /// The operation that failed, with its object.
    pub step: String,
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
    /// To put the session's own root in the place of the machine's (`pivot_root`).
    PivotRoot,
}

impl Privilege {
    pub const ALL: [Privilege; 9] = [
        Privilege::Namespaces,
        Privilege::IdMap,
        Privilege::HostName,
        Privilege::Loopback,
        Privilege::Mount,
        Privilege::UserLimit,
        Privilege::Bounding,
        Privilege::OwnRoot,
        Privilege::PivotRoot,
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
            // `EINVAL`: the machine's root is an initramfs, as on some live systems, which nothing takes the place of.
            Privilege::PivotRoot => is_denial(errno) || errno == libc::EINVAL,
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

/// Adds the part and the step to a system error.
pub trait At<T> {
    /// Turns it into a [`SetupError`].
    fn at(self, part: impl Into<SetupPart>, step: impl FnOnce() -> String)
    -> Result<T, SetupError>;

    /// Runs a step that needs a privilege in the session's namespaces.
    fn at_privileged(
        self,
        layer: Layer,
        privilege: Privilege,
        step: impl FnOnce() -> String,
    ) -> Result<T, SetupError>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(
        self,
        part: impl Into<SetupPart>,
        step: impl FnOnce() -> String,
    ) -> Result<T, SetupError> {
        self.map_err(|error| SetupError {
            part: part.into(),
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
    ) -> Result<T, SetupError> {
        self.at(layer, step).map_err(|error| {
            let refused = privilege.is_refused_by(&error.source).then_some(privilege);
            SetupError { refused, ..error }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_read_back_and_no_other_number_does() {
        let all = Layer::ALL.into_iter().map(SetupPart::Layer);
        for part in all.chain([SetupPart::Processes]) {
            assert_eq!(SetupPart::of_number(part.number()), Some(part));
        }
        assert_eq!(SetupPart::of_number(Layer::ALL.len() as u8), None);
    }
}
