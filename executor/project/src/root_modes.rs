//! In the broker: the modes, groups and access lists of a session's roots and of granted trees, which no call changes.
//!
//! A command that closes a root (`chmod 0 .`) would keep the next session from opening; one that opens it would let other users of the
//! machine in, to what is hidden from the command itself. In the namespaced tier nothing supervises `chmod`, so what a call has changed is
//! given back when it has ended, in both tiers. What the user changes while no command runs is the user's.
//!
//! Directories granted for writing are covered like the roots, as long as somebody holds them.
//!
//! *Does not*: tell what the user changes while a command runs from what the command does; cover directories below these.

use broker_protocol::{Finding, FindingKind};
use executor_spec::sandbox::Rooted;
use executor_sys::errno::errno;
use executor_sys::file;
use executor_sys::file::open_without_links;
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat, fstat};
use nix::unistd::{Gid, fchownat};
use std::any::Any;
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Weak;

/// The access lists of a directory: its own, and the one that new files in it get.
const LISTS: [&CStr; 2] = [c"system.posix_acl_access", c"system.posix_acl_default"];
/// Number of directories above which those are forgotten that nobody holds any more, even while commands run.
const COVERED_MAX: usize = 256;
/// Bits of a mode that `chmod` changes.
const BITS: libc::mode_t = 0o7777;

/// The roots of a session, and the directories granted for writing.
#[derive(Debug)]
pub struct RootModes(Vec<RootWithMode>);

#[derive(Debug)]
struct RootWithMode {
    path: PathBuf,
    directory: OwnedFd,
    is: RootMode,
    /// The guard that keeps it granted, if it is none of the session's own.
    held: Option<Weak<dyn Any>>,
    /// When its metadata had last changed: if it has not since, nothing below has.
    changed: (i64, i64),
}

/// Who may do what with a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RootMode {
    mode: libc::mode_t,
    group: libc::gid_t,
    lists: [Option<Vec<u8>>; 2],
}

impl RootModes {
    /// The roots of a session, and its repository if that lies elsewhere, as they are now.
    pub fn of(spec: &Rooted) -> Self {
        let linked = spec
            .linked
            .iter()
            .flat_map(|linked| [&linked.common, &linked.own]);
        let paths: BTreeSet<&PathBuf> = [&spec.project, &spec.central]
            .into_iter()
            .chain(linked)
            .collect();
        Self(
            paths
                .into_iter()
                .filter_map(|path| RootWithMode::of(path).ok())
                .collect(),
        )
    }

    /// Covers a directory that is granted for writing, as it is now, as long as somebody holds it.
    pub fn cover(&mut self, path: &Path, held: Weak<dyn Any>) {
        if self.0.len() >= COVERED_MAX {
            self.0.retain(RootWithMode::is_held);
        }
        if let Ok(root) = RootWithMode::of(path) {
            self.0
                .retain(|known| known.held.is_none() || known.path != root.path);
            self.0.push(RootWithMode {
                held: Some(held),
                ..root
            });
        }
    }

    /// Takes them as they are now: no command has run since the last check.
    pub(crate) fn take(&mut self) {
        self.0.retain(RootWithMode::is_held);
        for root in &mut self.0 {
            if let Ok(Some((is, changed))) = root.now() {
                (root.is, root.changed) = (is, changed);
            }
        }
    }

    /// Gives back what commands have changed; returns what is reported of it.
    pub(crate) fn give_back(&mut self) -> Vec<Finding> {
        self.0
            .iter_mut()
            .filter_map(RootWithMode::give_back)
            .collect()
    }
}

impl RootWithMode {
    fn of(path: &Path) -> Result<Self> {
        let directory = open_without_links(path)?;
        let is = RootMode {
            mode: 0,
            group: 0,
            lists: [None, None],
        };
        let mut root = Self {
            path: path.to_owned(),
            directory,
            is,
            held: None,
            changed: (i64::MIN, 0),
        };
        if let Some((is, changed)) = root.now()? {
            (root.is, root.changed) = (is, changed);
        }
        Ok(root)
    }

    fn is_held(&self) -> bool {
        self.held
            .as_ref()
            .is_none_or(|held| held.strong_count() > 0)
    }

    fn by_descriptor(&self) -> Result<CString> {
        CString::new(format!("/proc/self/fd/{}", self.directory.as_raw_fd()))
            .map_err(|_| Errno::EINVAL)
    }

    /// How it is, and when it changed; `None` if it has not changed.
    fn now(&self) -> Result<Option<(RootMode, (i64, i64))>> {
        let stat = fstat(&self.directory)?;
        let changed = (stat.st_ctime, stat.st_ctime_nsec);
        // Within a tick of the kernel's clock it may change again without a trace: the mode is here, the lists are read again.
        let mode = stat.st_mode & BITS;
        if changed == self.changed
            && (mode, stat.st_gid) == (self.is.mode, self.is.group)
            && !is_recent(changed)
        {
            return Ok(None);
        }
        let path = self.by_descriptor()?;
        let list = |name| file::attribute(&path, name).map_err(errno);
        let lists = [list(LISTS[0])?, list(LISTS[1])?];
        Ok(Some((
            RootMode {
                mode,
                group: stat.st_gid,
                lists,
            },
            changed,
        )))
    }

    fn give_back(&mut self) -> Option<Finding> {
        let (now, changed) = match self.now() {
            Ok(now) => now?,
            Err(errno) => {
                return Some(self.finding(format!("it cannot be looked at: {}", errno.desc())));
            }
        };
        if now == self.is {
            self.changed = changed;
            return None;
        }
        let what = self.is.differences(&now);
        let done = match self.restore(&now) {
            Ok(()) => format!("{what}; given back"),
            Err(errno) => format!("{what}; could NOT be given back: {}", errno.desc()),
        };
        // What this has changed is no command's.
        self.changed =
            fstat(&self.directory).map_or(changed, |stat| (stat.st_ctime, stat.st_ctime_nsec));
        Some(self.finding(done))
    }

    fn restore(&self, now: &RootMode) -> Result<()> {
        let path = self.by_descriptor()?;
        if now.group != self.is.group {
            fchownat(
                &self.directory,
                "",
                None,
                Some(Gid::from_raw(self.is.group)),
                AtFlags::AT_EMPTY_PATH,
            )?;
        }
        for ((name, now), was) in LISTS.into_iter().zip(&now.lists).zip(&self.is.lists) {
            match was {
                _ if now == was => Ok(()),
                Some(list) => file::set_attribute(&path, name, list, 0),
                None => file::remove_attribute(&path, name),
            }
            .map_err(errno)?;
        }
        // Last: the lists and the group change the mode too.
        fchmodat(
            AT_FDCWD,
            path.as_c_str(),
            Mode::from_bits_truncate(self.is.mode),
            FchmodatFlags::FollowSymlink,
        )
    }

    fn finding(&self, state: String) -> Finding {
        let why =
            "A command changed who may use this directory, a root of the session or granted to it.";
        Finding::new(FindingKind::RootMode, self.path.to_string_lossy(), why).with_state(state)
    }
}

impl RootMode {
    fn differences(&self, now: &Self) -> String {
        let mode = format!("its mode from {:04o} to {:04o}", self.mode, now.mode);
        let group = format!("its group from {} to {}", self.group, now.group);
        let all = [
            (self.mode != now.mode).then_some(mode),
            (self.group != now.group).then_some(group),
            (self.lists != now.lists).then(|| "its access list".to_owned()),
        ];
        all.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

fn is_recent((seconds, nanoseconds): (i64, i64)) -> bool {
    super::created_record::is_recent(&[0, 0, 0, 0, 0, seconds, nanoseconds])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn root_mode_changed_by_a_call_is_restored_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        let chmod = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & BITS;
        chmod(0o700);
        let mut modes = RootModes(vec![RootWithMode::of(&path).unwrap()]);
        assert!(modes.give_back().is_empty());
        fs::write(path.join("file"), "").unwrap();
        assert!(
            modes.give_back().is_empty(),
            "a new file is no change of these"
        );
        chmod(0o777);
        let said = modes.give_back();
        assert_eq!((said.len(), mode()), (1, 0o700));
        assert!(
            said[0]
                .to_string()
                .contains("from 0700 to 0777; given back"),
            "{}",
            said[0]
        );
        assert!(modes.give_back().is_empty());
        chmod(0);
        assert_eq!((modes.give_back().len(), mode()), (1, 0o700));
        chmod(0o750);
        modes.take();
        assert!(
            modes.give_back().is_empty() && mode() == 0o750,
            "the user's"
        );
    }
}
