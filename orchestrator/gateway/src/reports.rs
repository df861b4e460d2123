//! Frames to the broker.

use broker_protocol::encode;
use broker_protocol::gateway::FromGateway;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::sleep;

/// How often to try again while the broker takes nothing.
const PAUSE: Duration = Duration::from_millis(5);

/// Sends frames in order. What the socket does not take waits, and whoever has to be sure waits with it.
#[derive(Clone)]
pub(crate) struct ReportSender(Rc<FrameQueue>);

struct FrameQueue {
    socket: UnixStream,
    waiting: RefCell<Vec<u8>>,
    dirty: Notify,
    /// Signals that nothing waits any more.
    drained: Notify,
}

impl ReportSender {
    /// Sends over `socket`, which does not block from now on.
    ///
    /// # Errors
    /// If it cannot be made non-blocking.
    pub(crate) fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self(Rc::new(FrameQueue {
            socket,
            waiting: RefCell::default(),
            dirty: Notify::new(),
            drained: Notify::new(),
        })))
    }

    /// Sends a frame now, or as soon as the broker takes it.
    pub(crate) fn send(&self, frame: &FromGateway) {
        let mut waiting = self.0.waiting.borrow_mut();
        let waits = !waiting.is_empty();
        // Every frame of ours fits: its parts have limits.
        if encode(frame, &mut waiting).is_ok() && !waits && self.0.write(&mut waiting) {
            self.0.dirty.notify_one();
        }
    }

    /// Waits until all is heard that the broker has sent. It sends a lease before the call with it begins, but over another socket than
    /// that by which connections come.
    pub(crate) async fn all_heard(&self) {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        while recv(&self.0.socket, &mut [0], flags).is_ok_and(|(count, _)| count > 0) {
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until all frames are sent.
    pub(crate) async fn sent(&self) {
        while !self.0.waiting.borrow().is_empty() {
            self.0.drained.notified().await;
        }
        // Only one waiter was woken; wake the next.
        self.0.drained.notify_one();
    }

    /// Writes what waits, for ever. One task of the program does this.
    pub(crate) async fn write(&self) {
        loop {
            self.0.dirty.notified().await;
            while self.0.write(&mut self.0.waiting.borrow_mut()) {
                sleep(PAUSE).await;
            }
            self.0.drained.notify_one();
        }
    }
}

impl FrameQueue {
    /// Writes what the socket takes; returns whether some still waits.
    fn write(&self, waiting: &mut Vec<u8>) -> bool {
        while !waiting.is_empty() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(self.socket.as_fd(), waiting, flags) {
                Ok(count) => drop(waiting.drain(..count)),
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
                // The broker is gone: the task that reads sees it and ends this program.
                Err(_) => waiting.clear(),
            }
        }
        false
    }
}
