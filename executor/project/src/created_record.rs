//! Files that cells of a project have created under protected names that are open when new: recorded in
//! `.lazaret/created` of the central root, so that a later session continues where an earlier one stopped.
//!
//! A file is recorded with its path, its identity (device, inode, birth time) and the digest of its content, a directory with
//! those of everything in it, the parts of a worktree (`made_worktrees.rs`) with what they have to say. What somebody else has changed or replaced since does not match: it is closed again, and dropped
//! from the record. No cell writes the record, as `.lazaret` is a protected name; an unreadable record counts as empty.

use crate::discovery;
use crate::made_worktrees::worktrees_of;
use crate::protected::Discovery;
use crate::record_file::{self, read_short};
use broker_protocol::{Digest, frame};
use executor_spec::created::CreatedFiles;
use executor_spec::protected_objects::ObjectId;
use executor_spec::sandbox::Rooted;
use policies_guard::{Matcher, WhenNew};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const NAME: &str = "created";
/// Maximum number of files and directories in the record.
const ENTRIES_MAX: usize = 1024;
/// Maximum size of a recorded file, and maximum number of files in a recorded directory.
const FILE_MAX: u64 = 1 << 20;
const FILES_MAX: usize = 256;

/// After a search that took longer than this, the next one is done only when the session ends.
const SLOW: Duration = Duration::from_millis(100);

/// One recorded file or directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CreatedEntry {
    /// Its path below the project root.
    path: Vec<u8>,
    /// Device, inode and birth time, as in [`CreatedFiles`].
    identity: Vec<u8>,
    digest: Digest,
}

/// The record, and what the session's cells have created.
#[derive(Debug)]
pub struct CreatedRecord {
    created: CreatedFiles,
    /// How many of these no cell has created: they have their committed content.
    committed: usize,
    /// How many there were at the last check.
    seen: usize,
    /// The entries recorded at that time, with the state of the files.
    known: BTreeMap<PathBuf, (CreatedEntry, [i64; 7])>,
    /// The record's directory, if anything can be recorded.
    directory: Option<OwnedFd>,
    /// Whether the last search for what cells have created took long.
    is_slow: bool,
    /// When the last call ended after which nothing was recorded, because a search takes long.
    unrecorded: Option<SystemTime>,
}

impl CreatedRecord {
    /// Adds to `created`, which holds the committed files, what is recorded and unchanged, and
    /// removes that from `found`. Returns the shared memory for the session's cells too.
    ///
    /// # Errors
    /// There is no descriptor for the shared memory.
    pub fn open(
        spec: &Rooted,
        found: &mut Discovery,
        created: CreatedFiles,
    ) -> io::Result<(OwnedFd, Self)> {
        let committed = created.count();
        let directory = record_file::directory(spec);
        let (mut known, mut released) = (BTreeMap::new(), BTreeMap::new());
        let entries: Vec<CreatedEntry> = directory.iter().flat_map(read).collect();
        open_worktrees(spec, found, &created, &entries, &mut released);
        let named: BTreeSet<&Path> = found.named.iter().map(PathBuf::as_path).collect();
        for entry in entries {
            let path = spec.project.join(OsStr::from_bytes(&entry.path));
            let still = |path: &PathBuf| {
                named.contains(path.as_path())
                    && CreatedEntry::of(path, &spec.project, &spec.policy.matcher, None).as_ref()
                        == Some(&entry)
            };
            if let Some((file, metadata)) = Some(&path)
                .filter(|path| still(path))
                .and_then(|path| inspect(path).ok())
                && created.add(file).is_ok()
            {
                release(&path, &mut released);
                known.insert(path, (entry, state(&metadata)));
            }
        }
        found.release(&released);
        let memory = created.memory()?;
        let seen = created.count();
        Ok((
            memory,
            Self {
                created,
                committed,
                seen,
                known,
                directory,
                is_slow: false,
                unrecorded: None,
            },
        ))
    }

    /// Records what cells have created so far, if it differs from the record: before the client hears that a call has ended, as a change
    /// that is made after that may be anybody's. A failure to write is ignored. Where a search takes long, other calls would wait for
    /// it: then it is left to [`finish`](Self::finish).
    pub fn update(&mut self, spec: &Rooted) {
        if self.is_slow {
            self.unrecorded = Some(SystemTime::now());
            return;
        }
        self.record(spec, None);
    }

    /// Records at the session's end what could not be recorded when calls ended; not what has changed after the last of them.
    pub fn finish(&mut self, spec: &Rooted) {
        if let Some(until) = self.unrecorded.take() {
            self.record(spec, Some(until));
        }
    }

    /// Records what cells have created and nobody has changed since `until`.
    fn record(&mut self, spec: &Rooted, until: Option<SystemTime>) {
        let count = self.created.count();
        let Some(directory) = self.directory.as_ref().filter(|_| count > self.committed) else {
            return;
        };
        let matcher = &spec.policy.matcher;
        let as_known = |(path, (entry, known)): (&PathBuf, &(CreatedEntry, [i64; 7]))| {
            let now = inspect(path)
                .ok()
                .filter(|(_, metadata)| metadata.is_file());
            now.map_or_else(
                || CreatedEntry::of(path, &spec.project, matcher, None).as_ref() == Some(entry),
                |(_, metadata)| state(&metadata) == *known,
            )
        };
        if count == self.seen && self.known.iter().all(as_known) {
            return;
        }
        self.seen = count;
        let zones = [spec.project.as_path(), spec.central.as_path()];
        let begun = Instant::now();
        let Ok(found) = discovery::discover(zones, spec.linked.as_ref(), None, matcher, usize::MAX)
        else {
            return;
        };
        self.is_slow = begun.elapsed() > SLOW;
        let made: BTreeSet<Vec<u8>> = self.created.identities().skip(self.committed).collect();
        let named = found.named.iter();
        let named = named.filter(|path| path.starts_with(&spec.project));
        let mut entries = named_entries(&mut self.known, named, spec, (&made, until));
        add_worktrees(&mut entries, &spec.project, &made);
        // Entries of a concurrent session.
        let others = read(directory)
            .into_iter()
            .filter(|entry| !made.contains(&entry.identity));
        for entry in others {
            entries.entry(entry.path.clone()).or_insert(entry);
        }
        let entries: Vec<CreatedEntry> = entries.into_values().take(ENTRIES_MAX).collect();
        let _ = write(directory, &entries);
    }
}

/// The entries of those of the paths that cells have `made`, by their paths.
fn named_entries<'p>(
    states: &mut BTreeMap<PathBuf, (CreatedEntry, [i64; 7])>,
    named: impl Iterator<Item = &'p PathBuf>,
    spec: &Rooted,
    (made, until): (&BTreeSet<Vec<u8>>, Option<SystemTime>),
) -> BTreeMap<Vec<u8>, CreatedEntry> {
    let mut entries = BTreeMap::new();
    states.clear();
    for path in named {
        let Some(entry) = CreatedEntry::of(path, &spec.project, &spec.policy.matcher, until) else {
            continue;
        };
        if made.contains(&entry.identity) && entries.len() < ENTRIES_MAX {
            let known = inspect(path)
                .map(|(_, metadata)| (path.clone(), (entry.clone(), state(&metadata))));
            states.extend(known);
            entries.insert(entry.path.clone(), entry);
        }
    }
    entries
}

/// Adds the entries of worktrees that cells have `made`.
fn add_worktrees(
    entries: &mut BTreeMap<Vec<u8>, CreatedEntry>,
    project: &Path,
    made: &BTreeSet<Vec<u8>>,
) {
    for worktree in worktrees_of(project) {
        let all = worktree
            .all()
            .map(|path| CreatedEntry::of_worktree(path, project));
        // The worktree's own `.git` has no protected name: it is one by what the others say.
        if let [Some(directory), Some(common), Some(own)] = all
            && made.contains(&directory.identity)
            && made.contains(&common.identity)
            && entries.len() + 3 <= ENTRIES_MAX
        {
            let all = [directory, common, own];
            entries.extend(all.map(|entry| (entry.path.clone(), entry)));
        }
    }
}

impl CreatedEntry {
    /// The entry for a part of a worktree, whose content was looked at.
    fn of_worktree(path: &Path, project: &Path) -> Option<Self> {
        let (file, metadata) = inspect(path).ok()?;
        let is_one = metadata.is_dir() || metadata.is_file() && metadata.nlink() == 1;
        Some(Self {
            path: path
                .strip_prefix(project)
                .ok()?
                .as_os_str()
                .as_bytes()
                .to_vec(),
            identity: CreatedFiles::identity(&file).filter(|_| is_one)?,
            digest: Digest::of(b"worktree"),
        })
    }

    /// The entry for `path`, if it may be recorded: a file with one name or a directory, with no
    /// other protected name above or below it, with only rules that let commands create it, and unchanged since `until`.
    fn of(
        path: &Path,
        project: &Path,
        matcher: &Matcher,
        until: Option<SystemTime>,
    ) -> Option<Self> {
        let below = path.strip_prefix(project).ok()?.as_os_str().as_bytes();
        if matcher.when_new(below) == Some(WhenNew::Closed) {
            return None;
        }
        let (file, metadata) = inspect(path).ok()?;
        let is_old = |metadata: &Metadata| until.is_none_or(|until| changed(metadata) <= until);
        Some(&metadata).filter(|metadata| is_old(metadata))?;
        let digest = if metadata.is_dir() {
            let mut lines = Vec::new();
            tree(path, project, matcher, &is_old, &mut lines)?;
            lines.sort();
            Digest::of(&lines.concat())
        } else {
            Some(&metadata).filter(|metadata| metadata.is_file() && metadata.nlink() == 1)?;
            content(path)?
        };
        Some(Self {
            path: below.to_vec(),
            identity: CreatedFiles::identity(&file)?,
            digest,
        })
    }
}

/// Adds to `created` each worktree all of whose parts are recorded, and removes those from what is closed: commands may remove them, and
/// change nothing in them that is closed when new.
fn open_worktrees(
    spec: &Rooted,
    found: &mut Discovery,
    created: &CreatedFiles,
    entries: &[CreatedEntry],
    released: &mut BTreeMap<PathBuf, ObjectId>,
) {
    let recorded = |path: &Path| {
        let entry = CreatedEntry::of_worktree(path, &spec.project)?;
        let (file, metadata) = inspect(path).ok()?;
        entries
            .contains(&entry)
            .then(|| (path.to_owned(), file, (metadata.dev(), metadata.ino())))
    };
    for worktree in worktrees_of(&spec.project) {
        let parts: Option<Vec<_>> = worktree.all().into_iter().map(recorded).collect();
        for (path, file, id) in parts.into_iter().flatten() {
            if created.add(file).is_ok() {
                found.objects.places.remove(&path);
                found.objects.ways.remove(&path);
                released.insert(path, id);
            }
        }
    }
}

/// Adds a line for each file and directory below `directory`; `None` if there are too many, or
/// special files, or some with protected names of their own or not old.
fn tree(
    directory: &Path,
    project: &Path,
    matcher: &Matcher,
    is_old: &dyn Fn(&Metadata) -> bool,
    lines: &mut Vec<Vec<u8>>,
) -> Option<()> {
    for entry in fs::read_dir(directory).ok()? {
        let path = entry.ok()?.path();
        let below = path.strip_prefix(project).ok()?;
        let (parent, name) = (
            below.parent()?.as_os_str().as_bytes(),
            below.file_name()?.as_bytes(),
        );
        if lines.len() == FILES_MAX || matcher.name(parent, name).is_some() {
            return None;
        }
        let (_, metadata) = inspect(&path).ok()?;
        Some(&metadata).filter(|metadata| is_old(metadata))?;
        let name = below.as_os_str().as_bytes();
        if metadata.is_dir() {
            lines.push([b"d ", name, b"\0"].concat());
            tree(&path, project, matcher, is_old, lines)?;
        } else {
            Some(&metadata).filter(|metadata| metadata.is_file() && metadata.nlink() == 1)?;
            lines.push([b"f ", name, b"\0", content(&path)?.to_string().as_bytes()].concat());
        }
    }
    Some(())
}

/// When a file, its content or its names have changed. No program can set that.
fn changed(metadata: &Metadata) -> SystemTime {
    let seconds = Duration::from_secs(metadata.ctime().max(0) as u64);
    UNIX_EPOCH + seconds + Duration::from_nanos(metadata.ctime_nsec().clamp(0, 999_999_999) as u64)
}

/// The digest of a regular file's content.
fn content(path: &Path) -> Option<Digest> {
    read_short(path, FILE_MAX).map(|bytes| Digest::of(&bytes))
}

/// Adds `path`, and what is below it, to what is closed no more.
fn release(path: &Path, released: &mut BTreeMap<PathBuf, ObjectId>) {
    let mut left = vec![path.to_owned()];
    while let Some(path) = left.pop() {
        let Ok((_, metadata)) = inspect(&path) else {
            continue;
        };
        if metadata.is_dir() {
            left.extend(
                fs::read_dir(&path)
                    .into_iter()
                    .flatten()
                    .flatten()
                    .map(|entry| entry.path()),
            );
        }
        released.insert(path, (metadata.dev(), metadata.ino()));
    }
}

/// Reads the record; an invalid one counts as empty.
fn read(directory: &OwnedFd) -> Vec<CreatedEntry> {
    record_file::read(directory, NAME, frame::FRAME_MAX)
        .and_then(|bytes| frame::decode_whole(&bytes).ok())
        .unwrap_or_default()
}

fn write(directory: &OwnedFd, entries: &Vec<CreatedEntry>) -> io::Result<()> {
    let bytes = frame::encode_whole(entries).map_err(io::Error::other)?;
    record_file::write(directory, NAME, &bytes)
}

/// Opens a file without reading it, and returns its metadata.
pub(crate) fn inspect(path: &Path) -> io::Result<(File, Metadata)> {
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_NOFOLLOW)
        .open(path)?;
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

/// How long after a change another one may have the same time: a tick of the slowest kernel, with room.
const TICK: Duration = Duration::from_millis(20);

/// Whether a file of this state may change its content and not its state: it was changed a moment ago, or its clock is ahead.
pub(crate) fn is_recent(state: &[i64; 7]) -> bool {
    let [.., seconds, nanoseconds] = *state;
    let changed = Duration::new(
        seconds.max(0) as u64,
        nanoseconds.clamp(0, 999_999_999) as u32,
    );
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    changed + TICK > now
}

/// The metadata that changes with a file or its content, unless a process has it mapped, or it changed a moment ago.
pub(crate) fn state(metadata: &Metadata) -> [i64; 7] {
    [
        metadata.dev() as i64,
        metadata.ino() as i64,
        metadata.len() as i64,
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.ctime(),
        metadata.ctime_nsec(),
    ]
}
