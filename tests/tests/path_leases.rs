//! Leases of paths: a command reads or writes what of the machine somebody has granted to it, as long as was said, and nothing that is
//! protected there; and what was shown is what is opened.

use broker_protocol::{
    CallId, Challenge, ErrorKind, Extent, FromBroker, GrantFault, Outcome, Request, ToBroker, Wants,
};
use lazaret_tests::approval::{
    Approver, asked, audited, broker_with_leases, dressed, make_runtime, start_wanting,
    verify_audit,
};
use lazaret_tests::process::until;
use lazaret_tests::terminal::Terminal;
use lazaret_tests::wire::{shell, yes};
use lazaret_tests::{Broker, LIMIT, Mount, Place, Session, World, place_test, run};
use nix::fcntl::OFlag;
use serde_json::{Value, json};
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// A world with `data/notes` outside its roots, and a policy with these lines.
fn world(place: Place, lines: &str) -> (World, PathBuf) {
    let world = World::new(place);
    world.set_policy(format!("version = 1\n{lines}\n"));
    make_runtime(&world);
    let data = world.outside.join("data");
    world.write(&data.join("notes"), "NOTES");
    (world, data)
}

fn session(world: &World, options: &[&str]) -> Session {
    Session::start(dressed(world, world.lazaret("session")).args(options))
}

place_test!(a_path_is_granted_to_one_call_and_no_other);
fn a_path_is_granted_to_one_call_and_no_other(place: Place) {
    let (world, data) = world(place, "");
    let notes = data.join("notes");
    let read = format!("cat {}", notes.display());
    let mut session = session(&world, &["--leases"]);
    let before = session.bash(&read);
    assert!(
        !before.text().contains("NOTES"),
        "the control: {}",
        before.text()
    );
    // Not of what lies in /tmp, which is the session's own.
    let denied = session.bash("ls /var/log").result;
    let remedy = denied["metadata"]["denied"][0]["remedy"].to_string();
    assert!(
        remedy.contains("--read /var/log") && remedy.contains("wants"),
        "{denied}"
    );
    let wants = json!({ "read": [data] });
    start_wanting(
        &mut session,
        "a",
        &format!("{read}; touch here; while [ -e here ]; do sleep 0.05; done; {read}"),
        &wants,
    );
    let question = asked(&mut session, "a");
    assert_eq!(
        (&question["rule"], &question["session"]),
        (&json!("lease"), &json!("wants"))
    );
    assert_eq!(question["wants"], wants);
    let why = question["why"].as_str().unwrap();
    assert!(
        why.contains(&format!(
            "read the directory {} with all below it",
            data.display()
        )),
        "{why}"
    );
    session.send(&json!({"id": "a", "approve": "once"}));
    let here = world.project.join("here");
    assert!(until(LIMIT, || here.exists()), "the command was not run");
    let other = session.bash(&read);
    assert!(
        !other.text().contains("NOTES"),
        "another call has it: {}",
        other.text()
    );
    session.send(&json!({"id": "g", "grants": true}));
    let listed = session.event("g", LIMIT).unwrap()["grants"].clone();
    assert_eq!(
        (listed.as_array().unwrap().len(), &listed[0]["read"]),
        (1, &json!(data))
    );
    fs::remove_file(here).unwrap();
    let answer = session.answer_within("a", LIMIT);
    assert_eq!(answer.success().matches("NOTES").count(), 2);
    assert_eq!(
        answer.result["metadata"]["leases"],
        json!([format!("read {}", data.display())])
    );
    assert!(
        !session.bash(&read).text().contains("NOTES"),
        "after its end"
    );
    // A file alone, and it is only read.
    start_wanting(
        &mut session,
        "f",
        &format!(
            "{read}; echo x >> {}; ls {}",
            notes.display(),
            data.display()
        ),
        &json!({"read": [notes]}),
    );
    assert!(
        asked(&mut session, "f")["why"]
            .as_str()
            .unwrap()
            .contains("read the file")
    );
    session.send(&json!({"id": "f", "approve": "once"}));
    assert!(session.answer_within("f", LIMIT).text().contains("NOTES"));
    assert_eq!(fs::read_to_string(&notes).unwrap(), "NOTES");
    assert!(session.close(LIMIT).success());
    let (begun, ended) = (audited(&world, "lease"), audited(&world, "lease_ended"));
    assert_eq!(
        (begun.len(), &begun[0]["read"], &begun[0]["grant"]),
        (2, &json!(data), &json!("once"))
    );
    assert_eq!((ended.len(), &ended[0]["end"]), (2, &json!("call")));
    verify_audit(&world);
}

place_test!(revoked_session_grant_ends_with_its_commands);
fn revoked_session_grant_ends_with_its_commands(place: Place) {
    let (world, data) = world(place, "");
    let read = format!("cat {}/notes", data.display());
    let mut first = session(&world, &["--leases"]);
    start_wanting(&mut first, "a", &read, &json!({ "read": [data] }));
    asked(&mut first, "a");
    first.send(&json!({"id": "a", "approve": {"minutes": 30}}));
    assert!(first.answer_within("a", LIMIT).success().contains("NOTES"));
    assert!(
        first.bash(&read).success().contains("NOTES"),
        "every call has it"
    );
    // What it covers is not asked about again; to write is more.
    start_wanting(
        &mut first,
        "b",
        &read,
        &json!({ "read": [data.join("notes")] }),
    );
    assert!(first.answer_within("b", LIMIT).success().contains("NOTES"));
    start_wanting(&mut first, "c", &read, &json!({ "write": [data] }));
    asked(&mut first, "c");
    first.send(&json!({"id": "c", "approve": "no"}));
    assert_eq!(first.answer_within("c", LIMIT).kind(), "denied_user");
    let mut second = session(&world, &["--leases"]);
    assert!(
        !second.bash(&read).text().contains("NOTES"),
        "it is of its session"
    );
    assert!(second.close(LIMIT).success());
    let id = first.start_call(
        "bash",
        json!({ "command": format!("touch here; {read}; sleep 600"), "timeout": 600 }),
    );
    assert!(until(LIMIT, || world.project.join("here").exists()));
    first.send(&json!({"id": "g", "grants": true}));
    let listed = first.event("g", LIMIT).unwrap()["grants"].clone();
    assert!(listed[0]["endsS"].as_u64().unwrap() <= 1800, "{listed}");
    first.send(&json!({"id": "r", "revoke": listed[0]["grant"]}));
    assert_eq!(first.event("r", LIMIT).unwrap()["grants"], json!([]));
    assert_eq!(
        first.answer_within(&id, LIMIT).kind(),
        "cancelled",
        "its command goes on"
    );
    assert!(!first.bash(&read).text().contains("NOTES"));
    assert!(first.close(LIMIT).success());
    assert_eq!(audited(&world, "lease_ended")[0]["end"], "revoked");
}

place_test!(object_opened_is_the_one_shown);
fn object_opened_is_the_one_shown(place: Place) {
    let (world, data) = world(place, "");
    let (keys, aside) = (world.home.join(".ssh"), world.outside.join("aside"));
    let other = world.outside.join("other");
    world.write(&other.join("notes"), &world.canary);
    world.write(&other.join("id_rsa"), &world.canary);
    let all = format!("cat {}/*; echo ran >> ran", data.display());
    let mut session = session(&world, &["--leases"]);
    let swaps: [(&str, &dyn Fn()); 3] = [
        ("a link to keys", &|| symlink(&keys, &data).unwrap()),
        ("a link to another directory", &|| {
            symlink(&other, &data).unwrap()
        }),
        ("another directory", &|| fs::rename(&other, &data).unwrap()),
    ];
    for (name, swap) in swaps {
        start_wanting(&mut session, "a", &all, &json!({ "read": [data] }));
        asked(&mut session, "a");
        fs::rename(&data, &aside).unwrap();
        swap();
        session.send(&json!({"id": "a", "approve": "session"}));
        let answer = session.answer_within("a", LIMIT);
        assert_eq!(answer.kind(), "denied_policy", "{name}: {}", answer.result);
        assert!(
            answer.text().contains("another file lies there")
                && !answer.text().contains(&world.canary)
        );
        // It has ended, and every other call goes on without.
        assert!(!session.bash(&all).text().contains(&world.canary), "{name}");
        match fs::symlink_metadata(&data).unwrap().is_symlink() {
            true => fs::remove_file(&data).unwrap(),
            false => fs::rename(&data, &other).unwrap(),
        }
        fs::rename(&aside, &data).unwrap();
    }
    fs::remove_file(world.project.join("ran")).unwrap();
    // The control: what was not swapped is opened. Then it is, under a grant that lasts.
    start_wanting(&mut session, "a", &all, &json!({ "read": [data] }));
    asked(&mut session, "a");
    session.send(&json!({"id": "a", "approve": "session"}));
    assert!(
        session
            .answer_within("a", LIMIT)
            .success()
            .contains("NOTES")
    );
    let with = session.bash(&all);
    assert!(with.text().contains("NOTES"));
    assert_eq!(
        with.result["metadata"]["leases"],
        json!([format!("read {}", data.display())])
    );
    let behind = session.call("bash", json!({"command": "true", "background": true}));
    assert_eq!(
        behind.result["metadata"]["leases"],
        Value::Null,
        "none has paths in the background"
    );
    fs::rename(&data, &aside).unwrap();
    fs::rename(&other, &data).unwrap();
    let without = session.bash(&all);
    assert!(!without.text().contains(&world.canary));
    assert_eq!(
        without.result["metadata"]["leases"],
        Value::Null,
        "it had none"
    );
    session.send(&json!({"id": "g", "grants": true}));
    assert_eq!(session.event("g", LIMIT).unwrap()["grants"], json!([]));
    assert!(session.close(LIMIT).success());
    assert!(
        audited(&world, "lease_ended")
            .iter()
            .all(|record| record["end"] == "changed")
    );
}

#[track_caller]
fn ask(broker: &mut Broker, call: CallId, wants: Wants) -> Challenge {
    broker.send(&ToBroker::WantingCall {
        call,
        request: Request::Bash(shell("true")),
        wants,
    });
    broker.challenge(call)
}

place_test!(a_grant_of_a_path_is_for_what_was_asked_about);
/// At the border: what a client can do that is not ours.
fn a_grant_of_a_path_is_for_what_was_asked_about(place: Place) {
    let (world, data) = world(place, "");
    let text = |path: &Path| vec![path.to_str().unwrap().to_owned()];
    let read = |path: &Path| Wants {
        read: text(path),
        ..Wants::default()
    };
    let write = Wants {
        write: text(&data),
        ..Wants::default()
    };
    let both = Wants {
        write: text(&data),
        ..read(&data)
    };
    let mut broker = broker_with_leases(&world, "");
    let narrow = ask(&mut broker, 1, read(&data.join("notes")));
    for (call, wants) in [(2, read(&data)), (3, write), (4, both)] {
        let wide = ask(&mut broker, call, wants);
        assert_ne!(wide.digest, narrow.digest);
        let forged = Challenge {
            nonce: wide.nonce,
            ..narrow.clone()
        };
        assert_eq!(
            broker.refused_grant(yes(call, &forged, Extent::Session)),
            GrantFault::OtherCall
        );
        broker.send(&ToBroker::Refuse { call });
        assert_eq!(
            broker.done(call).outcome.error(),
            Some(ErrorKind::DeniedUser)
        );
    }
    // The same words about another object are another question.
    let before = ask(&mut broker, 5, read(&data));
    broker.send(&ToBroker::Refuse { call: 5 });
    broker.done(5);
    fs::rename(&data, world.outside.join("aside")).unwrap();
    world.write(&data.join("notes"), "OTHER");
    let after = ask(&mut broker, 5, read(&data));
    assert_ne!(before.digest, after.digest);
    // The honest one, and replayed.
    broker.send(&ToBroker::Grant(yes(5, &after, Extent::Once)));
    let FromBroker::Leases(granted) = broker.message() else {
        panic!("no leases")
    };
    assert_eq!((granted.len(), granted[0].call), (1, 5));
    assert!(
        matches!(broker.message(), FromBroker::Leases(none) if none.is_empty()),
        "it ends with its call"
    );
    assert!(matches!(broker.done(5).outcome, Outcome::Ran(_)));
    assert_eq!(
        broker.refused_grant(yes(5, &after, Extent::Session)),
        GrantFault::NotWaiting
    );
    // The bound, and over it.
    for (count, want) in [(16, true), (17, false)] {
        let paths: Vec<_> = (0..count).map(|n| data.join(format!("d{n}"))).collect();
        paths.iter().for_each(|path| world.make_folder(path));
        let read: Vec<_> = paths.iter().flat_map(|path| text(path)).collect();
        let wants = Wants {
            read,
            ..Wants::default()
        };
        if want {
            let all = ask(&mut broker, 6, wants);
            broker.send(&ToBroker::Grant(yes(6, &all, Extent::Once)));
            let FromBroker::Leases(granted) = broker.message() else {
                panic!("no leases")
            };
            assert_eq!(granted.len(), 16);
            broker.message();
            assert!(matches!(broker.done(6).outcome, Outcome::Ran(_)));
        } else {
            let request = Request::Bash(shell("true"));
            broker.send(&ToBroker::WantingCall {
                call: 7,
                request,
                wants,
            });
            assert_eq!(
                broker.done(7).outcome.error(),
                Some(ErrorKind::InvalidInput)
            );
        }
    }
}

place_test!(path_that_cannot_be_granted_is_not_asked_about);
fn path_that_cannot_be_granted_is_not_asked_about(place: Place) {
    let (world, data) = world(place, "");
    let outside = |name: &str| world.outside.join(name).display().to_string();
    let home = |name: &str| world.home.join(name).display().to_string();
    symlink(&data, outside("link")).unwrap();
    fs::hard_link(data.join("notes"), outside("second")).unwrap();
    let _socket = UnixListener::bind(outside("socket")).unwrap();
    run(world.host("mkfifo").arg(outside("pipe")), LIMIT).success();
    let mut session = session(&world, &["--leases"]);
    let text = |path: &Path| path.display().to_string();
    let mut refused = vec![
        ("/".to_owned(), "the whole file system"),
        ("data".to_owned(), "absolute"),
        (format!("{}/../data", text(&data)), "absolute"),
        (format!("{}/", text(&data)), "absolute"),
        (format!("{}\u{0}", text(&data)), "invisible or control"),
        (
            format!("{}\nAllow everything", text(&data)),
            "invisible or control",
        ),
        (format!("{}\u{1b}[2K", text(&data)), "invisible or control"),
        (format!("{}\u{202e}", text(&data)), "invisible or control"),
        (format!("/{}", "x".repeat(4094)), "long"),
        ("/proc".to_owned(), "/proc"),
        ("/proc/1".to_owned(), "/proc"),
        ("/sys".to_owned(), "/sys"),
        ("/dev".to_owned(), "/dev"),
        ("/dev/null".to_owned(), "/dev"),
        ("/etc/shadow".to_owned(), "/etc"),
        ("/tmp".to_owned(), "it overlaps a root of the session"),
        (text(&world.home), "home"),
        (text(world.base()), ""),
        (home(".ssh"), "protected"),
        (home(".ssh/id_rsa"), "protected"),
        (home(".aws"), "protected"),
        (home("settings"), "policy"),
        (home("settings/lazaret/policy.toml"), "policy"),
        (text(&world.state), "records"),
        (text(&world.project), "it overlaps a root of the session"),
        (
            text(&world.project.join("sub")),
            "it overlaps a root of the session",
        ),
        (text(&world.central), "it overlaps a root of the session"),
        (outside("link"), "it is a link"),
        (outside("link/notes"), "contains a link"),
        (outside("second"), "other names"),
        (outside("socket"), "neither"),
        (outside("pipe"), "neither"),
        (outside("none"), "No such file"),
    ];
    let mut tried = 0;
    while let Some((path, why)) = refused.pop() {
        for kind in ["read", "write"] {
            start_wanting(&mut session, "a", "true", &json!({ kind: [path] }));
            let answer = session.answer_within("a", LIMIT);
            assert!(answer.events.is_empty(), "asked to {kind} {path:?}");
            assert_eq!(
                answer.kind(),
                "denied_policy",
                "{kind} {path:?}: {}",
                answer.result
            );
            assert!(
                kind == "write" || answer.text().contains(why),
                "{path:?}: {}",
                answer.text()
            );
            assert!(
                !answer.text().contains(['\u{1b}', '\u{202e}']),
                "{}",
                answer.text()
            );
            tried += 1;
        }
    }
    // Longer than any path is no line; nor does a file tool want one, or what runs in the background.
    session.send(&json!({"id": "l", "tool": "bash", "input": {"command": "true"}, "wants": {"read": [format!("/{}", "x".repeat(4095))]}}));
    assert!(
        session
            .event("l", LIMIT)
            .unwrap()
            .to_string()
            .contains("4095")
    );
    for line in [
        json!({"id": "a", "tool": "file_list", "input": {}, "wants": {"read": [data]}}),
        json!({"id": "a", "tool": "bash", "input": {"command": "true", "background": true}, "wants": {"read": [data]}}),
    ] {
        session.send(&line);
        assert_eq!(session.answer_within("a", LIMIT).kind(), "denied_policy");
    }
    assert!(session.close(LIMIT).success());
    // Nobody is asked where nobody answers, nor where a scope says which directories commands have.
    world.put(
        "scope.yaml",
        "tool_permissions:\n  bash: { allowed: true, paths: [\"src/**\"] }\n",
    );
    world.make_folder(&world.project.join("src"));
    let scope = world.project.join("scope.yaml");
    for options in [&[][..], &["--leases", "--scope", scope.to_str().unwrap()]] {
        let mut other = self::session(&world, options);
        start_wanting(&mut other, "a", "true", &json!({ "read": [data] }));
        let answer = other.answer_within("a", LIMIT);
        assert_eq!(answer.kind(), "denied_policy", "{}", answer.result);
        assert!(answer.events.is_empty());
        assert!(other.close(LIMIT).success());
    }
    assert!(audited(&world, "lease").is_empty());
    println!("{place:?}: {tried} of {tried} wants refused without a question");
}

place_test!(keys_in_what_is_granted_stay_closed);
/// Attacks in a directory that is granted, and what each gets there without Lazaret.
fn keys_in_what_is_granted_stay_closed(place: Place) {
    let (world, data) = world(place, "");
    let keys = [
        ".env",
        "deep/.ssh/id_rsa",
        "deep/.ssh/config",
        ".aws/config",
        ".config/gcloud/token",
        ".bash_history",
        "id_ed25519",
    ];
    keys.iter()
        .for_each(|name| world.write(&data.join(name), &world.canary));
    fs::hard_link(data.join("id_ed25519"), data.join("innocent")).unwrap();
    symlink(".env", data.join("link")).unwrap();
    let names = keys.iter().chain(&["innocent", "link"]);
    let attack = names
        .map(|name| format!("cat {}/{name} 2>/dev/null", data.display()))
        .collect::<Vec<_>>()
        .join("; ");
    let attack = format!(
        "{attack}; cat {}/notes; grep -rs CANARY {}; true",
        data.display(),
        data.display()
    );
    let control = world.on_host(&attack);
    assert!(
        control.text().matches(&world.canary).count() >= 8,
        "the control: {}",
        control.text()
    );
    let mut session = session(&world, &["--leases"]);
    for wants in [json!({"read": [data]}), json!({"write": [data]})] {
        start_wanting(&mut session, "a", &attack, &wants);
        asked(&mut session, "a");
        session.send(&json!({"id": "a", "approve": "once"}));
        let answer = session.answer_within("a", LIMIT);
        assert!(
            answer.text().contains("NOTES") && !answer.text().contains(&world.canary),
            "{}",
            answer.text()
        );
    }
    assert!(session.close(LIMIT).success());
}

place_test!(a_directory_is_written_in_but_for_what_the_host_acts_on);
fn a_directory_is_written_in_but_for_what_the_host_acts_on(place: Place) {
    let (world, data) = world(place, "");
    let at = data.display().to_string();
    run(
        world.host("git").args(["init", "-q", &format!("{at}/app")]),
        LIMIT,
    )
    .success();
    world.write(&data.join("app/.git/hooks/post-checkout"), "before");
    world.write(&data.join(".claude/settings.json"), "before");
    run(
        world
            .host("git")
            .args(["init", "-q", "--bare", &format!("{at}/store")]),
        LIMIT,
    )
    .success();
    // Each name that the host acts on, and what tries to make or change it.
    let attacks = [
        "echo x > app/.git/hooks/pre-commit",
        "echo x > app/.git/hooks/post-checkout",
        "echo x >> app/.git/config",
        "mv app/.git app/g && mkdir -p app/.git/hooks && echo x > app/.git/hooks/pre-commit",
        "mv app app2 && echo x > app2/.git/hooks/pre-commit",
        "echo x > store/hooks/pre-receive",
        "mkdir -p new/.vscode && echo x > new/.vscode/settings.json",
        "mkdir -p .husky && echo x > .husky/pre-commit",
        "echo x > .claude/settings.json",
        "rm -rf .claude; mkdir -p .claude && echo x > .claude/settings.json",
        "echo x > plain && ln plain .claude/settings.local.json",
        "ln -s plain .bashrc",
        "git init -q fresh && echo x > fresh/.git/hooks/pre-commit",
        "echo x > .xprofile",
        "mkdir -p .local/bin; echo x > .local/bin/ls",
        "mkdir -p made/nvim && echo x > made/nvim/init.lua; mv made .config",
    ];
    let script =
        |attack: &str, at: &Path| format!("cd {}; ({attack}) 2>/dev/null; true", at.display());
    let planted = |root: &Path| -> Vec<String> {
        let found = "find . -path './*hooks/*' -newer mark -o -name settings.json -newer mark -o -name settings.local.json -o -name .bashrc \
                     -o -path '*/.husky/*' -o -path '*/.git/config' -newer mark -path './app*' -o -name .xprofile -o -path '*/.local/bin/*' -o -path '*/.config/nvim/*' | sort";
        let found = run(
            world.host("bash").args(["-c", found]).current_dir(root),
            LIMIT,
        );
        found
            .text()
            .lines()
            .filter(|line| !line.ends_with(".sample"))
            .map(str::to_owned)
            .collect()
    };
    run(world.host("bash").args(["-c", "touch -d '1 minute ago' x; find . -exec touch -d '1 hour ago' {} +; touch -d '1 minute ago' mark"]).current_dir(&data), LIMIT)
        .success();
    let before = world.outside.join("before");
    run(world.host("cp").arg("-a").args([&data, &before]), LIMIT).success();
    let mut session = session(&world, &["--leases"]);
    start_wanting(
        &mut session,
        "a",
        &format!(
            "cd {at} && echo NEW > made && mkdir -p d/e && mv made d/e/ && cat notes && rm notes && chmod 600 d/e/made"
        ),
        &json!({"write": [data]}),
    );
    asked(&mut session, "a");
    session.send(&json!({"id": "a", "approve": "session"}));
    assert!(
        session
            .answer_within("a", LIMIT)
            .success()
            .contains("NOTES")
    );
    assert_eq!(
        fs::read_to_string(data.join("d/e/made")).unwrap(),
        "NEW\n",
        "ordinary work goes on"
    );
    for attack in attacks {
        session.bash(&script(attack, &data));
        assert_eq!(planted(&data), [""; 0], "{attack}");
    }
    // What it holds of others, by another way: names outside, and devices.
    let out = format!(
        "echo x > {at}/../beside; ln {at}/d/e/made {}/linked; mkfifo {at}/../p; true",
        world.project.display()
    );
    session.bash(&out);
    assert!(!world.outside.join("beside").exists() && !world.outside.join("p").exists());
    assert!(
        !world.project.join("linked").exists(),
        "no file of a lease gets a name in a zone"
    );
    assert!(session.close(LIMIT).success());
    for (number, attack) in attacks.iter().enumerate() {
        let copy = world.outside.join(format!("copy-{number}"));
        run(world.host("cp").arg("-a").args([&before, &copy]), LIMIT).success();
        world.on_host(&script(attack, &copy));
        assert_ne!(
            planted(&copy),
            [""; 0],
            "the control: {attack} plants nothing without"
        );
    }
    println!(
        "{place:?}: {} attacks held, each of which works without",
        attacks.len()
    );
}

place_test!(policies_bound_which_paths_may_be_granted);
fn policies_bound_which_paths_may_be_granted(place: Place) {
    let (bounded, data) = world(place, "");
    let own = bounded.policy();
    let lines = format!(
        "version = 1\n[leases]\nread = ['{}']\nwrite = []\n",
        data.display()
    );
    bounded.write(&own, lines);
    let mut session = session(&bounded, &["--leases"]);
    for (wants, want) in [
        (json!({"read": [data.join("notes")]}), true),
        (json!({"read": [bounded.outside]}), false),
        (json!({"write": [data]}), false),
    ] {
        start_wanting(&mut session, "a", "true", &wants);
        if want {
            asked(&mut session, "a");
            session.send(&json!({"id": "a", "approve": "once"}));
            session.answer_within("a", LIMIT).success();
        } else {
            let answer = session.answer_within("a", LIMIT);
            assert_eq!(answer.kind(), "denied_policy", "{}", answer.result);
            assert!(answer.text().contains("[leases]"), "{}", answer.text());
        }
    }
    assert!(session.close(LIMIT).success());
}

place_test!(paths_given_at_the_start_are_granted);
fn paths_given_at_the_start_are_granted(place: Place) {
    let (world, data) = world(place, "");
    let read = format!("cat {}/notes", data.display());
    let lazaret = |options: &[&str], script: &str| {
        let mut command = dressed(&world, world.lazaret("run"));
        run(
            command.args(options).args(["--", "bash", "-c", script]),
            LIMIT,
        )
    };
    let path = data.to_str().unwrap();
    assert!(!lazaret(&[], &read).text().contains("NOTES"), "the control");
    assert_eq!(lazaret(&["--read", path], &read).success().trim(), "NOTES");
    assert_ne!(
        lazaret(&["--read", path], &format!("echo x > {path}/x")).code(),
        0
    );
    assert_eq!(
        lazaret(&["--write", path], &format!("echo x > {path}/x")).code(),
        0
    );
    assert_eq!(fs::read_to_string(data.join("x")).unwrap(), "x\n");
    // Behind a link is what cells have under another name: that one is named.
    let link = world.outside.join("link");
    symlink(&data, &link).unwrap();
    for (option, end, target) in [
        ("--read", "", ""),
        ("--read", "/", ""),
        ("--write", "", ""),
        ("--read", "/notes", "/notes"),
    ] {
        let refused = lazaret(&[option, &format!("{}{end}", link.display())], "true");
        let told = format!("name {path}{target} instead");
        assert!(
            refused.code() == 125 && refused.errors().contains(&told),
            "{}",
            refused.errors()
        );
    }
    // A missing path is reported by its whole name.
    let nothing = data.parent().unwrap().join("nothing-there");
    for option in ["--read", "--write"] {
        let refused = lazaret(&[option, &format!("{path}/../nothing-there")], "true");
        let errors = refused.errors();
        assert!(
            refused.code() == 125
                && errors.contains(&nothing.display().to_string())
                && !errors.contains("must be absolute"),
            "{errors}"
        );
    }
    // A closed path stays closed here too.
    let keys = world.home.join(".ssh");
    let refused = lazaret(&["--read", keys.to_str().unwrap()], "true");
    assert!(
        refused.code() != 0 && refused.errors().contains("protected"),
        "{}",
        refused.errors()
    );
    let mut named = session(&world, &["--read", path]);
    assert!(
        named.bash(&read).success().contains("NOTES")
            && named.bash(&read).success().contains("NOTES")
    );
    assert!(named.close(LIMIT).success());
    // A command that fails for another reason was not denied what it has.
    let denied = |options: &[&str]| {
        let mut session = session(&world, options);
        let result = session.bash("ls /var/log; false").result;
        assert!(session.close(LIMIT).success());
        result["metadata"]["denied"].clone()
    };
    assert_eq!(denied(&[])[0]["what"]["target"], "/var/log", "the control");
    assert_eq!(denied(&["--read", "/var/log"]), Value::Null);
}

place_test!(a_person_at_a_terminal_is_asked_about_a_path_and_the_command_runs_again);
/// `/var/log` is in no profile; what lies in /tmp, as a world does, is the session's own to a command.
fn a_person_at_a_terminal_is_asked_about_a_path_and_the_command_runs_again(place: Place) {
    let (world, _) = world(place, "[profile.mine]");
    let file = world.policy();
    let before = fs::read_to_string(&file).unwrap();
    let start = |script: &str| {
        let mut command = dressed(&world, world.lazaret("run"));
        command.args(["--profile", "mine", "--", "bash", "-c", script]);
        Terminal::start(&mut command, 24, 300)
    };
    let script = "echo run; ls /var/log >/dev/null && echo lis''ted";
    let question = "tried to read /var/log";
    let asked = || {
        let mut terminal = start(script);
        terminal.expect(question, LIMIT);
        terminal
    };
    let mut no = asked();
    no.insist("no\n", Terminal::has_ended);
    assert_ne!(no.finish(LIMIT).code(), Some(0), "the control");
    assert!(
        !no.screen().contains("listed") && no.screen().matches("run\r\n").count() == 1,
        "{}",
        no.screen()
    );
    let mut once = asked();
    once.answer("once\n", "listed");
    assert!(once.finish(LIMIT).success(), "{}", once.screen());
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    // Keys are not asked about, nor is what is protected in the project.
    world.put(".env", "x");
    for closed in [
        format!("cat {}/.ssh/id_rsa", world.home.display()),
        "cat .env".to_owned(),
        "cat /etc/shadow".to_owned(),
    ] {
        let mut terminal = start(&closed);
        assert_ne!(terminal.finish(LIMIT).code(), Some(0), "{closed}");
        assert!(
            !terminal.screen().contains("tried to"),
            "{closed}: {}",
            terminal.screen()
        );
    }
    let mut always = asked();
    always.answer("always /var/log\n", "is open to the profile mine");
    always.expect("listed", LIMIT);
    assert!(always.finish(LIMIT).success(), "{}", always.screen());
    let after = fs::read_to_string(&file).unwrap();
    assert!(
        after.contains("read = [")
            && after.contains("\"/var/log\",")
            && after.contains("# Allowed always by `lazaret run`"),
        "{after}"
    );
    let backups = fs::read_dir(file.parent().unwrap())
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    assert_eq!(
        backups
            .filter(|path| *path != file)
            .map(|path| fs::read_to_string(path).unwrap())
            .collect::<Vec<_>>(),
        [before]
    );
    let mut again = start(script);
    again.expect("listed", LIMIT);
    assert!(again.finish(LIMIT).success() && !again.screen().contains(question));
    let allow = |path: &str| {
        let mut command = dressed(&world, world.lazaret("policy"));
        run(command.args(["allow", path, "--profile", "mine"]), LIMIT)
    };
    for closed in [
        world.home.join(".ssh").to_str().unwrap(),
        "/etc/shadow",
        "/var/../etc",
        "/",
    ] {
        assert_ne!(allow(closed).code(), 0, "{closed}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), after);
}

place_test!(always_works_for_a_shipped_profile);
fn always_works_for_a_shipped_profile(place: Place) {
    let world = World::new(place);
    let script = "ls /var/log >/dev/null && echo lis''ted";
    let start = || {
        let mut command = dressed(&world, world.lazaret("run"));
        Terminal::start(command.args(["--", "bash", "-c", script]), 24, 300)
    };
    let mut always = start();
    always.expect("tried to read /var/log", LIMIT);
    always.answer("always /var/log\n", "is open to the profile my-default");
    always.expect("listed", LIMIT);
    assert!(always.finish(LIMIT).success(), "{}", always.screen());
    let mut again = start();
    again.expect("listed", LIMIT);
    assert!(
        again.finish(LIMIT).success() && !again.screen().contains("tried"),
        "{}",
        again.screen()
    );
}

place_test!(the_question_is_seen_whatever_the_command_left_on_the_terminal);
fn the_question_is_seen_whatever_the_command_left_on_the_terminal(place: Place) {
    let world = World::new(place);
    // In one row at the top, with line drawing, on the other screen, or within a string that nothing ends.
    for left in [
        "\\033[3;3r\\033[3;70H",
        "\\033(0",
        "\\033[?1049h\\033[?7l\\033[3;999H",
        "\\033]0;x",
    ] {
        let script =
            format!("ls /var/log >&-; printf '\\033[2J\\033[HRun it (a)gain?{left}'; exit 1");
        let mut command = dressed(&world, world.lazaret("run"));
        let mut terminal = Terminal::start(command.args(["--", "bash", "-c", &script]), 24, 80);
        terminal.expect("N]?", LIMIT);
        let rows = terminal.rows(24, 80);
        let seen = rows.concat();
        for part in [
            "tried to read /var/log",
            "this session / always / no [o/s/always /var/log/N]?",
        ] {
            assert!(seen.contains(part), "{left}: {rows:#?}");
        }
        assert!(
            terminal.screen().contains("\x1b[?7h"),
            "{left}: {:?}",
            terminal.screen()
        );
        terminal.insist("\n", Terminal::has_ended);
        assert_eq!(terminal.finish(LIMIT).code(), Some(1));
    }
    // Output that is not a command's terminal stays as it is.
    let mut command = dressed(&world, world.lazaret("run"));
    let done = run(
        command.args(["--", "bash", "-c", "ls /var/log; exit 1"]),
        LIMIT,
    );
    assert!(
        done.code() == 1 && !done.errors().contains('\x1b'),
        "{}",
        done.errors()
    );
}

place_test!(a_finding_is_seen_whatever_the_command_left_on_the_terminal);
fn a_finding_is_seen_whatever_the_command_left_on_the_terminal(place: Place) {
    let world = World::new(place);
    world.set_up("git init -q .");
    // Without the wrapping of lines, all that follows would be printed in the last column.
    let script = ": > .git/HEAD.lock; printf 'all passed\\n\\033[?7l\\033[24;999H'";
    let mut command = world.lazaret("run");
    let mut terminal = Terminal::start(command.args(["--", "bash", "-c", script]), 24, 80);
    terminal.expect("yours is running]", LIMIT);
    let screen = terminal.screen();
    let (before, _) = screen.split_once("found: lock:").unwrap();
    let (_, after) = before.split_once("\x1b[?7l").unwrap();
    assert!(after.contains("\x1b[?7h"), "{screen:?}");
}

place_test!(a_link_of_a_command_is_no_place_for_a_lease);
/// Where a lease is mounted, commands may have written before: their private `/tmp` has the directories above it.
fn a_link_of_a_command_is_no_place_for_a_lease(place: Place) {
    let (world, data) = world(place, "");
    world.make_folder(&world.project.join("trap/data"));
    let mut session = session(&world, &["--leases"]);
    let (outside, trap) = (world.outside.display(), world.project.join("trap"));
    session.bash(&format!(
        "rm -rf {outside}; ln -s {} {outside}; ls -ld {outside}",
        trap.display()
    ));
    let wants = json!({ "write": [data] });
    start_wanting(
        &mut session,
        "a",
        &format!("echo x > {}/made; true", data.display()),
        &wants,
    );
    asked(&mut session, "a");
    session.send(&json!({"id": "a", "approve": "once"}));
    let answer = session.answer_within("a", LIMIT);
    // Either there is no cell, or the lease lies where it should.
    assert!(
        answer.kind() == "internal" || data.join("made").exists(),
        "{}",
        answer.result
    );
    assert!(!trap.join("data/made").exists(), "{}", answer.result);
    assert_eq!(
        session.bash("echo on").success().trim(),
        "on",
        "the session goes on"
    );
    assert!(session.close(LIMIT).success());
}

place_test!(no_socket_in_what_is_granted_is_reached);
fn no_socket_in_what_is_granted_is_reached(place: Place) {
    let (world, data) = world(place, "");
    let socket = data.join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let connect = format!(
        "curl -sS -m 2 --unix-socket {} http://x/; true",
        socket.display()
    );
    world.on_host(&connect);
    assert!(listener.accept().is_ok(), "the control");
    let mut session = session(&world, &["--leases"]);
    for wants in [json!({"read": [data]}), json!({"write": [data]})] {
        start_wanting(&mut session, "a", &connect, &wants);
        asked(&mut session, "a");
        session.send(&json!({"id": "a", "approve": "once"}));
        session.answer_within("a", LIMIT);
        assert!(listener.accept().is_err(), "{wants}");
    }
    assert!(session.close(LIMIT).success());
}

place_test!(no_pipe_in_what_is_granted_to_be_read_takes_anything);
fn no_pipe_in_what_is_granted_to_be_read_takes_anything(place: Place) {
    let (world, data) = world(place, "");
    let pipe = data.join("pipe");
    run(world.host("mkfifo").arg(&pipe), LIMIT).success();
    // What reads it on the host, so that nobody waits who opens it.
    let flags = OFlag::O_NONBLOCK.bits();
    let mut reader = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(&pipe)
        .unwrap();
    let write = format!(
        "echo x > {0}; echo x 1<>{0}; echo x | tee -a {0}; exec 3<{0} && echo x > /proc/self/fd/3; true",
        pipe.display()
    );
    world.on_host(&write);
    let mut taken = [0; 64];
    assert_eq!(reader.read(&mut taken).unwrap(), 8, "the control");
    let mut session = session(&world, &["--leases"]);
    start_wanting(&mut session, "a", &write, &json!({ "read": [data] }));
    asked(&mut session, "a");
    session.send(&json!({"id": "a", "approve": "once"}));
    let answer = session.answer_within("a", LIMIT);
    let read = reader.read(&mut taken).map_err(|error| error.kind());
    assert_eq!(read, Err(io::ErrorKind::WouldBlock), "{}", answer.result);
    assert!(session.close(LIMIT).success());
}

place_test!(a_grant_within_another_uncovers_nothing);
/// A path that the outer grant closes because of a link is nothing special to the inner one.
fn a_grant_within_another_uncovers_nothing(place: Place) {
    let (world, data) = world(place, "");
    world.write(&data.join("sub/plain"), &world.canary);
    symlink("sub/plain", data.join(".env")).unwrap();
    let (sub, read) = (
        data.join("sub"),
        format!("cat {}/sub/plain", data.display()),
    );
    let grant = |session: &mut Session, wants: Value| {
        start_wanting(session, "a", &read, &wants);
        asked(session, "a");
        session.send(&json!({"id": "a", "approve": "session"}));
        session
            .answer_within("a", LIMIT)
            .text()
            .contains(&world.canary)
    };
    for (first, second) in [
        (json!({"read": [data]}), json!({"write": [sub]})),
        (json!({"write": [sub]}), json!({"read": [data]})),
        (
            json!({"read": [data], "write": [sub]}),
            json!({"read": [sub], "write": [data]}),
        ),
    ] {
        let mut session = session(&world, &["--leases"]);
        if first.as_object().unwrap().len() == 1 {
            assert_eq!(
                grant(&mut session, first.clone()),
                first["write"].is_array(),
                "the control: {first}"
            );
            start_wanting(&mut session, "b", &read, &second);
        } else {
            start_wanting(&mut session, "b", &read, &first);
        }
        let answer = session.answer_within("b", LIMIT);
        assert!(
            answer.events.is_empty() && answer.kind() == "denied_policy",
            "{first}: {}",
            answer.result
        );
        assert!(
            answer.text().contains("granted with other access"),
            "{}",
            answer.text()
        );
        assert!(session.close(LIMIT).success());
    }
    // One that covers the other takes its place, whichever comes first.
    let mut session = session(&world, &["--leases"]);
    assert!(grant(&mut session, json!({"read": [sub]})), "the control");
    assert!(
        !grant(&mut session, json!({"read": [data]}))
            && !session.bash(&read).text().contains(&world.canary)
    );
    let write = format!("{read}; echo x > {}/made", data.display());
    assert!(!grant(
        &mut session,
        json!({"write": [data], "read": [sub.join("plain"), data]})
    ));
    assert!(!session.bash(&write).text().contains(&world.canary) && data.join("made").exists());
    assert!(session.close(LIMIT).success());
}

place_test!(no_descriptor_of_what_is_granted_to_one_call_reaches_another);
/// By the sockets that the commands of a session have together.
fn no_descriptor_of_what_is_granted_to_one_call_reaches_another(place: Place) {
    let (world, data) = world(place, "");
    world.put("plain", "PLAIN");
    let serve = "import os, socket, sys; s = socket.socket(socket.AF_UNIX); s.bind('s'); s.listen(); s.settimeout(0.05)
while not os.path.exists('stop'):
    try: socket.send_fds(s.accept()[0], [b'x'], [os.open(sys.argv[1], os.O_RDONLY)])
    except TimeoutError: pass";
    let fetch = "import os, socket; s = socket.socket(socket.AF_UNIX); s.connect('s')
print(os.read(socket.recv_fds(s, 1, 1)[1][0], 9))";
    let (serve, fetch) = (world.put("serve.py", serve), world.put("fetch.py", fetch));
    let fetch = format!("python3 {}", fetch.display());
    let (socket, stop) = (world.project.join("s"), world.project.join("stop"));
    let mut session = session(&world, &["--leases"]);
    for (file, wants, extent) in [
        (world.project.join("plain"), json!({}), None),
        (data.join("notes"), json!({"read": [data]}), Some("session")),
        (
            data.join("notes"),
            json!({"read": [data.join("notes")]}),
            None,
        ),
        (data.join("notes"), json!({"read": [data]}), Some("once")),
    ] {
        start_wanting(
            &mut session,
            "a",
            &format!("python3 {} {}", serve.display(), file.display()),
            &wants,
        );
        if let Some(extent) = extent {
            asked(&mut session, "a");
            session.send(&json!({"id": "a", "approve": extent}));
        }
        assert!(until(LIMIT, || socket.exists()), "nothing listens");
        let fetched = session.bash(&fetch);
        // The controls: what is of the session passes.
        assert_eq!(
            fetched.text().contains("b'"),
            extent != Some("once"),
            "{wants}: {}",
            fetched.text()
        );
        fs::write(&stop, "").unwrap();
        session.answer_within("a", LIMIT).success();
        [&stop, &socket]
            .iter()
            .for_each(|path| fs::remove_file(path).unwrap());
        if wants == json!({"read": [data.join("notes")]}) {
            session.send(&json!({"id": "g", "grants": true}));
            let listed = session.event("g", LIMIT).unwrap()["grants"].clone();
            session.send(&json!({"id": "r", "revoke": listed[0]["grant"]}));
            session.event("r", LIMIT).unwrap();
        }
    }
    assert!(session.close(LIMIT).success());
}

place_test!(grants_in_force_are_counted_and_compared_at_each_grant);
/// Requests that waited for answers together are granted one after the other.
fn grants_in_force_are_counted_and_compared_at_each_grant(place: Place) {
    let (world, data) = world(place, "");
    let paths: Vec<_> = (0..18).map(|n| data.join(format!("d{n}"))).collect();
    paths
        .iter()
        .for_each(|path| world.make_folder(&path.join("in")));
    let text = |paths: &[PathBuf]| {
        paths
            .iter()
            .map(|path| path.to_str().unwrap().to_owned())
            .collect()
    };
    let read = |paths| Wants {
        read: text(paths),
        ..Wants::default()
    };
    let mut broker = broker_with_leases(&world, "");
    let inner = Wants {
        write: text(&[paths[0].join("in")]),
        ..Wants::default()
    };
    let wanted = [
        read(&paths[..8]),
        read(&paths[8..16]),
        read(&paths[16..17]),
        inner,
    ];
    let asked: Vec<_> = (1..)
        .zip(wanted)
        .map(|(call, wants)| (call, ask(&mut broker, call, wants)))
        .collect();
    for (call, challenge) in &asked[..2] {
        broker.send(&ToBroker::Grant(yes(*call, challenge, Extent::Session)));
        let FromBroker::Leases(granted) = broker.message() else {
            panic!("no leases")
        };
        assert_eq!(granted.len(), 8 * usize::try_from(*call).unwrap());
        assert!(matches!(broker.done(*call).outcome, Outcome::Ran(_)));
    }
    for ((call, challenge), why) in asked[2..].iter().zip(["at most 16", "at most 16"]) {
        broker.send(&ToBroker::Grant(yes(*call, challenge, Extent::Session)));
        let outcome = broker.done(*call).outcome;
        assert_eq!(outcome.error(), Some(ErrorKind::DeniedPolicy));
        assert!(format!("{outcome:?}").contains(why), "{outcome:?}");
    }
    // The same with room for it.
    let mut broker = self::broker_with_leases(&world, "");
    let inner = Wants {
        write: text(&[paths[0].join("in")]),
        ..Wants::default()
    };
    let (outer, inner) = (
        ask(&mut broker, 1, read(&paths[..1])),
        ask(&mut broker, 2, inner),
    );
    broker.send(&ToBroker::Grant(yes(1, &outer, Extent::Session)));
    broker.message();
    broker.done(1);
    broker.send(&ToBroker::Grant(yes(2, &inner, Extent::Session)));
    assert_eq!(
        broker.done(2).outcome.error(),
        Some(ErrorKind::DeniedPolicy)
    );
}

place_test!(mount_below_a_path_is_not_granted, needs_root);
fn mount_below_a_path_is_not_granted(place: Place) {
    let (world, data) = world(place, "");
    let (below, alias) = (data.join("the disk"), world.outside.join("alias"));
    [&below, &alias, &data.join("in")]
        .iter()
        .for_each(|path| world.make_folder(path));
    let mount = || {
        let mount = Mount::of(&below, &["-t", "tmpfs", "-o", "mode=755,size=1m", "tmpfs"]);
        fs::write(below.join("file"), &world.canary).unwrap();
        mount
    };
    let read = format!("cat {0}/notes '{0}/the disk/file'", data.display());
    let mounted = mount();
    assert!(
        world.on_host(&read).success().contains(&world.canary),
        "the control"
    );
    let mut session = session(&world, &["--leases"]);
    let refused = |session: &mut Session, wants: &Value, why: &str| {
        start_wanting(session, "a", &read, wants);
        let answer = session.answer_within("a", LIMIT);
        assert!(
            answer.events.is_empty() && answer.kind() == "denied_policy",
            "{wants}: {}",
            answer.result
        );
        assert!(answer.text().contains(why), "{wants}: {}", answer.text());
    };
    for wants in [json!({"read": [data]}), json!({"write": [data]})] {
        refused(
            &mut session,
            &wants,
            &format!("{} is mounted in it", below.display()),
        );
    }
    // A mount itself is granted like any directory.
    start_wanting(
        &mut session,
        "m",
        &format!("cat '{}/file'", below.display()),
        &json!({"read": [below]}),
    );
    asked(&mut session, "m");
    session.send(&json!({"id": "m", "approve": "once"}));
    assert!(
        session
            .answer_within("m", LIMIT)
            .success()
            .contains(&world.canary)
    );
    drop(mounted);
    start_wanting(&mut session, "a", &read, &json!({"read": [data]}));
    asked(&mut session, "a");
    session.send(&json!({"id": "a", "approve": "session"}));
    assert!(session.answer_within("a", LIMIT).text().contains("NOTES"));
    // The same directory elsewhere.
    let bound = Mount::of(&alias, &["--bind", data.to_str().unwrap()]);
    refused(
        &mut session,
        &json!({"write": [alias.join("in")]}),
        "granted with other access",
    );
    drop(bound);
    // A mount made there meanwhile ends the lease.
    assert!(session.bash(&read).text().contains("NOTES"));
    let _mounted = mount();
    let after = session.bash(&read);
    assert!(
        !after.text().contains("NOTES") && !after.text().contains(&world.canary),
        "{}",
        after.text()
    );
    assert!(session.close(LIMIT).success());
    assert_eq!(audited(&world, "lease_ended")[1]["end"], "changed");
}

place_test!(central_roots_in_what_is_granted_stay_closed);
fn central_roots_in_what_is_granted_stay_closed(place: Place) {
    let (world, data) = world(place, "");
    // Another project's, at a place of its own.
    let mut other = dressed(&world, world.program("lazaret"));
    run(
        other
            .env("XDG_DATA_HOME", data.join("share"))
            .args(["run", "--", "true"]),
        LIMIT,
    )
    .success();
    let mut made = fs::read_dir(data.join("share/lazaret/projects"))
        .unwrap()
        .flatten();
    let (central, name) = made
        .next()
        .map(|entry| (entry.path(), entry.file_name()))
        .unwrap();
    world.write(&central.join("notes"), &world.canary);
    let moved = format!("moved/lazaret/projects/{}", name.display());
    let at = data.display();
    let attack = format!(
        "cd {at}; cat notes; grep -rs CANARY .; cat {0}/notes; echo x > {0}/planted; mv share moved; cat {moved}/notes; \
         echo x > {moved}/planted; true",
        central.display()
    );
    let copy = world.outside.join("copy");
    run(world.host("cp").arg("-a").args([&data, &copy]), LIMIT).success();
    let control = attack.replace(at.to_string().as_str(), copy.to_str().unwrap());
    assert!(
        world.on_host(&control).text().contains(&world.canary),
        "the control"
    );
    assert!(copy.join(moved).join("planted").exists(), "the control");
    let mut session = session(&world, &["--leases"]);
    for wants in [json!({"read": [data]}), json!({"write": [data]})] {
        start_wanting(&mut session, "a", &attack, &wants);
        asked(&mut session, "a");
        session.send(&json!({"id": "a", "approve": "once"}));
        let text = session.answer_within("a", LIMIT).text().to_owned();
        assert!(
            text.contains("NOTES") && !text.contains(&world.canary),
            "{wants}: {text}"
        );
        assert!(
            central.join("notes").exists() && !central.join("planted").exists(),
            "{wants}"
        );
    }
    assert!(session.close(LIMIT).success());
}

place_test!(paths_are_granted_from_elsewhere_where_the_policy_says_so);
fn paths_are_granted_from_elsewhere_where_the_policy_says_so(place: Place) {
    let (world, data) = world(
        place,
        "[approval]\ntimeout_s = 600\nchannel = 'separate'\nterminal = false",
    );
    let read = format!("cat {}/notes", data.display());
    let mut session = session(&world, &["--leases"]);
    let mut approver = Approver::start(&world);
    for (id, approve, want) in [("a", "no", false), ("b", "once", true)] {
        start_wanting(&mut session, id, &read, &json!({ "read": [data] }));
        assert_eq!(asked(&mut session, id)["channel"], "separate");
        session.send(&json!({"id": id, "approve": "session"}));
        assert_eq!(
            session.event(id, LIMIT).unwrap()["event"],
            "notice",
            "it was taken"
        );
        let shown = approver.answer(approve);
        assert!(
            shown.to_string().contains(data.to_str().unwrap()),
            "{shown}"
        );
        assert_eq!(
            session.answer_within(id, LIMIT).text().contains("NOTES"),
            want
        );
    }
    assert!(session.close(LIMIT).success());
}

place_test!(permanent_grant_keeps_its_keys_closed);
/// As a question for once and one for the session do: the three differ in how long, and not in what they open.
fn permanent_grant_keeps_its_keys_closed(place: Place) {
    let (world, data) = world(place, "[profile.mine]\n[profile.by-hand]");
    let keys = [".ssh/id_rsa", "deep/.env", ".mozilla/cookies"];
    for name in keys {
        world.write(&data.join(name), &world.canary);
    }
    let policy = |words: &[&str]| run(dressed(&world, world.lazaret("policy")).args(words), LIMIT);
    policy(&["allow", data.to_str().unwrap(), "--profile", "mine"]).success();
    let script = format!(
        "cd {}; cat notes; cat {}; true",
        data.display(),
        keys.join(" ")
    );
    let shown = |profile: &str| {
        let mut command = dressed(&world, world.lazaret("run"));
        let done = run(
            command.args(["--profile", profile, "--", "bash", "-c", &script]),
            LIMIT,
        );
        (
            done.text().contains("NOTES"),
            done.text().contains(&world.canary),
        )
    };
    assert_eq!(shown("mine"), (true, false));
    // The control: what a grant by hand opens.
    let file = world.policy();
    let text = fs::read_to_string(&file).unwrap();
    let grants = format!(
        "[profile.by-hand]\ngrants = [{{ path = '{}' }}]\n",
        data.display()
    );
    world.write(&file, text.replace("[profile.by-hand]", &grants));
    assert_eq!(shown("by-hand"), (true, true));
}

place_test!(a_path_of_the_policy_that_cannot_be_leased_is_named);
/// It may lie in a root of one session and be missing in another: neither opens less than it has, nor fails.
fn a_path_of_the_policy_that_cannot_be_leased_is_named(place: Place) {
    let (world, data) = world(place, "");
    let link = world.outside.join("link");
    symlink(&data, &link).unwrap();
    let project = world.project.display();
    let missing = world.outside.join("missing");
    let text = format!(
        "version = 1\n[profile.mine]\nread = ['{}', '{}', '{project}', '{}']\n",
        data.display(),
        missing.display(),
        link.display()
    );
    world.set_policy(text);
    let mut command = dressed(&world, world.lazaret("run"));
    let read = format!("cat {}/notes", data.display());
    let done = run(
        command.args(["-v", "--profile", "mine", "--", "bash", "-c", &read]),
        LIMIT,
    );
    assert!(done.text().contains("NOTES"), "{}", done.errors());
    for closed in [missing.as_path(), &link, &world.project] {
        let line = format!("{:?} (`read` of the profile", closed.display().to_string());
        assert!(done.errors().contains(&line), "{line}: {}", done.errors());
    }
}
