//! `lazaret chat --replay`: prints the events of a conversation in order, from its transcript, without a model and without calling
//! tools.

use broker_protocol::Failed;
use orchestrator_agent::transcript::Recorded;
use orchestrator_launch::exit;
use orchestrator_launch::stdio::print;
use orchestrator_records::transcripts;
use serde_json::Value;

/// Prints the events of the conversation `id`; returns the exit code.
pub(super) fn main(id: &str, json: bool) -> Result<u8, Failed> {
    let recorded = Recorded::read(&transcripts::recorded(id)?);
    let mut out = String::new();
    for event in &recorded.events {
        match json {
            true => out.push_str(&format!("{event}\n")),
            false => out.push_str(&text(event)),
        }
    }
    print::result(out.as_bytes())?;
    Ok(exit::OK)
}

/// An event as a person reads it. The file is ours, but its content comes from untrusted sources.
fn text(event: &Value) -> String {
    let field = |name: &str| print::row(event["payload"][name].as_str().unwrap_or_default());
    match event["type"].as_str().unwrap_or_default() {
        "chat:text-delta" => lines(event["payload"]["content"].as_str().unwrap_or_default()),
        "chat:tool-start" => {
            let input = print::row(&event["payload"]["input"].to_string());
            format!("\n● {} {input}\n", field("toolName"))
        }
        "chat:tool-result" => format!("  └ {}\n", field("status")),
        "chat:error" => format!("\n{}: {}\n", field("code"), field("message")),
        "chat:stream-end" => "\n".to_owned(),
        _ => String::new(),
    }
}

/// Splits a text into lines and makes each safe to show.
fn lines(text: &str) -> String {
    text.split('\n')
        .map(print::shown)
        .collect::<Vec<_>>()
        .join("\n")
}
