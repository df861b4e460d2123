//! A connection that has become a WebSocket: its frames pass as they are. The host's, which are not masked, are searched.

use super::host::DecryptedHost;
use super::limits::PAUSE;
use super::search::{StreamSearch, ValueFound};
use hyper::body::Bytes;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, split};
use tokio::time::timeout;

const READ: usize = 16 * 1024;

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
