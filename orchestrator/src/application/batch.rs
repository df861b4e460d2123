//! Several calls at once.
//!
//! Who puts calls into a batch says that they do not depend on each other: so all run side by side, whatever their risk,
//! but those that change files, which run one after the other in call order: two changes of one file must not cross. All
//! are checked before the first one runs; each is asked about, allowed or refused by itself, and counted by itself.
//! Results stand in call order.

use super::call::{Planned, Tools, Work};
use crate::domain::answer::{Answer, Asked, Details, Used};
use crate::domain::request::{Invocation, Plan};
use crate::ports::{self, Approval, Approver, Audience, Caller, Gone, Question, Running, Sandbox, Web};
use broker_protocol::{ErrorKind, Failed};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Instant;

/// One call of a batch, checked.
struct Part {
    index: usize,
    tool: String,
    input: Value,
    planned: Planned,
}

type Answers = Vec<(usize, Answer)>;

impl<W: Web> Tools<W> {
    /// Makes all calls of a batch.
    pub(super) async fn batch<S: Sandbox, C: Caller<<S::Call as Running>::Control>>(
        &self,
        call: u64,
        sandbox: &S,
        invocations: Vec<Invocation>,
        caller: &mut C,
    ) -> Answer {
        let share = self.settings.profile.file.keep / invocations.len().max(1);
        let begun = Instant::now();
        let parts = match self.parts(invocations, sandbox) {
            Ok(parts) => parts,
            Err(answer) => return *answer,
        };
        let (changing, others): (Vec<_>, Vec<_>) = parts.into_iter().partition(|part| part.planned.changes);
        let mut lanes: Vec<Vec<Part>> = others.into_iter().map(|part| vec![part]).collect();
        lanes.push(changing);
        let caller = &*caller;
        let lanes = lanes.into_iter().map(|lane| -> Pin<Box<dyn Future<Output = Answers> + '_>> {
            Box::pin(self.lane(call, sandbox, lane, share, caller))
        });
        let mut answers: Answers = join_all(lanes).await.into_iter().flatten().collect();
        answers.sort_by_key(|(index, _)| *index);
        let answers = answers.into_iter().map(|(_, answer)| answer).collect();
        let mut answer = joined(answers, share, caller.is_cancelled());
        answer.about.usage.wall_us = begun.elapsed().as_micros() as u64;
        answer
    }

    /// Checks every call. One that is wrong ends the batch before it has begun.
    fn parts<S: Sandbox>(&self, invocations: Vec<Invocation>, sandbox: &S) -> Result<Vec<Part>, Box<Answer>> {
        let part = |(index, Invocation { tool, input }): (usize, Invocation)| {
            let planned = self.plan(&tool, input.clone(), sandbox.roots());
            match planned {
                Ok(Planned { work: Work::BuiltIn(Plan::Batch(_)), .. }) => Err(wrong(index, nested())),
                Ok(planned) => Ok(Part { index, tool, input, planned }),
                Err(answer) => Err(answer.error.map_or(answer_missing(), |error| wrong(index, error))),
            }
        };
        invocations.into_iter().enumerate().map(part).collect()
    }

    /// Makes calls one after the other. Of each at most `share` bytes are shown.
    async fn lane<S: Sandbox, C: Caller<<S::Call as Running>::Control>>(
        &self,
        batch: u64,
        sandbox: &S,
        parts: Vec<Part>,
        share: usize,
        caller: &C,
    ) -> Answers {
        let mut answers = Vec::with_capacity(parts.len());
        for Part { index, tool, input, planned } in parts {
            let call = self.asked(None, Some(batch), &tool, &input);
            let name = planned.name.clone();
            let part = ports::Part { index, tool: &name, input: &input };
            let mut quiet = Quiet { caller, part, control: PhantomData };
            let answer = self.perform(call, sandbox, planned, share, &mut quiet).await;
            answers.push((index, self.conclude(call, answer)));
        }
        answers
    }
}

/// That a batch stands in a batch.
pub fn nested() -> Failed {
    Failed { kind: ErrorKind::InvalidInput, message: "a batch holds no batch".into() }
}

/// `error`, which one call of the batch made.
fn wrong(index: usize, error: Failed) -> Box<Answer> {
    let message = format!("invocations[{index}]: {}; none of the calls was made", error.message);
    Box::new(Answer::failed(&Asked::only("batch"), Failed { message, ..error }))
}

fn answer_missing() -> Box<Answer> {
    let message = "a call was refused without a reason".into();
    Box::new(Answer::failed(&Asked::only("batch"), Failed { kind: ErrorKind::Internal, message }))
}

/// All results in one: for the model in order, each between its own marks; for records each by itself.
fn joined(answers: Vec<Answer>, share: usize, is_cancelled: bool) -> Answer {
    let error = error(&answers, is_cancelled);
    let (usage, layers) = (used(&answers), layers(&answers));
    let mut text = String::new();
    let mut records = Vec::with_capacity(answers.len());
    let mut security = Vec::new();
    let failed = answers.iter().filter(|answer| answer.error.is_some()).count() as u64;
    for (index, mut answer) in answers.into_iter().enumerate() {
        answer.shorten(share);
        // What a tool says must not pass for another one's result.
        let inside = answer.wrapped().replace("invocation.", "invocation\u{b7}");
        text.push_str(&format!("<invocation.{index}.result>\n{inside}\n</invocation.{index}.result>\n"));
        security.append(&mut answer.security);
        records.push(record(&answer));
    }
    let details = Details::Batch { invocations: records, failed };
    let mut answer = Answer { error, security, ..Answer::said(&Asked::only("batch"), text, details) };
    (answer.about.usage, answer.about.layers) = (usage, layers);
    answer
}

/// What went wrong with a batch: a cancel that still met one of its calls, or all of them.
fn error(answers: &[Answer], is_cancelled: bool) -> Option<Failed> {
    let kinds = || answers.iter().filter_map(|answer| answer.error.as_ref()).map(|error| error.kind);
    if is_cancelled && kinds().any(|kind| kind == ErrorKind::Cancelled) {
        return Some(Failed { kind: ErrorKind::Cancelled, message: "the call was cancelled".into() });
    }
    let kind = kinds().next().filter(|_| kinds().count() == answers.len())?;
    Some(Failed { kind, message: "every call of the batch failed".into() })
}

/// What the calls used, all together.
fn used(answers: &[Answer]) -> Used {
    let mut all = Used::default();
    answers.iter().for_each(|answer| all.add(&answer.about.usage));
    all
}

/// The layers that were in force around each of the calls that the executor carried out.
fn layers(answers: &[Answer]) -> Vec<&'static str> {
    let mut confined = answers.iter().map(|answer| &answer.about.layers).filter(|layers| !layers.is_empty());
    let mut all = confined.next().cloned().unwrap_or_default();
    confined.for_each(|layers| all.retain(|layer| layers.contains(layer)));
    all
}

fn record(answer: &Answer) -> Value {
    let status = if answer.error.is_some() { "error" } else { "success" };
    let error = answer.error.as_ref().map(|error| {
        json!({"kind": error.kind.name(), "layer": error.kind.layer().name(), "message": error.message})
    });
    json!({"tool": answer.about.tool, "status": status, "error": error, "metadata": answer.about})
}

/// Who asked for the batch, as one call of it knows them: nothing is heard before the end.
struct Quiet<'a, C, K> {
    caller: &'a C,
    part: ports::Part<'a>,
    control: PhantomData<K>,
}

impl<C, K> Audience for Quiet<'_, C, K> {
    async fn hear(&mut self, _: bool, _: &[u8]) -> Result<(), Gone> {
        Ok(())
    }
}

impl<C: Approver, K> Approver for Quiet<'_, C, K> {
    async fn approve(&self, asked: &Question<'_>) -> Approval {
        self.caller.approve(&Question { part: Some(self.part), ..*asked }).await
    }

    async fn elsewhere(&self, asked: &Question<'_>) {
        self.caller.elsewhere(&Question { part: Some(self.part), ..*asked }).await;
    }
}

impl<C: Caller<K>, K> Caller<K> for Quiet<'_, C, K> {
    fn id(&self) -> Option<&Value> {
        self.caller.id()
    }

    fn part(&self) -> Option<usize> {
        Some(self.part.index)
    }

    fn is_live(&self) -> bool {
        false
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
