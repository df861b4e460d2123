#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod supervisor;
mod refusals;
mod describe;
mod named;
mod dispatch;
mod call;
mod caller;
mod find;
mod object;
mod rules;
mod areas;
mod protection;
mod processes;
mod entries;
mod git_rules;
mod transit;
mod kept_repositories;
mod empty_directories;
mod created;
mod created_record;
mod committed_secrets;
mod open;
mod names;
mod metadata;
mod repository;
mod worktrees;
mod written_links;
mod sockets;
mod socket_rules;
mod tcp_calls;
mod tcp;
mod loopback;
mod terminals;
mod answer;
pub mod pty;
mod self_test;

pub use committed_secrets::{ProjectRepository, open_created_files};
pub use created_record::CreatedRecord;
pub use describe::describe;
pub use named::named;
pub use refusals::{Cause, MESSAGE_MAX, REFUSALS_MAX, Refusal, Refusals};
pub use rules::AccessRules;
pub use self_test::SelfTest;
pub use supervisor::Supervisor;
