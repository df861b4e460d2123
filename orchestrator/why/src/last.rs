//! The last command of a project, from the run log.

use broker_protocol::{Command, Failed, Roots, ZonePath};
use orchestrator_launch::runlog_files;
use serde_json::Value;
use std::io;
use std::path::Path;

/// A command from the log, with its circumstances.
#[derive(Debug)]
pub struct LastCommand {
    pub command: Command,
    pub profile: String,
    pub directory: Option<ZonePath>,
    /// The run that it belongs to.
    pub run: String,
    /// Whether it had input, which was not stored.
    pub had_input: bool,
}

/// Finds the last command that was run in `project`.
///
/// # Errors
/// If there is none, the logs cannot be read, or the command is not recorded exactly.
pub fn find(project: &Path) -> Result<LastCommand, Failed> {
    let unreadable =
        |error: io::Error| Failed::internal(format!("the logs cannot be read: {error}"));
    for run in runlog_files::ids().map_err(unreadable)?.into_iter().rev() {
        // A run whose log was removed in the meantime is skipped.
        let lines = runlog_files::lines(&run)
            .map_err(unreadable)?
            .unwrap_or_default();
        if let Some((start, input)) = last_of(&lines, project) {
            return command(&run, start, input);
        }
    }
    let project = project.display();
    Err(Failed::invalid(format!(
        "no command of {project} is in the run log; name one: lazaret why -- CMD"
    )))
}

/// The last command in a run of this project: the start of its session, and its input.
fn last_of<'l>(lines: &'l [Value], project: &Path) -> Option<(&'l Value, &'l Value)> {
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
    is_ours.then(|| (start, &lines[at]["payload"]["input"]))
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
        let (begun, input) = last_of(&lines, Path::new("/p")).unwrap();
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
    fn what_the_log_has_not_kept_is_not_run() {
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
