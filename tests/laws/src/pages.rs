//! Pages in Markdown: their links lead to files and headings, and what they claim has a test.

use super::Violations;
use super::source::functions;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders that are not ours to write: results of builds and packages of others.
const FOREIGN: [&str; 3] = ["target", "node_modules", "results"];
/// In SECURITY.md, names like those of a test that are settings of other programs.
const SETTINGS: [&str; 1] = ["idiomatic_version_file_enable_tools"];
/// Maximum length of a table cell on the README, in characters: about two lines.
const CELL_MAX: usize = 160;

/// Each relative link of a page names a file of this tree, and a heading where it has an anchor.
pub fn links_lead_somewhere(root: &Path) -> Violations {
    let pages = pages(root);
    let mut violations = Violations::new();
    for page in &pages {
        let Ok(text) = fs::read_to_string(page) else {
            violations.push(format!("{}: cannot be read", page.display()));
            continue;
        };
        let folder = page.parent().unwrap_or(root);
        for link in links(&prose(&text)) {
            if link.contains(':') {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() {
                page.clone()
            } else {
                folder.join(path)
            };
            let leads = target.exists()
                && (anchor.is_empty()
                    || fs::read_to_string(&target).is_ok_and(|text| has_heading(&text, anchor)));
            if !leads {
                violations.push(format!("{}: {link} leads nowhere", page.display()));
            }
        }
    }
    if pages.is_empty() {
        violations.push("no page can be read".into());
    }
    violations
}

/// The files that a page follows a call through are there, with the functions named beside them: in blocks of `path`, and in rows of
/// tables that begin with a file and a function.
pub fn walks_lead_somewhere(root: &Path) -> Violations {
    let mut violations = Violations::new();
    let mut steps = 0;
    for page in pages(root) {
        let text = fs::read_to_string(&page).unwrap_or_default();
        let folder = page.parent().unwrap_or(root);
        for (file, function) in walk(&text) {
            steps += 1;
            let name = function.rsplit("::").next().unwrap_or_default();
            let is_there = fs::read_to_string(folder.join(file))
                .is_ok_and(|text| name.is_empty() || text.contains(&format!("fn {name}")));
            if !is_there {
                violations.push(format!("{}: no {file} {function}", page.display()));
            }
        }
    }
    if steps < 30 {
        violations.push("no page follows a call".into());
    }
    violations
}

/// The steps of a page's walks: a file, and a function or an empty text.
fn walk(text: &str) -> Vec<(&str, &str)> {
    let blocks = text.split("```path\n").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split("```").next());
    let files = |line| {
        let first = str::split(line, "  ").next().unwrap_or_default();
        first.split(", ").map(|file| (file, ""))
    };
    let of_blocks = blocks.flat_map(str::lines).flat_map(files);
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split("` | `");
        let (file, rest) = (cells.next()?, cells.next()?);
        let is_file = file.contains('/') && file.ends_with(".rs");
        Some((file, rest.split_once('`')?.0)).filter(|_| is_file)
    });
    of_blocks.chain(rows).collect()
}

/// The controls that SECURITY.md names are tests, and no table cell of README.md is longer than two lines.
pub fn claims_name_their_tests(root: &Path) -> Violations {
    let mut violations = Violations::new();
    let security = fs::read_to_string(root.join("SECURITY.md")).unwrap_or_default();
    let named: BTreeSet<&str> = spans(&security).filter(|name| is_test_name(name)).collect();
    if named.is_empty() {
        violations.push("SECURITY.md names no test".into());
    }
    let tests = functions(root, &[""]);
    let missing = named.into_iter().filter(|name| !tests.contains(*name));
    violations.extend(missing.map(|name| format!("SECURITY.md: no test `{name}`")));
    let readme = fs::read_to_string(root.join("README.md")).unwrap_or_default();
    for line in readme.lines().filter(|line| line.starts_with('|')) {
        for cell in line
            .split('|')
            .filter(|cell| cell.chars().count() > CELL_MAX)
        {
            violations.push(format!("README.md: a long table cell: {}", cell.trim()));
        }
    }
    violations
}

/// A test's name is a claim: lower case, four words or more, joined by underscores.
/// The page with the places where text meets another medium, and the heading above them.
const MEDIA: (&str, &str) = (
    "orchestrator/text/README.md",
    "## Where text meets another medium",
);
/// Files whose public functions encode a text for a medium.
const ENCODERS: [&str; 3] = [
    "orchestrator/text/src/escape.rs",
    "orchestrator/text/src/markdown.rs",
    "broker-protocol/src/paste.rs",
];

/// Each place where text meets another medium names tests that exist, and each encoder has a place.
pub fn media_name_their_encoders_and_tests(root: &Path) -> Violations {
    let page = fs::read_to_string(root.join(MEDIA.0)).unwrap_or_default();
    let table = page.split_once(MEDIA.1).map_or("", |(_, rest)| rest);
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(1)
        .map(|line| line.trim_matches('|').split(" | ").collect())
        .collect();
    if rows.len() < 10 {
        return vec![format!("{}: no table of media", MEDIA.0)];
    }
    let functions = functions(root, &["orchestrator", "broker-protocol", "tests/tests"]);
    let mut violations = Violations::new();
    for row in &rows {
        let tests: Vec<&str> = row
            .get(3)
            .into_iter()
            .flat_map(|cell| spans(cell))
            .collect();
        if tests.is_empty() {
            violations.push(format!("{}: no test for {}", MEDIA.0, row[0]));
        }
        let missing = tests.iter().filter(|name| !functions.contains(**name));
        violations.extend(missing.map(|name| format!("{}: no test `{name}`", MEDIA.0)));
    }
    let encoders: BTreeSet<&str> = rows
        .iter()
        .filter_map(|row| row.get(2))
        .flat_map(|cell| spans(cell))
        .collect();
    for file in ENCODERS {
        let text = fs::read_to_string(root.join(file)).unwrap_or_default();
        let public = text
            .lines()
            .filter_map(|line| line.strip_prefix("pub fn ")?.split_once('('));
        let absent = public.filter(|(name, _)| !encoders.contains(name));
        violations.extend(
            absent.map(|(name, _)| format!("{file}: `{name}` is in no row of {}", MEDIA.0)),
        );
    }
    violations
}

fn is_test_name(name: &str) -> bool {
    name.matches('_').count() >= 3
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !SETTINGS.contains(&name)
}

fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if path.is_dir() && !name.starts_with('.') && !FOREIGN.contains(&&*name) {
            pages.extend(self::pages(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages.sort();
    pages
}

/// The text without blocks of code.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let is_prose = |line: &&str| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    };
    text.lines().filter(is_prose).collect::<Vec<_>>().join("\n")
}

/// The spans of code in a text.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.split("```").step_by(2);
    lines.flat_map(|part| part.split('`').skip(1).step_by(2))
}

/// The targets of links. In code, brackets with parentheses behind them are no link if a blank or a backtick is in these.
fn links(prose: &str) -> Vec<&str> {
    let parts = prose.split("](").skip(1);
    let targets = parts.filter_map(|rest| Some(rest.split_once(')')?.0));
    targets
        .filter(|target| !target.contains(|c: char| c.is_whitespace() || c == '`'))
        .collect()
}

/// Whether a page has a heading with this anchor, as hosts of repositories make anchors.
fn has_heading(text: &str, anchor: &str) -> bool {
    let prose = prose(text);
    let mut headings = prose.lines().filter_map(|line| {
        let heading = line.trim_start_matches('#');
        (heading.len() < line.len()).then_some(heading.trim())
    });
    headings.any(|heading| {
        let kept = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let slug: String = kept
            .map(|c| {
                if c == ' ' {
                    '-'
                } else {
                    c.to_ascii_lowercase()
                }
            })
            .collect();
        slug == anchor
    })
}
