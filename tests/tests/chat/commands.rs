//! Commands that a person types to the chat itself, at a terminal.

use super::chats::{Printed, play, script};
use lazaret_tests::{LIMIT, Place, Terminal, World, once_test, place_test};
use serde_json::{Value, json};
use std::fs;

pub fn start(world: &World, turns: &Value, arguments: &[&str]) -> Terminal {
    let path = world.home.join("script.json");
    world.write(&path, turns.to_string());
    let mut command = world.lazaret("chat");
    command
        .args(["--provider", "mock", "--script"])
        .arg(path)
        .args(arguments);
    Terminal::start(&mut command, 30, 100)
}

pub fn end(mut terminal: Terminal) {
    terminal.send("\x04");
    assert_eq!(terminal.finish(LIMIT).code(), Some(0));
}

/// Types a line at the prompt, and waits for what is said to it and for the next prompt.
#[track_caller]
pub fn type_line(terminal: &mut Terminal, line: &str, want: &str) {
    terminal.send(&format!("{line}\n"));
    terminal.expect(want, LIMIT);
    terminal.expect("> ", LIMIT);
}

/// Messages of the user in the conversation that was written to last, as a model is told them.
pub fn user_messages(world: &World) -> Vec<String> {
    let folder = world.state.join("lazaret/chats");
    let newest = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .max()
        .unwrap();
    let text = fs::read_to_string(newest).unwrap();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let messages = lines
        .filter(|line| line["kind"] == "message")
        .map(|line| line["payload"].clone());
    let users = messages.filter(|message| message["role"] == "user");
    users
        .map(|message| message["text"].as_str().unwrap().to_owned())
        .collect()
}

place_test!(the_last_change_is_undone_and_no_other);
fn the_last_change_is_undone_and_no_other(place: Place) {
    let world = World::new(place);
    world.put("kept.txt", "before\n");
    let write =
        |path: &str, content: &str| ("file_write", json!({"path": path, "content": content}));
    let turns = script(&[
        ("Zero.", &[("file_read", json!({"path": "kept.txt"}))]),
        (
            "One.",
            &[write("kept.txt", "after\n"), write("made.txt", "new\n")],
        ),
        ("Two.", &[]),
    ]);
    // The change of somebody else.
    let others = script(&[("x", &[write("other.txt", "theirs\n")]), ("y", &[])]);
    Printed::of(play(&world, &others).args(["--trust", "autonomous", "begin"]))
        .finished
        .success();
    let mut terminal = start(&world, &turns, &["--trust", "autonomous", "begin"]);
    terminal.expect("Two.", LIMIT);
    terminal.expect("> ", LIMIT);
    assert_eq!(world.get("made.txt"), b"new\n");
    type_line(&mut terminal, "/undo", "made.txt");
    assert!(!world.project.join("made.txt").exists());
    assert_eq!(world.get("kept.txt"), b"after\n", "one call at a time");
    type_line(&mut terminal, "/undo", "kept.txt");
    assert_eq!(world.get("kept.txt"), b"before\n");
    type_line(&mut terminal, "/undo", "nothing more");
    assert_eq!(world.get("other.txt"), b"theirs\n");
    end(terminal);
}

place_test!(less_trust_holds_from_the_next_call_on_and_more_is_refused);
fn less_trust_holds_from_the_next_call_on_and_more_is_refused(place: Place) {
    let world = World::new(place);
    let turns = script(&[
        ("One.", &[("bash", json!({"command": "touch first"}))]),
        ("Two.", &[]),
        ("Three.", &[("bash", json!({"command": "touch second"}))]),
        ("Four.", &[]),
    ]);
    let mut terminal = start(&world, &turns, &["--trust", "autonomous", "begin"]);
    terminal.expect("Two.", LIMIT);
    terminal.expect("> ", LIMIT);
    assert!(
        world.project.join("first").exists(),
        "the control: it is not asked about"
    );
    type_line(&mut terminal, "/trust", "autonomous");
    type_line(
        &mut terminal,
        "/trust guided",
        "guided from the next call on",
    );
    type_line(&mut terminal, "/trust yolo", "never asked less");
    terminal.send("go on\n");
    terminal.expect("bash wants to run", LIMIT);
    terminal.send("n\n");
    terminal.expect("Four.", LIMIT);
    terminal.expect("> ", LIMIT);
    assert!(!world.project.join("second").exists());
    end(terminal);
}

once_test!(another_conversation_goes_on);
fn another_conversation_goes_on() {
    let world = World::new(Place::any());
    let turns = script(&[("First.", &[]), ("Second.", &[]), ("Third.", &[])]);
    let earlier = Printed::of(play(&world, &turns).arg("the secret word is plum"));
    let id = earlier.one("stream-start")["conversationId"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut terminal = start(&world, &turns, &[]);
    terminal.expect("> ", LIMIT);
    type_line(&mut terminal, "/resume", "the secret word is plum");
    for wrong in ["../../x", "none"] {
        type_line(&mut terminal, &format!("/resume {wrong}"), "lazaret: ");
    }
    type_line(&mut terminal, "/resume last", &format!("Resumed {id}"));
    type_line(&mut terminal, "and then?", "Second.");
    end(terminal);
    let third = Printed::of(play(&world, &turns).args(["--resume", &id, "and now?"]));
    assert_eq!(third.text(), "Third.", "both answers are in its transcript");
}

once_test!(no_command_reaches_the_model);
fn no_command_reaches_the_model() {
    let world = World::new(Place::any());
    let turns = script(&[("First.", &[]), ("Second.", &[])]);
    let mut terminal = start(&world, &turns, &[]);
    terminal.expect("> ", LIMIT);
    type_line(&mut terminal, "/help", "/resume [ID]");
    type_line(
        &mut terminal,
        "/etc/hosts is wrong",
        "the model was not told",
    );
    type_line(&mut terminal, "/model", "answers; there are");
    type_line(&mut terminal, "//etc/hosts is wrong", "First.");
    terminal.send("in two \\\n");
    terminal.expect("… ", LIMIT);
    type_line(&mut terminal, "lines", "Second.");
    end(terminal);
    assert_eq!(
        user_messages(&world),
        ["/etc/hosts is wrong", "in two \nlines"]
    );
}
