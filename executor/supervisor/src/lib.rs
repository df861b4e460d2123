#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod supervisor;
mod dispatch;
mod call;
mod caller;
mod find;
mod object;
mod rules;
mod tree;
mod areas;
mod processes;
mod entries;
mod link_names;
mod copied_bytes;
mod shared_files;
mod empty_directories;
mod second_look;
mod opened_files;
mod open_flags;
mod read;
mod sealed_memory;
mod names;
mod metadata;
mod repository;
mod settings_locks;
mod passed_over;
mod passing_over;
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
mod machine_ports;
mod pool_hosts;
mod answer;
mod flat;
mod self_test;

pub use flat::{ipc_objects, loopback_line, pty};
pub use rules::AccessRules;
pub use self_test::SelfTest;
pub use supervisor::Supervisor;
