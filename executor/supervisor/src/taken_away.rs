//! What a cell's first process has taken away from where programs outside act on it, as a message to the broker.

use executor_layers::stale_temporaries::has_such_a_name;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Most that is named of one call.
pub const TAKEN_MAX: usize = 32;
/// Bytes of the longest message: a path of Linux, the name beside it, and what comes before them.
pub const TAKEN_LEN: usize = 2 + (libc::PATH_MAX + libc::NAME_MAX) as usize;

/// What something is that must not be where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Misplaced {
    /// Its name is protected, or it says where protected settings lie.
    Protected,
    /// It is a link where a program outside would follow it.
    Link,
    /// With it a directory would be a repository whose settings nobody protects.
    Repository,
    /// Programs outside would wait for it, or fail.
    InTheWay,
}

impl Misplaced {
    const ALL: [Misplaced; 4] =
        [Misplaced::Protected, Misplaced::Link, Misplaced::Repository, Misplaced::InTheWay];
}

/// Something that a cell's first process has taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenAway {
    /// What it was to programs outside.
    pub why: Misplaced,
    /// Where the program had made it.
    pub path: PathBuf,
    /// Where it is now, in the same directory; none if nothing was in it. Its old path where it could not be moved.
    pub aside: Option<PathBuf>,
}

impl TakenAway {
    /// Its bytes for the broker; `None` if its path is longer than one may be.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let aside = self.aside.as_deref().and_then(Path::file_name).unwrap_or_default();
        let head = [self.why as u8, u8::try_from(aside.len()).ok()?];
        let bytes = [&head, aside.as_bytes(), self.path.as_os_str().as_bytes()].concat();
        (bytes.len() <= TAKEN_LEN).then_some(bytes)
    }

    /// Reads one; `None` if it is none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let ([why, length], rest) = bytes.split_first_chunk()?;
        let (aside, path) = rest.split_at_checked(usize::from(*length))?;
        let (aside, path) = (OsStr::from_bytes(aside), Path::new(OsStr::from_bytes(path)));
        let (directory, name) = (path.parent()?, path.file_name()?);
        let is_name = aside == name || has_such_a_name(aside);
        let aside = match aside.is_empty() {
            true => None,
            false => Some(is_name.then(|| directory.join(aside))?),
        };
        let why = *Misplaced::ALL.get(usize::from(*why))?;
        Some(Self { why, path: path.to_owned(), aside })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_back_and_name_nothing_that_was_not_moved() {
        for why in Misplaced::ALL {
            for aside in [None, Some("/p/x"), Some("/p/.lazaret-0123456789abcdef")] {
                let taken = TakenAway { why, path: "/p/x".into(), aside: aside.map(PathBuf::from) };
                assert_eq!(TakenAway::decode(&taken.encode().unwrap()), Some(taken));
            }
        }
        let other = TakenAway { why: Misplaced::Link, path: "/p/x".into(), aside: Some("/p/y".into()) };
        assert_eq!(TakenAway::decode(&other.encode().unwrap()), None);
        let long = TakenAway { why: Misplaced::Link, path: "x".repeat(TAKEN_LEN).into(), aside: None };
        assert_eq!(long.encode(), None);
        for bytes in [&b""[..], b"\0", b"\x09\0/p/x", b"\0\x09/p/x", b"\0\0/", b"\0\0"] {
            assert_eq!(TakenAway::decode(bytes), None, "{bytes:?}");
        }
    }
}
