//! Layer `mount-namespace`: a root that contains what the spec lists, and nothing else.
//!
//! *Guarantees*: a path that is not a view does not exist; system paths are read-only, and in zones set-user-ID
//! programs and devices have no effect; `/proc`, `/dev`, `/tmp`, home, `/run` and `/dev/shm` are the session's own;
//! protected names that exist are pinned with all their parents, over masked secrets their masks; an image is not changed, and grants no rights; a
//! command that the session's scope restricts to directories finds nothing else of the zones. *Does not*: stand alone:
//! Landlock is behind every mount, and refuses to change them. *Needs*: Linux 5.12 (`mount_setattr`) and a user
//! namespace with capabilities in it. *Order*: after the namespaces, before Landlock. *Fails*: the session opens in the
//! flat tier, and reports it. *Tested by*: `files_outside_stay_closed`, `the_shell_neither_reads_nor_changes_them`,
//! `a_command_reaches_only_the_paths_of_its_scope`, `an_image_is_not_changed`, corpus `FS-*`, `SEC-*`, `NS-*`.

use crate::home_files;
use crate::hosts_file;
use crate::namespaces;
use broker_protocol::{Layer, Zone};
use executor_spec::certificates::{MACHINE, MACHINE_JAVA};
use executor_spec::error::{At, Privilege, SetupError};
use executor_spec::pins::{Pin, PinMode};
use executor_spec::readable_secret::SecretView;
use executor_spec::sandbox::{SandboxSpec, View, ViewKind};
use executor_spec::undo_directory;
use executor_sys::mount::{
    move_mount, open_tree, open_tree_at, open_tree_of_link, set_attributes, set_attributes_of_tree,
};
use libc::{MOUNT_ATTR_NODEV, MOUNT_ATTR_NOSUID, MOUNT_ATTR_RDONLY};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, fstat, umask};
use nix::unistd::{chdir, pivot_root};
use policies::Access;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::ops::Bound;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Directories of the scratch storage, and the paths at which cells see them, besides home and `/tmp`.
const SCRATCH: [(&str, &str); 3] = [
    ("var-tmp", "/var/tmp"),
    ("shm", "/dev/shm"),
    ("run", "/run"),
];

/// Paths that our own root always has, besides home and zones.
pub const OWN: [&str; 10] = [
    "/proc",
    "/dev",
    "/tmp",
    "/run",
    "/var/tmp",
    "/dev/shm",
    "/.outside",
    "/.certificates",
    "/.closed-file",
    "/.closed-directory",
];

/// Files of `/proc` that name the user's kernel keys, with the length of each, or count them.
pub const KEYS: [&str; 2] = ["keys", "key-users"];

/// Where the new root is assembled: the first of these that exists. What it hides there is reached by descriptors.
const BASES: [&str; 4] = ["/tmp", "/mnt", "/var", "/usr"];

/// A file that every user could write by its mode and its mount, but that no rule allows to be
/// written: the self-check tries to. It has its own file system, since the root is read-only.
pub(crate) const CHECKED_FILE: &str = "/.outside/file";

/// Builds the session's root and switches to it. Returns the undo directory, opened before it is pinned.
///
/// # Errors
/// The kernel's.
pub fn build(spec: &SandboxSpec) -> Result<Option<OwnedFd>, SetupError> {
    let mask = umask(Mode::empty());
    make_private()?;
    let image = spec
        .policy
        .image
        .as_deref()
        .map(ImageRoot::open)
        .transpose()?;
    let shown = spec
        .views
        .iter()
        .filter(|view| !hosts_file::replaces(spec, view));
    let views = shown.map(|view| Ok((view, ViewSource::of(view, spec, image.as_ref())?)));
    let views: Vec<_> = views.collect::<Result<_, SetupError>>()?;
    let certificates = certificates(spec)?;
    let base = base();
    let scratch = scratch(base, spec)?;
    let masks = masks(base, spec)?;
    let hosts = HostsView::of(base, spec)?;
    // On top of the private storage, which is unmounted with everything hidden: unmounting it alone would cost a wait for all processors.
    tmpfs(base, "mode=755,size=16m")?;
    let root = NewRoot {
        base,
        made: RefCell::default(),
    };
    scratch
        .iter()
        .try_for_each(|(path, tree)| root.attach_directory(path, tree))?;
    root.own_filesystems(spec)?;
    views
        .iter()
        .try_for_each(|(view, source)| root.view(&view.path, source))?;
    hosts.iter().try_for_each(|hosts| root.hosts(hosts))?;
    spec.names
        .iter()
        .try_for_each(|name| root.link(name, &spec.project))?;
    root.checked_file()?;
    root.close_ways(spec)?;
    certificates
        .iter()
        .try_for_each(|(path, tree)| root.attach_file(path, tree))?;
    enter(base)?;
    cover_machines_certificates(spec)?;
    namespaces::close_user_namespaces(spec.layers)?;
    namespaces::bound_counters(spec.layers)?;
    let undo = undo_directory::open(&spec.central);
    pin_all(&spec.found().pins, &masks)?;
    read_only("/proc")?;
    read_only("/")?;
    umask(mask);
    Ok(undo)
}

/// Tries, in new namespaces, the steps of [`build`] that the machine may refuse.
///
/// # Errors
/// The kernel's.
pub(crate) fn try_to_mount() -> Result<(), SetupError> {
    make_private()?;
    let base = base();
    tmpfs(base, "mode=755,size=64k")?;
    let tree =
        open_tree(&c_path(base)).at_privileged(Layer::MountNamespace, Privilege::Mount, || {
            "open_tree".into()
        })?;
    set_attributes(tree.as_fd(), MOUNT_ATTR_NOSUID).at_privileged(
        Layer::MountNamespace,
        Privilege::Mount,
        || "mount_setattr".into(),
    )?;
    move_mount(tree.as_fd(), &c_path(base)).at_privileged(
        Layer::MountNamespace,
        Privilege::Mount,
        || "move_mount".into(),
    )?;
    mount(Some("proc"), base, Some("proc"), proc_flags(), None::<&str>).at_privileged(
        Layer::MountNamespace,
        Privilege::Mount,
        || "mount /proc".into(),
    )?;
    enter(base)
}

/// Keeps later changes of the mounts from the mount namespace above, and from there.
///
/// # Errors
/// The kernel's.
pub fn make_private() -> Result<(), SetupError> {
    let step = || "make the mounts private".into();
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )
    .at_privileged(Layer::MountNamespace, Privilege::Mount, step)
}

/// The directory where the new root is assembled.
fn base() -> &'static Path {
    BASES
        .into_iter()
        .map(Path::new)
        .find(|path| path.is_dir())
        .unwrap_or(Path::new("/usr"))
}

/// Mounts a `/proc` for this process's own PID namespace over the session's, without the user's keys.
///
/// # Errors
/// The kernel's.
pub(crate) fn own_proc() -> Result<(), SetupError> {
    mount(
        Some("proc"),
        "/proc",
        Some("proc"),
        proc_flags() | MsFlags::MS_RDONLY,
        None::<&str>,
    )
    .at(Layer::MountNamespace, || "mount /proc".into())?;
    hide_keys()
}

/// Covers what `/proc` tells of the user's kernel keys, since no namespace separates them. Only in a cell's `/proc`: the kernel allows
/// a new one only where it sees one that nothing covers.
fn hide_keys() -> Result<(), SetupError> {
    for path in KEYS.map(|name| Path::new("/proc").join(name)) {
        match mount(
            Some("/dev/null"),
            &path,
            None::<&str>,
            MsFlags::MS_BIND,
            None::<&str>,
        ) {
            // A kernel without keys has no such file.
            Err(Errno::ENOENT) if !path.exists() => {}
            covered => covered.at(Layer::MountNamespace, || {
                format!("cover {}", path.display())
            })?,
        }
    }
    Ok(())
}

/// Leaves of the zones only the directories to which commands are restricted, at the same paths. In a cell's own mount namespace:
/// the scope may give file tools other directories. Landlock alone would not suffice: the session's own root can be read, and its
/// rules for the scratch storage extend below the place where that is mounted, where a zone may lie.
///
/// # Errors
/// The kernel's.
pub(crate) fn restrict_commands(spec: &SandboxSpec) -> Result<(), SetupError> {
    let Some(directories) = &spec.command_directories else {
        return Ok(());
    };
    let mut kept = Vec::new();
    for directory in directories {
        let step = || format!("keep {directory} for commands");
        let fd = spec
            .open_directory(directory)
            .at(Layer::MountNamespace, step)?;
        kept.push((spec.zone(directory.zone()).0.join(directory.relative()), fd));
    }
    // A path inside another comes after it.
    kept.sort_by(|one, other| one.0.cmp(&other.0));
    let mut zones = [Zone::Project, Zone::Central].map(|zone| spec.zone(zone).0);
    zones.sort();
    let make = |path: &Path| {
        let made = DirBuilder::new().recursive(true).mode(0o755).create(path);
        made.at(Layer::MountNamespace, || {
            format!("make {} for commands", path.display())
        })
    };
    // A zone that is kept as a whole stays as it is: what is mounted over it would be included when it is mounted again.
    let is_kept = |zone: &&&Path| kept.iter().any(|(path, _)| path == **zone);
    for zone in zones.iter().filter(|zone| !is_kept(zone)) {
        make(zone)?;
        tmpfs(zone, "mode=755,size=16m")?;
    }
    for (path, fd) in &kept {
        make(path)?;
        // Its descriptor reaches it below what was mounted over it.
        let source = Path::new("/proc/self/fd").join(fd.as_raw_fd().to_string());
        mount(
            Some(&source),
            path,
            None::<&str>,
            MsFlags::MS_BIND | MsFlags::MS_REC,
            None::<&str>,
        )
        .at(Layer::MountNamespace, || {
            format!("mount {} at its place", path.display())
        })?;
    }
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    let flags = flags | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let whole = |zone: &&Path| kept.iter().any(|(path, _)| zone.starts_with(path));
    zones
        .iter()
        .filter(|zone| !whole(zone))
        .try_for_each(|zone| {
            mount(None::<&str>, *zone, None::<&str>, flags, None::<&str>)
                .at(Layer::MountNamespace, || {
                    format!("make {} read-only", zone.display())
                })
        })
}

fn proc_flags() -> MsFlags {
    MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC
}

/// Detached mounts of masks, by the paths that they cover.
type Masks<'s> = BTreeMap<&'s Path, OwnedFd>;

/// The source of a view, taken while the host's tree is still visible.
enum ViewSource {
    /// The target text of a link.
    Link(PathBuf),
    /// A detached copy of its mounts.
    Tree(OwnedFd),
    /// Content and mode of a small file of the system's settings. Each mount is made and undone again with every cell, and
    /// these would be half of them. To copy a larger one takes longer.
    Copy(Vec<u8>, u32),
}

impl ViewSource {
    fn of(view: &View, spec: &SandboxSpec, image: Option<&ImageRoot>) -> Result<Self, SetupError> {
        let attributes = match &view.kind {
            ViewKind::Link(target) => return Ok(Self::Link(target.clone())),
            ViewKind::Image => {
                let image = image.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound));
                let step = || format!("show {} without an image", view.path.display());
                return image.at(Layer::MountNamespace, step)?.part(&view.path);
            }
            ViewKind::Zone(Access::Write) | ViewKind::Repository(Access::Write) => {
                MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV
            }
            ViewKind::Zone(Access::Read)
            | ViewKind::Repository(Access::Read)
            | ViewKind::System => MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
            // Writing to a device works on a read-only mount; changing its mode or times does not.
            ViewKind::Device => MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID,
        };
        // In a zone, the copy would be written to the user's own file.
        let in_zone = [&spec.project, &spec.central]
            .iter()
            .any(|zone| view.path.starts_with(zone));
        if let Some((mut content, mode)) = small_setting(view).filter(|_| !in_zone) {
            if view.path == Path::new(hosts_file::PATH) && spec.has(Layer::UtsNamespace) {
                hosts_file::add_own_name(&mut content);
            }
            return Ok(Self::Copy(content, mode));
        }
        let step = || format!("copy the mounts of {}", view.path.display());
        let tree = open_tree(&c_path(&view.path)).at_privileged(
            Layer::MountNamespace,
            Privilege::Mount,
            step,
        )?;
        set_attributes_of_tree(tree.as_fd(), attributes).at_privileged(
            Layer::MountNamespace,
            Privilege::Mount,
            step,
        )?;
        Ok(Self::Tree(tree))
    }
}

/// An image of which cells see parts. Its path contains no link, as was checked.
struct ImageRoot(OwnedFd);

impl ImageRoot {
    fn open(path: &Path) -> Result<Self, SetupError> {
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
        let opened = openat2(AT_FDCWD, path, how);
        Ok(Self(opened.at(Layer::MountNamespace, || {
            format!("open the image {}", path.display())
        })?))
    }

    /// What lies at `path` in the image, reached through no link, and without mounts there or
    /// below: those are the machine's. Whoever can change the image could create links meanwhile.
    fn part(&self, path: &Path) -> Result<ViewSource, SetupError> {
        let step = || {
            format!(
                "take {} of the image, and nothing that is mounted there",
                path.display()
            )
        };
        let inside = ResolveFlag::RESOLVE_BENEATH
            | ResolveFlag::RESOLVE_NO_SYMLINKS
            | ResolveFlag::RESOLVE_NO_XDEV;
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
            .resolve(inside);
        let fd = openat2(&self.0, path.strip_prefix("/").unwrap_or(path), how);
        let fd = fd.at(Layer::MountNamespace, step)?;
        let kind = fstat(&fd).at(Layer::MountNamespace, step)?.st_mode & libc::S_IFMT;
        if kind != libc::S_IFDIR && kind != libc::S_IFREG {
            return Err(io::Error::from_raw_os_error(libc::ELOOP)).at(Layer::MountNamespace, step);
        }
        let tree = open_tree_at(fd.as_fd()).at(Layer::MountNamespace, step)?;
        let closed = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
        set_attributes(tree.as_fd(), closed).at(Layer::MountNamespace, step)?;
        Ok(ViewSource::Tree(tree))
    }
}

/// The content of a view that is copied. An unreadable one is not copied: its mount is as closed as the file.
fn small_setting(view: &View) -> Option<(Vec<u8>, u32)> {
    const SMALL: u64 = 16 * 1024;
    if view.kind != ViewKind::System || !view.path.starts_with("/etc") {
        return None;
    }
    // Without blocking for the other end, if it is a FIFO.
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&view.path)
        .ok()?;
    let metadata = file
        .metadata()
        .ok()
        .filter(|metadata| metadata.is_file() && metadata.len() <= SMALL)?;
    let mut content = Vec::with_capacity(metadata.len() as usize + 1);
    file.take(SMALL + 1).read_to_end(&mut content).ok()?;
    (content.len() as u64 <= SMALL).then_some((content, metadata.mode() & 0o777))
}

/// Bytes of private storage for each file in it. An empty one takes about 1 KiB of the kernel's memory, which no limit counts.
const SCRATCH_OF_FILE: u64 = 4096;
/// Number of files in a small private storage: its directories, and what ordinary programs put there.
const SCRATCH_FILES_MIN: u64 = 1024;

/// Mounts one size-limited file system for all private storage over `storage`: returns detached copies of its parts, and the path of each.
fn scratch<'s>(
    storage: &Path,
    spec: &'s SandboxSpec,
) -> Result<Vec<(&'s Path, OwnedFd)>, SetupError> {
    let size = spec.policy.limits.scratch;
    let files = (size / SCRATCH_OF_FILE).max(SCRATCH_FILES_MIN);
    tmpfs(storage, &format!("mode=700,size={size},nr_inodes={files}"))?;
    let own = [
        ("tmp", spec.scratch.tmp.as_path()),
        ("home", spec.scratch.home.as_path()),
    ];
    let all = own
        .into_iter()
        .chain(SCRATCH.map(|(name, path)| (name, Path::new(path))));
    let mut parts = Vec::new();
    for (name, path) in all {
        let part = storage.join(name);
        let step = || format!("make the private {}", path.display());
        fs::create_dir(&part).at(Layer::MountNamespace, step)?;
        let mode = if name == "home" { 0o700 } else { 0o1777 };
        fs::set_permissions(&part, Permissions::from_mode(mode)).at(Layer::MountNamespace, step)?;
        if name == "home" {
            home_files::write(&part, &spec.home_files).at(Layer::MountNamespace, step)?;
        }
        let tree = open_tree(&c_path(&part)).at_privileged(
            Layer::MountNamespace,
            Privilege::Mount,
            step,
        )?;
        parts.push((path, tree));
    }
    // Parents before children: a home may lie below /tmp or the other way round.
    parts.sort_by_key(|(path, _)| path.as_os_str().len());
    Ok(parts)
}

/// The files that are mounted over masked ones, by the path of each: in the private storage, at no path that leads there.
fn masks<'s>(storage: &Path, spec: &'s SandboxSpec) -> Result<Masks<'s>, SetupError> {
    let mut masks = Masks::new();
    let step = || "write the masks of secrets".to_owned();
    for (number, secret) in spec.found().secrets.iter().enumerate() {
        let SecretView::Masked(text) = &secret.seen else {
            continue;
        };
        let mask = storage.join(format!("mask-{number}"));
        let file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o444)
            .open(&mask);
        file.and_then(|mut file| file.write_all(text))
            .at(Layer::ProtectedNames, step)?;
        let tree = open_tree(&c_path(&mask)).at_privileged(
            Layer::MountNamespace,
            Privilege::Mount,
            step,
        )?;
        masks.insert(&secret.path, tree);
    }
    Ok(masks)
}

/// How a session with hosts shows them in `/etc/hosts`.
enum HostsView {
    /// As a file of the session's own root.
    File(Vec<u8>),
    /// As a mount over the file of a directory that cells see as a whole.
    Over(OwnedFd),
}

impl HostsView {
    /// A mount needs a file, which it keeps in the private `storage`.
    fn of(storage: &Path, spec: &SandboxSpec) -> Result<Option<Self>, SetupError> {
        let Some(mut text) = hosts_file::text(spec) else {
            return Ok(None);
        };
        if spec.has(Layer::UtsNamespace) {
            hosts_file::add_own_name(&mut text);
        }
        Ok(match hosts_file::view_with_hosts_file(spec) {
            None => Some(Self::File(text)),
            Some(ViewKind::System | ViewKind::Image) => Some(Self::Over(mounted(storage, &text)?)),
            // What lies in a zone is the user's.
            Some(
                ViewKind::Zone(_) | ViewKind::Repository(_) | ViewKind::Link(_) | ViewKind::Device,
            ) => None,
        })
    }
}

/// A detached, read-only mount of a file with this text.
fn mounted(storage: &Path, text: &[u8]) -> Result<OwnedFd, SetupError> {
    let (place, step) = (storage.join("hosts"), || {
        "write the session's hosts".to_owned()
    });
    fs::write(&place, text).at(Layer::MountNamespace, step)?;
    fs::set_permissions(&place, Permissions::from_mode(0o444)).at(Layer::MountNamespace, step)?;
    closed_mount(&place, step)
}

/// A detached, read-only mount of a file.
fn closed_mount(file: &Path, step: impl Fn() -> String) -> Result<OwnedFd, SetupError> {
    let at = Layer::MountNamespace;
    let tree = open_tree(&c_path(file)).at_privileged(at, Privilege::Mount, &step)?;
    let closed = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    set_attributes(tree.as_fd(), closed).at(at, step)?;
    Ok(tree)
}

/// Detached, read-only mounts of the files by which programs trust the session's authority, and where cells see each.
fn certificates(spec: &SandboxSpec) -> Result<Vec<(PathBuf, OwnedFd)>, SetupError> {
    let mount = |(host, seen): (&Path, PathBuf)| {
        let step = || format!("copy the mount of {}", host.display());
        Ok((seen, closed_mount(host, step)?))
    };
    spec.certificates().map(mount).collect()
}

/// Covers the machine's files of all authorities by the session's, for programs that read no variable. Runs inside the new root, and
/// follows no link into a zone: the machine's own settings lead to none.
fn cover_machines_certificates(spec: &SandboxSpec) -> Result<(), SetupError> {
    let seen: Vec<PathBuf> = spec.certificates().map(|(_, seen)| seen).collect();
    let [all, _, java] = &*seen else {
        return Ok(());
    };
    let in_zone = |path: &PathBuf| {
        let zones = [&spec.project, &spec.central];
        zones.iter().any(|zone| path.starts_with(zone))
    };
    for (ours, machine) in [(all, &MACHINE[..]), (java, &MACHINE_JAVA[..])] {
        let real = machine
            .iter()
            .filter_map(|path| fs::canonicalize(path).ok());
        let files: BTreeSet<PathBuf> = real
            .filter(|path| path.is_file() && !in_zone(path))
            .collect();
        for path in files {
            let step = || format!("cover {}", path.display());
            let tree = open_tree(&c_path(ours)).at(Layer::MountNamespace, step)?;
            move_mount(tree.as_fd(), &c_path(&path)).at(Layer::MountNamespace, step)?;
        }
    }
    Ok(())
}

/// The new root while it is assembled at a place in the old one.
struct NewRoot<'a> {
    base: &'a Path,
    /// Directories that are there, most of which many files share.
    made: RefCell<BTreeSet<PathBuf>>,
}

impl NewRoot<'_> {
    /// The present location of `path` of the new root.
    fn here(&self, path: &Path) -> PathBuf {
        self.base.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn directory(&self, path: &Path) -> Result<PathBuf, SetupError> {
        let place = self.here(path);
        if !self.made.borrow().contains(path) {
            self.parent(path)?;
            let made = match DirBuilder::new().mode(0o755).create(&place) {
                Err(_) if place.is_dir() => Ok(()),
                made => made,
            };
            made.at(Layer::MountNamespace, || {
                format!("make the directory {}", path.display())
            })?;
            self.made.borrow_mut().insert(path.to_owned());
        }
        Ok(place)
    }

    fn parent(&self, path: &Path) -> Result<(), SetupError> {
        path.parent()
            .map_or(Ok(()), |parent| self.directory(parent).map(drop))
    }

    /// `/proc`, a new instance of `devpts`, and the usual links in `/dev`.
    fn own_filesystems(&self, spec: &SandboxSpec) -> Result<(), SetupError> {
        let proc = self.directory(Path::new("/proc"))?;
        let mounted = match spec.has(Layer::PidNamespace) {
            true => mount(
                Some("proc"),
                &proc,
                Some("proc"),
                proc_flags(),
                None::<&str>,
            ),
            // Only the owner of a PID namespace may mount its `/proc`.
            false => mount(
                Some("/proc"),
                &proc,
                None::<&str>,
                MsFlags::MS_BIND | MsFlags::MS_REC,
                None::<&str>,
            ),
        };
        mounted.at_privileged(Layer::MountNamespace, Privilege::Mount, || {
            "mount /proc".into()
        })?;
        let pts = self.directory(Path::new("/dev/pts"))?;
        // All instances take from the machine's number of terminals.
        let options = "newinstance,ptmxmode=0666,mode=620,max=256";
        mount(
            Some("devpts"),
            &pts,
            Some("devpts"),
            MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC,
            Some(options),
        )
        .at_privileged(Layer::MountNamespace, Privilege::Mount, || {
            "mount /dev/pts".into()
        })?;
        for (name, target) in [
            ("/dev/ptmx", "pts/ptmx"),
            ("/dev/fd", "/proc/self/fd"),
            ("/dev/stdin", "/proc/self/fd/0"),
            ("/dev/stdout", "/proc/self/fd/1"),
            ("/dev/stderr", "/proc/self/fd/2"),
        ] {
            symlink(target, self.here(Path::new(name)))
                .at(Layer::MountNamespace, || format!("link {name}"))?;
        }
        Ok(())
    }

    fn checked_file(&self) -> Result<(), SetupError> {
        let (file, step) = (Path::new(CHECKED_FILE), || format!("make {CHECKED_FILE}"));
        tmpfs(
            &self.directory(file.parent().unwrap_or(file))?,
            "mode=755,size=4k,nr_inodes=4",
        )?;
        let made = File::create(self.here(file)).at(Layer::MountNamespace, step)?;
        made.set_permissions(Permissions::from_mode(0o666))
            .at(Layer::MountNamespace, step)
    }

    /// Makes the directories between home and project read-only by their mode. They lie in the private home: what a command wrote
    /// there, beside its project, would be gone with the session, and nobody would be told.
    fn close_ways(&self, spec: &SandboxSpec) -> Result<(), SetupError> {
        let home = &spec.scratch.home;
        let ways = spec
            .project
            .ancestors()
            .skip(1)
            .take_while(|way| way.starts_with(home) && *way != home);
        // On the way to the central root lie programs' own directories, such as `.local`; what a view shows is the user's.
        let is_shown = |way: &Path| spec.views.iter().any(|view| way.starts_with(&view.path));
        for way in ways.filter(|way| !spec.central.starts_with(way) && !is_shown(way)) {
            let closed = fs::set_permissions(self.here(way), Permissions::from_mode(0o555));
            closed.at(Layer::MountNamespace, || format!("close {}", way.display()))?;
        }
        Ok(())
    }

    fn view(&self, path: &Path, source: &ViewSource) -> Result<(), SetupError> {
        match source {
            ViewSource::Link(target) => self.link(path, target),
            ViewSource::Tree(tree) if is_directory(path, tree)? => {
                self.attach_directory(path, tree)
            }
            ViewSource::Tree(tree) => self.attach_file(path, tree),
            ViewSource::Copy(content, mode) => self.copy(path, content, *mode),
        }
    }

    /// Shows the session's hosts. A directory that cells see as a whole takes none if it has no such file.
    fn hosts(&self, hosts: &HostsView) -> Result<(), SetupError> {
        let path = Path::new(hosts_file::PATH);
        match hosts {
            HostsView::File(text) => self.copy(path, text, 0o644),
            HostsView::Over(tree) if fs::symlink_metadata(self.here(path)).is_ok() => {
                self.attach_file(path, tree)
            }
            HostsView::Over(_) => Ok(()),
        }
    }

    fn copy(&self, path: &Path, content: &[u8], mode: u32) -> Result<(), SetupError> {
        self.parent(path)?;
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(mode)
            .open(self.here(path));
        let written = file.and_then(|mut file| file.write_all(content));
        written.at(Layer::MountNamespace, || format!("copy {}", path.display()))
    }

    fn link(&self, path: &Path, target: &Path) -> Result<(), SetupError> {
        self.parent(path)?;
        match symlink(target, self.here(path)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            result => result.at(Layer::MountNamespace, || format!("link {}", path.display())),
        }
    }

    /// Makes a file for a mount to cover, if there is none: in what is shown already lie the user's own files.
    fn place_for_file(&self, path: &Path) -> io::Result<()> {
        let place = self.here(path);
        if fs::symlink_metadata(&place).is_ok() {
            return Ok(());
        }
        File::options()
            .write(true)
            .create_new(true)
            .open(place)
            .map(drop)
    }

    fn attach_directory(&self, path: &Path, tree: &OwnedFd) -> Result<(), SetupError> {
        self.directory(path)?;
        self.attach(path, tree)
    }

    fn attach_file(&self, path: &Path, tree: &OwnedFd) -> Result<(), SetupError> {
        self.parent(path)?;
        let step = || format!("attach {}", path.display());
        self.place_for_file(path).at(Layer::MountNamespace, step)?;
        self.attach(path, tree)
    }

    fn attach(&self, path: &Path, tree: &OwnedFd) -> Result<(), SetupError> {
        let step = || format!("attach {}", path.display());
        // What was made below it is covered.
        let below = (Bound::Excluded(path), Bound::Unbounded);
        let mut made = self.made.borrow_mut();
        let covered: Vec<PathBuf> = made
            .range::<Path, _>(below)
            .take_while(|made| made.starts_with(path))
            .cloned()
            .collect();
        for covered in &covered {
            made.remove(covered);
        }
        drop(made);
        move_mount(tree.as_fd(), &c_path(&self.here(path))).at_privileged(
            Layer::MountNamespace,
            Privilege::Mount,
            step,
        )
    }
}

/// Whether a detached mount is of a directory; checked on the mount, not on the path.
fn is_directory(path: &Path, tree: &OwnedFd) -> Result<bool, SetupError> {
    let stat = fstat(tree).at(Layer::MountNamespace, || {
        format!("look at {}", path.display())
    })?;
    Ok(stat.st_mode & libc::S_IFMT == libc::S_IFDIR)
}

fn tmpfs(place: &Path, options: &str) -> Result<(), SetupError> {
    mount(
        Some("tmpfs"),
        place,
        Some("tmpfs"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
        Some(options),
    )
    .at_privileged(Layer::MountNamespace, Privilege::Mount, || {
        format!("mount a tmpfs with {options}")
    })
}

/// Makes `base` the root and unmounts the old one.
fn enter(base: &Path) -> Result<(), SetupError> {
    let step = || "enter the new root".to_owned();
    chdir(base).at_privileged(Layer::MountNamespace, Privilege::OwnRoot, step)?;
    let pivoted = pivot_root(".", ".");
    // No denial, so people would look for a mistake.
    let pivot = match pivoted {
        Err(Errno::EINVAL) => {
            "replace the root by `pivot_root`, which is impossible in an initramfs"
        }
        Err(_) | Ok(()) => "replace the root by `pivot_root`",
    };
    let pivot = || pivot.to_owned();
    pivoted.at_privileged(Layer::MountNamespace, Privilege::PivotRoot, pivot)?;
    umount2(".", MntFlags::MNT_DETACH).at_privileged(
        Layer::MountNamespace,
        Privilege::Mount,
        step,
    )?;
    chdir("/").at_privileged(Layer::MountNamespace, Privilege::OwnRoot, step)
}

fn read_only(path: &str) -> Result<(), SetupError> {
    let step = || format!("make {path} read-only");
    let fd = File::open(path).at_privileged(Layer::MountNamespace, Privilege::OwnRoot, step)?;
    set_attributes(fd.as_fd(), MOUNT_ATTR_RDONLY).at_privileged(
        Layer::MountNamespace,
        Privilege::Mount,
        step,
    )
}

/// Pins protected names. Runs inside the new root: wherever a hostile link in a zone points, it can
/// only reach what a cell may see anyway.
fn pin_all(pins: &[Pin], masks: &Masks) -> Result<(), SetupError> {
    if pins.is_empty() {
        return Ok(());
    }
    let hidden = Hidden::make()?;
    let done = pins
        .iter()
        .try_for_each(|pin| self::pin(pin, &hidden, masks));
    hidden.remove()?;
    done
}

fn pin(pin: &Pin, hidden: &Hidden, masks: &Masks) -> Result<(), SetupError> {
    let step = || format!("pin {}", pin.path.display());
    let attach = |tree: BorrowedFd, attributes| {
        set_attributes_of_tree(tree, attributes | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)?;
        move_mount(tree, &c_path(&pin.path))
    };
    let (source, attributes) = match pin.mode {
        PinMode::KeepPlace => (pin.path.as_path(), 0),
        // A link can be mounted over itself: it is followed as before, and can be neither removed nor replaced.
        PinMode::KeepLink | PinMode::ReadOnly => (pin.path.as_path(), MOUNT_ATTR_RDONLY),
        PinMode::Masked => {
            let mask = masks
                .get(pin.path.as_path())
                .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData));
            let mask = mask.at(Layer::ProtectedNames, step)?;
            return attach(mask.as_fd(), MOUNT_ATTR_RDONLY).at(Layer::ProtectedNames, step);
        }
        PinMode::Hidden { directory: false } => (hidden.file, MOUNT_ATTR_RDONLY),
        PinMode::Hidden { directory: true } => (hidden.directory, MOUNT_ATTR_RDONLY),
    };
    // If it was replaced by a link since it was found, that is not followed.
    let tree = open_tree_of_link(&c_path(source)).at(Layer::ProtectedNames, step)?;
    attach(tree.as_fd(), attributes).at(Layer::ProtectedNames, step)
}

/// A file and a directory that nobody can open, to mount over what is hidden.
struct Hidden {
    file: &'static Path,
    directory: &'static Path,
}

impl Hidden {
    fn make() -> Result<Self, SetupError> {
        let (file, directory) = (Path::new("/.closed-file"), Path::new("/.closed-directory"));
        let step = || "make a closed file and directory".to_owned();
        File::create(file).at(Layer::ProtectedNames, step)?;
        fs::create_dir(directory).at(Layer::ProtectedNames, step)?;
        for path in [file, directory] {
            fs::set_permissions(path, Permissions::from_mode(0o000))
                .at(Layer::ProtectedNames, step)?;
        }
        Ok(Self { file, directory })
    }

    fn remove(self) -> Result<(), SetupError> {
        let step = || "remove the closed file and directory".to_owned();
        fs::remove_file(self.file).at(Layer::ProtectedNames, step)?;
        fs::remove_dir(self.directory).at(Layer::ProtectedNames, step)
    }
}

/// Paths come from a policy, a session's roots or this file; a path containing NUL was refused earlier.
fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}
