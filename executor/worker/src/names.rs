//! The policy's protected names and the session's scope, as file tools check them. The broker has
//! checked the name in the request; these checks are for the targets of links.

use crate::root::Location;
use broker_protocol::Zone;
use executor_spec::protected_objects::ProtectedObjects;
use executor_spec::worker::WorkerSpec;
use nix::fcntl::AtFlags;
use nix::sys::stat::fstatat;
use policies::{PolicyError, Reach, ScopePaths};
use policies_guard::{
    Matcher, Member, MemberKind, Protection, Repository, as_git_directory, may_be_git_directory,
};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Why no file tool creates a repository, or changes the branch of one.
pub const GIT_DECIDES: &str = "Git takes a directory for a repository by this name, and runs what its settings say. `git` itself can make one.";

/// What a file tool is going to do with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// To know its content.
    Read,
    /// To create, change or replace it.
    Write,
}

pub struct Names {
    pub protected: Matcher,
    /// The paths that are protected although no name shows it.
    pub objects: ProtectedObjects,
    pub project: PathBuf,
    pub central: PathBuf,
    /// Paths besides both roots that may be read.
    pub granted: Vec<PathBuf>,
    pub scope: ScopePaths,
}

/// Why a file tool may not touch a path that is protected although its name does not show it.
const CLOSED_PLACE: &str = "A link with a protected name leads to it, it is the same file as a protected one, or it could not be listed \
     when the session opened, which reported it.";

/// Why a path is refused that is not granted, or is granted but contains a root.
const NOT_GRANTED: &str = "It is not granted to file tools by this path.";

impl Names {
    pub fn new(spec: &WorkerSpec) -> Result<Self, PolicyError> {
        let (project, central) = (
            spec.project.path.clone().into(),
            spec.central.path.clone().into(),
        );
        let (protected, objects, scope) =
            (spec.matcher()?, spec.objects.restore(), spec.scope_paths()?);
        Ok(Self {
            protected,
            objects,
            project,
            central,
            granted: spec.granted.clone(),
            scope,
        })
    }

    /// Whether the absolute path `real` lies in a granted path besides the roots.
    pub fn is_granted(&self, real: &Path) -> bool {
        self.granted.iter().any(|granted| real.starts_with(granted))
    }

    /// Whether links at `real` may lead to a granted path besides the roots.
    pub fn leads_to_granted(&self, real: &Path) -> bool {
        self.is_granted(real) || self.granted.iter().any(|granted| granted.starts_with(real))
    }

    /// Why a name is closed for `intent`; `None` if it is open. What is closed for reading is
    /// closed for writing too, and what lies below a closed name is closed with it.
    pub fn closed(&self, location: &Location, intent: Intent) -> Option<&str> {
        let path = location.path.as_os_str().as_bytes();
        let root = match location.zone {
            Zone::Project => &self.project,
            Zone::Central => &self.central,
            Zone::Granted => Path::new("/"),
        };
        let real = root.join(&location.path);
        let in_root = real.starts_with(&self.project) || real.starts_with(&self.central);
        if location.zone == Zone::Granted && (in_root || !self.is_granted(&real)) {
            return Some(NOT_GRANTED);
        }
        let other = self
            .objects
            .other_paths(&real)
            .map(|path| path.into_os_string().into_vec());
        let paths = [Some(path.to_vec()), as_git_directory(path)]
            .into_iter()
            .flatten()
            .chain(other);
        let names = paths.filter_map(|path| self.protected.protection(&path));
        let names = names.map(|name| (name.protection, name.why.as_str()));
        let place = self
            .objects
            .protection_of_place(&real)
            .map(|protection| (protection, CLOSED_PLACE));
        let closes = |protection| intent == Intent::Write || protection == Protection::All;
        let closing = names
            .chain(place)
            .find(|(protection, _)| closes(*protection));
        closing
            .map(|(_, why)| why)
            .or_else(|| self.closed_head(location, intent))
    }

    /// Why a name is closed for `intent` although no rule closes it: only git writes the branch of a repository.
    pub fn closed_head(&self, location: &Location, intent: Intent) -> Option<&str> {
        let head =
            member(&location.path).is_some_and(|(_, member)| member.kind == MemberKind::Head);
        // In a repository `refs/remotes/origin/HEAD` is an ordinary name, and only git writes it.
        (intent == Intent::Write && head).then_some(GIT_DECIDES)
    }

    /// Whether creating `path`, relative to a zone's root, makes a repository of its `directory`, or one over that by its name.
    pub fn makes_repository(&self, directory: &OwnedFd, path: &Path) -> bool {
        if path
            .file_name()
            .is_some_and(|name| Repository::by_name(name.as_bytes()).is_some())
        {
            return true;
        }
        let parent = path.parent().unwrap_or(Path::new(""));
        let has =
            |member: Member| fstatat(directory, member.name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok();
        !may_be_git_directory(parent.as_os_str().as_bytes())
            && member(path).is_some_and(|(kind, member)| kind.is_completed_by(member, has))
    }

    /// Why `tool` may not touch a name in this session; `None` if it may.
    pub fn out_of_scope(&self, tool: &str, location: &Location) -> Option<String> {
        let path = location.path.as_os_str().as_bytes();
        let permitted = self
            .scope
            .permits(tool, location.zone, path, Reach::of(tool));
        (!permitted).then(|| {
            format!(
                "the session's scope permits {tool} for {} only",
                self.scope.text(tool)
            )
        })
    }
}

fn member(path: &Path) -> Option<(&'static Repository, Member)> {
    Repository::member(path.file_name()?.as_bytes())
}
