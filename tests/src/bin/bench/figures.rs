//! The results of measurements, and their printed form.

use serde_json::{Value, json};
use std::time::Instant;

/// One line of the table.
pub struct Row {
    pub part: char,
    pub name: String,
    pub value: String,
    /// The same values as numbers, for `--json`.
    pub figures: Value,
    /// What the main job asks for, and whether it holds.
    pub goal: Option<(String, bool)>,
}

/// Runs an action and returns its duration in microseconds.
pub fn time(action: impl FnOnce()) -> f64 {
    let started = Instant::now();
    action();
    started.elapsed().as_secs_f64() * 1e6
}

/// Measured times, in microseconds.
pub struct Times(pub Vec<f64>);

impl Times {
    fn at(&self, part: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[((sorted.len() - 1) as f64 * part) as usize]
    }

    pub fn median(&self) -> f64 {
        self.at(0.5)
    }

    pub fn row(&self, part: char, name: &str, base: Option<&Times>) -> Row {
        let (median, p95) = (self.median(), self.at(0.95));
        let ratio = base.map(|base| median / base.median());
        let suffix = ratio.map_or(String::new(), |ratio| format!("   {ratio:.2} ×"));
        let value = format!("{median:.0} µs, p95 {p95:.0}{suffix}");
        let figures = json!({"medianUs": median, "p95Us": p95, "ratio": ratio});
        Row {
            part,
            name: name.into(),
            value,
            figures,
            goal: None,
        }
    }
}

impl Row {
    pub fn goal(mut self, goal: &str, holds: bool) -> Self {
        self.goal = Some((goal.into(), holds));
        self
    }

    pub fn to_json(&self) -> Value {
        let goal = self
            .goal
            .as_ref()
            .map(|(goal, holds)| json!({"goal": goal, "holds": holds}));
        let part = self.part.to_string();
        json!({"part": part, "name": self.name, "value": self.value, "figures": self.figures, "goal": goal})
    }
}
