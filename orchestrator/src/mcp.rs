//! `lazaret mcp`: serves the tools of a session to an MCP client, over standard input and output.

use crate::servers::{NESTED, ServersCommand};
use crate::tool_options::{ToolOptions, ViolationOptions, registry};
use broker_protocol::{Channel, Failed, NetworkRequest, Open, Scope, Trust};
use clap::Args;
use clap::builder::PossibleValuesParser;
use orchestrator_config_edit::CLIENTS;
use orchestrator_config_edit::agent_settings;
use orchestrator_confine::{ConfinementProof, Files, Needs};
use orchestrator_engine::Session;
use orchestrator_launch::endpoint::Endpoint;
use orchestrator_launch::examiner::Examiner;
use orchestrator_launch::exit;
use orchestrator_launch::groups::{Options, WorkOptions};
use orchestrator_launch::hooks::UserHooks;
use orchestrator_launch::launch::{ErrorForm, FrontEnd, Launch};
use orchestrator_launch::project::Project;
use orchestrator_launch::row::{CommandAccess, CommandRow, NetworkUse, SessionCount, Writes};
use orchestrator_launch::runlog::{PAUSE, RunLog};
use orchestrator_launch::session_options::SessionOptions;
use orchestrator_launch::stdio::line_reader::{NextLine, StdinLines};
use orchestrator_launch::stdio::print;
use orchestrator_launch::stdio::signals::Signals;
use orchestrator_launch::stdio::streams::{InputStream, OutputStream, unusable};
use orchestrator_mcp_client::{Available, SessionServers};
use orchestrator_mcp_server::{Listing, McpSettings, SessionOpener, open_sessions};
use orchestrator_tools::ToolConfig;
use orchestrator_tools::catalogue::{TOOLS, ToolCategory};
use orchestrator_tools::registry::{Entry, Registry};
use policies::EffectivePolicy;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tokio::sync::mpsc;

/// Lines that may wait to be written: we stop reading from a client that does not read.
const WAITING: usize = 1;

const EXAMPLES: &str = "\
Examples:
  claude mcp add lazaret -- lazaret mcp
  codex mcp add lazaret -- lazaret mcp --trust guided

An MCP server alone protects nothing: also switch off the client's own tools.
`lazaret install CLIENT` does both.

The project is --project, else CLAUDE_PROJECT_DIR, else the first root of the
client, else the repository around the working directory. If that cannot be a
project (a home, `/`), each call reports it, and the server keeps running. What
--project, --read, --write and the host options name is checked at the start.

Without --trust no call needs approval. With it, the client's user is asked
(elicitation), or `lazaret approve` if the policy accepts answers only from
there; if neither is possible, the call is refused, with what would allow it.";

/// Serve a client of the Model Context Protocol
///
/// Its subcommands manage other MCP servers, whose tools sessions use.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Mcp {
    #[command(subcommand)]
    servers: Option<ServersCommand>,
    #[command(flatten)]
    tools: ToolOptions,
    /// Offer the tools for an agent's own notes too (todo_*, goal_*, memory, batch, ...), which most clients have themselves
    #[arg(long)]
    all_tools: bool,
    #[command(flatten)]
    violations: ViolationOptions,
    /// The client, by its name in `lazaret install`: of the project's own settings for agents, only those that it reads can
    /// refuse a session [default: all count]
    #[arg(long, value_name = "CLIENT", value_parser = PossibleValuesParser::new(CLIENTS.iter().map(|client| client.name)))]
    client: Option<String>,
    /// Examine projects for another `lazaret mcp`: standard input and output are its socket
    #[arg(long, hide = true)]
    examine: bool,
    #[command(flatten)]
    work: WorkOptions,
}

impl FrontEnd for Mcp {
    const ROW: CommandRow = CommandRow {
        name: "mcp",
        sessions: SessionCount::Lasting { spare: 1 },
        access: CommandAccess::Confined {
            network: NetworkUse::Always,
            writes: Writes::Servers,
        },
        log: true,
        usage: exit::USAGE,
        exit: "0 at the end of the input; 2 wrong arguments; 125 lazaret failed; 128+N if signal N ended it",
    };
    const NESTED: &'static [CommandRow] = &NESTED;

    fn errors(&self) -> ErrorForm {
        let command = self.servers.as_ref();
        command.map_or(ErrorForm::Text, ServersCommand::errors)
    }

    fn main(mut self, launch: Launch) -> Result<u8, Failed> {
        if let Some(command) = self.servers.take() {
            return command.main(launch);
        }
        if self.examine {
            return self.examine(launch.files());
        }
        let prepared = launch.prepare::<Self>(Options::of(&self.work))?;
        let (options, files) = (prepared.options(), prepared.files());
        if !self.all_tools {
            let notes = TOOLS
                .iter()
                .filter(|tool| tool.category == ToolCategory::Agent);
            self.tools.disable(notes.map(|tool| tool.name));
        }
        let scope = options.scope()?;
        let policy = options.policy().map_err(Failed::from)?;
        options.check(&policy)?;
        let settings = self.settings(options, &policy);
        let (hooks, endpoint) = (prepared.hooks()?, prepared.lasting_endpoint()?);
        let examiner = Examiner::start(files, self.client.as_deref())?;
        let named = claude_project(options);
        // Without a project, opening fails and each call reports the error.
        let open = options.open().ok().map(|opening| opening.open);
        let project = open.as_ref().map(|open| open.project.as_str());
        let servers = Available::read(files, project, Rc::new(endpoint.clone()), print::problem);
        let listed = ShownTools {
            registry: registry(self.tools.disabled(), Some(policy.clone()))?,
            open,
            scope,
        };
        let socket = endpoint.socket().map(Path::to_owned);
        let options = options.clone();
        let confined = prepared.confine(Needs {
            web: true,
            socket,
            write: servers.directories(),
            ..Needs::default()
        });
        let (log, proof) = (confined.log(), confined.proof());
        let opener = McpOpener {
            max_violations: self.violations.max(options.trust()),
            tools: self.tools,
            options,
            endpoint,
            hooks,
            log: log.clone(),
            proof,
            servers,
            examiner,
            named,
            listing: settings.tools.clone(),
        };
        let reason = |served: &Result<u8, Failed>| match served {
            Ok(exit::OK) => "the input ended",
            Ok(_) | Err(_) => "it was ended from outside",
        };
        confined.run(reason, serve(settings, listed, opener, log))
    }
}

impl Mcp {
    /// Answers the process that started this one about the settings of agents.
    fn examine(&self, files: &Files) -> Result<u8, Failed> {
        agent_settings::answer(files, self.client.as_deref())
            .map(|()| exit::OK)
            .map_err(|error| Failed::internal(error.to_string()))
    }

    fn settings(&self, options: &SessionOptions, policy: &EffectivePolicy) -> McpSettings {
        let mut instructions = instructions(policy, options.network(Some(policy)).as_ref());
        let asked = match options
            .trust()
            .unwrap_or(Trust::Autonomous)
            .min(policy.approval.ceiling)
        {
            Trust::Autonomous => "No call is asked about.".to_owned(),
            trust @ (Trust::Guided | Trust::Supervised) => {
                let channel = match policy.approval.channel {
                    Channel::Relay => "by the client",
                    Channel::Separate => "by `lazaret approve`",
                };
                format!(
                    "Trust is {}: calls that need an approval are asked about {channel}.",
                    trust.name()
                )
            }
        };
        let violations = self
            .violations
            .max(options.trust())
            .map_or(String::new(), |max| {
                format!(" {max} attempts to leave the project end the session.")
            });
        instructions.push_str(&format!(" {asked}{violations}"));
        McpSettings {
            instructions,
            tools: Listing::default(),
            raw: self.tools.is_raw(),
        }
    }
}

/// The instructions for a client's model: where its calls run.
pub(crate) fn instructions(policy: &EffectivePolicy, network: Option<&NetworkRequest>) -> String {
    let network = match network {
        Some(_) => "reach only the hosts that the policy names",
        None => "have no network",
    };
    format!(
        "Commands and file tools work in a sandboxed cell on one project (profile `{}`): they see the project, read-only \
             system programs and nothing else, {network}, and protected names such as `.git/config` or `.env` are closed. A refusal names its \
         rule; trying again in another way does not help. Paths are relative to the project.",
        policy.profile
    )
}

/// The tools that are listed to the client.
struct ShownTools {
    registry: Registry,
    /// The session to open if the client names no root.
    open: Option<Open>,
    scope: Option<Scope>,
}

/// Opens sessions. It holds values that must stay on its thread.
struct McpOpener {
    tools: ToolOptions,
    options: SessionOptions,
    endpoint: Endpoint,
    hooks: UserHooks,
    max_violations: Option<u32>,
    log: Rc<RunLog>,
    proof: ConfinementProof,
    servers: Available,
    examiner: Examiner,
    /// The project that Claude Code says it is in, if that is believed.
    named: Result<Option<PathBuf>, Failed>,
    /// The tools that the client is offered.
    listing: Listing,
}

impl SessionOpener for McpOpener {
    type Order = Vec<PathBuf>;
    type Companion = SessionServers;

    fn order(&self, roots: Vec<PathBuf>) -> Result<Vec<PathBuf>, Failed> {
        Ok(roots)
    }

    async fn open(&mut self, roots: &Vec<PathBuf>) -> Result<(Session, SessionServers), Failed> {
        let named = self.named.clone()?;
        let options = match named.as_ref().or(roots.first()) {
            Some(root) if self.options.named_project().is_none() => {
                self.options.with_project(root.clone())
            }
            _ => self.options.clone(),
        };
        let mut opening = options.open()?;
        self.examiner.check(&opening.open.project)?;
        // The files were read before we confined ourselves; the project only chooses among the profiles in them.
        let policy = options
            .files()
            .resolve(&opening.open.profile)
            .map_err(Failed::from)?;
        opening.open.network = options.network(Some(&policy));
        let servers = self.servers.of(&opening.open);
        let guard = |open: &Open| self.hooks.guard(open, Rc::new(self.endpoint.clone()));
        let mut config = self.tools.config(opening, Ok(policy), guard)?;
        servers.attach(config.tools.registry()).await;
        let config = ToolConfig {
            executor: Some(Box::new(self.endpoint.clone())),
            max_violations: self.max_violations,
            subscribers: vec![self.log.clone()],
            ..config
        };
        let session = Session::start(config, self.proof);
        servers.follow_with(&session, self.relist(&session));
        Ok((session, servers))
    }

    async fn close(&self, servers: SessionServers) {
        servers.close().await;
    }
}

impl McpOpener {
    /// Replaces the list that clients have when the tools of `session` have changed.
    fn relist(&self, session: &Session) -> impl Fn() + 'static {
        let (session, listing) = (session.clone(), self.listing.clone());
        move || {
            let (session, listing) = (session.clone(), listing.clone());
            tokio::task::spawn_local(async move { listing.set(session.tools().await) });
        }
    }

    /// Lists the client's tools, including those of MCP servers.
    async fn list(&self, mut listed: ShownTools) -> Vec<Value> {
        if let Some(open) = &listed.open {
            self.servers.list(open, &mut listed.registry).await;
        }
        listed
            .registry
            .list(listed.scope.as_ref())
            .iter()
            .map(Entry::to_json)
            .collect()
    }
}

/// The project that Claude Code names, which a project's own settings may have set to another: it has to be that of the working
/// directory, where there is one.
fn claude_project(options: &SessionOptions) -> Result<Option<PathBuf>, Failed> {
    let named = std::env::var_os("CLAUDE_PROJECT_DIR")
        .filter(|value| !value.is_empty())
        .map(PathBuf::from);
    match named.filter(|_| options.named_project().is_none()) {
        Some(named) if !Project::is_believed(&named) => Err(Failed::invalid(format!(
            "CLAUDE_PROJECT_DIR names {}, which is not in the project of the working directory: a project may have set it; name \
             the project with --project",
            named.display()
        ))),
        named => Ok(named),
    }
}

async fn serve(
    settings: McpSettings,
    listed: ShownTools,
    opener: McpOpener,
    log: Rc<RunLog>,
) -> Result<u8, Failed> {
    let (input, output) = (
        InputStream::stdin().map_err(unusable)?,
        OutputStream::stdout().map_err(unusable)?,
    );
    let mut signals = Signals::listen(
        &[nix::libc::SIGTERM, nix::libc::SIGINT, nix::libc::SIGHUP],
        opener.proof,
    )?;
    let (read, incoming) = mpsc::channel(WAITING);
    let (outgoing, written) = mpsc::channel(WAITING);
    let (sessions, requests) = mpsc::unbounded_channel();
    tokio::task::spawn_local(read_lines(StdinLines::new(input), read));
    settings.tools.set(opener.list(listed).await);
    tokio::task::spawn_local(open_sessions(opener, requests));
    tokio::task::spawn_local(log.write_later(PAUSE));
    // Where nobody reads the lines, they end, and with them the server.
    let writing = output.write_lines(written);
    let serving = orchestrator_mcp_server::serve(settings, sessions, incoming, outgoing);
    tokio::select! {
        ((), ()) = async { tokio::join!(serving, writing) } => Ok(exit::OK),
        number = signals.next() => Ok(exit::SIGNAL + number as u8),
    }
}

/// Forwards lines until the input ends or nobody receives them.
async fn read_lines(mut lines: StdinLines, read: mpsc::Sender<Vec<u8>>) {
    loop {
        let line = match lines.next().await {
            NextLine::Line(line) => line,
            // This is no valid message, so it gets the answer to a message that cannot be parsed.
            NextLine::TooLong => b"(a line that is too long)".to_vec(),
            NextLine::End => return,
        };
        if read.send(line).await.is_err() {
            return;
        }
    }
}
