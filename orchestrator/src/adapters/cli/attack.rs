//! `lazaret doctor --attack`: what came of real attacks on a cell of a session that is there only for them.

use super::event::ErrorBody;
use super::place::Place;
use super::say::{self, Colour, paint};
use super::{exit, runtime};
use crate::adapters::confine::{Needs, confine};
use crate::adapters::executor::Greeting;
use broker_protocol::{AttackReport, Attempt, Failed, Holds, Open, Opened};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::{mkdir, mkdtemp};
use serde_json::{Value, json};
use std::fmt::Write;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::PathBuf;

/// Attacks and prints; returns our exit code.
pub fn main(place: &Place, as_json: bool) -> Result<u8, Failed> {
    let attacked = attack(place);
    match &attacked {
        Ok((opened, reports)) if as_json => say::json(&to_json(opened, reports))?,
        Ok((opened, reports)) => say::result(page(opened, reports, io::stdout().is_terminal()).as_bytes())?,
        Err(failed) if as_json => say::json(&json!({ "holds": false, "error": ErrorBody::new(failed) }))?,
        Err(failed) => say::problem(&format!("no cell to attack: {}", failed.message)),
    }
    let passed = attacked.is_ok_and(|(_, reports)| Tally::of(&reports).passed());
    Ok(if passed { exit::OK } else { exit::FAILED })
}

fn attack(place: &Place) -> Result<(Opened, Vec<AttackReport>), Failed> {
    let folder = Folder::make()?;
    let greeting = Greeting::open(&place.endpoint(), folder.open(place)?)?;
    // To remove the directory again.
    confine(&Needs { write: vec![folder.0.parent().unwrap_or(&folder.0).to_owned()], ..Needs::default() });
    Ok(runtime()?.block_on(greeting.attacked())?)
}

/// An empty project and its central root, both ours and gone with the value.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Self, Failed> {
        let failed = |error: Errno| say::internal(format!("cannot make a directory to attack in: {error}"));
        let folder = Self(mkdtemp(&std::env::temp_dir().join("lazaret-doctor-XXXXXX")).map_err(failed)?);
        for part in folder.parts() {
            mkdir(&part, Mode::S_IRWXU).map_err(failed)?;
        }
        Ok(folder)
    }

    fn parts(&self) -> [PathBuf; 2] {
        ["project", "central"].map(|name| self.0.join(name))
    }

    fn open(&self, place: &Place) -> Result<Open, Failed> {
        let [project, central] = self.parts();
        place.open_in(project, central, 0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Only what is empty: whatever else is there is not ours to remove. The executor keeps what it replaces in the first.
        let kept = self.0.join("central/.lazaret");
        for path in [kept].iter().chain(&self.parts()).chain([&self.0]) {
            let _ = fs::remove_dir(path);
        }
    }
}

/// How many attacks there are of each kind.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    all: usize,
    held: usize,
    untested: usize,
    known: usize,
    /// What gets through, and what is not known to be held.
    open: usize,
    /// Attacks that must work without a cell for the others to mean anything, and did not.
    blind: usize,
}

impl Tally {
    fn of(reports: &[AttackReport]) -> Self {
        let count = |what: &dyn Fn(&AttackReport) -> bool| reports.iter().filter(|one| what(one)).count();
        Self {
            all: reports.len(),
            held: count(&|one| one.holds() == Holds::Yes),
            untested: count(&|one| one.holds() == Holds::Untested),
            known: count(&|one| one.holds() == Holds::Known),
            open: count(&|one| matches!(one.holds(), Holds::No | Holds::Unknown)),
            blind: count(&|one| one.core && one.control != Attempt::Got),
        }
    }

    fn passed(&self) -> bool {
        self.all > 0 && self.open == 0 && self.blind == 0
    }
}

fn to_json(opened: &Opened, reports: &[AttackReport]) -> Value {
    let tally = Tally::of(reports);
    json!({
        "holds": tally.passed(),
        "tier": opened.tier.name(),
        "profile": opened.profile,
        "held": tally.held,
        "untested": tally.untested,
        "known": tally.known,
        "open": tally.open,
        "attacks": reports.iter().map(report_json).collect::<Vec<_>>(),
    })
}

fn report_json(report: &AttackReport) -> Value {
    json!({
        "class": report.class,
        "attack": report.name,
        "control": shown(report.control),
        "inside": shown(report.inside),
        "holds": report.holds().name(),
        "core": report.core,
        "known": report.known,
    })
}

/// In one word.
fn shown(attempt: Attempt) -> String {
    match attempt {
        Attempt::Got => "works".into(),
        Attempt::Refused(errno) => format!("{:?}", Errno::from_raw(errno)),
        Attempt::Killed(signal) => Signal::try_from(signal).map_or("killed", Signal::as_str).into(),
        Attempt::Unknown => "unknown".into(),
    }
}

fn page(opened: &Opened, reports: &[AttackReport], colour: bool) -> String {
    let tier = opened.tier.name();
    let mut page = format!("tier    {tier}\nprofile {}\n\n", say::shown(&opened.profile));
    page.push_str(&row(["class", "attack", "without a cell", "in the cell", "holds"]));
    for report in reports {
        let [class, name] = [&report.class, &report.name].map(|text| say::shown(text));
        let (control, inside) = (shown(report.control), shown(report.inside));
        let good = if report.passes() { Colour::Green } else { Colour::Red };
        let holds = paint(report.holds().name(), good, colour);
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
    let tally = Tally::of(reports);
    let mut text = format!("{} of {} attacks are held.\n", tally.held, tally.all);
    if tally.untested > 0 {
        let plain = "fail in the cell, and on this machine without one too: that proves nothing";
        let _ = writeln!(text, "{} untested: they {plain}.", tally.untested);
    }
    for report in reports {
        let name = say::shown(&report.name);
        match (&report.known, report.holds()) {
            (Some(why), Holds::Known) => drop(writeln!(text, "known: {name}: {}.", say::shown(why))),
            (_, Holds::No) => drop(writeln!(text, "NOT HELD: {name}: it works in the cell.")),
            (_, Holds::Unknown) => drop(writeln!(text, "NOT HELD: {name}: what it did is not known.")),
            _ => {}
        }
        if report.core && report.control != Attempt::Got {
            let _ = writeln!(text, "NOT PROVED: {name}: it must work without a cell, and does not.");
        }
    }
    text.push_str(&match tally.passed() {
        true => paint("The cell holds", Colour::Green, colour),
        false => paint("The cell does not hold", Colour::Red, colour),
    });
    text.push_str(if tally.passed() && tally.known > 0 { ", but for what is known.\n" } else { ".\n" });
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::{Digest, Tier};

    fn report(name: &str, control: Attempt, inside: Attempt) -> AttackReport {
        let class = "files".to_owned();
        AttackReport { class, name: name.into(), control, inside, core: false, known: None }
    }

    /// Enough rows that hold.
    fn good() -> Vec<AttackReport> {
        vec![
            AttackReport { core: true, ..report("read", Attempt::Got, Attempt::Refused(13)) },
            report("x32", Attempt::Refused(38), Attempt::Killed(31)),
        ]
    }

    #[test]
    fn a_cell_that_holds_passes_and_says_what_is_untested() {
        let tally = Tally::of(&good());
        assert!(tally.passed(), "{tally:?}");
        let text = summary(&good(), false);
        assert!(text.starts_with("1 of 2 attacks are held.\n1 untested"), "{text}");
        assert!(text.ends_with("The cell holds.\n"), "{text}");
    }

    #[test]
    fn a_planted_violation_is_seen() {
        let mut planted = good();
        planted.push(report("escape", Attempt::Got, Attempt::Got));
        assert!(!Tally::of(&planted).passed());
        let text = summary(&planted, false);
        assert!(text.contains("NOT HELD: escape") && text.ends_with("The cell does not hold.\n"), "{text}");
        planted[2].inside = Attempt::Unknown;
        assert!(!Tally::of(&planted).passed());
        planted[2].inside = Attempt::Refused(1);
        assert!(Tally::of(&planted).passed());
        assert!(!Tally::of(&[]).passed());
    }

    #[test]
    fn a_core_control_that_fails_makes_the_rest_worthless() {
        let mut blind = good();
        blind[0].control = Attempt::Refused(13);
        assert!(!Tally::of(&blind).passed());
        assert!(summary(&blind, false).contains("NOT PROVED: read"));
    }

    #[test]
    fn a_known_gap_passes_and_is_said() {
        let mut reports = good();
        let known = Some("no right for\x1b metadata".into());
        reports.push(AttackReport { known, ..report("chmod", Attempt::Got, Attempt::Got) });
        assert!(Tally::of(&reports).passed());
        let text = summary(&reports, false);
        assert!(text.contains("known: chmod: no right for\\u{1b} metadata.\n"), "{text}");
        assert!(text.ends_with("The cell holds, but for what is known.\n"), "{text}");
    }

    #[test]
    fn a_row_says_what_happened_on_both_sides() {
        let opened = Opened {
            project: "/p".into(),
            central: "/c".into(),
            profile: "default".into(),
            policy: Digest([0; 32]),
            tier: Tier::Flat,
            layers: Vec::new(),
            session: String::new(),
        };
        let page = page(&opened, &good(), false);
        let row = page.lines().find(|line| line.contains("read")).unwrap();
        assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["files", "read", "works", "EACCES", "yes"]);
        let json = to_json(&opened, &good());
        assert_eq!(json["attacks"][1]["inside"], "SIGSYS");
        assert_eq!(json["attacks"][1]["holds"], "untested");
    }
}
