//! Layer `protected-names`: names inside the zones that stay closed although the zone is open.
//!
//! *Guarantees*: in the namespaced tier, a protected name that exists when the session opens cannot be written,
//! replaced, renamed or removed (nor read, where the policy says so), under any other name of the same file in the
//! zone, and its parents cannot be moved away: each is a mount of its own. What a link with a protected name leads to is
//! protected as the name is, and each link on the way is held; a repository is known by its shape, whatever it is called
//! and wherever `.git` leads. What cannot be looked through is closed. In both tiers the cell's first process makes
//! the calls that make or move a name or open a file to change it (`executor-supervisor`), and refuses protected names
//! whether they exist or not, but for those that are open when new and made by the session itself; in the flat tier all
//! calls that take paths. *Does not*: keep the shell of the namespaced tier from reading or removing what the host makes
//! while the session is open; file tools check names in both tiers.
//! *Needs*: Linux 5.14, no other supervisor above, no `ptrace_scope` above 1, and the mount namespace for the pins. *Order*:
//! with the mounts; in the program's process before its order. *Fails*: the session does not open, or the cell does not
//! start. *Tested by*: `the_shell_neither_reads_nor_changes_them`, `nothing_is_planted_in_protected_names`,
//! `files_that_the_host_makes_during_a_call_are_not_changed`, `no_name_is_made_that_the_host_acts_on`,
//! `the_users_git_runs_nothing_that_a_cell_has_left`, `a_name_that_is_open_when_new_can_be_created_and_used`,
//! `without_supervision_nothing_runs`, `protected_files_are_not_read_by_any_name`, `what_a_protected_link_leads_to_is_closed`,
//! `a_repository_elsewhere_is_protected_as_dot_git`, `a_directory_that_cannot_be_listed_is_closed`, `of_its_repository_only_the_shared_part_is_open`,
//! `a_file_in_the_project_opens_no_repository`, corpus `SEC-*`.

use crate::known_directories::KnownDirectories;
use crate::linked_repository::NotLinked;
use crate::pins::{PINS_MAX, Pin, PinMode};
use crate::protected_objects::{ObjectId, ProtectedObjects};
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Maximum number of directory entries that are examined in each root when a session opens. What has the most below it is closed.
pub const ENTRIES_MAX: usize = 1_000_000;
/// The same for a directory that is leased: other calls wait for that.
pub const LEASED_ENTRIES_MAX: usize = 100_000;
/// Maximum number of repositories that are looked at after each call. Others are closed for writing.
pub const REPOSITORIES_MAX: usize = 512;
/// Maximum size of a file of git's settings.
pub const SETTINGS_BYTES_MAX: usize = 256 << 10;

/// Why protected names cannot be protected.
#[derive(Debug, Error)]
pub enum ProtectError {
    /// A zone is too large to search.
    #[error(
        "{zone} itself has more than {ENTRIES_MAX} entries, so protected names in it cannot be found; \
         remove some, or choose a smaller project root"
    )]
    TooLarge {
        /// Its path.
        zone: PathBuf,
    },
    /// The central root itself has too many names.
    #[error(
        "{central} has more than {ENTRIES_MAX} names, or more protected names than can be closed, and they could not be set aside; \
         remove them, or choose another central root with --central"
    )]
    CentralTooLarge {
        /// Its path.
        central: PathBuf,
    },
    /// A leased directory is too large to search.
    #[error(
        "it has more than {max} entries, so what is protected in it cannot be found in time; request a smaller directory"
    )]
    LeaseTooLarge {
        /// The bound.
        max: usize,
    },
    /// The repository around the project is too large to search.
    #[error(
        "{around} is the repository around the project and has more than {ENTRIES_MAX} entries, so what leads from there \
         into the project cannot be found; choose a project root in a smaller repository"
    )]
    AroundTooLarge {
        /// Its path.
        around: PathBuf,
    },
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
    Unlisted {
        /// Its path.
        zone: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
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
    SettingsUnread {
        /// Why.
        source: io::Error,
    },
    /// A setting names a directory that contains a root.
    #[error(
        "{key} in {file} names a root of the session or a directory above it, all of which would be closed; change the setting, or \
         choose another project root"
    )]
    SettingOfRoot {
        /// The file of settings.
        file: PathBuf,
        /// The setting.
        key: String,
    },
    /// A link would make a whole root protected.
    #[error(
        "{link} has a protected name and leads to a root of the session, all of which would be closed; remove the link"
    )]
    LinkToRoot {
        /// Its path.
        link: PathBuf,
    },
}

/// The result of searching the zones.
#[derive(Debug)]
pub struct Discovery {
    /// The protected objects, whatever their names.
    pub objects: ProtectedObjects,
    /// The mounts that pin what exists, parents first.
    pub pins: Vec<Pin>,
    /// Temporary files that an interrupted write may have left: a zone, and a path below it.
    pub temporaries: Vec<(PathBuf, PathBuf)>,
    /// What is closed although its name does not show it.
    pub also_closed: Vec<AlsoClosed>,
    /// Files and directories with protected names, none of them below another.
    pub named: Vec<PathBuf>,
    /// All directories that were searched.
    pub directories: KnownDirectories,
}

impl Discovery {
    /// Removes a file with a protected name, and no other name, from what is closed: cells may use it as if they had created it.
    pub fn release(&mut self, path: &Path, id: ObjectId) {
        self.objects.files.remove(&id);
        self.pins.retain(|pin| pin.path != path);
        // Directories that were pinned for it alone may be moved.
        for parent in path.ancestors().skip(1) {
            let holds = |pin: &Pin| pin.path.starts_with(parent) && pin.path != parent;
            let place = self
                .pins
                .iter()
                .position(|pin| pin.path == parent && pin.mode == PinMode::KeepPlace);
            let is_way = self.objects.ways.contains(parent);
            match place.filter(|_| !is_way && !self.pins.iter().any(holds)) {
                Some(place) => drop(self.pins.remove(place)),
                None => break,
            }
        }
    }
}

/// Directories into which package managers unpack: npm's, and those of Python.
const PACKAGES: [&str; 3] = ["node_modules", "site-packages", "dist-packages"];

/// Whether a directory on the way to `below`, a path in a zone, is one of packages.
pub fn is_in_packages(below: &Path) -> bool {
    let mut above = below.ancestors().skip(1).filter_map(Path::file_name);
    above.any(|name| PACKAGES.iter().any(|packages| name == *packages))
}

/// A path that is closed although its name does not show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlsoClosed {
    /// Absolute.
    pub path: PathBuf,
    /// Why.
    pub why: WhyClosed,
}

/// Why a path is closed although its name does not show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhyClosed {
    /// It is the same file as this protected one.
    OtherNameOf(PathBuf),
    /// This link with a protected name leads there.
    TargetOf(PathBuf),
    /// This setting of the user's git names it.
    Setting {
        /// The file of settings.
        file: PathBuf,
        /// The setting.
        key: String,
    },
    /// It is one of Lazaret's own programs or settings, or a link from these leads there.
    Own,
    /// This link in the user's home directory leads there.
    HomeLink(PathBuf),
    /// It lies in this grant of the profile, which excepts it.
    NotGranted(PathBuf),
    /// It is a program in a repository's directory, and settings may name it by a path that only a shell knows.
    Program,
    /// Its contents cannot be listed.
    Unlisted,
    /// The project's `.git` file leads there, but it is not opened.
    NotLinked(NotLinked),
    /// It contains this and other protected names, too many to pin one by one.
    OverBound(PathBuf),
    /// A root had too many names of its own. They, or the newest protected ones, lie in this directory now.
    SetAside(PathBuf),
    /// Its owner could not use it, and can again.
    ModeGivenBack,
    /// It has so many entries that not all of its root can be examined.
    TooLarge,
    /// It is a repository over the bound on those that are looked at after each call.
    NotWatched,
    /// Its content is committed, but a command made git track it, according to this record.
    Tracked(PathBuf),
}

/// Maximum number of paths that [`describe`] names.
const NAMED_MAX: usize = 20;

/// Lists for people what is closed although its name does not show it, with the reasons. Beyond
/// some twenty, the last line has the number of the rest. Returns also how many of the first are over a bound.
pub fn describe(also_closed: &[AlsoClosed]) -> (Vec<String>, usize) {
    // What is over a bound first: nothing else that a command can make hides it.
    let mut sorted: Vec<&AlsoClosed> = also_closed.iter().collect();
    sorted.sort_by_key(|closed| !closed.is_over_bound());
    let mut over_bounds = sorted
        .iter()
        .filter(|closed| closed.is_over_bound())
        .count();
    let mut named: Vec<String> = sorted
        .into_iter()
        .take(NAMED_MAX)
        .map(AlsoClosed::describe)
        .collect();
    match also_closed.len().saturating_sub(NAMED_MAX) {
        0 => {}
        more => named.push(format!("and {more} more")),
    }
    // With more than are named, the line about the rest is about these too.
    over_bounds = over_bounds.min(named.len());
    (named, over_bounds)
}

impl AlsoClosed {
    fn is_over_bound(&self) -> bool {
        match self.why {
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

    fn describe(&self) -> String {
        let path = &self.path;
        match &self.why {
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
                format!("{path:?} (with {first:?} there are more than {PINS_MAX} protected names)")
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
}
