//! Clients of published ports: each is led into the session if its program is this user's, and bytes are passed both ways.

use crate::relay::published::{CLIENTS, PublishedSockets, Ways};
use crate::relay::tunnel::{self, Idle, TunnelStart};
use crate::relay::{IDLE, LOOK, Relay};
use crate::traffic::NO_CALL;
use broker_protocol::ConnectionVerdict;
use orchestrator_reach::guard::Resolve;
use orchestrator_reach::place::Place;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// A connection without a byte ends where fewer than these places are free.
const SPARE: usize = CLIENTS / 2;

/// A client of a published port, and where it leads.
struct PublishedClient {
    stream: TcpStream,
    /// The address at which it has connected.
    at: SocketAddr,
    port: u16,
}

impl<R: Resolve + 'static> Relay<R> {
    /// Serves the published ports, each in a task of `tasks`.
    ///
    /// # Errors
    /// If a socket cannot be watched.
    pub(super) fn publish(
        self: &Rc<Self>,
        published: PublishedSockets,
        tasks: &mut JoinSet<()>,
    ) -> io::Result<()> {
        let PublishedSockets { listeners, ways } = published;
        let ways = Rc::new(ways);
        for (listener, port) in listeners {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tasks.spawn_local(self.clone().serve_published(listener, port, ways.clone()));
        }
        Ok(())
    }

    async fn serve_published(
        self: Rc<Self>,
        listener: tokio::net::TcpListener,
        port: u16,
        ways: Rc<Ways>,
    ) {
        let mut clients = JoinSet::new();
        loop {
            while clients.try_join_next().is_some() {}
            match (listener.accept().await, listener.local_addr()) {
                (Ok((stream, peer)), Ok(at)) => {
                    if !ways.owners.is_own(peer, at) {
                        let _ = stream.set_zero_linger();
                        self.refuse_stranger(at).await;
                        continue;
                    }
                    // The semaphore is never closed, so this succeeds in the end.
                    let place = ways.places.clone().acquire_owned().await.ok();
                    let (relay, ways) = (self.clone(), ways.clone());
                    let client = PublishedClient { stream, at, port };
                    clients.spawn_local(async move {
                        relay.lead_in(client, &ways).await;
                        drop(place);
                    });
                }
                // The client is gone, or this process has too many open files until others close some.
                (Err(_), _) | (_, Err(_)) => sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Reports a connection of somebody else. These take no turn of this user's, and as many reports as have one.
    async fn refuse_stranger(&self, at: SocketAddr) {
        if self.strangers.has_turn() {
            let why = "a program of another user connected to a published port, or one that was gone already";
            let why = (Some(why.to_owned()), None);
            let place = Place::new("127.0.0.1", at.port()).ok();
            self.tell((place.as_ref(), NO_CALL), ConnectionVerdict::Stranger, why)
                .await;
        }
    }

    /// Carries a client's connection into the session until it ends. A client that gets none sees its connection reset.
    async fn lead_in(&self, client: PublishedClient, ways: &Ways) {
        let PublishedClient { stream, at, port } = client;
        // A failure only makes small messages slower.
        let _ = stream.set_nodelay(true);
        let place = Place::new("127.0.0.1", at.port()).ok();
        self.clients.turn().await;
        match ways.connect(port).await {
            Ok(server) => {
                let open = self
                    .connected((place.as_ref(), NO_CALL), ConnectionVerdict::Published)
                    .await;
                let _ = server.set_nodelay(true);
                let beginning = TunnelStart {
                    first: Vec::new(),
                    host: None,
                    watched: None,
                    traffic: open.traffic.clone(),
                };
                tunnel::pass(&stream, &server, beginning, idle(&ways.places)).await;
            }
            Err(error) => {
                let _ = stream.set_zero_linger();
                let why = format!("nothing in the session listens at port {port}: {error}");
                self.tell(
                    (place.as_ref(), NO_CALL),
                    ConnectionVerdict::Unreachable,
                    (Some(why), None),
                )
                .await;
            }
        }
    }
}

/// A quiet connection ends where others may need its place.
fn idle(places: &Semaphore) -> Idle<impl Fn() -> bool + '_> {
    Idle {
        limit: IDLE,
        look: LOOK,
        is_crowded: || places.available_permits() < SPARE,
    }
}
