//! The bounded queue of what is to be sent to one client. A client that does not read first delays what only it receives, and is
//! then disconnected. Events of a run go at the pace of the fastest reader, so one slow client delays no other.

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

/// Bytes that may wait for a client before messages for it alone have to wait.
const PACE: usize = 4 << 20;
/// Maximum bytes that wait for a client. A packet never counts as more than this.
const BYTES: usize = 2 * PACE;
/// How long a client may accept nothing while something waits for it.
const STALL: Duration = Duration::from_secs(10);

static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// Sends to one client.
#[derive(Clone)]
pub struct Outbox {
    /// Unique number of the client.
    pub number: u64,
    queue: UnboundedSender<WaitingPacket>,
    room: Arc<Semaphore>,
    given_up: CancellationToken,
}

/// The packets that wait for one client, for the task that sends them.
pub(crate) struct PacketQueue {
    queue: UnboundedReceiver<WaitingPacket>,
    given_up: CancellationToken,
}

/// A packet, with the room that it occupies until it is sent.
pub(crate) struct WaitingPacket {
    /// The packet that is to be sent.
    pub packet: Rc<Packet>,
    _room: OwnedSemaphorePermit,
}

/// The client no longer receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientGone;

/// An outbox for a client, with its queue.
pub(crate) fn outbox() -> (Outbox, PacketQueue) {
    let (queue, waiting) = unbounded_channel();
    let (room, given_up) = (Arc::new(Semaphore::new(BYTES)), CancellationToken::new());
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    (
        Outbox {
            number,
            queue,
            room,
            given_up: given_up.clone(),
        },
        PacketQueue {
            queue: waiting,
            given_up,
        },
    )
}

impl Outbox {
    /// Sends a packet once there is room.
    ///
    /// # Errors
    /// If the client is gone, or has accepted nothing for [`STALL`].
    pub async fn send(&self, packet: Rc<Packet>) -> Result<(), ClientGone> {
        let room = tokio::select! {
            room = timeout(STALL, self.room.clone().acquire_many_owned(room_of(&packet))) => room,
            () = self.closed() => return Err(ClientGone),
        };
        let Ok(Ok(_room)) = room else {
            self.give_up();
            return Err(ClientGone);
        };
        self.queue
            .send(WaitingPacket { packet, _room })
            .map_err(|_| ClientGone)
    }

    /// Sends a packet at once. If there is no room, the client is disconnected.
    ///
    /// # Errors
    /// If the client is gone.
    pub fn post(&self, packet: Rc<Packet>) -> Result<(), ClientGone> {
        let Ok(_room) = self.room.clone().try_acquire_many_owned(room_of(&packet)) else {
            self.give_up();
            return Err(ClientGone);
        };
        self.queue
            .send(WaitingPacket { packet, _room })
            .map_err(|_| ClientGone)
    }

    /// Waits until fewer than [`PACE`] bytes wait for the client, or it is gone.
    async fn wait_for_room(&self) {
        tokio::select! {
            // Released at once: this only waits until there is that much room.
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

/// Waits until one of `clients` has room for more. If none has within [`STALL`], all are disconnected.
pub(crate) async fn any_has_room(clients: &[Outbox]) {
    if clients.is_empty() {
        return;
    }
    let first = select_all(
        clients
            .iter()
            .map(|client| Box::pin(client.wait_for_room())),
    );
    if timeout(STALL, first).await.is_err() {
        clients.iter().for_each(Outbox::give_up);
    }
}

impl PacketQueue {
    /// The next packet; `None` when all senders are gone or the client is disconnected.
    pub(crate) async fn next(&mut self) -> Option<WaitingPacket> {
        tokio::select! {
            biased;
            () = self.given_up.cancelled() => None,
            waiting = self.queue.recv() => waiting,
        }
    }

    /// The same for a future that is polled by hand. It notices a disconnected client only with the next packet.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<WaitingPacket>> {
        if self.given_up.is_cancelled() {
            Poll::Ready(None)
        } else {
            self.queue.poll_recv(context)
        }
    }

    /// Waits until the client is disconnected for not reading.
    pub(crate) async fn given_up(&self) {
        self.given_up.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    fn packet(bytes: usize) -> Rc<Packet> {
        let payload = "x".repeat(bytes);
        Rc::new(Packet {
            kind: "chat:text-delta".into(),
            payload,
            timestamp: 0,
            sequence: None,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_does_not_read_is_dropped_and_a_slow_one_is_not() {
        let (outbox, mut queue) = outbox();
        assert_eq!(
            outbox.send(packet(BYTES)).await,
            Ok(()),
            "one packet may be as large as all the room"
        );
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
        assert_eq!(outbox.send(packet(1)).await, Err(ClientGone));
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
        assert_eq!(outbox.send(packet(1)).await, Err(ClientGone));
        outbox.closed().await;
    }
}
