//! Paths that were granted, until what is protected in them is known. What the user's git settings name there is asked of a worker, and
//! nobody waits for it but the call that gets the paths.

use crate::path::{HeldPath, LeasedPath, names};
use broker_protocol::Refused;
use executor_project::git_settings::{SettingsReading, UserGit};
use executor_project::protected::{Discovery, ProtectError};
use executor_project::{PendingSettings, StartAnswerer};
use executor_spec::protected_objects::ProtectedObjects;
use nix::poll::PollFlags;
use policies::EffectivePolicy;
use policies_guard::Matcher;
use std::collections::{BTreeSet, VecDeque};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Instant;

/// Maximum number of times that a directory is searched: its repositories may change while their settings are read.
const SEARCHES_MAX: usize = 3;

/// Whose git settings count, and the worker that parses them.
pub struct SettingsSource<'s> {
    pub user: &'s dyn Fn() -> UserGit,
    pub start: &'s StartAnswerer<'s>,
}

/// The paths of one approval, in the order in which it lists them.
#[derive(Debug)]
pub struct PendingPaths {
    names: Matcher,
    left: VecDeque<LeasedPath>,
    held: Vec<Rc<HeldPath>>,
    /// The settings that are read for the first path that is left.
    asked: Option<PendingSettings>,
    /// How often that path has been searched.
    searches: usize,
}

impl PendingPaths {
    /// # Errors
    /// The names that stay closed in them cannot be compiled.
    pub fn new(paths: Vec<LeasedPath>, policy: &EffectivePolicy) -> Result<Self, Refused> {
        let names = match paths.is_empty() {
            // Nothing is searched, and to compile names takes long.
            true => policy.matcher.clone(),
            false => names(policy)?,
        };
        Ok(Self {
            names,
            left: paths.into(),
            held: Vec::new(),
            asked: None,
            searches: 0,
        })
    }

    /// Goes on as far as that is possible without waiting; whether all paths are held.
    ///
    /// # Errors
    /// One of them cannot be granted any more.
    pub fn advance(&mut self, settings: &SettingsSource) -> Result<bool, Refused> {
        while let Some(path) = self.left.front() {
            if let Some(asked) = &mut self.asked {
                let advanced = asked.advance(settings.start);
                if !advanced.map_err(|error| path.refuse(&error.to_string()))? {
                    return Ok(false);
                }
            }
            let Some(found) = self.search(settings)? else {
                continue;
            };
            if let Some(path) = self.left.pop_front() {
                self.held.push(Rc::new(path.hold(found)?));
                (self.asked, self.searches) = (None, 0);
            }
        }
        Ok(true)
    }

    /// Searches the first path that is left; `None` if settings must be read that are not known yet. It is searched again with what they
    /// name, so that nothing is left out that has come meanwhile.
    fn search(&mut self, settings: &SettingsSource) -> Result<Option<Discovery>, Refused> {
        let Some(path) = self.left.front() else {
            return Ok(None);
        };
        if !path.needs_settings() {
            return path.search(&self.names, |_| Ok(BTreeSet::new())).map(Some);
        }
        if self.searches == SEARCHES_MAX {
            let why = "its repositories change while it is searched; request it again";
            return Err(path.refuse(why));
        }
        self.searches += 1;
        let (mut known, mut begun) = (self.asked.take(), None);
        let found = path.search(&self.names, |objects: &ProtectedObjects| {
            let reading = SettingsReading::new((settings.user)(), path.path(), objects)?;
            let mut reading = PendingSettings::new(reading);
            let known = known.take().filter(|known| known.begins_like(&reading));
            if let Some(known) = known {
                return Ok(known.into_named());
            }
            if reading.advance(settings.start)? {
                return Ok(reading.into_named());
            }
            begun = Some(reading);
            Ok::<_, ProtectError>(BTreeSet::new())
        })?;
        self.asked = begun;
        Ok(Some(found).filter(|_| self.asked.is_none()))
    }

    /// Waits until it can go on, while a session opens.
    pub fn wait(&self) {
        self.asked.iter().for_each(PendingSettings::wait);
    }

    /// The descriptor that must become ready before it can go on.
    pub fn waits_for(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        self.asked.as_ref()?.waits_for()
    }

    /// When it goes on in any case.
    pub fn deadline(&self) -> Option<Instant> {
        self.asked.as_ref()?.deadline()
    }

    /// The paths that are held, in order.
    pub fn held(&self) -> &[Rc<HeldPath>] {
        &self.held
    }
}
