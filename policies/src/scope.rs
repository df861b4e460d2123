//! The paths of a session's scope, compiled once: may this tool touch this name?
//!
//! Asked by the decision about what a request names, and by the file worker again about what a link leads to.

use crate::error::PolicyError;
use crate::paths::PathGlob;
use broker_protocol::{Scope, Zone, ZonePath};
use policies_guard::pattern::Case;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Access of a tool to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// This name, and nothing below it.
    Name,
    /// Whatever lies below this name.
    Tree,
}

impl Reach {
    /// Access of a file tool to the path that it is given.
    pub fn of(tool: &str) -> Self {
        match tool {
            "bash" | "file_read" | "file_write" | "file_edit" | "undo" | "view_image" => {
                Reach::Name
            }
            // The stricter for what is none of these.
            _ => Reach::Tree,
        }
    }
}

/// The globs of each tool that has some. A clone shares them.
#[derive(Clone, Debug, Default)]
pub struct ScopePaths(Arc<BTreeMap<String, Vec<PathGlob>>>);

impl ScopePaths {
    /// Compiles the globs of `scope`.
    ///
    /// # Errors
    /// A glob is invalid, or cannot be enforced for `bash`: see [`ScopePaths::directories`].
    pub fn new(scope: &Scope) -> Result<Self, PolicyError> {
        let mut tools = BTreeMap::new();
        for permission in scope
            .permissions
            .iter()
            .filter(|permission| !permission.paths.is_empty())
        {
            let error = |glob: &str, why: String| PolicyError::Scope {
                tool: permission.tool.clone(),
                glob: glob.to_owned(),
                why,
            };
            let parse = |text: &String| {
                PathGlob::parse(text, Case::Exact).map_err(|fault| error(text, fault.to_string()))
            };
            let globs = permission
                .paths
                .iter()
                .map(parse)
                .collect::<Result<Vec<_>, _>>()?;
            if permission.tool == BASH
                && let Some(glob) = globs.iter().find(|glob| glob.directories().is_none())
            {
                return Err(error(glob.text(), COMMANDS.to_owned()));
            }
            tools.insert(permission.tool.clone(), globs);
        }
        Ok(Self(Arc::new(tools)))
    }

    /// Whether `tool` may touch `path`, below the root of `zone`. A tool without globs may touch all of them.
    pub fn permits(&self, tool: &str, zone: Zone, path: &[u8], reach: Reach) -> bool {
        let Some(globs) = self.0.get(tool) else {
            return true;
        };
        globs.iter().any(|glob| match reach {
            Reach::Name => glob.matches(zone, path),
            Reach::Tree => glob.covers(zone, path),
        })
    }

    /// The directories to which `tool` is held, where each glob is one and all below it; `None` where it is not held, or not
    /// to directories.
    pub fn directories(&self, tool: &str) -> Option<Vec<ZonePath>> {
        let globs = self.0.get(tool)?;
        let directories: Option<Vec<Vec<ZonePath>>> =
            globs.iter().map(PathGlob::directories).collect();
        Some(directories?.concat())
    }

    /// The globs of `tool` as they were written, for people.
    pub fn text(&self, tool: &str) -> String {
        let globs = self.0.get(tool).map_or(&[][..], Vec::as_slice);
        globs
            .iter()
            .map(PathGlob::text)
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// The tool whose paths the kernel holds.
const BASH: &str = "bash";
const COMMANDS: &str = "a command can be held to whole directories only: write `directory/**`, or do not permit `bash`";

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::Permission;

    fn scope(tool: &str, paths: &[&str]) -> Scope {
        let paths = paths.iter().map(ToString::to_string).collect();
        let permission = Permission {
            tool: tool.into(),
            allowed: true,
            paths,
            timeout_s: None,
            network: false,
        };
        Scope {
            permissions: vec![permission],
        }
    }

    #[test]
    fn a_tool_with_globs_is_held_to_them_and_no_other_is() {
        let paths =
            ScopePaths::new(&scope("file_write", &["src/**", "central:notes/*.md"])).unwrap();
        let may = |tool, zone, path: &str| paths.permits(tool, zone, path.as_bytes(), Reach::Name);
        assert!(
            may("file_write", Zone::Project, "src/a")
                && may("file_write", Zone::Central, "notes/a.md")
        );
        assert!(
            !may("file_write", Zone::Project, "docs/a")
                && !may("file_write", Zone::Central, "src/a")
        );
        assert!(may("file_read", Zone::Project, "docs/a"));
        assert!(paths.permits("file_write", Zone::Project, b"src", Reach::Tree));
        assert!(!paths.permits("file_write", Zone::Project, b"", Reach::Tree));
    }

    #[test]
    fn a_command_is_held_to_directories_or_not_permitted() {
        let held = ScopePaths::new(&scope("bash", &["src/**", "central:**"]))
            .unwrap()
            .directories("bash")
            .unwrap();
        assert_eq!(
            held.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["src", "central:"]
        );
        for glob in ["*.md", "src", "s*/**", "**/src/**"] {
            let error = ScopePaths::new(&scope("bash", &[glob])).unwrap_err();
            assert!(
                matches!(&error, PolicyError::Scope { tool, .. } if tool == "bash"),
                "{glob}: {error}"
            );
            assert!(ScopePaths::new(&scope("file_write", &[glob])).is_ok());
        }
        assert!(ScopePaths::new(&scope("file_write", &["../x"])).is_err());
    }
}
