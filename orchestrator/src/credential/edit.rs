//! `lazaret credential add` and `remove`: edit the user's own policy file, after a question.

use super::source;
use broker_protocol::Failed;
use broker_protocol::gateway::Attach;
use clap::Args;
use orchestrator_config_edit::credential::{self, CredentialEdit, NewCredential, NewSource};
use orchestrator_launch::groups::Options;
use orchestrator_launch::launch::{ErrorForm, FrontEnd, Launch, Prepared};
use orchestrator_launch::row::CommandRow;
use orchestrator_launch::stdio::pages;
use orchestrator_launch::stdio::print;
use orchestrator_launch::{exit, state_directory};
use orchestrator_text::secret_environment;
use policies::credential_table::presets;
use serde_json::json;
use std::path::{Path, PathBuf};
use thiserror::Error;

const EXIT: &str = "0 written; 1 not confirmed; 2 wrong arguments, or nothing that can be written; 125 lazaret failed";
/// Programs that print the token of a service, by the preset for it.
const KNOWN: [(&str, &[&str]); 2] = [
    ("aws", &["aws", "configure", "export-credentials"]),
    ("github", &["gh", "auth", "token"]),
];

/// Files in which a client keeps its token, by the preset.
const FILES: [(&str, &str); 3] = [
    ("crates", "~/.cargo/credentials.toml"),
    ("npm", "~/.npmrc"),
    ("pypi", "~/.pypirc"),
];

/// Define one in your policy file: what is found or named as its source, with a preset
///
/// What would be written is printed, and written only after a yes. The old text stays beside the file. Nothing reads the value.
#[derive(Args)]
pub(super) struct AddCredential {
    /// The credential's name in the policy files
    name: String,
    /// What it is for: hosts, requests and variables [default: the preset of its name]
    #[arg(long)]
    preset: Option<String>,
    /// A host whose requests use it, as NAME or NAME:PORT, once for each [default: those of the preset]
    #[arg(long, value_name = "HOST")]
    host: Vec<String>,
    /// A file that contains the value and nothing else
    #[arg(long, value_name = "PATH", conflicts_with = "command")]
    file: Option<PathBuf>,
    /// A program that prints the value, with its arguments in one text
    #[arg(long, value_name = "WORDS")]
    command: Option<String>,
    /// A variable of your environment that contains it
    #[arg(long, value_name = "NAME", conflicts_with_all = ["command", "file"])]
    env: Option<String>,
    /// A profile of your policy file whose commands may use it
    #[arg(long)]
    profile: Option<String>,
    /// Write without asking anybody first
    #[arg(long)]
    yes: bool,
    /// Print one JSON object in place of text
    #[arg(long)]
    json: bool,
}

/// Remove one from your policy file, and from its profiles
#[derive(Args)]
pub(super) struct RemoveCredential {
    /// The credential's name in the policy files
    name: String,
    /// Write without asking anybody first
    #[arg(long)]
    yes: bool,
    /// Print one JSON object in place of text
    #[arg(long)]
    json: bool,
}

/// Why no source is written.
#[derive(Debug, Error)]
enum NoSource {
    #[error("there is no preset `{0}`; --preset names one: {list}", list = presets().map(|(name, _)| name).collect::<Vec<_>>().join(", "))]
    Preset(String),
    #[error("no value is found for `{0}` here; name its place with --file, --command or --env{hint}", hint = file_of(.0))]
    Unknown(String),
    #[error("the preset `{0}` names no hosts, as each user has others; name them with --host")]
    NoHosts(String),
    #[error("{path} is in the project, where commands can write: move it out of there", path = .0.display())]
    Project(PathBuf),
    #[error("{path} is not UTF-8", path = .0.display())]
    Text(PathBuf),
    #[error(transparent)]
    Missing(#[from] source::SourceFault),
}

impl From<NoSource> for Failed {
    fn from(error: NoSource) -> Self {
        Failed::invalid(error.to_string())
    }
}

impl FrontEnd for AddCredential {
    const ROW: CommandRow = CommandRow::of_files("credential add", EXIT);

    fn errors(&self) -> ErrorForm {
        ErrorForm::object(self.json)
    }

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        let prepared = launch.prepare::<Self>(Options::default())?;
        let new = NewCredential {
            from: self.source(&prepared)?,
            preset: self.preset().to_owned(),
            hosts: self.host.clone(),
            name: self.name.clone(),
            profile: self.profile.clone(),
        };
        let change = credential::add(prepared.files(), &new)?;
        if !self.json {
            show("will add", &change)?;
        }
        let code = write(&change, "added", &self.name, (self.yes, self.json))?;
        if code == exit::OK && !self.json && self.profile.is_some() {
            let next = format!("Try it: lazaret credential test {}\n", self.name);
            print::result(next.as_bytes())?;
        }
        Ok(code)
    }
}

impl AddCredential {
    fn preset(&self) -> &str {
        self.preset.as_deref().unwrap_or(&self.name)
    }

    /// The source that is named, or known for the preset.
    fn source(&self, prepared: &Prepared) -> Result<NewSource, NoSource> {
        let preset = self.preset();
        if !presets().any(|(name, _)| name == preset) {
            return Err(NoSource::Preset(preset.to_owned()));
        }
        let has_hosts = presets().any(|(name, of)| name == preset && !of.hosts.is_empty());
        if !has_hosts && self.host.is_empty() {
            return Err(NoSource::NoHosts(preset.to_owned()));
        }
        let is_there = |words: &[String]| {
            let name = words.first().map_or("", String::as_str);
            source::program(name, state_directory::variable("PATH"))
        };
        if let Some(file) = &self.file {
            return file_source(file, prepared);
        }
        if let Some(command) = &self.command {
            let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
            return match is_there(&words) {
                true => Ok(NewSource::Command(words)),
                false => Err(source::SourceFault::NoProgram(command.clone()).into()),
            };
        }
        // Without a key of the user's a login is good for its session.
        if presets().any(|(name, of)| name == preset && of.captures()) {
            return Ok(NewSource::Session);
        }
        if let Some(name) = &self.env {
            return variable_source(name);
        }
        let known = KNOWN.iter().find(|(name, _)| *name == preset);
        let known = known.map(|(_, words)| words.iter().map(|word| (*word).to_owned()).collect());
        known
            .filter(|words: &Vec<String>| is_there(words))
            .map(NewSource::Command)
            .or_else(|| set_variable(preset))
            .ok_or_else(|| NoSource::Unknown(preset.to_owned()))
    }
}

/// The first variable of a preset that is set.
fn set_variable(preset: &str) -> Option<NewSource> {
    let (_, preset) = presets().find(|(name, _)| *name == preset)?;
    // No single variable has a key of AWS.
    preset
        .attach
        .as_ref()
        .filter(|attach| attach.0 != Attach::Aws)?;
    let mut names = preset.env.iter().map(|name| name.as_str());
    let name = names.find(|name| secret_environment::is_set(name))?;
    Some(NewSource::Variable(name.to_owned()))
}

fn variable_source(name: &str) -> Result<NewSource, NoSource> {
    let from = policies::CredentialSource::Variable(name.to_owned());
    source::check(&from, &state_directory::variable)?;
    Ok(NewSource::Variable(name.to_owned()))
}

/// Where a client keeps the token of a preset among other things: the value has to stand alone.
fn file_of(preset: &str) -> String {
    let file = FILES.iter().find(|(name, _)| *name == preset);
    let hint =
        |(_, file): &(_, _)| format!("; {file} may have one: copy it into a file of its own");
    file.map(hint).unwrap_or_default()
}

fn file_source(file: &Path, prepared: &Prepared) -> Result<NewSource, NoSource> {
    let own = || file.to_owned();
    let real = file.canonicalize();
    let real = real.map_err(|error| source::SourceFault::Unseen(own(), error))?;
    let project = prepared.options().project().ok();
    if project.is_some_and(|project| real.starts_with(&project.root)) {
        return Err(NoSource::Project(real));
    }
    let path = std::path::absolute(file);
    let path = path.map_err(|error| source::SourceFault::Unseen(own(), error))?;
    let from = policies::CredentialSource::File(path.clone());
    source::check(&from, &state_directory::variable)?;
    let text = path.to_str().map(str::to_owned);
    text.map(NewSource::File).ok_or(NoSource::Text(path))
}

impl FrontEnd for RemoveCredential {
    const ROW: CommandRow = CommandRow::of_files("credential remove", EXIT);

    fn errors(&self) -> ErrorForm {
        ErrorForm::object(self.json)
    }

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        let prepared = launch.prepare::<Self>(Options::default())?;
        let change = credential::remove(prepared.files(), &self.name)?;
        if !self.json {
            show("will remove", &change)?;
        }
        write(&change, "removed", &self.name, (self.yes, self.json))
    }
}

fn show(what: &str, change: &CredentialEdit) -> Result<(), Failed> {
    let (file, lines) = (change.file.display(), &change.lines);
    let profiles = match change.profiles.is_empty() {
        true => {
            "No profile changes: one uses the credentials that its `credentials` name.".to_owned()
        }
        false => format!("Profiles that change: {}.", change.profiles.join(", ")),
    };
    let text = format!("{what} in {file}:\n\n{lines}\n{profiles}\n");
    print::result(print::shown(&text).as_bytes())
}

fn write(
    change: &CredentialEdit,
    done: &str,
    name: &str,
    (yes, json): (bool, bool),
) -> Result<u8, Failed> {
    if !yes && !pages::confirm("write this?")? {
        return Ok(exit::FAILED);
    }
    let backup = change.write()?;
    if json {
        print::json(&json!({
            "name": name,
            "done": done,
            "file": change.file,
            "backup": backup,
            "profiles": change.profiles,
        }))?;
        return Ok(exit::OK);
    }
    let old = backup.map(|backup| format!("; the old file is {}", backup.display()));
    let file = change.file.display();
    let text = format!("{done} {name} in {file}{}\n", old.unwrap_or_default());
    print::result(print::shown(&text).as_bytes())?;
    Ok(exit::OK)
}
