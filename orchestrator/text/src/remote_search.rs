//! The end of the search in another process that asks it: see `crate::redactor_process`.

use crate::found_secrets::{FoundSecret, PatternFacts, Patterns};
use policies::secret::{Secret, VALUE_MIN};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

/// Maximum bytes of a text that is searched. A longer one is withheld.
pub(crate) const TEXT_MAX: usize = 16 << 20;
/// Maximum bytes of an answer. What has more secrets is withheld.
pub(crate) const ANSWER_MAX: usize = 64 << 20;

/// Maximum bytes of a text that is remembered to have no secret: names of fields and layers, which every result repeats.
const REMEMBERED_TEXT_MAX: usize = 256;
/// Maximum number of them. Beyond it, all are forgotten.
const REMEMBERED_MAX: usize = 1024;

/// A question to the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SearchQuestion {
    /// Answered by [`PatternFacts`] alone, as JSON.
    Facts,
    Find(Patterns),
    /// Of a name, a zero byte and a value; answered by [`PatternFacts`].
    Learn,
    /// For a secret that the process finds and keeps: answered by the facts, and by what it says of it.
    Hold,
    /// To give up what it needs to find further ones.
    Confine,
}

impl SearchQuestion {
    pub(crate) const ALL: [Self; 6] = [
        Self::Facts,
        Self::Find(Patterns::Whole),
        Self::Find(Patterns::Lines),
        Self::Learn,
        Self::Hold,
        Self::Confine,
    ];

    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Facts => 0,
            Self::Find(Patterns::Whole) => 1,
            Self::Find(Patterns::Lines) => 2,
            Self::Learn => 3,
            Self::Hold => 4,
            Self::Confine => 5,
        }
    }
}

/// This process's end of the socket.
pub(crate) struct RemoteSearch(Mutex<RemoteState>);

struct RemoteState {
    /// `None` once an answer is missing.
    socket: Option<UnixStream>,
    facts: PatternFacts,
    /// Whether the process can find further secrets.
    finds: bool,
    /// Texts without a secret, so that they are not asked about again. Texts with one are not kept.
    clean: [HashSet<Vec<u8>>; 2],
}

impl RemoteSearch {
    /// `None` if the other process does not answer.
    pub(crate) fn begin(socket: UnixStream) -> Option<Self> {
        let mut state = RemoteState {
            socket: Some(socket),
            facts: PatternFacts::default(),
            finds: true,
            clean: Default::default(),
        };
        state.facts = state.ask(SearchQuestion::Facts, &[])?;
        Some(Self(Mutex::new(state)))
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.with(|state| state.socket.is_none())
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.with(|state| state.facts.are_none() && state.socket.is_some())
    }

    pub(crate) fn facts(&self) -> PatternFacts {
        self.with(|state| state.facts)
    }

    pub(crate) fn learn(&self, secret: &Secret) -> Option<()> {
        let name = secret.name.as_bytes();
        let text = [name, &b"\0"[..], &secret.value].concat();
        self.with(|state| {
            state.clean = Default::default();
            state.facts = state.ask(SearchQuestion::Learn, &text)?;
            Some(())
        })
    }

    /// Its answer; `Some(None)` once it can find no more.
    pub(crate) fn hold(&self, query: &[u8]) -> Option<Option<Value>> {
        self.with(|state| {
            if !state.finds {
                return Some(None);
            }
            state.clean = Default::default();
            let (facts, answer) = state.ask(SearchQuestion::Hold, query)?;
            state.facts = facts;
            Some(Some(answer))
        })
    }

    pub(crate) fn confine(&self) -> Option<()> {
        self.with(|state| {
            state.finds = false;
            state.facts = state.ask(SearchQuestion::Confine, &[])?;
            Some(())
        })
    }

    /// The secrets in `bytes`, in order; `None` if it is gone, or the text is too long.
    pub(crate) fn find(&self, bytes: &[u8], patterns: Patterns) -> Option<Vec<FoundSecret>> {
        if bytes.len() > TEXT_MAX {
            return None;
        }
        let found = self.with(|state| state.find(bytes, patterns))?;
        let mut at = 0;
        let is_after = |found: &FoundSecret| {
            let is_after = at <= found.start && found.start <= found.end;
            at = found.end;
            is_after && found.end <= bytes.len()
        };
        found.iter().all(is_after).then_some(found)
    }

    fn with<T>(&self, work: impl FnOnce(&mut RemoteState) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl RemoteState {
    fn find(&mut self, bytes: &[u8], patterns: Patterns) -> Option<Vec<FoundSecret>> {
        let kind = match patterns {
            Patterns::Whole => 0,
            Patterns::Lines => 1,
        };
        // Each question takes a change of process. No value, line or form of one has fewer bytes than that.
        let is_clean = bytes.len() < VALUE_MIN || self.clean[kind].contains(bytes);
        if is_clean && self.socket.is_some() {
            return Some(Vec::new());
        }
        let found: Vec<FoundSecret> = self.ask(SearchQuestion::Find(patterns), bytes)?;
        if found.is_empty() && bytes.len() <= REMEMBERED_TEXT_MAX {
            let clean = &mut self.clean[kind];
            if clean.len() == REMEMBERED_MAX {
                clean.clear();
            }
            clean.insert(bytes.to_vec());
        }
        Some(found)
    }

    /// Its answer. Without one it is not asked again: a later answer could be that to an earlier question.
    fn ask<T: DeserializeOwned>(&mut self, question: SearchQuestion, text: &[u8]) -> Option<T> {
        let asked = self.socket.as_mut().map(|socket| {
            send(socket, question.number(), text)?;
            let (_, answer) = receive(socket, ANSWER_MAX)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            serde_json::from_slice(&answer).map_err(io::Error::other)
        });
        match asked {
            Some(Ok(answer)) => Some(answer),
            Some(Err(_)) | None => {
                self.socket = None;
                None
            }
        }
    }
}

/// A byte, four bytes of length, and the text.
pub(crate) fn send(socket: &mut UnixStream, number: u8, text: &[u8]) -> io::Result<()> {
    let length = u32::try_from(text.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let head = [&[number][..], &length.to_be_bytes()].concat();
    match text.len() {
        // One system call for most texts.
        0..=4096 => socket.write_all(&[head, text.to_vec()].concat()),
        _ => socket
            .write_all(&head)
            .and_then(|()| socket.write_all(text)),
    }
}

/// `None` if the other end is closed.
pub(crate) fn receive(socket: &mut UnixStream, max: usize) -> io::Result<Option<(u8, Vec<u8>)>> {
    let mut head = [0; 5];
    match socket.read_exact(&mut head) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let [number, length @ ..] = head;
    let length = u32::from_be_bytes(length) as usize;
    if length > max {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length];
    socket.read_exact(&mut text)?;
    Ok(Some((number, text)))
}
