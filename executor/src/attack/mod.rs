//! The self-attack: real attacks, each tried by a plain process of the broker's and then in a cell of the session.
//!
//! A refusal proves something only where the attack works without a cell, so the same function runs twice: in the
//! control, a fork of the broker with no layer, and where a cell would start a program, prepared as a program is. One
//! process an attack: what the kernel kills does not end the rest. [`siege`] has the story; the attacks are in [`table`].
//! What comes up from the cell is records of fixed size.

pub mod siege;
mod files;
mod kernel;
mod network;
mod processes;
mod scene;
mod table;

pub use siege::Siege;

use crate::sys::{Fork, fork};
use broker_protocol::Attempt;
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, alarm};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::process::exit;
use table::ATTACKS;

/// A variable that the broker has beside those it was started with, and that no program may have.
pub const VARIABLE: &str = "LAZARET_CANARY_SECRET";

/// Seconds after which an attack that does not end is ended.
const PATIENCE_S: u32 = 2;

/// What is attacked, as data: it goes down to a cell with its order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Targets {
    /// A directory outside both zones.
    pub outside: String,
    /// A directory that the attacker may write to.
    pub own: String,
    /// What stands in the file outside, in the bystander's memory and in its environment.
    pub secret: String,
    /// A process of the same user outside.
    pub bystander: i32,
    /// Where the secret stands in its memory.
    pub address: u64,
    /// The bystander's TCP port on 127.0.0.1.
    pub tcp: u16,
    /// Its UDP port.
    pub udp: u16,
    /// Names of the variables that a program started here would have. Each side fills in its own.
    #[serde(skip)]
    pub variables: Vec<Vec<u8>>,
}

/// Tries every attack, one process each, and writes a [`record`] of each to standard output.
pub fn run(targets: &Targets) -> io::Result<()> {
    for (index, attack) in ATTACKS.iter().enumerate() {
        let attempt = attempt(|| (attack.run)(targets)).unwrap_or(Attempt::Unknown);
        io::stdout().write_all(&record(index, attempt))?;
        // What is left in the buffer, the next process would have too, and write again.
        io::stdout().flush()?;
    }
    Ok(())
}

/// Tries one in a process of its own, whose exit code is the error number, or 0.
fn attempt(attack: impl FnOnce() -> io::Result<()>) -> io::Result<Attempt> {
    match fork(0)? {
        Fork::Child => {
            alarm::set(PATIENCE_S);
            // A program is dumpable, and leaves no core here.
            let ready = prctl::set_dumpable(true).and_then(|()| setrlimit(Resource::RLIMIT_CORE, 0, 0));
            match ready.map_err(io::Error::from).and_then(|()| attack()) {
                Ok(()) => exit(0),
                Err(error) => exit(error.raw_os_error().unwrap_or(libc::EIO)),
            }
        }
        Fork::Parent(child) => Ok(came_to(waitpid(Pid::from_raw(child.pid), None)?)),
    }
}

/// What the end of an attack's process means.
fn came_to(end: WaitStatus) -> Attempt {
    match end {
        WaitStatus::Exited(_, 0) => Attempt::Got,
        WaitStatus::Exited(_, errno) => Attempt::Refused(errno),
        // Any other signal is our own doing: the attack hung, or is wrong.
        WaitStatus::Signaled(_, signal @ (Signal::SIGSYS | Signal::SIGSEGV), _) => {
            Attempt::Killed(signal as i32)
        }
        _ => Attempt::Unknown,
    }
}

/// The error of an attack that the kernel let pass and that found something else than what it was after.
fn nothing_got() -> io::Error {
    io::Error::from_raw_os_error(libc::ENODATA)
}

/// Whether what was got is the secret.
fn is_secret(targets: &Targets, got: &[u8]) -> io::Result<()> {
    if got.starts_with(targets.secret.as_bytes()) { Ok(()) } else { Err(nothing_got()) }
}

/// Bytes of a [`record`].
const RECORD: usize = 6;

/// An attack's place in the table, a tag, and an error number or a signal.
fn record(index: usize, attempt: Attempt) -> [u8; RECORD] {
    let (tag, value) = match attempt {
        Attempt::Got => (0, 0),
        Attempt::Refused(errno) => (1, errno),
        Attempt::Killed(signal) => (2, signal),
        Attempt::Unknown => (3, 0),
    };
    let [a, b, c, d] = value.to_le_bytes();
    [index as u8, tag, a, b, c, d]
}

/// What records say of each attack; nothing is known of one that has none.
fn attempts(bytes: &[u8]) -> Vec<Attempt> {
    let mut attempts = vec![Attempt::Unknown; ATTACKS.len()];
    for record in bytes.chunks_exact(RECORD) {
        let value = record[2..].first_chunk().map_or(0, |value| i32::from_le_bytes(*value));
        let attempt = match record[1] {
            0 => Attempt::Got,
            1 => Attempt::Refused(value),
            2 => Attempt::Killed(value),
            _ => Attempt::Unknown,
        };
        if let Some(place) = attempts.get_mut(usize::from(record[0])) {
            *place = attempt;
        }
    }
    attempts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_read_back_and_what_is_missing_is_unknown() {
        let all = [Attempt::Got, Attempt::Refused(libc::EACCES), Attempt::Killed(libc::SIGSYS)];
        let mut bytes: Vec<u8> = all.iter().enumerate().flat_map(|(i, one)| record(i, *one)).collect();
        bytes.extend([1, 2, 3]);
        let got = attempts(&bytes);
        assert_eq!(got[..3], all);
        assert!(got.len() == ATTACKS.len() && got[3..].iter().all(|one| *one == Attempt::Unknown));
        assert!(attempts(&[255; 3 * RECORD]).iter().all(|one| *one == Attempt::Unknown));
    }

    #[test]
    fn only_the_kernels_own_signals_are_its_refusal() {
        let pid = Pid::from_raw(7);
        assert_eq!(came_to(WaitStatus::Exited(pid, 0)), Attempt::Got);
        assert_eq!(came_to(WaitStatus::Exited(pid, 13)), Attempt::Refused(13));
        let killed = |signal| came_to(WaitStatus::Signaled(pid, signal, false));
        assert_eq!(killed(Signal::SIGSYS), Attempt::Killed(libc::SIGSYS));
        // It hung, or panicked.
        assert_eq!((killed(Signal::SIGALRM), killed(Signal::SIGABRT)), (Attempt::Unknown, Attempt::Unknown));
    }

    #[test]
    fn the_table_fits_its_records_and_names_each_attack_once() {
        assert!(ATTACKS.len() <= usize::from(u8::MAX));
        let names: std::collections::BTreeSet<&str> = ATTACKS.iter().map(|attack| attack.name).collect();
        assert_eq!(names.len(), ATTACKS.len());
        assert!(ATTACKS.iter().filter(|attack| attack.core).count() >= 4);
    }
}
