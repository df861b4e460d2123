//! A peer that speaks the broker's side of the protocol as a test says; nothing runs behind it.

use crate::session::opened;
use broker_protocol::{
    CallId, Captured, Decoder, Denials, Ended, FileAnswer, FromBroker, Hello, Layer, LayerSet,
    LeftRunning, Open, Outcome, Ran, Request, ToBroker, Usage, encode, frame,
};
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long a test waits for something that should happen at once.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What a connection meets.
pub type Script = Box<dyn FnOnce(&mut Peer) + Send>;

/// The other end of a connection.
pub struct Peer {
    stream: UnixStream,
    decoder: Decoder,
    /// Chunks of output sent so far, by call.
    chunks: HashMap<CallId, u64>,
    /// Which connection this is: each has a session of its own.
    number: u8,
}

impl Peer {
    pub fn new(stream: UnixStream, number: u8) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream,
            decoder: Decoder::new(),
            chunks: HashMap::new(),
            number,
        }
    }

    /// The next message; none when lazaret is gone.
    pub fn receive(&mut self) -> Option<ToBroker> {
        let mut bytes = [0; 64 * 1024];
        loop {
            if let Some(message) = self.decoder.next().unwrap() {
                return Some(message);
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.decoder.push(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("lazaret sends nothing: {error}"),
            }
        }
    }

    pub fn send(&mut self, message: &FromBroker) {
        let mut frame = Vec::new();
        encode(message, &mut frame).unwrap();
        match self.stream.write_all(&frame) {
            // What lazaret makes of this is seen on its side.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            result => result.unwrap(),
        }
    }

    /// Whether lazaret stays and sends nothing but credit for so long: that it reads output is never too late.
    pub fn is_quiet(&mut self, time: Duration) -> bool {
        let end = Instant::now() + time;
        let mut bytes = [0; 64 * 1024];
        let quiet = loop {
            match self.decoder.next().unwrap() {
                Some(ToBroker::Credit { .. }) => continue,
                Some(_) => break false,
                None => {}
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break true;
            }
            self.stream.set_read_timeout(Some(left)).unwrap();
            match self.stream.read(&mut bytes) {
                Ok(0) => break false,
                Ok(count) => self.decoder.push(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("lazaret is gone: {error}"),
            }
        };
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        quiet
    }

    /// Greets and opens the session.
    pub fn open(&mut self) -> Open {
        let Some(ToBroker::Hello(hello)) = self.receive() else {
            panic!("no hello")
        };
        hello.check().unwrap();
        self.send(&FromBroker::Hello(Hello::ours(None)));
        let Some(ToBroker::Open(open)) = self.receive() else {
            panic!("no open")
        };
        self.send(&FromBroker::Opened(opened(self.number)));
        open
    }

    /// The next call.
    pub fn call(&mut self) -> (CallId, Request) {
        match self.receive() {
            Some(ToBroker::Call { call, request }) => (call, request),
            other => panic!("no call, but {other:?}"),
        }
    }

    pub fn output(&mut self, call: CallId, stderr: bool, bytes: &[u8]) {
        let sequence = self.chunks.entry(call).or_default();
        let message = FromBroker::Output {
            call,
            stderr,
            sequence: *sequence,
            bytes: bytes.to_vec(),
        };
        *sequence += 1;
        self.send(&message);
    }

    pub fn done(&mut self, call: CallId, outcome: Outcome) {
        self.done_denied(call, outcome, Denials::default());
    }

    /// Ends a call that was denied something.
    pub fn done_denied(&mut self, call: CallId, outcome: Outcome, denied: Denials) {
        let usage = Usage {
            wall_us: 7,
            ..Usage::default()
        };
        let layers = LayerSet::default().with(Layer::Seccomp);
        self.send(&FromBroker::Done {
            call,
            outcome,
            usage,
            layers,
            denied,
        });
    }

    /// Ends a command that printed `output`.
    pub fn ended(&mut self, call: CallId, ended: Ended, output: &[u8]) {
        self.done(call, ran(ended, output, Some(10)));
    }

    /// Ends a command that printed nothing and was denied something.
    pub fn ended_denied(&mut self, call: CallId, ended: Ended, denied: Denials) {
        self.done_denied(call, ran(ended, b"", Some(10)), denied);
    }

    /// Answers a file tool, in parts of `size`.
    pub fn answer(&mut self, call: CallId, answer: &FileAnswer, size: usize) {
        for bytes in frame::encode_whole(answer).unwrap().chunks(size) {
            self.send(&FromBroker::Part {
                call,
                bytes: bytes.to_vec(),
            });
        }
        self.done(call, Outcome::Answered);
    }

    /// Answers every bash call with what it was asked to run, until lazaret is gone.
    pub fn echo(&mut self) {
        self.open();
        while let Some(message) = self.receive() {
            if let ToBroker::Call { call, request } = message {
                self.ended(call, Ended::Exited(0), shell(&request).as_bytes());
            }
        }
    }
}

/// The shell command of a call.
pub fn shell(request: &Request) -> &str {
    match request {
        Request::Bash(bash) => match &bash.command {
            broker_protocol::Command::Shell(text) => text,
            other => panic!("no shell command, but {other:?}"),
        },
        other => panic!("no command, but {other:?}"),
    }
}

/// The outcome of a command that was bound to `timeout_s`.
pub fn ran(ended: Ended, output: &[u8], timeout_s: Option<u32>) -> Outcome {
    let output = Captured {
        head: output.to_vec(),
        tail: vec![],
        omitted: 0,
    };
    Outcome::Ran(Ran {
        ended,
        output,
        spill: None,
        stderr: None,
        timeout_s,
        profile: None,
        leftover: LeftRunning::default(),
    })
}
