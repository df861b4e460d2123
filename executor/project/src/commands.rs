//! Whether commands run while a project is looked at: what they may change meanwhile is looked at again.

/// Whether commands of the session may be changing its project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commands {
    Run,
    AreOver,
}

impl Commands {
    pub(crate) fn are_over(self) -> bool {
        self == Commands::AreOver
    }
}
