#![doc = include_str!("../README.md")]

mod report;
mod attempt;
mod table;
mod files;
mod processes;
mod network;
mod kernel;
mod fixture;
mod targets;
mod sys;

use fixture::Fixture;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use targets::{AttackedSession, Targets};

const HELP: &str = "\
lazaret-attack: real attacks on a cell. `lazaret doctor --attack` starts it.

Usage:
  lazaret-attack outside DIR      make what is attacked in DIR, try every attack without a cell, and judge
  lazaret-attack inside TARGETS   try every attack on TARGETS, which `outside` has printed
  lazaret-attack --help

`outside` prints the targets, reads one line {\"tier\": …, \"layers\": […]} and then what `inside` printed, and prints a line of
JSON for each attack.

Exit codes: 0 every attack was tried, 1 the attacks could not be prepared, 2 wrong usage.
";

/// Maximum bytes read of the inside run's output: about twenty times as much as it prints.
const RECORDS_MAX: u64 = 16 * 1024;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["outside", directory] => outside(Path::new(directory)),
        ["inside", targets] => inside(targets),
        ["--help" | "-h" | "help"] => io::stdout().write_all(HELP.as_bytes()),
        _ => {
            eprintln!("lazaret-attack: wrong usage; see lazaret-attack --help");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lazaret-attack: {error}");
            ExitCode::FAILURE
        }
    }
}

fn outside(directory: &Path) -> io::Result<()> {
    let spoilt = Fixture::make(directory)?;
    let control = attempt::control(&spoilt.targets())?;
    let control = report::judge(control, &spoilt);
    drop(spoilt);
    let fixture = Fixture::make(directory)?;
    let mut stdout = io::stdout();
    writeln!(stdout, "{}", serde_json::to_string(&fixture.targets())?)?;
    stdout.flush()?;
    let mut stdin = BufReader::new(io::stdin().take(RECORDS_MAX));
    let (mut session, mut records) = (String::new(), Vec::new());
    stdin.read_line(&mut session)?;
    if session.is_empty() {
        return Err(io::Error::other(
            "no session has opened, so nothing was attacked in a cell",
        ));
    }
    let session: AttackedSession = serde_json::from_str(&session)?;
    stdin.read_to_end(&mut records)?;
    let inside = report::judge(attempt::read_records(&records), &fixture);
    for report in report::reports(control, inside, &session) {
        writeln!(stdout, "{}", serde_json::to_string(&report)?)?;
    }
    stdout.flush()
}

fn inside(targets: &str) -> io::Result<()> {
    let targets = Targets {
        own: std::env::temp_dir(),
        ..serde_json::from_str(targets)?
    };
    attempt::run(&targets, &mut io::stdout())
}
