//! Bounds that a command can fill: what is the user's is looked after first, what had no room is closed or said, and the next session
//! opens. And the work of a call does not grow with what lies in the project.

use crate::kept_world::KeptWorld;
use broker_protocol::Tier;
use lazaret_tests::process::{self, until};
use lazaret_tests::programs;
use lazaret_tests::{Finished, LIMIT, Place, Session, User, World, place_test, run};
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Git's own shell prompt runs what a counter says.
const COUNTER: &str = ".git/rebase-merge/msgnum";
const PLANT: &str = "mkdir -p .git/rebase-merge; echo '$(id)1' > .git/rebase-merge/msgnum";

fn repository(world: &World) {
    let script = "git init -q .; git config user.email a@b; git config user.name a; git commit -q --allow-empty -m a";
    world.set_up(script);
}

/// Makes `count` bare repositories in the directory `at`, as quickly as a shell can.
fn repositories(at: &str, count: usize) -> String {
    format!(
        "mkdir -p {at}; cd {at}; for i in $(seq -w {count}); do d=\"$d $i.git/objects $i.git/refs\"; done; mkdir -p $d
        for i in $(seq -w {count}); do echo 'ref: refs/heads/m' > $i.git/HEAD; done; ls | wc -l"
    )
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Where commands may write besides the project.
fn central(world: &World) -> String {
    world.central.display().to_string()
}

place_test!(the_users_repository_is_watched_before_those_of_commands);
fn the_users_repository_is_watched_before_those_of_commands(place: Place) {
    let world = World::new(place);
    repository(&world);
    let kept = KeptWorld::of(world);
    let world = kept.restore();
    world.on_host(PLANT).success();
    assert!(world.project.join(COUNTER).exists(), "the control");
    for at in [central(world) + "/s", "0".to_owned()] {
        let world = kept.restore();
        let made = world.in_cell(&repositories(&at, 600));
        assert_eq!(made.text().trim(), "600", "the control: {}", made.errors());
        let mut session = Session::open(world);
        let said = session.bash(PLANT).result.to_string();
        assert!(!world.project.join(COUNTER).exists(), "{at}: {said}");
        assert!(
            said.contains("msgnum") && said.contains("(removed)"),
            "{at}: {said}"
        );
        let head = world.get(".git/HEAD");
        session.bash("rm -rf .git/HEAD .git/refs; true");
        assert!(world.project.join(".git/refs").is_dir(), "{at}");
        assert_eq!(world.get(".git/HEAD"), head, "{at}");
    }
}

place_test!(repositories_over_the_bound_are_closed_for_writing);
fn repositories_over_the_bound_are_closed_for_writing(place: Place) {
    let world = World::new(place);
    repository(&world);
    let at = central(&world) + "/s";
    world.in_cell(&repositories(&at, 600)).success();
    let mut session = Session::open(&world);
    let said = session.ready.to_string();
    assert!(said.contains("no room among the 512"), "{said}");
    let write = |name: &str| {
        format!("for i in {at}/*.git; do echo x 2>/dev/null > $i/{name} && echo $i; done | wc -l")
    };
    let said = session.bash(&write("description")).result.to_string();
    // Those of the central root have the places that the project's own leaves.
    assert!(said.contains("511"), "{said}");
    session
        .bash("echo x > .git/description && git commit -q --allow-empty -m b")
        .success();
}

/// More than Lazaret reads in all, if each counted.
const SETTINGS: &str = r#"python3 -c '
import os, sys
os.makedirs(sys.argv[1]); os.chdir(sys.argv[1])
line = "\tname = /" + "a" * 500 + "\n"; text = "[user]\n" + line * 127
for i in range(150):
    for d in ("objects", "refs"): os.makedirs(f"{i}.git/{d}")
    open(f"{i}.git/HEAD", "w").write("ref: refs/heads/m\n")
    open(f"{i}.git/config.lock", "w").write(text); os.rename(f"{i}.git/config.lock", f"{i}.git/config")
print(len(os.listdir(".")))
' "#;

place_test!(settings_of_many_repositories_of_commands_open_a_session);
fn settings_of_many_repositories_of_commands_open_a_session(place: Place) {
    let world = World::new(place);
    repository(&world);
    for at in [central(&world) + "/s", "0".to_owned()] {
        let made = world.in_cell(&format!("{SETTINGS} {at}"));
        assert_eq!(made.text().trim(), "150", "the control: {}", made.errors());
    }
    assert_eq!(world.in_cell("echo opens").success(), "opens\n");
    // What the user's own settings name is closed all the same.
    run(
        world
            .host("git")
            .args(["config", "core.hooksPath", "tools/hooks"]),
        LIMIT,
    )
    .success();
    let said = world.in_cell("mkdir -p tools; echo x > tools/hooks");
    assert_ne!(said.code(), 0, "{}", said.errors());
}

place_test!(a_root_that_a_command_closes_is_open_again);
fn a_root_that_a_command_closes_is_open_again(place: Place) {
    let world = World::new(place);
    repository(&world);
    for root in [world.project.clone(), world.central.clone()] {
        let before = mode(&root);
        let close = format!("chmod 0 {}", root.display());
        world.on_host(&close).success();
        assert_eq!(mode(&root), 0, "the control");
        fs::set_permissions(&root, fs::Permissions::from_mode(before)).unwrap();
        let mut session = Session::open(&world);
        let said = session.bash(&close).result.to_string();
        assert_eq!(mode(&root), before, "{said}");
        assert!(
            said.contains("changed who may use this directory"),
            "{said}"
        );
        session.bash("true").success();
        session.close(LIMIT);
        assert_eq!(world.in_cell("echo opens").success(), "opens\n");
    }
}

place_test!(a_root_that_a_background_command_closes_is_open_again);
fn a_root_that_a_background_command_closes_is_open_again(place: Place) {
    for end in ["", "; sleep 300"] {
        let world = World::new(place);
        let before = mode(&world.project);
        let mut session = Session::open(&world);
        let command = format!("touch done; chmod 0 .{end}");
        session
            .call("bash", json!({"command": command, "background": true}))
            .success();
        assert!(until(LIMIT, || world.central.join("x").exists()
            || mode(&world.project) != before
            || end.is_empty()));
        session.close(LIMIT);
        assert!(until(LIMIT, || mode(&world.project) == before), "{end}");
    }
}

place_test!(a_closed_central_root_opens_a_session);
fn a_closed_central_root_opens_a_session(place: Place) {
    let world = World::new(place);
    world.in_cell("true").success();
    fs::set_permissions(&world.central, fs::Permissions::from_mode(0o0)).unwrap();
    let mut session = Session::open(&world);
    let said = session.ready.to_string();
    assert!(
        place.user == lazaret_tests::User::Root || said.contains("it is open again"),
        "{said}"
    );
    session
        .bash(&format!("touch {}/x", world.central.display()))
        .success();
}

/// Adds an entry for the user to an access list, with all rights, and opens the mode to everybody.
const OPEN: &str = r#"python3 -c '
import os, struct, sys
entries = ((1, 7, 0xffffffff), (2, 7, os.getuid()), (4, 7, 0xffffffff), (16, 7, 0xffffffff), (32, 7, 0xffffffff))
acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
for name in ("system.posix_acl_access", "system.posix_acl_default"):
    try: os.setxattr(sys.argv[1], name, acl)
    except OSError as error: print(error, file=sys.stderr)
os.chmod(sys.argv[1], 0o2777)
' "#;

/// Prints the access lists of a directory. `getfattr` is not on every machine.
const LISTS: &str = r#"
import os, sys
for name in ("system.posix_acl_access", "system.posix_acl_default"):
    try: print(name, os.getxattr(sys.argv[1], name).hex())
    except OSError as error: print(name, error.errno)
"#;

place_test!(mode_of_a_root_is_restored);
fn mode_of_a_root_is_restored(place: Place) {
    let world = World::new(place);
    for root in [world.project.clone(), world.central.clone()] {
        fs::set_permissions(&root, fs::Permissions::from_mode(0o700)).unwrap();
        let lists = || {
            let listed = run(
                Command::new("python3").args(["-c", LISTS]).arg(&root),
                LIMIT,
            );
            listed.success()
        };
        let before = lists();
        let mut session = Session::open(&world);
        let said = session.bash(&format!(
            "{OPEN} {}; touch {}/new; stat -c %a {}",
            root.display(),
            root.display(),
            root.display()
        ));
        let said = said.result.to_string();
        assert!(
            said.contains("2777") || said.contains("777"),
            "the control: {said}"
        );
        assert_eq!(mode(&root), 0o700, "{said}");
        assert_eq!(lists(), before, "{said}");
        assert!(said.contains("given back"), "{said}");
    }
}

place_test!(root_mode_changed_by_the_user_between_calls_stays);
fn root_mode_changed_by_the_user_between_calls_stays(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    session.bash("true").success();
    fs::set_permissions(&world.project, fs::Permissions::from_mode(0o750)).unwrap();
    let said = session.bash("true").result.to_string();
    assert_eq!(mode(&world.project), 0o750);
    assert!(!said.contains("changed who may use"), "{said}");
    session.call("file_list", json!({"path": "."})).success();
}

place_test!(a_link_in_place_of_lazarets_own_files_ends_no_session);
fn a_link_in_place_of_lazarets_own_files_ends_no_session(place: Place) {
    for name in ["state", "outputs"] {
        let world = World::new(place);
        let link = format!("cd {}; rm -rf {name}; ln -s /etc {name}", central(&world));
        world.in_cell(&link).success();
        assert!(
            world.central.join(name).is_symlink(),
            "the control of {name}"
        );
        // One violation ends the session.
        let mut session = Session::start(world.lazaret("session").args(["--max-violations", "1"]));
        for (tool, input) in [
            ("todo_read", json!({})),
            ("memory", json!({"action": "list"})),
            ("bash", json!({"command": "seq 100000"})),
            ("file_write", json!({"path": "f", "content": "x"})),
        ] {
            let answer = session.call(tool, input);
            let violation = answer.result["error"]["kind"] == "violation";
            assert!(!violation, "{name}: {}", answer.result);
        }
        assert_eq!(session.bash("echo still here").text(), "still here\n");
    }
}

place_test!(many_names_in_the_central_root_open_a_session);
/// A hundred thousand here; the bounds themselves are tested where they are.
fn many_names_in_the_central_root_open_a_session(place: Place) {
    let world = World::new(place);
    let script = r#"python3 -c '
import os, sys
os.makedirs(sys.argv[1]); os.chdir(sys.argv[1]); open("0", "w")
for n in range(100): os.mkdir(f"d{n}"); [os.link("0", f"d{n}/{i}") for i in range(200)]
' "#;
    world
        .in_cell(&format!("{script} {}/s", world.central.display()))
        .success();
    assert_eq!(world.in_cell("echo opens").success(), "opens\n");
}

place_test!(many_protected_names_in_the_project_root_open_a_session);
/// More than there may be mounts. What the user had stays, and stays closed.
fn many_protected_names_in_the_project_root_open_a_session(place: Place) {
    let world = World::new(place);
    world.put(".env", &world.canary);
    let script =
        "python3 -c 'for n in range(4500): open(f\".env.{n}\", \"w\").close()'; ls -A | wc -l";
    let made = world.in_cell(script);
    assert_eq!(made.text().trim(), "4501", "the control: {}", made.errors());
    let opened = world.in_cell("echo opens; cat .env");
    assert!(opened.text().starts_with("opens"), "{}", opened.errors());
    assert!(!opened.text().contains(&world.canary));
    assert_eq!(world.get(".env"), world.canary.as_bytes());
}

place_test!(many_directories_with_secrets_open_a_session);
/// Each needs a mount of its own, because it lies in the root itself.
fn many_directories_with_secrets_open_a_session(place: Place) {
    let world = World::new(place);
    world.put(".env", &world.canary);
    let script = "python3 -c '
import os
for n in range(5000): os.mkdir(f\"d{n}\"); open(f\"d{n}/.env\", \"w\").close()'; ls | wc -l";
    let made = world.in_cell(script);
    assert_eq!(made.text().trim(), "5000", "the control: {}", made.errors());
    // What the user has replaced is no command's any more.
    for name in ["d0/.env", "d4999/.env"] {
        world.put(name, &world.canary);
    }
    let open = || world.in_cell("echo opens; cat .env d0/.env d4999/.env; ls d0 && touch d0/x");
    // The client's patience is no claim of this test: beside thirty processes, it is spent before all is looked through.
    let is_slow = |opened: &Finished| opened.errors().contains("has not answered within");
    let mut tries = std::iter::repeat_with(open).take(4);
    let opened = tries.find(|opened| !is_slow(opened));
    let opened = opened.expect("one of four opens in time");
    let said = opened.text();
    assert!(said.starts_with("opens"), "{}", opened.errors());
    assert!(!said.contains(&world.canary), "{said}");
    assert!(world.project.join("d0/x").exists(), "{}", opened.errors());
}

place_test!(many_closed_directories_open_a_session);
/// More than there may be mounts, which no secret of the user's leaves its place for.
fn many_closed_directories_open_a_session(place: Place) {
    let world = World::new(place);
    world.put(".env", &world.canary);
    world.put("src/.env", &world.canary);
    let script =
        "python3 -c 'import os; [os.mkdir(f\"d{n}\", 0) for n in range(17000)]'; ls | wc -l";
    let made = world.in_cell(script);
    assert_eq!(
        made.text().trim(),
        "17001",
        "the control: {}",
        made.errors()
    );
    let mut session = Session::open(&world);
    let said = session.bash("cat .env src/.env; ls src").result.to_string();
    assert!(!said.contains(&world.canary), "{said}");
    for name in [".env", "src/.env"] {
        assert_eq!(world.get(name), world.canary.as_bytes(), "{name}");
    }
    // Root lists them, and the flat tier needs no mounts.
    let is_set_aside = place.tier == Tier::Namespaced && place.user == User::Ordinary;
    let notice = session.ready["alsoClosed"][0].to_string();
    assert_eq!(notice.contains("quarantine"), is_set_aside, "{notice}");
}

place_test!(many_locks_are_one_finding);
fn many_locks_are_one_finding(place: Place) {
    let world = World::new(place);
    repository(&world);
    let mut session = Session::open(&world);
    session.bash("true").success();
    let script = "python3 -c 'for n in range(5000): open(f\".git/{n}.lock\", \"w\").close()'";
    let answer = session.bash(script);
    let found = answer.result["metadata"]["found"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    assert_eq!(found.len(), 1, "{}", answer.result);
    assert_eq!(found[0]["kind"], "lock", "{}", answer.result);
    assert!(
        found[0]["count"].as_u64().is_some_and(|count| count > 4000),
        "{}",
        answer.result
    );
    let said = session.bash("true").result;
    assert!(
        said["metadata"]["found"].is_null(),
        "it is said once: {said}"
    );
    let said = session.bash("touch .git/index.lock").result.to_string();
    assert!(said.contains("index.lock"), "{said}");
}

place_test!(change_after_several_calls_is_found);
/// After some calls only what has changed is looked at.
fn change_after_several_calls_is_found(place: Place) {
    let world = World::new(place);
    repository(&world);
    let mut session = Session::open(&world);
    for _ in 0..3 {
        session.bash("true").success();
    }
    let head = world.get(".git/HEAD");
    session.bash("rm -rf .git/HEAD .git/refs/heads .git/refs .git/objects; true");
    let parts = ["HEAD", "refs", "objects"].map(|part| world.project.join(".git").join(part));
    assert!(parts.iter().all(|part| part.exists()), "{parts:?}");
    assert_eq!(world.get(".git/HEAD"), head);
    session.bash("true").success();
    for (script, file) in [
        (PLANT, "msgnum"),
        (
            "mkdir r; echo '$(id)' > r/end; rm -rf .git/rebase-apply; mv r/end .git/rebase-merge/end",
            "end",
        ),
        ("mkdir -p .git/info; echo x > .git/info/grafts", "grafts"),
        (
            "mkdir -p .git/objects/info; echo x > .git/objects/info/alternates",
            "alternates",
        ),
        ("echo x >> .git/objects/info/alternates", "alternates"),
        (
            "mkdir -p .git/refs/heads; echo 'ref: refs/heads/x$(id)' > .git/refs/heads/n; mv .git/refs/heads/n \".git/$(git symbolic-ref HEAD)\"",
            "refs/heads",
        ),
        ("echo x > .git/MERGE_AUTOSTASH", "MERGE_AUTOSTASH"),
    ] {
        for _ in 0..2 {
            session.bash("true").success();
        }
        let said = session.bash(&format!("{script}; true")).result.to_string();
        assert!(
            said.contains(file) && said.contains("\"found\""),
            "{script}: {said}"
        );
    }
}

place_test!(change_under_another_name_is_found);
/// By a link to the file elsewhere, by a file that was open before it got its name, and by a mapping of it.
fn change_under_another_name_is_found(place: Place) {
    let open_before = r#"python3 -c '
import os, time
f = open(".git/sub/y", "w"); f.write("1"); f.flush(); os.rename(".git/sub/y", ".git/rebase-merge/msgnum"); open("ready", "w")
while not os.path.exists("go"): time.sleep(0.02)
f.seek(0); f.write("$(id)"); f.flush(); open("done", "w")
'"#;
    let mapped = r#"python3 -c '
import mmap, os, time
open(".git/sub/z", "w").write("11111"); f = os.open(".git/sub/z", os.O_RDWR); m = mmap.mmap(f, 5); os.close(f)
os.link(".git/sub/z", ".git/rebase-merge/msgnum"); open("ready", "w")
while not os.path.exists("go"): time.sleep(0.02)
m[:] = b"$(id)"; open("done", "w")
'"#;
    let world = World::new(place);
    repository(&world);
    // A directory in which nothing is looked at, on the same mount.
    run(world.host("mkdir").arg(".git/sub"), LIMIT).success();
    let kept = KeptWorld::of(world);
    for background in [open_before, mapped] {
        let world = kept.restore();
        run(world.host("mkdir").arg(".git/rebase-merge"), LIMIT).success();
        let mut session = Session::open(world);
        for _ in 0..3 {
            session.bash("true").success();
        }
        session
            .call("bash", json!({"command": background, "background": true}))
            .success();
        assert!(until(LIMIT, || world.project.join("ready").exists()));
        session.bash("true").success();
        session.bash("touch go").success();
        assert!(
            until(LIMIT, || world.project.join("done").exists()
                && !world.project.join(COUNTER).exists()),
            "{background}"
        );
    }
    let world = kept.restore();
    let mut session = Session::open(world);
    session.bash("true").success();
    session
        .bash(
            "mkdir .git/rebase-merge; echo 1 > .git/sub/x; ln .git/sub/x .git/rebase-merge/msgnum",
        )
        .success();
    for _ in 0..3 {
        session.bash("true").success();
    }
    assert!(world.project.join(COUNTER).exists(), "a number may stay");
    let said = session.bash("echo '$(id)' > .git/sub/x").result.to_string();
    assert!(!world.project.join(COUNTER).exists(), "{said}");
}

/// The system calls of the executor and all its processes in a session, one a line in the order of their beginning. Descriptors are
/// written with the path of their file.
fn traced(world: &World, work: impl FnOnce(&mut Session)) -> String {
    let log = world.outside.join("log");
    let _ = fs::remove_file(&log);
    let wrapper = world.outside.join("traced/lazaret-executor");
    let executor = programs::path("lazaret-executor");
    let text = format!(
        "#!/bin/sh\nexec strace -f -y -qq -o {} {} \"$@\"\n",
        log.display(),
        executor.display()
    );
    world.write(&wrapper, text);
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = world.lazaret("session");
    command.env("LAZARET_EXECUTOR", OsString::from(&wrapper));
    let mut session = Session::start(&mut command);
    work(&mut session);
    session.close(LIMIT);
    // Strace is not our child, and ends after all that it follows.
    assert!(until(LIMIT, || {
        process::with_marker(&format!("-o {} ", log.display())).is_empty()
    }));
    fs::read_to_string(&log).unwrap()
}

/// How many lines are system calls that count.
fn count(trace: &str, counts: impl Fn(&str) -> bool) -> usize {
    let calls = trace.lines().filter(|line| line.contains('('));
    calls.filter(|line| counts(line)).count()
}

place_test!(
    the_calls_of_a_call_do_not_grow_with_the_repositories,
    ordinary_only
);
/// Only calls on what belongs to a repository count: how often a process waits, and how many cells are made ahead, depends on the
/// machine's load.
fn the_calls_of_a_call_do_not_grow_with_the_repositories(place: Place) {
    const CALLS: usize = 10;
    let mut costs = Vec::new();
    for repositories_there in [0, 1, 64] {
        let world = World::new(place);
        world.put("a", "text");
        if repositories_there > 0 {
            repository(&world);
        }
        if repositories_there > 1 {
            let script = repositories("r", repositories_there - 1);
            world.on_host(&script).success();
        }
        let trace = traced(&world, |session| {
            // The first calls of a session look at everything.
            for _ in 0..3 {
                session.bash("true").success();
            }
            session.bash("cat commands-begin; true").success();
            for _ in 0..CALLS {
                session.bash("true").success();
            }
            session.bash("cat reads-begin; true").success();
            for _ in 0..CALLS {
                session.call("file_read", json!({"path": "a"})).success();
            }
            session.bash("cat reads-end; true").success();
        });
        let after = |mark| {
            let parts = trace.split_once(&format!("\"{mark}\""));
            parts.expect("the command is traced")
        };
        let (first, _) = after("commands-begin");
        let [of_commands, of_reads] = [
            ("commands-begin", "reads-begin"),
            ("reads-begin", "reads-end"),
        ]
        .map(|(from, to)| after(from).1.split_once(&format!("\"{to}\"")).unwrap().0);
        let about_repository = |part| count(part, |line| line.contains(".git"));
        assert!(
            repositories_there == 0 || about_repository(first) > 0,
            "no call on a repository is seen"
        );
        costs
            .push([of_commands, of_reads].map(|part| about_repository(part) as f64 / CALLS as f64));
    }
    for (with, without) in [(1, 0), (2, 0)] {
        for kind in 0..2 {
            let more = costs[with][kind] - costs[without][kind];
            assert!(more <= 10.0, "{costs:?}");
        }
    }
}

place_test!(
    the_flat_tier_opens_with_the_calls_of_the_namespaced_tier,
    flat_only
);
/// The project is walked once in the tier that cannot be known before namespaces are refused, too. Only the process that walks it
/// counts: how many cells are made ahead depends on the machine's load. An ordinary user's strace sees no names of such a process. What has
/// changed shortly before is looked at again, so the lesser of two openings counts.
fn the_flat_tier_opens_with_the_calls_of_the_namespaced_tier(place: Place) {
    let tree = "mkdir -p d/{0..9}/{0..9}/{0..5} && for d in d/*/*/*; do touch $d/{1..5}; done";
    let opens = |tier| {
        let world = World::new(Place { tier, ..place });
        world.on_host(tree).success();
        let opened = [(); 2].map(|()| {
            let trace = traced(&world, |session| {
                for _ in 0..3 {
                    session.bash("true").success();
                }
            });
            let mut listed = BTreeMap::<_, usize>::new();
            for line in trace.lines().filter(|line| line.contains(" getdents64(")) {
                *listed.entry(line.split(' ').next()).or_default() += 1;
            }
            listed.into_values().max().unwrap_or_default()
        });
        opened.into_iter().min().unwrap_or_default()
    };
    let (flat, namespaced) = (opens(Tier::Flat), opens(Tier::Namespaced));
    assert!(
        namespaced > 1000,
        "the project was not walked: {namespaced} calls"
    );
    let ratio = flat as f64 / namespaced as f64;
    assert!(
        (0.9..=1.1).contains(&ratio),
        "{flat} calls, and {namespaced} in the namespaced tier"
    );
}
