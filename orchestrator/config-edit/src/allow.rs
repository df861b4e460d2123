//! Permanently opens one host, one path for reading, or files of the project by their name, to a profile, by editing only the user's own
//! policy file.
//!
//! A profile of another file cannot be changed there: one of the user's own that extends it takes its place where the files choose it.
//!
//! The file is written only if the new policy equals the old one plus exactly this. The comparison reveals any other effect of the
//! edit (a profile that others extend, a list that would replace another).

use crate::gain::{Gain, GainError, advice, is_same};
use crate::{Choices, DocumentError, choose, extend, files};
use broker_protocol::{Failed, Leased};
use orchestrator_confine::Files;
use orchestrator_launch::{policy_files, state_directory};
use orchestrator_text::time;
use policies::model::PolicyFile;
use policies::resolve::DEFAULT;
use policies::value::AUTO;
use policies::{
    EffectivePolicy, Host, Policies, PolicyError, PolicySource, SourceKind, directories,
};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// The text that was written, and the backup.
#[derive(Debug)]
pub struct Allowed {
    pub what: String,
    /// The profile that has it: the one that was named, or one of the user's own that extends it.
    pub profile: String,
    /// The sessions that have it, where the profile is not the one that was named.
    pub(crate) has_it: Option<String>,
    /// The policy file of the user.
    pub file: PathBuf,
    /// The file's previous text, if the file existed.
    pub(crate) backup: Option<PathBuf>,
    /// Profiles that gained it too, because they extend this one.
    pub also: Vec<String>,
}

/// Why nothing was written to the policy file.
#[derive(Debug, Error)]
pub enum AllowError {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Gain(#[from] GainError),
    #[error("{file} cannot be extended ({source}); {advice}", file = .file.display())]
    Edit {
        file: PathBuf,
        advice: String,
        source: DocumentError,
    },
    #[error("the edit would change more in {file} than this grant; {advice}", file = .file.display())]
    Other { file: PathBuf, advice: String },
    #[error("{file}: {source}", file = .file.display())]
    File { file: PathBuf, source: io::Error },
    #[error(
        "{profile} is not yours to change, and your profile {own} does not extend it; {advice}"
    )]
    Taken {
        profile: String,
        own: String,
        advice: String,
    },
    #[error("nothing was written: the profile {profile} has it already, {what}")]
    Already { profile: String, what: String },
}

impl From<AllowError> for Failed {
    fn from(error: AllowError) -> Self {
        match error {
            AllowError::Policy(error) | AllowError::Gain(GainError::Policy(error)) => Failed {
                kind: error.kind(),
                message: error.to_string(),
            },
            other => Failed::invalid(other.to_string()),
        }
    }
}

impl Allowed {
    /// Describes to people what was written.
    pub fn describe(&self) -> String {
        let also = match self.also.is_empty() {
            true => String::new(),
            false => format!(" (and to what extends it: {})", self.also.join(", ")),
        };
        let backup = self
            .backup
            .as_ref()
            .map(|backup| format!("; the old file is {}", backup.display()));
        let has_it = self
            .has_it
            .as_ref()
            .map_or_else(String::new, |has_it| format!("; {has_it}"));
        let (what, profile, file) = (&self.what, &self.profile, self.file.display());
        let backup = backup.unwrap_or_default();
        format!("{what} is open to the profile {profile}{also}, in {file}{has_it}{backup}")
    }
}

/// The profile of the user that is meant: the named one, or one that extends it.
struct UserProfile<'a> {
    named: &'a str,
    name: String,
    /// Whether the user's file does not have it yet.
    is_new: bool,
}

impl<'a> UserProfile<'a> {
    fn of(
        named: &'a str,
        user: &PolicyFile,
        old: &Policies,
        advice: &str,
    ) -> Result<Self, AllowError> {
        let find = |name: &str| user.profiles().find(|(known, _)| known.as_str() == name);
        if find(named).is_some() {
            return Ok(Self {
                named,
                name: named.to_owned(),
                is_new: false,
            });
        }
        let name = format!("my-{named}");
        let is_ours = find(&name).is_some_and(|(_, profile)| match &profile.extends {
            Some(bases) => bases.iter().any(|base| base.as_str() == named),
            None => named == DEFAULT,
        });
        let is_new = !old.profiles().any(|known| known == name);
        if is_new || is_ours {
            return Ok(Self {
                named,
                name,
                is_new,
            });
        }
        Err(AllowError::Taken {
            profile: named.to_owned(),
            own: name,
            advice: advice.to_owned(),
        })
    }

    /// Its policy before the edit: if it is new, that of what it extends.
    fn before(&self, old: &Policies, machine: &Host) -> Result<EffectivePolicy, PolicyError> {
        let name = if self.is_new { self.named } else { &self.name };
        Ok(EffectivePolicy {
            profile: self.name.clone(),
            ..old.resolve(name, machine)?
        })
    }

    /// The user's file with it, chosen where the files have chosen the named one, and which sessions that are. `own` is how many
    /// entries of `auto` the user's file has.
    fn put(
        &self,
        text: String,
        old: &Policies,
        own: usize,
        comment: &str,
    ) -> Result<(String, Option<String>), DocumentError> {
        let Self {
            named,
            name,
            is_new,
        } = self;
        if name == named {
            return Ok((text, None));
        }
        let text = if *is_new {
            extend(&text, name, named)?
        } else {
            text
        };
        let is_default = old.default_profile() == *named;
        let has_it = match old.default_profile() {
            default if default == *named => {
                "sessions that name no profile have it from now on".to_owned()
            }
            AUTO => format!("`auto` chooses it from now on in place of {named}"),
            _ => return Ok((text, Some(format!("name it with --profile {name}")))),
        };
        let more = if is_default {
            Vec::new()
        } else {
            self.entries(old, own)
        };
        let choices = Choices {
            profile: (named, name),
            is_default,
            more,
            comment,
        };
        Ok((choose(&text, &choices)?, Some(has_it)))
    }

    /// The entries that the user's file needs so that `auto` chooses this profile for the same projects. Entries of the user come
    /// first, so those of other files that come before the last one with the named profile are repeated.
    fn entries<'b>(&'b self, old: &'b Policies, own: usize) -> Vec<(Vec<&'b str>, &'b str)> {
        let all: Vec<(Vec<&str>, &str)> = old
            .auto()
            .map(|entry| {
                (
                    entry.files.iter().map(|file| file.as_str()).collect(),
                    entry.profile.as_str(),
                )
            })
            .collect();
        let (mine, others) = all.split_at(own.min(all.len()));
        let end = others
            .iter()
            .rposition(|(_, profile)| *profile == self.named)
            .map_or(0, |last| last + 1);
        let mut more: Vec<(Vec<&str>, &str)> = Vec::new();
        let fallback = (Vec::new(), DEFAULT);
        let has_fallback = all.iter().any(|(files, _)| files.is_empty());
        let fallback = (self.named == DEFAULT && !has_fallback).then_some(&fallback);
        for (files, profile) in others[..end].iter().chain(fallback) {
            let known = |list: &[(Vec<&str>, &str)]| list.iter().any(|(other, _)| other == files);
            if !known(mine) && !known(&more) {
                more.push((
                    files.clone(),
                    if *profile == self.named {
                        &self.name
                    } else {
                        profile
                    },
                ));
            }
        }
        more
    }

    /// The profiles that the files choose, with this one under the name of the named one.
    fn chosen<'b>(&'b self, policies: &'b Policies) -> (&'b str, Vec<(Vec<&'b str>, &'b str)>) {
        let same = |name: &'b str| if name == self.name { self.named } else { name };
        let mut entries: Vec<(Vec<&str>, &str)> = Vec::new();
        for entry in policies.auto() {
            let files: Vec<&str> = entry.files.iter().map(|file| file.as_str()).collect();
            // A later entry for the same files is never reached.
            if !entries.iter().any(|(other, _)| *other == files) {
                entries.push((files, same(entry.profile.as_str())));
            }
        }
        let last = entries.iter().position(|(files, _)| files.is_empty());
        let last = last.map_or((Vec::new(), DEFAULT), |at| entries.remove(at));
        entries.push(last);
        (same(policies.default_profile()), entries)
    }
}

/// Opens this to `profile`, from within `project`; `by` is recorded in the file as the author.
///
/// # Errors
/// If it cannot be opened, or the edit would change anything else.
pub fn allow(
    files: &Files,
    (profile, project): (&str, Option<&Path>),
    opens: &Leased,
    by: &str,
) -> Result<Allowed, AllowError> {
    let machine = policy_files::host();
    let sources = policy_files::sources(files, &machine)?;
    let file =
        directories::configuration(&machine.home, &state_directory::variable).join("policy.toml");
    let before = sources
        .iter()
        .find(|source| source.kind == SourceKind::User)
        .map(|source| source.text.clone());
    let old = Policies::load(sources.clone())?;
    let name = file.display().to_string();
    let text = before.clone().unwrap_or_else(|| "version = 1\n".to_owned());
    let user = PolicyFile::parse(&name, &text)?;
    let what = &*opens.parts().1;
    let own = UserProfile::of(profile, &user, &old, &advice(opens, what))?;
    let policy = own.before(&old, &machine)?;
    let gain = Gain::of(opens, &policy, project)?;
    let advice = gain.advice(opens);
    if gain.is_nothing(&policy) {
        return Err(AllowError::Already {
            profile: own.name,
            what: what.to_owned(),
        });
    }
    let seconds = now();
    let comment = format!("Allowed always by {by}, {}", time::utc(seconds));
    let edit = |source| AllowError::Edit {
        file: file.clone(),
        advice: advice.clone(),
        source,
    };
    let (after, has_it) = own
        .put(text.clone(), &old, user.auto.len(), &comment)
        .map_err(edit)?;
    let after = gain.add(&after, opens, &own.name, &comment).map_err(edit)?;
    let new = Policies::load(with_user(sources, name, after.clone()))?;
    let also = compare(&old, &new, (&own, &gain), &machine);
    let also = also.ok_or_else(|| AllowError::Other {
        file: file.clone(),
        advice,
    })?;
    let backup =
        write(&file, before.as_deref(), &after, seconds).map_err(|source| AllowError::File {
            file: file.clone(),
            source,
        })?;
    Ok(Allowed {
        what: gain.describe(opens),
        profile: own.name,
        has_it,
        file,
        backup,
        also,
    })
}

/// The time in seconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// The sources with this text as the user's own file.
fn with_user(mut sources: Vec<PolicySource>, name: String, text: String) -> Vec<PolicySource> {
    sources.retain(|source| source.kind != SourceKind::User);
    sources.push(PolicySource {
        name,
        kind: SourceKind::User,
        text,
    });
    sources
}

/// Writes the file, and beside it a backup of its previous text, if there was any.
fn write(
    file: &Path,
    before: Option<&str>,
    after: &str,
    seconds: u64,
) -> io::Result<Option<PathBuf>> {
    let backup = file.with_file_name(format!("policy.toml.{}", time::compact(seconds)));
    let backup = before
        .map(|before| files::save_new(&backup, before))
        .transpose()?;
    files::replace(file, before, Some(after))?;
    Ok(backup)
}

/// Other profiles that gained this grant; `None` if the edit changed anything else, or which profile a session gets.
fn compare(
    old: &Policies,
    new: &Policies,
    (own, gain): (&UserProfile, &Gain),
    machine: &Host,
) -> Option<Vec<String>> {
    let mut also = Vec::new();
    if own.chosen(old) != own.chosen(new) {
        return None;
    }
    for name in new.profiles() {
        let is_meant = name == own.name;
        let now = new.resolve(name, machine).ok()?;
        let before = if is_meant {
            own.before(old, machine)
        } else {
            old.resolve(name, machine)
        }
        .ok()?;
        if !is_meant && is_same(&before, &now) {
            continue;
        }
        let was = own.before(old, machine).ok()?;
        let gained = gain.is_all(&before, &now, (&was, is_meant));
        if !gained {
            return None;
        }
        if !is_meant {
            also.push(name.to_owned());
        }
    }
    Some(also)
}
