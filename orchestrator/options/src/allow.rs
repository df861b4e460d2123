//! Permanently opens one host, or one path for reading, to a profile, by editing only the user's own policy file.
//!
//! The file is written only if the new policy equals the old one plus exactly this. The comparison reveals any other effect of the
//! edit (a profile that others extend, a list that would replace another).

use crate::policy_files;
use broker_protocol::{Failed, Leased};
use orchestrator_install::{EditError, ListItem, add_to_list, files};
use orchestrator_records::state_directory;
use orchestrator_text::time;
use policies::leases::LeaseError;
use policies::web::{HostPattern, WebTable};
use policies::{
    Access, EffectivePolicy, Grant, Host, Policies, PolicyError, Source, SourceKind, WebPolicy, directories,
    network,
};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// What was written, and the backup.
#[derive(Debug)]
pub struct Allowed {
    /// The policy file of the user.
    pub file: PathBuf,
    /// The file's previous text, if the file existed.
    pub backup: Option<PathBuf>,
    /// Profiles that gained it too, because they extend this one.
    pub also: Vec<String>,
}

/// Why nothing was written to the policy file.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum AllowError {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Network(#[from] network::NetworkError),
    #[error(transparent)]
    Path(#[from] LeaseError),
    #[error("a profile cannot grant a directory to write in; grant {0} for a session")]
    Written(String),
    #[error("{file} cannot be extended ({source}); {advice}", file = .file.display())]
    Edit { file: PathBuf, advice: String, source: EditError },
    #[error("the edit would change more in {file} than this grant; {advice}", file = .file.display())]
    Other { file: PathBuf, advice: String },
    #[error("{file}: {source}", file = .file.display())]
    File { file: PathBuf, source: io::Error },
    #[error("the profile {0} has it already")]
    Already(String),
}

impl From<AllowError> for Failed {
    fn from(error: AllowError) -> Self {
        match error {
            AllowError::Policy(error) => Failed { kind: error.kind(), message: error.to_string() },
            other => Failed::invalid(other.to_string()),
        }
    }
}

impl Allowed {
    /// Describes to people what was written.
    pub fn describe(&self, profile: &str, opens: &Leased) -> String {
        let also = match self.also.is_empty() {
            true => String::new(),
            false => format!(" (and to what extends it: {})", self.also.join(", ")),
        };
        let backup = self.backup.as_ref().map(|backup| format!("; before: {}", backup.display()));
        let (what, file) = (opens.parts().1, self.file.display());
        format!("{what} is open to the profile {profile}{also}, in {file}{}", backup.unwrap_or_default())
    }
}

enum Gain {
    Network(WebPolicy),
    Grant(Grant),
}

impl Gain {
    fn of(opens: &Leased, old: &EffectivePolicy) -> Result<Self, AllowError> {
        match opens {
            Leased::Host(host) => Ok(Self::Network(network::leased(old.network.clone(), host)?)),
            Leased::Read(path) => {
                let path = old.may_lease(Access::Read, path, &old.lease_names()?)?;
                Ok(Self::Grant(Grant { path, optional: false }))
            }
            Leased::Write(path) => Err(AllowError::Written(path.clone())),
        }
    }

    /// The lists in a policy file that open it, below the profile.
    fn list(&self) -> &'static [&'static str] {
        match self {
            Self::Network(_) => &["network", "allow"],
            Self::Grant(_) => &["grants"],
        }
    }
}

/// Opens this to `profile`; `by` is recorded in the file as the author.
///
/// # Errors
/// If it cannot be opened, or the edit would change anything else.
pub fn allow(profile: &str, opens: &Leased, by: &str) -> Result<Allowed, AllowError> {
    let machine = policy_files::host();
    let sources = policy_files::sources(&machine)?;
    let file = directories::configuration(&machine.home, &state_directory::variable).join("policy.toml");
    let before =
        sources.iter().find(|source| source.kind == SourceKind::User).map(|source| source.text.clone());
    let old = Policies::load(sources.clone())?;
    let gain = Gain::of(opens, &old.resolve(profile, &machine)?)?;
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let comment = format!("Allowed always by {by}, {}", time::utc(seconds));
    let text = before.clone().unwrap_or_else(|| "version = 1\n".to_owned());
    let (what, list) = (opens.parts().1, gain.list());
    let advice = format!("add {what} to `{}` of the profile yourself", list.join("."));
    let item = match opens {
        Leased::Host(host) => ListItem::Text(host),
        Leased::Read(path) | Leased::Write(path) => ListItem::Table("path", path),
    };
    let path: Vec<_> = ["profile", profile].iter().chain(list).copied().collect();
    let after = add_to_list(&text, &path, item, &comment);
    let after =
        after.map_err(|source| AllowError::Edit { file: file.clone(), advice: advice.clone(), source })?;
    if after == text {
        return Err(AllowError::Already(profile.to_owned()));
    }
    let name = file.display().to_string();
    let user = Source { name, kind: SourceKind::User, text: after.clone() };
    let others = sources.into_iter().filter(|source| source.kind != SourceKind::User);
    let new = Policies::load(others.chain([user]).collect())?;
    let other = || AllowError::Other { file: file.clone(), advice };
    let also = compare(&old, &new, (profile, &gain), &machine).ok_or_else(other)?;
    let backup = write(&file, before.as_deref(), &after, seconds)
        .map_err(|source| AllowError::File { file: file.clone(), source })?;
    Ok(Allowed { file, backup, also })
}

/// Writes the file, and beside it a backup of its previous text, if there was any.
fn write(file: &Path, before: Option<&str>, after: &str, seconds: u64) -> io::Result<Option<PathBuf>> {
    let backup = before.map(|_| file.with_file_name(format!("policy.toml.{}", time::compact(seconds))));
    if let (Some(backup), Some(before)) = (&backup, before) {
        let there = files::read(backup)?;
        files::replace(backup, there.as_deref(), Some(before))?;
    }
    files::replace(file, before, Some(after))?;
    Ok(backup)
}

/// The other profiles that gained the same; an error if anything else changed in any profile.
fn compare(
    old: &Policies,
    new: &Policies,
    (profile, gain): (&str, &Gain),
    machine: &Host,
) -> Option<Vec<String>> {
    let mut also = Vec::new();
    for name in new.profiles() {
        let is_meant = name == profile;
        let now = new.resolve(name, machine).ok()?;
        let Ok(before) = old.resolve(name, machine) else { return None };
        if !is_meant && is_same(&before, &now, &before.network) {
            continue;
        }
        let gained = match gain {
            Gain::Network(expected) if is_meant => is_same(&before, &now, expected),
            Gain::Network(expected) => {
                let was = old.resolve(profile, machine).ok()?.network;
                is_same(&before, &now, &with_gain(&before.network, expected, was))
            }
            Gain::Grant(grant) => is_same(&with_grant(&before, grant), &now, &before.network),
        };
        if !gained {
            return None;
        }
        if !is_meant {
            also.push(name.to_owned());
        }
    }
    Some(also)
}

/// `policy` with one more grant. A grant that it has already, but only as optional, becomes required.
fn with_grant(policy: &EffectivePolicy, grant: &Grant) -> EffectivePolicy {
    let mut with = policy.clone();
    with.grants.retain(|other| other.path != grant.path);
    with.grants.push(grant.clone());
    with.grants.sort_by(|one, other| one.path.cmp(&other.path));
    with
}

/// `network` plus what `expected` has in addition to `was`.
fn with_gain(network: &WebPolicy, expected: &WebPolicy, was: WebPolicy) -> WebPolicy {
    let had = texts(&was);
    let gained = expected.own.allow.iter().flatten().filter(|host| !had.contains(host.text()));
    let mut network = network.clone();
    network.own.allow.get_or_insert_default().extend(gained.cloned());
    network
}

/// Whether `now` equals `before` with `network`; the order of its hosts does not matter.
fn is_same(before: &EffectivePolicy, now: &EffectivePolicy, network: &WebPolicy) -> bool {
    let rest = |policy: &WebPolicy| WebPolicy {
        own: WebTable { allow: None, ..policy.own.clone() },
        bounds: policy.bounds.clone(),
    };
    let others = EffectivePolicy { network: before.network.clone(), ..now.clone() };
    let unchanged = others.compute_digest().ok().zip(before.compute_digest().ok());
    unchanged.is_some_and(|(now, before)| now == before)
        && rest(&now.network) == rest(network)
        && texts(&now.network) == texts(network)
}

/// The hosts that a profile allows.
fn texts(policy: &WebPolicy) -> BTreeSet<String> {
    policy.own.allow.iter().flatten().map(HostPattern::text).map(str::to_owned).collect()
}
