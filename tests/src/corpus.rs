//! The containment corpus' own runner, started with our adapters.

use crate::programs;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where the corpus lies unless another place is named: beside the workspace.
pub fn beside() -> PathBuf {
    programs::workspace().join("../shared/escape-corpus")
}

/// How the runner is started.
#[derive(Clone, Debug, clap::Args)]
pub struct Runner {
    /// The corpus
    #[arg(long, value_name = "DIR", default_value_os_t = beside(), hide_default_value = true)]
    pub corpus: PathBuf,
    /// Where results go [default: a folder below target]
    #[arg(long, value_name = "DIR", default_value_os_t = programs::built().join("corpus-results"), hide_default_value = true)]
    pub out: PathBuf,
    /// The dedicated ordinary user; two runs at once need two [default: ctktest]
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
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

/// One probe or control, as the runner judged it.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Class and number.
    pub id: String,
    /// With its title.
    pub name: String,
    /// The corpus' word for how much it matters, or `control`.
    pub tier: String,
    /// What came of it.
    pub verdict: String,
    /// More, for people.
    pub detail: String,
}

impl Runner {
    /// Runs it once in a tier of the sandbox, as an ordinary user or as root, and reads its results.
    ///
    /// # Errors
    /// It does not start, fails, or leaves nothing that can be read.
    pub fn run(&self, tier: &str, mode: &str) -> Result<Vec<Probe>, String> {
        let unreadable = |path: &Path| {
            let path = path.display().to_string();
            move |error: std::io::Error| format!("{path}: {error}")
        };
        fs::create_dir_all(&self.out).map_err(unreadable(&self.out))?;
        let launcher = if tier == "flat" { "lazaret-flat" } else { "lazaret" };
        let mut runner = Command::new("/usr/bin/python3");
        runner.arg(self.corpus.join("run.py")).arg(launcher).args(["--mode", mode]);
        runner.arg("--adapters").arg(self.adapters()?).arg("--out").arg(&self.out);
        for (name, value) in [("--only", &self.only), ("--user", &self.user)] {
            runner.args(value.iter().flat_map(|value| [name, value]));
        }
        if self.quiet {
            runner.stdout(Stdio::null());
        }
        let status =
            runner.status().map_err(|error| format!("the corpus' runner does not start: {error}"))?;
        if !status.success() {
            return Err(format!("the corpus' runner ended with {status}"));
        }
        let part = if self.only.is_some() { "-partial" } else { "" };
        let file = self.out.join(format!("{launcher}-{mode}{part}.json"));
        let text = fs::read(&file).map_err(unreadable(&file))?;
        let report: Value =
            serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(report["results"].as_array().into_iter().flatten().map(Probe::from).collect())
    }

    /// The adapters with the folder of the programs and the variables filled in.
    fn adapters(&self) -> Result<PathBuf, String> {
        let template = programs::workspace().join("tests/corpus/adapters.toml");
        let text =
            fs::read_to_string(&template).map_err(|error| format!("{}: {error}", template.display()))?;
        let filled = programs::scratch().join("adapters.toml");
        let text = text.replace("@BIN@", &programs::folder().display().to_string());
        let variables: Vec<String> =
            self.environment.iter().map(|(name, value)| format!("{name} = {value:?}")).collect();
        let text = text.replace("@ENV@", &variables.join(", "));
        fs::write(&filled, text).map_err(|error| format!("{}: {error}", filled.display()))?;
        Ok(filled)
    }

    /// Names of the probes of the corpus' core, as the heads of their files say.
    ///
    /// # Errors
    /// The corpus cannot be read, or has none.
    pub fn core(&self) -> Result<Vec<String>, String> {
        let folder = self.corpus.join("probes");
        let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut names: Vec<String> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| fs::read_to_string(path).is_ok_and(|text| is_core(&text)))
            .filter_map(|path| path.file_stem().and_then(OsStr::to_str).map(str::to_owned))
            .collect();
        names.sort();
        if names.is_empty() { Err(format!("{}: no core probe", folder.display())) } else { Ok(names) }
    }
}

/// Without a word about it a probe is of the core.
fn is_core(text: &str) -> bool {
    let said = text.lines().find_map(|line| line.trim_start_matches(['#', '/', ' ']).strip_prefix("Tier:"));
    said.is_none_or(|tier| tier.trim() == "core")
}

impl From<&Value> for Probe {
    fn from(result: &Value) -> Self {
        let text = |key: &str| result[key].as_str().unwrap_or_default().to_owned();
        Self {
            id: text("id"),
            name: text("name"),
            tier: if text("category") == "CTL" { "control".into() } else { text("tier") },
            verdict: text("verdict"),
            detail: format!("{} {} {}", text("detail"), text("note"), result["evidence"]),
        }
    }
}
