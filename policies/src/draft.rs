//! A session's policy while its profiles are added, the later ones over the earlier ones.

use crate::effective::EnvironmentRules;
use crate::error::PolicyError;
use crate::host::{Host, HostPath, HostPathError};
use crate::limits::LimitsTable;
use crate::model::{Environment, Profile};
use crate::opened::OpenedName;
use crate::secrets::SecretsTable;
use crate::value::SetValue;
use broker_protocol::Layer;
use policies_guard::Access;
use policies_guard::Origin;
use policies_targets::http::{HttpRow, HttpRows};
use policies_targets::network::NetworkTable;
use policies_targets::web::WebTable;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use toml::Spanned;

/// The merged content of the profiles so far. Empty, it allows nothing.
#[derive(Default)]
pub(crate) struct Draft {
    pub project: Option<(Access, Origin)>,
    pub(crate) central: Option<(Access, Origin)>,
    /// By path, whether each may be missing.
    /// Each with whether it may be missing, and what is not granted of it.
    pub(crate) grants: BTreeMap<PathBuf, (bool, BTreeSet<String>)>,
    pub read: BTreeSet<PathBuf>,
    pub listed: BTreeSet<PathBuf>,
    pub(crate) sockets: BTreeSet<PathBuf>,
    pub(crate) git_directories: BTreeSet<PathBuf>,
    pub(crate) image: Option<PathBuf>,
    pub(crate) environment: EnvironmentRules,
    pub(crate) credentials: BTreeSet<String>,
    pub(crate) ssh: BTreeSet<String>,
    pub(crate) web: WebTable,
    pub(crate) network: NetworkTable,
    /// Rules for requests, the last profile's first: it knows best.
    pub http: Vec<(HttpRow, Origin)>,
    pub(crate) hide: Option<bool>,
    pub(crate) open: BTreeSet<OpenedName>,
    pub(crate) secrets: SecretsTable,
    pub(crate) limits: LimitsTable,
    pub(crate) required: BTreeSet<Layer>,
    pub(crate) expected: BTreeSet<Layer>,
}

/// A host path that cannot be used.
pub(crate) struct PathFault(HostPath, HostPathError);

impl PathFault {
    pub(crate) fn in_profile(self, profile: &str) -> PolicyError {
        PolicyError::Path {
            profile: profile.to_owned(),
            path: self.0.text().to_owned(),
            why: self.1,
        }
    }
}

fn expand(path: &HostPath, host: &Host) -> Result<PathBuf, PathFault> {
    path.expand(host)
        .map_err(|why| PathFault(path.clone(), why))
}

/// A path to grant. One that would open the home directory, as `/opt` does where `/opt/app` is the home, is an error.
fn expand_narrow(path: &HostPath, host: &Host) -> Result<PathBuf, PathFault> {
    let expanded = expand(path, host)?;
    host.narrow(&expanded)
        .map_err(|why| PathFault(path.clone(), why))?;
    Ok(expanded)
}

/// An optional path to grant. If it is too wide it is left out, as if it were missing on this machine.
fn expand_narrow_or_leave_out(path: &HostPath, host: &Host) -> Result<Option<PathBuf>, PathFault> {
    match expand_narrow(path, host) {
        Err(PathFault(_, HostPathError::TooWide)) => Ok(None),
        expanded => expanded.map(Some),
    }
}

/// Rows with the lines that they come from.
pub(crate) fn placed(rows: &HttpRows, origin: impl Fn(usize) -> Origin) -> Vec<(HttpRow, Origin)> {
    let one = |row: &Spanned<HttpRow>| (row.get_ref().clone(), origin(row.span().start));
    rows.iter().map(one).collect()
}

impl Draft {
    /// Adds a profile. `origin` makes a line of a byte of its file.
    pub(crate) fn add(
        &mut self,
        profile: &Profile,
        origin: impl Fn(usize) -> Origin,
        host: &Host,
    ) -> Result<(), PathFault> {
        for (zone, written) in [
            (&mut self.project, &profile.project),
            (&mut self.central, &profile.central),
        ] {
            if let Some(access) = written {
                *zone = Some((*access.get_ref(), origin(access.span().start)));
            }
        }
        for grant in &profile.grants {
            let path = match grant.optional {
                true => expand_narrow_or_leave_out(&grant.path, host)?,
                false => Some(expand_narrow(&grant.path, host)?),
            };
            let Some(path) = path else {
                continue;
            };
            // A path that one profile must have is not optional because another could do without it.
            let (optional, except) = self.grants.entry(path).or_insert((true, BTreeSet::new()));
            *optional &= grant.optional;
            except.extend(grant.except.iter().map(|path| path.as_str().to_owned()));
        }
        for path in &profile.read {
            self.read.insert(expand(path, host)?);
        }
        for path in &profile.listed {
            self.listed.extend(expand_narrow_or_leave_out(path, host)?);
        }
        for path in &profile.sockets {
            self.sockets.insert(expand(path, host)?);
        }
        for path in &profile.git_directories {
            self.git_directories.insert(expand(path, host)?);
        }
        if let Some(image) = &profile.image {
            self.image = Some(expand(image, host)?);
        }
        let credentials = profile.credentials.iter();
        self.credentials
            .extend(credentials.map(|name| name.get_ref().as_str().to_owned()));
        let ssh = profile.ssh.iter();
        self.ssh
            .extend(ssh.map(|name| name.get_ref().as_str().to_owned()));
        self.web.set(&profile.web);
        self.network.set(&profile.network);
        self.add_http(&profile.network, &origin);
        self.hide = profile.hide.or(self.hide);
        self.open.extend(profile.open.iter().cloned());
        self.secrets.extend(profile.secrets.clone());
        self.limits.set(&profile.limits);
        self.required
            .extend(profile.required.iter().map(|layer| layer.0));
        self.expected
            .extend(profile.expected.iter().map(|layer| layer.0));
        self.add_environment(&profile.environment, host)
    }

    fn add_http(&mut self, table: &NetworkTable, origin: impl Fn(usize) -> Origin) {
        let Some(rows) = &table.http else {
            return;
        };
        if table.replace || rows.is_empty() {
            self.http.clear();
        }
        self.http.splice(0..0, placed(rows, origin));
    }

    fn add_environment(&mut self, environment: &Environment, host: &Host) -> Result<(), PathFault> {
        let rules = &mut self.environment;
        for name in &environment.pass {
            if !rules.pass.iter().any(|known| known == name.as_str()) {
                rules.pass.push(name.as_str().to_owned());
            }
        }
        rules.credentials.extend(
            environment
                .credentials
                .iter()
                .map(|name| name.as_str().to_owned()),
        );
        rules.state.extend(
            environment
                .state
                .iter()
                .map(|name| name.as_str().to_owned()),
        );
        for (written, rules) in [
            (&environment.set, &mut rules.set),
            (&environment.offline, &mut rules.offline),
        ] {
            for (name, value) in written {
                let value = match value {
                    SetValue::Text(text) => text.clone(),
                    SetValue::Path(path) => expand(path, host)?.to_string_lossy().into_owned(),
                };
                rules.insert(name.as_str().to_owned(), value);
            }
        }
        let front = environment
            .path
            .iter()
            .map(|path| expand(path, host))
            .collect::<Result<Vec<_>, _>>()?;
        rules.path.retain(|old| !front.contains(old));
        rules.path.splice(0..0, front);
        Ok(())
    }
}
