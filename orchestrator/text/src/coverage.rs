//! Words of a question: what a yes for the session allows beside the call in question, and where the answer comes from.

use crate::escape::one_line;
use broker_protocol::{Challenge, Coverage};

/// What a grant for the session covers besides this call of `tool`; `None` if nothing.
pub fn for_session(challenge: &Challenge, tool: &str) -> Option<String> {
    match challenge.covers {
        Coverage::Rule if !challenge.programs.is_empty() => {
            let programs: Vec<_> = challenge
                .programs
                .iter()
                .map(|name| one_line(name).to_string())
                .collect();
            Some(format!(
                "all commands that run only {}",
                programs.join(", ")
            ))
        }
        Coverage::Rule if tool == "bash" => Some("all commands that run no program".into()),
        Coverage::Rule => Some(format!(
            "all calls of {tool} that rule {} asks about",
            one_line(&challenge.rule)
        )),
        Coverage::Call => Some("this very call again".into()),
        Coverage::Wants => Some("what it wants, for every call".into()),
        Coverage::Request => {
            Some("requests that change the same (of a push, whichever commits)".into())
        }
        Coverage::RequestOnce | Coverage::Once => None,
    }
}

/// For a front end that may not answer a question: that another one has to.
pub fn answered_elsewhere(expires_s: u32, why: &str, rule: &str, risk: &str) -> String {
    format!(
        "waiting for `lazaret approve` in another terminal, {expires_s} s: {why} (rule `{rule}`, {risk} risk)"
    )
}
