//! Undo: what a file tool replaces is kept, and can be brought back.
//!
//! Every change is kept before it is made, an undo too, so that it can be undone. Undoing is a write like any other: its
//! path comes with the request, and is asked about as a path; the file must still be what the change left.

pub mod line;
pub mod store;

use super::Worker;
use super::beneath::{Place, READING, regular_stat};
use super::bounds::Room;
use super::failure::{SystemError, WorkError};
use super::write::{Current, changed};
use broker_protocol::{Change, Changes, Digest, History, Truncated, Undo, Undone, Zone, ZonePath};
use line::{Entry, State};
use nix::errno::Errno;
use std::time::{SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// What a change takes in an answer beside its path.
const CHANGE: usize = 8 + (8 + line::SESSION) + 8 + 8 + 4 + 8 + 2 * 33;

/// Why a change is not undone.
#[derive(Debug, Error)]
pub enum UndoError {
    /// There is no such change.
    #[error("there is no change {0}, or it is not kept any more; `lazaret history` lists those that are")]
    Unknown(u64),
    /// It was to another file.
    #[error("change {change} was made to {path}")]
    Elsewhere {
        /// The change.
        change: u64,
        /// Its file.
        path: String,
    },
    /// Others have changed the file since.
    #[error("{path} is no longer what change {change} left; look at it first, then force the undo")]
    Since {
        /// The change.
        change: u64,
        /// Its file.
        path: String,
    },
    /// There is nothing to do.
    #[error("{path} is as it was before change {change} already")]
    Already {
        /// The change.
        change: u64,
        /// Its file.
        path: String,
    },
    /// What the change replaced is gone, or was tampered with.
    #[error("what change {0} replaced is not kept any more")]
    Lost(u64),
}

impl Worker {
    /// Keeps what `before` is, and that it becomes `after`, before `place` is written. Says the number of the change;
    /// `None` where it cannot be kept, which is no reason not to write.
    pub(super) fn keep(
        &self,
        path: &ZonePath,
        place: &Place,
        before: Option<&Current>,
        after: Option<Digest>,
    ) -> Option<u64> {
        if !self.root(Zone::Central).is_writable() {
            return None;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let state = match before {
            Some(before) => Some(State { digest: before.digest?, mode: before.mode() }),
            None => None,
        };
        let entry = Entry {
            session: self.session.borrow().clone(),
            call: self.call.get(),
            time_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            // A name that is no text is found by the links that led to it.
            path: place.to_zone_path().unwrap_or_else(|| path.clone()),
            before: state,
            after,
        };
        let content = before.and_then(|before| before.content.as_deref());
        self.store.borrow_mut().keep(&entry, content).ok()
    }

    /// Does `write`, whose change is kept as `kept`. What did not happen is not kept.
    pub(super) fn keeping<T>(
        &self,
        kept: Option<u64>,
        write: impl FnOnce() -> Result<T, WorkError>,
    ) -> Result<T, WorkError> {
        let written = write();
        if let (Err(_), Some(number)) = (&written, kept) {
            self.store.borrow().forget(number);
        }
        written
    }

    /// Answers `history`.
    pub(super) fn history(&self, request: &History) -> Result<Changes, WorkError> {
        let store = self.store.borrow();
        let failed = |errno| SystemError::new("look through", "the history", errno);
        let numbers = store.numbers().map_err(failed)?;
        let total = numbers.len() as u64;
        let (mut room, mut changes, mut cut) = (Room::new(), Vec::new(), false);
        for number in numbers {
            let Some(Entry { session, call, time_ms, path, before, after }) = store.entry(number) else {
                continue;
            };
            cut = changes.len() == request.limit as usize || !room.take(CHANGE + path.relative().len());
            if cut {
                break;
            }
            let before = before.map(|state| state.digest);
            changes.push(Change { number, session, call, time_ms, path, before, after });
        }
        let shown = changes.len() as u64;
        Ok(Changes { changes, truncated: cut.then_some(Truncated { total: Some(total), shown }) })
    }

    /// Answers `undo`.
    pub(super) fn undo(&self, request: &Undo) -> Result<Undone, WorkError> {
        let Undo { change, ref path, force } = *request;
        let entry = self.store.borrow().entry(change).ok_or(UndoError::Unknown(change))?;
        if entry.path != *path {
            return Err(UndoError::Elsewhere { change, path: entry.path.to_string() }.into());
        }
        let (place, current) = self.current(path)?;
        let now = current.as_ref().map(|current| current.digest);
        if now == entry.before.map(|state| Some(state.digest)) {
            return Err(UndoError::Already { change, path: path.to_string() }.into());
        }
        if now != entry.after.map(Some) && !force {
            return Err(UndoError::Since { change, path: path.to_string() }.into());
        }
        self.restore(request, &place, current.as_ref(), entry.before)
    }

    /// What stands at `path` now, and where that is.
    fn current(&self, path: &ZonePath) -> Result<(Place, Option<Current>), WorkError> {
        let (place, stat) = self.locate(path)?;
        let Some(stat) = stat else { return Ok((place, None)) };
        regular_stat(path, stat)?;
        let file = match self.root(place.zone).open_beneath(&place.path, READING) {
            Err(Errno::ENOENT | Errno::ELOOP) => return Err(changed(path)),
            opened => opened.map_err(|errno| SystemError::new("read", path, errno))?,
        };
        let current = Current::read(path, file, true)?;
        Ok((place, Some(current)))
    }

    /// Makes `place` what it was.
    fn restore(
        &self,
        request: &Undo,
        place: &Place,
        current: Option<&Current>,
        before: Option<State>,
    ) -> Result<Undone, WorkError> {
        let Undo { change, ref path, .. } = *request;
        let content = before.map(|state| {
            let content = self.store.borrow().object(state.digest);
            content.ok_or(UndoError::Lost(change)).map(|content| (content, state))
        });
        let content = content.transpose()?;
        let kept = self.keep(path, place, current, before.map(|state| state.digest));
        self.keeping(kept, || match (&content, current) {
            (Some((content, state)), current) => self.put(path, place, content, current, Some(state.mode)),
            (None, Some(current)) => self.remove(path, place, current),
            (None, None) => Ok(()),
        })?;
        // The session has not seen what came back.
        self.seen.borrow_mut().forget(place);
        let bytes = content.map_or(0, |(content, _)| content.len() as u64);
        Ok(Undone { sha256: before.map(|state| state.digest), bytes, change: kept })
    }
}
