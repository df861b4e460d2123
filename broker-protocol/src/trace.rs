//! System calls of a traced command that have failed, so that the executor can say which of them the cell has closed.
//!
//! They come from a program in the cell by way of the client: a stranger's words. Nothing is decided on one, and the answer goes to
//! the user alone.

use crate::denial::AttemptKind;
use crate::limit::{self, TooLarge, at_most};
use serde::{Deserialize, Serialize};

/// The object of a system call that has failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Traced {
    /// A path that it was given.
    Path {
        /// The attempt: to read, to change, to run it, or to change its metadata.
        kind: AttemptKind,
        /// Absolute; at most [`limit::DENIAL_TEXT`] bytes.
        path: String,
    },
    /// The call itself, whatever it was given.
    Call(TracedCall),
}

/// A system call by its number, as a filter sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedCall {
    /// For people; at most [`limit::TOOL_NAME`] bytes.
    pub name: String,
    /// Its number on this machine.
    pub number: u32,
    /// Its arguments, as the registers have them.
    pub arguments: [u64; 6],
}

impl Traced {
    /// Checks every limit that the type does not hold by itself.
    ///
    /// # Errors
    /// There are too many, or a text is too long.
    pub fn check(all: &[Traced]) -> Result<(), TooLarge> {
        at_most("traced", all.len(), limit::TRACED, "calls")?;
        all.iter().try_for_each(|one| match one {
            Traced::Path { path, .. } => {
                at_most("traced.path", path.len(), limit::DENIAL_TEXT, "bytes")
            }
            Traced::Call(call) => {
                at_most("traced.name", call.name.len(), limit::TOOL_NAME, "bytes")
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_over_each_limit_is_refused() {
        let path = |length| Traced::Path {
            kind: AttemptKind::Read,
            path: "x".repeat(length),
        };
        let call = |length| {
            Traced::Call(TracedCall {
                name: "x".repeat(length),
                number: 1,
                arguments: [0; 6],
            })
        };
        assert_eq!(
            Traced::check(&vec![path(limit::DENIAL_TEXT); limit::TRACED]),
            Ok(())
        );
        assert_eq!(Traced::check(&[call(limit::TOOL_NAME)]), Ok(()));
        for over in [
            vec![path(1); limit::TRACED + 1],
            vec![path(limit::DENIAL_TEXT + 1)],
            vec![call(limit::TOOL_NAME + 1)],
        ] {
            assert!(Traced::check(&over).is_err());
        }
    }
}
