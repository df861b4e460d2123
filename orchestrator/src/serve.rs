//! `lazaret serve`: conversations over WebSocket and HTTP, for an application that starts us as its child.

use crate::chat::choice::{self, ModelOptions};
use crate::chat::config::{AgentConfig, Engines};
use crate::chat::conversation_hooks;
use crate::chat::run_lines::run_lines;
use crate::mcp;
use crate::socket_file;
use crate::tool_options::{ToolOptions, ViolationOptions, registry};
use broker_protocol::{Failed, Open, Scope, Trust, limit};
use clap::{Args, ValueEnum};
use nix::libc::{SIGHUP, SIGINT, SIGTERM};
use orchestrator_agent::hooks::SessionHooks;
use orchestrator_agent::packs::Pack;
use orchestrator_agent::settings::RunSettings;
use orchestrator_agent::transcript::Transcript;
use orchestrator_confine::{Files, Needs};
use orchestrator_engine::HookGuard;
use orchestrator_launch::endpoint::Endpoint;
use orchestrator_launch::groups::{
    ChoiceOptions, LogOption, NetworkOptions, Options, PathOptions, RevealOption,
};
use orchestrator_launch::hooks::UserHooks;
use orchestrator_launch::launch::{FrontEnd, Launch, Prepared};
use orchestrator_launch::parent::Parent;
use orchestrator_launch::row::{CommandAccess, CommandRow, NetworkUse, SessionCount, Writes};
use orchestrator_launch::runlog::{PAUSE, RunLog};
use orchestrator_launch::stdio::print;
use orchestrator_launch::stdio::signals::Signals;
use orchestrator_launch::stdio::streams::{InputStream, unusable};
use orchestrator_launch::{SessionOptions, exit, start, state_directory};
use orchestrator_mcp_client::{Available, SessionServers};
use orchestrator_mcp_server::{HttpClients, Listing};
use orchestrator_records::transcripts;
use orchestrator_serve::WireCase;
use orchestrator_serve::backends::Backends;
use orchestrator_serve::guard::{Guard, OriginError, check_origin};
use orchestrator_serve::opener::{Opener, SessionOrder, ToolList, without_project};
use orchestrator_serve::server::{self, ListeningSocket, RATE};
use orchestrator_serve::service::{ServeState, Sources, Transcripts};
use orchestrator_serve::token::AccessToken;
use orchestrator_telemetry::TelemetryOptions;
use orchestrator_text::known::redactor;
use orchestrator_tools::ToolConfig;
use orchestrator_tools::registry::Entry;
use policies::EffectivePolicy;
use policies::directories::NO_PROJECT;
use serde_json::{Value, json};
use std::fs::DirBuilder;
use std::io::{self, IsTerminal};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// How long runs may take to end after the server is told to stop.
const ENDING: Duration = Duration::from_secs(5);
/// How often to check whether they have ended.
const POLL: Duration = Duration::from_millis(20);

const EXAMPLES: &str = "\
Prints one line of JSON with its address and a new token, which every request
must have: Authorization: Bearer TOKEN. WebSocket at /ws; /run, /run/stream,
/runs/ID/status, /models, /tools, /settings, /keys/validate, /health; /mcp for
clients of the Model Context Protocol (streamable HTTP). All of it is described
in orchestrator/serve/README.md of the sources, and by --openapi and --asyncapi.
Conversations and MCP clients have the tools of your MCP servers (`lazaret mcp
add`), as configured when serve starts.

  lazaret serve --project ~/app --provider mock
  lazaret serve --listen 127.0.0.1:0 --wire-case snake
  lazaret serve --ui --project ~/app     (open `page` of the printed line)

Ends when its input ends, if that is a pipe, and when its parent process ends.
--trust sets which calls need approval (default: guided).";

/// Serve an application on this machine: chats over WebSocket and HTTP
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Serve {
    /// The address to listen on; port 0 for any
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:3008")]
    listen: SocketAddr,
    /// Listen on a Unix socket, and on no address unless --listen is given too
    #[arg(long, value_name = "PATH")]
    unix: Option<PathBuf>,
    /// Remove the socket when the other end of standard input is gone: we give up all files before we serve
    #[arg(long, hide = true, requires = "unix")]
    remove_socket: bool,
    /// Allow an address that other machines can reach: traffic is not encrypted, and whoever reads the token has the tools
    #[arg(long)]
    expose_to_network: bool,
    /// The Origin of a web page that may connect, such as app://studio; may be given more than once
    #[arg(long, value_name = "ORIGIN", value_parser = origin)]
    allow_origin: Vec<String>,
    /// Also serve a web page for a person; the printed line has its address, with the token
    #[arg(long)]
    ui: bool,
    /// Seconds that a question waits for its answer, unless the policy sets them [default: 600 with --ui, else 30]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=i64::from(limit::ANSWER_MAX_S)))]
    approval_timeout: Option<u32>,
    /// The case of names in messages to clients; from clients, both are accepted
    #[arg(long, value_name = "CASE", value_enum, default_value = "camel")]
    wire_case: CaseName,
    /// Maximum requests per second from one address; a burst may have four times as many
    #[arg(long, value_name = "N", default_value_t = RATE, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// The pack of runs whose client names none: engineering, research, plan, or one of agent.toml
    #[arg(long, value_name = "NAME")]
    pack: Option<String>,
    /// Tokens of a model's context that must be left; with fewer, it has to answer without tools [default: 8192, at most an eighth]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    context_reserve: Option<u32>,
    #[command(flatten)]
    violations: ViolationOptions,
    /// Record each conversation, as `lazaret chat` does: `lazaret chat --replay` takes its ID
    #[arg(long)]
    transcripts: bool,
    /// Keep running when the parent process ends, until a signal
    #[arg(long)]
    outlive_parent: bool,
    /// Print the OpenAPI description of the HTTP interface and exit
    #[arg(long, conflicts_with = "asyncapi")]
    openapi: bool,
    /// Print the AsyncAPI description of the WebSocket and exit
    #[arg(long)]
    asyncapi: bool,
    #[command(flatten)]
    model: ModelOptions,
    #[command(flatten)]
    tools: ToolOptions,
    #[command(flatten)]
    telemetry: TelemetryOptions,
    /// The project root of conversations that name none [default: none: such a conversation has no tools for files and commands]
    #[arg(long, value_name = "DIR", help_heading = "Where")]
    project: Option<PathBuf>,
    #[command(flatten)]
    choice: ChoiceOptions,
    #[command(flatten)]
    network: NetworkOptions,
    #[command(flatten)]
    paths: PathOptions,
    #[command(flatten)]
    reveal: RevealOption,
    #[command(flatten)]
    log: LogOption,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CaseName {
    /// toolId, as in the documentation
    Camel,
    /// tool_id, for clients that expect it
    Snake,
}

impl From<CaseName> for WireCase {
    fn from(name: CaseName) -> Self {
        match name {
            CaseName::Camel => Self::Camel,
            CaseName::Snake => Self::Snake,
        }
    }
}

impl Serve {
    fn options(&self) -> Options {
        Options::of(&self.choice)
            .in_project(self.project.clone())
            .and(&self.network)
            .and(&self.paths)
            .and(&self.reveal)
            .and(&self.log)
    }
}

impl FrontEnd for Serve {
    const ROW: CommandRow = CommandRow {
        name: "serve",
        // There may be many, so none has spare cells.
        sessions: SessionCount::Lasting { spare: 0 },
        access: CommandAccess::Confined {
            network: NetworkUse::Always,
            writes: Writes::ServersAndChats,
        },
        log: true,
        usage: exit::USAGE,
        exit: "0 at the end of the input; 2 wrong arguments; 125 it cannot serve, for example because the address is in use; 128+N \
               if signal N ended it (129 also: its parent process ended)",
    };

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        if self.openapi || self.asyncapi {
            return self.describe();
        }
        if let (true, Some(path)) = (self.remove_socket, &self.unix) {
            return remove_socket(path);
        }
        let prepared = launch.prepare::<Self>(self.options())?;
        let (options, files) = (prepared.options(), prepared.files());
        let parent = if self.outlive_parent {
            Parent::ignored()
        } else {
            Parent::now()
        };
        let runs = self.configured_runs(files, options)?;
        let mut telemetry = self.telemetry.begin(print::problem)?;
        let offer = ConversationDefaults::new(&self, &prepared, runs.engines, runs.hooks)?;
        let offered = Listing::default();
        let (mcp, clients) =
            HttpClients::new(self.mcp_settings(options, &offer.policy, offered.clone())?);
        let token = fresh_token()?;
        let listening = self.bind()?;
        let remover = |path| remover(files, path);
        let _remover = self.unix.as_deref().map(remover).transpose()?;
        let ready = announced(&listening, &token, self.ui)?;
        let trust = options.trust().unwrap_or(Trust::Guided);
        let needs = self.needs(&offer)?;
        let confined = prepared.confine(needs);
        let (log, proof) = (confined.log(), confined.proof());
        let log_of_sessions = log.clone();
        let sources = Sources {
            opener: Box::new(ConversationSessions {
                offer,
                log: log_of_sessions,
            }),
            proof,
            backends: runs.backends,
            mcp,
            offered,
            record: run_lines(log.clone()),
            transcripts: self.begin_transcripts(),
        };
        let case = self.wire_case.into();
        let service = ServeState::new(sources, runs.settings, runs.packs, case, trust, redactor());
        let guard = Guard {
            token,
            origins: self.allow_origin,
            page: self.ui,
        };
        confined.run(reason, async {
            tokio::task::spawn_local(log.clone().write_later(PAUSE));
            telemetry.start();
            // Whoever reads that it is ready may end it by a signal.
            let signals = Signals::listen(&[SIGTERM, SIGINT, SIGHUP], service.proof)?;
            print::json(&ready)?;
            let served = tokio::select! {
                failed = server::serve(service.clone(), guard, self.rate, listening, clients) => match failed {
                    Ok(never) => match never {},
                    Err(error) => Err(Failed::internal(format!("cannot serve: {error}"))),
                },
                code = ended(&service, signals, &parent, !self.outlive_parent) => code,
            };
            telemetry.end().await;
            served
        })
    }
}

/// What `agent.toml` and the options set for runs.
struct ConfiguredRuns {
    backends: Backends,
    settings: RunSettings,
    packs: Vec<Pack>,
    engines: Engines,
    hooks: UserHooks,
}

impl Serve {
    /// Prints what the server speaks, and serves nothing.
    fn describe(&self) -> Result<u8, Failed> {
        let described = if self.openapi {
            orchestrator_serve::open_api()
        } else {
            orchestrator_serve::async_api()
        };
        print::json(&described)?;
        Ok(exit::OK)
    }

    fn configured_runs(
        &self,
        files: &Files,
        options: &SessionOptions,
    ) -> Result<ConfiguredRuns, Failed> {
        let config = AgentConfig::read(files)?;
        self.model.ensure_available(files, &config, options)?;
        let backends = self.model.backends(files, &config)?;
        let pack = choice::pack(self.pack.as_deref(), &config)?;
        let engines = config.search.engines(files)?;
        let hooks = config.hooks(files)?;
        let fallback = choice::fallback(files, &config)?;
        let settings = RunSettings {
            instructions: config.instructions,
            pack,
            fallback,
            brief_if_small: !self.tools.says_profile(),
            ..RunSettings::new("")
        }
        .limited(&config.limits);
        let settings = match self.context_reserve {
            Some(tokens) => RunSettings {
                reserve_tokens: Some(tokens),
                ..settings
            },
            None => settings,
        };
        Ok(ConfiguredRuns {
            backends,
            settings,
            packs: config.packs,
            engines,
            hooks,
        })
    }

    fn needs(&self, offer: &ConversationDefaults) -> Result<Needs, Failed> {
        let mut write = offer.servers.directories();
        if self.transcripts {
            write.push(transcripts::prepare()?);
        }
        Ok(Needs {
            web: true,
            socket: offer.endpoint.socket().map(Path::to_owned),
            write,
            ..Needs::default()
        })
    }

    /// What begins the transcript of a conversation.
    fn begin_transcripts(&self) -> Transcripts {
        if !self.transcripts {
            return Box::new(|_| None);
        }
        Box::new(|conversation| {
            let opened = transcripts::begin().inspect_err(|error| {
                print::problem(&format!(
                    "no transcript of {conversation} is written: {error}"
                ))
            });
            let start =
                json!({ "version": env!("CARGO_PKG_VERSION"), "conversation": conversation });
            let file = Box::new(opened.ok()?.file);
            Some(Rc::new(Transcript::begin(file, redactor(), start)))
        })
    }

    /// The settings for MCP clients.
    fn mcp_settings(
        &self,
        options: &SessionOptions,
        policy: &EffectivePolicy,
        tools: Listing,
    ) -> Result<orchestrator_mcp_server::McpSettings, Failed> {
        options.check(policy)?;
        let mut instructions = mcp::instructions(policy, options.network(Some(policy)).as_ref());
        instructions.push_str(" Calls that need an approval are asked about.");
        Ok(orchestrator_mcp_server::McpSettings {
            instructions,
            tools,
            raw: self.tools.is_raw(),
        })
    }

    /// Binds all requested addresses and sockets; runs before we confine ourselves.
    fn bind(&self) -> Result<Vec<ListeningSocket>, Failed> {
        let mut listening = Vec::new();
        let tcp = self.unix.is_none() || self.listen != default_address();
        if self.ui && !tcp {
            return Err(Failed::invalid(
                "--ui: a browser needs an address; add --listen",
            ));
        }
        if tcp {
            if !self.listen.ip().is_loopback() && !self.expose_to_network {
                let message = format!(
                    "{} is not of this machine alone: what is sent is not encrypted, and whoever reads the token has the \
                     tools; --expose-to-network if it is to be",
                    self.listen.ip()
                );
                return Err(Failed::invalid(message));
            }
            let listener = TcpListener::bind(self.listen).map_err(|error| {
                Failed::internal(format!("cannot listen on {}: {error}", self.listen))
            })?;
            listening.push(ListeningSocket::Tcp(listener));
        }
        // The last: where another one fails, no file is left.
        if let Some(path) = &self.unix {
            let listener = socket_file::bind(path).map_err(|error| {
                Failed::internal(format!("cannot listen on {}: {error}", path.display()))
            })?;
            listening.push(ListeningSocket::Unix(listener));
        }
        Ok(listening)
    }
}

/// Why the server has ended, for the run log.
fn reason(served: &Result<u8, Failed>) -> &'static str {
    match served {
        Ok(_) => "it was ended",
        Err(_) => "it cannot serve",
    }
}

fn fresh_token() -> Result<AccessToken, Failed> {
    AccessToken::fresh().map_err(|error| Failed::internal(format!("no random bytes: {error}")))
}

fn default_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 3008))
}

/// An Origin that a page may have, as browsers write it.
fn origin(text: &str) -> Result<String, OriginError> {
    check_origin(text).map(|()| text.to_owned())
}

fn remove_socket(path: &Path) -> Result<u8, Failed> {
    socket_file::remove_later(path)
        .map(|()| exit::OK)
        .map_err(|error| Failed::internal(format!("cannot remove {}: {error}", path.display())))
}

/// Starts who removes our socket when we are gone.
fn remover(files: &Files, path: &Path) -> Result<UnixStream, Failed> {
    let started = start::start_socket_remover(files, path);
    started.map_err(|error| {
        Failed::internal(format!(
            "cannot start the process that removes the socket {}: {error}",
            path.display()
        ))
    })
}

/// The line of JSON for the process that started us.
fn announced(
    listening: &[ListeningSocket],
    token: &AccessToken,
    page: bool,
) -> Result<Value, Failed> {
    let mut line = json!({
        "type": "ready",
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "token": token.expose(),
    });
    for one in listening {
        let unknown =
            |error: io::Error| Failed::internal(format!("a socket has no address: {error}"));
        match one {
            ListeningSocket::Tcp(listener) => {
                let address = listener.local_addr().map_err(unknown)?;
                line["address"] = address.to_string().into();
                line["url"] = format!("http://{address}").into();
                line["ws"] = format!("ws://{address}/ws").into();
                if page {
                    // A browser does not send what follows `#`, so the token is in no request and in no log.
                    line["page"] =
                        format!("http://{}/#token={}", browsable(address), token.expose()).into();
                }
            }
            ListeningSocket::Unix(listener) => {
                let address = listener.local_addr().map_err(unknown)?;
                line["socket"] = address
                    .as_pathname()
                    .map(|path| path.to_string_lossy())
                    .into();
            }
        }
    }
    Ok(line)
}

/// The address at which a browser on this machine reaches what listens on `address`.
fn browsable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        IpAddr::V4(_) | IpAddr::V6(_) => {}
    }
    address
}

/// Waits until the server has to stop, and ends its runs; returns the exit code.
async fn ended(
    service: &ServeState,
    mut signals: Signals,
    parent: &Parent,
    ends_with_input: bool,
) -> Result<u8, Failed> {
    let input = InputStream::stdin().map_err(unusable)?;
    // A terminal belongs to a person, who stops us with Ctrl-C; the end of /dev/null means nothing.
    let watched = ends_with_input && !InputStream::is_null() && !io::stdin().is_terminal();
    let code = tokio::select! {
        number = signals.next() => exit::SIGNAL + number as u8,
        // The executor ends with us, so no run has to be waited for once our parent has ended.
        () = parent.ended() => return Ok(exit::SIGNAL + SIGHUP as u8),
        () = end_of(&input), if watched => exit::OK,
    };
    service.cancel_all();
    let begun = Instant::now();
    while service.running_count() > 0 && begun.elapsed() < ENDING {
        sleep(POLL).await;
    }
    // Runs that take longer end with this process.
    let _ = timeout(ENDING, service.end_sessions()).await;
    Ok(code)
}

/// Waits for the end of the input. The input itself is ignored.
async fn end_of(input: &InputStream) {
    let mut buffer = [0; 4096];
    while input.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
}

/// What sessions of conversations are opened with, read before the confinement.
struct ConversationDefaults {
    tools: ToolOptions,
    options: SessionOptions,
    scope: Option<Scope>,
    endpoint: Endpoint,
    answer_s: Option<u32>,
    violations: ViolationOptions,
    /// An empty directory: the project of conversations without one.
    nowhere: PathBuf,
    /// A session that no client narrows, and its policy.
    unnarrowed: Open,
    policy: EffectivePolicy,
    servers: Available,
    engines: Engines,
    hooks: UserHooks,
}

/// Opens the sessions that belong to conversations.
struct ConversationSessions {
    offer: ConversationDefaults,
    log: Rc<RunLog>,
}

impl ConversationDefaults {
    fn new(
        serve: &Serve,
        prepared: &Prepared,
        engines: Engines,
        hooks: UserHooks,
    ) -> Result<Self, Failed> {
        let options = prepared.options();
        // Errors in the policy are reported before any client is served.
        let policy = options.policy().map_err(Failed::from)?;
        let nowhere = state_directory::data().join(NO_PROJECT);
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&nowhere);
        made.map_err(|error| {
            Failed::internal(format!("cannot make {}: {error}", nowhere.display()))
        })?;
        let (scope, endpoint) = (options.scope()?, prepared.lasting_endpoint()?);
        let elsewhere = options.named_project().is_none().then(|| nowhere.clone());
        let named = elsewhere.is_none();
        let opening = options
            .for_client(elsewhere, None, options.trust().unwrap_or(Trust::Guided))
            .open()?;
        let unnarrowed = Open {
            scope: scope.clone(),
            ..opening.open
        };
        let project = named.then_some(unnarrowed.project.as_str());
        let servers = Available::read(
            prepared.files(),
            project,
            Rc::new(endpoint.clone()),
            print::problem,
        );
        Ok(Self {
            tools: serve.tools.clone(),
            options: options.clone(),
            scope,
            endpoint,
            answer_s: serve
                .approval_timeout
                .or(serve.ui.then_some(limit::ANSWER_OF_PERSON_S)),
            violations: serve.violations,
            nowhere,
            unnarrowed,
            policy,
            servers,
            engines,
            hooks,
        })
    }

    /// The scope that the command line or else the client gives a session.
    fn scope<'o>(&'o self, order: &'o SessionOrder) -> Result<Option<&'o Scope>, Failed> {
        match (&self.scope, &order.scope) {
            (Some(_), Some(_)) => Err(Failed::invalid(
                "the server was started with a scope, and a client can name no other",
            )),
            (one, other) => Ok(one.as_ref().or(other.as_ref())),
        }
    }
}

impl Opener for ConversationSessions {
    fn config(&self, order: &SessionOrder) -> Result<ToolConfig, Failed> {
        let project = match self.has_project(order) {
            true => order.project.clone(),
            false => Some(self.offer.nowhere.clone()),
        };
        let options = self
            .offer
            .options
            .for_client(project, order.profile.clone(), order.trust);
        let mut opening = options.open()?;
        // The files were read before we confined ourselves; the project only chooses among the profiles in them.
        let policy = options
            .files()
            .resolve(&opening.open.profile)
            .map_err(Failed::from)?;
        let scope = self.offer.scope(order)?;
        opening.open.scope = match self.has_project(order) {
            true => scope.cloned(),
            false => Some(without_project(scope)),
        };
        opening.open.network = options.network(Some(&policy));
        opening.open.answer_s = self.offer.answer_s;
        opening.open.file_leases = true;
        let offer = &self.offer;
        let guard = |open: &Open| offer.hooks.guard(open, Rc::new(offer.endpoint.clone()));
        let config = offer.tools.config(opening, Ok(policy), guard)?;
        Ok(ToolConfig {
            executor: Some(Box::new(self.offer.endpoint.clone())),
            max_violations: self.offer.violations.max(Some(order.trust)),
            tools: config.tools.with_web(|web| self.offer.engines.of(web)),
            subscribers: vec![self.log.clone()],
            ..config
        })
    }

    fn servers(&self, order: &SessionOrder, open: &Open) -> SessionServers {
        if self.has_project(order) {
            return self.offer.servers.of(open);
        }
        let scope = self.offer.scope.as_ref().or(order.scope.as_ref()).cloned();
        self.offer.servers.without_project(&Open {
            scope,
            ..open.clone()
        })
    }

    fn hooks(&self, guard: &HookGuard) -> Option<Rc<SessionHooks>> {
        conversation_hooks(guard)
    }

    fn has_project(&self, order: &SessionOrder) -> bool {
        order.project.is_some() || self.offer.options.named_project().is_some()
    }

    fn project(&self) -> Option<String> {
        self.offer
            .options
            .named_project()
            .map(|project| project.display().to_string())
    }

    fn tools(&self) -> ToolList<'_> {
        Box::pin(async {
            let registry = registry(self.offer.tools.disabled(), Some(self.offer.policy.clone()));
            let Ok(registry) = registry else {
                return Vec::new();
            };
            let mut registry = registry.with_models();
            self.offer
                .servers
                .list(&self.offer.unnarrowed, &mut registry)
                .await;
            registry
                .list(self.offer.scope.as_ref())
                .iter()
                .map(Entry::to_json)
                .collect()
        })
    }
}
