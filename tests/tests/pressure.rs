//! Resources of a session are taken away in the middle of its work: its processes stop, the disk is full, descriptors
//! run out, the socket is pulled. Each call ends with an answer that says so, nothing is half done, and what can go on
//! goes on.
#![allow(clippy::unwrap_used)]

use broker_protocol::{
    Bash, CallId, Ended, ErrorKind, Extent, FileAnswer, FileRead, FileWrite, FromBroker,
    NetworkRequest, Open, Outcome, Request, ToBroker, Wants, Zone, ZonePath,
};
use lazaret_tests::process::{self, Process};
use lazaret_tests::wire::{Received, opening, shell, yes};
use lazaret_tests::world::long_sleep;
use lazaret_tests::{Broker, Chance, LIMIT, Mount, Place, Session, World, place_test, suite};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    suite::main_of_waiting("")
}

/// Shorter than a worker is waited for, and long for everything else.
const PROMPTLY: Duration = Duration::from_secs(8);

/// Stops every process of a session that has this name, as `ps` shows it; they go on when this is dropped.
struct Stopped(Vec<Process>);

impl Stopped {
    #[track_caller]
    fn new(root: i32, name: &str) -> Self {
        // A cell may end by itself between the two.
        let stop = |process: &Process| {
            process.name == name && kill(Pid::from_raw(process.pid), Signal::SIGSTOP).is_ok()
        };
        let stopped: Vec<Process> = process::tree(root).into_iter().filter(stop).collect();
        assert!(
            !stopped.is_empty(),
            "no {name} in {:#?}",
            process::tree(root)
        );
        Self(stopped)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for process in self.0.iter().filter(|process| process.is_alive()) {
            let _ = kill(Pid::from_raw(process.pid), Signal::SIGCONT);
        }
    }
}

place_test!(a_part_that_pauses_goes_on);
/// A part that stops for a while and goes on has lost nothing.
fn a_part_that_pauses_goes_on(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    session
        .call("file_write", json!({"path": "file", "content": "before"}))
        .success();
    for name in [
        "lazaret-executo",
        "lazaret-warden",
        "lazaret-cell",
        "lazaret-worker",
    ] {
        let stopped = Stopped::new(session.pid(), name);
        let calls = [
            session.start_call("bash", json!({"command": "echo on"})),
            session.start_call("file_read", json!({"path": "file"})),
            session.start_call("bash", json!({"command": "echo on"})),
        ];
        std::thread::sleep(Duration::from_millis(500));
        drop(stopped);
        let texts = calls.map(|id| {
            session
                .answer_within(&id, LIMIT)
                .success()
                .trim()
                .to_owned()
        });
        assert_eq!(texts, ["on", "before", "on"], "{name} paused");
    }
}

place_test!(a_part_that_stops_for_good_ends_its_call_by_the_clock);
/// A part that stops for good does not hold a call for ever.
fn a_part_that_stops_for_good_ends_its_call_by_the_clock(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    let marker = long_sleep();
    let command = format!("sleep {marker}");
    // A busy machine may need longer to start it.
    let mut started = [1, 10, 40].into_iter().filter_map(|seconds| {
        let input = json!({"command": command, "timeout": seconds});
        let id = session.start_call("bash", input);
        let runs = || !process::with_marker(&command).is_empty();
        if process::until(Duration::from_secs(seconds), runs) {
            return Some(id);
        }
        session.answer_within(&id, LIMIT);
        None
    });
    let id = started.next().expect("one of them runs before its limit");
    let stopped = Stopped::new(session.pid(), "lazaret-cell");
    let answer = session.answer_within(&id, LIMIT);
    assert_eq!(answer.kind(), "timeout", "{}", answer.result);
    // Of several nobody knows which was the call's.
    assert!(stopped.0.len() > 1 || process::left_after(&stopped.0, LIMIT).is_empty());
    drop(stopped);
    assert_eq!(session.bash("echo on").success().trim(), "on");

    let stopped = Stopped::new(session.pid(), "lazaret-warden");
    // More at once than there are cells.
    let calls: Vec<String> = (0..3)
        .map(|_| session.start_call("bash", json!({"command": "sleep 300"})))
        .collect();
    let kinds: Vec<String> = calls
        .iter()
        .map(|id| session.answer_within(id, LIMIT).kind().to_owned())
        .collect();
    assert_eq!(kinds, ["executor_lost"; 3]);
    drop(stopped);
    assert_eq!(
        session.bash("echo on").success().trim(),
        "on",
        "a new session"
    );
}

/// Lets a call change what git tracks, and stops the worker that is asked about it.
fn stop_question(broker: &mut Broker, call: CallId) -> Option<Stopped> {
    let track = format!(
        "git update-index --add --cacheinfo 100644,$(git hash-object -w /dev/null),.env.{call}"
    );
    let request = Request::Bash(shell(&track));
    stop_worker(broker, call, &ToBroker::Call { call, request })
}

/// Stops the next worker that this broker starts, if it does not answer before; the `Done` of `call` says that it did.
fn stop_worker(broker: &mut Broker, call: CallId, frame: &ToBroker) -> Option<Stopped> {
    let children = format!("/proc/{0}/task/{0}/children", broker.pid());
    let workers = || -> Vec<Process> {
        let children = std::fs::read_to_string(&children).unwrap_or_default();
        let children = children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok());
        let all = children.filter_map(Process::find);
        all.filter(|process| process.name == "lazaret-worker")
            .collect()
    };
    let known: Vec<i32> = workers().iter().map(|process| process.pid).collect();
    broker.send(frame);
    loop {
        if let Some(worker) = workers()
            .into_iter()
            .find(|process| !known.contains(&process.pid))
        {
            kill(Pid::from_raw(worker.pid), Signal::SIGSTOP).unwrap();
            let stopped = Stopped(vec![worker]);
            let is_stopped = process::until(LIMIT, || {
                !stopped.0[0].is_alive() || stopped.0[0].is_stopped()
            });
            return (is_stopped && stopped.0[0].is_stopped()).then_some(stopped);
        }
        if let Received::Message(FromBroker::Done { call: ended, .. }) =
            broker.receive(Duration::from_micros(1))
            && ended == call
        {
            return None;
        }
    }
}

place_test!(a_question_that_nobody_answers_delays_no_other_call);
/// After a call a worker is asked what git tracks. While it does not answer, other calls print, are cancelled and end,
/// and so does the session.
fn a_question_that_nobody_answers_delays_no_other_call(place: Place) {
    let world = World::new(place);
    world.set_up(
        "git init -q .; git config user.name t; git config user.email t@t.invalid
         for call in $(seq 10 69); do echo SECRET=1 > .env.$call; done
         echo '.env*' > .gitignore; git add .gitignore; git commit -qm 1",
    );
    let (mut broker, _) = Broker::open(&world);
    let bash = |broker: &mut Broker, call, command: &str, live| {
        let request = Request::Bash(Bash {
            live,
            ..shell(command)
        });
        broker.send(&ToBroker::Call { call, request });
    };
    bash(
        &mut broker,
        1,
        "while :; do echo on; sleep 0.05; done",
        true,
    );
    bash(&mut broker, 2, "sleep 300", false);
    broker.call(3, read(".gitignore"));
    // The worker may answer before it can be stopped.
    let stopped = (10..60).find_map(|call| Some((call, stop_question(&mut broker, call)?)));
    let (asked, stopped) = stopped.expect("one of fifty is stopped in time");
    let until = Instant::now() + PROMPTLY;
    broker.send(&ToBroker::Cancel { call: 2 });
    bash(&mut broker, 4, "true", false);
    broker.send(&ToBroker::Call {
        call: 5,
        request: read(".gitignore"),
    });
    // Its own end follows what another worker has answered.
    let (mut left, mut printed) = (BTreeSet::from([2, 4, 5, asked]), 0);
    let mut found = String::new();
    while printed < 20 || !left.is_empty() {
        let time = until.saturating_duration_since(Instant::now());
        match broker.receive(time) {
            Received::Message(FromBroker::Output { call: 1, .. }) => printed += 1,
            Received::Message(FromBroker::Done { call, .. }) => {
                let is_found = found.contains(&format!("\".env.{asked}\""));
                assert!(call != asked || is_found, "not before its end: {found}");
                left.remove(&call);
            }
            Received::Message(FromBroker::Found(findings)) => found += &format!("{findings:?}"),
            Received::Message(_) => {}
            other => panic!("{other:?}: {left:?} did not end, {printed} were printed"),
        }
    }
    drop(stopped);
    // Nor does it delay the end of the session.
    let stopped = (60..70).find_map(|call| stop_question(&mut broker, call));
    let _stopped = stopped.expect("one of ten is stopped in time");
    let seen = process::tree(broker.pid());
    broker.stream.shutdown(std::net::Shutdown::Both).unwrap();
    let left = process::left_after(&seen, PROMPTLY);
    assert!(left.is_empty(), "{left:#?}");
}

place_test!(a_lease_whose_settings_nobody_reads_delays_no_other_call);
/// When a directory is granted for writing, a worker is asked what git settings name there. While it does not answer, other calls print, are
/// cancelled and end, and so does the one that waits for it.
fn a_lease_whose_settings_nobody_reads_delays_no_other_call(place: Place) {
    const LEASES: std::ops::Range<CallId> = 10..40;
    let world = World::new(place);
    world.set_policy("version = 1\n");
    // Only settings that can name a path are a question.
    world.write(
        &world.home.join(".gitconfig"),
        "[core]\n hooksPath = tools/hooks\n",
    );
    let data = world.outside.join("data");
    LEASES.for_each(|call| world.make_folder(&data.join(format!("d{call}"))));
    let network = Some(NetworkRequest {
        leases: true,
        ..NetworkRequest::default()
    });
    let open = Open {
        network,
        ..opening(&world)
    };
    let (mut broker, _) = Broker::open_by(&world, world.program("lazaret-executor"), open);
    let request = Request::Bash(Bash {
        live: true,
        ..shell("while :; do echo on; sleep 0.05; done")
    });
    broker.send(&ToBroker::Call { call: 1, request });
    for call in [2, 3] {
        let request = Request::Bash(shell("sleep 300"));
        broker.send(&ToBroker::Call { call, request });
    }
    // The worker may answer before it can be stopped.
    let stopped = LEASES.into_iter().find_map(|call| {
        let path = data.join(format!("d{call}"));
        broker.send(&ToBroker::WantingCall {
            call,
            request: Request::Bash(shell("true")),
            wants: Wants {
                write: vec![path.to_str().unwrap().to_owned()],
                ..Wants::default()
            },
        });
        let challenge = loop {
            match broker.receive(LIMIT) {
                Received::Message(FromBroker::Asked { challenge, .. }) => break challenge,
                Received::Message(_) => {}
                other => panic!("{other:?}: {call} was not asked about"),
            }
        };
        let grant = ToBroker::Grant(yes(call, &challenge, Extent::Once));
        Some((call, stop_worker(&mut broker, call, &grant)?))
    });
    let (granted, _stopped) = stopped.expect("one of thirty is stopped in time");
    broker.send(&ToBroker::Cancel { call: 2 });
    let request = Request::Bash(shell("true"));
    broker.send(&ToBroker::Call { call: 4, request });
    let until = Instant::now() + PROMPTLY;
    ended_beside(&mut broker, (&[2, 4], 20), until);
    // Nor is its own end delayed.
    broker.send(&ToBroker::Cancel { call: 3 });
    broker.send(&ToBroker::Cancel { call: granted });
    ended_beside(&mut broker, (&[3, granted], 0), until);
}

place_test!(an_audit_that_another_broker_holds_delays_nothing_without_a_record);
/// While the lock on the audit's head is held, calls print and are killed, also those whose cancelling came after what waits for the lock.
/// No call begins or ends without its record.
fn an_audit_that_another_broker_holds_delays_nothing_without_a_record(place: Place) {
    /// Shorter than the lock may be held, and long for a broker.
    const HELD: Duration = Duration::from_millis(1200);
    let world = World::new(place);
    let (mut broker, _) = Broker::open(&world);
    let request = Request::Bash(Bash {
        live: true,
        ..shell("while :; do echo on; sleep 0.02; done")
    });
    broker.send(&ToBroker::Call { call: 1, request });
    let head = world.state.join("lazaret/audit/head");
    let marker = long_sleep();
    // A machine that runs nothing of this for a second says nothing.
    let is_held = |call: CallId, broker: &mut Broker| {
        let sleep = format!("sleep {marker}; : {call}");
        let request = Request::Bash(shell(&sleep));
        broker.send(&ToBroker::Call { call, request });
        assert!(process::until(LIMIT, || !process::with_marker(&sleep).is_empty()));
        let lock = std::fs::File::open(&head).unwrap();
        lock.lock().unwrap();
        let began = Instant::now();
        let request = Request::Bash(shell("touch begun"));
        broker.send(&ToBroker::Call {
            call: call + 1,
            request,
        });
        broker.send(&ToBroker::Cancel { call });
        let (mut printed, mut killed) = (0, false);
        while began.elapsed() < HELD {
            match broker.receive(Duration::from_millis(20)) {
                // What was printed before the broker came to the lock does not count.
                Received::Message(FromBroker::Output { call: 1, .. }) => {
                    printed += i32::from(began.elapsed() > HELD / 3);
                }
                Received::Message(FromBroker::Done { call, .. }) => panic!("{call} has no record"),
                _ => {}
            }
            killed = killed || process::with_marker(&sleep).is_empty();
            assert!(!world.project.join("begun").exists(), "it has no record");
        }
        drop(lock);
        ended_beside(broker, (&[call, call + 1], 0), Instant::now() + LIMIT);
        assert!(world.project.join("begun").exists());
        std::fs::remove_file(world.project.join("begun")).unwrap();
        println!("{place}: {printed} printed, killed: {killed}");
        printed >= 5 && killed
    };
    let held = (0..5).any(|round| is_held(10 + 2 * round, &mut broker));
    assert!(held, "the broker waits for the audit");
}

/// Receives until these calls have ended, and call 1 has printed so often.
#[track_caller]
fn ended_beside(broker: &mut Broker, (calls, prints): (&[CallId], usize), until: Instant) {
    let (mut left, mut printed) = (BTreeSet::from_iter(calls.iter().copied()), 0);
    while printed < prints || !left.is_empty() {
        match broker.receive(until.saturating_duration_since(Instant::now())) {
            Received::Message(FromBroker::Output { call: 1, .. }) => printed += 1,
            Received::Message(FromBroker::Done { call, .. }) => drop(left.remove(&call)),
            Received::Message(_) => {}
            other => panic!("{other:?}: {left:?} did not end, {printed} were printed"),
        }
    }
}

fn file(path: &str) -> ZonePath {
    ZonePath::new(Zone::Project, path).unwrap()
}

fn write(path: &str, content: &[u8]) -> Request {
    Request::FileWrite(FileWrite {
        path: file(path),
        content: content.to_vec(),
        overwrite: true,
        expected_sha256: None,
    })
}

fn read(path: &str) -> Request {
    Request::FileRead(FileRead {
        path: file(path),
        offset: None,
        limit: None,
    })
}

place_test!(a_broker_without_descriptors_says_so_and_lives, own_process);
/// A broker that may open no more descriptors answers with an error, and works again when it may.
fn a_broker_without_descriptors_says_so_and_lives(place: Place) {
    let world = World::new(place);
    let (mut broker, _) = Broker::open(&world);
    broker.call(1, write("file", b"content"));
    let limit = |pid: i32, max: &str| {
        let arguments = ["--pid", &pid.to_string(), &format!("--nofile={max}:")];
        assert!(
            world
                .host("prlimit")
                .args(arguments)
                .status()
                .unwrap()
                .success()
        );
    };
    limit(broker.pid(), "12");
    for call in 2..22 {
        broker.send(&ToBroker::Call {
            call,
            request: Request::Bash(shell("sleep 0.2; echo on")),
        });
    }
    let mut kinds = std::collections::BTreeMap::<String, usize>::new();
    let mut left = 20;
    while left > 0 {
        match broker.receive(LIMIT) {
            Received::Message(FromBroker::Done { outcome, .. }) => {
                left -= 1;
                *kinds.entry(format!("{:?}", outcome.error())).or_default() += 1;
            }
            Received::Message(_) => {}
            other => panic!("{other:?} with {left} calls to end: {kinds:?}"),
        }
    }
    println!("{place}: {kinds:?}");
    assert!(
        kinds
            .keys()
            .all(|kind| ["None", "Some(Internal)"].contains(&kind.as_str())),
        "{kinds:?}"
    );
    assert!(
        kinds.contains_key("Some(Internal)"),
        "the limit was not met: {kinds:?}"
    );
    limit(broker.pid(), "1024");
    let done = broker.call(90, Request::Bash(shell("echo on")));
    assert!(
        matches!(&done.outcome, Outcome::Ran(ran) if ran.ended == Ended::Exited(0)),
        "{done:?}"
    );
    let done = broker.call(91, read("file"));
    assert_eq!(done.outcome.error(), None, "{done:?}");
}

place_test!(a_pulled_socket_ends_everything);
/// The client's socket is pulled at a moment of chance in a call: within a second nothing is left.
fn a_pulled_socket_ends_everything(place: Place) {
    let world = World::new(place);
    let mut chance = Chance(0xcab1e);
    let contents = [b'a', b'b'].map(|letter| vec![letter; 500_000]);
    world.put("file", &contents[0]);
    for round in 0..40 {
        let (mut broker, _) = Broker::open(&world);
        broker.call(1, write("small", b"x"));
        broker.call(2, read("file"));
        broker.send(&ToBroker::Call {
            call: 3,
            request: write("file", &contents[round % 2]),
        });
        broker.send(&ToBroker::Call {
            call: 4,
            request: Request::Bash(shell("setsid sleep 300 & sleep 300")),
        });
        std::thread::sleep(Duration::from_micros(chance.below(8000)));
        let seen = process::tree(broker.pid());
        broker.stream.shutdown(std::net::Shutdown::Both).unwrap();
        let left = process::left_after(&seen, LIMIT);
        assert!(left.is_empty(), "round {round}: {left:#?}");
        assert!(
            contents.contains(&world.get("file")),
            "round {round}: half a file"
        );
    }
}

place_test!(a_full_disk_is_an_error_with_a_name, own_process, needs_root);
/// A file system that is full: an error with its name, the old file whole, and room again is enough.
fn a_full_disk_is_an_error_with_a_name(place: Place) {
    let world = World::new(place);
    let _disks = small_disks(&world);
    let (mut broker, _) = Broker::open(&world);
    broker.call(1, write("file", &[b'a'; 400_000]));
    let done = broker.call(2, write("file", &[b'b'; 900_000]));
    assert_eq!(
        done.outcome.error().or_else(|| answer_error(&done.parts)),
        Some(ErrorKind::Io),
        "{done:?}"
    );
    assert_eq!(world.get("file"), [b'a'; 400_000], "the old file");
    let filler =
        "head -c 3000000 /dev/zero > filler; echo done; head -c 400000 /dev/zero | tr '\\0' x";
    let done = broker.call(3, Request::Bash(shell(filler)));
    assert!(matches!(&done.outcome, Outcome::Ran(_)), "{done:?}");
    let done = broker.call(4, Request::Bash(shell("rm filler; echo on")));
    assert_eq!(done.outcome.error(), None, "{done:?}");
    let done = broker.call(5, write("file", &[b'c'; 100_000]));
    assert_eq!(
        done.outcome.error().or_else(|| answer_error(&done.parts)),
        None,
        "{done:?}"
    );
    assert_eq!(world.get("file"), [b'c'; 100_000]);
}

fn answer_error(parts: &[u8]) -> Option<ErrorKind> {
    let answer: FileAnswer = broker_protocol::frame::decode(parts).unwrap();
    answer.err().map(|failed| failed.kind)
}

/// A file system of 1 MiB under each of a world's roots.
fn small_disks(world: &World) -> [Mount; 2] {
    let account = world.place.account();
    let options = format!("size=1m,mode=700,uid={},gid={}", account.uid, account.gid);
    [&world.project, &world.central]
        .map(|root| Mount::of(root, &["-t", "tmpfs", "-o", &options, "tmpfs"]))
}
