//! Keys of the user's ssh agent that commands may use and not see: which a session has, for which hosts, and what is asked about.
//!
//! Defined and named as credentials are: in no project's file and not by a session, and `allowed_credentials` limits these names too. Their
//! hosts are added to the session's network.

use crate::credential_table::CredentialName;
use crate::value::checked_text;
use broker_protocol::limit;
use policies_guard::Origin;
use policies_targets::network::NetworkTable;
use policies_targets::web::HostPattern;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thiserror::Error;
use toml::Spanned;

/// Port of a host that names none.
const DEFAULT_PORT: u16 = 22;
/// Longest name of a user at a host, in bytes.
const USER_MAX: usize = 64;
/// Length of a SHA-256 digest in base64 without padding.
const FINGERPRINT: usize = 43;

/// An invalid part of `[ssh.NAME]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SshFault {
    #[error(
        "a host of `[ssh]` is one NAME or NAME:PORT ({DEFAULT_PORT} if absent), in lower case, without `*`"
    )]
    Host,
    #[error("`user` is 1 to {USER_MAX} visible characters, and does not begin with `-`")]
    User,
    #[error("a key is named as `ssh-add -l` names it: `SHA256:` and {FINGERPRINT} characters")]
    Key,
    #[error("`[ssh.NAME]` has 1 to {max} `hosts` and 1 to {max} `keys`", max = limit::SSH_KEYS)]
    Count,
}

/// `[ssh.NAME]` as a file writes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SshTable {
    pub(crate) hosts: Vec<SshHost>,
    /// The user's name at the hosts.
    pub(crate) user: SshUser,
    /// Keys of the user's agent, by their fingerprints.
    pub(crate) keys: Vec<KeyFingerprint>,
    /// Decides if each login is asked about.
    #[serde(default, rename = "use")]
    pub(crate) login: LoginRule,
    /// Lets the keys sign for git; absent, they do not.
    pub(crate) sign: Option<SignRule>,
}

pub(crate) type SshTables = BTreeMap<Spanned<CredentialName>, SshTable>;

/// Decision on a program that logs in with a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoginRule {
    Allow,
    #[default]
    Ask,
}

/// Decision on a signature for git. No file allows it unasked: the agent cannot show what is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SignRule {
    Ask,
}

/// Keys that a session has, as its policy says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SshKeys {
    pub name: String,
    /// Hosts where they log in, as `HOST:PORT`.
    pub hosts: Vec<String>,
    pub user: String,
    pub keys: Vec<String>,
    pub login: LoginRule,
    pub sign: Option<SignRule>,
    /// The line that defines them.
    #[serde(skip)]
    pub origin: Origin,
}

checked_text!(
    /// A host with its port.
    SshHost,
    SshFault,
    |text| {
        let pattern = HostPattern::try_from(text).map_err(|_| SshFault::Host)?;
        let (host, port) = pattern.one().ok_or(SshFault::Host)?;
        Ok(format!("{host}:{}", port.unwrap_or(DEFAULT_PORT)))
    }
);

checked_text!(
    /// The name of a user at a host.
    SshUser,
    SshFault,
    |text| {
        let fits = (1..=USER_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic())
            && !text.starts_with('-');
        fits.then_some(text).ok_or(SshFault::User)
    }
);

checked_text!(
    /// The fingerprint of a public key.
    KeyFingerprint,
    SshFault,
    |text| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"+/".contains(&byte);
        let digits = text.strip_prefix("SHA256:");
        let fits = |digits: &str| digits.len() == FINGERPRINT && digits.bytes().all(allowed);
        let fits = digits.is_some_and(fits);
        fits.then_some(text).ok_or(SshFault::Key)
    }
);

impl SshTable {
    fn is_counted(&self) -> bool {
        let counts = 1..=limit::SSH_KEYS;
        counts.contains(&self.hosts.len()) && counts.contains(&self.keys.len())
    }

    pub(crate) fn keys(&self, name: &CredentialName, origin: Origin) -> SshKeys {
        SshKeys {
            name: name.as_str().to_owned(),
            hosts: self.hosts.iter().map(|host| host.0.clone()).collect(),
            user: self.user.0.clone(),
            keys: self.keys.iter().map(|key| key.0.clone()).collect(),
            login: self.login,
            sign: self.sign,
            origin,
        }
    }
}

/// The first table with too few or too many entries, by its byte.
pub(crate) fn fault(tables: &SshTables) -> Option<(usize, SshFault)> {
    let (name, _) = tables.iter().find(|(_, table)| !table.is_counted())?;
    Some((name.span().start, SshFault::Count))
}

/// Adds the hosts of keys to what a profile reaches.
pub(crate) fn add_hosts(network: &mut NetworkTable, keys: &[SshKeys]) {
    let hosts = keys.iter().flat_map(|keys| &keys.hosts);
    let patterns = hosts.filter_map(|host| HostPattern::try_from(host.clone()).ok());
    for host in patterns {
        let allow = network.allow.get_or_insert_default();
        if !allow.contains(&host) {
            allow.push(host);
        }
    }
}
