//! Decides which failed calls of a traced command the cell caused, and the smallest grant that would have allowed each.
//!
//! The calls are untrusted input; what is looked up for them is the user's to know, and goes to the user's client,
//! never to the cell. A call that would have failed outside too was not caused by the cell, and is not reported.

use crate::describe::{describe, outside, protected_at};
use crate::named::plain;
use broker_protocol::{AttemptKind, Barrier, Denial, Layer, Leased, Remedy, Traced};
use executor_layers::seccomp;
use executor_spec::refusals::{Cause, Refusal};
use executor_spec::sandbox::{SandboxSpec, ViewKind};
use nix::unistd::{AccessFlags, access};
use policies::Access;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Checks whether commands may be leased a path for the rest of a session, or returns why not.
pub(crate) type Leasable<'a> = &'a dyn Fn(Access, &Path) -> Result<(), String>;

/// Directories where the cell's contents differ from the machine's whatever is granted. Control groups among them: runtimes look there for
/// their limits, do without, and would find those of other programs.
const OF_THE_KERNEL: [&str; 3] = ["/proc", "/dev", "/sys/fs/cgroup"];

/// Directories that a cell has for itself and the machine has too.
const SCRATCH: [&str; 4] = ["/tmp", "/var/tmp", "/run", "/dev/shm"];

/// The denial for a failed call, if the cell caused the failure.
pub fn explain(traced: &Traced, spec: &SandboxSpec, leasable: Leasable) -> Option<Denial> {
    match traced {
        Traced::Call(call) => {
            let closed = seccomp::refuses(spec.tier, call.number, &call.arguments);
            let why = "Cells may not make this system call, or not with these arguments.";
            let by = Barrier::Layer(Layer::Seccomp, None);
            closed.then(|| {
                Denial::new(
                    AttemptKind::SystemCall,
                    &*call.name,
                    by,
                    why,
                    Remedy::Nothing,
                )
            })
        }
        Traced::Path { kind, path } => {
            let path = plain(Path::new(path)).filter(|path| path.is_absolute())?;
            if OF_THE_KERNEL.iter().any(|own| path.starts_with(own)) {
                return None;
            }
            match kind {
                AttemptKind::Read => read(*kind, &path, AccessFlags::R_OK, spec, leasable),
                AttemptKind::Run => read(*kind, &path, AccessFlags::X_OK, spec, leasable),
                AttemptKind::Write | AttemptKind::Metadata => write(*kind, &path, spec, leasable),
                AttemptKind::Connect
                | AttemptKind::Resolve
                | AttemptKind::SystemCall
                | AttemptKind::Use
                | AttemptKind::Call => None,
            }
        }
    }
}

/// The denial for a path that the user can read and the command could not.
fn read(
    kind: AttemptKind,
    path: &Path,
    how: AccessFlags,
    spec: &SandboxSpec,
    leasable: Leasable,
) -> Option<Denial> {
    if access(path, how).is_err() {
        return None;
    }
    if spec.found().pins.iter().any(|pin| pin.hides(path)) {
        return Some(protected_at(kind, path, spec));
    }
    if is_in_roots(path, spec) || is_in_views(path, spec) {
        return None;
    }
    let mut denial = outside(path, spec);
    denial.what.kind = kind;
    Some(with_grant(denial, Access::Read, path, spec, leasable))
}

/// The denial for a path where the user can create or change files and the command could not.
fn write(kind: AttemptKind, path: &Path, spec: &SandboxSpec, leasable: Leasable) -> Option<Denial> {
    let refusal = |cause| Refusal {
        kind,
        cause,
        object: None,
        target: path.as_os_str().as_bytes().to_vec(),
        count: 1,
    };
    if is_in_roots(path, spec) {
        let held = spec.found().pins.iter().find(|pin| pin.holds(path));
        return held.and_then(|_| describe(&refusal(Cause::Protected), spec));
    }
    let parent = path.parent()?;
    let changes = |path: &Path| access(path, AccessFlags::W_OK).is_ok();
    // There commands have their own files, whatever the machine has.
    let is_own = SCRATCH.iter().any(|own| parent == Path::new(own)) || parent == spec.scratch.home;
    if is_own || !(changes(path) || !path.exists() && changes(parent)) {
        return None;
    }
    let denial = describe(&refusal(Cause::Outside), spec)?;
    // Creating a file needs access to its directory, so that is what must be granted.
    Some(with_grant(denial, Access::Write, parent, spec, leasable))
}

fn is_in_roots(path: &Path, spec: &SandboxSpec) -> bool {
    let linked = spec.linked.iter().map(|linked| linked.common.as_path());
    [spec.project.as_path(), spec.central.as_path()]
        .into_iter()
        .chain(linked)
        .any(|root| path.starts_with(root))
}

fn is_in_views(path: &Path, spec: &SandboxSpec) -> bool {
    let of_the_machine = |kind: &ViewKind| matches!(kind, ViewKind::System | ViewKind::Link(_));
    spec.views
        .iter()
        .any(|view| of_the_machine(&view.kind) && path.starts_with(&view.path))
}

/// Adds to the denial how to get `wanted` from those who would have to grant it; or why nobody can grant it.
fn with_grant(
    mut denial: Denial,
    access: Access,
    wanted: &Path,
    spec: &SandboxSpec,
    leasable: Leasable,
) -> Denial {
    let (option, lease): (_, fn(String) -> Leased) = match access {
        Access::Read => ("--read", Leased::Read),
        Access::Write => ("--write", Leased::Write),
    };
    match (leasable(access, wanted), wanted.to_str()) {
        (Ok(()), Some(path)) => {
            denial.remedy = Remedy::Option(format!("{option} {path}"));
            denial.with_lease(Some(lease(path.to_owned())))
        }
        // A path that only a profile may show cannot be leased to a session.
        (Err(_), _)
            if access == Access::Read && spec.policy.lease_for(access, wanted).is_none() =>
        {
            denial.with_lease(None)
        }
        (Err(why), _) => {
            denial.remedy = Remedy::Advice(format!("no option opens it: {why}"));
            denial.with_lease(None)
        }
        (Ok(()), None) => denial.with_lease(None),
    }
}
