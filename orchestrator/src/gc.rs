//! `lazaret gc`: has the executor remove caches that no project uses any more.

use broker_protocol::paste::shell_word;
use broker_protocol::{Cleaned, Cleanup, Failed, RemovedCache, Unused};
use clap::Args;
use orchestrator_launch::exit;
use orchestrator_launch::groups::{ExecutorOption, Options};
use orchestrator_launch::launch::{ErrorForm, FrontEnd, Launch};
use orchestrator_launch::row::CommandRow;
use orchestrator_launch::stdio::print;
use serde_json::{Value, json};

const EXAMPLES: &str = "\
Examples:
  lazaret gc
  lazaret gc --days 7 --json | jq '.removed[].project'
  lazaret gc --audit-days 400

Removed are the directories `caches` of the central roots in lazaret/projects below
$XDG_DATA_HOME or ~/.local/share (or where `central_root` of the policy puts them), of
projects that are gone, also for a while, as on a disk that is not mounted; and those
that no session has used for so many days. What file tools have
replaced, outputs and the state of agents stay. The caches of an open session
are not touched, no link is followed, and one run takes at most ten minutes.
Once a day the end of a session removes a part of those unused for 90 days.

The audit is kept unless you say so: --audit-days removes its files (16 MiB each) whose
last record is so many days old, oldest first, never the one in use, and only as long as
the chain is whole. It names the end of what was removed, so `audit verify` goes on to hold. Where a policy has
`audit_keep_days`, they stay at least as long, and the end of a session removes older ones.";

/// Remove the caches of projects that are gone or no longer used, and old records if you say so
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Gc {
    /// Also those that no session has used for so many days
    #[arg(long, value_name = "N", default_value_t = 90)]
    days: u32,
    /// Also the files of the audit whose records are all this old
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    audit_days: Option<u32>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    executor: ExecutorOption,
}

impl FrontEnd for Gc {
    const ROW: CommandRow = CommandRow::of_files(
        "gc",
        "0; 1 something stays that should not; 2 wrong arguments; 125 lazaret failed",
    );

    fn errors(&self) -> ErrorForm {
        ErrorForm::object(self.json)
    }

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        let prepared = launch.prepare::<Self>(Options::of(&self.executor))?;
        let options = prepared.options();
        let text = options.projects()?.into_os_string().into_string();
        let projects = text.map_err(|path| Failed::invalid(format!("{path:?} is not UTF-8")))?;
        let request = Cleanup {
            projects,
            days: self.days,
            audit_days: self.audit_days,
        };
        let cleaned = options.endpoint().clean_up(prepared.files(), &request)?;
        if self.json {
            print::json(&as_json(&cleaned))?;
        } else {
            print::result(as_text(&cleaned).as_bytes())?;
            cleaned.failed.iter().for_each(|why| print::problem(why));
        }
        let stays = cleaned.unfinished || !cleaned.failed.is_empty();
        Ok(if stays { exit::FAILED } else { exit::OK })
    }
}

fn as_json(cleaned: &Cleaned) -> Value {
    let removed = cleaned.removed.iter().map(|cache| {
        let (why, days) = match cache.why {
            Unused::Deleted => ("deleted", None),
            Unused::Days(days) => ("unused", Some(days)),
            Unused::Begun => ("unfinished", None),
        };
        let RemovedCache {
            project,
            entries,
            bytes,
            ..
        } = cache;
        json!({ "project": project, "why": why, "days": days, "entries": entries, "bytes": bytes })
    });
    json!({
        "removed": removed.collect::<Vec<_>>(),
        "count": cleaned.count,
        "inUse": cleaned.in_use,
        "auditFiles": cleaned.audit_files,
        "failed": cleaned.failed,
        "unfinished": cleaned.unfinished,
    })
}

fn as_text(cleaned: &Cleaned) -> String {
    let mut text: String = cleaned.removed.iter().map(line).collect();
    let more = cleaned.count - cleaned.removed.len() as u64;
    if more > 0 {
        text.push_str(&format!("and the caches of {more} more projects\n"));
    }
    if cleaned.audit_files > 0 {
        text.push_str(&format!(
            "removed {} files of the audit\n",
            cleaned.audit_files
        ));
    } else if cleaned.count == 0 {
        text.push_str("nothing to remove\n");
    }
    if cleaned.in_use > 0 {
        text.push_str(&format!("{} in use by open sessions\n", cleaned.in_use));
    }
    if cleaned.unfinished {
        text.push_str("there is more: run `lazaret gc` again\n");
    }
    text
}

fn line(cache: &RemovedCache) -> String {
    let why = match cache.why {
        Unused::Deleted => "which is gone".to_owned(),
        Unused::Days(days) => format!("not used for {days} days"),
        Unused::Begun => "which an earlier run had begun".to_owned(),
    };
    let mib = cache.bytes.div_ceil(1 << 20);
    let project = shell_word(&cache.project);
    format!(
        "removed {} entries, {mib} MiB: {project}, {why}\n",
        cache.entries
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_cannot_forge_a_line() {
        let cache = RemovedCache {
            project: "/p\nremoved 1 entries: /q\u{1b}[2J".into(),
            why: Unused::Deleted,
            entries: 2,
            bytes: 1,
        };
        let cleaned = Cleaned {
            removed: vec![cache],
            count: 3,
            unfinished: true,
            ..Cleaned::default()
        };
        let text = as_text(&cleaned);
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(
            text.starts_with("removed 2 entries, 1 MiB: $'/p\\012"),
            "{text}"
        );
        assert!(!text.contains('\u{1b}'));
        assert_eq!(as_json(&cleaned)["removed"][0]["why"], "deleted");
    }
}
