//! Which paths a cell may see or change.

use crate::object::is;
use broker_protocol::{Layer, Zone};
use executor_spec::sandbox::{CACHES, SandboxSpec};
use nix::Result;
use nix::sys::stat::{FileStat, fstat, stat};
use policies::Access;
use policies_guard::search::is_in_packages;
use policies_guard::{Rule, Verdict};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// The areas in which a cell may change files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Area {
    Project,
    Central,
    /// The project's repository, if it lies elsewhere.
    Repository,
    /// The session's private storage.
    Scratch,
    /// A leased path, by its number: each is a separate area.
    Leased(usize),
}

/// The areas of a session, and the paths that can be read outside them.
pub(crate) struct Areas {
    /// Each area with its root. The first that contains a path counts.
    areas: Vec<(PathBuf, Area, Access)>,
    /// Where package managers keep their downloads.
    caches: PathBuf,
    /// The paths that can be read outside the areas, if the session does not have its own tree.
    views: HashSet<PathBuf>,
    /// The machine's `/tmp` and `/dev/shm`, each with the directory that replaces it, where cells see the machine's tree.
    replaced: Vec<(PathBuf, PathBuf)>,
    /// Other paths of the project, through links.
    names: Vec<PathBuf>,
    /// The directories of `/` in which the roots lie, where cells see the machine's tree.
    around: Vec<PathBuf>,
    /// Whether the session has its own tree, whose mounts decide what is outside.
    pub(crate) own_root: bool,
}

/// The areas of a session without leases, in the order in which they are looked through.
fn areas_of(spec: &SandboxSpec) -> Vec<(PathBuf, Area, Access)> {
    let scratch = |path: &Path| (resolved(path), Area::Scratch, Access::Write);
    let area = |zone| match zone {
        Zone::Project => Some(Area::Project),
        Zone::Central => Some(Area::Central),
        Zone::Granted => None,
    };
    let directories = spec.command_directories().filter_map(|directory| {
        let (root, access) = spec.zone(directory.zone());
        Some((
            root.join(directory.relative()),
            area(directory.zone())?,
            access,
        ))
    });
    let zones = [Zone::Project, Zone::Central].into_iter();
    let zones = zones.filter_map(|zone| {
        Some((
            spec.zone(zone).0.to_owned(),
            area(zone)?,
            spec.command_access(zone),
        ))
    });
    let mut areas: Vec<_> = directories.chain(zones).collect();
    let linked = spec.linked.iter();
    areas.extend(
        linked.map(|linked| (linked.common.clone(), Area::Repository, spec.policy.project)),
    );
    areas.extend([scratch(&spec.scratch.home), scratch(&spec.scratch.tmp)]);
    let shared = spec.scratch.shared().map(|shared| resolved(&shared));
    areas.extend(shared.as_deref().map(scratch));
    // After everything that may lie in them.
    let temporary = spec.temporary();
    areas.extend(temporary.map(scratch));
    areas
}

impl Areas {
    pub(crate) fn new(spec: &SandboxSpec) -> Self {
        let own_root = spec.has(Layer::MountNamespace);
        // Where the session has its own tree, mounts decide what is outside.
        let views = spec
            .views
            .iter()
            .map(|view| &view.path)
            .chain(&spec.policy.listed)
            .cloned()
            .chain(spec.certificates().map(|(_, seen)| seen));
        let views = views
            .filter(|_| !own_root)
            .map(|path| resolved(&path))
            .collect();
        let caches = spec.zone(Zone::Central).0.join(CACHES);
        let tmp = (!own_root).then(|| ("/tmp", spec.scratch.tmp.clone()));
        let replaced = tmp
            .into_iter()
            .chain(spec.scratch.shared().map(|own| ("/dev/shm", own)));
        let replaced = replaced.filter(|_| !spec.shows_names());
        let replaced =
            replaced.map(|(machine, own)| (resolved(Path::new(machine)), resolved(&own)));
        let roots = [Zone::Project, Zone::Central].map(|zone| spec.zone(zone).0);
        let around = roots.into_iter().filter(|_| !own_root).filter_map(|root| {
            let around = root
                .ancestors()
                .find(|path| path.parent() == Some(Path::new("/")));
            around.filter(|around| *around != root).map(Path::to_owned)
        });
        Self {
            areas: areas_of(spec),
            caches,
            views,
            replaced: replaced.collect(),
            names: spec.names.clone(),
            around: around.collect(),
            own_root,
        }
    }

    /// Adds leased paths, none inside another. They come first: private storage may lie above them.
    pub(crate) fn add_leased(&mut self, paths: impl Iterator<Item = (PathBuf, Access)>) {
        let leased = paths.enumerate();
        self.areas.splice(
            0..0,
            leased.map(|(at, (path, access))| (path, Area::Leased(at), access)),
        );
    }

    /// The area that contains a path, and the access there.
    pub(crate) fn of(&self, real: &Path) -> Option<(Area, Access)> {
        let mut areas = self
            .areas
            .iter()
            .filter(|(root, ..)| real.starts_with(root));
        areas.next().map(|(_, area, access)| (*area, *access))
    }

    /// The root of the area that contains a path, where names may be changed.
    pub(crate) fn root_of(&self, real: &Path) -> Option<&Path> {
        let (root, _, access) = self
            .areas
            .iter()
            .find(|(root, ..)| real.starts_with(root))?;
        (*access == Access::Write).then_some(root.as_path())
    }

    /// Whether a root is this directory or lies below it: moving a directory above a mount moves the mount.
    pub(crate) fn lie_below(&self, directory: &Path) -> bool {
        self.areas
            .iter()
            .any(|(root, ..)| root.starts_with(directory))
    }

    /// Checks that a directory whose path is in private storage belongs to that storage: a root that was
    /// moved there, or another cell's root received as a descriptor, would not be where the rules expect it.
    pub(crate) fn check_private(&self, directory: &OwnedFd, real: &Path) -> Result<Verdict> {
        let area = self.areas.iter().find(|(root, ..)| real.starts_with(root));
        match area.filter(|_| self.own_root) {
            Some((root, Area::Scratch, _)) if stat(root)?.st_dev != fstat(directory)?.st_dev => {
                Ok(Verdict::Refuse(Rule::OtherStorage))
            }
            Some(_) | None => Ok(Verdict::Allow),
        }
    }

    /// Whether a path may be seen.
    pub(crate) fn is_visible(&self, real: &Path) -> bool {
        self.of(real).is_some() || real.ancestors().any(|path| self.views.contains(path))
    }

    /// Where a package manager unpacks what others have made, in the project's caches or where
    /// packages are installed: the root of that zone.
    pub(crate) fn zone_of_package(&self, real: &Path) -> Option<&Path> {
        let (root, area, access) = self
            .areas
            .iter()
            .find(|(root, ..)| real.starts_with(root))?;
        let installed = is_in_packages(real.strip_prefix(root).ok()?);
        let unpacked = match area {
            Area::Project => installed,
            Area::Central => installed || real.starts_with(&self.caches),
            Area::Repository | Area::Scratch | Area::Leased(_) => false,
        };
        (unpacked && *access == Access::Write).then_some(root.as_path())
    }

    /// Whether a path is in the machine's `/tmp` or `/dev/shm` and invisible to a cell: programs mean their own.
    pub(crate) fn is_hidden_tmp(&self, path: &Path) -> bool {
        self.replaced
            .iter()
            .any(|(machine, _)| path.starts_with(machine))
            && !self.is_visible(path)
            && !self.is_named(path)
    }

    /// Whether a path begins with another path of the project, which a link of the machine's leads to.
    fn is_named(&self, path: &Path) -> bool {
        self.names.iter().any(|name| path.starts_with(name))
    }

    /// Whether a path is closed and lies beside a root or beside a directory above one. A program that searches upwards for its settings
    /// goes on where a file is missing and stops where it may not be read, so to it this one is missing, as where the session
    /// has its own tree. For errors alone: nothing is opened because of this.
    pub(crate) fn is_missing(&self, path: &Path) -> bool {
        let beside = self.around.iter().any(|around| path.starts_with(around));
        let plain = || !path.components().any(|part| part == Component::ParentDir);
        let seen = || self.is_visible(path) || self.is_named(path) || self.leads_to_visible(path);
        beside && plain() && !seen()
    }

    /// Whether something that may be seen lies below a path.
    fn leads_to_visible(&self, path: &Path) -> bool {
        let areas = self.areas.iter().map(|(root, ..)| root);
        let seen = areas.chain(&self.views).chain(&self.names);
        seen.into_iter().any(|seen| seen.starts_with(path))
    }

    /// Whether this is the directory that replaces `/tmp` or `/dev/shm`.
    pub(crate) fn is_private_tmp(&self, real: &Path) -> bool {
        self.replaced.iter().any(|(_, private)| private == real)
    }

    /// The session's own directory, if `directory` is the machine's `/tmp` or `/dev/shm` and `name` does not lead to what a
    /// cell may see. This grants nothing, as the file that is found is checked like any other.
    pub(crate) fn private_tmp(&self, directory: &Path, name: &[u8]) -> Option<&Path> {
        let (machine, private) = self
            .replaced
            .iter()
            .find(|(machine, _)| machine == directory)?;
        let path = machine.join(OsStr::from_bytes(name));
        let own = name == b"."
            || name != b".." && !self.is_visible(&path) && !self.leads_to_visible(&path);
        (own && !self.is_visible(machine)).then_some(private)
    }

    /// By path what Landlock enforces by file: nothing outside the views is opened, and
    /// outside the areas only devices may be opened for writing.
    pub(crate) fn may_reach(&self, real: &Path, state: Option<&FileStat>, asked: Access) -> bool {
        // A pipe, or memory without a name: it was reached through a descriptor that the caller has.
        let unnamed = !real.is_absolute() || real.as_os_str().as_bytes().starts_with(b"/memfd:");
        let is_device = || state.is_some_and(|stat| is(stat, libc::S_IFCHR));
        match self.of(real) {
            // A FIFO accepts writes even on a read-only mount.
            Some((Area::Leased(_), Access::Read)) if asked == Access::Write => false,
            _ if self.own_root || unnamed || real.starts_with("/proc") => true,
            Some((_, access)) => asked <= access,
            None => self.is_visible(real) && (asked == Access::Read || is_device()),
        }
    }

    /// The path relative to each zone that contains it, with the zone's root; for a removed file its last name.
    pub(crate) fn in_zones<'p>(
        &'p self,
        real: &'p Path,
    ) -> impl Iterator<Item = (&'p Path, &'p [u8])> {
        let zones = self
            .areas
            .iter()
            .filter(|(_, area, _)| *area != Area::Scratch);
        let relative =
            zones.filter_map(|(root, ..)| Some((root.as_path(), real.strip_prefix(root).ok()?)));
        relative
            .map(|(root, path)| (root, path.as_os_str().as_bytes()))
            .flat_map(|(root, path)| {
                let removed = path.strip_suffix(b" (deleted)");
                [Some((root, path)), removed.map(|path| (root, path))]
                    .into_iter()
                    .flatten()
            })
    }
}

fn resolved(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}
