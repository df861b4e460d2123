//! Numbers in a policy: seconds, counts and sizes such as `"64 MiB"`. Every one is at least 1.

use serde::de::{Deserializer, Error, Unexpected, Visitor};
use std::fmt;

/// Wall seconds, at most [`TIMEOUT_S`](broker_protocol::limit::TIMEOUT_S).
pub(crate) fn seconds<'de, D: Deserializer<'de>>(input: D) -> Result<Option<u32>, D::Error> {
    const RULE: Rule =
        Rule { words: "seconds, 1 to 86400", most: broker_protocol::limit::TIMEOUT_S as u64, ..Rule::COUNT };
    // `RULE.most` fits.
    Ok(input.deserialize_any(RULE)?.map(|seconds| seconds as u32))
}

/// Bytes of captured output, which travel in one frame with what else an outcome holds.
pub(crate) fn capture<'de, D: Deserializer<'de>>(input: D) -> Result<Option<u64>, D::Error> {
    const RULE: Rule =
        Rule { words: "a size of at most 960 KiB, such as \"100 KiB\"", most: CAPTURE_MAX, ..Rule::SIZE };
    input.deserialize_any(RULE)
}

/// Bytes.
pub(crate) fn size<'de, D: Deserializer<'de>>(input: D) -> Result<Option<u64>, D::Error> {
    input.deserialize_any(Rule::SIZE)
}

/// Bytes, or `"none"`.
pub(crate) fn size_or_none<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Option<u64>>, D::Error> {
    const RULE: Rule = Rule { words: "a size such as \"64 MiB\", or \"none\"", none: true, ..Rule::SIZE };
    input.deserialize_any(RULE).map(Some)
}

/// A count, or `"none"`.
pub(crate) fn count_or_none<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Option<u64>>, D::Error> {
    const RULE: Rule = Rule { words: "a number from 1, or \"none\"", none: true, ..Rule::COUNT };
    input.deserialize_any(RULE).map(Some)
}

/// Most bytes of captured output: a frame, less room for the rest of an outcome.
pub const CAPTURE_MAX: u64 = broker_protocol::FRAME_MAX as u64 - 64 * 1024;

/// What a number may look like.
#[derive(Clone, Copy)]
struct Rule {
    /// For people.
    words: &'static str,
    most: u64,
    /// Whether a text with a unit is taken.
    sized: bool,
    /// Whether `"none"` is taken: no limit.
    none: bool,
}

impl Rule {
    const COUNT: Rule = Rule { words: "a number from 1", most: i64::MAX as u64, sized: false, none: false };
    const SIZE: Rule = Rule { words: "a size such as \"64 MiB\"", sized: true, ..Rule::COUNT };

    fn bounded(&self, number: u64) -> Option<u64> {
        (1..=self.most).contains(&number).then_some(number)
    }
}

impl Visitor<'_> for Rule {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Option<u64>, E> {
        let bounded = u64::try_from(number).ok().and_then(|number| self.bounded(number));
        bounded.map(Some).ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<u64>, E> {
        if self.none && text == "none" {
            return Ok(None);
        }
        let bounded = bytes(text).filter(|_| self.sized).and_then(|bytes| self.bounded(bytes));
        bounded.map(Some).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

/// `64 MiB` as bytes. `MB` is not taken: it means two different numbers.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim_start_matches(' ') {
        "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    struct Table {
        #[serde(default, deserialize_with = "seconds")]
        time: Option<u32>,
        #[serde(default, deserialize_with = "capture")]
        capture: Option<u64>,
        #[serde(default, deserialize_with = "size")]
        size: Option<u64>,
        #[serde(default, deserialize_with = "size_or_none")]
        cap: Option<Option<u64>>,
        #[serde(default, deserialize_with = "count_or_none")]
        count: Option<Option<u64>>,
    }

    fn table(text: &str) -> Table {
        toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn numbers_read_as_they_are_meant() {
        assert_eq!(table("time = 1").time, Some(1));
        assert_eq!(table("time = 86400").time, Some(86_400));
        assert_eq!(table("size = 7").size, Some(7));
        assert_eq!(table("size = '7 B'").size, Some(7));
        assert_eq!(table("size = '64MiB'").size, Some(64 << 20));
        assert_eq!(table("size = '2 TiB'").size, Some(2 << 40));
        assert_eq!(table("cap = 'none'").cap, Some(None));
        assert_eq!(table("cap = '1 GiB'").cap, Some(Some(1 << 30)));
        assert_eq!(table("count = 'none'").count, Some(None));
        assert_eq!(table("").count, None);
        assert_eq!(table("capture = '960 KiB'").capture, Some(CAPTURE_MAX));
    }

    #[test]
    fn what_is_out_of_range_or_means_two_things_is_refused() {
        for text in [
            "time = 0",
            "time = -1",
            "time = 86401",
            "time = '60'",
            "time = 1.5",
            "time = 'none'",
            "size = 0",
            "size = '64 MB'",
            "size = '64M'",
            "size = 'MiB'",
            "size = '-1 MiB'",
            "size = '99999999999 TiB'",
            "size = '64 MiB '",
            "size = 'none'",
            "size = true",
            "capture = 983041",
            "count = '64 KiB'",
            "count = 0",
        ] {
            assert!(toml::from_str::<Table>(text).is_err(), "{text}");
        }
    }
}
