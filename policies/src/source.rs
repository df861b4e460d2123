//! The policy files of a machine and a user: their paths, and the one place where they are read.
//!
//! Both programs read policies here, so that neither accepts a file that the other refuses. A file
//! is accepted only if nobody but root and the user could have written it. The same applies to its
//! directory: whoever may write there can remove a policy, and with it everything that it forbids.

use crate::directories::{VariableLookup, configuration};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat, lstat};
use nix::unistd::{Gid, Group, Uid, User, geteuid};
use policies_guard::Origin;
use serde::Serialize;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Maximum bytes of a policy file.
pub const FILE_MAX: usize = 1 << 20;

const SYSTEM_POLICY: &str = "/etc/lazaret/policy.toml";

/// Further files of the administrator: those named `*.toml`, read in the order of their names. A package or a fleet's tool adds one
/// without a change to another's.
pub const SYSTEM_DIRECTORY: &str = "/etc/lazaret/policy.d";

/// Maximum number of files in `/etc/lazaret/policy.d`.
pub const PARTS_MAX: usize = 64;

/// Who wrote a policy file. Ordered: a later kind narrows an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum SourceKind {
    /// Built into the program: `policies/profiles`.
    Shipped,
    /// The administrator's: `/etc/lazaret/policy.toml` and `/etc/lazaret/policy.d/*.toml`.
    System,
    /// The user's: `$XDG_CONFIG_HOME/lazaret/policy.toml`.
    User,
}

impl SourceKind {
    /// Who wrote the file of a line: its name is a path, except for built-in files.
    pub fn of(origin: &Origin) -> Self {
        match origin.file.as_str() {
            SYSTEM_POLICY => SourceKind::System,
            path if Path::new(path).parent() == Some(Path::new(SYSTEM_DIRECTORY)) => {
                SourceKind::System
            }
            path if path.starts_with('/') || path.starts_with('~') => SourceKind::User,
            _ => SourceKind::Shipped,
        }
    }

    /// The name in rule names and in JSON.
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
pub struct PolicySource {
    /// Its path, or `shipped NAME`.
    pub name: String,
    pub kind: SourceKind,
    pub text: String,
}

/// A policy file that exists and cannot be used. No session opens without it: the policy would be weaker.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the policy file {} cannot be used: {why}", .path.display())]
pub struct FileError {
    pub path: PathBuf,
    #[source]
    pub why: FileFault,
}

/// Why a policy file cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FileFault {
    /// The kernel refuses to open it, or it is a link without a target.
    #[error(transparent)]
    Kernel(#[from] Errno),
    /// A directory, a FIFO, a device or a socket.
    #[error("it is not a regular file")]
    NotRegular,
    /// The file (or its directory, if `directory`) belongs to neither root nor the user.
    #[error("{what} belongs to the user {owner}; it must be root's or yours", what = part(.directory))]
    Owner { directory: bool, owner: u32 },
    /// Users other than the owner may write to it (or to its directory, if `directory`). The user's private group does not count.
    #[error("others may write {what} (mode {mode:o}): chmod go-w", what = part(.directory))]
    Writable { directory: bool, mode: u32 },
    /// The file has more than `max` bytes.
    #[error("it has more than {max} bytes")]
    TooLarge { max: usize },
    #[error("it is not UTF-8")]
    Encoding,
    /// A directory of policy files has more than `max` of them.
    #[error("it has more than {max} policy files")]
    TooMany { max: usize },
    /// A policy file's name in a directory is not UTF-8.
    #[error("the name of a policy file in it is not UTF-8")]
    Name,
    /// A directory of policy files had it a moment ago: without it, the policy would be weaker than any that was ever meant.
    #[error("it was removed while the policy was read; try again")]
    Gone,
}

fn part(directory: &bool) -> &'static str {
    if *directory { "its directory" } else { "it" }
}

/// The administrator's and the user's policy files, whether they exist or not, without those of `policy.d`.
pub fn paths(home: &Path, variable: VariableLookup) -> [(PathBuf, SourceKind); 2] {
    let user = configuration(home, variable).join("policy.toml");
    [
        (SYSTEM_POLICY.into(), SourceKind::System),
        (user, SourceKind::User),
    ]
}

/// Reads the policy files that exist, the administrator's first. `home` is the account's home directory.
///
/// # Errors
/// A file exists and cannot be used, or its existence cannot be determined.
pub fn read(home: &Path, variable: VariableLookup) -> Result<Vec<PolicySource>, FileError> {
    let [system, user] = paths(home, variable);
    let read_one = |(path, kind): (PathBuf, SourceKind)| {
        let name = path.display().to_string();
        match read_file(&path) {
            Ok(text) => Ok(text.map(|text| PolicySource { name, kind, text })),
            Err(why) => Err(FileError { path, why }),
        }
    };
    let mut sources: Vec<PolicySource> = read_one(system)?.into_iter().collect();
    sources.extend(read_parts(Path::new(SYSTEM_DIRECTORY))?);
    sources.extend(read_one(user)?);
    Ok(sources)
}

/// Reads the policy files in a directory, in the order of their names; none if the directory does not exist. All are read from one
/// directory, also if another one takes its name meanwhile: no policy is a mixture of two.
fn read_parts(directory: &Path) -> Result<Vec<PolicySource>, FileError> {
    let listed = list_parts(directory).map_err(|why| FileError {
        path: directory.to_owned(),
        why,
    })?;
    listed.map_or(Ok(Vec::new()), |listed| read_listed(directory, &listed))
}

fn read_listed(
    directory: &Path,
    (open, names): &(Dir, Vec<String>),
) -> Result<Vec<PolicySource>, FileError> {
    let read_one = |name: &String| {
        let path = directory.join(name);
        let text = read_in(open, name.as_ref()).and_then(|text| text.ok_or(FileFault::Gone));
        match text {
            Ok(text) => Ok(PolicySource {
                name: path.display().to_string(),
                kind: SourceKind::System,
                text,
            }),
            Err(why) => Err(FileError { path, why }),
        }
    };
    names.iter().map(read_one).collect()
}

/// The policy files in a directory, in the order of their names; none if the directory does not exist. What an editor or a package
/// manager leaves beside them (`x.toml~`, `x.toml.dpkg-new`, `.x.toml.swp`) has another ending or begins with a dot.
///
/// # Errors
/// The directory exists and cannot be listed, others may write it, or it has too many policy files.
pub fn parts(directory: &Path) -> Result<Vec<PathBuf>, FileError> {
    let parts = list_parts(directory).map_err(|why| FileError {
        path: directory.to_owned(),
        why,
    })?;
    let names = parts.map_or(Vec::new(), |(_, names)| names);
    Ok(names.iter().map(|name| directory.join(name)).collect())
}

/// The directory and the names of its policy files; `None` if it does not exist.
fn list_parts(directory: &Path) -> Result<Option<(Dir, Vec<String>)>, FileFault> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut open = match Dir::open(directory, flags, Mode::empty()) {
        Ok(open) => open,
        Err(Errno::ENOENT) if lstat(directory).is_err() => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    check(&fstat(&open)?)?;
    let mut names = Vec::new();
    for entry in open.iter() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name.starts_with(b".") || !name.ends_with(b".toml") {
            continue;
        }
        if names.len() == PARTS_MAX {
            return Err(FileFault::TooMany { max: PARTS_MAX });
        }
        names.push(String::from_utf8(name.to_vec()).map_err(|_| FileFault::Name)?);
    }
    names.sort_unstable();
    Ok(Some((open, names)))
}

/// The text of the file at `path`; `None` if neither it nor a link of its name exists.
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
    check(&fstat(&directory)?)?;
    read_in(&directory, name)
}

/// Reads a file in a directory that is checked.
fn read_in(directory: &impl AsFd, name: &OsStr) -> Result<Option<String>, FileFault> {
    match openat(directory, name, READ, Mode::empty()) {
        Ok(file) => text(read_regular(file, FILE_MAX, check)?).map(Some),
        Err(Errno::ENOENT) if fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_err() => {
            Ok(None)
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Reads a file that a person names, such as a scope. Its owner is not checked: it can only narrow.
///
/// # Errors
/// The file cannot be opened, is no regular file (opening a FIFO does not block), has more than `max` bytes, or is not UTF-8.
pub fn read_named(path: &Path, max: usize) -> Result<String, FileFault> {
    text(read_bytes(path, max)?)
}

/// Reads a file that need not be text.
///
/// # Errors
/// As for [`read_named`].
pub fn read_bytes(path: &Path, max: usize) -> Result<Vec<u8>, FileFault> {
    read_regular(open(path, READ, Mode::empty())?, max, |_| Ok(()))
}

fn text(bytes: Vec<u8>) -> Result<String, FileFault> {
    String::from_utf8(bytes).map_err(|_| FileFault::Encoding)
}

/// Otherwise a FIFO would block until it has a writer, and a terminal would become our controlling one.
const READ: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_NONBLOCK)
    .union(OFlag::O_NOCTTY)
    .union(OFlag::O_CLOEXEC);

fn read_regular(
    file: OwnedFd,
    max: usize,
    check: impl FnOnce(&FileStat) -> Result<(), FileFault>,
) -> Result<Vec<u8>, FileFault> {
    let stat = fstat(&file)?;
    if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG {
        return Err(FileFault::NotRegular);
    }
    check(&stat)?;
    let mut bytes = Vec::new();
    let read = File::from(file)
        .take(max as u64 + 1)
        .read_to_end(&mut bytes);
    read.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))?;
    if bytes.len() > max {
        return Err(FileFault::TooLarge { max });
    }
    Ok(bytes)
}

/// Refuses a file that others could have written. An access list for other users shows in the group's bits.
fn check(stat: &FileStat) -> Result<(), FileFault> {
    let directory = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR;
    let owner = Uid::from_raw(stat.st_uid);
    if !owner.is_root() && owner != geteuid() {
        return Err(FileFault::Owner {
            directory,
            owner: stat.st_uid,
        });
    }
    let mode = stat.st_mode & 0o7777;
    let by_group = mode & 0o020 != 0 && !is_own_group(Gid::from_raw(stat.st_gid));
    if mode & 0o002 != 0 || by_group {
        Err(FileFault::Writable { directory, mode })
    } else {
        Ok(())
    }
}

/// Whether only root and the user can change what lies at `path`, an absolute path without links: nobody else owns or may write it or
/// a directory above it, except one where nobody can move another's files (`/tmp`).
///
/// # Errors
/// Somebody else could have put it there, or the kernel does not say.
pub fn check_place(path: &Path) -> Result<(), FileFault> {
    for (depth, place) in path.ancestors().enumerate() {
        let mut stat = lstat(place)?;
        if depth > 0 && stat.st_mode & nix::libc::S_ISVTX != 0 {
            stat.st_mode &= !0o022;
        }
        check(&stat)?;
    }
    Ok(())
}

/// Whether a group contains only the user. Where each user has such a group, files are
/// group-writable (umask 002). A group unknown to the account database does not count.
fn is_own_group(gid: Gid) -> bool {
    let user = User::from_uid(geteuid()).ok().flatten();
    let group = Group::from_gid(gid).ok().flatten();
    user.zip(group)
        .is_some_and(|(user, group)| is_private(&user, &group))
}

/// A private group is the user's primary one, has the user's name, and lists nobody else.
fn is_private(user: &User, group: &Group) -> bool {
    group.gid == user.gid
        && group.name == user.name
        && group.mem.iter().all(|member| *member == user.name)
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

        fn read(&self) -> Result<Option<String>, FileFault> {
            let variable =
                |name: &str| (name == "XDG_CONFIG_HOME").then(|| OsString::from(self.0.path()));
            let read = read(Path::new("/nowhere"), &variable);
            let sources = read.map_err(|error| {
                assert_eq!(error.path, self.file());
                error.why
            })?;
            Ok(sources
                .into_iter()
                .find(|source| source.kind == SourceKind::User)
                .map(|source| source.text))
        }
    }

    /// A group that no user has to itself.
    fn share(path: &Path) -> bool {
        let shared = chown(path, None, Some(Gid::from_raw(12_345))).is_ok();
        if !shared {
            eprintln!("only root gives files to any group: a group's right to write is not tried");
        }
        shared
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn missing_policy_file_reads_as_none() {
        let settings = Settings::new();
        assert_eq!(settings.read(), Ok(None));
        settings.write("version = 1\n");
        assert_eq!(settings.read(), Ok(Some("version = 1\n".into())));
        fs::remove_dir_all(settings.directory()).unwrap();
        assert_eq!(settings.read(), Ok(None));
    }

    #[test]
    fn a_directory_has_its_policy_files_in_the_order_of_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("policy.d");
        let names = |found: Result<Vec<PathBuf>, FileError>| {
            let found = found.map_err(|error| {
                assert_eq!(error.path, directory);
                error.why
            });
            found.map(|paths| {
                let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
                paths.iter().map(name).collect::<Vec<_>>()
            })
        };
        assert_eq!(names(parts(&directory)), Ok(vec![]));
        symlink("nowhere", &directory).unwrap();
        assert_eq!(names(parts(&directory)), Err(Errno::ENOENT.into()));
        fs::remove_file(&directory).unwrap();
        fs::create_dir(&directory).unwrap();
        set_mode(&directory, 0o755);
        for name in [
            "9.toml",
            "10.toml",
            "a.toml~",
            "b.toml.dpkg-new",
            ".c.toml",
            "README",
        ] {
            fs::write(directory.join(name), "").unwrap();
        }
        assert_eq!(
            names(parts(&directory)),
            Ok(vec!["10.toml".into(), "9.toml".into()])
        );
        set_mode(&directory, 0o757);
        let writable = FileFault::Writable {
            directory: true,
            mode: 0o757,
        };
        assert_eq!(names(parts(&directory)), Err(writable));
    }

    /// The directory that was listed is the one that is read; what goes from it meanwhile is missed.
    #[test]
    fn a_replaced_directory_mixes_no_policies() {
        let folder = tempfile::tempdir().unwrap();
        let [directory, aside] = ["policy.d", "aside"].map(|name| folder.path().join(name));
        fs::create_dir(&directory).unwrap();
        set_mode(&directory, 0o755);
        for name in ["1.toml", "2.toml"] {
            fs::write(directory.join(name), "old").unwrap();
        }
        let texts = |read: Result<Vec<PolicySource>, FileError>| {
            let read = read.map_err(|error| error.why);
            read.map(|read| read.into_iter().map(|it| it.text).collect::<Vec<_>>())
        };
        let both = Ok(vec!["old".to_owned(); 2]);
        assert_eq!(texts(read_parts(&directory)), both);
        let listed = list_parts(&directory).unwrap().unwrap();
        fs::rename(&directory, &aside).unwrap();
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("1.toml"), "new").unwrap();
        assert_eq!(texts(read_listed(&directory, &listed)), both);
        fs::remove_file(aside.join("2.toml")).unwrap();
        let gone = Err(FileFault::Gone);
        assert_eq!(texts(read_listed(&directory, &listed)), gone);
    }

    #[test]
    fn a_directory_has_a_limit_of_policy_files() {
        let folder = tempfile::tempdir().unwrap();
        set_mode(folder.path(), 0o755);
        for number in 0..PARTS_MAX {
            fs::write(folder.path().join(format!("{number}.toml")), "").unwrap();
        }
        assert_eq!(parts(folder.path()).unwrap().len(), PARTS_MAX);
        fs::write(folder.path().join("one-more.toml"), "").unwrap();
        let why = parts(folder.path()).unwrap_err().why;
        assert_eq!(why, FileFault::TooMany { max: PARTS_MAX });
    }

    #[test]
    fn a_line_of_an_administrators_part_is_the_administrators() {
        let source = |file: &str| {
            let (file, line) = (file.into(), 1);
            SourceKind::of(&Origin { file, line })
        };
        assert_eq!(
            source("/etc/lazaret/policy.d/site.toml"),
            SourceKind::System
        );
        assert_eq!(
            source("/etc/lazaret/policy.d/x/site.toml"),
            SourceKind::User
        );
        assert_eq!(source("/etc/lazaret/policy.toml"), SourceKind::System);
    }

    #[test]
    fn link_is_followed_and_a_dangling_one_fails() {
        let settings = Settings::new();
        let target = settings.0.path().join("target");
        symlink(&target, settings.file()).unwrap();
        assert_eq!(settings.read(), Err(Errno::ENOENT.into()));
        fs::write(&target, "x").unwrap();
        set_mode(&target, 0o600);
        assert_eq!(settings.read(), Ok(Some("x".into())));
        set_mode(&target, 0o602);
        assert_eq!(
            settings.read(),
            Err(FileFault::Writable {
                directory: false,
                mode: 0o602
            })
        );
    }

    #[test]
    fn policy_file_that_others_may_write_is_refused() {
        let settings = Settings::new();
        settings.write("");
        for mode in [0o666, 0o646] {
            set_mode(&settings.file(), mode);
            assert_eq!(
                settings.read(),
                Err(FileFault::Writable {
                    directory: false,
                    mode
                })
            );
        }
        if share(&settings.file()) {
            set_mode(&settings.file(), 0o664);
            assert_eq!(
                settings.read(),
                Err(FileFault::Writable {
                    directory: false,
                    mode: 0o664
                })
            );
        }
        set_mode(&settings.file(), 0o644);
        if share(&settings.directory()) {
            set_mode(&settings.directory(), 0o775);
            assert_eq!(
                settings.read(),
                Err(FileFault::Writable {
                    directory: true,
                    mode: 0o775
                })
            );
        }
        for mode in [0o777, 0o1777] {
            set_mode(&settings.directory(), mode);
            assert_eq!(
                settings.read(),
                Err(FileFault::Writable {
                    directory: true,
                    mode
                })
            );
        }
        // Once it is removed, nothing shows that there was one.
        fs::remove_file(settings.file()).unwrap();
        assert_eq!(
            settings.read(),
            Err(FileFault::Writable {
                directory: true,
                mode: 0o1777
            })
        );
    }

    #[test]
    fn a_place_is_trusted_only_if_nobody_else_can_change_it() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let path = folder.join("a/program");
        fs::create_dir(folder.join("a")).unwrap();
        fs::write(&path, "").unwrap();
        set_mode(&path, 0o755);
        for (mode, want) in [(0o755, true), (0o1777, true), (0o777, false), (0o700, true)] {
            set_mode(&folder.join("a"), mode);
            assert_eq!(check_place(&path).is_ok(), want, "{mode:o}");
        }
        set_mode(&path, 0o757);
        assert_eq!(
            check_place(&path),
            Err(FileFault::Writable {
                directory: false,
                mode: 0o757
            })
        );
        assert_eq!(check_place(&folder.join("none")), Err(Errno::ENOENT.into()));
    }

    /// With umask 002 and a group for each user, as several distributions have it.
    #[test]
    fn the_users_private_group_may_write() {
        let user = User::from_uid(geteuid()).unwrap().unwrap();
        let private = |name: &str, gid: Gid, members: &[&str]| {
            let mem = members.iter().map(|name| (*name).to_owned()).collect();
            let passwd = std::ffi::CString::default();
            is_private(
                &user,
                &Group {
                    name: name.to_owned(),
                    gid,
                    mem,
                    passwd,
                },
            )
        };
        let other = Gid::from_raw(user.gid.as_raw() + 1);
        assert!(private(&user.name, user.gid, &[]) && private(&user.name, user.gid, &[&user.name]));
        assert!(!private("users", user.gid, &[]) && !private(&user.name, other, &[]));
        assert!(!private(&user.name, user.gid, &[&user.name, "somebody"]));
        let settings = Settings::new();
        settings.write("");
        if is_own_group(user.gid) {
            set_mode(&settings.file(), 0o664);
            set_mode(&settings.directory(), 0o775);
            assert_eq!(settings.read(), Ok(Some(String::new())));
        }
    }

    /// Opening a FIFO without a writer would block: the test would not end.
    #[test]
    fn a_named_file_is_regular_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scope");
        mkfifo(&path, Mode::S_IRUSR).unwrap();
        assert_eq!(read_named(&path, 1), Err(FileFault::NotRegular));
        fs::remove_file(&path).unwrap();
        assert_eq!(read_named(&path, 1), Err(Errno::ENOENT.into()));
        fs::write(&path, "xy").unwrap();
        set_mode(&path, 0o666);
        assert_eq!(read_named(&path, 2), Ok("xy".into()));
        assert_eq!(read_named(&path, 1), Err(FileFault::TooLarge { max: 1 }));
    }

    #[test]
    fn policy_file_of_another_owner_is_refused() {
        let root_only = geteuid().is_root();
        if !root_only {
            eprintln!("only root gives files away: not tried");
            return;
        }
        let settings = Settings::new();
        settings.write("");
        chown(&settings.file(), Some(Uid::from_raw(12_345)), None).unwrap();
        assert_eq!(
            settings.read(),
            Err(FileFault::Owner {
                directory: false,
                owner: 12_345
            })
        );
        chown(&settings.directory(), Some(Uid::from_raw(12_345)), None).unwrap();
        assert_eq!(
            settings.read(),
            Err(FileFault::Owner {
                directory: true,
                owner: 12_345
            })
        );
    }

    /// Opening a FIFO without a writer would block: the test would not end.
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
        assert_eq!(settings.read(), Err(FileFault::TooLarge { max: FILE_MAX }));
        settings.write(b"\xff");
        assert_eq!(settings.read(), Err(FileFault::Encoding));
    }
}
