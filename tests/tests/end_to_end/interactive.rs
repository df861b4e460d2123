//! `lazaret run` on a terminal is a shell one can work in.

use lazaret_tests::process::{self, Process, until};
use lazaret_tests::world::{long_sleep, unique};
use lazaret_tests::{LIMIT, Place, Terminal, World, once_test, place_test};
use std::time::Duration;

/// A prompt that no echo of a command looks like.
const PROMPT: &str = "ready> ";
const SET_PROMPT: &str = "PS1=rea''dy'> '\n";

fn shell(world: &World) -> Terminal {
    let mut terminal = Terminal::start(&mut world.lazaret_run(&["bash", "--norc"]), 24, 80);
    terminal.send(SET_PROMPT);
    terminal.expect(PROMPT, LIMIT);
    terminal
}

place_test!(a_shell_answers_and_its_exit_code_is_ours);
fn a_shell_answers_and_its_exit_code_is_ours(place: Place) {
    let world = World::new(place);
    let mut terminal = shell(&world);
    terminal.send("echo sum$((40+2)); tty; test -t 0 -a -t 1 -a -t 2 && echo all''-terminals\n");
    terminal.expect("sum42", LIMIT);
    terminal.expect("/dev/pts/", LIMIT);
    terminal.expect("all-terminals", LIMIT);
    terminal.expect(PROMPT, LIMIT);
    terminal.send("exit 7\n");
    assert_eq!(terminal.finish(LIMIT).code(), Some(7));
    assert!(
        terminal.is_restored(),
        "the terminal's settings are not what they were"
    );
    let screen = terminal.screen();
    assert!(
        !screen.contains("no job control") && !screen.contains("cannot set terminal"),
        "{screen}"
    );
}

place_test!(an_interrupt_ends_the_command_and_not_the_shell);
fn an_interrupt_ends_the_command_and_not_the_shell(place: Place) {
    let world = World::new(place);
    let mut terminal = shell(&world);
    let marker = long_sleep();
    terminal.send(&format!("sleep {marker}\n"));
    assert!(until(LIMIT, || !process::with_marker(&marker).is_empty()));
    terminal.send("\x03");
    terminal.expect(PROMPT, LIMIT);
    process::assert_gone(&marker, LIMIT);
    terminal.send("echo code$?\n");
    terminal.expect("code130", LIMIT);
    terminal.send("exit\n");
    terminal.finish(LIMIT);
    assert!(terminal.is_restored());
}

place_test!(the_size_follows_the_window);
fn the_size_follows_the_window(place: Place) {
    let world = World::new(place);
    let mut terminal = shell(&world);
    terminal.send("stty size\n");
    terminal.expect("24 80", LIMIT);
    terminal.send("(trap 'stty size; exit' WINCH; echo wait''ing; while :; do sleep 0.05; done)\n");
    terminal.expect("waiting", LIMIT);
    terminal.resize(40, 100);
    terminal.expect("40 100", LIMIT);
    terminal.expect(PROMPT, LIMIT);
    terminal.send("exit\n");
    terminal.finish(LIMIT);
}

place_test!(job_control_works);
fn job_control_works(place: Place) {
    let world = World::new(place);
    let mut terminal = shell(&world);
    let marker = long_sleep();
    terminal.send(&format!("sleep {marker} &\n"));
    terminal.expect(PROMPT, LIMIT);
    terminal.send("jobs\n");
    terminal.expect("Running", LIMIT);
    terminal.expect(PROMPT, LIMIT);
    terminal.send("fg\n");
    terminal.expect(&format!("sleep {marker}"), LIMIT);
    // The shell prints the command before it gives it the terminal.
    let stop = || {
        terminal.send("\x1a");
        terminal.shows("Stopped", Duration::from_secs(2))
    };
    assert!(until(LIMIT, stop), "nothing stops it");
    terminal.expect(PROMPT, LIMIT);
    terminal.send("kill -9 %1; sleep 0.5; echo kil''led\n");
    terminal.expect("killed", LIMIT);
    terminal.send("exit\n");
    terminal.finish(LIMIT);
    process::assert_gone(&marker, LIMIT);
}

/// Lines in the file of a command that writes one again and again.
fn ticks(world: &World) -> usize {
    std::fs::read_to_string(world.project.join("ticks"))
        .unwrap_or_default()
        .len()
}

/// Whether such a command goes on.
fn goes_on(world: &World) -> bool {
    let before = ticks(world);
    until(LIMIT, || ticks(world) > before + 2)
}

/// Whether such a command is stopped: the shell that writes, which alone has the marker after the script's begin.
fn stands_still(marker: &str) -> bool {
    until(LIMIT, || {
        let shells = process::with_marker(&format!("bash -c : {marker}"));
        let mut shells = shells.iter().filter(|process| process.name == "bash");
        shells.next().is_some_and(Process::is_stopped) && shells.all(Process::is_stopped)
    })
}

/// A shell of the host, and in it `lazaret run` with these options and a command that writes again and again, then `behind`.
fn job(world: &World, marker: &str, options: &[&str], behind: &str) -> Terminal {
    let mut terminal = Terminal::start(world.host("bash").args(["--norc", "-i"]), 24, 300);
    terminal.send(SET_PROMPT);
    terminal.expect(PROMPT, LIMIT);
    let mut command = world.lazaret("run");
    let script = format!(": {marker}; echo beg''un; while :; do echo >> ticks; sleep 0.02; done");
    command.args(options).args(["--", "bash", "-c", &script]);
    terminal.send(&format!("{}{behind}\n", process::shell_words(&command)));
    terminal.expect("begun", LIMIT);
    assert!(goes_on(world), "the control");
    terminal
}

place_test!(control_z_stops_a_command_and_fg_continues_it);
/// Alone on its terminal, where the key is a byte to us, and before a pipe, where it is a signal.
fn control_z_stops_a_command_and_fg_continues_it(place: Place) {
    for behind in ["", " | cat"] {
        let (world, marker) = (World::new(place), unique());
        let mut terminal = job(&world, &marker, &[], behind);
        for _ in 0..2 {
            terminal.send("\x1a");
            terminal.expect("Stopped", LIMIT);
            terminal.expect(PROMPT, LIMIT);
            assert!(stands_still(&marker), "{behind:?}: the command goes on");
            // The terminal is the shell's.
            terminal.send("stty -a | grep -e -icanon || echo ca''nonical\n");
            terminal.expect("canonical", LIMIT);
            terminal.expect(PROMPT, LIMIT);
            terminal.send("fg\n");
            assert!(goes_on(&world), "{behind:?}: it stands still");
        }
        // Bash goes on if the key comes just when `sleep` has ended by itself.
        terminal.answer("\x03", PROMPT);
        process::assert_gone(&marker, LIMIT);
        terminal.send("exit\n");
        terminal.finish(LIMIT);
    }
    // A time limit is one of the policy's, and a client that stops its command is not out of it.
    let (world, marker) = (World::new(place), unique());
    let mut terminal = job(&world, &marker, &["--timeout", "20"], "");
    terminal.send("\x1a");
    terminal.expect("Stopped", LIMIT);
    let command = format!("bash -c : {marker}");
    let runs = || {
        process::with_marker(&command)
            .into_iter()
            .any(|process| process.name == "bash")
    };
    assert!(until(LIMIT, || !runs()), "the command is not ended");
    terminal.send("fg\n");
    terminal.expect("ran into its time limit", LIMIT);
    terminal.send("exit\n");
    terminal.finish(LIMIT);
}

place_test!(a_closed_window_ends_the_cell);
fn a_closed_window_ends_the_cell(place: Place) {
    let world = World::new(place);
    let marker = long_sleep();
    let mut terminal = shell(&world);
    terminal.send(&format!("sleep {marker}\n"));
    assert!(until(LIMIT, || !process::with_marker(&marker).is_empty()));
    terminal.hang_up();
    process::assert_gone(&marker, LIMIT);
}

once_test!(the_terminal_is_restored_after_a_violent_end);
/// A program that changes the terminal and is killed must not leave it changed.
fn the_terminal_is_restored_after_a_violent_end() {
    let world = World::new(Place::any());
    let mut terminal = Terminal::start(
        &mut world.lazaret_run(&["bash", "-c", "stty raw -echo; kill -9 $$"]),
        24,
        80,
    );
    assert_eq!(terminal.finish(LIMIT).code(), Some(137));
    assert!(terminal.is_restored());
}

once_test!(the_keyboard_is_not_needed);
/// Output through a pipe stays what it is, even when the input is a terminal: no terminal of its own then.
fn the_keyboard_is_not_needed() {
    let world = World::new(Place::any());
    let finished = lazaret_tests::run(
        &mut world.lazaret_run(&["sh", "-c", "test -t 1 || echo piped"]),
        LIMIT,
    );
    assert_eq!(finished.success(), "piped\n");
}
