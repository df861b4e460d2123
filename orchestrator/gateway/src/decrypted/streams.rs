//! Streams of bytes beneath a connection that is decrypted: with the bytes that were read too early, and with a clock of the last byte.

use super::limits::Times;
use crate::traffic::Traffic;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep, sleep_until};

/// The last byte on any of a connection's streams.
pub(super) struct Activity {
    begun: Instant,
    last: AtomicU64,
    /// Requests that wait for the answer to a question.
    held: AtomicUsize,
}

impl Activity {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            begun: Instant::now(),
            last: AtomicU64::new(0),
            held: AtomicUsize::new(0),
        })
    }

    fn note(&self) {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// A request of the connection is held until this is dropped: that is no quiet.
    pub(super) fn hold(self: &Arc<Self>) -> HeldActivity {
        self.held.fetch_add(1, Ordering::Relaxed);
        HeldActivity(self.clone())
    }

    /// Returns when there was no byte for the time that a connection may be idle, and others need its place.
    pub(super) async fn ended(&self, times: Times, is_crowded: impl Fn() -> bool) {
        loop {
            let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
            let end = self.begun + last + times.idle;
            if Instant::now() < end {
                sleep_until(end).await;
            } else if self.held.load(Ordering::Relaxed) == 0 && is_crowded() {
                return;
            } else {
                sleep(times.look).await;
            }
        }
    }
}

/// A request of a connection that is held.
pub(super) struct HeldActivity(Arc<Activity>);

impl Drop for HeldActivity {
    fn drop(&mut self) {
        self.0.note();
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream whose bytes are noted.
pub(super) struct WatchedStream<S> {
    inner: S,
    activity: Arc<Activity>,
    /// Of a program's stream: counts its bytes.
    traffic: Option<Arc<Traffic>>,
}

impl<S> WatchedStream<S> {
    pub(super) fn new(inner: S, activity: Arc<Activity>) -> Self {
        Self {
            inner,
            activity,
            traffic: None,
        }
    }

    /// Counts the bytes of this stream, which is a program's.
    pub(super) fn counted(self, traffic: Arc<Traffic>) -> Self {
        let traffic = Some(traffic);
        Self { traffic, ..self }
    }

    fn note_written(&self, length: usize) {
        self.activity.note();
        let traffic = self.traffic.iter();
        traffic.for_each(|traffic| traffic.add_received(length));
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        self.activity.note();
        let traffic = self.traffic.iter();
        traffic.for_each(|traffic| traffic.add_sent(buf.filled().len() - before));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let length = ready!(Pin::new(&mut self.inner).poll_write(cx, buf))?;
        self.note_written(length);
        Poll::Ready(Ok(length))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, bufs))?;
        self.note_written(length);
        Poll::Ready(Ok(length))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

/// A stream that begins with bytes that were read from it already.
pub(super) struct Rewound<S> {
    first: Vec<u8>,
    inner: S,
}

impl<S: AsyncRead + Unpin> Rewound<S> {
    pub(super) fn new(first: Vec<u8>, inner: S) -> Self {
        Self { first, inner }
    }

    /// Reads on until `enough` of the first bytes are there, or the stream has ended. They will be read again.
    pub(super) async fn peek(&mut self, enough: impl Fn(&[u8]) -> bool) -> io::Result<&[u8]> {
        while !enough(&self.first) {
            if self.inner.read_buf(&mut self.first).await? == 0 {
                break;
            }
        }
        Ok(&self.first)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.inner).poll_read(cx, buf);
        }
        let length = self.first.len().min(buf.remaining());
        buf.put_slice(&self.first[..length]);
        self.first.drain(..length);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}
