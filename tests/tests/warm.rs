//! Warm starts: what stands ready is used once, by a client that would have opened the very same session, and only if it still is that;
//! everybody else starts as without it.

use crate::guards::{BLOCKED, GUARD, dressed, guarded};
use broker_protocol::{Open, frame};
use lazaret_tests::process::{self, Running, until};
use lazaret_tests::wire::opening;
use lazaret_tests::world::long_sleep;
use lazaret_tests::{Finished, LIMIT, Place, World, place_test, run};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Limits of a client's message, of a request that a broker makes ready, and of sessions (`executor/README.md`).
const KNOCK_MAX: usize = 128 << 10;
const DESCRIPTION_MAX: usize = 64 << 10;
const SESSIONS_MAX: usize = 8;

/// Said by `lazaret run -v` of a session whose sandbox stood ready, and of one for which it was not the same.
const WARM: &str = "warm: the sandbox stood ready";
const NOT_WARM: &str = "not warm: ";

/// `lazaret warm` of a world's user.
struct Warm<'w> {
    world: &'w World,
    child: Child,
}

impl Drop for Warm<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where the user's sockets lie.
fn runtime(world: &World) -> PathBuf {
    let runtime = world.base().join("runtime");
    if !runtime.exists() {
        world.make_folder(&runtime);
        fs::set_permissions(&runtime, Permissions::from_mode(0o700)).unwrap();
    }
    runtime
}

fn socket(world: &World) -> PathBuf {
    runtime(world).join("lazaret-warm/socket")
}

/// One of our programs, in the user's login.
fn program(world: &World, name: &str) -> Command {
    let mut command = world.program(name);
    command
        .env("XDG_RUNTIME_DIR", runtime(world))
        .env("XDG_CONFIG_HOME", world.home.join("settings"));
    command
}

/// `lazaret run -v` in a project.
fn command(world: &World, project: &Path, words: &[&str]) -> Command {
    let mut command = program(world, "lazaret");
    command
        .args(["run", "-v", "--project"])
        .arg(project)
        .arg("--central")
        .arg(world.base().join(format!(
            "central-{}",
            project.file_name().unwrap().display()
        )))
        .args(words)
        .stdin(Stdio::null());
    command
}

fn script(world: &World, script: &str) -> Finished {
    run(
        &mut command(world, &world.project, &["--", "bash", "-c", script]),
        LIMIT,
    )
}

fn is_warm(finished: &Finished) -> bool {
    finished.errors().contains(WARM)
}

impl<'w> Warm<'w> {
    fn start(world: &'w World) -> Self {
        let child = program(world, "lazaret")
            .arg("warm")
            .stderr(Stdio::null())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let warm = Self { world, child };
        assert!(
            until(LIMIT, || socket(world).exists()),
            "it does not listen"
        );
        warm
    }

    fn status(&self) -> Value {
        let finished = run(
            program(self.world, "lazaret").args(["warm", "status", "--json"]),
            LIMIT,
        );
        serde_json::from_str(&finished.success()).unwrap()
    }

    /// The sessions of its status.
    fn sessions(&self) -> Vec<Value> {
        self.status()["sessions"].as_array().unwrap().clone()
    }

    /// Waits until something stands ready for `count` sessions, and nothing runs.
    #[track_caller]
    fn wait(&self, count: usize) {
        let stands = |it: &&Value| it["state"] == "ready" && it["running"] == 0;
        let ready = || self.sessions().iter().filter(stands).count() == count;
        assert!(until(LIMIT, ready), "{:#}", self.status());
    }

    /// Runs a first command, which starts cold; now something stands ready for the next.
    #[track_caller]
    fn teach(&self) {
        let first = script(self.world, "true");
        first.success();
        assert!(!is_warm(&first), "{}", first.errors());
        self.wait(1);
    }
}

/// A world with a repository.
fn world(place: Place) -> World {
    let world = World::new(place);
    world.put("plain", "text\n");
    world.set_up(
        "git init -q && git add plain && git -c user.name=a -c user.email=a@b commit -qm first",
    );
    world
}

fn opened(world: &World) -> Vec<Value> {
    let folder = world.state.join("lazaret/audit");
    let file = fs::read_to_string(folder.join("audit-000001.jsonl")).unwrap();
    let records = file
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    records
        .filter(|record| record["kind"] == "opened")
        .collect()
}

place_test!(the_second_command_is_warm_and_says_so);
fn the_second_command_is_warm_and_says_so(place: Place) {
    let world = world(place);
    let control = script(&world, "true");
    control.success();
    assert!(!control.errors().contains("warm"), "{}", control.errors());
    let warm = Warm::start(&world);
    warm.teach();
    for served in 1..=2 {
        let finished = script(&world, "cat plain; exit 3");
        assert!(is_warm(&finished), "{}", finished.errors());
        assert_eq!((finished.code(), finished.text().trim()), (3, "text"));
        warm.wait(1);
        assert_eq!(warm.sessions()[0]["served"], served);
    }
    let records = opened(&world);
    let is_marked: Vec<bool> = records.iter().map(|it| it["warm"] == true).collect();
    assert_eq!(is_marked, [false, false, true, true], "{records:#?}");
    let text = run(program(&world, "lazaret").args(["warm", "status"]), LIMIT).success();
    let project = world.project.display().to_string();
    assert!(
        text.contains(&project) && text.contains("2 warm and"),
        "{text}"
    );
    let stopped = run(program(&world, "lazaret").args(["warm", "stop"]), LIMIT);
    assert_eq!(stopped.success(), "stopped\n");
    assert!(until(LIMIT, || !socket(&world).exists()));
    assert!(!is_warm(&script(&world, "true")));
    let none = run(program(&world, "lazaret").args(["warm", "status"]), LIMIT);
    assert!(
        none.code() == 1 && none.errors().contains("`lazaret warm &` starts one"),
        "{}",
        none.errors()
    );
}

place_test!(the_shell_is_warm_too);
fn the_shell_is_warm_too(place: Place) {
    let world = world(place);
    let warm = Warm::start(&world);
    let shell = || {
        let mut command = program(&world, "lazaret-bash");
        command
            .env("LAZARET_PROJECT", &world.project)
            .args(["-c", "echo $((1 + 1))"]);
        run(command.stdin(Stdio::null()), LIMIT).success()
    };
    assert_eq!(shell().trim(), "2");
    warm.wait(1);
    assert_eq!(shell().trim(), "2");
    warm.wait(1);
    assert_eq!(warm.sessions()[0]["served"], 1, "{:#}", warm.status());
}

place_test!(hooks_guard_a_warm_shell_as_a_cold_one);
fn hooks_guard_a_warm_shell_as_a_cold_one(place: Place) {
    let world = world(place);
    guarded(&world, "before_tool", GUARD, "");
    let warm = Warm::start(&world);
    let shell = |script: &str| {
        let mut command = dressed(&world, program(&world, "lazaret-bash"));
        command
            .env("LAZARET_PROJECT", &world.project)
            .args(["-c", script])
            .stdin(Stdio::null());
        run(&mut command, LIMIT)
    };
    for allowed in ["touch cold", "touch warm"] {
        shell(allowed).success();
        warm.wait(1);
    }
    let refused = shell("touch secret");
    assert!(refused.errors().contains(BLOCKED), "{}", refused.errors());
    refused.expect(126);
    assert!(world.project.join("warm").exists() && !world.project.join("secret").exists());
    warm.wait(1);
    assert_eq!(warm.sessions()[0]["served"], 2, "{:#}", warm.status());
}

place_test!(nothing_of_one_command_reaches_the_next);

/// Leftovers of one run are seen by the next no more than without it.
fn nothing_of_one_command_reaches_the_next(place: Place) {
    let world = world(place);
    let warm = Warm::start(&world);
    warm.teach();
    let marker = long_sleep();
    let spoil = format!(
        "echo spoiled > \"$HOME/.bashrc\"; echo spoiled > /tmp/spoiled; echo spoiled > /dev/shm/spoiled; umask 0; cd /; \
         (setsid sleep {marker} >/dev/null 2>&1 &) ; echo spoiled > left-{marker} 2>/dev/null; \
         cat \"$HOME/.bashrc\" /tmp/spoiled /dev/shm/spoiled; umask"
    );
    let spoiled = script(&world, &spoil);
    assert!(is_warm(&spoiled));
    // The control: the command itself sees all of it.
    assert_eq!(
        spoiled.text().matches("spoiled").count(),
        3,
        "{}",
        spoiled.text()
    );
    assert!(spoiled.text().contains("0000"), "{}", spoiled.text());
    warm.wait(1);
    process::assert_gone(&marker, LIMIT);
    let next = script(
        &world,
        "cat \"$HOME/.bashrc\" /tmp/spoiled /dev/shm/spoiled 2>/dev/null; umask",
    );
    assert!(is_warm(&next), "{}", next.errors());
    assert!(!next.text().contains("spoiled"), "{}", next.text());
    let mut cold = program(&world, "lazaret");
    cold.env("XDG_RUNTIME_DIR", world.base().join("none"))
        .args(["run", "--project"])
        .arg(&world.project)
        .args(["--", "bash", "-c", "umask"])
        .stdin(Stdio::null());
    assert!(
        next.text().contains(run(&mut cold, LIMIT).success().trim()),
        "{}",
        next.text()
    );
}

place_test!(a_project_that_has_changed_is_looked_at_anew);

/// A secret that appears in a project after its sandbox was built is closed as if it had been there before.
fn a_project_that_has_changed_is_looked_at_anew(place: Place) {
    let world = world(place);
    let warm = Warm::start(&world);
    warm.teach();
    let secret = &world.canary;
    let changes: [(&str, &dyn Fn()); 6] = [
        ("cat deploy/id_rsa", &|| {
            world.put("deploy/id_rsa", secret);
        }),
        ("cat other-name", &|| {
            let [from, to] = ["deploy/id_rsa", "other-name"].map(|name| world.project.join(name));
            fs::hard_link(from, to).unwrap();
        }),
        (
            "echo x > inner/.git/hooks/pre-commit && cat inner/.git/hooks/pre-commit && echo GOT",
            &|| {
                world.set_up("git init -q inner");
            },
        ),
        ("echo x > elsewhere/hook && echo GOT", &|| {
            world.put("elsewhere/file", "");
            world.set_up("git config core.hooksPath elsewhere");
        }),
        ("cat innocent", &|| {
            world.put("innocent", secret);
            symlink("innocent", world.project.join("id_ed25519")).unwrap();
        }),
        // The last: with placeholders, nothing stands ready.
        ("cat .env", &|| {
            world.put(".env", format!("TOKEN={secret}\n"));
        }),
    ];
    for (attack, change) in changes {
        // The control: nothing has changed yet.
        warm.wait(1);
        let control = script(&world, "true");
        assert!(is_warm(&control), "before {attack}: {}", control.errors());
        warm.wait(1);
        change();
        let finished = script(&world, attack);
        let text = finished.text();
        assert!(
            !text.contains(secret.as_str()) && !text.contains("GOT"),
            "{attack}: {text}"
        );
        assert!(
            finished.errors().contains(NOT_WARM),
            "{attack}: {}",
            finished.errors()
        );
    }
}

place_test!(a_swapped_directory_is_not_the_one_that_stands_ready);

/// A directory that takes the place of another one is not the one that was mounted or opened.
fn a_swapped_directory_is_not_the_one_that_stands_ready(place: Place) {
    let world = world(place);
    let warm = Warm::start(&world);
    warm.teach();
    let (aside, git) = (world.base().join("aside"), world.project.join(".git"));
    world.set_up(&format!(
        "cp -a '{0}' '{1}' && mv '{0}' '{1}-old' && mv '{1}' '{0}'",
        git.display(),
        aside.display()
    ));
    let finished = script(&world, "echo x >> .git/config && echo GOT");
    assert!(!finished.text().contains("GOT"), "{}", finished.text());
    assert!(
        finished.errors().contains(NOT_WARM),
        "{}",
        finished.errors()
    );
    warm.wait(1);
    // Another project by the same name.
    let other = world.base().join("project-old");
    fs::rename(&world.project, &other).unwrap();
    world.make_folder(&world.project);
    world.put("plain", "other\n");
    let finished = script(&world, "cat plain; ls -A");
    assert_eq!(finished.success().trim(), "other\nplain");
    assert!(
        finished.errors().contains(NOT_WARM),
        "{}",
        finished.errors()
    );
}

place_test!(another_session_is_never_served_from_what_stands_ready);
fn another_session_is_never_served_from_what_stands_ready(place: Place) {
    let world = world(place);
    let warm = Warm::start(&world);
    warm.teach();
    let other = world.base().join("other");
    world.make_folder(&other);
    world.write(&other.join("plain"), "other\n");
    let cat = ["--", "cat", "plain"];
    let project = run(&mut command(&world, &other, &cat), LIMIT);
    assert_eq!(
        (project.success().as_str(), is_warm(&project)),
        ("other\n", false)
    );
    let profile = run(
        &mut command(
            &world,
            &world.project,
            &["--profile", "read-only", "--", "true"],
        ),
        LIMIT,
    );
    assert!(!is_warm(&profile), "{}", profile.errors());
    let mut variable = command(&world, &world.project, &cat);
    let variable = run(variable.env("LC_ALL", "C"), LIMIT);
    assert!(!is_warm(&variable), "{}", variable.errors());
    let mut limited = Command::new("bash");
    // Nothing but limits and umask differs: not the environment.
    let changed = "ulimit -n 512; umask 077; exec env -u _ -u OLDPWD -u PWD -u SHLVL \"$@\"";
    limited.args(["-c", changed, "bash"]);
    let plain = command(&world, &world.project, &["--", "bash", "-c", "umask"]);
    limited.arg(plain.get_program()).args(plain.get_args());
    limited
        .env_clear()
        .current_dir(&world.project)
        .stdin(Stdio::null());
    for (name, value) in plain.get_envs() {
        value.map(|value| limited.env(name, value));
    }
    world.place.as_user(&mut limited);
    let limited = run(&mut limited, LIMIT);
    assert!(!is_warm(&limited), "{}", limited.errors());
    assert_eq!(limited.success().trim(), "0077");
    // The control: what stands ready lets a command write. On a busy machine a client may not be heard in time, and starts cold.
    let is_served = |_| {
        warm.wait(4);
        is_warm(&script(&world, "echo x > written"))
    };
    assert!((0..4).any(is_served));
    warm.wait(4);
    world.set_policy("version = 1\ndefault_profile = 'mine'\n[profile.mine]\nproject = 'read'\n");
    let policy = script(&world, "echo y > written && echo GOT");
    assert!(!is_warm(&policy), "{}", policy.errors());
    assert!(!policy.text().contains("GOT"), "{}", policy.text());
    world.set_policy("version = 1\n");
    let policy = script(&world, "true");
    policy.success();
    assert!(policy.errors().contains(NOT_WARM), "{}", policy.errors());
    // The controls: each is served once it has asked.
    let ready = || is_warm(&run(&mut command(&world, &other, &cat), LIMIT));
    assert!(until(LIMIT, ready), "{:#}", warm.status());
}

place_test!(no_cell_and_no_confined_process_is_served);

/// Neither a command in a cell nor a process that another sandbox confines gets a session.
fn no_cell_and_no_confined_process_is_served(place: Place) {
    let world = world(place);
    let warm = Warm::start(&world);
    warm.teach();
    let connect = format!(
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('{}'); print('GOT')",
        socket(&world).display()
    );
    let outside = run(world.host("python3").args(["-c", &connect]), LIMIT);
    assert_eq!(outside.success().trim(), "GOT", "the control");
    let inside = script(&world, &format!("python3 -c \"{connect}\""));
    assert!(!inside.text().contains("GOT"), "{}", inside.text());
    // Also where somebody shows it the directory.
    let runtime = runtime(&world).display().to_string();
    let words = ["--read", &runtime, "--", "python3", "-c", &connect];
    let shown = run(&mut command(&world, &world.project, &words), LIMIT);
    assert!(!shown.text().contains("GOT"), "{}", shown.text());
    warm.wait(1);
    // A process that another sandbox confines may connect, and cannot prove that it is outside.
    let confined = |domain: bool| {
        let mut confined = program(&world, "lazaret");
        let plain = command(&world, &world.project, &["--", "true"]);
        let words: Vec<_> = std::iter::once(plain.get_program())
            .chain(plain.get_args())
            .collect();
        let mut host = world.host("python3");
        host.args(["-c", IN_A_DOMAIN, if domain { "1" } else { "0" }])
            .args(words);
        for (name, value) in confined.get_envs().chain(plain.get_envs()) {
            value.map(|value| host.env(name, value));
        }
        confined.stdin(Stdio::null());
        run(host.stdin(Stdio::null()), LIMIT)
    };
    let control = confined(false);
    assert!(is_warm(&control), "{}", control.errors());
    warm.wait(1);
    let finished = confined(true);
    assert!(!is_warm(&finished), "{}", finished.errors());
}

/// Enters a Landlock domain if told to, which closes next to nothing, and becomes a program.
const IN_A_DOMAIN: &str = "
import ctypes, os, struct, sys
if sys.argv[1] == '1':
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    ruleset = libc.syscall(444, struct.pack('Q', 1 << 11), 8, 0)
    assert ruleset >= 0 and libc.syscall(446, ruleset, 0) == 0
os.execv(sys.argv[2], sys.argv[2:])
";

place_test!(server_ends_with_its_client_and_not_with_the_matchmaker);
fn server_ends_with_its_client_and_not_with_the_matchmaker(place: Place) {
    let world = world(place);
    let warm = Warm::start(&world);
    warm.teach();
    let marker = long_sleep();
    let client = Running::start(&mut command(
        &world,
        &world.project,
        &["--", "sleep", &marker],
    ));
    // The client, and what runs in the cell.
    assert!(until(LIMIT, || process::with_marker(&marker).len() > 1));
    drop(warm);
    assert!(!until(Duration::from_millis(300), || process::with_marker(
        &marker
    )
    .is_empty()));
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(client.pid()),
        nix::sys::signal::Signal::SIGKILL,
    )
    .unwrap();
    process::assert_gone(&marker, LIMIT);
    let _ = client.finish(LIMIT);
}

place_test!(request_that_is_too_long_starts_cold);

/// A client whose description is over the limit starts as without it, and so does one whose request no broker would read; neither
/// keeps others from being served.
fn request_that_is_too_long_starts_cold(place: Place) {
    let world = world(place);
    let warm = Warm::start(&world);
    warm.teach();
    // Two variables, as one would be over the kernel's limit.
    let with_variables = |bytes: usize| {
        let mut command = command(&world, &world.project, &["--", "true"]);
        for name in ["LONG_A", "LONG_B"] {
            command.env(name, "x".repeat(bytes / 2));
        }
        let finished = run(&mut command, LIMIT);
        finished.success();
        finished
    };
    // The control: below it, it is said.
    with_variables(KNOCK_MAX - (32 << 10));
    warm.wait(2);
    assert!(is_warm(&with_variables(KNOCK_MAX - (32 << 10))));
    for _ in 0..2 {
        assert!(!is_warm(&with_variables(KNOCK_MAX)));
    }
    warm.wait(2);
    // What says more than it may is not heard.
    let mut stranger = UnixStream::connect(socket(&world)).unwrap();
    let said = u32::try_from(KNOCK_MAX + 1).unwrap().to_le_bytes();
    // It may have closed by then.
    let _ = stranger.write_all(&said);
    let heard = stranger.read(&mut [0]);
    assert!(!heard.is_ok_and(|bytes| bytes > 0));
    assert!(is_warm(&script(&world, "true")), "{:#}", warm.status());
}

place_test!(a_description_over_the_limit_makes_nothing_ready);
fn a_description_over_the_limit_makes_nothing_ready(place: Place) {
    let world = world(place);
    let answer = |project: usize| {
        let described = Open {
            project: "x".repeat(project),
            ..opening(&world)
        };
        let (ours, theirs) = socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )
        .unwrap();
        // Its end of the line is the broker's alone: ours hears when that ends.
        let mut broker = {
            let mut command = program(&world, "lazaret-executor");
            command.arg("ready").stdin(theirs).stderr(Stdio::null());
            command.spawn().unwrap()
        };
        let description = frame::encode_whole(&described).unwrap();
        send(ours.as_raw_fd(), &description, MsgFlags::empty()).unwrap();
        let mut answer = [0; 2048];
        let length = recv(ours.as_raw_fd(), &mut answer, MsgFlags::empty()).unwrap();
        (answer[..length].first().copied(), broker.wait().unwrap())
    };
    // The control: it is read, and there is no such project.
    let (said, ended) = answer(DESCRIPTION_MAX - 4096);
    assert_eq!((said, ended.success()), (Some(b'x'), true));
    let (said, ended) = answer(DESCRIPTION_MAX);
    assert_eq!((said, ended.success()), (None, false));
}

place_test!(doctor_says_whether_something_stands_ready_for_this_login);
fn doctor_says_whether_something_stands_ready_for_this_login(place: Place) {
    let world = world(place);
    let state = || {
        let mut doctor = program(&world, "lazaret");
        doctor.args(["doctor", "--json", "--project"]);
        let report = run(doctor.arg(&world.project), LIMIT).success();
        let report: Value = serde_json::from_str(&report).unwrap();
        let checks = report["checks"].as_array().unwrap();
        let row = checks
            .iter()
            .find(|row| row["id"] == "warm/serves")
            .unwrap();
        row["state"].as_str().unwrap().to_owned()
    };
    assert_eq!(state(), "unused");
    let warm = Warm::start(&world);
    assert_eq!(state(), "ok");
    let signal = |signal| {
        let id = nix::unistd::Pid::from_raw(warm.child.id().cast_signed());
        nix::sys::signal::kill(id, signal).unwrap();
    };
    signal(nix::sys::signal::Signal::SIGSTOP);
    assert_eq!(state(), "advice");
    signal(nix::sys::signal::Signal::SIGCONT);
    drop(warm);
    assert_eq!(state(), "unused");
}

place_test!(with_one_session_more_the_oldest_goes);
fn with_one_session_more_the_oldest_goes(place: Place) {
    let world = world(place);
    let warm = Warm::start(&world);
    let projects: Vec<PathBuf> = (0..=SESSIONS_MAX)
        .map(|number| world.base().join(format!("project-{number}")))
        .collect();
    for (at, project) in projects.iter().enumerate() {
        world.make_folder(project);
        run(&mut command(&world, project, &["--", "true"]), LIMIT).success();
        warm.wait((at + 1).min(SESSIONS_MAX));
    }
    let kept: Vec<String> = warm
        .sessions()
        .iter()
        .map(|session| session["project"].as_str().unwrap().to_owned())
        .collect();
    let first = projects[0].display().to_string();
    assert!(
        kept.len() == SESSIONS_MAX && !kept.contains(&first),
        "{kept:?}"
    );
}

place_test!(another_user_is_never_served, root_only);

/// Neither does `lazaret warm` hear another user, nor do a user's commands believe another user's.
fn another_user_is_never_served(place: Place) {
    let world = world(place);
    let warm = Warm::start(&world);
    warm.teach();
    let directory = runtime(&world).join("lazaret-warm");
    // Modes keep others out: here they may connect.
    let open = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    open(&socket(&world), 0o777);
    open(&directory, 0o711);
    // Root may read the proof of any process: with it, the user alone decides.
    let proof = fs::read_link(format!("/proc/{}/fd/200", warm.child.id())).unwrap();
    let knock = frame::encode_whole(&(proof.to_str().unwrap(), STATUS)).unwrap();
    let length = u32::try_from(knock.len()).unwrap().to_le_bytes();
    let knock: String = length
        .iter()
        .chain(&knock)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let answer = |uid: u32| {
        let mut other = Command::new("python3");
        other.args(["-c", AS_USER, &uid.to_string(), &knock]);
        run(other.current_dir(&directory), LIMIT).success()
    };
    assert!(answer(0).contains("sessions"), "the control");
    assert_eq!(answer(65534).trim(), "");
    // A user's command takes no socket from a directory that others may enter, or that is another's.
    let is_served = || {
        let finished = script(&world, "true");
        finished.success();
        is_warm(&finished)
    };
    assert!(!is_served());
    open(&directory, 0o700);
    chown(&directory, Some(65534), None).unwrap();
    assert!(!is_served());
    chown(&directory, Some(0), None).unwrap();
    warm.wait(1);
    assert!(is_served(), "the control: {:#}", warm.status());
}

/// The number of a client's message that asks for the status.
const STATUS: u32 = 1;

/// Becomes a user in a directory that only root may enter, says something to the socket there, and prints the answer.
const AS_USER: &str = "
import os, socket, sys
user = int(sys.argv[1])
os.setresgid(user, user, user)
os.setresuid(user, user, user)
line = socket.socket(socket.AF_UNIX)
line.connect('socket')
try:
    line.sendall(bytes.fromhex(sys.argv[2]))
    print(line.recv(65536).decode())
except (BrokenPipeError, ConnectionResetError):
    pass
";
