//! The configured servers of a front end that opens several sessions: read once, before it confines itself.

use crate::session_servers::{FoundSettings, SessionServers, find, prepare};
use crate::settings::{ServerKind, ServerProgram, ServerSettings, SettingsOwner, Share};
use crate::store::REPOSITORY_FILE;
use broker_protocol::Open;
use orchestrator_confine::Files;
use orchestrator_engine::executor::Dial;
use orchestrator_tools::registry::Registry;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The configured servers, and how to reach the executor for each of them.
pub struct Available {
    all: Vec<ServerSettings>,
    /// The project whose repository's settings were read.
    project: Option<String>,
    directory: Option<PathBuf>,
    dial: Rc<dyn Dial>,
    tell: fn(&str),
}

impl Available {
    /// Reads the settings of the user, and those of the repository at `project` if they are accepted. Problems go to `tell`.
    pub fn read(files: &Files, project: Option<&str>, dial: Rc<dyn Dial>, tell: fn(&str)) -> Self {
        let found = match project {
            Some(project) => find(files, project),
            None => FoundSettings::of_user(files),
        };
        found.problems.iter().for_each(|problem| tell(problem));
        let mut all = found.servers;
        let directory = prepare(&mut all, project.unwrap_or_default(), tell);
        Self {
            all,
            project: project.map(str::to_owned),
            directory,
            dial,
            tell,
        }
    }

    /// The directories into which their files are written.
    pub fn directories(&self) -> Vec<PathBuf> {
        self.directory.iter().cloned().collect()
    }

    /// The servers of a session: a repository's servers only if it is the repository whose file was read.
    pub fn of(&self, open: &Open) -> SessionServers {
        let is_read = self.project.as_ref() == Some(&open.project);
        let unread = if is_read { None } else { unread(&open.project) };
        unread.iter().for_each(|problem| (self.tell)(problem));
        self.choose(open, unread, |server| {
            is_read || server.whose == SettingsOwner::User
        })
    }

    /// The servers of a session without a project: the user's that need none.
    pub fn without_project(&self, open: &Open) -> SessionServers {
        let needs_none = |server: &ServerSettings| match &server.kind {
            ServerKind::Program(ServerProgram { project, .. }) => *project == Share::None,
            ServerKind::Address(_) => true,
        };
        self.choose(open, None, |server| {
            server.whose == SettingsOwner::User && needs_none(server)
        })
    }

    fn choose(
        &self,
        open: &Open,
        problem: Option<String>,
        is_chosen: impl Fn(&ServerSettings) -> bool,
    ) -> SessionServers {
        let chosen = self
            .all
            .iter()
            .filter(|server| is_chosen(server))
            .cloned()
            .collect();
        let mut servers = SessionServers::new(chosen, open, self.directory.clone(), self.tell);
        servers.problems.extend(problem);
        servers.reach(self.dial.clone());
        servers
    }

    /// Registers the tools of the session in `open` to list them; no server stays.
    pub async fn list(&self, open: &Open, registry: &mut Registry) {
        let servers = self.of(open);
        servers.attach(registry).await;
        servers.close().await;
    }
}

/// A repository's settings that we can no longer read: whether they are there can still be seen.
fn unread(project: &str) -> Option<String> {
    let path = Path::new(project).join(REPOSITORY_FILE);
    let why = "is not read: a running server has only the servers of the project that it was started for, and the user's own";
    (!matches!(path.try_exists(), Ok(false))).then(|| format!("{} {why}", path.display()))
}
