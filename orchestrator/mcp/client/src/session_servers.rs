//! The MCP servers of one session: read from the settings, attached to its tools, and ended with it.

use crate::address::name_hosts;
use crate::held_settings;
use crate::servers::{ServerReport, Servers, Watch};
use crate::settings::{self, ServerKind, ServerSettings, SettingsOwner, read};
use crate::store::{self, ServerFiles};
use crate::tool_changes::Notices;
use broker_protocol::{Failed, Open, Permission, Scope, limit};
use orchestrator_confine::Files;
use orchestrator_engine::Session;
use orchestrator_engine::executor::Dial;
use orchestrator_text::known::redactor;
use orchestrator_text::secret_environment;
use orchestrator_text::variables;
use orchestrator_tools::catalogue::BATCH;
use orchestrator_tools::name;
use orchestrator_tools::registry::Registry;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The content of the settings.
#[derive(Debug, Default)]
pub struct FoundSettings {
    /// The servers to use; with the same name, the user's own counts.
    pub servers: Vec<ServerSettings>,
    /// Notes for the user: settings that are invalid or not accepted.
    pub problems: Vec<String>,
    /// Whether there are settings that cannot be used.
    pub is_broken: bool,
    /// The repository's settings, where they are not accepted yet.
    pub(crate) proposed: Option<String>,
}

/// Reads the settings of the user and, if their current text was accepted, those of the repository at `project`.
pub fn find(files: &Files, project: &str) -> FoundSettings {
    let mut found = FoundSettings::of_user(files);
    found.add_repository(files, project);
    found
}

impl FoundSettings {
    /// Only the settings of the user.
    pub(crate) fn of_user(files: &Files) -> Self {
        let mut found = Self::default();
        match held_settings::of_user(files, &store::user_file()) {
            Ok(servers) => found.servers = servers,
            Err(why) => {
                found.broken(format!(
                    "no server of yours is used: {}: {why}",
                    store::user_file().display()
                ));
            }
        }
        found
    }

    fn add_repository(&mut self, files: &Files, project: &str) {
        let path = Path::new(project).join(store::REPOSITORY_FILE);
        let text = match read(files, &path) {
            Ok(Some(text)) => text,
            Ok(None) => return,
            Err(why) => return self.broken(format!("{}: {why}", path.display())),
        };
        if !store::is_accepted(project, &text) {
            let why = "names servers of its own; they start only when you have accepted them: `lazaret mcp accept`";
            self.problems.push(format!("{} {why}", path.display()));
            self.proposed = Some(text);
            return;
        }
        match settings::parse(&text, SettingsOwner::Repository) {
            Ok(servers) => {
                let is_new = |server: &ServerSettings| {
                    !self.servers.iter().any(|own| own.name == server.name)
                };
                let (new, known): (Vec<_>, Vec<_>) = servers.into_iter().partition(is_new);
                let names = known
                    .iter()
                    .map(|server| server.name.as_str())
                    .collect::<Vec<_>>();
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
pub fn named(
    files: &Files,
    name: &str,
    project: &str,
) -> Result<(ServerSettings, ServerFiles), Failed> {
    let server = find(files, project)
        .servers
        .into_iter()
        .find(|server| server.name == name);
    let server = server.ok_or_else(|| Failed::invalid(format!("there is no server `{name}`")))?;
    name_hosts(std::slice::from_ref(&server), project);
    let place = ServerFiles::of_server(&server, project);
    Ok((server, place))
}

/// Creates the directory of their files. Without it, no server is used.
pub(crate) fn prepare(
    servers: &mut Vec<ServerSettings>,
    project: &str,
    tell: fn(&str),
) -> Option<PathBuf> {
    if servers.is_empty() {
        return None;
    }
    name_hosts(servers, project);
    let prepared = store::prepare();
    prepared
        .inspect_err(|error| {
            tell(&format!(
                "no server is used: {}: {error}",
                store::directory().display()
            ));
            servers.clear();
        })
        .ok()
}

/// The servers of a session. They end when this is dropped.
pub struct SessionServers {
    servers: Rc<Servers>,
    dial: Option<Rc<dyn Dial>>,
    directory: Option<PathBuf>,
    /// The scope by which they were chosen.
    scope: Option<Scope>,
    /// Why servers are missing, as far as it is known before they are started.
    pub(crate) problems: Vec<String>,
    tell: fn(&str),
    serving: RefCell<Option<Watch>>,
    following: RefCell<Option<Watch>>,
    notices: Rc<Notices>,
}

/// Reads the variables that a server's program gets while they can be read.
fn read_variables(server: &ServerSettings) {
    match &server.kind {
        ServerKind::Program(program) => {
            let texts = program.command.iter().chain(program.environment.values());
            let names = texts.flat_map(|text| variables::names(text));
            names.for_each(|name| drop(secret_environment::variable(&name)));
        }
        // Its hosts are named before.
        ServerKind::Address(_) => {}
    }
}

impl SessionServers {
    /// The servers of the session in `open`; problems go to `tell`. Has to come before we confine ourselves.
    pub fn of(files: &Files, open: &Open, tell: fn(&str)) -> Self {
        let FoundSettings {
            servers, problems, ..
        } = find(files, &open.project);
        problems.iter().for_each(|problem| tell(problem));
        Self::among(servers, open, tell)
    }

    /// The same, but only the server with the tool `tool`: none if it is no server's tool, all for a batch.
    pub fn of_tool(files: &Files, tool: &str, open: &Open, tell: fn(&str)) -> Self {
        if tool == BATCH {
            return Self::of(files, open, tell);
        }
        let Some(wanted) = name::server(tool) else {
            return Self::among(Vec::new(), open, tell);
        };
        let FoundSettings {
            mut servers,
            problems,
            ..
        } = find(files, &open.project);
        servers.retain(|server| server.name == wanted);
        if servers.is_empty() {
            problems.iter().for_each(|problem| tell(problem));
        }
        Self::among(servers, open, tell)
    }

    pub fn among(mut servers: Vec<ServerSettings>, open: &Open, tell: fn(&str)) -> Self {
        let directory = prepare(&mut servers, &open.project, tell);
        Self::new(servers, open, directory, tell)
    }

    pub(crate) fn new(
        servers: Vec<ServerSettings>,
        open: &Open,
        directory: Option<PathBuf>,
        tell: fn(&str),
    ) -> Self {
        servers.iter().for_each(read_variables);
        Self {
            servers: Rc::new(Servers::new(servers, open, redactor())),
            dial: None,
            directory,
            scope: open.scope.clone(),
            problems: Vec::new(),
            tell,
            serving: RefCell::default(),
            following: RefCell::default(),
            notices: Rc::default(),
        }
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

    /// Registers their tools, after starting those that are not known yet, and carries out calls from then on. Reports and returns
    /// why servers are missing. Needs a local runtime.
    pub async fn attach(&self, registry: &mut Registry) -> Vec<String> {
        let mut problems = self.problems.clone();
        let Some(dial) = self.dial.as_ref().filter(|_| !self.are_none()) else {
            return problems;
        };
        let failed = self.servers.register(dial, registry).await;
        failed
            .iter()
            .for_each(|failed| (self.tell)(&failed.message));
        problems.extend(failed.into_iter().map(|failed| failed.message));
        self.serving.replace(self.servers.serve(dial.clone()));
        problems
    }

    /// Follows changes of their tools while `session` runs: reports them, and registers what a person accepts. Needs a local runtime.
    pub fn follow(&self, session: &Session) {
        self.follow_with(session, || ());
    }

    /// The same; calls `renewed` after tools were registered.
    pub fn follow_with(&self, session: &Session, renewed: impl Fn() + 'static) {
        let (tell, notices) = (self.tell, self.notices.clone());
        let follow = move |text: String| {
            tell(&text);
            notices.add(text);
        };
        self.following
            .replace(self.servers.follow(session.clone(), follow, renewed));
    }

    /// What was reported since the last call of this.
    pub fn take_notices(&self) -> Vec<String> {
        self.notices.take()
    }

    /// Adds their tools to the scope of a session without a project, which permits only what it names.
    pub fn permit(&self, scope: &mut Scope) {
        let left_out = add_permissions(scope, self.scope.as_ref(), self.servers.names());
        if left_out > 0 {
            (self.tell)(&format!(
                "{left_out} tools of servers are not offered: a scope names no more"
            ));
        }
    }

    /// Starts every server and reports its state.
    pub async fn report(&self) -> Vec<ServerReport> {
        match &self.dial {
            Some(dial) => self.servers.report(dial).await,
            None => Vec::new(),
        }
    }

    /// Accepts the tools that a server listed for `report`, exactly as they are there.
    ///
    /// # Errors
    /// If it listed none, or the pins cannot be written.
    pub fn accept(&self, report: &ServerReport) -> Result<(), Failed> {
        self.servers.accept(report)
    }

    /// Ends all servers of the session. No call starts one again.
    pub async fn close(&self) {
        self.serving.replace(None);
        self.following.replace(None);
        self.servers.close().await;
    }
}

/// Permits `tools` in `scope` as `own` does, as far as there is room; returns how many are left out.
fn add_permissions(scope: &mut Scope, own: Option<&Scope>, tools: BTreeSet<String>) -> usize {
    let permission = |tool: String| match own {
        None => Some(Permission {
            tool,
            allowed: true,
            paths: Vec::new(),
            timeout_s: None,
            network: true,
        }),
        Some(own) => own
            .permissions
            .iter()
            .find(|one| one.tool == tool && one.allowed)
            .cloned(),
    };
    let mut permissions: Vec<_> = tools.into_iter().filter_map(permission).collect();
    let room = limit::PERMISSIONS.saturating_sub(scope.permissions.len());
    let left_out = permissions.len().saturating_sub(room);
    permissions.truncate(room);
    scope.permissions.extend(permissions);
    left_out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permission(tool: &str, allowed: bool) -> Permission {
        Permission {
            tool: tool.into(),
            allowed,
            paths: Vec::new(),
            timeout_s: Some(7),
            network: true,
        }
    }

    #[test]
    fn a_scope_without_a_project_names_as_many_tools_as_it_may() {
        let tools = |count: usize| {
            (0..count)
                .map(|number| format!("mcp__s__{number:03}"))
                .collect()
        };
        for (count, left_out) in [(0, 0), (limit::PERMISSIONS - 1, 0), (limit::PERMISSIONS, 1)] {
            let mut scope = Scope {
                permissions: vec![permission("bash", false)],
            };
            assert_eq!(add_permissions(&mut scope, None, tools(count)), left_out);
            assert_eq!(scope.permissions.len(), 1 + count - left_out);
            assert!(scope.check().is_ok());
        }
    }

    #[test]
    fn a_scope_of_the_client_is_not_widened() {
        let own = [
            permission("mcp__s__a", true),
            permission("mcp__s__b", false),
            permission("bash", true),
        ];
        let own = Scope {
            permissions: own.to_vec(),
        };
        let mut scope = Scope {
            permissions: vec![permission("bash", false)],
        };
        let tools = ["mcp__s__a", "mcp__s__b", "mcp__s__c"].map(str::to_owned);
        assert_eq!(add_permissions(&mut scope, Some(&own), tools.into()), 0);
        assert_eq!(
            scope.permissions,
            [permission("bash", false), permission("mcp__s__a", true)]
        );
    }
}
