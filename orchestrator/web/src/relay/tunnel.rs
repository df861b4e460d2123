//! Bytes both ways, until both sides have ended or nobody says anything for long. Each side is read only when the other has
//! taken what it was sent. What a side says first is copied; if it is much, the rest goes by a pipe and is not copied here.

use rustix::net::Shutdown;
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

/// Bytes that are copied at once.
const BUFFER: usize = 16 * 1024;
/// Bytes that are copied before a side gets a pipe, which is two descriptors.
const COPIED: usize = 256 * 1024;
/// Bytes that a pipe is asked to take at once; it takes what it has room for.
const PIPED: usize = 1 << 20;

/// Passes bytes until both ends are closed, one fails, or `idle` passes without any.
pub async fn pass(program: &TcpStream, host: &TcpStream, idle: Duration) {
    let last = Cell::new(Instant::now());
    let both = async { tokio::try_join!(one_way(program, host, &last), one_way(host, program, &last)) };
    let silence = async {
        loop {
            let until = last.get() + idle;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    };
    tokio::select! {
        // A side that fails ends the other: to the program it is a connection that broke.
        _ = both => {}
        () = silence => {}
    }
}

/// Passes bytes one way, and ends the other side's input where this one's ends.
async fn one_way(from: &TcpStream, to: &TcpStream, last: &Cell<Instant>) -> io::Result<()> {
    let (mut buffer, mut left) = (vec![0; BUFFER], COPIED);
    loop {
        let length = ready(from, Interest::READABLE, || from.try_read(&mut buffer)).await?;
        if length == 0 {
            return Ok(rustix::net::shutdown(to, Shutdown::Write)?);
        }
        last.set(Instant::now());
        let mut rest = &buffer[..length];
        while !rest.is_empty() {
            let sent = ready(to, Interest::WRITABLE, || to.try_write(rest)).await?;
            rest = &rest[sent..];
        }
        last.set(Instant::now());
        left = left.saturating_sub(length);
        // Without one more is copied.
        if left == 0
            && let Ok(pipe) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
        {
            drop(buffer);
            return piped(from, to, &pipe, last).await;
        }
    }
}

/// The same by a pipe: empty before each read, so that only the sockets are waited for.
async fn piped(
    from: &TcpStream,
    to: &TcpStream,
    (end, start): &(OwnedFd, OwnedFd),
    last: &Cell<Instant>,
) -> io::Result<()> {
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    let take =
        || from.try_io(Interest::READABLE, || Ok(splice(from.as_fd(), None, start, None, PIPED, flags)?));
    loop {
        let mut held = ready(from, Interest::READABLE, take).await?;
        if held == 0 {
            return Ok(rustix::net::shutdown(to, Shutdown::Write)?);
        }
        last.set(Instant::now());
        while held > 0 {
            let give =
                || to.try_io(Interest::WRITABLE, || Ok(splice(end, None, to.as_fd(), None, held, flags)?));
            held -= ready(to, Interest::WRITABLE, give).await?;
        }
        last.set(Instant::now());
    }
}

/// Tries until it is not too early.
async fn ready(
    socket: &TcpStream,
    interest: Interest,
    mut attempt: impl FnMut() -> io::Result<usize>,
) -> io::Result<usize> {
    loop {
        socket.ready(interest).await?;
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
