//! `lazaret log`: shows the logs of earlier runs. It opens no session.

use broker_protocol::{ErrorKind, Failed};
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use orchestrator_agent::run_lines;
use orchestrator_launch::exit;
use orchestrator_launch::launch::{ErrorForm, FrontEnd, Launch};
use orchestrator_launch::row::CommandRow;
use orchestrator_launch::runlog;
use orchestrator_launch::runlog_files::{self, RunOutline};
use orchestrator_launch::stdio::print;
use orchestrator_lines::errors;
use orchestrator_text::time;
use serde_json::{Value, json};
use std::io;

const EXAMPLES: &str = "\
Examples:
  lazaret log list
  lazaret log show 20261120-100234-000001-99
  lazaret log search 'permission denied' --json";

/// Show the logs of earlier runs
///
/// A run of `run`, `why`, `call`, `history`, `undo`, `session`, `acp`, `mcp`, `chat` or `serve` writes lines of JSON to
/// $XDG_STATE_HOME/lazaret/runs/RUN/runlog.jsonl (~/.local/state), unless --no-log is given. Texts are cut at 2000 characters and
/// known secrets taken out. There are at most 200 runs, each of at most 8 MiB; the oldest go.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Log {
    #[command(subcommand)]
    action: LogAction,
    /// Print JSON: an array of runs, or the lines as they are
    #[arg(long, global = true)]
    json: bool,
}

/// Which lines are wanted.
#[derive(Args)]
struct WantedLines {
    /// Only lines of this kind
    #[arg(long, value_name = "KIND", value_parser = PossibleValuesParser::new(runlog::KINDS.into_iter().chain(run_lines::KINDS)))]
    kind: Option<String>,
}

#[derive(Subcommand)]
enum LogAction {
    /// List the runs, newest first
    List,
    /// Print the lines of a run
    Show {
        /// Its id
        run: String,
        #[command(flatten)]
        wanted: WantedLines,
    },
    /// Find lines of all runs that have a text in them, in whatever case
    Search {
        /// The text
        text: String,
        #[command(flatten)]
        wanted: WantedLines,
    },
}

impl FrontEnd for Log {
    const ROW: CommandRow = CommandRow::of_files(
        "log",
        "0; show: 1 if there is no such run; search: 1 if nothing was found; 2 wrong arguments; 125 the logs cannot be read",
    );

    fn errors(&self) -> ErrorForm {
        ErrorForm::object(self.json)
    }

    fn main(self, _: Launch) -> Result<u8, Failed> {
        match &self.action {
            LogAction::List => self.list(),
            LogAction::Show { run, wanted } => self.show(run, wanted),
            LogAction::Search { text, wanted } => self.search(text, wanted),
        }
    }
}

impl Log {
    fn list(&self) -> Result<u8, Failed> {
        let mut runs = Vec::new();
        for id in runlog_files::ids().map_err(unreadable)?.into_iter().rev() {
            // A run whose log was removed in the meantime is skipped.
            let Some(outline) = runlog_files::outline(&id).map_err(unreadable)? else {
                continue;
            };
            runs.push(summary(&id, &outline));
        }
        if self.json {
            print::json(&runs)?;
        } else {
            for run in &runs {
                let text = |name: &str| match &run[name] {
                    Value::String(text) => text.clone(),
                    Value::Null => "-".to_owned(),
                    other => other.to_string(),
                };
                let row = format!(
                    "{:<34} {} {:<8} calls={} errors={} exit={} {}  {}",
                    text("run"),
                    text("started"),
                    text("command"),
                    text("calls"),
                    text("errors"),
                    text("exitCode"),
                    text("project"),
                    in_one_line(&text("call")),
                );
                print::result(format!("{}\n", print::row(&row)).as_bytes())?;
            }
        }
        Ok(exit::OK)
    }

    fn show(&self, run: &str, wanted: &WantedLines) -> Result<u8, Failed> {
        let Some(lines) = runlog_files::lines(run).map_err(unreadable)? else {
            let message = format!("there is no run {run:?}; `lazaret log list` has them");
            print::problem(&message);
            let failed = Failed {
                kind: ErrorKind::NotFound,
                message,
            };
            errors::print_failed(&self.errors(), &failed);
            return Ok(exit::FAILED);
        };
        lines
            .iter()
            .filter(|line| wanted.has(line))
            .try_for_each(|line| self.print(None, line))?;
        Ok(exit::OK)
    }

    fn search(&self, text: &str, wanted: &WantedLines) -> Result<u8, Failed> {
        let text = text.to_lowercase();
        let mut found = 0;
        for id in runlog_files::ids().map_err(unreadable)? {
            let lines = runlog_files::lines(&id)
                .map_err(unreadable)?
                .unwrap_or_default();
            for line in lines
                .iter()
                .filter(|line| wanted.has(line) && has(line, &text))
            {
                found += 1;
                self.print(Some(&id), line)?;
            }
        }
        Ok(if found > 0 { exit::OK } else { exit::FAILED })
    }

    fn print(&self, run: Option<&str>, line: &Value) -> Result<(), Failed> {
        if self.json {
            let mut line = line.clone();
            if let Some(run) = run {
                line["run"] = run.into();
            }
            return print::json(&line);
        }
        let run = run.map_or(String::new(), |run| format!("{run} "));
        print::result(format!("{run}{}\n", print::row(&row(line))).as_bytes())
    }
}

impl WantedLines {
    fn has(&self, line: &Value) -> bool {
        self.kind.as_deref().is_none_or(|kind| line["kind"] == kind)
    }
}

fn unreadable(error: io::Error) -> Failed {
    Failed::internal(format!("the logs cannot be read: {error}"))
}

/// A run as an entry of a list. The counts come from its last line; they are null if it has none. Of a run with one call it has what
/// was called, and the exit code.
fn summary(id: &str, outline: &RunOutline) -> Value {
    let RunOutline {
        first,
        call,
        result,
        last,
    } = outline;
    let started = first["ts"].as_f64().map(|ts| time::utc(ts as u64));
    let (start, end) = (&first["payload"], &last["payload"]);
    let is_one = end["calls"] == 1;
    let (call, exit) = (
        called(&call["payload"]),
        &result["payload"]["metadata"]["exitCode"],
    );
    json!({
        "run": id, "started": started, "command": start["command"], "project": start["project"],
        "session": start["session"], "calls": end["calls"], "errors": end["errors"], "reason": end["reason"],
        "call": is_one.then_some(call), "exitCode": if is_one { exit.clone() } else { Value::Null },
    })
}

/// The command of a call, or its tool.
fn called(call: &Value) -> Value {
    match &call["input"]["command"] {
        Value::Array(words) => words
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(" ")
            .into(),
        Value::String(command) => command.as_str().into(),
        _ => call["tool"].clone(),
    }
}

/// Whether `wanted` occurs anywhere in a value.
fn has(value: &Value, wanted: &str) -> bool {
    match value {
        Value::String(text) => text.to_lowercase().contains(wanted),
        Value::Array(values) => values.iter().any(|value| has(value, wanted)),
        Value::Object(fields) => fields
            .iter()
            .any(|(name, value)| name.contains(wanted) || has(value, wanted)),
        Value::Number(number) => number.to_string() == wanted,
        Value::Null | Value::Bool(_) => false,
    }
}

/// A line for a person: time, call, kind and the first words of its text.
fn row(line: &Value) -> String {
    let at = time::utc(line["ts"].as_f64().unwrap_or_default() as u64);
    let payload = &line["payload"];
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let words = [
        "tool",
        "model",
        "error",
        "message",
        "content",
        "input",
        "result",
        "project",
        "reason",
        "description",
    ]
    .map(|name| text(&payload[name]))
    .into_iter()
    .filter(|text| !text.is_empty())
    .collect::<Vec<_>>()
    .join("  ");
    let (kind, words) = (
        line["kind"].as_str().unwrap_or_default(),
        in_one_line(&words),
    );
    format!("{at} {:>4} {kind:<14} {words}", line["step"])
}

/// The beginning of a text, for a row.
fn in_one_line(text: &str) -> String {
    const SHOWN: usize = 160;
    text.replace(['\n', '\t'], " ")
        .chars()
        .take(SHOWN)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_wherever_it_stands() {
        let line = json!({"kind": "tool_call", "payload": {"input": {"command": ["Make", "x"]}}, "step": 12});
        for wanted in ["make", "tool_", "12", "command"] {
            assert!(has(&line, wanted), "{wanted}");
        }
        assert!(!has(&line, "1"));
    }

    #[test]
    fn a_run_that_did_not_end_has_no_counts() {
        let start = json!({"ts": 0.5, "kind": "session_start", "payload": {"command": "run", "project": "/p"}});
        let call = json!({"ts": 1.5, "kind": "tool_call", "payload": {"tool": "bash"}});
        let outline = RunOutline {
            first: start,
            call: call.clone(),
            last: call,
            ..RunOutline::default()
        };
        let summary = summary("1", &outline);
        assert_eq!(
            (&summary["command"], &summary["calls"]),
            (&json!("run"), &Value::Null)
        );
        assert_eq!(summary["started"], "1970-01-01 00:00:00Z");
    }

    #[test]
    fn a_call_is_its_command_or_its_tool() {
        let of = |call: Value| called(&call);
        assert_eq!(
            of(json!({"tool": "bash", "input": {"command": ["git", "log"]}})),
            "git log"
        );
        assert_eq!(
            of(json!({"tool": "bash", "input": {"command": "git log | head"}})),
            "git log | head"
        );
        assert_eq!(
            of(json!({"tool": "glob", "input": {"pattern": "*"}})),
            "glob"
        );
    }
}
