//! The line that a person types at a terminal: its keys, its history, what is pasted.

use super::chats::script;
use super::commands::{end, start, type_line, user_messages};
use lazaret_tests::process::until;
use lazaret_tests::{LIMIT, Place, Terminal, World, once_test};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// As many answers as a test may have, each of which says its number.
fn answers() -> Value {
    let texts: Vec<String> = (1..20).map(|number| format!("Answer {number}.")).collect();
    script(
        &texts
            .iter()
            .map(|text| (text.as_str(), &[][..]))
            .collect::<Vec<_>>(),
    )
}

fn chat(world: &World, arguments: &[&str]) -> Terminal {
    let mut terminal = start(world, &answers(), arguments);
    terminal.expect("> ", LIMIT);
    terminal
}

once_test!(a_line_is_edited_as_in_a_shell);
fn a_line_is_edited_as_in_a_shell() {
    let world = World::new(Place::any());
    let mut terminal = chat(&world, &[]);
    let typed = [
        ("wrld\x1b[D\x1b[D\x1b[Do\x01hello \x05!\r", "hello world!"),
        ("one two three\x1bb\x0b\x17zwei\r", "one zwei"),
        ("gone\x15日本語\x7f\x02é\r", "日é本"),
        ("one\x1b\rtwo\\\rthree\r", "one\ntwo\nthree"),
        ("\x12two\r\r", "one\ntwo\nthree"),
        ("\x1b[A\x1b[A\x1b[A\x1b[A\x05 again\r", "日é本 again"),
        ("\r\r  \r\tplain\r", "plain"),
    ];
    for (number, (keys, _)) in typed.iter().enumerate() {
        terminal.send(keys);
        terminal.expect(&format!("Answer {}.", number + 1), LIMIT);
        terminal.expect("> ", LIMIT);
    }
    terminal.send("/tru\tsu\t\r");
    terminal.expect("supervised from the next call on", LIMIT);
    terminal.expect("> ", LIMIT);
    end(terminal);
    assert_eq!(user_messages(&world), typed.map(|(_, said)| said));
}

once_test!(typed_lines_return_in_the_next_chat_and_secrets_do_not);
fn typed_lines_return_in_the_next_chat_and_secrets_do_not() {
    let world = World::new(Place::any());
    let secret = "hunter2-hunter2";
    let path = world.home.join("script.json");
    world.write(&path, answers().to_string());
    let mut command = world.lazaret("chat");
    command
        .args(["--provider", "mock", "--script"])
        .arg(&path)
        .env("DEPLOY_TOKEN", secret);
    let mut terminal = Terminal::start(&mut command, 30, 100);
    terminal.expect("> ", LIMIT);
    type_line(&mut terminal, "the first line", "Answer 1.");
    type_line(&mut terminal, &format!("deploy with {secret}"), "Answer 2.");
    type_line(&mut terminal, " between us", "Answer 3.");
    end(terminal);
    let file = world.state.join("lazaret/chat_history");
    let kept = fs::read_to_string(&file).unwrap();
    assert_eq!(
        kept,
        "\"the first line\"\n\"deploy with [redacted:DEPLOY_TOKEN]\"\n"
    );
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );

    // Without a transcript, no line is kept, and none is read.
    let mut terminal = chat(&world, &["--no-transcript"]);
    terminal.send("\x1b[Aunrecorded\r");
    terminal.expect("Answer 1.", LIMIT);
    terminal.expect("> ", LIMIT);
    end(terminal);
    assert_eq!(fs::read_to_string(&file).unwrap(), kept);

    // What another program puts there is text of a stranger's.
    world.write(
        &file,
        format!("{kept}\"\\u001b]0;title\\u0007evil\\u001b[2J\"\n"),
    );
    let mut terminal = chat(&world, &[]);
    terminal.send("\x1b[A");
    terminal.expect("evil", LIMIT);
    terminal.send("\x1b[A\x1b[A\x05!\r");
    terminal.expect("Answer 1.", LIMIT);
    assert!(!terminal.screen().contains("\x1b]0;") && !terminal.screen().contains("\x1b[2J"));
    terminal.expect("> ", LIMIT);
    end(terminal);
    assert_eq!(user_messages(&world), ["the first line!"]);
}

once_test!(a_paste_is_one_message_and_moves_nothing);
fn a_paste_is_one_message_and_moves_nothing() {
    let world = World::new(Place::any());
    let mut terminal = chat(&world, &[]);
    // The control: the same lines without marks are two messages.
    terminal.send("first\rsecond\r");
    terminal.expect("Answer 2.", LIMIT);
    terminal.expect("> ", LIMIT);
    terminal.send("\x1b[200~first\rsecond\x1b]0;title\x07\x1b[2J\x03\x04\r\x1b[201~");
    terminal.expect("second", LIMIT);
    // One that ends itself: what follows is typed, and sends nothing.
    terminal.send("\x1b[200~third\x1b[201~\rfourth\r\x1b[201~");
    terminal.expect("fourth", LIMIT);
    std::thread::sleep(std::time::Duration::from_secs(2));
    terminal.send("!\r");
    terminal.expect("Answer 3.", LIMIT);
    terminal.expect("> ", LIMIT);
    for sequence in ["\x1b]0;", "\x1b[2J", "\x07"] {
        assert!(!terminal.screen().contains(sequence), "{sequence:?}");
    }
    end(terminal);
    assert_eq!(
        user_messages(&world),
        ["first", "second", "first\nsecond\nthird\nfourth\n!"]
    );
}

once_test!(each_window_shows_the_line);
fn each_window_shows_the_line() {
    let world = World::new(Place::any());
    world.write(&world.home.join("script.json"), answers().to_string());
    let keys = [
        "abcdefghij日本語日本語 ",
        "\x1b\rnext ",
        "👩\u{200d}👩\u{200d}👧 end",
        "\x01\x02\x02X\x1b[D",
        "\x7f",
        "YZ",
    ];
    let text = "abcdefghij日本語日本YZX\nnext 👩\u{200d}👩\u{200d}👧 end";
    for columns in [12, 20, 40, 120] {
        let mut command = world.lazaret("chat");
        command
            .args(["--provider", "mock", "--script"])
            .arg(world.home.join("script.json"));
        let mut terminal = Terminal::start(&mut command, 24, columns);
        terminal.expect("> ", LIMIT);
        for keys in keys {
            // One after the other, so that each is drawn over the one before.
            terminal.send(keys);
            terminal.expect("\r", LIMIT);
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        let text_of = |row: &String| match row.strip_prefix("… ") {
            Some(line) => format!("\n{line}"),
            None => row.get(2..).unwrap_or_default().to_owned(),
        };
        let is_whole = |rows: &[String]| {
            let begins = rows.iter().position(|row| row.starts_with("> "));
            let shown: String = rows[begins.unwrap_or_default()..]
                .iter()
                .map(text_of)
                .collect();
            shown.replace(' ', "") == text.replace(' ', "")
        };
        // The last keys are drawn when the machine has time for it.
        until(LIMIT, || is_whole(&terminal.rows(24, columns)));
        let rows = terminal.rows(24, columns);
        assert!(is_whole(&rows), "{columns}: {rows:#?}");
        assert_eq!(
            rows.iter().filter(|row| row.starts_with("> ")).count(),
            1,
            "{columns}: {rows:#?}"
        );
        terminal.send("\r");
        terminal.expect("Answer 1.", LIMIT);
        terminal.expect("> ", LIMIT);
        end(terminal);
    }
}

once_test!(an_interrupt_clears_the_line_and_two_end_the_chat);
fn an_interrupt_clears_the_line_and_two_end_the_chat() {
    let world = World::new(Place::any());
    let mut terminal = chat(&world, &[]);
    terminal.send("half a line\x03");
    terminal.expect("Ctrl-C again", LIMIT);
    terminal.send("whole\r");
    terminal.expect("Answer 1.", LIMIT);
    terminal.expect("> ", LIMIT);
    terminal.send("x\x03");
    terminal.expect("Ctrl-C again", LIMIT);
    terminal.send("\x03");
    assert_eq!(terminal.finish(LIMIT).code(), Some(0));
    assert_eq!(user_messages(&world), ["whole"]);
}

once_test!(a_terminal_is_left_as_it_was);
fn a_terminal_is_left_as_it_was() {
    let world = World::new(Place::any());
    for signal in [None, Some(Signal::SIGTERM), Some(Signal::SIGINT)] {
        let mut terminal = chat(&world, &[]);
        assert!(
            !terminal.is_restored(),
            "the control: keys are read one by one"
        );
        terminal.send("half");
        terminal.expect("half", LIMIT);
        match signal {
            Some(signal) => kill(Pid::from_raw(terminal.child.id() as i32), signal).unwrap(),
            None => terminal.send("\x15\x04"),
        }
        assert_eq!(terminal.finish(LIMIT).code(), Some(0));
        assert!(terminal.is_restored(), "{signal:?}");
        terminal.expect("\x1b[?2004l", LIMIT);
    }
}

once_test!(a_terminal_without_a_cursor_has_plain_lines);
fn a_terminal_without_a_cursor_has_plain_lines() {
    let world = World::new(Place::any());
    world.write(&world.home.join("script.json"), answers().to_string());
    let mut command = world.lazaret("chat");
    command
        .args(["--provider", "mock", "--script"])
        .arg(world.home.join("script.json"))
        .env("TERM", "dumb");
    let mut terminal = Terminal::start(command.env("NO_COLOR", "1"), 24, 80);
    terminal.expect("> ", LIMIT);
    type_line(&mut terminal, "in two \\\nlines", "Answer 1.");
    assert!(
        !terminal.screen().contains('\x1b'),
        "{:?}",
        terminal.screen()
    );
    terminal.send("\n");
    assert_eq!(terminal.finish(LIMIT).code(), Some(0));
    assert_eq!(user_messages(&world), ["in two \nlines"]);
}
