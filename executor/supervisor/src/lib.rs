#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod supervisor;
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
mod link_names;
mod copied_bytes;
mod shared_files;
mod empty_directories;
mod new_names;
mod open;
mod read;
mod masked;
mod private_tmp;
mod names;
mod metadata;
mod repository;
mod settings_locks;
mod new_repositories;
mod made_directories;
mod worktrees;
mod written_links;
mod sockets;
mod socket_rules;
mod socket_names;
mod kept_sockets;
mod made_sockets;
mod tcp_calls;
mod tcp;
mod loopback;
mod terminals;
mod answer;
pub mod pty;
mod self_test;

pub use rules::AccessRules;
pub use self_test::SelfTest;
pub use supervisor::Supervisor;
