//! One running command: its descriptors, its clocks, its output and its end.

use super::account::Account;
use super::capture::Capture;
use crate::sys::{self, Used};
use crate::warden::report::{End, REPORT_LEN, Report};
use broker_protocol::{Bash, Broken, Ended, Limit, Outcome, Ran, Stdin, Usage, ZonePath, limit};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, Shutdown, recv, shutdown};
use nix::unistd::{read, write};
use policies::Limits;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a cell may take to end its processes before it is killed from outside.
const SWEEP_PATIENCE: Duration = Duration::from_secs(2);
/// Most bytes that are read after a command's processes are dead: the largest pipe an ordinary user can have
/// (`/proc/sys/fs/pipe-max-size`). More can only come from a stranger who was handed the other end.
const LAST_BYTES: usize = 1 << 20;

/// A cell that is ready, or at work.
#[derive(Debug)]
pub struct CellHandle {
    /// Orders go down here, and the report comes up.
    pub socket: OwnedFd,
    /// The cell's first process.
    pub pidfd: OwnedFd,
}

impl CellHandle {
    /// Whether the cell has ended and says nothing: it was killed while it waited.
    pub fn is_gone(&self) -> bool {
        let peeked = recv(self.socket.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT);
        matches!(peeked, Ok(0) | Err(Errno::ECONNRESET))
    }

    /// Why the cell has ended before its order came, if it says so: a layer that could not be put up, or does not bite.
    pub fn refusal(&self) -> Option<Outcome> {
        let mut buffer = [0; REPORT_LEN];
        let (length, _) = sys::receive(self.socket.as_fd(), &mut buffer, libc::MSG_DONTWAIT).ok()?;
        match Report::decode(&buffer[..length])?.end {
            End::Unconfined { layer, errno } => Some(unconfined(layer.name(), errno)),
            End::Exited(_) | End::Signalled(_) | End::NotStarted(_) | End::NoDirectory(_) => None,
        }
    }
}

/// The broker's ends of a command's standard streams, none of which waits.
#[derive(Debug)]
pub struct Streams {
    /// Standard output, or the terminal.
    pub stdout: OwnedFd,
    /// Standard error; a terminal has none of its own.
    pub stderr: Option<OwnedFd>,
    /// Standard input, if the client feeds it.
    pub stdin: Option<OwnedFd>,
}

/// A command in its cell.
#[derive(Debug)]
pub struct Command {
    cell: CellHandle,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    stdin: Option<OwnedFd>,
    terminal: bool,
    live: bool,
    input: VecDeque<u8>,
    input_ended: bool,
    /// Bytes the client may still send before it is given more credit.
    input_window: u32,
    /// Bytes of live output the client still takes.
    credit: u32,
    sequence: u64,
    capture: Capture,
    timeout_s: Option<u32>,
    clocks: Clocks,
    output_cap: Option<u64>,
    cpu_s: Option<u64>,
    account: Option<Account>,
    usage: Usage,
    /// Why the broker ended the command, if it did.
    ended: Option<Ended>,
    report: Option<Result<Report, io::ErrorKind>>,
    after_report: usize,
}

#[derive(Debug)]
struct Clocks {
    wall: Option<Instant>,
    idle: Option<Duration>,
    last_output: Instant,
    /// When the cell is killed from outside.
    kill: Option<Instant>,
}

/// A piece of output as it came.
pub struct Chunk {
    /// Whether it is standard error.
    pub stderr: bool,
    /// Its number.
    pub sequence: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Command {
    /// A command whose order has just been sent.
    pub fn new(
        cell: CellHandle,
        streams: Streams,
        request: &Bash,
        timeout_s: Option<u32>,
        limits: &Limits,
        capture: Capture,
    ) -> Self {
        let now = Instant::now();
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        Self {
            cell,
            stdout: Some(streams.stdout),
            stderr: streams.stderr,
            stdin: streams.stdin,
            terminal: matches!(request.stdin, Stdin::Terminal(_)),
            live: request.live && !request.background,
            input: VecDeque::new(),
            input_ended: false,
            input_window: limit::INPUT_WINDOW,
            credit: limit::OUTPUT_WINDOW,
            sequence: 0,
            capture,
            timeout_s,
            clocks: Clocks {
                wall: timeout_s.map(|limit| now + seconds(limit)),
                idle: request.idle_timeout_s.map(seconds),
                last_output: now,
                kill: None,
            },
            output_cap: limits.output,
            cpu_s: limits.cpu_s,
            account: Account::open(limits),
            usage: Usage::default(),
            ended: None,
            report: None,
            after_report: 0,
        }
    }

    /// Has all output written to its file, not only where it is too much for the result; says where.
    pub fn open_spill(&mut self, central: &Path) -> Option<ZonePath> {
        self.capture.open(central)
    }

    /// What is kept of its output.
    pub fn capture(&self) -> &Capture {
        &self.capture
    }

    /// Takes what is kept of its output, for one whose result is not wanted.
    pub fn take_capture(&mut self) -> Capture {
        std::mem::replace(&mut self.capture, Capture::new(0, 0, String::new()))
    }

    /// Its time limit in seconds.
    pub fn timeout_s(&self) -> Option<u32> {
        self.timeout_s
    }

    /// Its cell's first process.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.cell.pidfd.as_fd()
    }

    /// What it has used so far, with CPU and memory from `seen`.
    pub fn usage(&self, seen: Usage) -> Usage {
        Usage { user_us: seen.user_us, system_us: seen.system_us, peak_kib: seen.peak_kib, ..self.usage }
    }

    /// The cell's socket, readable when it reports; `None` once it has.
    pub fn report_fd(&self) -> Option<BorrowedFd<'_>> {
        self.report.is_none().then(|| self.cell.socket.as_fd())
    }

    /// A stream to read now, if the client takes its output.
    pub fn output_fd(&self, stderr: bool) -> Option<BorrowedFd<'_>> {
        if self.is_live() && self.credit == 0 {
            return None;
        }
        if stderr { self.stderr.as_ref() } else { self.stdout.as_ref() }.map(AsFd::as_fd)
    }

    /// Whether output is sent while it comes. Once the broker has ended the command, a client that gives no credit
    /// does not hold up the end: what is left goes into the result only.
    fn is_live(&self) -> bool {
        self.live && (self.credit > 0 || self.ended.is_none())
    }

    /// Standard input, if there is something for it.
    pub fn input_fd(&self) -> Option<BorrowedFd<'_>> {
        let wanted = !self.input.is_empty() || self.input_ended;
        self.stdin.as_ref().filter(|_| wanted).map(AsFd::as_fd)
    }

    /// When something happens by itself.
    pub fn deadline(&self) -> Option<Instant> {
        let idle = self.clocks.idle.map(|idle| self.clocks.last_output + idle);
        let running = self.report.is_none() && self.ended.is_none();
        let look = self.account.as_ref().map(Account::due);
        let watched = if running { [self.clocks.wall, idle, look] } else { [None; 3] };
        watched.into_iter().chain([self.clocks.kill]).flatten().min()
    }

    /// Acts on clocks that have run out.
    pub fn tick(&mut self, now: Instant) {
        let over = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        if over(self.clocks.kill) {
            self.clocks.kill = None;
            // It is gone already if this fails.
            let _ = sys::pidfd_signal(self.cell.pidfd.as_fd(), libc::SIGKILL);
        } else if over(self.clocks.wall) {
            self.end(Ended::TimedOut);
        } else if over(self.clocks.idle.map(|idle| self.clocks.last_output + idle)) {
            self.end(Ended::Idle);
        } else if over(self.account.as_ref().map(Account::due)) {
            self.look(now);
        }
    }

    fn look(&mut self, now: Instant) {
        let pidfd = self.cell.pidfd.as_fd();
        if self.ended.is_none()
            && let Some(limit) = self.account.as_mut().and_then(|account| account.look(pidfd, now))
        {
            self.end(Ended::Limited(limit));
        }
    }

    /// Ends the command: the cell kills everything in it and reports.
    pub fn end(&mut self, why: Ended) {
        if self.report.is_some() {
            // It has ended by itself; a client that wants no more of it need not take the rest of its output.
            self.live = false;
            return;
        }
        if self.ended.is_some() {
            return;
        }
        self.ended = Some(why);
        self.clocks.kill = Some(Instant::now() + SWEEP_PATIENCE);
        // The cell takes the end of its orders for the end of its work; if it is gone, its report says so.
        let _ = shutdown(self.cell.socket.as_raw_fd(), Shutdown::Write);
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: i32) {
        if self.report.is_none() && self.ended.is_none() {
            // A cell that is gone reports by the end of its socket.
            let _ = sys::send(self.cell.socket.as_fd(), &[signal as u8], &[]);
        }
    }

    /// Sets the terminal's size.
    pub fn resize(&self, rows: u16, columns: u16) {
        if let (true, Some(terminal)) = (self.terminal, &self.stdout) {
            // A terminal whose program has ended has no size to set.
            let _ = sys::terminal_size(terminal.as_fd(), rows, columns);
        }
    }

    /// Gives credit for live output, never more than a window.
    pub fn give_credit(&mut self, bytes: u32) {
        self.credit = self.credit.saturating_add(bytes).min(limit::OUTPUT_WINDOW);
    }

    /// Takes input for the command; false if the client has sent more than its window.
    #[must_use]
    pub fn take_input(&mut self, bytes: &[u8]) -> bool {
        let Some(window) =
            u32::try_from(bytes.len()).ok().and_then(|length| self.input_window.checked_sub(length))
        else {
            return false;
        };
        self.input_window = window;
        if !self.input_ended {
            self.input.extend(bytes);
        }
        true
    }

    /// No more input will come.
    pub fn end_input(&mut self) {
        self.input_ended = true;
    }

    /// Writes input that the command takes now; returns how many bytes the client may send in their place.
    pub fn feed(&mut self) -> u32 {
        let Some(stdin) = &self.stdin else { return self.discard_input() };
        let mut fed = 0;
        while let (chunk @ [_, ..], _) = self.input.as_slices() {
            match write(stdin, &chunk[..chunk.len().min(limit::CHUNK)]) {
                Ok(length) => {
                    self.input.drain(..length);
                    fed += length as u32;
                }
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                // Nobody reads any more, as when `head` has seen enough.
                Err(_) => return fed + self.discard_input(),
            }
        }
        self.usage.stdin_bytes += u64::from(fed);
        if self.input.is_empty() && self.input_ended {
            self.close_input();
        }
        self.credit_input(fed)
    }

    fn discard_input(&mut self) -> u32 {
        let dropped = self.input.len() as u32;
        self.input.clear();
        self.stdin = None;
        self.credit_input(dropped)
    }

    fn credit_input(&mut self, bytes: u32) -> u32 {
        self.input_window += bytes;
        bytes
    }

    /// Ends standard input: a pipe is closed, a terminal is told by its end-of-file character, Control-D.
    fn close_input(&mut self) {
        const END_OF_FILE: &[u8] = &[4];
        if let (true, Some(stdin)) = (self.terminal, &self.stdin) {
            // If the terminal takes nothing now, its program has other things to read first, or has ended.
            let _ = write(stdin, END_OF_FILE);
        }
        self.input_ended = false;
        self.stdin = None;
    }

    /// Reads one piece of output.
    pub fn read(&mut self, stderr: bool, buffer: &mut [u8], central: &Path) -> Option<Chunk> {
        let live = self.is_live();
        let most = if live { buffer.len().min(self.credit as usize) } else { buffer.len() };
        if most == 0 {
            return None;
        }
        let stream = if stderr { &mut self.stderr } else { &mut self.stdout };
        let length = match read(stream.as_ref()?, &mut buffer[..most]) {
            Ok(length) if length > 0 => length,
            Err(Errno::EAGAIN) if self.report.is_none() => return None,
            Err(Errno::EINTR) => return None,
            // The end; a terminal whose last user is gone answers EIO. With everybody dead, no more can come.
            _ => {
                *stream = None;
                return None;
            }
        };
        self.took(stderr, live, &buffer[..length], central)
    }

    fn took(&mut self, stderr: bool, live: bool, bytes: &[u8], central: &Path) -> Option<Chunk> {
        self.clocks.last_output = Instant::now();
        self.capture.push(bytes, central);
        let counter = if stderr { &mut self.usage.stderr_bytes } else { &mut self.usage.stdout_bytes };
        *counter += bytes.len() as u64;
        if self.output_cap.is_some_and(|cap| self.capture.total() > cap) {
            self.end(Ended::Limited(Limit::Output));
        }
        self.bound_last_bytes(bytes.len());
        if !live {
            return None;
        }
        self.credit -= bytes.len() as u32;
        self.sequence += 1;
        Some(Chunk { stderr, sequence: self.sequence - 1, bytes: bytes.to_vec() })
    }

    fn bound_last_bytes(&mut self, length: usize) {
        if self.report.is_some() {
            self.after_report += length;
            if self.after_report > 2 * LAST_BYTES {
                (self.stdout, self.stderr) = (None, None);
            }
        }
    }

    /// Reads the cell's report.
    pub fn hear(&mut self) {
        if self.report.is_some() {
            return;
        }
        let mut buffer = [0; REPORT_LEN];
        let mut receive = || sys::receive(self.cell.socket.as_fd(), &mut buffer, libc::MSG_DONTWAIT);
        let heard = match receive() {
            // The cell left a signal of ours unread: the kernel says so first, and gives the report after that.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => receive(),
            heard => heard,
        };
        self.report = match heard {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => Some(Err(error.kind())),
            Ok((length, _)) => Some(Report::decode(&buffer[..length]).ok_or(io::ErrorKind::UnexpectedEof)),
        };
        self.clocks.kill = None;
        self.stdin = None;
    }

    /// Whether everything is over: the processes are dead and their output is read.
    pub fn is_over(&self) -> bool {
        self.report.is_some() && self.stdout.is_none() && self.stderr.is_none()
    }

    /// The outcome of a command that is over, and the place where it was, if the next one may be there.
    pub fn finish(self) -> (Outcome, Usage, Option<CellHandle>) {
        let none = Report { end: End::Signalled(libc::SIGKILL), again: false, used: Used::default() };
        let report = match self.report {
            Some(Ok(report)) => report,
            // Killed from outside on purpose: it was ended, and only its figures are lost.
            Some(Err(_)) | None if self.ended.is_some() => none,
            Some(Err(_)) | None => {
                let message = "the cell ended without a report".into();
                return (Outcome::Broken(Broken { message }), self.usage, None);
            }
        };
        // One that the broker has ended was told that no more orders come, and leaves.
        let place = (report.again && self.ended.is_none()).then_some(self.cell);
        let Used { user_us, system_us, peak_kib } = report.used;
        let usage = Usage { user_us, system_us, peak_kib, ..self.usage };
        let ended = match (self.ended, report.end) {
            (_, End::Unconfined { layer, errno }) => return (unconfined(layer.name(), errno), usage, None),
            (Some(why), _) => why,
            (None, end) => natural_end(end, &usage, self.cpu_s),
        };
        let (output, spill) = self.capture.finish();
        let ran = Ran { ended, output, spill, timeout_s: self.timeout_s };
        (Outcome::Ran(ran), usage, place)
    }
}

fn unconfined(layer: &str, errno: i32) -> Outcome {
    let error = io::Error::from_raw_os_error(errno);
    Outcome::Broken(Broken {
        message: format!("nothing was run: the layer {layer} cannot be put up: {error}"),
    })
}

/// How a command ended that the broker did not end; limits kept by the kernel end it by signals.
fn natural_end(end: End, usage: &Usage, cpu_s: Option<u64>) -> Ended {
    let cpu_spent = cpu_s.is_some_and(|limit| (usage.user_us + usage.system_us) / 1_000_000 >= limit);
    match end {
        End::Signalled(libc::SIGXFSZ) => Ended::Limited(Limit::FileSize),
        End::Signalled(libc::SIGXCPU) => Ended::Limited(Limit::Cpu),
        End::Signalled(libc::SIGKILL) if cpu_spent => Ended::Limited(Limit::Cpu),
        End::Signalled(signal) => Ended::Signalled(signal),
        End::Exited(code) => Ended::Exited(code),
        End::NotStarted(errno) | End::Unconfined { errno, .. } => Ended::NotStarted(errno),
        End::NoDirectory(errno) => Ended::NoDirectory(errno),
    }
}
