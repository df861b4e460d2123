//! Keeps the command from its tracer: in a Landlock domain below the tracer's, a process neither traces that one nor opens its memory
//! or descriptors in `/proc`, and with Linux 6.12 does not signal it. The domain takes nothing else away.

use landlock::{
    AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use std::io;

/// Moves this process into such a domain.
///
/// # Errors
/// The kernel's; it has Landlock where a session opens.
pub fn enter() -> io::Result<()> {
    // A domain handles one right at least. One that does not handle this takes it away, and a kernel that does not know it gives it
    // to no domain.
    let (right, ruleset) = match ruleset(AccessFs::Refer) {
        Ok(ruleset) => (AccessFs::Refer, ruleset),
        Err(_) => (AccessFs::Execute, ruleset(AccessFs::Execute).map_err(io::Error::other)?),
    };
    let root = PathFd::new("/").map_err(io::Error::other)?;
    let ruleset = ruleset.add_rule(PathBeneath::new(root, right)).map_err(io::Error::other)?;
    match ruleset.restrict_self().map_err(io::Error::other)?.ruleset {
        RulesetStatus::NotEnforced => {
            Err(io::Error::other("Landlock does not keep a command from its tracer"))
        }
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
    }
}

fn ruleset(right: AccessFs) -> Result<RulesetCreated, RulesetError> {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(right)?;
    ruleset.set_compatibility(CompatLevel::BestEffort).scope(Scope::Signal)?.create()
}
