//! A path inside one of the two roots, or in what a policy grants besides them, parsed once.
//!
//! A [`ZonePath`] guarantees something about its text only: relative, bounded, no `..`, no NUL. That it stays
//! inside its root on a disk full of hostile links is ensured by the kernel (`openat2` beneath the root's
//! descriptor, mounts, Landlock). This type exists to refuse early, with a helpful message.

use serde::{Deserialize, Serialize};
use std::fmt;
use thiserror::Error;

/// Maximum bytes of a path, as `PATH_MAX` in `linux/limits.h` without its final NUL.
pub const PATH_MAX: usize = 4095;
/// Maximum bytes of one component: `NAME_MAX` in `linux/limits.h`.
pub const NAME_MAX: usize = 255;

/// One of the two roots of a session, or the rest of the machine's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Zone {
    Project,
    /// The session's own storage: spilled output, notes, memory.
    Central,
    /// The machine's tree outside both; file tools read there what the policy grants. Paths are relative to `/`.
    Granted,
}

impl Zone {
    /// The word for this zone. A path starts with it to name one of the first two: `central:notes`.
    pub fn name(self) -> &'static str {
        match self {
            Zone::Project => "project",
            Zone::Central => "central",
            Zone::Granted => "granted",
        }
    }
}

/// Why a string is not a path inside a zone.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PathError {
    /// The path leaves its root through `..`, or goes above `/`.
    #[error("outside sandbox: {0:?} is in neither the project nor the central root")]
    Outside(String),
    /// The path has a NUL byte, which no file name can have.
    #[error("a path cannot contain a NUL byte")]
    Nul,
    /// The path or one of its components is longer than the kernel allows.
    #[error("the path is too long: at most {PATH_MAX} bytes, and {NAME_MAX} for each name")]
    TooLong,
}

/// The paths of the two roots on this machine: needed to turn an absolute path into a [`ZonePath`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// Absolute path of the project, without links or a final slash.
    pub project: String,
    /// Absolute path of the central root, without links or a final slash.
    pub central: String,
}

impl Roots {
    /// Parses what a person or a model wrote: `src/a.rs`, `project:src/a.rs`, `central:notes`, or an absolute
    /// path, which is [`Zone::Granted`] if it is below neither root: the policy decides whether it really is
    /// granted. `.` and `..` are resolved as text; a path that goes above its root is [`PathError::Outside`].
    pub fn parse(&self, text: &str) -> Result<ZonePath, PathError> {
        if let Some(rest) = text.strip_prefix("central:") {
            return ZonePath::new(Zone::Central, rest);
        }
        if let Some(rest) = text.strip_prefix("project:") {
            return ZonePath::new(Zone::Project, rest);
        }
        if !text.starts_with('/') {
            return ZonePath::new(Zone::Project, text);
        }
        let folded = fold(text.trim_start_matches('/'))
            .ok_or_else(|| PathError::Outside(text.to_owned()))?;
        let absolute = format!("/{folded}");
        // The deeper root comes first, as one may lie inside the other.
        let mut roots = [
            (Zone::Project, &self.project),
            (Zone::Central, &self.central),
        ];
        roots.sort_by_key(|(_, root)| std::cmp::Reverse(root.len()));
        for (zone, root) in roots {
            if let Some(rest) = below(&absolute, root) {
                return ZonePath::new(zone, rest);
            }
        }
        ZonePath::new(Zone::Granted, &folded)
    }

    /// The absolute path of `path` on this machine, for display; the executor never opens a file by it.
    pub fn absolute(&self, path: &ZonePath) -> String {
        let root = match path.zone {
            Zone::Project => &self.project,
            Zone::Central => &self.central,
            Zone::Granted => return path.to_string(),
        };
        if path.relative.is_empty() {
            root.clone()
        } else {
            format!("{root}/{}", path.relative)
        }
    }
}

fn below<'a>(path: &'a str, root: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(root)?;
    if rest.is_empty() {
        Some("")
    } else {
        rest.strip_prefix('/')
    }
}

/// Resolves `.`, `..` and doubled slashes; `None` if `..` goes above the start.
fn fold(path: &str) -> Option<String> {
    let mut names: Vec<&str> = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                names.pop()?;
            }
            name => names.push(name),
        }
    }
    Some(names.join("/"))
}

/// A zone and a path below its root. The empty path is the root itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "RawZonePath")]
pub struct ZonePath {
    zone: Zone,
    relative: String,
}

/// The form on the wire, before it is checked.
#[derive(Deserialize)]
struct RawZonePath {
    zone: Zone,
    relative: String,
}

impl TryFrom<RawZonePath> for ZonePath {
    type Error = PathError;

    /// Accepts only what [`ZonePath::new`] would have produced: a peer that sends anything else does not use our code.
    fn try_from(raw: RawZonePath) -> Result<Self, PathError> {
        let path = ZonePath::new(raw.zone, &raw.relative)?;
        if path.relative == raw.relative {
            Ok(path)
        } else {
            Err(PathError::Outside(raw.relative))
        }
    }
}

impl ZonePath {
    /// A path below `zone`'s root, with `.` and `..` resolved.
    pub fn new(zone: Zone, path: &str) -> Result<Self, PathError> {
        if path.contains('\0') {
            return Err(PathError::Nul);
        }
        if path.starts_with('/') {
            return Err(PathError::Outside(path.to_owned()));
        }
        let relative = fold(path).ok_or_else(|| PathError::Outside(path.to_owned()))?;
        if relative.len() > PATH_MAX || relative.split('/').any(|name| name.len() > NAME_MAX) {
            return Err(PathError::TooLong);
        }
        Ok(Self { zone, relative })
    }

    /// A path that is a constant of this crate.
    pub(crate) fn known(zone: Zone, relative: &'static str) -> Self {
        Self {
            zone,
            relative: relative.to_owned(),
        }
    }

    /// The root of `zone`.
    pub fn root(zone: Zone) -> Self {
        Self {
            zone,
            relative: String::new(),
        }
    }

    /// The zone this path lies in.
    pub fn zone(&self) -> Zone {
        self.zone
    }

    /// The path below the root, without a leading slash; empty for the root itself.
    pub fn relative(&self) -> &str {
        &self.relative
    }
}

impl fmt::Display for ZonePath {
    /// `src/a.rs` in the project, `central:notes` in the central root, `/usr/lib` in neither: the
    /// form that [`Roots::parse`] accepts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.zone, self.relative.as_str()) {
            (Zone::Project, "") => f.write_str("."),
            // A project file whose name looks like a zone prefix must not be parsed as one.
            (Zone::Project, path)
                if path.starts_with("central:") || path.starts_with("project:") =>
            {
                write!(f, "project:{path}")
            }
            (Zone::Project, path) => f.write_str(path),
            (Zone::Central, path) => write!(f, "central:{path}"),
            (Zone::Granted, path) => write!(f, "/{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots() -> Roots {
        Roots {
            project: "/home/u/p".into(),
            central: "/home/u/p/.central".into(),
        }
    }

    #[test]
    fn relative_and_absolute_paths_name_the_same_file() {
        let want = ZonePath::new(Zone::Project, "src/a.rs").unwrap();
        for text in [
            "src/a.rs",
            "./src//a.rs",
            "src/x/../a.rs",
            "/home/u/p/src/a.rs",
            "project:src/a.rs",
        ] {
            assert_eq!(roots().parse(text), Ok(want.clone()), "{text}");
        }
    }

    #[test]
    fn the_deeper_root_wins() {
        assert_eq!(
            roots().parse("/home/u/p/.central/x").unwrap().zone(),
            Zone::Central
        );
        assert_eq!(roots().parse("central:x").unwrap().to_string(), "central:x");
    }

    #[test]
    fn path_that_leaves_the_zones_is_outside() {
        for text in ["../x", "a/../../x", "central:../x", "/..", "/usr/../../x"] {
            assert!(
                matches!(roots().parse(text), Err(PathError::Outside(_))),
                "{text}"
            );
        }
    }

    #[test]
    fn an_absolute_path_below_neither_root_is_for_the_policy() {
        for (text, path) in [
            ("/usr/include//stdio.h", "/usr/include/stdio.h"),
            ("/home/u/p-private/x", "/home/u/p-private/x"),
            ("/home/u/p/../x", "/home/u/x"),
            ("/", "/"),
        ] {
            let parsed = roots().parse(text).unwrap();
            assert_eq!(
                (parsed.zone(), parsed.to_string().as_str()),
                (Zone::Granted, path)
            );
            assert_eq!(roots().absolute(&parsed), path);
        }
        let raw = RawZonePath {
            zone: Zone::Granted,
            relative: "/usr".into(),
        };
        assert!(ZonePath::try_from(raw).is_err());
    }

    #[test]
    fn nul_and_length_are_refused_at_the_limit() {
        assert_eq!(roots().parse("a\0b"), Err(PathError::Nul));
        assert!(ZonePath::new(Zone::Project, &"n".repeat(NAME_MAX)).is_ok());
        assert_eq!(
            ZonePath::new(Zone::Project, &"n".repeat(NAME_MAX + 1)),
            Err(PathError::TooLong)
        );
        let long = "a/".repeat(PATH_MAX / 2) + "a";
        assert_eq!(long.len(), PATH_MAX);
        assert!(ZonePath::new(Zone::Project, &long).is_ok());
        assert_eq!(
            ZonePath::new(Zone::Project, &(long + "b")),
            Err(PathError::TooLong)
        );
    }

    #[test]
    fn shown_path_reads_back() {
        for path in [
            "",
            "a",
            "central:odd",
            "project:odd",
            "with space\nand newline",
        ] {
            for zone in [Zone::Project, Zone::Central, Zone::Granted] {
                let path = ZonePath::new(zone, path).unwrap();
                assert_eq!(roots().parse(&path.to_string()).unwrap(), path);
            }
        }
    }
}
