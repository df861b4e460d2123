//! The store of changes in the central root: `.lazaret/undo/changes/NUMBER`, one line each, and
//! `.lazaret/undo/objects/SHA256`, the replaced contents.
//!
//! Both exist before the file is changed, each complete or without a name: whenever the worker dies, the file
//! is complete and the records are usable; a change that then did not happen is recognised by its digests.
//! Nothing is made durable here: a power cut may lose history, never a file.
//!
//! The directory is a protected name: no command of a session changes anything in it. The worker does so
//! through a descriptor that was opened before the name was pinned (`open`). Programs outside can delete
//! history and forge it; so nothing that is read here is trusted (`line`, `object`).
//!
//! Two sessions may share a root: a number is taken by creating its file; if one drops what the other is just writing,
//! that change cannot be undone, which is reported; and each counts what the other saves only when it scans everything.

use crate::bounds::KEPT;
use crate::change_record::{ChangeRecord, LINE_MAX};
use crate::content::{digest, read_up_to};
use crate::root::{ENTERING, LISTING, LOOKING, READING, is, open_beneath};
use crate::temporary::{TemporaryFile, private_file};
use broker_protocol::Digest;
use executor_sys::errno::errno;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Disk space of a file besides its bytes, and the unit to which its bytes are rounded up.
const BLOCK: u64 = 4096;
/// Maximum number of names examined in one of the directories. There are fewer, unless a cell fills them.
const NAMES: usize = 100_000;
/// Maximum digits of a change's number: an integer that JSON represents exactly.
const DIGITS: usize = 15;
/// Maximum attempts to take a number that others take too.
const ATTEMPTS: usize = 64;

/// The saved changes of one central root.
#[derive(Debug)]
pub(crate) struct UndoStore {
    /// The descriptor of `.lazaret`, if that exists.
    own: Option<OwnedFd>,
    budget: u64,
    /// Bytes on the disk and the number to try next, once they are known.
    known: Option<(u64, u64)>,
}

struct Folders {
    changes: OwnedFd,
    objects: OwnedFd,
}

impl UndoStore {
    /// A store in `own` that uses at most `budget` bytes of disk space.
    pub(crate) fn new(own: Option<OwnedFd>, budget: u64) -> Self {
        Self {
            own,
            budget,
            known: None,
        }
    }

    /// Saves a change and the content it replaces, and returns its number.
    ///
    /// # Errors
    /// It does not fit into the budget (`EFBIG`), or the kernel refuses. Then nothing of it is saved.
    pub(crate) fn save(
        &mut self,
        record: &ChangeRecord,
        content: Option<&[u8]>,
    ) -> Result<u64, Errno> {
        let cost = BLOCK + content.map_or(0, |content| blocks(content.len() as u64));
        if cost > self.budget || record.before.is_some() != content.is_some() {
            return Err(Errno::EFBIG);
        }
        let folders = Folders::make(self.own()?)?;
        let (used, next) = match self.known {
            Some(known) => known,
            None => folders.scan()?,
        };
        let used = if used + cost > self.budget {
            folders.drop_oldest(self.budget - cost)?
        } else {
            used
        };
        if let (Some(state), Some(content)) = (record.before, content) {
            folders.put_object(state.digest, content)?;
        }
        let line = record.to_line();
        let number = match folders.put_change(next, &line) {
            // Another session has taken many numbers meanwhile.
            Err(Errno::EEXIST) => folders.put_change(folders.scan()?.1, &line)?,
            put => put?,
        };
        self.known = Some((used + cost, number + 1));
        Ok(number)
    }

    /// Drops a change that did not happen.
    pub(crate) fn forget(&self, number: u64) {
        // If it remains, its digests show that it did not happen.
        if let Ok(folders) = self.folders() {
            let _ = unlinkat(
                &folders.changes,
                number.to_string().as_str(),
                UnlinkatFlags::NoRemoveDir,
            );
        }
    }

    /// The numbers of all saved changes, newest first.
    pub(crate) fn numbers(&self) -> Result<Vec<u64>, Errno> {
        match self.folders() {
            Err(Errno::ENOENT) => Ok(Vec::new()),
            folders => {
                let mut numbers = folders?.numbers()?;
                numbers.reverse();
                Ok(numbers)
            }
        }
    }

    /// The record of a change; `None` if there is none.
    pub(crate) fn record(&self, number: u64) -> Option<ChangeRecord> {
        self.folders().ok()?.record(number)
    }

    /// The content with this digest, if it is saved and matches the digest.
    pub(crate) fn object(&self, wanted: Digest) -> Option<Vec<u8>> {
        let content = read_file(&self.folders().ok()?.objects, &wanted.to_string(), KEPT)?;
        (digest(&content) == wanted).then_some(content)
    }

    fn own(&self) -> Result<&OwnedFd, Errno> {
        self.own.as_ref().ok_or(Errno::ENOENT)
    }

    fn folders(&self) -> Result<Folders, Errno> {
        Folders::open(self.own()?)
    }
}

impl Folders {
    /// Opens both, without following any link.
    fn open(own: &OwnedFd) -> Result<Self, Errno> {
        let open = |name| open_beneath(own, Path::new(name), ENTERING, Mode::empty());
        Ok(Self {
            changes: open("undo/changes")?,
            objects: open("undo/objects")?,
        })
    }

    /// Opens it, and makes what is missing.
    fn make(own: &OwnedFd) -> Result<Self, Errno> {
        match Self::open(own) {
            Err(Errno::ENOENT) => {}
            opened => return opened,
        }
        let undo = make_directory(own, "undo")?;
        Ok(Self {
            changes: make_directory(&undo, "changes")?,
            objects: make_directory(&undo, "objects")?,
        })
    }

    /// Scans the store: bytes on the disk, and the first free number.
    fn scan(&self) -> Result<(u64, u64), Errno> {
        let numbers = self.numbers()?;
        let mut used = numbers.len() as u64 * BLOCK;
        for name in names(&self.objects)? {
            used += size(&self.objects, &name).map_or(0, blocks);
        }
        Ok((used, numbers.last().map_or(1, |last| last + 1)))
    }

    /// Drops changes, oldest first, until at most seven eighths of `most` bytes are used, so that this is not
    /// repeated at once; and contents that no change needs. Returns how much is used then.
    fn drop_oldest(&self, most: u64) -> Result<u64, Errno> {
        let numbers = self.numbers()?;
        let (mut used, mut needed, mut kept) = (0, HashSet::new(), numbers.len());
        for number in numbers.iter().rev() {
            let before = self
                .record(*number)
                .and_then(|record| Some(record.before?.digest.to_string()));
            let content = before.as_ref().filter(|before| !needed.contains(*before));
            let bytes = content
                .and_then(|name| size(&self.objects, name))
                .map_or(0, blocks);
            if used + BLOCK + bytes > most / 8 * 7 {
                break;
            }
            used += BLOCK + bytes;
            needed.extend(before);
            kept -= 1;
        }
        // What cannot be removed is not ours: a cell has put it there.
        for number in &numbers[..kept] {
            let _ = unlinkat(
                &self.changes,
                number.to_string().as_str(),
                UnlinkatFlags::NoRemoveDir,
            );
        }
        for name in names(&self.objects)?
            .iter()
            .filter(|name| !needed.contains(*name))
        {
            let _ = unlinkat(&self.objects, name.as_str(), UnlinkatFlags::NoRemoveDir);
        }
        Ok(used)
    }

    /// The numbers of all changes, in order.
    fn numbers(&self) -> Result<Vec<u64>, Errno> {
        let number = |name: &String| {
            let ours = name.len() <= DIGITS && !name.starts_with('0');
            ours.then(|| name.parse().ok()).flatten()
        };
        let mut numbers: Vec<u64> = names(&self.changes)?.iter().filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn record(&self, number: u64) -> Option<ChangeRecord> {
        ChangeRecord::parse(&read_file(&self.changes, &number.to_string(), LINE_MAX)?)
    }

    fn put_object(&self, digest: Digest, content: &[u8]) -> Result<(), Errno> {
        let name = digest.to_string();
        let new = || TemporaryFile::not_durable(&self.objects, content);
        match size(&self.objects, &name) {
            Some(size) if size == content.len() as u64 => Ok(()),
            Some(_) => new()?.replace(name.as_ref()),
            None => match new()?.create(name.as_ref()) {
                // Another session has saved the same content.
                Err(Errno::EEXIST) => Ok(()),
                created => created,
            },
        }
    }

    fn put_change(&self, next: u64, line: &str) -> Result<u64, Errno> {
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY;
        for number in (next..).take(ATTEMPTS) {
            let name = number.to_string();
            if name.len() > DIGITS {
                return Err(Errno::EOVERFLOW);
            }
            let file = match open_beneath(&self.changes, Path::new(&name), flags, private_file()) {
                Err(Errno::EEXIST) => continue,
                opened => opened?,
            };
            return match File::from(file).write_all(line.as_bytes()) {
                Ok(()) => Ok(number),
                Err(error) => {
                    let _ = unlinkat(&self.changes, name.as_str(), UnlinkatFlags::NoRemoveDir);
                    Err(errno(error))
                }
            };
        }
        Err(Errno::EEXIST)
    }
}

fn make_directory(at: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    match mkdirat(at, name, Mode::S_IRWXU) {
        Ok(()) | Err(Errno::EEXIST) => open_beneath(at, Path::new(name), ENTERING, Mode::empty()),
        Err(errno) => Err(errno),
    }
}

/// The names in a directory that are valid text, in no order.
fn names(directory: &OwnedFd) -> Result<Vec<String>, Errno> {
    let mut entries = Dir::from_fd(open_beneath(
        directory,
        Path::new(""),
        LISTING,
        Mode::empty(),
    )?)?;
    let mut names = Vec::new();
    for entry in entries.iter() {
        let entry = entry?;
        match std::str::from_utf8(entry.file_name().to_bytes()) {
            Ok("." | "..") | Err(_) => {}
            Ok(_) if names.len() == NAMES => return Err(Errno::EOVERFLOW),
            Ok(name) => names.push(name.to_owned()),
        }
    }
    Ok(names)
}

/// The size of a regular file.
fn size(directory: &OwnedFd, name: &str) -> Option<u64> {
    let file = open_beneath(directory, Path::new(name), LOOKING, Mode::empty()).ok()?;
    let stat = fstat(file).ok().filter(|stat| is(stat, libc::S_IFREG))?;
    Some(stat.st_size as u64)
}

/// Reads a regular file of at most `most` bytes.
fn read_file(directory: &OwnedFd, name: &str, most: usize) -> Option<Vec<u8>> {
    let file = open_beneath(directory, Path::new(name), READING, Mode::empty()).ok()?;
    let stat = fstat(&file).ok().filter(|stat| is(stat, libc::S_IFREG))?;
    let content = read_up_to(File::from(file), stat.st_size as u64, most).ok()?;
    (content.len() <= most).then_some(content)
}

fn blocks(bytes: u64) -> u64 {
    BLOCK + bytes.next_multiple_of(BLOCK)
}
