//! The policy files of a machine and a user: where they lie, and the one place where they are read.
//!
//! Both programs read here, so that neither takes a file that the other refuses. A file is taken only if nobody but root and
//! the user could have written it. The same goes for its directory: whoever may write there can remove a policy, and with
//! it all that it forbids.

use crate::directories::{Variable, configuration};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::unistd::{Uid, geteuid};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Largest policy file, in bytes.
pub const FILE_MAX: usize = 1 << 20;

/// The administrator's policy.
const SYSTEM_POLICY: &str = "/etc/lazaret/policy.toml";

/// Whose file it is; an earlier kind is narrowed by a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceKind {
    /// Built into this program.
    Shipped,
    /// The administrator's: `/etc/lazaret/policy.toml`.
    System,
    /// The user's: `$XDG_CONFIG_HOME/lazaret/policy.toml`.
    User,
}

impl SourceKind {
    /// The name in rules' names and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            SourceKind::Shipped => "shipped",
            SourceKind::System => "system",
            SourceKind::User => "user",
        }
    }
}

/// A policy file that has been read.
#[derive(Clone, Debug)]
pub struct Source {
    /// What people know it as: its path.
    pub name: String,
    /// Whose it is.
    pub kind: SourceKind,
    /// Its text.
    pub text: String,
}

/// A policy file that exists and cannot be used. No session opens without it: it would be a weaker one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the policy file {} cannot be used: {why}", .path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    #[source]
    pub why: FileFault,
}

/// Why a policy file cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FileFault {
    /// The kernel refuses it, or it is a link that leads nowhere.
    #[error(transparent)]
    Kernel(#[from] Errno),
    /// It is a directory, a FIFO, a device or a socket.
    #[error("it is not a regular file")]
    NotRegular,
    /// It, or its directory, belongs to neither root nor the user.
    #[error("{what} belongs to the user {owner}; only root's and your own count", what = part(.directory))]
    Owner {
        /// Whether this is about the directory that holds the file.
        directory: bool,
        /// User id of the owner.
        owner: u32,
    },
    /// Others may write it, or its directory.
    #[error("others may write {what} (mode {mode:o}): chmod go-w", what = part(.directory))]
    Writable {
        /// Whether this is about the directory that holds the file.
        directory: bool,
        /// Its permission bits.
        mode: u32,
    },
    /// It has more than [`FILE_MAX`] bytes.
    #[error("it has more than {FILE_MAX} bytes")]
    TooLarge,
    /// It is not text.
    #[error("it is not UTF-8")]
    Encoding,
}

fn part(directory: &bool) -> &'static str {
    if *directory { "its directory" } else { "it" }
}

/// The policy files of a machine and a user, whether they exist or not.
fn paths(home: &Path, variable: Variable) -> [(PathBuf, SourceKind); 2] {
    let user = configuration(home, variable).join("policy.toml");
    [(SYSTEM_POLICY.into(), SourceKind::System), (user, SourceKind::User)]
}

/// Reads the policy files that exist, the administrator's first. `home` is the account's home directory.
///
/// # Errors
/// A file exists and cannot be used, or it cannot be known whether one exists.
pub fn read(home: &Path, variable: Variable) -> Result<Vec<Source>, FileError> {
    let mut sources = Vec::new();
    for (path, kind) in paths(home, variable) {
        match read_file(&path) {
            Ok(Some(text)) => sources.push(Source { name: path.display().to_string(), kind, text }),
            Ok(None) => {}
            Err(why) => return Err(FileError { path, why }),
        }
    }
    Ok(sources)
}

/// The text of the file at `path`; `None` where neither it nor a link of its name exists.
fn read_file(path: &Path) -> Result<Option<String>, FileFault> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(FileFault::NotRegular);
    };
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let directory = match open(parent, flags, Mode::empty()) {
        Ok(directory) => directory,
        Err(Errno::ENOENT) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    check(&fstat(&directory)?, true)?;
    // A FIFO would make us wait for its writer, and a terminal become ours.
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    match openat(&directory, name, flags, Mode::empty()) {
        Ok(file) => read_checked(file).map(Some),
        Err(Errno::ENOENT) if fstatat(&directory, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_err() => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

fn read_checked(file: OwnedFd) -> Result<String, FileFault> {
    let stat = fstat(&file)?;
    if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG {
        return Err(FileFault::NotRegular);
    }
    check(&stat, false)?;
    let mut bytes = Vec::new();
    let read = File::from(file).take(FILE_MAX as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))?;
    if bytes.len() > FILE_MAX {
        return Err(FileFault::TooLarge);
    }
    String::from_utf8(bytes).map_err(|_| FileFault::Encoding)
}

/// Refuses what others could have written. An access list for other users shows in the group's bits.
fn check(stat: &FileStat, directory: bool) -> Result<(), FileFault> {
    let owner = Uid::from_raw(stat.st_uid);
    if !owner.is_root() && owner != geteuid() {
        return Err(FileFault::Owner { directory, owner: stat.st_uid });
    }
    let mode = stat.st_mode & 0o7777;
    if mode & 0o022 != 0 { Err(FileFault::Writable { directory, mode }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::{chown, mkfifo};
    use std::ffi::OsString;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// A configuration directory with `lazaret` in it.
    struct Settings(tempfile::TempDir);

    impl Settings {
        fn new() -> Self {
            let settings = Self(tempfile::tempdir().unwrap());
            fs::create_dir(settings.directory()).unwrap();
            set_mode(&settings.directory(), 0o755);
            settings
        }

        fn directory(&self) -> PathBuf {
            self.0.path().join("lazaret")
        }

        fn file(&self) -> PathBuf {
            self.directory().join("policy.toml")
        }

        fn write(&self, content: impl AsRef<[u8]>) {
            fs::write(self.file(), content).unwrap();
            set_mode(&self.file(), 0o644);
        }

        /// What is read of the user's file.
        fn read(&self) -> Result<Option<String>, FileFault> {
            let variable = |name: &str| (name == "XDG_CONFIG_HOME").then(|| OsString::from(self.0.path()));
            let read = read(Path::new("/nowhere"), &variable);
            let sources = read.map_err(|error| {
                assert_eq!(error.path, self.file());
                error.why
            })?;
            Ok(sources.into_iter().find(|source| source.kind == SourceKind::User).map(|source| source.text))
        }
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_file_is_read_and_a_missing_one_is_none() {
        let settings = Settings::new();
        assert_eq!(settings.read(), Ok(None));
        settings.write("version = 1\n");
        assert_eq!(settings.read(), Ok(Some("version = 1\n".into())));
        fs::remove_dir_all(settings.directory()).unwrap();
        assert_eq!(settings.read(), Ok(None));
    }

    #[test]
    fn a_link_is_followed_and_one_that_leads_nowhere_is_an_error() {
        let settings = Settings::new();
        let target = settings.0.path().join("target");
        symlink(&target, settings.file()).unwrap();
        assert_eq!(settings.read(), Err(Errno::ENOENT.into()));
        fs::write(&target, "x").unwrap();
        set_mode(&target, 0o600);
        assert_eq!(settings.read(), Ok(Some("x".into())));
        set_mode(&target, 0o620);
        assert_eq!(settings.read(), Err(FileFault::Writable { directory: false, mode: 0o620 }));
    }

    #[test]
    fn what_others_may_write_is_refused() {
        let settings = Settings::new();
        settings.write("");
        for mode in [0o666, 0o664, 0o646] {
            set_mode(&settings.file(), mode);
            assert_eq!(settings.read(), Err(FileFault::Writable { directory: false, mode }));
        }
        set_mode(&settings.file(), 0o644);
        for mode in [0o777, 0o775, 0o1777] {
            set_mode(&settings.directory(), mode);
            assert_eq!(settings.read(), Err(FileFault::Writable { directory: true, mode }));
        }
        // Where it was removed, nobody knows that there was one.
        fs::remove_file(settings.file()).unwrap();
        assert_eq!(settings.read(), Err(FileFault::Writable { directory: true, mode: 0o1777 }));
    }

    #[test]
    fn what_belongs_to_somebody_else_is_refused() {
        let root_only = geteuid().is_root();
        if !root_only {
            eprintln!("only root gives files away: not tried");
            return;
        }
        let settings = Settings::new();
        settings.write("");
        chown(&settings.file(), Some(Uid::from_raw(12_345)), None).unwrap();
        assert_eq!(settings.read(), Err(FileFault::Owner { directory: false, owner: 12_345 }));
        chown(&settings.directory(), Some(Uid::from_raw(12_345)), None).unwrap();
        assert_eq!(settings.read(), Err(FileFault::Owner { directory: true, owner: 12_345 }));
    }

    /// A FIFO without a writer would be waited for: the test would not end.
    #[test]
    fn only_a_regular_file_is_read() {
        let settings = Settings::new();
        mkfifo(&settings.file(), Mode::S_IRUSR).unwrap();
        assert_eq!(settings.read(), Err(FileFault::NotRegular));
        fs::remove_file(settings.file()).unwrap();
        fs::create_dir(settings.file()).unwrap();
        assert_eq!(settings.read(), Err(FileFault::NotRegular));
        fs::remove_dir(settings.file()).unwrap();
        symlink("/dev/zero", settings.file()).unwrap();
        assert_eq!(settings.read(), Err(FileFault::NotRegular));
    }

    #[test]
    fn a_file_is_text_of_a_bounded_size() {
        let settings = Settings::new();
        settings.write("x".repeat(FILE_MAX));
        assert_eq!(settings.read().unwrap().unwrap().len(), FILE_MAX);
        settings.write("x".repeat(FILE_MAX + 1));
        assert_eq!(settings.read(), Err(FileFault::TooLarge));
        settings.write(b"\xff");
        assert_eq!(settings.read(), Err(FileFault::Encoding));
    }
}
