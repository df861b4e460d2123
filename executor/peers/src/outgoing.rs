//! Requests of programs that a rule of the policy asks about. The gateway holds them; here they are asked about as calls are, on the same
//! channel, under the call whose program has sent them.
//!
//! The gateway repeats the program's words about a request. The rule is the broker's own.

use broker_protocol::gateway::{
    HeldRequest, HeldSignature, RequestAnswer, RequestEffect, RequestRule, SignaturePurpose,
    SshSpec,
};
use broker_protocol::{CallId, Coverage, Decision, Digest, Effect, Extent, Request, Risk, limit};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// The name of such requests as a tool's, for grants and approvers.
pub const TOOL: &str = "request";
/// Maximum number of questions of a call; further requests are refused.
pub(crate) const QUESTIONS_MAX: u32 = 16;

/// The questions that calls have asked, until they end.
#[derive(Debug, Default)]
pub struct AskedByCalls(BTreeMap<CallId, AskedByCall>);

#[derive(Debug, Default)]
struct AskedByCall {
    count: u32,
    /// The rules, by their places, about which nobody has said yes: they ask no more in this call.
    refused: BTreeSet<u16>,
}

impl AskedByCalls {
    /// Whether a call may have one more question about this rule; it is counted.
    pub fn may_ask(&mut self, call: CallId, rule: u16) -> bool {
        let asked = self.0.entry(call).or_default();
        let may = asked.count < QUESTIONS_MAX && !asked.refused.contains(&rule);
        asked.count += u32::from(may);
        may
    }

    pub fn refuse(&mut self, call: CallId, rule: u16) {
        let asked = self.0.entry(call).or_default();
        asked.refused.insert(rule);
    }

    pub fn end(&mut self, call: CallId) {
        self.0.remove(&call);
    }
}

/// Grants of one request each, for which their programs had not waited. They belong to no call: whoever tries again is another one.
#[derive(Debug, Default)]
pub struct KeptGrants(VecDeque<KeptGrant>);

#[derive(Debug)]
struct KeptGrant {
    request: Digest,
    /// The question that was answered.
    question: (CallId, u32),
    until: Instant,
}

impl KeptGrants {
    /// Keeps a grant for a request with this digest. The oldest makes room for it.
    pub fn add(&mut self, request: Digest, question: (CallId, u32), now: Instant) {
        if self.0.len() >= limit::KEPT_GRANTS {
            self.0.pop_front();
        }
        self.0.push_back(KeptGrant {
            request,
            question,
            until: now + Duration::from_secs(limit::KEPT_GRANT_S.into()),
        });
    }

    pub fn has(&self, request: Digest, now: Instant) -> bool {
        self.position(request, now).is_some()
    }

    /// Uses up the grant for such a request; returns the question by which it was given.
    pub fn take(&mut self, request: Digest, now: Instant) -> Option<(CallId, u32)> {
        let at = self.position(request, now)?;
        self.0.remove(at).map(|kept| kept.question)
    }

    fn position(&self, request: Digest, now: Instant) -> Option<usize> {
        let fits = |kept: &KeptGrant| kept.request == request && now < kept.until;
        self.0.iter().position(fits)
    }
}

/// The first number of rules that ask about signatures; those about requests are below it.
const SIGNATURE_RULES: u16 = 1 << 15;

/// A question about what a program of a running call wants.
#[derive(Debug, PartialEq, Eq)]
pub struct ProgramQuestion {
    pub call: CallId,
    /// The gateway's number for it.
    pub question: u32,
    /// The place of the rule that asks.
    pub rule: u16,
    /// The line of the policy that says so.
    pub name: String,
    /// A yes for the session covers requests of the same scope, or no other.
    pub covers: Coverage,
    pub scope: Digest,
    /// Everything else that is asked about.
    rest: Digest,
    /// Whether a yes is kept for its program's next try: what asks for a signature waits for its answer.
    is_kept: bool,
    pub about: String,
}

impl ProgramQuestion {
    /// About a request that uses the credential of this name, if any.
    pub fn of_request(request: &HeldRequest, rule: &RequestRule, credential: Option<&str>) -> Self {
        let changes = request.effects.iter().map(|effect| &*effect.change);
        Self {
            call: request.call,
            question: request.question,
            rule: request.rule,
            name: rule.name.clone(),
            covers: Coverage::Request,
            scope: scope(request, rule, credential),
            rest: hashed(changes),
            is_kept: true,
            about: described(request, rule, credential),
        }
    }

    /// About a signature of these keys, which the line `name` of the policy asks about. A yes for the session is for logins at the same
    /// host; of a signature for git nobody can say what it is of, so a yes is for this one.
    pub fn of_signature(signature: &HeldSignature, keys: &SshSpec, name: String) -> Self {
        let place = 2 * signature.ssh;
        let (rule, covers, scope) = match &signature.purpose {
            SignaturePurpose::Login { host, port } => {
                let port = port.to_string();
                let parts = ["lazaret ssh login 1", &name, host, &port];
                (place, Coverage::Request, hashed(parts.into_iter()))
            }
            SignaturePurpose::Git => {
                let [call, question] = [signature.call, signature.question.into()];
                let [call, question] = [call, question].map(|number: u64| number.to_string());
                let parts = ["lazaret git signature 1", &name, &call, &question];
                let scope = hashed(parts.into_iter());
                (place + 1, Coverage::RequestOnce, scope)
            }
        };
        Self {
            call: signature.call,
            question: signature.question,
            rule: SIGNATURE_RULES.saturating_add(rule),
            about: described_signature(signature, keys),
            name,
            covers,
            scope,
            rest: hashed(std::iter::empty()),
            is_kept: false,
        }
    }

    /// The digest by which a grant is kept for one such request, of whatever call; none if it is not kept.
    pub fn kept(&self) -> Option<Digest> {
        let digest = || {
            let mut hash = Sha256::new();
            hash.update(b"lazaret kept request 1");
            hash.update(self.scope.0);
            hash.update(self.rest.0);
            Digest(hash.finalize().into())
        };
        self.is_kept.then(digest)
    }

    /// The digest of the whole question.
    pub fn digest(&self, (session, policy): (&[u8], Digest)) -> Digest {
        let mut hash = Sha256::new();
        hash.update(session);
        hash.update(policy.0);
        hash.update(self.call.to_le_bytes());
        hash.update(self.scope.0);
        hash.update(self.rest.0);
        Digest(hash.finalize().into())
    }
}

fn described_signature(signature: &HeldSignature, SshSpec { name, user, .. }: &SshSpec) -> String {
    match &signature.purpose {
        SignaturePurpose::Login { host, port } => format!(
            "its program wants to log in as {user} at {host}:{port} with a key of your ssh agent ({name})"
        ),
        SignaturePurpose::Git => format!(
            "its program wants a signature for git with a key of your ssh agent ({name}). What would be signed cannot be shown: it may be any commit, tag or push"
        ),
    }
}

/// A request about which a question is open.
#[derive(Debug)]
pub struct OutgoingRequest {
    /// The gateway's number for it.
    pub question: u32,
    pub rule: u16,
    pub name: String,
    /// A grant for the session covers requests of the same scope, or no other.
    pub covers: Coverage,
    pub scope: Digest,
    /// The digest by which a grant of it alone is kept, if it is.
    pub kept: Option<Digest>,
    pub shown: Request,
}

impl OutgoingRequest {
    pub fn new(asked: &ProgramQuestion) -> Self {
        Self {
            question: asked.question,
            rule: asked.rule,
            name: asked.name.clone(),
            covers: asked.covers,
            scope: asked.scope,
            kept: asked.kept(),
            shown: Request::Effect(Effect::Added {
                tool: TOOL.to_owned(),
                risk: Risk::High,
                input: asked.about.clone(),
            }),
        }
    }
}

/// The answer of somebody about a request.
#[derive(Debug)]
pub struct Answered {
    pub call: CallId,
    pub question: u32,
    pub decision: Decision,
    /// The digest by which a yes for this once is kept, if it is.
    pub kept: Option<Digest>,
}

impl Answered {
    /// The digest for which a grant is kept until a request uses it: that of a yes for the session is kept by itself.
    pub fn grant_to_keep(&self) -> Option<Digest> {
        match self.decision {
            Decision::Granted(Extent::Once | Extent::Minutes(_)) => self.kept,
            Decision::Granted(Extent::Session)
            | Decision::Refused
            | Decision::Expired
            | Decision::Cancelled => None,
        }
    }

    /// As the gateway hears it.
    pub fn answer(&self) -> RequestAnswer {
        match self.decision {
            Decision::Granted(_) if self.grant_to_keep().is_some() => RequestAnswer::Kept,
            Decision::Granted(_) => RequestAnswer::Granted,
            Decision::Refused => RequestAnswer::Refused,
            Decision::Expired => RequestAnswer::Expired,
            Decision::Cancelled => RequestAnswer::NoCall,
        }
    }
}

fn described(request: &HeldRequest, rule: &RequestRule, credential: Option<&str>) -> String {
    let HeldRequest {
        host,
        port,
        method,
        path,
        effects,
        ..
    } = request;
    let mut text = format!("its program wants to send {method} {path} to {host}:{port}");
    if let Some(credential) = credential {
        text.extend([" with credential `", credential, "`"]);
    }
    for (number, RequestEffect { object, change, .. }) in effects.iter().enumerate() {
        let before = if number == 0 { ": " } else { "; " };
        text.extend([before, object]);
        if !change.is_empty() {
            text.extend([" (", change, ")"]);
        }
    }
    if let Some(why) = &rule.why {
        text.extend([". ", why]);
    }
    text
}

/// The requests that a grant for the session covers: under this rule, for the same place, by the same method and path, with the same
/// credential, that create, update or delete the same objects.
fn scope(request: &HeldRequest, rule: &RequestRule, credential: Option<&str>) -> Digest {
    let port = request.port.to_string();
    let fixed = [
        "lazaret request 3",
        &rule.name,
        // No credential has an empty name.
        credential.unwrap_or_default(),
        &request.host,
        &port,
        &request.method,
        &request.path,
    ];
    let effects = request.effects.iter();
    let objects = effects.flat_map(|effect| [&*effect.object, effect.kind.name()]);
    hashed(fixed.into_iter().chain(objects))
}

/// Each part has its length before it, so no two lists match.
fn hashed<'t>(parts: impl Iterator<Item = &'t str>) -> Digest {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    Digest(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::gateway::{EffectKind, RuleAction};

    fn request(object: &str, change: &str) -> HeldRequest {
        HeldRequest {
            question: 1,
            call: 7,
            rule: 0,
            host: "a.example".into(),
            port: 443,
            method: "POST".into(),
            path: "/o/r/git-receive-pack".into(),
            credential: None,
            effects: vec![RequestEffect {
                object: object.into(),
                kind: EffectKind::Update,
                change: change.into(),
            }],
        }
    }

    fn rule() -> RequestRule {
        RequestRule {
            host: "a.example".into(),
            port: None,
            methods: vec![],
            paths: vec![],
            action: RuleAction::Ask,
            why: Some("Because.".into()),
            name: "p:1".into(),
        }
    }

    #[test]
    fn a_grant_for_the_session_covers_the_same_objects_and_a_digest_the_whole() {
        let (rule, session) = (rule(), ([1; 16].as_slice(), Digest([2; 32])));
        let (a, b) = (
            request("refs/heads/a", "from 1 to 2"),
            request("refs/heads/a", "from 2 to 3"),
        );
        assert_eq!(scope(&a, &rule, None), scope(&b, &rule, None));
        let digest = |request: &HeldRequest| {
            ProgramQuestion::of_request(request, &rule, None).digest(session)
        };
        assert_ne!(digest(&a), digest(&b));
        let other = request("refs/heads/b", "from 1 to 2");
        assert_ne!(scope(&a, &rule, None), scope(&other, &rule, None));
        for kind in [EffectKind::Create, EffectKind::Delete, EffectKind::Named] {
            let mut other = a.clone();
            other.effects[0].kind = kind;
            assert_ne!(
                scope(&a, &rule, None),
                scope(&other, &rule, None),
                "{kind:?}"
            );
        }
        for change in [
            HeldRequest {
                path: "/x".into(),
                ..a.clone()
            },
            HeldRequest {
                host: "b.example".into(),
                ..a.clone()
            },
            HeldRequest {
                port: 80,
                ..a.clone()
            },
            HeldRequest {
                method: "PUT".into(),
                ..a.clone()
            },
            HeldRequest {
                effects: vec![],
                ..a.clone()
            },
        ] {
            assert_ne!(
                scope(&a, &rule, None),
                scope(&change, &rule, None),
                "{change:?}"
            );
        }
        let of_credential = scope(&a, &rule, Some("github"));
        assert_ne!(scope(&a, &rule, None), of_credential);
        let text = described(&a, &rule, Some("github"));
        assert_eq!(
            text,
            "its program wants to send POST /o/r/git-receive-pack to a.example:443 with credential `github`: refs/heads/a (from 1 to 2). Because."
        );
        assert!(!described(&a, &rule, None).contains("credential"));
    }

    #[test]
    fn a_grant_is_kept_for_one_request_of_any_call_and_for_some_minutes() {
        let kept = |request: &HeldRequest, credential| {
            let question = ProgramQuestion::of_request(request, &rule(), credential);
            question.kept().unwrap()
        };
        let a = request("refs/heads/a", "from 1 to 2");
        let wanted = kept(&a, Some("github"));
        let (mut grants, now) = (KeptGrants::default(), Instant::now());
        grants.add(wanted, (7, 1), now);
        for (other, credential) in [
            (request("refs/heads/a", "from 2 to 3"), Some("github")),
            (request("refs/heads/b", "from 1 to 2"), Some("github")),
            (a.clone(), Some("gitlab")),
            (a.clone(), None),
        ] {
            assert!(!grants.has(kept(&other, credential), now), "{other:?}");
        }
        let retry = HeldRequest {
            call: 8,
            question: 9,
            ..a
        };
        let same = kept(&retry, Some("github"));
        assert!(grants.has(same, now));
        assert_eq!(grants.take(same, now), Some((7, 1)));
        assert_eq!(grants.take(same, now), None, "it is used up");
        grants.add(wanted, (7, 1), now);
        let end = now + Duration::from_secs(limit::KEPT_GRANT_S.into());
        assert!(grants.has(same, end - Duration::from_millis(1)));
        assert!(!grants.has(same, end) && grants.take(same, end).is_none());
        for number in 0..limit::KEPT_GRANTS {
            let other = request("o", &number.to_string());
            grants.add(kept(&other, None), (7, 2), now);
        }
        assert!(!grants.has(same, now), "the oldest made room");
        assert_eq!(grants.0.len(), limit::KEPT_GRANTS);
    }

    #[test]
    fn only_a_yes_for_this_once_is_kept() {
        let kept = Some(Digest([1; 32]));
        let answer = |decision, kept| {
            let answered = Answered {
                call: 7,
                question: 1,
                decision,
                kept,
            };
            (answered.answer(), answered.grant_to_keep())
        };
        let once = Decision::Granted(Extent::Once);
        assert_eq!(answer(once, kept), (RequestAnswer::Kept, kept));
        assert_eq!(answer(once, None), (RequestAnswer::Granted, None));
        let session = Decision::Granted(Extent::Session);
        assert_eq!(answer(session, kept), (RequestAnswer::Granted, None));
        assert_eq!(
            answer(Decision::Refused, kept),
            (RequestAnswer::Refused, None)
        );
        assert_eq!(
            answer(Decision::Expired, kept),
            (RequestAnswer::Expired, None)
        );
    }

    #[test]
    fn a_yes_for_the_session_covers_logins_at_a_host_and_no_other_signature_for_git() {
        let keys = SshSpec {
            name: "github".into(),
            hosts: vec![],
            user: "git".into(),
            keys: vec![],
            signs: true,
        };
        let question = |question, purpose| {
            let signature = HeldSignature {
                question,
                call: 7,
                ssh: 0,
                purpose,
            };
            ProgramQuestion::of_signature(&signature, &keys, "p:1".into())
        };
        let login = |host: &str| SignaturePurpose::Login {
            host: host.into(),
            port: 22,
        };
        let (first, second) = (question(1, login("a")), question(2, login("a")));
        assert_eq!(first.scope, second.scope);
        assert_ne!(first.scope, question(1, login("b")).scope);
        let git = question(1, SignaturePurpose::Git);
        assert_ne!(git.scope, question(2, SignaturePurpose::Git).scope);
        assert_ne!(git.rule, first.rule);
        assert_eq!(
            (git.covers, first.covers),
            (Coverage::RequestOnce, Coverage::Request)
        );
        assert!(git.about.contains("cannot be shown"));
        assert!(git.kept().is_none() && first.kept().is_none());
    }

    #[test]
    fn questions_of_a_call_are_bounded_and_a_no_is_for_its_rule() {
        let mut asked = AskedByCalls::default();
        for _ in 1..=QUESTIONS_MAX {
            assert!(asked.may_ask(7, 0));
        }
        assert!(!asked.may_ask(7, 0) && asked.may_ask(8, 0));
        asked.refuse(8, 0);
        assert!(!asked.may_ask(8, 0) && asked.may_ask(8, 1));
        asked.end(8);
        assert!(asked.may_ask(8, 0));
    }
}
