#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod resolve;
mod shipped;
pub mod choice;
mod draft;
pub(crate) mod lease_bounds;
pub mod leases;
pub mod credential_table;
pub mod credentials;
mod credential_files;
pub mod ssh;
pub mod gateway;
mod gateway_files;
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
mod path_steps;
pub mod opened;
pub(crate) mod open_fault;
pub mod secret;
pub mod secrets;
pub mod git_account;
pub(crate) mod git_config;

pub use broker_protocol::Channel;
pub use choice::Choice;
pub use credentials::{Credential, CredentialSource};
pub use decide::{Judgement, Question, Verdict, decide, decide_leased, decide_real, judge};
pub use denial::{remedy_of_name, rule_of_name};
pub use effective::{Approval, EffectivePolicy, EnvironmentRules, PathGrant, TRUST};
pub use error::PolicyError;
pub use facts::Facts;
pub use gateway::{GatewaySettings, ProxySettings};
pub use git_account::{
    AccountSetting, PatternFile, git_account, git_commit_settings, git_filter_drivers,
    git_includes, git_preferences,
};
pub use git_config::{GIT_CONFIG_MAX, git_config_worktree, is_harmless_git_config, names_no_path};
pub use host::{Host, HostPathError};
pub use limits::Limits;
pub use package_config::{PACKAGE_CONFIG_MAX, is_harmless_package_config};
pub use path_steps::{are_outside, leads_into, path_steps};
pub use policies_guard::Access;
pub use policies_targets::{address, dotenv, http, network, ports, shell, web};
pub use resolve::Policies;
pub use rules::{Action, Rule};
pub use scope::{Reach, ScopePaths};
pub use secrets::{SecretMode, SecretModes};
pub use source::{FILE_MAX, FileError, FileFault, PolicySource, SourceKind};
pub use web::WebPolicy;
