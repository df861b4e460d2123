//! How a command ends that somebody else ends, and what is said of what it leaves: its processes get SIGTERM and two seconds, whatever
//! does not use them is killed, and nothing is gained by ignoring the signal.

use lazaret_tests::not_run;
use lazaret_tests::process::{Process, assert_gone, left_after, tree, until, with_marker};
use lazaret_tests::world::long_sleep;
use lazaret_tests::{LIMIT, Place, Session, World, place_test, run};
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Holds `.git/index.lock` while its editor runs. Not every time at which the lock is there would do: git makes it, and a moment
/// later arranges that a signal removes it.
const COMMIT: &str =
    "touch f; git add f; GIT_EDITOR='touch editing; sleep SLEEP; true' git commit -qa";
const DEAF: &str = "trap '' TERM; touch ready; while :; do sleep SLEEP & wait; done";

/// Makes `profiles` the user's policy for commands with this variable.
fn policy(world: &World, profiles: &str) -> (&'static str, PathBuf) {
    let folder = world.home.join("settings/lazaret");
    world.make_folder(&world.home.join("settings"));
    world.make_folder(&folder);
    world.write(
        &folder.join("policy.toml"),
        format!("version = 1\n{profiles}"),
    );
    ("XDG_CONFIG_HOME", world.home.join("settings"))
}

fn repository(place: Place) -> World {
    let world = World::new(place);
    let script = "git init -q .; git config user.name t; git config user.email t@t.invalid";
    world.set_up(script);
    world
}

/// Starts a command that sleeps under a marker, and waits for a file that it makes.
fn started(world: &World, session: &mut Session, script: &str, file: &str) -> (String, String) {
    let marker = long_sleep();
    let id = session.start_call("bash", json!({"command": script.replace("SLEEP", &marker)}));
    assert!(until(LIMIT, || world.project.join(file).exists()
        && !with_marker(&marker).is_empty()));
    (id, marker)
}

place_test!(an_ended_git_leaves_no_lock);
fn an_ended_git_leaves_no_lock(place: Place) {
    let world = repository(place);
    let lock = world.project.join(".git/index.lock");
    // The control: a git that is killed leaves it.
    let marker = long_sleep();
    let killed = format!(
        "{} & until [ -e editing ]; do sleep 0.1; done; kill -9 $!; wait",
        COMMIT.replace("SLEEP", &marker)
    );
    world.on_host(&killed.replace("git commit", "exec git commit"));
    assert!(lock.exists());
    std::fs::remove_file(&lock).unwrap();
    std::fs::remove_file(world.project.join("editing")).unwrap();
    with_marker(&marker)
        .iter()
        .for_each(|process| process.kill());
    let mut session = Session::open(&world);
    let editing = world.project.join("editing");
    // On a busy machine two seconds may not be enough for it; they are what it is owed.
    let removes_its_lock = |begun: Instant| {
        let (took, left) = (begun.elapsed(), lock.exists());
        assert!(!left || took >= GRACE, "killed after {took:?}");
        let _ = std::fs::remove_file(&lock);
        let _ = std::fs::remove_file(&editing);
        !left
    };
    let cancelled = || {
        let (id, marker) = started(&world, &mut session, COMMIT, "editing");
        let begun = Instant::now();
        session.cancel(&id);
        assert_eq!(session.answer_within(&id, LIMIT).kind(), "cancelled");
        assert_gone(&marker, LIMIT);
        removes_its_lock(begun)
    };
    assert!(until(LIMIT, cancelled));
    // It may also need longer to get to the editor.
    let ended_by_its_limit = |timeout: u64| {
        let _ = std::fs::remove_file(&lock);
        let begun = Instant::now() + Duration::from_secs(timeout);
        let line = COMMIT.replace("SLEEP", &long_sleep());
        let answer = session.call("bash", json!({"command": line, "timeout": timeout}));
        assert_eq!(answer.kind(), "timeout", "{}", answer.result);
        editing.exists() && removes_its_lock(begun)
    };
    assert!([2, 10, 40].into_iter().any(ended_by_its_limit));
}

/// Time of a program after its signal.
const GRACE: Duration = Duration::from_secs(2);

/// Whether a command that is cancelled when it is `ready` gets to `done`. Its time is what it is owed: on a busy machine that may not
/// be enough for it.
fn finishes(world: &World, session: &mut Session, script: &str) -> bool {
    let _ = std::fs::remove_file(world.project.join("ready"));
    let (id, marker) = started(world, session, script, "ready");
    let begun = Instant::now();
    session.cancel(&id);
    assert_eq!(session.answer_within(&id, LIMIT).kind(), "cancelled");
    let (took, done) = (begun.elapsed(), world.project.join("done").exists());
    assert!(done || took >= GRACE, "ended after {took:?}");
    assert_gone(&marker, LIMIT);
    done
}

place_test!(child_of_a_shell_gets_its_time_to_end);
fn child_of_a_shell_gets_its_time_to_end(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    let script = "bash -c 'trap \"sleep 0.4; touch done; exit\" TERM; touch ready; sleep SLEEP & wait' & wait";
    assert!(until(LIMIT, || finishes(&world, &mut session, script)));
}

place_test!(a_stopped_process_gets_its_time);
fn a_stopped_process_gets_its_time(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    let script =
        "sleep SLEEP & bash -c 'trap \"touch done; exit\" TERM; touch ready; kill -STOP $$'; wait";
    assert!(until(LIMIT, || finishes(&world, &mut session, script)));
}

place_test!(process_that_ignores_the_signal_is_killed_after_two_seconds);
fn process_that_ignores_the_signal_is_killed_after_two_seconds(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    // It has to be deaf before its limit, for which a busy machine may need longer.
    let ended_while_deaf = |timeout: u64| {
        let (marker, start) = (long_sleep(), Instant::now());
        let line = DEAF.replace("SLEEP", &marker);
        let answer = session.call("bash", json!({"command": line, "timeout": timeout}));
        assert_eq!(answer.kind(), "timeout", "{}", answer.result);
        let (took, deaf) = (start.elapsed(), world.project.join("ready").exists());
        assert!(
            !deaf || took >= Duration::from_secs(timeout) + GRACE,
            "{took:?}"
        );
        assert_gone(&marker, LIMIT);
        deaf
    };
    assert!([1, 10, 40].into_iter().any(ended_while_deaf));
    assert!(session.bash("echo on").success().contains("on"));
}

place_test!(process_that_ignores_the_signal_prints_no_more_than_the_limit);
fn process_that_ignores_the_signal_prints_no_more_than_the_limit(place: Place) {
    let world = World::new(place);
    let settings = policy(
        &world,
        "[profile.mine]\nextends = 'default'\nlimits = { output = '64 KiB', capture = '900 KiB' }\n",
    );
    let script = "trap '' TERM; while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done";
    let words = ["--json", "--profile", "mine", "--", "bash", "-c", script];
    let finished = run(
        world.lazaret("run").envs([settings.clone()]).args(words),
        LIMIT,
    );
    let result: Value = serde_json::from_str(&finished.text()).unwrap();
    assert_eq!(result["error"]["code"], "resource_limit", "{result}");
    let printed = result["metadata"]["usage"]["stdoutBytes"].as_u64().unwrap();
    // One read over the limit, and no more.
    assert!((64 << 10..192 << 10).contains(&printed), "{printed}");
}

place_test!(a_second_cancel_kills_at_once);
/// Who waits for the two seconds never takes less; who does not may take more on a busy machine, so the quickest of several counts.
fn a_second_cancel_kills_at_once(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    let script = DEAF.replace("trap ''", "trap 'touch terminated'");
    let is_killed_at_once = || {
        for name in ["ready", "terminated"] {
            let _ = std::fs::remove_file(world.project.join(name));
        }
        let (id, marker) = started(&world, &mut session, &script, "ready");
        let start = Instant::now();
        session.cancel(&id);
        assert!(until(LIMIT, || world.project.join("terminated").exists()));
        session.cancel(&id);
        assert_eq!(session.answer_within(&id, LIMIT).kind(), "cancelled");
        let took = start.elapsed();
        assert_gone(&marker, LIMIT);
        took < GRACE
    };
    assert!(until(LIMIT, is_killed_at_once));
}

place_test!(the_end_of_a_session_kills_at_once);
/// As above, the quickest of several counts.
fn the_end_of_a_session_kills_at_once(place: Place) {
    let world = World::new(place);
    let is_killed_at_once = || {
        let _ = std::fs::remove_file(world.project.join("ready"));
        let mut session = Session::open(&world);
        let (id, marker) = started(&world, &mut session, DEAF, "ready");
        let asleep = with_marker(&format!("sleep {marker}"));
        let start = Instant::now();
        kill(Pid::from_raw(session.pid()), Signal::SIGTERM).unwrap();
        assert_eq!(session.answer_within(&id, LIMIT).kind(), "cancelled");
        left_after(&asleep, LIMIT);
        let took = start.elapsed();
        assert_gone(&marker, LIMIT);
        took < GRACE
    };
    assert!(until(LIMIT, is_killed_at_once));
}

place_test!(processes_left_running_are_named);
fn processes_left_running_are_named(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    let marker = long_sleep();
    // What has been started has its name when it is a program.
    let named =
        "named() { until read -rd '' it </proc/$1/cmdline && [[ $it == $2 ]]; do :; done; }";
    let answer = session.bash(&format!(
        "{named}; sleep {marker} & named $! sleep; echo done"
    ));
    let left = &answer.result["metadata"]["leftRunning"];
    assert_eq!(
        *left,
        json!({"count": 1, "names": ["sleep"]}),
        "{}",
        answer.result
    );
    let want = "done\n[1 process was still running at the end of the command and killed: sleep; ";
    assert!(answer.success().starts_with(want), "{}", answer.result);
    assert_gone(&marker, LIMIT);
    // A process is not passed over for its name.
    let git = session.bash(&format!(
        "{named}; (exec -a git sleep {marker}) & named $! git"
    ));
    assert_eq!(
        git.result["metadata"]["leftRunning"],
        json!({"count": 1, "names": ["git"]})
    );
    let many = format!(
        "{named}; for i in $(seq 80); do (exec -a $'a\\e[1m'$i sleep {marker}) & done
        for pid in $(jobs -p); do named $pid 'a*'; done"
    );
    let left = &session.bash(&many).result["metadata"]["leftRunning"];
    assert_eq!(left["count"], 64);
    let names = left["names"].as_array().unwrap();
    assert!(
        names.len() == 4
            && names
                .iter()
                .all(|name| !name.as_str().unwrap().contains('\x1b'))
    );
    let none = session.bash("sleep 0.1 & wait; echo done");
    assert_eq!(
        (none.success(), none.result["metadata"].get("leftRunning")),
        ("done\n", None)
    );
}

place_test!(a_person_has_no_time_limit_unless_it_is_set);
fn a_person_has_no_time_limit_unless_it_is_set(place: Place) {
    let world = World::new(place);
    let settings = policy(
        &world,
        "[profile.short]\nextends = 'default'\nlimits = { timeout_s = 1 }\n",
    );
    let limit = |options: &[&str]| {
        let words = [options, &["--json", "--", "cat"]].concat();
        let finished = run(
            world.lazaret("run").envs([settings.clone()]).args(words),
            LIMIT,
        );
        let result: Value = serde_json::from_str(&finished.text()).unwrap();
        result["metadata"]["timeout"].as_u64()
    };
    assert_eq!(limit(&[]), None);
    assert_eq!(limit(&["--timeout", "5000"]), Some(5000));
    assert_eq!(limit(&["--profile", "short"]), Some(1));
    // The model's calls have theirs.
    let words = ["--json", "bash", r#"{"command": "true"}"#];
    let call = run(world.lazaret("call").args(words), LIMIT);
    let result: Value = serde_json::from_str(&call.text()).unwrap();
    assert_eq!(result["metadata"]["timeout"], 60);
}

/// The file that git's prompt has a shell expand, and a program that changes it some time after a signal. It needs no supervisor for that.
const COUNTER: &str = ".git/rebase-merge/msgnum";
const LATE_WRITER: &str = r#"mkdir -p .git/rebase-merge; echo 1 > .git/rebase-merge/msgnum; exec python3 -c '
import os, signal, time
counter = os.open(".git/rebase-merge/msgnum", os.O_RDWR)
def write(*_):
    time.sleep(3)
    os.pwrite(counter, b"$(id)1", 0)
signal.signal(signal.SIGUSR1, write)
open("done", "w").close()
while True:
    signal.pause()
'"#;

/// Whether a shell would expand it.
fn is_expanded(world: &World) -> bool {
    std::fs::read_to_string(world.project.join(COUNTER)).is_ok_and(|text| text.contains("$(id)"))
}

/// First processes of cells that do not obey, and do not end when they are killed: their programs go on meanwhile.
struct Held(Vec<Pid>);

impl Held {
    /// Holds those of a session; `None` where this user may not.
    fn take(session: &Session) -> Option<Self> {
        let cells = in_session(session, "lazaret-cell");
        let held: Vec<Pid> = cells.iter().map(|cell| Pid::from_raw(cell.pid)).collect();
        for cell in &held {
            match ptrace::seize(*cell, ptrace::Options::PTRACE_O_TRACEEXIT) {
                Err(Errno::EPERM) => return None,
                seized => seized.unwrap(),
            }
            kill(*cell, Signal::SIGSTOP).unwrap();
        }
        assert!(!held.is_empty());
        Some(Self(held))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for cell in &self.0 {
            let _ = ptrace::detach(*cell, None);
        }
    }
}

/// Ends a session while the first processes of its cells are held, until `over` of its broker, and a command writes 3 s later.
/// Returns when the broker has ended, and only where this user may hold them.
fn ended_while_held(place: Place, over: fn(&World, &[Process])) -> World {
    let world = repository(place);
    let mut session = Session::open(&world);
    let call = json!({"command": LATE_WRITER, "background": true});
    session.call("bash", call).success();
    assert!(until(LIMIT, || world.project.join("done").exists()));
    // A call that ends meanwhile is not the last look.
    session.bash("true").success();
    let broker = in_session(&session, "lazaret-executo");
    let writer = in_session(&session, "python3");
    assert_eq!((broker.len(), writer.len()), (1, 1));
    let Some(held) = Held::take(&session) else {
        not_run("this user may not trace a first process");
    };
    kill(Pid::from_raw(writer[0].pid), Signal::SIGUSR1).unwrap();
    kill(Pid::from_raw(session.pid()), Signal::SIGKILL).unwrap();
    over(&world, &broker);
    drop(held);
    assert!(left_after(&broker, LIMIT).is_empty());
    world
}

fn in_session(session: &Session, name: &str) -> Vec<Process> {
    let all = tree(session.pid()).into_iter();
    all.filter(|process| process.name == name).collect()
}

place_test!(nothing_is_written_after_the_last_look);
fn nothing_is_written_after_the_last_look(place: Place) {
    let control = repository(place);
    let later = format!(
        "({LATE_WRITER}) & until [ -e done ]; do sleep 0.1; done; kill -USR1 $!
        until grep -q id {COUNTER}; do sleep 0.1; done; kill $!"
    );
    run(control.host("bash").args(["-c", &later]), LIMIT);
    assert!(is_expanded(&control), "the control does not work");
    // The broker waits 10 s for its cells.
    let until_written = |world: &World, _: &[Process]| {
        until(Duration::from_secs(7), || is_expanded(world));
    };
    assert!(!is_expanded(&ended_while_held(place, until_written)));
}

place_test!(a_session_whose_processes_do_not_end_says_so);
fn a_session_whose_processes_do_not_end_says_so(place: Place) {
    let until_it_gives_up = |_: &World, broker: &[Process]| {
        assert!(left_after(broker, LIMIT).is_empty());
    };
    let world = ended_while_held(place, until_it_gives_up);
    let said = Session::open(&world).bash("true").result.to_string();
    assert!(said.contains("could not be ended within 10 s"), "{said}");
}
