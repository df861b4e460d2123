//! Our reader of command lines against bash itself: whatever bash runs, we must have seen, or have said that we did not.
//!
//! Lines are put together at random. Bash evaluates each with an empty `PATH` and a handler that writes down every program
//! it looks for, with its arguments; each must be one of our simple commands, or the line have a part that is not parsed.
//! `LAZARET_SEED` gives other lines.
#![allow(clippy::unwrap_used)]

use broker_protocol::Command;
use lazaret_tests::fuzz::mutate::pick;
use lazaret_tests::{Chance, Place, World};
use policies::shell::{SimpleCommand, Unit, units};
use std::time::Duration;

const LINES: u64 = 6000;

/// The usual parts of a line.
const USUAL: [&str; 22] = [
    "aa",
    "bb",
    "git push",
    "eval ",
    "builtin eval -- ",
    "-f ",
    "x=1 ",
    "A=\"p q\" ",
    "'p ;q'",
    "\"$x &\"",
    " ",
    " ; ",
    "\n",
    " && ",
    " || ",
    " | ",
    "\\;",
    "$(aa) ",
    "2>&1 ",
    ">o ",
    "(bb)\n",
    "if aa; then bb; fi\n",
];

/// The rest. No loop that may not end, and no program that exists.
const PIECES: [&str; 72] = [
    // Bash evaluates these subscripts once more.
    "test -v 'v[$(aa)]'",
    "printf -v 'v[$(bb)]' x",
    "jobs -x aa",
    "declare -i 'w=v[$(bb)]'",
    "y='v[$(aa)]'; ",
    "test -v v[y] ",
    "PS4='$(bb)'; set -x; ",
    "aa {v['$(bb)']}>o ",
    "aa",
    "bb",
    "git",
    "push",
    "-f",
    "x=1",
    "A=\"p q\"",
    "B='c",
    "'",
    "\"",
    " ",
    " ",
    " ",
    "  ",
    "\t",
    "\n",
    ";",
    ";;",
    "&&",
    "||",
    "|",
    "|&",
    "&",
    "(",
    ")",
    "{ ",
    "; }",
    "$(",
    "$x",
    "${x}",
    "${x:-aa}",
    "\"$x\"",
    "`",
    "\\",
    "\\\n",
    "# c",
    "*",
    "?",
    "~",
    "{p,q}",
    "[a]",
    ">o",
    ">>o",
    "2>&1",
    "</dev/null",
    "<(",
    ">(",
    "<<<",
    "<<E\n",
    "if ",
    "; then ",
    "; else ",
    "; fi",
    "for i in ",
    "; do ",
    "; done",
    "!",
    "case ",
    "[[ ",
    " ]]",
    "$((1))",
    "$'a'",
    "=",
    "é",
];

/// Reads lines from descriptor 3 and writes for each program `\x1f`, the number of its line, and its words, with NUL after each.
const BASH: &str = r#"
command_not_found_handle() { printf '%s\0' $'\037'"$n" "$@" >&4; return $((RANDOM % 2)); }
x='git push'
n=0
while IFS= read -r -d '' line <&3; do
  ( exec 3<&-; eval "$line" ) </dev/null >/dev/null 2>&1
  n=$((n + 1))
done
printf '\037end\0' >&4
"#;

fn lines(seed: u64) -> Vec<String> {
    let mut chance = Chance(seed);
    let line = |_| {
        let pieces = 2 + chance.below(9);
        let mut line = String::new();
        for _ in 0..pieces {
            let odd = chance.below(6) == 0;
            line.push_str(pick::<&str>(
                if odd { &PIECES } else { &USUAL },
                &mut chance,
            ));
        }
        line
    };
    (0..LINES).map(line).collect()
}

/// The programs that bash looks for in each line.
fn run(lines: &[String]) -> Vec<Vec<Vec<String>>> {
    let world = World::new(Place::any());
    let input = world.outside.join("lines");
    world.write(
        &input,
        lines
            .iter()
            .map(|line| format!("{line}\0"))
            .collect::<String>(),
    );
    let script = format!("exec 3<'{}' 4>&1 >/dev/null\n{BASH}", input.display());
    let mut bash = world.host("/bin/bash");
    bash.args(["--norc", "--noprofile", "-c", &script])
        .env_clear()
        .env("PATH", "/nonexistent");
    let finished = lazaret_tests::run(&mut bash, Duration::from_secs(300));
    // What runs in the background may write late, and has the pipe open until then.
    assert!(finished.closed && finished.status.code().is_some());
    let seen = finished.stdout;
    let mut ran = vec![Vec::new(); lines.len()];
    let mut ended = false;
    for record in seen.split(|byte| *byte == 0x1f).skip(1) {
        let record = record.strip_suffix(b"\0").unwrap_or(record);
        let mut words = record
            .split(|byte| *byte == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned());
        let number = words.next().unwrap();
        match number.parse::<usize>() {
            Ok(number) => ran[number].push(words.collect()),
            Err(_) => ended |= number == "end",
        }
    }
    assert!(ended, "bash did not come to the end");
    ran
}

/// Whether the words that ran are those that were read, where an unknown one may be any number of words.
fn is(read: &[Option<String>], ran: &[String]) -> bool {
    match read.split_first() {
        None => ran.is_empty(),
        Some((Some(word), rest)) => ran.first() == Some(word) && is(rest, &ran[1..]),
        Some((None, rest)) => (0..=ran.len()).any(|taken| is(rest, &ran[taken..])),
    }
}

fn was_seen(units: &[Unit], ran: &[String]) -> bool {
    units.iter().any(|unit| match unit {
        Unit::Unparsed(_) => true,
        Unit::Simple(SimpleCommand { words, .. }) => is(words, ran),
    })
}

#[test]
fn nothing_runs_that_was_not_seen() {
    let seed = std::env::var("LAZARET_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0x5e11_c0de);
    let lines = lines(seed);
    let ran = run(&lines);
    let (mut calls, mut sure) = (0, 0);
    for (line, ran) in lines.iter().zip(&ran) {
        let units = units(&Command::Shell(line.clone()));
        let parsed = !units.iter().any(|unit| matches!(unit, Unit::Unparsed(_)));
        for ran in ran {
            calls += 1;
            sure += u64::from(parsed);
            assert!(
                was_seen(&units, ran),
                "seed {seed}: of {line:?} bash ran {ran:?}; we read {units:?}"
            );
        }
    }
    println!("{calls} programs in {LINES} lines, {sure} of them in lines that were parsed whole");
    // It is not seen by not parsing.
    assert!(
        calls > LINES / 3 && sure > calls / 3,
        "{calls} programs, {sure} sure"
    );
}

#[test]
fn unseen_command_is_detected() {
    let read = units(&Command::Shell("git status; ls $x".into()));
    let ran = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(was_seen(&read, &ran(&["git", "status"])) && was_seen(&read, &ran(&["ls", "a", "b"])));
    assert!(!was_seen(&read, &ran(&["git", "push"])) && !was_seen(&read, &ran(&["rm"])));
}
