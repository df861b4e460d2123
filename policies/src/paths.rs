//! Globs of whole paths, with their zone: `src/**`, `central:notes/*.md`, `/usr/include/**`.
//!
//! Comes from scopes and rules, goes to the decision and to the file worker. Paths are bytes below a zone's root, as a
//! request or the disk has them. Names are compared as [`pattern`](policies_guard::pattern) does it; between slashes `**` stands for
//! any number of names, and at the end for everything below.

use broker_protocol::{Zone, ZonePath};
use policies_guard::pattern::{Case, Pattern, PatternError, walk};
use thiserror::Error;

/// Why a text is not a glob of paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GlobError {
    /// The text is not names between slashes.
    #[error(
        "a glob of paths is names between `/`, without `.` or `..`, after `project:`, `central:` or `/` if need be"
    )]
    Names,
    /// One of its names is no pattern.
    #[error(transparent)]
    Pattern(#[from] PatternError),
}

/// A glob of paths in one zone or in all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathGlob {
    text: String,
    /// `None` means all zones.
    zone: Option<Zone>,
    names: Vec<PathPart>,
    /// Whether it ends in `**`, which `names` then leaves out: it means everything below `names`.
    tree: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PathPart {
    One(Pattern),
    /// `**`: any number of names, none too.
    Deep,
}

impl PathGlob {
    /// Parses a glob. `**` alone is everything in all zones, one that begins with `/` is outside both roots; any other
    /// without a zone before it means the project.
    pub fn parse(text: &str, case: Case) -> Result<Self, GlobError> {
        let (zone, rest) = match (text.split_once(':'), text.strip_prefix('/')) {
            (Some(("project", rest)), _) => (Some(Zone::Project), rest),
            (Some(("central", rest)), _) => (Some(Zone::Central), rest),
            (_, Some(rest)) => (Some(Zone::Granted), rest),
            _ if text == "**" => (None, text),
            _ => (Some(Zone::Project), text),
        };
        let mut names: Vec<PathPart> = rest
            .split('/')
            .map(|name| PathPart::parse(name, case))
            .collect::<Result<_, _>>()?;
        let tree = names.pop_if(|last| *last == PathPart::Deep).is_some();
        Ok(Self {
            text: text.to_owned(),
            zone,
            names,
            tree,
        })
    }

    /// The glob as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether `path`, below the root of `zone`, is one of those that are meant.
    pub(crate) fn matches(&self, zone: Zone, path: &[u8]) -> bool {
        self.is_in(zone) && fits(&self.names, self.tree.then_some(1), &components(path))
    }

    /// Whether all that is below the directory `path` is meant, whatever it is called.
    pub(crate) fn covers(&self, zone: Zone, path: &[u8]) -> bool {
        self.tree && self.is_in(zone) && fits(&self.names, Some(0), &components(path))
    }

    /// The directories of the roots whose whole content is meant, if that is what the glob says: plain names and then `**`.
    pub fn directories(&self) -> Option<Vec<ZonePath>> {
        if self.zone == Some(Zone::Granted) {
            return None;
        }
        let plain = |name: &PathPart| match name {
            PathPart::One(pattern) => String::from_utf8(pattern.literal()?.to_vec()).ok(),
            PathPart::Deep => None,
        };
        let path = self
            .names
            .iter()
            .map(plain)
            .collect::<Option<Vec<_>>>()
            .filter(|_| self.tree)?
            .join("/");
        let zones = self
            .zone
            .map_or(vec![Zone::Project, Zone::Central], |zone| vec![zone]);
        zones
            .into_iter()
            .map(|zone| ZonePath::new(zone, &path).ok())
            .collect()
    }

    fn is_in(&self, zone: Zone) -> bool {
        self.zone.is_none_or(|own| own == zone)
    }
}

impl PathPart {
    fn parse(name: &str, case: Case) -> Result<Self, GlobError> {
        match name {
            "" | "." | ".." => Err(GlobError::Names),
            _ if name.contains('\0') => Err(GlobError::Names),
            "**" => Ok(PathPart::Deep),
            name => Ok(PathPart::One(Pattern::parse(name, case)?)),
        }
    }

    fn takes(&self, name: &[u8]) -> bool {
        match self {
            PathPart::One(pattern) => pattern.matches(name),
            PathPart::Deep => false,
        }
    }
}

fn components(path: &[u8]) -> Vec<&[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
        .collect()
}

/// Whether `path` is `pattern` and, where `below` says so, at least as many names after it.
fn fits(pattern: &[PathPart], below: Option<usize>, path: &[&[u8]]) -> bool {
    let ends = |at: usize| below.map_or(at == path.len(), |least| at + least <= path.len());
    walk(
        pattern,
        path,
        |name| matches!(name, PathPart::Deep),
        |name, found| name.takes(found),
        ends,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use policies_guard::steps;

    fn glob(text: &str) -> PathGlob {
        PathGlob::parse(text, Case::Exact).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn each_sign_of_a_pattern_matches_its_bytes() {
        for (text, yes, no) in [
            (
                "src/**",
                vec!["src/a", "src/a/b.rs"],
                vec!["src", "srcs/a", "a/src/b", "Src/a", ""],
            ),
            (
                "*.md",
                vec!["README.md", ".md"],
                vec!["a/README.md", "README.MD"],
            ),
            ("**/*.md", vec!["a.md", "a/b/c.md"], vec!["a.rs", "a.md/b"]),
            (
                "a/**/b/**/c",
                vec!["a/b/c", "a/x/b/y/z/c", "a/b/b/c/c"],
                vec!["a/c", "a/b/x", "a/b/c/d"],
            ),
            ("**/t/**", vec!["t/a", "x/t/a"], vec!["t", "x/t", "xt/a"]),
            ("a/{b,c}/?", vec!["a/b/1", "a/c/2"], vec!["a/d/1", "a/b/12"]),
            ("a", vec!["a"], vec!["a/b", "b", ""]),
            ("**", vec!["a", "a/b", ".env"], vec![]),
            ("project:x/**", vec!["x/1"], vec!["project:x/1"]),
        ] {
            yes.iter().for_each(|path| {
                assert!(
                    glob(text).matches(Zone::Project, path.as_bytes()),
                    "{text} {path}"
                )
            });
            no.iter().for_each(|path| {
                assert!(
                    !glob(text).matches(Zone::Project, path.as_bytes()),
                    "{text} {path}"
                )
            });
        }
    }

    #[test]
    fn glob_matches_in_its_zone_only() {
        let own = |text: &str| {
            [Zone::Project, Zone::Central].map(|zone| glob(text).matches(zone, b"notes/a"))
        };
        assert_eq!(own("notes/**"), [true, false]);
        assert_eq!(own("central:notes/**"), [false, true]);
        assert_eq!(own("project:**"), [true, false]);
        assert_eq!(own("central:**"), [false, true]);
        assert_eq!(own("**"), [true, true]);
        assert_eq!(own("/notes/**"), [false, false]);
        for (text, meant) in [
            ("/usr/**", true),
            ("**", true),
            ("usr/**", false),
            ("central:usr/**", false),
        ] {
            assert_eq!(
                glob(text).matches(Zone::Granted, b"usr/include/a.h"),
                meant,
                "{text}"
            );
        }
    }

    #[test]
    fn a_tree_is_covered_only_as_a_whole() {
        for (text, directory, want) in [
            ("src/**", "src", true),
            ("src/**", "src/a/b", true),
            ("src/**", "", false),
            ("src/**", "srcs", false),
            ("**", "", true),
            ("**/t/**", "x/t/y", true),
            ("**/t/**", "x", false),
            ("src/*", "src", false),
            ("**/*.rs", "", false),
        ] {
            assert_eq!(
                glob(text).covers(Zone::Project, directory.as_bytes()),
                want,
                "{text} {directory}"
            );
        }
    }

    #[test]
    fn directories_are_plain_names_and_all_below() {
        let directories = |text: &str| {
            glob(text)
                .directories()
                .map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(directories("src/a/**").unwrap(), ["src/a"]);
        assert_eq!(directories("central:notes/**").unwrap(), ["central:notes"]);
        assert_eq!(directories("**").unwrap(), [".", "central:"]);
        assert_eq!(directories("central:**").unwrap(), ["central:"]);
        for text in [
            "src/*",
            "src",
            "s*/**",
            "**/src/**",
            "{a,b}/**",
            "*.md",
            "/usr/**",
        ] {
            assert_eq!(directories(text), None, "{text}");
        }
    }

    #[test]
    fn invalid_globs_are_refused() {
        for text in [
            "", "/", "//a", "a/", "a//b", "../a", "/../a", "a/./b", "central:", "a\0",
        ] {
            assert_eq!(
                PathGlob::parse(text, Case::Exact),
                Err(GlobError::Names),
                "{text}"
            );
        }
        assert!(matches!(
            PathGlob::parse("a/[b", Case::Exact),
            Err(GlobError::Pattern(_))
        ));
        // Not a zone's name: a project file may be called so.
        assert!(glob("other:x").matches(Zone::Project, b"other:x"));
    }

    #[test]
    fn steps_are_at_most_signs_times_bytes() {
        let path = "a/".repeat(2000);
        let stars = format!("{}*b*c", "**/*a*/".repeat(100));
        for (text, matches) in [
            ("**/a/b/".repeat(100) + "x", false),
            ("**/a/".repeat(100) + "a", true),
            (stars, false),
        ] {
            let glob = glob(&text);
            let (steps, matched) = steps::of(|| glob.matches(Zone::Project, path.as_bytes()));
            assert_eq!(matched, matches, "{text}");
            assert!(
                steps <= text.len() * (path.len() + 1),
                "{text} took {steps}"
            );
            let (steps, _) = steps::of(|| glob.covers(Zone::Project, path.as_bytes()));
            assert!(
                steps <= text.len() * (path.len() + 1),
                "{text} took {steps}"
            );
        }
    }
}
