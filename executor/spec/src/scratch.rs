//! A session's private storage: home, `/tmp` and the like, empty at first and gone at its end.

use broker_protocol::{Layer, LayerSet};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use policies::leads_into;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, DirEntry, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The paths at which cells see a session's private storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scratch {
    /// `HOME`.
    pub home: PathBuf,
    /// `TMPDIR`.
    pub tmp: PathBuf,
    /// The host directory that contains both, in the flat tier.
    pub host: Option<PathBuf>,
}

/// Private storage of a session that does not stand yet. Dropped before [`Self::retain`], it is removed, whatever the reason.
#[derive(Debug)]
#[must_use]
pub struct NewScratch {
    scratch: Scratch,
    is_kept: bool,
}

impl NewScratch {
    const fn new(scratch: Scratch) -> Self {
        Self {
            scratch,
            is_kept: false,
        }
    }

    /// Where it lies on the host, and where cells see it.
    pub const fn paths(&self) -> &Scratch {
        &self.scratch
    }

    /// Leaves it to whoever ends the session.
    pub fn retain(mut self) {
        self.is_kept = true;
    }
}

impl Drop for NewScratch {
    fn drop(&mut self) {
        if !self.is_kept {
            self.scratch.remove();
        }
    }
}

impl Scratch {
    /// In mounts of the session's own, or in a host directory that only the user can enter. `variable` gives those of the user's
    /// environment.
    ///
    /// # Errors
    /// No such directory can be made.
    pub fn make(
        layers: LayerSet,
        written: &[&Path],
        home: &Path,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> io::Result<NewScratch> {
        if layers.has(Layer::MountNamespace) {
            return Ok(NewScratch::new(Self {
                home: home.to_owned(),
                tmp: "/tmp".into(),
                host: None,
            }));
        }
        let host = host_directory(written, home, variable)?;
        let new = NewScratch::new(Self {
            home: host.join("home"),
            tmp: host.join("tmp"),
            host: Some(host),
        });
        let made = new.paths();
        let mut private = DirBuilder::new();
        private.mode(0o700);
        private.create(&made.home)?;
        private.create(&made.tmp)?;
        made.shared()
            .map_or(Ok(()), |shared| private.create(shared))?;
        Ok(new)
    }

    /// The directory that replaces `/dev/shm` where the session uses the machine's. The supervisor maps programs' paths to it.
    pub fn shared(&self) -> Option<PathBuf> {
        self.host.as_ref().map(|host| host.join("shm"))
    }

    /// Removes the private files on the host, as far as possible. Called by broker or warden, whichever lives
    /// longer: the files are the user's own, in a directory that nobody else can enter.
    pub fn remove(&self) {
        if let Some(host) = self
            .host
            .as_deref()
            .filter(|host| fs::remove_dir_all(host).is_err())
        {
            open_up(host);
            let _ = fs::remove_dir_all(host);
        }
    }
}

/// Gives the owner all rights to `top` and the directories below it, of which a command may have taken any.
fn open_up(top: &Path) {
    /// Nobody waits for more: what is left lies in a directory of the user's own.
    const DIRECTORIES_MAX: usize = 100_000;
    let mut left = vec![top.to_owned()];
    for _ in 0..DIRECTORIES_MAX {
        let Some(path) = left.pop() else { return };
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        // By a descriptor, as a mode is set through a link.
        let Ok(directory) = open(&path, flags, Mode::empty()) else {
            continue;
        };
        let by_descriptor = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let _ = fs::set_permissions(by_descriptor, Permissions::from_mode(0o700));
        let entries = fs::read_dir(&path).into_iter().flatten().flatten();
        let is_directory = |entry: &DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        left.extend(entries.filter(is_directory).map(|entry| entry.path()));
    }
}

/// Creates a directory in the first usual place where that works. None lies in `written`, where a cell could change it.
///
/// # Errors
/// It works in no place.
pub fn host_directory(
    written: &[&Path],
    home: &Path,
    variable: impl Fn(&str) -> Option<OsString>,
) -> io::Result<PathBuf> {
    let named = ["XDG_RUNTIME_DIR", "TMPDIR"]
        .into_iter()
        .filter_map(variable);
    let places = named
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        // The home last: in a container it may be all that can be written.
        .chain(["/tmp".into(), "/var/tmp".into(), home.to_owned()]);
    let (mut tried, mut last) = (Vec::new(), io::Error::from(io::ErrorKind::NotFound));
    for place in places.filter(|place| !leads_into(place, written)) {
        match nix::unistd::mkdtemp(&place.join("lazaret-XXXXXX")) {
            Ok(made) => return Ok(made),
            Err(errno) => last = errno.into(),
        }
        tried.push(place.display().to_string());
    }
    let message = format!(
        "no private directory can be made in {}: {last}; set TMPDIR or XDG_RUNTIME_DIR to a directory that may be written and lies in \
         none that commands write to",
        tried.join(", ")
    );
    Err(io::Error::new(last.kind(), message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zones::Zones;

    #[test]
    fn a_session_that_does_not_open_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let zones = Zones {
            project: folder.path().join("project"),
            central: folder.path().join("central"),
        };
        let place = folder.path().as_os_str().to_owned();
        let make = || {
            let variable = |name: &str| (name == "TMPDIR").then(|| place.clone());
            Scratch::make(
                LayerSet::default(),
                &zones.roots(),
                Path::new("/home"),
                variable,
            )
            .unwrap()
        };
        let there = || fs::read_dir(folder.path()).unwrap().count();
        let new = make();
        fs::write(new.paths().home.join("x"), "x").unwrap();
        assert_eq!(there(), 1);
        drop(new);
        assert_eq!(there(), 0);
        make().retain();
        assert_eq!(there(), 1);
    }
}
