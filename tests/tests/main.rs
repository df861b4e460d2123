//! The suites whose tests may run side by side. A test's name begins with its place and its suite, so that a filter chooses them:
//! `cargo test -p lazaret-tests --test suites objects::`.
#![allow(clippy::unwrap_used)]
#![allow(unreachable_pub)]

mod acceptance;
mod acp;
mod agent_names;
mod agents;
mod approval;
mod bounds;
mod chat;
mod client_proxy;
mod client_gateway;
mod clients;
mod compatibility;
mod containers;
mod denials;
mod end_to_end;
mod endings;
mod escapes;
mod findings;
mod gc;
mod host_changes;
mod gateway;
mod gateway_proxy;
mod guards;
mod image;
mod kept_world;
mod large_writes;
mod leases;
mod masked_secrets;
mod loopback;
mod network;
mod credentials;
mod credential_logins;
mod credentials_in_use;
mod credential_aws;
mod credential_presets;
mod http_asks;
mod http_rules;
mod new_repositories;
mod objects;
mod objects_live;
mod opened_names;
mod path_leases;
mod pod;
mod warm;
mod ports;
mod publish;
mod quarantine;
mod redirect;
mod records;
mod self_attack;
mod servers;
mod services;
mod shared_inodes;
mod sandboxd;
mod sidecar;
mod ssh_agent;
mod successive;
mod supervised;
mod toolchains;
#[cfg(target_arch = "x86_64")]
mod tracing;
mod unseen_in_git;
mod why;

fn main() -> std::process::ExitCode {
    lazaret_tests::suite::main_of_waiting("supervised::")
}
