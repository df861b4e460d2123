#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod verdict;
mod judge;
mod protected;
mod structure;
mod change;
mod tree;
#[cfg(test)]
mod judge_table;
pub mod names;
pub mod transit;
pub mod repository;
pub mod left;
pub mod search;
pub mod head;
pub mod pattern;
pub mod fold;
pub mod steps;
mod origin;

pub use change::{AtRest, Change, Described, DirectoryName, Moment, New};
pub use fold::one_spelling;
pub use head::{
    GIT_HEAD_MAX, GitHead, HeadEnd, SHELL_CHARACTERS, follow_head, may_be_written_to_head,
    names_no_plain_branch,
};
pub use judge::{Judge, judge};
pub use names::{Access, Matcher, ProtectedName, Protection, WhenNew};
pub use origin::Origin;
pub use pattern::{NameError, PatternError};
pub use repository::{
    MemberKind, Repository, as_git_directory, is_in_git_directory, may_be_dot_git,
    may_be_git_directory,
};
pub use transit::TransitForm;
pub use tree::{ObjectKind, Tree};
pub use verdict::{Rule, Verdict};
