//! Background processes: what is asked of them, and calls that end with an answer of the broker's own.

use super::{Call, Session, Work, used};
use crate::broker::connection::Connection;
use crate::broker::record;
use crate::broker::{protocol, send};
use broker_protocol::{
    CallId, Failed, FileAnswer, FileReply, FromBroker, Outcome, Request, Usage, frame, limit,
};
use std::time::Instant;

impl Session {
    /// Background processes that wait for a cell.
    pub(super) fn waiting_in_background(&self) -> usize {
        let waiting = |entry: &&Call| matches!(&entry.work, Work::Waiting { bash, .. } if bash.background);
        self.calls.values().filter(waiting).count()
    }

    /// What is known of background processes.
    pub(super) fn inspect(&mut self, request: &Request) -> FileAnswer {
        match request {
            Request::BackgroundLog(log) => self.background.log(log).map(FileReply::Logged),
            _ => Ok(FileReply::Background(self.background.list())),
        }
    }

    /// Ends a background process. Who asked for that is answered when it is dead, at once if it is.
    pub(super) fn kill(&mut self, id: u64, connection: &mut Connection) -> Result<(), Failed> {
        match self.background.kill(id) {
            Ok(true) => self.hear_background(id, connection),
            Ok(false) | Err(_) => self.killed(id, connection),
        }
    }

    /// Answers every call that wanted a background process ended.
    pub(super) fn killed(&mut self, id: u64, connection: &mut Connection) -> Result<(), Failed> {
        let answer = self.background.describe(id).map(FileReply::Killed);
        let wanting = |(call, entry): (&CallId, &Call)| match entry.work {
            Work::Kill(of) if of == id => Some(*call),
            _ => None,
        };
        for call in self.calls.iter().filter_map(wanting).collect::<Vec<_>>() {
            self.answer(call, &answer, connection)?;
        }
        Ok(())
    }

    /// Takes what a background process has printed, and its end.
    pub(super) fn hear_background(&mut self, id: u64, connection: &mut Connection) -> Result<(), Failed> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(limit::CHUNK, 0);
        let over = self.background.ready(id, &mut buffer, &self.walls.central);
        self.buffer = buffer;
        if over { self.killed(id, connection) } else { Ok(()) }
    }

    /// Ends a call with an answer of the broker's own.
    pub(super) fn answer(
        &mut self,
        call: CallId,
        answer: &FileAnswer,
        connection: &mut Connection,
    ) -> Result<(), Failed> {
        let Some(entry) = self.calls.remove(&call) else { return Ok(()) };
        self.send_answer(call, &entry.filed, answer, entry.started, connection)
    }

    pub(super) fn send_answer(
        &mut self,
        call: CallId,
        filed: &record::Asked,
        answer: &FileAnswer,
        started: Instant,
        connection: &mut Connection,
    ) -> Result<(), Failed> {
        let bytes = frame::encode_whole(answer).map_err(|error| protocol(error.to_string()))?;
        let usage = Usage { stdout_bytes: bytes.len() as u64, ..Usage::default() };
        for part in bytes.chunks(limit::CHUNK) {
            send(connection, &FromBroker::Part { call, bytes: part.to_vec() })?;
        }
        self.send_done(call, filed, Outcome::Answered, used(started, usage), connection)
    }
}
