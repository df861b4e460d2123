//! Advice that a person may paste: each value in it is quoted, or cannot contain anything that a shell acts on.

use super::source::rust_files;
use super::{Violations, members};
use std::fs;
use std::path::Path;

/// Values that are no stranger's text: numbers, names whose characters were checked when they were read, and what was quoted before.
const CHECKED: [&str; 17] = [
    "command", "options", "provider", "change", "id", "max", "name", "next", "number", "place",
    "port", "preset", "profile", "option", "host", "word", "more",
];
/// What advice begins with. An option may also stand alone.
const COMMANDS: [&str; 2] = ["`git ", "`lazaret "];
/// How many lines below its text a value may be quoted.
const BELOW: usize = 6;

/// In product code, a value in a command to paste is quoted by `broker_protocol::paste`.
pub fn advice_is_quoted(root: &Path) -> Violations {
    let mut violations = Violations::new();
    for member in members(root)
        .iter()
        .filter(|member| !["tests", "tests/laws"].contains(&member.as_str()))
    {
        for path in rust_files(&root.join(member).join("src")) {
            let shown = path
                .strip_prefix(root)
                .unwrap_or(&path)
                .display()
                .to_string();
            match fs::read_to_string(&path) {
                Ok(text) => violations.extend(
                    unquoted(&text)
                        .into_iter()
                        .map(|line| format!("{shown}:{line}")),
                ),
                Err(error) => violations.push(format!("{shown}: {error}")),
            }
        }
    }
    violations.sort();
    violations.dedup();
    violations
}

/// Numbers of the lines with advice that contains a value which is neither quoted nor checked.
fn unquoted(text: &str) -> Vec<usize> {
    let product = text.split("#[cfg(test)]").next().unwrap_or(text);
    let lines: Vec<&str> = product.lines().collect();
    let is_wrong = |number: &usize| {
        let line = lines[*number].trim_start();
        let quoted = || {
            lines[*number..]
                .iter()
                .take(BELOW)
                .any(|line| line.contains("shell_word("))
        };
        !line.starts_with("//")
            && values(line).any(|value| !(CHECKED.contains(&value) || value.is_empty() && quoted()))
    };
    (0..lines.len())
        .filter(is_wrong)
        .map(|number| number + 1)
        .collect()
}

/// The values in the commands and options of a line of text, by their names in its format.
fn values(line: &str) -> impl Iterator<Item = &str> {
    let commands = COMMANDS
        .iter()
        .flat_map(|command| line.split(command).skip(1));
    let commands = commands.map(|rest| rest.split('`').next().unwrap_or(rest));
    let options = line.split("--").skip(1).filter_map(|rest| {
        let (option, value) = rest.split_once(' ')?;
        let is_option =
            !option.is_empty() && option.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        let (value, behind) = value.strip_prefix('{').map(|_| value)?.split_once('}')?;
        // An error about an option has a colon behind its value.
        (is_option && !behind.starts_with(':')).then_some(value)
    });
    commands.chain(options).flat_map(placeholders)
}

/// The names in braces; `{{` is a brace and no value.
fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    let plain = text
        .split('{')
        .skip(1)
        .filter(|part| !part.is_empty() && !part.starts_with('"'));
    let names = plain.map(|part| part.split(['}', ':']).next().unwrap_or(part));
    // A constant is ours.
    names
        .filter(|name| name.is_empty() || !name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
}
