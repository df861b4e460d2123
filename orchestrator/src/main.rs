#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod result;
mod tool_options;
mod call;
mod gc;
mod history;
mod undo;
mod tools;
mod session;
mod login;
mod server_options;
mod servers;
mod mcp;
mod chat;
mod chat_hooks;
mod socket_file;
mod schema;
mod serve;
mod credential;
mod agent_hook;
mod install;
mod accept;
mod approve;
mod audit;
mod log;
mod warm;
mod completions;
mod man;
mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
