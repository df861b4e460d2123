//! The protocol of agent-sandbox's first runtime: HTTP without a version, on port 8888.

use crate::body::{ReplyBody, collect, json, reply, with_length};
use crate::calls::SandboxCalls;
use crate::commands::{CommandOrder, EndedCommand, HowEnded, run};
use crate::fault::{FaultKind, SandboxFault};
use crate::files::{Looked, PIECE, ProjectFiles, uploaded};
use crate::multipart;
use crate::paths::{ProjectRoot, decoded};
use crate::tools::{EntryKind, SandboxEntry};
use broker_protocol::{Command, limit};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json as value};
use std::rc::Rc;
use std::time::Duration;

/// Bytes of the body of `/execute`: a command, and what JSON makes of it.
const EXECUTE_MAX: usize = 2 * limit::COMMAND;
/// The exit code of a command that has run into its time limit, as `timeout` has it.
const TIMED_OUT: i32 = 124;
/// That of one that a limit of the policy has ended: as if by SIGKILL.
const LIMITED: i32 = 137;

/// What the requests of this protocol need.
pub(crate) struct LegacyRoutes {
    pub calls: Rc<SandboxCalls>,
    pub files: Rc<ProjectFiles>,
    pub root: Rc<ProjectRoot>,
}

/// The body of `/execute`.
#[derive(Debug, Deserialize)]
struct ExecuteCommand {
    command: String,
    timeout_seconds: Option<f64>,
}

impl LegacyRoutes {
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Response<ReplyBody> {
        self.routed(request)
            .await
            .unwrap_or_else(|fault| refusal(&fault))
    }

    async fn routed(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<ReplyBody>, SandboxFault> {
        let target = request.uri().path().to_owned();
        let below = |prefix: &str| target.strip_prefix(prefix).map(str::to_owned);
        if request.method() == Method::GET {
            if target == "/" {
                return self.health();
            }
            if let Some(path) = below("/download/") {
                return self.download(&path).await;
            }
            if let Some(path) = below("/list/") {
                return self.list(&path).await;
            }
            if let Some(path) = below("/exists/") {
                return self.exists(&path).await;
            }
        }
        match (request.method(), target.as_str()) {
            (&Method::POST, "/execute") => self.execute(request.into_body()).await,
            (&Method::POST, "/upload") => self.upload(request).await,
            _ => Err(SandboxFault::no_route()),
        }
    }

    fn health(&self) -> Result<Response<ReplyBody>, SandboxFault> {
        self.calls.check_violations()?;
        let ready = value!({ "status": "ok", "message": "the sandbox is ready" });
        Ok(json(StatusCode::OK, &ready))
    }

    async fn execute(&self, body: Incoming) -> Result<Response<ReplyBody>, SandboxFault> {
        let body = collect(body, EXECUTE_MAX).await?;
        let order: ExecuteCommand = serde_json::from_slice(&body)
            .map_err(|error| SandboxFault::invalid(format!("the body is wrong: {error}")))?;
        let time = order.timeout_seconds.map(time_limit).transpose()?;
        let ended = run(
            &self.calls,
            CommandOrder {
                command: Command::Shell(order.command),
                directory: None,
                time,
            },
        );
        Ok(json(StatusCode::OK, &executed(&ended.await?)))
    }

    async fn upload(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<ReplyBody>, SandboxFault> {
        let media_type = request.headers().get(CONTENT_TYPE);
        let media_type = media_type.and_then(|value| value.to_str().ok());
        let boundary = multipart::boundary(media_type.unwrap_or_default())?
            .ok_or_else(|| SandboxFault::invalid("an upload is multipart/form-data"))?;
        let _room = self.files.upload().await;
        let body = uploaded(request.into_body(), multipart::OVERHEAD_MAX).await?;
        let file = multipart::file(&body, &boundary)?;
        drop(body);
        let name = file
            .name
            .filter(|name| !name.is_empty())
            .ok_or_else(|| SandboxFault::invalid("the file has no name"))?;
        let path = self.root.path(&name)?;
        self.files.write(&path, file.content, None).await?;
        let done = value!({ "message": format!("`{}` is written", path.relative()) });
        Ok(json(StatusCode::OK, &done))
    }

    async fn download(&self, path: &str) -> Result<Response<ReplyBody>, SandboxFault> {
        let path = self.root.encoded(path)?;
        match self.files.inspect(&path, PIECE).await? {
            Looked::File(first) => {
                let size = first.size;
                let content = self.files.content(path, first);
                let response = reply(StatusCode::OK, "application/octet-stream", content);
                Ok(with_length(response, size))
            }
            Looked::Directory(_) => {
                Err(SandboxFault::new(FaultKind::NotFound, "it is a directory"))
            }
        }
    }

    async fn list(&self, path: &str) -> Result<Response<ReplyBody>, SandboxFault> {
        let path = self.root.encoded(path)?;
        match self.files.inspect(&path, 1).await? {
            Looked::Directory(entries) => {
                let entries = self.files.listed(&path, entries).await?;
                let entries: Vec<Value> = entries.iter().map(listed).collect();
                Ok(json(StatusCode::OK, &entries))
            }
            Looked::File(_) => Err(SandboxFault::new(FaultKind::NotFound, "it is no directory")),
        }
    }

    async fn exists(&self, path: &str) -> Result<Response<ReplyBody>, SandboxFault> {
        let exists = self.files.exists(&self.root.encoded(path)?).await?;
        let answer = value!({ "path": decoded(path)?, "exists": exists });
        Ok(json(StatusCode::OK, &answer))
    }
}

/// A time limit as a client writes it, in seconds.
fn time_limit(seconds: f64) -> Result<Duration, SandboxFault> {
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|time| !time.is_zero() && time.as_secs() <= limit::TIMEOUT_S.into())
        .ok_or_else(|| {
            let most = limit::TIMEOUT_S;
            SandboxFault::invalid(format!("timeout_seconds is more than 0 and at most {most}"))
        })
}

fn executed(ended: &EndedCommand) -> Value {
    let code = match ended.how {
        HowEnded::Exited(code) => code,
        // As Python has it, in which this protocol's first server is written.
        HowEnded::Signalled(number) => -number,
        HowEnded::TimedOut => TIMED_OUT,
        HowEnded::Limited => LIMITED,
    };
    value!({
        "stdout": String::from_utf8_lossy(&ended.stdout),
        "stderr": String::from_utf8_lossy(&ended.stderr),
        "exit_code": code,
        "timed_out": ended.how == HowEnded::TimedOut,
    })
}

fn listed(entry: &SandboxEntry) -> Value {
    let kind = match entry.kind {
        EntryKind::Directory => "directory",
        EntryKind::File | EntryKind::Link | EntryKind::Other => "file",
    };
    value!({
        "name": entry.name,
        "size": entry.size,
        "type": kind,
        "mod_time": entry.modified_ms as f64 / 1000.0,
    })
}

/// An error as this protocol has it: what is wrong with a body is a list.
pub(crate) fn refusal(fault: &SandboxFault) -> Response<ReplyBody> {
    match fault.kind {
        FaultKind::InvalidArgument => {
            let detail = value!([{ "type": "value_error", "msg": fault.message }]);
            let body = value!({ "detail": detail, "message": fault.message });
            json(StatusCode::UNPROCESSABLE_ENTITY, &body)
        }
        FaultKind::PermissionDenied
        | FaultKind::NotFound
        | FaultKind::Conflict
        | FaultKind::TooLarge
        | FaultKind::Exhausted
        | FaultKind::DeadlineExceeded
        | FaultKind::FailedPrecondition
        | FaultKind::Unimplemented
        | FaultKind::Unavailable
        | FaultKind::Internal => json(fault.kind.status(), &value!({ "message": fault.message })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_limit_is_positive_and_bounded() {
        for (seconds, fits) in [
            (0.5, true),
            (1.0, true),
            (86_400.0, true),
            (0.0, false),
            (-1.0, false),
            (86_401.0, false),
            (f64::NAN, false),
            (f64::INFINITY, false),
        ] {
            assert_eq!(time_limit(seconds).is_ok(), fits, "{seconds}");
        }
    }
}
