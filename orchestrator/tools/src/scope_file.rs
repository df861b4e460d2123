//! Scope files: the `tool_permissions` of a workflow or an agent, in YAML or TOML.
//!
//! The file is named on the command line. The broker gets a typed [`Scope`] and checks it again; the executor never reads either
//! format. A scope only narrows, so a repository may bring one.

use crate::catalogue::{TOOLS, canonical};
use broker_protocol::{Permission, Scope, limit};
use policies::paths::{GlobError, PathGlob};
use policies_guard::pattern::Case;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;
use thiserror::Error;

/// Largest scope file, in bytes.
pub const FILE_MAX: usize = 256 * 1024;

/// Why a text is not a scope.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum ScopeError {
    /// A syntax error, an unknown key or an invalid value.
    #[error("{file}:{line}:{column}: {message}")]
    Text {
        file: String,
        line: u64,
        column: u64,
        message: String,
    },
    /// It is well formed but no valid scope.
    #[error("{file}: {message}")]
    Meaning { file: String, message: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScopeText {
    #[serde(default)]
    tool_permissions: Option<BTreeMap<String, PermissionText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PermissionText {
    allowed: bool,
    #[serde(default)]
    paths: Option<Vec<ScopeGlob>>,
    #[serde(default)]
    timeout: Option<Seconds>,
    #[serde(default)]
    network: Option<bool>,
}

/// Parses the text of `file`: TOML if its name ends with `.toml`, otherwise YAML.
///
/// # Errors
/// Reports line, column and what was expected there.
pub fn parse(file: &str, text: &str) -> Result<Scope, ScopeError> {
    if text.len() > FILE_MAX {
        return Err(meaning(
            file,
            format!("{} bytes; a scope has at most {FILE_MAX}", text.len()),
        ));
    }
    let read = if file.ends_with(".toml") {
        from_toml(file, text)?
    } else {
        from_yaml(file, text)?
    };
    let mut permissions: Vec<Permission> = Vec::new();
    for (name, entry) in read.tool_permissions.unwrap_or_default() {
        let tool = canonical(&name).map_or(name, str::to_owned);
        if permissions.iter().any(|earlier| earlier.tool == tool) {
            return Err(meaning(
                file,
                format!("`{tool}` is there twice, once by another name"),
            ));
        }
        permissions.push(permission(tool, entry).map_err(|message| meaning(file, message))?);
    }
    let scope = Scope { permissions };
    scope
        .check()
        .map_err(|wrong| meaning(file, wrong.to_string()))?;
    Ok(scope)
}

fn permission(tool: String, entry: PermissionText) -> Result<Permission, String> {
    if entry.paths.as_ref().is_some_and(Vec::is_empty) {
        return Err(format!(
            "`{tool}` has an empty list of paths; write `allowed: false`, or leave `paths` out for all"
        ));
    }
    let paths = entry
        .paths
        .unwrap_or_default()
        .into_iter()
        .map(|glob| glob.0)
        .collect();
    // Tools that use the network are not permitted without it.
    let network = entry.network.unwrap_or_else(|| tool.starts_with("web_"));
    Ok(Permission {
        tool,
        allowed: entry.allowed,
        paths,
        timeout_s: entry.timeout.map(|time| time.0),
        network,
    })
}

fn meaning(file: &str, message: String) -> ScopeError {
    ScopeError::Meaning {
        file: file.to_owned(),
        message,
    }
}

fn from_toml(file: &str, text: &str) -> Result<ScopeText, ScopeError> {
    toml::from_str(text).map_err(|error| {
        let (line, column) =
            policies::model::place(text, error.span().map_or(0, |span| span.start));
        let (line, column) = (line as u64, column as u64);
        ScopeError::Text {
            file: file.to_owned(),
            line,
            column,
            message: error.message().to_owned(),
        }
    })
}

fn from_yaml(file: &str, text: &str) -> Result<ScopeText, ScopeError> {
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    let read: Result<Option<ScopeText>, _> = serde_saphyr::from_str_with_options(text, options);
    read.map(|file| {
        file.unwrap_or(ScopeText {
            tool_permissions: None,
        })
    })
    .map_err(|error| {
        let (line, column) = error
            .location()
            .map_or((1, 1), |place| (place.line(), place.column()));
        let message = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
        // The parser's message ends with the position, which our error already puts first.
        let message = message
            .split(" at line ")
            .next()
            .unwrap_or(&message)
            .to_owned();
        ScopeError::Text {
            file: file.to_owned(),
            line,
            column,
            message,
        }
    })
}

/// A glob of paths.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct ScopeGlob(String);

impl TryFrom<String> for ScopeGlob {
    type Error = GlobError;

    fn try_from(text: String) -> Result<Self, GlobError> {
        PathGlob::parse(&text, Case::Exact).map(|_| Self(text))
    }
}

/// `120`, `"120s"` or `"2m"`.
struct Seconds(u32);

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Time;

        impl Visitor<'_> for Time {
            type Value = Seconds;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(
                    f,
                    "a time such as 120, 120s or 2m, from 1 to {} seconds",
                    limit::TIMEOUT_S
                )
            }

            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Seconds, E> {
                let fits = u32::try_from(seconds)
                    .ok()
                    .filter(|seconds| (1..=limit::TIMEOUT_S).contains(seconds));
                fits.map(Seconds)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(seconds), &self))
            }

            fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Seconds, E> {
                u64::try_from(seconds)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(seconds), &self))
                    .and_then(|seconds| self.visit_u64(seconds))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Seconds, E> {
                let (digits, unit) = text.split_at(
                    text.find(|c: char| !c.is_ascii_digit())
                        .unwrap_or(text.len()),
                );
                let unit = match unit {
                    "" | "s" => Some(1),
                    "m" => Some(60),
                    "h" => Some(3600),
                    _ => None,
                };
                let seconds = digits
                    .parse::<u64>()
                    .ok()
                    .zip(unit)
                    .and_then(|(number, unit)| number.checked_mul(unit));
                seconds
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
                    .and_then(|seconds| self.visit_u64(seconds))
            }
        }

        input.deserialize_any(Time)
    }
}

/// Every tool, and no network for any of them.
pub fn without_network() -> Map<String, Value> {
    let tools = TOOLS.iter().map(|tool| tool.name);
    let closed = tools.filter(|tool| !Scope::NETWORK.contains(tool));
    closed
        .map(|tool| {
            (
                tool.to_owned(),
                json!({ "allowed": true, "network": false }),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const YAML: &str = "\
tool_permissions:
  file_read: { allowed: true, paths: ['**'] }
  write_file:
    allowed: true
    paths: ['src/**', 'central:notes/**']
  bash: { allowed: true, timeout: 120s }
  grep: { allowed: false }
  web_search: { allowed: true }
  mcp.weather: { allowed: true, timeout: 5 }
";

    const TOML: &str = "\
[tool_permissions]
file_read = { allowed = true, paths = ['**'] }
grep = { allowed = false }
web_search = { allowed = true }
'mcp.weather' = { allowed = true, timeout = 5 }
[tool_permissions.bash]
allowed = true
timeout = '2m'
[tool_permissions.file_write]
allowed = true
paths = ['src/**', 'central:notes/**']
";

    #[test]
    fn both_formats_say_the_same() {
        let mut scopes = [
            parse("s.yaml", YAML).unwrap(),
            parse("s.toml", TOML).unwrap(),
        ];
        scopes
            .iter_mut()
            .for_each(|scope| scope.permissions.sort_by(|a, b| a.tool.cmp(&b.tool)));
        let [yaml, toml] = scopes;
        assert_eq!(yaml, toml);
        let of = |tool: &str| {
            yaml.permissions
                .iter()
                .find(|permission| permission.tool == tool)
                .unwrap()
        };
        assert_eq!(of("file_write").paths, ["src/**", "central:notes/**"]);
        assert_eq!(of("bash").timeout_s, Some(120));
        assert!(!of("bash").network && of("web_search").network && !of("grep").allowed);
    }

    #[test]
    fn an_empty_file_is_an_empty_scope() {
        for text in [
            "",
            "# nothing\n",
            "---\n",
            "tool_permissions:\n",
            "tool_permissions: {}\n",
        ] {
            assert_eq!(parse("s.yaml", text), Ok(Scope::default()), "{text:?}");
        }
        assert_eq!(parse("s.toml", ""), Ok(Scope::default()));
        assert_eq!(
            parse("s.toml", "[tool_permissions]\n"),
            Ok(Scope::default())
        );
    }

    #[test]
    fn every_fault_names_line_and_column() {
        for (file, text, line, column, words) in [
            (
                "s.yaml",
                "tool_permision: {}\n",
                1,
                1,
                "unknown field `tool_permision`",
            ),
            (
                "s.yaml",
                "tool_permissions:\n  bash:\n    allowed: true\n    timout: 3\n",
                4,
                5,
                "unknown field `timout`",
            ),
            (
                "s.yaml",
                "tool_permissions:\n  bash: { allowed: maybe }\n",
                2,
                20,
                "boolean",
            ),
            (
                "s.yaml",
                "tool_permissions:\n  bash: { allowed: yes }\n",
                2,
                20,
                "boolean",
            ),
            (
                "s.yaml",
                "tool_permissions:\n  bash: { allowed: true, timeout: 0 }\n",
                2,
                26,
                "a time such as",
            ),
            (
                "s.yaml",
                "tool_permissions:\n  bash: { allowed: true }\n  bash: { allowed: true }\n",
                3,
                3,
                "duplicate",
            ),
            (
                "s.yaml",
                "tool_permissions:\n  bash: { timeout: 3 }\n",
                2,
                11,
                "missing field",
            ),
            ("s.yaml", "tool_permissions: [\n", 1, 19, "mapping"),
            (
                "s.yaml",
                "tool_permissions:\n  grep:\n    allowed: true\n    paths: ['../x']\n",
                4,
                13,
                "a glob of paths",
            ),
            (
                "s.toml",
                "[tool_permissions.bash]\nallowed = true\ntimout = 3\n",
                3,
                1,
                "unknown field `timout`",
            ),
            (
                "s.toml",
                "[tool_permissions.bash]\nallowed = 1\n",
                2,
                11,
                "expected a boolean",
            ),
            (
                "s.toml",
                "[tool_permissions.bash]\nallowed = true\ntimeout = '3 days'\n",
                3,
                11,
                "a time such as",
            ),
            ("s.toml", "tool_permissions = 3\n", 1, 20, "invalid type"),
        ] {
            match parse(file, text) {
                Err(ScopeError::Text {
                    file: at,
                    line: l,
                    column: c,
                    message,
                }) => {
                    assert_eq!(
                        (at.as_str(), l, c),
                        (file, line, column),
                        "{text}: {message}"
                    );
                    assert!(message.contains(words), "{text}: {message}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_scope_that_cannot_be_held_is_refused() {
        let says = |text: &str, words: &str| {
            let error = parse("s.yaml", text).unwrap_err().to_string();
            assert!(
                error.starts_with("s.yaml: ") && error.contains(words),
                "{error}"
            );
        };
        says(
            "tool_permissions:\n  bash: { allowed: true }\n  shell: { allowed: true }\n",
            "`bash` is there twice",
        );
        says(
            "tool_permissions:\n  grep: { allowed: true, paths: [] }\n",
            "empty list of paths",
        );
        says(
            "tool_permissions:\n  'a b': { allowed: true }\n",
            "only letters",
        );
        says(&format!("#{}", "x".repeat(FILE_MAX)), "a scope has at most");
    }

    #[test]
    fn a_text_that_expands_is_refused() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let before = vec![format!("*a{}", level - 1); 10].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{before}]\n"));
        }
        assert!(parse("s.yaml", &text).is_err());
        assert!(parse("s.yaml", &"[".repeat(100_000)).is_err());
    }
}
