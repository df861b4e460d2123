//! What a self-attack found: each attack tried without a cell, as its control, and in one.

use serde::{Deserialize, Serialize};

/// What one try of an attack came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attempt {
    /// It got what it wanted.
    Got,
    /// The kernel refused it, with this error number.
    Refused(i32),
    /// The kernel killed the process that tried, with this signal.
    Killed(i32),
    /// It was not tried, or did not come to an end: nothing is known.
    Unknown,
}

/// One attack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttackReport {
    /// What it reaches for: files, processes, network, kernel or inheritance.
    pub class: String,
    /// What it does.
    pub name: String,
    /// Without a cell.
    pub control: Attempt,
    /// In a cell.
    pub inside: Attempt,
    /// Whether the report means nothing when the control of this one fails.
    pub core: bool,
    /// Why this tier is known not to hold it, if it is.
    pub known: Option<String>,
}

/// What an attack says about the cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// It works without a cell and does not in one.
    Yes,
    /// It does not work in a cell; without one it does not work on this machine either, so that this proves nothing.
    Untested,
    /// It gets through, and that is known and said.
    Known,
    /// It gets through.
    No,
    /// What happened in the cell is not known, which is as bad.
    Unknown,
}

impl AttackReport {
    /// What the attack says about the cell.
    pub fn holds(&self) -> Holds {
        match (self.inside, self.control) {
            (Attempt::Got, _) if self.known.is_some() => Holds::Known,
            (Attempt::Got, _) => Holds::No,
            (Attempt::Unknown, _) => Holds::Unknown,
            (Attempt::Refused(_) | Attempt::Killed(_), Attempt::Got) => Holds::Yes,
            (Attempt::Refused(_) | Attempt::Killed(_), _) => Holds::Untested,
        }
    }

    /// Whether the cell passes this one.
    pub fn passes(&self) -> bool {
        match self.holds() {
            Holds::Yes | Holds::Known => true,
            Holds::Untested => !self.core,
            Holds::No | Holds::Unknown => false,
        }
    }
}

impl Holds {
    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Holds::Yes => "yes",
            Holds::Untested => "untested",
            Holds::Known => "known",
            Holds::No => "no",
            Holds::Unknown => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(control: Attempt, inside: Attempt) -> AttackReport {
        let (class, name) = ("files".to_owned(), "read a file outside".to_owned());
        AttackReport { class, name, control, inside, core: false, known: None }
    }

    #[test]
    fn what_gets_through_does_not_hold_whatever_its_control_did() {
        for control in [Attempt::Got, Attempt::Refused(1), Attempt::Killed(31), Attempt::Unknown] {
            let planted = report(control, Attempt::Got);
            assert_eq!(planted.holds(), Holds::No);
            assert!(!planted.passes());
            assert!(!report(control, Attempt::Unknown).passes());
        }
        let known = AttackReport { known: Some("why".into()), ..report(Attempt::Got, Attempt::Got) };
        assert_eq!((known.holds(), known.passes()), (Holds::Known, true));
    }

    #[test]
    fn a_refusal_counts_only_where_the_control_works() {
        for inside in [Attempt::Refused(13), Attempt::Killed(31)] {
            assert_eq!(report(Attempt::Got, inside).holds(), Holds::Yes);
            let untested = report(Attempt::Refused(38), inside);
            assert_eq!((untested.holds(), untested.passes()), (Holds::Untested, true));
            assert!(!AttackReport { core: true, ..untested }.passes());
        }
    }
}
