#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod resolve;
mod shipped;
pub mod choice;
mod draft;
pub mod lease_bounds;
pub mod leases;
pub mod credential_table;
pub mod credentials;
mod credential_files;
pub mod effective;
pub mod model;
pub mod value;
pub mod limits;
pub mod source;
pub mod directories;
pub mod host;
pub mod error;
pub mod decide;
mod denial;
pub mod facts;
pub mod rules;
pub mod tool;
pub mod command;
pub mod scope;
mod package_config;
pub mod paths;
pub mod names;
mod fold;
pub mod opened;
pub mod open_fault;
pub mod transit;
pub mod repository;
pub mod pattern;
pub mod secret;
pub mod secrets;
pub mod git_account;
pub mod git_config;

pub use broker_protocol::Channel;
pub use choice::Choice;
pub use credentials::{Credential, CredentialSource};
pub use decide::{Judgement, Question, Verdict, decide, decide_leased, decide_real, judge};
pub use effective::{Access, Approval, EffectivePolicy, EnvironmentRules, Grant, TRUST};
pub use error::PolicyError;
pub use facts::{Facts, Param, Touch};
pub use fold::one_spelling;
pub use git_account::{
    IdentitySetting, git_commit_settings, git_filter_drivers, git_identity, git_includes,
};
pub use git_config::{GIT_CONFIG_MAX, git_config_worktree, is_harmless_git_config, names_no_path};
pub use host::{Host, HostPath, HostPathError};
pub use limits::Limits;
pub use names::{Matcher, ProtectedName, Protection, TransitTarget, WhenNew};
pub use package_config::{PACKAGE_CONFIG_MAX, is_harmless_package_config};
pub use pattern::PatternError;
pub use policies_targets::{address, dotenv, network, shell, web};
pub use repository::{
    GIT_HEAD_MAX, Member, MemberKind, Repository, SHELL_CHARACTERS, as_git_directory, branch_of,
    is_git_head, is_in_git_directory, is_plain_branch, is_valid_git_head, may_be_dot_git,
    may_be_git_directory,
};
pub use resolve::Policies;
pub use rules::{Action, Rule};
pub use scope::{Reach, ScopePaths};
pub use secrets::{SecretMode, SecretModes};
pub use source::{FILE_MAX, FileError, FileFault, Origin, Source, SourceKind};
pub use transit::TransitForm;
pub use web::WebPolicy;
