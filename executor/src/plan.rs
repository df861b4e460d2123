//! From a granted request to who carries it out, and for a command to its whole work as data.

use crate::authorise::Granted;
use broker_protocol::{BackgroundLog, Bash, CallId, Command, Request, Service, Stdin, limit};
use executor_cell::{Capture, CellPlan, HeldPath, LeaseHandover};
use executor_layers::spec::SandboxSpec;
use policies::EffectivePolicy;
use serde_bytes::ByteBuf;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

/// Bytes of output that are kept in memory for each background process, half from the beginning and half from the end.
const BACKGROUND_KEPT: u64 = 2 * limit::LOG as u64;

/// Who carries a request out.
pub enum Work {
    /// A cell.
    Command(Box<CommandPlan>),
    File(Request),
    /// The broker itself, from its list of background processes.
    BackgroundList,
    /// The same, from one of them.
    BackgroundLog(BackgroundLog),
    /// The cell of this background process.
    BackgroundKill(u64),
    /// The client: the executor has no part in it. Which tool.
    Effect(String),
}

/// A command's work, and how the broker looks after it.
#[derive(Debug)]
pub struct CommandPlan {
    /// What its cell gets.
    pub cell: CellPlan,
    pub stdin: Stdin,
    pub live: bool,
    pub background: bool,
    /// Whether it lives as long as the session: nothing that it prints is kept or counted against a limit.
    pub service: bool,
    pub timeout_s: Option<u32>,
    pub idle_timeout_s: Option<u32>,
    /// For a cell with paths that are granted for a while, until there is one.
    pub leases: Option<LeaseHandover>,
    /// Those paths.
    pub granted: Vec<Rc<HeldPath>>,
    /// For both streams, or for standard output alone.
    pub output: Capture,
    /// For standard error, where it is kept apart.
    pub stderr: Option<Capture>,
    /// How many of the arguments are the tracer's.
    tracer: usize,
    /// Whether those behind are those of `bash -c` around a command of the client's.
    shell: bool,
    /// Made only from what was granted.
    _granted: (),
}

/// `capture` is how many bytes of a command's output its outcome holds.
pub fn plan(granted: Granted, spec: &SandboxSpec, capture: u64) -> Work {
    let (call, request) = granted.into_request();
    match request {
        Request::Bash(bash) => Work::Command(Box::new(command(call, bash, spec, capture))),
        Request::Service(wanted) => Work::Command(Box::new(service(wanted, spec))),
        Request::BackgroundList => Work::BackgroundList,
        Request::BackgroundLog(log) => Work::BackgroundLog(log),
        Request::BackgroundKill(kill) => Work::BackgroundKill(kill.id),
        Request::Effect(effect) => Work::Effect(effect.tool().to_owned()),
        request @ (Request::FileRead(_)
        | Request::FileWrite(_)
        | Request::FileEdit(_)
        | Request::FileList(_)
        | Request::Glob(_)
        | Request::Grep(_)
        | Request::History(_)
        | Request::Undo(_)
        | Request::FileBytes(_)
        | Request::State(_)) => Work::File(request),
    }
}

fn command(call: CallId, bash: Bash, spec: &SandboxSpec, capture: u64) -> CommandPlan {
    let timeout_s = time_limit(&spec.policy, &bash);
    let directory = spec.directory(bash.directory.as_ref());
    let (shell, mut arguments) = arguments(bash.command);
    let tracer = spec.tracer.as_ref().map(|path| [path.as_os_str().as_bytes(), b"run"].map(ByteBuf::from));
    let tracer: Vec<_> = tracer.into_iter().flatten().collect();
    let traced = tracer.len();
    arguments.splice(..0, tracer);
    let terminal = match &bash.stdin {
        Stdin::Terminal(terminal) => Some(terminal.term.clone()),
        Stdin::Null | Stdin::Stream => None,
    };
    let kept = if bash.background { BACKGROUND_KEPT } else { capture };
    let parts = if bash.split { 2 } else { 1 };
    let spill = spec.policy.limits.spill;
    let new = |suffix| Capture::new(kept / parts, spill / parts, &spec.central, spill_name(call, suffix));
    CommandPlan {
        cell: CellPlan {
            arguments,
            terminal,
            directory: directory.display().to_string(),
            environment: Vec::new(),
            unset: Vec::new(),
        },
        live: bash.live && !bash.background,
        background: bash.background,
        service: false,
        timeout_s,
        idle_timeout_s: bash.idle_timeout_s,
        leases: None,
        granted: Vec::new(),
        output: new(""),
        stderr: bash.split.then(|| new("-stderr")),
        stdin: bash.stdin,
        tracer: traced,
        shell,
        _granted: (),
    }
}

fn service(wanted: Service, spec: &SandboxSpec) -> CommandPlan {
    let Service { name: _, command, directory, environment } = wanted;
    let directory = spec.directory(directory.as_ref()).display().to_string();
    let (shell, arguments) = arguments(command);
    CommandPlan {
        cell: CellPlan { arguments, terminal: None, directory, environment, unset: Vec::new() },
        stdin: Stdin::Stream,
        live: true,
        background: false,
        service: true,
        timeout_s: spec.policy.scope_timeout("bash"),
        idle_timeout_s: None,
        leases: None,
        granted: Vec::new(),
        output: Capture::nothing(),
        stderr: Some(Capture::nothing()),
        tracer: 0,
        shell,
        _granted: (),
    }
}

/// A command as arguments, and whether these are a shell's around it.
fn arguments(command: Command) -> (bool, Vec<ByteBuf>) {
    match command {
        Command::Shell(text) => (true, shell_arguments(&text)),
        Command::Arguments(arguments) => (false, arguments),
    }
}

/// What comes before the pieces of a command that is longer than one argument may be. The shell puts them together, and forgets
/// that they were arguments.
const JOIN: [&str; 4] = ["bash", "-c", r#"IFS=; REPLY="$*"; unset IFS; set --; eval "${REPLY}""#, "bash"];

fn shell_arguments(text: &str) -> Vec<ByteBuf> {
    let word = |word: &str| ByteBuf::from(word.as_bytes());
    if text.len() <= limit::ARGUMENT {
        return ["bash", "-c", text].map(word).into();
    }
    let pieces = text.as_bytes().chunks(limit::ARGUMENT).map(ByteBuf::from);
    JOIN.map(word).into_iter().chain(pieces).collect()
}

impl CommandPlan {
    /// Whether a client waits for its end, so that what comes after it is made ready then.
    pub fn is_waited_for(&self) -> bool {
        !self.background && !self.service
    }

    /// The client's command, where it is text.
    pub fn command(&self) -> Option<Command> {
        match self.words() {
            [text] if self.shell => String::from_utf8(text.to_vec()).ok().map(Command::Shell),
            words => Some(Command::Arguments(words.to_vec())),
        }
    }

    /// The client's words; of a command for the shell that is longer than an argument may be, its pieces.
    pub fn words(&self) -> &[ByteBuf] {
        match (self.shell, self.cell.arguments.get(self.tracer..).unwrap_or_default()) {
            (true, [_, _, text]) => std::slice::from_ref(text),
            (true, arguments) => &arguments[JOIN.len().min(arguments.len())..],
            (false, arguments) => arguments,
        }
    }
}

/// The wall time of a command. One at a terminal has none unless it asks: a person is there to end it. Nor has one in the
/// background, which the session's end ends. What the scope gives commands holds for these too.
fn time_limit(policy: &EffectivePolicy, bash: &Bash) -> Option<u32> {
    let endless = bash.background || matches!(bash.stdin, Stdin::Terminal(_));
    match bash.timeout_s.or_else(|| policy.scope_timeout("bash")) {
        None if endless => None,
        asked => policy.timeout(asked),
    }
}

/// Unique in a central root that many sessions share, one after the other and side by side.
pub fn spill_name(call: CallId, suffix: &str) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}-{call}{suffix}.log", now.as_micros(), std::process::id())
}
