//! Reads files of a project: bounded, and following no link in them.

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{Mode, SFlag, fstat, fstatat};
use orchestrator_launch::agent_files::AgentFileKind;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use thiserror::Error;

/// Maximum bytes of a file, and of all files of a directory.
pub(super) const FILE_MAX: u64 = 1 << 20;
/// Maximum number of entries of a directory, with those of its directories.
pub(super) const ENTRIES_MAX: usize = 512;
/// Maximum depth of directories in one.
const DEPTH_MAX: usize = 6;

/// Why a file of a project cannot be examined. Its agent may read it all the same.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unread {
    /// The agent would follow it, wherever it leads by then.
    #[error("it is a link, or lies behind one")]
    Link,
    /// It is a device, a FIFO, or a directory where a file belongs.
    #[error("it is not a regular file")]
    NotRegular,
    /// It is a file where a directory belongs.
    #[error("it is not a directory")]
    NotDirectory,
    /// It has too many bytes, or the directory too many entries.
    #[error("it is larger than {FILE_MAX} bytes or {ENTRIES_MAX} files")]
    TooLarge,
    #[error("it is not UTF-8")]
    Encoding,
    /// It has an error, which agents may read past.
    #[error("{0}")]
    Syntax(String),
    #[error(transparent)]
    Kernel(#[from] Errno),
}

/// An object at a path in a project.
pub(super) enum ProjectEntry {
    File(String),
    Directory,
    /// Something that cannot be examined.
    Unread(Unread),
}

/// The SHA-256 of what was examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProjectDigest(broker_protocol::Digest);

impl ProjectDigest {
    pub fn of(bytes: &[u8]) -> Self {
        Self(broker_protocol::Digest::of(bytes))
    }

    /// Of all files of a directory, with their names.
    pub fn of_files(files: &[(String, Vec<u8>)]) -> Self {
        let length = |bytes: &[u8]| (bytes.len() as u64).to_le_bytes();
        let part = |(name, bytes): &(String, Vec<u8>)| {
            [
                &length(name.as_bytes())[..],
                name.as_bytes(),
                &length(bytes),
                bytes,
            ]
            .concat()
        };
        Self::of(&files.iter().flat_map(part).collect::<Vec<u8>>())
    }
}

impl fmt::Display for ProjectDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A directory whose files are examined.
#[derive(Debug)]
pub(super) struct OpenedDirectory(OwnedFd);

impl OpenedDirectory {
    /// Opens it; `None` if there is none, or if its user, and so an agent, may not look into it.
    #[expect(
        clippy::disallowed_methods,
        reason = "what the user's agent reads, before a session opens"
    )]
    pub(super) fn of(path: &Path) -> Option<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        open(path, flags, Mode::empty()).ok().map(Self)
    }

    /// Whether it has an entry of this name, whatever that is.
    pub(super) fn has(&self, name: &str) -> bool {
        fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok()
    }

    /// The object at `path`; `None` if there is nothing, or nothing that an agent of the same user could read. A directory has to be of
    /// the kind that is read as one.
    pub(super) fn entry(&self, path: &str, kind: &AgentFileKind) -> Option<ProjectEntry> {
        let file = match open_below(&self.0, Path::new(path)) {
            Ok(file) => file,
            Err(Unread::Kernel(Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES)) => return None,
            Err(why) => return Some(ProjectEntry::Unread(why)),
        };
        let is_directory = matches!(kind, AgentFileKind::Directory | AgentFileKind::Prompts(_));
        Some(match (kind_of(&file), is_directory) {
            (Ok(SFlag::S_IFDIR), true) => ProjectEntry::Directory,
            (Ok(SFlag::S_IFREG), true) => ProjectEntry::Unread(Unread::NotDirectory),
            (Ok(SFlag::S_IFREG), false) => {
                text(file).map_or_else(ProjectEntry::Unread, ProjectEntry::File)
            }
            (Ok(_), _) => ProjectEntry::Unread(Unread::NotRegular),
            (Err(why), _) => ProjectEntry::Unread(why),
        })
    }

    /// All files below `path` whose names end with `ending`, sorted: their paths from there, and what is in them.
    ///
    /// # Errors
    /// One of them cannot be read, or there are too many.
    pub(super) fn files_below(
        &self,
        path: &str,
        ending: &str,
    ) -> Result<Vec<(String, Vec<u8>)>, Unread> {
        let top = open_below(&self.0, Path::new(path))?;
        let mut room = ReadBudget {
            entries: ENTRIES_MAX,
            bytes: FILE_MAX,
            ending,
        };
        let mut files = Vec::new();
        room.collect(&top, "", 0, &mut files)?;
        files.sort();
        Ok(files)
    }
}

/// The bytes that may still be read.
struct ReadBudget<'e> {
    entries: usize,
    bytes: u64,
    ending: &'e str,
}

impl ReadBudget<'_> {
    fn collect(
        &mut self,
        directory: &OwnedFd,
        above: &str,
        depth: usize,
        files: &mut Vec<(String, Vec<u8>)>,
    ) -> Result<(), Unread> {
        if depth > DEPTH_MAX {
            return Err(Unread::TooLarge);
        }
        let mut listed = Dir::from_fd(open_below(directory, Path::new("."))?)?;
        for entry in listed.iter() {
            let entry = entry?;
            let name = entry.file_name().to_str().map_err(|_| Unread::Encoding)?;
            if name == "." || name == ".." {
                continue;
            }
            self.entries = self.entries.checked_sub(1).ok_or(Unread::TooLarge)?;
            let file = open_below(directory, Path::new(name))?;
            let path = if above.is_empty() {
                name.to_owned()
            } else {
                format!("{above}/{name}")
            };
            match kind_of(&file)? {
                SFlag::S_IFDIR => self.collect(&file, &path, depth + 1, files)?,
                SFlag::S_IFREG if path.ends_with(self.ending) => {
                    let bytes = read(file, self.bytes)?;
                    self.bytes = self.bytes.saturating_sub(bytes.len() as u64);
                    files.push((path, bytes));
                }
                SFlag::S_IFREG => {}
                _ => return Err(Unread::NotRegular),
            }
        }
        Ok(())
    }
}

/// Opens what is below a directory, through no link. A FIFO does not block.
fn open_below(directory: &impl AsFd, path: &Path) -> Result<OwnedFd, Unread> {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    match openat2(
        directory,
        path,
        OpenHow::new().flags(flags).resolve(resolve),
    ) {
        Ok(file) => Ok(file),
        Err(Errno::ELOOP) => Err(Unread::Link),
        // A socket, or a device without a driver.
        Err(Errno::ENXIO) => Err(Unread::NotRegular),
        Err(errno) => Err(errno.into()),
    }
}

fn kind_of(file: &OwnedFd) -> Result<SFlag, Unread> {
    Ok(SFlag::from_bits_truncate(fstat(file)?.st_mode) & SFlag::S_IFMT)
}

fn text(file: OwnedFd) -> Result<String, Unread> {
    String::from_utf8(read(file, FILE_MAX)?).map_err(|_| Unread::Encoding)
}

fn read(file: OwnedFd, max: u64) -> Result<Vec<u8>, Unread> {
    let mut bytes = Vec::new();
    let read = File::from(file).take(max + 1).read_to_end(&mut bytes);
    read.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))?;
    if bytes.len() as u64 > max {
        Err(Unread::TooLarge)
    } else {
        Ok(bytes)
    }
}
