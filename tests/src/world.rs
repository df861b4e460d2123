//! A world for one test: a project, a central root, a home with secrets in it, and things outside that must not be touched.
//! Everything belongs to the user of the place, and is removed when the value is dropped.

use crate::place::{Place, User};
use crate::process::{Finished, LIMIT, run};
use crate::programs;
use broker_protocol::Tier;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The files of a test.
#[derive(Debug)]
pub struct World {
    /// The user and tier of its programs.
    pub place: Place,
    pub project: PathBuf,
    pub central: PathBuf,
    /// A home with `.ssh/id_rsa` and other secrets.
    pub home: PathBuf,
    /// A folder of the same user outside both roots.
    pub outside: PathBuf,
    /// Where this user's programs keep state; our records are in its `lazaret`.
    pub state: PathBuf,
    /// The secret of this world: in every file that must not be readable, and in the environment as `PLAIN_NAME`.
    pub canary: String,
    /// The value of `MY_API_KEY`, which Lazaret redacts; it does not know the canary alone.
    pub key: String,
    base: PathBuf,
    /// The variables that select the executor, and the layer that it omits.
    executor: Vec<(&'static str, OsString)>,
}

/// The variables that tell `lazaret` which executor to start, and a test build which layer to omit. If a test run has them set, it
/// tests that executor.
const EXECUTOR: [&str; 2] = ["LAZARET_EXECUTOR", "LAZARET_ABLATE"];

impl World {
    /// A fresh world of `place`: of root in memory, of an ordinary user on the machine's disk. So each tier is tried on both.
    pub fn new(place: Place) -> Self {
        let folder = match place.user {
            User::Root => programs::in_memory(),
            User::Ordinary => programs::scratch(),
        };
        Self::at(place, folder.join(format!("world-{}", unique())))
    }

    /// A fresh world on the machine's disk, as those of ordinary users are too.
    pub fn on_disk(place: Place) -> Self {
        Self::at(
            place,
            programs::scratch().join(format!("world-{}", unique())),
        )
    }

    /// A world that does not lie in `/tmp`, with our programs in `programs` of its base: for commands that write to `/tmp`. The caller
    /// starts these, by [`Self::outside_tmp_program`].
    pub fn outside_tmp(place: Place) -> Self {
        let name = format!("lazaret-tests-world-{}", unique());
        let world = Self::at(place, Path::new("/var/tmp").join(name));
        let folder = world.base.join("programs");
        world.make_folder(&folder);
        for entry in fs::read_dir(programs::folder()).expect("the programs can be listed") {
            let from = entry.expect("a folder can be listed").path();
            if from.is_file() {
                let to = folder.join(from.file_name().expect("a file has a name"));
                // They are large; the two directories may be of two file systems.
                let put = fs::hard_link(&from, &to).or_else(|_| fs::copy(&from, &to).map(drop));
                put.expect("a program can be copied");
            }
        }
        world
    }

    /// One of our programs in a world of [`Self::outside_tmp`], in the tier of its place.
    pub fn outside_tmp_program(&self, program: &str) -> Command {
        let own = |name: &str| self.base.join("programs").join(name);
        match self.place.tier {
            Tier::Namespaced => self.host(own(program)),
            Tier::Flat => {
                let mut command = self.host(own("without-namespaces"));
                command.arg(own(program));
                command
            }
        }
    }

    fn at(place: Place, base: PathBuf) -> Self {
        let canary = format!("CANARY-{}", unique());
        let [project, central, home, outside, state] =
            ["project", "central", "home", "outside", "state"].map(|name| base.join(name));
        let key = format!("KEY-{canary}");
        let executor = EXECUTOR
            .iter()
            .filter_map(|name| Some((*name, std::env::var_os(name)?)))
            .collect();
        let world = Self {
            place,
            project,
            central,
            home,
            outside,
            state,
            canary,
            key,
            base,
            executor,
        };
        for folder in [
            &world.base,
            &world.project,
            &world.central,
            &world.home,
            &world.outside,
            &world.state,
        ] {
            world.make_folder(folder);
        }
        world.write(&world.home.join(".ssh/id_rsa"), &world.canary);
        world.write(&world.home.join(".aws/credentials"), &world.canary);
        world.write(&world.outside.join("secret.txt"), &world.canary);
        world
    }

    /// A world whose executor is a test build that omits something.
    pub fn ablated(place: Place, switch: &str) -> Self {
        let mut world = Self::new(place);
        let executor = programs::ablation_executor().as_os_str().to_owned();
        world.executor = EXECUTOR
            .into_iter()
            .zip([executor, switch.into()])
            .collect();
        world
    }

    /// The variables that say which executor is started.
    pub fn executor(&self) -> &[(&'static str, OsString)] {
        &self.executor
    }

    /// Writes a file that belongs to the world's user, and creates its folders.
    pub fn write(&self, path: &Path, content: impl AsRef<[u8]>) {
        self.make_folder(path.parent().expect("a file is in a folder"));
        fs::write(path, content)
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        // Whatever our umask is: a policy that others may write is refused.
        fs::set_permissions(path, fs::Permissions::from_mode(0o644))
            .expect("a file we made is ours");
        self.own(path);
    }

    /// Writes a file of the project.
    pub fn put(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.project.join(name);
        self.write(&path, content);
        path
    }

    /// Writes an executable file of the project. By another process: what a test starts at this moment would have the file open for
    /// writing until it calls exec, and the kernel runs no such file.
    pub fn put_program(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let (path, written) = (self.project.join(name), self.base.join("written"));
        self.write(&written, content);
        self.make_folder(path.parent().expect("a file is in a folder"));
        run(Command::new("cp").arg(&written).arg(&path), LIMIT).success();
        fs::remove_file(written).expect("a file we made is ours");
        self.own(&path);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .expect("a file we made is ours");
        path
    }

    /// Copies a helper program of this crate into the project, where a cell can run it.
    pub fn put_helper(&self, program: &str) -> PathBuf {
        let bytes = fs::read(programs::path(program)).expect("an installed program can be read");
        self.put_program(program, bytes)
    }

    /// The content of a file of the project.
    pub fn get(&self, name: &str) -> Vec<u8> {
        let path = self.project.join(name);
        fs::read(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
    }

    /// The directory that contains everything.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// Makes the world's user the owner of a path.
    pub fn own(&self, path: &Path) {
        let account = self.place.account();
        if account.uid != nix::unistd::geteuid() {
            chown_link(path, account.uid.as_raw(), account.gid.as_raw());
        }
    }

    /// Creates a folder of the world's user, with its parents inside the world.
    pub fn make_folder(&self, path: &Path) {
        if path.exists() {
            return;
        }
        if path != self.base {
            self.make_folder(path.parent().expect("a path inside a world"));
        }
        fs::create_dir(path)
            .unwrap_or_else(|error| panic!("cannot make {}: {error}", path.display()));
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))
            .expect("a folder we made is ours");
        self.own(path);
    }

    /// A command of the host in this world: with its user and environment, without a cell.
    pub fn host(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        self.place.as_user(&mut command);
        self.dress(&mut command);
        command
    }

    /// One of our programs in this world, in the tier of its place.
    pub fn program(&self, program: &str) -> Command {
        let mut command = self.place.command(program);
        self.dress(&mut command);
        command
    }

    /// `lazaret SUBCOMMAND --project … --central …`; the caller adds the rest.
    pub fn lazaret(&self, subcommand: &str) -> Command {
        let mut command = self.program("lazaret");
        command.arg(subcommand);
        command
            .arg("--project")
            .arg(&self.project)
            .arg("--central")
            .arg(&self.central);
        command
    }

    /// A world whose user has a profile `net` with this network, and a policy with these lines before.
    pub fn networked(place: Place, before: &str, network: &str) -> Self {
        let world = Self::new(place);
        world.set_policy(format!(
            "version = 1\n{before}\n[profile.net.network]\n{network}\n"
        ));
        world
    }

    /// Writes the policy of the user, for the programs of [`World::configured`].
    pub fn set_policy(&self, text: impl AsRef<[u8]>) {
        self.write(&self.policy(), text);
    }

    /// The file of that policy.
    pub fn policy(&self) -> PathBuf {
        self.home.join("settings/lazaret/policy.toml")
    }

    /// `lazaret SUBCOMMAND` with the user's own settings; the caller adds the rest.
    pub fn configured(&self, subcommand: &str) -> Command {
        let mut command = self.lazaret(subcommand);
        command.env("XDG_CONFIG_HOME", self.home.join("settings"));
        command
    }

    /// What bash does with a script in a cell, with the user's own settings and these options.
    #[track_caller]
    pub fn in_cell_with(&self, options: &[&str], script: &str) -> Finished {
        let mut command = self.configured("run");
        let command = command.args(options);
        run(command.args(["--", "bash", "-c", script]), LIMIT)
    }

    /// `lazaret run … -- WORDS`.
    pub fn lazaret_run(&self, words: &[&str]) -> Command {
        let mut command = self.lazaret("run");
        command.arg("--").args(words);
        command
    }

    /// `lazaret run … -- bash -c SCRIPT`.
    pub fn cell(&self, script: &str) -> Command {
        self.lazaret_run(&["bash", "-c", script])
    }

    /// What bash does with a script on the host.
    #[track_caller]
    pub fn on_host(&self, script: &str) -> Finished {
        run(self.host("bash").args(["-c", script]), LIMIT)
    }

    /// What a script on the host printed, which ends at the first command that fails, and must not.
    #[track_caller]
    pub fn set_up(&self, script: &str) -> String {
        run(self.host("bash").args(["-ec", script]), LIMIT).success()
    }

    /// What bash does with a script in a cell of its own.
    #[track_caller]
    pub fn in_cell(&self, script: &str) -> Finished {
        run(&mut self.cell(script), LIMIT)
    }

    /// `lazaret call … TOOL JSON`.
    pub fn lazaret_call(&self, tool: &str, input: &serde_json::Value) -> Command {
        let mut command = self.lazaret("call");
        command.arg(tool).arg(input.to_string());
        command
    }

    /// The environment of a person at work: a path, a home, and secrets.
    fn dress(&self, command: &mut Command) {
        let name = &self.place.account().name;
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", &self.home)
            .env("XDG_STATE_HOME", &self.state)
            .envs([("USER", name), ("LOGNAME", name)])
            .envs([
                ("SHELL", "/bin/bash"),
                ("LANG", "C.UTF-8"),
                ("TERM", "xterm"),
            ])
            .envs([("MY_API_KEY", &self.key), ("PLAIN_NAME", &self.canary)])
            .envs(self.executor.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.project);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A cell may have left folders that its user cannot enter; only root can remove these.
        let _ = fs::remove_dir_all(&self.base);
    }
}

/// Something that a test has mounted, until it is dropped. Only root mounts.
pub struct Mount(PathBuf);

impl Mount {
    /// `mount` with these arguments, at `place`.
    #[track_caller]
    pub fn of(place: &Path, arguments: &[&str]) -> Self {
        let mut mount = Command::new("mount");
        mount.args(arguments).arg(place);
        assert!(mount.status().expect("mount starts").success(), "{mount:?}");
        Self(place.to_owned())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

fn chown_link(path: &Path, uid: u32, gid: u32) {
    let changed = if path.is_symlink() {
        std::os::unix::fs::lchown(path, Some(uid), Some(gid))
    } else {
        chown(path, Some(uid), Some(gid))
    };
    changed.unwrap_or_else(|error| panic!("cannot chown {}: {error}", path.display()));
}

/// Digits that are unique on this machine.
pub fn unique() -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let nanos = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.subsec_nanos());
    format!(
        "{}{nanos:09}{:04}",
        std::process::id(),
        COUNTER.fetch_add(1, Ordering::Relaxed)
    )
}

/// A time for `sleep` of five minutes whose digits are a marker in the list of processes.
pub fn long_sleep() -> String {
    format!("300.{}", unique())
}
