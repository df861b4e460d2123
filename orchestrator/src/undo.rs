//! `lazaret undo`: restores what changes by file tools have replaced.

use crate::{history, result};
use broker_protocol::{
    CallId, ErrorKind, Failed, History, Request, Roots, Undo as Wanted, Zone, ZonePath, limit,
};
use clap::Args;
use orchestrator_confine::ConfinementProof;
use orchestrator_engine::{Config, Session};
use orchestrator_launch::exit;
use orchestrator_launch::groups::{LogOption, Options, PlaceOptions};
use orchestrator_launch::launch::{ErrorForm, FrontEnd, Launch};
use orchestrator_launch::row::{CommandAccess, CommandRow, NetworkUse, SessionCount, Writes};
use orchestrator_launch::stdio::print;
use orchestrator_launch::stdio::typed;
use orchestrator_results::metadata::Changed;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::str::FromStr;
use thiserror::Error;

/// Fewest digits of a session's ID that select it.
const DIGITS: usize = 4;

const EXAMPLES: &str = "\
Examples:
  lazaret history              lists the changes: number, time, call, file
  lazaret undo 12              restores what change 12 replaced
  lazaret undo 13              undoes that again, if it was change 13
  lazaret undo 5e3f9a01:7      all that call 7 of the session 5e3f9a01… changed
  lazaret undo 12 --force      although the file has changed since
  lazaret undo 5e3f:8 5e3f:9   several, newest first: such as those of a batch

A call is named as in the audit and the run log, by its session and its number
there; the first digits of the session will do. Each call of a batch has a
number of its own, as `call` in the batch's result.
A file that the change has made is removed; folders made for it stay. A file
that is no longer what the change left is not touched without --force. Where
one change cannot be undone, those before it stay.";

/// Undo changes of file tools
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Undo {
    /// Undo even if the file changed since
    #[arg(long)]
    force: bool,
    /// Print the whole result as one JSON object, one for each change
    #[arg(long)]
    json: bool,
    /// A change by its number, or a call as SESSION:NUMBER
    #[arg(value_name = "CALL", required = true)]
    calls: Vec<Selected>,
    #[command(flatten)]
    place: PlaceOptions,
    #[command(flatten)]
    log: LogOption,
}

/// The changes that one argument of the command line selects.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Selected {
    /// The change with this number.
    Change(u64),
    /// All changes of a call, in the session whose ID begins like this.
    Call { session: String, call: CallId },
}

#[derive(Debug, Error)]
#[error(
    "neither the number of a change, such as 12, nor a call as SESSION:NUMBER, such as 5e3f9a01:7, with {DIGITS} or more \
     hexadecimal digits of the session; `lazaret history` lists both"
)]
struct AmbiguousChange;

impl FromStr for Selected {
    type Err = AmbiguousChange;

    fn from_str(text: &str) -> Result<Self, AmbiguousChange> {
        let number = |digits: &str| digits.parse().map_err(|_| AmbiguousChange);
        let Some((session, call)) = text.split_once(':') else {
            return number(text).map(Selected::Change);
        };
        if session.len() < DIGITS || !session.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(AmbiguousChange);
        }
        Ok(Selected::Call {
            session: session.to_ascii_lowercase(),
            call: number(call)?,
        })
    }
}

impl Selected {
    /// The numbers of the selected changes.
    fn among(&self, changes: &[Changed]) -> Result<Vec<u64>, Failed> {
        let (session, call) = match self {
            // If the change is not listed, the answer to it reports that it does not exist.
            Selected::Change(number) => return Ok(vec![*number]),
            Selected::Call { session, call } => (session, call),
        };
        let meant = || {
            changes
                .iter()
                .filter(|one| one.call == *call && one.session.starts_with(session))
        };
        let sessions: BTreeSet<&str> = meant().map(|one| one.session.as_str()).collect();
        match sessions.len() {
            1 => Ok(meant().map(|one| one.number).collect()),
            0 => {
                let message = format!(
                    "there is no change of call {session}:{call}; `lazaret history` lists those there are, and only file \
                     tools and undo make any"
                );
                Err(Failed {
                    kind: ErrorKind::NotFound,
                    message,
                })
            }
            _ => {
                let sessions = sessions.into_iter().collect::<Vec<_>>().join(", ");
                Err(Failed::invalid(format!(
                    "{session} may be one of {sessions}: write more of its digits"
                )))
            }
        }
    }
}

impl FrontEnd for Undo {
    const ROW: CommandRow = CommandRow {
        name: "undo",
        sessions: SessionCount::One,
        access: CommandAccess::Confined {
            network: NetworkUse::None,
            writes: Writes::Nothing,
        },
        log: true,
        usage: exit::USAGE,
        exit: "0; 1 no such change, or what it replaced is not there any more; 2 wrong arguments, or the file has changed since; 3 \
               violation; 125 lazaret failed; 126 refused by policy",
    };

    fn wrong_arguments() -> ErrorForm {
        ErrorForm::result(true, "undo")
    }

    fn errors(&self) -> ErrorForm {
        ErrorForm::result(self.json, "undo")
    }

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        let prepared = launch.prepare::<Self>(Options::of(&self.place).and(&self.log))?;
        let (config, confined) = history::session(prepared)?;
        let reason = |code: &Result<u8, Failed>| match code {
            Ok(_) => "the calls have ended",
            Err(_) => "no session could be opened",
        };
        let proof = confined.proof();
        confined.run(reason, self.perform(config, proof))
    }
}

impl Undo {
    /// Undoes all selected changes, newest first, and stops at the first that is not undone.
    async fn perform(&self, config: Config, proof: ConfinementProof) -> Result<u8, Failed> {
        let session = Session::start(config, proof);
        let opened = session.open().await?;
        let roots = Roots {
            project: opened.project,
            central: opened.central,
        };
        let list = Request::History(History {
            limit: limit::CHANGES,
        });
        let history = typed::ask(&session, "undo", list).await?;
        let Some(changes) = history.changes() else {
            return result::report(&history, self.json);
        };
        let numbers = match self.numbers(changes) {
            Ok(numbers) => numbers,
            Err(failed) => return result::report_failed("undo", &failed, self.json),
        };
        let mut worst = exit::OK;
        for Reverse(number) in numbers {
            let wanted = request(&roots, changes, number, self.force)?;
            let result = typed::ask(&session, "undo", wanted).await?;
            worst = worst.max(result::report(&result, self.json)?);
            if let Some(error) = &result.error {
                let way = way_on(changes, number).filter(|_| error.kind == ErrorKind::InvalidInput);
                way.filter(|_| !self.force && !self.json)
                    .iter()
                    .for_each(|way| print::note(way));
                break;
            }
        }
        Ok(worst)
    }

    fn numbers(&self, changes: &[Changed]) -> Result<BTreeSet<Reverse<u64>>, Failed> {
        let mut numbers = BTreeSet::new();
        for selected in &self.calls {
            numbers.extend(selected.among(changes)?.into_iter().map(Reverse));
        }
        Ok(numbers)
    }
}

/// What to do about a change whose file is no longer what it left: for the commands of a person, so the executor does not say it.
fn way_on(changes: &[Changed], change: u64) -> Option<String> {
    let this = changes.iter().find(|one| one.number == change)?;
    let later = changes
        .iter()
        .filter(|one| one.path == this.path && one.number > change);
    let mut later: Vec<&Changed> = later.collect();
    later.sort_by_key(|one| Reverse(one.number));
    // The last one may have undone this one already.
    if later.first().is_some_and(|last| last.after == this.before) {
        return None;
    }
    let force = format!("`lazaret undo {change} --force` restores what it replaced all the same");
    let numbers: Vec<_> = later.iter().map(|one| one.number.to_string()).collect();
    Some(match numbers.is_empty() {
        true => force,
        false => format!(
            "later changes of the file: {}; undo them first, or {force}",
            numbers.join(", ")
        ),
    })
}

/// The request to undo a change. It carries the path beside the number, because the broker decides on paths.
pub(crate) fn request(
    roots: &Roots,
    changes: &[Changed],
    change: u64,
    force: bool,
) -> Result<Request, Failed> {
    let path = match changes.iter().find(|listed| listed.number == change) {
        Some(listed) => roots.parse(&listed.path),
        // A change that is not listed has no path; the result reports that it does not exist.
        None => ZonePath::new(Zone::Project, ""),
    };
    let path = path.map_err(|error| Failed::invalid(error.to_string()))?;
    Ok(Request::Undo(Wanted {
        change,
        path,
        force,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_a_number_and_a_call_has_a_session() {
        let call = |session: &str, call| Selected::Call {
            session: session.into(),
            call,
        };
        for (text, want) in [
            ("12", Some(Selected::Change(12))),
            ("5e3f:7", Some(call("5e3f", 7))),
            ("5E3F9A01:0", Some(call("5e3f9a01", 0))),
            ("1234:7", Some(call("1234", 7))),
            ("", None),
            ("-1", None),
            ("x", None),
            ("5e3f", None),
            ("5e3:7", None),
            (":7", None),
            ("5e3f:", None),
            ("5e3f:x", None),
            ("5e3g:7", None),
            ("5e3f:7:8", None),
        ] {
            assert_eq!(text.parse().ok(), want, "{text:?}");
        }
    }

    #[test]
    fn a_change_under_later_ones_has_a_way_on() {
        let change = |number, path: &str, before: &str, after: &str| Changed {
            number,
            session: "5e3f".into(),
            call: number,
            time_ms: 0,
            path: path.into(),
            before: Some(before.into()),
            after: Some(after.into()),
        };
        let mut changes = vec![
            change(4, "a", "2", "3"),
            change(3, "b", "0", "1"),
            change(2, "a", "1", "2"),
            change(1, "a", "0", "1"),
        ];
        let way = way_on(&changes, 1).unwrap();
        assert!(
            way.contains("later changes of the file: 4, 2;") && way.contains("undo 1 --force`"),
            "{way}"
        );
        let way = way_on(&changes, 4).unwrap();
        assert!(
            !way.contains("later changes") && way.contains("undo 4 --force`"),
            "a command changed it: {way}"
        );
        changes.insert(0, change(5, "a", "3", "0"));
        assert_eq!(way_on(&changes, 1), None, "it is undone");
        assert_eq!(way_on(&changes, 99), None);
    }

    #[test]
    fn a_call_is_all_its_changes_and_of_one_session_only() {
        let change = |number, session: &str, call| Changed {
            number,
            session: session.repeat(8),
            call,
            time_ms: 0,
            path: "a".into(),
            before: None,
            after: None,
        };
        let changes = [
            change(4, "5e3f", 7),
            change(3, "5e30", 7),
            change(2, "5e3f", 7),
            change(1, "5e3f", 6),
        ];
        let among = |text: &str| {
            text.parse::<Selected>()
                .unwrap()
                .among(&changes)
                .map_err(|error| error.kind)
        };
        assert_eq!(among("5e3f:7"), Ok(vec![4, 2]));
        assert_eq!(among("5e305e30:7"), Ok(vec![3]));
        assert_eq!(among("5e3f:6"), Ok(vec![1]));
        assert_eq!(among("5e3f:9"), Err(ErrorKind::NotFound));
        assert_eq!(among("aaaa:7"), Err(ErrorKind::NotFound));
        assert_eq!(among("12"), Ok(vec![12]));
        let several = [change(2, "5e3f5e3f", 7), change(1, "5e3f5e3e", 7)];
        let ambiguous = "5e3f:7"
            .parse::<Selected>()
            .unwrap()
            .among(&several)
            .unwrap_err();
        assert_eq!(ambiguous.kind, ErrorKind::InvalidInput);
        assert!(
            ambiguous.message.contains("5e3f5e3e"),
            "{}",
            ambiguous.message
        );
    }
}
