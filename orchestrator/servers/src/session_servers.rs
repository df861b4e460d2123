//! The MCP servers of one session: read from the settings, attached to its tools, and ended with it.

use crate::servers::{Report, Servers};
use crate::settings::{self, Server, Whose};
use crate::store::{self, Place};
use broker_protocol::{Failed, Open};
use orchestrator_session::executor::Dial;
use orchestrator_text::known::redactor;
use orchestrator_tools::catalogue::BATCH;
use orchestrator_tools::name;
use orchestrator_tools::registry::Registry;
use policies::source;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The content of the settings.
#[derive(Debug, Default)]
pub struct Found {
    /// The servers to use; with the same name, the user's own counts.
    pub servers: Vec<Server>,
    /// Notes for the user: settings that are invalid or not accepted.
    pub problems: Vec<String>,
    /// Whether there are settings that cannot be used.
    pub is_broken: bool,
    /// The repository's settings, where they are not accepted yet.
    pub proposed: Option<String>,
}

/// Reads the settings of the user and, if their current text was accepted, those of the repository at `project`. Has to come before
/// we confine ourselves.
pub fn find(project: &str) -> Found {
    let mut found = Found::default();
    match read(&store::user_file()).and_then(|text| parse(text.as_deref(), Whose::User)) {
        Ok(servers) => found.servers = servers,
        Err(why) => {
            found.broken(format!("no server of yours is used: {}: {why}", store::user_file().display()));
        }
    }
    found.add_repository(project);
    found
}

impl Found {
    fn add_repository(&mut self, project: &str) {
        let path = Path::new(project).join(store::REPOSITORY_FILE);
        let text = match read(&path) {
            Ok(Some(text)) => text,
            Ok(None) => return,
            Err(why) => return self.broken(format!("{}: {why}", path.display())),
        };
        if !store::is_accepted(project, &text) {
            let why =
                "names servers of its own; they start only when you have accepted them: `lazaret mcp accept`";
            self.problems.push(format!("{} {why}", path.display()));
            self.proposed = Some(text);
            return;
        }
        match parse(Some(&text), Whose::Repository) {
            Ok(servers) => {
                let is_new = |server: &Server| !self.servers.iter().any(|own| own.name == server.name);
                let (new, known): (Vec<_>, Vec<_>) = servers.into_iter().partition(is_new);
                let names = known.iter().map(|server| server.name.as_str()).collect::<Vec<_>>();
                if !names.is_empty() {
                    self.problems.push(format!(
                        "{}: yours are used in place of: {}",
                        path.display(),
                        names.join(", ")
                    ));
                }
                let room = settings::SERVERS_MAX.saturating_sub(self.servers.len());
                self.servers.extend(new.into_iter().take(room));
            }
            Err(why) => self.broken(format!("{}: {why}", path.display())),
        }
    }

    fn broken(&mut self, problem: String) {
        self.problems.push(problem);
        self.is_broken = true;
    }
}

/// The server with this name in the settings for `project`, and the place of its stored files.
///
/// # Errors
/// If the settings have no server with this name.
pub fn named(name: &str, project: &str) -> Result<(Server, Place), Failed> {
    let server = find(project).servers.into_iter().find(|server| server.name == name);
    let server = server.ok_or_else(|| Failed::invalid(format!("there is no server `{name}`")))?;
    let place = Place::of_server(&server, project);
    Ok((server, place))
}

/// The text of a settings file, if it exists.
///
/// # Errors
/// If it cannot be read, or is too long.
pub fn read(path: &Path) -> Result<Option<String>, String> {
    if !path.exists() {
        return Ok(None);
    }
    source::read_named(path, settings::FILE_MAX).map(Some).map_err(|error| error.to_string())
}

fn parse(text: Option<&str>, whose: Whose) -> Result<Vec<Server>, String> {
    text.map_or(Ok(Vec::new()), |text| settings::parse(text, whose).map_err(|error| error.to_string()))
}

/// The servers of a session.
pub struct SessionServers {
    servers: Rc<Servers>,
    dial: Option<Rc<dyn Dial>>,
    directory: Option<PathBuf>,
}

impl SessionServers {
    /// The servers of the session in `open`; problems go to `tell`. Has to come before we confine ourselves.
    pub fn of(open: &Open, tell: impl Fn(&str)) -> Self {
        let Found { servers, problems, .. } = find(&open.project);
        problems.iter().for_each(|problem| tell(problem));
        Self::among(servers, open, tell)
    }

    /// The same, but only the server with the tool `tool`: none if it is no server's tool, all for a batch.
    pub fn of_tool(tool: &str, open: &Open, tell: impl Fn(&str)) -> Self {
        if tool == BATCH {
            return Self::of(open, tell);
        }
        let Some(wanted) = name::server(tool) else { return Self::none(open) };
        let Found { mut servers, problems, .. } = find(&open.project);
        servers.retain(|server| server.name == wanted);
        if servers.is_empty() {
            problems.iter().for_each(|problem| tell(problem));
        }
        Self::among(servers, open, tell)
    }

    /// None.
    pub fn none(open: &Open) -> Self {
        Self::among(Vec::new(), open, |_| ())
    }

    /// These.
    pub fn among(servers: Vec<Server>, open: &Open, tell: impl Fn(&str)) -> Self {
        let mut directory = None;
        let mut servers = servers;
        if !servers.is_empty() {
            match store::prepare() {
                Ok(made) => directory = Some(made),
                Err(error) => {
                    let path = store::directory();
                    tell(&format!("no server is used: {}: {error}", path.display()));
                    servers.clear();
                }
            }
        }
        Self { servers: Rc::new(Servers::new(servers, open, redactor())), dial: None, directory }
    }

    /// Whether there are none.
    pub fn are_none(&self) -> bool {
        self.servers.are_none()
    }

    /// The directories into which their files are written.
    pub fn directories(&self) -> Vec<PathBuf> {
        self.directory.iter().cloned().collect()
    }

    /// Sets how to reach the executor, before a session starts: each server has a session of its own.
    pub fn reach(&mut self, dial: Rc<dyn Dial>) {
        self.dial = Some(dial);
    }

    /// Registers their tools, after starting those that are not known yet, and carries out calls from then on. Needs a local
    /// runtime.
    pub async fn attach(&self, registry: &mut Registry) {
        let Some(dial) = self.dial.as_ref().filter(|_| !self.are_none()) else { return };
        self.servers.register(dial, registry).await;
        self.servers.serve(dial.clone());
    }

    /// Starts every server and reports its state.
    pub async fn report(&self) -> Vec<Report> {
        match &self.dial {
            Some(dial) => self.servers.report(dial).await,
            None => Vec::new(),
        }
    }

    /// Accepts the current tools of a server; returns their number.
    ///
    /// # Errors
    /// If it cannot be started, or the pins cannot be written.
    pub async fn accept(&self, server: &str) -> Result<usize, Failed> {
        match &self.dial {
            Some(dial) => self.servers.accept(server, dial).await,
            None => Err(Failed::internal("the executor cannot be reached".to_owned())),
        }
    }

    /// Ends all servers of the session.
    pub async fn close(&self) {
        self.servers.close().await;
    }
}
