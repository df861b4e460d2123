#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod model;
pub mod value;
pub mod quantity;
pub mod host;
pub mod directories;
pub mod source;
pub mod address;
pub mod web;
mod shipped;
pub mod resolve;
pub mod effective;
pub mod names;
pub mod secret;
pub mod git_config;
pub mod pattern;
mod steps;
pub mod paths;
pub mod scope;
pub mod rules;
pub mod shell;
pub mod decide;
pub mod error;

pub use broker_protocol::Channel;
pub use decide::{Facts, Judgement, Param, Question, Touch, Verdict, decide, judge};
pub use effective::{
    Access, Approval, EffectivePolicy, EnvironmentRules, Grant, Limits, ProtectedName, Protection, TRUST,
    WhenNew,
};
pub use error::PolicyError;
pub use git_config::{GIT_CONFIG_MAX, is_harmless_git_config};
pub use host::{Host, HostPath, HostPathError};
pub use names::Matcher;
pub use pattern::PatternError;
pub use resolve::Policies;
pub use rules::{Action, Origin, Rule};
pub use scope::{Reach, ScopePaths};
pub use source::{FILE_MAX, FileError, FileFault, Source, SourceKind};
pub use web::WebPolicy;
