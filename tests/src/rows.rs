//! The result of each attack in a run, written to a file for another program: the ablation command reads it.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

/// The variable that names the file for rows, if they are wanted.
pub const VARIABLE: &str = "LAZARET_ROWS";

/// The result of one attack, in increasing order: of several attempts the worst counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Held,
    /// It reported nothing, so the result is unknown.
    NotRun,
    /// It reached its goal.
    Escaped,
}

impl Verdict {
    const ALL: [(Verdict, &str); 3] = [
        (Verdict::Held, "held"),
        (Verdict::NotRun, "not run"),
        (Verdict::Escaped, "escaped"),
    ];

    pub fn word(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|(_, known)| *known == word)
            .map(|(verdict, _)| verdict)
    }
}

/// Appends the attacks of a class, if the variable is set.
pub fn write(class: &str, verdicts: &[(&str, Verdict)]) {
    let Some(file) = std::env::var_os(VARIABLE) else {
        return;
    };
    let lines = verdicts.iter().map(|(attack, verdict)| {
        format!(
            "{}\n",
            json!({ "class": class, "attack": attack, "verdict": verdict.word() })
        )
    });
    let lines: String = lines.collect();
    // In one write, since tests run in parallel.
    let written = OpenOptions::new().create(true).append(true).open(&file);
    written
        .and_then(|mut file| file.write_all(lines.as_bytes()))
        .expect("the file for rows can be written");
}

/// Reads such a file: the worst verdict of each attack, by class and name.
///
/// # Errors
/// If it cannot be read, or a line is invalid.
pub fn read(file: &Path) -> Result<BTreeMap<(String, String), Verdict>, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut rows = BTreeMap::new();
    for line in text.lines() {
        let (key, verdict) = row(line).ok_or_else(|| format!("{}: {line}", file.display()))?;
        let worst = rows.entry(key).or_insert(verdict);
        *worst = verdict.max(*worst);
    }
    Ok(rows)
}

fn row(line: &str) -> Option<((String, String), Verdict)> {
    let row: Value = serde_json::from_str(line).ok()?;
    let text = |key: &str| row[key].as_str().map(str::to_owned);
    Some((
        (text("class")?, text("attack")?),
        Verdict::of_word(&text("verdict")?)?,
    ))
}
