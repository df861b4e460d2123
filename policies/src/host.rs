//! Host paths as a policy writes them: absolute, or beginning with `~` or `${NAME:-default}`.
//!
//! Comes from a policy file; goes to grants and to the environment. The user's environment is believed only so far: no
//! variable makes a grant of the root or of the home directory (see [`Host::narrow`]).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Longest host path in a policy, in bytes.
pub const HOST_PATH_MAX: usize = 4095;

/// What a policy may ask of this machine: the executor's home directory and environment.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// The user's home directory, absolute.
    pub home: PathBuf,
    /// The environment; of each pair only those that a policy names are looked at.
    pub variables: BTreeMap<String, String>,
}

/// Why a host path is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HostPathError {
    /// It is relative, or a variable or the home directory made it so.
    #[error(
        "a host path begins with `/`, with `~` or with `${{NAME:-default}}`, and is absolute on this machine"
    )]
    Relative,
    /// It has a name that cannot be followed as text, or a NUL byte.
    #[error("a host path has no `..` and no NUL byte")]
    Names,
    /// It is longer than [`HOST_PATH_MAX`].
    #[error("a host path has at most {HOST_PATH_MAX} bytes")]
    TooLong,
    /// A variable at its beginning is not of the form `${NAME:-default}`.
    #[error(
        "a variable is written `${{NAME:-default}}`, its default a path without a variable, and nothing but `/` follows it"
    )]
    Variable,
    /// It would grant the root, the home directory or a directory that holds it.
    #[error("this is the root, the home directory, or holds the home directory: too much for one grant")]
    TooWide,
}

/// A host path, parsed but not yet expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPath {
    text: String,
    start: Start,
    /// What follows the start, with its slash; may be empty.
    rest: String,
}

/// What a path begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Start {
    Root,
    Home,
    Variable { name: String, default: Box<HostPath> },
}

impl TryFrom<String> for HostPath {
    type Error = HostPathError;

    fn try_from(text: String) -> Result<Self, HostPathError> {
        if text.len() > HOST_PATH_MAX {
            return Err(HostPathError::TooLong);
        }
        let (start, rest) = match text.strip_prefix("${") {
            Some(body) => parse_variable(body)?,
            None => parse_plain(&text)?,
        };
        let rest = rest.to_owned();
        check_names(&rest)?;
        Ok(Self { text, start, rest })
    }
}

fn parse_plain(text: &str) -> Result<(Start, &str), HostPathError> {
    match text.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => Ok((Start::Home, rest)),
        None if text.starts_with('/') => Ok((Start::Root, text)),
        _ => Err(HostPathError::Relative),
    }
}

fn parse_variable(body: &str) -> Result<(Start, &str), HostPathError> {
    let (inner, rest) = body.split_once('}').ok_or(HostPathError::Variable)?;
    let (name, default) = inner.split_once(":-").ok_or(HostPathError::Variable)?;
    let named = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if name.is_empty() || !named || default.contains('$') || !(rest.is_empty() || rest.starts_with('/')) {
        return Err(HostPathError::Variable);
    }
    let default = Box::new(HostPath::try_from(default.to_owned())?);
    Ok((Start::Variable { name: name.to_owned(), default }, rest))
}

fn check_names(text: &str) -> Result<(), HostPathError> {
    if text.contains('\0') || text.split('/').any(|name| name == "..") {
        return Err(HostPathError::Names);
    }
    Ok(())
}

impl HostPath {
    /// The path as the policy has it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The absolute path on `host`, without doubled slashes, `.` or a final slash. A variable that is unset or empty
    /// gives its default.
    pub fn expand(&self, host: &Host) -> Result<PathBuf, HostPathError> {
        let start = match &self.start {
            Start::Root => PathBuf::from("/"),
            Start::Home => host.home.clone(),
            Start::Variable { name, default } => {
                match host.variables.get(name).filter(|value| !value.is_empty()) {
                    Some(value) => PathBuf::from(value),
                    None => default.expand(host)?,
                }
            }
        };
        clean(&start, &self.rest)
    }
}

/// Joins `start` and `rest` as text; what is not absolute or climbs is refused.
fn clean(start: &Path, rest: &str) -> Result<PathBuf, HostPathError> {
    if !start.is_absolute() {
        return Err(HostPathError::Relative);
    }
    let mut path = start.as_os_str().to_owned();
    path.push(rest);
    check_names(&path.to_string_lossy())?;
    // `components` leaves out `.` and doubled slashes.
    Ok(Path::new(&path).components().collect())
}

impl Host {
    /// Whether a grant of `path` is narrow enough to be one: neither the root nor the home directory, nor above it.
    pub fn narrow(&self, path: &Path) -> Result<(), HostPathError> {
        if path.parent().is_none() || self.home.starts_with(path) {
            return Err(HostPathError::TooWide);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(variables: &[(&str, &str)]) -> Host {
        let variables = variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Host { home: "/home/u".into(), variables }
    }

    fn expand(text: &str, host: &Host) -> Result<PathBuf, HostPathError> {
        HostPath::try_from(text.to_owned())?.expand(host)
    }

    #[test]
    fn each_start_expands() {
        let bare = host(&[]);
        for (text, want) in [
            ("/usr", "/usr"),
            ("/usr//lib/./x/", "/usr/lib/x"),
            ("~", "/home/u"),
            ("~/.cargo/bin", "/home/u/.cargo/bin"),
            ("${CARGO_HOME:-~/.cargo}/bin", "/home/u/.cargo/bin"),
            ("${GOROOT:-/usr/local/go}", "/usr/local/go"),
        ] {
            assert_eq!(expand(text, &bare), Ok(want.into()), "{text}");
        }
        let set = host(&[("CARGO_HOME", "/data//cargo/"), ("EMPTY", "")]);
        assert_eq!(expand("${CARGO_HOME:-~/.cargo}/bin", &set), Ok("/data/cargo/bin".into()));
        assert_eq!(expand("${EMPTY:-~/x}", &set), Ok("/home/u/x".into()));
    }

    #[test]
    fn what_is_no_path_is_refused_when_it_is_read() {
        for (text, want) in [
            ("", HostPathError::Relative),
            ("usr", HostPathError::Relative),
            ("~other/x", HostPathError::Relative),
            ("/usr/../etc/shadow", HostPathError::Names),
            ("~/..", HostPathError::Names),
            ("/a\0b", HostPathError::Names),
            ("${A:-/x}/../y", HostPathError::Names),
            ("$HOME/x", HostPathError::Relative),
            ("${A}/x", HostPathError::Variable),
            ("${A:-/x", HostPathError::Variable),
            ("${:-/x}", HostPathError::Variable),
            ("${A B:-/x}", HostPathError::Variable),
            ("${A:-/x}y", HostPathError::Variable),
            ("${A:-${B:-/x}}", HostPathError::Variable),
            ("${A:-x}", HostPathError::Relative),
        ] {
            assert_eq!(HostPath::try_from(text.to_owned()), Err(want), "{text:?}");
        }
        assert!(HostPath::try_from("/".repeat(HOST_PATH_MAX)).is_ok());
        assert_eq!(HostPath::try_from("/".repeat(HOST_PATH_MAX + 1)), Err(HostPathError::TooLong));
    }

    #[test]
    fn a_variable_cannot_bring_in_what_a_policy_may_not_write() {
        let odd = host(&[("UP", "/data/../etc"), ("RELATIVE", "cargo")]);
        assert_eq!(expand("${UP:-/x}", &odd), Err(HostPathError::Names));
        assert_eq!(expand("${RELATIVE:-/x}", &odd), Err(HostPathError::Relative));
        let homeless = Host { home: "here".into(), ..Host::default() };
        assert_eq!(expand("~/x", &homeless), Err(HostPathError::Relative));
    }

    #[test]
    fn a_grant_is_below_the_home_or_beside_it() {
        for path in ["/", "/home", "/home/u"] {
            assert_eq!(host(&[]).narrow(Path::new(path)), Err(HostPathError::TooWide), "{path}");
        }
        for path in ["/usr", "/home/u/.cargo", "/home/user"] {
            assert_eq!(host(&[]).narrow(Path::new(path)), Ok(()), "{path}");
        }
    }
}
