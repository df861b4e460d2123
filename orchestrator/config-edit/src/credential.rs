//! Defines a credential in the user's own policy file, or removes it from there.
//!
//! The file is written only if no profile changes but those that gain or lose just this credential.

use crate::DocumentError;
use crate::document::Document;
use crate::files;
use crate::gain::is_same;
use crate::toml::{Toml, set_inline};
use broker_protocol::Failed;
use orchestrator_confine::Files;
use orchestrator_launch::{policy_files, state_directory};
use orchestrator_text::time;
use policies::credential_table::{CredentialFault, CredentialName, PresetName};
use policies::model::PolicyFile;
use policies::{
    EffectivePolicy, Host, Policies, PolicyError, PolicySource, SourceKind, directories,
};
use std::io;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// A credential that a preset describes, but for its source.
#[derive(Debug)]
pub struct NewCredential {
    pub name: String,
    pub preset: String,
    /// In place of the preset's; empty for these.
    pub hosts: Vec<String>,
    pub from: NewSource,
    /// The profile of the user's own that gets it.
    pub profile: Option<String>,
}

/// Where its value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewSource {
    Command(Vec<String>),
    File(String),
    Variable(String),
    /// None: the key of logins is made for each session.
    Session,
}

/// An edit of the user's policy file that is not written yet.
#[derive(Debug)]
pub struct CredentialEdit {
    pub file: PathBuf,
    /// Lines that the edit adds to the file or takes from it, as a text of TOML.
    pub lines: String,
    /// Profiles whose sessions gain or lose the credential.
    pub profiles: Vec<String>,
    before: Option<String>,
    after: String,
    seconds: u64,
}

/// Why there is no such edit.
#[derive(Debug, Error)]
pub enum CredentialError {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Value(#[from] CredentialFault),
    #[error(
        "the credential `{name}` is already defined, at {at}; `lazaret credential remove {name}` removes it"
    )]
    Taken { name: String, at: String },
    #[error("there is no credential `{0}`; `lazaret credential list` lists them")]
    Absent(String),
    #[error("the credential `{name}` is not defined in {file} but at {at}, which is not yours to change here", file = .file.display())]
    Foreign {
        name: String,
        file: PathBuf,
        at: String,
    },
    #[error("{file} defines no profile `{profile}`; write `[profile.{profile}]` with what it `extends` there first, or leave out --profile", file = .file.display())]
    NoProfile { profile: String, file: PathBuf },
    #[error("{file} cannot be edited ({source}); edit it yourself", file = .file.display())]
    Edit {
        file: PathBuf,
        source: DocumentError,
    },
    #[error("the edit would change more in {file} than this credential; edit it yourself", file = .0.display())]
    Other(PathBuf),
    #[error("{file}: {source}", file = .file.display())]
    File { file: PathBuf, source: io::Error },
}

impl From<CredentialError> for Failed {
    fn from(error: CredentialError) -> Self {
        match error {
            CredentialError::Policy(error) => Failed {
                kind: error.kind(),
                message: error.to_string(),
            },
            other => Failed::invalid(other.to_string()),
        }
    }
}

/// The policy files as they are.
struct Present {
    machine: Host,
    sources: Vec<PolicySource>,
    policies: Policies,
    file: PathBuf,
    before: Option<String>,
    /// The user's file, which may not exist yet.
    text: String,
    user: PolicyFile,
}

impl Present {
    fn read(files: &Files) -> Result<Self, CredentialError> {
        let machine = policy_files::host();
        let sources = policy_files::sources(files, &machine)?;
        let file = directories::configuration(&machine.home, &state_directory::variable)
            .join("policy.toml");
        let mut users = sources.iter();
        let before = users.find(|source| source.kind == SourceKind::User);
        let before = before.map(|source| source.text.clone());
        let text = before.clone().unwrap_or_else(|| "version = 1\n".to_owned());
        Ok(Self {
            policies: Policies::load(sources.clone())?,
            user: PolicyFile::parse(&file.display().to_string(), &text)?,
            machine,
            sources,
            file,
            before,
            text,
        })
    }

    /// Where a credential of this name is defined.
    fn defined_at(&self, name: &str) -> Result<Option<String>, PolicyError> {
        let all = self.policies.defined_credentials(&self.machine)?;
        let found = all.into_iter().find(|one| one.name == name);
        Ok(found.map(|one| one.origin.to_string()))
    }

    fn edit_error(&self, source: DocumentError) -> CredentialError {
        let file = self.file.clone();
        CredentialError::Edit { file, source }
    }

    /// The edit to `after`, if it changes nothing but who has the credential `name`.
    fn change(
        self,
        name: &str,
        after: String,
        lines: String,
    ) -> Result<CredentialEdit, CredentialError> {
        let user = PolicySource {
            name: self.file.display().to_string(),
            kind: SourceKind::User,
            text: after.clone(),
        };
        let others = self.sources.into_iter();
        let others = others.filter(|source| source.kind != SourceKind::User);
        let new = Policies::load(others.chain([user]).collect())?;
        let profiles = gained(&self.policies, &new, name, &self.machine)?;
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok(CredentialEdit {
            profiles: profiles.ok_or_else(|| CredentialError::Other(self.file.clone()))?,
            file: self.file,
            lines,
            before: self.before,
            after,
            seconds: seconds.unwrap_or_default().as_secs(),
        })
    }
}

/// The profiles that have the credential `name` in one of both alone; `None` if another profile changes, or one changes otherwise.
fn gained(
    old: &Policies,
    new: &Policies,
    name: &str,
    machine: &Host,
) -> Result<Option<Vec<String>>, PolicyError> {
    let others = |policy: &EffectivePolicy| {
        let credentials = policy.credentials.iter();
        let others = credentials.filter(|one| one.name != name);
        others.map(|one| one.name.clone()).collect::<Vec<_>>()
    };
    let mut profiles = Vec::new();
    for profile in new.profiles() {
        let now = new.resolve(profile, machine)?;
        let before = old.resolve(profile, machine)?;
        let has = |policy: &EffectivePolicy| policy.credentials.iter().any(|one| one.name == name);
        match has(&now) == has(&before) {
            true if !is_same(&before, &now) => return Ok(None),
            true => {}
            false if others(&before) != others(&now) => return Ok(None),
            false => profiles.push(profile.to_owned()),
        }
    }
    Ok(Some(profiles))
}

/// The edit that defines a credential.
///
/// # Errors
/// It cannot be defined, or the edit would change anything else.
pub fn add(files: &Files, new: &NewCredential) -> Result<CredentialEdit, CredentialError> {
    let name = CredentialName::try_from(new.name.clone())?;
    let preset = PresetName::try_from(new.preset.clone())?;
    let present = Present::read(files)?;
    if let Some(at) = present.defined_at(name.as_str())? {
        let name = new.name.clone();
        return Err(CredentialError::Taken { name, at });
    }
    if let Some(profile) = &new.profile
        && !present
            .user
            .profiles()
            .any(|(known, _)| known.as_str() == profile)
    {
        return Err(CredentialError::NoProfile {
            profile: profile.clone(),
            file: present.file,
        });
    }
    let from = match &new.from {
        NewSource::Command(words) => Some(("command", words.as_slice().into())),
        NewSource::File(path) => Some(("file", path.as_str().into())),
        NewSource::Variable(name) => Some(("env", name.as_str().into())),
        NewSource::Session => None,
    };
    let path = ["credential", name.as_str()];
    let with = |text: &str| {
        let with = match &from {
            Some(from) => set_inline(text, &[&path[..], &["from"]].concat(), from.clone())?,
            None => text.to_owned(),
        };
        let mut toml = Toml::read(&with)?;
        let preset: serde_json::Value = preset.as_str().into();
        toml.set(&[&path[..], &["preset"]].concat(), &preset)?;
        if !new.hosts.is_empty() {
            let hosts = new.hosts.as_slice().into();
            toml.set(&[&path[..], &["hosts"]].concat(), &hosts)?;
        }
        if let Some(profile) = &new.profile {
            toml.append(&["profile", profile, "credentials"], name.as_str())?;
        }
        Ok(toml.text())
    };
    let after = with(&present.text).map_err(|source| present.edit_error(source))?;
    let lines = with("").map_err(|source| present.edit_error(source))?;
    present.change(name.as_str(), after, lines)
}

/// The edit that removes a credential, from the profiles of the file too.
///
/// # Errors
/// There is none, it is defined elsewhere, or the edit would change anything else.
pub fn remove(files: &Files, name: &str) -> Result<CredentialEdit, CredentialError> {
    let present = Present::read(files)?;
    let at = present.defined_at(name)?;
    let at = at.ok_or_else(|| CredentialError::Absent(name.to_owned()))?;
    let mut own = present.user.credential.keys();
    if !own.any(|known| known.get_ref().as_str() == name) {
        let (name, file) = (name.to_owned(), present.file);
        return Err(CredentialError::Foreign { name, file, at });
    }
    let profiles = present.user.profiles().map(|(name, _)| name.as_str());
    let profiles: Vec<&str> = profiles.collect();
    let without = |text: &str| {
        let mut toml = Toml::read(text)?;
        toml.remove(&["credential", name])?;
        for profile in &profiles {
            toml.remove_item(&["profile", profile, "credentials"], name)?;
        }
        Ok(toml.text())
    };
    let after = without(&present.text).map_err(|source| present.edit_error(source))?;
    let lines = format!("[credential.{name}]\n");
    present.change(name, after, lines)
}

impl CredentialEdit {
    /// Writes it; returns the file with the previous text, if there was one.
    ///
    /// # Errors
    /// The file was changed meanwhile, or cannot be written.
    pub fn write(&self) -> Result<Option<PathBuf>, CredentialError> {
        let name = format!("policy.toml.{}", time::compact(self.seconds));
        let backup = self.file.with_file_name(name);
        let before = self.before.as_deref();
        let written = before
            .map(|before| files::save_new(&backup, before))
            .transpose()
            .and_then(|backup| {
                files::replace(&self.file, before, Some(&self.after)).map(|()| backup)
            });
        written.map_err(|source| CredentialError::File {
            file: self.file.clone(),
            source,
        })
    }
}
