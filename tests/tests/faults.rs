//! Parts of Lazaret are killed at bad moments: within a second nothing of the session is alive, no half-written or
//! temporary file stands in the project, and what can go on goes on. Criterion 6 of the main job.
#![allow(clippy::unwrap_used)]

use broker_protocol::{
    FileReply, FileWrite, History, Outcome, Request, ToBroker, Undo, Zone, ZonePath,
};
use lazaret_tests::process::{self, Process, until};
use lazaret_tests::wire::{Received, file_read, shell};
use lazaret_tests::world::long_sleep;
use lazaret_tests::{
    Broker, Chance, LIMIT, Place, Session, World, leftovers, once_test, place_test, programs,
    suite, sys,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime};

fn main() -> ExitCode {
    suite::main_of_waiting("")
}

/// A part of a running session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Broker,
    Warden,
    Cell,
    Worker,
}

impl Part {
    /// Whether a process plays this part. Names are those that `ps` shows, at most 15 bytes.
    fn is(self, process: &Process) -> bool {
        match self {
            Part::Broker => process.name == "lazaret-executo",
            Part::Warden => process.name == "lazaret-warden",
            Part::Cell => process.name == "lazaret-cell",
            Part::Worker => process.name == "lazaret-worker",
        }
    }

    /// The processes below `root` that play it.
    #[track_caller]
    fn find(self, root: i32) -> Vec<Process> {
        let tree = process::tree(root);
        let found: Vec<Process> = tree
            .iter()
            .filter(|process| self.is(process))
            .cloned()
            .collect();
        assert!(!found.is_empty(), "no {self:?} in {tree:#?}");
        found
    }
}

/// Starts a command that would rather live on, and waits until it does.
fn start_stubborn(session: &mut Session) -> (String, String) {
    let marker = long_sleep();
    let command = format!("trap '' HUP INT TERM; setsid sleep {marker} & sleep {marker}");
    let id = session.start_call("bash", json!({"command": command}));
    let sleeps = format!("sleep {marker}");
    assert!(until(LIMIT, || process::with_marker(&sleeps)
        .iter()
        .filter(|p| p.name == "sleep")
        .count()
        == 2));
    (id, sleeps)
}

/// Checks that a whole session is gone within a second: what was seen of it, and what carries its home.
#[track_caller]
fn assert_all_gone(seen: &[Process], world: &World) {
    let left = process::left_after(seen, LIMIT);
    assert!(left.is_empty(), "alive a second after the kill: {left:#?}");
    let home = world.home.to_str().unwrap();
    let late = process::with_environment(home);
    assert!(late.is_empty(), "alive a second after the kill: {late:#?}");
}

place_test!(without_the_orchestrator_nothing_lives_on);
fn without_the_orchestrator_nothing_lives_on(place: Place) {
    for signal in [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGHUP] {
        let world = World::new(place);
        let mut command = world.lazaret("session");
        sys::with_default_signals(&mut command);
        let mut session = Session::start(&mut command);
        session
            .call("file_write", json!({"path": "file", "content": "x"}))
            .success();
        let (_, sleeps) = start_stubborn(&mut session);
        let seen = process::tree(session.pid());
        kill(Pid::from_raw(session.pid()), signal).unwrap();
        assert!(
            process::wait(&mut session.child, LIMIT).is_some(),
            "{signal} did not end it"
        );
        process::assert_gone(&sleeps, LIMIT);
        assert_all_gone(&seen, &world);
    }
}

place_test!(without_the_broker_nothing_below_lives_and_the_session_can_begin_again);
fn without_the_broker_nothing_below_lives_and_the_session_can_begin_again(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    session
        .call("file_write", json!({"path": "file", "content": "x"}))
        .success();
    let (id, sleeps) = start_stubborn(&mut session);
    let broker = &Part::Broker.find(session.pid())[0];
    let seen = process::tree(broker.pid);
    broker.kill();
    process::assert_gone(&sleeps, LIMIT);
    let left = process::left_after(&seen, LIMIT);
    assert!(left.is_empty(), "alive a second after the kill: {left:#?}");
    assert_eq!(session.answer_within(&id, LIMIT).kind(), "executor_lost");
    assert_eq!(session.bash("echo on").success(), "on\n");
}

place_test!(without_the_warden_no_cell_lives);
fn without_the_warden_no_cell_lives(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    let (id, sleeps) = start_stubborn(&mut session);
    Part::Warden.find(session.pid())[0].kill();
    process::assert_gone(&sleeps, LIMIT);
    let answer = session.answer_within(&id, LIMIT);
    assert!(!answer.ok(), "{}", answer.result);
    assert!(
        until(LIMIT, || session.bash("echo on").ok()),
        "no session after the warden's end"
    );
    let seen = process::tree(session.pid());
    assert!(session.close(LIMIT).success());
    assert_all_gone(&seen, &world);
}

place_test!(a_killed_cell_is_one_broken_call);
fn a_killed_cell_is_one_broken_call(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    for _ in 0..5 {
        let (id, sleeps) = start_stubborn(&mut session);
        let sleep = process::with_marker(&sleeps)
            .into_iter()
            .find(|process| process.name == "sleep")
            .unwrap();
        let cells = Part::Cell.find(session.pid());
        let cell = cells
            .iter()
            .find(|cell| process::tree(cell.pid).contains(&sleep))
            .unwrap_or(&cells[0]);
        cell.kill();
        process::assert_gone(&sleeps, LIMIT);
        let answer = session.answer_within(&id, LIMIT);
        assert!(!answer.ok(), "{}", answer.result);
        assert_eq!(session.bash("echo on").success(), "on\n");
    }
    // Cells that wait for an order are killed too, and nobody notices.
    let mut cells = process::tree(session.pid());
    cells.retain(|process| Part::Cell.is(process));
    cells.iter().for_each(Process::kill);
    assert!(process::left_after(&cells, LIMIT).is_empty());
    for _ in 0..3 {
        session.bash("echo on").success();
    }
}

place_test!(process_killed_before_it_starts_its_program_fails_one_call);
fn process_killed_before_it_starts_its_program_fails_one_call(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    session.bash("true").success();
    for _ in 0..3 {
        // A cell that waits has made the process that is to be the program.
        let below_a_cell = || -> Vec<Process> {
            let all = process::below(session.pid());
            let cells: Vec<&Process> = all
                .iter()
                .filter(|process| Part::Cell.is(process))
                .collect();
            let made = |process: &Process| {
                cells
                    .iter()
                    .any(|cell| process::below(cell.pid).contains(process))
            };
            cells
                .iter()
                .filter(|process| made(process))
                .map(|process| (*process).clone())
                .collect()
        };
        assert!(process::until(LIMIT, || !below_a_cell().is_empty()));
        let waiting = below_a_cell();
        waiting.iter().for_each(Process::kill);
        for _ in &waiting {
            let id = session.start_call("bash", json!({ "command": "echo on" }));
            session.answer_within(&id, LIMIT);
        }
        assert_eq!(session.bash("echo on").success(), "on\n");
    }
}

place_test!(a_killed_worker_is_one_broken_call_at_most);
fn a_killed_worker_is_one_broken_call_at_most(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    session
        .call("file_write", json!({"path": "file", "content": "x"}))
        .success();
    for round in 0..10 {
        Part::Worker
            .find(session.pid())
            .iter()
            .for_each(Process::kill);
        // The kill may be noticed only when the next call has been handed down.
        let first = session.call("file_read", json!({"path": "file"}));
        assert!(first.ok() || first.kind() == "internal", "{}", first.result);
        // The new worker knows nothing of what the session had read.
        let blind = session.call("file_write", json!({"path": "file", "content": "blind"}));
        assert_eq!(
            blind.kind(),
            if first.ok() { "" } else { "invalid_input" },
            "{}",
            blind.result
        );
        session.call("file_read", json!({"path": "file"})).success();
        let next = session.call(
            "file_write",
            json!({"path": "file", "content": round.to_string()}),
        );
        next.success();
        assert_eq!(world.get("file"), round.to_string().as_bytes());
    }
}

place_test!(no_kill_leaves_half_a_file);
/// A hundred writes, each cut short at a moment of chance by the death of one part.
fn no_kill_leaves_half_a_file(place: Place) {
    let world = World::new(place);
    let mut chance = Chance(0x5eed);
    let parts = [Part::Broker, Part::Warden, Part::Worker];
    let contents = [b'a', b'b'].map(|letter| vec![letter; 200_000]);
    world.put("file", &contents[0]);
    for round in 0..100 {
        let part = parts[round % parts.len()];
        let (mut broker, _) = Broker::open(&world);
        // One small write first, so that the worker is there.
        broker.call(1, file_read("small"));
        broker.call(2, write("small", b"x"));
        broker.call(3, file_read("file"));
        let seen = process::tree(broker.pid());
        let victim = Part::find(part, broker.pid())[0].clone();
        broker.send(&ToBroker::Call {
            call: 4,
            request: write("file", &contents[(round / 2 + 1) % 2]),
        });
        // A write takes some milliseconds, and in a debug build, which hashes slowly, some ten times as many.
        std::thread::sleep(Duration::from_micros(chance.below(if round % 2 == 0 {
            6000
        } else {
            100_000
        })));
        victim.kill();
        if part == Part::Worker {
            wait_for_call(&mut broker, 4);
            let next = broker.call(5, Request::Bash(shell("true")));
            assert!(matches!(next.outcome, Outcome::Ran(_)), "{next:?}");
        }
        drop(broker);
        let left = process::left_after(&seen, LIMIT);
        assert!(left.is_empty(), "round {round}, {part:?} killed: {left:#?}");
        assert_whole(
            &world,
            &contents,
            &format!("round {round}, {part:?} killed"),
        );
    }
    assert_history_works(&world, &contents);
}

/// Whatever was killed: every listed change can be undone, or is reported as not done.
#[track_caller]
fn assert_history_works(world: &World, contents: &[Vec<u8>]) {
    let (mut broker, _) = Broker::open(world);
    let Ok(FileReply::History(history)) = broker.ask(1, Request::History(History { limit: 1000 }))
    else {
        panic!("no history");
    };
    assert!(
        history.changes.len() >= 100,
        "{} changes",
        history.changes.len()
    );
    let mut undone = 0;
    for change in history
        .changes
        .into_iter()
        .filter(|change| change.before.is_some())
        .take(40)
    {
        let undo = Undo {
            change: change.number,
            path: change.path,
            force: true,
        };
        match broker.ask(2, Request::Undo(undo)) {
            Ok(FileReply::Undone(_)) => undone += 1,
            Err(failed) if failed.message.contains("already") => {}
            other => panic!("change {}: {other:?}", change.number),
        }
        assert!(contents.contains(&world.get("file")));
    }
    assert!(undone > 0, "no kill came after a change was kept");
}

once_test!(no_kill_of_the_orchestrator_leaves_half_a_file);
/// The orchestrator is killed in place of the executor.
fn no_kill_of_the_orchestrator_leaves_half_a_file() {
    let world = World::new(Place::any());
    let mut chance = Chance(0xfeed);
    let contents = ["a", "b"].map(|letter| letter.repeat(900_000));
    let bytes = contents.clone().map(String::into_bytes);
    world.put("file", &contents[0]);
    for round in 0..20 {
        let mut session = Session::open(&world);
        session.call("file_read", json!({"path": "file"})).success();
        let seen = process::tree(session.pid());
        session.start_call(
            "file_write",
            json!({"path": "file", "content": contents[(round + 1) % 2]}),
        );
        std::thread::sleep(Duration::from_micros(chance.below(20_000)));
        session.child.kill().unwrap();
        let left = process::left_after(&seen[1..], LIMIT);
        assert!(left.is_empty(), "round {round}: {left:#?}");
        assert_whole(&world, &bytes, &format!("round {round}"));
    }
}

place_test!(a_run_dies_with_its_cell);
/// A parent that dies takes `lazaret run` and its cell along, as a desktop application expects of its sidecar.
fn a_run_dies_with_its_cell(place: Place) {
    let world = World::new(place);
    let marker = long_sleep();
    let mut command = world.cell(&format!("setsid sleep {marker} & sleep {marker}"));
    let mut child = command.process_group(0).spawn().unwrap();
    let sleeps = format!("sleep {marker}");
    assert!(until(LIMIT, || process::with_marker(&sleeps)
        .iter()
        .filter(|p| p.name == "sleep")
        .count()
        == 2));
    let seen = process::below(child.id() as i32);
    child.kill().unwrap();
    child.wait().unwrap();
    process::assert_gone(&sleeps, LIMIT);
    assert_all_gone(&seen, &world);
}

place_test!(background_processes_end_with_the_session);
/// A background process is as stubborn as it can be, and ends with its session however that ends.
fn background_processes_end_with_the_session(place: Place) {
    for end in [None, Some(Part::Broker), Some(Part::Warden)] {
        let world = World::new(place);
        let mut session = Session::open(&world);
        let marker = long_sleep();
        let command = format!("trap '' HUP INT TERM; setsid sleep {marker} & sleep {marker}");
        session
            .call("bash", json!({"command": command, "background": true}))
            .success();
        let sleeps = format!("sleep {marker}");
        let alive = || {
            process::with_marker(&sleeps)
                .iter()
                .filter(|p| p.name == "sleep")
                .count()
        };
        assert!(until(LIMIT, || alive() == 2));
        let seen = process::tree(session.pid());
        match end {
            None => assert!(session.close(LIMIT).success()),
            Some(part) => part.find(session.pid())[0].kill(),
        }
        process::assert_gone(&sleeps, LIMIT);
        if end.is_none() {
            assert_all_gone(&seen, &world);
        }
    }
    let world = World::new(place);
    let mut session = Session::open(&world);
    let marker = long_sleep();
    let command = format!("trap '' HUP INT TERM; setsid sleep {marker} & sleep {marker}");
    session
        .call("bash", json!({"command": command, "background": true}))
        .success();
    let sleeps = format!("sleep {marker}");
    assert!(until(LIMIT, || !process::with_marker(&sleeps).is_empty()));
    let seen = process::tree(session.pid());
    session.child.kill().unwrap();
    process::assert_gone(&sleeps, LIMIT);
    assert_all_gone(&seen[1..], &world);
}

/// The processes of a session, its warden and cells stopped if `stops`.
fn processes_of(session: &Session, stops: bool) -> Vec<Process> {
    let seen = process::below(session.pid());
    if stops {
        let held = [Part::Warden, Part::Cell].map(|part| part.find(session.pid()));
        for one in held.iter().flatten() {
            kill(Pid::from_raw(one.pid), Signal::SIGSTOP).unwrap();
        }
        assert!(until(LIMIT, || held
            .iter()
            .flatten()
            .all(Process::is_stopped)));
    }
    seen
}

place_test!(nothing_outlives_the_broker_and_the_warden);
/// Both are killed, in either order, at once or one after the other, while a command runs or none, and while what would notice is
/// stopped. First processes that wait for a program to prepare sleep on no socket.
fn nothing_outlives_the_broker_and_the_warden(place: Place) {
    const ORDERS: [&[Part]; 3] = [
        &[Part::Broker, Part::Warden],
        &[Part::Warden, Part::Broker],
        &[Part::Broker],
    ];
    let gaps = [Duration::ZERO, Duration::from_millis(3)];
    for ((order, gap), (runs, stops)) in ORDERS
        .iter()
        .flat_map(|order| gaps.map(|gap| (*order, gap)))
        .flat_map(|killed| {
            [(false, false), (true, false), (false, true), (true, true)]
                .map(|moment| (killed, moment))
        })
    {
        let world = World::new(place);
        let mut session = Session::open(&world);
        session.bash("true").success();
        let sleeps = runs.then(|| start_stubborn(&mut session).1);
        let seen = processes_of(&session, stops);
        let victims = order.iter().flat_map(|part| part.find(session.pid()));
        for victim in victims.collect::<Vec<_>>() {
            victim.kill();
            std::thread::sleep(gap);
        }
        let _ = session.child.kill();
        let what =
            format!("{order:?} killed {gap:?} apart; a command runs: {runs}, stopped: {stops}");
        let left = process::left_after(&seen, LIMIT);
        left.iter().for_each(Process::kill);
        assert!(left.is_empty(), "{what}: {left:#?}");
        sleeps
            .iter()
            .for_each(|sleeps| process::assert_gone(sleeps, LIMIT));
    }
}

once_test!(a_process_that_a_test_leaves_fails_the_run);
fn a_process_that_a_test_leaves_fails_the_run() {
    /// In the runs that this test starts of itself: what it leaves.
    const LEAVES: &str = "LAZARET_LEAVES";
    const NAME: &str = "a_process_that_a_test_leaves_fails_the_run";
    if let Ok(left) = std::env::var(LEAVES) {
        let line = format!("{left} & echo $!");
        let shell = process::run(Command::new("sh").args(["-c", &line]), LIMIT);
        let started = shell.text().trim().parse().unwrap();
        // The shell does not wait until its child has become the program: before, nothing says that it is ours.
        assert!(process::until(LIMIT, || {
            Process::find(started).is_some_and(|started| started.name == "sleep")
        }));
    } else {
        see_the_run_fail(LEAVES, NAME);
    }
}

/// Starts the test `name` again, which leaves what `variable` says.
fn see_the_run_fail(variable: &str, name: &str) {
    let run = |left: &str| {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", name]).env(variable, left);
        again.env(leftovers::PATIENCE, "2");
        process::run(again.env("LAZARET_BIN", programs::folder()), LIMIT)
    };
    let (filter, marker) = (programs::path("without-namespaces"), long_sleep());
    let ours = run(&format!("{} sleep {marker} >&- 2>&-", filter.display()));
    assert!(
        ours.code() != 0 && ours.errors().contains(&marker),
        "{}",
        ours.errors()
    );
    process::assert_gone(&marker, LIMIT);
    // The control: what is not ours may stay.
    assert_eq!(run(&format!("sleep {marker} >&- 2>&-")).code(), 0);
    process::with_marker(&marker).iter().for_each(Process::kill);
}

place_test!(an_orderly_end_leaves_nothing);
/// A session that ends in an orderly way leaves no process and no file of its own in the project.
fn an_orderly_end_leaves_nothing(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    session.bash("echo x > made; true & true").success();
    session.call("file_read", json!({"path": "made"})).success();
    let seen = process::tree(session.pid());
    assert!(session.close(LIMIT).success());
    assert_all_gone(&seen, &world);
    let names: Vec<_> = fs::read_dir(&world.project)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["made"]);
}

fn write(path: &str, content: &[u8]) -> Request {
    Request::FileWrite(FileWrite {
        path: ZonePath::new(Zone::Project, path).unwrap(),
        content: content.to_vec(),
        overwrite: true,
        expected_sha256: None,
    })
}

/// Waits for the end of a call, however it ends.
#[track_caller]
fn wait_for_call(broker: &mut Broker, call: u64) {
    loop {
        match broker.receive(LIMIT) {
            Received::Message(broker_protocol::FromBroker::Done { call: of, .. }) if of == call => {
                return;
            }
            Received::Message(_) => {}
            other => panic!("no end of call {call}: {other:?}"),
        }
    }
}

/// The file holds one content or the other, and within a second nothing else stands beside it.
#[track_caller]
fn assert_whole(world: &World, contents: &[Vec<u8>], when: &str) {
    let now = world.get("file");
    let described = format!(
        "{} bytes, first {:?}, last {:?}",
        now.len(),
        now.first(),
        now.last()
    );
    assert!(contents.contains(&now), "{when}: the file is {described}");
    let left: Vec<String> = names(world)
        .into_iter()
        .filter(|name| !["file", "small"].contains(&name.as_str()))
        .collect();
    for name in &left {
        // Killed between naming its temporary file and renaming it: what is left is whole, and goes with the next session.
        assert!(name.starts_with(".lazaret-"), "{when}: {name} is left");
        assert!(
            contents.contains(&world.get(name)),
            "{when}: {name} is half a file"
        );
    }
    if !left.is_empty() {
        for name in &left {
            let file = File::open(world.project.join(name)).unwrap();
            let old = SystemTime::now() - Duration::from_secs(60);
            file.set_modified(old).unwrap();
        }
        drop(Broker::open(world));
        assert_eq!(
            names(world),
            ["file", "small"],
            "{when}: after the next session"
        );
    }
}

fn names(world: &World) -> Vec<String> {
    let entries = fs::read_dir(&world.project).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
