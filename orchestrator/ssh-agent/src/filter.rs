//! The ssh agent of cells: speaks the agent's protocol (PROTOCOL.agent) with their programs, and has the user's own agent sign what the policy
//! lets it sign. See the README, "The ssh agent".
//!
//! A login is signed only in a session whose key exchange this gateway has seen in a connection of its own to an allowed host.
//! `session-bind@openssh.com` alone proves the key of a host, not that the session passes here: a program could present an exchange that was
//! made elsewhere. Comes from the supervisors, each connection with its call. Believes no program.

use crate::exchange::SeenExchange;
use crate::host_signature;
use crate::known_hosts::KnownHosts;
use crate::messages::{BIND, EXTENSION, FAILURE, IDENTITIES, IDENTITIES_WANTED, SIGN, SUCCESS};
use crate::seen::{SeenExchanges, WatchedConnection};
use crate::signed_data::{LoginData, SignedData, algorithm};
use crate::user_agent::{UserAgent, UserAgents, read_message, write_message};
use crate::wire::{WireReader, put_string};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use broker_protocol::CallId;
use broker_protocol::gateway::{
    FromGateway, HeldSignature, RequestAnswer, SIGNATURE_QUESTION, SignaturePurpose, SshSpec,
    known_host_name,
};
use ring::digest::{SHA256, digest};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, oneshot};

/// Longest message of a program, in bytes without its length.
const MESSAGE_MAX: usize = 32 * 1024;
/// Programs that are served at once; others see their connection closed.
const AT_ONCE: usize = 16;

const OTHER_MESSAGE: &str = "its ssh agent lists keys and signs, and does nothing else";
const OTHER_SESSION: &str = "its ssh agent signs logins in sessions that the gateway carries to a host of `[ssh]`, for the call that \
                             has connected, and this is none";
const OTHER_SIGNATURE: &str = "its ssh agent signs logins as the user of `[ssh]` in the session at hand, and for git where `[ssh]` has `sign`; \
                               this is neither, or of another key";
const OTHER_ALGORITHM: &str = "its ssh agent signs by an algorithm of the key's kind that the flags and the data name alike: by RSA with SHA-2, not \
                               SHA-1, and with no certificate";

/// The agent that the programs of a session have.
pub struct AgentFilter {
    specs: Vec<SshSpec>,
    known: KnownHosts,
    seen: SeenExchanges,
    agents: UserAgents,
    questions: SignatureQuestions,
    places: Semaphore,
    report: Box<dyn Fn(&AgentRefusal)>,
}

/// A refusal of a program by the agent, with its reason.
#[derive(Debug)]
pub struct AgentRefusal<'w> {
    pub call: CallId,
    /// The host of the session that the program's connection is bound to; empty without one.
    pub host: String,
    pub port: u16,
    pub why: &'w str,
}

impl AgentFilter {
    /// For these keys; `tell` takes questions to the broker, and `report` each refusal.
    pub fn new(
        specs: Vec<SshSpec>,
        known_hosts: &str,
        tell: impl Fn(FromGateway) + 'static,
        report: impl Fn(&AgentRefusal) + 'static,
    ) -> Self {
        let tell: Rc<dyn Fn(FromGateway)> = Rc::new(tell);
        Self {
            specs,
            known: KnownHosts::parse(known_hosts),
            seen: SeenExchanges::default(),
            agents: UserAgents::new(tell.clone()),
            questions: SignatureQuestions::new(tell),
            places: Semaphore::new(AT_ONCE),
            report: Box::new(report),
        }
    }

    /// Watches a connection of a call, if keys log in at its host. The host is in canonical form.
    pub fn watch(&self, host: &str, port: u16, call: CallId) -> Option<WatchedConnection> {
        let place = format!("{host}:{port}");
        let is_named = self.specs.iter().any(|spec| spec.hosts.contains(&place));
        is_named.then(|| self.seen.watch(host, port, call))
    }

    /// Takes a connection to the user's agent from the broker, or why there is none.
    pub fn deliver(&self, agent: Result<OwnedFd, String>) {
        self.agents.deliver(agent);
    }

    /// Takes the answer to a question about a signature.
    pub fn answer(&self, question: u32, answer: RequestAnswer) {
        self.questions.answer(question, answer);
    }

    /// Serves a program of this call until it ends its connection.
    pub(crate) async fn serve(&self, mut program: UnixStream, call: CallId) {
        let Ok(_place) = self.places.try_acquire() else {
            return;
        };
        let mut client = AgentClient {
            filter: self,
            call,
            binding: Binding::None,
            agent: None,
        };
        while let Ok(message) = read_message(&mut program, MESSAGE_MAX).await {
            let answer = client.answer(&message).await;
            let answer = answer.unwrap_or_else(|| vec![FAILURE]);
            if write_message(&mut program, &answer).await.is_err() {
                return;
            }
        }
    }
}

/// The session that a program's connection is bound to. It is bound once: a refused binding cannot be replaced either.
enum Binding {
    None,
    Bound(BoundSession),
    Refused,
}

#[derive(Clone)]
struct BoundSession {
    connection: u64,
    host: String,
    port: u16,
    session: Vec<u8>,
    host_key: Vec<u8>,
    message: Vec<u8>,
}

/// Why a program's connection is bound to no session.
enum Unbound {
    OtherSession,
    /// This host has shown a key that is not known to be its own.
    UnknownKey(String, u16),
}

/// The parts of a message `session-bind@openssh.com`, without its name.
struct WantedBinding<'a> {
    host_key: &'a [u8],
    session: &'a [u8],
    signature: &'a [u8],
}

impl<'a> WantedBinding<'a> {
    /// `None` for another form, and for a session that forwards the agent.
    fn read(mut reader: WireReader<'a>) -> Option<Self> {
        let (host_key, session) = (reader.string()?, reader.string()?);
        let (signature, is_forwarding) = (reader.string()?, reader.byte()?);
        (is_forwarding == 0 && reader.is_at_end()).then_some(Self {
            host_key,
            session,
            signature,
        })
    }
}

/// A program that is connected to the agent.
struct AgentClient<'f> {
    filter: &'f AgentFilter,
    call: CallId,
    binding: Binding,
    agent: Option<UserAgent>,
}

impl AgentClient<'_> {
    /// The answer to a message; `None` for a failure, which says no more to the program.
    async fn answer(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let (number, content) = message.split_first()?;
        match *number {
            EXTENSION => self.bind(message, content),
            IDENTITIES_WANTED => self.identities(content).await,
            SIGN => self.sign(message, content).await,
            // Nothing adds, removes or locks keys, and nothing else is asked of the user's agent.
            _ => self.refuse(OTHER_MESSAGE),
        }
    }

    /// Binds the connection to a session (`session-bind@openssh.com`), once.
    fn bind(&mut self, message: &[u8], content: &[u8]) -> Option<Vec<u8>> {
        let mut reader = WireReader::new(content);
        if reader.string()? != BIND {
            return self.refuse(OTHER_MESSAGE);
        }
        let bound = match self.binding {
            Binding::None => self.bound(message, reader),
            Binding::Bound(_) | Binding::Refused => Err(Unbound::OtherSession),
        };
        match bound {
            Ok(bound) => {
                self.binding = Binding::Bound(bound);
                Some(vec![SUCCESS])
            }
            Err(why) => {
                self.binding = Binding::Refused;
                self.refuse_session(why)
            }
        }
    }

    fn bound(&self, message: &[u8], reader: WireReader) -> Result<BoundSession, Unbound> {
        let wanted = WantedBinding::read(reader).ok_or(Unbound::OtherSession)?;
        let exchange = SeenExchange {
            host_key: wanted.host_key.to_vec(),
            signature: wanted.signature.to_vec(),
        };
        let found = self.filter.seen.find(&exchange);
        let (connection, place) = found.ok_or(Unbound::OtherSession)?;
        let is_signed = || host_signature::is_by(wanted.host_key, wanted.signature, wanted.session);
        if place.call != self.call || !is_signed() {
            return Err(Unbound::OtherSession);
        }
        let known = &self.filter.known;
        if !known.is_key_of(&place.host, place.port, wanted.host_key) {
            return Err(Unbound::UnknownKey(place.host, place.port));
        }
        Ok(BoundSession {
            connection,
            host: place.host,
            port: place.port,
            session: wanted.session.to_vec(),
            host_key: wanted.host_key.to_vec(),
            message: message.to_vec(),
        })
    }

    /// The keys of the policy that the user's agent has: those for the host, if the connection is bound.
    async fn identities(&mut self, content: &[u8]) -> Option<Vec<u8>> {
        if !content.is_empty() {
            return None;
        }
        let keys = self.agent().await?.keys().await.ok()?;
        let named = |key: &Vec<u8>| Some((key.clone(), self.named(key)?));
        let listed: Vec<_> = keys.iter().filter_map(named).collect();
        let mut answer = vec![IDENTITIES];
        answer.extend(u32::try_from(listed.len()).ok()?.to_be_bytes());
        for (key, spec) in listed {
            put_string(&mut answer, &key);
            // Not the comment of the user's: it names a person or a file.
            put_string(&mut answer, spec.name.as_bytes());
        }
        Some(answer)
    }

    /// The first entry of the policy that names a key, where it may be used now.
    fn named(&self, key: &[u8]) -> Option<&SshSpec> {
        let fingerprint = fingerprint(key);
        let mut specs = self.filter.specs.iter();
        specs.find(|spec| {
            let is_here = match &self.binding {
                Binding::None => true,
                Binding::Bound(bound) => is_for(spec, bound),
                Binding::Refused => false,
            };
            is_here && spec.keys.contains(&fingerprint)
        })
    }

    async fn sign(&mut self, message: &[u8], content: &[u8]) -> Option<Vec<u8>> {
        let mut reader = WireReader::new(content);
        let (key, data, flags) = (reader.string()?, reader.string()?, reader.number()?);
        if !reader.is_at_end() {
            return None;
        }
        let Some(algorithm) = algorithm(key, flags) else {
            return self.refuse(OTHER_ALGORITHM);
        };
        let wanted = match SignedData::read(data) {
            Some(SignedData::Login(login)) if login.algorithm != algorithm => {
                return self.refuse(OTHER_ALGORITHM);
            }
            Some(SignedData::Login(login)) => self.login(&login, key),
            Some(SignedData::Git) => self.git(key),
            None => None,
        };
        let Some((ssh, purpose)) = wanted else {
            return self.refuse(OTHER_SIGNATURE);
        };
        let questions = &self.filter.questions;
        let answer = questions.ask(self.call, ssh, purpose).await;
        if let Some(why) = not_granted(answer) {
            return self.refuse(why);
        }
        // An answer may take long: the connection may be gone by now.
        if let Binding::Bound(bound) = &self.binding
            && !self.filter.seen.is_live(bound.connection)
        {
            return None;
        }
        self.agent().await?.sign(message).await.ok()
    }

    /// The entry by which a login is signed: in the session that the connection is bound to, for its host, user and key.
    fn login(&self, login: &LoginData, key: &[u8]) -> Option<(u16, SignaturePurpose)> {
        let Binding::Bound(bound) = &self.binding else {
            return None;
        };
        let is_session = login.session == bound.session
            && login.key == key
            && login.host_key.is_none_or(|named| named == bound.host_key)
            && self.filter.seen.is_live(bound.connection);
        let fingerprint = fingerprint(key);
        let may = |spec: &SshSpec| {
            is_session
                && is_for(spec, bound)
                && spec.user.as_bytes() == login.user
                && spec.keys.contains(&fingerprint)
        };
        let ssh = self.filter.specs.iter().position(may)?;
        let purpose = SignaturePurpose::Login {
            host: bound.host.clone(),
            port: bound.port,
        };
        Some((u16::try_from(ssh).ok()?, purpose))
    }

    /// The entry by which a signature of git's is made, in a connection that is bound to nothing.
    fn git(&self, key: &[u8]) -> Option<(u16, SignaturePurpose)> {
        let Binding::None = self.binding else {
            return None;
        };
        let fingerprint = fingerprint(key);
        let may = |spec: &SshSpec| spec.signs && spec.keys.contains(&fingerprint);
        let ssh = self.filter.specs.iter().position(may)?;
        Some((u16::try_from(ssh).ok()?, SignaturePurpose::Git))
    }

    fn refuse_session<T>(&self, why: Unbound) -> Option<T> {
        match why {
            Unbound::OtherSession => self.refuse(OTHER_SESSION),
            Unbound::UnknownKey(host, port) => {
                let why = unknown_key(&known_host_name(&host, port));
                self.refuse_at((host, port), &why)
            }
        }
    }

    /// Reports that a program gets nothing, and why.
    fn refuse<T>(&self, why: &str) -> Option<T> {
        let place = match &self.binding {
            Binding::Bound(bound) => (bound.host.clone(), bound.port),
            Binding::None | Binding::Refused => Default::default(),
        };
        self.refuse_at(place, why)
    }

    fn refuse_at<T>(&self, (host, port): (String, u16), why: &str) -> Option<T> {
        (self.filter.report)(&AgentRefusal {
            call: self.call,
            host,
            port,
            why,
        });
        None
    }

    /// The user's agent, connected when it is first needed.
    async fn agent(&mut self) -> Option<&mut UserAgent> {
        if self.agent.is_none() {
            let mut agent = match self.filter.agents.connect().await {
                Ok(agent) => agent,
                Err(why) => return self.refuse(&format!("its ssh agent has none to ask: {why}")),
            };
            if let Binding::Bound(bound) = &self.binding {
                agent.bind(&bound.message).await.ok()?;
            }
            self.agent = Some(agent);
        }
        self.agent.as_mut()
    }
}

/// Why there is no signature, if the broker has not granted it.
fn not_granted(answer: RequestAnswer) -> Option<&'static str> {
    match answer {
        RequestAnswer::Granted => None,
        RequestAnswer::Refused => Some("the user has not allowed its ssh agent to sign"),
        // No grant of a signature is kept.
        RequestAnswer::Kept | RequestAnswer::Expired => {
            Some("nobody has allowed its ssh agent to sign in time")
        }
        RequestAnswer::NoCall => {
            Some("its ssh agent signs by asking, and no client waits for this call")
        }
        RequestAnswer::TooMany => Some("its call has asked about signatures too often"),
    }
}

/// Names the host as `known_hosts` does, once: the longest name leaves room for so much.
fn unknown_key(name: &str) -> String {
    format!(
        "its ssh agent signs no login at {name}: no line of exactly this name in `known_hosts` has the host's key, or one revokes it; names with \
         `*`, `?` or `!` do not count. Compare the key, add a line, and open a new session"
    )
}

fn is_for(spec: &SshSpec, bound: &BoundSession) -> bool {
    spec.hosts
        .contains(&format!("{}:{}", bound.host, bound.port))
}

/// A key as `ssh-keygen -l` names it.
fn fingerprint(key: &[u8]) -> String {
    format!(
        "SHA256:{}",
        STANDARD_NO_PAD.encode(digest(&SHA256, key).as_ref())
    )
}

/// Signatures that wait until the broker has answered: it decides on each, and records it.
struct SignatureQuestions {
    waiting: RefCell<HashMap<u32, oneshot::Sender<RequestAnswer>>>,
    last: Cell<u32>,
    tell: Rc<dyn Fn(FromGateway)>,
}

impl SignatureQuestions {
    fn new(tell: Rc<dyn Fn(FromGateway)>) -> Self {
        Self {
            waiting: RefCell::default(),
            last: Cell::new(0),
            tell,
        }
    }

    async fn ask(&self, call: CallId, ssh: u16, purpose: SignaturePurpose) -> RequestAnswer {
        self.last.set(self.last.get().wrapping_add(1));
        let question = self.last.get() | SIGNATURE_QUESTION;
        let (waiting, answered) = oneshot::channel();
        self.waiting.borrow_mut().insert(question, waiting);
        (self.tell)(FromGateway::SignatureWanted(HeldSignature {
            question,
            call,
            ssh,
            purpose,
        }));
        answered.await.unwrap_or(RequestAnswer::Expired)
    }

    /// One that nobody has asked is dropped.
    fn answer(&self, question: u32, answer: RequestAnswer) {
        if let Some(waiting) = self.waiting.borrow_mut().remove(&question) {
            let _ = waiting.send(answer);
        }
    }
}

#[cfg(test)]
mod tests;
