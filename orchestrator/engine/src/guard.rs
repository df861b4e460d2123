//! Asks the user's hooks about each call, whichever front end makes it: before it is made, and with its result. Where one gives no
//! answer, no call is made.

use crate::caller::Caller;
use crate::conclude;
use crate::engine::Engine;
use crate::hooks::{
    HookAnswer, HookEvent, HookRan, HookRunner, HookedCall, HookedResult, Occasion, quoted,
};
use crate::publish::RawEvent;
use crate::request::cancelled;
use crate::tools::{CallTarget, Tool};
use broker_protocol::{Bash, Command, ErrorKind, Failed, Request};
use orchestrator_results::proposal;
use orchestrator_results::result::{ToolResult, error_and_result};
use orchestrator_text::sanitize::Unsafe;
use orchestrator_text::shell_words;
use orchestrator_text::utf8::beginning;
use serde_json::Value;
use std::collections::BTreeSet;

/// Maximum bytes of a result that a hook receives.
const RESULT_MAX: usize = 256 << 10;

/// A call that hooks have let through.
pub(crate) struct GuardedCall {
    tool: String,
    /// The call's tool and, of a batch, those of its calls.
    tools: BTreeSet<String>,
    input: Value,
    /// For the model, to be added to the result.
    notes: Vec<String>,
}

/// The questions to hooks about one call.
struct HookQuestions<'c> {
    engine: &'c Engine,
    caller: &'c Caller,
    hooks: &'c dyn HookRunner,
    notes: Vec<String>,
}

/// Asks hooks about a call that is about to be made, and lets them change it; `None` if there is none to ask.
///
/// # Errors
/// If a hook refuses the call or gives no answer, or the call was cancelled meanwhile.
pub(crate) async fn before(
    engine: &Engine,
    caller: &Caller,
    wanted: &mut CallTarget,
) -> Result<Option<GuardedCall>, Failed> {
    let Some(hooks) = engine.guard.hooks() else {
        return Ok(None);
    };
    let mut questions = HookQuestions {
        engine,
        caller,
        hooks: &**hooks,
        notes: Vec::new(),
    };
    let (tools, input) = match wanted {
        // It is refused anyway.
        CallTarget::Tool(Err(_), _) => return Ok(None),
        CallTarget::Tool(Ok(tool), input) => questions.of_tool(&**tool, input).await?,
        CallTarget::Request(request) => questions.of_request(request).await?,
    };
    Ok(Some(GuardedCall {
        tool: caller.tool.clone(),
        tools,
        input,
        notes: questions.notes,
    }))
}

/// Reports the result of a call to hooks, which may withhold it, and adds their notes for the model.
pub(crate) async fn after(
    engine: &Engine,
    caller: &Caller,
    call: GuardedCall,
    result: &mut ToolResult,
) {
    let Some(hooks) = engine.guard.hooks() else {
        return;
    };
    let GuardedCall {
        tool,
        tools,
        input,
        notes,
    } = call;
    // What a hook makes of a violation changes nothing of it.
    conclude::count_violation(engine, caller, result).await;
    caller.publisher.finish_output().await;
    let hooked = HookedCall {
        result: Some(hooked_result(engine, result)),
        ..HookedCall::new(caller.shown_id(), &tool, input)
    };
    let occasion = caller.occasion(HookEvent::AfterTool, hooked);
    let mut questions = HookQuestions {
        engine,
        caller,
        hooks: &**hooks,
        notes,
    };
    let of = |tool: &String| hooks.of(HookEvent::AfterTool, Some(tool));
    let chosen: BTreeSet<usize> = tools.iter().flat_map(of).collect();
    for hook in chosen {
        match questions.ask(hook, &occasion).await {
            Ok(answer) if answer.allow => questions.note(hook, answer),
            Ok(answer) => {
                withhold(result, answer.refusal(hooks.name(hook)));
                break;
            }
            // An event has already reported it.
            Err(_) => {}
        }
    }
    for note in questions.notes {
        result.push_line(&note);
    }
}

impl HookQuestions<'_> {
    /// Asks about a call of `tool`; of a batch about each of its calls. Returns the tools that it is about, and its input.
    async fn of_tool(
        &mut self,
        tool: &dyn Tool,
        input: &mut Value,
    ) -> Result<(BTreeSet<String>, Value), Failed> {
        let name = tool.name().to_owned();
        let mut form = tool.own_names(&name, input)?;
        let members = tool.members(&mut form)?;
        let mut tools = BTreeSet::from([name.clone()]);
        let mut is_changed = false;
        for member in members.iter().flatten() {
            tools.insert(member.tool.clone());
            let Some(mut of_member) = form.pointer(&member.pointer).cloned() else {
                continue;
            };
            let own = |input: Value| tool.own_names(&member.tool, &input);
            if self.change(&member.tool, &mut of_member, own).await? {
                is_changed = true;
                form.pointer_mut(&member.pointer)
                    .into_iter()
                    .for_each(|place| *place = of_member.clone());
            }
        }
        if members.is_none() {
            let own = |input: Value| tool.own_names(&name, &input);
            is_changed = self.change(&name, &mut form, own).await?;
        }
        if is_changed {
            input.clone_from(&form);
            self.caller.rewrite_input(form.clone());
        }
        Ok((tools, form))
    }

    /// Asks about a request that a front end has made itself.
    async fn of_request(
        &mut self,
        request: &mut Request,
    ) -> Result<(BTreeSet<String>, Value), Failed> {
        let tool = request.tool().to_owned();
        let before = form_of(request);
        let mut form = before.clone();
        let own = |input: Value| with_command(&before, input);
        if self.change(&tool, &mut form, own).await? && form["command"] != before["command"] {
            let (Request::Bash(Bash { command, .. }), Some(line)) =
                (&mut *request, form["command"].as_str())
            else {
                return Err(not_changed());
            };
            *command = Command::Shell(line.to_owned());
            request
                .check()
                .map_err(|error| Failed::invalid(error.to_string()))?;
            self.caller.rewrite_input(proposal::input(request));
        }
        Ok((BTreeSet::from([tool]), form))
    }

    /// Asks about one call. Returns whether hooks have changed its input, which `own` brings into the form that hooks see.
    async fn change(
        &mut self,
        tool: &str,
        input: &mut Value,
        own: impl Fn(Value) -> Result<Value, Failed>,
    ) -> Result<bool, Failed> {
        let mut is_changed = false;
        for hook in self.hooks.of(HookEvent::BeforeTool, Some(tool)) {
            let name = self.hooks.name(hook);
            let hooked = HookedCall::new(self.caller.shown_id(), tool, input.clone());
            let occasion = self.caller.occasion(HookEvent::BeforeTool, hooked);
            let answer = self.ask(hook, &occasion).await;
            if self.caller.context.cancel.is_cancelled() {
                return Err(cancelled());
            }
            let mut answer = answer.map_err(|why| {
                denied(format!(
                    "the hook `{name}` {why}: without its answer no call is made"
                ))
            })?;
            if !answer.allow {
                return Err(denied(answer.refusal(name)));
            }
            if let Some(fields) = answer.input.take() {
                *input = own(Value::Object(fields))?;
                is_changed = true;
                self.notes.push(format!(
                    "[the hook `{name}` has changed the input of {tool}]"
                ));
            }
            self.note(hook, answer);
        }
        Ok(is_changed)
    }

    fn note(&mut self, hook: usize, answer: HookAnswer) {
        let name = self.hooks.name(hook);
        let note = answer.ask_agent.map(|text| quoted(name, &text));
        self.notes.extend(note);
    }

    /// Runs a hook and publishes the outcome. The end of the call ends it.
    async fn ask(&self, hook: usize, occasion: &Occasion) -> Result<HookAnswer, String> {
        let answered = async {
            // The semaphore is never closed.
            let _place = self.engine.hook_places.acquire().await;
            self.hooks.run(hook, occasion).await
        };
        let answer = tokio::select! {
            biased;
            () = self.caller.context.cancel.cancelled() => Err("was cancelled".to_owned()),
            answer = answered => answer,
        };
        let ran = HookRan::new(self.hooks.name(hook), occasion, &answer);
        // If the front end is gone, the call ends anyway.
        let _ = self.caller.publish(RawEvent::Hook(&ran)).await;
        answer
    }
}

/// A result as hooks are told of it: what a model reads, without known secrets.
fn hooked_result(engine: &Engine, result: &ToolResult) -> HookedResult {
    let sanitizer = engine.hub.sanitizer;
    let text = sanitizer.bytes(&result.text, Unsafe::Remove).bytes;
    let text = String::from_utf8_lossy(&text);
    let (status, text) = match &result.error {
        None => ("success", text.into_owned()),
        Some(error) if text.is_empty() => ("error", sanitizer.text(&error.message)),
        Some(error) => (
            "error",
            error_and_result(&sanitizer.text(&error.message), &text),
        ),
    };
    HookedResult {
        status,
        text: beginning(&text, RESULT_MAX).to_owned(),
    }
}

/// Leaves nothing of a result but what it cost and what it broke.
fn withhold(result: &mut ToolResult, why: String) {
    let empty = ToolResult::failed(result.metadata.tool.clone(), denied(why));
    let whole = std::mem::replace(result, empty);
    result.security = whole.security;
    let (metadata, before) = (&mut result.metadata, whole.metadata);
    metadata.call = before.call;
    metadata.usage = before.usage;
    metadata.layers = before.layers;
    metadata.found = before.found;
}

/// A request as hooks are told of it. A command is one line for a shell, whether or not a shell runs it: a guard that looks for a word
/// finds it.
fn form_of(request: &Request) -> Value {
    let mut form = proposal::input(request);
    if let Request::Bash(Bash {
        command: Command::Arguments(words),
        ..
    }) = request
    {
        let words = words.iter().map(|word| String::from_utf8_lossy(word));
        form["command"] = shell_words::line(words).into();
    }
    form
}

/// `before` with the `command` of `given`, which may change nothing else: the rest is the front end's own.
fn with_command(before: &Value, given: Value) -> Result<Value, Failed> {
    let mut after = before.clone();
    let Value::Object(fields) = given else {
        return Err(not_changed());
    };
    for (name, value) in fields {
        match name.as_str() {
            "command" if value.is_string() => after["command"] = value,
            name if before.get(name) == Some(&value) => {}
            _ => return Err(not_changed()),
        }
    }
    Ok(after)
}

fn not_changed() -> Failed {
    denied("a hook can change only the `command` of a shell's call, and nothing of a request that a front end has made".to_owned())
}

fn denied(message: String) -> Failed {
    Failed {
        kind: ErrorKind::DeniedPolicy,
        message,
    }
}
