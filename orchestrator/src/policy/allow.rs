//! `lazaret policy allow`: opens one host to a profile for good, in the user's own policy file, and nothing else.
//!
//! The file is written only where the policy that comes of it is the one before with exactly this host: whatever it says besides
//! (a profile that others extend, a list that would take another's place) shows in the comparison.

use broker_protocol::Failed;
use orchestrator_install::files;
use orchestrator_install::{EditError, add_to_list};
use orchestrator_options::session_options::SessionOptions;
use orchestrator_options::{exit, policy_files};
use orchestrator_records::state_directory;
use orchestrator_terminal::print;
use orchestrator_text::time;
use policies::web::{HostPattern, WebTable};
use policies::{
    EffectivePolicy, Host, Policies, PolicyError, Source, SourceKind, WebPolicy, directories, network,
};
use std::collections::BTreeSet;
use std::io::{self, BufRead, Read, Write};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// Bytes of a line with a host.
const LINE_MAX: u64 = 512;

#[derive(Debug)]
pub struct Allowed {
    pub file: PathBuf,
    /// Its text before, where there was one.
    pub backup: Option<PathBuf>,
    /// Profiles that have the host too, because they extend this one.
    pub also: Vec<String>,
}

#[derive(Debug, Error)]
pub enum AllowError {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Network(#[from] network::NetworkError),
    #[error("{file} cannot be extended ({source}); add `{host}` to `allow` of the profile's `network` yourself", file = .file.display())]
    Edit { file: PathBuf, host: String, source: EditError },
    #[error("{file} would then say more or less than that {host} is allowed; add it to `allow` of the profile's `network` yourself", file = .file.display())]
    Other { file: PathBuf, host: String },
    #[error("{file}: {source}", file = .file.display())]
    File { file: PathBuf, source: io::Error },
    #[error("the profile {0} has it already")]
    Already(String),
}

impl From<AllowError> for Failed {
    fn from(error: AllowError) -> Self {
        match error {
            AllowError::Policy(error) => Failed { kind: error.kind(), message: error.to_string() },
            other => Failed::invalid(other.to_string()),
        }
    }
}

/// Opens `host` to the profile of a session here, or each host that comes by standard input; the exit code.
pub fn main(options: &SessionOptions, host: Option<&str>) -> Result<u8, Failed> {
    let profile = options.policy().map_err(AllowError::from)?.profile;
    let Some(host) = host else { return Ok(listen(&profile)) };
    let allowed = allow(&profile, host, "`lazaret policy allow`")?;
    print::result(format!("{}\n", print::shown(&allowed.describe(&profile, host))).as_bytes())?;
    Ok(exit::OK)
}

/// Answers each line with one, until they end: `+` and what was written, or `-` and why nothing was.
fn listen(profile: &str) -> u8 {
    let mut line = String::new();
    let mut input = io::stdin().lock().take(u64::MAX);
    loop {
        line.clear();
        input.set_limit(LINE_MAX);
        if !matches!(input.read_line(&mut line), Ok(1..)) {
            return exit::OK;
        }
        let host = line.trim_end();
        let answer = match allow(profile, host, "`lazaret run`") {
            Ok(allowed) => format!("+{}", allowed.describe(profile, host)),
            Err(error) => format!("-{error}"),
        };
        let written = io::stdout().write_all(format!("{}\n", answer.replace('\n', " ")).as_bytes());
        if written.and_then(|()| io::stdout().flush()).is_err() {
            return exit::OK;
        }
    }
}

impl Allowed {
    fn describe(&self, profile: &str, host: &str) -> String {
        let also = match self.also.is_empty() {
            true => String::new(),
            false => format!(" (and to what extends it: {})", self.also.join(", ")),
        };
        let backup = self.backup.as_ref().map(|backup| format!("; before: {}", backup.display()));
        let file = self.file.display();
        format!("{host} is open to the profile {profile}{also}, in {file}{}", backup.unwrap_or_default())
    }
}

/// Opens `host`, a `NAME:PORT`, to `profile`; `by` says in the file who has done it.
pub fn allow(profile: &str, host: &str, by: &str) -> Result<Allowed, AllowError> {
    let machine = policy_files::host();
    let sources = policy_files::sources(&machine)?;
    let file = directories::configuration(&machine.home, &state_directory::variable).join("policy.toml");
    let before =
        sources.iter().find(|source| source.kind == SourceKind::User).map(|source| source.text.clone());
    let old = Policies::load(sources.clone())?;
    let expected = network::leased(old.resolve(profile, &machine)?.network, host)?;
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let comment = format!("Allowed always by {by}, {}", time::utc(seconds));
    let text = before.clone().unwrap_or_else(|| "version = 1\n".to_owned());
    let after = add_to_list(&text, &["profile", profile, "network", "allow"], host, &comment)
        .map_err(|source| AllowError::Edit { file: file.clone(), host: host.to_owned(), source })?;
    if after == text {
        return Err(AllowError::Already(profile.to_owned()));
    }
    let name = file.display().to_string();
    let user = Source { name, kind: SourceKind::User, text: after.clone() };
    let others = sources.into_iter().filter(|source| source.kind != SourceKind::User);
    let new = Policies::load(others.chain([user]).collect())?;
    let other = || AllowError::Other { file: file.clone(), host: host.to_owned() };
    let also = compare(&old, &new, (profile, &expected), &machine).ok_or_else(other)?;
    let failed = |source| AllowError::File { file: file.clone(), source };
    let backup =
        before.as_ref().map(|_| file.with_file_name(format!("policy.toml.{}", time::compact(seconds))));
    if let (Some(backup), Some(before)) = (&backup, &before) {
        let there = files::read(backup).map_err(failed)?;
        files::replace(backup, there.as_deref(), Some(before)).map_err(failed)?;
    }
    files::replace(&file, before.as_deref(), Some(&after)).map_err(failed)?;
    Ok(Allowed { file, backup, also })
}

/// The other profiles that have gained the host, where nothing else has changed in any.
fn compare(
    old: &Policies,
    new: &Policies,
    (profile, expected): (&str, &WebPolicy),
    machine: &Host,
) -> Option<Vec<String>> {
    let mut also = Vec::new();
    for name in new.profiles() {
        let is_meant = name == profile;
        let now = new.resolve(name, machine).ok()?;
        let Ok(before) = old.resolve(name, machine) else { return None };
        if !is_meant && is_same(&before, &now, &before.network) {
            continue;
        }
        let gained = match is_meant {
            true => expected.clone(),
            false => with_gain(&before.network, expected, old.resolve(profile, machine).ok()?.network),
        };
        if !is_same(&before, &now, &gained) {
            return None;
        }
        if !is_meant {
            also.push(name.to_owned());
        }
    }
    Some(also)
}

/// `network` with what `expected` has more than `was`.
fn with_gain(network: &WebPolicy, expected: &WebPolicy, was: WebPolicy) -> WebPolicy {
    let had = texts(&was);
    let gained = expected.own.allow.iter().flatten().filter(|host| !had.contains(host.text()));
    let mut network = network.clone();
    network.own.allow.get_or_insert_default().extend(gained.cloned());
    network
}

/// Whether `now` is `before` with `network`, in whatever order that names its hosts.
fn is_same(before: &EffectivePolicy, now: &EffectivePolicy, network: &WebPolicy) -> bool {
    let rest = |policy: &WebPolicy| WebPolicy {
        own: WebTable { allow: None, ..policy.own.clone() },
        bounds: policy.bounds.clone(),
    };
    let others = EffectivePolicy { network: before.network.clone(), ..now.clone() };
    let unchanged = others.compute_digest().ok().zip(before.compute_digest().ok());
    unchanged.is_some_and(|(now, before)| now == before)
        && rest(&now.network) == rest(network)
        && texts(&now.network) == texts(network)
}

/// The hosts that a profile allows.
fn texts(policy: &WebPolicy) -> BTreeSet<String> {
    policy.own.allow.iter().flatten().map(HostPattern::text).map(str::to_owned).collect()
}
