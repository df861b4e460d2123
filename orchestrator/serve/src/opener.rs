//! Where sessions come from. The program decides on a session's project, policy and executor, since it has the user's options.

use broker_protocol::{Failed, Open, Permission, Scope, Trust};
use orchestrator_agent::hooks::SessionHooks;
use orchestrator_engine::HookGuard;
use orchestrator_mcp_client::SessionServers;
use orchestrator_tools::ToolConfig;
use orchestrator_tools::catalogue::{TOOLS, ToolCategory};
use serde_json::Value;
use std::path::PathBuf;
use std::pin::Pin;
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
    fn config(&self, order: &SessionOrder) -> Result<ToolConfig, Failed>;

    /// The user's MCP servers for the session that `open` requests, not attached yet.
    fn servers(&self, order: &SessionOrder, open: &Open) -> SessionServers;

    /// The hooks for the conversation's beginning and end, in a session with this guard.
    fn hooks(&self, guard: &HookGuard) -> Option<Rc<SessionHooks>>;

    /// Whether a session for `order` has a project. Without one, no tool works on files or runs commands.
    fn has_project(&self, order: &SessionOrder) -> bool;

    /// The server's project, for people.
    fn project(&self) -> Option<String>;

    /// The tools of a session that only the server's own options narrow, as in a list of tools. MCP servers that were never seen
    /// before are started to list theirs.
    fn tools(&self) -> ToolList<'_>;
}

/// A list of tools that takes time.
pub type ToolList<'a> = Pin<Box<dyn Future<Output = Vec<Value>> + 'a>>;

/// A session that can be started.
pub(crate) struct StartableSession {
    /// What it is started with; it has the tools of its servers.
    pub config: ToolConfig,
    /// The user's MCP servers in it.
    pub servers: SessionServers,
    /// Why servers are missing.
    pub problems: Vec<String>,
}

impl StartableSession {
    /// Prepares the session for `order`, which may start MCP servers. If this is dropped, they end.
    ///
    /// # Errors
    /// If the project, scope or profile cannot be used.
    pub(crate) async fn prepare(opener: &dyn Opener, order: &SessionOrder) -> Result<Self, Failed> {
        let mut config = opener.config(order)?;
        let servers = opener.servers(order, &config.open);
        let problems = servers.attach(config.tools.registry()).await;
        if let Some(scope) = config
            .open
            .scope
            .as_mut()
            .filter(|_| !opener.has_project(order))
        {
            servers.permit(scope);
        }
        Ok(Self {
            config,
            servers,
            problems,
        })
    }
}

/// The scope of a session without a project: of what `own` permits, the tools that need none.
pub fn without_project(own: Option<&Scope>) -> Scope {
    let needs_none = TOOLS
        .iter()
        .filter(|tool| matches!(tool.category, ToolCategory::Web | ToolCategory::Agent));
    let open = needs_none
        .map(|tool| tool.name)
        .filter(|name| own.is_none_or(|own| own.permits(name)));
    let permission = |tool: &str, allowed| Permission {
        tool: tool.to_owned(),
        allowed,
        paths: Vec::new(),
        timeout_s: None,
        network: true,
    };
    // A scope without any permission would permit the tools of a bare session, so one closed permission is always in it.
    let closed = permission("bash", false);
    Scope {
        permissions: std::iter::once(closed)
            .chain(open.map(|name| permission(name, true)))
            .collect(),
    }
}
