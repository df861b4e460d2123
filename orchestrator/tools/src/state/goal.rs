//! Goals, one of them active, and the checkpoints on the way to them.

use super::file::{StateError, StateFile, is_long};
use super::todo::Priority;
use broker_protocol::StateTool;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of goals.
pub(crate) const MAX: usize = 100;
/// Maximum number of checkpoints of one goal.
pub(crate) const CHECKPOINTS: usize = 100;
/// Maximum number of items in a list.
const LIST: usize = 100;
/// Maximum characters of an item in a list.
const ITEM: usize = 2000;
/// Maximum characters of a summary or a checkpoint's description.
const TEXT: usize = 8000;

/// The goals.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Goals {
    goals: Vec<Goal>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Goal {
    id: u32,
    description: String,
    priority: Priority,
    status: GoalStatus,
    #[serde(default)]
    subtasks: Vec<String>,
    #[serde(default)]
    summary: Option<String>,
    #[serde(default)]
    artifacts: Vec<String>,
    #[serde(default)]
    checkpoints: Vec<Checkpoint>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum GoalStatus {
    Active,
    Paused,
    Completed,
}

/// Notes where the work on the active goal stands. It changes no files and keeps no copy of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// The work done so far.
    #[schemars(length(min = 1, max = TEXT))]
    pub description: String,
    /// Files that were changed.
    #[schemars(length(max = LIST), inner(length(min = 1, max = ITEM)))]
    #[serde(default)]
    pub(crate) files_modified: Vec<String>,
    /// Tests that were added.
    #[schemars(length(max = LIST), inner(length(min = 1, max = ITEM)))]
    #[serde(default)]
    pub(crate) tests_added: Vec<String>,
    /// Decisions that stand.
    #[schemars(length(max = LIST), inner(length(min = 1, max = ITEM)))]
    #[serde(default)]
    pub(crate) decisions_locked: Vec<String>,
}

/// A change of the goals.
#[derive(Clone, Debug, PartialEq)]
pub enum GoalChange {
    Create {
        description: String,
        priority: Option<Priority>,
        subtasks: Vec<String>,
    },
    Pause,
    Resume(String),
    New {
        description: String,
        priority: Option<Priority>,
    },
    Complete {
        summary: String,
        artifacts: Vec<String>,
    },
}

impl GoalChange {
    /// The tool it belongs to.
    pub fn tool(&self) -> StateTool {
        match self {
            GoalChange::Create { .. } => StateTool::GoalCreate,
            GoalChange::Pause | GoalChange::Resume(_) | GoalChange::New { .. } => {
                StateTool::GoalSwitch
            }
            GoalChange::Complete { .. } => StateTool::GoalComplete,
        }
    }
}

impl Goals {
    /// Makes a change.
    pub(crate) fn change(&mut self, change: &GoalChange) -> Result<(), StateError> {
        match change {
            GoalChange::Create {
                description,
                priority,
                subtasks,
            } => {
                let status = if self.active().is_ok() {
                    GoalStatus::Paused
                } else {
                    GoalStatus::Active
                };
                self.add(description, *priority, subtasks, status)
            }
            GoalChange::New {
                description,
                priority,
            } => {
                // Comes first, so that a full list leaves the active goal active.
                self.add(description, *priority, &[], GoalStatus::Paused)?;
                let new = self.goals.len() - 1;
                self.activate(new);
                Ok(())
            }
            GoalChange::Pause => {
                self.active()?.status = GoalStatus::Paused;
                Ok(())
            }
            GoalChange::Resume(id) => {
                let open = |goal: &Goal| {
                    format!("g{}", goal.id) == *id && goal.status != GoalStatus::Completed
                };
                let at = self.goals.iter().position(open);
                let at = at.ok_or_else(|| StateError::Missing(format!("open goal {id:?}")))?;
                self.activate(at);
                Ok(())
            }
            GoalChange::Complete { summary, artifacts } => {
                let goal = self.active()?;
                goal.status = GoalStatus::Completed;
                goal.summary = Some(summary.clone());
                goal.artifacts.clone_from(artifacts);
                Ok(())
            }
        }
    }

    /// Adds a checkpoint to the active goal.
    pub(crate) fn note(&mut self, checkpoint: &Checkpoint) -> Result<(), StateError> {
        let goal = self.active()?;
        if goal.checkpoints.len() >= CHECKPOINTS {
            return Err(StateError::Full {
                max: CHECKPOINTS,
                what: "checkpoints of a goal",
            });
        }
        goal.checkpoints.push(checkpoint.clone());
        Ok(())
    }

    fn active(&mut self) -> Result<&mut Goal, StateError> {
        let active = self
            .goals
            .iter_mut()
            .find(|goal| goal.status == GoalStatus::Active);
        active.ok_or_else(|| StateError::Missing("active goal".to_owned()))
    }

    fn activate(&mut self, at: usize) {
        if let Ok(goal) = self.active() {
            goal.status = GoalStatus::Paused;
        }
        self.goals[at].status = GoalStatus::Active;
    }

    fn add(
        &mut self,
        description: &str,
        priority: Option<Priority>,
        subtasks: &[String],
        status: GoalStatus,
    ) -> Result<(), StateError> {
        if self.goals.len() >= MAX {
            return Err(StateError::Full {
                max: MAX,
                what: "goals",
            });
        }
        let id = self
            .goals
            .iter()
            .map(|goal| goal.id)
            .max()
            .unwrap_or(0)
            .saturating_add(1);
        self.goals.push(Goal {
            id,
            description: description.to_owned(),
            priority: priority.unwrap_or_default(),
            status,
            subtasks: subtasks.to_vec(),
            summary: None,
            artifacts: Vec::new(),
            checkpoints: Vec::new(),
        });
        Ok(())
    }
}

impl Goal {
    fn is_long(&self) -> bool {
        let texts =
            |texts: &[String]| texts.len() > LIST || texts.iter().any(|text| is_long(text, ITEM));
        let checkpoint = |point: &Checkpoint| {
            is_long(&point.description, TEXT)
                || [
                    &point.files_modified,
                    &point.tests_added,
                    &point.decisions_locked,
                ]
                .iter()
                .any(|list| texts(list))
        };
        is_long(&self.description, 1000)
            || self
                .summary
                .as_ref()
                .is_some_and(|summary| is_long(summary, TEXT))
            || texts(&self.subtasks)
            || texts(&self.artifacts)
            || self.checkpoints.len() > CHECKPOINTS
            || self.checkpoints.iter().any(checkpoint)
    }

    fn describe(&self) -> String {
        let status = match self.status {
            GoalStatus::Active => "active",
            GoalStatus::Paused => "paused",
            GoalStatus::Completed => "completed",
        };
        let mut text = format!(
            "g{} [{status}] ({}) {}",
            self.id,
            self.priority.name(),
            self.description
        );
        self.subtasks
            .iter()
            .for_each(|task| text.push_str(&format!("\n  - {task}")));
        self.checkpoints
            .iter()
            .for_each(|point| text.push_str(&point.describe()));
        self.summary
            .iter()
            .for_each(|summary| text.push_str(&format!("\n  done: {}", indented(summary, 4))));
        text.push_str(&listed("  artifacts", &self.artifacts));
        text
    }
}

impl Checkpoint {
    fn describe(&self) -> String {
        [
            format!("\n  at: {}", indented(&self.description, 4)),
            listed("    changed", &self.files_modified),
            listed("    tests", &self.tests_added),
            listed("    decided", &self.decisions_locked),
        ]
        .concat()
    }
}

/// A line with the items of a list; nothing if there are none.
fn listed(head: &str, items: &[String]) -> String {
    match items {
        [] => String::new(),
        items => format!("\n{head}: {}", indented(&items.join("; "), 6)),
    }
}

/// A text whose further lines begin with as many spaces, so that none looks like a line of the list.
fn indented(text: &str, spaces: usize) -> String {
    text.replace('\n', &format!("\n{:spaces$}", ""))
}

impl StateFile for Goals {
    const PATH: &'static str = "state/goals.json";

    fn fault(&self) -> Option<&'static str> {
        match self {
            _ if self.goals.len() > MAX => Some("too many goals"),
            _ if self.goals.iter().any(Goal::is_long) => Some("a goal is too long"),
            _ => None,
        }
    }

    fn listing(&self) -> (String, usize) {
        let goals: Vec<_> = self.goals.iter().map(Goal::describe).collect();
        (
            if goals.is_empty() {
                "no goals".to_owned()
            } else {
                goals.join("\n")
            },
            goals.len(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::StateCommand;
    use super::*;

    fn run(kept: &mut Option<Vec<u8>>, change: GoalChange) -> Result<String, StateError> {
        let effect = StateCommand::Goals(change).apply(kept.as_deref())?;
        *kept = effect.save;
        Ok(effect.text)
    }

    fn create(description: &str) -> GoalChange {
        GoalChange::Create {
            description: description.into(),
            priority: None,
            subtasks: vec!["step".into()],
        }
    }

    #[test]
    fn one_goal_is_active_at_a_time() {
        let mut kept = None;
        assert_eq!(
            run(&mut kept, create("a")).unwrap(),
            "g1 [active] (medium) a\n  - step"
        );
        run(&mut kept, create("b")).unwrap();
        let new = GoalChange::New {
            description: "c".into(),
            priority: Some(Priority::High),
        };
        let text = run(&mut kept, new).unwrap();
        assert!(
            text.contains("g1 [paused]")
                && text.contains("g2 [paused]")
                && text.contains("g3 [active] (high) c")
        );
        let text = run(&mut kept, GoalChange::Resume("g1".into())).unwrap();
        assert!(text.contains("g1 [active]") && text.contains("g3 [paused]"));
        let checkpoint = Checkpoint {
            description: "half\nbecause: it is late".into(),
            files_modified: vec!["a.rs".into(), "b.rs".into()],
            tests_added: vec!["t".into()],
            decisions_locked: vec!["no threads".into()],
        };
        kept = StateCommand::Checkpoint(checkpoint.clone())
            .apply(kept.as_deref())
            .unwrap()
            .save;
        let text = run(
            &mut kept,
            GoalChange::Complete {
                summary: "all".into(),
                artifacts: vec!["out".into()],
            },
        )
        .unwrap();
        assert!(
            text.contains(
                "g1 [completed] (medium) a\n  - step\n  at: half\n    because: it is late\n    changed: a.rs; b.rs\n    \
                 tests: t\n    decided: no threads\n  done: all\n  artifacts: out"
            ),
            "{text}"
        );
        for change in [
            GoalChange::Pause,
            GoalChange::Resume("g1".into()),
            GoalChange::Resume("g9".into()),
        ] {
            assert!(matches!(
                run(&mut kept, change),
                Err(StateError::Missing(_))
            ));
        }
        assert!(
            StateCommand::Checkpoint(checkpoint)
                .apply(kept.as_deref())
                .is_err()
        );
    }

    #[test]
    fn goals_are_full_at_their_edge() {
        let mut kept = None;
        (0..MAX).for_each(|_| drop(run(&mut kept, create("x")).unwrap()));
        let new = GoalChange::New {
            description: "y".into(),
            priority: None,
        };
        for change in [create("y"), new] {
            assert_eq!(
                run(&mut kept, change),
                Err(StateError::Full {
                    max: MAX,
                    what: "goals"
                })
            );
        }
    }
}
