//! Requests that wait until somebody has allowed them. The broker asks; here they are held, each in its program's connection.
//!
//! One question of a call is open at a time. A program that gives up and sends the same request again waits for the same answer, and a
//! yes that came meanwhile is used by it, once.

use super::limits::{HELD_BYTES, HELD_REQUESTS};
use broker_protocol::CallId;
use broker_protocol::gateway::{FromGateway, HeldRequest, RequestAnswer};
use orchestrator_effects::UnreadBody;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use tokio::sync::Notify;

pub(super) struct Questions {
    asked: RefCell<Vec<HeldQuestion>>,
    last: Cell<u32>,
    waiting: Cell<usize>,
    /// Bytes of bodies that are read for questions.
    held: Cell<usize>,
    changed: Notify,
    tell: Rc<dyn Fn(FromGateway)>,
}

struct HeldQuestion {
    request: HeldRequest,
    answer: Option<RequestAnswer>,
}

impl Questions {
    pub(super) fn new(tell: Rc<dyn Fn(FromGateway)>) -> Self {
        Self {
            asked: RefCell::default(),
            last: Cell::new(0),
            waiting: Cell::new(0),
            held: Cell::new(0),
            changed: Notify::new(),
            tell,
        }
    }

    /// Asks about a request, and waits for the answer.
    pub(super) async fn ask(&self, request: HeldRequest) -> RequestAnswer {
        if request.call == 0 {
            return RequestAnswer::NoCall;
        }
        if self.waiting.get() >= HELD_REQUESTS {
            return RequestAnswer::TooMany;
        }
        let _waiting = Counted::new(&self.waiting, 1);
        loop {
            if let Some(answer) = self.take(&request) {
                return answer;
            }
            if !self.is_open(request.call) && !self.open(request.clone()) {
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
    fn take(&self, request: &HeldRequest) -> Option<RequestAnswer> {
        let mut asked = self.asked.borrow_mut();
        let at = asked.iter().position(|one| {
            let same = HeldRequest {
                question: one.request.question,
                ..request.clone()
            };
            one.answer.is_some() && one.request == same
        })?;
        let taken = asked.remove(at).answer;
        // Others of the call may ask now.
        self.changed.notify_waiters();
        taken
    }

    fn is_open(&self, call: CallId) -> bool {
        let asked = self.asked.borrow();
        let mut open = asked.iter().filter(|one| one.answer.is_none());
        open.any(|one| one.request.call == call)
    }

    fn open(&self, mut request: HeldRequest) -> bool {
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
            request: request.clone(),
            answer: None,
        });
        (self.tell)(FromGateway::Asked(request));
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
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn request(call: CallId, path: &str) -> HeldRequest {
        HeldRequest {
            question: 0,
            call,
            rule: 0,
            host: "a.example".into(),
            port: 443,
            method: "POST".into(),
            path: path.into(),
            effects: vec![RequestEffect {
                object: "o".into(),
                kind: EffectKind::Update,
                change: "c".into(),
            }],
        }
    }

    fn questions() -> (Rc<RefCell<Vec<u32>>>, Questions) {
        let told = Rc::<RefCell<Vec<u32>>>::default();
        let heard = told.clone();
        let tell = move |frame: FromGateway| {
            if let FromGateway::Asked(request) = frame {
                heard.borrow_mut().push(request.question);
            }
        };
        (told, Questions::new(Rc::new(tell)))
    }

    fn poll(
        future: &mut std::pin::Pin<&mut impl Future<Output = RequestAnswer>>,
    ) -> Poll<RequestAnswer> {
        future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn one_question_of_a_call_is_open_at_a_time() {
        let (told, questions) = questions();
        let mut first = pin!(questions.ask(request(7, "/a")));
        let mut second = pin!(questions.ask(request(7, "/b")));
        let mut other = pin!(questions.ask(request(8, "/a")));
        assert_eq!(poll(&mut first), Poll::Pending);
        assert_eq!(poll(&mut second), Poll::Pending);
        assert_eq!(poll(&mut other), Poll::Pending);
        assert_eq!(*told.borrow(), [1, 2], "of each call one");
        questions.answer(9, RequestAnswer::Granted);
        assert_eq!(poll(&mut first), Poll::Pending, "another question's");
        questions.answer(1, RequestAnswer::Granted);
        assert_eq!(poll(&mut first), Poll::Ready(RequestAnswer::Granted));
        assert_eq!(poll(&mut second), Poll::Pending);
        assert_eq!(*told.borrow(), [1, 2, 3]);
        questions.answer(3, RequestAnswer::Refused);
        assert_eq!(poll(&mut second), Poll::Ready(RequestAnswer::Refused));
    }

    #[test]
    fn yes_is_for_the_request_asked_about_and_used_once() {
        let (told, questions) = questions();
        {
            let mut given_up = pin!(questions.ask(request(7, "/a")));
            assert_eq!(poll(&mut given_up), Poll::Pending);
        }
        questions.answer(1, RequestAnswer::Granted);
        let mut other = request(7, "/a");
        other.effects[0].change = "d".into();
        let mut other = pin!(questions.ask(other));
        assert_eq!(poll(&mut other), Poll::Pending, "it changes something else");
        let mut again = pin!(questions.ask(request(7, "/a")));
        assert_eq!(poll(&mut again), Poll::Ready(RequestAnswer::Granted));
        let mut third = pin!(questions.ask(request(7, "/a")));
        assert_eq!(poll(&mut third), Poll::Pending, "it is used up");
        assert_eq!(*told.borrow(), [1, 2]);
    }

    #[test]
    fn waiting_questions_are_bounded() {
        let (told, questions) = questions();
        let mut all = Vec::new();
        for call in 1..=HELD_REQUESTS as u64 {
            let mut one = Box::pin(questions.ask(request(call, "/a")));
            assert_eq!(poll(&mut one.as_mut()), Poll::Pending);
            all.push(one);
        }
        let mut over = pin!(questions.ask(request(1000, "/a")));
        assert_eq!(poll(&mut over), Poll::Ready(RequestAnswer::TooMany));
        assert_eq!(told.borrow().len(), HELD_REQUESTS);
        let mut nobody = pin!(questions.ask(request(0, "/a")));
        assert_eq!(poll(&mut nobody), Poll::Ready(RequestAnswer::NoCall));
        let held = questions.hold(HELD_BYTES).ok();
        assert!(held.is_some() && questions.hold(1).is_err());
        drop(held);
        assert!(questions.hold(1).is_ok());
    }
}
