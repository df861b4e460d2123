//! One tool call from name to outcome: the only path. Every front end goes [`Tools::call`]; `lazaret run`, which names no
//! tool, goes [`begin`] and [`Call::finish`].
//!
//! A call is looked up (aliases end there), checked field by field, held against the session's scope, and only then
//! carried out: by the broker, which decides again and for itself, or by a [`Remote`](crate::ports::Remote) tool. What
//! comes back is cut to the profile and freed of what is not seen. The [`Observer`] sees each call at this one place.

use super::registry::{Added, Entry, Registry, RegistryError};
use crate::domain::answer::{Answer, Asked, Details, Finished, Told};
use crate::domain::clean;
use crate::domain::numbered::Form;
use crate::domain::profile::Profile;
use crate::domain::redact::Redactor;
use crate::domain::request::{InputError, Plan, live};
use crate::domain::small::{BATCH, VIEW_IMAGE};
use crate::domain::violation::SecurityEvent;
use crate::domain::web::{self, Ask, Fetch, View, WebError};
use crate::ports::{
    Approval, Approver, Audience, Caller, Event, Gone, Named, Observer, Question, Reply, Running, Sandbox,
    Web, With,
};
use broker_protocol::{
    CallId, Challenge, Channel, Edited, Effect, ErrorKind, Failed, FileReply, GrantFault, Outcome, Request,
    Risk, Roots, Scope, Written, limit,
};
use serde_json::Value;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::time::timeout;

/// The tools of one session, and what stands around each call.
pub struct Tools<W> {
    web: W,
    /// What there is to call.
    pub registry: RefCell<Registry>,
    pub(super) settings: Settings,
    observer: Rc<dyn Observer>,
    /// Calls asked for so far, those in batches too.
    calls: Cell<u64>,
    violations: Cell<u32>,
    /// Held while a small tool reads and replaces what it keeps.
    pub(super) keeping: Mutex<()>,
}

/// What holds for every call of a session.
pub struct Settings {
    /// How much of a result is shown.
    pub profile: &'static Profile,
    /// Whether text is shown with everything in it, also what is not seen.
    pub raw: bool,
    /// What takes known secrets out of what was cut, before the cut hides one.
    pub redactor: &'static Redactor,
    /// How many violations end the session; `None`: none does.
    pub max_violations: Option<u32>,
    /// The tools that the session may use; the broker holds it to them again.
    pub scope: Option<Scope>,
}

/// A call that was looked up, checked and found in scope.
pub(super) struct Planned {
    pub(super) name: Cow<'static, str>,
    pub(super) work: Work,
    /// Whether it changes files.
    pub(super) changes: bool,
}

pub(super) enum Work {
    BuiltIn(Plan),
    Remote(Rc<Added>, Value),
}

impl<W: Web> Tools<W> {
    /// Tools for one session.
    pub fn new(registry: Registry, web: W, settings: Settings, observer: Rc<dyn Observer>) -> Self {
        Self {
            web,
            registry: RefCell::new(registry),
            settings,
            observer,
            calls: Cell::new(0),
            violations: Cell::new(0),
            keeping: Mutex::new(()),
        }
    }

    /// Makes one call. It always comes back with an answer.
    pub async fn call<S: Sandbox>(
        &self,
        sandbox: &S,
        tool: &str,
        input: Value,
        caller: &mut impl Caller<<S::Call as Running>::Control>,
    ) -> Answer {
        let call = self.asked(caller.id(), None, tool, &input);
        let answer = match self.plan(tool, input, sandbox.roots()) {
            Err(answer) => *answer,
            Ok(Planned { work: Work::BuiltIn(Plan::Batch(invocations)), .. }) => {
                self.batch(call, sandbox, invocations, caller).await
            }
            Ok(planned) => {
                self.perform(call, sandbox, planned, self.settings.profile.file.keep, caller).await
            }
        };
        self.conclude(call, answer)
    }

    /// The answer of a call for which there is no executor.
    pub fn never_ran(&self, id: Option<&Value>, tool: &str, input: &Value, failed: Failed) -> Answer {
        let call = self.asked(id, None, tool, input);
        self.conclude(call, Answer::failed(&Asked::only(self.name(tool)), failed))
    }

    /// Whether the session has seen more than it bears: no call is made any more.
    pub fn is_over(&self) -> bool {
        self.settings.max_violations.is_some_and(|most| self.violations.get() >= most)
    }

    /// The tools that a model is shown, as they stand in a list.
    pub fn listed(&self) -> Vec<Value> {
        self.registry.borrow().list(self.settings.scope.as_ref()).iter().map(Entry::to_json).collect()
    }

    /// Whether a call of `tool` may be under way when the executor has no call for it.
    pub fn goes_outside(&self, tool: &str) -> bool {
        match self.registry.borrow().get(tool) {
            Ok(Entry::Web(_) | Entry::Added(_)) => true,
            // An image may be on the web, the calls in a batch may be such.
            Ok(Entry::BuiltIn(tool)) => [BATCH.name, VIEW_IMAGE.name].contains(&tool.name),
            Err(_) => false,
        }
    }

    /// Whether text is shown with everything in it.
    pub fn is_raw(&self) -> bool {
        self.settings.raw
    }

    pub(super) fn asked(&self, id: Option<&Value>, batch: Option<u64>, tool: &str, input: &Value) -> u64 {
        let call = self.calls.get() + 1;
        self.calls.set(call);
        self.observer.asked(call, id, batch, &self.name(tool), input);
        call
    }

    /// The canonical name, or what was given, bounded, where there is no such tool.
    fn name(&self, tool: &str) -> Cow<'static, str> {
        match self.registry.borrow().get(tool) {
            Ok(entry) => entry.own_name(),
            Err(_) => tool.chars().take(2 * crate::domain::tool_name::MOST).collect::<String>().into(),
        }
    }

    /// Looks a call up, checks its input and holds it against the scope.
    pub(super) fn plan(&self, tool: &str, input: Value, roots: &Roots) -> Result<Planned, Box<Answer>> {
        let refused =
            |name: Cow<'static, str>, failed: Failed| Box::new(Answer::failed(&Asked::only(name), failed));
        let entry = self.registry.borrow().get(tool);
        // A name that nobody knows may be anything, a secret too.
        let known = entry.as_ref().map_or_else(RegistryError::tool, Entry::own_name);
        self.still_open().map_err(|failed| refused(known.clone(), failed))?;
        let entry = entry.map_err(|error| refused(known, error.into()))?;
        let name = entry.own_name();
        let changes = entry.risk() == Risk::Medium;
        let work = match entry {
            Entry::BuiltIn(tool) => {
                let plan = tool.plan(input, roots);
                Work::BuiltIn(plan.map_err(|error| refused(name.clone(), error.into()))?)
            }
            Entry::Web(tool) => {
                let ask = web::parse(tool, input).map_err(|error| refused(name.clone(), error.into()))?;
                Work::BuiltIn(Plan::Web(ask))
            }
            Entry::Added(added) => {
                added.check(&input)?;
                Work::Remote(added, input)
            }
        };
        if self.settings.scope.as_ref().is_some_and(|scope| !scope.permits(&name)) {
            let message = format!("scope:{name}: `{name}` is not permitted in the scope of this session.");
            return Err(refused(name, Failed { kind: ErrorKind::DeniedPolicy, message }));
        }
        Ok(Planned { name, work, changes })
    }

    fn still_open(&self) -> Result<(), Failed> {
        if !self.is_over() {
            return Ok(());
        }
        let message = format!(
            "the session is over after {} violations: no call is made any more",
            self.violations.get()
        );
        Err(Failed { kind: ErrorKind::DeniedPolicy, message })
    }

    /// Carries out one call that is no batch. Of a text that comes from elsewhere `most` bytes are shown.
    pub(super) async fn perform<S: Sandbox>(
        &self,
        call: u64,
        sandbox: &S,
        planned: Planned,
        most: usize,
        caller: &mut impl Caller<<S::Call as Running>::Control>,
    ) -> Answer {
        let asked = Asked::only(planned.name);
        if let Err(failed) = self.still_open() {
            return Answer::failed(&asked, failed);
        }
        let plan = match planned.work {
            Work::BuiltIn(plan) => plan,
            Work::Remote(added, input) => {
                let leave = self.leave(call, sandbox, added.effect(&input), caller).await;
                return match leave {
                    Ok(number) => {
                        let told = self.remote(&asked, &added, input, caller).await;
                        self.show(sandbox, number, told, most, caller).await
                    }
                    Err(answer) => *answer,
                };
            }
        };
        match plan {
            Plan::Request(request) => self.request(call, sandbox, request, Form::Raw, caller).await,
            Plan::Numbered(read) => {
                self.request(call, sandbox, Request::FileRead(read), Form::Numbered, caller).await
            }
            Plan::State(order) => self.keep(call, sandbox, &order, caller).await,
            Plan::Image(path) => self.image(call, sandbox, &path, caller).await,
            Plan::Web(ask) => match self.leave(call, sandbox, ask.effect(), caller).await {
                Ok(number) => {
                    let told = self.ask_web(&asked, ask, caller).await;
                    self.show(sandbox, number, told, most, caller).await
                }
                Err(answer) => answer.called(asked.tool),
            },
            Plan::Tests { framework, command } => self.tests(call, sandbox, framework, command, caller).await,
            Plan::Thought => Answer::said(&asked, "noted", Details::None),
            Plan::Finish(finished) => {
                Answer::said(&asked, "the task is finished", Details::Finished { finished })
            }
            Plan::Batch(_) => Answer::failed(&asked, super::batch::nested()),
        }
    }

    /// One request whose answer is shown as it is, a file in this form.
    pub(super) async fn request<S: Sandbox>(
        &self,
        call: u64,
        sandbox: &S,
        mut request: Request,
        form: Form,
        caller: &mut impl Caller<<S::Call as Running>::Control>,
    ) -> Answer {
        self.settings.profile.widen(&mut request);
        match self.start(call, sandbox, request, caller).await {
            Ok(mut under_way) => {
                under_way.asked.form = form;
                let finished = under_way.finished(caller).await;
                under_way.answer(finished)
            }
            Err(answer) => *answer,
        }
    }

    /// Starts a request, unless its call was cancelled before.
    pub(super) async fn start<S: Sandbox>(
        &self,
        call: u64,
        sandbox: &S,
        request: Request,
        caller: &impl Caller<<S::Call as Running>::Control>,
    ) -> Result<Call<S::Call>, Box<Answer>> {
        if caller.is_cancelled() {
            return Err(Box::new(Answer::failed(&Asked::of(&request), cancelled())));
        }
        let request = if caller.is_live() { live(request) } else { request };
        let asked = Asked::of(&request);
        let mut under_way = tokio::select! {
            begun = begin(sandbox, request, self.settings.profile, self.settings.redactor) => begun?,
            () = caller.cancelled() => return Err(Box::new(Answer::failed(&asked, cancelled()))),
        };
        under_way.observed = Some((call, self.observer.clone()));
        self.observer.started(call, under_way.running.number());
        caller.begun(under_way.running.control());
        Ok(under_way)
    }

    /// Asks the executor for leave to have an effect that it has no part in; the number under which it stands in the audit.
    async fn leave<S: Sandbox>(
        &self,
        call: u64,
        sandbox: &S,
        effect: Effect,
        caller: &mut impl Caller<<S::Call as Running>::Control>,
    ) -> Result<CallId, Box<Answer>> {
        let request = Request::Effect(effect);
        let checked = request.check().map_err(InputError::from);
        checked.map_err(|error| Box::new(Answer::failed(&Asked::of(&request), error.into())))?;
        let mut under_way = self.start(call, sandbox, request, caller).await?;
        let number = under_way.running.number();
        match under_way.finished(caller).await {
            Ok(Finished { outcome: Outcome::Granted, .. }) => Ok(number),
            other => Err(Box::new(under_way.refusal(other))),
        }
    }

    /// Cuts what came from elsewhere to what is shown. Where that is less, the executor keeps all of it, if it can, for
    /// `file_read`: without known secrets, because what we were told comes into a zone by that.
    async fn show<S: Sandbox>(
        &self,
        sandbox: &S,
        number: CallId,
        told: Told,
        most: usize,
        caller: &impl Caller<<S::Call as Running>::Control>,
    ) -> Answer {
        let mut told = Told { most: told.most.min(most), ..told };
        let mut spill = None;
        if told.is_long() {
            told.answer.text = self.settings.redactor.bytes(&told.answer.text).into_owned();
            tokio::select! {
                kept = sandbox.keep(number, &told.answer.text) => spill = kept,
                () = caller.cancelled() => {}
            }
        }
        told.show(spill.as_ref(), sandbox.roots()).numbered(number)
    }

    /// What needs the web. There is nothing to steer: cancelled, it is dropped.
    async fn ask_web<C>(&self, asked: &Asked, ask: Ask, caller: &impl Caller<C>) -> Told {
        let begun = Instant::now();
        let most = self.most_for(&asked.tool).min(self.most_for(ask.effect().tool()));
        let told = async {
            match ask {
                Ask::Search(asked) => self.web.search(&asked).await.map(|found| found.tell().into()),
                Ask::Fetch(asked) => {
                    let asked = Fetch { timeout_s: asked.timeout_s.min(most), ..asked };
                    self.web.fetch(&asked).await.map(|page| page.tell(&asked))
                }
                Ask::View(asked) => {
                    let asked = View { timeout_s: asked.timeout_s.min(most), ..asked };
                    self.web.view(&asked).await.map(|image| asked.tell(image).into())
                }
            }
        };
        let told = tokio::select! {
            told = timeout(Duration::from_secs(most.into()), told) =>
                told.unwrap_or(Err(WebError::TimedOut(most))).map_err(Failed::from),
            () = caller.cancelled() => Err(Failed { kind: ErrorKind::Cancelled, message: "the call was cancelled".into() }),
        };
        let mut told: Told = told.unwrap_or_else(|failed| Answer::failed(asked, failed).into());
        told.answer.about.usage.wall_us = begun.elapsed().as_micros() as u64;
        told
    }

    /// A call of a tool that is not built in. There is no way to stop it but to listen no longer.
    async fn remote<C>(&self, asked: &Asked, added: &Added, input: Value, caller: &impl Caller<C>) -> Told {
        let failed = |kind, message: String| Err(Failed { kind, message });
        let (begun, limit_s) = (Instant::now(), added.timeout_s.min(self.most_for(added.name())));
        let named = Named { id: caller.id(), part: caller.part() };
        let reply = tokio::select! {
            reply = timeout(Duration::from_secs(limit_s.into()), added.remote.call(named, input)) => reply
                .unwrap_or_else(|_| failed(ErrorKind::Timeout, format!("the tool did not answer within {limit_s} s"))),
            () = caller.cancelled() => failed(ErrorKind::Cancelled, "the call was cancelled".into()),
        };
        let mut answer = match reply {
            Ok(Reply { text, structured }) => {
                let details = structured.map_or(Details::None, |structured| Details::Other { structured });
                // Before it is cut, so that no end shows half of a secret.
                Answer::said(asked, self.settings.redactor.bytes(&text).into_owned(), details)
            }
            Err(failed) => Answer::failed(asked, failed),
        };
        answer.about.usage.wall_us = begun.elapsed().as_micros() as u64;
        answer.into()
    }

    /// How long a call of `tool` may take that we carry out, in seconds, by the session's scope.
    fn most_for(&self, tool: &str) -> u32 {
        let permissions = self.settings.scope.iter().flat_map(|scope| &scope.permissions);
        let most = permissions.filter(|one| one.tool == tool).find_map(|one| one.timeout_s);
        most.unwrap_or(limit::TIMEOUT_S)
    }

    /// The last thing that happens to every answer.
    pub(super) fn conclude(&self, call: u64, mut answer: Answer) -> Answer {
        if !self.settings.raw {
            answer.clean();
        }
        let count = self.violations.get() + 1;
        // Those of the calls in a batch are told and counted.
        let event = SecurityEvent::of(&answer, count, self.settings.max_violations);
        if let Some(event) = event.filter(|_| answer.security.is_empty()) {
            self.violations.set(count);
            self.observer.violated(call, &event);
            answer.security.push(event);
        }
        self.observer.answered(call, &answer);
        answer
    }
}

fn cancelled() -> Failed {
    Failed { kind: ErrorKind::Cancelled, message: "the call was cancelled before it began".into() }
}

/// Starts `request`.
pub async fn begin<S: Sandbox>(
    sandbox: &S,
    request: Request,
    profile: &'static Profile,
    redactor: &'static Redactor,
) -> Result<Call<S::Call>, Box<Answer>> {
    let asked = Asked::of(&request);
    match sandbox.start(request).await {
        Ok(running) => {
            let roots = sandbox.roots().clone();
            Ok(Call { asked, roots, profile, redactor, observed: None, running })
        }
        Err(failed) => Err(Box::new(Answer::failed(&asked, failed))),
    }
}

/// A request under way.
pub struct Call<R> {
    asked: Asked,
    roots: Roots,
    profile: &'static Profile,
    redactor: &'static Redactor,
    /// The tool call that it belongs to, and who sees it.
    observed: Option<(u64, Rc<dyn Observer>)>,
    /// The way to steer it.
    pub running: R,
}

impl<R: Running> Call<R> {
    /// Passes its output on until it ends, and its question, if the policy has one, and says what came of it.
    pub async fn finish(mut self, audience: &mut impl Audience, approver: &impl Approver) -> Answer {
        let finished = self.finished(&mut With(audience, approver)).await;
        self.answer(finished)
    }

    /// The same, but says only how it ended. Without a listener there is no reason to go on: then it is cancelled.
    pub async fn finished(&mut self, caller: &mut (impl Audience + Approver)) -> Result<Finished, Failed> {
        let mut listening = true;
        let mut question = None;
        loop {
            let event = self.next(&mut question, caller).await;
            if let Event::Asked(challenge) = &event {
                self.note(challenge, None);
            }
            match event {
                Event::Asked(challenge) if challenge.channel == Channel::Separate => {
                    let (not_taken, part) = (None, None);
                    caller.elsewhere(&Question { challenge: &challenge, not_taken, part }).await;
                }
                Event::Asked(challenge) => question = Some(Open { challenge, not_taken: None, asked: true }),
                Event::NotTaken(fault) => {
                    if let Some(question) = &mut question {
                        (question.not_taken, question.asked) = (Some(fault), true);
                    }
                }
                Event::Output { stderr, bytes } => {
                    if listening && let Err(Gone) = caller.hear(stderr, &bytes).await {
                        listening = false;
                        self.running.cancel();
                    }
                    self.running.taken(bytes.len());
                }
                Event::Ended(ended) => return *ended,
            }
        }
    }

    fn note(&self, challenge: &Challenge, answer: Option<Approval>) {
        if let Some((call, observer)) = &self.observed {
            observer.approval(*call, challenge, answer);
        }
    }

    /// What happens next. An open question is asked meanwhile, and its answer sent.
    async fn next(&mut self, question: &mut Option<Open>, approver: &impl Approver) -> Event {
        if let Some(Open { challenge, not_taken, asked }) = question.as_mut().filter(|open| open.asked) {
            let question = Question { challenge, not_taken: *not_taken, part: None };
            tokio::select! {
                event = self.running.next() => return event,
                approval = approver.approve(&question) => {
                    *asked = false;
                    self.note(challenge, Some(approval));
                    self.running.answer(challenge, approval);
                }
            }
        }
        self.running.next().await
    }

    /// Puts an end into words that gives no leave, whatever it is.
    fn refusal(&self, finished: Result<Finished, Failed>) -> Answer {
        let answer = self.answer(finished);
        if answer.error.is_some() {
            return answer;
        }
        let message = "the executor gave no leave, and no reason".into();
        Answer::failed(&self.asked, Failed { kind: ErrorKind::Protocol, message })
    }

    /// Takes secrets out of what gets something put before each of its lines: afterwards one of several lines is not found.
    /// Out of what has no other look at it goes what is not seen, too: says how much that was.
    fn prepare(&self, reply: &mut FileReply) -> u64 {
        match reply {
            FileReply::Written(Written { hunks: Some(hunks), .. })
            | FileReply::Edited(Edited { hunks: Some(hunks), .. }) => {
                for hunk in hunks {
                    self.redactor.excerpt(&mut hunk.old);
                    self.redactor.excerpt(&mut hunk.new);
                }
                0
            }
            FileReply::Read(read) if self.asked.form == Form::Numbered => {
                self.redactor.excerpt(&mut read.content);
                let (clean, stripped) = clean::lines(&read.content);
                read.content = clean;
                stripped
            }
            _ => 0,
        }
    }

    /// Puts its end into words.
    pub fn answer(&self, finished: Result<Finished, Failed>) -> Answer {
        let mut answer = match finished {
            Ok(mut finished) => {
                if let Outcome::Ran(ran) = &mut finished.outcome {
                    self.redactor.cut(&mut ran.output);
                }
                let reply = finished.answer.as_mut().and_then(|answer| answer.as_mut().ok());
                let stripped = reply.map_or(0, |reply| self.prepare(reply));
                let mut answer = Answer::of(&self.asked, finished, &self.roots, self.profile);
                answer.about.stripped = stripped;
                answer
            }
            Err(failed) => Answer::failed(&self.asked, failed),
        };
        answer.about.call = Some(self.running.number());
        answer
    }
}

/// What a call waits for.
struct Open {
    challenge: Box<Challenge>,
    /// Why the answer before was none.
    not_taken: Option<GrantFault>,
    /// Whether nobody has answered yet.
    asked: bool,
}

#[cfg(test)]
mod tests;
