//! Names that evaded the rules are taken away when the call has ended, and nothing else is. A test build lets them pass; the control is one
//! that does not take them away either.

use broker_protocol::Tier;
use lazaret_tests::process::until;
use lazaret_tests::session::Answer;
use lazaret_tests::{LIMIT, Mount, Place, Session, World, place_test, run};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The rules on new names are off, and the second look too or not.
const OPEN: &str = "new-names+quarantine";
const LOOKED_AT: &str = "new-names";

/// Objects that a command makes, and where they are then.
const ATTACKS: [(&str, &str); 10] = [
    ("echo x > lefthook.yml", "lefthook.yml"),
    (
        "mkdir -p a/.vscode; echo {} > a/.vscode/tasks.json",
        "a/.vscode/tasks.json",
    ),
    ("echo x > x; mv x a.code-workspace", "a.code-workspace"),
    (
        "python3 -c '
import os
f = os.open(\".\", os.O_TMPFILE | os.O_RDWR)
os.link(f\"/proc/self/fd/{f}\", \"lefthook.yml\", src_dir_fd=f, follow_symlinks=True)'",
        "lefthook.yml",
    ),
    ("ln -s x .husky", ".husky"),
    ("mkfifo .gitlint", ".gitlint"),
    (
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\".gitlint\")'",
        ".gitlint",
    ),
    ("mkdir a; echo x > a/post-commit; mv a .husky", ".husky"),
    (
        "echo x > lefthook.yml; mv lefthook.yml x; mv x prek.toml",
        "prek.toml",
    ),
    (
        "mkdir -p a/b; echo x > a/b/lefthook.yml; mv a/b c; mv c d",
        "d/lefthook.yml",
    ),
];

/// Repositories in which git runs a program, each with its directory and what is taken.
const REPOSITORIES: [(&str, &str, &str); 4] = [
    ("mkdir n; cd n; members; head > HEAD", "n", "n/HEAD"),
    ("mkdir n; cd n; head > x; ln x HEAD; members", "n", "n/HEAD"),
    (
        "mkdir n.git n.git/objects n.git/refs; head > n.git/HEAD; mv n.git n; trap_for $PWD/n > n/config",
        "n",
        "n",
    ),
    ("cd ordinary; members", "ordinary", "ordinary/refs"),
];
const TRAP: &str = "ROOT=$PWD
    trap_for() { printf '[core]\\nrepositoryformatversion = 0\\nbare = false\\nworktree = %s\\nfsmonitor = \"touch %s/sprung; false\"\\n' \"$1\" \"$ROOT\"; }
    head() { echo 'ref: refs/heads/main'; }
    members() { mkdir -p objects refs; trap_for \"$PWD\" > config; }
";

/// Findings after a call: each object with the reason and its state; the first of a kind with the number of unnamed ones.
fn found(answer: &Answer) -> Vec<(String, String, u64)> {
    let all = answer.result["metadata"]["found"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let objects = |finding: &Value| {
        let objects = finding["objects"].as_array().cloned().unwrap_or_default();
        let unnamed = finding["count"].as_u64().unwrap_or(0) - objects.len() as u64;
        let object = |(at, object): (usize, &Value)| {
            let why = format!("{} {}", text(&finding["why"]), text(&object["state"]));
            (
                text(&object["target"]),
                why,
                if at == 0 { 1 + unnamed } else { 1 },
            )
        };
        objects.iter().enumerate().map(object).collect::<Vec<_>>()
    };
    all.iter().flat_map(objects).collect()
}

/// Whether the result says that this path is in quarantine, or could not be taken.
fn names(answer: &Answer, path: &str, text: &str) -> bool {
    found(answer)
        .iter()
        .any(|(target, why, _)| target.ends_with(path) && why.contains(text))
}

fn quarantine(world: &World) -> PathBuf {
    world.central.join(".lazaret/quarantine")
}

/// How many objects are in quarantine.
fn taken(world: &World) -> usize {
    fs::read_dir(quarantine(world)).map_or(0, Iterator::count)
}

fn is_there(world: &World, path: &str) -> bool {
    world.project.join(path).symlink_metadata().is_ok()
}

place_test!(file_that_evades_the_rules_is_gone_before_the_result);
fn file_that_evades_the_rules_is_gone_before_the_result(place: Place) {
    // Without either, one session does for all controls: it has nothing to remember.
    let control = World::ablated(place, OPEN);
    let mut open = Session::open(&control);
    for (script, path) in ATTACKS {
        let answer = open.bash(script);
        assert!(
            is_there(&control, path),
            "the control of {script}: {}",
            answer.result
        );
        assert_eq!(taken(&control), 0, "the control of {script}");
        run(
            control
                .host("find")
                .args([".", "-mindepth", "1", "-delete"]),
            LIMIT,
        )
        .success();

        let world = World::ablated(place, LOOKED_AT);
        let mut session = Session::open(&world);
        let answer = session.bash(script);
        assert!(!is_there(&world, path), "{script}: {}", answer.result);
        assert!(
            names(&answer, path, "in quarantine"),
            "{script}: {}",
            answer.result
        );
        assert!(taken(&world) > 0, "{script}");
        // The next call is told nothing of it.
        assert_eq!(found(&session.bash("echo x > y && rm y")), [], "{script}");
    }
}

place_test!(a_repository_with_a_trap_is_gone_before_the_result);
fn a_repository_with_a_trap_is_gone_before_the_result(place: Place) {
    let springs = |world: &World, directory: &str| {
        world.on_host(&format!("cd {directory} && git status"));
        world.project.join("sprung").exists()
    };
    for (script, directory, path) in REPOSITORIES {
        let (control, world) = (
            World::ablated(place, OPEN),
            World::ablated(place, LOOKED_AT),
        );
        for world in [&control, &world] {
            world.put("ordinary/HEAD", "ref: refs/heads/main\n");
        }
        let script = format!("{TRAP}{script}");
        let answer = Session::open(&control).bash(&script);
        assert!(
            springs(&control, directory),
            "the control of {script}: {}",
            answer.result
        );
        let answer = Session::open(&world).bash(&script);
        assert!(!springs(&world, directory), "{script}: {}", answer.result);
        assert!(
            names(&answer, path, "in quarantine"),
            "{script}: {}",
            answer.result
        );
        assert!(is_there(&world, "ordinary/HEAD"), "the user's own");
    }
}

place_test!(file_moved_with_its_directory_is_found);
/// A directory goes with what is in it, and is named once.
fn file_moved_with_its_directory_is_found(place: Place) {
    let script =
        "mkdir a; echo {} > a/tasks.json; mkdir a/b; echo {} > a/b/tasks.json; mv a .vscode";
    let world = World::ablated(place, LOOKED_AT);
    let answer = Session::open(&world).bash(script);
    assert!(
        names(&answer, "/.vscode", "in quarantine"),
        "{}",
        answer.result
    );
    assert_eq!(found(&answer).len(), 1, "{}", answer.result);
    assert!(!is_there(&world, ".vscode") && taken(&world) == 1);
}

place_test!(file_in_a_repository_that_the_host_made_is_found);
/// A file that no rule refused when it was made: the user makes its directory a repository before the call ends.
fn file_in_a_repository_that_the_host_made_is_found(place: Place) {
    let script = "mkdir -p srv/info; echo x > srv/info/attributes; touch ready; until [ -e go ]; do sleep 0.02; done";
    for (world, is_taken) in [
        (World::ablated(place, OPEN), false),
        (World::new(place), true),
    ] {
        let mut session = Session::open(&world);
        let id = session.start_call("bash", json!({"command": script}));
        assert!(until(LIMIT, || is_there(&world, "ready")));
        world.on_host("git init -q --bare srv; touch go").success();
        let answer = session.answer_within(&id, LIMIT);
        assert_eq!(
            is_there(&world, "srv/info/attributes"),
            !is_taken,
            "{}",
            answer.result
        );
        assert_eq!(
            names(&answer, "srv/info/attributes", "in quarantine"),
            is_taken,
            "{}",
            answer.result
        );
        assert!(is_there(&world, "srv/config"), "the user's own");
    }
}

place_test!(quarantine_stays_empty_while_the_rules_hold);
fn quarantine_stays_empty_while_the_rules_hold(place: Place) {
    let scripts = ATTACKS.map(|(script, _)| script.to_owned()).into_iter();
    let repositories = REPOSITORIES.map(|(script, ..)| format!("{TRAP}{script}"));
    let world = World::new(place);
    world.put("ordinary/HEAD", "ref: refs/heads/main\n");
    let mut session = Session::open(&world);
    for script in scripts.chain(repositories) {
        let answer = session.bash(&format!("mkdir t && cd t && {{ {script}\n}}; rm -rf t"));
        assert!(
            !names(&answer, "", "quarantine"),
            "{script}: {}",
            answer.result
        );
        session.bash("rm -rf t");
    }
    assert_eq!(taken(&world), 0);
}

/// Steps of the command before it waits, of the user then, of the command at last, and the user's object.
const OWN: [(&str, &str, &str, &str, &str); 7] = [
    // The user's file in the place of the call's, as editors and `git checkout` put it there.
    (
        "echo call > lefthook.yml",
        "echo user > x && mv x lefthook.yml",
        ":",
        "lefthook.yml",
        "user\n",
    ),
    (
        "echo call > lefthook.yml",
        "rm lefthook.yml; echo user > lefthook.yml",
        ":",
        "lefthook.yml",
        "user\n",
    ),
    // The call's file in a place that the user has chosen.
    (
        "mkdir out; echo call > out/settings.json",
        "mv out .vscode",
        ":",
        ".vscode/settings.json",
        "call\n",
    ),
    (
        "mkdir out; echo call > out/tasks.json",
        "mkdir .vscode && mv out/tasks.json .vscode",
        ":",
        ".vscode/tasks.json",
        "call\n",
    ),
    // The user's file in what the user makes a repository, which the call has moved away and back.
    (
        "python3 -c 'import os; os.rename(\"srv/info/attributes\", \"srv/info/attributes\")'; cd srv/info; mv attributes a; mv a attributes; cd ../..",
        "git init -q --bare srv",
        ":",
        "srv/info/attributes",
        "user\n",
    ),
    // Files on their way, of an earlier call.
    (
        ":",
        "echo user > .npmrc~ && mv .npmrc~ .npmrc",
        ":",
        ".npmrc",
        "user\n",
    ),
    // What only is opened.
    (
        "touch .vscode/tasks.json mise.toml",
        ":",
        "echo more >> mise.toml",
        "mise.toml",
        "user\n",
    ),
];

place_test!(files_of_the_user_stay);
fn files_of_the_user_stay(place: Place) {
    for (first, user, last, path, content) in OWN {
        for world in [World::ablated(place, LOOKED_AT), World::new(place)] {
            // Where the rules hold, the command makes no such file, and the user still may.
            world.put("mise.toml", "user\n");
            world.put("srv/info/attributes", "user\n");
            world.put(".vscode/tasks.json", "user\n");
            if path.starts_with(".vscode") {
                fs::remove_dir_all(world.project.join(".vscode")).unwrap();
            }
            let mut session = Session::open(&world);
            session.bash("echo session > .npmrc~; echo session > .npmrc.tmp");
            let script = format!(
                "{{ {first}\n}} 2>/dev/null; touch .npmrc~ .npmrc.tmp; touch ready; until [ -e go ]; do sleep 0.02; done; {last}"
            );
            let id = session.start_call("bash", json!({"command": script}));
            assert!(until(LIMIT, || is_there(&world, "ready")), "{first}");
            world.on_host(&format!("{user}; touch go")).success();
            let answer = session.answer_within(&id, LIMIT);
            let now = String::from_utf8(world.get(path)).unwrap();
            assert_eq!(now, content, "{first}; {user}: {}", answer.result);
            assert_eq!(taken(&world), 0, "{first}; {user}: {}", answer.result);
        }
    }
}

/// Ordinary work, in calls of one session.
const WORK: [&[&str]; 5] = [
    &["echo fund=true > .npmrc.tmp; mv .npmrc.tmp .npmrc", "cp .npmrc .npmrc~; echo fund=false > .npmrc.tmp; mv .npmrc.tmp .npmrc; rm -f .npmrc~"],
    &[
        "set -e; git init -q r; cd r; git config user.name t; git config user.email t@t.invalid; echo x > f; git add f; git commit -qm x
         git init -q --bare ../b.git; git push -q ../b.git HEAD:refs/heads/main; git clone -q ../b.git ../c",
        "set -e; cd r; git worktree add -q ../w; cd ../c; git fetch -q; cd ..; mv c d; git -C d status",
        "rm -rf r b.git d w",
    ],
    &[
        "set -e; for n in 1 2 3 4 5 6 7 8; do d=node_modules/.p$n-x7; mkdir -p $d/config $d/.vscode; echo {} > $d/settings.json
         echo x > $d/.npmrc || :; echo {} > $d/.vscode/settings.json || :; mv $d node_modules/p$n; done",
        "set -e; mv node_modules/p1 node_modules/.p1-old; mv node_modules/p2 node_modules/p1; rm -r node_modules/.p1-old",
    ],
    &["mkdir -p src/config; echo x > src/config/config; mkdir t; echo {} > t/tasks.json; mv t u; mv u/tasks.json u/launch.json"],
    &["mkdir locked; echo {} > locked/config; chmod 0 locked", "chmod 700 locked; rm -r locked; for n in $(seq 500); do mkdir -p m/$n; echo {} > m/$n/package.json; done; mkfifo p; rm p; ln -s src s; rm s"],
];

place_test!(ordinary_work_loses_nothing);
fn ordinary_work_loses_nothing(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    for script in WORK.into_iter().flatten() {
        let answer = session.bash(script);
        answer.success();
        for (target, why, _) in found(&answer) {
            assert!(
                !why.contains("quarantine") && !why.contains("after the call"),
                "{script}: {target}: {why}"
            );
        }
    }
    assert_eq!(taken(&world), 0);
}

place_test!(two_thousand_repositories_are_no_matter, ordinary_only);
fn two_thousand_repositories_are_no_matter(place: Place) {
    let world = World::new(place);
    // What `git init` does, without a process for each.
    let script = "git init -q r && python3 -c '
import os
for n in range(2000):
    os.makedirs(f\"g/{n}/.git/objects\"); os.mkdir(f\"g/{n}/.git/refs\")
    for name, text in ((\"HEAD\", \"ref: refs/heads/main\\n\"), (\"config\", \"[core]\\n\\tbare = false\\n\")):
        with open(f\"g/{n}/.git/{name}.lock\", \"w\") as file: file.write(text)
        os.rename(f\"g/{n}/.git/{name}.lock\", f\"g/{n}/.git/{name}\")
' && git -C g/1999 status -s && for n in $(seq 20); do git init -q h/$n || exit 1; done";
    let mut session = Session::open(&world);
    let id = session.start_call("bash", json!({"command": script, "timeout": 200}));
    let mut answer = session.answer_within(&id, 4 * LIMIT);
    answer.success();
    // A busy machine has no time to look at all of them at once, and goes on after the next call.
    let later = |(_, why, _): &(String, String, u64)| why.contains("follows after the next one");
    let mut calls = 0;
    while calls < 50 && !found(&answer).is_empty() && found(&answer).iter().all(later) {
        answer = session.bash("true");
        calls += 1;
    }
    assert_eq!(found(&answer), [], "{}", answer.result);
    assert_eq!(taken(&world), 0);
}

place_test!(too_many_names_are_reported_once, ordinary_only);
fn too_many_names_are_reported_once(place: Place) {
    let make = |count: usize, last: &str| {
        format!("for n in $(seq {count}); do mkdir $n; echo {{}} > $n/tasks.json; {last}; done")
    };
    let world = World::new(place);
    let mut session = Session::open(&world);
    let answer = session.bash(&make(400, ":"));
    assert_eq!(
        (answer.ok(), found(&answer)),
        (true, vec![]),
        "none can have come elsewhere"
    );
    let answer = session.bash(&format!(
        "rm -r [0-9]*; {}; mkdir a; mv a b",
        make(400, ":")
    ));
    answer.success();
    let all = found(&answer);
    assert!(
        matches!(&all[..], [(target, why, 1)] if target == "new names" && why.contains("Nothing was refused")),
        "{all:?}"
    );
    assert_eq!(taken(&world), 0);
    let answer = session.bash(&format!("rm -r [0-9]*; {}", make(400, "rm -r $n")));
    assert_eq!(
        (answer.ok(), found(&answer)),
        (true, vec![]),
        "those that are gone take no room"
    );
}

place_test!(names_that_take_long_hold_up_nobody, ordinary_only);
/// A path whose every directory could be a repository takes milliseconds to judge, and other calls wait for the lock meanwhile: in a
/// debug build 700 levels took 12 seconds. What lies at the top is judged all the same.
fn names_that_take_long_hold_up_nobody(place: Place) {
    // The cost of a look at one name grows with the square.
    let depth = if place.tier == Tier::Flat { 30 } else { 90 };
    let script = format!(
        "python3 -c '
import os
deep = \"info/\" * {depth}
os.makedirs(deep)
for n in range(250):
    os.mkdir(f\"{{deep}}{{n}}\"); open(f\"{{deep}}{{n}}/config\", \"w\").close()
'; echo x > lefthook.yml"
    );
    let world = World::ablated(place, LOOKED_AT);
    let answer = Session::open(&world).bash(&script);
    answer.success();
    assert!(
        names(&answer, "/lefthook.yml", "in quarantine"),
        "{}",
        answer.result
    );
    let is_told = names(&answer, "new names", "Nothing was refused");
    assert!(is_told || place.tier == Tier::Flat, "{}", answer.result);
}

/// Objects that a command has made and then closed to its owner: a directory above, its root, both roots, or itself.
const CLOSED: [(&str, &str); 7] = [
    (
        "mkdir d; echo x > d/lefthook.yml; chmod 500 d",
        "d/lefthook.yml",
    ),
    (
        "mkdir d; echo x > d/lefthook.yml; chmod 0 d",
        "d/lefthook.yml",
    ),
    (
        "mkdir -p d/e/f; echo x > d/e/f/lefthook.yml; chmod 0 d/e/f d/e d",
        "d/e/f/lefthook.yml",
    ),
    ("echo x > lefthook.yml; chmod 0 .", "lefthook.yml"),
    (
        "mkdir d; echo x > d/lefthook.yml; chmod 0 \"$C\" d .",
        "d/lefthook.yml",
    ),
    (
        "mkdir a; echo x > a/post-commit; mv a .husky; chmod 500 .husky",
        ".husky",
    ),
    (
        "mkdir a; echo x > a/post-commit; mv a .husky; chmod 0 .husky .",
        ".husky",
    ),
];

place_test!(file_below_closed_directories_is_taken_too);
fn file_below_closed_directories_is_taken_too(place: Place) {
    for (script, path) in CLOSED {
        let opens = "chmod 755 . \"$C\"; for d in d d/e d/e/f .husky; do test ! -d $d || chmod 700 $d; done";
        let script = |world: &World| format!("C='{}'; {script}", world.central.display());
        let open = |world: &World| {
            run(
                world
                    .host("bash")
                    .env("C", &world.central)
                    .args(["-c", opens]),
                LIMIT,
            )
            .success();
            is_there(world, path)
        };
        let control = World::ablated(place, OPEN);
        Session::open(&control).bash(&script(&control));
        assert!(open(&control), "the control of {path}");
        let world = World::ablated(place, LOOKED_AT);
        let mut session = Session::open(&world);
        let answer = session.bash(&script(&world));
        assert!(
            names(&answer, path, "in quarantine"),
            "{}: {}",
            script(&world),
            answer.result
        );
        // What else was closed is as the command left it.
        if path == "d/lefthook.yml" {
            let left = fs::metadata(world.project.join("d")).unwrap().mode() & 0o777;
            assert!([0o500, 0].contains(&left), "{left:o}");
        }
        assert!(!open(&world), "{}", script(&world));
    }
}

place_test!(object_that_cannot_be_taken_is_named);
/// Objects that cannot be taken, each with the command, the step of the host before it, and the path.
fn object_that_cannot_be_taken_is_named(place: Place) {
    let full = "cd \"$C\"; mkdir -p .lazaret/quarantine; cd .lazaret/quarantine; for n in $(seq 256); do echo x > $n; done";
    let cases = [
        (
            "echo x > lefthook.yml",
            "mkdir -p \"$C/.lazaret\"; echo x > \"$C/.lazaret/quarantine\"",
            "lefthook.yml",
        ),
        ("echo x > lefthook.yml", full, "lefthook.yml"),
    ];
    for (script, before, path) in cases {
        let world = World::ablated(place, LOOKED_AT);
        run(
            world
                .host("bash")
                .env("C", &world.central)
                .args(["-c", before]),
            LIMIT,
        )
        .success();
        let answer = Session::open(&world).bash(script);
        let gone = names(&answer, path, "in quarantine");
        assert!(
            gone || names(&answer, path, "may still be there"),
            "{script}, {before}: {}",
            answer.result
        );
        assert!(
            !gone && is_there(&world, path),
            "{script}, {before}: {}",
            answer.result
        );
    }
    // More than a result can name one by one.
    let world = World::ablated(place, LOOKED_AT);
    let answer = Session::open(&world).bash(
        "for n in $(seq 20); do mkdir $n; echo x > $n/lefthook.yml; done; echo x > lefthook.yml",
    );
    let total: u64 = found(&answer).iter().map(|(.., count)| count).sum();
    let left = (1..=20)
        .filter(|number| is_there(&world, &format!("{number}/lefthook.yml")))
        .count();
    assert_eq!(
        (total, left, taken(&world)),
        (21, 9, 12),
        "{}",
        answer.result
    );
    assert!(
        !is_there(&world, "lefthook.yml"),
        "what lies at the top is taken first"
    );
    // Nor do names that no rule refused take its place.
    let world = World::ablated(place, LOOKED_AT);
    let answer = Session::open(&world).bash(
        "for n in $(seq 300); do mkdir $n; echo {} > $n/tasks.json; done; echo x > lefthook.yml",
    );
    assert!(
        names(&answer, "/lefthook.yml", "in quarantine"),
        "{}",
        answer.result
    );
    // A path that is longer than the kernel takes.
    let world = World::ablated(place, LOOKED_AT);
    let deep = "python3 -c '
import os
top, name = os.getcwd(), \"d\" * 200
os.mkdir(\"a\"); os.chdir(\"a\")
for n in range(17): os.mkdir(name); os.chdir(name)
open(\"lefthook.yml\", \"w\").close()
os.chdir(top)
os.mkdir(\"q\"); os.chdir(\"q\")
for n in range(3): os.mkdir(name); os.chdir(name)
os.rename(top + \"/a\", \"a\")'";
    let answer = Session::open(&world).bash(deep);
    answer.success();
    assert!(
        found(&answer)
            .iter()
            .any(|(_, why, _)| why.contains("may still be there")),
        "{}",
        answer.result
    );
}

place_test!(object_on_another_file_system_stays_and_is_named, needs_root);
fn object_on_another_file_system_stays_and_is_named(place: Place) {
    let world = World::ablated(place, LOOKED_AT);
    let _disk = Mount::of(&world.project, &["-t", "tmpfs", "-o", "size=1m", "tmpfs"]);
    world.make_folder(&world.project);
    let answer =
        Session::open(&world).bash("echo x > lefthook.yml; head -c 2000000 /dev/zero > fill");
    assert!(
        names(&answer, "lefthook.yml", "may still be there"),
        "{}",
        answer.result
    );
    assert_eq!((is_there(&world, "lefthook.yml"), taken(&world)), (true, 0));
}

place_test!(quarantined_directory_can_be_moved_back);
fn quarantined_directory_can_be_moved_back(place: Place) {
    let world = World::ablated(place, LOOKED_AT);
    let mut session = Session::open(&world);
    let answer = session.bash("mkdir a; echo kept > a/post-commit; chmod 750 a; mv a .husky");
    let (_, why, _) = found(&answer).remove(0);
    let name = why.rsplit_once("central:").unwrap().1.to_owned();
    // No call reaches it, and it stays when sessions open and close. Nobody enters it by mistake.
    let there = world.central.join(&name);
    assert_eq!(
        there.parent().unwrap().metadata().unwrap().mode() & 0o777,
        0
    );
    let change = format!(
        "cd {}; echo x > post-commit; rm post-commit; mv ../* $OLDPWD; rm -r ..",
        there.display()
    );
    session.bash(&change);
    drop(session);
    // Nor does anybody take it for a temporary file that was left behind.
    let holder = there.parent().unwrap().display();
    let old = format!(
        "chmod 700 {holder} && touch -d '1 hour ago' {} && chmod 0 {holder} && touch -d '1 hour ago' {holder}",
        there.display()
    );
    world.on_host(&old).success();
    Session::open(&world).bash("true").success();
    let back = format!(
        "chmod 700 {holder} && mv {} .husky && cat .husky/post-commit && stat -c %a .husky",
        there.display()
    );
    assert_eq!(world.on_host(&back).success(), "kept\n750\n");
}
