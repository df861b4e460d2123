//! Names that a call has made, moved or opened to change among those that programs outside act on: looked at once more, as
//! objects, when the call is over.

use crate::caller::PATH_ONLY;
use crate::object::errno;
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, fstat, fstatat};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};

/// Most directories with such names in one call, of which each is a descriptor. A clone has three.
const DIRECTORIES_MAX: usize = 256;
/// Most names in one of them.
const NAMES_MAX: usize = 1024;

/// How much of what has a name is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extent {
    /// The name alone: what lies below it has come about by calls of its own.
    Name,
    /// All that lies below it too, as it was moved with it.
    Below,
}

/// Names in one directory. A descriptor leads there whatever is moved above it.
pub struct MadeIn {
    pub directory: OwnedFd,
    id: (u64, u64),
    pub names: BTreeMap<OsString, Extent>,
}

/// The names of one call, by directory.
#[derive(Default)]
pub struct MadeNames(RefCell<Vec<MadeIn>>);

impl MadeNames {
    /// Adds a name, with how much is looked at.
    ///
    /// # Errors
    /// `ENOSPC` where there are too many: what is not looked at later may not be.
    pub fn add(&self, directory: &OwnedFd, name: &OsStr, extent: Extent) -> Result<()> {
        let stat = fstat(directory)?;
        let (id, mut all) = ((stat.st_dev, stat.st_ino), self.0.borrow_mut());
        let at = match all.iter().position(|made| made.id == id) {
            Some(at) => at,
            None => {
                if all.len() >= DIRECTORIES_MAX {
                    all.retain_mut(MadeIn::forget_gone);
                }
                if all.len() >= DIRECTORIES_MAX {
                    return Err(Errno::ENOSPC);
                }
                let directory = directory.try_clone().map_err(errno)?;
                all.push(MadeIn { directory, id, names: BTreeMap::new() });
                all.len() - 1
            }
        };
        let made = &mut all[at];
        if made.names.len() >= NAMES_MAX {
            made.forget_gone();
        }
        if made.names.len() >= NAMES_MAX {
            return Err(Errno::ENOSPC);
        }
        let known = made.names.entry(name.to_owned()).or_insert(extent);
        *known = extent.max(*known);
        Ok(())
    }

    /// All of them, which it forgets.
    pub fn take(&self) -> Vec<MadeIn> {
        self.0.take()
    }
}

impl MadeIn {
    /// Forgets the names that are gone; whether there are others.
    fn forget_gone(&mut self) -> bool {
        let Self { directory, names, .. } = self;
        let is_there = |name: &OsStr| fstatat(&*directory, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok();
        names.retain(|name, _| is_there(name));
        !names.is_empty()
    }
}

/// What has a name in a directory, as a path: a link itself where it is one.
pub fn open_path(parent: impl AsFd, name: &OsStr) -> Result<OwnedFd> {
    openat(parent, name, PATH_ONLY | OFlag::O_NOFOLLOW, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn names_that_are_gone_make_room_and_no_other_do() {
        let folder = tempfile::tempdir().unwrap();
        let directory = OwnedFd::from(File::open(folder.path()).unwrap());
        let made = MadeNames::default();
        let add = |name: &str| made.add(&directory, OsStr::new(name), Extent::Name);
        for number in 0..NAMES_MAX {
            fs::write(folder.path().join(number.to_string()), "").unwrap();
            add(&number.to_string()).unwrap();
        }
        assert_eq!(add("more"), Err(Errno::ENOSPC));
        fs::remove_file(folder.path().join("7")).unwrap();
        add("more").unwrap();
        assert_eq!(made.take().iter().map(|made| made.names.len()).collect::<Vec<_>>(), [NAMES_MAX]);
    }

    #[test]
    fn so_many_directories_are_looked_at_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let made = MadeNames::default();
        let add = |number: usize| {
            let path = folder.path().join(number.to_string());
            fs::create_dir_all(path.join("x")).unwrap();
            made.add(&File::open(path).unwrap().into(), OsStr::new("x"), Extent::Below)
        };
        (0..DIRECTORIES_MAX).for_each(|number| add(number).unwrap());
        assert_eq!(add(DIRECTORIES_MAX), Err(Errno::ENOSPC));
        fs::remove_dir(folder.path().join("3/x")).unwrap();
        add(DIRECTORIES_MAX).unwrap();
        add(DIRECTORIES_MAX).unwrap();
        assert_eq!(made.take().len(), DIRECTORIES_MAX);
    }
}
