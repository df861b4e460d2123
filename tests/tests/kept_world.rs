//! A world for many attacks, one after the other: between them it is put back as it was, at the same paths. So its scene is made
//! once, and git is asked once what it does before an attack.

use lazaret_tests::process::Running;
use lazaret_tests::world::unique;
use lazaret_tests::{Finished, GitView, LIMIT, World, run};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Where an attack is made: on the host, which shows that it works, or in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Host,
    Cell,
}

impl Side {
    /// Bash with a script on this side.
    pub fn bash(self, world: &World, script: &str) -> Command {
        match self {
            Side::Host => {
                let mut command = world.host("bash");
                command.args(["-c", script]);
                command
            }
            Side::Cell => world.cell(script),
        }
    }
}

pub struct KeptWorld {
    world: World,
    /// A copy of all that was in the world: roots, home, and what is outside.
    kept: PathBuf,
    before: OnceLock<GitView>,
}

impl KeptWorld {
    /// Keeps the world as it is now.
    pub fn of(world: World) -> Self {
        let kept = beside(&world, "kept");
        copy(world.base(), &kept);
        Self {
            world,
            kept,
            before: OnceLock::new(),
        }
    }

    /// The world as it is now.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The world as it was kept: with nothing of any command, and nothing that Lazaret has noted of one.
    pub fn restore(&self) -> &World {
        // Whoever still has the old one open writes there and not here.
        let [gone, fresh] = [unique(), unique()].map(|name| beside(&self.world, &name));
        // By its name ext4 chooses where on the disk a directory lies: where the one of before lay, every inode has just been freed.
        copy(&self.kept, &fresh);
        fs::rename(self.world.base(), &gone).unwrap();
        fs::rename(&fresh, self.world.base()).unwrap();
        // As where a world is dropped: only root can remove directories that a command has closed.
        let _ = fs::remove_dir_all(gone);
        &self.world
    }

    /// Runs a script in a cell in the world as it is now, after which the user's git does what it did in the one that was kept.
    #[track_caller]
    pub fn cell(&self, script: &str) -> Finished {
        let before = self.before.get_or_init(|| {
            assert!(
                self.is_as_kept(),
                "git is asked before anything else happens"
            );
            GitView::of(&self.world)
        });
        let finished = in_cell(&self.world, script);
        // Git goes by what is in files. Where that is what it was, it is not asked again.
        if !self.is_as_kept() {
            before.assert_unchanged(&self.world, script);
        }
        finished
    }

    /// Makes an attack, which must work without a cell and not in one; `worked` tells whether it has.
    #[track_caller]
    pub fn contains(&self, script: &str, worked: impl Fn(&World) -> bool) {
        self.contains_said(script, |world, _| worked(world));
    }

    /// Makes an attack that may show in what it prints.
    #[track_caller]
    pub fn contains_said(&self, script: &str, worked: impl Fn(&World, &Finished) -> bool) {
        self.contains_by(script, |world, side| {
            let said = match side {
                Side::Host => world.on_host(script),
                Side::Cell => self.cell(script),
            };
            (worked(world, &said), said)
        });
    }

    /// Makes an attack on each side, in the world as it was kept. `attempt` returns whether it worked, and what was said.
    #[track_caller]
    pub fn contains_by(&self, attack: &str, attempt: impl Fn(&World, Side) -> (bool, Finished)) {
        let (worked, said) = attempt(self.restore(), Side::Host);
        assert!(worked, "the control of {attack}\n{}", said.errors());
        let (worked, said) = attempt(self.restore(), Side::Cell);
        assert!(!worked, "{attack}\n{}{}", said.text(), said.errors());
    }

    /// Whether all that a git could read here is as it was kept: not the records, which each session adds to.
    fn is_as_kept(&self) -> bool {
        let World {
            project,
            central,
            home,
            outside,
            ..
        } = &self.world;
        [project, central, home, outside].into_iter().all(|folder| {
            let below = folder.strip_prefix(self.world.base()).unwrap();
            is_same(&self.kept.join(below), folder, central)
        })
    }
}

impl Drop for KeptWorld {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.kept);
    }
}

/// Whether two files or trees have the same names, kinds, modes, owners, links and contents, besides Lazaret's own in the central root.
fn is_same(kept: &Path, now: &Path, central: &Path) -> bool {
    let (Ok(was), Ok(is)) = (kept.symlink_metadata(), now.symlink_metadata()) else {
        return false;
    };
    let facts = |file: &Metadata| (file.file_type(), file.mode(), file.uid(), file.gid());
    if facts(&was) != facts(&is) {
        return false;
    }
    if is.is_symlink() {
        return fs::read_link(kept).unwrap() == fs::read_link(now).unwrap();
    }
    if is.is_file() {
        let (Ok(was), Ok(is)) = (fs::read(kept), fs::read(now)) else {
            return false;
        };
        return was == is;
    }
    let names = |folder: &Path| -> Option<BTreeSet<OsString>> {
        let names = fs::read_dir(folder)
            .ok()?
            .map(|entry| entry.unwrap().file_name());
        Some(
            names
                .filter(|name| now != central || name != ".lazaret")
                .collect(),
        )
    };
    let (Some(were), Some(are)) = (names(kept), names(now)) else {
        return false;
    };
    were == are
        && are
            .iter()
            .all(|name| is_same(&kept.join(name), &now.join(name), central))
}

fn beside(world: &World, name: &str) -> PathBuf {
    world.base().with_extension(name)
}

/// With owners, modes, times, links, and files of several names.
fn copy(from: &Path, to: &Path) {
    run(
        Command::new("cp").args(["-a", "--"]).args([from, to]),
        LIMIT,
    )
    .success();
}

/// A script that begins when the host has acted.
pub fn waiting(script: &str) -> String {
    format!("echo ready; until [ -e go ]; do sleep 0.02; done; {script}")
}

/// Runs a command that says that it is ready, and goes on when `host` has acted.
#[track_caller]
pub fn during(world: &World, mut command: Command, host: impl FnOnce()) -> Finished {
    let mut running = Running::start(&mut command);
    running.wait_for("ready\n", LIMIT);
    host();
    world.put("go", "");
    running.finish(LIMIT)
}

/// Runs a script in a cell, after which the user's git does what it did before.
#[track_caller]
pub fn cell(world: &World, script: &str) -> Finished {
    let before = GitView::of(world);
    let finished = in_cell(world, script);
    before.assert_unchanged(world, script);
    finished
}

/// A cell that does not start refuses everything, and proves nothing: so it first starts a program and makes a file.
#[track_caller]
fn in_cell(world: &World, script: &str) -> Finished {
    let started = "cat /proc/self/comm && echo x > .started && rm .started || exit 125";
    let mut finished = run(&mut world.cell(&format!("{started}\n{script}")), LIMIT);
    let own = finished.stdout.strip_prefix(b"cat\n").map(<[u8]>::to_vec);
    assert!(
        own.is_some() && finished.code() != 125,
        "the cell does not work: {script}\n{finished:?}"
    );
    finished.stdout = own.unwrap_or_default();
    finished
}
