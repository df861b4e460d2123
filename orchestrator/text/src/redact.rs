//! Redacts known secret values in text that is shown or recorded: each becomes `[redacted:NAME]`.
//!
//! It finds a value unchanged and in the forms that text takes on its way (`crate::forms`), also with invisible characters in between
//! (`crate::fold`), but not one that a command spells in another way. It is a safety net behind the layers that keep secrets out of a cell, not a barrier.
//!
//! A process that hears a model knows no secret: another one searches for it (`crate::redactor_process`), and says only where whole
//! values are.
//!
//! Its cost is bounded whatever the secrets are: a long secret is searched for in pieces, and the beginning of a secret is found by
//! binary search among all pieces.

use crate::fold::{fold, fold_open};
use crate::forms::forms;
use crate::found_secrets::{FoundSecret, PatternFacts, Patterns};
use crate::remote_search::RemoteSearch;
use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind, PatternID};
use broker_protocol::Captured;
use policies::secret::{Secret, VALUE_MIN};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use thiserror::Error;

/// Minimum length, in bytes, of a part of a secret that is removed where an output was cut through the secret.
const PART: usize = 4;
/// Maximum length of a pattern in bytes: a longer value is searched for in pieces.
const PIECE: usize = 512;
/// Maximum length, in bytes, of a value that is searched for in all forms. Keys in files have about three thousand.
const FORMS_MAX: usize = 8 << 10;
/// Maximum bytes of all patterns.
const PATTERNS_MAX: usize = 2 << 20;
/// Maximum bytes of patterns for which to build the fastest search, which takes the most memory.
const FAST_MAX: usize = 1 << 10;

/// The mark that replaces a part of a secret.
const CUT: &[u8] = b"[redacted]";

/// Replaces all text while the secrets are not known.
const WITHHELD: &str = "[withheld]";

/// Finds secrets. Without secrets it costs nothing.
pub struct Redactor(SearchPlace);

/// Where secrets are looked for.
enum SearchPlace {
    Local(LocalSearch),
    /// In another process: this one has none of them.
    Remote(RemoteSearch),
    /// Nowhere: all text is withheld.
    Withheld,
}

#[derive(Default)]
struct LocalSearch {
    /// All secrets so far: one search looks for all of them.
    secrets: Mutex<Vec<Secret>>,
    search: RwLock<Option<Arc<SecretSearch>>>,
}

/// Why it is impossible to search for the secrets.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum RedactorError {
    /// In all forms, they have more bytes than `PATTERNS_MAX`.
    #[error(
        "the secrets in the environment have too many bytes: {0} to look for, {PATTERNS_MAX} are possible"
    )]
    TooLarge(usize),
    /// The search could not be built.
    #[error("the secrets in the environment cannot be looked for: {0}")]
    Search(String),
    #[error(
        "the process that looks for secrets has ended, or took none more; start the command again"
    )]
    Gone,
}

/// A text that may begin or end within a secret.
#[derive(Debug)]
pub enum RedactedPiece<'a> {
    /// Lines of a file. Line breaks within a secret stay, so that all lines keep their numbers.
    Lines(&'a mut Vec<u8>),
    /// Both ends of an output without its middle.
    Ends(&'a mut Captured),
    /// A part of a longer text.
    Page {
        /// The bytes of this part.
        bytes: &'a mut Vec<u8>,
        before: PageSide<'a>,
        behind: PageSide<'a>,
    },
}

/// The text on one side of a part. By default there is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageSide<'a> {
    /// The nearest bytes, as far as they are known. With them, a word that the part's edge splits is known whole.
    pub known: &'a [u8],
    /// Whether there is more of it beyond.
    pub goes_on: bool,
}

impl PageSide<'_> {
    fn is_cut(self) -> bool {
        self.goes_on || !self.known.is_empty()
    }
}

struct SecretSearch {
    automaton: AhoCorasick,
    /// The secret's name for each pattern, by pattern number.
    names: Vec<String>,
    /// All patterns, and all of them reversed, each list sorted.
    patterns: Vec<Vec<u8>>,
    reversed: Vec<Vec<u8>>,
    /// Whether a pattern begins with this byte.
    begins: [bool; 256],
    longest: usize,
    /// The same for texts that may begin or end within a secret; `None` if no secret has several lines.
    lines: Option<Box<SecretSearch>>,
}

/// The lines of a multi-line secret, each as a secret of its own.
fn lines_of(secret: &Secret) -> Vec<Secret> {
    let lines = secret.value.split(|byte| *byte == b'\n');
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let long = lines.filter(|line| (VALUE_MIN..secret.value.len()).contains(&line.len()));
    long.map(|line| Secret {
        name: secret.name.clone(),
        value: line.to_vec(),
    })
    .collect()
}

/// The patterns that find a value: its forms, in pieces.
fn patterns_of(value: &[u8]) -> Vec<Vec<u8>> {
    let forms = if value.len() <= FORMS_MAX {
        forms(value, VALUE_MIN)
    } else {
        [value.to_vec()].into()
    };
    // Texts are searched folded, so patterns are folded too.
    let folded = |form: &Vec<u8>| match fold(form).bytes.into_owned() {
        folded if folded.len() < VALUE_MIN => form.clone(),
        folded => folded,
    };
    forms
        .iter()
        .map(folded)
        .collect::<BTreeSet<_>>()
        .iter()
        .flat_map(|form| pieces(form))
        .map(<[u8]>::to_vec)
        .collect()
}

/// `form` in pieces of at most [`PIECE`] bytes and of about the same length: a short one would be found in innocent text, and whoever
/// may only ask what is found could guess it.
fn pieces(form: &[u8]) -> Vec<&[u8]> {
    let count = form.len().div_ceil(PIECE).max(1);
    let at = |number: usize| number * form.len() / count;
    (0..count)
        .map(|number| &form[at(number)..at(number + 1)])
        .collect()
}

/// Applies `change` to every string in `value`, including names of fields; it returns `None` for one that stays.
pub fn change_texts(value: &mut Value, change: &impl Fn(&str) -> Option<String>) {
    change_value(value, change, &|_| None);
}

fn change_value(
    value: &mut Value,
    change: &impl Fn(&str) -> Option<String>,
    number: &impl Fn(&serde_json::Number) -> Option<Value>,
) {
    match value {
        Value::String(text) => change(text).into_iter().for_each(|new| *text = new),
        Value::Array(values) => values
            .iter_mut()
            .for_each(|value| change_value(value, change, number)),
        Value::Object(fields) => {
            let names: Vec<Option<String>> = fields.keys().map(|name| change(name)).collect();
            fields
                .values_mut()
                .for_each(|value| change_value(value, change, number));
            if names.iter().any(Option::is_some) {
                rename(fields, names);
            }
        }
        Value::Number(digits) => {
            if let Some(new) = number(digits) {
                *value = new;
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// Gives the fields their new names, in order, where they have one. No field is lost if two names become equal.
fn rename(fields: &mut Map<String, Value>, names: Vec<Option<String>>) {
    for ((name, value), new) in std::mem::take(fields).into_iter().zip(names) {
        let mut name = new.unwrap_or(name);
        while fields.contains_key(&name) {
            name.push('\'');
        }
        fields.insert(name, value);
    }
}

/// The text if it is not the one that it was made of.
pub fn changed(text: Cow<str>) -> Option<String> {
    match text {
        Cow::Owned(text) => Some(text),
        Cow::Borrowed(_) => None,
    }
}

impl Redactor {
    /// Searches for `secrets`, none of which is empty.
    ///
    /// # Errors
    /// If it is impossible to search for all of them.
    pub fn new(secrets: Vec<Secret>) -> Result<Self, RedactorError> {
        let search = SecretSearch::with_lines(&secrets)?.map(Arc::new);
        Ok(Self(SearchPlace::Local(LocalSearch {
            secrets: Mutex::new(secrets),
            search: RwLock::new(search),
        })))
    }

    /// Withholds all text: for use while secrets are not known.
    pub(crate) fn withholding() -> Self {
        Self(SearchPlace::Withheld)
    }

    /// Has the process at the other end of `socket` search, which knows the secrets.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn remote(socket: UnixStream) -> Result<Self, RedactorError> {
        let search = RemoteSearch::begin(socket).ok_or(RedactorError::Gone)?;
        Ok(Self(SearchPlace::Remote(search)))
    }

    /// Searches for one more secret from now on: a key that is known only once a user provides it. A value too short to distinguish
    /// from innocent text is ignored.
    ///
    /// # Errors
    /// If it is impossible to search for all of them; then nothing changes.
    pub fn learn(&self, secret: Secret) -> Result<(), RedactorError> {
        match &self.0 {
            SearchPlace::Local(local) => local.learn(secret),
            SearchPlace::Remote(remote) if secret.value.len() >= VALUE_MIN => {
                remote.learn(&secret).ok_or(RedactorError::Gone)
            }
            SearchPlace::Remote(_) | SearchPlace::Withheld => Ok(()),
        }
    }

    /// Has the process that searches find and keep a secret; returns what it says of it. `None` if this process searches by itself, or has
    /// confined itself since.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn hold(&self, query: &[u8]) -> Result<Option<Value>, RedactorError> {
        match &self.0 {
            SearchPlace::Remote(remote) => remote.hold(query).ok_or(RedactorError::Gone),
            SearchPlace::Local(_) | SearchPlace::Withheld => Ok(None),
        }
    }

    /// Has the process that searches give up all files, if there is one: from now on it finds no further secret.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn confine(&self) -> Result<(), RedactorError> {
        match &self.0 {
            SearchPlace::Remote(remote) => remote.confine().ok_or(RedactorError::Gone),
            SearchPlace::Local(_) | SearchPlace::Withheld => Ok(()),
        }
    }

    /// Whether there is nothing to search for.
    pub fn is_idle(&self) -> bool {
        match &self.0 {
            SearchPlace::Local(local) => local.search().is_none(),
            SearchPlace::Remote(remote) => remote.is_idle(),
            SearchPlace::Withheld => false,
        }
    }

    /// Whether all text is withheld because secrets are not known.
    pub(crate) fn withholds(&self) -> bool {
        match &self.0 {
            SearchPlace::Local(_) => false,
            SearchPlace::Remote(remote) => remote.is_gone(),
            SearchPlace::Withheld => true,
        }
    }

    /// The secrets in `bytes`; `None` if that is not known.
    pub(crate) fn find(&self, bytes: &[u8], patterns: Patterns) -> Option<Vec<FoundSecret>> {
        match &self.0 {
            SearchPlace::Local(local) => {
                let search = local.search();
                Some(search.map_or_else(Vec::new, |search| search.of(patterns).find(bytes)))
            }
            SearchPlace::Remote(remote) => remote.find(bytes, patterns),
            SearchPlace::Withheld => None,
        }
    }

    /// Facts about the secrets that say little of any.
    pub(crate) fn facts(&self) -> PatternFacts {
        match &self.0 {
            SearchPlace::Local(local) => local
                .search()
                .map_or_else(PatternFacts::default, |search| search.facts()),
            SearchPlace::Remote(remote) => remote.facts(),
            SearchPlace::Withheld => PatternFacts::default(),
        }
    }

    /// `bytes` without secrets.
    pub fn bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        if self.is_idle() {
            return Cow::Borrowed(bytes);
        }
        let found = match self.find(bytes, Patterns::Whole) {
            Some(found) if found.is_empty() => return Cow::Borrowed(bytes),
            Some(found) => found,
            None => return Cow::Borrowed(WITHHELD.as_bytes()),
        };
        let mut clear = Cleared::default();
        clear.pass(bytes, &found, bytes.len());
        Cow::Owned(clear.bytes)
    }

    /// Removes secrets from `piece`, and parts of secrets at its edges; returns whether there were any.
    pub fn redact(&self, piece: RedactedPiece<'_>) -> bool {
        if self.is_idle() {
            return false;
        }
        let here = match &self.0 {
            SearchPlace::Local(local) => local.search(),
            SearchPlace::Remote(_) | SearchPlace::Withheld => None,
        };
        match (piece, here) {
            (RedactedPiece::Lines(bytes), _) => self.redact_lines(bytes),
            (RedactedPiece::Ends(captured), Some(search)) => search.redact_ends(captured),
            (RedactedPiece::Ends(captured), None) => self.withhold_ends(captured),
            (
                RedactedPiece::Page {
                    bytes,
                    before,
                    behind,
                },
                here,
            ) => {
                let Some(search) = here else {
                    return self.withhold_edges(bytes, (before, behind));
                };
                let cuts = Cuts {
                    before: before.is_cut(),
                    behind: behind.is_cut(),
                };
                search.redact_page(bytes, cuts)
            }
        }
    }

    /// Leaves out the words that the cut may have split: who could ask for parts of a secret could guess it octet by octet.
    fn withhold_ends(&self, captured: &mut Captured) -> bool {
        if captured.omitted == 0 {
            return false;
        }
        let whole = captured.head.len() + captured.tail.len();
        let head = self.certain(&captured.head, Cuts::BEHIND, 0..captured.head.len());
        captured.head.truncate(head.end);
        let tail = self.certain(&captured.tail, Cuts::BEFORE, 0..captured.tail.len());
        captured.tail.drain(..tail.start);
        captured.omitted += (whole - captured.head.len() - captured.tail.len()) as u64;
        false
    }

    /// As [`Self::withhold_ends`], with a mark.
    fn withhold_edges(
        &self,
        bytes: &mut Vec<u8>,
        (before, behind): (PageSide<'_>, PageSide<'_>),
    ) -> bool {
        let text = [before.known, bytes, behind.known].concat();
        let cuts = Cuts {
            before: before.goes_on,
            behind: behind.goes_on,
        };
        let first = before.known.len();
        let certain = self.certain(&text, cuts, first..first + bytes.len());
        let (start, end) = (certain.start - first, certain.end - first);
        if end < bytes.len() {
            bytes.truncate(end);
            bytes.extend(WITHHELD.bytes());
        }
        if start > 0 {
            bytes.splice(..start, WITHHELD.bytes());
        }
        false
    }

    /// The part of `page` in `bytes` in which no secret is that a cut or an edge of the page has split.
    fn certain(&self, bytes: &[u8], cuts: Cuts, page: Range<usize>) -> Range<usize> {
        let (Some(all), facts) = (self.find(bytes, Patterns::Lines), self.facts()) else {
            return match cuts {
                Cuts { before: true, .. } => page.end..page.end,
                Cuts { before: false, .. } => page.start..page.start,
            };
        };
        let split = |at: usize| all.iter().find(|one| one.start < at && at < one.end);
        let end = match cuts.behind {
            true => facts.unfinished(bytes),
            false => bytes.len(),
        };
        let end = end.min(page.end);
        let end = split(end).map_or(end, |one| one.start).max(page.start);
        let start = match cuts.before {
            true => facts.continued(bytes),
            false => 0,
        };
        let start = start.max(page.start);
        let start = split(start).map_or(start, |one| one.end);
        start.min(end)..end
    }

    fn redact_lines(&self, bytes: &mut Vec<u8>) -> bool {
        let Some(all) = self.find(bytes, Patterns::Lines) else {
            *bytes = WITHHELD.into();
            return true;
        };
        let mut clear = Vec::new();
        let mut at = 0;
        for found in all {
            clear.extend_from_slice(&bytes[at..found.start]);
            clear.extend(found.mark().bytes());
            clear.extend(
                bytes[found.start..found.end]
                    .iter()
                    .filter(|byte| **byte == b'\n'),
            );
            at = found.end;
        }
        if at > 0 {
            clear.extend_from_slice(&bytes[at..]);
            *bytes = clear;
        }
        at > 0
    }

    /// `text` without secrets.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.bytes(text.as_bytes()) {
            Cow::Borrowed(clear) if std::ptr::eq(clear, text.as_bytes()) => Cow::Borrowed(text),
            bytes => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    /// `value` without secrets, whether they are texts or numbers.
    pub fn value<'a>(&self, value: &'a Value) -> Cow<'a, Value> {
        if self.is_idle() {
            return Cow::Borrowed(value);
        }
        let mut clear = value.clone();
        self.change(&mut clear, &|text| changed(self.text(text)));
        Cow::Owned(clear)
    }

    /// Applies `change` to every string in `value`, and converts numbers that are secrets to text.
    pub(crate) fn change(&self, value: &mut Value, change: &impl Fn(&str) -> Option<String>) {
        change_value(value, change, &|number| {
            changed(self.text(&number.to_string())).map(Value::from)
        });
    }

    /// A stream for bytes that arrive in pieces.
    pub fn stream(&'static self) -> SecretStream {
        SecretStream {
            redactor: self,
            held: Vec::new(),
            last: None,
            found: 0,
        }
    }
}

impl LocalSearch {
    fn search(&self) -> Option<Arc<SecretSearch>> {
        self.search
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn learn(&self, secret: Secret) -> Result<(), RedactorError> {
        let mut secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = secrets.iter().any(|known| known.value == secret.value);
        if is_known || secret.value.len() < VALUE_MIN {
            return Ok(());
        }
        let mut all = secrets.clone();
        all.push(secret);
        let search = SecretSearch::with_lines(&all)?.map(Arc::new);
        *self.search.write().unwrap_or_else(PoisonError::into_inner) = search;
        *secrets = all;
        Ok(())
    }
}

/// Bytes without secrets.
#[derive(Default)]
struct Cleared {
    bytes: Vec<u8>,
    /// The name of the secret that was removed last, if nothing came after it: a secret in pieces gets only one mark.
    last: Option<String>,
    found: u64,
}

/// The sides of a page at which text was left out.
#[derive(Clone, Copy)]
struct Cuts {
    before: bool,
    behind: bool,
}

impl Cuts {
    const BEFORE: Self = Self {
        before: true,
        behind: false,
    };
    const BEHIND: Self = Self {
        before: false,
        behind: true,
    };
}

impl SecretSearch {
    /// Searches for `secrets`, and for their lines in texts that may begin or end within one; `None` without secrets.
    fn with_lines(secrets: &[Secret]) -> Result<Option<Self>, RedactorError> {
        let mut search = Self::new(secrets)?;
        let lines: Vec<Secret> = secrets.iter().flat_map(lines_of).collect();
        if let Some(search) = search.as_mut().filter(|_| !lines.is_empty()) {
            search.lines = Self::new(&[secrets.to_vec(), lines].concat())?.map(Box::new);
        }
        Ok(search)
    }

    /// Searches for `secrets`; `None` without secrets.
    fn new(secrets: &[Secret]) -> Result<Option<Self>, RedactorError> {
        if secrets.is_empty() {
            return Ok(None);
        }
        let mut named: BTreeMap<Vec<u8>, &str> = BTreeMap::new();
        let mut length = 0;
        for secret in secrets {
            for pattern in patterns_of(&secret.value) {
                length += pattern.len();
                named.entry(pattern).or_insert(&secret.name);
            }
            if length > PATTERNS_MAX {
                return Err(RedactorError::TooLarge(length));
            }
        }
        let mut begins = [false; 256];
        named
            .keys()
            .filter_map(|key| key.first())
            .for_each(|byte| begins[usize::from(*byte)] = true);
        let longest = named.keys().map(Vec::len).max().unwrap_or(0);
        let kind = (length > FAST_MAX).then_some(AhoCorasickKind::ContiguousNFA);
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .kind(kind)
            .build(named.keys())
            .map_err(|error| RedactorError::Search(error.to_string()))?;
        let names = named.values().map(|name| printable_name(name)).collect();
        let patterns: Vec<Vec<u8>> = named.into_keys().collect();
        let mut reversed: Vec<Vec<u8>> = patterns
            .iter()
            .map(|pattern| pattern.iter().rev().copied().collect())
            .collect();
        reversed.sort_unstable();
        Ok(Some(Self {
            automaton,
            names,
            patterns,
            reversed,
            begins,
            longest,
            lines: None,
        }))
    }

    fn redact_ends(&self, captured: &mut Captured) -> bool {
        if captured.omitted == 0 {
            return false;
        }
        self.redact_page(&mut captured.head, Cuts::BEHIND)
            | self.redact_page(&mut captured.tail, Cuts::BEFORE)
    }

    fn of(&self, patterns: Patterns) -> &Self {
        match patterns {
            Patterns::Whole => self,
            Patterns::Lines => self.lines.as_deref().unwrap_or(self),
        }
    }

    /// All secrets in `bytes`, in order.
    fn find(&self, bytes: &[u8]) -> Vec<FoundSecret> {
        let folded = fold(bytes);
        let name = |pattern: PatternID| self.names.get(pattern.as_usize());
        let found = self.automaton.find_iter(&*folded.bytes);
        found
            .map(|found| FoundSecret {
                start: folded.start(found.start()),
                end: folded.end(found.end()),
                name: name(found.pattern()).cloned().unwrap_or_default(),
            })
            .collect()
    }

    fn facts(&self) -> PatternFacts {
        let all = self.of(Patterns::Lines);
        PatternFacts::of(&all.patterns)
    }

    fn redact_page(&self, bytes: &mut Vec<u8>, cuts: Cuts) -> bool {
        let Cuts { before, behind } = cuts;
        let folded = fold(bytes).bytes.into_owned();
        let is_within = |pattern: &Vec<u8>| has_part(pattern, &folded);
        if before && behind && !folded.is_empty() && self.patterns.iter().any(is_within) {
            *bytes = CUT.to_vec();
            return true;
        }
        let start = if behind {
            self.unfinished(bytes, 0)
        } else {
            bytes.len()
        };
        let begins = bytes.len() - start >= PART;
        if begins {
            bytes.truncate(start);
            bytes.extend_from_slice(CUT);
        }
        let end = if before { self.continued(bytes) } else { 0 };
        let ends = end >= PART;
        if ends {
            bytes.splice(..end, CUT.iter().copied());
        }
        begins || ends
    }

    /// The start, at or after `from`, of the longest suffix of `bytes` that may still become a secret.
    fn unfinished(&self, bytes: &[u8], from: usize) -> usize {
        let folded = fold_open(&bytes[from..]);
        let text = &folded.bytes;
        let first = (text.len() + 1).saturating_sub(self.longest);
        let begins = |at: &usize| {
            self.begins[usize::from(text[*at])] && continues(&self.patterns, &text[*at..])
        };
        let begin = (first..text.len()).find(begins);
        begin.map_or(bytes.len(), |at| from + folded.start(at))
    }

    /// How many bytes at the start of `bytes` are the end of a secret.
    fn continued(&self, bytes: &[u8]) -> usize {
        let folded = fold(bytes);
        let most = folded.bytes.len().min(self.longest.saturating_sub(1));
        let backwards: Vec<u8> = folded.bytes[..most].iter().rev().copied().collect();
        let start = (0..most).find(|start| continues(&self.reversed, &backwards[*start..]));
        start.map_or(0, |start| folded.end(most - start))
    }
}

/// Whether `whole` contains `part`, which is not empty.
fn has_part(whole: &[u8], part: &[u8]) -> bool {
    whole.windows(part.len()).any(|window| window == part)
}

/// Whether one of `ordered` begins with `start` and is longer.
fn continues(ordered: &[Vec<u8>], start: &[u8]) -> bool {
    let next = ordered.partition_point(|pattern| pattern.as_slice() <= start);
    ordered
        .get(next)
        .is_some_and(|pattern| pattern.starts_with(start))
}

/// A variable's name in a form that is safe within text.
fn printable_name(name: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '_' {
            c
        } else {
            '?'
        }
    };
    name.chars().take(64).map(plain).collect()
}

impl Cleared {
    /// Appends what begins in `bytes` before `end`, without the secrets `all`. Returns where it stopped, which is after `end` if a secret
    /// extends beyond it.
    fn pass(&mut self, bytes: &[u8], all: &[FoundSecret], end: usize) -> usize {
        let mut at = 0;
        for found in all.iter().take_while(|found| found.start < end) {
            self.push(&bytes[at..found.start]);
            self.found += 1;
            if self.last.as_ref() != Some(&found.name) {
                self.bytes.extend(found.mark().bytes());
            }
            self.last = Some(found.name.clone());
            at = found.end;
        }
        if at < end {
            self.push(&bytes[at..end]);
            at = end;
        }
        at
    }

    fn push(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.bytes.extend_from_slice(bytes);
            self.last = None;
        }
    }
}

/// Removes secrets from a stream, however it is split.
pub struct SecretStream {
    redactor: &'static Redactor,
    /// Held bytes that may become a secret.
    held: Vec<u8>,
    last: Option<String>,
    found: u64,
}

impl SecretStream {
    /// Adds `bytes`; returns what can be shown now.
    pub fn push<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        if self.redactor.is_idle() {
            return Cow::Borrowed(bytes);
        }
        let mut joined = std::mem::take(&mut self.held);
        joined.extend_from_slice(bytes);
        let mut clear = self.cleared(joined.len());
        let passed = match &self.redactor.0 {
            SearchPlace::Local(local) => match local.search() {
                Some(search) => passed_here(&search, &joined, &mut clear),
                None => return Cow::Borrowed(bytes),
            },
            SearchPlace::Remote(remote) => match remote.find(&joined, Patterns::Whole) {
                Some(found) => clear.pass(&joined, &found, remote.facts().unfinished(&joined)),
                None => return Cow::Borrowed(b""),
            },
            SearchPlace::Withheld => return Cow::Borrowed(b""),
        };
        self.held = joined.split_off(passed);
        (self.last, self.found) = (clear.last, clear.found);
        Cow::Owned(clear.bytes)
    }

    fn cleared(&mut self, capacity: usize) -> Cleared {
        Cleared {
            bytes: Vec::with_capacity(capacity),
            last: self.last.take(),
            found: self.found,
        }
    }

    /// How many bytes are held because they may become a secret.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether it holds a word that may be none of a secret's: another process says only what is a whole secret.
    pub(crate) fn holds_a_word(&self) -> bool {
        let is_remote = matches!(self.redactor.0, SearchPlace::Remote(_));
        is_remote && !self.held.is_empty()
    }

    /// How many secrets were removed so far.
    pub(crate) fn found(&self) -> u64 {
        self.found
    }

    /// The bytes held at the end: they did not become a secret.
    pub fn finish(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        let Some(found) = self.redactor.find(&held, Patterns::Whole) else {
            return Vec::new();
        };
        let mut clear = self.cleared(held.len());
        clear.pass(&held, &found, held.len());
        (self.last, self.found) = (clear.last, clear.found);
        clear.bytes
    }
}

/// Appends to `clear` what can be shown of `joined`; returns where that ends.
fn passed_here(search: &SecretSearch, joined: &[u8], clear: &mut Cleared) -> usize {
    let mut at = 0;
    loop {
        let safe = search.unfinished(joined, at);
        let found = search.find(&joined[at..]);
        let passed = at + clear.pass(&joined[at..], &found, safe - at);
        if passed == safe {
            return safe;
        }
        // A secret extends over what was to be held: the held part begins after it.
        at = passed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn redactor(values: &[(&str, &str)]) -> &'static Redactor {
        let secret = |(name, value): &(&str, &str)| Secret {
            name: (*name).into(),
            value: value.as_bytes().to_vec(),
        };
        Box::leak(Box::new(
            Redactor::new(values.iter().map(secret).collect()).unwrap(),
        ))
    }

    fn streamed(redactor: &'static Redactor, pieces: &[&[u8]]) -> String {
        let mut stream = redactor.stream();
        let mut out = Vec::new();
        pieces
            .iter()
            .for_each(|piece| out.extend_from_slice(&stream.push(piece)));
        out.extend(stream.finish());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_key_that_is_learnt_later_is_taken_out_from_then_on() {
        let redactor: &'static Redactor = Box::leak(Box::new(Redactor::new(vec![]).unwrap()));
        let secret = |name: &str, value: &str| Secret {
            name: name.into(),
            value: value.into(),
        };
        let mut stream = redactor.stream();
        assert_eq!(redactor.text("sk-later-key"), "sk-later-key");
        redactor.learn(secret("LATER", "sk-later-key")).unwrap();
        redactor.learn(secret("AGAIN", "sk-later-key")).unwrap();
        redactor.learn(secret("SHORT", "abc")).unwrap();
        assert_eq!(redactor.text("abc sk-later-key"), "abc [redacted:LATER]");
        assert_eq!(
            (
                stream.push(b"sk-lat").len(),
                stream.push(b"er-key").into_owned()
            ),
            (0, b"[redacted:LATER]".to_vec())
        );
        // A secret that cannot be searched for changes nothing.
        assert!(
            redactor
                .learn(secret("HUGE", &"x".repeat(PATTERNS_MAX + 1)))
                .is_err()
        );
        assert_eq!(redactor.text("sk-later-key"), "[redacted:LATER]");
    }

    #[test]
    fn redaction_without_secrets_copies_nothing() {
        let none = redactor(&[]);
        assert!(none.is_idle());
        assert!(matches!(none.bytes(b"abc"), Cow::Borrowed(_)));
        assert!(matches!(none.stream().push(b"abc"), Cow::Borrowed(_)));
        let one = redactor(&[("A", "secret-a")]);
        assert!(matches!(one.text("innocent"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_secret_is_found_however_the_stream_is_cut() {
        let both = redactor(&[
            ("A", "abcabcabd"),
            ("B", "abcabcab"),
            ("C", "cabdxyz1"),
            ("D", "zzzzzzzz"),
        ]);
        let text =
            b"1 abcabcabd 2 abcabcab 3 abcabcabcabd 4 cabdxyz1 5 zzzzzzzzz abcabcabdxyz1 abcabca";
        let want = both.text(std::str::from_utf8(text).unwrap()).into_owned();
        let shown = "1 [redacted:A] 2 [redacted:B] 3 [redacted:B]cabd 4 [redacted:C] 5 [redacted:D]z [redacted:A]xyz1 abcabca";
        assert_eq!(want, shown);
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let pieces = [&text[..first], &text[first..second], &text[second..]];
                assert_eq!(streamed(both, &pieces), want, "cut at {first} and {second}");
            }
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(streamed(both, &bytes), want);
    }

    #[test]
    fn a_secret_with_unseen_characters_in_it_is_found_however_the_stream_is_cut() {
        let both = redactor(&[("A", "secret-a"), ("B", "with\r\nline \u{301}mark")]);
        for (text, want) in [
            ("1 secr\ret-a\r\n2", "1 [redacted:A]\r\n2"),
            ("1 se\u{301}cr\u{20dd}et-a 2", "1 [redacted:A] 2"),
            ("1 s\u{200b}e\u{0}cret\u{e0041}-a 2", "1 [redacted:A] 2"),
            ("1 with\nline mark 2", "1 [redacted:B] 2"),
            ("1 with\r\nline \u{301}mark 2", "1 [redacted:B] 2"),
            ("1 secr\u{e9}t-a\r\r 2", "1 secr\u{e9}t-a\r\r 2"),
        ] {
            assert_eq!(both.text(text), want, "{text:?}");
            let bytes = text.as_bytes();
            for first in 0..=bytes.len() {
                for second in first..=bytes.len() {
                    let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                    assert_eq!(
                        streamed(both, &pieces),
                        want,
                        "{text:?} at {first} and {second}"
                    );
                }
            }
        }
    }

    #[test]
    fn unseen_characters_hold_no_more_of_a_stream_than_a_bound() {
        let one = redactor(&[("A", "secret-a")]);
        let mut stream = one.stream();
        stream.push(b"secr");
        for _ in 0..1000 {
            stream.push(&[b'\r'; 64]);
        }
        assert!(stream.held() < 100, "{}", stream.held());
    }

    #[test]
    fn nothing_is_held_but_what_may_become_a_secret() {
        let one = redactor(&[("A", "secret-a")]);
        let mut stream = one.stream();
        assert_eq!(&*stream.push(b"text sec"), b"text ");
        assert_eq!(&*stream.push(b"ond"), b"second");
        assert_eq!(&*stream.push(b"secret-"), b"");
        assert_eq!(stream.finish(), b"secret-");
    }

    #[test]
    fn excerpt_has_no_line_of_a_secret_and_keeps_line_numbers() {
        let key = "--- begin ---\r\nfirst-line-1\nsecond-line\nab\n--- end ---";
        let both = redactor(&[("KEY", key), ("A", "secret-a")]);
        let excerpt = |text: &str| {
            let mut bytes = text.as_bytes().to_vec();
            both.redact(RedactedPiece::Lines(&mut bytes));
            assert_eq!(
                text.matches('\n').count(),
                bytes.iter().filter(|byte| **byte == b'\n').count()
            );
            String::from_utf8(bytes).unwrap()
        };
        assert_eq!(excerpt("plain\n"), "plain\n");
        assert_eq!(
            excerpt(&format!("k={key};\nsecret-a\n")),
            "k=[redacted:KEY]\n\n\n\n;\n[redacted:A]\n"
        );
        // A secret begins before the part, continues after it, or both.
        assert_eq!(
            excerpt("second-line\nab\n--- end ---;\nx\n"),
            "[redacted:KEY]\nab\n[redacted:KEY];\nx\n"
        );
        assert_eq!(excerpt("k=--- begin ---\n"), "k=[redacted:KEY]\n");
        assert_eq!(
            excerpt("first-line-1\r\nsecond-line\n"),
            "[redacted:KEY]\r\n[redacted:KEY]\n"
        );
        // In other texts, a single line of it is not a secret.
        assert_eq!(both.text("first-line-1"), "first-line-1");
        let mut none = b"secret-a".to_vec();
        redactor(&[]).redact(RedactedPiece::Lines(&mut none));
        assert_eq!(none, b"secret-a");
    }

    #[test]
    fn a_cut_output_shows_no_half_of_a_secret() {
        let one = redactor(&[("A", "secret-a")]);
        for cut in 0..=8 {
            let (head, tail) = ("secret-a".split_at(cut).0, "secret-a".split_at(cut).1);
            let mut captured = Captured {
                head: format!("x{head}").into(),
                tail: format!("{tail}y").into(),
                omitted: 9,
            };
            one.redact(RedactedPiece::Ends(&mut captured));
            let text = String::from_utf8([captured.head, captured.tail].concat()).unwrap();
            let left = one.text(&text);
            assert!(
                !left.contains("secr") && !left.contains("et-a"),
                "{cut}: {left}"
            );
            assert!(
                left.starts_with('x') && left.ends_with('y'),
                "{cut}: {left}"
            );
        }
        let mut whole = Captured {
            head: b"xsecret".to_vec(),
            tail: vec![],
            omitted: 0,
        };
        one.redact(RedactedPiece::Ends(&mut whole));
        assert_eq!(whole.head, b"xsecret");
    }

    #[test]
    fn no_page_of_a_text_shows_a_part_of_a_secret() {
        let one = redactor(&[("A", "secret-of-many-letters")]);
        let text = b"before secret-of-many-letters behind";
        for from in 0..text.len() {
            for to in from + 1..=text.len() {
                let mut page = text[from..to].to_vec();
                one.redact(RedactedPiece::Page {
                    bytes: &mut page,
                    before: PageSide {
                        known: &[],
                        goes_on: from > 0,
                    },
                    behind: PageSide {
                        known: &[],
                        goes_on: to < text.len(),
                    },
                });
                let shown = one.text(std::str::from_utf8(&page).unwrap()).into_owned();
                let is_part = |part: &[u8]| has_part(b"secret-of-many-letters", part);
                let shown = shown
                    .replace("[redacted:A]", "|")
                    .replace("[redacted]", "|");
                assert!(
                    !shown.as_bytes().windows(PART).any(is_part),
                    "{from} to {to}: {shown}"
                );
            }
        }
        // A complete text is not treated as a page.
        let mut whole = b"letters".to_vec();
        assert!(!one.redact(RedactedPiece::Page {
            bytes: &mut whole,
            before: PageSide::default(),
            behind: PageSide::default(),
        }));
        assert_eq!(whole, b"letters");
    }

    #[test]
    fn names_and_texts_of_a_value_have_no_secrets() {
        let one = redactor(&[("A", "secret-a")]);
        let value = json!({"secret-a": ["secret-a", 1, null]});
        assert_eq!(
            *one.value(&value),
            json!({"[redacted:A]": ["[redacted:A]", 1, null]})
        );
        let alike = json!({"[redacted:A]": 1, "secret-a": 2});
        assert_eq!(
            *one.value(&alike),
            json!({"[redacted:A]": 1, "[redacted:A]'": 2})
        );
    }

    #[test]
    fn numbers_that_are_secrets_are_taken_out() {
        let one = redactor(&[("A", "1234567890"), ("B", "55555.25")]);
        let value = json!({"a": 1234567890, "b": [55555.25, 7, -1234567890.0]});
        assert_eq!(
            *one.value(&value),
            json!({"a": "[redacted:A]", "b": ["[redacted:B]", 7, "-[redacted:A].0"]})
        );
    }

    #[test]
    fn long_secrets_are_found_in_pieces_and_cost_little() {
        let repeated = "ab".repeat(30 << 10);
        let mixed: String = (0..60_000_u32)
            .map(|n| char::from(b'a' + (n.wrapping_mul(n) >> 7) as u8 % 26))
            .collect();
        let begun = std::time::Instant::now();
        let both = redactor(&[("A", &repeated), ("B", &mixed)]);
        let text = format!("x{mixed}y{repeated}z");
        assert_eq!(both.text(&text), "x[redacted:B]y[redacted:A]z");
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(7).collect();
        assert_eq!(streamed(both, &pieces), "x[redacted:B]y[redacted:A]z");
        let SearchPlace::Local(local) = &both.0 else {
            panic!("it searches by itself");
        };
        let search = local.search().unwrap();
        assert!(search.longest < PIECE + VALUE_MIN && search.patterns.len() < 200);
        // This took half a minute when each secret was one pattern.
        assert!(
            begun.elapsed() < std::time::Duration::from_secs(25),
            "{:?}",
            begun.elapsed()
        );
    }

    #[test]
    fn secrets_that_cannot_be_looked_for_are_an_error_and_nothing_is_shown_without_them() {
        let secret = |n: u32| Secret {
            name: "A".into(),
            value: format!("{n:08}").repeat(16 << 10).into_bytes(),
        };
        let error = Redactor::new((0..40).map(secret).collect()).err();
        assert!(
            matches!(error, Some(RedactorError::TooLarge(_))),
            "{error:?}"
        );
        let none = Box::leak(Box::new(Redactor::withholding()));
        assert!(!none.is_idle());
        assert_eq!(none.text("text"), WITHHELD);
        assert_eq!(*none.value(&json!({"a": 1})), json!({WITHHELD: WITHHELD}));
        assert_eq!(&*none.stream().push(b"text"), b"");
    }
}
