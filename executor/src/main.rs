#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod listen;
mod serve;
mod session;
mod authorise;
mod pending_leases;
mod plan;
mod pool;
mod call;
mod company;
mod start;
mod running_command;
mod files;
mod gc;
mod background;
mod approvals;
mod kept_texts;
mod missing_program;
mod session_image;
mod ready;
mod sandbox;
mod machine;
mod repository_question;
mod roots;
mod secrets;
mod user;
mod poll;
mod warm;
mod fault;

use broker_protocol::Layer;
use executor_layers::descriptors;
use executor_peers::TicketLine;
use executor_peers::surroundings::Surroundings;
use executor_spec::ablation::Ablation;
use executor_spec::error::SetupError;
use executor_spec::variables::Variables;
use executor_sys::{fd, process};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use user::User;

const HELP: &str = "\
lazaret-executor: the privilege broker of Lazaret. `lazaret` starts it; it is not meant to be typed.

Usage:
  lazaret-executor broker [--tickets]    serve one client; the connected socket is standard input
  lazaret-executor spawner [--tickets]   serve every client whose connected socket comes over standard input
  lazaret-executor ready                 build a session's sandbox, then serve one client; both come over standard input
  lazaret-executor start DIRECTORY PROGRAM ARG...   become a server of the user's, in a process session of its own and outside any
                                         cell, for who has started it in DIRECTORY
  lazaret-executor gc                    remove caches of projects that no session uses; the request comes over standard input
  lazaret-executor company PATH...       serve `[gateway]` of the policy to the gateway of one `lazaret`; commands can write below PATH
  lazaret-executor listen --socket PATH  serve every client that connects to PATH, each in a process of its own
  lazaret-executor --help | --version

--tickets: standard output is a line to the client's gateway, which makes only the web requests that are permitted over it.
The directory of PATH must belong to you and be closed to others (mode 0700); it is made if it is missing.
A client must have the same user id. The file worker, `lazaret-worker`, must lie beside this program. Policies are
read from /etc/lazaret/policy.toml and ${XDG_CONFIG_HOME:-~/.config}/lazaret/policy.toml.

Exit codes: 0 the client has left, 1 the executor failed, 2 wrong usage.
";

/// Whether standard output is a line for tickets.
#[derive(Clone, Copy)]
enum TicketOption {
    Absent,
    Given,
}

/// The subcommand given on the command line.
enum Task {
    Broker(TicketOption),
    Spawner(TicketOption),
    Ready,
    Gc,
    Company(Vec<PathBuf>),
    /// The directory of who starts it, and its command.
    Start(PathBuf, Vec<String>),
    Listen(PathBuf),
    Print(String),
}

fn main() -> ExitCode {
    let task = match parse(std::env::args_os().skip(1).collect()) {
        Ok(task) => task,
        Err(message) => {
            eprintln!("lazaret-executor: {message}; see lazaret-executor --help");
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
    let words: Vec<&str> = arguments
        .iter()
        .map(|word| word.to_str().unwrap_or("\u{fffd}"))
        .collect();
    match words[..] {
        ["broker"] => Ok(Task::Broker(TicketOption::Absent)),
        ["broker", "--tickets"] => Ok(Task::Broker(TicketOption::Given)),
        ["spawner"] => Ok(Task::Spawner(TicketOption::Absent)),
        ["spawner", "--tickets"] => Ok(Task::Spawner(TicketOption::Given)),
        ["ready"] => Ok(Task::Ready),
        ["gc"] => Ok(Task::Gc),
        ["start", ..] => {
            server(&arguments[1..]).map(|(directory, command)| Task::Start(directory, command))
        }
        ["company", ..] => Ok(Task::Company(
            arguments[1..].iter().map(PathBuf::from).collect(),
        )),
        ["listen", "--socket", _] => Ok(Task::Listen(PathBuf::from(&arguments[2]))),
        ["--help" | "-h" | "help"] => Ok(Task::Print(HELP.into())),
        ["--version" | "-V"] => Ok(Task::Print(format!(
            "lazaret-executor {}\n",
            broker_protocol::release(option_env!("LAZARET_COMMIT"))
        ))),
        [] => Err("a subcommand is missing".into()),
        _ => Err(format!(
            "unknown arguments: {}",
            words.join(" ").escape_debug()
        )),
    }
}

/// The directory of who starts a server, and its command. Its program has a full path: `PATH` may have been set by a project.
fn server(words: &[OsString]) -> Result<(PathBuf, Vec<String>), String> {
    let word = |word: &OsString| {
        let word = word.clone().into_string();
        word.map_err(|_| "a word is not UTF-8".to_owned())
    };
    let Some((directory, command)) = words.split_first() else {
        return Err("start needs a directory and a program".into());
    };
    let command: Vec<String> = command.iter().map(word).collect::<Result<_, _>>()?;
    match command.first() {
        Some(program) if Path::new(program).is_absolute() => Ok((directory.into(), command)),
        Some(_) => Err("start needs the full path of a program".into()),
        None => Err("start needs a program".into()),
    }
}

fn run(task: Task) -> io::Result<()> {
    if let Task::Print(text) = &task {
        print!("{text}");
        return Ok(());
    }
    // Before anything of this process is changed.
    let surroundings = matches!(task, Task::Ready).then(Surroundings::own);
    let surroundings = surroundings.transpose().map_err(io::Error::other)?;
    let other = |error: SetupError| io::Error::other(error.to_string());
    allow_descriptors()?;
    let ablation = Ablation::read()?;
    descriptors::keep_only(&[], ablation.descriptors()).map_err(other)?;
    let inherited = || {
        let socket = fd::inherited(0)?;
        descriptors::null_stdio(1).map_err(other).map(|()| socket)
    };
    match task {
        Task::Broker(tickets) => {
            let tickets = tickets.line()?;
            let socket = inherited()?;
            listen::serve_client(socket, user(ablation)?.with_tickets(tickets))
        }
        Task::Spawner(tickets) => {
            let tickets = tickets.line()?;
            let socket = inherited()?;
            listen::serve_handed_over(socket, &user(ablation)?.with_tickets(tickets))
        }
        Task::Ready => {
            let line = inherited()?;
            let surroundings = surroundings.ok_or(io::ErrorKind::InvalidInput)?;
            warm::serve(line, user(ablation)?, &surroundings)
        }
        Task::Gc => gc::answer(inherited()?, &user(ablation)?),
        // Standard output is for the answer to who starts it.
        Task::Company(written) => company::serve(fd::inherited(0)?, &user(ablation)?, &written),
        Task::Start(directory, command) => {
            let user = user(ablation)?;
            descriptors::null_stdio(2).map_err(other)?;
            match start::become_server(&command, (&user, &directory))? {}
        }
        Task::Listen(path) => listen::serve(&path, &user(ablation)?),
        Task::Print(_) => Ok(()),
    }
}

impl TicketOption {
    /// The line, before standard output becomes something else.
    fn line(self) -> io::Result<TicketLine> {
        match self {
            Self::Absent => Ok(TicketLine::default()),
            Self::Given => fd::inherited(1).map(TicketLine::new),
        }
    }
}

/// Limit on descriptors for this process and its children: more than a cell has. The kernel counts descriptors in flight on sockets per
/// user and checks the count against the sender's limit, so a cell that leaves its own unread would otherwise keep us from sending any.
const DESCRIPTORS: u64 = 65_536;

fn allow_descriptors() -> io::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(
        Resource::RLIMIT_NOFILE,
        soft.max(hard.min(DESCRIPTORS)),
        hard,
    )?)
}

/// Reads what is needed from the environment and overwrites the rest of it.
fn user(ablation: Ablation) -> io::Result<User> {
    let variables: Variables = std::env::vars_os().collect();
    if !ablation.is_off(Layer::Environment) {
        process::wipe_environment();
    }
    User::of_process(variables, ablation)
}
