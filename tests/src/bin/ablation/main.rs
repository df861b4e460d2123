//! Disables one layer after the other, attacks, and reports which attacks are stopped by a single layer.
//!
//! A step is a tier and a layer. It builds a test build of the executor without that layer, runs the attacks of `tests/escapes.rs`
//! and the corpus' core against it as an ordinary user, and stores the results in a file, so that a run can be stopped and resumed.
//! All files together give the table. The exit code is 1 if an attack escapes that `corpus/single.toml` does not name, if a named
//! one is contained, or if something could not be run.
#![allow(unreachable_pub)]

mod step;
mod table;

use clap::Parser;
use lazaret_tests::Place;
use lazaret_tests::corpus::Runner;
use std::process::ExitCode;
use step::{Outcome, Step};
use table::Table;

/// Switches one layer off after the other. Without options: every layer of both tiers, then the table.
#[derive(Parser)]
struct Options {
    /// Only the steps of this tier; what is saved of the others goes into the table
    #[arg(long, value_parser = ["namespaced", "flat"])]
    tier: Option<String>,
    /// Only the steps of this layer; `none` is one too
    #[arg(long, value_name = "NAME")]
    layer: Option<String>,
    /// Only steps of which nothing is saved for the executor as it is now
    #[arg(long)]
    resume: bool,
    /// Put the table into executor/layers/README.md, if nothing is wrong
    #[arg(long)]
    write: bool,
    #[command(flatten)]
    runner: Runner,
}

fn main() -> ExitCode {
    let mut options = Options::parse();
    options.runner.quiet = true;
    // Beside the results of the corpus command.
    options.runner.out.push("ablation");
    match run(&options) {
        Ok(complaints) if complaints.is_empty() => ExitCode::SUCCESS,
        Ok(complaints) => {
            println!(
                "\n{} complaints:\n  {}",
                complaints.len(),
                complaints.join("\n  ")
            );
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("ablation: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<Vec<String>, String> {
    let mut table = Table::new()?;
    for place in Place::ordinary() {
        for step in step::all(place)? {
            let wanted =
                |only: &Option<String>, name: &str| only.as_ref().is_none_or(|only| only == name);
            let wanted = wanted(&options.tier, step.tier()) && wanted(&options.layer, step.layer());
            if let Some(outcome) = outcome(options, &step, wanted)? {
                table.add(&step, outcome);
            } else {
                table.miss(&step);
            }
        }
    }
    println!("\n{}", table.page());
    let complaints = table.complaints();
    if options.write && complaints.is_empty() {
        table.write()?;
    }
    Ok(complaints)
}

/// The stored outcome of a step, or a new one.
fn outcome(options: &Options, step: &Step, wanted: bool) -> Result<Option<Outcome>, String> {
    let saved = step.saved(&options.runner.out);
    let current = || {
        step.executor()
            .map(|now| saved.as_ref().is_some_and(|saved| saved.executor == now))
    };
    if !wanted || options.resume && current()? {
        return Ok(saved);
    }
    let outcome = step.run(&options.runner)?;
    println!("{step}: {outcome}");
    step.save(&options.runner.out, &outcome)?;
    Ok(Some(outcome))
}
