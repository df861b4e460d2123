//! A connection that has become a WebSocket: its frames pass as they are. The host's, which are not masked, are searched.

use super::host::DecryptedHost;
use super::limits::PAUSE;
use super::search::{StreamSearch, ValueFound};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::body::Bytes;
use hyper::header::{HeaderMap, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY};
use hyper::http::request::Parts;
use hyper::{Method, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use ring::digest;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, split};
use tokio::time::timeout;

const READ: usize = 16 * 1024;
/// Hashed after the key (RFC 6455, section 1.3).
const ACCEPTING: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The answer to a key, of a server that knows WebSockets: one that only repeats the words of a request gets no connection past the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyAnswer([u8; 20]);

impl KeyAnswer {
    /// That to a request; none if it is not one that a WebSocket begins with.
    pub(super) fn of(head: &Parts) -> Option<Self> {
        let mut keys = head.headers.get_all(SEC_WEBSOCKET_KEY).iter();
        let (key, None) = (keys.next()?, keys.next()) else {
            return None;
        };
        let is_key = STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16);
        if head.method != Method::GET || !is_key {
            return None;
        }
        let mut hash = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
        hash.update(key.as_bytes());
        hash.update(ACCEPTING);
        hash.finish().as_ref().try_into().ok().map(Self)
    }

    pub(super) fn is_in(self, answer: &HeaderMap) -> bool {
        let accept = answer.get(SEC_WEBSOCKET_ACCEPT);
        accept.is_some_and(|accept| accept.as_bytes() == STANDARD.encode(self.0).as_bytes())
    }
}

/// Carries frames until either side ends.
///
/// # Errors
/// The host sent the value of a credential.
pub(super) async fn carry(
    program: Upgraded,
    host: Upgraded,
    place: &DecryptedHost,
) -> Result<(), ValueFound> {
    let (mut from_program, mut to_program) = split(TokioIo::new(program));
    let (mut from_host, mut to_host) = split(TokioIo::new(host));
    let up = async {
        // An end of either side ends both, in order: what was read is written.
        let _ = copy(&mut from_program, &mut to_host).await;
        let _ = to_host.shutdown().await;
    };
    let down = async {
        let mut search = StreamSearch::default();
        let mut bytes = vec![0; READ];
        loop {
            let read = from_host.read(&mut bytes);
            let arrived = match search.held() {
                0 => Ok(read.await),
                _ => timeout(PAUSE, read).await,
            };
            let passed = match arrived {
                Ok(Ok(length)) if length > 0 => {
                    let next = Bytes::copy_from_slice(&bytes[..length]);
                    search.pass(&place.needles(), next)?
                }
                Ok(Ok(_) | Err(_)) => break,
                Err(_) => search.release(),
            };
            if to_program.write_all(&passed).await.is_err() {
                return Ok(());
            }
            if to_program.flush().await.is_err() {
                return Ok(());
            }
        }
        let _ = to_program.write_all(&search.release()).await;
        let _ = to_program.shutdown().await;
        Ok(())
    };
    let (mut up, mut down) = (std::pin::pin!(up), std::pin::pin!(down));
    tokio::select! {
        () = &mut up => down.await,
        ended = &mut down => ended,
    }
}
