//! Paths as clients write them: below the project, whatever they begin with.

use crate::fault::SandboxFault;
use broker_protocol::{Zone, ZonePath};
use percent_encoding::percent_decode_str;

/// The project root, as an absolute path.
#[derive(Debug)]
pub(crate) struct ProjectRoot(String);

impl ProjectRoot {
    pub(crate) fn new(absolute: String) -> Self {
        Self(absolute)
    }

    /// The path that a client means by `text`: an absolute one is below the root too, with the root's own path in front or without.
    ///
    /// # Errors
    /// It leads out of the project, or is no path.
    pub(crate) fn path(&self, text: &str) -> Result<ZonePath, SandboxFault> {
        let below = text
            .strip_prefix(self.0.as_str())
            .filter(|rest| rest.is_empty() || rest.starts_with('/'))
            .unwrap_or(text);
        Ok(ZonePath::new(Zone::Project, below.trim_start_matches('/'))?)
    }

    /// The same for a part of a request's target. It is decoded once.
    ///
    /// # Errors
    /// As above; or it is not UTF-8.
    pub(crate) fn encoded(&self, text: &str) -> Result<ZonePath, SandboxFault> {
        self.path(&decoded(text)?)
    }
}

/// A part of a request's target without its escapes.
///
/// # Errors
/// It is not UTF-8.
pub(crate) fn decoded(text: &str) -> Result<String, SandboxFault> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded
        .map(|text| text.into_owned())
        .map_err(|_| SandboxFault::invalid("the path is not UTF-8"))
}

/// The value of the parameter `name` in a query; the last one counts.
///
/// # Errors
/// It is not UTF-8.
pub(crate) fn parameter(query: Option<&str>, name: &str) -> Result<Option<String>, SandboxFault> {
    let pairs = query.unwrap_or_default().split('&');
    let values = pairs.filter_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (key == name).then_some(value)
    });
    let mut last = values.rev();
    last.next().map(decoded).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::FaultKind;

    fn below(text: &str) -> Result<String, FaultKind> {
        let root = ProjectRoot::new("/workspace".into());
        let path = root.encoded(text).map_err(|fault| fault.kind)?;
        assert_eq!(path.zone(), Zone::Project);
        Ok(path.relative().to_owned())
    }

    #[test]
    fn every_path_is_below_the_project_or_refused() {
        for (text, path) in [
            ("", ""),
            (".", ""),
            ("/", ""),
            ("main.py", "main.py"),
            ("a/./b//c/", "a/b/c"),
            ("a/../b", "b"),
            ("/f.txt", "f.txt"),
            ("//etc/passwd", "etc/passwd"),
            ("/workspace", ""),
            ("/workspace/f.txt", "f.txt"),
            ("/workspace-evil/f.txt", "workspace-evil/f.txt"),
            ("workspace/f", "workspace/f"),
            ("dir%2Fsub%2Ffile.txt", "dir/sub/file.txt"),
            ("a%20b/%C3%A9", "a b/é"),
            // Decoded once only, so these are names.
            ("%252e%252e/x", "%2e%2e/x"),
            ("..\\..\\etc", "..\\..\\etc"),
            ("central:notes", "central:notes"),
        ] {
            assert_eq!(below(text), Ok(path.to_owned()), "{text}");
        }
        for text in [
            "..",
            "../x",
            "%2e%2e/x",
            "%2E%2E%2Fx",
            "..%2f..%2fetc",
            "a/../../x",
            "/../etc/passwd",
            "/workspace/../etc/passwd",
            "/workspace/a/../../x",
        ] {
            assert_eq!(below(text), Err(FaultKind::PermissionDenied), "{text}");
        }
        for text in ["%00", "a%00b", "%ff", &"x".repeat(256), &"x/".repeat(2100)] {
            assert_eq!(below(text), Err(FaultKind::InvalidArgument), "{text}");
        }
    }

    #[test]
    fn the_last_parameter_of_a_name_counts() {
        let got = |query| parameter(Some(query), "mode").map_err(|fault| fault.kind);
        assert_eq!(got(""), Ok(None));
        assert_eq!(got("mode"), Ok(Some(String::new())));
        assert_eq!(got("x=1&mode=0644&mode=07%35%35"), Ok(Some("0755".into())));
        assert_eq!(got("mode=%ff"), Err(FaultKind::InvalidArgument));
        assert_eq!(parameter(None, "mode"), Ok(None));
    }
}
