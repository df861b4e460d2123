//! A client that lies about approvals: whatever it says, no process starts and no file is written that was asked about
//! and not allowed. Each lie has its control beside it: the same call with an honest answer runs.

use broker_protocol::approval::STANDING;
use broker_protocol::*;
use lazaret_tests::approval::{Approver, audited, dressed, set_policy, sockets};
use lazaret_tests::process::{self, figure, until};
use lazaret_tests::wire::{Received, framed, opening, shell, yes};
use lazaret_tests::world::long_sleep;
use lazaret_tests::{Broker, LIMIT, Place, Terminal, World, once_test, place_test, programs, run};
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::process::{Command as Program, Stdio};
use std::time::{Duration, Instant};

/// How long what was not allowed gets to show itself all the same.
const WATCH: Duration = Duration::from_millis(250);
/// More than this a broker never needs, in KiB.
const MEMORY: u64 = 48 * 1024;

/// No answer of a test comes too late, also on a busy machine.
const RELAY: &str = "timeout_s = 600";
/// Approvers of tests are programs.
const SEPARATE: &str = "timeout_s = 600\nchannel = \"separate\"\nterminal = false";
const AT_A_TERMINAL: &str = "timeout_s = 600\nchannel = \"separate\"";

/// A guided session with this `[approval]`.
fn guided(world: &World, approval: &str) -> Broker {
    set_policy(world, approval);
    let open = Open {
        trust: Trust::Guided,
        ..opening(world)
    };
    Broker::open_by(
        world,
        dressed(world, world.program("lazaret-executor")),
        open,
    )
    .0
}

/// A call that leaves a process and a file as soon as it runs.
fn evil(world: &World, marker: &str) -> Request {
    let file = world.project.join("evil");
    Request::Bash(shell(&format!(
        "touch '{}'; sleep {marker}",
        file.display()
    )))
}

fn write(name: &str) -> Request {
    let path = ZonePath::new(Zone::Project, name).unwrap();
    Request::FileWrite(FileWrite {
        path,
        content: b"x".into(),
        overwrite: true,
        expected_sha256: None,
    })
}

/// Starts a call that must be asked about.
#[track_caller]
fn ask(broker: &mut Broker, call: CallId, request: Request) -> Challenge {
    broker.send(&ToBroker::Call { call, request });
    broker.challenge(call)
}

fn kind(outcome: &Outcome) -> Option<ErrorKind> {
    outcome.error()
}

/// Nothing of a call that was not allowed is there, and nothing appears.
#[track_caller]
fn assert_nothing(world: &World, marker: &str) {
    let there = || world.project.join("evil").exists() || !process::with_marker(marker).is_empty();
    assert!(
        !until(WATCH, there),
        "something ran that nobody has allowed"
    );
}

place_test!(an_honest_yes_runs_the_call_and_nothing_runs_before_it);
fn an_honest_yes_runs_the_call_and_nothing_runs_before_it(place: Place) {
    let world = World::new(place);
    let mut broker = guided(&world, RELAY);
    let marker = long_sleep();
    let challenge = ask(&mut broker, 1, evil(&world, &marker));
    assert_eq!(
        (challenge.risk, challenge.channel),
        (Risk::High, Channel::Relay)
    );
    assert_nothing(&world, &marker);
    broker.send(&ToBroker::Grant(yes(1, &challenge, Extent::Once)));
    assert!(
        until(LIMIT, || !process::with_marker(&marker).is_empty()),
        "an honest yes did nothing"
    );
    broker.send(&ToBroker::Cancel { call: 1 });
    broker.done(1);
    let challenge = ask(&mut broker, 2, write("file"));
    assert!(!world.project.join("file").exists());
    broker.send(&ToBroker::Grant(yes(2, &challenge, Extent::Once)));
    assert!(matches!(broker.done(2).outcome, Outcome::Answered));
    assert_eq!(world.get("file"), b"x");
    // Reading is of low risk.
    let path = ZonePath::new(Zone::Project, "file").unwrap();
    let read = broker.call(
        3,
        Request::FileRead(FileRead {
            path,
            offset: None,
            limit: None,
        }),
    );
    assert!(matches!(read.outcome, Outcome::Answered));
}

place_test!(call_that_was_not_allowed_has_nothing_saved);
/// A text is kept for an effect that somebody has allowed, and not while it waits, nor after a no.
fn call_that_was_not_allowed_has_nothing_saved(place: Place) {
    let world = World::new(place);
    let mut broker = guided(&world, RELAY);
    let effect = || {
        Request::Effect(Effect::Added {
            tool: "deploy".into(),
            risk: Risk::High,
            input: "{}".into(),
        })
    };
    let keep = |broker: &mut Broker, call| {
        broker.send(&ToBroker::Keep {
            call,
            bytes: b"text".into(),
            last: true,
        });
        match broker.message() {
            FromBroker::Kept { call: of, spill } if of == call => spill,
            other => panic!("{other:?}"),
        }
    };
    ask(&mut broker, 1, effect());
    assert_eq!(keep(&mut broker, 1), None);
    broker.send(&ToBroker::Refuse { call: 1 });
    assert_eq!(kind(&broker.done(1).outcome), Some(ErrorKind::DeniedUser));
    assert_eq!(keep(&mut broker, 1), None);
    let challenge = ask(&mut broker, 2, effect());
    broker.send(&ToBroker::Grant(Grant {
        nonce: Nonce([9; 16]),
        ..yes(2, &challenge, Extent::Once)
    }));
    broker.ungranted();
    assert_eq!(keep(&mut broker, 2), None);
    assert!(!world.central.join("outputs").exists());
    broker.send(&ToBroker::Grant(yes(2, &challenge, Extent::Once)));
    assert_eq!(broker.done(2).outcome, Outcome::Granted);
    assert!(keep(&mut broker, 2).is_some());
}

place_test!(question_waits_as_long_as_its_session_wants_within_the_policy);
fn question_waits_as_long_as_its_session_wants_within_the_policy(place: Place) {
    let world = World::new(place);
    let cases = [
        ("", None, 30),
        ("", Some(77), 77),
        ("", Some(u32::MAX), 3600),
        ("timeout_s = 20", Some(77), 20),
    ];
    for (policy, answer_s, seconds) in cases {
        set_policy(&world, policy);
        let open = Open {
            trust: Trust::Guided,
            answer_s,
            ..opening(&world)
        };
        let mut broker = Broker::open_by(
            &world,
            dressed(&world, world.program("lazaret-executor")),
            open,
        )
        .0;
        let challenge = ask(&mut broker, 1, Request::Bash(shell("true")));
        assert_eq!(challenge.expires_s, seconds, "{policy:?} {answer_s:?}");
    }
}

place_test!(a_no_and_a_silence_end_the_call_before_it_starts);
fn a_no_and_a_silence_end_the_call_before_it_starts(place: Place) {
    let world = World::new(place);
    let marker = long_sleep();
    let mut broker = guided(&world, RELAY);
    ask(&mut broker, 1, evil(&world, &marker));
    broker.send(&ToBroker::Refuse { call: 1 });
    assert_eq!(kind(&broker.done(1).outcome), Some(ErrorKind::DeniedUser));
    ask(&mut broker, 3, write("evil"));
    broker.send(&ToBroker::Cancel { call: 3 });
    assert_eq!(kind(&broker.done(3).outcome), Some(ErrorKind::Cancelled));
    let mut broker = guided(&world, "timeout_s = 1");
    let asked = Instant::now();
    let late = ask(&mut broker, 2, evil(&world, &marker));
    assert_eq!(
        kind(&broker.done(2).outcome),
        Some(ErrorKind::ApprovalTimeout)
    );
    let waited = asked.elapsed();
    assert!(waited >= Duration::from_millis(950), "{waited:?}");
    // Not the thirty seconds of a policy that says nothing.
    assert_eq!(late.expires_s, 1);
    assert_eq!(
        broker.refused_grant(yes(2, &late, Extent::Once)),
        GrantFault::NotWaiting
    );
    assert_nothing(&world, &marker);
}

place_test!(a_grant_for_anything_else_is_not_taken);
/// Every grant that is not the one for the call that waits.
fn a_grant_for_anything_else_is_not_taken(place: Place) {
    let world = World::new(place);
    let mut broker = guided(&world, RELAY);
    let marker = long_sleep();
    let good = ask(&mut broker, 1, Request::Bash(shell("true")));
    let bad = ask(&mut broker, 2, evil(&world, &marker));
    let digest = |number: u8| Digest([number; 32]);
    let nonce = |number: u8| Nonce([number; 16]);
    let honest = yes(2, &bad, Extent::Once);
    let lies = [
        (
            "a digest of chance",
            Grant {
                digest: digest(7),
                ..honest
            },
            GrantFault::OtherCall,
        ),
        (
            "a nonce of chance",
            Grant {
                nonce: nonce(7),
                ..honest
            },
            GrantFault::OtherQuestion,
        ),
        (
            "nothing but zeros",
            Grant {
                digest: digest(0),
                nonce: nonce(0),
                ..honest
            },
            GrantFault::OtherQuestion,
        ),
        (
            "another call's answer",
            Grant {
                call: 2,
                ..yes(1, &good, Extent::Once)
            },
            GrantFault::OtherQuestion,
        ),
        (
            "another call's digest",
            Grant {
                digest: good.digest,
                ..honest
            },
            GrantFault::OtherCall,
        ),
        (
            "another call's nonce",
            Grant {
                nonce: good.nonce,
                ..honest
            },
            GrantFault::OtherQuestion,
        ),
        (
            "for the session, with a nonce of chance",
            Grant {
                nonce: nonce(1),
                extent: Extent::Session,
                ..honest
            },
            GrantFault::OtherQuestion,
        ),
        (
            "for the session, another call's",
            Grant {
                call: 2,
                ..yes(1, &good, Extent::Session)
            },
            GrantFault::OtherQuestion,
        ),
        (
            "for a call that is none",
            Grant { call: 99, ..honest },
            GrantFault::NotWaiting,
        ),
    ];
    let mut violations = 0;
    for (lie, grant, want) in lies {
        broker.send(&ToBroker::Grant(grant));
        let not = broker.ungranted();
        violations += u32::from(want.is_violation());
        assert_eq!(
            (not.fault, not.violations, not.call),
            (want, violations, grant.call),
            "{lie}"
        );
    }
    assert_nothing(&world, &marker);
    broker.send(&ToBroker::Grants);
    assert!(matches!(broker.message(), FromBroker::Grants(none) if none.is_empty()));
    // The control: what is granted runs, as it was asked about, and what is not still waits.
    broker.send(&ToBroker::Grant(yes(1, &good, Extent::Once)));
    assert!(matches!(
        broker.done(1).outcome,
        Outcome::Ran(Ran {
            ended: Ended::Exited(0),
            ..
        })
    ));
    assert_nothing(&world, &marker);
    broker.send(&ToBroker::Refuse { call: 2 });
    assert_eq!(kind(&broker.done(2).outcome), Some(ErrorKind::DeniedUser));
    println!("{place}: {} lies, none taken", lies.len());
}

place_test!(a_grant_is_used_once);
/// A yes is for one question: neither the same call again nor another one under its number runs by it.
fn a_grant_is_used_once(place: Place) {
    let world = World::new(place);
    let mut broker = guided(&world, RELAY);
    let (marker, mut replays) = (long_sleep(), 0);
    let first = ask(&mut broker, 1, Request::Bash(shell("true")));
    let grant = yes(1, &first, Extent::Once);
    broker.send(&ToBroker::Grant(grant));
    broker.done(1);
    for request in [
        Request::Bash(shell("true")),
        evil(&world, &marker),
        write("evil"),
    ] {
        assert_eq!(broker.refused_grant(grant), GrantFault::NotWaiting);
        let again = ask(&mut broker, 1, request.clone());
        assert_ne!(again.nonce, first.nonce);
        assert_eq!(
            again.digest == first.digest,
            request == Request::Bash(shell("true"))
        );
        assert_eq!(broker.refused_grant(grant), GrantFault::OtherQuestion);
        broker.send(&ToBroker::Cancel { call: 1 });
        assert_eq!(kind(&broker.done(1).outcome), Some(ErrorKind::Cancelled));
        replays += 2;
    }
    assert_nothing(&world, &marker);
    println!("{place}: {replays} replays, none taken");
}

once_test!(each_part_of_a_call_changes_its_digest);
/// The digest is of everything that decides what runs.
fn each_part_of_a_call_changes_its_digest() {
    let world = World::new(Place::any());
    let mut broker = guided(&world, RELAY);
    world.make_folder(&world.project.join("sub"));
    let sub = ZonePath::new(Zone::Project, "sub").unwrap();
    let requests = [
        Request::Bash(shell("true")),
        Request::Bash(shell("true ")),
        Request::Bash(Bash {
            directory: Some(sub),
            ..shell("true")
        }),
        Request::Bash(Bash {
            timeout_s: Some(1),
            ..shell("true")
        }),
        Request::Bash(Bash {
            stdin: Stdin::Stream,
            ..shell("true")
        }),
        Request::Bash(Bash {
            command: Command::Arguments(vec![b"true".to_vec().into()]),
            ..shell("")
        }),
        write("a"),
        write("b"),
    ];
    let digest =
        |broker: &mut Broker, call, request: &Request| ask(broker, call, request.clone()).digest;
    let digests: Vec<Digest> = requests
        .iter()
        .zip(1..)
        .map(|(request, call)| digest(&mut broker, call, request))
        .collect();
    for (at, one) in digests.iter().enumerate() {
        assert!(
            !digests[..at].contains(one),
            "request {at} has the digest of another"
        );
    }
    assert_eq!(digest(&mut broker, 100, &requests[0]), digests[0]);
    let mut other = guided(&world, RELAY);
    assert_ne!(
        digest(&mut other, 1, &requests[0]),
        digests[0],
        "two sessions have one digest"
    );
}

place_test!(a_grant_for_the_session_covers_its_rule_and_tool_until_it_is_revoked);
fn a_grant_for_the_session_covers_its_rule_and_tool_until_it_is_revoked(place: Place) {
    let world = World::new(place);
    let mut broker = guided(&world, RELAY);
    let first = ask(&mut broker, 1, Request::Bash(shell("true")));
    broker.send(&ToBroker::Grant(yes(1, &first, Extent::Session)));
    broker.done(1);
    assert!(matches!(
        broker.call(2, Request::Bash(shell("exit 3"))).outcome,
        Outcome::Ran(_)
    ));
    // Another tool is asked about though the rule is the same.
    ask(&mut broker, 3, write("evil"));
    broker.send(&ToBroker::Cancel { call: 3 });
    broker.done(3);
    broker.send(&ToBroker::Grants);
    let FromBroker::Grants(standing) = broker.message() else {
        panic!("no list")
    };
    assert_eq!(standing.len(), 1);
    assert_eq!((standing[0].tool.as_str(), standing[0].calls), ("bash", 2));
    assert_eq!(standing[0].rule, first.rule);
    broker.send(&ToBroker::Revoke { grant: 77 });
    assert!(matches!(broker.message(), FromBroker::Grants(one) if one.len() == 1));
    broker.send(&ToBroker::Revoke {
        grant: standing[0].grant,
    });
    assert!(matches!(broker.message(), FromBroker::Grants(none) if none.is_empty()));
    let marker = long_sleep();
    ask(&mut broker, 4, evil(&world, &marker));
    assert_nothing(&world, &marker);
}

place_test!(a_grant_for_the_session_reaches_nothing_that_was_not_asked_about);
/// A yes for the session to something harmless about which a rule is in doubt, or that is only a part of a call.
fn a_grant_for_the_session_reaches_nothing_that_was_not_asked_about(place: Place) {
    let world = World::new(place);
    let mut broker = guided(&world, RELAY);
    let bash = |text: &str| Request::Bash(shell(text));
    let rule_of = |text: &str, call, broker: &mut Broker| {
        let challenge = ask(broker, call, bash(text));
        broker.send(&ToBroker::Refuse { call });
        broker.done(call);
        challenge.rule
    };
    let sure = rule_of("git push", 1, &mut broker);
    for (call, harmless) in (2..).zip(["env true", "true; git push --help"]) {
        let challenge = ask(&mut broker, call, bash(harmless));
        assert_eq!(
            (challenge.covers, &challenge.rule),
            (Coverage::Call, &sure),
            "{harmless}"
        );
        broker.send(&ToBroker::Grant(yes(call, &challenge, Extent::Session)));
        broker.done(call);
    }
    let marker = long_sleep();
    let file = world.project.join("evil").display().to_string();
    for (call, evil) in (10..).zip([
        "git push --force".to_owned(),
        format!("env touch {file}"),
        format!("touch {file}; git push --help"),
        format!("find . -exec touch {file} \\;"),
        format!("env true; sleep {marker}"),
        format!("PATH=. git push; touch {file}"),
    ]) {
        rule_of(&evil, call, &mut broker);
    }
    assert_nothing(&world, &marker);
    // The very same runs, and a rule that is sure is granted as a rule: the same lies have no hold there.
    assert!(matches!(
        broker.call(30, bash("env true")).outcome,
        Outcome::Ran(_)
    ));
    let push = ask(&mut broker, 31, bash("git push"));
    assert_eq!(push.covers, Coverage::Rule);
    broker.send(&ToBroker::Grant(yes(31, &push, Extent::Session)));
    broker.done(31);
    assert!(matches!(
        broker.call(32, bash("git push --dry-run")).outcome,
        Outcome::Ran(_)
    ));
    for (call, evil) in (40..).zip([
        format!("git push; touch {file}"),
        format!("./git push {file}"),
    ]) {
        rule_of(&evil, call, &mut broker);
    }
    broker.send(&ToBroker::Grants);
    let FromBroker::Grants(standing) = broker.message() else {
        panic!("no list")
    };
    let only: Vec<_> = standing
        .iter()
        .map(|one| (one.only.is_some(), one.calls))
        .collect();
    assert_eq!(only, [(true, 2), (true, 1), (false, 2)]);
    assert_nothing(&world, &marker);
}

place_test!(a_grant_for_the_session_covers_the_programs_of_its_question);
/// Under a rule about a whole tool a yes for the session is one to the programs of the question, and to no other.
fn a_grant_for_the_session_covers_the_programs_of_its_question(place: Place) {
    let world = World::new(place);
    let mut broker = guided(&world, RELAY);
    let bash = |text: &str| Request::Bash(shell(text));
    let listing = ask(&mut broker, 1, bash("cd . && ls"));
    assert_eq!(
        (listing.covers, &listing.programs[..]),
        (Coverage::Rule, &["ls".to_owned()][..])
    );
    broker.send(&ToBroker::Grant(yes(1, &listing, Extent::Session)));
    broker.done(1);
    assert!(matches!(
        broker.call(2, bash("ls -la; true")).outcome,
        Outcome::Ran(_)
    ));
    let file = world.project.join("evil").display().to_string();
    let others = [
        format!("touch {file}"),
        format!("ls; touch {file}"),
        format!("ls > {file}"),
        format!("ls $(touch {file})"),
        format!("env ls; touch {file}"),
        format!("./ls {file}"),
    ];
    for (call, evil) in (10..).zip(others) {
        ask(&mut broker, call, bash(&evil));
        broker.send(&ToBroker::Refuse { call });
        broker.done(call);
    }
    assert_nothing(&world, &long_sleep());
    // The control: a yes to both covers both.
    let both = ask(&mut broker, 30, bash("touch a; ls"));
    broker.send(&ToBroker::Grant(yes(30, &both, Extent::Session)));
    broker.done(30);
    assert!(matches!(
        broker.call(31, bash("touch b")).outcome,
        Outcome::Ran(_)
    ));
    assert!(world.project.join("b").exists());
}

place_test!(a_grant_for_the_session_covers_no_other_input);
/// Input that a call gets while it runs is in no digest: a yes for the session to `bash -s` would be one to any command.
fn a_grant_for_the_session_covers_no_other_input(place: Place) {
    let world = World::new(place);
    let mut broker = guided(&world, RELAY);
    let fed = || {
        Request::Bash(Bash {
            stdin: Stdin::Stream,
            ..shell("bash -s")
        })
    };
    let size = broker_protocol::Terminal {
        rows: 24,
        columns: 80,
        term: "dumb".into(),
    };
    let terminal = || {
        Request::Bash(Bash {
            stdin: Stdin::Terminal(size.clone()),
            ..shell("bash")
        })
    };
    for (call, request, text) in [(1, fed(), "exit 7\n"), (2, terminal(), "exit 7\n")] {
        let challenge = ask(&mut broker, call, request);
        assert_eq!(challenge.covers, Coverage::Once);
        broker.send(&ToBroker::Input {
            call,
            bytes: text.into(),
        });
        broker.send(&ToBroker::Grant(yes(call, &challenge, Extent::Session)));
        let Outcome::Ran(ran) = broker.done(call).outcome else {
            panic!("call {call} did not run")
        };
        assert_eq!(ran.ended, Ended::Exited(7));
    }
    broker.send(&ToBroker::Grants);
    assert!(matches!(broker.message(), FromBroker::Grants(standing) if standing.is_empty()));
    // The control: without input a yes for the session is one for the rule's other calls.
    let challenge = ask(&mut broker, 3, Request::Bash(shell("true")));
    assert_eq!(challenge.covers, Coverage::Rule);
    broker.send(&ToBroker::Grant(yes(3, &challenge, Extent::Session)));
    broker.done(3);
    let other = broker.call(4, Request::Bash(shell("exit 5")));
    assert!(matches!(other.outcome, Outcome::Ran(ran) if ran.ended == Ended::Exited(5)));
    let touch = format!("touch '{}'\n", world.project.join("evil").display());
    for (call, request) in [(5, fed()), (6, terminal())] {
        ask(&mut broker, call, request);
        broker.send(&ToBroker::Input {
            call,
            bytes: touch.clone().into_bytes(),
        });
    }
    assert_nothing(&world, &long_sleep());
}

place_test!(a_rule_on_a_path_holds_where_its_links_lead);
/// `docs/**` is allowed and `src/**` denied, and a link of the repository gives each file another name.
fn a_rule_on_a_path_holds_where_its_links_lead(place: Place) {
    let world = World::new(place);
    let mut broker = linked(&world);
    let at = |name: &str| ZonePath::new(Zone::Project, name).unwrap();
    let read = |name: &str| {
        Request::FileRead(FileRead {
            path: at(name),
            offset: None,
            limit: None,
        })
    };
    let allowed = [write("docs/new"), read("docs/in"), write("docs/in")];
    for (call, request) in (1..).zip(allowed) {
        assert_eq!(
            broker.call(call, request).outcome,
            Outcome::Answered,
            "the control"
        );
    }
    assert_eq!(world.get("docs/inner"), b"x");
    let denied = |request: Request, call, broker: &mut Broker| match broker
        .call(call, request.clone())
        .outcome
    {
        Outcome::Refused(refused) => refused,
        other => panic!("{request:?}: {other:?}"),
    };
    let rule = denied(write("src/y"), 10, &mut broker).rule;
    let edit = Edit {
        old: "safe".into(),
        new: "evil".into(),
        occurrence: Occurrence::Only,
    };
    let edit = FileEdit {
        path: at("docs/x"),
        edits: vec![edit],
        expected_sha256: None,
    };
    let list = |name: &str| {
        Request::FileList(FileList {
            path: at(name),
            depth: 1,
            hidden: true,
            limit: 9,
        })
    };
    let glob = |name: &str, pattern: &str| {
        let (path, pattern) = (at(name), pattern.to_owned());
        Request::Glob(Glob {
            path,
            pattern,
            hidden: true,
            ignored: true,
            limit: 9,
        })
    };
    let attacks = [
        write("docs/x"),
        write("docs/s/new"),
        Request::FileEdit(edit),
        read("docs/x"),
        read("docs/s/main.sh"),
        Request::FileBytes(FileBytes {
            path: at("docs/x"),
            offset: 0,
            limit: 9,
        }),
        list("docs/s/sub"),
        glob("docs/s/sub", "*"),
        glob("docs", "s/sub/*"),
        glob("docs/loop", "s/sub/*"),
        grep("docs/s/sub"),
        grep("docs/x"),
    ];
    for (call, attack) in (20..).zip(attacks) {
        let refused = denied(attack, call, &mut broker);
        assert_eq!(refused.rule, rule);
        assert!(refused.why.contains("src"), "{refused:?}");
    }
    assert_eq!(world.get("src/main.sh"), b"safe\n");
    assert!(!world.project.join("src/new").exists());
}

place_test!(a_grant_for_a_link_is_for_where_it_leads);
/// A yes to a link is one to the file that was named, and not to what the link names later.
fn a_grant_for_a_link_is_for_where_it_leads(place: Place) {
    let world = World::new(place);
    let mut broker = linked(&world);
    for (call, name) in [(1, "docs/o"), (2, "docs/p")] {
        let path = ZonePath::new(Zone::Project, name).unwrap();
        let read = Request::FileRead(FileRead {
            path,
            offset: None,
            limit: None,
        });
        assert_eq!(broker.call(call, read).outcome, Outcome::Answered);
    }
    let challenge = ask(&mut broker, 3, write("docs/o"));
    assert!(challenge.why.contains("other/one"), "{challenge:?}");
    assert_eq!(
        (challenge.covers, world.get("other/one")),
        (Coverage::Call, b"1\n".to_vec())
    );
    broker.send(&ToBroker::Grant(yes(3, &challenge, Extent::Session)));
    assert_eq!(broker.done(3).outcome, Outcome::Answered);
    assert_eq!(world.get("other/one"), b"x");
    // The control: the same again needs no answer.
    assert_eq!(broker.call(4, write("docs/o")).outcome, Outcome::Answered);
    fs::remove_file(world.project.join("docs/o")).unwrap();
    symlink("../other/two", world.project.join("docs/o")).unwrap();
    let other = ask(&mut broker, 5, write("docs/o"));
    assert!(
        other.why.contains("other/two") && other.digest != challenge.digest,
        "{other:?}"
    );
    // One that changes while it is asked about is asked about again.
    fs::remove_file(world.project.join("docs/o")).unwrap();
    symlink("../src/main.sh", world.project.join("docs/o")).unwrap();
    broker.send(&ToBroker::Grant(yes(5, &other, Extent::Once)));
    assert!(
        matches!(broker.done(5).outcome, Outcome::Refused(refused) if refused.why.contains("src/main.sh"))
    );
    assert_eq!(
        (world.get("other/two"), world.get("src/main.sh")),
        (b"2\n".to_vec(), b"safe\n".to_vec())
    );
}

/// A guided session in a project with links, under rules on paths.
fn linked(world: &World) -> Broker {
    for (name, text) in [
        ("src/main.sh", "safe\n"),
        ("src/sub/a", "a\n"),
        ("docs/inner", "in\n"),
        ("other/one", "1\n"),
        ("other/two", "2\n"),
    ] {
        world.put(name, text);
    }
    let links = [
        ("docs/x", "../src/main.sh"),
        ("docs/s", "../src"),
        ("docs/in", "inner"),
        ("docs/loop", "."),
        ("docs/o", "../other/one"),
        ("docs/p", "../other/two"),
    ];
    links
        .iter()
        .for_each(|(name, target)| symlink(target, world.project.join(name)).unwrap());
    let rules = "[[rule]]\ntool = \"*\"\naction = \"allow\"\nwhy = \"w\"\nwhen = [{ param = \"path\", matches = \"docs/**\" }]\n";
    let deny = rules.replace("allow", "deny").replace("docs", "src");
    guided(world, &format!("{RELAY}\n{deny}{rules}"))
}

fn grep(name: &str) -> Request {
    Request::Grep(Grep {
        pattern: ".".into(),
        literal: false,
        ignore_case: false,
        path: ZonePath::new(Zone::Project, name).unwrap(),
        include: None,
        ignored: true,
        context: 0,
        limit: 100,
        sort: GrepSort::Path,
    })
}

place_test!(a_grant_for_test_suites_is_for_these);
/// A test suite is known by its command: a yes to it is none to a command beside it, and no client can call another one so.
fn a_grant_for_test_suites_is_for_these(place: Place) {
    let world = World::new(place);
    let mut broker = guided(&world, RELAY);
    let suite = |framework: Framework| {
        Request::Bash(Bash {
            command: framework.command(),
            ..shell("")
        })
    };
    let auto = ask(&mut broker, 1, suite(Framework::Auto));
    assert_eq!((&*auto.rule, auto.covers), ("trust:guided", Coverage::Rule));
    broker.send(&ToBroker::Grant(yes(1, &auto, Extent::Session)));
    broker.done(1);
    broker.send(&ToBroker::Grants);
    let FromBroker::Grants(standing) = broker.message() else {
        panic!("no list")
    };
    assert_eq!(&*standing[0].tool, "run_tests");
    assert!(matches!(
        broker.call(2, suite(Framework::Npm)).outcome,
        Outcome::Ran(_)
    ));
    let marker = long_sleep();
    ask(&mut broker, 3, evil(&world, &marker));
    let longer = vec![
        b"npm".to_vec().into(),
        b"test".to_vec().into(),
        b"--ignore-scripts".to_vec().into(),
    ];
    ask(
        &mut broker,
        4,
        Request::Bash(Bash {
            command: Command::Arguments(longer),
            ..shell("")
        }),
    );
    let (tool, input) = ("run_tests".to_owned(), "{}".to_owned());
    let named = Request::Effect(Effect::Added {
        tool,
        risk: Risk::High,
        input,
    });
    assert_eq!(
        kind(&broker.call(5, named).outcome),
        Some(ErrorKind::InvalidInput)
    );
    assert_nothing(&world, &marker);
}

once_test!(floods_cost_no_memory_and_the_session_goes_on);
fn floods_cost_no_memory_and_the_session_goes_on() {
    let world = World::new(Place::any());
    let mut broker = guided(&world, RELAY);
    let marker = long_sleep();
    let challenge = ask(&mut broker, 1, evil(&world, &marker));
    let forged = |number: u64| {
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&number.to_le_bytes());
        framed(&ToBroker::Grant(Grant {
            nonce: Nonce(nonce),
            ..yes(1, &challenge, Extent::Session)
        }))
    };
    let (rounds, each) = (20, 1000);
    for round in 0..rounds {
        let frames: Vec<u8> = (0..each)
            .flat_map(|number| forged(round * each + number))
            .collect();
        broker.send_bytes(&frames).unwrap();
        for _ in 0..each {
            assert_eq!(broker.ungranted().fault, GrantFault::OtherQuestion);
        }
    }
    assert_nothing(&world, &marker);
    // Requests that wait are kept, so there is a bound on what they hold together, and on how many there are.
    let large = |number: u64| {
        let content = vec![b'x'; 900_000];
        let path = ZonePath::new(Zone::Project, &format!("large-{number}")).unwrap();
        Request::FileWrite(FileWrite {
            path,
            content,
            overwrite: true,
            expected_sha256: None,
        })
    };
    let mut refused = 0;
    for call in 2..40 {
        broker.send(&ToBroker::Call {
            call,
            request: large(call),
        });
        match broker.message() {
            FromBroker::Asked { .. } => {}
            FromBroker::Done { outcome, .. } => {
                assert_eq!(kind(&outcome), Some(ErrorKind::ResourceLimit));
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(refused >= 20, "{refused} were refused");
    let peak = figure(broker.pid(), "status", "VmHWM").unwrap();
    assert!(peak < MEMORY, "the broker has taken {peak} KiB");
    let good = ask(&mut broker, 100, Request::Bash(shell("exit 5")));
    broker.send(&ToBroker::Grant(yes(100, &good, Extent::Once)));
    assert!(matches!(
        broker.done(100).outcome,
        Outcome::Ran(Ran {
            ended: Ended::Exited(5),
            ..
        })
    ));
    println!(
        "{} forged grants, {refused} of 38 large calls refused, {peak} KiB",
        rounds * each
    );
}

once_test!(a_session_has_so_many_lasting_grants_and_calls_that_wait_count_as_under_way);
fn a_session_has_so_many_lasting_grants_and_calls_that_wait_count_as_under_way() {
    let world = World::new(Place::any());
    let mut broker = guided(&world, RELAY);
    for call in 0..limit::CALLS as u64 {
        ask(&mut broker, call, Request::Bash(shell("true")));
    }
    let over = broker.call(1000, Request::Bash(shell("true")));
    assert_eq!(kind(&over.outcome), Some(ErrorKind::ResourceLimit));
    for call in 0..limit::CALLS as u64 {
        broker.send(&ToBroker::Refuse { call });
        broker.done(call);
    }
    // Each grant is asked for before the first one covers the rule.
    let asked: Vec<Challenge> = (0..STANDING as u64)
        .map(|call| ask(&mut broker, call, Request::Bash(shell("true"))))
        .collect();
    for (call, challenge) in (0..).zip(&asked) {
        broker.send(&ToBroker::Grant(yes(call, challenge, Extent::Session)));
        broker.done(call);
    }
    let one_more = ask(&mut broker, 2000, write("a"));
    assert_eq!(
        broker.refused_grant(yes(2000, &one_more, Extent::Session)),
        GrantFault::TooMany
    );
    broker.send(&ToBroker::Grant(yes(2000, &one_more, Extent::Once)));
    assert!(matches!(broker.done(2000).outcome, Outcome::Answered));
}

place_test!(input_that_came_before_the_answer_is_not_lost);
/// Input and the end of input come before the answer, and reach the command after it.
fn input_that_came_before_the_answer_is_not_lost(place: Place) {
    let world = World::new(place);
    let mut broker = guided(&world, RELAY);
    let cat = Request::Bash(Bash {
        stdin: Stdin::Stream,
        ..shell("cat")
    });
    let challenge = ask(&mut broker, 1, cat);
    broker.send(&ToBroker::Input {
        call: 1,
        bytes: b"early".into(),
    });
    broker.send(&ToBroker::InputEnd { call: 1 });
    broker.send(&ToBroker::Grant(yes(1, &challenge, Extent::Once)));
    match broker.done(1).outcome {
        Outcome::Ran(ran) => assert_eq!(ran.output.head, b"early"),
        other => panic!("{other:?}"),
    }
}

place_test!(a_client_cannot_answer_where_answers_are_taken_elsewhere);
/// With a channel of its own, the client's most honest yes is a lie.
fn a_client_cannot_answer_where_answers_are_taken_elsewhere(place: Place) {
    let world = World::new(place);
    let mut broker = guided(&world, SEPARATE);
    let marker = long_sleep();
    let challenge = ask(&mut broker, 1, evil(&world, &marker));
    assert_eq!(challenge.channel, Channel::Separate);
    let mut lies = 0;
    for extent in [Extent::Once, Extent::Session] {
        broker.send(&ToBroker::Grant(yes(1, &challenge, extent)));
        let not = broker.ungranted();
        lies += 1;
        assert_eq!(
            (not.fault, not.violations),
            (GrantFault::OtherChannel, lies)
        );
    }
    broker.send(&ToBroker::Refuse { call: 1 });
    assert_eq!(broker.ungranted().fault, GrantFault::OtherChannel);
    // The socket is there, and the client may use it as little as what it starts.
    let socket = sockets(&world).remove(0);
    assert!(
        refusal(UnixStream::connect(&socket), place).is_some(),
        "the client may approve"
    );
    let started = run(&mut dressed(&world, approve(&world)), LIMIT);
    assert!(
        started.errors().contains("own client may not answer"),
        "{}",
        started.errors()
    );
    assert_nothing(&world, &marker);
    // The control: a stranger to the client sees all of the call, and its yes counts.
    let mut approver = Approver::start(&world);
    let rendered = approver.answer("once");
    assert!(
        rendered["body"][0].as_str().unwrap().contains(&marker),
        "{rendered}"
    );
    assert!(
        until(LIMIT, || !process::with_marker(&marker).is_empty()),
        "an approver's yes did nothing"
    );
    broker.send(&ToBroker::Cancel { call: 1 });
    broker.done(1);
    println!(
        "{place}: {} answers of the client's and 2 connections, none taken",
        lies + 1
    );
}

/// `lazaret approve --list` as a child of the test.
fn approve(world: &World) -> Program {
    let mut command = world.host(programs::path("lazaret"));
    command.args(["approve", "--list"]);
    command
}

/// Why the broker sends a peer away; none if it is heard. Root's test process has another user id than an ordinary place.
fn refusal(connected: std::io::Result<UnixStream>, place: Place) -> Option<String> {
    let mut stream = match connected {
        Ok(stream) => stream,
        Err(error) => return Some(format!("{place}: {error}")),
    };
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut hello = Vec::new();
    encode(&FromApprover::Hello(Hello::ours(None)), &mut hello).unwrap();
    // It may have been closed already, with a word before.
    let _ = stream.write_all(&hello);
    let mut decoder = Decoder::new();
    let mut bytes = [0; 4096];
    loop {
        match decoder.next::<ToApprover>() {
            Ok(Some(ToApprover::Fault(failed))) => return Some(failed.message),
            Ok(Some(_)) => return None,
            Ok(None) => {}
            Err(error) => panic!("{error}"),
        }
        match stream.read(&mut bytes) {
            Ok(0) | Err(_) => return Some("closed without a word".into()),
            Ok(count) => decoder.push(&bytes[..count]),
        }
    }
}

once_test!(a_stranger_with_the_filters_of_the_client_may_not_answer);
/// A process made by a confined client cannot get rid of its filters, however it hides where it comes from.
fn a_stranger_with_the_filters_of_the_client_may_not_answer() {
    for place in Place::all() {
        let world = World::new(place);
        set_policy(&world, &format!("{SEPARATE}\ntrust = \"guided\""));
        // A client that carries a filter.
        let mut client = world.host(programs::path("without-namespaces"));
        client
            .arg(programs::path("lazaret"))
            .args(["run", "--project"])
            .arg(&world.project);
        client
            .arg("--central")
            .arg(&world.central)
            .args(["--", "touch", "evil"]);
        let mut running = process::Running::start(&mut dressed(&world, client));
        sockets(&world);
        // As many as the client has: its surroundings' and its own.
        let mut filtered = world.host(programs::path("without-namespaces"));
        filtered
            .arg(programs::path("without-namespaces"))
            .arg(programs::path("lazaret"));
        let mut liar = Approver::start_by(&world, filtered);
        let over = liar
            .event("over", LIMIT)
            .expect("the liar was not sent away");
        assert!(
            over["error"]["message"]
                .as_str()
                .unwrap()
                .contains("confined like"),
            "{over}"
        );
        assert!(!world.project.join("evil").exists());
        let mut honest = Approver::start(&world);
        honest.answer("once");
        let finished = running_end(&mut running);
        assert!(finished, "an honest yes did nothing");
        assert!(world.project.join("evil").exists());
        running.finish(LIMIT).success();
    }
}

fn running_end(running: &mut process::Running) -> bool {
    process::wait(&mut running.child, LIMIT).is_some_and(|status| status.success())
}

place_test!(a_cell_cannot_reach_the_socket);
/// A program in a cell reaches the socket in neither tier; the same program reaches it outside.
fn a_cell_cannot_reach_the_socket(place: Place) {
    const KNOCK: &str = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.settimeout(5)\n\
                         s.connect(sys.argv[1])\nprint('GOT')\n";
    let world = World::new(place);
    let mut broker = guided(&world, SEPARATE);
    world.put("knock.py", KNOCK);
    let socket = sockets(&world).remove(0);
    let mut outside = world.host("python3");
    assert!(
        run(
            outside.arg(world.project.join("knock.py")).arg(&socket),
            LIMIT
        )
        .text()
        .contains("GOT")
    );
    let knock = format!("python3 knock.py '{}' 2>&1", socket.display());
    ask(&mut broker, 1, Request::Bash(shell(&knock)));
    let mut approver = Approver::start(&world);
    approver.answer("once");
    let Outcome::Ran(ran) = broker.done(1).outcome else {
        panic!("the knock did not run")
    };
    let printed = String::from_utf8_lossy(&ran.output.head).into_owned();
    assert!(
        !printed.contains("GOT") && printed.contains("Error"),
        "{printed}"
    );
}

place_test!(a_signal_ends_the_wait_for_an_approver);
fn a_signal_ends_the_wait_for_an_approver(place: Place) {
    let world = World::new(place);
    set_policy(&world, SEPARATE);
    let mut command = dressed(&world, world.lazaret("run"));
    command.args(["--trust", "guided", "--", "touch", "ran"]);
    let mut child = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("waiting for `lazaret approve`") {
        line.clear();
        assert_ne!(errors.read_line(&mut line).unwrap(), 0, "it has ended");
    }
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::SIGTERM).unwrap();
    let mut ended = None;
    until(LIMIT, || {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    let mut rest = String::new();
    errors.read_to_string(&mut rest).unwrap();
    assert_eq!(ended.and_then(|ended| ended.code()), Some(130), "{rest}");
    assert!(
        rest.contains("ended the call before it was allowed"),
        "{rest}"
    );
    assert!(!world.project.join("ran").exists());
}

place_test!(an_approver_gives_each_answer_but_the_one_that_ends_calls);
fn an_approver_gives_each_answer_but_the_one_that_ends_calls(place: Place) {
    let world = World::new(place);
    let mut broker = guided(&world, SEPARATE);
    let mut approver = Approver::start(&world);
    ask(&mut broker, 1, write("refused"));
    let asked = approver
        .event("approval", LIMIT)
        .expect("no call was shown");
    assert_eq!(asked["approval"]["channel"], "separate", "{asked}");
    let answer = |approver: &mut Approver, answer: serde_json::Value| {
        approver.send(
            &json!({ "session": asked["session"], "call": asked["call"], "approve": answer }),
        );
    };
    for (wrong, why) in [
        (
            json!("no_and_stop"),
            "`no_and_stop` is no answer here: once, session, minutes, no",
        ),
        (json!({ "minutes": 1441 }), "1 to 1440 minutes"),
        (json!(true), "expected value"),
    ] {
        answer(&mut approver, wrong);
        let refused = approver.event("notice", LIMIT).expect("it was taken");
        assert!(refused.to_string().contains(why), "{refused}");
    }
    assert!(!world.project.join("refused").exists());
    // The control: it waits still, and another answer counts.
    answer(&mut approver, json!("no"));
    assert_eq!(kind(&broker.done(1).outcome), Some(ErrorKind::DeniedUser));
    ask(&mut broker, 2, write("allowed"));
    let asked = approver
        .event("approval", LIMIT)
        .expect("no call was shown");
    approver.send(
        &json!({ "session": asked["session"], "call": asked["call"], "approve": { "minutes": 10 } }),
    );
    assert!(matches!(broker.done(2).outcome, Outcome::Answered));
    assert!(world.project.join("allowed").exists());
}

once_test!(bad_approvers_harm_only_themselves);
/// An approver that breaks the rules, or does not read, is cut off; the session and other approvers do not notice.
fn bad_approvers_harm_only_themselves() {
    const LIAR: &str = r#"
import os, socket, struct, sys, time
path, how = sys.argv[1:]
s = socket.socket(socket.AF_UNIX)
s.connect(path)
frame = lambda body: struct.pack('<I', len(body)) + body
hello = bytes.fromhex(sys.stdin.readline())
if how == 'garbage': s.sendall(frame(b'\xff' * 40))
if how == 'long': s.sendall(struct.pack('<I', 1 << 20) + b'x' * 70000)
if how == 'early': s.sendall(frame(struct.pack('<IQ', 1, 1)))
if how == 'twice': s.sendall(hello + hello)
if how == 'two looks': s.sendall(hello + frame(struct.pack('<IQ', 1, 1)) * 2)
if how == 'silent': s.sendall(hello)
if how == 'deaf':
    s.sendall(hello)
    s.settimeout(1)
    try:
        while True: s.sendall(frame(struct.pack('<I', 4)) * 100)
    except OSError: pass
    time.sleep(2)
    print('deaf')
    sys.exit()
s.settimeout(3 if how == 'silent' else 150)
try:
    while s.recv(65536): pass
    print('closed')
except TimeoutError: print('open')
except OSError: print('closed')
"#;
    let world = World::new(Place::any());
    let mut broker = guided(&world, SEPARATE);
    let marker = long_sleep();
    ask(&mut broker, 1, write("evil"));
    ask(&mut broker, 2, evil(&world, &marker));
    let socket = sockets(&world).remove(0);
    world.put("liar.py", LIAR);
    let mut hello = Vec::new();
    encode(&FromApprover::Hello(Hello::ours(None)), &mut hello).unwrap();
    let hex: String = hello.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut counted = 0;
    for (how, want) in [
        ("garbage", "closed"),
        ("long", "closed"),
        ("early", "closed"),
        ("twice", "closed"),
        ("two looks", "closed"),
        ("silent", "open"),
        ("deaf", "deaf"),
    ] {
        let mut liar = world.host("setsid");
        liar.args(["--fork", "python3"])
            .arg(world.project.join("liar.py"))
            .arg(&socket)
            .arg(how);
        // The starter ends at once; the end of the output is that of the liar.
        let mut running = process::Running::start(&mut liar);
        running
            .child
            .stdin
            .take()
            .unwrap()
            .write_all(format!("{hex}\n").as_bytes())
            .unwrap();
        running.wait_for(want, LIMIT);
        running.finish(LIMIT);
        let peak = figure(broker.pid(), "status", "VmHWM").unwrap();
        assert!(peak < MEMORY, "{how}: the broker has taken {peak} KiB");
        counted += 1;
    }
    assert_nothing(&world, &marker);
    let mut approver = Approver::start(&world);
    for call in [1, 2] {
        approver.answer("no");
        assert_eq!(
            kind(&broker.done(call).outcome),
            Some(ErrorKind::DeniedUser)
        );
    }
    println!("{counted} bad approvers");
}

place_test!(an_approver_sees_the_difference_and_rules_over_lasting_grants);
/// An approver of a write sees the difference to the file as it is; its lasting grant is listed and revoked.
fn an_approver_sees_the_difference_and_rules_over_lasting_grants(place: Place) {
    let world = World::new(place);
    world.put("file", "one\ntwo\n");
    let mut broker = guided(&world, SEPARATE);
    let path = ZonePath::new(Zone::Project, "file").unwrap();
    let unread = ask_to_write(&mut broker, &world);
    // That a person has looked does not mean that the session has read.
    assert!(unread.contains("has not been read"), "{unread}");
    let read = FileRead {
        path: path.clone(),
        offset: None,
        limit: None,
    };
    assert!(matches!(
        broker.call(9, Request::FileRead(read)).outcome,
        Outcome::Answered
    ));
    let content = "one\n2\u{202e}\n".as_bytes().to_vec();
    let request = Request::FileWrite(FileWrite {
        path,
        content,
        overwrite: true,
        expected_sha256: None,
    });
    ask(&mut broker, 1, request);
    let mut approver = Approver::start(&world);
    let rendered = approver.answer("session");
    assert_eq!(
        rendered["body"],
        json!(["@@ -1,2 +1,2 @@", " one", "-two", "+2\\u{202e}"]),
        "{rendered}"
    );
    assert!(matches!(broker.done(1).outcome, Outcome::Answered));
    let shown = audited(&world, "preview");
    assert_eq!(
        shown
            .last()
            .map(|record| (&record["call"], &record["path"])),
        Some((&json!(1), &json!("file")))
    );
    let again = broker.call(2, write("other"));
    assert!(matches!(again.outcome, Outcome::Answered), "{again:?}");
    approver.send(&json!({ "session": rendered["session"], "grants": true }));
    let list = approver.event("grants", LIMIT).unwrap();
    assert_eq!(
        (&list["grants"][0]["tool"], &list["grants"][0]["calls"]),
        (&json!("file_write"), &json!(2))
    );
    approver.send(&json!({ "session": rendered["session"], "revoke": list["grants"][0]["grant"] }));
    assert_eq!(
        approver.event("grants", LIMIT).unwrap()["grants"],
        json!([])
    );
    ask(&mut broker, 3, write("evil"));
    approver.answer("no");
    assert_eq!(kind(&broker.done(3).outcome), Some(ErrorKind::DeniedUser));
    assert!(!world.project.join("evil").exists());
    let socket = sockets(&world).remove(0);
    drop(broker);
    assert!(until(LIMIT, || !socket.exists()), "a socket is left");
}

place_test!(an_approver_is_shown_no_file_that_the_policy_closes_to_reading);
/// A preview is decided as a read of the file, and recorded only if it is shown.
fn an_approver_is_shown_no_file_that_the_policy_closes_to_reading(place: Place) {
    let world = World::new(place);
    world.put("docs/a", "SHOWN\n");
    world.put("src/a", "KEPT BACK\n");
    let deny = "[[rule]]\ntool = \"file_read\"\naction = \"deny\"\nwhy = \"w\"\nwhen = [{ param = \"path\", matches = \"src/**\" }]\n";
    let mut broker = guided(&world, &format!("{SEPARATE}\n{deny}"));
    let mut approver = Approver::start(&world);
    for (call, name, is_shown) in [(1, "docs/a", true), (2, "src/a", false)] {
        ask(&mut broker, call, write(name));
        let body = approver.answer("no")["body"].to_string();
        assert_eq!(
            kind(&broker.done(call).outcome),
            Some(ErrorKind::DeniedUser)
        );
        assert_eq!(body.contains("SHOWN"), is_shown, "{body}");
        assert!(!body.contains("KEPT BACK"), "{body}");
        let is_recorded = audited(&world, "preview")
            .iter()
            .any(|record| record["call"] == json!(call));
        assert_eq!(is_recorded, is_shown);
    }
}

/// Has a write of a file allowed that the session has not read, and returns the outcome.
fn ask_to_write(broker: &mut Broker, world: &World) -> String {
    ask(broker, 8, write("file"));
    Approver::start(world).answer("once");
    let done = broker.done(8);
    match frame::decode_whole::<FileAnswer>(&done.parts) {
        Ok(Err(failed)) => failed.message,
        other => panic!("{other:?}"),
    }
}

once_test!(a_person_sees_the_end_of_a_call_before_a_key_allows_it);
/// On a terminal: nothing hides, and nothing is allowed before its end has been on the screen.
fn a_person_sees_the_end_of_a_call_before_a_key_allows_it() {
    // On a busy machine the key comes later than with the screen, and then it counts.
    assert!((0..5).any(|_| key_that_comes_with_the_screen_is_ignored()));
}

fn key_that_comes_with_the_screen_is_ignored() -> bool {
    let world = World::new(Place::any());
    set_policy(&world, &format!("{AT_A_TERMINAL}\ntrust = \"guided\""));
    let hidden = format!("true \u{1b}[2J\u{202e}\n{}touch evil", "\n".repeat(100));
    let mut client = dressed(
        &world,
        driven(&world, &world.lazaret_run(&["bash", "-c", &hidden])),
    );
    let mut running = process::Running::start(&mut client);
    sockets(&world);
    let mut terminal = Terminal::start(&mut dressed(&world, approve_here(&world)), 24, 80);
    terminal.expect("page 1 of", LIMIT);
    let screen = terminal.screen();
    assert!(screen.contains("true \\u{1b}[2J\\u{202e}"), "{screen:?}");
    terminal.answer("y", "read it to its end first");
    assert!(!world.project.join("evil").exists());
    terminal.send("e");
    terminal.expect("y once", LIMIT);
    // A key that comes with the screen was meant for the one before.
    terminal.send("y");
    std::thread::sleep(Duration::from_millis(600));
    let evil = || world.project.join("evil").exists();
    let is_ignored = !evil();
    if is_ignored {
        terminal.insist("y", |_| evil());
    }
    assert!(running_end(&mut running), "the key did nothing");
    assert!(world.project.join("evil").exists());
    terminal.expect("nothing waits", LIMIT);
    terminal.send("q");
    assert!(terminal.finish(LIMIT).success() && terminal.is_restored());
    let printed = running.finish(LIMIT);
    assert!(
        printed.errors().contains("waiting for `lazaret approve`"),
        "{}",
        printed.errors()
    );
    is_ignored
}

/// `client`, started by a program of its own, as a person's shell would start it. The shell does not become the client.
fn driven(world: &World, client: &Program) -> Program {
    let mut driver = world.host("sh");
    driver.args(["-c", "setsid -w \"$@\"; exit $?", "sh"]);
    driver.arg(client.get_program()).args(client.get_args());
    driver
}

once_test!(driver_of_the_client_may_not_answer);
/// A program that drives a session may not answer beside it: as a sibling of the client, in a process session of its own, or
/// under a terminal that it has made. The control: where the policy wants no terminal, one that nothing leads to may.
fn driver_of_the_client_may_not_answer() {
    let world = World::new(Place::any());
    set_policy(&world, &format!("{AT_A_TERMINAL}\ntrust = \"guided\""));
    let mut client = dressed(&world, world.lazaret_run(&["touch", "evil"]));
    let mut running = process::Running::start(&mut client);
    sockets(&world);
    // This test drives the client: what it starts are the client's siblings.
    let said = |words: &[&str]| {
        let mut sibling = world.host(words[0]);
        sibling
            .args(&words[1..])
            .arg(programs::path("lazaret"))
            .args(["approve", "--list"]);
        let refused = run(&mut dressed(&world, sibling), LIMIT);
        refused.expect(1);
        assert!(
            !refused.text().contains("nothing waits"),
            "{}",
            refused.text()
        );
        refused.errors()
    };
    for words in [&["env"][..], &["setsid", "-w"], &["setsid", "--fork", "-w"]] {
        let said = said(words);
        assert!(
            said.contains("it started the session's client"),
            "{words:?}: {said}"
        );
    }
    let mut own = Terminal::start(&mut dressed(&world, approve_here(&world)), 24, 80);
    own.expect("may not answer", LIMIT);
    own.send("q");
    own.finish(LIMIT);
    // Nothing leads from this one to the test any more.
    let mut orphan = Approver::start(&world);
    let over = orphan
        .event("over", LIMIT)
        .expect("an approver without a terminal was not sent away");
    assert!(
        over["error"]["message"]
            .as_str()
            .unwrap()
            .contains("needs a terminal"),
        "{over}"
    );
    assert!(!world.project.join("evil").exists());
    running.child.kill().unwrap();
    let _ = running.finish(LIMIT);
}

fn approve_here(world: &World) -> Program {
    let mut command = world.host(programs::path("lazaret"));
    command.arg("approve");
    command
}

place_test!(a_question_ends_with_its_client);
/// A client that leaves takes its questions with it, and one that stays silent holds nothing.
fn a_question_ends_with_its_client(place: Place) {
    let world = World::new(place);
    let mut broker = guided(&world, RELAY);
    let marker = long_sleep();
    ask(&mut broker, 1, evil(&world, &marker));
    let _ = broker.stream.shutdown(std::net::Shutdown::Both);
    broker.ended(LIMIT);
    assert_nothing(&world, &marker);
    assert!(matches!(
        broker.receive(Duration::from_millis(100)),
        Received::Closed
    ));
}

place_test!(leave_for_an_effect_is_held_like_a_call);
/// An effect outside the executor is asked about like a call of its own, and no lie gets leave for it, nor by it for
/// anything else.
fn leave_for_an_effect_is_held_like_a_call(place: Place) {
    let world = World::new(place);
    let mut broker = guided(&world, RELAY);
    let added = |tool: &str| {
        let (tool, input) = (tool.to_owned(), "{}".to_owned());
        Request::Effect(Effect::Added {
            tool,
            risk: Risk::High,
            input,
        })
    };
    let search = || Request::Effect(Effect::WebSearch { query: "q".into() });
    // Of low risk, a guided session lets it be.
    assert_eq!(broker.call(1, search()).outcome, Outcome::Granted);
    let challenge = ask(&mut broker, 2, added("mcp__fs__write"));
    assert_eq!(challenge.risk, Risk::High);
    let honest = yes(2, &challenge, Extent::Session);
    for lie in [
        Grant {
            digest: Digest([7; 32]),
            ..honest
        },
        Grant {
            nonce: Nonce([7; 16]),
            ..honest
        },
    ] {
        broker.send(&ToBroker::Grant(lie));
        assert!(broker.ungranted().violations > 0);
    }
    broker.send(&ToBroker::Grant(honest));
    assert_eq!(broker.done(2).outcome, Outcome::Granted);
    assert_eq!(broker.refused_grant(honest), GrantFault::NotWaiting);
    // For the session: this tool, and no other by the same rule.
    assert_eq!(
        broker.call(3, added("mcp__fs__write")).outcome,
        Outcome::Granted
    );
    ask(&mut broker, 4, added("mcp__fs__other"));
    broker.send(&ToBroker::Refuse { call: 4 });
    assert_eq!(kind(&broker.done(4).outcome), Some(ErrorKind::DeniedUser));
    // A session grant for an effect that borrows the name of a tool of ours would cover that tool.
    for name in [
        "bash",
        "file_write",
        "memory",
        "web_search",
        "",
        "a b",
        "x\n",
    ] {
        assert_eq!(
            kind(&broker.call(5, added(name)).outcome),
            Some(ErrorKind::InvalidInput),
            "{name:?}"
        );
    }
    let marker = long_sleep();
    ask(&mut broker, 6, evil(&world, &marker));
    assert_nothing(&world, &marker);
    // Supervised, the web is asked about too.
    set_policy(&world, "timeout_s = 600\ntrust = \"supervised\"");
    let open = Open {
        trust: Trust::Autonomous,
        ..opening(&world)
    };
    let command = dressed(&world, world.program("lazaret-executor"));
    let mut broker = Broker::open_by(&world, command, open).0;
    assert_eq!(ask(&mut broker, 1, search()).rule, "trust:supervised");
}
