//! The one registry of tools: built-in tools, and those of servers and clients.
//!
//! A tool is known and listed by one name. A client or a server brings a tool as a schema and a channel for its calls; nothing else
//! distinguishes it from a built-in tool.

use crate::agent_call::AGENT_TOOLS;
use crate::aliases::NOT_SUPPORTED;
use crate::catalogue::{
    BATCH, CatalogueTool, TOOLS, ToolCategory, UNASKED, canonical, policy_name,
};
use crate::input_error::{FieldError, meant};
use crate::name;
use crate::schema::{Schema, SchemaError};
use crate::subagent::SUBAGENT;
use broker_protocol::{Effect, ErrorKind, Failed, Request, Risk, Scope};
use orchestrator_engine::execution::Executions;
use orchestrator_engine::{NewTool, Registered, ToolOrigin};
use orchestrator_text::clean::Cleaner;
use orchestrator_text::utf8::beginning;
use policies::{EffectivePolicy, Facts, Verdict, judge};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thiserror::Error;

/// Maximum number of registered tools.
pub const MAX: usize = 1000;
/// Maximum length of a tool's description in bytes.
pub(crate) const DESCRIPTION_MAX: usize = 4096;
/// Maximum total bytes of the descriptions and schemas of registered tools.
pub const BYTES_MAX: usize = 4 << 20;
/// Default time limit of a registered tool, in seconds.
pub const TIMEOUT_S: u32 = 60;
/// Longest time limit that a registered tool may have, in seconds.
pub const TIMEOUT_MAX_S: u32 = 600;

/// Why there are no [`AGENT_TOOLS`] where no model runs.
const NO_MODELS: &str = "there are no models here that could answer; `lazaret chat` and `lazaret serve` have some, or open a \
                         further session for another agent";

#[derive(Default)]
pub struct Registry {
    registered: BTreeMap<String, Arc<ClientTool>>,
    servers: BTreeSet<String>,
    disabled: BTreeSet<String>,
    /// Whether the front end has models, and so carries out calls about the agent itself.
    has_models: bool,
    /// Hides tools whose every call it denies.
    policy: Option<EffectivePolicy>,
}

/// A tool, looked up by name once and then passed on.
#[derive(Clone)]
pub enum Entry {
    /// A built-in tool of the catalogue.
    BuiltIn(&'static CatalogueTool),
    /// One of a client or a server.
    Registered(Arc<ClientTool>),
}

/// A tool of a client or a server.
#[derive(Debug)]
pub struct ClientTool {
    name: String,
    origin: ToolOrigin,
    description: String,
    schema: Schema,
    /// Size of description and schema.
    bytes: usize,
    risk: Risk,
    /// How long a call may take, in seconds.
    pub timeout_s: u32,
    pub executions: Executions,
}

/// Why a tool cannot be registered, unregistered or found.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum RegistryError {
    #[error("there is no tool {name:?}{}; there are {known}", .meant.as_ref().map_or(String::new(), |meant| format!(", did you mean `{meant}`?")))]
    UnknownTool {
        name: String,
        meant: Option<String>,
        known: String,
    },
    /// It is a tool of another agent that has no counterpart here.
    #[error("{name:?} is not supported: {why}")]
    NotSupported {
        name: &'static str,
        why: &'static str,
    },
    #[error("there is no server {0:?}")]
    UnknownServer(String),
    #[error("the tool {0:?} is switched off")]
    Disabled(String),
    #[error("there is a tool {0:?} already")]
    Duplicate(String),
    #[error("there is a server {0:?} already")]
    DuplicateServer(String),
    #[error("{0:?} is not a name for a tool: 1 to {max} letters, digits, '_' or '-', not beginning with mcp__", max = name::MAX)]
    Name(String),
    #[error("the tool {0:?} is built in; it can be switched off")]
    BuiltIn(String),
    #[error("no more than {MAX} tools can be registered")]
    Full,
    #[error(
        "the descriptions and schemas of all registered tools have at most {BYTES_MAX} bytes together"
    )]
    TooLarge,
    #[error("a description of {0} bytes; {DESCRIPTION_MAX} are allowed")]
    Description(usize),
    #[error("a time limit of {0} s; 1 to {TIMEOUT_MAX_S} are allowed")]
    Timeout(u32),
    #[error("invalid schema of {name:?}: {error}")]
    Schema { name: String, error: SchemaError },
}

impl RegistryError {
    /// The tool, if its name is known. An unknown name may be anything, even a secret.
    pub fn tool(&self) -> String {
        match self {
            RegistryError::NotSupported { name, .. } => (*name).to_owned(),
            RegistryError::Disabled(name) => name.clone(),
            _ => String::new(),
        }
    }
}

impl From<RegistryError> for Failed {
    fn from(error: RegistryError) -> Self {
        let kind = match error {
            RegistryError::UnknownTool { .. }
            | RegistryError::NotSupported { .. }
            | RegistryError::UnknownServer(_)
            | RegistryError::Disabled(_) => ErrorKind::UnknownTool,
            RegistryError::Full | RegistryError::TooLarge => ErrorKind::ResourceLimit,
            RegistryError::Duplicate(_)
            | RegistryError::DuplicateServer(_)
            | RegistryError::Name(_)
            | RegistryError::BuiltIn(_)
            | RegistryError::Description(_)
            | RegistryError::Timeout(_)
            | RegistryError::Schema { .. } => ErrorKind::InvalidInput,
        };
        Failed {
            kind,
            message: error.to_string(),
        }
    }
}

impl Registry {
    /// Adds a server, so that its tools can be registered.
    ///
    /// # Errors
    /// [`RegistryError::DuplicateServer`].
    pub fn add_server(&mut self, server: &str) -> Result<(), RegistryError> {
        if !self.servers.insert(server.to_owned()) {
            return Err(RegistryError::DuplicateServer(server.to_owned()));
        }
        Ok(())
    }

    /// Forgets a server and its tools.
    ///
    /// # Errors
    /// [`RegistryError::UnknownServer`].
    pub fn remove_server(&mut self, server: &str) -> Result<(), RegistryError> {
        if !self.servers.remove(server) {
            return Err(RegistryError::UnknownServer(server.to_owned()));
        }
        self.registered.retain(
            |_, tool| !matches!(&tool.origin, ToolOrigin::Server { server: of, .. } if of == server),
        );
        Ok(())
    }

    /// Registers a tool. The names of a server and its tool are changed to fit; if the result is taken, it gets a number. A client
    /// has to choose a valid name.
    ///
    /// # Errors
    /// If a name is taken or invalid, the schema is invalid, or a bound is exceeded.
    pub fn register(&mut self, new: NewTool) -> Result<Registered, RegistryError> {
        if self.registered.len() >= MAX {
            return Err(RegistryError::Full);
        }
        let NewTool {
            origin,
            description,
            schema,
            risk,
            timeout_s,
            executions,
        } = new;
        let registered = self.name_for(&origin)?;
        let name = registered.name.clone();
        if !(1..=TIMEOUT_MAX_S).contains(&timeout_s) {
            return Err(RegistryError::Timeout(timeout_s));
        }
        // A server's long description is cut; a client gets an error.
        if matches!(origin, ToolOrigin::Client { .. }) && description.len() > DESCRIPTION_MAX {
            return Err(RegistryError::Description(description.len()));
        }
        let description = clean_description(&description);
        let schema = match origin {
            ToolOrigin::Server { .. } => Schema::of_server(schema),
            ToolOrigin::Client { .. } => Schema::new(schema),
        };
        let schema = schema.map_err(|error| RegistryError::Schema {
            name: name.clone(),
            error,
        })?;
        let bytes = description.len() + schema.length();
        if self
            .registered
            .values()
            .map(|tool| tool.bytes)
            .sum::<usize>()
            + bytes
            > BYTES_MAX
        {
            return Err(RegistryError::TooLarge);
        }
        let tool = ClientTool {
            name: name.clone(),
            origin,
            description,
            schema,
            bytes,
            risk,
            timeout_s,
            executions,
        };
        self.registered.insert(name, Arc::new(tool));
        Ok(registered)
    }

    fn name_for(&self, origin: &ToolOrigin) -> Result<Registered, RegistryError> {
        if self.registered.values().any(|tool| tool.origin == *origin) {
            return Err(RegistryError::Duplicate({
                let (ToolOrigin::Server { tool, .. } | ToolOrigin::Client { tool }) = origin;
                tool.clone()
            }));
        }
        match origin {
            ToolOrigin::Client { tool } => {
                if !name::is_fit(tool) || tool.starts_with("mcp__") {
                    return Err(RegistryError::Name(brief(tool)));
                }
                if self.is_taken(tool) {
                    return Err(RegistryError::Duplicate(tool.clone()));
                }
                Ok(Registered {
                    name: tool.clone(),
                    warning: None,
                })
            }
            ToolOrigin::Server { server, .. } if !self.servers.contains(server) => {
                Err(RegistryError::UnknownServer(server.clone()))
            }
            ToolOrigin::Server { server, tool } => {
                let fitting = name::of_server(server, tool);
                let name = name::free(&fitting, |name| self.is_taken(name));
                let warning = (name != fitting).then(|| {
                    format!("the tool {tool:?} of the server {server:?} is called {name}: {fitting} is another one")
                });
                Ok(Registered { name, warning })
            }
        }
    }

    /// Whether this is the name of a tool, or of something else that the executor decides on by name.
    fn is_taken(&self, name: &str) -> bool {
        canonical(name).is_some()
            || Request::TOOLS.contains(&name)
            || self.registered.contains_key(name)
    }

    /// Unregisters a registered tool.
    ///
    /// # Errors
    /// [`RegistryError::BuiltIn`], and those of an unknown tool.
    pub fn unregister(&mut self, name: &str) -> Result<(), RegistryError> {
        if canonical(name).is_some() {
            return Err(RegistryError::BuiltIn(name.to_owned()));
        }
        match self.registered.remove(name) {
            Some(_) => Ok(()),
            None => Err(self.unknown(name)),
        }
    }

    /// Enables or disables a tool. A disabled tool is neither listed nor found.
    ///
    /// # Errors
    /// Those of an unknown tool.
    pub fn enable(&mut self, name: &str, on: bool) -> Result<(), RegistryError> {
        let name = self.find(name)?.name().to_owned();
        if on {
            self.disabled.remove(&name)
        } else {
            self.disabled.insert(name)
        };
        Ok(())
    }

    /// The tool with this name or alias.
    ///
    /// # Errors
    /// Those of an unknown tool, and [`RegistryError::Disabled`].
    pub fn get(&self, name: &str) -> Result<Entry, RegistryError> {
        let entry = self.find(name)?;
        if self.disabled.contains(entry.name()) {
            return Err(RegistryError::Disabled(entry.name().to_owned()));
        }
        if !self.is_served(&entry) {
            let name = AGENT_TOOLS.into_iter().find(|name| *name == entry.name());
            return Err(RegistryError::NotSupported {
                name: name.unwrap_or(SUBAGENT),
                why: NO_MODELS,
            });
        }
        Ok(entry)
    }

    fn find(&self, name: &str) -> Result<Entry, RegistryError> {
        if let Some(tool) = CatalogueTool::find(name) {
            return Ok(Entry::BuiltIn(tool));
        }
        match self.registered.get(name) {
            Some(tool) => Ok(Entry::Registered(tool.clone())),
            None => Err(self.unknown(name)),
        }
    }

    fn unknown(&self, name: &str) -> RegistryError {
        if let Some((name, why)) = NOT_SUPPORTED.iter().find(|(foreign, _)| *foreign == name) {
            return RegistryError::NotSupported { name, why };
        }
        match name::server(name) {
            Some(server) if !self.servers.iter().any(|known| name::fit(known) == server) => {
                RegistryError::UnknownServer(brief(server))
            }
            _ => {
                let known: Vec<_> = self
                    .list(None)
                    .iter()
                    .map(|entry| entry.name().to_owned())
                    .collect();
                let meant = meant(name, known.iter().map(String::as_str)).map(str::to_owned);
                RegistryError::UnknownTool {
                    name: brief(name),
                    meant,
                    known: known.join(", "),
                }
            }
        }
    }

    /// The built-in tools; hides those whose every call `policy` denies.
    pub fn under(policy: Option<EffectivePolicy>) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }

    /// With [`AGENT_TOOLS`]: for a front end that has models and carries these calls out.
    pub fn with_models(mut self) -> Self {
        self.has_models = true;
        self
    }

    fn is_served(&self, entry: &Entry) -> bool {
        self.has_models || !AGENT_TOOLS.contains(&entry.name())
    }

    fn is_denied(&self, entry: &Entry) -> bool {
        let name = policy_name(entry.name());
        let deny = |policy: &EffectivePolicy| {
            matches!(
                judge(policy, &Facts::bare(name, entry.risk())).verdict,
                Verdict::Deny(_)
            )
        };
        !UNASKED.contains(&name) && self.policy.as_ref().is_some_and(deny)
    }

    /// The tools to list to a model, by name: those that are enabled, denied by no rule and permitted by `scope`.
    pub fn list(&self, scope: Option<&Scope>) -> Vec<Entry> {
        let registered = self.registered.values().cloned().map(Entry::Registered);
        // A tool that is a command to the executor is permitted only if commands are.
        let permits =
            |scope: &Scope, name: &str| scope.permits(name) && scope.permits(policy_name(name));
        let is_shown = |entry: &Entry| {
            let open = !self.disabled.contains(entry.name())
                && self.is_served(entry)
                && !self.is_denied(entry);
            open && scope.is_none_or(|scope| permits(scope, entry.name()))
        };
        let mut shown: Vec<Entry> = TOOLS
            .iter()
            .map(Entry::BuiltIn)
            .chain(registered)
            .filter(is_shown)
            .collect();
        shown.sort_by(|one, other| one.name().cmp(other.name()));
        shown
    }
}

/// Shortens a name of any length for an error message.
fn brief(name: &str) -> String {
    name.chars().take(2 * name::MAX).collect()
}

/// An untrusted description, bounded and without unsafe characters.
fn clean_description(text: &str) -> String {
    let clean = Cleaner::default().clean(text.as_bytes()).into_owned();
    let mut text = String::from_utf8_lossy(&clean).into_owned();
    text.truncate(beginning(&text, DESCRIPTION_MAX).len());
    text
}

impl ClientTool {
    /// The name in this session.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The effect that the executor decides on: for the same fields in any order, the same.
    pub fn effect(&self, mut input: Value) -> Effect {
        input.sort_all_objects();
        Effect::Added {
            tool: self.name.clone(),
            risk: self.risk,
            input: input.to_string(),
        }
    }

    /// Checks a client's tool's input against its schema; a server checks its own.
    ///
    /// # Errors
    /// See [`Schema::check`].
    pub fn check(&self, input: &Value) -> Result<(), FieldError> {
        self.schema.check(input)
    }
}

impl Entry {
    pub fn name(&self) -> &str {
        match self {
            Entry::BuiltIn(tool) => tool.name,
            Entry::Registered(tool) => &tool.name,
        }
    }

    /// How much harm it can do.
    pub fn risk(&self) -> Risk {
        match self {
            Entry::BuiltIn(tool) => tool.risk,
            Entry::Registered(tool) => tool.risk,
        }
    }

    /// Whether its calls change files: such calls run one after the other.
    pub(crate) fn changes_files(&self) -> bool {
        self.risk() == Risk::Medium
    }

    /// Whether its call may still run when the executor no longer has a request of it.
    pub fn runs_outside(&self) -> bool {
        match self {
            // An image may be on the web, and so may the calls in a batch. A subagent makes calls of its own.
            Entry::BuiltIn(tool) => {
                tool.category == ToolCategory::Web
                    || [BATCH, SUBAGENT, "view_image"].contains(&tool.name)
            }
            Entry::Registered(_) => true,
        }
    }

    /// The tool as an entry of the JSON list of tools.
    pub fn to_json(&self) -> Value {
        match self {
            Entry::BuiltIn(tool) => tool.to_json(),
            Entry::Registered(tool) => json!({
                "name": tool.name,
                "description": tool.description,
                "inputSchema": tool.schema.value(),
                "category": ToolCategory::Remote.name(),
                "risk": tool.risk.name(),
                "aliases": [],
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::Permission;
    use tokio::sync::mpsc::unbounded_channel;

    fn new(origin: ToolOrigin) -> NewTool {
        let (description, schema) = ("d\u{1b}[2J".into(), json!({"type": "object"}));
        let executions = unbounded_channel().0;
        NewTool {
            origin,
            description,
            schema,
            risk: Risk::Medium,
            timeout_s: TIMEOUT_S,
            executions,
        }
    }

    fn local(tool: &str) -> NewTool {
        new(ToolOrigin::Client { tool: tool.into() })
    }

    fn of_server(server: &str, tool: &str) -> NewTool {
        new(ToolOrigin::Server {
            server: server.into(),
            tool: tool.into(),
        })
    }

    fn names(registry: &Registry, scope: Option<&Scope>) -> Vec<String> {
        registry
            .list(scope)
            .iter()
            .map(|entry| entry.name().to_owned())
            .collect()
    }

    #[test]
    fn an_effect_is_the_same_for_the_same_fields_in_any_order() {
        let mut registry = Registry::default();
        registry.register(local("alpha")).unwrap();
        let Ok(Entry::Registered(tool)) = registry.get("alpha") else {
            panic!("it is registered")
        };
        let orders = [
            r#"{"b":{"d":1,"c":[{"f":2,"e":3}]},"a":4}"#,
            r#"{"a":4,"b":{"c":[{"e":3,"f":2}],"d":1}}"#,
        ];
        let [first, second] = orders.map(|text| tool.effect(serde_json::from_str(text).unwrap()));
        assert_eq!(first, second);
        let Effect::Added { input, .. } = first else {
            panic!("{first:?}")
        };
        assert_eq!(input, orders[1]);
    }

    #[test]
    fn one_registry_holds_tools_of_all_kinds_in_a_stated_order() {
        let mut registry = Registry::default().with_models();
        registry.add_server("fs").unwrap();
        registry.register(local("zeta")).unwrap();
        registry.register(of_server("fs", "read")).unwrap();
        registry.register(local("alpha")).unwrap();
        let all = names(&registry, None);
        assert!(all.is_sorted() && all.len() == TOOLS.len() + 3, "{all:?}");
        assert!(
            ["alpha", "bash", "mcp__fs__read", "zeta"]
                .iter()
                .all(|name| all.iter().any(|one| one == name))
        );
        let added = registry.get("mcp__fs__read").unwrap().to_json();
        assert_eq!(
            (&added["description"], &added["inputSchema"]["type"]),
            (&json!("d"), &json!("object"))
        );
        registry.unregister("alpha").unwrap();
        assert!(matches!(
            registry.get("alpha"),
            Err(RegistryError::UnknownTool { .. })
        ));
        registry.remove_server("fs").unwrap();
        assert_eq!(names(&registry, None)[TOOLS.len()..], ["zeta"]);
        assert_eq!(registry.get("read_file").unwrap().name(), "file_read");
    }

    #[test]
    fn only_a_front_end_with_models_has_tools_about_the_agent() {
        let mut registry = Registry::default();
        for tool in AGENT_TOOLS {
            assert!(!names(&registry, None).iter().any(|name| name == tool));
            assert!(matches!(
                registry.get(tool),
                Err(RegistryError::NotSupported { name, .. }) if name == tool
            ));
        }
        // It can be switched off all the same, and no client takes its name.
        registry.enable(SUBAGENT, false).unwrap();
        assert!(registry.register(local(SUBAGENT)).is_err());
        let with_models = Registry::default().with_models();
        assert!(
            names(&with_models, None)
                .iter()
                .any(|name| name == SUBAGENT)
        );
        assert_eq!(with_models.get(SUBAGENT).unwrap().name(), SUBAGENT);
    }

    #[test]
    fn a_name_means_one_tool() {
        let mut registry = Registry::default();
        // Names of the catalogue, their aliases, and other names that the executor knows.
        for taken in [
            "bash",
            "shell",
            "file_read",
            "web_fetch",
            "fetch_url",
            "undo",
            "history",
        ] {
            assert_eq!(
                registry.register(local(taken)),
                Err(RegistryError::Duplicate(taken.into()))
            );
        }
        registry.register(local("mine")).unwrap();
        assert_eq!(
            registry.register(local("mine")),
            Err(RegistryError::Duplicate("mine".into()))
        );
        for bad in ["", "a b", "a/b", "mcp__x__y", &"x".repeat(65)] {
            assert_eq!(
                registry.register(local(bad)),
                Err(RegistryError::Name(bad.into()))
            );
        }
        assert_eq!(
            registry.unregister("bash"),
            Err(RegistryError::BuiltIn("bash".into()))
        );
        registry.add_server("s").unwrap();
        assert_eq!(
            registry.add_server("s"),
            Err(RegistryError::DuplicateServer("s".into()))
        );
    }

    #[test]
    fn names_that_become_the_same_get_a_number_and_a_warning() {
        let mut registry = Registry::default();
        ["a", "a__b", "my server"]
            .iter()
            .for_each(|server| registry.add_server(server).unwrap());
        let first = registry.register(of_server("a", "b__c")).unwrap();
        assert_eq!(
            first,
            Registered {
                name: "mcp__a__b__c".into(),
                warning: None
            }
        );
        let second = registry.register(of_server("a__b", "c")).unwrap();
        assert_eq!(second.name, "mcp__a__b__c_2");
        assert!(
            second
                .warning
                .unwrap()
                .contains("mcp__a__b__c is another one")
        );
        assert_eq!(
            registry.register(of_server("a", "b__c")),
            Err(RegistryError::Duplicate("b__c".into()))
        );
        assert_eq!(
            registry
                .register(of_server("my server", "x/y"))
                .unwrap()
                .name,
            "mcp__my_server__x_y"
        );
        assert_eq!(
            registry
                .register(of_server("my server", "x.y"))
                .unwrap()
                .name,
            "mcp__my_server__x_y_2"
        );
    }

    #[test]
    fn an_unknown_server_is_an_error_of_its_own() {
        let mut registry = Registry::default();
        let unknown = || RegistryError::UnknownServer("bogus".into());
        assert_eq!(registry.register(of_server("bogus", "x")), Err(unknown()));
        assert_eq!(registry.get("mcp__bogus__x").err(), Some(unknown()));
        assert_eq!(registry.remove_server("bogus"), Err(unknown()));
        assert_eq!(Failed::from(unknown()).kind, ErrorKind::UnknownTool);
        registry.add_server("bogus").unwrap();
        assert!(matches!(
            registry.get("mcp__bogus__x"),
            Err(RegistryError::UnknownTool { .. })
        ));
    }

    #[test]
    fn a_tool_that_is_off_is_neither_shown_nor_found() {
        let mut registry = Registry::default();
        registry.enable("shell", false).unwrap();
        assert!(!names(&registry, None).contains(&"bash".to_owned()));
        for name in ["bash", "shell"] {
            assert_eq!(
                registry.get(name).err(),
                Some(RegistryError::Disabled("bash".into()))
            );
        }
        registry.enable("bash", true).unwrap();
        assert!(registry.get("bash").is_ok());
        assert!(registry.enable("nope", false).is_err());
    }

    #[test]
    fn a_scope_shows_what_it_permits() {
        let registry = Registry::default();
        assert_eq!(
            names(&registry, Some(&Scope::default())),
            ["file_read", "web_search"]
        );
        let permission = |tool: &str, allowed| Permission {
            tool: tool.into(),
            allowed,
            paths: vec![],
            timeout_s: None,
            network: false,
        };
        let scope = Scope {
            permissions: vec![permission("grep", true), permission("bash", false)],
        };
        assert_eq!(names(&registry, Some(&scope)), ["grep"]);
        // A test suite is a command.
        let scope = |tools: &[&str]| Scope {
            permissions: tools.iter().map(|tool| permission(tool, true)).collect(),
        };
        assert_eq!(names(&registry, Some(&scope(&["run_tests"]))), [""; 0]);
        assert_eq!(
            names(&registry, Some(&scope(&["run_tests", "bash"]))),
            ["bash", "run_tests"]
        );
    }

    #[test]
    fn registered_tools_are_bounded() {
        let mut registry = Registry::default();
        (0..MAX).for_each(|n| drop(registry.register(local(&format!("t{n}"))).unwrap()));
        assert_eq!(
            registry.register(local("one_more")),
            Err(RegistryError::Full)
        );
        let mut registry = Registry::default();
        registry.add_server("s").unwrap();
        let long = || "é".repeat(DESCRIPTION_MAX);
        let name = registry
            .register(NewTool {
                description: long(),
                ..of_server("s", "long")
            })
            .unwrap()
            .name;
        assert_eq!(
            registry.get(&name).unwrap().to_json()["description"]
                .as_str()
                .unwrap()
                .len(),
            DESCRIPTION_MAX
        );
        let long = NewTool {
            description: long(),
            ..local("long")
        };
        assert_eq!(
            registry.register(long),
            Err(RegistryError::Description(2 * DESCRIPTION_MAX))
        );
        for (timeout_s, fits) in [
            (0, false),
            (1, true),
            (TIMEOUT_MAX_S, true),
            (TIMEOUT_MAX_S + 1, false),
        ] {
            let made = registry.register(NewTool {
                timeout_s,
                ..local(&format!("of_{timeout_s}_s"))
            });
            assert_eq!(made.is_ok(), fits, "{made:?}");
        }
        let endless = registry
            .register(local(&"x".repeat(1 << 20)))
            .unwrap_err()
            .to_string();
        assert!(endless.len() < 1000, "{}", endless.len());
        let bad = NewTool {
            schema: json!({"type": "string"}),
            ..local("bad")
        };
        assert!(matches!(
            registry.register(bad),
            Err(RegistryError::Schema { .. })
        ));
        assert!(registry.get("bad").is_err());
    }

    #[test]
    fn all_schemas_together_are_bounded_and_unregistering_makes_room() {
        let mut registry = Registry::default();
        let filler = "x".repeat(60 << 10);
        let large = |name: &str| NewTool {
            schema: json!({"type": "object", "title": filler}),
            ..local(name)
        };
        let taken = (0..MAX).find(|n| registry.register(large(&format!("t{n}"))).is_err());
        assert_eq!(
            taken,
            Some(BYTES_MAX / (60 << 10)),
            "some more bytes than those counted here"
        );
        assert_eq!(
            registry.register(large("more")),
            Err(RegistryError::TooLarge)
        );
        assert_eq!(
            Failed::from(RegistryError::TooLarge).kind,
            ErrorKind::ResourceLimit
        );
        registry.unregister("t0").unwrap();
        registry.register(large("more")).unwrap();
    }
}
