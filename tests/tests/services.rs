//! Long-lived programs: they are fed and heard for as long as their session lasts, without a time limit, and one that is hostile
//! gets no further than a command, harms only itself, and leaves nothing.

use broker_protocol::*;
use lazaret_tests::process::{self, figure};
use lazaret_tests::wire::{Received, end_of, framed, opening, shell};
use lazaret_tests::world::long_sleep;
use lazaret_tests::{Broker, LIMIT, Place, World, once_test, place_test, run};
use serde_json::Value;
use std::net::TcpListener;
use std::time::Duration;

/// More than this a broker never needs, in KiB.
const MEMORY: u64 = 32 * 1024;

fn service(script: &str) -> Service {
    let command = ["bash", "-c", script].map(|word| word.as_bytes().to_vec().into());
    Service {
        name: "test".into(),
        command: Command::Arguments(command.into()),
        directory: None,
        environment: Vec::new(),
    }
}

fn start(broker: &mut Broker, call: CallId, service: Service) {
    broker.send(&ToBroker::Call {
        call,
        request: Request::Service(service),
    });
}

/// Output of `call` until `text` is in it. With credit for all of it.
#[track_caller]
fn wait_for(broker: &mut Broker, call: CallId, text: &str) -> String {
    let mut output = Vec::new();
    while !process::contains(&output, text.as_bytes()) {
        match broker.message() {
            FromBroker::Output {
                call: of, bytes, ..
            } if of == call => {
                broker.send(&ToBroker::Credit {
                    call,
                    bytes: bytes.len() as u32,
                });
                output.extend(bytes);
            }
            FromBroker::InputCredit { .. } => {}
            other => panic!(
                "{other:?} in place of {text:?}; so far {:?}",
                String::from_utf8_lossy(&output)
            ),
        }
    }
    String::from_utf8(output).unwrap()
}

#[track_caller]
fn assert_small(broker: &Broker) {
    let peak = figure(broker.pid(), "status", "VmHWM").unwrap_or(0);
    assert!(peak < MEMORY, "the broker has taken {peak} KiB");
}

place_test!(service_exchanges_input_and_output_until_its_input_ends);
fn service_exchanges_input_and_output_until_its_input_ends(place: Place) {
    let world = World::new(place);
    let (mut broker, _) = Broker::open(&world);
    let script = "echo ready $TOKEN/$TZ/${PLAIN_NAME-none}/${MY_API_KEY-none}; echo aside >&2; while read -r line; do \
                  echo \"<$line>\"; done; echo bye";
    let variable = |name: &str, value: &str| Variable {
        name: name.into(),
        value: value.into(),
    };
    let environment = vec![variable("TOKEN", "named"), variable("TZ", "UTC")];
    start(
        &mut broker,
        1,
        Service {
            environment,
            ..service(script)
        },
    );
    // Nothing of the executor's environment comes along that is not named: control in `escapes`.
    let first = wait_for(&mut broker, 1, "/none/none\n");
    assert!(first.contains("ready named/UTC/none/none"), "{first}");
    for line in ["one", "two"] {
        broker.send(&ToBroker::Input {
            call: 1,
            bytes: format!("{line}\n").into(),
        });
        wait_for(&mut broker, 1, &format!("<{line}>"));
    }
    // Other calls go on beside it.
    assert_eq!(
        end_of(&broker.call(2, Request::Bash(shell("true"))).outcome),
        Some(Ended::Exited(0))
    );
    broker.send(&ToBroker::InputEnd { call: 1 });
    let done = broker.done(1);
    assert!(done.output.ends_with(b"bye\n"));
    let Outcome::Ran(ran) = done.outcome else {
        panic!("{:?}", done.outcome)
    };
    assert_eq!(
        (ran.ended, ran.timeout_s, ran.spill),
        (Ended::Exited(0), None, None)
    );
    assert_eq!(
        (ran.output.head.len(), ran.output.tail.len()),
        (0, 0),
        "what it prints is kept nowhere"
    );
    assert!(ran.output.omitted > 0 && !world.central.join("outputs").exists());
    let reserved = Service {
        environment: vec![variable("PATH", "/x")],
        ..service("true")
    };
    let done = broker.call(3, Request::Service(reserved));
    assert!(matches!(
        done.outcome,
        Outcome::Failed(Failed {
            kind: ErrorKind::InvalidInput,
            ..
        })
    ));
}

place_test!(service_outlives_every_time_limit);
fn service_outlives_every_time_limit(place: Place) {
    let world = World::new(place);
    policy(
        &world,
        "[profile.short]\n[profile.short.limits]\ntimeout_s = 1\ntimeout_max_s = 1\noutput = 1000\n",
    );
    let short = Open {
        profile: "short".into(),
        ..opening(&world)
    };
    let (mut broker, _) = Broker::open_by(&world, executor(&world), short);
    start(
        &mut broker,
        1,
        service("read -r _; head -c 2000 /dev/zero; echo late"),
    );
    let sleeper = broker.call(2, Request::Bash(shell("sleep 60")));
    assert_eq!(
        end_of(&sleeper.outcome),
        Some(Ended::TimedOut),
        "control: the limit holds for a command"
    );
    let loud = broker.call(3, Request::Bash(shell("yes")));
    assert_eq!(
        end_of(&loud.outcome),
        Some(Ended::Limited(Limit::Output)),
        "control"
    );
    broker.send(&ToBroker::Input {
        call: 1,
        bytes: b"\n".into(),
    });
    let done = broker.done(1);
    assert_eq!(end_of(&done.outcome), Some(Ended::Exited(0)));
    assert!(done.output.ends_with(b"late\n"));
}

fn policy(world: &World, text: &str) {
    world.set_policy(format!("version = 1\n{text}"));
}

/// The executor with the settings that [`policy`] writes.
fn executor(world: &World) -> std::process::Command {
    let mut command = world.program("lazaret-executor");
    command.env("XDG_CONFIG_HOME", world.home.join("settings"));
    command
}

/// Each prints GOT where it works.
fn attacks(world: &World, port: u16) -> [(&'static str, String); 4] {
    let [home, outside] = [&world.home, &world.outside].map(|path| path.display().to_string());
    [
        (
            "reads a key",
            format!("grep -q CANARY {home}/.ssh/id_rsa && echo GOT"),
        ),
        ("writes outside", format!("touch {outside}/new && echo GOT")),
        (
            "phones out",
            format!("(exec 3<>/dev/tcp/127.0.0.1/{port}) && echo GOT"),
        ),
        (
            "reads the environment of its executor",
            "[ -n \"$PLAIN_NAME\" ] && echo GOT".to_owned(),
        ),
    ]
}

place_test!(a_hostile_one_gets_nothing);
fn a_hostile_one_gets_nothing(place: Place) {
    let world = World::new(place);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut broker, _) = Broker::open(&world);
    let attacks = attacks(&world, listener.local_addr().unwrap().port());
    for (call, (what, script)) in (1..).zip(&attacks) {
        start(&mut broker, call, service(&format!("{script}; echo END")));
        let got = wait_for(&mut broker, call, "END");
        assert!(!got.contains("GOT"), "{what}: {got}");
        broker.done(call);
        let mut outside = world.host("bash");
        outside
            .args(["-c", script])
            .env("PLAIN_NAME", &world.canary);
        let control = run(&mut outside, LIMIT);
        assert!(
            control.text().contains("GOT"),
            "{what} does not work without a cell: {}",
            control.errors()
        );
    }
}

place_test!(nothing_of_one_is_left);
fn nothing_of_one_is_left(place: Place) {
    let world = World::new(place);
    for how in ["its end", "a cancel", "the end of the session"] {
        let (mut broker, _) = Broker::open(&world);
        let marker = long_sleep();
        let script = format!(
            "setsid sleep {marker} & (trap '' TERM HUP; sleep {marker}) & echo ready; read -r _"
        );
        start(&mut broker, 1, service(&script));
        wait_for(&mut broker, 1, "ready");
        assert!(
            process::until(LIMIT, || process::with_marker(&marker).len() >= 2),
            "control: they run"
        );
        match how {
            "its end" => {
                broker.send(&ToBroker::InputEnd { call: 1 });
                assert!(matches!(
                    end_of(&broker.done(1).outcome),
                    Some(Ended::Exited(_))
                ));
            }
            "a cancel" => {
                broker.send(&ToBroker::Cancel { call: 1 });
                assert_eq!(end_of(&broker.done(1).outcome), Some(Ended::Cancelled));
            }
            _ => drop(broker),
        }
        process::assert_gone(&marker, LIMIT);
    }
}

place_test!(a_flood_waits_for_its_reader);
fn a_flood_waits_for_its_reader(place: Place) {
    let world = World::new(place);
    let (mut broker, _) = Broker::open(&world);
    start(&mut broker, 1, service("yes"));
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
        got += bytes.len();
        assert!(
            got <= limit::OUTPUT_WINDOW as usize,
            "{got} bytes came without credit"
        );
    }
    assert!(got > 0, "nothing came at all");
    assert_small(&broker);
    assert_eq!(
        end_of(&broker.call(2, Request::Bash(shell("true"))).outcome),
        Some(Ended::Exited(0))
    );
    broker.send(&ToBroker::Cancel { call: 1 });
    assert_eq!(end_of(&broker.done(1).outcome), Some(Ended::Cancelled));
    assert!(
        !world.central.join("outputs").exists(),
        "nothing of it is on the disk"
    );
}

place_test!(service_that_reads_nothing_harms_only_itself);
fn service_that_reads_nothing_harms_only_itself(place: Place) {
    let world = World::new(place);
    let (mut broker, _) = Broker::open(&world);
    let marker = long_sleep();
    start(
        &mut broker,
        1,
        service(&format!("echo ready; exec sleep {marker}")),
    );
    wait_for(&mut broker, 1, "ready");
    let mut left = limit::INPUT_WINDOW as usize;
    while left > 0 {
        let bytes = vec![b'x'; left.min(limit::CHUNK)];
        left -= bytes.len();
        broker.send(&ToBroker::Input { call: 1, bytes });
    }
    // What a pipe holds is given back, and no more.
    let mut credit = 0;
    while let Received::Message(message) = broker.receive(Duration::from_millis(700)) {
        let FromBroker::InputCredit { call: 1, bytes } = message else {
            panic!("{message:?}")
        };
        credit += bytes;
    }
    assert!(credit < limit::INPUT_WINDOW, "{credit} bytes were taken");
    assert_eq!(
        end_of(&broker.call(2, Request::Bash(shell("true"))).outcome),
        Some(Ended::Exited(0))
    );
    assert_small(&broker);
    broker.send(&ToBroker::Cancel { call: 1 });
    assert_eq!(end_of(&broker.done(1).outcome), Some(Ended::Cancelled));
    process::assert_gone(&marker, LIMIT);
}

once_test!(more_input_than_its_window_ends_the_connection);
fn more_input_than_its_window_ends_the_connection() {
    let world = World::new(Place::any());
    let (mut broker, _) = Broker::open(&world);
    start(&mut broker, 1, service("echo ready; exec sleep 60"));
    wait_for(&mut broker, 1, "ready");
    for _ in 0..=(2 * limit::INPUT_WINDOW as usize / limit::CHUNK) {
        // It may have ended the connection before the last of them.
        let _ = broker.send_bytes(&framed(&ToBroker::Input {
            call: 1,
            bytes: vec![b'x'; limit::CHUNK],
        }));
    }
    loop {
        match broker.message() {
            FromBroker::InputCredit { .. } => {}
            FromBroker::Fault(failed) => break assert_eq!(failed.kind, ErrorKind::Protocol),
            other => panic!("{other:?}"),
        }
    }
    broker.ended(LIMIT);
}

place_test!(service_that_dies_at_once_reports_its_end);
fn service_that_dies_at_once_reports_its_end(place: Place) {
    let world = World::new(place);
    let (mut broker, _) = Broker::open(&world);
    start(&mut broker, 1, service("echo sorry >&2; exit 3"));
    broker.send(&ToBroker::Input {
        call: 1,
        bytes: b"nobody reads this\n".into(),
    });
    let done = broker.done(1);
    assert_eq!(
        (end_of(&done.outcome), done.output.as_slice()),
        (Some(Ended::Exited(3)), &b"sorry\n"[..])
    );
    let missing = Service {
        command: Command::Arguments(vec![b"no-such-program".to_vec().into()]),
        ..service("")
    };
    let done = broker.call(2, Request::Service(missing));
    assert!(
        matches!(end_of(&done.outcome), Some(Ended::NotStarted(_))),
        "{:?}",
        done.outcome
    );
}

place_test!(each_stands_in_the_audit_at_its_start_and_end);
fn each_stands_in_the_audit_at_its_start_and_end(place: Place) {
    let world = World::new(place);
    let (mut broker, _) = Broker::open(&world);
    let records = |kind: &str| -> Vec<Value> {
        let file = world.state.join("lazaret/audit/audit-000001.jsonl");
        let text = std::fs::read_to_string(file).unwrap();
        let all = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.filter(|record| record["kind"] == kind && record["tool"] == "service")
            .collect()
    };
    let secret = Variable {
        name: "API_TOKEN".into(),
        value: world.canary.clone(),
    };
    start(
        &mut broker,
        1,
        Service {
            environment: vec![secret],
            ..service("echo ready; read -r _")
        },
    );
    wait_for(&mut broker, 1, "ready");
    let started = records("started");
    assert_eq!((started.len(), &started[0]["name"]), (1, &"test".into()));
    assert!(records("call").is_empty());
    broker.send(&ToBroker::Cancel { call: 1 });
    broker.done(1);
    let ended = records("call");
    assert_eq!(
        (ended.len(), &ended[0]["name"], &ended[0]["end"]),
        (1, &"test".into(), &"cancelled".into())
    );
    assert!(
        ![started, ended]
            .concat()
            .iter()
            .any(|record| record.to_string().contains(&world.canary))
    );
}

once_test!(rules_scopes_and_trust_mean_services_too);
fn rules_scopes_and_trust_mean_services_too() {
    let world = World::new(Place::any());
    policy(
        &world,
        "[[rule]]\ntool = 'bash'\naction = 'deny'\nprogram = 'forbidden'\nwhy = 'not this one'\n",
    );
    let (mut broker, _) = Broker::open_by(&world, executor(&world), opening(&world));
    let forbidden = Service {
        command: Command::Arguments(vec![b"forbidden".to_vec().into()]),
        ..service("")
    };
    let refused = |done: &Outcome, why: &str| match done {
        Outcome::Refused(refused) => assert!(refused.to_string().contains(why), "{refused}"),
        other => panic!("{other:?}"),
    };
    refused(
        &broker.call(1, Request::Service(forbidden)).outcome,
        "not this one",
    );
    let allowed = broker.call(2, Request::Service(service("true")));
    assert_eq!(end_of(&allowed.outcome), Some(Ended::Exited(0)), "control");
    let scope = Some(Scope::default());
    let (mut broker, _) = Broker::open_by(
        &world,
        executor(&world),
        Open {
            scope,
            ..opening(&world)
        },
    );
    refused(
        &broker.call(1, Request::Service(service("true"))).outcome,
        "scope:bash",
    );
    let guided = Open {
        trust: Trust::Guided,
        ..opening(&world)
    };
    let (mut broker, _) = Broker::open_by(&world, executor(&world), guided);
    start(&mut broker, 1, service("echo ready"));
    let FromBroker::Asked { challenge, .. } = broker.message() else {
        panic!("it was not asked about")
    };
    assert_eq!(
        (challenge.risk, challenge.covers),
        (Risk::High, Coverage::Once)
    );
    let Challenge { digest, nonce, .. } = challenge;
    broker.send(&ToBroker::Grant(Grant {
        call: 1,
        digest,
        nonce,
        extent: Extent::Once,
    }));
    assert_eq!(end_of(&broker.done(1).outcome), Some(Ended::Exited(0)));
}
