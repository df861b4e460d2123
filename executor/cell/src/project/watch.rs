//! The checks after each call in the repositories of a project, in the broker: what git tracks, and what calls have left there.

use super::left_files::LeftFiles;
use super::tracked_secrets::{ProjectRepository, TrackedSecrets};
use broker_protocol::Finding;
use executor_layers::spec::SandboxSpec;
use executor_layers::worker::RepositoryAnswer;
use std::path::PathBuf;

/// The repositories of a session.
#[derive(Debug)]
pub struct RepositoryWatch {
    /// The secrets that git tracks, if the project has a repository.
    pub(super) tracked: Option<TrackedSecrets>,
    pub(super) left: LeftFiles,
}

impl RepositoryWatch {
    /// What commands have caused since the last check; `alone`: no command is running any more.
    pub fn update(
        &mut self,
        spec: &SandboxSpec,
        alone: bool,
        ask: impl Fn(&ProjectRepository, &[PathBuf]) -> Option<RepositoryAnswer>,
    ) -> Vec<Finding> {
        let mut findings = self.left.update(alone);
        if let Some(tracked) = &mut self.tracked {
            findings.extend(tracked.update(spec, alone, ask));
        }
        findings
    }
}
