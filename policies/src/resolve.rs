//! From policy files to the policy of a session. Later files only narrow what earlier ones say.
//!
//! Comes from texts the broker has read, in the order shipped, the administrator's, the user's; goes to the executor as
//! one [`EffectivePolicy`]. What keeps a later file from widening:
//!
//! - it cannot define a profile that an earlier one defines, nor change what such a profile extends;
//! - protected names, required layers and ceilings of all files count together, and none can be taken back;
//! - under an administrator's `lock` a user's file defines no profiles.

use crate::effective::{
    Access, Approval, EffectivePolicy, EnvironmentRules, Grant, Limits, ProtectedName, TRUST,
};
use crate::error::PolicyError;
use crate::host::{Host, HostPath, HostPathError};
use crate::model::{LimitsTable, PolicyFile, Profile, Protect, place};
use crate::names::Matcher;
use crate::rules::{Origin, Rule};
use crate::scope::ScopePaths;
use crate::shipped;
use crate::source::{Source, SourceKind};
use crate::value::{NamePattern, SetValue};
use crate::web::{WebPolicy, WebTable};
use broker_protocol::{Digest, Layer};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use toml::Spanned;

/// Most levels of profiles that extend each other.
pub const LEVELS_MAX: usize = 16;

/// The profile that others extend where they do not say, and that a session without a name gets.
const DEFAULT: &str = "default";

impl Source {
    /// Its lines, to say where bytes of its text stand.
    fn lines(&self) -> Lines<'_> {
        Lines { source: self, byte: 0, line: 1 }
    }

    fn fault(&self, byte: usize, message: String) -> PolicyError {
        let (line, column) = place(&self.text, byte);
        PolicyError::Text { file: self.name.clone(), line, column, message }
    }
}

/// A place in a policy file that goes on from one question to the next: most come in the order of the text.
struct Lines<'a> {
    source: &'a Source,
    byte: usize,
    line: usize,
}

impl Lines<'_> {
    /// Where a byte stands.
    fn origin(&mut self, byte: usize) -> Origin {
        if byte < self.byte {
            *self = self.source.lines();
        }
        let passed = self.source.text.as_bytes().get(self.byte..byte).unwrap_or_default();
        self.line += passed.iter().filter(|byte| **byte == b'\n').count();
        self.byte += passed.len();
        Origin { file: self.source.name.clone(), line: self.line }
    }
}

/// A policy file, and what it says once that was asked for: a session that opens waits for each that is read.
#[derive(Clone, Debug)]
struct Entry {
    source: Source,
    file: OnceLock<PolicyFile>,
    /// The profile of a shipped file that holds one, and nothing else.
    only: Option<&'static str>,
    /// What the text of a shipped file says.
    root: Option<shipped::Value>,
}

impl Entry {
    fn shipped() -> impl Iterator<Item = Self> {
        shipped::files().iter().map(|file| {
            let (name, text) = (file.name.to_owned(), file.text.to_owned());
            let source = Source { name, kind: SourceKind::Shipped, text };
            Self { only: file.only_profile(), root: Some(file.root), ..Self::from(source) }
        })
    }

    fn read(&self) -> Result<&PolicyFile, PolicyError> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let file = match self.root {
            Some(root) => PolicyFile::shipped(&self.source.name, root)?,
            None => PolicyFile::parse(&self.source.name, &self.source.text)?,
        };
        Ok(self.file.get_or_init(|| file))
    }

    /// The names of its profiles.
    fn profiles(&self) -> impl Iterator<Item = &str> {
        let file = self.file.get().filter(|_| self.only.is_none());
        let own = file.into_iter().flat_map(|file| file.profile.keys().map(|name| name.as_str()));
        self.only.into_iter().chain(own)
    }
}

impl From<Source> for Entry {
    fn from(source: Source) -> Self {
        Self { source, file: OnceLock::new(), only: None, root: None }
    }
}

/// All policy files of a machine and a user, read and found to agree.
#[derive(Clone, Debug)]
pub struct Policies {
    /// In order of kind.
    entries: Vec<Entry>,
}

impl Policies {
    /// Reads the shipped files and `sources`, which may stand in any order. One bad file is an error for all: a session
    /// without the administrator's or the user's part would be a weaker one.
    pub fn load(sources: Vec<Source>) -> Result<Self, PolicyError> {
        let mut entries: Vec<Entry> = Entry::shipped().chain(sources.into_iter().map(Entry::from)).collect();
        entries.sort_by_key(|entry| entry.source.kind);
        let whole = entries.iter().filter(|entry| entry.only.is_none());
        whole.map(Entry::read).try_for_each(|read| read.map(drop))?;
        let policies = Self { entries };
        policies.check_lock()?;
        policies.check_taken()?;
        Ok(policies)
    }

    /// The files that say more than one profile.
    fn files(&self) -> impl Iterator<Item = (&Source, &PolicyFile)> {
        let whole = self.entries.iter().filter(|entry| entry.only.is_none());
        whole.filter_map(|entry| Some((&entry.source, entry.file.get()?)))
    }

    /// Digest of all files: kinds, names and texts, in order.
    pub fn digest(&self) -> Digest {
        let mut hash = Sha256::new();
        for Entry { source, .. } in &self.entries {
            hash.update([source.kind as u8]);
            for part in [&source.name, &source.text] {
                hash.update((part.len() as u64).to_le_bytes());
                hash.update(part);
            }
        }
        Digest(hash.finalize().into())
    }

    /// The names of all profiles, in the order of the files.
    pub fn profiles(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().flat_map(Entry::profiles)
    }

    /// The policy of a session with `profile` (empty for `default`) on `host`.
    pub fn resolve(&self, profile: &str, host: &Host) -> Result<EffectivePolicy, PolicyError> {
        let name = if profile.is_empty() { DEFAULT } else { profile };
        let mut draft = Draft::default();
        for (source, profile) in self.line(name)? {
            draft.add(source, profile, host).map_err(|fault| fault.in_profile(name))?;
        }
        draft.required.extend(self.files().flat_map(|(_, file)| &file.required).map(|layer| layer.0));
        let mut limits = draft.limits.complete(name)?;
        self.files().for_each(|(_, file)| limits.lower_to(&file.ceiling));
        let mut policy = draft.finish(name, limits, self.protected(), self.approval(), self.web_bounds())?;
        policy.rules = self.rules()?;
        policy.digest = policy.compute_digest();
        Ok(policy)
    }

    fn check_lock(&self) -> Result<(), PolicyError> {
        let locked = |(_, file): &(&Source, &PolicyFile)| file.lock;
        if let Some((source, _)) =
            self.files().filter(locked).find(|(source, _)| source.kind != SourceKind::System)
        {
            return Err(PolicyError::LockMisplaced { file: source.name.clone() });
        }
        let Some((by, _)) = self.files().find(locked) else { return Ok(()) };
        let users = self.files().filter(|(source, _)| source.kind == SourceKind::User);
        let Some((source, profile)) =
            users.flat_map(|(source, file)| file.profile.keys().map(move |p| (source, p))).next()
        else {
            return Ok(());
        };
        let (file, profile, by) = (source.name.clone(), profile.as_str().to_owned(), by.name.clone());
        Err(PolicyError::Locked { file, profile, by })
    }

    fn check_taken(&self) -> Result<(), PolicyError> {
        let mut taken: BTreeMap<&str, &Source> = BTreeMap::new();
        for entry in &self.entries {
            for name in entry.profiles() {
                if let Some(earlier) = taken.insert(name, &entry.source) {
                    let (file, profile) = (entry.source.name.clone(), name.to_owned());
                    return Err(PolicyError::Taken { file, profile, earlier: earlier.name.clone() });
                }
            }
        }
        Ok(())
    }

    /// `name` after all it extends, each once: what comes later overrides.
    fn line(&self, name: &str) -> Result<Vec<(&Source, &Profile)>, PolicyError> {
        let Some((file, profile)) = self.find(name, self.entries.len())? else {
            let known = self.profiles().collect::<Vec<_>>().join(", ");
            return Err(PolicyError::NoProfile { profile: name.to_owned(), known });
        };
        let mut line = Line { policies: self, seen: BTreeSet::new(), profiles: Vec::new() };
        line.add(name, file, profile, 1)?;
        Ok(line.profiles)
    }

    /// The profile and the index of its file, among the first `files` files.
    fn find(&self, name: &str, files: usize) -> Result<Option<(usize, &Profile)>, PolicyError> {
        let has = |entry: &Entry| entry.profiles().any(|known| known == name);
        let Some(index) = self.entries[..files].iter().position(has) else { return Ok(None) };
        let file = self.entries[index].read()?;
        let found = file.profile.iter().find(|(key, _)| key.as_str() == name);
        Ok(found.map(|(_, profile)| (index, profile)))
    }

    /// The most careful of what the files say.
    fn approval(&self) -> Approval {
        let mut approval = Approval::default();
        // Of the times that were written: the default is no ceiling.
        let written = self.files().filter_map(|(_, file)| file.approval.timeout_s).min();
        approval.timeout_s = written.unwrap_or(approval.timeout_s);
        for (_, file) in self.files() {
            let table = &file.approval;
            approval.ceiling = table.trust.map_or(approval.ceiling, |trust| trust.0.min(approval.ceiling));
            approval.channel = table.channel.map_or(approval.channel, |c| c.max(approval.channel));
        }
        approval
    }

    fn web_bounds(&self) -> Vec<WebTable> {
        let bounds = self.files().map(|(_, file)| &file.web);
        bounds.filter(|web| **web != WebTable::default()).cloned().collect()
    }

    fn protected(&self) -> Arc<Vec<ProtectedName>> {
        let of = |(source, file): (&Source, &PolicyFile)| -> Vec<ProtectedName> {
            let mut lines = source.lines();
            file.protect.iter().flat_map(|protect| names_of(&mut lines, protect)).collect()
        };
        Arc::new(self.files().flat_map(of).collect())
    }

    /// The rules of all files, in order of kind.
    fn rules(&self) -> Result<Vec<Rule>, PolicyError> {
        let mut rules = Vec::new();
        for (source, file) in self.files() {
            let mut lines = source.lines();
            for entry in &file.rule {
                let origin = lines.origin(entry.span().start);
                let rule = Rule::new(entry.get_ref(), source.kind, origin);
                rules.push(rule.map_err(|fault| source.fault(entry.span().start, fault.to_string()))?);
            }
        }
        Ok(rules)
    }
}

fn names_of(lines: &mut Lines, protect: &Protect) -> Vec<ProtectedName> {
    let name = |pattern: &Spanned<NamePattern>| ProtectedName {
        origin: lines.origin(pattern.span().start),
        pattern: pattern.get_ref().as_str().to_owned(),
        except: protect.except.iter().map(|except| except.as_str().to_owned()).collect(),
        protection: protect.protection,
        new: protect.new,
        why: protect.why.clone(),
    };
    protect.names.iter().map(name).collect()
}

/// Profiles in the order in which they apply.
struct Line<'a> {
    policies: &'a Policies,
    seen: BTreeSet<&'a str>,
    profiles: Vec<(&'a Source, &'a Profile)>,
}

impl<'a> Line<'a> {
    /// Adds `profile` of file number `file` after its bases. A base stands in the same file or an earlier one: a user
    /// must not fill in what an administrator's profile starts from.
    fn add(
        &mut self,
        name: &str,
        file: usize,
        profile: &'a Profile,
        level: usize,
    ) -> Result<(), PolicyError> {
        if level > LEVELS_MAX {
            return Err(PolicyError::Levels { profile: name.to_owned() });
        }
        for base in bases(name, profile) {
            let no_base = || PolicyError::NoBase { profile: name.to_owned(), base: base.to_owned() };
            let (index, found) = self.policies.find(base, file + 1)?.ok_or_else(no_base)?;
            if !self.seen.contains(base) {
                self.add(base, index, found, level + 1)?;
                self.seen.insert(base);
            }
        }
        self.profiles.push((&self.policies.entries[file].source, profile));
        Ok(())
    }
}

fn bases<'a>(name: &str, profile: &'a Profile) -> Vec<&'a str> {
    match &profile.extends {
        Some(names) => names.iter().map(|name| name.as_str()).collect(),
        None if name == DEFAULT => vec![],
        None => vec![DEFAULT],
    }
}

/// A policy while its profiles are added to it. Empty, it allows nothing.
#[derive(Default)]
struct Draft {
    project: Option<(Access, Origin)>,
    central: Option<(Access, Origin)>,
    grants: BTreeMap<PathBuf, bool>,
    listed: BTreeSet<PathBuf>,
    pass: Vec<String>,
    set: BTreeMap<String, String>,
    path: Vec<PathBuf>,
    web: WebTable,
    limits: LimitsTable,
    required: BTreeSet<Layer>,
}

/// A host path that cannot be used.
struct PathFault(HostPath, HostPathError);

impl PathFault {
    fn in_profile(self, profile: &str) -> PolicyError {
        PolicyError::Path { profile: profile.to_owned(), path: self.0.text().to_owned(), why: self.1 }
    }
}

fn expand(path: &HostPath, host: &Host) -> Result<PathBuf, PathFault> {
    path.expand(host).map_err(|why| PathFault(path.clone(), why))
}

/// A path to grant. One that would open the home directory, as `/opt` does where `/opt/app` is the home, is an error;
/// an optional one is left out, as if it were missing on this machine.
fn expand_narrow(path: &HostPath, optional: bool, host: &Host) -> Result<Option<PathBuf>, PathFault> {
    let expanded = expand(path, host)?;
    match host.narrow(&expanded) {
        Ok(()) => Ok(Some(expanded)),
        Err(HostPathError::TooWide) if optional => Ok(None),
        Err(why) => Err(PathFault(path.clone(), why)),
    }
}

impl Draft {
    fn add(&mut self, source: &Source, profile: &Profile, host: &Host) -> Result<(), PathFault> {
        let access =
            |written: &Spanned<Access>| (*written.get_ref(), source.lines().origin(written.span().start));
        self.project = profile.project.as_ref().map(access).or(self.project.take());
        self.central = profile.central.as_ref().map(access).or(self.central.take());
        for grant in &profile.grants {
            let Some(path) = expand_narrow(&grant.path, grant.optional, host)? else { continue };
            // A path that one profile must have is not optional because another could do without it.
            *self.grants.entry(path).or_insert(true) &= grant.optional;
        }
        for path in &profile.listed {
            self.listed.extend(expand_narrow(path, true, host)?);
        }
        self.web.set(&profile.web);
        self.limits.set(&profile.limits);
        self.required.extend(profile.required.iter().map(|layer| layer.0));
        self.add_environment(profile, host)
    }

    fn add_environment(&mut self, profile: &Profile, host: &Host) -> Result<(), PathFault> {
        for name in &profile.environment.pass {
            if !self.pass.iter().any(|known| known == name.as_str()) {
                self.pass.push(name.as_str().to_owned());
            }
        }
        for (name, value) in &profile.environment.set {
            let value = match value {
                SetValue::Text(text) => text.clone(),
                SetValue::Path(path) => expand(path, host)?.to_string_lossy().into_owned(),
            };
            self.set.insert(name.as_str().to_owned(), value);
        }
        let front = profile.environment.path.iter().map(|path| expand(path, host));
        let front = front.collect::<Result<Vec<_>, _>>()?;
        self.path.retain(|old| !front.contains(old));
        self.path.splice(0..0, front);
        Ok(())
    }

    fn finish(
        self,
        name: &str,
        limits: Limits,
        protected: Arc<Vec<ProtectedName>>,
        approval: Approval,
        bounds: Vec<WebTable>,
    ) -> Result<EffectivePolicy, PolicyError> {
        let closed = || (Access::Read, Origin::default());
        let (project, project_from) = self.project.unwrap_or_else(closed);
        let (central, central_from) = self.central.unwrap_or_else(closed);
        Ok(EffectivePolicy {
            profile: name.to_owned(),
            digest: Digest([0; 32]),
            project,
            central,
            zones_from: [project_from, central_from],
            grants: self.grants.into_iter().map(|(path, optional)| Grant { path, optional }).collect(),
            listed: self.listed.into_iter().collect(),
            environment: EnvironmentRules { pass: self.pass, set: self.set, path: self.path },
            matcher: Matcher::shared(protected.clone())?,
            protected,
            web: WebPolicy { own: self.web, bounds },
            limits,
            required: self.required.into_iter().collect(),
            trust: TRUST.min(approval.ceiling),
            approval,
            rules: Vec::new(),
            scope: None,
            paths: ScopePaths::default(),
        })
    }
}

impl LimitsTable {
    /// Takes over what `later` says.
    fn set(&mut self, later: &LimitsTable) {
        self.timeout_s = later.timeout_s.or(self.timeout_s);
        self.timeout_max_s = later.timeout_max_s.or(self.timeout_max_s);
        self.capture = later.capture.or(self.capture);
        self.spill = later.spill.or(self.spill);
        self.output = later.output.or(self.output);
        self.processes = later.processes.or(self.processes);
        self.memory = later.memory.or(self.memory);
        self.cpu_s = later.cpu_s.or(self.cpu_s);
        self.file_size = later.file_size.or(self.file_size);
        self.written = later.written.or(self.written);
        self.open_files = later.open_files.or(self.open_files);
        self.scratch = later.scratch.or(self.scratch);
        self.undo = later.undo.or(self.undo);
    }

    fn complete(&self, profile: &str) -> Result<Limits, PolicyError> {
        let missing = |limit| move || PolicyError::NoLimit { profile: profile.to_owned(), limit };
        let limits = Limits {
            timeout_s: self.timeout_s.ok_or_else(missing("timeout_s"))?,
            timeout_max_s: self.timeout_max_s.ok_or_else(missing("timeout_max_s"))?,
            capture: self.capture.ok_or_else(missing("capture"))?,
            spill: self.spill.ok_or_else(missing("spill"))?,
            output: self.output.flatten(),
            processes: self.processes.flatten(),
            memory: self.memory.flatten(),
            cpu_s: self.cpu_s.flatten(),
            file_size: self.file_size.flatten(),
            written: self.written.flatten(),
            open_files: self.open_files.flatten(),
            scratch: self.scratch.ok_or_else(missing("scratch"))?,
            undo: self.undo.unwrap_or(0),
        };
        let (timeout_s, max_s) = (limits.timeout_s, limits.timeout_max_s);
        if timeout_s > max_s {
            return Err(PolicyError::Timeout { profile: profile.to_owned(), timeout_s, max_s });
        }
        Ok(limits)
    }
}

impl Limits {
    /// Lowers what is above `ceiling`; no limit is above every ceiling.
    fn lower_to(&mut self, ceiling: &LimitsTable) {
        let lower = |limit: &mut Option<u64>, ceiling: Option<Option<u64>>| {
            *limit = [*limit, ceiling.flatten()].into_iter().flatten().min();
        };
        self.timeout_max_s = self.timeout_max_s.min(ceiling.timeout_max_s.unwrap_or(u32::MAX));
        self.timeout_s = self.timeout_s.min(ceiling.timeout_s.unwrap_or(u32::MAX)).min(self.timeout_max_s);
        self.capture = self.capture.min(ceiling.capture.unwrap_or(u64::MAX));
        self.spill = self.spill.min(ceiling.spill.unwrap_or(u64::MAX));
        self.scratch = self.scratch.min(ceiling.scratch.unwrap_or(u64::MAX));
        self.undo = self.undo.min(ceiling.undo.unwrap_or(u64::MAX));
        lower(&mut self.output, ceiling.output);
        lower(&mut self.processes, ceiling.processes);
        lower(&mut self.memory, ceiling.memory);
        lower(&mut self.cpu_s, ceiling.cpu_s);
        lower(&mut self.file_size, ceiling.file_size);
        lower(&mut self.written, ceiling.written);
        lower(&mut self.open_files, ceiling.open_files);
    }
}
