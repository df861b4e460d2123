//! Turns a granted request into work for one component; for a command, into all of its work as data.

use crate::authorise::Granted;
use broker_protocol::{
    BackgroundLog, Bash, CallId, Command, Effect, Request, Service, Stdin, limit,
};
use executor_leases::HeldPath;
use executor_leases::LeaseHandover;
use executor_project::capture::Capture;
use executor_spec::cell_order::CellPlan;
use executor_spec::sandbox::SandboxSpec;
use policies::EffectivePolicy;
use serde_bytes::ByteBuf;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

/// Bytes of output kept in memory for each background process: half from the beginning, half from the end.
const BACKGROUND_KEPT: u64 = 2 * limit::LOG as u64;

/// The part of the executor that carries a request out.
pub(crate) enum Work {
    /// A command, run by a cell.
    Command(Granted<Box<CommandPlan>>),
    File(Granted),
    /// The broker answers from its list of background processes.
    BackgroundList(Granted<()>),
    /// The broker answers with the output of one background process.
    BackgroundLog(Granted<BackgroundLog>),
    /// The broker kills this background process.
    BackgroundKill(Granted<u64>),
    /// The client carries out this tool itself; the executor has no part in it.
    Effect(Granted<Effect>),
}

/// A command's work, and how the broker handles it.
#[derive(Debug)]
pub(crate) struct CommandPlan {
    /// The plan that its cell receives.
    pub cell: CellPlan,
    pub stdin: Stdin,
    pub live: bool,
    pub background: bool,
    /// Whether it is a service, which lives as long as the session: its output is neither stored nor limited.
    pub service: bool,
    /// Whether a person has started it.
    pub attended: bool,
    pub timeout_s: Option<u32>,
    pub idle_timeout_s: Option<u32>,
    /// Leases of paths for its cell, until that is made.
    pub leases: Option<LeaseHandover>,
    /// The paths of these leases.
    pub granted: Vec<Rc<HeldPath>>,
    /// Captures both streams, or standard output alone.
    pub output: Capture,
    /// Captures standard error, if it is kept separate.
    pub stderr: Option<Capture>,
    /// How many of the arguments belong to the tracer.
    tracer: usize,
    /// Whether the arguments after those are `bash -c` with the client's command.
    shell: bool,
}

/// Plans a granted request; `capture` is the maximum of output bytes in a command's outcome.
pub(crate) fn plan(granted: Granted, spec: &SandboxSpec, capture: u64) -> Work {
    let call = granted.call();
    let (permit, request) = granted.into_parts();
    match request {
        Request::Bash(bash) => {
            let plan = Box::new(command(call, bash, spec, capture));
            Work::Command(permit.for_work(plan))
        }
        Request::Service(wanted) => Work::Command(permit.for_work(Box::new(service(wanted, spec)))),
        Request::BackgroundList => Work::BackgroundList(permit.for_work(())),
        Request::BackgroundLog(log) => Work::BackgroundLog(permit.for_work(log)),
        Request::BackgroundKill(kill) => Work::BackgroundKill(permit.for_work(kill.id)),
        Request::Effect(effect) => Work::Effect(permit.for_work(effect)),
        request @ (Request::FileRead(_)
        | Request::FileWrite(_)
        | Request::FileEdit(_)
        | Request::FileList(_)
        | Request::Glob(_)
        | Request::Grep(_)
        | Request::History(_)
        | Request::Undo(_)
        | Request::FileBytes(_)
        | Request::State(_)) => Work::File(permit.for_work(request)),
    }
}

fn command(call: CallId, bash: Bash, spec: &SandboxSpec, capture: u64) -> CommandPlan {
    let timeout_s = time_limit(&spec.policy, &bash);
    let directory = spec.directory(bash.directory.as_ref());
    let (shell, mut arguments) = arguments(bash.command);
    let tracer = spec
        .tracer
        .as_ref()
        .map(|path| [path.as_os_str().as_bytes(), b"run"].map(ByteBuf::from));
    let tracer: Vec<_> = tracer.into_iter().flatten().collect();
    let traced = tracer.len();
    arguments.splice(..0, tracer);
    let terminal = match &bash.stdin {
        Stdin::Terminal(terminal) => Some(terminal.term.clone()),
        Stdin::Null | Stdin::Stream => None,
    };
    let kept = if bash.background {
        BACKGROUND_KEPT
    } else {
        capture
    };
    let parts = if bash.split { 2 } else { 1 };
    let spill = spec.policy.limits.spill;
    let new = |suffix| {
        Capture::new(
            kept / parts,
            spill / parts,
            &spec.central,
            spill_name(call, suffix),
        )
    };
    CommandPlan {
        cell: CellPlan {
            call: if bash.background { 0 } else { call },
            arguments,
            terminal,
            directory: directory.display().to_string(),
            ..CellPlan::default()
        },
        live: bash.live && !bash.background,
        background: bash.background,
        service: false,
        attended: bash.attended || matches!(bash.stdin, Stdin::Terminal(_)),
        timeout_s,
        idle_timeout_s: bash.idle_timeout_s,
        leases: None,
        granted: Vec::new(),
        output: new(""),
        stderr: bash.split.then(|| new("-stderr")),
        stdin: bash.stdin,
        tracer: traced,
        shell,
    }
}

fn service(wanted: Service, spec: &SandboxSpec) -> CommandPlan {
    let Service {
        name: _,
        command,
        directory,
        environment,
    } = wanted;
    let directory = spec.directory(directory.as_ref()).display().to_string();
    let (shell, arguments) = arguments(command);
    CommandPlan {
        cell: CellPlan {
            arguments,
            directory,
            environment,
            ..CellPlan::default()
        },
        stdin: Stdin::Stream,
        live: true,
        background: false,
        service: true,
        attended: false,
        timeout_s: spec.policy.scope_timeout("bash"),
        idle_timeout_s: None,
        leases: None,
        granted: Vec::new(),
        output: Capture::nothing(),
        stderr: Some(Capture::nothing()),
        tracer: 0,
        shell,
    }
}

/// A command's arguments, and whether they are a shell's that runs it.
fn arguments(command: Command) -> (bool, Vec<ByteBuf>) {
    match command {
        Command::Shell(text) => (true, shell_arguments(&text)),
        Command::Arguments(arguments) => (false, arguments),
    }
}

/// The arguments before the pieces of a command that is too long for one argument. The shell joins
/// the pieces and clears its positional parameters.
const JOIN: [&str; 4] = [
    "bash",
    "-c",
    r#"IFS=; REPLY="$*"; unset IFS; set --; eval "${REPLY}""#,
    "bash",
];

fn shell_arguments(text: &str) -> Vec<ByteBuf> {
    let word = |word: &str| ByteBuf::from(word.as_bytes());
    if text.len() <= limit::ARGUMENT {
        return ["bash", "-c", text].map(word).into();
    }
    let pieces = text.as_bytes().chunks(limit::ARGUMENT).map(ByteBuf::from);
    JOIN.map(word).into_iter().chain(pieces).collect()
}

impl CommandPlan {
    /// Whether a client waits for its end, so that the next call's cell is prepared then.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.background && !self.service
    }

    /// The client's command, if it is text.
    pub(crate) fn command(&self) -> Option<Command> {
        match self.words() {
            [text] if self.shell => String::from_utf8(text.to_vec()).ok().map(Command::Shell),
            words => Some(Command::Arguments(words.to_vec())),
        }
    }

    /// The client's arguments; for a shell command too long for one argument, its pieces.
    pub(crate) fn words(&self) -> &[ByteBuf] {
        match (
            self.shell,
            self.cell.arguments.get(self.tracer..).unwrap_or_default(),
        ) {
            (true, [_, _, text]) => std::slice::from_ref(text),
            (true, arguments) => &arguments[JOIN.len().min(arguments.len())..],
            (false, arguments) => arguments,
        }
    }
}

/// The time limit of a command. One that a person has started has none unless the person or the policy sets one for it. In the
/// background it has none unless it requests one: it ends with the session. A scope's limit for commands applies to both.
fn time_limit(policy: &EffectivePolicy, bash: &Bash) -> Option<u32> {
    let is_at_terminal = matches!(bash.stdin, Stdin::Terminal(_));
    match bash.timeout_s.or_else(|| policy.scope_timeout("bash")) {
        // Nobody is thrown out of a shell.
        None if bash.background || is_at_terminal => None,
        asked if bash.attended || is_at_terminal => policy.attended_timeout(asked),
        asked => policy.timeout(asked),
    }
}

/// A name unique in a central root that many sessions share, in sequence and concurrently.
pub(crate) fn spill_name(call: CallId, suffix: &str) -> String {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    format!(
        "{}-{}-{call}{suffix}.log",
        now.as_micros(),
        std::process::id()
    )
}
