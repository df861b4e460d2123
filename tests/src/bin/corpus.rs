//! Runs the containment corpus against Lazaret: both tiers, as an ordinary user and as root.
//!
//! It installs the programs where every user can run them, fills in `corpus/adapters.toml`, starts the corpus' own runner
//! (which decides from outside who got out), and compares with `corpus/open.toml`. It ends with 1 when a core probe gets
//! out that is not listed, when one that is listed is held, when a probe could not be run, or when a control is broken.

use clap::Parser;
use lazaret_tests::corpus::{Probe, Runner};
use lazaret_tests::programs;
use std::collections::BTreeMap;
use std::fs;
use std::process::ExitCode;

/// Runs the containment corpus. Without options: all probes and controls in both tiers, as an ordinary user and (when started
/// as root) as root.
#[derive(Parser)]
struct Options {
    /// One tier only
    #[arg(long, value_parser = ["namespaced", "flat"])]
    tier: Option<String>,
    /// One kind of user only; only root has both
    #[arg(long, value_parser = ["user", "root"])]
    mode: Option<String>,
    /// A part, such as 'FS-*,NET-0*'
    #[arg(long, value_name = "GLOBS")]
    only: Option<String>,
    #[command(flatten)]
    runner: Runner,
}

fn main() -> ExitCode {
    let mut options = Options::parse();
    options.runner.only = options.only.take();
    match run(&options) {
        Ok(complaints) if complaints.is_empty() => {
            println!("\nThe corpus holds.");
            ExitCode::SUCCESS
        }
        Ok(complaints) => {
            println!("\n{} complaints:\n  {}", complaints.len(), complaints.join("\n  "));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("corpus: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<Vec<String>, String> {
    let open = open_list()?;
    let mut complaints = Vec::new();
    let mut totals = Vec::new();
    for tier in chosen(&options.tier, &["namespaced", "flat"]) {
        for mode in chosen(&options.mode, modes()) {
            let name = format!("{tier}-{mode}");
            println!("\n=== {name} ===");
            let results = options.runner.run(tier, mode)?;
            totals.push(format!("{name:<18} {}", summary(&results)));
            complaints.extend(judge(&name, &results, &open));
        }
    }
    println!("\n{}", totals.join("\n"));
    Ok(complaints)
}

fn modes() -> &'static [&'static str] {
    if nix::unistd::geteuid().is_root() { &["user", "root"] } else { &["user"] }
}

/// What was chosen of `all`, or all.
fn chosen<'a>(choice: &'a Option<String>, all: &'a [&'a str]) -> Vec<&'a str> {
    choice.as_deref().map_or(all.to_vec(), |one| vec![one])
}

fn summary(results: &[Probe]) -> String {
    let mut counts: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    results.iter().for_each(|probe| *counts.entry((&probe.tier, &probe.verdict)).or_default() += 1);
    let group = |tier: &str| {
        let of_tier = counts.iter().filter(|((of, _), _)| *of == tier);
        let parts: Vec<String> =
            of_tier.map(|((_, verdict), count)| format!("{count} {}", verdict.to_lowercase())).collect();
        format!("{tier}: {}", parts.join(", "))
    };
    ["core", "hardening", "debatable", "control"].map(group).join("; ")
}

/// What is wrong in one run. Escapes of the other tiers are shown and are no complaint.
fn judge(run: &str, results: &[Probe], open: &[Open]) -> Vec<String> {
    let mut complaints = Vec::new();
    for probe in results {
        let known = open.iter().find(|open| open.probe == probe.id && open.covers(run));
        let says = |what: &str| format!("{run}: {what} {}: {}", probe.name, probe.detail);
        match (probe.tier.as_str(), probe.verdict.as_str(), known) {
            ("core", "ESCAPED", Some(open)) => println!("{} (known: {})", says("escaped"), open.why),
            ("control", "BROKEN", Some(open)) => println!("{} (known: {})", says("broken"), open.why),
            ("core", "CONTAINED", Some(_)) | ("control", "OK", Some(_)) => {
                complaints.push(says("holds now, take it off open.toml:"));
            }
            ("core", "ESCAPED", None) => complaints.push(says("ESCAPED")),
            ("control", "BROKEN", None) => complaints.push(says("broken control")),
            (_, "ERROR", _) => complaints.push(says("could not run")),
            (_, "ESCAPED", _) => println!("{}", says(&format!("{} escape", probe.tier))),
            _ => {}
        }
    }
    complaints
}

/// A core probe that is known to get out, or a control that is known to be broken.
struct Open {
    probe: String,
    runs: Vec<String>,
    why: String,
}

impl Open {
    fn covers(&self, run: &str) -> bool {
        self.runs.is_empty() || self.runs.iter().any(|one| one == run)
    }
}

fn open_list() -> Result<Vec<Open>, String> {
    let file = programs::workspace().join("tests/corpus/open.toml");
    let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let table: toml::Table = text.parse().map_err(|error| format!("{}: {error}", file.display()))?;
    let entries = table.get("open").and_then(toml::Value::as_array).cloned().unwrap_or_default();
    entries
        .iter()
        .map(|entry| open_entry(entry).ok_or_else(|| format!("open.toml: {entry} needs probe and why")))
        .collect()
}

fn open_entry(entry: &toml::Value) -> Option<Open> {
    let text = |key: &str| entry.get(key)?.as_str().map(str::to_owned);
    let runs = entry.get("runs").and_then(toml::Value::as_array).cloned().unwrap_or_default();
    let runs = runs.iter().filter_map(|run| run.as_str().map(str::to_owned)).collect();
    Some(Open { probe: text("probe")?, runs, why: text("why")? })
}
