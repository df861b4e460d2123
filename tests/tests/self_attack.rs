//! `lazaret doctor --attack`: real attacks with their controls, in every place, and what it says where it cannot know.

use broker_protocol::{Bash, Command, Ended, Outcome, Request};
use lazaret_tests::process::{self, Running};
use lazaret_tests::wire::{opening, shell};
use lazaret_tests::{Broker, LIMIT, Place, World, once_test, place_test, programs, run};
use serde_bytes::ByteBuf;
use serde_json::{Value, json};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

/// `lazaret doctor --attack WORDS`, whose temporary files go into the world.
fn doctor(world: &World, words: &[&str]) -> std::process::Command {
    let mut command = world.program("lazaret");
    command
        .args(["doctor", "--attack"])
        .args(words)
        .env("TMPDIR", &world.outside);
    command
}

place_test!(every_attack_is_held_and_its_control_works);
fn every_attack_is_held_and_its_control_works(place: Place) {
    let world = World::new(place);
    let report: Value =
        serde_json::from_str(&run(&mut doctor(&world, &["--json"]), LIMIT).success()).unwrap();
    assert_eq!(
        (&report["holds"], &report["tier"]),
        (&true.into(), &place.tier.name().into())
    );
    let attacks = report["attacks"].as_array().unwrap();
    assert!(attacks.len() >= 30, "{} attacks", attacks.len());
    for attack in attacks {
        let core_works = attack["core"] == false || attack["control"] == "works";
        assert!(core_works, "the control does not work: {attack}");
        assert!(
            ["yes", "untested"]
                .iter()
                .any(|word| attack["holds"] == *word),
            "{attack}"
        );
    }
    // Of what an ordinary user can do on any kernel of ours, nothing is left untested.
    let tested = attacks
        .iter()
        .filter(|attack| attack["holds"] == "yes")
        .count();
    assert!(tested >= 18, "only {tested} attacks are tested");
    let left: Vec<_> = fs::read_dir(&world.outside)
        .unwrap()
        .flatten()
        .map(|e| e.file_name())
        .collect();
    assert_eq!(left, ["secret.txt"]);
}

once_test!(a_person_reads_a_table_and_a_verdict);
fn a_person_reads_a_table_and_a_verdict() {
    let world = World::new(Place::any());
    let page = run(&mut doctor(&world, &[]), LIMIT).success();
    assert!(page.contains("without a cell  in the cell"), "{page}");
    let row = page
        .lines()
        .find(|line| line.contains("read a file outside"))
        .unwrap();
    assert!(
        row.starts_with("files") && row.contains("works") && row.ends_with("yes"),
        "{row}"
    );
    assert!(
        page.lines().last().unwrap().starts_with("The cell holds"),
        "{page}"
    );
}

place_test!(missing_landlock_means_no_cell_and_is_reported);
/// Fail closed, and say why.
fn missing_landlock_means_no_cell_and_is_reported(place: Place) {
    let world = World::new(place);
    let mut command = place.command("without-landlock");
    command
        .arg(programs::path("lazaret"))
        .args(["doctor", "--attack"]);
    command
        .env("HOME", &world.home)
        .env("TMPDIR", &world.outside)
        .current_dir(&world.project);
    let finished = run(&mut command, LIMIT);
    assert_eq!(
        (finished.code(), finished.text().as_str()),
        (1, ""),
        "{}",
        finished.errors()
    );
    assert!(
        finished.errors().contains("landlock-files"),
        "{}",
        finished.errors()
    );
    let json: Value = serde_json::from_str(&run(command.arg("--json"), LIMIT).expect(1)).unwrap();
    assert_eq!(
        (&json["holds"], &json["error"]["code"]),
        (&false.into(), &"denied_policy".into())
    );
}

place_test!(a_layer_that_does_not_bite_is_found_before_anything_runs);
/// The planted violation: every call to switch Landlock on succeeds, and nothing is on. Each cell finds out by trying.
fn a_layer_that_does_not_bite_is_found_before_anything_runs(place: Place) {
    let world = World::new(place);
    world.put("file", "x");
    let pretended = |words: &[&str]| {
        let mut command = place.command("without-landlock");
        command
            .arg("--pretended")
            .arg(programs::path("lazaret"))
            .args(words);
        command
            .env("HOME", &world.home)
            .env("TMPDIR", &world.outside)
            .current_dir(&world.project);
        run(&mut command, LIMIT)
    };
    for words in [&["run", "--", "touch", "ran"][..], &["doctor", "--attack"]] {
        let finished = pretended(words);
        assert_ne!(finished.code(), 0, "{words:?}");
        assert!(
            finished.errors().contains("landlock-files"),
            "{words:?}: {}",
            finished.errors()
        );
    }
    assert_eq!(
        pretended(&["call", "file_read", r#"{"path":"file"}"#]).code(),
        125
    );
    assert!(!world.project.join("ran").exists());
}

/// A program with the variable that no command may have.
fn with_canary(world: &World, program: &str) -> std::process::Command {
    let mut command = world.program(program);
    command.env(
        "LAZARET_CANARY_SECRET",
        "a value that is longer than the secret",
    );
    command
}

/// `lazaret-attack outside` in a directory of its own, once its control has run.
struct Outside {
    process: Running,
    targets: String,
}

impl Outside {
    fn start(world: &World) -> Self {
        let directory = world.outside.join("attack");
        world.make_folder(&directory);
        let mut command = with_canary(world, "lazaret-attack");
        let mut process = Running::start(command.arg("outside").arg(directory));
        let targets = process.wait_for("}\n", LIMIT);
        Self {
            process,
            targets: String::from_utf8(targets).unwrap().trim_end().to_owned(),
        }
    }

    /// Says what the inside run printed, and reads the reports.
    fn judge(mut self, tier: &str, records: &[u8]) -> Vec<Value> {
        let mut stdin = self.process.child.stdin.take().unwrap();
        writeln!(
            stdin,
            "{}",
            json!({"tier": tier, "layers": ["landlock-scopes"]})
        )
        .unwrap();
        stdin.write_all(records).unwrap();
        drop(stdin);
        let text = self.process.finish(LIMIT).success();
        text.lines()
            .skip(1)
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

fn names<'r>(reports: &'r [Value], holds: &str) -> Vec<&'r str> {
    let those = reports.iter().filter(|report| report["holds"] == holds);
    those
        .map(|report| report["attack"].as_str().unwrap())
        .collect()
}

place_test!(a_session_is_attacked_by_an_ordinary_command_and_goes_on);
fn a_session_is_attacked_by_an_ordinary_command_and_goes_on(place: Place) {
    let world = World::new(place);
    let program = world.central.join("lazaret-attack");
    world.write(
        &program,
        fs::read(programs::path("lazaret-attack")).unwrap(),
    );
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let executor = with_canary(&world, "lazaret-executor");
    let (mut broker, opened) = Broker::open_by(&world, executor, opening(&world));
    for call in [5, 6] {
        let outside = Outside::start(&world);
        let words = [program.to_str().unwrap(), "inside", &outside.targets];
        let command = Command::Arguments(words.map(|word| ByteBuf::from(word.as_bytes())).into());
        let done = broker.call(
            call,
            Request::Bash(Bash {
                command,
                ..shell("")
            }),
        );
        let Outcome::Ran(ran) = done.outcome else {
            panic!("{:?}", done.outcome)
        };
        assert_eq!(ran.ended, Ended::Exited(0));
        let reports = outside.judge(opened.tier.name(), &ran.output.head);
        assert!(reports.len() >= 30, "{} reports", reports.len());
        for holds in ["no", "unknown"] {
            assert_eq!(names(&reports, holds), [""; 0], "{holds}");
        }
        for name in [
            "read a file outside",
            "kill another",
            "read a secret variable",
        ] {
            assert!(names(&reports, "yes").contains(&name), "{name}");
        }
    }
    let done = broker.call(7, Request::Bash(shell("exit 3")));
    assert!(matches!(done.outcome, Outcome::Ran(ran) if ran.ended == Ended::Exited(3)));
}

once_test!(only_evidence_outside_counts);
/// The planted violation: attacks that succeed, run where a cell's would, and an inside run that denies it.
fn only_evidence_outside_counts() {
    let world = World::new(Place::any());
    let outside = Outside::start(&world);
    let inside = run(
        world
            .program("lazaret-attack")
            .args(["inside", &outside.targets]),
        LIMIT,
    )
    .success();
    let denied: String = (0..inside.lines().count())
        .map(|index| format!("{index} refused 13\n"))
        .collect();
    let reports = outside.judge("namespaced", denied.as_bytes());
    let seen = names(&reports, "no");
    for name in [
        "write to a file outside",
        "create a file outside",
        "move a file in",
        "kill another",
    ] {
        assert!(seen.contains(&name), "{name}: {reports:?}");
    }
    // Where there is no evidence, only what the inside run says against itself counts.
    assert!(!seen.contains(&"read a file outside"));
    let outside = Outside::start(&world);
    let reports = outside.judge("namespaced", b"0 succeeded 0\n");
    assert_eq!(names(&reports, "no"), ["read a file outside"]);
    assert_eq!(
        names(&reports, "unknown").len(),
        reports.len() - 1,
        "what is not reported is not held"
    );
}

once_test!(nothing_of_an_attack_outlives_the_one_who_asked_for_it);
fn nothing_of_an_attack_outlives_the_one_who_asked_for_it() {
    let world = World::new(Place::any());
    let mut outside = Outside::start(&world);
    let seen = process::tree(outside.process.pid());
    assert!(
        seen.iter().any(|process| process.name == "lazaret-canary"),
        "{seen:?}"
    );
    drop(outside.process.child.stdin.take());
    assert_eq!(outside.process.finish(LIMIT).code(), 1);
    assert!(process::left_after(&seen, LIMIT).is_empty());
    assert_eq!(
        fs::read_dir(world.outside.join("attack")).unwrap().count(),
        0
    );
}
