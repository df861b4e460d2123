//! Protected names of shipped files, as `build/profiles.rs` writes them when the crate is built: a session that opens would wait for
//! them to be read.

use policies_guard::Origin;
use policies_guard::names::{ProtectedName, Protection, WhenNew};

/// A protected name of a shipped file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShippedName {
    pub pattern: &'static str,
    pub except: &'static [&'static str],
    pub protection: Protection,
    pub new: WhenNew,
    pub opens: bool,
    pub why: &'static str,
    pub line: usize,
}

impl ShippedName {
    /// As it is read of `file`.
    pub(crate) fn protected(&self, file: &str) -> ProtectedName {
        ProtectedName {
            pattern: self.pattern.to_owned(),
            except: self
                .except
                .iter()
                .map(|except| (*except).to_owned())
                .collect(),
            protection: self.protection,
            new: self.new,
            opens: self.opens,
            why: self.why.to_owned(),
            origin: Origin {
                file: file.to_owned(),
                line: self.line,
            },
        }
    }
}
