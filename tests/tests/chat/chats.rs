//! Chats and what they print.

use lazaret_tests::model_server::ModelServer;
use lazaret_tests::{Finished, LIMIT, World, run};
use serde_json::{Value, json};
use std::process::Command;

use super::vendors::Vendor;

/// `lazaret chat --json` with a server as its model.
pub fn chat(world: &World, vendor: Vendor, server: &ModelServer) -> Command {
    let mut command = world.lazaret("chat");
    command.args([
        "--json",
        "--provider",
        vendor.name(),
        "--model",
        "a-model",
        "--base-url",
        &server.url(),
    ]);
    command
}

/// `lazaret chat --json` with a script as its model.
pub fn play(world: &World, script: &Value) -> Command {
    let path = world.home.join("script.json");
    world.write(&path, script.to_string());
    let mut command = world.lazaret("chat");
    command
        .args(["--json", "--provider", "mock", "--script"])
        .arg(path);
    command
}

/// Gives a command a configuration of the user's.
pub fn configure(world: &World, command: &mut Command, config: &str) {
    let folder = world.home.join("config");
    world.write(&folder.join("lazaret/agent.toml"), config);
    command.env("XDG_CONFIG_HOME", folder);
}

/// A script of turns; a turn is a text and its calls.
pub fn script(turns: &[(&str, &[(&str, Value)])]) -> Value {
    let turn = |(text, calls): &(&str, &[(&str, Value)])| {
        let calls: Vec<Value> = calls
            .iter()
            .map(|(name, input)| json!({"name": name, "input": input}))
            .collect();
        json!({"text": text, "toolCalls": calls})
    };
    json!({"turns": turns.iter().map(turn).collect::<Vec<_>>()})
}

pub struct Printed {
    pub events: Vec<Value>,
    pub finished: Finished,
}

impl Printed {
    /// Runs a chat to its end. Whatever happens, the first event is the stream's start and the last its end.
    #[track_caller]
    pub fn of(command: &mut Command) -> Self {
        Self::from(run(command, LIMIT))
    }

    #[track_caller]
    pub fn from(finished: Finished) -> Self {
        let events: Vec<Value> = finished
            .text()
            .lines()
            .map(|line| serde_json::from_str(line).expect("every line is JSON"))
            .collect();
        let kind = |event: Option<&Value>| {
            event.map(|event| event["type"].as_str().unwrap_or_default().to_owned())
        };
        let ends = (kind(events.first()), kind(events.last()));
        let want = ("chat:stream-start".to_owned(), "chat:stream-end".to_owned());
        assert_eq!(
            ends,
            (Some(want.0), Some(want.1)),
            "{}{}",
            finished.text(),
            finished.errors()
        );
        Self { events, finished }
    }

    /// The events as lines with what does not change from run to run, one for pieces of the same text.
    pub fn lines(&self) -> Vec<String> {
        let fields = [
            "toolId", "toolName", "stream", "status", "turn", "stop", "reason",
        ];
        let line = |event: &Value| {
            let shown = fields.iter().filter_map(|name| {
                let value = &event["payload"][*name];
                (!value.is_null())
                    .then(|| format!(" {name}={}", value.to_string().trim_matches('"')))
            });
            std::iter::once(event["type"].as_str().unwrap().to_owned())
                .chain(shown)
                .collect::<String>()
        };
        let mut lines: Vec<String> = self.events.iter().map(line).collect();
        lines.dedup();
        lines
    }

    /// The payloads of the events of a kind.
    pub fn all(&self, kind: &str) -> Vec<&Value> {
        let kind = format!("chat:{kind}");
        self.events
            .iter()
            .filter(|event| event["type"] == *kind)
            .map(|event| &event["payload"])
            .collect()
    }

    /// The payload of the only event of a kind.
    #[track_caller]
    pub fn one(&self, kind: &str) -> &Value {
        let all = self.all(kind);
        assert_eq!(all.len(), 1, "{kind}: {:#?}", self.events);
        all[0]
    }

    /// The text of the model.
    pub fn text(&self) -> String {
        self.all("text-delta")
            .iter()
            .filter_map(|payload| payload["content"].as_str())
            .collect()
    }

    #[track_caller]
    pub fn reason(&self) -> &str {
        self.one("stream-end")["reason"].as_str().unwrap()
    }
}
