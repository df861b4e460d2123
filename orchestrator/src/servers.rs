//! `lazaret mcp add|list|remove|status|log|accept|login|logout`: manages the MCP servers whose tools a session has.

use crate::login;
use crate::server_options::{ServerPlace, row};
use broker_protocol::Failed;
use clap::{Args, Subcommand};
use orchestrator_config_edit::files;
use orchestrator_confine::{Files, Needs};
use orchestrator_launch::exit;
use orchestrator_launch::groups::{EndpointOptions, NetworkOptions, ProfileOption};
use orchestrator_launch::launch::{Confined, ErrorForm, FrontEnd, Launch, Prepared};
use orchestrator_launch::row::CommandRow;
use orchestrator_launch::session_options::SessionOptions;
use orchestrator_launch::stdio::pages;
use orchestrator_launch::stdio::print;
use orchestrator_mcp_client::server_reports::{self, check_shown, show};
use orchestrator_mcp_client::settings::{ServerKind, ServerSettings, SettingsOwner, Share, Speech};
use orchestrator_mcp_client::{ServerReport, SessionServers, edit, find, named, read, store};
use orchestrator_text::escape;
use serde_json::{Map, Value, json};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

const EXAMPLES: &str = "\
Examples:
  lazaret mcp add time --private -- python3 -m mcp_server_time
  lazaret mcp add fs --profile node -- node server-filesystem/dist/index.js '${LAZARET_PROJECT}'
  lazaret mcp add gh --allow-host api.github.com:443 --env 'GITHUB_TOKEN=${GITHUB_TOKEN}' -- ./server
  lazaret call mcp__time__get_current_time '{\"timezone\":\"UTC\"}'
  lazaret mcp add docs --url https://mcp.example.com/mcp --header 'X-Key: ${DOCS_KEY}'
  lazaret mcp login docs

A server is a program or an address. A program runs in a long-lived cell of its
own: --profile is its policy profile, --allow-host and --allow-net are its hosts;
without these it has no network. It sees the project as its profile allows, or
nothing of it (--private), and has a directory of its own, ${LAZARET_CENTRAL}.
Its environment has what --env names; ${NAME} is replaced from yours when it
starts.

Its tools are called mcp__NAME__TOOL. They have high risk, so a guided session
asks before a call, unless --approve or a rule of your policy says otherwise.
Their descriptions are recorded when they are first seen: a tool whose
description changes later is not called until `lazaret mcp accept NAME`.";

/// The subcommands about servers; without one, serve a client.
#[derive(Subcommand)]
pub(crate) enum ServersCommand {
    Add(Box<AddServer>),
    List(ListServers),
    Remove(RemoveServer),
    Status(ServerStatus),
    Log(ServerLog),
    Accept(AcceptServer),
    Login(login::Login),
    Logout(login::Logout),
}

/// Write a server into ~/.config/lazaret/mcp.json, start it and record its tools
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AddServer {
    /// Its name: letters, digits, `-` and single `_`
    name: String,
    /// A variable of its environment; may be given more than once
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Hide the project from it
    #[arg(long)]
    private: bool,
    /// A tool that needs no approval in a guided session; may be given more than once
    #[arg(long, value_name = "TOOL")]
    approve: Vec<String>,
    /// Its address instead of a program: https, or http on this machine and in private networks
    #[arg(long, conflicts_with_all = ["command", "env", "private"])]
    url: Option<String>,
    /// A header of each request to its address; may be given more than once
    #[arg(long, value_name = "NAME: VALUE", requires = "url")]
    header: Vec<String>,
    /// Use the protocol's SSE transport of 2024
    #[arg(long, requires = "url")]
    sse: bool,
    /// The program and its arguments
    #[arg(last = true, required_unless_present = "url", value_name = "COMMAND")]
    command: Vec<String>,
    #[command(flatten)]
    place: ServerPlace,
    #[command(flatten)]
    profile: ProfileOption,
    #[command(flatten)]
    endpoint: EndpointOptions,
    #[command(flatten)]
    network: NetworkOptions,
}

/// List the servers and how each runs, without starting one
#[derive(Args)]
pub(crate) struct ListServers {
    /// Print a JSON array
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: ServerPlace,
}

/// Remove a server from ~/.config/lazaret/mcp.json, with its recorded tools and its log
#[derive(Args)]
pub(crate) struct RemoveServer {
    /// Its name
    name: String,
}

/// Start every server and print its tools, those in full that are not as they were accepted
#[derive(Args)]
pub(crate) struct ServerStatus {
    /// Print a JSON array
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: ServerPlace,
    #[command(flatten)]
    endpoint: EndpointOptions,
}

/// Print the last 1,000 lines of a server's standard error, its invalid lines, and how it ended
#[derive(Args)]
pub(crate) struct ServerLog {
    /// Its name
    name: String,
    #[command(flatten)]
    place: ServerPlace,
}

/// Show what is new or changed of a server's tools, and accept it; without a name, the servers of the repository's .mcp.json
#[derive(Args)]
pub(crate) struct AcceptServer {
    /// Its name
    name: Option<String>,
    /// Accept without asking first
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    place: ServerPlace,
    #[command(flatten)]
    endpoint: EndpointOptions,
}

/// Their rows.
pub(crate) const NESTED: [CommandRow; 8] = [
    AddServer::ROW,
    ListServers::ROW,
    RemoveServer::ROW,
    ServerStatus::ROW,
    ServerLog::ROW,
    AcceptServer::ROW,
    login::Login::ROW,
    login::Logout::ROW,
];

impl ServersCommand {
    pub(crate) fn errors(&self) -> ErrorForm {
        match self {
            Self::List(list) => list.errors(),
            Self::Status(status) => status.errors(),
            Self::Add(_)
            | Self::Remove(_)
            | Self::Log(_)
            | Self::Accept(_)
            | Self::Login(_)
            | Self::Logout(_) => ErrorForm::Text,
        }
    }

    /// Runs the subcommand; returns the exit code.
    pub(crate) fn main(self, launch: Launch) -> Result<u8, Failed> {
        match self {
            ServersCommand::Add(add) => add.main(launch),
            ServersCommand::List(list) => list.main(launch),
            ServersCommand::Remove(remove) => remove.main(launch),
            ServersCommand::Status(status) => status.main(launch),
            ServersCommand::Log(log) => log.main(launch),
            ServersCommand::Accept(accept) => accept.main(launch),
            ServersCommand::Login(login) => login.main(launch),
            ServersCommand::Logout(logout) => logout.main(launch),
        }
    }
}

/// What started servers with the wrong arguments, or listed what is not as it was accepted, returns.
const STARTED: &str = "0; 1 a server does not start, or its tools are not as they were accepted; 2 wrong arguments; 125 lazaret failed";
const LISTED: &str = "0; 2 wrong arguments; 125 lazaret failed";

/// The servers of a session that is to be opened, those among them that `keep` names, with their way to the executor.
struct Reached {
    servers: SessionServers,
    /// Whether there are settings that cannot be used.
    is_broken: bool,
    confined: Confined,
}

impl Reached {
    fn new(prepared: Prepared, keep: impl Fn(&ServerSettings) -> bool) -> Result<Self, Failed> {
        let open = prepared.options().open()?.open;
        let mut found = find(prepared.files(), &open.project);
        found.servers.retain(|server| keep(server));
        found
            .problems
            .iter()
            .for_each(|problem| print::problem(problem));
        let mut servers = SessionServers::among(found.servers, &open, print::problem);
        let endpoint = prepared.lasting_endpoint()?;
        let socket = endpoint.socket().map(Path::to_owned);
        servers.reach(Rc::new(endpoint));
        let confined = prepared.confine(Needs {
            web: true,
            socket,
            write: servers.directories(),
            ..Needs::default()
        });
        Ok(Self {
            servers,
            is_broken: found.is_broken,
            confined,
        })
    }

    /// Starts the servers, and lists what each has.
    fn report(self) -> Result<Vec<ServerReport>, Failed> {
        let servers = self.servers;
        self.confined.run(|_| "the servers have ended", async {
            let reports = servers.report().await;
            servers.close().await;
            Ok(reports)
        })
    }
}

impl FrontEnd for AddServer {
    const ROW: CommandRow = row("mcp add", STARTED);

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        let options = self.place.options().and(&self.profile);
        let options = options.and(&self.endpoint).and(&self.network);
        let prepared = launch.prepare::<Self>(options)?;
        let file = store::user_file();
        let wrong = |error: String| Failed::invalid(format!("{}: {error}", file.display()));
        let before = files::read(&file).map_err(|error| wrong(error.to_string()))?;
        let entry = self.entry(prepared.options())?;
        let text = edit::add(before.as_deref().unwrap_or_default(), &self.name, &entry);
        let text = text.map_err(|error| wrong(error.to_string()))?;
        store::ServerFiles::of(&self.name, None).forget();
        files::replace(&file, before.as_deref(), Some(&text))
            .map_err(|error| wrong(error.to_string()))?;
        let reached = Reached::new(prepared, |server| server.name == self.name)?;
        show(&reached.report()?, false)
    }
}

impl AddServer {
    fn entry(&self, options: &SessionOptions) -> Result<Value, Failed> {
        let mut entry = match &self.url {
            Some(_) if options.network(None).is_some() => {
                return Err(Failed::invalid(
                    "--allow-host and --allow-net are for programs, not for an address",
                ));
            }
            Some(url) => {
                let kind = if self.sse { "sse" } else { "http" };
                json!({ "type": kind, "url": url })
            }
            None => self.program(options),
        };
        let pairs = |option: &str, given: &[String], sign: char| {
            let pair = |given: &String| match given.split_once(sign) {
                Some((name, value)) => Ok((name.to_owned(), Value::from(value.trim_start()))),
                None => Err(Failed::invalid(format!(
                    "{option}: {given:?} is not NAME{sign}VALUE"
                ))),
            };
            given.iter().map(pair).collect::<Result<Map<_, _>, _>>()
        };
        if !self.env.is_empty() {
            entry["env"] = pairs("--env", &self.env, '=')?.into();
        }
        if !self.header.is_empty() {
            entry["headers"] = pairs("--header", &self.header, ':')?.into();
        }
        if !self.approve.is_empty() {
            entry["autoApprove"] = self.approve.clone().into();
        }
        Ok(entry)
    }

    fn program(&self, options: &SessionOptions) -> Value {
        let network = options.network(None);
        let project = if self.private { "none" } else { "shared" };
        json!({
            "command": self.command[0],
            "args": self.command[1..],
            "lazaret": {
                "profile": options.choose(None).profile,
                "project": project,
                "hosts": network.as_ref().map_or(&[][..], |network| &network.hosts),
                "presets": network.as_ref().map_or(&[][..], |network| &network.presets),
            },
        })
    }
}

impl FrontEnd for ListServers {
    const ROW: CommandRow = CommandRow::of_files(
        "mcp list",
        "0; 1 settings that cannot be used; 2 wrong arguments; 125 lazaret failed",
    );

    fn errors(&self) -> ErrorForm {
        ErrorForm::object(self.json)
    }

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        let prepared = launch.prepare::<Self>(self.place.options())?;
        let project = prepared.options().open()?.open.project;
        let found = find(prepared.files(), &project);
        found
            .problems
            .iter()
            .for_each(|problem| print::problem(problem));
        note_if(found.servers.is_empty() && found.problems.is_empty());
        match self.json {
            true => print::json(&found.servers.iter().map(described).collect::<Vec<_>>())?,
            false => print::result(
                found
                    .servers
                    .iter()
                    .map(line)
                    .collect::<String>()
                    .as_bytes(),
            )?,
        }
        Ok(if found.is_broken {
            exit::FAILED
        } else {
            exit::OK
        })
    }
}

/// Printing nothing looks like a failure. The note goes to standard error, so that programs read an empty list.
fn note_if(is_empty: bool) {
    if is_empty {
        print::note("there are no servers here; `lazaret mcp add` adds one");
    }
}

fn whose(server: &ServerSettings) -> &'static str {
    match server.whose {
        SettingsOwner::User => "user",
        SettingsOwner::Repository => "repository",
    }
}

fn share(project: Share) -> &'static str {
    match project {
        Share::Shared => "shared",
        Share::None => "none",
    }
}

/// Values of variables and headers may be secrets, so only their names are shown.
fn described(server: &ServerSettings) -> Value {
    let mut described = match &server.kind {
        ServerKind::Program(program) => json!({
            "command": program.command, "profile": program.profile, "project": share(program.project),
            "hosts": program.hosts, "presets": program.presets,
            "env": program.environment.keys().collect::<Vec<_>>(),
        }),
        ServerKind::Address(address) => json!({
            "url": address.url, "headers": address.headers.keys().collect::<Vec<_>>(),
            "type": speech(address.speech),
        }),
    };
    described["name"] = server.name.as_str().into();
    described["whose"] = whose(server).into();
    described["timeoutS"] = server.timeout_s.into();
    described
}

fn speech(speech: Speech) -> &'static str {
    match speech {
        Speech::Http => "http",
        Speech::Sse => "sse",
    }
}

fn line(server: &ServerSettings) -> String {
    let what = match &server.kind {
        ServerKind::Program(program) => {
            let hosts: Vec<_> = program
                .hosts
                .iter()
                .chain(&program.presets)
                .map(String::as_str)
                .collect();
            let hosts = if hosts.is_empty() {
                "none".to_owned()
            } else {
                hosts.join(",")
            };
            let (command, project) = (program.command.join(" "), share(program.project));
            format!(
                "{command}; profile {}, project {project}, hosts {hosts}",
                program.profile
            )
        }
        ServerKind::Address(address) => format!("{} ({})", address.url, speech(address.speech)),
    };
    format!(
        "{}\n",
        escape::line(&format!("{} ({}): {what}", server.name, whose(server)))
    )
}

impl FrontEnd for RemoveServer {
    const ROW: CommandRow = CommandRow::of_files("mcp remove", LISTED);

    fn main(self, _: Launch) -> Result<u8, Failed> {
        let file = store::user_file();
        let wrong = |error: String| Failed::invalid(format!("{}: {error}", file.display()));
        let before = files::read(&file).map_err(|error| wrong(error.to_string()))?;
        let text = edit::remove(before.as_deref().unwrap_or_default(), &self.name);
        let text = text.map_err(|error| wrong(error.to_string()))?;
        files::replace(&file, before.as_deref(), Some(&text))
            .map_err(|error| wrong(error.to_string()))?;
        store::ServerFiles::of(&self.name, None).forget();
        Ok(exit::OK)
    }
}

impl FrontEnd for ServerStatus {
    const ROW: CommandRow = row("mcp status", STARTED);

    fn errors(&self) -> ErrorForm {
        ErrorForm::object(self.json)
    }

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        let options = self.place.options().and(&self.endpoint);
        let reached = Reached::new(launch.prepare::<Self>(options)?, |_| true)?;
        let is_broken = reached.is_broken;
        let reports = reached.report()?;
        note_if(reports.is_empty() && !is_broken);
        let code = show(&reports, self.json)?;
        Ok(if is_broken { exit::FAILED } else { code })
    }
}

impl FrontEnd for ServerLog {
    const ROW: CommandRow = CommandRow::of_files("mcp log", LISTED);

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        let prepared = launch.prepare::<Self>(self.place.options())?;
        let project = prepared.options().open()?.open.project;
        let (_, place) = named(prepared.files(), &self.name, &project)?;
        let log = place.log();
        let lines: String = log
            .lines()
            .map(|line| format!("{}\n", escape::line(line)))
            .collect();
        print::result(lines.as_bytes())?;
        Ok(exit::OK)
    }
}

impl FrontEnd for AcceptServer {
    const ROW: CommandRow = row(
        "mcp accept",
        "0; 1 not accepted; 2 wrong arguments; 125 lazaret failed",
    );

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        let prepared = launch.prepare::<Self>(self.place.options().and(&self.endpoint))?;
        match &self.name {
            Some(name) => self.tools(name, prepared),
            None => self.repository(prepared.files(), prepared.options()),
        }
    }
}

impl AcceptServer {
    /// Accepts the tools of a server, which is started to list them.
    fn tools(&self, name: &str, prepared: Prepared) -> Result<u8, Failed> {
        let Reached {
            servers, confined, ..
        } = Reached::new(prepared, |server| server.name == name)?;
        if servers.are_none() {
            return Err(Failed::invalid(format!("there is no server `{name}`")));
        }
        confined.run(|_| "the servers have ended", async {
            let reports = servers.report().await;
            let accepted = self.reviewed(&servers, &reports);
            servers.close().await;
            accepted
        })
    }

    /// Shows what the server lists, and accepts exactly that if the person does.
    fn reviewed(&self, servers: &SessionServers, reports: &[ServerReport]) -> Result<u8, Failed> {
        let is_shown = pages::show(&server_reports::text(reports))?;
        for report in reports {
            report.tools.as_ref().map_err(Failed::clone)?;
            check_shown(report)?;
            if !is_accepted(self.yes, is_shown)? {
                return Ok(exit::FAILED);
            }
            servers.accept(report)?;
        }
        Ok(exit::OK)
    }

    /// Accepts the repository's file as it is now.
    fn repository(&self, files: &Files, options: &SessionOptions) -> Result<u8, Failed> {
        let project = options.open()?.open.project;
        let path: PathBuf = Path::new(&project).join(store::REPOSITORY_FILE);
        let wrong = |error: String| Failed::invalid(format!("{}: {error}", path.display()));
        let text = read(files, &path)
            .map_err(wrong)?
            .ok_or_else(|| wrong("there is no such file".to_owned()))?;
        let servers = orchestrator_mcp_client::settings::parse(&text, SettingsOwner::Repository)
            .map_err(|error| wrong(error.to_string()))?;
        // Each row of the file has a mark, so that none passes for one of ours.
        let lines: String = escape::lines(&text)
            .iter()
            .map(|line| format!("  |{line}\n"))
            .collect();
        let starts: String = servers.iter().map(line).collect();
        let is_shown = pages::show(&format!(
            "{}, SHA-256 {}:\n{lines}its {} servers:\n{starts}",
            escape::line(&path.display().to_string()),
            store::digest(&text),
            servers.len(),
        ))?;
        if !is_accepted(self.yes, is_shown)? {
            return Ok(exit::FAILED);
        }
        let internal = |error: io::Error| {
            Failed::internal(format!("{}: {error}", store::directory().display()))
        };
        store::prepare().map_err(internal)?;
        store::accept(&project, &text).map_err(internal)?;
        Ok(exit::OK)
    }
}

/// Whether a person accepts what was shown, if it was to its end; with `yes` no question is asked.
pub(crate) fn is_accepted(yes: bool, is_shown: bool) -> Result<bool, Failed> {
    Ok(yes || is_shown && pages::confirm("Accept?")?)
}
