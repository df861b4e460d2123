//! Everything that the doctor looks at as one list, for programs that watch many machines: each row has an id that stays.

use crate::host_settings::Hint;
use crate::network::CommandNetwork;
use crate::programs::InstalledProgram;
use broker_protocol::{Failed, LayerReport, LayerState, Machine, Tier};
use orchestrator_confine::Confinement;
use orchestrator_engine::executor::Tried;
use orchestrator_launch::warm::WarmService;
use serde::Serialize;

/// One row of the list, which a program finds by its id.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    /// `KIND/NAME`. It is never given to something else.
    id: String,
    state: CheckState,
    /// What was seen, for people.
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckState {
    Ok,
    /// The tier does without it.
    Unused,
    /// It works, and something could be better.
    Advice,
    Missing,
}

impl Check {
    fn new(kind: &str, name: &str, state: CheckState, text: impl Into<String>) -> Self {
        Self {
            id: format!("{kind}/{name}"),
            state,
            text: text.into(),
        }
    }
}

/// A row of each program of the installation.
pub(crate) fn programs(installed: &[InstalledProgram]) -> impl Iterator<Item = Check> {
    installed.iter().map(|InstalledProgram { name, fault }| {
        let text = fault.as_ref().map_or(String::new(), ToString::to_string);
        Check::new("program", name, state(fault.is_none()), text)
    })
}

/// The rows: layers, `lazaret` itself, the session, the network, the host's own settings.
pub(crate) fn list(
    (machine, tried): (&Machine, &Result<Tried, Failed>),
    own: Option<&Confinement>,
    network: Option<&CommandNetwork>,
    (warm, hints): (&WarmService, &[Hint]),
) -> Vec<Check> {
    let layers = machine
        .layers
        .iter()
        .map(|report| layer(report, machine.tier));
    let own = own.map(|own| {
        let missing = own.missing();
        let state = state(missing.is_empty());
        Check::new("lazaret", "confinement", state, missing.join("; "))
    });
    let rows = network.map(CommandNetwork::rows).unwrap_or_default();
    let network = rows.into_iter().map(|(name, text, lost)| {
        let name = name.replace(' ', "-");
        Check::new("network", &name, state(lost.is_none()), text)
    });
    let hints = hints
        .iter()
        .map(|hint| Check::new("host", hint.setting, CheckState::Advice, hint.closes));
    let all = layers.chain(own).chain(session(tried)).chain(network);
    let (state, text) = match warm {
        WarmService::Absent => (CheckState::Unused, WARM_ABSENT),
        WarmService::Serves => (CheckState::Ok, WARM_SERVES),
        WarmService::OtherGroup => (CheckState::Advice, WARM_ELSEWHERE),
        WarmService::Silent => (CheckState::Advice, WARM_SILENT),
    };
    let warm = Check::new("warm", "serves", state, text);
    all.chain([warm]).chain(hints).collect()
}

const WARM_ABSENT: &str = "no `lazaret warm` runs; commands start as without it";
const WARM_SERVES: &str = "`lazaret warm` runs for commands of this login";
const WARM_ELSEWHERE: &str = "`lazaret warm` runs in another control group than this, as a service does, and serves no command from here; \
    start it in the login whose commands it shall serve";
const WARM_SILENT: &str =
    "a `lazaret warm` listens and does not answer; `lazaret warm status` says why";

/// The row for people: nothing of what is not there, and is not missed.
pub(crate) fn warm_row(warm: &WarmService) -> Option<&'static str> {
    match warm {
        WarmService::Absent => None,
        WarmService::Serves => Some(WARM_SERVES),
        WarmService::OtherGroup => Some(WARM_ELSEWHERE),
        WarmService::Silent => Some(WARM_SILENT),
    }
}

fn state(is_there: bool) -> CheckState {
    if is_there {
        CheckState::Ok
    } else {
        CheckState::Missing
    }
}

/// A layer of this machine, as the sessions of its tier use it.
pub(crate) enum LayerUse<'r> {
    InForce(&'r str),
    /// Sessions of this tier do without it on purpose.
    Unused {
        why: &'r str,
        lost: &'r str,
    },
    Missing {
        why: &'r str,
        lost: &'r str,
    },
}

impl<'r> LayerUse<'r> {
    pub(crate) fn of(report: &'r LayerReport, tier: Tier) -> Self {
        match &report.state {
            LayerState::InForce(detail) => Self::InForce(detail),
            LayerState::Missing { why, lost } if report.layer.is_unused_in(tier) => {
                Self::Unused { why, lost }
            }
            LayerState::Missing { why, lost } => Self::Missing { why, lost },
        }
    }
}

fn layer(report: &LayerReport, tier: Tier) -> Check {
    let (state, text) = match LayerUse::of(report, tier) {
        LayerUse::InForce(detail) => (CheckState::Ok, detail),
        LayerUse::Unused { lost, .. } => (CheckState::Unused, lost),
        LayerUse::Missing { why, .. } => (CheckState::Missing, why),
    };
    Check::new("layer", report.layer.name(), state, text)
}

/// Whether a session works, what it says, and what was found.
fn session(tried: &Result<Tried, Failed>) -> Vec<Check> {
    let Tried { opened, found, .. } = match tried {
        Ok(tried) => tried,
        Err(failed) => {
            let text = failed.message.as_str();
            return vec![Check::new("session", "opens", CheckState::Missing, text)];
        }
    };
    let opens = Check::new("session", "opens", CheckState::Ok, opened.profile.as_str());
    let notices = opened
        .notices
        .iter()
        .map(|notice| Check::new("session", "notice", CheckState::Advice, notice));
    let found = found.list().iter().map(|finding| {
        Check::new(
            "found",
            finding.kind.name(),
            CheckState::Advice,
            finding.to_string(),
        )
    });
    [opens].into_iter().chain(notices).chain(found).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::{ErrorKind, Layer};

    #[test]
    fn each_row_has_its_id_and_state() {
        let layer = |layer, state| LayerReport { layer, state };
        let missing = || LayerState::Missing {
            why: "w".into(),
            lost: "l".into(),
        };
        let machine = Machine {
            kernel: "6.1".into(),
            landlock_abi: 7,
            tier: Tier::Namespaced,
            layers: vec![
                layer(Layer::Seccomp, LayerState::InForce("331 calls".into())),
                layer(Layer::LandlockNetwork, missing()),
                layer(Layer::Cgroup, missing()),
            ],
        };
        let failed = Err(Failed {
            kind: ErrorKind::InvalidInput,
            message: "no profile `x`".into(),
        });
        let hint = Hint {
            setting: "safe.directory",
            closes: "c",
            git: None,
        };
        let rows = list(
            (&machine, &failed),
            None,
            None,
            (&WarmService::Absent, &[hint]),
        );
        let rows: Vec<_> = rows
            .iter()
            .map(|row| (row.id.as_str(), row.state, row.text.as_str()))
            .collect();
        let want = [
            ("layer/seccomp", CheckState::Ok, "331 calls"),
            ("layer/landlock-network", CheckState::Unused, "l"),
            ("layer/cgroup", CheckState::Missing, "w"),
            ("session/opens", CheckState::Missing, "no profile `x`"),
            ("warm/serves", CheckState::Unused, WARM_ABSENT),
            ("host/safe.directory", CheckState::Advice, "c"),
        ];
        assert_eq!(rows, want);
    }
}
