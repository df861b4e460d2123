//! The transport of 2024 for a server with an address: one stream of events, the first of which names the address for messages.

use crate::http::RemoteServer;
use crate::messages::{Messages, read};
use crate::state::ServerState;
use futures_util::StreamExt;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use orchestrator_reach::target::Target;
use rmcp::RoleClient;
use rmcp::service::RxJsonRpcMessage;
use std::future::pending;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_local};

/// How many messages may wait in each direction.
const WAITING: usize = 64;

/// Opens the stream of `server`. Reading and posting end with the task.
pub(crate) fn connect(server: RemoteServer, state: Arc<ServerState>) -> (Messages, JoinHandle<()>) {
    let (incoming, received) = mpsc::channel(WAITING);
    let (outgoing, sent) = mpsc::channel(WAITING);
    let task = spawn_local(async move {
        let why = pump(&server, &incoming, sent).await;
        state.end(why);
    });
    (Messages::new(received, outgoing), task)
}

/// Passes messages in both directions until one of them ends; returns why.
async fn pump(
    server: &RemoteServer,
    incoming: &mpsc::Sender<RxJsonRpcMessage<RoleClient>>,
    outgoing: mpsc::Receiver<Vec<u8>>,
) -> String {
    let request = server.host().client().get(server.host().target());
    let response = match server
        .send(
            request.header(ACCEPT, HeaderValue::from_static("text/event-stream")),
            None,
        )
        .await
    {
        Ok(response) if response.status().is_success() => response,
        Ok(response) => return format!("answered with HTTP status {}", response.status().as_u16()),
        Err(_) => {
            return server
                .trouble()
                .unwrap_or_else(|| "refused its stream of events".to_owned());
        }
    };
    let mut events = server.events(response);
    let endpoint = loop {
        match events.next().await {
            Some(Ok(event)) if event.event.as_deref() == Some("endpoint") => {
                break event.data.unwrap_or_default();
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => {
                return "ended its stream before it had sent the address for messages".to_owned();
            }
        }
    };
    let endpoint = match server.host().target().join(&endpoint) {
        Ok(endpoint) if server.host().serves(&endpoint) => endpoint,
        Ok(_) | Err(_) => return "wants messages sent to a host other than its own".to_owned(),
    };
    let hear = async {
        while let Some(Ok(event)) = events.next().await {
            let message = event.data.map(|data| read(data.as_bytes()));
            if let Some(Ok(message)) = message {
                let _ = incoming.send(message).await;
            }
        }
        "ended its stream".to_owned()
    };
    tokio::select! {
        why = feed(server, &endpoint, outgoing) => why,
        why = hear => why,
    }
}

/// Posts outgoing messages in order.
async fn feed(
    server: &RemoteServer,
    endpoint: &Target,
    mut outgoing: mpsc::Receiver<Vec<u8>>,
) -> String {
    while let Some(line) = outgoing.recv().await {
        let request = server.host().client().post(endpoint);
        let json = HeaderValue::from_static("application/json");
        let request = request.header(CONTENT_TYPE, json).body(line);
        match server.send(request, None).await {
            Ok(response) if response.status().is_success() => {}
            Ok(response) => {
                return format!(
                    "took a message with HTTP status {}",
                    response.status().as_u16()
                );
            }
            Err(_) => {
                return server
                    .trouble()
                    .unwrap_or_else(|| "refused a message".to_owned());
            }
        }
    }
    // The client is gone, and its end ends this too.
    pending().await
}
