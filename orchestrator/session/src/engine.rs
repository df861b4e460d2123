//! The state of a session, owned by one task: its tools, its connection, what it has counted.

use crate::executor::{Connection, Dial, ExecutorError, Greeting};
use crate::publish::{Hub, Publisher, RawEvent, Subscriber};
use crate::refused_hosts::RefusedHosts;
use crate::relay::{self, CarriedNetwork};
use broker_protocol::{Denial, Failed, Open, Opened, Scope, SessionGrant, Traced, Trust, ZonePath, limit};
use orchestrator_text::redact::Redactor;
use orchestrator_text::sanitize::Sanitizer;
use orchestrator_tools::profile::{Profile, WHOLE};
use orchestrator_tools::registry::Registry;
use orchestrator_tools::render::Renderer;
use orchestrator_tools::violation::SecurityEvent;
use orchestrator_web::WebClient;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;

/// What a session is started with.
pub struct Config {
    /// The session to ask the executor for.
    pub open: Open,
    /// Where commands start that name no directory; `None` for the project root.
    pub directory: Option<ZonePath>,
    /// A connection on which that is asked for already.
    pub greeting: Option<Greeting>,
    /// How to reach the executor when a session is lost; `None` where one session is all there is.
    pub executor: Option<Box<dyn Dial>>,
    /// The tools.
    pub registry: Registry,
    /// The longest time that the policy gives a command, in seconds.
    pub timeout_max_s: u32,
    /// The way to the web; without it, no web tool works.
    pub web: Option<WebClient>,
    /// How much of a result the model is shown.
    pub profile: &'static Profile,
    /// Knows the secrets.
    pub redactor: &'static Redactor,
    /// How many violations end the session; `None`: none does.
    pub max_violations: Option<u32>,
    /// Whether the session has a single call: a file that it changes is read first, and nothing is left in the background.
    pub single_call: bool,
    /// Hear every event.
    pub subscribers: Vec<Rc<dyn Subscriber>>,
}

impl Config {
    /// One session, in which nothing is hidden from a front end but what `redactor` knows, and the web is out of reach.
    pub fn new(open: Open, redactor: &'static Redactor) -> Self {
        Self {
            open,
            directory: None,
            greeting: None,
            executor: None,
            registry: Registry::default(),
            timeout_max_s: limit::TIMEOUT_S,
            web: None,
            profile: &WHOLE,
            redactor,
            max_violations: None,
            single_call: false,
            subscribers: Vec::new(),
        }
    }
}

pub(crate) struct Engine {
    pub registry: RefCell<Registry>,
    pub web: Option<WebClient>,
    pub profile: &'static Profile,
    pub scope: Option<Scope>,
    pub timeout_max_s: u32,
    pub single_call: bool,
    pub directory: Option<ZonePath>,
    pub hub: Rc<Hub>,
    /// As many calls as may be under way at once that are not the executor's alone to carry out.
    pub outside: Semaphore,
    /// Held while a file of state is read and replaced.
    pub state: Mutex<()>,
    /// Cancels each call under way, by its number.
    pub under_way: RefCell<HashMap<u64, CancellationToken>>,
    numbers: Arc<AtomicU64>,
    max_violations: Option<u32>,
    violations: Cell<u32>,
    over: Arc<AtomicBool>,
    /// How much is asked: what the session was opened with, or less trust since.
    trust: Cell<Trust>,
    open: Open,
    executor: Option<Box<dyn Dial>>,
    greeting: Cell<Option<Greeting>>,
    connection: RefCell<Option<Rc<Connection>>>,
    /// Carries the connections of the cells of that session, if they have a network.
    relay: RefCell<Option<CarriedNetwork>>,
    /// What these were refused, for the results of commands.
    pub refused_hosts: Rc<RefusedHosts>,
    /// Held while a connection is made, so that only one is.
    connecting: Mutex<()>,
}

impl Engine {
    pub fn new(config: Config, numbers: Arc<AtomicU64>, over: Arc<AtomicBool>) -> Rc<Self> {
        let (sanitizer, subscribers) = (Sanitizer::new(config.redactor), config.subscribers);
        Rc::new(Self {
            registry: RefCell::new(config.registry),
            web: config.web,
            profile: config.profile,
            scope: config.open.scope.clone(),
            timeout_max_s: config.timeout_max_s,
            single_call: config.single_call,
            directory: config.directory,
            hub: Rc::new(Hub { sanitizer, subscribers }),
            outside: Semaphore::new(limit::CALLS),
            state: Mutex::new(()),
            under_way: RefCell::default(),
            numbers,
            max_violations: config.max_violations,
            violations: Cell::new(0),
            over,
            trust: Cell::new(config.open.trust),
            open: config.open,
            executor: config.executor,
            greeting: Cell::new(config.greeting),
            connection: RefCell::default(),
            relay: RefCell::default(),
            refused_hosts: Rc::default(),
            connecting: Mutex::new(()),
        })
    }

    /// The number of a call within a batch.
    pub fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Renders results for a model that is shown as much as `profile` says.
    pub fn renderer<'a>(&self, connection: &'a Connection, profile: &'static Profile) -> Renderer<'a> {
        Renderer { roots: connection.roots(), profile, redactor: self.hub.sanitizer.redactor() }
    }

    /// How long a call of `tool` may take that we carry out, in seconds, by the session's scope.
    pub fn scope_timeout_s(&self, tool: &str) -> u32 {
        let permissions = self.scope.iter().flat_map(|scope| &scope.permissions);
        let longest = permissions.filter(|one| one.tool == tool).find_map(|one| one.timeout_s);
        longest.unwrap_or(limit::TIMEOUT_S)
    }

    /// How many violations there were, if they end the session.
    pub fn fatal_violations(&self) -> Option<u32> {
        let violations = self.violations.get();
        self.max_violations.filter(|max| violations >= *max).map(|_| violations)
    }

    /// Counts a violation. The last one that the session bears cancels every other call.
    pub fn count_violation(&self, call: u64, tool: &str, message: &str) -> SecurityEvent {
        let count = self.violations.get() + 1;
        self.violations.set(count);
        if self.fatal_violations().is_some() {
            self.over.store(true, Ordering::Relaxed);
            let under_way = self.under_way.borrow();
            under_way.iter().filter(|(number, _)| **number != call).for_each(|(_, token)| token.cancel());
        }
        SecurityEvent::new(tool, message, count, self.max_violations)
    }

    /// A connection that is alive, as far as is known; a new one is announced by `publisher`.
    pub async fn connection(&self, publisher: &Publisher) -> Result<Rc<Connection>, Failed> {
        tracing::trace!("find the connection");
        if let Some(connection) = self.alive() {
            return Ok(connection);
        }
        let _connecting = self.connecting.lock().await;
        if let Some(connection) = self.alive() {
            return Ok(connection);
        }
        let connection = loop {
            let trust = self.trust.get();
            let connection = Rc::new(self.greet(trust)?.opened().await?);
            // One that was opened with more trust than there is by now serves nobody.
            if trust == self.trust.get() {
                break connection;
            }
        };
        self.connection.replace(Some(connection.clone()));
        let leases = self.open.network.as_ref().is_some_and(|network| network.leases);
        self.relay.replace(relay::start(&self.hub, &self.refused_hosts, &connection, leases)?);
        // A front end that is gone misses nothing.
        let _ = publisher.publish(RawEvent::SessionOpened(connection.opened())).await;
        Ok(connection)
    }

    /// Asks for a session with `trust`, if that was not done already.
    fn greet(&self, trust: Trust) -> Result<Greeting, Failed> {
        match (self.greeting.take(), &self.executor) {
            (Some(greeting), _) => Ok(greeting),
            (None, Some(executor)) => Ok(Greeting::open(&**executor, Open { trust, ..self.open.clone() })?),
            (None, None) => Err(ExecutorError::Lost.into()),
        }
    }

    pub async fn opened(&self) -> Result<Opened, Failed> {
        let connection = self.connection(&self.hub.of_session()).await?;
        Ok(connection.opened().clone())
    }

    /// Asks more from the next call on: that opens another session, because the executor holds one to the trust that it was opened
    /// with. Calls under way go on in theirs.
    pub fn lower_trust(&self, trust: Trust) {
        // A session that cannot be opened again stays as it is: the executor has to hear it.
        if trust < self.trust.get() && self.executor.is_some() {
            self.trust.set(trust);
            self.greeting.set(None);
            self.connection.replace(None);
        }
    }

    pub fn alive(&self) -> Option<Rc<Connection>> {
        self.connection.borrow().as_ref().filter(|connection| connection.is_alive()).cloned()
    }

    pub async fn grants(&self, revoke: Option<u64>) -> Result<Vec<SessionGrant>, Failed> {
        let connection = self.connection(&self.hub.of_session()).await?;
        let standing = connection.standing_grants(None).await?;
        match revoke {
            None => Ok(standing),
            Some(grant) if standing.iter().any(|one| one.grant == grant) => {
                connection.standing_grants(revoke).await
            }
            Some(grant) => {
                let message = format!("there is no grant {grant} in this session");
                Err(Failed { kind: broker_protocol::ErrorKind::NotFound, message })
            }
        }
    }

    /// Which of these the cell has closed, in a session that is thrown away.
    pub async fn explain(&self, traced: Vec<Traced>) -> Result<Vec<Option<Denial>>, Failed> {
        let connection = self.alive().ok_or(ExecutorError::Lost)?;
        connection.explain(traced).await
    }

    /// Takes back what was granted for `tool`: the next tool of that name is another. A session that is lost has no grants.
    pub async fn revoke_grants(&self, tool: &str) {
        let Some(connection) = self.alive() else { return };
        let standing = connection.standing_grants(None).await.unwrap_or_default();
        for one in standing.iter().filter(|one| one.tool == tool) {
            // One that is gone meanwhile is taken back too.
            let _ = connection.standing_grants(Some(one.grant)).await;
        }
    }
}
