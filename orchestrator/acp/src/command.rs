//! `lazaret acp`: its command line, the agent's environment, and the end of both.

use crate::calls::AgentCalls;
use crate::links::Links;
use crate::proxy::EditorProxy;
use crate::terminals::AgentTerminals;
use broker_protocol::{Failed, limit};
use clap::Args;
use orchestrator_config_edit::agent_settings;
use orchestrator_confine::{ConfinementProof, Needs};
use orchestrator_engine::Session;
use orchestrator_launch::groups::{
    ChoiceOptions, LogOption, NetworkOptions, Options, PathOptions, ProjectOption, VerboseOption,
};
use orchestrator_launch::launch::{FrontEnd, Launch};
use orchestrator_launch::row::{CommandAccess, CommandRow, NetworkUse, SessionCount, Writes};
use orchestrator_launch::runlog::{PAUSE, RunLog};
use orchestrator_launch::session_options::SessionOptions;
use orchestrator_launch::stdio::line_reader::StdinLines;
use orchestrator_launch::stdio::print;
use orchestrator_launch::stdio::signals::Signals;
use orchestrator_launch::stdio::streams::{InputStream, OutputStream, unusable};
use orchestrator_launch::{exit, start};
use orchestrator_text::known::redactor;
use orchestrator_tools::registry::Registry;
use orchestrator_tools::{ToolConfig, Toolbox};
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::mpsc;

/// How many lines may wait to be written.
const WAITING: usize = 16;
/// How long an agent may take to end after its editor is gone; then it is killed.
const ENDING: Duration = Duration::from_secs(2);
/// Variables in which agents look for their shell, if they have no setting for it.
const SHELLS: [&str; 3] = ["SHELL", "CLAUDE_CODE_SHELL", "GOOSE_SHELL"];

const EXAMPLES: &str = "\
Examples, as the command of an agent in an editor's settings:
  lazaret acp -- goose acp
  lazaret acp -- gemini --experimental-acp
  lazaret acp --trust guided -- claude-agent-acp

Agents that have their client read, write and run commands (Goose; Gemini CLI
for files) get cells for it. Those that do it themselves get `lazaret-bash` as
their shell, with the same scope and grants (LAZARET_OPTIONS); their own file
tools stay open: see `lazaret status`.

The project is --project, else the repository around the working directory; a
session of the editor in another directory is refused. With --trust, the
editor's user is asked about calls as the policy says.";

/// Stand between an editor and an ACP agent, with cells for its files and commands
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Acp {
    /// The program of the agent, and its arguments
    #[arg(last = true, required = true, value_name = "AGENT")]
    agent: Vec<OsString>,
    /// Hold the agent for another `lazaret acp`: standard input and output are its socket
    #[arg(long, hide = true)]
    hold: bool,
    #[command(flatten)]
    project: ProjectOption,
    #[command(flatten)]
    choice: ChoiceOptions,
    #[command(flatten)]
    network: NetworkOptions,
    #[command(flatten)]
    paths: PathOptions,
    #[command(flatten)]
    log: LogOption,
    #[command(flatten)]
    verbose: VerboseOption,
}

enum AcpEnd {
    Editor,
    Agent,
    Signal(u8),
}

impl Acp {
    fn options(&self) -> Options {
        Options::of(&self.project)
            .and(&self.choice)
            .and(&self.network)
            .and(&self.paths)
            .and(&self.log)
            .and(&self.verbose)
    }
}

impl FrontEnd for Acp {
    const ROW: CommandRow = CommandRow {
        name: "acp",
        sessions: SessionCount::Lasting { spare: 1 },
        access: CommandAccess::Confined {
            network: NetworkUse::None,
            writes: Writes::Nothing,
        },
        log: true,
        usage: exit::USAGE,
        exit: "0 at the end of the editor's input; 1 the agent has ended by itself; 2 wrong arguments; 125 lazaret failed; 127 there \
               is no such agent; 128+N if signal N ended it",
    };

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        if self.hold {
            return start::hold_agent(launch.files(), &self.agent)
                .map_err(|error| not_started(&self.agent, &error));
        }
        let program = self.agent.first();
        if !program.is_some_and(|program| start::is_there(program)) {
            let missing = io::Error::from_raw_os_error(nix::libc::ENOENT);
            print::problem(&not_started(&self.agent, &missing).message);
            return Ok(exit::NOT_FOUND);
        }
        let prepared = launch.prepare::<Self>(self.options())?;
        let (options, files) = (prepared.options(), prepared.files());
        let mut opening = options.open()?;
        let policy = options.policy().map_err(Failed::from)?;
        options.check(&policy)?;
        opening.open.network = options.network(Some(&policy));
        opening.open.file_leases = true;
        let root = PathBuf::from(&opening.open.project);
        // Before the agent reads them.
        agent_settings::check(files, &[&root], None)?;
        start::check_agent(&self.agent, &root)?;
        let timeout_s = policy.limits.timeout_max_s.unwrap_or(limit::TIMEOUT_S);
        let (hooks, endpoint) = (prepared.hooks()?, prepared.lasting_endpoint()?);
        let guard = hooks.guard(&opening.open, Rc::new(endpoint.clone()));
        let socket = endpoint.socket().map(Path::to_owned);
        let variables = variables(options, &root)?;
        let agent = start::start_agent(files, &self.agent, &variables)
            .map_err(|error| not_started(&self.agent, &error))?;
        let confined = prepared.confine(Needs {
            socket,
            ..Needs::default()
        });
        let config = ToolConfig {
            tools: Toolbox::new(Registry::under(Some(policy)), None),
            directory: opening.directory,
            executor: Some(Box::new(endpoint)),
            // An agent may write a file that it has not read here: its editor may have shown it the file.
            single_call: true,
            subscribers: vec![confined.log()],
            ..ToolConfig::new(opening.open, redactor(), guard)
        };
        let reason = |served: &Result<AcpEnd, Failed>| match served {
            Ok(end) => end.reason(),
            Err(_) => "the streams could not be used",
        };
        let (log, proof) = (confined.log(), confined.proof());
        let served = confined.run(reason, serve(config, root, timeout_s, agent, log, proof));
        let end = served?;
        if let AcpEnd::Agent = end {
            print::problem("the agent has ended");
        }
        Ok(end.code())
    }
}

impl AcpEnd {
    fn reason(&self) -> &'static str {
        match self {
            AcpEnd::Editor => "the input ended",
            AcpEnd::Agent => "the agent ended",
            AcpEnd::Signal(_) => "a signal ended it",
        }
    }

    fn code(self) -> u8 {
        match self {
            AcpEnd::Editor => exit::OK,
            AcpEnd::Agent => exit::FAILED,
            AcpEnd::Signal(number) => exit::SIGNAL + number,
        }
    }
}

fn not_started(agent: &[OsString], error: &io::Error) -> Failed {
    let program = agent
        .first()
        .map_or_else(Default::default, |program| program.to_string_lossy());
    Failed::internal(format!("the agent `{program}` cannot be started: {error}"))
}

/// Environment variables for an agent that runs its commands itself.
fn variables(
    options: &SessionOptions,
    root: &Path,
) -> Result<Vec<(&'static str, OsString)>, Failed> {
    let shell = start::shell().map_err(|error| {
        Failed::internal(format!(
            "lazaret-bash, which is installed beside lazaret, cannot be used: {error}"
        ))
    })?;
    let mut variables: Vec<(&str, OsString)> = SHELLS
        .iter()
        .map(|name| (*name, shell.clone().into_os_string()))
        .collect();
    variables.extend(options.for_shell(root)?);
    Ok(variables)
}

async fn serve(
    config: ToolConfig,
    root: PathBuf,
    timeout_s: u32,
    agent: UnixStream,
    log: Rc<RunLog>,
    proof: ConfinementProof,
) -> Result<AcpEnd, Failed> {
    let (input, output) = (
        InputStream::stdin().map_err(unusable)?,
        OutputStream::stdout().map_err(unusable)?,
    );
    let theirs = InputStream::of(agent.as_fd()).map_err(unusable)?;
    let ours = OutputStream::of(agent.as_fd()).map_err(unusable)?;
    let mut signals = Signals::listen(
        &[nix::libc::SIGTERM, nix::libc::SIGINT, nix::libc::SIGHUP],
        proof,
    )?;
    let (editor, to_editor) = mpsc::channel(WAITING);
    let (to_agent, of_agent) = mpsc::channel(WAITING);
    let links = Rc::new(Links::new(editor.clone(), to_agent));
    let session = Session::start(config, proof);
    let calls = Rc::new(AgentCalls::new(session.clone(), links.clone()));
    let proxy = Rc::new(EditorProxy {
        links,
        terminals: AgentTerminals::new(calls.clone(), timeout_s),
        calls,
        root,
    });
    tokio::task::spawn_local(log.write_later(PAUSE));
    tokio::task::spawn_local(ours.write_lines(of_agent));
    let mut telling_editor = tokio::task::spawn_local(output.write_lines(to_editor));
    let mut hearing_agent =
        tokio::task::spawn_local(proxy.clone().hear_agent(StdinLines::new(theirs)));
    let end = tokio::select! {
        () = proxy.hear_editor(StdinLines::new(input)) => AcpEnd::Editor,
        _ = &mut telling_editor => AcpEnd::Editor,
        _ = &mut hearing_agent => AcpEnd::Agent,
        number = signals.next() => AcpEnd::Signal(number as u8),
    };
    session.cancel_all();
    // The agent notices the end of its editor, and may clean up.
    let _ = agent.shutdown(std::net::Shutdown::Write);
    let ending = async {
        if !hearing_agent.is_finished() {
            let _ = hearing_agent.await;
        }
        // When all room is free, every line has been taken for writing.
        let _ = editor.reserve_many(WAITING).await;
    };
    let _ = tokio::time::timeout(ENDING, ending).await;
    Ok(end)
}
