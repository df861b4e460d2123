//! Calls that the executor permits but does not carry out: web requests, tools of clients or servers, and those about the agent itself.

use super::toolbox::Toolbox;
use crate::agent_call::AgentCall;
use crate::input_error::InputError;
use crate::registry::ClientTool;
use crate::web_results;
use broker_protocol::{CallId, Effect, ErrorKind, Failed, Outcome, Request, limit};
use orchestrator_engine::execution::{Execution, Executions, OutsideReply};
use orchestrator_engine::{CallWork, spans};
use orchestrator_results::metadata::Details;
use orchestrator_results::render::FinishedRequest;
use orchestrator_results::result::{ForeignText, ToolResult};
use orchestrator_results::subject::Subject;
use orchestrator_web::WebError;
use orchestrator_web::request::{FetchRequest, ViewRequest, WebRequest};
use serde_json::Value;
use std::cell::RefCell;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::Instrument;

/// Makes a web request after the executor permits it. Shows `max` bytes of a text.
pub(crate) async fn web(
    toolbox: &Toolbox,
    work: CallWork<'_>,
    wanted: WebRequest,
    max: usize,
) -> ToolResult {
    match request_permission(work, wanted.effect()).await {
        Ok(number) => {
            let text = ask_web(toolbox, work, wanted)
                .instrument(spans::outside())
                .await;
            show(work, number, text, max).await
        }
        Err(mut result) => {
            result.metadata.tool = work.tool().to_owned().into();
            *result
        }
    }
}

/// Lets a client or a server carry out a call after the executor permits it. Shows `max` bytes of a text.
pub(crate) async fn registered(
    work: CallWork<'_>,
    tool: &ClientTool,
    input: Value,
    max: usize,
) -> ToolResult {
    match request_permission(work, tool.effect(input.clone())).await {
        Ok(number) => {
            let owner = OutsideOwner {
                tool: tool.name(),
                executions: &tool.executions,
                timeout_s: tool.timeout_s,
            };
            let text = execute(work, owner, input)
                .instrument(spans::outside())
                .await;
            show(work, number, text, max).await
        }
        Err(result) => *result,
    }
}

/// Lets a front end with models carry out a call about the agent after the executor permits it. Shows `max` bytes of the answer.
pub(crate) async fn agent(work: CallWork<'_>, call: &AgentCall, max: usize) -> ToolResult {
    let Some(executions) = &work.context().agent_calls else {
        // The registry of such a front end does not have the tool.
        let message = "this front end has no models".into();
        return ToolResult::failed(
            call.tool(),
            Failed {
                kind: ErrorKind::Internal,
                message,
            },
        );
    };
    match request_permission(work, call.effect()).await {
        Ok(number) => {
            let owner = OutsideOwner {
                tool: call.tool(),
                executions,
                timeout_s: limit::TIMEOUT_S,
            };
            let text = execute(work, owner, call.input())
                .instrument(spans::outside())
                .await;
            show(work, number, text, max).await
        }
        Err(result) => *result,
    }
}

/// Asks the executor to permit an effect; returns its call ID in the audit.
async fn request_permission(work: CallWork<'_>, effect: Effect) -> Result<CallId, Box<ToolResult>> {
    let request = Request::Effect(effect);
    let failed = |error| Box::new(ToolResult::failed(work.tool().to_owned(), error));
    request
        .check()
        .map_err(|error| failed(InputError::from(error).into()))?;
    let ended = work.run(request).await?;
    if let Ok(FinishedRequest {
        outcome: Outcome::Granted,
        ..
    }) = &ended.finished
    {
        return Ok(ended.number);
    }
    let result = work.rendered(ended);
    if result.error.is_some() {
        return Err(Box::new(result));
    }
    let message = "the executor neither permitted the call nor gave a reason".into();
    Err(failed(Failed {
        kind: ErrorKind::Protocol,
        message,
    }))
}

/// A web request cannot be steered; cancelling drops it.
async fn ask_web(toolbox: &Toolbox, work: CallWork<'_>, wanted: WebRequest) -> ForeignText {
    let begun = Instant::now();
    let Some(web) = &toolbox.web else {
        let message = "this session has no web access".into();
        return timed(
            work,
            begun,
            Err(Failed {
                kind: ErrorKind::Internal,
                message,
            }),
        );
    };
    let effect = wanted.effect();
    let limit_s = work
        .scope_timeout_s(work.tool())
        .min(work.scope_timeout_s(effect.tool()));
    let hits = RefCell::default();
    let asked = async {
        match wanted {
            WebRequest::Search(search) => web.search(&search).await.map(|found| {
                hits.replace(web_results::hits(&found));
                web_results::found(&found).into()
            }),
            WebRequest::Fetch(fetch) => {
                let fetch = FetchRequest {
                    timeout_s: fetch.timeout_s.min(limit_s),
                    ..fetch
                };
                web.fetch(&fetch)
                    .await
                    .map(|page| web_results::page(page, &fetch))
            }
            WebRequest::View(view) => {
                let view = ViewRequest {
                    timeout_s: view.timeout_s.min(limit_s),
                    ..view
                };
                web.view(&view)
                    .await
                    .map(|image| web_results::image(image, &view).into())
            }
        }
    };
    let text = tokio::select! {
        text = timeout(Duration::from_secs(limit_s.into()), asked) =>
            text.unwrap_or(Err(WebError::TimedOut(limit_s))).map_err(Failed::from),
        () = work.context().cancel.cancelled() => Err(cancelled()),
    };
    publish_hits(work, &hits.take()).await;
    timed(work, begun, text)
}

/// Publishes the hits of a search one by one, as a command's output. It takes as long as the front end needs, which is none of the
/// search's time.
async fn publish_hits(work: CallWork<'_>, hits: &[String]) {
    for hit in hits {
        let text = format!("{hit}\n\n");
        // A front end that is gone gets no result either.
        if !work.publish_output(text.as_bytes()).await {
            return;
        }
    }
}

/// Who carries out a call, and how long that may take.
struct OutsideOwner<'a> {
    tool: &'a str,
    executions: &'a Executions,
    timeout_s: u32,
}

/// Passes a call to the owner of its tool and waits for the answer.
async fn execute(work: CallWork<'_>, owner: OutsideOwner<'_>, input: Value) -> ForeignText {
    let begun = Instant::now();
    let limit_s = owner.timeout_s.min(work.scope_timeout_s(owner.tool));
    let (reply, answer) = oneshot::channel();
    let execution = Execution {
        call: work.number(),
        asker: work.context().asker.clone(),
        client_id: work.context().client_id.clone(),
        part: work.context().part.map(|part| part.index),
        tool: owner.tool.to_owned(),
        input,
        reply,
    };
    let gone = || Failed {
        kind: ErrorKind::Cancelled,
        message: "the owner of the tool is gone".into(),
    };
    let late = || Failed {
        kind: ErrorKind::Timeout,
        message: format!("the tool did not answer within {limit_s} s"),
    };
    // If this cannot be sent, it is dropped with its reply channel, and the wait below ends.
    let _ = owner.executions.send(execution);
    let reply = tokio::select! {
        answer = timeout(Duration::from_secs(limit_s.into()), answer) => match answer {
            Ok(answer) => answer.unwrap_or_else(|_| Err(gone())),
            Err(_) => Err(late()),
        },
        () = work.context().cancel.cancelled() => Err(cancelled()),
    };
    let result = reply.map(
        |OutsideReply {
             text,
             structured,
             image,
         }| {
            let details =
                structured.map_or(Details::None, |structured| Details::Other { structured });
            ToolResult {
                image,
                ..ToolResult::success(work.tool().to_owned(), text, details)
            }
            .into()
        },
    );
    timed(work, begun, result)
}

fn cancelled() -> Failed {
    Failed {
        kind: ErrorKind::Cancelled,
        message: "the call was cancelled".into(),
    }
}

/// Adds the time since `begun` to the text or error of a call.
fn timed(work: CallWork<'_>, begun: Instant, text: Result<ForeignText, Failed>) -> ForeignText {
    let subject = Subject::tool(work.tool().to_owned());
    let mut text = text.unwrap_or_else(|error| ForeignText::failed(&subject, error));
    text.result.metadata.usage.wall_us = begun.elapsed().as_micros() as u64;
    text
}

/// Truncates a foreign text to what is shown. If that cuts it, the executor saves the whole text if it can, for `file_read`. Known
/// secrets are removed first: else a web answer could carry a secret into a zone, and a cut could show half of one.
async fn show(work: CallWork<'_>, number: CallId, text: ForeignText, max: usize) -> ToolResult {
    let mut text = ForeignText {
        max: text.max.min(max),
        ..text
    };
    let redactor = work.redactor();
    text.result.text = redactor.bytes(&text.result.text).into_owned();
    let mut spill = None;
    if text.is_long() {
        tokio::select! {
            saved = work.save_output(number, &text.result.text) => spill = saved,
            () = work.context().cancel.cancelled() => {}
        }
    }
    text.cut(spill.as_ref(), work.roots()).numbered(number)
}
