//! Settings of a project for agents that undo Lazaret: files of agents and editors that a repository brings along.
//!
//! A repository's settings may give an agent its own shell back, put a program in the place of our server, or set variables for what
//! the agent starts. Who opens a session for an agent asks here first.

mod accepted;
mod finding;
mod read;

pub use accepted::AcceptedFiles;
pub use finding::{ProjectFinding, What};
pub(crate) use read::ProjectDigest;

use crate::document::Format;
use orchestrator_launch::agent_files::{self, AgentFileKind, AgentPlace, FILES, Syntax};
use read::{OpenedDirectory, ProjectEntry, Unread};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The variable with which OpenCode reads no file of a project.
pub(crate) const OPENCODE_SWITCH: &str = "OPENCODE_DISABLE_PROJECT_CONFIG";

/// Examines the files of agents in each of these directories; those of `client` alone, if it is named.
pub fn examine(
    directories: &[PathBuf],
    client: Option<&str>,
    variable: &dyn Fn(&str) -> bool,
) -> Vec<ProjectFinding> {
    let reads = |place: &&AgentPlace| match client {
        Some(client) => place.clients.contains(&client),
        // Many projects have a `.env`, and its variables reach us only from clients that name themselves.
        None => !matches!(place.kind, AgentFileKind::Variables),
    };
    let switched_off =
        |place: &&AgentPlace| place.clients == ["opencode"] && variable(OPENCODE_SWITCH);
    let places: Vec<_> = FILES
        .iter()
        .filter(reads)
        .filter(|place| !switched_off(place))
        .collect();
    let mut findings = Vec::new();
    for path in directories {
        let Some(opened) = OpenedDirectory::of(path) else {
            continue;
        };
        // Most have none of these: each name is looked for once.
        let mut looked: BTreeMap<&str, bool> = BTreeMap::new();
        for place in &places {
            let top = place.path.split('/').next().unwrap_or_default();
            if *looked.entry(top).or_insert_with(|| opened.has(top)) {
                findings.extend(find(&opened, path, place));
            }
        }
    }
    findings
}

/// The effect of one file, if it has one.
fn find(opened: &OpenedDirectory, directory: &Path, place: &AgentPlace) -> Option<ProjectFinding> {
    let (what, digest) = match opened.entry(place.path, &place.kind)? {
        ProjectEntry::Unread(why) => (What::Unreadable(why), None),
        ProjectEntry::Directory => judge_directory(opened, place)?,
        ProjectEntry::File(text) => (
            judge(&text, &place.kind)?,
            Some(ProjectDigest::of(text.as_bytes())),
        ),
    };
    Some(ProjectFinding {
        clients: place.clients,
        path: directory.join(place.path),
        what,
        digest,
    })
}

fn judge_directory(
    opened: &OpenedDirectory,
    place: &AgentPlace,
) -> Option<(What, Option<ProjectDigest>)> {
    // Only prompts have heads; what else lies beside them is read by nobody on its own.
    let ending = if matches!(place.kind, AgentFileKind::Prompts(_)) {
        ".md"
    } else {
        ""
    };
    let files = match opened.files_below(place.path, ending) {
        Ok(files) => files,
        Err(why) => return Some((What::Unreadable(why), None)),
    };
    let digest = Some(ProjectDigest::of_files(&files));
    let what = match &place.kind {
        AgentFileKind::Prompts(keys) => {
            let found = files
                .iter()
                .filter_map(|(name, bytes)| prompt_keys(name, bytes, keys));
            let found: Vec<String> = found.flatten().collect();
            (!found.is_empty()).then_some(What::Sets(found))
        }
        AgentFileKind::Directory => (!files.is_empty()).then_some(What::Present),
        AgentFileKind::Except(..)
        | AgentFileKind::Keys(..)
        | AgentFileKind::Variables
        | AgentFileKind::Present => Some(What::Unreadable(Unread::NotRegular)),
    };
    what.map(|what| (what, digest))
}

fn judge(text: &str, kind: &AgentFileKind) -> Option<What> {
    let keys = match kind {
        AgentFileKind::Present => return Some(What::Present),
        AgentFileKind::Variables => variables(text),
        AgentFileKind::Prompts(_) | AgentFileKind::Directory => {
            return Some(What::Unreadable(Unread::NotDirectory));
        }
        AgentFileKind::Except(syntax, harmless) => match top(*syntax, text) {
            Ok(top) => harmful(&top, harmless),
            Err(why) => return Some(What::Unreadable(why)),
        },
        AgentFileKind::Keys(syntax, listed) => match top(*syntax, text) {
            Ok(top) => listed_keys(&top, listed),
            Err(why) => return Some(What::Unreadable(why)),
        },
    };
    (!keys.is_empty()).then_some(What::Sets(keys))
}

fn top(syntax: Syntax, text: &str) -> Result<serde_json::Map<String, Value>, Unread> {
    let format = match syntax {
        Syntax::Jsonc => Format::Jsonc,
        Syntax::Toml => Format::Toml,
        Syntax::Yaml => Format::Yaml,
    };
    let document =
        crate::edit::read(format, text).map_err(|error| Unread::Syntax(error.to_string()))?;
    match document.whole() {
        Some(Value::Object(keys)) => Ok(keys),
        None => Ok(serde_json::Map::new()),
        Some(_) => Err(Unread::Syntax("it is not an object".into())),
    }
}

/// The keys that are not harmless. Of an object with a harmless key (`permissions.deny`) the others count, and of one without, each
/// of its keys is named.
fn harmful(top: &serde_json::Map<String, Value>, harmless: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (key, value) in top
        .iter()
        .filter(|(key, _)| !harmless.contains(&key.as_str()))
    {
        match value {
            Value::Object(inner) if inner.is_empty() => {}
            Value::Object(inner) => {
                let names = inner.keys().map(|name| format!("{key}.{name}"));
                found.extend(names.filter(|name| !harmless.contains(&name.as_str())));
            }
            Value::Array(list) if list.is_empty() => {}
            _ => found.push(key.clone()),
        }
    }
    found
}

/// The keys that stand in `listed`, or begin with an entry that ends with a dot; also where objects take the place of the dots.
fn listed_keys(top: &serde_json::Map<String, Value>, listed: &[&str]) -> Vec<String> {
    let is_listed = |name: &str| {
        listed.iter().any(|entry| match entry.strip_suffix('.') {
            Some(above) => name == above || name.starts_with(*entry),
            None => name == *entry,
        })
    };
    let mut found = Vec::new();
    let mut waiting: Vec<(String, &Value)> = top
        .iter()
        .map(|(key, value)| (key.clone(), value))
        .collect();
    while let Some((name, value)) = waiting.pop() {
        if is_listed(&name) {
            found.push(name);
        } else if let Value::Object(inner) = value {
            waiting.extend(
                inner
                    .iter()
                    .map(|(key, value)| (format!("{name}.{key}"), value)),
            );
        }
    }
    found.sort();
    found
}

/// The variables of a dotenv file that are ours, or that choose programs and directories.
fn variables(text: &str) -> Vec<String> {
    let name = |line: &str| {
        let line = line.trim_start();
        let line = line.strip_prefix("export ").unwrap_or(line);
        Some(line.split_once('=')?.0.trim().to_owned())
    };
    text.lines()
        .filter_map(name)
        .filter(|name| agent_files::is_of_ours(name))
        .collect()
}

/// The keys in the head of a prompt (`---`, YAML, `---`) that give it more than words.
fn prompt_keys(name: &str, bytes: &[u8], keys: &[&str]) -> Option<Vec<String>> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Some(vec![format!("{name}: (no text)")]);
    };
    let text = text.trim_start_matches(crate::document::BYTE_ORDER_MARK);
    let head = text.strip_prefix("---")?;
    let (head, _) = head.split_once("\n---").unwrap_or((head, ""));
    let found = match serde_saphyr::from_str::<Value>(head) {
        Ok(Value::Object(head)) => head
            .keys()
            .filter(|key| keys.contains(&key.as_str()))
            .map(|key| format!("{name}: {key}"))
            .collect(),
        Ok(_) => Vec::new(),
        // Agents read such a head by rules of their own.
        Err(_) => vec![format!("{name}: (a head that is no YAML)")],
    };
    Some(found)
}

#[cfg(test)]
mod tests;
