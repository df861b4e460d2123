//! `lazaret run` on a terminal is a shell one can work in.

use lazaret_tests::process::{self, until};
use lazaret_tests::world::long_sleep;
use lazaret_tests::{Place, Terminal, World, matrix};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);

/// A prompt that no echo of a command looks like.
const PROMPT: &str = "ready> ";
const SET_PROMPT: &str = "PS1=rea''dy'> '\n";

fn shell(world: &World) -> Terminal {
    let mut terminal = Terminal::start(&mut world.lazaret_run(&["bash", "--norc"]), 24, 80);
    terminal.send(SET_PROMPT);
    terminal.expect(PROMPT, SOON);
    terminal
}

#[test]
fn a_shell_answers_and_its_exit_code_is_ours() {
    matrix(|place| {
        let world = World::new(place);
        let mut terminal = shell(&world);
        terminal.send("echo sum$((40+2)); tty; test -t 0 -a -t 1 -a -t 2 && echo all''-terminals\n");
        terminal.expect("sum42", SOON);
        terminal.expect("/dev/pts/", SOON);
        terminal.expect("all-terminals", SOON);
        terminal.expect(PROMPT, SOON);
        terminal.send("exit 7\n");
        assert_eq!(terminal.finish(SOON).code(), Some(7));
        assert!(terminal.is_restored(), "the terminal's settings are not what they were");
        let screen = terminal.screen();
        assert!(!screen.contains("no job control") && !screen.contains("cannot set terminal"), "{screen}");
    });
}

#[test]
fn an_interrupt_ends_the_command_and_not_the_shell() {
    matrix(|place| {
        let world = World::new(place);
        let mut terminal = shell(&world);
        let marker = long_sleep();
        terminal.send(&format!("sleep {marker}\n"));
        assert!(until(SOON, || !process::with_marker(&marker).is_empty()));
        terminal.send("\x03");
        terminal.expect(PROMPT, Duration::from_secs(3));
        process::assert_gone(&marker, SOON);
        terminal.send("echo code$?\n");
        terminal.expect("code130", SOON);
        terminal.send("exit\n");
        terminal.finish(SOON);
        assert!(terminal.is_restored());
    });
}

#[test]
fn the_size_follows_the_window() {
    matrix(|place| {
        let world = World::new(place);
        let mut terminal = shell(&world);
        terminal.send("stty size\n");
        terminal.expect("24 80", SOON);
        terminal.send("(trap 'stty size; exit' WINCH; echo wait''ing; while :; do sleep 0.05; done)\n");
        terminal.expect("waiting", SOON);
        terminal.resize(40, 100);
        terminal.expect("40 100", SOON);
        terminal.expect(PROMPT, SOON);
        terminal.send("exit\n");
        terminal.finish(SOON);
    });
}

#[test]
fn job_control_works() {
    matrix(|place| {
        let world = World::new(place);
        let mut terminal = shell(&world);
        let marker = long_sleep();
        terminal.send(&format!("sleep {marker} &\n"));
        terminal.expect(PROMPT, SOON);
        terminal.send("jobs\n");
        terminal.expect("Running", SOON);
        terminal.expect(PROMPT, SOON);
        terminal.send("fg\n");
        terminal.expect(&format!("sleep {marker}"), SOON);
        std::thread::sleep(Duration::from_millis(300));
        terminal.send("\x1a");
        terminal.expect("Stopped", SOON);
        terminal.expect(PROMPT, SOON);
        terminal.send("kill -9 %1; sleep 0.5; echo kil''led\n");
        terminal.expect("killed", SOON);
        terminal.send("exit\n");
        terminal.finish(SOON);
        process::assert_gone(&marker, SOON);
    });
}

#[test]
fn a_closed_window_ends_the_cell() {
    matrix(|place| {
        let world = World::new(place);
        let marker = long_sleep();
        let mut terminal = shell(&world);
        terminal.send(&format!("sleep {marker}\n"));
        assert!(until(SOON, || !process::with_marker(&marker).is_empty()));
        terminal.hang_up();
        process::assert_gone(&marker, Duration::from_secs(2));
    });
}

/// A program that changes the terminal and is killed must not leave it changed.
#[test]
fn the_terminal_is_restored_after_a_violent_end() {
    let world = World::new(Place::any());
    let mut terminal =
        Terminal::start(&mut world.lazaret_run(&["bash", "-c", "stty raw -echo; kill -9 $$"]), 24, 80);
    assert_eq!(terminal.finish(SOON).code(), Some(137));
    assert!(terminal.is_restored());
}

/// Output through a pipe stays what it is, even when the input is a terminal: no terminal of its own then.
#[test]
fn the_keyboard_is_not_needed() {
    let world = World::new(Place::any());
    let finished = lazaret_tests::run(&mut world.lazaret_run(&["sh", "-c", "test -t 1 || echo piped"]), SOON);
    assert_eq!(finished.success(), "piped\n");
}
