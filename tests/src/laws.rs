//! Laws of the code that are better checked than asked for. Each is a function over a tree, so that a test can plant a
//! violation in a copy and see it caught. What cannot be read is a violation too.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is wrong, for people to read; empty where the law holds.
pub type Violations = Vec<String>;

/// Our crates, each with those of ours that it may use. What is not listed may use none.
const MAY_USE: [(&str, &[&str]); 4] = [
    ("policies", &["broker-protocol"]),
    ("executor", &["broker-protocol", "policies"]),
    ("orchestrator", &["broker-protocol", "policies"]),
    // `policies` to fuzz its parsers; the programs are driven from outside.
    ("lazaret-tests", &["broker-protocol", "policies"]),
];

/// What the trusted computing base is built without: threads for others' work, and the network.
const NOT_IN_EXECUTOR: [&str; 12] = [
    "tokio",
    "mio",
    "async-std",
    "smol",
    "futures",
    "rayon",
    "reqwest",
    "hyper",
    "ureq",
    "rustls",
    "openssl",
    "curl",
];

/// Imports between our crates run only downwards.
pub fn imports_run_downwards(root: &Path) -> Violations {
    let packages = match packages(root) {
        Ok(packages) => packages,
        Err(error) => return vec![error],
    };
    let ours: BTreeSet<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut violations = Violations::new();
    for package in &packages {
        let name = package["name"].as_str().unwrap_or_default();
        let allowed = MAY_USE.iter().find(|(user, _)| *user == name).map_or(&[][..], |(_, allowed)| *allowed);
        for used in dependencies(package).keys() {
            if ours.contains(used.as_str()) && !allowed.contains(&used.as_str()) {
                violations.push(format!("{name} depends on {used}"));
            }
        }
    }
    violations
}

/// Nothing below the executor is async, threaded or on the network.
pub fn executor_stays_small(root: &Path) -> Violations {
    let tree = ["tree", "--package", "executor", "--edges", "normal", "--prefix", "none", "--offline"];
    let listed = match cargo(root, &tree) {
        Ok(listed) => listed,
        Err(error) => return vec![error],
    };
    let names: BTreeSet<&str> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    if !names.contains("executor") {
        return vec!["cargo tree does not list the executor".into()];
    }
    NOT_IN_EXECUTOR
        .iter()
        .filter(|name| names.contains(*name))
        .map(|name| format!("executor is built with {name}"))
        .collect()
}

/// The executor's dependencies are those of the table in its README, each with a reason; what only builds it is named
/// there too.
pub fn executor_dependencies_have_reasons(root: &Path) -> Violations {
    let manifest = fs::read_to_string(root.join("executor/Cargo.toml")).unwrap_or_default();
    let Ok(manifest) = manifest.parse::<toml::Table>() else {
        return vec!["executor/Cargo.toml cannot be read".into()];
    };
    let names = |section: &str| -> Vec<String> {
        manifest
            .get(section)
            .and_then(toml::Value::as_table)
            .into_iter()
            .flat_map(|table| table.keys().cloned())
            .collect()
    };
    let readme = fs::read_to_string(root.join("executor/README.md")).unwrap_or_default();
    let page = readme.split("\n## ").find(|part| part.starts_with("Dependencies\n")).unwrap_or_default();
    let (used, reasons) = (names("dependencies"), table(page));
    if used.is_empty() || reasons.is_empty() {
        return vec![
            "executor: no dependencies, or no table of them in README.md under `Dependencies`".into(),
        ];
    }
    let mut violations = Violations::new();
    let mut complain =
        |name: &str, what: &str| violations.push(format!("{name}: {what} (executor/README.md)"));
    for name in &used {
        match reasons.get(name) {
            None => complain(name, "used without a reason"),
            Some(why) if why.len() < 5 => complain(name, "that is no reason"),
            Some(_) => {}
        }
    }
    reasons
        .keys()
        .filter(|name| !used.contains(name))
        .for_each(|name| complain(name, "a reason, but it is not used"));
    let builders = names("build-dependencies");
    builders
        .iter()
        .filter(|name| !page.contains(&format!("`{name}`")))
        .for_each(|name| complain(name, "builds it unnamed"));
    violations
}

/// `unsafe` stands in one file of each crate: `src/sys.rs`, or `src/bin/PROGRAM/sys.rs` of a program that is a crate of its own.
pub fn unsafe_stays_in_sys(root: &Path) -> Violations {
    let is_sys = |path: &Path| {
        let below = |member: &String| path.strip_prefix(root.join(member)).ok();
        members(root).iter().filter_map(below).any(|path| {
            let names: Vec<_> = path.iter().filter_map(|name| name.to_str()).collect();
            matches!(names[..], ["src", "sys.rs"] | ["src", "bin", _, "sys.rs"])
        })
    };
    scan(
        root,
        &members(root),
        |path, code| {
            if is_sys(path) { Vec::new() } else { lines_with_word(code, "unsafe") }
        },
    )
}

/// Processes are started by one file of the orchestrator, and by the executor's own system calls.
pub fn one_file_starts_processes(root: &Path) -> Violations {
    let starts = |path: &Path, code: &str| {
        let own_calls = path.ends_with("executor/src/sys.rs");
        let named = code
            .lines()
            .enumerate()
            .filter(|(_, line)| names_command(line) || !own_calls && names_exec(line));
        named.map(|(number, _)| number + 1).collect()
    };
    let none = ["executor/src", "policies/src", "broker-protocol/src"].map(str::to_owned);
    let mut violations = scan(root, &none, starts);
    let one = scan(root, &["orchestrator/src".into()], starts);
    let starters: BTreeSet<&str> = one.iter().filter_map(|violation| violation.split(':').next()).collect();
    if starters.len() > 1 {
        violations.push(format!("more than one file of orchestrator starts processes: {starters:?}"));
    }
    violations
}

/// The layers are the same in every build: no `cfg` of debug, feature or test in them, except around a file's tests.
pub fn layers_do_not_depend_on_the_build(root: &Path) -> Violations {
    let folder = root.join("executor/src/cell");
    if !folder.is_dir() {
        return vec!["executor/src/cell is missing".into()];
    }
    let check = |path: &Path, code: &str| match path.ends_with(SWITCH) {
        true => Vec::new(),
        false => conditional_lines(code),
    };
    scan(root, &["executor/src/cell".into()], check)
}

/// The file of the switch for layer ablation.
const SWITCH: &str = "executor/src/cell/ablation.rs";

/// The one switch for layer ablation: a feature that nothing turns on, in one file, which does not compile in a release.
pub fn the_switch_stands_alone(root: &Path) -> Violations {
    let mut violations = Violations::new();
    for member in members(root) {
        let manifest = fs::read_to_string(root.join(&member).join("Cargo.toml")).unwrap_or_default();
        let Ok(manifest) = manifest.parse::<toml::Table>() else {
            violations.push(format!("{member}/Cargo.toml cannot be read"));
            continue;
        };
        let features = manifest.get("features").map(ToString::to_string).unwrap_or_default();
        let wanted = if member == "executor" { "{ ablation = [] }" } else { "" };
        if features != wanted {
            violations.push(format!("{member}: features {features:?}, and not {wanted:?}"));
        }
        if manifest.get("dependencies").is_some_and(|used| used.to_string().contains("ablation")) {
            violations.push(format!("{member} turns the switch on"));
        }
        for file in
            rust_files(&root.join(&member)).iter().filter(|file| !file.starts_with(root.join("tests")))
        {
            let text = fs::read_to_string(file).unwrap_or_default();
            let names = ["feature = \"ablation\"", "LAZARET_ABLATE"].iter().any(|name| text.contains(name));
            if names && !file.ends_with(SWITCH) {
                violations.push(format!("{}: it knows the switch", file.display()));
            }
        }
    }
    let switch = fs::read_to_string(root.join(SWITCH)).unwrap_or_default();
    const CONDITIONS: [&str; 3] = [
        "#[cfg(all(feature = \"ablation\", not(debug_assertions)))]\ncompile_error!(",
        "#[cfg(not(feature = \"ablation\"))]\nmod switch {",
        "#[cfg(feature = \"ablation\")]\nmod switch {",
    ];
    let kept = CONDITIONS.iter().filter(|condition| switch.contains(**condition)).count();
    if kept != CONDITIONS.len() || conditional_lines(&code_only(&switch)).len() != CONDITIONS.len() {
        violations.push(format!("{SWITCH}: its conditions are not {CONDITIONS:?}"));
    }
    violations
}

/// What a layer's contract names behind *Tested by* is there: a test of the suites or of the crate.
pub fn contracts_name_their_tests(root: &Path) -> Violations {
    let mut tests = String::new();
    for folder in ["tests/tests", "executor/src"] {
        for file in rust_files(&root.join(folder)) {
            tests.push_str(&fs::read_to_string(file).unwrap_or_default());
        }
    }
    let mut violations = Violations::new();
    for file in rust_files(&root.join("executor/src/cell")) {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let contract: String = text.lines().map_while(|line| line.strip_prefix("//!")).collect();
        let Some((_, named)) = contract.split_once("*Tested by*:") else { continue };
        let names = named.split('`').skip(1).step_by(2).filter(|name| !name.contains(['*', '-']));
        let missing = names.filter(|name| !tests.contains(&format!("fn {name}(")));
        violations.extend(missing.map(|name| format!("{}: no test `{name}`", file.display())));
    }
    violations
}

/// The page in the folder and the documentation of the crate are one text.
pub fn every_crate_includes_its_readme(root: &Path) -> Violations {
    let mut violations = Violations::new();
    for member in members(root) {
        let tops = ["src/lib.rs", "src/main.rs"].map(|name| root.join(&member).join(name));
        let includes = |path: &PathBuf| {
            fs::read_to_string(path)
                .is_ok_and(|text| text.starts_with("#![doc = include_str!(\"../README.md\")]"))
        };
        if !tops.iter().any(includes) {
            violations.push(format!("{member} does not begin with its README.md"));
        }
    }
    if violations.is_empty() && members(root).is_empty() {
        vec!["no members can be read".into()]
    } else {
        violations
    }
}

/// What cargo prints about a tree.
fn cargo(root: &Path, words: &[&str]) -> Result<String, String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let output = cargo.current_dir(root).args(words).output();
    let output = output.map_err(|error| format!("cargo {} does not start: {error}", words[0]))?;
    if !output.status.success() {
        return Err(format!("cargo {}: {}", words[0], String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The packages of the workspace as their manifests declare them.
fn packages(root: &Path) -> Result<Vec<Value>, String> {
    let listed = cargo(root, &["metadata", "--format-version", "1", "--no-deps", "--offline"])?;
    let metadata: Value =
        serde_json::from_str(&listed).map_err(|error| format!("cargo metadata: {error}"))?;
    metadata["packages"].as_array().cloned().ok_or_else(|| "cargo metadata lists no packages".into())
}

/// Names of declared dependencies of any kind.
fn dependencies(package: &Value) -> BTreeMap<String, Value> {
    let declared = package["dependencies"].as_array().cloned().unwrap_or_default();
    declared.into_iter().filter_map(|one| Some((one["name"].as_str()?.to_owned(), one))).collect()
}

/// Folders of the workspace's members.
fn members(root: &Path) -> Vec<String> {
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap_or_default();
    let manifest = manifest.parse::<toml::Table>().unwrap_or_default();
    let members = manifest.get("workspace").and_then(|workspace| workspace.get("members")?.as_array());
    members.into_iter().flatten().filter_map(|member| member.as_str().map(str::to_owned)).collect()
}

/// Rows of a page's tables: the name in backticks in the first cell, and the last cell.
fn table(page: &str) -> BTreeMap<String, String> {
    let rows = page.lines().filter(|line| line.trim_start().starts_with("| `"));
    rows.filter_map(|row| {
        let cells: Vec<&str> = row.trim().trim_matches('|').split('|').map(str::trim).collect();
        Some((cells.first()?.trim_matches('`').to_owned(), (*cells.last()?).to_owned()))
    })
    .collect()
}

/// Looks at every Rust file of some folders; `check` says the lines at fault.
fn scan(root: &Path, folders: &[String], check: impl Fn(&Path, &str) -> Vec<usize>) -> Violations {
    let mut violations = Violations::new();
    let mut seen = 0;
    for folder in folders {
        for path in rust_files(&root.join(folder)) {
            seen += 1;
            let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            match fs::read_to_string(&path) {
                Ok(text) => {
                    let lines = check(&path, &code_only(&text));
                    violations.extend(lines.iter().map(|line| format!("{shown}:{line}")));
                }
                Err(error) => violations.push(format!("{shown}: {error}")),
            }
        }
    }
    if seen == 0 {
        violations.push(format!("no Rust file in {folders:?}"));
    }
    violations
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && entry.file_name() != "target" {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Numbers of the lines with a word.
fn lines_with_word(code: &str, word: &str) -> Vec<usize> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let has_word = |line: &str| line.split(|c| !is_part(c)).any(|part| part == word);
    code.lines().enumerate().filter(|(_, line)| has_word(line)).map(|(number, _)| number + 1).collect()
}

/// Whether a line names the standard library's or tokio's way to start a process.
fn names_command(line: &str) -> bool {
    let compact: String = line.split_whitespace().collect();
    compact.split("process::").skip(1).any(|rest| {
        let group = rest.strip_prefix('{').and_then(|rest| rest.split('}').next()).unwrap_or_default();
        rest.starts_with("Command")
            || group.split(',').any(|name| name == "Command" || name.starts_with("Commandas"))
    })
}

/// Whether a line starts or becomes a program by the system's own calls.
fn names_exec(line: &str) -> bool {
    const CALLS: [&str; 7] = ["execv", "execve", "execveat", "execvp", "execvpe", "fexecve", "posix_spawn"];
    CALLS.iter().any(|call| !lines_with_word(line, call).is_empty())
}

/// Lines with a condition on debug, a feature or tests that is not the attribute of a tests module.
fn conditional_lines(code: &str) -> Vec<usize> {
    let lines: Vec<&str> = code.lines().collect();
    let is_condition = |line: &str| {
        let conditions = ["cfg(", "cfg!(", "cfg_attr("];
        let names = ["debug_assertions", "feature", "test"];
        conditions.iter().any(|start| {
            line.split(start).skip(1).any(|rest| {
                names
                    .iter()
                    .any(|name| !lines_with_word(rest.split(']').next().unwrap_or(rest), name).is_empty())
            })
        }) || line.contains("debug_assert")
    };
    let guards_tests = |number: usize| {
        lines[number].trim() == "#[cfg(test)]"
            && lines.get(number + 1).is_some_and(|next| next.trim().starts_with("mod "))
    };
    (0..lines.len())
        .filter(|&number| is_condition(lines[number]) && !guards_tests(number))
        .map(|number| number + 1)
        .collect()
}

/// A text without its comments and without what stands in its strings and characters; lines stay where they are.
pub fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = skipped(&chars, at).unwrap_or(at);
        if end > at {
            out.extend(chars[at..end].iter().filter(|c| **c == '\n'));
            out.push(' ');
            at = end;
        } else {
            out.push(chars[at]);
            at += 1;
        }
    }
    out
}

/// The end of the comment, string or character that begins at `at`, if one does.
fn skipped(chars: &[char], at: usize) -> Option<usize> {
    let rest = &chars[at..];
    let after_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    match rest {
        ['/', '/', ..] => Some(at + rest.iter().position(|c| *c == '\n').unwrap_or(rest.len())),
        ['/', '*', ..] => Some(at + end_of_block(rest)),
        ['"', ..] => Some(at + end_of_quote(rest, '"')),
        ['r', '"' | '#', ..] if !after_word => raw_end(rest).map(|end| at + end),
        ['\'', '\\', ..] => Some(at + end_of_quote(rest, '\'')),
        ['\'', _, '\'', ..] => Some(at + 3),
        _ => None,
    }
}

fn end_of_block(rest: &[char]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at + 1 < rest.len() {
        match (rest[at], rest[at + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn end_of_quote(rest: &[char], quote: char) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            '\\' => at += 2,
            c if c == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The end of `r"…"` or `r#"…"#`; none where it is a raw name such as `r#type`.
fn raw_end(rest: &[char]) -> Option<usize> {
    let marks = rest[1..].iter().take_while(|c| **c == '#').count();
    let start = 1 + marks;
    if rest.get(start) != Some(&'"') {
        return None;
    }
    let closes = |at: usize| {
        rest[at] == '"' && rest[at + 1..].iter().take(marks).filter(|c| **c == '#').count() == marks
    };
    (start + 1..rest.len()).find(|at| closes(*at)).map(|at| at + 1 + marks).or(Some(rest.len()))
}
