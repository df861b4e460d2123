//! Denials by a rule or a limit, with the line that denied and the change that would open it.
//!
//! Comes from a decision or an end that is already made; changes neither.

use crate::decide::OUTSIDE;
use crate::effective::EffectivePolicy;
use crate::limits::Limits;
use crate::secrets::SecretMode;
use crate::source::SourceKind;
use crate::value::PROFILE_NAME_MAX;
use broker_protocol::paste::{shell_word, toml_string};
use broker_protocol::{
    AttemptKind, Barrier, Denial, Digest, Layer, Leased, Limit, PolicyRule, Refused, Remedy,
    Request, Zone, limit,
};
use policies_guard::Access;
use policies_guard::Origin;
use policies_guard::names::{ProtectedName, Protection, WhenNew};
use policies_targets::dotenv::is_dotenv_name;
use policies_targets::network;
use policies_targets::network::Leasing;
use std::path::Path;

/// How a command makes a file that package managers act on.
const HARMLESS: &str = "a command can write it to a new file and move that there (`mv new .npmrc`), if each setting in it is harmless \
    (`policies/README.md` says which: `save-exact`, `legacy-peer-deps`, `nodeLinker` and others); otherwise ask the user to write it";

/// The remedy where no profile opens a name.
const OUTSIDE_THE_SANDBOX: &str =
    "no option allows this; the user can run outside the sandbox what makes it";

/// Maximum length in bytes of either half of an advised profile's name: the profile that it extends, and what it adds.
const NAME_HALF: usize = PROFILE_NAME_MAX / 2 - 1;

impl EffectivePolicy {
    /// The denial of a request that is refused.
    pub fn denied_request(&self, request: &Request, refused: &Refused) -> Denial {
        let Refused { rule, why, .. } = refused;
        let (origin, remedy) = self.source_of(rule);
        let by = PolicyRule {
            name: rule.clone(),
            at: origin.map(Origin::to_string),
        };
        let (kind, target) = attempt(request);
        let remedy = match (rule.as_str(), kind) {
            // A path that is granted for a while is granted to commands alone.
            (OUTSIDE, AttemptKind::Read) => self.remedy_by_grant(Path::new(&target), None),
            (rule, AttemptKind::Read) if rule.starts_with("protect:") => {
                self.remedy_to_reveal(Path::new(&target)).unwrap_or(remedy)
            }
            (rule, AttemptKind::Write) if rule.starts_with("protect:") => {
                self.remedy_to_open(&target).unwrap_or(remedy)
            }
            (network::LEASE_RULE, _) => network::remedy_to_lease(
                request,
                Leasing::offered_if(self.leases || self.path_leases.asked),
            ),
            _ => remedy,
        };
        Denial::new(kind, target, Barrier::Rule(by), why, remedy)
    }

    /// The line of the rule with this name, as a [`Refused`] has it, and what would open what it closes.
    fn source_of(&self, rule: &str) -> (Option<&Origin>, Remedy) {
        let protected = rule.strip_prefix("protect:");
        if let Some(name) =
            protected.and_then(|name| self.protected.iter().find(|own| own.pattern == name))
        {
            return (Some(&name.origin), remedy_of_name(name));
        }
        if let Some(own) = self.rules.iter().find(|own| own.name() == rule) {
            return (Some(&own.origin), remedy_of(&own.origin));
        }
        let profile = || Remedy::Option(format!("another --profile than `{}`", self.profile));
        match rule {
            "project:read" => (Some(&self.zones_from[0]), profile()),
            "central:read" => (Some(&self.zones_from[1]), profile()),
            scope if scope.starts_with("scope:") => (None, Remedy::by_scope()),
            _ => (None, Remedy::Nothing),
        }
    }

    /// The denial of more than a limit gives, by its key.
    pub fn denied_use(&self, limit: Limit) -> Denial {
        let Limits {
            output,
            cpu_s,
            memory,
            file_size,
            processes,
            written,
            memory_share,
            disk_share,
            ..
        } = &self.limits;
        let bytes = |limit: &Option<u64>| limit.map_or_else(|| "its limit".to_owned(), size);
        let number =
            |limit: &Option<u64>| limit.map_or_else(|| "its limit".to_owned(), |n| n.to_string());
        let (target, why, example) = match limit {
            Limit::Output => (
                "output",
                format!("The command printed more than {}.", bytes(output)),
                SIZE,
            ),
            Limit::Cpu => {
                let why = format!("A process used up {} s of processor time.", number(cpu_s));
                ("processor time", why, SECONDS)
            }
            Limit::Memory => {
                let why = format!(
                    "The command's processes held more than {} together.",
                    bytes(memory)
                );
                ("memory", why, SIZE)
            }
            Limit::FileSize => (
                "file size",
                format!("A file grew to more than {}.", bytes(file_size)),
                SIZE,
            ),
            Limit::Processes => {
                let why = format!(
                    "The command had more than {} processes and threads.",
                    number(processes)
                );
                ("processes", why, COUNT)
            }
            Limit::Written => {
                let why = format!(
                    "The command's processes wrote more than {} together.",
                    bytes(written)
                );
                ("written bytes", why, SIZE)
            }
            Limit::MemoryShare => {
                let share = number(memory_share);
                (
                    "memory",
                    format!("The command held more than {share} percent of the machine's memory."),
                    PERCENT,
                )
            }
            Limit::DiskShare => {
                let share = number(disk_share);
                let why = format!(
                    "More than {share} percent of the space that was free on a root's disk was used up."
                );
                ("disk space", why, PERCENT)
            }
        };
        self.denied_by_key(target, limit.name(), why, example)
    }

    /// The denial of more wall time than `seconds`.
    pub fn denied_time(&self, seconds: u32) -> Denial {
        self.denied_time_below(seconds, self.timeout(Some(limit::TIMEOUT_S)))
    }

    /// The denial to a command that a person has started.
    pub fn denied_attended_time(&self, seconds: u32) -> Denial {
        self.denied_time_below(seconds, self.attended_timeout(Some(limit::TIMEOUT_S)))
    }

    fn denied_time_below(&self, seconds: u32, max: Option<u32>) -> Denial {
        let why = format!("The command exceeded its time limit of {seconds} s.");
        let max = max.unwrap_or(limit::TIMEOUT_S);
        if seconds < max {
            let by = Barrier::Limit("timeout_s".into());
            let remedy = Remedy::Option(format!("a `timeout` (--timeout) of up to {max} s"));
            return Denial::new(AttemptKind::Use, "time", by, why, remedy);
        }
        if self.scope_timeout("bash") == Some(seconds) {
            let remedy = Remedy::Option("a scope (--scope) that permits more".into());
            let by = PolicyRule {
                name: "scope:bash".into(),
                at: None,
            };
            return Denial::new(AttemptKind::Use, "time", Barrier::Rule(by), why, remedy);
        }
        self.denied_by_key("time", "timeout_max_s", why, SECONDS)
    }

    /// The denial of system calls that only programs for another kind of machine make.
    pub fn denied_foreign_calls(&self) -> Denial {
        let why = "A process was killed by SIGSYS, as for a system call of 32-bit programs or of another foreign interface. A cell \
                   runs programs for 64 bits only: build or install this one for them.";
        let by = Barrier::Layer(Layer::Seccomp, None);
        let target = "calls of a 32-bit program";
        Denial::new(AttemptKind::SystemCall, target, by, why, Remedy::Nothing)
    }

    /// The denial of more time without output than was asked for.
    pub fn denied_idle_time(&self) -> Denial {
        let why = "The command printed nothing for the requested idle time.";
        let remedy = Remedy::Option("a longer `idle_timeout` (--idle-timeout)".into());
        Denial::new(
            AttemptKind::Use,
            "time without output",
            Barrier::Limit("idle_timeout".into()),
            why,
            remedy,
        )
    }

    /// The denial of more than the limit `key` gives, with an `example` of a value that gives more.
    pub fn denied_by_key(&self, target: &str, key: &str, why: String, example: &str) -> Denial {
        let remedy = self.remedy_by_keys(&format!("limits = {{ {key} = {example} }}"), key, None);
        Denial::new(
            AttemptKind::Use,
            target,
            Barrier::Limit(key.into()),
            why,
            remedy,
        )
    }

    /// The remedy that lets commands read a path of the host.
    pub fn remedy_to_read(&self, path: &Path) -> Remedy {
        let lease = self.remedy_by_lease(Access::Read, path, "--read");
        self.remedy_by_grant(path, lease)
    }

    /// The remedy that lets commands and file tools change a file at this path of a root, if a profile may open its name.
    pub fn remedy_to_open(&self, path: &str) -> Option<Remedy> {
        let path = path.strip_prefix("central:").unwrap_or(path);
        let name = self.name_to_open(path)?;
        let allow = allow_command(path).map(|line| format!("or {line}"));
        Some(self.remedy_by_keys(&format!("open = ['{name}']"), &name, allow))
    }

    /// The name that a profile opens so that the file at this path can be changed, if a profile may open what protects it.
    pub fn name_to_open(&self, path: &str) -> Option<String> {
        if !self.matcher.opens(path.as_bytes()) {
            return None;
        }
        let rule = self.matcher.protection(path.as_bytes())?;
        let names: Vec<&str> = path.split('/').collect();
        let (end, _) = *self.matcher.closings(path.as_bytes()).first()?;
        let pattern = rule.pattern.trim_start_matches('/');
        let begin = end.checked_sub(pattern.split('/').count())?;
        let name = names.get(begin..end)?.join("/");
        (!name.contains(['\'', '\n', '\r'])).then_some(name)
    }

    /// The name of the file at `path` if it is one of secrets in dotenv form, for which profiles have a mode.
    pub fn masked_name<'p>(&self, path: &'p str) -> Option<&'p str> {
        let name = path.rsplit('/').next()?;
        let closes = |rule: &ProtectedName| rule.protection == Protection::All;
        let closed = self.matcher.protection(name.as_bytes()).is_some_and(closes);
        (closed && is_dotenv_name(name.as_bytes())).then_some(name)
    }

    /// The remedy that shows a file of secrets in dotenv form to commands, and their view of it without that. File tools never read one.
    pub fn remedy_to_reveal(&self, path: &Path) -> Option<Remedy> {
        let name = path.file_name()?.as_encoded_bytes();
        if !is_dotenv_name(name) {
            return None;
        }
        let seen = match self.secrets.of(name) {
            SecretMode::Hide => "commands do not see it either",
            SecretMode::Mask => {
                "commands that read it see its keys, with placeholders for the values, if its lines are NAME=VALUE, and nothing of it otherwise"
            }
            SecretMode::Show => "commands can read it",
        };
        let shown = match self.secrets.max(name) {
            SecretMode::Hide | SecretMode::Mask => "",
            SecretMode::Show => {
                "; the user can show them the values with --reveal PATH, or with `secrets` in a profile"
            }
        };
        let allow = path.to_str().filter(|_| !shown.is_empty());
        let allow = allow.and_then(allow_command);
        let allow = allow.map_or_else(String::new, |line| format!(" ({line})"));
        Some(Remedy::Advice(format!("{seen}{shown}{allow}")))
    }

    /// The line to write to see a path of the host, read-only, in commands and file tools.
    fn remedy_by_grant(&self, path: &Path, or: Option<String>) -> Remedy {
        // By its own name a secret is one anywhere.
        let name = path
            .strip_prefix("/")
            .unwrap_or(path)
            .as_os_str()
            .as_encoded_bytes();
        if self
            .matcher
            .protection(name)
            .is_some_and(|name| name.protection == Protection::All)
        {
            return Remedy::Advice("no option opens it, because it contains secrets".into());
        }
        let text = path.to_string_lossy();
        let path = toml_string(&text);
        self.remedy_by_keys(&format!("grants = [{{ path = {path} }}]"), &text, or)
    }

    /// The remedy that lets commands write at a path of the host that is no session's.
    pub fn remedy_to_write(&self, path: &Path) -> Remedy {
        let lease = path
            .parent()
            .and_then(|parent| self.remedy_by_lease(Access::Write, parent, "--write"));
        lease.map_or(Remedy::Nothing, Remedy::Option)
    }

    /// The lease for commands to read `path`, or to write there, where calls of the session may want one.
    pub fn lease_for(&self, access: Access, path: &Path) -> Option<Leased> {
        let wanted = match access {
            Access::Read => path,
            Access::Write => path.parent()?,
        };
        let text = self
            .leasable(access, wanted)
            .filter(|_| self.path_leases.asked)?
            .to_owned();
        Some(match access {
            Access::Read => Leased::Read(text),
            Access::Write => Leased::Write(text),
        })
    }

    fn leasable<'p>(&self, access: Access, path: &'p Path) -> Option<&'p str> {
        let path = path.to_str()?;
        self.may_lease(access, path, &self.own_lease_names().ok()?)
            .ok()
            .map(|_| path)
    }

    /// How `access` to a path is granted for a while, if it may be.
    fn remedy_by_lease(&self, access: Access, path: &Path, option: &str) -> Option<String> {
        let path = self.leasable(access, path)?;
        let lease = if self.path_leases.asked {
            format!(", or {}", network::LEASE)
        } else {
            String::new()
        };
        Some(format!(
            "{option} {} for this session{lease}",
            shell_word(path)
        ))
    }

    /// The lines for a policy that give a session `keys` beside those of its profile, in a form that can be appended to any policy, after
    /// tables too. A profile is defined once: what a shipped one lacks, one of the user's own has, which extends it. It is called by
    /// what it extends and is `about`, so that the lines of several denials can be appended in turn. `or` is another way; as a comment,
    /// with the option that selects the profile, it leaves the lines what they are.
    pub fn remedy_by_keys(&self, keys: &str, about: &str, or: Option<String>) -> Remedy {
        let base = &self.profile;
        let name = own_profile(base, about);
        let is_one_row = |text: &String| !text.chars().any(char::is_control);
        let more = or
            .filter(is_one_row)
            .map_or_else(String::new, |or| format!("; {or}"));
        Remedy::Policy(format!(
            "[profile.{name}] # then --profile {name}{more}\nextends = '{base}'\n{keys}"
        ))
    }
}

/// The name of a profile that extends `base` for what is `about`: a bare key of TOML, and another one for each of both.
fn own_profile(base: &str, about: &str) -> String {
    format!("{}-{}", half_of_name(base), half_of_name(about))
}

/// `text` as a part of a bare key. If it does not fit or has letters that a key has not, a digest of it stands at the end.
fn half_of_name(text: &str) -> String {
    const DIGEST: usize = 8;
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let plain: String = text
        .chars()
        .map(|c| if is_plain(&c) { c } else { '-' })
        .collect();
    let plain = plain.trim_matches('-');
    if text.is_ascii() && plain.len() <= NAME_HALF {
        return plain.to_owned();
    }
    let digest = Digest::of(text.as_bytes()).to_string();
    // The end of a path says more than its beginning.
    let end = plain.len().saturating_sub(NAME_HALF - DIGEST - 1);
    format!("{}-{}", &plain[end..], &digest[..DIGEST])
}

/// The command that opens the file at `path` to a profile for good, by its name.
fn allow_command(path: &str) -> Option<String> {
    let is_path = path.starts_with('.') || path.contains('/');
    let dot = if is_path { "" } else { "./" };
    let is_plain = !path.starts_with("central:") && !path.chars().any(char::is_control);
    is_plain.then(|| {
        format!(
            "`lazaret policy allow {}`",
            shell_word(&format!("{dot}{path}"))
        )
    })
}

const SIZE: &str = "'4 GiB'";
const SECONDS: &str = "3600";
const COUNT: &str = "1024";
const PERCENT: &str = "95";

/// The rule that protects a name, with its line.
pub fn rule_of_name(name: &ProtectedName) -> PolicyRule {
    PolicyRule {
        name: format!("protect:{}", name.pattern),
        at: Some(name.origin.to_string()),
    }
}

/// The remedy that opens a protected name.
pub fn remedy_of_name(name: &ProtectedName) -> Remedy {
    match name.new {
        WhenNew::Harmless => Remedy::Advice(HARMLESS.into()),
        WhenNew::Open | WhenNew::Closed => match remedy_of(&name.origin) {
            Remedy::Nothing if name.protection == Protection::Write => {
                Remedy::Advice(OUTSIDE_THE_SANDBOX.into())
            }
            remedy => remedy,
        },
    }
}

/// A name that a file protects or denies stays closed until the file's owner changes it.
fn remedy_of(origin: &Origin) -> Remedy {
    match SourceKind::of(origin) {
        SourceKind::Shipped => Remedy::Nothing,
        SourceKind::System => Remedy::Advice(format!("your administrator can change {origin}")),
        SourceKind::User => Remedy::Advice(format!("you can change {origin}")),
    }
}

/// The kind of access of a request, and its object.
fn attempt(request: &Request) -> (AttemptKind, String) {
    let path = |path: &broker_protocol::ZonePath| match path.zone() {
        Zone::Project if path.relative().is_empty() => "the project".to_owned(),
        Zone::Project | Zone::Central | Zone::Granted => path.to_string(),
    };
    match request {
        Request::FileRead(read) => (AttemptKind::Read, path(&read.path)),
        Request::FileBytes(bytes) => (AttemptKind::Read, path(&bytes.path)),
        Request::FileList(list) => (AttemptKind::Read, path(&list.path)),
        Request::Glob(glob) => (AttemptKind::Read, path(&glob.path)),
        Request::Grep(grep) => (AttemptKind::Read, path(&grep.path)),
        Request::FileWrite(write) => (AttemptKind::Write, path(&write.path)),
        Request::FileEdit(edit) => (AttemptKind::Write, path(&edit.path)),
        Request::Undo(undo) => (AttemptKind::Write, path(&undo.path)),
        Request::Bash(_)
        | Request::Service(_)
        | Request::State(_)
        | Request::Effect(_)
        | Request::BackgroundList
        | Request::BackgroundLog(_)
        | Request::BackgroundKill(_)
        | Request::History(_) => (AttemptKind::Call, request.tool().to_owned()),
    }
}

/// A number of bytes as a policy writes it.
fn size(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let whole = units
        .into_iter()
        .find(|(_, shift)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    whole.map_or_else(
        || format!("{bytes} bytes"),
        |(unit, shift)| format!("{} {unit}", bytes >> shift),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::PolicySource;
    use crate::{Host, Policies, Verdict, decide};
    use broker_protocol::{FileRead, FileWrite, Scope, Trust, ZonePath};

    const OWN: &str = "version = 1
[profile.tight.limits]
memory = '256 MiB'
timeout_max_s = 90
[[rule]]
tool = 'file_read'
action = 'deny'
when = [{ param = 'path', equals = 'x' }]
why = 'Not this one.'
[[protect]]
names = ['*.license']
protection = 'all'
why = 'Licences stay.'
";

    fn policy(profile: &str, scope: Option<&Scope>) -> EffectivePolicy {
        let policy = of_text(OWN.to_owned(), profile);
        policy.narrow(scope, Trust::Autonomous).unwrap()
    }

    fn of_text(text: String, profile: &str) -> EffectivePolicy {
        let source = PolicySource {
            name: "/u/policy.toml".into(),
            kind: SourceKind::User,
            text,
        };
        let host = Host {
            home: "/home/u".into(),
            ..Host::default()
        };
        let policies = Policies::load(vec![source]).unwrap();
        policies.resolve(profile, &host).unwrap()
    }

    fn read(path: &str) -> Request {
        let path = ZonePath::new(Zone::Project, path).unwrap();
        Request::FileRead(FileRead {
            path,
            offset: None,
            limit: None,
        })
    }

    fn denied(policy: &EffectivePolicy, request: &Request) -> Denial {
        match decide(policy, request) {
            Verdict::Deny(refused) => policy.denied_request(request, &refused),
            verdict => panic!("{verdict:?}"),
        }
    }

    #[test]
    fn a_refusal_names_its_rule_its_line_and_what_would_open_it() {
        let policy = policy("tight", None);
        let by = |denial: &Denial| match &denial.by {
            Barrier::Rule(rule) => (rule.name.clone(), rule.at.clone().unwrap_or_default()),
            by => panic!("{by:?}"),
        };
        let rule = denied(&policy, &read("x"));
        assert_eq!(by(&rule), ("rule:user:5".into(), "/u/policy.toml:5".into()));
        assert_eq!(
            rule.remedy,
            Remedy::Advice("you can change /u/policy.toml:5".into())
        );
        assert_eq!(
            (rule.what.to_string().as_str(), rule.why.as_str()),
            ("read x", "Not this one.")
        );
        let own = denied(&policy, &read("a.license"));
        assert_eq!(
            by(&own),
            ("protect:*.license".into(), "/u/policy.toml:11".into())
        );
        assert!(matches!(own.remedy, Remedy::Advice(_)));
        let shipped = denied(&policy, &read("sub/.env"));
        assert!(by(&shipped).1.starts_with("shipped "), "{shipped}");
        let Remedy::Advice(advice) = shipped.remedy else {
            panic!("{:?}", shipped.remedy)
        };
        assert!(
            advice.contains("placeholders") && advice.contains("--reveal"),
            "{advice}"
        );
    }

    #[test]
    fn only_commands_are_offered_a_path_for_a_while() {
        let policy = policy("tight", None);
        let offers = |remedy: &Remedy| match remedy {
            Remedy::Policy(text) => {
                assert!(
                    text.contains("grants = [{ path = '/srv/data/d.txt' }]"),
                    "{text}"
                );
                text.contains("--read /srv/data/d.txt")
            }
            other => panic!("{other:?}"),
        };
        let path = ZonePath::new(Zone::Granted, "srv/data/d.txt").unwrap();
        let read = Request::FileRead(FileRead {
            path,
            offset: None,
            limit: None,
        });
        assert!(!offers(&denied(&policy, &read).remedy));
        assert!(
            offers(&policy.remedy_to_read(Path::new("/srv/data/d.txt"))),
            "the control"
        );
    }

    #[test]
    fn a_scope_and_a_zone_that_is_only_read_are_named() {
        let write = Request::FileWrite(FileWrite {
            path: ZonePath::new(Zone::Project, "a").unwrap(),
            content: vec![],
            overwrite: true,
            expected_sha256: None,
        });
        let scope = denied(&policy("tight", Some(&Scope::default())), &write);
        assert!(
            scope
                .to_string()
                .contains("[rule scope:file_write; with a scope"),
            "{scope}"
        );
        let zone = denied(&policy("read-only", None), &write);
        assert!(
            zone.to_string()
                .contains("another --profile than `read-only`"),
            "{zone}"
        );
        assert_eq!(policy("read-only", None).project, Access::Read);
    }

    #[test]
    fn each_limit_names_its_key_and_its_value() {
        let policy = policy("tight", None);
        let limits = [
            Limit::Output,
            Limit::Cpu,
            Limit::Memory,
            Limit::FileSize,
            Limit::Processes,
            Limit::Written,
            Limit::MemoryShare,
            Limit::DiskShare,
        ];
        for limit in limits {
            let denial = policy.denied_use(limit);
            assert_eq!(denial.by, Barrier::Limit(limit.name().into()));
            assert!(
                matches!(&denial.remedy, Remedy::Policy(line) if line.contains(limit.name())),
                "{denial}"
            );
        }
        let memory = policy.denied_use(Limit::Memory).to_string();
        assert!(
            memory.contains("more than 256 MiB together") && memory.contains("extends = 'tight'"),
            "{memory}"
        );
        let short = policy.denied_time(60);
        assert!(
            matches!(&short.remedy, Remedy::Option(text) if text.contains("up to 90 s")),
            "{short}"
        );
        let long = policy.denied_time(90);
        assert_eq!(long.by, Barrier::Limit("timeout_max_s".into()));
    }

    /// The remedies of some denials under a profile of these policies.
    fn remedies(text: &str, profile: &str) -> Vec<String> {
        let policy = of_text(text.to_owned(), profile);
        let mut remedies = vec![
            policy.denied_use(Limit::Memory).remedy,
            policy.denied_time(limit::TIMEOUT_S).remedy,
            policy.remedy_to_read(Path::new("/srv/it's")),
            policy.remedy_to_read(Path::new("/srv/two\nrows")),
            policy.remedy_to_read(Path::new(&format!("/srv/{}/été", "long/".repeat(30)))),
            policy.remedy_by_keys("sockets = ['/run/x']", "/run/x", None),
        ];
        remedies.extend(policy.remedy_to_open(".vscode/settings.json"));
        let text = |remedy: Remedy| match remedy {
            // As it is shown: after the rest of the denial, with indented rows.
            Remedy::Policy(_) => {
                let shown = remedy.to_string().replace('\n', "\n  ");
                let shown = shown.strip_prefix("in your policy:\n");
                shown.unwrap().to_owned()
            }
            other => panic!("{other:?}"),
        };
        remedies.into_iter().map(text).collect()
    }

    /// The profile that the lines of a remedy define.
    fn defined(lines: &str) -> &str {
        let name = lines.trim_start().strip_prefix("[profile.").unwrap();
        name.split_once(']').unwrap().0
    }

    #[test]
    fn each_remedy_can_be_appended_to_a_policy_with_tables() {
        let dotted = format!("{OWN}\n[profile.'a.b']\n[profile.{}]\n", "n".repeat(64));
        for profile in ["tight", "a.b", &"n".repeat(64)] {
            for lines in remedies(&dotted, profile) {
                let text = format!("{dotted}\n[profile.other.limits]\n{lines}\n");
                let own = defined(&lines);
                assert_eq!(of_text(text, own).profile, own, "{lines}");
            }
        }
    }

    #[test]
    fn remedies_can_be_appended_in_turn() {
        let all = remedies(OWN, "tight");
        let text = format!("{OWN}\n{}\n", all.join("\n"));
        for lines in &all {
            assert_eq!(
                of_text(text.clone(), defined(lines)).profile,
                defined(lines)
            );
        }
        // Each run uses the profile of the last remedy, and is denied something else, and at last the same again.
        let (mut text, mut profile) = (OWN.to_owned(), "tight".to_owned());
        for one in [0, 2, 5, 6, 0, 0] {
            let lines = remedies(&text, &profile).swap_remove(one);
            text = format!("{text}\n{lines}\n");
            profile = defined(&lines).to_owned();
            assert_eq!(of_text(text.clone(), &profile).profile, profile, "{lines}");
        }
    }
}
