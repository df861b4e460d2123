//! Time limits as other agents write them: in milliseconds, or longer than allowed. The result reports the limit that replaced the
//! requested one.

use crate::input_error::FieldError;
use orchestrator_results::metadata::Details;
use serde_json::{Map, Value};

/// The time limits of one input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AskedTimes {
    /// For the whole call.
    pub timeout: Option<AskedTime>,
    /// For pauses in its output.
    pub idle: Option<AskedTime>,
}

/// A requested time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedTime {
    /// The number in the input.
    number: u64,
    /// The seconds it was interpreted as.
    seconds: u64,
}

impl AskedTimes {
    /// Reads the time limits of `input`, whose fields have their canonical names, and replaces them with seconds. Only a field that
    /// is named so counts milliseconds: a guess from the number would end a command a thousand times too early.
    ///
    /// # Errors
    /// [`FieldError::Twice`] if a limit is given in both units.
    pub fn take(input: &mut Map<String, Value>) -> Result<Self, FieldError> {
        Ok(Self {
            timeout: take(input, "timeout", &["timeoutMs", "timeout_ms"])?,
            idle: take(input, "idle_timeout", &["idleTimeoutMs", "idle_timeout_ms"])?,
        })
    }

    /// Notes in the result about limits that differ from the requested ones, one line each. `details` has the limit in force.
    pub fn notes(&self, details: &Details) -> Vec<String> {
        let in_force = match details {
            Details::Command { timeout, .. }
            | Details::Tests { timeout, .. }
            | Details::Started { timeout, .. } => *timeout,
            Details::Fetched { timeout, .. } => Some(*timeout),
            _ => return Vec::new(),
        };
        let timeout = self
            .timeout
            .and_then(|asked| asked.note("timeout", in_force?.into()));
        let idle = self
            .idle
            .and_then(|asked| asked.note("idle_timeout", asked.seconds));
        timeout.into_iter().chain(idle).collect()
    }
}

impl AskedTime {
    fn note(self, name: &str, in_force: u64) -> Option<String> {
        let Self { number, seconds } = self;
        let as_ms = if seconds == number {
            String::new()
        } else {
            format!("; {number} was read as milliseconds")
        };
        match in_force == seconds {
            true if as_ms.is_empty() => None,
            true => Some(format!("[{name}: {in_force} s{as_ms}]")),
            false => Some(format!(
                "[{name}: {in_force} s is in force, {seconds} s were asked for{as_ms}]"
            )),
        }
    }
}

fn take(
    input: &mut Map<String, Value>,
    name: &str,
    milliseconds: &[&str],
) -> Result<Option<AskedTime>, FieldError> {
    let in_ms = milliseconds
        .iter()
        .find_map(|alias| Some((*alias, input.remove(*alias)?)));
    if let Some((alias, value)) = in_ms {
        if input.contains_key(name) {
            return Err(FieldError::Twice {
                name: name.to_owned(),
                alias: alias.to_owned(),
            });
        }
        let number = value.as_u64().filter(|number| *number > 0);
        let number = number
            .ok_or_else(|| FieldError::expected(alias, "an integer of at least 1", &value))?;
        return Ok(Some(set(input, name, number, number.div_ceil(1000))));
    }
    let Some(number) = input.get(name).and_then(Value::as_u64) else {
        return Ok(None);
    };
    Ok(Some(set(input, name, number, number)))
}

fn set(input: &mut Map<String, Value>, name: &str, number: u64, seconds: u64) -> AskedTime {
    input.insert(name.to_owned(), seconds.into());
    AskedTime { number, seconds }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn take(input: Value) -> (Value, Result<AskedTimes, FieldError>) {
        let Value::Object(mut input) = input else {
            panic!()
        };
        let times = AskedTimes::take(&mut input);
        (Value::Object(input), times)
    }

    #[test]
    fn only_fields_named_so_count_milliseconds() {
        for (input, want) in [
            (json!({"timeout": 600}), json!({"timeout": 600})),
            (json!({"timeout": 900}), json!({"timeout": 900})),
            (json!({"timeout": 3601}), json!({"timeout": 3601})),
            (json!({"timeout": 1000}), json!({"timeout": 1000})),
            (json!({"timeout": 30_000}), json!({"timeout": 30_000})),
            (json!({"timeout_ms": 1000}), json!({"timeout": 1})),
            (
                json!({"timeoutMs": 1500, "idleTimeoutMs": 200}),
                json!({"timeout": 2, "idle_timeout": 1}),
            ),
            (json!({"idle_timeout": 5000}), json!({"idle_timeout": 5000})),
            (json!({"timeout": u64::MAX}), json!({"timeout": u64::MAX})),
        ] {
            assert_eq!(take(input).0, want);
        }
        assert!(take(json!({"timeout": 5, "timeoutMs": 5000})).1.is_err());
        assert!(take(json!({"timeoutMs": 0})).1.is_err());
    }

    #[test]
    fn a_result_says_what_was_taken_whenever_it_is_not_what_was_asked() {
        let notes = |input: Value, timeout: u32| {
            let details = Details::Command {
                timeout: Some(timeout),
                spill: None,
                profile: None,
            };
            take(input).1.unwrap().notes(&details)
        };
        assert_eq!(notes(json!({"timeout": 60}), 60), [""; 0]);
        assert_eq!(notes(json!({}), 60), [""; 0]);
        assert_eq!(
            notes(json!({"timeout": 900}), 600),
            ["[timeout: 600 s is in force, 900 s were asked for]"]
        );
        assert_eq!(
            notes(json!({"timeoutMs": 30_000}), 30),
            ["[timeout: 30 s; 30000 was read as milliseconds]"]
        );
        assert_eq!(
            notes(json!({"timeout": 30_000}), 600),
            ["[timeout: 600 s is in force, 30000 s were asked for]"]
        );
        assert_eq!(
            notes(json!({"timeoutMs": 900_000, "idleTimeoutMs": 5000}), 600),
            [
                "[timeout: 600 s is in force, 900 s were asked for; 900000 was read as milliseconds]",
                "[idle_timeout: 5 s; 5000 was read as milliseconds]"
            ]
        );
    }
}
