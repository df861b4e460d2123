//! Watches how requests of HTTP/1.1 are delimited, in front of hyper: what two servers may delimit differently is answered with 400.
//! hyper reads such requests in one way and forgets that there was another.
//!
//! A head is held back until it is whole, so that nothing of a bad one is acted upon.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Bytes that no request begins with: hyper answers 400 and closes.
const NO_REQUEST: &[u8] = b"\0\r\n\r\n";
/// Maximum length of a line that delimits a chunk.
const CHUNK_LINE: usize = 1024;
const HEADERS: usize = 100;
/// Maximum length of a request's head, and of trailers, in bytes.
pub const HEAD: usize = 64 * 1024;

/// Reads that hold back heads.
pub struct Framed<S> {
    inner: S,
    state: FramingState,
    /// A head that is not whole yet.
    head: Vec<u8>,
    ready: Vec<u8>,
    taken: usize,
    /// Set when the connection has become a WebSocket.
    upgraded: Arc<AtomicBool>,
    begin: Duration,
    /// When the head that has begun has to be there.
    deadline: Option<Pin<Box<Sleep>>>,
    is_end: bool,
}

enum FramingState {
    Head,
    Body(u64),
    Chunk(Vec<u8>),
    ChunkData(u64),
    Trailer(Vec<u8>),
    /// hyper sees all as it is: it refuses what follows, or it is no HTTP.
    Open,
    Refused,
}

impl<S> Framed<S> {
    /// A request's head has to be whole `begin` after its first byte.
    pub fn new(inner: S, begin: Duration, upgraded: Arc<AtomicBool>) -> Self {
        Self {
            inner,
            state: FramingState::Head,
            head: Vec::new(),
            ready: Vec::new(),
            taken: 0,
            upgraded,
            begin,
            deadline: None,
            is_end: false,
        }
    }

    fn feed(&mut self, bytes: Vec<u8>) {
        let (mut bytes, mut at) = (bytes, 0);
        while at < bytes.len() {
            if self.upgraded.load(Ordering::Relaxed) {
                self.state = FramingState::Open;
                self.ready.append(&mut self.head);
            }
            let rest = &bytes[at..];
            let taken = match &mut self.state {
                FramingState::Head => {
                    let is_line = self.head.is_empty() || memchr::memchr(b'\n', rest).is_some();
                    self.head.extend_from_slice(rest);
                    bytes = if is_line || self.head.len() > HEAD {
                        self.head()
                    } else {
                        Vec::new()
                    };
                    at = 0;
                    continue;
                }
                FramingState::Body(left) | FramingState::ChunkData(left) => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    *left -= taken as u64;
                    taken
                }
                FramingState::Chunk(line) | FramingState::Trailer(line) => take_line(line, rest),
                FramingState::Open => rest.len(),
                FramingState::Refused => return,
            };
            self.ready.extend_from_slice(&rest[..taken]);
            at += taken;
            if !self.advance() {
                return self.refuse();
            }
        }
    }

    /// The next state, once bytes were taken. `false` if they delimit nothing.
    fn advance(&mut self) -> bool {
        self.state = match std::mem::replace(&mut self.state, FramingState::Head) {
            FramingState::Body(0) => FramingState::Head,
            // The line end after a chunk is read as an empty line before the next one.
            FramingState::ChunkData(0) => FramingState::Chunk(b"\n".to_vec()),
            FramingState::Chunk(line) => match chunk(&line) {
                ChunkLine::Partial => FramingState::Chunk(line),
                ChunkLine::Next => FramingState::Chunk(Vec::new()),
                ChunkLine::Data(length) => FramingState::ChunkData(length),
                ChunkLine::Last => FramingState::Trailer(Vec::new()),
                ChunkLine::Malformed => return false,
            },
            FramingState::Trailer(line) if line == b"\r\n" => FramingState::Head,
            FramingState::Trailer(line) if line.ends_with(b"\n") => {
                FramingState::Trailer(Vec::new())
            }
            FramingState::Trailer(line) if line.len() > HEAD => return false,
            state => state,
        };
        true
    }

    /// Passes on a head that is whole. Returns what follows it.
    fn head(&mut self) -> Vec<u8> {
        match delimited(&self.head) {
            Delimited::Partial if self.head.len() <= HEAD => {}
            // hyper refuses it by its own limits and says how.
            Delimited::Partial | Delimited::Other => {
                self.state = FramingState::Open;
                self.ready.append(&mut self.head);
            }
            Delimited::Twice => self.refuse(),
            Delimited::Whole(length, state) => {
                self.state = state;
                self.deadline = None;
                let rest = self.head.split_off(length);
                self.ready.append(&mut self.head);
                return rest;
            }
        }
        Vec::new()
    }

    fn refuse(&mut self) {
        self.head.clear();
        self.ready.extend_from_slice(NO_REQUEST);
        self.state = FramingState::Refused;
    }

    /// An error when the head that has begun is not there in time.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.head.is_empty() {
            self.deadline = None;
            return Poll::Pending;
        }
        let begin = self.begin;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(begin)));
        ready!(deadline.as_mut().poll(cx));
        Poll::Ready(io::ErrorKind::TimedOut.into())
    }
}

/// Adds bytes to a line up to its end.
fn take_line(line: &mut Vec<u8>, rest: &[u8]) -> usize {
    let length = memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
    line.extend_from_slice(&rest[..length]);
    length
}

enum ChunkLine {
    Partial,
    Next,
    Data(u64),
    Last,
    Malformed,
}

/// Reads the line before a chunk. After a chunk's data, it begins with the line end that belongs to that.
fn chunk(line: &[u8]) -> ChunkLine {
    if let Some(end) = line.strip_prefix(b"\n") {
        return match end {
            b"" | b"\r" => ChunkLine::Partial,
            b"\r\n" => ChunkLine::Next,
            _ => ChunkLine::Malformed,
        };
    }
    let Some(line) = line.strip_suffix(b"\n") else {
        return if line.len() > CHUNK_LINE {
            ChunkLine::Malformed
        } else {
            ChunkLine::Partial
        };
    };
    let Some(line) = line
        .strip_suffix(b"\r")
        .filter(|line| line.len() <= CHUNK_LINE)
    else {
        return ChunkLine::Malformed;
    };
    let digits = line.split(|byte| *byte == b';').next().unwrap_or(line);
    let digits = digits.trim_ascii_end();
    let number = std::str::from_utf8(digits)
        .ok()
        .filter(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit()))
        .and_then(|digits| u64::from_str_radix(digits, 16).ok());
    match number {
        Some(0) => ChunkLine::Last,
        Some(length) => ChunkLine::Data(length),
        None => ChunkLine::Malformed,
    }
}

enum Delimited {
    Partial,
    /// The length of the head, and what follows it.
    Whole(usize, FramingState),
    /// Two servers may find different ends.
    Twice,
    /// httparse, by which hyper reads too, refuses it.
    Other,
}

fn delimited(bytes: &[u8]) -> Delimited {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Delimited::Partial,
        Err(_) => return Delimited::Other,
    };
    let of = |name: &str| {
        let is = |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case(name);
        let values = request.headers.iter().filter(is);
        values.map(|header| header.value).collect::<Vec<_>>()
    };
    let (lengths, codings) = (of("content-length"), of("transfer-encoding"));
    let state = match (&lengths[..], &codings[..]) {
        ([], []) => FramingState::Head,
        ([one], []) => match number(one) {
            Some(0) => FramingState::Head,
            Some(length) => FramingState::Body(length),
            None => return Delimited::Twice,
        },
        ([], [one]) if one.eq_ignore_ascii_case(b"chunked") && request.version == Some(1) => {
            FramingState::Chunk(Vec::new())
        }
        _ => return Delimited::Twice,
    };
    Delimited::Whole(length, state)
}

fn number(text: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(text).ok()?;
    (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| digits.parse().ok())?
}

impl<S: AsyncRead + Unpin> AsyncRead for Framed<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.taken < this.ready.len() {
                let left = &this.ready[this.taken..];
                let length = left.len().min(buf.remaining());
                buf.put_slice(&left[..length]);
                this.taken += length;
                return Poll::Ready(Ok(()));
            }
            this.ready.clear();
            this.taken = 0;
            if this.is_end || matches!(this.state, FramingState::Refused) {
                return Poll::Ready(Ok(()));
            }
            if let Poll::Ready(error) = this.poll_deadline(cx) {
                return Poll::Ready(Err(error));
            }
            let mut bytes = [0; 16 * 1024];
            let mut read = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut this.inner).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                this.is_end = true;
                // hyper says what it thinks of half a head.
                this.ready.append(&mut this.head);
            } else {
                this.feed(read.filled().to_vec());
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Framed<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    /// What hyper reads of requests that arrive in parts.
    async fn read(text: &[u8], part: usize) -> Vec<u8> {
        let (mut write, inner) = tokio::io::duplex(1 << 20);
        let mut framed = Framed::new(inner, Duration::from_secs(9), Arc::default());
        let mut out = Vec::new();
        for part in text.chunks(part) {
            tokio::io::AsyncWriteExt::write_all(&mut write, part)
                .await
                .unwrap();
        }
        drop(write);
        framed.read_to_end(&mut out).await.unwrap();
        out
    }

    #[tokio::test]
    async fn two_ways_to_delimit_a_body_are_refused() {
        for head in [
            "Content-Length: 1\r\nContent-Length: 1\r\n",
            "Content-Length: 1\r\nContent-Length: 2\r\n",
            "Content-Length: 1, 1\r\n",
            "Content-Length: +1\r\n",
            "Content-Length: \r\n",
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "Transfer-Encoding: chunked,\r\n",
            "Transfer-Encoding: , chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: identity\r\n",
            "Transfer-Encoding: xchunked\r\n",
        ] {
            let text =
                format!("POST / HTTP/1.1\r\nHost: a\r\n{head}\r\nGET /next HTTP/1.1\r\n\r\n");
            for part in [1, 3, 1000] {
                assert_eq!(read(text.as_bytes(), part).await, NO_REQUEST, "{head}");
            }
        }
        let old = b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(read(old, 9).await, NO_REQUEST);
    }

    #[tokio::test]
    async fn requests_pass_as_they_are_and_bad_ones_after_them_do_not() {
        let good = concat!(
            "\r\nPOST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n\r\n\r\n23456",
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding:  Chunked \r\n\r\n5;x=y\r\nab\r\nc\r\nA\r\n0123456789\r\n",
            "0\r\nX-Trailer: 1\r\n\r\n",
            "POST / HTTP/1.1\nContent-Length: 0\n\n",
        );
        let bad = "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n";
        for part in [1, 2, 7, 10_000] {
            assert_eq!(read(good.as_bytes(), part).await, good.as_bytes());
            let out = read(format!("{good}{bad}x").as_bytes(), part).await;
            assert_eq!(out, [good.as_bytes(), NO_REQUEST].concat(), "{part}");
        }
    }

    #[tokio::test]
    async fn malformed_chunks_end_the_connection() {
        for chunk in [
            "5\nabcde",
            "x\r\n",
            "\r\n",
            "5 5\r\n",
            "3\r\nabcd\r\n",
            "fffffffffffffffff\r\n",
        ] {
            let head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
            let out = read(
                format!("{head}{chunk}0\r\n\r\nGET / HTTP/1.1\r\n\r\n").as_bytes(),
                5,
            )
            .await;
            assert!(out.ends_with(NO_REQUEST), "{chunk}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_does_not_end_is_cut() {
        let (mut write, inner) = tokio::io::duplex(1 << 20);
        let mut framed = Framed::new(inner, Duration::from_secs(9), Arc::default());
        tokio::io::AsyncWriteExt::write_all(&mut write, b"GET / HT")
            .await
            .unwrap();
        let error = framed.read(&mut [0; 9]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
