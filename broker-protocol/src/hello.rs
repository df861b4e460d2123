//! How a connection begins: both sides identify themselves, then the client opens its one session.

use crate::digest::Digest;
use crate::lease::check_paths;
use crate::limit::{self, TooLarge, at_most};
use crate::network::{Network, NetworkRequest};
use crate::scope::{Scope, Trust};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// First bytes of a [`Hello`], which distinguish an unrelated client from an old one.
pub const MAGIC: [u8; 8] = *b"LAZARET\0";
/// Version of everything in this crate. Any change of a wire type increments it: bincode does not describe itself.
pub const VERSION: u16 = 32;
/// Optional features that this build supports, one bit each. None is defined yet.
pub(crate) const FEATURES: u64 = 0;

/// Variable by which a gateway is told the [`VERSION`] of who starts it: before a frame of another version could be read as something else.
pub const VERSION_VARIABLE: &str = "LAZARET_PROTOCOL";

/// This release as `--version` prints it, of a build of `commit`: programs work together if they speak the same protocol.
pub fn release(commit: Option<&str>) -> String {
    let version = env!("CARGO_PKG_VERSION");
    match commit {
        Some(commit) => format!("{version} (commit {commit}, protocol {VERSION})"),
        None => format!("{version} (protocol {VERSION})"),
    }
}

/// The first frame in each direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Always [`MAGIC`].
    pub magic: [u8; 8],
    /// The sender's [`VERSION`].
    pub version: u16,
    /// Features the sender supports; both sides use the intersection.
    pub features: u64,
    /// Digest of the policy files. From the broker: of those it has read. From a client: the one it
    /// expects, if it matters; the broker refuses the connection when they differ.
    pub policy: Option<Digest>,
}

/// Why a hello is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum HelloError {
    /// The peer does not speak this protocol.
    #[error("the peer does not speak the Lazaret protocol")]
    Magic,
    /// The peer speaks another version.
    #[error(
        "the peer speaks protocol version {theirs}, this side speaks {ours}; install both programs from one release"
    )]
    Version { theirs: u16, ours: u16 },
}

impl Hello {
    /// The hello that this build sends.
    pub fn ours(policy: Option<Digest>) -> Self {
        Self {
            magic: MAGIC,
            version: VERSION,
            features: FEATURES,
            policy,
        }
    }

    /// Checks the hello of the peer.
    pub fn check(&self) -> Result<(), HelloError> {
        if self.magic != MAGIC {
            return Err(HelloError::Magic);
        }
        if self.version != VERSION {
            return Err(HelloError::Version {
                theirs: self.version,
                ours: VERSION,
            });
        }
        Ok(())
    }
}

/// Opens the connection's one session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// Absolute path of the project root. It must exist and belong to the executor's user.
    pub project: String,
    /// Absolute path of the central root; created if it is missing (its parents too).
    pub central: String,
    /// Name of a shipped profile or of one in the user's policy; `auto` for the one that the policy
    /// assigns to this kind of project; empty for the policy's default profile.
    pub profile: String,
    /// How many cells to keep ready between calls, 0 to 4. A session that runs one command needs none.
    pub spare: u8,
    /// The tools to which the session is restricted; absent, it may use every tool that the policy allows.
    pub scope: Option<Scope>,
    /// How often to ask for approval. A policy may require more.
    pub trust: Trust,
    /// Bytes of a command's output to keep in its outcome, if less than the policy keeps; the rest
    /// is in a file. 0 to the policy's own limit.
    pub capture: Option<u32>,
    /// The hosts and ports that cells may reach beyond those of the profile, by the session's gateway. Absent, cells have no network,
    /// whatever the policy allows.
    pub network: Option<NetworkRequest>,
    /// Absolute path of an unpacked image whose root cells see in place of the machine's. It cannot replace a profile's own image.
    pub image: Option<String>,
    /// Paths of the machine that every command can read beyond those of the profile, as the user opening the session has
    /// requested: leases for as long as it lasts. With `write` at most [`limit::WANTED_PATHS`].
    pub read: Vec<String>,
    /// Directories of the machine to which every command can write, in the same way.
    pub write: Vec<String>,
    /// Whether what commands change in both roots is discarded with the session. Such a session
    /// runs only traced foreground commands; they reach no host.
    pub throw_away: bool,
    /// Files of secrets in the project that every command can read as they are: absolute, or relative to the project. At most
    /// [`limit::WANTED_PATHS`].
    pub reveal: Vec<String>,
    /// Seconds that a question of the session waits for its answer where the policy sets no time; at most
    /// [`limit::ANSWER_MAX_S`]. Absent: [`limit::ANSWER_S`].
    pub answer_s: Option<u32>,
    /// Other absolute paths of the project root, through links, under which commands find it too. At most
    /// [`limit::PROJECT_NAMES`]; one that leads elsewhere is ignored.
    pub names: Vec<String>,
    /// Somebody can be asked by file tools for a lease of the file that they would change.
    pub file_leases: bool,
}

impl Open {
    /// A session of the policy's default profile in `project`, without spare cells and with nothing that is optional; calls need no
    /// approval beyond those that the policy requires.
    pub fn new(project: String) -> Self {
        Self {
            project,
            central: String::new(),
            profile: String::new(),
            spare: 0,
            scope: None,
            trust: Trust::Autonomous,
            capture: None,
            network: None,
            image: None,
            read: Vec::new(),
            write: Vec::new(),
            throw_away: false,
            reveal: Vec::new(),
            answer_s: None,
            names: Vec::new(),
            file_leases: false,
        }
    }

    /// Checks every limit that the type itself does not enforce.
    pub fn check(&self) -> Result<(), TooLarge> {
        self.scope.as_ref().map_or(Ok(()), Scope::check)?;
        check_paths(&self.read, &self.write)?;
        check_paths(&self.reveal, &[])?;
        at_most("names", self.names.len(), limit::PROJECT_NAMES, "paths")?;
        check_paths(&self.names, &[])?;
        self.network.as_ref().map_or(Ok(()), NetworkRequest::check)
    }

    /// Whether it names hosts or paths beyond the profile. Nobody is asked about those.
    pub fn is_wider(&self) -> bool {
        let named = |network: &NetworkRequest| {
            !network.hosts.is_empty()
                || !network.presets.is_empty()
                || !network.connect.is_empty()
                || !network.publish.is_empty()
        };
        let paths = [&self.read, &self.write, &self.reveal];
        self.network.as_ref().is_some_and(named) || paths.iter().any(|paths| !paths.is_empty())
    }
}

/// The kernel mechanisms that a session can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Tier {
    /// User namespaces are available: a root of its own, and all layers.
    Namespaced,
    /// They are not: Landlock and seccomp do most of the work.
    Flat,
}

impl Tier {
    /// `namespaced` or `flat`.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Namespaced => "namespaced",
            Tier::Flat => "flat",
        }
    }
}

/// One mechanism that confines a cell. The order is that of the table in `executor/README.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
pub enum Layer {
    Environment,
    Descriptors,
    Rlimits,
    Cgroup,
    UserNamespace,
    MountNamespace,
    PidNamespace,
    NetworkNamespace,
    IpcNamespace,
    UtsNamespace,
    CgroupNamespace,
    ProtectedNames,
    Capabilities,
    NoNewPrivileges,
    LandlockFiles,
    LandlockNetwork,
    LandlockScopes,
    Seccomp,
}

impl Layer {
    /// Every layer, in order.
    pub const ALL: [Layer; 18] = [
        Layer::Environment,
        Layer::Descriptors,
        Layer::Rlimits,
        Layer::Cgroup,
        Layer::UserNamespace,
        Layer::MountNamespace,
        Layer::PidNamespace,
        Layer::NetworkNamespace,
        Layer::IpcNamespace,
        Layer::UtsNamespace,
        Layer::CgroupNamespace,
        Layer::ProtectedNames,
        Layer::Capabilities,
        Layer::NoNewPrivileges,
        Layer::LandlockFiles,
        Layer::LandlockNetwork,
        Layer::LandlockScopes,
        Layer::Seccomp,
    ];

    /// The name in results, in `doctor` and in the documentation.
    pub fn name(self) -> &'static str {
        match self {
            Layer::Environment => "environment",
            Layer::Descriptors => "descriptors",
            Layer::Rlimits => "rlimits",
            Layer::Cgroup => "cgroup",
            Layer::UserNamespace => "user-namespace",
            Layer::MountNamespace => "mount-namespace",
            Layer::PidNamespace => "pid-namespace",
            Layer::NetworkNamespace => "network-namespace",
            Layer::IpcNamespace => "ipc-namespace",
            Layer::UtsNamespace => "uts-namespace",
            Layer::CgroupNamespace => "cgroup-namespace",
            Layer::ProtectedNames => "protected-names",
            Layer::Capabilities => "capabilities",
            Layer::NoNewPrivileges => "no-new-privileges",
            Layer::LandlockFiles => "landlock-files",
            Layer::LandlockNetwork => "landlock-network",
            Layer::LandlockScopes => "landlock-scopes",
            Layer::Seccomp => "seccomp",
        }
    }

    /// Whether sessions of `tier` do without it on purpose, whatever the kernel has. A cell needs TCP on its own loopback, which
    /// Landlock cannot tell from the machine's: in the namespaced tier the network namespace isolates the cell instead.
    pub fn is_unused_in(self, tier: Tier) -> bool {
        self == Layer::LandlockNetwork && tier == Tier::Namespaced
    }
}

/// A set of layers, such as those in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerSet(u32);

impl LayerSet {
    /// The set with `layer` added.
    #[must_use]
    pub fn with(self, layer: Layer) -> Self {
        Self(self.0 | 1 << layer as u8)
    }

    /// The set with `layer` taken out.
    #[must_use]
    pub fn without(self, layer: Layer) -> Self {
        Self(self.0 & !(1 << layer as u8))
    }

    /// Whether `layer` is in the set.
    pub fn has(self, layer: Layer) -> bool {
        self.0 & (1 << layer as u8) != 0
    }

    /// The layers of the set, in order.
    pub fn iter(self) -> impl Iterator<Item = Layer> {
        Layer::ALL.into_iter().filter(move |layer| self.has(*layer))
    }
}

impl FromIterator<Layer> for LayerSet {
    fn from_iter<I: IntoIterator<Item = Layer>>(layers: I) -> Self {
        layers.into_iter().fold(Self::default(), Self::with)
    }
}

/// One layer on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerReport {
    pub layer: Layer,
    /// Whether it is in force.
    pub state: LayerState,
}

/// Whether a layer is in force, for people to read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LayerState {
    /// In force; with details such as `ABI 7`.
    InForce(String),
    Missing {
        /// Why this machine does not have it.
        why: String,
        /// The attacks that it alone prevents.
        lost: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// The project root with links resolved.
    pub project: String,
    /// The central root with links resolved.
    pub central: String,
    pub profile: String,
    /// Digest of the effective policy.
    pub policy: Digest,
    pub tier: Tier,
    /// Every layer and its state.
    pub layers: Vec<LayerReport>,
    /// The session's ID in the audit: 32 hexadecimal digits, never used twice.
    pub session: String,
    /// Paths that are closed although no name shows it, each with the reason, for people. About twenty at most.
    pub also_closed: Vec<String>,
    /// How many of these, the first ones, are told to everybody: what is closed at a bound, or was done at one.
    pub over_bounds: u32,
    /// Destinations that cells may reach; absent if they have no network.
    pub network: Option<Network>,
    /// How files of secrets are seen, and what the user's policy opens, for people. Some two dozen at most.
    pub notices: Vec<String>,
}

/// Features that this machine supports, determined by trying.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Release of the running kernel, as `uname -r`.
    pub kernel: String,
    /// Landlock ABI of the kernel; 0 if it is missing.
    pub landlock_abi: u32,
    /// The tier a session would get.
    pub tier: Tier,
    /// Every layer and its state under the default profile.
    pub layers: Vec<LayerReport>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_set_keeps_each_layer_apart() {
        for layer in Layer::ALL {
            let set = LayerSet::default().with(layer);
            assert_eq!(set.iter().collect::<Vec<_>>(), [layer]);
            assert_eq!(set.without(layer), LayerSet::default());
        }
        assert_eq!(
            Layer::ALL.into_iter().collect::<LayerSet>().iter().count(),
            Layer::ALL.len()
        );
    }

    #[test]
    fn unknown_peers_and_other_versions_are_distinguished() {
        assert_eq!(Hello::ours(None).check(), Ok(()));
        assert_eq!(
            Hello {
                magic: *b"HTTP/1.1",
                ..Hello::ours(None)
            }
            .check(),
            Err(HelloError::Magic)
        );
        let newer = Hello {
            version: VERSION + 1,
            ..Hello::ours(None)
        };
        assert_eq!(
            newer.check(),
            Err(HelloError::Version {
                theirs: VERSION + 1,
                ours: VERSION
            })
        );
    }
}
