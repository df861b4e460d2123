//! Shared parts of the tests of approval: a policy, a runtime directory, and a `lazaret approve` that is unrelated to the client.

use crate::process::LIMIT;
use crate::session::Session;
use crate::wire::{Broker, opening};
use crate::world::World;
use crate::{process, programs};
use broker_protocol::{NetworkRequest, Open};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Gives a world a user policy with this `[approval]`, and a runtime directory.
pub fn set_policy(world: &World, approval: &str) {
    let text = format!("version = 1\n[approval]\n{approval}\n");
    world.set_policy(text);
    make_runtime(world);
}

/// Creates the runtime directory of the world's user.
pub fn make_runtime(world: &World) {
    let runtime = runtime(world);
    world.make_folder(&runtime);
    fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700))
        .expect("a folder we made is ours");
}

/// The runtime directory of the world's user.
pub fn runtime(world: &World) -> PathBuf {
    world.home.with_file_name("run")
}

/// Sets the environment in which a command finds that policy.
pub fn dressed(world: &World, mut command: Command) -> Command {
    command
        .env("XDG_CONFIG_HOME", world.home.join("settings"))
        .env("XDG_RUNTIME_DIR", runtime(world));
    command
}

/// Starts a command of a session that wants these hosts or paths.
pub fn start_wanting(session: &mut Session, id: &str, command: &str, wants: &Value) {
    session.send(&json!({"id": id, "tool": "bash", "input": {"command": command}, "wants": wants}));
}

/// A connection to a broker of the world's user, whose calls may want leases.
pub fn broker_with_leases(world: &World, profile: &str) -> Broker {
    let open = Open {
        network: Some(NetworkRequest {
            leases: true,
            ..NetworkRequest::default()
        }),
        profile: profile.into(),
        ..opening(world)
    };
    let program = dressed(world, world.program("lazaret-executor"));
    Broker::open_by(world, program, open).0
}

/// Checks the audit of a world.
#[track_caller]
pub fn verify_audit(world: &World) {
    let mut verify = dressed(world, world.program("lazaret"));
    process::run(verify.args(["audit", "verify"]), LIMIT).success();
}

/// The question about a call of a session.
#[track_caller]
pub fn asked(session: &mut Session, id: &str) -> Value {
    let event = session.event(id, LIMIT).expect("an event");
    assert_eq!(event["event"], "approval", "{event}");
    event["approval"].clone()
}

/// The records of one kind in the audit of a world.
pub fn audited(world: &World, kind: &str) -> Vec<Value> {
    let files = fs::read_dir(world.state.join("lazaret/audit"))
        .expect("an audit")
        .flatten()
        .map(|entry| entry.path());
    let lines = files.filter(|path| path.extension().is_some_and(|ext| ext == "jsonl"));
    let texts: String = lines
        .map(|path| fs::read_to_string(path).expect("a file of ours"))
        .collect();
    let records = texts
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a record"));
    records.filter(|record| record["kind"] == kind).collect()
}

/// The sockets for approvals in a world; waits until there is one.
pub fn sockets(world: &World) -> Vec<PathBuf> {
    let directory = runtime(world).join("lazaret-approve");
    let list = || {
        fs::read_dir(&directory)
            .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
    };
    let mut found: Vec<PathBuf> = Vec::new();
    process::until(LIMIT, || {
        found = list().unwrap_or_default();
        !found.is_empty()
    });
    found
}

/// A running `lazaret approve --json` that descends from none of the test's processes.
pub struct Approver {
    stdin: ChildStdin,
    lines: Receiver<Value>,
}

impl Approver {
    /// Starts it as the world's user, without the filter that simulates the flat tier.
    pub fn start(world: &World) -> Self {
        let command = world.host(programs::path("lazaret"));
        Self::start_by(world, command)
    }

    /// The same with a prepared program.
    pub fn start_by(world: &World, program: Command) -> Self {
        let mut command = dressed(world, world.host("setsid"));
        command.args(["--fork", "sh", "-c", "read -r go && exec \"$@\"", "sh"]);
        command
            .arg(program.get_program())
            .args(program.get_args())
            .args(["approve", "--json"]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut starter = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let stdin = starter.stdin.take().expect("stdin is a pipe");
        let stdout = starter.stdout.take().expect("stdout is a pipe");
        // While its starter lives, the test is one of its ancestors.
        assert!(
            process::wait(&mut starter, LIMIT).is_some(),
            "setsid does not let it go"
        );
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).unwrap_or_else(|_| json!({ "line": line }));
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        let mut approver = Self { stdin, lines };
        approver.write("go\n");
        approver
    }

    /// The next event with this name, if it arrives in time; others are skipped.
    pub fn event(&mut self, name: &str, limit: Duration) -> Option<Value> {
        let end = Instant::now() + limit;
        loop {
            let line = self
                .lines
                .recv_timeout(end.saturating_duration_since(Instant::now()))
                .ok()?;
            if line["event"] == name {
                return Some(line);
            }
        }
    }

    pub fn send(&mut self, line: &Value) {
        self.write(&format!("{line}\n"));
    }

    fn write(&mut self, text: &str) {
        self.stdin
            .write_all(text.as_bytes())
            .expect("the approver reads");
    }

    /// Waits for the next call and answers it; returns how the call was shown.
    #[track_caller]
    pub fn answer(&mut self, answer: &str) -> Value {
        let asked = self.event("approval", LIMIT).expect("no call was shown");
        self.send(
            &json!({ "session": asked["session"], "call": asked["call"], "approve": answer }),
        );
        asked
    }
}
