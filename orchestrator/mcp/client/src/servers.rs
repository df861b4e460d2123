//! The servers of a session: the state of each, and the one path from a tool call to its answer.
//!
//! A server with accepted tools is started only when one of them is called: until then, its tools are the pinned ones. A server never seen
//! before is started to list its tools. A server that is gone is restarted when it is needed. No server waits for another.

use crate::address::NamedAddress;
use crate::http::RemoteServer;
use crate::live::{CONNECT, LiveServer, ServerWatch};
use crate::log::Ring;
use crate::login;
use crate::pins::{AcceptedTools, Difference, ListedTool, ToolChanges};
use crate::settings::{ServerAddress, ServerKind, ServerProgram, ServerSettings, Share};
use crate::state::ServerState;
use crate::store::{self, ServerFiles};
use crate::tool_changes::ToolChange;
use broker_protocol::paste::shell_word;
use broker_protocol::{
    Command, ErrorKind, Failed, NetworkRequest, Open, Opened, Permission, Risk, Scope, Service,
    Trust, Variable, Zone, ZonePath,
};
use http::header::AUTHORIZATION;
use orchestrator_engine::Session;
use orchestrator_engine::execution::{Execution, Executions, OutsideReply};
use orchestrator_engine::executor::Dial;
use orchestrator_engine::service::RunningService;
use orchestrator_engine::{NewTool, ToolOrigin};
use orchestrator_text::redact::Redactor;
use orchestrator_text::secret_environment;
use orchestrator_text::variables;
use orchestrator_tools::name;
use orchestrator_tools::registry::Registry;
use serde_json::Value;
use std::cell::{self, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::fmt::Display;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Notify, mpsc};
use tokio::task::{JoinHandle, JoinSet, spawn_local};
use tokio::time::{sleep, timeout};

/// Consecutive failures after which a session no longer starts a server.
const FAILURES_MAX: u32 = 5;
/// After a notification that tools have changed, how long until the next one is followed.
const RELIST: Duration = Duration::from_secs(5);
/// How often to look whether a person has accepted the tools that wait for that.
const ACCEPTED: Duration = Duration::from_secs(2);

/// The servers of a session.
pub(crate) struct Servers {
    all: Vec<Rc<Managed>>,
    executions: Executions,
    received: cell::Cell<Option<mpsc::UnboundedReceiver<Execution>>>,
    /// The server and the tool behind each name in the session.
    names: RefCell<HashMap<String, (usize, String)>>,
    changed_tools: cell::Cell<Option<mpsc::UnboundedReceiver<ToolChange>>>,
}

/// The state of one server, for people.
#[derive(Debug)]
pub struct ServerReport {
    pub server: String,
    /// The pinned tools that a session offers, or why it has none.
    pub tools: Result<Vec<ListedTool>, Failed>,
    /// Differences from the accepted tools.
    pub changes: ToolChanges,
    /// Each tool that is new or changed, as it was accepted and as it is listed.
    pub(crate) differences: Vec<Difference>,
    /// The whole list of the server: what is accepted with this report.
    pub listed: Vec<ListedTool>,
    /// Tools that cannot be offered, each with the reason.
    pub refused: Vec<String>,
}

struct Managed {
    server: ServerSettings,
    place: ServerFiles,
    means: ServerAccess,
    watched: Rc<ServerWatch>,
    pins: RefCell<Option<AcceptedTools>>,
    /// Its last list, and how it differs from the pins.
    listed: RefCell<Vec<ListedTool>>,
    changes: RefCell<ToolChanges>,
    live: Mutex<Option<Rc<LiveServer>>>,
    failures: cell::Cell<u32>,
    /// Watches for the notification that its tools have changed.
    watch: RefCell<Option<Watch>>,
    /// Its place in the session, and where changes of its tools are reported. At most one waits for each list and each acceptance.
    changed_tools: (usize, mpsc::UnboundedSender<ToolChange>),
}

/// The means to reach a server.
enum ServerAccess {
    Program(Box<ServerCell>),
    Address(ServerAddress),
}

/// A program, and the session in which to start it.
struct ServerCell {
    program: ServerProgram,
    open: Open,
    directory: Option<ZonePath>,
    /// It may see the project's root, and is told of it.
    sees_root: bool,
}

/// A task that ends with this value.
pub(crate) struct Watch(JoinHandle<()>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Servers {
    /// The servers of the session in `session`. Reads their pins, so it has to come before we confine ourselves.
    pub(crate) fn new(
        servers: Vec<ServerSettings>,
        session: &Open,
        redactor: &'static Redactor,
    ) -> Self {
        let (executions, received) = mpsc::unbounded_channel();
        let (sender, changed_tools) = mpsc::unbounded_channel();
        let mut all = Vec::new();
        for server in servers {
            let changed_tools = (all.len(), sender.clone());
            all.extend(Managed::new(server, session, redactor, changed_tools).map(Rc::new));
        }
        Self {
            all,
            executions,
            received: cell::Cell::new(Some(received)),
            names: RefCell::default(),
            changed_tools: cell::Cell::new(Some(changed_tools)),
        }
    }

    /// Whether there are none.
    pub(crate) fn are_none(&self) -> bool {
        self.all.is_empty()
    }

    /// Starts the servers whose tools are not known yet, in parallel, and registers the tools of all servers in `registry`. Those
    /// that fail are left out; returns why.
    pub(crate) async fn register(
        &self,
        dial: &Rc<dyn Dial>,
        registry: &mut Registry,
    ) -> Vec<Failed> {
        let mut opening = JoinSet::new();
        for managed in self
            .all
            .iter()
            .filter(|managed| managed.pins.borrow().is_none())
        {
            let (managed, dial) = (managed.clone(), dial.clone());
            opening.spawn_local(async move { managed.live(&dial).await.map(drop) });
        }
        let mut failed = Vec::new();
        while let Some(opened) = opening.join_next().await {
            failed.extend(opened.ok().and_then(Result::err));
        }
        self.register_pinned(registry);
        failed
    }

    /// The names of the registered tools, in their order.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.names.borrow().keys().cloned().collect()
    }

    /// Registers the tools that are already known.
    fn register_pinned(&self, registry: &mut Registry) {
        for (at, managed) in self.all.iter().enumerate() {
            // A server's name is unique: it is a key in the settings.
            let _ = registry.add_server(&managed.server.name);
            let pins = managed.pins.borrow();
            let mut refused = Vec::new();
            for tool in pins
                .iter()
                .flat_map(AcceptedTools::tools)
                .filter(|tool| managed.offers(&tool.name))
            {
                let name = tool.name.clone();
                match registry.register(managed.tool(tool, &self.executions)) {
                    Ok(registered) => {
                        registered
                            .warning
                            .iter()
                            .for_each(|warning| managed.watched.note(warning));
                        self.names.borrow_mut().insert(registered.name, (at, name));
                    }
                    Err(error) => refused.push(refusal(&name, &error)),
                }
            }
            refused
                .iter()
                .for_each(|refusal| managed.watched.note(refusal));
            managed.write_log();
        }
    }

    /// Carries out calls of the tools, each as a task of its own, until the returned value is dropped. Needs a local runtime.
    pub(crate) fn serve(self: &Rc<Self>, dial: Rc<dyn Dial>) -> Option<Watch> {
        let mut received = self.received.take()?;
        let servers = self.clone();
        Some(Watch(spawn_local(async move {
            while let Some(execution) = received.recv().await {
                let (servers, dial) = (servers.clone(), dial.clone());
                drop(spawn_local(async move {
                    servers.execute(execution, &dial).await
                }));
            }
        })))
    }

    /// Tells `tell` of changes, and registers in `session` what a person has accepted, each time followed by `renewed`, until the
    /// returned value is dropped. Needs a local runtime.
    pub(crate) fn follow(
        self: &Rc<Self>,
        session: Session,
        tell: impl Fn(String) + 'static,
        renewed: impl Fn() + 'static,
    ) -> Option<Watch> {
        let mut changed_tools = self.changed_tools.take()?;
        let servers = self.clone();
        Some(Watch(spawn_local(async move {
            while let Some(change) = changed_tools.recv().await {
                match change {
                    ToolChange::Differs(text) => tell(text),
                    ToolChange::Accepted { server, tools } => {
                        tell(servers.renew(&session, server, tools).await);
                        renewed();
                    }
                }
            }
        })))
    }

    /// Registers accepted tools in place of those with the same names at their server; returns what to tell about it.
    async fn renew(&self, session: &Session, at: usize, tools: Vec<ListedTool>) -> String {
        let managed = &self.all[at];
        let (mut offered, mut refused) = (Vec::new(), Vec::new());
        for tool in tools {
            let own = tool.name.clone();
            let before = self.name_of(at, &own);
            if let Some(before) = before {
                // It was registered when the session began, or by an earlier acceptance.
                let _ = session.unregister(Value::Null, before.clone()).await;
                self.names.borrow_mut().remove(&before);
            }
            let new = managed.tool(tool, &self.executions);
            match session.register(Value::Null, new).await {
                Ok(registered) => {
                    self.names
                        .borrow_mut()
                        .insert(registered.name.clone(), (at, own));
                    offered.push(registered.name);
                }
                Err(error) => refused.push(refusal(&own, &error)),
            }
        }
        refused
            .iter()
            .for_each(|refusal| managed.watched.note(refusal));
        managed.write_log();
        let offered = offered.join(", ");
        let refused = refused.iter().map(|refusal| format!("; {refusal}"));
        let server = &managed.server.name;
        format!(
            "accepted tools of the server `{server}` are offered from now on: {offered}{}",
            refused.collect::<String>()
        )
    }

    /// The name in the session of a server's tool.
    fn name_of(&self, at: usize, tool: &str) -> Option<String> {
        let names = self.names.borrow();
        let is = |(_, (server, own)): &(&String, &(usize, String))| *server == at && own == tool;
        names.iter().find(is).map(|(name, _)| name.clone())
    }

    async fn execute(&self, execution: Execution, dial: &Rc<dyn Dial>) {
        let Execution {
            tool,
            input,
            mut reply,
            ..
        } = execution;
        let found = self.names.borrow().get(&tool).cloned();
        let work = async {
            let (at, tool) = found.ok_or_else(|| unknown(&tool))?;
            self.all[at].call(tool, input, dial).await
        };
        let answer = tokio::select! {
            answer = work => answer,
            // Nobody waits any more: dropping the call cancels it at the server.
            () = reply.closed() => return,
        };
        let _ = reply.send(answer);
    }

    /// Starts all servers in parallel and reports the state of each.
    pub(crate) async fn report(&self, dial: &Rc<dyn Dial>) -> Vec<ServerReport> {
        let mut asked = JoinSet::new();
        for (at, managed) in self.all.iter().enumerate() {
            let (managed, dial, executions) =
                (managed.clone(), dial.clone(), self.executions.clone());
            asked.spawn_local(async move { (at, managed.report(&dial, &executions).await) });
        }
        let mut reports = Vec::new();
        while let Some(report) = asked.join_next().await {
            reports.extend(report);
        }
        reports.sort_by_key(|(at, _)| *at);
        reports.into_iter().map(|(_, report)| report).collect()
    }

    /// Accepts the list that `report` is about. The server is not asked again: it could answer otherwise than what a person has seen.
    ///
    /// # Errors
    /// If the server had no list, or the pins cannot be written.
    pub(crate) fn accept(&self, report: &ServerReport) -> Result<(), Failed> {
        report.tools.as_ref().map_err(Failed::clone)?;
        let managed = self
            .all
            .iter()
            .find(|managed| managed.server.name == report.server);
        let managed = managed.ok_or_else(|| unknown(&report.server))?;
        managed.pin(&report.listed)?;
        managed.place.forget_waiting();
        let latest = managed.listed.borrow().clone();
        managed.compare(&latest)
    }

    /// Ends all servers in parallel, and writes their logs.
    pub(crate) async fn close(&self) {
        let mut closing = JoinSet::new();
        for managed in &self.all {
            let managed = managed.clone();
            closing.spawn_local(async move { managed.close().await });
        }
        while closing.join_next().await.is_some() {}
    }
}

fn unknown(name: &str) -> Failed {
    Failed {
        kind: ErrorKind::UnknownTool,
        message: format!("there is no server or tool `{name}`"),
    }
}

fn refusal(tool: &str, error: &impl Display) -> String {
    let tool: String = tool.chars().take(2 * name::MAX).collect();
    format!("the tool {tool:?} is not offered: {error}")
}

impl Managed {
    /// `None` if the session's scope permits no tool of it.
    fn new(
        server: ServerSettings,
        session: &Open,
        redactor: &'static Redactor,
        changed_tools: (usize, mpsc::UnboundedSender<ToolChange>),
    ) -> Option<Self> {
        let place = ServerFiles::of_server(&server, &session.project);
        let pins = place
            .pins()
            .and_then(|text| AcceptedTools::read(&text, &server));
        let log = RefCell::new(Ring::of(&place.log()));
        let scope = scope(&server, session.scope.as_ref())?;
        let means = match server.kind.clone() {
            ServerKind::Program(program) => {
                ServerAccess::Program(Box::new(ServerCell::of(program, &server, scope, session)))
            }
            // Everything sent to it leaves this machine.
            ServerKind::Address(_)
                if !scope
                    .permissions
                    .iter()
                    .any(|permission| permission.network) =>
            {
                return None;
            }
            ServerKind::Address(address) => ServerAccess::Address(address),
        };
        let watched = Rc::new(ServerWatch {
            name: server.name.clone(),
            log,
            redactor,
        });
        Some(Self {
            server,
            place,
            means,
            watched,
            pins: RefCell::new(pins),
            listed: RefCell::default(),
            changes: RefCell::default(),
            live: Mutex::default(),
            failures: cell::Cell::new(0),
            watch: RefCell::default(),
            changed_tools,
        })
    }

    fn offers(&self, tool: &str) -> bool {
        self.server
            .offered
            .as_ref()
            .is_none_or(|offered| offered.contains(tool))
    }

    fn tool(&self, tool: ListedTool, executions: &Executions) -> NewTool {
        let ListedTool {
            name: tool,
            description,
            schema,
        } = tool;
        NewTool {
            risk: self.risk(&tool),
            origin: ToolOrigin::Server {
                server: self.server.name.clone(),
                tool,
            },
            description,
            schema,
            timeout_s: self.server.timeout_s,
            executions: executions.clone(),
        }
    }

    async fn call(
        self: &Rc<Self>,
        tool: String,
        input: Value,
        dial: &Rc<dyn Dial>,
    ) -> Result<OutsideReply, Failed> {
        let Value::Object(input) = input else {
            return Err(self.failed(ErrorKind::InvalidInput, "takes an object as input"));
        };
        // Only the user can say that a call may be made twice: they have set its risk.
        let is_harmless = self.risk(&tool) == Risk::Low;
        let mut repeats = is_harmless;
        loop {
            let live = self.live(dial).await?;
            self.check(&tool)?;
            let answer = live.call(tool.clone(), input.clone()).await;
            if answer.is_err() {
                self.write_challenge(live.challenge());
            }
            self.write_log();
            match answer {
                Err(_) if repeats && !live.is_alive() => {
                    repeats = false;
                    self.watched
                        .note("ended during a call, which is made once more");
                }
                Err(failed) if !is_harmless && !live.is_alive() => {
                    return Err(Failed {
                        message: format!(
                            "{}; whether the call was carried out is not known. The next call starts the server again",
                            failed.message
                        ),
                        ..failed
                    });
                }
                answer => return answer,
            }
        }
    }

    /// The risk of a tool, as the user has set it: the server's own claim about it is not believed.
    fn risk(&self, tool: &str) -> Risk {
        self.server.risks.get(tool).copied().unwrap_or(Risk::High)
    }

    /// Refuses a tool that differs from the accepted one.
    fn check(&self, tool: &str) -> Result<(), Failed> {
        let changes = self.changes.borrow();
        let is_in = |names: &[String]| names.iter().any(|name| name == tool);
        if is_in(&changes.gone) {
            return Err(self.failed(
                ErrorKind::NotFound,
                &format!("has no tool `{tool}` any more"),
            ));
        }
        if is_in(&changes.changed) {
            let name = &self.server.name;
            let why = format!(
                "describes its tool `{tool}` otherwise than when it was accepted; a person has to look at it: `lazaret mcp status`, \
                 then `lazaret mcp accept {name}`"
            );
            return Err(self.failed(ErrorKind::DeniedPolicy, &why));
        }
        Ok(())
    }

    /// The running server; starts it if necessary.
    async fn live(self: &Rc<Self>, dial: &Rc<dyn Dial>) -> Result<Rc<LiveServer>, Failed> {
        let mut current = self.live.lock().await;
        if let Some(live) = current.as_ref().filter(|live| live.is_alive()) {
            return Ok(live.clone());
        }
        *current = None;
        if self.failures.get() >= FAILURES_MAX {
            let why = format!(
                "has failed {FAILURES_MAX} times; `lazaret mcp log {}` shows its log",
                shell_word(&self.server.name)
            );
            return Err(self.failed(ErrorKind::Io, &why));
        }
        let opened = self.open(dial).await;
        match &opened {
            Ok(_) => self.failures.set(0),
            Err(failed) => {
                self.failures.set(self.failures.get() + 1);
                self.watched.note(&failed.message);
            }
        }
        self.write_log();
        let live = opened?;
        Ok(current.insert(live).clone())
    }

    async fn open(self: &Rc<Self>, dial: &Rc<dyn Dial>) -> Result<Rc<LiveServer>, Failed> {
        let changed = Arc::new(Notify::new());
        let (live, tools) = match &self.means {
            ServerAccess::Program(cell) => self.start(cell, dial, changed.clone()).await?,
            ServerAccess::Address(address) => self.reach(address, changed.clone()).await?,
        };
        self.watched.note("is there");
        self.compare(&tools)?;
        let live = Rc::new(live);
        self.watch.replace(Some(self.watch(&live, changed)));
        Ok(live)
    }

    async fn start(
        &self,
        cell: &ServerCell,
        dial: &Rc<dyn Dial>,
        changed: Arc<Notify>,
    ) -> Result<(LiveServer, Vec<ListedTool>), Failed> {
        let watched = self.watched.clone();
        let observe = move |report: &_| watched.connection(report);
        let started = RunningService::start(
            &**dial,
            cell.open.clone(),
            |opened| self.service(cell, opened),
            observe,
        );
        let service = started.await.map_err(|failed| Failed {
            message: format!(
                "the server `{}` has no cell: {}",
                self.server.name, failed.message
            ),
            ..failed
        })?;
        let project = url::Url::from_directory_path(&service.opened().project).ok();
        let root = project.filter(|_| cell.sees_root).map(String::from);
        LiveServer::connect(service, self.watched.clone(), root, changed).await
    }

    /// Connects to its address, with the stored login.
    async fn reach(
        &self,
        address: &ServerAddress,
        changed: Arc<Notify>,
    ) -> Result<(LiveServer, Vec<ListedTool>), Failed> {
        let cannot = |why: &dyn std::fmt::Display| {
            self.failed(ErrorKind::Io, &format!("cannot be reached: {why}"))
        };
        let named =
            NamedAddress::of(address).map_err(|why| self.failed(ErrorKind::InvalidInput, &why))?;
        let host = timeout(CONNECT, named.find(self.server.whose)).await;
        let host = host
            .map_err(|late| cannot(&late))?
            .map_err(|error| cannot(&error))?;
        let login = match named.headers.contains_key(AUTHORIZATION) {
            true => None,
            false => login::kept(&host, &named.login, &self.place)
                .await
                .map_err(|error| cannot(&error))?,
        };
        let state = Arc::new(ServerState::default());
        let remote = RemoteServer::new(host, named.headers, state.clone());
        let reached = LiveServer::reach(
            remote.clone(),
            address.speech,
            login,
            self.watched.clone(),
            state,
            changed,
        )
        .await;
        reached.inspect_err(|_| self.write_challenge(remote.challenge()))
    }

    /// Stores its challenge when it refused us, for a later login.
    fn write_challenge(&self, challenge: Option<String>) {
        if let Some(challenge) = challenge
            && let Err(error) = self.place.write_challenge(&challenge)
        {
            self.watched.note(&format!(
                "the description of its login cannot be saved: {error}"
            ));
        }
    }

    /// Its program, after replacing the variables in its settings.
    fn service(&self, cell: &ServerCell, opened: &Opened) -> Result<Service, Failed> {
        let value = |name: &str| match name {
            "LAZARET_PROJECT" => Some(opened.project.clone()),
            "LAZARET_CENTRAL" => Some(opened.central.clone()),
            name => secret_environment::text(name),
        };
        let replaced = |text: &String| {
            variables::replace(text, &value).map_err(|error| {
                let why = format!("cannot be started: {error}");
                self.failed(ErrorKind::InvalidInput, &why)
            })
        };
        let words = cell
            .program
            .command
            .iter()
            .map(replaced)
            .collect::<Result<Vec<_>, _>>()?;
        let environment = cell.program.environment.iter();
        let environment = environment
            .map(|(name, text)| {
                Ok(Variable {
                    name: name.clone(),
                    value: replaced(text)?,
                })
            })
            .collect::<Result<Vec<_>, Failed>>()?;
        Ok(Service {
            name: self.server.name.clone(),
            command: Command::Arguments(
                words
                    .into_iter()
                    .map(|word| word.into_bytes().into())
                    .collect(),
            ),
            directory: cell.directory.clone(),
            environment,
        })
    }

    /// Compares a new list with the accepted tools; the very first list is accepted as it is.
    fn compare(&self, tools: &[ListedTool]) -> Result<(), Failed> {
        self.listed.replace(tools.to_vec());
        let changes = self.pins.borrow().as_ref().map(|pins| pins.compare(tools));
        match changes {
            None => self.pin(tools),
            Some(changes) => {
                if !changes.are_none() && changes != *self.changes.borrow() {
                    self.watched.note(&format!(
                        "its tools differ from the accepted ones: {}",
                        changes.describe()
                    ));
                    if changes.are_to_accept() {
                        // Nobody may follow.
                        let _ = self
                            .changed_tools
                            .1
                            .send(ToolChange::Differs(changes.advice(&self.server.name)));
                    }
                }
                self.changes.replace(changes);
                Ok(())
            }
        }
    }

    fn pin(&self, tools: &[ListedTool]) -> Result<(), Failed> {
        let pins = AcceptedTools::new(&self.server, tools);
        self.place.write_pins(&pins.text()).map_err(|error| {
            self.failed(
                ErrorKind::Internal,
                &format!("has tools that cannot be recorded as accepted: {error}"),
            )
        })?;
        self.pins.replace(Some(pins));
        self.changes.replace(ToolChanges::default());
        Ok(())
    }

    /// Takes over what a person has accepted since the pins were read.
    fn follow_pins(&self) {
        let text = self.place.pins();
        let Some(pins) = text.and_then(|text| AcceptedTools::read(&text, &self.server)) else {
            return;
        };
        if self.pins.borrow().as_ref() == Some(&pins) {
            return;
        }
        let listed = self.listed.borrow();
        let now = pins.compare(&listed);
        let before = self.changes.replace(now.clone());
        self.pins.replace(Some(pins));
        let waits = |changes: &ToolChanges, name: &String| {
            changes.added.contains(name) || changes.changed.contains(name)
        };
        let is_accepted = |tool: &&ListedTool| {
            waits(&before, &tool.name) && !waits(&now, &tool.name) && self.offers(&tool.name)
        };
        let tools: Vec<_> = listed.iter().filter(is_accepted).cloned().collect();
        if !tools.is_empty() {
            let (server, changed_tools) = &self.changed_tools;
            let server = *server;
            // Nobody may follow.
            let _ = changed_tools.send(ToolChange::Accepted { server, tools });
        }
    }

    /// Compares a list of the running server with what is accepted, and leaves what is not for `lazaret mcp accept`: a server that is
    /// started for that may not list it yet.
    fn relist(&self, tools: &[ListedTool]) -> Result<(), Failed> {
        self.follow_pins();
        self.compare(tools)?;
        if !self.changes.borrow().are_to_accept() {
            self.place.forget_waiting();
            return Ok(());
        }
        let waiting = AcceptedTools::new(&self.server, tools).text();
        self.place.write_waiting(&waiting).map_err(|error| {
            let why = format!("has new tools that cannot be recorded: {error}");
            self.failed(ErrorKind::Internal, &why)
        })
    }

    /// Requests its list of tools again when it reports a change, and looks for their acceptance while one is missing.
    fn watch(self: &Rc<Self>, live: &Rc<LiveServer>, changed: Arc<Notify>) -> Watch {
        let (managed, live) = (Rc::downgrade(self), Rc::downgrade(live));
        Watch(spawn_local(async move {
            loop {
                let Some(waits) = managed
                    .upgrade()
                    .map(|managed| managed.changes.borrow().are_to_accept())
                else {
                    return;
                };
                let is_changed = tokio::select! {
                    () = changed.notified() => true,
                    () = sleep(ACCEPTED), if waits => false,
                };
                let (Some(managed), Some(live)) = (managed.upgrade(), live.upgrade()) else {
                    return;
                };
                if !is_changed {
                    managed.follow_pins();
                    continue;
                }
                let compared = match live.list().await {
                    Ok(tools) => managed.relist(&tools),
                    Err(failed) => Err(failed),
                };
                if let Err(failed) = compared {
                    managed.watched.note(&failed.message);
                }
                drop((managed, live));
                sleep(RELIST).await;
            }
        }))
    }

    async fn report(self: &Rc<Self>, dial: &Rc<dyn Dial>, executions: &Executions) -> ServerReport {
        let live = self.live(dial).await;
        let (offered, refused) = self.sorted(executions);
        let listed = self.with_waiting(self.listed.borrow().clone());
        let pins = self.pins.borrow();
        let changes = pins.as_ref().map(|pins| pins.compare(&listed));
        let changes = changes.unwrap_or_default();
        let differences = pins.as_ref().map(|pins| changes.differences(pins, &listed));
        ServerReport {
            server: self.server.name.clone(),
            tools: live.map(|_| offered),
            changes,
            differences: differences.unwrap_or_default(),
            listed,
            refused,
        }
    }

    /// A list with the tools that only a running session's server has listed.
    fn with_waiting(&self, mut listed: Vec<ListedTool>) -> Vec<ListedTool> {
        let waiting = self.place.waiting();
        let waiting = waiting.and_then(|text| AcceptedTools::read(&text, &self.server));
        let is_new = |tool: &ListedTool| listed.iter().all(|known| known.name != tool.name);
        let new: Vec<_> = waiting
            .iter()
            .flat_map(AcceptedTools::tools)
            .filter(is_new)
            .collect();
        listed.extend(new);
        listed
    }

    /// Its tools that a session can offer, and what is wrong with each of the others, by trial registration.
    fn sorted(&self, executions: &Executions) -> (Vec<ListedTool>, Vec<String>) {
        let mut registry = Registry::default();
        // It is the only server here.
        let _ = registry.add_server(&self.server.name);
        let (mut offered, mut refused) = (Vec::new(), Vec::new());
        let pins = self.pins.borrow();
        for tool in pins
            .iter()
            .flat_map(AcceptedTools::tools)
            .filter(|tool| self.offers(&tool.name))
        {
            match registry.register(self.tool(tool.clone(), executions)) {
                Ok(_) => offered.push(tool),
                Err(error) => refused.push(refusal(&tool.name, &error)),
            }
        }
        (offered, refused)
    }

    async fn close(&self) {
        self.watch.replace(None);
        let live = self.live.lock().await.take();
        if let Some(live) = live.and_then(|live| Rc::try_unwrap(live).ok()) {
            live.close().await;
        }
        self.write_log();
    }

    /// A log that cannot be written must not fail a call.
    fn write_log(&self) {
        let mut log = self.watched.log.borrow_mut();
        if log.take_changed() {
            let _ = self.place.write_log(&log.text());
        }
    }

    fn failed(&self, kind: ErrorKind, why: &str) -> Failed {
        Failed {
            kind,
            message: format!("the server `{}` {why}", self.server.name),
        }
    }
}

impl ServerCell {
    fn of(program: ServerProgram, server: &ServerSettings, scope: Scope, session: &Open) -> Self {
        let is_held = scope
            .permissions
            .iter()
            .any(|permission| !permission.paths.is_empty());
        let directory = match (&program.directory, is_held) {
            (Some(directory), false) => ZonePath::new(Zone::Project, directory).ok(),
            // It may see nothing of the project, or not its root.
            (_, true) => Some(ZonePath::root(Zone::Central)),
            (None, false) => program.gets_secret().then(|| ZonePath::root(Zone::Central)),
        };
        let sees_root = program.directory.is_none() && !is_held;
        let open = Open {
            central: store::central(&server.name, &session.project)
                .display()
                .to_string(),
            profile: program.profile.clone(),
            scope: Some(scope),
            // Programs in the settings were already approved when they were added.
            trust: Trust::Autonomous,
            capture: Some(0),
            network: Some(NetworkRequest {
                hosts: program.hosts.clone(),
                presets: program.presets.clone(),
                ..NetworkRequest::default()
            }),
            // Its programs come from this machine, unless its own profile names an image.
            image: None,
            ..Open::new(session.project.clone())
        };
        Self {
            program,
            open,
            directory,
            sees_root,
        }
    }
}

/// The scope of a server's session: permits commands, since for a scope its program is one, and of the project only what the
/// session's own scope permits for its tools. `None` if that permits none of them.
fn scope(server: &ServerSettings, session: Option<&Scope>) -> Option<Scope> {
    let own = format!("{}__", name::of_server(&server.name, ""));
    let own = own.trim_end_matches('_').to_owned() + "__";
    let (mut paths, mut network) = (Vec::new(), true);
    if let Some(session) = session {
        let permissions = &session.permissions;
        let permitted: Vec<_> = permissions
            .iter()
            .filter(|one| one.allowed && one.tool.starts_with(&own))
            .collect();
        if permitted.is_empty() {
            return None;
        }
        network = permitted.iter().any(|one| one.network);
        if permitted.iter().all(|one| !one.paths.is_empty()) {
            paths = permitted.iter().flat_map(|one| one.paths.clone()).collect();
            paths.push("central:**".to_owned());
        }
    }
    if matches!(
        &server.kind,
        ServerKind::Program(ServerProgram {
            project: Share::None,
            ..
        })
    ) {
        paths = vec!["central:**".to_owned()];
    }
    let permission = Permission {
        tool: "bash".to_owned(),
        allowed: true,
        paths,
        timeout_s: None,
        network,
    };
    Some(Scope {
        permissions: vec![permission],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{SettingsOwner, parse};
    use serde_json::json;

    fn server(project: &str) -> ServerSettings {
        let entry = json!({ "command": "x", "lazaret": { "project": project } });
        parse(
            &json!({ "mcpServers": { "fs": entry } }).to_string(),
            SettingsOwner::User,
        )
        .unwrap()
        .remove(0)
    }

    fn permission(tool: &str, paths: &[&str]) -> Permission {
        let paths = paths.iter().map(ToString::to_string).collect();
        Permission {
            tool: tool.into(),
            allowed: true,
            paths,
            timeout_s: None,
            network: false,
        }
    }

    #[test]
    fn a_server_sees_no_more_than_the_scope_gives_its_tools() {
        let of = |project: &str, permissions: Option<Vec<Permission>>| {
            let session = permissions.map(|permissions| Scope { permissions });
            let scope = scope(&server(project), session.as_ref())?;
            Some((
                scope.permissions[0].paths.join(" "),
                scope.permissions[0].network,
            ))
        };
        assert_eq!(of("shared", None), Some((String::new(), true)));
        assert_eq!(of("none", None), Some(("central:**".into(), true)));
        let read = || permission("mcp__fs__read", &["src/**"]);
        assert_eq!(
            of("shared", Some(vec![read()])),
            Some(("src/** central:**".into(), false))
        );
        assert_eq!(
            of("none", Some(vec![read()])),
            Some(("central:**".into(), false))
        );
        let all = permission("mcp__fs__write", &[]);
        assert_eq!(
            of("shared", Some(vec![read(), all])),
            Some((String::new(), false))
        );
        for other in ["bash", "mcp__fsx__read", "mcp__f__s__read"] {
            assert_eq!(
                of("shared", Some(vec![permission(other, &[])])),
                None,
                "{other}"
            );
        }
        assert_eq!(
            of(
                "shared",
                Some(vec![Permission {
                    allowed: false,
                    ..read()
                }])
            ),
            None
        );
    }
}
