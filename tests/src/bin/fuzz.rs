//! Companion of `cargo fuzz`: writes its first inputs, and replays an input without it.

use clap::Parser;
use lazaret_tests::fuzz::{TARGETS, seeds};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What goes with `cargo fuzz`.
#[derive(Parser)]
enum Task {
    /// Write DIR/TARGET/seed-N for every target: give DIR/TARGET to `cargo fuzz run`
    Seeds {
        /// Where to
        folder: PathBuf,
    },
    /// Give files to a target; it ends with a panic where a promise is broken
    Replay {
        /// The target
        #[arg(value_parser = TARGETS.map(|(name, _)| name))]
        target: String,
        /// Its inputs
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

fn main() -> io::Result<()> {
    match Task::parse() {
        Task::Seeds { folder } => write_seeds(&folder),
        Task::Replay { target, files } => replay(&target, &files),
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

fn replay(name: &str, files: &[PathBuf]) -> io::Result<()> {
    for (_, target) in TARGETS.iter().filter(|(target, _)| *target == name) {
        for file in files {
            target(&fs::read(file)?);
            println!("{}: {name} holds", file.display());
        }
    }
    Ok(())
}
