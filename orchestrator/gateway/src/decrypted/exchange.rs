//! The requests of one connection: each is checked, gets a credential or none, and goes to the host; the answer comes back searched.

use super::answer::{DecryptedAnswer, Searched, refused};
use super::attach::{AttachDecision, Attachment, HostCredentials};
use super::head::{self, Scheme};
use super::host::CalledHost;
use super::limits::{PASSED_OVER, PASSING_OVER, REFUSAL_BODY};
use super::refusal::RequestRefusal;
use super::session::CredentialSession;
use super::streams::Activity;
use super::tasks::Tasks;
use super::upstream::{DialFault, Protocol, RequestBody, SendError, Sharing, Upstream};
use super::values::Value;
use super::websocket::{self, KeyAnswer};
use broker_protocol::CallId;
use broker_protocol::gateway::{Attach, CredentialVerdict, RequestRule};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderMap, HeaderValue, SET_COOKIE,
    TRANSFER_ENCODING, UPGRADE, WWW_AUTHENTICATE,
};
use hyper::http::request::Parts;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use orchestrator_effects::RequestedUse;
use orchestrator_http::written::is_encoded;
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The exchange of one connection of a program with its host.
pub(super) struct Exchange {
    pub session: Rc<CredentialSession>,
    pub host: Rc<CalledHost>,
    pub(crate) upstream: Rc<Upstream>,
    pub scheme: Scheme,
    /// The call whose programs have connected, if a client waits for it.
    pub call: CallId,
    pub(crate) activity: Arc<Activity>,
    pub(crate) tasks: Tasks,
    /// Whether the request that is under way may make the connection a WebSocket: then its end for HTTP is no end.
    pub(crate) is_upgrading: Cell<bool>,
    /// Set before the answer by which the connection becomes a WebSocket.
    pub(crate) upgraded: Arc<AtomicBool>,
    /// Told when that WebSocket has ended.
    pub websocket: RefCell<Option<oneshot::Receiver<()>>>,
}

/// The protocol to which a request may switch its connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ProtocolSwitch {
    None,
    WebSocket(KeyAnswer),
}

/// The rules that ask about a request, with their numbers.
pub(super) type AskingRules<'r> = Vec<&'r (u16, RequestRule)>;

/// A credential on its way into a request.
struct AttachedCredential {
    attachment: Attachment,
    value: Rc<Value>,
}

impl Exchange {
    /// Answers one request.
    ///
    /// # Errors
    /// Never.
    pub(super) async fn answer(
        self: Rc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<DecryptedAnswer>, Infallible> {
        Ok(self.carry(request).await.unwrap_or_else(|refusal| {
            let refusal = self.without_values(refusal);
            // Before the program hears of it, so that its command cannot end earlier.
            self.host.tell(&refusal);
            refused(&refusal)
        }))
    }

    /// Our own words may repeat some of the host's.
    fn without_values(&self, refusal: RequestRefusal) -> RequestRefusal {
        match self.host.needles().are_in(refusal.text().as_bytes()) {
            true => RequestRefusal::Unanswered {
                place: self.host.place(),
                why: "its words contain the value of a credential".into(),
            },
            false => refusal,
        }
    }

    async fn carry(
        &self,
        mut request: Request<Incoming>,
    ) -> Result<Response<DecryptedAnswer>, RequestRefusal> {
        let program = hyper::upgrade::on(&mut request);
        let (mut head, body) = request.into_parts();
        let (asking, mut decision) = match self.admit(&head) {
            Ok(admitted) => admitted,
            Err(refusal) => {
                self.pass_over(&head, body);
                return Err(refusal);
            }
        };
        let body = self.allowed(asking, &decision, &head, body).await?;
        if let Some(credential) = decision.login {
            return self.log_in(credential, head, body).await;
        }
        let attach = decision.attach.as_mut();
        let (body, _held) = self.gathered(attach, &head, body).await?;
        let switch = self.switch(&head, &decision)?;
        let is_http = switch == ProtocolSwitch::None;
        if !is_http && !body.is_end_stream() {
            // The host may not switch, and then it is as any other body.
            return Err(RequestRefusal::Malformed("a body before a WebSocket"));
        }
        self.prepare(&mut head, switch)?;
        let is_unmeasured = body.size_hint().exact().is_none() && !body.is_end_stream();
        if is_http
            && is_unmeasured
            && self.upstream.protocol() == Protocol::Http1
            && !head.headers.contains_key(CONTENT_LENGTH)
        {
            // The client of HTTP/1.1 drops the body of a `GET` that says nothing about it.
            let chunked = HeaderValue::from_static("chunked");
            head.headers.insert(TRANSFER_ENCODING, chunked);
        }
        let attached = match decision.attach {
            Some(attachment) => Some(self.attached(attachment, &head.method).await?),
            None => None,
        };
        let method = head.method.clone();
        self.is_upgrading.set(!is_http);
        let response = self.send(head, body, attached.as_ref()).await?;
        let credential = attached.map(|attached| attached.attachment.credential);
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return self.upgrade(response, program, (credential, &method), switch);
        }
        self.is_upgrading.set(false);
        self.searched(response, (credential, &method))
    }

    /// Decides on a request by its head: returns the rules that ask about it, and its credential.
    fn admit(&self, head: &Parts) -> Result<(AskingRules<'_>, AttachDecision), RequestRefusal> {
        head::check(head, self.at(), self.scheme)?;
        Ok((self.judge(head)?, self.decide(head)?))
    }

    /// Reads a body that goes nowhere: a program that still writes when its connection ends does not read why it was refused.
    pub(super) fn pass_over<B>(&self, head: &Parts, mut body: B)
    where
        B: Body<Data = Bytes> + Unpin + 'static,
    {
        // This one waits for a word before it sends.
        if body.is_end_stream() || head.headers.contains_key(EXPECT) {
            return;
        }
        self.tasks.spawn(async move {
            let mut left = PASSED_OVER;
            let whole = async {
                while let Some(Ok(frame)) = body.frame().await {
                    let length = frame.data_ref().map_or(0, |data| data.len());
                    match left.checked_sub(length) {
                        Some(less) => left = less,
                        None => return,
                    }
                }
            };
            let _ = timeout(PASSING_OVER, whole).await;
        });
    }

    fn at(&self) -> (&str, u16) {
        (&self.host.host, self.host.port)
    }

    /// Whether the rules let the request go to the host at all, and which of them ask about it.
    fn judge(&self, head: &Parts) -> Result<AskingRules<'_>, RequestRefusal> {
        let place = self.host.place();
        let wanted = RequestedUse::new(&place, head.method.as_str(), &head.uri, &head.headers);
        self.host.rules.judge(&wanted, self.host.port)
    }

    fn decide(&self, head: &Parts) -> Result<AttachDecision, RequestRefusal> {
        if self.scheme == Scheme::Http {
            // A credential is never used without TLS.
            return Ok(AttachDecision::default());
        }
        let place = self.host.place();
        let credentials = HostCredentials {
            all: &self.session.credentials,
            here: &self.host.credentials,
            place: &place,
        };
        let method = head.method.as_str();
        let decision = credentials.decide(head).map_err(|(credential, refusal)| {
            self.host
                .count(credential, method, CredentialVerdict::Refused);
            *refusal
        })?;
        for &credential in &decision.passed {
            self.host
                .count(credential, method, CredentialVerdict::Passed);
        }
        Ok(decision)
    }

    /// The protocol to which the request may switch. Frames are not looked at, so only a use may.
    fn switch(
        &self,
        head: &Parts,
        decision: &AttachDecision,
    ) -> Result<ProtocolSwitch, RequestRefusal> {
        if !head::is_websocket(&head.headers) {
            // Other protocols a server may ignore, and then the request is as any other.
            return Ok(ProtocolSwitch::None);
        }
        // A rule has named it, or a use has to.
        if !decision.is_use && self.host.rules.is_empty() {
            return Err(RequestRefusal::Upgrade {
                place: self.host.place(),
                path: head.uri.path().chars().take(256).collect(),
            });
        }
        // HTTP/1.0 has none, and HTTP/2 asks for one otherwise.
        if head.version != Version::HTTP_11 {
            return Ok(ProtocolSwitch::None);
        }
        let accept = KeyAnswer::of(head).ok_or(RequestRefusal::Malformed(
            "a WebSocket that is no GET with one Sec-WebSocket-Key",
        ))?;
        Ok(ProtocolSwitch::WebSocket(accept))
    }

    /// The protocol by which the request goes to the host.
    fn protocol(&self, switch: ProtocolSwitch) -> Protocol {
        match switch {
            ProtocolSwitch::None => self.upstream.protocol(),
            ProtocolSwitch::WebSocket(_) => Protocol::Http1,
        }
    }

    /// The head as the host gets it, but for the credential.
    pub(super) fn prepare(
        &self,
        head: &mut Parts,
        switch: ProtocolSwitch,
    ) -> Result<(), RequestRefusal> {
        head::strip(&mut head.headers);
        if !self.host.credentials.is_empty() {
            head::ask_for_plain(&mut head.headers);
        }
        let authority = head::authority(self.at(), self.scheme);
        let path = head
            .uri
            .path_and_query()
            .map_or("/", |path| path.as_str())
            .to_owned();
        let malformed = |_| RequestRefusal::Malformed("a path that cannot be sent on");
        head.headers.remove(HOST);
        match self.protocol(switch) {
            Protocol::Http1 => {
                head.uri = path.parse::<Uri>().map_err(|_| malformed(()))?;
                head.version = Version::HTTP_11;
                let host = HeaderValue::from_str(&authority).map_err(|_| malformed(()))?;
                head.headers.insert(HOST, host);
                join_cookies(&mut head.headers);
            }
            Protocol::Http2 => {
                let uri = Uri::builder().scheme("https").authority(authority);
                head.uri = uri
                    .path_and_query(path)
                    .build()
                    .map_err(|_| malformed(()))?;
                head.version = Version::HTTP_2;
            }
        }
        if switch != ProtocolSwitch::None {
            let (name, value) = (CONNECTION, HeaderValue::from_static("Upgrade"));
            head.headers.insert(name, value);
            let value = HeaderValue::from_static("websocket");
            head.headers.insert(UPGRADE, value);
            // Compressed frames could not be searched.
            head.headers.remove("sec-websocket-extensions");
        }
        Ok(())
    }

    async fn attached(
        &self,
        attachment: Attachment,
        method: &Method,
    ) -> Result<AttachedCredential, RequestRefusal> {
        let credential = attachment.credential;
        let value = self.value(credential, method).await?;
        let value = match attachment.sealed() {
            Some(text) => self.opened(credential, &value, text).inspect_err(|_| {
                let verdict = CredentialVerdict::Refused;
                self.host.count(credential, method.as_str(), verdict);
            })?,
            None => value,
        };
        let verdict = attachment.verdict;
        self.host.record(credential, method.as_str(), verdict).await;
        Ok(AttachedCredential { attachment, value })
    }

    /// The value of a credential, of which a request by `method` has need.
    pub(super) async fn value(
        &self,
        credential: u16,
        method: &Method,
    ) -> Result<Rc<Value>, RequestRefusal> {
        let place = self.host.place();
        let value = self.session.values.get_for(credential, &place);
        value.await.map_err(|why| {
            let verdict = CredentialVerdict::NoValue;
            self.host.count(credential, method.as_str(), verdict);
            let credential = self.session.name(credential).to_owned();
            RequestRefusal::NoValue { credential, why }
        })
    }

    /// Sends the request, and if the host refuses the value, asks for a new one: a read is sent again with it.
    async fn send(
        &self,
        head: Parts,
        body: RequestBody,
        attached: Option<&AttachedCredential>,
    ) -> Result<Response<Incoming>, RequestRefusal> {
        let is_read = matches!(head.method, Method::GET | Method::HEAD) && body.is_end_stream();
        let again = (is_read && attached.is_some()).then(|| head.clone());
        let value = attached.map(|attached| (&attached.attachment, &*attached.value));
        let body = if body.is_end_stream() && is_read {
            RequestBody::Empty
        } else {
            body
        };
        let response = self.send_once(head, body, value).await?;
        // Of a refused token the program gets a new one.
        let renewable = attached.filter(|one| one.attachment.sealed().is_none());
        let Some(attached) = renewable.filter(|_| is_stale(&response)) else {
            return Ok(response);
        };
        let (values, credential) = (&self.session.values, attached.attachment.credential);
        values.refused_at(credential, &attached.value, self.host.place());
        let Some(again) = again else {
            values.refused(credential, &attached.value);
            return Ok(response);
        };
        let Some(next) = values.after(credential, &attached.value).await else {
            return Ok(response);
        };
        // The connection is free for the next request when this answer was read.
        let read = Limited::new(response.into_body(), REFUSAL_BODY).collect();
        let _ = timeout(self.session.times.begin, read).await;
        let value = Some((&attached.attachment, &*next));
        self.send_once(again, RequestBody::Empty, value).await
    }

    pub(super) async fn send_once(
        &self,
        mut head: Parts,
        body: RequestBody,
        value: Option<(&Attachment, &Value)>,
    ) -> Result<Response<Incoming>, RequestRefusal> {
        if let Some((attachment, value)) = value {
            attachment
                .put(&mut head, value)
                .ok_or(RequestRefusal::Malformed(
                    "no header can hold the credential",
                ))?;
        }
        let method = head.method.clone();
        let sharing = if head.headers.contains_key(UPGRADE) {
            Sharing::Switching
        } else if value.is_some() || !body.is_end_stream() {
            Sharing::Alone
        } else {
            Sharing::WithOthers
        };
        let both = (self.upstream.protocol(), sharing);
        let is_last = both == (Protocol::Http1, Sharing::Alone);
        if is_last {
            close(&mut head.headers);
        }
        let request = Request::from_parts(head, body);
        let place = || self.host.place();
        // Whether it has the placeholder or not: a host may repeat what it was sent before this gateway began.
        self.sent_values()
            .for_each(|one| self.session.values.want(one));
        let mut sent = self.upstream.send(request, sharing).await;
        if let Ok(response) = &mut sent
            && is_last
        {
            // It is of the host's connection, and the program's goes on.
            response.headers_mut().remove(CONNECTION);
        }
        for credential in self.sent_values() {
            if self.session.values.is_newly_missed(credential).await {
                let verdict = CredentialVerdict::NoValue;
                self.host.count(credential, method.as_str(), verdict);
            }
        }
        sent.map_err(|error| match error {
            SendError::Unreachable(DialFault::Other(why)) => RequestRefusal::Host {
                place: place(),
                why,
            },
            SendError::Unreachable(DialFault::Refused(why)) => RequestRefusal::HostTls {
                place: place(),
                why,
            },
            SendError::Body => RequestRefusal::BrokenBody { place: place() },
            SendError::Unanswered(why) => RequestRefusal::Unanswered {
                place: place(),
                why,
            },
        })
    }

    /// The credentials of this host whose values are sent to it. The key of logins is not.
    fn sent_values(&self) -> impl Iterator<Item = u16> {
        let here = self.host.credentials.iter().copied();
        here.filter(|&credential| {
            let spec = self.session.credentials.get(usize::from(credential));
            spec.is_some_and(|spec| !matches!(spec.attach, Attach::Login(_)))
        })
    }

    fn searched(
        &self,
        response: Response<Incoming>,
        (credential, method): (Option<u16>, &Method),
    ) -> Result<Response<DecryptedAnswer>, RequestRefusal> {
        let (mut head, body) = response.into_parts();
        if let Some(credential) = credential
            && !body.is_end_stream()
            && is_encoded(&head.headers)
        {
            self.host
                .count(credential, method.as_str(), CredentialVerdict::Refused);
            return Err(RequestRefusal::Encoded {
                place: self.host.place(),
            });
        }
        let is_last = lists_close(&head.headers);
        if credential.is_some() {
            // By a session of the host's the value would serve without being sent, for what no use names.
            head.headers.remove(SET_COOKIE);
        }
        self.clean(&mut head);
        if is_last {
            close(&mut head.headers);
        }
        if body.size_hint().exact() == Some(0) && method != Method::HEAD {
            // Of an answer such as 304, whose length is that of another one.
            head.headers.remove(CONTENT_LENGTH);
        }
        let of = (credential, method.as_str().to_owned());
        let body = Searched::new(body, self.host.clone(), of);
        Ok(Response::from_parts(head, DecryptedAnswer::Host(body)))
    }

    pub(super) fn clean(&self, head: &mut hyper::http::response::Parts) {
        head::strip(&mut head.headers);
        self.host.needles().clean(&mut head.headers);
        // Words of the host that nothing searches.
        head.extensions.remove::<hyper::ext::ReasonPhrase>();
    }

    fn upgrade(
        &self,
        mut response: Response<Incoming>,
        program: OnUpgrade,
        (credential, method): (Option<u16>, &Method),
        switch: ProtocolSwitch,
    ) -> Result<Response<DecryptedAnswer>, RequestRefusal> {
        let is_asked = match switch {
            ProtocolSwitch::None => false,
            ProtocolSwitch::WebSocket(accept) => accept.is_in(response.headers()),
        };
        if !is_asked || !head::is_websocket(response.headers()) {
            return Err(RequestRefusal::Unanswered {
                place: self.host.place(),
                why: "it switched to a protocol that it was not asked for".into(),
            });
        }
        // None was asked for, and compressed frames could not be searched.
        let headers = response.headers();
        if headers.contains_key("sec-websocket-extensions") || is_encoded(headers) {
            return Err(RequestRefusal::Unanswered {
                place: self.host.place(),
                why: "it has chosen an encoding or extensions of WebSocket, and was asked for none"
                    .into(),
            });
        }
        let host = hyper::upgrade::on(&mut response);
        let (mut head, _) = response.into_parts();
        self.clean(&mut head);
        for (name, value) in [(CONNECTION, "Upgrade"), (UPGRADE, "websocket")] {
            head.headers.insert(name, HeaderValue::from_static(value));
        }
        self.upgraded.store(true, Ordering::Relaxed);
        let (ended, wait) = oneshot::channel();
        *self.websocket.borrow_mut() = Some(wait);
        let place = self.host.clone();
        let method = method.as_str().to_owned();
        self.tasks.spawn(async move {
            if let (Ok(program), Ok(host)) = (program.await, host.await)
                && websocket::carry(program, host, &place).await.is_err()
                && let Some(credential) = credential.or(place.credentials.first().copied())
            {
                place.count(credential, &method, CredentialVerdict::Echoed);
            }
            let _ = ended.send(());
        });
        Ok(Response::from_parts(head, DecryptedAnswer::Text(None)))
    }
}

/// Whether the host says that the value is none, and not that another proof is missing beside it.
fn is_stale(response: &Response<Incoming>) -> bool {
    let wants_otp = response
        .headers()
        .get_all(WWW_AUTHENTICATE)
        .iter()
        .any(|value| value.as_bytes().to_ascii_lowercase().starts_with(b"otp"));
    response.status() == StatusCode::UNAUTHORIZED
        && !wants_otp
        && !response.headers().contains_key("x-github-otp")
}

/// One `Cookie`: HTTP/2 sends each in a header of its own, and a server of HTTP/1.1 may read the first one only.
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<_> = headers
        .get_all(COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}

/// Makes a message the last one of its connection.
fn close(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
}

fn lists_close(headers: &HeaderMap) -> bool {
    headers.get_all(CONNECTION).iter().any(|value| {
        value.to_str().is_ok_and(|value| {
            value
                .split(',')
                .any(|one| one.trim().eq_ignore_ascii_case("close"))
        })
    })
}
