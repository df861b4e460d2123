//! Leases of paths: which paths of the machine may be granted to commands for a while, beyond the grants of a profile, and what stays
//! closed in them.
//!
//! Decided here is what a path's text and the policy say. What lies there is looked at by the broker, which opens it.

use crate::effective::EffectivePolicy;
use crate::error::PolicyError;
use policies_guard::Access;
use policies_guard::Origin;
use policies_guard::names::{Matcher, ProtectedName, Protection, WhenNew};
use std::path::{Component, Path, PathBuf};
use thiserror::Error;

/// Directories of the system, which are neither roots of a session nor granted for a while, nor what holds or lies in them.
const SYSTEM: [&str; 13] = [
    "/usr",
    "/etc",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/boot",
    "/dev",
    "/proc",
    "/sys",
    "/run/user",
    "/var/lib",
    "/var/run",
];

/// The directory of the system that `path` is, lies in or holds.
pub fn system_at(path: &Path) -> Option<&'static str> {
    SYSTEM
        .into_iter()
        .find(|system| path.starts_with(system) || Path::new(system).starts_with(path))
}

/// Why `path` is not opened if it is, lies in or holds a directory of the system.
pub fn fault_of_system(path: &Path) -> Option<String> {
    let system = system_at(path)?;
    Some(match Path::new(system).starts_with(path) {
        true => format!("it would open {system} to commands"),
        false => {
            format!(
                "it lies in {system}, of which only the `grants` of a profile show parts to commands"
            )
        }
    })
}

/// Why a path cannot be granted, whoever is asked.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum LeaseError {
    #[error(
        "a granted path must be absolute, without `.`, `..`, doubled slashes or a slash at its end"
    )]
    Form,
    #[error("it is the whole file system; request a directory in it")]
    Root,
    #[error(
        "the path contains invisible or control characters, so nobody could see what is granted"
    )]
    Unprintable,
    #[error("commands of this session see only an image, or only the directories of the scope")]
    Closed,
    #[error("the policy's `[leases]` do not allow it")]
    Bounded,
    #[error("{0}")]
    System(String),
    #[error("{name} is protected ({why})")]
    Protected { name: String, why: String },
}

/// Further names that stay closed in leases: patterns, each with its reason (`leases.toml`).
const NAMES: &[(&str, Protection, &str)] = include!(concat!(env!("OUT_DIR"), "/lease_names.rs"));

/// Whether a path of [`NAMES`] may begin with this name, in any case.
fn begins_a_name(name: &[u8]) -> bool {
    name.starts_with(b".") || name.eq_ignore_ascii_case(b"snap")
}

fn names() -> impl Iterator<Item = ProtectedName> {
    NAMES
        .iter()
        .map(|(pattern, protection, why)| ProtectedName {
            pattern: (*pattern).to_owned(),
            except: Vec::new(),
            protection: *protection,
            new: WhenNew::Closed,
            opens: false,
            why: (*why).to_owned(),
            origin: Origin::default(),
        })
}

impl EffectivePolicy {
    /// The names of leases alone: with the session's own enough to judge a path, and compiled at little cost.
    ///
    /// # Errors
    /// See [`Self::lease_names`].
    pub(crate) fn own_lease_names(&self) -> Result<Matcher, PolicyError> {
        let hidden = self.hidden.iter().cloned();
        Ok(Matcher::new(&names().chain(hidden).collect::<Vec<_>>())?)
    }

    /// The name of leases alone that closes a path, or a directory above it, to reading.
    ///
    /// # Errors
    /// See [`Self::lease_names`].
    pub fn keys_at(&self, path: &Path) -> Result<Option<ProtectedName>, PolicyError> {
        let bytes = path.as_os_str().as_encoded_bytes();
        // Most paths have none of these; a session that opens would wait for the names to be compiled.
        if !bytes.split(|byte| *byte == b'/').any(begins_a_name) {
            return Ok(None);
        }
        let names = self.own_lease_names()?;
        let name = names.protection(bytes.strip_prefix(b"/").unwrap_or(bytes));
        Ok(name
            .filter(|name| name.protection == Protection::All)
            .cloned())
    }

    /// The names that stay closed in leases: the policy's, in the same forms of transit, and those of leases alone.
    ///
    /// # Errors
    /// A pattern that could be compiled for the session cannot be compiled again.
    pub fn lease_names(&self) -> Result<Matcher, PolicyError> {
        let hidden = self.hidden.iter().cloned();
        Ok(self.matcher.with(names().chain(hidden))?)
    }

    /// Whether commands may be granted `access` to the path of this text; `names` are those of [`Self::lease_names`] or
    /// [`Self::own_lease_names`].
    ///
    /// # Errors
    /// They may not.
    pub fn may_lease(
        &self,
        access: Access,
        text: &str,
        names: &Matcher,
    ) -> Result<PathBuf, LeaseError> {
        let path = self.leased_text(text)?;
        if let Some(fault) = fault_of_system(&path) {
            return Err(LeaseError::System(fault));
        }
        let bytes = &text.as_bytes()[1..];
        let protected = [names, &self.matcher]
            .into_iter()
            .filter_map(|names| names.protection(bytes));
        let protected = protected.max_by_key(|name| name.protection);
        let closed =
            protected.filter(|name| access == Access::Write || name.protection == Protection::All);
        if let Some(name) = closed {
            return Err(LeaseError::Protected {
                name: name.pattern.clone(),
                why: name.why.clone(),
            });
        }
        if self.path_leases.allow(access, &path) {
            Ok(path)
        } else {
            Err(LeaseError::Bounded)
        }
    }

    /// Whether commands may be granted `access` to the file of a zone that this text names, if what protects it allows that.
    ///
    /// # Errors
    /// They may not.
    pub fn may_lease_in_zone(&self, access: Access, text: &str) -> Result<PathBuf, LeaseError> {
        let path = self.leased_text(text)?;
        if self.path_leases.allow(access, &path) {
            Ok(path)
        } else {
            Err(LeaseError::Bounded)
        }
    }

    /// The path of this text, in a session whose cells can be given paths.
    fn leased_text(&self, text: &str) -> Result<PathBuf, LeaseError> {
        let path = plain(text)?;
        if self.image.is_some() || self.paths.directories("bash").is_some() {
            return Err(LeaseError::Closed);
        }
        Ok(path)
    }
}

/// The path that a text spells as the kernel would, with nothing that looks otherwise than it is.
fn plain(text: &str) -> Result<PathBuf, LeaseError> {
    let is_printed = |c: char| "\"'\\".contains(c) || c.escape_debug().count() == 1;
    if !text.chars().all(is_printed) {
        return Err(LeaseError::Unprintable);
    }
    if text == "/" {
        return Err(LeaseError::Root);
    }
    let path: PathBuf = Path::new(text).components().collect();
    let named = path
        .components()
        .skip(1)
        .all(|part| matches!(part, Component::Normal(_)));
    // What `components` leaves out is shown, and would mean something else to another reader.
    if path.is_absolute() && named && path.as_os_str() == text {
        Ok(path)
    } else {
        Err(LeaseError::Form)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Host, Policies, PolicySource, SourceKind};
    use broker_protocol::NetworkRequest;

    #[test]
    fn keys_are_found_by_their_path() {
        for (pattern, ..) in NAMES {
            let first = pattern.split('/').next().unwrap();
            assert!(begins_a_name(first.as_bytes()), "{pattern}");
        }
        let policy = policy("");
        let keys = |path: &str| {
            policy
                .keys_at(Path::new(path))
                .unwrap()
                .map(|name| name.pattern)
        };
        assert_eq!(keys("/home/u/.ssh").as_deref(), Some(".ssh"));
        assert_eq!(
            keys("/home/u/.mozilla/firefox").as_deref(),
            Some(".mozilla")
        );
        assert_eq!(
            keys("/home/u/SNAP/firefox"),
            Some("snap/{brave,chromium,firefox,opera,thunderbird}".into())
        );
        assert_eq!(
            [keys("/home/u/.config/nvim"), keys("/home/u/p"), keys("/")],
            [None, None, None]
        );
    }

    fn policy(text: &str) -> EffectivePolicy {
        let source = PolicySource {
            name: "p".into(),
            kind: SourceKind::User,
            text: format!("version = 1\n{text}\n"),
        };
        let host = Host {
            home: "/home/u".into(),
            ..Host::default()
        };
        Policies::load(vec![source])
            .unwrap()
            .resolve("default", &host)
            .unwrap()
    }

    fn leased(policy: &EffectivePolicy, access: Access, text: &str) -> Result<PathBuf, LeaseError> {
        policy.may_lease(access, text, &policy.lease_names().unwrap())
    }

    #[test]
    fn only_plain_absolute_paths_are_accepted() {
        let policy = policy("");
        for text in [
            "/srv/data",
            "/home/u/it's \"x\"",
            "/home/ü/\u{7530}",
            "/a\\b",
        ] {
            assert_eq!(
                leased(&policy, Access::Read, text),
                Ok(text.into()),
                "{text}"
            );
        }
        assert_eq!(leased(&policy, Access::Read, "/"), Err(LeaseError::Root));
        for text in [
            "", "srv", "~/x", "/a/../b", "/a/.", "/a/./b", "/a//b", "/a/", "//a", "./a",
        ] {
            assert_eq!(
                leased(&policy, Access::Read, text),
                Err(LeaseError::Form),
                "{text:?}"
            );
        }
        for text in [
            "/a\0b",
            "/a\nb",
            "/a\rb",
            "/a\u{1b}[2Jb",
            "/a\u{7f}",
            "/a\u{9b}",
            "/a\u{202e}txt",
            "/a\u{200b}",
            "/a\u{2028}",
            "/a\u{a0}b",
            "/a\u{e0041}",
            "/a\u{feff}",
        ] {
            assert_eq!(
                leased(&policy, Access::Read, text),
                Err(LeaseError::Unprintable),
                "{text:?}"
            );
        }
    }

    #[test]
    fn keys_are_closed_and_host_settings_are_readable() {
        let policy = policy("");
        let is = |access, text: &str| leased(&policy, access, text).is_ok();
        for text in [
            "/home/u/.ssh",
            "/home/u/.ssh/config",
            "/home/v/.gnupg/x",
            "/home/u/.aws",
            "/home/u/.AWS/sso",
            "/home/u/.config/gcloud",
            "/srv/.env",
            "/srv/id_rsa",
            "/home/u/.netrc",
            "/home/u/.local/share/lazaret/projects/x",
            "/home/u/.config/lazaret/policy.toml",
            "/home/u/.config/git/credentials",
            "/home/u/.codex/auth.json",
            "/home/u/.gemini/oauth_creds.json",
            "/home/u/.config/containers/auth.json",
            "/home/u/.cache/huggingface/token",
            "/home/u/.config/google-chrome-beta/Default",
            "/home/u/.var/app/org.mozilla.firefox",
            "/home/u/snap/firefox/common",
            "/home/u/.bash_history",
            "/home/u/.psql_history",
        ] {
            assert!(
                !is(Access::Read, text) && !is(Access::Write, text),
                "{text}"
            );
        }
        for text in [
            "/home/u/.local/bin",
            "/home/u/.emacs.d",
            "/home/u/.config/nvim/lua",
            "/home/u/.vim",
            "/home/u/.cargo/bin",
        ] {
            assert!(is(Access::Read, text) && !is(Access::Write, text), "{text}");
        }
        assert!(is(Access::Write, "/home/u/bin") && is(Access::Write, "/home/u/.cargo/registry"));
        assert!(
            is(Access::Read, "/srv/app/.git/hooks") && !is(Access::Write, "/srv/app/.git/hooks")
        );
        assert!(is(Access::Read, "/home/u/gcloud") && is(Access::Write, "/home/u/gcloud"));
    }

    #[test]
    fn names_of_a_lease_are_in_transit_as_the_policys_are() {
        let policy = policy("");
        let names = policy.lease_names().unwrap();
        for path in [&b"srv/app/.git/config.lock"[..], b"home/u/.emacs~"] {
            assert!(!names.transit(path).is_empty(), "{}", path.escape_ascii());
        }
        assert!(policy.matcher.transit(b"home/u/.emacs~").is_empty());
    }

    #[test]
    fn every_file_bounds_them() {
        let bounded = policy("leases = { read = ['~/src', '/srv'], write = [] }");
        let is = |access, text: &str| leased(&bounded, access, text).is_ok();
        assert!(is(Access::Read, "/home/u/src") && is(Access::Read, "/srv/x"));
        assert!(!is(Access::Read, "/home/u/srcs") && !is(Access::Write, "/srv/x"));
        assert!(leased(&policy("leases = { read = [] }"), Access::Write, "/srv/x").is_ok());
        let file = |kind, text: &str| PolicySource {
            name: "p".into(),
            kind,
            text: format!("version = 1\n{text}"),
        };
        let files = vec![
            file(SourceKind::System, "leases = { read = ['/srv'] }"),
            file(SourceKind::User, "leases = { read = ['/home'] }"),
        ];
        let both = Policies::load(files).unwrap().resolve(
            "default",
            &Host {
                home: "/h".into(),
                ..Host::default()
            },
        );
        assert_eq!(
            leased(&both.unwrap(), Access::Read, "/srv/x"),
            Err(LeaseError::Bounded)
        );
    }

    #[test]
    fn leases_need_somebody_who_answers() {
        let asked = |leases| {
            let wanted = NetworkRequest {
                leases,
                ..NetworkRequest::default()
            };
            policy("")
                .with_network(Some(&wanted))
                .unwrap()
                .path_leases
                .asked
        };
        assert!(asked(true) && !asked(false));
        assert!(!policy("").with_network(None).unwrap().path_leases.asked);
    }
}
