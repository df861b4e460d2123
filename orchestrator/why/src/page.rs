//! Findings for a person, and as JSON. A hostile program may have chosen any part of them, so each text is on one line and escaped.

use crate::findings::{ExplainedDenial, ExplainedDenials, LoggedRefusal, OpeningOption};
use broker_protocol::paste::shell_word;
use broker_protocol::{Command, Denial, Ended, limit};
use orchestrator_results::denials::DenialJson;
use orchestrator_text::escape::{for_terminal, one_line};
use orchestrator_text::known::redactor;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

/// Number of paths in one directory that are still printed individually.
const APART: usize = 5;

/// What was run, and how it ended.
pub(crate) struct Rerun {
    pub command: Command,
    pub profile: String,
    pub ended: Option<Ended>,
}

impl Rerun {
    pub(crate) fn words(&self) -> Vec<String> {
        match &self.command {
            Command::Shell(line) => vec!["bash".into(), "-c".into(), line.clone()],
            Command::Arguments(words) => words
                .iter()
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect(),
        }
    }

    fn end(&self) -> String {
        match self.ended {
            Some(Ended::Exited(code)) => format!("it ended with exit code {code}"),
            Some(Ended::Signalled(number)) => format!("signal {number} ended it"),
            Some(Ended::TimedOut) => {
                "it ran into its time limit, which it reaches sooner under a tracer".into()
            }
            Some(Ended::Idle) => "it printed nothing for too long".into(),
            Some(Ended::Cancelled) => "it was cancelled".into(),
            Some(Ended::Limited(limit)) => format!("it ran into the limit `{}`", limit.name()),
            Some(Ended::NotStarted(_)) => "it could not be started".into(),
            Some(Ended::NoDirectory(_)) => "its directory could not be entered".into(),
            None => "it was not run".into(),
        }
    }
}

/// A text on one line without secrets.
fn clean(text: &str) -> String {
    one_line(&redactor().text(text))
}

/// A text without secrets for a program: control characters and those that reorder text are escaped.
fn for_program(text: &str) -> String {
    for_terminal(&redactor().text(text))
}

fn changed(denial: &Denial, change: fn(&str) -> String) -> Denial {
    let mut denial = denial.clone();
    denial.clean(change);
    denial
}

pub(crate) fn text(rerun: &Rerun, findings: &ExplainedDenials) -> String {
    let words: Vec<_> = rerun
        .words()
        .iter()
        .map(|word| shell_word(word).into_owned())
        .collect();
    let command = words.join(" ");
    let mut page = format!(
        "{}\nran again under a tracer, without network; its changes were discarded. In this run {}.\n",
        clean(&command),
        rerun.end()
    );
    if findings.list.is_empty() && findings.profile.is_none() && findings.logged.is_empty() {
        let known = if findings.gaps.is_empty() {
            "was denied"
        } else {
            "is known to have been denied"
        };
        let _ = writeln!(page, "\nNothing {known} to it.");
    }
    let shown = |ExplainedDenial { denial, grant }: &ExplainedDenial| ExplainedDenial {
        denial: changed(denial, clean),
        grant: grant.clone(),
    };
    let shown: Vec<_> = findings.list.iter().map(shown).collect();
    groups(&shown)
        .iter()
        .for_each(|group| write_group(&mut page, group));
    write_rest(&mut page, findings);
    // If the command cannot be printed exactly, it is not printed for copying.
    let command = if clean(&command) == command {
        &command
    } else {
        "CMD"
    };
    write_options(&mut page, rerun, findings, command);
    page
}

/// A refusal of the gateway in the run log, on one line.
pub(crate) fn logged(refusal: &LoggedRefusal) -> String {
    clean(&format!(
        "{}: {} [gateway; {}]",
        refusal.place, refusal.why, refusal.advice
    ))
}

/// Everything that is not a single denial.
fn write_rest(page: &mut String, findings: &ExplainedDenials) {
    for refusal in &findings.logged {
        let _ = writeln!(
            page,
            "\nwhen it ran before, the gateway refused\n  {}",
            logged(refusal)
        );
    }
    if let Some(profile) = &findings.profile {
        let profile = clean(profile);
        let profile = shell_word(&profile);
        let _ = writeln!(
            page,
            "\nAnother profile shows a program that was not found:\n  with --profile {profile}"
        );
    }
    if findings.more > 0 {
        let _ = writeln!(
            page,
            "\nand {} more denials that the executor only counted",
            findings.more
        );
    }
    for host in &findings.only_here {
        let _ = writeln!(
            page,
            "\nconnect {}\n  `lazaret run` reaches this host; `lazaret why` reaches none.",
            clean(host)
        );
    }
    for gap in &findings.gaps {
        let _ = writeln!(page, "\nnot known: {}", gap.describe());
    }
}

/// All options that open something, on one line for copying.
fn write_options(page: &mut String, rerun: &Rerun, findings: &ExplainedDenials, command: &str) {
    let grants = findings.grants();
    if grants.is_empty() {
        return;
    }
    let options: Vec<_> = grants.iter().map(option).collect();
    let profile = clean(&rerun.profile);
    let (profile, options) = (shell_word(&profile), options.join(" "));
    let opens_all =
        findings.more == 0 && findings.list.iter().all(|finding| finding.grant.is_some());
    let what = if opens_all {
        "all of this"
    } else {
        "a part of this; each entry says what opens it, if anything does"
    };
    let _ = writeln!(
        page,
        "\nOptions that would open {what}. The program chose these paths and hosts; grant only what you intend:"
    );
    let _ = writeln!(
        page,
        "  lazaret run --profile {profile} {options} -- {command}"
    );
    let paths = grants.iter().filter(|grant| grant.is_of_paths()).count();
    if paths > limit::WANTED_PATHS {
        let max = limit::WANTED_PATHS;
        let _ = writeln!(
            page,
            "  (a session takes {max} paths, not {paths}: grant the directories that contain them)"
        );
    }
}

/// The option for a grant. None is offered for a path that cannot be printed exactly.
fn option(grant: &OpeningOption) -> String {
    format!(
        "{} {}",
        grant.option,
        shell_word(&for_program(&grant.value))
    )
}

/// Groups to print together: many paths of one directory, denied and opened in the same way.
fn groups(list: &[ExplainedDenial]) -> Vec<Vec<&ExplainedDenial>> {
    let mut groups: Vec<Vec<&ExplainedDenial>> = Vec::new();
    for finding in list {
        let alike = |group: &&mut Vec<&ExplainedDenial>| {
            let first = group[0];
            let (one, other) = (&first.denial, &finding.denial);
            first.grant.is_some()
                && parent(first) == parent(finding)
                && (one.what.kind, &one.by, &one.why) == (other.what.kind, &other.by, &other.why)
                && first.grant.as_ref().map(|grant| grant.option)
                    == finding.grant.as_ref().map(|grant| grant.option)
        };
        match groups.iter_mut().find(alike) {
            Some(group) => group.push(finding),
            None => groups.push(vec![finding]),
        }
    }
    groups
}

fn parent(finding: &ExplainedDenial) -> Option<&Path> {
    Path::new(&finding.denial.what.target).parent()
}

fn write_group(page: &mut String, group: &[&ExplainedDenial]) {
    if group.len() <= APART {
        return group.iter().for_each(|finding| write_one(page, finding));
    }
    let Denial { what, by, why, .. } = &group[0].denial;
    let directory = parent(group[0]).unwrap_or(Path::new("/")).display();
    let name = |finding: &&ExplainedDenial| {
        let name = Path::new(&finding.denial.what.target)
            .file_name()
            .unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    let names: Vec<_> = group.iter().take(APART).map(name).collect();
    let (kind, count, names) = (what.kind.name(), group.len(), names.join(", "));
    let _ = writeln!(
        page,
        "\n{kind} {count} paths of {directory}: {names}, … (--json has all)"
    );
    let option = group[0].grant.as_ref().map_or("", |grant| grant.option);
    let _ = writeln!(page, "  {by}: {why}\n  opens each: {option} PATH");
}

fn write_one(page: &mut String, ExplainedDenial { denial, grant }: &ExplainedDenial) {
    let Denial {
        what,
        by,
        why,
        remedy,
        count,
        ..
    } = denial;
    let times = if *count > 1 {
        format!(" ({count} times)")
    } else {
        String::new()
    };
    let opens = match grant.as_ref().filter(|grant| grant.is_of_paths()) {
        Some(grant) => format!("with {}", option(grant)),
        // For a host, this includes the preset, and how to open it permanently.
        None => remedy.to_string().trim_end().replace('\n', "\n  "),
    };
    let _ = writeln!(page, "\n{what}{times}\n  {by}: {why}\n  {opens}");
}

pub(crate) fn json(rerun: &Rerun, findings: &ExplainedDenials) -> Value {
    let denied = findings
        .list
        .iter()
        .map(|ExplainedDenial { denial, grant }| {
            let mut value = json!(DenialJson::from(&changed(denial, for_program)));
            value["grant"] = grant.as_ref().map_or(Value::Null, |grant| {
                json!([grant.option, for_program(&grant.value)])
            });
            value
        });
    let grants = findings.grants();
    let options = grants
        .iter()
        .flat_map(|grant| [grant.option.to_owned(), for_program(&grant.value)]);
    let words: Vec<_> = rerun.words().iter().map(|word| for_program(word)).collect();
    json!({
        "command": words,
        "profile": for_program(&rerun.profile),
        "end": rerun.end(),
        "exitCode": match rerun.ended {
            Some(Ended::Exited(code)) => json!(code),
            _ => Value::Null,
        },
        "denied": denied.collect::<Vec<_>>(),
        "missingProfile": findings.profile.as_deref().map(for_program),
        "deniedMore": findings.more,
        "options": options.collect::<Vec<_>>(),
        "gateway": findings.logged.iter().map(|refusal| json!({
            "target": for_program(&refusal.place),
            "why": for_program(&refusal.why),
            "advice": refusal.advice,
        })).collect::<Vec<_>>(),
        "hostsOfRun": findings.only_here.iter().map(|host| for_program(host)).collect::<Vec<_>>(),
        "unknown": findings.gaps.iter().map(|gap| gap.name()).collect::<Vec<_>>(),
        "network": "closed",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::{AttemptKind, Barrier, Layer, Leased, Remedy};

    fn read(path: &str) -> Denial {
        let by = Barrier::Layer(Layer::MountNamespace, None);
        let remedy = Remedy::Option(format!("--read {}", shell_word(path)));
        let denial = Denial::new(AttemptKind::Read, path, by, "why", remedy);
        denial.with_lease((!path.contains('\n')).then(|| Leased::Read(path.into())))
    }

    fn page(paths: &[String]) -> String {
        orchestrator_text::known::learn(&[]).unwrap();
        let mut findings = ExplainedDenials::default();
        paths.iter().for_each(|path| findings.add(read(path)));
        let command = Command::Arguments(vec![b"cat".to_vec().into(), b"it's".to_vec().into()]);
        text(
            &Rerun {
                command,
                profile: "default".into(),
                ended: Some(Ended::Exited(1)),
            },
            &findings,
        )
    }

    #[test]
    fn each_thing_is_printed_with_what_opens_it() {
        let page = page(&["/srv/a".to_owned()]);
        for part in [
            "read /srv/a\n  layer mount-namespace: why\n  with --read /srv/a\n",
            "--read /srv/a -- cat 'it'\\''s'\n",
        ] {
            assert!(page.contains(part), "{page}");
        }
        let many: Vec<_> = (0..20).map(|number| format!("/srv/{number}")).collect();
        let page = self::page(&many);
        assert!(
            page.contains("read 20 paths of /srv: 0, 1, 2, 3, 4, …")
                && page.contains("takes 16 paths, not 20"),
            "{page}"
        );
    }

    #[test]
    fn options_that_leave_something_closed_do_not_claim_to_open_all() {
        orchestrator_text::known::learn(&[]).unwrap();
        let by = Barrier::Layer(Layer::ProtectedNames, None);
        let closed = Denial::new(AttemptKind::Write, ".husky/x", by, "why", Remedy::Nothing);
        let command = Command::Arguments(vec![b"make".to_vec().into()]);
        let rerun = Rerun {
            command,
            profile: "default".into(),
            ended: Some(Ended::Exited(1)),
        };
        let mut findings = ExplainedDenials::default();
        findings.add(read("/srv/a"));
        assert!(text(&rerun, &findings).contains("Options that would open all of this."));
        findings.add(closed);
        let page = text(&rerun, &findings);
        assert!(
            page.contains("no option allows this") && page.contains("open a part of this; "),
            "{page}"
        );
        assert!(!page.contains("all of this"), "{page}");
    }

    #[test]
    fn no_text_of_a_program_begins_a_line() {
        let page = page(&["/srv/x\n\nread /etc\u{1b}[2K\u{202e}".to_owned()]);
        assert!(
            !page.lines().any(|line| line.starts_with("read /etc")),
            "{page}"
        );
        assert!(
            page.contains("/srv/x\\n\\nread /etc\\u{1b}[2K\\u{202e}"),
            "{page}"
        );
    }
}
