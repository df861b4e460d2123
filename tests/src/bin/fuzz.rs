//! What goes with `cargo fuzz`: its first inputs, and one input again without it.

use lazaret_tests::fuzz::{TARGETS, seeds};
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

const HELP: &str = "\
usage: fuzz seeds DIR      writes DIR/TARGET/N for every target: give DIR/TARGET to `cargo fuzz run`
       fuzz TARGET FILE…   gives each file to a target; it ends with a panic where a promise is broken
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["seeds", folder] => write_seeds(Path::new(folder)),
        [target, files @ ..] if !files.is_empty() => replay(target, files),
        _ => Err(io::Error::other(HELP)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn write_seeds(folder: &Path) -> io::Result<()> {
    for (target, _) in TARGETS {
        let folder = folder.join(target);
        fs::create_dir_all(&folder)?;
        for (number, input) in seeds::of(target).inputs.iter().enumerate() {
            fs::write(folder.join(format!("seed-{number}")), input)?;
        }
    }
    Ok(())
}

fn replay(name: &str, files: &[&str]) -> io::Result<()> {
    let found = TARGETS.iter().find(|(target, _)| *target == name);
    let (_, target) = found.ok_or_else(|| io::Error::other(HELP))?;
    for file in files {
        target(&fs::read(file)?);
        println!("{file}: {name} holds");
    }
    Ok(())
}
