//! Detects a model in a loop: the same call again and again.

use serde_json::Value;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

/// How many calls are remembered.
const REMEMBERED: usize = 8;
/// A call with more than this many equal ones among those remembered is a loop.
const ALIKE: usize = 2;

#[derive(Debug, Default)]
pub(crate) struct CallRepeats(VecDeque<u64>);

impl CallRepeats {
    /// Adds a call; returns how often it occurs among the last ones, including this one, if that is too often.
    pub(crate) fn take(&mut self, tool: &str, input: &Value) -> Option<usize> {
        let mut hasher = DefaultHasher::new();
        // The same fields in another order are the same call.
        let mut input = input.clone();
        input.sort_all_objects();
        (tool, input.to_string()).hash(&mut hasher);
        let call = hasher.finish();
        let before = self.0.iter().filter(|other| **other == call).count();
        self.0.push_back(call);
        if self.0.len() > REMEMBERED {
            self.0.pop_front();
        }
        (before >= ALIKE).then_some(before + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_order_of_fields_makes_no_other_call() {
        let mut repeats = CallRepeats::default();
        let orders = [
            r#"{"a":1,"b":[{"c":2,"d":3}]}"#,
            r#"{"b":[{"d":3,"c":2}],"a":1}"#,
        ];
        let [first, second] = orders.map(|text| serde_json::from_str(text).unwrap());
        assert_eq!(
            (repeats.take("x", &first), repeats.take("x", &second)),
            (None, None)
        );
        assert_eq!(repeats.take("x", &first), Some(3));
    }

    #[test]
    fn third_identical_call_of_eight_is_a_loop() {
        let mut repeats = CallRepeats::default();
        let same = json!({"command": "ls"});
        assert_eq!(
            (repeats.take("bash", &same), repeats.take("bash", &same)),
            (None, None)
        );
        assert_eq!(repeats.take("bash", &json!({"command": "pwd"})), None);
        assert_eq!(repeats.take("bash", &same), Some(3));
        for number in 0..7 {
            assert_eq!(repeats.take("bash", &json!({ "command": number })), None);
        }
        assert_eq!(repeats.take("bash", &same), None);
    }
}
