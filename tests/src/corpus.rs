//! Starts the containment corpus' runner, `tests/corpus/run.py`, with the programs under test.

use crate::programs;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub fn folder() -> PathBuf {
    programs::workspace().join("tests/corpus")
}

/// How the runner is started.
#[derive(Clone, Debug, clap::Args)]
pub struct Runner {
    /// Where results go [default: a folder below target]
    #[arg(long, value_name = "DIR", default_value_os_t = programs::built().join("corpus-results"), hide_default_value = true)]
    pub out: PathBuf,
    /// The dedicated ordinary user; two runs at once need two [default: ctktest]
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Probes side by side [default: one more than there are processors]
    #[arg(long, value_name = "N")]
    pub lanes: Option<u32>,
    /// A part of the corpus, such as 'FS-*,NET-0*'.
    #[arg(skip)]
    pub only: Option<String>,
    /// Variables that Lazaret is started with.
    #[arg(skip)]
    pub environment: Vec<(String, String)>,
    /// Whether what it prints is not wanted.
    #[arg(skip)]
    pub quiet: bool,
}

/// One probe or control with the runner's verdict.
#[derive(Clone, Debug)]
pub struct Probe {
    pub id: String,
    /// `ESCAPED`, `CONTAINED`, `SKIP`, `ERROR`; for a control `OK` or `BROKEN`.
    pub verdict: String,
}

impl Runner {
    /// The runner, with the programs under test in its path; the caller adds launchers and modes.
    pub fn command(&self) -> Command {
        let mut runner = Command::new("/usr/bin/python3");
        runner
            .arg("-B")
            .arg(folder().join("run.py"))
            .arg("--out")
            .arg(&self.out);
        runner.arg("--path").arg(programs::folder());
        let lanes = self.lanes.map(|lanes| lanes.to_string());
        for (name, value) in [
            ("--only", &self.only),
            ("--user", &self.user),
            ("--lanes", &lanes),
        ] {
            runner.args(value.iter().flat_map(|value| [name, value]));
        }
        for (name, value) in &self.environment {
            runner.arg("--env").arg(format!("{name}={value}"));
        }
        if self.quiet {
            runner.stdout(Stdio::null());
        }
        runner
    }

    /// Runs it once in a tier of the sandbox, as an ordinary user or as root, and reads its results.
    ///
    /// # Errors
    /// If it does not start, fails, or leaves no readable results.
    pub fn run(&self, tier: &str, mode: &str) -> Result<Vec<Probe>, String> {
        let launcher = launcher(tier);
        let part = if self.only.is_some() { "-partial" } else { "" };
        let file = self.out.join(format!("{launcher}-{mode}{part}.json"));
        let _ = fs::remove_file(&file);
        let ended = self.command().arg(launcher).args(["--mode", mode]).status();
        // It exits with 1 if anything escaped, which the caller judges.
        let status =
            ended.map_err(|error| format!("the corpus' runner does not start: {error}"))?;
        let unreadable =
            |error: &dyn std::fmt::Display| format!("{status}; {}: {error}", file.display());
        let text = fs::read(&file).map_err(|error| unreadable(&error))?;
        let report: Value = serde_json::from_slice(&text).map_err(|error| unreadable(&error))?;
        Ok(report["results"]
            .as_array()
            .into_iter()
            .flatten()
            .map(Probe::from)
            .collect())
    }

    /// The names of the core probes of the corpus, from the headers of their files.
    ///
    /// # Errors
    /// If the corpus cannot be read, or has no core.
    pub fn core(&self) -> Result<Vec<String>, String> {
        let folder = folder().join("probes");
        let entries =
            fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let core = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| is_core(path));
        let mut names: Vec<String> = core
            .filter_map(|path| path.file_stem().and_then(OsStr::to_str).map(str::to_owned))
            .collect();
        names.sort();
        if names.is_empty() {
            Err(format!("{}: no core probe", folder.display()))
        } else {
            Ok(names)
        }
    }
}

/// The launcher of a tier in `launchers.toml`.
pub fn launcher(tier: &str) -> &'static str {
    if tier == "flat" {
        "lazaret-flat"
    } else {
        "lazaret"
    }
}

fn is_core(path: &Path) -> bool {
    let text = fs::read_to_string(path).unwrap_or_default();
    let tier = text.lines().find_map(|line| {
        line.trim_start_matches(['#', '/', ' '])
            .strip_prefix("Tier:")
    });
    tier.is_some_and(|tier| tier.trim() == "core")
}

impl From<&Value> for Probe {
    fn from(result: &Value) -> Self {
        let text = |key: &str| result[key].as_str().unwrap_or_default().to_owned();
        Self {
            id: text("id"),
            verdict: text("verdict"),
        }
    }
}
