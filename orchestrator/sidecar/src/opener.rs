//! Where sessions come from. Which project, policy and executor one has, the program decides: it knows the user's options.

use broker_protocol::{Failed, Open, Scope, Trust};
use orchestrator_agent::hooks::SessionHooks;
use orchestrator_session::Config;
use serde_json::Value;
use std::path::PathBuf;
use std::rc::Rc;

/// The session that a conversation needs.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionOrder {
    /// The project root; absent, that of the start, if there is one.
    pub project: Option<PathBuf>,
    /// What it is narrowed to, besides what the start has named.
    pub scope: Option<Scope>,
    /// The policy profile; absent, that of the start.
    pub profile: Option<String>,
    /// How much is asked before a call.
    pub trust: Trust,
}

/// Knows what the sessions of conversations are started with.
pub trait Opener {
    /// What a session is started with.
    ///
    /// # Errors
    /// The project, the scope or the profile cannot be had.
    fn config(&self, order: &SessionOrder) -> Result<Config, Failed>;

    /// The hooks of the session that `open` asks for, if there are any.
    fn hooks(&self, open: &Open) -> Option<Rc<SessionHooks>>;

    /// Whether a session of `order` has a project. Without one, no tool works on files or runs commands.
    fn has_project(&self, order: &SessionOrder) -> bool;

    /// The project of the start, for people.
    fn project(&self) -> Option<String>;

    /// The tools of a session that is narrowed by nothing but the start, as in a list of tools.
    fn tools(&self) -> Vec<Value>;
}
