//! The question whether a call may run, and its answer.

use broker_protocol::{Challenge, Extent, GrantFault, Wants, limit};
use orchestrator_engine::ApprovalAnswer;
use orchestrator_text::coverage::for_session;
#[cfg(feature = "schema")]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
#[cfg(feature = "schema")]
use std::borrow::Cow;
use thiserror::Error;

/// The question whether a call may run. Which call it is, and its input, stand beside it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequest {
    /// The SHA-256 of what is asked about.
    pub digest: String,
    pub rule: String,
    pub why: String,
    pub risk: &'static str,
    /// Seconds until the call is denied.
    pub expires_s: u32,
    /// `relay`, or `separate` where only `lazaret approve` answers.
    pub channel: &'static str,
    /// What the answer `session` allows: calls under the `rule`, this `call` again, what it `wants`, requests like the `request`
    /// of the call's program, or nothing beyond `once` (of the call, or with `request_once` of such a request).
    pub session: &'static str,
    /// That in words; absent for `once`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_session: Option<String>,
    /// The programs that the commands may name which the answer `session` allows, if that is `rule` and the tool runs commands.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<String>,
    /// What a yes additionally opens. Only here does the answer `minutes` differ from `once`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wants: Option<Wanted>,
    /// Why the answer before was rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_taken: Option<&'static str>,
}

/// What a call wants beyond what its session has; each kind only if not empty.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Wanted {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub connect: Vec<u16>,
}

impl ApprovalRequest {
    /// The question about a call of `tool`, asked again if an answer was `rejected`.
    pub fn new(challenge: &Challenge, tool: &str, rejected: Option<GrantFault>) -> Self {
        let Challenge {
            digest,
            rule,
            why,
            risk,
            expires_s,
            channel,
            covers,
            programs,
            wants,
            nonce: _,
        } = challenge;
        let Wants {
            hosts,
            read,
            write,
            connect,
        } = wants.clone();
        let wanted = Wanted {
            hosts,
            read,
            write,
            connect,
        };
        Self {
            digest: digest.to_string(),
            rule: rule.clone(),
            why: why.clone(),
            risk: risk.name(),
            expires_s: *expires_s,
            channel: channel.name(),
            session: covers.name(),
            for_session: for_session(challenge, tool),
            programs: programs.clone(),
            wants: (!wants.is_empty()).then_some(wanted),
            not_taken: rejected.map(GrantFault::name),
        }
    }
}

/// The answer to an [`ApprovalRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Only this call may run.
    Once,
    /// This call may run, and for the rest of the session also what `session` of the question names.
    Session,
    /// This call may run, and what it wants is open to every call for so many minutes. If it wants nothing, the same as `once`.
    Minutes(Minutes),
    /// It may not run.
    No,
    /// It may not run, and what made the call ends.
    NoAndStop,
}

/// 1 to 1440 minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u16")]
pub struct Minutes(u16);

/// A number of minutes that no lease lasts.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("1 to {} minutes", limit::LEASE_MINUTES)]
pub struct OutOfRange;

impl TryFrom<u16> for Minutes {
    type Error = OutOfRange;

    fn try_from(minutes: u16) -> Result<Self, OutOfRange> {
        match (1..=limit::LEASE_MINUTES).contains(&minutes) {
            true => Ok(Self(minutes)),
            false => Err(OutOfRange),
        }
    }
}

/// By hand: of the derived one, errors could not name the words.
#[cfg(feature = "schema")]
impl JsonSchema for Answer {
    fn schema_name() -> Cow<'static, str> {
        "Answer".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let minutes =
            json_schema!({ "type": "integer", "minimum": 1, "maximum": limit::LEASE_MINUTES });
        json_schema!({
            "anyOf": [
                { "enum": ["once", "session", "no", "no_and_stop"] },
                {
                    "type": "object",
                    "properties": { "minutes": minutes },
                    "required": ["minutes"],
                    "additionalProperties": false,
                },
            ],
        })
    }
}

/// The kinds of answers, by which a front end names those that it offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerName {
    Once,
    Session,
    Minutes,
    No,
    NoAndStop,
}

impl AnswerName {
    pub fn name(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Session => "session",
            Self::Minutes => "minutes",
            Self::No => "no",
            Self::NoAndStop => "no_and_stop",
        }
    }
}

/// An answer that this front end does not offer.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("`{}` is no answer here: {}", given.name(), offered.iter().map(|one| one.name()).collect::<Vec<_>>().join(", "))]
pub struct NotOffered {
    pub given: AnswerName,
    pub offered: &'static [AnswerName],
}

impl Answer {
    pub fn name(self) -> AnswerName {
        match self {
            Self::Once => AnswerName::Once,
            Self::Session => AnswerName::Session,
            Self::Minutes(_) => AnswerName::Minutes,
            Self::No => AnswerName::No,
            Self::NoAndStop => AnswerName::NoAndStop,
        }
    }

    /// The same answer.
    ///
    /// # Errors
    /// If it is none of those `offered`.
    pub fn among(self, offered: &'static [AnswerName]) -> Result<Self, NotOffered> {
        match offered.contains(&self.name()) {
            true => Ok(self),
            false => Err(NotOffered {
                given: self.name(),
                offered,
            }),
        }
    }

    /// Whether what made the call ends too.
    pub fn stops(self) -> bool {
        self == Self::NoAndStop
    }
}

impl From<Answer> for ApprovalAnswer {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Once => Self::Yes(Extent::Once),
            Answer::Session => Self::Yes(Extent::Session),
            Answer::Minutes(Minutes(minutes)) => Self::Yes(Extent::Minutes(minutes)),
            Answer::No | Answer::NoAndStop => Self::No,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    const MOST: u16 = limit::LEASE_MINUTES;

    #[test]
    fn each_answer_has_one_spelling() {
        let minutes = |minutes| Answer::Minutes(Minutes(minutes));
        for (spelled, answer) in [
            (json!("once"), Answer::Once),
            (json!("session"), Answer::Session),
            (json!({"minutes": 1}), minutes(1)),
            (json!({"minutes": MOST}), minutes(MOST)),
            (json!("no"), Answer::No),
            (json!("no_and_stop"), Answer::NoAndStop),
        ] {
            assert_eq!(from_value::<Answer>(spelled.clone()).unwrap(), answer);
            assert_eq!(json!(answer), spelled);
        }
        for wrong in [
            json!({"minutes": 0}),
            json!({"minutes": MOST + 1}),
            json!({"minutes": 70_000}),
            json!({"minutes": -1}),
            json!({"minutes": "1"}),
            json!({"minutes": 1, "once": true}),
            json!("minutes"),
            json!("yes"),
            json!("Once"),
            json!(true),
            json!(null),
            json!([]),
        ] {
            assert!(from_value::<Answer>(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_what_says_yes_is_a_yes() {
        let yes = |answer| matches!(ApprovalAnswer::from(answer), ApprovalAnswer::Yes(_));
        assert!([Answer::Once, Answer::Session].into_iter().all(yes));
        assert!(![Answer::No, Answer::NoAndStop].into_iter().any(yes));
        let ten = Answer::Minutes(Minutes(10));
        assert_eq!(
            ApprovalAnswer::from(ten),
            ApprovalAnswer::Yes(Extent::Minutes(10))
        );
    }

    #[test]
    fn an_answer_that_is_not_offered_is_refused_with_those_that_are() {
        const OFFERED: &[AnswerName] = &[AnswerName::Once, AnswerName::No];
        assert_eq!(Answer::Once.among(OFFERED), Ok(Answer::Once));
        let refused = Answer::NoAndStop.among(OFFERED).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "`no_and_stop` is no answer here: once, no"
        );
    }

    #[test]
    fn names_are_those_of_the_wire() {
        for answer in [Answer::Once, Answer::Session, Answer::No, Answer::NoAndStop] {
            assert_eq!(json!(answer), Value::from(answer.name().name()));
        }
    }
}
