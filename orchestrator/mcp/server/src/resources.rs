//! What a client can read besides calling tools: saved long output, and the history of changes.

use broker_protocol::{ErrorKind, Failed, FileRead, History, Request, Zone, ZonePath};
use orchestrator_engine::{Body, CallContext, CallResult, FoundIn, Invocation, Session};
use rmcp::model::{Resource, ResourceTemplate};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Mutex;

const HISTORY: &str = "lazaret://history";
const OUTPUT: &str = "lazaret://output/";
/// The directory in the central root where output is saved.
const OUTPUTS: &str = "outputs";
/// Maximum number of outputs to list: the latest.
const LISTED_MAX: usize = 64;
/// Number of changes in the history.
const CHANGES: u32 = 50;
/// Maximum bytes of a resource; the rest can be read by line.
const READ_MAX: usize = 4 << 20;

/// The outputs that calls of this client have saved.
#[derive(Default)]
pub(crate) struct Outputs(Mutex<VecDeque<String>>);

impl Outputs {
    /// Remembers the output that a result has saved, if any; returns it as a resource.
    pub(crate) fn note(&self, metadata: &Value) -> Option<Resource> {
        let full = [&metadata["spill"]["path"], &metadata["truncated"]["full"]];
        let name = full
            .into_iter()
            .find_map(|path| output_name(path.as_str()?))?;
        let mut names = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if !names.contains(&name) {
            names.push_back(name.clone());
        }
        if names.len() > LISTED_MAX {
            names.pop_front();
        }
        Some(output(&name))
    }

    /// All resources that can be read.
    pub(crate) fn list(&self) -> Vec<Resource> {
        let history = Resource::new(HISTORY, "history")
            .with_description(
                "What the file tools have changed, newest first; `lazaret undo` takes the numbers.",
            )
            .with_mime_type("text/plain");
        let names = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        std::iter::once(history)
            .chain(names.iter().rev().map(|name| output(name)))
            .collect()
    }
}

/// The template for resources that are not listed.
pub(crate) fn template() -> ResourceTemplate {
    ResourceTemplate::new(format!("{OUTPUT}{{name}}"), "output")
        .with_description("Output of a call that was too long for its result, as it was saved.")
        .with_mime_type("text/plain")
}

fn output(name: &str) -> Resource {
    Resource::new(format!("{OUTPUT}{name}"), name)
        .with_description("The whole output of a call.")
        .with_mime_type("text/plain")
}

/// The name of a file directly in the directory of outputs.
fn output_name(path: &str) -> Option<String> {
    let (directory, name) = path.rsplit_once('/')?;
    let is_output = directory == OUTPUTS
        || directory.ends_with(&format!("/{OUTPUTS}"))
        || directory == format!("central:{OUTPUTS}");
    (is_output && !name.is_empty()).then(|| name.to_owned())
}

/// Reads a resource; `None` if it does not exist.
///
/// # Errors
/// The errors of the call that reads it.
pub(crate) async fn read(
    session: &Session,
    asker: &Arc<str>,
    uri: &str,
) -> Result<Option<String>, Failed> {
    if uri == HISTORY {
        let listed = call(session, asker, Request::History(History { limit: CHANGES })).await?;
        return Ok(Some(text(&listed)));
    }
    let Some(name) = uri.strip_prefix(OUTPUT).filter(|name| !name.contains('/')) else {
        return Ok(None);
    };
    let Ok(path) = ZonePath::new(Zone::Central, &format!("{OUTPUTS}/{name}")) else {
        return Ok(None);
    };
    let mut whole = String::new();
    let mut offset = None;
    loop {
        let request = Request::FileRead(FileRead {
            path: path.clone(),
            offset,
            limit: None,
        });
        let result = call(session, asker, request).await?;
        match &result.error {
            Some(error) if error.kind == ErrorKind::NotFound => return Ok(None),
            Some(error) => return Err(error.clone()),
            None => whole.push_str(&text(&result)),
        }
        offset = json!(result.metadata())["next"].as_u64();
        if offset.is_none() {
            return Ok(Some(whole));
        }
        if whole.len() >= READ_MAX {
            let next = offset.unwrap_or_default();
            whole.push_str(&format!("\n[lazaret: the file goes on; read it from line {next} with file_read central:{OUTPUTS}/{name}]\n"));
            return Ok(Some(whole));
        }
        if !whole.ends_with('\n') {
            whole.push('\n');
        }
    }
}

fn text(result: &CallResult) -> String {
    String::from_utf8_lossy(&result.text).into_owned()
}

async fn call(
    session: &Session,
    asker: &Arc<str>,
    request: Request,
) -> Result<Arc<CallResult>, Failed> {
    let context = CallContext {
        found: FoundIn::LaterResult,
        ..CallContext::new(asker.clone())
    };
    let mut call = session.call(context, Invocation::Request(request));
    while let Some(event) = call.next().await {
        match &*event.body {
            // Reading must not ask the user; if the policy requires approval, the resource is not read.
            Body::ApprovalWanted(_) => {
                call.handle
                    .approve(None, orchestrator_engine::ApprovalAnswer::No)
                    .await;
            }
            Body::Result(result) => return Ok(result.clone()),
            _ => {}
        }
    }
    Err(Failed {
        kind: ErrorKind::ExecutorLost,
        message: "the session has ended".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_saved_output_is_a_resource() {
        for (path, name) in [
            ("/c/outputs/7.txt", Some("7.txt")),
            ("central:outputs/7.txt", Some("7.txt")),
            ("/p/src/main.rs", None),
            ("/c/outputs/", None),
            ("7.txt", None),
        ] {
            assert_eq!(output_name(path).as_deref(), name, "{path}");
        }
        let outputs = Outputs::default();
        for number in 0..LISTED_MAX + 5 {
            outputs
                .note(&json!({ "spill": { "path": format!("/c/outputs/{number}") } }))
                .unwrap();
            outputs
                .note(&json!({ "truncated": { "full": format!("/c/outputs/{number}") } }))
                .unwrap();
        }
        assert!(outputs.note(&json!({ "path": "/c/outputs/x" })).is_none());
        let listed = outputs.list();
        assert_eq!(
            (listed.len(), listed[0].uri.as_str()),
            (1 + LISTED_MAX, HISTORY)
        );
        assert_eq!(
            listed[1].uri,
            format!("{OUTPUT}{}", LISTED_MAX + 4),
            "the last one first"
        );
    }
}
