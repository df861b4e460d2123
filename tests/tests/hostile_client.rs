//! Clients that do not keep to the protocol: the broker ends the connection with a word or without, never hangs, never
//! takes memory for what was only announced, leaves nothing running, and the next session works.
#![allow(clippy::unwrap_used)]

use broker_protocol::*;
use lazaret_tests::process::{self, Process, figure, until};
use lazaret_tests::wire::{Received, end_of, framed, opening, shell};
use lazaret_tests::world::long_sleep;
use lazaret_tests::{Broker, Chance, LIMIT, Place, World, once_test, place_test, suite};
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    suite::main()
}

/// More than this a broker never needs, in KiB.
const MEMORY: u64 = 32 * 1024;

once_test!(strangers_are_sent_away);
fn strangers_are_sent_away() {
    let world = World::new(Place::any());
    for hello in [
        Hello {
            magic: *b"HTTP/1.1",
            ..Hello::ours(None)
        },
        Hello {
            version: VERSION + 1,
            ..Hello::ours(None)
        },
    ] {
        let mut broker = Broker::start(&world);
        broker.send(&ToBroker::Hello(hello));
        expect_end(broker, &world);
    }
    let other_policy = Hello::ours(Some(Digest([0; 32])));
    let mut broker = Broker::start(&world);
    broker.send(&ToBroker::Hello(other_policy));
    expect_end(broker, &world);
}

once_test!(early_or_repeated_message_ends_the_connection);
fn early_or_repeated_message_ends_the_connection() {
    let world = World::new(Place::any());
    let call = || ToBroker::Call {
        call: 1,
        request: Request::Bash(shell("true")),
    };
    let hello = || ToBroker::Hello(Hello::ours(None));
    let grant = || {
        let (digest, nonce) = (Digest([0; 32]), Nonce([0; 16]));
        ToBroker::Grant(Grant {
            call: 1,
            digest,
            nonce,
            extent: Extent::Session,
        })
    };
    let keep = ToBroker::Keep {
        call: 1,
        bytes: b"x".into(),
        last: true,
    };
    let answers = [
        grant(),
        ToBroker::Refuse { call: 1 },
        ToBroker::Grants,
        ToBroker::Revoke { grant: 1 },
        keep,
    ];
    let beginnings = [
        ToBroker::Probe,
        ToBroker::GatewayLine,
        ToBroker::Open(opening(&world)),
    ];
    for early in [call()]
        .into_iter()
        .chain(beginnings.clone())
        .chain(answers)
    {
        let mut broker = Broker::start(&world);
        broker.send(&early);
        expect_end(broker, &world);
    }
    let mut broker = Broker::greeted(&world);
    broker.send(&call());
    expect_end(broker, &world);
    let mut broker = Broker::greeted(&world);
    broker.send(&grant());
    expect_end(broker, &world);
    // It comes with a descriptor.
    let mut broker = Broker::greeted(&world);
    broker.send(&ToBroker::GatewayLine);
    expect_end(broker, &world);
    for late in [hello()].into_iter().chain(beginnings) {
        let (mut broker, _) = Broker::open(&world);
        broker.send(&late);
        expect_end(broker, &world);
    }
}

once_test!(hostile_lengths_end_the_connection_at_once);
fn hostile_lengths_end_the_connection_at_once() {
    let world = World::new(Place::any());
    for length in [0, FRAME_MAX as u32 + 1, u32::MAX] {
        for open in [false, true] {
            let mut broker = if open {
                Broker::open(&world).0
            } else {
                Broker::start(&world)
            };
            // Nothing follows: a broker that waits for the body would never end.
            broker.send_bytes(&length.to_le_bytes()).unwrap();
            expect_end(broker, &world);
        }
    }
}

once_test!(frames_that_are_cut_or_too_long_end_the_connection);
fn frames_that_are_cut_or_too_long_end_the_connection() {
    let world = World::new(Place::any());
    let whole = framed(&ToBroker::Cancel { call: 1 });
    let body = &whole[4..];
    let mut longer = body.to_vec();
    longer.push(0);
    let mut unknown = body.to_vec();
    unknown[0] = 0xee;
    for bad in [&body[..body.len() - 1], &longer, &unknown, &[0xff; 64]] {
        let (mut broker, _) = Broker::open(&world);
        broker.send_body(bad).unwrap();
        expect_end(broker, &world);
    }
    // A list that says it holds more than there is memory.
    let huge = framed(&ToBroker::Input {
        call: 1,
        bytes: vec![7; 16],
    });
    let at = huge
        .windows(8)
        .position(|window| window == 16u64.to_le_bytes())
        .unwrap();
    let mut huge = huge[4..].to_vec();
    huge[at - 4..at + 4].copy_from_slice(&(1u64 << 60).to_le_bytes());
    let (mut broker, _) = Broker::open(&world);
    broker.send_body(&huge).unwrap();
    expect_end(broker, &world);
}

once_test!(a_client_that_stops_in_mid_frame_harms_nobody);
fn a_client_that_stops_in_mid_frame_harms_nobody() {
    let world = World::new(Place::any());
    let (mut broker, _) = Broker::open(&world);
    let frame = framed(&ToBroker::Call {
        call: 1,
        request: Request::Bash(shell("true")),
    });
    broker.send_bytes(&frame[..frame.len() - 3]).unwrap();
    assert!(matches!(
        broker.receive(Duration::from_millis(300)),
        Received::Nothing
    ));
    assert_healthy(&world);
    broker.stream.shutdown(Shutdown::Both).unwrap();
    broker.ended(LIMIT);
}

once_test!(garbage_ends_the_connection);
/// Seeded, so that a failure can be repeated: bytes of chance, and good frames with bytes of chance in them.
fn garbage_ends_the_connection() {
    let world = World::new(Place::any());
    let mut chance = Chance(0x1a2a_2e7d);
    for round in 0..60 {
        let mut broker = if round % 2 == 0 {
            Broker::start(&world)
        } else {
            Broker::open(&world).0
        };
        let body: Vec<u8> = (0..1 + chance.below(300))
            .map(|_| chance.below(256) as u8)
            .collect();
        // Chance may have hit a good message; then nothing is expected but that the broker lives or ends.
        let _ = broker.send_body(&body);
        let _ = broker.send_body(&[0xff; 40]);
        expect_end(broker, &world);
    }
    for _ in 0..60 {
        let (mut broker, _) = Broker::open(&world);
        let request = Request::FileRead(FileRead {
            path: zone("file"),
            offset: Some(1),
            limit: Some(9),
        });
        let mut frame = framed(&ToBroker::Call { call: 1, request });
        let at = 4 + chance.below(frame.len() as u64 - 4) as usize;
        frame[at] ^= 1 << chance.below(8);
        let _ = broker.send_bytes(&frame);
        let _ = broker.send_body(&[0xff; 40]);
        expect_end(broker, &world);
    }
    assert_healthy(&world);
}

once_test!(words_about_unknown_calls_are_let_pass);
/// Late words about a call that has just ended are no offence: the client could not know.
fn words_about_unknown_calls_are_let_pass() {
    let world = World::new(Place::any());
    let (mut broker, _) = Broker::open(&world);
    broker.send(&ToBroker::Cancel { call: 99 });
    broker.send(&ToBroker::Credit {
        call: 99,
        bytes: 10,
    });
    broker.send(&ToBroker::Input {
        call: 99,
        bytes: b"x".into(),
    });
    broker.send(&ToBroker::InputEnd { call: 99 });
    broker.send(&ToBroker::Resize {
        call: 99,
        rows: 1,
        columns: 1,
    });
    broker.send(&ToBroker::Signal {
        call: 99,
        signal: Signal::Quit,
    });
    // Answers without a question get an error, and nothing else.
    let (digest, nonce) = (Digest([0; 32]), Nonce([0; 16]));
    broker.send(&ToBroker::Grant(Grant {
        call: 99,
        digest,
        nonce,
        extent: Extent::Session,
    }));
    broker.send(&ToBroker::Refuse { call: 99 });
    let want = Ungranted {
        call: 99,
        fault: GrantFault::NotWaiting,
        violations: 0,
    };
    assert_eq!(
        [broker.message(), broker.message()],
        [(); 2].map(|()| FromBroker::Ungranted(want))
    );
    broker.send(&ToBroker::Revoke { grant: u64::MAX });
    assert_eq!(broker.message(), FromBroker::Grants(vec![]));
    let done = broker.call(1, Request::Bash(shell("exit 3")));
    assert_eq!(end_of(&done.outcome), Some(Ended::Exited(3)), "{done:?}");
}

once_test!(a_hundred_thousand_small_frames_cost_no_memory);
fn a_hundred_thousand_small_frames_cost_no_memory() {
    let world = World::new(Place::any());
    let (mut broker, _) = Broker::open(&world);
    let frame = framed(&ToBroker::Cancel { call: 99 });
    let thousand = frame.repeat(1000);
    for _ in 0..100 {
        broker.send_bytes(&thousand).unwrap();
    }
    let done = broker.call(1, Request::Bash(shell("true")));
    assert_eq!(end_of(&done.outcome), Some(Ended::Exited(0)));
    assert_small(&broker);
}

once_test!(a_call_id_in_use_is_not_taken_twice);
fn a_call_id_in_use_is_not_taken_twice() {
    let world = World::new(Place::any());
    let (mut broker, _) = Broker::open(&world);
    let marker = long_sleep();
    let call = |command: &str| ToBroker::Call {
        call: 1,
        request: Request::Bash(shell(command)),
    };
    broker.send(&call(&format!("sleep {marker}")));
    assert!(until(LIMIT, || !process::with_marker(&marker).is_empty()));
    broker.send(&call("true"));
    expect_refusal_or_end(broker, 1, &world);
    process::assert_gone(&marker, LIMIT);
}

once_test!(more_calls_than_allowed_are_refused);
fn more_calls_than_allowed_are_refused() {
    let world = World::new(Place::any());
    let (mut broker, _) = Broker::open(&world);
    let marker = long_sleep();
    let sleep = |call| ToBroker::Call {
        call,
        request: Request::Bash(shell(&format!("sleep {marker}"))),
    };
    (0..limit::CALLS as u64).for_each(|call| broker.send(&sleep(call)));
    broker.send(&sleep(1000));
    expect_refusal_or_end(broker, 1000, &world);
    process::assert_gone(&marker, LIMIT);
}

once_test!(requests_over_a_limit_are_refused_and_the_session_goes_on);
fn requests_over_a_limit_are_refused_and_the_session_goes_on() {
    let world = World::new(Place::any());
    let (mut broker, _) = Broker::open(&world);
    let long = Bash {
        timeout_s: Some(1_000_000_000),
        ..shell("true")
    };
    let idle = Bash {
        idle_timeout_s: Some(0),
        ..shell("true")
    };
    let empty = Bash {
        command: Command::Arguments(vec![]),
        ..shell("")
    };
    let nul = Bash {
        command: Command::Arguments(vec![ByteBuf::from(b"a\0b".as_slice())]),
        ..shell("")
    };
    let huge = shell(&"x".repeat(limit::COMMAND + 1));
    let strange = Terminal {
        rows: 1,
        columns: 1,
        term: "x;rm -rf".into(),
    };
    let terminal = Bash {
        stdin: Stdin::Terminal(strange),
        ..shell("true")
    };
    let mut requests: Vec<Request> = [long, idle, empty, nul, huge, terminal]
        .map(Request::Bash)
        .into();
    requests.push(Request::FileRead(FileRead {
        path: zone("a"),
        offset: Some(0),
        limit: None,
    }));
    requests.push(Request::FileEdit(FileEdit {
        path: zone("a"),
        edits: vec![],
        expected_sha256: None,
    }));
    let list = FileList {
        path: zone(""),
        depth: 0,
        hidden: false,
        limit: limit::ENTRIES + 1,
    };
    requests.push(Request::FileList(list));
    let fed = Bash {
        stdin: Stdin::Stream,
        background: true,
        ..shell("true")
    };
    requests.push(Request::Bash(fed));
    requests.push(Request::BackgroundLog(BackgroundLog {
        id: 1,
        from: None,
        most: limit::LOG + 1,
    }));
    requests.push(Request::History(History { limit: 0 }));
    let input = "x".repeat(limit::CONTENT + 1);
    requests.push(Request::Effect(Effect::Added {
        tool: "x".into(),
        risk: Risk::Low,
        input: input.clone(),
    }));
    requests.push(Request::Effect(Effect::WebFetch { url: input.clone() }));
    requests.push(Request::Effect(Effect::WebSearch { query: input }));
    for (call, request) in requests.into_iter().enumerate() {
        let described = format!("{request:?}");
        let done = broker.call(call as u64, request);
        let kind = done.outcome.error();
        assert_eq!(
            kind,
            Some(ErrorKind::InvalidInput),
            "{:.200} gave {done:?}",
            described
        );
    }
    let done = broker.call(100, Request::Bash(shell("exit 4")));
    assert_eq!(end_of(&done.outcome), Some(Ended::Exited(4)));
}

fn write(path: &str, content: &str) -> Request {
    let content = content.into();
    Request::FileWrite(FileWrite {
        path: zone(path),
        content,
        overwrite: true,
        expected_sha256: None,
    })
}

fn edit(path: &str, old: &str, new: &str) -> Request {
    let edits = vec![Edit {
        old: old.into(),
        new: new.into(),
        occurrence: Occurrence::All,
    }];
    Request::FileEdit(FileEdit {
        path: zone(path),
        edits,
        expected_sha256: None,
    })
}

place_test!(no_client_changes_what_it_has_not_read);
/// Attack: a client that does not say what it has read, and one whose worker has forgotten it.
fn no_client_changes_what_it_has_not_read(place: Place) {
    let world = World::new(place);
    world.put("a", "theirs");
    let (mut broker, _) = Broker::open(&world);
    let read = || {
        Request::FileRead(FileRead {
            path: zone("a"),
            offset: None,
            limit: None,
        })
    };
    let refused = |broker: &mut Broker, words: &str| {
        for request in [write("a", "mine"), edit("a", "e", "x")] {
            let failed = broker.ask(1, request).unwrap_err();
            assert_eq!(failed.kind, ErrorKind::InvalidInput);
            assert!(failed.message.contains(words), "{}", failed.message);
        }
    };
    refused(&mut broker, "has not been read");
    // Looking at it is not reading it.
    let list = FileList {
        path: zone(""),
        depth: 1,
        hidden: false,
        limit: 9,
    };
    broker.ask(1, Request::FileList(list)).unwrap();
    refused(&mut broker, "has not been read");
    assert_eq!(world.get("a"), b"theirs");
    // Control: the same frames work once it has been read.
    broker.ask(1, read()).unwrap();
    broker.ask(1, edit("a", "theirs", "ours")).unwrap();
    broker.ask(1, write("a", "mine")).unwrap();
    assert_eq!(world.get("a"), b"mine");
    world.put("a", "eels");
    refused(&mut broker, "was modified since the last read");
    broker.ask(1, read()).unwrap();
    let worker = process::tree(broker.pid())
        .into_iter()
        .find(|part| part.name == "lazaret-worker")
        .unwrap();
    worker.kill();
    assert!(until(LIMIT, || !worker.is_alive()));
    broker.call(2, Request::Bash(shell("true")));
    refused(&mut broker, "has not been read");
    assert_eq!(world.get("a"), b"eels");
    // Nor does another session know what this one has read.
    broker.ask(1, read()).unwrap();
    let (mut other, _) = Broker::open(&world);
    refused(&mut other, "has not been read");
}

place_test!(no_command_touches_the_history);
/// Attack: a command writes what undo goes by. Nothing of that is let through, in either tier.
fn no_command_touches_the_history(place: Place) {
    let world = World::new(place);
    let (mut broker, _) = Broker::open(&world);
    let Ok(FileReply::Written(written)) = broker.ask(1, write("a", "mine")) else {
        panic!()
    };
    let change = written.change.unwrap();
    let store = world.central.join(".lazaret").display().to_string();
    for script in [
        "echo forged > STORE/undo/changes/CHANGE",
        "echo forged > STORE/undo/changes/99",
        "rm STORE/undo/changes/CHANGE",
        "mv STORE/undo/changes/CHANGE STORE/undo/changes/9",
        "mkdir STORE/undo/objects/x",
        "ln STORE/undo/changes/CHANGE $TMPDIR/l && echo x > $TMPDIR/l",
        "ln STORE/undo/changes/CHANGE STORE/../l && echo x > STORE/../l",
        "chmod 777 STORE/undo/changes/CHANGE",
        "mv STORE STORE-away",
        "rm -rf STORE",
        "ln -s STORE/undo/changes/CHANGE by && echo x > by",
    ] {
        let script = script.replace("CHANGE", &change.to_string());
        // Control: where nothing is closed it works.
        let copy = world.outside.join("copy").display().to_string();
        let control = script
            .replace("STORE", &format!("{copy}/store"))
            .replace("by", "../outside/copy/by");
        let control =
            format!("mkdir {copy}; cp -r {store} {copy}/store; {{ {control}; }} && rm -rf {copy}");
        let mut bash = world.host("bash");
        let worked = lazaret_tests::run(bash.env("TMPDIR", &copy).arg("-c").arg(control), LIMIT);
        assert_eq!(
            worked.code(),
            0,
            "{script} does not work without a cell: {}",
            worked.errors()
        );
        let script = script.replace("STORE", &store);
        let done = broker.call(1, Request::Bash(shell(&script)));
        assert!(
            matches!(end_of(&done.outcome), Some(Ended::Exited(1..))),
            "{script}: {:?}",
            done.outcome
        );
    }
    // Control: beside it a command writes as it likes, and reads in it.
    let read =
        format!("grep -q project:a {store}/undo/changes/{change} && echo x > {store}-beside");
    let done = broker.call(1, Request::Bash(shell(&read)));
    assert_eq!(end_of(&done.outcome), Some(Ended::Exited(0)));
    for name in [".lazaret/undo/changes/1", ".lazaret/x", ".LAZARET/x"] {
        let path = ZonePath::new(Zone::Central, name).unwrap();
        let write = FileWrite {
            path,
            content: b"x".into(),
            overwrite: true,
            expected_sha256: None,
        };
        let done = broker.call(1, Request::FileWrite(write));
        assert_eq!(
            done.outcome.error(),
            Some(ErrorKind::DeniedPolicy),
            "{name}"
        );
    }
    let undo = Request::Undo(Undo {
        change,
        path: zone("a"),
        force: false,
    });
    broker.ask(1, undo).unwrap();
    assert!(!world.project.join("a").exists());
}

place_test!(forged_history_restores_nothing_it_should_not);
/// Attack: a program outside a cell forges what undo goes by, and the client asks for it.
fn forged_history_restores_nothing_it_should_not(place: Place) {
    let world = World::new(place);
    world.put("a", "old");
    world.put(".env", "SECRET=1");
    world.put(".git/hooks/post-commit", "theirs");
    let (mut broker, _) = Broker::open(&world);
    broker
        .ask(
            1,
            Request::FileRead(FileRead {
                path: zone("a"),
                offset: None,
                limit: None,
            }),
        )
        .unwrap();
    let Ok(FileReply::Written(written)) = broker.ask(1, write("a", "new")) else {
        panic!()
    };
    let change = written.change.unwrap();
    let undo = |path: &str| {
        Request::Undo(Undo {
            change,
            path: zone(path),
            force: true,
        })
    };
    // Control: what is not forged is restored.
    broker.ask(1, undo("a")).unwrap();
    assert_eq!(world.get("a"), b"old");
    let line = world
        .central
        .join(format!(".lazaret/undo/changes/{change}"));
    let written = std::fs::read_to_string(&line).unwrap();
    let forge = |path: &str| std::fs::write(&line, written.replace("project:a", path)).unwrap();
    for path in [".env", ".git/hooks/post-commit", "sub/.git/config"] {
        forge(&format!("project:{path}"));
        let done = broker.call(1, undo(path));
        assert_eq!(
            done.outcome.error(),
            Some(ErrorKind::DeniedPolicy),
            "{path}: {:?}",
            done.outcome
        );
        let failed = broker.ask(1, undo("a")).unwrap_err();
        assert_eq!(
            failed.kind,
            ErrorKind::InvalidInput,
            "{path} by another name: {}",
            failed.message
        );
    }
    for path in [
        "project:../outside/secret.txt",
        "project:/etc/passwd",
        "project:x/%2e%2e/%2e%2e/outside/x",
    ] {
        forge(path);
        assert_eq!(
            broker.ask(1, undo("a")).unwrap_err().kind,
            ErrorKind::NotFound,
            "{path}"
        );
    }
    forge("project:a");
    let secret = world.outside.join("secret.txt");
    std::fs::remove_file(world.project.join("a")).unwrap();
    std::os::unix::fs::symlink(&secret, world.project.join("a")).unwrap();
    let failed = broker.ask(1, undo("a")).unwrap_err();
    assert_eq!(
        failed.kind,
        ErrorKind::Violation,
        "through a link: {}",
        failed.message
    );
    std::fs::remove_file(world.project.join("a")).unwrap();
    let objects: Vec<_> = std::fs::read_dir(world.central.join(".lazaret/undo/objects"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    objects
        .iter()
        .for_each(|object| std::fs::write(object, "ODD").unwrap());
    assert_eq!(
        broker.ask(1, undo("a")).unwrap_err().kind,
        ErrorKind::NotFound,
        "forged contents"
    );
    for object in &objects {
        std::fs::remove_file(object).unwrap();
        std::os::unix::fs::symlink(&secret, object).unwrap();
    }
    assert_eq!(
        broker.ask(1, undo("a")).unwrap_err().kind,
        ErrorKind::NotFound,
        "links as contents"
    );
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), world.canary);
    assert_eq!(
        (world.get(".env"), world.get(".git/hooks/post-commit")),
        (b"SECRET=1".into(), b"theirs".into())
    );
}

place_test!(background_processes_are_counted_and_are_the_sessions_own);
/// Attack: as many background processes as one likes, and orders to those of others.
fn background_processes_are_counted_and_are_the_sessions_own(place: Place) {
    let world = World::new(place);
    let (mut broker, _) = Broker::open(&world);
    let marker = long_sleep();
    let background = || {
        Request::Bash(Bash {
            background: true,
            live: true,
            ..shell(&format!("setsid sleep {marker} & sleep {marker}"))
        })
    };
    // All at once: those that wait for a cell count too.
    let asked = limit::BACKGROUND as u64 + 4;
    (1..=asked).for_each(|call| {
        broker.send(&ToBroker::Call {
            call,
            request: background(),
        })
    });
    let mut refused = 0;
    for _ in 0..asked {
        let outcome = loop {
            if let FromBroker::Done { outcome, .. } = broker.message() {
                break outcome;
            }
        };
        refused += u64::from(outcome.error() == Some(ErrorKind::ResourceLimit));
    }
    assert_eq!(refused, 4);
    let Ok(FileReply::Background(list)) = broker.ask(1, Request::BackgroundList) else {
        panic!()
    };
    assert_eq!(list.len(), limit::BACKGROUND);
    let mut other = Broker::open(&world).0;
    assert_eq!(
        other.ask(1, Request::BackgroundList),
        Ok(FileReply::Background(vec![]))
    );
    for id in [0, 1, u64::MAX] {
        let kill = Request::BackgroundKill(BackgroundKill { id });
        assert_eq!(other.ask(1, kill).unwrap_err().kind, ErrorKind::NotFound);
    }
    for process in &list {
        let Ok(FileReply::Killed(killed)) = broker.ask(
            1,
            Request::BackgroundKill(BackgroundKill { id: process.id }),
        ) else {
            panic!()
        };
        assert_eq!(killed.ended, Some(Ok(Ended::Cancelled)));
    }
    process::assert_gone(&marker, Duration::ZERO);
    broker.ask(1, background()).unwrap();
    let memory = figure(broker.pid(), "status", "VmRSS").unwrap();
    assert!(memory < MEMORY, "{memory} KiB");
}

once_test!(a_path_that_climbs_is_no_message);
/// The type of a path cannot be made to hold these; the bytes on the wire can.
fn a_path_that_climbs_is_no_message() {
    let world = World::new(Place::any());
    world.write(&world.project.parent().unwrap().join("x"), "not yours");
    for (good, bad) in [
        ("aa/x", "../x"),
        ("abc/d", "a/../"),
        ("ab/c", "/etc"),
        ("abcd", "a\0bc"),
        ("ab/cd", "ab//c"),
    ] {
        let request = Request::FileRead(FileRead {
            path: zone(good),
            offset: None,
            limit: None,
        });
        let frame = framed(&ToBroker::Call { call: 1, request });
        let at = frame
            .windows(good.len())
            .position(|window| window == good.as_bytes())
            .unwrap();
        let mut frame = frame;
        frame[at..at + good.len()].copy_from_slice(bad.as_bytes());
        let (mut broker, _) = Broker::open(&world);
        broker.send_bytes(&frame).unwrap();
        expect_end(broker, &world);
    }
}

once_test!(input_beyond_its_window_ends_the_connection);
fn input_beyond_its_window_ends_the_connection() {
    let world = World::new(Place::any());
    let marker = long_sleep();
    let sleeper = || Bash {
        stdin: Stdin::Stream,
        ..shell(&format!("sleep {marker}"))
    };
    let chunk = || ToBroker::Input {
        call: 1,
        bytes: vec![b'x'; limit::CHUNK],
    };
    let (mut broker, _) = Broker::open(&world);
    broker.send(&ToBroker::Call {
        call: 1,
        request: Request::Bash(sleeper()),
    });
    // A pipe takes 64 KiB of it at most, so twice the window is always beyond it.
    let frames = 2 * limit::INPUT_WINDOW as usize / limit::CHUNK;
    let _ = (0..frames).try_for_each(|_| broker.send_bytes(&framed(&chunk())));
    expect_end(broker, &world);
    let (mut broker, _) = Broker::open(&world);
    broker.send(&ToBroker::Call {
        call: 1,
        request: Request::Bash(sleeper()),
    });
    let _ = broker.send_bytes(&framed(&ToBroker::Input {
        call: 1,
        bytes: vec![b'x'; limit::CHUNK + 1],
    }));
    expect_end(broker, &world);
    process::assert_gone(&marker, LIMIT);
}

place_test!(a_reader_that_gives_no_credit_stops_the_cell);
/// Without credit the cell is stopped, not the broker's memory filled; and it can still be cancelled.
fn a_reader_that_gives_no_credit_stops_the_cell(place: Place) {
    let world = World::new(place);
    let (mut broker, _) = Broker::open(&world);
    let flood = Bash {
        live: true,
        ..shell("yes")
    };
    broker.send(&ToBroker::Call {
        call: 1,
        request: Request::Bash(flood),
    });
    let mut got = 0;
    // The first comes when the cell has started.
    let patience = |got| match got {
        0 => LIMIT,
        _ => Duration::from_millis(700),
    };
    while let Received::Message(message) = broker.receive(patience(got)) {
        let FromBroker::Output { bytes, .. } = message else {
            panic!("{message:?}")
        };
        assert!(bytes.len() <= limit::CHUNK);
        got += bytes.len();
        assert!(
            got <= limit::OUTPUT_WINDOW as usize,
            "{got} bytes came without credit"
        );
    }
    assert!(got > 0, "nothing came at all");
    assert_small(&broker);
    broker.send(&ToBroker::Cancel { call: 1 });
    let done = broker.done(1);
    assert_eq!(end_of(&done.outcome), Some(Ended::Cancelled));
}

once_test!(credit_without_end_costs_no_memory);
/// All the credit in the world, and nobody reads: the socket fills, not the memory.
fn credit_without_end_costs_no_memory() {
    let world = World::new(Place::any());
    let (mut broker, _) = Broker::open(&world);
    let flood = Bash {
        live: true,
        ..shell("yes")
    };
    broker.send(&ToBroker::Call {
        call: 1,
        request: Request::Bash(flood),
    });
    let credit = framed(&ToBroker::Credit {
        call: 1,
        bytes: u32::MAX,
    });
    let _ = broker.send_bytes(&credit.repeat(100));
    // Until the flood stands: its program waits in a pipe that nobody empties, however often one looks.
    let mut looks = 0;
    assert!(until(LIMIT, || {
        let flood = process::below(broker.pid());
        let mut flood = flood.iter().filter(|process| process.command == "yes");
        looks = if flood.any(Process::is_asleep) {
            looks + 1
        } else {
            0
        };
        assert_small(&broker);
        looks == 10
    }));
    drop(broker);
    assert_healthy(&world);
}

place_test!(a_half_open_connection_ends_its_cells);
/// A client that is gone takes its calls with it, whichever half of the connection it closes.
fn a_half_open_connection_ends_its_cells(place: Place) {
    let world = World::new(place);
    for half in [Shutdown::Write, Shutdown::Both] {
        let (mut broker, _) = Broker::open(&world);
        let marker = long_sleep();
        let request = Request::Bash(shell(&format!("setsid sleep {marker} & sleep {marker}")));
        broker.send(&ToBroker::Call { call: 1, request });
        assert!(until(LIMIT, || process::with_marker(&format!(
            "sleep {marker}"
        ))
        .len()
            >= 2));
        broker.stream.shutdown(half).unwrap();
        process::assert_gone(&marker, LIMIT);
        broker.ended(LIMIT);
    }
}

place_test!(a_flood_of_cancelled_terminals_holds_nothing_up);
/// Each call at a terminal is a request to the warden, which a cancel does not take back. Sent as fast as they are read, they filled
/// its socket in both directions, and the broker waited for ever.
fn a_flood_of_cancelled_terminals_holds_nothing_up(place: Place) {
    const FLOOD: std::ops::Range<CallId> = 1000..2200;
    let world = World::new(place);
    let (mut broker, _) = Broker::open(&world);
    let marker = long_sleep();
    let limited = Bash {
        timeout_s: Some(2),
        ..shell(&format!("sleep {marker}"))
    };
    broker.send(&ToBroker::Call {
        call: 1,
        request: Request::Bash(limited),
    });
    let size = Terminal {
        rows: 24,
        columns: 80,
        term: "dumb".into(),
    };
    let terminal = Bash {
        stdin: Stdin::Terminal(size),
        ..shell("tty")
    };
    let begin = |call| {
        framed(&ToBroker::Call {
            call,
            request: Request::Bash(terminal.clone()),
        })
    };
    let cancel = |call| framed(&ToBroker::Cancel { call });
    let flood: Vec<u8> = FLOOD
        .flat_map(|call| [begin(call), cancel(call)].concat())
        .collect();
    broker.send_bytes(&flood).unwrap();
    broker.send(&ToBroker::Call {
        call: 2,
        request: Request::Bash(shell("exit 4")),
    });
    broker.send(&ToBroker::Call {
        call: 3,
        request: Request::Bash(terminal.clone()),
    });
    (0..5000).for_each(|_| {
        broker.send(&ToBroker::Signal {
            call: 1,
            signal: Signal::Hangup,
        })
    });
    let mut ends = BTreeMap::new();
    while !(1..=3).all(|call| ends.contains_key(&call)) {
        match broker.message() {
            FromBroker::Done { call, outcome, .. } => {
                let end = end_of(&outcome);
                // A cell whose orders were full of signals is not the next call's.
                assert!(![2, 3].contains(&call) || end.is_some(), "{outcome:?}");
                ends.insert(call, end);
            }
            FromBroker::Fault(failed) => panic!("the broker ended the connection: {failed:?}"),
            _ => {}
        }
    }
    assert_eq!(
        (ends[&2], ends[&3]),
        (Some(Ended::Exited(4)), Some(Ended::Exited(0)))
    );
    assert!(
        FLOOD
            .filter_map(|call| ends.get(&call))
            .all(|end| *end == Some(Ended::Cancelled))
    );
    process::assert_gone(&marker, LIMIT);
}

place_test!(time_limits_go_on_while_nobody_reads);
/// The client's socket is full: what it would be sent waits, and the clocks of its calls do not.
fn time_limits_go_on_while_nobody_reads(place: Place) {
    let world = World::new(place);
    let (mut broker, _) = Broker::open(&world);
    let marker = long_sleep();
    let limited = Bash {
        timeout_s: Some(2),
        ..shell(&format!("sleep {marker}"))
    };
    broker.send(&ToBroker::Call {
        call: 1,
        request: Request::Bash(limited),
    });
    assert!(until(LIMIT, || !process::with_marker(&format!(
        "sleep {marker}"
    ))
    .is_empty()));
    let flood = Bash {
        live: true,
        ..shell("yes")
    };
    broker.send(&ToBroker::Call {
        call: 2,
        request: Request::Bash(flood),
    });
    let credit = framed(&ToBroker::Credit {
        call: 2,
        bytes: u32::MAX,
    });
    let _ = broker.send_bytes(&credit.repeat(1000));
    process::assert_gone(&marker, LIMIT);
    assert_small(&broker);
}

once_test!(descriptors_sent_along_are_not_kept, own_process);
fn descriptors_sent_along_are_not_kept() {
    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
    let world = World::new(Place::any());
    let (mut broker, _) = Broker::open(&world);
    let secret = std::fs::File::open(world.outside.join("secret.txt")).unwrap();
    // The broker hides its descriptors from its own user; root can read what they are.
    let kept = |process: i32| -> Option<usize> {
        let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).ok()?;
        let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        Some(
            targets
                .filter(|target| target.ends_with("secret.txt"))
                .count(),
        )
    };
    assert_eq!(
        kept(std::process::id() as i32),
        Some(1),
        "the control: the count finds the one of this test"
    );
    let frame = framed(&ToBroker::Cancel { call: 99 });
    for _ in 0..50 {
        let descriptors = [secret.as_raw_fd(); 8];
        let with = [ControlMessage::ScmRights(&descriptors)];
        let bytes = [std::io::IoSlice::new(&frame)];
        sendmsg::<()>(
            broker.stream.as_raw_fd(),
            &bytes,
            &with,
            MsgFlags::empty(),
            None,
        )
        .unwrap();
    }
    let done = broker.call(1, Request::Bash(shell("ls -l /proc/self/fd")));
    assert!(end_of(&done.outcome) == Some(Ended::Exited(0)), "{done:?}");
    let Outcome::Ran(ran) = &done.outcome else {
        panic!("{done:?}")
    };
    assert!(
        !process::contains(&ran.output.head, b"secret.txt"),
        "a cell has the descriptor"
    );
    let of_broker = kept(broker.pid());
    assert!(
        matches!(of_broker, None | Some(0)),
        "the broker keeps {of_broker:?} of them"
    );
}

once_test!(a_root_that_is_not_a_folder_of_the_user_opens_nothing);
/// Paths of another session's project, given as this one's: the roots are those of the opening, and names are below them.
fn a_root_that_is_not_a_folder_of_the_user_opens_nothing() {
    let world = World::new(Place::any());
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let missing = text(&world.project.join("missing"));
    let file = text(&world.put("file", "x"));
    for project in [
        missing,
        file,
        "relative".into(),
        String::new(),
        "/proc/self/fd".into(),
        "/".into(),
    ] {
        let mut broker = Broker::greeted(&world);
        broker.send(&ToBroker::Open(Open {
            project: project.clone(),
            ..opening(&world)
        }));
        match broker.receive(LIMIT) {
            Received::Message(FromBroker::Fault(_)) | Received::Closed => {}
            other => panic!("{project:?} was answered with {other:?}"),
        }
    }
    let mut broker = Broker::greeted(&world);
    broker.send(&ToBroker::Open(Open {
        profile: "../../etc/passwd".into(),
        ..opening(&world)
    }));
    expect_end(broker, &world);
}

/// An effect that the broker gives leave for.
fn fetch(broker: &mut Broker, call: CallId) {
    let done = broker.call(
        call,
        Request::Effect(Effect::WebFetch {
            url: "https://example.org/".into(),
        }),
    );
    assert_eq!(done.outcome, Outcome::Granted);
}

/// Has a text kept in pieces, and says what became of it.
#[track_caller]
fn save_output(broker: &mut Broker, call: CallId, text: &[u8]) -> Option<Spill> {
    let mut pieces = text.chunks(limit::CHUNK).peekable();
    while let Some(piece) = pieces.next() {
        broker.send(&ToBroker::Keep {
            call,
            bytes: piece.to_vec(),
            last: pieces.peek().is_none(),
        });
    }
    match broker.message() {
        FromBroker::Kept { call: of, spill } if of == call => spill,
        other => panic!("{other:?}"),
    }
}

/// The names of what stands beside the spill files of commands.
fn outputs(world: &World) -> Vec<String> {
    let names = std::fs::read_dir(world.central.join("outputs"))
        .into_iter()
        .flatten()
        .flatten();
    names
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect()
}

place_test!(saved_text_is_a_file_like_the_output_of_a_command);
/// A text that a client saves is a new file with a name of the broker's, that no session has read, in nobody else's hands.
fn saved_text_is_a_file_like_the_output_of_a_command(place: Place) {
    use std::os::unix::fs::MetadataExt;
    let world = World::new(place);
    let (mut broker, _) = Broker::open(&world);
    fetch(&mut broker, 1);
    let text: Vec<u8> = (0..3 * limit::CHUNK + 1)
        .map(|at| b'a' + (at % 26) as u8)
        .collect();
    let spill = save_output(&mut broker, 1, &text).unwrap();
    assert_eq!(
        (spill.bytes, spill.whole, spill.path.zone()),
        (text.len() as u64, true, Zone::Central)
    );
    let file = world.central.join(spill.path.relative());
    assert_eq!(std::fs::read(&file).unwrap(), text);
    assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o7777, 0o600);
    let name = spill.path.relative().strip_prefix("outputs/").unwrap();
    assert!(
        name.ends_with("-1.log")
            && name
                .bytes()
                .all(|byte| b"-.log".contains(&byte) || byte.is_ascii_digit())
    );
    // Kept is not read: it cannot be overwritten before it was.
    let change = FileWrite {
        path: spill.path.clone(),
        content: b"x".into(),
        overwrite: true,
        expected_sha256: None,
    };
    let unread = broker
        .ask(2, Request::FileWrite(change.clone()))
        .unwrap_err();
    assert!(
        unread.message.contains("has not been read"),
        "{}",
        unread.message
    );
    let read = FileRead {
        path: spill.path,
        offset: None,
        limit: None,
    };
    let Ok(FileReply::Read(read)) = broker.ask(2, Request::FileRead(read)) else {
        panic!()
    };
    assert_eq!(read.content, text);
    broker.ask(2, Request::FileWrite(change)).unwrap();
}

once_test!(nothing_is_kept_without_an_effect_that_had_leave);
fn nothing_is_kept_without_an_effect_that_had_leave() {
    let world = World::new(Place::any());
    let (mut broker, _) = Broker::open(&world);
    assert_eq!(save_output(&mut broker, 99, b"no such call"), None);
    // A command, a file tool and an effect that was refused give no leave.
    broker.call(1, Request::Bash(shell("true")));
    assert_eq!(save_output(&mut broker, 1, b"of a command"), None);
    let _ = broker.ask(
        1,
        Request::FileRead(FileRead {
            path: zone("none"),
            offset: None,
            limit: None,
        }),
    );
    assert_eq!(save_output(&mut broker, 1, b"of a file"), None);
    let bash = Effect::Added {
        tool: "bash".into(),
        risk: Risk::Low,
        input: "{}".into(),
    };
    assert!(
        broker
            .call(1, Request::Effect(bash))
            .outcome
            .error()
            .is_some()
    );
    assert_eq!(save_output(&mut broker, 1, b"of what was refused"), None);
    assert!(outputs(&world).is_empty());
    // One text an effect; of nothing there is no file.
    fetch(&mut broker, 1);
    broker.send(&ToBroker::Keep {
        call: 1,
        bytes: vec![],
        last: true,
    });
    assert_eq!(
        broker.message(),
        FromBroker::Kept {
            call: 1,
            spill: None
        }
    );
    fetch(&mut broker, 1);
    assert!(save_output(&mut broker, 1, b"once").is_some());
    assert_eq!(save_output(&mut broker, 1, b"twice"), None);
    assert_eq!(outputs(&world).len(), 1);
    // Of more effects than have leave, the oldest has it no longer.
    (100..101 + limit::KEEPS as u64).for_each(|call| fetch(&mut broker, call));
    assert_eq!(save_output(&mut broker, 100, b"too late"), None);
    assert!(save_output(&mut broker, 101, b"in time").is_some());
    assert_eq!(outputs(&world).len(), 2);
    // Unfinished calls do not keep the session from its end, and are in the audit.
    broker.send(&ToBroker::Keep {
        call: 102,
        bytes: b"half".into(),
        last: false,
    });
    drop(broker);
    let audit =
        || std::fs::read_to_string(world.state.join("lazaret/audit/audit-000001.jsonl")).unwrap();
    assert!(until(LIMIT, || audit().contains("closed")));
    let records = audit();
    let kept: Vec<serde_json::Value> = records
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|record: &serde_json::Value| record["kind"] == "kept")
        .collect();
    assert_eq!(
        kept.iter()
            .map(|record| &record["bytes"])
            .collect::<Vec<_>>(),
        [4, 7, 4]
    );
    assert_eq!(
        (&kept[0]["tool"], &kept[0]["whole"]),
        (&"web_fetch".into(), &true.into())
    );
    // printf once | sha256sum
    assert_eq!(
        kept[0]["sha256"],
        "200651a8b2d5912f692db89468a7d47d86a3ed6844f48f1b15f2be1d9c9a7e5e"
    );
}

once_test!(a_piece_that_is_too_long_ends_the_connection);
fn a_piece_that_is_too_long_ends_the_connection() {
    let world = World::new(Place::any());
    let (mut broker, _) = Broker::open(&world);
    fetch(&mut broker, 1);
    assert!(save_output(&mut broker, 1, &vec![b'x'; limit::CHUNK]).is_some());
    fetch(&mut broker, 2);
    broker.send(&ToBroker::Keep {
        call: 2,
        bytes: vec![b'x'; limit::CHUNK + 1],
        last: true,
    });
    expect_end(broker, &world);
    assert_eq!(outputs(&world).len(), 1);
}

once_test!(saved_texts_have_a_limit_each_and_a_budget_a_session);
/// A taken-over client keeps what it can: each text ends at the policy's `spill`, all of them at the session's budget.
fn saved_texts_have_a_limit_each_and_a_budget_a_session() {
    let world = World::new(Place::any());
    let (mut broker, _) = Broker::open(&world);
    let cap = 10 << 20;
    let text = vec![b'x'; cap + 1];
    let (mut kept, mut all) = (vec![], 0);
    for (call, length) in [
        (1, cap),
        (2, cap + 1),
        (3, cap),
        (4, cap),
        (5, cap),
        (6, cap),
        (7, cap),
        (8, 1),
    ] {
        fetch(&mut broker, call);
        let spill = save_output(&mut broker, call, &text[..length]);
        all += spill.as_ref().map_or(0, |spill| spill.bytes);
        kept.push(spill.map(|spill| (spill.bytes, spill.whole)));
    }
    let full = Some((cap as u64, true));
    let rest = limit::KEPT - 7 * limit::KEPT_BLOCK - 6 * cap as u64;
    assert_eq!(
        kept,
        [
            full,
            Some((cap as u64, false)),
            full,
            full,
            full,
            full,
            Some((rest, false)),
            None
        ]
    );
    let on_disk = |name: &String| {
        std::fs::metadata(world.central.join("outputs").join(name))
            .unwrap()
            .len()
    };
    assert_eq!(outputs(&world).iter().map(on_disk).sum::<u64>(), all);
    assert!(all < limit::KEPT);
    assert_small(&broker);
    // The session goes on, and what a command prints is kept as ever.
    let done = broker.call(9, Request::Bash(shell("head -c 200000 /dev/zero")));
    assert!(
        matches!(done.outcome, Outcome::Ran(Ran { spill: Some(_), .. })),
        "{done:?}"
    );
    println!("{all} bytes of {} were kept in 7 files", 7 * cap + 2);
}

place_test!(text_that_cannot_be_saved_harms_nothing);
/// Where the files cannot be made, the client hears that nothing was saved, and no link leads out.
fn text_that_cannot_be_saved_harms_nothing(place: Place) {
    let world = World::new(place);
    let (mut broker, _) = Broker::open(&world);
    std::os::unix::fs::symlink(&world.outside, world.central.join("outputs")).unwrap();
    let before = std::fs::read_dir(&world.outside).unwrap().count();
    fetch(&mut broker, 1);
    assert_eq!(save_output(&mut broker, 1, b"text"), None);
    assert_eq!(std::fs::read_dir(&world.outside).unwrap().count(), before);
    let done = broker.call(2, Request::Bash(shell("exit 3")));
    assert_eq!(end_of(&done.outcome), Some(Ended::Exited(3)));
    // Control: without the link it works.
    std::fs::remove_file(world.central.join("outputs")).unwrap();
    fetch(&mut broker, 3);
    assert!(save_output(&mut broker, 3, b"text").is_some());
}

place_test!(root_inside_protected_name_is_refused);
/// Names are matched below a root, so that a root which is a protected place itself would have none of them closed.
fn root_inside_protected_name_is_refused(place: Place) {
    let world = World::new(place);
    let folders = [
        "a/.git/hooks",
        "a/.git/worktrees/w",
        "b.git",
        "c.git/hooks",
        "a/.ssh/x",
        "a/.vscode",
        "a/.claude/x",
    ];
    folders
        .iter()
        .for_each(|folder| world.make_folder(&world.project.join(folder)));
    std::os::unix::fs::symlink("a/.git", world.project.join("link")).unwrap();
    for tree in [
        "tree/.git",
        "a/.claude/w/.git",
        "a/.git/hooks/.git",
        "a/.ssh/x/.git",
    ] {
        world.put(tree, "gitdir: ../a/.git/worktrees/w\n");
    }
    let at = |name: &str| world.project.join(name).to_str().unwrap().to_owned();
    let home = world.home.to_str().unwrap().to_owned();
    let answer = |open: Open| {
        let mut broker = Broker::greeted(&world);
        broker.send(&ToBroker::Open(open));
        match broker.receive(LIMIT) {
            Received::Message(FromBroker::Fault(failed)) => Err(failed),
            Received::Message(FromBroker::Opened(_)) => Ok(broker),
            other => panic!("{other:?}"),
        }
    };
    for (root, instead) in [
        (at("a/.git"), at("a")),
        (at("a/.git/hooks"), at("a")),
        (at("a/.git/worktrees/w"), at("a")),
        (at("link"), at("a")),
        (at("a/.ssh/x"), at("a")),
        (at("a/.vscode"), at("a")),
        (at("a/.claude/x"), at("a")),
        (at("a/.claude/w"), at("a")),
        (
            at("c.git/hooks"),
            world.project.to_str().unwrap().to_owned(),
        ),
        (format!("{home}/.ssh"), "a directory outside it".into()),
        (home.clone(), "choose a directory inside it".into()),
    ] {
        for open in [
            Open {
                project: root.clone(),
                ..opening(&world)
            },
            Open {
                central: root.clone(),
                ..opening(&world)
            },
        ] {
            let failed = answer(open)
                .err()
                .unwrap_or_else(|| panic!("{root} is a root"));
            assert_eq!(failed.kind, ErrorKind::InvalidInput);
            assert!(
                failed.message.ends_with(&instead),
                "{root}: {}",
                failed.message
            );
        }
    }
    // What git calls so is a directory like any other, and there the very same writes go through.
    for root in ["b.git", "tree", "a"] {
        // A central root serves one project.
        let central = world
            .home
            .join(format!("central of {}", root.replace('/', "_")));
        world.make_folder(&central);
        let central = central.to_str().unwrap().to_owned();
        let opened = answer(Open {
            project: at(root),
            central,
            ..opening(&world)
        });
        let mut broker = opened.unwrap_or_else(|failed| panic!("{root}: {}", failed.message));
        broker.call(
            1,
            Request::Bash(shell(
                "mkdir -p hooks; echo x > hooks/pre-commit; echo x > .git/hooks/x",
            )),
        );
    }
    assert_eq!(world.get("b.git/hooks/pre-commit"), b"x\n");
    assert!(!world.project.join("a/.git/hooks/x").exists());
}

place_test!(a_central_root_serves_one_project);
/// Files kept for one project are not opened by a session of another, whatever its directory is called, and no command of the
/// first gives it away.
fn a_central_root_serves_one_project(place: Place) {
    let world = World::new(place);
    let other = world.home.join("other");
    world.make_folder(&other);
    let elsewhere = Open {
        project: other.to_str().unwrap().to_owned(),
        ..opening(&world)
    };
    let (mut broker, _) = Broker::open(&world);
    let record = world.central.join(".lazaret/project");
    assert_eq!(
        std::fs::read(&record).unwrap(),
        world.project.to_str().unwrap().as_bytes()
    );
    for attack in [
        "echo x > {}",
        "rm {}",
        "mv {} {}.old",
        "chmod 777 {}",
        "ln -sf /etc/passwd {}",
    ] {
        let attack = attack.replace("{}", record.to_str().unwrap());
        broker.call(1, Request::Bash(shell(&attack)));
    }
    drop(broker);
    let mut stranger = Broker::greeted(&world);
    stranger.send(&ToBroker::Open(elsewhere.clone()));
    match stranger.message() {
        FromBroker::Fault(fault) => {
            assert_eq!(fault.kind, ErrorKind::InvalidInput);
            assert!(
                fault.message.contains(world.project.to_str().unwrap()),
                "{}",
                fault.message
            );
        }
        message => panic!("{message:?}"),
    }
    assert_healthy(&world);
    // The control: once the user has removed the record, another project may have the directory.
    std::fs::remove_file(&record).unwrap();
    let program = world.program("lazaret-executor");
    drop(Broker::open_by(&world, program, elsewhere));
}

once_test!(spare_cells_are_few);
/// However many spare cells a client asks for, it gets a few.
fn spare_cells_are_few() {
    let world = World::new(Place::any());
    let mut broker = Broker::greeted(&world);
    broker.send(&ToBroker::Open(Open {
        spare: 255,
        ..opening(&world)
    }));
    let opened = broker.message();
    assert!(matches!(opened, FromBroker::Opened(_)), "{opened:?}");
    // A command has cells made, and none is made any more when their number stays.
    broker.call(1, Request::Bash(shell("true")));
    let (mut processes, mut looks) = (0, 0);
    assert!(until(LIMIT, || {
        let now = process::tree(broker.pid()).len();
        assert!(now < 12, "{now} processes");
        looks = if std::mem::replace(&mut processes, now) == now {
            looks + 1
        } else {
            0
        };
        looks == 10
    }));
}

/// The connection ends with a fault or without a word, the broker is gone, and another session works.
#[track_caller]
fn expect_end(mut broker: Broker, world: &World) {
    loop {
        match broker.receive(LIMIT) {
            Received::Message(FromBroker::Fault(_)) | Received::Closed => break,
            Received::Message(_) => {}
            Received::Nothing => panic!("the broker neither answers nor ends"),
        }
    }
    assert_small(&broker);
    let _ = broker.stream.flush();
    let status = broker.ended(LIMIT);
    assert!(!is_crash(status), "the broker ended with {status:?}");
    assert_healthy(world);
}

/// A call is refused by name, or the connection ends.
#[track_caller]
fn expect_refusal_or_end(mut broker: Broker, call: CallId, world: &World) {
    loop {
        match broker.receive(LIMIT) {
            Received::Message(FromBroker::Fault(_)) | Received::Closed => break,
            Received::Message(FromBroker::Done {
                call: of, outcome, ..
            }) if of == call => {
                assert!(
                    matches!(outcome, Outcome::Failed(_) | Outcome::Refused(_)),
                    "{outcome:?}"
                );
                break;
            }
            Received::Message(_) => {}
            Received::Nothing => panic!("the broker neither refuses nor ends"),
        }
    }
    drop(broker);
    assert_healthy(world);
}

#[track_caller]
fn assert_healthy(world: &World) {
    let (mut broker, _) = Broker::open(world);
    let done = broker.call(1, Request::Bash(shell("exit 3")));
    assert_eq!(
        end_of(&done.outcome),
        Some(Ended::Exited(3)),
        "the next session: {done:?}"
    );
}

/// A broker that has ended has no figure; that is small too.
#[track_caller]
fn assert_small(broker: &Broker) {
    let peak = figure(broker.pid(), "status", "VmHWM").unwrap_or(0);
    assert!(peak < MEMORY, "the broker has taken {peak} KiB");
}

fn is_crash(status: std::process::ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.signal().is_some() || status.code() == Some(101)
}

fn zone(path: &str) -> ZonePath {
    ZonePath::new(Zone::Project, path).unwrap()
}
