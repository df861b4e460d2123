//! `lazaret mcp add|list|remove|status|log|accept|login|logout`: manages the MCP servers whose tools a session has.

use crate::login;
use crate::server_reports::{self, check_shown, show};
use broker_protocol::Failed;
use clap::{Args, Subcommand};
use orchestrator_confine::{Needs, confine};
use orchestrator_install::files;
use orchestrator_options::endpoint::Endpoint;
use orchestrator_options::exit;
use orchestrator_options::session_options::SessionOptions;
use orchestrator_servers::settings::{Kind, Server, Share, Speech, Whose};
use orchestrator_servers::{Report, SessionServers, edit, find, named, read, store};
use orchestrator_terminal::runtime::runtime;
use orchestrator_terminal::{pages, print};
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
pub enum ServersCommand {
    Add(Add),
    List(List),
    Remove(Remove),
    Status(Status),
    Log(Log),
    Accept(Accept),
    Login(login::Login),
    Logout(login::Logout),
}

/// Write a server into ~/.config/lazaret/mcp.json, start it and record its tools
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Add {
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
}

/// List the servers and how each runs, without starting one
#[derive(Args)]
pub struct List {
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

/// Remove a server from ~/.config/lazaret/mcp.json, with its recorded tools and its log
#[derive(Args)]
pub struct Remove {
    /// Its name
    name: String,
}

/// Start every server and print its tools, those in full that are not as they were accepted
#[derive(Args)]
pub struct Status {
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

/// Print the last 1,000 lines of a server's standard error, its invalid lines, and how it ended
#[derive(Args)]
pub struct Log {
    /// Its name
    name: String,
}

/// Show what is new or changed of a server's tools, and accept it; without a name, the servers of the repository's .mcp.json
#[derive(Args)]
pub struct Accept {
    /// Its name
    name: Option<String>,
    /// Accept without asking first
    #[arg(long)]
    yes: bool,
}

impl ServersCommand {
    /// Runs the subcommand; returns the exit code.
    pub fn main(self, options: &SessionOptions) -> Result<u8, Failed> {
        match self {
            ServersCommand::Add(add) => add.main(options),
            ServersCommand::List(list) => list.main(options),
            ServersCommand::Remove(remove) => remove.main(options),
            ServersCommand::Status(status) => status.main(options),
            ServersCommand::Log(log) => log.main(options),
            ServersCommand::Accept(accept) => accept.main(options),
            ServersCommand::Login(login) => login.main(options),
            ServersCommand::Logout(logout) => logout.main(options),
        }
    }
}

/// The servers of a session that is to be opened, or those among them that `keep` names, with their way to the executor; and whether
/// there are settings that cannot be used.
fn prepare(
    options: &SessionOptions,
    keep: impl Fn(&Server) -> bool,
) -> Result<(SessionServers, bool), Failed> {
    let open = options.open(0)?.open;
    let mut found = find(&open.project);
    found.servers.retain(|server| keep(server));
    found
        .problems
        .iter()
        .for_each(|problem| print::problem(problem));
    let mut servers = SessionServers::among(found.servers, &open, print::problem);
    let endpoint = options.endpoint().lasting()?;
    let socket = endpoint.socket().map(Path::to_owned);
    servers.reach(Rc::new(endpoint));
    confine(&Needs {
        web: true,
        socket,
        write: servers.directories(),
        ..Needs::default()
    });
    Ok((servers, found.is_broken))
}

impl Add {
    fn main(self, options: &SessionOptions) -> Result<u8, Failed> {
        let file = store::user_file();
        let wrong = |error: String| Failed::invalid(format!("{}: {error}", file.display()));
        let before = files::read(&file).map_err(|error| wrong(error.to_string()))?;
        let entry = self.entry(options)?;
        let text = edit::add(before.as_deref().unwrap_or_default(), &self.name, &entry);
        let text = text.map_err(|error| wrong(error.to_string()))?;
        store::Place::of(&self.name, None).forget();
        files::replace(&file, before.as_deref(), Some(&text))
            .map_err(|error| wrong(error.to_string()))?;
        let (servers, _) = prepare(options, |server| server.name == self.name)?;
        let reports = runtime()?.block_on(async {
            let reports = servers.report().await;
            servers.close().await;
            reports
        });
        show(&reports, false)
    }

    fn entry(&self, options: &SessionOptions) -> Result<Value, Failed> {
        let mut entry = match &self.url {
            Some(_) if options.network(None, false).is_some() => {
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
        let network = options.network(None, false);
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

impl List {
    fn main(self, options: &SessionOptions) -> Result<u8, Failed> {
        let found = find(&options.open(0)?.open.project);
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

fn whose(server: &Server) -> &'static str {
    match server.whose {
        Whose::User => "user",
        Whose::Repository => "repository",
    }
}

fn share(project: Share) -> &'static str {
    match project {
        Share::Shared => "shared",
        Share::None => "none",
    }
}

/// Values of variables and headers may be secrets, so only their names are shown.
fn described(server: &Server) -> Value {
    let mut described = match &server.kind {
        Kind::Program(program) => json!({
            "command": program.command, "profile": program.profile, "project": share(program.project),
            "hosts": program.hosts, "presets": program.presets,
            "env": program.environment.keys().collect::<Vec<_>>(),
        }),
        Kind::Address(address) => json!({
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

fn line(server: &Server) -> String {
    let what = match &server.kind {
        Kind::Program(program) => {
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
        Kind::Address(address) => format!("{} ({})", address.url, speech(address.speech)),
    };
    format!(
        "{}\n",
        escape::line(&format!("{} ({}): {what}", server.name, whose(server)))
    )
}

impl Remove {
    fn main(self, _: &SessionOptions) -> Result<u8, Failed> {
        let file = store::user_file();
        let wrong = |error: String| Failed::invalid(format!("{}: {error}", file.display()));
        let before = files::read(&file).map_err(|error| wrong(error.to_string()))?;
        let text = edit::remove(before.as_deref().unwrap_or_default(), &self.name);
        let text = text.map_err(|error| wrong(error.to_string()))?;
        files::replace(&file, before.as_deref(), Some(&text))
            .map_err(|error| wrong(error.to_string()))?;
        store::Place::of(&self.name, None).forget();
        Ok(exit::OK)
    }
}

impl Status {
    fn main(self, options: &SessionOptions) -> Result<u8, Failed> {
        let (servers, is_broken) = prepare(options, |_| true)?;
        let reports = runtime()?.block_on(async {
            let reports = servers.report().await;
            servers.close().await;
            reports
        });
        note_if(reports.is_empty() && !is_broken);
        let code = show(&reports, self.json)?;
        Ok(if is_broken { exit::FAILED } else { code })
    }
}

impl Log {
    fn main(self, options: &SessionOptions) -> Result<u8, Failed> {
        let (_, place) = named(&self.name, &options.open(0)?.open.project)?;
        let log = place.log();
        let lines: String = log
            .lines()
            .map(|line| format!("{}\n", escape::line(line)))
            .collect();
        print::result(lines.as_bytes())?;
        Ok(exit::OK)
    }
}

impl Accept {
    fn main(self, options: &SessionOptions) -> Result<u8, Failed> {
        match &self.name {
            Some(name) => self.tools(name, options),
            None => self.repository(options),
        }
    }

    /// Accepts the tools of a server, which is started to list them.
    fn tools(&self, name: &str, options: &SessionOptions) -> Result<u8, Failed> {
        let (servers, _) = prepare(options, |server| server.name == name)?;
        if servers.are_none() {
            return Err(Failed::invalid(format!("there is no server `{name}`")));
        }
        runtime()?.block_on(async {
            let reports = servers.report().await;
            let accepted = self.reviewed(&servers, &reports);
            servers.close().await;
            accepted
        })
    }

    /// Shows what the server lists, and accepts exactly that if the person does.
    fn reviewed(&self, servers: &SessionServers, reports: &[Report]) -> Result<u8, Failed> {
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
    fn repository(&self, options: &SessionOptions) -> Result<u8, Failed> {
        let project = options.open(0)?.open.project;
        let path: PathBuf = Path::new(&project).join(store::REPOSITORY_FILE);
        let wrong = |error: String| Failed::invalid(format!("{}: {error}", path.display()));
        let text = read(&path)
            .map_err(wrong)?
            .ok_or_else(|| wrong("there is no such file".to_owned()))?;
        let servers = orchestrator_servers::settings::parse(&text, Whose::Repository)
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
pub fn is_accepted(yes: bool, is_shown: bool) -> Result<bool, Failed> {
    Ok(yes || is_shown && pages::confirm("Accept?")?)
}

/// Connects the servers of a session to the executor. Has to run before we confine ourselves: afterwards no program can be started.
pub fn reach(servers: &mut SessionServers, endpoint: &Endpoint) {
    servers.reach(Rc::new(endpoint.clone()));
}
