//! Names that programs look for in a project, and whether each is decided: protected, or open with a reason.

use policies_guard::pattern::NamePattern;
use policies_guard::{Matcher, ProtectedName};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the recorded names, one file a program, and of `open.toml`.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("names")
}

/// What has been recorded of each program: its name and the names that it looks for.
#[allow(dead_code, reason = "the ordinary test reads what the command records")]
#[must_use]
pub(crate) fn recorded() -> Vec<(String, BTreeSet<String>)> {
    let files = fs::read_dir(folder())
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let mut lists: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .map(|path| {
            let program = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let text = fs::read_to_string(&path).unwrap_or_default();
            (
                program,
                text.lines()
                    .filter(|line| !line.starts_with('#'))
                    .map(str::to_owned)
                    .collect(),
            )
        })
        .collect();
    lists.sort();
    lists
}

/// The patterns of `open.toml`, each with its reason.
///
/// # Panics
/// The file is not of its form.
#[must_use]
#[allow(clippy::unwrap_used)]
pub(crate) fn known_open() -> Vec<(String, String)> {
    let text = fs::read_to_string(folder().join("open.toml")).unwrap();
    let table: toml::Table = text.parse().unwrap();
    let entries = table["open"].as_array().unwrap().iter().flat_map(|entry| {
        let why = entry["why"].as_str().unwrap().to_owned();
        let names = entry["names"].as_array().unwrap().iter();
        names
            .map(move |name| (name.as_str().unwrap().to_owned(), why.clone()))
            .collect::<Vec<_>>()
    });
    entries.collect()
}

/// Those of `names` on which nobody has decided: neither `protected` closes them, nor does a pattern of `open` name them.
///
/// # Panics
/// A protected name is no pattern.
#[must_use]
#[allow(clippy::unwrap_used)]
pub(crate) fn undecided(
    names: &BTreeSet<String>,
    protected: &[ProtectedName],
    open: &[(String, String)],
) -> Vec<String> {
    let protected = Matcher::new(protected).unwrap();
    let is_decided = |name: &&String| {
        let path = name.as_bytes();
        protected.protection(path).is_some()
            // A directory on the way to a protected name, in whose place there may be no file.
            || protected.leads_to(path).is_some()
            || open.iter().any(|(pattern, _)| is_at(pattern, name))
    };
    names
        .iter()
        .filter(|name| !is_decided(name))
        .cloned()
        .collect()
}

/// Whether `path` is what a pattern says, name by name; `**` at its end is whatever lies below.
fn is_at(pattern: &str, path: &str) -> bool {
    let (mut patterns, mut names) = (pattern.split('/'), path.split('/'));
    loop {
        match (patterns.next(), names.next()) {
            (None, None) => return true,
            (Some("**"), Some(_)) => return true,
            (Some(pattern), Some(name)) => {
                if !NamePattern::parse(pattern)
                    .is_ok_and(|pattern| pattern.matches(name.as_bytes()))
                {
                    return false;
                }
            }
            (None, Some(_)) | (Some(_), None) => return false,
        }
    }
}

/// The names below `project` in what `strace -y -e trace=file` wrote: of each a path relative to it, digits of drawn names left out.
#[must_use]
pub(crate) fn looked_for(log: &str, project: &Path) -> BTreeSet<String> {
    log.lines()
        .flat_map(|line| of_line(line, project))
        .collect()
}

/// Calls of one line that begin no call: signals, exits, the second half of one that was interrupted.
fn of_line(line: &str, project: &Path) -> Vec<String> {
    let call = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
    let Some((call, arguments)) = call
        .split_once('(')
        .filter(|_| !call.starts_with(['<', '+', '-']))
    else {
        return Vec::new();
    };
    // What follows the program are its arguments and its environment.
    let arguments = match call.starts_with("execve") {
        true => arguments
            .split_once(", [")
            .map_or(arguments, |(program, _)| program),
        false => arguments,
    };
    let (mut names, mut directory, mut rest) = (Vec::new(), None, arguments);
    while let Some(at) = rest.find(['"', '<', ')']) {
        let after = &rest[at + 1..];
        match rest.as_bytes()[at] {
            b'"' => {
                let Some(end) = after.find('"') else { break };
                let path = directory
                    .take()
                    .unwrap_or_else(|| project.to_owned())
                    .join(&after[..end]);
                names.extend(
                    path.strip_prefix(project)
                        .ok()
                        .map(|path| path.to_string_lossy().into_owned()),
                );
                rest = &after[end + 1..];
            }
            b'<' => {
                let Some(end) = after.find('>') else { break };
                directory = Some(PathBuf::from(&after[..end]));
                rest = &after[end + 1..];
            }
            _ => break,
        }
    }
    // The second text of `readlink` is what was found.
    let kept = if call.starts_with("readlink") {
        1
    } else {
        names.len()
    };
    names
        .into_iter()
        .take(kept)
        .filter_map(|name| plain(&name))
        .collect()
}

/// A name without `.`, `..` and what was drawn; `None` if nothing is left.
fn plain(name: &str) -> Option<String> {
    let mut parts: Vec<String> = Vec::new();
    for part in name
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
    {
        if part == ".." {
            parts.pop()?;
            continue;
        }
        let digits = part.chars().filter(char::is_ascii_digit).count();
        let drawn = |c: char| match digits {
            0..4 => false,
            4.. if part.len() >= 20 => c.is_ascii_hexdigit(),
            4.. => c.is_ascii_digit(),
        };
        parts.push(
            part.chars()
                .map(|c| if drawn(c) { '0' } else { c })
                .collect(),
        );
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}
