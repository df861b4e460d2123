//! The maximum number of steps to check an input against a schema, computed beforehand from the input's size and depth.
//!
//! Each part of the schema that applies to a value checks it once. Below combinators these can be many: two branches that refer to
//! the same definition check each value below it twice, then four times, then eight times. This counts how often, at most, a value
//! at each depth is checked, whatever its name.

use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Greatest depth that is counted. Parsed JSON is never deeper.
const DEPTH: usize = 128;
/// Maximum steps for the counting itself.
const COUNTING_MAX: usize = 2_000_000;
/// Number of checks of one value above which more make no difference.
const ENOUGH: u64 = 1 << 40;
/// Bytes of a string that count as one step.
const TEXT_STEP: usize = 32;

/// Keywords that apply to the same value.
const SAME: [&str; 4] = ["not", "if", "then", "else"];
const SAME_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords that apply to all child values, whatever their names.
const BELOW: [&str; 5] = [
    "items",
    "contains",
    "unevaluatedItems",
    "unevaluatedProperties",
    "propertyNames",
];

/// The steps of one schema.
#[derive(Debug)]
pub(crate) struct SchemaCost {
    /// How many steps a value takes, by its depth.
    by_depth: Vec<u64>,
    branches: bool,
}

/// The schema has too many parts that refer to each other.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooComplex;

/// A part of the schema that is a schema itself.
#[derive(Default)]
struct Subschema<'v> {
    /// Steps for the part alone.
    weight: u64,
    same: Vec<usize>,
    by_name: BTreeMap<&'v str, usize>,
    /// For child values that are not in `by_name`.
    additional: Option<usize>,
    below: Vec<usize>,
}

struct Subschemas<'v> {
    root: &'v Value,
    parts: Vec<Subschema<'v>>,
    /// The parts that definitions were compiled to.
    definitions: BTreeMap<&'v str, usize>,
    pattern_steps: u64,
    /// Steps left for the counting itself.
    left: usize,
}

/// How often each part checks a value.
type CheckCounts = BTreeMap<usize, u64>;

impl SchemaCost {
    /// Counts the steps of `schema`, all of whose references lead to its own `$defs`; a pattern counts as `pattern_steps`.
    pub(crate) fn new(schema: &Value, pattern_steps: u64) -> Result<Self, TooComplex> {
        let (parts, definitions) = (Vec::new(), BTreeMap::new());
        let mut parts = Subschemas {
            root: schema,
            parts,
            definitions,
            pattern_steps,
            left: COUNTING_MAX,
        };
        let root = parts.add(schema);
        let mut counts = CheckCounts::new();
        parts.apply(root, 1, &mut counts)?;
        let mut by_depth = Vec::new();
        let mut most = parts.weight(&counts);
        while most > 0 && by_depth.len() < DEPTH {
            by_depth.push(most);
            if most >= ENOUGH {
                by_depth.resize(DEPTH, ENOUGH);
                break;
            }
            (counts, most) = parts.below(&counts)?;
        }
        let branches = parts.parts.iter().any(|part| !part.same.is_empty());
        Ok(Self { by_depth, branches })
    }

    /// The maximum number of steps for `input`.
    pub(crate) fn of(&self, input: &Value) -> u64 {
        self.steps(input, 0)
    }

    fn steps(&self, value: &Value, depth: usize) -> u64 {
        let each = self.by_depth.get(depth).copied().unwrap_or(0);
        let text = |text: &str| 1 + (text.len() / TEXT_STEP) as u64;
        let (own, below) = match value {
            Value::String(string) => (text(string), 0),
            Value::Array(values) => (
                1,
                values
                    .iter()
                    .map(|value| self.steps(value, depth + 1))
                    .sum(),
            ),
            Value::Object(fields) => (
                fields.keys().map(|name| text(name)).sum::<u64>() + 1,
                fields.values().fold(0_u64, |sum, value| {
                    sum.saturating_add(self.steps(value, depth + 1))
                }),
            ),
            Value::Null | Value::Bool(_) | Value::Number(_) => (1, 0),
        };
        each.saturating_mul(own).saturating_add(below)
    }

    /// Whether several parts of the schema apply to the same value.
    pub(crate) fn branches(&self) -> bool {
        self.branches
    }
}

impl<'v> Subschemas<'v> {
    fn add(&mut self, schema: &'v Value) -> usize {
        let at = self.parts.len();
        self.parts.push(Subschema {
            weight: 1,
            ..Subschema::default()
        });
        if let Value::Object(fields) = schema {
            let part = self.part(fields);
            self.parts[at] = part;
        }
        at
    }

    fn part(&mut self, fields: &'v Map<String, Value>) -> Subschema<'v> {
        let mut part = Subschema {
            weight: 1,
            ..Subschema::default()
        };
        for (keyword, value) in fields {
            match (keyword.as_str(), value) {
                ("$ref", Value::String(target)) => part.same.extend(self.definition(target)),
                ("$defs", _) => {}
                (keyword, value) if SAME.contains(&keyword) => part.same.push(self.add(value)),
                (keyword, Value::Array(list)) if SAME_LISTS.contains(&keyword) => {
                    part.same.extend(
                        list.iter()
                            .map(|schema| self.add(schema))
                            .collect::<Vec<_>>(),
                    );
                }
                ("dependentSchemas", Value::Object(map)) => {
                    part.same.extend(
                        map.values()
                            .map(|schema| self.add(schema))
                            .collect::<Vec<_>>(),
                    );
                }
                ("properties", Value::Object(map)) => {
                    part.by_name.extend(
                        map.iter()
                            .map(|(name, schema)| (name.as_str(), self.add(schema))),
                    );
                }
                ("pattern", Value::String(_)) => part.weight += self.pattern_steps,
                ("patternProperties", Value::Object(map)) => {
                    part.weight += self.pattern_steps * map.len() as u64;
                    part.below.extend(
                        map.values()
                            .map(|schema| self.add(schema))
                            .collect::<Vec<_>>(),
                    );
                }
                ("prefixItems", Value::Array(list)) => {
                    part.below.extend(
                        list.iter()
                            .map(|schema| self.add(schema))
                            .collect::<Vec<_>>(),
                    );
                }
                ("additionalProperties", value) => part.additional = Some(self.add(value)),
                (keyword, value) if BELOW.contains(&keyword) => part.below.push(self.add(value)),
                (_, value) => part.weight += values(value),
            }
        }
        part
    }

    /// The part that a reference leads to.
    fn definition(&mut self, target: &'v str) -> Option<usize> {
        let name = target.strip_prefix("#/$defs/")?;
        if let Some(known) = self.definitions.get(name) {
            return Some(*known);
        }
        let schema = self.root.get("$defs")?.get(name)?;
        // A definition may refer to itself, so its index is registered before its parts are known.
        let at = self.parts.len();
        self.parts.push(Subschema {
            weight: 1,
            ..Subschema::default()
        });
        self.definitions.insert(name, at);
        if let Value::Object(fields) = schema {
            let part = self.part(fields);
            self.parts[at] = part;
        }
        Some(at)
    }

    /// Counts a part and all parts that apply to the same value.
    fn apply(
        &mut self,
        part: usize,
        times: u64,
        counts: &mut CheckCounts,
    ) -> Result<(), TooComplex> {
        self.left = self.left.checked_sub(1).ok_or(TooComplex)?;
        let count = counts.entry(part).or_default();
        *count = count.saturating_add(times);
        for at in 0..self.parts[part].same.len() {
            self.apply(self.parts[part].same[at], times, counts)?;
        }
        Ok(())
    }

    /// How often each part checks a child of a value with these counts, and the steps for one such value.
    fn below(&mut self, counts: &CheckCounts) -> Result<(CheckCounts, u64), TooComplex> {
        let parts = counts.keys().map(|part| &self.parts[*part]);
        let names: BTreeSet<&'v str> = parts
            .flat_map(|part| part.by_name.keys().copied())
            .collect();
        let (mut all, mut most) = (CheckCounts::new(), 0);
        for name in names.into_iter().map(Some).chain([None]) {
            let mut of_name = CheckCounts::new();
            for (part, times) in counts {
                self.left = self.left.checked_sub(1).ok_or(TooComplex)?;
                let Subschema {
                    by_name,
                    additional,
                    below,
                    ..
                } = &self.parts[*part];
                let named = name
                    .and_then(|name| by_name.get(name))
                    .or(additional.as_ref())
                    .copied();
                for next in named.into_iter().chain(below.clone()).collect::<Vec<_>>() {
                    self.apply(next, *times, &mut of_name)?;
                }
            }
            most = most.max(self.weight(&of_name));
            for (part, times) in of_name {
                let known = all.entry(part).or_default();
                *known = times.max(*known);
            }
        }
        Ok((all, most))
    }

    fn weight(&self, counts: &CheckCounts) -> u64 {
        let steps = counts
            .iter()
            .map(|(part, times)| times.saturating_mul(self.parts[*part].weight));
        steps.fold(0, u64::saturating_add).min(ENOUGH)
    }
}

/// How many values a value contains, including itself.
fn values(value: &Value) -> u64 {
    match value {
        Value::Array(values) => 1 + values.iter().map(self::values).sum::<u64>(),
        Value::Object(fields) => 1 + fields.values().map(self::values).sum::<u64>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}
