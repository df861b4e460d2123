//! Measures `lazaret serve`: the time to the first text of an answer, and the cost of 200 simultaneous conversations. The exit code
//! is 1 if either exceeds its limit.

use lazaret_tests::process::figure;
use lazaret_tests::sidecar::Sidecar;
use lazaret_tests::{Place, World};
use serde_json::json;
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Maximum median time from a message to the first text, with a model that answers at once.
const FIRST_TEXT: Duration = Duration::from_millis(20);
/// Maximum memory of the server with all conversations, in KiB.
const MEMORY: u64 = 256 << 10;
const CONVERSATIONS: usize = 200;
const ROUNDS: usize = 200;

fn main() -> ExitCode {
    let (median, late) = first_text();
    println!("first text after {median:?} (median of {ROUNDS}), {late:?} (95 of 100)");
    let memory = conversations();
    println!(
        "{CONVERSATIONS} conversations at once: {} MiB in the server",
        memory >> 10
    );
    if median <= FIRST_TEXT && memory <= MEMORY {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The time from a message to its first text, including the scripted provider and the local network.
fn first_text() -> (Duration, Duration) {
    let world = World::new(Place::any());
    let script = json!({"repeat": true, "turns": [{"text": "Hello."}]});
    let sidecar = Sidecar::start(&world, &script, &[]);
    let mut client = sidecar.client();
    let mut times: Vec<Duration> = Vec::new();
    // The first round opens the session.
    for _ in 0..=ROUNDS {
        // Stays below the rate at which messages of one client are read.
        std::thread::sleep(Duration::from_millis(25));
        let begun = Instant::now();
        client.say(
            "chat:send",
            json!({"content": "x", "conversationId": "c", "history": []}),
        );
        client.next_of("chat:text-delta");
        times.push(begun.elapsed());
        client.next_of("chat:stream-end");
    }
    times.remove(0);
    times.sort();
    (times[ROUNDS / 2], times[ROUNDS * 95 / 100])
}

/// Runs conversations that all wait for an approval at once, and ends them; returns the server's peak memory.
fn conversations() -> u64 {
    let world = World::new(Place::any());
    let call = json!({"name": "bash", "input": {"command": "seq 1000"}});
    let sidecar = Sidecar::start(
        &world,
        &json!({"turns": [{"toolCalls": [call]}, {"text": "Done."}]}),
        &[],
    );
    let mut client = sidecar.client();
    for number in 0..CONVERSATIONS {
        client.say(
            "chat:send",
            json!({"content": "x", "conversationId": format!("c{number}")}),
        );
    }
    let confirms: Vec<_> = (0..CONVERSATIONS)
        .map(|_| client.next_of("chat:tool-confirm"))
        .collect();
    for confirm in &confirms {
        let answer = json!({"toolId": confirm["toolId"], "conversationId": confirm["conversationId"], "approved": true});
        client.say("chat:tool-approve", answer);
    }
    let ended: BTreeSet<String> = (0..CONVERSATIONS)
        .map(|_| client.next_of("chat:stream-end")["conversationId"].to_string())
        .collect();
    assert_eq!(ended.len(), CONVERSATIONS);
    figure(sidecar.running.pid(), "status", "VmHWM").expect("a running process has memory")
}
