//! A command's standard streams: the broker's ends, all of them non-blocking, and the program's.

use broker_protocol::Stdin;
use executor_sys::{fd, file};
use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

#[derive(Debug)]
pub struct Streams {
    /// Standard output, or the terminal.
    pub stdout: OwnedFd,
    /// Standard error; a terminal has none of its own.
    pub stderr: Option<OwnedFd>,
    /// Standard input, if the client feeds it.
    pub stdin: Option<OwnedFd>,
}

pub enum ProgramStreams {
    /// Standard input (`/dev/null` where there is none), output and error.
    Pipes(Option<OwnedFd>, OwnedFd, OwnedFd),
    /// The slave that is all three.
    Terminal(OwnedFd),
}

/// Pipes for standard output and error, near end and far end. Creating them takes a tenth of the
/// time in which a call reaches its cell, so they are created before the call.
#[derive(Debug)]
pub struct Pipes {
    stdout: (OwnedFd, OwnedFd),
    stderr: (OwnedFd, OwnedFd),
}

impl Pipes {
    /// Creates both pipes; our ends are non-blocking.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> io::Result<Self> {
        let pipe = || -> io::Result<(OwnedFd, OwnedFd)> {
            let (near, far) = pipe2(OFlag::O_CLOEXEC)?;
            fd::set_nonblocking(&near)?;
            Ok((near, far))
        };
        Ok(Self {
            stdout: pipe()?,
            stderr: pipe()?,
        })
    }

    /// The streams of a command that uses these pipes for output and error.
    pub fn streams(self, stdin: &Stdin) -> io::Result<(Streams, ProgramStreams)> {
        let Pipes {
            stdout: (stdout, out),
            stderr: (stderr, err),
        } = self;
        let (program, input) = match stdin {
            Stdin::Stream => {
                let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
                fd::set_nonblocking(&write)?;
                (Some(read), Some(write))
            }
            Stdin::Null | Stdin::Terminal(_) => (None, None),
        };
        let streams = Streams {
            stdout,
            stderr: Some(stderr),
            stdin: input,
        };
        Ok((streams, ProgramStreams::Pipes(program, out, err)))
    }
}

/// The streams of a command at the terminal with this master and slave.
pub fn terminal(
    master: OwnedFd,
    slave: OwnedFd,
    size: &broker_protocol::Terminal,
) -> io::Result<(Streams, ProgramStreams)> {
    fd::set_nonblocking(&master)?;
    file::set_window_size(master.as_fd(), size.rows, size.columns)?;
    let stdin = Some(master.try_clone()?);
    Ok((
        Streams {
            stdout: master,
            stderr: None,
            stdin,
        },
        ProgramStreams::Terminal(slave),
    ))
}
