//! Objects that a call leaves in the user's repository are reported, whatever else the call does: before its refusals, once for each kind, at every
//! exit code, and with the next result if there is none. Each attack has its control: the host sees what the call has done.

use lazaret_tests::process::{self, until};
use lazaret_tests::session::Answer;
use lazaret_tests::{LIMIT, Place, Session, World, place_test};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Makes git track the user's secret, and writes a text that a prompt executes.
const TRACK: &str =
    "git update-index --add --cacheinfo 100644,$(git hash-object -w /dev/null),.env";
const PROMPT: &str = "mkdir -p .git/rebase-merge; echo '$(id)' > .git/rebase-merge/msgnum";
const REFUSALS: &str = "for i in $(seq 16); do (: > /usr/x$i) 2> /dev/null; done";

fn on_host(world: &World, script: &str) -> String {
    world.set_up(script)
}

/// A repository with a secret that git does not track.
fn world(place: Place) -> World {
    prepared(World::new(place))
}

fn prepared(world: World) -> World {
    world.put(".env", "SECRET=1\n");
    on_host(
        &world,
        "git init -q .; git config user.name t; git config user.email t@t.invalid; echo .env > .gitignore
         echo x > f; git add .gitignore f; git commit -qm 1",
    );
    world
}

fn kinds(answer: &Answer) -> Vec<String> {
    let found = answer.result["metadata"]["found"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    found
        .iter()
        .map(|finding| finding["kind"].as_str().unwrap_or_default().to_owned())
        .collect()
}

fn finding<'a>(answer: &'a Answer, kind: &str) -> &'a Value {
    let found = answer.result["metadata"]["found"].as_array();
    let mut found = found.into_iter().flatten();
    found
        .find(|finding| finding["kind"] == kind)
        .unwrap_or_else(|| panic!("{kind}: {}", answer.result))
}

fn targets(finding: &Value) -> Vec<&str> {
    let objects = finding["objects"].as_array().unwrap().iter();
    objects
        .map(|object| object["target"].as_str().unwrap())
        .collect()
}

place_test!(sixteen_refusals_hide_no_finding);
fn sixteen_refusals_hide_no_finding(place: Place) {
    const WANT: [&str; 2] = ["tracked_secret", "prompt_text"];
    let control = world(place);
    assert_eq!(
        kinds(&Session::open(&control).bash(&format!("{TRACK}; {PROMPT}"))),
        WANT
    );
    // A call that succeeds, and one that fails: a model reads the findings first.
    for (end, ok) in [("true", true), ("false", false)] {
        let world = world(place);
        let mut session = Session::open(&world);
        let answer = session.bash(&format!("{REFUSALS}; {TRACK}; {PROMPT}; {end}"));
        assert_eq!(
            (answer.ok(), kinds(&answer)),
            (ok, WANT.map(str::to_owned).into()),
            "{}",
            answer.result
        );
        let read = if ok {
            answer.text()
        } else {
            answer.result["error"]["message"].as_str().unwrap()
        };
        assert!(read.starts_with("[found: tracked secret: .env: "), "{read}");
        let (found, denied) = (read.find("[found: prompt text: "), read.find("[denied: "));
        assert!(
            found.is_some()
                && denied.is_some() != ok
                && denied.is_none_or(|denied| found < Some(denied))
        );
        assert_eq!(
            answer.result["metadata"]["denied"].as_array().map(Vec::len),
            Some(16)
        );
        assert_eq!(
            on_host(&world, "git ls-files .env"),
            ".env\n",
            "it did what it reports"
        );
        assert_eq!(kinds(&session.bash("true")), [""; 0], "once");
    }
    // A person reads them without -v too, and no refusal of a command that succeeded.
    let world = world(place);
    let finished = world.in_cell(&format!("{REFUSALS}; {TRACK}; {PROMPT}"));
    finished.success();
    let errors = finished.errors();
    let lines: Vec<&str> = errors
        .lines()
        .filter(|line| line.starts_with("lazaret: "))
        .collect();
    assert!(
        lines.len() == 2 && lines[0].starts_with("lazaret: found: tracked secret: .env: "),
        "{errors}"
    );
    assert!(
        lines[1].starts_with("lazaret: found: prompt text: "),
        "{errors}"
    );
}

place_test!(sixteen_locks_hide_no_finding);
fn sixteen_locks_hide_no_finding(place: Place) {
    let world = world(place);
    let replace = "git replace $(git rev-parse HEAD:f) $(echo y | git hash-object -w --stdin)";
    let locks = "for i in $(seq 16); do : > .git/$i.lock; done";
    let answer = Session::open(&world).bash(&format!("{TRACK}; {replace}; {locks}"));
    assert_eq!(
        kinds(&answer),
        ["tracked_secret", "replacement", "lock"],
        "{}",
        answer.result
    );
    let locks = finding(&answer, "lock");
    assert_eq!((&locks["count"], targets(locks).len()), (&json!(16), 12));
    assert!(
        answer.text().contains(".lock and 13 more: "),
        "{}",
        answer.text()
    );
    assert_eq!(on_host(&world, "ls .git | grep -c 'lock$'"), "16\n");
}

place_test!(a_commit_graph_is_named_with_the_command_that_removes_it);
fn a_commit_graph_is_named_with_the_command_that_removes_it(place: Place) {
    let world = world(place);
    let mut session = Session::open(&world);
    let answer = session.bash("git commit-graph write --reachable");
    answer.success();
    let advice = finding(&answer, "history")["advice"]
        .as_str()
        .unwrap()
        .to_owned();
    let (command, _) = advice.trim_start_matches('`').split_once('`').unwrap();
    let graph = world.project.join(".git/objects/info/commit-graph");
    assert!(graph.exists());
    on_host(&world, command);
    assert!(!graph.exists(), "{advice}");
    on_host(&world, "git log");
}

place_test!(a_cut_result_of_a_batch_keeps_its_findings);
fn a_cut_result_of_a_batch_keeps_its_findings(place: Place) {
    let world = world(place);
    let command = format!("{TRACK}; head -c 3000000 /dev/zero | tr '\\0' x");
    let call = json!({"tool": "bash", "input": {"command": command}});
    let answer = Session::open(&world).call("batch", json!({"invocations": [call]}));
    assert!(
        answer.text().contains("[found: tracked secret: .env: "),
        "{}",
        answer.result
    );
    assert_eq!(kinds(&answer), ["tracked_secret"]);
}

place_test!(findings_of_a_background_process_come_with_the_next_result);
fn findings_of_a_background_process_come_with_the_next_result(place: Place) {
    let world = world(place);
    let mut session = Session::open(&world);
    let command = format!("sleep 0.3; {TRACK}; : > .git/index.lock; echo done > done");
    let begun = session.call("bash", json!({"command": command, "background": true}));
    assert_eq!((begun.ok(), kinds(&begun)), (true, vec![]));
    assert!(until(LIMIT, || world.project.join("done").exists()));
    // Its end is noticed by the executor, and no call has to be in progress then. The lock is judged only then, the secret before.
    let mut all = Vec::new();
    assert!(until(LIMIT, || {
        let list = session.call("background_list", json!({}));
        let over = !list.result["metadata"]["processes"][0]["state"]
            .to_string()
            .contains("alive");
        all.extend(kinds(&list));
        assert!(
            !over || all == ["tracked_secret", "lock"],
            "{all:?}: {}",
            list.result
        );
        over
    }));
}

place_test!(a_cancelled_call_reports_its_findings);
fn a_cancelled_call_reports_its_findings(place: Place) {
    let world = world(place);
    let mut session = Session::open(&world);
    let id = session.start_call(
        "bash",
        json!({"command": format!("{TRACK}; echo x > done; sleep 100")}),
    );
    assert!(until(LIMIT, || world.project.join("done").exists()));
    session.cancel(&id);
    let answer = session.answer_within(&id, LIMIT);
    assert_eq!(
        (answer.kind(), kinds(&answer)),
        ("cancelled", vec!["tracked_secret".to_owned()])
    );
}

/// A script that makes an object where none may be made, if the rules on new names let it pass (a test build).
const MISPLACE: &str = "echo x > lefthook.yml; echo x > done";

fn is_taken(place: Place, switch: &str, script: &str) -> (bool, Answer) {
    let world = World::ablated(place, switch);
    let mut session = Session::open(&world);
    session
        .call("bash", json!({"command": script, "background": true}))
        .success();
    assert!(until(LIMIT, || world.project.join("done").exists()));
    assert!(until(LIMIT, || {
        let list = session.call("background_list", json!({}));
        list.result["metadata"]["processes"][0]["state"]
            .to_string()
            .contains("code 0")
            || kinds(&list) != [""; 0]
    }));
    let answer = session.bash("true");
    (!world.project.join("lefthook.yml").exists(), answer)
}

place_test!(a_background_process_leaves_nothing_misplaced);
fn a_background_process_leaves_nothing_misplaced(place: Place) {
    assert!(
        !is_taken(place, "new-names+quarantine", MISPLACE).0,
        "the control"
    );
    assert!(is_taken(place, "new-names", MISPLACE).0);
}

/// Misplaces a file by a background process that goes on.
fn misplace_in_background(world: &World, session: &mut Session) {
    let script = format!("{MISPLACE}; sleep 100");
    session
        .call("bash", json!({"command": script, "background": true}))
        .success();
    assert!(until(LIMIT, || world.project.join("done").exists()));
}

place_test!(object_reported_late_is_taken_away);
/// Who takes the machine's time from the session's processes when it ends gains nothing by it. As if it had none for them, the first
/// processes of its cells are stopped for three seconds.
fn object_reported_late_is_taken_away(place: Place) {
    for (switch, stays) in [("new-names+quarantine", true), ("new-names", false)] {
        // More than that takes a machine that has no time for us either.
        let was_late = until(LIMIT, || {
            let world = World::ablated(place, switch);
            let mut session = Session::open(&world);
            misplace_in_background(&world, &mut session);
            let all = process::below(session.pid());
            let cells = all.iter().filter(|process| process.name == "lazaret-cell");
            let cells: Vec<_> = cells.map(|cell| Pid::from_raw(cell.pid)).collect();
            let signal = |signal: Signal| {
                cells.iter().for_each(|cell| {
                    let _ = kill(*cell, signal);
                });
            };
            signal(Signal::SIGSTOP);
            let stopped = Instant::now();
            session.child.kill().unwrap();
            std::thread::sleep(Duration::from_secs(3));
            signal(Signal::SIGCONT);
            let was_late = stopped.elapsed() < Duration::from_secs(6);
            assert_eq!(process::left_after(&all, LIMIT), []);
            let is_there = world.project.join("lefthook.yml").exists();
            assert!(!was_late || is_there == stays, "{switch}");
            was_late
        });
        assert!(was_late);
    }
}

place_test!(object_made_while_the_client_leaves_is_taken_away);
fn object_made_while_the_client_leaves_is_taken_away(place: Place) {
    for (switch, stays) in [("new-names+quarantine", true), ("new-names", false)] {
        let world = World::ablated(place, switch);
        let mut session = Session::open(&world);
        misplace_in_background(&world, &mut session);
        let all = process::below(session.pid());
        session.close(LIMIT);
        // The broker looks when its client has gone.
        assert_eq!(process::left_after(&all, LIMIT), []);
        let is_there = world.project.join("lefthook.yml").exists();
        assert_eq!(is_there, stays, "{switch}");
        // Nobody was there to read it: the next session reports it, once.
        let left = world.central.join(".lazaret/found");
        assert_eq!(left.exists(), !stays, "{switch}");
        for want in [
            if stays {
                vec![]
            } else {
                vec!["quarantined".to_owned()]
            },
            vec![],
        ] {
            let mut session = Session::open(&world);
            assert_eq!(kinds(&session.bash("true")), want, "{switch}");
            session.close(LIMIT);
        }
    }
}

place_test!(a_call_that_succeeded_reports_no_denial);
fn a_call_that_succeeded_reports_no_denial(place: Place) {
    let world = world(place);
    let script = "echo x > .git/hooks/pre-commit; (exec 3<>/dev/tcp/203.0.113.7/443); true";
    let mut session = Session::open(&world);
    let answer = session.bash(&format!("({script}) 2> /dev/null"));
    assert_eq!(
        (answer.ok(), answer.text()),
        (true, ""),
        "{}",
        answer.result
    );
    let denied = answer.result["metadata"]["denied"].to_string();
    assert!(
        denied.contains(".git/hooks/pre-commit") && denied.contains("203.0.113.7:443"),
        "{denied}"
    );
    // The control: of one that failed, both are reported.
    let answer = session.bash(&format!("({script}) 2> /dev/null; false"));
    let message = answer.result["error"]["message"].as_str().unwrap();
    assert!(
        message.contains(".git/hooks/pre-commit") && message.contains("203.0.113.7:443"),
        "{message}"
    );
}

/// A makefile that the user's git takes for unchanged, or a new file that it does not show: each with the kind, and what is named.
const HIDDEN: [(&str, &str, &str); 6] = [
    (
        "git update-index --assume-unchanged Makefile; echo evil > Makefile",
        "hidden_change",
        "Makefile",
    ),
    (
        "git update-index --skip-worktree Makefile; echo evil > Makefile",
        "hidden_change",
        "Makefile",
    ),
    (
        "git update-index --skip-worktree Makefile; rm Makefile",
        "hidden_change",
        "Makefile",
    ),
    (
        "git update-index --index-version 4; git update-index --assume-unchanged Makefile; echo evil > Makefile",
        "hidden_change",
        "Makefile",
    ),
    (
        "echo evil.sh >> .git/info/exclude; echo x > evil.sh",
        "exclude",
        "info/exclude",
    ),
    (
        "echo evil.sh > x; mv x .git/info/exclude; echo x > evil.sh",
        "exclude",
        "info/exclude",
    ),
];

place_test!(changes_hidden_from_git_are_named);
fn changes_hidden_from_git_are_named(place: Place) {
    for (attack, kind, name) in HIDDEN {
        let world = world(place);
        on_host(
            &world,
            "printf 'all:\\n\\techo ok\\n' > Makefile; git add .; git commit -qm 2",
        );
        let mut session = Session::open(&world);
        assert_eq!(kinds(&session.bash("git status -s; git add f")), [""; 0]);
        let answer = session.bash(attack);
        assert_eq!(kinds(&answer), [kind], "{attack}: {}", answer.result);
        assert!(
            targets(finding(&answer, kind))[0].ends_with(name),
            "{}",
            answer.result
        );
        assert_eq!(
            on_host(&world, "git status -s; git diff"),
            "",
            "the control: {attack}"
        );
        assert_eq!(
            kinds(&session.bash("git status -s > /dev/null")),
            [""; 0],
            "once"
        );
    }
    // Many are counted; the first are named.
    let world = world(place);
    on_host(&world, "touch n{10..39}; git add .; git commit -qm 2");
    let answer = Session::open(&world).bash("git update-index --assume-unchanged n*");
    let found = finding(&answer, "hidden_change");
    assert_eq!((&found["count"], targets(found)[0]), (&json!(30), "n10"));
    assert!(
        answer.text().contains("n10, n11, n12 and 27 more: "),
        "{}",
        answer.text()
    );
}

place_test!(names_that_the_user_has_hidden_are_not_named);
fn names_that_the_user_has_hidden_are_not_named(place: Place) {
    let world = world(place);
    on_host(
        &world,
        "touch a b c; git add .; git commit -qm 2; git update-index --assume-unchanged a",
    );
    let mut session = Session::open(&world);
    assert_eq!(
        kinds(&session.bash("echo x > new; git add new; rm a")),
        [""; 0]
    );
    assert_eq!(
        kinds(&session.bash("git update-index --no-assume-unchanged a")),
        [""; 0]
    );
    // The control: one more is the call's.
    let answer = session.bash("git update-index --assume-unchanged b");
    assert_eq!(targets(finding(&answer, "hidden_change")), ["b"]);
}

place_test!(a_sparse_checkout_is_no_finding);
fn a_sparse_checkout_is_no_finding(place: Place) {
    let world = world(place);
    on_host(
        &world,
        "mkdir a b; touch a/f b/f; git add .; git commit -qm 2; git branch other; touch b/g; git add .; git commit -qm 3
         git checkout -q other; git sparse-checkout set --no-cone a",
    );
    let mut session = Session::open(&world);
    let answer = session
        .bash("git checkout -q main 2> /dev/null || git checkout -q master; test ! -e b/g; git ls-files b/g");
    assert_eq!(
        (answer.text(), kinds(&answer)),
        ("b/g\n", vec![]),
        "{}",
        answer.result
    );
    // The control: a name with a file.
    let answer = session.bash("git update-index --skip-worktree a/f; echo evil > a/f");
    assert_eq!(targets(finding(&answer, "hidden_change")), ["a/f"]);
}
