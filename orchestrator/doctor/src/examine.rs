//! `lazaret doctor`: reports which layers this machine supports, and what is lost without each.

use crate::attack;
use crate::checks::{self, LayerUse};
use crate::host_settings::{self, Hint};
use crate::namespace_settings::NamespaceSettings;
use crate::network::CommandNetwork;
use crate::programs::{self, InstalledProgram};
use crate::support;
use broker_protocol::{
    Bash, Command, Ended, ErrorKind, Failed, LayerReport, Machine, Outcome, Stdin, Tier,
};
use clap::Args;
use orchestrator_confine::{self as confinement, Confinement, Needs};
use orchestrator_engine::executor::{Greeting, Tried};
use orchestrator_launch::exit;
use orchestrator_launch::groups::{Options, PlaceOptions};
use orchestrator_launch::launch::{ErrorForm, FrontEnd, Launch, Prepared};
use orchestrator_launch::row::{CommandAccess, CommandRow, NetworkUse, SessionCount, Writes};
use orchestrator_launch::stdio::print::{self, Colour, paint};
use orchestrator_launch::stdio::terminal;
use orchestrator_launch::warm::WarmService;
use orchestrator_results::findings;
use orchestrator_wire::error::ErrorBody;
use serde_json::{Value, json};
use std::io::{self, IsTerminal};

/// Say which layers this machine has, and what you lose without each
///
/// Asks the executor what the kernel offers, then tries whether a session opens for this project and profile, and a command runs in it. With
/// --attack, tries real attacks instead, each without a cell first and then in a cell of an empty project, and prints
/// each outcome. An attack that does not work without a cell either is untested; what a tier is known not to hold
/// is named with the reason.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  lazaret doctor\n  lazaret doctor --profile rust --json\n  lazaret doctor --attack\n  lazaret doctor --support-bundle > bundle.json"
)]
pub struct Doctor {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Print one JSON object for a bug report: what --json prints, with versions, kernel settings, and the names of policy files and of
    /// variables that decide something. It has no contents of files and no values; your home is `~` in it. Read it before you send it
    #[arg(long, conflicts_with_all = ["attack", "fix"])]
    support_bundle: bool,
    /// Ask about each setting of this machine's own that would close more, and set those that you want
    #[arg(long, conflicts_with_all = ["attack", "json"])]
    fix: bool,
    /// Attack a cell with this profile, in an empty project of its own
    #[arg(long)]
    attack: bool,
    #[command(flatten)]
    place: PlaceOptions,
}

impl FrontEnd for Doctor {
    const ROW: CommandRow = CommandRow {
        name: "doctor",
        sessions: SessionCount::One,
        access: CommandAccess::Confined {
            network: NetworkUse::None,
            writes: Writes::Temporary,
        },
        log: false,
        usage: exit::USAGE,
        exit: "0 if a command runs in a session with every layer that its profile requires, and with --attack if its cell holds all \
               that is not named as known; else 1; 2 wrong arguments; 125 lazaret failed",
    };

    fn errors(&self) -> ErrorForm {
        ErrorForm::object(self.json || self.support_bundle)
    }

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        let prepared = launch.prepare::<Self>(Options::of(&self.place))?;
        let (options, files) = (prepared.options(), prepared.files());
        if self.attack {
            return attack::main(prepared, self.json);
        }
        if self.fix {
            return host_settings::fix(files);
        }
        let hints = host_settings::hints(files);
        let settings = NamespaceSettings::read(options.endpoint().program());
        let notes = options.files().notes();
        let warm = WarmService::find(files);
        // An error in the policy is what the session's opening reports.
        let network = options.policy().ok().map(|policy| {
            let variable = |name: &str| std::env::var(name).ok();
            let network = CommandNetwork::of(&options.endpoint().program(), &policy, variable);
            network.ask().tried(prepared.try_company())
        });
        let support = self
            .support_bundle
            .then(|| support::gather(files, &options.endpoint().program()));
        let installed = programs::installed(files, &options.endpoint().program());
        let is_tried = network.as_ref().is_some_and(CommandNetwork::is_set);
        let examined = examine(prepared, is_tried);
        match &examined {
            Ok((machine, opened)) if self.json || self.support_bundle => {
                let own = confinement::in_force();
                let mut report = to_json(machine, opened, own);
                let mut checks =
                    checks::list((machine, opened), own, network.as_ref(), (&warm, &hints));
                checks.extend(checks::programs(&installed));
                report["checks"] = json!(checks);
                report["hints"] = json!(hints);
                report["policyNotes"] = json!(notes);
                report["network"] = json!(network.as_ref().map(CommandNetwork::json));
                print_json(report, support)?
            }
            Ok((machine, opened)) => {
                let style = Style::of_output();
                let mut page = page(machine, opened, confinement::in_force(), style);
                page.extend(program_rows(&installed, style));
                let rows = network.iter().flat_map(CommandNetwork::rows);
                page.extend(rows.map(|row| network_row(&row, style)));
                page.extend(notes.iter().map(|note| note_row(note, style)));
                page.extend(checks::warm_row(&warm).map(|text| warm_row(text, style)));
                if machine.tier == Tier::Flat {
                    page.push_str(&settings.remedy());
                }
                print::result((page + &hint_rows(&hints, style)).as_bytes())?
            }
            Err(failed) if self.json || self.support_bundle => {
                let session = session_json(&Err(failed.clone()));
                let checks: Vec<_> = checks::programs(&installed).collect();
                print_json(json!({ "session": session, "checks": checks }), support)?
            }
            Err(failed) => {
                print::problem(&failed.message);
                let rows: String = program_rows(&installed, Style::of_output()).collect();
                print::result(rows.as_bytes())?
            }
        }
        Ok(if matches!(examined, Ok((_, Ok(_)))) {
            exit::OK
        } else {
            exit::FAILED
        })
    }
}

/// Prints the report; with what a bug report needs, it is for somebody else.
fn print_json(report: Value, support: Option<Value>) -> Result<(), Failed> {
    let Some(support) = support else {
        return print::json(&report);
    };
    let mut report = support::for_others(&report);
    report["support"] = support;
    print::json(&support::without_home(report))
}

/// Tries a session; with `network`, one with a gateway, which opens only if what the policy sets for that can be used.
fn examine(prepared: Prepared, network: bool) -> Result<(Machine, Result<Tried, Failed>), Failed> {
    let mut open = prepared.options().open()?.open;
    if network {
        open.network.get_or_insert_default().leases = true;
    }
    let greeting = Greeting::probe(&prepared.options().endpoint())?;
    let confined = prepared.confine(Needs::default());
    let probed = async { Ok(greeting.probed(open, nothing()).await?) };
    let (machine, tried) = confined.run(|_| "the machine is examined", probed)?;
    Ok((machine, tried.map_err(Failed::from).and_then(works)))
}

/// A command that does nothing: a session in which none starts is of no use.
fn nothing() -> Bash {
    /// It takes some milliseconds.
    const TIMEOUT_S: u32 = 20;
    Bash {
        command: Command::Shell("true".into()),
        directory: None,
        timeout_s: Some(TIMEOUT_S),
        idle_timeout_s: None,
        stdin: Stdin::Null,
        live: false,
        background: false,
        split: false,
        attended: false,
    }
}

/// The session, if commands start in it, as far as its policy lets anybody try that unasked.
fn works(tried: Tried) -> Result<Tried, Failed> {
    let why = match &tried.outcome {
        None | Some(Outcome::Refused(_) | Outcome::Answered | Outcome::Granted) => {
            return Ok(tried);
        }
        Some(Outcome::Ran(ran)) if ran.ended == Ended::Exited(0) => return Ok(tried),
        Some(Outcome::Ran(ran)) => format!("`true` has ended otherwise: {:?}", ran.ended),
        Some(Outcome::Failed(failed)) => failed.message.clone(),
        Some(Outcome::Broken(broken)) => broken.to_string(),
    };
    let message = format!("a session opens, but no command runs in it: {why}");
    Err(Failed {
        kind: ErrorKind::Internal,
        message,
    })
}

fn to_json(machine: &Machine, opened: &Result<Tried, Failed>, own: Option<&Confinement>) -> Value {
    json!({
        "kernel": machine.kernel,
        "landlockAbi": machine.landlock_abi,
        "tier": machine.tier.name(),
        "layers": machine.layers.iter().map(|report| layer_json(report, machine.tier)).collect::<Vec<_>>(),
        "orchestrator": own.map(|own| json!({ "inForce": own.missing().is_empty(), "missing": own.missing() })),
        "session": session_json(opened),
    })
}

fn layer_json(report: &LayerReport, tier: Tier) -> Value {
    let name = report.layer.name();
    match LayerUse::of(report, tier) {
        LayerUse::InForce(detail) => json!({ "name": name, "inForce": true, "detail": detail }),
        LayerUse::Unused { why, lost } => {
            json!({ "name": name, "inForce": false, "unused": true, "why": why, "lost": lost })
        }
        LayerUse::Missing { why, lost } => {
            json!({ "name": name, "inForce": false, "why": why, "lost": lost })
        }
    }
}

fn session_json(opened: &Result<Tried, Failed>) -> Value {
    match opened {
        Ok(Tried { opened, found, .. }) => json!({
            "ok": true,
            "project": opened.project,
            "central": opened.central,
            "profile": opened.profile,
            "policy": opened.policy.to_string(),
            "tier": opened.tier.name(),
            "notices": opened.notices,
            "found": findings::json(found),
        }),
        Err(failed) => json!({ "ok": false, "error": ErrorBody::from(failed) }),
    }
}

fn page(
    machine: &Machine,
    opened: &Result<Tried, Failed>,
    own: Option<&Confinement>,
    style: Style,
) -> String {
    let mut page = format!(
        "kernel  {} (Landlock ABI {})\ntier    {}\n\n",
        print::shown(&machine.kernel),
        machine.landlock_abi,
        machine.tier.name()
    );
    page.extend(
        machine
            .layers
            .iter()
            .map(|report| row(report, machine.tier, style)),
    );
    page.extend(own.map(|own| own_row(own, style)));
    page.push('\n');
    page.push_str(&match opened {
        Ok(Tried { opened, found, .. }) => {
            let good = paint("A session opens here", Colour::Green, style.colour);
            format!(
                "{good} with the profile `{}`.\n{}{}",
                print::shown(&opened.profile),
                rows("Session", &opened.notices, style),
                rows("Found", found.list(), style)
            )
        }
        Err(failed) => {
            const BAD: &str = "No session works here";
            let why = style.wrap(&format!("{BAD}: {}", print::shown(&failed.message)), 0);
            format!(
                "{}\n",
                why.replacen(BAD, &paint(BAD, Colour::Red, style.colour), 1)
            )
        }
    });
    page
}

/// A line for each of what the session says at its beginning, or what was found in the project.
fn rows(name: &str, texts: &[impl ToString], style: Style) -> String {
    let shown = |text: &_| style.wrap(&print::shown(&ToString::to_string(text)), 0);
    let row = |text: &_| format!("{name}: {}\n", shown(text));
    texts.iter().map(row).collect()
}

/// A row of each program that does not work with this one.
fn program_rows(installed: &[InstalledProgram], style: Style) -> impl Iterator<Item = String> {
    let faults = installed
        .iter()
        .filter_map(|one| Some((one.name, one.fault.as_ref()?)));
    faults.map(move |(name, fault)| style.missing(name, &fault.to_string(), programs::LOST))
}

fn network_row((name, text, lost): &(&str, String, Option<&str>), style: Style) -> String {
    match lost {
        Some(lost) => style.missing(name, text, lost),
        None => format!("{name:<19} {}\n", style.wrap(&print::shown(text), INDENT)),
    }
}

/// What to know about the policy files.
fn note_row(note: &str, style: Style) -> String {
    format!("Policy: {}\n", style.wrap(&print::shown(note), 0))
}

fn warm_row(text: &str, style: Style) -> String {
    format!("Warm: {}\n", style.wrap(text, 0))
}

/// What the user's own programs leave open.
fn hint_rows(hints: &[Hint], style: Style) -> String {
    if hints.is_empty() {
        return String::new();
    }
    // A command is meant to be copied, so it stays on one line.
    let row = |hint: &Hint| {
        format!(
            "  {}\n      {}\n",
            style.wrap(hint.closes, 2),
            hint.remedy()
        )
    };
    let rows = hints.iter().map(row);
    format!(
        "\nThis machine's own settings could close more (`lazaret doctor --fix` asks):\n{}",
        rows.collect::<String>()
    )
}

/// The confinement of this process: it is not a layer of a session, and no session depends on it.
fn own_row(own: &Confinement, style: Style) -> String {
    let name = "lazaret itself";
    match (&own.landlock, &own.seccomp) {
        (Ok(abi), Ok(_)) => {
            let state = paint("in force", Colour::Green, style.colour);
            format!("{name:<19} {state}  Landlock ABI {abi}, seccomp\n")
        }
        _ => {
            let lost = "lost: an attacker who compromises `lazaret`, which handles the model's output, gets your rights";
            style.missing(name, &own.missing().join("; "), lost)
        }
    }
}

/// Columns before the text of a row.
const INDENT: usize = 31;
/// Width of a page that is not on a terminal.
const COLUMNS: usize = 119;
/// Minimum width of the text, however narrow the terminal is.
const COLUMNS_MIN: usize = 24;

/// How the page is printed.
#[derive(Clone, Copy, Debug)]
struct Style {
    colour: bool,
    columns: usize,
}

impl Style {
    fn of_output() -> Self {
        let colour = io::stdout().is_terminal();
        Self {
            colour,
            columns: if colour {
                terminal::size().1.into()
            } else {
                COLUMNS
            },
        }
    }

    /// Wraps `text` between words into lines from `indent` to the last column; the first continues the current row.
    fn wrap(self, text: &str, indent: usize) -> String {
        let columns = self.columns.saturating_sub(indent).max(COLUMNS_MIN);
        let mut lines = vec![String::new()];
        for word in text.split(' ') {
            let full = lines.last().is_some_and(|line| {
                !line.is_empty() && line.chars().count() + 1 + word.chars().count() > columns
            });
            match lines.last_mut() {
                Some(line) if !full => {
                    if !line.is_empty() {
                        line.push(' ');
                    }
                    line.push_str(word);
                }
                _ => lines.push(word.to_owned()),
            }
        }
        lines.join(&format!("\n{:indent$}", ""))
    }

    /// The row for a missing layer.
    fn missing(self, name: &str, why: &str, lost: &str) -> String {
        self.not_in_force(
            name,
            &paint("missing ", Colour::Red, self.colour),
            why,
            lost,
        )
    }

    fn not_in_force(self, name: &str, state: &str, why: &str, lost: &str) -> String {
        let [why, lost] = [why, lost].map(|text| self.wrap(&print::shown(text), INDENT));
        format!("{name:<19} {state}  {why}\n{:INDENT$}{lost}\n", "")
    }
}

fn row(report: &LayerReport, tier: Tier, style: Style) -> String {
    let name = report.layer.name();
    match LayerUse::of(report, tier) {
        LayerUse::InForce(detail) => {
            let row = format!(
                "{name:<19} {}  {}",
                paint("in force", Colour::Green, style.colour),
                style.wrap(&print::shown(detail), INDENT)
            );
            format!("{}\n", row.trim_end())
        }
        LayerUse::Unused { why, lost } => {
            style.not_in_force(name, "not used", why, &format!("lost: {lost}"))
        }
        LayerUse::Missing { why, lost } => style.missing(name, why, &format!("lost: {lost}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::{Findings, Layer, LayerState};
    use orchestrator_confine::NotConfined;

    #[test]
    fn a_long_row_is_broken_between_words_at_the_terminals_width() {
        for columns in [80, COLUMNS] {
            let (style, room) = (
                Style {
                    colour: false,
                    columns,
                },
                columns - INDENT,
            );
            let wrap = |text: &str| style.wrap(text, INDENT);
            let word = "x".repeat(room / 2);
            let more = format!("{word}xx");
            assert_eq!(
                wrap(&format!("{word} {more}")),
                format!("{word}\n{:INDENT$}{more}", "")
            );
            let fits = format!("{word} {}", "x".repeat(room - room / 2 - 1));
            assert_eq!(wrap(&fits), fits);
            assert_eq!(wrap(""), "");
            let long = "y".repeat(3 * room);
            assert_eq!(wrap(&long), long, "what is no text is not broken");
        }
        let narrow = Style {
            colour: false,
            columns: 10,
        };
        assert_eq!(narrow.wrap("a b", INDENT), "a b");
    }

    #[test]
    fn a_layer_that_its_tier_does_without_is_not_missing() {
        let state = LayerState::Missing {
            why: "the namespace does it".into(),
            lost: "the second layer".into(),
        };
        let report = LayerReport {
            layer: Layer::LandlockNetwork,
            state,
        };
        let of = |tier| {
            let style = Style {
                colour: true,
                columns: 200,
            };
            (
                row(&report, tier, style),
                layer_json(&report, tier)["unused"].clone(),
            )
        };
        let (text, unused) = of(Tier::Namespaced);
        assert!(
            text.starts_with("landlock-network    not used  the namespace does it\n"),
            "{text}"
        );
        assert_eq!(unused, true);
        let (text, unused) = of(Tier::Flat);
        assert!(
            text.contains("missing") && !text.contains("not used"),
            "{text}"
        );
        assert_eq!(unused, Value::Null);
    }

    #[test]
    fn session_that_runs_no_commands_fails_the_examination() {
        let opened = lazaret_fakes::opened(0);
        let failed = Failed {
            kind: ErrorKind::Internal,
            message: "cannot start `true`".into(),
        };
        let with = |outcome| {
            works(Tried {
                opened: opened.clone(),
                outcome,
                found: Findings::default(),
            })
            .map(|_| ())
        };
        assert!(
            with(Some(Outcome::Failed(failed)))
                .unwrap_err()
                .message
                .contains("cannot start `true`")
        );
        assert_eq!(with(None), Ok(()), "the policy asks first");
    }

    #[test]
    fn missing_layer_is_reported_with_reason_and_loss() {
        let state = LayerState::Missing {
            why: "no\x1b delegation".into(),
            lost: "a cap on memory".into(),
        };
        let layers = vec![
            LayerReport {
                layer: Layer::Cgroup,
                state,
            },
            LayerReport {
                layer: Layer::Seccomp,
                state: LayerState::InForce("331 calls".into()),
            },
        ];
        let machine = Machine {
            kernel: "6.1".into(),
            landlock_abi: 7,
            tier: Tier::Flat,
            layers,
        };
        let failed = Failed {
            kind: ErrorKind::InvalidInput,
            message: "no profile `x`".into(),
        };
        let opened = Err(failed);
        let want = "kernel  6.1 (Landlock ABI 7)\ntier    flat\n\n\
                    cgroup              missing   no\\u{1b} delegation\n\
                    \x20                              lost: a cap on memory\n\
                    seccomp             in force  331 calls\n\n\
                    No session works here: no profile `x`\n";
        let style = Style {
            colour: false,
            columns: 200,
        };
        assert_eq!(page(&machine, &opened, None, style), want);
        let json = to_json(&machine, &opened, None);
        assert_eq!(json["layers"][0]["inForce"], false);
        assert_eq!(json["session"]["error"]["code"], "invalid_input");
        assert_eq!(json["layers"][0]["unused"], Value::Null);
        let own = Confinement {
            landlock: Err(NotConfined::NotEnabled),
            seccomp: Ok(7),
        };
        let want = "lazaret itself      missing   landlock: the kernel has it, and it is not switched on\n\
                    \x20                              lost: an attacker who compromises `lazaret`, which handles the model's \
                    output, gets your rights\n";
        assert_eq!(own_row(&own, style), want);
        assert_eq!(
            to_json(&machine, &opened, Some(&own))["orchestrator"]["missing"],
            json!(["landlock: the kernel has it, and it is not switched on"])
        );
        let own = Confinement {
            landlock: Ok(7),
            seccomp: Ok(7),
        };
        assert_eq!(
            own_row(&own, style),
            "lazaret itself      in force  Landlock ABI 7, seccomp\n"
        );
    }
}
