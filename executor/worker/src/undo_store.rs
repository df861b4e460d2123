//! Where changes are kept, in the central root: `.lazaret/undo/changes/NUMBER`, a line each, and
//! `.lazaret/undo/objects/SHA256`, the contents that were replaced.
//!
//! Both are there before the file is changed, each whole or without a name, so that whenever the worker dies the file is
//! whole and what is written down can be used; a change that then did not happen is found out by its digests. Nothing is
//! made durable here: a power cut may cost history, never a file.
//!
//! The directory is a protected name: no command of a session changes anything in it. The worker does by a descriptor that
//! was opened before the name was pinned (`open`). What programs outside have written there can lose history, and fill it
//! with lies; so nothing is believed that is read here (`line`, `object`).
//!
//! Two sessions may share a root: numbers are taken by making the file, what one drops while the other writes is a change
//! that cannot be undone, and says so, and each counts what the other keeps only when it looks through everything.

use crate::bounds::KEPT;
use crate::change_record::{ChangeRecord, LINE_MAX};
use crate::content::{digest, read_up_to};
use crate::error::errno;
use crate::root::{ENTERING, LISTING, LOOKING, READING, is, open_beneath};
use crate::temporary::{TemporaryFile, private_file};
use broker_protocol::Digest;
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

/// What a file costs on the disk besides its bytes, and to what its bytes are rounded up.
const BLOCK: u64 = 4096;
/// Most names that are looked at in one of the directories. There are less, unless a cell fills them.
const NAMES: usize = 100_000;
/// Digits of a change's number at most: whole numbers that JSON keeps.
const DIGITS: usize = 15;
/// Attempts at taking a number that others take too.
const ATTEMPTS: usize = 64;

/// The kept changes of one central root.
#[derive(Debug)]
pub struct UndoStore {
    /// `.lazaret`, if it is there.
    own: Option<OwnedFd>,
    budget: u64,
    /// Bytes on the disk and the number to try next, once they have been looked up.
    known: Option<(u64, u64)>,
}

struct Folders {
    changes: OwnedFd,
    objects: OwnedFd,
}

impl UndoStore {
    /// A store in `own`, that keeps at most `budget` bytes on the disk.
    pub fn new(own: Option<OwnedFd>, budget: u64) -> Self {
        Self { own, budget, known: None }
    }

    /// Keeps a change and the content it replaces, and returns its number.
    ///
    /// # Errors
    /// It does not fit in the budget (`EFBIG`), or the kernel refuses. Then nothing is kept of it.
    pub fn save(&mut self, record: &ChangeRecord, content: Option<&[u8]>) -> Result<u64, Errno> {
        let cost = BLOCK + content.map_or(0, |content| blocks(content.len() as u64));
        if cost > self.budget || record.before.is_some() != content.is_some() {
            return Err(Errno::EFBIG);
        }
        let folders = Folders::make(self.own()?)?;
        let (used, next) = match self.known {
            Some(known) => known,
            None => folders.scan()?,
        };
        let used = if used + cost > self.budget { folders.drop_oldest(self.budget - cost)? } else { used };
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

    /// Forgets a change that did not happen.
    pub fn forget(&self, number: u64) {
        // If it stays, its digests say that it did not happen.
        if let Ok(folders) = self.folders() {
            let _ = unlinkat(&folders.changes, number.to_string().as_str(), UnlinkatFlags::NoRemoveDir);
        }
    }

    /// Every number that is kept, the newest first.
    pub fn numbers(&self) -> Result<Vec<u64>, Errno> {
        match self.folders() {
            Err(Errno::ENOENT) => Ok(Vec::new()),
            folders => {
                let mut numbers = folders?.numbers()?;
                numbers.reverse();
                Ok(numbers)
            }
        }
    }

    /// A change; `None` where there is no such line.
    pub fn record(&self, number: u64) -> Option<ChangeRecord> {
        self.folders().ok()?.record(number)
    }

    /// The content with this digest, if it is kept and is what it should be.
    pub fn object(&self, wanted: Digest) -> Option<Vec<u8>> {
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
        Ok(Self { changes: open("undo/changes")?, objects: open("undo/objects")? })
    }

    /// The same, and makes what is missing.
    fn make(own: &OwnedFd) -> Result<Self, Errno> {
        match Self::open(own) {
            Err(Errno::ENOENT) => {}
            opened => return opened,
        }
        let undo = make_directory(own, "undo")?;
        Ok(Self { changes: make_directory(&undo, "changes")?, objects: make_directory(&undo, "objects")? })
    }

    /// What there is: bytes on the disk, and the first number that is free.
    fn scan(&self) -> Result<(u64, u64), Errno> {
        let numbers = self.numbers()?;
        let mut used = numbers.len() as u64 * BLOCK;
        for name in names(&self.objects)? {
            used += size(&self.objects, &name).map_or(0, blocks);
        }
        Ok((used, numbers.last().map_or(1, |last| last + 1)))
    }

    /// Drops changes, the oldest first, until at most seven eighths of `most` bytes are used, so that this is not done
    /// again at once; and contents that no change needs. Returns what is used then.
    fn drop_oldest(&self, most: u64) -> Result<u64, Errno> {
        let numbers = self.numbers()?;
        let (mut used, mut needed, mut kept) = (0, HashSet::new(), numbers.len());
        for number in numbers.iter().rev() {
            let before = self.record(*number).and_then(|record| Some(record.before?.digest.to_string()));
            let content = before.as_ref().filter(|before| !needed.contains(*before));
            let bytes = content.and_then(|name| size(&self.objects, name)).map_or(0, blocks);
            if used + BLOCK + bytes > most / 8 * 7 {
                break;
            }
            used += BLOCK + bytes;
            needed.extend(before);
            kept -= 1;
        }
        // What cannot be removed is not ours: a cell has put it there.
        for number in &numbers[..kept] {
            let _ = unlinkat(&self.changes, number.to_string().as_str(), UnlinkatFlags::NoRemoveDir);
        }
        for name in names(&self.objects)?.iter().filter(|name| !needed.contains(*name)) {
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
                // Another session keeps the same content.
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
                    Err(errno(&error))
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

/// The names in a directory that are text, in no order.
fn names(directory: &OwnedFd) -> Result<Vec<String>, Errno> {
    let mut entries = Dir::from_fd(open_beneath(directory, Path::new(""), LISTING, Mode::empty())?)?;
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

/// A regular file of at most `most` bytes.
fn read_file(directory: &OwnedFd, name: &str, most: usize) -> Option<Vec<u8>> {
    let file = open_beneath(directory, Path::new(name), READING, Mode::empty()).ok()?;
    let stat = fstat(&file).ok().filter(|stat| is(stat, libc::S_IFREG))?;
    let content = read_up_to(File::from(file), stat.st_size as u64, most).ok()?;
    (content.len() <= most).then_some(content)
}

fn blocks(bytes: u64) -> u64 {
    BLOCK + bytes.next_multiple_of(BLOCK)
}
