//! The user's hooks, for each session that a front end opens.

use crate::state_directory::{home, variable};
use broker_protocol::Open;
use orchestrator_confine::Files;
use orchestrator_engine::executor::Dial;
use orchestrator_engine::hooks::{HookGuard, HookRunner};
use policies::directories;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The word without which the settings have no hooks.
const WORD: &str = "hooks";

/// The user's settings for agents, where hooks are named.
pub fn agent_settings() -> PathBuf {
    directories::configuration(&home(), &variable).join("agent.toml")
}

/// Whether the settings may name hooks, for a program that does not parse them. What cannot be read may.
#[expect(
    clippy::disallowed_methods,
    reason = "the user's own settings, with the borrow that lets files be read"
)]
pub fn may_exist(_: &Files, settings: &Path) -> bool {
    match fs::symlink_metadata(settings) {
        Ok(_) => fs::read(settings).map_or(true, |text| is_named_in(&text)),
        Err(error) => !is_absence(&error),
    }
}

/// Whether the settings do not exist. What cannot be looked at, and a link to nowhere, do.
pub fn are_absent(settings: &Path) -> bool {
    fs::symlink_metadata(settings).is_err_and(|error| is_absence(&error))
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn is_named_in(text: &[u8]) -> bool {
    // An escape in a key may be any letter.
    text.contains(&b'\\') || text.windows(WORD.len()).any(|word| word == WORD.as_bytes())
}

/// Runs the hooks that the user's settings name.
pub trait HookSource {
    /// Those of the session that `open` requests. Each run has a session of its own at `dial`.
    fn of_session(&self, open: &Open, dial: Rc<dyn Dial>) -> Rc<dyn HookRunner>;
}

/// The hooks in the user's settings, read before the confinement.
#[derive(Clone)]
pub struct UserHooks(Option<Rc<dyn HookSource>>);

impl UserHooks {
    pub fn none() -> Self {
        Self(None)
    }

    pub fn new(source: Rc<dyn HookSource>) -> Self {
        Self(Some(source))
    }

    pub fn are_none(&self) -> bool {
        self.0.is_none()
    }

    /// The guard of calls of the session that `open` requests.
    pub fn guard(&self, open: &Open, dial: Rc<dyn Dial>) -> HookGuard {
        match &self.0 {
            Some(source) => HookGuard::Hooks(source.of_session(open, dial)),
            None => HookGuard::NoHooks,
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "files of the test's own")]
mod tests {
    use super::*;
    use orchestrator_confine::Unconfined;

    #[test]
    fn settings_without_the_word_have_no_hooks_and_all_others_may() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.toml");
        let unconfined = Unconfined::of_process();
        let files = unconfined.files();
        assert!(!may_exist(files, &path));
        for (text, may) in [
            ("", false),
            ("instructions = 'x'\n[limits]\nmax_turns = 3\n", false),
            ("[[hooks]]\nname = 'a'\n", true),
            ("hooks = []", true),
            ("\"hook\\u0073\" = []", true),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(may_exist(files, &path), may, "{text}");
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(may_exist(files, &path), "what cannot be read");
        fs::remove_dir(&path).unwrap();
        std::os::unix::fs::symlink("nowhere", &path).unwrap();
        assert!(
            may_exist(files, &path) && !are_absent(&path),
            "a link to nowhere"
        );
    }
}
