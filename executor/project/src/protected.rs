//! The result of searching the zones for what is protected, and why a search can fail.

use executor_spec::also_closed::{AlsoClosed, WhyClosed};
use executor_spec::known_directories::KnownDirectories;
use executor_spec::pins::{Pin, PinMode};
use executor_spec::protected_objects::{ObjectId, ProtectedObjects};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Maximum number of directory entries that are examined in each root when a session opens. What has the most below it is closed.
pub const ENTRIES_MAX: usize = 1_000_000;
/// The limit of entries of a directory that is leased: other calls wait for that.
pub const LEASED_ENTRIES_MAX: usize = 100_000;
/// Maximum number of repositories that are looked at after each call. Others are closed for writing.
pub const REPOSITORIES_MAX: usize = 512;
/// Maximum size of a file of git's settings.
pub(crate) const SETTINGS_BYTES_MAX: usize = 256 << 10;

/// Why protected names cannot be protected.
#[derive(Debug, Error)]
pub enum ProtectError {
    /// A zone is too large to search.
    #[error(
        "{zone} itself has more than {ENTRIES_MAX} entries, so protected names in it cannot be found; \
         remove some, or choose a smaller project root"
    )]
    TooLarge { zone: PathBuf },
    /// The central root itself has too many names.
    #[error(
        "{central} has more than {ENTRIES_MAX} names, or more protected names than can be closed, and they could not be set aside; \
         remove them, or choose another central root with --central"
    )]
    CentralTooLarge { central: PathBuf },
    /// A leased directory is too large to search.
    #[error(
        "it has more than {max} entries, so what is protected in it cannot be found in time; request a smaller directory"
    )]
    LeaseTooLarge { max: usize },
    /// The repository around the project is too large to search.
    #[error(
        "{around} is the repository around the project and has more than {ENTRIES_MAX} entries, so what leads from there \
         into the project cannot be found; choose a project root in a smaller repository"
    )]
    AroundTooLarge { around: PathBuf },
    /// A root itself contains too many protected names.
    #[error(
        "more than {max} protected names were found, and {} is one too many in a root itself; remove some of them",
        .path.display()
    )]
    TooMany {
        /// The bound: a lease has a lower one than a session.
        max: usize,
        /// The first over it.
        path: PathBuf,
    },
    /// The contents of a root cannot be listed.
    #[error("{zone} cannot be listed, so protected names in it cannot be found: {source}")]
    Unlisted { zone: PathBuf, source: io::Error },
    /// The user's git settings exceed the maximum that is read.
    #[error(
        "{file} has more of git's settings than are read when a session opens ({} KiB a file), or there are too many such files; what \
         they name in the project could not be closed",
        SETTINGS_BYTES_MAX >> 10
    )]
    Settings {
        /// The file over a bound.
        file: PathBuf,
    },
    /// No worker can read the user's git settings.
    #[error(
        "the settings of the user's git cannot be read, so what they name in the project cannot be closed: {source}"
    )]
    SettingsUnread { source: io::Error },
    /// A setting names a directory that contains a root.
    #[error(
        "{key} in {file} names a root of the session or a directory above it, all of which would be closed; change the setting, or \
         choose another project root"
    )]
    SettingOfRoot { file: PathBuf, key: String },
    /// A link would make a whole root protected.
    #[error(
        "{link} has a protected name and leads to a root of the session, all of which would be closed; remove the link"
    )]
    LinkToRoot { link: PathBuf },
}

/// The result of searching the zones.
#[derive(Debug, Default)]
pub struct Discovery {
    /// The protected objects, whatever their names.
    pub objects: ProtectedObjects,
    /// The mounts that pin what exists, parents first.
    pub pins: Vec<Pin>,
    /// Temporary files that an interrupted write may have left: a zone, and a path below it.
    pub temporaries: Vec<(PathBuf, PathBuf)>,
    /// Objects that are closed although their names are not protected.
    pub also_closed: Vec<AlsoClosed>,
    /// Paths with protected names to which a link or a setting leads that closes them too.
    pub led_to: BTreeSet<PathBuf>,
    /// Files and directories with protected names, none of them below another.
    pub(crate) named: Vec<PathBuf>,
    /// All directories that were searched.
    pub directories: KnownDirectories,
}

impl Discovery {
    /// Removes files with a protected name, and no other name, from what is closed: cells may use them as if they had created them.
    /// All at once: each look through the pins costs as much as there are pins.
    pub(crate) fn release(&mut self, released: &BTreeMap<PathBuf, ObjectId>) {
        for id in released.values() {
            self.objects.files.remove(id);
        }
        self.pins.retain(|pin| !released.contains_key(&pin.path));
        // Directories that were pinned for these alone may be moved.
        let above: BTreeSet<&Path> = released
            .keys()
            .flat_map(|path| path.ancestors().skip(1))
            .collect();
        let ways = &self.objects.ways;
        let may_go = |pin: &Pin| {
            let path = pin.path.as_path();
            pin.mode == PinMode::KeepPlace && above.contains(path) && !ways.contains(path)
        };
        let staying = self.pins.iter().filter(|pin| !may_go(pin));
        let held: BTreeSet<PathBuf> = staying
            .flat_map(|pin| pin.path.ancestors().skip(1))
            .map(Path::to_owned)
            .collect();
        self.pins
            .retain(|pin| !may_go(pin) || held.contains(&pin.path));
    }
}

/// Maximum number of paths that [`describe`] names.
const NAMED_MAX: usize = 20;

/// Lists for people what is closed although its name does not show it, with the reasons. Beyond
/// some twenty, the last line has the number of the rest. Returns also how many of the first are over a bound.
pub fn describe(also_closed: &[AlsoClosed]) -> (Vec<String>, usize) {
    // Names over a bound come first: nothing else that a command can make hides them.
    let mut sorted: Vec<&AlsoClosed> = also_closed.iter().collect();
    sorted.sort_by_key(|closed| !is_over_bound(closed));
    let mut over_bounds = sorted.iter().filter(|closed| is_over_bound(closed)).count();
    let mut named: Vec<String> = sorted
        .into_iter()
        .take(NAMED_MAX)
        .map(describe_one)
        .collect();
    match also_closed.len().saturating_sub(NAMED_MAX) {
        0 => {}
        more => named.push(format!("and {more} more")),
    }
    // With more than are named, the line about the rest is about these too.
    over_bounds = over_bounds.min(named.len());
    (named, over_bounds)
}

fn is_over_bound(closed: &AlsoClosed) -> bool {
    match closed.why {
        WhyClosed::SetAside(_)
        | WhyClosed::ModeGivenBack
        | WhyClosed::TooLarge
        | WhyClosed::OverBound(_)
        | WhyClosed::NotLinked(_) => true,
        WhyClosed::NotWatched
        | WhyClosed::OtherNameOf(_)
        | WhyClosed::TargetOf(_)
        | WhyClosed::Setting { .. }
        | WhyClosed::Own
        | WhyClosed::HomeLink(_)
        | WhyClosed::NotGranted(_)
        | WhyClosed::Program
        | WhyClosed::Unlisted
        | WhyClosed::Tracked(_) => false,
    }
}

fn describe_one(closed: &AlsoClosed) -> String {
    let path = &closed.path;
    match &closed.why {
        WhyClosed::OtherNameOf(protected) => {
            format!("{path:?} (the same file as {protected:?})")
        }
        WhyClosed::TargetOf(link) => format!("{path:?} ({link:?} leads there)"),
        WhyClosed::Setting { file, key } => format!("{path:?} ({key} in {file:?} names it)"),
        WhyClosed::Own => format!("{path:?} (Lazaret's own program or settings)"),
        WhyClosed::HomeLink(link) => format!("{path:?} ({link:?} leads there)"),
        WhyClosed::NotGranted(grant) => {
            format!("{path:?} (the profile shows {grant:?} without it)")
        }
        WhyClosed::Program => format!("{path:?} (a program in a repository's own directory)"),
        WhyClosed::Unlisted => format!("{path:?} (it cannot be listed)"),
        WhyClosed::NotLinked(why) => {
            format!("{path:?} (the project's .git leads there, but {why})")
        }
        WhyClosed::OverBound(first) => {
            format!("{path:?} (with {first:?} there are more protected names than mounts)")
        }
        WhyClosed::SetAside(there) => {
            format!(
                "what was in {path:?} or the newest of it (too many names; it is set aside in {there:?})"
            )
        }
        WhyClosed::ModeGivenBack => {
            format!("nothing in {path:?}, which a command had closed; it is open again")
        }
        WhyClosed::TooLarge => {
            format!(
                "{path:?} (with it there are more than {ENTRIES_MAX} files, or it takes too long to look through)"
            )
        }
        WhyClosed::NotWatched => format!(
            "{path:?} (a repository for which there is no room among the {REPOSITORIES_MAX} that are looked at after each call)"
        ),
        WhyClosed::Tracked(record) => format!(
            "{path:?} (a command has made git track this secret; `git rm --cached` ends that, or remove its line from {record:?})"
        ),
    }
}
