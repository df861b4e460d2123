//! `lazaret doctor --attack`: makes real attacks with `lazaret-attack`, first without a cell and then as a command in one.

use broker_protocol::{
    Bash, Command, Ended, ErrorKind, Failed, LayerState, Open, Opened, Outcome, Stdin,
};
use nix::errno::Errno;
use nix::sys::stat::Mode;
use nix::unistd::{dup, mkdir, mkdtemp};
use orchestrator_confine::{Files, Needs};
use orchestrator_engine::executor::Greeting;
use orchestrator_launch::exit;
use orchestrator_launch::launch::Prepared;
use orchestrator_launch::session_options::SessionOptions;
use orchestrator_launch::start::{attack_program, start_attack};
use orchestrator_launch::stdio::print::{self, Colour, paint};
use orchestrator_wire::error::ErrorBody;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead, BufReader, IsTerminal, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time limit in seconds for the attacks in the cell; they take a fraction of one.
const INSIDE_S: u32 = 20;
/// Time limit for the attacks outside.
const OUTSIDE_TIMEOUT: Duration = Duration::from_secs(30);
/// The program's name in the session's central root.
const PROGRAM: &str = "lazaret-attack";

/// The result of one attack, as `lazaret-attack outside` reports it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct AttackReport {
    class: String,
    attack: String,
    /// Without a cell; `works` if it succeeded.
    control: String,
    inside: String,
    holds: AttackVerdict,
    /// Whether the whole run proves nothing if this attack fails without a cell.
    core: bool,
    /// If this tier is known not to prevent it: why.
    known: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AttackVerdict {
    Yes,
    /// The attack also fails without a cell.
    Untested,
    Known,
    No,
    Unknown,
}

impl AttackVerdict {
    fn name(self) -> &'static str {
        match self {
            AttackVerdict::Yes => "yes",
            AttackVerdict::Untested => "untested",
            AttackVerdict::Known => "known",
            AttackVerdict::No => "no",
            AttackVerdict::Unknown => "unknown",
        }
    }
}

impl AttackReport {
    fn control_works(&self) -> bool {
        self.control == "works"
    }

    /// Whether the cell passes this test.
    fn passes(&self) -> bool {
        match self.holds {
            AttackVerdict::Yes | AttackVerdict::Known => true,
            AttackVerdict::Untested => !self.core,
            AttackVerdict::No | AttackVerdict::Unknown => false,
        }
    }
}

/// Attacks and prints the results; returns our exit code.
pub(crate) fn main(prepared: Prepared, as_json: bool) -> Result<u8, Failed> {
    let attacked = attack(prepared);
    match &attacked {
        Ok((opened, reports)) if as_json => print::json(&to_json(opened, reports))?,
        Ok((opened, reports)) => {
            print::result(page(opened, reports, io::stdout().is_terminal()).as_bytes())?
        }
        Err(failed) if as_json => {
            print::json(&json!({ "holds": false, "error": ErrorBody::from(failed) }))?
        }
        Err(failed) => print::problem(&format!("no cell to attack: {}", failed.message)),
    }
    let passed = attacked.is_ok_and(|(_, reports)| AttackCounts::of(&reports).passed());
    Ok(if passed { exit::OK } else { exit::FAILED })
}

fn attack(prepared: Prepared) -> Result<(Opened, Vec<AttackReport>), Failed> {
    let options = prepared.options();
    let folder = Folder::make(options)?;
    let program = attack_program().map_err(|_| {
        Failed::internal("`lazaret-attack` is not installed beside `lazaret`".to_owned())
    })?;
    let program = folder.copy(&program)?;
    let _open = inheritable()?;
    let outside = Outside::start(prepared.files(), &program, &folder.path)?;
    let greeting = Greeting::open(&options.endpoint(), folder.open(options)?)?;
    // Needed to remove the directory again.
    let parent = folder.path.parent().unwrap_or(&folder.path).to_owned();
    let confined = prepared.confine(Needs {
        write: vec![parent],
        ..Needs::default()
    });
    let (outside, targets) = outside.targets()?;
    let attacks = async { Ok(greeting.run(inside(&program, targets)).await?) };
    let (opened, outcome) = confined.run(|_| "the attacks have ended", attacks)?;
    let records = records(outcome)?;
    let reports = outside.judge(&opened, &records)?;
    Ok((opened, reports))
}

/// A descriptor that every program we start inherits: which others are open, our own caller decides.
fn inheritable() -> Result<OwnedFd, Failed> {
    dup(io::stdin())
        .map_err(|error| Failed::internal(format!("cannot open a descriptor to inherit: {error}")))
}

/// The command that attacks in the cell: an ordinary command.
fn inside(program: &Path, targets: String) -> Bash {
    let words = [
        program.as_os_str().as_encoded_bytes(),
        b"inside",
        targets.as_bytes(),
    ];
    Bash {
        command: Command::Arguments(words.map(ByteBuf::from).into()),
        directory: None,
        timeout_s: Some(INSIDE_S),
        idle_timeout_s: None,
        stdin: Stdin::Null,
        live: false,
        background: false,
        split: false,
        attended: false,
    }
}

/// The command's output, if it ran to its end.
fn records(outcome: Outcome) -> Result<Vec<u8>, Failed> {
    let internal = |message: String| {
        Err(Failed {
            kind: ErrorKind::Internal,
            message,
        })
    };
    match outcome {
        Outcome::Ran(ran) if ran.ended == Ended::Exited(0) => Ok(ran.output.head),
        Outcome::Ran(ran) => internal(format!(
            "the attacks did not run to their end: {:?}",
            ran.ended
        )),
        Outcome::Refused(refused) => Err(Failed {
            kind: ErrorKind::DeniedPolicy,
            message: refused.to_string(),
        }),
        Outcome::Failed(failed) => Err(failed),
        Outcome::Broken(broken) => internal(broken.to_string()),
        Outcome::Answered | Outcome::Granted => internal("the executor ran no command".to_owned()),
    }
}

/// The run without a cell.
struct Outside(BufReader<UnixStream>);

impl Outside {
    /// Starts it. It creates the targets in `directory` and attacks them while the session opens.
    fn start(files: &Files, program: &Path, directory: &Path) -> Result<Self, Failed> {
        let start = || -> io::Result<Self> {
            let socket = start_attack(files, program, directory)?;
            socket.set_read_timeout(Some(OUTSIDE_TIMEOUT))?;
            Ok(Self(BufReader::new(socket)))
        };
        start().map_err(|error| {
            Failed::internal(format!("cannot start {}: {error}", program.display()))
        })
    }

    /// The targets of the run inside, after the control has run.
    fn targets(mut self) -> Result<(Self, String), Failed> {
        let mut targets = String::new();
        match self.0.read_line(&mut targets) {
            Ok(1..) => Ok((self, targets.trim_end().to_owned())),
            Ok(0) => Err(failed_outside(
                "it has ended; its reason is on standard error",
            )),
            Err(error) => Err(failed_outside(error)),
        }
    }

    fn judge(self, opened: &Opened, records: &[u8]) -> Result<Vec<AttackReport>, Failed> {
        let in_force = opened
            .layers
            .iter()
            .filter(|one| matches!(one.state, LayerState::InForce(_)));
        let layers: Vec<&str> = in_force.map(|one| one.layer.name()).collect();
        let session = json!({ "tier": opened.tier.name(), "layers": layers });
        let mut socket = self.0.get_ref();
        let sent = writeln!(socket, "{session}").and_then(|()| socket.write_all(records));
        sent.and_then(|()| socket.shutdown(Shutdown::Write))
            .map_err(failed_outside)?;
        let lines = self
            .0
            .lines()
            .map(|line| serde_json::from_str(&line?).map_err(io::Error::from));
        lines.collect::<io::Result<_>>().map_err(failed_outside)
    }
}

fn failed_outside(error: impl std::fmt::Display) -> Failed {
    Failed::internal(format!("the attacks without a cell failed: {error}"))
}

/// A directory of ours with an empty project and its central root. Dropping the value removes it.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn make(options: &SessionOptions) -> Result<Self, Failed> {
        let failed = |error: Errno| {
            Failed::internal(format!("cannot make a directory to attack in: {error}"))
        };
        let path = mkdtemp(&parent(options)?.join("lazaret-doctor-XXXXXX")).map_err(failed)?;
        let folder = Self { path };
        for part in folder.parts() {
            mkdir(&part, Mode::S_IRWXU).map_err(failed)?;
        }
        Ok(folder)
    }

    fn parts(&self) -> [PathBuf; 2] {
        ["project", "central"].map(|name| self.path.join(name))
    }

    /// Copies a program to where the cell can run it.
    fn copy(&self, program: &Path) -> Result<PathBuf, Failed> {
        let [_, central] = self.parts();
        let copy = central.join(PROGRAM);
        #[expect(
            clippy::disallowed_methods,
            reason = "a program of ours, into a directory of ours"
        )]
        let copied = fs::copy(program, &copy);
        copied.map_err(|error| {
            Failed::internal(format!("cannot copy {}: {error}", program.display()))
        })?;
        Ok(copy)
    }

    fn open(&self, options: &SessionOptions) -> Result<Open, Failed> {
        let [project, central] = self.parts();
        let profile = options.choose(Some(&project)).profile;
        options.open_in(project, central, profile)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let [project, central] = self.parts();
        // Removes the copy and the executor's record of the root's owner, and then only empty directories: anything else there is
        // not ours to remove. The executor keeps what it replaces in the first.
        for file in [central.join(PROGRAM), central.join(".lazaret/project")] {
            #[expect(clippy::disallowed_methods, reason = "they were made for this session")]
            let _ = fs::remove_file(file);
        }
        for path in [
            central.join(".lazaret"),
            project,
            central,
            self.path.clone(),
        ] {
            let _ = fs::remove_dir(path);
        }
    }
}

/// A directory for the attacks that this policy shows to no cell: the targets lie in it, outside both roots.
fn parent(options: &SessionOptions) -> Result<PathBuf, Failed> {
    let policy = options
        .policy()
        .map_err(|error| Failed::invalid(error.to_string()))?;
    let is_open = |path: &PathBuf| {
        let granted = policy.grants.iter().map(|grant| &grant.path);
        granted
            .chain(&policy.listed)
            .any(|shown| path.starts_with(shown))
    };
    let places = ["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from);
    let mut places = std::iter::once(std::env::temp_dir()).chain(places);
    let found = places.find(|path| path.is_dir() && !is_open(path));
    found.ok_or_else(|| {
        Failed::internal("the policy shows every directory for the attacks to cells".to_owned())
    })
}

/// The number of attacks with each result.
#[derive(Debug, Default, PartialEq, Eq)]
struct AttackCounts {
    all: usize,
    held: usize,
    untested: usize,
    known: usize,
    /// Attacks that succeed and are not known to.
    open: usize,
    /// Attacks that should work without a cell, so that the others prove something, and did not.
    blind: usize,
}

impl AttackCounts {
    fn of(reports: &[AttackReport]) -> Self {
        let count =
            |what: &dyn Fn(&AttackReport) -> bool| reports.iter().filter(|one| what(one)).count();
        Self {
            all: reports.len(),
            held: count(&|one| one.holds == AttackVerdict::Yes),
            untested: count(&|one| one.holds == AttackVerdict::Untested),
            known: count(&|one| one.holds == AttackVerdict::Known),
            open: count(&|one| matches!(one.holds, AttackVerdict::No | AttackVerdict::Unknown)),
            blind: count(&|one| one.core && !one.control_works()),
        }
    }

    fn passed(&self) -> bool {
        self.all > 0 && self.open == 0 && self.blind == 0
    }
}

fn to_json(opened: &Opened, reports: &[AttackReport]) -> Value {
    let tally = AttackCounts::of(reports);
    json!({
        "holds": tally.passed(),
        "tier": opened.tier.name(),
        "profile": opened.profile,
        "held": tally.held,
        "untested": tally.untested,
        "known": tally.known,
        "open": tally.open,
        "attacks": reports,
    })
}

fn page(opened: &Opened, reports: &[AttackReport], colour: bool) -> String {
    let tier = opened.tier.name();
    let mut page = format!(
        "tier    {tier}\nprofile {}\n\n",
        print::shown(&opened.profile)
    );
    page.push_str(&row([
        "class",
        "attack",
        "without a cell",
        "in the cell",
        "holds",
    ]));
    for report in reports {
        let AttackReport {
            class,
            attack,
            control,
            inside,
            ..
        } = report;
        let [class, name, control, inside] =
            [class, attack, control, inside].map(|text| print::shown(text));
        let good = if report.passes() {
            Colour::Green
        } else {
            Colour::Red
        };
        let holds = paint(report.holds.name(), good, colour);
        page.push_str(&row([&class, &name, &control, &inside, &holds]));
    }
    page.push('\n');
    page.push_str(&summary(reports, colour));
    page
}

fn row([class, name, control, inside, holds]: [&str; 5]) -> String {
    format!("{class:<10} {name:<31} {control:<15} {inside:<12} {holds}\n")
}

fn summary(reports: &[AttackReport], colour: bool) -> String {
    let tally = AttackCounts::of(reports);
    let mut text = format!("{} of {} attacks are held.\n", tally.held, tally.all);
    if tally.untested > 0 {
        let plain = "fail in the cell, and on this machine without one too: that proves nothing";
        let _ = writeln!(text, "{} untested: they {plain}.", tally.untested);
    }
    for report in reports {
        let name = print::shown(&report.attack);
        let said = match (&report.known, report.holds) {
            (Some(why), AttackVerdict::Known) => format!("known: {name}: {}.\n", print::shown(why)),
            (_, AttackVerdict::No) => format!("NOT HELD: {name}: it works in the cell.\n"),
            (_, AttackVerdict::Unknown) => format!("NOT HELD: {name}: what it did is not known.\n"),
            _ => String::new(),
        };
        text.push_str(&said);
        if report.core && !report.control_works() {
            let _ = writeln!(
                text,
                "NOT PROVED: {name}: it must work without a cell, and does not."
            );
        }
    }
    text.push_str(&match tally.passed() {
        true => paint("The cell holds", Colour::Green, colour),
        false => paint("The cell does not hold", Colour::Red, colour),
    });
    text.push_str(if tally.passed() && tally.known > 0 {
        ", but for what is known.\n"
    } else {
        ".\n"
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(attack: &str, control: &str, inside: &str, holds: AttackVerdict) -> AttackReport {
        let (class, control, inside) = ("files".into(), control.into(), inside.into());
        AttackReport {
            class,
            attack: attack.into(),
            control,
            inside,
            holds,
            core: false,
            known: None,
        }
    }

    fn good() -> Vec<AttackReport> {
        vec![
            AttackReport {
                core: true,
                ..report("read", "works", "EACCES", AttackVerdict::Yes)
            },
            report("x32", "ENOSYS", "SIGSYS", AttackVerdict::Untested),
        ]
    }

    #[test]
    fn a_cell_that_holds_passes_and_says_what_is_untested() {
        let tally = AttackCounts::of(&good());
        assert!(tally.passed(), "{tally:?}");
        let text = summary(&good(), false);
        assert!(
            text.starts_with("1 of 2 attacks are held.\n1 untested"),
            "{text}"
        );
        assert!(text.ends_with("The cell holds.\n"), "{text}");
    }

    #[test]
    fn a_planted_violation_is_seen() {
        let mut planted = good();
        planted.push(report("escape", "works", "works", AttackVerdict::No));
        assert!(!AttackCounts::of(&planted).passed());
        let text = summary(&planted, false);
        assert!(
            text.contains("NOT HELD: escape") && text.ends_with("The cell does not hold.\n"),
            "{text}"
        );
        planted[2].holds = AttackVerdict::Unknown;
        assert!(!AttackCounts::of(&planted).passed());
        planted[2].holds = AttackVerdict::Yes;
        assert!(AttackCounts::of(&planted).passed());
        assert!(!AttackCounts::of(&[]).passed());
    }

    #[test]
    fn a_core_control_that_fails_makes_the_rest_worthless() {
        let mut blind = good();
        blind[0] = AttackReport {
            control: "EACCES".into(),
            holds: AttackVerdict::Untested,
            ..blind[0].clone()
        };
        assert!(!AttackCounts::of(&blind).passed());
        assert!(summary(&blind, false).contains("NOT PROVED: read"));
    }

    #[test]
    fn known_gap_passes_and_is_reported() {
        let mut reports = good();
        let known = Some("no right for\x1b metadata".into());
        reports.push(AttackReport {
            known,
            ..report("chmod", "works", "works", AttackVerdict::Known)
        });
        assert!(AttackCounts::of(&reports).passed());
        let text = summary(&reports, false);
        assert!(
            text.contains("known: chmod: no right for\\u{1b} metadata.\n"),
            "{text}"
        );
        assert!(
            text.ends_with("The cell holds, but for what is known.\n"),
            "{text}"
        );
    }

    #[test]
    fn row_reports_the_attack_and_its_control() {
        let opened = Opened {
            layers: Vec::new(),
            ..lazaret_fakes::opened(0)
        };
        let page = page(&opened, &good(), false);
        let row = page.lines().find(|line| line.contains("read")).unwrap();
        assert_eq!(
            row.split_whitespace().collect::<Vec<_>>(),
            ["files", "read", "works", "EACCES", "yes"]
        );
        let json = to_json(&opened, &good());
        assert_eq!(json["attacks"][1]["inside"], "SIGSYS");
        assert_eq!(json["attacks"][1]["holds"], "untested");
    }
}
