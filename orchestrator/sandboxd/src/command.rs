//! `lazaret sandboxd`: its command line, its ports, and its end.

use crate::calls::SandboxCalls;
use crate::files::ProjectFiles;
use crate::legacy::LegacyRoutes;
use crate::metadata;
use crate::paths::ProjectRoot;
use crate::process_service::{MESSAGES_MAX, ProcessRoutes};
use crate::processes::SandboxProcesses;
use crate::rest::RestRoutes;
use crate::server::{SandboxProtocol, SandboxServer};
use crate::tools::FileTools;
use broker_protocol::Failed;
use clap::Args;
use orchestrator_confine::{ConfinementProof, Needs};
use orchestrator_engine::{Config, Session};
use orchestrator_launch::exit;
use orchestrator_launch::groups::{
    ChoiceOptions, LogOption, NetworkOptions, Options, PathOptions, ProjectOption, RevealOption,
    VerboseOption,
};
use orchestrator_launch::launch::{FrontEnd, Launch};
use orchestrator_launch::row::{CommandAccess, CommandRow, NetworkUse, SessionCount, Writes};
use orchestrator_launch::runlog::{PAUSE, RunLog};
use orchestrator_launch::stdio::print;
use orchestrator_launch::stdio::signals::Signals;
use orchestrator_text::known::redactor;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// How long calls may take to end after they were cancelled: two seconds of theirs, and the records.
const ENDING: Duration = Duration::from_secs(5);
/// How long their clients may take to receive the results, and the executor to record the session's end.
const CLOSING: Duration = Duration::from_secs(2);
/// How often to check whether they have ended.
const POLL: Duration = Duration::from_millis(20);

const EXAMPLES: &str = "\
Speaks the protocols of kubernetes-sigs/agent-sandbox, with which its SDKs drive
a sandbox: the legacy one (HTTP), sandboxd's REST and its process service (gRPC).
Each command is a call in a cell, with the hosts, credentials, limits, undo and
audit of a session. Prints one line of JSON with the addresses when it is ready.

  lazaret sandboxd --project /workspace --profile pod --listen 0.0.0.0   (in a pod)
  lazaret sandboxd --legacy-port 0 --rest-port 0 --grpc-port 0           (any ports)

The protocols have no password: whoever reaches the ports has the sandbox. In a
cluster a NetworkPolicy says who that is; on a machine, every user of it does.
SIGTERM: /v1/health answers 503, no call begins, and those under way are ended
and recorded, at once or --drain seconds later.";

/// Be the runtime of a sandbox of Kubernetes' agent-sandbox
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Sandboxd {
    /// The address to listen on: 0.0.0.0 or :: in a pod
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    listen: IpAddr,
    /// The port of the legacy protocol; 0 for any
    #[arg(long, value_name = "PORT", default_value_t = 8888)]
    legacy_port: u16,
    /// The port of sandboxd's REST: files, health, metadata
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    rest_port: u16,
    /// The port of sandboxd's process service
    #[arg(long, value_name = "PORT", default_value_t = 9090)]
    grpc_port: u16,
    /// Seconds that calls under way may take to end by themselves after SIGTERM; a second signal ends them
    #[arg(long, value_name = "S", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=3600))]
    drain: u64,
    #[command(flatten)]
    project: ProjectOption,
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
    #[command(flatten)]
    verbose: VerboseOption,
}

/// The ports, bound before we confine ourselves.
struct SandboxPorts {
    legacy: TcpListener,
    rest: TcpListener,
    process: TcpListener,
}

impl SandboxPorts {
    fn bind(command: &Sandboxd) -> Result<Self, Failed> {
        let bind = |port| {
            let address = SocketAddr::new(command.listen, port);
            TcpListener::bind(address)
                .map_err(|error| Failed::internal(format!("cannot listen on {address}: {error}")))
        };
        Ok(Self {
            legacy: bind(command.legacy_port)?,
            rest: bind(command.rest_port)?,
            process: bind(command.grpc_port)?,
        })
    }

    /// The line for whoever started us.
    fn ready(&self) -> Result<Value, Failed> {
        let address = |listener: &TcpListener| {
            let address = listener.local_addr();
            address.map(|address| address.to_string()).map_err(unusable)
        };
        Ok(json!({
            "type": "ready",
            "version": env!("CARGO_PKG_VERSION"),
            "legacy": address(&self.legacy)?,
            "rest": address(&self.rest)?,
            "grpc": address(&self.process)?,
        }))
    }

    fn serve(self, server: &SandboxServer, front: &SandboxFront) -> Result<(), Failed> {
        let SandboxFront {
            calls,
            root,
            variables,
            begun,
        } = front;
        let files = ProjectFiles::new(calls.clone());
        let legacy = SandboxProtocol::Legacy(Rc::new(LegacyRoutes {
            calls: calls.clone(),
            files: files.clone(),
            root: root.clone(),
        }));
        let rest = SandboxProtocol::Rest(Rc::new(RestRoutes {
            calls: calls.clone(),
            files,
            root: root.clone(),
            begun: *begun,
            variables: variables.clone(),
        }));
        let process = SandboxProtocol::Process(Rc::new(ProcessRoutes {
            calls: calls.clone(),
            root: root.clone(),
            processes: Rc::new(SandboxProcesses::default()),
            messages: Semaphore::new(MESSAGES_MAX),
        }));
        server
            .serve(self.legacy, legacy)
            .and_then(|()| server.serve(self.rest, rest))
            .and_then(|()| server.serve(self.process, process))
            .map_err(unusable)
    }
}

/// What all protocols are in front of.
struct SandboxFront {
    calls: Rc<SandboxCalls>,
    root: Rc<ProjectRoot>,
    variables: BTreeMap<String, String>,
    begun: Instant,
}

fn unusable(error: std::io::Error) -> Failed {
    Failed::internal(format!("a port cannot be used: {error}"))
}

impl Sandboxd {
    fn options(&self) -> Options {
        Options::of(&self.project)
            .and(&self.choice)
            .and(&self.network)
            .and(&self.paths)
            .and(&self.reveal)
            .and(&self.log)
            .and(&self.verbose)
    }
}

impl FrontEnd for Sandboxd {
    const ROW: CommandRow = CommandRow {
        name: "sandboxd",
        sessions: SessionCount::Lasting { spare: 1 },
        access: CommandAccess::Confined {
            network: NetworkUse::Accepts,
            writes: Writes::Nothing,
        },
        log: true,
        usage: exit::USAGE,
        exit: "2 wrong arguments; 125 it cannot serve, for example because a port is in use or no session opens; 128+N after signal N",
    };

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        let prepared = launch.prepare::<Self>(self.options())?;
        let options = prepared.options();
        let mut opening = options.open()?;
        let policy = options.policy().map_err(Failed::from)?;
        options.check(&policy)?;
        opening.open.network = options.network(Some(&policy));
        let root = Rc::new(ProjectRoot::new(opening.open.project.clone()));
        let variables = metadata::visible(std::env::vars_os(), redactor());
        let (hooks, endpoint) = (prepared.hooks()?, prepared.lasting_endpoint()?);
        let guard = hooks.guard(&opening.open, Rc::new(endpoint.clone()));
        let socket = endpoint.socket().map(Path::to_owned);
        let ports = SandboxPorts::bind(&self)?;
        let confined = prepared.confine(Needs {
            serves: true,
            socket,
            ..Needs::default()
        });
        let (log, proof) = (confined.log(), confined.proof());
        let config = Config {
            executor: Some(Box::new(endpoint)),
            subscribers: vec![log.clone()],
            ..Config::new(opening.open, redactor(), guard)
        };
        let reason = |served: &Result<u8, Failed>| match served {
            Ok(_) => "a signal ended it",
            Err(_) => "it cannot serve",
        };
        let drain = Duration::from_secs(self.drain);
        let work = serve((config, proof), ports, root, variables, drain, log);
        confined.run(reason, work)
    }
}

async fn serve(
    (config, proof): (Config<FileTools>, ConfinementProof),
    ports: SandboxPorts,
    root: Rc<ProjectRoot>,
    variables: BTreeMap<String, String>,
    drain: Duration,
    log: Rc<RunLog>,
) -> Result<u8, Failed> {
    let mut signals = Signals::listen(
        &[nix::libc::SIGTERM, nix::libc::SIGINT, nix::libc::SIGHUP],
        proof,
    )?;
    let session = Session::start(config, proof);
    tokio::select! {
        opened = session.open() => drop(opened?),
        number = signals.next() => return Ok(exit::SIGNAL + number as u8),
    }
    tokio::task::spawn_local(log.write_later(PAUSE));
    let front = SandboxFront {
        calls: SandboxCalls::new(session),
        root,
        variables,
        begun: Instant::now(),
    };
    let (server, ready) = (SandboxServer::default(), ports.ready()?);
    ports.serve(&server, &front)?;
    print::json(&ready)?;
    let number = signals.next().await;
    let calls = &front.calls;
    calls.refuse();
    tokio::select! {
        () = ended(calls, drain) => {}
        _ = signals.next() => {}
    }
    calls.cancel();
    ended(calls, ENDING).await;
    // In a container this process is the first, and the executor ends with it.
    let closed = timeout(CLOSING, calls.close());
    let _ = tokio::join!(server.close(CLOSING), closed);
    Ok(exit::SIGNAL + number as u8)
}

/// Waits until no call is under way, at most this long.
async fn ended(calls: &SandboxCalls, at_most: Duration) {
    let begun = Instant::now();
    while calls.count() > 0 && begun.elapsed() < at_most {
        sleep(POLL).await;
    }
}
