//! Limits of runs that the user's settings, a pack or an option may set, each in its range.

use serde::Deserialize;
use thiserror::Error;

/// Maximum turns that a run may be given.
pub const TURNS_MAX: u32 = 10_000;
/// Longest time that one answer may be given, in seconds.
pub const TURN_TIMEOUT_MAX_S: u64 = 3_600;
/// Longest time that a run may be given, in seconds.
pub const TIMEOUT_MAX_S: u64 = 86_400;

/// Limits of runs that the user's settings, a pack or an option may set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunLimits {
    /// Turns of a run, 1 to [`TURNS_MAX`].
    pub max_turns: Option<u32>,
    /// Seconds of one answer of the model, 1 to [`TURN_TIMEOUT_MAX_S`].
    pub turn_timeout_s: Option<u64>,
    /// Seconds of a run, at most [`TIMEOUT_MAX_S`]; 0 for no limit of time: turns and context still end a run.
    pub timeout_s: Option<u64>,
    /// Tokens of an answer, at least 1.
    pub max_tokens: Option<u32>,
    /// Tokens of the context that must be left for another round of calls, at least 1.
    pub context_reserve: Option<u32>,
}

/// A limit outside its range.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("{name}: {found}; {least} to {most} are allowed")]
pub struct LimitError {
    name: &'static str,
    found: u64,
    least: u64,
    most: u64,
}

impl RunLimits {
    /// Checks that each is in its range.
    ///
    /// # Errors
    /// The first that is not.
    pub fn check(&self) -> Result<(), LimitError> {
        let tokens = u64::from(u32::MAX);
        let ranges = [
            (
                "max_turns",
                self.max_turns.map(u64::from),
                1,
                TURNS_MAX.into(),
            ),
            ("turn_timeout_s", self.turn_timeout_s, 1, TURN_TIMEOUT_MAX_S),
            ("timeout_s", self.timeout_s, 0, TIMEOUT_MAX_S),
            ("max_tokens", self.max_tokens.map(u64::from), 1, tokens),
            (
                "context_reserve",
                self.context_reserve.map(u64::from),
                1,
                tokens,
            ),
        ];
        for (name, value, least, most) in ranges {
            if let Some(found) = value.filter(|value| !(least..=most).contains(value)) {
                return Err(LimitError {
                    name,
                    found,
                    least,
                    most,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_holds_at_its_edges() {
        type Set = fn(u64) -> RunLimits;
        let set: [(Set, u64, u64); 3] = [
            (
                |value| RunLimits {
                    max_turns: Some(value as u32),
                    ..RunLimits::default()
                },
                1,
                10_000,
            ),
            (
                |value| RunLimits {
                    turn_timeout_s: Some(value),
                    ..RunLimits::default()
                },
                1,
                3_600,
            ),
            (
                |value| RunLimits {
                    timeout_s: Some(value),
                    ..RunLimits::default()
                },
                0,
                86_400,
            ),
        ];
        for (limits, least, most) in set {
            assert!(limits(least).check().is_ok() && limits(most).check().is_ok());
            assert!(limits(most + 1).check().is_err());
            assert!(least == 0 || limits(least - 1).check().is_err());
        }
        let none = RunLimits {
            max_tokens: Some(0),
            ..RunLimits::default()
        };
        assert!(none.check().unwrap_err().to_string().contains("max_tokens"));
    }
}
