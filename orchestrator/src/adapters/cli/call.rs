//! `lazaret call`: one tool, once.

use super::approver::Typed;
use super::event::ResultEvent;
use super::place::Place;
use super::streams::Input;
use super::toolbox::Toolbox;
use super::{exit, run::pass_input, runtime, say};
use crate::adapters::confine::{Needs, confine};
use crate::adapters::executor::{Connection, Control, Greeting};
use crate::adapters::runlog::RunLog;
use crate::adapters::secrets::known;
use crate::adapters::web::WebClient;
use crate::application::call::{self, Tools};
use crate::domain::answer::{Answer, Asked};
use crate::domain::catalogue::Tool;
use crate::domain::profile::WHOLE;
use crate::domain::request::Plan;
use crate::ports::{Approval, Approver, Audience, Caller, Gone, Question, Sandbox};
use broker_protocol::{Bash, ErrorKind, Failed, FileEdit, FileRead, FileWrite, Request};
use clap::Args;
use serde_json::Value;
use std::cell::RefCell;
use std::convert::Infallible;
use std::future::pending;
use std::io::{self, IsTerminal, Read};
use std::rc::Rc;
use tokio::sync::Notify;

/// Longest input of a tool, as in a session.
const INPUT_MAX: u64 = 4 << 20;

const EXAMPLES: &str = "\
Examples:
  lazaret call bash '{\"command\":\"git status\"}'
  lazaret call file_read '{\"path\":\"src/main.rs\",\"offset\":10,\"limit\":20}'
  lazaret call grep '{\"pattern\":\"TODO\",\"include\":\"*.rs\"}' --json
  lazaret call file_write - < input.json
  lazaret call web_fetch '{\"url\":\"https://www.rust-lang.org/\"}'

Exit code: 0 done; 1 the tool failed (not found, input or output, a command's
code that is not 0); 2 wrong input, or no such tool; 3 violation; 124 time
limit; 125 lazaret failed; 126 refused by policy.
The tools and their input: `lazaret tools`.";

/// Call one tool and print its result
///
/// The result goes to standard output, an error to standard error. On a terminal, what is not seen is shown escaped; into
/// a pipe goes every byte; JSON has nothing in it that is not seen, unless --raw-output says so. A file that is written or
/// edited is read first, as a session would have to.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Call {
    #[command(flatten)]
    toolbox: Toolbox,
    /// Print the whole result as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Name of the tool
    pub tool: String,
    /// Its input, a JSON object; `-` reads it from standard input
    #[arg(value_name = "JSON")]
    input: String,
}

impl Call {
    /// Makes the call; returns our exit code.
    pub fn main(self, place: &Place) -> Result<u8, Failed> {
        let answer = match self.read_input() {
            Ok(input) => self.make(input, place)?,
            Err(failed) => Answer::failed(&Asked::only(""), failed),
        };
        report(&answer, self.json)
    }

    /// Makes it, in the log from its beginning to its answer.
    fn make(&self, input: Value, place: &Place) -> Result<Answer, Failed> {
        let open = self.toolbox.open(place.open(0)?);
        // What is not seen is escaped or passed on below.
        let toolbox = self.toolbox.clone();
        let toolbox = if self.json { toolbox } else { toolbox.raw() };
        let log = Rc::new(place.log());
        let tools = toolbox.tools(&open, place.policy(), None, log.clone())?;
        let greeting = Greeting::open(&place.endpoint(), open)?;
        confine(&Needs { web: tools.goes_outside(&self.tool), ..Needs::default() });
        let answer = runtime()?.block_on(perform(&tools, &self.tool, input, greeting, &log));
        log.end(if answer.is_ok() { "the call has ended" } else { "no session could be opened" });
        answer
    }

    fn read_input(&self) -> Result<Value, Failed> {
        let mut text = String::new();
        let json = match self.input.as_str() {
            "-" => {
                let read = io::stdin().lock().take(INPUT_MAX).read_to_string(&mut text);
                read.map_err(|error| say::invalid(format!("cannot read the input: {error}")))?;
                &text
            }
            given => given,
        };
        serde_json::from_str(json).map_err(|error| say::invalid(format!("the input is not JSON: {error}")))
    }
}

/// Prints the result of one call; returns our exit code.
pub fn report(answer: &Answer, json: bool) -> Result<u8, Failed> {
    if json {
        say::json(&ResultEvent::new(None, answer))?;
        return Ok(code(answer));
    }
    say::result(&shown(answer, io::stdout().is_terminal()))?;
    if let Some(error) = &answer.error {
        say::problem(&format!("{}: {}", error.kind.name(), error.message));
    }
    Ok(code(answer))
}

/// Makes one request that prints nothing before its end.
pub async fn ask(sandbox: &impl Sandbox, request: Request) -> Answer {
    match call::begin(sandbox, request, &WHOLE, known()).await {
        Ok(call) => call.finish(&mut Nobody, &Typed).await,
        Err(answer) => *answer,
    }
}

async fn perform(
    tools: &Tools<WebClient>,
    tool: &str,
    input: Value,
    greeting: Greeting,
    log: &RunLog,
) -> Result<Answer, Failed> {
    let sandbox = greeting.opened().await?;
    log.session("call", sandbox.opened());
    if let Some(refused) = prepare(tool, &input, &sandbox).await {
        return Ok(refused);
    }
    let fed = input.get("stdin") == Some(&Value::Bool(true));
    let stdin = fed.then(Input::stdin).transpose().map_err(|error| say::internal(error.to_string()))?;
    let begun = Begun::default();
    let mut alone = Alone(&begun);
    tokio::select! {
        answer = tools.call(&sandbox, tool, input, &mut alone) => Ok(answer),
        never = begun.feed(stdin) => match never {},
    }
}

/// What one call by itself needs before it, or why it makes no sense by itself.
async fn prepare(tool: &str, input: &Value, sandbox: &Connection) -> Option<Answer> {
    // What is no request, or cannot be read, is refused by the call itself, with its reason.
    let Ok(Plan::Request(request)) = Tool::find(tool)?.plan(input.clone(), sandbox.roots()) else {
        return None;
    };
    if let Request::Bash(Bash { background: true, .. }) = &request {
        let rule = "a background process ends with its session, and this one has a single call; use `lazaret session`";
        return Some(Answer::failed(&Asked::of(&request), say::invalid(rule.into())));
    }
    if let Some(read) = read_before(&request) {
        ask(sandbox, read).await;
    }
    None
}

/// The read that a write or an edit needs before it. Who types one call knows what it does, and its session ends with it.
fn read_before(request: &Request) -> Option<Request> {
    let path = match request {
        Request::FileWrite(FileWrite { path, expected_sha256: None, overwrite: true, .. })
        | Request::FileEdit(FileEdit { path, expected_sha256: None, .. }) => path.clone(),
        _ => return None,
    };
    // A part is enough, as long as the file stays as it is.
    Some(Request::FileRead(FileRead { path, offset: None, limit: Some(1) }))
}

/// Nothing is shown before the end.
struct Nobody;

impl Audience for Nobody {
    async fn hear(&mut self, _: bool, _: &[u8]) -> Result<(), Gone> {
        Ok(())
    }
}

/// The request that is under way, once one is.
#[derive(Default)]
struct Begun {
    control: RefCell<Option<Control>>,
    coming: Notify,
}

impl Begun {
    /// Feeds it from our input. Never returns.
    async fn feed(&self, input: Option<Input>) -> Infallible {
        let Some(input) = input else { return pending().await };
        loop {
            let control = self.control.borrow().clone();
            match control {
                Some(control) => return pass_input(&control, Some(input)).await,
                None => self.coming.notified().await,
            }
        }
    }
}

/// Who calls once: nothing is shown before the end, and the end of this program is the end of the call.
struct Alone<'a>(&'a Begun);

impl Audience for Alone<'_> {
    async fn hear(&mut self, _: bool, _: &[u8]) -> Result<(), Gone> {
        Ok(())
    }
}

impl Approver for Alone<'_> {
    async fn approve(&self, asked: &Question<'_>) -> Approval {
        Typed.approve(asked).await
    }

    async fn elsewhere(&self, asked: &Question<'_>) {
        Typed.elsewhere(asked).await;
    }
}

impl Caller<Control> for Alone<'_> {
    fn is_live(&self) -> bool {
        false
    }

    fn begun(&self, control: Control) {
        self.0.control.replace(Some(control));
        self.0.coming.notify_one();
    }

    fn is_cancelled(&self) -> bool {
        false
    }

    async fn cancelled(&self) {
        pending().await
    }
}

/// The text as it is where it is content; with a last line end where it is a list of lines, or for a person.
fn shown(answer: &Answer, terminal: bool) -> Vec<u8> {
    let mut text = known().bytes(&answer.text).into_owned();
    if terminal {
        text = say::shown(&String::from_utf8_lossy(&text)).into_bytes();
    }
    let content = matches!(&*answer.about.tool, "bash" | "file_read");
    if !text.is_empty() && !text.ends_with(b"\n") && (terminal || !content) {
        text.push(b'\n');
    }
    text
}

fn code(answer: &Answer) -> u8 {
    let Some(error) = &answer.error else { return exit::OK };
    match error.kind {
        ErrorKind::InvalidInput | ErrorKind::UnknownTool => exit::USAGE,
        ErrorKind::Violation => exit::VIOLATION,
        ErrorKind::DeniedPolicy | ErrorKind::DeniedUser | ErrorKind::ApprovalTimeout => exit::REFUSED,
        ErrorKind::Timeout | ErrorKind::IdleTimeout => exit::TIMEOUT,
        ErrorKind::NotFound
        | ErrorKind::Io
        | ErrorKind::ExitNonzero
        | ErrorKind::ResourceLimit
        | ErrorKind::Cancelled => exit::FAILED,
        ErrorKind::ExecutorLost | ErrorKind::Protocol | ErrorKind::Internal => exit::LAZARET,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_sees_no_control_characters_and_a_pipe_sees_every_byte() {
        let mut answer = Answer::failed(&Asked::only("bash"), say::internal(String::new()));
        answer.text = b"a\x1b[2J\xff".to_vec();
        assert_eq!(shown(&answer, false), b"a\x1b[2J\xff");
        assert_eq!(String::from_utf8(shown(&answer, true)).unwrap(), "a\\u{1b}[2J\u{fffd}\n");
        answer.about.tool = "glob".into();
        answer.text = b"a".to_vec();
        assert_eq!(shown(&answer, false), b"a\n");
    }
}
