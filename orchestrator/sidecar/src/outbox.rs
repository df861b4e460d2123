//! What waits to be sent to one client, within bounds: a client that does not read holds up its own run for a while, and is then
//! given up.

use crate::packet::Packet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Most bytes that wait for one client.
const BYTES: usize = 4 << 20;
/// How long a client may take nothing while something waits for it.
const STALL: Duration = Duration::from_secs(10);

static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// The way to one client.
#[derive(Clone)]
pub struct Outbox {
    /// Tells it from all others.
    pub number: u64,
    queue: UnboundedSender<Waiting>,
    room: Arc<Semaphore>,
    given_up: CancellationToken,
}

/// What waits for one client, for whoever sends it.
pub struct Queue {
    queue: UnboundedReceiver<Waiting>,
    given_up: CancellationToken,
}

/// A packet and the room that it takes until it is sent.
pub struct Waiting {
    /// The packet that is to be sent.
    pub packet: Rc<Packet>,
    _room: OwnedSemaphorePermit,
}

/// The client takes nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// A way to a client, and its end.
pub fn outbox() -> (Outbox, Queue) {
    let (queue, waiting) = unbounded_channel();
    let (room, given_up) = (Arc::new(Semaphore::new(BYTES)), CancellationToken::new());
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    (Outbox { number, queue, room, given_up: given_up.clone() }, Queue { queue: waiting, given_up })
}

impl Outbox {
    /// Sends a packet, once there is room.
    ///
    /// # Errors
    /// The client is gone, or has taken nothing for [`STALL`].
    pub async fn send(&self, packet: Rc<Packet>) -> Result<(), Gone> {
        let bytes = packet.size().min(BYTES) as u32;
        let room = tokio::select! {
            room = timeout(STALL, self.room.clone().acquire_many_owned(bytes)) => room,
            () = self.closed() => return Err(Gone),
        };
        let Ok(Ok(_room)) = room else {
            self.given_up.cancel();
            return Err(Gone);
        };
        self.queue.send(Waiting { packet, _room }).map_err(|_| Gone)
    }

    /// Waits until the client is gone.
    pub async fn closed(&self) {
        tokio::select! {
            () = self.queue.closed() => {}
            () = self.given_up.cancelled() => {}
        }
    }
}

impl Queue {
    /// The next packet; `None` when nobody sends any more, or the client is given up.
    pub async fn next(&mut self) -> Option<Waiting> {
        tokio::select! {
            biased;
            () = self.given_up.cancelled() => None,
            waiting = self.queue.recv() => waiting,
        }
    }

    /// The same, where a future is polled by hand. That the client is given up is seen with the next packet.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Waiting>> {
        if self.given_up.is_cancelled() { Poll::Ready(None) } else { self.queue.poll_recv(context) }
    }

    /// Waits until the client is given up.
    pub async fn given_up(&self) {
        self.given_up.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    fn packet(bytes: usize) -> Rc<Packet> {
        let payload = "x".repeat(bytes);
        Rc::new(Packet { kind: "chat:text-delta".into(), payload, timestamp: 0, sequence: None })
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_read_is_given_up_and_who_reads_late_is_not() {
        let (outbox, mut queue) = outbox();
        assert_eq!(outbox.send(packet(BYTES)).await, Ok(()), "one packet may be as large as all the room");
        let reading = async {
            tokio::time::sleep(STALL / 2).await;
            queue.next().await.is_some()
        };
        let (sent, read) = tokio::join!(outbox.send(packet(1)), reading);
        assert!(sent.is_ok() && read);
        assert!(queue.next().await.is_some());
        outbox.send(packet(BYTES)).await.unwrap();
        let begun = Instant::now();
        assert_eq!(outbox.send(packet(1)).await, Err(Gone));
        assert_eq!(begun.elapsed(), STALL);
        assert!(queue.next().await.is_none());
        outbox.closed().await;
    }

    #[tokio::test]
    async fn a_client_that_has_gone_holds_up_nobody() {
        let (outbox, queue) = outbox();
        outbox.send(packet(BYTES)).await.unwrap();
        drop(queue);
        assert_eq!(outbox.send(packet(1)).await, Err(Gone));
        outbox.closed().await;
    }
}
