//! Searches both zones, when a session opens, for what is protected: by name, by what a name leads to, by its structure.

mod budget;
mod destinations;
mod judged;
mod repositories;
mod room;
mod settings;
#[cfg(test)]
mod tests;

use crate::git_settings::NamedPath;
use crate::protected::{Discovery, ENTRIES_MAX, ProtectError};
use crate::repository_programs::is_program;
use budget::{EntryBudget, Room};
use executor_spec::also_closed::{AlsoClosed, WhyClosed};
use executor_spec::known_directories::KnownDirectories;
use executor_spec::linked_repository::LinkedRepository;
use executor_spec::pins::{Overflow, PINS_MAX, PinMode, Pins, ROOT_PINS_MAX};
use executor_spec::protected_objects::{Alias, ObjectId, ProtectedObject, ProtectedObjects};
use executor_spec::undo_directory;
use executor_sys::stale_temporaries;
use nix::unistd::{AccessFlags, access, geteuid};
use policies_guard::search::{ByShape, SearchedDirectory, is_rerere_list, is_work_tree};
use policies_guard::{AtRest, Matcher, Protection};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirEntry, FileType, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Finds what is protected below `zones`, which are absolute and without links, and in a repository outside them; and what is protected
/// through links and other names of files in the directory `around` the project. At most `mounts_max` mounts may pin it.
///
/// # Errors
/// More entries or names than the limits, a root that cannot be listed, a link that closes
/// a root, a directory around the project that its owner cannot list.
pub fn discover(
    zones: [&Path; 2],
    linked: Option<&LinkedRepository>,
    around: Option<&Path>,
    names: &Matcher,
    mounts_max: usize,
) -> Result<Discovery, ProtectError> {
    discover_with(zones, linked, around, names, mounts_max, |_| {
        Ok(BTreeSet::new())
    })
}

/// Discovers what [`discover`] does, with what `settings` names, which is called once all else is found.
///
/// # Errors
/// Those of [`discover`] and of `settings`.
pub fn discover_with(
    zones: [&Path; 2],
    linked: Option<&LinkedRepository>,
    around: Option<&Path>,
    names: &Matcher,
    mounts_max: usize,
    settings: impl FnOnce(&ProtectedObjects) -> Result<BTreeSet<NamedPath>, ProtectError>,
) -> Result<Discovery, ProtectError> {
    // A zone inside the other is searched with it.
    let inside = |zone: &Path| {
        zones
            .iter()
            .any(|other| zone.starts_with(other) && zone != *other)
    };
    let outer = zones.into_iter().filter(|zone| !inside(zone)).collect();
    let mut search = ZoneSearch::new(outer, zones, around, names);
    let roots: Vec<_> = search
        .zones
        .iter()
        .copied()
        .chain(around)
        .map(PendingDirectory::root)
        .collect();
    let linked = linked.map(|linked| search.linked_repository(linked));
    for root in roots.into_iter().chain(linked) {
        search.left.push(root);
        search.all_left()?;
    }
    search.choose_repositories();
    for named in settings(&search.objects)? {
        search.close_named(&named)?;
    }
    search.finish(mounts_max)
}

/// Finds what is protected below the directory `root`, which is leased and has at most
/// `entries_max` entries: by whole paths, so that it does not matter where the lease begins.
/// Includes what `settings` names, as in a zone; and central roots of projects, each as a whole.
///
/// # Errors
/// Those of [`discover`] and of `settings`.
pub fn discover_leased(
    root: &Path,
    names: &Matcher,
    (mounts_max, entries_max): (usize, usize),
    settings: impl FnOnce(&ProtectedObjects) -> Result<BTreeSet<NamedPath>, ProtectError>,
) -> Result<Discovery, ProtectError> {
    let mut search = ZoneSearch {
        leased: Some(entries_max),
        ..ZoneSearch::new(vec![root], [root, root], None, names)
    };
    let whole = root.strip_prefix("/").unwrap_or(root);
    search.add_alias(root, whole);
    search.left.push(PendingDirectory {
        counts_as: vec![whole.to_owned()],
        ..PendingDirectory::root(root)
    });
    search.all_left()?;
    search.choose_repositories();
    for named in settings(&search.objects)? {
        search.close_named(&named)?;
    }
    search.finish(mounts_max)
}

/// Longest name in a directory (`linux/limits.h`), in bytes.
const NAME_MAX: usize = 255;

/// Entries of a directory that are counted together.
const AT_ONCE: usize = 1024;

/// A directory to be searched.
#[derive(Clone, Debug)]
struct PendingDirectory<'a> {
    zone: &'a Path,
    path: PathBuf,
    /// Protection by a name above it, or by a link to it.
    inherited: Option<Protection>,
    /// Its equivalent paths, besides its own.
    counts_as: Vec<PathBuf>,
    /// The repository's directory that it is, or lies in.
    repository: Option<PathBuf>,
}

impl<'a> PendingDirectory<'a> {
    fn root(zone: &'a Path) -> Self {
        Self {
            zone,
            path: zone.to_owned(),
            inherited: None,
            counts_as: Vec::new(),
            repository: None,
        }
    }

    fn relative(&self) -> &Path {
        self.path.strip_prefix(self.zone).unwrap_or(Path::new(""))
    }

    /// For the judge's questions about its entries.
    fn searched<'d>(&'d self, names: &'d Matcher) -> SearchedDirectory<'d> {
        SearchedDirectory {
            names,
            path: &self.path,
            relative: self.relative(),
            others: &self.counts_as,
        }
    }
}

/// An entry of a directory that is searched.
struct SearchedEntry {
    name: OsString,
    kind: FileType,
    entry: DirEntry,
}

/// A protected file that has several names.
struct LinkedFile {
    path: PathBuf,
    protection: Protection,
    names: u64,
    found: HashSet<PathBuf>,
}

/// The files that were seen, in as little memory as there may be: a protected one may have another name among them.
#[derive(Debug, Default)]
struct ListedFiles<'a> {
    directories: Vec<PathBuf>,
    /// The inode of each file, and the place of its directory.
    files: Vec<(u64, u32)>,
    /// Directories whose names mean nothing.
    skipped: Vec<PendingDirectory<'a>>,
}

impl ListedFiles<'_> {
    fn add(&mut self, directory: &Path, entries: &[SearchedEntry]) {
        let Ok(at) = u32::try_from(self.directories.len()) else {
            return;
        };
        self.directories.push(directory.to_owned());
        let files = entries.iter().filter(|entry| entry.kind.is_file());
        self.files
            .extend(files.map(|entry| (entry.entry.ino(), at)));
    }
}

struct ZoneSearch<'a> {
    zones: Vec<&'a Path>,
    /// The session's roots, or the leased directory.
    project: &'a Path,
    central: &'a Path,
    /// A directory that contains a zone. Of what is found there, only what is in a zone counts.
    around: Option<&'a Path>,
    /// Maximum number of entries, if this is the search of a lease and not of a zone.
    leased: Option<usize>,
    /// Otherwise, of each root.
    entries_max: usize,
    names: &'a Matcher,
    left: Vec<PendingDirectory<'a>>,
    /// Targets of links that were visited, so that none is followed for ever.
    reached: BTreeSet<(PathBuf, Option<Protection>, Vec<PathBuf>)>,
    linked: HashMap<ObjectId, LinkedFile>,
    budget: EntryBudget,
    listed: ListedFiles<'a>,
    objects: ProtectedObjects,
    pins: Pins,
    temporaries: Vec<(PathBuf, PathBuf)>,
    also_closed: Vec<AlsoClosed>,
    /// See [`Discovery::led_to`].
    led_to: BTreeSet<PathBuf>,
    named: Vec<PathBuf>,
    directories: KnownDirectories,
}

impl<'a> ZoneSearch<'a> {
    fn new(
        zones: Vec<&'a Path>,
        [project, central]: [&'a Path; 2],
        around: Option<&'a Path>,
        names: &'a Matcher,
    ) -> Self {
        Self {
            zones,
            project,
            central,
            around,
            leased: None,
            entries_max: ENTRIES_MAX,
            names,
            left: Vec::new(),
            reached: BTreeSet::new(),
            linked: HashMap::new(),
            budget: EntryBudget::default(),
            listed: ListedFiles::default(),
            objects: ProtectedObjects::default(),
            pins: Pins::default(),
            temporaries: Vec::new(),
            also_closed: Vec::new(),
            led_to: BTreeSet::new(),
            named: Vec::new(),
            directories: KnownDirectories::default(),
        }
    }

    fn finish(mut self, max: usize) -> Result<Discovery, ProtectError> {
        self.all_left()?;
        self.other_names()?;
        self.leave_out_around();
        let (central, is_lease) = (self.central, self.leased.is_some());
        let ZoneSearch {
            zones,
            objects,
            pins,
            temporaries,
            mut also_closed,
            led_to,
            named,
            mut directories,
            ..
        } = self;
        directories.sort();
        let root_max = match max {
            PINS_MAX => ROOT_PINS_MAX,
            max => max,
        };
        let finished = pins.finish(&zones, central, (max, root_max));
        let (pins, closed) =
            finished.map_err(|Overflow { path }| match path.parent() == Some(central) {
                true if !is_lease => ProtectError::CentralTooLarge {
                    central: central.to_owned(),
                },
                _ => ProtectError::TooMany {
                    max: root_max,
                    path,
                },
            })?;
        let over_bound = |(path, first)| AlsoClosed {
            path,
            why: WhyClosed::OverBound(first),
        };
        also_closed.extend(closed.into_iter().map(over_bound));
        Ok(Discovery {
            objects,
            pins,
            temporaries,
            also_closed,
            led_to,
            named,
            directories,
        })
    }

    fn all_left(&mut self) -> Result<(), ProtectError> {
        while let Some(directory) = self.left.pop() {
            self.directory(&directory)?;
        }
        Ok(())
    }

    fn zone_of(&self, path: &Path) -> Option<&'a Path> {
        self.zones
            .iter()
            .copied()
            .chain(self.around)
            .find(|zone| path.starts_with(zone))
    }

    fn is_around(&self, directory: &PendingDirectory) -> bool {
        self.around == Some(directory.zone)
    }

    /// Drops what is in no zone.
    fn leave_out_around(&mut self) {
        let zones = &self.zones;
        let inside = |path: &Path| zones.iter().any(|zone| path.starts_with(zone));
        self.objects.places.retain(|path, _| inside(path));
        self.objects
            .aliases
            .retain(|alias| inside(&alias.directory));
        self.objects.repositories.retain(|path| inside(path));
        self.objects.ways.retain(|path| inside(path));
        self.pins.retain(inside);
        self.temporaries
            .retain(|(zone, _)| Some(zone.as_path()) != self.around);
        self.also_closed.retain(|closed| inside(&closed.path));
        self.named.retain(|path| inside(path));
    }

    /// The entries of a directory. Some may no longer exist: a concurrent session may be working there.
    fn entries(
        &mut self,
        directory: &PendingDirectory<'a>,
    ) -> Result<Option<Vec<SearchedEntry>>, ProtectError> {
        let mut entries = Vec::new();
        let (mut room, mut seen) = (self.make_room(directory, 0), 0);
        if room == Room::Closed {
            return Ok(None);
        }
        let listed = access(&directory.path, AccessFlags::X_OK).map_err(io::Error::from);
        let listed = listed.and_then(|()| fs::read_dir(&directory.path));
        let result = listed.and_then(|listed| {
            for entry in listed {
                let entry = entry?;
                seen += 1;
                if seen % AT_ONCE == 0 {
                    room = self.make_room(directory, AT_ONCE);
                    if room != Room::Left {
                        return Ok(());
                    }
                }
                if let Ok(kind) = entry.file_type() {
                    entries.push(SearchedEntry {
                        name: entry.file_name(),
                        kind,
                        entry,
                    });
                }
            }
            room = self.make_room(directory, seen % AT_ONCE);
            Ok(())
        });
        match result {
            _ if room == Room::None => Err(self.too_large(directory)),
            _ if room == Room::Closed => Ok(None),
            Ok(()) => Ok(Some(entries)),
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && directory.path != directory.zone =>
            {
                Ok(None)
            }
            // A command may have closed it, and then what it contains would be unknown. It cannot have closed another user's.
            Err(source) if self.is_around(directory) => match fs::symlink_metadata(&directory.path)
            {
                Ok(metadata) if metadata.uid() != geteuid().as_raw() => Ok(None),
                Ok(_) | Err(_) => Err(ProtectError::Unlisted {
                    zone: directory.path.clone(),
                    source,
                }),
            },
            Err(source) if directory.path == directory.zone => Err(ProtectError::Unlisted {
                zone: directory.zone.to_owned(),
                source,
            }),
            Err(_) => {
                self.close_unlisted(&directory.path);
                Ok(None)
            }
        }
    }

    fn close_unlisted(&mut self, path: &Path) {
        self.objects.places.insert(path.to_owned(), Protection::All);
        self.pins
            .add(path.to_owned(), PinMode::Hidden { directory: true });
        self.also_closed.push(AlsoClosed {
            path: path.to_owned(),
            why: WhyClosed::Unlisted,
        });
    }

    fn directory(&mut self, directory: &PendingDirectory<'a>) -> Result<(), ProtectError> {
        // Entries may have paths too long for the kernel, and so for a mount.
        if directory.path.as_os_str().len() + 1 + NAME_MAX >= libc::PATH_MAX as usize {
            self.close_unlisted(&directory.path);
            return Ok(());
        }
        let Some(entries) = self.entries(directory)? else {
            return Ok(());
        };
        if !self.is_around(directory) {
            match entries.is_empty() {
                true => self.directories.add_empty(&directory.path),
                false => self.directories.add(&directory.path),
            }
        }
        let mut directory = directory.clone();
        let is_central =
            |entry: &SearchedEntry| entry.name == undo_directory::NAME && entry.kind.is_dir();
        if self.leased.is_some() && entries.iter().any(is_central) {
            self.objects
                .places
                .insert(directory.path.clone(), Protection::All);
            self.pins
                .add(directory.path.clone(), PinMode::Hidden { directory: true });
            directory.inherited = Some(Protection::All);
        }
        let names = || entries.iter().map(|entry| entry.name.as_bytes());
        // A work tree within a repository's directory is none of its parts.
        if is_work_tree(names()) {
            directory.repository = None;
        }
        if let Some(ByShape { counts_as }) = directory.searched(self.names).repository(names()) {
            self.objects.repositories.insert(directory.path.clone());
            directory.repository = Some(directory.path.clone());
            self.hold_way(&directory.path);
            if let Some(counts_as) = counts_as {
                self.add_alias(&directory.path, Path::new(counts_as));
                directory.counts_as.push(counts_as.into());
            }
        }
        self.listed.add(&directory.path, &entries);
        for entry in &entries {
            self.entry(&directory, entry)?;
        }
        Ok(())
    }

    fn add_alias(&mut self, directory: &Path, counts_as: &Path) {
        let alias = Alias {
            directory: directory.to_owned(),
            counts_as: counts_as.to_owned(),
        };
        self.objects.aliases.insert(alias);
        self.hold_way(directory);
    }

    fn entry(
        &mut self,
        directory: &PendingDirectory<'a>,
        entry: &SearchedEntry,
    ) -> Result<(), ProtectError> {
        let SearchedEntry { name, kind, .. } = entry;
        let own = self.protection(AtRest::Entry {
            directory: directory.searched(self.names),
            name,
        });
        let protection = own.max(directory.inherited);
        // What a name above protects as strictly is pinned with it.
        let pinned = own.filter(|_| own > directory.inherited);
        if own.is_some() && directory.inherited.is_none() && !kind.is_symlink() {
            self.named.push(entry.entry.path());
        }
        if kind.is_dir() {
            self.sub_directory(directory, name, protection, pinned);
            return Ok(());
        }
        if kind.is_symlink() {
            return self.link(directory, entry, protection, pinned);
        }
        // Git's `rerere` would read and write what `MERGE_RR` names, once a link lies there. If a mount pinned it, every commit would fail.
        let rerere = pinned.is_some() && kind.is_file() && is_rerere_list(name);
        if rerere || kind.is_file() && stale_temporaries::has_such_a_name(name) {
            self.temporaries
                .push((directory.zone.to_owned(), directory.relative().join(name)));
        }
        if rerere {
            return Ok(());
        }
        if let Some(protection) = protection {
            self.file(&entry.entry.path(), entry.entry.metadata(), protection);
        }
        if let Some(protection) = pinned {
            self.pins.add(entry.entry.path(), file_mode(protection));
        }
        if kind.is_file() && protection.is_none() {
            self.program(directory, entry);
        }
        if kind.is_file() {
            self.redirection(directory, name)
        } else {
            Ok(())
        }
    }

    /// Closes a program for writing that lies in a repository's directory.
    fn program(&mut self, directory: &PendingDirectory, entry: &SearchedEntry) {
        let path = entry.entry.path();
        let relative = directory
            .repository
            .as_ref()
            .and_then(|repository| path.strip_prefix(repository).ok());
        let program = |in_repository| self.protection(AtRest::Program { in_repository });
        let Some(protection) = relative.and_then(program) else {
            return;
        };
        let Ok(metadata) = entry.entry.metadata() else {
            return;
        };
        if is_program(&metadata) {
            self.objects.places.insert(path.clone(), protection);
            self.pins.add(path.clone(), file_mode(protection));
            self.file(&path, Ok(metadata), protection);
            self.also_closed.push(AlsoClosed {
                path,
                why: WhyClosed::Program,
            });
        }
    }

    fn sub_directory(
        &mut self,
        parent: &PendingDirectory<'a>,
        name: &OsStr,
        inherited: Option<Protection>,
        pinned: Option<Protection>,
    ) {
        let path = parent.path.join(name);
        // A zone is searched by itself: what closes a directory above it does not matter there.
        if self.is_around(parent) && self.zones.contains(&path.as_path()) {
            return;
        }
        if let Some(protection) = pinned {
            self.pins.add(path.clone(), directory_mode(protection));
        }
        // Nobody reaches what was taken away, and there may be much of it.
        if parent.path.ends_with(undo_directory::NAME) && name == undo_directory::QUARANTINE {
            self.objects.places.insert(path.clone(), Protection::All);
            self.pins.add(path, PinMode::Hidden { directory: true });
            return;
        }
        // Names in it are digests and numbers: there is nothing to find, and there are many.
        if parent.searched(self.names).is_nameless(name)
            || (parent.path.ends_with(undo_directory::NAME) && name == "undo")
        {
            self.listed.skipped.push(PendingDirectory {
                path,
                ..PendingDirectory::root(parent.zone)
            });
            return;
        }
        let counts_as = parent
            .counts_as
            .iter()
            .map(|path| path.join(name))
            .collect();
        let repository = parent.repository.clone();
        self.left.push(PendingDirectory {
            zone: parent.zone,
            path,
            inherited,
            counts_as,
            repository,
        });
    }

    /// Records a protected file or link.
    fn file(&mut self, path: &Path, metadata: io::Result<Metadata>, protection: Protection) {
        let Ok(metadata) = metadata else { return };
        let id = (metadata.dev(), metadata.ino());
        let object = ProtectedObject {
            protection,
            born: metadata.created().ok(),
        };
        let known = self.objects.files.entry(id).or_insert(object);
        known.protection = known.protection.max(protection);
        if metadata.is_file() && metadata.nlink() > 1 {
            let linked = || LinkedFile {
                path: path.to_owned(),
                protection,
                names: metadata.nlink(),
                found: HashSet::new(),
            };
            let linked = self.linked.entry(id).or_insert_with(linked);
            linked.protection = linked.protection.max(protection);
            linked.found.insert(path.to_owned());
        }
    }

    /// Finds the other names of protected files, if there are any.
    fn other_names(&mut self) -> Result<(), ProtectError> {
        self.linked
            .retain(|_, linked| linked.names > linked.found.len() as u64);
        if self.linked.is_empty() {
            return Ok(());
        }
        let inodes: HashSet<u64> = self.linked.keys().map(|(_, inode)| *inode).collect();
        let listed = std::mem::take(&mut self.listed);
        let holds = listed
            .files
            .iter()
            .filter(|(inode, _)| inodes.contains(inode))
            .map(|(_, at)| *at);
        let holds: BTreeSet<u32> = holds.collect();
        let directories = holds
            .iter()
            .filter_map(|at| listed.directories.get(*at as usize));
        for path in directories {
            self.other_names_in(path, &inodes, &mut Vec::new());
        }
        // What was not searched may have one too.
        self.budget = EntryBudget::default();
        let mut left: Vec<PendingDirectory<'a>> = listed.skipped;
        while let Some(directory) = left.pop() {
            // Counts what is there.
            if self.entries(&directory)?.is_some() {
                let mut below = Vec::new();
                self.other_names_in(&directory.path, &inodes, &mut below);
                left.extend(below.into_iter().map(|path| PendingDirectory {
                    path,
                    ..PendingDirectory::root(directory.zone)
                }));
            }
        }
        Ok(())
    }

    /// Finds them in one directory, and the directories in it.
    fn other_names_in(&mut self, path: &Path, inodes: &HashSet<u64>, below: &mut Vec<PathBuf>) {
        if self.objects.protection_of_place(path) == Some(Protection::All) {
            return;
        }
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => below.push(entry.path()),
                Ok(kind) if kind.is_file() && inodes.contains(&entry.ino()) => {
                    self.other_name(&entry)
                }
                Ok(_) | Err(_) => {}
            }
        }
    }

    fn other_name(&mut self, entry: &DirEntry) {
        let (path, Ok(metadata)) = (entry.path(), entry.metadata()) else {
            return;
        };
        let Some(linked) = self.linked.get(&(metadata.dev(), metadata.ino())) else {
            return;
        };
        if linked.found.contains(&path) {
            return;
        }
        let why = WhyClosed::OtherNameOf(linked.path.clone());
        self.objects.places.insert(path.clone(), linked.protection);
        self.pins.add(path.clone(), file_mode(linked.protection));
        self.also_closed.push(AlsoClosed { path, why });
    }
}

/// The mode of a pin of what has this metadata.
fn mode(protection: Protection, metadata: &Metadata) -> PinMode {
    match metadata.is_dir() {
        true => directory_mode(protection),
        false => file_mode(protection),
    }
}

fn file_mode(protection: Protection) -> PinMode {
    match protection {
        Protection::Write => PinMode::ReadOnly,
        Protection::All => PinMode::Hidden { directory: false },
    }
}

fn directory_mode(protection: Protection) -> PinMode {
    match protection {
        Protection::Write => PinMode::ReadOnly,
        Protection::All => PinMode::Hidden { directory: true },
    }
}
