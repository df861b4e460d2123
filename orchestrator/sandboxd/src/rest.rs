//! The REST half of sandboxd's protocol: files, health and metadata, on port 8080.

use crate::body::{ReplyBody, empty, json, reply, with_length};
use crate::calls::SandboxCalls;
use crate::fault::{FaultKind, SandboxFault};
use crate::files::{Looked, PIECE, ProjectFiles, uploaded};
use crate::multipart;
use crate::paths::{ProjectRoot, parameter};
use crate::tools::{EntryKind, SandboxEntry};
use broker_protocol::ZonePath;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use orchestrator_text::time::precise;
use serde_json::{Value, json as value};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

const FILES: &str = "/v1/files";

/// What the requests of this protocol need.
pub(crate) struct RestRoutes {
    pub calls: Rc<SandboxCalls>,
    pub files: Rc<ProjectFiles>,
    pub root: Rc<ProjectRoot>,
    pub(crate) begun: Instant,
    /// Those of the environment that clients see.
    pub variables: BTreeMap<String, String>,
}

impl RestRoutes {
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
        match target.as_str() {
            "/v1/health" => return self.health(request.method()),
            "/v1/metadata" => return self.metadata(request.method()),
            _ => {}
        }
        let path = target
            .strip_prefix(FILES)
            .filter(|rest| rest.is_empty() || rest.starts_with('/'))
            .ok_or_else(SandboxFault::no_route)?;
        let path = path.strip_prefix('/').unwrap_or(path);
        let path = self.root.encoded(path)?;
        match *request.method() {
            Method::GET => self.get(&path).await,
            Method::HEAD => self.head(&path).await,
            Method::PUT => self.put(&path, request).await,
            Method::DELETE => self.delete(&path, request.uri().query()).await,
            _ => Ok(not_allowed("GET, HEAD, PUT, DELETE")),
        }
    }

    fn health(&self, method: &Method) -> Result<Response<ReplyBody>, SandboxFault> {
        if !is_reading(method) {
            return Ok(not_allowed("GET, HEAD"));
        }
        self.calls.check_violations()?;
        let uptime = self.begun.elapsed().as_secs();
        let healthy = value!({ "status": "ok", "uptime_seconds": uptime });
        Ok(json(StatusCode::OK, &healthy))
    }

    fn metadata(&self, method: &Method) -> Result<Response<ReplyBody>, SandboxFault> {
        match is_reading(method) {
            true => Ok(json(StatusCode::OK, &value!({ "env": self.variables }))),
            false => Ok(not_allowed("GET, HEAD")),
        }
    }

    async fn get(&self, path: &ZonePath) -> Result<Response<ReplyBody>, SandboxFault> {
        match self.files.inspect(path, PIECE).await? {
            Looked::File(first) => {
                let size = first.size;
                let content = self.files.content(path.clone(), first);
                let response = reply(StatusCode::OK, "application/octet-stream", content);
                Ok(with_length(response, size))
            }
            Looked::Directory(entries) => {
                let entries = self.files.listed(path, entries).await?;
                let entries: Vec<Value> = entries.iter().map(listed).collect();
                let path = format!("/{}", path.relative());
                let listing = value!({ "path": path, "entries": entries });
                Ok(json(StatusCode::OK, &listing))
            }
        }
    }

    async fn head(&self, path: &ZonePath) -> Result<Response<ReplyBody>, SandboxFault> {
        match self.files.inspect(path, 1).await? {
            Looked::File(piece) => Ok(with_length(empty(StatusCode::OK), piece.size)),
            Looked::Directory(_) => Ok(empty(StatusCode::OK)),
        }
    }

    async fn put(
        &self,
        path: &ZonePath,
        request: Request<Incoming>,
    ) -> Result<Response<ReplyBody>, SandboxFault> {
        let mode = parameter(request.uri().query(), "mode")?;
        let mode = mode.as_deref().map(permissions).transpose()?;
        let media_type = request.headers().get(CONTENT_TYPE);
        let media_type = media_type.and_then(|value| value.to_str().ok());
        let boundary = multipart::boundary(media_type.unwrap_or_default())?;
        if path.relative().is_empty() {
            return Err(SandboxFault::invalid("the project root is a directory"));
        }
        let _room = self.files.upload().await;
        let content = match boundary {
            None => uploaded(request.into_body(), 0).await?,
            Some(boundary) => {
                let body = uploaded(request.into_body(), multipart::OVERHEAD_MAX).await?;
                multipart::file(&body, &boundary)?.content
            }
        };
        self.files.write(path, content, mode).await?;
        Ok(empty(StatusCode::NO_CONTENT))
    }

    async fn delete(
        &self,
        path: &ZonePath,
        query: Option<&str>,
    ) -> Result<Response<ReplyBody>, SandboxFault> {
        let recursive = match parameter(query, "recursive")?.as_deref() {
            None | Some("false" | "0") => false,
            Some("true" | "1") => true,
            Some(_) => return Err(SandboxFault::invalid("recursive is `true` or `false`")),
        };
        self.files.remove(path, recursive).await?;
        Ok(empty(StatusCode::NO_CONTENT))
    }
}

fn is_reading(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

fn not_allowed(allowed: &'static str) -> Response<ReplyBody> {
    let fault = SandboxFault::new(FaultKind::Unimplemented, format!("it has {allowed}"));
    let mut response = refusal(&fault);
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    let allowed = HeaderValue::from_static(allowed);
    response.headers_mut().insert(ALLOW, allowed);
    response
}

/// Permission bits as the protocol writes them: a zero, and three octal digits. So there are no bits for another user's rights.
fn permissions(text: &str) -> Result<u16, SandboxFault> {
    let digits = text
        .strip_prefix('0')
        .filter(|digits| digits.len() == 3 && digits.bytes().all(|digit| digit.is_ascii_digit()));
    digits
        .and_then(|digits| u16::from_str_radix(digits, 8).ok())
        .ok_or_else(|| SandboxFault::invalid("mode is `0` and three octal digits, such as 0644"))
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
        "modified_at": precise(u64::try_from(entry.modified_ms).unwrap_or(0)),
        "mode": format!("{:04o}", entry.mode & 0o777),
    })
}

/// An error as this protocol has it.
pub(crate) fn refusal(fault: &SandboxFault) -> Response<ReplyBody> {
    let body = value!({ "code": fault.kind.code(), "message": fault.message });
    json(fault.kind.status(), &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permission_bits_are_three_octal_digits_behind_a_zero() {
        for (text, mode) in [
            ("0644", Some(0o644)),
            ("0755", Some(0o755)),
            ("0000", Some(0)),
            ("0777", Some(0o777)),
            ("0999", None),
            ("777", None),
            ("abcd", None),
            ("01777", None),
            ("04755", None),
            ("0+77", None),
            ("", None),
        ] {
            assert_eq!(permissions(text).ok(), mode, "{text}");
        }
    }
}
