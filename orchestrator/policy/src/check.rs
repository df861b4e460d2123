//! `lazaret policy check`: checks whether files are valid policies or scopes.

use crate::install_bundle;
use crate::sources::check_sources;
use broker_protocol::Failed;
use orchestrator_confine::Files;
use orchestrator_launch::launch::Prepared;
use orchestrator_launch::session_options::read_text;
use orchestrator_launch::stdio::print;
use orchestrator_launch::{exit, policy_files};
use orchestrator_tools::catalogue::canonical;
use orchestrator_tools::scope_file;
use policies::{Host, PolicySource, ScopePaths, SourceKind};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A checked file: notes about it, or why it is invalid.
struct CheckedFile {
    file: String,
    notes: Result<Vec<String>, Failed>,
}

/// Checks `files`, or the files in use, and prints their problems.
pub(super) fn check(prepared: &Prepared, files: &[PathBuf], json: bool) -> Result<u8, Failed> {
    let host = policy_files::host();
    let checked: Vec<CheckedFile> = match files {
        [] => vec![check_in_use(prepared, &host)?],
        files => files
            .iter()
            .map(|file| CheckedFile {
                file: file.display().to_string(),
                notes: check_file(prepared.files(), file, &host),
            })
            .collect(),
    };
    if json {
        print::json(
            &checked
                .iter()
                .map(CheckedFile::to_json)
                .collect::<Vec<Value>>(),
        )?;
    } else {
        let page: String = checked.iter().map(CheckedFile::text).collect();
        print::result(print::shown(&page).as_bytes())?;
    }
    Ok(if checked.iter().any(|one| one.notes.is_err()) {
        exit::FAILED
    } else {
        exit::OK
    })
}

impl CheckedFile {
    fn to_json(&self) -> Value {
        let error = self.notes.as_ref().err().map(|failed| &failed.message);
        json!({ "file": self.file, "ok": error.is_none(), "notes": self.notes.as_ref().ok(), "error": error })
    }

    fn text(&self) -> String {
        match &self.notes {
            Ok(notes) => notes
                .iter()
                .fold(format!("{}: ok\n", self.file), |text, note| {
                    format!("{text}  note: {note}\n")
                }),
            Err(failed) => format!("{}\n", failed.message),
        }
    }
}

fn check_in_use(prepared: &Prepared, host: &Host) -> Result<CheckedFile, Failed> {
    let options = prepared.options();
    let sources = policy_files::sources(prepared.files(), host).map_err(Failed::from)?;
    let names = sources
        .iter()
        .map(|source| source.name.clone())
        .collect::<Vec<_>>()
        .join(" and ");
    let file = if names.is_empty() {
        "the shipped policy".to_owned()
    } else {
        names
    };
    let notes = check_sources(sources, host).and_then(|notes| options.scope().map(|_| notes));
    let notes = notes.and_then(|notes| {
        let of_bundle = install_bundle::notes(prepared.files())?;
        Ok([options.files().notes(), of_bundle, notes].concat())
    });
    Ok(CheckedFile { file, notes })
}

/// Checks one file: as a scope, or as the user's policy together with the administrator's.
fn check_file(files: &Files, file: &Path, host: &Host) -> Result<Vec<String>, Failed> {
    let text = read_text(files, file)?;
    let name = file.display().to_string();
    if is_scope(file, &text) {
        let scope =
            scope_file::parse(&name, &text).map_err(|error| Failed::invalid(error.to_string()))?;
        ScopePaths::new(&scope).map_err(|error| Failed::invalid(format!("{name}: {error}")))?;
        let unknown = scope
            .permissions
            .iter()
            .filter(|permission| canonical(&permission.tool).is_none());
        return Ok(unknown
            .map(|permission| format!("there is no tool `{}`", permission.tool))
            .collect());
    }
    let mut sources = policy_files::sources(files, host).map_err(Failed::from)?;
    sources.retain(|source| source.kind != SourceKind::User);
    sources.push(PolicySource {
        name,
        kind: SourceKind::User,
        text,
    });
    check_sources(sources, host)
}

/// Whether a file is meant as a scope, even if it misspells `tool_permissions`.
fn is_scope(file: &Path, text: &str) -> bool {
    let is_yaml = file
        .extension()
        .is_some_and(|extension| extension == "yaml" || extension == "yml");
    let begins = |line: &str| {
        line.trim_start_matches(['[', '\'', '"', ' '])
            .starts_with("tool_")
    };
    is_yaml || text.lines().any(begins)
}
