//! Who answers for a command that a person typed: typing it was the yes. Where answers are taken elsewhere, it says where.

use super::say;
use crate::ports::{Approval, Approver, Question};
use broker_protocol::{Challenge, Extent};

/// What was typed is allowed.
pub struct Typed;

impl Approver for Typed {
    async fn approve(&self, asked: &Question<'_>) -> Approval {
        match asked.not_taken {
            None => Approval::Yes(Extent::Once),
            // Nothing that we could say would be taken.
            Some(_) => Approval::No,
        }
    }

    async fn elsewhere(&self, asked: &Question<'_>) {
        say::problem(&waiting(asked.challenge));
    }
}

/// What to do about a question that waits elsewhere.
fn waiting(challenge: &Challenge) -> String {
    format!(
        "waiting for `lazaret approve` in another terminal, {} s: {} (rule `{}`, {} risk)",
        challenge.expires_s,
        challenge.why,
        challenge.rule,
        challenge.risk.name()
    )
}
