//! What a client may expect of a broker, tracked frame by frame: each call ends once, nothing arrives unsolicited, output stays
//! within its window, no call runs without a grant that it needs, and the connection ends only for a reason.
//!
//! It knows what was sent and received, but not when: a broker that has not read a frame yet is right too.

use broker_protocol::{
    CallId, Challenge, Ended, ErrorKind, FromBroker, Outcome, Request, ToBroker, limit,
};
use std::collections::BTreeMap;

/// The phase of the connection, according to what was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    #[default]
    Greeting,
    Greeted,
    Open,
}

/// The state of one call number.
#[derive(Clone, Debug, Default)]
struct Entry {
    asked: u64,
    done: u64,
    /// Bytes of live output that may have arrived so far.
    allowed: u64,
    output: u64,
    sequence: u64,
    /// Bytes of input sent and credited.
    input: u64,
    credited: u64,
    /// The number was reused before its end arrived: then output cannot be assigned.
    muddled: bool,
    /// The broker's question about it.
    challenge: Option<Challenge>,
    /// Whether the question was answered with a matching grant.
    granted: bool,
}

/// The ledger of one connection.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    phase: Phase,
    /// The phase, according to the broker.
    heard: Phase,
    probes: u64,
    /// Answers and grant requests that were sent without a reply; most answers get none.
    answers: u64,
    lists: u64,
    /// Looks at files without an answer yet.
    looks: u64,
    /// Texts to save without a reply yet.
    texts: u64,
    /// Whether a background process may be alive.
    background: bool,
    calls: BTreeMap<CallId, Entry>,
    /// Why the broker must end the connection.
    must_end: Option<String>,
    may_end: Option<String>,
    fault: bool,
}

impl Ledger {
    /// Records a frame from the client.
    pub fn sent(&mut self, message: &ToBroker) {
        match (self.phase, message) {
            _ if self.must_end.is_some() => {}
            (Phase::Greeting, ToBroker::Hello(hello)) if hello.check().is_ok() => {
                self.phase = Phase::Greeted;
                // The expected policy may differ.
                self.may_end_if(hello.policy.is_some(), "a Hello with a digest");
            }
            (Phase::Greeted, ToBroker::Probe) => self.probes += 1,
            (Phase::Greeted, ToBroker::Open(_)) => self.phase = Phase::Open,
            (
                Phase::Open,
                ToBroker::Hello(_) | ToBroker::Probe | ToBroker::GatewayLine | ToBroker::Open(_),
            )
            | (Phase::Greeting | Phase::Greeted, _) => {
                self.sent_nonsense(&format!("{message:?} too early or late"))
            }
            (
                Phase::Open,
                ToBroker::Call { call, request } | ToBroker::WantingCall { call, request, .. },
            ) => {
                self.background |= matches!(request, Request::Bash(bash) if bash.background);
                self.asked(*call)
            }
            (Phase::Open, ToBroker::Input { call, bytes }) => self.gave(*call, bytes.len()),
            (Phase::Open, ToBroker::Credit { call, bytes }) => {
                if let Some(entry) = self.calls.get_mut(call) {
                    entry.allowed = entry.allowed.saturating_add(u64::from(*bytes));
                }
            }
            (Phase::Open, ToBroker::Grant(grant)) => {
                self.answers += 1;
                if let Some(entry) = self.calls.get_mut(&grant.call) {
                    let named = |asked: &Challenge| {
                        (asked.digest, asked.nonce) == (grant.digest, grant.nonce)
                    };
                    entry.granted |= entry.challenge.as_ref().is_some_and(named);
                }
            }
            (Phase::Open, ToBroker::Look { .. }) => self.looks += 1,
            (Phase::Open, ToBroker::Refuse { .. }) => self.answers += 1,
            (Phase::Open, ToBroker::Grants | ToBroker::Revoke { .. }) => self.lists += 1,
            (Phase::Open, ToBroker::Keep { bytes, last, .. }) => {
                self.texts += u64::from(*last);
                self.may_end_if(
                    bytes.len() > limit::CHUNK,
                    "more of a text than a frame may hold",
                );
            }
            // What follows them decides.
            (Phase::Open, ToBroker::Content { .. }) => self.may_end_if(true, "pieces of content"),
            // None of these sessions is a throw-away one.
            (Phase::Open, ToBroker::Explain(_)) => {
                self.sent_nonsense("Explain in a session that is kept")
            }
            (
                Phase::Open,
                ToBroker::InputEnd { .. }
                | ToBroker::Resize { .. }
                | ToBroker::Signal { .. }
                | ToBroker::Cancel { .. },
            ) => {}
        }
    }

    /// Records that the client has sent something after which the broker cannot continue.
    pub fn sent_nonsense(&mut self, what: &str) {
        self.must_end.get_or_insert_with(|| what.to_owned());
    }

    /// Records that the client has sent an Open that may be refused.
    pub fn sent_odd_open(&mut self) {
        self.may_end_if(true, "an Open of other roots");
    }

    fn may_end_if(&mut self, condition: bool, what: &str) {
        if condition {
            self.may_end.get_or_insert_with(|| what.to_owned());
        }
    }

    fn asked(&mut self, call: CallId) {
        let entry = self.calls.entry(call).or_default();
        let under_way = entry.asked > entry.done;
        if under_way {
            entry.muddled = true;
        } else {
            let (asked, done, muddled) = (entry.asked, entry.done, entry.muddled);
            *entry = Entry {
                asked,
                done,
                muddled,
                ..Entry::default()
            };
            entry.allowed = u64::from(limit::OUTPUT_WINDOW);
        }
        entry.asked += 1;
        self.may_end_if(under_way, "a call number in use");
    }

    fn gave(&mut self, call: CallId, bytes: usize) {
        let entry = self.calls.entry(call).or_default();
        entry.input += bytes as u64;
        let beyond =
            entry.input - entry.credited > u64::from(limit::INPUT_WINDOW) || bytes > limit::CHUNK;
        self.may_end_if(beyond, "input beyond its window");
    }

    /// Records a message from the broker; an error tells what is wrong with it.
    pub fn received(&mut self, message: &FromBroker) -> Result<(), String> {
        if self.fault {
            return Err(format!("after the Fault came {message:?}"));
        }
        match message {
            FromBroker::Hello(_) => self.step(Phase::Greeting, Phase::Greeted),
            FromBroker::Opened(_) => self.step(Phase::Greeted, Phase::Open),
            FromBroker::Probed(_) => {
                self.probes = self.probes.checked_sub(1).ok_or("an answer to no Probe")?;
                Ok(())
            }
            FromBroker::Output {
                call,
                sequence,
                bytes,
                ..
            } => {
                let entry = self.under_way(*call, "Output")?;
                entry.may_run()?;
                entry.output(*sequence, bytes.len())
            }
            FromBroker::InputCredit { call, bytes } => {
                self.under_way(*call, "InputCredit")?.credit(*bytes)
            }
            FromBroker::Suspended { call } => self.under_way(*call, "Suspended")?.may_run(),
            FromBroker::Part { call, .. } => self.under_way(*call, "Part")?.may_run(),
            FromBroker::Asked { call, challenge } => self.under_way(*call, "Asked")?.ask(challenge),
            // They come only where a client has looked.
            FromBroker::Before { .. } if self.looks > 0 => Ok(()),
            FromBroker::Before { .. } => Err("a file that nobody looks at".to_owned()),
            FromBroker::Seen { .. } => {
                self.looks = self.looks.checked_sub(1).ok_or("an answer to no Look")?;
                Ok(())
            }
            FromBroker::Ungranted(_) => {
                self.answers = self
                    .answers
                    .checked_sub(1)
                    .ok_or("an answer to no Grant or Refuse")?;
                Ok(())
            }
            FromBroker::Grants(_) => {
                self.lists = self
                    .lists
                    .checked_sub(1)
                    .ok_or("a list that nobody asked for")?;
                Ok(())
            }
            // None of these sessions has a network.
            FromBroker::Leases(leases) if leases.is_empty() => Ok(()),
            FromBroker::Leases(_) => Err("a lease without a network".into()),
            FromBroker::Connected(_) => Err("a connection without a network".into()),
            FromBroker::Kept { .. } => {
                self.texts = self
                    .texts
                    .checked_sub(1)
                    .ok_or("a text that nobody wanted kept")?;
                Ok(())
            }
            FromBroker::Explained(_) => Err("an explanation of nothing".into()),
            FromBroker::Found(found) => found.check().map_err(|error| error.to_string()),
            FromBroker::Done { call, outcome, .. } => {
                let entry = self.under_way(*call, "Done")?;
                if ran(outcome) {
                    entry.may_run()?;
                }
                entry.done += 1;
                sound(outcome).map_err(|wrong| format!("the call {call}: {wrong}"))
            }
            FromBroker::Fault(failed) => {
                self.fault = true;
                let why = self.must_end.as_ref().or(self.may_end.as_ref());
                let known = failed.kind == ErrorKind::Protocol || self.may_end.is_some();
                why.filter(|_| known)
                    .map(drop)
                    .ok_or_else(|| format!("a Fault without a reason: {failed:?}"))
            }
        }
    }

    fn step(&mut self, from: Phase, to: Phase) -> Result<(), String> {
        if self.heard != from || self.phase < to {
            return Err(format!(
                "the broker says {to:?} after {:?}; it was asked for {:?}",
                self.heard, self.phase
            ));
        }
        self.heard = to;
        Ok(())
    }

    fn under_way(&mut self, call: CallId, what: &str) -> Result<&mut Entry, String> {
        let entry = self
            .calls
            .get_mut(&call)
            .filter(|entry| entry.asked > entry.done);
        entry.ok_or_else(|| format!("{what} of the call {call}, which is not under way"))
    }

    /// The calls whose end has not arrived.
    pub fn outstanding(&self) -> Vec<CallId> {
        self.calls
            .iter()
            .filter(|(_, entry)| entry.asked > entry.done)
            .map(|(call, _)| *call)
            .collect()
    }

    /// The questions that wait for an answer.
    pub fn questions(&self) -> impl Iterator<Item = (CallId, &Challenge)> {
        let waiting = self
            .calls
            .iter()
            .filter(|(_, entry)| entry.asked > entry.done && !entry.granted);
        waiting.filter_map(|(call, entry)| Some((*call, entry.challenge.as_ref()?)))
    }

    /// Whether the broker has ended the connection with a message.
    pub fn has_ended(&self) -> bool {
        self.fault
    }

    pub fn must_end(&self) -> bool {
        self.must_end.is_some()
    }

    /// Records that the broker has closed its end; `left` tells whether the client had closed its own before.
    pub fn closed(&self, left: bool) -> Result<(), String> {
        match &self.must_end {
            Some(why) if !self.fault => Err(format!("no Fault after {why}")),
            _ if !self.fault && !left => Err("closed without a word".to_owned()),
            _ => Ok(()),
        }
    }
}

impl Entry {
    fn ask(&mut self, challenge: &Challenge) -> Result<(), String> {
        if self.challenge.is_some() && !self.muddled {
            return Err("asked twice about one call".to_owned());
        }
        if self.sequence > 0 && !self.muddled {
            return Err("asked about a call that runs".to_owned());
        }
        self.challenge = Some(challenge.clone());
        Ok(())
    }

    /// An error if the call needed a grant and got none.
    fn may_run(&self) -> Result<(), String> {
        if self.challenge.is_none() || self.granted || self.muddled {
            return Ok(());
        }
        Err("a call runs that was asked about and not granted".to_owned())
    }

    fn output(&mut self, sequence: u64, bytes: usize) -> Result<(), String> {
        if bytes > limit::CHUNK || bytes == 0 {
            return Err(format!("a chunk of {bytes} bytes"));
        }
        if self.muddled {
            return Ok(());
        }
        if sequence != self.sequence {
            return Err(format!(
                "the chunk {sequence} came where {} was due",
                self.sequence
            ));
        }
        self.sequence += 1;
        self.output += bytes as u64;
        if self.output > self.allowed {
            return Err(format!(
                "{} bytes of output, {} were allowed",
                self.output, self.allowed
            ));
        }
        Ok(())
    }

    fn credit(&mut self, bytes: u32) -> Result<(), String> {
        self.credited += u64::from(bytes);
        if self.credited > self.input && !self.muddled {
            return Err(format!(
                "credit for {} bytes of input, {} were sent",
                self.credited, self.input
            ));
        }
        Ok(())
    }
}

/// Whether a call with this outcome has run.
fn ran(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Ran(ran) => ran.ended != Ended::Cancelled,
        Outcome::Answered | Outcome::Granted => true,
        Outcome::Refused(_) | Outcome::Failed(_) | Outcome::Broken(_) => false,
    }
}

/// Accepts outcomes that our own machinery can have without outside interference.
fn sound(outcome: &Outcome) -> Result<(), String> {
    match outcome {
        Outcome::Broken(broken) => Err(format!("nobody broke it: {broken}")),
        Outcome::Failed(failed)
            if matches!(failed.kind, ErrorKind::Internal | ErrorKind::ExecutorLost) =>
        {
            Err(format!("our machinery failed: {failed:?}"))
        }
        Outcome::Ran(ran) if ran.ended == Ended::Exited(-1) => Err("no exit code is -1".to_owned()),
        Outcome::Ran(_)
        | Outcome::Answered
        | Outcome::Granted
        | Outcome::Refused(_)
        | Outcome::Failed(_) => Ok(()),
    }
}

/// Tests that the ledger detects faults: one stream of each kind that a correct broker never sends.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::shell;
    use broker_protocol::{
        Broken, Channel, Coverage, Denials, Digest, Extent, Failed, Grant, GrantFault, Hello,
        LayerSet, Nonce, Request, Risk, Ungranted, Usage,
    };

    fn opened() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.sent(&ToBroker::Hello(Hello::ours(None)));
        ledger.sent(&ToBroker::Open(lazaret_fakes::open("", "")));
        ledger.heard = Phase::Open;
        ledger.sent(&ToBroker::Call {
            call: 1,
            request: Request::Bash(shell("true")),
        });
        ledger
    }

    fn done(call: CallId) -> FromBroker {
        let layers = LayerSet::default();
        let (outcome, usage, denied) = (Outcome::Answered, Usage::default(), Denials::default());
        FromBroker::Done {
            call,
            outcome,
            usage,
            layers,
            denied,
        }
    }

    fn output(sequence: u64, length: usize) -> FromBroker {
        FromBroker::Output {
            call: 1,
            stderr: false,
            sequence,
            bytes: vec![0; length],
        }
    }

    fn fault(kind: ErrorKind) -> FromBroker {
        FromBroker::Fault(Failed {
            kind,
            message: String::new(),
        })
    }

    fn judge(messages: &[FromBroker]) -> Result<(), String> {
        let mut ledger = opened();
        messages
            .iter()
            .try_for_each(|message| ledger.received(message))?;
        ledger.closed(true)
    }

    #[test]
    fn a_good_stream_passes() {
        assert_eq!(judge(&[output(0, 9), output(1, 9), done(1)]), Ok(()));
        assert_eq!(opened().outstanding(), [1]);
    }

    #[test]
    fn two_ends_of_one_call_are_seen() {
        assert!(judge(&[done(1), done(1)]).is_err());
    }

    #[test]
    fn unsolicited_message_is_detected() {
        for stray in [
            done(2),
            FromBroker::InputCredit { call: 1, bytes: 1 },
            FromBroker::Hello(Hello::ours(None)),
        ] {
            assert!(judge(std::slice::from_ref(&stray)).is_err(), "{stray:?}");
        }
        assert!(judge(&[done(1), output(0, 1)]).is_err());
        assert!(
            judge(&[
                done(1),
                FromBroker::Part {
                    call: 1,
                    bytes: vec![]
                }
            ])
            .is_err()
        );
    }

    #[test]
    fn output_out_of_order_or_beyond_its_window_is_seen() {
        assert!(judge(&[output(1, 1)]).is_err());
        assert!(judge(&[output(0, 1), output(0, 1)]).is_err());
        assert!(judge(&[output(0, limit::CHUNK + 1)]).is_err());
        let chunks: Vec<_> = (0..5)
            .map(|sequence| output(sequence, limit::CHUNK))
            .collect();
        assert_eq!(judge(&chunks[..4]), Ok(()));
        assert!(judge(&chunks).is_err());
    }

    #[test]
    fn a_fault_needs_a_reason_and_nonsense_a_fault() {
        assert!(judge(&[fault(ErrorKind::Protocol)]).is_err());
        assert!(opened().closed(false).is_err());
        let mut ledger = opened();
        ledger.sent_nonsense("a bad frame");
        assert!(ledger.closed(true).is_err());
        assert!(
            ledger
                .clone()
                .received(&fault(ErrorKind::ExecutorLost))
                .is_err()
        );
        assert_eq!(ledger.received(&fault(ErrorKind::Protocol)), Ok(()));
        assert_eq!(ledger.closed(false), Ok(()));
        assert!(ledger.received(&done(1)).is_err());
    }

    #[test]
    fn run_without_a_grant_is_detected() {
        let challenge = Challenge {
            digest: Digest([1; 32]),
            nonce: Nonce([2; 16]),
            rule: String::new(),
            why: String::new(),
            risk: Risk::High,
            expires_s: 30,
            channel: Channel::Relay,
            covers: Coverage::Rule,
            programs: Vec::new(),
            wants: broker_protocol::Wants::default(),
        };
        let asked = FromBroker::Asked { call: 1, challenge };
        let granted = |grant: Option<Grant>, then: FromBroker| {
            let mut ledger = opened();
            ledger.received(&asked)?;
            grant
                .into_iter()
                .for_each(|grant| ledger.sent(&ToBroker::Grant(grant)));
            ledger.received(&then)
        };
        let right = Grant {
            call: 1,
            digest: Digest([1; 32]),
            nonce: Nonce([2; 16]),
            extent: Extent::Once,
        };
        for then in [done(1), output(0, 1)] {
            assert_eq!(granted(Some(right), then.clone()), Ok(()));
            assert!(granted(None, then.clone()).is_err());
            assert!(
                granted(
                    Some(Grant {
                        digest: Digest([9; 32]),
                        ..right
                    }),
                    then.clone()
                )
                .is_err()
            );
            assert!(
                granted(
                    Some(Grant {
                        nonce: Nonce([9; 16]),
                        ..right
                    }),
                    then
                )
                .is_err()
            );
        }
        assert!(judge(&[asked.clone(), asked]).is_err());
        let ungranted = Ungranted {
            call: 1,
            fault: GrantFault::NotWaiting,
            violations: 0,
        };
        assert!(judge(&[FromBroker::Ungranted(ungranted)]).is_err());
        assert!(judge(&[FromBroker::Grants(vec![])]).is_err());
    }

    #[test]
    fn broken_machinery_is_seen() {
        let outcome = Outcome::Broken(Broken {
            message: String::new(),
        });
        let (usage, layers, denied) = Default::default();
        assert!(
            judge(&[FromBroker::Done {
                call: 1,
                outcome,
                usage,
                layers,
                denied
            }])
            .is_err()
        );
    }
}
