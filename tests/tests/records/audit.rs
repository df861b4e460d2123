//! The audit records a call before its answer, where no cell can reach it, and nothing runs without it.

use super::written::{audit_of, of_kind, records, verify, whole};
use broker_protocol::chain;
use broker_protocol::{ErrorKind, FromBroker, Outcome, Request, ToBroker};
use lazaret_tests::process::Running;
use lazaret_tests::wire::{Received, file_read, opening, shell};
use lazaret_tests::world::long_sleep;
use lazaret_tests::{Broker, LIMIT, Place, Session, World, once_test, place_test, process, run};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

place_test!(a_client_that_ends_beside_a_stopped_process_ends_no_broker);
/// The kernel hangs up a process group of which somebody is stopped when the last parent outside it ends.
fn a_client_that_ends_beside_a_stopped_process_ends_no_broker(place: Place) {
    let world = World::new(place);
    let marker = long_sleep();
    // In a session of its own: nobody outside the group may be left in it.
    let lazaret = world.cell(&format!("touch ready; sleep {marker}"));
    let mut command = world.host("setsid");
    command.arg(lazaret.get_program()).args(lazaret.get_args());
    let client = Running::start(&mut command);
    assert!(process::until(LIMIT, || world
        .project
        .join("ready")
        .exists()));
    let broker = process::below(client.pid())
        .into_iter()
        .find(|process| process.name.starts_with("lazaret-execut"))
        .unwrap();
    // Not those below them: the parent of a stopped `vfork` does not stop.
    let children: Vec<_> = process::below(broker.pid)
        .into_iter()
        .filter(|process| process.parent == broker.pid)
        .collect();
    for child in &children {
        kill(Pid::from_raw(child.pid), Signal::SIGSTOP).unwrap();
    }
    assert!(process::until(LIMIT, || children
        .iter()
        .all(process::Process::is_stopped)));
    kill(Pid::from_raw(client.pid()), Signal::SIGKILL).unwrap();
    assert!(process::until(LIMIT, || !broker.is_alive()));
    assert_eq!(of_kind(&records(&world), "closed").len(), 1);
}

place_test!(each_request_has_one_record_before_its_answer);
fn each_request_has_one_record_before_its_answer(place: Place) {
    let world = World::new(place);
    world.put("a.txt", "text");
    let (mut broker, opened) = Broker::open(&world);
    let opened_record = &of_kind(&records(&world), "opened")[0];
    assert_eq!(opened_record["session"], opened.session);
    let mut call = |number: u64, request: Request| {
        let done = broker.call(number, request);
        // Looked at as soon as the answer is here.
        let mut calls = of_kind(&records(&world), "call");
        assert_eq!(calls.len() as u64, number, "one record a request");
        (done, calls.pop().unwrap())
    };
    let (_, ran) = call(1, Request::Bash(shell("printf qwxyz; exit 7")));
    assert_eq!(
        (&ran["tool"], &ran["verdict"], &ran["end"]),
        (&json!("bash"), &json!("allow"), &json!("exited"))
    );
    assert_eq!(
        (&ran["exit"], &ran["usage"]["stdout_bytes"]),
        (&json!(7), &json!(5))
    );
    assert_eq!(
        (&ran["policy"], &ran["tier"]),
        (&json!(opened.policy.to_string()), &json!(place.tier.name()))
    );
    assert!(
        ran["layers"]
            .as_array()
            .unwrap()
            .contains(&json!("seccomp"))
    );
    let (_, answered) = call(2, file_read("a.txt"));
    assert_eq!(
        (&answered["path"], &answered["end"]),
        (&json!("a.txt"), &json!("answered"))
    );
    let (_, refused) = call(3, file_read(".env"));
    assert_eq!(
        (&refused["verdict"], &refused["rule"]),
        (&json!("deny"), &json!("protect:.env"))
    );
    assert_eq!(
        (&refused["violation"], &refused["error"]),
        (&serde_json::Value::Null, &json!("denied_policy"))
    );
    let (done, invalid) = call(4, Request::Bash(shell("a\0b")));
    assert!(matches!(done.outcome, Outcome::Failed(_)));
    assert_eq!(
        (&invalid["verdict"], &invalid["error"]),
        (&json!("none"), &json!("invalid_input"))
    );
    // Of a command's text there is nothing but its hash.
    let text = fs::read_to_string(audit_of(&world).join("audit-000001.jsonl")).unwrap();
    assert!(
        !text.contains("qwxyz") && !text.contains("printf"),
        "{text}"
    );
    assert_ne!(ran["request"], invalid["request"]);
    drop(broker);
    assert!(process::until(LIMIT, || of_kind(
        &records(&world),
        "closed"
    )
    .len()
        == 1));
    assert_eq!(of_kind(&records(&world), "closed")[0]["calls"], 4);
    assert_eq!(
        of_kind(&records(&world), "started").len(),
        1,
        "only a command is recorded before it starts"
    );
    whole(&world);
}

place_test!(no_cell_reaches_the_audit);
fn no_cell_reaches_the_audit(place: Place) {
    let world = World::new(place);
    world.in_cell("true").success();
    let audit = audit_of(&world).join("audit-000001.jsonl");
    let head = audit_of(&world).join("head");
    assert_eq!(
        fs::metadata(audit_of(&world)).unwrap().mode() & 0o777,
        0o700
    );
    assert_eq!(fs::metadata(&audit).unwrap().mode() & 0o777, 0o600);
    let attack = format!(
        "cat {0} {1}; ls {2}; echo x >> {0} && echo WROTE; rm {1} && echo REMOVED; mv {2} {2}.gone && echo MOVED; chmod 777 {2} && echo OPENED",
        audit.display(),
        head.display(),
        audit_of(&world).display()
    );
    // Without a cell all of it works: in another world, whose audit is then broken.
    let control = World::new(place);
    control.in_cell("true").success();
    let there = attack.replace(
        world.state.to_str().unwrap(),
        control.state.to_str().unwrap(),
    );
    let text = control.on_host(&there).text();
    assert!(
        text.contains("\"hash\"") && text.contains("WROTE") && text.contains("MOVED"),
        "{text}"
    );
    assert_eq!(verify(&control).code(), 1);
    // In one nothing does.
    let text = world.in_cell(&attack).text();
    for got in ["\"hash\"", "WROTE", "REMOVED", "MOVED", "OPENED", "head"] {
        assert!(!text.contains(got), "{got}: {text}");
    }
    let mut session = Session::open(&world);
    for path in [audit.to_str().unwrap(), "../state/lazaret/audit/head"] {
        let answer = session.call("file_read", json!({"path": path}));
        assert_eq!(answer.result["status"], "error", "{}", answer.result);
    }
    drop(session);
    assert!(process::until(LIMIT, || of_kind(
        &records(&world),
        "closed"
    )
    .len()
        == 3));
    whole(&world);
}

once_test!(no_root_and_no_grant_shows_the_records);
fn no_root_and_no_grant_shows_the_records() {
    let world = World::new(Place::any());
    world.in_cell("true").success();
    let lazaret = world.state.join("lazaret");
    // Where the variable leads into the root itself, it is not believed.
    let variable = "XDG_STATE_HOME names";
    for (root, why) in [
        (&world.state, variable),
        (&lazaret, variable),
        (&audit_of(&world), "the records"),
    ] {
        let mut command = world.program("lazaret");
        command
            .arg("run")
            .arg("--project")
            .arg(root)
            .arg("--central")
            .arg(&world.central)
            .args(["--", "true"]);
        let finished = run(&mut command, LIMIT);
        finished.expect(125);
        assert!(finished.errors().contains(why), "{}", finished.errors());
    }
    let config = world.outside.join("config");
    let policy = format!(
        "version = 1\n[profile.wide]\nextends = ['default']\ngrants = [{{ path = '{}', why = 'x' }}]\n",
        lazaret.display()
    );
    world.write(&config.join("lazaret/policy.toml"), policy);
    let mut command = world.lazaret("run");
    command
        .env("XDG_CONFIG_HOME", &config)
        .args(["--profile", "wide", "--", "true"]);
    let finished = run(&mut command, LIMIT);
    finished.expect(125);
    assert!(
        finished.errors().contains("would show the records"),
        "{}",
        finished.errors()
    );
}

place_test!(nothing_runs_without_an_audit);
fn nothing_runs_without_an_audit(place: Place) {
    // It cannot be made.
    let world = World::new(place);
    world.write(&world.state.join("lazaret"), "a file");
    let finished = world.in_cell("touch ran");
    finished.expect(125);
    assert!(
        finished.errors().contains("the audit cannot be written"),
        "{}",
        finished.errors()
    );
    assert!(!world.project.join("ran").exists());
    // It goes away under a session: the command does not even start.
    let world = World::new(place);
    let (mut broker, _) = Broker::open(&world);
    broker.call(1, Request::Bash(shell("true")));
    fs::remove_dir_all(audit_of(&world)).unwrap();
    until_audit_fault(&mut broker, &Request::Bash(shell("touch ran")), 1);
    assert!(!world.project.join("ran").exists());
}

/// Makes calls, of which one of the first `most` cannot be recorded; says how many were.
#[track_caller]
fn until_audit_fault(broker: &mut Broker, request: &Request, max: u64) -> u64 {
    for call in 1000..1000 + max {
        broker.send(&ToBroker::Call {
            call,
            request: request.clone(),
        });
        loop {
            match broker.message() {
                FromBroker::Fault(failed) => {
                    assert_eq!(failed.kind, ErrorKind::Internal);
                    assert!(
                        failed.message.contains("the audit cannot be written"),
                        "{}",
                        failed.message
                    );
                    broker.ended(LIMIT);
                    return call - 1000;
                }
                FromBroker::Done { .. } => break,
                _ => {}
            }
        }
    }
    panic!("{max} results, and no fault");
}

place_test!(
    a_full_disk_ends_the_session_and_leaves_a_whole_chain,
    own_process,
    needs_root
);
fn a_full_disk_ends_the_session_and_leaves_a_whole_chain(place: Place) {
    let world = World::new(place);
    let disk = SmallDisk::mount(&world, "64k");
    let (mut broker, _) = Broker::open(&world);
    broker.call(1, Request::Bash(shell("true")));
    disk.fill();
    let recorded = until_audit_fault(&mut broker, &file_read("a.txt"), 20);
    assert_eq!(
        of_kind(&records(&world), "call").len() as u64,
        1 + recorded,
        "a result for each record"
    );
    disk.empty();
    // Nothing half-written is left, and a new session goes on from there.
    let before = whole(&world);
    world.in_cell("true").success();
    assert!(process::until(LIMIT, || of_kind(
        &records(&world),
        "closed"
    )
    .len()
        == 1));
    assert_eq!(whole(&world), before + 4);
}

/// A disk of a fixed size where a world keeps its state.
struct SmallDisk<'w> {
    world: &'w World,
}

impl<'w> SmallDisk<'w> {
    fn mount(world: &'w World, size: &str) -> Self {
        let account = world.place.account();
        let options = format!(
            "size={size},mode=700,uid={},gid={}",
            account.uid, account.gid
        );
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", &options, "none"])
            .arg(&world.state);
        assert!(mount.status().unwrap().success());
        Self { world }
    }

    /// Leaves no page; what is left of those that the audit has is used up by a few records.
    fn fill(&self) {
        assert!(fs::write(self.world.state.join("filler"), vec![0; 1 << 20]).is_err());
    }

    fn empty(&self) {
        fs::remove_file(self.world.state.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let unmounted = Command::new("umount")
            .arg("-l")
            .arg(&self.world.state)
            .status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

place_test!(commands_of_a_killed_broker_are_in_the_audit);
fn commands_of_a_killed_broker_are_in_the_audit(place: Place) {
    let world = World::new(place);
    let (mut broker, opened) = Broker::open(&world);
    let marker = lazaret_tests::world::long_sleep();
    broker.send(&ToBroker::Call {
        call: 5,
        request: Request::Bash(shell(&format!("touch ran; sleep {marker}"))),
    });
    assert!(process::until(LIMIT, || world.project.join("ran").exists()));
    broker.child.kill().unwrap();
    broker.ended(LIMIT);
    process::assert_gone(&marker, LIMIT);
    let records = records(&world);
    let started = &of_kind(&records, "started")[0];
    assert_eq!(
        (&started["session"], &started["call"]),
        (&json!(opened.session), &json!(5))
    );
    assert!(of_kind(&records, "call").is_empty() && of_kind(&records, "closed").is_empty());
    whole(&world);
    world.in_cell("true").success();
    whole(&world);
}

once_test!(running_call_is_recorded_when_the_client_leaves);
fn running_call_is_recorded_when_the_client_leaves() {
    let world = World::new(Place::any());
    let (mut broker, _) = Broker::open(&world);
    broker.send(&ToBroker::Call {
        call: 9,
        request: Request::Bash(shell("touch ran; sleep 300")),
    });
    assert!(process::until(LIMIT, || world.project.join("ran").exists()));
    drop(broker);
    assert!(process::until(LIMIT, || of_kind(
        &records(&world),
        "closed"
    )
    .len()
        == 1));
    let calls = of_kind(&records(&world), "call");
    assert_eq!((calls.len(), &calls[0]["error"]), (1, &json!("cancelled")));
}

once_test!(hostile_frames_are_recorded);
fn hostile_frames_are_recorded() {
    let world = World::new(Place::any());
    let mut stranger = Broker::start(&world);
    stranger.send_body(b"GET / HTTP/1.1").unwrap();
    while !matches!(
        stranger.receive(LIMIT),
        Received::Closed | Received::Nothing
    ) {}
    let faults = of_kind(&records(&world), "fault");
    assert_eq!(
        (faults.len(), &faults[0]["error"], faults[0].get("session")),
        (1, &json!("protocol"), None)
    );
    let (mut broker, opened) = Broker::open(&world);
    broker.send(&ToBroker::Open(opening(&world)));
    while !matches!(broker.receive(LIMIT), Received::Closed | Received::Nothing) {}
    let faults = of_kind(&records(&world), "fault");
    assert_eq!(
        (faults.len(), &faults[1]["session"]),
        (2, &json!(opened.session))
    );
    whole(&world);
}

once_test!(many_brokers_at_once_make_one_whole_chain);
fn many_brokers_at_once_make_one_whole_chain() {
    let world = World::new(Place::any());
    let (brokers, calls) = (6, 40);
    std::thread::scope(|scope| {
        for _ in 0..brokers {
            scope.spawn(|| {
                let (mut broker, _) = Broker::open(&world);
                (1..=calls).for_each(|call| drop(broker.call(call, file_read("a.txt"))));
            });
        }
    });
    assert!(process::until(LIMIT, || of_kind(
        &records(&world),
        "closed"
    )
    .len()
        == brokers));
    assert_eq!(whole(&world), brokers as u64 * (calls + 2));
}

once_test!(a_second_reader_and_a_laxer_mode_change_nothing);
fn a_second_reader_and_a_laxer_mode_change_nothing() {
    let world = World::new(Place::any());
    world.in_cell("true").success();
    fs::set_permissions(audit_of(&world), fs::Permissions::from_mode(0o755)).unwrap();
    world.in_cell("true").success();
    assert_eq!(
        fs::metadata(audit_of(&world)).unwrap().mode() & 0o777,
        0o700
    );
    let rendered = run(
        world.program("lazaret").args(["audit", "show", "--json"]),
        LIMIT,
    )
    .success();
    assert!(rendered.lines().count() >= 7, "{rendered}");
    let tail = run(
        world.program("lazaret").args(["audit", "tail", "-n", "2"]),
        LIMIT,
    )
    .success();
    assert_eq!(tail.lines().count(), 2, "{tail}");
    let session = of_kind(&records(&world), "opened")[1]["session"]
        .as_str()
        .unwrap()[..8]
        .to_owned();
    let rendered = run(
        world
            .program("lazaret")
            .args(["audit", "show", "--session", &session]),
        LIMIT,
    )
    .success();
    assert!(
        rendered.lines().count() >= 3 && rendered.lines().all(|line| line.contains(&session)),
        "{rendered}"
    );
}

fn export(world: &World, options: &[&str]) -> Command {
    let mut command = world.program("lazaret");
    command.args(["audit", "export"]).args(options);
    command
}

once_test!(an_export_resumes_after_any_record);
fn an_export_resumes_after_any_record() {
    let world = World::new(Place::any());
    world.in_cell("true").success();
    let written = fs::read_to_string(audit_of(&world).join("audit-000001.jsonl")).unwrap();
    assert_eq!(run(&mut export(&world, &[]), LIMIT).success(), written);
    let records = records(&world);
    for (taken, record) in records.iter().enumerate() {
        let after = record["hash"].as_str().unwrap();
        let events = run(
            &mut export(&world, &["--format", "ocsf", "--after", after]),
            LIMIT,
        )
        .success();
        let events: Vec<Value> = events
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let rest = &records[taken + 1..];
        assert_eq!(events.len(), rest.len(), "{events:?}");
        for (event, record) in events.iter().zip(rest) {
            assert_eq!(event["metadata"]["uid"], record["hash"], "{event}");
            let raw: Value = serde_json::from_str(event["raw_data"].as_str().unwrap()).unwrap();
            assert_eq!(&raw, record);
        }
    }
    let last = records.last().unwrap()["hash"].as_str().unwrap();
    let mut following = Running::start(&mut export(&world, &["--follow", "--after", last]));
    world.in_cell("true").success();
    let more = following.wait_for("\"closed\"", LIMIT);
    assert!(process::contains(&more, b"\"opened\""));
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(following.pid()),
        nix::sys::signal::Signal::SIGTERM,
    )
    .unwrap();
    following.finish(LIMIT);
}

once_test!(an_export_ends_where_the_chain_is_not_whole);
fn an_export_ends_where_the_chain_is_not_whole() {
    let world = World::new(Place::any());
    world.in_cell("true").success();
    let file = audit_of(&world).join("audit-000001.jsonl");
    let written = fs::read_to_string(&file).unwrap();
    let unknown = "0".repeat(64);
    let missing = run(&mut export(&world, &["--after", &unknown]), LIMIT);
    assert_eq!((missing.expect(1).as_str(), missing.code()), ("", 1));
    let lines: Vec<&str> = written.split_inclusive('\n').collect();
    let edited = written.replacen("\"verdict\":\"allow\"", "\"verdict\":\"other\"", 1);
    let cut = lines[..lines.len() - 2].concat();
    for (text, whole) in [(&edited, 1), (&cut, lines.len() - 2)] {
        fs::write(&file, text).unwrap();
        for format in ["jsonl", "ocsf"] {
            let exported = run(&mut export(&world, &["--format", format]), LIMIT);
            assert_eq!(exported.expect(1).lines().count(), whole, "{format}");
            assert!(
                exported.errors().contains("is not as it was written"),
                "{}",
                exported.errors()
            );
        }
    }
}

/// A session in an older file than the next one, written so long ago as its records say.
fn one_session_long_ago(world: &World, days: u64) {
    world.in_cell("true").success();
    let directory = audit_of(world);
    assert!(process::until(LIMIT, || whole(world) == 4));
    let first = directory.join("audit-000001.jsonl");
    let (mut hash, mut chain) = (chain::START, Vec::new());
    for line in fs::read_to_string(&first).unwrap().lines() {
        let (record, _) = line.rsplit_once(",\"hash\":").unwrap();
        let (seq, rest) = record.split_once(",\"ts\":").unwrap();
        let (seconds, rest) = rest.split_once('.').unwrap();
        let seconds = seconds.parse::<u64>().unwrap() - days * 24 * 60 * 60;
        let mut record = format!("{seq},\"ts\":{seconds}.{rest}}}").into_bytes();
        hash = chain::seal(hash, &mut record);
        chain.append(&mut record);
    }
    fs::write(&first, chain).unwrap();
    let head = fs::read(directory.join("head")).unwrap();
    let head = chain::Head {
        file: 2,
        bytes: 0,
        hash,
        ..chain::Head::decode(&head).unwrap()
    };
    fs::write(directory.join("head"), head.encode()).unwrap();
}

fn gc(world: &World, options: &[&str]) -> Value {
    let mut command = world.program("lazaret");
    command.args(["gc", "--json"]).args(options);
    serde_json::from_str(&run(&mut command, LIMIT).success()).unwrap()
}

place_test!(old_records_are_removed_only_where_somebody_says_so);
fn old_records_are_removed_only_where_somebody_says_so(place: Place) {
    let world = World::new(place);
    one_session_long_ago(&world, 30);
    let first = audit_of(&world).join("audit-000001.jsonl");
    let last = fs::read_to_string(&first).unwrap();
    let last: Value = serde_json::from_str(last.lines().last().unwrap()).unwrap();
    world.in_cell("true").success();
    assert!(process::until(LIMIT, || whole(&world) == 8));
    assert_eq!(gc(&world, &[])["auditFiles"], 0);
    assert_eq!(gc(&world, &["--audit-days", "31"])["auditFiles"], 0);
    assert!(first.exists());
    assert_eq!(gc(&world, &["--audit-days", "30"])["auditFiles"], 1);
    assert!(!first.exists());
    let report: Value = serde_json::from_str(&verify(&world).success()).unwrap();
    assert_eq!(
        (&report["removed"], &report["records"], &report["files"]),
        (&json!(4), &json!(5), &json!(1)),
        "{report}"
    );
    // What a collector has taken last may be among what was removed.
    let hash = last["hash"].as_str().unwrap();
    for after in [&[][..], &["--after", hash]] {
        let exported = run(&mut export(&world, after), LIMIT).success();
        assert_eq!(exported.lines().count(), 5, "{exported}");
    }
    let head = ["audit", "verify", "--json", "--head", hash];
    let known = run(world.program("lazaret").args(head), LIMIT).success();
    assert!(known.contains("\"kept\":4"), "{known}");
    // A file that somebody else has removed is still missed.
    let second = audit_of(&world).join("audit-000002.jsonl");
    let spoilt = fs::read_to_string(&second).unwrap();
    let (_, without_first) = spoilt.split_once('\n').unwrap();
    fs::write(&second, without_first).unwrap();
    assert_eq!(verify(&world).code(), 1);
}

once_test!(a_file_that_is_removed_by_hand_is_missed);
fn a_file_that_is_removed_by_hand_is_missed() {
    let world = World::new(Place::any());
    one_session_long_ago(&world, 30);
    world.in_cell("true").success();
    // Not its own time, which anybody sets, is its age.
    let second = fs::File::options()
        .write(true)
        .open(audit_of(&world).join("audit-000002.jsonl"))
        .unwrap();
    second.set_modified(std::time::UNIX_EPOCH).unwrap();
    fs::remove_file(audit_of(&world).join("audit-000001.jsonl")).unwrap();
    assert_eq!(gc(&world, &["--audit-days", "1"])["auditFiles"], 0);
    let report = verify(&world);
    assert_eq!(report.code(), 1);
    assert!(
        report.text().contains("audit-000001.jsonl"),
        "{}",
        report.text()
    );
}

fn run_with_policy(world: &World, config: &Path) {
    let mut command = world.lazaret("run");
    command.env("XDG_CONFIG_HOME", config).args(["--", "true"]);
    run(&mut command, LIMIT).success();
}

fn gc_with_policy(world: &World, config: &Path) -> String {
    let mut command = world.program("lazaret");
    command.env("XDG_CONFIG_HOME", config);
    run(command.args(["gc", "--json", "--audit-days", "1"]), LIMIT).success()
}

once_test!(a_policy_keeps_records_for_a_time_and_nobody_shortens_it);
fn a_policy_keeps_records_for_a_time_and_nobody_shortens_it() {
    let world = World::new(Place::any());
    one_session_long_ago(&world, 30);
    let config = world.outside.join("config");
    let policy = config.join("lazaret/policy.toml");
    let first = audit_of(&world).join("audit-000001.jsonl");
    let keep = |days: u32| {
        world.write(&policy, format!("version = 1\naudit_keep_days = {days}\n"));
    };
    keep(31);
    let report: Value = serde_json::from_str(&gc_with_policy(&world, &config)).unwrap();
    assert_eq!(
        (&report["auditFiles"], &report["failed"]),
        (&json!(0), &json!([]))
    );
    run_with_policy(&world, &config);
    assert!(process::until(LIMIT, || whole(&world) == 8));
    assert!(first.exists());
    keep(30);
    run_with_policy(&world, &config);
    assert!(process::until(LIMIT, || !first.exists()));
    assert!(process::until(LIMIT, || whole(&world) == 9));
}

place_test!(
    a_disk_with_little_room_is_named_before_it_is_full,
    own_process,
    needs_root
);
fn a_disk_with_little_room_is_named_before_it_is_full(place: Place) {
    let world = World::new(place);
    let disk = SmallDisk::mount(&world, "80m");
    let mut session = Session::open(&world);
    let found = |session: &mut Session| session.bash("true").result["metadata"]["found"].clone();
    assert_eq!(found(&mut session), Value::Null, "the control");
    fs::write(world.state.join("filler"), vec![0; 30 << 20]).unwrap();
    let said = found(&mut session);
    assert_eq!(said[0]["kind"], "disk", "{said}");
    assert_eq!(
        said[0]["objects"][0]["target"],
        audit_of(&world).display().to_string()
    );
    assert_eq!(found(&mut session), Value::Null, "once");
    // A run says it, too, and `doctor` before there is one.
    let ran = world.in_cell("true");
    ran.success();
    assert!(ran.errors().contains("found: disk: "), "{}", ran.errors());
    let doctor = run(world.program("lazaret").args(["doctor", "--json"]), LIMIT).success();
    assert!(
        doctor.contains("are free on the file system of the audit"),
        "{doctor}"
    );
    drop(session);
    drop(disk);
}
