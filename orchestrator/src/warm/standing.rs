//! The brokers that stand ready: one for each session that somebody has asked for, and those that serve.

use broker_protocol::{Open, frame};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};
use orchestrator_confine::Files;
use orchestrator_launch::start;
use orchestrator_launch::warm::{self, WantedBroker};
use serde_json::{Value, json};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::{Duration, Instant};

/// Most sessions that something stands ready for. With one more, that goes which nobody has asked for the longest.
pub(super) const SESSIONS_MAX: usize = 8;
/// Maximum bytes of a message of a broker.
const MESSAGE_MAX: usize = 2048;
/// After a client was served, or had to start its own executor, the machine is left to its command for so long, or until it ends.
const PAUSE: Duration = Duration::from_millis(250);
/// How long nothing is tried again for a session for which nothing can stand ready.
const AGAIN: Duration = Duration::from_secs(60);

/// A broker that was started before its client came.
struct EarlyBroker {
    line: OwnedFd,
    child: Child,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EarlyState {
    Starting,
    Stands,
    /// It looks whether it still is what would be built now. A client who comes meanwhile is next, or starts its own executor.
    Looks,
    /// It has a client's socket, and has not answered yet.
    Asked,
}

/// A session that somebody has asked for.
struct AskedSession {
    wanted: WantedBroker,
    /// Its request, as people are told of it.
    open: Open,
    standing: Option<(EarlyBroker, EarlyState)>,
    serving: Vec<EarlyBroker>,
    /// When the next broker is to be started.
    due: Option<Instant>,
    last: Instant,
    /// How many clients were served, and how many were not.
    served: u64,
    refused: u64,
    /// Why nothing stands ready, or why a client was not served, the last time.
    why: String,
}

/// All of these sessions, with their brokers.
pub(super) struct ReadyBrokers {
    sessions: Vec<AskedSession>,
    /// Brokers whose line has closed, until they have ended.
    ending: Vec<Child>,
    idle: Duration,
}

impl AskedSession {
    fn new(wanted: WantedBroker, open: Open) -> Self {
        Self {
            wanted,
            open,
            standing: None,
            serving: Vec::new(),
            due: Some(Instant::now() + PAUSE),
            last: Instant::now(),
            served: 0,
            refused: 0,
            why: String::new(),
        }
    }

    /// Hands the client to what stands ready. A client whose socket is closed starts its own executor.
    fn take(&mut self, client: &UnixStream) {
        self.last = Instant::now();
        if let Some((broker, state @ (EarlyState::Stands | EarlyState::Looks))) = &mut self.standing
            && warm::hand_over(&broker.line, client).is_ok()
        {
            *state = EarlyState::Asked;
            return;
        }
        self.refused += 1;
        if self.standing.is_none() && self.due.is_none() {
            self.due = Some(Instant::now() + PAUSE);
        }
    }

    /// Starts the next broker, if it is time.
    fn start(&mut self, files: &Files) -> io::Result<()> {
        if self.standing.is_some() || self.due.is_none_or(|due| due > Instant::now()) {
            return Ok(());
        }
        self.due = None;
        let (ours, theirs) = warm::line()?;
        let Some(executor) = self.wanted.programs.first() else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let child = start::start_ready(files, &executor.path, &self.wanted.environment, theirs)?;
        let broker = EarlyBroker { line: ours, child };
        send(
            broker.line.as_raw_fd(),
            &self.wanted.open,
            MsgFlags::MSG_NOSIGNAL,
        )?;
        self.standing = Some((broker, EarlyState::Starting));
        // After the start: what was started is what the client has seen, or nothing.
        if self
            .wanted
            .programs
            .iter()
            .all(warm::ProgramState::is_there)
        {
            Ok(())
        } else {
            Err(io::Error::other("the programs were replaced"))
        }
    }

    /// Takes what the broker that stands ready has said, if it has; its child, if it has ended.
    fn hear_standing(&mut self) -> Option<Child> {
        let (broker, state) = self.standing.as_mut()?;
        let said = receive(&broker.line)?;
        match said.split_first() {
            Some((b'r' | b's', _)) if *state != EarlyState::Asked => *state = EarlyState::Stands,
            Some((b'r' | b's', _)) => {}
            Some((b'n', why)) => {
                *state = EarlyState::Stands;
                self.refused += 1;
                self.why = text(why);
            }
            Some((b't', _)) => {
                self.served += 1;
                self.due = Some(Instant::now() + PAUSE);
                self.serving
                    .extend(self.standing.take().map(|(broker, _)| broker));
            }
            Some((b'o', _)) => self.due = Some(Instant::now()),
            Some((b'x', why)) => {
                self.why = text(why);
                self.due = Some(Instant::now() + AGAIN);
            }
            // It has ended.
            Some(_) | None => {
                self.due.get_or_insert(Instant::now() + AGAIN);
                return self.standing.take().map(|(broker, _)| broker.child);
            }
        }
        None
    }

    /// The children of those that serve no more. What stands ready looks whether the command has changed anything.
    fn hear_serving(&mut self) -> Vec<Child> {
        let is_over = |broker: &mut EarlyBroker| receive(&broker.line).is_some();
        let ended: Vec<Child> = self
            .serving
            .extract_if(.., is_over)
            .map(|broker| broker.child)
            .collect();
        if !ended.is_empty() {
            self.due = self.due.map(|_| Instant::now());
            if let Some((broker, state @ EarlyState::Stands)) = &mut self.standing {
                // One that has ended is heard of by its line.
                let _ = send(broker.line.as_raw_fd(), b"k", MsgFlags::MSG_NOSIGNAL);
                *state = EarlyState::Looks;
            }
        }
        ended
    }

    fn lines(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let standing = self.standing.iter().map(|(broker, _)| broker);
        standing
            .chain(&self.serving)
            .map(|broker| broker.line.as_fd())
    }

    fn json(&self) -> Value {
        let state = match self.standing.as_ref().map(|(_, state)| state) {
            Some(EarlyState::Stands) => "ready",
            Some(EarlyState::Starting | EarlyState::Looks | EarlyState::Asked) => "busy",
            None => "none",
        };
        json!({
            "project": self.open.project,
            "profile": self.open.profile,
            "state": state,
            "running": self.serving.len(),
            "served": self.served,
            "cold": self.refused,
            "why": (!self.why.is_empty()).then_some(&self.why),
        })
    }
}

impl ReadyBrokers {
    /// None yet; each ends when nobody has asked for its session for `idle`.
    pub(super) fn new(idle: Duration) -> Self {
        Self {
            sessions: Vec::new(),
            ending: Vec::new(),
            idle,
        }
    }

    /// Serves a client, or remembers what it wants for the next. Where it wants nothing that can be, it hears of that from its own executor.
    pub(super) fn take(&mut self, wanted: WantedBroker, client: &UnixStream) {
        if let Some(session) = self.sessions.iter_mut().find(|it| it.wanted == wanted) {
            return session.take(client);
        }
        let Ok(open) = frame::decode_whole::<Open>(&wanted.open) else {
            return;
        };
        if self.sessions.len() == SESSIONS_MAX {
            let oldest = self
                .sessions
                .iter()
                .enumerate()
                .min_by_key(|(_, it)| it.last);
            if let Some((at, _)) = oldest {
                let session = self.sessions.swap_remove(at);
                self.end(session);
            }
        }
        self.sessions.push(AskedSession::new(wanted, open));
    }

    /// Does what is due, and hears what brokers have said.
    pub(super) fn turn(&mut self, files: &Files) {
        let mut ended = Vec::new();
        for session in &mut self.sessions {
            // Each message is read by itself; the next one wakes us again.
            ended.extend(session.hear_standing());
            ended.extend(session.hear_serving());
            if let Err(error) = session.start(files) {
                session.why = error.to_string();
                session.due = Some(Instant::now() + AGAIN);
                ended.extend(session.standing.take().map(|(broker, _)| broker.child));
            }
        }
        self.ending.extend(ended);
        let idle = self.idle;
        let is_idle = |it: &mut AskedSession| it.serving.is_empty() && it.last.elapsed() > idle;
        let idle: Vec<AskedSession> = self.sessions.extract_if(.., is_idle).collect();
        idle.into_iter().for_each(|session| self.end(session));
        self.ending
            .retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }

    /// Closes the lines: what stands ready ends, what serves goes on until its client has left.
    fn end(&mut self, session: AskedSession) {
        let standing = session.standing.into_iter().map(|(broker, _)| broker);
        let brokers = standing.chain(session.serving);
        self.ending.extend(brokers.map(|broker| broker.child));
    }

    /// Descriptors to wait for besides new clients.
    pub(super) fn lines(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sessions.iter().flat_map(AskedSession::lines)
    }

    /// How long to wait at most.
    pub(super) fn patience(&self) -> Duration {
        const ENDING: Duration = Duration::from_millis(200);
        let due = self.sessions.iter().filter(|it| it.standing.is_none());
        let due = due.filter_map(|it| it.due);
        let due = due.map(|due| due.saturating_duration_since(Instant::now()));
        let ending = (!self.ending.is_empty()).then_some(ENDING);
        let idle = (!self.sessions.is_empty()).then_some(self.idle / 4);
        due.chain(ending)
            .chain(idle)
            .min()
            .unwrap_or(Duration::from_secs(3600))
    }

    /// The answer to `lazaret warm status`: each session with its state and counts.
    pub(super) fn json(&self) -> Value {
        let sessions: Vec<Value> = self.sessions.iter().map(AskedSession::json).collect();
        json!({ "sessions": sessions })
    }
}

/// A message, if there is one: an empty one at the end.
fn receive(line: &OwnedFd) -> Option<Vec<u8>> {
    let mut message = vec![0; MESSAGE_MAX];
    match recv(line.as_raw_fd(), &mut message, MsgFlags::MSG_DONTWAIT) {
        Ok(length) => {
            message.truncate(length);
            Some(message)
        }
        Err(Errno::EAGAIN | Errno::EINTR) => None,
        Err(_) => Some(Vec::new()),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
