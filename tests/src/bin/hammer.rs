//! Stress tests by others, in a cell: `trinity` makes random system calls, `stress-ng` exhausts one resource at a time.
//!
//! The possible calls to a cell's kernel interface cannot be listed, so these programs are only required to run. The check is made
//! from outside: canary files and a bystander of the same user are unchanged, a session beside them always answers, and no process
//! is left.

use clap::Parser;
use lazaret_tests::process::{self, Process, Running, left_after};
use lazaret_tests::{Place, Session, World, programs};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Lets trinity and stress-ng loose in cells. Needs the Debian packages of these names.
#[derive(Parser)]
struct Options {
    /// Seconds that trinity runs in each place; each stressor runs 3
    #[arg(default_value_t = 60)]
    seconds: u64,
    /// A tier and a user, such as `flat/ordinary` [default: both tiers as the ordinary user]
    #[arg(long)]
    place: Option<Place>,
}

/// Running time of each stressor, in seconds.
const STRESS: &str = "3";
/// How long a call in another session may take while a cell uses everything it can.
const ANSWER: Duration = Duration::from_secs(20);

/// Excessive but ordinary work: it must succeed.
const WORK: [&[&str]; 5] = [
    &["--fork", "1"],
    &["--vm", "1", "--vm-bytes", "64M"],
    &["--hdd", "1", "--hdd-bytes", "16M"],
    &["--mmap", "1", "--mmap-bytes", "32M"],
    &["--pipe", "1"],
];
/// Attacks that a cell may refuse: they must only not succeed.
const ATTACKS: [&[&str]; 9] = [
    &["--sock", "1"],
    &["--kill", "1"],
    &["--chmod", "1"],
    &["--chown", "1"],
    &["--utime", "1"],
    &["--clone", "1"],
    &["--ptrace", "1"],
    &["--procfs", "1"],
    &["--seccomp", "1"],
];

/// One program to run in a cell.
struct Job {
    name: String,
    words: Vec<String>,
    seconds: u64,
    must_work: bool,
}

fn main() -> ExitCode {
    let Options { seconds, place } = Options::parse();
    if !["trinity", "stress-ng"]
        .iter()
        .all(|tool| programs::is_installed(tool, tool))
    {
        return ExitCode::from(2);
    }
    let places = place.map_or_else(Place::ordinary, |place| vec![place]);
    let complaints: Vec<String> = places
        .into_iter()
        .flat_map(|place| hammer(place, seconds))
        .collect();
    match complaints.as_slice() {
        [] => ExitCode::SUCCESS,
        _ => {
            println!(
                "\n{} complaints:\n  {}",
                complaints.len(),
                complaints.join("\n  ")
            );
            ExitCode::FAILURE
        }
    }
}

/// Runs every job in one place; returns what was wrong.
fn hammer(place: Place, seconds: u64) -> Vec<String> {
    println!(
        "\n{place}\n{:<22} {:>5} {:>6} {:>9} {:>7} {:>9}",
        "job", "code", "took", "processes", "beside", "slowest"
    );
    let world = World::new(place);
    plant(&world);
    let mut complaints = Vec::new();
    for job in jobs(seconds) {
        let wrong = run(&world, &job);
        complaints.extend(
            wrong
                .into_iter()
                .map(|wrong| format!("{place}, {}: {wrong}", job.name)),
        );
    }
    complaints
}

fn jobs(seconds: u64) -> Vec<Job> {
    // A cell provides none of these descriptors, and trinity would try for ever to create one.
    let closed = ["perf", "sockets", "drm"].map(|kind| format!("--disable-fds={kind}"));
    let trinity = [
        "trinity", "-q", "-l", "off", "-a", "64", "-C", "2", "-V", "victims",
    ]
    .map(str::to_owned);
    let mut jobs = vec![Job {
        name: "trinity".into(),
        words: [trinity.as_slice(), &closed].concat(),
        seconds,
        must_work: false,
    }];
    for (stressors, must_work) in [(WORK.as_slice(), true), (&ATTACKS, false)] {
        jobs.extend(stressors.iter().map(|stressor| {
            let words = [&["stress-ng", "--timeout", STRESS], *stressor].concat();
            let words = words.into_iter().map(str::to_owned).collect();
            Job {
                name: format!("stress-ng {}", stressor[0]),
                words,
                seconds: 30,
                must_work,
            }
        }));
    }
    jobs
}

/// Creates files to compare afterwards outside both roots, and the project's own files for trinity to work on.
fn plant(world: &World) {
    for number in 0..4 {
        world.put(&format!("victims/file-{number}"), "to be worn out\n");
        let canary = world.outside.join(format!("canaries/{number}/file"));
        world.write(&canary, &world.canary);
        fs::set_permissions(&canary, fs::Permissions::from_mode(0o600 + number))
            .expect("a file we made is ours");
    }
    symlink("canaries/0/file", world.outside.join("link")).expect("a link in a folder we made");
}

/// Runs one job beside a session, prints its row, and returns what was wrong.
fn run(world: &World, job: &Job) -> Vec<String> {
    let before = snapshot(world);
    let mut bystander = Bystander::start(world);
    let mut beside = NeighbourSession {
        session: Session::open(world),
        calls: 0,
        slowest: Duration::ZERO,
        wrong: None,
    };
    let mut command = world.lazaret("run");
    command
        .args(["--timeout", &job.seconds.to_string(), "--"])
        .args(&job.words);
    let started = Instant::now();
    let mut running = Running::start(&mut command);
    let mut seen: Vec<Process> = Vec::new();
    let limit = Duration::from_secs(job.seconds + 15);
    while started.elapsed() < limit
        && running
            .child
            .try_wait()
            .is_ok_and(|status| status.is_none())
    {
        let now = process::below(running.pid());
        seen.extend(
            now.into_iter()
                .filter(|new| !seen.contains(new))
                .collect::<Vec<_>>(),
        );
        beside.call();
        std::thread::sleep(Duration::from_millis(100));
    }
    let code = running.finish(Duration::from_secs(15)).code();
    let (took, processes) = (started.elapsed().as_secs(), seen.len());
    let (calls, slowest) = (beside.calls, beside.slowest.as_millis());
    println!(
        "{:<22} {code:>5} {took:>4} s {processes:>9} {calls:>7} {slowest:>6} ms",
        job.name
    );

    let mut wrong: Vec<String> = beside.end().into_iter().collect();
    wrong.extend(judge_code(job, code));
    let is_worker = |process: &Process| process.name.starts_with("trinity-c");
    if job.name == "trinity" && !seen.iter().any(is_worker) {
        wrong.push("it made no calls".into());
    }
    let left = left_after(&seen, Duration::from_secs(3));
    left.iter().for_each(Process::kill);
    wrong.extend(
        left.iter()
            .map(|process| format!("left running: {process:?}")),
    );
    wrong.extend(differences(&before, &snapshot(world)));
    wrong.extend(bystander.end());
    wrong
}

/// Lazaret's own exit codes are invalid for a job, except 124: trinity never ends by itself.
fn judge_code(job: &Job, code: i32) -> Option<String> {
    let own = (125..=127).contains(&code) || code == 124 && job.name != "trinity";
    (own || job.must_work && code != 0).then(|| format!("ended with {code}"))
}

/// A session of the same user in the same roots, which must keep answering.
struct NeighbourSession {
    session: Session,
    calls: u32,
    slowest: Duration,
    wrong: Option<String>,
}

impl NeighbourSession {
    fn call(&mut self) {
        if self.wrong.is_some() {
            return;
        }
        let started = Instant::now();
        let answer = self.session.bash("echo alive");
        let took = started.elapsed();
        self.calls += 1;
        self.slowest = self.slowest.max(took);
        if !answer.ok() || answer.text().trim() != "alive" || took > ANSWER {
            self.wrong = Some(format!("a call beside took {took:?}: {}", answer.result));
        }
    }

    /// Returns what was wrong; a final call shows that the session still exists.
    fn end(mut self) -> Option<String> {
        self.call();
        let status = self.session.close(Duration::from_secs(10));
        let broken = (!status.success()).then(|| format!("the session beside ended with {status}"));
        self.wrong.or(broken)
    }
}

/// A process of the same user outside that reports any signal that reaches it.
struct Bystander {
    running: Option<Running>,
}

impl Bystander {
    /// A shell that waits for input that never comes, and prints the number of every signal it can trap.
    fn start(world: &World) -> Self {
        let script =
            "for n in {1..31} {34..64}; do trap \"echo signal $n\" $n 2>/dev/null; done; echo ready
            while :; do read -r -t 1 line; done";
        let mut running = Running::start(world.host("bash").args(["-c", script]));
        running.wait_for("ready", Duration::from_secs(10));
        Self {
            running: Some(running),
        }
    }

    /// Returns what was wrong. The last signal is ours: a bystander that does not notice it proves nothing.
    fn end(&mut self) -> Option<String> {
        let mut running = self.running.take()?;
        let bystander = Process::find(running.pid());
        let Some(bystander) = bystander.filter(Process::is_alive) else {
            return Some("the bystander is dead".into());
        };
        let signal = nix::sys::signal::Signal::SIGUSR1;
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(bystander.pid), signal);
        let heard = running.wait_for(
            &format!("signal {}", signal as i32),
            Duration::from_secs(10),
        );
        bystander.kill();
        running.finish(Duration::from_secs(5));
        let heard = String::from_utf8_lossy(&heard).into_owned();
        (heard.lines().count() != 2).then(|| format!("the bystander heard: {heard:?}"))
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            process::kill_tree(running.pid());
        }
    }
}

/// The visible state of a file: content or target, mode, owner, times, links.
type Seen = (Vec<u8>, u32, u32, u32, i64, i64, u64);

/// Everything outside the zones that belongs to the world's user.
fn snapshot(world: &World) -> BTreeMap<PathBuf, Seen> {
    let mut found = BTreeMap::new();
    [&world.outside, &world.home]
        .into_iter()
        .for_each(|folder| read_tree(folder, &mut found));
    found
}

fn read_tree(path: &Path, found: &mut BTreeMap<PathBuf, Seen>) {
    let Ok(data) = fs::symlink_metadata(path) else {
        return;
    };
    let content = if data.is_symlink() {
        fs::read_link(path).map(|target| target.into_os_string().into_encoded_bytes())
    } else if data.is_file() {
        fs::read(path)
    } else {
        Ok(Vec::new())
    };
    let (mode, uid, gid) = (data.mode(), data.uid(), data.gid());
    // Includes the change time, which reveals that a mode or an owner was changed back.
    let seen = (
        content.unwrap_or_default(),
        mode,
        uid,
        gid,
        data.mtime_nsec(),
        data.ctime_nsec(),
        data.nlink(),
    );
    found.insert(path.to_owned(), seen);
    if data.is_dir() {
        fs::read_dir(path)
            .into_iter()
            .flatten()
            .flatten()
            .for_each(|entry| read_tree(&entry.path(), found));
    }
}

fn differences(before: &BTreeMap<PathBuf, Seen>, after: &BTreeMap<PathBuf, Seen>) -> Vec<String> {
    let paths = before
        .keys()
        .chain(after.keys().filter(|path| !before.contains_key(*path)));
    let changed = paths.filter(|path| before.get(*path) != after.get(*path));
    changed
        .map(|path| format!("{} is not as it was", path.display()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_canary_is_seen() {
        let world = World::new(Place::any());
        plant(&world);
        let before = snapshot(&world);
        assert!(before.len() > 10 && differences(&before, &snapshot(&world)).is_empty());
        let canary = world.outside.join("canaries/0/file");
        fs::set_permissions(&canary, fs::Permissions::from_mode(0o666))
            .expect("a file we made is ours");
        assert_eq!(differences(&before, &snapshot(&world)).len(), 1);
        fs::set_permissions(&canary, fs::Permissions::from_mode(0o600))
            .expect("a file we made is ours");
        assert_eq!(differences(&before, &snapshot(&world)).len(), 1, "put back");
        fs::remove_file(&canary).expect("a file we made is ours");
        // The folder has changed with it.
        assert_eq!(differences(&before, &snapshot(&world)).len(), 2);
    }
}
