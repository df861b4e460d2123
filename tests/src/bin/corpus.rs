//! Runs the containment corpus against Lazaret: both tiers, as an ordinary user and as root.
//!
//! It installs the programs where every user can run them and starts `tests/corpus/run.py`, which judges from outside what escaped,
//! and compares the result with `tests/corpus/open.toml`. The exit code is 1 if a core probe escapes that is not listed, if a
//! listed one is contained, if one could not be run, or if ordinary work is broken.

use clap::Parser;
use lazaret_tests::corpus::{self, Runner};
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
    /// Instead of Lazaret plain bash, where everything that runs on this machine must get out
    #[arg(long, conflicts_with_all = ["tier", "compare"])]
    control: bool,
    /// Also plain bash and every other sandbox that is installed, and the table of all
    #[arg(long, conflicts_with = "tier")]
    compare: bool,
    #[command(flatten)]
    runner: Runner,
}

fn main() -> ExitCode {
    let mut options = Options::parse();
    options.runner.only = options.only.take();
    let mut runner = options.runner.command();
    runner.args(options.mode.iter().flat_map(|mode| ["--mode", mode]));
    if options.control {
        runner.arg("--control");
    } else {
        runner
            .arg("--known")
            .arg(corpus::folder().join("open.toml"));
        let all = if options.compare {
            [].as_slice()
        } else {
            &["namespaced", "flat"]
        };
        let tiers = options
            .tier
            .as_deref()
            .map_or(all.to_vec(), |tier| vec![tier]);
        runner.args(tiers.into_iter().map(corpus::launcher));
    }
    match runner.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("corpus: python3 does not start: {error}");
            ExitCode::FAILURE
        }
    }
}
