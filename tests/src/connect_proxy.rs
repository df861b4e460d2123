//! A proxy of a company: opens tunnels for `CONNECT`, and remembers what it was asked.

use crate::Serving;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Answers that open no tunnel, each with what users are told of it.
pub const REFUSALS: [(&str, &str); 3] = [
    (
        "HTTP/1.1 403 Not on our list\r\n\r\n",
        "answered 403 `Not on our list`",
    ),
    ("HTTP/1.1 407 Login\r\n\r\n", "`proxy_from` in `[gateway]`"),
    ("SSH-2.0-other\r\n", "does not answer with HTTP"),
];

/// A proxy that serves until it is dropped.
pub struct ConnectProxy {
    pub address: SocketAddr,
    pub port: u16,
    requests: Arc<Mutex<Vec<String>>>,
    _serving: Serving,
}

impl ConnectProxy {
    /// One that opens every tunnel.
    pub fn open() -> Self {
        Self::with(Then::Open)
    }

    /// One that opens every tunnel, at port 80 of an address of the loopback that no other test has.
    pub fn at_80() -> Self {
        let [.., pid] = std::process::id().to_be_bytes();
        let free = (1..u8::MAX).find_map(|last| {
            let address = Ipv4Addr::new(127, 80, pid, last);
            TcpListener::bind((address, 80)).ok()
        });
        Self::serving(free.expect("port 80 of an address is free"), Then::Open)
    }

    /// One that leads every tunnel to this port of the loopback, whatever host it is asked for.
    pub fn to(port: u16) -> Self {
        Self::with(Then::To(port))
    }

    /// One that gives this answer to every request.
    pub fn answering(answer: &'static str) -> Self {
        Self::with(Then::Answer(answer))
    }

    fn with(then: Then) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        Self::serving(listener, then)
    }

    fn serving(listener: TcpListener, then: Then) -> Self {
        let address = listener.local_addr().expect("it is bound");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        let serving = Serving::start(listener, move |client| {
            // How a connection ends is the business of its peers.
            let _ = serve(client, then, &seen);
        });
        Self {
            address,
            port: address.port(),
            requests,
            _serving: serving,
        }
    }

    /// The policy's line for it.
    pub fn line(&self) -> String {
        format!("proxy = 'http://127.0.0.1:{}'", self.port)
    }

    /// The heads that it was sent since this was last called.
    pub fn take(&self) -> Vec<String> {
        let mut requests = self.requests.lock().expect("no holder panics");
        std::mem::take(&mut requests)
    }

    /// The targets of those.
    pub fn targets(&self) -> Vec<String> {
        let target = |head: String| head.split(' ').nth(1).unwrap_or_default().to_owned();
        self.take().into_iter().map(target).collect()
    }
}

/// How the proxy treats the requests that it gets.
#[derive(Clone, Copy)]
enum Then {
    Open,
    To(u16),
    Answer(&'static str),
}

fn serve(mut client: TcpStream, then: Then, seen: &Mutex<Vec<String>>) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
    seen.lock().expect("no holder panics").push(head);
    let target = match then {
        Then::Open => target,
        Then::To(port) => format!("127.0.0.1:{port}"),
        Then::Answer(answer) => {
            client.write_all(answer.as_bytes())?;
            return client.shutdown(Shutdown::Write);
        }
    };
    let Ok(mut host) = TcpStream::connect(&target) else {
        return client.write_all(b"HTTP/1.1 503 Unreachable\r\n\r\n");
    };
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    let (mut up, mut to_host) = (client.try_clone()?, host.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut up, &mut to_host);
        let _ = to_host.shutdown(Shutdown::Write);
    });
    io::copy(&mut host, &mut client)?;
    client.shutdown(Shutdown::Write)
}
