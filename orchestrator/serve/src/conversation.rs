//! One conversation in the server: its session, its run, its listeners, and its recent events for clients that reconnect.

use crate::case::WireCase;
use crate::client_tools::AttachedTools;
use crate::opener::SessionOrder;
use crate::outbox::{Outbox, any_has_room};
use crate::packet::Packet;
use broker_protocol::Trust;
use futures_util::future::join_all;
use orchestrator_agent::control::RunControl;
use orchestrator_agent::event::ChatEvent;
use orchestrator_agent::hooks::SessionHooks;
use orchestrator_agent::transcript::Transcript;
use orchestrator_engine::Session;
use orchestrator_mcp_client::SessionServers;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// Maximum bytes of the recent events of one conversation.
const RECENT_BYTES: usize = 512 << 10;
/// Maximum number of recent events of one conversation.
const RECENT_EVENTS: usize = 2_000;
/// Maximum number of runs per conversation whose prompts are kept.
const ASKED_MAX: usize = 32;
/// Maximum characters kept of each of these prompts.
const ASKED_CHARS: usize = 2_000;

/// A conversation between a client and a model.
pub struct ConversationState {
    /// Its ID, which the client may have chosen.
    pub id: Arc<str>,
    /// The trust set by a client, if any.
    pub trust: Cell<Option<Trust>>,
    run: RefCell<Option<Rc<LiveRun>>>,
    session: RefCell<Option<OpenSession>>,
    followers: RefCell<Vec<Outbox>>,
    /// Signals that a listener joined or left.
    changed: Notify,
    recent: RefCell<Recent>,
    /// The prompts of its last runs, by run.
    asked: RefCell<VecDeque<(Arc<str>, String)>>,
    used: Cell<Instant>,
    transcript: OnceCell<Option<Rc<Transcript>>>,
}

/// The run of a conversation.
pub struct LiveRun {
    /// Its ID, which its events carry as `messageId`.
    pub message: Arc<str>,
    /// Cancels it and answers its questions.
    pub control: RunControl,
    /// The calls that wait for approval.
    pub pending: RefCell<BTreeSet<String>>,
}

/// The session of a conversation.
pub struct OpenSession {
    /// The session with the executor.
    pub session: Session,
    /// The request it was opened with.
    pub order: SessionOrder,
    /// The user's hooks for this session.
    pub hooks: Option<Rc<SessionHooks>>,
    /// The user's MCP servers in it.
    pub servers: SessionServers,
    /// The client's tools that are registered in it.
    pub attached: Option<AttachedTools>,
    /// The trust when it was opened: a lower one may be in force now.
    pub trust: Trust,
}

impl OpenSession {
    /// Ends the session without waiting for its hooks and servers.
    pub fn end(self) {
        tokio::task::spawn_local(self.close());
    }

    /// Ends the session, its hooks and its servers.
    pub async fn close(self) {
        let Self {
            session,
            hooks,
            servers,
            ..
        } = self;
        drop(session);
        let ending = async {
            if let Some(hooks) = hooks {
                hooks.end().await;
            }
        };
        tokio::join!(ending, servers.close());
    }
}

#[derive(Default)]
struct Recent {
    events: VecDeque<(u64, Rc<Packet>)>,
    bytes: usize,
    /// The number of the last event.
    sequence: u64,
    /// The last run that has events.
    message: Option<Arc<str>>,
}

impl ConversationState {
    /// A conversation without content.
    pub fn new(id: &str) -> Rc<Self> {
        Rc::new(Self {
            id: id.into(),
            trust: Cell::new(None),
            run: RefCell::default(),
            session: RefCell::default(),
            followers: RefCell::default(),
            changed: Notify::new(),
            recent: RefCell::default(),
            asked: RefCell::default(),
            used: Cell::new(Instant::now()),
            transcript: OnceCell::new(),
        })
    }

    /// Its transcript, which `begin` begins for its first run.
    pub fn transcript(
        &self,
        begin: impl FnOnce(&str) -> Option<Rc<Transcript>>,
    ) -> Option<Rc<Transcript>> {
        self.transcript.get_or_init(|| begin(&self.id)).clone()
    }

    /// The run in progress, if any.
    pub fn run(&self) -> Option<Rc<LiveRun>> {
        self.run.borrow().clone()
    }

    /// Whether a run is in progress.
    pub fn is_running(&self) -> bool {
        self.run.borrow().is_some()
    }

    /// Begins a run with `content`. No other run may be in progress.
    pub fn begin(&self, message: Arc<str>, content: &str) -> Rc<LiveRun> {
        let run = Rc::new(LiveRun {
            message: message.clone(),
            control: RunControl::default(),
            pending: RefCell::default(),
        });
        self.run.replace(Some(run.clone()));
        self.recent.borrow_mut().message = Some(message.clone());
        let mut asked = self.asked.borrow_mut();
        asked.push_back((message, content.chars().take(ASKED_CHARS).collect()));
        if asked.len() > ASKED_MAX {
            asked.pop_front();
        }
        drop(asked);
        self.touch();
        run
    }

    /// The prompts of its last runs, oldest first.
    pub fn asked(&self) -> Vec<(Arc<str>, String)> {
        self.asked.borrow().iter().cloned().collect()
    }

    /// Ends the run, so that another one may begin.
    pub fn end(&self) {
        self.run.replace(None);
        self.touch();
    }

    fn touch(&self) {
        self.used.set(Instant::now());
    }

    /// How long it has been idle; zero while a run is in progress.
    pub fn idle(&self) -> Duration {
        if self.is_running() {
            Duration::ZERO
        } else {
            self.used.get().elapsed()
        }
    }

    /// Takes out its session, to replace it.
    pub fn take_session(&self) -> Option<OpenSession> {
        self.session.borrow_mut().take()
    }

    /// What was reported of the servers in its session, since the last call of this.
    pub fn take_notices(&self) -> Vec<String> {
        let session = self.session.borrow();
        session
            .as_ref()
            .map_or_else(Vec::new, |open| open.servers.take_notices())
    }

    /// Ends its session, if it has one.
    pub fn end_session(&self) {
        if let Some(open) = self.take_session() {
            open.end();
        }
    }

    pub fn put_session(&self, session: OpenSession) {
        self.session.replace(Some(session));
    }

    /// Makes approvals stricter from the session's next call on; returns whether they were less strict before.
    pub fn lower_trust(&self, trust: Trust) -> bool {
        let mut session = self.session.borrow_mut();
        let Some(open) = session.as_mut().filter(|open| trust < open.trust) else {
            return false;
        };
        open.trust = trust;
        open.session.lower_trust(trust);
        true
    }

    /// Adds `outbox` as a listener.
    pub fn follow(&self, outbox: &Outbox) {
        let mut followers = self.followers.borrow_mut();
        if followers.iter().all(|other| other.number != outbox.number) {
            followers.push(outbox.clone());
        }
        self.changed.notify_waiters();
    }

    /// The same, but first sends what `first` makes, then the events after `after`. `first` receives whether some of these events
    /// are no longer stored.
    pub fn resume(&self, outbox: &Outbox, after: u64, first: impl FnOnce(bool) -> Rc<Packet>) {
        self.touch();
        self.follow(outbox);
        let (events, missed) = self.recent.borrow().after(after);
        // If the listener is gone by now, it gets no further events either.
        let _ = std::iter::once(first(missed))
            .chain(events)
            .try_for_each(|packet| outbox.post(packet));
    }

    /// The run in progress, or else the last one.
    pub fn last_run(&self) -> Option<Arc<str>> {
        self.recent.borrow().message.clone()
    }

    /// Sends an event to all listeners and waits until one of them has room for more. Removes listeners that are gone.
    pub async fn publish(&self, event: &ChatEvent, case: WireCase) {
        // Stored and sent in one step, so that a client that joins in between gets each event once and in order.
        let packet = self.recent.borrow_mut().push(event, case);
        self.followers
            .borrow_mut()
            .retain(|follower| follower.post(packet.clone()).is_ok());
        let followers = self.followers.borrow().clone();
        any_has_room(&followers).await;
    }

    /// Waits until there has been no listener for `grace`.
    pub async fn abandoned(&self, grace: Duration) {
        loop {
            let changed = self.changed.notified();
            let followers = self.followers.borrow().clone();
            if followers.is_empty() {
                tokio::select! {
                    () = sleep(grace) => return,
                    () = changed => continue,
                }
            }
            tokio::select! {
                _ = join_all(followers.iter().map(Outbox::closed)) => {
                    let gone: Vec<u64> = followers.iter().map(|one| one.number).collect();
                    self.followers.borrow_mut().retain(|one| !gone.contains(&one.number));
                }
                () = changed => {}
            }
        }
    }
}

impl Recent {
    /// The events after `after`, and whether some of them are no longer stored.
    fn after(&self, after: u64) -> (Vec<Rc<Packet>>, bool) {
        let later = self.events.iter().filter(|(number, _)| *number > after);
        let first = self
            .events
            .front()
            .map_or(self.sequence + 1, |(number, _)| *number);
        let missed = after < self.sequence && after.saturating_add(1) < first;
        (later.map(|(_, packet)| packet.clone()).collect(), missed)
    }

    fn push(&mut self, event: &ChatEvent, case: WireCase) -> Rc<Packet> {
        self.sequence += 1;
        let packet = Packet::event(event, case, self.sequence);
        self.bytes += packet.size();
        self.events.push_back((self.sequence, packet.clone()));
        while self.bytes > RECENT_BYTES || self.events.len() > RECENT_EVENTS {
            let Some((_, oldest)) = self.events.pop_front() else {
                break;
            };
            self.bytes -= oldest.size();
        }
        packet
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::outbox;
    use orchestrator_agent::event::ChatEventBody;

    fn text(content: &str) -> ChatEvent {
        let body = ChatEventBody::TextDelta {
            content: content.into(),
            index: 0,
        };
        ChatEvent {
            conversation: "c".into(),
            message: "m".into(),
            parent: None,
            timestamp: 0,
            body,
        }
    }

    fn note(gap: &mut Option<bool>, missed: bool) -> Rc<Packet> {
        *gap = Some(missed);
        Rc::new(Packet {
            kind: "chat:resumed".into(),
            payload: String::new(),
            timestamp: 0,
            sequence: None,
        })
    }

    async fn say(state: &ConversationState, content: &str) {
        state.publish(&text(content), WireCase::Camel).await;
    }

    #[tokio::test]
    async fn reconnected_client_gets_missed_events_once_and_in_order() {
        let state = ConversationState::new("c");
        let (first, mut queue) = outbox();
        state.follow(&first);
        state.follow(&first);
        for content in ["a", "b", "c"] {
            say(&state, content).await;
        }
        let heard = queue.next().await.unwrap().packet.sequence;
        drop(queue);
        let (second, mut queue) = outbox();
        let mut gap = None;
        state.resume(&second, heard.unwrap(), |missed| note(&mut gap, missed));
        say(&state, "d").await;
        let mut sequences = vec![];
        for _ in 0..4 {
            sequences.push(queue.next().await.unwrap().packet.sequence);
        }
        assert_eq!(
            (sequences, gap),
            (vec![None, Some(2), Some(3), Some(4)], Some(false))
        );
        assert_eq!(state.followers.borrow().len(), 1, "the first one is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_delays_no_other_one_and_is_given_up() {
        let state = ConversationState::new("c");
        let ((slow, slow_queue), (fast, mut queue)) = (outbox(), outbox());
        state.follow(&slow);
        state.follow(&fast);
        let begun = Instant::now();
        let piece = "x".repeat(1 << 20);
        for _ in 0..20 {
            say(&state, &piece).await;
            assert!(queue.next().await.is_some());
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert_eq!(state.followers.borrow().len(), 1);
        slow_queue.given_up().await;
        // The only listener is waited for.
        let say_much = async {
            for _ in 0..9 {
                say(&state, &piece).await;
            }
        };
        let reading = async {
            for _ in 0..9 {
                sleep(Duration::from_secs(5)).await;
                assert!(queue.next().await.is_some());
            }
        };
        tokio::join!(say_much, reading);
        assert_eq!(state.followers.borrow().len(), 1, "it reads, if late");
    }

    #[tokio::test]
    async fn remembered_events_are_limited_and_a_gap_is_reported() {
        let state = ConversationState::new("c");
        let piece = "x".repeat(RECENT_BYTES / 4);
        for _ in 0..10 {
            say(&state, &piece).await;
        }
        assert!(state.recent.borrow().bytes <= RECENT_BYTES);
        for (after, want) in [
            (0, true),
            (1, true),
            (9, false),
            (10, false),
            (u64::MAX, false),
        ] {
            let ((outbox, _queue), mut gap) = (outbox(), None);
            state.resume(&outbox, after, |missed| note(&mut gap, missed));
            assert_eq!(gap, Some(want), "{after}");
        }
        for _ in 0..RECENT_EVENTS + 1 {
            say(&state, "x").await;
        }
        assert_eq!(state.recent.borrow().events.len(), RECENT_EVENTS);
    }

    #[tokio::test]
    async fn remembered_prompts_are_limited() {
        let state = ConversationState::new("c");
        for number in 0..=ASKED_MAX {
            state.begin(number.to_string().into(), &"ä".repeat(ASKED_CHARS + 1));
            state.end();
        }
        let asked = state.asked();
        assert_eq!((asked.len(), &*asked[0].0), (ASKED_MAX, "1"));
        assert!(
            asked
                .iter()
                .all(|(_, content)| content.chars().count() == ASKED_CHARS)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_nobody_hears_is_abandoned_after_a_while_and_not_before() {
        let state = ConversationState::new("c");
        let grace = Duration::from_secs(30);
        let begun = Instant::now();
        state.abandoned(grace).await;
        assert_eq!(begun.elapsed(), grace);
        let (outbox, queue) = outbox();
        state.follow(&outbox);
        let leaving = async {
            sleep(grace * 2).await;
            drop(queue);
        };
        tokio::join!(state.abandoned(grace), leaving);
        assert_eq!(begun.elapsed(), grace * 4);
    }
}
