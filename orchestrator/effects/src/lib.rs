#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod document;
mod json;
mod push;
mod unread;

use broker_protocol::gateway::{EffectKind, RequestEffect};
use broker_protocol::limit;
use document::GraphQlDocument;
use hyper::Method;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE};
use hyper::http::request::Parts;
use serde_json::Value;
use unread::cut;

pub use json::strict as strict_json;
pub use unread::UnreadBody;

/// Bytes of a body that are read, where what it changes stands in its beginning or the whole is short.
const EFFECTS_PREFIX: usize = 64 * 1024;
/// Bytes of a body that publishes a package: it is read to its end, as a name may stand twice.
const PUBLISHED: usize = 16 << 20;

/// Requests whose bodies say what they change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    Push,
    GraphQl,
    PullRequest,
    /// A package, where the body is one.
    Publish,
    Other,
}

impl BodyKind {
    pub fn of(head: &Parts) -> Self {
        let parts: Vec<&str> = head.uri.path().split('/').skip(1).collect();
        let is_json = head.headers.get(CONTENT_TYPE).is_some_and(|value| {
            let value = value.as_bytes().to_ascii_lowercase();
            value.starts_with(b"application/json")
        });
        match (&head.method, &parts[..]) {
            (&Method::POST, [.., "git-receive-pack"]) => Self::Push,
            (&Method::POST, ["graphql"] | ["api", "graphql"]) => Self::GraphQl,
            (&Method::POST, ["repos", _, _, "pulls"] | ["api", "v3", "repos", _, _, "pulls"]) => {
                Self::PullRequest
            }
            (&Method::PUT, [_] | [_, _]) if is_json => Self::Publish,
            _ => Self::Other,
        }
    }

    /// Most bytes of the body that are read for the question; `None` for none.
    pub fn read_max(self) -> Option<usize> {
        match self {
            Self::Push | Self::GraphQl | Self::PullRequest => Some(EFFECTS_PREFIX),
            Self::Publish => Some(PUBLISHED),
            Self::Other => None,
        }
    }
}

/// The content of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effects {
    /// Its beginning does not say it yet.
    More,
    Nothing,
    Some(Vec<RequestEffect>),
}

/// The bytes of a body that have come.
#[derive(Clone, Copy, Debug)]
pub enum BodyBytes<'a> {
    Whole(&'a [u8]),
    /// More of the body may follow.
    Beginning(&'a [u8]),
}

/// Reads what the first bytes of a body say.
///
/// # Errors
/// Why they say nothing certain.
pub fn read(kind: BodyKind, head: &Parts, body: BodyBytes<'_>) -> Result<Effects, UnreadBody> {
    let (bytes, is_whole) = match body {
        BodyBytes::Whole(bytes) => (bytes, true),
        BodyBytes::Beginning(bytes) => (bytes, false),
    };
    let is_plain = |value: &[u8]| value.eq_ignore_ascii_case(b"identity");
    let mut encodings = head.headers.get_all(CONTENT_ENCODING).iter();
    if kind != BodyKind::Other && encodings.any(|value| !is_plain(value.as_bytes())) {
        return Err(UnreadBody::Encoded);
    }
    // Servers take `query`, `variables` and `operationName` from there too, some before the body's, and in spellings of their own.
    if kind == BodyKind::GraphQl && head.uri.query().is_some() {
        return Err(UnreadBody::Query);
    }
    match kind {
        BodyKind::Other => Ok(Effects::Some(Vec::new())),
        BodyKind::Push => match push::read(bytes)? {
            None if is_whole => Err(UnreadBody::Short),
            None => Ok(Effects::More),
            Some(effects) if effects.is_empty() => Ok(Effects::Nothing),
            Some(effects) => Ok(Effects::Some(effects)),
        },
        BodyKind::GraphQl | BodyKind::PullRequest | BodyKind::Publish if !is_whole => {
            Ok(Effects::More)
        }
        BodyKind::GraphQl => graphql(bytes),
        BodyKind::PullRequest => {
            let value = json::strict(bytes)?;
            let object = value.as_object().ok_or(UnreadBody::Json)?;
            let named = ["title", "head", "base", "draft", "body"];
            let named = named.into_iter().filter_map(|name| {
                let value = object.get(name)?;
                Some(line(name, value))
            });
            Ok(Effects::Some(named.collect()))
        }
        BodyKind::Publish => json::published(bytes).map(Effects::Some),
    }
}

/// A document of queries alone changes nothing. Of others the names of what they call are shown, their beginning, and what is put into them.
fn graphql(bytes: &[u8]) -> Result<Effects, UnreadBody> {
    let value = json::strict(bytes)?;
    let object = value.as_object().ok_or(UnreadBody::GraphQl)?;
    // A server may act on other keys in place of the document: a number or digest of one that it keeps.
    let is_known = |key: &String| matches!(&key[..], "query" | "variables" | "operationName");
    if !object.keys().all(is_known) {
        return Err(UnreadBody::GraphQl);
    }
    let query = object.get("query").and_then(Value::as_str);
    let document =
        GraphQlDocument::read(query.ok_or(UnreadBody::GraphQl)?).ok_or(UnreadBody::GraphQl)?;
    if !document.is_mutation {
        return Ok(Effects::Nothing);
    }
    let names = document.fields.join(", ");
    let mut effects = vec![
        named(format!("mutation of {names}")),
        named(document.text.clone()),
    ];
    let mut leaves = Vec::new();
    if let Some(variables) = object.get("variables") {
        json::leaves("", variables, &mut leaves);
    }
    let room = limit::EFFECTS - effects.len();
    let more = leaves.len() > room;
    let shown = leaves.into_iter().take(room - usize::from(more));
    effects.extend(shown.map(named));
    if more {
        effects.push(named("and more values that are not shown".into()));
    }
    Ok(Effects::Some(effects))
}

fn line(name: &str, value: &Value) -> RequestEffect {
    named(format!("{name}: {value}"))
}

/// Something that is named, and not changed from one thing into another.
fn named(text: String) -> RequestEffect {
    RequestEffect {
        object: cut(text),
        kind: EffectKind::Named,
        change: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn posted(path: &str) -> Parts {
        let request = hyper::Request::post(path);
        request.body(()).unwrap().into_parts().0
    }

    fn whole(kind: BodyKind, text: &str) -> Result<Effects, UnreadBody> {
        read(kind, &posted("/"), BodyBytes::Whole(text.as_bytes()))
    }

    #[test]
    fn kinds_are_known_by_method_and_path() {
        let of = |method: &str, path: &str| {
            let request = hyper::Request::builder().method(method).uri(path);
            let request = request.header("content-type", "application/json");
            BodyKind::of(&request.body(()).unwrap().into_parts().0)
        };
        for (method, path, want) in [
            ("POST", "/o/r.git/git-receive-pack", BodyKind::Push),
            ("GET", "/o/r.git/git-receive-pack", BodyKind::Other),
            ("POST", "/graphql", BodyKind::GraphQl),
            ("POST", "/repos/o/r/pulls", BodyKind::PullRequest),
            ("POST", "/repos/o/r/issues", BodyKind::Other),
            ("PUT", "/package", BodyKind::Publish),
            ("PUT", "/@scope%2fpackage", BodyKind::Publish),
            ("PUT", "/a/b/c", BodyKind::Other),
        ] {
            assert_eq!(of(method, path), want, "{method} {path}");
        }
    }

    #[test]
    fn queries_of_graphql_change_nothing_and_mutations_are_shown() {
        let body = |query: &str| serde_json::json!({ "query": query }).to_string();
        for query in [
            "{ viewer { login } }",
            "query Q($a: Int) { mutation: viewer { login } } # mutation",
            "query { a(text: \"mutation { b }\") { c } }",
            "query { a(text: \"\"\"mutation \\\"\"\" { b }\"\"\") { c } }",
            "fragment F on T { mutation } query { ...F }",
        ] {
            assert_eq!(
                whole(BodyKind::GraphQl, &body(query)),
                Ok(Effects::Nothing),
                "{query}"
            );
        }
        for query in [
            "mutation { a { b } }",
            "query A { a } mutation B { b }",
            "query A { a } # x\rmutation B { b }",
            "{ a(b: \"\\\"\") } mutation{b}",
            "subscription { a }",
        ] {
            let read = whole(BodyKind::GraphQl, &body(query));
            assert!(matches!(read, Ok(Effects::Some(_))), "{query}: {read:?}");
        }
        for wrong in [
            "{ a",
            "{ a } }",
            "{ a(b: \"x) } mutation { b }",
            "{ a(b: \"x\n\") } mutation { b }",
            "",
        ] {
            let read = whole(BodyKind::GraphQl, &body(wrong));
            assert_eq!(read, Err(UnreadBody::GraphQl), "{wrong}");
        }
        for wrong in [
            r#"[{"query":"{ a }"}]"#,
            r#"{"extensions":{"persistedQuery":{}}}"#,
            r#"{"query":"{ a }","documentId":"1"}"#,
            r#"{"query":"{ a }","extensions":{"persistedQuery":{}}}"#,
        ] {
            assert_eq!(whole(BodyKind::GraphQl, wrong), Err(UnreadBody::GraphQl));
        }
        let twice = r#"{"query":"{ a }","query":"mutation { a }"}"#;
        assert_eq!(whole(BodyKind::GraphQl, twice), Err(UnreadBody::Json));
        let made = serde_json::json!({
            "query": "mutation M($input: I!) { createPullRequest(input: $input) { url } }",
            "variables": { "input": { "title": "T\u{1b}[2J", "baseRefName": "main" } },
        });
        let Ok(Effects::Some(effects)) = whole(BodyKind::GraphQl, &made.to_string()) else {
            panic!()
        };
        let text = format!("{effects:?}");
        for part in ["createPullRequest", "input.title: ", "input.baseRefName: "] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_query_in_the_address_of_graphql_is_not_read() {
        let body = BodyBytes::Whole(br#"{"query":"{ a }"}"#);
        let of = |path: &str| read(BodyKind::GraphQl, &posted(path), body);
        assert_eq!(of("/graphql"), Ok(Effects::Nothing), "the control");
        for query in [
            "query=mutation%7Ba%7D",
            "%71uery=mutation%7Ba%7D",
            "query[]=mutation%7Ba%7D",
            "operationName=B",
            "variables=%7B%7D",
            "extensions=%7B%7D",
            "other",
            "",
        ] {
            let path = format!("/graphql?{query}");
            assert_eq!(of(&path), Err(UnreadBody::Query), "{path}");
        }
    }

    #[test]
    fn a_pull_request_and_a_package_are_shown() {
        let made = r#"{"title":"T","head":"o:b","base":"main","other":1}"#;
        let Ok(Effects::Some(effects)) = whole(BodyKind::PullRequest, made) else {
            panic!()
        };
        let objects: Vec<_> = effects.iter().map(|one| &*one.object).collect();
        assert_eq!(objects, ["title: \"T\"", "head: \"o:b\"", "base: \"main\""]);
        let package =
            r#"{"name":"@s/p","versions":{"1.2.3":{"name":"@s/p"}},"_attachments":{"a":{}}}"#;
        let Ok(Effects::Some(effects)) = whole(BodyKind::Publish, package) else {
            panic!()
        };
        assert_eq!(effects[0].object, "@s/p 1.2.3");
        assert_eq!(effects[0].change, "publish");
        for twice in [
            r#"{"name":"a","name":"b","versions":{"1":{}}}"#,
            r#"{"name":"a","versions":{"1":{}},"versions":{"2":{}}}"#,
            r#"{"name":"a","versions":{"1":{}}} x"#,
        ] {
            assert_eq!(
                whole(BodyKind::Publish, twice),
                Err(UnreadBody::Json),
                "{twice}"
            );
        }
        // A body that is no package is one of another interface.
        assert_eq!(whole(BodyKind::Publish, "{}"), Ok(Effects::Some(vec![])));
    }

    #[test]
    fn tags_and_maintainers_of_a_package_are_shown() {
        let objects = |body: &str| match whole(BodyKind::Publish, body) {
            Ok(Effects::Some(all)) => {
                let shown = all.into_iter().map(|one| (one.object, one.change));
                shown.collect::<Vec<_>>()
            }
            other => panic!("{body}: {other:?}"),
        };
        let pair = |object: &str, change: &str| (object.to_owned(), change.to_owned());
        assert_eq!(
            objects(r#"{"_id":"p","name":"p","maintainers":[{"name":"bob","email":"b@x"},"eve"]}"#),
            [
                pair("p maintainer bob <b@x>", ""),
                pair("p maintainer eve", "")
            ]
        );
        assert_eq!(
            objects(r#"{"name":"p","dist-tags":{"latest":"6.6.6"}}"#),
            [pair("p tag latest", "to 6.6.6")]
        );
        assert_eq!(
            objects(r#"{"dist-tags":{"latest":"1"},"access":"public"}"#),
            [pair("tag latest", "to 1"), pair("access \"public\"", "")]
        );
        for nothing in [
            r#"{"_id":"p","readme":"x"}"#,
            r#"{"name":"p","versions":{}}"#,
            r#"{"name":"p","maintainers":[1]}"#,
            r#"{"name":"p","maintainers":{"name":"eve"}}"#,
            r#"{"name":"p","dist-tags":["latest"]}"#,
            r#"{"name":"p","dist-tags":{"latest":1}}"#,
        ] {
            let read = whole(BodyKind::Publish, nothing);
            assert_eq!(read, Err(UnreadBody::Package), "{nothing}");
        }
        let twice = r#"{"name":"p","dist-tags":{"latest":"1","latest":"2"}}"#;
        assert_eq!(whole(BodyKind::Publish, twice), Err(UnreadBody::Json));
        let many = |count: usize| {
            let all = vec!["\"eve\""; count].join(",");
            whole(BodyKind::Publish, &format!(r#"{{"maintainers":[{all}]}}"#))
        };
        assert!(many(limit::EFFECTS).is_ok());
        assert_eq!(many(limit::EFFECTS + 1), Err(UnreadBody::Many));
    }

    #[test]
    fn an_encoded_body_is_not_read() {
        let mut head = posted("/");
        head.headers
            .insert(CONTENT_ENCODING, "gzip".parse().unwrap());
        for kind in [
            BodyKind::Push,
            BodyKind::GraphQl,
            BodyKind::PullRequest,
            BodyKind::Publish,
        ] {
            assert_eq!(
                read(kind, &head, BodyBytes::Whole(b"")),
                Err(UnreadBody::Encoded)
            );
        }
        head.headers
            .insert(CONTENT_ENCODING, "identity".parse().unwrap());
        assert_eq!(
            read(BodyKind::Push, &head, BodyBytes::Whole(b"0000")),
            Ok(Effects::Nothing)
        );
    }
}
