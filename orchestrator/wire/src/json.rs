//! The JSON that `session`, `run --json`, `call --json` and other commands write, one object a line. Data from events is already
//! sanitized.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use broker_protocol::{Failed, Leased, SessionGrant};
use orchestrator_engine::CallResult;
use orchestrator_engine::event::MetadataJson;
use orchestrator_results::error_body::ErrorBody;
use orchestrator_results::metadata::{Details, Metadata};
use orchestrator_results::result::error_and_result;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use std::borrow::Cow;

/// The result of a call.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ResultLine<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a Value>,
    #[cfg_attr(feature = "schema", schemars(extend("const" = "result")))]
    event: &'static str,
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["success", "error"])))]
    status: &'static str,
    /// Always valid UTF-8.
    result: Cow<'a, str>,
    /// The original bytes, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    result_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<Value>,
    metadata: MetadataLine<'a>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
struct MetadataLine<'a> {
    #[serde(flatten)]
    #[cfg_attr(feature = "schema", schemars(with = "serde_json::Map<String, Value>"))]
    call: MetadataJson<'a>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    orchestrator_missing: &'static [String],
}

impl<'a> MetadataLine<'a> {
    fn new(call: MetadataJson<'a>) -> Self {
        Self {
            call,
            orchestrator_missing: orchestrator_confine::missing(),
        }
    }
}

impl<'a> ResultLine<'a> {
    /// For a model: an error comes before the text.
    pub fn for_model(id: Option<&'a Value>, result: &'a CallResult) -> Self {
        let mut line = Self {
            id,
            ..Self::plain(result)
        };
        if let Some(error) = line.error.as_ref().filter(|_| !result.text.is_empty()) {
            line.result = error_and_result(&error.message, &line.result).into();
        }
        line
    }

    /// With the text alone. A result without text shows its error.
    pub fn plain(result: &'a CallResult) -> Self {
        let error = result.error.as_ref().map(ErrorBody::sanitized);
        let is_text = std::str::from_utf8(&result.text).is_ok();
        let text = match &error {
            Some(error) if result.text.is_empty() => error.message.clone().into(),
            _ => String::from_utf8_lossy(&result.text),
        };
        let image = |image: &orchestrator_results::image::Image| json!({ "mediaType": image.media_type, "dataBase64": STANDARD.encode(&image.data) });
        Self {
            id: None,
            event: "result",
            status: if result.error.is_some() {
                "error"
            } else {
                "success"
            },
            result: text,
            result_base64: (!is_text).then(|| STANDARD.encode(&result.text)),
            error,
            image: result.image.as_ref().map(image),
            metadata: MetadataLine::new(result.metadata()),
        }
    }
}

/// The result for a call of `tool` that could not be made.
pub fn failed_result(id: Option<&Value>, tool: &str, failed: &Failed) -> Value {
    let metadata = Metadata::of(tool.to_owned().into(), Details::None);
    let error = ErrorBody::from(failed);
    let line = ResultLine {
        id,
        event: "result",
        status: "error",
        result: error.message.clone().into(),
        result_base64: None,
        error: Some(error),
        image: None,
        metadata: MetadataLine::new(MetadataJson::Typed(&metadata)),
    };
    json!(line)
}

/// A grant that lasts for a session.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct GrantJson<'a> {
    grant: u64,
    rule: &'a str,
    tool: &'a str,
    calls: u64,
    /// The programs that commands under it may name.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    programs: &'a [String],
    /// The only call that it allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    /// The host that it opens.
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
    /// The path that it opens for reading.
    #[serde(skip_serializing_if = "Option::is_none")]
    read: Option<&'a str>,
    /// The directory that it opens for writing.
    #[serde(skip_serializing_if = "Option::is_none")]
    write: Option<&'a str>,
    /// The port of this machine's loopback that it opens.
    #[serde(skip_serializing_if = "Option::is_none")]
    connect: Option<u16>,
    /// Seconds until it expires.
    #[serde(rename = "endsS", skip_serializing_if = "Option::is_none")]
    ends_s: Option<u32>,
}

impl<'a> From<&'a SessionGrant> for GrantJson<'a> {
    fn from(standing: &'a SessionGrant) -> Self {
        let SessionGrant {
            grant,
            rule,
            tool,
            calls,
            programs,
            only,
            opens,
            ends_s,
        } = standing;
        let (host, read, write) = match opens {
            Some(Leased::Host(host)) => (Some(host.as_str()), None, None),
            Some(Leased::Read(path)) => (None, Some(path.as_str()), None),
            Some(Leased::Write(path)) => (None, None, Some(path.as_str())),
            Some(Leased::Port(_)) | None => (None, None, None),
        };
        let connect = opens.as_ref().and_then(Leased::port);
        let digest = only.map(|digest| digest.to_string());
        Self {
            grant: *grant,
            rule,
            tool,
            calls: *calls,
            programs,
            digest,
            host,
            read,
            write,
            connect,
            ends_s: *ends_s,
        }
    }
}

/// Decodes base64 from a client.
pub fn decode(text: &str) -> Result<Vec<u8>, base64::DecodeError> {
    STANDARD.decode(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::ErrorKind;

    #[test]
    fn an_error_without_a_call_is_a_result_too() {
        let failed = Failed {
            kind: ErrorKind::Io,
            message: "why".into(),
        };
        orchestrator_text::known::learn(&[]).unwrap();
        let line = failed_result(Some(&json!("x")), "bash", &failed);
        assert_eq!(
            (&line["result"], &line["status"], &line["id"]),
            (&json!("why"), &json!("error"), &json!("x"))
        );
        assert_eq!(
            line["error"],
            json!({"code": "io", "layer": "result", "message": "why"})
        );
        assert_eq!(
            (&line["metadata"]["tool"], &line["metadata"]["layers"]),
            (&json!("bash"), &json!([]))
        );
    }
}
