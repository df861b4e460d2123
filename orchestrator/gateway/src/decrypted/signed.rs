//! A request that is signed with a placeholder of AWS: its body is read where its digest or its operation has to be known, and its uses
//! are looked at.

use super::attach::Attachment;
use super::exchange::Exchange;
use super::held_body::BodyBeginning;
use super::questions::Counted;
use super::refusal::RequestRefusal;
use super::upstream::RequestBody;
use broker_protocol::gateway::{CredentialSpec, CredentialVerdict};
use hyper::header::HeaderMap;
use hyper::http::request::Parts;
use orchestrator_aws::{self as aws, CopySource, Operations, SIGNED_BODY, SignFault, SigningScope};
use orchestrator_effects::RequestedUse;
use orchestrator_http::written::is_encoded;

/// A body on its way, and its bytes among those that are held.
type Gathered<'q> = (RequestBody, Vec<Counted<'q>>);

/// Why a body was not gathered.
enum GatherError {
    Fault(SignFault),
    Broken,
}

impl Exchange {
    /// Prepares a signature: what stands for the body in it, if a use names the request. The body of any other request is as it was.
    ///
    /// # Errors
    /// It is refused, or its body breaks off.
    pub(crate) async fn gathered(
        &self,
        attach: Option<&mut Attachment>,
        head: &Parts,
        body: RequestBody,
    ) -> Result<Gathered<'_>, RequestRefusal> {
        let Some(attachment) = attach else {
            return Ok((body, vec![]));
        };
        let Some(scope) = attachment.scope().cloned() else {
            return Ok((body, vec![]));
        };
        let credential = attachment.credential;
        let Some(spec) = self.session.credentials.get(usize::from(credential)) else {
            return Ok((body, vec![]));
        };
        let refused = |refusal: RequestRefusal| {
            let verdict = CredentialVerdict::Refused;
            self.host.count(credential, head.method.as_str(), verdict);
            refusal
        };
        let unsigned = |why| {
            refused(RequestRefusal::NotSigned {
                credential: spec.name.clone(),
                place: self.host.place(),
                why,
            })
        };
        let stated = aws::stated_payload(&head.headers).map_err(unsigned)?;
        if stated.is_some() && !is_told_by_bodies(spec, &scope) {
            self.judge_signed(spec, &scope, head, &[])
                .map_err(refused)?;
            attachment.state(stated.unwrap_or_default());
            return Ok((body, vec![]));
        }
        if is_told_by_bodies(spec, &scope) && is_encoded(&head.headers) {
            return Err(unsigned(SignFault::Encoded));
        }
        let whole = self.read_whole(body).await.map_err(|error| match error {
            GatherError::Fault(why) => unsigned(why),
            GatherError::Broken => RequestRefusal::BrokenBody {
                place: self.host.place(),
            },
        })?;
        self.judge_signed(spec, &scope, head, &whole.bytes)
            .map_err(refused)?;
        attachment.state(stated.unwrap_or_else(|| aws::digest(&whole.bytes)));
        let (body, held) = whole.into_body(None);
        Ok((RequestBody::Held(body), held))
    }

    fn judge_signed(
        &self,
        spec: &CredentialSpec,
        scope: &SigningScope,
        head: &Parts,
        body: &[u8],
    ) -> Result<(), RequestRefusal> {
        let to = (self.host.host.as_str(), head);
        let operations = Operations::of(&scope.service, to, body);
        let place = self.host.place();
        let method = head.method.as_str();
        let wanted = RequestedUse::new(&place, method, &head.uri, &head.headers)
            .signed_for(&scope.service, &operations);
        let path: String = head.uri.path().chars().take(256).collect();
        let named = format!("{path} ({})", described(scope, &operations));
        if let Some(by) = wanted.refused(&spec.uses) {
            return Err(RequestRefusal::UseRefused {
                why: by.why.clone(),
                credential: spec.name.clone(),
                method: method.to_owned(),
                path: named,
                place,
            });
        }
        let unsigned = |why| {
            Err(RequestRefusal::NotSigned {
                credential: spec.name.clone(),
                place: place.clone(),
                why,
            })
        };
        match wanted.fits(&spec.uses) {
            Some(_) if self.may_copy(spec, scope, head) => Ok(()),
            Some(_) => unsigned(SignFault::Copied),
            None => unsigned(SignFault::NoUse(format!("{method} {named}"))),
        }
    }

    /// Whether commands may read what the request copies, if it copies something: its answer or its object shows that to them.
    fn may_copy(&self, spec: &CredentialSpec, scope: &SigningScope, head: &Parts) -> bool {
        let place = self.host.place();
        if !aws::is_s3(&scope.service) {
            return true;
        }
        let path = match aws::copy_source(&place, head) {
            None => return true,
            Some(CopySource::Elsewhere) => return false,
            Some(CopySource::SameBucket(path)) => path,
        };
        let none = Operations {
            names: vec![],
            is_known: true,
        };
        path.parse().is_ok_and(|uri| {
            let reads = RequestedUse::new(&place, "GET", &uri, &HeaderMap::new())
                .signed_for(&scope.service, &none);
            reads.refused(&spec.uses).is_none() && reads.fits(&spec.uses).is_some()
        })
    }

    async fn read_whole(&self, mut body: RequestBody) -> Result<BodyBeginning<'_>, GatherError> {
        let mut whole = BodyBeginning::default();
        while !whole.is_whole {
            let more = whole.more(&mut body).await;
            let Some(data) = more.map_err(|_| GatherError::Broken)? else {
                continue;
            };
            if whole.bytes.len() + data.len() > SIGNED_BODY {
                return Err(GatherError::Fault(SignFault::Long));
            }
            let held = whole.hold(&self.session.questions, &data);
            held.map_err(|_| GatherError::Fault(SignFault::Crowded))?;
        }
        Ok(whole)
    }
}

/// Whether uses for a service name operations that may stand in bodies.
fn is_told_by_bodies(spec: &CredentialSpec, scope: &SigningScope) -> bool {
    let mut uses = spec.uses.iter();
    !aws::is_s3(&scope.service)
        && uses.any(|one| one.service.as_ref() == Some(&scope.service) && !one.actions.is_empty())
}

/// The service and its operation, for people.
fn described(scope: &SigningScope, operations: &Operations) -> String {
    let service = &scope.service;
    match operations.names.first() {
        Some(name) => format!(
            "{} of {service}",
            name.chars().take(128).collect::<String>()
        ),
        None => format!("service {service}"),
    }
}
