//! The verdict on each attack: its result without a cell and in one, corrected by the evidence outside.

use crate::attempt::AttackResult;
use crate::fixture::Fixture;
use crate::table::ATTACKS;
use crate::targets::AttackedSession;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use serde::Serialize;

/// One attack, as a line of JSON.
#[derive(Debug, Serialize)]
pub(crate) struct AttackLine {
    class: &'static str,
    attack: &'static str,
    /// The result without a cell, in one word.
    control: String,
    /// The same in a cell.
    inside: String,
    holds: Holds,
    /// Whether the whole run proves nothing if this attack fails in the control.
    core: bool,
    /// Why this session is known not to stop it, if so.
    known: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Holds {
    /// It succeeds without a cell and fails in one.
    Yes,
    /// It fails in a cell, but on this machine also without one, so this proves nothing.
    Untested,
    /// It succeeds in a cell, which is a known limit.
    Known,
    /// It succeeds in a cell.
    No,
    /// Its result in the cell is unknown.
    Unknown,
}

/// Corrects results by the evidence outside, if an attack leaves any.
pub(crate) fn judge(attempts: Vec<AttackResult>, fixture: &Fixture) -> Vec<AttackResult> {
    let judged = attempts
        .into_iter()
        .zip(ATTACKS)
        .map(|(attempt, attack)| match attack.evidence {
            Some(is_seen) if is_seen(fixture) => AttackResult::Succeeded,
            Some(_) if attempt == AttackResult::Succeeded => AttackResult::Refused(libc::ENODATA),
            Some(_) | None => attempt,
        });
    judged.collect()
}

pub(crate) fn reports(
    control: Vec<AttackResult>,
    inside: Vec<AttackResult>,
    session: &AttackedSession,
) -> Vec<AttackLine> {
    let rows = ATTACKS.iter().zip(control).zip(inside);
    rows.map(|((attack, control), inside)| {
        let known = attack.known(session);
        AttackLine {
            class: attack.class,
            attack: attack.name,
            control: word(control),
            inside: word(inside),
            holds: match holds(control, inside) {
                Holds::No if known.is_some() => Holds::Known,
                holds => holds,
            },
            core: attack.core,
            known,
        }
    })
    .collect()
}

fn holds(control: AttackResult, inside: AttackResult) -> Holds {
    match (inside, control) {
        (AttackResult::Succeeded, _) => Holds::No,
        (AttackResult::Unknown, _) => Holds::Unknown,
        (AttackResult::Refused(_) | AttackResult::Killed(_), AttackResult::Succeeded) => Holds::Yes,
        (AttackResult::Refused(_) | AttackResult::Killed(_), _) => Holds::Untested,
    }
}

fn word(attempt: AttackResult) -> String {
    match attempt {
        AttackResult::Succeeded => "works".into(),
        AttackResult::Refused(errno) => format!("{:?}", Errno::from_raw(errno)),
        AttackResult::Killed(signal) => Signal::try_from(signal)
            .map_or("killed", Signal::as_str)
            .into(),
        AttackResult::Unknown => "unknown".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(tier: &str) -> AttackedSession {
        AttackedSession {
            tier: tier.into(),
            layers: Vec::new(),
        }
    }

    fn all(attempt: AttackResult) -> Vec<AttackResult> {
        vec![attempt; ATTACKS.len()]
    }

    #[test]
    fn attack_that_succeeds_in_the_cell_does_not_hold_whatever_its_control() {
        for control in [
            AttackResult::Succeeded,
            AttackResult::Refused(1),
            AttackResult::Killed(31),
            AttackResult::Unknown,
        ] {
            assert_eq!(holds(control, AttackResult::Succeeded), Holds::No);
            assert_eq!(holds(control, AttackResult::Unknown), Holds::Unknown);
        }
    }

    #[test]
    fn a_refusal_counts_only_where_the_control_succeeds() {
        for inside in [AttackResult::Refused(13), AttackResult::Killed(31)] {
            assert_eq!(holds(AttackResult::Succeeded, inside), Holds::Yes);
            assert_eq!(holds(AttackResult::Refused(38), inside), Holds::Untested);
        }
    }

    /// The planted violation: what a cell reports about itself counts only if it is to its disadvantage.
    #[test]
    fn evidence_outside_counts_whatever_the_inside_run_says() {
        let parent = tempfile::tempdir().unwrap();
        let fixture = Fixture::make(parent.path()).unwrap();
        crate::files::create(&fixture.targets()).unwrap();
        let inside = judge(all(AttackResult::Refused(libc::EACCES)), &fixture);
        let open = |report: &AttackLine| report.holds != Holds::Yes;
        let reports = reports(all(AttackResult::Succeeded), inside, &session("namespaced"));
        let names: Vec<&str> = reports
            .into_iter()
            .filter(open)
            .map(|report| report.attack)
            .collect();
        assert_eq!(names, ["create a file outside"]);
    }

    #[test]
    fn an_inside_run_that_prints_nothing_is_unknown_and_one_that_claims_success_without_evidence_is_not_believed()
     {
        let parent = tempfile::tempdir().unwrap();
        let fixture = Fixture::make(parent.path()).unwrap();
        let silent = judge(crate::attempt::read_records(b""), &fixture);
        assert!(
            silent
                .iter()
                .all(|attempt| *attempt == AttackResult::Unknown)
        );
        let claimed = judge(all(AttackResult::Succeeded), &fixture);
        for (attempt, attack) in claimed.iter().zip(ATTACKS) {
            assert_eq!(
                *attempt == AttackResult::Succeeded,
                attack.evidence.is_none(),
                "{}",
                attack.name
            );
        }
    }

    #[test]
    fn a_known_gap_is_one_of_the_flat_tier_without_its_layer() {
        let kill = ATTACKS.last().unwrap();
        assert!(
            kill.known(&session("flat")).is_some() && kill.known(&session("namespaced")).is_none()
        );
        let scoped = AttackedSession {
            tier: "flat".into(),
            layers: vec!["landlock-scopes".into()],
        };
        assert!(kill.known(&scoped).is_none());
    }
}
