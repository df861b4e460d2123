//! Resolves policy files to the policy of a session. Later files can only narrow earlier ones.
//!
//! The order of files is: shipped, the administrator's, the user's; the executor gets one
//! [`EffectivePolicy`]. What keeps a later file from widening:
//!
//! - it cannot define a profile that an earlier one defines, nor change what such a profile extends;
//! - protected names, forms of names in transit, required layers and ceilings of all files apply together, and none can be removed;
//! - under an administrator's `lock` a user's file defines no profiles.

use crate::credentials::{self, Credential};
use crate::draft::{self, Draft};
use crate::effective::{Approval, EffectivePolicy, PathGrant, TRUST};
use crate::error::{HideFault, PolicyError};
use crate::host::Host;
use crate::lease_bounds::PathLeases;
use crate::model::{PolicyFile, Profile, Protect, TransitEntry, place};
use crate::opened;
use crate::rules::Rule;
use crate::scope::ScopePaths;
use crate::secrets::{SecretMode, SecretModes, SecretsTable};
use crate::shipped::ShippedName;
use crate::source::{PolicySource, SourceKind};
use crate::ssh;
use crate::value::{AUTO, NameEntry};
use broker_protocol::{Digest, NetworkRequest, Scope, Trust};
use policies_guard::Access;
use policies_guard::Origin;
use policies_guard::names::{Matcher, ProtectedName, Protection, WhenNew};
use policies_guard::transit::TransitForm;
use policies_targets::http::{HttpRow, HttpRules, PassedHosts};
use policies_targets::network::{self, NetworkError, NetworkTable};
use policies_targets::web::{WebPolicy, WebTable};
use sha2::{Digest as _, Sha256};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use toml::Spanned;

/// Maximum depth of profiles that extend each other.
pub const LEVELS_MAX: usize = 16;

/// The profile of a session if none is named, and the base of a profile without `extends`.
pub const DEFAULT: &str = "default";

/// A policy file. One that defines a single profile is parsed only when needed, as a session that opens waits for it.
#[derive(Clone, Debug)]
pub(crate) struct File {
    name: Cow<'static, str>,
    kind: SourceKind,
    /// The part that is parsed when needed, with its lines at their places.
    text: Cow<'static, str>,
    /// For a shipped file, its whole text with its protected names.
    whole: Option<&'static str>,
    /// The protected names of a shipped file, parsed when it was built in.
    names: &'static [ShippedName],
    /// The profile of a shipped file that defines one and contains nothing else.
    only: Option<&'static str>,
    content: OnceLock<PolicyFile>,
}

/// A file of `profiles`, as `build/profiles.rs` writes it.
fn shipped(
    name: &'static str,
    (whole, text): (&'static str, &'static str),
    only: Option<&'static str>,
    names: &'static [ShippedName],
) -> File {
    let (name, text, kind, whole) = (name.into(), text.into(), SourceKind::Shipped, Some(whole));
    File {
        name,
        kind,
        text,
        whole,
        names,
        only,
        content: OnceLock::new(),
    }
}

impl From<PolicySource> for File {
    fn from(source: PolicySource) -> Self {
        let (name, text, kind) = (source.name.into(), source.text.into(), source.kind);
        Self {
            name,
            kind,
            text,
            whole: None,
            names: &[],
            only: None,
            content: OnceLock::new(),
        }
    }
}

impl File {
    fn read(&self) -> Result<&PolicyFile, PolicyError> {
        if let Some(content) = self.content.get() {
            return Ok(content);
        }
        let content = PolicyFile::parse(&self.name, &self.text)?;
        Ok(self.content.get_or_init(|| content))
    }

    /// The names of its profiles.
    fn profiles(&self) -> impl Iterator<Item = &str> {
        let read = self.content.get().filter(|_| self.only.is_none());
        let read = read.into_iter().flat_map(|content| content.profiles());
        self.only
            .into_iter()
            .chain(read.map(|(name, _)| name.as_str()))
    }

    /// The line and column of a profile's name, if it is parsed.
    fn place_of(&self, profile: &str) -> Option<(usize, usize)> {
        let mut profiles = self.content.get()?.placed_profiles();
        let (at, ..) = profiles.find(|(_, name, _)| name.as_str() == profile)?;
        Some(place(&self.text, at))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn kind(&self) -> SourceKind {
        self.kind
    }

    /// Line and column of a byte.
    pub(crate) fn place(&self, byte: usize) -> (usize, usize) {
        place(&self.text, byte)
    }

    /// Returns a function that finds the line of a byte.
    pub(crate) fn origins(&self) -> impl Fn(usize) -> Origin {
        let breaks: Vec<usize> = self.text.match_indices('\n').map(|(at, _)| at).collect();
        move |byte| {
            let line = breaks.partition_point(|end| *end < byte) + 1;
            Origin {
                file: self.name.clone().into_owned(),
                line,
            }
        }
    }
}

/// A profile by its name, and its file.
pub(crate) type ProfileLink<'a> = (&'a str, &'a File, &'a Profile);

/// All policy files of a machine and a user, parsed and found to be consistent.
#[derive(Clone, Debug)]
pub struct Policies {
    /// In the order of their kinds.
    files: Vec<File>,
}

impl Policies {
    /// Parses the shipped files and `sources`, which may be in any order.
    ///
    /// # Errors
    /// One of them is invalid: a session without the administrator's or the user's part would have a weaker policy.
    pub fn load(sources: Vec<PolicySource>) -> Result<Self, PolicyError> {
        let shipped = include!(concat!(env!("OUT_DIR"), "/shipped.rs"));
        let mut files: Vec<File> = shipped
            .into_iter()
            .chain(sources.into_iter().map(File::from))
            .collect();
        files.sort_by_key(|file| file.kind);
        for file in files.iter().filter(|file| file.only.is_none()) {
            file.read()?;
        }
        let policies = Self { files };
        policies.check_lock()?;
        policies.check_taken()?;
        policies.check_choices()?;
        policies.check_bases()?;
        policies.check_definitions()?;
        policies.check_gateway()?;
        Ok(policies)
    }

    /// The files that contain more than one profile.
    pub(crate) fn general(&self) -> impl Iterator<Item = (&File, &PolicyFile)> {
        let files = self.files.iter().filter(|file| file.only.is_none());
        files.filter_map(|file| Some((file, file.content.get()?)))
    }

    /// Digest of all files: kinds, names and texts, in order.
    pub fn digest(&self) -> Digest {
        let mut hash = Sha256::new();
        for File {
            name,
            kind,
            text,
            whole,
            ..
        } in &self.files
        {
            hash.update([*kind as u8]);
            for part in [name.as_ref(), whole.unwrap_or(text)] {
                hash.update((part.len() as u64).to_le_bytes());
                hash.update(part.as_bytes());
            }
        }
        Digest(hash.finalize().into())
    }

    /// The names of all profiles, in the order of the files.
    pub fn profiles(&self) -> impl Iterator<Item = &str> {
        self.files.iter().flat_map(File::profiles)
    }

    /// The policy of a session with `profile` (empty for `default`) on `host`; [`Policies::choose`] returns which profile that is.
    ///
    /// # Errors
    /// There is no such profile, it extends one that it may not, lacks a limit, or names a path that cannot be used here.
    pub fn resolve(&self, profile: &str, host: &Host) -> Result<EffectivePolicy, PolicyError> {
        self.undigested(profile, host)?.digested()
    }

    /// Resolves, narrows, and adds the network that is asked for, and leases for file tools if somebody is there to be asked: see
    /// [`EffectivePolicy::narrow`] and [`EffectivePolicy::with_network`]. A session that opens waits for its digest, which this computes once.
    ///
    /// # Errors
    /// An error of resolving, of narrowing, or of the network.
    pub fn resolve_session(
        &self,
        profile: &str,
        host: &Host,
        (scope, trust): (Option<&Scope>, Trust),
        (network, file_leases): (Option<&NetworkRequest>, bool),
    ) -> Result<EffectivePolicy, PolicyError> {
        let policy = self
            .undigested(profile, host)?
            .narrowed(scope, trust)?
            .networked(network)?;
        let policy = match file_leases {
            true => policy.asking_for_files(),
            false => policy,
        };
        policy.digested()
    }

    fn undigested(&self, profile: &str, host: &Host) -> Result<EffectivePolicy, PolicyError> {
        let name = if profile.is_empty() { DEFAULT } else { profile };
        let mut draft = Draft::default();
        for (_, file, profile) in self.chain(name)? {
            let added = draft.add(profile, file.origins(), host);
            added.map_err(|fault| fault.in_profile(name))?;
        }
        draft.required.extend(
            self.general()
                .flat_map(|(_, file)| &file.required)
                .map(|layer| layer.0),
        );
        let Draft {
            project,
            central,
            grants,
            read,
            listed,
            sockets,
            git_directories,
            environment,
            credentials: names,
            ssh: ssh_names,
            ..
        } = draft;
        let Draft {
            image,
            web,
            mut network,
            http,
            hide,
            open,
            secrets,
            limits,
            required,
            expected,
            ..
        } = draft;
        let closed = || (Access::Read, Origin::default());
        let (project, project_from) = project.unwrap_or_else(closed);
        let (central, central_from) = central.unwrap_or_else(closed);
        let mut protected = opened::open(self.protected(), &open, name)?;
        let hides = hide.unwrap_or(true);
        let mut hidden = Vec::new();
        if !hides {
            self.check_hidden(name)?;
            hidden = show(&mut protected);
        }
        let protected = Arc::new(protected);
        let (transit, approval) = (self.transit(), self.approval());
        let credentials = self.credentials(&names, name, host)?;
        credentials::add_hosts(&mut network, &credentials);
        let withheld = self.withheld(host)?;
        let ssh = self.ssh_keys(&ssh_names, name)?;
        ssh::add_hosts(&mut network, &ssh);
        let http = self.http_rules(&http, &network, &credentials)?;
        Ok(EffectivePolicy {
            profile: name.to_owned(),
            digest: Digest([0; 32]),
            project,
            central,
            zones_from: [project_from, central_from],
            grants: grants
                .into_iter()
                .map(|(path, (optional, except))| PathGrant {
                    path,
                    optional,
                    except: except.into_iter().filter(|_| hides).collect(),
                })
                .collect(),
            read: read.into_iter().collect(),
            listed: listed.into_iter().collect(),
            sockets: sockets.into_iter().collect(),
            git_directories: git_directories.into_iter().collect(),
            image,
            environment: environment.without(&credentials),
            credentials,
            withheld,
            ssh,
            gateway: self.gateway(host)?,
            matcher: Matcher::shared(protected.clone(), &transit)?,
            protected,
            hides,
            hidden: Arc::new(hidden),
            opened: open.iter().map(|name| name.as_str().to_owned()).collect(),
            transit,
            web: WebPolicy {
                own: web,
                bounds: self.web_bounds(),
            },
            ports: network::ports(&network, self.general().map(|(_, file)| &file.network))?,
            network: network::policy(&network, self.general().map(|(_, file)| &file.network))?,
            http,
            secrets: SecretModes {
                own: secrets,
                bounds: self.secret_bounds(),
                revealed: Vec::new(),
            },
            leases: false,
            path_leases: self.path_leases(host)?,
            limits: limits.complete(name, self.general().map(|(_, file)| &file.ceiling))?,
            required: required.into_iter().collect(),
            expected: expected.into_iter().collect(),
            trust: TRUST.min(approval.ceiling),
            approval,
            rules: self.rules()?,
            scope: None,
            paths: ScopePaths::default(),
        })
    }

    fn check_lock(&self) -> Result<(), PolicyError> {
        let locked = |(_, content): &(&File, &PolicyFile)| content.lock;
        if let Some((file, _)) = self
            .general()
            .filter(locked)
            .find(|(file, _)| file.kind != SourceKind::System)
        {
            return Err(PolicyError::LockMisplaced {
                file: file.name.to_string(),
            });
        }
        let Some((by, _)) = self.general().find(locked) else {
            return Ok(());
        };
        let mut users = self
            .general()
            .filter(|(file, _)| file.kind == SourceKind::User);
        match users.find_map(|(file, content)| Some((file, content.profiles().next()?.0))) {
            Some((file, profile)) => {
                let (file, profile, by) = (
                    file.name.to_string(),
                    profile.as_str().to_owned(),
                    by.name.to_string(),
                );
                Err(PolicyError::Locked { file, profile, by })
            }
            None => Ok(()),
        }
    }

    /// Checks that no file of the machine or the user hides a name that a session of this profile would show.
    fn check_hidden(&self, profile: &str) -> Result<(), PolicyError> {
        let is_own = |file: &&File| file.kind != SourceKind::Shipped;
        let general = self.general().filter(|(file, _)| is_own(file));
        let of_files = general.map(|(file, content)| hidden_by_file(file, content, profile));
        let chain = self.chain(profile)?.into_iter();
        let profiles = chain.filter(|(_, file, _)| is_own(file));
        let of_profiles = profiles.map(|(_, file, content)| hidden_by_profile(file, content));
        match of_files.chain(of_profiles).find_map(Result::err) {
            Some(why) => Err(PolicyError::Hide {
                profile: profile.to_owned(),
                why,
            }),
            None => Ok(()),
        }
    }

    fn check_taken(&self) -> Result<(), PolicyError> {
        let mut taken: BTreeMap<&str, &File> = BTreeMap::new();
        for file in &self.files {
            for name in file.profiles() {
                if let Some(earlier) = taken.insert(name, file) {
                    let (file, profile, earlier) = (
                        file.name.to_string(),
                        name.to_owned(),
                        earlier.name.to_string(),
                    );
                    return Err(PolicyError::Taken {
                        file,
                        profile,
                        earlier,
                    });
                }
            }
        }
        Ok(())
    }

    /// Checks that each profile chosen by a file is known to that file: a user's file must not define what an administrator's chooses.
    fn check_choices(&self) -> Result<(), PolicyError> {
        for (index, file) in self.files.iter().enumerate() {
            let Some(content) = file.content.get() else {
                continue;
            };
            let known = |name: &str| {
                self.files[..=index]
                    .iter()
                    .any(|file| file.profiles().any(|known| known == name))
            };
            let chosen = content
                .chosen()
                .map(|name| name.as_str())
                .filter(|name| *name != AUTO);
            let entries = content
                .auto
                .iter()
                .map(|entry| entry.get_ref().profile.as_str());
            if let Some(profile) = entries.chain(chosen).find(|name| !known(name)) {
                let (file, profile) = (file.name.to_string(), profile.to_owned());
                return Err(PolicyError::NoChoice { file, profile });
            }
        }
        Ok(())
    }

    /// Checks that the profiles of the machine and the user extend only profiles that are there, and not each other in a circle:
    /// a file with a wrong profile is not used for another one either. The shipped ones are tested, and parsed when needed.
    fn check_bases(&self) -> Result<(), PolicyError> {
        let own = |(_, file): &(usize, &File)| file.kind != SourceKind::Shipped;
        for (index, file) in self.files.iter().enumerate().filter(own) {
            let profiles = file
                .content
                .get()
                .into_iter()
                .flat_map(|content| content.profiles());
            for (name, profile) in profiles {
                Chain::of(self, name.as_str(), (index, profile))?;
            }
        }
        Ok(())
    }

    /// `name` after all profiles it extends, each once: later ones override.
    pub(crate) fn chain<'a>(&'a self, name: &'a str) -> Result<Vec<ProfileLink<'a>>, PolicyError> {
        let Some((file, profile)) = self.find(name, self.files.len())? else {
            let known = self.profiles().collect::<Vec<_>>().join(", ");
            return Err(PolicyError::NoProfile {
                profile: name.to_owned(),
                known,
            });
        };
        let links = Chain::of(self, name, (file, profile))?.links;
        Ok(links
            .into_iter()
            .map(|(name, file, profile)| (name, &self.files[file], profile))
            .collect())
    }

    /// The profile and the index of its file, among the first `files` files.
    fn find(&self, name: &str, files: usize) -> Result<Option<(usize, &Profile)>, PolicyError> {
        let has = |file: &File| file.profiles().any(|known| known == name);
        let Some(index) = self.files[..files].iter().position(has) else {
            return Ok(None);
        };
        let found = self.files[index]
            .read()?
            .profiles()
            .find(|(key, _)| key.as_str() == name);
        Ok(found.map(|(_, profile)| (index, profile)))
    }

    /// The most careful of the files' settings.
    fn approval(&self) -> Approval {
        let mut approval = Approval::default();
        let tables = || self.general().map(|(_, file)| &file.approval);
        // Only of the times that are written: the default is no ceiling.
        let written = tables().filter_map(|table| table.timeout_s.flatten()).min();
        approval.timeout_s = written.and_then(|seconds| u32::try_from(seconds).ok());
        // Only if one file waives it and none requires it.
        approval.terminal = tables().any(|table| table.terminal == Some(true))
            || tables().all(|table| table.terminal.is_none());
        for table in tables() {
            approval.ceiling = table
                .trust
                .map_or(approval.ceiling, |trust| trust.0.min(approval.ceiling));
            approval.channel = table
                .channel
                .map_or(approval.channel, |c| c.max(approval.channel));
        }
        approval
    }

    fn path_leases(&self, host: &Host) -> Result<PathLeases, PolicyError> {
        let mut bounds = PathLeases::default();
        for (_, file) in self.general() {
            bounds.narrow(&file.leases, host)?;
        }
        Ok(bounds)
    }

    fn web_bounds(&self) -> Vec<WebTable> {
        let bounds = self.general().map(|(_, file)| &file.web);
        bounds
            .filter(|web| **web != WebTable::default())
            .cloned()
            .collect()
    }

    /// The rules for requests of a profile, bounded by each file's.
    fn http_rules(
        &self,
        own: &[(HttpRow, Origin)],
        network: &NetworkTable,
        credentials: &[Credential],
    ) -> Result<HttpRules, PolicyError> {
        let of = |(file, content): (&File, &PolicyFile)| {
            let rows = content.network.http.as_ref()?;
            Some(draft::placed(rows, file.origins()))
        };
        let bounds: Vec<_> = self.general().filter_map(of).collect();
        let passed = PassedHosts::of(own, &bounds);
        for Credential { name, hosts, .. } in credentials {
            let checked = passed.check_credential(name, hosts);
            checked.map_err(NetworkError::from)?;
        }
        let rules = HttpRules::new(own, &network.expanded(), bounds);
        Ok(rules.map_err(NetworkError::from)?)
    }

    fn secret_bounds(&self) -> Vec<SecretsTable> {
        let bounds = self.general().map(|(_, file)| &file.secrets);
        bounds.filter(|table| !table.is_empty()).cloned().collect()
    }

    fn protected(&self) -> Vec<ProtectedName> {
        let mut protected = Vec::new();
        for (file, content) in self.general() {
            protected.extend(file.names.iter().map(|name| name.protected(&file.name)));
            let origins = file.origins();
            for protect in &content.protect {
                let name = |name: &Spanned<NameEntry>| protected_name(protect, name, &origins);
                protected.extend(protect.names.iter().map(name));
            }
        }
        protected
    }

    fn transit(&self) -> Vec<TransitForm> {
        let forms = self.general().flat_map(|(_, content)| &content.transit);
        forms.map(|form| transit_form(form.get_ref())).collect()
    }

    /// The rules of all files, in order of kind.
    fn rules(&self) -> Result<Vec<Rule>, PolicyError> {
        let mut rules = Vec::new();
        for (file, content) in self.general() {
            let origins = file.origins();
            for entry in &content.rule {
                let start = entry.span().start;
                let rule = Rule::new(entry.get_ref(), file.kind, origins(start));
                rules.push(rule.map_err(|fault| {
                    let (line, column) = place(&file.text, start);
                    PolicyError::Text {
                        file: file.name.to_string(),
                        line,
                        column,
                        message: fault.to_string(),
                    }
                })?);
            }
        }
        Ok(rules)
    }
}

/// Settings of a file for all profiles that contradict one that hides nothing.
fn hidden_by_file(file: &File, content: &PolicyFile, profile: &str) -> Result<(), HideFault> {
    let name = || file.name.to_string();
    let is_hidden = |protect: &&Protect| protect.protection == Protection::All;
    if let Some(protect) = content.protect.iter().find(is_hidden) {
        let names = protect.names.iter();
        let names: Vec<_> = names.map(|name| name.get_ref().pattern.as_str()).collect();
        return Err(HideFault::Protected {
            file: name(),
            names: names.join(", "),
        });
    }
    if shows_less(&content.secrets) {
        return Err(HideFault::Secrets { file: name() });
    }
    if content.lock && !file.profiles().any(|known| known == profile) {
        return Err(HideFault::Locked { file: name() });
    }
    Ok(())
}

/// Settings of a profile, itself or extended, that contradict one that hides nothing.
fn hidden_by_profile(file: &File, profile: &Profile) -> Result<(), HideFault> {
    let excepted = profile.grants.iter().find(|grant| !grant.except.is_empty());
    if let Some(grant) = excepted {
        return Err(HideFault::Except {
            file: file.name.to_string(),
            path: grant.path.text().to_owned(),
        });
    }
    if shows_less(&profile.secrets) {
        return Err(HideFault::Secrets {
            file: file.name.to_string(),
        });
    }
    Ok(())
}

fn shows_less(secrets: &SecretsTable) -> bool {
    secrets.values().any(|mode| *mode != SecretMode::Show)
}

/// Lets all of these names be read, and returns those that were hidden, as they were. They stay closed to changes.
fn show(names: &mut [ProtectedName]) -> Vec<ProtectedName> {
    let is_hidden = |name: &&mut ProtectedName| name.protection == Protection::All;
    let hidden = names.iter_mut().filter(is_hidden).map(|name| {
        let shown = ProtectedName {
            protection: Protection::Write,
            ..name.clone()
        };
        std::mem::replace(name, shown)
    });
    hidden.collect()
}

fn protected_name(
    protect: &Protect,
    name: &Spanned<NameEntry>,
    origins: impl Fn(usize) -> Origin,
) -> ProtectedName {
    ProtectedName {
        origin: origins(name.span().start),
        pattern: name.get_ref().pattern.as_str().to_owned(),
        except: protect
            .except
            .iter()
            .map(|except| except.as_str().to_owned())
            .collect(),
        protection: protect.protection,
        new: protect.new,
        opens: protect.opens,
        why: protect.why.clone(),
    }
}

fn transit_form(entry: &TransitEntry) -> TransitForm {
    let before = entry
        .before
        .as_ref()
        .map_or("", |before| before.as_str())
        .to_owned();
    let after = entry
        .after
        .as_ref()
        .map_or("", |after| after.as_str())
        .to_owned();
    let except = entry
        .except
        .iter()
        .map(|except| except.as_str().to_owned())
        .collect();
    TransitForm {
        before,
        after,
        except,
        why: entry.why.clone(),
    }
}

/// A profile after the profiles that it extends.
struct Chain<'a> {
    policies: &'a Policies,
    /// The profile that the others are of, and the index of its file.
    last: (&'a str, usize),
    links: Vec<(&'a str, usize, &'a Profile)>,
}

impl<'a> Chain<'a> {
    fn of(
        policies: &'a Policies,
        name: &'a str,
        (file, profile): (usize, &'a Profile),
    ) -> Result<Self, PolicyError> {
        let mut chain = Self {
            policies,
            last: (name, file),
            links: Vec::new(),
        };
        chain.add(name, (file, profile), LEVELS_MAX)?;
        Ok(chain)
    }

    /// Adds a profile after its bases. A base must be in the same file or an earlier one: a user
    /// must not define what an administrator's profile extends.
    fn add(
        &mut self,
        name: &'a str,
        (file, profile): (usize, &'a Profile),
        levels: usize,
    ) -> Result<(), PolicyError> {
        if levels == 0 {
            return Err(self.too_long());
        }
        for base in bases(name, profile) {
            let found = self.policies.find(base, file + 1)?;
            let found = found.ok_or_else(|| self.no_base((name, file), base))?;
            if !self.links.iter().any(|(name, ..)| *name == base) {
                self.add(base, found, levels - 1)?;
            }
        }
        self.links.push((name, file, profile));
        Ok(())
    }

    fn too_long(&self) -> PolicyError {
        let (file, line, column) = self.place_of(self.last);
        PolicyError::Levels {
            file,
            line,
            column,
            profile: self.last.0.to_owned(),
            max: LEVELS_MAX,
        }
    }

    fn no_base(&self, of: (&str, usize), base: &str) -> PolicyError {
        let (file, line, column) = self.place_of(of);
        PolicyError::NoBase {
            file,
            line,
            column,
            profile: of.0.to_owned(),
            base: base.to_owned(),
        }
    }

    /// The file of a profile, and its place there.
    fn place_of(&self, (name, file): (&str, usize)) -> (String, usize, usize) {
        let file = &self.policies.files[file];
        // A profile that was found has been parsed.
        let (line, column) = file.place_of(name).unwrap_or((1, 1));
        (file.name.to_string(), line, column)
    }
}

fn bases<'a>(name: &str, profile: &'a Profile) -> Vec<&'a str> {
    match &profile.extends {
        Some(names) => names.iter().map(|name| name.as_str()).collect(),
        None if name == DEFAULT => vec![],
        None => vec![DEFAULT],
    }
}
