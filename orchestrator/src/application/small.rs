//! The tools that are more than one request: what is kept is read and replaced, an image comes in pieces, the output of a
//! test suite is read.

use super::call::Tools;
use crate::domain::answer::{Answer, Asked, Details};
use crate::domain::clean::Cleaner;
use crate::domain::image::{self, Image};
use crate::domain::numbered::Form;
use crate::domain::state::Order;
use crate::domain::test_report::Counts;
use crate::ports::{Approval, Approver, Audience, Caller, Gone, Question, Running, Sandbox, Web};
use broker_protocol::{
    Bash, ErrorKind, Extent, Failed, FileBytes, FileReply, Framework, Request, State, StateChange, ZonePath,
    limit,
};
use serde_json::Value;
use std::cell::RefCell;
use std::marker::PhantomData;

/// How often a change is tried again when another session was faster.
const TRIES: u32 = 5;

/// What the model is shown of a test suite's counts, before its output.
fn headline(counts: Option<Counts>) -> String {
    match counts {
        Some(Counts { passed, failed, skipped }) => {
            format!("{passed} passed, {failed} failed, {skipped} skipped\n")
        }
        None => "there are no counts of tests in this output\n".to_owned(),
    }
}

impl<W: Web> Tools<W> {
    /// Carries out an order of a small tool on what it keeps.
    pub(super) async fn keep<S: Sandbox>(
        &self,
        call: u64,
        sandbox: &S,
        order: &Order,
        caller: &mut impl Caller<<S::Call as Running>::Control>,
    ) -> Answer {
        let caller = &mut Alike::new(caller);
        // Within this session one after the other; between sessions the digest decides.
        let _turn = self.keeping.lock().await;
        let tool = order.tool();
        let asked = Asked::only(tool.name());
        for _ in 0..TRIES {
            let look = Request::State(State { tool, change: None });
            let (kept, sha256) = match self.exchange(call, sandbox, look, caller).await {
                Ok((FileReply::Read(read), _)) if read.truncated.is_none() => {
                    (Some(read.content), read.sha256)
                }
                Ok(_) => (Some(Vec::new()), None),
                Err(answer) if is(&answer, ErrorKind::NotFound) => (None, None),
                Err(answer) => return *answer,
            };
            let effect = match order.apply(kept.as_deref()) {
                Ok(effect) => effect,
                Err(error) => return Answer::failed(&asked, error.into()),
            };
            let done = Answer::said(&asked, effect.text, Details::Kept { count: effect.count });
            let Some(content) = effect.keep else { return done };
            let change = Some(StateChange { content, expected_sha256: sha256 });
            match self.exchange(call, sandbox, Request::State(State { tool, change }), caller).await {
                Ok((_, about)) => return Answer { about: about.with(done.about), ..done },
                // Somebody else has changed it in between.
                Err(answer) if is(&answer, ErrorKind::InvalidInput) => {}
                Err(answer) => return *answer,
            }
        }
        let message = format!("{} was changed by others all the time; try again", tool.file());
        Answer::failed(&asked, Failed { kind: ErrorKind::Io, message })
    }

    /// Reads an image, piece by piece.
    pub(super) async fn image<S: Sandbox>(
        &self,
        call: u64,
        sandbox: &S,
        path: &ZonePath,
        caller: &mut impl Caller<<S::Call as Running>::Control>,
    ) -> Answer {
        let caller = &mut Alike::new(caller);
        let mut data = Vec::new();
        let mut media_type = None;
        let (size, about) = loop {
            let (path, offset) = (path.clone(), data.len() as u64);
            let piece = Request::FileBytes(FileBytes { path, offset, limit: limit::READ as u32 });
            let asked = Asked::of(&piece);
            let (bytes, about) = match self.exchange(call, sandbox, piece, caller).await {
                Ok((FileReply::Bytes(bytes), about)) => (bytes, about),
                Ok(_) => return Answer::failed(&asked, odd()),
                Err(answer) => return *answer,
            };
            let known = match media_type {
                Some(known) => Ok(known),
                None => image::check(&bytes.content, bytes.size),
            };
            media_type = match known {
                Ok(known) => Some(known),
                Err(failed) => return Answer::failed(&asked, failed),
            };
            let ended = bytes.content.is_empty();
            data.extend_from_slice(&bytes.content);
            if data.len() as u64 >= bytes.size || ended || data.len() as u64 > image::MOST {
                break (bytes.size, about);
            }
        };
        let asked = Asked::only("view_image");
        if data.len() as u64 != size || size > image::MOST {
            let message = format!("{path} was changed while it was read");
            return Answer::failed(&asked, Failed { kind: ErrorKind::Io, message });
        }
        let media_type = media_type.unwrap_or_default();
        let text = format!("{media_type}, {size} bytes: {path}");
        let path = sandbox.roots().absolute(path);
        let mut answer = Answer::said(&asked, text, Details::Image { path, media_type, size });
        answer.about = about.with(answer.about);
        answer.image = Some(Image { media_type, data });
        answer
    }

    /// Runs a test suite and reads its output.
    pub(super) async fn tests<S: Sandbox>(
        &self,
        call: u64,
        sandbox: &S,
        framework: Framework,
        command: Bash,
        caller: &mut impl Caller<<S::Call as Running>::Control>,
    ) -> Answer {
        let mut answer = self.request(call, sandbox, Request::Bash(command), Form::Raw, caller).await;
        answer.about.tool = Framework::TOOL.into();
        let Details::Command { timeout, spill } = std::mem::take(&mut answer.about.details) else {
            return answer;
        };
        let clean = Cleaner::default().clean(&answer.text).into_owned();
        let tests = Counts::read(&String::from_utf8_lossy(&clean));
        // What never ran has its error only.
        if !answer.text.is_empty() || answer.error.is_none() {
            answer.text.splice(..0, headline(tests).into_bytes());
        }
        let (framework, partial) = (framework.name(), answer.about.truncated.is_some());
        answer.about.details = Details::Tests { framework, tests, partial, timeout, spill };
        answer
    }

    /// One request whose answer is not shown as it is: what came, and what is known about it.
    async fn exchange<S: Sandbox>(
        &self,
        call: u64,
        sandbox: &S,
        request: Request,
        caller: &mut impl Caller<<S::Call as Running>::Control>,
    ) -> Result<(FileReply, crate::domain::answer::About), Box<Answer>> {
        let mut under_way = self.start(call, sandbox, request, caller).await?;
        let mut finished = under_way.finished(caller).await;
        match finished.as_mut().ok().and_then(|finished| finished.answer.take()) {
            Some(Ok(reply)) => {
                let about = finished.map(crate::domain::answer::About::of).unwrap_or_default();
                Ok((reply, about))
            }
            Some(Err(failed)) => {
                if let Ok(finished) = &mut finished {
                    finished.answer = Some(Err(failed));
                }
                Err(Box::new(under_way.answer(finished)))
            }
            None => Err(Box::new(under_way.answer(finished))),
        }
    }
}

/// Who asked for a call of several requests. It is asked once: what it has allowed of the call by one rule, it has allowed of
/// all of the call by that rule. The executor checks each answer all the same.
struct Alike<'a, C, K> {
    caller: &'a mut C,
    allowed: RefCell<Vec<String>>,
    control: PhantomData<K>,
}

impl<'a, C, K> Alike<'a, C, K> {
    fn new(caller: &'a mut C) -> Self {
        Self { caller, allowed: RefCell::default(), control: PhantomData }
    }
}

impl<C: Audience, K> Audience for Alike<'_, C, K> {
    async fn hear(&mut self, stderr: bool, bytes: &[u8]) -> Result<(), Gone> {
        self.caller.hear(stderr, bytes).await
    }
}

impl<C: Approver, K> Approver for Alike<'_, C, K> {
    async fn approve(&self, asked: &Question<'_>) -> Approval {
        let rule = &asked.challenge.rule;
        if asked.not_taken.is_none() && self.allowed.borrow().contains(rule) {
            return Approval::Yes(Extent::Once);
        }
        let approval = self.caller.approve(asked).await;
        if let Approval::Yes(_) = approval {
            self.allowed.borrow_mut().push(rule.clone());
        }
        approval
    }

    async fn elsewhere(&self, asked: &Question<'_>) {
        self.caller.elsewhere(asked).await;
    }
}

impl<C: Caller<K>, K> Caller<K> for Alike<'_, C, K> {
    fn id(&self) -> Option<&Value> {
        self.caller.id()
    }

    fn is_live(&self) -> bool {
        self.caller.is_live()
    }

    fn begun(&self, control: K) {
        self.caller.begun(control);
    }

    fn is_cancelled(&self) -> bool {
        self.caller.is_cancelled()
    }

    async fn cancelled(&self) {
        self.caller.cancelled().await;
    }
}

fn is(answer: &Answer, kind: ErrorKind) -> bool {
    answer.error.as_ref().is_some_and(|error| error.kind == kind)
}

fn odd() -> Failed {
    Failed { kind: ErrorKind::Protocol, message: "the executor answered something else".into() }
}
