//! Which files of the zones a lease opens to commands: masked files of secrets, to be read; files that names alone close for writing, if
//! a profile may open all of these names. Whatever else closes a file, no lease opens.

use broker_protocol::{Leased, Zone, ZonePath};
use executor_spec::protected_objects::ObjectId;
use executor_spec::readable_secret::{ReadableSecret, SecretView};
use executor_spec::sandbox::SandboxSpec;
use policies::Access;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A file in a zone that a lease opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZoneFile {
    /// A file of secrets, of which commands see placeholders otherwise, and its identity when the session opened.
    Masked(ObjectId),
    /// A file that names alone close for writing, all of which a profile may open, and what is said of the strongest.
    Named(String),
}

/// Why no lease opens a file of a zone that some lease could open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotLeasable {
    /// A file of secrets that a policy keeps masked.
    KeptMasked,
    Protected {
        pattern: String,
        why: String,
    },
    ReadOnlyProject,
    /// It is closed as an object too, or a link leads there.
    AlsoClosed,
}

impl fmt::Display for NotLeasable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeptMasked => {
                f.write_str("`[secrets]` of a policy file keeps it from being revealed")
            }
            Self::Protected { pattern, why } => write!(f, "{pattern} is protected ({why})"),
            Self::ReadOnlyProject => {
                f.write_str("commands of this session may not change the project")
            }
            Self::AlsoClosed => f.write_str("more than its name closes it"),
        }
    }
}

/// The lease that would let commands change the file at `path`, where calls of the session may want one.
pub fn to_change(path: &Path, spec: &SandboxSpec) -> Option<Leased> {
    opening(path, spec).filter(|_| spec.policy.path_leases.asked)
}

/// The lease that would let a file tool change the file at `path`, where file tools may ask for one.
pub fn to_edit(path: &ZonePath, spec: &SandboxSpec) -> Option<Leased> {
    match path.zone() {
        Zone::Project if spec.policy.path_leases.of_files => {
            opening(&spec.project.join(path.relative()), spec)
        }
        Zone::Project | Zone::Central | Zone::Granted => None,
    }
}

/// The lease that would open the file at `path` for a change.
fn opening(path: &Path, spec: &SandboxSpec) -> Option<Leased> {
    let text = path.to_str()?;
    // The name first: it is nobody's in most calls.
    let opens = || named(path, spec).is_ok_and(|opens| opens.is_some());
    let is_file = || {
        path.symlink_metadata()
            .is_ok_and(|metadata| metadata.is_file())
    };
    let may = || spec.policy.may_lease_in_zone(Access::Write, text).is_ok();
    (opens() && is_file() && may()).then(|| Leased::Write(text.to_owned()))
}

/// Whether every command reads this file of secrets as it is.
pub fn is_real(path: &Path, spec: &SandboxSpec) -> bool {
    secret(path, spec).is_some_and(|secret| secret.seen == SecretView::Real)
}

/// Finds the file that a lease with this `access` would open at `path`.
///
/// # Errors
/// Why it may not, where it could open something.
pub fn in_zone(
    path: &Path,
    access: Access,
    spec: &SandboxSpec,
) -> Result<Option<ZoneFile>, NotLeasable> {
    match access {
        Access::Read => masked(path, spec),
        Access::Write => named(path, spec),
    }
}

fn masked(path: &Path, spec: &SandboxSpec) -> Result<Option<ZoneFile>, NotLeasable> {
    let Some(secret) = secret(path, spec) else {
        return Ok(None);
    };
    if secret.may_be_revealed {
        Ok(Some(ZoneFile::Masked(secret.id)))
    } else {
        Err(NotLeasable::KeptMasked)
    }
}

fn named(path: &Path, spec: &SandboxSpec) -> Result<Option<ZoneFile>, NotLeasable> {
    let (root, access) = spec.zone(Zone::Project);
    let Some(below) = path
        .strip_prefix(root)
        .ok()
        .map(|below| below.as_os_str().as_bytes())
    else {
        return Ok(None);
    };
    let matcher = &spec.policy.matcher;
    let Some(name) = matcher.protection(below) else {
        return Ok(None);
    };
    if !matcher.opens(below) {
        return Err(NotLeasable::Protected {
            pattern: name.pattern.to_string(),
            why: name.why.clone(),
        });
    }
    if access != Access::Write {
        return Err(NotLeasable::ReadOnlyProject);
    }
    let also_closed = spec.found().also_closed.iter().map(|closed| &closed.path);
    let mut closed = also_closed.chain(&spec.found().led_to);
    if closed.any(|closed| path.starts_with(closed)) {
        return Err(NotLeasable::AlsoClosed);
    }
    Ok(Some(ZoneFile::Named(name.why.clone())))
}

fn secret<'s>(path: &Path, spec: &'s SandboxSpec) -> Option<&'s ReadableSecret> {
    spec.found()
        .secrets
        .iter()
        .find(|secret| secret.path == path)
}
