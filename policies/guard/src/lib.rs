#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod names;
pub mod transit;
pub mod repository;
pub mod pattern;
pub mod fold;
pub mod steps;
mod origin;

pub use fold::one_spelling;
pub use names::{Matcher, ProtectedName, Protection, TransitTarget, WhenNew};
pub use origin::Origin;
pub use pattern::{NameError, PatternError};
pub use repository::{
    GIT_HEAD_MAX, Member, MemberKind, Repository, SHELL_CHARACTERS, as_git_directory, branch_of,
    is_git_head, is_in_git_directory, is_plain_branch, is_valid_git_head, may_be_dot_git,
    may_be_git_directory,
};
pub use transit::TransitForm;
