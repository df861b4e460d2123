//! The suspend key of a command's terminal, Control-Z. A command leads a process session of its own without a shell
//! above it, so the kernel drops the signal that the key causes: it does not stop what nobody could continue. Here the
//! client can continue it, and is notified; so the broker stops what the kernel would have stopped.

use executor_sys::proc::{self, Stat};
use nix::sys::termios::{LocalFlags, SpecialCharacterIndices, tcgetattr};
use nix::unistd::tcgetpgrp;
use std::os::fd::BorrowedFd;

/// Whether `typed` contains the suspend key of the terminal with this master, and the key causes a signal.
pub(crate) fn is_key_in(master: BorrowedFd, typed: impl Iterator<Item = u8>) -> bool {
    /// Stands for no key (`_POSIX_VDISABLE`).
    const DISABLED: u8 = 0;
    // Most input contains no control character.
    let mut control = typed.filter(u8::is_ascii_control).peekable();
    if control.peek().is_none() {
        return false;
    }
    // A terminal whose settings cannot be read has lost its program.
    let Ok(settings) = tcgetattr(master) else {
        return false;
    };
    let key = settings.control_chars[SpecialCharacterIndices::VSUSP as usize];
    settings.local_flags.contains(LocalFlags::ISIG)
        && key != DISABLED
        && control.any(|typed| typed == key)
}

/// Whether the key would stop the program itself, and not a job of the shell that it is. A program
/// that ignores or handles the signal decides for itself.
pub(crate) fn is_for_program(master: BorrowedFd) -> bool {
    let Ok(group) = tcgetpgrp(master) else {
        return false;
    };
    let leader = group.as_raw();
    Stat::of(leader).is_ok_and(|stat| stat.session == leader) && has_default(leader)
}

fn has_default(pid: i32) -> bool {
    const BIT: u64 = 1 << (libc::SIGTSTP - 1);
    let mask = |key| {
        let line = proc::line(format!("/proc/{pid}/status"), key)?;
        u64::from_str_radix(&line, 16).ok()
    };
    ["SigIgn", "SigCgt", "SigBlk"]
        .into_iter()
        .all(|key| mask(key).is_some_and(|mask| mask & BIT == 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use executor_sys::process::{self, Fork};
    use nix::fcntl::OFlag;
    use nix::pty::posix_openpt;
    use nix::sys::termios::{SetArg, tcsetattr};
    use nix::sys::wait::waitpid;
    use nix::unistd::Pid;
    use std::os::fd::AsFd;

    #[test]
    fn the_key_is_the_terminals_own_and_only_where_it_makes_a_signal() {
        let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).unwrap();
        let is_key = |typed: &[u8]| is_key_in(master.as_fd(), typed.iter().copied());
        assert!(is_key(b"\x1a") && is_key(b"x\n\x1ay") && !is_key(b"\x03z") && !is_key(b""));
        let mut settings = tcgetattr(&master).unwrap();
        settings.control_chars[SpecialCharacterIndices::VSUSP as usize] = 0;
        tcsetattr(&master, SetArg::TCSANOW, &settings).unwrap();
        assert!(!is_key(b"\x1a") && !is_key(b"\0"));
        settings.control_chars[SpecialCharacterIndices::VSUSP as usize] = 0x19;
        tcsetattr(&master, SetArg::TCSANOW, &settings).unwrap();
        assert!(is_key(b"\x19"));
        settings.local_flags.remove(LocalFlags::ISIG);
        tcsetattr(&master, SetArg::TCSANOW, &settings).unwrap();
        assert!(!is_key(b"\x19"));
        assert!(!is_for_program(master.as_fd()), "nobody is there");
    }

    #[test]
    fn process_with_a_signal_handler_is_recognised() {
        // Not this process: while a thread of it starts another one, all signals are blocked.
        let Fork::Parent(child) = process::fork(0).unwrap() else {
            loop {
                nix::unistd::pause();
            }
        };
        let has = has_default(child.pid);
        process::pidfd_signal(child.pidfd.as_fd(), libc::SIGKILL).unwrap();
        waitpid(Pid::from_raw(child.pid), None).unwrap();
        assert!(has && !has_default(-1));
    }
}
