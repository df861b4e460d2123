//! Many conversations at once, and clients that do not read.

use super::messages::{payloads, script};
use lazaret_tests::process::{self, until};
use lazaret_tests::sidecar::Sidecar;
use lazaret_tests::{LIMIT, Place, World, once_test, place_test};
use serde_json::json;
use std::collections::BTreeSet;

place_test!(fifty_conversations_at_once_get_each_its_own, ordinary_only);
/// Each conversation writes a file of its own name, in a session of its own, over one connection.
fn fifty_conversations_at_once_get_each_its_own(place: Place) {
    let world = World::new(place);
    let turns = script(&[
        (
            "",
            &[(
                "bash",
                json!({"command": "echo $$ >> pids; sleep 0.2; echo done"}),
            )],
        ),
        ("Done.", &[]),
    ]);
    let sidecar = Sidecar::start(&world, &turns, &[]);
    let mut client = sidecar.client();
    let ids: BTreeSet<String> = (0..50)
        .map(|number| format!("conversation-{number}"))
        .collect();
    for id in &ids {
        client.say(
            "chat:send",
            json!({"content": "x", "conversationId": id, "trust": "autonomous"}),
        );
    }
    let (mut all, mut ended) = (Vec::new(), BTreeSet::new());
    while ended.len() < ids.len() {
        let message = client.next_message();
        if message["type"] == "chat:stream-end" {
            assert_eq!(message["payload"]["reason"], "done", "{message}");
            ended.insert(
                message["payload"]["conversationId"]
                    .as_str()
                    .unwrap()
                    .to_owned(),
            );
        }
        all.push(message);
    }
    assert_eq!(ended, ids);
    for id in &ids {
        let own: Vec<_> = all
            .iter()
            .filter(|message| message["payload"]["conversationId"] == **id)
            .cloned()
            .collect();
        let sequences: Vec<u64> = own
            .iter()
            .filter_map(|message| message["sequence"].as_u64())
            .collect();
        assert_eq!(
            sequences,
            (1..=own.len() as u64).collect::<Vec<_>>(),
            "{id}"
        );
        let results = payloads(&own, "chat:tool-result");
        assert_eq!(
            (results.len(), &results[0]["result"]),
            (1, &json!("done\n")),
            "{id}"
        );
    }
    let lines = String::from_utf8(world.get("pids")).unwrap();
    assert_eq!(lines.lines().count(), 50);
    sidecar.end().success();
}

once_test!(a_client_that_does_not_read_is_given_up_and_no_other_one_waits);
fn a_client_that_does_not_read_is_given_up_and_no_other_one_waits() {
    let world = World::new(Place::any());
    let turns = script(&[
        (
            "",
            &[(
                "bash",
                json!({"command": "head -c 60000000 /dev/zero | tr '\\0' x"}),
            )],
        ),
        ("Done.", &[]),
    ]);
    let sidecar = Sidecar::start(&world, &turns, &[]);
    let mut slow = sidecar.client();
    slow.say(
        "chat:send",
        json!({"content": "x", "conversationId": "slow", "trust": "autonomous"}),
    );
    // It never reads again. Another one is served at once, and the memory stays.
    let other = script(&[("Hello.", &[])]);
    drop(other);
    let mut quick = sidecar.client();
    quick.say(
        "chat:send",
        json!({"content": "x", "conversationId": "quick", "trust": "supervised"}),
    );
    let confirm = quick.next_of("chat:tool-confirm");
    quick.say(
        "chat:tool-approve",
        json!({"toolId": confirm["toolId"], "conversationId": "quick", "approved": false}),
    );
    assert_eq!(
        payloads(&quick.to_end(), "chat:stream-end")[0]["reason"],
        "done"
    );
    // All of its output goes through once nobody waits for it.
    let ended = until(4 * LIMIT, || sidecar.get("/health").json()["runs"] == 0);
    assert!(ended, "its run goes on for nobody");
    let memory = process::figure(sidecar.running.pid(), "status", "VmHWM").unwrap();
    assert!(memory < 120 << 10, "{memory} KiB");
    assert!(slow.is_closed(LIMIT));
}

once_test!(the_executor_is_lost_and_another_one_serves);
fn the_executor_is_lost_and_another_one_serves() {
    let world = World::new(Place::any());
    let turns = script(&[
        (
            "",
            &[(
                "bash",
                json!({"command": "touch begun; while :; do sleep 0.05; done"}),
            )],
        ),
        ("", &[("bash", json!({"command": "echo again"}))]),
        ("Done.", &[]),
    ]);
    let sidecar = Sidecar::start(&world, &turns, &[]);
    let mut client = sidecar.client();
    client.say(
        "chat:send",
        json!({"content": "x", "conversationId": "c", "trust": "autonomous"}),
    );
    assert!(until(LIMIT, || world.project.join("begun").exists()));
    // The broker of the session: the spawner makes others.
    let below = process::below(sidecar.running.pid());
    let broker = below
        .iter()
        .find(|one| one.name == "lazaret-executo" && one.parent != sidecar.running.pid());
    broker
        .unwrap_or_else(|| panic!("no broker among {below:?}"))
        .kill();
    let all = client.to_end();
    let kinds: Vec<_> = payloads(&all, "chat:tool-result")
        .iter()
        .map(|one| one["error"]["code"].clone())
        .collect();
    assert_eq!(kinds[0], "executor_lost", "{all:#?}");
    assert_eq!(payloads(&all, "chat:notice")[0]["kind"], "executor_lost");
    assert_eq!(
        payloads(&all, "chat:session").last().unwrap()["replaced"],
        true
    );
    assert_eq!(payloads(&all, "chat:stream-end")[0]["reason"], "done");
}
