//! In the broker: in which repositories anything has happened since the last look.
//!
//! The kernel says so (`inotify`): whatever is opened, made, moved, removed or changed in a directory that is looked at, and whatever is
//! done to a file there under any of its names. What has been opened may be changed later without a trace, by a mapping; so a change
//! counts until a look when no command is running. Where the kernel does not say (no watch could be had, or too much happened at
//! once), everything counts as changed: that costs time and hides nothing.

use executor_sys::file;
use nix::errno::Errno;
use std::collections::{BTreeSet, HashMap};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes of events that are read at once.
const EVENTS: usize = 64 * 1024;
/// Bytes of an event before its name (`struct inotify_event`).
const HEAD: usize = 16;
const MASK: u32 = libc::IN_OPEN
    | libc::IN_MODIFY
    | libc::IN_ATTRIB
    | libc::IN_CLOSE_WRITE
    | libc::IN_CREATE
    | libc::IN_DELETE
    | libc::IN_MOVE
    | libc::IN_DELETE_SELF
    | libc::IN_MOVE_SELF;

/// The state of some repositories, by their numbers.
#[derive(Debug)]
pub(crate) struct RepositoryChanges {
    inotify: Option<File>,
    /// The repositories to which each watch belongs.
    watches: HashMap<i32, BTreeSet<usize>>,
    changed: Vec<bool>,
    buffer: Vec<u8>,
}

impl RepositoryChanges {
    /// For so many repositories, none of which has been looked at.
    pub(crate) fn new(count: usize) -> Self {
        Self {
            inotify: None,
            watches: HashMap::new(),
            changed: vec![true; count],
            buffer: Vec::new(),
        }
    }

    /// Takes what the kernel has said since the last time.
    pub(crate) fn receive(&mut self) {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(EVENTS, 0);
        while let Some(mut inotify) = self.inotify.as_ref() {
            match inotify.read(&mut buffer) {
                Ok(length) if length > 0 => {
                    self.note(&buffer[..length]);
                    if length < EVENTS / 2 {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => {
                    self.all_changed();
                    break;
                }
            }
        }
        self.buffer = buffer;
    }

    fn note(&mut self, mut events: &[u8]) {
        while let Some((head, rest)) = events.split_first_chunk::<HEAD>() {
            let [a, b, c, d, e, f, g, h, .., m, n, o, p] = *head;
            let (watch, mask) = (
                i32::from_ne_bytes([a, b, c, d]),
                u32::from_ne_bytes([e, f, g, h]),
            );
            let name = u32::from_ne_bytes([m, n, o, p]) as usize;
            if mask & libc::IN_Q_OVERFLOW != 0 {
                self.all_changed();
            }
            for repository in self.watches.get(&watch).into_iter().flatten() {
                self.changed[*repository] = true;
            }
            if mask & libc::IN_IGNORED != 0 {
                self.watches.remove(&watch);
            }
            events = rest.get(name..).unwrap_or_default();
        }
    }

    fn all_changed(&mut self) {
        self.changed.fill(true);
    }

    /// Whether anything may have happened in a repository.
    pub(crate) fn has(&self, repository: usize) -> bool {
        self.changed.get(repository).copied().unwrap_or(true)
    }

    /// Watches these files and directories of a repository, as far as they exist; without their parents nothing would say that one
    /// comes about. Returns whether all that exist are watched.
    pub(crate) fn watch(&mut self, repository: usize, paths: &[PathBuf]) -> bool {
        if self.inotify.is_none() {
            self.inotify = file::watcher(libc::IN_NONBLOCK).ok().map(File::from);
        }
        let Some(inotify) = &self.inotify else {
            return false;
        };
        paths.iter().all(|path| {
            let Ok(text) = CString::new(path.as_os_str().as_bytes()) else {
                return false;
            };
            match file::watch(inotify.as_fd(), &text, MASK) {
                Ok(watch) => {
                    self.watches.entry(watch).or_default().insert(repository);
                    true
                }
                Err(error) => is_absent(&error),
            }
        })
    }

    /// Forgets what has happened so far, when no command is running and everything that had changed was looked at: what the look itself
    /// has caused counts for nothing. `watched` says which repositories will report further changes.
    pub(crate) fn forget(&mut self, watched: impl Fn(usize) -> bool) {
        let before = self.changed.clone();
        self.receive();
        for (repository, changed) in self.changed.iter_mut().enumerate() {
            *changed = before[repository] && !watched(repository);
        }
    }
}

fn is_absent(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::ENOENT | Errno::ENOTDIR))
}

/// A path, and the nearest directory above it that exists, in which it or a directory on the way to it would come about.
pub(crate) fn with_existing_parent(path: &Path) -> [PathBuf; 2] {
    let parent = path
        .ancestors()
        .skip(1)
        .find(|above| above.symlink_metadata().is_ok());
    [path.to_owned(), parent.unwrap_or(Path::new("/")).to_owned()]
}
