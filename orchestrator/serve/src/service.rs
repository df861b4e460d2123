//! The state of the server: its settings, conversations and runs, and the sources of sessions and answers.

use crate::backends::Backends;
use crate::bodies::{ConversationDetail, ConversationStatus, RunPrompt};
use crate::case::WireCase;
use crate::conversation::{ConversationState, LiveRun, OpenSession};
use crate::incoming::{RequestError, approval_answer, brief, is_id};
use crate::opener::Opener;
use crate::outbox::Outbox;
use crate::packet::Packet;
use crate::runs::Runs;
use crate::token::new_id;
use broker_protocol::Trust;
use futures_util::future::join_all;
use orchestrator_agent::control::NotAsked;
use orchestrator_agent::conversation::Conversations;
use orchestrator_agent::packs::Pack;
use orchestrator_agent::publish::Listener;
use orchestrator_agent::settings::RunSettings;
use orchestrator_agent::transcript::Transcript;
use orchestrator_confine::ConfinementProof;
use orchestrator_mcp_server::{HttpClients, Listing};
use orchestrator_text::redact::Redactor;
use orchestrator_text::sanitize::Sanitizer;
use orchestrator_tools::catalogue::ToolCategory;
use orchestrator_wire::chat_command::{Approve, Cancel, Resume, SetTrust};
use orchestrator_wire::server_message::ServerMessage;
use serde_json::Value;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, SetOnce};
use tokio::time::sleep;

/// Maximum number of runs in progress.
pub(crate) const RUNS_MAX: usize = 256;
/// Maximum number of WebSockets; a further one is refused.
const SOCKETS_MAX: usize = 256;
/// Maximum number of conversations that are kept.
const CONVERSATIONS_MAX: usize = 1_000;
/// How long an idle session stays open. Its background processes end with it.
const SESSION_IDLE: Duration = Duration::from_secs(10 * 60);
/// How long an idle conversation is kept.
const CONVERSATION_IDLE: Duration = orchestrator_agent::conversation::IDLE;
/// How often to look for what is idle.
const SWEEP: Duration = Duration::from_secs(60);

/// The sources that the server uses.
pub struct Sources {
    /// Opens the sessions of conversations.
    pub opener: Box<dyn Opener>,
    pub proof: ConfinementProof,
    /// The providers of models.
    pub backends: Backends,
    pub mcp: HttpClients,
    /// The tools that it offers to them, once they are known.
    pub offered: Listing,
    /// Writes the lines of runs into the run log.
    pub record: Rc<dyn Listener>,
    /// Begins the transcripts of conversations.
    pub transcripts: Transcripts,
}

/// Begins the transcript of the conversation with this ID; `None` if none is written.
pub type Transcripts = Box<dyn Fn(&str) -> Option<Rc<Transcript>>>;

/// The server's state. It stays on one thread.
pub struct ServeState {
    /// Opens the sessions of conversations.
    pub opener: Box<dyn Opener>,
    pub proof: ConfinementProof,
    /// The providers of models.
    pub backends: Backends,
    pub mcp: HttpClients,
    offered: Listing,
    /// Writes the lines of runs into the run log.
    pub record: Rc<dyn Listener>,
    /// Begins the transcripts of conversations.
    pub transcripts: Transcripts,
    /// The tools of a session that no client narrows, once they are known.
    pub tools: SetOnce<Vec<Value>>,
    /// The settings of runs, before a client's request changes them.
    pub settings: RunSettings,
    /// The user's packs, besides the shipped ones.
    pub packs: Vec<Pack>,
    /// How to write names for all clients.
    pub case: WireCase,
    /// Removes secrets from everything that is sent.
    pub(crate) redactor: &'static Redactor,
    /// The trust if neither client nor conversation has one.
    pub trust: Cell<Trust>,
    /// The messages of conversations between their runs.
    pub messages: RefCell<Conversations>,
    /// The runs and their states.
    pub(crate) runs: Runs,
    /// Released when a WebSocket ends.
    pub(crate) sockets: Arc<Semaphore>,
    conversations: RefCell<HashMap<String, Rc<ConversationState>>>,
}

impl ServeState {
    /// A server without conversations.
    pub fn new(
        sources: Sources,
        settings: RunSettings,
        packs: Vec<Pack>,
        case: WireCase,
        trust: Trust,
        redactor: &'static Redactor,
    ) -> Rc<Self> {
        let Sources {
            opener,
            proof,
            backends,
            mcp,
            offered,
            record,
            transcripts,
        } = sources;
        Rc::new(Self {
            opener,
            proof,
            backends,
            mcp,
            offered,
            record,
            transcripts,
            tools: SetOnce::new(),
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

    /// The conversation with this ID, which is created if necessary, or a new one.
    ///
    /// # Errors
    /// If the ID is invalid, or there is no room.
    pub fn conversation(&self, id: Option<&str>) -> Result<Rc<ConversationState>, RequestError> {
        if let Some(known) = id.and_then(|id| self.conversations.borrow().get(id).cloned()) {
            return Ok(known);
        }
        let id = match id {
            // The ID becomes part of every event, answer and record of the conversation.
            Some(id) if is_id(id) && matches!(self.redactor.text(id), Cow::Borrowed(_)) => {
                id.to_owned()
            }
            Some(_) => return Err(RequestError::Id),
            None => {
                new_id("conversation").map_err(|error| RequestError::Internal(error.to_string()))?
            }
        };
        self.make_room()?;
        let state = ConversationState::new(&id);
        self.conversations.borrow_mut().insert(id, state.clone());
        Ok(state)
    }

    /// If there are too many conversations, drops the one that has been idle longest.
    fn make_room(&self) -> Result<(), RequestError> {
        let mut conversations = self.conversations.borrow_mut();
        if conversations.len() < CONVERSATIONS_MAX {
            return Ok(());
        }
        let idle = conversations.values().filter(|state| !state.is_running());
        let longest = idle
            .max_by_key(|state| state.idle())
            .map(|state| state.id.to_string());
        let longest = longest.ok_or(RequestError::TooManyRuns(RUNS_MAX))?;
        if let Some(state) = conversations.remove(&longest) {
            state.end_session();
        }
        Ok(())
    }

    fn known(&self, id: &str) -> Result<Rc<ConversationState>, RequestError> {
        let known = self.conversations.borrow().get(id).cloned();
        known.ok_or_else(|| RequestError::UnknownConversation(brief(id)))
    }

    fn running(&self, id: &str) -> Result<(Rc<ConversationState>, Rc<LiveRun>), RequestError> {
        let state = self.known(id)?;
        let run = state
            .run()
            .ok_or_else(|| RequestError::NotRunning(brief(id)))?;
        Ok((state, run))
    }

    /// The conversations that are kept, most recently used first.
    pub fn conversations(&self) -> Vec<ConversationStatus> {
        let conversations = self.conversations.borrow();
        let mut all: Vec<_> = conversations
            .values()
            .map(|state| self.status(state))
            .collect();
        all.sort_by(|one, other| {
            (one.idle_s, &one.conversation_id).cmp(&(other.idle_s, &other.conversation_id))
        });
        all
    }

    /// One conversation, with the prompts of its user.
    ///
    /// # Errors
    /// If there is no such conversation.
    pub(crate) fn conversation_detail(&self, id: &str) -> Result<ConversationDetail, RequestError> {
        let state = self.known(id)?;
        let sanitizer = Sanitizer::new(self.redactor);
        let asked = state
            .asked()
            .into_iter()
            .map(|(message, content)| RunPrompt {
                message_id: message.to_string(),
                content: sanitizer.text(&content),
            });
        Ok(ConversationDetail {
            status: self.status(&state),
            asked: asked.collect(),
        })
    }

    fn status(&self, state: &ConversationState) -> ConversationStatus {
        let first = state
            .asked()
            .into_iter()
            .next()
            .map(|(_, content)| content)
            .unwrap_or_default();
        ConversationStatus {
            conversation_id: state.id.to_string(),
            title: brief(&Sanitizer::new(self.redactor).text(&first)),
            running: state.is_running(),
            waiting: state.run().map_or(0, |run| run.pending.borrow().len()),
            idle_s: state.idle().as_secs(),
        }
    }

    /// The number of runs in progress.
    pub fn running_count(&self) -> usize {
        self.conversations
            .borrow()
            .values()
            .filter(|state| state.is_running())
            .count()
    }

    /// Drops a conversation to which nobody can return.
    pub fn forget(&self, id: &str) {
        if let Some(state) = self.conversations.borrow_mut().remove(id) {
            state.end_session();
        }
    }

    /// Ends a run, or the calls in progress in it.
    ///
    /// # Errors
    /// If there is no such run.
    pub(crate) fn cancel(&self, cancel: &Cancel) -> Result<Rc<LiveRun>, RequestError> {
        let (_, run) = self.running(&cancel.conversation_id)?;
        match cancel.tools_only {
            true => drop(run.control.cancel_calls()),
            false => run.control.cancel(),
        }
        Ok(run)
    }

    /// Answers the approval question of a call.
    ///
    /// # Errors
    /// If no call waits for this answer, or several do, or it is a yes to what was not shown.
    pub async fn approve(&self, approve: &Approve) -> Result<Rc<LiveRun>, RequestError> {
        let answer = approval_answer(approve)?;
        let run = match &approve.conversation_id {
            Some(id) => self.running(id)?.1,
            None => self.waiting(&approve.tool_id)?,
        };
        let digest = approve.digest.as_deref();
        let approved = run
            .control
            .approve(&approve.tool_id, approve.part, answer, digest)
            .await;
        approved.map_err(|error| match error {
            NotAsked::Unknown(_) | NotAsked::Answered(_) => {
                RequestError::NotPending(error.to_string())
            }
            NotAsked::Several(_) => RequestError::Ambiguous {
                field: "part".to_owned(),
            },
            NotAsked::NotShown(_) => RequestError::NotShown(error.to_string()),
            NotAsked::OtherDigest(_) => RequestError::OtherDigest(error.to_string()),
        })?;
        Ok(run)
    }

    /// The only run in which a call with this ID waits.
    fn waiting(&self, tool_id: &str) -> Result<Rc<LiveRun>, RequestError> {
        let conversations = self.conversations.borrow();
        let runs = conversations.values().filter_map(|state| state.run());
        let mut waiting = runs.filter(|run| run.pending.borrow().contains(tool_id));
        match (waiting.next(), waiting.next()) {
            (Some(run), None) => Ok(run),
            (Some(_), Some(_)) => Err(RequestError::Ambiguous {
                field: "conversationId".to_owned(),
            }),
            (None, _) => Err(RequestError::NotPending(
                NotAsked::Unknown(brief(tool_id)).to_string(),
            )),
        }
    }

    /// Adds `outbox` as a listener of a conversation, and sends what it missed.
    ///
    /// # Errors
    /// If there is no such conversation.
    pub fn resume(&self, resume: &Resume, outbox: &Outbox) -> Result<(), RequestError> {
        let state = self.known(&resume.conversation_id)?;
        state.resume(outbox, resume.after, |missed| {
            let answer = ServerMessage::Resumed {
                conversation_id: state.id.to_string(),
                running: state.is_running(),
                message_id: state.last_run().map(|run| run.to_string()),
                missed,
            };
            Packet::answer(&answer, self.case)
        });
        Ok(())
    }

    /// Changes the trust of a conversation. A lower trust applies at once, even to a run in progress; a higher one from the next run on.
    ///
    /// # Errors
    /// If there is no such conversation.
    pub(crate) fn set_trust(&self, set: &SetTrust) -> Result<(), RequestError> {
        let state = self.known(&set.conversation_id)?;
        state.trust.set(Some(set.trust.0));
        if state.is_running() {
            state.lower_trust(set.trust.0);
        }
        Ok(())
    }

    /// Closes sessions and drops conversations that are idle. Never returns.
    pub(crate) async fn sweep(&self) -> std::convert::Infallible {
        loop {
            sleep(SWEEP).await;
            self.messages.borrow_mut().sweep();
            let mut conversations = self.conversations.borrow_mut();
            let idle = conversations
                .values()
                .filter(|state| state.idle() >= SESSION_IDLE);
            idle.for_each(|state| state.end_session());
            conversations.retain(|_, state| state.idle() < CONVERSATION_IDLE);
        }
    }

    /// Lists the tools, for all who wait for the list.
    pub async fn list_tools(&self) {
        let tools = self.opener.tools().await;
        // An MCP client gets no tools for an agent's own notes, because agents have such tools themselves.
        let is_offered = |tool: &&Value| tool["category"] != ToolCategory::Agent.name();
        self.offered
            .set(tools.iter().filter(is_offered).cloned().collect());
        // They are listed once.
        let _ = self.tools.set(tools);
    }

    /// Ends the session of every conversation, with its hooks and servers.
    pub async fn end_sessions(&self) {
        let open: Vec<_> = self
            .conversations
            .borrow()
            .values()
            .filter_map(|state| state.take_session())
            .collect();
        join_all(open.into_iter().map(OpenSession::close)).await;
    }

    /// Ends every run in progress.
    pub fn cancel_all(&self) {
        let conversations = self.conversations.borrow();
        conversations
            .values()
            .filter_map(|state| state.run())
            .for_each(|run| run.control.cancel());
    }
}
