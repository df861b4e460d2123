//! Credentials that programs in cells may use and not see: which a session has, and by which line.
//!
//! Defined in the administrator's and the user's files, never in a project's, and not by a session. A profile names those that its
//! commands may use, as far as its file or an earlier one defines them; a shipped profile names what a user may define. The hosts of
//! a session's credentials are added to its network; each file's `[network]` bounds them as any other host.

use crate::credential_table::{
    ClientFile, Completed, CredentialName, CredentialTable, InitialFile, Shape, SourceEntry,
};
use crate::host::{Host, HostPathError};
use broker_protocol::gateway::{Attach, CredentialUse};
use policies_guard::Origin;
use policies_targets::network::NetworkTable;
use policies_targets::web::HostPattern;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A credential of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Credential {
    pub name: String,
    pub preset: Option<String>,
    pub from: CredentialSource,
    pub hosts: Vec<String>,
    pub attach: Attach,
    /// The variables of cells that hold its placeholder.
    pub variables: Vec<String>,
    /// Variables with a fixed value beside them, which are not secret.
    pub set: BTreeMap<String, String>,
    /// Files of the cells' home.
    pub files: Vec<ClientFile>,
    /// Files of an agent's own state.
    pub state: Vec<InitialFile>,
    pub uses: Vec<CredentialUse>,
    pub shape: Shape,
    /// The line that defines it.
    #[serde(skip)]
    pub origin: Origin,
}

/// Where a credential's value comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum CredentialSource {
    /// A program and its arguments.
    Command(Vec<String>),
    #[serde(serialize_with = "path")]
    File(PathBuf),
    /// A file of this name in `$CREDENTIALS_DIRECTORY`.
    Systemd(String),
    /// A variable of the broker's environment.
    Variable(String),
    /// Nowhere: a key of logins that is made for each session.
    Session,
}

fn path<S: Serializer>(path: &Path, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_bytes(path.as_os_str().as_encoded_bytes())
}

/// Where a value comes from on `host`; or the path that cannot be used, and why.
pub(crate) fn source(
    entry: Option<&SourceEntry>,
    host: &Host,
) -> Result<CredentialSource, (String, HostPathError)> {
    let Some(entry) = entry else {
        return Ok(CredentialSource::Session);
    };
    Ok(match entry {
        SourceEntry::Command(command) => CredentialSource::Command(command.words().to_vec()),
        SourceEntry::File(path) => {
            let expanded = path.expand(host);
            CredentialSource::File(expanded.map_err(|why| (path.text().to_owned(), why))?)
        }
        SourceEntry::Systemd(name) => CredentialSource::Systemd(name.as_str().to_owned()),
        SourceEntry::Env(name) => CredentialSource::Variable(name.as_str().to_owned()),
        SourceEntry::Keyring(item) => CredentialSource::Command(item.command()),
    })
}

/// A credential of a session from its table and its preset.
pub(crate) fn credential(
    name: &CredentialName,
    table: &CredentialTable,
    from: CredentialSource,
    completed: Completed<'_>,
    origin: Origin,
) -> Credential {
    let hosts = completed.hosts.iter();
    let variables = completed.env.iter();
    Credential {
        name: name.as_str().to_owned(),
        preset: table
            .preset
            .as_ref()
            .map(|preset| preset.as_str().to_owned()),
        from,
        hosts: hosts.map(|host| host.as_str().to_owned()).collect(),
        attach: completed.attach.clone(),
        variables: variables.map(|name| name.as_str().to_owned()).collect(),
        set: completed.set(),
        files: completed.files(),
        state: completed.state(),
        uses: completed.requests(),
        shape: completed.shape,
        origin,
    }
}

/// Adds the hosts of credentials to what a profile reaches: without them a credential is of no use.
pub(crate) fn add_hosts(network: &mut NetworkTable, credentials: &[Credential]) {
    let hosts = credentials
        .iter()
        .flat_map(|credential| &credential.hosts)
        .filter_map(|host| HostPattern::try_from(host.clone()).ok());
    for host in hosts {
        let allow = network.allow.get_or_insert_default();
        if !allow.contains(&host) {
            allow.push(host);
        }
    }
}
