//! A pseudo-terminal created by the test, with a program on it: what a person at a keyboard has.

use crate::process::{self, LIMIT, Process, contains, until};
use crate::sys;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, poll};
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::stat::Mode;
use nix::sys::termios::{Termios, tcgetattr};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// A program on a terminal of ours.
pub struct Terminal {
    pub child: Child,
    /// The test's end; `None` after a hang-up.
    keyboard: Option<File>,
    /// Tells the thread that reads the screen to close its end.
    hung_up: Arc<AtomicBool>,
    /// Kept open, so that the terminal's settings can be checked after the program's end.
    slave: Option<OwnedFd>,
    screen: Receiver<Vec<u8>>,
    seen: Vec<u8>,
    /// How much of `seen` earlier waits have consumed.
    used: usize,
    before: Termios,
}

impl Terminal {
    /// Starts a command as leader of a session on a terminal of this size.
    pub fn start(command: &mut Command, rows: u16, columns: u16) -> Self {
        let (keyboard, end) = open_pair().expect("a pseudo-terminal can be had");
        sys::set_terminal_size(keyboard.as_fd(), rows, columns)
            .expect("a terminal of ours has a size");
        let slave = || end.try_clone().expect("a descriptor can be doubled");
        command.stdin(slave()).stdout(slave()).stderr(slave());
        sys::with_controlling_terminal(command);
        let before = tcgetattr(&end).expect("a terminal has settings");
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        // The command keeps its own descriptors of the terminal until it is dropped or changed.
        command
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null());
        command.stderr(std::process::Stdio::null());
        let hung_up = Arc::new(AtomicBool::new(false));
        let screen = watch(
            keyboard.try_clone().expect("a descriptor can be doubled"),
            hung_up.clone(),
        );
        let (keyboard, slave) = (Some(keyboard), Some(end));
        Self {
            child,
            keyboard,
            hung_up,
            slave,
            screen,
            seen: Vec::new(),
            used: 0,
            before,
        }
    }

    pub fn send(&mut self, keys: &str) {
        self.keyboard()
            .write_all(keys.as_bytes())
            .expect("a terminal of ours takes input");
    }

    /// Waits until `text` appears after what earlier waits have consumed.
    #[track_caller]
    pub fn expect(&mut self, text: &str, limit: Duration) {
        let found = self.shows(text, limit);
        let new = String::from_utf8_lossy(&self.seen[self.used..]);
        assert!(
            found,
            "no {text:?} on the terminal within {limit:?}, only {new:?}"
        );
    }

    /// Whether `text` appears within `limit`, after what earlier waits have consumed.
    pub fn shows(&mut self, text: &str, limit: Duration) -> bool {
        let found = until(limit, || {
            self.seen.extend(self.screen.try_iter().flatten());
            contains(&self.seen[self.used..], text.as_bytes())
        });
        let at = self.seen[self.used..]
            .windows(text.len())
            .position(|window| window == text.as_bytes());
        self.used += at.map_or(0, |at| at + text.len());
        found
    }

    /// Sends keys until they have their effect. A question discards what comes before it has stood for 0.4 s, or is asked anew, and
    /// on a busy machine nobody else knows when that is over: so each pause is twice as long as the one before.
    #[track_caller]
    pub fn insist(&mut self, keys: &str, mut has_effect: impl FnMut(&mut Self) -> bool) {
        let mut pause = Duration::from_millis(500);
        let taken = until(LIMIT, || {
            self.send(keys);
            pause *= 2;
            until(pause / 2, || has_effect(self))
        });
        assert!(taken, "{keys:?} has no effect: {:?}", self.screen());
    }

    /// Sends keys until `text` appears.
    #[track_caller]
    pub fn answer(&mut self, keys: &str, text: &str) {
        self.insist(keys, |terminal| terminal.shows(text, Duration::ZERO));
    }

    /// Whether the program has ended.
    pub fn has_ended(&mut self) -> bool {
        let ended = self
            .child
            .try_wait()
            .expect("a child of ours can be waited for");
        ended.is_some()
    }

    /// Everything that has been on the screen so far.
    pub fn screen(&mut self) -> String {
        self.seen.extend(self.screen.try_iter().flatten());
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// What a person sees on a screen of this size: non-empty rows, without trailing spaces.
    pub fn rows(&mut self, rows: u16, columns: u16) -> Vec<String> {
        let size = |count| std::num::NonZero::new(count).expect("a screen has rows and columns");
        let mut screen = vt100::Parser::new(size(rows), size(columns), 0);
        self.screen();
        screen.process(&self.seen);
        let rows = screen
            .screen()
            .rows(0, columns)
            .map(|row| row.trim_end().to_owned());
        rows.filter(|row| !row.is_empty()).collect()
    }

    /// Changes the size, as a window manager would.
    pub fn resize(&self, rows: u16, columns: u16) {
        sys::set_terminal_size(self.keyboard().as_fd(), rows, columns)
            .expect("a terminal of ours has a size");
    }

    /// Closes the terminal, like closing its window: its session gets a hang-up signal.
    pub fn hang_up(&mut self) {
        self.hung_up.store(true, Ordering::SeqCst);
        self.keyboard = None;
        self.slave = None;
    }

    fn keyboard(&self) -> &File {
        self.keyboard.as_ref().expect("the terminal is not hung up")
    }

    /// Waits for the program's end.
    #[track_caller]
    pub fn finish(&mut self, limit: Duration) -> ExitStatus {
        let Some(status) = process::wait(&mut self.child, limit) else {
            let screen = self.screen();
            panic!("not over after {limit:?}, on the screen: {screen:?}");
        };
        status
    }

    /// Whether the terminal's settings are the same as before the program.
    pub fn is_restored(&self) -> bool {
        self.slave
            .as_ref()
            .is_some_and(|slave| tcgetattr(slave).is_ok_and(|now| now == self.before))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(process) = Process::find(self.child.id() as i32) {
            process::kill_tree(process.pid);
        }
        let _ = self.child.wait();
    }
}

/// Both ends of a new terminal. No other program that this process starts may inherit them: it would keep the terminal open.
fn open_pair() -> nix::Result<(File, OwnedFd)> {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let master = posix_openpt(flags)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let end = nix::fcntl::open(ptsname_r(&master)?.as_str(), flags, Mode::empty())?;
    Ok((File::from(OwnedFd::from(master)), end))
}

/// Reads the screen on a thread, and checks from time to time whether to close it.
fn watch(mut screen: File, hung_up: Arc<AtomicBool>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while !hung_up.load(Ordering::SeqCst) {
            let mut asked = [PollFd::new(screen.as_fd(), PollFlags::POLLIN)];
            if poll(&mut asked, 20u8) == Ok(0) {
                continue;
            }
            match screen.read(&mut buffer) {
                Ok(length @ 1..) if sender.send(buffer[..length].to_vec()).is_ok() => {}
                _ => return,
            }
        }
    });
    receiver
}
