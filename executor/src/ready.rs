//! A sandbox that stands ready before its client comes (`lazaret warm`), and the proof that it is the one that would be built now.
//!
//! Nothing that the opening of a session finds out is remembered: when the client comes, policy, zones and the search of both are done
//! anew, by the code that every opening has. Only what a warden and its first cell have done is used again, and that depends on two
//! things: the description of the sandbox, compared field by field, and the machine's objects that the warden has mounted or opened,
//! compared by identity. The memory that supervisors share is filled anew. If anything differs, a sandbox is built as ever.

use crate::sandbox::{
    PlannedSandbox, Sandbox, SessionOpenError, SessionPaths, SessionSetup, StartedWarden,
    TakenOver, plan, policy_of, read_policies, tier_here, worker_spec, zones_of,
};
use crate::user::User;
use broker_protocol::{Digest, Open};
use executor_handles::account::Capacity;
use executor_project::AnsweringWorker;
use executor_project::central_root;
use executor_project::machine_state::{self, MachineState};
use executor_spec::known_directories::DirectoryMemory;
use executor_spec::readable_secret::SecretView;
use executor_spec::sandbox::SandboxSpec;
use executor_sys::confine;
use executor_sys::process::euid;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use policies::{EffectivePolicy, directories};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};
use thiserror::Error;

/// How long a sandbox may stand ready. What the comparison does not see cannot be older.
const AGE_MAX: Duration = Duration::from_secs(30 * 60);

/// Said of a session whose sandbox stood ready.
const WARM: &str = "warm: the sandbox stood ready, and is the one that would have been built";

/// A sandbox that stands ready, with what it was made from.
pub(crate) struct StandingSandbox {
    request: Open,
    policies: Digest,
    spec: SandboxSpec,
    started: StartedWarden,
    /// Why it is in the flat tier, if it is.
    refusal: Option<String>,
    machine: MachineState,
    /// The worker that has answered questions of the search, for those of the next.
    answerer: Option<AnsweringWorker>,
    made: Instant,
}

/// A client's request with what is found out for it now.
pub(crate) struct WantedSandbox<'w> {
    pub request: &'w Open,
    pub policies: Digest,
    pub policy: &'w EffectivePolicy,
    pub abi: u32,
    pub paths: SessionPaths<'w>,
}

/// Why no sandbox can stand ready for a request.
#[derive(Debug, Error)]
pub(crate) enum NotReady {
    /// Each such session has something of its own.
    #[error(
        "a session with an image, leased paths, revealed files, placeholders for values of files of secrets, published ports, \
         credentials or an authority of its own is always opened anew"
    )]
    OfItsOwn,
    /// A command of the session could see the socket at which clients ask for what stands ready.
    #[error("the socket of `lazaret warm` would lie where the session's cells can see it")]
    Visible,
    /// The central root was changed from outside.
    #[error("the central root has to be repaired first")]
    Central,
    /// Files that it is made from are changing.
    #[error("files of the machine that it shows have just changed")]
    Unsettled,
    #[error(transparent)]
    Open(#[from] SessionOpenError),
}

/// Why a sandbox that stood ready is not the one that would be built now.
#[derive(Debug, Error)]
pub(crate) enum Different {
    #[error("not warm: another session was asked for")]
    Request,
    #[error("not warm: the policy has changed")]
    Policy,
    #[error("not warm: what stood ready is too old")]
    Age,
    #[error("not warm: the machine allows other namespaces than before")]
    Tier,
    #[error("not warm: mounts, or files and directories of the machine, have changed")]
    Machine,
    #[error("not warm: what stood ready has ended")]
    Ended,
    #[error("not warm: the central root was changed from outside")]
    Central,
    #[error("not warm: the project, its git settings or what is protected in it have changed")]
    Project,
    #[error("not warm: {0}")]
    Open(#[from] SessionOpenError),
}

impl StandingSandbox {
    /// Makes a sandbox for the session that `request` describes.
    ///
    /// # Errors
    /// Why there can be none.
    pub(crate) fn prepare(request: Open, user: &User) -> Result<Self, NotReady> {
        if request.throw_away || request.image.is_some() || has_own_paths(&request) {
            return Err(NotReady::OfItsOwn);
        }
        let policies = read_policies(user)?;
        let policy = policy_of(&request, &policies, user)?;
        let (policy, zones) = zones_of(&request, policy, user)?;
        let is_own = policy.image.is_some() || !policy.ports.publish.is_empty();
        if is_own || !policy.credentials.is_empty() || !policy.ssh.is_empty() {
            return Err(NotReady::OfItsOwn);
        }
        if central_root::unlock(&zones.central).is_some() {
            return Err(NotReady::Central);
        }
        let abi = user.ablation.landlock_abi(confine::landlock_abi());
        let (tier, refusal) = tier_here();
        let paths = SessionPaths {
            zones: &zones,
            names: &request.names,
            writes: &request.write,
            tracer: None,
        };
        let mut planned = plan(&policy, (tier, abi), paths, user, None)?;
        let has_masks = |spec: &SandboxSpec| {
            let mut secrets = spec.found().secrets.iter();
            secrets.any(|secret| secret.seen != SecretView::Real)
        };
        if planned.spec.certificates.is_some() || has_masks(&planned.spec) {
            return Err(NotReady::OfItsOwn);
        }
        let visible = directories::warm(&user.home, euid(), &|name| user.variable(name));
        if visible.iter().any(|path| is_seen(&planned.spec, path)) {
            return Err(NotReady::Visible);
        }
        let before = MachineState::of(&planned.spec);
        let started = planned.start(user)?;
        let answerer = planned.answerer.take();
        // Dropped before, its storage would be removed.
        let Sandbox { spec, started, .. } = planned.into_sandbox(started)?;
        if !before.is_settled || !MachineState::of(&spec).is_as(&before) {
            return Err(NotReady::Unsettled);
        }
        let inside = machine_state::inside(&spec, started.warden.child.pid)
            .map_err(SessionOpenError::Plan)?;
        Ok(Self {
            policies: policies.digest(),
            machine: before.with_inside(inside),
            request,
            spec,
            started,
            refusal,
            answerer,
            made: Instant::now(),
        })
    }

    /// Whether it is still what would be built now, for its own request.
    pub(crate) fn still_holds(&mut self, user: &User) -> Result<(), Different> {
        let request = self.request.clone();
        let policies = read_policies(user)?;
        let policy = policy_of(&request, &policies, user)?;
        let (policy, zones) = zones_of(&request, policy, user)?;
        let paths = SessionPaths {
            zones: &zones,
            names: &request.names,
            writes: &request.write,
            tracer: None,
        };
        let wanted = WantedSandbox {
            request: &request,
            policies: policies.digest(),
            policy: &policy,
            abi: user.ablation.landlock_abi(confine::landlock_abi()),
            paths,
        };
        let planned = self.compare(&wanted, user)?;
        self.answerer = planned.answerer;
        Ok(())
    }

    /// The sandbox for this session, if it is the same; and what people are told.
    pub(crate) fn used_for(
        self,
        wanted: &WantedSandbox,
        user: &User,
    ) -> (Option<(Sandbox, Option<String>)>, String) {
        match self.into_sandbox(wanted, user) {
            Ok(used) => (Some(used), WARM.to_owned()),
            Err(different) => (None, different.to_string()),
        }
    }

    fn into_sandbox(
        mut self,
        wanted: &WantedSandbox,
        user: &User,
    ) -> Result<(Sandbox, Option<String>), Different> {
        let planned = self.compare(wanted, user)?;
        let (spec, mut started) = (&planned.spec, self.started);
        started.warden.count_from_now();
        started.setup = SessionSetup {
            self_test: None,
            worker: worker_spec(spec)?,
            capacity: Capacity::new([spec.project.clone(), spec.central.clone()]),
            // The file that it was to continue may be another one by now.
            audit: user.open_audit().map_err(SessionOpenError::from)?,
            ..started.setup
        };
        let mut planned = planned;
        planned.answerer.take();
        Ok((planned.into_sandbox(started)?, self.refusal))
    }

    /// Plans the sandbox anew, and compares.
    fn compare(
        &mut self,
        wanted: &WantedSandbox,
        user: &User,
    ) -> Result<PlannedSandbox, Different> {
        if *wanted.request != self.request {
            return Err(Different::Request);
        }
        let is_same = wanted.policies == self.policies;
        if !is_same || wanted.policy.profile != self.spec.policy.profile {
            return Err(Different::Policy);
        }
        if self.made.elapsed() > AGE_MAX {
            return Err(Different::Age);
        }
        let (tier, refusal) = tier_here();
        if (tier, &refusal) != (self.spec.tier, &self.refusal) {
            return Err(Different::Tier);
        }
        let found = self.spec.found();
        let clone = |memory: &OwnedFd| memory.try_clone().map_err(SessionOpenError::Plan);
        let directories = found.directories.as_ref().map(DirectoryMemory::try_clone);
        let taken_over = TakenOver {
            scratch: self.spec.scratch.clone(),
            created: found.created.as_ref().map(clone).transpose()?,
            directories: directories.transpose().map_err(SessionOpenError::Plan)?,
            answerer: self.answerer.take(),
        };
        let abi = wanted.abi;
        let planned = plan(
            wanted.policy,
            (tier, abi),
            wanted.paths,
            user,
            Some(taken_over),
        )?;
        if !planned.spec.is_same(&self.spec) {
            return Err(Different::Project);
        }
        let pidfd = self.started.warden.child.pidfd.as_fd();
        let mut ended = [PollFd::new(pidfd, PollFlags::POLLIN)];
        if poll(&mut ended, PollTimeout::ZERO) != Ok(0) {
            return Err(Different::Ended);
        }
        // Last: the search has taken its time.
        let inside = machine_state::inside(&self.spec, self.started.warden.child.pid);
        let inside = inside.map_err(|_| Different::Ended)?;
        let now = MachineState::of(&self.spec).with_inside(inside);
        match now.is_as(&self.machine) {
            true => Ok(planned),
            false => Err(Different::Machine),
        }
    }
}

/// Whether cells see something of `path`. What their own storage covers they do not.
fn is_seen(spec: &SandboxSpec, path: &Path) -> bool {
    let zones = [&spec.project, &spec.central].into_iter();
    let views = spec.views.iter().map(|view| &view.path);
    zones
        .chain(views)
        .any(|seen| path.starts_with(seen) || seen.starts_with(path))
}

fn has_own_paths(request: &Open) -> bool {
    let lists = [&request.read, &request.write, &request.reveal];
    lists.iter().any(|list| !list.is_empty())
}
