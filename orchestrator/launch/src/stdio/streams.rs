//! Our own standard streams, used without a thread and without changing them for other processes.
//!
//! `O_NONBLOCK` belongs to the open file description, which we share with the shell that started us and with its other children, so
//! it is never set on an inherited descriptor. A pipe or a terminal is reopened through `/proc`, which gives us an open file of our
//! own. On a socket each call takes a flag. Where neither works, we poll the stream first, then transfer a piece that cannot block.
//! A regular file never blocks for long.

use broker_protocol::Failed;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv, send};
use nix::sys::stat::{Mode, SFlag, fstat, major, minor};
use nix::unistd::{getpgrp, read, tcgetpgrp, write};
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

/// A pipe that polls writable has room for at least this much (`PIPE_BUF` in `linux/limits.h`).
const PIECE: usize = 4096;

pub struct InputStream {
    stream: Stream,
    terminal: bool,
}

/// Standard output or standard error.
pub struct OutputStream(Stream);

enum Stream {
    /// A file that never blocks.
    File(OwnedFd),
    /// Our own open file, reopened through `/proc`.
    Reopened(AsyncFd<OwnedFd>),
    Socket(AsyncFd<OwnedFd>),
    /// Shared with other processes, so its flags must not change.
    Shared(AsyncFd<OwnedFd>),
}

/// The error when standard streams are unusable: a command cannot work without them.
pub fn unusable(error: io::Error) -> Failed {
    Failed::internal(format!("cannot use the standard streams: {error}"))
}

impl InputStream {
    /// Our standard input. Needs the runtime.
    pub fn stdin() -> io::Result<Self> {
        Self::of(io::stdin().as_fd())
    }

    /// A reader of `fd`. Needs the runtime.
    pub fn of(fd: BorrowedFd) -> io::Result<Self> {
        let stream = Stream::of(fd, OFlag::O_RDONLY, Interest::READABLE)?;
        Ok(Self {
            stream,
            terminal: fd.is_terminal(),
        })
    }

    /// Whether standard input is /dev/null, which never has data.
    pub fn is_null() -> bool {
        let null = |stat: nix::sys::stat::FileStat| {
            stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFCHR.bits()
                && (major(stat.st_rdev), minor(stat.st_rdev)) == (1, 3)
        };
        fstat(io::stdin().as_fd()).map_or(true, null)
    }

    /// Reads what is available, at least one byte; zero means the end.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let attempt = |fd: &OwnedFd, how: How| {
            if self.terminal && tcgetpgrp(fd).is_ok_and(|group| group != getpgrp()) {
                // A read from the background would stop this process, and with it the command, even if the command never reads.
                return Err(Errno::EAGAIN);
            }
            match how {
                How::Plain => read(fd, buffer),
                How::NoWait => recv(fd.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT),
                How::AskFirst => ready(fd, PollFlags::POLLIN).and_then(|()| read(fd, buffer)),
            }
        };
        self.stream.attempt(Interest::READABLE, attempt).await
    }
}

impl OutputStream {
    /// Our standard output. Needs the runtime.
    pub fn stdout() -> io::Result<Self> {
        Self::of(io::stdout().as_fd())
    }

    /// Our standard error. Needs the runtime.
    pub fn stderr() -> io::Result<Self> {
        Self::of(io::stderr().as_fd())
    }

    /// A writer to `fd`. Needs the runtime.
    pub fn of(fd: BorrowedFd) -> io::Result<Self> {
        Stream::of(fd, OFlag::O_WRONLY, Interest::WRITABLE).map(Self)
    }

    /// Writes lines until the sender closes or nobody reads them.
    pub async fn write_lines(self, mut lines: mpsc::Receiver<Vec<u8>>) {
        while let Some(line) = lines.recv().await {
            if self.write_all(&line).await.is_err() {
                return;
            }
        }
    }

    /// Writes all of `bytes`, waiting for the reader.
    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let attempt = |fd: &OwnedFd, how: How| match how {
                How::Plain => write(fd, bytes),
                How::NoWait => send(
                    fd.as_raw_fd(),
                    bytes,
                    MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL,
                ),
                How::AskFirst => ready(fd, PollFlags::POLLOUT)
                    .and_then(|()| write(fd, &bytes[..bytes.len().min(PIECE)])),
            };
            let count = self.0.attempt(Interest::WRITABLE, attempt).await?;
            bytes = &bytes[count..];
        }
        Ok(())
    }
}

/// How one read or write avoids blocking.
enum How {
    Plain,
    NoWait,
    AskFirst,
}

impl Stream {
    fn of(fd: BorrowedFd, access: OFlag, interest: Interest) -> io::Result<Self> {
        // Deprecated for types whose descriptor may change or close while watched. An `OwnedFd` never does; the successor requires
        // that as an `unsafe` promise, because a trait cannot check it.
        #[allow(deprecated)]
        let watch = |fd: OwnedFd| AsyncFd::try_with_interest(fd, interest);
        let kind = SFlag::from_bits_truncate(fstat(fd)?.st_mode & SFlag::S_IFMT.bits());
        if kind == SFlag::S_IFIFO || kind == SFlag::S_IFCHR {
            let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
            let flags = access | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
            #[expect(
                clippy::disallowed_methods,
                reason = "what it opens is no file but our own pipe or terminal"
            )]
            let own = open(path.as_str(), flags, Mode::empty());
            if let Some(own) = own.ok().and_then(|own| watch(own).ok()) {
                return Ok(Self::Reopened(own));
            }
        }
        let (fd, cause) = match watch(fd.try_clone_to_owned()?) {
            Ok(fd) if kind == SFlag::S_IFSOCK => return Ok(Self::Socket(fd)),
            Ok(fd) => return Ok(Self::Shared(fd)),
            Err(refused) => refused.into_parts(),
        };
        // What `epoll` refuses to watch is always ready.
        if cause.kind() == io::ErrorKind::PermissionDenied {
            Ok(Self::File(fd))
        } else {
            Err(cause)
        }
    }

    async fn attempt(
        &self,
        interest: Interest,
        mut once: impl FnMut(&OwnedFd, How) -> nix::Result<usize>,
    ) -> io::Result<usize> {
        match self {
            Self::File(fd) => {
                // Lets other tasks run in between, as they would have if we had waited.
                tokio::task::yield_now().await;
                uninterrupted(|| once(fd, How::Plain))
            }
            Self::Reopened(fd) => {
                fd.async_io(interest, |fd| uninterrupted(|| once(fd, How::Plain)))
                    .await
            }
            Self::Socket(fd) => {
                fd.async_io(interest, |fd| uninterrupted(|| once(fd, How::NoWait)))
                    .await
            }
            Self::Shared(fd) => {
                fd.async_io(interest, |fd| uninterrupted(|| once(fd, How::AskFirst)))
                    .await
            }
        }
    }
}

/// Repeats a call that a signal interrupted.
fn uninterrupted(mut attempt: impl FnMut() -> nix::Result<usize>) -> io::Result<usize> {
    loop {
        match attempt() {
            Err(Errno::EINTR) => {}
            result => return Ok(result?),
        }
    }
}

fn ready(fd: &OwnedFd, event: PollFlags) -> nix::Result<()> {
    match poll(&mut [PollFd::new(fd.as_fd(), event)], PollTimeout::ZERO)? {
        0 => Err(Errno::EAGAIN),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{FcntlArg, fcntl};
    use std::future::poll_fn;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::pin::{Pin, pin};
    use std::task::Poll;

    const MUCH: usize = 1_000_000;

    fn block_on<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(future)
    }

    /// Whether a future that has begun waits.
    async fn is_pending<F: Future>(mut future: Pin<&mut F>) -> bool {
        poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending())).await
    }

    fn is_blocking(fd: &impl AsFd) -> bool {
        !OFlag::from_bits_truncate(fcntl(fd, FcntlArg::F_GETFL).unwrap())
            .contains(OFlag::O_NONBLOCK)
    }

    /// Writes [`MUCH`] through what `wrap` makes of `end`, while another thread reads the other end late.
    fn writes(
        mut other: impl Read + Send + 'static,
        end: &OwnedFd,
        wrap: fn(BorrowedFd) -> Stream,
    ) -> usize {
        let reader = block_on(async {
            let (output, bytes) = (OutputStream(wrap(end.as_fd())), vec![b'x'; MUCH]);
            let mut written = pin!(output.write_all(&bytes));
            assert!(is_pending(written.as_mut()).await, "there is room for all");
            let reader = std::thread::spawn(move || {
                let mut got = vec![0; MUCH];
                other.read_exact(&mut got).map(|()| got.len()).unwrap()
            });
            written.await.unwrap();
            reader
        });
        assert!(is_blocking(end));
        reader.join().unwrap()
    }

    /// Reads to the end through what `wrap` makes of `end`, while another thread writes [`MUCH`].
    fn reads(
        mut other: impl Write + Send + 'static,
        end: &OwnedFd,
        wrap: fn(BorrowedFd) -> Stream,
    ) -> usize {
        let (total, writer) = block_on(async {
            let input = InputStream {
                stream: wrap(end.as_fd()),
                terminal: false,
            };
            let (mut first, mut buffer) = ([0; 5000], [0; 5000]);
            let mut begun = pin!(input.read(&mut first));
            assert!(is_pending(begun.as_mut()).await, "nothing is written");
            let writer = std::thread::spawn(move || other.write_all(&[b'x'; MUCH]).unwrap());
            let mut total = begun.await.unwrap();
            while let count @ 1.. = input.read(&mut buffer).await.unwrap() {
                total += count;
            }
            (total, writer)
        });
        assert!(is_blocking(end));
        writer.join().unwrap();
        total
    }

    #[test]
    fn a_pipe_is_opened_anew_and_stays_as_it_was_for_others() {
        let (reader, writer) = std::io::pipe().unwrap();
        let own = |fd: BorrowedFd| {
            let stream = Stream::of(fd, OFlag::O_WRONLY, Interest::WRITABLE).unwrap();
            assert!(matches!(stream, Stream::Reopened(_)));
            stream
        };
        assert_eq!(writes(reader, &writer.into(), own), MUCH);
        let (reader, writer) = std::io::pipe().unwrap();
        let own = |fd: BorrowedFd| Stream::of(fd, OFlag::O_RDONLY, Interest::READABLE).unwrap();
        assert_eq!(reads(writer, &reader.into(), own), MUCH);
    }

    #[test]
    fn a_pipe_that_cannot_be_opened_anew_is_asked_first() {
        #[allow(deprecated)]
        let shared = |fd: BorrowedFd| {
            Stream::Shared(AsyncFd::new(fd.try_clone_to_owned().unwrap()).unwrap())
        };
        let (reader, writer) = std::io::pipe().unwrap();
        assert_eq!(writes(reader, &writer.into(), shared), MUCH);
        let (reader, writer) = std::io::pipe().unwrap();
        assert_eq!(reads(writer, &reader.into(), shared), MUCH);
    }

    #[test]
    fn a_socket_takes_a_flag_with_each_call() {
        let socket = |fd: BorrowedFd| {
            let stream =
                Stream::of(fd, OFlag::O_RDWR, Interest::READABLE | Interest::WRITABLE).unwrap();
            assert!(matches!(stream, Stream::Socket(_)));
            stream
        };
        let (ours, theirs) = UnixStream::pair().unwrap();
        assert_eq!(writes(theirs, &ours.into(), socket), MUCH);
        let (ours, theirs) = UnixStream::pair().unwrap();
        assert_eq!(reads(theirs, &ours.into(), socket), MUCH);
    }

    #[test]
    fn a_reader_that_is_gone_is_an_error() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let result = block_on(async {
            let stream = Stream::of(writer.as_fd(), OFlag::O_WRONLY, Interest::WRITABLE).unwrap();
            OutputStream(stream).write_all(b"x").await
        });
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
