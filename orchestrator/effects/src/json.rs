//! JSON in which no name stands twice: of two, servers take the one or the other.

use crate::unread::{UnreadBody, cut};
use broker_protocol::gateway::RequestEffect;
use broker_protocol::limit;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};
use std::collections::BTreeSet;
use std::fmt;

/// Reads a value that all servers read alike.
///
/// # Errors
/// It is none, or a name stands twice in it.
pub fn strict(bytes: &[u8]) -> Result<Value, UnreadBody> {
    let read: Result<Strict, _> = serde_json::from_slice(bytes);
    read.map(|strict| strict.0).map_err(|_| UnreadBody::Json)
}

/// The package and the version that a body publishes; none if it is of another interface.
pub(super) fn published(bytes: &[u8]) -> Result<Vec<RequestEffect>, UnreadBody> {
    let read: Result<PublishedPackage, _> = serde_json::from_slice(bytes);
    let PublishedPackage {
        name,
        versions,
        is_published,
    } = read.map_err(|_| UnreadBody::Json)?;
    let Some(name) = name else {
        return Ok(Vec::new());
    };
    if versions.len() > limit::EFFECTS {
        return Err(UnreadBody::Many);
    }
    let change = if is_published {
        "publish"
    } else {
        "change what is said of it"
    };
    let each = versions.into_iter().map(|version| RequestEffect {
        object: cut(format!("{name} {version}")),
        change: change.to_owned(),
    });
    Ok(each.collect())
}

/// Every single value in `value` with its path, one a line.
pub(super) fn leaves(path: &str, value: &Value, all: &mut Vec<String>) {
    let join = |name: &str| match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                leaves(&join(name), value, all);
            }
        }
        Value::Array(values) => {
            for (number, value) in values.iter().enumerate() {
                leaves(&join(&number.to_string()), value, all);
            }
        }
        Value::Null => {}
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            all.push(format!("{path}: {value}"));
        }
    }
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Strict;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without a name that stands twice")
    }

    fn visit_unit<E>(self) -> Result<Strict, E> {
        Ok(Strict(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Strict, E> {
        Ok(Strict(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Strict, E> {
        let number = Number::from_f64(value);
        Ok(Strict(number.map_or(Value::Null, Value::Number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Strict, E> {
        Ok(Strict(Value::String(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Strict, A::Error> {
        let mut values = Vec::new();
        while let Some(Strict(value)) = all.next_element()? {
            values.push(value);
        }
        Ok(Strict(Value::Array(values)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Strict, A::Error> {
        let mut object = Map::new();
        while let Some(name) = all.next_key::<String>()? {
            let Strict(value) = all.next_value()?;
            if object.insert(name, value).is_some() {
                return Err(A::Error::custom("a name stands twice"));
            }
        }
        Ok(Strict(Value::Object(object)))
    }
}

/// The package that a body describes, without its files.
#[derive(Default)]
struct PublishedPackage {
    name: Option<String>,
    versions: BTreeSet<String>,
    /// Whether files come with it.
    is_published: bool,
}

impl<'de> Deserialize<'de> for PublishedPackage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PackageVisitor)
    }
}

struct PackageVisitor;

impl<'de> Visitor<'de> for PackageVisitor {
    type Value = PublishedPackage;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<PublishedPackage, A::Error> {
        let (mut package, mut seen) = (PublishedPackage::default(), BTreeSet::new());
        while let Some(name) = all.next_key::<String>()? {
            match &*name {
                "name" => package.name = Some(all.next_value()?),
                "versions" => package.versions = all.next_value_seed(ObjectNames)?,
                other => {
                    package.is_published |= other == "_attachments";
                    all.next_value::<IgnoredAny>()?;
                }
            }
            if !seen.insert(name) {
                return Err(A::Error::custom("a name stands twice"));
            }
        }
        Ok(package)
    }
}

/// The names of an object.
struct ObjectNames;

impl<'de> DeserializeSeed<'de> for ObjectNames {
    type Value = BTreeSet<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ObjectNames {
    type Value = BTreeSet<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
        let mut names = BTreeSet::new();
        while let Some(name) = all.next_key::<String>()? {
            all.next_value::<IgnoredAny>()?;
            if !names.insert(name) {
                return Err(A::Error::custom("a name stands twice"));
            }
        }
        Ok(names)
    }
}
