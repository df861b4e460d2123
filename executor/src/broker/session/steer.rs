//! What a client says about a call under way: input, signals, the size of its window, credit, and its end.

use super::super::command::Command;
use super::super::files::Errand;
use super::super::order::spill_name;
use super::super::{protocol, send};
use super::{Session, Work, failed, never_started};
use crate::broker::connection::Connection;
use crate::warden::Ask;
use broker_protocol::{CallId, Decision, Ended, ErrorKind, Failed, FromBroker, Signal, Stdin, Usage, limit};

impl Session {
    /// Takes input for a command. Input for a call that has just ended is dropped: the client cannot have known.
    pub fn input(&mut self, call: CallId, bytes: &[u8], connection: &mut Connection) -> Result<(), Failed> {
        at_most_a_chunk(bytes, "input")?;
        if !self.give(call, bytes) {
            return Err(protocol(format!("more input for the call {call} than its window allows")));
        }
        self.feed(call, connection)
    }

    /// Gives input to who has the call; false when it is more than its window allows.
    pub(super) fn give(&mut self, call: CallId, bytes: &[u8]) -> bool {
        match self.calls.get_mut(&call).map(|entry| &mut entry.work) {
            Some(Work::Asked) => self.approvals.get(call).is_none_or(|asked| asked.take_input(bytes)),
            Some(Work::Waiting { input, .. }) => {
                input.extend_from_slice(bytes);
                input.len() <= limit::INPUT_WINDOW as usize
            }
            Some(Work::Command(command)) => command.take_input(bytes),
            Some(Work::File | Work::Kill(_)) | None => true,
        }
    }

    /// No more input will come for a command.
    pub fn input_end(&mut self, call: CallId, connection: &mut Connection) -> Result<(), Failed> {
        match self.calls.get_mut(&call).map(|entry| &mut entry.work) {
            Some(Work::Asked) => {
                self.approvals.get(call).into_iter().for_each(|asked| asked.input_ended = true);
            }
            Some(Work::Waiting { input_ended, .. }) => *input_ended = true,
            Some(Work::Command(command)) => command.end_input(),
            Some(Work::File | Work::Kill(_)) | None => {}
        }
        self.feed(call, connection)
    }

    pub(super) fn feed(&mut self, call: CallId, connection: &mut Connection) -> Result<(), Failed> {
        let bytes = self.command(call).map_or(0, Command::feed);
        if bytes == 0 { Ok(()) } else { send(connection, &FromBroker::InputCredit { call, bytes }) }
    }

    /// Sets the size of a command's terminal.
    pub fn resize(&mut self, call: CallId, rows: u16, columns: u16) {
        match self.calls.get_mut(&call).map(|entry| &mut entry.work) {
            Some(Work::Waiting { bash, .. }) => {
                if let Stdin::Terminal(terminal) = &mut bash.stdin {
                    (terminal.rows, terminal.columns) = (rows, columns);
                }
            }
            Some(Work::Command(command)) => command.resize(rows, columns),
            Some(Work::Asked) => {
                self.approvals.get(call).into_iter().for_each(|asked| asked.resize(rows, columns));
            }
            Some(Work::File | Work::Kill(_)) | None => {}
        }
    }

    /// Sends a signal to a command.
    pub fn signal(&mut self, call: CallId, signal: Signal) {
        let number = match signal {
            Signal::Interrupt => libc::SIGINT,
            Signal::Terminate => libc::SIGTERM,
            Signal::Hangup => libc::SIGHUP,
            Signal::Quit => libc::SIGQUIT,
        };
        if let Some(command) = self.command(call) {
            command.signal(number);
        }
    }

    /// Gives credit for live output.
    pub fn credit(&mut self, call: CallId, bytes: u32) {
        if let Some(command) = self.command(call) {
            command.give_credit(bytes);
        }
    }

    /// Lets the client have a text kept that an effect brings it.
    pub(super) fn permit_keep(&mut self, call: CallId, tool: &str) -> Result<(), Failed> {
        let before = self.keeps.permit(call, tool);
        Ok(before.map_or(Ok(()), |kept| self.audit.append(kept.event()))?)
    }

    /// Takes a piece of such a text. At its end the audit is told before the client.
    pub fn keep(
        &mut self,
        call: CallId,
        bytes: &[u8],
        last: bool,
        connection: &mut Connection,
    ) -> Result<(), Failed> {
        at_most_a_chunk(bytes, "a text to keep")?;
        let most = self.walls.policy.limits.spill;
        self.keeps.push(call, bytes, most, || spill_name(call), &self.walls.central);
        if !last {
            return Ok(());
        }
        let kept = self.keeps.take(call);
        if let Some(kept) = &kept {
            self.audit.append(kept.event())?;
        }
        send(connection, &FromBroker::Kept { call, spill: kept.map(|kept| kept.spill) })
    }

    /// Ends a call. One that has ended meanwhile is answered already.
    pub fn cancel(&mut self, call: CallId, connection: &mut Connection) -> Result<(), Failed> {
        match self.calls.get_mut(&call).map(|entry| &mut entry.work) {
            Some(Work::Command(command)) => {
                command.end(Ended::Cancelled);
                self.pass_output(call, connection)
            }
            Some(Work::Waiting { .. }) => self.done(call, never_started(), Usage::default(), connection),
            Some(Work::Asked) => {
                self.approvals.forget(call);
                self.end_asked(call, Decision::Cancelled, connection)
            }
            // The process is ended all the same; only its end is not waited for.
            Some(Work::Kill(_)) => {
                let outcome = failed(ErrorKind::Cancelled, "the client ended the call".into());
                self.done(call, outcome, Usage::default(), connection)
            }
            Some(Work::File) => {
                self.files.cancel(Errand::Call(call));
                if self.files.ask() {
                    self.ask(Ask::Worker)?;
                }
                let outcome = failed(ErrorKind::Cancelled, "the client ended the call".into());
                self.done(call, outcome, Usage::default(), connection)
            }
            None => Ok(()),
        }
    }
}

fn at_most_a_chunk(bytes: &[u8], what: &str) -> Result<(), Failed> {
    let (got, most) = (bytes.len(), limit::CHUNK);
    if got <= most {
        return Ok(());
    }
    Err(protocol(format!("{got} bytes of {what} in one frame, at most {most} are allowed")))
}
