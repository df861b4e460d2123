#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod document;
mod json;
mod push;
mod unread;
mod uses;

use broker_protocol::gateway::{EffectKind, RequestEffect};
use broker_protocol::limit;
use document::GraphQlDocument;
use hyper::Method;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE};
use hyper::http::request::Parts;
use serde_json::{Map, Value};

pub use json::strict as strict_json;
pub use unread::UnreadBody;
pub use uses::{OFF, RequestedUse, Unasked, names_other_request};

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
        match (&head.method, &parts[..]) {
            (&Method::POST, [.., "git-receive-pack"]) => Self::Push,
            (&Method::POST, ["graphql"] | ["api", "graphql"]) => Self::GraphQl,
            (&Method::POST, ["repos", _, _, "pulls"] | ["api", "v3", "repos", _, _, "pulls"]) => {
                Self::PullRequest
            }
            (&Method::PUT, [_] | [_, _]) if is_json(head) => Self::Publish,
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
    let is_read = matches!(
        kind,
        BodyKind::GraphQl | BodyKind::PullRequest | BodyKind::Publish
    );
    if is_read && !is_json(head) {
        return Err(UnreadBody::Type);
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
            pull_request(object)
        }
        BodyKind::Publish => json::published(head.uri.path(), bytes).map(Effects::Some),
    }
}

/// Whether a body is JSON in UTF-8 for every server: one that goes by the type could read a form out of what looks like JSON.
fn is_json(head: &Parts) -> bool {
    let mut types = head.headers.get_all(CONTENT_TYPE).iter();
    let (Some(one), None) = (types.next(), types.next()) else {
        return false;
    };
    let text = one.to_str().unwrap_or_default().to_ascii_lowercase();
    let mut parts = text.split(';').map(str::trim);
    let media = parts.next().unwrap_or_default();
    let is_plain = |part: &str| matches!(part, "charset=utf-8" | "charset=\"utf-8\"");
    (media == "application/json" || media.starts_with("application/") && media.ends_with("+json"))
        && parts.all(is_plain)
}

/// All members of a pull request, those first by which people know it.
fn pull_request(object: &Map<String, Value>) -> Result<Effects, UnreadBody> {
    const FIRST: [&str; 3] = ["title", "head", "base"];
    let first = FIRST
        .into_iter()
        .filter_map(|name| object.get_key_value(name));
    let rest = object.iter().filter(|(name, _)| !FIRST.contains(&&***name));
    let mut texts = Vec::new();
    for (name, value) in first.chain(rest) {
        let one = Map::from_iter([(name.clone(), value.clone())]);
        json::leaves("", &Value::Object(one), &mut texts)?;
    }
    named_lines(texts)
}

/// A document of queries alone changes nothing. Of others the names of what they call are shown, the whole, and what is put into them.
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
    let mut texts = vec![format!("mutation of {names}"), document.text];
    // Which of several operations it is.
    if let Some(name) = object.get("operationName") {
        texts.push(format!("operationName: {name}"));
    }
    match object.get("variables") {
        None | Some(Value::Null) => {}
        Some(Value::Object(variables)) if variables.is_empty() => {}
        Some(variables @ Value::Object(_)) => {
            let mut values = Vec::new();
            json::leaves("", variables, &mut values)?;
            // Many are short: a line has as many as fit.
            texts.push(values.join("; "));
        }
        Some(_) => return Err(UnreadBody::GraphQl),
    }
    named_lines(texts)
}

/// Texts that are named, each whole, and not changed from one thing into another.
fn named_lines(texts: Vec<String>) -> Result<Effects, UnreadBody> {
    let lines = texts.iter().flat_map(|text| unread::pieces(text));
    let effects = lines.map(|object| RequestEffect {
        object,
        kind: EffectKind::Named,
        change: String::new(),
    });
    let effects: Vec<_> = effects.take(limit::EFFECTS + 1).collect();
    match effects.len() <= limit::EFFECTS {
        true => Ok(Effects::Some(effects)),
        false => Err(UnreadBody::Many),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn posted(path: &str) -> Parts {
        let request = hyper::Request::post(path).header(CONTENT_TYPE, "application/json");
        request.body(()).unwrap().into_parts().0
    }

    fn whole(kind: BodyKind, text: &str) -> Result<Effects, UnreadBody> {
        read(kind, &posted("/p"), BodyBytes::Whole(text.as_bytes()))
    }

    #[test]
    fn body_is_json_for_all_servers_or_it_is_not_read() {
        let read = |types: &[&str]| {
            let request = hyper::Request::post("/graphql");
            let typed = types
                .iter()
                .fold(request, |all, one| all.header(CONTENT_TYPE, *one));
            let head = typed.body(()).unwrap().into_parts().0;
            super::read(
                BodyKind::GraphQl,
                &head,
                BodyBytes::Whole(br#"{"query":"{a}"}"#),
            )
        };
        for types in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/vnd.github+json",
        ] {
            assert_eq!(read(&[types]), Ok(Effects::Nothing), "{types}");
        }
        for types in [
            &[][..],
            &["application/json", "application/json"],
            &["application/json;charset=utf-7"],
            &["application/json;charset=utf-16"],
            &["application/x-www-form-urlencoded"],
            &["multipart/form-data; boundary=application/json"],
            &["text/plain"],
            &["application/graphql"],
        ] {
            assert_eq!(read(types), Err(UnreadBody::Type), "{types:?}");
        }
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

    /// The lines of a question about a mutation with these variables.
    fn mutation(query: &str, variables: Value) -> Result<Effects, UnreadBody> {
        let body = serde_json::json!({ "query": query, "variables": variables });
        whole(BodyKind::GraphQl, &body.to_string())
    }

    #[test]
    fn mutations_that_differ_anywhere_are_different_effects() {
        let star = |before: &str, id: &str| {
            mutation(
                &format!("mutation {{ {before} addStar(id:\"{id}\") }}"),
                Value::Null,
            )
        };
        let (comment, many) = (format!("#{}\n", "x".repeat(600)), "a: b(c:1) ".repeat(200));
        for before in ["", &comment, &many] {
            let read = star(before, "A");
            assert!(matches!(read, Ok(Effects::Some(_))), "{read:?}");
            assert_eq!(read, star(before, "A"), "the control");
            assert_ne!(read, star(before, "B"));
        }
        assert_eq!(star(&comment, "A"), star("", "A"), "the same is done");
        assert_ne!(star("", "A B"), star("", "A  B"));
        let with = |variables| mutation("mutation M { a }", variables);
        for (one, other) in [
            (json!({ "a.b": 1 }), json!({ "a": { "b": 1 } })),
            (json!({ "a": [1] }), json!({ "a": { "0": 1 } })),
            (json!({ "a": [1] }), json!({ "a[0]": 1 })),
            (json!({ "a": null }), json!({})),
            (json!({ "a": [] }), json!({ "a": {} })),
            (json!({ "a": "1; b: 2" }), json!({ "a": "1", "b": 2 })),
            (json!({ "a": 1, "b": 2 }), json!({ "a: 1; b": 2 })),
        ] {
            let (one, other) = (with(one), with(other));
            assert!(matches!(one, Ok(Effects::Some(_))), "{one:?}");
            assert_ne!(one, other);
        }
        let long = |last: &str| {
            let mut all: Map<String, Value> =
                (0..60).map(|n| (format!("k{n:02}"), n.into())).collect();
            all.insert("list".into(), vec![Value::from("x"); 100].into());
            all.insert("z".into(), last.into());
            with(all.into())
        };
        assert!(matches!(long("A"), Ok(Effects::Some(_))));
        assert_ne!(long("A"), long("B"));
        let named = |name: &str| {
            let query = "mutation A { a } mutation B { b }";
            let body = json!({ "query": query, "operationName": name });
            whole(BodyKind::GraphQl, &body.to_string())
        };
        assert_ne!(named("A"), named("B"));
    }

    #[test]
    fn a_question_shows_all_or_the_request_is_refused() {
        let with = |length: usize| mutation("mutation { a }", json!({ "a": "x".repeat(length) }));
        let most = limit::DENIAL_TEXT * (limit::EFFECTS - 2);
        assert!(
            matches!(with(most - 200), Ok(Effects::Some(_))),
            "the control"
        );
        assert_eq!(with(most), Err(UnreadBody::Many));
        let body = r#"{"query":"mutation { a }","variables":VALUE}"#;
        for (value, want) in [
            (r#"{"a":9007199254740993}"#, None),
            (r#"{"a":18446744073709551617}"#, Some(UnreadBody::Json)),
            (r#""{}""#, Some(UnreadBody::GraphQl)),
        ] {
            let read = whole(BodyKind::GraphQl, &body.replace("VALUE", value));
            assert_eq!(read.err(), want, "{value}");
        }
        let version = "1".repeat(limit::DENIAL_TEXT);
        let package = json!({ "name": "p", "dist-tags": { "latest": version } });
        let read = whole(BodyKind::Publish, &package.to_string());
        assert_eq!(read, Err(UnreadBody::Many));
    }

    #[test]
    fn a_pull_request_and_a_package_are_shown() {
        let made = r#"{"base":"main","head":"o:b","head_repo":"r","title":"T","x":[null,{}]}"#;
        let Ok(Effects::Some(effects)) = whole(BodyKind::PullRequest, made) else {
            panic!()
        };
        let objects: Vec<_> = effects.iter().map(|one| &*one.object).collect();
        let first = ["title: \"T\"", "head: \"o:b\"", "base: \"main\""];
        let rest = ["head_repo: \"r\"", "x[0]: null", "x[1]: {}"];
        assert_eq!(objects, [first, rest].concat());
        let package =
            r#"{"name":"@s/p","versions":{"1.2.3":{"name":"@s/p"}},"_attachments":{"a":{}}}"#;
        let body = BodyBytes::Whole(package.as_bytes());
        let read = read(BodyKind::Publish, &posted("/@s%2fp"), body);
        let Ok(Effects::Some(effects)) = read else {
            panic!()
        };
        assert_eq!(effects[0].object, "@s/p 1.2.3");
        assert_eq!(effects[0].change, "publish");
        // A file that is not called after a version.
        assert_eq!(effects[1].object, "@s/p file a");
        assert_eq!(effects.len(), 2);
        let files = |names: &str| {
            let text = format!(
                r#"{{"name":"@s/p","versions":{{"1.2.3":{{}}}},"_attachments":{{{names}}}}}"#
            );
            let body = BodyBytes::Whole(text.as_bytes());
            let read = super::read(BodyKind::Publish, &posted("/@s%2fp"), body);
            match read {
                Ok(Effects::Some(effects)) => effects.len() - 1,
                other => panic!("{other:?}"),
            }
        };
        let own = r#""@s/p-1.2.3.tgz":{},"p-1.2.3.tgz":{},"@s/p-1.2.3.sigstore":{}"#;
        assert_eq!(files(own), 0);
        for other in ["p-6.6.6.tgz", "q-1.2.3.tgz", "p-1.2.3.tgz/x", "p1.2.3.tgz"] {
            assert_eq!(files(&format!(r#""{other}":{{}}"#)), 1, "{other}");
        }
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
            [pair("p tag latest to 6.6.6", "")]
        );
        assert_eq!(
            objects(r#"{"dist-tags":{"latest":"1"},"access":"public"}"#),
            [pair("tag latest to 1", ""), pair("access \"public\"", "")]
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
    fn a_package_has_the_name_of_its_path_and_a_version_that_of_its_key() {
        let of = |path: &str, name: &str, inner: &str| {
            let body = format!(r#"{{"name":"{name}","versions":{{"1.0.0":{inner}}}}}"#);
            let body = BodyBytes::Whole(body.as_bytes());
            read(BodyKind::Publish, &posted(path), body).map(drop)
        };
        let whole = r#"{"name":"@s/p","version":"1.0.0","_id":"@s/p@1.0.0"}"#;
        for (path, name, inner, want) in [
            ("/@s%2fp", "@s/p", whole, Ok(())),
            ("/%40s%2Fp", "@s/p", whole, Ok(())),
            ("/@s/p", "@s/p", whole, Ok(())),
            ("/npm/@s%2fp", "@s/p", whole, Ok(())),
            ("/p", "p", "{}", Ok(())),
            ("/npm/p", "p", "{}", Ok(())),
            ("/p", "@s/p", whole, Err(UnreadBody::Names)),
            ("/@t/p", "@s/p", whole, Err(UnreadBody::Names)),
            ("/p%2f", "p", "{}", Err(UnreadBody::Names)),
            ("/p", "p", r#"{"name":"evil"}"#, Err(UnreadBody::Names)),
            ("/p", "p", r#"{"version":"6.6.6"}"#, Err(UnreadBody::Names)),
            (
                "/p",
                "p",
                r#"{"version":"1.0.0","version":"6.6.6"}"#,
                Err(UnreadBody::Json),
            ),
        ] {
            assert_eq!(of(path, name, inner), want, "{path} {name} {inner}");
        }
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
