//! A command's standard input: what the client has sent within its window, and what the program has read.

use crate::suspend;
use broker_protocol::limit;
use nix::errno::Errno;
use nix::unistd::write;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

#[derive(Debug)]
pub struct ProgramInput {
    pending: VecDeque<u8>,
    /// Whether the client has closed the input.
    ended: bool,
    /// Bytes the client may still send before it receives more credit.
    window: u32,
    target: InputTarget,
    written: u64,
    /// Whether the suspend key of the program's terminal was typed since the last [`ProgramInput::take_suspend`].
    suspend: bool,
}

#[derive(Debug)]
enum InputTarget {
    NotStarted,
    Pipe(OwnedFd),
    Terminal(OwnedFd),
    Closed,
}

impl Default for ProgramInput {
    fn default() -> Self {
        let (pending, window) = (VecDeque::new(), limit::INPUT_WINDOW);
        Self {
            pending,
            ended: false,
            window,
            target: InputTarget::NotStarted,
            written: 0,
            suspend: false,
        }
    }
}

impl ProgramInput {
    /// Takes bytes; false if the client has sent more than its window.
    #[must_use]
    pub fn take(&mut self, bytes: &[u8]) -> bool {
        let left = u32::try_from(bytes.len())
            .ok()
            .and_then(|length| self.window.checked_sub(length));
        let Some(left) = left else { return false };
        self.window = left;
        if !self.ended {
            self.pending.extend(bytes);
        }
        true
    }

    /// The client has closed the input.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// The program has started, and reads from the other end of `pipe`, if there is one.
    pub fn start(&mut self, pipe: Option<OwnedFd>) {
        self.target = pipe.map_or(InputTarget::Closed, InputTarget::Pipe);
    }

    /// The program has started at this terminal.
    pub fn start_at(&mut self, terminal: OwnedFd) {
        self.target = InputTarget::Terminal(terminal);
    }

    /// The program does not read any more.
    pub fn close(&mut self) {
        self.target = InputTarget::Closed;
    }

    /// The descriptor to write to, if input is queued.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        let wanted = !self.pending.is_empty() || self.ended;
        self.target.fd().filter(|_| wanted).map(AsFd::as_fd)
    }

    /// Writes as much as the program accepts now; returns how many more bytes the client may send.
    pub fn feed(&mut self) -> u32 {
        if matches!(self.target, InputTarget::NotStarted) {
            return 0;
        }
        let mut taken = 0;
        while let (Some(stdin), (chunk @ [_, ..], _)) = (self.target.fd(), self.pending.as_slices())
        {
            match write(stdin, &chunk[..chunk.len().min(limit::CHUNK)]) {
                Ok(length) => {
                    let typed = self.pending.drain(..length);
                    if let InputTarget::Terminal(terminal) = &self.target {
                        self.suspend |= suspend::is_key_in(terminal.as_fd(), typed);
                    }
                    taken += length as u32;
                }
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                // The program has closed its end, as `head` does when it has seen enough.
                Err(_) => self.close(),
            }
        }
        self.written += u64::from(taken);
        if self.target.fd().is_none() {
            taken += self.pending.drain(..).len() as u32;
        } else if self.pending.is_empty() && self.ended {
            self.write_end();
        }
        self.window += taken;
        taken
    }

    /// Signals the end of input: a pipe is closed, a terminal gets its end-of-file character, Control-D.
    fn write_end(&mut self) {
        const END_OF_FILE: &[u8] = &[4];
        if let InputTarget::Terminal(terminal) = &self.target {
            // If the terminal accepts nothing now, its program has other input to read first, or has ended.
            let _ = write(terminal, END_OF_FILE);
        }
        self.close();
    }

    /// Whether the suspend key was typed since the last call of this, and is for the program itself.
    pub fn take_suspend(&mut self) -> bool {
        let InputTarget::Terminal(terminal) = &self.target else {
            return false;
        };
        std::mem::take(&mut self.suspend) && suspend::is_for_program(terminal.as_fd())
    }

    /// Bytes written to the program.
    pub fn written(&self) -> u64 {
        self.written
    }
}

impl InputTarget {
    fn fd(&self) -> Option<&OwnedFd> {
        match self {
            InputTarget::Pipe(fd) | InputTarget::Terminal(fd) => Some(fd),
            InputTarget::NotStarted | InputTarget::Closed => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::OFlag;
    use nix::unistd::{pipe2, read};

    #[test]
    fn early_input_waits_and_the_window_is_not_exceeded() {
        let mut input = ProgramInput::default();
        assert!(input.take(b"early") && input.feed() == 0 && input.fd().is_none());
        assert!(!input.take(&vec![0; limit::INPUT_WINDOW as usize]));
        let (near, far) = pipe2(OFlag::O_CLOEXEC).unwrap();
        input.start(Some(far));
        assert!(input.fd().is_some());
        input.end();
        assert_eq!((input.feed(), input.written()), (5, 5));
        let mut got = [0; 8];
        assert_eq!(read(&near, &mut got), Ok(5));
        assert_eq!(read(&near, &mut got), Ok(0), "the pipe is closed");
        assert!(input.take(b"late") && input.fd().is_none());
    }

    #[test]
    fn unread_input_is_dropped_and_its_window_returned() {
        let mut input = ProgramInput::default();
        input.start(None);
        assert!(input.take(b"none"));
        assert_eq!((input.feed(), input.written()), (4, 0));
        assert!(input.take(&vec![0; limit::INPUT_WINDOW as usize]));
    }
}
