//! The calls of one answer: checked against the tools listed to the model, made in the session, and answered in their order. Calls
//! that change nothing run in parallel, all others one after the other.

use crate::budget::Budget;
use crate::event::{ChatEventBody, ChatToolResult, Confirm, Notice, Output};
use crate::message::{ImageData, Message, ToolAnswer, ToolCall};
use crate::packs::{FINISH, ToolUse};
use crate::run::{Run, RunProgress};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use broker_protocol::{ErrorKind, Failed, FileAnswer, Findings, Request, Roots};
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use orchestrator_engine::{
    ApprovalQuestion, Body as CallBody, CallContext, CallResult, Event, Invocation, LiveOutput,
    explain,
};
use orchestrator_results::findings;
use orchestrator_results::profile::{COMPACT, ModelProfile};
use orchestrator_results::proposal::Proposal;
use orchestrator_results::result::error_and_result;
use orchestrator_text::escape;
use orchestrator_text::truncate::note;
use orchestrator_text::utf8::{beginning, ending};
use orchestrator_tools::catalogue::{BATCH, CatalogueTool, canonical};
use orchestrator_tools::plan::{Plan, PlanContext};
use orchestrator_wire::approval::ApprovalRequest;
use orchestrator_wire::error::ErrorBody;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use tokio::sync::mpsc;

/// Minimum bytes of a call's answer that the model sees, however full its context is.
const ANSWER_MIN: usize = 2_000;

/// The outcome of the calls.
pub(crate) struct CallOutcomes {
    pub answers: Vec<ToolAnswer>,
    /// The result with which the task ended.
    pub(crate) finished: Option<Value>,
    /// Whether that result was insufficient and was rejected too often.
    pub given_up: bool,
}

impl Run<'_> {
    /// Carries out `calls`. For some of them, `malformed` has the reason why their input is invalid.
    pub(crate) async fn carry_out(
        &self,
        calls: &[ToolCall],
        malformed: &BTreeMap<String, String>,
        messages: &[Message],
        progress: &mut RunProgress,
    ) -> CallOutcomes {
        let mut called = CallOutcomes {
            answers: Vec::new(),
            finished: None,
            given_up: false,
        };
        let mut rest = calls;
        while let Some(first) = rest.first() {
            if let Some(why) = self.stops(&called) {
                called
                    .answers
                    .extend(rest.iter().map(|call| error_answer(call, why.to_owned())));
                break;
            }
            let safe = rest
                .iter()
                .take_while(|call| self.runs_in_parallel(&call.name))
                .count();
            let (group, others) = rest.split_at(safe.max(1));
            rest = others;
            if canonical(&first.name) == Some(FINISH)
                && self.shows(FINISH)
                && !malformed.contains_key(&first.id)
            {
                self.finish(first, progress, &mut called).await;
                continue;
            }
            let warnings: Vec<_> = group
                .iter()
                .map(|call| progress.repeats.take(&call.name, &call.input))
                .collect();
            let profile = self.profile(&progress.budget);
            let made = group
                .iter()
                .map(|call| self.call(call, malformed.get(&call.id), profile));
            for (mut answer, warning) in join_all(made).await.into_iter().zip(warnings) {
                if !answer.is_error {
                    progress.tools = ToolUse::Some;
                }
                if let Some(times) = warning {
                    self.warn_of_loop(&mut answer, times).await;
                }
                called.answers.push(answer);
            }
        }
        cut(&mut called.answers, &progress.budget, messages);
        called
    }

    /// Why no further call is made.
    fn stops(&self, called: &CallOutcomes) -> Option<&'static str> {
        if called.finished.is_some() || called.given_up {
            return Some("not run: the task has ended");
        }
        if self.control.is_cancelled() {
            return Some("not run: the user has cancelled");
        }
        self.parts
            .session
            .is_over()
            .then_some("not run: there were too many violations")
    }

    /// How much of results is shown, if that is not the session's own profile.
    fn profile(&self, budget: &Budget) -> Option<&'static ModelProfile> {
        (self.parts.settings.brief_if_small && budget.is_small()).then_some(&COMPACT)
    }

    fn runs_in_parallel(&self, name: &str) -> bool {
        let name = canonical(name).unwrap_or(name);
        self.tools
            .iter()
            .any(|tool| tool.name == name && tool.runs_in_parallel)
    }

    /// Whether a tool was listed to the model.
    fn shows(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool.name == name)
    }

    async fn warn_of_loop(&self, answer: &mut ToolAnswer, times: usize) {
        let message = format!(
            "the same call of {} was made {times} times, and its answer will not change: do something else",
            answer.name
        );
        answer.text.push_str(&format!("\n[loop: {message}]"));
        self.publisher
            .publish(ChatEventBody::Notice {
                kind: Notice::LoopDetected,
                message,
            })
            .await;
    }

    /// Makes one call and publishes its events.
    async fn call(
        &self,
        call: &ToolCall,
        malformed: Option<&String>,
        profile: Option<&'static ModelProfile>,
    ) -> ToolAnswer {
        let (tool_id, tool_name) = (call.id.clone(), self.shown_name(&call.name));
        self.publisher
            .publish(ChatEventBody::ToolStart {
                tool_id,
                tool_name,
                input: call.input.clone(),
            })
            .await;
        if let Err(failed) = self.check(call, malformed) {
            return self.refuse(call, failed).await;
        }
        self.in_session(call, profile).await.0
    }

    /// The canonical name of a tool, if the tool is listed.
    fn shown_name(&self, name: &str) -> String {
        canonical(name)
            .filter(|name| self.shows(name))
            .unwrap_or(name)
            .to_owned()
    }

    /// Refuses a malformed call, and one of a tool that was not listed to the model.
    fn check(&self, call: &ToolCall, malformed: Option<&String>) -> Result<(), Failed> {
        if let Some(why) = malformed {
            return Err(Failed {
                kind: ErrorKind::InvalidInput,
                message: why.clone(),
            });
        }
        let name = canonical(&call.name).unwrap_or(&call.name);
        if let Some(missing) = self.missing(name, &call.input) {
            let known = self
                .tools
                .iter()
                .map(|tool| tool.name.as_str())
                .collect::<Vec<_>>()
                .join(", ");
            let message = format!("there is no tool {missing:?} here; there are {known}");
            return Err(Failed {
                kind: ErrorKind::UnknownTool,
                message,
            });
        }
        Ok(())
    }

    /// The tool of a call that was not listed to the model; in a batch, that of one of its calls.
    fn missing(&self, name: &str, input: &Value) -> Option<String> {
        let brief = |name: &str| name.chars().take(128).collect();
        if !self.shows(name) {
            return Some(brief(name));
        }
        let inner = if name == BATCH {
            input["invocations"].as_array()
        } else {
            None
        };
        let names = inner.into_iter().flatten().flat_map(|inner| {
            // Under any alias of the field: without a name, the session rejects the call.
            [
                &inner["tool_name"],
                &inner["toolName"],
                &inner["tool"],
                &inner["name"],
            ]
            .map(Value::as_str)
        });
        let mut missing = names
            .flatten()
            .filter(|name| !self.shows(canonical(name).unwrap_or(name)));
        missing.next().map(brief)
    }

    /// Answers a call with an error, without the session.
    async fn refuse(&self, call: &ToolCall, failed: Failed) -> ToolAnswer {
        let error = ErrorBody::from(&failed);
        let result = ChatToolResult {
            tool_id: call.id.clone(),
            tool_name: self.shown_name(&call.name),
            status: "error",
            result: error.message.clone(),
            error: Some(error),
            image: None,
            metadata: Value::Null,
            found: Findings::default(),
        };
        self.publisher
            .publish(ChatEventBody::ToolResult(Box::new(result)))
            .await;
        error_answer(call, failed.message)
    }

    /// The end of a task: checked against the pack, then made as a call, so that the records have it.
    async fn finish(&self, call: &ToolCall, progress: &mut RunProgress, called: &mut CallOutcomes) {
        let (tool_id, tool_name) = (call.id.clone(), FINISH.to_owned());
        self.publisher
            .publish(ChatEventBody::ToolStart {
                tool_id,
                tool_name,
                input: call.input.clone(),
            })
            .await;
        // Other names of the tool's fields count here too.
        let input = with_own_names(&call.input);
        let finish = self.finish.as_ref();
        if let Some(Err(why)) = finish.map(|finish| finish.check(&input, progress.tools)) {
            let message = format!("the end of the task is not accepted: {why}");
            self.publisher
                .publish(ChatEventBody::Notice {
                    kind: Notice::QualityGateFailed,
                    message: message.clone(),
                })
                .await;
            called.answers.push(
                self.refuse(
                    call,
                    Failed {
                        kind: ErrorKind::InvalidInput,
                        message,
                    },
                )
                .await,
            );
            called.given_up = !progress.reprompt(finish.map_or(0, |finish| finish.reprompts));
            return;
        }
        let (answer, result) = self.in_session(call, None).await;
        let metadata = result
            .map(|result| json!(result.metadata()))
            .unwrap_or_default();
        if !answer.is_error {
            called.finished = Some(metadata["finished"].clone());
        }
        called.answers.push(answer);
    }

    /// Lets the session make a call.
    async fn in_session(
        &self,
        call: &ToolCall,
        profile: Option<&'static ModelProfile>,
    ) -> (ToolAnswer, Option<std::sync::Arc<CallResult>>) {
        let (agent_calls, mut asked) = mpsc::unbounded_channel();
        let context = CallContext {
            client_id: Some(call.id.as_str().into()),
            conversation: Some(self.publisher.conversation.clone()),
            agent_calls: Some(agent_calls),
            shows_changes: true,
            live: LiveOutput::Sanitized,
            cancel: self.control.token(),
            profile,
            ..CallContext::new("agent".into())
        };
        let invocation = Invocation::Tool {
            name: call.name.clone(),
            input: call.input.clone(),
        };
        let mut made = self.parts.session.call(context, invocation);
        let _under_way = self.control.begin(&call.id, made.handle.clone());
        let mut answering = FuturesUnordered::new();
        loop {
            let event = tokio::select! {
                biased;
                Some(question) = asked.recv() => {
                    answering.push(self.answer_agent_call(call, question));
                    continue;
                }
                Some(()) = answering.next() => continue,
                event = made.next() => event,
            };
            let Some(event) = event else { break };
            match &*event.body {
                CallBody::Result(result) if event.part.is_none() => {
                    // Calls of a subagent whose answer nobody waits for any more end with a result too.
                    while answering.next().await.is_some() {}
                    return (self.conclude(call, result).await, Some(result.clone()));
                }
                _ => self.pass_on(call, &event).await,
            }
        }
        let message = "the session has ended".to_owned();
        (
            self.refuse(
                call,
                Failed {
                    kind: ErrorKind::ExecutorLost,
                    message,
                },
            )
            .await,
            None,
        )
    }

    /// Publishes an event of a call.
    async fn pass_on(&self, call: &ToolCall, event: &Event) {
        let tool_id = || call.id.clone();
        let part = event.part.map(|part| part.index);
        match &*event.body {
            CallBody::SessionOpened(opened) => self.announce(opened).await,
            CallBody::Output { stderr, bytes } => {
                let stream = if *stderr { "stderr" } else { "stdout" };
                let output = match std::str::from_utf8(bytes) {
                    Ok(text) => Output::Text {
                        chunk: text.to_owned(),
                    },
                    Err(_) => Output::Bytes {
                        chunk_base64: STANDARD.encode(bytes),
                    },
                };
                self.publisher
                    .publish(ChatEventBody::ToolDelta {
                        tool_id: tool_id(),
                        stream,
                        output,
                        part,
                    })
                    .await;
            }
            CallBody::ApprovalWanted(question) => {
                let confirm = confirm(call, question, part);
                self.control.asked(&confirm);
                self.publisher
                    .publish(ChatEventBody::ToolConfirm(Box::new(confirm)))
                    .await;
            }
            CallBody::ApprovalGiven { challenge, .. } => {
                self.control
                    .answered(&call.id, part, &challenge.digest.to_string());
            }
            CallBody::Violation(event) => {
                self.publisher
                    .publish(ChatEventBody::Security {
                        tool_id: tool_id(),
                        event: event.clone(),
                    })
                    .await;
            }
            CallBody::Connection(report) => {
                self.publisher
                    .publish(ChatEventBody::Connection {
                        tool_id: tool_id(),
                        host: report.host.clone(),
                        port: report.port,
                        verdict: report.verdict.name(),
                        count: report.count,
                        why: explain(report),
                        part,
                    })
                    .await;
            }
            CallBody::Hook(ran) => {
                self.publisher
                    .publish(ChatEventBody::Hook(Box::new(ran.clone())))
                    .await;
            }
            // The result of a batch reports on its calls.
            CallBody::ToolRegistered { .. }
            | CallBody::ToolUnregistered { .. }
            | CallBody::Requested { .. }
            | CallBody::RequestSent { .. }
            | CallBody::Suspended
            | CallBody::Result(_) => {}
        }
    }

    /// Publishes a result; returns the answer to the model.
    async fn conclude(&self, call: &ToolCall, result: &CallResult) -> ToolAnswer {
        let text = match (String::from_utf8_lossy(&result.text), &result.error) {
            (text, None) => text.into_owned(),
            (Cow::Borrowed(""), Some(error)) => error.message.clone(),
            (text, Some(error)) => error_and_result(&error.message, &text),
        };
        let error = result.error.as_ref().map(ErrorBody::sanitized);
        let published = ChatToolResult {
            tool_id: call.id.clone(),
            tool_name: result.tool().to_owned(),
            status: if error.is_some() { "error" } else { "success" },
            result: text.clone(),
            error,
            image: result
                .image
                .as_ref()
                .map(|image| image.media_type.to_owned()),
            metadata: json!(result.metadata()),
            found: result.findings().clone(),
        };
        self.publisher
            .publish(ChatEventBody::ToolResult(Box::new(published)))
            .await;
        let mut answer = ToolAnswer {
            is_error: result.error.is_some(),
            ..plain(call, text)
        };
        answer.full = result.full_text().map(str::to_owned);
        // They begin the text, or the error in it.
        answer.found_bytes =
            findings::lines(result.findings()).map_or(0, |lines| "<error>".len() + lines.len());
        answer.image = result.image.as_ref().map(|image| ImageData {
            media_type: image.media_type.to_owned(),
            base64: STANDARD.encode(&image.data),
        });
        if result
            .error
            .as_ref()
            .is_some_and(|error| error.kind == ErrorKind::ExecutorLost)
        {
            let message = "the executor was lost; the next call opens a new session, in which no file was read yet and \
                           nothing runs in the background";
            answer.text.push_str(&format!("\n[{message}]"));
            self.publisher
                .publish(ChatEventBody::Notice {
                    kind: Notice::ExecutorLost,
                    message: message.to_owned(),
                })
                .await;
        }
        answer
    }
}

/// The file that a call of a file tool would change, by whatever name the input has it, and the change to the file as it is, or as
/// far as the input tells.
fn changes(tool: &str, input: &Value, before: Option<&FileAnswer>) -> Option<(String, String)> {
    // Placeholder roots: the zones are needed to parse paths, and do not appear in the text.
    let roots = Roots {
        project: "/project".to_owned(),
        central: "/central".to_owned(),
    };
    let context = PlanContext {
        roots: &roots,
        names: &[],
        directory: None,
        paths_from: None,
    };
    match CatalogueTool::find(tool)?
        .plan(input.clone(), &context)
        .ok()?
        .plan
    {
        Plan::Request(request) => {
            let path = match &request {
                Request::FileWrite(write) => &write.path,
                Request::FileEdit(edit) => &edit.path,
                _ => return None,
            };
            Some((
                escape::one_line(&path.to_string()),
                Proposal::new(&request, before).body.join("\n"),
            ))
        }
        _ => None,
    }
}

fn confirm(call: &ToolCall, question: &ApprovalQuestion, part: Option<usize>) -> Confirm {
    let (path, diff) = question
        .input
        .as_ref()
        .and_then(|input| changes(&question.tool, input, question.before.as_ref()))
        .unzip();
    Confirm {
        tool_id: call.id.clone(),
        tool_name: question.tool.clone(),
        input: question.input.clone(),
        diff,
        path,
        part,
        asked: ApprovalRequest::new(&question.challenge, &question.tool, question.rejected),
    }
}

/// An answer that is only the text of an error.
pub(crate) fn error_answer(call: &ToolCall, text: String) -> ToolAnswer {
    ToolAnswer {
        is_error: true,
        ..plain(call, text)
    }
}

/// An answer that is only text.
fn plain(call: &ToolCall, text: String) -> ToolAnswer {
    ToolAnswer {
        id: call.id.clone(),
        name: call.name.clone(),
        text,
        is_error: false,
        image: None,
        full: None,
        found_bytes: 0,
    }
}

/// The input of `finish_task` with canonical field names.
fn with_own_names(input: &Value) -> Value {
    let mut input = input.clone();
    if let Some(fields) = input.as_object_mut()
        && let Some(summary) = fields.remove("executive_summary")
    {
        fields.entry("summary").or_insert(summary);
    }
    input
}

/// Cuts answers to a share of the room that is left, so that no answer takes it all and the run goes on.
fn cut(answers: &mut [ToolAnswer], budget: &Budget, messages: &[Message]) {
    let max = budget
        .bytes_per_answer(messages, answers.len())
        .max(ANSWER_MIN);
    for answer in answers
        .iter_mut()
        .filter(|answer| answer.text.len() > answer.found_bytes + max)
    {
        let found = answer.found_bytes;
        let (total, full) = (Some(answer.text.len() as u64), answer.full.as_deref());
        // The lines of a file and of a list are read on from where they stop. Of anything else, the end says how it went, and the
        // beginning has what was found and the error.
        let (head, tail) = match canonical(&answer.name) {
            Some("file_read" | "file_list" | "glob" | "grep") => {
                (beginning(&answer.text, found + max), "")
            }
            _ => (
                beginning(&answer.text, found + max / 2),
                ending(&answer.text, max - max / 2),
            ),
        };
        let (shown, strategy) = (
            (head.len() + tail.len()) as u64,
            if tail.is_empty() { "head" } else { "both" },
        );
        let after = if tail.is_empty() { "" } else { "\n" };
        answer.text = format!(
            "{head}\n{}{after}{tail}",
            note(total, shown, strategy, full)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_shows_the_change_of_a_file_tool_by_any_of_its_names() {
        let edit = json!({"file_path": "a", "old_text": "one", "new_text": "two\u{202e}"});
        let (path, shown) = changes("file_edit", &edit, None).unwrap();
        assert_eq!(path, "a");
        assert!(
            shown.contains("-one\n+two") && !shown.contains('\u{202e}'),
            "{shown}"
        );
        for name in ["path", "file_path", "filePath", "absolute_path"] {
            let write = json!({name: "src/evil.sh", "content": "x\ny"});
            assert_eq!(
                changes("file_write", &write, None).unwrap(),
                ("src/evil.sh".into(), "+x\n+y".into())
            );
        }
        assert_eq!(changes("bash", &json!({"command": "true"}), None), None);
        assert_eq!(
            changes("file_write", &json!({"path": "../a", "content": "x"}), None),
            None
        );
    }

    #[test]
    fn answers_are_cut_to_what_the_context_has_room_for() {
        let named = |name: &str| ToolCall {
            id: "a".into(),
            name: name.into(),
            input: json!({}),
        };
        let call = named("file_read");
        let budget = Budget::new(Some(8_000), 1_000, None);
        let mut answers = vec![
            plain(&call, "é".repeat(20_000)),
            plain(&call, "short".into()),
        ];
        cut(&mut answers, &budget, &[]);
        // A quarter of 7,000 tokens for two.
        assert!(
            answers[0]
                .text
                .ends_with("\n[truncated: total=40000 shown=2624 strategy=head]")
        );
        assert_eq!(answers[1].text, "short");
        // Both ends of an output, and where all of it is.
        let output = format!("first {} last", "x".repeat(20_000));
        let mut answers = vec![ToolAnswer {
            full: Some("/o.log".into()),
            ..error_answer(&named("Bash"), output)
        }];
        cut(&mut answers, &budget, &[]);
        let text = &answers[0].text;
        assert!(
            text.starts_with("first x") && text.ends_with("x last"),
            "{text}"
        );
        assert!(
            text.contains("\n[truncated: total=20011 shown=5250 strategy=both full=/o.log]\n")
                && text.len() < 5_400
        );
        let full = [Message::user("x".repeat(30_000))];
        let mut answers = vec![plain(&call, "x".repeat(5_000))];
        cut(&mut answers, &budget, &full);
        assert!(
            answers[0].text.starts_with(&"x".repeat(ANSWER_MIN)) && answers[0].text.len() < 2_100
        );
        // What was found is not cut.
        let line = format!("[found: {}]\n", "y".repeat(3_000));
        let text = format!("{line}{}", "x".repeat(9_000));
        let mut answers = vec![ToolAnswer {
            found_bytes: line.len(),
            ..plain(&call, text)
        }];
        cut(&mut answers, &budget, &full);
        assert!(answers[0].text.starts_with(&line));
        // After many large answers, the run goes on.
        let mut messages = vec![Message::user("go")];
        for _ in 0..12 {
            let mut answers = vec![plain(&call, "x".repeat(100_000))];
            cut(
                &mut answers,
                &Budget::new(Some(200_000), 8_192, None),
                &messages,
            );
            messages.push(Message::Tools { answers });
        }
        assert!(!Budget::new(Some(200_000), 8_192, None).is_spent(&messages));
    }
}
