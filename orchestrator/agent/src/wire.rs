//! A provider over HTTP: a wire format defines the request and the meaning of the answer's frames; everything else is shared.

use crate::chunk::{Chunk, Chunks};
use crate::error::ProviderError;
use crate::http::ProviderHttp;
use crate::provider::{Model, ModelRequest, Provider, no_tools};
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use orchestrator_http::key::{Key, KeyNames};
use orchestrator_text::line_cutter::{CutLine, LineCutter, Terminator};
use orchestrator_text::server_events::{ServerEventError, ServerEvents};
use serde_json::Value;

/// Maximum bytes of one answer.
const ANSWER_MAX: usize = 64 << 20;
/// Longest line, and longest event, in bytes.
const LINE_MAX: usize = 32 << 20;

/// A vendor's wire format.
pub trait Wire {
    /// The decoder for an answer.
    type Decoder: AnswerDecoder;

    /// The vendor's name in events and on the command line.
    fn name(&self) -> &'static str;
    /// The default address of its servers.
    fn base(&self) -> &'static str;
    /// The names of the key in the places where keys are kept; `None` if no key is needed.
    fn key_names(&self) -> Option<KeyNames>;
    /// The headers of a request, with the key if there is one.
    fn headers(&self, key: Option<&Key>) -> Vec<(&'static str, String)>;
    /// A hint for the error when nothing listens there.
    fn hint(&self) -> Option<&'static str> {
        None
    }
    /// How an answer is framed.
    fn framing(&self) -> Framing;
    /// The path and the body of the request for a prompt.
    fn request(&self, prompt: &ModelRequest<'_>) -> (&'static str, Value);
    fn decoder(&self) -> Self::Decoder;
    /// All requests of this format, by method and path: its servers are sent no others.
    fn requests(&self) -> &'static [(&'static str, &'static str)];
    /// The path of the list of models.
    fn models_path(&self) -> &'static str;
    /// The models of that list.
    fn models(&self, list: &Value) -> Vec<Model>;
    /// What a model's name tells about it.
    fn model(&self, id: &str) -> Model;
    /// A request that tells more about a model than its name, if there is one.
    fn inquiry(&self, _id: &str) -> Option<(&'static str, Value)> {
        None
    }
    /// What the answer to that request tells.
    fn inquired(&self, id: &str, _answer: &Value) -> Model {
        self.model(id)
    }
}

/// How an answer is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Server-sent events; a frame is an event's data.
    Events,
    /// A frame is a line.
    Lines,
}

/// Reads the frames of one answer.
pub trait AnswerDecoder {
    /// Decodes a frame; its chunks go to `out`.
    ///
    /// # Errors
    /// If the frame violates this format, or reports that the answer failed.
    fn frame(&mut self, frame: &str, out: &mut Vec<Chunk>) -> Result<(), ProviderError>;

    /// The connection has ended without [`Chunk::End`].
    ///
    /// # Errors
    /// [`ProviderError::Cut`], unless the format allows an answer to end like this.
    fn finish(&mut self, _out: &mut Vec<Chunk>) -> Result<(), ProviderError> {
        Err(ProviderError::Cut)
    }
}

/// The provider of a wire format.
pub(crate) struct HttpProvider<W> {
    wire: W,
    http: ProviderHttp,
    has_key: bool,
}

impl<W: Wire> HttpProvider<W> {
    /// A provider at `base`, or at the vendor's default address.
    ///
    /// # Errors
    /// If the base is no URL, or a key would cross a network in clear text.
    pub(crate) fn new(
        wire: W,
        base: Option<&str>,
        key: Option<&Key>,
    ) -> Result<Self, ProviderError> {
        let http = ProviderHttp::new(
            base.unwrap_or(wire.base()),
            wire.requests(),
            wire.headers(key),
            key,
            wire.hint(),
        )?;
        // A server with an address of the user's own may need no key.
        let has_key = key.is_some() || base.is_some() || wire.key_names().is_none();
        Ok(Self {
            wire,
            http,
            has_key,
        })
    }

    fn check_key(&self) -> Result<(), ProviderError> {
        match self.wire.key_names() {
            Some(KeyNames { variable, issuer }) if !self.has_key => Err(ProviderError::NoKey {
                provider: self.wire.name().to_owned(),
                variable,
                issuer,
            }),
            _ => Ok(()),
        }
    }

    async fn stream(
        &self,
        prompt: &ModelRequest<'_>,
        chunks: &Chunks,
    ) -> Result<(), ProviderError> {
        self.check_key()?;
        let (path, body) = self.wire.request(prompt);
        let mut response = match self.http.post(path, &body).await {
            Ok(response) => response,
            Err(error) if error.refuses_tools() && !prompt.tools.is_empty() => {
                return Err(no_tools(self, &self.wire.model(prompt.model)).await);
            }
            Err(error) => return Err(name_model(error, prompt)),
        };
        let mut reader = AnswerReader::new(self.wire.framing(), self.wire.decoder());
        let mut out = Vec::new();
        while let Some(piece) = self.http.piece(&mut response).await? {
            let read = reader.push(&piece, &mut out);
            // What came before an error still belongs to the model's answer.
            if hand_on(&mut out, chunks).await? {
                return Ok(());
            }
            read?;
        }
        let read = reader.finish(&mut out);
        if hand_on(&mut out, chunks).await? {
            Ok(())
        } else {
            read.and(Err(ProviderError::Cut))
        }
    }
}

/// Sends chunks; returns whether the answer is complete.
async fn hand_on(out: &mut Vec<Chunk>, chunks: &Chunks) -> Result<bool, ProviderError> {
    for chunk in out.drain(..) {
        let is_end = matches!(chunk, Chunk::End(_));
        chunks.send(chunk).await?;
        if is_end {
            return Ok(true);
        }
    }
    Ok(false)
}

fn name_model(error: ProviderError, prompt: &ModelRequest<'_>) -> ProviderError {
    match error {
        ProviderError::ModelNotFound { reason, .. } => ProviderError::ModelNotFound {
            model: prompt.model.to_owned(),
            reason,
        },
        error => error,
    }
}

impl<W: Wire> Provider for HttpProvider<W> {
    fn name(&self) -> &str {
        self.wire.name()
    }

    fn models(&self) -> LocalBoxFuture<'_, Result<Vec<Model>, ProviderError>> {
        async {
            self.check_key()?;
            let listed = self
                .wire
                .models(&self.http.get(self.wire.models_path()).await?);
            let mut models = Vec::with_capacity(listed.len());
            for model in listed {
                models.push(match self.wire.inquiry(&model.id) {
                    Some((path, body)) => match self.http.post(path, &body).await {
                        Ok(response) => self
                            .wire
                            .inquired(&model.id, &self.http.json(response).await?),
                        // The list is useful without it.
                        Err(_) => model,
                    },
                    None => model,
                });
            }
            Ok(models)
        }
        .boxed_local()
    }

    fn model<'a>(&'a self, id: &'a str) -> LocalBoxFuture<'a, Result<Model, ProviderError>> {
        async move {
            self.check_key()?;
            let Some((path, body)) = self.wire.inquiry(id) else {
                return Ok(self.wire.model(id));
            };
            let answer = match self.http.post(path, &body).await {
                Ok(answer) => answer,
                // A compatible server may not know this request; the prompt will show whether the model exists.
                Err(ProviderError::ModelNotFound { .. }) => {
                    let model = self.wire.model(id);
                    return Ok(Model {
                        supports_tools: model.supports_tools.filter(|yes| *yes),
                        ..model
                    });
                }
                Err(error) => return Err(error),
            };
            Ok(self.wire.inquired(id, &self.http.json(answer).await?))
        }
        .boxed_local()
    }

    fn answer<'a>(
        &'a self,
        prompt: &'a ModelRequest<'a>,
        chunks: Chunks,
    ) -> LocalBoxFuture<'a, Result<(), ProviderError>> {
        async move { self.stream(prompt, &chunks).await }.boxed_local()
    }
}

/// Decodes the bytes of one answer.
pub struct AnswerReader<D> {
    frames: FrameReader,
    decoder: D,
    bytes: usize,
}

enum FrameReader {
    Events(ServerEvents),
    Lines(LineCutter),
}

impl<D: AnswerDecoder> AnswerReader<D> {
    pub fn new(framing: Framing, decoder: D) -> Self {
        let frames = match framing {
            Framing::Events => FrameReader::Events(ServerEvents::new(LINE_MAX)),
            Framing::Lines => FrameReader::Lines(LineCutter::new(Terminator::Lf, LINE_MAX)),
        };
        Self {
            frames,
            decoder,
            bytes: 0,
        }
    }

    /// Takes a piece of the answer; its chunks go to `out`.
    ///
    /// # Errors
    /// The decoder's errors; also if a line or the answer is too long.
    pub fn push(&mut self, piece: &[u8], out: &mut Vec<Chunk>) -> Result<(), ProviderError> {
        self.bytes += piece.len();
        if self.bytes > ANSWER_MAX {
            return Err(ProviderError::TooLarge {
                what: "bytes",
                max: ANSWER_MAX,
            });
        }
        self.frames.push(piece);
        while let Some(frame) = self.frames.next_frame()? {
            self.decoder.frame(&frame, out)?;
        }
        Ok(())
    }

    /// The connection has ended.
    ///
    /// # Errors
    /// The decoder's error for an answer that ends here.
    pub fn finish(&mut self, out: &mut Vec<Chunk>) -> Result<(), ProviderError> {
        if let Some(frame) = self.frames.last_frame()? {
            self.decoder.frame(&frame, out)?;
        }
        if out.iter().any(|chunk| matches!(chunk, Chunk::End(_))) {
            return Ok(());
        }
        self.decoder.finish(out)
    }
}

impl FrameReader {
    fn push(&mut self, piece: &[u8]) {
        match self {
            Self::Events(events) => events.push(piece),
            Self::Lines(lines) => lines.push(piece),
        }
    }

    fn next_frame(&mut self) -> Result<Option<String>, ProviderError> {
        match self {
            // Names of events are ignored: all vendors repeat them in the data.
            Self::Events(events) => loop {
                match events.next_event().map_err(unreadable)? {
                    Some(event) if event.data.is_none() => {}
                    event => return Ok(event.and_then(|event| event.data)),
                }
            },
            Self::Lines(lines) => loop {
                match lines.next_line().map(json_line).transpose()? {
                    Some(line) if line.trim().is_empty() => {}
                    line => return Ok(line),
                }
            },
        }
    }

    /// The line after the last line break. An event needs its end.
    fn last_frame(&mut self) -> Result<Option<String>, ProviderError> {
        match self {
            Self::Events(_) => Ok(None),
            Self::Lines(lines) => lines.last().map(json_line).transpose(),
        }
    }
}

fn json_line(line: CutLine) -> Result<String, ProviderError> {
    match line {
        CutLine::Whole(line) => String::from_utf8(line).map_err(ProviderError::malformed),
        CutLine::TooLong(_) => Err(unreadable(ServerEventError::TooLong)),
    }
}

fn unreadable(error: ServerEventError) -> ProviderError {
    match error {
        ServerEventError::TooLong => ProviderError::TooLarge {
            what: "bytes in a line or an event",
            max: LINE_MAX,
        },
        ServerEventError::NotUtf8(_) => ProviderError::malformed(error),
    }
}

/// Parses a frame as JSON.
///
/// # Errors
/// If it is no JSON.
pub fn json(frame: &str) -> Result<Value, ProviderError> {
    serde_json::from_str(frame).map_err(ProviderError::malformed)
}
