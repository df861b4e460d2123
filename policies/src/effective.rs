//! The policy of one session, after all its sources: what the executor builds cells from and decides by.
//!
//! Only [`resolve`](crate::resolve) makes one.

use crate::error::PolicyError;
use crate::names::Matcher;
use crate::rules::{Origin, Rule};
use crate::scope::ScopePaths;
use crate::web::{WebPolicy, WebTable};
use broker_protocol::{Channel, Digest, Layer, Permission, Scope, Trust};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A session's policy.
#[derive(Clone, Debug)]
pub struct EffectivePolicy {
    /// Name of the profile.
    pub profile: String,
    /// SHA-256 of what it says, whatever files it came from: see [`EffectivePolicy::compute_digest`].
    pub digest: Digest,
    /// What a cell may do in the project root.
    pub project: Access,
    /// What a cell may do in the central root.
    pub central: Access,
    /// Host paths outside the zones that a cell may see, `~` and variables already expanded; sorted by path, each once.
    pub grants: Vec<Grant>,
    /// Host directories of which a cell may list the names, and nothing else, at any depth; sorted. Only the flat tier
    /// needs them (Landlock's right to read a directory): with mounts the parents of a grant are there anyway.
    pub listed: Vec<PathBuf>,
    /// How a cell's environment is built.
    pub environment: EnvironmentRules,
    /// Names inside the zones that are closed, in the order of the files.
    pub protected: Arc<Vec<ProtectedName>>,
    /// `protected`, compiled once for the session.
    pub matcher: Matcher,
    /// What the web tools may reach. The executor has no network; this is for the orchestrator.
    pub web: WebPolicy,
    /// Resource limits.
    pub limits: Limits,
    /// Layers without which no session opens, in the tier that could have them; sorted, each once.
    pub required: Vec<Layer>,
    /// How calls are approved.
    pub approval: Approval,
    /// How much is asked; never more trusting than `approval` lets a session be.
    pub trust: Trust,
    /// What the policy files say about single calls, in the order of their sources.
    pub rules: Vec<Rule>,
    /// The tools the session is narrowed to, if it is.
    pub scope: Option<Scope>,
    /// The globs of `scope`, compiled once for the session.
    pub paths: ScopePaths,
    /// Where it stands what a cell may do in the project root and in the central root.
    pub zones_from: [Origin; 2],
}

/// How calls are approved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// The most trust a session may have.
    pub ceiling: Trust,
    /// Seconds that a question waits for its answer; then it is a no.
    pub timeout_s: u32,
    /// Where answers come from.
    pub channel: Channel,
}

impl Default for Approval {
    fn default() -> Self {
        Self { ceiling: Trust::Autonomous, timeout_s: 30, channel: Channel::Relay }
    }
}

/// The trust of a session that nobody has chosen one for.
pub const TRUST: Trust = Trust::Guided;

impl EffectivePolicy {
    /// Wall seconds for a command that asks for `asked`: at least 1, at most the policy's maximum and the scope's, the
    /// scope's or else the policy's default if it asks for none.
    pub fn timeout(&self, asked: Option<u32>) -> u32 {
        let scope = self.scope_timeout("bash");
        let most = self.limits.timeout_max_s.min(scope.unwrap_or(u32::MAX));
        asked.or(scope).unwrap_or(self.limits.timeout_s).clamp(1, most.max(1))
    }

    /// Most wall seconds that the scope lets a call of `tool` take, if it says so.
    pub fn scope_timeout(&self, tool: &str) -> Option<u32> {
        self.scope.as_ref()?.permissions.iter().find(|permission| permission.tool == tool)?.timeout_s
    }

    /// The same policy, narrowed to `scope`, with as much of `trust` as it lets a session have.
    pub fn narrow(mut self, scope: Option<&Scope>, trust: Trust) -> Result<Self, PolicyError> {
        self.paths = scope.map_or(Ok(ScopePaths::default()), ScopePaths::new)?;
        self.scope = scope.cloned();
        self.trust = trust.min(self.approval.ceiling);
        self.digest = self.compute_digest();
        Ok(self)
    }

    /// The digest of all fields but `digest`, `matcher` (which is `protected` again), `paths` (which is `scope`), and where
    /// things stand. Each value is hashed with its
    /// length before it and each list with its count, so that no two policies read the same.
    pub fn compute_digest(&self) -> Digest {
        let mut canon = Canon(Sha256::new());
        canon.text("lazaret policy 2");
        canon.text(&self.profile);
        canon.number(self.project as u64);
        canon.number(self.central as u64);
        canon.list(&self.grants, |canon, grant| {
            canon.path(&grant.path);
            canon.number(grant.optional.into());
        });
        canon.list(&self.listed, |canon, path| canon.path(path));
        canon.environment(&self.environment);
        canon.list(&self.protected, Canon::protected);
        canon.web(&self.web.own);
        canon.list(&self.web.bounds, Canon::web);
        canon.limits(&self.limits);
        canon.list(&self.required, |canon, layer| canon.text(layer.name()));
        canon.number(self.approval.ceiling as u64);
        canon.number(self.approval.timeout_s.into());
        canon.number(self.approval.channel as u64);
        canon.number(self.trust as u64);
        canon.list(&self.rules, Canon::rule);
        canon.number(self.scope.is_some().into());
        canon.list(self.scope.as_ref().map_or(&[], |scope| &scope.permissions), Canon::permission);
        Digest(canon.0.finalize().into())
    }
}

/// A digest under way.
struct Canon(Sha256);

impl Canon {
    fn number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn path(&mut self, path: &Path) {
        self.bytes(path.as_os_str().as_encoded_bytes());
    }

    fn list<T>(&mut self, list: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.number(list.len() as u64);
        list.iter().for_each(|item| each(self, item));
    }

    fn option(&mut self, number: Option<u64>) {
        self.number(number.is_some().into());
        self.number(number.unwrap_or(0));
    }

    fn environment(&mut self, rules: &EnvironmentRules) {
        self.list(&rules.pass, |canon, name| canon.text(name));
        self.number(rules.set.len() as u64);
        for (name, value) in &rules.set {
            self.text(name);
            self.text(value);
        }
        self.list(&rules.path, |canon, path| canon.path(path));
    }

    fn protected(&mut self, name: &ProtectedName) {
        self.text(&name.pattern);
        self.list(&name.except, |canon, except| canon.text(except));
        self.number(name.protection as u64);
        self.number(name.new as u64);
        self.text(&name.why);
    }

    fn rule(&mut self, rule: &Rule) {
        self.number(rule.source as u64);
        [&rule.tool, &rule.why].into_iter().for_each(|text| self.text(text));
        self.number(rule.action as u64);
        self.list(&rule.when, |canon, condition| {
            canon.text(&condition.param);
            canon.number(condition.test as u64);
            canon.list(&condition.values, |canon, value| canon.text(value));
        });
        self.list(rule.command.as_slice(), |canon, command| {
            canon.text(&command.program);
            canon.list(&command.args, |canon, arg| canon.text(arg));
        });
    }

    fn permission(&mut self, permission: &Permission) {
        let Permission { tool, allowed, paths, timeout_s, network } = permission;
        self.text(tool);
        self.number((*allowed).into());
        self.list(paths, |canon, path| canon.text(path));
        self.option(timeout_s.map(Into::into));
        self.number((*network).into());
    }

    fn web(&mut self, table: &WebTable) {
        // By name, so that a new key cannot be forgotten here.
        let WebTable { search, allow, http, private } = table;
        self.option(search.map(u64::from));
        for hosts in [allow, http] {
            self.number(hosts.is_some().into());
            self.list(hosts.as_deref().unwrap_or_default(), |canon, host| canon.text(host.text()));
        }
        self.number(private.is_some().into());
        self.list(private.as_deref().unwrap_or_default(), |canon, place| canon.text(place.text()));
    }

    fn limits(&mut self, limits: &Limits) {
        // By name, so that a new limit cannot be forgotten here.
        let Limits {
            timeout_s,
            timeout_max_s,
            capture,
            spill,
            output,
            processes,
            memory,
            cpu_s,
            file_size,
            written,
            open_files,
            scratch,
            undo,
        } = *limits;
        [timeout_s.into(), timeout_max_s.into(), capture, spill, scratch, undo]
            .into_iter()
            .for_each(|n| self.number(n));
        [output, processes, memory, cpu_s, file_size, written, open_files]
            .into_iter()
            .for_each(|n| self.option(n));
    }
}

/// What may be done below a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Read, and run programs.
    Read,
    /// Anything a user may do to files.
    Write,
}

/// A host path outside the zones, always read-only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Absolute path of a file or directory, without `.`, `..` or doubled slashes. It may be a link, such as `/bin`.
    pub path: PathBuf,
    /// Whether it may be missing on this machine.
    pub optional: bool,
}

/// How a cell's environment is built: from nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentRules {
    /// Names taken over from the executor's environment, unless they look like secrets. One that ends with `*`, such
    /// as `LC_*`, is a beginning; a `*` stands nowhere else.
    pub pass: Vec<String>,
    /// Names with fixed values, paths in them expanded. Never `PATH`, `HOME` or `TMPDIR`.
    pub set: BTreeMap<String, String>,
    /// Directories put in front of `PATH`, such as `~/.cargo/bin`, expanded. They need not exist.
    pub path: Vec<PathBuf>,
}

impl EnvironmentRules {
    /// Whether `pass` has `name`.
    pub fn passes(&self, name: &str) -> bool {
        self.pass.iter().any(|rule| match rule.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == rule,
        })
    }
}

/// A name that is closed inside the zones, at any depth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtectedName {
    /// The pattern as written, such as `.env.*` or `.git/modules/**/hooks`: one or more names, compared without case.
    pub pattern: String,
    /// Single names, with the same signs, that stay open though the last name of `pattern` matches them.
    pub except: Vec<String>,
    /// What is closed.
    pub protection: Protection,
    /// Whether it is closed to commands where nobody has made it yet.
    pub new: WhenNew,
    /// Why, for the user and the model.
    pub why: String,
    /// Where it stands.
    pub origin: Origin,
}

/// What is closed about a protected name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protection {
    /// It may be read, not written, replaced or removed.
    Write,
    /// It may not be read either.
    All,
}

/// What commands may do with a protected name that is not there. File tools are refused it whatever is said here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenNew {
    /// They may make it. What they have made stays open to the commands of their session.
    Open,
    /// They may not make it.
    #[default]
    Closed,
}

/// Resource limits of a call, and of a session where it says so. None but `undo` is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Wall seconds of a command that asks for nothing else; not more than `timeout_max_s`.
    pub timeout_s: u32,
    /// Most wall seconds a command may ask for.
    pub timeout_max_s: u32,
    /// Bytes of a command's output kept in its result, half from the beginning and half from the end; at most
    /// [`CAPTURE_MAX`](crate::quantity::CAPTURE_MAX).
    pub capture: u64,
    /// Bytes of a command's output written to its spill file.
    pub spill: u64,
    /// Bytes of output after which a command is ended; `None`: no limit.
    pub output: Option<u64>,
    /// Processes and threads of a call, looked at ten times a second, and of a session (`RLIMIT_NPROC`, `pids.max`).
    pub processes: Option<u64>,
    /// Bytes of resident memory of a call that are no file's, looked at ten times a second; of private memory of each process
    /// (`RLIMIT_DATA`); of a session's memory (`memory.max`) where there is a cgroup.
    pub memory: Option<u64>,
    /// CPU seconds of each process.
    pub cpu_s: Option<u64>,
    /// Bytes of one file that a cell writes.
    pub file_size: Option<u64>,
    /// Bytes that the processes of a call write together, to files and pipes; looked at ten times a second.
    pub written: Option<u64>,
    /// Open descriptors of each process.
    pub open_files: Option<u64>,
    /// Bytes of the session's private `/tmp`, home and `/dev/shm` together.
    pub scratch: u64,
    /// Bytes on the disk of what is kept to undo the changes of file tools; the oldest is dropped. 0 in a profile that
    /// starts from nothing and says nothing of it: then nothing is kept.
    pub undo: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Host, Policies};

    fn policy() -> EffectivePolicy {
        let host = Host { home: "/home/u".into(), ..Host::default() };
        Policies::load(vec![]).unwrap().resolve("default", &host).unwrap()
    }

    fn bash() -> Scope {
        let paths = vec!["src/**".into()];
        let bash =
            Permission { tool: "bash".into(), allowed: true, paths, timeout_s: Some(1), network: true };
        Scope { permissions: vec![bash] }
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
    fn a_session_has_no_more_trust_than_the_policy_lets_it() {
        let mut policy = policy();
        assert_eq!(policy.trust, Trust::Guided);
        let of = |policy: &EffectivePolicy, asked| policy.clone().narrow(None, asked).unwrap().trust;
        assert_eq!(Trust::ALL.map(|asked| of(&policy, asked)), Trust::ALL);
        policy.approval.ceiling = Trust::Guided;
        let want = [Trust::Supervised, Trust::Guided, Trust::Guided];
        assert_eq!(Trust::ALL.map(|asked| of(&policy, asked)), want);
    }

    #[test]
    fn a_timeout_is_the_default_what_was_asked_or_the_maximum() {
        let policy = policy();
        assert_eq!((policy.limits.timeout_s, policy.limits.timeout_max_s), (60, 600));
        for (asked, want) in [
            (None, 60),
            (Some(0), 1),
            (Some(1), 1),
            (Some(600), 600),
            (Some(601), 600),
            (Some(u32::MAX), 600),
        ] {
            assert_eq!(policy.timeout(asked), want, "{asked:?}");
        }
    }

    #[test]
    fn names_pass_whole_or_by_their_beginning() {
        let rules =
            EnvironmentRules { pass: vec!["TZ".into(), "LC_*".into()], set: BTreeMap::new(), path: vec![] };
        for (name, want) in
            [("TZ", true), ("TZ2", false), ("LC_ALL", true), ("LC_", true), ("LC", false), ("", false)]
        {
            assert_eq!(rules.passes(name), want, "{name}");
        }
    }

    #[test]
    fn every_field_is_in_the_digest() {
        let base = policy();
        assert_eq!(base.digest, base.compute_digest());
        let changes: [fn(&mut EffectivePolicy); 34] = [
            |p| p.profile.push('x'),
            |p| p.project = Access::Read,
            |p| p.central = Access::Read,
            |p| p.grants[0].path.push("x"),
            |p| p.grants[0].optional ^= true,
            |p| p.listed.push("/x".into()),
            |p| p.environment.pass.push("X".into()),
            |p| drop(p.environment.set.insert("X".into(), String::new())),
            |p| p.environment.path.push("/x".into()),
            |p| Arc::make_mut(&mut p.protected)[0].pattern.push('x'),
            |p| Arc::make_mut(&mut p.protected)[0].except.push("x".into()),
            |p| Arc::make_mut(&mut p.protected)[0].protection = Protection::Write,
            |p| Arc::make_mut(&mut p.protected)[0].new = WhenNew::Closed,
            |p| Arc::make_mut(&mut p.protected)[0].why.push('x'),
            |p| p.required.truncate(1),
            |p| p.web.own.search = None,
            |p| p.web.own.allow = Some(vec![]),
            |p| p.web.own.http = Some(vec![]),
            |p| p.web.own.private = Some(vec![]),
            |p| p.web.bounds.push(Default::default()),
            |p| p.limits.timeout_s += 1,
            |p| p.limits.spill += 1,
            |p| p.limits.scratch += 1,
            |p| p.limits.undo += 1,
            |p| p.limits.output = Some(0),
            |p| p.limits.cpu_s = Some(1),
            |p| p.limits.written = Some(1),
            |p| p.limits.memory = Some(1),
            |p| p.approval.ceiling = Trust::Guided,
            |p| p.approval.timeout_s += 1,
            |p| p.approval.channel = Channel::Separate,
            |p| p.trust = Trust::Supervised,
            |p| p.scope = Some(Scope::default()),
            |p| p.scope = Some(bash()),
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut changed = base.clone();
            change(&mut changed);
            assert_ne!(changed.compute_digest(), base.digest, "change {number}");
        }
    }

    #[test]
    fn a_text_cannot_slide_from_one_field_into_the_next() {
        let mut left = policy();
        let mut right = left.clone();
        left.environment.pass = vec!["AB".into(), "C".into()];
        right.environment.pass = vec!["A".into(), "BC".into()];
        assert_ne!(left.compute_digest(), right.compute_digest());
    }
}
