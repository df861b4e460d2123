//! Undo: what a file tool replaces is saved, and can be restored.
//!
//! Every change is saved before it is made, also an undo, so that it can be undone in turn. Undoing is a write like any
//! other: its path comes with the request, and is checked as a path; the file must still be as the change left it.

use crate::beneath::regular_stat;
use crate::bounds::AnswerRoom;
use crate::change_record::{ChangeRecord, FileState};
use crate::error::{SystemError, UndoError, WorkError};
use crate::root::{Location, READING};
use crate::worker::FileCall;
use crate::write::{CurrentFile, LargeFile, changed};
use broker_protocol::{
    Changes, Digest, FileChange, History, Truncated, Undo, Undone, Zone, ZonePath,
};
use executor_spec::worker::{SESSION_LEN, WorkerPurpose};
use nix::errno::Errno;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of a change in an answer besides its path.
const CHANGE: usize = 8 + (8 + SESSION_LEN) + 8 + 8 + 4 + 8 + 2 * 33;

impl FileCall<'_> {
    /// Saves the state `before`, and that it becomes `after`, before `location` is written. Returns
    /// the number of the change; `None` if it cannot be saved, which does not prevent the write.
    pub(crate) fn record_change(
        &self,
        path: &ZonePath,
        location: &Location,
        before: Option<&CurrentFile>,
        after: Option<Digest>,
    ) -> Option<u64> {
        let WorkerPurpose::Call(call) = self.context().purpose else {
            return None;
        };
        if !self.root(Zone::Central).writable {
            return None;
        }
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let state = match before {
            Some(before) => Some(FileState {
                digest: before.digest?,
                mode: before.mode(),
            }),
            None => None,
        };
        let record = ChangeRecord {
            session: self.context().session.clone(),
            call,
            time_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            // A name that is not text is recorded as the link that led to it.
            path: location.to_zone_path().unwrap_or_else(|| path.clone()),
            before: state,
            after,
        };
        let content = before.and_then(|before| before.content.as_deref());
        self.store().save(&record, content).ok()
    }

    /// Runs `write`, whose change was saved as `kept`. A change that did not happen is dropped.
    pub(crate) fn keeping<T>(
        &self,
        kept: Option<u64>,
        write: impl FnOnce() -> Result<T, WorkError>,
    ) -> Result<T, WorkError> {
        let written = write();
        if let (Err(_), Some(number)) = (&written, kept) {
            self.store().forget(number);
        }
        written
    }

    /// Answers `history`.
    pub(crate) fn history(&self, request: &History) -> Result<Changes, WorkError> {
        let store = self.store();
        let failed = |errno| SystemError::new("look through", "the history", errno);
        let numbers = store.numbers().map_err(failed)?;
        let total = numbers.len() as u64;
        let (mut room, mut changes, mut cut) = (AnswerRoom::new(), Vec::new(), false);
        for number in numbers {
            let Some(ChangeRecord {
                session,
                call,
                time_ms,
                path,
                before,
                after,
            }) = store.record(number)
            else {
                continue;
            };
            cut = changes.len() == request.limit as usize
                || !room.take(CHANGE + path.relative().len());
            if cut {
                break;
            }
            let before = before.map(|state| state.digest);
            changes.push(FileChange {
                number,
                session,
                call,
                time_ms,
                path,
                before,
                after,
            });
        }
        let shown = changes.len() as u64;
        Ok(Changes {
            changes,
            truncated: cut.then_some(Truncated {
                total: Some(total),
                shown,
            }),
        })
    }

    /// Answers `undo`.
    pub(crate) fn undo(&self, request: &Undo) -> Result<Undone, WorkError> {
        let Undo {
            change,
            ref path,
            force,
        } = *request;
        let record = self
            .store()
            .record(change)
            .ok_or(UndoError::Unknown(change))?;
        if record.path != *path {
            return Err(UndoError::Elsewhere {
                change,
                path: record.path.to_string(),
            }
            .into());
        }
        let (location, current) = self.current(path)?;
        let now = current.as_ref().map(|current| current.digest);
        if now == record.before.map(|state| Some(state.digest)) {
            return Err(UndoError::Already {
                change,
                path: path.to_string(),
            }
            .into());
        }
        if now != record.after.map(Some) && !force {
            return Err(UndoError::Since {
                change,
                path: path.to_string(),
            }
            .into());
        }
        self.restore(request, &location, current.as_ref(), record.before)
    }

    /// The present file at `path`, and its location.
    fn current(&self, path: &ZonePath) -> Result<(Location, Option<CurrentFile>), WorkError> {
        let (location, stat) = self.locate(path)?;
        let Some(stat) = stat else {
            return Ok((location, None));
        };
        regular_stat(path, stat)?;
        let file = match self
            .root(location.zone)
            .open_beneath(&location.path, READING)
        {
            Err(Errno::ENOENT | Errno::ELOOP) => return Err(changed(path)),
            opened => opened.map_err(|errno| SystemError::new("read", path, errno))?,
        };
        let current = CurrentFile::read(path, file, LargeFile::Hashed)?;
        Ok((location, Some(current)))
    }

    /// Restores the earlier state of `location`.
    fn restore(
        &self,
        request: &Undo,
        location: &Location,
        current: Option<&CurrentFile>,
        before: Option<FileState>,
    ) -> Result<Undone, WorkError> {
        let Undo {
            change, ref path, ..
        } = *request;
        let content = before.map(|state| {
            let content = self.store().object(state.digest);
            content
                .ok_or(UndoError::Lost(change))
                .map(|content| (content, state))
        });
        let content = content.transpose()?;
        let kept = self.record_change(path, location, current, before.map(|state| state.digest));
        self.keeping(kept, || match (&content, current) {
            (Some((content, state)), current) => {
                self.put(path, location, content, current, Some(state.mode))
            }
            (None, Some(current)) => self.remove(path, location, current),
            (None, None) => Ok(()),
        })?;
        // The session has not read what was restored.
        self.seen().forget(location);
        let bytes = content.map_or(0, |(content, _)| content.len() as u64);
        Ok(Undone {
            sha256: before.map(|state| state.digest),
            bytes,
            change: kept,
        })
    }
}
