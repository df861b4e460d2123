//! `lazaret why`: a denied command runs again, traced, and what it changed is thrown away. Each kind of denial is explained, and what is
//! named as its grant lets the command through; a secret stays closed; who attacks the tracer gets "not known" and no wrong answer.

use broker_protocol::{
    AttemptKind, Bash, FileRead, FromBroker, Open, Request, ToBroker, Traced, Wants, Zone,
    ZonePath, limit,
};
use lazaret_tests::process::Finished;
use lazaret_tests::wire::{Received, opening, shell};
use lazaret_tests::{Broker, LIMIT, Place, World, place_test, run};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The account's home is hidden by the cell's, and what lies in it is nothing that a cell has by the machine's `/tmp`.
fn data(world: &World) -> PathBuf {
    let data = world.outside.join("data");
    world.write(&data.join("table"), "TABLE\n");
    world.write(&data.join("two words"), "WORDS\n");
    let program = data.join("bin/tool");
    world.write(&program, "#!/bin/sh\necho TOOL\n");
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    data
}

fn explain(world: &World, script: &str) -> (i32, Value) {
    let finished = run(
        world
            .lazaret("why")
            .args(["--json", "--", "bash", "-c", script]),
        LIMIT,
    );
    let value = serde_json::from_str(&finished.text());
    (
        finished.code(),
        value.unwrap_or_else(|error| panic!("{error}: {finished:?}")),
    )
}

fn denied<'v>(value: &'v Value, target: &str) -> &'v Value {
    let denied = value["denied"].as_array().unwrap();
    let of = denied
        .iter()
        .find(|one| one["what"]["target"].as_str().unwrap().contains(target));
    of.unwrap_or_else(|| panic!("{target} is not in {value:#}"))
}

fn options(value: &Value) -> Vec<String> {
    value["options"]
        .as_array()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap().to_owned())
        .collect()
}

/// The command as an ordinary one, with these options.
fn ordinary(world: &World, options: &[String], script: &str) -> Finished {
    run(
        world
            .lazaret("run")
            .args(options)
            .args(["--", "bash", "-c", script]),
        LIMIT,
    )
}

place_test!(a_port_that_was_given_is_not_advised, namespaced_only);
fn a_port_that_was_given_is_not_advised(place: Place) {
    let world = World::new(place);
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    let port = server.local_addr().unwrap().port().to_string();
    let explain = |options: &[&str]| {
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
        let mut why = world.lazaret("why");
        why.arg("--json").args(options);
        let finished = run(why.args(["--", "bash", "-c", &script]), LIMIT);
        let value: Value = serde_json::from_str(&finished.text()).unwrap();
        (finished.code(), value)
    };
    let (code, value) = explain(&[]);
    let advice = denied(&value, &address)["remedy"]["option"].to_string();
    assert!(
        code == 0 && advice.contains(&port),
        "the control: {value:#}"
    );
    assert!(value["options"] == json!(["--connect", port]), "{value:#}");
    let (code, value) = explain(&["--connect", &port]);
    assert_eq!((code, &value["denied"]), (3, &json!([])), "{value:#}");
    assert_eq!(value["hostsOfRun"], json!([address]), "{value:#}");
    // Another port is still explained.
    let other = if port == "1" { "2" } else { "1" };
    let (code, value) = explain(&["--connect", other]);
    assert_eq!(code, 0, "{value:#}");
    denied(&value, &address);
}

place_test!(named_grant_lets_the_command_through, namespaced_only);
fn named_grant_lets_the_command_through(place: Place) {
    let world = World::new(place);
    let data = data(&world);
    let at = |name: &str| data.join(name).display().to_string();
    let rows = [
        (
            format!("cat {}", at("table")),
            "table",
            vec!["--read".to_owned(), at("table")],
        ),
        (
            format!("cat '{}'", at("two words")),
            "two words",
            vec!["--read".into(), at("two words")],
        ),
        (
            format!("ls {}", data.display()),
            "data",
            vec!["--read".into(), data.display().to_string()],
        ),
        (
            format!("[ \"$({})\" = TOOL ]", at("bin/tool")),
            "tool",
            vec!["--read".into(), at("bin/tool")],
        ),
        (
            format!("echo x > {}", at("new")),
            "new",
            vec!["--write".into(), data.display().to_string()],
        ),
        (
            format!("echo x >> {}", at("table")),
            "table",
            vec!["--write".into(), data.display().to_string()],
        ),
        (
            format!("cat {} && echo x > {}", at("table"), at("bin/new")),
            "table",
            vec!["--read".into(), at("table")],
        ),
    ];
    for (script, target, want) in rows {
        let before = ordinary(&world, &[], &script);
        assert_ne!(before.code(), 0, "the control: {script} goes through");
        let (code, value) = explain(&world, &script);
        assert_eq!(
            (code, &value["unknown"]),
            (0, &json!([])),
            "{script}: {value:#}"
        );
        let one = denied(&value, target);
        assert_eq!(one["by"]["name"], "mount-namespace", "{script}: {value:#}");
        let options = options(&value);
        assert_eq!(options, want, "{script}: {value:#}");
        let with = ordinary(&world, &options, &script);
        // What a command does behind its first denial is another one's denial.
        if !script.contains("&&") {
            assert_eq!(
                with.code(),
                0,
                "{script} with {options:?}: {}",
                with.errors()
            );
        }
    }
    assert_eq!(
        fs::read_to_string(data.join("new")).unwrap(),
        "x\n",
        "the last runs have written"
    );
}

/// Files in an overlay are reached by no name that they get there.
const BY_OTHER_NAMES: &str = "mkdir d; ln .env l1; ln other l2; cp -l other l3; mv .env m1; mv other m2; chmod 644 other; \
    ln -s .env s1; ln -s other s2; cat l1 l2 l3 m1 m2 s1 s2 /proc/self/root$PWD/other /proc/self/cwd/.env; \
    cp -r . d; tar cf t .; cat t; grep -r KEY= .";

place_test!(
    denial_that_no_option_opens_is_reported_with_its_rule,
    namespaced_only
);
fn denial_that_no_option_opens_is_reported_with_its_rule(place: Place) {
    let world = World::new(place);
    run(world.host("git").args(["init", "--quiet", "."]), LIMIT).success();
    let secret = world.put(".env", format!("KEY={}\n", world.canary));
    fs::hard_link(secret, world.project.join("other")).unwrap();
    world.put(".envrc", "export A=1\n");
    let key = world.outside.join("keys/id_rsa");
    world.write(&key, &world.canary);
    let script = format!(
        "rm .envrc; cat .env; cat other; cat {}; echo x > .git/hooks/pre-commit; unshare -U true; {BY_OTHER_NAMES}; false",
        key.display()
    );
    let control = run(world.host("cat").arg("other"), LIMIT).text();
    assert!(control.contains(&world.canary), "the control");
    let finished = run(
        world
            .lazaret("why")
            .args(["-v", "--json", "--", "bash", "-c", &script]),
        LIMIT,
    );
    assert!(
        !(finished.text() + &finished.errors()).contains(&world.canary),
        "{finished:?}"
    );
    let value: Value = serde_json::from_str(&finished.text()).unwrap();
    for (target, by, rule) in [
        (".env", "protected-names", "protect:.env"),
        ("other", "protected-names", ""),
        ("id_rsa", "mount-namespace", ""),
        (
            ".git/hooks/pre-commit",
            "protected-names",
            "protect:.git/hooks",
        ),
        (".envrc", "protected-names", "protect:.envrc"),
        ("unshare", "seccomp", ""),
    ] {
        let is_it = |one: &&Value| {
            let named =
                one["by"]["name"] == by && one["by"]["rule"].as_str().unwrap_or_default() == rule;
            named && one["what"]["target"].as_str().unwrap().ends_with(target)
        };
        let one = value["denied"].as_array().unwrap().iter().find(is_it);
        let one = one.unwrap_or_else(|| panic!("{target}: {value:#}"));
        let advice = match target {
            "id_rsa" => json!("no option opens it, because it contains secrets"),
            ".envrc" | ".git/hooks/pre-commit" => {
                json!("no option allows this; the user can run outside the sandbox what makes it")
            }
            _ => Value::Null,
        };
        let remedy = &one["remedy"];
        assert!(
            one["grant"].is_null() && remedy.get("advice").unwrap_or(remedy) == &advice,
            "{value:#}"
        );
    }
    assert_eq!(
        (finished.code(), &value["options"]),
        (0, &json!([])),
        "{value:#}"
    );
}

place_test!(hosts_are_named_and_none_is_reached, namespaced_only);
fn hosts_are_named_and_none_is_reached(place: Place) {
    let world = World::new(place);
    let script = "curl -sS http://a.example:81/; curl -sS https://registry.npmjs.org/";
    let (code, value) = explain(&world, script);
    assert_eq!((code, &value["network"]), (0, &json!("closed")));
    let want = [
        "--allow-host",
        "a.example:81",
        "--allow-host",
        "registry.npmjs.org:443",
    ];
    assert_eq!(options(&value), want, "{value:#}");
    let preset = denied(&value, "registry.npmjs.org")["remedy"]["option"]
        .as_str()
        .unwrap();
    assert!(preset.starts_with("--allow-net npm"), "{preset}");
    let with = ordinary(&world, &options(&value), script).errors();
    assert!(!with.contains("is not among the hosts"), "{with}");
    // What the run had is not reached a second time, and so it is not known what comes behind it.
    let mut command = world.lazaret("why");
    command.args([
        "--allow-host",
        "a.example:81",
        "--json",
        "--",
        "curl",
        "-sS",
        "http://a.example:81/",
    ]);
    let finished = run(&mut command, LIMIT);
    let value: Value = serde_json::from_str(&finished.text()).unwrap();
    assert_eq!(
        (finished.code(), &value["hostsOfRun"]),
        (3, &json!(["a.example:81"])),
        "{value:#}"
    );
    assert_eq!(
        (&value["denied"], &value["unknown"]),
        (&json!([]), &json!(["network"])),
        "{value:#}"
    );
}

place_test!(a_limit_is_named, namespaced_only);
fn a_limit_is_named(place: Place) {
    let world = World::new(place);
    let policy =
        "version = 1\n[profile.tight.limits]\nmemory = \"256 MiB\"\nfile_size = \"8 MiB\"\n";
    world.set_policy(policy);
    let grow = "python3 -c 'b = [bytearray(8 << 20) for _ in range(60)]'";
    for (key, script) in [
        ("memory", grow),
        ("file_size", "head -c 20000000 /dev/zero > big; exit $?"),
    ] {
        let mut command = world.configured("why");
        let finished = run(
            command.args(["--profile", "tight", "--json", "--", "bash", "-c", script]),
            LIMIT,
        );
        let value: Value = serde_json::from_str(&finished.text()).unwrap();
        let limit = value["denied"]
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["by"]["name"] == key);
        let limit = limit.unwrap_or_else(|| panic!("{key}: {value:#}"));
        assert!(
            limit["remedy"]["policy"].as_str().unwrap().contains(key) && finished.code() == 0,
            "{value:#}"
        );
    }
}

place_test!(
    errors_that_occur_outside_too_are_not_reported,
    namespaced_only
);
fn errors_that_occur_outside_too_are_not_reported(place: Place) {
    let world = World::new(place);
    let ordinary = !place.account().uid.is_root();
    let shadow = if ordinary { "/etc/shadow" } else { "" };
    let script = format!(
        "cat /nothing/here /etc/nothing-here {shadow} none; no-such-program; mkdir closed; chmod 0 closed; \
         touch /usr/bin/x /proc/x; kill -0 1; true"
    );
    let (code, value) = explain(&world, &script);
    let told = value["denied"].as_array().unwrap();
    // Root could write there.
    let told: Vec<_> = told
        .iter()
        .filter(|one| ordinary || one["what"]["target"] != "/usr/bin/x")
        .collect();
    assert!(told.is_empty(), "{value:#}");
    assert!(code == 1 || !ordinary, "{value:#}");
    let (code, value) = explain(&world, "true");
    assert_eq!(
        (code, &value["denied"], &value["exitCode"]),
        (1, &json!([]), &json!(0)),
        "{value:#}"
    );
}

/// Every path below, with what it is.
fn tree(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut tree = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(path) = open.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let content = match metadata.is_dir() {
            true => {
                open.extend(
                    fs::read_dir(&path)
                        .unwrap()
                        .map(|entry| entry.unwrap().path()),
                );
                String::new()
            }
            false if metadata.is_symlink() => fs::read_link(&path).unwrap().display().to_string(),
            false => String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned(),
        };
        let (mode, inode, links) = (metadata.mode(), metadata.ino(), metadata.nlink());
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        tree.insert(
            path,
            format!("{mode:o} {inode} {links} {changed:?} {content}"),
        );
    }
    tree
}

const CHANGES: &str = "
export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x@y GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x@y
set -e
echo new > new; echo more >> kept; : > emptied; rm removed; mv moved elsewhere; chmod 700 mode; ln kept linked
ln -sf nowhere link; mkdir -p sub/new; rm -r directory; mkdir directory; touch -d 2001-01-01 kept
git add -A; git commit -qm x
echo note > \"$CENTRAL/note\"; rm \"$CENTRAL/old\"
echo out > \"$OUT/new\"; rm \"$OUT/old\"
";

place_test!(all_that_a_command_changes_is_thrown_away, namespaced_only);
fn all_that_a_command_changes_is_thrown_away(place: Place) {
    let world = World::new(place);
    run(world.host("git").args(["init", "--quiet", "."]), LIMIT).success();
    for name in [
        "kept",
        "emptied",
        "removed",
        "moved",
        "mode",
        "directory/file",
        "sub/file",
    ] {
        world.put(name, format!("{name}\n"));
    }
    symlink("kept", world.project.join("link")).unwrap();
    world.own(&world.project.join("link"));
    world.write(&world.central.join("old"), "old\n");
    let out = world.outside.join("out");
    world.write(&out.join("old"), "old\n");
    // What every session makes is there before.
    world.in_cell("true").success();
    let script = CHANGES
        .replace("$CENTRAL", world.central.to_str().unwrap())
        .replace("$OUT", out.to_str().unwrap());
    let all =
        || [&world.project, &world.central, &world.outside, &world.home].map(|root| tree(root));
    let before = all();
    let words = [
        "--write",
        out.to_str().unwrap(),
        "--json",
        "--",
        "bash",
        "-c",
        &script,
    ];
    let finished = run(world.lazaret("why").args(words), LIMIT);
    let value: Value =
        serde_json::from_str(&finished.text()).unwrap_or_else(|_| panic!("{finished:?}"));
    assert_eq!(value["exitCode"], 0, "{value:#}");
    assert_eq!(all(), before);
    // The control: the same command, as an ordinary one.
    ordinary(
        &world,
        &["--write".to_owned(), out.display().to_string()],
        &script,
    )
    .success();
    let after = all();
    for changed in 0..3 {
        assert_ne!(
            after[changed], before[changed],
            "the control has changed nothing in {changed}"
        );
    }
    let mut audit = String::new();
    for file in fs::read_dir(world.state.join("lazaret/audit")).unwrap() {
        audit += &fs::read_to_string(file.unwrap().path()).unwrap();
    }
    assert_eq!(audit.matches("\"throw_away\":true").count(), 1, "{audit}");
}

place_test!(the_last_command_of_the_project_runs_again, namespaced_only);
fn the_last_command_of_the_project_runs_again(place: Place) {
    let world = World::new(place);
    let table = data(&world).join("table").display().to_string();
    let why = || {
        let finished = run(world.lazaret("why").arg("--json"), LIMIT);
        (
            finished.code(),
            serde_json::from_str::<Value>(&finished.text()).unwrap_or_default(),
        )
    };
    assert_eq!(why().0, 2, "there is none yet");
    let words = vec!["cat".to_owned(), table.clone(), "a\\nb \"c\"".into()];
    run(
        world
            .lazaret("run")
            .args(["--profile", "dev", "--"])
            .args(&words),
        LIMIT,
    )
    .expect(1);
    let other = World::new(place);
    run(&mut other.lazaret_run(&["true"]), LIMIT).success();
    for _ in 0..2 {
        let (code, value) = why();
        assert_eq!((code, &value["command"]), (0, &json!(words)), "{value:#}");
        assert_eq!(value["profile"], "dev", "{value:#}");
        assert_eq!(options(&value), ["--read", &table]);
    }
    // A call that the log has only redacted is not run.
    run(&mut world.lazaret_run(&["cat", &world.key, &table]), LIMIT).expect(1);
    let finished = run(world.lazaret("why").arg("--json"), LIMIT);
    assert!(
        finished.code() == 2 && finished.errors().contains("a secret was taken out"),
        "{finished:?}"
    );
}

place_test!(the_command_does_not_learn_what_exists, namespaced_only);
fn the_command_does_not_learn_what_exists(place: Place) {
    let world = World::new(place);
    let secret = world.outside.join("secret.txt");
    let seen = |path: &Path| {
        let script = format!(
            "exec 2>&1; cat {0}; stat {0}; ls -la {0}; echo x >> {0}; cd {0}",
            path.display()
        );
        let finished = run(
            world
                .lazaret("why")
                .args(["-v", "--", "bash", "-c", &script]),
            LIMIT,
        );
        let lines = finished.errors();
        let lines = lines.lines().filter(|line| !line.starts_with("lazaret: "));
        lines
            .collect::<String>()
            .replace(path.to_str().unwrap(), "PATH")
    };
    let (there, absent) = (seen(&secret), seen(&world.outside.join("absent.txt")));
    assert!(
        there == absent && there.contains("No such file"),
        "{there}\n{absent}"
    );
}

/// Attacks on the tracer from within the traced command.
const ATTACK: &str = r#"
import ctypes, os, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
what, target = sys.argv[1:3]
tracer = int(open('/proc/self/status').read().split('TracerPid:')[1].split()[0]) or os.getppid()
def attempt(name, call):
    try: call(); print('GOT', name)
    except OSError as error: print('no', name, error)
FORGED = b'{"key":"","met":[],"gaps":[]}\n'
if what == 'report':
    attempt('descriptor', lambda: os.write(os.open(f'/proc/{tracer}/fd/1', os.O_WRONLY), FORGED))
    attempt('memory', lambda: os.open(f'/proc/{tracer}/mem', os.O_RDWR))
if what == 'steal':
    pipe = os.open(f'/proc/{tracer}/fd/1', os.O_RDWR)
    try: open(target)
    except OSError: pass
    os.write(pipe, FORGED)
    if os.fork() == 0:
        while True: os.read(pipe, 1 << 16)
    print('GOT', 'pipe'); time.sleep(1)
if what == 'kill':
    attempt('kill', lambda: os.kill(tracer, signal.SIGKILL))
if what == 'forge':
    os.write(1, FORGED); os.write(2, FORGED)
if what == 'untraced' and libc.syscall(56, 0x00800000 | signal.SIGCHLD, 0, 0, 0, 0) == 0:
    os.execvp('cat', ['cat', target])
if what == 'ptrace':
    libc.ptrace(0, 0, 0, 0)
try: open(target)
except OSError: pass
"#;

place_test!(attack_on_the_tracer_hides_nothing, namespaced_only);
fn attack_on_the_tracer_hides_nothing(place: Place) {
    let world = World::new(place);
    // A command that succeeds gets no advice.
    world.put(
        "attack.py",
        format!(
            "{ATTACK}
raise SystemExit(1)
"
        ),
    );
    let table = data(&world).join("table").display().to_string();
    let attack = |what: &str| {
        let words = ["-v", "--json", "--", "python3", "attack.py", what, &table];
        let finished = run(world.lazaret("why").args(words), LIMIT);
        let value: Value =
            serde_json::from_str(&finished.text()).unwrap_or_else(|_| panic!("{finished:?}"));
        (finished.code(), value, finished.errors())
    };
    // The control: a process of a cell opens its parent's, and the cell's first process opens the tracer's for it.
    let control = world
        .in_cell(&format!("python3 attack.py report {table} | cat; true"))
        .text();
    assert!(control.contains("GOT descriptor"), "{control}");
    for what in ["report", "forge"] {
        let (code, value, errors) = attack(what);
        assert!(!errors.contains("GOT memory"), "{errors}");
        assert_eq!(
            (code, &value["unknown"]),
            (0, &json!([])),
            "{what}: {value:#}"
        );
        assert_eq!(options(&value), ["--read", &table], "{what}");
    }
    // Whatever is taken away, nobody takes what is left for all of it.
    let (_, value, errors) = attack("steal");
    let is_whole = value["unknown"] == json!([]);
    assert!(
        errors.contains("GOT pipe") && (!is_whole || options(&value) == ["--read", &table]),
        "{value:#}"
    );
    let (code, value, errors) = attack("kill");
    match errors.contains("GOT") {
        // Before Linux 6.12.
        true => assert_eq!((code, &value["unknown"]), (3, &json!(["cut"])), "{value:#}"),
        false => assert_eq!(options(&value), ["--read", &table], "{value:#}"),
    }
    for what in ["untraced", "ptrace"] {
        if what == "untraced" && cfg!(not(target_arch = "x86_64")) {
            continue;
        }
        let (_, value, _) = attack(what);
        assert_eq!(value["unknown"], json!(["untraced"]), "{what}: {value:#}");
    }
    // Ended from outside while it ran: what it met before is told, and that there may be more.
    let script = format!("cat {table}; sleep 300");
    // A busy machine may need longer to get to `cat`.
    let meets_it = |seconds: u32| {
        let mut command = world.lazaret("why");
        command.args(["--timeout", &seconds.to_string(), "--json"]);
        let finished = run(command.args(["--", "bash", "-c", &script]), LIMIT);
        let value: Value = serde_json::from_str(&finished.text()).unwrap();
        assert_eq!(value["unknown"], json!(["cut"]), "{value:#}");
        options(&value) == ["--read", &table]
    };
    assert!([2, 10, 40].into_iter().any(meets_it));
}

place_test!(names_of_a_program_are_cleaned, namespaced_only);
fn names_of_a_program_are_cleaned(place: Place) {
    let world = World::new(place);
    let name = "a\u{1b}[2J\nread /etc\n\u{202e}";
    world.write(&world.outside.join(name), "x");
    let script = "printf 'cat \"%s/a\\033[2J\\nread /etc\\n\\342\\200\\256\"' \"$1\" > go; bash go";
    let words = [
        "--",
        "bash",
        "-c",
        script,
        "x",
        world.outside.to_str().unwrap(),
    ];
    let page = run(world.lazaret("why").args(words), LIMIT).text();
    assert!(
        page.contains("a\\u{1b}[2J\\nread /etc\\n\\u{202e}"),
        "{page}"
    );
    assert!(
        !page.contains('\u{1b}') && !page.lines().any(|line| line.starts_with("read /etc")),
        "{page}"
    );
    assert!(
        !page.contains("lazaret run"),
        "what cannot be shown is not granted: {page}"
    );
    let finished = run(world.lazaret("why").arg("--json").args(words), LIMIT);
    let value: Value = serde_json::from_str(&finished.text()).unwrap();
    assert_eq!(
        (&value["options"], finished.code()),
        (&json!([]), 0),
        "{value:#}"
    );
}

place_test!(
    a_session_that_is_thrown_away_runs_commands_alone,
    namespaced_only
);
fn a_session_that_is_thrown_away_runs_commands_alone(place: Place) {
    let world = World::new(place);
    world.put("file", "x");
    let throw_away = Open {
        throw_away: true,
        ..opening(&world)
    };
    let path = ZonePath::new(Zone::Project, "file").unwrap();
    let traced = vec![Traced::Path {
        kind: AttemptKind::Read,
        path: "/etc/hostname".into(),
    }];
    let command = || Request::Bash(shell("true"));
    let background = Request::Bash(Bash {
        background: true,
        ..shell("true")
    });
    let read = Request::FileRead(FileRead {
        path,
        offset: None,
        limit: None,
    });
    let wants = Wants {
        read: vec!["/srv".into()],
        ..Wants::default()
    };
    let many = traced
        .iter()
        .cycle()
        .take(limit::TRACED + 1)
        .cloned()
        .collect();
    for (open, frame) in [
        (
            throw_away.clone(),
            ToBroker::Call {
                call: 1,
                request: read,
            },
        ),
        (
            throw_away.clone(),
            ToBroker::Call {
                call: 1,
                request: background,
            },
        ),
        (
            throw_away.clone(),
            ToBroker::Call {
                call: 1,
                request: Request::BackgroundList,
            },
        ),
        (
            throw_away.clone(),
            ToBroker::WantingCall {
                call: 1,
                request: command(),
                wants,
            },
        ),
        (throw_away.clone(), ToBroker::Explain(many)),
        (opening(&world), ToBroker::Explain(traced.clone())),
    ] {
        let (mut broker, _) = Broker::open_by(&world, world.program("lazaret-executor"), open);
        broker.send(&frame);
        let ended = broker.receive(LIMIT);
        assert!(
            matches!(ended, Received::Message(FromBroker::Fault(_))),
            "{frame:?}: {ended:?}"
        );
    }
    let (mut broker, _) = Broker::open_by(&world, world.program("lazaret-executor"), throw_away);
    broker.send(&ToBroker::Explain(traced));
    assert!(matches!(broker.message(), FromBroker::Explained(denials) if denials.len() == 1));
}

place_test!(the_flat_tier_says_that_it_has_no_overlay, flat_only);
fn the_flat_tier_says_that_it_has_no_overlay(place: Place) {
    let world = World::new(place);
    let finished = run(world.lazaret("why").args(["--", "touch", "new"]), LIMIT);
    assert_eq!(finished.code(), 4, "{finished:?}");
    let errors = finished.errors();
    assert!(
        errors.contains("cannot discard a command's changes") && errors.contains("lazaret run -v"),
        "{errors}"
    );
    assert!(!world.project.join("new").exists());
}
