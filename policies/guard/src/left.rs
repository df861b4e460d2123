//! Files in a repository that make programs of the user's act, fail, or show something else, if a call has left or changed them; and
//! which of them may stay.

use crate::head::{GIT_HEAD_MAX, is_plain_branch};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Maximum bytes read of a file that holds a number or the name of an object.
pub const TEXT_MAX: u64 = 128;

/// Maximum bytes of a reference: what git reads of one is a name or another reference.
pub const REFERENCE_MAX: u64 = GIT_HEAD_MAX as u64;

/// Maximum bytes of `packed-refs`: some three million references.
pub const PACKED_MAX: u64 = 256 << 20;

/// How a file that a call has left is treated.
#[derive(Clone, Copy, Debug)]
pub enum Left {
    /// Git's prompt for shells (`__git_ps1`) makes the shell expand its content: it stays if that is a number.
    Counter,
    /// `git branch` and `git status` print the branch whose name it holds, and a prompt may have the shell expand that: it stays if
    /// that name is only text to a shell.
    BranchName,
    /// The branch of `HEAD`, which names another one that is not only text to a shell.
    Branch,
    /// When a commit ends a merge, git applies the stash that it names: it stays while a merge is
    /// in progress. Checked when no command is running any more.
    Autostash,
    /// Makes git show another history, or other objects.
    History,
    /// `git status` shows no file that it names.
    Exclude,
    /// `hg recover` writes the files that it names. Checked when no command is running any more.
    Journal,
    /// `git status` reads all of it into memory, or searches all of it: it stays up to as many bytes.
    Bounded(u64),
}

impl Left {
    /// Whether a file with this content, without the line end, may stay; `None` if it is too long or none. For those that are judged by it.
    pub fn may_stay(self, content: Option<&[u8]>) -> bool {
        match self {
            Left::Counter => content.is_some_and(|text| text.iter().all(u8::is_ascii_digit)),
            Left::BranchName => content.is_some_and(is_plain_branch),
            Left::Branch
            | Left::Autostash
            | Left::History
            | Left::Exclude
            | Left::Journal
            | Left::Bounded(_) => false,
        }
    }

    /// How much of its content is read to judge it.
    pub fn content_max(self) -> u64 {
        match self {
            Left::BranchName => GIT_HEAD_MAX as u64,
            Left::Counter
            | Left::Branch
            | Left::Autostash
            | Left::History
            | Left::Exclude
            | Left::Journal
            | Left::Bounded(_) => TEXT_MAX,
        }
    }

    /// Whether it acts by what it says, and not only makes a program fail or show something else: in a repository that a call has made.
    pub fn acts(self) -> bool {
        match self {
            Left::Counter
            | Left::BranchName
            | Left::Branch
            | Left::Autostash
            | Left::Journal
            | Left::Bounded(_) => true,
            Left::History | Left::Exclude => false,
        }
    }

    /// Whether it stays or goes by its content.
    pub fn is_judged_by_content(self) -> bool {
        match self {
            Left::Counter | Left::BranchName | Left::Branch => true,
            Left::Autostash | Left::History | Left::Exclude | Left::Journal | Left::Bounded(_) => {
                false
            }
        }
    }

    /// Whether it is looked at only when no command is running any more.
    pub fn waits(self) -> bool {
        match self {
            Left::Autostash | Left::Journal => true,
            Left::Counter
            | Left::BranchName
            | Left::Branch
            | Left::History
            | Left::Exclude
            | Left::Bounded(_) => false,
        }
    }
}

/// Files of a repository, relative to its directory; locks are recognised by the end of their names.
pub const GIT: [(&str, Left); 14] = [
    ("rebase-merge/msgnum", Left::Counter),
    ("rebase-merge/end", Left::Counter),
    ("rebase-apply/next", Left::Counter),
    ("rebase-apply/last", Left::Counter),
    ("rebase-merge/head-name", Left::BranchName),
    ("rebase-apply/head-name", Left::BranchName),
    ("BISECT_START", Left::BranchName),
    ("MERGE_AUTOSTASH", Left::Autostash),
    ("objects/info/commit-graph", Left::History),
    (
        "objects/info/commit-graphs/commit-graph-chain",
        Left::History,
    ),
    ("objects/info/alternates", Left::History),
    ("info/grafts", Left::History),
    ("shallow", Left::History),
    ("info/exclude", Left::Exclude),
];
pub const MERCURIAL: [(&str, Left); 4] = [
    ("branch", Left::BranchName),
    ("bookmarks.current", Left::BranchName),
    ("store/journal", Left::Journal),
    ("store/journal.backupfiles", Left::Journal),
];

/// Directories in which these files come about.
pub const GIT_DIRECTORIES: [&str; 7] = [
    "",
    "rebase-merge",
    "rebase-apply",
    "info",
    "objects",
    "objects/info",
    "objects/info/commit-graphs",
];
pub const MERCURIAL_DIRECTORIES: [&str; 2] = ["", "store"];

/// Locks of git that stop the user's next command.
pub const GIT_LOCKS: [&str; 5] = [
    "index.lock",
    "HEAD.lock",
    "config.lock",
    "packed-refs.lock",
    "shallow.lock",
];

/// Whether a file with this name, in a repository's directory, is a lock.
pub fn is_lock(name: &OsStr) -> bool {
    name.as_bytes()
        .strip_suffix(b".lock")
        .is_some_and(|name| !name.is_empty())
}

/// Whether it is one that stops the user's next command.
pub fn is_known_lock(name: &OsStr) -> bool {
    GIT_LOCKS.iter().any(|known| name == *known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_decides_what_a_prompt_would_execute() {
        for (left, content, stays) in [
            (Left::Counter, Some("12"), true),
            (Left::Counter, Some(""), true),
            (Left::Counter, Some("$(id)"), false),
            (Left::Counter, None, false),
            (Left::BranchName, Some("refs/heads/a"), true),
            (Left::BranchName, Some("a$(id)"), false),
            (Left::BranchName, None, false),
            (Left::Journal, Some("12"), false),
        ] {
            let content = content.map(str::as_bytes);
            assert_eq!(left.may_stay(content), stays, "{left:?} {content:?}");
        }
        let lock = |name| (is_lock(OsStr::new(name)), is_known_lock(OsStr::new(name)));
        assert_eq!(lock("index.lock"), (true, true));
        assert_eq!(lock("a.lock"), (true, false));
        assert_eq!([lock(".lock"), lock("a.locked")], [(false, false); 2]);
    }
}
