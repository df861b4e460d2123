#![doc = include_str!("../README.md")]
#![allow(unreachable_pub)]

pub mod suite;
mod gate;
pub mod leftovers;
mod not_run;
mod slowest;
pub mod place;
pub mod world;
pub mod git_oracle;
pub mod session;
pub mod approval;
pub mod connect_proxy;
pub mod tls_host;
pub mod cargo_alone;
pub mod model_server;
pub mod sidecar;
pub mod wire;
pub mod terminal;
pub mod process;
pub mod programs;
pub mod filter;
pub mod registries;
pub mod remote_server;
pub mod rows;
pub mod corpus;
pub mod chance;
pub mod container;
pub mod fuzz;
pub mod sys;

pub use chance::Chance;
pub use git_oracle::GitView;
pub use lazaret_fakes::Serving;
pub use not_run::not_run;
pub use place::{Place, User};
pub use process::{Finished, LIMIT, run, run_with_input};
pub use session::Session;
pub use suite::Test;
pub use terminal::Terminal;
pub use wire::Broker;
pub use world::{Mount, World};
