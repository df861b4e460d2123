//! Switches one layer off after the other, attacks, and says which layer is the only one in front of what.
//!
//! A step is a tier and a layer. It builds a test build of the executor that goes without that layer, runs the attacks of
//! `tests/escapes.rs` and the corpus' core against it as an ordinary user, and keeps what came of them in a file, so that
//! a run can be stopped and gone on with. Out of all files comes the table. It ends with 1 when an attack gets out that
//! `corpus/single.toml` does not name, when one that is named is held, and when something could not be run.

mod step;
mod table;

use lazaret_tests::corpus::{self, Runner};
use lazaret_tests::{Place, programs};
use std::path::PathBuf;
use std::process::ExitCode;
use step::{Outcome, Step};
use table::Table;

const HELP: &str = "\
usage: ablation [--tier namespaced|flat] [--layer NAME] [--resume] [--write] [--corpus DIR] [--out DIR] [--user NAME]

Without options: every layer of both tiers, then the table.
  --tier, --layer  only these steps; `none` is a step too. What is kept of the others goes into the table
  --resume         only steps of which nothing is kept for the executor as it is now
  --write          put the table into executor/README.md, if nothing is wrong
  --corpus DIR     the corpus [default: ../shared/escape-corpus beside the workspace]
  --out DIR        where outcomes are kept [default: a folder below target]
  --user NAME      the corpus' ordinary user [default: ctktest]; two runs at once need two
";

/// What the command line asks for.
struct Options {
    tier: Option<String>,
    layer: Option<String>,
    resume: bool,
    write: bool,
    runner: Runner,
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(complaints) if complaints.is_empty() => ExitCode::SUCCESS,
        Ok(complaints) => {
            println!("\n{} complaints:\n  {}", complaints.len(), complaints.join("\n  "));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("ablation: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let runner = Runner {
        corpus: corpus::beside(),
        out: programs::built().join("ablation-results"),
        only: None,
        user: None,
        environment: Vec::new(),
        quiet: true,
    };
    let mut options = Options { tier: None, layer: None, resume: false, write: false, runner };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--resume" => options.resume = true,
            "--write" => options.write = true,
            "--tier" => options.tier = Some(value()?),
            "--layer" => options.layer = Some(value()?),
            "--corpus" => options.runner.corpus = value()?.into(),
            "--out" => options.runner.out = PathBuf::from(value()?),
            "--user" => options.runner.user = Some(value()?),
            _ => return Err(format!("unknown option {word}")),
        }
    }
    Ok(options)
}

fn run(options: &Options) -> Result<Vec<String>, String> {
    let places = Place::all().into_iter().filter(|place| place.user == lazaret_tests::User::Ordinary);
    let mut table = Table::new()?;
    for place in places {
        for step in step::all(place)? {
            let wanted = |only: &Option<String>, name: &str| only.as_ref().is_none_or(|only| only == name);
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

/// What is kept of a step, or what comes of it now.
fn outcome(options: &Options, step: &Step, wanted: bool) -> Result<Option<Outcome>, String> {
    let kept = step.kept(&options.runner.out);
    let current = || step.executor().map(|now| kept.as_ref().is_some_and(|kept| kept.executor == now));
    if !wanted || options.resume && current()? {
        return Ok(kept);
    }
    let outcome = step.run(&options.runner)?;
    println!("{step}: {outcome}");
    step.keep(&options.runner.out, &outcome)?;
    Ok(Some(outcome))
}
