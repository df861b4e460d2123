//! The gain of a profile by one more entry, and that it gains nothing else by it.

use crate::{DocumentError, add_to_list, set_key};
use broker_protocol::Leased;
use policies::leases::LeaseError;
use policies::opened::{self, OpenedName};
use policies::ports::PortError;
use policies::secrets::{SecretMode, SecretName};
use policies::web::{HostPattern, WebTable};
use policies::{Access, EffectivePolicy, PolicyError, WebPolicy, network};
use policies_guard::ProtectedName;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a profile cannot have an entry.
#[derive(Debug, Error)]
pub enum GainError {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Network(#[from] network::NetworkError),
    #[error(transparent)]
    Port(#[from] PortError),
    #[error(transparent)]
    Path(#[from] LeaseError),
    #[error("a profile cannot grant {0} for writing; grant it for a session")]
    Written(String),
    #[error(
        "commands may do with {0} what the profile says of the project; no name closes it that a profile could open"
    )]
    InProject(String),
    #[error("`[secrets]` of a policy file keeps {0} from being shown")]
    Hidden(String),
}

/// One more entry of a profile.
pub(crate) enum Gain {
    Network(WebPolicy),
    /// A port of this machine's loopback.
    Port(u16),
    Read(PathBuf),
    /// Files of secrets with this name are shown.
    Secret(String),
    /// Files with this name may be changed.
    Open(String),
}

impl Gain {
    /// The entry that the user means by `opens`. In `project` commands read everything else, so a path there is one of a file whose name is closed.
    pub(crate) fn of(
        opens: &Leased,
        old: &EffectivePolicy,
        project: Option<&Path>,
    ) -> Result<Self, GainError> {
        let in_project = |path: &str| project.is_some_and(|root| Path::new(path).starts_with(root));
        match opens {
            Leased::Host(host) => Ok(Self::Network(network::leased(old.network.clone(), host)?)),
            Leased::Port(port) => {
                old.ports.may_lease(*port)?;
                Ok(Self::Port(*port))
            }
            Leased::Read(path) => match old.masked_name(path) {
                Some(name) if old.secrets.max(name.as_bytes()) == SecretMode::Show => {
                    Ok(Self::Secret(name.to_owned()))
                }
                Some(name) => Err(GainError::Hidden(name.to_owned())),
                None if in_project(path) => match openable(old, path) {
                    Some(name) => Ok(Self::Open(name)),
                    None => Err(GainError::InProject(path.clone())),
                },
                None => {
                    let path = old.may_lease(Access::Read, path, &old.lease_names()?)?;
                    Ok(Self::Read(path))
                }
            },
            Leased::Write(path) => {
                let name = openable(old, path);
                let name = name.ok_or_else(|| GainError::Written(path.clone()))?;
                Ok(Self::Open(name))
            }
        }
    }

    /// Advice on an entry to write instead.
    pub(crate) fn advice(&self, opens: &Leased) -> String {
        let what = opens.parts().1;
        match self {
            Self::Network(_) => format!("add {what} to `network.allow` of the profile yourself"),
            Self::Port(_) => format!("add {what} to `network.connect` of the profile yourself"),
            Self::Read(_) => format!("add {what} to `read` of the profile yourself"),
            Self::Secret(name) => {
                format!("set `{name}` to 'show' in `secrets` of the profile yourself")
            }
            Self::Open(name) => format!("add {name} to `open` of the profile yourself"),
        }
    }

    /// The names that it opens: a name counts in every project.
    pub(crate) fn describe(&self, opens: &Leased) -> String {
        match self {
            Self::Network(_) | Self::Read(_) => opens.parts().1.into_owned(),
            Self::Port(port) => format!("port {port} of this machine's loopback"),
            Self::Secret(name) => {
                format!("every file named {name}, with its values, in each project,")
            }
            Self::Open(name) => format!("{name}, for writing in each project,"),
        }
    }

    /// Adds it to `profile` in a policy file.
    pub(crate) fn add(
        &self,
        text: &str,
        opens: &Leased,
        profile: &str,
        comment: &str,
    ) -> Result<String, DocumentError> {
        let what = opens.parts().1;
        let add = |list: &[&str], item: &str| {
            add_to_list(text, &[&["profile", profile], list].concat(), item, comment)
        };
        match self {
            Self::Network(_) => add(&["network", "allow"], &what),
            Self::Port(port) => {
                let list = ["profile", profile, "network", "connect"];
                add_to_list(text, &list, i64::from(*port), comment)
            }
            Self::Read(_) => add(&["read"], &what),
            Self::Open(name) => add(&["open"], name),
            Self::Secret(name) => set_key(
                text,
                &["profile", profile, "secrets", name],
                "show",
                comment,
            ),
        }
    }

    pub(crate) fn is_nothing(&self, policy: &EffectivePolicy) -> bool {
        match self {
            Self::Network(expected) => texts(expected) == texts(&policy.network),
            Self::Port(port) => policy.ports.connect.contains(port),
            Self::Read(path) => policy.read.contains(path),
            Self::Secret(name) => policy.secrets.of(name.as_bytes()) == SecretMode::Show,
            Self::Open(name) => policy.opened.contains(name),
        }
    }

    /// Whether `now` is `before` with exactly this. Without `is_meant` it is another profile, which extends the one that `was`.
    pub(crate) fn is_all(
        &self,
        before: &EffectivePolicy,
        now: &EffectivePolicy,
        (was, is_meant): (&EffectivePolicy, bool),
    ) -> bool {
        let mut expected = before.clone();
        match self {
            Self::Network(network) if is_meant => expected.network = network.clone(),
            Self::Network(network) => {
                expected.network = with_gain(&before.network, network, &was.network);
            }
            Self::Port(port) => {
                expected.ports.connect.push(*port);
                expected.ports.connect.sort_unstable();
                expected.ports.connect.dedup();
            }
            Self::Read(path) => {
                expected.read.push(path.clone());
                expected.read.sort();
                expected.read.dedup();
            }
            Self::Secret(name) => {
                let Ok(name) = SecretName::try_from(name.clone()) else {
                    return false;
                };
                expected.secrets.own.insert(name, SecretMode::Show);
            }
            Self::Open(name) => {
                let Some(opened) = with_opened(before, name) else {
                    return false;
                };
                let all = before.opened.iter().chain([name]);
                if !is_same_names(&opened, &now.protected)
                    || all.collect::<BTreeSet<_>>() != now.opened.iter().collect()
                {
                    return false;
                }
                // In another order they close as much.
                (expected.protected, expected.opened) = (now.protected.clone(), now.opened.clone());
            }
        }
        is_same(&expected, now)
    }
}

/// The name in `path` that a profile opens, or has opened.
fn openable(policy: &EffectivePolicy, path: &str) -> Option<String> {
    let below = path.trim_start_matches('/');
    let opened = policy.opened.iter();
    let mut opened = opened.filter(|name| format!("/{below}/").contains(&format!("/{name}/")));
    let opened = opened.next().cloned();
    opened.or_else(|| policy.name_to_open(below))
}

/// Advice on an entry for `opens`, before it is known which entry that is.
pub(crate) fn advice(opens: &Leased, what: &str) -> String {
    let list = match opens {
        Leased::Host(_) => "network.allow",
        Leased::Port(_) => "network.connect",
        Leased::Read(_) => "read",
        Leased::Write(_) => "open",
    };
    format!("add {what} to `{list}` of the profile yourself")
}

/// The names that stay protected once this one is open too.
fn with_opened(before: &EffectivePolicy, name: &str) -> Option<Vec<ProtectedName>> {
    let name = OpenedName::try_from(name.to_owned()).ok()?;
    opened::open(before.protected.to_vec(), &[name].into(), &before.profile).ok()
}

/// Whether these are the same names, in whatever order and on whatever lines.
fn is_same_names(some: &[ProtectedName], others: &[ProtectedName]) -> bool {
    let without_line = |name: &ProtectedName| ProtectedName {
        origin: Default::default(),
        ..name.clone()
    };
    let others: Vec<_> = others.iter().map(without_line).collect();
    some.len() == others.len() && some.iter().all(|name| others.contains(&without_line(name)))
}

/// `network` plus what `expected` has in addition to `was`.
fn with_gain(network: &WebPolicy, expected: &WebPolicy, was: &WebPolicy) -> WebPolicy {
    let had = texts(was);
    let gained = expected
        .own
        .allow
        .iter()
        .flatten()
        .filter(|host| !had.contains(host.text()));
    let mut network = network.clone();
    network
        .own
        .allow
        .get_or_insert_default()
        .extend(gained.cloned());
    network
}

/// Whether two policies are equal; the order of hosts does not matter.
pub(crate) fn is_same(expected: &EffectivePolicy, now: &EffectivePolicy) -> bool {
    let rest = |policy: &WebPolicy| WebPolicy {
        own: WebTable {
            allow: None,
            ..policy.own.clone()
        },
        bounds: policy.bounds.clone(),
    };
    let others = EffectivePolicy {
        network: expected.network.clone(),
        ..now.clone()
    };
    let unchanged = others
        .compute_digest()
        .ok()
        .zip(expected.compute_digest().ok());
    unchanged.is_some_and(|(now, expected)| now == expected)
        && rest(&now.network) == rest(&expected.network)
        && texts(&now.network) == texts(&expected.network)
}

/// The hosts that a profile allows.
fn texts(policy: &WebPolicy) -> BTreeSet<String> {
    policy
        .own
        .allow
        .iter()
        .flatten()
        .map(HostPattern::text)
        .map(str::to_owned)
        .collect()
}
