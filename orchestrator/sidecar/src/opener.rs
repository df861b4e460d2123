//! Where sessions come from. The program decides on a session's project, policy and executor, since it has the user's options.

use broker_protocol::{Failed, Open, Scope, Trust};
use orchestrator_agent::hooks::SessionHooks;
use orchestrator_session::Config;
use serde_json::Value;
use std::path::PathBuf;
use std::rc::Rc;

/// The session that a conversation requests.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionOrder {
    /// The project root; by default the server's, if it has one.
    pub project: Option<PathBuf>,
    /// The scope that narrows it, if the server has none.
    pub scope: Option<Scope>,
    /// The policy profile; by default the server's.
    pub profile: Option<String>,
    /// How strict approvals are.
    pub trust: Trust,
}

/// Provides the configuration of conversations' sessions.
pub trait Opener {
    /// The configuration of a session.
    ///
    /// # Errors
    /// If the project, scope or profile cannot be used.
    fn config(&self, order: &SessionOrder) -> Result<Config, Failed>;

    /// The hooks of the session that `open` requests, if there are any.
    fn hooks(&self, open: &Open) -> Option<Rc<SessionHooks>>;

    /// Whether a session for `order` has a project. Without one, no tool works on files or runs commands.
    fn has_project(&self, order: &SessionOrder) -> bool;

    /// The server's project, for people.
    fn project(&self) -> Option<String>;

    /// The tools of a session that only the server's own options narrow, as in a list of tools.
    fn tools(&self) -> Vec<Value>;
}
