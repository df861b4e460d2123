//! One call, from its order to its result: the only path.

use crate::batch::batch;
use crate::caller::{Caller, Steering};
use crate::command::CallOrder;
use crate::conclude::{conclude, request};
use crate::context::{CallContext, Invocation};
use crate::engine::Engine;
use crate::event::Event;
use crate::executor::Connection;
use crate::lookup::{Found, PlannedCall, Work, shown_name};
use crate::perform::perform;
use crate::request::{self, cancelled};
use broker_protocol::{ErrorKind, Failed, Request};
use orchestrator_text::numbered::LineForm;
use orchestrator_tools::plan::Plan;
use orchestrator_tools::profile::WHOLE;
use orchestrator_tools::proposal;
use orchestrator_tools::result::ToolResult;
use serde_json::Value;
use std::convert::Infallible;
use std::future::pending;
use std::rc::Rc;
use std::time::Instant;
use tokio::sync::mpsc;
use tokio::time::sleep_until;

/// What is called, looked up.
enum Wanted {
    Tool(Found, Value),
    Request(Request),
}

/// Makes the call that is ordered, and publishes what happens.
pub(crate) async fn serve(engine: Rc<Engine>, order: CallOrder) {
    tracing::trace!("serve a call");
    let CallOrder { number, context, invocation, events, steering: words } = order;
    let (wanted, subject) = match invocation {
        Invocation::Tool { name, input } => {
            let found = engine.find(&name);
            let subject = (shown_name(&found, &name), input.clone());
            (Wanted::Tool(found, input), subject)
        }
        Invocation::Request(request) => {
            let subject = (request.tool().to_owned(), proposal::input(&request));
            (Wanted::Request(request), subject)
        }
    };
    let steering = Rc::new(Steering::default());
    let (deadline, cancel) = (context.deadline, context.cancel.clone());
    engine.under_way.borrow_mut().insert(number, cancel);
    let caller = Caller::new(&engine, number, context, subject, Some(events.clone()), steering.clone());
    let work = async {
        request(&caller).await;
        let result = run(&engine, &caller, wanted).await;
        at_deadline(deadline, result)
    };
    let result = tokio::select! {
        result = work => result,
        never = steering.follow(words) => match never {},
        never = steering.feed() => match never {},
        never = watch(&caller.context, &events, &steering) => match never {},
    };
    engine.under_way.borrow_mut().remove(&number);
    conclude(&engine, &caller, result).await;
}

/// Cancels the call when its front end says so or is gone, and at its deadline. Never returns.
async fn watch(context: &CallContext, events: &mpsc::Sender<Event>, steering: &Steering) -> Infallible {
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

/// A call that was cancelled because its deadline had come ran out of time.
fn at_deadline(deadline: Option<Instant>, mut result: ToolResult) -> ToolResult {
    let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
    let error = result.error.as_mut().filter(|error| is_late && error.kind == ErrorKind::Cancelled);
    if let Some(error) = error {
        *error = Failed { kind: ErrorKind::Timeout, message: "the deadline of the call has passed".into() };
    }
    result
}

async fn run(engine: &Engine, caller: &Caller, wanted: Wanted) -> ToolResult {
    let failed = |error| ToolResult::failed(caller.tool.clone(), error);
    // What the executor has permitted is no call of its any more, so it does not bound these.
    let leaves = matches!(&wanted, Wanted::Tool(Ok(entry), _) if entry.leaves_executor());
    let _place = match leaves {
        true => tokio::select! {
            place = engine.outside.acquire() => place.ok(),
            () = caller.context.cancel.cancelled() => return failed(cancelled()),
        },
        false => None,
    };
    let connection = tokio::select! {
        connection = engine.connection(&caller.publisher) => connection,
        () = caller.context.cancel.cancelled() => Err(cancelled()),
    };
    let connection = match connection {
        Ok(connection) => connection,
        Err(error) => return failed(error),
    };
    match wanted {
        Wanted::Tool(found, input) => tool(engine, &connection, caller, found, input).await,
        Wanted::Request(wanted) => {
            request::result(engine, &connection, caller, wanted, LineForm::Plain, &WHOLE).await
        }
    }
}

async fn tool(
    engine: &Engine,
    connection: &Connection,
    caller: &Caller,
    found: Found,
    input: Value,
) -> ToolResult {
    match engine.plan(found, input, connection.roots()) {
        Ok(PlannedCall { work: Work::BuiltIn(Plan::Batch(calls)), .. }) => {
            batch(engine, connection, caller, calls).await
        }
        Ok(planned) => perform(engine, connection, caller, planned, engine.profile.file.keep).await,
        Err(result) => *result,
    }
}
