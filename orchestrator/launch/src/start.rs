//! Starts the executor, for commands with a network the gateway (and an executor that tells it of a company's network), for `doctor --attack` the self-attack, for `doctor` git and each program that prints its version, for `run` on a terminal what writes the user's
//! policy, for `serve` what removes its socket, for `chat` and `serve` a model's server through the executor, for `mcp` what examines
//! projects, and for `acp` the agent: the only place of the orchestrator that starts another program.

use crate::secret_file;
use crate::tickets::TicketPair;
use broker_protocol::Failed;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::Pid;
use orchestrator_confine::Files;
use orchestrator_engine::executor::ExecutorError;
use orchestrator_text::known::OWN_KEYS;
use orchestrator_text::secret_environment;
use rustix::process::{PidfdFlags, pidfd_open};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub(crate) const NAME: &str = "lazaret-executor";
const ATTACK: &str = "lazaret-attack";
const SHELL: &str = "lazaret-bash";
const MAIN: &str = "lazaret";
/// The word of this program for one that needs all variables, after which come the names of those that it does not get.
const WITH_SECRETS: &str = "with-secrets";
/// The word of this program for the process that searches texts for secrets.
const REDACTOR: &str = "redactor";
/// The word of this program for the process that starts gateways of cells.
const GATEWAY_STARTER: &str = "gateway-starter";
const GATEWAY: &str = "lazaret-gateway";
/// Variables of our environment that gateways have: how names are resolved. None of it is a secret.
const RESOLVING: [&str; 3] = ["LOCALDOMAIN", "RES_OPTIONS", "HOSTALIASES"];
/// Those that our own gateway may have too: where certificates are.
pub(crate) const CERTIFICATES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];
/// How long an agent may take to end on request, in milliseconds.
const AGENT_ENDING_MS: u16 = 2000;
/// Maximum bytes of an answer of a [`FileReader`], and how long it may take.
const ANSWER_MAX: u64 = 64 << 10;
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Maximum bytes of a version, and how long a program may take to print it.
const VERSION_MAX: u64 = 4 << 10;
const VERSION_TIME: Duration = Duration::from_secs(2);
/// No command may have this variable: the self-attack looks for it. Its value is not a secret.
const CANARY: (&str, &str) = (
    "LAZARET_CANARY_SECRET",
    "a command that has this variable has others too",
);

/// Starts `program`, or the installed executor, to serve one session; returns our end of its socket. Of our own keys, it gets only
/// those in `credentials`.
pub fn start(
    program: Option<&Path>,
    credentials: &BTreeSet<String>,
    tickets: &TicketPair,
) -> Result<UnixStream, ExecutorError> {
    start_executor(program, "broker", credentials, tickets.of_brokers()?)
}

/// Starts `program`, or the installed executor, to answer one request for a cleanup; returns our end of its socket.
pub(crate) fn start_cleanup(program: Option<&Path>) -> Result<UnixStream, ExecutorError> {
    start_executor(program, "gc", &BTreeSet::new(), None)
}

/// Has `program`, or the installed executor, become a server of the user's, which outlives us. It gets none of our keys.
///
/// # Errors
/// The executor cannot be started. That the server cannot is seen by nobody listening.
pub fn start_server(_: &Files, executor: Option<&Path>, command: &[String]) -> io::Result<()> {
    let mut starting = WithSecrets::of(&self::program(executor), OWN_KEYS.into_iter())?;
    starting
        .command
        .arg("start")
        .arg(std::env::current_dir().unwrap_or_else(|_| "/".into()))
        .args(command)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .current_dir("/");
    starting.spawn().map(drop)
}

/// An executor that creates a broker for each socket that it receives. So a program that can no longer start others can still
/// replace a lost session.
#[derive(Debug)]
pub struct BrokerSpawner(UnixStream);

impl BrokerSpawner {
    /// Starts it in the same way as [`start`].
    pub fn start(
        program: Option<&Path>,
        credentials: &BTreeSet<String>,
        tickets: &TicketPair,
    ) -> Result<Self, ExecutorError> {
        start_executor(program, "spawner", credentials, tickets.of_brokers()?).map(Self)
    }

    /// A socket whose other end is a new broker.
    pub fn spawn(&self) -> Result<UnixStream, ExecutorError> {
        let (ours, theirs) = UnixStream::pair()?;
        let rights = [theirs.as_raw_fd()];
        let message = [ControlMessage::ScmRights(&rights)];
        let sent = sendmsg::<()>(
            self.0.as_raw_fd(),
            &[IoSlice::new(&[0])],
            &message,
            MsgFlags::MSG_NOSIGNAL,
            None,
        );
        match sent {
            Ok(_) => Ok(ours),
            Err(Errno::EPIPE | Errno::ECONNRESET) => Err(ExecutorError::Lost),
            Err(errno) => Err(io::Error::from(errno).into()),
        }
    }
}

/// Starts the executor at `program`, or the first of ours that is there, with `task`; returns our end of its socket.
fn start_executor(
    program: Option<&Path>,
    task: &str,
    credentials: &BTreeSet<String>,
    tickets: Option<OwnedFd>,
) -> Result<UnixStream, ExecutorError> {
    if let Some(program) = program {
        let spawned = spawn_program(program, task, credentials, tickets.as_ref());
        return spawned.map_err(|source| ExecutorError::Start {
            program: program.to_owned(),
            source,
        });
    }
    let candidates = candidates(NAME)?;
    for program in &candidates {
        match spawn_program(program, task, credentials, tickets.as_ref()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => {
                return result.map_err(|source| ExecutorError::Start {
                    program: program.clone(),
                    source,
                });
            }
        }
    }
    let tried = candidates
        .iter()
        .map(|path| path.display().to_string())
        .collect::<Vec<_>>()
        .join(" and ");
    Err(ExecutorError::NotFound { tried })
}

/// Starts the installed gateway, which makes our connections. Returns our end of its standard input; it ends when that closes. Its
/// standard output is the socket of `company`, over which it is told of a company's network. It has the variables `certificates`.
///
/// # Errors
/// If it is not installed, or cannot be started.
pub(crate) fn start_gateway(
    _: &Files,
    company: Option<&UnixStream>,
    certificates: &[&str],
) -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    let started = spawn_gateway(|command| {
        command.arg("client").process_group(0);
        pass_variables(command, certificates);
        let output = company.map(UnixStream::try_clone).transpose()?;
        let output = output.map_or_else(Stdio::null, |socket| OwnedFd::from(socket).into());
        command.stdin(OwnedFd::from(theirs.try_clone()?));
        command.stdout(output);
        Ok(())
    });
    started.map(|_| ours)
}

/// Starts the gateway that is installed, with what `prepare` adds.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one file that starts a program"
)]
fn spawn_gateway(prepare: impl Fn(&mut Command) -> io::Result<()>) -> io::Result<Child> {
    for program in candidates(GATEWAY)? {
        let mut command = Command::new(program);
        command.env_clear().env(
            broker_protocol::VERSION_VARIABLE,
            broker_protocol::VERSION.to_string(),
        );
        pass_variables(&mut command, &RESOLVING);
        prepare(&mut command)?;
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            started => return started,
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

fn pass_variables(command: &mut Command, names: &[&str]) {
    let set = names
        .iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)));
    command.envs(set);
}

/// Starts `executor`, or the installed one, to tell a gateway of the company's network that the policy names, where commands can write
/// below `written`. Returns the gateway's end of their socket, and what the executor says of it.
///
/// # Errors
/// If it cannot be started.
pub(crate) fn start_company(
    _: &Files,
    executor: Option<&Path>,
    written: &[PathBuf],
) -> io::Result<(UnixStream, String)> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut company = WithSecrets::of(&program(executor), OWN_KEYS.into_iter())?;
    company
        .command
        .arg("company")
        .args(written)
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::piped())
        .process_group(0);
    let mut started = company.spawn()?;
    let answer = started.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let mut text = String::new();
    answer.take(ANSWER_MAX).read_to_string(&mut text)?;
    Ok((ours, text))
}

/// A program that gets all variables, also those that this process was started without.
struct WithSecrets {
    command: Command,
    /// Inherited by what is started while it exists.
    hidden: Option<OwnedFd>,
}

impl WithSecrets {
    /// `program`, without the variables `withheld`.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one file that starts a program"
    )]
    fn of<'n>(program: &Path, withheld: impl Iterator<Item = &'n str>) -> io::Result<Self> {
        let Some(hidden) = secret_file::inheritable()? else {
            let mut command = Command::new(program);
            for name in withheld {
                command.env_remove(name);
            }
            return Ok(Self {
                command,
                hidden: None,
            });
        };
        // Another process starts it, of which we would hear no more than its end.
        look_up(program.as_os_str())?;
        let mut command = Command::new(std::env::current_exe()?);
        let names = withheld.collect::<Vec<_>>().join(",");
        command.arg(WITH_SECRETS).arg(names).arg(program);
        Ok(Self {
            command,
            hidden: Some(hidden),
        })
    }

    fn spawn(mut self) -> io::Result<Child> {
        let started = self.command.spawn();
        drop(self.hidden);
        started
    }
}

/// Becomes this program again without these variables; open files stay. Returns only if that fails.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one file that starts a program"
)]
pub(crate) fn become_without<'n>(
    _: &Files,
    names: impl Iterator<Item = &'n OsString>,
) -> io::Error {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return error,
    };
    let mut arguments = std::env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    for name in names {
        command.env_remove(name);
    }
    command.args(arguments).exec()
}

/// Starts this program again to search texts for the secrets that we were started without; returns our end of its
/// standard input, and the end of the line on which it passes keys to the gateway.
///
/// # Errors
/// If it cannot be started.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one file that starts a program"
)]
pub(crate) fn start_redactor(_: &Files) -> io::Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = UnixStream::pair()?;
    let (keys, passed) = UnixStream::pair()?;
    let hidden = secret_file::inheritable()?;
    // In a group of its own: Ctrl-C in a terminal is for us, who may still have something to say.
    Command::new(std::env::current_exe()?)
        .arg(REDACTOR)
        .stdin(OwnedFd::from(theirs))
        .stdout(OwnedFd::from(passed))
        .process_group(0)
        .spawn()?;
    drop(hidden);
    Ok((ours, keys.into()))
}

/// Starts this program again to start a gateway for each socket that an executor sends over the other end of `line`. It has nothing of
/// our environment but what gateways have.
///
/// # Errors
/// If it cannot be started.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one file that starts a program"
)]
pub(crate) fn start_gateway_starter(_: &Files, line: OwnedFd) -> io::Result<()> {
    let mut command = Command::new(main_program()?);
    command.arg(GATEWAY_STARTER).env_clear();
    pass_variables(&mut command, &RESOLVING);
    command
        .stdin(line)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.process_group(0).spawn().map(drop)
}

/// Starts a gateway of cells, which is told over `socket` what it serves. Of certificates it has this machine's and those that it is
/// told of: a path in a variable could lead into a project.
///
/// # Errors
/// If it is not installed, or cannot be started.
pub(crate) fn start_cells_gateway(_: &Files, socket: &OwnedFd) -> io::Result<Child> {
    spawn_gateway(|command| {
        command.stdin(socket.try_clone()?).stdout(Stdio::null());
        Ok(())
    })
}

/// Processes of this program that hear nobody, and are no commands of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelperProcess {
    /// Becomes a program that gets all variables.
    WithSecrets,
    Redactor,
    GatewayStarter,
}

/// The first arguments of processes that another one of this program has started for itself, and that hear nobody else.
const OF_OURS: [[&str; 2]; 3] = [
    ["mcp", "--examine"],
    ["serve", "--remove-socket"],
    ["acp", "--hold"],
];

/// Whether this process is one of these.
pub fn is_for_another() -> bool {
    OF_OURS
        .iter()
        .any(|words| std::env::args_os().skip(1).take(2).eq(*words))
}

/// The one that this process was started as.
pub fn helper_process() -> Option<HelperProcess> {
    let word = std::env::args_os().nth(1)?;
    match word.to_str()? {
        WITH_SECRETS => Some(HelperProcess::WithSecrets),
        REDACTOR => Some(HelperProcess::Redactor),
        GATEWAY_STARTER => Some(HelperProcess::GatewayStarter),
        _ => None,
    }
}

/// Becomes the program of our arguments, with all variables but those that they name. Returns only if that fails.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one file that starts a program"
)]
pub(crate) fn become_with_secrets(files: &Files) -> io::Error {
    let hidden = match secret_file::read(files) {
        Ok(hidden) => hidden,
        Err(error) => return error,
    };
    let mut arguments = std::env::args_os().skip(2);
    let (Some(names), Some(program)) = (arguments.next(), arguments.next()) else {
        return io::ErrorKind::InvalidInput.into();
    };
    let names = names.to_string_lossy().into_owned();
    let withheld: BTreeSet<&str> = names.split(',').collect();
    let mut command = Command::new(program);
    command.args(arguments).envs(hidden);
    // Without any, the one name is empty.
    for name in withheld.into_iter().filter(|name| !name.is_empty()) {
        command.env_remove(name);
    }
    command.exec()
}

/// The installed program of the self-attack.
pub fn attack_program() -> io::Result<PathBuf> {
    candidates(ATTACK)?
        .into_iter()
        .find(|program| program.is_file())
        .ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Starts `program`, the self-attack, without a cell, to attack what it creates in `directory`; returns our end of its standard
/// input and output.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn start_attack(_: &Files, program: &Path, directory: &Path) -> io::Result<UnixStream> {
    let mut command = Command::new(program);
    command
        .arg("outside")
        .arg(directory)
        .env(CANARY.0, CANARY.1);
    start_connected(without_keys(&mut command))
}

/// Starts this program again to write a person's answers at our terminal into their policy file: we ourselves give up all files
/// before the command begins. Returns our end of its standard input and output, whose reads have a time limit; it ends when that closes.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one file that starts a program"
)]
pub fn start_policy_writer(_: &Files, profile: &str) -> io::Result<UnixStream> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["policy", "allow", "--listen", "--profile", profile])
        .stderr(Stdio::null());
    let ours = start_connected(without_keys(&mut command))?;
    // Now: once confined, we set no option of a socket.
    ours.set_read_timeout(Some(ANSWER_TIME))?;
    Ok(ours)
}

/// Starts this program again, to remove the socket at `path` when we end, however that is: we give up all files before we serve.
/// Returns our end of its standard input and output; it ends with that, and knows by now which file the socket is.
///
/// # Errors
/// It cannot be started, or does not find the socket.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one file that starts a program"
)]
pub fn start_socket_remover(_: &Files, path: &Path) -> io::Result<UnixStream> {
    let mut unix = OsString::from("--unix=");
    unix.push(path);
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["serve", "--remove-socket"])
        .arg(unix)
        .stderr(Stdio::null());
    let mut ours = start_connected(without_keys(&mut command))?;
    ours.read_exact(&mut [0])?;
    Ok(ours)
}

/// A process of ours that answers questions, one a line: it reads files for us when we no longer can.
#[derive(Debug)]
pub(crate) struct FileReader(UnixStream);

impl FileReader {
    /// Its answer to `question`, which is one line.
    ///
    /// # Errors
    /// If it has ended, or does not answer in time.
    pub(crate) fn ask(&mut self, question: &str) -> io::Result<String> {
        self.0.write_all(format!("{question}\n").as_bytes())?;
        let mut line = String::new();
        BufReader::new(&self.0)
            .take(ANSWER_MAX)
            .read_line(&mut line)?;
        if line.ends_with('\n') {
            Ok(line)
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }
}

/// Starts `program`, or this one again if it is `None`, to examine projects' settings for agents.
///
/// # Errors
/// If it cannot be started.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one file that starts a program"
)]
pub(crate) fn start_examiner(
    _: &Files,
    program: Option<PathBuf>,
    client: Option<&str>,
) -> io::Result<FileReader> {
    let program = program.map_or_else(std::env::current_exe, Ok)?;
    let mut command = Command::new(program);
    command
        .args(["mcp", "--examine"])
        .args(client.iter().flat_map(|client| ["--client", client]));
    let ours = start_connected(without_keys(command.stderr(Stdio::null())))?;
    ours.set_read_timeout(Some(ANSWER_TIME))?;
    Ok(FileReader(ours))
}

/// Becomes the program beside ours, which has all commands, with our arguments and our name: it links what the user's hooks need.
/// Returns only if that fails.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one file that starts a program"
)]
pub fn become_main_program(_: &Files) -> io::Error {
    let program = match main_program() {
        Ok(program) => program,
        Err(error) => return error,
    };
    Command::new(program)
        .arg0(SHELL)
        .args(std::env::args_os().skip(1))
        .exec()
}

/// Whether this process was started by the name of the shell.
pub fn is_shell() -> bool {
    let name = std::env::args_os().next().map(PathBuf::from);
    name.is_some_and(|name| name.file_name() == Some(OsStr::new(SHELL)))
}

/// Whether the agent's program is there. Another process starts it, and of that we would hear no more than its end.
pub fn is_there(program: &OsStr) -> bool {
    look_up(program).is_ok()
}

/// Fails as a start of this program would if it is not there.
fn look_up(program: &OsStr) -> io::Result<()> {
    match program.as_encoded_bytes().contains(&b'/') {
        true => Path::new(program).metadata().map(drop),
        false => in_path(program).map(drop).ok_or(Errno::ENOENT.into()),
    }
}

/// Checks that the agent is not found by a `PATH` that leads into the project at `root`, which a project may have set.
///
/// # Errors
/// If it is.
pub fn check_agent(agent: &[OsString], root: &Path) -> Result<(), Failed> {
    let Some(program) = agent
        .first()
        .filter(|program| !program.as_encoded_bytes().contains(&b'/'))
    else {
        return Ok(());
    };
    let found = in_path(program).and_then(|path| path.canonicalize().ok());
    match found.filter(|path| path.starts_with(root)) {
        Some(path) => Err(Failed::invalid(format!(
            "PATH finds the agent in the project, as {}: a project may have set it; name the agent by its path",
            path.display()
        ))),
        None => Ok(()),
    }
}

fn in_path(program: &OsStr) -> Option<PathBuf> {
    // The default of execvp(3) without a PATH.
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|path| path.exists())
}

/// Starts this program again to hold `agent` for us: however we end, the agent then ends. We could not end it ourselves: once
/// confined, we can signal no process that existed before. The agent gets `variables` besides our environment. Returns our end of
/// its standard input and output.
///
/// # Errors
/// If it cannot be started. If only the agent's program cannot, standard error reports it and the stream ends.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one file that starts a program"
)]
pub fn start_agent(
    _: &Files,
    agent: &[OsString],
    variables: &[(&str, OsString)],
) -> io::Result<UnixStream> {
    let variables = variables
        .iter()
        .map(|(name, value)| (OsStr::new(name), value));
    // The agent gets all variables, and who holds it has them no more than we do.
    let hidden = secret_file::inheritable()?;
    let started = start_connected(
        Command::new(std::env::current_exe()?)
            .args(["acp", "--hold", "--"])
            .args(agent)
            .envs(variables),
    );
    drop(hidden);
    started
}

/// Starts `command` in a process group of its own. Returns our end of its standard input and output.
fn start_connected(command: &mut Command) -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    let theirs = OwnedFd::from(theirs);
    command
        .stdin(Stdio::from(theirs.try_clone()?))
        .stdout(Stdio::from(theirs))
        .process_group(0)
        .spawn()?;
    Ok(ours)
}

/// Takes the keys that we use ourselves out of the environment of `command`.
fn without_keys(command: &mut Command) -> &mut Command {
    OWN_KEYS
        .into_iter()
        .fold(command, |command, key| command.env_remove(key))
}

/// Starts `agent` on our standard streams. Waits until it or the process at the other end of standard input has ended; then
/// terminates the agent's process group, and kills it. Returns the agent's exit code, or 1.
///
/// # Errors
/// If the agent cannot be started or waited for.
pub fn hold_agent(files: &Files, agent: &[OsString]) -> io::Result<u8> {
    let Some((program, arguments)) = agent.split_first() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    if let Some(file) = secret_file::inherited(files)? {
        secret_environment::install(file)?;
    }
    let mut agent = WithSecrets::of(Path::new(program), std::iter::empty())?;
    agent.command.args(arguments).process_group(0);
    let mut child = agent.spawn()?;
    secret_environment::close();
    let ended = pidfd_open(
        rustix::process::Pid::from_child(&child),
        PidfdFlags::empty(),
    )?;
    let stdin = io::stdin();
    // Only watches whether the other end has closed: its data is for the agent.
    let other = PollFd::new(stdin.as_fd(), PollFlags::empty());
    wait(
        &mut [PollFd::new(ended.as_fd(), PollFlags::POLLIN), other],
        PollTimeout::NONE,
    )?;
    let group = Pid::from_raw(child.id().cast_signed());
    // Processes that an ended agent left behind end too.
    let _ = killpg(group, Signal::SIGTERM);
    wait(
        &mut [PollFd::new(ended.as_fd(), PollFlags::POLLIN)],
        AGENT_ENDING_MS.into(),
    )?;
    let _ = killpg(group, Signal::SIGKILL);
    let status = child.wait()?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(1))
}

fn wait(watched: &mut [PollFd], limit: PollTimeout) -> io::Result<()> {
    loop {
        match poll(watched, limit) {
            Err(Errno::EINTR) => {}
            polled => return Ok(polled.map(drop)?),
        }
    }
}

/// The program with all commands, for the small one beside it.
///
/// # Errors
/// If this process does not know its own program.
pub(crate) fn main_program() -> io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name(MAIN))
}

/// The installed shell, for an agent that starts one.
///
/// # Errors
/// If there is none beside us.
pub fn shell() -> io::Result<PathBuf> {
    let shell = std::env::current_exe()?.with_file_name(SHELL);
    if shell.is_file() {
        Ok(shell)
    } else {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// Asks a program of the installation for its version: the text that it prints for `--version`.
///
/// # Errors
/// It cannot be started, or prints nothing in time.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one file that starts a program"
)]
pub fn version_of(_: &Files, program: &Path) -> io::Result<String> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_read_timeout(Some(VERSION_TIME))?;
    let mut command = Command::new(program);
    command.arg("--version").env_clear().current_dir("/");
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = command.stdout(OwnedFd::from(theirs)).spawn()?;
    // Its end of the socket closes with it.
    drop(command);
    let mut text = String::new();
    let read = ours.take(VERSION_MAX).read_to_string(&mut text);
    // One that serves somebody instead, as an older one may, is ended. If this fails, it has already exited.
    let _ = child.kill();
    child.wait()?;
    read.map(|_| text)
}

/// Runs the user's git outside any project and returns its output. A missing setting prints nothing.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one file that starts a program"
)]
pub fn git(_: &Files, words: &[&str]) -> io::Result<String> {
    // Not from `PATH`: it may contain a project.
    let places = ["/usr/bin/git", "/usr/local/bin/git", "/bin/git"].map(Path::new);
    let git = places
        .into_iter()
        .find(|path| path.is_file())
        .ok_or(io::ErrorKind::NotFound)?;
    let output = Command::new(git)
        .args(words)
        .current_dir("/")
        .stdin(Stdio::null())
        .output()?;
    match output.status.code() {
        Some(0 | 1) => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        _ => Err(io::Error::other(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        )),
    }
}

/// The executor's program, with links resolved if it exists.
pub fn program(named: Option<&Path>) -> PathBuf {
    let candidates = || candidates(NAME).map_or_else(|_| Vec::new(), Vec::from);
    let found = named
        .map(Path::to_owned)
        .or_else(|| candidates().into_iter().find(|path| path.exists()));
    let found = found.unwrap_or_else(|| NAME.into());
    found.canonicalize().unwrap_or(found)
}

/// Where a program of our release may be: beside us, or where packages put programs that nobody starts by hand.
fn candidates(name: &str) -> io::Result<[PathBuf; 2]> {
    let own = std::env::current_exe()?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let package = folder
        .parent()
        .unwrap_or(Path::new("/"))
        .join("libexec/lazaret");
    Ok([folder.join(name), package.join(name)])
}

/// The environment in which this process would start an executor, as `NAME=value`, sorted.
pub(crate) fn executors_environment(credentials: &BTreeSet<String>) -> Vec<Vec<u8>> {
    let withheld = |name: &OsString| {
        OWN_KEYS
            .iter()
            .any(|key| name == key && !credentials.contains(*key))
    };
    let own = std::env::vars_os().filter(|(name, _)| !withheld(name) && name != CANARY.0);
    let canary = (CANARY.0.into(), CANARY.1.into());
    let mut all: Vec<Vec<u8>> = own
        .chain([canary])
        .map(|(name, value): (OsString, OsString)| [name.as_bytes(), value.as_bytes()].join(&b'='))
        .collect();
    all.sort();
    all
}

/// Starts the executor `program` in the environment of a client, to stand ready; `line` is its standard input. Nobody waits for it
/// but [`Child::try_wait`].
///
/// # Errors
/// It cannot be started.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one file that starts a program"
)]
pub fn start_ready(
    _: &Files,
    program: &Path,
    environment: &[Vec<u8>],
    line: OwnedFd,
) -> io::Result<Child> {
    let variables = environment.iter().filter_map(|variable| {
        // A name may begin with `=`.
        let at = 1 + variable.iter().skip(1).position(|byte| *byte == b'=')?;
        Some((
            OsStr::from_bytes(&variable[..at]),
            OsStr::from_bytes(&variable[at + 1..]),
        ))
    });
    Command::new(program)
        .arg("ready")
        .env_clear()
        .envs(variables)
        .stdin(Stdio::from(line))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// Standard input is the executor's end of the socket. It gets no process group of its own, because it leaves ours with a session of
/// its own: Ctrl-C in the terminal is for the command, which gets it through us, and must not kill the broker around it. Nobody waits
/// for it: it ends when we do, and then our parent waits for both.
fn spawn_program(
    program: &Path,
    task: &str,
    credentials: &BTreeSet<String>,
    tickets: Option<&OwnedFd>,
) -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    // Keys for the network are ours: the executor needs none, except those that it passes to an agent in a cell.
    let withheld = OWN_KEYS
        .into_iter()
        .filter(|key| !credentials.contains(*key));
    let mut executor = WithSecrets::of(program, withheld)?;
    executor
        .command
        .arg(task)
        .args(tickets.map(|_| "--tickets"))
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .env(CANARY.0, CANARY.1)
        .stdout(match tickets {
            Some(line) => Stdio::from(line.try_clone()?),
            None => Stdio::null(),
        });
    executor.spawn()?;
    Ok(ours)
}
