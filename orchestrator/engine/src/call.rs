//! One call of a front end from its order to its result: the only path that such a call can take.

use crate::caller::{CallSteering, Caller};
use crate::command::CallOrder;
use crate::conclude::conclude;
use crate::context::{CallContext, Invocation};
use crate::engine::{EndCall, Engine};
use crate::event::Event;
use crate::guard;
use crate::request::{self, cancelled};
use crate::spans;
use crate::tools::{CallTarget, ToolLookup, Tools, UnknownTool, shown_name};
use crate::work::CallWork;
use broker_protocol::{ErrorKind, Failed};
use orchestrator_results::profile::WHOLE;
use orchestrator_results::proposal;
use orchestrator_results::result::ToolResult;
use orchestrator_text::numbered::LineForm;
use serde_json::Value;
use std::convert::Infallible;
use std::future::pending;
use std::rc::Rc;
use std::time::Instant;
use tokio::sync::mpsc;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

/// Makes the ordered call and publishes its events.
pub(crate) async fn serve(engine: Rc<Engine>, tools: Rc<dyn Tools>, order: CallOrder) {
    let CallOrder {
        number,
        context,
        invocation,
        events,
        steering: words,
        parent,
    } = order;
    let (target, subject) = match invocation {
        Invocation::Tool { name, input } => {
            let found = tools.find(&name);
            let subject = (
                shown_name(found.as_ref().ok().map(|tool| tool.name()), &name),
                input.clone(),
            );
            (CallTarget::Tool(found, input), subject)
        }
        Invocation::Request(request) => {
            let subject = (request.tool().to_owned(), proposal::input(&request));
            (CallTarget::Request(request), subject)
        }
    };
    let is_known = !matches!(target, CallTarget::Tool(Err(_), _));
    let span = spans::call(
        &parent,
        number,
        &context,
        if is_known { &subject.0 } else { spans::UNKNOWN },
    );
    let made = async {
        tracing::debug!(is_known, "lookup");
        let steering = Rc::new(CallSteering::default());
        engine
            .under_way
            .borrow_mut()
            .insert(number, end_call(context.cancel.clone(), steering.clone()));
        let caller = Caller::new(
            &engine,
            number,
            context,
            subject,
            Some(events.clone()),
            steering.clone(),
        );
        let result = tokio::select! {
            biased;
            result = announce_and_make(&engine, &caller, target) => result,
            never = steering.follow(words) => match never {},
            never = steering.feed() => match never {},
            never = watch(&caller.context, &events, &steering) => match never {},
        };
        engine.under_way.borrow_mut().remove(&number);
        conclude(&engine, &caller, result).await;
    };
    made.instrument(span).await;
}

/// Ends the call at once, for the session.
fn end_call(cancel: CancellationToken, steering: Rc<CallSteering>) -> EndCall {
    Box::new(move || {
        cancel.cancel();
        steering.cancel();
        steering.cancel_again();
    })
}

/// Makes the call and announces it.
async fn announce_and_make(engine: &Engine, caller: &Caller, target: CallTarget) -> ToolResult {
    let result = tokio::select! {
        // The request goes out first: the executor works on it while the call is announced.
        biased;
        result = make_guarded(engine, caller, target) => result,
        never = caller.announce_only() => match never {},
    };
    at_deadline(caller.context.deadline, result)
}

/// Cancels the call when its front end requests it or is gone, and at its deadline. Never returns.
async fn watch(
    context: &CallContext,
    events: &mpsc::Sender<Event>,
    steering: &CallSteering,
) -> Infallible {
    let deadline = async {
        match context.deadline {
            Some(deadline) => sleep_until(deadline.into()).await,
            None => pending().await,
        }
    };
    tokio::select! {
        () = context.cancel.cancelled() => {}
        () = events.closed() => context.cancel.cancel(),
        () = deadline => context.cancel.cancel(),
    }
    steering.cancel();
    pending().await
}

/// Reports a call that was cancelled at its deadline as timed out.
fn at_deadline(deadline: Option<Instant>, mut result: ToolResult) -> ToolResult {
    let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
    let error = result
        .error
        .as_mut()
        .filter(|error| is_late && error.kind == ErrorKind::Cancelled);
    if let Some(error) = error {
        *error = Failed {
            kind: ErrorKind::Timeout,
            message: "the deadline of the call has passed".into(),
        };
    }
    result
}

/// Makes the call when there is a place for it, and lets hooks judge it and its result.
async fn make_guarded(engine: &Engine, caller: &Caller, mut target: CallTarget) -> ToolResult {
    let failed = |error| ToolResult::failed(caller.tool.clone(), error);
    // Once permitted, such a call no longer occupies the executor, so the executor does not bound how many run.
    let leaves = matches!(&target, CallTarget::Tool(Ok(tool), _) if tool.runs_outside());
    let _place = match leaves {
        true => tokio::select! {
            biased;
            place = engine.outside.acquire() => place.ok(),
            () = caller.context.cancel.cancelled() => return failed(cancelled()),
        },
        false => None,
    };
    if let Some(permit) = &caller.context.permit {
        tokio::select! {
            biased;
            () = permit.take(leaves) => {}
            () = caller.context.cancel.cancelled() => return failed(cancelled()),
        }
    }
    // Boxed, and only if there are hooks: every call would carry the state of this step otherwise.
    let guarded = match engine.guard.hooks() {
        Some(_) if !caller.context.by_person => {
            Box::pin(guard::before(engine, caller, &mut target)).await
        }
        Some(_) | None => Ok(None),
    };
    let guarded = match guarded {
        Ok(guarded) => guarded,
        Err(error) => return failed(error),
    };
    let mut result = make_connected(engine, caller, target).await;
    if let Some(guarded) = guarded {
        result = at_deadline(caller.context.deadline, result);
        Box::pin(guard::after(engine, caller, guarded, &mut result)).await;
    }
    result
}

/// Makes the call over the connection to the executor, which is opened if there is none.
async fn make_connected(engine: &Engine, caller: &Caller, target: CallTarget) -> ToolResult {
    let failed = |error| ToolResult::failed(caller.tool.clone(), error);
    let connection = tokio::select! {
        biased;
        connection = engine.connection(&caller.publisher).instrument(spans::connection()) => connection,
        () = caller.context.cancel.cancelled() => Err(cancelled()),
    };
    let connection = match connection {
        Ok(connection) => connection,
        Err(error) => return failed(error),
    };
    Span::current().record("tier", connection.opened().tier.name());
    match target {
        CallTarget::Tool(found, input) => {
            let work = CallWork {
                engine,
                connection: &connection,
                caller,
            };
            make_by_tool(work, found, input).await
        }
        CallTarget::Request(request) => {
            request::result(
                engine,
                &connection,
                caller,
                request,
                LineForm::Plain,
                &WHOLE,
            )
            .await
        }
    }
}

async fn make_by_tool(work: CallWork<'_>, found: ToolLookup, input: Value) -> ToolResult {
    match (work.check_violations(), found) {
        (Ok(()), Ok(tool)) => tool.call(work, input).await,
        (Ok(()), Err(UnknownTool { tool, why })) => ToolResult::failed(tool, why),
        (Err(over), Ok(tool)) => ToolResult::failed(tool.name().to_owned(), over),
        (Err(over), Err(unknown)) => ToolResult::failed(unknown.tool, over),
    }
}
