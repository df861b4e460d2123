//! A broker that does what a test says: it listens at a socket and speaks the protocol, and nothing runs behind it.

#![allow(dead_code, clippy::disallowed_methods, clippy::unwrap_used)]

use broker_protocol::{
    CallId, Captured, Decoder, Digest, Ended, FileAnswer, FromBroker, Hello, Layer, LayerReport, LayerSet,
    LayerState, Open, Opened, Outcome, Ran, Request, Tier, ToBroker, Usage, encode, frame,
};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long a test waits for something that should happen at once.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What a connection meets.
pub type Script = Box<dyn FnOnce(&mut Peer) + Send>;

/// A broker at a socket of its own.
pub struct Broker {
    /// A folder of its own.
    pub folder: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl Broker {
    /// Serves one connection by `script`.
    pub fn start(script: impl FnOnce(&mut Peer) + Send + 'static) -> Self {
        Self::serving(vec![Box::new(script)])
    }

    /// Serves one connection after the other, each by its script.
    pub fn serving(scripts: Vec<Script>) -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let folder = loop {
            let number = LAST.fetch_add(1, Ordering::Relaxed);
            let name = format!("lazaret-fake-{}-{number}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            match fs::DirBuilder::new().mode(0o700).create(&folder) {
                // Of a test that was killed, and had this process's number.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                made => break made.map(|()| folder).unwrap(),
            }
        };
        let listener = UnixListener::bind(folder.join("socket")).unwrap();
        let serve = move || {
            for script in scripts {
                script(&mut Peer::new(listener.accept().unwrap().0));
            }
        };
        Self { folder, thread: Some(thread::spawn(serve)) }
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// `lazaret COMMAND` with this broker.
    pub fn lazaret(&self, command: &str) -> Command {
        let mut lazaret = Command::new(env!("CARGO_BIN_EXE_lazaret"));
        lazaret.arg(command).arg("--socket").arg(self.folder.join("socket"));
        lazaret.arg("--project").arg(&self.folder).arg("--central").arg("/c");
        lazaret.env("XDG_STATE_HOME", self.folder.join("state")).stdin(Stdio::null());
        lazaret
    }

    /// `lazaret session` with this broker, past its first line.
    pub fn session(&self) -> Client {
        let mut client = Client::start(&mut self.lazaret("session"));
        assert_eq!(client.hear()["event"], "ready");
        client
    }

    /// Waits for the scripts; a panic in one is a panic here.
    pub fn join(mut self) {
        if let Err(panic) = self.thread.take().unwrap().join() {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The other end of a connection.
pub struct Peer {
    stream: UnixStream,
    decoder: Decoder,
    /// Chunks of output sent so far, by call.
    chunks: std::collections::HashMap<CallId, u64>,
}

impl Peer {
    pub fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, decoder: Decoder::new(), chunks: Default::default() }
    }

    /// The next message; none when lazaret is gone.
    pub fn hear(&mut self) -> Option<ToBroker> {
        let mut bytes = [0; 64 * 1024];
        loop {
            if let Some(message) = self.decoder.next().unwrap() {
                return Some(message);
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.decoder.push(&bytes[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("lazaret sends nothing: {error}"),
            }
        }
    }

    pub fn say(&mut self, message: &FromBroker) {
        let mut frame = Vec::new();
        encode(message, &mut frame).unwrap();
        match self.stream.write_all(&frame) {
            // What lazaret makes of this is seen on its side.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            result => result.unwrap(),
        }
    }

    /// Greets and opens the session.
    pub fn open(&mut self) -> Open {
        let Some(ToBroker::Hello(hello)) = self.hear() else { panic!("no hello") };
        hello.check().unwrap();
        self.say(&FromBroker::Hello(Hello::ours(None)));
        let Some(ToBroker::Open(open)) = self.hear() else { panic!("no open") };
        self.say(&FromBroker::Opened(opened()));
        open
    }

    /// The next call.
    pub fn call(&mut self) -> (CallId, Request) {
        match self.hear() {
            Some(ToBroker::Call { call, request }) => (call, request),
            other => panic!("no call, but {other:?}"),
        }
    }

    pub fn output(&mut self, call: CallId, stderr: bool, bytes: &[u8]) {
        let sequence = self.chunks.entry(call).or_default();
        let message = FromBroker::Output { call, stderr, sequence: *sequence, bytes: bytes.to_vec() };
        *sequence += 1;
        self.say(&message);
    }

    pub fn done(&mut self, call: CallId, outcome: Outcome) {
        let usage = Usage { wall_us: 7, ..Usage::default() };
        let layers = LayerSet::default().with(Layer::Seccomp);
        self.say(&FromBroker::Done { call, outcome, usage, layers });
    }

    /// Ends a command that printed `output`.
    pub fn ended(&mut self, call: CallId, ended: Ended, output: &[u8]) {
        let output = Captured { head: output.to_vec(), tail: vec![], omitted: 0 };
        self.done(call, Outcome::Ran(Ran { ended, output, spill: None, timeout_s: Some(10) }));
    }

    /// Answers a file tool, in parts of `size`.
    pub fn answer(&mut self, call: CallId, answer: &FileAnswer, size: usize) {
        for bytes in frame::encode_whole(answer).unwrap().chunks(size) {
            self.say(&FromBroker::Part { call, bytes: bytes.to_vec() });
        }
        self.done(call, Outcome::Answered);
    }

    /// Answers every bash call with what it was asked to run, until lazaret is gone.
    pub fn echo(&mut self) {
        self.open();
        while let Some(message) = self.hear() {
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

/// The session that this broker opens for everybody.
pub fn opened() -> Opened {
    let in_force = LayerReport { layer: Layer::Seccomp, state: LayerState::InForce("all".into()) };
    let state = LayerState::Missing { why: "w".into(), lost: "l".into() };
    Opened {
        project: "/p".into(),
        central: "/c".into(),
        profile: "default".into(),
        policy: Digest([7; 32]),
        tier: Tier::Namespaced,
        layers: vec![in_force, LayerReport { layer: Layer::Cgroup, state }],
        session: "5e".repeat(16),
    }
}

/// A client of `lazaret session`.
pub struct Client {
    pub child: Child,
    pub stdin: Option<ChildStdin>,
    pub stdout: BufReader<ChildStdout>,
}

impl Client {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, stdin, stdout }
    }

    /// Sends one line.
    pub fn say(&mut self, line: impl std::fmt::Display) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Receives one line; null at the end.
    pub fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        if line.is_empty() { Value::Null } else { serde_json::from_str(&line).unwrap() }
    }

    /// Ends the input; returns what still comes, and the exit code.
    pub fn end(mut self) -> (Vec<Value>, i32) {
        drop(self.stdin.take());
        let rest = std::iter::from_fn(|| Some(self.hear()).filter(|line| !line.is_null())).collect();
        (rest, self.child.wait().unwrap().code().unwrap())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
