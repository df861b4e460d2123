//! Choice of a session's profile: the one that is named, that of the policy files, or with `auto` the one for the kind of project.
//!
//! The profile is chosen by the names of regular files in the project root; their contents are not read. So who writes a project can choose
//! between the profiles that `[[auto]]` names, and no others. Profiles are not joined: one could send away what another shows.

use crate::host::{Host, HostPathError};
use crate::model::AutoEntry;
use crate::resolve::{DEFAULT, Policies};
use crate::value::AUTO;
use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

/// A profile that was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub profile: String,
    /// The files that have chosen it, where the project was asked.
    pub found: Option<FoundKind>,
}

/// The kind of project that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundKind {
    /// The files that have chosen the profile; none, where it is the default because no entry fits.
    pub files: Vec<String>,
    /// Further profiles that would have fitted, in order.
    pub others: Vec<String>,
}

impl Choice {
    /// A choice by name, which needs no look at the project.
    pub fn named(profile: &str) -> Self {
        Self {
            profile: profile.to_owned(),
            found: None,
        }
    }

    /// The choice of the project and its reason, for people; `None` where it was not examined.
    pub fn describe(&self) -> Option<String> {
        let FoundKind { files, others } = self.found.as_ref()?;
        let profile = &self.profile;
        if files.is_empty() {
            return Some(format!(
                "the profile is {profile} (auto: no file in the project's root chooses another)"
            ));
        }
        let mut text = format!(
            "the profile is {profile} (auto: the project has {})",
            files.join(" and ")
        );
        if !others.is_empty() {
            let others = others.join(" or ");
            text.push_str(&format!(
                "; {others} would fit too: name it with --profile, or one of your own that extends several"
            ));
        }
        Some(text)
    }
}

/// Whether a directory has a regular file of a name; for [`Policies::choose`]. A link is none: what it leads to is not the project's.
pub fn has_file(directory: &Path) -> impl Fn(&str) -> bool {
    let directory = directory.to_owned();
    move |name| fs::symlink_metadata(directory.join(name)).is_ok_and(|file| file.is_file())
}

impl Policies {
    /// The profile of a session that asks for `named`; empty for that of the policy files. `has` tells whether the project's root
    /// has a regular file of a name. The profile may not exist: [`Policies::resolve`] says so.
    pub fn choose(&self, named: &str, has: impl Fn(&str) -> bool) -> Choice {
        let wanted = if named.is_empty() {
            self.default_profile()
        } else {
            named
        };
        if wanted != AUTO {
            return Choice::named(wanted);
        }
        let named = self.auto().filter(|entry| !entry.files.is_empty());
        let mut fitting = named.filter(|entry| entry.files.iter().all(|file| has(file.as_str())));
        let Some(first) = fitting.next() else {
            let other = self.auto().find(|entry| entry.files.is_empty());
            let profile = other
                .map_or(DEFAULT, |entry| entry.profile.as_str())
                .to_owned();
            return Choice {
                profile,
                found: Some(FoundKind::default()),
            };
        };
        let profile = first.profile.as_str().to_owned();
        let mut others: Vec<String> = Vec::new();
        // It has what the profiles have that it extends. If it cannot be resolved, that is reported elsewhere.
        let chain = self.chain(first.profile.as_str()).unwrap_or_default();
        for entry in fitting {
            let other = entry.profile.as_str();
            if !chain.iter().any(|(name, ..)| *name == other)
                && !others.iter().any(|known| known == other)
            {
                others.push(other.to_owned());
            }
        }
        let files = first
            .files
            .iter()
            .map(|file| file.as_str().to_owned())
            .collect();
        Choice {
            profile,
            found: Some(FoundKind { files, others }),
        }
    }

    /// The profile of a session that names none.
    pub fn default_profile(&self) -> &str {
        let chosen = self.general().filter_map(|(_, content)| content.chosen());
        chosen.last().map_or(DEFAULT, |name| name.as_str())
    }

    /// The directory in which each project has its central root, if a file names one.
    ///
    /// # Errors
    /// The home directory or a variable makes it a path that it cannot be.
    pub fn central_root(&self, host: &Host) -> Result<Option<PathBuf>, HostPathError> {
        let named = self
            .general()
            .filter_map(|(_, content)| content.central_root.as_ref());
        named.last().map(|path| path.expand(host)).transpose()
    }

    /// How many days the records of the audit are kept: the most that a file says, so that nobody shortens what an administrator wants.
    /// `None`, where no file says it: for ever.
    pub fn audit_keep_days(&self) -> Option<NonZeroU32> {
        let said = self.general();
        said.filter_map(|(_, content)| content.audit_keep_days)
            .max()
    }

    /// Entries in their order: those of the last file first.
    pub fn auto(&self) -> impl Iterator<Item = &AutoEntry> {
        let files: Vec<_> = self.general().collect();
        files
            .into_iter()
            .rev()
            .flat_map(|(_, content)| content.auto.iter().map(|entry| entry.get_ref()))
    }
}
