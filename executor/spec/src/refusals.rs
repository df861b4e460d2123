//! Refusals by a cell's first process during a tool call, for its result: the object, the kind of access, the rule.
//! Noted where a system call is refused; what was found of new names when the program had ended comes before.

use crate::known_directories::{IDENTITY_LEN, Identity};
use broker_protocol::{AttemptKind, limit};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Maximum number of different refusals noted per call; of further ones only the number.
pub(crate) const REFUSALS_MAX: usize = 16;
/// Maximum bytes of a target that are noted.
pub const TARGET_MAX: usize = 400;
/// Maximum number of misplaced objects that are taken after one call: as many as a finding can name.
pub const MISPLACED_MAX: usize = limit::FOUND_OBJECTS;
/// Maximum number of names that git operations have passed over and that are named: of those that differ, and of those that do not.
pub const PASSED_OVER_NAMED_MAX: usize = limit::FOUND_OBJECTS;
/// Maximum number of refusals that are sent: with what is misplaced or passed over, and one each for what is left, what could not be
/// examined, and what was not noted.
pub const MESSAGES_MAX: usize = REFUSALS_MAX + MISPLACED_MAX + 2 * PASSED_OVER_NAMED_MAX + 3;
/// Bytes of an encoded refusal before its object and its target.
const HEAD: usize = 7;
/// Bytes of the longest message of a refusal.
pub const MESSAGE_MAX: usize = 1 + HEAD + IDENTITY_LEN + MISPLACED_TARGET_MAX;
/// Bytes of the path of what is misplaced.
const MISPLACED_TARGET_MAX: usize = libc::PATH_MAX as usize;

/// Something that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kind of access that was attempted.
    pub kind: AttemptKind,
    /// The rule that refused it.
    pub cause: Cause,
    /// The misplaced object; `None` with every other cause.
    pub object: Option<Identity>,
    /// A real path, an address with its port, or the name of a system call; its first `TARGET_MAX` bytes. Of what is misplaced, the
    /// whole path.
    pub target: Vec<u8>,
    pub count: u32,
}

/// The rules that can refuse something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// The file or name is protected, by its name, by its place, or as an object.
    Protected,
    /// The object lies outside what the cell may see or change.
    Outside,
    /// The host's network, or a program of it that listens.
    Network,
    /// The memory or the descriptors of a process.
    Process,
    /// The call made it where the rules let none be made.
    Misplaced,
    /// As [`Self::Misplaced`], but there are too many to be taken away.
    LeftThere,
    /// The call made it, and it could not be examined afterwards.
    Unknown,
    /// Nothing was refused: there were too many names to examine them all.
    Unchecked,
    /// The file has a name elsewhere, and could not be copied for the change.
    Shared,
    /// As [`Self::Shared`], but it, or the sum of such changes by the call, is too large to copy.
    SharedTooLarge,
    /// A repository would come about in a directory that no call of the session has made.
    Repository,
    /// Git was told that it has written the file, which is as it was, or missing.
    NotWritten,
    /// Git was told that it has removed the file, which is there.
    NotRemoved,
    /// Git was told what is so: the file says what git has written, or is missing where git has removed it.
    AsWritten,
}

impl Cause {
    const ALL: [Cause; 14] = [
        Cause::Protected,
        Cause::Outside,
        Cause::Network,
        Cause::Process,
        Cause::Misplaced,
        Cause::LeftThere,
        Cause::Unknown,
        Cause::Unchecked,
        Cause::Shared,
        Cause::SharedTooLarge,
        Cause::Repository,
        Cause::NotWritten,
        Cause::NotRemoved,
        Cause::AsWritten,
    ];
}

/// The refusals of one call.
#[derive(Debug, Default)]
pub struct Refusals {
    list: Vec<Refusal>,
    more: u32,
}

impl Refusals {
    /// Notes a refusal. A repeated one is counted.
    pub fn note(&mut self, kind: AttemptKind, cause: Cause, target: &[u8]) {
        let target = &target[..target.len().min(TARGET_MAX)];
        let same =
            |one: &&mut Refusal| (one.kind, one.cause, &*one.target) == (kind, cause, target);
        if let Some(known) = self.list.iter_mut().find(same) {
            known.count = known.count.saturating_add(1);
        } else if self.list.len() < REFUSALS_MAX {
            self.list.push(Refusal {
                kind,
                cause,
                object: None,
                target: target.to_vec(),
                count: 1,
            });
        } else {
            self.more = self.more.saturating_add(1);
        }
    }

    /// Puts `first` before everything noted so far: it has its own bound.
    pub fn lead_with(&mut self, first: Vec<Refusal>) {
        self.list.splice(0..0, first);
    }

    /// The refusals, in order of their first occurrence.
    pub fn list(&self) -> &[Refusal] {
        &self.list
    }

    /// How many more refusals there were.
    pub fn more(&self) -> u32 {
        self.more
    }
}

impl Refusal {
    /// Identity and path of a misplaced object.
    pub fn misplaced(&self) -> Option<(&Identity, &Path)> {
        self.object.as_ref().map(|object| (object, self.path()))
    }

    /// Encodes it for the broker.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let kind = AttemptKind::ALL
            .iter()
            .position(|kind| *kind == self.kind)
            .unwrap_or_default();
        let mut bytes = vec![kind as u8, self.cause as u8];
        bytes.extend_from_slice(&self.count.to_le_bytes());
        bytes.push(self.object.is_some().into());
        bytes.extend_from_slice(self.object.as_ref().map_or(&[][..], |object| object));
        bytes.extend_from_slice(&self.target);
        bytes
    }

    /// Decodes a refusal; `None` if it is invalid.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
        let [kind, cause, count @ .., has_object] = *head;
        let cause = *Cause::ALL.get(usize::from(cause))?;
        // Misplaced objects have an identity, and no other refusal has one.
        let (object, target, max) = match (cause == Cause::Misplaced, has_object) {
            (true, 1) => {
                let (object, path) = rest.split_first_chunk::<IDENTITY_LEN>()?;
                (Some(*object), path, MISPLACED_TARGET_MAX)
            }
            (false, 0) => (None, rest, TARGET_MAX),
            (true | false, _) => return None,
        };
        Some(Self {
            kind: *AttemptKind::ALL.get(usize::from(kind))?,
            cause,
            object,
            target: (target.len() <= max).then(|| target.to_vec())?,
            count: u32::from_le_bytes(count),
        })
    }

    /// Its target as a path.
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_read_back_and_nothing_else_does() {
        for kind in AttemptKind::ALL {
            for cause in Cause::ALL {
                let refusal = Refusal {
                    kind,
                    cause,
                    object: (cause == Cause::Misplaced).then_some([7; IDENTITY_LEN]),
                    target: b"/a\xff".to_vec(),
                    count: 7,
                };
                assert_eq!(Refusal::decode(&refusal.encode()), Some(refusal));
            }
        }
        let longest = Refusal {
            kind: AttemptKind::Read,
            cause: Cause::Misplaced,
            object: Some([9; IDENTITY_LEN]),
            target: vec![b'x'; MISPLACED_TARGET_MAX],
            count: u32::MAX,
        };
        let mut bytes = longest.encode();
        assert_eq!(
            (bytes.len() + 1, Refusal::decode(&bytes)),
            (MESSAGE_MAX, Some(longest))
        );
        bytes.push(b'x');
        for other in [
            &bytes[..],
            &[],
            &[0; HEAD - 1],
            &[200, 0, 0, 0, 0, 0, 0],
            &[0, 200, 0, 0, 0, 0, 0],
            // An object that nothing misplaced, and something misplaced without its object.
            &[
                &[0, Cause::Outside as u8, 0, 0, 0, 0, 1][..],
                &[0; IDENTITY_LEN],
            ]
            .concat(),
            &[0, Cause::Misplaced as u8, 0, 0, 0, 0, 0],
            &[0, Cause::Misplaced as u8, 0, 0, 0, 0, 1],
        ] {
            assert_eq!(Refusal::decode(other), None);
        }
    }

    #[test]
    fn the_same_is_counted_and_only_so_many_are_noted() {
        let mut refusals = Refusals::default();
        for number in 0..REFUSALS_MAX as u8 + 3 {
            refusals.note(AttemptKind::Read, Cause::Outside, &[number]);
        }
        refusals.note(AttemptKind::Read, Cause::Outside, &[0]);
        assert_eq!((refusals.list().len(), refusals.more()), (REFUSALS_MAX, 3));
        assert_eq!(refusals.list()[0].count, 2);
        refusals.note(
            AttemptKind::Write,
            Cause::Outside,
            &vec![b'x'; TARGET_MAX + 9],
        );
        assert_eq!(refusals.more(), 4);
    }
}
