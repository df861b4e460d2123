//! What the server has: its settings, its conversations and runs, and where sessions and answers come from.

use crate::backends::Backends;
use crate::bodies::{ConversationDetail, ConversationStatus, RunPrompt};
use crate::case::WireCase;
use crate::conversation::{ConversationState, LiveRun};
use crate::incoming::{Approve, Cancel, RequestError, Resume, SetTrust, brief, is_id};
use crate::opener::Opener;
use crate::outbox::Outbox;
use crate::packet::{Answer, Packet};
use crate::runs::Runs;
use crate::token::new_id;
use broker_protocol::Trust;
use futures_util::future::join_all;
use orchestrator_agent::control::NotAsked;
use orchestrator_agent::conversation::Conversations;
use orchestrator_agent::packs::Pack;
use orchestrator_agent::settings::Settings;
use orchestrator_mcp::Http;
use orchestrator_text::redact::Redactor;
use orchestrator_text::sanitize::Sanitizer;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::sleep;

/// Most runs that are under way at once.
pub const RUNS_MAX: usize = 256;
/// Most WebSockets at once; a further one is refused.
const SOCKETS_MAX: usize = 256;
/// Most conversations that are remembered.
const CONVERSATIONS_MAX: usize = 1_000;
/// How long a session stays open in which nothing happens: what runs there in the background ends with it.
const SESSION_IDLE: Duration = Duration::from_secs(10 * 60);
/// How long a conversation is remembered in which nothing happens.
const CONVERSATION_IDLE: Duration = orchestrator_agent::conversation::IDLE;
/// How often what is idle is looked for.
const SWEEP: Duration = Duration::from_secs(60);

/// What the server serves from.
pub struct Sources {
    /// Where the sessions of conversations come from.
    pub opener: Box<dyn Opener>,
    /// Where the answers of models come from.
    pub backends: Backends,
    /// Who answers clients of the Model Context Protocol.
    pub mcp: Http,
}

/// The server's state. It stays on one thread.
pub struct Service {
    /// Where the sessions of conversations come from.
    pub opener: Box<dyn Opener>,
    /// Where the answers of models come from.
    pub backends: Backends,
    /// Who answers clients of the Model Context Protocol.
    pub mcp: Http,
    /// How runs are made, before what a client asks for.
    pub settings: Settings,
    /// What runs may be for, besides what comes with us.
    pub packs: Vec<Pack>,
    /// How names are written to all clients.
    pub case: WireCase,
    /// Takes secrets out of everything that is sent.
    pub redactor: &'static Redactor,
    /// How much is asked where nobody says.
    pub trust: Cell<Trust>,
    /// The messages of conversations between their runs.
    pub messages: RefCell<Conversations>,
    /// What is known of runs.
    pub runs: Runs,
    /// Given back when a WebSocket is over.
    pub sockets: Arc<Semaphore>,
    conversations: RefCell<HashMap<String, Rc<ConversationState>>>,
}

impl Service {
    /// A server that has no conversation yet.
    pub fn new(
        sources: Sources,
        settings: Settings,
        packs: Vec<Pack>,
        case: WireCase,
        trust: Trust,
        redactor: &'static Redactor,
    ) -> Rc<Self> {
        let Sources { opener, backends, mcp } = sources;
        Rc::new(Self {
            opener,
            backends,
            mcp,
            settings,
            packs,
            case,
            redactor,
            trust: Cell::new(trust),
            messages: RefCell::default(),
            runs: Runs::default(),
            sockets: Arc::new(Semaphore::new(SOCKETS_MAX)),
            conversations: RefCell::default(),
        })
    }

    /// A conversation of this name, begun if there is none, or a new one.
    ///
    /// # Errors
    /// The name is none, or there is no room.
    pub fn conversation(&self, id: Option<&str>) -> Result<Rc<ConversationState>, RequestError> {
        if let Some(known) = id.and_then(|id| self.conversations.borrow().get(id).cloned()) {
            return Ok(known);
        }
        let id = match id {
            // It goes into every event, answer and record of the conversation.
            Some(id) if is_id(id) && matches!(self.redactor.text(id), Cow::Borrowed(_)) => id.to_owned(),
            Some(_) => return Err(RequestError::Id),
            None => new_id("conversation").map_err(|error| RequestError::Internal(error.to_string()))?,
        };
        self.make_room()?;
        let state = ConversationState::new(&id);
        self.conversations.borrow_mut().insert(id, state.clone());
        Ok(state)
    }

    /// Forgets the conversation in which nothing has happened longest, where there are too many.
    fn make_room(&self) -> Result<(), RequestError> {
        let mut conversations = self.conversations.borrow_mut();
        if conversations.len() < CONVERSATIONS_MAX {
            return Ok(());
        }
        let idle = conversations.values().filter(|state| !state.is_running());
        let longest = idle.max_by_key(|state| state.idle()).map(|state| state.id.to_string());
        let longest = longest.ok_or(RequestError::TooManyRuns(RUNS_MAX))?;
        if let Some(state) = conversations.remove(&longest) {
            state.end_session();
        }
        Ok(())
    }

    /// A conversation that there is.
    fn known(&self, id: &str) -> Result<Rc<ConversationState>, RequestError> {
        let known = self.conversations.borrow().get(id).cloned();
        known.ok_or_else(|| RequestError::UnknownConversation(brief(id)))
    }

    fn running(&self, id: &str) -> Result<(Rc<ConversationState>, Rc<LiveRun>), RequestError> {
        let state = self.known(id)?;
        let run = state.run().ok_or_else(|| RequestError::NotRunning(brief(id)))?;
        Ok((state, run))
    }

    /// The conversations that are remembered, the one that was used last first.
    pub fn conversations(&self) -> Vec<ConversationStatus> {
        let conversations = self.conversations.borrow();
        let mut all: Vec<_> = conversations.values().map(|state| self.status(state)).collect();
        all.sort_by(|one, other| {
            (one.idle_s, &one.conversation_id).cmp(&(other.idle_s, &other.conversation_id))
        });
        all
    }

    /// One of them, with what its user has said.
    ///
    /// # Errors
    /// There is no such conversation.
    pub fn conversation_detail(&self, id: &str) -> Result<ConversationDetail, RequestError> {
        let state = self.known(id)?;
        let sanitizer = Sanitizer::new(self.redactor);
        let asked = state.asked().into_iter().map(|(message, content)| RunPrompt {
            message_id: message.to_string(),
            content: sanitizer.text(&content),
        });
        Ok(ConversationDetail { status: self.status(&state), asked: asked.collect() })
    }

    fn status(&self, state: &ConversationState) -> ConversationStatus {
        let first = state.asked().into_iter().next().map(|(_, content)| content).unwrap_or_default();
        ConversationStatus {
            conversation_id: state.id.to_string(),
            title: brief(&Sanitizer::new(self.redactor).text(&first)),
            running: state.is_running(),
            waiting: state.run().map_or(0, |run| run.pending.borrow().len()),
            idle_s: state.idle().as_secs(),
        }
    }

    /// How many runs are under way.
    pub fn running_count(&self) -> usize {
        self.conversations.borrow().values().filter(|state| state.is_running()).count()
    }

    /// Forgets a conversation that nobody can come back to.
    pub fn forget(&self, id: &str) {
        if let Some(state) = self.conversations.borrow_mut().remove(id) {
            state.end_session();
        }
    }

    /// Ends a run, or the calls under way in it.
    ///
    /// # Errors
    /// There is no such run.
    pub fn cancel(&self, cancel: &Cancel) -> Result<Rc<LiveRun>, RequestError> {
        let (_, run) = self.running(&cancel.conversation_id)?;
        match cancel.tools_only {
            true => drop(run.control.cancel_calls()),
            false => run.control.cancel(),
        }
        Ok(run)
    }

    /// Answers the question of a call.
    ///
    /// # Errors
    /// No call waits for this answer, or several do.
    pub async fn approve(&self, approve: &Approve) -> Result<Rc<LiveRun>, RequestError> {
        let answer = approve.answer()?;
        let run = match &approve.conversation_id {
            Some(id) => self.running(id)?.1,
            None => self.waiting(&approve.tool_id)?,
        };
        let approved = run.control.approve(&approve.tool_id, approve.part, answer).await;
        approved.map_err(|error| match error {
            NotAsked::Unknown(_) | NotAsked::Answered(_) => RequestError::NotPending(error.to_string()),
        })?;
        Ok(run)
    }

    /// The only run in which a call of this name waits.
    fn waiting(&self, tool_id: &str) -> Result<Rc<LiveRun>, RequestError> {
        let conversations = self.conversations.borrow();
        let runs = conversations.values().filter_map(|state| state.run());
        let mut waiting = runs.filter(|run| run.pending.borrow().contains(tool_id));
        match (waiting.next(), waiting.next()) {
            (Some(run), None) => Ok(run),
            (Some(_), Some(_)) => Err(RequestError::Ambiguous),
            (None, _) => Err(RequestError::NotPending(NotAsked::Unknown(brief(tool_id)).to_string())),
        }
    }

    /// Has `outbox` hear a conversation, with what it has missed.
    ///
    /// # Errors
    /// There is no such conversation.
    pub fn resume(&self, resume: &Resume, outbox: &Outbox) -> Result<(), RequestError> {
        let state = self.known(&resume.conversation_id)?;
        state.resume(outbox, resume.after, |missed| {
            let answer = Answer::Resumed {
                conversation_id: state.id.to_string(),
                running: state.is_running(),
                message_id: state.last_run().map(|run| run.to_string()),
                missed,
            };
            Packet::answer(&answer, self.case)
        });
        Ok(())
    }

    /// Changes the trust of a conversation. A run under way is asked more at once; it is asked less from the next run on.
    ///
    /// # Errors
    /// There is no such conversation.
    pub fn set_trust(&self, set: &SetTrust) -> Result<(), RequestError> {
        let state = self.known(&set.conversation_id)?;
        state.trust.set(Some(set.trust.0));
        if state.is_running() {
            state.lower_trust(set.trust.0);
        }
        Ok(())
    }

    /// Closes and forgets what is idle. Never returns.
    pub async fn sweep(&self) -> std::convert::Infallible {
        loop {
            sleep(SWEEP).await;
            self.messages.borrow_mut().sweep();
            let mut conversations = self.conversations.borrow_mut();
            let idle = conversations.values().filter(|state| state.idle() >= SESSION_IDLE);
            idle.for_each(|state| state.end_session());
            conversations.retain(|_, state| state.idle() < CONVERSATION_IDLE);
        }
    }

    /// Ends the session of every conversation, with its hooks.
    pub async fn end_sessions(&self) {
        let open: Vec<_> =
            self.conversations.borrow().values().filter_map(|state| state.take_session()).collect();
        join_all(open.iter().filter_map(|open| open.hooks.as_ref()).map(|hooks| hooks.end())).await;
    }

    /// Ends every run that is under way.
    pub fn cancel_all(&self) {
        let conversations = self.conversations.borrow();
        conversations.values().filter_map(|state| state.run()).for_each(|run| run.control.cancel());
    }
}
