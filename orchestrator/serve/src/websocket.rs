//! A WebSocket: the handshake, and the messages in both directions until one side is gone.

use crate::client::Client;
use crate::guard::{PROTOCOL, offered};
use crate::incoming::MESSAGE_MAX;
use crate::outbox::{PacketQueue, outbox};
use crate::rate::Rates;
use crate::response::{ResponseBody, error_reply, too_often};
use crate::service::ServeState;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::upgrade::Upgraded;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use orchestrator_wire::error::ErrorCode;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};
use tracing::Instrument;

/// Messages a second that are read from one client. Faster ones wait in the network.
const MESSAGES_PER_SECOND: u32 = 50;
/// How often to send a ping.
const PING: Duration = Duration::from_secs(20);
/// How long a client may be silent, without even answering pings.
const SILENCE: Duration = Duration::from_secs(60);
/// How long a client may take to receive the last message.
const CLOSING: Duration = Duration::from_secs(2);
/// Maximum bytes to collect for one write.
const WRITE: usize = 64 << 10;

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// The response to an upgrade request; the connection then runs in a task of its own.
pub(crate) fn upgrade(
    service: Rc<ServeState>,
    mut request: Request<Incoming>,
) -> Response<ResponseBody> {
    let Some(key) = key(request.headers()) else {
        let message =
            "a WebSocket of version 13: Connection: upgrade, Upgrade: websocket, a key of 16 bytes";
        let mut response = error_reply(
            StatusCode::UPGRADE_REQUIRED,
            ErrorCode::InvalidRequest,
            message,
        );
        response
            .headers_mut()
            .insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        response.headers_mut().insert(
            header::SEC_WEBSOCKET_VERSION,
            HeaderValue::from_static("13"),
        );
        return response;
    };
    let Ok(permit) = service.sockets.clone().try_acquire_owned() else {
        return too_often(SILENCE);
    };
    let mut response = Response::new(ResponseBody::Whole(None));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, answer(&key));
    if offered(request.headers()).any(|protocol| protocol == PROTOCOL) {
        headers.insert(
            header::SEC_WEBSOCKET_PROTOCOL,
            HeaderValue::from_static(PROTOCOL),
        );
    }
    let upgraded = hyper::upgrade::on(&mut request);
    let served = async move {
        // If the client is gone by then, there is nobody to serve.
        if let Ok(upgraded) = upgraded.await {
            serve(service, upgraded).await;
        }
        drop(permit);
    };
    tokio::task::spawn_local(served.instrument(tracing::info_span!("websocket")));
    response
}

/// The key of a client that requests a WebSocket.
fn key(headers: &HeaderMap) -> Option<HeaderValue> {
    let has = |name: header::HeaderName, word: &str| {
        let values = headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok());
        values
            .flat_map(|value| value.split(','))
            .any(|value| value.trim().eq_ignore_ascii_case(word))
    };
    let key = headers.get(header::SEC_WEBSOCKET_KEY)?;
    let is_key = STANDARD
        .decode(key.as_bytes())
        .is_ok_and(|bytes| bytes.len() == 16);
    let is_wanted = has(header::CONNECTION, "upgrade")
        && has(header::UPGRADE, "websocket")
        && has(header::SEC_WEBSOCKET_VERSION, "13");
    (is_key && is_wanted).then(|| key.clone())
}

fn answer(key: &HeaderValue) -> HeaderValue {
    // Base64 is always a valid header value.
    HeaderValue::from_str(&derive_accept_key(key.as_bytes()))
        .unwrap_or(HeaderValue::from_static(""))
}

async fn serve(service: Rc<ServeState>, upgraded: Upgraded) {
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_MAX))
        .max_frame_size(Some(MESSAGE_MAX))
        .write_buffer_size(WRITE)
        .max_write_buffer_size(usize::MAX);
    let socket = Socket::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
    let (mut sink, mut stream) = socket.split();
    let (outbox, queue) = outbox();
    let client = Client::new(service, outbox);
    client.greet().await;
    let begun = Instant::now();
    let heard = Cell::new(begun);
    let wrong = tokio::select! {
        wrong = read(&client, &mut stream, &heard) => wrong,
        () = write(&mut sink, queue, &heard) => None,
    };
    client.close();
    if let Some(frame) = wrong {
        close(stream, sink, frame).await;
    }
    tracing::info!(
        duration_ms = begun.elapsed().as_millis() as u64,
        "websocket"
    );
}

/// Tells a client why we stop reading. For a while its messages are still received: left unread, they would reset the connection
/// before the client has read the reason.
async fn close(stream: SplitStream<Socket>, sink: SplitSink<Socket, Message>, frame: CloseFrame) {
    let Ok(mut socket) = stream.reunite(sink) else {
        return;
    };
    let closing = async {
        if socket.send(Message::Close(Some(frame))).await.is_err() {
            return;
        }
        let mut rest = vec![0; WRITE];
        while socket
            .get_mut()
            .read(&mut rest)
            .await
            .is_ok_and(|length| length > 0)
        {}
    };
    let _ = timeout(CLOSING, closing).await;
}

/// The close frame for a client whose message cannot be read; `None` if the connection is gone.
fn reason(error: &Error) -> Option<CloseFrame> {
    let (code, reason) = match error {
        Error::Capacity(_) => (CloseCode::Size, "a message is too long"),
        Error::Utf8(_) => (CloseCode::Invalid, "a text is not UTF-8"),
        Error::Protocol(_) => (CloseCode::Protocol, "this is not a WebSocket message"),
        _ => return None,
    };
    Some(CloseFrame {
        code,
        reason: reason.into(),
    })
}

/// Carries out messages until there are no more; returns the close frame if one was invalid.
async fn read(
    client: &Client,
    stream: &mut SplitStream<Socket>,
    heard: &Cell<Instant>,
) -> Option<CloseFrame> {
    let rates = Rates::new(MESSAGES_PER_SECOND);
    while let Some(message) = stream.next().await {
        heard.set(Instant::now());
        let message = match message {
            Ok(message) => message,
            Err(error) => return reason(&error),
        };
        match message {
            Message::Text(text) => client.take(&text).await,
            Message::Binary(_) => client.reject_bytes().await,
            Message::Close(_) => return None,
            // The library answers pings.
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
        }
        while let Err(wait) = rates.take(None, crate::rate::Requester::Known) {
            sleep(wait).await;
            heard.set(Instant::now());
        }
    }
    None
}

/// Sends queued messages until the client is gone or is disconnected.
async fn write(
    sink: &mut SplitSink<Socket, Message>,
    mut queue: PacketQueue,
    heard: &Cell<Instant>,
) {
    let mut ping = interval(PING);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ping.reset();
    loop {
        let message = tokio::select! {
            waiting = queue.next() => match waiting {
                Some(waiting) => {
                    let sent = tokio::select! {
                        sent = sink.send(Message::text(waiting.packet.text())) => sent,
                        () = queue.given_up() => break,
                    };
                    match sent {
                        Ok(()) => continue,
                        Err(_) => return,
                    }
                }
                None => break,
            },
            _ = ping.tick() => Message::Ping(Vec::new().into()),
        };
        if heard.get().elapsed() > SILENCE || timeout(SILENCE, sink.send(message)).await.is_err() {
            return;
        }
    }
    let reason = "the client does not read";
    let frame = CloseFrame {
        code: CloseCode::Policy,
        reason: reason.into(),
    };
    let _ = timeout(CLOSING, sink.send(Message::Close(Some(frame)))).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_a_key_is_that_of_the_standard() {
        let key = HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(answer(&key), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn request_without_every_upgrade_header_is_no_websocket() {
        let whole = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let headers = |pairs: &[(&'static str, &'static str)]| {
            let pair = |(name, value): &(&'static str, &'static str)| {
                (
                    header::HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            };
            pairs.iter().map(pair).collect::<HeaderMap>()
        };
        assert!(key(&headers(&whole)).is_some());
        for missing in 0..whole.len() {
            let mut rest = whole.to_vec();
            rest.remove(missing);
            assert!(
                key(&headers(&rest)).is_none(),
                "without {:?}",
                whole[missing]
            );
        }
        let mut short = whole;
        short[3].1 = "c2hvcnQ=";
        assert!(key(&headers(&short)).is_none());
    }
}
