//! The last command of a project, from the run log.

use crate::findings::LoggedRefusal;
use broker_protocol::{Command, ConnectionVerdict, Failed, Roots, ZonePath};
use orchestrator_engine::gateway_advice;
use orchestrator_launch::runlog_files;
use serde_json::Value;
use std::io;
use std::path::Path;

/// A command from the log, with its circumstances.
#[derive(Debug)]
pub(crate) struct LastCommand {
    pub command: Command,
    pub profile: String,
    pub directory: Option<ZonePath>,
    /// The run that it belongs to.
    pub run: String,
    /// Whether it had input, which was not stored.
    pub(crate) had_input: bool,
    /// What the gateway refused while it ran.
    pub refused: Vec<LoggedRefusal>,
}

/// Maximum number of refusals that are taken from a log.
const REFUSED_MAX: usize = 64;

/// Finds the last command that was run in `project`.
///
/// # Errors
/// If there is none, the logs cannot be read, or the command is not recorded exactly.
pub(crate) fn find(project: &Path) -> Result<LastCommand, Failed> {
    let unreadable =
        |error: io::Error| Failed::internal(format!("the logs cannot be read: {error}"));
    for run in runlog_files::ids().map_err(unreadable)?.into_iter().rev() {
        // A run whose log was removed in the meantime is skipped.
        let lines = runlog_files::lines(&run)
            .map_err(unreadable)?
            .unwrap_or_default();
        if let Some((start, input, after)) = last_of(&lines, project) {
            let refused = refused(after);
            return command(&run, start, input).map(|last| LastCommand { refused, ..last });
        }
    }
    let project = project.display();
    Err(Failed::invalid(format!(
        "no command of {project} is in the run log; name one: lazaret why -- CMD"
    )))
}

/// What the gateway refused, in these lines.
fn refused(lines: &[Value]) -> Vec<LoggedRefusal> {
    let refusal = |line: &Value| {
        let of = &line["payload"];
        let verdict = ConnectionVerdict::ALL
            .into_iter()
            .find(|verdict| of["verdict"] == verdict.name())?;
        Some(LoggedRefusal {
            place: format!("{}:{}", of["host"].as_str()?, of["port"].as_u64()?),
            why: of["why"].as_str()?.to_owned(),
            advice: gateway_advice(verdict)?,
        })
    };
    let mut found: Vec<LoggedRefusal> = Vec::new();
    let connections = lines.iter().filter(|line| line["kind"] == "connection");
    for one in connections.filter_map(refusal) {
        if found.len() < REFUSED_MAX && !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

/// The last command in a run of this project: the start of its session, its input, and the lines after it.
fn last_of<'l>(lines: &'l [Value], project: &Path) -> Option<(&'l Value, &'l Value, &'l [Value])> {
    let is_command =
        |line: &&Value| line["kind"] == "tool_call" && line["payload"]["tool"] == "bash";
    let at = lines.iter().rposition(|line| is_command(&line))?;
    let mut starts = lines[..at]
        .iter()
        .filter(|line| line["kind"] == "session_start");
    let start = &starts.next_back()?["payload"];
    let is_ours = start["project"]
        .as_str()
        .is_some_and(|of| Path::new(of) == project)
        && start["command"] != "why";
    is_ours.then(|| (start, &lines[at]["payload"]["input"], &lines[at + 1..]))
}

fn command(run: &str, start: &Value, input: &Value) -> Result<LastCommand, Failed> {
    let lost = || {
        Failed::invalid(format!(
            "the last command does not stand in the run log as it was (run {run}): a secret was taken out, it is long, or it has unusual \
             characters; name it: lazaret why -- CMD"
        ))
    };
    let text = |value: &Value| {
        value
            .as_str()
            .filter(|text| is_whole(text))
            .map(str::to_owned)
            .ok_or_else(lost)
    };
    let command = match &input["command"] {
        Value::Array(words) => {
            let words: Result<Vec<_>, _> = words.iter().map(text).collect();
            Command::Arguments(
                words?
                    .into_iter()
                    .map(|word| word.into_bytes().into())
                    .collect(),
            )
        }
        line => Command::Shell(text(line)?),
    };
    let roots = Roots {
        project: start["project"].as_str().unwrap_or_default().to_owned(),
        central: start["central"].as_str().unwrap_or_default().to_owned(),
    };
    let directory = input["cwd"]
        .as_str()
        .map(|cwd| roots.parse(cwd).map_err(|_| lost()))
        .transpose()?;
    Ok(LastCommand {
        command,
        profile: start["profile"]
            .as_str()
            .map(str::to_owned)
            .ok_or_else(lost)?,
        directory,
        run: run.to_owned(),
        had_input: !matches!(&input["stdin"], Value::Null | Value::Bool(false)),
        refused: Vec::new(),
    })
}

/// Whether a text in the log is exact: nothing was redacted, cut off or escaped.
fn is_whole(text: &str) -> bool {
    !text.contains("[redacted:")
        && !text.contains("\\u{")
        && !text.contains('\u{fffd}')
        && !text.ends_with("bytes in all]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn start(project: &str, command: &str) -> Value {
        json!({"kind": "session_start",
            "payload": {"command": command, "project": project, "central": "/c", "profile": "rust"}})
    }

    fn call(command: Value) -> Value {
        json!({"kind": "tool_call",
            "payload": {"tool": "bash", "input": {"command": command, "cwd": "src", "stdin": true}}})
    }

    #[test]
    fn the_last_command_of_the_project_is_found_as_it_was() {
        let other = json!({"kind": "tool_call", "payload": {"tool": "file_read", "input": {}}});
        let lines = [
            start("/p", "run"),
            call(json!("first")),
            call(json!(["make", "x y"])),
            other,
        ];
        let (begun, input, _) = last_of(&lines, Path::new("/p")).unwrap();
        let last = command("1", begun, input).unwrap();
        assert_eq!(
            last.command,
            Command::Arguments(vec![b"make".to_vec().into(), b"x y".to_vec().into()])
        );
        assert_eq!((last.profile.as_str(), last.had_input), ("rust", true));
        assert_eq!(last.directory.unwrap().relative(), "src");
        assert!(last_of(&lines, Path::new("/p/q")).is_none());
        assert!(last_of(&[start("/p", "why"), call(json!("x"))], Path::new("/p")).is_none());
    }

    #[test]
    fn later_refusals_of_the_gateway_are_found_and_limited() {
        let connection = |verdict: &str, why: &str| json!({"kind": "connection", "payload": {"host": "a.example", "port": 443, "verdict": verdict, "why": why}});
        let mut lines = vec![
            start("/p", "run"),
            connection("request_refused", "before"),
            call(json!("x")),
            connection("not_trusted", "no authority"),
            connection("not_trusted", "no authority"),
            connection("not_listed", "another matter"),
            connection("unknown", "?"),
        ];
        let (_, _, after) = last_of(&lines, Path::new("/p")).unwrap();
        let found = refused(after);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            (&*found[0].place, &*found[0].why),
            ("a.example:443", "no authority")
        );
        assert!(found[0].advice.contains("SSL_CERT_FILE"));
        let many = (0..1000).map(|number| connection("request_refused", &number.to_string()));
        lines.extend(many);
        let (_, _, after) = last_of(&lines, Path::new("/p")).unwrap();
        assert_eq!(refused(after).len(), REFUSED_MAX);
    }

    #[test]
    fn command_that_the_log_has_altered_is_not_run() {
        let start = start("/p", "run");
        let long = format!("{}… [3000 bytes in all]", "x".repeat(2000));
        for text in [
            "curl -H [redacted:TOKEN] x",
            "printf \\u{1b}",
            &long,
            "a\u{fffd}b",
        ] {
            for input in [json!(text), json!(["echo", text])] {
                let call = call(input);
                assert!(
                    command("1", &start["payload"], &call["payload"]["input"]).is_err(),
                    "{text}"
                );
            }
        }
        let call = call(json!("printf 'a\\n' | wc"));
        assert!(command("1", &start["payload"], &call["payload"]["input"]).is_ok());
    }
}
