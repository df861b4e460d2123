//! Servers of this machine that clients in cells are to reach, or not.

use crate::serving::Serving;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A server that answers each request with `pong`, whatever was asked, and holds what comes as `HOLD`.
pub struct PongServer {
    pub port: u16,
    hits: Arc<AtomicUsize>,
    _serving: Serving,
}

impl PongServer {
    pub fn start() -> Self {
        let (listener, port) = listen("127.0.0.1");
        let hits = Arc::new(AtomicUsize::new(0));
        let counted = hits.clone();
        let serving = Serving::start(listener, move |mut client| {
            counted.fetch_add(1, Ordering::SeqCst);
            let mut request = [0; 4096];
            let length = client.read(&mut request).unwrap_or(0);
            if request[..length].starts_with(b"HOLD") {
                let _ = client.write_all(b"held\n");
                let _ = client.read(&mut request);
                return;
            }
            let _ = client.write_all(
                b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\npong",
            );
        });
        Self {
            port,
            hits,
            _serving: serving,
        }
    }

    /// How many clients have connected.
    pub fn hits(&self) -> usize {
        self.hits.load(Ordering::SeqCst)
    }

    pub fn host(&self) -> String {
        format!("localhost:{}", self.port)
    }

    /// Asks it by the relay. Clients leave out a proxy for the own machine; here the name stands for a host of the internet.
    pub fn ask(&self) -> String {
        format!("curl -sS --noproxy '' http://{}/", self.host())
    }
}

/// A server that speaks first, as many databases do, and then answers each line with itself.
pub struct EchoServer {
    pub port: u16,
    received: Arc<Mutex<Vec<u8>>>,
    _serving: Serving,
}

impl EchoServer {
    pub fn start(at: &str) -> Self {
        let (listener, port) = listen(at);
        let received = Arc::new(Mutex::new(Vec::new()));
        let seen = received.clone();
        let serving = Serving::start(listener, move |mut client| {
            let _ = client.write_all(b"hello\n");
            let mut bytes = [0; 64 * 1024];
            while let Ok(length @ 1..) = client.read(&mut bytes) {
                seen.lock().unwrap().extend(&bytes[..length]);
                if client.write_all(&bytes[..length]).is_err() {
                    return;
                }
            }
        });
        Self {
            port,
            received,
            _serving: serving,
        }
    }

    /// Takes what clients have sent so far.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.received.lock().unwrap())
    }
}

fn listen(at: &str) -> (TcpListener, u16) {
    let listener = TcpListener::bind((at, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}
