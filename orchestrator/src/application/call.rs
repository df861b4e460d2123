//! One tool call from name to outcome: the only path. Every front end goes [`plan`], [`begin`], [`Call::finish`]; for what
//! the web tools do, which needs no executor, [`web`].

use crate::domain::answer::{Answer, Asked};
use crate::domain::catalogue::{Tool, canonical};
use crate::domain::redact::Redactor;
use crate::domain::request;
use crate::domain::web::{self, Ask};
use crate::ports::{Approver, Audience, Event, Gone, Running, Sandbox, Web};
use broker_protocol::{Challenge, Channel, Failed, GrantFault, Outcome, Request, Roots};
use serde_json::Value;
use std::time::Instant;

/// Makes the request that a tool's name and input mean, or the answer that says why they mean none.
pub fn plan(tool: &str, input: Value, roots: &Roots) -> Result<Request, Box<Answer>> {
    request::parse(tool, input, roots)
        .map_err(|error| Box::new(Answer::failed(&Asked::only(canonical(tool)), error.into())))
}

/// Makes the call that a web tool's input means, to its end.
pub async fn web(web: &impl Web, tool: &Tool<web::Build>, input: Value) -> Answer {
    let begun = Instant::now();
    let told = match web::parse(tool, input) {
        Ok(Ask::Search(asked)) => web.search(&asked).await.map(|found| found.tell()).map_err(Failed::from),
        Ok(Ask::Fetch(asked)) => {
            web.fetch(&asked).await.map(|page| page.tell(asked.shown)).map_err(Failed::from)
        }
        Err(error) => Err(error.into()),
    };
    let mut answer = told.unwrap_or_else(|failed| Answer::failed(&Asked::only(tool.name), failed));
    answer.about.usage.wall_us = begun.elapsed().as_micros() as u64;
    answer
}

/// Starts `request`.
pub async fn begin<S: Sandbox>(sandbox: &S, request: Request) -> Result<Call<S::Call>, Box<Answer>> {
    let asked = Asked::of(&request);
    match sandbox.start(request).await {
        Ok(running) => Ok(Call { asked, roots: sandbox.roots().clone(), running }),
        Err(failed) => Err(Box::new(Answer::failed(&asked, failed))),
    }
}

/// A call under way.
pub struct Call<R> {
    asked: Asked,
    roots: Roots,
    /// The way to steer it.
    pub running: R,
}

impl<R: Running> Call<R> {
    /// Passes its output on until it ends, and its question, if the policy has one. Without a listener there is no reason
    /// to go on: then it is cancelled.
    pub async fn finish(
        mut self,
        audience: &mut impl Audience,
        approver: &impl Approver,
        redactor: &Redactor,
    ) -> Answer {
        let mut listening = true;
        let mut question = None;
        loop {
            match self.next(&mut question, approver).await {
                Event::Asked(challenge) if challenge.channel == Channel::Separate => {
                    approver.elsewhere(&challenge).await;
                }
                Event::Asked(challenge) => {
                    question = Some(Question { challenge, not_taken: None, asked: true })
                }
                Event::NotTaken(fault) => {
                    if let Some(question) = &mut question {
                        (question.not_taken, question.asked) = (Some(fault), true);
                    }
                }
                Event::Output { stderr, bytes } => {
                    if listening && let Err(Gone) = audience.hear(stderr, &bytes).await {
                        listening = false;
                        self.running.cancel();
                    }
                    self.running.taken(bytes.len());
                }
                Event::Ended(ended) => {
                    let mut answer = match *ended {
                        Ok(mut finished) => {
                            if let Outcome::Ran(ran) = &mut finished.outcome {
                                redactor.cut(&mut ran.output);
                            }
                            Answer::of(&self.asked, finished, &self.roots)
                        }
                        Err(failed) => Answer::failed(&self.asked, failed),
                    };
                    answer.about.call = Some(self.running.number());
                    return answer;
                }
            }
        }
    }

    /// What happens next. An open question is asked meanwhile, and its answer sent.
    async fn next(&mut self, question: &mut Option<Question>, approver: &impl Approver) -> Event {
        if let Some(Question { challenge, not_taken, asked }) = question.as_mut().filter(|open| open.asked) {
            tokio::select! {
                event = self.running.next() => return event,
                approval = approver.approve(challenge, *not_taken) => {
                    *asked = false;
                    self.running.answer(challenge, approval);
                }
            }
        }
        self.running.next().await
    }
}

/// What a call waits for.
struct Question {
    challenge: Box<Challenge>,
    /// Why the answer before was none.
    not_taken: Option<GrantFault>,
    /// Whether nobody has answered yet.
    asked: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::answer::Finished;
    use crate::ports::Approval;
    use broker_protocol::{
        CallId, Captured, Digest, Ended, ErrorKind, Extent, Failed, LayerSet, Nonce, Ran, Risk, Usage,
    };
    use serde_json::json;
    use std::cell::{Cell, RefCell};
    use std::collections::VecDeque;
    use std::rc::Rc;

    #[derive(Default)]
    struct Script {
        /// What happens; nothing until there is an answer.
        events: RefCell<VecDeque<Option<Event>>>,
        taken: Cell<usize>,
        cancelled: Cell<u32>,
        answers: RefCell<Vec<Approval>>,
    }

    struct Scripted {
        roots: Roots,
        script: Rc<Script>,
    }

    impl Sandbox for Scripted {
        type Call = Rc<Script>;
        fn roots(&self) -> &Roots {
            &self.roots
        }
        async fn start(&self, _: Request) -> Result<Rc<Script>, Failed> {
            Ok(self.script.clone())
        }
    }

    impl Running for Rc<Script> {
        fn number(&self) -> CallId {
            7
        }
        async fn next(&mut self) -> Event {
            loop {
                let next = self.events.borrow_mut().pop_front().expect("asked after the end");
                match next {
                    Some(event) => return event,
                    None if self.answers.borrow().is_empty() => {
                        self.events.borrow_mut().push_front(None);
                        std::future::pending().await
                    }
                    None => {}
                }
            }
        }
        fn taken(&mut self, bytes: usize) {
            self.taken.set(self.taken.get() + bytes);
        }
        fn cancel(&self) {
            self.cancelled.set(self.cancelled.get() + 1);
        }
        fn answer(&self, _: &Challenge, approval: Approval) {
            self.answers.borrow_mut().push(approval);
        }
    }

    struct Ears {
        heard: Vec<u8>,
        patience: usize,
    }

    impl Audience for Ears {
        async fn hear(&mut self, _: bool, bytes: &[u8]) -> Result<(), Gone> {
            self.heard.extend_from_slice(bytes);
            if self.heard.len() > self.patience { Err(Gone) } else { Ok(()) }
        }
    }

    /// Answers everything alike, and counts.
    struct Always(Approval);

    impl Approver for Always {
        async fn approve(&self, _: &Challenge, _: Option<GrantFault>) -> Approval {
            self.0
        }
        async fn elsewhere(&self, _: &Challenge) {}
    }

    fn asked(channel: Channel) -> Event {
        Event::Asked(Box::new(Challenge {
            digest: Digest([0; 32]),
            nonce: Nonce([0; 16]),
            rule: "r".into(),
            why: "w".into(),
            risk: Risk::High,
            expires_s: 30,
            channel,
        }))
    }

    fn scripted(ended: Result<Ended, Failed>) -> Scripted {
        let script = Rc::new(Script::default());
        let out = |bytes: &[u8]| Event::Output { stderr: false, bytes: bytes.to_vec() };
        let done = ended.map(|ended| Finished {
            outcome: Outcome::Ran(Ran { ended, output: Captured::default(), spill: None, timeout_s: None }),
            answer: None,
            usage: Usage::default(),
            layers: LayerSet::default(),
        });
        let events = [out(b"one"), out(b"two"), out(b"three"), Event::Ended(Box::new(done))];
        script.events.borrow_mut().extend(events.map(Some));
        Scripted { roots: Roots { project: "/p".into(), central: "/c".into() }, script }
    }

    async fn call(sandbox: &Scripted, ears: &mut Ears) -> Answer {
        let request = plan("bash", json!({"command": "x"}), sandbox.roots()).unwrap();
        let approver = Always(Approval::Yes(Extent::Once));
        begin(sandbox, request).await.ok().unwrap().finish(ears, &approver, &Redactor::new(vec![])).await
    }

    fn block_on<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn output_is_heard_and_paid_for_and_the_outcome_is_the_answer() {
        let sandbox = scripted(Ok(Ended::Exited(0)));
        let mut ears = Ears { heard: vec![], patience: 100 };
        let answer = block_on(call(&sandbox, &mut ears));
        assert!(answer.error.is_none());
        assert_eq!(answer.about.call, Some(7));
        assert_eq!(ears.heard, b"onetwothree");
        assert_eq!((sandbox.script.taken.get(), sandbox.script.cancelled.get()), (11, 0));
    }

    #[test]
    fn without_a_listener_the_call_is_cancelled_once_and_drained() {
        let sandbox = scripted(Ok(Ended::Cancelled));
        let mut ears = Ears { heard: vec![], patience: 4 };
        let answer = block_on(call(&sandbox, &mut ears));
        assert_eq!(answer.error.unwrap().kind, ErrorKind::Cancelled);
        assert_eq!(ears.heard, b"onetwo");
        assert_eq!((sandbox.script.taken.get(), sandbox.script.cancelled.get()), (11, 1));
    }

    #[test]
    fn a_question_is_answered_once_and_again_where_the_answer_was_not_taken() {
        let answers = |events: Vec<Option<Event>>| {
            let sandbox = scripted(Ok(Ended::Exited(0)));
            events.into_iter().rev().for_each(|event| sandbox.script.events.borrow_mut().push_front(event));
            block_on(call(&sandbox, &mut Ears { heard: vec![], patience: 100 }));
            sandbox.script.answers.take().len()
        };
        assert_eq!(answers(vec![]), 0);
        assert_eq!(answers(vec![Some(asked(Channel::Separate))]), 0);
        assert_eq!(answers(vec![Some(asked(Channel::Relay)), None]), 1);
        let again = Event::NotTaken(GrantFault::TooMany);
        assert!(answers(vec![Some(asked(Channel::Relay)), None, Some(again)]) >= 1);
    }

    #[test]
    fn a_lost_executor_is_an_answer() {
        let sandbox = scripted(Err(Failed { kind: ErrorKind::ExecutorLost, message: "gone".into() }));
        let answer = block_on(call(&sandbox, &mut Ears { heard: vec![], patience: 100 }));
        assert_eq!(answer.error.unwrap().kind, ErrorKind::ExecutorLost);
    }

    #[test]
    fn what_is_no_request_never_starts() {
        let sandbox = scripted(Ok(Ended::Exited(0)));
        let answer = plan("shell", json!({}), sandbox.roots()).unwrap_err();
        assert_eq!((answer.about.tool, answer.error.unwrap().kind), ("bash", ErrorKind::InvalidInput));
    }
}
