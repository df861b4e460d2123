//! Rejects JSON with a duplicate name in an object: of two values, another reader, such as an inspecting proxy, could use the other one.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::collections::HashSet;
use std::fmt;

/// Checks a text. Invalid JSON is an error too.
///
/// # Errors
/// If it is no JSON, or has a duplicate name.
pub(crate) fn check(text: &[u8]) -> Result<(), serde_json::Error> {
    serde_json::from_slice::<Once>(text).map(drop)
}

struct Once;

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Once)
    }
}

impl<'de> Visitor<'de> for Once {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if !names.insert(name) {
                return Err(A::Error::custom("duplicate name in an object"));
            }
            map.next_value::<Self>()?;
        }
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_stands_twice_is_refused_wherever_it_is() {
        for text in [
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"[{"b":{"a":1,"a":1}}]"#,
        ] {
            let refused =
                check(text.as_bytes()).map_err(|error| (error.is_data(), error.to_string()));
            assert!(
                matches!(&refused, Err((true, why)) if why.contains("duplicate")),
                "{text}: {refused:?}"
            );
        }
        let all = r#"{"a":[{"a":1},{"a":-1.5e9}],"b":{"a":"\u00e4"},"c":[null,true,18446744073709551616]}"#;
        assert!(check(all.as_bytes()).is_ok());
        assert!(check(b"{").is_err_and(|error| !error.is_data()));
        let deep = "[".repeat(1000);
        assert!(check(deep.as_bytes()).is_err());
    }
}
