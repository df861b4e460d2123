//! A client of `lazaret-executor broker` that sends raw frames, valid and invalid, over a socket pair.

use crate::process::LIMIT;
use crate::process::{self, Process};
use crate::sys;
use crate::world::World;
use broker_protocol::{
    Bash, CallId, Challenge, Command, Decoder, Ended, Extent, FileAnswer, FileRead, FromBroker,
    Grant, GrantFault, Hello, Open, Opened, Outcome, Request, Stdin, ToBroker, Ungranted, Usage,
    Zone, ZonePath, encode, frame,
};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The answer yes to a question.
pub fn yes(call: CallId, challenge: &Challenge, extent: Extent) -> Grant {
    Grant {
        call,
        digest: challenge.digest,
        nonce: challenge.nonce,
        extent,
    }
}

/// Reads a file of the project.
pub fn file_read(path: &str) -> Request {
    Request::FileRead(FileRead {
        path: ZonePath::new(Zone::Project, path).expect("a path of the project"),
        offset: None,
        limit: None,
    })
}

/// The end of a command.
pub fn end_of(outcome: &Outcome) -> Option<Ended> {
    match outcome {
        Outcome::Ran(ran) => Some(ran.ended),
        _ => None,
    }
}

/// A broker started by the test, with our end of the connection.
pub struct Broker {
    pub child: Child,
    pub stream: UnixStream,
    decoder: Decoder,
}

/// The result of waiting for a message.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one at a time")]
pub enum Received {
    Message(FromBroker),
    /// The broker closed the connection.
    Closed,
    /// No complete message within the time.
    Nothing,
}

/// How a call ended, with what came before.
#[derive(Debug)]
pub struct Done {
    pub outcome: Outcome,
    pub usage: Usage,
    /// Live output of both streams, in order of arrival.
    pub output: Vec<u8>,
    /// The parts of a file tool's answer, joined.
    pub parts: Vec<u8>,
}

impl Broker {
    /// Starts a broker in the world's place, without sending anything.
    pub fn start(world: &World) -> Self {
        Self::spawn(world, world.program("lazaret-executor"))
    }

    /// The same with a prepared command.
    pub fn spawn(world: &World, mut command: std::process::Command) -> Self {
        let account = world.place.account();
        // The broker serves only its own user, and asks the kernel who created the connection.
        let pair = sys::socket_pair_of(account.uid.as_raw(), account.gid.as_raw());
        let (ours, theirs) = pair.expect("a socketpair can be had");
        command
            .arg("broker")
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null());
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        ours.set_write_timeout(Some(LIMIT))
            .expect("a socket has a timeout");
        Self {
            child,
            stream: ours,
            decoder: Decoder::new(),
        }
    }

    /// Starts a broker and exchanges greetings.
    #[track_caller]
    pub fn greeted(world: &World) -> Self {
        let mut broker = Self::start(world);
        broker.greet();
        broker
    }

    #[track_caller]
    pub fn greet(&mut self) {
        self.send(&ToBroker::Hello(Hello::ours(None)));
        let hello = self.message();
        assert!(
            matches!(hello, FromBroker::Hello(_)),
            "the first answer is {hello:?}"
        );
    }

    /// Starts a broker with an open session.
    #[track_caller]
    pub fn open(world: &World) -> (Self, Opened) {
        Self::open_by(world, world.program("lazaret-executor"), opening(world))
    }

    /// The same with a prepared command and a different opening.
    #[track_caller]
    pub fn open_by(world: &World, command: std::process::Command, opening: Open) -> (Self, Opened) {
        let mut broker = Self::spawn(world, command);
        broker.greet();
        broker.send(&ToBroker::Open(opening));
        match broker.message() {
            FromBroker::Opened(opened) => (broker, opened),
            other => panic!("the session did not open: {other:?}"),
        }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Sends a message; panics if the broker does not accept it.
    #[track_caller]
    pub fn send(&mut self, message: &ToBroker) {
        self.send_bytes(&framed(message))
            .expect("the broker takes a frame");
    }

    /// Sends bytes unchanged.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a body with its correct length.
    pub fn send_body(&mut self, body: &[u8]) -> io::Result<()> {
        let mut frame = (body.len() as u32).to_le_bytes().to_vec();
        frame.extend_from_slice(body);
        self.send_bytes(&frame)
    }

    #[track_caller]
    pub fn receive(&mut self, limit: Duration) -> Received {
        let end = Instant::now() + limit;
        let mut buffer = [0; 64 * 1024];
        loop {
            if let Some(message) = self
                .decoder
                .next()
                .expect("the broker sends whole messages")
            {
                return Received::Message(message);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Received::Nothing;
            }
            self.stream
                .set_read_timeout(Some(left))
                .expect("a socket has a timeout");
            match self.stream.read(&mut buffer) {
                Ok(0) => return Received::Closed,
                Ok(length) => self.decoder.push(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Received::Nothing;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Received::Closed,
            }
        }
    }

    /// The question about a call, which is the next message.
    #[track_caller]
    pub fn challenge(&mut self, call: CallId) -> Challenge {
        match self.message() {
            FromBroker::Asked {
                call: of,
                challenge,
            } if of == call => challenge,
            other => panic!("call {call} was not asked about: {other:?}"),
        }
    }

    /// Why the answer to a question was not taken.
    #[track_caller]
    pub fn ungranted(&mut self) -> Ungranted {
        match self.message() {
            FromBroker::Ungranted(not) => not,
            other => panic!("the answer was taken: {other:?}"),
        }
    }

    /// Why this answer to a question is not taken.
    #[track_caller]
    pub fn refused_grant(&mut self, grant: Grant) -> GrantFault {
        self.send(&ToBroker::Grant(grant));
        self.ungranted().fault
    }

    /// The next message, which must come.
    #[track_caller]
    pub fn message(&mut self) -> FromBroker {
        match self.receive(LIMIT) {
            Received::Message(message) => message,
            other => panic!(
                "no message from the broker: {other:?}; it {:?}",
                self.child.try_wait()
            ),
        }
    }

    /// Runs a call to its end, giving credit for output as it comes.
    #[track_caller]
    pub fn call(&mut self, call: CallId, request: Request) -> Done {
        self.send(&ToBroker::Call { call, request });
        self.done(call)
    }

    /// Waits for the end of a call, giving credit for output as it comes; drops messages of other calls.
    #[track_caller]
    pub fn done(&mut self, call: CallId) -> Done {
        let (mut output, mut parts) = (Vec::new(), Vec::new());
        loop {
            match self.message() {
                FromBroker::Output {
                    call: of, bytes, ..
                } if of == call => {
                    output.extend_from_slice(&bytes);
                    self.send(&ToBroker::Credit {
                        call,
                        bytes: bytes.len() as u32,
                    });
                }
                FromBroker::Part { call: of, bytes } if of == call => {
                    parts.extend_from_slice(&bytes)
                }
                FromBroker::Done {
                    call: of,
                    outcome,
                    usage,
                    ..
                } if of == call => {
                    return Done {
                        outcome,
                        usage,
                        output,
                        parts,
                    };
                }
                FromBroker::Fault(failed) => panic!("the broker ended the connection: {failed:?}"),
                _ => {}
            }
        }
    }

    /// The answer of a file tool; the call must have succeeded.
    #[track_caller]
    pub fn ask(&mut self, call: CallId, request: Request) -> FileAnswer {
        let done = self.call(call, request);
        assert_eq!(done.outcome, Outcome::Answered);
        frame::decode_whole(&done.parts).expect("the parts of an answer are an answer")
    }

    /// Waits for the broker's end.
    #[track_caller]
    pub fn ended(&mut self, limit: Duration) -> ExitStatus {
        process::wait(&mut self.child, limit)
            .unwrap_or_else(|| panic!("the broker is not over after {limit:?}"))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        if process::wait(&mut self.child, LIMIT).is_none() {
            process::tree(self.pid()).iter().for_each(Process::kill);
            let _ = self.child.wait();
        }
    }
}

/// The opening of a world's session, with one spare cell.
pub fn opening(world: &World) -> Open {
    let text = |path: &std::path::Path| path.to_str().expect("our paths are text").to_owned();
    let (project, central) = (text(&world.project), text(&world.central));
    Open {
        spare: 1,
        ..lazaret_fakes::open(&project, &central)
    }
}

/// A message as a frame.
pub fn framed(message: &ToBroker) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes).expect("our messages fit in a frame");
    bytes
}

/// A shell command without input and live output.
pub fn shell(command: &str) -> Bash {
    Bash {
        command: Command::Shell(command.to_owned()),
        directory: None,
        timeout_s: None,
        idle_timeout_s: None,
        stdin: Stdin::Null,
        live: false,
        background: false,
        split: false,
        attended: false,
    }
}
