//! How it begins and ends, and what it leaves in the records.

use super::client::{Sandbox, ask, execute};
use lazaret_tests::process::{assert_gone, until};
use lazaret_tests::programs;
use lazaret_tests::world::long_sleep;
use lazaret_tests::{LIMIT, Place, World, once_test, place_test, run};
use nix::sys::signal::{Signal, kill};
use serde_json::json;
use std::fs;
use std::thread;

place_test!(its_end_ends_and_records_its_calls);
fn its_end_ends_and_records_its_calls(place: Place) {
    let world = World::new(place);
    let sandbox = Sandbox::of(world.lazaret("sandboxd").args(["--drain", "600"]));
    let pid = sandbox.pid();
    let marker = long_sleep();
    let command = format!("touch begun; sleep {marker}");
    let (legacy, rest) = (sandbox.legacy, sandbox.rest);
    let health = || ask(rest, "GET /v1/health", &[], b"");
    assert_eq!(health().status, 200);
    thread::scope(|scope| {
        let call = scope.spawn(|| execute(legacy, &json!({ "command": command })));
        assert!(until(LIMIT, || world.project.join("begun").exists()));
        kill(pid, Signal::SIGTERM).unwrap();
        assert!(until(LIMIT, || health().status == 503));
        assert_eq!(health().json()["code"], "UNAVAILABLE");
        // No call begins; the one under way goes on.
        let refused = sandbox.execute(&json!({ "command": "touch late" }));
        assert_eq!(refused.status, 503, "{refused:?}");
        assert!(!call.is_finished() && !world.project.join("late").exists());
        // No more time.
        kill(pid, Signal::SIGTERM).unwrap();
        let ended = call.join().unwrap();
        assert_eq!(ended.status, 503, "its client has an answer: {ended:?}");
    });
    assert_eq!(sandbox.end().code(), 128 + 15);
    assert_gone(&marker, LIMIT);
    run(world.program("lazaret").args(["audit", "verify"]), LIMIT).success();
    let shown = run(
        world.program("lazaret").args(["audit", "show", "--json"]),
        LIMIT,
    )
    .success();
    let ended = shown.lines().find(|line| line.contains("ancelled"));
    assert!(ended.is_some(), "{shown}");
}

place_test!(start_that_fails_names_its_reason);
fn start_that_fails_names_its_reason(place: Place) {
    let world = World::new(place);
    let sandbox = Sandbox::start(&world);
    let mut again = world.lazaret("sandboxd");
    again.args(["--legacy-port", &sandbox.legacy.to_string()]);
    let refused = run(again.args(["--rest-port", "0", "--grpc-port", "0"]), LIMIT);
    assert_eq!(refused.code(), 125);
    assert!(
        refused.errors().contains("cannot listen on 127.0.0.1"),
        "{}",
        refused.errors()
    );
    let mut nowhere = world.program("lazaret");
    nowhere.args([
        "sandboxd",
        "--rest-port",
        "0",
        "--grpc-port",
        "0",
        "--legacy-port",
        "0",
    ]);
    let refused = run(nowhere.arg("--project").arg(world.base().join("no")), LIMIT);
    assert_eq!(refused.code(), 2, "{}", refused.errors());
    run(
        world.lazaret("sandboxd").args(["--listen", "nowhere"]),
        LIMIT,
    )
    .expect(2);
}

once_test!(the_policy_of_the_manifests_is_one);
fn the_policy_of_the_manifests_is_one() {
    let world = World::new(Place::any());
    let file = "orchestrator/sandboxd/kubernetes/configmap.yaml";
    let text = fs::read_to_string(programs::workspace().join(file)).unwrap();
    let (_, policy) = text.split_once("policy.toml: |\n").unwrap();
    let policy: String = policy
        .lines()
        .map(|line| format!("{}\n", line.strip_prefix("    ").unwrap_or(line)))
        .collect();
    let path = world.base().join("policy.toml");
    world.write(&path, policy);
    run(
        world
            .program("lazaret")
            .args(["policy", "check"])
            .arg(&path),
        LIMIT,
    )
    .success();
    world.write(&path, "version = 1\n[profile.sandbox]\nextends = 'none'\n");
    let wrong = run(
        world
            .program("lazaret")
            .args(["policy", "check"])
            .arg(&path),
        LIMIT,
    );
    assert_ne!(wrong.code(), 0, "a policy that is wrong is seen");
}
