//! Criterion 2 of the main job: ordinary projects work in a cell.

use lazaret_tests::not_run;
use lazaret_tests::world::unique;
use lazaret_tests::{LIMIT, Place, Session, User, World, once_test, place_test, programs, run};
use serde_json::json;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

place_test!(git_status_and_commit_work);
fn git_status_and_commit_work(place: Place) {
    let world = World::new(place);
    world.put("file", "one\n");
    world.put(".gitignore", ".env\n");
    world.put(".env", "KEY=1\n");
    let identify = "git config user.name T; git config user.email t@t.invalid";
    world.set_up(&format!(
        "git init -q -b main; {identify}; git add -A; git commit -qm first"
    ));
    let status = world.in_cell("echo two >> file; echo new > other; git status --porcelain");
    assert_eq!(status.success(), " M file\n?? other\n");
    let script = "git add -A && git commit -qm second && git log --format=%s && git branch side && \
                      git checkout -q side && echo three >> file && git commit -qam third && git checkout -q main && \
                      git merge -q side && git stash list && git gc -q && git fsck";
    let finished = world.in_cell(script);
    assert!(
        finished.success().starts_with("second\nfirst\n"),
        "{}",
        finished.text()
    );
    let log = world.set_up("git status --porcelain; git log --format=%s main");
    assert_eq!(log, "third\nsecond\nfirst\n", "seen from outside");
    let leftovers = world.set_up("git status --porcelain --ignored; ls -A");
    assert_eq!(
        leftovers, "!! .env\n.env\n.git\n.gitignore\nfile\nother\n",
        "left in the project"
    );
}

once_test!(closed_names_are_printed_only_when_asked_for);
fn closed_names_are_printed_only_when_asked_for() {
    let world = World::new(Place::any());
    world.put(".env", "KEY=1\n");
    world.set_up("for name in 1 2 3 4 5; do ln .env $name; done");
    let errors = |options: &[&str]| {
        let finished = run(
            world.lazaret("run").args(options).args(["--", "true"]),
            LIMIT,
        );
        finished.success();
        finished.errors().to_owned()
    };
    let printed = errors(&[]);
    assert_eq!(printed, "", "no command touched them");
    let all = errors(&["-v"]);
    assert_eq!(all.matches("also protected: ").count(), 5, "{all}");
    assert!(!all.contains("more"), "{all}");
    // What was done at a bound is told to everybody.
    fs::set_permissions(&world.central, Permissions::from_mode(0o0)).unwrap();
    let done = errors(&[]);
    assert_eq!(
        (
            done.matches("it is open again").count(),
            done.lines().count()
        ),
        (1, 1),
        "{done}"
    );
}

once_test!(work_goes_on_with_an_older_landlock);
/// Ordinary work does not need a new Landlock.
fn work_goes_on_with_an_older_landlock() {
    for place in Place::all()
        .into_iter()
        .filter(|place| place.user == User::Ordinary)
    {
        for abi in 1..=6 {
            let world = World::ablated(place, &format!("landlock-abi={abi}"));
            world.put("file", "one\n");
            let identify = "git config user.name T; git config user.email t@t.invalid";
            world.set_up(&format!(
                "git init -q -b main; {identify}; git add -A; git commit -qm first"
            ));
            let script = "echo two >> file && git commit -qam second && git log --format=%s && \
                          mkdir -p a b && echo moved > a/x && mv a/x b/y && cat b/y && : > file && wc -c < file && \
                          echo 'int main(void){return 0;}' > c.c && gcc -o c c.c && ./c";
            let finished = world.in_cell(script);
            assert_eq!(
                finished.success(),
                "second\nfirst\nmoved\n0\n",
                "{place}, ABI {abi}"
            );
            let edit = json!({"path": "b/y", "edits": [{"old": "moved", "new": "edited"}]});
            run(&mut world.lazaret_call("file_edit", &edit), LIMIT).success();
            assert_eq!(world.get("b/y"), b"edited\n", "{place}, ABI {abi}");
        }
    }
}

place_test!(make_builds_a_c_project_with_two_jobs);
fn make_builds_a_c_project_with_two_jobs(place: Place) {
    let world = World::new(place);
    let rules =
        "all: prog\n\t./prog\nprog: a.o b.o\n\t$(CC) -o $@ $^\n%.o: %.c\n\t$(CC) -O1 -c -o $@ $<\n";
    world.put("Makefile", rules);
    world.put(
        "a.c",
        "#include <stdio.h>\nint b(void);\nint main(void){printf(\"b is %d\\n\", b());return 0;}\n",
    );
    world.put("b.c", "int b(void){return 42;}\n");
    let finished = run(&mut world.lazaret_run(&["make", "-j2"]), LIMIT);
    assert!(
        finished.success().contains("b is 42"),
        "{}",
        finished.text()
    );
}

place_test!(python_tests_pass);
fn python_tests_pass(place: Place) {
    let world = World::new(place);
    let test = "import subprocess, tempfile, threading, unittest\n\
                    class T(unittest.TestCase):\n    \
                    def test_child(self): self.assertEqual(subprocess.check_output(['echo', 'x']), b'x\\n')\n    \
                    def test_file(self):\n        with tempfile.NamedTemporaryFile() as f: f.write(b'x')\n    \
                    def test_thread(self):\n        t = threading.Thread(target=print); t.start(); t.join()\n";
    world.put("test_it.py", test);
    let finished = run(
        &mut world.lazaret_run(&["/usr/bin/python3", "-m", "unittest", "-v"]),
        LIMIT,
    );
    finished.success();
    assert!(
        finished.errors().contains("Ran 3 tests") && finished.errors().contains("OK"),
        "{}",
        finished.errors()
    );
}

place_test!(npm_tests_pass);
fn npm_tests_pass(place: Place) {
    let world = World::new(place);
    world.put(
        "package.json",
        r#"{"name":"p","version":"1.0.0","scripts":{"test":"node test.js"}}"#,
    );
    let test = "const cp=require('child_process'),fs=require('fs'),assert=require('assert');\
                    assert.equal(cp.execSync('echo x').toString(),'x\\n');fs.writeFileSync('out','y');\
                    setTimeout(()=>console.log('tests passed'),50)";
    world.put("test.js", test);
    let finished = run(&mut world.lazaret_run(&["npm", "test"]), LIMIT);
    assert!(
        finished.success().contains("tests passed"),
        "{}{}",
        finished.text(),
        finished.errors()
    );
    assert_eq!(world.get("out"), b"y");
}

place_test!(a_grant_inside_what_is_shown_leaves_the_users_files);
/// As where a toolchain lies below `/usr`, or `CARGO_HOME` in the project: grants of files below what is shown anyway.
fn a_grant_inside_what_is_shown_leaves_the_users_files(place: Place) {
    let world = World::new(place);
    let (tools, settings) = (world.home.join("tools"), world.project.join("settings"));
    let paths = [
        tools.clone(),
        tools.join("bin/env"),
        tools.join("bin"),
        settings.join("env"),
    ];
    let grants: Vec<String> = paths
        .iter()
        .map(|path| format!("{{ path = '{}' }}", path.display()))
        .collect();
    let policy = format!(
        "version = 1\n[profile.own]\ngrants = [{}]\n",
        grants.join(", ")
    );
    world.write(&world.home.join("config/lazaret/policy.toml"), policy);
    for file in [
        tools.join("bin/env"),
        tools.join("other"),
        settings.join("env"),
    ] {
        world.write(&file, "of the user\n");
    }
    let mut command = world.lazaret("run");
    command
        .env("XDG_CONFIG_HOME", world.home.join("config"))
        .args(["--profile", "own", "--", "bash", "-c"]);
    let tools = tools.display();
    command.arg(format!(
        "cat {tools}/bin/env {tools}/other settings/env; echo x > {tools}/bin/env || echo closed"
    ));
    let done = run(&mut command, LIMIT);
    assert_eq!(
        done.success(),
        "of the user\n".repeat(3) + "closed\n",
        "{}",
        done.errors()
    );
    assert_eq!(world.get("settings/env"), b"of the user\n");
}

place_test!(another_owner_is_not_permitted);
/// `rsync -a`, `tar` and fakeroot take `EPERM` for an ordinary user's answer, and fail at any other.
fn another_owner_is_not_permitted(place: Place) {
    const SCRIPT: &str = "
import os
f = os.open('file', 0)
for ids in ((-1, 54321), (54321, -1), (54321, 54321)):
    for call in (os.chown, os.lchown, lambda _, *ids: os.fchown(f, *ids)):
        try: call('file', *ids); print('allowed')
        except OSError as e: print(e.errno, end=' ')
os.chown('file', os.getuid(), os.getgid()); os.chown('file', -1, -1); print('own')
";
    let world = World::new(place);
    world.put("file", "");
    world.put("owner.py", SCRIPT);
    let done = world.in_cell("python3 owner.py");
    assert_eq!(
        done.success(),
        "1 ".repeat(9) + "own\n",
        "{}",
        done.errors()
    );
}

place_test!(closed_files_above_the_project_are_missing);
/// Yarn, prettier, uv, pytest and rustfmt search upwards, and stop where a file may not be read.
fn closed_files_above_the_project_are_missing(place: Place) {
    let world = World::new(place);
    let beside = world.project.parent().unwrap().join(".prettierrc");
    world.write(&beside, &world.canary);
    let look = format!(
        "[ -e {0} ] && echo there; cat {0} 2>&1; cat ../.prettierrc 2>&1; true",
        beside.display()
    );
    let control = run(
        world
            .host("bash")
            .current_dir(&world.project)
            .args(["-c", &look]),
        LIMIT,
    );
    assert_eq!(control.success(), format!("there\n{0}{0}", world.canary));
    let done = world.in_cell(&look);
    let missing = "No such file or directory\n";
    let expected = format!(
        "cat: {}: {missing}cat: ../.prettierrc: {missing}",
        beside.display()
    );
    assert_eq!(done.success(), expected);
    world.in_cell(&format!("echo x > {}", beside.display()));
    assert_eq!(fs::read_to_string(&beside).unwrap(), world.canary);
}

place_test!(this_workspace_is_tested_with_the_rust_profile);
/// This workspace itself, where the place's user can run a toolchain.
fn this_workspace_is_tested_with_the_rust_profile(place: Place) {
    let Some(variables) = toolchain(place) else {
        not_run("no cargo that this user can run");
    };
    let world = World::new(place);
    copy_workspace(&world);
    let mut command = world.lazaret("run");
    command.envs(variables);
    command.args(["--profile", "rust", "--timeout", "600", "--"]);
    // The member with the fewest dependencies: it is shown that cargo works here, with scripts that run at build time. Of its tests
    // those run that want nothing which the cell refuses.
    command.args(["cargo", "test", "-p", "executor-sys", "--offline"]);
    // No later build reads any of it.
    command.args(["--config", "profile.dev.incremental=false", "--"]);
    command.args(["--skip", "opened_way", "--skip", "stale_temporaries"]);
    let finished = run(&mut command, Duration::from_secs(600));
    let text = finished.success();
    assert!(
        text.contains("test result: ok"),
        "{text}{}",
        finished.errors()
    );
}

/// Variables with which the place's user runs cargo: a toolchain of its own, this process's, the official Rust image's, the system's.
fn toolchain(place: Place) -> Option<Vec<(&'static str, String)>> {
    const SYSTEM: &str = "/usr/local/bin:/usr/bin:/bin";
    let home = place.account().home.display().to_string();
    let with = |rustup: String, cargo: String| {
        let path = format!("{cargo}/bin:{SYSTEM}");
        vec![
            ("HOME", home.clone()),
            ("PATH", path),
            ("RUSTUP_HOME", rustup),
            ("CARGO_HOME", cargo),
        ]
    };
    let given = |name| std::env::var(name).ok();
    let candidates = [
        Some(vec![
            ("HOME", home.clone()),
            ("PATH", format!("{home}/.cargo/bin:{SYSTEM}")),
        ]),
        given("RUSTUP_HOME")
            .zip(given("CARGO_HOME"))
            .map(|(rustup, cargo)| with(rustup, cargo)),
        Some(with("/usr/local/rustup".into(), "/usr/local/cargo".into())),
    ];
    candidates.into_iter().flatten().find(|variables| {
        let mut command = Command::new("cargo");
        command
            .arg("--version")
            .env_clear()
            .envs(variables.iter().cloned())
            .current_dir("/");
        place.as_user(&mut command);
        command.output().is_ok_and(|output| output.status.success())
    })
}

/// The checkout without what is built or versioned.
fn copy_workspace(world: &World) {
    copy(programs::workspace(), &world.project, world);
}

fn copy(from: &Path, to: &Path, world: &World) {
    world.make_folder(to);
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        if ["target", ".git"].iter().any(|skipped| name == *skipped) {
            continue;
        }
        if path.is_dir() {
            copy(&path, &to.join(name), world);
        } else if path.is_file() {
            world.write(&to.join(name), fs::read(path).unwrap());
        }
    }
}

place_test!(nothing_is_written_beside_a_project_and_lost);
/// The directories between the account's home and the project are the session's own, and gone with it.
fn nothing_is_written_beside_a_project_and_lost(place: Place) {
    let world = World::new(place);
    let way = format!("lazaret-{}", unique());
    let project = format!("{way}/of/project");
    let home = &place.account().home;
    let make = format!(
        "cd '{}' && rm -rf {way} && mkdir -p {project}",
        home.display()
    );
    world.on_host(&make).success();
    let script = "echo x > here; (echo x > ../beside); (echo x > ../../above); mkdir ../sibling; (echo x > ~/own) && echo at home";
    let mut lazaret = world.program("lazaret");
    lazaret
        .args(["run", "--project"])
        .arg(home.join(&project))
        .arg("--central")
        .arg(&world.central);
    let finished = run(
        lazaret
            .args(["--", "bash", "-c", script])
            .current_dir(home.join(&project)),
        LIMIT,
    );
    let refused = finished.errors().matches("Permission denied").count();
    let made = run(
        world
            .host("find")
            .current_dir(home)
            .args([&way, "-type", "f"]),
        LIMIT,
    )
    .success();
    run(
        world.host("rm").current_dir(home).args(["-rf", &way]),
        LIMIT,
    )
    .success();
    assert_eq!(
        (finished.text(), refused),
        ("at home\n".into(), 3),
        "{}",
        finished.errors()
    );
    assert_eq!(made, format!("{project}/here\n"));
}

place_test!(caches_live_on_with_their_project);
fn caches_live_on_with_their_project(place: Place) {
    let (world, other) = (World::new(place), World::new(place));
    let fill =
        "for d in \"$GOCACHE\" \"$CCACHE_DIR\" \"$PIP_CACHE_DIR\" \"$npm_config_cache\" \"$CARGO_HOME\"; do
        mkdir -p \"$d\" && echo warm > \"$d/x\" && echo \"$d\"; done";
    let named = world.in_cell(fill).success();
    let caches = world.central.join("caches");
    assert_eq!(named.lines().count(), 5, "{named}");
    assert!(
        named
            .lines()
            .all(|line| std::path::Path::new(line).starts_with(&caches)),
        "{named}"
    );
    assert_eq!(
        world
            .in_cell("cat \"$GOCACHE/x\" \"$CARGO_HOME/x\"")
            .success(),
        "warm\nwarm\n"
    );
    let elsewhere = format!(
        "test ! -e \"$GOCACHE/x\" && ! cat {}/go-build/x",
        caches.display()
    );
    other.in_cell(&elsewhere).success();
    let policy = "version = 1\n[profile.own.environment]\nset = { GOCACHE = '/tmp/mine' }\n[profile.still]\ncentral = 'read'\n";
    world.set_policy(policy);
    for (profile, want) in [("own", "/tmp/mine"), ("still", "")] {
        let mut command = world.lazaret("run");
        command.args(["--profile", profile, "--", "bash", "-c", "echo $GOCACHE"]);
        let printed = run(
            command.env("XDG_CONFIG_HOME", world.home.join("settings")),
            LIMIT,
        );
        assert_eq!(printed.success().trim(), want, "{profile}");
    }
}

place_test!(packages_are_unpacked_without_their_protected_names);
/// `subcommand` with this policy of the user's.
/// Packages carry settings of the editors, agents and hooks that their authors use. These do not come about, and what unpacks
/// them goes on; elsewhere it hears of it.
fn packages_are_unpacked_without_their_protected_names(place: Place) {
    const UNPACK: &str = r#"
import os, sys
for name in ['README', '.vim/coc-settings.json', '.husky/pre-commit', '.pre-commit-config.yaml', '.claude/settings.json']:
    path = os.path.join(sys.argv[1], name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755)
    os.write(file, b'x' * 10)
    os.fchmod(file, 0o755)
    os.utime(file)
    try:
        os.link(f'/proc/self/fd/{file}', os.path.join(sys.argv[1], 'linked'), follow_symlinks=True)
        if name != 'README': sys.exit('a file without a name got one')
    except OSError: pass
"#;
    let world = World::new(place);
    world.put("unpack.py", UNPACK);
    let mut session = Session::open(&world);
    let unpack =
        |directory: &str| json!({"command": format!("/usr/bin/python3 unpack.py {directory}")});
    let caches = world.central.join("caches");
    for (directory, on_host) in [
        ("node_modules/x", world.project.join("node_modules/x")),
        (
            "lib/site-packages/x",
            world.project.join("lib/site-packages/x"),
        ),
        ("\"$npm_config_cache\"/x", caches.join("npm/x")),
    ] {
        let done = session.call("bash", unpack(directory));
        done.success();
        let denied = done.result["metadata"]["denied"].to_string();
        assert!(
            denied.contains(".vim/coc-settings.json"),
            "{directory}: {}",
            done.result
        );
        let mut left: Vec<_> = fs::read_dir(&on_host)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        left.retain(|name| name != "linked");
        left.sort();
        assert_eq!(left, [".vim", "README"], "{directory}");
        assert_eq!(
            fs::read_dir(on_host.join(".vim")).unwrap().count(),
            0,
            "{directory}"
        );
    }
    let refused = |session: &mut Session, directory: &str| {
        let elsewhere = session.call("bash", unpack(directory));
        assert!(
            !elsewhere.ok() && elsewhere.text().contains("Permission denied"),
            "{}",
            elsewhere.result
        );
    };
    refused(&mut session, "src/x");
    // A project that lies where packages are installed is none itself.
    let mut below = World::new(place);
    below.project = below.project.join("node_modules/p");
    below.put("unpack.py", UNPACK);
    refused(&mut Session::open(&below), "x");
}

fn with_policy(world: &World, policy: &str, subcommand: &str) -> Command {
    let settings = world.home.join("settings");
    world.write(
        &settings.join("lazaret/policy.toml"),
        format!("version = 1\n{policy}"),
    );
    let mut command = world.lazaret(subcommand);
    // `~` is the account's own home.
    command
        .env("XDG_CONFIG_HOME", settings)
        .env("CARGO_HOME", world.home.join(".cargo"));
    command
}

/// The view of `file` in a cell with this policy, and Lazaret's report of its choice.
fn read_with(world: &World, policy: &str, options: &[&str], file: &Path) -> (bool, String) {
    let mut command = with_policy(world, policy, "run");
    let finished = run(
        command.args(options).args(["-v", "--", "cat"]).arg(file),
        LIMIT,
    );
    let chosen = finished
        .errors()
        .lines()
        .filter(|line| line.contains("the profile is"))
        .collect::<Vec<_>>()
        .join("\n");
    (finished.text() == "crate", chosen)
}

place_test!(a_project_chooses_its_profile_where_the_user_says_so);
fn a_project_chooses_its_profile_where_the_user_says_so(place: Place) {
    let world = World::new(place);
    let fetched = world.home.join(".cargo/registry/src/lib.rs");
    world.write(&fetched, "crate");
    let read = |policy: &str, options: &[&str]| read_with(&world, policy, options, &fetched);
    let auto = "profile = 'auto'";
    assert_eq!(
        read(auto, &[]),
        (
            false,
            "lazaret: the profile is default (auto: no file in the project's root chooses another)"
                .into()
        )
    );
    for name in ["Cargo.toml", "package.json"] {
        world.put(name, "");
    }
    let found = "lazaret: the profile is rust (auto: the project has Cargo.toml); node would fit too: \
                 name it with --profile, or one of your own that extends several";
    assert_eq!(read(auto, &[]), (true, found.into()));
    assert_eq!(read("", &["--profile", "auto"]), (true, found.into()));
    for (policy, options) in [
        ("", &[][..]),
        ("", &["--profile", "node"]),
        (auto, &["--profile", "default"]),
    ] {
        assert_eq!(
            read(policy, options),
            (false, String::new()),
            "{policy} {options:?}"
        );
    }
    let session = Session::start(&mut with_policy(&world, auto, "session"));
    let chosen =
        ["profile", "profileBy", "profileOthers"].map(|field| session.ready[field].clone());
    assert_eq!(json!(chosen), json!(["rust", ["Cargo.toml"], ["node"]]));
}

place_test!(a_project_gains_no_profile_that_is_not_meant_for_it);
/// A repository may have files of any name and kind, and a command may make them while a session is open.
fn a_project_gains_no_profile_that_is_not_meant_for_it(place: Place) {
    let world = World::new(place);
    let secret = world.outside.join("notes");
    world.write(&secret, "crate");
    let own = format!(
        "default_profile = 'auto'\n[profile.private]\ngrants = [{{ path = '{}' }}]\n",
        secret.display()
    );
    let read = |policy: &str| read_with(&world, policy, &[], &secret).0;
    for name in [
        "private",
        "private.toml",
        "auto",
        ".lazaret",
        "policy.toml",
        "lazaret/policy.toml",
        "profile",
        "sub/meant.toml",
    ] {
        world.put(name, "version = 1\nprofile = 'private'\n");
    }
    std::os::unix::fs::symlink("private.toml", world.project.join("meant.toml")).unwrap();
    assert!(!read(&own));
    let meant = format!("{own}[[auto]]\nfiles = ['meant.toml']\nprofile = 'private'\n");
    assert!(!read(&meant), "a link is no file of the project's");
    let mut session = Session::start(&mut with_policy(&world, &meant, "session"));
    let show = format!(
        "rm meant.toml; echo x > meant.toml; cat {}",
        secret.display()
    );
    for _ in 0..2 {
        let answer = session.call("bash", json!({"command": show}));
        assert!(
            !answer.result.to_string().contains("crate"),
            "{}",
            answer.result
        );
    }
    assert!(
        read(&meant),
        "control: the user has meant it for projects that have this file"
    );
}
