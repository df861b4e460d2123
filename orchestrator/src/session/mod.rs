//! `lazaret session`: many calls in one session, over lines of JSON.

use crate::tool_options::{ToolOptions, ViolationOptions};
use broker_protocol::{Failed, Open};
use clap::Args;
use orchestrator_confine::{ConfinementProof, Needs};
use orchestrator_engine::executor::Dial;
use orchestrator_engine::{HookGuard, Session as EngineSession};
use orchestrator_launch::exit;
use orchestrator_launch::groups::{Options, WorkOptions};
use orchestrator_launch::launch::{FrontEnd, Launch};
use orchestrator_launch::parent::Parent;
use orchestrator_launch::row::{CommandAccess, CommandRow, NetworkUse, SessionCount, Writes};
use orchestrator_launch::runlog::{PAUSE, RunLog};
use orchestrator_launch::stdio::line_reader::StdinLines;
use orchestrator_launch::stdio::print;
use orchestrator_launch::stdio::signals::Signals;
use orchestrator_launch::stdio::streams::{InputStream, OutputStream, unusable};
use orchestrator_lines::calls::ClientCalls;
use orchestrator_lines::line_loop::LineLoop;
use orchestrator_lines::writer::{OutputClosed, Writer};
use orchestrator_mcp_client::SessionServers;
use orchestrator_telemetry::ExportOptions;
use orchestrator_wire::error::ErrorBody;
use orchestrator_wire::event_line::EventLine;
use orchestrator_wire::ready::Announced;
use policies::network::Leasing;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::timeout;

/// How long pending calls may take to end when the session is ended from outside.
const ENDING: Duration = Duration::from_secs(5);

const EXAMPLES: &str = r#"In, one object a line; `op` may be left out where a key says it:
  {"op":"call","id":1,"tool":"bash","input":{"command":"make","timeout":60}}
  {"op":"call","id":2,"tool":"bash","input":{"command":"npm ci"},
      "wants":{"hosts":["registry.npmjs.org:443"]}}     with --leases
  {"op":"stdin","id":1,"stdin":"text"}     or "stdinBase64"; "stdinEnd":true
  {"op":"cancel","id":1}
  {"op":"approve","id":1,"approve":"once"}     or "session", {"minutes":10},
      "no", "no_and_stop"
  {"op":"grants","id":2}     {"op":"revoke","id":2,"revoke":1}
  {"op":"register","id":3,"register":{"name":"deploy","description":"...",
      "inputSchema":{"type":"object"},"risk":"high","timeout":60}}
  {"op":"unregister","id":3,"unregister":"deploy"}     {"op":"tools","id":3}
  {"op":"result","id":4,"result":"done"}     the answer to an "execute"
  {"op":"error","id":4,"error":{"code":"io","message":"..."}}
Out:
  "ready" first; of a call "output", "approval", "security_event", "execute",
  and exactly one "result"; "grants", "registered", "unregistered", "tools",
  "notice"; "fault" where no session opens.
All of it is described in orchestrator/lines/README.md of the sources.

Without --trust no call is asked about: a client that knows nothing of approvals
could not answer. At the end of the input, calls under way are waited for.
SIGTERM, SIGINT, SIGHUP and the end of the process that started this one cancel
the calls under way and end the session."#;

/// Speak JSON lines: many calls at once in one session
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Session {
    #[command(flatten)]
    tools: ToolOptions,
    #[command(flatten)]
    export: ExportOptions,
    #[command(flatten)]
    violations: ViolationOptions,
    /// Go on when the process that started this one ends, until the input does
    #[arg(long)]
    outlive_parent: bool,
    /// Ask for hosts, ports and paths that a call `wants`, by an `approval`; commands have the proxy then, whatever it lets them reach
    #[arg(long)]
    leases: bool,
    #[command(flatten)]
    work: WorkOptions,
}

impl FrontEnd for Session {
    const ROW: CommandRow = CommandRow {
        name: "session",
        sessions: SessionCount::Lasting { spare: 1 },
        access: CommandAccess::Confined {
            network: NetworkUse::Always,
            writes: Writes::Servers,
        },
        log: true,
        usage: exit::USAGE,
        exit: "0 at the end of the input; 2 wrong arguments; 3 at its end after too many violations; 125 no session could be opened, \
               or the output cannot be written; 128+N if signal N ended it (129 also: the process that started this one has ended; \
               141 nobody reads the output)",
    };

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        let prepared = launch.prepare::<Self>(Options::of(&self.work))?;
        let options = prepared.options();
        let mut telemetry = self.export.begin(print::problem)?;
        let parent = if self.outlive_parent {
            Parent::ignored()
        } else {
            Parent::now()
        };
        let mut opening = options.open()?;
        let policy = options.policy();
        opening.open.network =
            options.network_with(policy.as_ref().ok(), Leasing::offered_if(self.leases));
        let max_violations = self.violations.max(options.trust());
        let (open, directory) = (&opening.open, opening.directory.as_ref());
        let announced =
            Announced::new(&policy, open, directory, max_violations).chosen(&opening.choice);
        let hooks = prepared.hooks()?;
        let endpoint = prepared.lasting_endpoint();
        let guard = |open: &Open| match &endpoint {
            Ok(endpoint) => hooks.guard(open, Rc::new(endpoint.clone())),
            // No session opens, and so no call is made.
            Err(_) => HookGuard::NoHooks,
        };
        let mut config = self.tools.config(opening, policy, guard)?;
        config.max_violations = max_violations;
        let mut servers = SessionServers::of(prepared.files(), &config.open, print::problem);
        let mut socket = None;
        if let Ok(endpoint) = &endpoint {
            servers.reach(Rc::new(endpoint.clone()));
            socket = endpoint.socket().map(Path::to_owned);
        }
        let confined = prepared.confine(Needs {
            web: true,
            socket,
            write: servers.directories(),
            ..Needs::default()
        });
        let (log, proof) = (confined.log(), confined.proof());
        let reason = |served: &Result<SessionEnd, Failed>| match served {
            Ok(end) => end.reason(),
            Err(_) => "no session could be opened",
        };
        let served = confined.run(reason, async {
            telemetry.start();
            let writer = Writer::new(OutputStream::stdout().map_err(unusable)?);
            config.executor = match endpoint {
                Ok(endpoint) => Some(Box::new(endpoint) as Box<dyn Dial>),
                Err(error) => return fault(&writer, error.into()).await,
            };
            servers.attach(config.tools.registry()).await;
            config.subscribers = vec![log.clone()];
            let session = EngineSession::start(config, proof);
            servers.follow(&session);
            let (calls, executions) =
                ClientCalls::new(session, writer, announced, self.tools.is_raw());
            let handing_out = calls.clone();
            tokio::task::spawn_local(async move { handing_out.hand_out(executions).await });
            let served = serve(calls, &parent, &log, proof).await;
            servers.close().await;
            telemetry.end().await;
            served
        });
        served.map(SessionEnd::code)
    }
}

/// Why a session has ended.
enum SessionEnd {
    Input,
    Violations,
    Unread,
    /// The output could not be written.
    Unwritten,
    Signal(u8),
    /// The process that started this one has ended.
    Parent,
}

impl SessionEnd {
    fn reason(&self) -> &'static str {
        match self {
            SessionEnd::Input => "the input ended",
            SessionEnd::Violations => "there were too many violations",
            SessionEnd::Unread => "nobody reads the output",
            SessionEnd::Unwritten => "the output cannot be written",
            SessionEnd::Signal(_) => "a signal ended it",
            SessionEnd::Parent => "the process that started it has ended",
        }
    }

    fn code(self) -> u8 {
        match self {
            SessionEnd::Input => exit::OK,
            SessionEnd::Violations => exit::VIOLATION,
            SessionEnd::Unread => exit::SIGNAL + nix::libc::SIGPIPE as u8,
            SessionEnd::Unwritten => exit::LAZARET,
            SessionEnd::Signal(number) => exit::SIGNAL + number,
            // The same exit code as after a hangup of the terminal.
            SessionEnd::Parent => exit::SIGNAL + nix::libc::SIGHUP as u8,
        }
    }

    /// Whether this end cancels pending calls.
    fn cancels(&self) -> bool {
        matches!(self, SessionEnd::Signal(_) | SessionEnd::Parent)
    }

    /// Waits until the output can no longer be written.
    async fn of_output(writer: &Writer) -> Self {
        let error = writer.closed().await;
        if error.kind() == io::ErrorKind::BrokenPipe {
            return SessionEnd::Unread;
        }
        print::problem(&format!("cannot write the output: {error}"));
        SessionEnd::Unwritten
    }

    /// Waits until a signal or the end of the parent ends the session.
    async fn from_outside(signals: &mut Signals, parent: &Parent) -> Self {
        tokio::select! {
            number = signals.next() => SessionEnd::Signal(number as u8),
            () = parent.ended() => SessionEnd::Parent,
        }
    }
}

async fn serve(
    calls: Rc<ClientCalls>,
    parent: &Parent,
    log: &Rc<RunLog>,
    proof: ConfinementProof,
) -> Result<SessionEnd, Failed> {
    let mut lines = StdinLines::new(InputStream::stdin().map_err(unusable)?);
    let mut signals = Signals::listen(
        &[nix::libc::SIGTERM, nix::libc::SIGINT, nix::libc::SIGHUP],
        proof,
    )?;
    let opened = tokio::select! {
        opened = calls.open() => opened,
        end = SessionEnd::from_outside(&mut signals, parent) => return Ok(end),
    };
    if let Err(failed) = opened {
        return fault(calls.writer(), failed).await;
    }
    tokio::task::spawn_local(log.clone().write_later(PAUSE));
    let line_loop = LineLoop::new(calls.clone());
    // A task of its own: a line wakes it alone, and not also what waits for signals here.
    let mut reading = tokio::task::spawn_local(async move { line_loop.run(&mut lines).await });
    let end = tokio::select! {
        _ = &mut reading => if calls.are_over() { SessionEnd::Violations } else { SessionEnd::Input },
        end = SessionEnd::of_output(calls.writer()) => end,
        end = SessionEnd::from_outside(&mut signals, parent) => end,
    };
    reading.abort();
    if end.cancels() {
        calls.cancel_all();
        // A stuck executor or reader must not delay the end.
        let _ = timeout(ENDING, calls.finish()).await;
    }
    Ok(end)
}

/// Reports that no session could be opened.
async fn fault(writer: &Writer, failed: Failed) -> Result<SessionEnd, Failed> {
    match writer
        .line(&EventLine::Fault {
            error: ErrorBody::from(&failed),
        })
        .await
    {
        Ok(()) => Err(failed),
        Err(OutputClosed) => Ok(SessionEnd::of_output(writer).await),
    }
}
