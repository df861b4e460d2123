//! A path that a call requests: opened as an object for the question, and compared with what lies at the path when it is used.

use broker_protocol::{Leased, Refused};
use executor_layers::leased_mounts::{LEASED_PINS_MAX, LeasedMount};
use executor_layers::zone_leases::{NotLeasable, ZoneFile};
use executor_project::discovery::discover_leased;
use executor_project::git_settings::NamedPath;
use executor_project::protected::{Discovery, LEASED_ENTRIES_MAX, ProtectError};
use executor_spec::known_directories::KnownDirectories;
use executor_spec::pins::Pin;
use executor_spec::protected_objects::{ObjectId, ProtectedObjects};
use executor_sys::file::open_without_links;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{FileStat, Mode, fstat, lstat};
use nix::sys::statfs::fstatfs;
use policies::leases::LeaseError;
use policies::network::LEASE_RULE;
use policies::{Access, EffectivePolicy, PolicyError};
use policies_guard::{Matcher, Protection};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Kernel pseudo file systems: writing there acts on the kernel, and reading reveals other processes.
const KERNELS: [i64; 9] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0xcafe_4a11, // bpf
    0x1cd1,      // devpts
];

/// Which paths may be leased in a session.
pub struct Places<'a> {
    /// The policy of the session.
    pub policy: &'a EffectivePolicy,
    /// Why a path may not be leased with this access, whatever lies there.
    pub closed: &'a dyn Fn(&Path, Access) -> Option<String>,
    /// Whether every command can read it already.
    pub is_shown: &'a dyn Fn(&Path) -> bool,
    pub in_zone: &'a InZone<'a>,
}

/// Finds the file that a lease with this access would open at a path, if it lies in a zone; or why it may not be opened.
pub(crate) type InZone<'a> = dyn Fn(&Path, Access) -> Result<Option<ZoneFile>, NotLeasable> + 'a;

/// A requested path, and the object there.
#[derive(Debug)]
pub struct LeasedPath {
    path: PathBuf,
    access: Access,
    object: OwnedFd,
    id: (u64, u64),
    /// Device and inode of each directory above it.
    above: Vec<(u64, u64)>,
    directory: bool,
    in_zone: Option<ZoneFile>,
}

/// A leased path, with the protected objects in it.
#[derive(Debug)]
pub struct HeldPath {
    leased: LeasedPath,
    pins: Vec<Pin>,
    objects: ProtectedObjects,
    directories: KnownDirectories,
}

impl Places<'_> {
    /// Opens the object at this path, if it may be leased.
    ///
    /// # Errors
    /// It may not be leased, whoever approves, or cannot be opened.
    pub(crate) fn open(
        &self,
        access: Access,
        text: &str,
        names: &Matcher,
    ) -> Result<LeasedPath, Refused> {
        let refuse = |why: String| refused(text, &why);
        let in_zone = (self.in_zone)(Path::new(text), access);
        let in_zone = in_zone.map_err(|error| refuse(error.to_string()))?;
        let path = match &in_zone {
            Some(_) => self.policy.may_lease_in_zone(access, text),
            None => self.policy.may_lease(access, text, names),
        };
        let path = path.map_err(|error: LeaseError| refuse(error.to_string()))?;
        let closed = match in_zone {
            Some(_) => None,
            None => (self.closed)(&path, access),
        };
        if let Some(why) = closed {
            return Err(refuse(why));
        }
        let object = open_without_links(&path).map_err(|errno| match errno {
            Errno::ELOOP => refuse("its path contains a link; request the real path".to_owned()),
            errno => refuse(errno.desc().to_owned()),
        })?;
        let stat = fstat(&object).map_err(|errno| refuse(errno.desc().to_owned()))?;
        if is_of_the_kernel(&object).map_err(|errno| refuse(errno.desc().to_owned()))? {
            return Err(refuse(
                "it lies on a file system of the kernel, such as /proc".to_owned(),
            ));
        }
        if let Some(why) = unfit(&stat, access, in_zone.as_ref()) {
            return Err(refuse(why.to_owned()));
        }
        match mounted_below(&path) {
            Ok(None) => {}
            Ok(Some(mount)) => {
                let mount = mount.to_string_lossy();
                return Err(refuse(format!(
                    "{} is mounted in it; request a directory without mounts",
                    mount.escape_debug()
                )));
            }
            Err(error) => {
                return Err(refuse(format!(
                    "the mounts below it cannot be read: {error}"
                )));
            }
        }
        let above = path.ancestors().skip(1).map(|above| Ok(id(&lstat(above)?)));
        let above = above
            .collect::<nix::Result<_>>()
            .map_err(|errno| refuse(errno.desc().to_owned()))?;
        let directory = kind(&stat) == libc::S_IFDIR;
        Ok(LeasedPath {
            path,
            access,
            object,
            id: id(&stat),
            above,
            directory,
            in_zone,
        })
    }
}

fn refused(text: &str, why: &str) -> Refused {
    // A path that cannot be displayed is not leased.
    let shown: String = text
        .chars()
        .take(200)
        .flat_map(char::escape_debug)
        .collect();
    Refused {
        rule: LEASE_RULE.to_owned(),
        why: format!("{shown} cannot be granted: {why}"),
        violation: false,
    }
}

/// Opens the object of a descriptor again, which may be one to a path alone.
fn reopen(object: BorrowedFd, flags: OFlag) -> nix::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", object.as_raw_fd());
    open(path.as_str(), flags | OFlag::O_CLOEXEC, Mode::empty())
}

fn kind(stat: &FileStat) -> libc::mode_t {
    stat.st_mode & libc::S_IFMT
}

fn id(stat: &FileStat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// A mount below `path`, if there is one. In the flat tier it would be granted with it; where cells
/// have mounts, the kernel clones no tree that would reveal what another user's mount hides.
fn mounted_below(path: &Path) -> io::Result<Option<PathBuf>> {
    let table = fs::read("/proc/self/mountinfo")?;
    let points = table
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    Ok(points
        .map(unescaped)
        .find(|point| point != path && point.starts_with(path)))
}

/// Decodes a path of proc_pid_mountinfo(5), where blanks and backslashes are octal numbers.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| str::from_utf8(digits).ok());
        let byte = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[3..] } else { after };
    }
    OsStr::from_bytes(&bytes).into()
}

/// Those of `all` that no other covers. The cell gets only these: a later mount would hide what the first one closes.
pub(crate) fn outermost<T>(all: Vec<T>, path: impl Fn(&T) -> &LeasedPath) -> Vec<T> {
    let covers = |by: &LeasedPath, one: &LeasedPath| by.covers(one.access, &one.path);
    let covered = |at: usize| {
        let one = path(&all[at]);
        let others = all.iter().map(&path).enumerate();
        others
            .into_iter()
            .any(|(other, by)| covers(by, one) && (other < at || !covers(one, by)))
    };
    let covered: Vec<_> = (0..all.len()).map(covered).collect();
    all.into_iter()
        .zip(covered)
        .filter(|(_, covered)| !covered)
        .map(|(one, _)| one)
        .collect()
}

/// Whether a file is on a kernel pseudo file system, wherever that is mounted.
fn is_of_the_kernel(object: &OwnedFd) -> nix::Result<bool> {
    Ok(KERNELS.contains(&fstatfs(object)?.filesystem_type().0))
}

/// Why the object there cannot be leased.
fn unfit(stat: &FileStat, access: Access, in_zone: Option<&ZoneFile>) -> Option<&'static str> {
    match (kind(stat), access) {
        (libc::S_IFDIR, _) if in_zone.is_none() => None,
        (libc::S_IFDIR, _) => Some("it is a directory; request the file in it"),
        (libc::S_IFLNK, _) => Some("it is a link; request its target"),
        (libc::S_IFREG, Access::Write) if in_zone.is_none() => {
            Some("only a directory can be granted for writing")
        }
        (libc::S_IFREG, _) if stat.st_nlink == 1 => match in_zone {
            Some(ZoneFile::Masked(when_opened)) if *when_opened != id(stat) => {
                Some("another file lies there than when the session opened")
            }
            Some(_) | None => None,
        },
        (libc::S_IFREG, _) => Some(
            "the file has other names (hard links), which may be protected; request the directory that contains it",
        ),
        (_, Access::Write) => Some("only a directory can be granted for writing"),
        (_, Access::Read) => Some("it is neither a directory nor a regular file"),
    }
}

impl LeasedPath {
    /// Its path as the kernel spells it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The access that commands get.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Device and inode, for the digest of the question.
    pub fn id(&self) -> [u8; 16] {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.id.0.to_le_bytes());
        id[8..].copy_from_slice(&self.id.1.to_le_bytes());
        id
    }

    /// Describes it in words for the question.
    pub fn describe(&self) -> String {
        let path = self.path.display();
        match (self.access, self.directory) {
            (Access::Read, true) => format!("read the directory {path} with all below it"),
            (Access::Read, false) => match self.in_zone {
                Some(_) => format!("read the secrets in {path} instead of placeholders"),
                None => format!("read the file {path}"),
            },
            (Access::Write, false) => format!("change the file {path}{}", self.why_closed()),
            (Access::Write, true) => format!("write in the directory {path} and all below it"),
        }
    }

    /// Whether its path still leads to the object in the question, and to no more. The object is held open, so no other has its inode.
    pub(crate) fn is_unchanged(&self) -> bool {
        let stat = open_without_links(&self.path).and_then(fstat);
        stat.is_ok_and(|stat| id(&stat) == self.id)
            && mounted_below(&self.path).is_ok_and(|mount| mount.is_none())
    }

    /// Opens the object to read and change it, if it is a file that has no other name by now.
    ///
    /// # Errors
    /// It is not, or the kernel refuses.
    pub(crate) fn open_to_change(&self) -> Result<OwnedFd, Refused> {
        let refuse = |why: &str| refused(&self.path.to_string_lossy(), why);
        let kernel = |errno: Errno| refuse(errno.desc());
        if self.access != Access::Write {
            return Err(refuse("it is granted for reading only"));
        }
        let file = reopen(self.object.as_fd(), OFlag::O_RDWR).map_err(kernel)?;
        let stat = fstat(&file).map_err(kernel)?;
        match unfit(&stat, self.access, self.in_zone.as_ref()) {
            Some(why) => Err(refuse(why)),
            None => Ok(file),
        }
    }

    /// Checks that this and `other`, neither of which covers the other, may be in one cell: not if
    /// one lies in the other, by its path or as the same object elsewhere.
    ///
    /// # Errors
    /// They may not be in one cell.
    pub(crate) fn check_beside(&self, other: &Self) -> Result<(), Refused> {
        let covers = |by: &Self, one: &Self| by.covers(one.access, &one.path);
        if covers(self, other) || covers(other, self) {
            return Ok(());
        }
        let holds = |outer: &Self, inner: &Self| {
            inner.path.starts_with(&outer.path)
                || inner.id == outer.id
                || inner.above.contains(&outer.id)
        };
        if holds(self, other) || holds(other, self) {
            let other = other.path.display();
            let why = format!(
                "it overlaps {other}, which is granted with other access; request a directory that contains both"
            );
            return Err(refused(&self.path.to_string_lossy(), &why));
        }
        Ok(())
    }

    /// Why commands may not change it otherwise, as the end of a sentence.
    fn why_closed(&self) -> String {
        match &self.in_zone {
            Some(ZoneFile::Named(why)) => format!(" ({why})"),
            Some(ZoneFile::Masked(_)) | None => String::new(),
        }
    }

    /// Whether it is a file of a zone.
    pub fn is_in_zone(&self) -> bool {
        self.in_zone.is_some()
    }

    /// Device and inode of the object in the question.
    pub(crate) fn object_id(&self) -> ObjectId {
        self.id
    }

    /// What a lease of it grants.
    pub(crate) fn opens(&self) -> Leased {
        let path = self.path.to_string_lossy().into_owned();
        match self.access {
            Access::Read => Leased::Read(path),
            Access::Write => Leased::Write(path),
        }
    }

    /// Whether a lease of it gives `access` to `path`.
    pub fn covers(&self, access: Access, path: &Path) -> bool {
        self.access >= access && path.starts_with(&self.path)
    }

    /// Whether the user's git settings may name something in it that must stay closed.
    pub(crate) fn needs_settings(&self) -> bool {
        self.directory && self.access == Access::Write
    }

    /// Finds what is protected in it, with what `settings` names.
    ///
    /// # Errors
    /// `settings` fails, or there is more in it than a search may see.
    pub(crate) fn search(
        &self,
        names: &Matcher,
        settings: impl FnOnce(&ProtectedObjects) -> Result<BTreeSet<NamedPath>, ProtectError>,
    ) -> Result<Discovery, Refused> {
        if !self.directory {
            return Ok(Discovery::default());
        }
        let bounds = (LEASED_PINS_MAX, LEASED_ENTRIES_MAX);
        discover_leased(&self.path, names, bounds, settings)
            .map_err(|error| self.refuse(&error.to_string()))
    }

    /// The path as it is held once it is granted, with what was found in it.
    ///
    /// # Errors
    /// Something else lies there now.
    pub(crate) fn hold(self, found: Discovery) -> Result<HeldPath, Refused> {
        let Discovery {
            mut pins,
            mut objects,
            directories,
            ..
        } = found;
        let hidden = pins.iter().filter(|pin| pin.is_hidden());
        objects
            .places
            .extend(hidden.map(|pin| (pin.path.clone(), Protection::All)));
        if self.access == Access::Read {
            pins.retain(Pin::is_hidden);
        }
        // The search went by its path, which may have changed.
        if !self.is_unchanged() {
            return Err(self.refuse("another file lies there now"));
        }
        Ok(HeldPath {
            leased: self,
            pins,
            objects,
            directories,
        })
    }

    pub(crate) fn refuse(&self, why: &str) -> Refused {
        refused(&self.path.to_string_lossy(), why)
    }
}

impl HeldPath {
    /// The path and its object, as they were opened.
    pub fn leased(&self) -> &LeasedPath {
        &self.leased
    }

    /// Its mount in a cell.
    pub(crate) fn mount(&self) -> LeasedMount {
        let LeasedPath {
            path, access, id, ..
        } = &self.leased;
        LeasedMount {
            path: path.clone(),
            access: *access,
            id: *id,
            pins: self.pins.clone(),
        }
    }

    /// Whether a cell with this lease sees what is at `path`.
    pub fn shows(&self, path: &Path) -> bool {
        path.starts_with(&self.leased.path) && !self.pins.iter().any(|pin| pin.hides(path))
    }

    /// The object at the path.
    pub(crate) fn object(&self) -> BorrowedFd<'_> {
        self.leased.object.as_fd()
    }

    /// The protected objects in it.
    pub fn objects(&self) -> ProtectedObjects {
        self.objects.clone()
    }

    /// The directories that are in it.
    pub fn directories(&self) -> KnownDirectories {
        self.directories.clone()
    }
}

/// The names that stay closed in leased paths.
///
/// # Errors
/// They cannot be compiled.
pub(crate) fn names(policy: &EffectivePolicy) -> Result<Matcher, Refused> {
    policy.lease_names().map_err(|error: PolicyError| Refused {
        rule: LEASE_RULE.to_owned(),
        why: error.to_string(),
        violation: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use policies::{Host, Policies};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    struct Fixture {
        folder: tempfile::TempDir,
        policy: EffectivePolicy,
    }

    impl Fixture {
        fn new() -> Self {
            let host = Host {
                home: "/nonexistent/home".into(),
                ..Host::default()
            };
            let policy = Policies::load(vec![])
                .unwrap()
                .resolve("default", &host)
                .unwrap();
            Self {
                folder: tempfile::tempdir().unwrap(),
                policy,
            }
        }

        fn path(&self, name: &str) -> PathBuf {
            fs::canonicalize(self.folder.path()).unwrap().join(name)
        }

        fn open(&self, access: Access, path: &Path) -> Result<LeasedPath, Refused> {
            let places = Places {
                policy: &self.policy,
                closed: &|_, _| None,
                is_shown: &|_| false,
                in_zone: &|_, _| Ok(None),
            };
            places.open(
                access,
                path.to_str().unwrap(),
                &names(&self.policy).unwrap(),
            )
        }

        fn why(&self, access: Access, path: &Path) -> String {
            self.open(access, path).unwrap_err().why
        }
    }

    #[test]
    fn only_plain_files_and_directories_are_granted() {
        let fixture = Fixture::new();
        let [file, other, folder, link, pipe, socket] =
            ["file", "other", "folder", "link", "pipe", "socket"].map(|name| fixture.path(name));
        fs::write(&file, "x").unwrap();
        fs::create_dir(&folder).unwrap();
        assert!(
            fixture.open(Access::Read, &file).is_ok()
                && fixture.open(Access::Read, &folder).is_ok()
        );
        assert!(fixture.open(Access::Write, &folder).is_ok());
        assert!(
            fixture
                .why(Access::Write, &file)
                .contains("only a directory")
        );
        fs::hard_link(&file, &other).unwrap();
        assert!(fixture.why(Access::Read, &file).contains("other names"));
        symlink(&folder, &link).unwrap();
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        assert!(fixture.why(Access::Read, &link).contains("it is a link"));
        assert!(
            fixture
                .why(Access::Read, &link.join("x"))
                .contains("contains a link")
        );
        for special in [&pipe, &socket] {
            assert!(
                fixture.why(Access::Read, special).contains("neither"),
                "{special:?}"
            );
            assert!(
                fixture
                    .why(Access::Write, special)
                    .contains("only a directory"),
                "{special:?}"
            );
        }
        let kernels = |path: &Path| is_of_the_kernel(&open_without_links(path).unwrap()).unwrap();
        assert!(
            kernels(Path::new("/proc/version")) && kernels(Path::new("/sys")) && !kernels(&file)
        );
        assert!(
            fixture
                .why(Access::Read, &fixture.path("none"))
                .contains("No such file")
        );
    }

    #[test]
    fn object_in_place_of_a_leased_one_is_another_even_with_its_inode() {
        let fixture = Fixture::new();
        let folder = fixture.path("folder");
        for _ in 0..20 {
            fs::create_dir(&folder).unwrap();
            let leased = fixture.open(Access::Read, &folder).unwrap();
            assert!(leased.is_unchanged());
            fs::remove_dir(&folder).unwrap();
            fs::create_dir(&folder).unwrap();
            assert!(!leased.is_unchanged());
            fs::remove_dir(&folder).unwrap();
            symlink("/usr", &folder).unwrap();
            assert!(!leased.is_unchanged());
            fs::remove_file(&folder).unwrap();
        }
    }

    #[test]
    fn keys_below_it_are_found_wherever_it_begins() {
        let fixture = Fixture::new();
        for name in [
            ".config/gcloud/key",
            ".config/app/settings",
            ".config/app/.env",
        ] {
            fs::create_dir_all(fixture.path(name).parent().unwrap()).unwrap();
            fs::write(fixture.path(name), "x").unwrap();
        }
        let leased = fixture
            .open(Access::Read, &fixture.path(".config"))
            .unwrap();
        let names = names(&fixture.policy).unwrap();
        let found = leased.search(&names, |_| Ok(BTreeSet::new())).unwrap();
        let held = leased.hold(found).unwrap();
        let closed = |name: &str| {
            held.objects().protection_of_place(&fixture.path(name)) == Some(Protection::All)
        };
        assert!(
            closed(".config/gcloud") && closed(".config/gcloud/key") && closed(".config/app/.env")
        );
        assert!(!closed(".config/app/settings"));
        assert_eq!(held.mount().pins.len(), 2);
    }

    #[test]
    fn nested_paths_reduce_to_the_outermost() {
        let fixture = Fixture::new();
        let path = |name: &str| fixture.path(name);
        fs::create_dir_all(path("a/b")).unwrap();
        fs::create_dir(path("c")).unwrap();
        let (read, write) = (Access::Read, Access::Write);
        let left = |all: &[(Access, &str)]| -> Vec<usize> {
            let open =
                |(access, name): &(Access, &str)| fixture.open(*access, &path(name)).unwrap();
            let all: Vec<_> = all.iter().map(open).enumerate().collect();
            outermost(all, |(_, path)| path)
                .into_iter()
                .map(|(at, _)| at)
                .collect()
        };
        assert_eq!(left(&[(read, "a/b"), (read, "a"), (read, "c")]), [1, 2]);
        assert_eq!(left(&[(read, "a"), (write, "a"), (write, "a")]), [1]);
        assert_eq!(left(&[(read, "a"), (write, "a/b")]), [0, 1]);
        let beside = |one: PathBuf, other: PathBuf| {
            fixture
                .open(write, &one)
                .unwrap()
                .check_beside(&fixture.open(read, &other).unwrap())
        };
        assert!(beside(path("a"), path("a/b")).is_ok() && beside(path("a"), path("c")).is_ok());
        assert!(
            beside(path("a/b"), path("a"))
                .unwrap_err()
                .why
                .contains("granted with other access")
        );
    }

    #[test]
    fn mounts_are_found_by_paths_as_the_kernel_writes_them() {
        assert_eq!(unescaped(b"/a\\040b\\134x\\011"), Path::new("/a b\\x\t"));
        assert_eq!(unescaped(b"/a\\9\\04"), Path::new("/a\\9\\04"));
        assert_eq!(mounted_below(&Fixture::new().path("")).unwrap(), None);
        assert!(mounted_below(Path::new("/")).unwrap().is_some());
    }
}
