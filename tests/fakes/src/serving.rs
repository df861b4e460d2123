//! Servers of a test on this machine, which end with it: every process that a later test starts would copy of their memory.

use nix::sys::socket::{Shutdown, shutdown};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

pub trait Listener: AsFd + Send + 'static {
    type Stream: Send + 'static;

    fn next(&self) -> io::Result<Self::Stream>;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    fn next(&self) -> io::Result<TcpStream> {
        self.accept().map(|(stream, _)| stream)
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    fn next(&self) -> io::Result<UnixStream> {
        self.accept().map(|(stream, _)| stream)
    }
}

/// A server that runs until this is dropped.
pub struct Serving(OwnedFd);

impl Serving {
    /// Gives `serve` what connects, each in a thread of its own.
    pub fn start<L: Listener>(
        listener: L,
        serve: impl Fn(L::Stream) + Clone + Send + 'static,
    ) -> Self {
        let socket = listener
            .as_fd()
            .try_clone_to_owned()
            .expect("a descriptor is free");
        thread::spawn(move || {
            while let Ok(stream) = listener.next() {
                let serve = serve.clone();
                thread::spawn(move || serve(stream));
            }
        });
        Self(socket)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Whoever waits for connections gets an error.
        let _ = shutdown(self.0.as_raw_fd(), Shutdown::Both);
    }
}
