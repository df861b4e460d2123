//! Requests to the token endpoints of logins: the program's sealed token becomes the token, and those of the answer are sealed. Both
//! are read as a whole, and nothing of an answer passes that was not understood.

use super::answer::DecryptedAnswer;
use super::exchange::{Exchange, ProtocolSwitch};
use super::held_body::HeldBody;
use super::refusal::RequestRefusal;
use super::upstream::RequestBody;
use super::values::Value;
use broker_protocol::gateway::{Attach, CredentialSpec, CredentialVerdict, LoginSpec};
use http_body_util::{BodyExt, Limited};
use hyper::Response;
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::CONTENT_LENGTH;
use hyper::http::request::Parts;
use orchestrator_http::written::is_encoded;
use orchestrator_logins::{
    CapturedAnswer, LOGIN_BODY, LoginFault, TokenKey, TokenRole, capture, passed_headers,
    read_request,
};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::timeout;
use zeroize::Zeroizing;

impl Exchange {
    /// Sends a request to a token endpoint, and returns the answer without its tokens.
    ///
    /// # Errors
    /// There is no key, or the request or its answer is not one that can be read.
    pub(super) async fn log_in(
        &self,
        credential: u16,
        mut head: Parts,
        body: RequestBody,
    ) -> Result<Response<DecryptedAnswer>, RequestRefusal> {
        let (spec, login) = self.login_of(credential)?;
        let refused = |why| {
            let verdict = CredentialVerdict::Refused;
            self.host.count(credential, head.method.as_str(), verdict);
            RequestRefusal::Login {
                credential: spec.name.clone(),
                place: self.host.place(),
                why,
            }
        };
        let secret = self.value(credential, &head.method).await?;
        let key = TokenKey::new(&secret.bytes, &spec.placeholder);
        let key = key.ok_or_else(|| refused(LoginFault::Sealed))?;
        let body = whole(body, self.session.times.begin)
            .await
            .map_err(refused)?;
        let request = read_request(&head.headers, &body, (&key, &spec.placeholder));
        let request = request.map_err(refused)?;
        for token in &request.tokens {
            self.session.learn_token(credential, token);
        }
        if !request.tokens.is_empty() {
            let (method, verdict) = (head.method.as_str(), CredentialVerdict::Used);
            self.host.record(credential, method, verdict).await;
        }
        self.prepare(&mut head, ProtocolSwitch::None)?;
        head.headers.remove(CONTENT_LENGTH);
        let method = head.method.clone();
        let body = HeldBody::whole(Bytes::copy_from_slice(&request.body));
        let response = self.send_once(head, RequestBody::Held(body), None).await?;
        let answer = self.captured(response, (credential, &key, login)).await;
        answer.inspect_err(|_| {
            let verdict = CredentialVerdict::Refused;
            self.host.count(credential, method.as_str(), verdict);
        })
    }

    /// The token for which a text stands.
    ///
    /// # Errors
    /// The text was not encrypted with this key for this purpose.
    pub(super) fn opened(
        &self,
        credential: u16,
        secret: &Value,
        text: &[u8],
    ) -> Result<Rc<Value>, RequestRefusal> {
        let sealed = || RequestRefusal::Sealed {
            credential: self.session.name(credential).to_owned(),
        };
        let (spec, _) = self.login_of(credential)?;
        let key = TokenKey::new(&secret.bytes, &spec.placeholder).ok_or_else(sealed)?;
        let token = key.open(text, TokenRole::Access).map_err(|_| sealed())?;
        self.session
            .learn_token(credential, &token)
            .ok_or_else(sealed)
    }

    fn login_of(&self, credential: u16) -> Result<(&CredentialSpec, &LoginSpec), RequestRefusal> {
        let spec = self.session.credentials.get(usize::from(credential));
        match spec.map(|spec| (spec, &spec.attach)) {
            Some((spec, Attach::Login(login))) => Ok((spec, login)),
            Some((
                _,
                Attach::Bearer
                | Attach::Basic { .. }
                | Attach::Any { .. }
                | Attach::Header { .. }
                | Attach::Aws,
            ))
            | None => Err(RequestRefusal::Unsupported("this credential has no logins")),
        }
    }

    /// The answer of a token endpoint as the program gets it.
    async fn captured(
        &self,
        response: Response<Incoming>,
        (credential, key, login): (u16, &TokenKey, &LoginSpec),
    ) -> Result<Response<DecryptedAnswer>, RequestRefusal> {
        let (head, body) = response.into_parts();
        let status = head.status;
        let refused = |why| RequestRefusal::LoginAnswer {
            place: self.host.place(),
            status: status.as_u16(),
            why,
        };
        if is_encoded(&head.headers) {
            return Err(refused(LoginFault::Encoded));
        }
        let body = whole(body, self.session.times.begin)
            .await
            .map_err(refused)?;
        if status.is_informational() || status.is_redirection() {
            return Err(refused(LoginFault::Type));
        }
        let CapturedAnswer { body, tokens } = capture(&body, (key, login)).map_err(refused)?;
        for token in &tokens {
            self.session.learn_token(credential, token);
        }
        let needles = self.host.needles();
        // In a member that passes, a token would be shown after all.
        if needles.are_in(&body) {
            return Err(refused(LoginFault::Seen));
        }
        if !tokens.is_empty() {
            let verdict = CredentialVerdict::Captured;
            self.host.count(credential, "POST", verdict);
        }
        let mut headers = passed_headers(&head.headers);
        needles.clean(&mut headers);
        let mut answer = Response::new(DecryptedAnswer::Text(Some(body.into())));
        *answer.status_mut() = status;
        *answer.headers_mut() = headers;
        Ok(answer)
    }
}

/// The body of a login's request or answer as a whole, within `time` and the limit of size.
///
/// # Errors
/// It is too long, or does not arrive.
pub(crate) async fn whole<B>(body: B, time: Duration) -> Result<Zeroizing<Vec<u8>>, LoginFault>
where
    B: Body<Data = Bytes>,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let read = timeout(time, Limited::new(body, LOGIN_BODY).collect()).await;
    let read = read.map_err(|_| LoginFault::Unread)?;
    let read = read.map_err(
        |error| match error.is::<http_body_util::LengthLimitError>() {
            true => LoginFault::Long,
            false => LoginFault::Unread,
        },
    )?;
    Ok(Zeroizing::new(read.to_bytes().to_vec()))
}
