//! Layer `protected-names`: names inside the zones that stay closed although the zone is open.
//!
//! *Guarantees*: in the namespaced tier, a protected name that exists when the session opens cannot be written,
//! replaced, renamed or removed (nor read, where the policy says so), under any other name of the same file in the
//! zone, and its parents cannot be moved away: each is a mount of its own. In both tiers the cell's first process makes
//! the calls that make or move a name or open a file to change it (`warden/supervisor`), and refuses protected names
//! whether they exist or not, but for those that are open when new and made by the session itself; in the flat tier all
//! calls that take paths. *Does not*: keep the shell of the namespaced tier from reading or removing what the host makes
//! while the session is open, or cover what a link with a protected name points to; file tools check names in both tiers.
//! *Needs*: Linux 5.14, no other supervisor above, no `ptrace_scope` above 1, and the mount namespace for the pins. *Order*:
//! with the mounts; in the program's process before its order. *Fails*: the session does not open, or the cell does not
//! start. *Tested by*: `the_shell_neither_reads_nor_changes_them`, `nothing_is_planted_in_protected_names`,
//! `what_the_host_makes_during_a_call_is_not_changed`, `no_name_is_made_that_the_host_acts_on`,
//! `the_users_git_runs_nothing_that_a_cell_has_left`, `what_a_command_may_make_it_may_use`,
//! `without_supervision_nothing_runs`, `protected_files_are_not_read_by_any_name`, corpus `SEC-*`.

use crate::work::litter;
use crate::work::undo::store::DIRECTORY;
use policies::{Matcher, Protection};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Most directory entries that are looked at when a session opens.
pub const ENTRIES_MAX: usize = 1_000_000;
/// Most mounts that protected names may cost a session.
pub const PINS_MAX: usize = 4096;

/// One mount that holds a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Absolute path.
    pub path: PathBuf,
    /// What the mount does.
    pub closing: Closing,
}

/// What a pin does to its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Closing {
    /// Keeps a parent directory where it is.
    Hold,
    /// Keeps the name and lets it be read.
    ReadOnly,
    /// Keeps the name and shows nothing.
    Closed {
        /// Whether it is a directory.
        directory: bool,
    },
}

/// Protected names cannot be pinned.
#[derive(Debug, Error)]
pub enum ProtectError {
    /// A zone is too large to look through.
    #[error(
        "{zone} has more than {ENTRIES_MAX} entries, so protected names in it cannot be found; \
         choose a smaller project root"
    )]
    TooLarge {
        /// Its path.
        zone: PathBuf,
    },
    /// There are too many.
    #[error("{0} protected names were found, at most {PINS_MAX} can be held; choose a smaller project root")]
    TooMany(usize),
}

/// What a look through a zone found.
#[derive(Debug)]
pub struct Found {
    /// The mounts that hold the protected names that exist, parents first.
    pub pins: Vec<Pin>,
    /// Files that may be left of a write that was cut short, below the zone's root.
    pub litter: Vec<PathBuf>,
}

/// Finds the protected names that exist below `zone`.
///
/// A directory that cannot be read is passed over: a cell cannot read it either.
///
/// # Errors
/// More entries or names than the bounds.
pub fn find(zone: &Path, names: &Matcher) -> Result<Found, ProtectError> {
    let (pins, linked) = (BTreeMap::new(), BTreeMap::new());
    let mut search = Search { zone, names, pins, linked, litter: Vec::new(), seen: 0 };
    search.walk(&mut |search, entry| search.look(entry))?;
    if !search.linked.is_empty() {
        search.seen = 0;
        search.walk(&mut |search, entry| search.look_linked(entry))?;
    }
    let pins = with_parents(zone, search.pins);
    if pins.len() > PINS_MAX {
        return Err(ProtectError::TooMany(pins.len()));
    }
    Ok(Found { pins, litter: search.litter })
}

struct Search<'a> {
    zone: &'a Path,
    names: &'a Matcher,
    pins: BTreeMap<PathBuf, Closing>,
    /// Inodes of protected files that have other names too.
    linked: BTreeMap<u64, Closing>,
    litter: Vec<PathBuf>,
    seen: usize,
}

type Look<'l, 'a> = &'l mut dyn FnMut(&mut Search<'a>, &DirEntry) -> bool;

impl<'a> Search<'a> {
    /// Visits every entry; `look` says whether to go down into it.
    fn walk(&mut self, look: Look<'_, 'a>) -> Result<(), ProtectError> {
        let mut left = vec![self.zone.to_owned()];
        while let Some(directory) = left.pop() {
            let Ok(entries) = fs::read_dir(&directory) else { continue };
            for entry in entries.flatten() {
                self.seen += 1;
                if self.seen > ENTRIES_MAX {
                    return Err(ProtectError::TooLarge { zone: self.zone.to_owned() });
                }
                if look(self, &entry) && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    left.push(entry.path());
                }
            }
        }
        Ok(())
    }

    fn look(&mut self, entry: &DirEntry) -> bool {
        let path = entry.path();
        let parent =
            path.parent().and_then(|parent| parent.strip_prefix(self.zone).ok()).unwrap_or(Path::new(""));
        // Names in them are digests and numbers: there is nothing to find, and there are many.
        let git = entry.file_name() == "objects" && parent.ends_with(".git");
        if git || (entry.file_name() == "undo" && parent == Path::new(DIRECTORY)) {
            return false;
        }
        if litter::is_named_like(&entry.file_name()) {
            self.litter.push(parent.join(entry.file_name()));
        }
        let found = self.names.name(parent.as_os_str().as_bytes(), entry.file_name().as_bytes());
        let Some(name) = found else { return true };
        match closing(entry, name.protection) {
            Ok(Some(closing)) => self.pin(entry, path, closing),
            Ok(None) | Err(_) => false,
        }
    }

    /// Returns whether names below a pinned one may still need a pin: below a directory that may be read.
    fn pin(&mut self, entry: &DirEntry, path: PathBuf, closing: Closing) -> bool {
        if entry.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.nlink() > 1) {
            self.linked.insert(entry.ino(), closing);
        }
        self.pins.insert(path, closing);
        closing == Closing::ReadOnly
    }

    fn look_linked(&mut self, entry: &DirEntry) -> bool {
        if let Some(closing) = self.linked.get(&entry.ino())
            && entry.file_type().is_ok_and(|kind| kind.is_file())
        {
            self.pins.entry(entry.path()).or_insert(*closing);
        }
        true
    }
}

/// How an entry is closed; `None` for a link, which no mount can lie over.
fn closing(entry: &DirEntry, protection: Protection) -> io::Result<Option<Closing>> {
    let kind = entry.file_type()?;
    if kind.is_symlink() {
        return Ok(None);
    }
    Ok(Some(match protection {
        Protection::Write => Closing::ReadOnly,
        Protection::All => Closing::Closed { directory: kind.is_dir() },
    }))
}

/// Adds every directory between the zone's root and a pin, so that none of them can be moved away.
fn with_parents(zone: &Path, pins: BTreeMap<PathBuf, Closing>) -> Vec<Pin> {
    let parents: BTreeSet<PathBuf> = pins
        .keys()
        .flat_map(|path| path.ancestors().skip(1).take_while(|parent| *parent != zone))
        .map(Path::to_owned)
        .collect();
    let mut all = pins;
    for parent in parents {
        all.entry(parent).or_insert(Closing::Hold);
    }
    // A sorted map has parents before children, as mounting wants it.
    all.into_iter().map(|(path, closing)| Pin { path, closing }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use policies::ProtectedName;

    fn pins(names: &[(&str, Protection)], make: impl Fn(&Path)) -> Vec<(String, Closing)> {
        let zone = tempfile::tempdir().unwrap();
        make(zone.path());
        let protect = |(name, protection): &(&str, Protection)| ProtectedName {
            pattern: (*name).into(),
            protection: *protection,
            new: Default::default(),
            except: vec![],
            why: String::new(),
            origin: Default::default(),
        };
        let names: Vec<ProtectedName> = names.iter().map(protect).collect();
        let found = find(zone.path(), &Matcher::new(&names).unwrap()).unwrap().pins;
        let short = |path: &Path| path.strip_prefix(zone.path()).unwrap().display().to_string();
        found.iter().map(|pin| (short(&pin.path), pin.closing)).collect()
    }

    #[test]
    fn a_protected_file_is_closed_and_its_parents_are_held() {
        let got = pins(&[(".env", Protection::All)], |zone| {
            fs::create_dir_all(zone.join("a/b")).unwrap();
            fs::write(zone.join("a/b/.env"), "x").unwrap();
            fs::write(zone.join("a/other"), "x").unwrap();
        });
        let closed = Closing::Closed { directory: false };
        assert_eq!(
            got,
            [("a".into(), Closing::Hold), ("a/b".into(), Closing::Hold), ("a/b/.env".into(), closed)]
        );
    }

    #[test]
    fn other_names_of_a_protected_file_are_closed_too() {
        let got = pins(&[(".env", Protection::All)], |zone| {
            fs::write(zone.join("zz"), "x").unwrap();
            fs::hard_link(zone.join("zz"), zone.join(".env")).unwrap();
        });
        let closed = Closing::Closed { directory: false };
        assert_eq!(got, [(".env".into(), closed), ("zz".into(), closed)]);
    }

    #[test]
    fn links_are_not_pinned_and_not_followed() {
        let got = pins(&[(".env", Protection::All)], |zone| {
            std::os::unix::fs::symlink("/etc/passwd", zone.join(".env")).unwrap();
            std::os::unix::fs::symlink(".", zone.join("loop")).unwrap();
        });
        assert_eq!(got, []);
    }
}
