//! The settings of servers in the format of `.mcp.json`, with our additions under the key `lazaret`.
//!
//! The user's own file may contain anything. A repository's file is untrusted: it is used only after the user has accepted its digest, and
//! anything that would need less approval (`autoApprove`, `risk`), show more (`profile`) or reach further (`hosts`) is refused in it.

use broker_protocol::{Digest, Risk, limit};
use orchestrator_config_edit::{Format, edit};
use orchestrator_confine::Files;
use orchestrator_text::known::COLLECTOR_HEADERS;
use orchestrator_text::variables;
use policies::secret::looks_secret;
use policies::source;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use thiserror::Error;

/// Maximum size of a settings file, in bytes.
pub const FILE_MAX: usize = 256 * 1024;
/// Maximum number of servers in a session.
pub(crate) const SERVERS_MAX: usize = 32;
/// Maximum length of a server's name: together with a tool's name it has to fit into the 64 characters that model vendors accept.
pub const NAME_MAX: usize = 32;
/// Maximum number of a server's arguments.
pub(crate) const ARGUMENTS_MAX: usize = 256;
/// Maximum number of tools that one list in a server's settings may name.
pub(crate) const LISTED_MAX: usize = 256;
/// The default and the maximum time limit of a call, in seconds.
const TIMEOUT_S: u32 = 60;
const TIMEOUT_MAX_S: u32 = 600;

/// The owner of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SettingsOwner {
    User,
    /// A repository, the digest of whose file the user has accepted.
    Repository,
}

/// How much a server may see of the session's project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Share {
    /// As much as its profile grants.
    #[default]
    Shared,
    /// Nothing: it has a directory of its own.
    None,
}

/// The settings of one server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerSettings {
    /// Letters, digits, `-` and single `_` between them, so that no two servers can have tools with the same name.
    pub name: String,
    pub whose: SettingsOwner,
    /// A program in a cell, or an address.
    pub kind: ServerKind,
    /// Tools to offer; `None` for all.
    pub offered: Option<BTreeSet<String>>,
    /// The risk of tools for which it is not high.
    pub(crate) risks: BTreeMap<String, Risk>,
    /// How long a call may take, in seconds.
    pub timeout_s: u32,
    /// Digest of what it runs or where it is: if that changes, it is a different server.
    pub digest: Digest,
}

/// The kind of a server, which determines how it is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServerKind {
    /// A program, in a cell of its own.
    Program(ServerProgram),
    /// A machine, ours or another, that serves it over HTTP.
    Address(ServerAddress),
}

/// A server that runs as a program here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerProgram {
    /// The program and its arguments. Variables are not replaced yet.
    pub command: Vec<String>,
    /// Additional environment variables, also before replacement.
    pub environment: BTreeMap<String, String>,
    /// The working directory in the project. If absent, the root; its own directory for a program that gets a secret.
    pub directory: Option<String>,
    /// The policy profile of its session.
    pub profile: String,
    /// How much of the project it may see.
    pub project: Share,
    /// Hosts and presets of hosts that it may reach besides those of its profile.
    pub hosts: Vec<String>,
    pub presets: Vec<String>,
}

impl ServerProgram {
    /// Whether a variable's name says that it gets a secret. Programs run code of their working directory (`python3 -m`, `npx`), and
    /// commands write in the project.
    pub(crate) fn gets_secret(&self) -> bool {
        let texts = self.command.iter().chain(self.environment.values());
        let mut given = self.environment.keys();
        given.any(|name| looks_secret(name.as_ref())) || wanted_secret(texts).is_some()
    }
}

/// A server that already runs somewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerAddress {
    /// Its URL. Variables are not replaced yet, unless a key is held.
    pub url: String,
    /// The number of the key which the gateway has for its path or query.
    pub(crate) held_path: Option<u32>,
    /// Headers of each request, also before replacement.
    pub headers: BTreeMap<String, SettingsValue>,
    pub speech: Speech,
    /// How to log in, if that is configured.
    pub login: LoginSettings,
    /// The secret of the client ID.
    pub(crate) client_secret: Option<SettingsValue>,
}

/// A value in the settings that may be a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SettingsValue {
    /// As it stands there. Variables are not replaced yet.
    Text(String),
    /// The gateway alone has it, by this number.
    Held(u32),
    /// No request can have it, for this reason.
    Unusable(String),
}

impl SettingsValue {
    /// Its text, if that has variables; else nothing.
    fn with_variables(&self) -> &str {
        match self {
            Self::Text(text) if !variables::names(text).is_empty() => text,
            Self::Text(_) | Self::Held(_) | Self::Unusable(_) => "",
        }
    }
}

/// The transport protocol of a server with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Speech {
    /// Streamable HTTP, in the protocol since 2025-03-26.
    Http,
    /// One stream of events, which names an address for messages: version 2024-11-05.
    Sse,
}

/// Our identity at a login.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LoginSettings {
    /// Our registered client ID; without it we register ourselves.
    pub client_id: Option<String>,
    /// The secret of the client ID.
    pub(crate) client_secret: Option<String>,
    /// The local port to which the browser is sent back; any free port if absent.
    pub callback_port: Option<u16>,
    /// The scopes to request; those that the server names if absent.
    pub(crate) scopes: Option<Vec<String>>,
}

/// Why settings are refused.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum SettingsError {
    #[error("it has {0} bytes; {FILE_MAX} are allowed")]
    TooLong(usize),
    #[error("{0}")]
    Json(String),
    #[error("it names {0} servers; {SERVERS_MAX} are allowed")]
    TooMany(usize),
    #[error(
        "{0:?} is no name for a server: 1 to {NAME_MAX} letters, digits, `-` and single `_`, which begin and end with a letter or digit"
    )]
    Name(String),
    #[error("the server `{server}`: {why}")]
    Server { server: String, why: EntryFault },
}

/// Why the entry of a server is refused.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum EntryFault {
    #[error("{0}")]
    Json(String),
    #[error("it has both the type of a program (stdio) and a `url`")]
    ProgramWithUrl,
    #[error("its type is {0:?}, and it has no `url`")]
    NoUrl(String),
    #[error("its type is {0:?}; there are stdio, http and sse")]
    Kind(String),
    #[error("it has no `command` and no `url`")]
    Empty,
    #[error("it is a program and has `headers`")]
    ProgramWithHeaders,
    #[error("it has a `url`, and a field that only a program in a cell may have")]
    UrlInCell,
    #[error("the header {0:?} cannot be given")]
    Header(String),
    #[error("`oauth` has a `clientSecret` and no `clientId`")]
    SecretWithoutId,
    #[error("`{key}` has {count} entries; {max} are allowed")]
    TooMany {
        key: &'static str,
        count: usize,
        max: usize,
    },
    #[error("`lazaret.timeoutS` is 1 to {TIMEOUT_MAX_S}, this is {0}")]
    Timeout(u32),
    #[error(
        "a repository cannot choose a profile or hosts; write the server into your own mcp.json"
    )]
    WideRepository,
    #[error(
        "it wants the variable {0}, which looks like a secret: a repository gets none; write the server into your own mcp.json"
    )]
    Secret(String),
}

#[derive(Deserialize)]
struct SettingsFile {
    #[serde(rename = "mcpServers", default)]
    servers: BTreeMap<String, Value>,
}

/// One server in a file. Keys of other clients are ignored.
#[derive(Deserialize)]
struct ServerEntry {
    #[serde(rename = "type", alias = "server_type")]
    kind: Option<String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default, alias = "envs")]
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    #[serde(alias = "base_url")]
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    oauth: LoginSettings,
    #[serde(default)]
    disabled: bool,
    #[serde(default, rename = "autoApprove", alias = "alwaysAllow")]
    auto_approve: Vec<String>,
    tool_white_list: Option<Vec<String>>,
    #[serde(default)]
    lazaret: Ours,
}

/// Our additions: here an unknown key is an error.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct Ours {
    profile: Option<String>,
    project: Option<Share>,
    hosts: Vec<String>,
    presets: Vec<String>,
    risk: BTreeMap<String, Risk>,
    timeout_s: Option<u32>,
}

/// The text of a settings file, if it exists.
///
/// # Errors
/// If it cannot be read, or is too long.
pub fn read(_: &Files, path: &Path) -> Result<Option<String>, String> {
    if !path.exists() {
        return Ok(None);
    }
    source::read_named(path, FILE_MAX)
        .map(Some)
        .map_err(|error| error.to_string())
}

/// The enabled servers of a file.
///
/// # Errors
/// If it is no such file, or one of its servers is invalid.
pub fn parse(text: &str, whose: SettingsOwner) -> Result<Vec<ServerSettings>, SettingsError> {
    if text.len() > FILE_MAX {
        return Err(SettingsError::TooLong(text.len()));
    }
    // Of a key that stands twice, serde would take the last, and another client may take the first.
    edit::present(Format::Json, text, &[])
        .map_err(|error| SettingsError::Json(error.to_string()))?;
    let file: SettingsFile =
        serde_json::from_str(text).map_err(|error| SettingsError::Json(error.to_string()))?;
    if file.servers.len() > SERVERS_MAX {
        return Err(SettingsError::TooMany(file.servers.len()));
    }
    let servers = file
        .servers
        .into_iter()
        .map(|(name, value)| server(name, value, whose));
    servers.filter_map(Result::transpose).collect()
}

/// Whether a server may have this name. Without `__` in it and `_` at its ends, `mcp__NAME__TOOL` can be split in only one way.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let ends = [name.chars().next(), name.chars().last()];
    let ends = ends
        .iter()
        .all(|end| end.is_some_and(|c| c.is_ascii_alphanumeric()));
    name.len() <= NAME_MAX && name.chars().all(plain) && ends && !name.contains("__")
}

fn server(
    name: String,
    value: Value,
    whose: SettingsOwner,
) -> Result<Option<ServerSettings>, SettingsError> {
    if !is_name(&name) {
        return Err(SettingsError::Name(
            name.chars().take(2 * NAME_MAX).collect(),
        ));
    }
    let wrong = |why| SettingsError::Server {
        server: name.clone(),
        why,
    };
    let entry: ServerEntry = serde_json::from_value(value)
        .map_err(|error| wrong(EntryFault::Json(error.to_string())))?;
    if entry.disabled {
        return Ok(None);
    }
    check(&entry).map_err(&wrong)?;
    let kind = kind(&entry).map_err(&wrong)?;
    if whose == SettingsOwner::Repository {
        check_repository(&entry).map_err(wrong)?;
    }
    let ServerEntry {
        auto_approve,
        tool_white_list,
        lazaret: ours,
        ..
    } = entry;
    let mut risks = ours.risk.clone();
    for tool in auto_approve {
        risks.entry(tool).or_insert(Risk::Low);
    }
    Ok(Some(ServerSettings {
        digest: digest(&kind),
        whose,
        kind,
        offered: tool_white_list.map(BTreeSet::from_iter),
        risks: if whose == SettingsOwner::User {
            risks
        } else {
            BTreeMap::new()
        },
        timeout_s: ours.timeout_s.unwrap_or(TIMEOUT_S),
        name,
    }))
}

/// The kind of an entry: by its type, or else by its fields.
fn kind(entry: &ServerEntry) -> Result<ServerKind, EntryFault> {
    let speech = match (entry.kind.as_deref(), &entry.url) {
        (None | Some("stdio"), None) => return program(entry).map(ServerKind::Program),
        (None | Some("http" | "streamable-http" | "streamableHttp"), Some(_)) => Speech::Http,
        (Some("sse"), Some(_)) => Speech::Sse,
        (Some("stdio"), Some(_)) => {
            return Err(EntryFault::ProgramWithUrl);
        }
        (Some(kind), None) => return Err(EntryFault::NoUrl(kind.to_owned())),
        (Some(kind), Some(_)) => {
            return Err(EntryFault::Kind(kind.to_owned()));
        }
    };
    address(entry, speech).map(ServerKind::Address)
}

fn program(entry: &ServerEntry) -> Result<ServerProgram, EntryFault> {
    if entry.command.as_deref().is_none_or(str::is_empty) {
        return Err(EntryFault::Empty);
    }
    if !entry.headers.is_empty() {
        return Err(EntryFault::ProgramWithHeaders);
    }
    let Ours {
        profile,
        project,
        hosts,
        presets,
        ..
    } = &entry.lazaret;
    Ok(ServerProgram {
        command: entry.command.iter().chain(&entry.args).cloned().collect(),
        environment: entry.env.clone(),
        directory: entry.cwd.clone(),
        profile: profile.clone().unwrap_or_else(|| "default".to_owned()),
        project: project.unwrap_or_default(),
        hosts: hosts.clone(),
        presets: presets.clone(),
    })
}

fn address(entry: &ServerEntry, speech: Speech) -> Result<ServerAddress, EntryFault> {
    let Ours {
        profile,
        project,
        hosts,
        presets,
        ..
    } = &entry.lazaret;
    let is_cell = profile.is_some()
        || project.is_some()
        || !hosts.is_empty()
        || !presets.is_empty()
        || entry.cwd.is_some();
    if entry.command.is_some() || is_cell || !entry.env.is_empty() {
        return Err(EntryFault::UrlInCell);
    }
    if let Some(name) = entry.headers.keys().find(|name| !is_header(name)) {
        return Err(EntryFault::Header(name.clone()));
    }
    if entry.oauth.client_secret.is_some() && entry.oauth.client_id.is_none() {
        return Err(EntryFault::SecretWithoutId);
    }
    let text = |text: &String| SettingsValue::Text(text.clone());
    let headers = entry.headers.iter();
    Ok(ServerAddress {
        url: entry.url.clone().unwrap_or_default(),
        held_path: None,
        headers: headers
            .map(|(name, value)| (name.clone(), text(value)))
            .collect(),
        speech,
        login: LoginSettings {
            client_secret: None,
            ..entry.oauth.clone()
        },
        client_secret: entry.oauth.client_secret.as_ref().map(text),
    })
}

/// Whether a header may be configured: its name is valid, and the protocol does not use it.
fn is_header(name: &str) -> bool {
    const OURS: [&str; 10] = [
        "accept",
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "host",
        "last-event-id",
        "mcp-protocol-version",
        "mcp-session-id",
        "transfer-encoding",
    ];
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty()
        && name.bytes().all(token)
        && !OURS.contains(&name.to_ascii_lowercase().as_str())
}

fn check(entry: &ServerEntry) -> Result<(), EntryFault> {
    let bounds = [
        ("args", entry.args.len(), ARGUMENTS_MAX),
        ("env", entry.env.len(), limit::VARIABLES),
        ("autoApprove", entry.auto_approve.len(), LISTED_MAX),
        (
            "tool_white_list",
            entry.tool_white_list.as_ref().map_or(0, Vec::len),
            LISTED_MAX,
        ),
        ("headers", entry.headers.len(), limit::VARIABLES),
        (
            "oauth.scopes",
            entry.oauth.scopes.as_ref().map_or(0, Vec::len),
            LISTED_MAX,
        ),
        ("lazaret.risk", entry.lazaret.risk.len(), LISTED_MAX),
        ("lazaret.hosts", entry.lazaret.hosts.len(), limit::HOSTS),
        ("lazaret.presets", entry.lazaret.presets.len(), limit::HOSTS),
    ];
    if let Some((key, count, max)) = bounds.into_iter().find(|(_, count, max)| count > max) {
        return Err(EntryFault::TooMany { key, count, max });
    }
    match entry.lazaret.timeout_s {
        Some(seconds) if !(1..=TIMEOUT_MAX_S).contains(&seconds) => {
            Err(EntryFault::Timeout(seconds))
        }
        Some(_) | None => Ok(()),
    }
}

/// Accepting a repository's file accepts its commands. Whatever widens access has to be in the user's own file.
fn check_repository(entry: &ServerEntry) -> Result<(), EntryFault> {
    let Ours {
        profile,
        hosts,
        presets,
        ..
    } = &entry.lazaret;
    if profile.is_some() || !hosts.is_empty() || !presets.is_empty() {
        return Err(EntryFault::WideRepository);
    }
    let login = entry
        .oauth
        .client_id
        .iter()
        .chain(&entry.oauth.client_secret);
    let of_address = entry.url.iter().chain(entry.headers.values()).chain(login);
    let texts = entry
        .command
        .iter()
        .chain(&entry.args)
        .chain(entry.env.values())
        .chain(of_address);
    match wanted_secret(texts) {
        Some(name) => Err(EntryFault::Secret(name)),
        None => Ok(()),
    }
}

/// The first variable in these texts that holds a secret of the user's.
fn wanted_secret<'t>(texts: impl Iterator<Item = &'t String>) -> Option<String> {
    let mut names = texts.flat_map(|text| variables::names(text));
    names.find(|name| looks_secret(name.as_ref()) || COLLECTOR_HEADERS.contains(&name.as_str()))
}

/// Each text is prefixed with its length, so that no two servers have the same encoding. A header's value counts only with variables in it: a
/// new token is no other server, and nobody tries values by a digest.
fn digest(kind: &ServerKind) -> Digest {
    let mut pairs: Vec<&str> = Vec::new();
    let (words, tail): (&[String], _) = match kind {
        ServerKind::Program(program) => {
            let all = program.environment.iter();
            pairs.extend(all.flat_map(|(name, value)| [name.as_str(), value]));
            (&program.command, None)
        }
        ServerKind::Address(address) => {
            let all = address.headers.iter();
            pairs.extend(all.flat_map(|(name, value)| [name.as_str(), value.with_variables()]));
            let url = std::slice::from_ref(&address.url);
            (url, Some(format!("{:?}", address.speech)))
        }
    };
    let words = words.iter().map(String::as_str);
    let mut hash = Sha256::new();
    hash.update((words.len() as u64).to_le_bytes());
    for text in words.chain(pairs).chain(tail.as_deref()) {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    Digest(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn one(entry: Value, whose: SettingsOwner) -> Result<ServerSettings, String> {
        let text = json!({ "mcpServers": { "fs": entry } }).to_string();
        parse(&text, whose)
            .map(|mut all| all.remove(0))
            .map_err(|error| error.to_string())
    }

    fn program_of(server: &ServerSettings) -> &ServerProgram {
        match &server.kind {
            ServerKind::Program(program) => program,
            ServerKind::Address(address) => panic!("{address:?}"),
        }
    }

    fn refused(entry: Value, words: &str) {
        let error = one(entry.clone(), SettingsOwner::User).unwrap_err();
        assert!(error.contains(words), "{entry}: {error}");
    }

    #[test]
    fn a_server_is_read_in_the_shape_of_other_clients() {
        let entry = json!({
            "type": "stdio", "command": "npx", "args": ["-y", "fs"], "env": { "TOKEN": "${TOKEN}" }, "cwd": "sub",
            "autoApprove": ["read", "risky"], "tool_white_list": ["read", "risky"], "icon": "of another client",
            "lazaret": { "profile": "node", "project": "none", "hosts": ["a.example:443"], "presets": ["npm"],
                "risk": { "risky": "medium" }, "timeoutS": 600 },
        });
        let server = one(entry, SettingsOwner::User).unwrap();
        assert_eq!(server.timeout_s, 600);
        let own = program_of(&server);
        assert_eq!(own.command, ["npx", "-y", "fs"]);
        assert_eq!((own.profile.as_str(), own.project), ("node", Share::None));
        assert_eq!(
            (server.risks["read"], server.risks["risky"]),
            (Risk::Low, Risk::Medium)
        );
        assert_eq!(server.offered.unwrap().len(), 2);
        let plain = one(json!({ "command": "x" }), SettingsOwner::User).unwrap();
        let own = program_of(&plain);
        assert_eq!(
            (own.profile.as_str(), own.project, plain.timeout_s),
            ("default", Share::Shared, 60)
        );
        assert!(plain.risks.is_empty() && plain.offered.is_none());
    }

    #[test]
    fn an_address_is_read_in_the_shape_of_other_clients() {
        let speech = |entry: Value| match one(entry, SettingsOwner::User).unwrap().kind {
            ServerKind::Address(address) => address.speech,
            ServerKind::Program(program) => panic!("{program:?}"),
        };
        let url = "https://a.example/mcp";
        assert_eq!(
            speech(json!({ "url": url, "headers": { "Authorization": "Bearer ${T}" } })),
            Speech::Http
        );
        assert_eq!(speech(json!({ "type": "http", "url": url })), Speech::Http);
        assert_eq!(
            speech(json!({ "server_type": "sse", "base_url": url })),
            Speech::Sse
        );
        let of = |entry: Value| one(entry, SettingsOwner::User).unwrap().digest;
        let base = of(json!({ "url": url }));
        for other in [
            json!({ "command": url }),
            json!({ "url": "https://b.example/mcp" }),
            json!({ "url": url, "type": "sse" }),
            json!({ "url": url, "headers": { "A": "b" } }),
        ] {
            assert_ne!(of(other), base);
        }
        let secret = json!({ "url": url, "headers": { "Authorization": "Bearer ${API_TOKEN}" } });
        assert!(
            one(secret.clone(), SettingsOwner::User).is_ok()
                && one(secret, SettingsOwner::Repository).is_err()
        );
        assert!(one(json!({ "url": url }), SettingsOwner::Repository).is_ok());
    }

    #[test]
    fn a_repository_widens_nothing() {
        let own = json!({ "command": "x", "autoApprove": ["read"], "lazaret": { "risk": { "write": "low" } } });
        assert_eq!(
            one(own.clone(), SettingsOwner::User).unwrap().risks.len(),
            2,
            "control"
        );
        assert!(
            one(own, SettingsOwner::Repository)
                .unwrap()
                .risks
                .is_empty()
        );
        for ours in [
            json!({ "profile": "node" }),
            json!({ "hosts": ["a.example"] }),
            json!({ "presets": ["npm"] }),
        ] {
            let entry = json!({ "command": "x", "lazaret": ours });
            assert!(
                one(entry.clone(), SettingsOwner::User).is_ok()
                    && one(entry, SettingsOwner::Repository).is_err()
            );
        }
        for text in [
            "${AWS_SECRET_ACCESS_KEY}",
            "$API_TOKEN",
            "${GITHUB_TOKEN:-none}",
            "${OTEL_EXPORTER_OTLP_HEADERS}",
        ] {
            for entry in [
                json!({ "command": "x", "env": { "A": text } }),
                json!({ "command": "x", "args": [text] }),
            ] {
                assert!(
                    one(entry.clone(), SettingsOwner::User).is_ok()
                        && one(entry, SettingsOwner::Repository).is_err(),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn a_name_is_cut_from_a_tools_name_in_one_way() {
        for name in ["fs", "a-b", "a_b", "9", &"n".repeat(NAME_MAX)] {
            assert!(is_name(name), "{name}");
        }
        for name in [
            "",
            "a__b",
            "_a",
            "a_",
            "-a",
            "a b",
            "é",
            "a.b",
            &"n".repeat(NAME_MAX + 1),
        ] {
            assert!(!is_name(name), "{name}");
        }
        let text = json!({ "mcpServers": { "a__b": { "command": "x" } } }).to_string();
        assert_eq!(
            parse(&text, SettingsOwner::User),
            Err(SettingsError::Name("a__b".into()))
        );
    }

    #[test]
    fn each_limit_holds_at_its_edge() {
        let many = |count: usize| {
            let all: BTreeMap<_, _> = (0..count)
                .map(|n| (format!("s{n}"), json!({ "command": "x" })))
                .collect();
            parse(
                &json!({ "mcpServers": all }).to_string(),
                SettingsOwner::User,
            )
            .map(|all| all.len())
        };
        assert_eq!(
            (many(SERVERS_MAX), many(SERVERS_MAX + 1)),
            (
                Ok(SERVERS_MAX),
                Err(SettingsError::TooMany(SERVERS_MAX + 1))
            )
        );
        let long = |bytes: usize| {
            parse(
                &format!("{{}}{}", " ".repeat(bytes - 2)),
                SettingsOwner::User,
            )
        };
        assert_eq!(
            (long(FILE_MAX), long(FILE_MAX + 1)),
            (Ok(vec![]), Err(SettingsError::TooLong(FILE_MAX + 1)))
        );
        let list = |count: usize| vec!["x"; count];
        let map = |count: usize| {
            (0..count)
                .map(|n| (format!("V{n}"), json!("x")))
                .collect::<serde_json::Map<_, _>>()
        };
        let risks = |count: usize| {
            (0..count)
                .map(|n| (format!("V{n}"), json!("low")))
                .collect::<serde_json::Map<_, _>>()
        };
        for (max, of) in [
            (
                ARGUMENTS_MAX,
                &(|n| json!({ "command": "x", "args": list(n) })) as &dyn Fn(usize) -> Value,
            ),
            (
                limit::VARIABLES,
                &|n| json!({ "command": "x", "env": map(n) }),
            ),
            (
                limit::VARIABLES,
                &|n| json!({ "url": "https://a.example", "headers": map(n) }),
            ),
            (
                LISTED_MAX,
                &|n| json!({ "url": "https://a.example", "oauth": { "scopes": list(n) } }),
            ),
            (
                LISTED_MAX,
                &|n| json!({ "command": "x", "autoApprove": list(n) }),
            ),
            (
                LISTED_MAX,
                &|n| json!({ "command": "x", "tool_white_list": list(n) }),
            ),
            (
                LISTED_MAX,
                &|n| json!({ "command": "x", "lazaret": { "risk": risks(n) } }),
            ),
            (
                limit::HOSTS,
                &|n| json!({ "command": "x", "lazaret": { "hosts": list(n) } }),
            ),
            (
                limit::HOSTS,
                &|n| json!({ "command": "x", "lazaret": { "presets": list(n) } }),
            ),
            (
                TIMEOUT_MAX_S as usize,
                &|n| json!({ "command": "x", "lazaret": { "timeoutS": n } }),
            ),
        ] {
            assert!(one(of(max), SettingsOwner::User).is_ok(), "{}", of(1));
            assert!(one(of(max + 1), SettingsOwner::User).is_err(), "{}", of(1));
        }
    }

    #[test]
    fn unsupported_server_settings_are_an_error() {
        refused(json!({}), "no `command`");
        refused(json!({ "command": "" }), "no `command`");
        let url = "https://a.example/mcp";
        refused(
            json!({ "type": "ws", "url": url }),
            "there are stdio, http and sse",
        );
        refused(json!({ "type": "http" }), "has no `url`");
        refused(json!({ "type": "stdio", "url": url }), "both");
        for program in [
            json!({ "url": url, "command": "x" }),
            json!({ "url": url, "env": { "A": "b" } }),
            json!({ "url": url, "cwd": "sub" }),
            json!({ "url": url, "lazaret": { "profile": "node" } }),
            json!({ "url": url, "lazaret": { "hosts": ["a.example"] } }),
        ] {
            refused(program, "only a program");
        }
        refused(
            json!({ "command": "x", "headers": { "A": "b" } }),
            "`headers`",
        );
        for name in ["Host", "mcp-session-id", "a b", "", "é", "A\r\nB"] {
            refused(
                json!({ "url": url, "headers": { name: "x" } }),
                "cannot be given",
            );
        }
        refused(
            json!({ "url": url, "oauth": { "clientSecret": "x" } }),
            "no `clientId`",
        );
        refused(
            json!({ "command": "x", "lazaret": { "host": [] } }),
            "unknown field `host`",
        );
        refused(
            json!({ "command": "x", "lazaret": { "project": "all" } }),
            "unknown variant `all`",
        );
        refused(
            json!({ "command": "x", "lazaret": { "timeoutS": 0 } }),
            "1 to 600",
        );
        assert!(one(json!({ "command": 1 }), SettingsOwner::User).is_err());
        let off = json!({ "mcpServers": { "a": { "disabled": true } } }).to_string();
        assert_eq!(parse(&off, SettingsOwner::User), Ok(vec![]));
        let deep = format!("{{\"mcpServers\":{{\"a\":{}", "[".repeat(FILE_MAX / 2));
        assert!(matches!(
            parse(&deep, SettingsOwner::User),
            Err(SettingsError::Json(_))
        ));
    }

    #[test]
    fn another_program_is_another_server() {
        let of = |entry: Value| one(entry, SettingsOwner::User).unwrap().digest;
        let base = of(json!({ "command": "x", "args": ["a", "b"] }));
        for other in [
            json!({ "command": "x", "args": ["ab"] }),
            json!({ "command": "y", "args": ["a", "b"] }),
            json!({ "command": "x", "args": ["a"], "env": { "b": "" } }),
        ] {
            assert_ne!(of(other), base);
        }
        assert_eq!(
            of(json!({ "command": "x", "args": ["a", "b"], "autoApprove": ["t"] })),
            base
        );
    }
}
