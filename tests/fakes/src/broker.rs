//! A broker that does what a test says: it listens at a socket and speaks the protocol, and nothing runs behind it.

use crate::peer::{PATIENCE, Peer, Script};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

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
        // Beside the state, which no project may hold.
        fs::create_dir(folder.join("project")).unwrap();
        let listener = UnixListener::bind(folder.join("socket")).unwrap();
        let serve = move || {
            for (number, script) in scripts.into_iter().enumerate() {
                script(&mut Peer::new(listener.accept().unwrap().0, number as u8));
            }
        };
        Self {
            folder,
            thread: Some(thread::spawn(serve)),
        }
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// `lazaret COMMAND` with this broker.
    pub fn lazaret(&self, command: &str) -> Command {
        let mut lazaret = Command::new(program());
        lazaret
            .arg(command)
            .arg("--socket")
            .arg(self.folder.join("socket"));
        lazaret
            .arg("--project")
            .arg(self.folder.join("project"))
            .arg("--central")
            .arg("/c");
        lazaret
            .env("XDG_STATE_HOME", self.folder.join("state"))
            .stdin(Stdio::null());
        lazaret
    }

    /// `lazaret session` with this broker, past its first line.
    pub fn session(&self) -> Client {
        let mut client = Client::start(&mut self.lazaret("session"));
        assert_eq!(client.receive()["event"], "ready");
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

/// The program `lazaret`, which Cargo builds for the tests of its package, above the folder of these.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("lazaret");
    assert!(program.exists(), "no test of the package of `lazaret` runs");
    program
}

/// A client of `lazaret session`.
pub struct Client {
    pub child: Child,
    pub stdin: Option<ChildStdin>,
    pub stdout: BufReader<ChildStdout>,
}

impl Client {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (
            child.stdin.take(),
            BufReader::new(child.stdout.take().unwrap()),
        );
        Self {
            child,
            stdin,
            stdout,
        }
    }

    /// Sends one line.
    pub fn send(&mut self, line: impl std::fmt::Display) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Receives one line; null at the end.
    pub fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        if line.is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&line).unwrap()
        }
    }

    /// Waits until lazaret can write no more, because nobody reads.
    pub fn await_full_output(&self) {
        let ours = format!("/proc/self/fd/{}", self.stdout.get_ref().as_raw_fd());
        let writer = fs::OpenOptions::new().write(true).open(ours).unwrap();
        let end = Instant::now() + PATIENCE;
        let writable = || {
            let mut asked = [PollFd::new(writer.as_fd(), PollFlags::POLLOUT)];
            poll(&mut asked, PollTimeout::ZERO).unwrap() > 0
        };
        while writable() {
            assert!(Instant::now() < end, "it still has room");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends the input; returns what still comes, and the exit code.
    pub fn end(mut self) -> (Vec<Value>, i32) {
        drop(self.stdin.take());
        let rest =
            std::iter::from_fn(|| Some(self.receive()).filter(|line| !line.is_null())).collect();
        (rest, self.child.wait().unwrap().code().unwrap())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
