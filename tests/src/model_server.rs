//! A model server on this machine: answers each request with the next reply, and records the requests.

use crate::Serving;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The reply to one request.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    /// Further header lines, each with its line break.
    pub head: String,
    pub body: String,
    /// How many bytes to send at once.
    pub piece: usize,
    pub end: ReplyEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyEnd {
    /// The whole reply is sent.
    Whole,
    /// The connection is closed in the middle of the reply.
    Cut,
    /// Nothing more is sent, and the connection stays open.
    Hang,
}

/// A request that the server has received.
#[derive(Clone, Debug)]
pub struct SeenRequest {
    pub line: String,
    /// The header lines, in lower case.
    pub head: String,
    pub body: Value,
}

/// A server that runs until this is dropped.
pub struct ModelServer {
    address: SocketAddr,
    _serving: Serving,
    asked: Arc<Mutex<Vec<SeenRequest>>>,
}

impl Reply {
    pub fn stream(body: impl Into<String>) -> Self {
        Self {
            status: 200,
            head: String::new(),
            body: body.into(),
            piece: 700,
            end: ReplyEnd::Whole,
        }
    }

    pub fn status(status: u16, body: &Value) -> Self {
        Self {
            status,
            ..Self::stream(body.to_string())
        }
    }
}

impl ModelServer {
    /// Starts a server with `replies`; further requests are told that there are no more.
    pub fn start(replies: Vec<Reply>) -> Self {
        let replies = Mutex::new(replies.into_iter());
        let none = || {
            Reply::status(
                400,
                &serde_json::json!({"error": {"message": "no more replies"}}),
            )
        };
        Self::answering("127.0.0.1", move |_| {
            replies
                .lock()
                .expect("no test panics with it")
                .next()
                .unwrap_or_else(none)
        })
    }

    /// Starts a server at the local `address` that answers each request with the result of `reply`.
    pub fn answering(
        address: &str,
        reply: impl Fn(&SeenRequest) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((address, 0)).expect("a port of this machine");
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let asked = Arc::<Mutex<Vec<SeenRequest>>>::default();
        let (all, reply) = (asked.clone(), Arc::new(reply));
        let serving = Serving::start(listener, move |mut stream| {
            let Some(request) = read(&mut stream) else {
                return;
            };
            let made = reply(&request);
            all.lock().expect("no test panics with it").push(request);
            answer(stream, &made);
        });
        Self {
            address,
            _serving: serving,
            asked,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far.
    pub fn asked(&self) -> Vec<SeenRequest> {
        self.asked.lock().expect("no test panics with it").clone()
    }
}

fn read(stream: &mut TcpStream) -> Option<SeenRequest> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let (line, head) = head.split_once("\r\n")?;
    let head = head.to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    Some(SeenRequest {
        line: line.to_owned(),
        head,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    })
}

/// A client that disconnects misses the rest.
fn answer(mut stream: TcpStream, reply: &Reply) {
    let Reply {
        status,
        head,
        body,
        piece,
        end,
    } = reply;
    let head = format!(
        "HTTP/1.1 {status} X\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n{head}\r\n"
    );
    if stream.write_all(head.as_bytes()).is_err() {
        return;
    }
    for bytes in body.as_bytes().chunks(*piece) {
        let chunk = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        if stream.write_all(&chunk).is_err() {
            return;
        }
    }
    match end {
        ReplyEnd::Whole => drop(stream.write_all(b"0\r\n\r\n")),
        ReplyEnd::Cut => {}
        ReplyEnd::Hang => drop(stream.read(&mut [0])),
    }
}
