//! `lazaret doctor --attack`: real attacks with their controls, in every place, and what it says where it cannot know.
#![allow(clippy::unwrap_used)]

use broker_protocol::{Attempt, Ended, ErrorKind, FromBroker, Holds, Outcome, Request, ToBroker};
use lazaret_tests::wire::shell;
use lazaret_tests::{Broker, Place, World, matrix, programs, run};
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::time::Duration;

/// What the command promises.
const LIMIT: Duration = Duration::from_secs(10);

/// `lazaret doctor --attack WORDS`, whose temporary files go into the world.
fn doctor(world: &World, words: &[&str]) -> Command {
    let mut command = world.program("lazaret");
    command.args(["doctor", "--attack"]).args(words).env("TMPDIR", &world.outside);
    command
}

#[test]
fn every_attack_is_held_and_its_control_works() {
    matrix(|place| {
        let world = World::new(place);
        let report: Value =
            serde_json::from_str(&run(&mut doctor(&world, &["--json"]), LIMIT).success()).unwrap();
        assert_eq!((&report["holds"], &report["tier"]), (&true.into(), &place.tier.name().into()));
        let attacks = report["attacks"].as_array().unwrap();
        assert!(attacks.len() >= 30, "{} attacks", attacks.len());
        for attack in attacks {
            let core_works = attack["core"] == false || attack["control"] == "works";
            assert!(core_works, "the control does not work: {attack}");
            assert!(["yes", "untested"].iter().any(|word| attack["holds"] == *word), "{attack}");
        }
        // Of what an ordinary user can do on any kernel of ours, nothing is left untested.
        let tested = attacks.iter().filter(|attack| attack["holds"] == "yes").count();
        assert!(tested >= 18, "only {tested} attacks are tested");
        let left: Vec<_> = fs::read_dir(&world.outside).unwrap().flatten().map(|e| e.file_name()).collect();
        assert_eq!(left, ["secret.txt"]);
    });
}

#[test]
fn a_person_reads_a_table_and_a_verdict() {
    let world = World::new(Place::any());
    let page = run(&mut doctor(&world, &[]), LIMIT).success();
    assert!(page.contains("without a cell  in the cell"), "{page}");
    let row = page.lines().find(|line| line.contains("read a file outside")).unwrap();
    assert!(row.starts_with("files") && row.contains("works") && row.ends_with("yes"), "{row}");
    assert!(page.lines().last().unwrap().starts_with("The cell holds"), "{page}");
}

/// Fail closed, and say why.
#[test]
fn without_landlock_there_is_no_cell_and_the_reason_is_said() {
    matrix(|place| {
        let world = World::new(place);
        let mut command = place.command("without-landlock");
        command.arg(programs::path("lazaret")).args(["doctor", "--attack"]);
        command.env("HOME", &world.home).env("TMPDIR", &world.outside).current_dir(&world.project);
        let finished = run(&mut command, LIMIT);
        assert_eq!((finished.code(), finished.text().as_str()), (1, ""), "{}", finished.errors());
        assert!(finished.errors().contains("landlock-files"), "{}", finished.errors());
        let json: Value = serde_json::from_str(&run(command.arg("--json"), LIMIT).expect(1)).unwrap();
        assert_eq!((&json["holds"], &json["error"]["kind"]), (&false.into(), &"denied_policy".into()));
    });
}

/// The planted violation: every call to switch Landlock on succeeds, and nothing is on. Each cell finds out by trying.
#[test]
fn a_layer_that_does_not_bite_is_found_before_anything_runs() {
    matrix(|place| {
        let world = World::new(place);
        world.put("file", "x");
        let pretended = |words: &[&str]| {
            let mut command = place.command("without-landlock");
            command.arg("--pretended").arg(programs::path("lazaret")).args(words);
            command.env("HOME", &world.home).env("TMPDIR", &world.outside).current_dir(&world.project);
            run(&mut command, LIMIT)
        };
        for words in [&["run", "--", "touch", "ran"][..], &["doctor", "--attack"]] {
            let finished = pretended(words);
            assert_ne!(finished.code(), 0, "{words:?}");
            assert!(finished.errors().contains("landlock-files"), "{words:?}: {}", finished.errors());
        }
        assert_eq!(pretended(&["call", "file_read", r#"{"path":"file"}"#]).code(), 125);
        assert!(!world.project.join("ran").exists());
    });
}

#[test]
fn a_session_can_be_attacked_again_and_goes_on() {
    matrix(|place| {
        let world = World::new(place);
        let (mut broker, _) = Broker::open(&world);
        for call in [5, 6] {
            broker.send(&ToBroker::Attack { call });
            let FromBroker::Attacked { call: of, reports } = broker.message() else { panic!("no reports") };
            assert_eq!(of, call);
            let open: Vec<_> = reports.iter().filter(|one| !one.passes()).collect();
            assert!(open.is_empty(), "{open:?}");
            let works =
                |name: &str| reports.iter().any(|one| one.name == name && one.control == Attempt::Got);
            assert!(works("kill another") && works("read a secret variable"));
            let secret = reports.iter().find(|one| one.name == "read a file outside").unwrap();
            assert_eq!(secret.holds(), Holds::Yes);
        }
        let done = broker.call(7, Request::Bash(shell("exit 3")));
        assert!(
            matches!(done.outcome, Outcome::Ran(ran) if ran.ended == Ended::Exited(3)),
            "the next call is as ever"
        );
    });
}

#[test]
fn only_an_idle_session_is_attacked() {
    let world = World::new(Place::any());
    let mut greeted = Broker::greeted(&world);
    greeted.send(&ToBroker::Attack { call: 1 });
    assert!(matches!(greeted.message(), FromBroker::Fault(failed) if failed.kind == ErrorKind::Protocol));
    let (mut busy, _) = Broker::open(&world);
    busy.send(&ToBroker::Call { call: 1, request: Request::Bash(shell("sleep 20")) });
    busy.send(&ToBroker::Attack { call: 2 });
    assert!(matches!(busy.message(), FromBroker::Fault(failed) if failed.kind == ErrorKind::Protocol));
}

/// Nobody has to wait for an attack, and nothing of it outlives its session.
#[test]
fn a_client_that_leaves_takes_the_attack_with_it() {
    let world = World::new(Place::any());
    let (mut broker, _) = Broker::open(&world);
    broker.send(&ToBroker::Attack { call: 1 });
    let marker = broker.pid();
    broker.stream.shutdown(std::net::Shutdown::Both).unwrap();
    assert!(broker.ended(LIMIT).success());
    assert!(lazaret_tests::process::tree(marker).is_empty());
}
