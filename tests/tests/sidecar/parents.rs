//! The process that starts the sidecar: when it ends, however it ends, nothing remains.

use super::messages::script;
use lazaret_tests::process::{self, Running, until};
use lazaret_tests::sidecar::Sidecar;
use lazaret_tests::world::long_sleep;
use lazaret_tests::{LIMIT, Place, World, once_test, place_test};
use serde_json::json;
use std::path::Path;

fn sleeper(marker: &str) -> serde_json::Value {
    script(&[(
        "",
        &[(
            "bash",
            json!({"command": format!("setsid sleep {marker} & sleep {marker}")}),
        )],
    )])
}

fn sleeping(marker: &str) -> bool {
    process::with_marker(&format!("sleep {marker}"))
        .iter()
        .any(|process| process.name == "sleep")
}

fn begin(sidecar: &Sidecar, marker: &str) {
    let mut client = sidecar.client();
    client.say(
        "chat:send",
        json!({"content": "x", "conversationId": "c", "trust": "autonomous"}),
    );
    assert!(until(LIMIT, || sleeping(marker)));
}

place_test!(server_ends_with_its_input_and_leaves_nothing);
fn server_ends_with_its_input_and_leaves_nothing(place: Place) {
    let (world, marker) = (World::new(place), long_sleep());
    let sidecar = Sidecar::start(&world, &sleeper(&marker), &[]);
    begin(&sidecar, &marker);
    let below = process::below(sidecar.running.pid());
    assert!(!below.is_empty());
    sidecar.end().success();
    process::assert_gone(&format!("sleep {marker}"), LIMIT);
    assert_eq!(process::left_after(&below, LIMIT), []);
}

place_test!(server_ends_when_its_parent_is_killed);
/// Somebody else still holds the other end of its input: it ends with its parent all the same.
fn server_ends_when_its_parent_is_killed(place: Place) {
    let (world, marker) = (World::new(place), long_sleep());
    let serve = Sidecar::command(&world, &sleeper(&marker));
    // The shell waits for it: the server's parent is the shell, and its input is ours.
    let line = format!("{} <&0 & wait", process::shell_words(&serve));
    let mut parent = world.host("bash");
    for (name, value) in serve.get_envs() {
        if let Some(value) = value {
            parent.env(name, value);
        }
    }
    let sidecar = Sidecar::of(parent.args(["-c", &line]));
    begin(&sidecar, &marker);
    let all = process::tree(sidecar.running.pid());
    assert!(all.len() > 3, "{all:#?}");
    all[0].kill();
    assert_eq!(process::left_after(&all, LIMIT), []);
    process::assert_gone(&format!("sleep {marker}"), LIMIT);
}

once_test!(a_signal_ends_it_and_its_runs);
fn a_signal_ends_it_and_its_runs() {
    let (world, marker) = (World::new(Place::any()), long_sleep());
    let sidecar = Sidecar::start(&world, &sleeper(&marker), &[]);
    begin(&sidecar, &marker);
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(sidecar.running.pid()),
        nix::sys::signal::Signal::SIGTERM,
    )
    .unwrap();
    sidecar.running.finish(LIMIT).expect(128 + 15);
    process::assert_gone(&format!("sleep {marker}"), LIMIT);
}

once_test!(an_application_chats_approves_and_dies_and_nothing_remains);
/// `examples/sidecar.mjs`: what a desktop application does, in sixty lines.
fn an_application_chats_approves_and_dies_and_nothing_remains() {
    let (world, marker) = (World::new(Place::any()), long_sleep());
    let turns = script(&[
        (
            "",
            &[("bash", json!({"command": "echo approved > approved"}))],
        ),
        (
            "Now I wait.",
            &[("bash", json!({"command": format!("sleep {marker}")}))],
        ),
    ]);
    let path = world.home.join("script.json");
    world.write(&path, turns.to_string());
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/sidecar.mjs");
    let copy = world.home.join("sidecar.mjs");
    world.write(&copy, std::fs::read(example).unwrap());
    let lazaret = lazaret_tests::programs::path("lazaret");
    let mut command = world.host("node");
    command.args([&copy, &lazaret, &world.project, &path]);
    for (name, value) in world.lazaret("serve").get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    let mut parent = Running::start(&mut command);
    parent.wait_for("waiting for the last call", LIMIT);
    let all = process::tree(parent.pid());
    assert!(until(LIMIT, || sleeping(&marker)));
    let finished = parent.finish(LIMIT);
    assert_eq!(
        finished.code(),
        128 + 9,
        "it kills itself: {}{}",
        finished.text(),
        finished.errors()
    );
    assert_eq!(
        String::from_utf8(world.get("approved")).unwrap(),
        "approved\n"
    );
    assert_eq!(process::left_after(&all, LIMIT), []);
    process::assert_gone(&format!("sleep {marker}"), LIMIT);
}
