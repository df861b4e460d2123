//! The policy's protected names and the session's scope, as file tools check them. The broker has
//! checked the name in the request; these checks are for the targets of links.

use crate::root::Location;
use executor_spec::protected_objects::ProtectedObjects;
use executor_spec::worker::{FileToolsSpec, WorkerSpec};
use policies::{PolicyError, Reach, ScopePaths};
use policies_guard::Matcher;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The intent of a file tool with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// To know its content.
    Read,
    /// To create, change or replace it.
    Write,
}

pub(crate) struct Names {
    pub protected: Matcher,
    /// The paths that are protected although no name shows it.
    pub objects: ProtectedObjects,
    pub project: PathBuf,
    pub central: PathBuf,
    /// Paths besides both roots that may be read.
    pub granted: Vec<PathBuf>,
    pub scope: ScopePaths,
}

impl Names {
    pub(crate) fn new(spec: &WorkerSpec, tools: &FileToolsSpec) -> Result<Self, PolicyError> {
        let (project, central) = (
            spec.project.path.clone().into(),
            tools.central.path.clone().into(),
        );
        let (protected, objects, scope) = (
            spec.matcher()?,
            tools.objects.restore(),
            tools.scope_paths()?,
        );
        Ok(Self {
            protected,
            objects,
            project,
            central,
            granted: tools.granted.clone(),
            scope,
        })
    }

    /// Whether the absolute path `real` lies in a granted path besides the roots.
    pub(crate) fn is_granted(&self, real: &Path) -> bool {
        self.granted.iter().any(|granted| real.starts_with(granted))
    }

    /// Whether links at `real` may lead to a granted path besides the roots.
    pub(crate) fn leads_to_granted(&self, real: &Path) -> bool {
        self.is_granted(real) || self.granted.iter().any(|granted| granted.starts_with(real))
    }

    /// Whether `real` is granted and in neither root, which have ways of their own.
    pub(crate) fn is_granted_outside(&self, real: &Path) -> bool {
        let in_root = real.starts_with(&self.project) || real.starts_with(&self.central);
        !in_root && self.is_granted(real)
    }

    /// Why `tool` may not touch a name in this session; `None` if it may.
    pub(crate) fn out_of_scope(&self, tool: &str, location: &Location) -> Option<String> {
        let path = location.path.as_os_str().as_bytes();
        let permitted = self
            .scope
            .permits(tool, location.zone, path, Reach::of(tool));
        (!permitted).then(|| {
            format!(
                "the session's scope permits {tool} for {} only",
                self.scope.text(tool)
            )
        })
    }
}
