//! Requests that wait until somebody has allowed them. The broker asks; here they are held for a short time, each in its program's
//! connection.
//!
//! One question of a call is open at a time. A program that sends the same request again waits for the same answer. The broker keeps a yes
//! until a request uses it, once.

use super::limits::{HELD_BYTES, HELD_REQUESTS};
use broker_protocol::CallId;
use broker_protocol::gateway::{FromGateway, HeldRequest, RequestAnswer};
use orchestrator_effects::UnreadBody;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

pub(super) struct Questions {
    asked: RefCell<Vec<HeldQuestion>>,
    last: Cell<u32>,
    waiting: Cell<usize>,
    /// Bytes of bodies that are read for questions.
    held: Cell<usize>,
    changed: Notify,
    /// How long a request is held.
    time: Duration,
    tell: Rc<dyn Fn(FromGateway)>,
}

struct HeldQuestion {
    kind: QuestionKind,
    request: HeldRequest,
    answer: Option<RequestAnswer>,
}

/// A question to the broker: about a request, or to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QuestionKind {
    /// A question to somebody who approves requests.
    Approval,
    /// To use the grant that it keeps.
    Grant,
}

/// Why a request does not go on now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AwaitedAnswer {
    Answered(RequestAnswer),
    /// None yet: its question is open.
    Open,
    /// None yet, and no question: another one of its call is open.
    Behind,
}

impl Questions {
    pub(super) fn new(time: Duration, tell: Rc<dyn Fn(FromGateway)>) -> Self {
        Self {
            asked: RefCell::default(),
            last: Cell::new(0),
            waiting: Cell::new(0),
            held: Cell::new(0),
            changed: Notify::new(),
            time,
            tell,
        }
    }

    /// Asks about a request, for each rule that does so, and holds it a while for the answers. Grants are used when all of them are there.
    ///
    /// # Errors
    /// The rule by which it does not go on, by its place, and why.
    pub(super) async fn ask_all(
        &self,
        requests: Vec<HeldRequest>,
    ) -> Result<(), (usize, AwaitedAnswer)> {
        let until = Instant::now() + self.time;
        let mut granted = Vec::new();
        for (at, request) in requests.into_iter().enumerate() {
            match self.held(QuestionKind::Approval, &request, until).await {
                AwaitedAnswer::Answered(RequestAnswer::Granted) => {}
                AwaitedAnswer::Answered(RequestAnswer::Kept) => granted.push((at, request)),
                answer => return Err((at, answer)),
            }
        }
        for (at, request) in granted {
            // The broker answers this by itself.
            let until = Instant::now() + self.time;
            match self.held(QuestionKind::Grant, &request, until).await {
                AwaitedAnswer::Answered(RequestAnswer::Granted) => {}
                answer => return Err((at, answer)),
            }
        }
        Ok(())
    }

    async fn held(
        &self,
        kind: QuestionKind,
        request: &HeldRequest,
        until: Instant,
    ) -> AwaitedAnswer {
        if request.call == 0 {
            return AwaitedAnswer::Answered(RequestAnswer::NoCall);
        }
        if self.waiting.get() >= HELD_REQUESTS {
            return AwaitedAnswer::Answered(RequestAnswer::TooMany);
        }
        let _waiting = Counted::new(&self.waiting, 1);
        match timeout_at(until, self.ask(kind, request)).await {
            Ok(answer) => AwaitedAnswer::Answered(answer),
            Err(_) if self.position(kind, request).is_some() => AwaitedAnswer::Open,
            Err(_) => AwaitedAnswer::Behind,
        }
    }

    /// Asks, and waits for the answer.
    async fn ask(&self, kind: QuestionKind, request: &HeldRequest) -> RequestAnswer {
        loop {
            if let Some(answer) = self.take(kind, request) {
                return answer;
            }
            let may_open = match kind {
                QuestionKind::Approval => !self.is_open(request.call),
                QuestionKind::Grant => self.position(kind, request).is_none(),
            };
            if may_open && !self.open(kind, request.clone()) {
                return RequestAnswer::TooMany;
            }
            self.changed.notified().await;
        }
    }

    /// Takes the answer to a question. One that nobody has asked is dropped.
    pub(super) fn answer(&self, question: u32, answer: RequestAnswer) {
        let mut asked = self.asked.borrow_mut();
        let of = asked
            .iter_mut()
            .find(|one| one.request.question == question);
        if let Some(of) = of {
            of.answer = Some(answer);
        }
        self.changed.notify_waiters();
    }

    /// Holds so many more bytes of a body.
    ///
    /// # Errors
    /// As many as may be are held already.
    pub(super) fn hold(&self, bytes: usize) -> Result<Counted<'_>, UnreadBody> {
        match self.held.get() + bytes <= HELD_BYTES {
            true => Ok(Counted::new(&self.held, bytes)),
            false => Err(UnreadBody::Crowded),
        }
    }

    /// The answer to the question about this request, which is used up by it.
    fn take(&self, kind: QuestionKind, request: &HeldRequest) -> Option<RequestAnswer> {
        let at = self.position(kind, request)?;
        let mut asked = self.asked.borrow_mut();
        let answer = asked[at].answer?;
        asked.remove(at);
        // Others of the call may ask now.
        self.changed.notify_waiters();
        Some(answer)
    }

    fn position(&self, kind: QuestionKind, request: &HeldRequest) -> Option<usize> {
        let asked = self.asked.borrow();
        asked.iter().position(|one| {
            let same = HeldRequest {
                question: one.request.question,
                ..request.clone()
            };
            one.kind == kind && one.request == same
        })
    }

    fn is_open(&self, call: CallId) -> bool {
        let asked = self.asked.borrow();
        asked.iter().any(|one| {
            one.request.call == call && one.kind == QuestionKind::Approval && one.answer.is_none()
        })
    }

    fn open(&self, kind: QuestionKind, mut request: HeldRequest) -> bool {
        let mut asked = self.asked.borrow_mut();
        if asked.len() >= HELD_REQUESTS {
            // An answer for which nobody has come back makes room.
            let Some(at) = asked.iter().position(|one| one.answer.is_some()) else {
                return false;
            };
            asked.remove(at);
        }
        self.last.set(self.last.get().wrapping_add(1));
        request.question = self.last.get();
        asked.push(HeldQuestion {
            kind,
            request: request.clone(),
            answer: None,
        });
        (self.tell)(match kind {
            QuestionKind::Approval => FromGateway::Asked(request),
            QuestionKind::Grant => FromGateway::Claimed(request),
        });
        true
    }
}

/// A part of a number, until it is dropped.
pub(super) struct Counted<'a> {
    of: &'a Cell<usize>,
    part: usize,
}

impl<'a> Counted<'a> {
    fn new(of: &'a Cell<usize>, part: usize) -> Self {
        of.set(of.get() + part);
        Self { of, part }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.of.set(self.of.get() - self.part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::gateway::{EffectKind, RequestEffect};
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    type Answer = Result<(), (usize, AwaitedAnswer)>;

    fn request(call: CallId, path: &str) -> HeldRequest {
        HeldRequest {
            question: 0,
            call,
            rule: 0,
            host: "a.example".into(),
            port: 443,
            method: "POST".into(),
            path: path.into(),
            credential: None,
            effects: vec![RequestEffect {
                object: "o".into(),
                kind: EffectKind::Update,
                change: "c".into(),
            }],
        }
    }

    /// Questions, and their numbers as the broker hears them: those that use a grant are negative.
    fn questions(time: Duration) -> (Rc<RefCell<Vec<i64>>>, Questions) {
        let told = Rc::<RefCell<Vec<i64>>>::default();
        let heard = told.clone();
        let tell = move |frame: FromGateway| match frame {
            FromGateway::Asked(request) => heard.borrow_mut().push(request.question.into()),
            FromGateway::Claimed(request) => {
                heard.borrow_mut().push(-i64::from(request.question));
            }
            _ => {}
        };
        (told, Questions::new(time, Rc::new(tell)))
    }

    fn poll(future: &mut Pin<&mut impl Future<Output = Answer>>) -> Poll<Answer> {
        future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
    }

    fn not(answer: RequestAnswer) -> Poll<Answer> {
        Poll::Ready(Err((0, AwaitedAnswer::Answered(answer))))
    }

    /// Runs a test in a runtime with a clock.
    fn with_clock(test: impl AsyncFnOnce()) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(test());
    }

    const LONG: Duration = Duration::from_secs(300);

    #[test]
    fn one_question_of_a_call_is_open_at_a_time() {
        with_clock(async || {
            let (told, questions) = questions(LONG);
            let mut first = pin!(questions.ask_all(vec![request(7, "/a")]));
            let mut second = pin!(questions.ask_all(vec![request(7, "/b")]));
            let mut other = pin!(questions.ask_all(vec![request(8, "/a")]));
            assert_eq!(poll(&mut first), Poll::Pending);
            assert_eq!(poll(&mut second), Poll::Pending);
            assert_eq!(poll(&mut other), Poll::Pending);
            assert_eq!(*told.borrow(), [1, 2], "of each call one");
            questions.answer(9, RequestAnswer::Granted);
            assert_eq!(poll(&mut first), Poll::Pending, "another question's");
            questions.answer(1, RequestAnswer::Granted);
            assert_eq!(poll(&mut first), Poll::Ready(Ok(())));
            assert_eq!(poll(&mut second), Poll::Pending);
            assert_eq!(*told.borrow(), [1, 2, 3]);
            questions.answer(3, RequestAnswer::Refused);
            assert_eq!(poll(&mut second), not(RequestAnswer::Refused));
        });
    }

    #[test]
    fn yes_is_for_the_request_asked_about_and_used_once() {
        with_clock(async || {
            let (told, questions) = questions(LONG);
            {
                let mut given_up = pin!(questions.ask_all(vec![request(7, "/a")]));
                assert_eq!(poll(&mut given_up), Poll::Pending);
            }
            questions.answer(1, RequestAnswer::Kept);
            let mut other = request(7, "/a");
            other.effects[0].change = "d".into();
            let mut other = pin!(questions.ask_all(vec![other]));
            assert_eq!(poll(&mut other), Poll::Pending, "it changes something else");
            let mut again = pin!(questions.ask_all(vec![request(7, "/a")]));
            assert_eq!(poll(&mut again), Poll::Pending, "the broker has the grant");
            assert_eq!(*told.borrow(), [1, 2, -3]);
            questions.answer(3, RequestAnswer::Granted);
            assert_eq!(poll(&mut again), Poll::Ready(Ok(())));
            let mut third = pin!(questions.ask_all(vec![request(7, "/a")]));
            assert_eq!(poll(&mut third), Poll::Pending, "it is used up");
            questions.answer(2, RequestAnswer::Refused);
            assert_eq!(poll(&mut other), not(RequestAnswer::Refused));
            assert_eq!(poll(&mut third), Poll::Pending);
            assert_eq!(*told.borrow(), [1, 2, -3, 4]);
        });
    }

    #[test]
    fn grants_are_used_when_each_rule_has_one() {
        with_clock(async || {
            let (told, questions) = questions(LONG);
            let both = || {
                let second = HeldRequest {
                    rule: 1,
                    ..request(7, "/a")
                };
                vec![request(7, "/a"), second]
            };
            let mut first = pin!(questions.ask_all(both()));
            assert_eq!(poll(&mut first), Poll::Pending);
            questions.answer(1, RequestAnswer::Kept);
            assert_eq!(poll(&mut first), Poll::Pending);
            assert_eq!(*told.borrow(), [1, 2]);
            questions.answer(2, RequestAnswer::Refused);
            let no = Err((1, AwaitedAnswer::Answered(RequestAnswer::Refused)));
            assert_eq!(poll(&mut first), Poll::Ready(no));
            assert_eq!(*told.borrow(), [1, 2], "the first rule's is still there");
            let mut second = pin!(questions.ask_all(both()));
            assert_eq!(poll(&mut second), Poll::Pending);
            questions.answer(3, RequestAnswer::Kept);
            assert_eq!(poll(&mut second), Poll::Pending);
            questions.answer(4, RequestAnswer::Kept);
            assert_eq!(poll(&mut second), Poll::Pending);
            questions.answer(5, RequestAnswer::Granted);
            assert_eq!(poll(&mut second), Poll::Pending);
            questions.answer(6, RequestAnswer::Granted);
            assert_eq!(poll(&mut second), Poll::Ready(Ok(())));
            assert_eq!(*told.borrow(), [1, 2, 3, 4, -5, -6]);
        });
    }

    #[test]
    fn a_request_is_held_for_a_while_and_its_question_stays_open() {
        with_clock(async || {
            let (told, questions) = questions(Duration::from_millis(50));
            let waits = |answer| Err((0, answer));
            let first = questions.ask_all(vec![request(7, "/a")]);
            let second = questions.ask_all(vec![request(7, "/b")]);
            let (first, second) = tokio::join!(first, second);
            assert_eq!(first, waits(AwaitedAnswer::Open));
            assert_eq!(second, waits(AwaitedAnswer::Behind));
            let again = questions.ask_all(vec![request(7, "/a")]).await;
            assert_eq!(again, waits(AwaitedAnswer::Open));
            assert_eq!(*told.borrow(), [1], "it is the same question");
            questions.answer(1, RequestAnswer::Expired);
            let mut again = pin!(questions.ask_all(vec![request(7, "/a")]));
            assert_eq!(poll(&mut again), not(RequestAnswer::Expired));
            let again = questions.ask_all(vec![request(7, "/a")]).await;
            assert_eq!(again, waits(AwaitedAnswer::Open));
            assert_eq!(*told.borrow(), [1, 2], "it is asked again");
            assert_eq!(questions.waiting.get(), 0);
        });
    }

    #[test]
    fn waiting_questions_are_bounded() {
        with_clock(async || {
            let (told, questions) = questions(LONG);
            let mut all = Vec::new();
            for call in 1..=HELD_REQUESTS as u64 {
                let mut one = Box::pin(questions.ask_all(vec![request(call, "/a")]));
                assert_eq!(poll(&mut one.as_mut()), Poll::Pending);
                all.push(one);
            }
            let mut over = pin!(questions.ask_all(vec![request(1000, "/a")]));
            assert_eq!(poll(&mut over), not(RequestAnswer::TooMany));
            assert_eq!(told.borrow().len(), HELD_REQUESTS);
            let mut nobody = pin!(questions.ask_all(vec![request(0, "/a")]));
            assert_eq!(poll(&mut nobody), not(RequestAnswer::NoCall));
            let held = questions.hold(HELD_BYTES).ok();
            assert!(held.is_some() && questions.hold(1).is_err());
            drop(held);
            assert!(questions.hold(1).is_ok());
        });
    }
}
