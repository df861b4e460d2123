//! The socket of a bus, which takes only so much from it and no descriptors: the library has no bound below 128 MiB a message,
//! and none for a line.

use std::io::{self, ErrorKind};
use std::os::fd::{BorrowedFd, OwnedFd};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use zbus::connection::Socket;
use zbus::connection::socket::{ReadHalf, Split, WriteHalf};
use zbus::export::async_trait::async_trait;

/// Most bytes that a bus may send for a key: they are hundreds, and thousands with the longest secret.
pub(crate) const RECEIVED_MAX: usize = 64 << 10;

/// A connected socket. More than it takes is an error of the kind [`ErrorKind::FileTooLarge`].
#[derive(Debug)]
pub(crate) struct BusSocket(pub UnixStream);

impl Socket for BusSocket {
    type ReadHalf = BusReader;
    type WriteHalf = BusWriter;

    fn split(self) -> Split<BusReader, BusWriter> {
        let (read, write) = self.0.into_split();
        Split::new(
            BusReader {
                stream: read,
                left: RECEIVED_MAX,
            },
            BusWriter(write),
        )
    }
}

#[derive(Debug)]
pub(crate) struct BusReader {
    stream: OwnedReadHalf,
    /// How many bytes may still come.
    left: usize,
}

#[async_trait]
impl ReadHalf for BusReader {
    async fn recvmsg(&mut self, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        // The library asks for all of a message whose length it has read.
        if buffer.len() > self.left {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let is_first = self.left == RECEIVED_MAX;
        let count = self.stream.read(buffer).await?;
        // On a line that is nothing but its end the library panics; only the first can be one.
        if is_first && buffer[..count].first() == Some(&b'\n') {
            return Err(ErrorKind::InvalidData.into());
        }
        self.left -= count;
        Ok((count, Vec::new()))
    }
}

#[derive(Debug)]
pub(crate) struct BusWriter(OwnedWriteHalf);

#[async_trait]
impl WriteHalf for BusWriter {
    async fn sendmsg(&mut self, buffer: &[u8], _: &[BorrowedFd<'_>]) -> io::Result<usize> {
        self.0.write(buffer).await
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.0.flush().await
    }

    async fn close(&mut self) -> io::Result<()> {
        self.0.shutdown().await
    }
}
