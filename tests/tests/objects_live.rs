//! Rules on objects while a call runs: no repository comes about where its settings are open, settings and `HEAD` of the user's
//! repositories stay, no name gets into the way of the user's programs, and of Unix sockets a cell reaches its session's own.
//! Each attack works without a cell first.

use crate::kept_world::{KeptWorld, Side, cell, during, waiting};
use lazaret_tests::process::Running;
use lazaret_tests::{LIMIT, Place, Session, World, place_test, run};
use serde_json::json;
use std::fs;
use std::os::unix::net::UnixListener;
use std::process::Command;

place_test!(a_session_opens_while_protected_names_come_and_go);
/// As where a package manager of the user's works in another terminal.
fn a_session_opens_while_protected_names_come_and_go(place: Place) {
    let world = World::new(place);
    let churn = "until [ -e stop ]; do for d in 1 2 3 4; do mkdir -p d$d/.vscode d$d/.idea; done; sleep 0.002; rm -rf d1 d2 d3 d4; sleep 0.002; done";
    let mut host = world.host("bash");
    let churn = Running::start(host.args(["-c", churn]));
    for _ in 0..12 {
        let finished = world.in_cell("echo done");
        assert_eq!(finished.success(), "done\n", "{}", finished.errors());
    }
    world.put("stop", "");
    churn.finish(LIMIT);
}

/// Settings that make git run a program when it looks what has changed, and the members of a repository.
const TRAP: &str = "ROOT=$PWD
    trap_for() { printf '[core]\\nrepositoryformatversion = 0\\nbare = false\\nworktree = %s\\nfsmonitor = \"touch %s/sprung; false\"\\n' \"$1\" \"$ROOT\"; }
    head() { echo 'ref: refs/heads/main'; }
    members() { mkdir -p objects refs; trap_for \"$PWD\" > config; }
";

/// A project with a repository.
fn repository(place: Place) -> World {
    let world = World::new(place);
    let make = "git init -q . && git config user.name t && git config user.email t@t.invalid && mkdir src &&
        echo code > src/main.rs && git add . && git commit -qm one";
    world.on_host(make).success();
    world
}

/// Whether the user's own git runs, in a directory of the project, a program that a cell has left.
fn springs(world: &World, directory: &str) -> bool {
    world.on_host(&format!("cd {directory} && git status"));
    world.project.join("sprung").exists()
}

/// Repositories that a command makes, each with the directory to which the user then goes.
const SHAPES: [(&str, &str); 16] = [
    ("rm .git/HEAD; members; head > HEAD", "."),
    ("rm .git/HEAD; head > HEAD; members", "."),
    ("echo garbled > .git/HEAD; members; head > HEAD", "."),
    (
        "rm -f .git/HEAD; mkdir -p c/objects c/refs; head > HEAD; echo ./c > commondir; trap_for $PWD > c/config
         printf '[extensions]\\nworktreeConfig = true\\n' >> c/config; sed -i 's/= 0/= 1/; /worktree =/d; /bare/d' c/config
         printf '[core]\\nbare = false\\nworktree = %s\\n' $PWD > config.worktree",
        ".",
    ),
    ("mkdir n; cd n; members; head > HEAD", "n"),
    ("mkdir n; cd n; head > x; mv x HEAD; members", "n"),
    ("mkdir n; cd n; head > x; ln x HEAD; members", "n"),
    ("mkdir n; cd n; members; mkdir refs/heads; ln -s refs/heads/main HEAD", "n"),
    (
        "mkdir n; cd n; members; python3 -c '
import os; f = os.open(\".\", os.O_TMPFILE | os.O_RDWR); os.write(f, b\"ref: refs/heads/main\\n\")
os.link(f\"/proc/self/fd/{f}\", \"HEAD\", src_dir_fd=f, follow_symlinks=True)'",
        "n",
    ),
    ("mkdir n.git; cd n.git; members; head > HEAD", "n.git"),
    ("mkdir n; cd n; members; trap_for $PWD.git > config; cd ..; mv n n.git; head > n.git/HEAD", "n.git"),
    (
        "mkdir n.git; mkdir n.git/objects n.git/refs; head > n.git/HEAD; mv n.git n; trap_for $PWD/n > n/config",
        "n",
    ),
    ("git init -q n; mv n/.git n/g; trap_for $PWD/n > n/g/config", "n/g"),
    ("mkdir -p .git/n; cd .git/n; members; head > HEAD", ".git/n"),
    ("cd .git/refs/heads; members; head > HEAD", ".git/refs/heads"),
    // The user's own file is the first member.
    ("cd ordinary; members", "ordinary"),
];

place_test!(no_repository_comes_about_where_its_settings_are_open);
fn no_repository_comes_about_where_its_settings_are_open(place: Place) {
    let world = repository(place);
    world.put("ordinary/HEAD", "ref: refs/heads/main\n");
    let kept = KeptWorld::of(world);
    for (shape, directory) in SHAPES {
        kept.contains(&format!("{TRAP}{shape}"), |world| springs(world, directory));
    }
}

place_test!(file_tools_make_no_repository);
/// By file tools, in a project that is no repository.
fn file_tools_make_no_repository(place: Place) {
    let files = |root: &str| {
        let settings = format!(
            "[core]\nrepositoryformatversion = 0\nbare = false\nworktree = {root}\nfsmonitor = \"touch {root}/sprung; false\"\n"
        );
        [
            ("config", settings),
            ("objects/x", "x".into()),
            ("refs/x", "x".into()),
            ("HEAD", "ref: refs/heads/main\n".into()),
        ]
    };
    let control = World::new(place);
    for (name, content) in files(control.project.to_str().unwrap()) {
        control.put(name, content);
    }
    assert!(springs(&control, "."), "the control");
    for last in 0..4 {
        let world = World::new(place);
        let mut files = files(world.project.to_str().unwrap());
        files.rotate_left(last);
        // The host may have made one of them.
        let (name, content) = &files[3];
        world.put(name, content);
        let mut session = Session::open(&world);
        for (name, content) in &files[..3] {
            session.call("file_write", json!({"path": name, "content": content}));
        }
        drop(session);
        assert!(!springs(&world, "."), "with {name} of the host");
    }
    let world = World::new(place);
    let mut session = Session::open(&world);
    let answer = session.call(
        "file_write",
        json!({"path": "bare.git/config", "content": "x"}),
    );
    assert_eq!(answer.kind(), "denied_policy", "{}", answer.result);
    session
        .call("file_write", json!({"path": "refs/x", "content": "x"}))
        .success();
}

/// Ways to a `HEAD` in a directory of an ordinary name, where anybody may make the rest of a repository later.
const CARRIED: [&str; 3] = [
    "mkdir -p foo.git/b/1; head > foo.git/b/1/HEAD; mv foo.git/b b",
    "mkdir -p foo.git; head > foo.git/HEAD; mkdir b; mv foo.git b/1",
    "mkdir -p foo.git/b/1 b; head > foo.git/b/1/HEAD; python3 -c 'import ctypes; ctypes.CDLL(None).renameat2(-100, b\"foo.git/b\", -100, b\"b\", 2)'",
];

place_test!(no_head_is_carried_to_where_none_is_made);
fn no_head_is_carried_to_where_none_is_made(place: Place) {
    let kept = KeptWorld::of(repository(place));
    for script in CARRIED {
        kept.contains(&format!("{TRAP}{script}"), |world| {
            world.project.join("b/1/HEAD").exists()
        });
    }
    kept.restore();
    let moves = "set -e; git init -q a; mv a c; git -C c status -s
        mkdir -p .git/logs/refs/x; mv .git/logs/refs .git/logs/r; mv .git/logs/r .git/logs/refs";
    kept.cell(moves).success();
}

/// How many directories with a `HEAD` of the host's two sessions at the same time try to make repositories of.
const RACES: usize = 300;

place_test!(no_repository_comes_about_between_two_sessions);
fn no_repository_comes_about_between_two_sessions(place: Place) {
    let scene = || {
        let world = repository(place);
        (0..RACES)
            .for_each(|number| drop(world.put(&format!("b/{number}/HEAD"), "ref: refs/heads/m\n")));
        world
    };
    let script = |name: &str| {
        format!(
            "python3 -c '
import os, time
print(\"ready\", flush=True)
while not os.path.exists(\"go\"): pass
for n in range({RACES}):
    try: os.mkdir(f\"b/{{n}}/{name}\")
    except OSError: pass'"
        )
    };
    let complete = |world: &World, command: &dyn Fn(&str) -> Command| {
        let mut both = ["objects", "refs"].map(|name| Running::start(&mut command(&script(name))));
        both.iter_mut()
            .for_each(|running| drop(running.wait_for("ready\n", LIMIT)));
        world.put("go", "");
        both.into_iter()
            .for_each(|running| drop(running.finish(LIMIT)));
        let has =
            |number: usize, name: &str| world.project.join(format!("b/{number}/{name}")).exists();
        (0..RACES)
            .filter(|number| has(*number, "objects") && has(*number, "refs"))
            .count()
    };
    let control = scene();
    let on_host = |script: &str| {
        let mut command = control.host("bash");
        command.args(["-c", script]);
        command
    };
    assert_eq!(complete(&control, &on_host), RACES, "the control");
    let world = scene();
    assert_eq!(complete(&world, &|script| world.cell(script)), 0);
}

place_test!(repository_that_the_host_makes_is_protected_at_once);
/// A bare repository of any name that comes about while a call runs.
fn repository_that_the_host_makes_is_protected_at_once(place: Place) {
    let waiting = "echo ready; until [ -e go ]; do sleep 0.02; done; echo sprung >> odd/config; echo sprung > odd/hooks/post-commit
        echo sprung > odd/info/attributes; echo sprung > odd/config.worktree; echo x > odd/refs/mine; mkdir info; echo x > info/attributes";
    let sprung = |world: &World, mut command: Command| {
        let mut running = Running::start(&mut command);
        running.wait_for("ready\n", LIMIT);
        world
            .on_host("git init -q --bare odd && touch go")
            .success();
        running.finish(LIMIT);
        world
            .on_host("test -e odd/refs/mine && test -e info/attributes")
            .success();
        world
            .on_host("grep -rls sprung odd | wc -l")
            .text()
            .trim()
            .to_owned()
    };
    let (control, world) = (repository(place), repository(place));
    let mut command = control.host("bash");
    command.args(["-c", waiting]);
    assert_eq!(sprung(&control, command), "4", "the control");
    assert_eq!(sprung(&world, world.cell(waiting)), "0");
}

place_test!(file_tools_change_no_settings_that_the_host_has_just_made);
/// By file tools; nor do they complete a repository that the host has only begun.
fn file_tools_change_no_settings_that_the_host_has_just_made(place: Place) {
    let world = repository(place);
    let mut session = Session::open(&world);
    let made = "git init -q --bare odd; mkdir -p begun/.git/objects; echo ref: refs/heads/main > begun/.git/HEAD";
    world.on_host(made).success();
    let is_repository = "cd begun; test \"$(git rev-parse --git-dir)\" = .git";
    for path in [
        "odd/hooks/post-commit",
        "odd/config.worktree",
        "begun/.git/refs/heads/main",
    ] {
        let answer = session.call("file_write", json!({"path": path, "content": "x"}));
        assert_eq!(answer.kind(), "denied_policy", "{path}: {}", answer.result);
        assert!(!world.project.join(path).exists(), "{path}");
    }
    session
        .call(
            "file_write",
            json!({"path": "odd/refs/mine", "content": "x"}),
        )
        .success();
    session.close(LIMIT);
    assert!(
        !world.on_host(is_repository).status.success(),
        "it was completed"
    );
    let control = format!("mkdir begun/.git/refs; {is_repository}");
    world.on_host(&control).success();
}

place_test!(file_tools_divert_nothing_in_transit);
/// Files that programs of the host rename to a protected file in a moment, or an editor's copy of a secret.
fn file_tools_divert_nothing_in_transit(place: Place) {
    let world = repository(place);
    world.put(".vscode/settings.json", "{}");
    let mut session = Session::open(&world);
    let to_protected = [
        ".git/config.lock",
        ".vscode/settings.json.vsctmp",
        ".vscode/.settings.json.swp",
        ".vscode/settings.json.tmp12",
    ];
    for path in to_protected.iter().chain(&[".netrc.vsctmp", "notes.lock"]) {
        world.put(path, "host");
    }
    for path in to_protected {
        let input = json!({"path": path, "content": "x", "overwrite": true});
        let answer = session.call("file_write", input);
        assert_eq!(answer.kind(), "denied_policy", "{path}: {}", answer.result);
        let input = json!({"path": path, "edits": [{"old": "host", "new": "x"}]});
        let answer = session.call("file_edit", input);
        assert_ne!(answer.result["status"], "ok", "{path}: {}", answer.result);
        assert_eq!(world.get(path), b"host", "{path}");
    }
    let secret = session.call("file_read", json!({"path": ".netrc.vsctmp"}));
    assert_eq!(secret.kind(), "denied_policy", "{}", secret.result);
    let found = session.call("grep", json!({"pattern": "host"}));
    assert!(!found.success().contains(".netrc"), "{}", found.result);
    // A `.lock` that becomes no protected name is a file like others.
    session
        .call("file_read", json!({"path": "notes.lock"}))
        .success();
    let input = json!({"path": "notes.lock", "content": "x", "overwrite": true});
    session.call("file_write", input).success();
}

place_test!(a_branch_has_no_program_for_a_remote);
fn a_branch_has_no_program_for_a_remote(place: Place) {
    let script =
        "git init -q sub; cd sub; git config branch.main.remote 'ext::sh -c touch% sprung'";
    let planted =
        |world: &World| String::from_utf8_lossy(&world.get("sub/.git/config")).contains("ext::");
    let kept = KeptWorld::of(repository(place));
    kept.contains(script, planted);
    kept.cell("git init -q new; cd new; git config branch.main.remote origin")
        .success();
}

/// Files that git reads without being asked, each with the next command of the user.
const FIFOS: [(&str, &str); 8] = [
    ("mkfifo .git/packed-refs", "git log"),
    ("mkfifo .git/shallow", "git log"),
    ("mkfifo .git/info/grafts", "git log"),
    (
        "mkfifo .git/x; mv .git/x .git/MERGE_HEAD",
        "git commit --allow-empty -m x",
    ),
    ("mkfifo x; mv x .git/packed-refs", "git log"),
    ("mkfifo x; ln x .git/packed-refs", "git log"),
    (
        "rm -f .git/info/exclude; mkfifo .git/info/exclude",
        "git status",
    ),
    ("mkfifo .mailmap", "git log --use-mailmap --format=%aN"),
];

place_test!(the_users_git_waits_for_no_fifo);
fn the_users_git_waits_for_no_fifo(place: Place) {
    let waits_for = |seconds: u32, world: &World, command: &str| {
        let text = format!("timeout {seconds} {command}; test $? = 124 && echo WAITED");
        world.on_host(&text).text().contains("WAITED")
    };
    let waits = |world: &World, command: &str| waits_for(5, world, command);
    let kept = KeptWorld::of(repository(place));
    for (script, command) in FIFOS {
        // Git opens some of these without waiting in some versions: then the name alone tells.
        let fifo = "find .git .mailmap -type p 2>/dev/null | grep -q .";
        kept.contains(script, |world| world.on_host(fifo).code() == 0);
        assert!(!waits_for(100, kept.world(), command), "{script}");
    }
    let control = kept.restore();
    control.on_host("mkfifo .git/packed-refs");
    assert!(waits(control, "git log"), "the control");
    kept.restore();
    kept.cell("mkfifo pipe && (cat pipe & echo x > pipe; wait) && rm pipe")
        .success();
}

/// Ways to change the settings of the user's repository, which are harmless ones.
const SETTLED: [&str; 3] = [
    "printf '[core]\\n\\tbare = false\\n[remote \"origin\"]\\n\\turl = https://planted.invalid/\\n' > .git/config.lock
     mv -f .git/config.lock .git/config",
    "git config remote.origin.url https://planted.invalid/",
    "cp .git/config x; echo '[user]' >> x; echo name = planted >> x; mv x .git/config.lock; mv -f .git/config.lock .git/config",
];

place_test!(settings_are_replaced_only_where_the_session_has_made_them);
fn settings_are_replaced_only_where_the_session_has_made_them(place: Place) {
    let planted =
        |world: &World| String::from_utf8_lossy(&world.get(".git/config")).contains("planted");
    let kept = KeptWorld::of(repository(place));
    for script in SETTLED {
        kept.contains(script, planted);
    }
    // One that the host makes while a call runs is the host's.
    let late = "cd late; printf '[user]\\n\\tname = planted\\n' > .git/config.lock && mv -f .git/config.lock .git/config";
    kept.contains_by(late, |world, side| {
        let said = during(world, side.bash(world, &waiting(late)), || {
            world.on_host("git init -q late").success();
        });
        let text = world.get("late/.git/config");
        (String::from_utf8_lossy(&text).contains("planted"), said)
    });
    // Its own it may change, in a later call too.
    let mut session = Session::open(kept.world());
    session
        .bash("git init -q own && git -C own config user.name t")
        .success();
    session
        .bash("git -C own config user.email t@t && git -C own config user.name")
        .success();
}

/// Names that get into the way of the user's programs, each with what the user then does, which must go on.
const NAMES: [(&str, &str); 8] = [
    ("mkdir .git/commondir", "git status"),
    ("mkfifo .git/commondir", "timeout 2 git status"),
    (
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\".git/commondir\")'",
        "git status",
    ),
    (
        "mkdir -p .git/config.worktree; git config core.x 1 2>/dev/null; :",
        "! [ -e .git/config.worktree ]",
    ),
    (
        "mkdir .mcp.json mise.toml .exrc",
        "! [ -e .mcp.json ] && ! [ -e mise.toml ] && ! [ -e .exrc ]",
    ),
    ("mkdir -p .claude/commands", "! [ -e .claude ]"),
    ("rm -rf .git/refs; echo x > .git/refs", "git status"),
    ("mv .git/objects .git/o", "git status"),
];

place_test!(no_name_gets_into_the_way_of_the_users_programs);
fn no_name_gets_into_the_way_of_the_users_programs(place: Place) {
    let kept = KeptWorld::of(repository(place));
    for (script, after) in NAMES {
        kept.contains_by(script, |world, side| {
            let (said, seconds) = match side {
                Side::Host => (world.on_host(script), "timeout 2"),
                Side::Cell => (kept.cell(script), "timeout 100"),
            };
            let after = after.replace("timeout 2", seconds);
            (world.on_host(&after).code() != 0, said)
        });
    }
}

/// Ways to give the user's source another name, by which the next session would close it.
const LINKS: [&str; 5] = [
    "ln src/main.rs .env",
    "ln src/main.rs x; mv x .env",
    "mv src/main.rs .env.x; ln .env.x src/main.rs",
    "mv src/main.rs .env.x; ln .env.x .env; mv .env.x src/main.rs",
    "python3 -c 'import os; f = os.open(\"src/main.rs\", 0); os.link(f\"/proc/self/fd/{f}\", \".npmrc\", src_dir_fd=f, follow_symlinks=True)'",
];

place_test!(no_link_closes_the_users_source);
fn no_link_closes_the_users_source(place: Place) {
    let linked = |world: &World| {
        let shared = "test \"$(stat -c %h src/main.rs 2>/dev/null || echo 1)\" -gt 1";
        world.on_host(shared).code() == 0
    };
    let kept = KeptWorld::of(repository(place));
    for script in LINKS {
        kept.contains(script, linked);
    }
    kept.restore();
    let ordinary = "ln src/main.rs other; echo x > .env.new; mv src/main.rs src/kept.rs; mv other .env.moved; cat .env.moved";
    assert_eq!(
        kept.cell(ordinary).success(),
        "code\n",
        "a move to a protected name copies"
    );
}

const REACH: &str = "import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
s.connect(sys.argv[1]); print('REACHED')";

place_test!(sockets_of_the_host_in_a_zone_are_not_reached);
fn sockets_of_the_host_in_a_zone_are_not_reached(place: Place) {
    let world = repository(place);
    let _before = UnixListener::bind(world.project.join("before.sock")).unwrap();
    world.put("reach.py", REACH);
    run(
        Command::new("chmod")
            .arg("777")
            .arg(world.project.join("before.sock")),
        LIMIT,
    )
    .success();
    let late = "echo ready; until [ -e go ]; do sleep 0.02; done; python3 reach.py late.sock; python3 reach.py before.sock
        ln -s late.sock l; python3 reach.py l; ln late.sock h; python3 reach.py h; mv late.sock m; python3 reach.py m";
    let during = |mut command: Command| {
        let mut running = Running::start(&mut command);
        running.wait_for("ready\n", LIMIT);
        let path = world.project.join("late.sock");
        let _late = UnixListener::bind(&path).unwrap();
        // Who does not own a socket may not link it.
        world.own(&path);
        run(Command::new("chmod").arg("777").arg(&path), LIMIT).success();
        world.put("go", "");
        let said = running.finish(LIMIT).text();
        for name in ["go", "late.sock", "l", "h", "m"] {
            let _ = fs::remove_file(world.project.join(name));
        }
        said
    };
    let mut control = world.host("bash");
    control.args(["-c", late]);
    assert_eq!(during(control).matches("REACHED").count(), 5, "the control");
    let said = during(world.cell(late));
    assert!(!said.contains("REACHED"), "{said}");
    // One that the policy names, and no other.
    let named = world.project.join("before.sock");
    let settings = world.home.join("settings");
    let policy = format!(
        "version = 1\n[profile.own]\nsockets = ['{}']\n",
        named.display()
    );
    world.write(&settings.join("lazaret/policy.toml"), &policy);
    let _other = UnixListener::bind(world.project.join("other.sock")).unwrap();
    world.own(&world.project.join("other.sock"));
    let both = "python3 reach.py before.sock; python3 reach.py other.sock; echo end";
    let mut call = world.lazaret("run");
    call.env("XDG_CONFIG_HOME", settings)
        .args(["--profile", "own", "--", "bash", "-c", both]);
    assert_eq!(run(&mut call, LIMIT).text(), "REACHED\nend\n");
    // A datagram names its receiver itself.
    let datagram = "python3 -c 'import socket; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)'";
    world.on_host(datagram).success();
    assert_ne!(cell(&world, datagram).code(), 0);
}

const SERVER: &str = "import os, socket, threading
def talk(server, client, address):
    server.bind(address); server.listen(2)
    client.connect(server.getsockname()); peer, _ = server.accept()
    client.sendall(b'x'); assert peer.recv(1) == b'x'; peer.close(); client.close()
for path in ['own.sock', os.path.abspath('abs.sock')]:
    talk(socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX), path)
talk(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET), 'packets.sock')
talk(socket.socket(), socket.socket(), ('127.0.0.1', 0))
c = socket.socket(); c.settimeout(2)
try: c.connect(('127.0.0.1', 9)); print('CONNECTED')
except ConnectionRefusedError: pass
if os.environ.get('OWN_NETWORK'):
    talk(socket.socket(socket.AF_INET6), socket.socket(socket.AF_INET6), ('::1', 0))
    talk(socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX), '\\0abstract')
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(('127.0.0.1', 0))
    v = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); v.connect(u.getsockname()); v.send(b'x'); assert u.recv(1) == b'x'
    v.sendto(b'y', u.getsockname()) if False else v.send(b'y'); assert u.recv(1) == b'y'
    import asyncio
    async def main():
        async def serve(r, w): w.write(await r.read(1)); w.close()
        s = await asyncio.start_server(serve, '127.0.0.1', 0)
        r, w = await asyncio.open_connection(*s.sockets[0].getsockname()); w.write(b'z'); assert await r.read(1) == b'z'
    asyncio.run(main())
try: socket.socket(socket.AF_UNIX).connect('missing.sock')
except FileNotFoundError: print('ok')
";

place_test!(own_sockets_go_on_working_over_several_calls);
fn own_sockets_go_on_working_over_several_calls(place: Place) {
    let world = repository(place);
    world.put("server.py", SERVER);
    world.put("reach.py", REACH);
    let own = if place.tier == broker_protocol::Tier::Namespaced {
        "OWN_NETWORK=1"
    } else {
        ""
    };
    let mut session = Session::open(&world);
    assert_eq!(
        session.bash(&format!("{own} python3 server.py")).text(),
        "ok\n"
    );
    let stay = "python3 -c '
import socket; s = socket.socket(socket.AF_UNIX); s.bind(\"stay.sock\"); s.listen(9); open(\"up\", \"w\")
while True: s.accept()' & until [ -e up ]; do sleep 0.02; done; python3 reach.py stay.sock; ln stay.sock n; python3 reach.py n";
    // What was left running is named below it.
    let answer = session.bash(stay);
    let said = answer.text();
    assert!(said.starts_with("REACHED\nREACHED\n["), "{said}");
}

/// Has the supervisor write a `.git` file, and leads its path to a repository in scratch space, whose settings are open: the
/// directory `s` is swapped before or after that.
const SWAP: &str = "import os, sys
project, when = os.getcwd(), sys.argv[1]
scratch = os.environ['SCRATCH'] + '/planted'
def write(path, text):
    with open(path, 'w') as f: f.write(text)
def swap():
    os.rename('s', 'other'); os.symlink(scratch + '/s', 's')
os.makedirs('s/.git/worktrees/n'); os.makedirs('w')
hidden = scratch + '/s/.git/worktrees/n'; os.makedirs(hidden + '/objects'); os.makedirs(hidden + '/refs')
write(hidden + '/gitdir', project + '/w/.git\\n'); write(hidden + '/HEAD', 'ref: refs/heads/main\\n')
write(hidden + '/config', f'[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tworktree = {project}/w\\n'
    f'\\tfsmonitor = \"touch {project}/sprung; false\"\\n')
write('s/.git/worktrees/n/gitdir', project + '/w/.git\\n')
try:
    if when == 'before': swap()
    f = os.open('w/.git', os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(f, f'gitdir: {project}/s/.git/worktrees/n\\n'.encode())
    if when == 'after': swap()
    if when == 'moved': os.mkdir('m'); os.symlink(scratch + '/s', 'm/s'); os.rename('s', 'other'); os.rename('m/s', 's')
except OSError as e: print(e, file=sys.stderr)
print('ready', flush=True)
while not os.path.exists('go'): pass
";

place_test!(a_worktree_leads_to_protected_settings_only);
/// In the flat tier scratch space is a path of the host too, as long as the session is open.
fn a_worktree_leads_to_protected_settings_only(place: Place) {
    let kept = KeptWorld::of(repository(place));
    for when in ["before", "after", "moved"] {
        kept.contains_by(when, |world, side| {
            world.put("swap.py", SWAP);
            let scratch = match side {
                Side::Host => world.outside.display().to_string(),
                Side::Cell => "${TMPDIR:-/tmp}".into(),
            };
            let script = format!("SCRATCH={scratch} python3 swap.py {when}");
            let mut sprung = false;
            let said = during(world, side.bash(world, &script), || {
                sprung = springs(world, "w");
            });
            (sprung, said)
        });
    }
    let odd = "mkdir $'a\\nb' && cd $'a\\nb' && git init -q . && git -c user.name=t -c user.email=t@t commit -q --allow-empty -m x &&
        git worktree add -q ../w";
    // A name with a line end.
    kept.contains(odd, |world| world.project.join("w/.git").exists());
}

/// Ways to what the host writes before it renames it to a protected name, each with what was written to, in a directory that
/// the host has made.
const TRANSIT: [(&str, &str); 8] = [
    (
        "echo planted >> late/.git/config.lock",
        "late/.git/config.lock",
    ),
    (
        "exec 9<>late/.git/config.lock; echo planted >&9",
        "late/.git/config.lock",
    ),
    (
        "ln late/.git/config.lock x; echo planted > x",
        "late/.git/config.lock",
    ),
    (
        "mv late/.git/config.lock x; echo planted > x; mv x late/.git/config.lock",
        "late/.git/config.lock",
    ),
    (
        "truncate -s 0 late/.envrc~; echo planted > late/.envrc~",
        "late/.envrc~",
    ),
    (
        "python3 -c 'import mmap, os; f = os.open(\"late/.npmrc.4711\", os.O_RDWR); mmap.mmap(f, 7)[:] = b\"planted\"'",
        "late/.npmrc.4711",
    ),
    ("echo planted >> late/.npmrc.a8Xk2P", "late/.npmrc.a8Xk2P"),
    (
        "exec 9<late/.mcp.json.tmp.1; echo planted > /proc/self/fd/9",
        "late/.mcp.json.tmp.1",
    ),
];

place_test!(files_on_their_way_to_a_protected_name_are_not_changed);
fn files_on_their_way_to_a_protected_name_are_not_changed(place: Place) {
    let kept = KeptWorld::of(repository(place));
    for (script, file) in TRANSIT {
        kept.contains_by(script, |world, side| {
            let said = during(world, side.bash(world, &waiting(script)), || {
                world.on_host("mkdir -p late && git init -q late").success();
                world.put(file, "text of the host\n");
            });
            let text = fs::read_to_string(world.project.join(file)).unwrap_or_default();
            (text.contains("planted"), said)
        });
    }
    let own = "set -e; echo a > .bazelrc.12; echo b >> .bazelrc.12; mv .bazelrc.12 .bazelrc; echo c > x~; echo d >> x~; cat .bazelrc x~";
    kept.restore();
    assert_eq!(kept.cell(own).success(), "a\nb\nc\nd\n");
    // A person's own copy beside a protected file is an ordinary file.
    let world = kept.restore();
    world.put(".npmrc", "");
    world.put(".npmrc.backup", "kept\n");
    let copy = "cat .npmrc.backup; echo more >> .npmrc.backup; cp .npmrc.backup .npmrc.sample; cat .npmrc.sample";
    assert_eq!(kept.cell(copy).success(), "kept\nkept\nmore\n");
}

place_test!(ordinary_work_with_repositories_goes_on);
/// Work that must go on: repositories that a command makes, and the user's own.
fn ordinary_work_with_repositories_goes_on(place: Place) {
    let world = repository(place);
    let script = "set -e; export GIT_CONFIG_GLOBAL=/dev/null; git init -q --bare bare.git; git clone -q --bare . copy.git
        git push -q copy.git HEAD:refs/heads/pushed; git clone -q copy.git work; cd work; git config user.name t
        git config user.email t@t; git checkout -qb x origin/pushed || git checkout -q x; echo 1 > f; git add f; git commit -qm f
        git push -q origin x; git checkout -q --detach; git rebase -q x; git worktree add -q ../tree; cd ..
        git -C tree status --porcelain; git -C copy.git log --format=%s x | head -1; git -C work worktree remove ../tree
        git checkout -q -b topic; git checkout -q -; git checkout -q --detach; git checkout -q -; git gc -q; git fsck
        mkdir HEADS objects refs; echo x > refs/HEAD.txt; rm -r objects refs
        rm -rf work bare.git copy.git tree; ls";
    let said = cell(&world, script);
    assert_eq!(said.success(), "f\nHEADS\nsrc\n", "{}", said.errors());
    world
        .on_host("git status --porcelain && git fsck")
        .success();
}
