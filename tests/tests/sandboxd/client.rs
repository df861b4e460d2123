//! A running `lazaret sandboxd`, and clients of its three protocols that share nothing with it: what they send is written byte by byte.

use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;
use lazaret_tests::process::Running;
use lazaret_tests::{Finished, LIMIT, World};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use tokio::runtime::Runtime;

/// A server that runs until the value is dropped or ended.
pub struct Sandbox {
    running: Option<Running>,
    pub legacy: u16,
    pub rest: u16,
    pub grpc: u16,
}

/// The response to an HTTP request.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// The status line and headers, in lower case.
    pub head: String,
    pub body: Vec<u8>,
}

impl Sandbox {
    pub fn start(world: &World) -> Self {
        Self::of(&mut world.lazaret("sandboxd"))
    }

    /// Starts it on free ports, and waits until it is ready.
    #[track_caller]
    pub fn of(command: &mut Command) -> Self {
        for port in ["--legacy-port", "--rest-port", "--grpc-port"] {
            command.args([port, "0"]);
        }
        let mut running = Running::start(command);
        let line = running.wait_for("\n", LIMIT);
        let ready: Value = serde_json::from_slice(&line).expect("a line of JSON");
        assert_eq!(ready["type"], "ready");
        let port = |name: &str| {
            let address = ready[name].as_str().unwrap_or_default();
            let port = address.rsplit(':').next().map(str::parse);
            port.and_then(Result::ok).expect("an address")
        };
        Self {
            legacy: port("legacy"),
            rest: port("rest"),
            grpc: port("grpc"),
            running: Some(running),
        }
    }

    pub fn pid(&self) -> Pid {
        let running = self.running.as_ref().expect("it has not ended");
        Pid::from_raw(running.pid())
    }

    pub fn end(mut self) -> Finished {
        let running = self.running.take().expect("it has not ended");
        running.finish(LIMIT)
    }

    pub fn rest(&self, request: &str, body: &[u8]) -> Answer {
        ask(self.rest, request, &[], body)
    }

    /// Asks for a file or a directory by the REST port.
    pub fn file(&self, method: &str, path: &str, body: &[u8]) -> Answer {
        self.rest(&format!("{method} /v1/files/{path}"), body)
    }

    /// Runs a command by the legacy port.
    pub fn execute(&self, body: &Value) -> Answer {
        execute(self.legacy, body)
    }

    pub fn rpc(&self) -> Rpc {
        Rpc::connect(self.grpc)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            let _ = kill(Pid::from_raw(running.pid()), Signal::SIGTERM);
            running.finish(LIMIT);
        }
    }
}

pub const JSON: (&str, &str) = ("Content-Type", "application/json");

/// Runs a command by the legacy protocol.
#[track_caller]
pub fn execute(port: u16, body: &Value) -> Answer {
    let body = body.to_string().into_bytes();
    ask(port, "POST /execute", &[JSON], &body)
}

/// Makes a request on a connection of its own.
#[track_caller]
pub fn ask(port: u16, request: &str, head: &[(&str, &str)], body: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let host = format!("127.0.0.1:{port}");
    let length = body.len().to_string();
    let own = [
        ("Host", host.as_str()),
        ("Content-Length", &length),
        ("Connection", "close"),
    ];
    let is_given = |name: &str| {
        head.iter()
            .any(|(given, _)| given.eq_ignore_ascii_case(name))
    };
    let chunked = is_given("Transfer-Encoding");
    let own = own
        .iter()
        .filter(|(name, _)| !(is_given(name) || chunked && *name == "Content-Length"));
    let lines: String = head
        .iter()
        .chain(own)
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let text = format!("{request} HTTP/1.1\r\n{lines}\r\n");
    // A server that has already refused reads no more.
    let _ = stream
        .write_all(text.as_bytes())
        .and_then(|()| stream.write_all(body));
    Answer::read(&mut stream)
}

impl Answer {
    /// Reads a response to its end.
    pub fn read(stream: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        // If the connection is reset after the response, the response is still valid.
        let _ = stream.read_to_end(&mut bytes);
        let mark = b"\r\n\r\n";
        let end = bytes.windows(mark.len()).position(|window| window == mark);
        let end = end.unwrap_or(bytes.len());
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let status = head.split(' ').nth(1).map(str::parse);
        assert!(!head.contains("transfer-encoding"), "each length is known");
        Self {
            status: status.and_then(Result::ok).unwrap_or(0),
            head,
            body: bytes.get(end + mark.len()..).unwrap_or_default().to_vec(),
        }
    }

    /// The body, which has to be JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A client of the process service on a connection of its own.
pub struct Rpc {
    runtime: Runtime,
    send: SendRequest<Bytes>,
}

/// The whole response to a call.
#[derive(Debug)]
pub struct Called {
    pub messages: Vec<Vec<u8>>,
    /// The number of its status.
    pub status: u32,
    pub text: String,
}

/// A response whose messages are read as they come.
pub struct Stream {
    body: h2::RecvStream,
    bytes: Vec<u8>,
    head: http::HeaderMap,
}

impl Rpc {
    fn connect(port: u16) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let send = runtime.block_on(async {
            let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await;
            let (send, connection) = h2::client::handshake(stream.unwrap()).await.unwrap();
            tokio::spawn(connection);
            send
        });
        Self { runtime, send }
    }

    /// Begins a call of the process service, or of a method with its service: `/grpc.reflection.v1.ServerReflection/…`.
    pub fn begin(&mut self, method: &str, message: &[u8], head: &[(&str, &str)]) -> Stream {
        let path = match method.strip_prefix('/') {
            Some(path) => path.to_owned(),
            None => format!("process.v1.ProcessService/{method}"),
        };
        let mut request = Request::post(format!("http://127.0.0.1/{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for (name, value) in head {
            request = request.header(*name, *value);
        }
        let mut frame = vec![0];
        frame.extend((message.len() as u32).to_be_bytes());
        frame.extend(message);
        let send = self.send.clone();
        self.runtime.block_on(async {
            let mut send = send.ready().await.unwrap();
            let request = request.body(()).unwrap();
            let (response, mut body) = send.send_request(request, false).unwrap();
            body.send_data(frame.into(), true).unwrap();
            let response = tokio::time::timeout(LIMIT, response)
                .await
                .unwrap()
                .unwrap();
            let (head, body) = response.into_parts();
            assert_eq!(head.status, 200);
            Stream {
                body,
                bytes: Vec::new(),
                head: head.headers,
            }
        })
    }

    /// Makes a call.
    pub fn call(&mut self, method: &str, message: &[u8]) -> Called {
        self.call_with(method, message, &[])
    }

    pub fn call_with(&mut self, method: &str, message: &[u8], head: &[(&str, &str)]) -> Called {
        let mut stream = self.begin(method, message, head);
        let mut messages = Vec::new();
        while let Some(message) = self.next(&mut stream) {
            messages.push(message);
        }
        let (status, text) = self.end(stream);
        Called {
            messages,
            status,
            text,
        }
    }

    /// The next message of a response; `None` at its end.
    pub fn next(&mut self, stream: &mut Stream) -> Option<Vec<u8>> {
        self.runtime.block_on(async {
            loop {
                if let Some((length, rest)) = stream.bytes.split_at_checked(5) {
                    let length = length[1..]
                        .iter()
                        .fold(0, |sum, byte| sum << 8 | *byte as usize);
                    if rest.len() >= length {
                        let message = rest[..length].to_vec();
                        stream.bytes.drain(..5 + length);
                        return Some(message);
                    }
                }
                let data = tokio::time::timeout(LIMIT, stream.body.data())
                    .await
                    .unwrap()?;
                let data = data.ok()?;
                let _ = stream.body.flow_control().release_capacity(data.len());
                stream.bytes.extend_from_slice(&data);
            }
        })
    }

    /// The status of a response that has been read to its end.
    pub fn end(&mut self, mut stream: Stream) -> (u32, String) {
        let trailers = self.runtime.block_on(stream.body.trailers()).ok().flatten();
        let trailers = trailers.unwrap_or(stream.head);
        let text = |name| {
            trailers
                .get(name)
                .map(|value| value.to_str().unwrap().to_owned())
        };
        let status = text("grpc-status").expect("a status").parse().unwrap();
        (status, text("grpc-message").unwrap_or_default())
    }
}

/// A message of protobuf: fields of bytes, and of numbers.
#[derive(Clone, Default)]
pub struct Fields(pub Vec<u8>);

impl Fields {
    pub fn bytes(mut self, tag: u8, bytes: &[u8]) -> Self {
        self.0.push(tag << 3 | 2);
        self.number_alone(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn number(mut self, tag: u8, number: u64) -> Self {
        self.0.push(tag << 3);
        self.number_alone(number);
        self
    }

    fn number_alone(&mut self, mut number: u64) {
        while number > 0x7f {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }
}

/// The fields of a message: numbers, and bytes.
pub fn fields(mut message: &[u8]) -> Vec<(u8, u64, Vec<u8>)> {
    let mut found = Vec::new();
    let number = |message: &mut &[u8]| {
        let (mut number, mut shift) = (0, 0);
        loop {
            let (first, rest) = message.split_first().expect("a whole number");
            *message = rest;
            number |= u64::from(first & 0x7f) << shift;
            shift += 7;
            if first & 0x80 == 0 {
                return number;
            }
        }
    };
    while !message.is_empty() {
        let key = number(&mut message);
        let value = number(&mut message);
        match key & 7 {
            0 => found.push(((key >> 3) as u8, value, Vec::new())),
            2 => {
                let (bytes, rest) = message.split_at(value as usize);
                found.push(((key >> 3) as u8, 0, bytes.to_vec()));
                message = rest;
            }
            other => panic!("a field of the kind {other}"),
        }
    }
    found
}

/// A `ProcessConfig`.
pub fn config(words: &[&str], variables: &[(&str, &str)], cwd: Option<&str>) -> Vec<u8> {
    let mut fields = Fields::default();
    for word in words {
        fields = fields.bytes(1, word.as_bytes());
    }
    for (name, value) in variables {
        let pair = Fields::default().bytes(1, name.as_bytes());
        fields = fields.bytes(2, &pair.bytes(2, value.as_bytes()).0);
    }
    if let Some(cwd) = cwd {
        fields = fields.bytes(3, cwd.as_bytes());
    }
    fields.0
}

/// A request with a configuration: `ExecuteRequest`, and `StartRequest` without a terminal.
pub fn wanted(config: &[u8]) -> Vec<u8> {
    Fields::default().bytes(1, config).0
}
