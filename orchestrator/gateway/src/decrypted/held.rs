//! A request that rules ask about: as much of its body is read as says what it changes, the question is asked, and the body goes on from
//! its beginning.

use super::attach::AttachDecision;
use super::exchange::{AskingRules, Exchange};
use super::held_body::BodyBeginning;
use super::questions::Questions;
use super::refusal::RequestRefusal;
use super::rules::beginning;
use super::upstream::RequestBody;
use broker_protocol::gateway::{HeldRequest, RequestEffect};
use broker_protocol::limit;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use orchestrator_effects::{self as effects, BodyKind, Effects, UnreadBody};

impl Exchange {
    /// The body of a request that all rules in `asking` let go on, if somebody allows it soon. Its program would give up before long, so
    /// it is told to try again: the question stays open, and a yes to it is kept.
    ///
    /// # Errors
    /// Nobody has, or what it changes cannot be read.
    pub(super) async fn allowed(
        &self,
        asking: AskingRules<'_>,
        decision: &AttachDecision,
        head: &Parts,
        body: Incoming,
    ) -> Result<RequestBody, RequestRefusal> {
        let Some((_, first)) = asking.first() else {
            return Ok(RequestBody::Program(body));
        };
        let unread = |unread| RequestRefusal::Unread {
            place: self.host.place(),
            method: beginning(head.method.as_str()),
            path: beginning(head.uri.path()),
            at: first.name.clone(),
            unread,
        };
        let questions = &self.session.questions;
        let (effects, body) = read(questions, head, body).await.map_err(unread)?;
        let Some(effects) = effects else {
            return Ok(body);
        };
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        if path.len() > limit::RULE_PATH || head.method.as_str().len() > limit::METHOD {
            return Err(unread(UnreadBody::Long(limit::RULE_PATH)));
        }
        let request = |rule: u16| HeldRequest {
            question: 0,
            call: self.call,
            rule,
            host: self.host.host.clone(),
            port: self.host.port,
            method: head.method.as_str().to_owned(),
            path: path.to_owned(),
            credential: decision.credential(),
            effects: effects.clone(),
        };
        let _held = self.activity.hold();
        let asked = asking.iter().map(|(number, _)| request(*number));
        let Err((at, answer)) = questions.ask_all(asked.collect()).await else {
            return Ok(body);
        };
        self.pass_over(head, body);
        let (_, rule) = asking[at];
        Err(RequestRefusal::NotAllowed {
            place: self.host.place(),
            method: beginning(head.method.as_str()),
            path: beginning(head.uri.path()),
            at: rule.name.clone(),
            why: rule.why.clone(),
            answer,
        })
    }
}

/// Reads what a request changes, and as much of its body as says that; `None` if it changes nothing.
async fn read(
    questions: &Questions,
    head: &Parts,
    mut body: Incoming,
) -> Result<(Option<Vec<RequestEffect>>, RequestBody), UnreadBody> {
    let kind = BodyKind::of(head);
    let Some(most) = kind.read_max() else {
        return Ok((Some(Vec::new()), RequestBody::Program(body)));
    };
    let mut beginning = BodyBeginning::default();
    loop {
        let read = effects::read(kind, head, beginning.read())?;
        let effects = match read {
            Effects::More => {
                // What comes at once may pass the limit: it is no more than the connection holds anyway.
                if beginning.bytes.len() > most {
                    return Err(UnreadBody::Long(most));
                }
                let more = beginning.more(&mut body).await;
                if let Some(data) = more.map_err(|_| UnreadBody::Short)? {
                    beginning.hold(questions, &data)?;
                }
                continue;
            }
            // Of a request without commands nothing may follow that a server could take for some.
            Effects::Nothing if kind == BodyKind::Push && !beginning.is_whole => {
                let more = beginning.more(&mut body).await;
                match more.map_err(|_| UnreadBody::Short)? {
                    Some(data) if !data.is_empty() => return Err(UnreadBody::Push),
                    Some(_) | None => continue,
                }
            }
            Effects::Nothing => None,
            Effects::Some(effects) => Some(effects),
        };
        let (held, _) = beginning.into_body(Some(body));
        return Ok((effects, RequestBody::Held(held)));
    }
}
