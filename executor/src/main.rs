#![doc = include_str!("../README.md")]

mod broker;
mod warden;
mod cell;
mod work;
mod attack;
mod listen;
mod rest;
mod sys;

use broker::User;
use broker_protocol::Layer;
use cell::ablation::Ablation;
use cell::descriptors;
use nix::sys::prctl;
use nix::unistd::{Uid, User as Account};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitCode;

const HELP: &str = "\
lazaret-executor: the privilege broker of Lazaret. `lazaret` starts it; nobody types it.

Usage:
  lazaret-executor broker                serve one client; the connected socket is standard input
  lazaret-executor door                  serve every client whose connected socket comes over standard input
  lazaret-executor listen --socket PATH  serve every client that connects to PATH, each in a process of its own
  lazaret-executor --help | --version

The directory of PATH must belong to you and be closed to others (mode 0700); it is made if it is missing.
A client must have the same user id. Policies are read from /etc/lazaret/policy.toml and
${XDG_CONFIG_HOME:-~/.config}/lazaret/policy.toml.

Exit codes: 0 the client has left, 1 the executor failed, 2 it was called wrongly.
";

/// What the command line asks for.
enum Task {
    Broker,
    Door,
    Listen(PathBuf),
    Say(String),
}

fn main() -> ExitCode {
    let task = match parse(std::env::args_os().skip(1).collect()) {
        Ok(task) => task,
        Err(what) => {
            eprintln!("lazaret-executor: {what}; see lazaret-executor --help");
            return ExitCode::from(2);
        }
    };
    match run(task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lazaret-executor: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: Vec<OsString>) -> Result<Task, String> {
    let words: Vec<&str> = arguments.iter().map(|word| word.to_str().unwrap_or("\u{fffd}")).collect();
    match words[..] {
        ["broker"] => Ok(Task::Broker),
        ["door"] => Ok(Task::Door),
        ["listen", "--socket", _] => Ok(Task::Listen(PathBuf::from(&arguments[2]))),
        ["--help" | "-h" | "help"] => Ok(Task::Say(HELP.into())),
        ["--version" | "-V"] => Ok(Task::Say(format!("lazaret-executor {}\n", env!("CARGO_PKG_VERSION")))),
        [] => Err("nothing was asked for".into()),
        _ => Err(format!("not understood: {}", words.join(" ").escape_debug())),
    }
}

fn run(task: Task) -> io::Result<()> {
    let other = |error: cell::LayerError| io::Error::other(error.to_string());
    match task {
        Task::Say(text) => {
            print!("{text}");
            Ok(())
        }
        Task::Broker => {
            let ablation = Ablation::read()?;
            descriptors::keep_only(&[], ablation.descriptors()).map_err(other)?;
            let socket = sys::inherited(0)?;
            descriptors::null_stdio(1).map_err(other)?;
            serve(socket, user(ablation)?)
        }
        Task::Door => {
            let ablation = Ablation::read()?;
            descriptors::keep_only(&[], ablation.descriptors()).map_err(other)?;
            let door = sys::inherited(0)?;
            descriptors::null_stdio(1).map_err(other)?;
            listen::serve_handed(door, &user(ablation)?)
        }
        Task::Listen(path) => {
            let ablation = Ablation::read()?;
            descriptors::keep_only(&[], ablation.descriptors()).map_err(other)?;
            listen::serve(&path, &user(ablation)?)
        }
    }
}

/// One client, once its identity is known.
fn serve(socket: OwnedFd, user: User) -> io::Result<()> {
    listen::check_peer(&socket)?;
    prctl::set_name(c"lazaret-executor")?;
    // Away from the caller's terminal: its Control-C is for the client, which passes it on. The leader of a group has
    // a session or a shell's job of its own already.
    let _ = nix::unistd::setsid();
    prctl::set_dumpable(false)?;
    // What a killed warden leaves behind comes here and not to init.
    prctl::set_child_subreaper(true)?;
    broker::serve(socket, user)
}

/// Takes what is needed from the environment and overwrites the rest of it.
fn user(ablation: Ablation) -> io::Result<User> {
    let mut variables: cell::environment::Variables = std::env::vars_os().collect();
    if !ablation.is_off(Layer::Environment) {
        sys::wipe_environment();
    }
    variables.insert(attack::VARIABLE.into(), "canary".into());
    // The account's home and not `HOME`, which programs point elsewhere for those that they start.
    let home = match Account::from_uid(Uid::effective())? {
        Some(account) => account.dir,
        None => "/".into(),
    };
    Ok(User { variables, home, ablation })
}
