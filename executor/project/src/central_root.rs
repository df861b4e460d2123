//! Makes roots usable again that commands have closed or filled: what a command does may not keep the next session from opening.
//!
//! In a central root only commands and Lazaret work, and the user rarely looks. In a project root commands can make any number of files
//! with protected names that are open when new, such as `.env.1`, directories that hold them, and repositories; of too many, the newest
//! are set aside.

use crate::discovery;
use executor_spec::also_closed::{AlsoClosed, WhyClosed};
use executor_spec::birth_time::born;
use executor_spec::undo_directory::{self, QUARANTINE};
use executor_sys::file::open_without_links;
use executor_sys::random;
use nix::errno::Errno;
use nix::fcntl::{
    AT_FDCWD, AtFlags, OFlag, OpenHow, RenameFlags, ResolveFlag, openat, openat2, renameat2,
};
use nix::sys::stat::{FchmodatFlags, Mode, fchmod, fchmodat, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};
use policies_guard::Matcher;
use std::collections::BTreeMap;
use std::ffi::OsStr;
#[cfg(test)]
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Gives its owner, this user, all access to a central root. Returns what was done, if it was needed.
pub fn unlock(central: &Path) -> Option<AlsoClosed> {
    let directory = open_without_links(central).ok()?;
    let stat = fstat(&directory).ok()?;
    let mode = Mode::from_bits_truncate(stat.st_mode & 0o7777);
    if mode.contains(Mode::S_IRWXU) || stat.st_uid != geteuid().as_raw() {
        return None;
    }
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let follow = FchmodatFlags::FollowSymlink;
    fchmodat(AT_FDCWD, path.as_str(), mode | Mode::S_IRWXU, follow).ok()?;
    Some(AlsoClosed {
        path: central.to_owned(),
        why: WhyClosed::ModeGivenBack,
    })
}

/// Puts an empty directory in the place of a central root that has too many names of its own, with only Lazaret's records in it.
/// Returns what was done. It takes the same time however many names there are.
///
/// # Errors
/// The directory above it cannot be changed.
pub fn set_aside(central: &Path) -> io::Result<AlsoClosed> {
    let (parent, name) = central
        .parent()
        .zip(central.file_name())
        .ok_or(Errno::EINVAL)?;
    let parent_directory = open_without_links(parent)?;
    let number = u64::from_le_bytes(random::bytes()?);
    let mut aside = name.to_owned();
    aside.push(format!(".set-aside-{number:016x}"));
    mkdirat(&parent_directory, aside.as_os_str(), Mode::S_IRWXU)?;
    let exchange = RenameFlags::RENAME_EXCHANGE;
    if let Err(errno) = renameat2(
        &parent_directory,
        name,
        &parent_directory,
        aside.as_os_str(),
        exchange,
    ) {
        let _ = unlinkat(
            &parent_directory,
            aside.as_os_str(),
            UnlinkatFlags::RemoveDir,
        );
        return Err(errno.into());
    }
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let open = |name| openat(&parent_directory, name, flags, Mode::empty());
    let (old, new) = (open(aside.as_os_str())?, open(name)?);
    let own = undo_directory::NAME;
    if fstatat(&old, own, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok() {
        renameat2(&old, own, &new, own, RenameFlags::RENAME_NOREPLACE)?;
    }
    let there: PathBuf = parent.join(aside);
    Ok(AlsoClosed {
        path: central.to_owned(),
        why: WhyClosed::SetAside(there),
    })
}

/// Names directly in a project root that stay where they are, of those that commands may have made; the newer ones are set aside.
const STAYING: usize = 1024;

/// Moves the newest of what commands may have made directly in the project root, and what has to be pinned or holds such names, into a
/// directory that nobody can enter: in the quarantine of the central root, or in one of the project root if that is another file system.
/// Nothing that was there before the project's first session is moved. Returns what was done.
///
/// # Errors
/// There is not so much, or it cannot be moved.
pub fn set_aside_newest(project: &Path, central: &Path, names: &Matcher) -> io::Result<AlsoClosed> {
    let made = may_be_made([project, central], names)?;
    let newest = made.get(STAYING..).filter(|newest| !newest.is_empty());
    let newest = newest.ok_or(io::ErrorKind::InvalidInput)?;
    let from = open_without_links(project)?;
    let (to, there) = make_holder(&from, project, central)?;
    for name in newest.iter().filter_map(|path| path.file_name()) {
        let moved = || renameat2(&from, name, &to, name, RenameFlags::RENAME_NOREPLACE);
        // A directory is moved by who may write in it.
        moved().or_else(|errno| match errno {
            Errno::EACCES => open_to_owner(&from, name).and_then(|()| moved()),
            errno => Err(errno),
        })?;
    }
    fchmod(&to, Mode::empty())?;
    Ok(AlsoClosed {
        path: project.to_owned(),
        why: WhyClosed::SetAside(there),
    })
}

/// Gives its owner all access to a directory, wherever its name leads by now: not through a link.
fn open_to_owner(parent: &OwnedFd, name: &OsStr) -> nix::Result<()> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let directory = openat(parent, name, flags, Mode::empty())?;
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let follow = FchmodatFlags::FollowSymlink;
    fchmodat(AT_FDCWD, path.as_str(), Mode::S_IRWXU, follow)
}

/// Paths that have pins, or hold something that has, directly in the project root, where commands may have made it: what stays longest comes
/// first. That is what holds names that no command may create, as a repository does, and then what is older.
fn may_be_made([project, central]: [&Path; 2], names: &Matcher) -> io::Result<Vec<PathBuf>> {
    let found = discovery::discover([project, central], None, None, names, usize::MAX);
    let found = found.map_err(io::Error::other)?;
    let is_closed_when_new = |path: &Path| names.is_closed_when_new(path.as_os_str().as_bytes());
    let mut made: BTreeMap<PathBuf, bool> = BTreeMap::new();
    for pin in &found.pins {
        let below = pin.path.strip_prefix(project).ok();
        let Some((below, first)) = below.and_then(|path| Some((path, path.iter().next()?))) else {
            continue;
        };
        if !is_closed_when_new(Path::new(first)) {
            *made.entry(project.join(first)).or_default() |= is_closed_when_new(below);
        }
    }
    let first_session = born(&central.join(undo_directory::NAME));
    let mut made: Vec<(PathBuf, bool)> = made
        .into_iter()
        .filter(|(path, _)| born(path) > first_session && !central.starts_with(path))
        .collect();
    made.sort_by_cached_key(|(path, holds_closed)| (!holds_closed, born(path)));
    Ok(made.into_iter().map(|(path, _)| path).collect())
}

/// Makes the directory for what is set aside, and returns its path too.
fn make_holder(from: &OwnedFd, project: &Path, central: &Path) -> io::Result<(OwnedFd, PathBuf)> {
    let records = undo_directory::open(central).ok_or(Errno::ENOENT)?;
    let (root, records) = if fstat(from)?.st_dev == fstat(&records)?.st_dev {
        (central, records)
    } else {
        undo_directory::make(project);
        (project, undo_directory::open(project).ok_or(Errno::ENOENT)?)
    };
    let number = format!("{:016x}", u64::from_le_bytes(random::bytes()?));
    let holder = Path::new(QUARANTINE).join(number);
    match mkdirat(&records, QUARANTINE, Mode::S_IRWXU) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    mkdirat(&records, &holder, Mode::S_IRWXU)?;
    let beneath = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    let there = root.join(undo_directory::NAME).join(&holder);
    Ok((openat2(&records, &holder, beneath)?, there))
}

#[cfg(test)]
mod tests {
    use super::*;
    use policies_guard::{ProtectedName, Protection, WhenNew};
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    #[test]
    fn set_aside_files_lie_beside_the_central_root_and_records_stay() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let central = folder.join("c");
        fs::create_dir_all(central.join(".lazaret")).unwrap();
        fs::write(central.join(".lazaret/project"), "/p").unwrap();
        fs::write(central.join("x"), "").unwrap();
        let WhyClosed::SetAside(there) = set_aside(&central).unwrap().why else {
            panic!()
        };
        assert_eq!(fs::read(central.join(".lazaret/project")).unwrap(), b"/p");
        assert!(
            !central.join("x").exists()
                && there.join("x").exists()
                && !there.join(".lazaret").exists()
        );
        assert_eq!(there.parent(), Some(folder.as_path()));
    }

    #[test]
    fn files_older_than_the_first_session_are_not_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let [project, central] = ["p", "c"].map(|name| folder.join(name));
        let make = |name: String| {
            let path = project.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "s").unwrap();
        };
        // Longer than the tick of a clock by which files are born.
        let pause = || std::thread::sleep(Duration::from_millis(30));
        let protect = |(pattern, new): (&str, WhenNew)| ProtectedName {
            pattern: pattern.into(),
            protection: Protection::All,
            new,
            opens: false,
            except: vec![],
            why: String::new(),
            origin: Default::default(),
        };
        let names = [(".env", WhenNew::Open), ("hooks", WhenNew::Closed)].map(protect);
        let names = Matcher::new(&names).unwrap();
        (0..3).for_each(|n| make(format!("old{n}/.env")));
        pause();
        fs::create_dir_all(central.join(".lazaret")).unwrap();
        pause();
        (0..STAYING + 9).for_each(|n| make(format!("new{n}/.env")));
        pause();
        make("repository/hooks".to_owned());
        make("hooks".to_owned());
        let WhyClosed::SetAside(there) = set_aside_newest(&project, &central, &names).unwrap().why
        else {
            panic!()
        };
        fs::set_permissions(&there, Permissions::from_mode(0o700)).unwrap();
        let mut moved: Vec<_> = fs::read_dir(&there).unwrap().flatten().collect();
        assert_eq!(moved.len(), 10);
        moved.retain(|entry| !entry.path().join(".env").exists());
        assert!(moved.is_empty(), "{moved:?}");
        for name in ["old0", "old2", "repository", "hooks", "new0"] {
            assert!(project.join(name).exists(), "{name}");
        }
        assert!(set_aside_newest(&project, &central, &names).is_err());
    }

    #[test]
    fn a_closed_central_root_is_opened_for_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let central = folder.path().canonicalize().unwrap();
        assert_eq!(unlock(&central), None);
        fs::set_permissions(&central, Permissions::from_mode(0o010)).unwrap();
        assert!(unlock(&central).is_some());
        assert_eq!(
            fs::metadata(&central).unwrap().permissions().mode() & 0o7777,
            0o710
        );
    }
}
