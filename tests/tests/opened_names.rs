//! Protected names that a profile opens: what was named, and nothing else.

use lazaret_tests::approval::asked;
use lazaret_tests::session::Answer;
use lazaret_tests::terminal::Terminal;
use lazaret_tests::{Finished, LIMIT, Place, Session, World, place_test, run};
use serde_json::json;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const CLOSED: [&str; 7] = [
    ".github/workflows/ci.yml",
    ".vscode/settings.json",
    ".vscode/tasks.json",
    ".git/config",
    ".claude/settings.json",
    ".envrc",
    "sub/.github/workflows/ci.yml",
];

fn world(place: Place) -> World {
    let world = World::new(place);
    run(world.host("git").args(["init", "-q", "."]), LIMIT).success();
    for name in CLOSED.iter().filter(|name| !name.starts_with(".git/")) {
        world.put(name, "old\n");
    }
    world.set_policy(
        "version = 1\n[profile.own]\nopen = ['.github/workflows', '.vscode/settings.json']\n",
    );
    world
}

fn lazaret(world: &World, subcommand: &str, options: &[&str]) -> std::process::Command {
    let mut command = world.configured(subcommand);
    command.args(options);
    command
}

fn cell(world: &World, options: &[&str], script: &str) -> Finished {
    run(
        lazaret(world, "run", options).args(["--", "bash", "-c", script]),
        LIMIT,
    )
}

/// Each way to change `name`.
fn changes(name: &str) -> [String; 4] {
    [
        format!("echo new >> {name}"),
        format!("sed -i s/old/new/ {name}"),
        format!("echo new > n && mv -f n {name}"),
        format!("rm -f {name} && echo new > {name}"),
    ]
}

place_test!(a_profile_opens_what_it_names_and_nothing_beside_it);
fn a_profile_opens_what_it_names_and_nothing_beside_it(place: Place) {
    let world = world(place);
    let is_opened = |name: &str| name.contains("workflows") || name == ".vscode/settings.json";
    for name in CLOSED {
        for script in changes(name) {
            let before = world.get(name);
            cell(&world, &[], &script);
            assert_eq!(
                world.get(name),
                before,
                "closed without the profile: {script}"
            );
            let done = cell(&world, &["--profile", "own"], &script);
            assert_eq!(
                world.get(name) != before,
                is_opened(name),
                "{script}: {}",
                done.errors()
            );
            let control = world.on_host(&script);
            assert_eq!(control.code(), 0, "the control of {script}");
            if !name.starts_with(".git/") {
                world.put(name, "old\n");
            }
        }
    }
    cell(
        &world,
        &["--profile", "own"],
        "mkdir .github/workflows/new && echo x > .github/workflows/new/x.yml",
    )
    .success();
    let mut session = Session::start(&mut lazaret(&world, "session", &["--profile", "own"]));
    assert!(
        session.ready["notices"]
            .to_string()
            .contains(".github/workflows"),
        "{}",
        session.ready
    );
    let write =
        json!({"path": ".vscode/settings.json", "content": "by a tool\n", "overwrite": true});
    session
        .call("file_read", json!({"path": ".vscode/settings.json"}))
        .success();
    session.call("file_write", write).success();
    assert_eq!(world.get(".vscode/settings.json"), b"by a tool\n");
}

place_test!(name_that_acts_at_once_is_opened_by_no_profile);
fn name_that_acts_at_once_is_opened_by_no_profile(place: Place) {
    let world = world(place);
    for name in [
        ".git/hooks",
        ".git/config",
        ".env",
        ".claude",
        ".envrc",
        "src",
        ".github/workflows/ci.yml",
        "*",
    ] {
        let text = format!("version = 1\n[profile.own]\nopen = ['{name}']\n");
        world.set_policy(text);
        let refused = cell(&world, &["--profile", "own"], "echo ran");
        assert!(
            refused.code() != 0 && !refused.text().contains("ran"),
            "{name}: {}",
            refused.text()
        );
        assert!(
            refused.errors().contains("open"),
            "{name}: {}",
            refused.errors()
        );
    }
}

/// A command that wants to change files.
fn wanting(script: &str, files: &[&Path]) -> serde_json::Value {
    json!({"id": "w", "tool": "bash", "input": {"command": script}, "wants": {"write": files}})
}

const CI: &str = ".github/workflows/ci.yml";

place_test!(a_lease_opens_one_file_to_its_call_alone);
/// Its content: the name stays closed, and so does everything beside it.
fn a_lease_opens_one_file_to_its_call_alone(place: Place) {
    let world = world(place);
    let ci = world.project.join(CI);
    let mut session = Session::start(&mut lazaret(&world, "session", &["--leases"]));
    assert!(!session.bash(&format!("echo new >> {CI}")).ok());
    assert_eq!(world.get(CI), b"old\n", "the control");
    let beside = "for f in .vscode/settings.json .vscode/tasks.json .git/config .claude/settings.json .envrc sub/.github/workflows/ci.yml
        do echo new >> $f; cp .github/workflows/ci.yml $f; done; echo new > .github/workflows/other.yml; ln .github/workflows/ci.yml other
        mv .github/workflows/ci.yml moved; mv .github/workflows w; mv .github g; rm -f .github/workflows/ci.yml; 
        ln -s ci.yml .github/workflows/l.yml; echo new > n && mv -f n .github/workflows/ci.yml";
    let script = format!(
        "echo one >> {CI} && printf 'two\\n' > {CI} && echo three >> ./.github/../{CI}; {beside}; true"
    );
    session.send(&wanting(&script, &[&ci]));
    let why = asked(&mut session, "w")["why"].to_string();
    assert!(
        why.contains(&format!("change the file {} (", ci.display())),
        "{why}"
    );
    session.send(&json!({"id": "w", "approve": "once"}));
    let answer = session.answer_within("w", LIMIT);
    assert_eq!(world.get(CI), b"two\nthree\n", "{}", answer.result);
    for name in CLOSED
        .iter()
        .filter(|name| **name != CI && **name != ".git/config")
    {
        assert_eq!(world.get(name), b"old\n", "{name}: {}", answer.result);
    }
    let config = String::from_utf8(world.get(".git/config")).unwrap();
    assert!(
        !config.contains("new") && !config.contains("two"),
        "{config}"
    );
    let names = run(
        world.host("bash").args([
            "-c",
            "ls -A . .github .github/workflows; stat -c %a-%h .github/workflows/ci.yml",
        ]),
        LIMIT,
    )
    .text();
    for absent in ["other", "moved", "l.yml", "w\n", "g\n", "-2"] {
        assert!(!names.contains(absent), "{absent}: {names}");
    }
    assert!(
        !session.bash(&format!("echo new >> {CI}")).ok(),
        "a later call"
    );
    assert_eq!(world.get(CI), b"two\nthree\n");
    session.send(&wanting("true", &[&ci]));
    asked(&mut session, "w");
    session.send(&json!({"id": "w", "approve": "session"}));
    session.answer_within("w", LIMIT).success();
    session.bash(&format!("echo four >> {CI}")).success();
    assert!(
        world.get(CI).ends_with(b"four\n"),
        "the rest of the session"
    );
}

place_test!(name_closed_for_a_second_reason_is_not_leased);
fn name_closed_for_a_second_reason_is_not_leased(place: Place) {
    let world = world(place);
    world.put(".husky/_/pre-commit", "old\n");
    world.put("src/main.rs", "old\n");
    world.put("linked/.github/workflows/ci.yml", "old\n");
    let host = "git config core.hooksPath .husky/_; ln linked/.github/workflows/ci.yml second; ln -s ../../src/main.rs .github/workflows/l.yml
        rm .envrc; ln -s .vscode/tasks.json .envrc";
    run(world.host("bash").args(["-ec", host]), LIMIT).success();
    let mut session = Session::start(&mut lazaret(&world, "session", &["--leases"]));
    for (name, want) in [
        (".claude/settings.json", "is protected"),
        (".git/config", "is protected"),
        (".vscode/tasks.json", "more than its name closes it"),
        (".husky/_/pre-commit", "more than its name closes it"),
        (".github/workflows", "it is a directory"),
        (".github/workflows/none.yml", "No such file"),
        (".github/workflows/l.yml", "it is a link"),
        ("linked/.github/workflows/ci.yml", "other names"),
        ("src/main.rs", "overlaps a root"),
        ("sub/../.github/workflows/ci.yml", "cannot be granted"),
    ] {
        session.send(&wanting("true", &[&world.project.join(name)]));
        let answer = session.answer_within("w", LIMIT);
        let said = answer.result.to_string();
        assert!(!answer.ok() && said.contains(want), "{name}: {said}");
    }
    // What was shown is what is opened.
    let ci = world.project.join(CI);
    session.send(&wanting(&format!("echo new >> {CI}"), &[&ci]));
    asked(&mut session, "w");
    world.put("n", "other\n");
    run(world.host("mv").args(["n", CI]), LIMIT).success();
    session.send(&json!({"id": "w", "approve": "once"}));
    assert!(!session.answer_within("w", LIMIT).ok());
    assert_eq!(world.get(CI), b"other\n");
}

place_test!(a_person_at_a_terminal_is_asked_about_a_closed_file);
fn a_person_at_a_terminal_is_asked_about_a_closed_file(place: Place) {
    let world = world(place);
    let ci = world.project.join(CI).display().to_string();
    let question = format!("tried to write to {ci}");
    let start = |name: &str| {
        let script = format!("echo new >> {name} && echo lis''ted");
        let mut command = lazaret(
            &world,
            "run",
            &["--profile", "own2", "--", "bash", "-c", &script],
        );
        Terminal::start(&mut command, 24, 300)
    };
    let settings = world.policy();
    world.write(&settings, "version = 1\n[profile.own2]\n");
    let asked = || {
        let mut terminal = start(CI);
        terminal.expect(&question, LIMIT);
        terminal
    };
    let mut no = asked();
    no.insist("no\n", Terminal::has_ended);
    assert_ne!(no.finish(LIMIT).code(), Some(0), "the control");
    assert_eq!(world.get(CI), b"old\n");
    let mut once = asked();
    once.answer("once\n", "listed");
    assert!(once.finish(LIMIT).success(), "{}", once.screen());
    assert_eq!(world.get(CI), b"old\nnew\n");
    let mut closed = start(".envrc");
    assert_ne!(closed.finish(LIMIT).code(), Some(0));
    assert!(!closed.screen().contains("tried to"), "{}", closed.screen());
    assert_eq!(world.get("sub/.github/workflows/ci.yml"), b"old\n");
}

/// A file tool that changes `path` from `old` to `new`.
fn editing(path: &str, old: &str, new: &str) -> serde_json::Value {
    json!({"id": "e", "tool": "file_edit", "input": {"path": path, "edits": [{"old": old, "new": new}]}})
}

fn writing(path: &str, content: &str) -> serde_json::Value {
    json!({"id": "e", "tool": "file_write", "input": {"path": path, "content": content, "overwrite": true}})
}

fn answered(session: &mut Session, call: &serde_json::Value, say: &str) -> Answer {
    session.send(call);
    asked(session, "e");
    session.send(&json!({"id": "e", "approve": say}));
    session.answer_within("e", LIMIT)
}

/// That a call is refused without a question.
#[track_caller]
fn refused(session: &mut Session, call: &serde_json::Value) -> String {
    session.send(call);
    let answer = session.answer_within("e", LIMIT);
    assert!(!answer.ok(), "{call}: {}", answer.result);
    answer.result.to_string()
}

place_test!(a_file_tool_changes_a_closed_file_by_a_lease);
/// The question names the change; the file stays the same object, and the lease ends as one of a command does.
fn a_file_tool_changes_a_closed_file_by_a_lease(place: Place) {
    let world = world(place);
    let ci = world.project.join(CI);
    let object = || {
        let metadata = ci.symlink_metadata().unwrap();
        (metadata.ino(), metadata.mode(), metadata.nlink())
    };
    let before = object();
    let mut plain = Session::start(&mut lazaret(&world, "session", &[]));
    plain.call("file_read", json!({"path": CI})).success();
    let said = refused(&mut plain, &editing(CI, "old", "new"));
    assert!(said.contains(".github/workflows"), "without leases: {said}");
    let mut session = Session::start(&mut lazaret(&world, "session", &["--leases"]));
    session.call("file_read", json!({"path": CI})).success();
    session.send(&editing(CI, "old", "new"));
    let question = asked(&mut session, "e");
    assert_eq!(question["wants"], json!({"write": [ci]}), "{question}");
    let why = question["why"].as_str().unwrap();
    assert!(
        why.contains(&format!("change the file {} (", ci.display())) && why.contains("file tools"),
        "{why}"
    );
    session.send(&json!({"id": "e", "approve": "no"}));
    assert_eq!(session.answer_within("e", LIMIT).kind(), "denied_user");
    assert_eq!(world.get(CI), b"old\n", "the control");
    let once = answered(
        &mut session,
        &editing(CI, "old", "first and longer"),
        "once",
    );
    assert!(once.ok(), "{}", once.result);
    assert_eq!(world.get(CI), b"first and longer\n");
    answered(&mut session, &editing(CI, "first and longer", "2"), "no");
    assert_eq!(world.get(CI), b"first and longer\n", "a later call");
    answered(&mut session, &writing(CI, "2\n"), "session").success();
    session.send(&editing(CI, "2", "3"));
    session.answer_within("e", LIMIT).success();
    assert_eq!(world.get(CI), b"3\n", "the rest of the session");
    session.bash(&format!("echo 4 >> {CI}")).success();
    session.send(&json!({"id": "g", "grants": true}));
    let listed = session.event("g", LIMIT).unwrap()["grants"].clone();
    assert_eq!(listed[0]["write"], json!(ci), "{listed}");
    session.send(&json!({"id": "r", "revoke": listed[0]["grant"]}));
    assert_eq!(session.event("r", LIMIT).unwrap()["grants"], json!([]));
    session.call("file_read", json!({"path": CI})).success();
    answered(&mut session, &editing(CI, "3", "5"), "no");
    assert_eq!(world.get(CI), b"3\n4\n", "after it was taken back");
    assert_eq!(object(), before, "the same file");
}

place_test!(no_file_tool_gets_another_file_by_a_lease);
fn no_file_tool_gets_another_file_by_a_lease(place: Place) {
    let world = world(place);
    world.put(".env", "TOKEN=s3cr3t\n");
    let host = "ln -s .github g; mkdir linked; echo old > linked/x.yml; ln -s ../../linked/x.yml .github/workflows/l.yml; echo old > linked/ci.yml
        mkdir -p second/.github/workflows; ln linked/ci.yml second/.github/workflows/ci.yml";
    run(world.host("bash").args(["-ec", host]), LIMIT).success();
    let mut session = Session::start(&mut lazaret(&world, "session", &["--leases"]));
    let read = |session: &mut Session, path: &str| {
        session.call("file_read", json!({"path": path})).success();
    };
    read(&mut session, CI);
    answered(&mut session, &writing(CI, "by a lease\n"), "session").success();
    for path in [
        ".envrc",
        ".claude/settings.json",
        ".git/config",
        ".git/hooks/post-commit",
        ".env",
        ".github/workflows/new.yml",
        ".github/workflows/l.yml",
        "g/workflows/ci.yml",
        "second/.github/workflows/ci.yml",
    ] {
        let name = world.project.join(path);
        let before = std::fs::read(&name).ok();
        refused(&mut session, &writing(path, "new\n"));
        assert_eq!(std::fs::read(&name).ok(), before, "{path}");
    }
    // That the name was openable is the control: one beside it is asked about by itself.
    read(&mut session, ".vscode/settings.json");
    answered(
        &mut session,
        &writing(".vscode/settings.json", "new\n"),
        "no",
    );
    assert_eq!(world.get(".vscode/settings.json"), b"old\n");
    let sub = "sub/.github/workflows/ci.yml";
    read(&mut session, sub);
    for change in [
        "mv {} aside; echo other > {}",
        "ln {} second-name",
        "rm {}; ln -s ../../../.envrc {}",
        "rm {}",
    ] {
        world.put(sub, "old\n");
        read(&mut session, sub);
        session.send(&writing(sub, "by a lease\n"));
        asked(&mut session, "e");
        world.on_host(&change.replace("{}", sub)).success();
        let before = std::fs::read(world.project.join(sub)).ok();
        session.send(&json!({"id": "e", "approve": "once"}));
        let answer = session.answer_within("e", LIMIT);
        assert!(!answer.ok(), "{change}: {}", answer.result);
        assert_eq!(
            std::fs::read(world.project.join(sub)).ok(),
            before,
            "{change}"
        );
        assert_eq!(world.get(".envrc"), b"old\n");
        world
            .on_host("rm -f aside second-name sub/.github/workflows/ci.yml")
            .success();
    }
    // A lease for the session is of the object: what takes its place is asked about anew.
    world
        .on_host(&format!("mv {CI} aside; echo other > {CI}"))
        .success();
    read(&mut session, CI);
    answered(&mut session, &writing(CI, "new\n"), "no");
    assert_eq!(world.get(CI), b"other\n");
    assert_eq!(world.get("aside"), b"by a lease\n");
}

place_test!(always_opens_a_name_in_the_users_own_policy);
/// By the answer at a terminal, or by the command that a denial names; what no profile could open is not written.
fn always_opens_a_name_in_the_users_own_policy(place: Place) {
    let world = world(place);
    world.put(".env", "TOKEN=s3cr3t-value\n");
    world.put(".dev.vars", "TOKEN=s3cr3t-value\n");
    let settings = world.policy();
    let before = "version = 1\n[profile.own2]\n";
    world.write(&settings, before);
    let written = || std::fs::read_to_string(&settings).unwrap();
    let add = format!("echo new >> {CI} && echo lis''ted");
    let own = ["--profile", "own2"];
    let options = ["--profile", "own2", "--", "bash", "-c", &add];
    let mut terminal = Terminal::start(&mut lazaret(&world, "run", &options), 24, 300);
    let ci = world.project.join(CI).display().to_string();
    terminal.expect("each file of this name, in every project", LIMIT);
    assert_eq!(world.get(CI), b"old\n", "the control");
    terminal.answer(&format!("always {ci}\n"), "listed");
    assert!(terminal.finish(LIMIT).success(), "{}", terminal.screen());
    let table: toml::Table = written().parse().unwrap();
    assert_eq!(
        json!(table["profile"]["own2"]),
        json!({"open": [".github/workflows"]})
    );
    cell(&world, &own, &format!("echo later >> {CI}")).success();
    assert_eq!(world.get(CI), b"old\nnew\nlater\n");
    let beside = cell(
        &world,
        &["--profile", "own2", "-v"],
        "echo new >> .vscode/settings.json",
    );
    assert!(
        beside.code() != 0
            && beside
                .errors()
                .contains("lazaret policy allow .vscode/settings.json"),
        "{}",
        beside.errors()
    );
    let allow = |path: &str| {
        let mut command = lazaret(&world, "policy", &["allow", path, "--profile", "own2"]);
        run(command.current_dir(&world.project), LIMIT)
    };
    let shows = |name: &str| {
        let done = cell(&world, &own, &format!("cat {name}"));
        done.success().contains("s3cr3t-value")
    };
    assert!(!shows(".env"), "the control");
    assert!(
        allow(".vscode/settings.json")
            .success()
            .contains("in each project")
    );
    assert!(allow(".env").success().contains("with its values"));
    assert!(shows(".env") && !shows(".dev.vars"));
    cell(&world, &own, "echo new >> .vscode/settings.json").success();
    let text = written();
    assert_eq!(text.matches("# Allowed always by").count(), 3, "{text}");
    for path in [".env", ".vscode/settings.json", CI] {
        assert!(allow(path).success().contains("has it already"), "{path}");
    }
    for path in [
        ".envrc",
        ".git/config",
        ".git/hooks/post-commit",
        ".claude/settings.json",
        "./src",
        ".",
    ] {
        let refused = allow(path);
        assert_ne!(refused.code(), 0, "{path}: {}", refused.text());
    }
    assert_eq!(written(), text);
    world.write(
        &settings,
        "version = 1\n[secrets]\n'.env' = 'mask'\n[profile.own2]\n",
    );
    let refused = allow(".env");
    assert!(
        refused.code() != 0 && refused.errors().contains("`[secrets]`"),
        "{}",
        refused.errors()
    );
}
