//! One tier without one layer: what to run, and which results to store.

use lazaret_tests::corpus::Runner;
use lazaret_tests::rows::{self, Verdict};
use lazaret_tests::{Place, World, programs, run};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// How long a session may take to open.
const LIMIT: Duration = Duration::from_secs(30);
/// The classes of `escapes.rs` whose rows are used.
const CLASSES: [&str; 5] = ["files", "network", "processes", "kernel", "survivors"];
/// Tests of that suite that write other rows, or disable a layer themselves.
const OTHERS: [&str; 2] = [
    "no_name_is_made_that_the_host_acts_on",
    "files_outside_stay_closed_without_landlock",
];
/// The step in which nothing is disabled: the product itself.
pub const NONE: &str = "none";

/// A tier, and the disabled layer.
pub struct Step {
    place: Place,
    layer: String,
}

/// What came of a step.
#[derive(Serialize, Deserialize)]
pub struct Outcome {
    /// The fingerprint of the executor that was tested.
    pub executor: u64,
    /// Why no session opened, if none did.
    pub closed: Option<String>,
    /// The result of each attack in one word, by class and name.
    pub attacks: BTreeMap<String, BTreeMap<String, String>>,
}

/// The steps of a place: nothing disabled, and then each layer that a session has there.
pub fn all(place: Place) -> Result<Vec<Step>, String> {
    let layers = layers(&World::new(place)).map_err(|error| format!("{place}: {error}"))?;
    let names = std::iter::once(NONE.to_owned()).chain(layers);
    Ok(names.map(|layer| Step { place, layer }).collect())
}

/// The layers that a session reports, or why none opens.
fn layers(world: &World) -> Result<Vec<String>, String> {
    let finished = run(world.lazaret("run").args(["--json", "--", "true"]), LIMIT);
    let result: Value = serde_json::from_str(&finished.text()).unwrap_or_default();
    let layers = result["metadata"]["layers"].as_array();
    match layers.filter(|_| finished.code() == 0) {
        Some(layers) => Ok(layers
            .iter()
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect()),
        None => Err(format!("{}{}", finished.text(), finished.errors())
            .trim()
            .to_owned()),
    }
}

impl Step {
    pub fn tier(&self) -> &'static str {
        self.place.tier.name()
    }

    pub fn layer(&self) -> &str {
        &self.layer
    }

    /// A fingerprint of the executor, different for every other one.
    pub fn executor(&self) -> Result<u64, String> {
        let path = match self.layer.as_str() {
            NONE => programs::path("lazaret-executor"),
            _ => programs::ablation_executor().to_owned(),
        };
        let bytes = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut hasher = DefaultHasher::new();
        hasher.write(&bytes);
        Ok(hasher.finish())
    }

    fn world(&self) -> World {
        match self.layer.as_str() {
            NONE => World::new(self.place),
            layer => World::ablated(self.place, layer),
        }
    }

    /// Runs everything. Takes about two minutes.
    pub fn run(&self, runner: &Runner) -> Result<Outcome, String> {
        let mut outcome = Outcome {
            executor: self.executor()?,
            closed: None,
            attacks: BTreeMap::new(),
        };
        let world = self.world();
        match layers(&world) {
            Ok(layers) if layers.contains(&self.layer) => return Err(format!("{self}: it is on")),
            Ok(_) => {}
            Err(why) => {
                outcome.closed = Some(why);
                return Ok(outcome);
            }
        }
        self.own_attacks(&world, &mut outcome)?;
        self.corpus(&world, runner, &mut outcome)?;
        Ok(outcome)
    }

    /// The attacks of this workspace. Their tests fail if one escapes; only the rows they write count.
    fn own_attacks(&self, world: &World, outcome: &mut Outcome) -> Result<(), String> {
        let rows = programs::scratch().join(format!("rows-{}-{}", self.tier(), self.layer));
        let mut cargo = programs::cargo();
        cargo.current_dir(programs::workspace());
        cargo.args([
            "test",
            "--quiet",
            "--locked",
            "--package",
            "lazaret-tests",
            "--test",
            "suites",
        ]);
        cargo.arg("--").arg(format!("{}::escapes::", self.place));
        cargo
            .args(OTHERS.iter().flat_map(|test| ["--skip", test]))
            .env("LAZARET_BIN", programs::folder());
        cargo
            .env(rows::VARIABLE, &rows)
            .envs(world.executor().iter().map(|(name, value)| (name, value)));
        if let Some(target) = programs::built().parent() {
            cargo.env("CARGO_TARGET_DIR", target);
        }
        let ended = cargo.stdout(Stdio::null()).stderr(Stdio::null()).status();
        ended.map_err(|error| format!("cargo does not start: {error}"))?;
        let rows = rows::read(&rows)?;
        let classes: BTreeSet<&str> = rows.keys().map(|(class, _)| class.as_str()).collect();
        if CLASSES.iter().any(|class| !classes.contains(class)) {
            return Err(format!("{self}: only of {classes:?} there are rows"));
        }
        for ((class, attack), verdict) in &rows {
            outcome.add(&format!("own {class}"), attack.clone(), *verdict);
        }
        Ok(())
    }

    fn corpus(&self, world: &World, runner: &Runner, outcome: &mut Outcome) -> Result<(), String> {
        let environment = world
            .executor()
            .iter()
            .map(|(name, value)| (name.to_string(), value.display().to_string()));
        let runner = Runner {
            only: Some(runner.core()?.join(",")),
            out: runner.out.join(format!("{}-{}", self.tier(), self.layer)),
            environment: environment.collect(),
            ..runner.clone()
        };
        for probe in runner.run(self.tier(), "user")? {
            let verdict = match probe.verdict.as_str() {
                "ESCAPED" => Verdict::Escaped,
                "CONTAINED" => Verdict::Held,
                // An attack that the machine does not support has no verdict.
                "SKIP" => continue,
                _ => Verdict::NotRun,
            };
            let class = probe.id.split('-').next().unwrap_or_default();
            outcome.add(class, probe.id.clone(), verdict);
        }
        Ok(())
    }

    fn file(&self, out: &Path) -> PathBuf {
        out.join(format!("{}-{}.json", self.tier(), self.layer))
    }

    /// The stored outcome of an earlier run, if it can be read.
    pub fn saved(&self, out: &Path) -> Option<Outcome> {
        serde_json::from_slice(&fs::read(self.file(out)).ok()?).ok()
    }

    pub fn save(&self, out: &Path, outcome: &Outcome) -> Result<(), String> {
        let file = self.file(out);
        let text = serde_json::to_string_pretty(outcome).map_err(|error| error.to_string())?;
        let written = fs::create_dir_all(out).and_then(|()| fs::write(&file, text));
        written.map_err(|error| format!("{}: {error}", file.display()))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.layer.as_str() {
            NONE => write!(f, "{} with every layer", self.tier()),
            layer => write!(f, "{} without {layer}", self.tier()),
        }
    }
}

impl Outcome {
    fn add(&mut self, class: &str, attack: String, verdict: Verdict) {
        self.attacks
            .entry(class.to_owned())
            .or_default()
            .insert(attack, verdict.word().to_owned());
    }

    /// Every attack with its class and its verdict.
    pub fn verdicts(&self) -> impl Iterator<Item = (&str, &str, Option<Verdict>)> {
        self.attacks.iter().flat_map(|(class, attacks)| {
            attacks
                .iter()
                .map(move |(name, word)| (class.as_str(), name.as_str(), Verdict::of_word(word)))
        })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.closed {
            return write!(f, "no session opens: {why}");
        }
        let of = |wanted| {
            self.verdicts()
                .filter(|(_, _, verdict)| *verdict == Some(wanted))
                .count()
        };
        write!(
            f,
            "{} held, {} out",
            of(Verdict::Held),
            of(Verdict::Escaped)
        )?;
        match of(Verdict::NotRun) {
            0 => Ok(()),
            count => write!(f, ", {count} not run"),
        }
    }
}
