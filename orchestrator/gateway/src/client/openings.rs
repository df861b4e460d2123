//! Questions of the process that takes secrets out of what is shown: for the token of a login, whose text alone `lazaret` could tell it.

use super::admit::ClientNetwork;
use policies::secret::SEALED_TOKEN_MAX;
use std::io;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use zeroize::Zeroizing;

/// Answers lines with a token each, or nothing where there is none, until the other end is closed.
///
/// # Errors
/// The socket fails.
pub(super) async fn answer<R>(line: UnixStream, net: Rc<ClientNetwork<R>>) -> io::Result<()> {
    line.set_nonblocking(true)?;
    let mut line = BufReader::new(tokio::net::UnixStream::from_std(line)?);
    loop {
        let mut text = Vec::new();
        let mut bounded = (&mut line).take(SEALED_TOKEN_MAX as u64 + 1);
        bounded.read_until(b'\n', &mut text).await?;
        if text.pop() != Some(b'\n') {
            return Ok(());
        }
        let token = net.keys.logins.open(&text).unwrap_or_default();
        let answer = Zeroizing::new([&token[..], b"\n"].concat());
        line.get_mut().write_all(&answer).await?;
    }
}
