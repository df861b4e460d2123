//! The command line's texts, as files in `cmd/*.console`: help of every command, usage errors with their exit codes, and output that
//! is the same on every machine.
//!
//! A line that begins with `$ ` is a command. It runs in the project of a new world, into which `cmd/project` is copied, as
//! `cmd/home` is into its home; single quotes join words, and variables may stand before the program. Its exit code follows
//! (`? 2`), then its standard output, then after `2>` its standard error. `...` and `[..]` stand for any lines and characters.
//! `LAZARET_GOLDEN=write cargo test -p lazaret-tests --test command_line_texts` writes everything below the commands again.
#![allow(clippy::unwrap_used)]
#![allow(unreachable_pub)]

use lazaret_tests::{LIMIT, Place, World, leftovers, programs, run};
use libtest_mimic::{Arguments, Failed, Trial};
use snapbox::assert::Action;
use snapbox::{Assert, Data, IntoData, Redactions};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/cmd");
const PROMPT: &str = "$ ";
/// The width that help is wrapped to, whoever runs the tests.
const COLUMNS: &str = "100";

fn main() -> ExitCode {
    // The project of `lazaret-bash` is that of its caller, which here has none.
    std::env::set_current_dir("/").unwrap();
    leftovers::watch(|| {
        let mut trials: Vec<Trial> = cases().into_iter().map(trial).collect();
        trials.push(Trial::test("every_command_has_a_case", || {
            every_command_has_a_case();
            Ok(())
        }));
        trials.push(Trial::test("differences_are_seen", || {
            differences_are_seen();
            Ok(())
        }));
        libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
    })
}

fn cases() -> Vec<PathBuf> {
    let files = fs::read_dir(FOLDER)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|ext| ext == "console"))
        .collect();
    files.sort();
    files
}

fn trial(file: PathBuf) -> Trial {
    let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
    Trial::test(name, move || {
        let action = match std::env::var_os("LAZARET_GOLDEN") {
            Some(_) => Action::Overwrite,
            None => Action::Verify,
        };
        let then = fs::read_to_string(&file)?;
        let world = world();
        let now = render(&then, &world);
        compare(&now, Data::read_from(&file, None), &world, action).map_err(Failed::from)
    })
}

/// The text of a file as it should be: its head, and each of its commands with what this prints now.
fn render(then: &str, world: &World) -> String {
    let is_command = |line: &&str| line.starts_with(PROMPT);
    let head = then.lines().take_while(|line| !is_command(line));
    let commands = then.lines().filter(is_command);
    let blocks = commands.map(|line| {
        let done = run(&mut command(line, world), LIMIT);
        let (out, err) = (lines_of(&done.stdout), lines_of(&done.stderr));
        // Such a line would be a command of the file that is written.
        let printed = out.lines().chain(err.lines());
        assert!(
            printed.clone().all(|line| !is_command(&line)),
            "{line}: {out}{err}"
        );
        let separator = if err.is_empty() { "" } else { "2>\n" };
        format!("{line}\n? {}\n{out}{separator}{err}", done.code())
    });
    let head: String = head.map(|line| format!("{line}\n")).collect();
    head + &blocks.collect::<String>()
}

fn lines_of(printed: &[u8]) -> String {
    let mut text = std::str::from_utf8(printed).unwrap().to_owned();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push_str("\n[NO_NEWLINE]\n");
    }
    text
}

/// The command that a line of a file names, with the placeholders of paths replaced.
fn command(line: &str, world: &World) -> Command {
    let mut words = words(line.trim_start_matches(PROMPT), world).into_iter();
    let mut variables = Vec::new();
    let program = loop {
        let word = words.next().unwrap_or_else(|| panic!("no program: {line}"));
        match word.split_once('=') {
            Some((name, value)) => variables.push((name.to_owned(), value.to_owned())),
            None => break word,
        }
    };
    assert!(programs::PRODUCT.contains(&program.as_str()), "{line}");
    let mut command = world.program(&program);
    command.env("COLUMNS", COLUMNS).envs(variables).args(words);
    command
}

/// Words between spaces; single quotes join what they enclose.
fn words(line: &str, world: &World) -> Vec<String> {
    let mut line = line.to_owned();
    for (placeholder, path) in places(world) {
        line = line.replace(placeholder, path.to_str().unwrap());
    }
    let mut words = vec![String::new()];
    for (at, part) in line.split('\'').enumerate() {
        let quoted = at % 2 == 1;
        for (at, piece) in part.split(if quoted { '\'' } else { ' ' }).enumerate() {
            if at > 0 {
                words.push(String::new());
            }
            words.last_mut().unwrap().push_str(piece);
        }
    }
    words
}

fn compare(now: &str, then: Data, world: &World, action: Action) -> Result<(), String> {
    let mut redactions = Redactions::new();
    for (placeholder, path) in places(world) {
        redactions.insert(placeholder, path).unwrap();
    }
    redactions
        .insert("[RELEASE]", broker_protocol::release(None))
        .unwrap();
    let assert = Assert::new().action(action).redact_with(redactions);
    let compared = assert.normalize_paths(false);
    compared
        .try_eq(Some(&"now"), now.into_data(), then)
        .map_err(|error| {
            format!("{error}\nIf this is meant, LAZARET_GOLDEN=write writes the files again.")
        })
}

fn places(world: &World) -> [(&'static str, PathBuf); 6] {
    [
        ("[PROJECT]", world.project.clone()),
        ("[CENTRAL]", world.central.clone()),
        ("[HOME]", world.home.clone()),
        ("[ACCOUNT]", Place::any().account().home.clone()),
        ("[STATE]", world.state.clone()),
        ("[PROGRAMS]", programs::folder().to_owned()),
    ]
}

fn world() -> World {
    let world = World::new(Place::any());
    copy(&world, &Path::new(FOLDER).join("project"), &world.project);
    copy(&world, &Path::new(FOLDER).join("home"), &world.home);
    world
}

fn copy(world: &World, from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let (from, to) = {
            let entry = entry.unwrap();
            (entry.path(), to.join(entry.file_name()))
        };
        match from.is_dir() {
            true => copy(world, &from, &to),
            false => world.write(&to, fs::read(&from).unwrap()),
        }
    }
}

/// The list comes from the help of the program itself.
fn every_command_has_a_case() {
    let world = world();
    let files = cases()
        .into_iter()
        .map(|file| fs::read_to_string(file).unwrap());
    let files: Vec<String> = files.collect();
    let has = |line: &String| files.iter().any(|file| file.lines().any(|had| had == line));
    let mut missing: BTreeSet<String> = commands("lazaret", &world).into_iter().collect();
    assert!(
        missing.len() > 40,
        "the help was not understood: {missing:?}"
    );
    missing.extend(programs::PRODUCT.map(String::from));
    let mut lines = missing
        .iter()
        .map(|command| format!("{PROMPT}{command} --help"));
    let missing: Vec<String> = lines.by_ref().filter(|line| !has(line)).collect();
    assert!(missing.is_empty(), "no file in {FOLDER} has {missing:#?}");
}

/// A command and all below it, by name.
fn commands(name: &str, world: &World) -> Vec<String> {
    let help = run(&mut command(&format!("{name} --help"), world), LIMIT).success();
    let below = listed(&help).into_iter();
    let mut all: Vec<String> = below
        .flat_map(|below| commands(&format!("{name} {below}"), world))
        .collect();
    all.push(name.to_owned());
    all
}

/// The commands that a help lists, without `help`, which clap adds.
fn listed(help: &str) -> Vec<&str> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| {
            let line = line.strip_prefix("  ")?;
            let name = line.split(' ').next()?;
            (!name.is_empty() && name != "help").then_some(name)
        });
    names.collect()
}

/// The check bites: a changed character, exit code or stream differs, and wildcards stand for what they may alone.
fn differences_are_seen() {
    let world = world();
    let then = render("$ lazaret nope", &world);
    let same = |then: &str| {
        compare(
            &render(then, &world),
            then.into_data(),
            &world,
            Action::Verify,
        )
    };
    assert_eq!(same(&then), Ok(()));
    assert_eq!(same(&then.replace("unrecognized", "un[..]ized")), Ok(()));
    for (was, is) in [
        ("? 2\n", "? 1\n"),
        ("unrecognized", "unrecognised"),
        ("un", "un[..]X"),
        ("2>\n", ""),
    ] {
        let changed = then.replacen(was, is, 1);
        assert_ne!(changed, then, "{was}");
        let error = same(&changed).unwrap_err();
        assert!(error.contains("LAZARET_GOLDEN=write"), "{error}");
    }
    assert_eq!(
        listed("x\n\nCommands:\n  run  Run\n       more\n  help  H\n\n  no\n"),
        ["run"]
    );
}
