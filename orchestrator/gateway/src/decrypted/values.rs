//! The values of credentials: asked of the broker at the first request to one of their hosts, held, and asked for again when the host refuses one.
//! At most one question at a time, and one in 30 seconds or longer.

use super::limits::{
    EXPIRES_SOON, REMEMBERED, TOKENS, Times, VALUE_MIN, VALUES_PER_INTERVAL, WAITING,
};
use broker_protocol::gateway::FromGateway;
use hyper::header::HeaderValue;
use orchestrator_aws::{AwsKeyError, KeyParts};
use orchestrator_logins::{KEY_MIN, RealToken};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use thiserror::Error;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};
use zeroize::Zeroizing;

/// Why a credential has no value now.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CredentialValueError {
    #[error("there is no such credential")]
    Unknown,
    #[error("its source gave none")]
    Empty,
    #[error("{WAITING} requests wait for it already")]
    Waiting,
    #[error("its source did not answer within {seconds} s")]
    Late { seconds: u64 },
    /// A value that a host refuses is not sent there again before its source was asked.
    #[error("{place} has refused it (401), and its source is asked again in {seconds} s")]
    Refused { place: String, seconds: u64 },
    /// An expired key is never sent.
    #[error("it has expired, and its source gave no newer one")]
    Expired,
    #[error("its source gave fewer than {VALUE_MIN} bytes")]
    Short,
    #[error("its source gave characters that no header may contain")]
    Characters,
    #[error("the key of a login has at least {KEY_MIN} bytes, and its source gave fewer")]
    ShortKey,
    #[error(transparent)]
    Key(#[from] AwsKeyError),
    /// The broker could not read it, in its words.
    #[error("{0}")]
    Source(String),
}

/// One value of a credential.
pub(super) struct Value {
    pub bytes: Zeroizing<Vec<u8>>,
    /// What belongs to it if it is a secret key of AWS.
    pub key: Option<KeyParts>,
    number: u32,
}

impl Value {
    /// One of no credential, to search for.
    pub(crate) fn of(bytes: Vec<u8>) -> Rc<Self> {
        Rc::new(Self {
            bytes: Zeroizing::new(bytes),
            key: None,
            number: 0,
        })
    }

    /// Each part of it that answers may not contain.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &Zeroizing<Vec<u8>>> {
        let token = self.key.as_ref().and_then(|key| key.token.as_ref());
        [&self.bytes].into_iter().chain(token)
    }

    fn ends_within(&self, seconds: u64) -> bool {
        let end = self.key.as_ref().and_then(|key| key.expires);
        end.is_some_and(|end| end <= orchestrator_aws::now() + seconds)
    }
}

/// The values of a session's credentials, in their order.
pub(super) struct CredentialValues {
    slots: Vec<ValueSlot>,
    times: Times,
    tell: Rc<dyn Fn(FromGateway)>,
}

#[derive(Default)]
struct ValueSlot {
    state: RefCell<ValueState>,
    /// Earlier values and the present one.
    known: RefCell<VecDeque<Rc<Value>>>,
    /// The tokens of its logins that were used last, if it has some.
    tokens: RefCell<VecDeque<Rc<Value>>>,
    /// Whether a question is open, and when the last one was put.
    is_asked: Cell<bool>,
    asked: Cell<Option<Instant>>,
    waiting: Cell<usize>,
    changed: Notify,
    /// The hosts that have refused the present value since its source was asked.
    refused: RefCell<BTreeSet<String>>,
    /// Whether the source has given the present value again after that: it is what the user has, and a refusal is about something else.
    is_confirmed: Cell<bool>,
    /// Whether it was said that answers pass although there is no value.
    is_missed: Cell<bool>,
}

#[derive(Clone, Default)]
enum ValueState {
    #[default]
    Empty,
    Held(Rc<Value>),
    Failed(CredentialValueError),
}

impl CredentialValues {
    pub(super) fn new(count: usize, times: Times, tell: Rc<dyn Fn(FromGateway)>) -> Self {
        Self {
            slots: (0..count).map(|_| ValueSlot::default()).collect(),
            times,
            tell,
        }
    }

    /// The value for a request, which waits for it if need be.
    ///
    /// # Errors
    /// [`CredentialValueError`].
    pub(super) async fn get(&self, credential: u16) -> Result<Rc<Value>, CredentialValueError> {
        let slot = self.slot(credential)?;
        if !slot.is_asked.get() {
            match slot.state.borrow().clone() {
                ValueState::Held(value) if !value.ends_within(EXPIRES_SOON) => return Ok(value),
                ValueState::Held(value) if !self.may_ask(slot) => return unexpired(value),
                ValueState::Failed(why) if !self.may_ask(slot) => return Err(why),
                ValueState::Held(_) | ValueState::Empty | ValueState::Failed(_) => {}
            }
            self.ask(credential, slot);
        }
        self.wait(slot).await?;
        match slot.state.borrow().clone() {
            ValueState::Held(value) => unexpired(value),
            ValueState::Failed(why) => Err(why),
            ValueState::Empty => Err(CredentialValueError::Empty),
        }
    }

    /// The value for a request to `place`.
    ///
    /// # Errors
    /// [`CredentialValueError`].
    pub(super) async fn get_for(
        &self,
        credential: u16,
        place: &str,
    ) -> Result<Rc<Value>, CredentialValueError> {
        let slot = self.slot(credential)?;
        if slot.refused.borrow().contains(place) && !slot.is_asked.get() {
            let Some(wait) = self.wait_to_ask(slot) else {
                self.ask(credential, slot);
                return self.get(credential).await;
            };
            return Err(CredentialValueError::Refused {
                place: place.to_owned(),
                seconds: wait.as_secs() + 1,
            });
        }
        self.get(credential).await
    }

    /// Asks for a value that nobody has asked for: what a host answers is searched for it, whoever has given it to that host.
    pub(super) fn want(&self, credential: u16) {
        if let Ok(slot) = self.slot(credential)
            && slot.asked.get().is_none()
        {
            self.ask(credential, slot);
        }
    }

    /// Waits until a value is known, no longer than a request that needs it. True if there is none, and nobody was told so before.
    /// However many wait: nothing of them is held here, and a command that needs no value may send many requests.
    pub(super) async fn is_newly_missed(&self, credential: u16) -> bool {
        let Ok(slot) = self.slot(credential) else {
            return false;
        };
        let Some(asked) = slot.asked.get().filter(|_| slot.known.borrow().is_empty()) else {
            return false;
        };
        let _ = timeout_at(asked + self.times.value, slot.answered()).await;
        slot.known.borrow().is_empty() && !slot.is_missed.replace(true)
    }

    /// Called when `place` has refused `value`, as [`CredentialValues::refused`] then.
    pub(super) fn refused_at(&self, credential: u16, value: &Value, place: String) {
        let Ok(slot) = self.slot(credential) else {
            return;
        };
        if slot.holds(value) && !slot.is_confirmed.get() {
            slot.refused.borrow_mut().insert(place);
        }
    }

    /// Called when the host has refused `value`: asks for another one, if none was asked for lately.
    pub(super) fn refused(&self, credential: u16, value: &Value) {
        let Ok(slot) = self.slot(credential) else {
            return;
        };
        if slot.holds(value) && !slot.is_asked.get() && self.may_ask(slot) {
            self.ask(credential, slot);
        }
    }

    /// The value that follows a refused one, if it is another.
    pub(super) async fn after(&self, credential: u16, value: &Value) -> Option<Rc<Value>> {
        self.refused(credential, value);
        let slot = self.slot(credential).ok()?;
        if slot.is_asked.get() {
            self.wait(slot).await.ok()?;
        }
        match slot.state.borrow().clone() {
            ValueState::Held(next) if next.number != value.number => Some(next),
            ValueState::Held(_) | ValueState::Failed(_) | ValueState::Empty => None,
        }
    }

    /// Takes a value from the broker, or why there is none.
    pub(crate) fn deliver(&self, credential: u16, answer: Result<Vec<u8>, String>) {
        let value = read_answer(answer).and_then(usable);
        self.hold(credential, value.map(|bytes| (bytes, None)));
    }

    /// The same for a key of AWS, in the form in which its source prints it.
    pub(crate) fn deliver_key(&self, credential: u16, answer: Result<Vec<u8>, String>) {
        let value =
            read_answer(answer).and_then(|text| Ok(orchestrator_aws::read_key(&text, VALUE_MIN)?));
        self.hold(credential, value.map(|(bytes, key)| (bytes, Some(key))));
    }

    /// Takes the key of logins in the same way.
    pub(crate) fn deliver_secret(&self, credential: u16, answer: Result<Vec<u8>, String>) {
        let long = |bytes: Zeroizing<Vec<u8>>| match bytes.len() < KEY_MIN {
            true => Err(CredentialValueError::ShortKey),
            false => Ok(bytes),
        };
        let value = read_answer(answer).and_then(usable).and_then(long);
        self.hold(credential, value.map(|bytes| (bytes, None)));
    }

    /// Takes a token that answers may not contain; true if it was not among those that were used last.
    pub(super) fn learn_token(
        &self,
        credential: u16,
        token: &RealToken,
    ) -> Option<(Rc<Value>, bool)> {
        let mut tokens = self.slot(credential).ok()?.tokens.borrow_mut();
        // As hosts read it from a header.
        let token = token.trim_ascii();
        let at = tokens.iter().position(|known| **known.bytes == *token);
        let value = match at.and_then(|at| tokens.remove(at)) {
            Some(known) => known,
            None => Rc::new(Value {
                bytes: Zeroizing::new(token.to_vec()),
                key: None,
                number: 0,
            }),
        };
        tokens.push_back(value.clone());
        if tokens.len() > TOKENS {
            tokens.pop_front();
        }
        Some((value, at.is_none()))
    }

    fn hold(
        &self,
        credential: u16,
        value: Result<(Zeroizing<Vec<u8>>, Option<KeyParts>), CredentialValueError>,
    ) {
        let Ok(slot) = self.slot(credential) else {
            return;
        };
        let state = match value {
            Ok((bytes, key)) => {
                let value = slot.remember(bytes, key);
                let was_refused = !slot.refused.take().is_empty();
                let is_same = slot.holds(&value);
                let confirmed = is_same && (was_refused || slot.is_confirmed.get());
                slot.is_confirmed.set(confirmed);
                ValueState::Held(value)
            }
            Err(why) => ValueState::Failed(why),
        };
        *slot.state.borrow_mut() = state;
        slot.is_asked.set(false);
        slot.changed.notify_waiters();
    }

    /// The values that answers of the credential's hosts are searched for.
    pub(super) fn known(&self, credential: u16) -> Vec<Rc<Value>> {
        self.slot(credential).map_or_else(
            |_| vec![],
            |slot| {
                let (known, tokens) = (slot.known.borrow(), slot.tokens.borrow());
                known.iter().chain(&*tokens).cloned().collect()
            },
        )
    }

    fn slot(&self, credential: u16) -> Result<&ValueSlot, CredentialValueError> {
        self.slots
            .get(usize::from(credential))
            .ok_or(CredentialValueError::Unknown)
    }

    fn may_ask(&self, slot: &ValueSlot) -> bool {
        self.wait_to_ask(slot).is_none()
    }

    /// How long its source may not be asked.
    fn wait_to_ask(&self, slot: &ValueSlot) -> Option<Duration> {
        let wait = self.interval(slot);
        let wait = wait.checked_sub(slot.asked.get()?.elapsed());
        wait.filter(|wait| !wait.is_zero())
    }

    fn interval(&self, slot: &ValueSlot) -> Duration {
        let times = 1 + slot.known.borrow().len() / VALUES_PER_INTERVAL;
        self.times.refresh * u32::try_from(times).unwrap_or(u32::MAX)
    }

    fn ask(&self, credential: u16, slot: &ValueSlot) {
        slot.is_asked.set(true);
        slot.asked.set(Some(Instant::now()));
        (self.tell)(FromGateway::Wanted { credential });
    }

    async fn wait(&self, slot: &ValueSlot) -> Result<(), CredentialValueError> {
        if slot.waiting.get() >= WAITING {
            return Err(CredentialValueError::Waiting);
        }
        let _waiting = ValueWait::new(&slot.waiting);
        let seconds = self.times.value.as_secs();
        timeout(self.times.value, slot.answered())
            .await
            .map_err(|_| CredentialValueError::Late { seconds })
    }
}

impl ValueSlot {
    async fn answered(&self) {
        while self.is_asked.get() {
            self.changed.notified().await;
        }
    }

    fn holds(&self, value: &Value) -> bool {
        matches!(&*self.state.borrow(), ValueState::Held(held) if held.number == value.number)
    }

    /// The value with these bytes: one of the known ones keeps its number.
    fn remember(&self, bytes: Zeroizing<Vec<u8>>, key: Option<KeyParts>) -> Rc<Value> {
        let mut known = self.known.borrow_mut();
        let is_same = |last: &&Rc<Value>| last.bytes == bytes && last.key == key;
        if let Some(last) = known.back().filter(is_same) {
            return last.clone();
        }
        let number = known.back().map_or(0, |last| last.number.wrapping_add(1));
        let value = Rc::new(Value { bytes, key, number });
        known.push_back(value.clone());
        if known.len() > REMEMBERED {
            known.pop_front();
        }
        value
    }
}

/// A request that waits, until it no longer does.
struct ValueWait<'a>(&'a Cell<usize>);

impl<'a> ValueWait<'a> {
    fn new(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for ValueWait<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// The value, unless it is a key that is no longer good: such a one is never sent.
fn unexpired(value: Rc<Value>) -> Result<Rc<Value>, CredentialValueError> {
    match value.ends_within(0) {
        true => Err(CredentialValueError::Expired),
        false => Ok(value),
    }
}

fn read_answer(
    answer: Result<Vec<u8>, String>,
) -> Result<Zeroizing<Vec<u8>>, CredentialValueError> {
    answer
        .map(Zeroizing::new)
        .map_err(CredentialValueError::Source)
}

/// The value without spaces, tabs and line ends around it: a host drops these from a header (RFC 9110, section 5.5), and what it answers
/// would not be found with them.
fn usable(bytes: Zeroizing<Vec<u8>>) -> Result<Zeroizing<Vec<u8>>, CredentialValueError> {
    let bytes = Zeroizing::new(bytes.trim_ascii().to_vec());
    if bytes.len() < VALUE_MIN {
        return Err(CredentialValueError::Short);
    }
    if HeaderValue::from_bytes(&bytes).is_err() {
        return Err(CredentialValueError::Characters);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_gives_new_values_is_asked_ever_less_often() {
        let values = CredentialValues::new(1, Times::default(), Rc::new(|_| ()));
        let slot = || values.slot(0).unwrap();
        let interval = || values.interval(slot()).as_secs();
        assert_eq!(interval(), 30);
        for (count, want) in [(3, 30), (4, 60), (16, 150), (200, 510)] {
            for number in 0..count {
                values.deliver(0, Ok(format!("the value {number}").into_bytes()));
            }
            assert_eq!(interval(), want, "{count}");
            slot().known.borrow_mut().clear();
        }
        for number in 0..200 {
            values.deliver(0, Ok(format!("the value {number}").into_bytes()));
        }
        assert_eq!(values.known(0).len(), REMEMBERED);
    }
}
