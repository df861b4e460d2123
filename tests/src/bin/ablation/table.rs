//! The table of attacks that escape, by class and layer, and its comparison with the list.

use crate::step::{NONE, Outcome, Step};
use lazaret_tests::programs;
use lazaret_tests::rows::Verdict;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

/// The lines of the README between which the table is.
const MARKS: [&str; 2] = [
    "<!-- ablation: written by the command -->\n",
    "<!-- /ablation -->\n",
];
const TIERS: [&str; 2] = ["namespaced", "flat"];

/// Attacks that a single layer stops, and layers without which no session opens.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SingleLayers {
    #[serde(default)]
    single: Vec<Single>,
    #[serde(default)]
    closed: Vec<Closed>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Single {
    tier: String,
    layer: String,
    probes: Vec<String>,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Closed {
    tier: String,
    layer: String,
    why: String,
}

pub struct Table {
    single: SingleLayers,
    columns: Vec<(String, String, Outcome)>,
    missing: Vec<String>,
}

impl Table {
    /// An empty table, with what `corpus/single.toml` names.
    pub fn new() -> Result<Self, String> {
        let file = programs::workspace().join("tests/corpus/single.toml");
        let text =
            fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let single =
            toml::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(Self {
            single,
            columns: Vec::new(),
            missing: Vec::new(),
        })
    }

    pub fn add(&mut self, step: &Step, outcome: Outcome) {
        self.columns
            .push((step.tier().into(), step.layer().into(), outcome));
    }

    /// Records a step without an outcome.
    pub fn miss(&mut self, step: &Step) {
        self.missing.push(format!("{step}: never run"));
    }

    fn column(&self, tier: &str, layer: &str) -> Option<&Outcome> {
        self.columns
            .iter()
            .find(|(t, l, _)| t == tier && l == layer)
            .map(|(_, _, outcome)| outcome)
    }

    /// Attacks that escape without a layer but not with it, each with its class.
    fn lost<'t>(&'t self, tier: &str, layer: &str) -> BTreeSet<(&'t str, &'t str)> {
        let out = |layer: &str| -> BTreeSet<(&'t str, &'t str)> {
            let column = self
                .column(tier, layer)
                .into_iter()
                .flat_map(Outcome::verdicts);
            let out = column.filter(|(_, _, verdict)| *verdict == Some(Verdict::Escaped));
            out.map(|(class, attack, _)| (class, attack)).collect()
        };
        let anyway = if layer == NONE {
            BTreeSet::new()
        } else {
            out(NONE)
        };
        out(layer).difference(&anyway).copied().collect()
    }

    pub fn complaints(&self) -> Vec<String> {
        let mut complaints = self.missing.clone();
        for (tier, layer, outcome) in self.columns.iter().filter(|(_, layer, _)| layer != NONE) {
            let mut says = |what: &str, attack: &str| {
                complaints.push(format!("{tier} without {layer}: {what} {attack}"))
            };
            let of = |single: &&Single| single.tier == *tier && single.layer == *layer;
            let named: BTreeSet<&str> = self
                .single
                .single
                .iter()
                .filter(of)
                .flat_map(|single| single.probes.iter().map(String::as_str))
                .collect();
            let closed = self
                .single
                .closed
                .iter()
                .any(|closed| closed.tier == *tier && closed.layer == *layer);
            match &outcome.closed {
                Some(why) if !closed => says("no session opens:", why),
                None if closed => says("a session opens, take it off single.toml", ""),
                _ => {}
            }
            let lost = self.lost(tier, layer);
            lost.iter()
                .filter(|(_, attack)| !named.contains(attack))
                .for_each(|(_, attack)| says("ESCAPED", attack));
            for (_, attack, verdict) in outcome.verdicts() {
                match verdict {
                    Some(Verdict::Held) if named.contains(attack) => {
                        says("holds, take it off single.toml:", attack)
                    }
                    Some(Verdict::NotRun) | None => says("could not run", attack),
                    _ => {}
                }
            }
        }
        complaints
    }

    /// The text for the README.
    pub fn page(&self) -> String {
        let mut page = String::new();
        for tier in TIERS {
            self.table(tier, &mut page);
            self.reasons(tier, &mut page);
        }
        page
    }

    fn table(&self, tier: &str, page: &mut String) {
        let columns: Vec<(&str, &Outcome)> = self
            .columns
            .iter()
            .filter(|(of, layer, _)| of == tier && layer != NONE)
            .map(|(_, layer, outcome)| (layer.as_str(), outcome))
            .collect();
        let classes: BTreeSet<&str> = columns
            .iter()
            .flat_map(|(_, outcome)| outcome.attacks.keys().map(String::as_str))
            .collect();
        let (open, held): (Vec<_>, Vec<_>) = columns
            .into_iter()
            .partition(|(layer, _)| !self.lost(tier, layer).is_empty());
        let (rows, rest): (Vec<&str>, Vec<&str>) = classes.into_iter().partition(|class| {
            open.iter()
                .any(|(layer, _)| self.count(tier, layer, class) > 0)
        });
        let heads: Vec<String> = open.iter().map(|(layer, _)| format!("`{layer}`")).collect();
        let line = "--:|".repeat(open.len());
        let _ = writeln!(
            page,
            "\n**{tier} tier**\n\n| class | {} |\n|---|{line}",
            heads.join(" | ")
        );
        for class in rows {
            let cells: Vec<String> = open
                .iter()
                .map(|(layer, _)| self.count(tier, layer, class).to_string())
                .collect();
            let _ = writeln!(page, "| {class} | {} |", cells.join(" | "));
        }
        let (closed, held): (Vec<_>, Vec<_>) = held
            .into_iter()
            .partition(|(_, outcome)| outcome.closed.is_some());
        let names = |columns: &[(&str, &Outcome)]| -> Vec<String> {
            columns
                .iter()
                .map(|(layer, _)| format!("`{layer}`"))
                .collect()
        };
        let anyway = self
            .lost(tier, NONE)
            .iter()
            .map(|(_, attack)| format!("`{attack}`"))
            .collect();
        say(page, "\nNo more get out without", names(&held));
        say(
            page,
            "Without any one layer, none in the classes",
            rest.iter().map(ToString::to_string).collect(),
        );
        say(page, "No session opens without", names(&closed));
        say(page, "Known to get out with every layer:", anyway);
    }

    fn count(&self, tier: &str, layer: &str, class: &str) -> usize {
        self.lost(tier, layer)
            .iter()
            .filter(|(of, _)| *of == class)
            .count()
    }

    fn reasons(&self, tier: &str, page: &mut String) {
        page.push('\n');
        for single in self
            .single
            .single
            .iter()
            .filter(|single| single.tier == tier)
        {
            let _ = writeln!(
                page,
                "- `{}`, {}: {}",
                single.layer,
                single.probes.len(),
                single.why
            );
        }
        for closed in self
            .single
            .closed
            .iter()
            .filter(|closed| closed.tier == tier)
        {
            let _ = writeln!(page, "- `{}`: {}", closed.layer, closed.why);
        }
    }

    /// Writes the text into the README.
    pub fn write(&self) -> Result<(), String> {
        let file = programs::workspace().join("executor/layers/README.md");
        let text =
            fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let parts = text
            .split_once(MARKS[0])
            .and_then(|(before, rest)| Some((before, rest.split_once(MARKS[1])?.1)));
        let (before, after) = parts.ok_or_else(|| format!("{}: no {MARKS:?}", file.display()))?;
        let text = format!(
            "{before}{}{}\n{}{after}",
            MARKS[0],
            self.page().trim_start(),
            MARKS[1]
        );
        fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))
    }
}

/// Writes a line with a list, if the list is not empty.
fn say(page: &mut String, what: &str, names: Vec<String>) {
    if !names.is_empty() {
        let _ = writeln!(page, "{what} {}.", names.join(", "));
    }
}
