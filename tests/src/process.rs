//! Starts programs with a bound on everything, and inspects processes from outside through `/proc`.

use crate::sys;
use memchr::memmem;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything that works, even beside a compiler that uses every processor: whatever takes longer hangs.
pub const LIMIT: Duration = Duration::from_secs(180);
/// How long output may stay open after its program has ended.
const END_OF_OUTPUT: Duration = Duration::from_secs(15);

/// A program that has ended.
#[derive(Debug)]
pub struct Finished {
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
    pub took: Duration,
    /// Whether standard output and error were closed soon after its end: otherwise, another process still holds them.
    pub closed: bool,
}

impl Finished {
    /// The exit code, or 128 plus the signal, as in a shell.
    pub fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Standard output, after checking that the program succeeded.
    #[track_caller]
    pub fn success(&self) -> String {
        self.expect(0)
    }

    /// Standard output, after checking the exit code.
    #[track_caller]
    pub fn expect(&self, code: i32) -> String {
        assert_eq!(
            self.code(),
            code,
            "exit code\n--- stdout\n{}\n--- stderr\n{}",
            self.text(),
            self.errors()
        );
        self.text()
    }
}

/// The words of a command for a line of a shell.
pub fn shell_words(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let quoted = words.map(|word| {
        let word = word.to_str().expect("words of tests are UTF-8");
        format!("'{}'", word.replace('\'', "'\\''"))
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Runs a command to its end, without input. Panics if that takes longer than `limit`.
#[track_caller]
pub fn run(command: &mut Command, limit: Duration) -> Finished {
    run_with_input(command, b"", limit)
}

/// Runs a command with `input` on its standard input.
#[track_caller]
pub fn run_with_input(command: &mut Command, input: &[u8], limit: Duration) -> Finished {
    let mut running = Running::start(command);
    let mut stdin = running.child.stdin.take().expect("stdin is a pipe");
    let input = input.to_vec();
    // The program may end without reading all of it; that is no failure of the test.
    thread::spawn(move || stdin.write_all(&input));
    running.finish(limit)
}

/// A running program whose output is collected.
pub struct Running {
    pub child: Child,
    started: Instant,
    stdout: Collector,
    stderr: Collector,
    described: String,
}

impl Running {
    /// Starts a command in a process group of its own, with pipes for all its streams.
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        let described = format!("{command:?}");
        let started = Instant::now();
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child =
            spawn(command).unwrap_or_else(|error| panic!("cannot start {described}: {error}"));
        let stdout = Collector::start(child.stdout.take().expect("stdout is a pipe"));
        let stderr = Collector::start(child.stderr.take().expect("stderr is a pipe"));
        Self {
            child,
            started,
            stdout,
            stderr,
            described,
        }
    }

    /// The process id of the program.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits for the end. If it does not come within `limit`, kills what was started and panics.
    #[track_caller]
    pub fn finish(mut self, limit: Duration) -> Finished {
        let Some(status) = wait(&mut self.child, limit) else {
            kill_tree(self.pid());
            let _ = self.child.wait();
            let end = Instant::now() + END_OF_OUTPUT;
            let ((out, _), (err, _)) = (self.stdout.end(end), self.stderr.end(end));
            let show = |bytes: &[u8]| {
                String::from_utf8_lossy(&bytes[..bytes.len().min(2000)]).into_owned()
            };
            panic!(
                "not over after {limit:?}: {}\n--- stdout\n{}\n--- stderr\n{}",
                self.described,
                show(&out),
                show(&err)
            );
        };
        let (took, end) = (self.started.elapsed(), Instant::now() + END_OF_OUTPUT);
        let (stdout, stdout_closed) = self.stdout.end(end);
        let (stderr, stderr_closed) = self.stderr.end(end);
        Finished {
            status,
            stdout,
            stderr,
            took,
            closed: stdout_closed && stderr_closed,
        }
    }

    /// Waits until standard output contains `text`, and returns the output so far. Panics after `limit`.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str, limit: Duration) -> Vec<u8> {
        let found = until(limit, || {
            self.stdout.take();
            contains(&self.stdout.bytes, text.as_bytes())
        });
        let got = String::from_utf8_lossy(&self.stdout.bytes);
        assert!(
            found,
            "no {text:?} from {} within {limit:?}, only {got:?}",
            self.described
        );
        self.stdout.bytes.clone()
    }
}

/// Reads a stream on a thread, so that nothing has to wait for it.
struct Collector {
    chunks: Receiver<Vec<u8>>,
    bytes: Vec<u8>,
}

impl Collector {
    fn start(mut stream: impl Read + Send + 'static) -> Self {
        let (sender, chunks) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 64 * 1024];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self {
            chunks,
            bytes: Vec::new(),
        }
    }

    fn take(&mut self) {
        self.bytes.extend(self.chunks.try_iter().flatten());
    }

    /// The whole output, and whether the stream ended before `end`.
    fn end(mut self, end: Instant) -> (Vec<u8>, bool) {
        loop {
            match self
                .chunks
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            {
                Ok(chunk) => self.bytes.extend(chunk),
                Err(error) => {
                    return (
                        self.bytes,
                        error == std::sync::mpsc::RecvTimeoutError::Disconnected,
                    );
                }
            }
        }
    }
}

/// Waits for a child, at most `limit`.
pub fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + limit;
    let mut waiting = None;
    loop {
        if let Some(status) = child.try_wait().expect("a child of ours can be waited for") {
            return Some(status);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        let ended = waiting.get_or_insert_with(|| {
            sys::open_process(child.id()).expect("a child that is not reaped has a descriptor")
        });
        let mut asked = [PollFd::new(ended.as_fd(), PollFlags::POLLIN)];
        // An interrupted poll is begun again.
        let _ = poll(
            &mut asked,
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX),
        );
    }
}

/// Whether `condition` becomes true within `limit`. The pauses grow with the time: many conditions read all of `/proc`, and other
/// tests want the processors.
pub fn until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let (least, most) = (Duration::from_millis(1), Duration::from_millis(100));
    let start = Instant::now();
    loop {
        if condition() {
            return true;
        }
        let waited = start.elapsed();
        if waited > limit {
            return false;
        }
        thread::sleep((waited / 16).clamp(least, most));
    }
}

/// Whether `part` is in `whole`.
pub fn contains(whole: &[u8], part: &[u8]) -> bool {
    memmem::find(whole, part).is_some()
}

/// A process as `/proc` shows it. The start time distinguishes it from a later one with the same number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    /// Its name, at most 15 bytes.
    pub name: String,
    /// Its command line, blanks between the words.
    pub command: String,
    started: u64,
}

/// What the kernel says of a process in one line, besides its number.
struct Stat {
    name: String,
    /// A letter: `S` sleeps, `T` is stopped.
    state: char,
    parent: i32,
    started: u64,
}

impl Stat {
    /// Of the process with this number, unless it is gone or a zombie.
    fn read(pid: i32) -> Option<Self> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        let (head, rest) = stat.rsplit_once(')')?;
        let name = head.split_once('(')?.1.to_owned();
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        if matches!(state, 'Z' | 'X') {
            return None;
        }
        let parent = fields.next()?.parse().ok()?;
        let started = fields.nth(17)?.parse().ok()?;
        Some(Self {
            name,
            state,
            parent,
            started,
        })
    }
}

impl Process {
    /// Whether its memory, which has its environment too, holds these bytes; not where the caller may not read it.
    pub fn memory_holds(&self, bytes: impl AsRef<[u8]>) -> bool {
        let wanted = bytes.as_ref();
        self.in_memory(|part| memmem::find(part, wanted).is_some())
    }

    /// Whether `is_found` says so of a mapping of its memory; not where the caller may not read it.
    pub fn in_memory(&self, mut is_found: impl FnMut(&[u8]) -> bool) -> bool {
        let at = |file: &str| format!("/proc/{}/{file}", self.pid);
        let (Ok(maps), Ok(memory)) = (fs::read_to_string(at("maps")), File::open(at("mem"))) else {
            return false;
        };
        let readable = maps.lines().filter_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (start, end) = range.split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).ok();
            rest.starts_with('r')
                .then_some((number(start)?, number(end)?))
        });
        readable.into_iter().any(|(start, end)| {
            let length = usize::try_from(end - start).expect("a mapping fits into memory");
            let mut bytes = vec![0; length.min(1 << 28)];
            let read = memory.read_at(&mut bytes, start).unwrap_or(0);
            is_found(&bytes[..read])
        })
    }

    /// The process with this number, unless it is gone or a zombie.
    pub fn find(pid: i32) -> Option<Self> {
        let Stat {
            name,
            parent,
            started,
            ..
        } = Stat::read(pid)?;
        let command = String::from_utf8_lossy(&command_line(pid))
            .trim_end()
            .to_owned();
        Some(Self {
            pid,
            parent,
            name,
            command,
            started,
        })
    }

    /// Whether it is still the same process, and alive.
    pub fn is_alive(&self) -> bool {
        Stat::read(self.pid).is_some_and(|now| now.started == self.started)
    }

    /// Whether a signal has stopped it.
    pub fn is_stopped(&self) -> bool {
        self.state() == Some('T')
    }

    /// Whether it waits for something.
    pub fn is_asleep(&self) -> bool {
        self.state() == Some('S')
    }

    fn state(&self) -> Option<char> {
        Stat::read(self.pid)
            .filter(|now| now.started == self.started)
            .map(|now| now.state)
    }

    /// Kills it if it is still the same process.
    pub fn kill(&self) {
        if self.is_alive() {
            let _ = kill(Pid::from_raw(self.pid), Signal::SIGKILL);
        }
    }
}

/// The numbers of all visible processes.
fn numbers() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The command line of a process with blanks between the words; empty if it is gone.
fn command_line(pid: i32) -> Vec<u8> {
    let mut bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    bytes
        .iter_mut()
        .filter(|byte| **byte == 0)
        .for_each(|byte| *byte = b' ');
    bytes
}

/// Every visible process.
pub fn all() -> Vec<Process> {
    numbers().filter_map(Process::find).collect()
}

/// A process and all its descendants, parents first.
pub fn tree(root: i32) -> Vec<Process> {
    let parents: Vec<(i32, i32)> = numbers()
        .filter_map(|pid| Some((pid, Stat::read(pid)?.parent)))
        .collect();
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        let children = parents.iter().filter(|(_, of)| *of == parent);
        found.extend(children.map(|(pid, _)| pid));
        next += 1;
    }
    found.into_iter().filter_map(Process::find).collect()
}

/// All descendants of a process, without itself.
pub fn below(root: i32) -> Vec<Process> {
    tree(root)
        .into_iter()
        .filter(|process| process.pid != root)
        .collect()
}

/// Live processes with `marker` in their command line. The marker's position in it has to exclude the caller and its `lazaret`.
pub fn with_marker(marker: &str) -> Vec<Process> {
    numbers()
        .filter(|pid| contains(&command_line(*pid), marker.as_bytes()))
        .filter_map(Process::find)
        .collect()
}

/// Live processes with `text` somewhere in their initial environment, if that is readable.
pub fn with_environment(text: &str) -> Vec<Process> {
    let has_it = |pid: &i32| {
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|bytes| contains(&bytes, text.as_bytes()))
    };
    numbers().filter(has_it).filter_map(Process::find).collect()
}

/// Those of `processes` that are still alive after `limit`.
pub fn left_after(processes: &[Process], limit: Duration) -> Vec<Process> {
    let alive = || {
        processes
            .iter()
            .filter(|process| process.is_alive())
            .cloned()
            .collect::<Vec<_>>()
    };
    until(limit, || alive().is_empty());
    alive()
}

/// Number of consecutive checks that must find nothing: during an exec, a process has no command line for a moment.
const LOOKS: u32 = 5;

/// Fails if a process with `marker` is alive after `limit`, and kills it, since it comes from the failing test.
#[track_caller]
pub fn assert_gone(marker: &str, limit: Duration) {
    let mut clear = 0;
    until(limit, || {
        clear = if with_marker(marker).is_empty() {
            clear + 1
        } else {
            0
        };
        clear == LOOKS
    });
    let left = with_marker(marker);
    left.iter().for_each(Process::kill);
    assert!(left.is_empty(), "still alive after {limit:?}: {left:#?}");
}

/// Kills a process that we started and all its descendants.
pub fn kill_tree(root: i32) {
    tree(root).iter().for_each(Process::kill);
}

/// The line of `/proc/PID/FILE` that begins with `key`, as a number; sizes are in KiB.
pub fn figure(pid: i32, file: &str, key: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':').map(str::trim))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Starts a command. A program that a test has just copied is busy while a process that another test is starting at that moment has
/// not called exec yet: until then it holds the copy's descriptor.
fn spawn(command: &mut Command) -> io::Result<Child> {
    for _ in 0..100 {
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
                thread::sleep(Duration::from_millis(20));
            }
            spawned => return spawned,
        }
    }
    command.spawn()
}
