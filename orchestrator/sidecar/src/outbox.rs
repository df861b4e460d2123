//! What waits to be sent to one client, within bounds: a client that does not read holds up what it alone hears for a while, and is
//! then given up. Events of a run go at the pace of whoever reads them fastest: one slow client delays no other one.

use crate::packet::Packet;
use futures_util::future::select_all;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Bytes that may wait for one client before what it alone hears waits for it.
const PACE: usize = 4 << 20;
/// Most bytes that wait for one client: of one packet more than that, since none counts more.
const BYTES: usize = 2 * PACE;
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
        let room = tokio::select! {
            room = timeout(STALL, self.room.clone().acquire_many_owned(room_of(&packet))) => room,
            () = self.closed() => return Err(Gone),
        };
        let Ok(Ok(_room)) = room else {
            self.give_up();
            return Err(Gone);
        };
        self.queue.send(Waiting { packet, _room }).map_err(|_| Gone)
    }

    /// Sends a packet at once. A client for which there is no room is given up.
    ///
    /// # Errors
    /// The client is gone.
    pub fn post(&self, packet: Rc<Packet>) -> Result<(), Gone> {
        let Ok(_room) = self.room.clone().try_acquire_many_owned(room_of(&packet)) else {
            self.give_up();
            return Err(Gone);
        };
        self.queue.send(Waiting { packet, _room }).map_err(|_| Gone)
    }

    /// Waits until fewer than [`PACE`] bytes wait for the client, or it is gone.
    async fn has_room(&self) {
        tokio::select! {
            // Given back at once: it is only looked whether there is so much.
            _ = self.room.acquire_many(PACE as u32) => {}
            () = self.closed() => {}
        }
    }

    fn give_up(&self) {
        self.given_up.cancel();
    }

    /// Waits until the client is gone.
    pub async fn closed(&self) {
        tokio::select! {
            () = self.queue.closed() => {}
            () = self.given_up.cancelled() => {}
        }
    }
}

fn room_of(packet: &Packet) -> u32 {
    packet.size().min(PACE) as u32
}

/// Waits until one of `clients` has room for more. Where none has within [`STALL`], all are given up.
pub async fn any_has_room(clients: &[Outbox]) {
    if clients.is_empty() {
        return;
    }
    let first = select_all(clients.iter().map(|client| Box::pin(client.has_room())));
    if timeout(STALL, first).await.is_err() {
        clients.iter().for_each(Outbox::give_up);
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
        assert_eq!(outbox.send(packet(PACE)).await, Ok(()));
        let reading = async {
            tokio::time::sleep(STALL / 2).await;
            queue.next().await.is_some()
        };
        let (sent, read) = tokio::join!(outbox.send(packet(1)), reading);
        assert!(sent.is_ok() && read);
        assert!(queue.next().await.is_some() && queue.next().await.is_some());
        outbox.send(packet(PACE)).await.unwrap();
        outbox.send(packet(PACE)).await.unwrap();
        let begun = Instant::now();
        assert_eq!(outbox.send(packet(1)).await, Err(Gone));
        assert_eq!(begun.elapsed(), STALL);
        assert!(queue.next().await.is_none());
        outbox.closed().await;
    }

    #[tokio::test]
    async fn a_client_that_has_gone_holds_up_nobody() {
        let (outbox, queue) = outbox();
        outbox.send(packet(PACE)).await.unwrap();
        outbox.send(packet(PACE)).await.unwrap();
        drop(queue);
        assert_eq!(outbox.send(packet(1)).await, Err(Gone));
        outbox.closed().await;
    }
}
