//! The policy of one session, after all its sources: what the executor builds cells from and decides by.
//!
//! Only [`resolve`](crate::resolve) makes one.

use crate::credentials::{Credential, CredentialSource};
use crate::error::PolicyError;
use crate::gateway::GatewaySettings;
use crate::lease_bounds::PathLeases;
use crate::limits::Limits;
use crate::rules::Rule;
use crate::scope::ScopePaths;
use crate::secrets::SecretModes;
use crate::ssh::SshKeys;
use broker_protocol::{Channel, Digest, Layer, NetworkRequest, Risk, Scope, Trust, frame};
use policies_guard::Access;
use policies_guard::Origin;
use policies_guard::names::{Matcher, ProtectedName};
use policies_guard::transit::TransitForm;
use policies_targets::http::HttpRules;
use policies_targets::network::{self, NetworkError};
use policies_targets::ports::PortPolicy;
use policies_targets::web::WebPolicy;
use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A session's policy. Its digest covers all that is serialized.
#[derive(Clone, Debug, Serialize)]
pub struct EffectivePolicy {
    pub profile: String,
    #[serde(skip)]
    pub digest: Digest,
    /// Access of cells to the project root.
    pub project: Access,
    /// Access of cells to the central root.
    pub central: Access,
    /// Host paths outside the zones that a cell may see, `~` and variables already expanded; sorted by path, each once.
    pub grants: Vec<PathGrant>,
    /// Host paths that a session leases to its commands when it opens, sorted. One that it cannot lease stays closed.
    #[serde(serialize_with = "paths")]
    pub read: Vec<PathBuf>,
    /// Host directories of which a cell may list the names, and nothing else, at any depth; sorted. Only the flat tier
    /// needs them (Landlock's right to read a directory): with mounts the parents of a grant are there anyway.
    #[serde(serialize_with = "paths")]
    pub listed: Vec<PathBuf>,
    /// Socket files in the roots that programs of the host serve and cells may connect to, by the path that has no links; sorted.
    /// To all others that its session has not bound, a cell does not connect.
    #[serde(serialize_with = "paths")]
    pub sockets: Vec<PathBuf>,
    /// Directories of git's (`git init --separate-git-dir`) that a project's `.git` file may lead to although nothing in them
    /// leads back; sorted.
    #[serde(serialize_with = "paths")]
    pub git_directories: Vec<PathBuf>,
    /// The unpacked image whose root cells see in place of the machine's: then `grants` are what lies in it.
    #[serde(serialize_with = "optional_path")]
    pub image: Option<PathBuf>,
    /// How a cell's environment is built.
    pub environment: EnvironmentRules,
    /// Credentials that commands may use and not see, by way of the gateway.
    pub credentials: Vec<Credential>,
    /// Variables with the values of credentials, those of other profiles too: no command gets these.
    pub withheld: BTreeSet<String>,
    /// Keys of the user's ssh agent that commands may have signatures of, by way of the gateway.
    pub ssh: Vec<SshKeys>,
    /// How connections of cells leave this machine.
    pub gateway: GatewaySettings,
    /// Names inside the zones that are closed, in the order of the files.
    #[serde(serialize_with = "shared")]
    pub protected: Arc<Vec<ProtectedName>>,
    /// Whether names are hidden. Otherwise none of `protected` closes anything for reading, and `grants` have no exceptions.
    pub hides: bool,
    /// If not, the names that are hidden in leased paths all the same.
    #[serde(skip)]
    pub hidden: Arc<Vec<ProtectedName>>,
    /// The names that the profile has taken out of `protected`.
    pub opened: Vec<String>,
    /// The forms of names in transit for one of `protected`, in the order of the files.
    pub transit: Vec<TransitForm>,
    /// `protected` and `transit`, compiled once for the session.
    #[serde(skip)]
    pub matcher: Matcher,
    /// Hosts that the web tools may reach. The executor has no network; this is for the orchestrator.
    pub web: WebPolicy,
    /// Hosts that cells may reach, by way of the client.
    pub network: WebPolicy,
    /// The requests that hosts get.
    pub http: HttpRules,
    /// Ports of this machine's loopback that cells may reach, and those that lead to theirs.
    pub ports: PortPolicy,
    /// The view that commands have of files of secrets in dotenv form.
    pub secrets: SecretModes,
    /// Whether calls may want more hosts, within the bounds of `network`: somebody is there to be asked.
    pub leases: bool,
    /// Paths that may be granted beyond `grants`.
    pub path_leases: PathLeases,
    /// Resource limits of calls and of the session.
    pub limits: Limits,
    /// Layers without which no session opens: one that a tier cannot have forbids the tier. Sorted, each once.
    pub required: Vec<Layer>,
    /// Layers without which no session opens in a tier that could have them; sorted, each once.
    pub expected: Vec<Layer>,
    pub approval: Approval,
    /// The session's trust, at most `approval.ceiling`.
    pub trust: Trust,
    /// The rules of all files, in the order of their sources.
    pub rules: Vec<Rule>,
    /// The tools the session is narrowed to, if it is.
    pub scope: Option<Scope>,
    /// The globs of `scope`, compiled once for the session.
    #[serde(skip)]
    pub paths: ScopePaths,
    /// The lines that set `project` and `central`.
    #[serde(skip)]
    pub zones_from: [Origin; 2],
}

/// How calls of a session are approved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Approval {
    /// The most trust a session may have.
    pub ceiling: Trust,
    /// Seconds that a question waits for its answer, if a file sets them; then the call is refused.
    pub timeout_s: Option<u32>,
    /// Where the broker takes answers from.
    pub channel: Channel,
    /// Whether an approver must have a controlling terminal, where answers come from elsewhere.
    pub terminal: bool,
}

impl Default for Approval {
    fn default() -> Self {
        Self {
            ceiling: Trust::Autonomous,
            timeout_s: None,
            channel: Channel::Relay,
            terminal: true,
        }
    }
}

/// The trust of a session that asks for none.
pub const TRUST: Trust = Trust::Guided;

impl EffectivePolicy {
    /// Wall seconds for a command that asks for `asked`: at least 1, at most the policy's maximum and the scope's; the
    /// scope's or else the policy's default if it asks for none. `None` where neither sets a limit.
    pub fn timeout(&self, asked: Option<u32>) -> Option<u32> {
        let scope = self.scope_timeout("bash");
        let wanted = asked.or(scope).or(self.limits.timeout_s);
        let shortest = [wanted, self.limits.timeout_max_s, scope]
            .into_iter()
            .flatten()
            .min();
        shortest.map(|seconds| seconds.max(1))
    }

    /// Whether a value, a certificate or a key of the session comes from a place that the policy names.
    pub fn names_sources(&self) -> bool {
        let gateway = &self.gateway;
        !self.credentials.is_empty()
            || !self.ssh.is_empty()
            || !gateway.authorities.is_empty()
            || gateway.proxy.is_some()
    }

    /// The secret variables that the executor needs: those that commands get, and those in which a value is for the gateway.
    pub fn secret_variables(&self) -> BTreeSet<String> {
        let sources = self.credentials.iter().map(|one| &one.from);
        let login = self.gateway.proxy.iter().flat_map(|proxy| &proxy.login);
        let named = sources.chain(login).filter_map(|from| match from {
            CredentialSource::Variable(name) => Some(name),
            CredentialSource::Command(_)
            | CredentialSource::File(_)
            | CredentialSource::Systemd(_)
            | CredentialSource::Session => None,
        });
        named
            .chain(&self.environment.credentials)
            .cloned()
            .collect()
    }

    /// The time limit for a command that a person has started. Where the policy sets no limit for those, any that is asked for is less.
    pub fn attended_timeout(&self, asked: Option<u32>) -> Option<u32> {
        let scope = self.scope_timeout("bash");
        let Some(default) = self.limits.attended_timeout_s else {
            return [asked, scope].into_iter().flatten().min();
        };
        let wanted = asked.or(scope).unwrap_or(default);
        let longest = [self.limits.timeout_max_s, scope].into_iter().flatten();
        longest.chain([wanted]).min()
    }

    /// The grants that file tools read too: programs, libraries, toolchains. Grants in `/etc` are settings, which
    /// programs need and nobody else: a file tool that asks for `/etc/passwd` tries to leave the roots, whatever a cell may read.
    pub fn readable(&self) -> impl Iterator<Item = &PathGrant> {
        self.grants
            .iter()
            .filter(|grant| grant.path != Path::new("/") && !grant.path.starts_with("/etc"))
    }

    /// Maximum wall seconds of a call of `tool`, if the scope sets one.
    pub fn scope_timeout(&self, tool: &str) -> Option<u32> {
        self.scope
            .as_ref()?
            .permissions
            .iter()
            .find(|permission| permission.tool == tool)?
            .timeout_s
    }

    /// Narrows this policy to `scope`, with as much of `trust` as it lets a session have.
    ///
    /// # Errors
    /// The scope has a glob that is none, or one for `bash` that cannot be enforced.
    pub fn narrow(self, scope: Option<&Scope>, trust: Trust) -> Result<Self, PolicyError> {
        self.narrowed(scope, trust)?.digested()
    }

    /// This policy with its digest, once nothing of it will change.
    pub(crate) fn digested(mut self) -> Result<Self, PolicyError> {
        self.digest = self.compute_digest()?;
        Ok(self)
    }

    pub(crate) fn narrowed(
        mut self,
        scope: Option<&Scope>,
        trust: Trust,
    ) -> Result<Self, PolicyError> {
        self.paths = scope.map_or(Ok(ScopePaths::default()), ScopePaths::new)?;
        self.scope = scope.cloned();
        self.trust = trust.min(self.approval.ceiling);
        Ok(self)
    }

    /// This policy with the network that a session asks for, or none. A scope that closes the network to commands closes it.
    ///
    /// # Errors
    /// A requested host is malformed, or the policy's files do not allow it.
    pub fn with_network(self, wanted: Option<&NetworkRequest>) -> Result<Self, PolicyError> {
        self.networked(wanted)?.digested()
    }

    pub(crate) fn networked(
        mut self,
        wanted: Option<&NetworkRequest>,
    ) -> Result<Self, PolicyError> {
        let scope = self.scope.iter().flat_map(|scope| &scope.permissions);
        let closed = scope
            .into_iter()
            .any(|one| one.tool == "bash" && !one.network);
        let leases = wanted.is_some_and(|wanted| wanted.leases);
        let wanted = wanted.filter(|_| !closed);
        self.network = network::requested(self.network, wanted)?;
        self.ports = self.ports.requested(wanted).map_err(NetworkError::from)?;
        (self.path_leases.asked, self.path_leases.of_files) = (leases, leases);
        self.leases = wanted.is_some_and(|wanted| wanted.leases);
        Ok(self)
    }

    /// This policy, in which file tools may ask for the file that they would change. A session whose trust asks about nothing does not
    /// begin with that.
    pub(crate) fn asking_for_files(mut self) -> Self {
        self.path_leases.of_files |= self.trust.asks(Risk::High);
        self
    }

    /// This policy with no host and no port in it, and no way to one, for a session that changes nothing elsewhere.
    ///
    /// # Errors
    /// As for [`Self::compute_digest`], which it calls.
    pub fn without_hosts(mut self) -> Result<Self, PolicyError> {
        self.network = WebPolicy::default();
        self.ports = PortPolicy::default();
        self.gateway.authorities = Vec::new();
        self.gateway.proxy = None;
        self.digested()
    }

    /// This policy with files of secrets that the user reveals for the session.
    ///
    /// # Errors
    /// See [`Self::compute_digest`].
    pub fn with_revealed(mut self, paths: &[String]) -> Result<Self, PolicyError> {
        if paths.is_empty() {
            return Ok(self);
        }
        self.secrets.revealed = paths.to_vec();
        self.digested()
    }

    /// This policy with an image as the root of cells, in which `paths` lie.
    ///
    /// # Errors
    /// See [`Self::compute_digest`].
    pub fn with_image(mut self, image: PathBuf, paths: Vec<PathBuf>) -> Result<Self, PolicyError> {
        self.image = Some(image);
        self.grants = paths
            .into_iter()
            .map(|path| PathGrant {
                path,
                optional: false,
                except: Vec::new(),
            })
            .collect();
        self.listed = Vec::new();
        self.digested()
    }

    /// Whether cells have a network, or may come to have one.
    pub fn has_network(&self) -> bool {
        self.leases || network::is_open(&self.network)
    }

    /// Whether connections of cells may be decrypted because of what they ask for.
    pub fn judges_requests(&self) -> bool {
        self.has_network() && !self.http.is_empty()
    }

    /// Whether a session needs a process that carries connections: for a network, or for ports of this machine.
    pub fn has_gateway(&self) -> bool {
        self.has_network() || !self.ports.is_empty()
    }

    /// Whether a session with this policy may do nothing that one with `other` may not: they are the same, but for parts of which
    /// this one has less. What cannot be compared must be equal.
    pub fn is_within(&self, other: &Self) -> bool {
        let mut same = Self {
            profile: other.profile.clone(),
            ..self.clone()
        };
        let closed = !network::is_open(&self.network);
        // Each part that is smaller counts as equal; the digests then compare all others, those of tomorrow included.
        clone_if(
            self.project <= other.project,
            &mut same.project,
            &other.project,
        );
        clone_if(
            self.central <= other.central,
            &mut same.central,
            &other.central,
        );
        clone_if(
            is_part(&self.grants, &other.grants),
            &mut same.grants,
            &other.grants,
        );
        clone_if(
            is_part(&self.read, &other.read),
            &mut same.read,
            &other.read,
        );
        clone_if(
            is_part(&self.listed, &other.listed),
            &mut same.listed,
            &other.listed,
        );
        clone_if(
            is_part(&self.sockets, &other.sockets),
            &mut same.sockets,
            &other.sockets,
        );
        clone_if(closed, &mut same.network, &other.network);
        clone_if(
            is_part(&self.ports.connect, &other.ports.connect)
                && is_part(&self.ports.publish, &other.ports.publish),
            &mut same.ports,
            &other.ports,
        );
        let digests = same.compute_digest().ok().zip(other.compute_digest().ok());
        digests.is_some_and(|(own, other)| own == other)
    }

    /// SHA-256 of all fields in the protocol's encoding, but for those that repeat others or name lines of files: the same policy from other
    /// files has the same digest.
    ///
    /// # Errors
    /// A value cannot be encoded; none is known that cannot.
    pub fn compute_digest(&self) -> Result<Digest, PolicyError> {
        let bytes =
            frame::encode_whole(self).map_err(|error| PolicyError::Digest(error.to_string()))?;
        Ok(Digest(Sha256::digest(bytes).into()))
    }
}

fn is_part<T: PartialEq>(part: &[T], whole: &[T]) -> bool {
    part.iter().all(|one| whole.contains(one))
}

fn clone_if<T: Clone>(is_narrower: bool, own: &mut T, other: &T) {
    if is_narrower {
        own.clone_from(other);
    }
}

/// Paths as bytes: a user's home need not be UTF-8.
fn paths<S: Serializer>(paths: &[PathBuf], out: S) -> Result<S::Ok, S::Error> {
    out.collect_seq(paths.iter().map(|path| path.as_os_str().as_encoded_bytes()))
}

fn optional_path<S: Serializer>(path: &Option<PathBuf>, out: S) -> Result<S::Ok, S::Error> {
    paths(path.as_slice(), out)
}

fn path<S: Serializer>(path: &Path, out: S) -> Result<S::Ok, S::Error> {
    out.collect_seq(path.as_os_str().as_encoded_bytes())
}

fn shared<S: Serializer, T: Serialize>(list: &Arc<Vec<T>>, out: S) -> Result<S::Ok, S::Error> {
    out.collect_seq(list.iter())
}

/// A host path outside the zones, always read-only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PathGrant {
    /// Absolute path of a file or directory, without `.`, `..` or doubled slashes. It may be a link, such as `/bin`.
    #[serde(serialize_with = "path")]
    pub path: PathBuf,
    /// Whether it may be missing on this machine.
    pub optional: bool,
    /// Exceptions from it: patterns of paths in it, each of at most [`EXCEPT_NAMES_MAX`](crate::value::EXCEPT_NAMES_MAX) names.
    pub except: Vec<String>,
}

/// How a cell's environment is built: from nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EnvironmentRules {
    /// Names taken over from the executor's environment, unless they look like secrets. One that ends with `*`, such
    /// as `LC_*`, is a beginning; a `*` stands nowhere else.
    pub pass: Vec<String>,
    /// Secrets that are taken over all the same, by their whole names.
    pub credentials: BTreeSet<String>,
    /// Variables that name directories in which programs of this profile keep their state, of the central root.
    pub state: BTreeSet<String>,
    /// Names with fixed values, paths in them expanded. Never `PATH`, `HOME` or `TMPDIR`.
    pub set: BTreeMap<String, String>,
    /// Variables where cells have no network: they keep programs from waiting for one.
    pub offline: BTreeMap<String, String>,
    /// Directories put in front of `PATH`, such as `~/.cargo/bin`, expanded. They need not exist.
    #[serde(serialize_with = "paths")]
    pub path: Vec<PathBuf>,
}

impl EnvironmentRules {
    /// These variables without any that would give commands the value of one of `credentials`: its variables hold placeholders, or nothing.
    pub(crate) fn without(mut self, credentials: &[Credential]) -> Self {
        for name in credentials.iter().flat_map(|one| &one.variables) {
            self.credentials.remove(name);
            self.set.remove(name);
            self.offline.remove(name);
        }
        self
    }

    /// Whether a variable of this name is taken over.
    pub fn passes(&self, name: &str) -> bool {
        self.pass.iter().any(|rule| match rule.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == rule,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::SecretName;
    use crate::{Host, Policies, SecretMode};
    use broker_protocol::Permission;
    use policies_guard::{Protection, WhenNew};

    fn policy() -> EffectivePolicy {
        let host = Host {
            home: "/home/u".into(),
            ..Host::default()
        };
        Policies::load(vec![])
            .unwrap()
            .resolve("default", &host)
            .unwrap()
    }

    fn ssh_keys() -> SshKeys {
        SshKeys {
            name: "x".into(),
            hosts: vec![],
            user: "x".into(),
            keys: vec![],
            login: crate::ssh::LoginRule::Ask,
            sign: None,
            origin: Origin::default(),
        }
    }

    fn credential() -> Credential {
        Credential {
            name: "x".into(),
            preset: None,
            from: CredentialSource::Systemd("x".into()),
            hosts: vec!["x:443".into()],
            attach: broker_protocol::gateway::Attach::Bearer,
            variables: vec![],
            set: Default::default(),
            files: vec![],
            state: vec![],
            uses: vec![],
            shape: Default::default(),
            origin: Origin::default(),
        }
    }

    fn proxy() -> crate::ProxySettings {
        crate::ProxySettings {
            choice: crate::gateway::ProxyChoice::Environment,
            direct: vec![],
            names: false,
            login: None,
            file: String::new(),
        }
    }

    fn bash() -> Scope {
        let paths = vec!["src/**".into()];
        let bash = Permission {
            tool: "bash".into(),
            allowed: true,
            paths,
            timeout_s: Some(1),
            network: true,
        };
        Scope {
            permissions: vec![bash],
        }
    }

    #[test]
    fn every_field_of_a_scope_is_in_the_digest() {
        let narrowed = |scope: &Scope| policy().narrow(Some(scope), TRUST).unwrap().digest;
        let changes: [fn(&mut Permission); 5] = [
            |p| p.tool.push('x'),
            |p| p.allowed = false,
            |p| p.paths.clear(),
            |p| p.timeout_s = None,
            |p| p.network = false,
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut changed = bash();
            change(&mut changed.permissions[0]);
            assert_ne!(narrowed(&changed), narrowed(&bash()), "change {number}");
        }
    }

    #[test]
    fn only_a_policy_that_opens_less_is_within_another() {
        let host = Host {
            home: "/home/u".into(),
            ..Host::default()
        };
        let file = "version = 1\n[profile.shows]\nextends = 'read-only'\ngrants = [{ path = '/srv/data' }]\n\
                    [profile.reaches]\nextends = 'read-only'\nnetwork = { allow = ['example.com'] }\n\
                    [profile.connects]\nextends = 'read-only'\nnetwork = { connect = [5432] }\n\
                    [profile.longer]\nextends = 'read-only'\nlimits = { timeout_max_s = 601 }\n\
                    [profile.told]\nextends = 'read-only'\nenvironment = { pass = ['MY_NAME'] }\n";
        let source = crate::PolicySource {
            name: "/p".into(),
            kind: crate::SourceKind::User,
            text: file.into(),
        };
        let policies = Policies::load(vec![source]).unwrap();
        let of = |profile| policies.resolve(profile, &host).unwrap();
        for (one, other, within) in [
            ("default", "default", true),
            ("read-only", "default", true),
            ("read-only", "dev", false),
            ("default", "read-only", false),
            ("read-only", "shows", true),
            ("shows", "read-only", false),
            ("read-only", "reaches", true),
            ("reaches", "read-only", false),
            ("read-only", "connects", true),
            ("connects", "read-only", false),
            ("longer", "read-only", false),
            ("told", "read-only", false),
            ("rust", "default", false),
            ("claude", "default", false),
        ] {
            assert_eq!(
                of(one).is_within(&of(other)),
                within,
                "{one} within {other}"
            );
        }
    }

    #[test]
    fn a_session_has_no_more_trust_than_the_policy_lets_it() {
        let mut policy = policy();
        assert_eq!(policy.trust, Trust::Guided);
        let of =
            |policy: &EffectivePolicy, asked| policy.clone().narrow(None, asked).unwrap().trust;
        assert_eq!(Trust::ALL.map(|asked| of(&policy, asked)), Trust::ALL);
        policy.approval.ceiling = Trust::Guided;
        let want = [Trust::Supervised, Trust::Guided, Trust::Guided];
        assert_eq!(Trust::ALL.map(|asked| of(&policy, asked)), want);
    }

    #[test]
    fn timeout_is_the_default_the_request_or_the_maximum() {
        let policy = policy();
        assert_eq!(
            (policy.limits.timeout_s, policy.limits.timeout_max_s),
            (Some(60), Some(600))
        );
        for (asked, want) in [
            (None, 60),
            (Some(0), 1),
            (Some(1), 1),
            (Some(600), 600),
            (Some(601), 600),
            (Some(u32::MAX), 600),
        ] {
            assert_eq!(policy.timeout(asked), Some(want), "{asked:?}");
        }
        let mut endless = policy;
        (endless.limits.timeout_s, endless.limits.timeout_max_s) = (None, None);
        assert_eq!(
            (endless.timeout(None), endless.timeout(Some(7000))),
            (None, Some(7000))
        );
    }

    #[test]
    fn a_person_has_the_time_limit_that_is_set_for_one() {
        let mut policy = policy();
        let limits = |policy: &EffectivePolicy| {
            [None, Some(5), Some(7000)].map(|asked| policy.attended_timeout(asked))
        };
        assert_eq!(limits(&policy), [None, Some(5), Some(7000)]);
        policy.limits.attended_timeout_s = Some(30);
        assert_eq!(limits(&policy), [Some(30), Some(5), Some(600)]);
    }

    #[test]
    fn the_executor_needs_what_commands_get_and_what_the_gateway_is_to_have() {
        let variable = |name: &str| CredentialSource::Variable(name.into());
        let mut policy = policy();
        assert_eq!(policy.secret_variables(), BTreeSet::new());
        policy.environment.credentials.extend(["PASSED".into()]);
        for from in [variable("SOURCE"), CredentialSource::File("/x".into())] {
            policy.credentials.push(Credential {
                from,
                ..credential()
            });
        }
        policy.gateway.proxy = Some(crate::ProxySettings {
            login: Some(variable("LOGIN")),
            ..proxy()
        });
        let names = ["LOGIN", "PASSED", "SOURCE"].map(str::to_owned);
        assert_eq!(policy.secret_variables(), BTreeSet::from(names));
    }

    #[test]
    fn names_pass_whole_or_by_their_beginning() {
        let rules = EnvironmentRules {
            pass: vec!["TZ".into(), "LC_*".into()],
            ..EnvironmentRules::default()
        };
        for (name, want) in [
            ("TZ", true),
            ("TZ2", false),
            ("LC_ALL", true),
            ("LC_", true),
            ("LC", false),
            ("", false),
        ] {
            assert_eq!(rules.passes(name), want, "{name}");
        }
    }

    #[test]
    fn every_field_is_in_the_digest() {
        let base = policy();
        fn secret() -> SecretName {
            SecretName::try_from(".env".to_owned()).unwrap()
        }
        assert_eq!(base.digest, base.compute_digest().unwrap());
        let changes: [fn(&mut EffectivePolicy); 70] = [
            |p| p.profile.push('x'),
            |p| p.project = Access::Read,
            |p| p.central = Access::Read,
            |p| p.grants[0].path.push("x"),
            |p| p.grants[0].optional ^= true,
            |p| p.grants[0].except.push("x".into()),
            |p| p.read.push("/x".into()),
            |p| p.listed.push("/x".into()),
            |p| p.sockets.push("/x".into()),
            |p| p.git_directories.push("/x".into()),
            |p| p.image = Some("/x".into()),
            |p| p.environment.pass.push("X".into()),
            |p| drop(p.environment.set.insert("X".into(), String::new())),
            |p| p.environment.credentials.extend(["X".into()]),
            |p| p.environment.state.extend(["X".into()]),
            |p| p.environment.path.push("/x".into()),
            |p| p.credentials.push(credential()),
            |p| p.withheld.extend(["X".into()]),
            |p| p.ssh.push(ssh_keys()),
            |p| p.gateway.authorities.push("/x".into()),
            |p| p.gateway.proxy = Some(proxy()),
            |p| Arc::make_mut(&mut p.protected)[0].pattern.push('x'),
            |p| Arc::make_mut(&mut p.protected)[0].except.push("x".into()),
            |p| Arc::make_mut(&mut p.protected)[0].protection = Protection::Write,
            |p| Arc::make_mut(&mut p.protected)[0].new = WhenNew::Closed,
            |p| Arc::make_mut(&mut p.protected)[0].opens ^= true,
            |p| Arc::make_mut(&mut p.protected)[0].why.push('x'),
            |p| p.hides = false,
            |p| p.opened.push("x".into()),
            |p| p.transit.truncate(1),
            |p| p.transit[0].before.push('x'),
            |p| p.transit[0].after.push('x'),
            |p| p.transit[0].except.push("x".into()),
            |p| p.transit[0].why.push('x'),
            |p| p.required.push(Layer::Cgroup),
            |p| p.expected.truncate(1),
            |p| p.web.own.search = None,
            |p| p.web.own.allow = Some(vec![]),
            |p| p.web.own.http = Some(vec![]),
            |p| p.web.own.private = Some(vec![]),
            |p| p.web.bounds.push(Default::default()),
            |p| p.secrets.own.extend([(secret(), SecretMode::Hide)]),
            |p| p.secrets.bounds.push([(secret(), SecretMode::Hide)].into()),
            |p| p.secrets.revealed.push(".env".into()),
            |p| p.leases = true,
            |p| p.path_leases.asked = true,
            |p| p.path_leases.of_files = true,
            |p| p.path_leases.read.push(vec!["/x".into()]),
            |p| p.path_leases.write.push(vec![]),
            |p| p.network.own.allow = Some(vec![]),
            |p| p.network.own.private = Some(vec![]),
            |p| p.network.bounds.push(Default::default()),
            |p| p.ports.connect.push(1),
            |p| {
                p.ports.publish.push(broker_protocol::PublishedPort {
                    machine: 1,
                    cell: 1,
                })
            },
            |p| drop(p.environment.offline.insert("X".into(), String::new())),
            |p| p.limits.timeout_s = Some(61),
            |p| p.limits.spill += 1,
            |p| p.limits.scratch += 1,
            |p| p.limits.undo += 1,
            |p| p.limits.output = Some(0),
            |p| p.limits.cpu_s = Some(1),
            |p| p.limits.written = Some(1),
            |p| p.limits.memory = Some(1),
            |p| p.approval.ceiling = Trust::Guided,
            |p| p.approval.timeout_s = Some(1),
            |p| p.approval.channel = Channel::Separate,
            |p| p.approval.terminal = false,
            |p| p.trust = Trust::Supervised,
            |p| p.scope = Some(Scope::default()),
            |p| p.scope = Some(bash()),
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut changed = base.clone();
            change(&mut changed);
            assert_ne!(
                changed.compute_digest().unwrap(),
                base.digest,
                "change {number}"
            );
        }
    }

    #[test]
    fn fields_with_the_same_text_have_different_digests() {
        let mut left = policy();
        let mut right = left.clone();
        left.environment.pass = vec!["AB".into(), "C".into()];
        right.environment.pass = vec!["A".into(), "BC".into()];
        assert_ne!(left.compute_digest(), right.compute_digest());
    }
}
