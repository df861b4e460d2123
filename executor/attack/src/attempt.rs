//! Tries each attack in a process of its own, and writes and reads the results: one line `INDEX WORD NUMBER` for each.

use crate::sys::{self, Fork};
use crate::table::ATTACKS;
use crate::targets::Targets;
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::alarm;
use std::io::{self, Write};
use std::process::exit;

/// Seconds after which an attack that hangs is killed.
const TIMEOUT_S: u32 = 2;

/// The result of one attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttackResult {
    Succeeded,
    /// The kernel refused it, with this error number.
    Refused(i32),
    /// The kernel killed the process that tried, with this signal.
    Killed(i32),
    /// It was not tried, or did not finish.
    Unknown,
}

/// Tries every attack and writes a record of each result.
pub(crate) fn run(targets: &Targets, records: &mut impl Write) -> io::Result<()> {
    for (index, attack) in ATTACKS.iter().enumerate() {
        let attempt = isolated(|| (attack.run)(targets)).unwrap_or(AttackResult::Unknown);
        writeln!(records, "{index} {}", record(attempt))?;
        // Otherwise the next process would inherit the buffer's content, and write it again.
        records.flush()?;
    }
    Ok(())
}

/// Tries every attack from this process, without a cell.
pub(crate) fn control(targets: &Targets) -> io::Result<Vec<AttackResult>> {
    let mut records = Vec::new();
    run(targets, &mut records)?;
    Ok(read_records(&records))
}

/// Tries one attack in a process of its own, whose exit code is the error number, or 0.
fn isolated(attack: impl FnOnce() -> io::Result<()>) -> io::Result<AttackResult> {
    match sys::fork()? {
        Fork::Child => {
            alarm::set(TIMEOUT_S);
            let ready =
                prctl::set_dumpable(true).and_then(|()| setrlimit(Resource::RLIMIT_CORE, 0, 0));
            match ready.map_err(io::Error::from).and_then(|()| attack()) {
                Ok(()) => exit(0),
                Err(error) => exit(error.raw_os_error().unwrap_or(libc::EIO)),
            }
        }
        Fork::Parent(child) => Ok(outcome(waitpid(child, None)?)),
    }
}

fn outcome(end: WaitStatus) -> AttackResult {
    match end {
        WaitStatus::Exited(_, 0) => AttackResult::Succeeded,
        WaitStatus::Exited(_, errno) => AttackResult::Refused(errno),
        // Any other signal is our own fault: the attack hung, or is wrong.
        WaitStatus::Signaled(_, signal @ (Signal::SIGSYS | Signal::SIGSEGV), _) => {
            AttackResult::Killed(signal as i32)
        }
        _ => AttackResult::Unknown,
    }
}

fn record(attempt: AttackResult) -> String {
    match attempt {
        AttackResult::Succeeded => "succeeded 0".into(),
        AttackResult::Refused(errno) => format!("refused {errno}"),
        AttackResult::Killed(signal) => format!("killed {signal}"),
        AttackResult::Unknown => "unknown 0".into(),
    }
}

/// Reads the result of each attack from records; an attack without a record is unknown.
pub(crate) fn read_records(bytes: &[u8]) -> Vec<AttackResult> {
    let mut attempts = vec![AttackResult::Unknown; ATTACKS.len()];
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        if let Some((index, attempt)) = parse(line)
            && let Some(known) = attempts.get_mut(index)
        {
            *known = attempt;
        }
    }
    attempts
}

fn parse(line: &[u8]) -> Option<(usize, AttackResult)> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let mut words = line.split(' ');
    let (index, word, number) = (
        words.next()?.parse().ok()?,
        words.next()?,
        words.next()?.parse().ok()?,
    );
    let attempt = match word {
        "succeeded" => AttackResult::Succeeded,
        "refused" => AttackResult::Refused(number),
        "killed" => AttackResult::Killed(number),
        _ => AttackResult::Unknown,
    };
    words.next().is_none().then_some((index, attempt))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::Pid;

    #[test]
    fn records_read_back_and_missing_ones_are_unknown() {
        let all = [
            AttackResult::Succeeded,
            AttackResult::Refused(libc::EACCES),
            AttackResult::Killed(libc::SIGSYS),
        ];
        let lines = all
            .iter()
            .enumerate()
            .map(|(i, one)| format!("{i} {}\n", record(*one)));
        let text: String = lines.chain(["3 succ".into()]).collect();
        let got = read_records(text.as_bytes());
        assert_eq!(got[..3], all);
        assert!(
            got.len() == ATTACKS.len() && got[3..].iter().all(|one| *one == AttackResult::Unknown)
        );
    }

    #[test]
    fn invalid_attack_record_is_unknown() {
        for text in [
            "",
            "\n",
            "0 succeeded\n",
            "0 succeeded 0 0\n",
            "x succeeded 0\n",
            "99999 succeeded 0\n",
        ] {
            let got = read_records(text.as_bytes());
            assert!(
                got.iter().all(|one| *one == AttackResult::Unknown),
                "{text:?}"
            );
        }
        let bytes = [&[255; 100][..], b"\n0 refused 13\n"].concat();
        assert_eq!(read_records(&bytes)[0], AttackResult::Refused(13));
    }

    #[test]
    fn only_the_kernels_own_signals_are_its_refusal() {
        let pid = Pid::from_raw(7);
        assert_eq!(outcome(WaitStatus::Exited(pid, 0)), AttackResult::Succeeded);
        assert_eq!(
            outcome(WaitStatus::Exited(pid, 13)),
            AttackResult::Refused(13)
        );
        let killed = |signal| outcome(WaitStatus::Signaled(pid, signal, false));
        assert_eq!(killed(Signal::SIGSYS), AttackResult::Killed(libc::SIGSYS));
        // It hung, or panicked.
        assert_eq!(
            (killed(Signal::SIGALRM), killed(Signal::SIGABRT)),
            (AttackResult::Unknown, AttackResult::Unknown)
        );
    }
}
