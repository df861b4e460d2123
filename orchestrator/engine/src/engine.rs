//! The state of a session, owned by one task: its tools, its connection and its counters.

use crate::connections;
use crate::executor::{Dial, ExecutorConnection, ExecutorError, Greeting};
use crate::hooks::HookGuard;
use crate::publish::{Hub, Publisher, RawEvent, Subscriber};
use crate::refused_hosts::RefusedHosts;
use crate::unreported::Unreported;
use broker_protocol::{
    Denial, ErrorKind, Failed, Open, Opened, Scope, SessionGrant, Traced, Trust, ZonePath, limit,
};
use orchestrator_results::profile::{ModelProfile, WHOLE};
use orchestrator_results::render::Renderer;
use orchestrator_results::violation::SecurityEvent;
use orchestrator_text::redact::Redactor;
use orchestrator_text::sanitize::Sanitizer;
use policies::network::Leasing;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::{Mutex, Semaphore};

/// Most hooks of a session that run at once: each has a session of its own with the executor.
const HOOKS_RUNNING_MAX: usize = 8;

/// The values that a session is started with.
pub struct Config<T = ()> {
    /// The session to request from the executor.
    pub open: Open,
    /// The working directory of commands that name none; `None` for the project root.
    pub directory: Option<ZonePath>,
    /// A connection that has already sent this request.
    pub greeting: Option<Greeting>,
    /// How to reach the executor again when a session is lost; `None` if there is to be only one session.
    pub executor: Option<Box<dyn Dial>>,
    /// The tools that its front ends call by name.
    pub tools: T,
    /// How much of a result is shown to the model.
    pub profile: &'static ModelProfile,
    /// Knows the secrets to remove.
    pub redactor: &'static Redactor,
    /// How many violations end the session; `None`: any number is tolerated.
    pub max_violations: Option<u32>,
    /// Whether the session has a single call: a file that it changes is read first, and no background process is left.
    pub single_call: bool,
    pub subscribers: Vec<Rc<dyn Subscriber>>,
    /// Whether the user's hooks are asked about its calls.
    pub guard: HookGuard,
}

impl<T: Default> Config<T> {
    /// A single session: front ends see everything except what `redactor` knows.
    pub fn new(open: Open, redactor: &'static Redactor, guard: HookGuard) -> Self {
        Self {
            open,
            guard,
            directory: None,
            greeting: None,
            executor: None,
            tools: T::default(),
            profile: &WHOLE,
            redactor,
            max_violations: None,
            single_call: false,
            subscribers: Vec::new(),
        }
    }
}

/// Cancels a call without time for its command to end by itself.
pub(crate) type EndCall = Box<dyn Fn()>;

pub(crate) struct Engine {
    pub profile: &'static ModelProfile,
    pub scope: Option<Scope>,
    pub single_call: bool,
    pub directory: Option<ZonePath>,
    pub(crate) hub: Rc<Hub>,
    /// Bounds the calls in progress that involve more than the executor.
    pub outside: Semaphore,
    pub guard: HookGuard,
    /// Bounds the hooks that run at once.
    pub(crate) hook_places: Semaphore,
    /// How each call in progress is ended, by its number.
    pub under_way: RefCell<HashMap<u64, EndCall>>,
    numbers: Arc<AtomicU64>,
    max_violations: Option<u32>,
    violations: Cell<u32>,
    over: Arc<AtomicBool>,
    /// The trust: that of the session's opening, or a lower one since.
    trust: Cell<Trust>,
    open: Open,
    executor: Option<Box<dyn Dial>>,
    greeting: Cell<Option<Greeting>>,
    connection: RefCell<Option<Rc<ExecutorConnection>>>,
    /// The hosts that cells were refused, for the results of commands.
    pub(crate) refused_hosts: Rc<RefusedHosts>,
    /// Findings in the project that no result has reported yet.
    pub found: Unreported,
    /// Held while a connection is opened, so that there is never a second one.
    connecting: Mutex<()>,
}

impl Engine {
    /// The engine of a session, and the tools that its calls are made with.
    pub(crate) fn new<T>(
        config: Config<T>,
        numbers: Arc<AtomicU64>,
        over: Arc<AtomicBool>,
    ) -> (Rc<Self>, T) {
        let (sanitizer, subscribers) = (Sanitizer::new(config.redactor), config.subscribers);
        let engine = Self {
            profile: config.profile,
            scope: config.open.scope.clone(),
            single_call: config.single_call,
            directory: config.directory,
            hub: Rc::new(Hub {
                sanitizer,
                subscribers,
            }),
            outside: Semaphore::new(limit::CALLS),
            guard: config.guard,
            hook_places: Semaphore::new(HOOKS_RUNNING_MAX),
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
            refused_hosts: Rc::default(),
            found: Unreported::default(),
            connecting: Mutex::new(()),
        };
        (Rc::new(engine), config.tools)
    }

    /// The number of a call within a batch.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A renderer of results for a model that is shown as much as `profile` says.
    pub(crate) fn renderer<'a>(
        &self,
        connection: &'a ExecutorConnection,
        profile: &'static ModelProfile,
    ) -> Renderer<'a> {
        Renderer {
            roots: connection.roots(),
            profile,
            redactor: self.hub.sanitizer.redactor(),
        }
    }

    /// The scope's time limit, in seconds, for a call of `tool` that the orchestrator carries out.
    pub(crate) fn scope_timeout_s(&self, tool: &str) -> u32 {
        let permissions = self.scope.iter().flat_map(|scope| &scope.permissions);
        let longest = permissions
            .filter(|one| one.tool == tool)
            .find_map(|one| one.timeout_s);
        longest.unwrap_or(limit::TIMEOUT_S)
    }

    /// Refuses every call once the violations have ended the session.
    pub(crate) fn check_violations(&self) -> Result<(), Failed> {
        let Some(violations) = self.fatal_violations() else {
            return Ok(());
        };
        let message =
            format!("the session ended after {violations} violations; it makes no more calls");
        Err(Failed {
            kind: ErrorKind::DeniedPolicy,
            message,
        })
    }

    /// The number of violations, if it ends the session.
    pub(crate) fn fatal_violations(&self) -> Option<u32> {
        let violations = self.violations.get();
        self.max_violations
            .filter(|max| violations >= *max)
            .map(|_| violations)
    }

    /// Other paths of the project root.
    pub(crate) fn names(&self) -> &[String] {
        &self.open.names
    }

    /// Counts a violation. If the limit is reached, cancels every other call.
    pub(crate) fn count_violation(&self, call: u64, tool: &str, message: &str) -> SecurityEvent {
        let count = self.violations.get() + 1;
        self.violations.set(count);
        if self.fatal_violations().is_some() {
            self.over.store(true, Ordering::Relaxed);
            let under_way = self.under_way.borrow();
            under_way
                .iter()
                .filter(|(number, _)| **number != call)
                .for_each(|(_, end)| end());
        }
        SecurityEvent::new(tool, message, count, self.max_violations)
    }

    /// A connection that is alive, as far as is known. If a new one is opened, `publisher` announces it.
    pub(crate) async fn connection(
        &self,
        publisher: &Publisher,
    ) -> Result<Rc<ExecutorConnection>, Failed> {
        match self.alive() {
            Some(connection) => Ok(connection),
            // Boxed: every call would carry the state of this step, and few take it.
            None => Box::pin(self.connect(publisher)).await,
        }
    }

    async fn connect(&self, publisher: &Publisher) -> Result<Rc<ExecutorConnection>, Failed> {
        let _connecting = self.connecting.lock().await;
        if let Some(connection) = self.alive() {
            return Ok(connection);
        }
        let connection = loop {
            let trust = self.trust.get();
            let connection = Rc::new(self.greet(trust)?.opened().await?);
            // A connection opened with more trust than the session has now is not used.
            if trust == self.trust.get() {
                break connection;
            }
        };
        self.found.listen(connection.found());
        self.connection.replace(Some(connection.clone()));
        let leases = self
            .open
            .network
            .as_ref()
            .is_some_and(|network| network.leases);
        connections::listen(
            &self.hub,
            &self.refused_hosts,
            &connection,
            Leasing::offered_if(leases),
        )?;
        // A front end that is gone misses nothing.
        let _ = publisher
            .publish(RawEvent::SessionOpened(connection.opened()))
            .await;
        Ok(connection)
    }

    /// Requests a session with `trust`, unless that was already done.
    fn greet(&self, trust: Trust) -> Result<Greeting, Failed> {
        match (self.greeting.take(), &self.executor) {
            (Some(greeting), _) => Ok(greeting),
            (None, Some(executor)) => Ok(Greeting::open(
                &**executor,
                Open {
                    trust,
                    ..self.open.clone()
                },
            )?),
            (None, None) => Err(ExecutorError::Lost.into()),
        }
    }

    pub(crate) async fn opened(&self) -> Result<Opened, Failed> {
        let connection = self.connection(&self.hub.of_session()).await?;
        Ok(connection.opened().clone())
    }

    /// Lowers the trust from the next call on. This opens another session, since the executor holds a session to the trust it was
    /// opened with. Calls in progress continue in theirs.
    pub(crate) fn lower_trust(&self, trust: Trust) {
        // If no session can be opened again, the trust stays: lowering it takes effect only through the executor.
        if trust < self.trust.get() && self.executor.is_some() {
            self.trust.set(trust);
            self.greeting.set(None);
            self.connection.replace(None);
        }
    }

    /// Ends the session, if one is open; the future is ready when its executor has ended.
    pub(crate) fn close(&self) -> impl Future<Output = ()> + 'static {
        let open = self.alive();
        async move {
            if let Some(connection) = open {
                connection.close().await;
            }
        }
    }

    pub(crate) fn alive(&self) -> Option<Rc<ExecutorConnection>> {
        self.connection
            .borrow()
            .as_ref()
            .filter(|connection| connection.is_alive())
            .cloned()
    }

    pub(crate) async fn grants(&self, revoke: Option<u64>) -> Result<Vec<SessionGrant>, Failed> {
        let connection = self.connection(&self.hub.of_session()).await?;
        let standing = connection.standing_grants(None).await?;
        match revoke {
            None => Ok(standing),
            Some(grant) if standing.iter().any(|one| one.grant == grant) => {
                connection.standing_grants(revoke).await
            }
            Some(grant) => {
                let message = format!("there is no grant {grant} in this session");
                Err(Failed {
                    kind: ErrorKind::NotFound,
                    message,
                })
            }
        }
    }

    /// The denials of these failed calls, as far as the cell denied them, in a throw-away session.
    pub(crate) async fn explain(&self, traced: Vec<Traced>) -> Result<Vec<Option<Denial>>, Failed> {
        let connection = self.alive().ok_or(ExecutorError::Lost)?;
        connection.explain(traced).await
    }

    /// Revokes the grants for `tool`: the next tool with that name is a different one. A lost session has no grants.
    pub(crate) async fn revoke_grants(&self, tool: &str) {
        let Some(connection) = self.alive() else {
            return;
        };
        let standing = connection.standing_grants(None).await.unwrap_or_default();
        for one in standing.iter().filter(|one| one.tool == tool) {
            // A grant that ended in the meantime is revoked too.
            let _ = connection.standing_grants(Some(one.grant)).await;
        }
    }
}
