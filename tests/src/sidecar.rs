//! A running `lazaret serve`, and low-level HTTP and WebSocket clients for it, as an attacker would write them.

use crate::process::{Finished, LIMIT, Running, until};
use crate::world::World;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

/// Largest frame that a client here accepts.
const FRAME_MAX: u64 = 64 << 20;

/// A server that runs until the value is dropped or ended.
pub struct Sidecar {
    pub running: Running,
    pub token: String,
    pub port: u16,
    /// The line that it printed at its start.
    pub ready: Value,
}

/// The response to an HTTP request.
#[derive(Debug)]
pub struct HttpAnswer {
    pub status: u16,
    /// The status line and headers, in lower case.
    pub head: String,
    pub body: String,
}

impl Sidecar {
    /// Starts a server on a free port, with a script as its model.
    pub fn start(world: &World, script: &Value, more: &[&str]) -> Self {
        let mut command = Self::command(world, script);
        command.args(more);
        Self::of(&mut command)
    }

    /// The command that starts it.
    pub fn command(world: &World, script: &Value) -> Command {
        Self::with_script(world.lazaret("serve"), world, script)
    }

    /// The command that starts one without a project.
    pub fn command_nowhere(world: &World, script: &Value) -> Command {
        let mut command = world.program("lazaret");
        command.arg("serve");
        Self::with_script(command, world, script)
    }

    fn with_script(mut serve: Command, world: &World, script: &Value) -> Command {
        let path = world.home.join("script.json");
        world.write(&path, script.to_string());
        serve
            .args(["--listen", "127.0.0.1:0", "--provider", "mock", "--script"])
            .arg(path);
        serve
    }

    /// Starts it and waits for its first line.
    #[track_caller]
    pub fn of(command: &mut Command) -> Self {
        let mut running = Running::start(command);
        let line = running.wait_for("\n", LIMIT);
        let ready: Value = serde_json::from_slice(&line).expect("a line of JSON");
        let address = ready["address"].as_str().unwrap_or_default();
        let port = address
            .rsplit(':')
            .next()
            .and_then(|port| port.parse().ok())
            .unwrap_or(0);
        Self {
            running,
            token: ready["token"].as_str().expect("a token").to_owned(),
            port,
            ready,
        }
    }

    /// The headers that a client of ours sends.
    pub fn head(&self) -> Vec<String> {
        vec![
            format!("Host: 127.0.0.1:{}", self.port),
            format!("Authorization: Bearer {}", self.token),
        ]
    }

    /// Makes a request with custom headers.
    pub fn raw(&self, first: &str, head: &[String], body: &[u8]) -> HttpAnswer {
        HttpAnswer::read(&mut self.begin(first, head, body))
    }

    /// The same without waiting for the answer.
    pub fn begin(&self, first: &str, head: &[String], body: &[u8]) -> TcpStream {
        let mut stream = self.connect();
        let head: String = head.iter().map(|line| format!("{line}\r\n")).collect();
        let length = format!(
            "Content-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let text = format!("{first} HTTP/1.1\r\n{head}{length}");
        // A server that has already refused reads no more.
        let _ = stream
            .write_all(text.as_bytes())
            .and_then(|()| stream.write_all(body));
        stream
    }

    /// The headers of a request with a body.
    pub fn json_head(&self) -> Vec<String> {
        [self.head(), vec!["Content-Type: application/json".into()]].concat()
    }

    pub fn get(&self, path: &str) -> HttpAnswer {
        self.raw(&format!("GET {path}"), &self.head(), b"")
    }

    pub fn send(&self, method: &str, path: &str, body: &Value) -> HttpAnswer {
        self.raw(
            &format!("{method} {path}"),
            &self.json_head(),
            body.to_string().as_bytes(),
        )
    }

    /// A new connection without any request.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream
            .set_read_timeout(Some(LIMIT))
            .expect("a socket has time limits");
        stream
    }

    /// A WebSocket client that has read its greeting.
    #[track_caller]
    pub fn client(&self) -> WebSocket {
        let mut client = self
            .websocket(&self.head())
            .unwrap_or_else(|answer| panic!("{answer:?}"));
        assert_eq!(client.next_message()["type"], "server:hello");
        client
    }

    /// The same with custom headers; returns the response if it is refused.
    pub fn websocket(&self, head: &[String]) -> Result<WebSocket, HttpAnswer> {
        WebSocket::open(self.connect(), head)
    }

    /// Ends it by closing its input.
    pub fn end(mut self) -> Finished {
        drop(self.running.child.stdin.take());
        self.running.finish(LIMIT)
    }
}

impl HttpAnswer {
    /// Reads a response to its end.
    pub fn read(stream: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        // If the connection is reset after the response, the response is still valid.
        let _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or(0);
        let (head, chunked) = (
            head.to_lowercase(),
            head.to_lowercase().contains("transfer-encoding: chunked"),
        );
        let body = if chunked {
            joined(body)
        } else {
            body.to_owned()
        };
        Self { status, head, body }
    }

    /// The body, which has to be JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A chunked body without the chunk headers.
fn joined(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length.trim(), 16).unwrap_or(0);
        let Some(piece) = rest.get(..length).filter(|piece| !piece.is_empty()) else {
            break;
        };
        whole.push_str(piece);
        body = rest[length..].trim_start_matches("\r\n");
    }
    whole
}

/// The client's end of a WebSocket.
pub struct WebSocket {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// Messages that arrived while others were waited for.
    waiting: VecDeque<Value>,
}

/// A frame received on a WebSocket.
#[derive(Debug)]
pub enum Frame {
    Message(Value),
    /// It was closed, with this code if there was one.
    Closed(Option<u16>),
}

impl WebSocket {
    /// Requests an upgrade on a connection.
    pub fn open(mut stream: TcpStream, head: &[String]) -> Result<Self, HttpAnswer> {
        let head: String = head.iter().map(|line| format!("{line}\r\n")).collect();
        let text = format!(
            "GET /ws HTTP/1.1\r\n{head}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        let _ = stream.write_all(text.as_bytes());
        let (mut answer, mut byte) = (Vec::new(), [0]);
        while !answer.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count > 0)
        {
            answer.push(byte[0]);
        }
        let answer = String::from_utf8_lossy(&answer).into_owned();
        if answer.starts_with("HTTP/1.1 101") {
            return Ok(Self {
                stream,
                buffer: Vec::new(),
                waiting: VecDeque::new(),
            });
        }
        let status = answer
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or(0);
        Err(HttpAnswer {
            status,
            head: answer.to_lowercase(),
            body: String::new(),
        })
    }

    /// Sends a message with a type and a payload.
    pub fn say(&mut self, kind: &str, payload: Value) {
        self.text(&json!({ "type": kind, "payload": payload }).to_string());
    }

    /// Sends an arbitrary text.
    pub fn text(&mut self, text: &str) {
        self.frame(0x81, text.as_bytes()).expect("the server reads");
    }

    /// Sends a frame with this first byte.
    pub fn frame(&mut self, first: u8, bytes: &[u8]) -> io::Result<()> {
        let mut frame = vec![first];
        match bytes.len() {
            length @ 0..126 => frame.push(0x80 | length as u8),
            length @ 126..65536 => {
                frame.push(0x80 | 126);
                frame.extend((length as u16).to_be_bytes());
            }
            length => {
                frame.push(0x80 | 127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        // A mask of zeros is valid.
        frame.extend([0; 4]);
        frame.extend(bytes);
        self.stream.write_all(&frame)
    }

    /// The next message; fails after the general time limit.
    #[track_caller]
    pub fn next_message(&mut self) -> Value {
        if let Some(message) = self.waiting.pop_front() {
            return message;
        }
        match self.read(LIMIT) {
            Ok(Frame::Message(message)) => message,
            other => panic!("no message: {other:?}"),
        }
    }

    /// The next frame within `limit`.
    pub fn read(&mut self, limit: Duration) -> io::Result<Frame> {
        let begun = Instant::now();
        loop {
            if let Some((first, payload)) = self.whole_frame()? {
                match first & 0x0f {
                    1 => {
                        let message = serde_json::from_slice(&payload);
                        return Ok(Frame::Message(message.unwrap_or(Value::Null)));
                    }
                    8 => {
                        let code = payload.first_chunk().map(|code| u16::from_be_bytes(*code));
                        return Ok(Frame::Closed(code));
                    }
                    // A live client answers pings.
                    9 => self.frame(0x8a, &payload)?,
                    _ => {}
                }
                continue;
            }
            let rest = limit
                .checked_sub(begun.elapsed())
                .ok_or(io::ErrorKind::TimedOut)?;
            self.stream
                .set_read_timeout(Some(rest.max(Duration::from_millis(1))))?;
            let mut piece = [0; 65536];
            match self.stream.read(&mut piece) {
                Ok(0) => return Ok(Frame::Closed(None)),
                Ok(count) => self.buffer.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Ok(Frame::Closed(None));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A frame, once it is complete.
    fn whole_frame(&mut self) -> io::Result<Option<(u8, Vec<u8>)>> {
        let [first, second, ..] = self.buffer[..] else {
            return Ok(None);
        };
        let rest = &self.buffer[2..];
        let (length, head) = match second & 0x7f {
            126 => (
                rest.first_chunk()
                    .map(|bytes| u64::from(u16::from_be_bytes(*bytes))),
                4,
            ),
            127 => (
                rest.first_chunk().map(|bytes| u64::from_be_bytes(*bytes)),
                10,
            ),
            short => (Some(u64::from(short)), 2),
        };
        let Some(length) = length else {
            return Ok(None);
        };
        if length > FRAME_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let end = head + length as usize;
        if self.buffer.len() < end {
            return Ok(None);
        }
        let payload = self.buffer[head..end].to_vec();
        self.buffer.drain(..end);
        Ok(Some((first, payload)))
    }

    /// The next message of a type; others that come before it are kept.
    #[track_caller]
    pub fn next_of(&mut self, kind: &str) -> Value {
        if let Some(at) = self
            .waiting
            .iter()
            .position(|message| message["type"] == kind)
        {
            return self.waiting.remove(at).expect("it was there")["payload"].clone();
        }
        let mut others = VecDeque::new();
        loop {
            match self.read(LIMIT) {
                Ok(Frame::Message(message)) if message["type"] == kind => {
                    self.waiting.append(&mut others);
                    return message["payload"].clone();
                }
                Ok(Frame::Message(message)) => others.push_back(message),
                other => panic!("no {kind}: {other:?} after {others:#?} {:#?}", self.waiting),
            }
        }
    }

    /// Every message up to the end of a run.
    #[track_caller]
    pub fn to_end(&mut self) -> Vec<Value> {
        let mut all = Vec::new();
        loop {
            all.push(self.next_message());
            if all
                .last()
                .is_some_and(|last| last["type"] == "chat:stream-end")
            {
                return all;
            }
        }
    }

    /// Whether the server closes it within `limit`; earlier frames are dropped.
    pub fn is_closed(&mut self, limit: Duration) -> bool {
        until(limit, || {
            matches!(self.read(limit), Ok(Frame::Closed(_)) | Err(_))
        })
    }
}
