//! Host paths as a policy writes them: absolute, or beginning with `~` or `${NAME:-default}`.
//!
//! Comes from a policy file; goes to grants and to the environment. The user's environment is believed only so far: no
//! variable makes a grant of the root or of the home directory (see [`Host::narrow`]).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Longest host path in a policy, in bytes.
pub(crate) const HOST_PATH_MAX: usize = 4095;

/// Facts of this machine that a policy may ask for.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// The home directory of the executor's user, absolute.
    pub home: PathBuf,
    /// The executor's environment, of which only the names in a policy count.
    pub variables: BTreeMap<String, String>,
}

/// Why a host path is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HostPathError {
    #[error(
        "a host path begins with `/`, with `~` or with `${{NAME:-default}}`, and is absolute on this machine"
    )]
    Relative,
    #[error("a host path has no `..` and no NUL byte")]
    Names,
    #[error("a host path has at most {HOST_PATH_MAX} bytes")]
    TooLong,
    #[error(
        "a variable is written `${{NAME:-default}}`, its default a path without a variable, and nothing but `/` follows it"
    )]
    Variable,
    #[error(
        "this is the root, the home directory, or holds the home directory: too much for one grant"
    )]
    TooWide,
}

/// A host path, checked but not yet expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPath(String);

/// The first part of a path.
enum PathStart<'a> {
    Root,
    Home,
    Variable { name: &'a str, default: &'a str },
}

impl TryFrom<String> for HostPath {
    type Error = HostPathError;

    fn try_from(text: String) -> Result<Self, HostPathError> {
        if text.len() > HOST_PATH_MAX {
            return Err(HostPathError::TooLong);
        }
        let (start, rest) = split(&text)?;
        check_names(rest)?;
        if let PathStart::Variable { default, .. } = start {
            HostPath::try_from(default.to_owned())?;
        }
        Ok(Self(text))
    }
}

/// The start of `text`, and the rest after that, with its slash; it may be empty.
fn split(text: &str) -> Result<(PathStart<'_>, &str), HostPathError> {
    let ends = |rest: &str| rest.is_empty() || rest.starts_with('/');
    if let Some(rest) = text.strip_prefix('~').filter(|rest| ends(rest)) {
        return Ok((PathStart::Home, rest));
    }
    let Some(body) = text.strip_prefix("${") else {
        return if text.starts_with('/') {
            Ok((PathStart::Root, text))
        } else {
            Err(HostPathError::Relative)
        };
    };
    let (inner, rest) = body.split_once('}').ok_or(HostPathError::Variable)?;
    let (name, default) = inner.split_once(":-").ok_or(HostPathError::Variable)?;
    let named = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !named || default.contains('$') || !ends(rest) {
        return Err(HostPathError::Variable);
    }
    Ok((PathStart::Variable { name, default }, rest))
}

fn check_names(text: &str) -> Result<(), HostPathError> {
    let climbs = text.contains('\0') || text.split('/').any(|name| name == "..");
    if climbs {
        Err(HostPathError::Names)
    } else {
        Ok(())
    }
}

impl HostPath {
    /// The path as the policy writes it.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The absolute path on `host`, without doubled slashes, `.` or a final slash. A variable that is unset or empty
    /// gives its default.
    ///
    /// # Errors
    /// The home directory or a variable makes it relative, or has `..` in it.
    pub(crate) fn expand(&self, host: &Host) -> Result<PathBuf, HostPathError> {
        expand(&self.0, host)
    }
}

fn expand(text: &str, host: &Host) -> Result<PathBuf, HostPathError> {
    let (start, rest) = split(text)?;
    let start = match start {
        PathStart::Root => PathBuf::from("/"),
        PathStart::Home => host.home.clone(),
        PathStart::Variable { name, default } => {
            match host.variables.get(name).filter(|value| !value.is_empty()) {
                Some(value) => PathBuf::from(value),
                None => expand(default, host)?,
            }
        }
    };
    if !start.is_absolute() {
        return Err(HostPathError::Relative);
    }
    let mut path = start.into_os_string();
    path.push(rest);
    check_names(&path.to_string_lossy())?;
    // `components` leaves out `.` and doubled slashes.
    Ok(Path::new(&path).components().collect())
}

impl Host {
    /// Whether a grant of `path` is narrow enough to be one: neither the root nor the home directory, nor above it.
    ///
    /// # Errors
    /// It is not.
    pub fn narrow(&self, path: &Path) -> Result<(), HostPathError> {
        let wide = path.parent().is_none() || self.home.starts_with(path);
        if wide {
            Err(HostPathError::TooWide)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(variables: &[(&str, &str)]) -> Host {
        let variables = variables
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect();
        Host {
            home: "/home/u".into(),
            variables,
        }
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
        assert_eq!(
            expand("${CARGO_HOME:-~/.cargo}/bin", &set),
            Ok("/data/cargo/bin".into())
        );
        assert_eq!(expand("${EMPTY:-~/x}", &set), Ok("/home/u/x".into()));
    }

    #[test]
    fn invalid_host_paths_are_refused_when_they_are_read() {
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
        assert_eq!(
            HostPath::try_from("/".repeat(HOST_PATH_MAX + 1)),
            Err(HostPathError::TooLong)
        );
    }

    #[test]
    fn a_variable_is_checked_like_a_path_of_a_policy() {
        let odd = host(&[("UP", "/data/../etc"), ("RELATIVE", "cargo")]);
        assert_eq!(expand("${UP:-/x}", &odd), Err(HostPathError::Names));
        assert_eq!(
            expand("${RELATIVE:-/x}", &odd),
            Err(HostPathError::Relative)
        );
        let homeless = Host {
            home: "here".into(),
            ..Host::default()
        };
        assert_eq!(expand("~/x", &homeless), Err(HostPathError::Relative));
    }

    #[test]
    fn a_grant_is_below_the_home_or_beside_it() {
        for path in ["/", "/home", "/home/u"] {
            assert_eq!(
                host(&[]).narrow(Path::new(path)),
                Err(HostPathError::TooWide),
                "{path}"
            );
        }
        for path in ["/usr", "/home/u/.cargo", "/home/user"] {
            assert_eq!(host(&[]).narrow(Path::new(path)), Ok(()), "{path}");
        }
    }
}
