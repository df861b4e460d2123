//! The decision that the policy would make on a call.

use broker_protocol::{ErrorKind, Failed, Refused};
use orchestrator_tools::catalogue::UNASKED;
use policies::{EffectivePolicy, Facts, Judgement, Verdict, judge};

/// The decision on a call of `tool`, for which the executor would see `facts`. The scope and the rules both have to permit the
/// call; a tool that never needs approval is decided by the scope alone.
pub(super) fn decision<'a>(
    policy: &'a EffectivePolicy,
    tool: &str,
    facts: &Facts,
) -> Judgement<'a> {
    if policy
        .scope
        .as_ref()
        .is_some_and(|scope| !scope.permits(tool))
    {
        return judge(policy, &Facts::bare(tool, facts.risk));
    }
    if UNASKED.contains(&facts.tool) {
        let why = "It changes nothing by itself, so nobody is asked.".to_owned();
        return Judgement {
            verdict: Verdict::Allow,
            rule: None,
            why: Some(why),
            origin: None,
        };
    }
    judge(policy, facts)
}

/// The decision on a call that the orchestrator itself refuses, before or after it asks the executor.
pub(super) fn refused<'a>(failed: &Failed) -> Judgement<'a> {
    let violation = failed.kind == ErrorKind::Violation;
    let (rule, why) = (failed.kind.name().to_owned(), failed.message.clone());
    let verdict = Verdict::Deny(Refused {
        rule: rule.clone(),
        why: why.clone(),
        violation,
    });
    Judgement {
        verdict,
        rule: Some(rule),
        why: Some(why),
        origin: None,
    }
}

/// A verdict as one word.
pub(super) fn verdict_name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allow",
        Verdict::Ask(_) => "ask",
        Verdict::Deny(_) => "deny",
    }
}
