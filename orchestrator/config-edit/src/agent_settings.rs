//! Whether a project's settings for agents undo Lazaret: asked before a session opens for an agent.
//!
//! An agent reads settings in its working directory and above, so all directories up to the user's home are examined. What a user has
//! looked at and accepted (`lazaret accept`) stays accepted until it changes.

use crate::project::{AcceptedFiles, ProjectFinding, examine};
use broker_protocol::Failed;
use orchestrator_confine::Files;
use orchestrator_launch::examiner::{directories, with_caller};
use orchestrator_launch::state_directory::variable;
use std::io;
use std::path::{Path, PathBuf};

/// Agents that a shipped profile runs whole in a cell, where a stranger's repository reaches nothing: the client, and the name of its
/// profile and program.
const WHOLE: [(&str, &str); 4] = [
    ("claude-code", "claude"),
    ("codex", "codex"),
    ("gemini", "gemini"),
    ("opencode", "opencode"),
];
/// How many findings an error names.
const SHOWN: usize = 4;

/// Settings of the project around `places` and the working directory, and nobody has accepted; for `client` alone, if it is known.
///
/// # Errors
/// If that cannot be told.
pub fn findings(
    _: &Files,
    places: &[&Path],
    client: Option<&str>,
) -> Result<Vec<ProjectFinding>, Failed> {
    let places = with_caller(places);
    findings_in(places.iter().map(PathBuf::as_path), client)
}

/// Settings of the project around one place, whatever the working directory is.
///
/// # Errors
/// As for [`findings`].
pub fn findings_at(place: &Path, client: Option<&str>) -> Result<Vec<ProjectFinding>, Failed> {
    findings_in([place].into_iter(), client)
}

/// Whether nothing of the project undoes Lazaret.
///
/// # Errors
/// If something does: which file and key, and what helps.
pub fn check(files: &Files, places: &[&Path], client: Option<&str>) -> Result<(), Failed> {
    refuse(&findings(files, places, client)?)
}

/// An error that names the findings, if there are any.
fn refuse(findings: &[ProjectFinding]) -> Result<(), Failed> {
    if findings.is_empty() {
        return Ok(());
    }
    Err(Failed::invalid(format!(
        "the project's own settings for agents may undo Lazaret: {}",
        advice(findings)
    )))
}

/// The findings in one sentence, with what helps.
pub fn advice(findings: &[ProjectFinding]) -> String {
    let shown = findings
        .iter()
        .take(SHOWN)
        .map(ProjectFinding::to_string)
        .collect::<Vec<_>>()
        .join("; ");
    let more = match findings.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let accept = match findings.iter().all(|finding| finding.digest.is_some()) {
        true => "look at it, then remove it, or accept it as it is with `lazaret accept`",
        false => "remove it",
    };
    format!("{shown}{more}; {accept}; {}", whole(findings))
}

/// The command that runs the agent that reads the first of these settings in a cell.
pub fn whole(findings: &[ProjectFinding]) -> String {
    let reads = |client: &str| {
        findings
            .first()
            .is_some_and(|first| first.clients.contains(&client))
    };
    let own = WHOLE.iter().find(|(client, _)| reads(client));
    let name = own.unwrap_or(&WHOLE[0]).1;
    format!("for a stranger's repository: `lazaret run --profile {name} -- {name}`")
}

fn findings_in<'p>(
    places: impl Iterator<Item = &'p Path>,
    client: Option<&str>,
) -> Result<Vec<ProjectFinding>, Failed> {
    let directories = directories(places)?;
    let is_set = |name: &str| {
        variable(name).is_some_and(|value| {
            ["1", "true"]
                .iter()
                .any(|set| value.eq_ignore_ascii_case(set))
        })
    };
    let mut found = examine(&directories, client, &is_set);
    if !found.is_empty() {
        let accepted = AcceptedFiles::read()
            .map_err(|error| Failed::internal(format!("what was accepted: {error}")))?;
        found.retain(|finding| !accepted.has(finding));
    }
    Ok(found)
}

/// Answers the questions of an [examiner](orchestrator_launch::examiner::Examiner) on standard input, until that ends.
pub fn answer(files: &Files, client: Option<&str>) -> io::Result<()> {
    for question in io::stdin().lines() {
        let root: String = serde_json::from_str(&question?)?;
        let checked = check(files, &[Path::new(&root)], client);
        println!(
            "{}",
            serde_json::Value::from(checked.err().map(|failed| failed.message))
        );
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "trees of the test's own")]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn settings_above_the_working_directory_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let sub = folder.path().join("a/b");
        fs::create_dir_all(&sub).unwrap();
        assert_eq!(findings_at(&sub, Some("opencode")).unwrap(), []);
        fs::write(
            folder.path().join("opencode.json"),
            r#"{"shell":"/bin/sh"}"#,
        )
        .unwrap();
        let found = findings_at(&sub, Some("opencode")).unwrap();
        assert!(whole(&found).contains("--profile opencode -- opencode"));
        assert!(whole(&[]).contains("--profile claude -- claude"));
        assert!(
            advice(&found).contains("opencode.json sets `shell`; look at it"),
            "{}",
            advice(&found)
        );
        assert!(refuse(&found).is_err() && refuse(&[]).is_ok());
        std::os::unix::fs::symlink("x", sub.join("opencode.json")).unwrap();
        let found = findings_at(&sub, Some("opencode")).unwrap();
        assert!(
            found.len() == 2 && !advice(&found).contains("lazaret accept"),
            "{}",
            advice(&found)
        );
    }
}
