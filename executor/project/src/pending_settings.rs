//! Paths that the user's git settings name below a directory, while a worker is asked. Nobody waits for an answer: the broker goes on with other
//! calls, and calls [`PendingSettings::advance`] when the worker's socket is ready, or its time is over.

use crate::git_settings::{NamedPath, SettingsReading};
use crate::protected::ProtectError;
use crate::questions::{AnsweringWorker, TIMEOUT, settings_answer};
use nix::poll::PollFlags;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// Starts a worker for questions about settings.
pub type StartAnswerer<'s> = dyn Fn() -> io::Result<AnsweringWorker> + 's;

/// Settings that are being read. The worker is started for the first question: there may be none.
#[derive(Debug)]
pub struct PendingSettings {
    reading: SettingsReading,
    worker: Option<AnsweringWorker>,
    /// Until when the last question may be answered, while one is.
    until: Option<Instant>,
}

impl PendingSettings {
    pub fn new(reading: SettingsReading) -> Self {
        Self {
            reading,
            worker: None,
            until: None,
        }
    }

    /// Goes on as far as that is possible without waiting; whether all settings have been read.
    ///
    /// # Errors
    /// There are more settings than the limits, or no worker reads them in time.
    pub fn advance(&mut self, start: &StartAnswerer) -> Result<bool, ProtectError> {
        let unread = |source| ProtectError::SettingsUnread { source };
        loop {
            if let (Some(worker), Some(until)) = (&self.worker, self.until) {
                let Some(answer) = worker.advance().map_err(unread)? else {
                    return match until <= Instant::now() {
                        true => Err(unread(io::ErrorKind::TimedOut.into())),
                        false => Ok(false),
                    };
                };
                let answers = settings_answer(&answer).map_err(unread)?;
                self.reading.take_answers(answers)?;
                self.until = None;
            }
            let Some(texts) = self.reading.next_question()? else {
                self.worker = None;
                return Ok(true);
            };
            let worker = match self.worker.take() {
                Some(worker) => worker,
                None => start().map_err(unread)?,
            };
            let sent = worker.put_settings(texts);
            (self.worker, self.until) = (Some(worker), Some(Instant::now() + TIMEOUT));
            sent.map_err(unread)?;
        }
    }

    /// Whether this reads the same files as `other` to begin with.
    pub fn begins_like(&self, other: &Self) -> bool {
        self.reading.begins_like(&other.reading)
    }

    /// The paths that these settings name.
    pub fn into_named(self) -> BTreeSet<NamedPath> {
        self.reading.into_named()
    }

    /// The descriptor that must become ready before it can go on.
    pub fn waits_for(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        self.worker.as_ref().map(AnsweringWorker::waits_for)
    }

    /// When it goes on in any case.
    pub fn deadline(&self) -> Option<Instant> {
        self.until
    }

    /// Waits until it can go on, while a session opens.
    pub fn wait(&self) {
        if let (Some(worker), Some(until)) = (&self.worker, self.until) {
            // Why it could not wait shows when it goes on.
            let _ = worker.wait(until);
        }
    }
}
