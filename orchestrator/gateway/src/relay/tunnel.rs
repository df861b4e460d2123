//! Forwards bytes in both directions until both sides have ended or neither sends for too long. Each side is read only after the other has
//! accepted its earlier bytes. The first bytes are copied; if there are many, the rest goes through a pipe without being copied here.

use crate::traffic::Traffic;
use orchestrator_reach::hello::{self, ConnectionStart};
use orchestrator_ssh_agent::WatchedConnection;
use rustix::net::Shutdown;
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until};

/// Size of the copy buffer, in bytes.
const BUFFER: usize = 16 * 1024;
/// Bytes to copy before a direction gets a pipe, which costs two descriptors.
const COPIED: usize = 256 * 1024;
/// Bytes to request of a pipe at once; it takes what it has room for.
const PIPED: usize = 1 << 20;

/// What a program sends first, and the name that it may ask for by TLS.
pub(super) struct TunnelStart<'a> {
    /// Bytes that were read from the program already.
    pub first: Vec<u8>,
    /// The host that the connection was allowed for; absent, any name may be asked for.
    pub host: Option<&'a str>,
    /// Sees the host's first bytes, before the program does.
    pub(crate) watched: Option<WatchedConnection>,
    /// Counts the bytes of both directions.
    pub(crate) traffic: Arc<Traffic>,
}

/// When a connection without bytes ends.
pub(super) struct Idle<C> {
    /// After this long, if others may need its place: a quiet one may be a session of a database or a log that is followed.
    pub limit: Duration,
    /// How often to look whether they do.
    pub look: Duration,
    pub(crate) is_crowded: C,
}

impl<C: Fn() -> bool> Idle<C> {
    async fn ended(&self, last: &Cell<Instant>) {
        loop {
            let until = last.get() + self.limit;
            if until > Instant::now() {
                sleep_until(until).await;
            } else if (self.is_crowded)() {
                return;
            } else {
                sleep(self.look).await;
            }
        }
    }
}

/// Forwards bytes until both ends are closed, one fails, or too long passes without any. Returns the name that the program's TLS asks for
/// if the connection was allowed for another host: then the host has received nothing.
pub(super) async fn pass(
    program: &TcpStream,
    host: &TcpStream,
    mut beginning: TunnelStart<'_>,
    idle: Idle<impl Fn() -> bool>,
) -> Option<String> {
    let mut watched = beginning.watched.take();
    let last = Cell::new(Instant::now());
    let wrong = Cell::new(None);
    let traffic = beginning.traffic.clone();
    let sent = |length: usize| traffic.add_sent(length);
    let received = |length: usize| traffic.add_received(length);
    let up = async {
        if let Some(name) = begin(program, host, beginning, &last).await? {
            wrong.set(Some(name));
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        one_way((program, host), &last, |_| {}, sent).await
    };
    let watch = |bytes: &[u8]| watched.iter_mut().for_each(|watched| watched.push(bytes));
    let down = one_way((host, program), &last, watch, received);
    let both = async { tokio::try_join!(up, down) };
    tokio::select! {
        // If one side fails, both end: the program sees a broken connection.
        _ = both => {}
        () = idle.ended(&last) => {}
    }
    wrong.take()
}

/// Forwards the first bytes. Those of a TLS hello wait until its name is known; the host's own bytes do not wait for them.
async fn begin(
    program: &TcpStream,
    host: &TcpStream,
    TunnelStart {
        first: mut held,
        host: allowed,
        watched: _,
        traffic,
    }: TunnelStart<'_>,
    last: &Cell<Instant>,
) -> io::Result<Option<String>> {
    let mut buffer = vec![0; BUFFER];
    while let Some(allowed) = allowed {
        match hello::read(&held) {
            ConnectionStart::Partial => {}
            ConnectionStart::Name(Some(name)) if !hello::is_same_host(&name, allowed) => {
                return Ok(Some(name));
            }
            ConnectionStart::Name(_) | ConnectionStart::Other => break,
            ConnectionStart::Malformed => return Err(io::ErrorKind::InvalidData.into()),
        }
        let read = || program.try_read(&mut buffer);
        let length = ready(program, Interest::READABLE, read).await?;
        if length == 0 {
            break;
        }
        held.extend_from_slice(&buffer[..length]);
    }
    write_all(host, &held, last).await?;
    traffic.add_sent(held.len());
    Ok(None)
}

async fn write_all(to: &TcpStream, mut rest: &[u8], last: &Cell<Instant>) -> io::Result<()> {
    while !rest.is_empty() {
        let sent = ready(to, Interest::WRITABLE, || to.try_write(rest)).await?;
        rest = &rest[sent..];
    }
    last.set(Instant::now());
    Ok(())
}

/// Forwards bytes in one direction; when the input ends, closes the output. `seen` gets those that are copied, before they are sent, and
/// `passed` the number of all, after that.
async fn one_way(
    (from, to): (&TcpStream, &TcpStream),
    last: &Cell<Instant>,
    mut seen: impl FnMut(&[u8]),
    passed: impl Fn(usize),
) -> io::Result<()> {
    let (mut buffer, mut left) = (vec![0; BUFFER], COPIED);
    loop {
        let length = ready(from, Interest::READABLE, || from.try_read(&mut buffer)).await?;
        if length == 0 {
            return Ok(rustix::net::shutdown(to, Shutdown::Write)?);
        }
        last.set(Instant::now());
        seen(&buffer[..length]);
        write_all(to, &buffer[..length], last).await?;
        passed(length);
        left = left.saturating_sub(length);
        // If no pipe is available, copying continues.
        if left == 0
            && let Ok(pipe) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
        {
            drop(buffer);
            return piped((from, to), &pipe, last, passed).await;
        }
    }
}

/// The same through a pipe, which is empty before each read, so that only the sockets are waited for.
async fn piped(
    (from, to): (&TcpStream, &TcpStream),
    (end, start): &(OwnedFd, OwnedFd),
    last: &Cell<Instant>,
    passed: impl Fn(usize),
) -> io::Result<()> {
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    let take = || {
        from.try_io(Interest::READABLE, || {
            Ok(splice(from.as_fd(), None, start, None, PIPED, flags)?)
        })
    };
    loop {
        let mut held = ready(from, Interest::READABLE, take).await?;
        if held == 0 {
            return Ok(rustix::net::shutdown(to, Shutdown::Write)?);
        }
        last.set(Instant::now());
        while held > 0 {
            let give = || {
                to.try_io(Interest::WRITABLE, || {
                    Ok(splice(end, None, to.as_fd(), None, held, flags)?)
                })
            };
            let given = ready(to, Interest::WRITABLE, give).await?;
            passed(given);
            held -= given;
        }
        last.set(Instant::now());
    }
}

/// Retries until the operation would no longer block.
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (one, other) = tokio::join!(TcpStream::connect(at), listener.accept());
        (one.unwrap(), other.unwrap().0)
    }

    #[tokio::test]
    async fn a_quiet_connection_ends_only_where_others_need_its_place() {
        let ((mut client, program), (host, mut server)) = (pair().await, pair().await);
        let (is_crowded, looked) = (Cell::new(false), tokio::sync::Notify::new());
        let traffic = Arc::<Traffic>::default();
        let beginning = TunnelStart {
            first: b"first".into(),
            host: None,
            watched: None,
            traffic: traffic.clone(),
        };
        let idle = Idle {
            limit: Duration::from_millis(1),
            look: Duration::from_millis(1),
            is_crowded: || {
                looked.notify_one();
                is_crowded.get()
            },
        };
        let used = async {
            looked.notified().await;
            looked.notified().await;
            client.write_all(b"still there").await.unwrap();
            let mut seen = [0; 16];
            server.read_exact(&mut seen).await.unwrap();
            assert_eq!(&seen, b"firststill there");
            server.write_all(b"yes").await.unwrap();
            client.read_exact(&mut seen[..3]).await.unwrap();
            assert_eq!(traffic.counts(), (16, 3));
            is_crowded.set(true);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            name = pass(&program, &host, beginning, idle) => assert_eq!(name, None),
            () = used => {}
        }
        assert!(is_crowded.get());
    }
}
