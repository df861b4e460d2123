//! JSON in which no name stands twice: of two, servers take the one or the other.

use crate::unread::UnreadBody;
use broker_protocol::gateway::{EffectKind, RequestEffect};
use broker_protocol::limit;
use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;

/// Reads a value that all servers read alike.
///
/// # Errors
/// The text is no value of JSON, or a name stands twice in it.
pub fn strict(bytes: &[u8]) -> Result<Value, UnreadBody> {
    let read: Result<Strict, _> = serde_json::from_slice(bytes);
    read.map(|strict| strict.0).map_err(|_| UnreadBody::Json)
}

/// The changes of a package in a body that is sent to `path`: its versions, tags, maintainers and access; nothing if it is of another
/// interface.
pub(super) fn published(path: &str, bytes: &[u8]) -> Result<Vec<RequestEffect>, UnreadBody> {
    let read: Result<PublishedPackage, _> = serde_json::from_slice(bytes);
    let package = read.map_err(|_| UnreadBody::Json)?;
    if !package.is_one {
        return Ok(Vec::new());
    }
    let of_path = package_of(path);
    if !package.names.iter().all(|name| *name == of_path) || package.is_contradictory {
        return Err(UnreadBody::Names);
    }
    let (kind, change) = match &package.files {
        Some(_) => (EffectKind::Create, "publish"),
        None => (EffectKind::Update, "change what is said of it"),
    };
    let versions = package.versions.iter();
    let versions = versions.map(|version| (kind, version.clone(), change.to_owned()));
    let (tags, maintainers) = (tags(&package.tags)?, maintainers(&package.maintainers)?);
    let update = |object| (EffectKind::Update, object, String::new());
    let files = package.files.iter().flatten();
    let files = files.filter(|file| !package.is_own(file));
    let files = files.map(|file| format!("file {file}"));
    let more = tags.into_iter().chain(maintainers).chain(files).map(update);
    let named: Vec<_> = versions.chain(more).collect();
    if named.is_empty() {
        return Err(UnreadBody::Package);
    }
    let access = match &package.access {
        Value::Null => None,
        access => Some((
            EffectKind::Update,
            format!("access {access}"),
            String::new(),
        )),
    };
    let before = match package.names.is_empty() {
        true => String::new(),
        false => of_path + " ",
    };
    let each = named.into_iter().chain(access);
    let effects = each.map(|(kind, object, change)| RequestEffect {
        object: format!("{before}{object}"),
        kind,
        change,
    });
    let effects: Vec<_> = effects.collect();
    let fits = |one: &RequestEffect| one.object.len() <= limit::DENIAL_TEXT;
    match effects.len() <= limit::EFFECTS && effects.iter().all(fits) {
        true => Ok(effects),
        false => Err(UnreadBody::Many),
    }
}

/// The package that a path names: its last part, or both where the first is a scope.
fn package_of(path: &str) -> String {
    let decoded = percent_decoded(path);
    let mut parts = decoded.rsplit('/');
    let (name, scope) = (parts.next().unwrap_or_default(), parts.next());
    match scope.filter(|scope| scope.starts_with('@')) {
        Some(scope) => format!("{scope}/{name}"),
        None => name.to_owned(),
    }
}

fn percent_decoded(path: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(path.len()), path.as_bytes());
    while let [first, after @ ..] = rest {
        let digit = |at: usize| {
            after
                .get(at)
                .and_then(|&digit| char::from(digit).to_digit(16))
        };
        let decoded = match (*first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => u8::try_from(high * 16 + low).ok(),
            (_, _, _) => None,
        };
        bytes.push(decoded.unwrap_or(*first));
        rest = if decoded.is_some() {
            &after[2..]
        } else {
            after
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The tags, each with its version: a yes for the session is for no other.
fn tags(value: &Value) -> Result<Vec<String>, UnreadBody> {
    let all = match value {
        Value::Null => return Ok(Vec::new()),
        value => value.as_object().ok_or(UnreadBody::Package)?,
    };
    let one = |(tag, version): (&String, &Value)| {
        let version = version.as_str().ok_or(UnreadBody::Package)?;
        Ok(format!("tag {tag} to {version}"))
    };
    all.iter().map(one).collect()
}

/// The maintainers: names with addresses, or names alone.
fn maintainers(value: &Value) -> Result<Vec<String>, UnreadBody> {
    let all = match value {
        Value::Null => return Ok(Vec::new()),
        value => value.as_array().ok_or(UnreadBody::Package)?,
    };
    let one = |one: &Value| {
        let of = |key: &str| one.get(key).and_then(Value::as_str);
        let name = one.as_str().or_else(|| of("name"));
        let name = name.ok_or(UnreadBody::Package)?;
        let address = of("email").map_or_else(String::new, |email| format!(" <{email}>"));
        Ok(format!("maintainer {name}{address}"))
    };
    all.iter().map(one).collect()
}

/// Every single value in `value` with its path. No two values have the same texts: a yes for the session compares them.
///
/// # Errors
/// A number is none that all servers read alike.
pub(super) fn leaves(path: &str, value: &Value, all: &mut Vec<String>) -> Result<(), UnreadBody> {
    match value {
        Value::Object(object) if !object.is_empty() => {
            for (name, value) in object {
                let name = member(name);
                let path = if path.is_empty() {
                    name
                } else {
                    format!("{path}.{name}")
                };
                leaves(&path, value, all)?;
            }
        }
        Value::Array(values) if !values.is_empty() => {
            for (number, value) in values.iter().enumerate() {
                leaves(&format!("{path}[{number}]"), value, all)?;
            }
        }
        Value::Number(number) if !is_exact(number) => return Err(UnreadBody::Json),
        value => all.push(format!("{path}: {value}")),
    }
    Ok(())
}

/// A name in a path: as it is, if nothing in it can pass for another part.
fn member(name: &str) -> String {
    let is_plain = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric();
    match !name.is_empty() && name.bytes().all(is_plain) {
        true => name.to_owned(),
        false => Value::from(name).to_string(),
    }
}

/// A large number is read as the nearest that fits, which may be another than the text has.
fn is_exact(number: &Number) -> bool {
    const WHOLE: f64 = (1u64 << 53) as f64;
    let is_small = |float: f64| float.abs() < WHOLE;
    !number.is_f64() || number.as_f64().is_some_and(is_small)
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

/// Keys by which the body of a package is known.
const PACKAGE_KEYS: [&str; 6] = [
    "_id",
    "_rev",
    "_attachments",
    "versions",
    "dist-tags",
    "maintainers",
];

/// The package that a body describes, without its files.
#[derive(Default)]
struct PublishedPackage {
    /// The names that it and its versions have for it.
    names: BTreeSet<String>,
    versions: BTreeSet<String>,
    /// A version calls itself otherwise than its key.
    is_contradictory: bool,
    tags: Value,
    maintainers: Value,
    access: Value,
    /// Whether it has a key of a package's, and is not of another interface.
    is_one: bool,
    /// The names of files that come with it, if it is published and not only described.
    files: Option<BTreeSet<String>>,
}

impl PublishedPackage {
    fn take_versions(&mut self, UniqueMembers(versions): UniqueMembers<VersionHead>) {
        for (key, VersionHead { name, version }) in versions {
            self.names.extend(name);
            self.is_contradictory |= version.is_some_and(|version| version != key);
            self.versions.insert(key);
        }
    }

    /// Whether a file is called after the package and one of its versions, as those of npm's clients are: then it needs no line.
    fn is_own(&self, file: &str) -> bool {
        let ends = |version: &String| {
            let end = file.strip_suffix(".tgz").or(file.strip_suffix(".sigstore"));
            let name = end.and_then(|file| file.strip_suffix(version.as_str())?.strip_suffix('-'));
            let is_one = |own: &String| {
                let bare = own.rsplit('/').next();
                name == Some(own) || name == bare
            };
            self.names.iter().any(is_one)
        };
        self.versions.iter().any(ends)
    }
}

/// Members of an object in which no name stands twice.
struct UniqueMembers<V>(BTreeMap<String, V>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for UniqueMembers<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(UniqueVisitor(PhantomData))
    }
}

struct UniqueVisitor<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for UniqueVisitor<V> {
    type Value = UniqueMembers<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
        let mut members = BTreeMap::new();
        while let Some((name, value)) = all.next_entry()? {
            if members.insert(name, value).is_some() {
                return Err(A::Error::custom("a name stands twice"));
            }
        }
        Ok(UniqueMembers(members))
    }
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
            package.is_one |= PACKAGE_KEYS.contains(&&*name);
            match &*name {
                "name" | "_id" => package.names.extend([all.next_value::<String>()?]),
                "versions" => package.take_versions(all.next_value()?),
                "dist-tags" => Strict(package.tags) = all.next_value()?,
                "maintainers" => Strict(package.maintainers) = all.next_value()?,
                "access" => Strict(package.access) = all.next_value()?,
                "_attachments" => {
                    let UniqueMembers(files): UniqueMembers<IgnoredAny> = all.next_value()?;
                    package.files = Some(files.into_keys().collect());
                }
                _ => drop(all.next_value::<IgnoredAny>()?),
            }
            if !seen.insert(name) {
                return Err(A::Error::custom("a name stands twice"));
            }
        }
        Ok(package)
    }
}

/// The names by which a version calls itself. One of these that stands twice is an error of the derived code.
#[derive(Deserialize)]
struct VersionHead {
    name: Option<String>,
    version: Option<String>,
}
