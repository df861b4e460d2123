//! Protects the tracer from the command: from a Landlock domain below the tracer's, a process can neither trace the tracer nor
//! open its memory or descriptors in `/proc`, and from Linux 6.12 on cannot signal it. The domain removes no other right.

use landlock::{
    AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use std::io;

/// Moves this process into such a domain.
///
/// # Errors
/// The kernel's; where a session opens, it has Landlock.
pub(crate) fn enter() -> io::Result<()> {
    // A domain must handle at least one right. A domain that does not handle this one denies it,
    // and a kernel that does not know it gives it to no domain.
    let (right, ruleset) = match ruleset(AccessFs::Refer) {
        Ok(ruleset) => (AccessFs::Refer, ruleset),
        Err(_) => (
            AccessFs::Execute,
            ruleset(AccessFs::Execute).map_err(io::Error::other)?,
        ),
    };
    let root = PathFd::new("/").map_err(io::Error::other)?;
    let ruleset = ruleset
        .add_rule(PathBeneath::new(root, right))
        .map_err(io::Error::other)?;
    match ruleset.restrict_self().map_err(io::Error::other)?.ruleset {
        RulesetStatus::NotEnforced => Err(io::Error::other(
            "Landlock does not keep a command from its tracer",
        )),
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
    }
}

fn ruleset(right: AccessFs) -> Result<RulesetCreated, RulesetError> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(right)?;
    ruleset
        .set_compatibility(CompatLevel::BestEffort)
        .scope(Scope::Signal)?
        .create()
}
