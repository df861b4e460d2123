//! Properties that must hold for arbitrary bytes: one function for each of our parsers of hostile or foreign text.
//!
//! A function panics if its property is violated, and returns otherwise. `cargo fuzz` (see `tests/fuzz`) and the seeded run
//! (`tests/tests/seeded.rs`) call the same functions, so that an input found by one is a case for the other.

pub mod conversation;
pub mod ledger;
pub mod mutate;
pub mod seeds;

use crate::wire::shell;
use broker_protocol::{
    Decoder, FRAME_MAX, FileAnswer, FromApprover, FromBroker, PathError, Request, Roots,
    ToApprover, ToBroker, Zone, ZonePath, encode, frame, path,
};
use policies::model::PolicyFile;
use policies::value::{ExceptPattern, NamePattern};
use policies::{
    EffectivePolicy, FILE_MAX, Host, Policies, PolicyError, PolicySource, SourceKind, Verdict,
    decide,
};
use policies_guard::{Matcher, ProtectedName, Protection};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::sync::OnceLock;

/// A target: takes any bytes, panics if a property is violated.
pub type Target = fn(&[u8]);

/// Every target by its name. The session's state machine is not among them: it is a process, see [`conversation`].
pub const TARGETS: [(&str, Target); 5] = [
    ("decoder", decoder),
    ("answer", answer),
    ("path", path),
    ("policy", policy),
    ("names", names),
];

/// The frames of both directions. The first byte determines how the stream is cut, the rest is the stream: however it is cut, it
/// decodes to the same messages, and these encode to the same bytes.
pub fn decoder(data: &[u8]) {
    let Some((cut, stream)) = data.split_first() else {
        return;
    };
    let cut = usize::from(*cut).max(1);
    for message in decode_both_ways::<ToBroker>(stream, cut) {
        if let ToBroker::Call { request, .. } | ToBroker::WantingCall { request, .. } = message {
            judge(&request);
        }
    }
    decode_both_ways::<FromBroker>(stream, cut);
    decode_both_ways::<FromApprover>(stream, cut);
    decode_both_ways::<ToApprover>(stream, cut);
}

/// Decodes `stream` whole and in pieces.
fn decode_both_ways<T>(stream: &[u8], cut: usize) -> Vec<T>
where
    T: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let (whole, in_one) = decode_cut::<T>(stream, stream.len().max(1));
    let (pieces, in_pieces) = decode_cut::<T>(stream, cut);
    assert_eq!(whole, pieces, "cut every {cut} bytes");
    assert_eq!(
        in_one.is_some(),
        in_pieces.is_some(),
        "cut every {cut} bytes: {in_one:?} {in_pieces:?}"
    );
    let mut again = Vec::new();
    whole
        .iter()
        .for_each(|message| encode(message, &mut again).expect("what was decoded can be encoded"));
    assert!(
        stream.starts_with(&again),
        "{whole:?} is written back as {again:x?}"
    );
    whole
}

/// The messages of `stream`, and the error that ended it, if any.
fn decode_cut<T: DeserializeOwned>(
    stream: &[u8],
    cut: usize,
) -> (Vec<T>, Option<frame::FrameError>) {
    let (mut decoder, mut messages) = (Decoder::new(), Vec::new());
    for piece in stream.chunks(cut) {
        decoder.push(piece);
        loop {
            match decoder.next() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Some(error)),
            }
        }
        assert!(
            decoder.pending() < frame::PREFIX + FRAME_MAX,
            "a whole frame waits"
        );
    }
    (messages, None)
}

/// The checks that the broker makes before it carries out a request.
fn judge(request: &Request) {
    if request.check().is_ok() {
        let _ = decide(shipped(), request);
    }
}

/// The default profile of the shipped policy.
fn shipped() -> &'static EffectivePolicy {
    static POLICY: OnceLock<EffectivePolicy> = OnceLock::new();
    POLICY.get_or_init(|| {
        let policies = Policies::load(vec![]).expect("the shipped files are policies");
        policies
            .resolve("", &host())
            .expect("the default profile resolves")
    })
}

fn host() -> Host {
    Host {
        home: "/home/u".into(),
        ..Host::default()
    }
}

/// The answer of a file tool, which comes unparsed from an untrusted worker.
pub fn answer(data: &[u8]) {
    if let Ok(answer) = frame::decode_whole::<FileAnswer>(data) {
        let again = frame::encode_whole(&answer).expect("what was decoded can be encoded");
        assert_eq!(again, data, "{answer:?} is written back otherwise");
    }
}

/// A path as a person or a model writes it, and as a peer sends it.
pub fn path(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let roots = Roots {
        project: "/home/u/p".into(),
        central: "/home/u/p/.lazaret".into(),
    };
    match roots.parse(&text) {
        Ok(path) => check_path(&roots, &path),
        Err(PathError::Nul) => assert!(text.contains('\0')),
        Err(PathError::TooLong) => assert!(text.len() > path::NAME_MAX),
        Err(PathError::Outside(rendered)) => {
            assert!(text.ends_with(&rendered), "the error shows another path")
        }
    }
    for zone in [Zone::Project, Zone::Central] {
        if let Ok(path) = ZonePath::new(zone, &text) {
            assert_eq!(path.zone(), zone);
            check_path(&roots, &path);
        }
    }
}

fn check_path(roots: &Roots, path: &ZonePath) {
    let relative = path.relative();
    let plain = |name: &str| !matches!(name, "" | "." | "..") && name.len() <= path::NAME_MAX;
    assert!(
        relative.is_empty() || relative.split('/').all(plain),
        "{path:?} has an odd name"
    );
    assert!(
        relative.len() <= path::PATH_MAX && !relative.contains('\0'),
        "{path:?} is no path"
    );
    assert_eq!(
        roots.parse(&path.to_string()).as_ref(),
        Ok(path),
        "shown as {path}"
    );
    // If the central root is inside the project, the deeper root counts.
    let again = roots
        .parse(&roots.absolute(path))
        .expect("an absolute path below a root");
    assert_eq!(roots.absolute(&again), roots.absolute(path));
    let bytes = frame::encode_whole(path).expect("a path can be sent");
    assert_eq!(
        frame::decode_whole::<ZonePath>(&bytes).as_ref().ok(),
        Some(path),
        "does not travel"
    );
}

/// A policy file that an administrator or a user might have.
pub fn policy(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Err(error) = PolicyFile::parse("p.toml", &text) {
        return check_place(&error, &text);
    }
    for kind in [SourceKind::System, SourceKind::User] {
        let source = PolicySource {
            name: "p.toml".into(),
            kind,
            text: text.to_string(),
        };
        match Policies::load(vec![source]) {
            Ok(policies) => check_narrowing(&policies),
            Err(error) => check_error(&error),
        }
    }
}

/// An error in a text names its file, and a position that exists in it.
fn check_place(error: &PolicyError, text: &str) {
    match error {
        PolicyError::Text {
            file,
            line,
            column,
            message,
        } => {
            let last = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
            assert_eq!(file, "p.toml");
            assert!(
                (1..=last).contains(line),
                "line {line} of {last}: {message}"
            );
            let width = text
                .split('\n')
                .nth(line - 1)
                .map_or(0, |line| line.chars().count());
            assert!(
                (1..=width + 1).contains(column),
                "{line}:{column} of {width}: {message}"
            );
        }
        PolicyError::TooLarge { bytes, .. } => assert!(*bytes == text.len() && *bytes > FILE_MAX),
        other => panic!("no error of one text: {other:?}"),
    }
}

/// If a text is a valid policy, the error names what contradicts the other files.
fn check_error(error: &PolicyError) {
    let of_text = matches!(
        error,
        PolicyError::Text { .. } | PolicyError::TooLarge { .. }
    );
    assert!(!of_text && error.to_string().contains("p.toml"), "{error}");
}

/// No file reverts what the shipped ones close or require.
fn check_narrowing(policies: &Policies) {
    for profile in policies.profiles().chain([""]) {
        let Ok(policy) = policies.resolve(profile, &host()) else {
            continue;
        };
        // `open` of a profile may take only rules away that say so, and none of a secret.
        let opened = |name: &ProtectedName| {
            !policy.opened.is_empty() && name.opens && name.protection == Protection::Write
        };
        // A profile that hides nothing shows what it protects, and closes it to writing still.
        let shown = |name: &ProtectedName| ProtectedName {
            protection: Protection::Write,
            ..name.clone()
        };
        let closed = |name: &ProtectedName| {
            let kept = policy.protected.contains(name);
            kept || opened(name) || !policy.hides && policy.protected.contains(&shown(name))
        };
        assert!(
            shipped().protected.iter().all(closed),
            "profile {profile} opens a protected name"
        );
        assert_eq!(Ok(policy.digest), policy.compute_digest());
        let kept = policy
            .rules
            .iter()
            .filter(|rule| rule.source == SourceKind::Shipped);
        assert!(
            kept.eq(&shipped().rules),
            "profile {profile} drops a shipped rule"
        );
        assert!(
            policy.trust <= shipped().trust,
            "profile {profile} trusts more"
        );
        let push = decide(&policy, &Request::Bash(shell("a; git push")));
        assert!(
            push != Verdict::Allow,
            "profile {profile} lifts what a shipped rule asks"
        );
        assert!(
            policy.limits.timeout_s <= policy.limits.timeout_max_s,
            "profile {profile}"
        );
        let wide = |grant: &policies::PathGrant| host().narrow(&grant.path).is_err();
        assert!(
            !policy.grants.iter().any(wide),
            "profile {profile} grants the home"
        );
    }
}

/// Protected names. Before the first NUL comes a list of patterns, one a line, with `!` before an exception for the line above;
/// after it a path as on disk, up to the length that the kernel accepts.
pub fn names(data: &[u8]) {
    let split = data
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(data.len());
    let (list, path) = (
        String::from_utf8_lossy(&data[..split]),
        data.get(split + 1..).unwrap_or_default(),
    );
    let path = &path[..path.len().min(path::PATH_MAX)];
    let names = protected_names(&list);
    let matcher = match Matcher::new(&names) {
        Ok(matcher) => matcher,
        Err(error) => panic!("a policy file may hold these, a session may not: {error}"),
    };
    let answer = matcher.protection(path);
    assert_eq!(
        answer,
        strongest_by_name(&matcher, path),
        "as a whole and name by name"
    );
    let _ = matcher.leads_to(path);
    // No two spellings of a name that a case-insensitive file system considers equal.
    let text = String::from_utf8_lossy(path);
    for other in [
        text.to_lowercase(),
        text.to_uppercase(),
        path_without_case(&text),
    ] {
        assert_eq!(
            matcher.protection(other.as_bytes()),
            answer,
            "{text:?} spelt {other:?}"
        );
    }
    let below = [path, b"/x"].concat();
    assert!(
        answer.is_none() || matcher.protection(&below).is_some(),
        "open below {text:?}"
    );
}

/// The patterns of a list that a policy file would accept; a line's length determines its protection.
fn protected_names(list: &str) -> Vec<ProtectedName> {
    let mut names: Vec<ProtectedName> = Vec::new();
    for line in list.lines() {
        if let Some(except) = line.strip_prefix('!') {
            let except = ExceptPattern::try_from(except.to_owned());
            if let (Some(last), Ok(except)) = (names.last_mut(), except) {
                last.except.push(except.as_str().to_owned());
            }
        } else if let Ok(pattern) = NamePattern::try_from(line.to_owned()) {
            let protection = if line.len() % 2 == 0 {
                Protection::All
            } else {
                Protection::Write
            };
            let (pattern, why) = (pattern.as_str().to_owned(), String::new());
            names.push(ProtectedName {
                pattern,
                except: vec![],
                protection,
                new: Default::default(),
                opens: false,
                why,
                origin: Default::default(),
            });
        }
    }
    names
}

/// As a directory walk finds it, name by name; of equal ones, the one nearest the root.
fn strongest_by_name<'a>(matcher: &'a Matcher, path: &[u8]) -> Option<&'a ProtectedName> {
    let slashes = path
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'/')
        .map(|(at, _)| at);
    let mut strongest: Option<&ProtectedName> = None;
    for end in slashes.chain([path.len()]).filter(|end| *end > 0) {
        let start = path[..end]
            .iter()
            .rposition(|byte| *byte == b'/')
            .map_or(0, |slash| slash + 1);
        if start == end {
            continue;
        }
        let rule = matcher.name(&path[..start], &path[start..end]);
        let stronger = |rule: &&ProtectedName| {
            strongest.is_none_or(|first| rule.protection > first.protection)
        };
        strongest = rule.filter(stronger).or(strongest);
    }
    strongest
}

/// The path with every other letter in upper case.
fn path_without_case(text: &str) -> String {
    let flip = |(at, c): (usize, char)| {
        if at % 2 == 0 {
            c.to_ascii_uppercase()
        } else {
            c.to_ascii_lowercase()
        }
    };
    text.chars().enumerate().map(flip).collect()
}
