//! Commands that run to their end, with all that they print.

use crate::calls::{CallEvent, SandboxCalls};
use crate::fault::{FaultKind, SandboxFault};
use broker_protocol::{Bash, Command, Ended, ErrorKind, Request, Stdin, ZonePath};
use nix::libc::{EACCES, ENOENT, ENOTDIR, EPERM};
use orchestrator_engine::{CallResult, Invocation, LiveOutput};
use orchestrator_results::findings;
use serde_bytes::ByteBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Bytes of each stream that an answer has: both together fit into the four MiB of a gRPC message. What a command prints beyond is
/// dropped, and standard error says how much.
pub(crate) const OUTPUT_MAX: usize = 1 << 20;

/// A command as a client describes it.
#[derive(Debug)]
pub(crate) struct CommandOrder {
    pub command: Command,
    /// `None` for the project root.
    pub directory: Option<ZonePath>,
    /// How long it may take; the policy's default if absent, and never above its maximum.
    pub time: Option<Duration>,
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct EndedCommand {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub(crate) how: HowEnded,
}

/// How a command ended by itself, or was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HowEnded {
    Exited(i32),
    Signalled(i32),
    /// At its time limit, or that of its silence.
    TimedOut,
    /// A limit of the policy ended it, which standard error names.
    Limited,
}

/// What a stream prints, up to its limit.
#[derive(Default)]
struct Printed {
    bytes: Vec<u8>,
    dropped: u64,
}

impl Printed {
    fn push(&mut self, bytes: &[u8]) {
        let room = OUTPUT_MAX - self.bytes.len();
        let (fits, rest) = bytes.split_at(bytes.len().min(room));
        self.bytes.extend_from_slice(fits);
        self.dropped += rest.len() as u64;
    }

    fn note(&self, name: &str) -> Option<String> {
        (self.dropped > 0).then(|| {
            format!(
                "{} more bytes of {name} were dropped: an answer has at most {OUTPUT_MAX}",
                self.dropped
            )
        })
    }
}

/// The request of `order`. Its streams stay apart, except those of a terminal.
pub(crate) fn request_of(order: CommandOrder, stdin: Stdin) -> Request {
    let split = !matches!(stdin, Stdin::Terminal(_));
    Request::Bash(Bash {
        command: order.command,
        directory: order.directory,
        timeout_s: order.time.map(whole_seconds),
        idle_timeout_s: None,
        stdin,
        live: true,
        background: false,
        split,
        attended: false,
    })
}

/// The seconds that a command may take at least this long; our own timer ends it earlier.
fn whole_seconds(time: Duration) -> u32 {
    let seconds = time.as_millis().div_ceil(1000);
    let most = u128::from(broker_protocol::limit::TIMEOUT_S);
    u32::try_from(seconds.clamp(1, most)).unwrap_or(1)
}

/// The arguments of a program that is started without a shell, with variables if there are any.
///
/// # Errors
/// A name is none of a variable, or there is no program.
pub(crate) fn arguments<'v>(
    words: &[String],
    variables: impl IntoIterator<Item = (&'v String, &'v String)>,
) -> Result<Command, SandboxFault> {
    let is_name =
        |name: &str| !name.is_empty() && !name.starts_with('-') && !name.contains(['=', '\0']);
    let mut all: Vec<String> = Vec::new();
    for (name, value) in variables {
        if !is_name(name) {
            return Err(SandboxFault::invalid(format!(
                "{name:?} is no name of a variable"
            )));
        }
        all.push(format!("{name}={value}"));
    }
    let Some(program) = words.first().filter(|program| !program.is_empty()) else {
        return Err(SandboxFault::invalid("a command is required"));
    };
    if !all.is_empty() {
        // `env` would take it for one more variable.
        if program.contains('=') {
            return Err(SandboxFault::invalid(
                "with variables, a program has no `=`",
            ));
        }
        all.sort();
        all.insert(0, "env".to_owned());
    }
    all.extend(words.iter().cloned());
    Ok(Command::Arguments(
        all.into_iter().map(ByteBuf::from).collect(),
    ))
}

/// Runs a command to its end.
///
/// # Errors
/// It was not run, or somebody else ended it.
pub(crate) async fn run(
    calls: &Rc<SandboxCalls>,
    order: CommandOrder,
) -> Result<EndedCommand, SandboxFault> {
    let deadline = order.time.map(|time| Instant::now() + time);
    let wanted = request_of(order, Stdin::Null);
    wanted
        .check()
        .map_err(|error| SandboxFault::invalid(error.to_string()))?;
    let mut call = calls
        .make(Invocation::Request(wanted), LiveOutput::Sanitized, deadline)
        .await?;
    let mut streams = [Printed::default(), Printed::default()];
    let result = loop {
        match call.next().await? {
            CallEvent::Output { stderr, bytes } => streams[usize::from(stderr)].push(&bytes),
            CallEvent::Ended(result) => break result,
            CallEvent::RequestSent => {}
        }
    };
    let how = how(&result)?;
    let [stdout, mut stderr] = streams;
    let dropped = [
        stdout.note("standard output"),
        stderr.note("standard error"),
    ];
    let notes = dropped.into_iter().flatten().chain(notes(&result));
    for note in notes {
        if stderr.bytes.last().is_some_and(|last| *last != b'\n') {
            stderr.bytes.push(b'\n');
        }
        stderr
            .bytes
            .extend_from_slice(format!("lazaret: {note}\n").as_bytes());
    }
    Ok(EndedCommand {
        stdout: stdout.bytes,
        stderr: stderr.bytes,
        how,
    })
}

/// What a reader of standard error has to know of a result that its command cannot have printed.
pub(crate) fn notes(result: &CallResult) -> impl Iterator<Item = String> {
    let found = findings::lines(result.findings());
    let denied = result.denials().next().is_some();
    let why = result
        .error
        .as_ref()
        .filter(|failed| failed.kind != ErrorKind::ExitNonzero || denied)
        .map(|failed| failed.message.clone());
    found.into_iter().chain(why)
}

/// How the command of a call ended.
///
/// # Errors
/// It was not run, or was cancelled.
pub(crate) fn how(result: &Arc<CallResult>) -> Result<HowEnded, SandboxFault> {
    let fault = |kind| {
        let message = result.error.as_ref().map(|failed| failed.message.clone());
        SandboxFault::new(kind, message.unwrap_or_default())
    };
    match result.ended {
        Some(Ended::Exited(code)) => Ok(HowEnded::Exited(code)),
        Some(Ended::Signalled(number)) => Ok(HowEnded::Signalled(number)),
        Some(Ended::TimedOut | Ended::Idle) => Ok(HowEnded::TimedOut),
        Some(Ended::Limited(_)) => Ok(HowEnded::Limited),
        Some(Ended::Cancelled) => match result.error.as_ref().map(|failed| failed.kind) {
            Some(ErrorKind::Timeout) => Ok(HowEnded::TimedOut),
            Some(_) | None => Err(fault(FaultKind::Unavailable)),
        },
        Some(Ended::NotStarted(errno) | Ended::NoDirectory(errno)) => {
            Err(fault(not_started(errno)))
        }
        None => Err(result
            .error
            .as_ref()
            .map_or_else(|| fault(FaultKind::Internal), SandboxFault::from)),
    }
}

fn not_started(errno: i32) -> FaultKind {
    match errno {
        ENOENT | ENOTDIR => FaultKind::NotFound,
        EACCES | EPERM => FaultKind::PermissionDenied,
        _ => FaultKind::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_ends_at_its_limit_and_says_so() {
        let mut printed = Printed::default();
        printed.push(&vec![b'x'; OUTPUT_MAX - 1]);
        printed.push(b"yz");
        printed.push(b"w");
        assert_eq!(printed.bytes.len(), OUTPUT_MAX);
        assert_eq!(printed.bytes.last(), Some(&b'y'));
        assert!(printed.note("x").unwrap().starts_with("2 more bytes of x"));
        let mut whole = Printed::default();
        whole.push(&vec![b'x'; OUTPUT_MAX]);
        assert_eq!(whole.note("x"), None);
    }

    #[test]
    fn variables_precede_their_program() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let made = |line: &[&str], variables: &[(&str, &str)]| {
            let (line, pairs): (Vec<String>, Vec<(String, String)>) = (
                words(line),
                variables
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                    .collect(),
            );
            let made = arguments(&line, pairs.iter().map(|(name, value)| (name, value)));
            made.map(|command| match command {
                Command::Arguments(words) => words
                    .iter()
                    .map(|word| String::from_utf8_lossy(word).into_owned())
                    .collect::<Vec<_>>()
                    .join("|"),
                Command::Shell(text) => text,
            })
            .map_err(|fault| fault.kind)
        };
        assert_eq!(made(&["a", "-x"], &[]), Ok("a|-x".into()));
        assert_eq!(
            made(&["a", "b"], &[("Y", "2"), ("X", "1 =")]),
            Ok("env|X=1 =|Y=2|a|b".into())
        );
        for (line, variables) in [
            (&[][..], &[][..]),
            (&[""], &[]),
            (&["a"], &[("", "x")]),
            (&["a"], &[("-i", "x")]),
            (&["a"], &[("A=B", "x")]),
            (&["a"], &[("A\0", "x")]),
            (&["X=1"], &[("A", "x")]),
        ] {
            assert_eq!(made(line, variables), Err(FaultKind::InvalidArgument));
        }
    }

    #[test]
    fn a_limit_in_seconds_is_never_shorter_than_the_time() {
        for (millis, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (u64::MAX, 86_400)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds);
        }
    }
}
