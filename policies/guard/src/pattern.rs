//! One name as a pattern: `*`, `?`, `[a-z]`, `[!a-z]` and `{a,b}`.
//!
//! Comes from a policy file, where a bad one is refused; goes to [`names`](crate::names) and to the globs of a scope. Not
//! `globset`: it brings `regex-automata` into the broker, whose packages a person must be able to read, and a session would
//! wait 2 to 6 ms for the shipped names to compile.
//!
//! Matching takes at most as many steps as the pattern has signs times the bytes of the name.

use crate::steps;
use thiserror::Error;

/// Maximum number of plain patterns that the braces of one may stand for.
pub(crate) const ALTERNATIVES_MAX: usize = 256;

/// Why a text is not a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PatternError {
    /// A bracket or brace is without its partner, or empty, or inside another.
    #[error("a `[`, `]`, `{{` or `}}` is unmatched, empty or nested")]
    Unpaired,
    /// A class holds something other than ASCII characters and ranges upwards.
    #[error("`[…]` contains ASCII characters and ranges such as `a-z`, after `!` to exclude them")]
    Class,
    /// A backslash has no meaning here.
    #[error("a `\\` has no meaning in a pattern; `[*]` is a star")]
    Backslash,
    /// The braces stand for too much.
    #[error("the braces stand for more than {ALTERNATIVES_MAX} patterns")]
    Alternatives,
}

/// A protected name is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("protected name `{pattern}`: {why}")]
pub struct NameError {
    pub pattern: String,
    #[source]
    pub why: PatternError,
}

/// Whether the case of ASCII letters matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// Case matters: for rules that allow.
    Exact,
    /// Case does not matter: for rules that deny, as some file systems ignore it too.
    Ignored,
}

impl Case {
    fn fold(self, byte: u8) -> u8 {
        match self {
            Case::Exact => byte,
            Case::Ignored => byte.to_ascii_lowercase(),
        }
    }

    /// Whether two texts are the same.
    pub fn same(self, one: &[u8], other: &[u8]) -> bool {
        match self {
            Case::Exact => one == other,
            Case::Ignored => one.eq_ignore_ascii_case(other),
        }
    }
}

/// A pattern of one name. It matches bytes; `?` and a class are one byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<Plain>);

/// A pattern of one name, for those who compare names on the disk with a policy's patterns.
#[derive(Clone, Debug)]
pub struct NamePattern(Pattern);

impl NamePattern {
    /// # Errors
    /// The text is not a valid pattern.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        Pattern::parse(text, Case::Exact).map(Self)
    }

    /// Whether a name matches, in this case of its letters.
    pub fn matches(&self, name: &[u8]) -> bool {
        self.0.matches(name)
    }
}

impl Pattern {
    pub fn parse(text: &str, case: Case) -> Result<Self, PatternError> {
        if !text.bytes().any(|byte| matches!(byte, b'{' | b'}')) {
            return Ok(Self(vec![Plain::parse(text, case)?]));
        }
        expand(text)?
            .iter()
            .map(|plain| Plain::parse(plain, case))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub fn matches(&self, name: &[u8]) -> bool {
        self.0.iter().any(|plain| plain.matches(name))
    }

    /// The only name that matches, folded, if there is only one.
    pub fn literal(&self) -> Option<&[u8]> {
        match self.0.as_slice() {
            [plain] => plain.literal(),
            _ => None,
        }
    }

    /// One pattern without braces for each of their choices.
    pub(crate) fn into_plain(self) -> Vec<Plain> {
        self.0
    }
}

/// Whether a text is a pattern of one name, and not just that name.
pub fn has_signs(text: &str) -> bool {
    text.bytes()
        .any(|byte| is_sign(&byte) || matches!(byte, b'{' | b'}'))
}

/// The signs of a pattern without braces.
fn is_sign(byte: &u8) -> bool {
    matches!(byte, b'*' | b'?' | b'\\' | b'[' | b']')
}

/// A pattern without braces. Its bytes are folded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plain {
    case: Case,
    head: Vec<u8>,
    middle: Vec<Sign>,
    tail: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    Byte(u8),
    One,
    Many,
    /// A bit for each ASCII character that it holds.
    Class {
        members: u128,
        negated: bool,
    },
}

impl Plain {
    fn parse(text: &str, case: Case) -> Result<Self, PatternError> {
        let text: Vec<u8> = text.bytes().map(|byte| case.fold(byte)).collect();
        let Some(first) = text.iter().position(is_sign) else {
            return Ok(Self {
                case,
                head: text,
                middle: Vec::new(),
                tail: Vec::new(),
            });
        };
        let last = text
            .iter()
            .rposition(is_sign)
            .map_or(first, |last| last + 1);
        let middle = signs(&text[first..last])?;
        Ok(Self {
            case,
            head: text[..first].to_vec(),
            middle,
            tail: text[last..].to_vec(),
        })
    }

    /// The name, folded, if it is a name and no pattern.
    pub(crate) fn literal(&self) -> Option<&[u8]> {
        self.middle.is_empty().then_some(&self.head)
    }

    /// The last byte of every name that matches, folded, if they have one in common.
    pub(crate) fn last_byte(&self) -> Option<u8> {
        self.tail.last().copied()
    }

    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        let Some(end) = name
            .len()
            .checked_sub(self.tail.len())
            .filter(|end| *end >= self.head.len())
        else {
            return false;
        };
        // Nearly all patterns are literals, and of another length.
        if self.middle.is_empty() && end != self.head.len() {
            return false;
        }
        self.case.same(&name[end..], &self.tail)
            && self.case.same(&name[..self.head.len()], &self.head)
            && self.fits(&name[self.head.len()..end])
    }

    /// Whether `text` is what the middle says. It is empty for a literal, which then has to be all of the name.
    fn fits(&self, text: &[u8]) -> bool {
        let takes = |sign: &Sign, byte: &u8| sign.takes(self.case.fold(*byte));
        walk(
            &self.middle,
            text,
            |sign| *sign == Sign::Many,
            takes,
            |at| at == text.len(),
        )
    }
}

/// Whether `text` is `pattern`, which may end where `ends` says so of a place in the text. A part that is `many` takes any
/// number of things, any other one. On a mismatch the last `many` takes one thing more: never more steps than parts times
/// things, as what stood before it matched as early as it could.
pub fn walk<P, T>(
    pattern: &[P],
    text: &[T],
    many: impl Fn(&P) -> bool,
    takes: impl Fn(&P, &T) -> bool,
    ends: impl Fn(usize) -> bool,
) -> bool {
    let (mut part, mut at) = (0, 0);
    let mut last: Option<(usize, usize)> = None;
    loop {
        steps::count(1);
        match (pattern.get(part), text.get(at)) {
            (Some(one), _) if many(one) => {
                last = Some((part, at));
                part += 1;
                continue;
            }
            (Some(one), Some(thing)) if takes(one, thing) => {
                (part, at) = (part + 1, at + 1);
                continue;
            }
            (None, _) if ends(at) => return true,
            _ => {}
        }
        match last {
            Some((many, from)) if from < text.len() => {
                last = Some((many, from + 1));
                (part, at) = (many + 1, from + 1);
            }
            _ => return false,
        }
    }
}

impl Sign {
    /// Whether this sign is `byte`, which is folded.
    fn takes(self, byte: u8) -> bool {
        match self {
            Sign::Byte(own) => own == byte,
            Sign::One => true,
            Sign::Many => false,
            Sign::Class { members, negated } => {
                (byte.is_ascii() && members >> byte & 1 == 1) != negated
            }
        }
    }
}

/// `a{b,c}` as `ab` and `ac`.
fn expand(text: &str) -> Result<Vec<String>, PatternError> {
    let mut plain = vec![String::new()];
    let mut rest = text;
    while let Some(open) = rest.find(['{', '}']) {
        let inner = rest[open..]
            .strip_prefix('{')
            .ok_or(PatternError::Unpaired)?;
        let (inner, after) = inner.split_once('}').ok_or(PatternError::Unpaired)?;
        if inner.is_empty() || inner.contains(['{', '[', ']']) {
            return Err(PatternError::Unpaired);
        }
        let (before, choices) = (&rest[..open], inner.split(','));
        plain = choices
            .flat_map(|choice| {
                plain
                    .iter()
                    .map(move |start| format!("{start}{before}{choice}"))
            })
            .collect();
        if plain.len() > ALTERNATIVES_MAX {
            return Err(PatternError::Alternatives);
        }
        rest = after;
    }
    plain.iter_mut().for_each(|start| start.push_str(rest));
    Ok(plain)
}

fn signs(text: &[u8]) -> Result<Vec<Sign>, PatternError> {
    let mut signs = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        signs.push(match first {
            b'*' => Sign::Many,
            b'?' => Sign::One,
            b'\\' => return Err(PatternError::Backslash),
            b']' => return Err(PatternError::Unpaired),
            b'[' => {
                let close = after
                    .iter()
                    .position(|byte| *byte == b']')
                    .ok_or(PatternError::Unpaired)?;
                rest = &after[close + 1..];
                class(&after[..close])?
            }
            byte => Sign::Byte(*byte),
        });
    }
    Ok(signs)
}

/// The text between `[` and `]`.
fn class(inner: &[u8]) -> Result<Sign, PatternError> {
    let (negated, mut inner) = inner
        .strip_prefix(b"!")
        .map_or((false, inner), |rest| (true, rest));
    if inner.is_empty() || inner.contains(&b'[') {
        return Err(PatternError::Unpaired);
    }
    if !inner.is_ascii() || inner.contains(&b'^') || inner.contains(&b'\\') {
        return Err(PatternError::Class);
    }
    let mut members = 0;
    while let [low, rest @ ..] = inner {
        // A `-` at an end is itself.
        let (high, rest) = if let [b'-', high, rest @ ..] = rest {
            (high, rest)
        } else {
            (low, rest)
        };
        if low > high {
            return Err(PatternError::Class);
        }
        (*low..=*high).for_each(|byte| members |= 1u128 << byte);
        inner = rest;
    }
    Ok(Sign::Class { members, negated })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: impl AsRef<[u8]>) -> bool {
        let parsed = Pattern::parse(pattern, Case::Ignored);
        parsed
            .unwrap_or_else(|error| panic!("{pattern}: {error}"))
            .matches(name.as_ref())
    }

    #[test]
    fn each_sign_of_a_pattern_matches_its_bytes() {
        for (pattern, yes, no) in [
            ("a", vec!["a", "A"], vec!["", "b", "aa"]),
            ("*", vec!["", "a", ".x"], vec![]),
            ("a*", vec!["a", "ab", "A.b"], vec!["", "ba"]),
            ("*a", vec!["a", "ba", "aa"], vec!["ab"]),
            (
                "*.pem",
                vec![".pem", "x.PEM", "x.pem.pem"],
                vec!["pem", "x.pem2"],
            ),
            ("a*a", vec!["aa", "aba", "aaa"], vec!["a", "ab"]),
            (
                "*ab*ab*",
                vec!["abab", "xabxabx", "aabab"],
                vec!["ab", "aba"],
            ),
            ("a?c", vec!["abc", "a.c"], vec!["ac", "abbc"]),
            ("a[-_.]b", vec!["a-b", "a_b", "a.b"], vec!["ab", "a b"]),
            ("[a-cx]", vec!["a", "B", "x"], vec!["d", "-", ""]),
            ("[!a-c]", vec!["d", "-"], vec!["a", "C", ""]),
            ("[a-]", vec!["a", "-"], vec!["b"]),
            ("{a,bc}.{x,y}", vec!["a.x", "BC.Y"], vec!["a.z", "abc.x"]),
            ("*c*.{j,t}", vec!["c.j", "acd.t"], vec!["c.jt", "a.j"]),
            ("[*]", vec!["*"], vec!["a"]),
        ] {
            yes.iter()
                .for_each(|name| assert!(matches(pattern, name), "{pattern} {name}"));
            no.iter()
                .for_each(|name| assert!(!matches(pattern, name), "{pattern} {name}"));
        }
        assert!(matches("*x", b"\xff\xfex") && matches("?", b"\xff") && !matches("a", b"\xff"));
    }

    #[test]
    fn case_matters_only_in_exact_patterns() {
        for (pattern, yes, no) in [
            ("Ab*[c-d]?E", "Ab-cxE", "ab-cxE"),
            ("a*", "a", "A"),
            ("[a-c]", "b", "B"),
        ] {
            let exact = Pattern::parse(pattern, Case::Exact).unwrap();
            assert!(
                exact.matches(yes.as_bytes()) && !exact.matches(no.as_bytes()),
                "{pattern}"
            );
            assert!(matches(pattern, yes) && matches(pattern, no), "{pattern}");
        }
    }

    #[test]
    fn invalid_patterns_are_refused() {
        for (text, want) in [
            ("[", PatternError::Unpaired),
            ("a]", PatternError::Unpaired),
            ("[]", PatternError::Unpaired),
            ("[!]", PatternError::Unpaired),
            ("[[a]]", PatternError::Unpaired),
            ("{", PatternError::Unpaired),
            ("}", PatternError::Unpaired),
            ("{}", PatternError::Unpaired),
            ("{a,{b,c}}", PatternError::Unpaired),
            ("{a,[b]}", PatternError::Unpaired),
            ("[z-a]", PatternError::Class),
            ("[é]", PatternError::Class),
            ("[^a]", PatternError::Class),
            ("\\*", PatternError::Backslash),
        ] {
            assert_eq!(Pattern::parse(text, Case::Ignored), Err(want), "{text}");
        }
        assert_eq!(
            Pattern::parse(&"{a,b}".repeat(8), Case::Ignored)
                .unwrap()
                .0
                .len(),
            ALTERNATIVES_MAX
        );
        assert_eq!(
            Pattern::parse(&"{a,b}".repeat(9), Case::Ignored),
            Err(PatternError::Alternatives)
        );
        assert_eq!(
            Pattern::parse(&"{a,b}".repeat(50), Case::Ignored),
            Err(PatternError::Alternatives)
        );
    }

    /// The worst there is: each star takes one byte more again and again.
    #[test]
    fn steps_are_at_most_signs_times_bytes() {
        for signs in ["*a", "*?", "*[ab]", "{*a,*b}"] {
            for stars in [1, 10, 100] {
                let text =
                    signs.replace("{*a,*b}", "*a") + &signs.replace("{*a,*b}", "*b").repeat(stars);
                let pattern = Pattern::parse(&format!("{text}c?"), Case::Ignored).unwrap();
                for name in ["a".repeat(4096), "ab".repeat(2048), "c".repeat(4096)] {
                    let (steps, _) = steps::of(|| pattern.matches(name.as_bytes()));
                    assert!(
                        steps <= (text.len() + 3) * (name.len() + 1),
                        "{text} took {steps}"
                    );
                }
            }
        }
        let pattern = Pattern::parse("*a*a*ac?", Case::Ignored).unwrap();
        let (steps, _) = steps::of(|| pattern.matches("a".repeat(4096).as_bytes()));
        assert!(steps > 4096, "what is counted are its steps: {steps}");
    }

    /// Against an engine that is not ours: every short pattern of these signs on every short name of these bytes.
    #[test]
    fn patterns_agree_with_globset() {
        let signs = ["a", "b", "*", "?", "[ab]", "[!b]", "{a,bb}"];
        let names: Vec<String> = words(&["a", "B", "."], 4).collect();
        for text in words(&signs, 4) {
            let theirs = globset::GlobBuilder::new(&text)
                .case_insensitive(true)
                .literal_separator(true)
                .build()
                .unwrap();
            // To globset a name of two stars and no more is a path.
            if text == "**" {
                continue;
            }
            let theirs = theirs.compile_matcher();
            let ours = Pattern::parse(&text, Case::Ignored).unwrap();
            for name in &names {
                let matched = ours.matches(name.as_bytes());
                assert_eq!(matched, theirs.is_match(name), "{text} {name}");
            }
        }
    }

    /// All texts of 1 to `length` of `parts`.
    fn words<'a>(parts: &'a [&'a str], length: u32) -> impl Iterator<Item = String> + 'a {
        let count = parts.len();
        (1..=length).flat_map(move |length| {
            (0..count.pow(length)).map(move |number| {
                (0..length)
                    .map(|at| parts[number / count.pow(at) % count])
                    .collect()
            })
        })
    }
}
