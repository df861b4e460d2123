//! The profile `pod`, for a machine that is the agent's alone: nothing is hidden by name, so that nobody waits for a look at what a command
//! reads; and what the host acts on, and all outside, stays as closed as in any other profile.
//!
//! In the flat tier its commands write to the machine's `/tmp`, so these worlds lie elsewhere.

use broker_protocol::Tier;
use lazaret_tests::process::{Process, until};
use lazaret_tests::world::unique;
use lazaret_tests::{Finished, LIMIT, Place, Session, World, once_test, place_test, run};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// `lazaret SUBCOMMAND` with a profile.
fn lazaret(world: &World, profile: &str, subcommand: &str) -> Command {
    let mut command = world.outside_tmp_program("lazaret");
    command
        .args([subcommand, "--profile", profile, "--project"])
        .arg(&world.project)
        .arg("--central")
        .arg(&world.central);
    command
}

fn in_cell(world: &World, profile: &str, script: &str) -> Finished {
    let mut command = lazaret(world, profile, "run");
    run(command.args(["-v", "--", "bash", "-c", script]), LIMIT)
}

/// A repository with a file of secrets.
fn world(place: Place) -> World {
    let world = World::outside_tmp(place);
    world.put(".env", format!("TOKEN={}\n", world.canary));
    world.put("deploy/id_rsa", &world.canary);
    world.put("plain", "needle\n");
    world.put("tool.py", "print('x')\n");
    world.set_up(
        "git init -q && git add plain && git -c user.name=a -c user.email=a@b commit -qm first",
    );
    world
}

/// A command whose lines are read as they come.
struct Lines {
    child: std::process::Child,
    lines: Receiver<String>,
}

impl Lines {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (out, (send, lines)) = (child.stdout.take().unwrap(), channel());
        thread::spawn(move || {
            let lines = BufReader::new(out).lines().map_while(Result::ok);
            lines.for_each(|line| drop(send.send(line)));
        });
        Self { child, lines }
    }

    fn line(&self) -> String {
        let line = self.lines.recv_timeout(LIMIT);
        line.expect("a line comes, and no call waits for the stopped process")
    }

    fn go(&mut self) {
        self.child
            .stdin
            .as_mut()
            .unwrap()
            .write_all(b"go\n")
            .unwrap();
    }
}

/// A process that goes on when this is dropped, so that a failed test leaves nothing behind.
struct Stopped(Process);

impl Stopped {
    fn new(process: Process) -> Self {
        kill(Pid::from_raw(process.pid), Signal::SIGSTOP).unwrap();
        assert!(until(LIMIT, || process.is_stopped()));
        Self(process)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.0.pid), Signal::SIGCONT);
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        if !until(LIMIT, || {
            self.child.try_wait().is_ok_and(|done| done.is_some())
        }) {
            let _ = self.child.kill();
        }
    }
}

place_test!(reading_asks_nobody, flat_only);
/// The process that answers supervised calls is stopped: what needs no answer goes on, and what needs one waits for it.
fn reading_asks_nobody(place: Place) {
    // Nothing is opened to write, as git opens `/dev/null` and Python what it compiles, and nobody is asked for a user's name, by a socket.
    const READS: &str = "cat plain tool.py .env; grep -r needle .; ls .; find . -name id_rsa; wc -l plain; \
                         cd deploy; test -e id_rsa; readlink /proc/self/exe";
    let world = world(place);
    // Bash asks for the name of its standard input when it starts, and a pipe has none.
    let script = format!("echo $PPID; read go; {READS}; echo done; read end");
    for (profile, goes_on) in [("pod", true), ("default", false)] {
        let mut command = lazaret(&world, profile, "run");
        let mut lines = Lines::start(command.args(["--", "bash", "-c", &script]));
        let first: i32 = lines.line().parse().unwrap();
        let first =
            Process::find(first).expect("a flat cell's first process has the machine's number");
        assert!(first.name.contains("lazaret"), "{}", first.name);
        let stopped = Stopped::new(first);
        lines.go();
        if goes_on {
            let all: Vec<String> = std::iter::repeat_with(|| lines.line())
                .take_while(|line| line != "done")
                .collect();
            let has = |text: &str| all.iter().any(|line| line.contains(text));
            let seen = [
                "TOKEN=",
                "plain:needle",
                "tool.py",
                "deploy/id_rsa",
                "1 plain",
                "x",
                "/readlink",
            ];
            for text in seen {
                assert!(has(text), "{text}: {all:?}");
            }
            assert!(stopped.0.is_stopped());
        } else {
            let got = lines.lines.recv_timeout(Duration::from_secs(1));
            assert_eq!(got, Err(RecvTimeoutError::Timeout), "the control");
        }
        drop(stopped);
        if !goes_on {
            while lines.line() != "done" {}
        }
        lines.go();
        assert!(lines.child.wait().unwrap().success());
    }
}

place_test!(names_are_read_and_not_changed);
fn names_are_read_and_not_changed(place: Place) {
    let world = world(place);
    let read = "cat .env deploy/id_rsa";
    let hidden = in_cell(&world, "default", read);
    assert!(
        hidden.code() != 0 && !hidden.text().contains(&world.canary),
        "the control"
    );
    let shown = in_cell(&world, "pod", read).success();
    assert_eq!(shown, format!("TOKEN={0}\n{0}", world.canary));
    let mut session = Session::start(&mut lazaret(&world, "pod", "session"));
    let file = session.call("file_read", json!({"path": ".env"}));
    assert!(file.success().contains("TOKEN="), "{}", file.result);
    // What the host acts on: each works outside.
    let before = fs::read(world.project.join(".git/config")).unwrap();
    for write in [
        "echo x >> .env",
        "echo '[core]' >> .git/config",
        "echo x > .git/hooks/post-checkout",
        "ln -s ../../plain .git/hooks/pre-commit",
        "mkdir .vscode && echo x > .vscode/tasks.json",
        "mkdir -p .claude && echo '{}' > .claude/settings.json",
        "mv deploy/id_rsa key",
        "ln deploy/id_rsa key",
        "rm .env",
        "git config core.pager evil",
        "echo x > CLAUDE.md; mv .git .got",
    ] {
        let refused = in_cell(&world, "pod", write);
        assert!(refused.code() != 0, "{write}: {}", refused.text());
        assert!(
            refused.errors().contains("protect"),
            "{write}: {}",
            refused.errors()
        );
    }
    assert_eq!(fs::read(world.project.join(".git/config")).unwrap(), before);
    assert!(!world.project.join(".git/hooks/post-checkout").exists());
    let outside =
        world.on_host("echo '[core]' >> .git/config && echo x > .git/hooks/post-checkout");
    outside.success();
}

place_test!(host_files_stay_closed_in_a_pod);
fn host_files_stay_closed_in_a_pod(place: Place) {
    let world = world(place);
    let mut attack = lazaret(&world, "pod", "doctor");
    attack.arg("--attack").env("TMPDIR", world.base());
    let attack = run(&mut attack, LIMIT);
    assert!(
        attack.success().contains("The cell holds."),
        "{}",
        attack.text()
    );
    let key = world.home.join(".ssh/id_rsa");
    let secret = world.outside.join("secret.txt");
    for path in [&key, &secret] {
        let path = path.display();
        let control = world.on_host(&format!("cat {path}"));
        assert!(control.success().contains(&world.canary), "the control");
        let read = in_cell(
            &world,
            "pod",
            &format!("cat {path}; cat /proc/self/root{path}"),
        );
        assert!(!read.text().contains(&world.canary), "{}", read.text());
        let wrote = in_cell(
            &world,
            "pod",
            &format!("echo x >> {path}; touch {path}; chmod 777 {path}"),
        );
        assert!(wrote.code() != 0, "{}", wrote.text());
        assert_eq!(
            fs::read_to_string(Path::new(&path.to_string())).unwrap(),
            world.canary
        );
    }
}

place_test!(tmp_is_the_machines_only_in_the_flat_tier);
fn tmp_is_the_machines_only_in_the_flat_tier(place: Place) {
    let world = world(place);
    for directory in ["/tmp", "/dev/shm"] {
        let path = Path::new(directory).join(format!("lazaret-pod-{}", unique()));
        let path_text = path.display();
        let script = format!("echo made > {path_text} && cat {path_text}");
        let run = |profile| in_cell(&world, profile, &script).success();
        assert_eq!(run("default"), "made\n");
        assert!(!path.exists(), "the control: another profile has its own");
        assert_eq!(run("pod"), "made\n");
        assert_eq!(path.exists(), place.tier == Tier::Flat);
        let _ = fs::remove_file(&path);
    }
    // A program there runs, and what it does is done by the same rules.
    let path = format!("/tmp/lazaret-pod-{}", unique());
    let script = format!(
        "printf '#!/bin/sh\\necho ran; echo x > .git/hooks/x' > {path}; chmod +x {path}; cd /tmp; (cd - > /dev/null; {path}); rm {path}"
    );
    let ran = in_cell(&world, "pod", &script);
    assert!(ran.text().contains("ran") && !world.project.join(".git/hooks/x").exists());
}

place_test!(no_session_opens_where_what_counts_lies_in_tmp, flat_only);
fn no_session_opens_where_what_counts_lies_in_tmp(place: Place) {
    let world = world(place);
    let inside = Path::new("/tmp").join(format!("lazaret-pod-{}", unique()));
    fs::create_dir(&inside).unwrap();
    world.own(&inside);
    let run_with = |name: &str| {
        let mut command = lazaret(&world, "pod", "run");
        command.args(["--", "true"]).env(name, &inside);
        run(&mut command, LIMIT)
    };
    for name in ["HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"] {
        let refused = run_with(name);
        assert_eq!(refused.code(), 125, "{name}: {}", refused.errors());
        assert!(
            refused.errors().contains("/tmp of this machine"),
            "{name}: {}",
            refused.errors()
        );
    }
    let mut project = world.outside_tmp_program("lazaret");
    project
        .args(["run", "--profile", "pod", "--project"])
        .arg(&inside)
        .args(["--", "true"]);
    let refused = run(&mut project, LIMIT);
    assert!(
        refused.errors().contains("lies there"),
        "{}",
        refused.errors()
    );
    assert_eq!(run_with("UNRELATED").code(), 0, "the control");
    // Private files of a session do not lie there either.
    let private = in_cell(&world, "pod", "echo $TMPDIR").success();
    assert!(!private.starts_with("/tmp/"), "{private}");
    fs::remove_dir_all(&inside).unwrap();
}

place_test!(keys_in_leased_paths_stay_closed);
fn keys_in_leased_paths_stay_closed(place: Place) {
    let world = world(place);
    let lent = world.outside.join("lent");
    world.make_folder(&lent);
    for name in ["id_rsa", "plain"] {
        world.write(&lent.join(name), &world.canary);
    }
    let mut command = lazaret(&world, "pod", "run");
    command.arg("--read").arg(&lent).args(["--", "bash", "-c"]);
    let read = |name: &str| format!("cat {}/{name}", lent.display());
    let script = format!(
        "{}; {}; {} | wc -c",
        read("id_rsa"),
        read(".npmrc"),
        read("plain")
    );
    let done = run(command.arg(script), LIMIT);
    assert!(!done.text().contains(&world.canary), "{}", done.text());
    assert_eq!(
        done.text().trim(),
        world.canary.len().to_string(),
        "{}",
        done.errors()
    );
}

place_test!(everything_says_that_nothing_is_hidden);
fn everything_says_that_nothing_is_hidden(place: Place) {
    const SAYS: &str = "hides nothing by name";
    let world = world(place);
    for (profile, says) in [("pod", true), ("dev", false)] {
        let verbose = in_cell(&world, profile, "true");
        assert_eq!(
            verbose.errors().contains(SAYS),
            says,
            "{}",
            verbose.errors()
        );
        let session = Session::start(&mut lazaret(&world, profile, "session"));
        assert_eq!(
            session.ready.to_string().contains(SAYS),
            says,
            "{}",
            session.ready
        );
        drop(session);
        let doctor = run(&mut lazaret(&world, profile, "doctor"), LIMIT).success();
        let doctor = doctor.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(doctor.contains(SAYS), says, "{doctor}");
        let mut explain = lazaret(&world, profile, "policy");
        explain.args(["explain", "file_read", r#"{"path":".env"}"#]);
        let explain = run(&mut explain, LIMIT).success();
        assert_eq!(explain.contains("hides none"), says, "{explain}");
        assert_eq!(explain.contains("verdict  allow"), says, "{explain}");
        let mut audit = world.outside_tmp_program("lazaret");
        let audit = run(audit.args(["audit", "show", "--json"]), LIMIT).success();
        let opened = |line: &&str| line.contains(&format!("\"profile\":\"{profile}\""));
        let last: Value = serde_json::from_str(audit.lines().rfind(opened).expect(&audit)).unwrap();
        assert_eq!(last.to_string().contains("\"hides\":false"), says, "{last}");
    }
}

once_test!(policy_that_hides_names_is_not_overruled_in_a_pod);
fn policy_that_hides_names_is_not_overruled_in_a_pod() {
    let world = world(Place::any());
    let settings = world.home.join("settings/lazaret/policy.toml");
    for (text, why) in [
        (
            "[secrets]\n'.env' = 'mask'\n",
            "says in `secrets` what is hidden",
        ),
        (
            "[[protect]]\nnames = ['*.license']\nprotection = 'all'\nwhy = 'w'\n",
            "*.license",
        ),
    ] {
        world.write(&settings, format!("version = 1\n{text}"));
        let mut command = lazaret(&world, "pod", "run");
        command.env("XDG_CONFIG_HOME", world.home.join("settings"));
        let refused = run(command.args(["--", "cat", ".env"]), LIMIT);
        assert_eq!(refused.code(), 125, "{}", refused.text());
        assert!(refused.errors().contains(why), "{}", refused.errors());
    }
    // Nor does a project choose the profile.
    fs::remove_file(settings).unwrap();
    world.put(".lazaret/policy.toml", "version = 1\nprofile = 'pod'\n");
    world.put("lazaret.toml", "version = 1\nprofile = 'pod'\n");
    let mut plain = world.outside_tmp_program("lazaret");
    plain.args(["run", "--project"]).arg(&world.project);
    plain.arg("--central").arg(&world.central);
    let plain = run(plain.args(["--", "cat", ".env"]), LIMIT);
    assert!(!plain.text().contains(&world.canary), "{}", plain.text());
}
