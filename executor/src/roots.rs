//! The two roots of a session: which paths may be one, and what a policy may not show besides them.

use crate::user::User;
use broker_protocol::{Channel, Open, Zone};
use executor_credentials::kept_at;
use executor_layers::mounts;
use executor_project::central_owner;
use executor_project::linked_repository::{self, RepositoryLink};
use executor_spec::linked_repository::NotLinked;
use executor_spec::sandbox::{Rooted, SandboxSpec, View, ViewKind};
use executor_spec::undo_directory;
use executor_spec::zones::Zones;
use nix::unistd::geteuid;
use policies::directories::NO_PROJECT;
use policies::leases::fault_of_system;
use policies::{Access, EffectivePolicy, directories};
use policies_guard::{Matcher, ProtectedName, Protection, Repository, is_in_git_directory};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why roots cannot be used with a policy.
#[derive(Debug, Error)]
pub(crate) enum RootError {
    /// `why` includes what to do.
    #[error("the {} root {path:?} cannot be used: {why}", .zone.name())]
    Root {
        zone: Zone,
        path: String,
        why: String,
    },
    /// A policy grants access to something that no cell may see.
    #[error("the policy grants {}, which would show the records in {} to commands", .grant.display(), .state.display())]
    Shown { grant: PathBuf, state: PathBuf },
    /// Commands would change something on which this machine's programs act.
    #[error("commands of the profile {profile:?} write to {} of this machine, and {} lies there: move it, or use another profile", .temporary.display(), .path.display())]
    Temporary {
        profile: String,
        temporary: PathBuf,
        path: PathBuf,
    },
}

/// Refuses to show the records to a cell, by what its policy grants.
pub(crate) fn hide_state(spec: &Rooted, user: &User) -> Result<(), RootError> {
    let mut real = Real::default();
    let state = real.of(&user.state());
    let mut shows = |view: &&View| {
        let path = match &view.kind {
            ViewKind::System => real.below(&view.path),
            ViewKind::Link(_) => real.of(&view.path),
            ViewKind::Zone(_) | ViewKind::Repository(_) | ViewKind::Image | ViewKind::Device => {
                return false;
            }
        };
        state.starts_with(&path) || path.starts_with(&state)
    };
    match spec.views.iter().find(&mut shows) {
        Some(view) => Err(RootError::Shown {
            grant: view.path.clone(),
            state,
        }),
        None => Ok(()),
    }
}

/// Refuses a session whose commands write to the machine's `/tmp` where the user's home, a root or something of ours lies in it: to what
/// has no name of its own there, `/tmp` is one tree.
pub(crate) fn keep_out_of_temporary(spec: &Rooted, user: &User) -> Result<(), RootError> {
    let mut real = Real::default();
    let (git, own) = (user.git(), [user.home.clone(), user.state(), data(user)]);
    let uid = geteuid().as_raw();
    let approvals = directories::approvals(&user.home, uid, &|name| user.variable(name));
    let separate = spec.policy.approval.channel == Channel::Separate;
    let paths = [&spec.project, &spec.central]
        .into_iter()
        .chain(spec.linked.iter().map(|linked| &linked.common))
        .chain(&own)
        .chain(approvals.iter().filter(|_| separate))
        .chain(&git.files)
        .chain(&git.own);
    let paths: Vec<PathBuf> = paths.map(|path| real.of(path)).collect();
    for temporary in spec.temporary().map(|path| real.of(path)) {
        if let Some(path) = paths.iter().find(|path| path.starts_with(&temporary)) {
            return Err(RootError::Temporary {
                profile: spec.policy.profile.clone(),
                temporary,
                path: path.clone(),
            });
        }
    }
    Ok(())
}

/// Caches resolved paths, as far as they exist. Most paths share their directories, which are resolved once.
#[derive(Default)]
struct Real(HashMap<PathBuf, PathBuf>);

impl Real {
    fn of(&mut self, path: &Path) -> PathBuf {
        let here = self.below(path);
        match fs::read_link(&here) {
            Ok(_) => fs::canonicalize(&here).unwrap_or(here),
            Err(_) => here,
        }
    }

    /// Resolves a path that is itself no link.
    fn below(&mut self, path: &Path) -> PathBuf {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        };
        if let Some(known) = self.0.get(parent) {
            return known.join(name);
        }
        let real = self.of(parent);
        let here = real.join(name);
        self.0.insert(parent.to_owned(), real);
        here
    }
}

/// Resolves both roots, and refuses those that would open what must stay closed.
pub(crate) fn resolve(
    request: &Open,
    policy: &EffectivePolicy,
    user: &User,
) -> Result<Zones, RootError> {
    // Checked before anything is created for it.
    let project = root(Zone::Project, &request.project, policy, user)?;
    let central = Path::new(&request.central);
    if central.is_absolute() && !central.exists() {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(central);
        let advice = directories::advice(central, &user.home, &|name| user.variable(name));
        let advice = advice.map_or_else(String::new, |advice| format!("; {advice}"));
        made.map_err(|error| {
            root_error(Zone::Central, &request.central, format!("{error}{advice}"))
        })?;
    }
    let central = root(Zone::Central, &request.central, policy, user)?;
    if project == central {
        let why = "it is the project root too; choose another directory".to_owned();
        return Err(root_error(Zone::Central, &request.central, why));
    }
    Ok(Zones { project, central })
}

fn root_error(zone: Zone, path: &str, why: String) -> RootError {
    RootError::Root {
        zone,
        path: path.to_owned(),
        why,
    }
}

fn root(
    zone: Zone,
    given: &str,
    policy: &EffectivePolicy,
    user: &User,
) -> Result<PathBuf, RootError> {
    let refuse = |why: String| root_error(zone, given, why);
    if !given.starts_with('/') || given.contains('\0') {
        return Err(refuse("give an absolute path".into()));
    }
    let path = fs::canonicalize(given).map_err(|error| refuse(error.to_string()))?;
    if !path.is_dir() {
        return Err(refuse("it is not a directory".into()));
    }
    if path.to_str().is_none() {
        return Err(refuse("its path is not UTF-8".into()));
    }
    let why = closed(&path, policy, user).or_else(|| never_opened(zone, &path, policy, user));
    let why = why.or_else(|| kept_at(&path, policy, &user.variables));
    why.map_or(Ok(path), |why| Err(refuse(why)))
}

/// What no lease opens is no root either: keys, sessions of browsers, and the central roots but for one that is to be a central root.
fn never_opened(zone: Zone, path: &Path, policy: &EffectivePolicy, user: &User) -> Option<String> {
    let data = data(user);
    if path
        .strip_prefix(&data)
        .is_ok_and(|below| is_for_roots(zone, below))
    {
        return None;
    }
    if path.starts_with(&data) || data.starts_with(path) {
        return Some(format!(
            "it would open the central roots of projects in {} to commands",
            data.display()
        ));
    }
    match policy.keys_at(path) {
        Ok(name) => name.map(|name| {
            format!(
                "{} is never opened to commands ({})",
                name.pattern, name.why
            )
        }),
        Err(error) => Some(error.to_string()),
    }
}

/// The projects of earlier sessions, without those that contain the user's home: all lies in these.
pub(crate) fn earlier_projects(user: &User) -> Vec<PathBuf> {
    let all = directories::all_data(&user.home, &|name| user.variable(name));
    let roots = all.iter().map(|data| data.join("projects"));
    let mut projects: Vec<PathBuf> = roots
        .flat_map(|one| central_owner::projects(&one))
        .collect();
    projects.retain(|project| !user.home.starts_with(project));
    projects
}

/// Where commands of earlier sessions could write: their projects and central roots.
pub(crate) fn written_before(user: &User) -> Vec<PathBuf> {
    let mut all = earlier_projects(user);
    all.push(data(user));
    all
}

/// The directory of data, without links.
fn data(user: &User) -> PathBuf {
    Real::default().of(&directories::data(&user.home, &|name| user.variable(name)))
}

/// Whether this path in the directory of data is for a root: `projects/NAME` and the like for one project's central root, and an empty
/// project of those that have none.
fn is_for_roots(zone: Zone, below: &Path) -> bool {
    match zone {
        Zone::Central => below.components().count() == 2,
        Zone::Project => below == Path::new(NO_PROJECT),
        Zone::Granted => false,
    }
}

/// Why an image may not lie at `path`: the same places are closed as to roots.
pub(crate) fn closed(path: &Path, policy: &EffectivePolicy, user: &User) -> Option<String> {
    protected_root(path, policy, user).or_else(|| closed_to_roots(path, user))
}

/// A root may not lie inside something that is protected in every root: no path below it would have the protected name.
fn protected_root(path: &Path, policy: &EffectivePolicy, user: &User) -> Option<String> {
    let bytes = path.as_os_str().as_encoded_bytes().strip_prefix(b"/")?;
    let name = policy
        .matcher
        .closed_to_zones(bytes)
        .map(|(name, end)| (end, name.why.as_str()));
    let shape = path
        .ancestors()
        .skip(1)
        .filter(|above| is_repository(above))
        .last();
    let shape = shape.map(|above| (above.as_os_str().len() - 1, "It is a repository of git's."));
    let (end, why) = name.into_iter().chain(shape).min()?;
    if may_hold_checkouts(bytes, end, &policy.matcher) && is_checkout(path, policy) {
        return None;
    }
    let protected = Path::new("/").join(OsStr::from_bytes(&bytes[..end]));
    let instead = protected
        .parent()
        .filter(|parent| closed_to_roots(parent, user).is_none());
    let instead = instead.map_or("a directory outside it".to_owned(), |parent| {
        parent.display().to_string()
    });
    Some(format!(
        "{} is protected in every root ({why}); use {instead}",
        protected.display()
    ))
}

/// Whether git recognises a directory as a repository, whatever its name.
fn is_repository(directory: &Path) -> bool {
    Repository::has_shape(|member| directory.join(member.name).symlink_metadata().is_ok())
}

/// Whether a checkout may lie at `path`, whose first `end` bytes are closed: below a name that is closed to writing as a whole,
/// so that no cell can have created it, or in a repository that is not a project's own, where git has no settings.
fn may_hold_checkouts(path: &[u8], end: usize, names: &Matcher) -> bool {
    let (above, below) = (&path[..end], path.get(end + 1..).unwrap_or_default());
    let open = match names.protection(above) {
        Some(name) => name.protection == Protection::Write,
        None => {
            let in_git = [b".git/", below].concat();
            names.protection(&in_git).is_none()
                && !names.reaches_below(&in_git)
                && !names.reaches_below(path)
        }
    };
    open && !below.is_empty() && names.closed_to_zones(below).is_none()
}

/// The user's outermost repository that contains a root: links and other names of files in it may
/// make something in the root protected.
pub(crate) fn outer_repository(root: &Path, user: &User) -> Option<PathBuf> {
    let own = |path: &Path| {
        path.symlink_metadata()
            .is_ok_and(|metadata| metadata.uid() == geteuid().as_raw())
    };
    let above = root
        .ancestors()
        .skip(1)
        .take_while(|path| closed_to_roots(path, user).is_none());
    above
        .filter(|path| own(path) && own(&path.join(".git")))
        .last()
        .map(Path::to_owned)
}

/// Why no repository is opened at `path` for a project that lies elsewhere: the same places are
/// closed as to roots, and the only protected name it may lie in is git's own.
pub(crate) fn closed_to_repositories(
    path: &Path,
    policy: &EffectivePolicy,
    user: &User,
) -> Option<String> {
    let git = |name: &&OsStr| is_in_git_directory(name.as_bytes());
    let outside: PathBuf = path.iter().take_while(|name| !git(name)).collect();
    let bytes = outside.as_os_str().as_encoded_bytes();
    let protected = bytes
        .strip_prefix(b"/")
        .and_then(|bytes| policy.matcher.closed_to_zones(bytes));
    let why =
        |(name, _): (&ProtectedName, usize)| format!("it lies in a protected name ({})", name.why);
    protected.map(why).or_else(|| closed_to_roots(path, user))
}

/// Whether it is a checkout to which its repository points back: a project of its own wherever it lies, as assistants
/// put theirs below their own directories. A directory in git's own directory is none, whatever it contains.
fn is_checkout(path: &Path, policy: &EffectivePolicy) -> bool {
    let mut names = path
        .components()
        .map(|name| name.as_os_str().as_encoded_bytes());
    if names.any(|name| name.eq_ignore_ascii_case(b".git")) {
        return false;
    }
    match linked_repository::find(path, [path, path], &policy.git_directories, |_| None) {
        // A repository that is not opened points back all the same.
        RepositoryLink::Verified(_) | RepositoryLink::Refused(_, NotLinked::HoldsRoot) => true,
        RepositoryLink::Inside
        | RepositoryLink::Refused(
            _,
            NotLinked::NoWayBack
            | NotLinked::NoRepository
            | NotLinked::OtherUser
            | NotLinked::Closed(_),
        ) => false,
    }
}

/// Why commands may not be leased `access` to `path`. A place closed to roots is closed to leases;
/// so is what the session has already under other rules: its zones, and its own storage.
pub(crate) fn closed_to_leases(
    path: &Path,
    access: Access,
    spec: &SandboxSpec,
    user: &User,
) -> Option<String> {
    let overlaps = |other: &Path| path.starts_with(other) || other.starts_with(path);
    let linked = spec
        .linked
        .iter()
        .flat_map(|linked| [linked.common.as_path(), linked.own.as_path()]);
    if [spec.project.as_path(), spec.central.as_path()]
        .into_iter()
        .chain(linked)
        .any(overlaps)
    {
        return Some(
            "it overlaps a root of the session, where closed names stay closed".to_owned(),
        );
    }
    if overlaps(&data(user))
        || path
            .ancestors()
            .any(|above| undo_directory::open(above).is_some())
    {
        return Some("it overlaps the central roots of projects".to_owned());
    }
    if spec.scratch.host.iter().any(|host| overlaps(host))
        || own_directories(spec).any(|own| own.starts_with(path))
    {
        return Some("commands have private directories there".to_owned());
    }
    let kept = kept_at(path, &spec.policy, &user.variables);
    kept.or_else(|| match access {
        Access::Read => closed_to_roots(path, user),
        Access::Write => closed(path, &spec.policy, user),
    })
}

/// The session's own directories, where cells have their own root.
fn own_directories(spec: &SandboxSpec) -> impl Iterator<Item = &Path> {
    let scratch = [spec.scratch.home.as_path(), spec.scratch.tmp.as_path()];
    mounts::OWN.iter().map(Path::new).chain(scratch)
}

/// A root may not be, contain or lie in a directory of the system or of our own rules, nor contain a home.
fn closed_to_roots(path: &Path, user: &User) -> Option<String> {
    let variable: directories::VariableLookup = &|name| user.variable(name);
    let mut homes = directories::homes(&user.home, variable).into_iter();
    if homes.any(|home| fs::canonicalize(&home).unwrap_or(home).starts_with(path)) {
        return Some("it contains your whole home directory; choose a directory inside it".into());
    }
    let configuration = directories::configuration(&user.home, variable);
    for (what, ours) in [
        ("your policy", configuration),
        ("the records", user.state()),
    ] {
        let ours = Real::default().of(&ours);
        if path.starts_with(&ours) || ours.starts_with(path) {
            return Some(format!(
                "it would open {what} in {} to commands",
                ours.display()
            ));
        }
    }
    fault_of_system(path)
}
