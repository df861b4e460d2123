//! The one registry of tools: those built in, those of servers, and those that are added while we run.
//!
//! A tool is known by one name, and listed by it. A server or whoever embeds us brings a tool as a [`Remote`] and its schema;
//! nothing else tells it from a built-in one.

use crate::domain::answer::Answer;
use crate::domain::catalogue::{
    Category, NOT_SUPPORTED, TOOLS, Tool, WEB_TOOLS, canonical, known_as, web_tool,
};
use crate::domain::clean::Cleaner;
use crate::domain::schema::{Schema, SchemaError};
use crate::domain::small::{BATCH, FINISH_TASK, THINKING};
use crate::domain::tool_name;
use crate::domain::web;
use crate::ports::Remote;
use broker_protocol::{Effect, ErrorKind, Failed, Request, Risk, Scope};
use policies::{EffectivePolicy, Facts, Verdict, judge};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use thiserror::Error;

/// Tools that are not built in.
pub const MOST: usize = 1000;
/// Bytes of a tool's description.
pub const DESCRIPTION: usize = 4096;
/// Bytes of all descriptions and schemas of tools that are not built in.
pub const BYTES: usize = 4 << 20;
/// How long a tool that is not built in may take, in seconds, where nobody says more or less.
pub const TIMEOUT_S: u32 = 60;
/// The longest that it may say.
pub const TIMEOUT_MAX_S: u32 = 600;

/// Every tool there is.
#[derive(Default)]
pub struct Registry {
    added: BTreeMap<String, Rc<Added>>,
    servers: BTreeSet<String>,
    disabled: BTreeSet<String>,
    /// What a model is not shown because nothing could come of it.
    policy: Option<EffectivePolicy>,
}

/// Tools that ask nothing of the executor, which is who asks: they change nothing. What a batch calls is asked about by
/// itself.
pub const UNASKED: [&str; 3] = [BATCH.name, THINKING.name, FINISH_TASK.name];

/// A tool, as a call finds it.
#[derive(Clone)]
pub enum Entry {
    /// One of the catalogue.
    BuiltIn(&'static Tool),
    /// One that reaches the internet.
    Web(&'static Tool<web::Build>),
    /// Another.
    Added(Rc<Added>),
}

/// A tool to add.
pub struct New {
    /// Whose it is. A policy knows it by this and never by its bare name.
    pub origin: Origin,
    /// For the model: what it does.
    pub description: String,
    /// Its input, as JSON Schema 2020-12.
    pub schema: Value,
    /// How much harm it can do, as whoever adds it believes.
    pub risk: Risk,
    /// How long a call may take, 1 to [`TIMEOUT_MAX_S`] seconds.
    pub timeout_s: u32,
    /// Carries it out.
    pub remote: Box<dyn Remote>,
}

/// Whose a tool is, and what it is called there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A server's.
    Server {
        /// The server, which must be known.
        server: String,
        /// The tool.
        tool: String,
    },
    /// Of whoever embeds us.
    Local {
        /// The tool.
        tool: String,
    },
}

/// A tool that was added.
pub struct Added {
    name: String,
    origin: Origin,
    description: String,
    schema: Schema,
    /// Of its description and its schema.
    bytes: usize,
    risk: Risk,
    /// How long a call may take, in seconds.
    pub timeout_s: u32,
    /// Carries it out.
    pub remote: Box<dyn Remote>,
}

/// Under which name a tool was added.
#[derive(Debug, PartialEq, Eq)]
pub struct Registered {
    /// The name.
    pub name: String,
    /// What a person should know: the name is another than it should be.
    pub warning: Option<String>,
}

/// Why a tool is not added, taken out or found.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum RegistryError {
    /// There is no such tool.
    #[error("there is no tool {name:?}; there are {known}")]
    UnknownTool {
        /// Its name.
        name: String,
        /// Those there are.
        known: String,
    },
    /// It is a tool of another system that has no counterpart here.
    #[error("{name:?} is not supported: {why}")]
    NotSupported {
        /// Its name.
        name: &'static str,
        /// Why, and what to do instead.
        why: &'static str,
    },
    /// Its server is not known.
    #[error("there is no server {0:?}")]
    UnknownServer(String),
    /// It is switched off.
    #[error("the tool {0:?} is switched off")]
    Disabled(String),
    /// The name, or the tool, is there already.
    #[error("there is a tool {0:?} already")]
    Duplicate(String),
    /// The server is there already.
    #[error("there is a server {0:?} already")]
    DuplicateServer(String),
    /// The name is none.
    #[error("{0:?} is no name for a tool: 1 to {max} letters, digits, '_' or '-', not beginning with mcp__", max = tool_name::MOST)]
    Name(String),
    /// A built-in tool stays.
    #[error("the tool {0:?} is built in; it can be switched off")]
    BuiltIn(String),
    /// There are too many.
    #[error("no more than {MOST} tools can be added")]
    Full,
    /// There is too much of them.
    #[error("the descriptions and schemas of all tools that are added have at most {BYTES} bytes together")]
    TooMuch,
    /// What it says of itself is too long.
    #[error("a description of {0} bytes; {DESCRIPTION} are allowed")]
    Description(usize),
    /// Its time is none.
    #[error("a time limit of {0} s; 1 to {TIMEOUT_MAX_S} are allowed")]
    Timeout(u32),
    /// Its schema is none.
    #[error("the schema of {name:?} cannot be used: {error}")]
    Schema {
        /// The tool.
        name: String,
        /// Why.
        error: SchemaError,
    },
}

impl RegistryError {
    /// The tool, where its name is one that is known.
    pub fn tool(&self) -> Cow<'static, str> {
        match self {
            RegistryError::NotSupported { name, .. } => (*name).into(),
            RegistryError::Disabled(name) => name.clone().into(),
            _ => "".into(),
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
            RegistryError::Full | RegistryError::TooMuch => ErrorKind::ResourceLimit,
            RegistryError::Duplicate(_)
            | RegistryError::DuplicateServer(_)
            | RegistryError::Name(_)
            | RegistryError::BuiltIn(_)
            | RegistryError::Description(_)
            | RegistryError::Timeout(_)
            | RegistryError::Schema { .. } => ErrorKind::InvalidInput,
        };
        Failed { kind, message: error.to_string() }
    }
}

impl Registry {
    /// Makes a server known, so that its tools can be added.
    pub fn add_server(&mut self, server: &str) -> Result<(), RegistryError> {
        if !self.servers.insert(server.to_owned()) {
            return Err(RegistryError::DuplicateServer(server.to_owned()));
        }
        Ok(())
    }

    /// Forgets a server and its tools.
    pub fn remove_server(&mut self, server: &str) -> Result<(), RegistryError> {
        if !self.servers.remove(server) {
            return Err(RegistryError::UnknownServer(server.to_owned()));
        }
        self.added
            .retain(|_, added| !matches!(&added.origin, Origin::Server { server: of, .. } if of == server));
        Ok(())
    }

    /// Adds a tool. A server's name and tool are made to fit, and where that gives the name of another tool, a number
    /// makes the difference; whoever embeds us chooses a name that fits.
    pub fn register(&mut self, new: New) -> Result<Registered, RegistryError> {
        if self.added.len() >= MOST {
            return Err(RegistryError::Full);
        }
        let New { origin, description, schema, risk, timeout_s, remote } = new;
        let registered = self.name_for(&origin)?;
        let name = registered.name.clone();
        if !(1..=TIMEOUT_MAX_S).contains(&timeout_s) {
            return Err(RegistryError::Timeout(timeout_s));
        }
        // A server's words are cut; whoever embeds us is told.
        if matches!(origin, Origin::Local { .. }) && description.len() > DESCRIPTION {
            return Err(RegistryError::Description(description.len()));
        }
        let description = described(&description);
        let schema =
            Schema::new(schema).map_err(|error| RegistryError::Schema { name: name.clone(), error })?;
        let bytes = description.len() + schema.length();
        if self.added.values().map(|added| added.bytes).sum::<usize>() + bytes > BYTES {
            return Err(RegistryError::TooMuch);
        }
        let added = Added { name: name.clone(), origin, description, schema, bytes, risk, timeout_s, remote };
        self.added.insert(name, Rc::new(added));
        Ok(registered)
    }

    fn name_for(&self, origin: &Origin) -> Result<Registered, RegistryError> {
        if self.added.values().any(|added| added.origin == *origin) {
            return Err(RegistryError::Duplicate(origin.tool().to_owned()));
        }
        match origin {
            Origin::Local { tool } => {
                if !tool_name::is_fit(tool) || tool.starts_with("mcp__") {
                    return Err(RegistryError::Name(brief(tool)));
                }
                if self.is_taken(tool) {
                    return Err(RegistryError::Duplicate(tool.clone()));
                }
                Ok(Registered { name: tool.clone(), warning: None })
            }
            Origin::Server { server, .. } if !self.servers.contains(server) => {
                Err(RegistryError::UnknownServer(server.clone()))
            }
            Origin::Server { server, tool } => {
                let fitting = tool_name::of_server(server, tool);
                let name = tool_name::free(&fitting, |name| self.is_taken(name));
                let warning = (name != fitting).then(|| {
                    format!("the tool {tool:?} of the server {server:?} is called {name}: {fitting} is another one")
                });
                Ok(Registered { name, warning })
            }
        }
    }

    /// Whether a tool, or something else that the executor decides on by a name, is called so.
    fn is_taken(&self, name: &str) -> bool {
        !canonical(name).is_empty() || Request::TOOLS.contains(&name) || self.added.contains_key(name)
    }

    /// Takes out a tool that was added.
    pub fn unregister(&mut self, name: &str) -> Result<(), RegistryError> {
        if !canonical(name).is_empty() {
            return Err(RegistryError::BuiltIn(name.to_owned()));
        }
        match self.added.remove(name) {
            Some(_) => Ok(()),
            None => Err(self.unknown(name)),
        }
    }

    /// Switches a tool on or off. A tool that is off is not shown and not found.
    pub fn enable(&mut self, name: &str, on: bool) -> Result<(), RegistryError> {
        let name = self.find(name)?.name().to_owned();
        if on {
            self.disabled.remove(&name)
        } else {
            self.disabled.insert(name)
        };
        Ok(())
    }

    /// The tool called `name`, or by one of its aliases.
    pub fn get(&self, name: &str) -> Result<Entry, RegistryError> {
        let entry = self.find(name)?;
        if !self.disabled.is_empty() && self.disabled.contains(entry.name()) {
            return Err(RegistryError::Disabled(entry.name().to_owned()));
        }
        Ok(entry)
    }

    fn find(&self, name: &str) -> Result<Entry, RegistryError> {
        if let Some(tool) = Tool::find(name) {
            return Ok(Entry::BuiltIn(tool));
        }
        if let Some(tool) = web_tool(name) {
            return Ok(Entry::Web(tool));
        }
        match self.added.get(name) {
            Some(added) => Ok(Entry::Added(added.clone())),
            None => Err(self.unknown(name)),
        }
    }

    fn unknown(&self, name: &str) -> RegistryError {
        if let Some((name, why)) = NOT_SUPPORTED.iter().find(|(foreign, _)| *foreign == name) {
            return RegistryError::NotSupported { name, why };
        }
        match tool_name::server(name) {
            Some(server) if !self.servers.iter().any(|known| tool_name::fit(known) == server) => {
                RegistryError::UnknownServer(brief(server))
            }
            _ => {
                let known: Vec<_> = self.list(None).iter().map(|entry| entry.name().to_owned()).collect();
                RegistryError::UnknownTool { name: brief(name), known: known.join(", ") }
            }
        }
    }

    /// No tool but ours, of which `policy` hides what it denies.
    pub fn under(policy: Option<EffectivePolicy>) -> Self {
        Self { policy, ..Self::default() }
    }

    /// Whether a rule denies every call of a tool.
    fn is_denied(&self, entry: &Entry) -> bool {
        let name = known_as(entry.name());
        let deny = |policy: &EffectivePolicy| {
            matches!(judge(policy, &Facts::bare(name, entry.risk())).verdict, Verdict::Deny(_))
        };
        !UNASKED.contains(&name) && self.policy.as_ref().is_some_and(deny)
    }

    /// The tools that a model is shown, by name: all that are on, that no rule denies and that `scope` permits.
    pub fn list(&self, scope: Option<&Scope>) -> Vec<Entry> {
        let built_in = TOOLS.iter().map(Entry::BuiltIn).chain(WEB_TOOLS.iter().map(Entry::Web));
        let added = self.added.values().cloned().map(Entry::Added);
        // What is a command to the executor is permitted only where commands are.
        let permits = |scope: &Scope, name: &str| scope.permits(name) && scope.permits(known_as(name));
        let is_shown = |entry: &Entry| {
            let open = !self.disabled.contains(entry.name()) && !self.is_denied(entry);
            open && scope.is_none_or(|scope| permits(scope, entry.name()))
        };
        let mut shown: Vec<Entry> = built_in.chain(added).filter(is_shown).collect();
        shown.sort_by(|one, other| one.name().cmp(other.name()));
        shown
    }
}

/// A name that may be of any length, to be said in an error.
fn brief(name: &str) -> String {
    name.chars().take(2 * tool_name::MOST).collect()
}

/// A stranger's description: bounded, and with nothing in it that is not seen.
fn described(text: &str) -> String {
    let clean = Cleaner::default().clean(text.as_bytes()).into_owned();
    let mut text = String::from_utf8_lossy(&clean).into_owned();
    let end = (0..=DESCRIPTION.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.truncate(end);
    text
}

impl Origin {
    fn tool(&self) -> &str {
        match self {
            Origin::Server { tool, .. } | Origin::Local { tool } => tool,
        }
    }
}

impl Added {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the executor decides on.
    pub fn effect(&self, input: &Value) -> Effect {
        Effect::Added { tool: self.name.clone(), risk: self.risk, input: input.to_string() }
    }

    /// Checks an input against its schema.
    pub fn check(&self, input: &Value) -> Result<(), Box<Answer>> {
        self.schema.check(input).map_err(|error| {
            let failed = Failed { kind: ErrorKind::InvalidInput, message: error.to_string() };
            Box::new(Answer::failed(&crate::domain::answer::Asked::only(self.name.clone()), failed))
        })
    }
}

impl Entry {
    /// The canonical name.
    pub fn name(&self) -> &str {
        match self {
            Entry::BuiltIn(tool) => tool.name,
            Entry::Web(tool) => tool.name,
            Entry::Added(added) => &added.name,
        }
    }

    /// The name, to keep.
    pub fn own_name(&self) -> Cow<'static, str> {
        match self {
            Entry::BuiltIn(tool) => tool.name.into(),
            Entry::Web(tool) => tool.name.into(),
            Entry::Added(added) => added.name.clone().into(),
        }
    }

    /// How much harm it can do.
    pub fn risk(&self) -> Risk {
        match self {
            Entry::BuiltIn(tool) => tool.risk,
            Entry::Web(tool) => tool.risk,
            Entry::Added(added) => added.risk,
        }
    }

    /// The tool as it stands in a list of tools.
    pub fn to_json(&self) -> Value {
        match self {
            Entry::BuiltIn(tool) => tool.to_json(),
            Entry::Web(tool) => tool.to_json(),
            Entry::Added(added) => json!({
                "name": added.name,
                "description": added.description,
                "inputSchema": added.schema.value(),
                "category": Category::Remote.name(),
                "risk": added.risk.name(),
                "aliases": [],
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::{Named, Reply};
    use broker_protocol::Permission;
    use std::pin::Pin;

    /// Tools that are built in.
    const BUILT_IN: usize = TOOLS.len() + WEB_TOOLS.len();

    struct Silent;

    impl Remote for Silent {
        fn call<'a>(
            &'a self,
            _: Named<'a>,
            _: Value,
        ) -> Pin<Box<dyn Future<Output = Result<Reply, Failed>> + 'a>> {
            Box::pin(async { Ok(Reply::default()) })
        }
    }

    fn new(origin: Origin) -> New {
        let (description, schema) = ("d\u{1b}[2J".into(), json!({"type": "object"}));
        New {
            origin,
            description,
            schema,
            risk: Risk::Medium,
            timeout_s: TIMEOUT_S,
            remote: Box::new(Silent),
        }
    }

    fn local(tool: &str) -> New {
        new(Origin::Local { tool: tool.into() })
    }

    fn of_server(server: &str, tool: &str) -> New {
        new(Origin::Server { server: server.into(), tool: tool.into() })
    }

    fn names(registry: &Registry, scope: Option<&Scope>) -> Vec<String> {
        registry.list(scope).iter().map(|entry| entry.name().to_owned()).collect()
    }

    #[test]
    fn one_registry_holds_tools_of_all_kinds_in_a_stated_order() {
        let mut registry = Registry::default();
        registry.add_server("fs").unwrap();
        registry.register(local("zeta")).unwrap();
        registry.register(of_server("fs", "read")).unwrap();
        registry.register(local("alpha")).unwrap();
        let all = names(&registry, None);
        assert!(all.is_sorted() && all.len() == BUILT_IN + 3, "{all:?}");
        assert!(
            ["alpha", "bash", "mcp__fs__read", "zeta"].iter().all(|name| all.iter().any(|one| one == name))
        );
        let added = registry.get("mcp__fs__read").unwrap().to_json();
        assert_eq!((&added["description"], &added["inputSchema"]["type"]), (&json!("d"), &json!("object")));
        registry.unregister("alpha").unwrap();
        assert!(matches!(registry.get("alpha"), Err(RegistryError::UnknownTool { .. })));
        registry.remove_server("fs").unwrap();
        assert_eq!(names(&registry, None)[BUILT_IN..], ["zeta"]);
        assert_eq!(registry.get("read_file").unwrap().name(), "file_read");
    }

    #[test]
    fn a_name_is_there_once() {
        let mut registry = Registry::default();
        // Those of the catalogue, their other names, and what the executor knows besides.
        for taken in ["bash", "shell", "file_read", "web_fetch", "fetch_url", "undo", "history"] {
            assert_eq!(registry.register(local(taken)), Err(RegistryError::Duplicate(taken.into())));
        }
        registry.register(local("mine")).unwrap();
        assert_eq!(registry.register(local("mine")), Err(RegistryError::Duplicate("mine".into())));
        for bad in ["", "a b", "a/b", "mcp__x__y", &"x".repeat(65)] {
            assert_eq!(registry.register(local(bad)), Err(RegistryError::Name(bad.into())));
        }
        assert_eq!(registry.unregister("bash"), Err(RegistryError::BuiltIn("bash".into())));
        registry.add_server("s").unwrap();
        assert_eq!(registry.add_server("s"), Err(RegistryError::DuplicateServer("s".into())));
    }

    #[test]
    fn names_that_become_the_same_get_a_number_and_a_warning() {
        let mut registry = Registry::default();
        ["a", "a__b", "my server"].iter().for_each(|server| registry.add_server(server).unwrap());
        let first = registry.register(of_server("a", "b__c")).unwrap();
        assert_eq!(first, Registered { name: "mcp__a__b__c".into(), warning: None });
        let second = registry.register(of_server("a__b", "c")).unwrap();
        assert_eq!(second.name, "mcp__a__b__c_2");
        assert!(second.warning.unwrap().contains("mcp__a__b__c is another one"));
        assert_eq!(registry.register(of_server("a", "b__c")), Err(RegistryError::Duplicate("b__c".into())));
        assert_eq!(registry.register(of_server("my server", "x/y")).unwrap().name, "mcp__my_server__x_y");
        assert_eq!(registry.register(of_server("my server", "x.y")).unwrap().name, "mcp__my_server__x_y_2");
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
        assert!(matches!(registry.get("mcp__bogus__x"), Err(RegistryError::UnknownTool { .. })));
    }

    #[test]
    fn a_tool_that_is_off_is_neither_shown_nor_found() {
        let mut registry = Registry::default();
        registry.enable("shell", false).unwrap();
        assert!(!names(&registry, None).contains(&"bash".to_owned()));
        for name in ["bash", "shell"] {
            assert_eq!(registry.get(name).err(), Some(RegistryError::Disabled("bash".into())));
        }
        registry.enable("bash", true).unwrap();
        assert!(registry.get("bash").is_ok());
        assert!(registry.enable("nope", false).is_err());
    }

    #[test]
    fn a_scope_shows_what_it_permits() {
        let registry = Registry::default();
        assert_eq!(names(&registry, Some(&Scope::default())), ["file_read", "web_search"]);
        let permission = |tool: &str, allowed| Permission {
            tool: tool.into(),
            allowed,
            paths: vec![],
            timeout_s: None,
            network: false,
        };
        let scope = Scope { permissions: vec![permission("grep", true), permission("bash", false)] };
        assert_eq!(names(&registry, Some(&scope)), ["grep"]);
        // A test suite is a command.
        let scope =
            |tools: &[&str]| Scope { permissions: tools.iter().map(|tool| permission(tool, true)).collect() };
        assert_eq!(names(&registry, Some(&scope(&["run_tests"]))), [""; 0]);
        assert_eq!(names(&registry, Some(&scope(&["run_tests", "bash"]))), ["bash", "run_tests"]);
    }

    #[test]
    fn what_is_added_is_bounded() {
        let mut registry = Registry::default();
        (0..MOST).for_each(|n| drop(registry.register(local(&format!("t{n}"))).unwrap()));
        assert_eq!(registry.register(local("one_more")), Err(RegistryError::Full));
        let mut registry = Registry::default();
        registry.add_server("s").unwrap();
        let long = || "é".repeat(DESCRIPTION);
        let name = registry.register(New { description: long(), ..of_server("s", "long") }).unwrap().name;
        assert_eq!(
            registry.get(&name).unwrap().to_json()["description"].as_str().unwrap().len(),
            DESCRIPTION
        );
        let long = New { description: long(), ..local("long") };
        assert_eq!(registry.register(long), Err(RegistryError::Description(2 * DESCRIPTION)));
        for (timeout_s, fits) in [(0, false), (1, true), (TIMEOUT_MAX_S, true), (TIMEOUT_MAX_S + 1, false)] {
            let made = registry.register(New { timeout_s, ..local(&format!("of_{timeout_s}_s")) });
            assert_eq!(made.is_ok(), fits, "{made:?}");
        }
        let endless = registry.register(local(&"x".repeat(1 << 20))).unwrap_err().to_string();
        assert!(endless.len() < 1000, "{}", endless.len());
        let bad = New { schema: json!({"type": "string"}), ..local("bad") };
        assert!(matches!(registry.register(bad), Err(RegistryError::Schema { .. })));
        assert!(registry.get("bad").is_err());
    }

    #[test]
    fn all_schemas_together_are_bounded_and_what_goes_makes_room() {
        let mut registry = Registry::default();
        let filler = "x".repeat(60 << 10);
        let large = |name: &str| New { schema: json!({"type": "object", "title": filler}), ..local(name) };
        let taken = (0..MOST).find(|n| registry.register(large(&format!("t{n}"))).is_err());
        assert_eq!(taken, Some(BYTES / (60 << 10)), "some more bytes than those counted here");
        assert_eq!(registry.register(large("more")), Err(RegistryError::TooMuch));
        assert_eq!(Failed::from(RegistryError::TooMuch).kind, ErrorKind::ResourceLimit);
        registry.unregister("t0").unwrap();
        registry.register(large("more")).unwrap();
    }
}
