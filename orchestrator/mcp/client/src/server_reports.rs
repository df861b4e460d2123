//! What servers list, for the person who has to accept it: in full where it is not as it was accepted.

use crate::ServerReport;
use crate::pins::{Difference, ListedTool};
use broker_protocol::Failed;
use orchestrator_launch::exit;
use orchestrator_launch::stdio::{print, terminal};
use orchestrator_text::{diff, escape};
use serde_json::{Value, json};

/// Maximum bytes of a tool's description and indented schema that a person is shown. A longer one cannot be accepted.
const SHOWN_MAX: usize = 128 << 10;
/// Most characters of an unchanged tool's description.
const SUMMARY: usize = 100;

/// Prints the state of servers; returns the exit code.
pub fn show(reports: &[ServerReport], json: bool) -> Result<u8, Failed> {
    match json {
        true => print::json(&reports.iter().map(reported).collect::<Vec<_>>())?,
        false => print::result(text(reports).as_bytes())?,
    }
    let whole = |report: &ServerReport| report.tools.is_ok() && report.changes.are_none();
    Ok(if reports.iter().all(whole) {
        exit::OK
    } else {
        exit::FAILED
    })
}

/// The state of servers for a person.
pub fn text(reports: &[ServerReport]) -> String {
    reports.iter().map(paragraph).collect()
}

fn reported(report: &ServerReport) -> Value {
    let (tools, error) = match &report.tools {
        Ok(tools) => (tools.iter().map(|tool| tool.name.clone()).collect(), None),
        Err(failed) => (Vec::new(), Some(&failed.message)),
    };
    let changes = &report.changes;
    json!({
        "name": report.server, "tools": tools, "error": error, "refused": report.refused,
        "changed": changes.changed, "added": changes.added, "gone": changes.gone,
        "differences": report.differences.iter().map(differing).collect::<Vec<_>>(),
    })
}

/// A new or changed tool as it was accepted (`null` if it is new) and as it is listed, for a program that asks a person.
fn differing(difference: &Difference) -> Value {
    let form =
        |tool: &ListedTool| json!({ "description": tool.description, "schema": tool.schema });
    json!({
        "tool": difference.listed.name, "accepted": difference.accepted.as_ref().map(form),
        "listed": form(&difference.listed),
    })
}

fn paragraph(report: &ServerReport) -> String {
    let mut text = match &report.tools {
        Ok(tools) => {
            let line = |tool: &ListedTool| {
                format!(
                    "  {}: {}\n",
                    escape::line(&tool.name),
                    summary(&tool.description)
                )
            };
            format!(
                "{}: {} tools\n{}",
                report.server,
                tools.len(),
                tools.iter().map(line).collect::<String>()
            )
        }
        Err(failed) => format!("{}: {}\n", report.server, escape::line(&failed.message)),
    };
    if !report.changes.are_none() {
        let name = &report.server;
        text.push_str(&format!(
            "  not as they were accepted: {}; `lazaret mcp accept {name}` accepts them\n",
            escape::line(&report.changes.describe())
        ));
    }
    let columns = terminal::output_columns();
    text.extend(
        report
            .differences
            .iter()
            .map(|difference| compared(difference, columns)),
    );
    for refused in &report.refused {
        text.push_str(&format!("  {}\n", escape::line(refused)));
    }
    text
}

/// The beginning of a description that a person has accepted.
fn summary(description: &str) -> String {
    let first = description.lines().next().unwrap_or_default();
    let start: String = first.chars().take(SUMMARY).collect();
    let more = if start.len() < description.len() {
        " [...]"
    } else {
        ""
    };
    format!("{}{more}", escape::line(&start))
}

/// A new or changed tool as it was accepted (`-`) and as it is listed (`+`), in full. Every row has a mark, so that no text passes for
/// a line of ours; at `columns` it goes on in a row with another mark.
fn compared(difference: &Difference, columns: Option<usize>) -> String {
    let Difference { accepted, listed } = difference;
    let what = if accepted.is_some() {
        "changed, accepted (-) and now (+)"
    } else {
        "new"
    };
    let mut text = format!("  {}, {what}:\n", escape::line(&listed.name));
    let now = match texts(listed) {
        Ok(now) => now,
        Err(bytes) => return text + &left_out("it", bytes),
    };
    let before = match accepted.as_ref().map(texts) {
        None => [None, None],
        Some(Ok(before)) => before.map(Some),
        Some(Err(bytes)) => {
            text.push_str(&left_out("what was accepted", bytes));
            [None, None]
        }
    };
    for ((part, before), now) in ["description", "schema"].iter().zip(&before).zip(&now) {
        text.push_str(&format!("  {part}:\n"));
        for line in diff::whole(before.as_deref(), now) {
            let rows = match columns {
                Some(columns) => escape::wrapped(&line, columns.saturating_sub(3)),
                None => vec![line],
            };
            rows.iter()
                .for_each(|row| text.push_str(&format!("  |{row}\n")));
        }
    }
    text
}

fn left_out(what: &str, bytes: usize) -> String {
    format!("  {what} has {bytes} bytes or more, and is not shown: at most {SHOWN_MAX} are\n")
}

/// A tool's description, and its schema with a field on each line, in an order that does not depend on the server.
///
/// # Errors
/// Their bytes, if these are too many to be shown.
fn texts(tool: &ListedTool) -> Result<[String; 2], usize> {
    let within = |schema: &str| match tool.description.len() + schema.len() {
        bytes if bytes > SHOWN_MAX => Err(bytes),
        _ => Ok(()),
    };
    // Indented, a schema within the bounds of a list could take a hundred times as much.
    within(&tool.schema.to_string())?;
    let mut schema = tool.schema.clone();
    schema.sort_all_objects();
    let schema = format!("{schema:#}");
    within(&schema)?;
    Ok([tool.description.clone(), schema])
}

/// Checks that [`show`] has shown all that a server changed.
///
/// # Errors
/// If a tool is too long to be shown.
pub fn check_shown(report: &ServerReport) -> Result<(), Failed> {
    let long = report
        .differences
        .iter()
        .find(|difference| texts(&difference.listed).is_err());
    let Some(Difference { listed, .. }) = long else {
        return Ok(());
    };
    let name = escape::line(&listed.name);
    Err(Failed::invalid(format!(
        "the server `{}` cannot be accepted: the description and schema of its tool `{name}` have more than {SHOWN_MAX} bytes, which \
         nobody is shown",
        report.server
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pins::ToolChanges;

    fn tool(description: &str, schema: Value) -> ListedTool {
        ListedTool {
            name: "add".into(),
            description: description.into(),
            schema,
        }
    }

    #[test]
    fn old_and_new_are_shown_in_full_and_no_line_passes_for_one_of_ours() {
        let accepted = Some(tool("Adds.", json!({ "type": "object" })));
        let listed = tool(
            "Adds.\nRun \u{202e}it\n  schema:",
            json!({ "type": "object", "a\u{1b}": "x" }),
        );
        let shown = compared(
            &Difference {
                accepted,
                listed: listed.clone(),
            },
            None,
        );
        let want = "  add, changed, accepted (-) and now (+):\n  description:\n  | Adds.\n  |+Run \\u{202e}it\n  |+  schema:\n  \
                    schema:\n  | {\n  |+  \"a\\u001b\": \"x\",\n  |   \"type\": \"object\"\n  | }\n";
        assert_eq!(shown, want);
        let new = compared(
            &Difference {
                accepted: None,
                listed,
            },
            None,
        );
        assert!(
            new.starts_with("  add, new:\n  description:\n  |+Adds.\n"),
            "{new}"
        );
        assert!(
            new.lines()
                .skip(2)
                .all(|line| line.starts_with("  |+") || line == "  schema:"),
            "{new}"
        );
    }

    #[test]
    fn on_a_terminal_padding_begins_no_line() {
        let text = format!("+{}-gone", " ".repeat(15));
        let shown = compared(
            &Difference {
                accepted: None,
                listed: tool(&text, json!({})),
            },
            Some(20),
        );
        assert!(
            shown.contains(&format!("  |++{}\n  |> -gone\n", " ".repeat(15))),
            "{shown}"
        );
    }

    #[test]
    fn oversized_report_is_refused_and_cannot_be_accepted() {
        let report = |listed: ListedTool| {
            let differences = vec![Difference {
                accepted: Some(tool("x", json!({}))),
                listed,
            }];
            ServerReport {
                server: "s".into(),
                tools: Ok(Vec::new()),
                changes: ToolChanges {
                    changed: vec!["add".into()],
                    ..ToolChanges::default()
                },
                differences,
                listed: Vec::new(),
                refused: Vec::new(),
            }
        };
        let of = |bytes: usize| report(tool(&"x".repeat(bytes), json!({})));
        assert!(
            check_shown(&of(SHOWN_MAX - 2)).is_ok() && check_shown(&of(SHOWN_MAX - 1)).is_err()
        );
        let nested = (0..100).fold(json!(1), |inner, _| json!([inner, vec!["x"; 20]]));
        assert!(check_shown(&report(tool("", nested))).is_err());
        assert!(paragraph(&of(SHOWN_MAX)).contains("is not shown"));
        let accepted = Some(tool(&"x".repeat(SHOWN_MAX), json!({})));
        let shown = compared(
            &Difference {
                accepted,
                listed: tool("evil", json!({})),
            },
            None,
        );
        assert!(
            shown.contains("what was accepted has") && shown.contains("  |+evil\n"),
            "{shown}"
        );
    }

    #[test]
    fn a_summary_that_is_cut_says_so() {
        assert_eq!(
            (summary("a"), summary(&"x".repeat(SUMMARY))),
            ("a".into(), "x".repeat(SUMMARY))
        );
        assert_eq!(summary("a\nb"), "a [...]");
        assert_eq!(
            summary(&"x".repeat(SUMMARY + 1)),
            format!("{} [...]", "x".repeat(SUMMARY))
        );
    }
}
