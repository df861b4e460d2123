//! One run of the self-attack, from the client's frame to its answer.
//!
//! The broker makes a [`Scene`] outside and tries every attack on it from a process of its own: the control. Then it makes
//! a second one, as the first is spoilt, and gives a cell the order to attack that. When the cell has ended, what it says
//! and what is seen outside are one report an attack.

use super::scene::Scene;
use super::table::{ATTACKS, Attack};
use super::{RECORD, Targets, attempts, run};
use crate::cell::environment::Variables;
use crate::cell::plan::{CellPlan, Task, ViewKind, Walls};
use crate::sys::{self, Fork};
use broker_protocol::{AttackReport, Attempt, Bash, Command, LayerSet, Outcome, Stdin, Tier};
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, pipe2};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::exit;

/// Seconds that a cell may attack; a run takes a fraction of one.
const INSIDE_S: u32 = 5;
/// Milliseconds that the control may wait for any one attack.
const CONTROL_MS: u16 = 3000;
/// Bytes of all records, and more than are there so that a flood is seen as one.
pub const OUTPUT: u64 = (2 * RECORD * ATTACKS.len()) as u64;

/// A run that waits for its cell.
#[derive(Debug)]
pub struct Siege {
    scene: Scene,
    control: Vec<Attempt>,
}

impl Siege {
    /// Runs the control and makes what the cell attacks.
    ///
    /// # Errors
    /// A scene cannot be made, or no control run.
    pub fn begin(walls: &Walls, variables: &Variables) -> io::Result<Self> {
        let parent =
            parent(walls).ok_or_else(|| io::Error::other("every directory for it is open to cells"))?;
        let scene = Scene::make(parent)?;
        let mut targets = scene.targets(&scene.own());
        targets.variables = variables.keys().map(|name| name.as_bytes().to_vec()).collect();
        let control = judged(control(&targets)?, &scene);
        drop(scene);
        Ok(Self { scene: Scene::make(parent)?, control })
    }

    /// The order for the cell.
    pub fn plan(&self, walls: &Walls) -> CellPlan {
        let targets = self.scene.targets(&walls.scratch.tmp);
        CellPlan { task: Task::Attack(targets), directory: walls.project.display().to_string() }
    }

    /// What the cell's call would be if a client had asked for it: nothing in, records out.
    pub fn request() -> Bash {
        Bash {
            command: Command::Arguments(Vec::new()),
            directory: None,
            timeout_s: Some(INSIDE_S),
            idle_timeout_s: None,
            stdin: Stdin::Null,
            live: false,
            background: false,
        }
    }

    /// The reports, once the cell has ended.
    ///
    /// # Errors
    /// The outcome, if the cell did not attack at all.
    pub fn finish(
        self,
        outcome: Outcome,
        tier: Tier,
        layers: LayerSet,
    ) -> Result<Vec<AttackReport>, Outcome> {
        let Outcome::Ran(ran) = outcome else { return Err(outcome) };
        let inside = judged(attempts(&ran.output.head), &self.scene);
        let rows = ATTACKS.iter().zip(self.control).zip(inside);
        Ok(rows
            .map(|((attack, control), inside)| AttackReport {
                class: attack.class.into(),
                name: attack.name.into(),
                control,
                inside,
                core: attack.core,
                known: attack.known(tier, layers).map(str::to_owned),
            })
            .collect())
    }
}

/// Where the scene may be: where no view of the cell is, and where possible beside its private files.
fn parent(walls: &Walls) -> Option<&Path> {
    let beside = walls.scratch.host.as_deref().and_then(Path::parent);
    let is_open = |path: &Path| {
        let sees = |kind: &ViewKind| matches!(kind, ViewKind::Zone(_) | ViewKind::System);
        walls.views.iter().any(|view| sees(&view.kind) && path.starts_with(&view.path))
            || walls.policy.listed.iter().any(|listed| path.starts_with(listed))
    };
    let places = ["/tmp", "/var/tmp", "/dev/shm"].map(Path::new);
    beside.into_iter().chain(places).find(|path| path.is_dir() && !is_open(path))
}

/// What happened, by what is seen outside where something is.
fn judged(attempts: Vec<Attempt>, scene: &Scene) -> Vec<Attempt> {
    let judge = |(attempt, attack): (Attempt, &Attack)| match attack.evidence {
        Some(seen) if seen(scene) => Attempt::Got,
        Some(_) if attempt == Attempt::Got => Attempt::Refused(libc::ENODATA),
        _ => attempt,
    };
    attempts.into_iter().zip(ATTACKS).map(judge).collect()
}

/// Tries every attack from a fork of this process, with no layer.
fn control(targets: &Targets) -> io::Result<Vec<Attempt>> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    match sys::fork(0)? {
        Fork::Child => {
            let done = sys::install(write.as_fd(), 1).and_then(|()| run(targets));
            exit(i32::from(done.is_err()))
        }
        Fork::Parent(child) => {
            drop(write);
            let bytes = records(read);
            // It has ended, or takes too long.
            let _ = sys::pidfd_signal(child.pidfd.as_fd(), libc::SIGKILL);
            waitpid(Pid::from_raw(child.pid), None)?;
            Ok(attempts(&bytes?))
        }
    }
}

/// Reads the records as they come, as long as they come.
fn records(pipe: OwnedFd) -> io::Result<Vec<u8>> {
    let mut pipe = File::from(pipe);
    let mut bytes = Vec::new();
    let mut piece = [0; 512];
    while bytes.len() < OUTPUT as usize
        && poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], PollTimeout::from(CONTROL_MS))? > 0
    {
        match pipe.read(&mut piece)? {
            0 => break,
            length => bytes.extend_from_slice(&piece[..length]),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::{Captured, Ended, Holds, Ran};

    fn siege(parent: &Path) -> Siege {
        Siege { scene: Scene::lay(parent).unwrap(), control: vec![Attempt::Got; ATTACKS.len()] }
    }

    fn outcome(ended: Ended, head: Vec<u8>) -> Outcome {
        let output = Captured { head, ..Captured::default() };
        Outcome::Ran(Ran { ended, output, spill: None, timeout_s: None })
    }

    #[test]
    fn a_cell_that_says_it_got_something_is_believed_and_one_that_says_nothing_is_not() {
        let parent = tempfile::tempdir().unwrap();
        let silent = siege(parent.path()).finish(
            outcome(Ended::TimedOut, Vec::new()),
            Tier::Flat,
            LayerSet::default(),
        );
        assert!(silent.unwrap().iter().all(|report| report.holds() == Holds::Unknown));
        // The first row has no evidence outside: what the cell says of it counts.
        let got = super::super::record(0, Attempt::Got).to_vec();
        let planted = siege(parent.path()).finish(
            outcome(Ended::Exited(0), got),
            Tier::Namespaced,
            LayerSet::default(),
        );
        let planted = planted.unwrap();
        assert_eq!(planted[0].holds(), Holds::No);
        assert!(!planted[0].passes());
    }

    #[test]
    fn what_is_seen_outside_counts_whatever_the_cell_says() {
        let parent = tempfile::tempdir().unwrap();
        let siege = siege(parent.path());
        super::super::files::create(&siege.scene.targets(parent.path())).unwrap();
        let refused: Vec<u8> = (0..ATTACKS.len())
            .flat_map(|index| super::super::record(index, Attempt::Refused(libc::EACCES)))
            .collect();
        let reports =
            siege.finish(outcome(Ended::Exited(0), refused), Tier::Namespaced, LayerSet::default()).unwrap();
        let open: Vec<&str> =
            reports.iter().filter(|one| one.holds() != Holds::Yes).map(|one| one.name.as_str()).collect();
        assert_eq!(open, ["create a file outside"]);
    }
}
